//! Metadata that the host keeps in front of each buffer's payload, as DPDK does in its `rte_mbuf`.
//!
//! "Packet buffers also include application-level metadata", which "is not transferred to the NIC"; what the device is told is where
//! the payload starts, "placed after any application metadata" (CC-NIC section 2.1). Here that is a line; DPDK's `rte_mbuf` has two,
//! of which the second is mostly left alone.
//!
//! | when | the host's access, as DPDK's library and its driver of the E810 do it |
//! |---|---|
//! | a buffer is allocated | it is reset (`rte_pktmbuf_reset`) |
//! | a packet is sent | its length is entered, from which the descriptor is derived |
//! | a packet is received | the length from the descriptor is entered |
//! | a buffer is freed, by the program or because it was sent | it is read (`rte_pktmbuf_prefree_seg`: is the buffer referred to elsewhere?) |
//! | a blank buffer is posted | it is read for the buffer's address, and reset (`ice_rx_alloc_bufs`) |
//!
//! The interfaces' own hosts know all of it without: the line is there for what touching it costs, where the program that is modelled
//! has it. On memory no program of ours asks for it.

use conic_fabric::{Address, Core, LINE_BYTES};

/// Bytes in front of a payload.
pub const BYTES: u64 = LINE_BYTES;

/// Enters the length of the packet in a buffer, or resets it with none.
#[inline(always)]
pub(crate) fn enter<C: Core>(core: &C, payload: Address, length: u64) {
    core.store(Address(payload.0 - BYTES), length);
}

/// Reads it. What is found decides nothing that a core would wait for: its branches are predicted.
#[inline(always)]
pub(crate) fn consult<C: Core>(core: &C, payload: Address) {
    core.read_bytes(Address(payload.0 - BYTES), &mut [0; 8]);
}
