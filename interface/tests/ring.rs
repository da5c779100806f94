//! The ring against a model, its accounting, and peers that keep to no rule.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use crate::common::{Agent, Memory, bytes, replayed};
use conic_fabric::{Address, Core, Device, LINE_BYTES, Layout, PlayedByCore, ReadTag, StateHint, Time};
use conic_interface::buffer_metadata;
use conic_interface::ring::{Buffer, Host, Nic, NoBuffer, QueuePair, RxSignal, Shape};
use proptest::prelude::*;

const SIGNALS: [RxSignal; 2] = [RxSignal::Register, RxSignal::DescriptorDone];

fn small(descriptors: u64, rx_signal: RxSignal) -> Shape {
    Shape {
        descriptors,
        buffers: 3 * descriptors,
        buffer_bytes: 128,
        tx_reclaim_threshold: 2,
        rx_refill_threshold: 2,
        rx_signal,
        ..Shape::default()
    }
}

fn place(shape: Shape) -> (QueuePair, Layout) {
    let mut layout = Layout::new();
    let queues = shape.place(&mut layout).expect("a shape that can be");
    (queues, layout)
}

fn start_of(layout: &Layout, name: &str) -> Address {
    layout.segments().iter().find(|segment| segment.name == name).expect("a segment of that name").start
}

/// A host and a device on one memory, the device looping packets back, beside what they should do.
struct Loopback<'memory> {
    host: Host<Agent<'memory>>,
    nic: Nic<PlayedByCore<Agent<'memory>>>,
    /// Packets sent and not yet received.
    model: VecDeque<Vec<u8>>,
    /// A packet that the device took and had no buffer for.
    held: Option<Vec<u8>>,
    next_seed: u64,
}

