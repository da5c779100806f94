//! Packets through an interface and back, on a modelled machine.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::PlayedByCore;
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::{ccnic, ring};
use conic_sim::{Options, Role, SimCore, Simulation};

use super::application::{Results, application, outcome, start_of};
use super::{Observer, pcie};
use crate::workload::{Interface, Loopback, LoopbackOutcome, NicPlace};

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
        Interface::PcieRing => pcie::loopback(question, observer),
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
        // The baseline as published speaks of the processors' own prefetchers alone.
        fetch_ahead: false,
        read_ahead_bytes: 0,
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
