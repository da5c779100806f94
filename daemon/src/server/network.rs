//! A network: its threads, who is served by which, and what they do together.
//!
//! Each thread has a switch of its own, with some of the clients and ports, and a trunk to each other thread. A port's queues are dealt to
//! the threads in turn, from the thread of the port's number modulo theirs on, and a client is on the one that has the fewest when it
//! comes. Each thread is told whom the others serve, and what these may do, so that an order about somebody goes to all of them where it
//! says who reaches whom, and else to that one's thread, or threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use conic_fabric::Time;
use conic_native::{Memory, Pages, clock};
use conic_nicd::config::{Config, NetworkConfig, NetworkMode, PortConfig, WaitMode};
use conic_nicd::switch::{
    Away, Circuit, Mirror, MirrorCounters, Mode, Offloads, Parts, Party, Pin, PortReport, RateLimit, Rules,
    SwitchOptions, SwitchPort, TrunkMap,
};
use conic_port::{Legacy, Made, Port, PortSpec};

use super::DaemonError;
use super::adopt::{Inheritance, Promise};
use super::mirror::Asked;
use super::region::Reports;
use crate::bell::Bell;
use crate::capture::{Capture, PATIENCE, Writers};
use crate::order::{Answer, Left, Order, Report};
use crate::worker::{self, Neighbour, Worker, WorkerOptions};

/// A port of a network.
pub(super) struct NetworkPort {
    pub config: PortConfig,
    /// An operator has attached it, and not the configuration.
    pub is_attached: bool,
    /// Which threads serve its queues.
    pub parts: Parts,
    /// Another daemon can go on with it.
    pub can_bequeath: bool,
}

/// A network and its threads.
pub(super) struct Network {
    /// What it was at the start: ports come and go.
    pub config: NetworkConfig,
    workers: Vec<Worker>,
    /// The thread of each client, by its session.
    clients: BTreeMap<u64, usize>,
    /// Its ports by their numbers, which are nobody else's after them.
    pub ports: BTreeMap<usize, NetworkPort>,
    /// The number of the next port that comes.
    next_port: usize,
    /// Mirrors that an operator asked for.
    pub asked_mirrors: Vec<(Party, Asked)>,
    /// Those that write mirrors' files.
    pub writers: Writers,
}

impl Network {
    /// Gives a client to a thread, by an order that says who comes. The threads enter it one by one; see [`Network::confirm`].
    pub fn attach(&mut self, order: Order) {
        let Some((session, rules)) = order.newcomer() else { return };
        let away = (Party::Client(session), rules.clone());
        let thread = self.thread_with_the_fewest();
        self.clients.insert(session, thread);
        self.workers[thread].attach(order);
        let (party, rules) = away;
        // Until they know, what is for it goes to those who may have it, and its client has no answer yet.
        for worker in self.others(thread) {
            worker.enter_away(Away { thread, party, rules: rules.clone() });
        }
    }

    /// Takes a client away; when the answer comes, nothing of it is touched any more.
    pub fn detach(&mut self, session: u64, answer: Answer) {
        let Some(thread) = self.clients.remove(&session) else { return };
        self.workers[thread].detach(session, answer);
        self.others(thread).for_each(|worker| worker.forget_away(Party::Client(session)));
    }

    /// Has the answer come when every thread has done what was ordered of it before this.
    pub fn confirm(&self, answer: Answer) {
        let answer = Arc::new(answer);
        self.workers.iter().for_each(|worker| worker.confirm(Arc::clone(&answer)));
    }

    /// The thread that serves a client, by its number.
    pub fn thread_of(&self, session: u64) -> Option<usize> {
        self.clients.get(&session).copied()
    }

    fn thread_with_the_fewest(&self) -> usize {
        let clients = |thread: &usize| self.clients.values().filter(|&own| own == thread).count();
        (0..self.workers.len()).min_by_key(clients).unwrap_or(0)
    }

