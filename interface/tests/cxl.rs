//! The CXL NIC's rings: every request type and signal, batches, hostile peers, and two threads of which one plays the device.

use std::collections::VecDeque;
use std::thread;

use crate::common::{Memory, bytes};
use conic_check::{Does, ToldCore};
use conic_fabric::{Address, Core, Device, Layout, PlayedByCore, StateHint};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{
    Host, MOST_IN_A_BATCH, Queues, Receiver, Requests, Shape, ShapeError, Signal, Store, Transmitter,
};
use conic_native::{Flag, NativeCore, Pages, yield_core};

pub(crate) fn small() -> (Layout, Queues) {
    let mut layout = Layout::new();
    let queues = Shape { descriptors: 16, buffers: 24, ..Shape::for_packets(1500) }.place(&mut layout);
    (layout, queues.expect("a shape that can be"))
}

/// Every configuration that differs for the code: signals, and descriptors that are read anew or were read ahead.
fn configurations() -> Vec<Requests> {
    let mut all = Vec::new();
    for tx_signal in [Signal::Descriptor, Signal::Tail, Signal::Doorbell] {
        for rx_descriptor in [None, Some(StateHint::CacheableOwned)] {
            for base in [Requests::NON_COHERENT, Requests::PUSHED, Requests::LOADS_AND_STORES] {
                all.push(Requests { tx_signal, rx_descriptor, ..base });
            }
        }
    }
    all
}

/// The host copies what it has received, and sends it; returns how many packets.
pub(crate) fn turn_around<C: Core>(host: &mut Host<C>, store: Store) -> usize {
    let mut packets = [Packet::BLANK; 8];
    let count = host.rx_burst(&mut packets);
    for packet in &packets[..count] {
        let mut to = [Address(0)];
        while host.buf_alloc(packet.length().into(), &mut to) == 0 {}
        let mut copy = vec![0; packet.length().into()];
        host.core().read_bytes(packet.address(), &mut copy);
        host.write_packet(to[0], &copy, store);
        assert_eq!(host.tx_burst(&[Packet::new(to[0], packet.length())]), 1);
        host.buf_free(&[packet.address()]);
    }
    count
}

#[test]
fn packets_of_all_sizes_come_back_in_order_in_every_configuration() {
    for requests in configurations() {
        for batch in [1, 3, 16] {
            let (layout, queues) = small();
            let memory = Memory::new(&layout);
            let mut host = Host::new(queues, memory.agent(0), requests.tx_signal);
            let device = || PlayedByCore(memory.agent(1));
            let mut receiver = Receiver::new(queues, device(), requests, 4);
            let mut transmitter = Transmitter::new(queues, device(), requests, batch);
            let (mut sent, mut waiting) = (0, VecDeque::new());
            for round in 0..200_usize {
                // Up to seven that were sent and not reported are in the ring still.
                let many = round % (batch.min(9) + 1);
                let frames: Vec<Vec<u8>> =
                    (0..many).map(|index| bytes(sent + index as u64, 60 + (round * 97 + index * 31) % 1440)).collect();
                let delivered = if many == 0 { 0 } else { receiver.deliver(&frames) };
                assert!(delivered > 0 || many == 0, "{requests:?}: descriptors are posted");
                receiver.prefetch();
                sent += delivered as u64;
                waiting.extend(frames.into_iter().take(delivered));
                while turn_around(&mut host, Store::Cached) > 0 {}
                while transmitter.take(|frame| assert_eq!(waiting.pop_front().as_deref(), Some(frame))) > 0 {}
            }
            assert!(waiting.is_empty() && sent > 90);
            assert_eq!((host.statistics(), receiver.statistics(), transmitter.statistics()), Default::default());
        }
    }
}

#[test]
fn a_full_ring_takes_no_more_and_loses_nothing() {
    let (layout, queues) = small();
    let memory = Memory::new(&layout);
    let requests = Requests::NON_COHERENT;
    let mut host = Host::new(queues, memory.agent(0), requests.tx_signal);
    let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
    let mut delivered = 0;
    while receiver.deliver(&[[delivered as u8; 64]]) > 0 {
        delivered += 1;
    }
    assert_eq!(delivered, 16, "as many as descriptors");
    let mut packets = [Packet::BLANK; 32];
    assert_eq!(host.rx_burst(&mut packets), 16);
    let mut first = [0; 64];
    host.core().read_bytes(packets[15].address(), &mut first);
    assert_eq!(first, [15; 64]);
    // Eight buffers are left: so many are posted by the next call, and no more until some are freed.
    assert_eq!(receiver.deliver(&[[0; 64]]), 0);
    assert_eq!(host.rx_burst(&mut packets), 0);
    assert_eq!((0..20).take_while(|_| receiver.deliver(&[[0; 64]]) > 0).count(), 8);
}

