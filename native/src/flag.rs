//! A flag between threads, so that no other room needs an atomic.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is raised once.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    /// A flag that is down.
    pub const fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    /// Raises it.
    pub fn raise(&self) {
        // Release: what was done before is visible to whoever sees the flag.
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is up.
    #[inline(always)]
    pub fn is_up(&self) -> bool {
        // Acquire: pairs with `raise`.
        self.0.load(Ordering::Acquire)
    }
}
