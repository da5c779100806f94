//! A driver of the tests' own for a packed ring, which lays out whatever comes, and one that lies.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use conic_native::{Held, Mapping};

use super::super::device_ring::DeviceRing;
use super::super::log::{Log, Pages};
use super::super::message::{LogPlace, Place};
use super::super::migration_tests::Reader;
use super::super::ring::MERGED;
use super::*;

/// Behind the beginning of a page, so that each part of the ring lies in two.
const GUEST: u64 = 0x4000_0f80;
const REGION: usize = 1 << 20;
const SLOTS: u32 = 16;
/// Where the parts of the ring lie, and where buffers and tables do.
const DRIVER: usize = 0x1000;
const DEVICE: usize = 0x1040;
const BUFFERS: usize = 0x2000;

/// What lies under a number.
#[derive(Clone, Debug)]
struct Under {
    number: u16,
    descriptors: u16,
    pieces: Vec<(usize, usize)>,
}

/// The driver's half of a ring.
struct Driver {
    memory: Mapping,
    regions: Regions,
    next: Position,
    seen: Position,
    under_way: VecDeque<Under>,
    number: u16,
    place: usize,
}

impl Driver {
    fn at(base: u16) -> Driver {
        let (memory, descriptor) = Mapping::sealed(REGION).expect("memory");
        let mut regions = Regions::default();
        let place = Place { guest: GUEST, bytes: REGION as u64, user: GUEST, offset: 0 };
        regions.add(place, Held::own(descriptor), false, 1 << 30).expect("a region");
        let (next, seen) = (Position(base), Position(base));
        let mut driver = Driver { memory, regions, next, seen, under_way: VecDeque::new(), number: 0, place: BUFFERS };
        // Whatever was there before was of the other round.
        let mut at = next;
        for _ in 0..SLOTS {
            driver.write(at, 0, 0, 0, at.bits().0 ^ (AVAILABLE | USED));
            at = at.behind(1, SLOTS);
        }
        driver.under_way.clear();
        driver
    }

    fn device(&self, agreed: Agreed) -> PackedRing {
        PackedRing::find(&self.regions, SLOTS, Driver::parts(), agreed, self.next.0).expect("a ring")
    }

    fn parts() -> Parts {
        Parts { descriptors: GUEST, used: GUEST + DEVICE as u64, available: GUEST + DRIVER as u64 }
    }

    fn write(&mut self, at: Position, place: usize, length: u32, number: u16, flags: u16) {
        let at = DESCRIPTOR * usize::from(at.place());
        self.memory.store_u64(at, GUEST + place as u64);
        let word = u64::from(length) | u64::from(number) << 32 | u64::from(flags) << 48;
        self.memory.store_release_u64(at + 8, word);
    }

    /// A place for so many bytes, which others may get again much later.
    fn room(&mut self, bytes: usize) -> usize {
        if self.place + bytes > REGION {
            self.place = BUFFERS;
        }
        self.place += bytes;
        self.place - bytes
    }

    fn free(&self) -> u16 {
        SLOTS as u16 - self.under_way.iter().map(|under| under.descriptors).sum::<u16>()
    }

    /// Makes a chain of pieces of these lengths available; its pieces. In a table of its own, or in the ring, its first descriptor last.
    fn offer(&mut self, lengths: &[usize], flags: u16, is_indirect: bool) -> Vec<(usize, usize)> {
        let pieces: Vec<(usize, usize)> = lengths.iter().map(|&length| (self.room(length), length)).collect();
        self.number = (self.number + 7) % 1000;
        let (number, begin) = (self.number, self.next);
        let mut descriptors = Vec::new();
        if is_indirect {
            let table = self.room(DESCRIPTOR * pieces.len()).next_multiple_of(8);
            for (place, &(at, length)) in pieces.iter().enumerate() {
                let at_table = table + DESCRIPTOR * place;
                self.memory.write_bytes(at_table, &(GUEST + at as u64).to_le_bytes());
                self.memory.write_bytes(at_table + 8, &(length as u64 | u64::from(flags) << 48).to_le_bytes());
            }
            self.place += 8;
            descriptors.push((table, DESCRIPTOR * pieces.len(), INDIRECT));
        } else {
            descriptors.extend(pieces.iter().map(|&(at, length)| (at, length, flags)));
        }
        let places: Vec<Position> = (0..descriptors.len()).map(|place| begin.behind(place as u16, SLOTS)).collect();
        for (place, &(at, length, flags)) in descriptors.iter().enumerate().rev() {
            let goes_on = if place + 1 < descriptors.len() { NEXT } else { 0 };
            self.write(places[place], at, length as u32, number, flags | goes_on | places[place].bits().0);
        }
        self.next = begin.behind(descriptors.len() as u16, SLOTS);
        self.under_way.push_back(Under { number, descriptors: descriptors.len() as u16, pieces: pieces.clone() });
        pieces
    }

