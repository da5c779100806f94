//! Where everything of one client lies in its region.

use std::fmt;

use conic_fabric::{Address, Home, LINE_BYTES, Layout, SynchronisingWords};

use super::policy::{Features, Packing, Signal};
use super::pool::{CLASSES, ClassMap, PoolMap};
use super::queue::RingMap;

/// How large an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Queue pairs; each has a transmit and a receive ring, all share the pool.
    pub queues: u32,
    /// Descriptors of each ring, a power of two of at least 4.
    pub descriptors: u64,
    /// Small (128 bytes), large (4 KiB) and jumbo (16 KiB, for frames to 9600 bytes) buffers; zero or powers of two.
    pub buffers: [u64; CLASSES],
    /// Bytes of memory for the host's own objects, which it may send without copying.
    pub object_bytes: u64,
}

/// Base-two logarithms of the classes' buffer sizes: 128 bytes as in the paper, its 4 KiB, and the next power of two that
/// holds a 9600-byte frame.
const SHIFTS: [u32; CLASSES] = [7, 12, 14];

impl Default for Geometry {
    fn default() -> Geometry {
        Geometry { queues: 1, descriptors: 256, buffers: [2048, 512, 64], object_bytes: 0 }
    }
}

/// Why a geometry cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeometryError(String);

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GeometryError {}

/// The rings of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueMap {
    /// From the host to the NIC.
    pub transmit: RingMap,
    /// From the NIC to the host.
    pub receive: RingMap,
    /// Blank receive buffers from the host to the NIC, where the pool is not shared.
    pub blanks: RingMap,
}

/// Where everything lies. The contract between the two sides: version and geometry are exchanged when they meet, and
/// both derive this from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The region's layout.
    pub layout: Layout,
    /// Each queue pair's rings.
    pub queues: Vec<QueueMap>,
    /// The buffers.
    pub pool: PoolMap,
    /// What the region was made for.
    pub geometry: Geometry,
    /// What the region was made for.
    pub features: Features,
}

impl Map {
    /// Lays a region out: each ring in its writer's memory, each register and credit line in its writer's, buffers and
    /// the pool in the host's (sections 3.2 and 3.3).
    ///
    /// # Errors
    ///
    /// If a count is not a power of two, or nothing would be left to send.
    pub fn new(geometry: Geometry, features: Features) -> Result<Map, GeometryError> {
        check(&geometry)?;
        let mut layout = Layout::new();
        let slots = slots_of(&geometry, &features);
        let hosts: Vec<_> = (0..geometry.queues)
            .map(|index| {
                let transmit = ring(&mut layout, &format!("queue {index} transmit"), Home::Host, slots, &features);
                let blanks = ring(&mut layout, &format!("queue {index} blanks"), Home::Host, slots, &features);
                let receive_credit = line(&mut layout, &format!("queue {index} receive credit"), Home::Host);
                (transmit, blanks, receive_credit)
            })
            .collect();
        let pool = pool(&mut layout, &geometry);
        let queues = hosts
            .into_iter()
            .enumerate()
            .map(|(index, (transmit, blanks, receive_credit))| {
                let receive = ring(&mut layout, &format!("queue {index} receive"), Home::Nic, slots, &features);
                let transmit_credit = line(&mut layout, &format!("queue {index} transmit credit"), Home::Nic);
                let blanks_credit = line(&mut layout, &format!("queue {index} blanks credit"), Home::Nic);
                QueueMap {
                    transmit: RingMap { credit: transmit_credit, ..transmit },
                    receive: RingMap { credit: receive_credit, ..receive },
                    blanks: RingMap { credit: blanks_credit, ..blanks },
                }
            })
            .collect();
        Ok(Map { layout, queues, pool, geometry, features })
    }
}

fn check(geometry: &Geometry) -> Result<(), GeometryError> {
    let refuse = |why: String| Err(GeometryError(why));
    if geometry.queues == 0 {
        return refuse("an instance has at least one queue pair".to_owned());
    }
    if !geometry.descriptors.is_power_of_two() || !(4..=1 << 20).contains(&geometry.descriptors) {
        return refuse(format!("a ring has a power of two of descriptors, 4 to 2^20, not {}", geometry.descriptors));
    }
    for (count, shift) in geometry.buffers.into_iter().zip(SHIFTS) {
        if count != 0 && !count.is_power_of_two() || count > 1 << 24 {
            let size = 1u64 << shift;
            return refuse(format!("the {size}-byte buffers are zero or a power of two up to 2^24, not {count}"));
        }
    }
    if geometry.buffers.iter().all(|&count| count == 0) {
        return refuse("an instance without buffers can send nothing".to_owned());
    }
    Ok(())
}

