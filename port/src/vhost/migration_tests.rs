//! What a frontend of the tests' own says while its machine migrates, under traffic; logs that cannot be.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Weak;

use conic_native::{Flag, Held, Mapping};

use super::half::feature;
use super::log::Log;
use super::memory::Regions;
use super::message::Place;
use super::parts_tests::{Ended, Guest, behind, look, parts, send_back};
use super::ring::tests::Driver;
use super::tests::{MODERN, folder, milliseconds, options};
use super::*;

/// Bytes of a log for all of the tests' memory, and where the used parts of rings are logged: a page for each, which no guest has.
const BYTES: u64 = 0x9000;
const USED: u64 = 0x1000_0000;
const PAGE: u64 = 4096;

/// A log, as its frontend has it.
pub(super) struct Reader {
    memory: Mapping,
    pub(super) descriptor: OwnedFd,
}

impl Reader {
    pub(super) fn new() -> Reader {
        let (memory, descriptor) = Mapping::sealed(BYTES as usize + 4096).expect("memory");
        Reader { memory, descriptor }
    }

    /// The pages that are marked in what begins at an offset, which are then marked no more.
    pub(super) fn take(&self, offset: usize) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        for at in (0..self.memory.bytes()).step_by(8) {
            let word = self.memory.load_acquire_u64(at);
            if word != 0 {
                self.memory.store_u64(at, 0);
                let page = |bit: usize| {
                    ((at + bit / 8).checked_sub(offset).expect("before its beginning") * 8 + bit % 8) as u64
                };
                pages.extend((0..64).filter(|bit| word >> bit & 1 == 1).map(page));
            }
        }
        pages
    }
}

/// A card with so many pairs, in one part, and its frontend.
fn connected(folder: &tempfile::TempDir, pairs: usize) -> (Vec<Option<VhostUser>>, Guest, VhostOptions) {
    let options = VhostOptions { queues: pairs, ..options(folder) };
    let mut own: Vec<Option<VhostUser>> = parts(&options, pairs).into_iter().map(Some).collect();
    let guest = Guest::connect(&options.socket, pairs, &mut || look(&mut own, Time::ZERO));
    (own, guest, options)
}

/// Asks the port, which is looked after meanwhile without a look at its rings.
fn ask(own: &mut [Option<VhostUser>], guest: &Guest, request: u32, body: &[u64], descriptor: Option<&OwnedFd>) -> u64 {
    let meanwhile = &mut || own.iter_mut().flatten().for_each(|part| part.attend(Time::ZERO));
    guest.frontend.asked(request, body, descriptor, meanwhile)
}

#[test]
fn a_ring_says_where_it_stood_behind_the_reset_that_another_pair_brought() {
    let folder = folder();
    let (mut own, mut guest, _) = connected(&folder, 2);
    (0..5).for_each(|_| guest.send(1));
    guest.settle(0, &mut || look(&mut own, Time::ZERO));
    // QEMU 7.2 stops the first pair, resets the device, and asks then where the second stands.
    let stood = [0, 1].map(|ring| ask(&mut own, &guest, 11, &[ring], None));
    assert_eq!(stood, [0, 1]);
    assert_eq!(ask(&mut own, &guest, 39, &[0], None), 0);
    let stood = [2, 3].map(|ring| ask(&mut own, &guest, 11, &[ring], None));
    assert_eq!(stood, [2 | 5 << 32, 3 | 5 << 32]);
}

/// Bytes of a ring's used part, and where it lies in the ring's memory.
const USED_BYTES: u64 = 4 + 8 * 16 + 2;
const USED_PLACE: u64 = 0x2000;

/// Where a ring's used part is logged: over the end of a page, which lies between its index and its slots, or among these.
fn used_of(ring: usize) -> u64 {
    USED + 0x2000 * ring as u64 + [0xffc, 0xf80][ring / 2]
}

/// A machine that migrates, behind a card in two parts.
struct Migrating {
    own: Vec<Option<VhostUser>>,
    guest: Guest,
    options: VhostOptions,
    features: u64,
    /// Whether all is logged, and each ring's used part.
    all: bool,
    rings: [bool; 4],
    log: Option<(Reader, usize)>,
    /// Pages that were marked, and those of which nothing had changed.
    marked: usize,
    unchanged: usize,
}

