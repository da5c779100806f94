//! The client of all contestants: a closed loop over one port or two.

use conic_fabric::Time;
use conic_load::Latency;
use conic_native::clock;
use conic_port::{MAX_FRAME, Port, PortError, Receive, Transmit};

use super::numbers::Numbers;
use crate::bench::failure::Failure;

/// A frame that has not come by then is waited for no longer, and lost if it does not come in the end either.
const LOST: Time = Time::from_nanoseconds(20_000_000);
/// How long the next frame is waited for in the end.
const PATIENCE: Time = Time::from_nanoseconds(1_000_000_000);
const WARM_UP: Time = Time::from_nanoseconds(100_000_000);
/// How long the two stations are known before they are measured.
const INTRODUCED: Time = Time::from_nanoseconds(50_000_000);
/// Frames that are sent before it looks for answers.
const BURST: u64 = 32;
/// The EtherType for local experiments (IEEE 802).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// Where a frame's number, its time and the rest begin.
const NUMBER: usize = 14;
const STAMP: usize = 22;
const FILL: usize = 30;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub name: &'static str,
    /// Bytes of a frame without its check sequence.
    pub bytes: usize,
    /// Frames under way at most.
    pub window: u64,
}

/// What a measurement came to.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub mpps: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub lost: u64,
    pub corrupt: u64,
    /// What the server's process spent meanwhile.
    pub user_seconds: f64,
    pub kernel_seconds: f64,
}

/// Where the client sends and receives: one port, or one for each.
pub struct Ends {
    pub send: Box<dyn Port>,
    /// None: the same.
    pub receive: Option<Box<dyn Port>>,
}

/// Frames of one measurement.
struct Loop<'a> {
    ends: &'a mut Ends,
    load: Load,
    numbers: Numbers,
    came: u64,
    corrupt: u64,
    /// When the last frame came, or frames were last given up.
    alive: Time,
    frame: Vec<u8>,
    buffer: Vec<u8>,
    expected: Vec<u8>,
}

/// Runs the loop, warm-up first; `spent` gives the server's seconds in user mode and in the kernel.
///
/// # Errors
///
/// A port breaks, or nothing at all comes back.
pub fn measure(
    ends: &mut Ends,
    load: Load,
    duration: Time,
    spent: impl Fn() -> (f64, f64),
) -> Result<Figures, Failure> {
    let failed = |error: PortError| Failure::failed(error.to_string());
    introduce(ends, load).map_err(failed)?;
    let mut work = Loop::new(ends, load);
    let mut latencies = Latency::new();
    work.run(clock::now() + WARM_UP, &mut latencies).map_err(failed)?;
    if work.came == 0 {
        return Err(Failure::failed("nothing comes back"));
    }
    let (came, before) = (work.came, spent());
    let begun = clock::now();
    latencies.clear();
    work.run(begun + duration, &mut latencies).map_err(failed)?;
    let seconds = clock::now().since(begun).seconds();
    let (after, frames) = (spent(), work.came - came);
    work.drain().map_err(failed)?;
    if frames == 0 {
        return Err(Failure::failed("nothing comes back while it is measured"));
    }
    let quantile = |share: f64| latencies.quantile(share).picoseconds() as f64 / 1e3;
    Ok(Figures {
        mpps: frames as f64 / seconds / 1e6,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        lost: work.numbers.lost(),
        corrupt: work.corrupt,
        user_seconds: after.0 - before.0,
        kernel_seconds: after.1 - before.1,
    })
}

/// The addresses of whom frames are for, and of whom they are from.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 8];

/// Lets whatever learns addresses know where both stations are, where frames go from one interface to another.
fn introduce(ends: &mut Ends, load: Load) -> Result<(), PortError> {
    let Ends { send, receive: Some(receive) } = ends else { return Ok(()) };
    let mut frame = vec![0; load.bytes];
    frame[12..14].copy_from_slice(&[0x88, 0xb6]);
    let now = clock::now();
    for (port, from, to) in [(&mut *send, FROM, TO), (receive, TO, FROM)] {
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        port.transmit(now, &frame)?;
        port.flush(now)?;
    }
    // Nobody reads what comes to the sending end.
    let mut room = vec![0; MAX_FRAME];
    while clock::now().since(now) < INTRODUCED {
        send.receive(clock::now(), &mut room)?;
    }
    Ok(())
}

