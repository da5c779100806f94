//! One configuration of a packet interface, and one slice of the loopback workload through it.

use std::sync::Arc;

use conic_fabric::{Layout, Time};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::ccnic::{Features, Geometry, Host, Map, Nic, Policy, Wire, prepare};
use conic_interface::with_policy;
use conic_load::{ClosedLoop, Latency, Workload};
use conic_native::{Flag, Memory, NativeCore, Pages, clock};

use super::arena::{Arena, ArenaError, Job};
use super::failure::Failure;

/// How long an application waits at the end for what is still in flight.
const DRAIN: Time = Time::from_nanoseconds(200_000_000);

/// Rounds between two looks at the clock, or at the flag that stops them.
const BETWEEN_LOOKS: usize = 64;

/// Which interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Interface {
    /// CC-NIC: inline signals, grouped descriptors, shared recycled buffers.
    Ccnic,
}

impl Interface {
    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Interface::Ccnic => "ccnic",
        }
    }
}

/// What a slice runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which interface.
    pub interface: Interface,
    /// CC-NIC's switches; no other interface has any.
    pub features: Features,
    /// What is sent through each queue pair.
    pub workload: Workload,
    /// Queue pairs.
    pub queues: usize,
    /// Descriptors of each ring.
    pub descriptors: u64,
    /// Pages of the region.
    pub pages: Pages,
}

/// How long a slice takes.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Not measured.
    pub warm_up: Time,
    /// Measured.
    pub measured: Time,
}

/// What came of a slice.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets received while it was measured.
    pub packets: u64,
    /// Packets a second.
    pub rate: f64,
    /// From just before a burst is written to just after the burst with its answer is received.
    pub latency: Latency,
    /// Packets that never came.
    pub lost: u64,
    /// Packets that came with another payload, out of order, or twice.
    pub corrupt: u64,
}

impl Outcome {
    fn none() -> Outcome {
        Outcome { packets: 0, rate: 0.0, latency: Latency::new(), lost: 0, corrupt: 0 }
    }

    /// Adds what another slice, or another thread of the same, came to; rates are left alone.
    pub fn add(&mut self, other: &Outcome) {
        self.packets += other.packets;
        self.latency.add(&other.latency);
        self.lost += other.lost;
        self.corrupt += other.corrupt;
    }
}

/// An interface over a region: makes each side's half of a queue pair.
pub trait Link: Send + Sync + 'static {
    /// The host's half.
    type Host<'memory>: HostQueue;
    /// The NIC's half.
    type Nic<'memory>: NicQueue;
    /// The region it needs.
    fn layout(&self) -> &Layout;
    /// Makes a fresh region ready.
    fn prepare(&self, core: &NativeCore<'_>);
    /// The host's half of a queue pair.
    fn host<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> Self::Host<'memory>;
    /// The NIC's half of a queue pair.
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> Self::Nic<'memory>;
}

/// CC-NIC.
struct CcNic<P> {
    map: Map,
    policy: std::marker::PhantomData<fn() -> P>,
}

impl<P: Policy> Link for CcNic<P> {
    type Host<'memory> = Host<NativeCore<'memory>, P>;
    type Nic<'memory> = Wire<NativeCore<'memory>, P>;
    fn layout(&self) -> &Layout {
        &self.map.layout
    }
    fn prepare(&self, core: &NativeCore<'_>) {
        prepare(core, &self.map);
    }
    fn host<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> Self::Host<'memory> {
        Host::new(core, &self.map, queue)
    }
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> Self::Nic<'memory> {
        Wire::new(Nic::new(core, &self.map, queue))
    }
}

/// Runs one slice in a region of its own.
///
/// # Errors
///
/// If the configuration cannot be, or the machine refuses it.
pub fn run(arena: &Arena, setup: &Setup, span: Span) -> Result<Outcome, Failure> {
    match setup.interface {
        Interface::Ccnic => {
            let map = Map::new(geometry(setup), setup.features).map_err(|error| Failure::failed(error.to_string()))?;
            with_policy!(setup.features, P => {
                run_link(arena, setup, span, CcNic::<P> { map, policy: std::marker::PhantomData })
            })
        }
    }
}