impl<'memory> Loopback<'memory> {
    fn new(queues: QueuePair, memory: &'memory Memory) -> Loopback<'memory> {
        Loopback {
            host: queues.host(memory.agent(0)),
            nic: queues.nic(PlayedByCore(memory.agent(1))),
            model: VecDeque::new(),
            held: None,
            next_seed: 0,
        }
    }

    /// Sends a burst of packets, as many as buffers and descriptors allow.
    fn send(&mut self, count: usize, length: usize) -> usize {
        let mut buffers = [Buffer::default(); 8];
        let count = self.host.buf_alloc(&mut buffers[..count]);
        let mut packets = Vec::new();
        for buffer in &mut buffers[..count] {
            packets.push(bytes(self.next_seed, length));
            self.next_seed += 1;
            self.host.write_packet(buffer, packets.last().expect("just pushed"));
        }
        let sent = self.host.tx_burst(&buffers[..count]);
        self.host.buf_free(&buffers[sent..count]);
        self.model.extend(packets.into_iter().take(sent));
        sent
    }

    /// Receives a burst and frees it; returns how many packets there were.
    fn receive(&mut self, count: usize) -> usize {
        let mut buffers = [Buffer::default(); 8];
        let count = self.host.rx_burst(&mut buffers[..count]);
        let distinct: BTreeSet<Address> = buffers[..count].iter().map(|buffer| buffer.address).collect();
        assert_eq!(distinct.len(), count, "a buffer twice in one burst");
        for buffer in &buffers[..count] {
            let mut packet = [0; 256];
            let packet = self.host.read_packet(buffer, &mut packet);
            assert_eq!(Some(packet.to_vec()), self.model.pop_front());
        }
        self.host.buf_free(&buffers[..count]);
        count
    }

    /// Loops up to `count` packets back.
    fn loop_back(&mut self, count: usize) -> usize {
        for done in 0..count {
            if self.held.is_none() {
                if self.nic.poll_tx() == 0 {
                    return done;
                }
                let mut packet = [0; 256];
                let expected = self.nic.next_tx_length();
                let length = self.nic.take_tx(&mut packet).expect("a packet that the poll announced");
                assert_eq!(expected, Some(length));
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
            let moved = self.nic.flush();
            let received = self.receive(8);
            assert!(looped + received > 0 || moved, "stuck with {} packets in flight", self.model.len());
        }
        self.nic.flush();
        self.host.reclaim();
    }
}

#[derive(Clone, Debug)]
enum Call {
    Send(usize, usize),
    LoopBack(usize),
    Flush,
    Receive(usize),
    Reclaim,
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (1..=8usize, 1..=128usize).prop_map(|(count, length)| Call::Send(count, length)),
        4 => (1..=8usize).prop_map(Call::LoopBack),
        3 => Just(Call::Flush),
        4 => (0..=8usize).prop_map(Call::Receive),
        1 => Just(Call::Reclaim),
    ]
}

proptest! {
    #![proptest_config(replayed(1000))]

    #[test]
    fn any_calls_lose_no_packet_and_no_buffer_and_keep_the_order(
        descriptors in prop::sample::select(&[2u64, 4, 8, 64][..]),
        signal in prop::sample::select(&SIGNALS[..]),
        read_ahead_bytes in prop::sample::select(&[0u64, 200, 1 << 20][..]),
        calls in prop::collection::vec(any_call(), 0..150),
    ) {
        let shape = Shape { read_ahead_bytes, ..small(descriptors, signal) };
        let (queues, layout) = place(shape);
        let memory = Memory::new(&layout);
        let mut loopback = Loopback::new(queues, &memory);
        for call in calls {
            match call {
                Call::Send(count, length) => { loopback.send(count, length); }
                Call::LoopBack(count) => { loopback.loop_back(count); }
                Call::Flush => { loopback.nic.flush(); }
                Call::Receive(count) => { loopback.receive(count); }
                Call::Reclaim => { loopback.host.reclaim(); }
            }
        }
        loopback.drain();
        let host = &loopback.host;
        prop_assert_eq!((host.free_buffers() + host.device_buffers()) as u64, shape.buffers);
        prop_assert!((host.device_buffers() as u64) < descriptors, "what was sent was reclaimed");
        prop_assert_eq!(loopback.nic.refusals(), Default::default());
        let statistics = loopback.host.statistics();
        prop_assert_eq!((statistics.refused_registers, statistics.refused_packets, statistics.refused_frees), (0, 0, 0));
    }

    #[test]
    fn any_words_from_the_host_are_survived_and_reach_no_byte_outside_the_buffers(
        signal in prop::sample::select(&SIGNALS[..]),
        pokes in prop::collection::vec((0..100usize, hostile_word()), 1..100),
    ) {
        let shape = small(4, signal);
        let (queues, layout) = place(shape);
        let memory = Memory::new(&layout);
        let mut nic = queues.nic(PlayedByCore(memory.agent(1)));
        let targets: Vec<Address> = ["ring TX tail", "ring RX head", "ring TX descriptors", "ring RX descriptors"]
            .iter()
            .flat_map(|name| (0..8).map(|word| start_of(&layout, name).word(word)))
            .collect();
        let buffers = start_of(&layout, "ring buffers");
        for (target, value) in pokes {
            // Small numbers are ring indexes and lengths, with and without the goes-on bit; others are taken relative to the buffers.
            let value = if value & !(1 << 32) < 256 { value } else { value.wrapping_add(buffers.0) };
            memory.poke(targets[target % targets.len()], value);
            let mut packet = vec![0; shape.longest_packet() as usize];
            while nic.poll_tx() != 0 {
                let expected = nic.next_tx_length();
                prop_assert_eq!(nic.take_tx(&mut packet), expected);
                nic.flush();
                memory.poke(targets[0], memory.peek(start_of(&layout, "ring TX head")) & 3);
            }
            let _ = nic.rx_push(&packet[..128]);
            nic.flush();
        }
        // The buffers end the memory, which refuses accesses beyond; of what lies before them the device writes its own.
        for segment in layout.segments().iter().filter(|segment| segment.end() <= buffers) {
            let device_writes = ["ring TX head", "ring RX tail", "ring RX descriptors"].contains(&segment.name.as_str());
            prop_assert!(device_writes || memory.ownerships(1, segment.start, segment.bytes) == 0, "{}", segment.name);
        }
    }
}

const HOSTILE: [u64; 6] = [u64::MAX - 63, 12 * 128 - 64, 12 * 128, 12 * 128 - 128, u64::MAX - 127, 1 << 63];

fn hostile_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..8u64,
        2 => 0..256u64,
        2 => 1 << 32..1 << 32 | 256u64,
        2 => prop::sample::select(&HOSTILE[..]),
        1 => any::<u64>(),
    ]
}

