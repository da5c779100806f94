//! The coherent interconnect's wires: flits and slots, links side by side, one direction at a time.
//!
//! A message about a line takes the link that the line's number selects, behind every earlier message on that link. The
//! arithmetic is that of Intel's UPI (flits of 24 bytes with 3 slots; a line is 4 flits, of which it fills 9 slots and its header
//! a tenth), with every size a parameter. A flit *leaves* when its first bit does: what is ready by then may still ride.

use crate::parameters::InterconnectParameters;
use crate::probe::counters::LinkCounters;

mod spread;
pub use spread::{MOST_PARTS, Spread, mix};

/// What is counted as messages leave; the rest of [`LinkCounters`] follows from it.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    data: u64,
    headers: u64,
    riding: u64,
}

/// One link in one direction.
#[derive(Clone, Debug, Default)]
struct Link {
    /// When the last flit has left entirely.
    busy_until: u64,
    /// Free slots at the end of the flits up to then.
    free_slots: u32,
    counts: Counts,
}

/// One direction of the interconnect: its links, each first in, first out.
///
/// Calls are made in nondecreasing order of `now`. Times are picoseconds.
#[derive(Clone, Debug)]
pub struct Direction {
    crossing: u64,
    flit_time: u64,
    /// 2^64 / `flit_time`, rounded up: a multiplication in the place of a division.
    flit_reciprocal: u128,
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
    /// Where there is no link or more than [`MOST_PARTS`], no slot or flit, or where a message does not fit into its flits, or a
    /// flit takes no time.
    pub fn new(parameters: &InterconnectParameters) -> Direction {
        let p = parameters;
        assert!(p.links > 0, "interconnect.links is 0: there must be a link");
        assert!(p.flit_time > 0, "interconnect.flit_time is 0: a flit takes time");
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
            flit_reciprocal: (1_u128 << 64).div_ceil(u128::from(p.flit_time)),
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
    /// those have not left; so the free slots of a queue are its last ones, at most as many as the flits of a line have.
    #[inline]
    pub fn send_data(&mut self, line: u64, now: u64) -> u64 {
        self.send_data_over(self.link_of(line), now)
    }

    /// The same for whoever knows the link of the line.
    #[inline(always)]
    pub fn send_data_over(&mut self, at: usize, now: u64) -> u64 {
        let before = self.usable_slots(&self.links[at], now);
        let link = &mut self.links[at];
        link.busy_until = link.busy_until.max(now) + self.data_time;
        link.free_slots = before + self.data_flits * self.flit_slots - self.data_slots;
        link.counts.data += 1;
        link.busy_until + self.crossing
    }

    /// Sends a message without a line that is ready at `now`; says when it is on the other side.
    ///
    /// It rides in free slots at the end of its link's queue where a flit with such slots has not left yet, and arrives with
    /// the last message there: it never overtakes one. Otherwise it takes a flit, in whose other slots later headers may
    /// ride.
    #[inline]
    pub fn send_header(&mut self, line: u64, now: u64) -> u64 {
        self.send_header_over(self.link_of(line), now)
    }

    /// The same for whoever knows the link of the line.
    #[inline(always)]
    pub fn send_header_over(&mut self, at: usize, now: u64) -> u64 {
        let usable = self.usable_slots(&self.links[at], now);
        let link = &mut self.links[at];
        if usable >= self.header_slots {
            link.free_slots = usable - self.header_slots;
            link.counts.riding += 1;
        } else {
            link.busy_until = link.busy_until.max(now) + u64::from(self.header_flits) * self.flit_time;
            link.free_slots = self.header_flits * self.flit_slots - self.header_slots;
        }
        link.counts.headers += 1;
        link.busy_until + self.crossing
    }

    /// Sends a message of so many flits of its own that is ready at `now`, for links whose messages have many sizes; says when it
    /// is on the other side. Nothing rides in it, and it in nothing.
    pub fn send_flits(&mut self, line: u64, now: u64, flits: u32) -> u64 {
        let at = self.link_of(line);
        let link = &mut self.links[at];
        link.busy_until = link.busy_until.max(now) + u64::from(flits) * self.flit_time;
        link.free_slots = 0;
        link.busy_until + self.crossing
    }

    /// Free slots at the end of a link's queue in flits that have not left by `now`.
    ///
    /// They are the last ones, so the last flit holds the last `flit_slots` of them, and the flits before it the others.
    #[inline]
    fn usable_slots(&self, link: &Link, now: u64) -> u32 {
        // No more flits than a line has: see `send_data`. So few that the product is the quotient, exactly.
        let behind = link.busy_until.saturating_sub(now).min(self.data_time);
        let leaves_from_now_on = ((u128::from(behind) * self.flit_reciprocal) >> 64) as u32;
        link.free_slots.min(leaves_from_now_on * self.flit_slots)
    }

    /// How long a message that is ready at `now` waits for the link of its line, if it needs flits of its own.
    pub fn wait(&self, line: u64, now: u64) -> u64 {
        self.links[self.link_of(line)].busy_until.saturating_sub(now)
    }

    /// What one link carried.
    pub fn link_counters(&self, link: usize) -> LinkCounters {
        self.counters_of(self.links[link].counts)
    }

    /// What all links carried.
    pub fn counters(&self) -> LinkCounters {
        let sum = self.links.iter().fold(Counts::default(), |sum, link| Counts {
            data: sum.data + link.counts.data,
            headers: sum.headers + link.counts.headers,
            riding: sum.riding + link.counts.riding,
        });
        self.counters_of(sum)
    }

    fn counters_of(&self, counts: Counts) -> LinkCounters {
        let own_flits = (counts.headers - counts.riding) * u64::from(self.header_flits);
        let flits = counts.data * u64::from(self.data_flits) + own_flits;
        LinkCounters {
            data_messages: counts.data,
            header_messages: counts.headers,
            headers_riding: counts.riding,
            flits,
            slots_used: counts.data * u64::from(self.data_slots) + counts.headers * u64::from(self.header_slots),
            bytes: flits * u64::from(self.flit_bytes),
            busy_picoseconds: flits * self.flit_time,
        }
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }
}

#[cfg(test)]
mod tests;