impl<'a> Loop<'a> {
    fn new(ends: &'a mut Ends, load: Load) -> Loop<'a> {
        let pattern: Vec<u8> = (0..load.bytes).map(|at| (at * 31 + 7) as u8).collect();
        let mut frame = pattern.clone();
        frame[..6].copy_from_slice(&TO);
        frame[6..12].copy_from_slice(&FROM);
        frame[12..14].copy_from_slice(&EXPERIMENT);
        Loop {
            ends,
            load,
            numbers: Numbers::default(),
            came: 0,
            corrupt: 0,
            alive: clock::now(),
            frame,
            buffer: vec![0; MAX_FRAME],
            expected: pattern,
        }
    }

    fn run(&mut self, until: Time, latencies: &mut Latency) -> Result<(), PortError> {
        loop {
            let now = clock::now();
            if now >= until {
                return Ok(());
            }
            self.send(now)?;
            self.receive(now, latencies)?;
            if now.since(self.alive) > LOST {
                // What is under way will not come.
                self.numbers.give_up();
                self.alive = now;
            }
        }
    }

    fn send(&mut self, now: Time) -> Result<(), PortError> {
        let mut burst = 0;
        while burst < BURST && self.numbers.waited_for() < self.load.window {
            self.frame[NUMBER..STAMP].copy_from_slice(&self.numbers.sent().to_le_bytes());
            self.frame[STAMP..FILL].copy_from_slice(&now.nanoseconds().to_le_bytes());
            if self.ends.send.transmit(now, &self.frame)? != Transmit::Accepted {
                break;
            }
            self.numbers.send();
            burst += 1;
        }
        if burst > 0 {
            self.ends.send.flush(now)?;
        }
        Ok(())
    }

    fn receive(&mut self, now: Time, latencies: &mut Latency) -> Result<(), PortError> {
        loop {
            let Ends { send, receive } = &mut *self.ends;
            let port = receive.as_mut().unwrap_or(send);
            let length = match port.receive(now, &mut self.buffer)? {
                Receive::Frame { length, .. } => length,
                Receive::Skipped => continue,
                Receive::None | Receive::End => return Ok(()),
            };
            let frame = &self.buffer[..length];
            if frame[12..14] != EXPERIMENT {
                continue;
            }
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| frame[at + index]));
            let whole = length == self.load.bytes && frame[FILL..] == self.expected[FILL..];
            // One that came twice stands for none that was lost.
            let is_new = self.numbers.enter(word(NUMBER));
            self.corrupt += u64::from(!whole || !is_new);
            self.alive = now;
            self.came += u64::from(is_new);
            if whole && is_new {
                let latency = clock::now().nanoseconds().saturating_sub(word(STAMP));
                latencies.record(Time::from_nanoseconds(latency), 1);
            }
        }
    }

    /// Waits for what is under way, and for what was given up: the next measurement would take it for its own.
    fn drain(&mut self) -> Result<(), PortError> {
        self.alive = clock::now();
        let mut not_measured = Latency::new();
        while self.came < self.numbers.sent() && clock::now().since(self.alive) <= PATIENCE {
            self.receive(clock::now(), &mut not_measured)?;
        }
        self.numbers.give_up();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use conic_port::{Counters, PortSpec};

    /// Sends back what it is given after a while, changed as a test says.
    struct Changing<F> {
        change: F,
        after: Time,
        held: VecDeque<(Time, Vec<u8>)>,
        counters: Counters,
    }

    impl<F: FnMut(&mut Vec<u8>) -> bool + Send + 'static> Changing<F> {
        fn ends(change: F, after: Time) -> Ends {
            let port = Changing { change, after, held: VecDeque::new(), counters: Counters::default() };
            Ends { send: Box::new(port), receive: None }
        }
    }

    impl<F: FnMut(&mut Vec<u8>) -> bool + Send> Port for Changing<F> {
        fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
            let mut frame = frame.to_vec();
            if (self.change)(&mut frame) {
                self.held.push_back((now + self.after, frame));
            }
            Ok(Transmit::Accepted)
        }
        fn receive(&mut self, now: Time, into: &mut [u8]) -> Result<Receive, PortError> {
            if self.held.front().is_none_or(|(due, _)| *due > now) {
                return Ok(Receive::None);
            }
            let (_, frame) = self.held.pop_front().expect("it was looked at");
            into[..frame.len()].copy_from_slice(&frame);
            Ok(Receive::Frame { length: frame.len(), captured: None })
        }
        fn flush(&mut self, _: Time) -> Result<(), PortError> {
            Ok(())
        }
        fn next_due(&self) -> Option<Time> {
            None
        }
        fn counters(&self) -> &Counters {
            &self.counters
        }
    }

    /// So long that a thread has its core for some of it.
    const LONG: Time = Time::from_nanoseconds(200_000_000);

    const LOAD: Load = Load { name: "test", bytes: 64, window: 8 };

    /// Measures a port that sends back what `change` makes of each frame, and those alone of which it says so.
    fn measured(change: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Result<Figures, Failure> {
        measure(&mut Changing::ends(change, Time::ZERO), LOAD, LONG, || (0.0, 0.0))
    }

    #[test]
    fn a_frame_that_comes_late_is_not_lost_and_none_of_the_next_measurement() {
        let mut ends = Changing::ends(|_| true, Time::from_nanoseconds(125_000_000));
        let mut work = Loop::new(&mut ends, LOAD);
        work.run(clock::now() + LONG, &mut Latency::new()).expect("the port works");
        work.drain().expect("the port works");
        assert_eq!((work.came, work.numbers.lost(), work.corrupt), (work.numbers.sent(), 0, 0));
    }

    #[test]
    fn a_frame_that_came_back_wrong_has_no_latency() {
        // Its stamp is that of the process's beginning, and a byte that is checked is another.
        let mut number = 0;
        let figures = measured(move |frame| {
            number += 1;
            if number % 2 == 0 {
                frame[STAMP..FILL].fill(0);
                frame[FILL] ^= 1;
            }
            true
        });
        let figures = figures.expect("half of them come back whole");
        assert!(figures.corrupt > 0 && figures.p99_ns < 90e6, "{figures:?}");
    }

    #[test]
    fn whatever_stops_coming_back_after_the_warm_up_fails() {
        let mut number = 0;
        let first = move |_: &mut Vec<u8>| {
            number += 1;
            number <= 8
        };
        let failure = measured(first).expect_err("nothing comes in the end");
        assert!(failure.message.starts_with("nothing comes back"), "{failure}");
    }

    #[test]
    fn a_frame_that_comes_twice_does_not_stand_for_one_that_is_lost() {
        let mut last = Vec::new();
        let mut ends = Changing::ends(
            move |frame| {
                // Number 60 is taken for number 59 again.
                if frame[NUMBER..STAMP] == 60u64.to_le_bytes() {
                    frame.clone_from(&last);
                }
                last.clone_from(frame);
                true
            },
            Time::ZERO,
        );
        let mut work = Loop::new(&mut ends, LOAD);
        work.run(clock::now() + LONG, &mut Latency::new()).expect("the port works");
        work.drain().expect("the port works");
        assert_eq!((work.numbers.sent() - work.came, work.numbers.lost(), work.corrupt), (1, 1, 1));
    }

    #[test]
    fn frames_that_come_twice_are_corrupt_and_the_loop_goes_on() {
        let spec: PortSpec = "impair:duplicate=100%+loopback".parse().expect("a port");
        let mut ports = spec.open().expect("it needs nothing");
        let mut ends = Ends { send: ports.remove(0), receive: None };
        let figures = measure(&mut ends, LOAD, LONG, || (0.0, 0.0)).expect("frames come back");
        assert!(figures.corrupt > 0 && figures.mpps > 0.0, "{figures:?}");
        assert!(figures.lost < 1_000_000, "{figures:?}");
    }
}
