//! The receive half on the modelled machine: pushes into the host's cache, what they save, the gate that turns them off, and lines that
//! are taken out of the cache again; descriptors that are read ahead.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, Layout, StateHint, SynchronisingWords, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{
    CachePressure, GatePolicy, Homes, Host, PushControl, PushGate, Queues, Receiver, Requests, Shape, Signal,
};
use conic_sim::Role;
use conic_sim::cxl::{CacheMonitoring, Counters, CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::platform::Platform;

/// How long the host's read of each of three packets' first words takes, in nanoseconds, 10 us after it came. Each packet is of one
/// byte, which is checked. Pushed packets are written back after so many cycles of the device's clock, of 2.5 ns.
fn reads(pushes: bool, write_back: Option<u32>) -> Vec<f64> {
    let machine = Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    let mut layout = Layout::new();
    let homes = Homes { rx_buffers: Home::Nic, ..Homes::HOST };
    let queues = Shape { homes, ..Shape::for_packets(256) }.place(&mut layout).expect("a shape that can be");
    let mut simulation = CxlSimulation::new(&machine, &layout);
    let taken = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&taken);
    simulation.core("host", Role::Main, move |core| {
        let mut host = Host::new(queues, *core, Signal::Descriptor);
        let mut control = PushControl::new(*core, vec![queues]);
        control.allow(pushes);
        control.write_back_after(write_back.unwrap_or(0));
        for number in 1..=3_u64 {
            core.wait_until(Time::from_nanoseconds(100_000 * number + 10_000));
            let mut packets = [Packet::BLANK];
            assert_eq!(host.rx_burst(&mut packets), 1);
            let start = core.now();
            assert_eq!(core.load(packets[0].address()), 0x0101_0101_0101_0101 * number);
            into.borrow_mut().push(core.now().since(start).picoseconds() as f64 / 1000.0);
            // The same buffer comes again: it was freed last.
            host.buf_free(&[packets[0].address()]);
        }
    });
    simulation.device("NIC", Role::Service, move |device| {
        let mut receiver = Receiver::new(queues, *device, Requests::PUSHED, 4);
        for number in 1..=3_u64 {
            device.wait_until(Time::from_nanoseconds(100_000 * number));
            assert_eq!(receiver.deliver(&[[number as u8; 256]]), 1);
            // Until the next packet comes.
            let until = Time::from_nanoseconds(100_000 * (number + 1));
            while let Some(due) = receiver.next_due().filter(|due| *due < until) {
                device.wait_until(due);
                receiver.prefetch();
            }
        }
        device.wait_until(Time::NEVER);
    });
    simulation.run().expect("it ends");
    drop(simulation);
    taken.take()
}

#[test]
fn a_pushed_packet_is_read_out_of_the_cache_and_another_over_the_link() {
    assert!(reads(true, None).iter().all(|time| *time < 60.0), "{:?}", reads(true, None));
    assert!(reads(false, None).iter().all(|time| *time > 350.0), "{:?}", reads(false, None));
}

#[test]
fn a_packet_that_was_taken_out_of_the_cache_is_read_over_the_link_and_right() {
    let soon = reads(true, Some(1_200));
    assert!(soon.iter().all(|time| *time > 350.0), "{soon:?}");
    // Later than the host reads: the push still serves.
    let late = reads(true, Some(6_000));
    assert!(late.iter().all(|time| *time < 60.0), "{late:?}");
}

#[test]
fn a_buffer_that_was_pushed_anew_is_not_overwritten_by_what_it_held() {
    // Due after the next packet into it has come.
    for time in reads(true, Some(42_000)) {
        assert!(time < 60.0);
    }
}

/// A phase of a neighbour, by its number from 0 on, and how long each is.
const PHASE: Time = Time::from_nanoseconds(500_000);

/// In which phases a neighbour walks through four times the last-level cache.
fn walks(phase: u64) -> bool {
    phase == 1 || phase == 3
}

fn phase(now: Time) -> u64 {
    now.picoseconds() / PHASE.picoseconds()
}

/// A neighbour that walks through lines in its phases.
fn neighbour(core: &CxlCore<'_>, memory: Address, lines: u64) {
    for line in 0_u64.. {
        while !walks(phase(core.now())) {
            core.wait_until(core.now() + Time::from_nanoseconds(1_000));
        }
        core.read_line(memory.lines(line % lines));
    }
}

/// The host's gate, over the second core's traffic.
fn gate(core: &CxlCore<'_>, queues: Queues, closings: &Cell<u64>) {
    let mut gate = PushGate::new(PushControl::new(*core, vec![queues]), GatePolicy::default());
    loop {
        let CacheMonitoring { occupied, capacity, brought_in } = core.monitor_cache(&[1]);
        gate.look(core.now(), CachePressure { occupied, capacity, brought_in });
        closings.set(gate.closings());
        core.wait_until(gate.next_look());
    }
}

/// When packet `number` is sent.
fn sent(number: u64) -> Time {
    Time::from_nanoseconds(10_000 * (number + 1))
}

const PACKETS: u64 = 250;

/// Sends the packets, and notes of each whether it was pushed.
fn send(device: &CxlDevice<'_>, queues: Queues, pushes: &RefCell<Vec<bool>>) {
    let mut receiver = Receiver::new(queues, *device, Requests::PUSHED, 4);
    for number in 0..PACKETS {
        device.wait_until(sent(number));
        let before = receiver.pushes().pushed;
        assert_eq!(receiver.deliver(&[[(number % 251) as u8; 256]]), 1, "a descriptor is posted");
        pushes.borrow_mut().push(receiver.pushes().pushed > before);
        receiver.prefetch();
    }
    device.wait_until(Time::NEVER);
}

