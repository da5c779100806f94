//! A core whose every access loom sees.

use std::cell::{Cell, RefCell};

use conic_fabric::{Address, Core, LINE_WORDS, Line, MemoryType, Time};
use loom::sync::atomic::Ordering;

use crate::words::{read_bytes, write_bytes};
use crate::{LoomMemory, Weaken};

/// One agent's view of a [`LoomMemory`].
///
/// | the seam's | is loom's |
/// |---|---|
/// | `load_acquire`, `store_release` | an atomic load with acquire, a store with release |
/// | `fetch_and`, `fetch_or`, `compare_exchange` | an update that acquires and releases (a failed exchange acquires) |
/// | `load`, `store`, lines and bytes | accesses to race-detected cells, word by word |
/// | `read_line` of synchronising words | relaxed loads |
/// | `publish_line` | words 1 to 7 (synchronising ones relaxed), then word 0 with release |
/// | `write_nontemporal`, `register_write_line` to write-combining memory | race-checked at once, written by the next `fence`, update, own access to the line, or end of the core: as late as the processor may |
/// | `spin` | a yield: another thread must run before this one does again |
/// | `now` | a nanosecond more at each call |
#[derive(Debug)]
pub struct LoomCore {
    memory: LoomMemory,
    agent: &'static str,
    /// Lines in this core's write-combining buffers, oldest first.
    buffered: RefCell<Vec<(Address, Line)>>,
    calls_of_now: Cell<u64>,
}

impl LoomCore {
    pub(crate) fn new(memory: LoomMemory, agent: &'static str) -> LoomCore {
        LoomCore { memory, agent, buffered: RefCell::default(), calls_of_now: Cell::new(0) }
    }

    /// Whether the exploration's mutation weakens this access.
    fn weakened(&self, weaken: Weaken, at: Option<Address>) -> bool {
        let shared = self.memory.shared();
        let Some(mutation) = &shared.mutation else { return false };
        let in_segment = match (&mutation.segment, at) {
            (None, _) => true,
            (Some(name), Some(at)) => shared.words.segment(at).name == *name,
            (Some(_), None) => false,
        };
        let applies =
            mutation.weaken == weaken && in_segment && mutation.agent.as_deref().is_none_or(|name| name == self.agent);
        shared.log().weakened += u64::from(applies);
        applies
    }

    /// Notes an access, so that a race that loom detects in it has a name.
    fn note(&self, access: &'static str, at: Address) {
        self.memory.shared().log().last = Some((self.agent, access, at));
    }

    /// Access to a synchronising word.
    #[track_caller]
    fn synchronising(&self, at: Address, access: &'static str) -> &loom::sync::atomic::AtomicU64 {
        self.memory.shared().words.expect_synchronising(at, access);
        self.drain_line(at);
        self.note(access, at);
        self.memory.synchronising(at)
    }

    /// Access to an owned word.
    #[track_caller]
    fn owned(&self, at: Address, access: &'static str) -> &loom::cell::Cell<u64> {
        self.memory.shared().words.expect_owned(at, access);
        self.drain_line(at);
        self.note(access, at);
        self.memory.owned(at)
    }

    /// Applies an update to a synchronising word.
    #[track_caller]
    fn update(&self, at: Address, access: &'static str) -> (&loom::sync::atomic::AtomicU64, Ordering, Ordering) {
        self.memory.shared().words.expect_synchronising(at, access);
        // A locked instruction empties the write-combining buffers.
        self.drain();
        self.note(access, at);
        let acquires = !self.weakened(Weaken::UpdateWithoutAcquire, Some(at));
        let releases = !self.weakened(Weaken::UpdateWithoutRelease, Some(at));
        let success = match (acquires, releases) {
            (true, true) => Ordering::AcqRel,    // The seam's contract for an update.
            (true, false) => Ordering::Acquire,  // Weakened on purpose: a check must catch it.
            (false, true) => Ordering::Release,  // Weakened on purpose, as above.
            (false, false) => Ordering::Relaxed, // Weakened on purpose, as above.
        };
        // Acquire: the seam's contract for an update that fails; Relaxed: weakened on purpose.
        let failure = if acquires { Ordering::Acquire } else { Ordering::Relaxed };
        (self.memory.synchronising(at), success, failure)
    }

    /// Writes one word of a line, by its kind; a synchronising one without ordering.
    fn write_word(&self, at: Address, value: u64, access: &'static str) {
        self.note(access, at);
        if self.memory.shared().words.is_synchronising(at) {
            // Relaxed: whoever publishes the line orders it, by its word 0 or by a fence.
            self.memory.synchronising(at).store(value, Ordering::Relaxed);
        } else {
            self.memory.owned(at).set(value);
        }
    }

    /// Puts a line into a write-combining buffer. Its owned words are checked for races now, and again when written.
    fn buffer(&self, at: Address, line: Line, access: &'static str) {
        for word in (0..LINE_WORDS).map(|index| at.word(index)) {
            if !self.memory.shared().words.is_synchronising(word) {
                self.note(access, word);
                let cell = self.memory.owned(word);
                cell.set(cell.get());
            }
        }
        self.buffered.borrow_mut().push((at, line));
    }

