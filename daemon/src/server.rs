//! The control thread: the socket, sessions, quotas; who attaches and who is gone.
//!
//! | file | what is there |
//! |---|---|
//! | `listening`, `door` | the sockets; who is let in while there are descriptors |
//! | `attach`, `region`, `spare` | a client gets its region: made aside, or before it is asked for |
//! | `address` | who has which address |
//! | `kept`, `closing` | regions of those that have left; connections that take long to close |
//! | `network`, `ports`, `mirror` | threads and who is served by which; ports that come and go; copies of frames |
//! | `operator`, `metrics` | what operators and Prometheus ask |
//! | `adopt`, `end` | a new daemon takes over; how this one ends |

mod address;
pub(crate) mod adopt;
mod attach;
mod closing;
mod door;
mod end;
pub(crate) mod kept;
mod listening;
mod metrics;
mod mirror;
mod network;
mod operator;
pub(crate) mod ports;
pub(crate) mod region;
mod spare;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};

use conic_control::{Attach, Message, Reason, Refused};
use conic_fabric::Time;
use conic_native::channel::{Channel, Listener};
use conic_native::{about_to, clock, fences};
use conic_nicd::config::Config;
use conic_nicd::quota::Quota;
use conic_nicd::switch::{Circuit, Party};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use adopt::Inheritance;
use closing::Closing;
pub use end::Ended;
use kept::Kept;
use listening::{connect, listen, listen_for_metrics};
use metrics::Metrics;
use network::{Network, start_networks};
use region::{Departing, Leaving, Reports, Taken};
use spare::Spare;

use crate::bell::{Bell, Stop};
use crate::connection::{Connection, Session, Step, refused, say, welcome};
use crate::event::{Event, Log};
use crate::journal::Journal;
use crate::order::{Answer, News};
use crate::wakeup::WakeupLatency;

/// What an epoll event is of: the lowest bit tells a connection's socket from its process.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const NEWS: u64 = u64::MAX - 2;
const METRICS: u64 = u64::MAX - 3;

