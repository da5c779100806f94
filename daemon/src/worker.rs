//! A network's thread: the switch, stepped.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use conic_fabric::Time;
use conic_interface::ccnic::{Map, NicFaults};
use conic_native::{KeptCore, Memory, clock, pin, spin};
use conic_nicd::config::WaitMode;
use conic_nicd::switch::{MemberCounters, Offender, PortReport, Rules, Switch, SwitchOptions};
use conic_port::Port;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bell::Bell;

/// Steps between two looks at what the control thread wants.
const STEPS_BETWEEN_ORDERS: u32 = 32;

/// How long a network's thread looks again before it sleeps, where it may.
const SPIN: Time = Time::from_nanoseconds(100_000);

/// How long it sleeps at most while there is a client or a port.
const NAP: Time = Time::from_nanoseconds(50_000);

/// What the control thread wants.
pub(crate) enum Order {
    /// A client comes.
    Attach {
        /// Its session.
        session: u64,
        /// What it may do.
        rules: Rules,
        /// Where everything lies in its region.
        map: Arc<Map>,
        /// Its region.
        memory: Arc<Memory>,
    },
    /// A client goes; the answer says that nothing of it is touched any more.
    Detach {
        /// Its session.
        session: u64,
        /// Where the answer goes: what the client did.
        answer: Sender<Option<(MemberCounters, NicFaults)>>,
    },
    /// What is there?
    Report {
        /// Where the answer goes.
        answer: Sender<Report>,
    },
    /// The end.
    Stop,
}

/// What the control thread must know.
#[derive(Debug)]
pub(crate) enum News {
    /// A client broke the rules too often.
    Offender {
        /// Who, and what it did.
        offender: Offender,
    },
    /// A port failed.
    PortFailed {
        /// The network's number.
        network: usize,
        /// How.
        text: String,
    },
}

/// What a network's thread has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Each client: session, counters, faults.
    pub clients: Vec<(u64, MemberCounters, NicFaults)>,
    /// Each port.
    pub ports: Vec<PortReport>,
}

/// The control thread's end of a network's thread.
pub(crate) struct Worker {
    orders: Sender<Order>,
    wake: Bell,
    thread: Option<JoinHandle<()>>,
}

/// What a network's thread is given.
pub(crate) struct WorkerOptions {
    pub network: usize,
    pub core: Option<usize>,
    pub wait: WaitMode,
    pub switch: SwitchOptions,
    pub ports: Vec<Vec<Box<dyn Port>>>,
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
        let wake = Bell::new()?;
        let (orders, taken) = channel();
        let (begun, ready) = channel();
        let own = wake.clone();
        let thread = std::thread::Builder::new().name(format!("nic-{}", options.network)).spawn(move || {
            let bound = options.core.map_or(Ok(()), pin);
            let sound = bound.is_ok();
            // Who waits for it is still there: it waits below.
            let _ = begun.send(bound);
            if sound {
                Loop::new(options, taken, own).run();
            }
        })?;
        let worker = Worker { orders, wake, thread: Some(thread) };
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

    pub(crate) fn attach(&self, session: u64, rules: Rules, map: Arc<Map>, memory: Arc<Memory>) {
        self.order(Order::Attach { session, rules, map, memory });
    }

    /// Takes a client away; when this returns, nothing of it is touched any more.
    pub(crate) fn detach(&self, session: u64) -> Option<(MemberCounters, NicFaults)> {
        let (answer, answered) = channel();
        self.order(Order::Detach { session, answer });
        answered.recv().ok().flatten()
    }

    pub(crate) fn report(&self) -> Report {
        let (answer, answered) = channel();
        self.order(Order::Report { answer });
        answered.recv().unwrap_or_default()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Loop {
    network: usize,
    switch: Switch<KeptCore>,
    wait: WaitMode,
    orders: Receiver<Order>,
    wake: Bell,
    news: Sender<News>,
    bell: Bell,
    clients: usize,
    has_ports: bool,
    /// When something moved last.
    active: Time,
}

impl Loop {
    fn new(options: WorkerOptions, orders: Receiver<Order>, wake: Bell) -> Loop {
        let WorkerOptions { network, wait, switch, ports, news, bell, .. } = options;
        let has_ports = !ports.is_empty();
        let switch = Switch::new(switch, ports);
        Loop { network, switch, wait, orders, wake, news, bell, clients: 0, has_ports, active: clock::now() }
    }

    fn run(&mut self) {
        loop {
            if !self.obey() {
                return;
            }
            for _ in 0..STEPS_BETWEEN_ORDERS {
                let now = clock::now();
                if self.switch.step(now) > 0 {
                    self.active = now;
                } else if !self.rest(now) {
                    break;
                }
            }
            self.tell();
        }
    }

    /// Does what the control thread wants; false at the end.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Attach { session, rules, map, memory }) => {
                    let core = KeptCore::new(memory);
                    self.switch.attach(clock::now(), session, rules, &map, || core.clone());
                    self.clients += 1;
                    self.active = clock::now();
                }
                Ok(Order::Detach { session, answer }) => {
                    let gone = self.switch.detach(session);
                    self.clients -= usize::from(gone.is_some());
                    let _ = answer.send(gone);
                }
                Ok(Order::Report { answer }) => {
                    let _ = answer.send(self.report());
                }
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn report(&self) -> Report {
        Report { clients: self.switch.clients().collect(), ports: self.switch.ports().collect() }
    }

    /// Waits a little after a step without progress; false if there may be orders.
    fn rest(&mut self, now: Time) -> bool {
        let idle = self.clients == 0 && !self.has_ports;
        if !idle && (self.wait == WaitMode::Spin || now.since(self.active) < SPIN) {
            spin();
            return true;
        }
        let nap = Timespec { tv_sec: 0, tv_nsec: NAP.nanoseconds() as i64 };
        // Whatever wakes it, the next round looks at everything.
        let _ = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], (!idle).then_some(&nap));
        self.wake.silence();
        false
    }

    /// Tells the control thread what it must know.
    fn tell(&mut self) {
        let offenders = self.switch.take_offenders();
        let network = self.network;
        let mut news: Vec<News> = offenders.into_iter().map(|offender| News::Offender { offender }).collect();
        let failed = self.switch.take_failures();
        news.extend(failed.into_iter().map(|text| News::PortFailed { network, text }));
        if !news.is_empty() {
            news.into_iter().for_each(|one| drop(self.news.send(one)));
            self.bell.ring();
        }
    }
}