#[test]
fn every_size_of_packet_comes_back_whole() {
    for (largest, buffer_bytes) in [(64, 2048), (2048, 2048), (2049, 4096), (4097, 9600), (9600, 9600)] {
        let shape = Shape { descriptors: 4, buffers: 8, ..Shape::for_packets(largest).expect("a size that can be") };
        assert_eq!(shape.buffer_bytes, buffer_bytes);
        let (queues, layout) = place(shape);
        let memory = Memory::new(&layout);
        let (mut host, mut nic) = (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))));
        for length in [1, 60, 63, 64, 65, largest as usize - 1, largest as usize] {
            let mut buffer = [Buffer::default()];
            assert_eq!(host.buf_alloc(&mut buffer), 1);
            let sent = bytes(length as u64, length);
            host.write_packet(&mut buffer[0], &sent);
            assert_eq!(host.tx_burst(&buffer), 1);
            let mut packet = vec![0; 9600];
            assert_eq!(nic.poll_tx(), 1);
            assert_eq!(nic.take_tx(&mut packet), Some(length));
            assert_eq!(nic.rx_push(&packet[..length]), Ok(()));
            assert!(nic.flush());
            assert_eq!(host.rx_burst(&mut buffer), 1);
            assert_eq!(host.read_packet(&buffer[0], &mut packet), sent);
            host.buf_free(&buffer);
        }
    }
    for bytes in [0, 9601] {
        assert!(Shape::for_packets(bytes).expect_err("refused").to_string().contains(&format!("not {bytes}")));
    }
}

#[test]
fn metadata_lies_in_front_of_payloads_and_no_packet_reaches_it() {
    let shape = small(4, RxSignal::Register);
    assert_eq!(
        (shape.room(), shape.with_metadata(64).buffer_bytes, shape.with_metadata(129).buffer_bytes),
        (128, 384, 512)
    );
    // As in a pool of DPDK's: behind the metadata is room for what there was room for, and the lines are odd.
    let pooled = [64, 129, 193].map(|bytes| shape.with_pooled_metadata(bytes));
    assert_eq!(pooled.map(|shape| (shape.room(), shape.buffer_bytes)), [(128, 448), (256, 576), (256, 576)]);
    let shape = shape.with_metadata(64);
    assert_eq!(shape.room(), 64);
    let (queues, layout) = place(shape);
    let memory = Memory::new(&layout);
    let (mut host, mut nic) = (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))));
    let first = start_of(&layout, "ring buffers");
    let metadata = |host: &Host<Agent<'_>>, at: Address| {
        assert_eq!((at.0 - first.0) % 384, buffer_metadata::BYTES, "the payload is behind the metadata");
        assert_eq!(host.core().load(Address(at.0 - buffer_metadata::SECOND)), 0, "no segment follows");
        host.core().load(Address(at.0 - buffer_metadata::FIRST))
    };
    let mut packet = [0; 64];
    // Each buffer is sent and received several times.
    for length in (1..=64).cycle().take(200) {
        let mut sent = [Buffer::default()];
        assert_eq!((host.buf_alloc(&mut sent), metadata(&host, sent[0].address)), (1, 0));
        // All bits set, which no length in the metadata is.
        host.write_packet(&mut sent[0], &vec![0xff; length]);
        assert_eq!((host.tx_burst(&sent), metadata(&host, sent[0].address)), (1, length as u64));
        assert_eq!((nic.poll_tx(), nic.take_tx(&mut packet)), (1, Some(length)));
        assert_eq!((nic.rx_push(&packet[..length]), nic.flush()), (Ok(()), true));
        let mut received = [Buffer::default()];
        assert_eq!((host.rx_burst(&mut received), received[0].length), (1, length as u64));
        assert_eq!(metadata(&host, received[0].address), length as u64);
        host.buf_free(&received);
        for index in 0..shape.buffers {
            let entered = metadata(&host, first + index * 384 + buffer_metadata::BYTES);
            assert!(entered <= 64, "the metadata of buffer {index} say {entered:#x}");
        }
    }
    let mut largest = [Buffer::default()];
    host.buf_alloc(&mut largest);
    host.write_packet(&mut largest[0], &[0xff; 64]);
    largest[0].length = 65;
    assert_eq!((host.tx_burst(&largest), nic.poll_tx(), nic.refusals().tx_length), (1, 0, 1));
}

