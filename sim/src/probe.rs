//! What a run shows of itself: counters, queues, latencies and traces.

pub mod counters;
pub mod occupancy;
mod record;

pub use record::{Cause, MessageRecord, OwnershipRecord, PlaceName, Recording, SpanRecord};
