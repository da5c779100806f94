//! Packets of several segments on the ring, some of them kept by their sender: against a model, and from hosts that keep to no rule.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};

use crate::common::{Agent, Memory, bytes, replayed};
use conic_fabric::{
    Address, Core, Device, Home, LINE_BYTES, Layout, PlayedByCore, ReadTag, StateHint, SynchronisingWords, Time,
};
use conic_interface::buffer_metadata;
use conic_interface::burst::{HostQueue, NicQueue, Packet};
use conic_interface::ccnic::{Flags, MAX_SEGMENTS};
use conic_interface::ring::{Host, Nic, QueuePair, Refusals, Shape, Wire};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Bytes that a buffer has room for.
const ROOM: u64 = 256;
/// Bytes of the program's own memory.
const OBJECT_BYTES: u64 = 16384;
/// Buffers that the program keeps, and sends from again and again.
const KEPT: usize = 3;
/// Bytes of the longest packet.
const LONGEST: u64 = 9600;
/// The goes-on bit of a descriptor's second word.
const MORE: u64 = 1 << 32;

fn shape(descriptors: u64) -> Shape {
    Shape {
        descriptors,
        buffers: 4 * descriptors,
        buffer_bytes: ROOM,
        tx_reclaim_threshold: 2,
        rx_refill_threshold: 2,
        ..Shape::default()
    }
}

/// A queue pair with objects, a layout, and where the objects start.
fn place(shape: Shape) -> (QueuePair, Layout, Address) {
    let mut layout = Layout::new();
    let objects = layout.add("objects", OBJECT_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let pair = shape.place(&mut layout).expect("a shape that can be").with_objects(objects, OBJECT_BYTES);
    (pair, layout, objects)
}

fn start_of(layout: &Layout, name: &str) -> Address {
    layout.segments().iter().find(|segment| segment.name == name).expect("a segment of that name").start
}

/// What a device did, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Started,
    Finished,
    /// Wrote the TX head.
    Head(u64),
}

/// A device that writes down its reads of payloads, and when it moves the TX head.
struct Recording<'all> {
    device: PlayedByCore<Agent<'all>>,
    ring: (Address, Address),
    tx_head: Address,
    did: &'all RefCell<Vec<Did>>,
}

impl<'all> Recording<'all> {
    fn new(memory: &'all Memory, layout: &Layout, did: &'all RefCell<Vec<Did>>) -> Recording<'all> {
        let ring = layout.segments().iter().find(|segment| segment.name == "ring TX descriptors").expect("a ring");
        let tx_head = start_of(layout, "ring TX head");
        Recording { device: PlayedByCore(memory.agent(1)), ring: (ring.start, ring.end()), tx_head, did }
    }

    fn note(&self, at: Address, did: Did) {
        if at < self.ring.0 || at >= self.ring.1 {
            self.did.borrow_mut().push(did);
        }
    }
}

impl Device for Recording<'_> {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        self.note(at, Did::Started);
        self.device.start_read(at, bytes, hint)
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.device.is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        self.note(at, Did::Finished);
        self.device.finish_read(tag, at, into);
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        self.device.read_word(at, hint)
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        self.device.write(at, from, hint);
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        if at == self.tx_head {
            self.did.borrow_mut().push(Did::Head(value));
        }
        self.device.write_word(at, value, hint);
    }
    fn own_register(&self, at: Address) -> u64 {
        self.device.own_register(at)
    }
    fn spin(&self) {
        self.device.spin();
    }
    fn now(&self) -> Time {
        self.device.now()
    }
}

/// A segment: at an offset of a buffer that is given away, in one that is kept, or at an offset of the objects; and its bytes.
#[derive(Clone, Copy, Debug)]
enum Part {
    Given(u16, u16),
    Kept(usize, u16),
    Object(u16, u16),
}

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        3 => (1..=ROOM as u16).prop_map(|length| Part::Given(0, length)),
        2 => (0..ROOM as u16, 1..=ROOM as u16).prop_map(|(at, length)| Part::Given(at, length.min(ROOM as u16 - at))),
        2 => (0..KEPT, 1..=ROOM as u16).prop_map(|(which, length)| Part::Kept(which, length)),
        3 => (0..OBJECT_BYTES as u16 - 300, 1..=300u16).prop_map(|(at, length)| Part::Object(at, length)),
        1 => (0..OBJECT_BYTES as u16 - 3000, 1..=3000u16).prop_map(|(at, length)| Part::Object(at, length)),
    ]
}