#[test]
fn a_tx_ring_holds_one_packet_less_than_it_has_descriptors() {
    let (queues, layout) = place(small(8, RxSignal::Register));
    let memory = Memory::new(&layout);
    let mut loopback = Loopback::new(queues, &memory);
    assert_eq!(loopback.send(8, 64), 7);
    assert_eq!(loopback.send(1, 64), 0);
    // Sent packets free their descriptors when the head was flushed, not before.
    assert_eq!(loopback.loop_back(3), 3);
    assert_eq!(loopback.send(1, 64), 0);
    assert!(loopback.nic.flush());
    assert_eq!(loopback.send(8, 64), 3);
    loopback.drain();
}

#[test]
fn the_host_takes_sent_buffers_back_32_at_a_time() {
    let (queues, layout) = place(small(128, RxSignal::Register));
    let memory = Memory::new(&layout);
    let head = start_of(&layout, "ring TX head");
    let mut loopback = Loopback::new(queues, &memory);
    for sent in 1..=126 + 3 * 32 {
        assert_eq!(loopback.send(1, 64), 1);
        // Fewer than two of 127 descriptors are free when 126 were sent, and again when as many were sent as were taken back.
        let looks = if sent <= 126 { 0 } else { (sent - 127) / 32 + 1 };
        assert_eq!(memory.read_misses(0, head, LINE_BYTES), looks, "after {sent} packets");
        assert_eq!(loopback.loop_back(1), 1);
        loopback.nic.flush();
        assert_eq!(loopback.receive(1), 1);
    }
}

#[test]
fn the_host_looks_at_the_tx_head_only_when_descriptors_run_short() {
    let shape = Shape { tx_reclaim_threshold: 8, ..small(64, RxSignal::Register) };
    let (queues, layout) = place(shape);
    let memory = Memory::new(&layout);
    let head = start_of(&layout, "ring TX head");
    let mut loopback = Loopback::new(queues, &memory);
    for _ in 0..55 {
        assert_eq!(loopback.send(1, 64), 1);
        assert_eq!(loopback.loop_back(1), 1);
        loopback.nic.flush();
        assert_eq!(loopback.receive(1), 1);
    }
    assert_eq!(memory.read_misses(0, head, LINE_BYTES), 0);
    for _ in 0..2 {
        assert_eq!(loopback.send(1, 64), 1);
        assert_eq!(loopback.loop_back(1), 1);
        loopback.nic.flush();
        assert_eq!(loopback.receive(1), 1);
    }
    assert_eq!(memory.read_misses(0, head, LINE_BYTES), 1);
}