/// Takes the packets, and notes when each came and how long the read of its last line took.
fn take(core: &CxlCore<'_>, queues: Queues, taken: &RefCell<Vec<(Time, Time)>>) {
    let mut host = Host::new(queues, *core, Signal::Descriptor);
    for number in 0..PACKETS {
        let mut packets = [Packet::BLANK];
        while host.rx_burst(&mut packets) == 0 {
            core.spin();
        }
        let (came, last) = (core.now(), packets[0].address() + 192);
        assert_eq!(core.load(last), 0x0101_0101_0101_0101 * (number % 251), "packet {number}");
        taken.borrow_mut().push((came, core.now().since(came)));
        host.buf_free(&[packets[0].address()]);
    }
}

#[test]
fn the_gate_closes_while_a_neighbour_fills_the_cache_and_opens_when_it_rests_and_packets_come_on() {
    let mut machine =
        Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    machine.cache.llc_bytes = 1 << 20;
    machine.cache.l2_bytes = 1 << 17;
    let mut layout = Layout::new();
    let homes = Homes { rx_buffers: Home::Nic, ..Homes::HOST };
    let queues = Shape { homes, ..Shape::for_packets(256) }.place(&mut layout).expect("a shape that can be");
    let lines = 4 * machine.cache.llc_bytes / 64;
    let memory = layout.add("neighbour's", lines * 64, 64, Home::Host, SynchronisingWords::NONE);
    let mut simulation = CxlSimulation::new(&machine, &layout);
    let (taken, pushes, closings) = (Rc::new(RefCell::default()), Rc::new(RefCell::default()), Rc::new(Cell::new(0)));
    let into = Rc::clone(&taken);
    simulation.core("host", Role::Main, move |core| take(core, queues, &into));
    simulation.core("neighbour", Role::Service, move |core| neighbour(core, memory, lines));
    let into = Rc::clone(&closings);
    simulation.core("monitor", Role::Service, move |core| gate(core, queues, &into));
    let into = Rc::clone(&pushes);
    simulation.device("NIC", Role::Service, move |device| send(device, queues, &into));
    simulation.run().expect("it ends");
    drop(simulation);
    let (taken, pushes) = (taken.take(), pushes.take());
    assert_eq!((taken.len(), closings.get()), (PACKETS as usize, 2));
    for (number, ((came, read), was_pushed)) in (0_u64..).zip(taken.iter().zip(&pushes)) {
        let (since, now) = (came.since(sent(number)).nanoseconds(), phase(sent(number)));
        assert!(since < 3_000, "packet {number} came {since} ns after it was sent");
        // The first look of a phase that sees it, and the register's write, take 200 us and somewhat.
        let phase_began = Time::from_picoseconds(now * PHASE.picoseconds());
        if sent(number).since(phase_began).nanoseconds() > 250_000 {
            assert_eq!(*was_pushed, !walks(now), "packet {number} in phase {now}");
            let read = read.nanoseconds();
            assert!(if walks(now) { read > 350 } else { read < 100 }, "packet {number}, phase {now}: {read} ns");
        }
    }
}

/// How often the device asks the host for a descriptor that it reads ahead, while its host takes so many packets, and how many descriptors
/// it has before the first of them without asking.
fn read_ahead(packets: u64) -> (u64, u64) {
    let machine = Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    let mut layout = Layout::new();
    let queues = Shape::for_packets(64).place(&mut layout).expect("a shape that can be");
    let mut simulation = CxlSimulation::new(&machine, &layout);
    let found = Rc::new(Cell::new((0, 0)));
    let into = Rc::clone(&found);
    simulation.core("host", Role::Service, move |core| {
        let mut host = Host::new(queues, *core, Signal::Descriptor);
        loop {
            let mut received = [Packet::BLANK; 32];
            let count = host.rx_burst(&mut received);
            let buffers: Vec<Address> = received[..count].iter().map(|packet| packet.address()).collect();
            host.buf_free(&buffers);
            core.spin();
        }
    });
    simulation.device("NIC", Role::Main, move |device| {
        let mut receiver = Receiver::new(queues, *device, Requests::NON_COHERENT, 2_048);
        let count = |of: fn(&Counters) -> u64| of(&device.machine().borrow().counters);
        let (asked, hits) =
            (|counters: &Counters| counters.messages.of("RdShared"), |counters: &Counters| counters.device_hits);
        device.wait_until(Time::from_nanoseconds(50_000));
        receiver.prefetch();
        device.wait_until(Time::from_nanoseconds(100_000));
        let before = count(hits);
        for position in 0..queues.shape.descriptors {
            device.read(queues.rx_ring.lines(position), &mut [0; 64], StateHint::CacheableShared);
        }
        let there = count(hits) - before;
        let before = count(asked);
        for _ in 0..packets {
            assert_eq!(receiver.deliver(&[[1; 64]]), 1);
            receiver.prefetch();
            device.wait_until(device.now() + Time::from_nanoseconds(2_000));
        }
        into.set((count(asked) - before, there));
    });
    simulation.run().expect("it ends");
    drop(simulation);
    found.get()
}

#[test]
fn what_is_posted_is_read_ahead_and_no_more() {
    let (asked, there) = read_ahead(320);
    assert_eq!(there, 256, "all that the host has posted");
    // Each once when it has been posted anew, but for the last ones; and one of 32 before that.
    assert!((320 - 32..=320 + 320 / 32).contains(&asked), "{asked} descriptors were asked for, for 320 packets");
}
