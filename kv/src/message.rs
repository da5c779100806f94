//! A request and its answer: Ethernet, IPv4 and UDP headers and 22 bytes of the store's own, one line in all; behind it the
//! value, where there is one.
//!
//! | bytes | what |
//! |---|---|
//! | 0..14 | Ethernet: destination, source, type 0x0800 |
//! | 14..34 | IPv4 without options, and no fragment; its checksum is right |
//! | 34..42 | UDP, to port 11211 or, an answer, from there; its checksum is 0, which says that there is none |
//! | 42 | what is asked ([`Operation`]), or how it went ([`Status`]) with bit 7 set |
//! | 43 | 0 |
//! | 44..46 | bytes of the value: behind this header in a set and in the answer of a get, else 0 |
//! | 46..54 | the key |
//! | 54..58 | the request's number, which its answer repeats |
//! | 58..62 | [`checksum`] of the value |
//! | 62..64 | 0 |
//!
//! Numbers are big-endian. A get's answer is sent while others may overwrite the value, so it may be torn: the checksum, which
//! lay in the index, is not that of the bytes. Its reader asks again if it wants the value; CliqueMap's responses validate themselves
//! likewise. [`crate::Clients`] count it, and go on.

use conic_fabric::{LINE_BYTES, Line};
use conic_load::functions::internet_sum;

/// Bytes of the headers: the value begins behind them.
pub const HEADER_BYTES: u16 = LINE_BYTES as u16;
/// Bytes of the largest value: with its headers it is a jumbo frame.
pub const MOST_VALUE_BYTES: u16 = 9600 - HEADER_BYTES;

const IP: usize = 14;
const UDP: usize = IP + 20;
const OWN: usize = UDP + 8;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// IPv4, five words of header.
const VERSION_AND_LENGTH: u8 = 0x45;
const PROTOCOL_UDP: u8 = 17;
/// Of the fragment's field: that others follow, and where in the datagram this one lies.
const FRAGMENT: u16 = 0x3fff;
/// Marks an answer.
const ANSWER: u8 = 1 << 7;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The value of a key.
    Get,
    /// To put another one there.
    Set,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// As asked.
    Done = 0,
    /// There is no such key.
    Missing = 1,
    /// Somebody else is putting a value there: ask again.
    Busy = 2,
    /// The value does not fit where this key's values lie.
    TooLong = 3,
}