#[test]
fn registers_move_once_a_burst() {
    let (queues, layout) = place(small(16, RxSignal::Register));
    let memory = Memory::new(&layout);
    let mut loopback = Loopback::new(queues, &memory);
    let owned = |name, agent| memory.ownerships(agent, start_of(&layout, name), LINE_BYTES);
    for _ in 0..2 {
        assert_eq!(loopback.send(8, 64), 8);
        assert_eq!(loopback.loop_back(8), 8);
        assert!(loopback.nic.flush());
        assert!(!loopback.nic.flush());
        assert_eq!(loopback.receive(8), 8);
    }
    assert_eq!((owned("ring TX tail", 0), owned("ring RX tail", 1)), (2, 2));
}

#[test]
fn blank_buffers_are_posted_before_packets_are_taken_and_behind_them_only_where_few_are_left() {
    let (queues, layout) = place(small(16, RxSignal::DescriptorDone));
    let memory = Memory::new(&layout);
    let mut loopback = Loopback::new(queues, &memory);
    let mut head_after = |packets| {
        assert_eq!([loopback.send(packets, 64), loopback.loop_back(packets)], [packets; 2]);
        loopback.nic.flush();
        assert_eq!(loopback.receive(8), packets);
        loopback.host.core().load_acquire(start_of(&layout, "ring RX head"))
    };
    // Of 15 that are posted; what four packets took, the next call posts; and what two took, the one behind it.
    assert_eq!([0, 4, 2, 0].map(&mut head_after), [15, 15, 15 + 4 - 16, 15 + 6 - 16]);
    // Eight leave the device few.
    assert_eq!(head_after(8), 15 + 14 - 16);
}

#[test]
fn no_register_or_ring_shares_a_line_pair_with_another() {
    let (_, layout) = place(Shape::default());
    for pair in layout.segments().windows(2) {
        assert!(pair[0].end().0.div_ceil(128) <= pair[1].start.0 / 128, "{} and {}", pair[0].name, pair[1].name);
    }
}

