//! The experiments of "Rethinking Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects" on a modelled Enzian.
//!
//! | module | what |
//! |---|---|
//! | [`calling`] | what every call of a function is, whichever way it crosses |
//! | [`exchange`] | calls of a function on the device, by `interface::pio`'s halves |
//! | [`invocation`] | the same calls, of any function and in each way that a machine has to its device |
//! | [`frames`] | frames of a NIC, by the same |
//! | [`sockets`] | FastForward between two sockets |
//! | [`simulated`] | a device for Timely graphs whose time is the simulator's |
//! | [`crossing`] | in how many exchanges a batch of such a graph crosses |
//! | `flowing.rs` | elements that are computed while their batch crosses; which sentences say what overlaps |
//! | [`graphs`] | the graphs of section 5.3 with a part on such a device |
//! | `streams.rs` | Figures 11 and 12 |
//! | `what_if.rs` | the same protocols on a machine of a coming generation |
//! | `terms.rs` | what the latencies of one line consist of, stage by stage |
//! | `headlines.rs` | the results whose dependence on guesses is shown |
//! | [`pcie`] | calls and frames over PCIe: programmed I/O, and the device's copy engines |
//! | `port.rs` | a NIC's port: its clocks, and the stages between it and the interface |
//! | `figures.rs`, `over_pcie.rs` | what the paper's figures and tables come out as, over coherent lines and over PCIe |
//!
//! Nothing here knows what was published.

pub mod calling;
pub mod crossing;
pub mod exchange;
mod figures;
mod flowing;
pub mod frames;
pub mod graphs;
mod headlines;
pub mod invocation;
mod over_pcie;
pub mod pcie;
mod port;
pub mod simulated;
pub mod sockets;
mod streams;
mod terms;
mod what_if;

pub use figures::{EXPERIMENTS, Experiment, Machines, findings};
pub use headlines::{HEADLINES, headlines, headlines_beside};
pub use what_if::WHAT_IF;

/// The latency below which a part of them lies, in nanoseconds: the smallest that does.
pub fn percentile(picoseconds: &[u64], part: f64) -> f64 {
    let mut sorted = picoseconds.to_vec();
    sorted.sort_unstable();
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).map_or(f64::NAN, |time| *time as f64 / 1000.0)
}
