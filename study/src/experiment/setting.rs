//! What every experiment starts from: the platforms, and how much effort is made.

use conic_interface::ccnic::Features;
use conic_sim::Parameters;

use crate::workload::{Interface, Loopback, NicPlace, Prefetching};

/// The machines of the paper's section 5.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Platforms {
    /// The Ice Lake server.
    pub icx: Parameters,
    /// The Sapphire Rapids server.
    pub spr: Parameters,
    /// The Ice Lake server with a ConnectX-6 Dx.
    pub icx_cx6: Parameters,
    /// The Ice Lake server with an E810.
    pub icx_e810: Parameters,
}

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every point.
    Full,
    /// Fewer points and fewer packets a point: for a first look.
    Quick,
}

/// What every experiment starts from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The machines.
    pub platforms: Platforms,
    /// How much is simulated.
    pub effort: Effort,
    /// The seed of every question.
    pub seed: u64,
}

/// Packets of a call at most, as DPDK's traffic generators have it.
pub(super) const BURST: usize = 32;

/// The paper's small packets, bytes.
pub(super) const SMALL: u16 = 64;
/// Its large ones: 1.5 KB.
pub(super) const LARGE: u16 = 1500;
/// Those of its core counts: 4 KB.
pub(super) const PAGE: u16 = 4096;

/// CC-NIC as in the paper.
pub(super) const CC_NIC: Interface = Interface::CcNic(Features::paper());

impl Setting {
    /// Whichever fits the effort.
    pub(super) fn pick<T>(&self, full: T, quick: T) -> T {
        match self.effort {
            Effort::Full => full,
            Effort::Quick => quick,
        }
    }

    /// A loopback on all cores of a node with one packet in flight each: what experiments change from. The host alone
    /// prefetches, as in all the paper's measurements but those of prefetching itself (section 5.8).
    pub(super) fn loopback(&self, machine: &Parameters, interface: Interface, packet_size: u16) -> Loopback {
        let mut question = Loopback {
            machine: machine.clone(),
            interface,
            nic_place: NicPlace::Remote,
            threads: machine.core.cores as usize,
            packet_size,
            window: 1,
            transmit_burst: BURST,
            receive_burst: BURST,
            offered: None,
            prefetching: Prefetching { host: true, nic: false },
            packets: (0, 0),
            seed: self.seed,
        };
        self.count(&mut question);
        question
    }

    /// Sets how many packets warm up and are measured: enough for the window to go round several times, and more where few
    /// threads run.
    pub(super) fn count(&self, question: &mut Loopback) {
        let lines = u64::from(question.packet_size).div_ceil(64).max(1);
        let least = self.pick(12_000, 3_000) / (4 + lines) / (question.threads as u64).clamp(1, 8);
        let window = question.window;
        let (warm, measured) = self.pick((4 * window, 8 * window), (2 * window, 3 * window));
        question.packets = (warm.max(least / 2), measured.max(least));
    }
}
