//! Stations with addresses, frames that tell what they must contain, and clients that exchange them.
#![allow(dead_code, reason = "each test program uses a part of this")]

pub mod arguments;
pub mod bystanders;
pub mod waiting;

use conic_client::{Buffer, Options};
use conic_fabric::Layout;
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Features, Geometry, Map};
use conic_native::{clock, yield_core};

/// The addresses of the stations.
pub const ONE: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
pub const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
pub const ECHO: [u8; 6] = [2, 0, 0, 0, 0, 0x0c];
pub const VICTIM: [u8; 6] = [2, 0, 0, 0, 0, 0x0d];

/// What the stations' regions are laid out for: small, so that they are made quickly.
pub fn geometry() -> Geometry {
    Geometry { queues: 2, descriptors: 128, buffers: [256, 128, 16], object_bytes: 0 }
}

/// Where everything lies in their regions.
pub fn layout() -> Layout {
    let map = Map::new(geometry(), Features::best()).expect("a geometry that can be");
    let (map, _) = Notices::in_map(map);
    map.layout
}

pub fn options(mac: [u8; 6]) -> Options {
    Options { geometry: geometry(), mac: Some(mac), ..Options::default() }
}

/// A frame between two stations with `number` in it, and content that follows from both.
pub fn write_frame(frame: &mut Buffer, from: [u8; 6], to: [u8; 6], number: u64) {
    let mut bytes = vec![0; frame.len()];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..22].copy_from_slice(&number.to_le_bytes());
    for (index, byte) in bytes[22..].iter_mut().enumerate() {
        *byte = content(number, index);
    }
    frame.write(0, &bytes);
}

/// The number in such a frame, which must contain what follows from it.
pub fn numbered(frame: &[u8]) -> u64 {
    let number = u64::from_le_bytes(frame[14..22].try_into().expect("eight bytes"));
    let sound = frame[22..].iter().enumerate().all(|(index, &byte)| byte == content(number, index));
    assert!(sound, "frame {number} of {} bytes was changed", frame.len());
    number
}

fn content(number: u64, index: usize) -> u8 {
    (number as usize).wrapping_mul(31).wrapping_add(index) as u8
}

/// What is held once it has stayed the same for a while. The least of that while would be what is held between a region given back and the
/// one that is then made for whoever comes next.
pub fn settled() -> (usize, usize) {
    let (mut last, mut since) = (held(), clock::now());
    while clock::now().since(since).seconds() < 0.3 {
        let now = held();
        if now != last {
            (last, since) = (now, clock::now());
        }
        yield_core();
    }
    last
}

/// Waits until as much is held as there was, and says what is held where that does not come.
pub fn wait_until_held(baseline: (usize, usize)) {
    let closed = waiting::try_until("all is closed", || held() == baseline);
    closed.unwrap_or_else(|why| panic!("{why}: {:?} instead of {baseline:?}", held()));
}

/// Descriptors and regions of this process, which is both sides. Pipes are left out: neither side has any, and a sanitizer keeps two to the
/// program that looks names up for it, from the first one on, whenever that is.
pub fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("they can be listed");
    let is_pipe = |path: std::path::PathBuf| path.to_string_lossy().starts_with("pipe:");
    // One that is closed meanwhile is counted, as if it had been closed later.
    let descriptors = descriptors.flatten().filter(|one| !std::fs::read_link(one.path()).is_ok_and(is_pipe)).count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("they can be listed");
    (descriptors, maps.lines().filter(|line| line.contains("memfd:conic")).count())
}
