//! Packets through an interface and back, on a modelled machine.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::PlayedByCore;
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::ccnic::Completions;
use conic_interface::serve::Server;
use conic_interface::{ccnic, ring};
use conic_load::{ClosedLoop, Network, Objects, OneCore, Touch, Traffic};
use conic_sim::{Options, Role, SimCore, Simulation};

use super::application::{
    Ends, NICS, Results, Thread, application, generator, measure, outcome, place_objects, start_of, workload,
};
use super::unasked::Unasked;
use super::{Observer, engines, pcie};
use crate::workload::{
    Application, DESCRIPTORS, Interface, Loopback, LoopbackOutcome, NicPlace, Serving, Spacing, Switches,
};

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
        Interface::PcieRing => pcie::loopback(question, observer),
        _ => drive(question, prepare(question)?, observer),
    }
}

/// Runs both halves of a queue pair on one core, by turns, where no line moves between cores. Gives for how long the host's half
/// and the NIC's have the core for a packet, in nanoseconds.
///
/// # Errors
///
/// As [`loopback`]; and if there are several threads, switches, or a NIC behind PCIe.
pub fn halves(question: &Loopback) -> Result<[f64; 2], String> {
    one_core(question, prepare(question)?)
}

/// Makes the host's half of a queue pair on a core.
type MakeHost = dyn for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a>;
/// Makes the NIC's.
type MakeNic = dyn for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn NicQueue + 'a>;

/// A machine in whose memory an interface is laid out, and no program yet.
struct Prepared {
    simulation: Simulation,
    objects: Vec<Option<Objects>>,
    host: Rc<MakeHost>,
    nic: Rc<MakeNic>,
}

impl Prepared {
    fn new<H, N>(simulation: Simulation, objects: Vec<Option<Objects>>, host: H, nic: N) -> Prepared
    where
        H: for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a> + 'static,
        N: for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn NicQueue + 'a> + 'static,
    {
        Prepared { simulation, objects, host: Rc::new(host), nic: Rc::new(nic) }
    }
}

fn prepare(question: &Loopback) -> Result<Prepared, String> {
    match question.interface {
        Interface::CcNic(features) => prepare_ccnic(question, features),
        Interface::UnoptimisedRing => prepare_ring(question, unoptimised(question)?, false),
        Interface::Ring => {
            prepare_ring(question, workload(question).ring(1024).map_err(|error| error.to_string())?, true)
        }
        Interface::PcieRing => Err("a NIC behind PCIe is no program on a core".to_owned()),
    }
}

/// How many queue pairs there are.
///
/// # Errors
///
/// If those that one core is to serve are fewer than the host's threads.
fn queue_pairs(question: &Loopback) -> Result<usize, String> {
    match question.switches.serving {
        Serving::OneEach => Ok(question.threads),
        Serving::Shared { queue_pairs, .. } if queue_pairs >= question.threads => Ok(queue_pairs),
        Serving::Shared { queue_pairs, .. } => {
            let threads = question.threads;
            Err(format!(
                "{threads} host threads need a queue pair each, and there are {queue_pairs}: give more of these"
            ))
        }
    }
}

/// Buffers of each class.
fn buffers(question: &Loopback, features: &ccnic::Features) -> [u64; 3] {
    let small = features.small_buffers && question.packet_size <= 128;
    let needed = question.pool_buffers(features);
    match (small, question.packet_size) {
        (true, _) if features.shared_pool => [needed, 0, 0],
        (true, _) => [needed, needed, 0],
        (false, ..=4096) => [0, needed, 0],
        (false, _) => [0, 0, needed],
    }
}

fn prepare_ccnic(question: &Loopback, features: ccnic::Features) -> Result<Prepared, String> {
    let map = laid_out(question, features)?;
    let mut layout = map.layout.clone();
    let objects = place_objects(question, &mut layout);
    let bulk = question.switches.engines.nic;
    let completions: Vec<_> = map.queues.iter().map(|_| bulk.then(|| Completions::place(&mut layout))).collect();
    let simulation = Simulation::new(&question.machine, &layout, Options { seed: question.seed, ..Options::default() });
    map.pool.fill(&simulation.setup());
    let map = Rc::new(map);
    let nic_map = Rc::clone(&map);
    Ok(Prepared::new(
        simulation,
        objects,
        move |core, queue| ccnic::host_queue(core, &map, queue),
        move |core, queue| match completions[queue] {
            None => ccnic::nic_queue(core, &nic_map, queue),
            Some(completions) => ccnic::bulk_nic_queue(core, &nic_map, queue, completions),
        },
    ))
}

