//! A device that answers coherence messages, and a core that waits for its answers: two threads and a lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use conic_fabric::{
    Address, Arrival, Ask, Core, Device, Grant, Home, HomeAgent, LINE_BYTES, LINE_WORDS, Layout, Line, MemoryType,
    ReadTag, StateHint, Time,
};

use crate::words::{Words, read_bytes, word_of_region, write_bytes};

/// One core with a cache, one device, and the memory of both.
///
/// | memory | what it is here |
/// |---|---|
/// | the host's | plain words; a lock makes each access of either side one step, in program order |
/// | the device's, write-back | nothing but what the device answers: a miss becomes an [`Arrival`], and the core waits |
/// | the device's, uncached or write-combining | registers: the core writes words, the device reads them at once |
///
/// The core's cache keeps lines Shared, Exclusive or Modified. A store to an Exclusive line is silent; one to a Shared
/// or absent line asks for Exclusive. At moments that the seed chooses the cache gives a line up: before or after any
/// access of the core to the device's lines, while its request for another line waits, and between a recall's start and
/// its effect. Each side draws from a stream of its own, so where the two only ever alternate a seed replays a run.
///
/// Prefetches of the device's lines arrive in any order, after the loads that follow them or before; where the cache gives
/// lines up at all, one in eight is dropped.
#[derive(Clone, Debug)]
pub struct RendezvousMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    layout: Words,
    unit: u64,
    eviction_percent: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Shared,
    Exclusive,
    Modified,
}

/// The words of a coherence unit.
type Unit = Vec<u64>;

/// The core's request for a unit, which the device has or has not answered.
#[derive(Debug)]
struct Request {
    /// None: it has not arrived yet.
    id: Option<u64>,
    ask: Ask,
    /// Of a store: which word, and its new value.
    store: Option<(usize, u64)>,
    /// An access waits for it, and will take the answer.
    waited_for: bool,
    answer: Option<Unit>,
}

#[derive(Debug)]
struct State {
    words: Vec<u64>,
    cache: BTreeMap<Address, (Held, Unit)>,
    arrivals: VecDeque<Arrival>,
    /// At most one for each unit.
    requests: BTreeMap<Address, Request>,
    /// The units whose prefetch has not arrived.
    on_their_way: BTreeSet<Address>,
    recalls: BTreeMap<u64, Recall>,
    next_id: u64,
    now: u64,
    core_random: fastrand::Rng,
    device_random: fastrand::Rng,
    core_is_gone: bool,
    device_is_gone: bool,
}

#[derive(Clone, Copy, Debug)]
enum Recall {
    Asked(Address),
    Answered(bool),
}

impl RendezvousMemory {
    /// A memory of zeroes and an empty cache that gives lines up with a chance of `eviction_percent` in 100.
    pub fn new(layout: &Layout, seed: u64, eviction_percent: u64) -> RendezvousMemory {
        RendezvousMemory::with_unit(layout, seed, eviction_percent, LINE_BYTES)
    }

    /// The same with another coherence unit, a power of two of bytes.
    pub fn with_unit(layout: &Layout, seed: u64, eviction_percent: u64, unit: u64) -> RendezvousMemory {
        assert!(unit.is_power_of_two() && unit >= LINE_BYTES, "a coherence unit of {unit} bytes");
        let layout = Words::new(layout);
        let state = State::new(layout.count(), seed).into();
        RendezvousMemory(Arc::new(Shared { layout, unit, eviction_percent, state, changed: Condvar::new() }))
    }

