//! Joining the TCP frames of one flow that follow each other into one large packet, as a NIC with large receive offload
//! does: the inverse of [`super::segment`], which gives the same frames again. Frames with VLAN tags are joined too, where all of their
//! tags are the same.

use super::checksum::{self, Verdict, fill_network, fold, pseudo_header};
use super::headers::{Headers, Network, TCP};
use super::segment::{LONGEST, PSH, put};
use super::virtio::{Checksum, Metadata, Segmentation};

/// The flags with which a frame may be joined: ACK, and PSH, which is the last of its packet.
const ACK: u8 = 0x10;
/// "Do not fragment", in an IPv4 header's byte 6.
const DO_NOT_FRAGMENT: u8 = 0x40;

/// What became of a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It is held, alone or joined to others.
    Held,
    /// It is not held: what is held must leave first, and then it may be offered again.
    Other,
    /// It can never be joined: it is to be sent as it is, behind what is held.
    Never,
}

/// The frames of one flow that wait to be joined. Its memory is fixed when it is made.
pub struct Coalescer {
    bytes: Box<[u8]>,
    /// Bytes of a packet at most.
    most: usize,
    /// Bytes held; 0 for nothing.
    length: usize,
    frames: usize,
    headers: Option<Headers>,
    /// Where the payload begins.
    payload: usize,
    /// Payload bytes of each frame but the last.
    size: usize,
    next_sequence: u32,
    next_identification: u16,
    /// Nothing may follow: a shorter frame or one with PSH came.
    closed: bool,
}

impl Default for Coalescer {
    fn default() -> Coalescer {
        Coalescer::new()
    }
}

impl Coalescer {
    /// An empty one.
    pub fn new() -> Coalescer {
        Coalescer::with_room(LONGEST)
    }

    /// An empty one, for packets of at most so many bytes.
    pub fn with_room(most: usize) -> Coalescer {
        let most = most.min(LONGEST);
        Coalescer {
            bytes: vec![0; most].into_boxed_slice(),
            most,
            length: 0,
            frames: 0,
            headers: None,
            payload: 0,
            size: 0,
            next_sequence: 0,
            next_identification: 0,
            closed: false,
        }
    }

