//! What every experiment starts from: the platforms, and how much effort is made.

use conic_interface::ccnic::Features;
use conic_sim::Parameters;

use crate::workload::{Interface, Loopback, NIC_BURST, NicPlace, Prefetching, Switches};

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
            // A machine's copy engines are for those who ask for them: what others ask is the same question without.
            machine: Parameters { engine: None, ..machine.clone() },
            interface,
            nic_place: NicPlace::Remote,
            threads: machine.core.cores as usize,
            packet_size,
            window: 1,
            transmit_burst: BURST,
            receive_burst: BURST,
            nic_burst: NIC_BURST,
            whole_bursts: false,
            offered: None,
            prefetching: Prefetching { host: true, nic: false },
            nic_work: None,
            packets: (0, 0),
            switches: Switches::default(),
            seed: self.seed,
        };
        self.count(&mut question);
        question
    }

    /// Sets how many packets warm up and are measured.
    ///
    /// With small packets and many in flight, rates settle once the rings, of 1024 descriptors, have been round, and hardly change
    /// after; with larger packets, whose payload outweighs the rings, earlier. With few packets in flight nothing queues, so that
    /// a few tens of them are enough where many threads run.
    ///
    /// Few threads count accesses, too, and a buffer's first use differs from all others: where buffers are taken in rotation, each
    /// has carried two packets each way before. Many threads' rates do not show it: 215.2 million packets a second of the unoptimised
    /// ring with all cores of Sapphire Rapids after 1200 packets, 215.5 after 3100.
    pub(super) fn count(&self, question: &mut Loopback) {
        let few_threads = question.threads <= 4;
        let (warm, measured) = match question.packet_size {
            0..=512 if few_threads => self.pick((1200, 4000), (1200, 1500)),
            0..=512 if question.window < 32 => self.pick((300, 300), (100, 150)),
            0..=512 => self.pick((1200, 1200), (1100, 400)),
            513..=2048 if few_threads => self.pick((300, 1000), (100, 300)),
            513..=2048 => self.pick((400, 400), (100, 150)),
            _ => self.pick((100, 150), (40, 60)),
        };
        // Packets come back by the window: a few of them, or the ends of the measurement decide.
        let windows = if question.packet_size <= 512 { 4 } else { 2 };
        let warm = if few_threads { warm.max(2 * question.rotation().unwrap_or(0)) } else { warm };
        question.packets = (warm.max(2 * question.window), measured.max(windows * question.window));
    }
}
