//! Where everything of one client lies in its region.

use std::fmt;

use conic_fabric::{Address, Home, LINE_BYTES, Layout, SynchronisingWords};

use crate::buffer_metadata;

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

/// What the host keeps of each buffer for itself, at the front, as a driver does whose packets have headers of the host's own
/// before their bytes: received packets begin behind it. A class whose buffers are no larger than it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// Bytes, a multiple of a line.
    pub bytes: u64,
    /// In how many places, each a line behind the one before, it begins in successive buffers: zero or a power of two. Buffers that
    /// all begin alike would have their first lines in one set of a cache.
    pub places: u64,
}

impl Headroom {
    /// Received packets begin where their buffers do.
    pub const NONE: Headroom = Headroom { bytes: 0, places: 0 };

    /// The most bytes before a packet.
    const fn most(&self) -> u64 {
        self.bytes + self.places.saturating_sub(1) * LINE_BYTES
    }
}

/// Base-two logarithms of the classes' buffer sizes: 128 bytes as in the paper, its 4 KiB, and the next power of two that
/// holds a 9600-byte frame.
const SHIFTS: [u32; CLASSES] = [7, 12, 14];

/// The most bytes of a region: what a descriptor's address reaches.
const MOST_BYTES: u64 = 1 << 40;

/// The most queue pairs of an instance: far more than anybody asks for, and few enough to be laid out.
const MOST_QUEUES: u32 = 1 << 16;

/// The most bytes of a headroom: what is left of a large buffer holds an Ethernet frame.
const MOST_HEADROOM: u64 = 2048;

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
    /// From the NIC to the host; where the pool is not shared, blank receive buffers from the host to the NIC as well.
    pub receive: RingMap,
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
    /// What the region was made for.
    pub headroom: Headroom,
    /// The host keeps metadata in front of each buffer: [`crate::buffer_metadata`].
    pub metadata: bool,
}

impl Map {
    /// Lays a region out: each ring in its writer's memory, each register and credit line in its writer's, buffers and
    /// the pool in the host's (sections 3.2 and 3.3).
    ///
    /// # Errors
    ///
    /// If a count is not a power of two, nothing could be sent, or a descriptor could not reach all of it.
    pub fn new(geometry: Geometry, features: Features) -> Result<Map, GeometryError> {
        Map::lay_out(geometry, features, Headroom::NONE, Metadata::None)
    }

    /// The same with something of the host's before each received packet.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`]; if the headroom is no multiple of a line, has no power of two of places, or is half of a large buffer.
    pub fn with_headroom(geometry: Geometry, features: Features, headroom: Headroom) -> Result<Map, GeometryError> {
        Map::lay_out(geometry, features, headroom, Metadata::None)
    }

    /// The same with metadata of the host's in front of each buffer, which are as large as without: what fits into a buffer, or
    /// travels in the ring, does so as well. They lie so much further apart, an odd number of lines as buffers of DPDK's pools do,
    /// so that they share no few sets of the caches.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`].
    pub fn with_metadata(geometry: Geometry, features: Features) -> Result<Map, GeometryError> {
        Map::lay_out(geometry, features, Headroom::NONE, Metadata::Between)
    }

    /// The same with metadata at the end of the buffer before, which holds so much less: buffers lie as far apart as without, a power of
    /// two of bytes, and share few sets of the caches. For a model whose NIC names no more than its packets: no check keeps it from
    /// the metadata.
    ///
    /// # Errors
    ///
    /// As for [`Map::new`]; and if there are small buffers, which hold no metadata.
    pub fn with_metadata_within(geometry: Geometry, features: Features) -> Result<Map, GeometryError> {
        if geometry.buffers[0] > 0 {
            return Err(GeometryError("small buffers have no room for metadata within: take larger ones".to_owned()));
        }
        Map::lay_out(geometry, features, Headroom::NONE, Metadata::Within)
    }

    /// Where the host's own objects lie, and how many bytes there are for them.
    pub fn objects(&self) -> (Address, u64) {
        (self.pool.objects, self.pool.object_bytes)
    }