impl Status {
    fn of(byte: u8) -> Option<Status> {
        [Status::Done, Status::Missing, Status::Busy, Status::TooLong].into_iter().find(|status| *status as u8 == byte)
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub operation: Operation,
    /// The key.
    pub key: u64,
    /// Bytes of the value behind the header, of a set.
    pub value_bytes: u16,
    /// The request's number.
    pub number: u32,
    /// [`checksum`] of the value.
    pub checksum: u32,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it went.
    pub status: Status,
    /// The key.
    pub key: u64,
    /// Bytes of the value behind the header.
    pub value_bytes: u16,
    /// The request's number.
    pub number: u32,
    /// What [`checksum`] of the value was when it was put there.
    pub checksum: u32,
}

fn number<const BYTES: usize>(header: &[u8; 64], at: usize) -> [u8; BYTES] {
    header[at..at + BYTES].try_into().expect("a part of a header")
}

/// Enters lengths and checksum for so many bytes of value.
fn enter_lengths(header: &mut [u8; 64], value_bytes: u16) {
    let behind_ethernet = HEADER_BYTES - IP as u16 + value_bytes;
    header[IP + 2..IP + 4].copy_from_slice(&behind_ethernet.to_be_bytes());
    header[UDP + 4..UDP + 6].copy_from_slice(&(behind_ethernet - 20).to_be_bytes());
    header[UDP + 6..UDP + 8].copy_from_slice(&[0; 2]);
    header[IP + 10..IP + 12].fill(0);
    let checksum = !internet_sum(&header[IP..UDP], 0);
    header[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    header[OWN + 2..OWN + 4].copy_from_slice(&value_bytes.to_be_bytes());
}

/// Whether these are the store's headers of a packet of so many bytes, and how many bytes of value are behind them. Its port is
/// at `port`. The network's checksums and addresses are its NIC's to check.
fn value_behind(header: &[u8; 64], port: usize, packet_bytes: u16) -> Option<u16> {
    let good = header[12..14] == ETHERTYPE_IPV4
        && header[IP] == VERSION_AND_LENGTH
        && u16::from_be_bytes(number(header, IP + 6)) & FRAGMENT == 0
        && header[IP + 9] == PROTOCOL_UDP
        && u16::from_be_bytes(number(header, port)) == PORT
        && (header[OWN + 1], number(header, OWN + 20)) == (0, [0; 2])
        && u16::from_be_bytes(number(header, IP + 2)) == packet_bytes.checked_sub(IP as u16)?
        && u16::from_be_bytes(number(header, UDP + 4)) == packet_bytes.checked_sub(UDP as u16)?;
    let behind = packet_bytes.checked_sub(HEADER_BYTES)?;
    (good && u16::from_be_bytes(number(header, OWN + 2)) == behind).then_some(behind)
}

fn enter_own(header: &mut [u8; 64], code: u8, key: u64, number: u32, checksum: u32) {
    header[OWN] = code;
    header[OWN + 1] = 0;
    header[OWN + 4..OWN + 12].copy_from_slice(&key.to_be_bytes());
    header[OWN + 12..OWN + 16].copy_from_slice(&number.to_be_bytes());
    header[OWN + 16..OWN + 20].copy_from_slice(&checksum.to_be_bytes());
    header[OWN + 20..].fill(0);
}

impl Request {
    /// The headers of a request from port `from` of a client to the store's.
    pub fn header(&self, from: u16) -> Line {
        let mut header = [0; 64];
        header[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        header[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        header[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        header[IP] = VERSION_AND_LENGTH;
        header[IP + 8] = 64;
        header[IP + 9] = PROTOCOL_UDP;
        header[IP + 12..IP + 16].copy_from_slice(&[10, 0, 0, 2]);
        header[IP + 16..IP + 20].copy_from_slice(&[10, 0, 0, 1]);
        header[UDP..UDP + 2].copy_from_slice(&from.to_be_bytes());
        header[UDP + 2..UDP + 4].copy_from_slice(&PORT.to_be_bytes());
        enter_own(&mut header, self.operation as u8, self.key, self.number, self.checksum);
        enter_lengths(&mut header, self.value_bytes);
        Line::from_bytes(&header)
    }

    /// The request that a packet of so many bytes begins with, if it is one.
    #[inline]
    pub fn parse(header: &Line, packet_bytes: u16) -> Option<Request> {
        let header = header.to_bytes();
        let value_bytes = value_behind(&header, UDP + 2, packet_bytes)?;
        let operation = match header[OWN] {
            0 if value_bytes == 0 => Operation::Get,
            1 => Operation::Set,
            _ => return None,
        };
        Some(Request {
            operation,
            key: u64::from_be_bytes(number(&header, OWN + 4)),
            value_bytes,
            number: u32::from_be_bytes(number(&header, OWN + 12)),
            checksum: u32::from_be_bytes(number(&header, OWN + 16)),
        })
    }
}

/// The port at which the store is asked.
const PORT: u16 = 11211;

impl Answer {
    /// What becomes of a request's headers to send this back to where it came from.
    #[inline]
    pub fn header(&self, request: &Line) -> Line {
        let mut header = request.to_bytes();
        let (to, from): ([u8; 6], [u8; 6]) = (number(&header, 0), number(&header, 6));
        header[..6].copy_from_slice(&from);
        header[6..12].copy_from_slice(&to);
        let (from, to): ([u8; 4], [u8; 4]) = (number(&header, IP + 12), number(&header, IP + 16));
        header[IP + 12..IP + 16].copy_from_slice(&to);
        header[IP + 16..IP + 20].copy_from_slice(&from);
        let (from, to): ([u8; 2], [u8; 2]) = (number(&header, UDP), number(&header, UDP + 2));
        header[UDP..UDP + 2].copy_from_slice(&to);
        header[UDP + 2..UDP + 4].copy_from_slice(&from);
        enter_own(&mut header, ANSWER | self.status as u8, self.key, self.number, self.checksum);
        enter_lengths(&mut header, self.value_bytes);
        Line::from_bytes(&header)
    }

    /// The answer that a packet of so many bytes begins with, if it is one.
    pub fn parse(header: &Line, packet_bytes: u16) -> Option<Answer> {
        let header = header.to_bytes();
        let value_bytes = value_behind(&header, UDP, packet_bytes)?;
        let status = Status::of(header[OWN].checked_sub(ANSWER)?)?;
        Some(Answer {
            status,
            key: u64::from_be_bytes(number(&header, OWN + 4)),
            value_bytes,
            number: u32::from_be_bytes(number(&header, OWN + 12)),
            checksum: u32::from_be_bytes(number(&header, OWN + 16)),
        })
    }
}

/// A checksum that each byte and its place count in; of zeros it is known by their number alone ([`checksum_of_zeros`]).
pub fn checksum(value: &[u8]) -> u32 {
    let word = |eight: &[u8]| u64::from_le_bytes(eight.try_into().expect("eight bytes"));
    // Horner's rule for polynomials in odd numbers: every word counts, by its place. Four of them side by side, or each word would
    // wait for the product of the one before it.
    let mut sums = [0_u64; 4];
    let mut blocks = value.chunks_exact(32);
    for block in &mut blocks {
        for (sum, eight) in sums.iter_mut().zip(block.chunks_exact(8)) {
            *sum = sum.wrapping_mul(MULTIPLIER).wrapping_add(word(eight));
        }
    }
    let rest = blocks.remainder();
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    let mut all = 0_u64;
    for (sum, eight) in sums.iter().zip(last.chunks_exact(8)) {
        let sum = sum.wrapping_mul(MULTIPLIER).wrapping_add(word(eight));
        all = all.wrapping_mul(OTHER_MULTIPLIER).wrapping_add(sum);
    }
    finished(all, value.len())
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const OTHER_MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// The checksum of so many zeros.
pub fn checksum_of_zeros(bytes: usize) -> u32 {
    finished(0, bytes)
}

fn finished(sum: u64, bytes: usize) -> u32 {
    let mixed = (sum ^ sum >> 32).wrapping_add(bytes as u64).wrapping_mul(OTHER_MULTIPLIER);
    (mixed ^ mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request =
        Request { operation: Operation::Set, key: 0x0102_0304_0506_0708, value_bytes: 300, number: 77, checksum: 99 };

    #[test]
    fn a_request_and_its_answer_give_back_what_was_put_in() {
        let header = REQUEST.header(5000);
        assert_eq!(Request::parse(&header, 364), Some(REQUEST));
        assert_eq!(Answer::parse(&header, 364), None, "a request is no answer");
        let answer = Answer { status: Status::Done, key: REQUEST.key, value_bytes: 20, number: 77, checksum: 5 };
        let answered = answer.header(&header);
        assert_eq!(Answer::parse(&answered, 84), Some(answer));
        assert_eq!(Request::parse(&answered, 84), None, "an answer is no request");
        let (before, after) = (header.to_bytes(), answered.to_bytes());
        assert_eq!((&before[..6], &before[6..12]), (&after[6..12], &after[..6]), "back to where it came from");
        assert_eq!((&before[26..30], &before[30..34]), (&after[30..34], &after[26..30]));
        assert_eq!((&before[34..36], &before[36..38]), (&after[36..38], &after[34..36]));
    }

    #[test]
    fn the_sum_over_an_internet_header_with_its_checksum_is_all_ones() {
        for value_bytes in [0, 1, 300, MOST_VALUE_BYTES] {
            let header = Request { value_bytes, ..REQUEST }.header(1).to_bytes();
            let sum: u32 = header[IP..UDP].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "RFC 1071");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let good = REQUEST.header(1);
        for (at, what) in [
            (12, "type"),
            (14, "version"),
            (23, "protocol"),
            (17, "length"),
            (39, "length"),
            (45, "length"),
            (20, "fragment"),
            (21, "fragment"),
            (36, "port"),
            (37, "port"),
            (43, "byte that is 0"),
            (62, "byte that is 0"),
            (63, "byte that is 0"),
        ] {
            let mut bytes = good.to_bytes();
            bytes[at] ^= 1;
            assert_eq!(Request::parse(&Line::from_bytes(&bytes), 364), None, "another {what}");
        }
        // What a network may change, or what says nothing to the store.
        for at in [0, 6, 15, 18, 22, 26, 30, 34, 40] {
            let mut bytes = good.to_bytes();
            bytes[at] ^= 1;
            assert_eq!(Request::parse(&Line::from_bytes(&bytes), 364), Some(REQUEST), "byte {at}");
        }
        let mut whole = good.to_bytes();
        whole[20] ^= 0x40;
        assert_eq!(Request::parse(&Line::from_bytes(&whole), 364), Some(REQUEST), "one that must not be cut");
        let answer = Answer { status: Status::Done, key: 1, value_bytes: 0, number: 1, checksum: 0 };
        let mut elsewhere = answer.header(&good).to_bytes();
        elsewhere[35] ^= 1;
        assert_eq!(Answer::parse(&Line::from_bytes(&elsewhere), 64), None, "an answer from another port");
        for bytes in [0, 13, 33, 63, 363, 365, u16::MAX] {
            assert_eq!(Request::parse(&good, bytes), None, "a packet of {bytes} bytes");
        }
        let get = Request { operation: Operation::Get, ..REQUEST };
        assert_eq!(Request::parse(&get.header(1), 364), None, "a get with a value");
    }

    #[test]
    fn every_byte_and_its_place_count() {
        let value: Vec<u8> = (1..=100).collect();
        let sum = checksum(&value);
        for at in 0..100 {
            let mut other = value.clone();
            other[at] ^= 1;
            assert_ne!(checksum(&other), sum, "byte {at}");
        }
        let mut swapped = value.clone();
        swapped.swap(3, 90);
        assert_ne!(checksum(&swapped), sum);
        assert_ne!(checksum(&value[..99]), sum);
        for bytes in [0, 1, 8, 9, 9536] {
            assert_eq!(checksum(&vec![0; bytes]), checksum_of_zeros(bytes));
        }
    }
}
