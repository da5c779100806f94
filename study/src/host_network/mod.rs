//! The experiments of "Understanding the Host Network" on a modelled host: cores and devices that share its memory.
//!
//! | module | what |
//! |---|---|
//! | [`quadrants`] | reads or stores of cores beside writes or reads of devices |
//! | [`runs`] | what meets on a host, and each of it alone: streams, applications, storage devices, a NIC |
//! | [`formula`] | the paper's analytic formula of a domain's latency, from counters |
//! | [`counters`] | counters of a host, as files have them |
//! | [`perf`] | the same from what perf prints |
//! | [`diagnosis`] | which domain is the bottleneck, and why |
//! | `figures.rs` | what the paper's figures come out as |
//!
//! Nothing here knows what was published.

pub mod counters;
pub mod diagnosis;
mod figures;
pub mod formula;
pub mod perf;
pub mod quadrants;
pub mod runs;

pub use figures::{EXPERIMENTS, Experiment, HEADLINES, Hosts, findings};
