//! What a request and its answer look like in a packet.
//!
//! | bytes | request | answer |
//! |---|---|---|
//! | 0 | 0 GET, 1 PUT | 0 found or stored, 1 absent |
//! | 1 to 7 | zero | zero |
//! | 8 to 15 | key, little endian | key |
//! | 16 to 63 | value of a PUT | value of a GET |

use std::fmt;

use conic_fabric::LINE_BYTES;

/// Bytes of a value.
pub const MOST_VALUE_BYTES: usize = 48;
/// Bytes of a request, and of an answer.
pub const REQUEST_BYTES: usize = LINE_BYTES as usize;
/// Keys from here on are none: an entry's word would say that it is empty, or have no room for the key.
pub const MOST_KEYS: u64 = 1 << 60;

/// A value.
pub type Bytes = [u8; MOST_VALUE_BYTES];

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// What is the value of this key?
    Get(u64),
    /// This is the value of this key from now on.
    Put(u64, Bytes),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value.
    Found(Bytes),
    /// The value is stored.
    Stored,
    /// There is no such key.
    Absent,
}

/// Why a packet is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// It has so many bytes.
    Length(usize),
    /// Its first byte says so.
    Operation(u8),
    /// Such a key cannot be.
    Key(u64),
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRequest::Length(bytes) => write!(f, "a request of {bytes} bytes: it has at least {REQUEST_BYTES}"),
            BadRequest::Operation(code) => write!(f, "operation {code}: 0 is GET, 1 is PUT"),
            BadRequest::Key(key) => write!(f, "key {key}: keys are below {MOST_KEYS}"),
        }
    }
}

impl std::error::Error for BadRequest {}

impl Request {
    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// Why it is no request.
    pub fn parse(packet: &[u8]) -> Result<Request, BadRequest> {
        let Some(bytes) = packet.first_chunk::<REQUEST_BYTES>() else { return Err(BadRequest::Length(packet.len())) };
        let (head, value) = bytes.split_at(16);
        let key = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        if key >= MOST_KEYS {
            return Err(BadRequest::Key(key));
        }
        match head[0] {
            0 => Ok(Request::Get(key)),
            1 => Ok(Request::Put(key, value.try_into().expect("what is left of a line"))),
            other => Err(BadRequest::Operation(other)),
        }
    }

    /// Its packet.
    pub fn packet(&self) -> [u8; REQUEST_BYTES] {
        let mut packet = [0; REQUEST_BYTES];
        match self {
            Request::Get(key) => packet[8..16].copy_from_slice(&key.to_le_bytes()),
            Request::Put(key, value) => {
                packet[0] = 1;
                packet[8..16].copy_from_slice(&key.to_le_bytes());
                packet[16..].copy_from_slice(value);
            }
        }
        packet
    }
}

impl Answer {
    /// Its packet.
    pub fn packet(&self, key: u64) -> [u8; REQUEST_BYTES] {
        let mut packet = [0; REQUEST_BYTES];
        packet[8..16].copy_from_slice(&key.to_le_bytes());
        match self {
            Answer::Found(value) => packet[16..].copy_from_slice(value),
            Answer::Stored => {}
            Answer::Absent => packet[0] = 1,
        }
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_their_packets_and_others_are_refused() {
        for request in [Request::Get(7), Request::Put(MOST_KEYS - 1, [9; MOST_VALUE_BYTES])] {
            assert_eq!(Request::parse(&request.packet()), Ok(request));
        }
        assert_eq!(Request::parse(&[0; 63]), Err(BadRequest::Length(63)));
        let mut packet = Request::Get(1).packet();
        packet[0] = 2;
        assert_eq!(Request::parse(&packet), Err(BadRequest::Operation(2)));
        packet[0] = 0;
        packet[8..16].fill(0xff);
        assert_eq!(Request::parse(&packet), Err(BadRequest::Key(u64::MAX)));
    }
}
