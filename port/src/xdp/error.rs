//! What can go wrong with an AF_XDP socket.

use std::fmt;
use std::io;

/// What is wrong with an AF_XDP socket. Its text also says what to do.
#[derive(Debug)]
pub struct XdpError {
    /// The interface's name.
    pub interface: String,
    /// The queue.
    pub queue: u32,
    /// What is wrong.
    pub problem: XdpProblem,
}

/// What is wrong with an AF_XDP socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpProblem {
    /// The name is empty, too long, or has a character that the kernel refuses.
    Name,
    /// There is no such interface.
    Absent,
    /// The process may not do this.
    NotPermitted,
    /// The kernel has no AF_XDP.
    Unsupported,
    /// The interface has an XDP program of somebody else.
    ProgramThere,
    /// Another socket has the queue, and did not let go of it.
    QueueBusy,
    /// The interface has no such queue.
    NoQueue,
    /// The driver cannot pass frames without copying.
    NoZeroCopy,
    /// Memory, or the right to lock it.
    Memory(io::Error),
    /// The kernel refused something else.
    System {
        /// What was being done.
        doing: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// The interface has been removed.
    Gone(io::Error),
}

impl XdpProblem {
    pub(super) fn of(doing: &'static str, error: io::Error) -> XdpProblem {
        match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => XdpProblem::Absent,
            Some(libc::EPERM | libc::EACCES) => XdpProblem::NotPermitted,
            Some(libc::EAFNOSUPPORT | libc::ENOSYS) => XdpProblem::Unsupported,
            Some(libc::ENOMEM | libc::ENOBUFS) => XdpProblem::Memory(error),
            _ => XdpProblem::System { doing, error },
        }
    }
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, queue) = (&self.interface, self.queue);
        match &self.problem {
            XdpProblem::Name => {
                write!(f, "{name:?} is no name for an interface: give 1 to 15 letters, digits, '-', '_' or '.'")
            }
            XdpProblem::Absent => {
                write!(f, "there is no interface {name} in this network namespace: `ip link` lists those there are")
            }
            XdpProblem::NotPermitted => write!(
                f,
                "AF_XDP on {name} needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run with sudo, or allow the program \
                 with: sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM"
            ),
            XdpProblem::Unsupported => {
                write!(f, "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use af-packet:{name} instead")
            }
            XdpProblem::ProgramThere => write!(
                f,
                "{name} has an XDP program of somebody else: stop that, or take it off with: sudo ip link set {name} \
                 xdp off"
            ),
            XdpProblem::QueueBusy => {
                write!(f, "queue {queue} of {name} is another socket's: stop that program, or choose another queue=")
            }
            XdpProblem::NoQueue => {
                write!(f, "{name} has no queue {queue}: `ethtool -l {name}` says how many it has")
            }
            XdpProblem::NoZeroCopy => write!(
                f,
                "the driver of {name} cannot pass frames of queue {queue} without copying: leave mode= out, and it \
                 copies where it must"
            ),
            XdpProblem::Memory(error) => write!(
                f,
                "there is no memory for AF_XDP on {name} ({error}): give fewer frames=, or raise the limit of locked \
                 memory (ulimit -l)"
            ),
            XdpProblem::System { doing, error } => {
                write!(f, "AF_XDP on queue {queue} of {name}: {doing} failed: {error}")
            }
            XdpProblem::Gone(error) => {
                write!(f, "the interface {name} can no longer be used ({error}); was it removed?")
            }
        }
    }
}

impl std::error::Error for XdpError {}
