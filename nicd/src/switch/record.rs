//! What crosses a trunk: a line that says what it is, with the lines of its frame behind it, and those of further frames of which the
//! same is to be said.

use conic_fabric::{Address, Core, LINE_BYTES, LINE_WORDS, Line, lines_of};
use conic_interface::metadata::{Begun, Metadata};

use super::circuit::Party;
use super::table::Station;

/// The lengths of further frames that stand behind the first of a record, 16 bits each; nothing is zero.
pub(super) type Further = u128;

/// Further frames, at most.
pub(super) const MOST_FURTHER: u32 = Further::BITS / 16;

/// For whom a frame is on the other side. Its sender's switch has decided that, as if all were one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// Whomever the bridge finds.
    Bridge {
        /// It goes over every trunk, because it is for many, or because its station is not known.
        everybody: bool,
        /// A client that has its flow pinned to a queue: it gets it there, if it gets it.
        pinned: Option<(u64, u32)>,
    },
    /// A client, by its session.
    Client {
        session: u64,
        /// The queue that its flow is pinned to.
        queue: Option<u32>,
    },
    /// The end of a circuit.
    Circuit(Party),
    /// Nobody: no frame comes with it, but that a station is there.
    News(Station),
}

/// What stands before a frame, or before several, beside their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub to: To,
    /// Its VLAN, where its sender's switch has some.
    pub vlan: Option<u16>,
    /// What is known of it.
    pub known: Metadata,
    /// What is left to do for it: where its checksum is begun, and the size of the pieces if it is to be cut.
    pub work: Option<(Begun, Option<u16>)>,
    /// The port of the network, by its number, behind which its sender is, or the station that this tells of: whoever gets this may
    /// have a part of the same port.
    pub behind: Option<u32>,
}

/// Kinds, in the lowest byte of a record's first word. Zero is none: no record lies where nothing was written.
const FILLER: u64 = 1;
const BRIDGE: u64 = 2;
const EVERYBODY: u64 = 3;
const CLIENT: u64 = 4;
const FAR_CLIENT: u64 = 5;
const FAR_PORT: u64 = 6;
const NEWS: u64 = 7;

/// Where a record's words lie in its line: kind and length, session, port or address, queue and VLAN, what is known, what is left, the port
/// that it is from, the lengths of further frames.
const HEAD: usize = 0;
const WHO: usize = 1;
const WHERE: usize = 2;
const KNOWN: usize = 3;
const WORK: usize = 4;
const BEHIND: usize = 5;
const FURTHER: [usize; 2] = [6, 7];

/// Bits below the length.
const LENGTH: u32 = 8;

/// In the word of what is left: it is there, and it is to be cut.
const IS_LEFT: u64 = 1 << 63;
const IS_CUT: u64 = 1 << 62;

/// A number that may be missing, in 32 bits: one more than it is.
fn number(value: Option<u32>) -> u64 {
    value.map_or(0, |value| u64::from(value) + 1)
}

fn number_of(word: u64) -> Option<u32> {
    (word as u32).checked_sub(1)
}

impl Record {
    /// Says nothing.
    pub const NONE: Record = Record {
        to: To::Bridge { everybody: false, pinned: None },
        vlan: None,
        known: Metadata::NONE,
        work: None,
        behind: None,
    };

    /// One without a frame, that says that a station is there, behind a port of the network or not.
    pub fn news(station: Station, behind: Option<u32>) -> Record {
        Record { to: To::News(station), vlan: None, known: Metadata::NONE, work: None, behind }
    }

    /// Whether nothing is left to do for its frame, and nothing is known of it.
    pub fn is_plain(&self) -> bool {
        self.work.is_none() && self.known == Metadata::NONE
    }

    /// So many lines without meaning, as a line.
    pub fn filler(lines: u64) -> Line {
        let mut line = Line([0; LINE_WORDS]);
        line.0[HEAD] = FILLER | lines << LENGTH;
        line
    }