    fn lay_out(
        geometry: Geometry,
        features: Features,
        headroom: Headroom,
        metadata: Metadata,
    ) -> Result<Map, GeometryError> {
        check(&geometry, &features)?;
        check_headroom(&headroom)?;
        let mut layout = Layout::new();
        let slots = slots_of(&geometry, &features);
        let hosts: Vec<_> = (0..geometry.queues)
            .map(|index| {
                let transmit = ring(&mut layout, &format!("queue {index} transmit"), Home::Host, slots, &features);
                let receive_credit = line(&mut layout, &format!("queue {index} receive credit"), Home::Host);
                (transmit, receive_credit)
            })
            .collect();
        let pool = pool(&mut layout, &geometry, headroom, metadata);
        let queues = hosts
            .into_iter()
            .enumerate()
            .map(|(index, (transmit, receive_credit))| {
                let receive = receive_ring(&mut layout, &format!("queue {index} receive"), slots, &features);
                let transmit_credit = line(&mut layout, &format!("queue {index} transmit credit"), Home::Nic);
                QueueMap {
                    transmit: RingMap { credit: transmit_credit, ..transmit },
                    receive: RingMap { credit: receive_credit, ..receive },
                }
            })
            .collect();
        if layout.bytes() > MOST_BYTES {
            let bytes = layout.bytes();
            return Err(GeometryError(format!(
                "a descriptor names up to 2^40 bytes of a region, and these are {bytes}"
            )));
        }
        let metadata = metadata != Metadata::None;
        Ok(Map { layout, queues, pool, geometry, features, headroom, metadata })
    }

    /// Whether there are buffers that packets of so many bytes are received into.
    pub(super) fn holds(&self, bytes: u64) -> bool {
        let first = usize::from(!self.features.small_buffers);
        self.pool.classes[first..].iter().any(|class| class.count > 0 && class.room >= bytes)
    }

    /// How many buffers there are that packets of so many bytes are received into, a queue pair's share.
    pub(super) fn share_for(&self, bytes: u64) -> u64 {
        let first = usize::from(!self.features.small_buffers);
        let classes = self.pool.classes[first..].iter().filter(|class| class.room >= bytes);
        classes.map(|class| class.count).sum::<u64>() / self.queues.len() as u64
    }
}

fn check(geometry: &Geometry, features: &Features) -> Result<(), GeometryError> {
    let refuse = |why: String| Err(GeometryError(why));
    if !(1..=MOST_QUEUES).contains(&geometry.queues) {
        return refuse(format!(
            "an instance has at least one queue pair and at most {MOST_QUEUES}, not {}",
            geometry.queues
        ));
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
    if !features.small_buffers && geometry.buffers[1..].iter().all(|&count| count == 0) {
        return refuse("an instance whose only buffers are small can send nothing with no-small-buffers".to_owned());
    }
    if geometry.object_bytes > MOST_BYTES {
        return refuse(format!("a descriptor names up to 2^40 bytes of objects, not {}", geometry.object_bytes));
    }
    Ok(())
}

fn check_headroom(headroom: &Headroom) -> Result<(), GeometryError> {
    let Headroom { bytes, places } = *headroom;
    let sound = bytes.is_multiple_of(LINE_BYTES) && (places == 0 || places.is_power_of_two());
    // Each bounded by itself first, so that their sum is.
    if sound && bytes <= MOST_HEADROOM && places <= MOST_HEADROOM / LINE_BYTES && headroom.most() <= MOST_HEADROOM {
        return Ok(());
    }
    Err(GeometryError(format!(
        "a headroom is a multiple of {LINE_BYTES} bytes in zero or a power of two of places, together at most {MOST_HEADROOM} bytes, \
         not {bytes} bytes in {places} places"
    )))
}

fn slots_of(geometry: &Geometry, features: &Features) -> u64 {
    match features.packing {
        Packing::Grouped => geometry.descriptors / 4,
        Packing::Packed | Packing::Padded => geometry.descriptors,
    }
}

fn ring(layout: &mut Layout, name: &str, home: Home, slots: u64, features: &Features) -> RingMap {
    let words = match features.packing {
        Packing::Grouped | Packing::Padded => SynchronisingWords::FIRST,
        Packing::Packed => SynchronisingWords::EVERY_DESCRIPTOR,
    };
    ring_with(layout, name, home, slots, features, words)
}

/// A ring into which the host posts buffers has a signal in every descriptor; and two slots at least, because the NIC waits for as many
/// descriptors as a packet may have, and the host for a whole slot.
fn receive_ring(layout: &mut Layout, name: &str, slots: u64, features: &Features) -> RingMap {
    match features.packing {
        Packing::Grouped if !features.shared_pool => {
            ring_with(layout, name, Home::Nic, slots.max(2), features, SynchronisingWords::EVERY_DESCRIPTOR)
        }
        _ => ring(layout, name, Home::Nic, slots, features),
    }
}

fn ring_with(
    layout: &mut Layout,
    name: &str,
    home: Home,
    slots: u64,
    features: &Features,
    words: SynchronisingWords,
) -> RingMap {
    let slot_bytes = if features.packing == Packing::Packed { 16 } else { LINE_BYTES };
    let words = if features.signal == Signal::Register { SynchronisingWords::NONE } else { words };
    let ring = layout.add(&format!("{name} ring"), slots * slot_bytes, LINE_BYTES, home, words);
    let doorbell = line(layout, &format!("{name} tail"), home);
    RingMap { ring, slots, credit: Address(0), doorbell }
}

/// A line for one synchronising word, alone in a pair of lines so that an adjacent-line prefetcher drags nothing along.
fn line(layout: &mut Layout, name: &str, home: Home) -> Address {
    layout.add(name, LINE_BYTES, 2 * LINE_BYTES, home, SynchronisingWords::FIRST)
}

/// Where the host's metadata of a buffer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metadata {
    /// There are none.
    None,
    /// Between the buffers.
    Between,
    /// At the end of the buffer before; in front of the first is room for one.
    Within,
}

