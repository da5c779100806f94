//! A peer that writes anything anywhere at any time.
//!
//! | the NIC, against its host | the host, against its NIC |
//! |---|---|
//! | never panics | the same |
//! | every access lies where its side has business ([`Guard`]); a payload in one buffer or in the objects | the same for what it does itself. What it *received* it hands on as it came: the NIC is the machine's own and is trusted, and an application over an untrusted one would check addresses against its map |
//! | every call does a bounded number of operations | the same |
//! | what is refused is counted | impossible positions are counted |
//! | serves a new host after recovery | goes on with a new NIC after recovery |

use std::cell::Cell;
use std::collections::BTreeMap;

use conic_check::{CrashCore, CrashMemory};
use conic_fabric::{Address, Core, Layout, Line, Segment, Time};
use conic_interface::ccnic::{
    Consumer, Descriptor, Features, Flags, MAX_SEGMENTS, Map, Nic, PhaseCredit, RingMap, prepare,
};
use conic_interface::with_policy;

use crate::common::*;
use crate::erased::{AnyHost, AnyWire, host, nic};
use crate::guard::{Guard, Side};

const STEPS: u64 = 100_000;

/// Steps after which the attacked side recovers and goes on.
const RESTART: u64 = 200;

/// Writes nonsense, some of it close to sense.
struct Scribbler {
    core: CrashCore,
    random: fastrand::Rng,
    /// First word and number of words of each segment that may be scribbled over.
    targets: Vec<(Address, u64)>,
    map: Map,
    /// Positions so far, roughly: what a credit or a tail might be.
    steps: u64,
}

impl Scribbler {
    fn new(core: CrashCore, map: &Map, seed: u64) -> Scribbler {
        let shared = |name: &str| !name.ends_with("buffers") || name.starts_with("free");
        let segments = |layout: &Layout| {
            let wanted = layout.segments().iter().filter(|segment| shared(&segment.name) && segment.name != "objects");
            // Rings more often than the rest: they are where most can go wrong.
            let often = |name: &str| if name.ends_with("ring") { 4 } else { 1 };
            let entry = |segment: &Segment| vec![(segment.start, segment.bytes / 8); often(&segment.name)];
            wanted.flat_map(entry).collect()
        };
        Scribbler {
            core,
            random: fastrand::Rng::with_seed(seed),
            targets: segments(&map.layout),
            map: map.clone(),
            steps: 0,
        }
    }

    fn descriptor(&mut self) -> u64 {
        let random = &mut self.random;
        let class = self.map.pool.classes[random.usize(..3)];
        let address = match random.u8(..5) {
            0 => random.u64(..),
            1 => self.map.pool.objects.0 + random.u64(..self.map.pool.object_bytes + 64),
            2 => class.start.0 + random.u64(..(class.count << class.shift) + 64),
            _ => class.start.0 + (random.u64(..class.count) << class.shift),
        };
        let length = match random.u8(..6) {
            0 => random.u16(..),
            1 => 0,
            2 => 9600,
            3 => 128,
            _ => random.u16(1..=110),
        };
        let flags = match random.u8(..4) {
            0 => random.u8(..),
            1 => Flags::INLINE,
            2 => Flags::NEXT,
            _ => 0,
        };
        let phase = if random.bool() { Flags::PHASE } else { 0 };
        let descriptor = Descriptor::new(Address(address), length).with(flags | phase);
        if random.u8(..8) == 0 { descriptor.without(Flags::VALID).word } else { descriptor.word }
    }

    fn value(&mut self) -> u64 {
        match self.random.u8(..8) {
            0 => self.random.u64(..),
            1 => 0,
            2 => u64::MAX,
            // A position a little ahead or behind.
            3 | 4 => (self.steps / 8 + self.random.u64(..64)).wrapping_sub(self.random.u64(..64)),
            _ => self.descriptor(),
        }
    }

    fn store(&mut self, at: Address, value: u64) {
        let synchronising = self.map.layout.segment_of(at).map(|segment| segment.synchronising);
        if synchronising.is_some_and(|words| words.contains((at.0 % 64 / 8) as usize)) {
            self.core.store_release(at, value);
        } else {
            self.core.store(at, value);
        }
    }

    /// A few words anywhere, or a whole ring.
    fn scribble(&mut self) {
        self.steps += 1;
        let whole = self.random.u8(..8) == 0;
        let (start, words) = self.targets[self.random.usize(..self.targets.len())];
        let count = if whole { words } else { self.random.u64(1..=4) };
        for index in 0..count {
            let word = if whole { index } else { self.random.u64(..words.max(1)) };
            if words > 0 {
                let value = self.value();
                self.store(start.word(word as usize), value);
            }
        }
    }
}

/// Asserts that what was done since took a bounded number of memory operations.
struct Bound {
    before: u64,
    worst: BTreeMap<&'static str, u64>,
}

