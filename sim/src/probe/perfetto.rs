//! A recording as a trace for the Perfetto viewer, in its native format: TrackEvents in Protocol Buffers.
//!
//! JSON traces lose slices that overlap, and begin and end pairs that overlap on one track are nested wrongly without a
//! word. So each slice goes to the lowest lane of its row that is free, a track of the same name under the same parent, which
//! the viewer shows as one row.
//!
//! | row | its slices |
//! |---|---|
//! | a place's program | accesses, bursts |
//! | what a place handles | a message from when it arrived until the last message that it caused was sent |
//! | what a place sent | a message from when it was sent until it arrived |
//! | a line | who holds it in which state: `M@host core 0`, `S@host core 0+NIC core 1`, `I` |
//! | a queue | its level, as a counter |
//!
//! Flows join an access to the message that it sent first, a message's way to its arrival, and its arrival to each message
//! that it caused. Each has an id of its own, used twice: the viewer follows whole chains, and a chain is one access.
//!
//! Field numbers: Perfetto's `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto`, `interned_data.proto`.

mod fields;
mod flow;
mod plan;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

use super::Recording;
use plan::Plan;
use writer::Writer;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Writes picoseconds where the format has nanoseconds, and says so in the root's name. Otherwise times are rounded down
    /// to nanoseconds.
    pub picoseconds: bool,
    /// Writes no more events than this, the first ones, and says so in the root's name. A slice is two events.
    pub most_events: usize,
}

impl Default for Options {
    /// Nanoseconds, and a million events: about 40 MB, which the viewer opens in a few seconds.
    fn default() -> Options {
        Options { picoseconds: false, most_events: 1_000_000 }
    }
}

/// The trace of a recording: bytes of a `.pftrace` file. Any recording gives a trace; the same one gives the same bytes.
pub fn write(recording: &Recording, options: &Options) -> Vec<u8> {
    let plan = Plan::new(recording, options.picoseconds, options.most_events);
    Writer::new(recording, &plan).write(&root_name(recording, &plan, options))
}

/// How many events the trace of a recording has if nothing limits it.
pub fn count_events(recording: &Recording, options: &Options) -> usize {
    Plan::new(recording, options.picoseconds, 0).all_events
}

fn root_name(recording: &Recording, plan: &Plan, options: &Options) -> String {
    let mut name = "conic".to_string();
    if options.picoseconds {
        name += ": 1 ns shown is 1 ps simulated";
    }
    if plan.events < plan.all_events {
        name += &format!(": only the first {} of {} events; ask for more", plan.events, plan.all_events);
    }
    if recording.dropped > 0 {
        name += &format!(": recording stopped at its limit, {} more left out", recording.dropped);
    }
    name
}