    /// The two ends. Each goes to a thread of its own.
    pub fn ends(&self) -> (RendezvousCore, RendezvousDevice) {
        (RendezvousCore(self.clone()), RendezvousDevice(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // An end that panics says so by being gone; what it left is still whole.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now += 1;
        state
    }

    /// Whether a word is of a line that the device answers for.
    fn is_answered(&self, at: Address) -> bool {
        let segment = self.0.layout.segment(at);
        segment.home == Home::Nic && segment.memory == MemoryType::WriteBack
    }

    /// A word of the host's memory or of a register, for either side.
    fn plain(&self, at: Address) -> usize {
        assert!(!self.is_answered(at), "the device is home of {}, and answers for it", self.0.layout.describe(at));
        word_of_region(at)
    }

    /// The coherence unit of an address: its first line.
    fn unit(&self, at: Address) -> Address {
        Address(at.0 & !(self.0.unit - 1))
    }

    /// The device's copy of a unit.
    fn own(&self, state: &State, unit: Address) -> Unit {
        let first = word_of_region(unit);
        state.words[first..(first + self.0.unit as usize / 8).min(state.words.len())].to_vec()
    }

    fn update(&self, at: Address, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        let word = self.plain(at);
        let mut state = self.lock();
        let old = state.words[word];
        if let Some(new) = change(old) {
            state.words[word] = new;
        }
        old
    }
}

impl State {
    fn new(words: usize, seed: u64) -> State {
        State {
            words: vec![0; words],
            cache: BTreeMap::new(),
            arrivals: VecDeque::new(),
            requests: BTreeMap::new(),
            on_their_way: BTreeSet::new(),
            recalls: BTreeMap::new(),
            next_id: 0,
            now: 0,
            core_random: fastrand::Rng::with_seed(seed),
            device_random: fastrand::Rng::with_seed(!seed),
            core_is_gone: false,
            device_is_gone: false,
        }
    }

    fn arrive(&mut self, line: Address, ask: Ask) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.arrivals.push_back(Arrival { line, ask, id });
        id
    }

    /// Perhaps gives a unit up, as `random` says.
    fn perhaps_evict(&mut self, percent: u64, random: u64) {
        if random % 100 >= percent || self.cache.is_empty() {
            return;
        }
        let victim = (random >> 32) as usize % self.cache.len();
        let unit = *self.cache.keys().nth(victim).expect("a number below the cache's length");
        let changed = self.give_up(unit);
        self.arrive(unit, Ask::Evicted { changed });
    }

    /// A moment at which the cache may give a unit up, on the core's side.
    fn core_moment(&mut self, percent: u64) {
        let random = self.core_random.u64(..);
        self.perhaps_evict(percent, random);
    }

    /// Drops a unit from the cache; if it was modified, the device has its data now.
    fn give_up(&mut self, unit: Address) -> bool {
        match self.cache.remove(&unit) {
            Some((Held::Modified, data)) => {
                let first = word_of_region(unit);
                self.words[first..first + data.len()].copy_from_slice(&data);
                true
            }
            _ => false,
        }
    }

    /// Lets the prefetch of a unit arrive.
    fn arrive_prefetch(&mut self, unit: Address) {
        self.on_their_way.remove(&unit);
        let id = self.arrive(unit, Ask::Shared);
        let request = self.requests.get_mut(&unit).expect("a prefetch on its way has a request");
        request.id = Some(id);
    }
}

/// The core's end: loads of the device's lines wait until it answers.
#[derive(Debug)]
pub struct RendezvousCore(RendezvousMemory);

impl RendezvousCore {
    /// A moment at which the cache may give a line up.
    fn moment(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock();
        state.core_moment(self.0.0.eviction_percent);
        state
    }

    /// Reads, or writes, a word of one of the device's lines, between two such moments.
    fn access(&self, at: Address, store: Option<u64>) -> u64 {
        let value = self.access_once(at, store);
        drop(self.moment());
        value
    }

    fn access_once(&self, at: Address, store: Option<u64>) -> u64 {
        let unit = self.0.unit(at);
        let word = word_of_region(at) - word_of_region(unit);
        loop {
            let mut state = self.moment();
            match (state.cache.get_mut(&unit), store) {
                (Some((_, data)), None) => return data[word],
                (Some((held @ (Held::Exclusive | Held::Modified), data)), Some(value)) => {
                    *held = Held::Modified;
                    data[word] = value;
                    return value;
                }
                _ => {}
            }
            if let Some(prefetch) = state.requests.get_mut(&unit) {
                // A load takes the answer to its prefetch; a store waits for it and then asks to write.
                prefetch.waited_for = true;
                let answer = self.wait(state, unit);
                match store {
                    None => return answer[word],
                    Some(_) => continue,
                }
            }
            // A store to a shared copy gives the copy up for the writable line that it asks for.
            state.cache.remove(&unit);
            let ask = if store.is_some() { Ask::Exclusive } else { Ask::Shared };
            let id = Some(state.arrive(unit, ask));
            let store = store.map(|value| (word, value));
            state.requests.insert(unit, Request { id, ask, store, waited_for: true, answer: None });
            // Before the device can answer, because the choice of the line must not depend on who is faster.
            state.core_moment(self.0.0.eviction_percent);
            return self.wait(state, unit)[word];
        }
    }

