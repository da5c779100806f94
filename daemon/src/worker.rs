//! One of a network's threads: the switch, stepped.

mod standing;

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use conic_fabric::Time;
use conic_native::{KeptCore, Memory, clock, pin, spin};
use conic_nicd::config::WaitMode;
use conic_nicd::switch::{
    Away, Circuit, Mirror, Parts, Party, Pin, RateLimit, Ring, Switch, SwitchOptions, SwitchPort, Trunk, TrunkMap,
};
use conic_port::{Port, PortError};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::net::{SendFlags, send};
use rustix::thread::set_current_timer_slack;

use crate::bell::Bell;
use crate::capture;
use crate::order::{Answer, Left, News, Order, Report};

/// Steps between two looks at what the control thread wants, at most.
const STEPS_BETWEEN_ORDERS: u32 = 32;

/// The time between them, but for one step: under load a step takes a tenth of a millisecond, with ports that call the kernel, and
/// whoever takes over from this daemon waits for the look.
const BETWEEN_ORDERS: Time = Time::from_nanoseconds(100_000);

/// How long a network's thread looks again although nothing moves before it naps: a client's ring is full, or a frame of a
/// port waits for its time. Longer than a queue is looked at that says nothing: whoever naps while one is not at rest yet is not called
/// by its host.
pub(crate) const PATIENCE: Time = Time::from_nanoseconds(250_000);

/// How long it then naps at most.
const NAP: Time = Time::from_nanoseconds(50_000);

/// What an epoll event is of: nothing needs to be known but that it came.
const ANY: epoll::EventData = epoll::EventData::new_u64(0);

/// The control thread's end of a network's thread.
pub(crate) struct Worker {
    orders: Sender<Order>,
    wake: Bell,
    thread: Option<JoinHandle<()>>,
    /// Says that it has its ports write out what they hold, and is closed when they have.
    finished: Receiver<()>,
}

/// Another thread of a thread's network.
pub(crate) struct Neighbour {
    /// Its number.
    pub thread: usize,
    /// The trunk between the two, as [`TrunkMap::new`] lays it out.
    pub memory: Arc<Memory>,
    /// What wakes it.
    pub bell: Bell,
}

/// What a network's thread is given.
pub(crate) struct WorkerOptions {
    pub network: usize,
    /// What wakes it.
    pub wake: Bell,
    /// The network's other threads, and who they serve from the start.
    pub neighbours: Vec<Neighbour>,
    pub aways: Vec<Away>,
    pub core: Option<usize>,
    pub wait: WaitMode,
    pub switch: SwitchOptions,
    /// Ports, of which it has all or a part.
    pub ports: Vec<(Parts, SwitchPort)>,
    /// It touches no port before it is told to begin: another daemon has them until then.
    pub held_back: bool,
    pub news: Sender<News>,
    /// Rung when there is news.
    pub bell: Bell,
}

