//! Shared memory made of loom's objects, and the deliberate weakenings that test the tests.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conic_fabric::{Address, Layout};
use loom::cell::Cell;
use loom::sync::atomic::AtomicU64;

use crate::LoomCore;
use crate::words::{Words, word_of_region};

/// What a mutation takes from a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weaken {
    /// `load_acquire` (and `register_read`) acquires nothing.
    RelaxedLoad,
    /// `store_release` (and `register_write`) releases nothing.
    RelaxedStore,
    /// `publish_line` releases nothing.
    RelaxedPublish,
    /// `publish_line` writes word 0, with release, before the other words.
    SignalFirst,
    /// `fetch_and`, `fetch_or` and `compare_exchange` acquire nothing.
    UpdateWithoutAcquire,
    /// `fetch_and`, `fetch_or` and `compare_exchange` release nothing.
    UpdateWithoutRelease,
    /// `fence` does nothing.
    NoFence,
    /// `full_fence`, and so either half of a pair of light and heavy fences, lets a load pass an earlier store.
    NoFullFence,
}

/// One deliberate weakening: everywhere, or of one segment's words, or of one agent's accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    pub(crate) weaken: Weaken,
    pub(crate) segment: Option<String>,
    pub(crate) agent: Option<String>,
}

impl Mutation {
    /// The weakening, everywhere.
    pub fn new(weaken: Weaken) -> Mutation {
        Mutation { weaken, segment: None, agent: None }
    }

    /// Only of words of the segment of that name. A fence has no address and cannot be so limited.
    pub fn of(mut self, segment: &str) -> Mutation {
        self.segment = Some(segment.to_owned());
        self
    }

    /// Only of accesses by the agent of that name (see [`LoomMemory::core`]).
    pub fn by(mut self, agent: &str) -> Mutation {
        self.agent = Some(agent.to_owned());
        self
    }
}

/// Unwinds an execution that touched more words than it has objects for; exploration starts again with more.
pub(crate) struct Outgrown;

/// Which loom object stands for which word. Learnt as words are touched, and kept from execution to execution.
#[derive(Debug)]
struct Slots {
    /// By word of the region; `NO_SLOT` where none was touched yet.
    of_word: Vec<u32>,
    synchronising: usize,
    owned: usize,
}

const NO_SLOT: u32 = u32::MAX;

/// What every execution of one exploration shares. Loom knows nothing of it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub words: Words,
    pub mutation: Option<Mutation>,
    slots: Mutex<Slots>,
    log: Mutex<Log>,
}

/// What happened, for messages.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The last access to an object of loom's, of which a race detected there is about: agent, access, word.
    pub last: Option<(&'static str, &'static str, Address)>,
    /// Executions begun.
    pub executions: u64,
    /// Accesses that the mutation weakened.
    pub weakened: u64,
}

impl Shared {
    pub fn new(layout: &Layout, mutation: Option<Mutation>) -> Shared {
        let words = Words::new(layout);
        let of_word = vec![NO_SLOT; words.count()];
        let slots = Mutex::new(Slots { of_word, synchronising: 0, owned: 0 });
        Shared { words, mutation, slots, log: Mutex::default() }
    }

    /// The log; a failed execution does not make it worse.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of one execution of a model.
///
/// A word that the layout calls synchronising is a `loom::sync::atomic::AtomicU64`, any other a race-detected
/// `loom::cell::Cell<u64>`: races are found word by word, so two sides may own different words of one line.
///
/// Loom's objects are dear (an atomic is a kilobyte), so only the words that the model touches have one: a supply is
/// made before the model's threads start, and a word takes one when it is first touched. It cannot be made at that
/// moment, because loom would take the making for a write that the other threads have not seen.
#[derive(Clone)]
pub struct LoomMemory(Arc<Objects>);

struct Objects {
    shared: Arc<Shared>,
    synchronising: Vec<AtomicU64>,
    owned: Vec<Cell<u64>>,
}

// SAFETY: loom runs every thread of a model as a coroutine of the one operating-system thread that explores, and its
// objects panic when they are touched anywhere else, so nothing here is ever reached from two threads.
unsafe impl Send for Objects {}
// SAFETY: as above.
unsafe impl Sync for Objects {}

impl fmt::Debug for LoomMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoomMemory").finish_non_exhaustive()
    }
}

impl LoomMemory {
    /// A memory of zeroes. To be called on the first thread of a model, before it starts others.
    pub(crate) fn new(shared: Arc<Shared>) -> LoomMemory {
        let (synchronising, owned) = {
            let slots = shared.slots();
            // Spare ones, so that a schedule that touches a few words more does not restart the exploration.
            (slots.synchronising + slots.synchronising / 4 + 4, slots.owned + slots.owned / 4 + 32)
        };
        LoomMemory(Arc::new(Objects {
            shared,
            synchronising: (0..synchronising).map(|_| AtomicU64::new(0)).collect(),
            owned: (0..owned).map(|_| Cell::new(0)).collect(),
        }))
    }

    /// A core for one agent. Its name appears in messages, and a [`Mutation`] may be limited to it.
    pub fn core(&self, agent: &'static str) -> LoomCore {
        LoomCore::new(self.clone(), agent)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// The object of a synchronising word.
    pub(crate) fn synchronising(&self, at: Address) -> &AtomicU64 {
        let slot = self.slot(at, |slots| &mut slots.synchronising);
        self.0.synchronising.get(slot).unwrap_or_else(|| resume_unwind(Box::new(Outgrown)))
    }

    /// The object of an owned word.
    pub(crate) fn owned(&self, at: Address) -> &Cell<u64> {
        let slot = self.slot(at, |slots| &mut slots.owned);
        self.0.owned.get(slot).unwrap_or_else(|| resume_unwind(Box::new(Outgrown)))
    }

    fn slot(&self, at: Address, next: impl Fn(&mut Slots) -> &mut usize) -> usize {
        let mut slots = self.shared().slots();
        let word = word_of_region(at);
        if slots.of_word[word] == NO_SLOT {
            let next = next(&mut slots);
            let slot = *next as u32;
            *next += 1;
            slots.of_word[word] = slot;
        }
        slots.of_word[word] as usize
    }
}