#[test]
fn blank_buffers_are_posted_half_a_small_ring_at_once_and_a_register_says_so() {
    for (requests, register) in [(Requests::NON_COHERENT, 0), (Requests::DMA, 16)] {
        let (layout, queues) = small();
        let memory = Memory::new(&layout);
        let mut host = Host::new(queues, memory.agent(0), requests.tx_signal);
        let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
        let posted = || (0..16).filter(|&place| memory.agent(0).load_acquire(queues.rx_ring.lines(place)) & 0xff == 1);
        let announced = || memory.agent(0).load_acquire(queues.rx_doorbell);
        assert_eq!((posted().count(), announced()), (16, register));
        let mut one_by_one = |host: &mut Host<_>, many: usize| {
            for _ in 0..many {
                assert_eq!(receiver.deliver(&[[7; 64]]), 1);
                let mut packets = [Packet::BLANK; 4];
                assert_eq!(host.rx_burst(&mut packets), 1);
                host.buf_free(&[packets[0].address()]);
            }
        };
        one_by_one(&mut host, 8);
        // The call that finds eight places empty posts into all of them, before it looks for packets.
        assert_eq!((posted().count(), announced()), (8, register));
        assert_eq!(host.rx_burst(&mut [Packet::BLANK; 4]), 0);
        assert_eq!((posted().count(), announced()), (16, register / 16 * 24));
        one_by_one(&mut host, 7);
        assert_eq!(host.rx_burst(&mut [Packet::BLANK; 4]), 0);
        assert_eq!((posted().count(), announced()), (9, register / 16 * 24));
    }
}

#[test]
fn a_device_reads_no_descriptor_past_the_register_and_a_host_of_few_buffers_goes_on() {
    let (layout, queues) = small();
    let memory = Memory::new(&layout);
    for rx_descriptor in [None, Some(StateHint::NonCacheable)] {
        let requests = Requests { rx_descriptor, ..Requests::DMA };
        let _host = Host::new(queues, memory.agent(0), requests.tx_signal);
        for wrong in [0, 17, u64::MAX] {
            memory.agent(0).store_release(queues.rx_doorbell, wrong);
            let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
            assert_eq!(receiver.deliver(&[[1; 64]]), 0, "{wrong}");
        }
        memory.agent(0).store_release(queues.rx_doorbell, 1);
        let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
        assert_eq!((receiver.deliver(&[[1; 64]; 2]), receiver.deliver(&[[1; 64]])), (1, 0));
    }
    // A program that keeps all but three buffers gets these posted, though a batch is eight.
    let requests = Requests::NON_COHERENT;
    let mut host = Host::new(queues, memory.agent(0), requests.tx_signal);
    let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
    let mut kept = Vec::new();
    for _ in 0..24 {
        assert_eq!(host.rx_burst(&mut [Packet::BLANK; 1]), 0);
        assert_eq!(receiver.deliver(&[[7; 64]]), 1);
        let mut packets = [Packet::BLANK; 1];
        assert_eq!(host.rx_burst(&mut packets), 1);
        kept.push(packets[0].address());
    }
    host.buf_free(&kept[..3]);
    assert_eq!(host.rx_burst(&mut [Packet::BLANK; 1]), 0);
    assert_eq!((0..9).take_while(|_| receiver.deliver(&[[0; 64]]) > 0).count(), 3);
}