impl Bound {
    fn new() -> Bound {
        Bound { before: 0, worst: BTreeMap::new() }
    }

    fn check(&mut self, core: &Guard, call: &'static str, most: u64) {
        let operations = core.crash().operations() - std::mem::replace(&mut self.before, core.crash().operations());
        let worst = self.worst.entry(call).or_default();
        *worst = operations.max(*worst);
        assert!(operations <= most, "{call} did {operations} operations");
    }
}

/// Two sides that go on after an attack exchange packets as if nothing had been.
fn serves(features: Features, pair: Pair) {
    let (mut client, mut wire) = pair.wire();
    for sequence in 0..100 {
        assert!(client.send(sequence, 64), "{features}");
        wire.turn_around();
        assert_eq!(client.receive(sequence, 64), 1, "{features}");
    }
}

/// Polls, reads whatever the packets name, and completes them.
fn poll_and_read(wire: &mut dyn AnyWire<Guard>, core: &Guard, bound: &mut Bound, room: usize) -> usize {
    let mut polled = [Descriptor::BLANK; 32];
    let mut bytes = vec![0; 9600];
    let count = wire.nic().poll_tx(&mut polled[..room]);
    bound.check(core, "poll_tx", 1500);
    for packet in polled[..count].chunk_by(|before, _| before.has(Flags::NEXT)) {
        assert!(packet.len() <= MAX_SEGMENTS && !packet[packet.len() - 1].has(Flags::NEXT));
        for segment in packet {
            assert!(!segment.has(Flags::PHASE | Flags::INLINE | Flags::CONTINUED), "{segment:?}");
            // The guard panics if it leaves its buffer.
            core.read_bytes(segment.address(), &mut bytes[..usize::from(segment.length()).min(9600)]);
        }
    }
    bound.check(core, "reading", 33 * 2400);
    wire.nic().complete_tx(&polled[..count]);
    bound.check(core, "complete_tx", 1000);
    count
}

/// Rings, credits and free sets are scribbled over between the NIC's steps, which are those of a wire that checks.
fn host_attacks(features: Features, seed: u64) {
    let (map, memory) = world(features, geometry(16, [16, 32, 4], 1000));
    let mut scribbler = Scribbler::new(memory.core("scribbler"), &map, seed);
    let core = Guard::new(&memory, &map, "nic", Side::Nic);
    let mut wire = nic(features, core.clone(), &map, 0).wire();
    let mut random = fastrand::Rng::with_seed(seed + 1);
    let mut bound = Bound::new();
    bound.check(&core, "setting one aside", 10);
    let mut frame = vec![0; 9600];
    let (mut turned, mut polled_in_all, mut refused) = (0, 0, 0);
    // A host between the scribbles keeps things moving, so that there is something to scribble over.
    let mut accomplice = host(features, Guard::new(&memory, &map, "accomplice", Side::Host), &map, 0);
    for step in 0..STEPS {
        if step % RESTART == RESTART - 1 {
            // Positions that no longer fit stay that way: a new accomplice, as after a death.
            refused += wire.refused();
            core.allow_anything(true);
            let (recovered, _) = wire.into_nic().recover(&map, 0, &[]);
            core.allow_anything(false);
            wire = recovered.wire();
            accomplice = host(features, Guard::new(&memory, &map, "accomplice", Side::Host), &map, 0);
            scribbler.steps = 0;
            bound.check(&core, "recovering", 1000);
        }
        scribbler.scribble();
        let mut out = [Descriptor::BLANK; 16];
        let count = accomplice.rx_burst(&mut out);
        out[..count].iter().for_each(|packet| accomplice.buf_free(&[packet.address()]));
        if step % 4 == 0 {
            send(&mut *accomplice, step, 1 + (step % 300) as u16);
        }
        bound.check(&core, "the others", 0);
        // 32 packets of at most four segments of 16 KiB: a jumbo frame is 300 operations to read and 2400 to write.
        match random.u8(..5) {
            0 | 1 => {
                turned += wire.turn_around();
                bound.check(&core, "turn_around", 32 * 4 * 3000);
            }
            2 => {
                if let Some(length) = wire.take_frame(&mut frame) {
                    assert!(length <= frame.len());
                }
                bound.check(&core, "take_frame", 3000);
            }
            3 => {
                let length = [60, 100, 1500, 9600, 0, 20_000][random.usize(..6)];
                wire.deliver_frame(&vec![7; length]);
                bound.check(&core, "deliver_frame", 3000);
            }
            _ => {
                let room = MAX_SEGMENTS + random.usize(..29);
                polled_in_all += poll_and_read(&mut *wire, &core, &mut bound, room);
            }
        }
    }
    refused += wire.refused();
    println!("{features}: {turned} turned, {polled_in_all} polled, {refused} refused; {:?}", bound.worst);
    assert!(turned + polled_in_all > 1000 && refused > 1000, "{features}: the scribbler does not reach the NIC");
    // A new host is served as if nothing had been.
    core.allow_anything(true);
    let (nic, _) = wire.into_nic().recover(&map, 0, &[]);
    core.allow_anything(false);
    assert_whole(&memory, &map, [], nic.allocator().held());
    let host = host(features, Guard::new(&memory, &map, "successor", Side::Host), &map, 0);
    serves(features, Pair { map, memory, host, nic });
}

