//! What a run shows of itself: counters, queues and traces.

pub mod counters;
pub mod holding;
mod log;
pub mod occupancy;
mod packet;
pub mod perfetto;
pub mod queue;
pub mod queues;
mod record;
#[cfg(test)]
mod sample;

pub(crate) use log::{Log, Way, segments_of};
pub use record::{Cause, LevelRecord, MessageRecord, OwnershipRecord, PlaceName, QueueName, Recording, SpanRecord};
