//! A device's network port and what lies between it and the interface's logic, over coherent lines and over PCIe alike.

use conic_fabric::{Core, Time};
use conic_sim::eci::parameters::EciDeviceParameters;
use conic_sim::parameters::FpgaParameters;

/// Bytes of a frame for which the stages' times by line are.
const STAGE_BYTES: u64 = 128;

/// The longest pause between two frames, in cycles of work: their phases in the machine's clocks and refreshes differ.
const LONGEST_PAUSE: u32 = 20_000;

/// For how long a core works between frame `number` and the next, in cycles, drawn from a seed.
pub(super) fn pause(seed: u64, number: u64) -> u32 {
    let drawn = (seed ^ number).wrapping_add(1).wrapping_mul(0x5851_f42d_4c95_7f2d);
    ((drawn ^ drawn >> 29).wrapping_mul(0x1405_7b7e_f767_814f) >> 40) as u32 % LONGEST_PAUSE
}

/// Lets a core work between two frames. A tick that comes meanwhile takes the core before its next step: that step is here, so that
/// the tick lengthens the pause and not the frame behind it.
pub(super) fn rest(core: &impl Core, cycles: u32) {
    core.work(cycles);
    core.work(0);
}

/// A stage: how long a frame takes in it, in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Stage {
    base: u64,
    /// For each [`STAGE_BYTES`].
    line: u64,
}

impl Stage {
    fn of(self, bytes: usize) -> Time {
        Time::from_picoseconds(self.base + self.line * (bytes as u64).div_ceil(STAGE_BYTES))
    }
}

/// Two clocks that are never in phase, and the stages between them. Periods are in picoseconds: each clock takes what the other one
/// brings at its next edge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    logic: u64,
    port: u64,
    receive: Stage,
    transmit: Stage,
}

impl Port {
    /// That of a device that is home to coherent lines.
    pub(super) fn of_home(device: &EciDeviceParameters) -> Port {
        Port {
            logic: device.nic_cycle,
            port: device.port_cycle,
            receive: Stage { base: device.receive_stage, line: device.receive_line },
            transmit: Stage { base: device.transmit_stage, line: device.transmit_line },
        }
    }

    /// That of a device behind PCIe.
    pub(super) fn of_fpga(fpga: &FpgaParameters) -> Port {
        Port {
            logic: fpga.cycle,
            port: fpga.port_cycle,
            receive: Stage { base: fpga.receive_stage, line: fpga.receive_line },
            transmit: Stage { base: fpga.transmit_stage, line: fpga.transmit_line },
        }
    }

    /// The same with clocks that are always at an edge: what the stages take, and no more.
    pub(super) fn without_edges(self) -> Port {
        Port { logic: 1, port: 1, ..self }
    }

    fn edge(time: Time, cycle: u64) -> Time {
        Time::from_picoseconds(time.picoseconds().next_multiple_of(cycle))
    }

    /// The port's edge at which a frame's last beat comes in that is due at a time.
    pub(super) fn beat(&self, time: Time) -> Time {
        Port::edge(time, self.port)
    }

    /// When a frame's last beat goes out that the interface has whole now.
    pub(super) fn goes_out(&self, now: Time, bytes: usize) -> Time {
        Port::edge(Port::edge(now, self.logic) + self.transmit.of(bytes), self.port)
    }

    /// By how much later a frame's last beat goes out than that of a frame of one line.
    pub(super) fn out_behind_one_line(&self, bytes: usize) -> Time {
        self.transmit.of(bytes) - self.transmit.of(1)
    }

    /// When the interface's logic has a frame whose last beat comes in at a time.
    pub(super) fn comes_in(&self, beat: Time, bytes: usize) -> Time {
        Port::edge(beat + self.receive.of(bytes), self.logic)
    }
}