#[derive(Clone, Debug)]
enum Call {
    /// Packets, each of its segments.
    Send(Vec<Vec<Part>>),
    Take(usize),
    Flush,
    Reclaim,
}

fn any_call() -> impl Strategy<Value = Call> {
    let packet = prop::collection::vec(any_part(), 1..=MAX_SEGMENTS).prop_filter("no longer than may be", |parts| {
        let length = |part: &Part| match *part {
            Part::Given(_, length) | Part::Kept(_, length) | Part::Object(_, length) => u64::from(length),
        };
        parts.iter().map(length).sum::<u64>() <= LONGEST
    });
    prop_oneof![
        5 => prop::collection::vec(packet, 1..=12).prop_map(Call::Send),
        4 => (1..=24usize).prop_map(Call::Take),
        2 => Just(Call::Flush),
        1 => Just(Call::Reclaim),
    ]
}

/// How often what is rare came about.
#[derive(Debug, Default)]
struct Seen {
    /// A burst that was not taken whole.
    full: Cell<u64>,
    /// A packet whose descriptors came in two batches.
    straddled: Cell<u64>,
    /// A packet longer than a buffer.
    long: Cell<u64>,
}

fn count(seen: &Cell<u64>) {
    seen.set(seen.get() + 1);
}

/// A host that sends, and a device that takes, beside what it should find.
struct Pair<'all> {
    host: Host<Agent<'all>>,
    nic: Nic<Recording<'all>>,
    objects: Address,
    kept: Vec<Address>,
    model: VecDeque<Vec<u8>>,
    into: Vec<u8>,
    seed: u64,
    seen: &'all Seen,
}

impl Pair<'_> {
    /// Sends packets, as many as buffers and descriptors allow.
    fn send(&mut self, packets: &[Vec<Part>]) {
        let (mut segments, mut whole) = (Vec::new(), Vec::new());
        for parts in packets {
            let Some((descriptors, content)) = self.write(parts) else { break };
            segments.extend(descriptors);
            whole.push((segments.len(), content));
        }
        let sent = HostQueue::tx_burst(&mut self.host, &segments);
        let taken = whole.iter().filter(|(end, _)| *end <= sent).count();
        assert_eq!(taken.checked_sub(1).map_or(0, |last| whole[last].0), sent, "a packet is taken whole or not at all");
        if sent < segments.len() {
            count(&self.seen.full);
        }
        self.model.extend(whole.into_iter().take(taken).map(|(_, content)| content));
        let left = segments[sent..].iter().filter(|segment| !segment.has(Flags::RETAIN));
        HostQueue::buf_free(&mut self.host, &left.map(|segment| segment.address()).collect::<Vec<_>>());
    }

    /// Allocates so many buffers, or none; never one that is kept.
    fn allocate(&mut self, wanted: usize) -> Option<Vec<Address>> {
        let mut buffers = vec![Address(0); wanted];
        let count = HostQueue::buf_alloc(&mut self.host, ROOM, &mut buffers);
        assert!(buffers[..count].iter().all(|at| !self.kept.contains(at)), "a buffer that the program keeps");
        if count < wanted {
            HostQueue::buf_free(&mut self.host, &buffers[..count]);
            return None;
        }
        Some(buffers)
    }

    /// Writes a packet's segments, if there are buffers for them.
    fn write(&mut self, parts: &[Part]) -> Option<(Vec<Packet>, Vec<u8>)> {
        let given = parts.iter().filter(|part| matches!(part, Part::Given(..))).count();
        let mut buffers = self.allocate(given)?;
        let (mut segments, mut content) = (Vec::new(), Vec::new());
        for part in parts {
            let core = self.host.core();
            let segment = match *part {
                Part::Given(offset, length) => {
                    let at = buffers.pop()? + u64::from(offset);
                    core.write_bytes(at, &bytes(self.seed, length.into()));
                    self.seed += 1;
                    Packet::new(at, length)
                }
                Part::Kept(which, length) => Packet::new(self.kept[which], length).with(Flags::RETAIN),
                Part::Object(at, length) => Packet::new(self.objects + u64::from(at), length).with(Flags::RETAIN),
            };
            let from = content.len();
            content.resize(from + usize::from(segment.length()), 0);
            core.read_bytes(segment.address(), &mut content[from..]);
            segments.push(segment);
        }
        let last = segments.len() - 1;
        segments[..last].iter_mut().for_each(|segment| *segment = segment.with(Flags::NEXT));
        Some((segments, content))
    }

    /// Takes up to so many packets.
    fn take(&mut self, most: usize) {
        let mut taken = 0;
        while taken < most && self.nic.poll_tx() != 0 {
            let expected = self.nic.next_tx_length();
            let length = self.nic.take_tx(&mut self.into);
            assert_eq!(length, expected);
            match length {
                Some(length) => {
                    assert_eq!(Some(&self.into[..length]), self.model.pop_front().as_deref());
                    taken += 1;
                    if length as u64 > ROOM {
                        count(&self.seen.long);
                    }
                }
                None => count(&self.seen.straddled),
            }
        }
    }
}

