//! Memory that outlives the agents that use it, and cores that die at a chosen operation.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Address, Core, LINE_WORDS, Layout, Line, Time};

use crate::death::{Death, Operation, die};
use crate::words::{Words, read_bytes, word_of_region, write_bytes};

/// The memory: sequential, and shared by any number of cores on one thread.
///
/// Every store is visible to the others at once. That is enough: on x86 the stores of a dead process become visible in
/// program order, so what a survivor finds is always the state after some number of the dead one's stores; and a core
/// whose last `k` buffered stores are lost leaves what it would have left had it died `k` stores earlier, which is
/// another death that [`crate::for_every_death`] tries.
#[derive(Clone, Debug)]
pub struct CrashMemory(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Words,
    words: Vec<Cell<u64>>,
    /// How often memory was written, so that spinning in vain is noticed.
    writes: Cell<u64>,
    now: Cell<Time>,
}

impl CrashMemory {
    /// A memory of zeroes.
    pub fn new(layout: &Layout) -> CrashMemory {
        let layout = Words::new(layout);
        let words = vec![Cell::new(0); layout.count()];
        CrashMemory(Rc::new(Inner { layout, words, writes: Cell::new(0), now: Cell::new(Time::ZERO) }))
    }

    /// A core for one agent; its name appears in messages.
    pub fn core(&self, agent: &str) -> CrashCore {
        CrashCore {
            memory: self.clone(),
            agent: agent.to_owned(),
            operations: Cell::new(0),
            dies_at: Cell::new(None),
            dead: Cell::new(false),
            spins: Cell::new(0),
            writes_at_spin: Cell::new(0),
        }
    }
}

/// One agent's core. It counts its operations, and dies before the one that it is told to.
///
/// | operation | points at which it can die |
/// |---|---|
/// | load, store, update of a word | before it |
/// | `read_line`, `read_bytes` | before it |
/// | `write_line`, `write_bytes`, `write_nontemporal` | before every word, so that lines tear |
/// | `publish_line` | before each of its three stores (32 bytes, 16, then the 16 with word 0), as natively |
///
/// Hints, `fence`, `spin` and `now` are no operations. What a destructor does while the agent dies changes nothing.
#[derive(Debug)]
pub struct CrashCore {
    memory: CrashMemory,
    agent: String,
    operations: Cell<u64>,
    dies_at: Cell<Option<u64>>,
    dead: Cell<bool>,
    spins: Cell<u64>,
    writes_at_spin: Cell<u64>,
}

impl CrashCore {
    /// Spins without any write by anyone between them that are taken for a hang.
    pub const SPINS_IN_VAIN: u64 = 10_000;

    /// Dies before operation number `operation`, counted from 1 since the core was made.
    pub fn die_at(&self, operation: u64) {
        self.dies_at.set(Some(operation));
    }

    /// How many operations it has done.
    pub fn operations(&self) -> u64 {
        self.operations.get()
    }

    /// Whether it died.
    pub fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Counts an operation, or dies of it.
    fn operation(&self, kind: Operation, at: Address) {
        if self.dead.get() {
            assert!(std::thread::panicking(), "`{}` is dead and cannot do a {kind:?}", self.agent);
            return;
        }
        let operation = self.operations.get() + 1;
        if self.dies_at.get() == Some(operation) {
            self.dead.set(true);
            let place = self.memory.0.layout.describe(at);
            die(Death { agent: self.agent.clone(), operation, kind, at, place });
        }
        self.operations.set(operation);
        self.memory.0.now.set(self.memory.0.now.get() + Time::from_nanoseconds(1));
    }

    fn get(&self, at: Address) -> u64 {
        self.memory.0.words[word_of_region(at)].get()
    }

    fn set(&self, at: Address, value: u64) {
        // A destructor that runs while the agent dies would not run in a killed process.
        if !self.dead.get() {
            self.memory.0.words[word_of_region(at)].set(value);
            self.memory.0.writes.set(self.memory.0.writes.get() + 1);
        }
    }

