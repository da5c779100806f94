//! The proof: every frame that enters is remembered until it comes back, and compared.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::Flag;
use conic_port::{CaptureWriter, Counters, MAX_FRAME, Port, PortError, Receive, Timestamp, Transmit};

/// Frames between entering and coming back at most: more than the rings of a queue pair hold.
const MOST: usize = 1024;

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Frames that entered.
    pub frames_in: u64,
    /// Bytes of these.
    pub bytes_in: u64,
    /// Frames that came back.
    pub frames_out: u64,
    /// Frames that came back in their turn with every byte as it was.
    pub identical: u64,
    /// Frames that came back in another's turn or with other bytes.
    pub changed: u64,
    /// Frames that did not come back.
    pub missing: u64,
    /// Frames that came back and had not entered.
    pub extra: u64,
    /// When the first entered.
    pub begun: Option<Time>,
    /// When the last came back.
    pub ended: Time,
}

impl Verdict {
    /// Whether there were frames, every one came back in order with every byte as it was, and nothing else did.
    pub fn is_identical(&self) -> bool {
        self.frames_in > 0 && self.identical == self.frames_in && self.changed + self.missing + self.extra == 0
    }

    /// Seconds from the first frame in to the last frame out.
    pub fn seconds(&self) -> f64 {
        self.begun.map_or(0.0, |begun| self.ended.since(begun).seconds())
    }
}

/// A port that stands before a capture: it passes its frames on and compares what comes back with them.
///
/// It gives no errors: one of the capture ends it, one of the recording does too; [`Witness::finish`] says which it was.
pub struct Witness {
    port: Box<dyn Port>,
    output: Option<CaptureWriter<File>>,
    stop: Arc<Flag>,
    in_flight: InFlight,
    verdict: Verdict,
    error: Option<String>,
    ended: bool,
    latest: Timestamp,
}

impl Witness {
    /// A witness of the frames of `port`, recording what comes back to `output`, until `stop` is raised.
    pub fn new(port: Box<dyn Port>, output: Option<CaptureWriter<File>>, stop: Arc<Flag>) -> Witness {
        Witness {
            port,
            output,
            stop,
            in_flight: InFlight::new(),
            verdict: Verdict::default(),
            error: None,
            ended: false,
            latest: Timestamp::default(),
        }
    }

    /// Whether every frame that entered has come back.
    pub fn is_empty(&self) -> bool {
        self.in_flight.frames.is_empty()
    }

    /// What was seen so far.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// What was seen in all, what was wrong with the capture or the recording, and whether the recording is whole.
    pub fn finish(mut self) -> (Verdict, Option<String>, bool) {
        let mut recorded = false;
        if let Some(output) = &mut self.output {
            match output.finish() {
                Ok(()) => recorded = true,
                Err(error) => self.fail(error),
            }
        }
        self.verdict.missing += self.in_flight.frames.len() as u64;
        (self.verdict, self.error, recorded)
    }

    /// Ends the replay, because nothing comes back any more.
    pub fn give_up(&mut self) {
        self.fail("no frame came back for 2 seconds; the replay was given up");
    }

    fn fail(&mut self, error: impl ToString) {
        self.ended = true;
        self.error.get_or_insert(error.to_string());
    }

    /// Compares a frame that came back with the oldest that has not, and says when it was captured.
    fn compare(&mut self, frame: &[u8]) -> Option<Timestamp> {
        let Some(position) = self.in_flight.position_of(frame) else {
            let count = if self.is_empty() { &mut self.verdict.extra } else { &mut self.verdict.changed };
            *count += 1;
            return self.in_flight.pop().and_then(|entry| entry.captured);
        };
        // Those before it have been lost, or come later, which is out of order: either way not as they should.
        for _ in 0..position {
            self.in_flight.pop();
            self.verdict.missing += 1;
        }
        self.verdict.identical += 1;
        self.in_flight.pop().and_then(|entry| entry.captured)
    }
}

