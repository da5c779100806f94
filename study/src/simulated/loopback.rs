//! Packets through an interface and back, on a modelled machine.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{PlayedByCore, Time};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::{ccnic, ring};
use conic_load::{ClosedLoop, Latency, Workload};
use conic_sim::probe::counters::AgentAccesses;
use conic_sim::{Options, Role, SimCore, Simulation};

use super::Observer;
use super::wire::Wire;
use crate::workload::{Interface, Loopback, LoopbackOutcome, NicPlace, RemoteAccesses};

/// What one thread measured.
#[derive(Clone, Debug)]
struct Measured {
    packets: u64,
    span: Time,
    latency: Latency,
    host: AgentAccesses,
    nic: AgentAccesses,
    wrong: u64,
}

/// What the threads share.
#[derive(Debug, Default)]
struct Results {
    threads: Vec<Measured>,
    wire: Option<[Wire; 2]>,
}

/// Runs a loopback.
///
/// # Errors
///
/// What is wrong with the question, or how the run failed.
pub fn loopback(question: &Loopback) -> Result<LoopbackOutcome, String> {
    observed_loopback(question, &mut ())
}

/// The same, with somebody who looks at the machine before the first event and after the last.
///
/// # Errors
///
/// As [`loopback`].
pub fn observed_loopback(question: &Loopback, observer: &mut dyn Observer) -> Result<LoopbackOutcome, String> {
    match question.interface {
        Interface::CcNic(features) => run_ccnic(question, features, observer),
        Interface::UnoptimisedRing => run_ring(question, observer),
        Interface::PcieRing => Err("the ring over PCIe is not simulated yet".to_owned()),
    }
}

/// Buffers for what is in flight and what both sides keep on their stacks.
fn buffers(question: &Loopback, features: &ccnic::Features) -> [u64; 3] {
    let each = (2 * question.window + 4 * 256).max(1024);
    let all = (each * question.threads as u64).next_power_of_two();
    let small = features.small_buffers && question.packet_size <= 128;
    let (needed, other) = (all, 0);
    match (small, question.packet_size) {
        (true, _) if features.shared_pool => [needed, other, 0],
        (true, _) => [needed, needed, 0],
        (false, ..=4096) => [0, needed, 0],
        (false, _) => [0, 0, needed],
    }
}

fn run_ccnic(
    question: &Loopback,
    features: ccnic::Features,
    observer: &mut dyn Observer,
) -> Result<LoopbackOutcome, String> {
    let geometry = ccnic::Geometry {
        queues: question.threads as u32,
        descriptors: 1024,
        buffers: buffers(question, &features),
        object_bytes: 0,
    };
    let map = ccnic::Map::new(geometry, features).map_err(|error| error.to_string())?;
    let simulation =
        Simulation::new(&question.machine, &map.layout, Options { seed: question.seed, ..Options::default() });
    map.pool.fill(&simulation.setup());
    let map = Rc::new(map);
    let nic_map = Rc::clone(&map);
    drive(
        question,
        simulation,
        observer,
        move |core, queue| ccnic::host_queue(core, &map, queue),
        move |core, queue| ccnic::nic_queue(core, &nic_map, queue),
    )
}

fn run_ring(question: &Loopback, observer: &mut dyn Observer) -> Result<LoopbackOutcome, String> {
    let window = (2 * question.window).max(1024);
    let shape = ring::Shape {
        descriptors: 1024,
        buffers: window + 2048,
        ..ring::Shape::for_packets(u64::from(question.packet_size)).map_err(|error| error.to_string())?
    };
    let mut layout = conic_fabric::Layout::new();
    let pairs: Result<Vec<_>, _> = (0..question.threads).map(|_| shape.place(&mut layout)).collect();
    let pairs = Rc::new(pairs.map_err(|error| error.to_string())?);
    let simulation = Simulation::new(&question.machine, &layout, Options { seed: question.seed, ..Options::default() });
    let nic_pairs = Rc::clone(&pairs);
    drive(
        question,
        simulation,
        observer,
        move |core, queue| Box::new(pairs[queue].host(core)),
        move |core, queue| Box::new(ring::Wire::new(nic_pairs[queue].nic(PlayedByCore(core)), shape)),
    )
}

