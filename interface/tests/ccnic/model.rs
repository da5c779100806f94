//! Any sequence of calls against a model: order and content kept, no buffer with two owners, none lost, retained segments
//! back in order and not before they were read.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

use conic_fabric::{Address, Core};
use conic_interface::ccnic::{Descriptor, Flags, Map, Packing};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::common::*;
use crate::erased::{AnyHost, AnyNic};
use crate::guard::Guard;

/// A call, or a few of the same kind.
#[derive(Clone, Debug)]
enum Call {
    /// Buffers to keep.
    Allocate { bytes: u64, count: usize },
    /// Frees some of the buffers that are kept, from either end.
    Free { count: usize, newest: bool },
    /// A burst of packets of some length, each of so many segments, the last of which may be retained.
    Send { packets: usize, length: u16, segments: usize, retain: bool },
    /// Receives with so much room.
    Receive { room: usize },
    /// Takes completions with so much room.
    Complete { room: usize },
    /// The NIC polls with so much room.
    Poll { room: usize },
    /// The NIC completes everything it polled.
    Release,
    /// The NIC delivers up to so many frames, and gives back the buffers of those that find no room.
    Deliver { frames: usize },
}

fn call(longest: u16) -> impl Strategy<Value = Call> {
    let length = prop_oneof![4 => 1..=128u16, 2 => 60..=1514u16, 1 => 1..=longest];
    let room = prop_oneof![1..=3usize, 1..=64usize];
    prop_oneof![
        1 => (60..=9600u64, 1..12usize).prop_map(|(bytes, count)| Call::Allocate { bytes, count }),
        2 => (0..40usize, any::<bool>()).prop_map(|(count, newest)| Call::Free { count, newest }),
        6 => (0..=70usize, length, prop_oneof![3 => Just(1), 1 => 2..=4usize], any::<bool>())
            .prop_map(|(packets, length, segments, retain)| Call::Send { packets, length, segments, retain }),
        2 => length_of_one().prop_map(|length| Call::Send { packets: 1, length, segments: 1, retain: false }),
        6 => room.prop_map(|room| Call::Receive { room }),
        2 => (1..20usize).prop_map(|room| Call::Complete { room }),
        6 => (4..40usize).prop_map(|room| Call::Poll { room }),
        5 => Just(Call::Release),
        6 => (1..40usize).prop_map(|frames| Call::Deliver { frames }),
    ]
}

/// Lengths of packets sent alone: around what fits in one line and in two.
fn length_of_one() -> impl Strategy<Value = u16> {
    prop_oneof![1..=110u16, Just(48), Just(49), Just(56), Just(57), Just(104), Just(105)]
}

/// What the calls met, to be sure that they meet everything.
#[derive(Debug, Default)]
struct Met {
    full_ring: Cell<u64>,
    dry_pool: Cell<u64>,
    full_receive_ring: Cell<u64>,
    packets: Cell<u64>,
    retained: Cell<u64>,
    chains: Cell<u64>,
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

/// What must be so.
struct Model<'a> {
    pair: Pair,
    met: &'a Met,
    next: u64,
    /// Lengths of the packets sent, by number, that the NIC has not polled; each a list of its segments.
    sent: VecDeque<(u64, Vec<u16>)>,
    /// Frames that the NIC has polled and not delivered.
    frames: VecDeque<(u64, Vec<u8>)>,
    /// Frames delivered and not received.
    delivered: VecDeque<(u64, usize)>,
    /// Polled and not completed.
    polled: Vec<Descriptor>,
    /// Sent with `RETAIN` and not come back.
    retained: VecDeque<(Address, u16)>,
    /// Buffers that the application owns, in the order it got them.
    kept: VecDeque<Address>,
    /// Those, and what is retained: nobody else may have them.
    owned: BTreeSet<Address>,
}