#[test]
fn sent_packets_are_the_hosts_again_with_the_report_of_the_last_of_them() {
    let (layout, queues) = small();
    let memory = Memory::new(&layout);
    // Which of the first five are completed besides, and of the next eleven.
    let each = |batches: [&'static [u64]; 2]| (Requests::NON_COHERENT, batches);
    let asked = (Requests::DMA, [&[][..], &[]]);
    let runs = [
        (1, each([&[0, 1, 2, 3, 4], &[5, 6, 8, 9, 10, 11, 12, 13, 14]])),
        (3, each([&[2, 4], &[10, 13]])),
        (16, each([&[4], &[]])),
        (1, asked),
        (16, asked),
    ];
    for (batch, (requests, besides)) in runs {
        let mut host = Host::new(queues, memory.agent(0), requests.tx_signal);
        let mut transmitter = Transmitter::new(queues, PlayedByCore(memory.agent(1)), requests, batch);
        let state = |position: u64| memory.agent(0).load_acquire(queues.tx_ring.lines(position)) & 0xff;
        let mut send = |count: usize| {
            let mut buffers = [Address(0); 16];
            assert!(host.buf_alloc(64, &mut buffers[..count]) >= count, "there are more buffers than places");
            let packets = buffers[..count].iter().map(|&at| Packet::new(at, 64)).collect::<Vec<_>>();
            let sent = host.tx_burst(&packets);
            host.buf_free(&buffers[sent..count]);
            sent
        };
        let mut take =
            || std::iter::from_fn(|| Some(transmitter.take(|_| ())).filter(|&taken| taken > 0)).sum::<usize>();
        assert_eq!((send(5), take()), (5, 5));
        let completed = || (0..16).filter(|&position| state(position) == 2).collect::<Vec<u64>>();
        assert_eq!(completed(), besides[0]);
        // Their places are taken still, as in a ring of DPDK's.
        assert_eq!((send(12), send(1)), (11, 0));
        assert_eq!(take(), 11);
        let mut all = [besides[0], besides[1], &[7, 15]].concat();
        all.sort_unstable();
        assert_eq!(completed(), all);
        assert_eq!((send(8), send(8), send(1)), (8, 8, 0), "a report gives the eight of it back");
    }
}

#[test]
fn hostile_peers_are_refused_and_counted() {
    let (layout, queues) = small();
    let memory = Memory::new(&layout);
    let requests = Requests::NON_COHERENT;
    let mut host = Host::new(queues, memory.agent(0), requests.tx_signal);
    let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
    let mut transmitter = Transmitter::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
    let peer = memory.agent(0);
    // A descriptor whose buffer lies elsewhere is used for nothing.
    let word = peer.load(queues.rx_ring.word(1));
    for wrong in [u64::MAX, 0, word + 64, queues.tx_buffers.0] {
        peer.store(queues.rx_ring.word(1), wrong);
        assert_eq!(receiver.deliver(&[[1; 64]]), 0, "{wrong:#x}");
    }
    assert_eq!(receiver.statistics().refused_descriptors, 4);
    peer.store(queues.rx_ring.word(1), word);
    assert_eq!(receiver.deliver(&[vec![1; 5000]]), 1, "one that fits nowhere is dropped");
    assert_eq!(receiver.statistics().dropped_frames, 1);
    // A packet to transmit that is nowhere, or longer than a buffer, is completed and not read.
    let posted = |position: u64, length: u64| position << 32 | length << 16 | 1 << 8 | 1;
    for (position, at, length) in [(0, !7, 64), (1, queues.tx_buffers.0, 60_000), (2, queues.tx_buffers.0, 0)] {
        let line = queues.tx_ring.lines(position);
        peer.store(line.word(1), at);
        peer.store_release(line, posted(position, length));
        assert_eq!(transmitter.take(|_| panic!("nothing may be read")), 1);
    }
    assert_eq!(transmitter.statistics().refused_descriptors, 3);
    // A completion that speaks for more packets than there are.
    let nic = memory.agent(1);
    for count in [0, 17, MOST_IN_A_BATCH as u64 + 1, 255] {
        nic.store_release(queues.rx_ring, 64 << 16 | count << 8 | 2);
        assert_eq!(host.rx_burst(&mut [Packet::BLANK; 4]), 0, "{count}");
    }
    assert_eq!(host.statistics().refused_batches, 4);
    nic.store_release(queues.rx_ring, 9_000 << 16 | 1 << 8 | 2);
    assert_eq!(host.rx_burst(&mut [Packet::BLANK; 4]), 0);
    assert_eq!(host.statistics().refused_packets, 1);
    host.buf_free(&[Address(7)]);
    assert_eq!(host.statistics().refused_frees, 1);
}

#[test]
fn a_completion_that_changes_while_it_is_read_brings_no_more_packets_than_it_said_first() {
    let (layout, queues) = small();
    let memory = Memory::new(&layout);
    let requests = Requests::NON_COHERENT;
    let first = queues.rx_ring;
    let core = ToldCore::new(memory.agent(0), |does| {
        if does == Does::ReadLine(first) {
            memory.poke(first, memory.peek(first) & !0xff00 | (MOST_IN_A_BATCH as u64) << 8);
        }
    });
    let mut host = Host::new(queues, core, requests.tx_signal);
    let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 4);
    assert_eq!(receiver.deliver(&[[7; 64]; 2]), 2);
    let mut packets = [Packet::BLANK; 32];
    assert_eq!((host.rx_burst(&mut packets), host.rx_burst(&mut packets)), (2, 0));
    assert_eq!(receiver.deliver(&[[7; 64]; 2]), 2, "and those that come later are taken");
    assert_eq!((host.rx_burst(&mut packets), host.rx_burst(&mut packets)), (2, 0));
}