    /// The threads that reach one by trunks.
    fn others(&self, thread: usize) -> impl Iterator<Item = &Worker> {
        // On a loopback nobody reaches another.
        let count = if self.config.mode == NetworkMode::Loopback { 0 } else { self.workers.len() };
        self.workers.iter().enumerate().take(count).filter(move |(other, _)| *other != thread).map(|(_, worker)| worker)
    }

    /// The thread that serves a client.
    fn worker_of(&self, session: u64) -> Option<&Worker> {
        self.workers.get(self.thread_of(session)?)
    }

    /// The threads that serve somebody.
    fn workers_of(&self, party: Party) -> Vec<&Worker> {
        match party {
            Party::Client(session) => self.worker_of(session).into_iter().collect(),
            Party::Port(port) => self
                .ports
                .get(&port)
                .into_iter()
                .flat_map(|port| port.parts.threads())
                .map(|thread| &self.workers[thread])
                .collect(),
        }
    }

    /// Lets threads begin that were held back.
    pub fn begin(&self) {
        self.workers.iter().for_each(Worker::begin);
    }

    /// Limits what a client sends.
    pub fn limit(&self, session: u64, limit: Option<RateLimit>) {
        self.worker_of(session).into_iter().for_each(|worker| worker.limit(session, limit));
    }

    /// Limits the packets that stand for several which a client gets; when the answer comes, it gets no longer ones.
    pub fn limit_packets(&self, session: u64, longest: u32, answer: Answer) {
        let Some(worker) = self.worker_of(session) else { return };
        worker.limit_packets(session, longest);
        // No other thread need know.
        worker.confirm(Arc::new(answer));
    }

    /// Gives a client another address; when the answer comes, every thread knows it.
    pub fn set_mac(&self, session: u64, mac: [u8; 6], answer: Answer) {
        self.workers.iter().for_each(|worker| worker.set_mac(session, mac));
        self.confirm(answer);
    }

    /// Has a client get frames for stations that nobody is known to have, or not; when the answer comes, every thread knows it.
    pub fn set_promiscuous(&self, session: u64, promiscuous: bool, answer: Answer) {
        self.workers.iter().for_each(|worker| worker.set_promiscuous(session, promiscuous));
        self.confirm(answer);
    }

    /// Makes somebody an end of a circuit, or of none.
    pub fn connect(&self, party: Party, circuit: Option<Circuit>) {
        self.workers.iter().for_each(|worker| worker.connect(party, circuit));
    }

    /// Gives a client a flow, or takes all of them from it.
    pub fn pin(&self, session: u64, pin: Option<Pin>) {
        self.workers.iter().for_each(|worker| worker.pin(session, pin.clone()));
    }

    /// Has copies of what somebody sends and gets go to a file, or nowhere.
    pub fn copy_to(&self, party: Party, capture: Option<Capture>) {
        for worker in self.workers_of(party) {
            worker.mirror(party, capture.clone().map(|capture| Box::new(capture) as Box<dyn Mirror>));
        }
    }

    /// Gives a port its queues, which come from another daemon.
    pub fn inherit(&self, port: usize, queues: Vec<Box<dyn Port>>) {
        let Some(NetworkPort { parts, .. }) = self.ports.get(&port) else { return };
        for (thread, queues) in parts.deal(queues) {
            self.workers[thread].inherit(port, queues);
        }
    }

    /// Deals the queues of a port that an operator attaches to the threads, and tells the others of it; its number.
    pub fn attach_port(&mut self, config: PortConfig, queues: Vec<Box<dyn Port>>) -> usize {
        let number = self.next_port;
        self.next_port += 1;
        let parts = Parts::new(number, queues.len(), self.workers.len());
        let can_bequeath = queues.iter().all(|queue| queue.can_bequeath());
        let port = SwitchPort { queues, vlan: config.vlan, circuit: None };
        for (worker, (own, aways)) in self.workers.iter().zip(deal(self.workers.len(), &[parts], vec![port])) {
            own.into_iter().for_each(|(parts, port)| worker.attach_port(parts, port));
            aways.into_iter().for_each(|away| worker.enter_away(away));
        }
        self.ports.insert(number, NetworkPort { config, is_attached: true, parts, can_bequeath });
        number
    }

