//! What ports have in common whose other end is a process at a Unix socket, which is not trusted: memif, vhost-user.
//!
//! | file | what is there |
//! |---|---|
//! | `socket.rs` | who listens; bytes with descriptors |
//! | `door.rs` | whether somebody new may come in |
//! | `passed.rs` | memory and eventfds that the other side has passed |
//! | `role.rs` | who makes the socket |
//! | `bell.rs` | what a port sleeps on, and how it wakes the other side |

mod bell;
mod door;
mod error;
mod passed;
mod role;
pub(crate) mod socket;

pub(crate) use bell::{forget, ring_bell, ring_peer, watch};
#[cfg(test)]
pub(crate) use door::MOST_UNCLOSED;
pub(crate) use door::{Door, RETRY};
pub use error::{SocketError, SocketProblem};
pub(crate) use passed::{map_region, take_interrupt};
pub use role::Role;
