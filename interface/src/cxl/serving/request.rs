//! What a request and its answer look like in a packet.
//!
//! | bytes | request | answer |
//! |---|---|---|
//! | 0 | 0 GET, 1 PUT | 0 found or stored, 1 absent, 2 too long, 3 busy |
//! | 1 | zero | zero |
//! | 2 and 3 | bytes of a PUT's value, little endian | bytes of the value |
//! | 4 to 7 | zero | zero |
//! | 8 to 15 | key, little endian | key |
//! | 16 on | value of a PUT | value of a GET |
//!
//! Either has at least 64 bytes. A request whose zeros are others is none: they are for what later requests may say.

use std::fmt;

use conic_fabric::LINE_BYTES;

/// Bytes of the shortest request, and of the shortest answer.
pub const REQUEST_BYTES: usize = LINE_BYTES as usize;
/// Bytes before the value.
const HEAD_BYTES: usize = 16;
/// Bytes that say nothing, and are zero.
const RESERVED: [usize; 5] = [1, 4, 5, 6, 7];
/// Keys from here on are none: the device's word of a key has no room for them.
pub const MOST_KEYS: u64 = 1 << 60;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// What is the value of this key?
    Get(u64),
    /// This is the value of this key from now on.
    Put(u64, &'a [u8]),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value.
    Found(Vec<u8>),
    /// The value is stored.
    Stored,
    /// There is no such key.
    Absent,
    /// The value is longer than this database's may be: nothing has changed.
    TooLong,
    /// The value changed whenever it was read: to be asked again.
    Busy,
}

/// Why a packet is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// It has so many bytes, and needs so many.
    Length(usize, usize),
    /// Its first byte says so.
    Operation(u8),
    /// Such a key cannot be.
    Key(u64),
    /// A byte that is zero in every request is not, at this place.
    Reserved(usize),
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRequest::Length(bytes, needed) => write!(f, "a request of {bytes} bytes: it needs {needed}"),
            BadRequest::Operation(code) => write!(f, "operation {code}: 0 is GET, 1 is PUT"),
            BadRequest::Key(key) => write!(f, "key {key}: keys are below {MOST_KEYS}"),
            BadRequest::Reserved(place) => write!(f, "byte {place} is not zero"),
        }
    }
}

impl std::error::Error for BadRequest {}

impl<'a> Request<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// Why it is no request.
    pub fn parse(packet: &'a [u8]) -> Result<Request<'a>, BadRequest> {
        let whole =
            |needed: usize| if packet.len() < needed { Err(BadRequest::Length(packet.len(), needed)) } else { Ok(()) };
        whole(REQUEST_BYTES)?;
        let key = u64::from_le_bytes(packet[8..16].try_into().expect("eight bytes"));
        if key >= MOST_KEYS {
            return Err(BadRequest::Key(key));
        }
        if let Some(place) = RESERVED.into_iter().find(|&place| packet[place] != 0) {
            return Err(BadRequest::Reserved(place));
        }
        match packet[0] {
            0 => Ok(Request::Get(key)),
            1 => {
                let end = HEAD_BYTES + usize::from(u16::from_le_bytes([packet[2], packet[3]]));
                whole(end)?;
                Ok(Request::Put(key, &packet[HEAD_BYTES..end]))
            }
            other => Err(BadRequest::Operation(other)),
        }
    }

    /// Its packet.
    ///
    /// # Panics
    ///
    /// If the value has more than 65535 bytes.
    pub fn packet(&self) -> Vec<u8> {
        match self {
            Request::Get(key) => packet(0, *key, &[]),
            Request::Put(key, value) => packet(1, *key, value),
        }
    }
}

impl Answer {
    /// Its packet.
    pub fn packet(&self, key: u64) -> Vec<u8> {
        match self {
            Answer::Found(value) => packet(0, key, value),
            Answer::Stored => packet(0, key, &[]),
            Answer::Absent => packet(1, key, &[]),
            Answer::TooLong => packet(2, key, &[]),
            Answer::Busy => packet(3, key, &[]),
        }
    }
}

fn packet(first: u8, key: u64, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("a value of at most 65535 bytes");
    let mut packet = vec![0; REQUEST_BYTES.max(HEAD_BYTES + value.len())];
    packet[0] = first;
    packet[2..4].copy_from_slice(&length.to_le_bytes());
    packet[8..16].copy_from_slice(&key.to_le_bytes());
    packet[HEAD_BYTES..][..value.len()].copy_from_slice(value);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_their_packets_and_others_are_refused() {
        let long = [9; 1000];
        for request in
            [Request::Get(7), Request::Put(MOST_KEYS - 1, &long[..48]), Request::Put(3, &long), Request::Put(3, &[])]
        {
            assert_eq!(Request::parse(&request.packet()), Ok(request));
        }
        assert_eq!(Request::parse(&[0; 63]), Err(BadRequest::Length(63, 64)));
        let cut = &Request::Put(3, &long).packet()[..1015];
        assert_eq!(Request::parse(cut), Err(BadRequest::Length(1015, 1016)), "a value that is cut off");
        let mut packet = Request::Get(1).packet();
        packet[0] = 2;
        assert_eq!(Request::parse(&packet), Err(BadRequest::Operation(2)));
        packet[0] = 0;
        packet[8..16].fill(0xff);
        assert_eq!(Request::parse(&packet), Err(BadRequest::Key(u64::MAX)));
        for place in [1, 4, 5, 6, 7] {
            let mut packet = Request::Put(1, &[5]).packet();
            packet[place] = 1;
            assert_eq!(Request::parse(&packet), Err(BadRequest::Reserved(place)));
        }
    }
}
