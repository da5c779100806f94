//! The header that virtio, TAP interfaces and packet sockets put before a frame.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, 5.1.6; Linux, `linux/virtio_net.h`. TAP and packet sockets use the machine's
//! byte order.

use super::headers::{Headers, Network, TCP, UDP};

/// Bytes of the header without the count of merged buffers.
pub const HEADER_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const SEGMENT_NONE: u8 = 0;
const SEGMENT_TCP4: u8 = 1;
const SEGMENT_TCP6: u8 = 4;
const SEGMENT_UDP: u8 = 5;
/// The sender has congestion bits in the TCP header that only the first segment may have.
const SEGMENT_ECN: u8 = 0x80;

/// What is known of a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: it is in the frame, right or wrong.
    #[default]
    Unknown,
    /// Somebody trusted has found it right.
    Valid,
    /// It has been begun and is to be completed: see [`super::checksum::complete`].
    Partial {
        /// From where it sums, in bytes from the frame's beginning.
        start: u16,
        /// Where it lies, in bytes from `start`.
        offset: u16,
    },
}

/// A frame that stands for several, to be cut on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Bytes of payload in each but the last.
    pub size: u16,
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
}

/// What is left to do for a frame, and what has been done: the metadata of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Its transport checksum.
    pub checksum: Checksum,
    /// Whether it is to be cut.
    pub segmentation: Option<Segmentation>,
}

impl Metadata {
    /// Nothing is known and nothing is to be done.
    pub const NONE: Metadata = Metadata { checksum: Checksum::Unknown, segmentation: None };

    /// Reads a header. What it claims of the frame is not checked here. `None` for what has no meaning here: unknown kinds
    /// of segmentation, or a size of zero.
    pub fn read(header: &[u8; HEADER_BYTES]) -> Option<Metadata> {
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let checksum = match header[0] {
            flags if flags & NEEDS_CHECKSUM != 0 => Checksum::Partial { start: word(6), offset: word(8) },
            flags if flags & DATA_VALID != 0 => Checksum::Valid,
            _ => Checksum::Unknown,
        };
        let protocol = match header[1] & !SEGMENT_ECN {
            SEGMENT_NONE => return Some(Metadata { checksum, segmentation: None }),
            SEGMENT_TCP4 | SEGMENT_TCP6 => TCP,
            SEGMENT_UDP => UDP,
            _ => return None,
        };
        let size = word(4);
        (size > 0).then_some(Metadata { checksum, segmentation: Some(Segmentation { size, protocol }) })
    }

    /// Writes the header for a frame whose headers are `headers`; `None` for one that has no headers to speak of.
    pub fn write(&self, headers: Option<&Headers>, header: &mut [u8; HEADER_BYTES]) {
        header.fill(0);
        let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        if let Checksum::Partial { start, offset } = self.checksum {
            put(6, start);
            put(8, offset);
        }
        let mut kind = SEGMENT_NONE;
        if let (Some(segmentation), Some(headers)) = (self.segmentation, headers) {
            kind = match (segmentation.protocol, headers.version) {
                (UDP, _) => SEGMENT_UDP,
                (_, Network::Four) => SEGMENT_TCP4,
                (_, Network::Six) => SEGMENT_TCP6,
            };
            put(4, segmentation.size);
        }
        header[0] = match self.checksum {
            Checksum::Partial { .. } => NEEDS_CHECKSUM,
            Checksum::Valid => DATA_VALID,
            Checksum::Unknown => 0,
        };
        header[1] = kind;
    }
}

/// Sets the length of the headers in a header that was written: only needed for frames that are to be cut.
pub fn set_header_length(header: &mut [u8; HEADER_BYTES], length: usize) {
    let length = u16::try_from(length).unwrap_or(0);
    header[2..4].copy_from_slice(&length.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut frame = [0; 60];
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6]);
        let headers = Headers::of(&frame);
        let partial = Checksum::Partial { start: 34, offset: 16 };
        for (checksum, size) in [(Checksum::Unknown, 0), (Checksum::Valid, 0), (partial, 0), (partial, 1448)] {
            let segmentation = (size > 0).then_some(Segmentation { size, protocol: TCP });
            let metadata = Metadata { checksum, segmentation };
            let mut header = [0xff; HEADER_BYTES];
            metadata.write(headers.as_ref(), &mut header);
            set_header_length(&mut header, 54);
            assert_eq!(Metadata::read(&header), Some(metadata));
            assert_eq!(u16::from_ne_bytes([header[2], header[3]]), 54);
        }
    }

    #[test]
    fn unknown_segmentation_is_refused() {
        for kind in [2, 3, 6, 0x7f] {
            assert_eq!(Metadata::read(&[0, kind, 0, 0, 1, 1, 0, 0, 0, 0]), None);
        }
        assert_eq!(Metadata::read(&[0, SEGMENT_TCP4, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        let ecn = Metadata::read(&[0, SEGMENT_TCP4 | SEGMENT_ECN, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert!(ecn.is_some_and(|metadata| metadata.segmentation.is_some()));
    }
}