/// Puts a host program and a NIC program for each queue pair on the machine and runs them.
fn drive<H, N>(
    question: &Loopback,
    mut simulation: Simulation,
    observer: &mut dyn Observer,
    host: H,
    nic: N,
) -> Result<LoopbackOutcome, String>
where
    H: for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a> + 'static,
    N: for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn NicQueue + 'a> + 'static,
{
    let results = Rc::new(RefCell::new(Results::default()));
    let (host, nic) = (Rc::new(host), Rc::new(nic));
    let nic_node = match question.nic_place {
        NicPlace::Remote => 1,
        NicPlace::SameNode => 0,
    };
    for thread in 0..question.threads {
        // The host first: it posts the first blank buffers. The NICs start once that is done, each at another moment.
        let start = start_of(question.seed, thread as u64);
        let (make, results, question_) = (Rc::clone(&host), Rc::clone(&results), question.clone());
        let host_agent = simulation.core(&format!("host core {thread}"), 0, Role::Main, start, move |core| {
            let queue = make(core, thread);
            application(&question_, core, queue, thread, &results);
        });
        let make = Rc::clone(&nic);
        let nic_agent = simulation.core(&format!("NIC core {thread}"), nic_node, Role::Service, start, move |core| {
            let mut queue = make(core, thread);
            loop {
                if queue.turn_around() == 0 {
                    queue.spin();
                }
            }
        });
        let mut machine = simulation.machine().borrow_mut();
        machine.set_prefetchers(host_agent, question.prefetching.host);
        machine.set_prefetchers(nic_agent, question.prefetching.nic);
    }
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run().map_err(|failure| failure.to_string())?;
    observer.ends(&mut simulation.machine().borrow_mut());
    let machine = simulation.machine().borrow();
    let results = results.borrow();
    Ok(outcome(question, &results, machine.operations(), machine.events(), machine.now()))
}

/// When a thread starts: within the first half microsecond, so that threads do not run in step.
fn start_of(seed: u64, thread: u64) -> Time {
    let mixed = (seed ^ thread << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Time::from_picoseconds((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 45)
}

/// The NIC agent of a host agent: they are made in pairs.
fn nic_of(host_agent: usize) -> usize {
    host_agent + 1
}

fn application<'a>(
    question: &Loopback,
    core: &'a SimCore<'a>,
    queue: Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a>,
    thread: usize,
    results: &RefCell<Results>,
) {
    let workload = Workload {
        packet_size: question.packet_size,
        window: question.window,
        transmit_burst: question.transmit_burst,
        receive_burst: question.receive_burst,
    };
    let mut application = ClosedLoop::new(queue, workload);
    if let Some(rate) = question.offered {
        let interval = Time::from_picoseconds((1e12 / rate) as u64);
        application = application.paced(now(core), interval);
    }
    let (warm, measured) = question.packets;
    while application.account().received() < warm {
        application.step();
    }
    application.account_mut().forget_latency();
    let counters = || {
        let machine = core.machine().borrow();
        (*machine.counters(core.agent()), *machine.counters(nic_of(core.agent())))
    };
    let (begins, received, before, wire) = (now(core), application.account().received(), counters(), Wire::now(core));
    while application.account().received() < warm + measured {
        application.step();
    }
    let (ends, after, wire_after) = (now(core), counters(), Wire::now(core));
    let account = application.account();
    let mut shared = results.borrow_mut();
    shared.threads.push(Measured {
        packets: account.received() - received,
        span: ends.since(begins),
        latency: account.latency().clone(),
        host: after.0.since(&before.0),
        nic: after.1.since(&before.1),
        wrong: account.lost() + account.corrupt(),
    });
    if thread == 0 {
        shared.wire = Some([wire, wire_after]);
    }
    drop(shared);
    // The load stays until every thread has measured.
    while results.borrow().threads.len() < question.threads {
        application.step();
    }
}

fn now(core: &SimCore<'_>) -> Time {
    conic_fabric::Core::now(core)
}

fn outcome(question: &Loopback, results: &Results, operations: u64, events: u64, end: u64) -> LoopbackOutcome {
    let mut latency = Latency::new();
    let (mut rate, mut packets, mut wrong) = (0.0, 0, 0);
    let (mut host, mut nic) = (AgentAccesses::default(), AgentAccesses::default());
    for thread in &results.threads {
        latency.add(&thread.latency);
        rate += thread.packets as f64 / thread.span.seconds();
        packets += thread.packets;
        wrong += thread.wrong;
        host.add(&thread.host);
        nic.add(&thread.nic);
    }
    let each = |accesses: &AgentAccesses| RemoteAccesses {
        reads: accesses.remote_reads as f64 / packets as f64,
        rfos: accesses.remote_rfos as f64 / packets as f64,
    };
    let nanoseconds = |time: Time| time.picoseconds() as f64 / 1e3;
    let [before, after] = results.wire.unwrap_or_default();
    let links = question.machine.interconnect.links;
    let bytes = after.bytes_per_second_since(&before).map(|bytes| bytes / rate);
    LoopbackOutcome {
        packets_per_second: rate,
        bits_per_second: rate * f64::from(question.packet_size) * 8.0,
        median_nanoseconds: nanoseconds(latency.quantile(0.5)),
        p99_nanoseconds: nanoseconds(latency.quantile(0.99)),
        minimum_nanoseconds: nanoseconds(latency.minimum()),
        nic: each(&nic),
        host: each(&host),
        link_utilisation: after.utilisation_since(&before, links),
        link_bytes: bytes,
        packets,
        wrong,
        simulated_seconds: end as f64 * 1e-12,
        operations,
        events,
    }
}
