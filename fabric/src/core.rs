//! The core face of the seam: how a processor core, or a core that plays a device, touches shared memory.

use crate::{Address, Line, Time};

/// One core's view of shared memory.
///
/// An interface's host half and its device half are each written once against this trait (a device half that wants a
/// device's requests, against [`crate::Device`]) and run natively, simulated, model-checked and crash-injected. Every
/// method takes `&self`: natively the implementation is a base pointer and nothing else.
///
/// # Words
///
/// | kind | who may touch it | how | what it costs natively |
/// |---|---|---|---|
/// | synchronising | both sides, at any time | the methods of the first group | a load, a store, or one locked instruction |
/// | owned | the side that the protocol names | `load`, `store`, the line and byte methods | a plain load or store |
///
/// Which word is which is said once, in the [`crate::Layout`]; the loom world refuses a synchronising access to an owned
/// word and detects a race on one.
///
/// # Contract
///
/// An address must lie in the region, words 8-byte aligned and lines 64-byte aligned. The native world checks that in
/// debug builds only, so whoever computes an address from what a peer wrote must check it first.
///
/// # Blocking
///
/// No method waits for the other side, except a load from a line whose home answers when it chooses (coherent
/// programmed I/O). A loop that waits must call [`Core::spin`] in every round that made no progress: natively a hint to
/// the core, in simulation the point at which the agent may be parked, under loom the point at which others run.
pub trait Core {
    // ---- synchronising words ------------------------------------------------------------------------------------

    /// Loads a synchronising word; what its writer wrote before its release is visible after it.
    fn load_acquire(&self, at: Address) -> u64;
    /// Stores a synchronising word; what this core wrote before is visible to whoever acquires it.
    fn store_release(&self, at: Address, value: u64);
    /// Clears the bits of a synchronising word that are clear in `bits`, and returns what it was (acquire and release).
    fn fetch_and(&self, at: Address, bits: u64) -> u64;
    /// Sets the bits of a synchronising word that are set in `bits`, and returns what it was (acquire and release).
    fn fetch_or(&self, at: Address, bits: u64) -> u64;
    /// Replaces a synchronising word if it is `current` (acquire and release).
    ///
    /// # Errors
    ///
    /// What the word was instead.
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64>;

    // ---- owned words, lines and bytes ---------------------------------------------------------------------------

    /// Loads an owned word.
    fn load(&self, at: Address) -> u64;
    /// Stores an owned word.
    fn store(&self, at: Address, value: u64);
    /// Reads a whole line. Synchronising words in it are read without ordering: acquire one first.
    fn read_line(&self, at: Address) -> Line;
    /// Writes a whole line of owned words.
    fn write_line(&self, at: Address, line: &Line);
    /// Writes a whole line so that its word 0, a synchronising one, becomes visible last, with release ordering.
    ///
    /// A consumer that acquires word 0 and then reads the line sees all of it. Natively three stores (32 bytes, 16, then
    /// the 16 that hold word 0), in that order: no architecture promises that 64 bytes appear at once.
    fn publish_line(&self, at: Address, line: &Line);
    /// Reads whole lines; their misses overlap.
    fn read_lines(&self, at: Address, into: &mut [Line]) {
        for (index, line) in into.iter_mut().enumerate() {
            *line = self.read_line(at.lines(index as u64));
        }
    }
    /// Writes whole lines of owned words.
    fn write_lines(&self, at: Address, from: &[Line]) {
        for (index, line) in from.iter().enumerate() {
            self.write_line(at.lines(index as u64), line);
        }
    }
    /// Copies whole lines of owned words from one place in the region to another; the reads' misses overlap.
    fn copy_lines(&self, from: Address, to: Address, lines: u64) {
        for index in 0..lines {
            self.write_line(to.lines(index), &self.read_line(from.lines(index)));
        }
    }
    /// Has an engine copy whole lines of owned words from one place in the region to another, and then store `value` into the
    /// synchronising word `done`: whoever acquires it sees the copy. What this core wrote before is what is copied, and
    /// until then nobody may touch either place. A core that has no engine, as natively, copies now, by itself.
    fn post_copy(&self, from: Address, to: Address, lines: u64, done: Address, value: u64) {
        self.copy_lines(from, to, lines);
        // Release, pairs with the acquire of whoever waits for the copy: the lines were written before.
        self.store_release(done, value);
    }
    /// Reads bytes, at any alignment. Synchronising words among them are read without ordering: acquire one first.
    fn read_bytes(&self, at: Address, into: &mut [u8]);
    /// Writes bytes of owned words, at any alignment.
    fn write_bytes(&self, at: Address, from: &[u8]);
    /// Writes whole lines of owned words past the caches (`vmovntdq`). They may become visible after later stores:
    /// [`Core::fence`] before anything that announces them.
    fn write_nontemporal(&self, at: Address, from: &[Line]) {
        self.write_lines(at, from);
    }

