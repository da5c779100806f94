//! What a side asks for before it is read, how much it works, and how often it looks at the pool.

use std::cell::{Cell, RefCell};

use conic_check::{CrashMemory, Does, ToldCore};
use conic_fabric::{Address, Core};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{
    BulkWire, Compiled, Completions, Descriptor, Features, Flags, Host, Map, Nic, Packing, Paper, PhaseCredit, Policy,
    Signal, Wire, prepare,
};
use conic_interface::work;

use crate::common::geometry;

/// A region that is ready, with so many bytes of objects.
fn region(features: Features, object_bytes: u64) -> (Map, CrashMemory) {
    let map = Map::new(geometry(64, [64, 64, 4], object_bytes), features).expect("a geometry that can be");
    let memory = CrashMemory::new(&map.layout);
    prepare(&memory.core("builder"), &map);
    (map, memory)
}

/// Receives four packets, and then three; how many of their payloads were asked for, and how many other lines.
fn payloads_asked_for(leaves: bool) -> (usize, usize) {
    let (map, memory) = region(Features::best(), 0);
    let asked = RefCell::new(Vec::new());
    let core = ToldCore::new(memory.core("host"), |does| {
        if let Does::Prefetch(at) = does {
            asked.borrow_mut().push(at);
        }
    });
    let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
    if leaves {
        host.leave_payloads();
    }
    let mut nic = Nic::<_, PhaseCredit>::new(memory.core("nic"), &map, 0);
    let mut received = Vec::new();
    for count in [4, 3] {
        let frames: Vec<_> = (0..count).map(|_| Descriptor::new(nic.rx_alloc(64).expect("a full pool"), 64)).collect();
        assert_eq!(nic.rx_burst(&frames), count);
        let mut out = [Descriptor::BLANK; 8];
        assert_eq!(host.rx_burst(&mut out), count);
        received.extend(out[..count].iter().map(|packet| packet.address()));
    }
    let asked = asked.borrow();
    let payloads = asked.iter().filter(|at| received.contains(at)).count();
    (payloads, asked.len() - payloads)
}

#[test]
fn payloads_are_asked_for_but_by_who_leaves_them() {
    let (payloads, others) = payloads_asked_for(false);
    assert_eq!(payloads, 7);
    assert!(others > 0, "no slot of the ring was asked for");
    assert_eq!(payloads_asked_for(true), (0, others));
}

/// Sends bursts of these lengths, each in a slot of its own, to a NIC that completes the first; which of the others it asks for then,
/// and what it gets after.
fn next_asked_for<P: Policy>(features: Features, bursts: &[usize]) -> (Vec<Address>, Vec<Address>) {
    let (map, memory) = region(features, 0);
    let mut host = Host::<_, P>::new(memory.core("host"), &map, 0);
    let mut sent = Vec::new();
    for &count in bursts {
        let mut buffers = vec![Address(0); count];
        assert_eq!(host.buf_alloc(1000, &mut buffers), count);
        let packets: Vec<_> = buffers.iter().map(|&at| Descriptor::new(at, 1000)).collect();
        assert_eq!(host.tx_burst(&packets), count);
        sent.push(buffers);
    }
    let asked = RefCell::new(Vec::new());
    let core = ToldCore::new(memory.core("nic"), |does| {
        if let Does::Prefetch(at) = does {
            asked.borrow_mut().push(at);
        }
    });
    let mut nic = Nic::<_, P>::new(core, &map, 0);
    let mut polled = [Descriptor::BLANK; 4];
    let count = nic.poll_tx(&mut polled);
    assert_eq!(polled[..count].iter().map(|packet| packet.address()).collect::<Vec<_>>(), sent[0]);
    asked.borrow_mut().clear();
    nic.complete_tx(&polled[..count]);
    let asked_for = asked.take();
    let mut rest = Vec::new();
    loop {
        match nic.poll_tx(&mut polled) {
            0 => break,
            count => rest.extend(polled[..count].iter().map(|packet| packet.address())),
        }
        nic.complete_tx(&polled[..0]);
    }
    assert_eq!(rest, sent[1..].concat());
    (asked_for, rest)
}

