//! Starting over in a region: at first, and after one side has died.
//!
//! An empty clear-on-consume ring does not say where it is, and what a dead side had half done cannot be told from what it
//! had done. So nothing is rebuilt from the rings. The survivor takes what had been delivered to it whole, empties the
//! rings, and makes the pool what it must be: every buffer that the survivor does not hold is free.
//!
//! | what | after the host died | after the NIC died |
//! |---|---|---|
//! | sent and published | the NIC receives and transmits it first, or drops it | lost; the host cannot know whether it was read |
//! | delivered and published | lost | the host receives it first |
//! | half published | never seen by anyone | never seen by anyone |
//! | buffers anywhere else | free again | free again |

use conic_fabric::Core;

use super::map::Map;
use super::policy::Packing;
use super::queue::RingMap;

/// Empties the rings of a queue pair and sets its positions to zero.
pub fn reset_rings<C: Core>(core: &C, map: &Map, queue: usize) {
    let queue = &map.queues[queue];
    for ring in [&queue.transmit, &queue.receive] {
        reset_ring(core, map, ring);
    }
}

fn reset_ring<C: Core>(core: &C, map: &Map, ring: &RingMap) {
    let slot_bytes = if map.features.packing == Packing::Packed { 16 } else { 64 };
    for slot in 0..ring.slots {
        let word = ring.ring + slot * slot_bytes;
        if map.layout.segment_of(word).is_some_and(|segment| segment.synchronising.contains(0)) {
            // Release: nobody looks until it learns by other means that the region is ready.
            core.store_release(word, 0);
        } else {
            core.store(word, 0);
        }
    }
    // Release: as above.
    core.store_release(ring.credit, 0);
    core.store_release(ring.doorbell, 0);
}

/// Makes a region ready for its first use: empty rings and a full pool.
pub fn prepare<C: Core>(core: &C, map: &Map) {
    for queue in 0..map.queues.len() {
        reset_rings(core, map, queue);
    }
    map.pool.fill(core);
}
