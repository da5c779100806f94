//! One client's connection, from its first word to its queues.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use conic_control::{
    Attached, Extensions, Hello, Message, Name, OLDEST, Reason, Refused, VERSION, Welcome, common_version,
};
use conic_fabric::Time;
use conic_interface::ccnic::{Geometry, Headroom};
use conic_interface::metadata::Offloads;
use conic_native::Memory;
use conic_native::channel::{Channel, Peer};
use conic_nicd::config::{Config, Limits};
use conic_nicd::switch::Rules;

/// A connection and where it stands.
pub(crate) struct Connection {
    pub channel: Channel,
    pub peer: Peer,
    /// The process at the other end, for its death.
    pub process: OwnedFd,
    pub step: Step,
    /// When the present step must be done.
    pub deadline: Time,
}

/// What was said so far.
pub(crate) enum Step {
    /// Nothing.
    Connected,
    /// Who it is, and which version both speak.
    Negotiated {
        /// What it calls itself.
        name: Name,
        /// What it makes of metadata.
        offloads: Offloads,
    },
    /// Its region is being made.
    Making(Box<Making>),
    /// Its network's threads enter it.
    Entering(Box<Entering>),
    /// An operator, who asks questions.
    Asking(Unsaid),
    /// It has its queues.
    Attached(Box<Session>),
}

/// What a client is to have whose region is being made.
pub(crate) struct Making {
    pub session: u64,
    pub name: Name,
    pub network: usize,
    pub mac: [u8; 6],
    pub geometry: Geometry,
    pub headroom: Headroom,
    pub rules: Rules,
}

/// What a client gets whom every thread of its network knows.
pub(crate) struct Entering {
    pub session: Session,
    /// What it is told.
    pub attached: Attached,
    /// Its end of each queue's bell.
    pub theirs: Vec<OwnedFd>,
}

/// What there is still to say of an answer to an operator.
#[derive(Default)]
pub(crate) struct Unsaid {
    pub text: String,
    /// From here on; what comes before it is in the operator's socket, which is full.
    pub at: usize,
    /// It is not true yet: a network's threads have not all heard of what was changed.
    pub is_early: bool,
    /// What is done to a port for the operator, who has no answer before that is over.
    pub port: Option<PortMove>,
}

/// What takes as long as a device, or a pipe's other end, likes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortMove {
    Opening,
    Closing,
}

/// What a client has.
pub(crate) struct Session {
    pub session: u64,
    pub name: Name,
    pub network: usize,
    pub queues: u32,
    pub bytes: u64,
    pub mac: [u8; 6],
    pub memory: Arc<Memory>,
    /// What its region was laid out for.
    pub geometry: Geometry,
    /// What it keeps of each buffer for itself.
    pub headroom: Headroom,
    /// It was told that heavy fences reach it, and may do without its own.
    pub fences: bool,
    pub kick: Arc<OwnedFd>,
    /// This side's end of each queue's bell.
    pub bells: Arc<Vec<OwnedFd>>,
    /// It has asked for something of which its network's threads have not all heard.
    pub has_asked: bool,
}

impl Step {
    /// This side's ends of the bells of whoever is here; none that a thread has still.
    pub(crate) fn into_bells(self) -> Vec<OwnedFd> {
        let bells = match self {
            Step::Attached(session) => session.bells,
            Step::Entering(entering) => entering.session.bells,
            Step::Connected | Step::Negotiated { .. } | Step::Making(_) | Step::Asking(_) => Arc::default(),
        };
        Arc::try_unwrap(bells).unwrap_or_default()
    }
}

impl Connection {
    /// Whether what it says is left in its socket until it has its answer: all that is told of it is its end.
    pub(crate) fn is_not_heard(&self) -> bool {
        self.waits_for_threads() && !matches!(self.step, Step::Entering(_))
    }

    /// What is done to a port for it, if it is an operator.
    pub(crate) fn port_move(&self) -> Option<PortMove> {
        if let Step::Asking(unsaid) = &self.step { unsaid.port } else { None }
    }

    /// Whether it waits for its network's threads, or for a port, and not for the other side.
    pub(crate) fn waits_for_threads(&self) -> bool {
        match &self.step {
            Step::Entering(_) => true,
            Step::Asking(unsaid) => unsaid.is_early,
            Step::Attached(session) => session.has_asked,
            _ => false,
        }
    }
}

/// A refusal.
pub(crate) fn refused(reason: Reason, text: impl Into<String>) -> Refused {
    Refused { reason, text: text.into() }
}

/// Answers a client's first word.
pub(crate) fn welcome(hello: &Hello, peer: &Peer, config: &Config, own_user: u32) -> Result<Welcome, Refused> {
    let Limits { queues_per_client, descriptors, mib_per_client, .. } = config.limits;
    if peer.user != 0 && peer.user != own_user && !config.allow_users.allow(peer.user) {
        let user = peer.user;
        let text =
            format!("user {user} may not attach: add it to allow_users, or start the NIC with --allow-user {user}");
        return Err(refused(Reason::NotAllowed, text));
    }
    let version = common_version((OLDEST, VERSION), hello.versions).ok_or_else(|| {
        let (oldest, newest) = hello.versions;
        let text = format!(
            "this NIC speaks versions {OLDEST} to {VERSION} and not {oldest} to {newest}: use a client of its time"
        );
        refused(Reason::Version, text)
    })?;
    Ok(Welcome {
        version,
        extensions: Extensions::KNOWN.both(hello.extensions),
        most_queues: queues_per_client,
        most_descriptors: descriptors,
        most_bytes: mib_per_client << 20,
    })
}

/// Says something to a client; it may be gone.
pub(crate) fn say(channel: &Channel, message: &Message) -> bool {
    channel.send(&message.encode(), &[]).is_ok()
}

/// An address as people write it.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
