//! What can go wrong with a port whose other end is a process at a Unix socket.

use std::fmt;
use std::io;

/// What is wrong with a port at a Unix socket. Its text also says what to do.
#[derive(Debug)]
pub struct SocketError {
    /// The port's kind, as its text begins.
    pub kind: &'static str,
    /// The socket.
    pub socket: String,
    /// What is wrong.
    pub problem: SocketProblem,
}

/// What is wrong with a socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum SocketProblem {
    /// Another process listens at the socket.
    Busy,
    /// The socket's folder is not there.
    Absent,
    /// The socket's folder belongs to somebody else.
    NotPermitted,
    /// The system refused something else.
    System(io::Error),
}

impl SocketError {
    pub(crate) fn of(kind: &'static str, socket: &str, error: io::Error) -> SocketError {
        let problem = match error.raw_os_error() {
            Some(libc::EADDRINUSE) => SocketProblem::Busy,
            Some(libc::ENOENT | libc::ENOTDIR) => SocketProblem::Absent,
            Some(libc::EPERM | libc::EACCES) => SocketProblem::NotPermitted,
            _ => SocketProblem::System(error),
        };
        SocketError { kind, socket: socket.to_owned(), problem }
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SocketError { kind, socket, .. } = self;
        match &self.problem {
            SocketProblem::Busy => {
                write!(
                    f,
                    "another process or port listens at the {kind} socket {socket}: stop that, or choose another path"
                )
            }
            SocketProblem::Absent => {
                write!(f, "the {kind} socket {socket} cannot be made: make its folder, or choose another path")
            }
            SocketProblem::NotPermitted => write!(
                f,
                "the {kind} socket {socket} cannot be made: this user may not write to its folder; choose another path"
            ),
            SocketProblem::System(error) => write!(f, "the {kind} socket {socket} cannot be used: {error}"),
        }
    }
}

impl std::error::Error for SocketError {}
