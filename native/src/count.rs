//! Numbers between threads, so that no other room needs an atomic.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and others read: a generation, a counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// A number.
    pub const fn new(value: u64) -> Count {
        Count(AtomicU64::new(value))
    }

    /// What it is.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        // Acquire: what its writer did before is visible to whoever sees the value.
        self.0.load(Ordering::Acquire)
    }

    /// Changes it.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        // Release: pairs with `get`.
        self.0.store(value, Ordering::Release);
    }
}