/// Where CC-NIC's queue pairs and buffers lie.
fn laid_out(question: &Loopback, features: ccnic::Features) -> Result<ccnic::Map, String> {
    let geometry = ccnic::Geometry {
        queues: queue_pairs(question)? as u32,
        descriptors: DESCRIPTORS,
        buffers: buffers(question, &features),
        object_bytes: 0,
    };
    let map = match (question.switches.bare_buffers, question.switches.spacing) {
        (true, _) => ccnic::Map::new(geometry, features),
        (false, Some(Spacing::Pages)) => ccnic::Map::with_metadata_within(geometry, features),
        (false, _) => ccnic::Map::with_metadata(geometry, features),
    };
    map.map_err(|error| error.to_string())
}

/// The paper's baseline.
fn unoptimised(question: &Loopback) -> Result<ring::Shape, String> {
    keeps_metadata(question)?;
    let shape = unoptimised_shape(question.packet_size.into(), question.ring_buffers())?;
    Ok(match question.switches.spacing {
        Some(Spacing::OddLines) => shape.with_pooled_metadata(question.packet_size.into()),
        Some(Spacing::Pages) | None => shape,
    })
}

/// The same for packets of up to `size` bytes, with so many buffers.
pub(super) fn unoptimised_shape(size: u64, buffers: u64) -> Result<ring::Shape, String> {
    // Without small buffers "each 64B packet is written into a separate 4KB buffer" (section 5.4).
    let shape = ring::Shape::for_packets(size.max(4096)).map_err(|error| error.to_string())?;
    Ok(ring::Shape {
        descriptors: DESCRIPTORS,
        buffers,
        // The baseline as published is "without CC-NIC's locality-oriented buffer pool optimizations" (section 5.8): that recently
        // freed buffers are taken first is one of them (section 3.3), and a pool is "typically a queue" (section 2.1).
        pool_order: ring::PoolOrder::FirstFirst,
        // And it speaks of the processors' own prefetchers alone; its NIC core asks for nothing either ([`Unasked`]).
        fetch_ahead: false,
        read_ahead_bytes: 0,
        // Its driver touches a buffer's metadata at each step, as CC-NIC's does.
        ..shape.with_metadata(size)
    })
}

/// That nobody asks for a ring of the paper's without metadata in front of its buffers.
///
/// # Errors
///
/// If somebody does.
pub(super) fn keeps_metadata(question: &Loopback) -> Result<(), String> {
    match question.switches.bare_buffers {
        true => Err("buffers without metadata are for CC-NIC alone".to_owned()),
        false => Ok(()),
    }
}

/// Lays rings out; `asks` if the NIC's cores ask for what they are about to read by prefetch instructions.
fn prepare_ring(question: &Loopback, shape: ring::Shape, asks: bool) -> Result<Prepared, String> {
    if question.switches.engines.nic {
        return Err("a copy engine of the NIC is for CC-NIC alone: the ring's device moves bytes by itself".to_owned());
    }
    let mut layout = conic_fabric::Layout::new();
    let pairs: Result<Vec<_>, _> = (0..queue_pairs(question)?).map(|_| shape.place(&mut layout)).collect();
    let pairs = Rc::new(pairs.map_err(|error| error.to_string())?);
    let objects = place_objects(question, &mut layout);
    let simulation = Simulation::new(&question.machine, &layout, Options { seed: question.seed, ..Options::default() });
    let nic_pairs = Rc::clone(&pairs);
    Ok(Prepared::new(
        simulation,
        objects,
        move |core, queue| Box::new(pairs[queue].host(core)),
        move |core, queue| match (PlayedByCore(core), asks) {
            (nic, true) => Box::new(ring::Wire::new(nic_pairs[queue].nic(nic), shape)),
            (nic, false) => Box::new(ring::Wire::new(nic_pairs[queue].nic(Unasked(nic)), shape)),
        },
    ))
}

