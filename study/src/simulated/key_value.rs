//! A key-value store behind the NIC chip: on the NIC's socket, or on the other one with overlay threads between.
//!
//! The NIC is behind node 0. Threads that drive it are there; where there is an overlay, the store is on node 1, and so CC-NIC's homes
//! are exchanged: its host is the node that is the NIC in a loopback.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use conic_fabric::{
    Address, Core, Device, Home, LINE_BYTES, Layout, MemoryType, PlayedByCore, SynchronisingWords, Time, lines_of,
};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::overlay::Overlay;
use conic_interface::{ccnic, ring};
use conic_kv::message::{HEADER_BYTES, MOST_VALUE_BYTES};
use conic_kv::{Catalogue, Clients, Server, Store, Value};
use conic_load::{Latency, Traffic};
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::Chip;
use conic_sim::{Options, Role, SimCore, SimDevice, Simulation};

use super::application::start_of;
use super::loopback::unoptimised_shape;
use super::pcie::{ChipNetwork, ChipQueue, Places};
use super::wire::Wire;
use crate::workload::{Interface, KeyValue, KeyValueOutcome, Reached};

/// Descriptors of each ring: a get's answer takes two.
const DESCRIPTORS: u64 = 512;
/// Bytes of the largest packet.
const MOST_BYTES: u64 = (HEADER_BYTES + MOST_VALUE_BYTES) as u64;
/// How often a device looks whether the caches are warm.
const WARMING: Time = Time::from_nanoseconds(50_000);

type HostHalf<'a> = Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a>;
type MakeHost = dyn for<'a> Fn(&'a SimCore<'a>, usize) -> HostHalf<'a>;
type MakeNic = dyn for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn NicQueue + 'a>;

/// What lies between the store and the threads on the NIC's socket.
struct Between {
    host: Rc<MakeHost>,
    nic: Rc<MakeNic>,
    threads: usize,
    fill: Option<ccnic::Map>,
}

/// A region, and who lies where in it.
struct Laid {
    layout: Layout,
    between: Option<Between>,
    /// The NIC's own queue pairs, and the first one's number among those of its kind.
    pairs: Rc<Vec<ring::QueuePair>>,
    first_pair: usize,
    store: Store,
}

/// Runs a store.
///
/// # Errors
///
/// What is wrong with the question, or how the run failed.
pub(super) fn run(question: &KeyValue) -> Result<KeyValueOutcome, String> {
    let Some(nic) = question.machine.nic.clone().filter(|_| question.machine.pcie.is_some()) else {
        let name = &question.machine.name;
        return Err(format!(
            "{name} has no PCIe link with a NIC behind it: take a platform that has one, such as icx-cx6"
        ));
    };
    if question.threads == 0 {
        return Err("a store has a thread at least".to_owned());
    }
    if question.demand.keys == 0 || question.requests.1 == 0 {
        return Err("a store has a key at least, and of its requests one is measured at least".to_owned());
    }
    let catalogue = Arc::new(Catalogue::new(question.demand));
    let laid = lay(question, &catalogue)?;
    let options = Options { seed: question.seed, ..Options::default() };
    let mut simulation = Simulation::new(&question.machine, &laid.layout, options);
    fill(&simulation, &laid, &catalogue)?;
    let run = Rc::new(Run {
        question: question.clone(),
        values: popular_values(&simulation, question, &laid.store, &catalogue),
        catalogue,
        store: laid.store,
        warm: Cell::new(0),
        to_warm: question.threads + laid.between.as_ref().map_or(0, |between| between.threads),
        measured: RefCell::default(),
    });
    add_store(&mut simulation, &laid, &run);
    add_overlay(&mut simulation, &laid, &run);
    add_chip(&mut simulation, &laid, &run, &nic);
    simulation.run().map_err(|failure| failure.to_string())?;
    let machine = simulation.machine().borrow();
    Ok(run.measured.borrow().outcome(machine.operations(), machine.events()))
}

/// The shape of a NIC's own queue pair.
fn shape_of(question: &KeyValue) -> Result<ring::Shape, String> {
    Ok(ring::Shape {
        descriptors: DESCRIPTORS,
        buffers: 2 * question.window + 2 * DESCRIPTORS,
        rx_signal: ring::RxSignal::DescriptorDone,
        host_written_registers: MemoryType::Uncached,
        ..ring::Shape::for_packets(MOST_BYTES).map_err(|error| error.to_string())?.with_pooled_metadata(MOST_BYTES)
    })
}

