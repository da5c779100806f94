//! What a device computes when it is called (coherent PIO sections 5.1 and 5.3).

use std::fmt;
use std::str::FromStr;

/// A function of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The request comes back: a write to the device's memory, followed by a read.
    Echo,
    /// Eight 64-bit hashes of each 128-byte element, as a Bloom filter with k = 8 needs them.
    Bloom,
    /// The Internet checksum (RFC 1071).
    Checksum,
}

/// Bytes of an element that is hashed; the last of a request may be shorter.
pub const ELEMENT_BYTES: usize = 128;

/// Hash functions of the Bloom filter.
pub const HASHES: usize = 8;

/// Bytes of an element's hashes.
const HASH_BYTES: usize = 8 * HASHES;

impl Function {
    /// All of them.
    pub const ALL: [Function; 3] = [Function::Echo, Function::Bloom, Function::Checksum];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Function::Echo => "echo",
            Function::Bloom => "bloom",
            Function::Checksum => "checksum",
        }
    }

    /// How long the response to a request of so many bytes is.
    pub fn response_bytes(self, request: usize) -> usize {
        match self {
            Function::Echo => request,
            Function::Bloom => request.div_ceil(ELEMENT_BYTES) * HASH_BYTES,
            Function::Checksum => 2,
        }
    }

    /// Computes it, and gives the response's length.
    ///
    /// # Panics
    ///
    /// If `response` has less room than [`Function::response_bytes`].
    pub fn apply(self, request: &[u8], response: &mut [u8]) -> usize {
        let bytes = self.response_bytes(request.len());
        match self {
            Function::Echo => response[..bytes].copy_from_slice(request),
            Function::Bloom => {
                for (element, out) in request.chunks(ELEMENT_BYTES).zip(response.chunks_exact_mut(HASH_BYTES)) {
                    for (hash, place) in hashes(element).into_iter().zip(out.chunks_exact_mut(8)) {
                        place.copy_from_slice(&hash.to_le_bytes());
                    }
                }
            }
            Function::Checksum => response[..bytes].copy_from_slice(&(!internet_sum(request, 0)).to_be_bytes()),
        }
        bytes
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Function {
    type Err = String;
    fn from_str(text: &str) -> Result<Function, String> {
        let found = Function::ALL.into_iter().find(|function| function.name() == text);
        found.ok_or_else(|| format!("a function is echo, bloom or checksum, not \"{text}\""))
    }
}

/// Eight hashes of an element, a byte at a time, each of shifts, additions and exclusive ors, all eight side by side: Jenkins's
/// one-at-a-time hash, widened to 64 bits, from eight starts.
#[inline]
fn hashes(element: &[u8]) -> [u64; HASHES] {
    // The golden ratio's bits, turned: any eight numbers that differ do.
    let mut hashes: [u64; HASHES] = std::array::from_fn(|lane| 0x9e37_79b9_7f4a_7c15_u64.rotate_left(8 * lane as u32));
    for &byte in element {
        for hash in &mut hashes {
            *hash = hash.wrapping_add(u64::from(byte));
            *hash = hash.wrapping_add(*hash << 10);
            *hash ^= *hash >> 6;
        }
    }
    for hash in &mut hashes {
        *hash = hash.wrapping_add(*hash << 3);
        *hash ^= *hash >> 11;
        *hash = hash.wrapping_add(*hash << 15);
    }
    hashes
}

/// The ones' complement sum of 16-bit words and of one to begin with (RFC 1071), an odd byte being the high half of a word.
pub fn internet_sum(bytes: &[u8], begun: u16) -> u16 {
    let mut words = bytes.chunks_exact(2);
    let sum: u64 = words.by_ref().map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let mut sum = u64::from(begun) + sum + words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(function: Function, request: &[u8]) -> Vec<u8> {
        let mut response = vec![0xee; function.response_bytes(request.len()) + 3];
        let bytes = function.apply(request, &mut response);
        assert_eq!(response.split_off(bytes), [0xee; 3], "{function} writes no further than it says");
        response
    }

    #[test]
    fn the_checksum_is_that_of_the_rfcs_example() {
        // RFC 1071, section 3: the sum is ddf2.
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(Function::Checksum, &example), (!0xddf2_u16).to_be_bytes());
        assert_eq!(of(Function::Checksum, &[0xff; 65_536]), [0, 0]);
        assert_eq!(of(Function::Checksum, &[0x12]), (!0x1200_u16).to_be_bytes());
        assert_eq!(of(Function::Checksum, &[]), [0xff, 0xff]);
    }

    #[test]
    fn an_echo_is_its_request() {
        assert_eq!(of(Function::Echo, b"there and back"), b"there and back");
    }

    #[test]
    fn each_element_has_eight_hashes_that_depend_on_each_of_its_bytes() {
        let element: Vec<u8> = (0..128).collect();
        let hashes = of(Function::Bloom, &element);
        assert_eq!(hashes.len(), 64);
        let lanes: std::collections::BTreeSet<&[u8]> = hashes.chunks_exact(8).collect();
        assert_eq!(lanes.len(), HASHES);
        for place in 0..128 {
            let mut other = element.clone();
            other[place] ^= 1;
            let changed = of(Function::Bloom, &other);
            assert!(hashes.chunks_exact(8).zip(changed.chunks_exact(8)).all(|(a, b)| a != b), "byte {place}");
        }
        let two = of(Function::Bloom, &[element.clone(), element[..7].to_vec()].concat());
        assert_eq!((two.len(), &two[..64]), (128, &hashes[..]));
        assert_eq!(two[64..], of(Function::Bloom, &element[..7]));
    }

    #[test]
    fn a_function_is_read_by_its_name() {
        assert!(Function::ALL.into_iter().all(|function| function.name().parse() == Ok(function)));
        assert!("sort".parse::<Function>().expect_err("no such function").contains("checksum"));
    }
}