    /// Waits for the answer to a request. The access that waits uses the answer itself, so a line that is recalled as
    /// soon as it arrives does not starve it.
    fn wait(&self, mut state: MutexGuard<'_, State>, unit: Address) -> Unit {
        loop {
            if let Some(answer) = state.requests.get_mut(&unit).and_then(|request| request.answer.take()) {
                state.requests.remove(&unit);
                return answer;
            }
            assert!(!state.device_is_gone, "the device went without an answer to {:?}", state.requests.get(&unit));
            state = self.0.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn get(&self, at: Address) -> u64 {
        if self.0.is_answered(at) { self.access(at, None) } else { self.0.lock().words[self.0.plain(at)] }
    }

    fn set(&self, at: Address, value: u64) {
        if self.0.is_answered(at) {
            self.access(at, Some(value));
        } else {
            self.0.lock().words[self.0.plain(at)] = value;
        }
    }
}

impl Drop for RendezvousCore {
    fn drop(&mut self) {
        self.0.lock().core_is_gone = true;
        self.0.0.changed.notify_all();
    }
}

impl Core for RendezvousCore {
    fn load_acquire(&self, at: Address) -> u64 {
        self.0.0.layout.expect_synchronising(at, "load_acquire");
        self.get(at)
    }

    fn store_release(&self, at: Address, value: u64) {
        self.0.0.layout.expect_synchronising(at, "store_release");
        self.set(at, value);
    }

    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.0.update(at, |old| Some(old & bits))
    }

    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.0.update(at, |old| Some(old | bits))
    }

    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.0.update(at, |old| (old == current).then_some(new));
        if old == current { Ok(old) } else { Err(old) }
    }

    fn load(&self, at: Address) -> u64 {
        self.0.0.layout.expect_owned(at, "load");
        self.get(at)
    }

    fn store(&self, at: Address, value: u64) {
        self.0.0.layout.expect_owned(at, "store");
        self.set(at, value);
    }

    fn read_line(&self, at: Address) -> Line {
        self.0.0.layout.line(at);
        Line(std::array::from_fn(|index| self.get(at.word(index))))
    }

    fn write_line(&self, at: Address, line: &Line) {
        self.0.0.layout.expect_owned_line(at, "write_line");
        self.register_write_line(at, line);
    }

    fn publish_line(&self, at: Address, line: &Line) {
        self.0.0.layout.expect_synchronising(at, "publish_line");
        for index in (0..LINE_WORDS).rev() {
            self.set(at.word(index), line.0[index]);
        }
    }

    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        read_bytes(at, into, |word| self.load(word));
    }

    fn write_bytes(&self, at: Address, from: &[u8]) {
        write_bytes(at, from, |word, change| self.store(word, change(self.load(word))));
    }

    fn register_write_line(&self, at: Address, line: &Line) {
        for (index, &value) in line.0.iter().enumerate() {
            self.set(at.word(index), value);
        }
    }

    fn prefetch_read(&self, at: Address) {
        if !self.0.is_answered(at) {
            return;
        }
        let unit = self.0.unit(at);
        let mut state = self.moment();
        let dropped = self.0.0.eviction_percent > 0 && state.core_random.u8(..8) == 0;
        if !dropped && !state.cache.contains_key(&unit) && !state.requests.contains_key(&unit) {
            let request = Request { id: None, ask: Ask::Shared, store: None, waited_for: false, answer: None };
            state.requests.insert(unit, request);
            state.on_their_way.insert(unit);
        }
    }

    fn coherence_unit(&self) -> u64 {
        self.0.0.unit
    }

    fn spin(&self) {
        std::thread::yield_now();
    }

    // Every access is made under one lock, in order.
    fn full_fence(&self) {}

    fn now(&self) -> Time {
        Time::from_nanoseconds(self.0.lock().now)
    }
}

/// The device's end: it reads and writes the host's memory, and answers for its own.
#[derive(Debug)]
pub struct RendezvousDevice(RendezvousMemory);

impl RendezvousDevice {
    /// Whether the core has gone, and nothing more will arrive once what has arrived is taken.
    pub fn core_is_gone(&self) -> bool {
        self.0.lock().core_is_gone
    }

    /// Lets the cache answer a recall, which it does by itself, whatever its core waits for.
    fn settle(&self, state: &mut State, tag: u64) {
        let Some(Recall::Asked(line)) = state.recalls.get(&tag).copied() else { return };
        let random = state.device_random.u64(..);
        state.perhaps_evict(self.0.0.eviction_percent, random);
        let changed = state.give_up(line);
        state.recalls.insert(tag, Recall::Answered(changed));
    }
}

impl Drop for RendezvousDevice {
    fn drop(&mut self) {
        self.0.lock().device_is_gone = true;
        self.0.0.changed.notify_all();
    }
}

impl Device for RendezvousDevice {
    fn start_read(&self, at: Address, _bytes: u64, _hint: StateHint) -> ReadTag {
        ReadTag(at.0)
    }

    fn is_ready(&self, _tag: &ReadTag) -> bool {
        true
    }