/// Places everything: what is on the store's node first, where that is not the NIC's.
fn lay(question: &KeyValue, catalogue: &Catalogue) -> Result<Laid, String> {
    let bytes = catalogue.bytes_of_values();
    let keys = question.demand.keys.into();
    let shape = shape_of(question)?;
    let place = |layout: &mut Layout, count| -> Result<Vec<_>, String> {
        (0..count).map(|_| shape.place(layout).map_err(|error| error.to_string())).collect()
    };
    let own_values = |layout: &mut Layout| {
        (layout.add("key-value values", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE), bytes)
    };
    match question.reached {
        Reached::Directly => {
            let mut layout = Layout::new();
            let values = own_values(&mut layout);
            let store = Store::place(&mut layout, keys, values, Home::Host);
            let pairs =
                place(&mut layout, question.threads)?.into_iter().map(|pair| pair.with_objects(values.0, values.1));
            let pairs = Rc::new(pairs.collect());
            Ok(Laid { layout, between: None, pairs, first_pair: 0, store })
        }
        Reached::Overlay { interface, threads } => {
            if threads < question.threads {
                return Err(format!(
                    "{} threads of the store need an overlay thread each, not {threads}",
                    question.threads
                ));
            }
            let (mut layout, between, values, first_pair) = match interface {
                Interface::CcNic(features) => over_ccnic(question, features, threads, bytes)?,
                Interface::UnoptimisedRing => over_ring(question, threads, own_values)?,
                _ => return Err("an overlay is between CC-NIC or the unoptimised ring and the NIC".to_owned()),
            };
            let store = Store::place(&mut layout, keys, values, Home::Host);
            let mut layout = layout.with_homes_exchanged();
            let pairs = Rc::new(place(&mut layout, threads)?);
            Ok(Laid { layout, between: Some(between), pairs, first_pair, store })
        }
    }
}

/// A layout, what makes the halves, where values may lie, and how many rings' queue pairs there are.
type Under = (Layout, Between, (Address, u64), usize);

fn over_ccnic(question: &KeyValue, features: ccnic::Features, threads: usize, bytes: u64) -> Result<Under, String> {
    let queues = threads as u64;
    let each = (2 * question.window + 1024).next_power_of_two();
    // Without small buffers requests lie in large ones as well.
    let (small, large) = if features.small_buffers { (each, each / 4) } else { (0, each) };
    let in_rings = if features.shared_pool { 0 } else { 2 * DESCRIPTORS };
    let of = |each: u64| if each == 0 { 0 } else { ((each + in_rings) * queues).next_power_of_two() };
    let geometry = ccnic::Geometry {
        queues: threads as u32,
        descriptors: DESCRIPTORS,
        buffers: [of(small), of(large), of(question.window)],
        object_bytes: bytes,
    };
    let map = ccnic::Map::with_metadata(geometry, features).map_err(|error| error.to_string())?;
    let (layout, values) = (map.layout.clone(), map.objects());
    let shared = Rc::new(map.clone());
    let for_nic = Rc::clone(&shared);
    let between = Between {
        host: Rc::new(move |core, queue| ccnic::host_queue(core, &shared, queue)),
        nic: Rc::new(move |core, queue| ccnic::nic_queue(core, &for_nic, queue)),
        threads,
        fill: Some(map),
    };
    Ok((layout, between, values, 0))
}

fn over_ring(
    question: &KeyValue,
    threads: usize,
    values: impl FnOnce(&mut Layout) -> (Address, u64),
) -> Result<Under, String> {
    let shape = ring::Shape {
        descriptors: DESCRIPTORS,
        ..unoptimised_shape(MOST_BYTES, 2 * question.window + 2 * DESCRIPTORS)?
    };
    let mut layout = Layout::new();
    let values = values(&mut layout);
    let pairs: Result<Vec<_>, _> = (0..threads).map(|_| shape.place(&mut layout)).collect();
    let with_objects = |pair: ring::QueuePair| pair.with_objects(values.0, values.1);
    let pairs = Rc::new(pairs.map_err(|error| error.to_string())?.into_iter().map(with_objects).collect::<Vec<_>>());
    let for_nic = Rc::clone(&pairs);
    let between = Between {
        host: Rc::new(move |core, queue| Box::new(pairs[queue].host(core))),
        nic: Rc::new(move |core, queue| Box::new(ring::Wire::new(for_nic[queue].nic(PlayedByCore(core)), shape))),
        threads,
        fill: None,
    };
    Ok((layout, between, values, threads))
}

