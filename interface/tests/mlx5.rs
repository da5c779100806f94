//! The rings of a ConnectX against a model, their accounting, what lies in memory, and hosts and devices that keep to no rule.

use std::collections::{BTreeSet, VecDeque};

use crate::common::{Agent, Memory, bytes, replayed};
use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, PlayedByCore, SynchronisingWords};
use conic_interface::burst::{HostQueue, NicQueue, Packet};
use conic_interface::ccnic::Flags;
use conic_interface::mlx5::{Host, Inlining, Nic, QueuePair, Shape};
use conic_interface::ring::{self, DeviceHalf, NoBuffer, Wire};
use proptest::prelude::*;

const OBJECT_BYTES: u64 = 4096;

fn small(descriptors: u64) -> Shape {
    let common = ring::Shape {
        descriptors,
        buffers: 4 * descriptors,
        buffer_bytes: 512,
        rx_refill_threshold: 2,
        ..ring::Shape::default()
    };
    Shape { fetch_batch: 4, ..Shape::of(common, 16) }
}

/// A queue pair with objects, and where these start.
fn place(shape: Shape) -> (QueuePair, Layout, Address) {
    let mut layout = Layout::new();
    let objects = layout.add("objects", OBJECT_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let queues = shape.place(&mut layout).expect("a shape that can be");
    (queues.with_objects(objects, OBJECT_BYTES), layout, objects)
}

fn start_of(layout: &Layout, name: &str) -> Address {
    layout.segments().iter().find(|segment| segment.name == name).expect("a segment of that name").start
}

type HostOf<'memory> = Host<Agent<'memory>>;
type NicOf<'memory> = Nic<PlayedByCore<Agent<'memory>>>;

fn halves(queues: QueuePair, memory: &Memory) -> (HostOf<'_>, NicOf<'_>) {
    (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))))
}

/// A host and a device on one memory, the device looping packets back, beside what they should do.
struct Loopback<'memory> {
    host: HostOf<'memory>,
    nic: NicOf<'memory>,
    objects: Address,
    /// Packets sent and not yet received.
    model: VecDeque<Vec<u8>>,
    /// A packet that the device took and had no buffer for.
    held: Option<Vec<u8>>,
    next_seed: u64,
}

