//! Frames that are nearly right, given to everything that reads what stands in them.

use std::path::Path;

use crate::reading::{self, Readers};

/// Where the kept frames are: ARP, IPv4 and IPv6 with TCP, UDP, ICMP, options, extension headers, fragments and tags.
fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/frames")
}

#[test]
fn any_frame_is_read_without_a_step_outside() {
    let mut readers = Readers::default();
    let inputs = conic_check::fuzz(&corpus(), 2026, 200_000, |frame| readers.read(frame));
    assert!(inputs > 200_000);
}

#[test]
fn a_packet_is_cut_into_as_many_bytes_as_was_said() {
    conic_check::fuzz(&corpus(), 3, 50_000, reading::check_cut);
}

#[test]
fn a_tag_that_is_inserted_is_what_comes_off() {
    conic_check::fuzz(&corpus(), 7, 100_000, reading::check_tag);
}

#[test]
fn any_header_of_virtio_is_read_or_refused() {
    conic_check::fuzz(&corpus(), 11, 100_000, reading::check_virtio);
}