    /// Writes what is buffered.
    fn drain(&self) {
        for (at, line) in self.buffered.take() {
            for (index, &value) in line.0.iter().enumerate() {
                self.write_word(at.word(index), value, "a write-combining buffer emptied");
            }
        }
    }

    /// Writes what is buffered if this line is: a core sees its own stores.
    fn drain_line(&self, at: Address) {
        if self.buffered.borrow().iter().any(|(line, _)| *line == at.line()) {
            self.drain();
        }
    }
}

impl Drop for LoomCore {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.drain();
        }
    }
}

impl Core for LoomCore {
    fn load_acquire(&self, at: Address) -> u64 {
        let weakened = self.weakened(Weaken::RelaxedLoad, Some(at));
        // Acquire: what the contract promises; relaxed: the mutation that a test must notice.
        let ordering = if weakened { Ordering::Relaxed } else { Ordering::Acquire };
        self.synchronising(at, "load_acquire").load(ordering)
    }

    fn store_release(&self, at: Address, value: u64) {
        let weakened = self.weakened(Weaken::RelaxedStore, Some(at));
        // Release: what the contract promises; relaxed: the mutation that a test must notice.
        let ordering = if weakened { Ordering::Relaxed } else { Ordering::Release };
        self.synchronising(at, "store_release").store(value, ordering);
    }

    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        let (word, ordering, _) = self.update(at, "fetch_and");
        word.fetch_and(bits, ordering)
    }

    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        let (word, ordering, _) = self.update(at, "fetch_or");
        word.fetch_or(bits, ordering)
    }

    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        let (word, success, failure) = self.update(at, "compare_exchange");
        word.compare_exchange(current, new, success, failure)
    }

    fn load(&self, at: Address) -> u64 {
        self.owned(at, "load").get()
    }

    fn store(&self, at: Address, value: u64) {
        self.owned(at, "store").set(value);
    }

    fn read_line(&self, at: Address) -> Line {
        self.memory.shared().words.line(at);
        let mut line = Line::ZERO;
        for (index, value) in line.0.iter_mut().enumerate() {
            let word = at.word(index);
            *value = if self.memory.shared().words.is_synchronising(word) {
                // Relaxed: the contract lets a line read bring no ordering.
                self.synchronising(word, "read_line").load(Ordering::Relaxed)
            } else {
                self.owned(word, "read_line").get()
            };
        }
        line
    }

    fn write_line(&self, at: Address, line: &Line) {
        self.memory.shared().words.expect_owned_line(at, "write_line");
        for (index, &value) in line.0.iter().enumerate() {
            self.owned(at.word(index), "write_line").set(value);
        }
    }

    fn publish_line(&self, at: Address, line: &Line) {
        let words = &self.memory.shared().words;
        words.line(at);
        words.expect_synchronising(at, "publish_line");
        self.drain_line(at);
        let relaxed = self.weakened(Weaken::RelaxedPublish, Some(at));
        let signal_first = self.weakened(Weaken::SignalFirst, Some(at));
        // Release: whoever acquires word 0 sees the seven words before it.
        let ordering = if relaxed { Ordering::Relaxed } else { Ordering::Release };
        let signal = || {
            self.note("publish_line", at);
            self.memory.synchronising(at).store(line.0[0], ordering);
        };
        if signal_first {
            signal();
        }
        for index in 1..LINE_WORDS {
            self.write_word(at.word(index), line.0[index], "publish_line");
        }
        if !signal_first {
            signal();
        }
    }

    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        read_bytes(at, into, |word| self.owned(word, "read_bytes").get());
    }

    fn write_bytes(&self, at: Address, from: &[u8]) {
        write_bytes(at, from, |word, change| {
            let cell = self.owned(word, "write_bytes");
            cell.set(change(cell.get()));
        });
    }

    fn write_nontemporal(&self, at: Address, from: &[Line]) {
        for (index, line) in from.iter().enumerate() {
            let at = at.lines(index as u64);
            self.memory.shared().words.expect_owned_line(at, "write_nontemporal");
            self.buffer(at, *line, "write_nontemporal");
        }
    }

    fn fence(&self) {
        if !self.weakened(Weaken::NoFence, None) {
            self.drain();
        }
    }

    fn full_fence(&self) {
        self.drain();
        if self.weakened(Weaken::NoFullFence, None) {
            return;
        }
        // SeqCst: the seam's contract, the one ordering that keeps a load behind an earlier store.
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    fn register_write_line(&self, at: Address, line: &Line) {
        if self.memory.shared().words.line(at).memory == MemoryType::WriteCombining {
            self.buffer(at, *line, "register_write_line");
        } else {
            for (index, &value) in line.0.iter().enumerate() {
                self.write_word(at.word(index), value, "register_write_line");
            }
        }
    }

    fn spin(&self) {
        loom::thread::yield_now();
    }

    fn now(&self) -> Time {
        self.calls_of_now.set(self.calls_of_now.get() + 1);
        Time::from_nanoseconds(self.calls_of_now.get())
    }
}