#[test]
fn a_wire_asks_for_the_lines_of_no_packet_that_it_has_turned_around_before() {
    let (map, memory) = region(Features::best(), 0);
    let mut host = Host::<_, PhaseCredit>::new(memory.core("host"), &map, 0);
    let asked = RefCell::new(Vec::new());
    let core = ToldCore::new(memory.core("nic"), |does| {
        if let Does::Prefetch(at) = does {
            asked.borrow_mut().push(at);
        }
    });
    let mut wire = Wire::new(Nic::<_, PhaseCredit>::new(core, &map, 0));
    let mut before: Vec<Address> = Vec::new();
    for count in [4, 3] {
        let mut buffers = vec![Address(0); count];
        assert_eq!(host.buf_alloc(1000, &mut buffers), count);
        let packets: Vec<_> = buffers.iter().map(|&at| Descriptor::new(at, 1000)).collect();
        assert_eq!(host.tx_burst(&packets), count);
        asked.borrow_mut().clear();
        assert_eq!(wire.turn_around(), count);
        let is_of = |buffer: Address| asked.borrow().iter().filter(|at| at.0.wrapping_sub(buffer.0) < 1000).count();
        // Of the first of a burst the first line alone.
        assert_eq!(buffers.iter().map(|&at| is_of(at)).sum::<usize>(), 1 + 16 * (count - 1));
        assert!(
            before.iter().all(|&at| buffers.contains(&at) || is_of(at) == 0),
            "what was there before is the host's"
        );
        before = buffers;
    }
}

#[test]
fn payloads_of_the_next_slots_are_asked_for_as_far_as_those_are_full() {
    let best = Features::best();
    let clear = Features { signal: Signal::Clear, ..best };
    for (bursts, expected) in
        [(&[4, 4, 4, 4, 4, 4][..], 16), (&[4, 4, 4, 3, 4], 8), (&[4, 2, 4], 0), (&[4], 0), (&[3, 4], 4)]
    {
        let (asked, rest) = next_asked_for::<PhaseCredit>(best, bursts);
        assert_eq!(asked, rest[..expected], "{bursts:?}");
        let (asked, rest) = next_asked_for::<Paper>(clear, bursts);
        assert_eq!(asked, rest[..expected], "{bursts:?}, where slots are cleared");
    }
    // Where a slot is one packet's, in a line of four or in one of its own.
    let packed = Features { packing: Packing::Packed, ..best };
    let (asked, rest) = next_asked_for::<Compiled<1, 1, true>>(packed, &[4, 6]);
    assert_eq!(asked, rest[..6]);
    let (asked, _) = next_asked_for::<PhaseCredit>(Features { fetch_ahead: false, ..best }, &[4, 4, 4]);
    assert!(asked.is_empty());
    let (asked, _) = next_asked_for::<Compiled<2, 0, true>>(Features { signal: Signal::Register, ..best }, &[4, 4, 4]);
    assert!(asked.is_empty(), "behind a register");
}

/// A NIC's half, with a count of what it asks for.
fn counting_nic(map: &Map, memory: &CrashMemory, asked: &Cell<u32>) -> Nic<impl Core, PhaseCredit> {
    let count = |does| asked.set(asked.get() + u32::from(matches!(does, Does::Prefetch(_))));
    Nic::new(ToldCore::new(memory.core("nic"), count), map, 0)
}

