//! Why a client is not attached.

use std::fmt;
use std::io;
use std::path::PathBuf;

use conic_control::{Malformed, Reason, Refused};
use conic_interface::ccnic::GeometryError;
use conic_native::MemoryError;

/// Why attaching failed. The text says what was wrong, where, and what to do.
#[derive(Debug)]
pub enum AttachError {
    /// Nobody listens at the socket, or this process may not connect.
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The connection failed in the middle.
    Broken {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The daemon refused, and said why.
    Refused(Refused),
    /// The daemon said nothing for too long.
    Timeout {
        /// What was being waited for.
        waiting_for: &'static str,
    },
    /// The daemon is older than this program, and cannot do this.
    Older(String),
    /// The daemon does not give this address.
    Address([u8; 6]),
    /// The daemon does not give this client frames for stations that nobody is known to have.
    Promiscuous,
    /// The daemon said something that cannot be.
    Peer(String),
    /// The geometry asked for cannot be.
    Geometry(GeometryError),
    /// The region was refused or could not be mapped.
    Memory(MemoryError),
}

impl AttachError {
    /// Why a daemon that was there and stayed did not let a client in, as it would have said it; none where there was none.
    pub(crate) fn refusal(&self) -> Option<Refused> {
        let reason = match self {
            AttachError::Refused(refused) => return Some(refused.clone()),
            AttachError::Connect { .. } | AttachError::Broken { .. } => return None,
            AttachError::Timeout { .. } => Reason::Timeout,
            AttachError::Older(_) => Reason::Version,
            AttachError::Address(_) => Reason::Mac,
            AttachError::Promiscuous => Reason::NotAllowed,
            AttachError::Peer(_) => Reason::Malformed,
            AttachError::Geometry(_) => Reason::Geometry,
            AttachError::Memory(_) => Reason::Resources,
        };
        Some(Refused { reason, text: self.to_string() })
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Connect { path, error } => {
                let path = path.display();
                match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        write!(f, "no NIC listens at {path}: start one with `conic nic --socket {path}`")
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(
                            f,
                            "the permissions of the socket {path} do not let this user connect: ask to be put into its group, or for \
                             `conic nic --socket-mode 0666 --allow-user` with this user's number"
                        )
                    }
                    _ => write!(f, "connecting to {path}: {error}"),
                }
            }
            AttachError::Broken { doing, error } => write!(f, "{doing}: {error}"),
            AttachError::Refused(refused) => write!(f, "the NIC refused: {refused}"),
            AttachError::Timeout { waiting_for } => write!(f, "the NIC did not answer: waited for {waiting_for}"),
            AttachError::Older(what) => write!(f, "the NIC is too old to {what}: start a newer one"),
            AttachError::Address([a, b, c, d, e, g]) => write!(
                f,
                "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} is not to be had: another client of the network has it, or it is that of \
                 no single station"
            ),
            AttachError::Promiscuous => f.write_str(
                "the NIC's operator does not let this client have frames for stations that nobody is known to have: ask for \
                 `promiscuous = true` in the network's configuration, or in a rule for this user",
            ),
            AttachError::Peer(what) => write!(f, "the NIC said what cannot be: {what}"),
            AttachError::Geometry(error) => write!(f, "the queues asked for cannot be: {error}"),
            AttachError::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<Malformed> for AttachError {
    fn from(error: Malformed) -> AttachError {
        AttachError::Peer(error.to_string())
    }
}
