//! Steps of a process that a test may watch, to stop the process exactly there: what it does to shared memory through a
//! [`crate::KeptCore`], and what it asks of the system to share it. Without the feature `steps` nothing of this is compiled, and
//! [`about_to`] is nothing.

#[cfg(feature = "steps")]
pub(crate) use watched::Watched;
#[cfg(feature = "steps")]
pub use watched::{Watcher, watch};

/// Says that a step is about to be done, by its name.
#[inline(always)]
pub fn about_to(name: &'static str) {
    #[cfg(feature = "steps")]
    watched::reach(name, None);
    let _ = name;
}

#[cfg(feature = "steps")]
mod watched {
    use std::sync::OnceLock;

    use conic_fabric::{Address, Core, Line, Time};

    use crate::NativeCore;

    /// Is told of each step before it is done: its name and, for an access to shared memory, where; by whichever thread does it.
    pub type Watcher = Box<dyn Fn(&'static str, Option<Address>) + Send + Sync>;

    static WATCHER: OnceLock<Watcher> = OnceLock::new();

    /// Has all steps of this process watched from now on; false if they are already.
    pub fn watch(watcher: Watcher) -> bool {
        WATCHER.set(watcher).is_ok()
    }

    #[inline]
    pub(super) fn reach(name: &'static str, at: Option<Address>) {
        if let Some(watcher) = WATCHER.get() {
            watcher(name, at);
        }
    }

    /// A core whose accesses are steps. Bytes are written in two steps, so that a process may end between them.
    #[derive(Clone, Debug)]
    pub(crate) struct Watched(pub NativeCore<'static>);

    impl Core for Watched {
        fn load_acquire(&self, at: Address) -> u64 {
            reach("load_acquire", Some(at));
            self.0.load_acquire(at)
        }
        fn store_release(&self, at: Address, value: u64) {
            reach("store_release", Some(at));
            self.0.store_release(at, value);
        }
        fn fetch_and(&self, at: Address, bits: u64) -> u64 {
            reach("fetch_and", Some(at));
            self.0.fetch_and(at, bits)
        }
        fn fetch_or(&self, at: Address, bits: u64) -> u64 {
            reach("fetch_or", Some(at));
            self.0.fetch_or(at, bits)
        }
        fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
            reach("compare_exchange", Some(at));
            self.0.compare_exchange(at, current, new)
        }
        fn load(&self, at: Address) -> u64 {
            reach("load", Some(at));
            self.0.load(at)
        }
        fn store(&self, at: Address, value: u64) {
            reach("store", Some(at));
            self.0.store(at, value);
        }
        fn read_line(&self, at: Address) -> Line {
            reach("read_line", Some(at));
            self.0.read_line(at)
        }
        fn write_line(&self, at: Address, line: &Line) {
            reach("write_line", Some(at));
            self.0.write_line(at, line);
        }
        fn publish_line(&self, at: Address, line: &Line) {
            reach("publish_line", Some(at));
            self.0.publish_line(at, line);
        }
        fn read_bytes(&self, at: Address, into: &mut [u8]) {
            reach("read_bytes", Some(at));
            self.0.read_bytes(at, into);
        }
        fn write_bytes(&self, at: Address, from: &[u8]) {
            let (first, second) = from.split_at(from.len() / 2);
            reach("write_bytes", Some(at));
            self.0.write_bytes(at, first);
            reach("write_bytes, half done", Some(at));
            self.0.write_bytes(at + first.len() as u64, second);
        }
        fn write_nontemporal(&self, at: Address, from: &[Line]) {
            reach("write_nontemporal", Some(at));
            self.0.write_nontemporal(at, from);
        }
        fn prefetch_read(&self, at: Address) {
            self.0.prefetch_read(at);
        }
        fn prefetch_write(&self, at: Address) {
            self.0.prefetch_write(at);
        }
        fn peek(&self, at: Address) -> Option<u64> {
            self.0.peek(at)
        }
        fn flush(&self, at: Address) {
            self.0.flush(at);
        }
        fn demote(&self, at: Address) {
            self.0.demote(at);
        }
        fn fence(&self) {
            self.0.fence();
        }
        fn full_fence(&self) {
            self.0.full_fence();
        }
        fn light_fence(&self) {
            self.0.light_fence();
        }
        fn heavy_fence(&self) {
            reach("heavy_fence", None);
            self.0.heavy_fence();
        }
        fn spin(&self) {
            self.0.spin();
        }
        fn now(&self) -> Time {
            self.0.now()
        }
    }
}
