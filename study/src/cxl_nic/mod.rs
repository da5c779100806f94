//! The experiments of "Re-architecting End-host Networking with CXL" on a modelled host with an Agilex-7 or a BlueField-3.
//!
//! | module | what |
//! |---|---|
//! | [`operations`] | single operations over CXL and over PCIe (Figures 4 and 7) |
//! | [`loopback`] | packets from the device through a host core and back, by `interface::cxl`'s halves |
//! | [`throughput`] | each direction alone, as fast as it goes |
//! | [`pressure`] | packets that wait in the host, beside cores that walk through its last-level cache |
//! | [`serving`] | a key-value store on the device |
//! | [`advise`] | which request types, placements and batches are best |
//! | [`guesses`] | which of the paper's orderings a guess decides |
//! | `figures.rs` | what the paper's figures come out as |
//!
//! Nothing here knows what was published.

pub mod advise;
mod figures;
pub mod guesses;
pub mod loopback;
pub mod operations;
pub mod pressure;
pub mod serving;
pub mod throughput;

pub use figures::{Asked, EXPERIMENTS, Experiment, Machines, PRESSURE, ccnic, findings, layout, optimal};

use crate::coherent_pio::percentile;