/// What is written while this burst is worked on is left to its producer.
#[test]
fn nothing_is_asked_for_behind_a_slot_that_was_not_full() {
    let (map, memory) = region(Features::best(), 0);
    let mut host = Host::<_, PhaseCredit>::new(memory.core("host"), &map, 0);
    let asked = Cell::new(0);
    let mut nic = counting_nic(&map, &memory, &asked);
    let mut send = || {
        let mut buffers = [Address(0); 4];
        assert_eq!(host.buf_alloc(1000, &mut buffers), 4);
        assert_eq!(host.tx_burst(&buffers.map(|at| Descriptor::new(at, 1000))), 4);
    };
    let mut polled = [Descriptor::BLANK; 8];
    for (room, expected) in [(8, 0), (4, 4)] {
        send();
        assert_eq!(nic.poll_tx(&mut polled[..room]), 4);
        send();
        asked.set(0);
        nic.complete_tx(&polled[..4]);
        assert_eq!(asked.get(), expected, "with room for {room}");
        // Once, however the caller divides what is left.
        nic.complete_tx(&[]);
        assert_eq!(asked.get(), expected);
        assert_eq!(nic.poll_tx(&mut polled[..4]), 4);
        nic.complete_tx(&polled[..4]);
    }
}

/// Slots that are not cleared say of the lap before that they are full.
#[test]
fn nothing_is_asked_for_of_the_lap_before() {
    let (map, memory) = region(Features::best(), 0);
    let mut host = Host::<_, PhaseCredit>::new(memory.core("host"), &map, 0);
    let asked = Cell::new(0);
    let mut nic = counting_nic(&map, &memory, &asked);
    let mut polled = [Descriptor::BLANK; 4];
    for burst in 0..3 * map.queues[0].transmit.slots {
        let mut buffers = [Address(0); 4];
        assert_eq!(host.buf_alloc(1000, &mut buffers), 4);
        assert_eq!(host.tx_burst(&buffers.map(|at| Descriptor::new(at, 1000))), 4);
        assert_eq!(nic.poll_tx(&mut polled), 4);
        asked.set(0);
        nic.complete_tx(&polled);
        assert_eq!(asked.get(), 0, "behind burst {burst}");
    }
}

#[test]
fn a_host_asks_for_what_it_receives_next_when_it_sends() {
    let (map, memory) = region(Features::best(), 0);
    let asked = RefCell::new(Vec::new());
    let core = ToldCore::new(memory.core("host"), |does| {
        if let Does::Prefetch(at) = does {
            asked.borrow_mut().push(at);
        }
    });
    let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
    let mut nic = Nic::<_, PhaseCredit>::new(memory.core("nic"), &map, 0);
    let mut delivered = Vec::new();
    for _ in 0..2 {
        let frames = [(); 4].map(|()| Descriptor::new(nic.rx_alloc(1000).expect("a full pool"), 1000));
        assert_eq!(nic.rx_burst(&frames), 4);
        delivered.extend(frames.map(|frame| frame.address()));
    }
    let mut received = [Descriptor::BLANK; 4];
    assert_eq!(host.rx_burst(&mut received), 4);
    asked.borrow_mut().clear();
    assert_eq!(host.tx_burst(&received), 4);
    assert_eq!(asked.take(), delivered[4..]);
}

#[test]
fn the_bytes_of_a_payload_in_the_ring_are_not_taken_for_addresses() {
    let (map, memory) = region(Features::best(), 0);
    let mut host = Host::<_, PhaseCredit>::new(memory.core("host"), &map, 0);
    for _ in 0..2 {
        let mut buffers = [Address(0)];
        assert_eq!(host.buf_alloc(56, &mut buffers), 1);
        memory.core("host").write_bytes(buffers[0], &[0xff; 56]);
        assert_eq!(host.tx_burst(&[Descriptor::new(buffers[0], 56)]), 1);
    }
    let asked = Cell::new(0);
    let mut nic = counting_nic(&map, &memory, &asked);
    let mut polled = [Descriptor::BLANK; 4];
    for _ in 0..2 {
        assert_eq!(nic.poll_tx(&mut polled), 1, "one takes all the room there is for a slot");
        asked.set(0);
        nic.complete_tx(&polled[..1]);
        assert_eq!(asked.get(), 0);
    }
}