    fn layout(&self) -> &Words {
        &self.memory.0.layout
    }

    fn update(&self, at: Address, access: &str, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        self.layout().expect_synchronising(at, access);
        self.operation(Operation::Update, at);
        let old = self.get(at);
        if let Some(new) = change(old) {
            self.set(at, new);
        }
        old
    }

    /// Writes some words of a line, each a point of its own.
    fn write_words(&self, at: Address, line: &Line) {
        for (index, &value) in line.0.iter().enumerate() {
            self.operation(Operation::WriteLine, at.word(index));
            self.set(at.word(index), value);
        }
    }
}

impl Core for CrashCore {
    fn load_acquire(&self, at: Address) -> u64 {
        self.layout().expect_synchronising(at, "load_acquire");
        self.operation(Operation::LoadAcquire, at);
        self.get(at)
    }

    fn store_release(&self, at: Address, value: u64) {
        self.layout().expect_synchronising(at, "store_release");
        self.operation(Operation::StoreRelease, at);
        self.set(at, value);
    }

    /// A hint, and no operation: whatever it sees is as good.
    fn peek(&self, at: Address) -> Option<u64> {
        Some(self.get(at))
    }

    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.update(at, "fetch_and", |old| Some(old & bits))
    }

    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.update(at, "fetch_or", |old| Some(old | bits))
    }

    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.update(at, "compare_exchange", |old| (old == current).then_some(new));
        if old == current { Ok(old) } else { Err(old) }
    }

    fn load(&self, at: Address) -> u64 {
        self.layout().expect_owned(at, "load");
        self.operation(Operation::Load, at);
        self.get(at)
    }

    fn store(&self, at: Address, value: u64) {
        self.layout().expect_owned(at, "store");
        self.operation(Operation::Store, at);
        self.set(at, value);
    }

    fn read_line(&self, at: Address) -> Line {
        self.layout().line(at);
        self.operation(Operation::ReadLine, at);
        Line(std::array::from_fn(|index| self.get(at.word(index))))
    }

    fn write_line(&self, at: Address, line: &Line) {
        self.layout().expect_owned_line(at, "write_line");
        self.write_words(at, line);
    }

    fn publish_line(&self, at: Address, line: &Line) {
        self.layout().line(at);
        self.layout().expect_synchronising(at, "publish_line");
        for words in [4..LINE_WORDS, 2..4, 0..2] {
            self.operation(Operation::PublishLine, at.word(words.start));
            for index in words {
                self.set(at.word(index), line.0[index]);
            }
        }
    }

    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        self.operation(Operation::ReadBytes, at);
        read_bytes(at, into, |word| {
            self.layout().expect_owned(word, "read_bytes");
            self.get(word)
        });
    }

    fn write_bytes(&self, at: Address, from: &[u8]) {
        write_bytes(at, from, |word, change| {
            self.layout().expect_owned(word, "write_bytes");
            self.operation(Operation::WriteBytes, word);
            self.set(word, change(self.get(word)));
        });
    }

    fn register_write_line(&self, at: Address, line: &Line) {
        self.layout().line(at);
        self.write_words(at, line);
    }

    fn spin(&self) {
        let now = &self.memory.0.now;
        now.set(now.get() + Time::from_nanoseconds(1));
        let writes = self.memory.0.writes.get();
        let spins = if self.writes_at_spin.replace(writes) == writes { self.spins.get() + 1 } else { 1 };
        self.spins.set(spins);
        let agent = &self.agent;
        assert!(spins < Self::SPINS_IN_VAIN, "`{agent}` hangs: it spun {spins} times and nobody wrote anything");
    }

    fn spin_until(&self, until: Time) {
        let now = &self.memory.0.now;
        now.set(now.get().max(until));
        self.spin();
    }

    // One agent runs at a time: every store is visible at once.
    fn full_fence(&self) {}

    fn now(&self) -> Time {
        self.memory.0.now.get()
    }
}
