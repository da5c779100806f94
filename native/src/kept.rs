//! A core that keeps its region mapped.

use std::sync::Arc;

use conic_fabric::delegate_core;

use crate::{Memory, NativeCore};

#[cfg(not(feature = "steps"))]
type View = NativeCore<'static>;
#[cfg(feature = "steps")]
type View = crate::steps::Watched;

/// A [`NativeCore`] that shares the ownership of its region, for who cannot borrow one: sessions that come and go.
#[derive(Clone, Debug)]
pub struct KeptCore {
    view: View,
    memory: Arc<Memory>,
}

impl KeptCore {
    /// A view of a region, which stays mapped as long as any such core lives.
    pub fn new(memory: Arc<Memory>) -> KeptCore {
        let view = NativeCore::of_parts(memory.base(), memory.bytes());
        #[cfg(feature = "steps")]
        let view = crate::steps::Watched(view);
        KeptCore { view, memory }
    }

    /// The region.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

delegate_core!([] KeptCore, self => &self.view);