fn fill(simulation: &Simulation, laid: &Laid, catalogue: &Catalogue) -> Result<(), String> {
    let core = simulation.setup();
    if let Some(map) = laid.between.as_ref().and_then(|between| between.fill.as_ref()) {
        map.pool.fill(&core);
    }
    match laid.store.fill(&core, catalogue) {
        true => Ok(()),
        false => Err(format!("the index has no room for {} keys", catalogue.sizes().len())),
    }
}

/// Lines of a node's last-level cache.
fn cached_lines(question: &KeyValue) -> u64 {
    question.machine.cache.llc_bytes / LINE_BYTES
}

/// Where the values lie that are asked for most, as many as a node's last-level cache has room for.
fn popular_values(simulation: &Simulation, question: &KeyValue, store: &Store, catalogue: &Catalogue) -> Vec<Value> {
    let (core, mut room) = (simulation.setup(), cached_lines(question));
    let mut values = Vec::new();
    for &key in catalogue.by_rank() {
        let slot = store.find(&core, store.hash(key.into()), None);
        let Some(value) = slot.and_then(|slot| store.value(&core, slot).ok()) else { continue };
        let Some(left) = room.checked_sub(lines_of(value.bytes.into())) else { break };
        room = left;
        values.push(value);
    }
    values
}

/// What the programs share.
struct Run {
    question: KeyValue,
    catalogue: Arc<Catalogue>,
    /// The values that are asked for most, those first.
    values: Vec<Value>,
    store: Store,
    /// Threads whose caches are warm, and how many there are.
    warm: Cell<usize>,
    to_warm: usize,
    measured: RefCell<Measured>,
}

/// What the NIC's queues measured.
#[derive(Debug, Default)]
struct Measured {
    queues: usize,
    requests: u64,
    rate: f64,
    value_bits: f64,
    latency: Latency,
    asked_again: u64,
    wrong: u64,
    wire: Option<[Wire; 2]>,
}

impl Run {
    /// Loads what one of some threads of the store has of the index's lines that are asked for most, two a key and as many as the
    /// last-level cache has: a store that has run for long has them there. The most popular come last.
    fn warm_index<'a>(&self, core: &'a SimCore<'a>, (thread, threads): (usize, usize)) {
        let ranked = self.catalogue.by_rank();
        let most = (cached_lines(&self.question) / 2).min(ranked.len() as u64) as usize;
        for &key in ranked[..most].iter().skip(thread).step_by(threads).rev() {
            let hashed = self.store.hash(key.into());
            self.store.find(core, hashed, self.store.likely(core, hashed));
        }
        self.warm.set(self.warm.get() + 1);
    }

    /// Loads what one of some threads that send values has of those that are asked for most, and nothing of the index.
    fn warm_values<'a>(&self, core: &'a SimCore<'a>, (thread, threads): (usize, usize)) {
        for value in self.values.iter().skip(thread).step_by(threads).rev() {
            (0..lines_of(value.bytes.into())).for_each(|line| core.prefetch_read(value.at.lines(line)));
        }
        self.warm.set(self.warm.get() + 1);
    }

    fn is_warm(&self) -> bool {
        self.warm.get() == self.to_warm
    }
}

/// Adds the store's threads: with an overlay each has its share of the queue pairs.
fn add_store(simulation: &mut Simulation, laid: &Laid, run: &Rc<Run>) {
    let threads = run.question.threads;
    for thread in 0..threads {
        let (run, pairs) = (Rc::clone(run), Rc::clone(&laid.pairs));
        let (node, host, queues) = match &laid.between {
            None => (0, None, threads),
            Some(between) => (1, Some(Rc::clone(&between.host)), between.threads),
        };
        let start = start_of(run.question.seed, thread as u64);
        let agent = simulation.core(&format!("store {thread}"), node, Role::Service, start, move |core| {
            let own = (thread..queues).step_by(threads);
            let make = |queue: usize| match &host {
                None => Box::new(pairs[queue].host(core)) as HostHalf<'_>,
                Some(host) => host(core, queue),
            };
            let queues = own.map(make).collect();
            run.warm_index(core, (thread, threads));
            let mut server = Server::new(queues, run.store, run.question.copied_up_to);
            loop {
                server.step();
            }
        });
        simulation.machine().borrow_mut().set_prefetchers(agent, true);
    }
}