impl Migrating {
    fn start(folder: &tempfile::TempDir, more: u64) -> Migrating {
        let features = MODERN | feature::SEVERAL_QUEUES | more;
        let options = VhostOptions { queues: 2, ..options(folder) };
        let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
        let guest = Guest::connect_with(&options.socket, 2, features, &mut || look(&mut own, Time::ZERO));
        let (log, rings) = (None, [false; 4]);
        Migrating { own, guest, options, features, all: false, rings, log, marked: 0, unchanged: 0 }
    }

    fn ask(&mut self, request: u32, body: &[u64], descriptor: Option<&OwnedFd>) -> u64 {
        ask(&mut self.own, &self.guest, request, body, descriptor)
    }

    /// Brings a log that begins at an offset. In the old one nothing is marked behind the answer.
    fn bring(&mut self, offset: usize) -> Option<(Reader, usize)> {
        let log = Reader::new();
        assert_eq!(self.ask(6, &[BYTES, offset as u64], Some(&log.descriptor)), 0);
        self.log.replace((log, offset))
    }

    fn set_all(&mut self, all: bool) {
        let feature = if all { feature::LOG_ALL } else { 0 };
        assert_eq!(self.ask(2, &[self.features | feature], None), 0);
        self.all = all;
        if !all {
            self.log = None;
        }
    }

    fn set_ring(&mut self, ring: usize, is_logged: bool) {
        let parts = self.guest.pairs[ring / 2][ring % 2].parts();
        let first = ring as u64 | u64::from(is_logged) << 32;
        let words = [first, parts.descriptors, parts.used, parts.available, used_of(ring)];
        assert_eq!(self.ask(9, &words, None), 0);
        self.rings[ring] = is_logged;
    }

    fn hand_over(&mut self) {
        let legacies =
            self.own.iter_mut().flatten().map(|part| part.bequeath().expect("it can be passed on")).collect();
        self.own.clear();
        let heirs = VhostUser::inherit(&self.options, legacies).expect("they go on");
        self.own = heirs.into_iter().map(Some).collect();
        assert!(self.own.iter().flatten().all(VhostUser::is_connected));
    }

    fn images(&self) -> Vec<Vec<u8>> {
        self.guest.pairs.iter().flatten().map(Driver::all).collect()
    }

    /// Packets go both ways; what the device has changed is marked, as far as it is logged, and little else.
    fn exchange(&mut self, generator: &mut fastrand::Rng) {
        for pair in &mut self.guest.pairs {
            while pair[0].got().is_some() || pair[1].used().is_some() {}
            for _ in 0..generator.usize(..4) {
                if pair[1].under_way() < 12 {
                    let frame: Vec<u8> = (0..generator.usize(60..9000)).map(|_| generator.u8(..)).collect();
                    pair[1].send(&[0; LONG_HEADER], &frame);
                }
                if pair[0].under_way() < 12 {
                    pair[0].post(generator.usize(200..6000));
                }
            }
        }
        let before = self.images();
        for part in self.own.iter_mut().flatten() {
            let mut frame = [0; MAX_FRAME];
            if generator.bool() {
                part.arm();
            }
            while let Receive::Frame { length, .. } = part.receive(Time::ZERO, &mut frame).expect("it does not fail") {
                let _ = part.transmit(Time::ZERO, &frame[..length]).expect("it does not fail");
            }
            part.flush(Time::ZERO).expect("it does not fail");
        }
        self.check(&before);
    }

    fn check(&mut self, before: &[Vec<u8>]) {
        let marked = self.log.as_ref().map_or_else(BTreeSet::new, |(log, offset)| log.take(*offset));
        let mut wanted = BTreeSet::new();
        for (ring, (before, after)) in before.iter().zip(self.images()).enumerate() {
            let guest = Driver::place_of(behind(ring), 0).guest;
            // Whole pieces first: most are as they were.
            let changed = (0..after.len()).step_by(1024).filter(|&at| before[at..at + 1024] != after[at..at + 1024]);
            let changed = changed.flat_map(|at| at..at + 1024).filter(|&at| before[at] != after[at]);
            for at in changed.map(|at| at as u64) {
                let inside = at.wrapping_sub(USED_PLACE);
                match inside < USED_BYTES {
                    true if self.rings[ring] => wanted.insert((used_of(ring) + inside) / PAGE),
                    false if self.all => wanted.insert((guest + at) / PAGE),
                    _ => false,
                };
            }
        }
        if self.log.is_none() {
            assert!(marked.is_empty());
            return;
        }
        let missed: Vec<_> = wanted.difference(&marked).collect();
        assert!(missed.is_empty(), "{missed:x?} of {wanted:x?} are not marked: {} {:?}", self.all, self.rings);
        let is_logged = |&page: &u64| match page >= Driver::place_of(0, 0).guest / PAGE {
            true => self.all,
            false => self.rings[((page - USED / PAGE) / 2) as usize],
        };
        assert!(marked.iter().all(is_logged), "{marked:x?}: {} {:?}", self.all, self.rings);
        (self.marked, self.unchanged) = (self.marked + marked.len(), self.unchanged + marked.len() - wanted.len());
    }
}

