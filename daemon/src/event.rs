//! What happened, for logs.

use serde::Serialize;

/// What happened. As JSON, one object with `event` and its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The daemon listens.
    Listening {
        /// Its socket.
        socket: String,
        /// Its networks.
        networks: Vec<String>,
    },
    /// A client is attached.
    Attached {
        /// Its session.
        session: u64,
        /// What it calls itself.
        name: String,
        /// Its process.
        process: i32,
        /// Its user.
        user: u32,
        /// Its network.
        network: String,
        /// Its queue pairs.
        queues: u32,
        /// Bytes of its region.
        bytes: u64,
        /// Its address.
        mac: String,
    },
    /// A client was refused.
    Refused {
        /// Its process.
        process: i32,
        /// Its user.
        user: u32,
        /// Why, in a word.
        reason: &'static str,
        /// Why.
        text: String,
    },
    /// Nobody can be let in for want of descriptors or memory; who waits is let in when there are some again.
    Crowded {
        /// Clients that are attached.
        clients: usize,
        /// The system's reason.
        text: String,
    },
    /// A client has another address.
    Readdressed {
        /// Its session.
        session: u64,
        /// What it calls itself.
        name: String,
        /// Its address.
        mac: String,
        /// The one that it had before.
        before: String,
    },
    /// A client gets frames for stations that nobody is known to have from here on, or no longer.
    Promiscuous {
        /// Its session.
        session: u64,
        /// What it calls itself.
        name: String,
        /// Whether it does.
        on: bool,
    },
    /// A client is detached, and its memory returned, or kept for its program, which may use it still.
    Detached {
        /// Its session.
        session: u64,
        /// What it called itself.
        name: String,
        /// Why, in a word: `closed`, `died`, `asked`, or a reason of refusals.
        why: &'static str,
        /// What it did that it should not have.
        faults: u64,
        /// How long that took, in microseconds from the moment it was noticed.
        microseconds: u64,
        /// Its memory is kept.
        kept: bool,
    },
    /// This daemon took over from another.
    Adopted {
        /// How many clients came with it.
        clients: usize,
        /// From the moment it said that it is ready until all were served, in microseconds: the blackout at most.
        microseconds: u64,
    },
    /// It took over, and who may connect to its socket is who could before: the socket's mode cannot be set.
    ModeNotSet {
        /// Why.
        text: String,
    },
    /// This daemon goes on: the one that was to take over has not said that everything is its own.
    ServesOn {
        /// From the moment at which its threads stood still until they served again, in microseconds: the blackout at most.
        microseconds: u64,
    },
    /// Copies of what somebody sends and gets go to a file from here on, as the configuration says.
    Mirrored {
        /// Its network.
        network: String,
        /// Who: `client:NUMBER` or `port:NUMBER`.
        end: String,
        /// The file.
        file: String,
    },
    /// They do not; it is served all the same.
    NotMirrored {
        /// Its network.
        network: String,
        /// Who.
        end: String,
        /// Why.
        text: String,
    },
    /// An operator has attached a port.
    PortAttached {
        /// Its network.
        network: String,
        /// Its number there.
        port: usize,
        /// What it was asked to be.
        spec: String,
    },
    /// An operator has detached a port.
    PortDetached {
        /// Its network.
        network: String,
        /// The number that it had there.
        port: usize,
        /// What it was asked to be.
        spec: String,
    },
    /// A port that was asked to forward in the kernel does so in part, or not at all; it is served all the same.
    NotForwarding {
        /// Its network.
        network: String,
        /// Which, and why.
        text: String,
    },
    /// A port failed.
    PortFailed {
        /// Its network.
        network: String,
        /// How.
        text: String,
    },
    /// A port could not write out all that was sent to it, at the daemon's end: what it records to lacks the last of it.
    PortUnfinished {
        /// Its network.
        network: String,
        /// Its number there.
        port: usize,
        /// Why.
        text: String,
    },
    /// A new version of the program is to take over.
    Upgrading {
        /// The file that was started.
        program: String,
        /// The process that runs it.
        process: u32,
    },
    /// It does not; the one that runs serves on.
    NotUpgraded {
        /// Why.
        text: String,
    },
    /// A user has caused more lines of one kind than are written: these were left out before what comes next of it.
    TooMany {
        /// The kind, as `event` says it.
        kind: &'static str,
        /// Whose they were; none where they were several users' who are many, or nobody's who is known.
        user: Option<u32>,
        /// How many lines.
        lines: u64,
    },
    /// Whoever writes the log had no room for what happened here.
    LeftOut {
        /// How many lines.
        lines: u64,
    },
    /// The daemon ends.
    Ended,
}

/// Kinds of which whoever may connect causes as many as it likes, as JSON names them.
pub(crate) const CAUSED: [&str; 8] =
    ["attached", "crowded", "detached", "mirrored", "not_mirrored", "promiscuous", "readdressed", "refused"];

impl Event {
    /// Which of [`CAUSED`] it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Event::Attached { .. } => "attached",
            Event::Crowded { .. } => "crowded",
            Event::Detached { .. } => "detached",
            Event::Mirrored { .. } => "mirrored",
            Event::NotMirrored { .. } => "not_mirrored",
            Event::Promiscuous { .. } => "promiscuous",
            Event::Readdressed { .. } => "readdressed",
            Event::Refused { .. } => "refused",
            _ => "other",
        }
    }
}

/// Where events go.
pub type Log = Box<dyn FnMut(&Event) + Send>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_that_json_names() {
        let text = String::new;
        let events = [
            Event::Attached {
                session: 1,
                name: text(),
                process: 1,
                user: 1,
                network: text(),
                queues: 1,
                bytes: 1,
                mac: text(),
            },
            Event::Crowded { clients: 1, text: text() },
            Event::Detached { session: 1, name: text(), why: "closed", faults: 0, microseconds: 1, kept: false },
            Event::Mirrored { network: text(), end: text(), file: text() },
            Event::NotMirrored { network: text(), end: text(), text: text() },
            Event::Promiscuous { session: 1, name: text(), on: true },
            Event::Readdressed { session: 1, name: text(), mac: text(), before: text() },
            Event::Refused { process: 1, user: 1, reason: "malformed", text: text() },
        ];
        for (event, kind) in events.iter().zip(CAUSED) {
            assert_eq!(event.kind(), kind);
            assert_eq!(serde_json::to_value(event).expect("it is an object")["event"], kind);
        }
    }
}