#[test]
fn a_host_that_writes_anything_harms_only_itself() {
    for (seed, features) in (1..).zip(all_features()) {
        host_attacks(features, seed);
    }
}

#[test]
fn what_a_nic_holds_while_its_host_dies_the_next_host_cannot_send() {
    for features in [Features::paper(), Features::best()] {
        let Pair { map, memory, mut nic, .. } = Pair::new(features, geometry(16, [64, 64, 4], 0));
        let held = nic.rx_alloc(60).expect("a full pool");
        nic.core().allow_anything(true);
        let (mut nic, _) = nic.recover(&map, 0, &[held]);
        nic.core().allow_anything(false);
        let mut host = host(features, Guard::new(&memory, &map, "successor", Side::Host), &map, 0);
        // A burst of two, so that their payloads do not travel in the ring.
        assert_eq!(host.tx_burst(&[Descriptor::new(held, 60); 2]), 2);
        let mut out = [Descriptor::BLANK; 8];
        assert_eq!((nic.poll_tx(&mut out), nic.faults().never_lent), (0, 2), "{features}: the NIC has it twice");
    }
}

/// Sends three packets that it keeps.
fn send_retained(host: &mut dyn AnyHost<Guard>) {
    let mut at = [Address(0); 3];
    let count = host.buf_alloc(64, &mut at);
    let burst = at.map(|at| Descriptor::new(at, 64).with(Flags::RETAIN));
    let sent = host.tx_burst(&burst[..count]);
    host.buf_free(&at[sent..count]);
}

/// The same from the other side.
fn nic_attacks(features: Features, seed: u64) {
    let (map, memory) = world(features, geometry(16, [16, 32, 4], 1000));
    let mut scribbler = Scribbler::new(memory.core("scribbler"), &map, seed);
    let core = Guard::new(&memory, &map, "host", Side::Host);
    let mut host = host(features, core.clone(), &map, 0);
    let mut random = fastrand::Rng::with_seed(seed + 1);
    let mut bound = Bound::new();
    bound.check(&core, "posting", 1000);
    let mut received = 0;
    let mut accomplice = nic(features, Guard::new(&memory, &map, "accomplice", Side::Nic), &map, 0).wire();
    for step in 0..STEPS {
        if step % RESTART == RESTART - 1 {
            core.allow_anything(true);
            let (recovered, _) = host.recover(&map, 0, &[]);
            core.allow_anything(false);
            host = recovered;
            accomplice = nic(features, Guard::new(&memory, &map, "accomplice", Side::Nic), &map, 0).wire();
            scribbler.steps = 0;
            bound.check(&core, "recovering", 1000);
        }
        scribbler.scribble();
        accomplice.turn_around();
        bound.check(&core, "the others", 0);
        let mut out = [Descriptor::BLANK; 16];
        match random.u8(..4) {
            0 => {
                let room = random.usize(..17);
                let count = host.rx_burst(&mut out[..room]);
                bound.check(&core, "rx_burst", 1500);
                received += count;
                for packet in &out[..count] {
                    assert!(!packet.has(Flags::PHASE | Flags::INLINE | Flags::CONTINUED), "{packet:?}");
                    // What is no buffer is refused here at the latest.
                    host.buf_free(&[packet.address()]);
                }
                bound.check(&core, "buf_free", 1500);
            }
            1 => {
                let length = random.u16(60..160);
                if let Some(packet) = packet(&mut *host, step, length) {
                    bound.check(&core, "buf_alloc", 1500);
                    if host.tx_burst(&[packet]) == 0 {
                        host.buf_free(&[packet.address()]);
                    }
                }
                bound.check(&core, "tx_burst", 1500);
            }
            2 => {
                send_retained(&mut *host);
                bound.check(&core, "tx_burst of retained", 1500);
            }
            _ => {
                let count = host.completions(&mut out);
                out[..count].iter().for_each(|done| host.buf_free(&[done.address()]));
                bound.check(&core, "completions", 1500);
            }
        }
    }
    println!("{features}: {received} received, {:?}; {:?}", host.faults(), bound.worst);
    assert!(received > 1000, "{features}: the scribbler does not reach the host");
    core.allow_anything(true);
    let (host, _) = host.recover(&map, 0, &[]);
    core.allow_anything(false);
    if features.shared_pool {
        assert_whole(&memory, &map, [], host.allocator().held());
    }
    let nic = nic(features, Guard::new(&memory, &map, "successor", Side::Nic), &map, 0);
    serves(features, Pair { map, memory, host, nic });
}