impl Port for Witness {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        if self.ended || self.stop.is_up() {
            self.ended = true;
            return Ok(Receive::End);
        }
        if self.in_flight.frames.len() == MOST {
            return Ok(Receive::None);
        }
        let received = match self.port.receive(now, frame) {
            Ok(received) => received,
            Err(error) => {
                self.fail(error);
                Receive::End
            }
        };
        if let Receive::Frame { length, captured } = received {
            self.verdict.begun.get_or_insert(now);
            self.verdict.frames_in += 1;
            self.verdict.bytes_in += length as u64;
            self.in_flight.push(&frame[..length], captured);
        }
        Ok(received)
    }

    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        self.verdict.frames_out += 1;
        self.verdict.ended = now;
        // A record without a time is written with its predecessor's: the format needs one.
        self.latest = self.compare(frame).unwrap_or(self.latest);
        if let Some(output) = &mut self.output
            && let Err(error) = output.write(self.latest, frame)
        {
            self.output = None;
            self.fail(error);
        }
        Ok(Transmit::Accepted)
    }

    fn next_due(&self) -> Option<Time> {
        self.port.next_due()
    }

    fn counters(&self) -> &Counters {
        self.port.counters()
    }
}

/// Copies of the frames that have entered and not come back, oldest first, in fixed memory.
struct InFlight {
    /// [`MOST`] slots of [`MAX_FRAME`] bytes.
    bytes: Box<[u8]>,
    frames: VecDeque<Entry>,
    next_slot: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    slot: usize,
    length: usize,
    captured: Option<Timestamp>,
}

impl InFlight {
    fn new() -> InFlight {
        let bytes = vec![0; MOST * MAX_FRAME].into_boxed_slice();
        InFlight { bytes, frames: VecDeque::with_capacity(MOST), next_slot: 0 }
    }

    fn push(&mut self, frame: &[u8], captured: Option<Timestamp>) {
        let slot = self.next_slot;
        self.bytes[slot * MAX_FRAME..][..frame.len()].copy_from_slice(frame);
        self.frames.push_back(Entry { slot, length: frame.len(), captured });
        self.next_slot = (slot + 1) % MOST;
    }

    /// Where in the queue the oldest frame with these bytes is.
    fn position_of(&self, frame: &[u8]) -> Option<usize> {
        let same = |entry: &Entry| self.bytes[entry.slot * MAX_FRAME..][..entry.length] == *frame;
        self.frames.iter().position(same)
    }

    fn pop(&mut self) -> Option<Entry> {
        self.frames.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conic_port::Loopback;

    /// A witness of three frames that differ in their first byte, all of which have entered.
    fn three_in_flight() -> Witness {
        let mut port = Loopback::new(4);
        for first in 1..=3 {
            let mut frame = [0; 60];
            frame[0] = first;
            port.transmit(Time::ZERO, &frame).expect("a loopback does not fail");
        }
        let mut witness = Witness::new(Box::new(port), None, Arc::new(Flag::new()));
        let mut frame = [0; MAX_FRAME];
        while witness.receive(Time::ZERO, &mut frame).expect("as above") != Receive::None {}
        witness
    }

    /// The verdict when these frames come back.
    fn verdict_of(firsts: &[u8], changed_byte: Option<usize>) -> Verdict {
        let mut witness = three_in_flight();
        for &first in firsts {
            let mut frame = [0; 60];
            frame[0] = first;
            if let Some(at) = changed_byte {
                frame[at] ^= 0x80;
            }
            witness.transmit(Time::ZERO, &frame).expect("a witness gives no errors");
        }
        witness.finish().0
    }

    #[test]
    fn what_comes_back_as_it_was_is_identical() {
        let verdict = verdict_of(&[1, 2, 3], None);
        assert!(verdict.is_identical());
        assert_eq!((verdict.frames_in, verdict.frames_out, verdict.identical, verdict.bytes_in), (3, 3, 3, 180));
    }

    #[test]
    fn every_changed_byte_is_seen() {
        for at in 0..60 {
            let verdict = verdict_of(&[1, 2, 3], Some(at));
            assert_eq!((verdict.changed, verdict.is_identical()), (3, false), "byte {at}");
        }
    }

    #[test]
    fn a_lost_frame_a_second_copy_and_another_order_are_seen() {
        let lost = verdict_of(&[1, 3], None);
        assert_eq!((lost.identical, lost.missing, lost.is_identical()), (2, 1, false));
        let lost_at_the_end = verdict_of(&[1, 2], None);
        assert_eq!((lost_at_the_end.missing, lost_at_the_end.is_identical()), (1, false));
        let twice = verdict_of(&[1, 2, 3, 3], None);
        assert_eq!((twice.extra, twice.is_identical()), (1, false));
        let swapped = verdict_of(&[2, 1, 3], None);
        assert!(!swapped.is_identical());
    }
}