#[test]
fn whatever_the_device_changes_is_marked_while_it_is_logged_and_goes_on_in_another_process() {
    for (seed, more) in [(1, 0), (2, feature::EVENT_INDEX)] {
        let (folder, mut generator) = (folder(), fastrand::Rng::with_seed(seed));
        let mut machine = Migrating::start(&folder, more);
        let mut left = Vec::new();
        for _ in 0..400 {
            match generator.usize(..12) {
                0 => left.extend(machine.bring([0, 1, 4095][generator.usize(..3)])),
                1 => {
                    let all = generator.u8(..4) > 0;
                    left.extend(if all { None } else { machine.log.take() });
                    machine.set_all(all);
                }
                2 => machine.set_ring(generator.usize(..4), generator.bool()),
                3 => machine.hand_over(),
                _ => {}
            }
            machine.exchange(&mut generator);
        }
        assert!(left.iter().all(|(log, offset)| log.take(*offset).is_empty()), "one is marked that was taken away");
        assert!(left.len() > 20 && machine.marked > 1000, "{} logs, {} pages", left.len(), machine.marked);
        assert!(machine.unchanged < machine.marked / 5, "{} of {}", machine.unchanged, machine.marked);
    }
}

/// The log that a port has.
fn log_of(port: &VhostUser) -> Weak<Log> {
    let device = port.control.as_ref().and_then(|control| control.device());
    device.and_then(|device| device.half.log.as_ref()).map_or_else(Weak::new, Arc::downgrade)
}

#[test]
fn a_log_is_unmapped_when_another_comes_when_it_is_over_and_with_its_session() {
    let folder = folder();
    let mut machine = Migrating::start(&folder, 0);
    let is_gone = |log: &Weak<Log>| {
        let began = conic_native::clock::now();
        while log.strong_count() > 0 {
            conic_native::yield_core();
            assert!(conic_native::clock::now().since(began).seconds() < 20.0, "it is mapped for ever");
        }
    };
    let first = |machine: &Migrating| log_of(machine.own[0].as_ref().expect("it is there"));
    let mut before = Weak::new();
    for _ in 0..2 {
        machine.bring(0);
        machine.set_all(true);
        (0..4).for_each(|ring| machine.set_ring(ring, true));
        is_gone(&before);
        before = first(&machine);
        assert_eq!(before.strong_count(), 5, "the port's, and each ring's");
    }
    machine.set_all(false);
    is_gone(&before);
    machine.bring(0);
    let last = first(&machine);
    assert_eq!(last.strong_count(), 5, "without the feature, rings alone");
    machine.guest.frontend.hang_up();
    machine.own.iter_mut().flatten().for_each(|part| part.attend(milliseconds(5)));
    is_gone(&last);
}