/// Enough buffers for what can be in flight, of the class that the packets need, and few of the others.
fn geometry(setup: &Setup) -> Geometry {
    let blanks = if setup.features.shared_pool { 0 } else { 2 * setup.descriptors };
    let in_flight = (setup.workload.window.min(2 * setup.descriptors) + blanks + 1024) * setup.queues as u64;
    let count = in_flight.next_power_of_two();
    let bytes = setup.workload.packet_size;
    let buffers = match bytes {
        0..=128 if setup.features.small_buffers => [count, 64, 64],
        0..=4096 => [2048, count, 64],
        _ => [2048, 64, count],
    };
    Geometry { queues: setup.queues as u32, descriptors: setup.descriptors, buffers, object_bytes: 0 }
}

fn run_link<L: Link>(arena: &Arena, setup: &Setup, span: Span, link: L) -> Result<Outcome, Failure> {
    let memory = Arc::new(Memory::create(link.layout(), setup.pages).map_err(ArenaError::from)?);
    link.prepare(&NativeCore::new(&memory));
    let (link, stop) = (Arc::new(link), Arc::new(Flag::new()));
    let pairs = arena.pairs().len().min(setup.queues);
    let mut nics: Vec<Job> = Vec::new();
    let mut applications: Vec<Box<dyn FnOnce() -> Outcome + Send>> = Vec::new();
    for pair in 0..pairs {
        let queues: Vec<usize> = (pair..setup.queues).step_by(pairs).collect();
        let (workload, mine) = (setup.workload, queues.clone());
        let (shared, region, flag) = (Arc::clone(&link), Arc::clone(&memory), Arc::clone(&stop));
        nics.push(Box::new(move || {
            let nic = |&queue: &usize| shared.nic(NativeCore::new(&region), queue);
            turn_around(&mut mine.iter().map(nic).collect::<Vec<_>>(), &flag);
        }));
        let (shared, region) = (Arc::clone(&link), Arc::clone(&memory));
        applications.push(Box::new(move || {
            let host = |&queue: &usize| ClosedLoop::new(shared.host(NativeCore::new(&region), queue), workload);
            drive(queues.iter().map(host).collect(), span)
        }));
    }
    let mut total = Outcome::none();
    for outcome in arena.run(&stop, nics, applications)? {
        total.add(&outcome);
        total.rate += outcome.rate;
    }
    Ok(total)
}

fn turn_around<N: NicQueue>(nics: &mut [N], stop: &Flag) {
    if let [nic] = nics {
        while !stop.is_up() {
            if nic.turn_around() == 0 {
                nic.spin();
            }
        }
        return;
    }
    while !stop.is_up() {
        let turned: usize = nics.iter_mut().map(NicQueue::turn_around).sum();
        if turned == 0 {
            nics[0].spin();
        }
    }
}

fn drive<Q: HostQueue>(mut loops: Vec<ClosedLoop<Q>>, span: Span) -> Outcome {
    work(&mut loops, clock::now() + span.warm_up);
    loops.iter_mut().for_each(ClosedLoop::forget_latency);
    let before: u64 = loops.iter().map(ClosedLoop::received).sum();
    let start = clock::now();
    work(&mut loops, start + span.measured);
    let seconds = clock::now().since(start).seconds();
    let packets = loops.iter().map(ClosedLoop::received).sum::<u64>() - before;
    let mut outcome = Outcome::none();
    (outcome.packets, outcome.rate) = (packets, packets as f64 / seconds);
    for one in &mut loops {
        outcome.latency.add(one.latency());
        one.drain(clock::now() + DRAIN);
        outcome.lost += one.lost();
        outcome.corrupt += one.corrupt();
    }
    outcome
}

fn work<Q: HostQueue>(loops: &mut [ClosedLoop<Q>], until: Time) {
    while clock::now() < until {
        for _ in 0..BETWEEN_LOOKS {
            for one in loops.iter_mut() {
                one.step();
            }
        }
    }
}