    /// Takes a port from all threads; its queues come to `queues`, of which nobody has anything when all threads have let go of the port.
    /// What it was.
    pub fn detach_port(&mut self, number: usize, queues: &Sender<Vec<Box<dyn Port>>>) -> Option<PortConfig> {
        let port = self.ports.remove(&number)?;
        self.forget_mirror(Party::Port(number));
        self.workers.iter().for_each(|worker| worker.detach_port(number, queues.clone()));
        Some(port.config)
    }

    /// Stops serving; what is left for whoever goes on, with these ports.
    pub fn suspend(&self, ports: impl Iterator<Item = usize> + Clone) -> Left {
        if self.workers.len() > 1 {
            // First nobody sends across any more; then each takes what has come across, before it ends.
            let quiet: Vec<Receiver<()>> = self.workers.iter().map(Worker::quiet).collect();
            for one in quiet {
                // One that has ended, by a bug, sends nothing.
                let _ = one.recv();
            }
        }
        let parts = |port: &usize| self.ports.get(port).map(|port| port.parts);
        let is_on = |port: &usize, thread| parts(port).is_some_and(|parts| parts.threads().any(|own| own == thread));
        let of = |thread| ports.clone().filter(|port| is_on(port, thread)).collect();
        let threads = self.workers.iter().enumerate();
        let left: Vec<Receiver<Left>> = threads.map(|(thread, worker)| worker.suspend(of(thread))).collect();
        let mut all = Left::default();
        let mut dealt: BTreeMap<usize, Vec<(usize, Vec<Legacy>)>> = BTreeMap::new();
        for (thread, one) in left.iter().enumerate() {
            // One that has ended, by a bug, leaves nothing.
            let Ok(one) = one.recv() else { continue };
            all.clients.extend(one.clients);
            one.ports.into_iter().for_each(|(port, part)| dealt.entry(port).or_default().push((thread, part)));
        }
        let gathered = |(port, dealt)| Some((port, parts(&port)?.gather(dealt)));
        all.ports = dealt.into_iter().filter_map(gathered).collect();
        all
    }

    /// Goes on behind [`Network::suspend`], where nobody else has: with clients that are resumed by these orders, and with the ports that were
    /// given, by what was given of them; why a port does not go on.
    pub fn take_up(&self, clients: Vec<Order>, ports: Vec<(usize, Vec<Legacy>)>) -> Vec<String> {
        let mut failures = Vec::new();
        // Who gave nothing has nothing that another could have touched.
        let (given, kept): (Vec<_>, Vec<_>) =
            ports.into_iter().partition(|(_, queues)| queues.iter().any(|queue| !queue.is_nothing()));
        let kept: Vec<usize> = kept.into_iter().map(|(port, _)| port).collect();
        self.workers.iter().for_each(|worker| worker.take_up(kept.clone()));
        for (port, legacies) in given {
            let Some(NetworkPort { config, .. }) = self.ports.get(&port) else { continue };
            match go_on(config, legacies) {
                Ok(queues) => self.inherit(port, queues),
                Err(text) => {
                    failures.push(text);
                    self.inherit(port, Vec::new());
                }
            }
        }
        for order in clients {
            let worker = order.newcomer().and_then(|(session, _)| self.worker_of(session));
            if let Some(worker) = worker {
                worker.resume(order);
            }
        }
        // Not before: a frame for a client that is not there yet would be nobody's.
        self.begin();
        failures
    }

    /// Ends all with their threads, which let go of every region and port, and write out what these hold as long as that is worth waiting for;
    /// of each, who is still writing what mirrors have copied, and whether its ports have written out all.
    pub fn end_all(networks: &mut Vec<Network>) -> Vec<(Writers, bool)> {
        networks.iter().flat_map(|network| &network.workers).for_each(Worker::stop);
        // All write at the same time.
        let until = clock::now() + PATIENCE;
        let end = |network: Network| {
            // Each is ended, whatever became of the others.
            let written: Vec<bool> = network.workers.into_iter().map(|worker| worker.end(until)).collect();
            (network.writers, !written.contains(&false))
        };
        networks.drain(..).map(end).collect()
    }

