//! What the control thread and a network's threads say to each other.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use conic_control::Message;
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Map, NicFaults};
use conic_native::Memory;
use conic_nicd::switch::{
    Away, Circuit, Looks, MemberCounters, Mirror, MirrorCounters, Offender, Parts, Party, Pin, PortReport, RateLimit,
    Rules, Suspended, SwitchPort, TrunkCounters,
};
use conic_port::{Legacy, Port};

use crate::server::adopt::Anew;
use crate::server::ports::Opened;
use crate::server::region::{Departing, Made, Reports, Returned};

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
        /// Where its flags for waking lie.
        notices: Notices,
        /// Its region.
        memory: Arc<Memory>,
        /// What it kicks.
        kick: Arc<OwnedFd>,
        /// What it is rung by, one for each queue.
        bells: Arc<Vec<OwnedFd>>,
    },
    /// A client comes from the daemon before this one, or from what this one had given of it.
    Resume {
        /// Where its queues stood.
        suspended: Suspended,
        /// As for `Attach`.
        map: Arc<Map>,
        /// As for `Attach`.
        notices: Notices,
        /// As for `Attach`.
        memory: Arc<Memory>,
        /// As for `Attach`.
        kick: Arc<OwnedFd>,
        /// As for `Attach`.
        bells: Arc<Vec<OwnedFd>>,
    },
    /// Nothing is taken any more from clients and ports; what other threads have sent still is, before `Suspend`, which follows.
    Quiet {
        /// Where the answer goes, when it is so.
        answer: Sender<()>,
    },
    /// No client is served any more; the answer says where each stood. Behind it the thread waits for its end, or for `TakeUp`.
    Suspend {
        /// The ports that somebody else goes on with, by their numbers in the network.
        ports: Vec<usize>,
        /// Where the answer goes.
        answer: Sender<Left>,
    },
    /// Nobody else has gone on behind `Suspend`: clients and ports that were given come back, `Resume` and `Inherit`, then `Begin`.
    TakeUp {
        /// Ports that gave nothing, by their numbers, which go on as they are.
        ports: Vec<usize>,
    },
    /// The queues of its part of a port come from the daemon before this one, or from what this one had given of them.
    Inherit {
        /// The port's number.
        port: usize,
        /// The queues.
        queues: Vec<Box<dyn Port>>,
    },
    /// A port comes, or the thread's part of one.
    AttachPort {
        /// Which, and who has the parts of it.
        parts: Parts,
        /// Its queues here, and what it is a member of.
        port: SwitchPort,
    },
    /// A port goes.
    DetachPort {
        /// Its number.
        port: usize,
        /// Where its queues go, which whoever gets them closes; with the last of those that threads have, all have let go of it.
        queues: Sender<Vec<Box<dyn Port>>>,
    },
    /// Another thread of the network serves somebody from here on.
    Away(Away),
    /// It serves it no more.
    Forget(Party),
    /// A client goes; the answer says that nothing of it is touched any more.
    Detach {
        /// Its session.
        session: u64,
        /// What is told then.
        answer: Answer,
    },
    /// What was ordered before this is done.
    Confirm(Arc<Answer>),
    /// A client gets no packet that stands for several and is longer.
    Longest {
        /// Its session.
        session: u64,
        /// Bytes.
        longest: u32,
    },
    /// A client has another address.
    Address {
        /// Its session.
        session: u64,
        /// The address.
        mac: [u8; 6],
    },
    /// A client gets frames for stations that nobody is known to have, or not.
    Promiscuous {
        /// Its session.
        session: u64,
        /// Whether it does.
        promiscuous: bool,
    },
    /// A client may send so much from here on.
    Limit {
        /// Its session.
        session: u64,
        /// How much.
        limit: Option<RateLimit>,
    },
    /// Somebody is an end of a circuit from here on, or of none.
    Connect {
        /// Who.
        party: Party,
        /// Which.
        circuit: Option<Circuit>,
    },
    /// A client gets a flow in addition, or none any more but by its address.
    Pin {
        /// Its session.
        session: u64,
        /// Which flow.
        pin: Option<Pin>,
    },
    /// Copies of what somebody sends and gets go somewhere from here on, or nowhere any more.
    Mirror {
        /// Who.
        party: Party,
        /// Where they go.
        mirror: Option<Box<dyn Mirror>>,
    },
    /// What is there?
    Report {
        /// Where the answer goes.
        answer: Sender<Report>,
    },
    /// A thread that was held back begins, and one that was suspended goes on.
    Begin,
    /// The end.
    Stop,
}

