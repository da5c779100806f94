//! What a run shows of itself: counters, queues, latencies and traces.

mod record;

pub use record::{Cause, MessageRecord, OwnershipRecord, PlaceName, Recording, SpanRecord};
