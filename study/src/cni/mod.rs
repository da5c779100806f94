//! The experiments of "Coherent Network Interfaces for Fine-Grain Communication" on modelled nodes with snooping buses.
//!
//! | module | what |
//! |---|---|
//! | [`nodes`] | nodes with one of `interface::cni`'s interfaces |
//! | [`messages`] | round trips and streams of messages between two of them (Figures 6 and 7) |
//! | [`local`] | two processors of one node: a line's transfer, and the bandwidth that Figure 7 is relative to |
//! | [`applications`] | five parallel programs on 16 nodes (Figure 8) |
//! | [`shared`] | shared memory over messages, of which one of them makes use |
//! | `figures.rs` | what the paper's figures come out as |
//!
//! Nothing here knows what was published.

pub mod applications;
mod figures;
pub mod local;
pub mod messages;
pub mod nodes;
pub mod shared;

pub use figures::{Case, EXPERIMENTS, Experiment, HEADLINES, Ran, Spread, findings};
