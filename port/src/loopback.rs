//! A port whose transmitted frames are received again.

use conic_fabric::Time;

use crate::{Counters, MAX_FRAME, Port, PortError, Receive, Transmit};

/// A bounded first-in first-out queue of frames. Its memory is fixed when it is made: 9600 bytes a frame, which the
/// kernel backs with pages only as they are first written.
///
/// ```
/// use conic_fabric::Time;
/// use conic_port::{Loopback, Port, Receive, Transmit, MAX_FRAME};
///
/// let mut port = Loopback::new(4);
/// assert_eq!(port.transmit(Time::ZERO, &[7; 60])?, Transmit::Accepted);
/// let mut frame = [0; MAX_FRAME];
/// assert_eq!(port.receive(Time::ZERO, &mut frame)?, Receive::Frame { length: 60, captured: None });
/// assert_eq!(frame[..60], [7; 60]);
/// # Ok::<(), conic_port::PortError>(())
/// ```
pub struct Loopback {
    /// Slot `i` is bytes `i * MAX_FRAME` onwards.
    bytes: Box<[u8]>,
    lengths: Box<[u16]>,
    /// The slot that is received next.
    head: usize,
    queued: usize,
    counters: Counters,
}

impl Loopback {
    /// A loopback that holds up to `frames` frames.
    ///
    /// # Panics
    /// `frames` is 0 or more than 65536 (630 MB): a mistake of the program, not of its input.
    pub fn new(frames: usize) -> Loopback {
        assert!((1..=65_536).contains(&frames), "a loopback holds 1 to 65536 frames, not {frames}");
        Loopback {
            bytes: vec![0; frames * MAX_FRAME].into_boxed_slice(),
            lengths: vec![0; frames].into_boxed_slice(),
            head: 0,
            queued: 0,
            counters: Counters::default(),
        }
    }

    /// The number of frames that wait to be received.
    pub fn queued(&self) -> usize {
        self.queued
    }
}

impl Port for Loopback {
    fn receive(&mut self, _now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        if self.queued == 0 {
            return Ok(Receive::None);
        }
        let slot = self.head;
        let length = usize::from(self.lengths[slot]);
        self.head = if slot + 1 == self.lengths.len() { 0 } else { slot + 1 };
        self.queued -= 1;
        let Some(destination) = frame.get_mut(..length) else {
            self.counters.skipped_oversized += 1;
            return Ok(Receive::Skipped);
        };
        destination.copy_from_slice(&self.bytes[slot * MAX_FRAME..][..length]);
        self.counters.count_received(length);
        Ok(Receive::Frame { length, captured: None })
    }

    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse_length(frame) {
            return Ok(Transmit::Refused);
        }
        let slots = self.lengths.len();
        if self.queued == slots {
            self.counters.transmit_full += 1;
            return Ok(Transmit::Full);
        }
        let behind = self.head + self.queued;
        let slot = if behind >= slots { behind - slots } else { behind };
        self.bytes[slot * MAX_FRAME..][..frame.len()].copy_from_slice(frame);
        self.lengths[slot] = frame.len() as u16;
        self.queued += 1;
        self.counters.count_transmitted(frame.len());
        Ok(Transmit::Accepted)
    }

    fn next_due(&self) -> Option<Time> {
        (self.queued > 0).then_some(Time::ZERO)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn description(&self) -> String {
        format!("loopback of {} frames", self.lengths.len())
    }
}
