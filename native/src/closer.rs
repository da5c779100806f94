//! Closing where nobody waits for it.
//!
//! Whoever closes the last copy of a descriptor waits for as long as its maker likes: seconds for a TCP connection with `SO_LINGER`, for
//! ever for a file of a FUSE that does not answer; and a socket that is closed closes with it all descriptors that lie unread in it. A thread
//! that others wait for hands over what another process passed, and goes on.
//!
//! One owner makes all wait that is handed over behind its own. Where that must not be, and nothing of it need be taken, the daemon's
//! `server/closing.rs` has another way.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// A thread that drops what it is given, one after the other. It ends when nobody can give it anything any more and all is done.
///
/// It is as slow as what it is given: whoever lets others cause that looks at [`Closer::waiting`] before, and goes no further while that
/// is too much.
#[derive(Clone)]
pub struct Closer {
    queue: Sender<Box<dyn Send>>,
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    /// Begins such a thread.
    ///
    /// # Errors
    ///
    /// The system has no thread more.
    pub fn start() -> io::Result<Closer> {
        let (queue, given) = channel::<Box<dyn Send>>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let work = move || {
            for one in given {
                drop(one);
                // Relaxed: a number alone, by which nothing else is found.
                left.fetch_sub(1, Ordering::Relaxed);
            }
        };
        // Nobody waits for it, not even at the end: that might be as long.
        thread::Builder::new().name("closer".to_owned()).spawn(work)?;
        Ok(Closer { queue, waiting })
    }

    /// Has this dropped; never waits.
    pub fn close(&self, what: impl Send + 'static) {
        // Relaxed: as above; the queue orders it before the subtraction.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(left) = self.queue.send(Box::new(what)) {
            // The thread is gone, which it never is unless a drop has panicked: a leak that is counted is better than a wait.
            std::mem::forget(left);
        }
    }

    /// How many things are not yet closed.
    pub fn waiting(&self) -> usize {
        // Relaxed: as above.
        self.waiting.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer").field("waiting", &self.waiting()).finish()
    }
}

/// A descriptor that is closed, on every path, where nobody waits for it.
#[derive(Debug)]
pub struct Held {
    descriptor: ManuallyDrop<OwnedFd>,
    /// None for one that this process has made, and may close itself.
    closer: Option<Closer>,
}

impl Held {
    /// One that another process passed, or that descriptors from another process may lie in.
    pub fn passed(descriptor: OwnedFd, closer: &Closer) -> Held {
        Held { descriptor: ManuallyDrop::new(descriptor), closer: Some(closer.clone()) }
    }

    /// One that was made here, among others that were passed.
    pub fn own(descriptor: OwnedFd) -> Held {
        Held { descriptor: ManuallyDrop::new(descriptor), closer: None }
    }

    /// The descriptor itself, for whoever keeps it; it is not closed here.
    pub fn into_inner(self) -> OwnedFd {
        let mut held = ManuallyDrop::new(self);
        drop(held.closer.take());
        // SAFETY: what holds it is not dropped, so that it is taken here alone.
        unsafe { ManuallyDrop::take(&mut held.descriptor) }
    }

    /// A copy of it, for another process: closing that here is nothing while this is there.
    ///
    /// # Errors
    ///
    /// The process has too many descriptors.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: taken here alone, because what `into_inner` has taken from is not dropped; nobody looks at it behind this.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        match &self.closer {
            Some(closer) => closer.close(descriptor),
            None => drop(descriptor),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Waits where it is dropped until it is told something.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            // Whoever has gone without a word has told it too.
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_takes_long_keeps_nobody_waiting_and_is_counted_until_it_is_done() {
        let closer = Closer::start().expect("a thread");
        let (go_on, told) = mpsc::channel();
        closer.close(Slow(told));
        let (reader, writer) = io::pipe().expect("a pipe");
        let held = Held::passed(writer.into(), &closer);
        let copy = held.copy().expect("a copy");
        drop((held, Held::own(Held::passed(copy, &closer).into_inner())));
        assert_eq!(closer.waiting(), 2, "one is being closed, one waits behind it");
        go_on.send(()).expect("somebody waits for it");
        assert_eq!(io::read_to_string(reader).expect("a pipe"), "", "its end comes with the last copy");
        while closer.waiting() > 0 {
            crate::yield_core();
        }
    }
}
