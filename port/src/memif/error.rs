//! What can go wrong with a memif port.

use std::fmt;
use std::io;

/// What is wrong with a memif port. Its text also says what to do.
#[derive(Debug)]
pub struct MemifError {
    /// The socket.
    pub socket: String,
    /// What is wrong.
    pub problem: MemifProblem,
}

/// What is wrong with a memif port.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemifProblem {
    /// Another process listens at the socket.
    Busy,
    /// The socket's folder is not there.
    Absent,
    /// The socket's folder belongs to somebody else.
    NotPermitted,
    /// The system refused something else.
    System(io::Error),
}

impl MemifProblem {
    pub(super) fn of(error: io::Error) -> MemifProblem {
        match error.raw_os_error() {
            Some(libc::EADDRINUSE) => MemifProblem::Busy,
            Some(libc::ENOENT | libc::ENOTDIR) => MemifProblem::Absent,
            Some(libc::EPERM | libc::EACCES) => MemifProblem::NotPermitted,
            _ => MemifProblem::System(error),
        }
    }
}

impl fmt::Display for MemifError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = &self.socket;
        match &self.problem {
            MemifProblem::Busy => {
                write!(f, "another process listens at the memif socket {socket}: stop that, or choose another path")
            }
            MemifProblem::Absent => {
                write!(f, "the memif socket {socket} cannot be made: make its folder, or choose another path")
            }
            MemifProblem::NotPermitted => write!(
                f,
                "the memif socket {socket} cannot be made: this user may not write to its folder; choose another path"
            ),
            MemifProblem::System(error) => write!(f, "the memif socket {socket} cannot be used: {error}"),
        }
    }
}

impl std::error::Error for MemifError {}
