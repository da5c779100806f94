//! The CXL link's layer: credits for each class of message, and retries of flits that arrive damaged.
//!
//! | mechanism | what (CXL specification, link layer) |
//! |---|---|
//! | credits | a message departs when the receiver has room for it; one that waits is passed by messages of other classes about other lines |
//! | retry buffer | the sender keeps every flit until it is acknowledged, and stops where the buffer is full |
//! | retry | a flit that arrives damaged is asked for again; it and everything behind it is sent once more, in order (go-back-N) |
//!
//! Messages about one line keep their order whatever their class: a snoop does not pass the grant before it. All of that is exact
//! for a message, whose quarters of slots are not told apart: a damaged flit takes the messages that have a part of it.

use std::collections::VecDeque;

use super::parameters::CxlLinkParameters;
use crate::credits::Credits;
use crate::draws::part;
use crate::link::{Direction, mix};

/// What a receiver has room for, each kind by itself: a message of one must not wait for one of another to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// CXL.cache: a device's request, a snoop.
    Request,
    /// CXL.cache: an answer without data.
    Answer,
    /// CXL.cache: data, with the answer that it may come with.
    Data,
    /// CXL.mem: a request of the host, with or without data; an answer of the device's memory.
    Memory,
}

/// All of them, in the order of their variants.
pub(super) const CLASSES: [Class; 4] = [Class::Request, Class::Answer, Class::Data, Class::Memory];

impl Class {
    /// What its messages are called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Request => "requests",
            Class::Answer => "answers",
            Class::Data => "data",
            Class::Memory => "memory's messages",
        }
    }
}

/// What the layer did in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCounters {
    /// Messages that waited for a credit, or behind one that did.
    pub waited: u64,
    /// Messages that arrived damaged.
    pub damaged: u64,
    /// Messages that waited because the retry buffer was full.
    pub full: u64,
}

/// A message that waits for a credit.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: u32,
    line: u32,
    class: Class,
}

/// One direction of the link.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    wire: Direction,
    credits: [Credits; CLASSES.len()],
    waiting: VecDeque<Waiting>,
    /// Messages that are not acknowledged: when they will be, and how many quarters they have; oldest first.
    kept: VecDeque<(u64, u32)>,
    kept_quarters: u32,
    /// Since when the last message has been kept: it had waited for room until then.
    kept_from: u64,
    /// Messages so far, which the errors are drawn by.
    sent: u64,
    seed: u64,
    /// Messages that were sent.
    messages: u64,
    pub(super) counters: LayerCounters,
}

impl Channel {
    /// An idle direction. Errors are drawn from `seed`.
    pub(super) fn new(parameters: &CxlLinkParameters, seed: u64) -> Channel {
        let p = parameters;
        let credits = [p.request_credits, p.answer_credits, p.data_credits, p.memory_credits].map(Credits::new);
        Channel {
            wire: Direction::new(&p.wires()),
            credits,
            waiting: VecDeque::new(),
            kept: VecDeque::new(),
            kept_quarters: 0,
            kept_from: 0,
            sent: 0,
            seed,
            messages: 0,
            counters: LayerCounters::default(),
        }
    }

    /// How long a message that is ready at `now` would wait for the wire.
    pub(super) fn wait(&self, line: u32, now: u64) -> u64 {
        self.wire.wait(line.into(), now)
    }

    /// The credits of a class.
    pub(super) fn credits(&self, class: Class) -> &Credits {
        &self.credits[class as usize]
    }

    /// Messages that were sent.
    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// Messages that wait for a credit.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a credit for a message; if there is none, or one about the same line waits, it waits, and [`Channel::give_back`] names
    /// it.
    pub(super) fn take_credit(&mut self, key: u32, line: u32, class: Class, now: u64) -> bool {
        let behind = self.waiting.iter().any(|other| other.line == line || other.class == class);
        if !behind && self.credits[class as usize].try_take(now) {
            return true;
        }
        self.counters.waited += 1;
        self.waiting.push_back(Waiting { key, line, class });
        false
    }

    /// The receiver has room for one more of a class; names the messages that may depart now.
    pub(super) fn give_back(&mut self, class: Class, now: u64) -> Vec<u32> {
        // Nobody waits in the pool itself: who is next depends on the line as well.
        let next = self.credits[class as usize].give(now);
        debug_assert!(next.is_none(), "messages wait here");
        let mut depart = Vec::new();
        let mut place = 0;
        while place < self.waiting.len() {
            let Waiting { key, line, class } = self.waiting[place];
            let mut before = self.waiting.iter().take(place);
            let first = before.all(|other| other.line != line && other.class != class);
            if first && self.credits[class as usize].try_take(now) {
                self.waiting.remove(place);
                depart.push(key);
            } else {
                place += 1;
            }
        }
        depart
    }