    // ---- the cache ----------------------------------------------------------------------------------------------

    /// Asks for a line to read soon (`prefetcht0`). A real instruction, with a real cost, in every world that has costs.
    fn prefetch_read(&self, _at: Address) {}
    /// Asks for a line to write soon, with ownership (`prefetchw`).
    fn prefetch_write(&self, _at: Address) {}
    /// Declares that the program loads this line after `cycles` more of work, as [`Core::work`] counts them, whatever the
    /// loads before it bring: its branches are predicted. An out-of-order core has issued that load by now if its reorder
    /// buffer reaches so far. Nothing natively; in simulation the load then starts here. Never a substitute for
    /// [`Core::prefetch_read`]: that one is an instruction.
    fn will_read(&self, _at: Address, _cycles: u32) {}
    /// Looks at a word that the other side may be writing, to ask for what it names with [`Core::prefetch_read`], and for nothing else:
    /// what is done with a word is done after another, acquired reading. Natively a load; an out-of-order core goes on while its
    /// line is on its way. In simulation what this core has in its caches; what it has not is on its way from then on. None
    /// there, and in worlds where nothing costs anything.
    fn peek(&self, _at: Address) -> Option<u64> {
        None
    }
    /// Keeps a word that was computed, or stored, by itself in a register of its own until it is stored: the compiler does not load
    /// it together with its neighbours. A load that takes in several recent stores cannot have them from the store buffer; it waits
    /// until they are in the cache, behind every older store, and so behind lines that are still on their way to this core. No
    /// instruction, and nothing but the word in other worlds.
    fn in_register(&self, word: u64) -> u64 {
        word
    }
    /// Declares that what follows depends on this line, which was read as bulk data: an out-of-order core, too, waits here.
    /// Nothing natively.
    fn depends_on(&self, _at: Address) {}
    /// Writes a line back and drops it from every cache (`clflushopt`).
    fn flush(&self, _at: Address) {}
    /// Moves a line towards the shared cache, where the other side finds it sooner (`cldemote`); a hint.
    fn demote(&self, _at: Address) {}
    /// Orders non-temporal and write-combining stores before every later store (`sfence`).
    fn fence(&self) {}

    /// Orders every earlier access before every later one, earlier stores before later loads included (`mfence`): for
    /// whoever says that it goes to sleep and then looks once more, and between the store and the load of a line pair.
    fn full_fence(&self);

    /// The half of a pair of fences that stands in the path of every burst: with [`Core::heavy_fence`] on the other side, which
    /// then pays for both, this core's earlier stores are ordered before its later loads, as seen by that side. Natively,
    /// where both processes have arranged it, it costs nothing; elsewhere it is a [`Core::full_fence`].
    fn light_fence(&self) {
        self.full_fence();
    }
    /// The other half, for whoever is about to sleep: it makes every core that may be in the middle of a
    /// [`Core::light_fence`]'s store and load go through a full fence, and is one here. Some microseconds natively.
    fn heavy_fence(&self) {
        self.full_fence();
    }

    // ---- news of lines ------------------------------------------------------------------------------------------

    /// Watches a line, as a device does that acts on the snoops which take its copies away: from now on [`Core::changed`] may
    /// give `tag`, once, when this core no longer has the copy that it has now. False, and nothing is watched, where the
    /// core is told of no snoops, as natively: whoever asked must look by itself.
    ///
    /// A line is watched until the tag has been given. No change is missed by whoever watches a line and then looks at it
    /// once more; that nothing has changed when a tag comes is possible, as when the line was merely evicted.
    fn watch(&self, _at: Address, _tag: u64) -> bool {
        false
    }
    /// The tag of a watched line that may have changed, those first that went first. What the line holds now is another load.
    fn changed(&self) -> Option<u64> {
        None
    }

    // ---- device registers ---------------------------------------------------------------------------------------