/// Why a daemon does not start, or cannot go on.
#[derive(Debug)]
pub enum DaemonError {
    /// The configuration names something that cannot be had.
    Cannot {
        /// What.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// A system call failed.
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonError::Cannot { what, why } => write!(f, "{what}: {why}"),
            DaemonError::System { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for DaemonError {}

fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> DaemonError {
    move |error| DaemonError::System { doing, error: error.into() }
}

/// How a client leaves.
#[derive(Clone, Copy)]
struct Leave {
    /// It has read all that came with descriptors.
    is_read: bool,
    /// It may live, and use its region still.
    may_use: bool,
}

/// A running daemon.
pub struct Daemon {
    config: Config,
    listener: Listener,
    networks: Vec<Network>,
    quota: Quota,
    connections: BTreeMap<u64, Connection>,
    /// The number of the next connection.
    next: u64,
    /// The number of the next session.
    next_session: u64,
    own_user: u32,
    epoll: OwnedFd,
    /// Connections that a thread closes. It ends before anything goes that it shares with this one: it closes copies alone.
    closing: Closing,
    stop: Stop,
    news: Receiver<News>,
    bell: Bell,
    /// For threads that make regions or give them back.
    reports: Reports,
    /// What is made before somebody asks for it.
    spare: Spare,
    /// The users of regions that are on their way back, one entry a region.
    returning: Vec<u32>,
    /// The connections of clients that have left and have not read all that they were told, and what they have of a quota until then.
    unread: BTreeMap<u64, (Channel, Taken)>,
    /// Regions that clients may use still that were detached, in the order in which they were.
    kept: BTreeMap<u64, Kept>,
    /// Regions for which there was no thread that gives them back.
    unreturned: Vec<Departing>,
    /// When they are tried again, and the connections in `closing`.
    retry: Option<Time>,
    /// Clients' wishes that wait for a region of their users'.
    postponed: Vec<(u64, Attach)>,
    /// Heavy fences reach the clients' cores.
    fences: bool,
    /// How often clients were refused or detached, by reason.
    refusals: BTreeMap<Reason, u64>,
    metrics: Option<Metrics>,
    /// As long as it is there.
    _wakeup: Option<WakeupLatency>,
    /// Until when nobody is let in, for want of descriptors.
    shut_until: Option<Time>,
    /// Nobody came in since then.
    crowded: bool,
    /// The number of the next circuit that an operator makes.
    next_circuit: u64,
    /// Another daemon has taken over.
    ended: Option<Ended>,
    journal: Journal,
}

impl Daemon {
    /// Opens the ports, starts each network's threads, and listens. `config` was checked.
    ///
    /// # Errors
    ///
    /// What cannot be had, and what to do.
    pub fn start(config: Config, stop: Stop, log: Log) -> Result<Daemon, DaemonError> {
        let (listener, socket) = (listen(&config)?, config.socket.clone());
        let opened = Daemon::open((config, stop, log), listener, None);
        if opened.is_err() {
            // Nobody listens there.
            let _ = std::fs::remove_file(socket);
        }
        opened
    }

    /// Takes over from the daemon that listens at the configuration's socket, with its clients, and with its TAP, memif, AF_XDP and
    /// DPDK ports where the same port is on the same network here: a DPDK device is closed there and opened here. What else one process
    /// alone may open cannot be had while that one runs.
    ///
    /// # Errors
    ///
    /// None listens, or it does not give everything over; then it goes on as if nobody had asked.
    pub fn adopt(config: Config, stop: Stop, log: Log) -> Result<Daemon, DaemonError> {
        let inheritance = Inheritance::ask(connect(&config.socket)?)?;
        // Replaced by the other's own as soon as that serves no more.
        let listener = Listener::unbound().map_err(system("making a socket"))?;
        Daemon::open((config, stop, log), listener, Some(inheritance))
    }

    fn open(
        (config, stop, log): (Config, Stop, Log),
        listener: Listener,
        mut inheritance: Option<Inheritance>,
    ) -> Result<Daemon, DaemonError> {
        let fences = fences::register();
        let bell = Bell::new().map_err(system("making a bell"))?;
        let (send, news) = channel();
        let reports = Reports { news: send, bell: bell.clone() };
        let networks = start_networks(&config, inheritance.as_mut(), &reports)?;
        let passed = inheritance.as_mut().and_then(Inheritance::take_metrics);
        let metrics = config.metrics.map(|address| listen_for_metrics(address, passed)).transpose()?;
        let wakeup = config.wakeup_latency_us.map(WakeupLatency::ask).transpose()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("making an epoll"))?;
        let mut daemon = Daemon {
            quota: Quota::new(config.limits),
            config,
            listener,
            networks,
            connections: BTreeMap::new(),
            next: 0,
            next_session: 1,
            own_user: rustix::process::geteuid().as_raw(),
            epoll,
            stop,
            news,
            reports,
            spare: Spare::default(),
            bell,
            returning: Vec::new(),
            unread: BTreeMap::new(),
            kept: BTreeMap::new(),
            unreturned: Vec::new(),
            closing: Closing::default(),
            retry: None,
            postponed: Vec::new(),
            fences,
            refusals: BTreeMap::new(),
            metrics,
            _wakeup: wakeup,
            shut_until: None,
            crowded: false,
            next_circuit: Circuit::FIRST_OF_OPERATORS,
            ended: None,
            journal: Journal::new(log),
        };
        daemon.watch(daemon.stop.0.as_fd(), STOP)?;
        daemon.watch(daemon.bell.as_fd(), NEWS)?;
        let has_taken_over = inheritance.is_some();
        if let Some(inheritance) = inheritance {
            daemon.take_over(inheritance)?;
        }
        daemon.mirror_ports();
        match daemon.open_door() {
            // The other one has ended.
            Err(error) if has_taken_over => daemon.shut_door(&error),
            opened => opened?,
        }
        let networks = daemon.networks.iter().map(|network| network.config.name.clone()).collect();
        let socket = daemon.config.socket.display().to_string();
        daemon.journal.say(&Event::Listening { socket, networks });
        Ok(daemon)
    }

    fn watch(&self, descriptor: BorrowedFd<'_>, what: u64) -> Result<(), DaemonError> {
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(what), epoll::EventFlags::IN)
            .map_err(system("watching a descriptor"))
    }

    /// Serves clients until it is stopped, or another daemon has taken over; how it ended.
    ///
    /// # Errors
    ///
    /// The system does not let it go on.
    pub fn run(mut self) -> Result<Ended, DaemonError> {
        let mut events = Vec::with_capacity(64);
        loop {
            let looked = clock::now();
            let timeout = self.until_next_deadline();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(system("waiting for clients")(error)),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    STOP => return Ok(self.end()),
                    LISTENER => self.accept(),
                    NEWS => self.hear_news(),
                    METRICS => self.serve_metrics(),
                    of if of & 1 == 1 => self.bury(of >> 1),
                    of => self.hear(of >> 1),
                }
                if let Some(ended) = self.ended.take() {
                    // The socket and the clients are the other's now, and so is what else came at this moment.
                    return Ok(ended);
                }
            }
            self.give_up_on_the_slow(looked);
            self.try_again();
            if self.shut_until.is_some_and(|until| until <= clock::now()) {
                self.open_door_sometime();
            }
        }
    }

    fn until_next_deadline(&self) -> Option<Timespec> {
        let next = self
            .connections
            .values()
            .map(|connection| connection.deadline)
            .chain(self.shut_until)
            .chain(self.retry)
            .min()?;
        if next == Time::NEVER {
            return None;
        }
        // A little late rather than a little early, which would come round for nothing.
        let left = next.since(clock::now()).nanoseconds().saturating_add(1_000_000);
        Some(Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 })
    }

    fn step_timeout(&self) -> Time {
        Time::from_nanoseconds(self.config.step_timeout_ms.saturating_mul(1_000_000))
    }

    /// Takes one message of a client.
    fn hear(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else {
            self.keep_no_longer(number);
            return self.look_at_unread(number);
        };
        match &connection.step {
            // It is listened to no more until it has its answer: this is its end.
            _ if connection.is_not_heard() => return self.let_go(number, "closed"),
            Step::Asking(unsaid) if !unsaid.text.is_empty() => return self.go_on_answering(number),
            _ => {}
        }
        if connection.channel.carries_descriptors().unwrap_or(false) {
            return self.refuse(number, refused(Reason::Malformed, "descriptors come with a message that has none"));
        }
        let received = match connection.channel.receive() {
            Ok(Some(received)) => received,
            Ok(None) => return,
            Err(_) => return self.let_go(number, "closed"),
        };
        if received.cut {
            return self.refuse(number, refused(Reason::Malformed, "the message is longer than messages are"));
        }
        let message = match Message::decode(&received.bytes, 0) {
            Ok(message) => message,
            Err(error) => return self.refuse(number, refused(Reason::Malformed, error.to_string())),
        };
        match (message, &connection.step) {
            (Message::Hello(hello), Step::Connected) => {
                match welcome(&hello, &connection.peer, &self.config, self.own_user) {
                    Ok(answer) => {
                        let offloads = answer.extensions.offloads();
                        let step = Step::Negotiated { name: hello.name, offloads };
                        self.go_on(number, step, &Message::Welcome(answer));
                    }
                    Err(refusal) => self.refuse(number, refusal),
                }
            }
            (Message::Attach(wish), Step::Negotiated { .. }) => self.attach(number, &wish),
            (Message::Longest(bytes), Step::Attached(session)) => {
                let agreement = self.agreement(number, Message::Longest(bytes));
                self.networks[session.network].limit_packets(session.session, bytes, agreement);
                self.wait_for_threads(number);
            }
            (Message::Address { mac, .. }, Step::Attached(_)) => self.change_address(number, mac),
            (Message::Promiscuous { on, .. }, Step::Attached(_)) => self.change_promiscuous(number, on),
            (Message::Detach, Step::Attached(_)) => self.let_go(number, "asked"),
            (Message::Query(question), Step::Negotiated { .. } | Step::Asking(_)) => self.answer(number, &question),
            (other, _) => {
                let text = format!("{} does not belong at this step", kind_of(&other));
                self.refuse(number, refused(Reason::Malformed, text));
            }
        }
    }

    fn go_on(&mut self, number: u64, step: Step, answer: &Message) {
        let deadline = clock::now() + self.step_timeout();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.step = step;
        connection.deadline = deadline;
        if !say(&connection.channel, answer) {
            self.let_go(number, "closed");
        }
    }

    /// Tells a client that what it has asked for is so, when threads have done their part.
    fn agreement(&self, number: u64, word: Message) -> Answer {
        Answer::new(News::Agreed { connection: number, word }, &self.reports)
    }

    /// Hears a client no more until it has its answer; its end is told all the same. One that asks on and on while a thread of its network
    /// stands still costs nobody anything.
    fn wait_for_threads(&mut self, number: u64) {
        let late = clock::now() + self.step_timeout();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let Step::Attached(session) = &mut connection.step {
            session.has_asked = true;
            connection.deadline = late;
            let event = epoll::EventData::new_u64(number << 1);
            let _ = epoll::modify(&self.epoll, &connection.channel, event, epoll::EventFlags::empty());
        }
    }

    /// Tells a client that what it has asked for is so, or is not to be; it may be gone.
    fn agree(&mut self, number: u64, word: &Message) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Step::Attached(session) = &mut connection.step else { return };
        if std::mem::take(&mut session.has_asked) {
            connection.deadline = Time::NEVER;
            let event = epoll::EventData::new_u64(number << 1);
            let _ = epoll::modify(&self.epoll, &connection.channel, event, epoll::EventFlags::IN);
        }
        if !say(&connection.channel, word) {
            self.let_go(number, "closed");
        }
    }

    /// Tells a client why, and lets it go.
    fn refuse(&mut self, number: u64, refusal: Refused) {
        let Some(connection) = self.connections.get(&number) else { return };
        // What it is told now carries nothing.
        let is_read = !connection.channel.has_unread();
        say(&connection.channel, &Message::Refused(refusal.clone()));
        *self.refusals.entry(refusal.reason).or_default() += 1;
        let reason = refusal.reason.name();
        if matches!(connection.step, Step::Attached(_)) {
            return self.take_back(number, reason, Leave { is_read, may_use: true });
        }
        let (process, user) = (connection.peer.process, connection.peer.user);
        self.journal.say_of(Some(user), &Event::Refused { process, user, reason, text: refusal.text }, clock::now());
        self.take_back(number, reason, Leave { is_read, may_use: false });
    }

    /// Takes everything back that a process had which has ended.
    fn bury(&mut self, number: u64) {
        self.keep_no_longer(number);
        self.leave(number, "died", false);
    }

    /// Takes everything back that a client had which has left. Its program may use the region still: a mempool of DPDK outlives its device.
    fn let_go(&mut self, number: u64, why: &'static str) {
        self.leave(number, why, true);
    }

    fn leave(&mut self, number: u64, why: &'static str, may_use: bool) {
        let is_read = self.connections.get(&number).is_some_and(|one| !one.channel.has_unread());
        self.take_back(number, why, Leave { is_read, may_use });
    }

    /// The same of one that leaves so. Its region is unmapped when no thread of its network touches it any more, and it neither.
    fn take_back(&mut self, number: u64, why: &'static str, leave: Leave) {
        let begun = clock::now();
        let Some(connection) = self.connections.remove(&number) else { return };
        self.postponed.retain(|(waiting, _)| *waiting != number);
        let Connection { channel, process, step, peer, .. } = connection;
        // Descriptors that are closed leave the epoll by themselves only when no copy of them is left anywhere.
        let _ = epoll::delete(&self.epoll, &channel);
        let _ = epoll::delete(&self.epoll, &process);
        let (session, was_told) = match step {
            Step::Attached(session) => (*session, true),
            Step::Entering(entering) => (entering.session, false),
            // Its region comes, finds nobody, and goes.
            Step::Making(_) => {
                self.returning.push(peer.user);
                return self.close(channel);
            }
            Step::Connected | Step::Negotiated { .. } | Step::Asking(_) => return self.close(channel),
        };
        let Session { session, name, network, queues, bytes, memory, bells, .. } = session;
        about_to("take a client's queues back");
        self.networks[network].forget_mirror(Party::Client(session));
        let leaving = Leaving { session, name: name.to_string(), why, faults: 0, noticed: begun };
        let taken = Taken { user: peer.user, clients: 1, queues, bytes };
        self.returning.push(peer.user);
        let (read, unread) = if leave.is_read { (Some(channel), None) } else { (None, Some(channel)) };
        unread.iter().for_each(Channel::end);
        let holder = (was_told && leave.may_use).then_some(process);
        let departing = Departing { memory, taken, leaving: was_told.then_some(leaving), unread, bells, holder };
        self.networks[network].detach(session, Answer::new(News::Departed(departing), &self.reports));
        read.into_iter().for_each(|channel| self.close(channel));
    }

    /// Of those whose time was over when it was last looked whether anybody had said something: what others said before may lie unheard,
    /// however long it took to act on what was heard with it.
    fn give_up_on_the_slow(&mut self, looked: Time) {
        let late = self.connections.iter().filter(|(_, one)| one.deadline <= looked);
        let late: Vec<(u64, String)> = late.map(|(&number, one)| (number, self.lateness(number, one))).collect();
        for (number, text) in late {
            self.refuse(number, refused(Reason::Timeout, text));
        }
    }

    /// Nobody was heard for a while: all have the time of a step from now on.
    fn give_time_again(&mut self) {
        let again = clock::now() + self.step_timeout();
        let waiting = self.connections.values_mut().filter(|one| one.deadline < again);
        waiting.for_each(|one| one.deadline = again);
    }

    /// What somebody is told for whom it is too late.
    fn lateness(&self, number: u64, late: &Connection) -> String {
        let milliseconds = self.config.step_timeout_ms;
        if late.waits_for_threads() {
            format!("a thread of the network has done nothing for {milliseconds} ms: try again later")
        } else if self.is_postponed(number) {
            let user = late.peer.user;
            format!("the region that user {user} had before is not given back after {milliseconds} ms: try again later")
        } else {
            format!("the next word did not come within {milliseconds} ms")
        }
    }

    fn hear_news(&mut self) {
        self.bell.silence();
        while let Ok(news) = self.news.try_recv() {
            self.act_on(news);
        }
    }

    fn act_on(&mut self, news: News) {
        match news {
            News::Made(made) => self.finish_session(*made),
            News::Entered { connection } => self.pass_queues(connection),
            News::Heard { connection } => self.answer_is_true(connection),
            News::PortOpened(opened) => self.port_is_open(*opened),
            News::PortAnew(anew) => self.port_is_there_anew(*anew),
            News::PortClosed { connection, failed } => self.port_is_closed(connection, failed),
            News::Agreed { connection, word } => self.agree(connection, &word),
            News::Departed(departing) => self.depart(departing),
            News::Copied => self.finish_closing(),
            News::Spare(memory) => self.spare_is_made(memory),
            News::Returned(back) => self.region_is_back(back),
            News::Offender { offender } => {
                let of = |one: &Connection| matches!(&one.step, Step::Attached(own) if own.session == offender.session);
                let number = self.connections.iter().find(|(_, one)| of(one)).map(|(&number, _)| number);
                let told: Vec<String> = offender
                    .faults
                    .named()
                    .iter()
                    .filter(|(_, count)| *count > 0)
                    .map(|(name, count)| format!("{name} {count}"))
                    .collect();
                let text = format!("it broke the rules of its queues too often: {}", told.join(", "));
                if let Some(number) = number {
                    self.refuse(number, refused(Reason::Faults, text));
                }
            }
            News::NotForwarding { network, text } => {
                let network = self.networks[network].config.name.clone();
                self.journal.say(&Event::NotForwarding { network, text });
            }
            // It says so as it ends, and nobody hears it then who goes on.
            News::PortUnfinished { .. } => {}
            News::PortFailed { network, text } => {
                let network = self.networks[network].config.name.clone();
                self.journal.say(&Event::PortFailed { network, text });
            }
        }
    }
}

fn kind_of(message: &Message) -> &'static str {
    match message {
        Message::Hello(_) => "a greeting",
        Message::Attach(_) => "a wish to attach",
        Message::Detach => "a farewell",
        Message::Longest(_) => "a limit",
        Message::Address { .. } => "an address",
        Message::Promiscuous { .. } => "a wish for others' frames",
        Message::Query(_) => "a question",
        _ => "what a daemon says",
    }
}