impl Worker {
    /// Starts a network's thread.
    ///
    /// # Errors
    ///
    /// The system gives no thread, or the process has no such core.
    pub(crate) fn start(options: WorkerOptions) -> io::Result<Worker> {
        let wake = options.wake.clone();
        let (orders, taken) = channel();
        let ((begun, ready), (finishing, finished)) = (channel(), channel());
        let name = match options.switch.thread {
            0 => format!("nic-{}", options.network),
            thread => format!("nic-{}-{thread}", options.network),
        };
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let bound = options.core.map_or(Ok(()), pin);
            let held_back = options.held_back;
            let made = bound.and_then(|()| Loop::new(options, taken));
            // Who waits for it is still there: it waits below.
            match made {
                Ok(mut made) => {
                    let _ = begun.send(Ok(()));
                    if !held_back || made.waits_to_begin() {
                        made.run();
                        // Whoever does not wait for it has ended.
                        let _ = finishing.send(());
                        made.finish_ports();
                        drop(finishing);
                    }
                }
                Err(error) => drop(begun.send(Err(error))),
            }
        })?;
        let worker = Worker { orders, wake, thread: Some(thread), finished };
        match ready.recv() {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the network's thread ended at once")),
        }
    }

    fn order(&self, order: Order) {
        // A thread that has ended, by a bug, takes no orders; whoever waits for its answer sees that.
        let _ = self.orders.send(order);
        self.wake.ring();
    }

    /// Gives it a client.
    pub(crate) fn attach(&self, order: Order) {
        self.order(order);
    }

    /// Tells it whom another thread serves from here on.
    pub(crate) fn enter_away(&self, away: Away) {
        self.order(Order::Away(away));
    }

    /// Tells it whom another thread serves no more.
    pub(crate) fn forget_away(&self, party: Party) {
        self.order(Order::Forget(party));
    }

    /// Takes a client away; when the answer comes, nothing of it is touched any more.
    pub(crate) fn detach(&self, session: u64, answer: Answer) {
        self.order(Order::Detach { session, answer });
    }

    /// Has it answer when it has done all that was ordered before.
    pub(crate) fn confirm(&self, answer: Arc<Answer>) {
        self.order(Order::Confirm(answer));
    }

    /// Lets a thread begin that was held back.
    pub(crate) fn begin(&self) {
        self.order(Order::Begin);
    }

    pub(crate) fn limit(&self, session: u64, limit: Option<RateLimit>) {
        self.order(Order::Limit { session, limit });
    }

    /// Limits the packets that stand for several which a client gets.
    pub(crate) fn limit_packets(&self, session: u64, longest: u32) {
        self.order(Order::Longest { session, longest });
    }

    /// Gives a client another address, whoever serves it.
    pub(crate) fn set_mac(&self, session: u64, mac: [u8; 6]) {
        self.order(Order::Address { session, mac });
    }

    /// Has a client get frames for stations that nobody is known to have, or not, whoever serves it.
    pub(crate) fn set_promiscuous(&self, session: u64, promiscuous: bool) {
        self.order(Order::Promiscuous { session, promiscuous });
    }

    pub(crate) fn connect(&self, party: Party, circuit: Option<Circuit>) {
        self.order(Order::Connect { party, circuit });
    }

    pub(crate) fn pin(&self, session: u64, pin: Option<Pin>) {
        self.order(Order::Pin { session, pin });
    }

    pub(crate) fn mirror(&self, party: Party, mirror: Option<Box<dyn Mirror>>) {
        self.order(Order::Mirror { party, mirror });
    }

    /// Goes on behind [`Worker::suspend`], with these ports as they are, when clients and other ports have come back and it is told to begin.
    pub(crate) fn take_up(&self, ports: Vec<usize>) {
        self.order(Order::TakeUp { ports });
    }

    /// Gives a client back to the thread that has stopped serving it.
    pub(crate) fn resume(&self, order: Order) {
        self.order(order);
    }

    /// Gives its part of a port its queues, which come from another daemon.
    pub(crate) fn inherit(&self, port: usize, queues: Vec<Box<dyn Port>>) {
        self.order(Order::Inherit { port, queues });
    }

    /// Gives it a port that comes, or its part of one.
    pub(crate) fn attach_port(&self, parts: Parts, port: SwitchPort) {
        self.order(Order::AttachPort { parts, port });
    }

    /// Takes a port from it, or its part of one; it forgets one that another thread serves.
    pub(crate) fn detach_port(&self, port: usize, queues: Sender<Vec<Box<dyn Port>>>) {
        self.order(Order::DetachPort { port, queues });
    }

    /// Takes nothing any more from clients and ports, when there is an answer; [`Worker::suspend`] follows.
    pub(crate) fn quiet(&self) -> Receiver<()> {
        let (answer, answered) = channel();
        self.order(Order::Quiet { answer });
        answered
    }

    /// Stops serving; the answer is what is left for whoever goes on, with these ports. The thread then waits for its end, or for [`Worker::take_up`].
    pub(crate) fn suspend(&self, ports: Vec<usize>) -> Receiver<Left> {
        let (answer, answered) = channel();
        self.order(Order::Suspend { ports, answer });
        answered
    }

    /// Has it end; [`Worker::end`] follows.
    pub(crate) fn stop(&self) {
        self.order(Order::Stop);
    }

    /// Ends it, as to drop it does. What its ports are still to write out is waited for until then; whether that was long enough.
    pub(crate) fn end(mut self, until: Time) -> bool {
        self.wind_up(until)
    }

    fn wind_up(&mut self, until: Time) -> bool {
        self.order(Order::Stop);
        let Some(thread) = self.thread.take() else { return true };
        if self.finished.recv().is_ok() {
            let left = Duration::from_nanos(until.since(clock::now()).nanoseconds());
            // A pipe that nobody reads takes none of it any more. What is not written by then goes with the process, as the thread does: it has
            // nothing of any client in its hands.
            if self.finished.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                return false;
            }
        }
        // One that panicked has said so itself.
        let _ = thread.join();
        true
    }

    /// Asks what it has done.
    pub(crate) fn report(&self) -> Receiver<Report> {
        let (answer, answered) = channel();
        self.order(Order::Report { answer });
        answered
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.wind_up(clock::now() + capture::PATIENCE);
    }
}

