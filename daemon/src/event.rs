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
    /// A client is detached, and its memory returned.
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
    },
    /// This daemon took over from another.
    Adopted {
        /// How many clients came with it.
        clients: usize,
        /// From the moment it said that it is ready until all were served, in microseconds: the blackout at most.
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
    /// A port failed.
    PortFailed {
        /// Its network.
        network: String,
        /// How.
        text: String,
    },
    /// Whoever writes the log had no room for what happened here.
    LeftOut {
        /// How many lines.
        lines: u64,
    },
    /// The daemon ends.
    Ended,
}

/// Where events go.
pub type Log = Box<dyn FnMut(&Event) + Send>;