    /// Since when the message that was sent last has been kept.
    pub(super) fn kept_from(&self) -> u64 {
        self.kept_from
    }

    /// Sends a message of so many quarters of a slot that has a credit; says when the whole of it is there and undamaged.
    pub(super) fn send(&mut self, line: u32, now: u64, quarters: u32, p: &CxlLinkParameters) -> u64 {
        self.messages += 1;
        let mut ready = now;
        let room = p.retry_flits * p.flit_quarters;
        while let Some((acknowledged, kept)) = self.kept.front().copied() {
            if acknowledged > ready {
                if self.kept_quarters + quarters <= room {
                    break;
                }
                self.counters.full += u64::from(ready == now);
                ready = acknowledged;
            }
            self.kept_quarters -= kept;
            self.kept.pop_front();
        }
        self.kept_from = ready;
        let mut there = self.wire.send_flits(line.into(), ready, quarters);
        while self.is_damaged(quarters, p) {
            self.counters.damaged += 1;
            // The request to send again goes the way of an acknowledgement, and the message is sent once more.
            there = self.wire.send_flits(line.into(), there + p.acknowledge + p.crossing, quarters);
        }
        self.kept.push_back((there + p.acknowledge + p.crossing, quarters));
        self.kept_quarters += quarters;
        there
    }

    /// Draws whether a message's flits arrive damaged.
    fn is_damaged(&mut self, quarters: u32, p: &CxlLinkParameters) -> bool {
        if p.flit_error_rate == 0.0 {
            return false;
        }
        self.sent += 1;
        let drawn = part(mix(self.seed ^ self.sent.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let flits = f64::from(quarters) / f64::from(p.flit_quarters);
        drawn < 1.0 - (1.0 - p.flit_error_rate).powf(flits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> CxlLinkParameters {
        CxlLinkParameters {
            present: true,
            crossing: 45_000,
            quarter_time: 67,
            line_quarters: 16,
            data_header_quarters: 1,
            device_request_quarters: 4,
            snoop_quarters: 2,
            answer_quarters: 1,
            memory_request_quarters: 4,
            flit_quarters: 16,
            flit_error_rate: 0.0,
            retry_flits: 256,
            acknowledge: 65_000,
            credit_return: 50_000,
            request_credits: 4,
            answer_credits: 4,
            data_credits: 2,
            memory_credits: 4,
        }
    }

    #[test]
    fn a_damaged_message_comes_a_round_trip_later_and_nothing_passes_it() {
        let p = CxlLinkParameters { flit_error_rate: 0.5, ..parameters() };
        let mut channel = Channel::new(&p, 7);
        let (mut before, mut late) = (0, 0);
        for number in 0..1_000 {
            let (now, damaged) = (number * 1_000_000, channel.counters.damaged);
            let there = channel.send(3, now, 16, &p);
            let again = channel.counters.damaged - damaged;
            let once = 16 * p.quarter_time + p.crossing;
            let start = now.max(before);
            assert_eq!(there, start + once + again * (p.acknowledge + p.crossing + once), "message {number}");
            before = there - p.crossing;
            late += u64::from(again > 0);
        }
        // Half of the flits are damaged.
        assert!((450..550).contains(&late), "{late} of 1000 messages were damaged");
    }

    #[test]
    fn a_full_retry_buffer_stops_the_sender_until_its_oldest_flit_is_acknowledged() {
        let p = CxlLinkParameters { retry_flits: 2, ..parameters() };
        let mut channel = Channel::new(&p, 0);
        let first = channel.send(1, 0, 16, &p);
        let second = channel.send(1, 0, 16, &p);
        assert_eq!((first, second - first, channel.counters.full), (p.crossing + 16 * 67, 16 * 67, 0));
        let third = channel.send(1, 0, 16, &p);
        assert_eq!(third, first + p.acknowledge + p.crossing + p.crossing + 16 * 67);
        assert_eq!(channel.counters.full, 1);
    }

    #[test]
    fn messages_wait_for_credits_of_their_class_and_behind_those_of_their_line() {
        let mut channel = Channel::new(&parameters(), 0);
        assert!(channel.take_credit(1, 10, Class::Data, 0) && channel.take_credit(2, 11, Class::Data, 0));
        assert!(!channel.take_credit(3, 12, Class::Data, 0), "there are two credits");
        assert!(channel.take_credit(4, 13, Class::Request, 0), "another class passes");
        assert!(!channel.take_credit(5, 12, Class::Request, 0), "but not about the line of one that waits");
        assert!(!channel.take_credit(6, 14, Class::Request, 0), "nor one of its class behind it");
        assert!(channel.give_back(Class::Request, 5).is_empty(), "the first must go first");
        assert_eq!(channel.give_back(Class::Data, 9), [3, 5, 6]);
        assert_eq!(channel.counters.waited, 3);
    }
}