fn pool(layout: &mut Layout, geometry: &Geometry, headroom: Headroom, metadata: Metadata) -> PoolMap {
    let between = if metadata == Metadata::Between { buffer_metadata::BYTES } else { 0 };
    let within = if metadata == Metadata::Within { buffer_metadata::BYTES } else { 0 };
    let names = ["small buffers", "large buffers", "jumbo buffers"];
    let mut classes = [ClassMap::EMPTY; CLASSES];
    for (class, ((&count, shift), name)) in classes.iter_mut().zip(geometry.buffers.iter().zip(SHIFTS).zip(names)) {
        let words = count.div_ceil(64);
        let free = format!("free {name}");
        class.bits = layout.add(&free, words * LINE_BYTES, 2 * LINE_BYTES, Home::Host, SynchronisingWords::FIRST);
        (class.shift, class.metadata, class.count) = (shift, between as u32, count);
        let bytes = count * class.distance();
        // A whole buffer in front, so that all begin at multiples of their size.
        let front = if within > 0 && count > 0 { 1 << shift } else { 0 };
        let first = layout.add(name, front + bytes, 1 << shift, Home::Host, SynchronisingWords::NONE);
        (class.start, class.bytes) = (first + front + between, bytes.saturating_sub(between));
        class.room = (1 << shift) - within.min(1 << shift);
        if headroom.most() < class.room {
            class.room -= headroom.most();
            (class.headroom, class.places) = (headroom.bytes, headroom.places.saturating_sub(1));
        }
        if count == 0 {
            // Nobody looks for a buffer there: each look was a call, and there was one for each packet.
            class.room = 0;
        }
    }
    let objects = layout.add("objects", geometry.object_bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    PoolMap { classes, objects, object_bytes: geometry.object_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_without_buffers_has_room_for_nothing() {
        let geometry = Geometry { queues: 1, descriptors: 256, buffers: [0, 512, 0], object_bytes: 0 };
        let map = Map::new(geometry, Features::best()).expect("a geometry that can be");
        assert_eq!(map.pool.classes.map(|class| class.room), [0, 4096, 0]);
    }

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
            (Geometry { queues: u32::MAX, ..good }, "at most 65536"),
            (Geometry { object_bytes: u64::MAX, ..good }, "2^40 bytes of objects"),
            (Geometry { object_bytes: 1 << 40, ..good }, "2^40 bytes of a region"),
        ] {
            let error = Map::new(bad, Features::best()).expect_err("a geometry that cannot be").to_string();
            assert!(error.contains(reason), "{error}");
        }
        let unused = Geometry { buffers: [64, 0, 0], ..good };
        let features = Features { small_buffers: false, ..Features::best() };
        let error = Map::new(unused, features).expect_err("no buffer is ever used").to_string();
        assert!(error.contains("no-small-buffers"), "{error}");
    }

    #[test]
    fn packets_begin_behind_the_headroom_in_places_that_differ() {
        let headroom = Headroom { bytes: 320, places: 16 };
        let map = Map::with_headroom(Geometry::default(), Features::best(), headroom).expect("a headroom that can be");
        let [small, large, jumbo] = map.pool.classes;
        assert_eq!((small.room, small.packet_start(small.start + 128)), (128, small.start + 128));
        assert_eq!((large.room, jumbo.room), (4096 - 320 - 15 * 64, 16384 - 320 - 15 * 64));
        let starts: std::collections::BTreeSet<u64> =
            (0..large.count).map(|index| large.packet_start(large.start + 4096 * index + 99).0 % 4096).collect();
        assert_eq!(starts, (0..16).map(|place| 320 + 64 * place).collect());
        for bad in [(320, 12), (100, 0), (4096, 0), (0, 1 << 62), (1 << 63, 1 << 62), (2048, 2)] {
            let headroom = Headroom { bytes: bad.0, places: bad.1 };
            let error = Map::with_headroom(Geometry::default(), Features::best(), headroom).expect_err("cannot be");
            assert!(error.to_string().contains("headroom"), "{error}");
        }
    }

    #[test]
    fn metadata_lie_in_front_of_buffers_that_are_as_large_as_without() {
        for features in [Features::paper(), Features { scattered: false, ..Features::paper() }] {
            let [plain, map] =
                [Map::new, Map::with_metadata].map(|new| new(Geometry::default(), features).expect("both"));
            for (class, bare) in map.pool.classes.into_iter().zip(plain.pool.classes) {
                assert_eq!((class.room, class.size(), bare.distance()), (bare.room, bare.size(), bare.size()));
                // An odd number of lines: buffers that lie one after the other begin in different sets of every cache.
                assert_eq!((class.distance(), class.distance() / 64 % 2), (buffer_metadata::BYTES + bare.size(), 1));
                let starts =
                    |class: ClassMap| (0..class.count).map(move |index| class.start + index * class.distance());
                for (at, bare_at) in starts(class).zip(starts(bare)) {
                    let (last, front) = (at + (class.size() - 1), Address(at.0 - 64));
                    assert_eq!([at, last].map(|at| class.packet_start(at)), [at, at]);
                    assert_eq!(map.pool.buffer_of(last), Some(at));
                    assert_eq!(class.index_of(at), bare.index_of(bare_at));
                    // The NIC may name every byte of the buffer, and none of the metadata.
                    let size = class.size() as u16;
                    assert_eq!(map.pool.check(at, size, false), Ok(()));
                    assert!(map.pool.check(at, size + 1, false).is_err() && map.pool.check(front, 1, false).is_err());
                    assert!(map.layout.segment_of(front).is_some_and(|it| it.name.ends_with(" buffers")));
                    assert_eq!(map.layout.segment_of(front), map.layout.segment_of(last));
                }
            }
            // What travels in the ring fits into the smallest buffers, with metadata as without.
            let small = Geometry { buffers: [64, 0, 0], ..Geometry::default() };
            let share =
                Map::with_metadata(small, features).expect("it can be").share_for(crate::ccnic::INLINE_BYTES as u64);
            assert_eq!(share, 64);
        }
    }

    #[test]
    fn metadata_within_leave_buffers_where_they_are_and_take_of_their_room() {
        let features = Features { small_buffers: false, ..Features::paper() };
        let geometry = Geometry { buffers: [0, 64, 16], ..Geometry::default() };
        let map = Map::with_metadata_within(geometry, features).expect("a geometry that can be");
        for class in &map.pool.classes[1..] {
            assert_eq!((class.distance(), class.start.0 % class.size()), (class.size(), 0));
            assert_eq!(class.room, class.size() - buffer_metadata::BYTES);
            let segment = |at: Address| map.layout.segment_of(at).map(|segment| segment.name.clone());
            // The first buffer's metadata lie in the same segment as all others.
            assert_eq!(segment(Address(class.start.0 - buffer_metadata::BYTES)), segment(class.start));
        }
        let error = Map::with_metadata_within(Geometry::default(), features).expect_err("small buffers").to_string();
        assert!(error.contains("no room for metadata"), "{error}");
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