/// The work of sending so many packets, and of learning that they were read.
fn work_of_sending(features: Features, flags: u8) -> [u32; 2] {
    let (map, memory) = region(features, 4096);
    let worked = Cell::new(0);
    let core = ToldCore::new(memory.core("host"), |does| {
        if let Does::Work(cycles) = does {
            worked.set(worked.get() + cycles);
        }
    });
    let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
    let mut nic = Nic::<_, PhaseCredit>::new(memory.core("nic"), &map, 0);
    let mut buffers = [Address(0); 4];
    assert_eq!(host.buf_alloc(1000, &mut buffers), 4);
    worked.set(0);
    let packets = buffers.map(|at| Descriptor::new(at, 200).with(flags));
    assert_eq!(host.tx_burst(&packets), 4);
    let sending = worked.take();
    let mut polled = [Descriptor::BLANK; 8];
    assert_eq!(nic.poll_tx(&mut polled), 4);
    nic.complete_tx(&polled[..4]);
    // Who finds nothing gives the credits back that are there.
    assert_eq!(nic.poll_tx(&mut polled), 0);
    host.completions(&mut [Descriptor::BLANK; 8]);
    [sending, worked.take()]
}

#[test]
fn what_comes_back_is_remembered_and_recalled_for_as_much_work_as_a_rings_descriptors() {
    let records = 4 * work::RECORD;
    let plain = work_of_sending(Features::best(), 0);
    assert_eq!(plain[1], 0, "none comes back");
    assert_eq!(work_of_sending(Features::best(), Flags::RETAIN), [plain[0] + records, records]);
    // All of a host's that manages the pool alone.
    let [sending, after] = work_of_sending(Features { shared_pool: false, ..Features::best() }, 0);
    assert_eq!(sending, plain[0] + records);
    assert!(after > records, "with the pool's");
}

/// What a NIC without a stack does at the pool's small buffers for 20 frames that it delivers, and for a round of 20 packets: accesses
/// to words of the free set. With `bulk` its copies are posted.
fn looks_at_the_pool(bulk: bool) -> [u32; 2] {
    let features = Features { recycling: false, ..Features::paper() };
    let mut map = Map::new(geometry(64, [64, 64, 4], 0), features).expect("a geometry that can be");
    let completions = Completions::place(&mut map.layout);
    let memory = CrashMemory::new(&map.layout);
    prepare(&memory.core("builder"), &map);
    let (looks, free) = (Cell::new(0), map.pool.classes[0].bits);
    let core = ToldCore::new(memory.core("nic"), |does| {
        looks.set(looks.get() + u32::from(matches!(does, Does::Word(at) if at == free)));
    });
    let mut host = Host::<_, Paper>::new(memory.core("host"), &map, 0);
    let nic = Nic::<_, Paper>::new(core, &map, 0);
    let mut wire: Box<dyn NicQueue + '_> =
        if bulk { Box::new(BulkWire::new(nic, completions)) } else { Box::new(Wire::new(nic)) };
    let (mut out, mut buffers) = ([Descriptor::BLANK; 32], [Address(0); 20]);
    assert_eq!(wire.deliver_frames(&vec![vec![7; 60]; 20]), 20);
    let delivering = looks.take();
    assert_eq!(host.rx_burst(&mut out), 20);
    host.buf_free(&std::array::from_fn::<_, 20, _>(|index| out[index].address()));
    assert_eq!(host.buf_alloc(60, &mut buffers), 20);
    assert_eq!(host.tx_burst(&buffers.map(|at| Descriptor::new(at, 60))), 20);
    assert_eq!(wire.turn_around(), 20);
    let turning = looks.take();
    // What a NIC that keeps nothing has is what it has delivered.
    assert_eq!(map.pool.free(&memory.core("accountant"))[0], 64 - 20);
    [delivering, turning]
}

#[test]
fn without_a_stack_a_nic_takes_a_rounds_buffers_together() {
    // A look and an update for all that are taken, and an update for all that the host had sent.
    assert_eq!([false, true].map(looks_at_the_pool), [[2, 3]; 2]);
}