    /// Reads a 64-bit register. Its [`crate::MemoryType`] decides what that is: an uncached load that waits for the
    /// device, or, for a register that is a line of coherent memory, `load_acquire`.
    fn register_read(&self, at: Address) -> u64 {
        self.load_acquire(at)
    }
    /// Reads two neighbouring 64-bit registers, 16-byte aligned, in one load where that is possible; elsewhere the first is
    /// acquired before the second is read.
    fn register_read_pair(&self, at: Address) -> [u64; 2] {
        // Acquire on the first: the second, and what was written before it, is at least as new.
        let first = self.load_acquire(at);
        [first, self.load_acquire(at.word(1))]
    }
    /// Writes a 64-bit register: an uncached posted store, or, in coherent memory, `store_release`. What this core
    /// wrote to write-back memory before is visible to the device once it sees the register.
    fn register_write(&self, at: Address, value: u64) {
        self.store_release(at, value);
    }
    /// Writes a line to write-combining memory; it leaves when its buffer is full, evicted, or fenced.
    fn register_write_line(&self, at: Address, line: &Line) {
        self.write_line(at, line);
    }

    // ---- progress and time --------------------------------------------------------------------------------------

    /// Says that this round made no progress, and that the next will not either unless a line that it reads changes: a simulated
    /// world may skip rounds that read the same lines, so a loop must not count them, nor wait for a time without saying which
    /// ([`Core::spin_until`]).
    fn spin(&self);
    /// Like [`Core::spin`], and that nothing need happen here before `until` unless a line that was read since the last
    /// spin changes: a simulated world may skip the rounds between, with the same result.
    fn spin_until(&self, _until: Time) {
        self.spin();
    }
    /// The time.
    fn now(&self) -> Time;
    /// Says that the code just did `cycles` of work that touches no shared memory. Nothing natively, where it takes the
    /// time it takes.
    fn work(&self, _cycles: u32) {}
    /// Bytes that move between caches as one, a power of two of at least 64.
    fn coherence_unit(&self) -> u64 {
        crate::LINE_BYTES
    }
}

