//! The network inside a host: cores and devices send lines to memory through domains of credits.
//!
//! | file | what |
//! |---|---|
//! | [`parameters`] | what such a machine is made of |
//! | [`traffic`] | what its cores and devices do |
//! | `machine.rs` | credits on their way: taken, waited for, given back |
//! | `place.rs` | from a line's address to its channel, bank and row |
//! | [`dram`] | a channel's banks as constraints between commands |
//! | `controller.rs` | a channel's queues and its scheduler |
//! | `source.rs` | where each core's and device's next line is |
//! | `application.rs` | a core that runs an application: loads that wait for each other |
//! | `cache.rs` | the ways of the last-level cache that devices write to |
//! | `nic.rs` | a NIC's buffer, and how it has its sender pause |
//! | [`report`] | what a run shows: domains, queues, counters |
//!
//! A domain is a part of the way whose sender has so many credits: a line takes one, and gives it back when the domain's receiver has it.
//!
//! | domain | its credits | a credit is given back when |
//! |---|---|---|
//! | a core's read | line fill buffers | the data is in the core |
//! | a core's write | the same | a slice of the home agent has the line |
//! | a device's read | the I/O controller's read entries | the data is there |
//! | a device's write | its write entries | the memory controller has the line; with direct cache access, a slice |
//!
//! What is full holds back what is before it, and nothing else slows anybody down: no latency here is a formula of a load.

mod application;
mod cache;
mod controller;
pub mod dram;
mod machine;
mod nic;
pub mod parameters;
mod place;
pub mod report;
mod source;
pub mod traffic;

pub use cache::CacheCounters;
pub use controller::Traced;
pub use machine::{Trace, run, run_traced};
pub use nic::NicCounters;
pub use parameters::HostParameters;
pub use report::{Domain, HostReport};
pub use traffic::{Application, CoreTraffic, DeviceTraffic, Pattern, Phase, Traffic};