/// What a network's thread leaves to whoever goes on.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Where each client stood.
    pub clients: Vec<Suspended>,
    /// Each port that was asked for, and what its queues, or those of the thread's part of it, give; nothing if one of them cannot.
    pub ports: Vec<(usize, Vec<Legacy>)>,
}

/// What the control thread must know.
pub(crate) enum News {
    /// A client's region is made, or cannot be.
    Made(Box<Made>),
    /// The memory of the region that nobody has asked for is there; none if it cannot be.
    Spare(Option<Memory>),
    /// Each thread of its network has entered the client of a connection.
    Entered {
        /// The connection's number.
        connection: u64,
    },
    /// Each thread of a network has heard of what the operator of a connection has changed.
    Heard {
        /// The connection's number.
        connection: u64,
    },
    /// A port that an operator asked for is open, or cannot be.
    PortOpened(Box<Opened>),
    /// A port of the daemon before this one is opened anew, or cannot be.
    PortAnew(Box<Anew>),
    /// A port that the operator of a connection has detached is closed.
    PortClosed {
        /// The connection's number.
        connection: u64,
        /// Why not all that was sent to it is where it should be.
        failed: Option<String>,
    },
    /// What the client of a connection has asked for is so, in every thread that must know.
    Agreed {
        /// The connection's number.
        connection: u64,
        /// What the client is told.
        word: Message,
    },
    /// A port, or a thread's part of it, has not written out all that was sent to it, at the end of its thread.
    PortUnfinished {
        /// Its network.
        network: usize,
        /// Its number there.
        port: usize,
        /// What was sent to it was to be kept.
        is_recorded: bool,
        /// Why.
        text: String,
    },
    /// No thread touches a client's region any more.
    Departed(Departing),
    /// A thread has copies of connections that are to be closed.
    Copied,
    /// Nothing is left of a region.
    Returned(Returned),
    /// A client broke the rules too often.
    Offender {
        /// Who, and what it did.
        offender: Offender,
    },
    /// A port does not forward as it was asked to.
    NotForwarding {
        /// The network's number.
        network: usize,
        /// Which, and why.
        text: String,
    },
    /// A port failed.
    PortFailed {
        /// The network's number.
        network: usize,
        /// How.
        text: String,
    },
}

/// News that the control thread gets when this is dropped: by the thread that has done what was asked for, by the last of several, or
/// with the orders of a thread that has ended, by a bug, and does nothing any more. Nobody waits for it who has something else to do.
pub(crate) struct Answer {
    news: Option<News>,
    reports: Reports,
}

impl Answer {
    pub(crate) fn new(news: News, reports: &Reports) -> Answer {
        Answer { news: Some(news), reports: reports.clone() }
    }

    /// How often the client that has left broke the rules.
    pub(crate) fn add_faults(&mut self, faults: u64) {
        if let Some(News::Departed(Departing { leaving: Some(leaving), .. })) = &mut self.news {
            leaving.faults = faults;
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.news.take().into_iter().for_each(|news| self.reports.tell(news));
    }
}

/// What a network, or one of its threads, has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Each client: session, counters, faults.
    pub clients: Vec<(u64, MemberCounters, NicFaults)>,
    /// Each port, in order; of a thread those of which it has a part.
    pub ports: Vec<PortReport>,
    /// What each thread counts of its way to each other: its number, the other's, the counters.
    pub trunks: Vec<(usize, usize, TrunkCounters)>,
    /// How long queues have waited between two looks at them, by thread.
    pub looks: Vec<(usize, Looks)>,
    /// Who is in a circuit, and with whom.
    pub circuits: Vec<(Party, Circuit, Option<Party>)>,
    /// Flows that clients get whatever they are addressed to.
    pub pins: Vec<(u64, Pin)>,
    /// Clients whose sending is limited.
    pub limits: Vec<(u64, RateLimit)>,
    /// Clients that get frames for stations that nobody is known to have.
    pub promiscuous: Vec<u64>,
    /// Who is looked into, and what was seen.
    pub mirrors: Vec<(Party, MirrorCounters)>,
}

impl Order {
    /// The client that comes, and what it may do.
    pub(crate) fn newcomer(&self) -> Option<(u64, &Rules)> {
        match self {
            Order::Attach { session, rules, .. } => Some((*session, rules)),
            Order::Resume { suspended, .. } => Some((suspended.session, &suspended.rules)),
            _ => None,
        }
    }
}