    /// What was used next, and how many bytes were written.
    fn used(&mut self) -> Option<(Under, usize)> {
        let word = self.memory.load_acquire_u64(DESCRIPTOR * usize::from(self.seen.place()) + 8);
        let (length, number, flags) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
        if flags & (AVAILABLE | USED) != self.seen.bits().1 || self.under_way.is_empty() {
            return None;
        }
        let under = self.under_way.pop_front()?;
        assert_eq!(under.number, number, "in order");
        // What says how much was written also says that something was (2.8.4).
        assert_eq!(flags & !(AVAILABLE | USED), if length > 0 { WRITE } else { 0 });
        self.seen = self.seen.behind(under.descriptors, SLOTS);
        Some((under, length as usize))
    }

    fn bytes(&self, pieces: &[(usize, usize)]) -> Vec<u8> {
        let mut all = Vec::new();
        for &(at, length) in pieces {
            let mut bytes = vec![0; length];
            self.memory.read_bytes(at, &mut bytes);
            all.extend(bytes);
        }
        all
    }
}

fn agreed() -> Agreed {
    Agreed { event_index: false, merges: true, long_header: true }
}

fn cut(generator: &mut fastrand::Rng, mut bytes: usize, most: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    while lengths.len() + 1 < most && bytes > 1 && generator.bool() {
        lengths.push(generator.usize(1..bytes));
        bytes -= lengths.last().copied().unwrap_or_default();
    }
    lengths.push(bytes);
    lengths
}

#[test]
fn packets_are_taken_in_whatever_pieces_they_lie_over_every_wrap() {
    for seed in 0..20 {
        let mut generator = fastrand::Rng::with_seed(seed);
        let mut driver = Driver::at(generator.u16(..16) | generator.u16(..2) << 15);
        let mut device = driver.device(agreed());
        let mut sent: VecDeque<Vec<u8>> = VecDeque::new();
        for _ in 0..600 {
            let is_indirect = generator.u8(..4) == 0;
            if generator.bool() && driver.free() >= 4 {
                let packet: Vec<u8> = (0..generator.usize(60..1600)).map(|_| generator.u8(..)).collect();
                let whole = [vec![0x5a; LONG_HEADER], packet.clone()].concat();
                let lengths = cut(&mut generator, whole.len(), 4);
                let pieces = driver.offer(&lengths, 0, is_indirect);
                let mut from = &whole[..];
                for &(at, length) in &pieces {
                    driver.memory.write_bytes(at, &from[..length]);
                    from = &from[length..];
                }
                sent.push_back(packet);
            } else {
                let (mut header, mut frame) = ([0; LONG_HEADER], [0; 9600]);
                let taken = device.take(&driver.regions, &mut header, &mut frame);
                match sent.pop_front() {
                    None => assert_eq!(taken, Taken::None),
                    Some(packet) => {
                        assert_eq!(taken, Taken::Packet(packet.len()), "seed {seed}");
                        assert!(frame[..packet.len()] == packet[..] && header == [0x5a; LONG_HEADER]);
                        assert_eq!(driver.used().expect("it is used").1, 0);
                    }
                }
            }
        }
        assert_eq!(driver.used().map(|(under, _)| under.number), None);
    }
}

