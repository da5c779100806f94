//! Tests of packets of several segments on a chip.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, MemoryType, SynchronisingWords, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::{Flags, MAX_SEGMENTS};
use conic_interface::ring::{Host, QueuePair, RxSignal, Shape};
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::Chip;
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

use super::on_chip::Places;
use super::{ChipQueue, Pair};

const OBJECT_BYTES: u64 = 4096;
const MORE: u64 = 1 << 32;

/// A queue pair with objects, and where these start.
fn place(read_ahead_bytes: u64) -> (QueuePair, Layout, Address) {
    let mut layout = Layout::new();
    let objects = layout.add("objects", OBJECT_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let shape = Shape {
        descriptors: 64,
        buffers: 256,
        rx_signal: RxSignal::DescriptorDone,
        host_written_registers: MemoryType::Uncached,
        read_ahead_bytes,
        ..Shape::default()
    };
    let pair = shape.place(&mut layout).expect("a shape that can be").with_objects(objects, OBJECT_BYTES);
    (pair, layout, objects)
}

fn machine() -> Parameters {
    Platform::load("icx-cx6").expect("a platform that comes with the simulator").parameters().clone()
}

/// Runs a host's program before a chip that turns its packets round; the chip fetches so many descriptors at once.
fn before_a_chip(
    (pair, layout): (QueuePair, &Layout),
    descriptor_batch: u32,
    program: impl for<'a> Fn(&'a SimCore<'a>, Host<&'a SimCore<'a>>) + 'static,
) {
    let machine = machine();
    let mut nic = machine.nic.clone().expect("a NIC");
    nic.descriptor_batch = descriptor_batch;
    let rings = Pair::Ring(Places::of_last(layout, pair));
    run_before_a_chip(&machine, layout, rings, nic, move |core| program(core, pair.host(core)));
}

fn run_before_a_chip(
    machine: &Parameters,
    layout: &Layout,
    rings: Pair,
    nic: NicParameters,
    program: impl for<'a> Fn(&'a SimCore<'a>) + 'static,
) {
    let mut simulation = Simulation::new(machine, layout, Options::default());
    let chip = Rc::new(RefCell::new(Chip::new(&nic)));
    let ended = Rc::new(Cell::new(false));
    let ends = Rc::clone(&ended);
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        program(core);
        ends.set(true);
    });
    simulation.device("NIC queue", Role::Service, Time::ZERO, move |device| {
        ChipQueue::new(&rings, device, &nic, &chip).turn_round()
    });
    simulation.run().expect("the run ends");
    assert!(ended.get());
}

/// Receives one packet, within a time in which each would have come.
fn receive<'a>(core: &SimCore<'a>, host: &mut impl HostQueue<Core = &'a SimCore<'a>>) -> Option<Vec<u8>> {
    let end = core.now() + Time::from_nanoseconds(50_000);
    let mut packet = [Packet::BLANK];
    while HostQueue::rx_burst(host, &mut packet) == 0 {
        if core.now() > end {
            return None;
        }
        core.spin();
    }
    let mut content = vec![0; packet[0].length().into()];
    core.read_bytes(packet[0].address(), &mut content);
    HostQueue::buf_free(host, &[packet[0].address()]);
    Some(content)
}

fn byte_of(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes_of(from: u64, length: u64) -> Vec<u8> {
    (from..from + length).map(byte_of).collect()
}

/// Sends and receives packets, each of another number of segments from a buffer and objects; four packets, and then their answers.
fn rounds<'a>(core: &SimCore<'a>, host: &mut impl HostQueue<Core = &'a SimCore<'a>>, objects: Address) {
    core.write_bytes(objects, &bytes_of(0, OBJECT_BYTES));
    let mut at = 0;
    for round in 0..60 {
        let (mut segments, mut expected) = (Vec::new(), Vec::new());
        for packet in 0..4 {
            let count = 1 + (round + packet) as usize % MAX_SEGMENTS;
            let mut buffer = [Address(0)];
            assert_eq!(host.buf_alloc(64, &mut buffer), 1);
            core.write_bytes(buffer[0], &[round; 20]);
            segments.push(Packet::new(buffer[0], 20));
            let mut content = vec![round; 20];
            for segment in 1..count {
                at = (at + 61) % (OBJECT_BYTES - 300);
                let length = 37 * segment as u64 + u64::from(round);
                let before = segments.last_mut().expect("a header");
                *before = before.with(Flags::NEXT);
                segments.push(Packet::new(objects + at, length as u16).with(Flags::RETAIN));
                content.extend(bytes_of(at, length));
            }
            expected.push(content);
        }
        let mut sent = 0;
        while sent < segments.len() {
            sent += host.tx_burst(&segments[sent..]);
            core.spin();
        }
        for content in expected {
            assert_eq!(receive(core, host).as_ref(), Some(&content), "round {round}");
        }
    }
}

#[test]
fn packets_of_one_to_four_segments_come_back_whole_from_a_chip() {
    for (descriptor_batch, read_ahead_bytes) in [(1, 1 << 16), (3, 100), (32, 1 << 16)] {
        let (pair, layout, objects) = place(read_ahead_bytes);
        before_a_chip((pair, &layout), descriptor_batch, move |core, mut host| {
            rounds(core, &mut host, objects);
            host.reclaim();
            assert_eq!(host.free_buffers() + host.device_buffers(), 256);
            assert!(host.device_buffers() < 64, "what was sent was reclaimed");
            assert_eq!(host.statistics(), Default::default());
        });
    }
}

