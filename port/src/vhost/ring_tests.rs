//! A driver of the tests' own, which lays out chains as it likes, and one that lays out whatever comes.

use std::os::fd::OwnedFd;

use conic_native::Held;

use super::super::message::Place;
use super::super::wish::NOT_NOW;
use super::*;

/// Where the guest, and its frontend, have the memory: two regions, one right behind the other for the guest.
const GUEST: u64 = 0x4000_0000;
const USER: u64 = 0x7f00_0000_0000;
pub(in super::super) const REGION: usize = 1 << 18;
/// Slots of every ring here.
pub(in super::super) const LENGTH: u32 = 16;

/// The places of a ring's parts in the first region.
const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 0x1000;
const USED_RING: usize = 0x2000;
/// Where buffers begin.
const BUFFERS: u64 = 0x3000;

/// The driver's half of a ring, and the memory.
pub(in super::super) struct Driver {
    /// Where it all begins, behind what others have.
    begin: u64,
    memory: [Mapping; 2],
    pub(in super::super) descriptors: [OwnedFd; 2],
    pub(in super::super) regions: Regions,
    /// The next slot that it makes available, and the next whose use it has not seen.
    next: u16,
    seen: u16,
    /// The next descriptor, modulo the ring, and the next byte for a buffer.
    descriptor: u16,
    buffer: u64,
}

impl Driver {
    fn new() -> Driver {
        Driver::behind(0)
    }

    /// One whose memory begins so many bytes behind others'.
    pub(in super::super) fn behind(begin: u64) -> Driver {
        let mut regions = Regions::default();
        let parts = [0, 1].map(|number| {
            let (memory, descriptor) = Mapping::sealed(REGION).expect("memory");
            let passed = descriptor.try_clone().expect("a descriptor");
            regions.add(Driver::place_of(begin, number), Held::own(passed), false, 1 << 30).expect("two regions");
            (memory, descriptor)
        });
        let [(first, one), (second, other)] = parts;
        let (memory, descriptors) = ([first, second], [one, other]);
        Driver { begin, memory, descriptors, regions, next: 0, seen: 0, descriptor: 0, buffer: BUFFERS }
    }

    /// Where a region lies: the frontend has a gap between the two, and the guest has none.
    pub(in super::super) fn place_of(begin: u64, number: usize) -> Place {
        let at = (number * REGION) as u64;
        Place { guest: GUEST + begin + at, bytes: REGION as u64, user: USER + 2 * (begin + at), offset: 0 }
    }

    /// Where its ring's parts lie, by the frontend's addresses.
    pub(in super::super) fn parts(&self) -> Parts {
        let at = |offset: usize| USER + 2 * self.begin + offset as u64;
        Parts { descriptors: at(DESCRIPTORS), available: at(AVAILABLE), used: at(USED_RING) }
    }

    /// Sends a packet behind a header.
    pub(in super::super) fn send(&mut self, header: &[u8], packet: &[u8]) {
        let bytes = [header, packet].concat();
        let address = self.place(bytes.len());
        self.regions.write(address, &bytes).expect("memory");
        self.offer(&[(address, bytes.len())], 0);
    }

    /// Posts a buffer of so many bytes.
    pub(in super::super) fn post(&mut self, bytes: usize) {
        let address = self.place(bytes);
        self.offer(&[(address, bytes)], WRITE);
    }

    /// What lies in the next buffer that was used.
    pub(in super::super) fn got(&mut self) -> Option<Vec<u8>> {
        let (head, written) = self.used()?;
        let address = self.memory[0].load_u64(DESCRIPTORS + 16 * head as usize);
        let mut bytes = vec![0; written as usize];
        self.regions.read(address, &mut bytes).expect("memory");
        Some(bytes)
    }

    /// How many chains the device has.
    pub(in super::super) fn under_way(&self) -> u16 {
        self.next.wrapping_sub(self.seen)
    }

