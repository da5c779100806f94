//! A TCP segment in its frame: Ethernet, IPv4 and TCP headers, 54 bytes in all where there are no options, and the payload behind.
//!
//! | bytes | what |
//! |---|---|
//! | 0..14 | Ethernet: destination, source, type 0x0800 |
//! | 14..34 | IPv4 without options, and no fragment |
//! | 34..54 | TCP: ports, sequence number, acknowledgement, length and flags, window, checksum, 0 |
//! | 54.. | options, where the length says so: they are skipped; then the payload |
//!
//! Numbers are big-endian. The frame may be longer than its datagram: Ethernet fills up short ones. Options are never written: TAS
//! has time stamps in every segment, 12 bytes more.
//!
//! Both checksums are a NIC's to fill in and to check, as TAS leaves them to its NIC: [`Segment::header`] writes zeros and
//! [`Segment::parse`] does not look. [`fill_in_sums`] and [`sums_are_right`] are what such a NIC does.

use conic_fabric::{LINE_BYTES, Line};
use conic_load::functions::internet_sum;

/// Bytes of the headers without options.
pub const HEADER_BYTES: u16 = 54;
/// Bytes of payload of the largest segment: Ethernet's 1500 without the two headers.
pub const MOST_PAYLOAD: u16 = 1460;

const IP: usize = 14;
const TCP: usize = IP + 20;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// IPv4, five words of header.
const VERSION_AND_LENGTH: u8 = 0x45;
const PROTOCOL_TCP: u8 = 6;
/// Of the fragment's field: that others follow, and where in the datagram this one lies.
const FRAGMENT: u16 = 0x3fff;
/// Hops that a datagram may make.
const HOPS: u8 = 64;

const ACK: u8 = 1 << 4;
const PSH: u8 = 1 << 3;
/// Flags with which a segment is for whoever sets connections up and takes them down: FIN, SYN, RST, URG.
const NOT_DATA: u8 = 1 | 1 << 1 | 1 << 2 | 1 << 5;

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Its Ethernet address.
    pub station: [u8; 6],
    /// Its IPv4 address.
    pub address: u32,
    /// Its port.
    pub port: u16,
}

/// A data segment or an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Who sent it.
    pub from: End,
    /// Whom it is for.
    pub to: End,
    /// The sequence number of its first byte.
    pub sequence: u32,
    /// The sequence number of the byte that its sender expects next.
    pub acknowledged: u32,
    /// Bytes that its sender has room for.
    pub window: u16,
    /// Bytes from the beginning of the frame to the payload.
    pub payload_at: u16,
    /// Bytes of payload.
    pub payload_bytes: u16,
}

/// Why a frame is no segment for the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSegment {
    /// It is no TCP segment that is whole.
    Malformed,
    /// It is one that sets up a connection, ends it, or is urgent: TAS's slow path has those.
    ForSlowPath,
}

