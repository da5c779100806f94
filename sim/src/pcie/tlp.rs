//! How accesses are cut into TLPs, and what those take on the wire.
//!
//! Rules of the PCI Express Base Specification: no TLP crosses a page of 4 KiB; a write and a completion carry at most the
//! maximum payload; a read asks for at most the maximum read request; of a read's completions every one but the last ends
//! at a multiple of the read completion boundary; data are whole words of 4 bytes.

use super::TlpKind;
use crate::parameters::PcieParameters;

/// Most bytes that a TLP carries or asks for.
pub const MOST_TLP: u32 = 4096;
/// Bytes that no TLP crosses.
const PAGE: u64 = MOST_TLP as u64;
/// Bytes of which a TLP's data are whole multiples.
const WORD: u64 = 4;

/// Whether a link may have this as its maximum payload, maximum read request or read completion boundary.
pub const fn is_tlp_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && 64 <= bytes && bytes <= MOST_TLP
}

/// How accesses become TLPs on one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlps {
    max_payload: u64,
    max_read_request: u64,
    read_completion_boundary: u64,
    write_overhead: u64,
    read_overhead: u64,
    completion_overhead: u64,
}

/// An access, cut into pieces: `(address, bytes)` of each, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    at: u64,
    end: u64,
    most: u64,
    /// All pieces but the last end at multiples of this.
    boundary: u64,
}

impl Iterator for Pieces {
    type Item = (u64, u64);

    #[inline]
    fn next(&mut self) -> Option<(u64, u64)> {
        if self.at >= self.end {
            return None;
        }
        let at = self.at;
        let longest = (at + self.most) & !(self.boundary - 1);
        self.at = self.end.min(longest).min((at | (PAGE - 1)) + 1);
        Some((at, self.at - at))
    }
}

impl Tlps {
    /// The cuts of a link.
    ///
    /// # Panics
    /// Where a size is no power of two, or not read completion boundary <= maximum payload <= 4 KiB and maximum read
    /// request <= 4 KiB.
    pub fn new(parameters: &PcieParameters) -> Tlps {
        let p = parameters;
        for (name, size) in [
            ("max_payload", p.max_payload),
            ("max_read_request", p.max_read_request),
            ("read_completion_boundary", p.read_completion_boundary),
        ] {
            assert!(is_tlp_size(size), "pcie.{name} is {size}, and must be a power of two from 64 to {PAGE}");
        }
        assert!(
            p.read_completion_boundary <= p.max_payload,
            "pcie.read_completion_boundary is {}, more than max_payload, which is {}",
            p.read_completion_boundary,
            p.max_payload
        );
        Tlps {
            max_payload: p.max_payload.into(),
            max_read_request: p.max_read_request.into(),
            read_completion_boundary: p.read_completion_boundary.into(),
            write_overhead: p.write_overhead.into(),
            read_overhead: p.read_overhead.into(),
            completion_overhead: p.completion_overhead.into(),
        }
    }

    /// The TLPs of a write.
    pub fn writes(&self, address: u64, bytes: u64) -> Pieces {
        Pieces { at: address, end: address + bytes, most: self.max_payload, boundary: 1 }
    }

    /// The requests of a read.
    pub fn reads(&self, address: u64, bytes: u64) -> Pieces {
        Pieces { at: address, end: address + bytes, most: self.max_read_request, boundary: 1 }
    }

    /// The completions of one request.
    pub fn completions(&self, address: u64, bytes: u64) -> Pieces {
        Pieces { at: address, end: address + bytes, most: self.max_payload, boundary: self.read_completion_boundary }
    }

    /// Bytes of data that a TLP with these bytes of memory carries: the words that they touch.
    #[inline]
    pub fn data_bytes(address: u64, bytes: u64) -> u32 {
        ((address + bytes).next_multiple_of(WORD) - address / WORD * WORD) as u32
    }

    /// Bytes that a TLP takes on the wire besides its data.
    #[inline]
    pub fn overhead(&self, kind: TlpKind) -> u64 {
        match kind {
            TlpKind::Posted => self.write_overhead,
            TlpKind::Read => self.read_overhead,
            TlpKind::Completion => self.completion_overhead,
        }
    }

    /// Bytes that a write takes on the wire.
    pub fn write_bytes(&self, address: u64, bytes: u64) -> u64 {
        self.wire_bytes(self.writes(address, bytes), TlpKind::Posted)
    }

    /// Bytes that a read takes on the wire: those of its requests in one direction, of its completions in the other.
    pub fn read_bytes(&self, address: u64, bytes: u64) -> (u64, u64) {
        let reads = self.reads(address, bytes);
        reads.fold((0, 0), |(requests, completions), (at, bytes)| {
            let answer = self.wire_bytes(self.completions(at, bytes), TlpKind::Completion);
            (requests + self.read_overhead, completions + answer)
        })
    }

