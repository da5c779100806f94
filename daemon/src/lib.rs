//! The software NIC as a service: what `conic nic` runs.
//!
//! | file | what is there |
//! |---|---|
//! | `server` | the control thread: the socket, sessions, quotas; who attaches and who is gone |
//! | `connection` | one client's connection, from its first word to its queues |
//! | `worker` | a network's thread: the switch, stepped |
//! | `capture` | a mirror that writes a capture file |
//! | `event` | what happened, for logs |
//! | `bell` | descriptors that wake threads |
//!
//! The control thread makes each client's region, gives a view of it to the network's thread, and passes it to the client. The
//! network's thread alone touches its contents from then on. A client's death is found by the control thread (its socket is
//! closed, or its process has ended), which takes the client from the network's thread and unmaps the region: nothing in it is
//! looked at again.

mod bell;
mod capture;
mod connection;
mod event;
mod server;
mod worker;

pub use bell::Stop;
pub use event::{Event, Log};
pub use server::{Daemon, DaemonError};