/// The TX head never passed a segment whose read had not finished.
fn head_follows_reads(did: &[Did], descriptors: u64) {
    let (mut finished, mut passed, mut head) = (0, 0, 0);
    for step in did {
        match *step {
            Did::Started => {}
            Did::Finished => finished += 1,
            Did::Head(next) => {
                passed += next.wrapping_sub(head) & (descriptors - 1);
                head = next;
                assert!(passed <= finished, "the head passed {passed} segments, {finished} were read");
            }
        }
    }
    assert_eq!(passed, finished);
}

/// Makes the calls, then takes what is left, and looks whether all of it came and everything is back.
fn run(shape: Shape, calls: &[Call], seen: &Seen) {
    let (queues, layout, objects) = place(shape);
    let (memory, did) = (Memory::new(&layout), RefCell::default());
    let mut host = queues.host(memory.agent(0));
    let mut kept = vec![Address(0); KEPT];
    assert_eq!(HostQueue::buf_alloc(&mut host, ROOM, &mut kept), KEPT);
    let core = *host.core();
    core.write_bytes(objects, &bytes(u64::MAX, OBJECT_BYTES as usize));
    // With what is in front of them: the metadata, where there are any.
    let own = |at: &Address| match shape.metadata {
        true => (Address(at.0 - buffer_metadata::BYTES), buffer_metadata::BYTES + ROOM),
        false => (*at, ROOM),
    };
    let owned: Vec<_> = kept.iter().map(own).chain([(objects, OBJECT_BYTES)]).collect();
    let contents = |core: &Agent<'_>| -> Vec<Vec<u8>> {
        let read = |&(at, length): &(Address, u64)| {
            let mut content = vec![0; length as usize];
            core.read_bytes(at, &mut content);
            content
        };
        owned.iter().map(read).collect()
    };
    owned[..KEPT].iter().for_each(|&(at, length)| core.write_bytes(at, &bytes(at.0, length as usize)));
    let before = contents(&core);
    let nic = queues.nic(Recording::new(&memory, &layout, &did));
    let (model, into) = (VecDeque::new(), vec![0; LONGEST as usize]);
    let mut pair = Pair { host, nic, objects, kept, model, into, seed: 0, seen };
    for call in calls {
        match call {
            Call::Send(packets) => pair.send(packets),
            Call::Take(count) => pair.take(*count),
            Call::Flush => _ = pair.nic.flush(),
            Call::Reclaim => _ = pair.host.reclaim(),
        }
    }
    pair.take(usize::MAX);
    assert!(pair.model.is_empty(), "{} packets did not come", pair.model.len());
    pair.nic.flush();
    head_follows_reads(&did.borrow(), shape.descriptors);
    pair.host.reclaim();
    assert_eq!(contents(&core), before, "somebody wrote what the program kept");
    let posted = shape.descriptors as usize - 1;
    assert_eq!(pair.host.device_buffers(), posted);
    assert_eq!(pair.host.free_buffers() + posted + KEPT, shape.buffers as usize);
    HostQueue::buf_free(&mut pair.host, &pair.kept);
    let mut all = vec![Address(0); shape.buffers as usize];
    let free = HostQueue::buf_alloc(&mut pair.host, ROOM, &mut all);
    let first = start_of(&layout, "ring buffers") + (shape.buffer_bytes - shape.room());
    let begins = |at: &&Address| (at.0 - first.0).is_multiple_of(shape.buffer_bytes);
    let buffers = all[..free].iter().filter(begins).collect::<BTreeSet<_>>();
    assert_eq!(buffers.len() + posted, shape.buffers as usize, "a buffer twice, or a part of one");
    assert_eq!(pair.host.statistics(), Default::default());
    assert_eq!(pair.nic.refusals(), Refusals::default());
}

