//! The worlds that check an interface: the seam under loom, under crash injection, and as coherence messages.
//!
//! An interface is written once against [`conic_fabric::Core`]; here the same code meets every schedule and every
//! ordering that C11 allows ([`explore`]), a death at every memory operation ([`for_every_death`]), and a device that
//! answers a load when it chooses ([`RendezvousMemory`]). `README.md` says which world shows what, and what it cannot.

mod coverage;
mod crash;
mod death;
mod explore;
mod fuzz;
mod lingering;
mod loom_core;
mod loom_memory;
mod rendezvous;
mod skipped;
mod told;
mod visited;
mod words;

pub use crash::{CrashCore, CrashMemory};
pub use death::{Death, Operation, Outcome, for_every_death, run_until_death};
pub use explore::{Caught, Exploration, catches, explore, spawn};
pub use fuzz::{Inputs, attempt, fuzz};
pub use lingering::lingering;
/// The model checker, so that a room that writes a check spawns its threads without a dependency of its own.
pub use loom;
pub use loom_core::LoomCore;
pub use loom_memory::{LoomMemory, Mutation, Weaken};
pub use rendezvous::{RendezvousCore, RendezvousDevice, RendezvousMemory};
pub use skipped::skipped;
pub use told::{Does, ToldCore};
pub use visited::Visited;
