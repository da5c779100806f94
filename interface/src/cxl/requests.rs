//! The request type of every step of the device's half.

use conic_fabric::StateHint;

/// How the device learns of packets to transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// It polls the descriptor itself (inline signalling).
    Descriptor,
    /// It polls a tail in memory, and reads descriptors up to it.
    Tail,
    /// The host writes a register.
    Doorbell,
}

/// Which transmitted packets the device completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Report {
    /// The last of each batch (section 4.2, step 6), and those of which the host asks to be told.
    EachBatch,
    /// Those of which the host asks to be told, as NICs behind PCIe do for DPDK's drivers.
    Asked,
}

/// The request type of every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requests {
    /// Reading receive descriptors ahead of packets.
    pub rx_prefetch: StateHint,
    /// Reading the descriptor when a packet has come; none: what was read ahead is used.
    pub rx_descriptor: Option<StateHint>,
    /// Writing a received packet.
    pub rx_packet: StateHint,
    /// Completing received packets.
    pub rx_completion: StateHint,
    /// How packets to transmit are learnt of.
    pub tx_signal: Signal,
    /// Polling for them.
    pub tx_poll: StateHint,
    /// Reading further descriptors.
    pub tx_descriptor: StateHint,
    /// Reading a packet to transmit.
    pub tx_packet: StateHint,
    /// Completing transmitted packets.
    pub tx_completion: StateHint,
    /// Which of them are completed.
    pub tx_report: Report,
}

impl Requests {
    /// The paper's section 4 with non-coherent requests for packets and for polling: its combination 0.
    ///
    /// A packet's descriptor is read as it was prefetched, shared: to own a line that the device shares, as the paper's text has
    /// it, the host must be asked by the specification.
    pub const NON_COHERENT: Requests = Requests {
        rx_prefetch: StateHint::CacheableShared,
        rx_descriptor: Some(StateHint::CacheableShared),
        rx_packet: StateHint::NonCacheable,
        rx_completion: StateHint::NonCacheable,
        tx_signal: Signal::Descriptor,
        tx_poll: StateHint::NonCacheable,
        tx_descriptor: StateHint::NonCacheable,
        tx_packet: StateHint::NonCacheable,
        tx_completion: StateHint::NonCacheable,
        tx_report: Report::EachBatch,
    };

    /// The same with a polled descriptor that stays in the device's cache: what the paper recommends for bandwidth.
    pub const EVENT_DRIVEN: Requests = Requests { tx_poll: StateHint::CacheableOwned, ..Requests::NON_COHERENT };

    /// The paper's combinations: bit 2 is a receive packet by CO-write, bit 1 polling by CO-read, bit 0 a transmit packet by
    /// CS-read.
    pub fn combination(number: u32) -> Requests {
        let pick = |bit: u32, hint| if number >> bit & 1 == 1 { hint } else { StateHint::NonCacheable };
        Requests {
            rx_packet: pick(2, StateHint::CacheableOwned),
            tx_poll: pick(1, StateHint::CacheableOwned),
            tx_packet: pick(0, StateHint::CacheableShared),
            ..Requests::NON_COHERENT
        }
    }

    /// The latency-optimal configuration of section 7.2, for a device with memory: receive packets and their completion are pushed.
    pub const PUSHED: Requests = Requests {
        rx_packet: StateHint::NonCacheablePush,
        rx_completion: StateHint::NonCacheablePush,
        ..Requests::NON_COHERENT
    };

    /// CC-NIC's loads and stores: CS-read and CO-write for everything.
    pub const LOADS_AND_STORES: Requests = Requests {
        rx_prefetch: StateHint::CacheableShared,
        rx_descriptor: Some(StateHint::CacheableShared),
        rx_packet: StateHint::CacheableOwned,
        rx_completion: StateHint::CacheableOwned,
        tx_signal: Signal::Descriptor,
        tx_poll: StateHint::CacheableShared,
        tx_descriptor: StateHint::CacheableShared,
        tx_packet: StateHint::CacheableShared,
        tx_completion: StateHint::CacheableOwned,
        tx_report: Report::EachBatch,
    };

    /// DMA and a doorbell: what was read ahead is used, because reading again would cost as much as the first time.
    pub const DMA: Requests = Requests {
        rx_descriptor: None,
        tx_signal: Signal::Doorbell,
        tx_report: Report::Asked,
        ..Requests::NON_COHERENT
    };
}