#[test]
fn packets_of_one_to_four_segments_come_back_whole_from_a_chip_with_the_rings_of_a_connectx() {
    // Copied into their entries where they are short, and all read where they lie; completions each for itself, and gathered.
    for (descriptor_batch, queues, wait) in [(1, 8, 0), (3, 7, 300_000), (32, 8, 300_000), (32, 7, 0)] {
        let (mut layout, mut machine) = (Layout::new(), machine());
        let objects = layout.add("objects", OBJECT_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
        let nic = machine.nic.as_mut().expect("a NIC");
        (nic.mlx5_rings, nic.descriptor_batch, nic.write_back_wait) = (true, descriptor_batch, wait);
        let nic = nic.clone();
        let shape = Shape { descriptors: 64, buffers: 256, ..Shape::default() };
        let pair = Pair::place(&mut layout, shape, &nic, queues).expect("a shape that can be");
        let pair = pair.with_objects(objects, OBJECT_BYTES);
        run_before_a_chip(&machine, &layout, pair, nic, move |core| {
            let Pair::Mlx5(pair) = pair else { panic!("the platform has the rings of a ConnectX") };
            let mut host = pair.host(core);
            rounds(core, &mut host, objects);
            host.reclaim();
            assert_eq!(host.free_buffers() + host.device_buffers(), 256);
            assert_eq!(host.statistics(), Default::default());
        });
    }
}

/// A host that writes TX descriptors as it likes.
struct Hostile<'a> {
    core: &'a SimCore<'a>,
    ring: Address,
    tail: Address,
    head: Address,
    written: u64,
}

impl<'a> Hostile<'a> {
    fn new(core: &'a SimCore<'a>, [ring, tail, head]: [Address; 3]) -> Hostile<'a> {
        Hostile { core, ring, tail, head, written: 0 }
    }

    fn announce(&mut self, descriptors: &[[u64; 2]]) {
        for words in descriptors {
            let at = self.ring + self.written % 64 * 16;
            self.core.store(at, words[0]);
            self.core.store(at.word(1), words[1]);
            self.written += 1;
        }
        self.core.register_write(self.tail, self.written % 64);
    }

    /// Waits until the chip is done with all of it. A chip that waits too ends the run.
    fn wait(&self) {
        while self.core.register_read(self.head) != self.written % 64 {
            self.core.spin();
        }
    }
}

/// Where the TX ring is, and its tail and head; and the first buffer.
fn places_of(layout: &Layout) -> ([Address; 3], u64) {
    let start_of = |name: &str| layout.segments().iter().find(|one| one.name == name).expect("a segment").start;
    (["ring TX descriptors", "ring TX tail", "ring TX head"].map(start_of), start_of("ring buffers").0)
}

#[test]
fn a_chip_passes_over_packets_that_are_refused() {
    for descriptor_batch in [1, 3, 32] {
        let (pair, layout, objects) = place(1 << 16);
        let (places, buffers) = places_of(&layout);
        before_a_chip((pair, &layout), descriptor_batch, move |core, mut host| {
            let (good, more, bad) = ([buffers, 10], [buffers, 10 | MORE], [u64::MAX - 5, 10]);
            let bad_more = [bad[0], bad[1] | MORE];
            let refused = [
                vec![more, bad],
                vec![bad_more, good],
                vec![more, more, bad_more, more, more, good],
                vec![more; 40].into_iter().chain([good]).collect(),
                vec![more, [objects.0 + OBJECT_BYTES - 9, 10]],
                vec![bad],
                // Broken off.
                vec![more],
                vec![more, bad_more],
                vec![more; 5],
            ];
            let mut hostile = Hostile::new(core, places);
            for some in refused {
                // What is announced after a packet that was broken off is none of it.
                hostile.announce(&some);
                hostile.wait();
                hostile.announce(&[good, more, [objects.0, 20], more, good]);
                for length in [10, 30, 20] {
                    let came = receive(core, &mut host).map(|content| content.len());
                    assert_eq!(came, Some(length), "after {some:x?}, batches of {descriptor_batch}");
                }
            }
        });
    }
}

#[test]
fn a_chip_goes_on_whenever_it_hears_what_follows_a_packet_that_is_broken_off() {
    let seen = Rc::new([Cell::new(0), Cell::new(0)]);
    for descriptor_batch in [1, 3, 32] {
        let (pair, layout, objects) = place(1 << 16);
        let ((places, buffers), seen) = (places_of(&layout), Rc::clone(&seen));
        before_a_chip((pair, &layout), descriptor_batch, move |core, mut host| {
            let (good, more) = ([buffers, 10], [buffers, 10 | MORE]);
            let mut hostile = Hostile::new(core, places);
            let wait = |nanoseconds| {
                let end = core.now() + Time::from_nanoseconds(nanoseconds);
                while core.now() < end {
                    core.spin();
                }
            };
            // The chip has the descriptors of the first packets, and their payloads are still under way, when the tail stands within
            // a packet; it does for a while that is another one each time.
            for (before, within) in (0..3000).step_by(50).map(|within| (within % 400, within)) {
                hostile.announce(&[[objects.0, 2000]; 31]);
                wait(before);
                hostile.announce(&[more]);
                wait(within);
                hostile.announce(&[good, good]);
                let came: Vec<_> =
                    (0..33).map_while(|_| receive(core, &mut host)).map(|content| content.len()).collect();
                hostile.wait();
                // They are one packet with what came before, or not, by what the chip has heard.
                assert_eq!(came[..31], [2000; 31]);
                let whole = [[10, 10], [20, 10]].iter().position(|whole| came[31..] == *whole);
                let seen = &seen[whole.unwrap_or_else(|| panic!("{came:?} came"))];
                seen.set(seen.get() + 1);
            }
        });
    }
    assert!(seen.iter().all(|seen| seen.get() > 10), "{seen:?}");
}