#[test]
fn a_frame_whose_length_no_descriptor_can_say_is_dropped() {
    let mut layout = Layout::new();
    // Whole lines: 65536 bytes.
    let shape = Shape { descriptors: 2, buffers: 2, ..Shape::for_packets(65_535) };
    let queues = shape.place(&mut layout).expect("a shape that can be");
    let memory = Memory::new(&layout);
    let requests = Requests::NON_COHERENT;
    let mut host = Host::new(queues, memory.agent(0), requests.tx_signal);
    let mut receiver = Receiver::new(queues, PlayedByCore(memory.agent(1)), requests, 1);
    assert_eq!(receiver.deliver(&[vec![1; 65_536]]), 1);
    assert_eq!(receiver.statistics().dropped_frames, 1);
    assert_eq!(receiver.deliver(&[vec![1; 65_535]]), 1);
    let mut packets = [Packet::BLANK; 2];
    assert_eq!((host.rx_burst(&mut packets), packets[0].length()), (1, 65_535));
    assert_eq!(host.statistics(), Default::default());
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let good = Shape::for_packets(1500);
    let place = |shape: Shape| shape.place(&mut Layout::new()).map(|_| ());
    assert_eq!(place(Shape { descriptors: 12, ..good }), Err(ShapeError::Descriptors(12)));
    assert_eq!(place(Shape { buffer_bytes: 70_000, ..good }), Err(ShapeError::BufferBytes(70_000)));
    assert_eq!(place(Shape { buffers: 8, ..good }), Err(ShapeError::Buffers(8)));
    assert_eq!(place(good), Ok(()));
}

/// Packets that go round between two threads.
pub(crate) const PACKETS: u64 = 20_000;

/// A device's halves give packets of many sizes to a host on another thread, which sends them back, and takes each as it was and in order.
pub(crate) fn go_round<D: Device>(
    receiver: &mut Receiver<D>,
    transmitter: &mut Transmitter<D>,
    host_has_ended: impl Fn() -> bool,
) {
    let frame = |number: u64| bytes(number, 60 + (number * 131 % 1440) as usize);
    let (mut sent, mut back) = (0, 0);
    while back < PACKETS {
        assert!(!host_has_ended(), "the host has ended");
        let many = (PACKETS - sent).min(1 + sent % 5).min(9 - (sent - back));
        let frames: Vec<Vec<u8>> = (sent..sent + many).map(frame).collect();
        if many > 0 {
            sent += receiver.deliver(&frames) as u64;
        }
        receiver.prefetch();
        let taken = transmitter.take(|got| {
            assert_eq!(got, frame(back), "packet {back}");
            back += 1;
        });
        if taken == 0 {
            yield_core();
        }
    }
}

#[test]
fn two_threads_of_which_one_plays_the_device_lose_nothing() {
    for (requests, store) in [
        (Requests::NON_COHERENT, Store::Cached),
        (Requests::PUSHED, Store::Nontemporal),
        (Requests { tx_signal: Signal::Tail, ..Requests::LOADS_AND_STORES }, Store::Cached),
        (Requests::DMA, Store::Cached),
    ] {
        let (layout, queues) = small();
        let memory = conic_native::Memory::create(&layout, Pages::Plain).expect("memory");
        let mut host = Host::new(queues, NativeCore::new(&memory), requests.tx_signal);
        let device = || PlayedByCore(NativeCore::new(&memory));
        let mut receiver = Receiver::new(queues, device(), requests, 4);
        let mut transmitter = Transmitter::new(queues, device(), requests, 8);
        let done = Flag::new();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                while !done.is_up() {
                    if turn_around(&mut host, store) == 0 {
                        host.core().spin();
                        yield_core();
                    }
                }
            });
            go_round(&mut receiver, &mut transmitter, || other.is_finished());
            done.raise();
            other.join().expect("the other thread ends");
        });
        assert_eq!(receiver.statistics(), Default::default());
    }
}
