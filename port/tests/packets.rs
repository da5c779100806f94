//! Frames that are nearly right, given to everything that reads what stands in them.

use std::path::Path;

use conic_port::offload::Headers;
use conic_port::offload::checksum::{complete, complete_if_begun, fill, verify};
use conic_port::offload::coalesce::Coalescer;
use conic_port::offload::rss::{Ports, Toeplitz};
use conic_port::offload::virtio::{HEADER_BYTES, Metadata};
use conic_port::offload::vlan::{TAG_BYTES, Tag, insert, strip};

/// Where the kept frames are: ARP, IPv4 and IPv6 with TCP, UDP, ICMP, options, extension headers, fragments and tags.
fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/frames")
}

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

#[test]
fn any_frame_is_read_without_a_step_outside() {
    let toeplitz = Toeplitz::default();
    let mut coalescer = Coalescer::new();
    let inputs = conic_check::fuzz(&corpus(), 2026, 200_000, |frame| {
        check_headers(frame);
        let _ = verify(frame);
        let hash = toeplitz.hash_frame(frame, Ports::default());
        assert_eq!(hash, toeplitz.hash_frame(frame, Ports::default()));
        let mut changed = frame.to_vec();
        fill(&mut changed);
        assert_eq!(changed.len(), frame.len());
        check_headers(&changed);
        complete_if_begun(&mut changed);
        let (start, offset) = (usize::from(frame.first().copied().unwrap_or(0)), frame.len() % 64);
        let _ = complete(&mut changed, start, offset);
        if coalescer.frames() > 8 {
            coalescer.clear();
        }
        let _ = coalescer.offer(frame);
        if let Some((packet, _, headers, _)) = coalescer.packet() {
            assert!(headers.segment(packet).len() <= packet.len());
        }
    });
    assert!(inputs > 200_000);
}

#[test]
fn a_tag_that_is_inserted_is_what_comes_off() {
    conic_check::fuzz(&corpus(), 7, 100_000, |frame| {
        let tag = Tag::new(u16::from(frame.last().copied().unwrap_or(1)) + 1);
        let mut room = [frame, &[0; TAG_BYTES]].concat();
        let Some(length) = insert(&mut room, frame.len(), tag) else { return };
        assert_eq!(length, frame.len() + TAG_BYTES);
        assert_eq!(strip(&mut room[..length]).map(Tag::vlan), Some(tag.vlan()));
        assert_eq!(&room[..frame.len()], frame, "the frame is not what it was");
    });
}

#[test]
fn any_header_of_virtio_is_read_or_refused() {
    conic_check::fuzz(&corpus(), 11, 100_000, |bytes| {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return };
        if let Some(metadata) = Metadata::read(header) {
            let mut written = [0; HEADER_BYTES];
            metadata.write(Headers::of(bytes).as_ref(), &mut written);
            // What was written is read again.
            assert!(Metadata::read(&written).is_some(), "{metadata:?}");
        }
    });
}