    /// Up to where the device has used.
    pub(in super::super) fn used_index(&self) -> u16 {
        self.memory[0].load_acquire_u16(USED_RING + INDEX)
    }

    /// All of the ring, as the device may change it.
    pub(in super::super) fn image(&self) -> Vec<u64> {
        (USED_RING..BUFFERS as usize).step_by(8).map(|at| self.memory[0].load_u64(at)).collect()
    }

    /// All of the memory, as the guest has it from [`Driver::place_of`] of the first region on.
    pub(in super::super) fn all(&self) -> Vec<u8> {
        let mut all = vec![0; 2 * REGION];
        all.chunks_mut(REGION).zip(&self.memory).for_each(|(into, memory)| memory.read_bytes(0, into));
        all
    }

    /// Writes something somewhere into descriptors and slots.
    pub(in super::super) fn scribble(&self, generator: &mut fastrand::Rng) {
        let at = [DESCRIPTORS, AVAILABLE + 8, USED_RING][generator.usize(..3)] + 8 * generator.usize(..32);
        self.memory[0].store_u64(at, generator.u64(..));
    }

    /// Says that more is available than a ring has slots.
    pub(in super::super) fn run_ahead(&mut self) {
        self.memory[0].store_release_u16(AVAILABLE + INDEX, self.next.wrapping_add(100 * LENGTH as u16));
    }

    /// The same, at an index of both rings.
    fn at(index: u16) -> Driver {
        let driver = Driver::new();
        driver.memory[0].store_u16(AVAILABLE + INDEX, index);
        driver.memory[0].store_u16(USED_RING + INDEX, index);
        Driver { next: index, seen: index, ..driver }
    }

    fn device(&self, agreed: Agreed) -> Ring {
        Ring::find(&self.regions, LENGTH, self.parts(), agreed).expect("a ring")
    }

    /// A place for so many bytes; it may lie in both regions.
    fn place(&mut self, bytes: usize) -> u64 {
        if self.buffer + bytes as u64 > 2 * REGION as u64 {
            self.buffer = BUFFERS;
        }
        let address = GUEST + self.begin + self.buffer;
        self.buffer += bytes as u64;
        address
    }

    fn write_descriptor(&self, number: u16, address: u64, length: u32, flags: u16, next: u16) {
        let at = DESCRIPTORS + 16 * usize::from(number % LENGTH as u16);
        self.memory[0].store_u64(at, address);
        self.memory[0].store_u64(at + 8, u64::from(length) | u64::from(flags) << 32 | u64::from(next) << 48);
    }

    /// Makes a chain of these pieces available.
    fn offer(&mut self, pieces: &[(u64, usize)], flags: u16) -> u16 {
        let head = self.descriptor % LENGTH as u16;
        for (place, &(address, length)) in pieces.iter().enumerate() {
            let number = self.descriptor % LENGTH as u16;
            self.descriptor = self.descriptor.wrapping_add(1);
            let goes_on = if place + 1 < pieces.len() { NEXT } else { 0 };
            self.write_descriptor(number, address, length as u32, flags | goes_on, self.descriptor % LENGTH as u16);
        }
        self.show(head);
        head
    }

    /// The same in a table of its own.
    fn offer_indirect(&mut self, pieces: &[(u64, usize)], flags: u16) -> u16 {
        let table = self.place(16 * pieces.len());
        for (place, &(address, length)) in pieces.iter().enumerate() {
            let goes_on = if place + 1 < pieces.len() { NEXT } else { 0 };
            let words = [address, length as u64 | u64::from(flags | goes_on) << 32 | (place as u64 + 1) << 48];
            let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            self.regions.write(table + 16 * place as u64, &bytes).expect("memory");
        }
        let head = self.descriptor % LENGTH as u16;
        self.write_descriptor(self.descriptor, table, 16 * pieces.len() as u32, INDIRECT, 0);
        self.descriptor = self.descriptor.wrapping_add(1);
        self.show(head);
        head
    }

