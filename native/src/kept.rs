//! A core that keeps its region mapped.

use std::sync::Arc;

use conic_fabric::delegate_core;

use crate::{Memory, NativeCore};

/// A [`NativeCore`] that shares the ownership of its region, for who cannot borrow one: sessions that come and go.
#[derive(Clone, Debug)]
pub struct KeptCore {
    view: NativeCore<'static>,
    memory: Arc<Memory>,
}

impl KeptCore {
    /// A view of a region, which stays mapped as long as any such core lives.
    pub fn new(memory: Arc<Memory>) -> KeptCore {
        let view = NativeCore::of_parts(memory.base(), memory.bytes());
        KeptCore { view, memory }
    }

    /// The region.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

delegate_core!([] KeptCore, self => &self.view);
