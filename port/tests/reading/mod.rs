//! What reads what stands in frames, given one that may say anything.

use conic_port::offload::Headers;
use conic_port::offload::checksum::{complete, complete_if_begun, fill, verify};
use conic_port::offload::coalesce::Coalescer;
use conic_port::offload::rss::{Ports, Toeplitz};
use conic_port::offload::segment::Segments;
use conic_port::offload::virtio::{HEADER_BYTES, Metadata, Segmentation};
use conic_port::offload::vlan::{TAG_BYTES, Tag, insert, strip};

/// What lies within a frame must do so, whatever the frame says.
fn check_headers(frame: &[u8]) {
    if let Some(headers) = Headers::of(frame) {
        assert!(headers.segment(frame).len() <= frame.len());
        assert!(headers.addresses(frame).len() <= 32);
        if let Some(at) = headers.checksum_at() {
            assert!(at + 2 <= frame.len(), "a checksum at {at} of {} bytes", frame.len());
        }
    }
    for cut in [14, 34, 54, 64, 128] {
        // A beginning says no more than the whole.
        let _ = Headers::of_beginning(&frame[..cut.min(frame.len())], frame.len());
    }
}

/// Readers that remember something from frame to frame.
pub struct Readers {
    toeplitz: Toeplitz,
    coalescer: Coalescer,
}

impl Default for Readers {
    fn default() -> Readers {
        Readers { toeplitz: Toeplitz::default(), coalescer: Coalescer::new() }
    }
}

impl Readers {
    /// Forgets the frames before.
    #[allow(dead_code, reason = "for who has each frame read by itself")]
    pub fn clear(&mut self) {
        self.coalescer.clear();
    }

    /// Has a frame read by everything that reads frames.
    pub fn read(&mut self, frame: &[u8]) {
        check_headers(frame);
        let _ = verify(frame);
        let hash = self.toeplitz.hash_frame(frame, Ports::default());
        assert_eq!(hash, self.toeplitz.hash_frame(frame, Ports::default()));
        let mut changed = frame.to_vec();
        fill(&mut changed);
        assert_eq!(changed.len(), frame.len());
        check_headers(&changed);
        complete_if_begun(&mut changed);
        let (start, offset) = (usize::from(frame.first().copied().unwrap_or(0)), frame.len() % 64);
        let _ = complete(&mut changed, start, offset);
        if self.coalescer.frames() > 8 {
            self.coalescer.clear();
        }
        let _ = self.coalescer.offer(frame);
        if let Some((packet, _, headers, _)) = self.coalescer.packet() {
            assert!(headers.segment(packet).len() <= packet.len());
        }
    }
}

/// A packet is cut into frames that together are as long as was said, or not at all.
pub fn check_cut(packet: &[u8]) {
    let Some(headers) = Headers::of(packet) else { return };
    let size = u16::from(packet[packet.len() / 2]) + u16::from(packet[packet.len() - 1]);
    let Some(mut cut) = Segments::of(packet, Segmentation { size, protocol: headers.protocol }) else { return };
    let (longest, whole) = (cut.longest(), cut.bytes(0));
    let (mut frame, mut bytes) = (vec![0; longest], 0);
    while let Some(length) = cut.next(packet, &mut frame) {
        assert!(0 < length && length <= longest);
        bytes += length;
        assert!(bytes <= whole, "it has no end");
        check_headers(&frame[..length]);
    }
    assert!(cut.is_done() && bytes == whole, "{bytes} bytes of {whole}");
}

/// A tag that is inserted is what comes off.
pub fn check_tag(frame: &[u8]) {
    let tag = Tag::new(u16::from(frame.last().copied().unwrap_or(1)) + 1);
    let mut room = [frame, &[0; TAG_BYTES]].concat();
    let Some(length) = insert(&mut room, frame.len(), tag) else { return };
    assert_eq!(length, frame.len() + TAG_BYTES);
    assert_eq!(strip(&mut room[..length]).map(Tag::vlan), Some(tag.vlan()));
    assert_eq!(&room[..frame.len()], frame, "the frame is not what it was");
}

/// A header of virtio is read or refused.
pub fn check_virtio(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    if let Some(metadata) = Metadata::read(header) {
        let mut written = [0; HEADER_BYTES];
        metadata.write(Headers::of(bytes).as_ref(), &mut written);
        // What was written is read again.
        assert!(Metadata::read(&written).is_some(), "{metadata:?}");
    }
}
