//! A frame whose VLAN tag changes on its way from one client's region to another's: the one copy writes it as it is to be.
//!
//! Behind the two addresses every byte moves by the four of a tag, so that a line of the new frame is put together from two lines of
//! the old one, in registers.

use conic_fabric::{Core, LINE_BYTES, LINE_WORDS, Line, lines_of};
use conic_interface::ccnic::Descriptor;
use conic_interface::metadata::Metadata;
use conic_port::MIN_FRAME;
use conic_port::offload::vlan::{TAG_BYTES, Tag};

use super::Switch;
use super::deliver::{Tagging, Way};
use super::forward::Passing;
use super::header::{HEADER_LINES, Header};
use super::table::Place;

/// Bits of a tag, which every byte behind it moves by.
const TAG_BITS: u32 = 8 * TAG_BYTES as u32;

/// The word of a frame's first line that has the rest of its addresses in its first half, and a tag in its second.
const TAG_WORD: usize = 1;

/// Those first halves: the words' bytes count from the lowest.
const FIRST_HALF: u64 = (1 << TAG_BITS) - 1;

/// A frame with a tag put in or taken out, a line at a time.
struct Retagged<L> {
    /// The tag that is put in; none: the one that is there is taken out.
    tag: Option<Tag>,
    /// Bytes of the frame as it is to be, without padding.
    length: usize,
    /// The lines of the old one; each is read once.
    old: L,
    /// How many lines of the new one there have been.
    given: u64,
    /// The old line that was read last.
    last: Line,
}

impl<L: Fn(u64) -> Line> Retagged<L> {
    #[inline(always)]
    fn new(tag: Option<Tag>, length: usize, old: L) -> Retagged<L> {
        let last = if tag.is_some() { Line::ZERO } else { old(0) };
        Retagged { tag, length, old, given: 0, last }
    }

    /// The next line of the new one.
    #[inline(always)]
    fn next(&mut self) -> Line {
        let mut line = match self.tag {
            Some(tag) => {
                let old = (self.old)(self.given);
                let mut line = up(self.last.0[LINE_WORDS - 1], &old);
                if self.given == 0 {
                    let tag = u64::from(tag.kind.to_be()) | u64::from(tag.control.to_be()) << 16;
                    line.0[0] = old.0[0];
                    line.0[TAG_WORD] = (u64::from_le(old.0[TAG_WORD]) & FIRST_HALF | tag << TAG_BITS).to_le();
                }
                self.last = old;
                line
            }
            None => {
                let following = (self.old)(self.given + 1);
                let old = std::mem::replace(&mut self.last, following);
                let mut line = down(&old, following.0[0]);
                if self.given == 0 {
                    let addresses = u64::from_le(old.0[TAG_WORD]) & FIRST_HALF;
                    line.0[0] = old.0[0];
                    line.0[TAG_WORD] = (u64::from_le(line.0[TAG_WORD]) & !FIRST_HALF | addresses).to_le();
                }
                line
            }
        };
        if self.given == 0 && self.length < MIN_FRAME {
            // What is shorter than a frame may be by up to a tag is filled up.
            let kept = (1 << (8 * (self.length + TAG_BYTES - MIN_FRAME))) - 1;
            let last = u64::from_le(line.0[LINE_WORDS - 1]);
            line.0[LINE_WORDS - 1] = (last & (kept | !FIRST_HALF)).to_le();
        }
        self.given += 1;
        line
    }
}

/// A line whose bytes lie a tag's length further up, behind the last word of the line before.
#[inline(always)]
fn up(before: u64, line: &Line) -> Line {
    Line(std::array::from_fn(|index| {
        let before = if index == 0 { before } else { line.0[index - 1] };
        (u64::from_le(line.0[index]) << TAG_BITS | u64::from_le(before) >> TAG_BITS).to_le()
    }))
}

/// A line whose bytes lie a tag's length further down, before the first word of the line that follows.
#[inline(always)]
fn down(line: &Line, following: u64) -> Line {
    Line(std::array::from_fn(|index| {
        let next = line.0.get(index + 1).copied().unwrap_or(following);
        (u64::from_le(line.0[index]) >> TAG_BITS | u64::from_le(next) << TAG_BITS).to_le()
    }))
}