    /// What its threads have done, as if they were one.
    pub fn report(&self) -> Report {
        let asked: Vec<Receiver<Report>> = self.workers.iter().map(Worker::report).collect();
        let mut all = Report::default();
        let mut ports: BTreeMap<usize, PortReport> = BTreeMap::new();
        let mut mirrors: BTreeMap<Party, MirrorCounters> = BTreeMap::new();
        for one in asked.iter().map(|one| one.recv().unwrap_or_default()) {
            all.clients.extend(one.clients);
            for port in one.ports {
                let number = port.number;
                ports.entry(number).or_insert(PortReport { number, ..PortReport::default() }).join(port);
            }
            all.trunks.extend(one.trunks);
            all.looks.extend(one.looks);
            all.circuits.extend(one.circuits);
            all.pins.extend(one.pins);
            all.limits.extend(one.limits);
            all.promiscuous.extend(one.promiscuous);
            one.mirrors.into_iter().for_each(|(party, counters)| *mirrors.entry(party).or_default() += counters);
        }
        all.ports = ports.into_values().collect();
        all.mirrors = mirrors.into_iter().collect();
        all.circuits.sort_by_key(|(party, circuit, _)| (*circuit, *party));
        // Each thread that has a part of a port says so.
        all.circuits.dedup_by_key(|(party, ..)| *party);
        // Of one client they stay in their order.
        all.pins.sort_by_key(|(session, _)| *session);
        all
    }
}

/// Opens each network's ports, or goes on with those that are inherited, and starts its threads.
pub(super) fn start_networks(
    config: &Config,
    mut inheritance: Option<&mut Inheritance>,
    reports: &Reports,
) -> Result<Vec<Network>, DaemonError> {
    let mut networks = Vec::new();
    for (index, network) in config.networks.iter().enumerate() {
        let cannot = |why| DaemonError::Cannot { what: format!("network \"{}\"", network.name), why };
        let (mut ports, mut own) = (BTreeMap::new(), Vec::new());
        for (number, port, promise) in ports_of((index, network), inheritance.as_deref_mut()) {
            // Behind another daemon that is settled when all are known who may be an end of one.
            let circuit = if inheritance.is_some() { None } else { network.circuit_of_port(number) };
            let is_given = promise.is_some_and(|promise| promise.given);
            let spec = port.spec().map_err(|error| cannot(error.to_string()))?;
            // That of another port there may be the same file; and a pipe's other end may let this wait while nobody is heard.
            let comes_late = spec.records() || spec.may_wait();
            let is_late = comes_late && inheritance.as_mut().map(|all| all.open_late((index, number))).is_some();
            // The queues of one that is given come when the other daemon's threads stand still, and later where it has closed its own.
            let queues = if is_given || is_late { prepare(&spec) } else { open(&port) }.map_err(cannot)?;
            let can_bequeath = is_given || !is_late && queues.iter().all(|queue| queue.can_bequeath());
            let count = spec.queues();
            let parts = Parts::new(number, count, network.threads);
            own.push((parts, SwitchPort { queues, vlan: port.vlan, circuit }));
            let is_attached = number >= network.ports.len();
            ports.insert(number, NetworkPort { config: port, is_attached, parts, can_bequeath });
        }
        let (parts, own): (Vec<Parts>, Vec<SwitchPort>) = own.into_iter().unzip();
        let started =
            start_threads((index, network), config.most_faults, (&parts, own), inheritance.is_some(), reports);
        let workers = started.map_err(|why| cannot(format!("its threads do not start: {why}")))?;
        let (config, clients, asked_mirrors) = (network.clone(), BTreeMap::new(), Vec::new());
        let next_port = ports.keys().max().map_or(0, |last| last + 1);
        let writers = Writers::default();
        networks.push(Network { config, workers, clients, ports, next_port, asked_mirrors, writers });
    }
    Ok(networks)
}

