//! Payloads of a few bytes inside the ring's lines.
//!
//! | line | word 0 | word 1 | words 2 to 7 |
//! |---|---|---|---|
//! | first | signal, `INLINE`, length | metadata | payload bytes 0 to 47 |
//! | second, for 49 to 104 bytes | signal, `CONTINUED` | payload bytes 48 to 55 | payload bytes 56 to 103 |
//!
//! The second line is written before the first. It carries a signal of its own so that a consumer whose ring comes round
//! never takes payload for a signal.

use conic_fabric::{Address, Core, LINE_WORDS, Line};

use super::descriptor::{Descriptor, Flags, RING_FLAGS, flag_bit};
use super::map::Map;
use super::policy::{Packing, Policy, Signal};

/// The most bytes that travel inside the ring.
pub const INLINE_BYTES: usize = 8 * (FIRST_WORDS + SECOND_WORDS);

const FIRST_WORDS: usize = LINE_WORDS - 2;
const SECOND_WORDS: usize = LINE_WORDS - 1;

/// Buffers of a queue pair's share without which no payload travels in the ring. Each half sets one of them aside
/// ([`super::Allocator`]'s reserve), which of fewer would take too many away; and without one a payload could wait for ever, as all
/// others may be in packets behind it in the same ring.
const LEAST_BUFFERS: u64 = 16;

/// Whether a payload in the ring is taken for one: they may travel there, the slots are lines with a signal in them, and the receiver has
/// buffers of its own to put them in, which hold the longest of them.
pub fn is_read<P: Policy>(map: &Map) -> bool {
    let possible = !matches!(P::PACKING, Packing::Packed) && !matches!(P::SIGNAL, Signal::Register);
    map.features.inline_payload && map.features.shared_pool && possible && map.holds(INLINE_BYTES as u64)
}

/// Whether payloads are put into the ring: they are read there, and the receiver can set a buffer aside. Less than [`is_read`], because a
/// program that was linked before this rule puts them there wherever they are read.
pub fn is_used<P: Policy>(map: &Map) -> bool {
    is_read::<P>(map) && map.share_for(INLINE_BYTES as u64) >= LEAST_BUFFERS
}

/// The slots that an inline payload of `length` bytes takes.
#[inline(always)]
pub(crate) const fn slots(length: u16) -> u64 {
    if length as usize <= 8 * FIRST_WORDS { 1 } else { 2 }
}

/// A payload on its way between a buffer and the ring. Lines are made of it word by word, by value: so they stay in vector registers. Put
/// together in memory they would be loaded across the halves in which they were stored, which [`Core::in_register`] says the price of.
pub(crate) struct Payload([Line; 2]);

/// Loads a payload from its buffer, whose lines this side owns.
#[inline(always)]
pub(crate) fn load<C: Core>(core: &C, descriptor: Descriptor) -> Payload {
    let at = descriptor.address();
    if !at.is_line_aligned() {
        let mut bytes = [0u8; 128];
        core.read_bytes(at, &mut bytes[..usize::from(descriptor.length())]);
        let (lines, _) = bytes.as_chunks();
        return Payload([Line::from_bytes(&lines[0]), Line::from_bytes(&lines[1])]);
    }
    let first = core.read_line(at);
    let rest = if descriptor.lines() > 1 { core.read_line(at.lines(1)) } else { Line::ZERO };
    Payload([first, rest])
}

impl Payload {
    #[inline(always)]
    pub(crate) fn first(&self, descriptor: Descriptor) -> Line {
        let fields = descriptor.word & !0xff_ffff_ffff & !RING_FLAGS;
        let [payload, _] = &self.0;
        let [a, b, c, d, e, f, _, _] = payload.0;
        Line([fields | flag_bit(Flags::INLINE), descriptor.metadata, a, b, c, d, e, f])
    }

    #[inline(always)]
    pub(crate) fn continuation(&self) -> Line {
        let [payload, rest] = &self.0;
        let [_, _, _, _, _, _, g, h] = payload.0;
        let [a, b, c, d, e, _, _, _] = rest.0;
        Line([flag_bit(Flags::CONTINUED), g, h, a, b, c, d, e])
    }
}

/// Stores a payload that came in the ring into a buffer, whose lines this side owns.
#[inline(always)]
pub(crate) fn store<C: Core>(core: &C, at: Address, length: u16, first: &Line, second: &Line) {
    let [_, _, a, b, c, d, e, f] = first.0;
    let [_, g, h, rest @ ..] = second.0;
    core.write_line(at, &Line([a, b, c, d, e, f, g, h]));
    if length > 64 {
        let [a, b, c, d, e] = rest;
        core.write_line(at.lines(1), &Line([a, b, c, d, e, 0, 0, 0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ccnic::{Features, Geometry, PhaseCredit};

    #[test]
    fn where_few_buffers_are_payloads_are_read_and_not_sent() {
        for (buffers, used) in [([0, 8, 0], false), ([0, 16, 0], true), ([8, 8, 0], true), ([16, 0, 0], true)] {
            let geometry = Geometry { queues: 1, descriptors: 64, buffers, object_bytes: 0 };
            let map = Map::new(geometry, Features::best()).expect("it can be");
            assert_eq!((is_read::<PhaseCredit>(&map), is_used::<PhaseCredit>(&map)), (true, used), "{buffers:?}");
        }
    }
}
