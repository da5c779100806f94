//! The event engine: a queue of events in total order, and agents as fibers.

pub mod ahead;
pub mod pages;
pub mod queue;

pub use queue::{EventQueue, Key};