/// A client's kick, and the bells of its queues.
type Wakers = (Arc<OwnedFd>, Arc<Vec<OwnedFd>>);

/// The thread's own.
struct Loop {
    network: usize,
    /// Its number among the network's threads.
    thread: usize,
    switch: Switch<KeptCore>,
    wait: WaitMode,
    orders: Receiver<Order>,
    wake: Bell,
    /// What it sleeps on: its bell, clients' kicks, ports.
    epoll: OwnedFd,
    /// Each client's kick, and the bells of its queues.
    clients: BTreeMap<u64, Wakers>,
    rings: Vec<Ring>,
    /// What wakes the network's other threads, by their numbers.
    neighbours: BTreeMap<usize, Bell>,
    news: Sender<News>,
    bell: Bell,
    /// When something moved last.
    active: Time,
}

impl Loop {
    fn new(options: WorkerOptions, orders: Receiver<Order>) -> io::Result<Loop> {
        let WorkerOptions { network, wake, neighbours, aways, wait, switch, ports, news, bell, .. } = options;
        let thread = switch.thread;
        let mut switch = Switch::with_parts(switch, ports);
        let map = TrunkMap::new();
        for Neighbour { thread: other, memory, .. } in &neighbours {
            switch.join(Trunk::new(KeptCore::new(Arc::clone(memory)), &map, thread, *other));
        }
        aways.into_iter().for_each(|away| switch.enter_away(clock::now(), away));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake, ANY, epoll::EventFlags::IN)?;
        for descriptor in switch.descriptors() {
            epoll::add(&epoll, descriptor, ANY, epoll::EventFlags::IN)?;
        }
        Ok(Loop {
            network,
            thread,
            switch,
            wait,
            orders,
            wake,
            epoll,
            clients: BTreeMap::new(),
            rings: Vec::new(),
            neighbours: neighbours.into_iter().map(|one| (one.thread, one.bell)).collect(),
            news,
            bell,
            active: clock::now(),
        })
    }

    fn run(&mut self) {
        // Without it naps are longer, and nothing else.
        let _ = set_current_timer_slack(Some(SLACK));
        loop {
            if !self.obey() {
                return;
            }
            let looked = clock::now();
            for _ in 0..STEPS_BETWEEN_ORDERS {
                let now = clock::now();
                if now.since(looked) >= BETWEEN_ORDERS {
                    break;
                }
                let moved = self.switch.step(now);
                self.ring();
                if moved > 0 {
                    self.active = now;
                } else if !self.rest(now) {
                    break;
                }
            }
            self.tell();
        }
    }

    /// Rings the clients and threads that wait.
    #[inline(always)]
    fn ring(&mut self) {
        self.switch.take_rings(&mut self.rings);
        for ring in self.rings.drain(..) {
            let (session, queue) = match ring {
                Ring::Client { session, queue } => (session, queue),
                Ring::Thread(other) => {
                    self.neighbours.get(&other).into_iter().for_each(Bell::ring);
                    continue;
                }
            };
            if let Some(bell) = self.clients.get(&session).and_then(|(_, bells)| bells.get(queue as usize)) {
                // Never waits, whatever the client did to its end. A bell that is full has rung.
                let _ = send(bell, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
    }

    /// Does what the control thread wants; false at the end.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(order) => {
                    if !self.act_on(order) {
                        return false;
                    }
                }
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Does one thing; false if it was the last.
    fn act_on(&mut self, order: Order) -> bool {
        match order {
            Order::Attach { session, rules, map, notices, memory, kick, bells } => {
                let (now, core) = (clock::now(), KeptCore::new(memory));
                self.switch.attach(now, session, rules, (&map, notices), || core.clone());
                self.hear_from(session, (kick, bells));
            }
            Order::Resume { suspended, map, notices, memory, kick, bells } => {
                let (session, core) = (suspended.session, KeptCore::new(memory));
                // One that cannot be served is not rung either, and is detached when it is gone.
                if self.switch.resume(clock::now(), suspended, (&map, notices), || core.clone()) {
                    self.hear_from(session, (kick, bells));
                }
            }
            Order::Quiet { answer } => {
                let _ = answer.send(());
                return self.waits_to_end();
            }
            Order::Suspend { ports, answer } => return self.suspend(ports, &answer),
            Order::TakeUp { ports } => self.take_up(ports),
            Order::Inherit { port, queues } => self.inherit(port, queues),
            Order::AttachPort { parts, port } => {
                port.queues.iter().for_each(|queue| self.listen_to(&**queue));
                self.switch.attach_port(parts, port);
                self.active = clock::now();
            }
            Order::DetachPort { port, queues } => _ = queues.send(self.detach_port(port)),
            Order::Begin => {}
            Order::Confirm(answer) => drop(answer),
            Order::Away(away) => self.switch.enter_away(clock::now(), away),
            Order::Forget(party) => self.switch.forget_away(party),
            Order::Detach { session, mut answer } => {
                let gone = self.switch.detach(session);
                if let Some((kick, _)) = self.clients.remove(&session) {
                    let _ = epoll::delete(&self.epoll, &kick);
                }
                answer.add_faults(gone.map_or(0, |(_, faults)| faults.total()));
            }
            Order::Longest { session, longest } => self.switch.limit_packets(session, longest),
            Order::Address { session, mac } => _ = self.switch.set_mac(clock::now(), session, mac),
            Order::Promiscuous { session, promiscuous } => _ = self.switch.set_promiscuous(session, promiscuous),
            Order::Limit { session, limit } => self.switch.limit(clock::now(), session, limit),
            // Whoever is gone meanwhile is in no circuit and has no flows.
            Order::Connect { party, circuit } => _ = self.switch.connect(party, circuit),
            Order::Pin { session, pin } => {
                let _ = match pin {
                    Some(pin) => self.switch.pin(session, pin),
                    None => self.switch.unpin(session),
                };
            }
            Order::Mirror { party, mirror: Some(mirror) } => self.switch.mirror(party, mirror),
            Order::Mirror { party, mirror: None } => _ = self.switch.unmirror(party),
            Order::Report { answer } => _ = answer.send(self.report()),
            Order::Stop => return false,
        }
        true
    }

    fn hear_from(&mut self, session: u64, wakers: Wakers) {
        // Each kick is an event, and nobody reads it: whatever the client does to it, this thread never waits.
        let kicked = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // Without it the client is not heard while this thread sleeps; it is told by its lack of descriptors.
        let _ = epoll::add(&self.epoll, &wakers.0, ANY, kicked);
        self.clients.insert(session, wakers);
        self.active = clock::now();
    }

    /// Lets a port go, here or away; its queues, which others close.
    fn detach_port(&mut self, port: usize) -> Vec<Box<dyn Port>> {
        self.switch.forget_away(Party::Port(port));
        let queues = self.switch.detach_port(port).unwrap_or_default();
        self.listen_no_more_to(&queues);
        queues
    }

    /// What is closed elsewhere, and somebody may have a copy of, is not to wake this thread.
    fn listen_no_more_to(&self, queues: &[Box<dyn Port>]) {
        let descriptors = queues.iter().filter_map(|queue| queue.descriptor());
        descriptors.for_each(|descriptor| _ = epoll::delete(&self.epoll, descriptor));
    }

    /// Is woken when a queue of a port has something.
    fn listen_to(&self, queue: &dyn Port) {
        if let Some(descriptor) = queue.descriptor() {
            // Without it the port is not heard while this thread sleeps; it is told by its lack of descriptors.
            let _ = epoll::add(&self.epoll, descriptor, ANY, epoll::EventFlags::IN);
        }
    }

    fn report(&mut self) -> Report {
        self.switch.count_forwarded();
        Report {
            clients: self.switch.clients().collect(),
            ports: self.switch.ports().collect(),
            trunks: self.switch.trunks().map(|(other, counters)| (self.thread, other, counters)).collect(),
            looks: vec![(self.thread, self.switch.looks().clone())],
            circuits: self.switch.circuits().collect(),
            mirrors: self.switch.mirrors().collect(),
            pins: self.switch.pins().map(|(session, pin)| (session, pin.clone())).collect(),
            limits: self.switch.limits().collect(),
            promiscuous: self.switch.promiscuous().collect(),
        }
    }

    /// Waits after a step without progress; false if there may be orders.
    fn rest(&mut self, now: Time) -> bool {
        // What comes from other threads comes in bursts, and no queue is awake for it.
        let lingers =
            self.wait == WaitMode::Adaptive && !self.neighbours.is_empty() && now.since(self.active) < PATIENCE;
        let may_rest = !lingers && self.switch.is_resting();
        let may_sleep = may_rest || now.since(self.active) >= PATIENCE;
        // Where it has nobody, nothing comes but orders, and those wake it.
        let spins = self.wait == WaitMode::Spin && (!self.clients.is_empty() || self.switch.has_live_ports());
        if spins || !may_sleep {
            spin();
            return true;
        }
        // A port's other end interrupts only who says that it sleeps; what came before it knew is found by another look.
        self.switch.arm();
        if self.switch.step(now) > 0 {
            self.ring();
            self.active = now;
            return true;
        }
        let resting = self.switch.is_resting();
        if !resting && may_rest {
            // A host has called meanwhile.
            return true;
        }
        let due = self.switch.next_due().map(|due| due.since(now));
        let most = if resting { due } else { Some(due.unwrap_or(NAP).min(NAP)) };
        if most == Some(Time::ZERO) {
            spin();
            return true;
        }
        self.sleep(most);
        if resting {
            self.switch.has_slept();
        }
        self.wake.silence();
        self.switch.answer_calls();
        false
    }

    /// Sleeps until something comes, or so much time has passed if that is said.
    fn sleep(&self, most: Option<Time>) {
        if let Some(most) = most {
            let nanoseconds = most.nanoseconds();
            let most = Timespec { tv_sec: (nanoseconds / SECOND) as i64, tv_nsec: (nanoseconds % SECOND) as i64 };
            // Linux before 5.11 waits for events by whole milliseconds alone; whether there are some it is asked by nanoseconds.
            let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&most));
        }
        let mut events = [const { MaybeUninit::uninit() }; 8];
        // Whatever wakes it, the next round looks at everything.
        let _ = epoll::wait(&self.epoll, &mut events, most.map(|_| NOW).as_ref());
    }

    /// Has ports write out what they hold, and tells the control thread where that failed: it reads this when the thread has ended.
    fn finish_ports(&mut self) {
        self.tell();
        for (port, error) in self.switch.finish_ports() {
            let is_recorded = matches!(error, PortError::Capture(_));
            let (network, text) = (self.network, error.to_string());
            // Who does not ask any more has ended.
            let _ = self.news.send(News::PortUnfinished { network, port, is_recorded, text });
        }
    }

    /// Tells the control thread what it must know, and sleeps no more on ports that are gone.
    fn tell(&mut self) {
        let epoll = &self.epoll;
        // One that was not in it, for want of descriptors, wakes nobody either.
        self.switch.show_finished(|descriptor| _ = epoll::delete(epoll, descriptor));
        let offenders = self.switch.take_offenders();
        let network = self.network;
        let mut news: Vec<News> = offenders.into_iter().map(|offender| News::Offender { offender }).collect();
        let failed = self.switch.take_failures();
        news.extend(failed.into_iter().map(|text| News::PortFailed { network, text }));
        let remarks = self.switch.take_remarks();
        news.extend(remarks.into_iter().map(|text| News::NotForwarding { network, text }));
        if !news.is_empty() {
            news.into_iter().for_each(|one| drop(self.news.send(one)));
            self.bell.ring();
        }
    }
}

const SECOND: u64 = 1_000_000_000;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// By how much the system may end a sleep late, in nanoseconds; by itself it takes 50 us, which is a whole nap.
const SLACK: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

#[cfg(test)]
mod tests;
