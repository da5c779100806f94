//! The experiments of "Rethinking Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects" on a modelled Enzian.
//!
//! | module | what |
//! |---|---|
//! | [`exchange`] | calls of a function on the device, by `interface::pio`'s halves |
//! | [`frames`] | frames of a NIC, by the same |
//! | [`pcie`] | calls and frames over PCIe: programmed I/O, and the device's copy engines |
//! | `figures.rs`, `over_pcie.rs` | what the paper's figures and tables come out as, over coherent lines and over PCIe |
//!
//! Nothing here knows what was published.

pub mod exchange;
mod figures;
pub mod frames;
mod over_pcie;
pub mod pcie;

pub use figures::{EXPERIMENTS, Experiment, Machines, chosen, findings};

/// The latency below which a part of them lies, in nanoseconds: the smallest that does.
pub fn percentile(picoseconds: &[u64], part: f64) -> f64 {
    let mut sorted = picoseconds.to_vec();
    sorted.sort_unstable();
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).map_or(f64::NAN, |time| *time as f64 / 1000.0)
}