    /// Joins no more from here on than gives packets of so many bytes, if there is room for as many.
    pub fn limit(&mut self, most: usize) {
        self.most = most.min(self.bytes.len());
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many frames are held.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Offers a frame.
    pub fn offer(&mut self, frame: &[u8]) -> Joined {
        let Some((headers, payload)) = joinable(frame) else { return Joined::Never };
        if self.is_empty() {
            // The checksum of what is joined is made anew, which must not make a wrong one right.
            if frame.len() > self.most || checksum::verify(frame).transport != Verdict::Good {
                return Joined::Never;
            }
            self.bytes[..frame.len()].copy_from_slice(frame);
            self.length = frame.len();
            self.frames = 1;
            self.payload = payload;
            self.size = frame.len() - payload;
            self.closed = false;
            self.headers = Some(headers);
            self.follow(frame, &headers, payload);
            return Joined::Held;
        }
        if !self.continues(frame, &headers, payload) || checksum::verify(frame).transport != Verdict::Good {
            return Joined::Other;
        }
        let data = &frame[payload..];
        self.bytes[self.length..self.length + data.len()].copy_from_slice(data);
        self.length += data.len();
        self.frames += 1;
        self.bytes[headers.transport + 13] |= frame[headers.transport + 13] & PSH;
        self.closed = data.len() < self.size;
        self.follow(frame, &headers, payload);
        Joined::Held
    }

    /// Notes what the next frame must be.
    fn follow(&mut self, frame: &[u8], headers: &Headers, payload: usize) {
        self.next_sequence = sequence(frame, headers).wrapping_add((frame.len() - payload) as u32);
        if headers.version == Network::Four {
            self.next_identification = identification(frame, headers).wrapping_add(1);
        }
        self.closed |= frame[headers.transport + 13] & PSH != 0;
    }

    /// Whether the frame is the next of what is held: the same headers, tags and all, but for the fields that count on.
    fn continues(&self, frame: &[u8], headers: &Headers, payload: usize) -> bool {
        let held = &self.bytes[..self.length];
        let data = frame.len() - payload;
        let whole = self.length - self.headers.map_or(0, |headers| headers.network) + data;
        let too_long = whole > 65_535 || self.length + data > self.most;
        if self.closed || payload != self.payload || data > self.size || too_long {
            return false;
        }
        let Headers { network, transport, .. } = *headers;
        let same = |from: usize, to: usize| held[from..to] == frame[from..to];
        let network_same = match headers.version {
            // All but total length, identification and checksum. RFC 6864: with "do not fragment" the identification
            // says nothing.
            Network::Four => {
                let counts_on = identification(frame, headers) == self.next_identification;
                same(network, network + 2)
                    && same(network + 6, network + 10)
                    && same(network + 12, transport)
                    && (counts_on || frame[network + 6] & DO_NOT_FRAGMENT != 0)
            }
            Network::Six => same(network, network + 4) && same(network + 6, transport),
        };
        // Ports; acknowledgement and header length; window; options. Sequence, flags and checksum are looked at apart.
        network_same
            && same(0, network)
            && same(transport, transport + 4)
            && same(transport + 8, transport + 13)
            && same(transport + 14, transport + 16)
            && same(transport + 18, payload)
            && sequence(frame, headers) == self.next_sequence
    }

    /// What is held, made ready to leave: its bytes, its metadata, its headers, and the length of those. Nothing can be
    /// joined to it any more; it stays until [`Coalescer::clear`], and whoever changes its bytes clears it. `None` where nothing is
    /// held.
    pub fn packet(&mut self) -> Option<(&mut [u8], Metadata, Headers, usize)> {
        let held = self.headers?;
        self.closed = true;
        let length = self.length;
        let packet = &mut self.bytes[..length];
        let headers = Headers { end: length, ..held };
        if self.frames == 1 {
            return Some((packet, Metadata { checksum: Checksum::Valid, segmentation: None }, headers, self.payload));
        }
        match headers.version {
            Network::Four => {
                put(packet, headers.network + 2, (length - headers.network) as u16);
                fill_network(packet, &headers);
            }
            Network::Six => put(packet, headers.network + 4, (length - headers.network - 40) as u16),
        }
        let begun = fold(pseudo_header(packet, &headers, length - headers.transport));
        put(packet, headers.transport + 16, begun);
        let checksum = Checksum::Partial { start: headers.transport as u16, offset: 16 };
        let segmentation = Some(Segmentation { size: self.size as u16, protocol: TCP });
        Some((packet, Metadata { checksum, segmentation }, headers, self.payload))
    }

    /// Lets go of what is held.
    pub fn clear(&mut self) {
        (self.length, self.frames, self.headers) = (0, 0, None);
    }
}

/// The headers of a frame that may be joined, and where its payload begins.
fn joinable(frame: &[u8]) -> Option<(Headers, usize)> {
    let headers = Headers::of(frame)?;
    let plain = match headers.version {
        Network::Four => 20,
        Network::Six => 40,
    };
    // Without IP options, without padding, and TCP with data.
    let fits = headers.transport == headers.network + plain
        && headers.end == frame.len()
        && headers.protocol == TCP
        && headers.checksum_at().is_some();
    if !fits
        || headers.version == Network::Four
            && fold(checksum::sum(&frame[headers.network..headers.transport], 0)) != 0xffff
    {
        return None;
    }
    let payload = headers.transport + 4 * usize::from(frame[headers.transport + 12] >> 4);
    let flags = frame[headers.transport + 13];
    (payload >= headers.transport + 20 && payload < headers.end && flags & !PSH == ACK).then_some((headers, payload))
}

fn sequence(frame: &[u8], headers: &Headers) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|index| frame[headers.transport + 4 + index]))
}

fn identification(frame: &[u8], headers: &Headers) -> u16 {
    u16::from_be_bytes([frame[headers.network + 4], frame[headers.network + 5]])
}