#[test]
fn a_log_that_cannot_be_is_refused_and_the_one_before_stays() {
    let folder = folder();
    let mut machine = Migrating::start(&folder, 0);
    let unsealed = OwnedFd::from(tempfile::tempfile_in("/dev/shm").expect("a file"));
    rustix::fs::ftruncate(&unsealed, 2 * BYTES).expect("a file");
    let pipe: OwnedFd = std::io::pipe().expect("a pipe").1.into();
    let memory = Reader::new().descriptor;
    let (_, small) = Mapping::sealed(4096).expect("memory");
    machine.bring(0);
    machine.set_all(true);
    (0..4).for_each(|ring| machine.set_ring(ring, true));
    let parts = machine.guest.pairs[0][0].parts();
    let used = |flags: u64, address: u64| [flags << 32, parts.descriptors, parts.used, parts.available, address];
    let end = 8 * PAGE * BYTES;
    let place = |guest: u64| [0, guest, 4096, 1 << 40, 0];
    let lies: [(&str, u32, &[u64], Option<&OwnedFd>); 17] = [
        ("no descriptor", 6, &[BYTES, 0], None),
        ("no bytes", 6, &[0, 0], Some(&memory)),
        ("an end that is no number", 6, &[BYTES, u64::MAX - 100], Some(&memory)),
        ("more bytes than the memory has", 6, &[BYTES + 4097, 0], Some(&memory)),
        ("an offset behind which it is too short", 6, &[BYTES, 4097], Some(&memory)),
        ("more bytes than any memory has", 6, &[1 << 60, 0], Some(&memory)),
        ("a pipe", 6, &[BYTES, 0], Some(&pipe)),
        ("memory that can be cut", 6, &[BYTES, 0], Some(&unsealed)),
        ("too few bytes for the memory", 6, &[4096, 0], Some(&small)),
        ("half a message", 6, &[BYTES], Some(&memory)),
        ("a bell that is a pipe", 7, &[0], Some(&pipe)),
        ("a ring beyond its end", 9, &used(1, end - USED_BYTES + 1), None),
        ("another address of a ring in use", 9, &[1 << 32, parts.used, parts.used, parts.available, used_of(0)], None),
        ("a ring at no address", 9, &used(1, u64::MAX - 3), None),
        ("memory beyond its end", 37, &place(end), Some(&small)),
        ("a table of memory beyond its end", 5, &[1, end, 4096, 1 << 40, 0], Some(&small)),
        ("a station that is many", 19, &[1], None),
    ];
    let before = log_of(machine.own[0].as_ref().expect("it is there"));
    for (what, request, body, descriptor) in lies {
        assert_eq!(machine.ask(request, body, descriptor), 1, "{what}");
        let now = log_of(machine.own[0].as_ref().expect("it is there"));
        assert!(Weak::ptr_eq(&before, &now) && now.strong_count() == 5, "{what}");
    }
    // And each ring is logged as before, in another log too.
    machine.bring(1);
    let mut generator = fastrand::Rng::with_seed(3);
    (0..20).for_each(|_| machine.exchange(&mut generator));
    assert!(machine.marked > 50, "all is as it was: {}", machine.marked);
    // What just fits is taken; so is a bell, of which nothing comes.
    assert_eq!(machine.ask(9, &used(1, end - USED_BYTES), None), 0);
    assert_eq!(machine.ask(37, &place(end - 4096), Some(&small)), 0);
    assert_eq!(machine.ask(7, &[], Some(&super::tests::event())), 0);
    assert_eq!(machine.ask(9, &used(0, u64::MAX), None), 0, "an address that is not used");
    let details = machine.own[0].as_ref().expect("it is there").details();
    assert!(details.contains(&("requests_failed", 17)), "{details:?}");
    // Nobody wants to hear of it: it is hung up on.
    machine.guest.frontend.say(6, 0, &[0, 0], Some(&memory));
    machine.own.iter_mut().flatten().for_each(|part| part.attend(milliseconds(5)));
    assert!(machine.guest.frontend.is_shut_out());
}

#[test]
fn features_that_come_before_the_log_are_of_the_log_and_rings_that_it_has_no_room_for_wait() {
    let folder = folder();
    let mut machine = Migrating::start(&folder, 0);
    // QEMU starts a machine so while it migrates: features, rings, and then the log.
    machine.set_all(true);
    let mut generator = fastrand::Rng::with_seed(4);
    (0..5).for_each(|_| machine.exchange(&mut generator));
    // A ring whose address comes before the log that is too small for it has no such log.
    let stood = machine.ask(11, &[1], None);
    let parts = machine.guest.pairs[0][1].parts();
    let far = [1 | 1 << 32, parts.descriptors, parts.used, parts.available, 8 * PAGE * BYTES];
    assert_eq!(machine.ask(9, &far, None), 0);
    machine.bring(0);
    assert_eq!(machine.ask(10, &[stood], None), 0);
    let bell = machine.guest.bells[1][0].try_clone().expect("a descriptor");
    assert_eq!(machine.ask(12, &[1], Some(&bell)), 0);
    let used = |machine: &Migrating| machine.own[0].as_ref().map_or(0, |port| port.outside.rings.all().used());
    assert_eq!(used(&machine), 0b1101);
    machine.set_ring(1, true);
    assert_eq!(machine.ask(12, &[1], Some(&bell)), 0);
    assert_eq!(used(&machine), 0b1111);
    (0..20).for_each(|_| machine.exchange(&mut generator));
    assert!(machine.marked > 50, "{}", machine.marked);
    // Packets that are made ready for a driver are so for one that migrates: the rings began with it or before it.
    let features = machine.own[0].as_ref().map(|port| port.outside.rings.all().features());
    assert_eq!(features, Some(machine.features));
}