fn slots_of(geometry: &Geometry, features: &Features) -> u64 {
    match features.packing {
        Packing::Grouped => geometry.descriptors / 4,
        Packing::Packed | Packing::Padded => geometry.descriptors,
    }
}

fn ring(layout: &mut Layout, name: &str, home: Home, slots: u64, features: &Features) -> RingMap {
    let (slot_bytes, words) = match features.packing {
        Packing::Grouped | Packing::Padded => (LINE_BYTES, SynchronisingWords::FIRST),
        Packing::Packed => (16, SynchronisingWords::EVERY_DESCRIPTOR),
    };
    let words = if features.signal == Signal::Register { SynchronisingWords::NONE } else { words };
    let ring = layout.add(&format!("{name} ring"), slots * slot_bytes, LINE_BYTES, home, words);
    let doorbell = line(layout, &format!("{name} tail"), home);
    RingMap { ring, slots, credit: Address(0), doorbell }
}

/// A line for one synchronising word, alone in a pair of lines so that an adjacent-line prefetcher drags nothing along.
fn line(layout: &mut Layout, name: &str, home: Home) -> Address {
    layout.add(name, LINE_BYTES, 2 * LINE_BYTES, home, SynchronisingWords::FIRST)
}

fn pool(layout: &mut Layout, geometry: &Geometry) -> PoolMap {
    let names = ["small buffers", "large buffers", "jumbo buffers"];
    let mut classes = [ClassMap { start: Address(0), shift: 0, count: 0, bytes: 0, bits: Address(0) }; CLASSES];
    for (class, ((&count, shift), name)) in classes.iter_mut().zip(geometry.buffers.iter().zip(SHIFTS).zip(names)) {
        let words = count.div_ceil(64);
        let free = format!("free {name}");
        class.bits = layout.add(&free, words * LINE_BYTES, 2 * LINE_BYTES, Home::Host, SynchronisingWords::FIRST);
        class.start = layout.add(name, count << shift, 1 << shift, Home::Host, SynchronisingWords::NONE);
        (class.shift, class.count, class.bytes) = (shift, count, count << shift);
    }
    let objects = layout.add("objects", geometry.object_bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    PoolMap { classes, objects, object_bytes: geometry.object_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_at_rest_takes_less_than_a_mebibyte() {
        let geometry = Geometry { queues: 1, descriptors: 256, buffers: [512, 0, 0], object_bytes: 0 };
        for features in [Features::paper(), Features::best()] {
            let bytes = Map::new(geometry, features).expect("a geometry that can be").layout.bytes();
            assert!(bytes <= 96 << 10, "256 descriptors and 512 small buffers take {bytes} bytes");
        }
    }

    #[test]
    fn what_cannot_be_laid_out_is_refused_with_the_reason() {
        let good = Geometry::default();
        for (bad, reason) in [
            (Geometry { queues: 0, ..good }, "at least one queue"),
            (Geometry { descriptors: 100, ..good }, "power of two"),
            (Geometry { descriptors: 2, ..good }, "4 to 2^20"),
            (Geometry { buffers: [3, 0, 0], ..good }, "128-byte buffers"),
            (Geometry { buffers: [0, 0, 0], ..good }, "without buffers"),
        ] {
            let error = Map::new(bad, Features::best()).expect_err("a geometry that cannot be").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn each_ring_lives_with_its_writer() {
        let map = Map::new(Geometry { queues: 2, ..Geometry::default() }, Features::best()).expect("two queues");
        for queue in &map.queues {
            let home = |at| map.layout.segment_of(at).expect("a segment of the layout").home;
            assert_eq!((home(queue.transmit.ring), home(queue.receive.ring)), (Home::Host, Home::Nic));
            assert_eq!((home(queue.transmit.credit), home(queue.receive.credit)), (Home::Nic, Home::Host));
        }
    }
}
