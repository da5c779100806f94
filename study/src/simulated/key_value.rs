//! A key-value store behind the NIC chip.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use conic_fabric::{Core, Device, Home, LINE_BYTES, Time, lines_of};
use conic_kv::message::{HEADER_BYTES, MOST_VALUE_BYTES};
use conic_kv::{Catalogue, Clients, Server, Store, Value};
use conic_sim::{Options, SimCore, SimDevice, Simulation};

use super::behind_chip::{Ends, Laid, Measured, Wanted, lay, nic_of};
use crate::workload::{KeyValue, KeyValueOutcome};

/// How often a device looks whether the caches are warm.
const WARMING: Time = Time::from_nanoseconds(50_000);

/// Runs a store.
///
/// # Errors
///
/// What is wrong with the question, or how the run failed.
pub(super) fn run(question: &KeyValue) -> Result<KeyValueOutcome, String> {
    let nic = nic_of(&question.machine)?;
    if question.threads == 0 {
        return Err("a store has a thread at least".to_owned());
    }
    if question.demand.keys == 0 || question.requests.1 == 0 {
        return Err("a store has a key at least, and of its requests one is measured at least".to_owned());
    }
    let catalogue = Arc::new(Catalogue::new(question.demand));
    let wanted = Wanted {
        reached: question.reached,
        threads: question.threads,
        window: question.window,
        most_bytes: HEADER_BYTES + MOST_VALUE_BYTES,
        object_bytes: catalogue.bytes_of_values(),
        seed: question.seed,
    };
    let keys = question.demand.keys.into();
    let laid = lay(wanted, &nic, |layout, values| Ok(Store::place(layout, keys, values, Home::Host)))?;
    let options = Options { seed: question.seed, ..Options::default() };
    let mut simulation = Simulation::new(&question.machine, &laid.layout, options);
    laid.fill(&simulation);
    if !laid.own.fill(&simulation.setup(), &catalogue) {
        return Err(format!("the index has no room for {} keys", catalogue.sizes().len()));
    }
    let run = Rc::new(Run {
        question: question.clone(),
        values: popular_values(&simulation, question, &laid.own, &catalogue),
        catalogue,
        store: laid.own,
        warm: Cell::new(0),
        to_warm: question.threads + laid.overlay_threads(),
        asked_again: Cell::new(0),
        measured: RefCell::default(),
    });
    add_store(&mut simulation, &laid, &run);
    let (warming, threads) = (Rc::clone(&run), laid.overlay_threads());
    laid.add_overlay(&mut simulation, move |core, thread| warming.warm_values(core, (thread, threads)));
    laid.add_chip(&mut simulation, &nic, &run);
    simulation.run().map_err(|failure| failure.to_string())?;
    let machine = simulation.machine().borrow();
    let measured = run.measured.borrow();
    Ok(KeyValueOutcome {
        requests_per_second: measured.rate,
        value_bits_per_second: measured.payload_bits,
        median_nanoseconds: measured.nanoseconds(0.5),
        p99_nanoseconds: measured.nanoseconds(0.99),
        requests: measured.requests,
        asked_again: run.asked_again.get(),
        wrong: measured.wrong,
        link_utilisation: measured.link_utilisation(),
        operations: machine.operations(),
        events: machine.events(),
    })
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
    /// Requests whose value was torn or being replaced.
    asked_again: Cell<u64>,
    measured: RefCell<Measured>,
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
}

/// What is behind each queue: clients, once the caches are warm.
impl Ends<Clients> for Run {
    fn wait(&self, device: &SimDevice<'_>) {
        while self.warm.get() < self.to_warm {
            device.spin_until(device.now() + WARMING);
        }
    }
    fn far_end(&self, queue: usize) -> Clients {
        let seed = self.question.seed.wrapping_mul(1 << 20) + queue as u64;
        Clients::new(Arc::clone(&self.catalogue), self.question.window, seed)
    }
    fn requests(&self, _queue: usize) -> (u64, u64) {
        self.question.requests
    }
    fn payload_bytes(&self, clients: &Clients) -> u64 {
        clients.answers().value_bytes
    }
    fn note(&self, clients: &Clients) {
        let answers = clients.answers();
        self.asked_again.set(self.asked_again.get() + answers.torn + answers.busy);
    }
    fn measured(&self) -> &RefCell<Measured> {
        &self.measured
    }
}

/// Adds the store's threads: with an overlay each has its share of the queue pairs.
fn add_store(simulation: &mut Simulation, laid: &Laid<Store>, run: &Rc<Run>) {
    let threads = run.question.threads;
    for thread in 0..threads {
        let run = Rc::clone(run);
        laid.add_thread(simulation, (thread, "store"), move |core, queues| {
            run.warm_index(core, (thread, threads));
            let mut server = Server::new(queues, run.store, run.question.copied_up_to);
            loop {
                server.step();
            }
        });
    }
}
