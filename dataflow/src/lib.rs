//! Operators of a [Timely](https://docs.rs/timely) graph on a device that is called with bytes and answers with bytes, such as
//! one behind coherent programmed I/O ("Rethinking Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects",
//! section 5.3).
//!
//! | file | what |
//! |---|---|
//! | `operator.rs` | operators and their elements: what both a CPU and a device can compute |
//! | `program.rs` | the device's part of a graph, as the device runs it |
//! | [`wire`] | requests and responses: elements, and progress each way |
//! | `device.rs` | what a device offers; one that computes on the spot |
//! | `exchange.rs` | a device behind the lines of `interface::pio` |
//! | `channel.rs` | what crosses and what waits to, split and put together again |
//! | `offload.rs` | the Timely operators that stand for the device's part |
//! | `graph.rs` | graphs whose operators have places; channels are inserted where the place changes |
//! | `running.rs` | a graph on one worker, stepped by hand |
//! | `software.rs` | the same operators on the CPU, one by one and fused |
//! | `planted.rs` | mistakes that tests plant |
//!
//! # Progress
//!
//! A request carries, for each operator that the parent graph sees, up to where its input is complete, as Timely's tracker told
//! that operator; the device refuses elements of a time that is complete, and progress that goes back. A response carries for
//! each how many records it consumed and produced, and the stand-ins say that, and nothing else, to the tracker. Records are
//! consumed when the device says so, not when they are taken from the channel: until then their own count holds their time, and
//! no frontier behind them passes it. Batches may be completed in any order.
//!
//! An operator with a state ([`Gathering`]) keeps what it takes of a time until the time is complete. Its stand-in holds the time meanwhile,
//! asks for what was kept when Timely says that nothing more of it comes, and gives the time up when all has come. Such an operator is
//! the last of its part; the part has one device, and its parent sees one operator.
//!
//! # Time
//!
//! A device's time is the host's: the host waits for it, and a clock around the graph measures both. A simulated device (the study's)
//! computes within the call, and keeps the sum of the simulated times of its exchanges behind a handle. With [`Calls::Blocking`]
//! the host does nothing meanwhile, so that the time of a batch is what the host's clock measured with the simulation's own
//! work taken out, plus that sum; the two parts are reported apart, since the first is of the machine that runs and the second of
//! the one that is modelled. With [`Calls::Deferred`] both overlap, and no sum is right. There one clock says what a batch takes: the
//! host's, which stands while the host simulates, and on which an exchange ends when so much time has passed since its beginning as
//! it took in the simulation. What the host does meanwhile counts once, and it looks for results as it would for a device's; each exchange
//! has a modelled core and a modelled machine to itself, so that what two at a time take from each other is not in it. The study itself
//! charges the host's work to the simulation's clock, by the modelled machine's own values, and mixes no two machines' times.

mod channel;
mod device;
mod exchange;
mod graph;
mod offload;
mod operator;
mod planted;
mod program;
mod running;
mod software;
#[cfg(test)]
mod tests;
pub mod wire;

pub use device::{Device, Fault, Inline};
pub use exchange::{Exchange, Serving};
pub use graph::{OnCpu, OnDevice, Place, placed};
pub use offload::{Calls, Detail, Offload, offload};
pub use operator::{Bloom, Counts, Drops, Element, Gathering, Operator, trivial_filters};
pub use program::{Chain, Executor, Program};
pub use running::Running;
pub use software::{fused, software};
pub use timely::dataflow::Stream;
pub use timely::scheduling::SyncActivator;
