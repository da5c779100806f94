//! The software NIC as a service: what `conic nic` runs.
//!
//! | file | what is there |
//! |---|---|
//! | `server` | the control thread: the socket, sessions, quotas; who attaches and who is gone |
//! | `connection` | one client's connection, from its first word to its queues |
//! | `worker` | one of a network's threads: the switch, stepped |
//! | `order` | what the control thread and those threads say to each other |
//! | `capture` | a mirror that writes a capture file |
//! | `event` | what happened, for logs |
//! | `journal` | the log, and how much of it whoever may connect can cause |
//! | `bell` | descriptors that wake threads |
//! | `wakeup` | how long the machine's cores may take to wake up |
//!
//! The control thread makes each client's region, gives a view of it to one of the network's threads, and passes it to the client. That
//! thread alone touches its contents from then on. A client's death is found by the control thread (its socket is
//! closed, or its process has ended), which takes the client from its thread and unmaps the region: nothing in it is
//! looked at again.

mod bell;
mod capture;
mod connection;
mod event;
mod journal;
mod order;
mod server;
mod wakeup;
mod worker;

pub use bell::Stop;
pub use event::{Event, Log};
pub use server::{Daemon, DaemonError, Ended};
