//! What can go wrong with a packet socket.

use std::fmt;
use std::io;

/// What is wrong with a packet socket. Its text also says what to do.
#[derive(Debug)]
pub struct PacketError {
    /// The interface's name.
    pub interface: String,
    /// What is wrong.
    pub problem: PacketProblem,
}

/// What is wrong with a packet socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum PacketProblem {
    /// The name is empty, too long, or has a character that the kernel refuses.
    Name,
    /// There is no such interface.
    Absent,
    /// The process may not open packet sockets.
    NotPermitted,
    /// The rings cannot be had.
    Memory(io::Error),
    /// The kernel refused something else.
    System(io::Error),
    /// The interface has been removed.
    Gone(io::Error),
}

impl PacketProblem {
    pub(super) fn of(error: io::Error) -> PacketProblem {
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => PacketProblem::Absent,
            Some(libc::EPERM | libc::EACCES) => PacketProblem::NotPermitted,
            Some(libc::ENOMEM) => PacketProblem::Memory(error),
            _ => PacketProblem::System(error),
        }
    }
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.interface;
        match &self.problem {
            PacketProblem::Name => {
                write!(f, "{name:?} is no name for an interface: give 1 to 15 letters, digits, '-', '_' or '.'")
            }
            PacketProblem::Absent => {
                write!(f, "there is no interface {name} in this network namespace: `ip link` lists those there are")
            }
            PacketProblem::NotPermitted => write!(
                f,
                "a packet socket on {name} needs CAP_NET_RAW: run with sudo, or allow the program with: sudo setcap \
                 cap_net_raw+ep PROGRAM"
            ),
            PacketProblem::Memory(error) => {
                write!(f, "there is no memory for the rings of a packet socket on {name} ({error}): give fewer frames=")
            }
            PacketProblem::System(error) => write!(f, "a packet socket on {name} cannot be set up: {error}"),
            PacketProblem::Gone(error) => {
                write!(f, "the interface {name} can no longer be used ({error}); was it removed?")
            }
        }
    }
}

impl std::error::Error for PacketError {}
