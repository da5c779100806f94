//! A region's memory, apart from its queues.

use std::sync::Arc;

use conic_fabric::Address;
use conic_interface::ccnic::PoolMap;

use crate::session::Region;

/// A client's region. It stays mapped as long as one of these lives, also when the daemon that made it is gone; from any thread.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    region: Arc<Region>,
}

impl SharedMemory {
    pub(crate) fn new(region: Arc<Region>) -> SharedMemory {
        SharedMemory { region }
    }

    /// Where it begins in this process, and its bytes.
    #[inline]
    pub fn place(&self) -> (*mut u8, u64) {
        let memory = self.region.core.memory();
        (memory.base(), memory.bytes())
    }

    /// Where its buffers lie.
    pub fn pool(&self) -> &PoolMap {
        &self.region.map.pool
    }

    /// Whether both handles are of one region.
    pub fn is_same(&self, other: &SharedMemory) -> bool {
        Arc::ptr_eq(&self.region, &other.region)
    }

    /// Takes free buffers of a class, past the queues' stacks, and gives how many; see [`PoolMap::take`].
    pub fn take(&self, class: usize, from: &mut u64, out: &mut [Address]) -> usize {
        let Region { core, map, .. } = &*self.region;
        map.pool.take(core, map.features.scattered, class, from, out)
    }

    /// Frees buffers, past the queues' stacks. Gives how many were none, or were free already.
    pub fn give_back(&self, buffers: &[Address]) -> usize {
        buffers.iter().filter(|&&at| !self.region.give_back(at)).count()
    }

    /// How many buffers of each class are free and on nobody's stack.
    pub fn free(&self) -> [u64; conic_interface::ccnic::CLASSES] {
        self.region.map.pool.free(&self.region.core)
    }
}
