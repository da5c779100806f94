//! Calls and frames over PCIe: by programmed I/O, and by the device's copy engines, on a modelled host and card.
//!
//! | module | what |
//! |---|---|
//! | [`calls`] | calls of a function on the device |
//! | [`frames`] | frames of a NIC whose port is looped back |
//!
//! The machine is one of sockets with a PCIe link, of which one core and one device are used.

pub mod calls;
pub mod frames;

use conic_fabric::{Device, Time};
use conic_interface::xdma::{Completion, Overhead};
use conic_sim::parameters::FpgaParameters;
use conic_sim::{Parameters, SimDevice};

/// How bytes get to the device and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// The host stores and loads the device's memory.
    Pio,
    /// The device's copy engines, started and awaited by a driver.
    Dma(Completion),
}

/// What a device answers a load after, though it has nothing: far below what the host's root port bears.
const PATIENCE: Time = Time::from_nanoseconds(10_000_000);

/// The machine's programmable device.
///
/// # Panics
///
/// If the platform has none: its caller has chosen one that has.
fn fpga(machine: &Parameters) -> FpgaParameters {
    machine.fpga.clone().unwrap_or_else(|| panic!("{} has no [fpga]: take enzian-pcie or pc-pcie", machine.name))
}

/// What the machine's driver does around a transfer.
fn overhead(machine: &Parameters) -> Overhead {
    let driver = machine.driver.clone();
    let driver = driver.unwrap_or_else(|| panic!("{} has no [driver]: take enzian-pcie or pc-pcie", machine.name));
    Overhead {
        call_lines: driver.call_lines,
        page_lines: driver.page_lines,
        completion_lines: driver.completion_lines,
        line_work: driver.line_work,
        interrupt_work: driver.interrupt_work,
    }
}

/// Waits until a time, whatever comes; what comes is found by who looks.
fn wait_until(device: &SimDevice<'_>, time: Time) {
    while device.now() < time {
        device.spin_until(time);
    }
}

/// Waits until something comes, or until a withheld load has waited for too long.
fn wait_for_news(device: &SimDevice<'_>, withheld_since: Option<Time>) {
    device.spin_until(withheld_since.map_or(Time::NEVER, |since| since + PATIENCE));
}
