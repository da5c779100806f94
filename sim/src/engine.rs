//! The event engine: a queue of events in total order, and agents as fibers.

pub mod queue;

pub use queue::{EventQueue, Key};