#[test]
fn packets_come_whole_and_in_order_and_retained_segments_stay_the_programs() {
    let strategy = (
        prop::sample::select(&[4u64, 8, 16, 64, 128][..]),
        prop::sample::select(&[0u64, 100, 1 << 20][..]),
        any::<bool>(),
        prop::collection::vec(any_call(), 0..60),
    );
    let seen = Seen::default();
    let result = TestRunner::new(replayed(1000)).run(&strategy, |(descriptors, read_ahead_bytes, metadata, calls)| {
        let shape = Shape { read_ahead_bytes, ..shape(descriptors) };
        run(if metadata { shape.with_metadata(ROOM) } else { shape }, &calls, &seen);
        Ok(())
    });
    result.expect("each case passes");
    // Otherwise the test would be of less than it says.
    for often in [&seen.full, &seen.straddled, &seen.long] {
        assert!(often.get() > 1000, "{seen:?}");
    }
}

#[test]
fn what_lies_in_no_buffer_never_enters_the_pool() {
    let (queues, layout, objects) = place(shape(8));
    let memory = Memory::new(&layout);
    let (mut host, mut nic) = (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))));
    let mut buffer = [Address(0)];
    assert_eq!(HostQueue::buf_alloc(&mut host, ROOM, &mut buffer), 1);
    let free = host.free_buffers();
    // An object that is sent, and not retained; and addresses of nothing.
    assert_eq!(HostQueue::tx_burst(&mut host, &[Packet::new(objects, 10)]), 1);
    assert_eq!((nic.poll_tx(), nic.take_tx(&mut [0; 64]), nic.flush()), (1, Some(10), true));
    assert_eq!((host.reclaim(), host.free_buffers(), host.statistics().refused_frees), (0, free, 1));
    let end = layout.bytes();
    HostQueue::buf_free(&mut host, &[Address(0), objects, Address(end), Address(u64::MAX)]);
    assert_eq!((host.free_buffers(), host.statistics().refused_frees), (free, 5));
    HostQueue::buf_free(&mut host, &[buffer[0] + (ROOM - 1)]);
    assert_eq!((host.free_buffers(), host.statistics().refused_frees), (free + 1, 5));
}

#[test]
fn a_packet_is_taken_whole_or_not_at_all() {
    let (queues, layout, objects) = place(shape(8));
    let memory = Memory::new(&layout);
    let (mut host, mut nic) = (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))));
    let of = |segments: usize| -> Vec<Packet> {
        let segment = Packet::new(objects, 10).with(Flags::RETAIN);
        (1..=segments).map(|index| if index < segments { segment.with(Flags::NEXT) } else { segment }).collect()
    };
    // Seven descriptors.
    assert_eq!(HostQueue::tx_burst(&mut host, &[of(4), of(4)].concat()), 4);
    assert_eq!(HostQueue::tx_burst(&mut host, &of(4)), 0);
    // One whose last segment is missing stays the caller's too.
    assert_eq!(HostQueue::tx_burst(&mut host, &of(4)[..2]), 0);
    assert_eq!(HostQueue::tx_burst(&mut host, &[of(2), of(2)].concat()), 2);
    assert_eq!(HostQueue::tx_burst(&mut host, &[of(1), of(1)].concat()), 1);
    let mut packet = [0; 64];
    for length in [40, 20, 10] {
        assert!(nic.poll_tx() > 0);
        assert_eq!(nic.take_tx(&mut packet), Some(length));
    }
    assert_eq!((nic.poll_tx(), nic.flush()), (0, true));
    assert_eq!(HostQueue::tx_burst(&mut host, &[of(4), of(3), of(1)].concat()), 7);
}