fn part<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    bytes[at..at + BYTES].try_into().expect("a part of the headers")
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(part(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(part(bytes, at))
}

impl Segment {
    /// The headers, and zeros up to the end of the line; the payload begins at [`HEADER_BYTES`], whatever `payload_at` says.
    pub fn header(&self) -> Line {
        let mut header = [0; LINE_BYTES as usize];
        header[..6].copy_from_slice(&self.to.station);
        header[6..12].copy_from_slice(&self.from.station);
        header[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        header[IP] = VERSION_AND_LENGTH;
        let datagram = HEADER_BYTES - IP as u16 + self.payload_bytes;
        header[IP + 2..IP + 4].copy_from_slice(&datagram.to_be_bytes());
        header[IP + 8] = HOPS;
        header[IP + 9] = PROTOCOL_TCP;
        header[IP + 12..IP + 16].copy_from_slice(&self.from.address.to_be_bytes());
        header[IP + 16..IP + 20].copy_from_slice(&self.to.address.to_be_bytes());
        header[TCP..TCP + 2].copy_from_slice(&self.from.port.to_be_bytes());
        header[TCP + 2..TCP + 4].copy_from_slice(&self.to.port.to_be_bytes());
        header[TCP + 4..TCP + 8].copy_from_slice(&self.sequence.to_be_bytes());
        header[TCP + 8..TCP + 12].copy_from_slice(&self.acknowledged.to_be_bytes());
        header[TCP + 12] = 5 << 4;
        header[TCP + 13] = if self.payload_bytes > 0 { ACK | PSH } else { ACK };
        header[TCP + 14..TCP + 16].copy_from_slice(&self.window.to_be_bytes());
        Line::from_bytes(&header)
    }

    /// The segment that a frame of so many bytes begins with.
    ///
    /// # Errors
    ///
    /// Why it is none. Every length is checked against those around it; checksums are not, see the module.
    #[inline]
    pub fn parse(first: &Line, frame_bytes: u16) -> Result<Segment, NoSegment> {
        let bytes = &first.to_bytes()[..];
        let headers_bytes = 4 * u16::from(bytes[TCP + 12] >> 4);
        let datagram = half(bytes, IP + 2);
        let payload_at = TCP as u16 + headers_bytes;
        let good = frame_bytes >= HEADER_BYTES
            && bytes[12..14] == ETHERTYPE_IPV4
            && bytes[IP] == VERSION_AND_LENGTH
            && half(bytes, IP + 6) & FRAGMENT == 0
            && bytes[IP + 9] == PROTOCOL_TCP
            && headers_bytes >= 20
            && datagram <= frame_bytes - IP as u16
            && datagram >= payload_at - IP as u16;
        if !good {
            return Err(NoSegment::Malformed);
        }
        let flags = bytes[TCP + 13];
        if flags & NOT_DATA != 0 || flags & ACK == 0 {
            return Err(NoSegment::ForSlowPath);
        }
        let end = |station, address, port| End {
            station: part(bytes, station),
            address: word(bytes, address),
            port: half(bytes, port),
        };
        Ok(Segment {
            from: end(6, IP + 12, TCP),
            to: end(0, IP + 16, TCP + 2),
            sequence: word(bytes, TCP + 4),
            acknowledged: word(bytes, TCP + 8),
            window: half(bytes, TCP + 14),
            payload_at,
            payload_bytes: datagram - (payload_at - IP as u16),
        })
    }

    /// The segment that a whole frame is.
    ///
    /// # Errors
    ///
    /// Those of [`Segment::parse`].
    pub fn of_frame(frame: &[u8]) -> Result<Segment, NoSegment> {
        let mut first = [0; LINE_BYTES as usize];
        let most = frame.len().min(first.len());
        first[..most].copy_from_slice(&frame[..most]);
        Segment::parse(&Line::from_bytes(&first), frame.len() as u16)
    }

    /// A frame with this payload, and its checksums filled in.
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let with = Segment { payload_bytes: payload.len() as u16, ..*self };
        let mut frame = with.header().to_bytes()[..usize::from(HEADER_BYTES)].to_vec();
        frame.extend_from_slice(payload);
        fill_in_sums(&mut frame);
        frame
    }
}

/// The sums over the IPv4 header, and over the segment with its pseudo-header, of a frame with so many bytes of datagram.
fn sums(frame: &[u8], datagram: usize) -> [u16; 2] {
    // A datagram is shorter than what 16 bits can say: this fits.
    let pseudo = u16::from(PROTOCOL_TCP) + (datagram - 20) as u16;
    let addresses = internet_sum(&frame[IP + 12..TCP], pseudo);
    [internet_sum(&frame[IP..TCP], 0), internet_sum(&frame[TCP..IP + datagram], addresses)]
}

/// Fills in both checksums, as a NIC does to what is sent. The frame has whole headers, and its lengths are right.
pub fn fill_in_sums(frame: &mut [u8]) {
    let datagram = usize::from(half(frame, IP + 2));
    let places = [IP + 10, TCP + 16];
    places.iter().for_each(|&at| frame[at..at + 2].fill(0));
    for (at, sum) in places.into_iter().zip(sums(frame, datagram)) {
        frame[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
    }
}

/// Whether both checksums are right, as a NIC finds of what it receives; false where the frame is shorter than its headers say.
pub fn sums_are_right(frame: &[u8]) -> bool {
    if frame.len() < usize::from(HEADER_BYTES) {
        return false;
    }
    let datagram = usize::from(half(frame, IP + 2));
    (40..=frame.len() - IP).contains(&datagram) && sums(frame, datagram) == [0xffff; 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Segment = Segment {
        from: End { station: [2, 0, 0, 0, 0, 2], address: 0x0a00_0002, port: 1025 },
        to: End { station: [2, 0, 0, 0, 0, 1], address: 0x0a00_0001, port: 7 },
        sequence: 0x0102_0304,
        acknowledged: 0xfffe_fdfc,
        window: 8192,
        payload_at: HEADER_BYTES,
        payload_bytes: 64,
    };

    #[test]
    fn what_is_built_is_parsed_as_it_was() {
        for payload in [0, 1, 64, 65, MOST_PAYLOAD] {
            let segment = Segment { payload_bytes: payload, ..GOOD };
            let frame = segment.frame(&vec![7; payload.into()]);
            assert_eq!(frame.len(), usize::from(HEADER_BYTES + payload));
            assert_eq!(Segment::of_frame(&frame), Ok(segment));
            assert!(sums_are_right(&frame));
        }
        let filled_up = [GOOD.frame(&[]), vec![0; 6]].concat();
        assert_eq!(
            Segment::of_frame(&filled_up),
            Ok(Segment { payload_bytes: 0, ..GOOD }),
            "Ethernet fills up to 60 bytes"
        );
    }

    /// The sums of a header that was worked out by hand: RFC 1071 over the words of the test's own frame.
    #[test]
    fn sums_are_those_of_the_words() {
        let frame = GOOD.frame(&[1, 2, 3]);
        let words = |bytes: &[u8]| -> u64 {
            bytes.chunks(2).map(|two| u64::from(two[0]) << 8 | u64::from(*two.get(1).unwrap_or(&0))).sum()
        };
        let ip = words(&frame[14..34]);
        assert_eq!(ip % 0xffff, 0);
        // Addresses, protocol, and the segment's length.
        let tcp = words(&frame[26..34]) + 6 + 23 + words(&frame[34..]);
        assert_eq!(tcp % 0xffff, 0);
    }

    #[test]
    fn every_bit_that_is_wrong_is_seen_by_the_sums() {
        let frame = GOOD.frame(&[9; 64]);
        for bit in 14 * 8..frame.len() * 8 {
            let mut other = frame.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!sums_are_right(&other), "bit {bit}");
        }
    }

    #[test]
    fn options_are_skipped() {
        let mut frame = [&GOOD.header().to_bytes()[..54], &[1; 12], &[5; 64]].concat();
        frame[TCP + 12] = 8 << 4;
        frame[IP + 2..IP + 4].copy_from_slice(&116_u16.to_be_bytes());
        assert_eq!(Segment::of_frame(&frame), Ok(Segment { payload_at: 66, ..GOOD }));
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let good = GOOD.frame(&[0; 64]);
        let changed = |at: usize, bits: u8| {
            let mut other = good.clone();
            other[at] ^= bits;
            Segment::of_frame(&other)
        };
        for (at, bits, what) in [
            (12, 1, "type"),
            (14, 0x10, "version"),
            (14, 1, "length of the header"),
            (20, 0x20, "fragment that others follow"),
            (21, 1, "fragment behind others"),
            (23, 2, "protocol"),
            (TCP + 12, 0x10, "length of TCP's header that is too small"),
            (16, 1, "length of the datagram"),
        ] {
            assert_eq!(changed(at, bits), Err(NoSegment::Malformed), "{what}");
        }
        for flag in [1, 2, 4, 32, 16] {
            assert_eq!(changed(TCP + 13, flag), Err(NoSegment::ForSlowPath), "flag {flag}");
        }
        for bytes in 0..good.len() as u16 {
            let line = GOOD.header();
            assert_eq!(Segment::parse(&line, bytes), Err(NoSegment::Malformed), "cut to {bytes} bytes");
        }
        // A header of 60 bytes in a datagram of 40, and a datagram that is shorter than any.
        let mut acknowledgement = GOOD.frame(&[]);
        acknowledgement[TCP + 12] = 0xf0;
        assert_eq!(Segment::of_frame(&acknowledgement), Err(NoSegment::Malformed));
        acknowledgement[TCP + 12] = 0x50;
        acknowledgement[IP + 3] = 39;
        assert_eq!(Segment::of_frame(&acknowledgement), Err(NoSegment::Malformed));
    }
}