impl<C: Core> Switch<C> {
    /// Copies a frame from a client's region to another's, with a tag put in or the one taken out that it has.
    pub(super) fn pass_retagged(
        &mut self,
        slot: usize,
        lane: usize,
        to: usize,
        passing: &Passing<'_>,
        tagging: Tagging,
    ) {
        let Ok([Some(sender), Some(receiver)]) = self.members.get_disjoint_mut([slot, to]) else { return };
        let from = sender.lanes[lane].wire.nic().core();
        let old_length = usize::from(passing.packet.length());
        let old_lines = lines_of(old_length as u64);
        let old = |index: u64| match passing.lines.get(index as usize) {
            Some(line) => *line,
            None if index < old_lines => from.read_line(passing.packet.address().lines(index)),
            None => Line::ZERO,
        };
        let (tag, unpadded) = match tagging.tag {
            Some(_) => (None, old_length - TAG_BYTES),
            None => (Some(Tag::new(tagging.vlan)), old_length + TAG_BYTES),
        };
        let mut retagged = Retagged::new(tag, unpadded, old);
        let length = unpadded.max(MIN_FRAME);
        let head: [Line; HEADER_LINES] = std::array::from_fn(|_| retagged.next());
        let header = Header::of_lines(&head, length);
        let (queue, hash) =
            receiver.queue_of(&header, passing.route.pinned_at(Place::Client(to as u32)), &self.toeplitz);
        let way = Way { from: passing.route.from, slot: to, queue };
        let Some((target, first)) = receiver.make_room(way, length as u64, &mut self.dirty) else { return };
        let into = target.wire.nic().core();
        let lines = lines_of(length as u64);
        // As in `copy_frame`: nothing of what lies behind the frame.
        let write = |index: u64, line: Line| {
            into.write_line(first.lines(index), &line.beginning(length as u64 - index * LINE_BYTES));
        };
        for (index, line) in head.iter().enumerate().take(lines as usize) {
            write(index as u64, *line);
        }
        for index in HEADER_LINES as u64..lines {
            write(index, retagged.next());
        }
        let metadata = hash.map_or(Metadata::NONE, |hash| Metadata::NONE.with_hash(hash));
        target.push(Descriptor::new(first, length as u16).with_metadata(metadata.0));
        receiver.counters.received_frames += 1;
        receiver.counters.received_bytes += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conic_port::offload::vlan::{insert, strip};

    fn lines(frame: &[u8]) -> impl Fn(u64) -> Line + '_ {
        |index| {
            let mut line = [0xee; 64];
            let from = 64 * index as usize;
            let part = frame.get(from..).map_or(&[][..], |rest| &rest[..rest.len().min(64)]);
            line[..part.len()].copy_from_slice(part);
            Line::from_bytes(&line)
        }
    }

    #[test]
    fn lines_put_together_are_what_a_changed_frame_has() {
        let mut random = fastrand::Rng::with_seed(11);
        for length in (60..330).chain([1514, 9600]) {
            let mut frame: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            for tag in [Some(Tag::new(7)), None] {
                frame[12..14].copy_from_slice(if tag.is_some() { &[8, 0] } else { &[0x81, 0] });
                let mut expected = frame.clone();
                let left = match tag {
                    Some(tag) => {
                        expected.resize(length + TAG_BYTES, 0);
                        insert(&mut expected, length, tag).expect("there is room")
                    }
                    None => {
                        strip(&mut expected).expect("it has one");
                        length - TAG_BYTES
                    }
                };
                expected.truncate(left);
                expected.resize(left.max(MIN_FRAME), 0);
                let mut retagged = Retagged::new(tag, left, lines(&frame));
                let count = lines_of(expected.len() as u64);
                let mut got: Vec<u8> = (0..count).flat_map(|_| retagged.next().to_bytes()).collect();
                got.truncate(expected.len());
                assert_eq!(got, expected, "{length} bytes, {tag:?}");
            }
        }
    }
}