impl<'a> Model<'a> {
    fn new(map: Map, met: &'a Met) -> Model<'a> {
        Model {
            pair: Pair::of(map),
            met,
            next: 0,
            sent: VecDeque::new(),
            frames: VecDeque::new(),
            delivered: VecDeque::new(),
            polled: Vec::new(),
            retained: VecDeque::new(),
            kept: VecDeque::new(),
            owned: BTreeSet::new(),
        }
    }

    fn host(&mut self) -> &mut dyn AnyHost<Guard> {
        &mut *self.pair.host
    }

    fn nic(&mut self) -> &mut dyn AnyNic<Guard> {
        &mut *self.pair.nic
    }

    fn map(&self) -> &Map {
        &self.pair.map
    }

    fn own(&mut self, at: Address) {
        let buffer = buffer_of(&self.map().pool, at);
        assert!(self.owned.insert(buffer), "{at} was handed out twice");
    }

    fn disown(&mut self, at: Address) {
        let buffer = buffer_of(&self.map().pool, at);
        assert!(self.owned.remove(&buffer), "{at} was not the application's");
    }

    fn allocate(&mut self, bytes: u64) -> Option<Address> {
        let mut at = [Address(0)];
        if self.host().buf_alloc(bytes, &mut at) == 0 {
            count(&self.met.dry_pool);
            return None;
        }
        let start = buffer_of(&self.map().pool, at[0]);
        assert!(at[0] == start && self.map().pool.size_of(start) >= bytes, "{at:?} is no buffer for {bytes} bytes");
        self.own(at[0]);
        Some(at[0])
    }

    fn free(&mut self, at: Address) {
        self.disown(at);
        self.host().buf_free(&[at]);
    }

    /// Writes a packet's segments; none if the pool runs dry.
    fn write(&mut self, number: u64, length: u16, segments: usize, retain: bool) -> Option<Vec<Descriptor>> {
        let mut packet = Vec::new();
        for index in 0..segments {
            let Some(at) = self.allocate(u64::from(length)) else {
                packet.iter().for_each(|segment: &Descriptor| self.free(segment.address()));
                return None;
            };
            // Not every payload begins at its buffer's start.
            let space = self.map().pool.size_of(at) - u64::from(length);
            let at = at + space.min(number % 3 * 8 + number % 2);
            write(self.host().core(), at, number << 3 | index as u64, length);
            let last = index + 1 == segments;
            let flags = if last && retain { Flags::RETAIN } else { 0 } | if last { 0 } else { Flags::NEXT };
            packet.push(Descriptor::new(at, length).with(flags).with_metadata(number));
        }
        Some(packet)
    }

    fn send(&mut self, packets: usize, length: u16, segments: usize, retain: bool) {
        let mut burst = Vec::new();
        for number in self.next..self.next + packets as u64 {
            let Some(packet) = self.write(number, length, segments, retain) else { break };
            burst.extend(packet);
        }
        let taken = self.host().tx_burst(&burst);
        assert!(taken <= burst.len() && taken % segments == 0, "a packet was taken in part");
        if taken < burst.len() {
            count(&self.met.full_ring);
        }
        for packet in burst[..taken].chunks(segments) {
            self.sent.push_back((self.next, packet.iter().map(|segment| segment.length()).collect()));
            self.next += 1;
            count(&self.met.packets);
            self.met.chains.set(self.met.chains.get() + u64::from(segments > 1));
            for segment in packet {
                if segment.has(Flags::RETAIN) {
                    self.retained.push_back((segment.address(), length));
                    count(&self.met.retained);
                } else {
                    self.disown(segment.address());
                }
            }
        }
        for segment in &burst[taken..] {
            self.free(segment.address());
        }
    }

    fn receive(&mut self, room: usize) -> usize {
        let mut out = vec![Descriptor::BLANK; room];
        let count = self.host().rx_burst(&mut out);
        for packet in &out[..count] {
            let (number, length) = self.delivered.pop_front().expect("no more than was delivered");
            assert_eq!((packet.metadata, usize::from(packet.length())), (number, length));
            assert_eq!(*packet, Descriptor::new(packet.address(), packet.length()).with_metadata(number));
            verify(self.host().core(), packet.address(), number << 3, packet.length());
            self.own(packet.address());
            self.kept.push_back(packet.address());
        }
        count
    }

    fn complete(&mut self, room: usize) -> usize {
        let mut out = vec![Descriptor::BLANK; room];
        let count = self.host().completions(&mut out);
        for done in &out[..count] {
            let (at, length) = self.retained.pop_front().expect("no more than was retained");
            assert_eq!((done.address(), done.length()), (at, length));
            // Ours again, to be written; if the NIC still read it, it would notice.
            write(self.host().core(), at, u64::MAX >> 9, length);
            self.free(at);
        }
        count
    }

    fn poll(&mut self, room: usize) -> usize {
        let mut out = vec![Descriptor::BLANK; room];
        let count = self.nic().poll_tx(&mut out);
        for packet in out[..count].chunk_by(|before, _| before.has(Flags::NEXT)) {
            let (number, lengths) = self.sent.pop_front().expect("no more than was sent");
            let polled: Vec<_> = packet.iter().map(|segment| segment.length()).collect();
            assert_eq!((packet[0].metadata, &polled), (number, &lengths));
            for (index, segment) in packet.iter().enumerate() {
                assert!(!segment.has(Flags::PHASE | Flags::INLINE | Flags::CONTINUED), "{segment:?}");
                verify(self.nic().core(), segment.address(), number << 3 | index as u64, segment.length());
            }
            // A wire would put the segments one behind the other; this one delivers the first, which tells as much.
            self.frames.push_back((number, bytes(number << 3, usize::from(lengths[0]))));
        }
        self.polled.extend_from_slice(&out[..count]);
        count
    }

    fn release(&mut self) {
        for segment in &self.polled {
            if segment.has(Flags::RETAIN) {
                // Until now it was the NIC's to read.
                let (at, length) = (segment.address(), segment.length());
                let index = self.polled.iter().filter(|other| other.metadata == segment.metadata).count() as u64 - 1;
                verify(self.pair.nic.core(), at, segment.metadata << 3 | index, length);
            }
        }
        let polled = std::mem::take(&mut self.polled);
        self.nic().complete_tx(&polled);
    }

    fn deliver(&mut self, most: usize) -> usize {
        let mut packets = Vec::new();
        for index in 0..most.min(self.frames.len()) {
            let (number, frame) = self.frames[index].clone();
            let Some(at) = self.nic().rx_alloc(frame.len() as u64) else {
                count(&self.met.dry_pool);
                break;
            };
            assert!(!self.owned.contains(&buffer_of(&self.map().pool, at)), "{at} is the application's");
            self.nic().core().write_bytes(at, &frame);
            packets.push(Descriptor::new(at, frame.len() as u16).with_metadata(number));
        }
        let taken = self.nic().rx_burst(&packets);
        if taken < packets.len() {
            count(&self.met.full_receive_ring);
        }
        for packet in &packets[taken..] {
            self.nic().rx_free(packet.address());
        }
        for (number, frame) in self.frames.drain(..taken) {
            self.delivered.push_back((number, frame.len()));
        }
        taken
    }

    fn apply(&mut self, call: &Call) {
        match *call {
            Call::Allocate { bytes, count } => {
                for _ in 0..count {
                    if let Some(at) = self.allocate(bytes) {
                        self.kept.push_back(at);
                    }
                }
            }
            Call::Free { count, newest } => {
                for _ in 0..count {
                    let one = if newest { self.kept.pop_back() } else { self.kept.pop_front() };
                    one.into_iter().for_each(|at| self.free(at));
                }
            }
            Call::Send { packets, length, segments, retain } => self.send(packets, length, segments, retain),
            Call::Receive { room } => _ = self.receive(room),
            Call::Complete { room } => _ = self.complete(room),
            Call::Poll { room } => _ = self.poll(room),
            Call::Release => self.release(),
            Call::Deliver { frames } => _ = self.deliver(frames),
        }
    }

    /// Lets everything arrive, frees it all, and accounts for every buffer.
    fn finish(mut self) {
        for round in 0.. {
            while let Some(at) = self.kept.pop_front() {
                self.free(at);
            }
            let mut progress = self.poll(16);
            self.release();
            progress += self.deliver(16) + self.receive(16) + self.complete(16);
            let waiting = self.sent.len() + self.frames.len() + self.delivered.len() + self.retained.len();
            if waiting == 0 && progress == 0 {
                break;
            }
            assert!(round < 10_000, "{waiting} packets wait for ever");
        }
        assert!(self.owned.is_empty());
        assert_eq!(self.host().faults(), Default::default());
        assert_eq!(self.nic().faults().total(), 0, "{:?}", self.pair.nic.faults());
        if self.map().features.shared_pool {
            self.host().drain();
            self.nic().drain();
            assert_whole(&self.pair.memory, &self.pair.map, [], [0; 3]);
        } else {
            // What the host has posted is with the NIC; the NIC's death brings it back.
            let Pair { map, memory, host, nic } = self.pair;
            drop(nic);
            host.core().allow_anything(true);
            let free: u64 = map.pool.free(&memory.core("accountant")).iter().sum();
            let stacked: u64 = host.allocator().held().iter().sum();
            let (mut host, lost) = host.recover(&map, 0, &[]);
            let all: u64 = map.geometry.buffers.iter().sum();
            assert_eq!(free + stacked + lost, all);
            // Of grouped descriptors there are two slots at least.
            let grouped = map.features.packing == Packing::Grouped;
            let posted = map.geometry.descriptors.max(if grouped { 8 } else { 0 });
            assert!(lost <= posted, "{lost} buffers are not where they should be");
            host.drain();
        }
    }
}

#[test]
fn any_sequence_of_calls_keeps_order_content_and_buffers() {
    let met = Met::default();
    for (seed, features) in (1..).zip(all_features()) {
        // What the host posts where it manages the pool alone holds 4 KiB, and is taken from the large buffers.
        let longest = if features.shared_pool { 9600 } else { 4096 };
        let descriptors = prop_oneof![Just(4u64), Just(8), Just(16), Just(64)];
        let plenty = if features.shared_pool { 16 } else { 128 };
        let buffers =
            prop_oneof![Just([16, plenty, 4]), Just([64, 128, 8]), Just([256, 256, 16]), Just([1, plenty, 16])];
        let calls = prop::collection::vec(call(longest), 1..250);
        let config =
            Config { cases: 24, failure_persistence: None, rng_seed: RngSeed::Fixed(seed), ..Config::default() };
        let result = TestRunner::new(config).run(&(descriptors, buffers, any::<bool>(), calls), |asked| {
            let (descriptors, buffers, metadata, calls) = asked;
            // With metadata in front of the buffers all is as without, and the NIC leaves them alone.
            let lay_out = if metadata { Map::with_metadata } else { Map::new };
            let map = lay_out(geometry(descriptors, buffers, 0), features).expect("a geometry that can be");
            let mut model = Model::new(map, &met);
            calls.iter().for_each(|call| model.apply(call));
            model.finish();
            Ok(())
        });
        if let Err(failure) = result {
            panic!("{features}: {failure}");
        }
    }
    println!("{met:?}");
    assert!(met.packets.get() > 50_000, "{met:?}");
    for often in [&met.full_ring, &met.dry_pool, &met.full_receive_ring, &met.retained, &met.chains] {
        assert!(often.get() > 1_000, "{met:?}");
    }
}