/// The ports of a network by their numbers: those of the configuration, in its order, and behind them those that an operator attached to
/// the daemon before this one; with what that promises of each.
fn ports_of(
    (index, network): (usize, &NetworkConfig),
    inheritance: Option<&mut Inheritance>,
) -> Vec<(usize, PortConfig, Option<Promise>)> {
    let configured = network.ports.iter().cloned().enumerate();
    let Some(inheritance) = inheritance else {
        return configured.map(|(number, port)| (number, port, None)).collect();
    };
    let claim = |(number, port): (usize, PortConfig)| {
        let promise = inheritance.claim(&network.name, &port.spec, (index, number));
        (number, port, promise)
    };
    let mut ports: Vec<_> = configured.map(claim).collect();
    if network.mode == NetworkMode::Bridge {
        for (number, promise) in inheritance.claim_attached(&network.name, (index, ports.len())) {
            let port = PortConfig { spec: promise.spec.clone(), vlan: promise.vlan };
            ports.push((number, port, Some(promise)));
        }
    }
    ports
}

/// Starts a network's threads, with a trunk between each two of a bridge.
fn start_threads(
    (index, network): (usize, &NetworkConfig),
    most_faults: u64,
    (parts, ports): (&[Parts], Vec<SwitchPort>),
    held_back: bool,
    reports: &Reports,
) -> Result<Vec<Worker>, String> {
    let threads = network.threads;
    let bells = std::iter::repeat_with(Bell::new).take(threads).collect::<Result<Vec<_>, _>>();
    let bells = bells.map_err(|error| error.to_string())?;
    let mut trunks = BTreeMap::new();
    if network.mode == NetworkMode::Bridge {
        for pair in (0..threads).flat_map(|far| (0..far).map(move |near| (near, far))) {
            let memory = Memory::create(&TrunkMap::new().layout, Pages::Plain).map_err(|error| error.to_string())?;
            trunks.insert(pair, Arc::new(memory));
        }
    }
    let mut workers = Vec::new();
    for (thread, (ports, aways)) in deal(threads, parts, ports).into_iter().enumerate() {
        let neighbour = |other: usize| {
            let memory = trunks.get(&(thread.min(other), thread.max(other)))?;
            Some(Neighbour { thread: other, memory: Arc::clone(memory), bell: bells[other].clone() })
        };
        let neighbours: Vec<Neighbour> = (0..threads).filter_map(neighbour).collect();
        let worker = Worker::start(WorkerOptions {
            network: index,
            wake: bells[thread].clone(),
            neighbours,
            aways,
            core: network.core_of(thread),
            wait: network.wait,
            switch: switch_options(network, thread, most_faults),
            ports,
            held_back,
            news: reports.news.clone(),
            bell: reports.bell.clone(),
        });
        workers.push(worker.map_err(|error| error.to_string())?);
    }
    Ok(workers)
}

/// The parts of ports that a thread serves, and the ports of which it has none.
type Dealt = (Vec<(Parts, SwitchPort)>, Vec<Away>);

/// What each of so many threads gets.
fn deal(threads: usize, parts: &[Parts], ports: Vec<SwitchPort>) -> Vec<Dealt> {
    let mut dealt: Vec<Dealt> = std::iter::repeat_with(Default::default).take(threads).collect();
    for (parts, SwitchPort { queues, vlan, circuit }) in parts.iter().zip(ports) {
        for (thread, (_, aways)) in dealt.iter_mut().enumerate() {
            let way = parts.way_from(thread);
            if way != thread {
                // Whether it takes unfinished packets is known when it is there.
                let rules = Rules { vlan, circuit, offloads: Offloads::default(), ..Rules::default() };
                aways.push(Away { thread: way, party: Party::Port(parts.port()), rules });
            }
        }
        for (thread, queues) in parts.deal(queues) {
            dealt[thread].0.push((*parts, SwitchPort { queues, vlan, circuit }));
        }
    }
    dealt
}

/// Opens a port's queues; the error says which, and what to do.
pub(super) fn open(config: &PortConfig) -> Result<Vec<Box<dyn Port>>, String> {
    let spec = config.spec().map_err(|error| error.to_string())?;
    spec.open().map_err(|error| error.to_string())
}