#[test]
fn payloads_of_all_segments_are_asked_for_before_the_first_is_taken() {
    let (queues, layout, objects) = place(shape(8));
    let (memory, did) = (Memory::new(&layout), RefCell::default());
    let mut host = queues.host(memory.agent(0));
    let mut nic = queues.nic(Recording::new(&memory, &layout, &did));
    let segment = Packet::new(objects, 100).with(Flags::RETAIN);
    let packet = [segment.with(Flags::NEXT), segment.with(Flags::NEXT), segment.with(Flags::NEXT), segment, segment];
    assert_eq!(HostQueue::tx_burst(&mut host, &packet), 5);
    assert_eq!(nic.poll_tx(), 5);
    assert_eq!(did.take(), [Did::Started; 5]);
    assert_eq!((nic.next_tx_length(), nic.take_tx(&mut [0; 400])), (Some(400), Some(400)));
    assert_eq!(did.take(), [Did::Finished; 4]);
    assert_eq!((nic.flush(), did.take()), (true, vec![Did::Head(4)]));
}

#[test]
fn a_packet_whose_descriptors_come_in_two_batches_goes_on_where_it_was() {
    let (queues, layout, objects) = place(shape(64));
    let memory = Memory::new(&layout);
    let (mut host, mut nic) = (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))));
    host.core().write_bytes(objects, &bytes(0, 100));
    // A batch has 32 descriptors: the last two of the first one, and the first two of the second.
    let part = |from: u64| Packet::new(objects + 25 * from, 25).with(Flags::RETAIN);
    let long = [part(0).with(Flags::NEXT), part(1).with(Flags::NEXT), part(2).with(Flags::NEXT), part(3)];
    let packets: Vec<_> = std::iter::repeat_n(part(0), 30).chain(long).chain([part(2)]).collect();
    assert_eq!(HostQueue::tx_burst(&mut host, &packets), 35);
    assert_eq!(nic.poll_tx(), 32);
    let mut packet = [0; 100];
    (0..30).for_each(|_| assert_eq!(nic.take_tx(&mut packet), Some(25)));
    assert_eq!((nic.next_tx_length(), nic.take_tx(&mut packet)), (None, None));
    // What was read of it may be reused already.
    assert!(nic.flush());
    assert_eq!(memory.peek(start_of(&layout, "ring TX head")), 32);
    assert_eq!(nic.poll_tx(), 3);
    assert_eq!((nic.next_tx_length(), nic.take_tx(&mut packet)), (Some(100), Some(100)));
    assert_eq!(packet[..], bytes(0, 100));
    assert_eq!((nic.next_tx_length(), nic.take_tx(&mut packet)), (Some(25), Some(25)));
}

#[test]
fn a_wire_turns_segments_into_one_packet_and_drops_what_no_buffer_holds() {
    let (queues, layout, objects) = place(shape(8));
    let memory = Memory::new(&layout);
    let mut host = queues.host(memory.agent(0));
    let mut wire = Wire::new(queues.nic(PlayedByCore(memory.agent(1))), queues.shape());
    host.core().write_bytes(objects, &bytes(0, 1000));
    let packet = |lengths: [u16; 2]| {
        let first = Packet::new(objects + 3, lengths[0]).with(Flags::RETAIN);
        [first.with(Flags::NEXT), Packet::new(objects + 500, lengths[1]).with(Flags::RETAIN)]
    };
    let sent = [packet([20, 200]), packet([20, 237]), packet([1, 255])].concat();
    assert_eq!((HostQueue::tx_burst(&mut host, &sent), wire.turn_around()), (6, 3));
    let mut received = [Packet::BLANK; 4];
    assert_eq!(HostQueue::rx_burst(&mut host, &mut received), 2);
    for (received, lengths) in received.iter().zip([[20, 200], [1, 255]]) {
        let mut content = vec![0; usize::from(received.length())];
        host.core().read_bytes(received.address(), &mut content);
        let of = |from: usize, length: u16| bytes(0, 1000)[from..from + usize::from(length)].to_vec();
        assert_eq!(content, [of(3, lengths[0]), of(500, lengths[1])].concat());
    }
    assert_eq!((wire.dropped(), wire.refused()), (1, 0));
    // Who only takes frames may have longer ones.
    assert_eq!(HostQueue::tx_burst(&mut host, &packet([300, 400])), 2);
    let mut frame = [0; 700];
    assert_eq!((wire.take_frame(&mut frame), wire.take_frame(&mut frame)), (Some(700), None));
    assert_eq!(frame[300..], bytes(0, 1000)[500..900]);
}