#[test]
fn packets_are_put_into_as_many_buffers_as_they_take_over_every_wrap() {
    for seed in 0..20 {
        let mut generator = fastrand::Rng::with_seed(seed);
        let mut driver = Driver::at(generator.u16(..16) | generator.u16(..2) << 15);
        let merges = generator.bool();
        let mut device = driver.device(Agreed { merges, ..agreed() });
        let mut came = 0;
        for _ in 0..600 {
            if generator.bool() && driver.free() >= 3 {
                let bytes = if merges { generator.usize(64..800) } else { 2048 };
                let lengths = cut(&mut generator, bytes, 3);
                driver.offer(&lengths, WRITE, generator.u8(..4) == 0);
                continue;
            }
            let packet: Vec<u8> = (0..generator.usize(60..1600)).map(|_| generator.u8(..)).collect();
            let room: usize = driver.under_way.iter().flat_map(|under| &under.pieces).map(|piece| piece.1).sum();
            let put = device.put(&driver.regions, &mut [0; LONG_HEADER], &packet);
            if room < packet.len() + LONG_HEADER {
                // With all there can be nothing gets better.
                let expected = if driver.free() == 0 { Put::TooLong } else { Put::Full };
                assert_eq!((put, driver.used().is_none()), (expected, true), "seed {seed}");
                continue;
            }
            assert_eq!(put, Put::Done, "seed {seed}");
            let (under, written) = driver.used().expect("it is used");
            let mut got = driver.bytes(&under.pieces)[..written].to_vec();
            for _ in 1..u16::from_le_bytes([got[MERGED], got[MERGED + 1]]) {
                let (under, written) = driver.used().expect("all of it is used when the first is");
                got.extend(&driver.bytes(&under.pieces)[..written]);
            }
            assert!(got[LONG_HEADER..] == packet[..], "seed {seed}");
            came += 1;
        }
        assert!(came > 30, "{came}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_kind_and_the_next_packet_comes() {
    let mut driver = Driver::at(ROUND);
    let mut device = driver.device(agreed());
    let (mut header, mut frame) = ([0; LONG_HEADER], [0; 9600]);
    let room = driver.room(100);
    let outside = REGION - 50;
    for (fault, place, length, flags) in [
        (Fault::Flags, room, 100, WRITE),
        (Fault::Flags, room, 100, 8),
        (Fault::Flags, room, 32, INDIRECT | NEXT),
        (Fault::Number, room, 33, INDIRECT),
        (Fault::Number, room, 0, INDIRECT),
        (Fault::Chain, room, 16 * 300, INDIRECT),
        (Fault::Bounds, outside, 100, 0),
        (Fault::Bounds, outside, 64, INDIRECT),
        (Fault::Bounds, room, 5, 0),
    ] {
        let at = driver.next;
        let count = if flags & NEXT == 0 { 1 } else { 2 };
        driver.write(at.behind(1, SLOTS), room, 100, 9, at.behind(1, SLOTS).bits().0);
        if count == 1 {
            // The one behind is not available.
            driver.write(at.behind(1, SLOTS), room, 100, 9, at.behind(1, SLOTS).bits().0 ^ (AVAILABLE | USED));
        }
        driver.write(at, place, length, 9, flags | at.bits().0);
        driver.next = at.behind(count, SLOTS);
        driver.under_way.push_back(Under { number: 9, descriptors: count, pieces: Vec::new() });
        let taken = device.take(&driver.regions, &mut header, &mut frame);
        assert_eq!(taken, Taken::Refused(fault), "{flags} {length}");
        assert_eq!(driver.used().expect("it is given back").1, 0);
        driver.offer(&[LONG_HEADER + 60], 0, false);
        assert_eq!(device.take(&driver.regions, &mut header, &mut frame), Taken::Packet(60));
        assert!(driver.used().is_some());
    }
    // Room that cannot be is given back, with what was before it.
    driver.offer(&[64], WRITE, false);
    driver.offer(&[64], 0, false);
    assert_eq!(device.put(&driver.regions, &mut header, &[7; 200]), Put::Refused(Fault::Flags));
    assert_eq!(driver.used().map(|used| used.1), Some(0));
    assert_eq!(driver.used().map(|used| used.1), Some(0));
    // Buffers that are too small where none are merged.
    let mut device = PackedRing { agreed: Agreed { merges: false, ..agreed() }, ..device };
    driver.offer(&[64], WRITE, false);
    assert_eq!(device.put(&driver.regions, &mut header, &[7; 200]), Put::TooLong);
    // A chain all round the ring has no end: nothing says what comes next.
    let mut at = Position(ROUND);
    for _ in 0..SLOTS {
        driver.write(at, room, 10, 1, NEXT | at.bits().0);
        at = at.behind(1, SLOTS);
    }
    let mut device = PackedRing { next: Position(ROUND), ..device };
    assert_eq!(device.take(&driver.regions, &mut header, &mut frame), Taken::Refused(Fault::Index));
    assert_eq!(device.put(&driver.regions, &mut header, &[7; 60]), Put::Refused(Fault::Index));
}

/// Has a driver write what it likes, and a device go on.
fn survives(driver: &Driver, device: &mut impl Side) {
    let mut generator = fastrand::Rng::with_seed(2034);
    let (mut packets, mut faults) = (0, 0);
    for _ in 0..60_000 {
        // Where it is looked at next, half of the time.
        let anywhere = generator.usize(..2 * SLOTS as usize);
        let next = 2 * usize::from(Position(device.position()).place()) + generator.usize(..2);
        let at = 8 * if generator.bool() { next } else { anywhere };
        let address = GUEST + generator.u64(..REGION as u64 + 4096);
        let flags = [NEXT, WRITE, INDIRECT, AVAILABLE, USED, 1 << generator.u16(..16)];
        let flags = flags.iter().filter(|_| generator.u8(..3) == 0).fold(0, |all, flag| all | flag);
        let word = generator.u64(..2000) | u64::from(generator.u16(..)) << 32 | u64::from(flags) << 48;
        driver.memory.store_u64(at, if at.is_multiple_of(16) { address } else { word });
        driver.memory.store_u64(DRIVER, generator.u64(..));
        let (mut header, mut frame) = ([0; LONG_HEADER], [0; 9600]);
        let taken = device.take(&driver.regions, &mut header, &mut frame);
        let put = device.put(&driver.regions, &mut header, &frame[..generator.usize(60..9600)]);
        device.show(&driver.regions);
        packets += u32::from(matches!(taken, Taken::Packet(_)));
        faults += u32::from(matches!(taken, Taken::Refused(_))) + u32::from(matches!(put, Put::Refused(_)));
        assert!(u32::from(Position(device.position()).place()) < SLOTS);
    }
    assert!(packets > 100 && faults > 1000, "{packets} {faults}");
}

#[test]
fn a_driver_that_scribbles_is_survived_while_its_machine_migrates_too() {
    let driver = Driver::at(ROUND);
    let agreed = Agreed { event_index: true, ..agreed() };
    survives(&driver, &mut driver.device(agreed));
    let driver = Driver::at(ROUND);
    survives(&driver, &mut Watched::new(&driver, agreed, true, Some(WISH_LOGGED)).device);
}

/// The second chain for a packet runs on through the first one's own descriptors: together they are longer than the ring.
#[test]
fn chains_for_a_packet_that_go_more_than_once_round_are_an_index_that_cannot_be() {
    for (begin, broken) in [(1, 0), (1, 8), (7, 0), (7, 8), (15 | ROUND, 0)] {
        let mut driver = Driver::at(begin);
        let mut watched = Watched::new(&driver, agreed(), true, Some(WISH_LOGGED));
        driver.offer(&[1; SLOTS as usize - 1], WRITE, false);
        let (at, place) = (driver.next, driver.room(100));
        driver.write(at, place, 100, 9, WRITE | NEXT | broken | at.bits().0);
        let put =
            watched.does(&driver, (true, true), |ring| ring.put(&driver.regions, &mut [0; LONG_HEADER], &[7; 60]));
        assert_eq!((put, watched.device.position()), (Put::Refused(Fault::Index), begin));
        assert!(driver.used().is_none(), "nothing says what would come next");
    }
}

#[test]
fn a_driver_is_interrupted_as_it_wishes_and_kicks_as_it_is_asked() {
    // The one that is wished for may be the last of a round.
    for base in [ROUND, 9 | ROUND, 9, 13, 0] {
        for event_index in [true, false] {
            let mut driver = Driver::at(base);
            let mut device = driver.device(Agreed { event_index, ..agreed() });
            let mut use_some = |driver: &mut Driver, count: usize| {
                for _ in 0..count {
                    driver.offer(&[LONG_HEADER + 60], 0, false);
                    let taken = device.take(&driver.regions, &mut [0; LONG_HEADER], &mut [0; 100]);
                    assert_eq!(taken, Taken::Packet(60));
                    driver.used().expect("it is used");
                }
                device.show(&driver.regions)
            };
            let wish = |driver: &Driver, flags: u16, at: Position| {
                driver.memory.store_u32(DRIVER, u32::from(at.0) | u32::from(flags) << 16);
            };
            wish(&driver, 0, driver.seen);
            assert!(use_some(&mut driver, 2) && !use_some(&mut driver, 0));
            wish(&driver, NEVER, driver.seen);
            assert!(!use_some(&mut driver, 2));
            // Of those that are used next, the third.
            wish(&driver, AT_DESCRIPTOR, driver.seen.behind(2, SLOTS));
            let told: Vec<bool> = (0..5).map(|_| use_some(&mut driver, 1)).collect();
            let wanted = [false, false, true, false, false].map(|is_it| is_it || !event_index);
            assert_eq!(told, wanted, "{base}");
            wish(&driver, AT_DESCRIPTOR, driver.seen.behind(2, SLOTS));
            assert!(use_some(&mut driver, 5), "{base}");
            device.interrupt(&driver.regions, false);
            assert_eq!(driver.memory.load_u32(DEVICE) >> 16, u32::from(NEVER));
            device.interrupt(&driver.regions, true);
            assert_eq!(driver.memory.load_u32(DEVICE) >> 16, 0);
        }
    }
}

#[test]
fn a_ring_lies_in_the_memory_where_words_may_lie_and_begins_within() {
    let driver = Driver::at(ROUND);
    let find = |change: fn(&mut Parts), base| {
        let mut parts = Driver::parts();
        change(&mut parts);
        PackedRing::find(&driver.regions, SLOTS, parts, agreed(), base).is_some()
    };
    assert!(find(|_| {}, ROUND) && find(|_| {}, 15) && !find(|_| {}, 16) && !find(|_| {}, 16 | ROUND));
    assert!(
        !find(|parts| parts.descriptors += 8, 0) && !find(|parts| parts.descriptors = GUEST + REGION as u64 - 240, 0)
    );
    assert!(!find(|parts| parts.used += 2, 0) && !find(|parts| parts.used = GUEST + REGION as u64, 0));
    assert!(!find(|parts| parts.available += 2, 0) && !find(|parts| parts.available = GUEST - 4, 0));
}

/// Where the device's wish is logged: over the end of a page that no guest has.
const WISH_LOGGED: u64 = 0x1ffe;

/// A ring that is logged, with what is in its log and in its memory.
struct Watched {
    device: DeviceRing,
    reader: Reader,
    memory: Vec<u8>,
    /// Pages that were marked, and those of which nothing had changed.
    marked: usize,
    unchanged: usize,
}

impl Watched {
    fn new(driver: &Driver, agreed: Agreed, is_of_packets: bool, used: Option<u64>) -> Watched {
        let reader = Reader::new();
        let place = LogPlace { bytes: 0x9000, offset: 16 };
        let descriptor = Held::own(reader.descriptor.try_clone().expect("a descriptor"));
        let log = Arc::new(Log::map(place, descriptor, false, 1 << 30).expect("a log"));
        let pages = Pages { log, is_of_packets, used, descriptors: Some(GUEST) };
        let device = DeviceRing::Packed(driver.device(agreed)).logged(Some(pages));
        Watched { device, reader, memory: Vec::new(), marked: 0, unchanged: 0 }
    }

    fn image(driver: &Driver) -> Vec<u8> {
        let mut bytes = vec![0; REGION];
        driver.memory.read_bytes(0, &mut bytes);
        bytes
    }

    /// Has the device do something: each page that differs behind it is marked, as far as it is logged.
    fn does<T>(&mut self, driver: &Driver, logged: (bool, bool), step: impl FnOnce(&mut DeviceRing) -> T) -> T {
        self.memory = Watched::image(driver);
        let came = step(&mut self.device);
        let (after, marked) = (Watched::image(driver), self.reader.take(16));
        let mut wanted = BTreeSet::new();
        // Whole pieces first: most are as they were.
        let changed = (0..REGION).step_by(1024).filter(|&at| self.memory[at..at + 1024] != after[at..at + 1024]);
        for at in changed.flat_map(|at| at..at + 1024).filter(|&at| self.memory[at] != after[at]) {
            let (is_wish, is_descriptor) = ((DEVICE..DEVICE + WISH).contains(&at), at < DESCRIPTOR * SLOTS as usize);
            match is_wish {
                true if logged.1 => wanted.insert((WISH_LOGGED + (at - DEVICE) as u64) / 4096),
                false if is_descriptor || logged.0 => wanted.insert((GUEST + at as u64) / 4096),
                _ => false,
            };
        }
        assert!(wanted.is_subset(&marked), "{wanted:x?} have changed, {marked:x?} are marked");
        let own = |page: u64| page == GUEST / 4096 || page == GUEST / 4096 + 1;
        let is_logged = |&page: &u64| if page < 8 { logged.1 } else { own(page) || logged.0 };
        assert!(marked.iter().all(is_logged), "{marked:x?}: {logged:?}");
        (self.marked, self.unchanged) = (self.marked + marked.len(), self.unchanged + marked.len() - wanted.len());
        came
    }
}

#[test]
fn whatever_is_changed_is_marked_by_its_page_over_every_wrap() {
    for seed in 0..6 {
        let mut generator = fastrand::Rng::with_seed(seed);
        let mut driver = Driver::at(generator.u16(..16) | generator.u16(..2) << 15);
        let agreed = Agreed { event_index: generator.bool(), ..agreed() };
        let logged = [(true, true), (true, false), (false, true)][seed as usize % 3];
        let (mut watched, mut wished) =
            (Watched::new(&driver, agreed, logged.0, logged.1.then_some(WISH_LOGGED)), true);
        for _ in 0..300 {
            let (mut header, mut frame) = ([0x5a; LONG_HEADER], [0; 9600]);
            while driver.used().is_some() {}
            match generator.usize(..5) {
                0 if driver.free() >= 4 => {
                    let lengths = cut(&mut generator, 1000, 4);
                    let is_indirect = generator.bool();
                    driver.offer(&lengths, 0, is_indirect);
                    let taken =
                        watched.does(&driver, logged, |ring| ring.take(&driver.regions, &mut header, &mut frame));
                    assert_eq!(taken, Taken::Packet(1000 - LONG_HEADER));
                }
                // What cannot be is given back too.
                1 if driver.free() >= 4 => {
                    driver.offer(&[60, 60], WRITE, false);
                    let taken =
                        watched.does(&driver, logged, |ring| ring.take(&driver.regions, &mut header, &mut frame));
                    assert_eq!(taken, Taken::Refused(Fault::Flags));
                    driver.offer(&[60], WRITE, false);
                    driver.offer(&[60, 60], 0, false);
                    let put = watched.does(&driver, logged, |ring| ring.put(&driver.regions, &mut header, &[7; 500]));
                    assert_eq!(put, Put::Refused(Fault::Flags));
                }
                2 => {
                    wished = !wished;
                    watched.does(&driver, logged, |ring| ring.interrupt(&driver.regions, wished));
                }
                _ => {
                    let frame: Vec<u8> = (0..generator.usize(60..9600)).map(|_| generator.u8(..)).collect();
                    for _ in 0..generator.usize(1..4) {
                        if driver.free() >= 4 {
                            let bytes = generator.usize(300..9000);
                            let lengths = cut(&mut generator, bytes, 3);
                            driver.offer(&lengths, WRITE, generator.bool());
                        }
                    }
                    watched.does(&driver, logged, |ring| ring.put(&driver.regions, &mut header, &frame));
                    // What is left is of no use to what comes next.
                    while watched.does(&driver, logged, |ring| ring.put(&driver.regions, &mut header, &[7; 60]))
                        == Put::Done
                    {}
                    watched.does(&driver, logged, |ring| ring.show(&driver.regions));
                }
            }
        }
        assert!(watched.marked > 300, "{} pages, {logged:?}", watched.marked);
        assert!(watched.unchanged < watched.marked / 5, "{} of {}", watched.unchanged, watched.marked);
    }
}
