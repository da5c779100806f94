//! What the home agents of both nodes know of a line.

use crate::engine::pages::{self, Table};
use crate::link::Direction;
use crate::memory::Memory;
use crate::parameters::Parameters;
use crate::protocol::Ask;
use crate::protocol::home::{Right, Stable};

use super::slices;

/// What home agents know of a line: both nodes' views side by side, because what happens to a line happens in both, in one
/// cache line of the host.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct LineRecord {
    pub stable: [Stable; 2],
    /// For each node, one more than the place of what is under way for the line; zero if nothing is; [`COMPLETING`]; or, where that is
    /// all, a [`Pending`] request.
    pub active: [u32; 2],
    /// The line's home, above that bit, in six bits each, the slice of home agents, the link and the memory channel that serve
    /// it, and above these [`PLACE_BITS`] when the other node will have acknowledged the last reply.
    places_and_completion: u64,
}

/// Nothing is under way for a line but an acknowledgement for which nobody waits. Most lines are left like this, so they
/// must not take the room of one for which something is.
pub(crate) const COMPLETING: u32 = u32::MAX;

/// A request for a line that nobody in its node has, of which is known what it needs, and for which nothing has come in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// A core's, which has asked the line's home.
    Reply { core: u8, ask: Ask },
    /// The other node's, for which memory is read.
    Memory { ask: Ask, sets_directory: bool },
}

/// The least that stands for a pending request.
const PENDING: u32 = 0xc000_0000;
/// Of such a number, the bit of [`Pending::Memory`], and the one of [`Ask::Own`].
const OF_NODE: u32 = 1 << 8;
const OWNS: u32 = 1 << 9;

impl Pending {
    /// What stands for it among what is under way.
    #[inline(always)]
    fn number(self) -> u32 {
        let owns = |ask: Ask| if ask == Ask::Own { OWNS } else { 0 };
        match self {
            Pending::Reply { core, ask } => PENDING | owns(ask) | u32::from(core),
            Pending::Memory { ask, sets_directory } => PENDING | owns(ask) | OF_NODE | u32::from(sets_directory),
        }
    }

    /// What a number that is none of a place stands for.
    #[inline(always)]
    fn of(number: u32) -> Option<Pending> {
        if number < PENDING || number == COMPLETING {
            return None;
        }
        let ask = if number & OWNS == 0 { Ask::Read } else { Ask::Own };
        if number & OF_NODE == 0 {
            Some(Pending::Reply { core: number as u8, ask })
        } else {
            Some(Pending::Memory { ask, sets_directory: number & 1 == 1 })
        }
    }
}

/// Bits of a line's record that say who serves it.
const PLACE_BITS: u32 = 19;
/// The longest that a run may last, in picoseconds: 30 seconds. A line's record has room for little more.
pub(crate) const MOST_TIME: u64 = 30_000_000_000_000;

const _: () =
    assert!(MOST_TIME < (u64::MAX >> PLACE_BITS) / 10 * 9, "a record has room for what completes after the limit");
const _: () = assert!(crate::link::MOST_PARTS <= 1 << 6, "what serves a line fits into six bits");
const _: () = assert!(size_of::<LineRecord>() == 64, "a line's record is one cache line of the host");

/// What home agents know of the lines of a region, of which these are the homes, while nobody has cached any.
pub(super) fn lines_of(parameters: &Parameters, homes: &[u8]) -> Table<LineRecord> {
    let (out, memory) = (Direction::new(&parameters.links()), Memory::new(&parameters.memory));
    pages::collect(homes.iter().enumerate().map(|(line, &home)| {
        let line = line as u64;
        let places = [slices::slice_of(parameters, line), out.link_of(line), memory.channel_of(line)];
        LineRecord::of(home, places)
    }))
}

impl LineRecord {
    /// A line that nobody has cached.
    fn of(home: u8, places: [usize; 3]) -> LineRecord {
        let stable = [0, 1].map(|node| {
            let right = if home == node { Right::Exclusive } else { Right::None };
            Stable { right, ..Stable::default() }
        });
        let [slice, link, channel] = places.map(|place| place as u64);
        let places = channel << 13 | link << 7 | slice << 1 | u64::from(home);
        LineRecord { stable, active: [0; 2], places_and_completion: places }
    }

    /// The line's home.
    pub fn home(&self) -> usize {
        (self.places_and_completion & 1) as usize
    }

    /// The slice of either node's home agents that serves the line.
    pub fn slice(&self) -> u8 {
        (self.places_and_completion >> 1 & 0x3f) as u8
    }

    /// The link that carries messages about it, in either direction.
    pub fn link(&self) -> usize {
        (self.places_and_completion >> 7 & 0x3f) as usize
    }

    /// The memory channel of its home that has it.
    pub fn channel(&self) -> usize {
        (self.places_and_completion >> 13 & 0x3f) as usize
    }

    /// When the last reply will have been acknowledged, where that is all that is under way.
    pub fn completion(&self) -> u64 {
        self.places_and_completion >> PLACE_BITS
    }

    /// Whether something is under way in a node: an acknowledgement that has come by `now` is not, though nobody noted that.
    #[inline(always)]
    pub fn is_busy(&self, node: usize, now: u64) -> bool {
        match self.active[node] {
            0 => false,
            COMPLETING => self.completion() > now,
            _ => true,
        }
    }

    /// The request that is under way in a node, where that is all and it is a pending one.
    #[inline(always)]
    pub fn pending(&self, node: usize) -> Option<Pending> {
        Pending::of(self.active[node])
    }

    /// Leaves nothing under way in a node but a request.
    #[inline(always)]
    pub fn pends(&mut self, node: usize, request: Pending) {
        self.active[node] = request.number();
    }

    /// Leaves nothing under way in a node but an acknowledgement.
    pub fn complete_at(&mut self, node: usize, time: u64) {
        debug_assert!(time <= u64::MAX >> PLACE_BITS);
        self.active[node] = COMPLETING;
        let places = self.places_and_completion & ((1 << PLACE_BITS) - 1);
        self.places_and_completion = time << PLACE_BITS | places;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_request_is_what_its_number_stands_for_and_no_place_is_one() {
        for ask in [Ask::Read, Ask::Own] {
            let of_cores = (0..64).map(|core| Pending::Reply { core, ask });
            let of_nodes = [false, true].map(|sets_directory| Pending::Memory { ask, sets_directory });
            for request in of_cores.chain(of_nodes) {
                let mut record = LineRecord::of(0, [0; 3]);
                record.pends(1, request);
                assert_eq!((record.pending(1), record.pending(0)), (Some(request), None));
                assert!(record.is_busy(1, u64::MAX) && !record.is_busy(0, 0));
            }
        }
        assert_eq!([0, 1, PENDING - 1, COMPLETING].map(Pending::of), [None; 4]);
    }
}