/// Which words a hostile host may write, and what the device should make of them.
struct Reference {
    buffers: (u64, u64),
    objects: (u64, u64),
}

impl Reference {
    fn of(layout: &Layout) -> Reference {
        let range = |name: &str| {
            let segment = layout.segments().iter().find(|segment| segment.name == name).expect("a segment");
            (segment.start.0, segment.end().0)
        };
        Reference { buffers: range("ring buffers"), objects: range("objects") }
    }

    /// Whether a segment is refused, and then whether by its length.
    fn refuses(&self, address: u64, length: u64) -> Option<bool> {
        // In numbers that do not overflow.
        let lies_in =
            |(start, end): (u64, u64)| address >= start && u128::from(address) + u128::from(length) <= end.into();
        if length == 0 || length > LONGEST {
            return Some(true);
        }
        let good = lies_in(self.objects) || lies_in(self.buffers) && length <= ROOM;
        (!good).then_some(length > ROOM)
    }

    /// What comes of descriptors that are announced together: the packets' lengths, and what is refused.
    fn packets(&self, descriptors: &[[u64; 2]], refused: &mut Refusals) -> Vec<Vec<(u64, usize)>> {
        let mut sent = Vec::new();
        for packet in descriptors.split_inclusive(|words| words[1] & MORE == 0) {
            let (mut segments, mut bad, mut total) = (Vec::new(), None, 0);
            for (index, words) in packet.iter().enumerate() {
                let length = words[1] & !MORE;
                total += u128::from(length);
                let too_much = index >= MAX_SEGMENTS || total > LONGEST.into();
                bad = bad.or(self.refuses(words[0], length).or(too_much.then_some(true)));
                segments.push((words[0], length as usize));
            }
            let ends = packet.last().is_some_and(|words| words[1] & MORE == 0);
            match bad.or((!ends).then_some(true)) {
                None => sent.push(segments),
                Some(true) => refused.tx_length += 1,
                Some(false) => refused.tx_address += 1,
            }
        }
        sent
    }
}

/// A host that writes what it likes, and the device that it writes it for.
struct Hostile<'all> {
    core: Agent<'all>,
    nic: Nic<PlayedByCore<Agent<'all>>>,
    ring: Address,
    tail: Address,
    head: Address,
    descriptors: u64,
    written: u64,
}