    fn show(&mut self, head: u16) {
        let slot = usize::from(self.next) % LENGTH as usize;
        self.memory[0].store_u16(AVAILABLE + SLOTS + 2 * slot, head);
        self.next = self.next.wrapping_add(1);
        self.memory[0].store_release_u16(AVAILABLE + INDEX, self.next);
    }

    /// Number and bytes of the next slot that was used.
    pub(in super::super) fn used(&mut self) -> Option<(u32, u32)> {
        if self.memory[0].load_acquire_u16(USED_RING + INDEX) == self.seen {
            return None;
        }
        let at = USED_RING + SLOTS + 8 * (usize::from(self.seen) % LENGTH as usize);
        self.seen = self.seen.wrapping_add(1);
        Some((self.memory[0].load_u32(at), self.memory[0].load_u32(at + 4)))
    }
}

fn merging() -> Agreed {
    Agreed { event_index: false, merges: true, long_header: true }
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

/// Cuts so many bytes into pieces.
fn pieces(driver: &mut Driver, length: usize, cuts: &[usize]) -> Vec<(u64, usize)> {
    let mut pieces = Vec::new();
    let mut left = length;
    for &cut in cuts {
        let piece = cut.min(left);
        pieces.push((driver.place(piece), piece));
        left -= piece;
    }
    pieces.push((driver.place(left), left));
    pieces
}

#[test]
fn packets_are_taken_in_whatever_pieces_they_lie_and_over_the_wrap_of_the_indexes() {
    let mut driver = Driver::at(u16::MAX - 40);
    for long_header in [true, false] {
        let mut device = driver.device(Agreed { long_header, ..merging() });
        let before = device.agreed.header();
        for (round, length) in [60, 61, 64, 1500, 4096, 9600].into_iter().cycle().take(120).enumerate() {
            let shapes: [&[usize]; 6] = [&[], &[before], &[3], &[before + 14], &[1, before, 100], &[0, 5, 0]];
            let cuts = shapes[round % 6];
            let whole = [vec![0x5a; before], bytes(length, round)].concat();
            let places = pieces(&mut driver, whole.len(), cuts);
            let mut from = &whole[..];
            for &(address, length) in &places {
                driver.regions.write(address, &from[..length]).expect("memory");
                from = &from[length..];
            }
            let head = if round % 4 == 3 { driver.offer_indirect(&places, 0) } else { driver.offer(&places, 0) };
            let (mut header, mut frame) = ([0; LONG_HEADER], [0; 9600]);
            assert_eq!(device.take(&driver.regions, &mut header, &mut frame), Taken::Packet(length), "{cuts:?}");
            assert_eq!(frame[..length], bytes(length, round)[..]);
            assert_eq!(header[..before], [0x5a; LONG_HEADER][..before]);
            assert_eq!(driver.used(), None, "nothing is said before it is shown");
            assert!(device.show(&driver.regions), "the driver has said nothing against it");
            assert_eq!((driver.used(), driver.used()), (Some((head.into(), 0)), None));
            assert_eq!(device.take(&driver.regions, &mut header, &mut frame), Taken::None);
        }
    }
}

#[test]
fn packets_are_put_into_as_many_buffers_as_they_take() {
    let mut driver = Driver::at(u16::MAX - 300);
    let mut device = driver.device(merging());
    for (round, length) in [60, 1500, 1600, 9600, 65_000].into_iter().cycle().take(200).enumerate() {
        // Several pieces in a chain, or one.
        let sizes: &[usize] = [&[1600][..], &[12, 5000], &[7, 800, 2000], &[70_000]][round % 4];
        let of_chain: usize = sizes.iter().sum();
        let wanted = (LONG_HEADER + length).div_ceil(of_chain);
        let chains = (LENGTH as usize / sizes.len()).min(wanted);
        let packet = bytes(length, round);
        let mut posted = Vec::new();
        for _ in 0..chains {
            let places: Vec<_> = sizes.iter().map(|&size| (driver.place(size), size)).collect();
            let head = driver.offer(&places, WRITE);
            posted.push((head, places));
        }
        let mut header = [0; LONG_HEADER];
        header[0] = 1;
        let put = device.put(&driver.regions, &mut header, &packet);
        if chains < wanted {
            // Where the driver has no descriptor left, no waiting makes room.
            let is_all = chains * sizes.len() == LENGTH as usize;
            assert_eq!(put, if is_all { Put::TooLong } else { Put::Full });
            assert!(!device.show(&driver.regions) && driver.used().is_none(), "nothing was used");
            // The driver begins anew.
            driver = Driver::at(driver.next);
            device = driver.device(merging());
            continue;
        }
        assert_eq!(put, Put::Done);
        assert!(device.show(&driver.regions));
        let mut come = Vec::new();
        for (head, places) in &posted {
            let (number, mut written) = driver.used().expect("a chain");
            assert_eq!(number, u32::from(*head));
            for &(address, size) in places {
                let mut piece = vec![0; size.min(written as usize)];
                driver.regions.read(address, &mut piece).expect("memory");
                written -= piece.len() as u32;
                come.extend(piece);
            }
            assert_eq!(written, 0);
        }
        assert_eq!(come.len(), LONG_HEADER + length);
        assert_eq!((come[0], &come[MERGED..LONG_HEADER]), (1, &(chains as u16).to_le_bytes()[..]));
        assert!(come[LONG_HEADER..] == packet[..], "{length} in {sizes:?}");
    }
}

#[test]
fn what_is_longer_than_the_whole_ring_has_room_for_is_too_long_and_what_comes_behind_it_passes() {
    for is_indirect in [false, true] {
        let mut driver = Driver::at(u16::MAX - 3);
        let mut device = driver.device(merging());
        for chains in 1..=LENGTH {
            let places = [(driver.place(50), 50), (driver.place(50), 50)];
            if is_indirect {
                driver.offer_indirect(&places, WRITE)
            } else {
                driver.offer(&places[..1], WRITE)
            };
            let expected = if chains == LENGTH { Put::TooLong } else { Put::Full };
            let put = device.put(&driver.regions, &mut [0; LONG_HEADER], &[1; 1600]);
            assert_eq!((put, device.unshown()), (expected, 0), "{chains}");
        }
        assert_eq!(device.put(&driver.regions, &mut [0; LONG_HEADER], &[1; 60]), Put::Done);
        assert_eq!(device.put(&driver.regions, &mut [0; LONG_HEADER], &[1; 1600]), Put::Full, "one has been used");
    }
}

#[test]
fn a_packet_lies_in_one_chain_where_buffers_are_not_merged() {
    let mut driver = Driver::new();
    let mut device = driver.device(Agreed { merges: false, long_header: false, ..merging() });
    let place = driver.place(100);
    let head = driver.offer(&[(place, 100)], WRITE);
    let mut header = [0; LONG_HEADER];
    assert_eq!(device.put(&driver.regions, &mut header, &[1; 91]), Put::TooLong);
    assert_eq!(device.put(&driver.regions, &mut header, &[1; 90]), Put::Done);
    assert_eq!(device.put(&driver.regions, &mut header, &[1; 90]), Put::Full);
    assert!(device.show(&driver.regions));
    assert_eq!(driver.used(), Some((head.into(), 100)));
}

#[test]
fn a_driver_is_interrupted_as_it_wishes() {
    let mut driver = Driver::at(u16::MAX - 2);
    for event_index in [false, true] {
        let mut device = driver.device(Agreed { event_index, ..merging() });
        let mut take = |driver: &mut Driver, count: usize| {
            for _ in 0..count {
                let places = [(driver.place(80), 80)];
                driver.offer(&places, 0);
                let taken = device.take(&driver.regions, &mut [0; LONG_HEADER], &mut [0; 9600]);
                assert_eq!(taken, Taken::Packet(68));
            }
            device.show(&driver.regions)
        };
        if event_index {
            let wish = |driver: &Driver, at: u16| {
                driver.memory[0].store_u16(AVAILABLE + SLOTS + 2 * LENGTH as usize, at);
            };
            let next = driver.next;
            wish(&driver, next);
            assert!(take(&mut driver, 1), "when this one has been used");
            assert!(!take(&mut driver, 1), "and not again");
            let next = driver.next;
            wish(&driver, next.wrapping_add(2));
            assert!(!take(&mut driver, 2));
            assert!(take(&mut driver, 3), "the third is among them");
            assert!(!take(&mut driver, 1));
        } else {
            assert!(take(&mut driver, 2));
            driver.memory[0].store_u16(AVAILABLE, NOT_NOW);
            assert!(!take(&mut driver, 2));
        }
        assert!(!device.show(&driver.regions), "there is nothing new");
    }
}

#[test]
fn this_side_is_kicked_when_it_wishes() {
    let driver = Driver::at(77);
    let device = driver.device(merging());
    device.interrupt(&driver.regions, false);
    assert_eq!(driver.memory[0].load_u16(USED_RING), NOT_NOW);
    device.interrupt(&driver.regions, true);
    assert_eq!(driver.memory[0].load_u16(USED_RING), 0);
    let device = driver.device(Agreed { event_index: true, ..merging() });
    device.interrupt(&driver.regions, true);
    assert_eq!(driver.memory[0].load_u16(USED_RING + SLOTS + 8 * LENGTH as usize), 77);
}

#[test]
fn what_cannot_be_is_refused_by_its_kind_and_the_next_packet_comes() {
    type Lie = (&'static str, fn(&mut Driver), Fault);
    let lies: [Lie; 9] = [
        ("a number beyond the ring", |driver| driver.show(LENGTH as u16), Fault::Number),
        (
            "bytes behind the memory",
            |driver| _ = driver.offer(&[(GUEST + 2 * REGION as u64 - 70, 80)], 0),
            Fault::Bounds,
        ),
        ("an address that wraps", |driver| _ = driver.offer(&[(u64::MAX - 4, 80)], 0), Fault::Bounds),
        ("bytes to be written", |driver| _ = driver.offer(&[(GUEST + BUFFERS, 80)], WRITE), Fault::Flags),
        ("unknown flags", |driver| _ = driver.offer(&[(GUEST + BUFFERS, 80)], 8), Fault::Flags),
        ("less than a header", |driver| _ = driver.offer(&[(GUEST + BUFFERS, 11)], 0), Fault::Bounds),
        (
            "a circle",
            |driver| {
                let number = driver.descriptor % LENGTH as u16;
                driver.write_descriptor(number, GUEST + BUFFERS, 1, NEXT, number);
                driver.descriptor = driver.descriptor.wrapping_add(1);
                driver.show(number);
            },
            Fault::Chain,
        ),
        (
            "a table within a table",
            |driver| {
                let places = [(GUEST + BUFFERS, 160)];
                driver.offer_indirect(&places, INDIRECT);
            },
            Fault::Flags,
        ),
        (
            "a table of half a descriptor",
            |driver| {
                let number = driver.descriptor % LENGTH as u16;
                driver.write_descriptor(number, GUEST + BUFFERS, 24, INDIRECT, 0);
                driver.descriptor = driver.descriptor.wrapping_add(1);
                driver.show(number);
            },
            Fault::Number,
        ),
    ];
    let mut driver = Driver::new();
    let mut device = driver.device(merging());
    let (mut header, mut frame) = ([0; LONG_HEADER], [0; 9600]);
    for (what, lie, fault) in lies {
        lie(&mut driver);
        assert_eq!(device.take(&driver.regions, &mut header, &mut frame), Taken::Refused(fault), "{what}");
        let places = [(driver.place(80), 80)];
        driver.offer(&places, 0);
        assert_eq!(device.take(&driver.regions, &mut header, &mut frame), Taken::Packet(68), "behind {what}");
        device.show(&driver.regions);
    }
}

#[test]
fn room_that_cannot_be_is_refused_and_given_back() {
    let mut driver = Driver::new();
    let mut device = driver.device(merging());
    let (mut header, mut frame) = ([0; LONG_HEADER], [0; 9600]);
    for (flags, length, fault) in [(0, 80, Fault::Flags), (WRITE, 0, Fault::Bounds)] {
        let head = driver.offer(&[(GUEST + BUFFERS, length)], flags);
        assert_eq!(device.put(&driver.regions, &mut header, &[0; 60]), Put::Refused(fault));
        device.show(&driver.regions);
        assert_eq!(driver.used(), Some((head.into(), 0)), "it is given back");
    }
    // A good one before it that was too small by itself is given back, too.
    let good = driver.offer(&[(GUEST + BUFFERS, 40)], WRITE);
    let bad = driver.offer(&[(GUEST + BUFFERS, 40)], 0);
    assert_eq!(device.put(&driver.regions, &mut header, &[0; 60]), Put::Refused(Fault::Flags));
    device.show(&driver.regions);
    assert_eq!([driver.used(), driver.used(), driver.used()], [Some((good.into(), 0)), Some((bad.into(), 0)), None]);
    driver.memory[0].store_u16(AVAILABLE + INDEX, driver.next.wrapping_add(LENGTH as u16 + 1));
    assert_eq!(device.take(&driver.regions, &mut header, &mut frame), Taken::Refused(Fault::Index));
    assert_eq!(device.put(&driver.regions, &mut header, &[0; 60]), Put::Refused(Fault::Index));
}

#[test]
fn a_ring_lies_in_the_memory_and_where_words_may_lie() {
    let driver = Driver::new();
    let found = |change: fn(&mut Parts)| {
        let mut parts = driver.parts();
        change(&mut parts);
        Ring::find(&driver.regions, LENGTH, parts, merging()).is_some()
    };
    assert!(found(|_| {}));
    let lies: [fn(&mut Parts); 6] = [
        |parts| parts.descriptors += 8,
        |parts| parts.available += 1,
        |parts| parts.used += 2,
        |parts| parts.descriptors = USER + REGION as u64 - 16 * u64::from(LENGTH) + 16,
        |parts| parts.used = USER - 4,
        |parts| parts.available = u64::MAX - 3,
    ];
    assert!(lies.into_iter().all(|lie| !found(lie)));
    // With its last byte at the region's end it does.
    assert!(found(|parts| parts.descriptors = USER + REGION as u64 - 16 * u64::from(LENGTH)));
}

#[test]
fn memory_that_is_too_much_or_lies_over_other_memory_is_refused() {
    let mut regions = Regions::default();
    let mut add = |guest: u64, user: u64, bytes: u64| {
        let (_, descriptor) = Mapping::sealed(REGION).expect("memory");
        regions.add(Place { guest, bytes, user, offset: 0 }, Held::own(descriptor), false, 0x3000)
    };
    assert_eq!(add(0, USER, 0x1000), Ok(()));
    assert!(add(0xfff, USER + 0x1000, 0x1000).is_err() && add(0x1000, USER + 0xfff, 0x1000).is_err());
    assert_eq!(add(0x1000, USER + 0x1000, 0x2000), Ok(()));
    assert!(add(0x3000, USER + 0x3000, 1).is_err());
}

#[test]
fn a_region_may_begin_anywhere_in_its_file() {
    let (memory, descriptor) = Mapping::sealed(REGION).expect("memory");
    for offset in [0, 0x1000, 0x1238, 0x2ff8] {
        let mut regions = Regions::default();
        let place = Place { guest: GUEST, bytes: 0x800, user: USER, offset };
        regions.add(place, Held::own(descriptor.try_clone().expect("a copy")), false, 1 << 30).expect("a region");
        memory.write_bytes(offset as usize, &[7; 16]);
        memory.write_bytes(offset as usize + 0x7f0, &[9; 16]);
        let mut bytes = [0; 0x800];
        regions.read(GUEST, &mut bytes).expect("memory");
        assert_eq!((bytes[..16].iter().sum::<u8>(), bytes[0x7f0..].iter().sum::<u8>()), (112, 144), "{offset}");
        assert_eq!(regions.read(GUEST, &mut [0; 0x801]), Err(Fault::Bounds));
        let spot = regions.of_user(USER + 8, 8).expect("memory");
        assert_eq!(regions.memory(spot.region).load_u64(spot.at), 0x0707_0707_0707_0707);
        memory.write_bytes(offset as usize, &[0; 0x800]);
    }
    // Less of the file than the whole of it is mapped: addresses are not a frontend's to use up.
    let mut regions = Regions::default();
    let place = Place { guest: GUEST, bytes: 0x800, user: USER, offset: REGION as u64 - 0x800 };
    regions.add(place, Held::own(descriptor), false, 0x800).expect("a region");
    assert!(regions.memory(0).bytes() <= 0x1000, "{}", regions.memory(0).bytes());
}

/// Whatever lies in the memory, each call ends, touches nothing outside, and the ring goes on: a word anywhere is changed between any two
/// calls.
#[test]
fn a_driver_that_scribbles_is_survived() {
    let mut random = fastrand::Rng::with_seed(0x5eed_0041);
    let (mut packets, mut faults) = (0, [0; 5]);
    for round in 0..40 {
        let mut driver = Driver::new();
        let agreed = Agreed { event_index: random.bool(), merges: random.bool(), long_header: random.bool() };
        let mut device = driver.device(agreed);
        let (mut header, mut frame) = ([0; LONG_HEADER], vec![0; 9600]);
        for _ in 0..5000 {
            match random.u8(..10) {
                0..=5 => {
                    let flags = if round % 2 == 0 { 0 } else { WRITE };
                    let length = random.usize(..3000);
                    let places = [(driver.place(length + 1), length + 1), (driver.place(20), 20)];
                    let places = &places[..random.usize(1..=2)];
                    if random.bool() {
                        driver.offer(places, flags)
                    } else {
                        driver.offer_indirect(places, flags)
                    };
                }
                6 => {
                    let at = [DESCRIPTORS, AVAILABLE, USED_RING][random.usize(..3)] + 2 * random.usize(..128);
                    let word = [random.u16(..), 0, 1, 2, 4, 0xffff][random.usize(..6)];
                    driver.memory[0].store_u16(at, word);
                }
                7 => driver.memory[0].store_u64(DESCRIPTORS + 8 * random.usize(..32), random.u64(..)),
                8 if random.u8(..) < 10 => driver.next = random.u16(..),
                8 => {
                    let (number, next) = (random.u16(..16), random.u16(..16));
                    driver.write_descriptor(number, GUEST + BUFFERS, 1, NEXT | (WRITE * random.u16(..2)), next);
                }
                _ => device.interrupt(&driver.regions, random.bool()),
            }
            let fault = if round % 2 == 0 {
                match device.take(&driver.regions, &mut header, &mut frame) {
                    Taken::Refused(fault) => Some(fault),
                    taken => {
                        packets += usize::from(matches!(taken, Taken::Packet(_)));
                        None
                    }
                }
            } else {
                let length = random.usize(60..=9600);
                match device.put(&driver.regions, &mut header, &frame[..length]) {
                    Put::Refused(fault) => Some(fault),
                    put => {
                        packets += usize::from(put == Put::Done);
                        None
                    }
                }
            };
            if let Some(fault) = fault {
                faults[fault as usize] += 1;
                if fault == Fault::Index {
                    driver = Driver::at(random.u16(..));
                    device = driver.device(agreed);
                }
            }
            device.show(&driver.regions);
        }
    }
    assert!(packets > 10_000 && faults.iter().all(|&count| count > 20), "{packets} packets, {faults:?}");
}
