//! The rings and buffers of a queue pair, and in whose memory each lies.

use std::fmt;

use conic_fabric::{Address, Home, LINE_BYTES, Layout, MemoryType, SynchronisingWords, lines_of};

/// In whose memory each structure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Homes {
    /// The receive ring.
    pub rx_ring: Home,
    /// Receive buffers.
    pub rx_buffers: Home,
    /// The transmit ring, and its tail.
    pub tx_ring: Home,
    /// Transmit buffers.
    pub tx_buffers: Home,
}

impl Homes {
    /// Everything in the host's memory: all that a device without memory can have.
    pub const HOST: Homes =
        Homes { rx_ring: Home::Host, rx_buffers: Home::Host, tx_ring: Home::Host, tx_buffers: Home::Host };
}

/// How large a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Descriptors of each ring, a power of two.
    pub descriptors: u64,
    /// Bytes of a buffer; rounded up to whole lines.
    pub buffer_bytes: u64,
    /// Buffers for each direction; more than descriptors, so that the host may hold some.
    pub buffers: u64,
    /// Where they lie.
    pub homes: Homes,
}

impl Shape {
    /// The position whose packet's completion speaks for that of position `from`: the last of 32, as in DPDK's drivers (`tx_rs_thresh` of
    /// Intel's, the completions that mlx5 asks for), or of half a ring.
    pub(super) fn report_from(&self, from: u64) -> u64 {
        from | (REPORTED_AT_ONCE.min(self.descriptors / 2) - 1)
    }

    /// Blank receive buffers that are posted at once: 32, or half a ring.
    pub(super) fn posted_at_once(&self) -> u64 {
        POSTED_AT_ONCE.min(self.descriptors / 2)
    }
}

/// Packets that one completion speaks for.
const REPORTED_AT_ONCE: u64 = 32;

/// Blank buffers that are posted at once, with one write of a register where there is one: as in DPDK's drivers (`rx_free_thresh`, and
/// `RTE_IXGBE_RXQ_REARM_THRESH` and its like in those that use vectors).
const POSTED_AT_ONCE: u64 = 32;

/// Why a queue pair cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// So many descriptors are no power of two of at least 2.
    Descriptors(u64),
    /// Buffers of so many bytes: 64 to 65535 are possible.
    BufferBytes(u64),
    /// So many buffers do not fill the ring.
    Buffers(u64),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Descriptors(count) => write!(f, "{count} descriptors: give a power of two from 2 on"),
            ShapeError::BufferBytes(bytes) => write!(f, "buffers of {bytes} bytes: give 64 to 65535"),
            ShapeError::Buffers(count) => write!(f, "{count} buffers: give at least one for each descriptor"),
        }
    }
}

impl std::error::Error for ShapeError {}

/// Where a queue pair lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Its size.
    pub shape: Shape,
    /// The receive ring.
    pub rx_ring: Address,
    /// The transmit ring.
    pub tx_ring: Address,
    /// The word that says how far the host has transmitted.
    pub tx_tail: Address,
    /// The register that says the same.
    pub doorbell: Address,
    /// The register that says up to where the host has posted receive descriptors.
    pub rx_doorbell: Address,
    /// The register by which the host has received packets pushed into its cache or not ([`super::PushControl`]).
    pub push_gate: Address,
    /// The register that says after how many cycles a pushed packet is written to memory.
    pub write_back: Address,
    /// Receive buffers.
    pub rx_buffers: Address,
    /// Transmit buffers.
    pub tx_buffers: Address,
}

impl Shape {
    /// 256 descriptors for packets of up to so many bytes, in the host's memory.
    pub fn for_packets(bytes: u64) -> Shape {
        Shape { descriptors: 256, buffer_bytes: bytes.max(64), buffers: 512, homes: Homes::HOST }
    }

    /// Appends a queue pair to a layout.
    ///
    /// # Errors
    ///
    /// What of it cannot be.
    pub fn place(&self, layout: &mut Layout) -> Result<Queues, ShapeError> {
        if self.descriptors < 2 || !self.descriptors.is_power_of_two() {
            return Err(ShapeError::Descriptors(self.descriptors));
        }
        if !(64..=65535).contains(&self.buffer_bytes) {
            return Err(ShapeError::BufferBytes(self.buffer_bytes));
        }
        if self.buffers < self.descriptors {
            return Err(ShapeError::Buffers(self.buffers));
        }
        let shape = Shape { buffer_bytes: lines_of(self.buffer_bytes) * LINE_BYTES, ..*self };
        let homes = shape.homes;
        let first = SynchronisingWords::FIRST;
        let mut add = |name: &str, bytes: u64, home, words| layout.add(name, bytes, LINE_BYTES, home, words);
        let ring = shape.descriptors * LINE_BYTES;
        let buffers = shape.buffers * shape.buffer_bytes;
        let rx_ring = add("receive ring", ring, homes.rx_ring, first);
        let tx_ring = add("transmit ring", ring, homes.tx_ring, first);
        let tx_tail = add("transmit tail", LINE_BYTES, homes.tx_ring, first);
        let rx_buffers = add("receive buffers", buffers, homes.rx_buffers, SynchronisingWords::NONE);
        let tx_buffers = add("transmit buffers", buffers, homes.tx_buffers, SynchronisingWords::NONE);
        let doorbell = layout.add_registers("doorbell", 8, Home::Nic, MemoryType::Uncached);
        // Side by side: the receive half looks at all of them, and the host writes the last two seldom.
        let rx_doorbell = layout.add_registers("receive registers", 24, Home::Nic, MemoryType::Uncached);
        let (push_gate, write_back) = (rx_doorbell.word(1), rx_doorbell.word(2));
        Ok(Queues {
            shape,
            rx_ring,
            tx_ring,
            tx_tail,
            doorbell,
            rx_doorbell,
            push_gate,
            write_back,
            rx_buffers,
            tx_buffers,
        })
    }
}

impl Queues {
    /// The line of a descriptor.
    pub(super) fn descriptor(&self, ring: Address, position: u64) -> Address {
        ring.lines(position & (self.shape.descriptors - 1))
    }

    /// Bytes from an address to the end of the buffer that it lies in, of either direction; none where it lies in none.
    pub(super) fn bytes_to_end(&self, at: u64) -> u64 {
        let bytes = self.shape.buffer_bytes;
        let offsets = [self.rx_buffers, self.tx_buffers].map(|buffers| at.wrapping_sub(buffers.0));
        let within = offsets.into_iter().find(|offset| *offset < self.shape.buffers * bytes);
        within.map_or(0, |offset| bytes - offset % bytes)
    }

    /// Whether a peer's address is a buffer that starts at `buffers`.
    pub(super) fn is_buffer(&self, buffers: Address, at: u64) -> bool {
        let bytes = self.shape.buffer_bytes;
        at.checked_sub(buffers.0).is_some_and(|offset| offset % bytes == 0 && offset / bytes < self.shape.buffers)
    }
}