impl<'all> Hostile<'all> {
    fn new(queues: QueuePair, layout: &Layout, memory: &'all Memory) -> Hostile<'all> {
        let core = memory.agent(0);
        for (name, seed) in [("objects", 1), ("ring buffers", 2)] {
            let segment = layout.segments().iter().find(|segment| segment.name == name).expect("a segment");
            core.write_bytes(segment.start, &bytes(seed, segment.bytes as usize));
        }
        Hostile {
            core,
            nic: queues.nic(PlayedByCore(memory.agent(1))),
            ring: start_of(layout, "ring TX descriptors"),
            tail: start_of(layout, "ring TX tail"),
            head: start_of(layout, "ring TX head"),
            descriptors: queues.shape().descriptors,
            written: 0,
        }
    }

    /// Announces descriptors at once, and gives the packets that come of them; the device is done with all of it then.
    fn announce(&mut self, descriptors: &[[u64; 2]]) -> Vec<Vec<u8>> {
        for words in descriptors {
            let at = self.ring + self.written % self.descriptors * 16;
            self.core.store(at, words[0]);
            self.core.store(at.word(1), words[1]);
            self.written += 1;
        }
        let tail = self.written % self.descriptors;
        self.core.register_write(self.tail, tail);
        let (mut came, mut into) = (Vec::new(), vec![0; LONGEST as usize]);
        while self.nic.poll_tx() != 0 {
            while let Some(length) = self.nic.take_tx(&mut into) {
                came.push(into[..length].to_vec());
            }
        }
        self.nic.flush();
        assert_eq!(self.core.register_read(self.head), tail, "all of it is done with");
        came
    }

    fn content(&self, segments: &[(u64, usize)]) -> Vec<u8> {
        let mut content = Vec::new();
        for &(at, length) in segments {
            let from = content.len();
            content.resize(from + length, 0);
            self.core.read_bytes(Address(at), &mut content[from..]);
        }
        content
    }
}

/// Where a hostile host's segments begin, from the start or the end of a range, and how long they are.
fn any_words() -> impl Strategy<Value = (usize, u64, u64)> {
    let near = prop_oneof![6 => 0..2000u64, 1 => Just(u64::MAX), 1 => Just(0u64.wrapping_sub(ROOM)), 1 => any::<u64>()];
    let length = prop_oneof![
        12 => 1..=ROOM,
        2 => ROOM - 2..=ROOM + 2,
        2 => 2000..4000u64,
        1 => LONGEST - 1..=LONGEST + 1,
        1 => Just(0),
        1 => Just(1 << 33 | 64),
        1 => Just(!MORE),
    ];
    let more = prop_oneof![Just(0), Just(MORE)];
    // The starts of the buffers and of the objects, their ends, and nothing.
    let base = prop_oneof![12 => 0..2usize, 2 => 2..4usize, 1 => Just(4usize)];
    (base, near, length, more).prop_map(|(base, near, length, more)| (base, near, length | more))
}

proptest! {
    #![proptest_config(replayed(1000))]

    #[test]
    fn of_any_descriptors_the_good_packets_come_and_the_others_count_once(
        descriptors in prop::sample::select(&[4u64, 16, 64, 128][..]),
        announced in prop::collection::vec(prop::collection::vec(any_words(), 1..70), 1..12),
    ) {
        let (queues, layout, _) = place(shape(descriptors));
        let (memory, reference) = (Memory::new(&layout), Reference::of(&layout));
        let mut hostile = Hostile::new(queues, &layout, &memory);
        let (buffers, objects) = (reference.buffers, reference.objects);
        let bases = [buffers.0, objects.0, buffers.1, objects.1, 0];
        let mut refused = Refusals::default();
        for some in announced {
            let some: Vec<_> = some.iter().map(|&(base, near, word)| [bases[base].wrapping_add(near), word]).collect();
            for some in some.chunks(descriptors as usize - 1) {
                let expected = reference.packets(some, &mut refused);
                let expected: Vec<_> = expected.iter().map(|segments| hostile.content(segments)).collect();
                prop_assert_eq!(hostile.announce(some), expected);
                prop_assert_eq!(hostile.nic.refusals(), refused);
            }
        }
    }
}

/// What the device makes of descriptors that are announced at once: the lengths, and what it refuses.
fn announced(descriptors: &[[u64; 2]]) -> (Vec<usize>, Refusals) {
    let (queues, layout, _) = place(shape(64));
    let memory = Memory::new(&layout);
    let mut hostile = Hostile::new(queues, &layout, &memory);
    let came = hostile.announce(descriptors);
    (came.iter().map(Vec::len).collect(), hostile.nic.refusals())
}

#[test]
fn what_no_packet_may_be_is_refused_once_and_what_follows_it_comes() {
    let (_, layout, objects) = place(shape(64));
    let buffers = start_of(&layout, "ring buffers").0;
    let (end, good) = (layout.bytes(), [buffers, 10]);
    let more = [buffers, 10 | MORE];
    let object = |length: u64| [objects.0 + 5, length];
    assert_eq!(announced(&[object(20 | MORE), good]).0, [30], "an object, and a buffer behind it");
    assert_eq!(announced(&[object(LONGEST)]).0, [9600], "an object that fits into no buffer");
    assert_eq!(announced(&[more, object(LONGEST - 10)]).0, [9600]);
    assert_eq!(announced(&[more, more, more, [buffers + 64, 256]]).0, [286], "longer than a buffer");
    let length = Refusals { tx_length: 1, ..Refusals::default() };
    let address = Refusals { tx_address: 1, ..Refusals::default() };
    for (bad, refused) in [
        (vec![more, more, more, more, good], length),
        (vec![more; 40].into_iter().chain([good]).collect(), length),
        (vec![object(LONGEST + 1)], length),
        (vec![more, object(LONGEST - 9)], length),
        (vec![more, [buffers, ROOM + 1]], length),
        (vec![more, [buffers, 0]], length),
        (vec![[buffers, MORE], good], length),
        (vec![more, [buffers, 10 | 1 << 33]], length),
        (vec![more, [end, 10]], address),
        (vec![[objects.0 + OBJECT_BYTES - 5, 10 | MORE], good], address),
        (vec![[u64::MAX - 3, 10 | MORE], more, good], address),
        (vec![more, [objects.0.wrapping_sub(1), 10]], address),
        (vec![more, [end, 0]], length),
    ] {
        let with_good: Vec<_> = [good].into_iter().chain(bad.clone()).chain([good, more, good, good]).collect();
        assert_eq!(announced(&with_good), (vec![10, 10, 20, 10], refused), "{bad:x?}");
    }
}

#[test]
fn a_packet_that_ends_with_the_announced_descriptors_is_refused_and_the_next_one_is_none_of_it() {
    let (queues, layout, _) = place(shape(64));
    let memory = Memory::new(&layout);
    let mut hostile = Hostile::new(queues, &layout, &memory);
    let buffers = start_of(&layout, "ring buffers").0;
    let (good, more) = ([buffers, 10], [buffers, 10 | MORE]);
    let lengths = |came: Vec<Vec<u8>>| came.iter().map(Vec::len).collect::<Vec<_>>();
    for round in 1..=4 {
        assert_eq!(lengths(hostile.announce(&[good, more])), [10]);
        assert_eq!(hostile.nic.refusals(), Refusals { tx_length: round, ..Refusals::default() });
        assert_eq!(lengths(hostile.announce(&[good, more, good])), [10, 20]);
    }
    // One that straddles two batches, and one that is refused already.
    assert_eq!(lengths(hostile.announce(&[vec![good; 30], vec![more; 3]].concat())), [10; 30]);
    assert_eq!(lengths(hostile.announce(&[more; 33])), [0; 0]);
    assert_eq!(hostile.nic.refusals(), Refusals { tx_length: 6, ..Refusals::default() });
    assert_eq!(lengths(hostile.announce(&[more, good])), [20]);
}

/// The pool is empty while buffers that were sent wait to be taken back, each behind the descriptor of something that was retained.
#[test]
fn as_many_buffers_are_taken_back_as_are_wanted_whatever_lies_between_them() {
    let shape = Shape { buffers: 512, rx_refill_threshold: 32, ..shape(256) };
    let (queues, layout, objects) = place(shape);
    let memory = Memory::new(&layout);
    let (mut host, mut nic) = (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))));
    let mut buffers = vec![Address(0); 512];
    let count = HostQueue::buf_alloc(&mut host, ROOM, &mut buffers);
    assert_eq!((count, host.free_buffers()), (257, 0));
    let object = Packet::new(objects, 10).with(Flags::RETAIN);
    let packet = |&at: &Address| [Packet::new(at, 10).with(Flags::NEXT), object];
    assert_eq!(HostQueue::tx_burst(&mut host, &buffers[..100].iter().flat_map(packet).collect::<Vec<_>>()), 200);
    while nic.poll_tx() > 0 {
        nic.take_tx(&mut [0; 64]);
    }
    nic.flush();
    let mut wanted = vec![Address(0); 64];
    assert_eq!(HostQueue::buf_alloc(&mut host, ROOM, &mut wanted), 64);
    // So many arrive that blank buffers are missing, and posted.
    (0..32).for_each(|_| assert_eq!(nic.rx_push(&[1; 10]), Ok(())));
    nic.flush();
    assert_eq!(HostQueue::rx_burst(&mut host, &mut [Packet::BLANK; 64]), 32);
    assert_eq!(host.statistics().pool_empty, 0);
    assert_eq!((host.reclaim(), host.free_buffers(), host.reclaim()), (4, 4, 0), "no more were than were missing");
}