/// Goes on with another daemon's queues of a port if it gave some, and opens it otherwise. A file that the other one has recorded stays as
/// it is.
pub(super) fn go_on(config: &PortConfig, given: Vec<Legacy>) -> Result<Vec<Box<dyn Port>>, String> {
    let spec = config.spec().map_err(|error| error.to_string())?;
    let queues = if given.is_empty() && !spec.records() { spec.open() } else { spec.inherit(given) };
    queues.map_err(|error| error.to_string())
}

/// Does what can be done for a port that another daemon still has, or whose file it may be writing; no queues yet.
fn prepare(spec: &PortSpec) -> Result<Vec<Box<dyn Port>>, String> {
    spec.check(&|made| matches!(made, Made::Interface(_))).map_err(|error| error.to_string())?;
    spec.prepare().map(|()| Vec::new()).map_err(|error| error.to_string())
}

/// How long a queue has said nothing that is no longer looked at.
const REST: Time = Time::from_nanoseconds(200_000);

// Between the two a thread would nap, and nobody call it.
const _: () = assert!(REST.picoseconds() < worker::PATIENCE.picoseconds());

/// Queues that a thread that never sleeps looks at whatever they say: few enough to cost each other nothing.
const AWAKE_WHILE_SPINNING: usize = 8;

fn switch_options(network: &NetworkConfig, thread: usize, most_faults: u64) -> SwitchOptions {
    let mode = match network.mode {
        NetworkMode::Bridge => Mode::Bridge,
        NetworkMode::Loopback => Mode::Loopback,
    };
    let age = Time::from_nanoseconds(network.address_age_s.saturating_mul(1_000_000_000));
    let (rest_after, always_awake) = match network.wait {
        WaitMode::Spin => (REST, AWAKE_WHILE_SPINNING),
        WaitMode::Adaptive => (REST, 0),
        WaitMode::Interrupt => (Time::ZERO, 0),
    };
    SwitchOptions { mode, age, most_faults, rest_after, always_awake, thread, ..SwitchOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_a_part_of_a_port_knows_its_rules_and_by_whom_it_is_reached() {
        let parts = [Parts::new(0, 1, 2), Parts::new(1, 1, 2)];
        let circuit = Some(Circuit { number: 7, far: true });
        let port = |vlan, circuit| SwitchPort { queues: Vec::new(), vlan, circuit };
        let dealt = deal(2, &parts, vec![port(None, circuit), port(Some(5), None)]);
        for (thread, (own, aways)) in dealt.iter().enumerate() {
            let own: Vec<usize> = own.iter().map(|(parts, _)| parts.port()).collect();
            assert_eq!(own, [thread], "queue 0 of port p is on thread p");
            let other = 1 - thread;
            let (vlan, circuit) = if other == 0 { (None, circuit) } else { (Some(5), None) };
            let rules = Rules { vlan, circuit, ..Rules::default() };
            assert_eq!(*aways, [Away { thread: other, party: Party::Port(other), rules }]);
        }
        assert_eq!((dealt[0].0[0].1.circuit, dealt[1].0[0].1.vlan), (circuit, Some(5)));
    }

    #[test]
    fn a_thread_is_what_the_configuration_says() {
        let network = |wait| NetworkConfig { wait, address_age_s: 3, ..NetworkConfig::default() };
        let told = |wait, thread| switch_options(&network(wait), thread, 9);
        let spinning = told(WaitMode::Spin, 1);
        assert_eq!((spinning.most_faults, spinning.thread, spinning.mode), (9, 1, Mode::Bridge));
        assert_eq!(spinning.age, Time::from_nanoseconds(3_000_000_000));
        // Who sleeps looks at no queue that says nothing, who never sleeps at a few, and who must be interrupted rests at once.
        let rests = |wait| (told(wait, 0).rest_after > Time::ZERO, told(wait, 0).always_awake > 0);
        let modes = [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Interrupt];
        assert_eq!(modes.map(rests), [(true, true), (true, false), (false, false)]);
        let loopback = NetworkConfig { mode: NetworkMode::Loopback, ..NetworkConfig::default() };
        assert_eq!(switch_options(&loopback, 0, 9).mode, Mode::Loopback);
    }
}
