//! What the interconnect carried between two moments.

use conic_sim::SimCore;
use conic_sim::machine::Machine;
use conic_sim::pcie::Way;

/// The interconnect at a moment: the time, and the flit time and bytes of each direction so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wire {
    at: u64,
    busy: [u64; 2],
    bytes: [u64; 2],
}

impl Wire {
    /// Now, as a core sees it.
    pub(super) fn now(core: &SimCore<'_>) -> Wire {
        Wire::of(&core.machine().borrow())
    }

    /// The PCIe link instead of the interconnect: from the host to the device, and back.
    pub(super) fn of_pcie(machine: &Machine) -> Wire {
        let Some(link) = machine.pcie_link() else { return Wire { at: machine.now(), ..Wire::default() } };
        let bytes = [Way::ToDevice, Way::ToRoot].map(|way| link.counters(way).wire_bytes);
        Wire { at: machine.now(), busy: bytes.map(|bytes| link.wire_time(bytes)), bytes }
    }

    /// At the machine's present.
    pub(super) fn of(machine: &Machine) -> Wire {
        let carried = [0, 1].map(|from| machine.direction(from).counters());
        Wire {
            at: machine.now(),
            busy: carried.map(|link| link.busy_picoseconds),
            bytes: carried.map(|link| link.bytes),
        }
    }

    /// The share of the flit time of each direction that was used since an earlier moment.
    pub(super) fn utilisation_since(&self, earlier: &Wire, links: u32) -> [f64; 2] {
        let span = (self.at - earlier.at).max(1) as f64;
        [0, 1].map(|direction| (self.busy[direction] - earlier.busy[direction]) as f64 / span / f64::from(links))
    }

    /// Bytes a second in each direction since an earlier moment.
    pub(super) fn bytes_per_second_since(&self, earlier: &Wire) -> [f64; 2] {
        let span = (self.at - earlier.at).max(1) as f64 * 1e-12;
        [0, 1].map(|direction| (self.bytes[direction] - earlier.bytes[direction]) as f64 / span)
    }
}
