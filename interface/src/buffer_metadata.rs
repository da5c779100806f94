//! Metadata that the host keeps in front of each buffer's payload, as DPDK does in its `rte_mbuf`.
//!
//! "Packet buffers also include application-level metadata", which "is not transferred to the NIC"; what the device is told is where
//! the payload starts, "placed after any application metadata" (CC-NIC section 2.1).
//!
//! | bytes before the payload | what DPDK has there | here |
//! |---|---|---|
//! | 320 | the pool's note of the buffer (`rte_mempool_objhdr`) | nobody touches it |
//! | 256 | the first line of `rte_mbuf`: address, references, lengths | the first word |
//! | 192 | its second line, which begins with the next segment (`next`) | the first word |
//! | 128 | the headroom (`RTE_PKTMBUF_HEADROOM`) | nobody touches it |
//!
//! | when | the host's access, as DPDK's library and its driver of the E810 do it |
//! |---|---|
//! | a buffer is allocated | it is reset: both lines are written (`rte_pktmbuf_reset`) |
//! | a packet is sent | its length is entered in the first line, from which the descriptor is derived |
//! | a packet is received | the length from the descriptor is entered in the first line |
//! | a buffer is freed, by the program or because it was sent | both lines are read (`rte_pktmbuf_prefree_seg`: is it referred to elsewhere, does a segment follow?) |
//! | a blank buffer is posted | the first line is read for the buffer's address, and it is reset (`ice_rx_alloc_bufs`) |
//!
//! The interfaces' own hosts know all of it without: the lines are there for what touching them costs, where the program that is
//! modelled has them. On memory no program of ours asks for them.

use conic_fabric::{Address, Core, LINE_BYTES};

/// Bytes in front of a payload.
pub const BYTES: u64 = 5 * LINE_BYTES;
/// Bytes from the word that a length is entered in to the payload.
pub const FIRST: u64 = 4 * LINE_BYTES;
/// Bytes from the first word of the second line to the payload.
pub const SECOND: u64 = 3 * LINE_BYTES;

/// Resets the metadata of a buffer.
#[inline(always)]
pub(crate) fn reset<C: Core>(core: &C, payload: Address) {
    core.store(Address(payload.0 - FIRST), 0);
    core.store(Address(payload.0 - SECOND), 0);
}

/// Enters the length of the packet in a buffer.
#[inline(always)]
pub(crate) fn enter<C: Core>(core: &C, payload: Address, length: u64) {
    core.store(Address(payload.0 - FIRST), length);
}

/// Reads them. What is found decides nothing that a core would wait for: its branches are predicted.
#[inline(always)]
pub(crate) fn consult<C: Core>(core: &C, payload: Address) {
    core.read_bytes(Address(payload.0 - FIRST), &mut [0; 8]);
    core.read_bytes(Address(payload.0 - SECOND), &mut [0; 8]);
}

/// Reads where the buffer of metadata is, and resets them, before it is posted.
#[inline(always)]
pub(crate) fn post<C: Core>(core: &C, payload: Address) {
    core.read_bytes(Address(payload.0 - FIRST), &mut [0; 8]);
    reset(core, payload);
}
