//! Descriptors that wake threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a thread of this process. It is not passed to anybody, so that its reads and writes never wait.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Rings it.
    pub(crate) fn ring(&self) {
        // One that has rung too often to count is as good as one that rings.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Silences it, before what it announced is looked at.
    pub(crate) fn silence(&self) {
        // Nothing to read is as good as silence.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ends a daemon, from any thread.
#[derive(Clone, Debug)]
pub struct Stop(pub(crate) Bell);

impl Stop {
    /// One that has not been used.
    ///
    /// # Errors
    ///
    /// The process has too many descriptors.
    pub fn new() -> io::Result<Stop> {
        Ok(Stop(Bell::new()?))
    }

    /// Asks the daemon to end.
    pub fn raise(&self) {
        self.0.ring();
    }
}