/// A NIC's queue pair that handles so many packets in a round at most.
fn in_bursts(mut queue: Box<dyn NicQueue + '_>, burst: usize) -> Box<dyn NicQueue + '_> {
    queue.handle_at_most(burst);
    queue
}

/// Puts the NIC core on the machine that serves all queue pairs, where there is to be one, and gives its agent.
fn serve_all(question: &Loopback, simulation: &mut Simulation, node: usize, nic: &Rc<MakeNic>) -> Option<usize> {
    let Serving::Shared { queue_pairs, attention } = question.switches.serving else { return None };
    let (make, start) = (Rc::clone(nic), start_of(question.seed, question.threads as u64));
    let burst = question.nic_burst;
    let agent = simulation.core("NIC core", node, Role::Service, start, move |core| {
        let queues = (0..queue_pairs).map(|queue| in_bursts(make(core, queue), burst)).collect();
        let mut server = Server::new(core, queues, attention);
        loop {
            if server.round() == 0 {
                server.spin();
            }
        }
    });
    set_up_nic(question, simulation, agent);
    Some(agent)
}

/// Makes a NIC's core as the question says.
fn set_up_nic(question: &Loopback, simulation: &Simulation, agent: usize) {
    let mut machine = simulation.machine().borrow_mut();
    machine.set_prefetchers(agent, question.prefetching.nic);
    if let Some(scale) = question.nic_work {
        machine.set_work_scale(agent, scale);
    }
}

/// What is touched of packets that the host forwards, where it does.
///
/// # Errors
///
/// If one NIC core is to serve all and to make packets.
fn forwarded(question: &Loopback, shared: Option<usize>) -> Result<Option<Touch>, String> {
    match question.switches.application {
        Application::Loopback | Application::Copying => Ok(None),
        Application::Forwarding(_) if shared.is_some() => {
            Err("a NIC core that serves many queue pairs turns packets around: it makes none to be forwarded".into())
        }
        Application::Forwarding(touch) => Ok(Some(touch)),
    }
}

/// Puts the host's programs and the NIC's on the machine and runs them.
fn drive(question: &Loopback, prepared: Prepared, observer: &mut dyn Observer) -> Result<LoopbackOutcome, String> {
    let Prepared { mut simulation, objects, host, nic } = prepared;
    let results = Rc::new(RefCell::new(Results::default()));
    let nic_node = match question.nic_place {
        NicPlace::Remote => 1,
        NicPlace::SameNode => 0,
    };
    engines::check(question)?;
    let shared = serve_all(question, &mut simulation, nic_node, &nic);
    let forwarding = forwarded(question, shared)?;
    let (host_role, nic_role) =
        if forwarding.is_some() { (Role::Service, Role::Main) } else { (Role::Main, Role::Service) };
    let (mut hosts, mut nics) = (Vec::new(), Vec::from_iter(shared));
    for number in 0..question.threads {
        // The host first: it posts the first blank buffers. The NICs start once that is done, each at another moment.
        let start = start_of(question.seed, number as u64);
        let (make, results_, question_) = (Rc::clone(&host), Rc::clone(&results), question.clone());
        let (objects, ends) = (objects[number], Rc::new(Ends::default()));
        let ends_ = Rc::clone(&ends);
        let host_agent = simulation.core(&format!("host core {number}"), 0, host_role, start, move |core| {
            let queue = make(core, number);
            application(&question_, core, queue, ends_.thread(number, objects), &results_);
        });
        simulation.machine().borrow_mut().set_prefetchers(host_agent, question.prefetching.host);
        hosts.push(host_agent);
        if let Some(shared) = shared {
            // It is counted once.
            ends.set(host_agent, (number == 0).then_some(shared));
            continue;
        }
        let (make, results, question_) = (Rc::clone(&nic), Rc::clone(&results), question.clone());
        let ends_ = Rc::clone(&ends);
        let start = start + start_of(question.seed, NICS + number as u64) + question.switches.late;
        let nic_agent = simulation.core(&format!("NIC core {number}"), nic_node, nic_role, start, move |core| {
            let mut queue = in_bursts(make(core, number), question_.nic_burst);
            if let Some(touch) = forwarding {
                let mut network = Network::new(core, queue, generator(&question_, touch));
                return measure(&question_, core, &mut network, ends_.thread(number, None), &results);
            }
            loop {
                if queue.turn_around() == 0 {
                    queue.spin();
                }
            }
        });
        set_up_nic(question, &simulation, nic_agent);
        ends.set(host_agent, Some(nic_agent));
        nics.push(nic_agent);
    }
    engines::give(question, &mut simulation, &hosts, (nic_node, &nics));
    finish(question, simulation, observer, &results)
}

/// Puts both halves of one queue pair on one core and runs them by turns.
fn one_core(question: &Loopback, prepared: Prepared) -> Result<[f64; 2], String> {
    let Prepared { mut simulation, host, nic, .. } = prepared;
    let switches = Switches { bare_buffers: question.switches.bare_buffers, ..Switches::default() };
    if question.threads != 1 || question.switches != switches {
        return Err("on one core there are one host thread and its NIC, and no switches".to_owned());
    }
    let results = Rc::new(RefCell::new(Results::default()));
    let halves = Rc::new(Cell::new([0.0; 2]));
    let (shared, into, question_) = (Rc::clone(&results), Rc::clone(&halves), question.clone());
    let agent = simulation.core("core", 0, Role::Main, start_of(question.seed, 0), move |core| {
        let mut both = OneCore::new(ClosedLoop::new(host(core, 0), workload(&question_)), nic(core, 0));
        while both.account().received() < question_.packets.0 {
            both.step();
        }
        both.forget_spans();
        let before = both.account().received();
        measure(
            &question_,
            core,
            &mut both,
            Thread { number: 0, host: core.agent(), nic: None, objects: None },
            &shared,
        );
        let packets = (both.account().received() - before) as f64;
        into.set(both.spans().map(|span| span.picoseconds() as f64 / 1e3 / packets));
    });
    simulation.machine().borrow_mut().set_prefetchers(agent, question.prefetching.host);
    finish(question, simulation, &mut (), &results)?;
    Ok(halves.get())
}

/// Runs what was put on the machine.
pub(super) fn finish(
    question: &Loopback,
    mut simulation: Simulation,
    observer: &mut dyn Observer,
    results: &RefCell<Results>,
) -> Result<LoopbackOutcome, String> {
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run().map_err(|failure| failure.to_string())?;
    observer.ends(&mut simulation.machine().borrow_mut());
    let machine = simulation.machine().borrow();
    Ok(outcome(question, &results.borrow(), machine.operations(), machine.events(), machine.now()))
}

#[cfg(test)]
mod tests {
    use conic_fabric::Time;
    use conic_sim::platform::Platform;

    use super::*;

    #[test]
    fn what_a_late_nic_leaves_in_flight_stays_there() {
        let mut machine = Platform::load("icx").expect("a platform that comes").parameters().clone();
        machine.core.work_scale = 2.0;
        let features = ccnic::Features::best();
        // A NIC that works so little that the host is never without a whole burst to receive.
        let one = Loopback { window: 256, nic_work: Some(0.1), ..Loopback::new(&machine, Interface::CcNic(features)) };
        let in_flight = |late: Time| {
            let outcome =
                loopback(&Loopback { switches: Switches { late, ..one.switches }, ..one.clone() }).expect("it runs");
            // Little's law.
            outcome.packets_per_second * outcome.median_nanoseconds / 1e9
        };
        let [prompt, late] = [Time::ZERO, Time::from_nanoseconds(20_000)].map(in_flight);
        assert!(prompt < 160.0 && late > 200.0, "{prompt} and {late} packets of 256");
    }

    #[test]
    fn the_published_baselines_nic_issues_no_prefetch_instructions() {
        /// Lines that the NIC's core asked for, or began to load, ahead.
        struct Ahead(u64);
        impl Observer for Ahead {
            fn ends(&mut self, machine: &mut conic_sim::machine::Machine) {
                self.0 = machine.counters(1).software_prefetches;
            }
        }
        let machine = Platform::load("spr").expect("a platform that comes").parameters().clone();
        let question = Loopback::new(&machine, Interface::UnoptimisedRing);
        let ahead = |prepared: Prepared| {
            let mut ahead = Ahead(0);
            drive(&question, prepared, &mut ahead).expect("it runs");
            ahead.0
        };
        let asks = |asks| prepare_ring(&question, unoptimised(&question).expect("a ring"), asks).expect("it can be");
        assert_eq!(ahead(prepare(&question).expect("it can be")), 0);
        assert!(ahead(asks(true)) > question.packets.1, "on memory they are issued");
    }

    /// What a NIC did that handles whole packets of one segment: rounds, the largest, packets, and slots of both rings.
    #[derive(Clone, Copy, Debug, Default)]
    struct Rounds {
        most: usize,
        packets: u64,
        slots: [u64; 2],
    }

    /// A NIC that says what it did.
    struct Counted<'a> {
        wire: ccnic::Wire<&'a SimCore<'a>, ccnic::Paper>,
        rounds: Rc<Cell<Rounds>>,
    }

    impl NicQueue for Counted<'_> {
        fn turn_around(&mut self) -> usize {
            let count = self.wire.turn_around();
            let Rounds { most, packets, .. } = self.rounds.get();
            let ccnic::NicPosition { transmit, receive } = self.wire.nic().position();
            let (most, packets) = (most.max(count), packets + count as u64);
            self.rounds.set(Rounds { most, packets, slots: [transmit, receive.sent] });
            count
        }
        fn handle_at_most(&mut self, packets: usize) {
            self.wire.handle_at_most(packets);
        }
        fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
            self.wire.take_frame(frame)
        }
        fn deliver_frame(&mut self, frame: &[u8]) -> bool {
            self.wire.deliver_frame(frame)
        }
        fn spin(&self) {
            self.wire.spin();
        }
        fn refused(&self) -> u64 {
            self.wire.refused()
        }
        fn dropped(&self) -> u64 {
            self.wire.dropped()
        }
    }

    fn made(nic: impl for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn NicQueue + 'a> + 'static) -> Rc<MakeNic> {
        Rc::new(nic)
    }

    #[test]
    fn figure_17s_bursts_of_eight_fill_lines_of_the_rings_and_no_round_is_longer() {
        let machine = Platform::load("spr").expect("a platform that comes").parameters().clone();
        let bursts = Loopback {
            window: 64,
            transmit_burst: 8,
            receive_burst: 8,
            nic_burst: 8,
            whole_bursts: true,
            packets: (500, 1000),
            ..Loopback::new(&machine, Interface::CcNic(ccnic::Features::paper()))
        };
        let rounds_of = |question: &Loopback| {
            let rounds = Rc::new(Cell::new(Rounds::default()));
            let (shared, prepared) = (Rc::clone(&rounds), prepare(question).expect("it can be"));
            let map = laid_out(question, ccnic::Features::paper()).expect("it can be");
            let nic = made(move |core, queue| {
                let wire = ccnic::Wire::new(ccnic::Nic::new(core, &map, queue));
                Box::new(Counted { wire, rounds: Rc::clone(&shared) })
            });
            let outcome = drive(question, Prepared { nic, ..prepared }, &mut ()).expect("it runs");
            assert_eq!(outcome.wrong(), 0);
            rounds.get()
        };
        // Also where the window is no multiple of a burst.
        for window in [64, 62] {
            let Rounds { most, packets, slots } = rounds_of(&Loopback { window, ..bursts.clone() });
            assert!(packets >= 1500);
            assert_eq!((most, slots.map(|slots| 4 * slots)), (8, [packets; 2]), "{window}");
        }
        // As everywhere else: longer rounds, and what the window has room for, which leaves lines that are not full.
        let Rounds { most, packets, slots } =
            rounds_of(&Loopback { window: 62, nic_burst: 32, whole_bursts: false, ..bursts });
        assert!(most > 8 && 4 * slots[0] > packets, "{most} a round, {packets} in {slots:?}");
    }

    #[test]
    fn what_one_core_cannot_run_is_refused() {
        let machine = Platform::load("icx").expect("a platform that comes").parameters().clone();
        let one = Loopback::new(&machine, Interface::Ring);
        let refused = |question: &Loopback| halves(question).expect_err("it is refused");
        assert!(refused(&Loopback { threads: 2, ..one.clone() }).contains("one host thread"));
        let behind_pcie = Loopback { interface: Interface::PcieRing, ..one };
        assert!(refused(&behind_pcie).contains("no program on a core"));
    }
}
