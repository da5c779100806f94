//! A last-level cache under pressure (section 5.3): packets come and wait in the host until it has time for them, while other cores walk
//! through memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{
    CachePressure, GatePolicy, Homes, Host, PushControl, PushGate, PushStatistics, Queues, Receiver, Requests, Shape,
};
use conic_sim::cxl::{CacheMonitoring, CxlCore, CxlDevice, CxlParameters, CxlSimulation, PushedLines};
use conic_sim::link::mix;
use conic_sim::{Failure, Role};

use super::loopback::{ahead, fill, set_write_back, wait_until};

/// A question.
#[derive(Clone, Debug)]
pub struct Pressure {
    /// The machine.
    pub machine: CxlParameters,
    /// The request type of each step of receiving.
    pub requests: Requests,
    /// In whose memory the structures lie.
    pub homes: Homes,
    /// The host's policy by which it stops pushes; none: it does not.
    pub gate: Option<GatePolicy>,
    /// After how many cycles of the device a pushed packet is written back; 0: it is not.
    pub write_back: u32,
    /// Bytes of a packet.
    pub bytes: usize,
    /// Ring pairs, each with an engine of the device and a core of its own.
    pub rings: usize,
    /// Time between two packets of a ring.
    pub gap: Time,
    /// Packets of a ring that wait in the host: each is read when so many have come after it.
    pub waiting: usize,
    /// Cores that walk through memory as fast as they can, each with a part of the working set.
    pub neighbours: usize,
    /// Bytes that they walk through, over those of the last-level cache.
    pub working_set: f64,
    /// Packets of a ring before the first that counts, and those that count.
    pub packets: (u64, u64),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct PressureOutcome {
    /// How long the host took to read each packet that counts, in picoseconds.
    pub reads: Vec<u64>,
    /// What became of the lines that were pushed meanwhile.
    pub lines: PushedLines,
    /// What became of all packets of the first ring.
    pub packets: PushStatistics,
    /// How often the gate was closed.
    pub closings: u64,
    /// What the neighbours read meanwhile, in gigabytes a second.
    pub neighbours: f64,
}

impl PressureOutcome {
    /// The part of the pushed lines that had to go before they were read; none where none was pushed.
    pub fn evicted(&self) -> f64 {
        self.lines.evicted as f64 / self.lines.pushed.max(1) as f64
    }
}

/// Packets that the host takes from the ring at once.
const BURST: usize = 32;
/// Lines that a neighbour reads one behind the other; then it goes on elsewhere.
const STRIDE: u64 = 8;

/// Where everything lies.
struct Places {
    queues: Vec<Queues>,
    working_set: Address,
    /// Lines of each neighbour.
    each: u64,
}

impl Pressure {
    fn place(&self) -> (Layout, Places) {
        let mut layout = Layout::new();
        let shape = Shape::for_packets(self.bytes as u64);
        // Those that wait, those that are posted, and a burst.
        let buffers = shape.buffers + (self.waiting + BURST) as u64;
        let shape = Shape { homes: self.homes, buffers, ..shape };
        let place = |_| shape.place(&mut layout).expect("a shape of packets that fit");
        let queues = (0..self.rings).map(place).collect();
        let lines = (self.working_set * self.machine.cache.llc_bytes as f64) as u64 / LINE_BYTES;
        let each = (lines / self.neighbours.max(1) as u64).next_multiple_of(STRIDE).max(STRIDE);
        let bytes = each * self.neighbours as u64 * LINE_BYTES;
        let working_set = layout.add("working set", bytes.max(64), 64, Home::Host, SynchronisingWords::NONE);
        (layout, Places { queues, working_set, each })
    }
}

/// What the programs tell each other.
#[derive(Clone, Default)]
struct Shared {
    outcome: Rc<RefCell<PressureOutcome>>,
    /// Lines that the neighbours have read.
    walked: Rc<Cell<u64>>,
}

/// Runs packets under pressure.
///
/// # Errors
///
/// The simulator's, where it never ends: packets come faster than the host reads them.
///
/// # Panics
///
/// If a packet comes changed or out of order.
pub fn pressure(question: &Pressure) -> Result<PressureOutcome, Failure> {
    let (layout, places) = question.place();
    let mut simulation = CxlSimulation::new(&question.machine, &layout);
    let lines = places.each * question.neighbours as u64;
    // They have walked for long.
    simulation.machine().borrow_mut().leave_in_last_level(places.working_set, lines);
    let shared = Shared::default();
    for (ring, queues) in places.queues.iter().copied().enumerate() {
        let (asked, to) = (question.clone(), shared.clone());
        simulation.core("host", Role::Main, move |core| receive(core, ring, queues, &asked, &to));
    }
    let first = question.rings as u16;
    let neighbours: Vec<u16> = (first..first + question.neighbours as u16).collect();
    for number in 0..question.neighbours as u64 {
        let walked = Rc::clone(&shared.walked);
        let own = places.working_set.lines(number * places.each);
        simulation.core("neighbour", Role::Service, move |core| walk(core, own, places.each, &walked));
    }
    if let Some(policy) = question.gate {
        let (queues, outcome) = (places.queues.clone(), Rc::clone(&shared.outcome));
        simulation.core("monitor", Role::Service, move |core| watch(core, queues, policy, &neighbours, &outcome));
    }
    for (ring, queues) in places.queues.into_iter().enumerate() {
        let (asked, outcome) = (question.clone(), Rc::clone(&shared.outcome));
        simulation.device("receive side", Role::Service, move |device| deliver(device, ring, queues, &asked, &outcome));
    }
    simulation.run()?;
    drop(simulation);
    Ok(shared.outcome.take())
}

/// A receiving core: takes packets from its ring as they come, and reads each when as many as are to wait have come after it. What the
/// others do counts while the first one's packets count.
fn receive(core: &CxlCore<'_>, ring: usize, queues: Queues, question: &Pressure, shared: &Shared) {
    let mut host = Host::new(queues, *core, question.requests.tx_signal);
    set_write_back(core, queues, question.write_back);
    let (mut packets, mut waiting) = ([Packet::BLANK; BURST], VecDeque::<Packet>::new());
    let (mut found, mut right) = (vec![0; question.bytes], vec![0; question.bytes]);
    let counters = || core.machine().borrow().counters.pushed_lines;
    let mut begin = (Time::ZERO, counters(), 0);
    let (warm, all) = (question.packets.0, question.packets.0 + question.packets.1);
    let mut number = 0;
    while number < all {
        let count = host.rx_burst(&mut packets);
        waiting.extend(&packets[..count]);
        let Some(packet) = waiting.front().copied().filter(|_| waiting.len() > question.waiting) else {
            if count == 0 {
                core.spin();
            }
            continue;
        };
        waiting.pop_front();
        if number == warm {
            begin = (core.now(), counters(), shared.walked.get());
        }
        // What is timed is the packet: not the descriptors that were posted just before.
        core.full_fence();
        let start = core.now();
        core.read_bytes(packet.address(), &mut found);
        // A core goes on behind its loads; it has the packet when they have come.
        core.full_fence();
        let took = core.now().since(start);
        fill(&mut right, number, Time::ZERO);
        assert!(found == right, "packet {number} came wrong");
        if number >= warm {
            shared.outcome.borrow_mut().reads.push(took.picoseconds());
        }
        host.buf_free(&[packet.address()]);
        number += 1;
    }
    if ring > 0 {
        return;
    }
    let mut outcome = shared.outcome.borrow_mut();
    outcome.lines = counters().since(&begin.1);
    let bytes = (shared.walked.get() - begin.2) * LINE_BYTES;
    outcome.neighbours = bytes as f64 * 1_000.0 / core.now().since(begin.0).picoseconds() as f64;
}

/// A neighbour: reads a few lines here and a few there.
fn walk(core: &CxlCore<'_>, own: Address, lines: u64, walked: &Cell<u64>) {
    let mut read = [Line::ZERO; STRIDE as usize];
    for step in 0_u64.. {
        let place = mix(step ^ own.0) % (lines / STRIDE) * STRIDE;
        core.read_lines(own.lines(place), &mut read);
        walked.set(walked.get() + STRIDE);
    }
}

/// The host's gate, on a core of its own.
fn watch(
    core: &CxlCore<'_>,
    queues: Vec<Queues>,
    policy: GatePolicy,
    neighbours: &[u16],
    outcome: &RefCell<PressureOutcome>,
) {
    let mut gate = PushGate::new(PushControl::new(*core, queues), policy);
    loop {
        let CacheMonitoring { occupied, capacity, brought_in } = core.monitor_cache(neighbours);
        gate.look(core.now(), CachePressure { occupied, capacity, brought_in });
        outcome.borrow_mut().closings = gate.closings();
        core.wait_until(gate.next_look());
    }
}

/// The generator and the device's receive side of a ring; the rings' packets come one after the other.
fn deliver(
    engine: &CxlDevice<'_>,
    ring: usize,
    queues: Queues,
    question: &Pressure,
    outcome: &RefCell<PressureOutcome>,
) {
    let ahead = ahead(&question.machine, queues.shape.homes.rx_ring, question.rings);
    let mut receiver = Receiver::new(queues, *engine, question.requests, ahead);
    let mut frame = vec![0; question.bytes];
    // The host has posted its descriptors.
    let begin = Time::from_nanoseconds(50_000);
    engine.wait_until(begin);
    receiver.prefetch();
    let gap = question.gap.picoseconds();
    let begin = begin + Time::from_picoseconds(gap / question.rings as u64 * ring as u64);
    for number in 0_u64.. {
        wait_until(engine, &mut receiver, begin + Time::from_picoseconds((number + 1) * gap));
        fill(&mut frame, number, Time::ZERO);
        while receiver.deliver(&[&frame]) == 0 {
            engine.spin();
        }
        receiver.prefetch();
        if ring == 0 {
            outcome.borrow_mut().packets = receiver.pushes();
        }
    }
}