    /// Its line, which stands before a frame of so many bytes, or none, and such further ones.
    pub fn to_line(self, length: usize, further: Further) -> Line {
        let (kind, who, queue) = match self.to {
            To::Bridge { everybody, pinned } => {
                let (session, queue) = pinned.map_or((0, None), |(session, queue)| (session, Some(queue)));
                (if everybody { EVERYBODY } else { BRIDGE }, session, queue)
            }
            To::Client { session, queue } => (CLIENT, session, queue),
            To::Circuit(Party::Client(session)) => (FAR_CLIENT, session, None),
            To::Circuit(Party::Port(port)) => (FAR_PORT, port as u64, None),
            To::News(station) => (NEWS, station.mac, None),
        };
        let vlan = match self.to {
            To::News(station) => Some(station.vlan),
            _ => self.vlan,
        };
        let mut line = Line([0; LINE_WORDS]);
        line.0[HEAD] = kind | (length as u64) << LENGTH;
        line.0[WHO] = who;
        line.0[WHERE] = number(queue) | number(vlan.map(u32::from)) << 32;
        line.0[KNOWN] = self.known.0;
        line.0[WORK] = self.work.map_or(0, |(Begun { start, offset }, size)| {
            let size = size.map_or(0, |size| IS_CUT | u64::from(size) << 16);
            IS_LEFT | u64::from(start) | u64::from(offset) << 8 | size
        });
        line.0[BEHIND] = number(self.behind);
        line.0[FURTHER[0]] = further as u64;
        line.0[FURTHER[1]] = (further >> 64) as u64;
        line
    }

    /// What a line says, of a frame of so many bytes and such further ones; how many lines are to be passed over, if it says no more.
    ///
    /// # Errors
    ///
    /// So many lines have no meaning.
    pub fn of_line(line: &Line) -> Result<(Record, usize, Further), u64> {
        let length = line.0[HEAD] >> LENGTH;
        let (queue, vlan) = (number_of(line.0[WHERE]), number_of(line.0[WHERE] >> 32).map(|vlan| vlan as u16));
        let who = line.0[WHO];
        let to = match line.0[HEAD] & 0xff {
            kind @ (BRIDGE | EVERYBODY) => {
                To::Bridge { everybody: kind == EVERYBODY, pinned: queue.map(|queue| (who, queue)) }
            }
            CLIENT => To::Client { session: who, queue },
            FAR_CLIENT => To::Circuit(Party::Client(who)),
            FAR_PORT => To::Circuit(Party::Port(who as usize)),
            NEWS => To::News(Station { mac: who, vlan: vlan.unwrap_or(0) }),
            _ => return Err(length),
        };
        let left = line.0[WORK];
        let work = (left & IS_LEFT != 0).then(|| {
            let size = (left & IS_CUT != 0).then_some((left >> 16) as u16);
            (Begun { start: left as u8, offset: (left >> 8) as u8 }, size)
        });
        let vlan = if matches!(to, To::News(_)) { None } else { vlan };
        let behind = number_of(line.0[BEHIND]);
        let further = u128::from(line.0[FURTHER[0]]) | u128::from(line.0[FURTHER[1]]) << 64;
        Ok((Record { to, vlan, known: Metadata(line.0[KNOWN]), work, behind }, length as usize, further))
    }
}

/// Copies the lines of a frame of so many bytes from one region to another; the first of them were read before. What its sender's
/// buffer has behind the frame, of which another may have been, stays there.
#[inline(always)]
pub(super) fn copy_frame<F: Core, I: Core>(
    (from, at): (&F, Address),
    first: &[Line],
    length: u64,
    (into, to): (&I, Address),
) {
    let write = |index: u64, line: Line| {
        into.write_line(to.lines(index), &line.beginning(length - index * LINE_BYTES));
    };
    for (index, line) in first.iter().enumerate().take(lines_of(length) as usize) {
        write(index as u64, *line);
    }
    for index in first.len() as u64..lines_of(length) {
        write(index, from.read_line(at.lines(index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_its_line_says() {
        let begun = Begun { start: 34, offset: 16 };
        let kinds = [
            To::Bridge { everybody: false, pinned: None },
            To::Bridge { everybody: true, pinned: Some((7, 0)) },
            To::Client { session: u64::MAX, queue: None },
            To::Client { session: 3, queue: Some(511) },
            To::Circuit(Party::Client(9)),
            To::Circuit(Party::Port(0)),
        ];
        for to in kinds {
            for vlan in [None, Some(0), Some(4094)] {
                for work in [None, Some((begun, None)), Some((begun, Some(1448)))] {
                    let known = Metadata::NONE.with(Metadata::TRANSPORT_GOOD);
                    for behind in [None, Some(0), Some(70_000)] {
                        let record = Record { to, vlan, known, work, behind };
                        for further in [0, 60, 9600 << 112 | 1] {
                            assert_eq!(
                                Record::of_line(&record.to_line(65_539, further)),
                                Ok((record, 65_539, further))
                            );
                        }
                    }
                }
            }
        }
        for behind in [None, Some(3)] {
            let news = Record::news(Station::new([2, 0, 0, 0, 0, 9], 5), behind);
            assert_eq!(Record::of_line(&news.to_line(0, 0)), Ok((news, 0, 0)));
        }
        assert_eq!(Record::of_line(&Record::filler(12)), Err(12));
    }
}