impl<'memory> Loopback<'memory> {
    fn new(queues: QueuePair, memory: &'memory Memory, objects: Address) -> Loopback<'memory> {
        let (host, nic) = halves(queues, memory);
        memory.agent(0).write_bytes(objects, &bytes(u64::MAX, OBJECT_BYTES as usize));
        Loopback { host, nic, objects, model: VecDeque::new(), held: None, next_seed: 0 }
    }

    /// Sends a burst of packets of which every `apart`-th ends with a retained segment; returns how many were taken.
    fn send(&mut self, count: usize, length: usize, apart: usize) -> usize {
        let mut buffers = vec![Address(0); count];
        let count = self.host.buf_alloc(length as u64, &mut buffers);
        let (mut segments, mut packets) = (Vec::new(), Vec::new());
        for (index, &at) in buffers[..count].iter().enumerate() {
            let mut content = bytes(self.next_seed, length);
            self.host.core().write_bytes(at, &content);
            let packet = Packet::new(at, length as u16);
            if index % apart == apart - 1 {
                let from = self.next_seed * 61 % (OBJECT_BYTES - 300);
                let more = 1 + self.next_seed % 299;
                segments.push(packet.with(Flags::NEXT));
                segments.push(Packet::new(self.objects + from, more as u16).with(Flags::RETAIN));
                content.extend(&bytes(u64::MAX, OBJECT_BYTES as usize)[from as usize..][..more as usize]);
                if content.len() > 512 {
                    // No buffer would hold it.
                    segments.truncate(segments.len() - 2);
                    segments.push(packet);
                    content.truncate(length);
                }
            } else {
                segments.push(packet);
            }
            packets.push(content);
            self.next_seed += 1;
        }
        let taken = self.host.tx_burst(&segments);
        let whole = segments[..taken].iter().filter(|segment| !segment.has(Flags::NEXT)).count();
        assert!(segments[..taken].last().is_none_or(|last| !last.has(Flags::NEXT)), "a packet was taken in part");
        self.host.buf_free(&buffers[whole..count]);
        self.model.extend(packets.into_iter().take(whole));
        whole
    }

    /// Receives a burst and frees it; returns how many packets there were.
    fn receive(&mut self, count: usize) -> usize {
        let mut packets = vec![Packet::BLANK; count];
        let count = self.host.rx_burst(&mut packets);
        let distinct: BTreeSet<u64> = packets[..count].iter().map(|packet| packet.address().0).collect();
        assert_eq!(distinct.len(), count, "a buffer twice in one burst");
        for packet in &packets[..count] {
            let mut content = vec![0; packet.length().into()];
            self.host.core().read_bytes(packet.address(), &mut content);
            assert_eq!(Some(content), self.model.pop_front());
            self.host.buf_free(&[packet.address()]);
        }
        count
    }

    /// Loops up to `count` packets back.
    fn loop_back(&mut self, count: usize) -> usize {
        for done in 0..count {
            if self.held.is_none() {
                if self.nic.poll_tx() == 0 {
                    return done;
                }
                let mut packet = [0; 16384];
                assert!(self.nic.has_next_tx());
                let length = self.nic.take_tx(&mut packet).expect("a packet that the poll announced");
                self.held = Some(packet[..length].to_vec());
            }
            if let Some(packet) = self.held.take()
                && self.nic.rx_push(&packet) == Err(NoBuffer)
            {
                self.held = Some(packet);
                return done;
            }
        }
        count
    }

    /// Runs until nothing is left to do.
    fn drain(&mut self) {
        while !self.model.is_empty() {
            let looped = self.loop_back(8);
            self.nic.flush();
            let received = self.receive(8);
            assert!(looped + received > 0, "stuck with {} packets in flight", self.model.len());
        }
        self.nic.flush();
        self.host.reclaim();
    }

    fn check(&self, shape: &Shape) {
        let (host, common) = (&self.host, &shape.common);
        assert_eq!((host.free_buffers() + host.device_buffers()) as u64, common.buffers);
        // What was not asked to be reported is still the device's.
        let unasked = shape.report_interval.min(common.descriptors / 2);
        assert!((host.device_buffers() as u64) < common.descriptors + unasked.max(1), "what was sent was reclaimed");
        assert_eq!(self.nic.refusals(), Default::default());
        let statistics = host.statistics();
        assert_eq!(
            (statistics.refused_completions, statistics.refused_packets, statistics.refused_frees),
            (0, 0, 0),
            "{statistics:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Call {
    Send(usize, usize, usize),
    LoopBack(usize),
    Flush,
    Receive(usize),
    Reclaim,
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (1..=40usize, 1..=512usize, 1..=5usize).prop_map(|(count, length, apart)| Call::Send(count, length, apart)),
        4 => (1..=40usize).prop_map(Call::LoopBack),
        3 => Just(Call::Flush),
        4 => (0..=40usize).prop_map(Call::Receive),
        1 => Just(Call::Reclaim),
    ]
}

proptest! {
    #![proptest_config(replayed(1500))]

    #[test]
    fn any_calls_lose_no_packet_and_no_buffer_and_keep_the_order(
        descriptors in prop::sample::select(&[2u64, 4, 8, 64][..]),
        inlining in prop::sample::select(&[None, Some((290, 268)), Some((100, 0)), Some((0, 60)), Some((512, 512))][..]),
        (multi_packet, compressed) in any::<(bool, bool)>(),
        report_interval in prop::sample::select(&[1u64, 3, 32][..]),
        (read_ahead_bytes, fetch_batch) in
            (prop::sample::select(&[1u64, 200, 1 << 20][..]), prop::sample::select(&[1u64, 4, 16][..])),
        calls in prop::collection::vec(any_call(), 0..100),
    ) {
        let shape = small(descriptors);
        let shape = Shape {
            common: ring::Shape { read_ahead_bytes, ..shape.common },
            inlining: inlining.map(|(alone, among_others)| Inlining { alone, among_others }),
            multi_packet,
            compressed,
            report_interval,
            fetch_batch,
        };
        let (queues, layout, objects) = place(shape);
        let memory = Memory::new(&layout);
        let mut loopback = Loopback::new(queues, &memory, objects);
        for call in calls {
            match call {
                Call::Send(count, length, apart) => { loopback.send(count, length, apart); }
                Call::LoopBack(count) => { loopback.loop_back(count); }
                Call::Flush => { loopback.nic.flush(); }
                Call::Receive(count) => { loopback.receive(count); }
                Call::Reclaim => { loopback.host.reclaim(); }
            }
        }
        loopback.drain();
        loopback.check(&shape);
    }

    #[test]
    fn any_words_from_the_host_are_survived_and_reach_no_byte_outside_the_buffers(
        compressed in any::<bool>(),
        pokes in prop::collection::vec((0..100usize, hostile_word()), 1..150),
    ) {
        let shape = Shape { compressed, ..small(4) };
        let (queues, layout, _) = place(shape);
        let memory = Memory::new(&layout);
        let mut nic = queues.nic(PlayedByCore(memory.agent(1)));
        let targets: Vec<Address> = [
            ("mlx5 doorbell", 1),
            ("mlx5 receive doorbell record", 1),
            ("mlx5 send queue", 16),
            ("mlx5 receive queue", 8),
        ].iter().flat_map(|&(name, words)| (0..words).map(move |word| (name, word)))
            .map(|(name, word)| start_of(&layout, name).word(word)).collect();
        let buffers = start_of(&layout, "mlx5 buffers");
        for (target, value) in pokes {
            // What is far from all that fields hold is taken relative to the buffers.
            let value = if value < 1 << 40 { value } else { value.wrapping_add(buffers.0) };
            memory.poke(targets[target % targets.len()], value);
            let mut packet = vec![0; shape.common.longest_packet() as usize];
            for _ in 0..100 {
                if nic.poll_tx() == 0 || nic.take_tx(&mut packet).is_none() {
                    break;
                }
            }
            let _ = nic.rx_push(&packet[..128]);
            nic.flush();
        }
        // The buffers end the memory, which refuses accesses beyond; of what lies before them the device writes completions.
        for segment in layout.segments().iter().filter(|segment| segment.end() <= buffers) {
            let device_writes = segment.name.ends_with("completions");
            prop_assert!(device_writes || memory.ownerships(1, segment.start, segment.bytes) == 0, "{}", segment.name);
        }
    }

    #[test]
    fn any_words_from_the_device_are_survived_and_lose_no_buffer(
        pokes in prop::collection::vec((0..100usize, hostile_completion(), 0..8usize), 1..150),
    ) {
        let shape = small(4);
        let (queues, layout, _) = place(shape);
        let memory = Memory::new(&layout);
        let mut host = queues.host(memory.agent(0));
        let targets: Vec<Address> = ["mlx5 send completions", "mlx5 receive completions"].iter()
            .flat_map(|name| (0..4).map(|slot| start_of(&layout, name).lines(slot)))
            .collect();
        for (target, value, count) in pokes {
            memory.poke(targets[target % targets.len()], value);
            let mut packets = [Packet::BLANK; 8];
            let received = host.rx_burst(&mut packets[..count]);
            for packet in &packets[..received] {
                prop_assert!((1..=512).contains(&packet.length()));
                prop_assert!(host.bytes_to_end(packet.address()) >= packet.length().into());
                host.buf_free(&[packet.address()]);
            }
            let mut buffers = [Address(0); 8];
            let taken = host.buf_alloc(400, &mut buffers[..count]);
            let packets = buffers.map(|at| Packet::new(at, 400));
            let sent = host.tx_burst(&packets[..taken]);
            host.buf_free(&buffers[sent..taken]);
            prop_assert_eq!((host.free_buffers() + host.device_buffers()) as u64, shape.common.buffers);
        }
    }
}

fn hostile_word() -> impl Strategy<Value = u64> {
    let control = (
        prop::sample::select(&[0u64, 0x0a, 0x29, 0xff][..]),
        0..6u64,
        prop::sample::select(&[0u64, 1, 2, 3, 4, 5, 8, 60, 63, 64][..]),
    );
    prop_oneof![
        6 => control.prop_map(|(opcode, index, segments)| opcode | index << 8 | segments << 32),
        3 => 0..16u64,
        2 => 0..600u64,
        2 => (0..600u64).prop_map(|length| length | 1 << 31),
        2 => prop::sample::select(&[u64::MAX - 63, u64::MAX - 127, 1 << 63, (1 << 31) - 1, 0xffff, 16 * 512][..]),
        1 => any::<u64>(),
    ]
}

fn hostile_completion() -> impl Strategy<Value = u64> {
    let parts =
        (0..2u64, prop::sample::select(&[0u64, 3 << 2, 1 << 2][..]), prop::sample::select(&[0u64, 2, 7, 15][..]));
    let counts = (0..8u64, prop::sample::select(&[0u64, 1, 2, 3, 8, 9, 64, 512, 513, 0xffff_ffff][..]));
    prop_oneof![
        8 => (parts, counts).prop_map(|((owner, format, opcode), (index, count))| {
            owner | format | opcode << 4 | index << 16 | count << 32
        }),
        1 => any::<u64>(),
    ]
}

#[test]
fn every_counter_wraps() {
    // Blocks and descriptors are counted in 16 bits, and the rings' sizes divide none of the bursts.
    for (inlining, compressed) in [(None, false), (Inlining::of_queues(16), true)] {
        let shape = Shape { inlining, compressed, ..small(8) };
        let (queues, layout, objects) = place(shape);
        let memory = Memory::new(&layout);
        let mut loopback = Loopback::new(queues, &memory, objects);
        let mut sent = 0;
        while sent < 3 << 16 {
            sent += loopback.send(7, 20 + sent % 90, 4);
            loopback.loop_back(7);
            loopback.nic.flush();
            loopback.receive(5);
        }
        loopback.drain();
        loopback.check(&shape);
    }
}

#[test]
fn every_size_of_packet_comes_back_whole() {
    for queues in [1, 8] {
        let common =
            ring::Shape { descriptors: 4, buffers: 8, ..ring::Shape::for_packets(9600).expect("jumbo frames") };
        let (queues, layout, _) = place(Shape::of(common, queues));
        let memory = Memory::new(&layout);
        let (mut host, mut nic) = halves(queues, &memory);
        for length in (1..400).chain([1500, 4096, 9599, 9600]) {
            let mut at = [Address(0)];
            assert_eq!(host.buf_alloc(length as u64, &mut at), 1);
            let content = bytes(length as u64, length);
            host.core().write_bytes(at[0], &content);
            assert_eq!(host.tx_burst(&[Packet::new(at[0], length as u16)]), 1);
            let mut packet = vec![0; 9600];
            assert_eq!((nic.poll_tx(), nic.take_tx(&mut packet)), (1, Some(length)));
            assert_eq!(nic.rx_push(&packet[..length]), Ok(()));
            nic.flush();
            let mut received = [Packet::BLANK];
            assert_eq!((host.rx_burst(&mut received), usize::from(received[0].length())), (1, length));
            let mut found = vec![0; length];
            host.core().read_bytes(received[0].address(), &mut found);
            assert_eq!(found, content);
            host.buf_free(&[received[0].address()]);
        }
    }
}

/// The words of a block.
fn block(memory: &Memory, layout: &Layout, number: u64) -> [u64; 8] {
    let at = start_of(layout, "mlx5 send queue").lines(number);
    std::array::from_fn(|word| memory.peek(at.word(word)))
}

#[test]
fn entries_lie_in_memory_as_the_manual_has_them() {
    let shape = Shape { inlining: Inlining::of_queues(8), ..small(64) };
    let (queues, layout, objects) = place(shape);
    let memory = Memory::new(&layout);
    let (mut host, _) = halves(queues, &memory);
    let doorbell = start_of(&layout, "mlx5 doorbell");
    let record = start_of(&layout, "mlx5 send doorbell record");
    let mut buffers = [Address(0); 3];
    assert_eq!(host.buf_alloc(512, &mut buffers), 3);
    let content: Vec<u8> = (1..=64).collect();
    buffers.iter().for_each(|&at| memory.agent(0).write_bytes(at, &content));
    // Alone, and copied: 2 bytes end the Ethernet segment, and 62 follow; 94 bytes are 6 segments in 2 blocks.
    assert_eq!(host.tx_burst(&[Packet::new(buffers[0], 64)]), 1);
    let first = block(&memory, &layout, 0);
    assert_eq!(first[..3], [0x0a | 6 << 32, 0, 0]);
    assert_eq!(first[3].to_le_bytes()[4..], [64, 0, 1, 2]);
    assert_eq!(first[4].to_le_bytes(), [3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!((memory.peek(doorbell), memory.peek(record)), (first[0], 2));
    // Two that share an entry, one of them too long to be copied: 2 + 5 + 1 segments.
    let two = [Packet::new(buffers[1], 64), Packet::new(buffers[2], 300)];
    assert_eq!(host.tx_burst(&two), 2);
    let entry = [block(&memory, &layout, 2), block(&memory, &layout, 3)].concat();
    assert_eq!(entry[0], 0x29 | 2 << 8 | 8 << 32);
    assert_eq!(entry[3], 0, "nothing stands in the Ethernet segment");
    assert_eq!(entry[4].to_le_bytes(), [64, 0, 0, 0x80, 1, 2, 3, 4]);
    assert_eq!(entry[14..16], [300, buffers[2].0]);
    assert_eq!((memory.peek(doorbell), memory.peek(record)), (entry[0], 4));
    // Two segments, one of them retained.
    let long = Packet::new(buffers[0], 400).with(Flags::NEXT);
    assert_eq!(host.tx_burst(&[long, Packet::new(objects, 100).with(Flags::RETAIN)]), 2);
    let entry = block(&memory, &layout, 4);
    assert_eq!(entry, [0x0a | 4 << 8 | 4 << 32, 0, 0, 0, 400, buffers[0].0, 100, objects.0]);
    // Blank buffers: a length that never changes, and an address.
    let descriptor = start_of(&layout, "mlx5 receive queue");
    assert_eq!(
        (memory.peek(descriptor), memory.peek(descriptor.word(1)) % 512),
        (512, start_of(&layout, "mlx5 buffers").0 % 512)
    );
    assert_eq!(memory.peek(start_of(&layout, "mlx5 receive doorbell record")), 64);
}

#[test]
fn what_is_copied_leaves_its_buffer_free_at_once() {
    for (queues, free) in [(8, 0), (7, 5)] {
        let (queues, layout, _) = place(Shape::of(small(64).common, queues));
        let memory = Memory::new(&layout);
        let (mut host, _) = halves(queues, &memory);
        let before = host.free_buffers();
        let mut buffers = [Address(0); 5];
        assert_eq!(host.buf_alloc(64, &mut buffers), 5);
        assert_eq!(host.tx_burst(&buffers.map(|at| Packet::new(at, 64))), 5);
        assert_eq!(before - host.free_buffers(), free);
    }
}

#[test]
fn a_report_is_asked_for_once_in_32_packets_and_frees_them() {
    let shape = Shape { inlining: None, multi_packet: false, ..small(128) };
    let (queues, layout, _) = place(shape);
    let memory = Memory::new(&layout);
    let (mut host, mut nic) = halves(queues, &memory);
    let completions = start_of(&layout, "mlx5 send completions");
    let mut frame = [0; 16384];
    for sent in 1..=200_u64 {
        let mut at = [Address(0)];
        assert_eq!(host.buf_alloc(64, &mut at), 1);
        assert_eq!(host.tx_burst(&[Packet::new(at[0], 64)]), 1);
        let asks = memory.peek(start_of(&layout, "mlx5 send queue").lines((sent - 1) % 128).word(1));
        // An eighth of its 128 blocks is 16.
        assert_eq!(asks, if sent % 16 == 0 { 8 } else { 0 }, "packet {sent}");
        assert_eq!((nic.poll_tx(), nic.take_tx(&mut frame)), (1, Some(64)));
        nic.flush();
        let slot = (sent / 16).wrapping_sub(1);
        if sent % 16 == 0 {
            let owner = (slot / 16 + 1) % 2;
            assert_eq!(memory.peek(completions.lines(slot % 16)), owner | (sent - 1) << 16, "packet {sent}");
        }
    }
    host.reclaim();
    assert_eq!(host.device_buffers(), 128 + 200 % 16);
}

#[test]
fn a_full_send_queue_takes_no_more_until_the_device_has_reported() {
    let shape = Shape { inlining: None, multi_packet: false, ..small(16) };
    let (queues, layout, objects) = place(shape);
    let memory = Memory::new(&layout);
    let mut loopback = Loopback::new(queues, &memory, objects);
    assert_eq!(loopback.send(17, 400, 99), 16);
    assert_eq!(loopback.send(1, 400, 99), 0);
    assert_eq!(loopback.loop_back(8), 8);
    assert_eq!(loopback.send(1, 400, 99), 0, "nothing was reported");
    loopback.nic.flush();
    assert_eq!(loopback.send(16, 400, 99), 8);
    loopback.drain();
}

#[test]
fn the_device_looks_at_the_receive_record_only_where_few_buffers_are_left() {
    let (queues, layout, objects) = place(small(256));
    let memory = Memory::new(&layout);
    let record = start_of(&layout, "mlx5 receive doorbell record");
    let mut loopback = Loopback::new(queues, &memory, objects);
    for _ in 0..1000 {
        assert_eq!(loopback.send(1, 64, 99), 1);
        loopback.loop_back(1);
        loopback.nic.flush();
        assert_eq!(loopback.receive(1), 1);
    }
    let looks = memory.read_misses(1, record, LINE_BYTES);
    assert!((4..=8).contains(&looks), "{looks} looks at what 1000 packets announced");
}

#[test]
fn completions_are_compressed_by_eight_and_told_apart_from_those_of_an_older_lap() {
    let (queues, layout, objects) = place(small(16));
    let memory = Memory::new(&layout);
    let completions = start_of(&layout, "mlx5 receive completions");
    let mut loopback = Loopback::new(queues, &memory, objects);
    assert_eq!((loopback.send(11, 40, 99), loopback.loop_back(11)), (11, 11));
    assert_eq!(memory.peek(completions), 0, "none is written before the burst ends");
    loopback.nic.flush();
    // Eight by one, and three by another.
    let word = |slot| memory.peek(completions.lines(slot));
    assert_eq!([word(0), word(8)], [1 | 3 << 2 | 2 << 4 | 8 << 32, 1 | 3 << 2 | 2 << 4 | 3 << 32]);
    assert_eq!((word(1), word(2), word(9)), (40 << 32, 0, 40 << 32));
    // They are taken in whatever parts.
    assert_eq!([loopback.receive(1), loopback.receive(5), loopback.receive(9), loopback.receive(1)], [1, 5, 5, 0]);
    assert!((1..8).chain(9..11).all(|slot| word(slot) == 15 << 4), "those that were not written are none");
    // For many laps, with all sizes of groups.
    for round in 0..500 {
        let count = 1 + round % 13;
        assert_eq!((loopback.send(count, 40, 99), loopback.loop_back(count)), (count, count));
        loopback.nic.flush();
        assert_eq!((loopback.receive(16), loopback.receive(16)), (count, 0));
    }
}

#[test]
fn what_the_device_refuses_is_counted_and_passed_over() {
    let (queues, layout, objects) = place(Shape { inlining: None, ..small(16) });
    let memory = Memory::new(&layout);
    let (_, mut nic) = halves(queues, &memory);
    let (buffers, send_queue) = (start_of(&layout, "mlx5 buffers").0, start_of(&layout, "mlx5 send queue"));
    let (doorbell, mut number) = (start_of(&layout, "mlx5 doorbell"), 0);
    let mut announce = |opcode: u64, segments: u64, data: &[[u64; 2]]| {
        let word = opcode | number << 8 | segments << 32;
        let mut words = vec![word, 0, 0, 0];
        words.extend(data.iter().flatten());
        for (place, &word) in words.iter().enumerate() {
            memory.poke(send_queue.lines((number + place as u64 / 8) % 16).word(place % 8), word);
        }
        memory.poke(doorbell, word);
        number += segments.div_ceil(4);
    };
    let taken = |nic: &mut NicOf<'_>| {
        let mut frame = [0; 16384];
        let mut lengths = Vec::new();
        while nic.poll_tx() != 0 {
            lengths.extend(nic.take_tx(&mut frame));
        }
        lengths
    };
    let (good, object) = ([10, buffers], [20, objects.0]);
    announce(0x0a, 4, &[good, object]);
    assert_eq!(taken(&mut nic), [30]);
    // A packet of many is refused alone.
    announce(0x29, 6, &[good, [10, u64::MAX - 5], [0, buffers], object]);
    assert_eq!((taken(&mut nic), nic.refusals().tx_address, nic.refusals().tx_length), (vec![10, 20], 1, 1));
    // A packet of segments is refused whole: for where one lies, for their number, and for its length.
    announce(0x0a, 4, &[good, [10, objects.0 + OBJECT_BYTES - 9]]);
    announce(0x0a, 7, &[good; 5]);
    announce(0x0a, 3, &[[9601, objects.0]]);
    assert_eq!((taken(&mut nic), nic.refusals().tx_address, nic.refusals().tx_length), (vec![], 2, 3));
    // Bytes that do not all lie in their entry.
    announce(0x29, 3, &[[100 | 1 << 31, 0]]);
    assert_eq!((taken(&mut nic), nic.refusals().tx_length), (vec![], 4));
    announce(0x0a, 3, &[good]);
    assert_eq!((taken(&mut nic), nic.refusals().entry, nic.refusals().doorbell), (vec![10], 0, 0));
    // No entry, and none that could be.
    announce(0x0b, 3, &[good]);
    taken(&mut nic);
    assert!(nic.refusals().doorbell > 0);
}

#[test]
fn it_is_a_network_queue_as_the_others_are() {
    let (queues, layout, _) = place(small(16));
    let memory = Memory::new(&layout);
    let (mut host, nic) = halves(queues, &memory);
    let mut wire = Wire::new(nic, queues.shape().common);
    let mut at = [Address(0); 3];
    assert_eq!(host.buf_alloc(64, &mut at), 3);
    at.iter().for_each(|&at| memory.agent(0).write_bytes(at, &[7; 64]));
    assert_eq!(host.tx_burst(&at.map(|at| Packet::new(at, 64))), 3);
    assert_eq!((wire.turn_around(), wire.turn_around()), (3, 0));
    let mut received = [Packet::BLANK; 4];
    assert_eq!(host.rx_burst(&mut received), 3);
    assert_eq!((wire.refused(), wire.dropped()), (0, 0));
    let mut frame = [0; 64];
    assert_eq!(host.tx_burst(&received[..1]), 1);
    assert_eq!((wire.take_frame(&mut frame), frame), (Some(64), [7; 64]));
    assert!(wire.deliver_frame(&frame) && wire.deliver_frame(&[0; 513]));
    assert_eq!((wire.refused(), wire.dropped(), host.rx_burst(&mut received)), (0, 1, 1));
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let of = |change: fn(&mut Shape)| {
        let mut shape = Shape::default();
        change(&mut shape);
        shape.place(&mut Layout::new()).expect_err("it cannot be").to_string()
    };
    assert!(of(|shape| shape.common.descriptors = 3).contains("not 3"));
    assert!(
        of(|shape| (shape.common.descriptors, shape.common.buffers) = (1 << 16, 1 << 17)).contains("at most 32768")
    );
    assert!(of(|shape| shape.fetch_batch = 0).contains("at least one"));
    assert!(of(|shape| shape.report_interval = 0).contains("at least one"));
}

#[test]
fn a_packet_of_the_most_segments_goes_behind_one_that_need_not_be_reported() {
    let (queues, layout, objects) = place(Shape { inlining: None, ..small(4) });
    let memory = Memory::new(&layout);
    let mut loopback = Loopback::new(queues, &memory, objects);
    for _ in 0..40 {
        assert_eq!(loopback.send(1, 60, 9), 1);
        loopback.drain();
        let mut buffers = [Address(0); 4];
        assert_eq!(loopback.host.buf_alloc(60, &mut buffers), 4);
        let mut chain = buffers.map(|at| Packet::new(at, 60).with(Flags::NEXT));
        chain[3] = chain[3].without(Flags::NEXT);
        assert_eq!(loopback.host.tx_burst(&chain), 4, "it waits for a report that nobody asked for");
        let mut content = vec![0; 240];
        buffers.iter().zip(content.chunks_mut(60)).for_each(|(&at, part)| loopback.host.core().read_bytes(at, part));
        loopback.model.push_back(content);
        loopback.drain();
    }
}