    fn wire_bytes(&self, pieces: Pieces, kind: TlpKind) -> u64 {
        pieces.map(|(at, bytes)| u64::from(Tlps::data_bytes(at, bytes)) + self.overhead(kind)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::gen4;
    use super::*;

    fn pieces(pieces: Pieces) -> Vec<(u64, u64)> {
        pieces.collect()
    }

    #[test]
    fn a_write_is_cut_at_the_maximum_payload_and_at_pages() {
        let tlps = Tlps::new(&gen4());
        assert_eq!(pieces(tlps.writes(0, 0)), []);
        assert_eq!(pieces(tlps.writes(0, 256)), [(0, 256)]);
        assert_eq!(pieces(tlps.writes(0, 257)), [(0, 256), (256, 1)]);
        assert_eq!(pieces(tlps.writes(64, 256)), [(64, 256)], "only pages need not be crossed");
        assert_eq!(pieces(tlps.writes(4096 - 64, 256)), [(4032, 64), (4096, 192)]);
    }

    #[test]
    fn a_read_is_cut_at_the_maximum_request_and_at_pages() {
        let tlps = Tlps::new(&gen4());
        assert_eq!(pieces(tlps.reads(0, 1500)), [(0, 512), (512, 512), (1024, 476)]);
        assert_eq!(pieces(tlps.reads(3900, 512)), [(3900, 196), (4096, 316)]);
    }

    #[test]
    fn completions_end_at_the_read_completion_boundary() {
        let tlps = Tlps::new(&gen4());
        assert_eq!(pieces(tlps.completions(0, 512)), [(0, 256), (256, 256)]);
        assert_eq!(pieces(tlps.completions(8, 512)), [(8, 248), (256, 256), (512, 8)]);
        assert_eq!(pieces(tlps.completions(100, 300)), [(100, 220), (320, 80)]);
        assert_eq!(pieces(tlps.completions(60, 8)), [(60, 8)], "within the payload, one completion holds it all");
        let narrow = Tlps::new(&PcieParameters { max_payload: 64, ..gen4() });
        assert_eq!(pieces(narrow.completions(60, 132)), [(60, 4), (64, 64), (128, 64)]);
    }

    #[test]
    fn pieces_cover_an_access_exactly_wherever_it_lies() {
        let tlps = Tlps::new(&gen4());
        for address in (0..8192).step_by(37) {
            for bytes in (1..5000).step_by(111) {
                for (cut, most) in [(tlps.writes(address, bytes), 256), (tlps.reads(address, bytes), 512)] {
                    let mut at = address;
                    for (start, bytes) in cut {
                        assert_eq!(start, at);
                        assert!(0 < bytes && bytes <= most && start / PAGE == (start + bytes - 1) / PAGE);
                        at += bytes;
                    }
                    assert_eq!(at, address + bytes);
                }
            }
        }
    }

    #[test]
    fn data_are_whole_words() {
        assert_eq!(Tlps::data_bytes(0, 64), 64);
        assert_eq!(Tlps::data_bytes(0, 1), 4);
        assert_eq!(Tlps::data_bytes(3, 1), 4);
        assert_eq!(Tlps::data_bytes(3, 2), 8);
        assert_eq!(Tlps::data_bytes(2, 64), 68);
    }

    #[test]
    fn bytes_on_the_wire_are_those_of_the_published_formulas() {
        let p = gen4();
        let tlps = Tlps::new(&p);
        for size in [1_u64, 64, 128, 256, 300, 512, 1024, 1500, 4096] {
            let words = size.next_multiple_of(4);
            let writes = size.div_ceil(p.max_payload.into());
            assert_eq!(tlps.write_bytes(0, size), words + writes * u64::from(p.write_overhead), "{size} bytes");
            let requests = size.div_ceil(p.max_read_request.into()) * u64::from(p.read_overhead);
            let completions = words + size.div_ceil(p.max_payload.into()) * u64::from(p.completion_overhead);
            assert_eq!(tlps.read_bytes(0, size), (requests, completions), "{size} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "pcie.max_payload is 100, and must be a power of two")]
    fn a_size_that_is_no_power_of_two_is_refused() {
        Tlps::new(&PcieParameters { max_payload: 100, ..gen4() });
    }

    #[test]
    #[should_panic(expected = "read_completion_boundary is 128, more than max_payload, which is 64")]
    fn a_boundary_beyond_the_payload_is_refused() {
        Tlps::new(&PcieParameters { max_payload: 64, read_completion_boundary: 128, ..gen4() });
    }
}
