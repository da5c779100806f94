//! A daemon in the test's process, with clients and ports: one program, because what its tests share is then compiled once.
//!
//! | files | what they check |
//! |---|---|
//! | `adopt`, `adopt_ports` | take-overs, as clients and as ports' peers see them |
//! | `threads`, `spread` | several threads of a network, and ports that several of them serve |
//! | `forwarded` | ports between which the kernel forwards |
//! | `address` | clients that ask for another address |
//! | `promiscuous` | clients that ask for frames for unknown stations |
//! | `left`, `log` | what clients that have left keep, and how much of a log anyone may cause |
//! | `pauses` | frames that come after a pause |
//! | `mirrors` | mirrors that the configuration asks for |
//! | `pipes` | ports that replay and record pipes, at a daemon's end and behind a take-over |
//!
//! Tests that look at what the whole process has (descriptors, memory, threads), or stop it at a named step, are programs of their own.

mod address;
mod adopt;
mod adopt_ports;
mod forwarded;
mod left;
mod log;
mod mirrors;
mod pauses;
mod pipes;
mod promiscuous;
mod spread;
mod threads;

#[path = "../support/heir.rs"]
mod heir;
#[path = "../support/served.rs"]
mod served;
#[path = "../support/spoken.rs"]
mod spoken;
#[path = "../support/station.rs"]
mod station;
#[path = "../support/waiting.rs"]
mod waiting;
