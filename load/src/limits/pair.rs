//! The exchange of a line pair, and of FastForward's slots, with as little around them as there can be.

use conic_fabric::{Core, Home, Layout, Line, Time};
use conic_interface::fastforward;
use conic_interface::pio::{Device, Features, Host, Lines, Played, Poll, Shape};

use super::{Moved, STOP, in_batches};

/// Seven words there and seven back, each in a line of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePair {
    lines: Lines,
}

/// Bytes of a line's payload.
const BYTES: usize = 56;

impl LinePair {
    /// A pair in the memory of `home`.
    pub fn new(layout: &mut Layout, home: Home) -> LinePair {
        LinePair { lines: Shape::pair().place(layout, home).expect("a pair can be") }
    }

    /// Exchanges until `until`, says how long each batch took, and then stops [`LinePair::answer`]. Needs fresh lines.
    ///
    /// # Panics
    ///
    /// If an answer is not what was sent.
    pub fn call<C: Core>(&self, core: &C, until: Time, batch: impl FnMut(Moved)) -> Moved {
        let mut host = Host::new(core, self.lines, Features::PLAYED);
        let mut sum = 0;
        let moved = in_batches(core, until, batch, |count| sum += exchange(&mut host, core, count));
        exchange(&mut host, core, STOP);
        let count = moved.count;
        assert_eq!(sum, 7 * count * (count + 1) / 2, "payloads came back other than they were sent");
        moved
    }

    /// Answers until the caller stops.
    pub fn answer<C: Core>(&self, core: &C) {
        let mut device = Played::new(core, self.lines);
        loop {
            if device.poll().is_none() {
                device.spin();
                continue;
            }
            let request = device.request_line();
            device.respond_line(request, BYTES);
            if request.0[7] == STOP {
                return;
            }
        }
    }
}

/// Sends seven words and gives the sum of those that come back.
#[inline(always)]
fn exchange<C: Core>(host: &mut Host<&C>, core: &C, word: u64) -> u64 {
    host.begin_line(Line([word; 8]), BYTES);
    while host.poll_in_time() != Poll::Response(BYTES) {
        core.spin();
    }
    host.response_line().0[1..].iter().fold(0, |sum, &word| sum.wrapping_add(word))
}

/// Seven words there and seven back, in the slots of two FastForward queues: what coherent programmed I/O is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPair {
    there: fastforward::Queue,
    back: fastforward::Queue,
}

impl SlotPair {
    /// Two queues of 64 slots, each in its sender's memory.
    pub fn new(layout: &mut Layout) -> SlotPair {
        let mut queue = |home| fastforward::Shape::default().place(layout, home).expect("the default shape can be");
        SlotPair { there: queue(Home::Host), back: queue(Home::Nic) }
    }

    /// Exchanges until `until`, says how long each batch took, and then stops [`SlotPair::answer`]. Needs a fresh region.
    ///
    /// # Panics
    ///
    /// If an answer is not what was sent.
    pub fn call<C: Core>(&self, core: &C, until: Time, batch: impl FnMut(Moved)) -> Moved {
        let (mut there, mut back) = (self.there.sender(core), self.back.receiver(core));
        let mut sum = 0;
        let mut exchange = |word: u64| {
            // One message is in flight, so that there is a free slot.
            there.try_send(&[word; 7]);
            loop {
                match back.try_receive() {
                    Some(payload) => return payload.iter().fold(0, |sum: u64, &word| sum.wrapping_add(word)),
                    None => core.spin(),
                }
            }
        };
        let moved = in_batches(core, until, batch, |count| sum += exchange(count));
        exchange(STOP);
        let count = moved.count;
        assert_eq!(sum, 7 * count * (count + 1) / 2, "payloads came back other than they were sent");
        moved
    }

    /// Answers until the caller stops.
    pub fn answer<C: Core>(&self, core: &C) {
        let (mut there, mut back) = (self.there.receiver(core), self.back.sender(core));
        loop {
            match there.try_receive() {
                Some(payload) => {
                    back.try_send(&payload);
                    if payload[0] == STOP {
                        return;
                    }
                }
                None => core.spin(),
            }
        }
    }
}
