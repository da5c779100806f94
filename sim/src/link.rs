//! The coherent interconnect's wires: flits and slots, links side by side, one direction at a time.
//!
//! A message about a line takes the link that the line's number selects, behind every earlier message on that link. The
//! arithmetic is that of Intel's UPI (flits of 24 bytes with 3 slots; a line is 4 flits, of which it and its header fill 9
//! slots), with every size a parameter. A flit *leaves* when its first bit does: what is ready by then may still ride.

use crate::parameters::InterconnectParameters;

mod spread;
pub use spread::{MOST_PARTS, Spread, mix};

/// What one link carried in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Messages with a line.
    pub data_messages: u64,
    /// Messages without.
    pub header_messages: u64,
    /// Those of the headers that found a place in a flit that was leaving anyway.
    pub headers_riding: u64,
    /// Flits that left.
    pub flits: u64,
    /// Slots of those flits that carried something.
    pub slots_used: u64,
}

impl LinkCounters {
    fn add(&mut self, other: &LinkCounters) {
        self.data_messages += other.data_messages;
        self.header_messages += other.header_messages;
        self.headers_riding += other.headers_riding;
        self.flits += other.flits;
        self.slots_used += other.slots_used;
    }
}

/// One link in one direction.
#[derive(Clone, Debug, Default)]
struct Link {
    /// When the last flit has left entirely.
    busy_until: u64,
    /// Free slots at the end of the flits up to then.
    free_slots: u32,
    counters: LinkCounters,
}

/// One direction of the interconnect: its links, each first in, first out.
///
/// Calls are made in nondecreasing order of `now`. Times are picoseconds.
#[derive(Clone, Debug)]
pub struct Direction {
    crossing: u64,
    flit_time: u64,
    flit_bytes: u32,
    flit_slots: u32,
    data_flits: u32,
    data_slots: u32,
    data_time: u64,
    header_slots: u32,
    header_flits: u32,
    spread: Spread,
    links: Vec<Link>,
}

impl Direction {
    /// Empty links.
    ///
    /// # Panics
    /// Where there is no link or more than [`MOST_PARTS`], no slot or flit, or where a message does not fit into its flits.
    pub fn new(parameters: &InterconnectParameters) -> Direction {
        let p = parameters;
        assert!(p.links > 0, "interconnect.links is 0: there must be a link");
        assert!(p.flit_slots > 0 && p.header_slots > 0, "interconnect.flit_slots and header_slots must not be 0");
        assert!(
            0 < p.data_slots && p.data_slots <= p.data_flits * p.flit_slots,
            "interconnect.data_slots is {}, and must be from 1 to the {} slots of data_flits",
            p.data_slots,
            p.data_flits * p.flit_slots
        );
        Direction {
            crossing: p.crossing,
            flit_time: p.flit_time,
            flit_bytes: p.flit_bytes,
            flit_slots: p.flit_slots,
            data_flits: p.data_flits,
            data_slots: p.data_slots,
            data_time: u64::from(p.data_flits) * p.flit_time,
            header_slots: p.header_slots,
            header_flits: p.header_slots.div_ceil(p.flit_slots),
            spread: Spread::new(p.links, 0),
            links: vec![Link::default(); p.links as usize],
        }
    }

    /// The link that carries messages about a line.
    pub fn link_of(&self, line: u64) -> usize {
        self.spread.part(line)
    }

    /// Sends a message that carries a line and is ready at `now`; says when the whole of it is on the other side.
    ///
    /// It always takes the time of its flits: that is what was measured. But it begins in the free slots before it, where
    /// those have not left; so the free slots of a queue are the last ones, as many as this message can move there.
    pub fn send_data(&mut self, line: u64, now: u64) -> u64 {
        let at = self.link_of(line);
        let link = &mut self.links[at];
        let before = usable_slots(link, self.flit_slots, self.flit_time, now).min(self.data_slots);
        link.busy_until = link.busy_until.max(now) + self.data_time;
        link.free_slots = before + self.data_flits * self.flit_slots - self.data_slots;
        link.counters.data_messages += 1;
        link.counters.flits += u64::from(self.data_flits);
        link.counters.slots_used += u64::from(self.data_slots);
        link.busy_until + self.crossing
    }

    /// Sends a message without a line that is ready at `now`; says when it is on the other side.
    ///
    /// It rides in free slots behind the last line of its link's queue where a flit with such slots has not left yet, and
    /// arrives with that flit's queue: it never overtakes a message. Otherwise it takes a flit, in whose other slots later headers may
    /// ride.
    pub fn send_header(&mut self, line: u64, now: u64) -> u64 {
        let at = self.link_of(line);
        let link = &mut self.links[at];
        let usable = usable_slots(link, self.flit_slots, self.flit_time, now);
        if usable >= self.header_slots {
            link.free_slots = usable - self.header_slots;
            link.counters.headers_riding += 1;
        } else {
            link.busy_until = link.busy_until.max(now) + u64::from(self.header_flits) * self.flit_time;
            link.free_slots = self.header_flits * self.flit_slots - self.header_slots;
            link.counters.flits += u64::from(self.header_flits);
        }
        link.counters.header_messages += 1;
        link.counters.slots_used += u64::from(self.header_slots);
        link.busy_until + self.crossing
    }

    /// How long a message that is ready at `now` waits for the link of its line, if it needs flits of its own.
    pub fn wait(&self, line: u64, now: u64) -> u64 {
        self.links[self.link_of(line)].busy_until.saturating_sub(now)
    }

    /// What one link carried.
    pub fn link_counters(&self, link: usize) -> LinkCounters {
        self.links[link].counters
    }

    /// What all links carried.
    pub fn counters(&self) -> LinkCounters {
        let mut sum = LinkCounters::default();
        for link in &self.links {
            sum.add(&link.counters);
        }
        sum
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Bytes that all links carried: whole flits.
    pub fn bytes(&self) -> u64 {
        self.counters().flits * u64::from(self.flit_bytes)
    }

    /// For how long one link was occupied, in picoseconds.
    pub fn busy_time(&self, link: usize) -> u64 {
        self.links[link].counters.flits * self.flit_time
    }
}

/// Free slots at the end of a link's queue in flits that have not left by `now`.
///
/// They are the last ones, so the last flit holds the last `flit_slots` of them, and the flits before it the others.
#[inline]
fn usable_slots(link: &Link, flit_slots: u32, flit_time: u64, now: u64) -> u32 {
    let mut usable = 0;
    let mut leaves_at_or_after_now = now + flit_time;
    while usable < link.free_slots && leaves_at_or_after_now <= link.busy_until {
        usable += flit_slots;
        leaves_at_or_after_now += flit_time;
    }
    usable.min(link.free_slots)
}

#[cfg(test)]
mod tests;