#[test]
fn a_nic_that_writes_anything_does_not_break_the_host() {
    for (seed, features) in (1..).zip(all_features()) {
        nic_attacks(features, seed);
    }
}

/// What a consumer sees whose peer keeps up with it: every slot is full when it looks, and blank when it reads; the tail
/// register is always one further.
struct KeepsUp {
    ring: RingMap,
    looks: Cell<u64>,
}

impl KeepsUp {
    fn look(&self) -> u64 {
        let looks = self.looks.get();
        assert!(looks < 1000, "one call looks {looks} times");
        self.looks.set(looks + 1);
        looks
    }
}

impl Core for KeepsUp {
    fn full_fence(&self) {}
    fn load_acquire(&self, at: Address) -> u64 {
        let look = self.look();
        if at == self.ring.doorbell {
            return look + 1;
        }
        let phase = if look & self.ring.slots == 0 { Flags::PHASE } else { 0 };
        Descriptor::new(Address(0), 0).with(phase).word
    }
    fn store_release(&self, _: Address, _: u64) {}
    fn fetch_and(&self, _: Address, _: u64) -> u64 {
        0
    }
    fn fetch_or(&self, _: Address, _: u64) -> u64 {
        0
    }
    fn compare_exchange(&self, _: Address, _: u64, _: u64) -> Result<u64, u64> {
        Err(0)
    }
    fn load(&self, _: Address) -> u64 {
        0
    }
    fn store(&self, _: Address, _: u64) {}
    fn read_line(&self, _: Address) -> Line {
        Line::ZERO
    }
    fn write_line(&self, _: Address, _: &Line) {}
    fn publish_line(&self, _: Address, _: &Line) {}
    fn read_bytes(&self, _: Address, _: &mut [u8]) {}
    fn write_bytes(&self, _: Address, _: &[u8]) {}
    fn spin(&self) {}
    fn now(&self) -> Time {
        Time::ZERO
    }
}

#[test]
fn a_peer_that_keeps_up_with_blanks_does_not_keep_a_call_from_returning() {
    for features in all_features() {
        let map = Map::new(geometry(64, [64, 64, 4], 0), features).expect("a geometry that can be");
        let ring = map.queues[0].transmit;
        let core = KeepsUp { ring, looks: Cell::new(0) };
        let mut out = [Descriptor::BLANK; 32];
        // In the packed ring the word that was seen full is loaded again, and is what it was.
        let received =
            with_policy!(features, P => Consumer::<P>::new(ring, true, true).receive(&core, &mut out, || None));
        assert!(received <= out.len(), "{features}");
        assert!(core.looks.get() <= 2 * ring.slots + 1, "{features}: it looked {} times", core.looks.get());
    }
}

#[test]
fn a_host_that_has_all_of_a_large_pool_does_not_keep_the_nic_looking_for_buffers() {
    // A thousand words of the free set, in which each bit is gone when it is to be had.
    let map = Map::new(geometry(64, [1 << 16, 0, 0], 0), Features::best()).expect("a geometry that can be");
    let core = KeepsUp { ring: map.queues[0].transmit, looks: Cell::new(0) };
    let mut nic = Nic::<KeepsUp, PhaseCredit>::new(core, &map, 0);
    for _ in 0..4 {
        nic.core().looks.set(0);
        assert_eq!(nic.rx_alloc(60), None);
        let looks = nic.core().looks.get();
        assert!(looks <= 64, "it looked {looks} times");
    }
}

#[test]
fn a_nic_finds_each_buffer_of_a_large_pool_however_few_are_left() {
    let map = Map::new(geometry(64, [1 << 16, 0, 0], 0), Features::best()).expect("a geometry that can be");
    let memory = CrashMemory::new(&map.layout);
    let core = memory.core("host");
    prepare(&core, &map);
    let mut nic = Nic::<_, PhaseCredit>::new(memory.core("nic"), &map, 0);
    let (mut all, mut from) = (vec![Address(0); 1 << 16], 0);
    let count = map.pool.take(&core, true, 0, &mut from, &mut all);
    let left = all[..count].iter().step_by(9001).copied();
    let left: Vec<Address> = left.filter(|&at| map.pool.give_back(&core, true, at)).collect();
    // Each look goes on behind the one before.
    let found = (0..8 * 1024).filter(|_| nic.rx_alloc(60).is_some()).count();
    assert!(left.len() > 5 && found >= left.len(), "{found} of {}", left.len());
}