#[test]
fn a_packed_ring_is_marked_by_where_the_guest_has_its_descriptors() {
    let folder = folder();
    let mut machine = Migrating::start(&folder, feature::PACKED);
    machine.bring(0);
    machine.set_ring(2, true);
    let port = machine.own[0].as_ref().expect("it is there");
    let device = port.control.as_ref().and_then(|control| control.device()).expect("somebody is connected");
    let pages = [1, 2].map(|ring| device.pages(ring).expect("they fit"));
    assert!(pages[0].is_none() && pages[1].as_ref().is_some_and(|pages| !pages.is_of_packets));
    let at = pages[1].as_ref().map(|pages| (pages.used, pages.descriptors));
    assert_eq!(at, Some((Some(used_of(2)), Some(Driver::place_of(behind(2), 0).guest))));
    // Memory may begin anywhere in what is passed.
    let (mut regions, (_, memory)) = (Regions::default(), Mapping::sealed(8192).expect("memory"));
    let place = Place { guest: 0x5000, bytes: 4096, user: 0x9000, offset: 100 };
    regions.add(place, Held::own(memory), false, 1 << 20).expect("a region");
    let of = [0x8fff, 0x9000, 0x9fff, 0xa000].map(|user| regions.guest_of_user(user));
    assert_eq!(of, [None, Some(0x5000), Some(0x5fff), None]);
}

#[test]
fn logs_come_and_go_while_threads_serve_the_rings() {
    let (folder, stop) = (folder(), Flag::new());
    let options = VhostOptions { queues: 3, ..options(&folder) };
    let mut generator = fastrand::Rng::with_seed(5);
    std::thread::scope(|scope| {
        for part in parts(&options, 3) {
            let stop = &stop;
            scope.spawn(move || send_back(part, stop));
        }
        let _ended = Ended(&stop);
        let mut guest = Guest::connect(&options.socket, 3, &mut || {});
        let features = MODERN | feature::SEVERAL_QUEUES | feature::LOG_ALL;
        let mut log = Reader::new();
        for _ in 0..60 {
            let new = Reader::new();
            assert_eq!(guest.ask(6, &[BYTES, 0], Some(&new.descriptor)), 0);
            assert_eq!(guest.ask(2, &[features], None), 0);
            log.take(0);
            (0..20).for_each(|_| guest.send(generator.usize(..3)));
            guest.settle(0, &mut || {});
            assert!(log.take(0).is_empty(), "it is marked behind the answer that took it away");
            assert!(new.take(0).len() >= 3);
            if generator.bool() {
                assert_eq!(guest.ask(2, &[features & !feature::LOG_ALL], None), 0);
                new.take(0);
                (0..20).for_each(|_| guest.send(generator.usize(..3)));
                guest.settle(0, &mut || {});
                assert!(new.take(0).is_empty(), "nothing is logged");
            }
            log = new;
        }
    });
}

#[test]
fn a_station_that_does_not_say_that_it_has_come_is_heard_once_behind_its_port() {
    let folder = folder();
    let (mut own, guest, _) = connected(&folder, 1);
    let station = 0x0200_0000_5452u64;
    let mut frame = [0; MAX_FRAME];
    let receive = |own: &mut [Option<VhostUser>], now: u64, frame: &mut [u8]| {
        own[0].as_mut().expect("it is there").receive(milliseconds(now), frame).expect("it does not fail")
    };
    for (now, is_asleep) in [(10, false), (20, true)] {
        if is_asleep {
            own[0].as_mut().expect("it is there").arm();
            assert_eq!(receive(&mut own, now, &mut frame), Receive::None);
        }
        guest.frontend.say(19, 0, &[station], None);
        // Whoever is asleep looks at once, at whatever time it was told.
        let then = now + u64::from(!is_asleep);
        assert_eq!(receive(&mut own, then, &mut frame), Receive::Frame { length: MIN_FRAME, captured: None });
        assert_eq!(frame[..14], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 0, 0, 2, 0x80, 0x35]);
        assert_eq!(receive(&mut own, now + 2, &mut frame), Receive::None);
    }
    assert_eq!(own[0].as_ref().map(|port| port.counters().received_frames), Some(2));
}