/// Makes a type a core that hands every call to another: `delegate_core!([generics] Type, self => expression)`, where the
/// expression is a reference to the other core.
#[macro_export]
macro_rules! delegate_core {
    ([$($generics:tt)*] $type:ty, $self:ident => $lent:expr) => {
        impl<$($generics)*> $crate::Core for $type {
            #[inline(always)]
            #[track_caller]
            fn load_acquire(&$self, at: $crate::Address) -> u64 {
                $crate::Core::load_acquire($lent, at)
            }
            #[inline(always)]
            fn store_release(&$self, at: $crate::Address, value: u64) {
                $crate::Core::store_release($lent, at, value);
            }
            #[inline(always)]
            fn fetch_and(&$self, at: $crate::Address, bits: u64) -> u64 {
                $crate::Core::fetch_and($lent, at, bits)
            }
            #[inline(always)]
            fn fetch_or(&$self, at: $crate::Address, bits: u64) -> u64 {
                $crate::Core::fetch_or($lent, at, bits)
            }
            #[inline(always)]
            fn compare_exchange(&$self, at: $crate::Address, current: u64, new: u64) -> Result<u64, u64> {
                $crate::Core::compare_exchange($lent, at, current, new)
            }
            #[inline(always)]
            #[track_caller]
            fn load(&$self, at: $crate::Address) -> u64 {
                $crate::Core::load($lent, at)
            }
            #[inline(always)]
            fn store(&$self, at: $crate::Address, value: u64) {
                $crate::Core::store($lent, at, value);
            }
            #[inline(always)]
            #[track_caller]
            fn read_line(&$self, at: $crate::Address) -> $crate::Line {
                $crate::Core::read_line($lent, at)
            }
            #[inline(always)]
            fn write_line(&$self, at: $crate::Address, line: &$crate::Line) {
                $crate::Core::write_line($lent, at, line);
            }
            #[inline(always)]
            fn publish_line(&$self, at: $crate::Address, line: &$crate::Line) {
                $crate::Core::publish_line($lent, at, line);
            }
            #[inline(always)]
            #[track_caller]
            fn read_lines(&$self, at: $crate::Address, into: &mut [$crate::Line]) {
                $crate::Core::read_lines($lent, at, into);
            }
            #[inline(always)]
            fn write_lines(&$self, at: $crate::Address, from: &[$crate::Line]) {
                $crate::Core::write_lines($lent, at, from);
            }
            #[inline(always)]
            #[track_caller]
            fn copy_lines(&$self, from: $crate::Address, to: $crate::Address, lines: u64) {
                $crate::Core::copy_lines($lent, from, to, lines);
            }
            #[inline(always)]
            #[track_caller]
            fn post_copy(&$self, from: $crate::Address, to: $crate::Address, lines: u64, done: $crate::Address, value: u64) {
                $crate::Core::post_copy($lent, from, to, lines, done, value);
            }
            #[inline(always)]
            #[track_caller]
            fn read_bytes(&$self, at: $crate::Address, into: &mut [u8]) {
                $crate::Core::read_bytes($lent, at, into);
            }
            #[inline(always)]
            fn write_bytes(&$self, at: $crate::Address, from: &[u8]) {
                $crate::Core::write_bytes($lent, at, from);
            }
            #[inline(always)]
            fn write_nontemporal(&$self, at: $crate::Address, from: &[$crate::Line]) {
                $crate::Core::write_nontemporal($lent, at, from);
            }
            #[inline(always)]
            fn prefetch_read(&$self, at: $crate::Address) {
                $crate::Core::prefetch_read($lent, at);
            }
            #[inline(always)]
            fn prefetch_write(&$self, at: $crate::Address) {
                $crate::Core::prefetch_write($lent, at);
            }
            #[inline(always)]
            #[track_caller]
            fn will_read(&$self, at: $crate::Address, cycles: u32) {
                $crate::Core::will_read($lent, at, cycles);
            }
            #[inline(always)]
            fn peek(&$self, at: $crate::Address) -> Option<u64> {
                $crate::Core::peek($lent, at)
            }
            #[inline(always)]
            fn in_register(&$self, word: u64) -> u64 {
                $crate::Core::in_register($lent, word)
            }
            #[inline(always)]
            fn depends_on(&$self, at: $crate::Address) {
                $crate::Core::depends_on($lent, at);
            }
            #[inline(always)]
            fn flush(&$self, at: $crate::Address) {
                $crate::Core::flush($lent, at);
            }
            #[inline(always)]
            fn demote(&$self, at: $crate::Address) {
                $crate::Core::demote($lent, at);
            }
            #[inline(always)]
            fn fence(&$self) {
                $crate::Core::fence($lent);
            }
            #[inline(always)]
            fn full_fence(&$self) {
                $crate::Core::full_fence($lent);
            }
            #[inline(always)]
            fn light_fence(&$self) {
                $crate::Core::light_fence($lent);
            }
            fn heavy_fence(&$self) {
                $crate::Core::heavy_fence($lent);
            }
            #[inline(always)]
            #[track_caller]
            fn watch(&$self, at: $crate::Address, tag: u64) -> bool {
                $crate::Core::watch($lent, at, tag)
            }
            #[inline(always)]
            fn changed(&$self) -> Option<u64> {
                $crate::Core::changed($lent)
            }
            #[inline(always)]
            #[track_caller]
            fn register_read(&$self, at: $crate::Address) -> u64 {
                $crate::Core::register_read($lent, at)
            }
            #[inline(always)]
            #[track_caller]
            fn register_read_pair(&$self, at: $crate::Address) -> [u64; 2] {
                $crate::Core::register_read_pair($lent, at)
            }
            #[inline(always)]
            fn register_write(&$self, at: $crate::Address, value: u64) {
                $crate::Core::register_write($lent, at, value);
            }
            #[inline(always)]
            fn register_write_line(&$self, at: $crate::Address, line: &$crate::Line) {
                $crate::Core::register_write_line($lent, at, line);
            }
            #[inline(always)]
            fn spin(&$self) {
                $crate::Core::spin($lent);
            }
            #[inline(always)]
            fn spin_until(&$self, until: $crate::Time) {
                $crate::Core::spin_until($lent, until);
            }
            #[inline(always)]
            fn now(&$self) -> $crate::Time {
                $crate::Core::now($lent)
            }
            #[inline(always)]
            fn work(&$self, cycles: u32) {
                $crate::Core::work($lent, cycles);
            }
            #[inline(always)]
            fn coherence_unit(&$self) -> u64 {
                $crate::Core::coherence_unit($lent)
            }
        }
    };
}

// A reference to a core is a core, so that a test may keep the world and lend it.
delegate_core!([C: Core + ?Sized] &C, self => &**self);