/// Adds the overlay's threads, where there is one.
fn add_overlay(simulation: &mut Simulation, laid: &Laid, run: &Rc<Run>) {
    let Some(between) = &laid.between else { return };
    let threads = between.threads;
    for thread in 0..threads {
        let (run, pairs, nic) = (Rc::clone(run), Rc::clone(&laid.pairs), Rc::clone(&between.nic));
        let start = start_of(run.question.seed, (run.question.threads + thread) as u64);
        let agent = simulation.core(&format!("overlay {thread}"), 0, Role::Service, start, move |core| {
            let mut overlay = Overlay::new(nic(core, thread), pairs[thread].host(core), MOST_BYTES as u16);
            run.warm_values(core, (thread, threads));
            loop {
                overlay.step();
            }
        });
        simulation.machine().borrow_mut().set_prefetchers(agent, false);
    }
}

/// Adds the NIC's queues, each with clients behind it.
fn add_chip(simulation: &mut Simulation, laid: &Laid, run: &Rc<Run>, nic: &NicParameters) {
    let chip = Rc::new(RefCell::new(Chip::new(nic)));
    for queue in 0..laid.pairs.len() {
        let (run, chip, nic) = (Rc::clone(run), Rc::clone(&chip), nic.clone());
        let pair = laid.pairs[queue];
        let places = Places::find(&laid.layout, laid.first_pair + queue, &pair);
        let start = start_of(run.question.seed, queue as u64);
        simulation.device(&format!("NIC queue {queue}"), Role::Main, start, move |device| {
            while !run.is_warm() {
                device.spin_until(device.now() + WARMING);
            }
            let seed = run.question.seed.wrapping_mul(1 << 20) + queue as u64;
            let clients = Clients::new(Arc::clone(&run.catalogue), run.question.window, seed);
            let queue_ = ChipQueue::new(&pair, device, &nic, places, &chip);
            measure(&run, device, &mut ChipNetwork::new(queue_, clients), queue == 0);
        });
    }
}

/// Warms up, measures, and keeps the load until every queue has measured.
fn measure(run: &Run, device: &SimDevice<'_>, network: &mut ChipNetwork<'_, '_, Clients>, looks: bool) {
    let queues = match run.question.reached {
        Reached::Directly => run.question.threads,
        Reached::Overlay { threads, .. } => threads,
    };
    let (warm, measured) = run.question.requests;
    while network.account().received() < warm {
        network.step();
    }
    network.account_mut().forget_latency();
    let wire_now = || Wire::of_pcie(&device.machine().borrow());
    let (begins, received, bytes, wire) =
        (device.now(), network.account().received(), network.far_end().answers().value_bytes, wire_now());
    while network.account().received() < warm + measured {
        network.step();
    }
    let seconds = device.now().since(begins).seconds();
    let (account, answers) = (network.account(), network.far_end().answers());
    let mut all = run.measured.borrow_mut();
    all.queues += 1;
    all.requests += account.received() - received;
    all.rate += (account.received() - received) as f64 / seconds;
    all.value_bits += (answers.value_bytes - bytes) as f64 * 8.0 / seconds;
    all.latency.add(account.latency());
    all.asked_again += answers.torn + answers.busy;
    all.wrong += account.lost() + account.corrupt();
    if looks {
        all.wire = Some([wire, wire_now()]);
    }
    drop(all);
    while run.measured.borrow().queues < queues {
        network.step();
    }
}

impl Measured {
    fn outcome(&self, operations: u64, events: u64) -> KeyValueOutcome {
        let nanoseconds = |time: Time| time.picoseconds() as f64 / 1e3;
        let [before, after] = self.wire.unwrap_or_default();
        KeyValueOutcome {
            requests_per_second: self.rate,
            value_bits_per_second: self.value_bits,
            median_nanoseconds: nanoseconds(self.latency.quantile(0.5)),
            p99_nanoseconds: nanoseconds(self.latency.quantile(0.99)),
            requests: self.requests,
            asked_again: self.asked_again,
            wrong: self.wrong,
            link_utilisation: after.utilisation_since(&before, 1),
            operations,
            events,
        }
    }
}