/// A device alone, and the memory that a hostile host writes.
fn with_nic(signal: RxSignal, check: impl Fn(&Memory, &Layout, &mut Nic<PlayedByCore<Agent<'_>>>)) {
    let (queues, layout) = place(small(4, signal));
    let memory = Memory::new(&layout);
    check(&memory, &layout, &mut queues.nic(PlayedByCore(memory.agent(1))));
}

#[test]
fn tx_descriptors_that_reach_outside_the_buffers_are_skipped_and_counted() {
    // 12 buffers of 128 bytes.
    let total = 12 * 128;
    let cases: [(u64, u64, bool); 9] = [
        (0, 64, true),
        (total - 64, 64, true),
        (total - 63, 64, false),
        (total, 1, false),
        (0u64.wrapping_sub(1), 64, false),
        (0, 0, false),
        (0, 129, false),
        (0, 1 << 33 | 64, false),
        (1 << 63, 64, false),
    ];
    for (offset, length, accepted) in cases {
        with_nic(RxSignal::Register, |memory, layout, nic| {
            let ring = start_of(layout, "ring TX descriptors");
            memory.poke(ring, start_of(layout, "ring buffers").0.wrapping_add(offset));
            memory.poke(ring.word(1), length);
            // A good one behind it is not held up.
            memory.poke(ring.word(2), start_of(layout, "ring buffers").0);
            memory.poke(ring.word(3), 60);
            memory.poke(start_of(layout, "ring TX tail"), 2);
            let mut packet = [0; 128];
            assert_eq!(nic.poll_tx(), 1 + usize::from(accepted), "{offset:#x} {length:#x}");
            if accepted {
                assert_eq!(nic.take_tx(&mut packet), Some(length as usize));
            }
            assert_eq!(nic.take_tx(&mut packet), Some(60));
            assert_eq!(nic.take_tx(&mut packet), None);
            assert!(nic.flush());
            assert_eq!(memory.peek(start_of(layout, "ring TX head")), 2);
            assert_eq!(nic.refusals().by_host(), u64::from(!accepted));
            let length_refused = length == 0 || length > 128;
            assert_eq!(nic.refusals().tx_length, u64::from(length_refused), "{offset:#x} {length:#x}");
        });
    }
}

#[test]
fn an_address_whose_end_would_overflow_is_refused() {
    for address in [u64::MAX, u64::MAX - 63, u64::MAX - 127] {
        with_nic(RxSignal::Register, |memory, layout, nic| {
            for (ring, register) in [("ring TX descriptors", "ring TX tail"), ("ring RX descriptors", "ring RX head")] {
                memory.poke(start_of(layout, ring), address);
                memory.poke(start_of(layout, ring).word(1), 128);
                memory.poke(start_of(layout, register), 1);
            }
            assert_eq!(nic.poll_tx(), 0);
            assert_eq!(nic.rx_push(&[7; 60]), Err(NoBuffer));
            assert_eq!((nic.refusals().tx_address, nic.refusals().rx_address), (1, 1));
            // Refused descriptors still count as done with, or the host would wait for them for ever.
            assert!(nic.flush());
            assert_eq!(memory.peek(start_of(layout, "ring TX head")), 1);
            assert_eq!(memory.peek(start_of(layout, "ring RX tail")), 1);
        });
    }
}

#[test]
fn registers_outside_the_ring_are_ignored_and_counted() {
    for value in [4, u64::MAX, 1 << 32] {
        with_nic(RxSignal::Register, |memory, layout, nic| {
            memory.poke(start_of(layout, "ring TX tail"), value);
            memory.poke(start_of(layout, "ring RX head"), value);
            assert_eq!((nic.poll_tx(), nic.poll_rx()), (0, 0));
            assert_eq!((nic.refusals().tx_tail, nic.refusals().rx_head), (1, 1));
        });
    }
}

#[test]
fn a_refused_rx_buffer_goes_back_to_the_hosts_pool_and_leaves_no_hole() {
    for signal in SIGNALS {
        let shape = small(4, signal);
        let (queues, layout) = place(shape);
        let memory = Memory::new(&layout);
        let (mut host, mut nic) = (queues.host(memory.agent(0)), queues.nic(PlayedByCore(memory.agent(1))));
        // The host itself is sound: the descriptor was broken behind its back.
        memory.poke(start_of(&layout, "ring RX descriptors"), 1 << 40);
        assert_eq!(nic.rx_push(&[1; 60]), Ok(()));
        assert_eq!(nic.rx_push(&[2; 60]), Ok(()));
        nic.flush();
        let mut buffers = [Buffer::default(); 4];
        assert_eq!(host.rx_burst(&mut buffers), 2);
        let mut packet = [0; 128];
        assert_eq!(host.read_packet(&buffers[0], &mut packet), [1; 60]);
        assert_eq!((nic.refusals().rx_address, host.statistics().refused_packets), (1, 1));
        host.buf_free(&buffers[..2]);
        assert_eq!(host.free_buffers() as u64, shape.buffers - 3);
    }
}

#[test]
fn registers_of_the_device_that_cannot_be_are_ignored_and_counted() {
    for value in [3, 4, u64::MAX] {
        let (queues, layout) = place(small(4, RxSignal::Register));
        let memory = Memory::new(&layout);
        let mut host = queues.host(memory.agent(0));
        let mut buffers = [Buffer::default()];
        assert_eq!(host.buf_alloc(&mut buffers), 1);
        host.write_packet(&mut buffers[0], &[1; 60]);
        assert_eq!(host.tx_burst(&buffers), 1);
        let before = host.free_buffers();
        memory.poke(start_of(&layout, "ring TX head"), value);
        assert_eq!(host.reclaim(), 0);
        // 3 is a good RX tail: three buffers are posted. It announces descriptors that were not written back.
        memory.poke(start_of(&layout, "ring RX tail"), value);
        assert_eq!(host.rx_burst(&mut buffers), 0);
        let refused = host.statistics();
        if value == 3 {
            assert_eq!((refused.refused_registers, refused.refused_packets), (1, 3));
        } else {
            assert_eq!((refused.refused_registers, refused.refused_packets), (2, 0));
            assert_eq!(host.free_buffers(), before);
        }
    }
}

#[test]
fn a_packet_that_fits_no_buffer_is_dropped_and_counted() {
    with_nic(RxSignal::Register, |_, _, nic| {
        assert_eq!(nic.rx_push(&[0; 129]), Ok(()));
        assert_eq!(nic.rx_push(&[]), Ok(()));
        assert_eq!((nic.refusals().rx_length, nic.refusals().by_host()), (2, 0));
        assert!(!nic.flush());
    });
}

#[test]
fn a_buffer_freed_twice_is_refused_once_the_pool_is_full() {
    let (queues, layout) = place(small(4, RxSignal::Register));
    let memory = Memory::new(&layout);
    let mut host = queues.host(memory.agent(0));
    for _ in 0..4 {
        host.buf_free(&[Buffer { address: start_of(&layout, "ring buffers"), length: 0 }]);
    }
    assert_eq!((host.statistics().refused_frees, host.core().load_acquire(start_of(&layout, "ring TX tail"))), (1, 0));
}

#[test]
fn shapes_that_cannot_be_are_refused_with_their_reason() {
    let refused = |shape: Shape| shape.place(&mut Layout::new()).expect_err("refused").to_string();
    let good = Shape::default();
    for descriptors in [0, 1, 3, 1 << 17] {
        assert!(refused(Shape { descriptors, ..good }).contains(&format!("not {descriptors}")));
    }
    for buffers in [255, 1 << 25] {
        assert!(refused(Shape { buffers, ..good }).contains(&format!("not {buffers}")));
    }
    for buffer_bytes in [0, 100, 1 << 17] {
        assert!(refused(Shape { buffer_bytes, ..good }).contains(&format!("not {buffer_bytes}")));
    }
    // No room behind the metadata.
    assert!(refused(Shape { buffer_bytes: 64, metadata: true, ..good }).contains("not 64"));
}

/// A device that writes down which lines it read, and on which of them what it did next depended.
struct Waiting<'all, 'memory> {
    device: PlayedByCore<Agent<'memory>>,
    read: &'all RefCell<BTreeSet<Address>>,
    waited: &'all RefCell<BTreeSet<Address>>,
}

impl Device for Waiting<'_, '_> {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        self.device.start_read(at, bytes, hint)
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.device.is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        self.read.borrow_mut().extend((0..into.len() as u64).map(|byte| (at + byte).line()));
        self.device.finish_read(tag, at, into);
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        self.device.read_word(at, hint)
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        self.device.write(at, from, hint);
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
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
    fn depends_on(&self, at: Address) {
        self.waited.borrow_mut().insert(at);
    }
}

#[test]
fn the_device_waits_for_every_line_of_a_batch_of_descriptors() {
    let (queues, layout) = place(small(32, RxSignal::Register));
    let memory = Memory::new(&layout);
    let mut host = queues.host(memory.agent(0));
    let (read, waited) = (RefCell::default(), RefCell::default());
    let device = PlayedByCore(memory.agent(1));
    let mut nic = queues.nic(Waiting { device, read: &read, waited: &waited });
    // Batches that end within a line, and begin where the last one ended.
    for packets in [1, 4, 13, 3, 9] {
        let mut buffers = vec![Buffer::default(); packets];
        assert_eq!(host.buf_alloc(&mut buffers), packets);
        buffers.iter_mut().for_each(|buffer| host.write_packet(buffer, &[7; 64]));
        assert_eq!(host.tx_burst(&buffers), packets);
        read.take();
        waited.take();
        while nic.poll_tx() == 0 {}
        let descriptors = read.take();
        assert!(!descriptors.is_empty());
        assert_eq!(waited.take(), descriptors, "{packets} packets");
        let mut packet = [0; 128];
        while nic.poll_tx() > 0 {
            while nic.take_tx(&mut packet).is_some() {}
        }
        nic.flush();
    }
}