    fn finish_read(&self, _tag: ReadTag, at: Address, into: &mut [u8]) {
        read_bytes(at, into, |word| self.0.lock().words[self.0.plain(word)]);
    }

    fn read_word(&self, at: Address, _hint: StateHint) -> u64 {
        self.0.0.layout.expect_synchronising(at, "read_word");
        self.0.lock().words[self.0.plain(at)]
    }

    fn write(&self, at: Address, from: &[u8], _hint: StateHint) {
        write_bytes(at, from, |word, change| {
            self.0.update(word, |old| Some(change(old)));
        });
    }

    fn write_word(&self, at: Address, value: u64, _hint: StateHint) {
        self.0.0.layout.expect_synchronising(at, "write_word");
        self.0.update(at, |_| Some(value));
    }

    fn own_register(&self, at: Address) -> u64 {
        self.0.lock().words[self.0.plain(at)]
    }

    fn spin(&self) {
        std::thread::yield_now();
    }

    fn now(&self) -> Time {
        Time::from_nanoseconds(self.0.lock().now)
    }
}

impl HomeAgent for RendezvousDevice {
    fn next_arrival(&self) -> Option<Arrival> {
        let mut state = self.0.lock();
        let late = state.on_their_way.len();
        // No draw where there is nothing to draw: how often a device looks must not matter to a run without prefetches.
        if late > 0 {
            let random = state.device_random.u64(..);
            // One that is late comes at the latest when nothing else does.
            if state.arrivals.is_empty() || random.is_multiple_of(4) {
                let unit = state.on_their_way.iter().nth((random >> 32) as usize % late).copied();
                state.arrive_prefetch(unit.expect("a number below the set's length"));
            }
        }
        state.arrivals.pop_front()
    }

    fn answer(&self, arrival: Arrival, grant: Grant) {
        let mut state = self.0.lock();
        let mut data = self.0.own(&state, arrival.line);
        let request = state.requests.get_mut(&arrival.line);
        let request = request.filter(|request| request.id == Some(arrival.id) && request.answer.is_none());
        let request = request.unwrap_or_else(|| panic!("nobody waits for an answer to {arrival:?}"));
        let mut held = if grant == Grant::Exclusive { Held::Exclusive } else { Held::Shared };
        let writes = request.ask == Ask::Exclusive;
        assert!(!writes || grant == Grant::Exclusive, "a store needs the line at {} Exclusive", arrival.line);
        if let Some((word, value)) = request.store {
            data[word] = value;
            held = Held::Modified;
        }
        if request.waited_for {
            request.answer = Some(data.clone());
        } else {
            state.requests.remove(&arrival.line);
        }
        state.cache.insert(arrival.line, (held, data));
        self.0.0.changed.notify_all();
    }

    fn own_line(&self, at: Address) -> Line {
        let (state, first) = (self.0.lock(), word_of_region(at));
        Line(std::array::from_fn(|index| state.words[first + index]))
    }

    fn set_own_line(&self, at: Address, line: &Line) {
        let (mut state, first) = (self.0.lock(), word_of_region(at));
        assert!(!state.cache.contains_key(&self.0.unit(at)), "the line at {at} is in the core's cache");
        state.words[first..first + LINE_WORDS].copy_from_slice(&line.0);
    }

    fn start_recall(&self, at: Address) -> ReadTag {
        assert!(self.0.is_answered(at), "{} is not the device's to recall", self.0.0.layout.describe(at));
        let mut state = self.0.lock();
        // A shared copy may go while a store waits to write it; a load would wait for ever.
        let request = state.requests.get(&at).filter(|request| request.answer.is_none());
        let waits = request.is_some_and(|request| request.waited_for && request.ask == Ask::Shared);
        assert!(!waits, "the recall of the line at {at} waits for its load, and the load for the device");
        let tag = state.next_id;
        state.next_id += 1;
        state.recalls.insert(tag, Recall::Asked(at));
        ReadTag(tag)
    }

    fn is_recalled(&self, tag: &ReadTag) -> bool {
        let mut state = self.0.lock();
        // The first question comes too early, so that whoever does not ask again is found out.
        let answered = matches!(state.recalls.get(&tag.0), Some(Recall::Answered(_)));
        self.settle(&mut state, tag.0);
        answered
    }

    fn finish_recall(&self, tag: ReadTag) -> bool {
        let mut state = self.0.lock();
        self.settle(&mut state, tag.0);
        match state.recalls.remove(&tag.0) {
            Some(Recall::Answered(changed)) => changed,
            other => panic!("recall {} is not in flight: {other:?}", tag.0),
        }
    }
}
