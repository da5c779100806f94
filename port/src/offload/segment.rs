//! Cutting a large TCP or UDP packet into frames, as a NIC with segmentation offload does.
//!
//! Sources: RFC 9293 (sequence numbers, FIN and PSH on the last), RFC 3168 (CWR on the first), RFC 6864 (IPv4
//! identification).

use super::checksum::{fill_network, fold, pseudo_header, sum};
use super::headers::{Headers, Network, TCP, UDP};
use super::virtio::Segmentation;

/// The longest packet that can be cut: IP's longest, behind an Ethernet header with two tags.
pub const LONGEST: usize = 65_535 + 14 + 8;

/// Bytes of payload that each frame has at least, but for the last, into which the other end of a port has a packet cut: a header is built
/// for each, and by the byte they would cost a thousand times what one large packet does. At that end may be a guest, and what a guest
/// gives is what its kernel makes of the connection, with nobody to tell that it is too small. Linux sends segments of 48 bytes at least,
/// options included (`tcp_min_snd_mss`), of which time stamps take 12.
pub const LEAST_PIECE_OF_PORT: u16 = 32;

/// TCP's flags at byte 13 of its header.
pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// How a packet is cut. It does not hold the packet: that is given to each call, and must not change between them.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    headers: Headers,
    /// Where the payload begins.
    payload: usize,
    size: usize,
    /// Bytes of payload already given.
    given: usize,
    number: u16,
}

impl Segments {
    /// Plans the cut. `None` where the packet is no TCP or UDP packet as announced, is a fragment, or has headers that do
    /// not fit.
    pub fn of(packet: &[u8], segmentation: Segmentation) -> Option<Segments> {
        let headers = Headers::of(packet)?;
        if headers.protocol != segmentation.protocol || packet.len() > LONGEST || segmentation.size == 0 {
            return None;
        }
        headers.checksum_at()?;
        let header = headers.transport_length(packet);
        let payload = headers.transport + header;
        if header < 8 || headers.protocol == TCP && header < 20 || payload >= headers.end {
            return None;
        }
        Some(Segments { headers, payload, size: usize::from(segmentation.size), given: 0, number: 0 })
    }

    /// How long the longest frame is.
    pub fn longest(&self) -> usize {
        self.payload + self.size.min(self.headers.end - self.payload)
    }

    /// Whether the packet is one frame already.
    pub fn is_one(&self) -> bool {
        self.longest() == self.headers.end
    }

    /// How many bytes all frames are together, each of at least so many.
    pub fn bytes(&self, least: usize) -> usize {
        let payload = self.headers.end - self.payload;
        let (whole, rest) = (payload / self.size, payload % self.size);
        let last = if rest > 0 { (self.payload + rest).max(least) } else { 0 };
        whole * (self.payload + self.size).max(least) + last
    }

    /// Where it stands: bytes of payload in each frame but the last, and of those that were given.
    pub(crate) fn position(&self) -> (usize, usize) {
        (self.size, self.given)
    }

    /// The same behind so many bytes of payload; `None` where no frame begins there.
    pub(crate) fn behind(self, given: usize) -> Option<Segments> {
        let is_between = given.is_multiple_of(self.size) && given < self.headers.end - self.payload;
        is_between.then_some(Segments { given, number: (given / self.size) as u16, ..self })
    }

    /// Whether all frames have been given.
    pub fn is_done(&self) -> bool {
        self.payload + self.given >= self.headers.end
    }

    /// Writes the next frame, with all checksums, and gives its length; `None` when there is none left, or no room for
    /// [`Segments::longest`] bytes.
    pub fn next(&mut self, packet: &[u8], frame: &mut [u8]) -> Option<usize> {
        let from = self.payload + self.given;
        let chunk = self.size.min(self.headers.end.checked_sub(from)?);
        let length = self.payload + chunk;
        if chunk == 0 || frame.len() < length {
            return None;
        }
        let frame = &mut frame[..length];
        frame[..self.payload].copy_from_slice(&packet[..self.payload]);
        frame[self.payload..].copy_from_slice(&packet[from..from + chunk]);
        let last = from + chunk == self.headers.end;
        self.fix_headers(frame, last);
        self.given += chunk;
        self.number = self.number.wrapping_add(1);
        Some(length)
    }

    fn fix_headers(&self, frame: &mut [u8], last: bool) {
        let headers = Headers { end: frame.len(), ..self.headers };
        let Headers { network, transport, .. } = headers;
        match headers.version {
            Network::Four => {
                put(frame, network + 2, (frame.len() - network) as u16);
                let identification = u16::from_be_bytes([frame[network + 4], frame[network + 5]]);
                put(frame, network + 4, identification.wrapping_add(self.number));
                fill_network(frame, &headers);
            }
            Network::Six => put(frame, network + 4, (frame.len() - network - 40) as u16),
        }
        if headers.protocol == TCP {
            let sequence: [u8; 4] = std::array::from_fn(|index| frame[transport + 4 + index]);
            let sequence = u32::from_be_bytes(sequence).wrapping_add(self.given as u32);
            frame[transport + 4..transport + 8].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut frame[transport + 13];
            if !last {
                *flags &= !(FIN | PSH);
            }
            if self.number > 0 {
                *flags &= !CWR;
            }
        } else {
            put(frame, transport + 4, (frame.len() - transport) as u16);
        }
        let Some(at) = headers.checksum_at() else { return };
        put(frame, at, 0);
        let segment = &frame[transport..];
        let value = !fold(sum(segment, pseudo_header(frame, &headers, segment.len())));
        // All ones is the same sum as zero, and for UDP the one that says that there is a checksum.
        put(frame, at, if value == 0 && headers.protocol == UDP { 0xffff } else { value });
    }
}

pub(super) fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
