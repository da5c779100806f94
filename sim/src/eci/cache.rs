//! The CPU's side: accesses at the second-level cache, its requests, grants and recalls, and the stores of its cores.

use super::core_state::Store;
use super::machine::{CacheWork, Data, Event, Machine, Message, Wait, Waiter, What};
use super::queues::Queue;
use crate::probe::queues::Probed;
use crate::protocol::homed::{Access, Copy, ToCache, ToHome};

impl Machine {
    /// A core's load at the second level, now: the line, unless it must wait for it.
    pub(super) fn load_at_l2(&mut self, core: u16, unit: u32) -> Option<Data> {
        self.perhaps_evict();
        if self.ask(unit, false, Waiter::Load(core)) {
            self.counters.l2_hits += 1;
            self.cores[usize::from(core)].fill(unit);
            return Some(self.cache[unit as usize].data);
        }
        None
    }

    /// A core's atomic operation at the second level, now: what it found, unless it must wait for the line.
    pub(super) fn atomic_at_l2(&mut self, core: u16, unit: u32) -> Option<u64> {
        self.perhaps_evict();
        self.ask(unit, true, Waiter::Combined(core)).then(|| self.perform_atomic(core, unit))
    }

    fn perform_atomic(&mut self, core: u16, unit: u32) -> u64 {
        let state = &mut self.cores[usize::from(core)];
        let (word, atomic) = state.atomic.take().expect("an atomic operation waits");
        let old = atomic.apply(&mut self.cache[unit as usize].data[word]);
        state.found = old;
        self.written(core, unit);
        old
    }

    /// An access: true if it may be made now; otherwise `waiter` waits for the line, which is asked for.
    fn ask(&mut self, unit: u32, write: bool, waiter: Waiter) -> bool {
        let line = &mut self.cache[unit as usize];
        let access = line.cached.access(write);
        if let Some(recorder) = self.recorder.as_mut().filter(|_| access != Access::Hit) {
            recorder.misses(waiter, unit, access, self.agenda.now);
        }
        match access {
            Access::Hit => return true,
            Access::Waits => {
                line.waiters.push(waiter);
                self.enters(Queue::Waiters, unit, self.agenda.now);
            }
            Access::Miss(request) => {
                line.waiters.push(waiter);
                line.asked = self.agenda.now;
                self.enters(Queue::Waiters, unit, self.agenda.now);
                self.enters(Queue::Asked, unit, self.agenda.now);
                self.begin_watch();
                self.ask_cache_unit(unit, CacheWork::Request(unit, request));
            }
        }
        false
    }

    /// Begins a transaction of a line, or lets it wait for its unit.
    fn ask_cache_unit(&mut self, unit: u32, work: CacheWork) {
        let at = self.transaction_unit_of(unit);
        let began = self.cache_units.begin(at, work);
        let queue = if began.is_some() { Queue::CacheUnit(at as u16) } else { Queue::CacheUnitWaits(at as u16) };
        self.enters(queue, unit, self.agenda.now);
        if let Some(work) = began {
            self.begin_cache_work(work);
        }
    }

    fn begin_cache_work(&mut self, work: CacheWork) {
        match work {
            CacheWork::Request(unit, request) => {
                let key = self.send_at(self.agenda.now, unit, What::ToHome(request), None);
                if let Some(recorder) = &mut self.recorder {
                    recorder.asks(key, unit);
                }
            }
            CacheWork::Recall(unit) => {
                self.cache[unit as usize].recall_holds = true;
                self.agenda.at(self.agenda.now + self.parameters.cache.recall_lookup, Event::AnswerRecall(unit));
            }
        }
    }

    fn end_cache_work(&mut self, unit: u32) {
        let (at, now) = (self.transaction_unit_of(unit), self.agenda.now);
        let Some(next) = self.cache_units.end(at) else {
            return self.leaves(Queue::CacheUnit(at as u16), unit, now);
        };
        let (CacheWork::Request(line, _) | CacheWork::Recall(line)) = next;
        self.leaves(Queue::CacheUnitWaits(at as u16), line, now);
        self.hands_over(Queue::CacheUnit(at as u16), unit, line);
        self.begin_cache_work(next);
    }

    pub(super) fn arrived_at_cache(&mut self, message: Message) {
        self.perhaps_evict();
        let unit = message.unit;
        match message.what {
            What::ToCache(ToCache::Recall) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.recall_came(unit);
                }
                self.ask_cache_unit(unit, CacheWork::Recall(unit));
            }
            What::ToCache(ToCache::Grant { exclusive }) => {
                self.granted(unit, exclusive, message.data.expect("a grant carries the line"));
            }
            What::ToCache(ToCache::Written) => {
                if let Some(answer) = self.cache[unit as usize].cached.written() {
                    self.tell_home(unit, answer);
                    self.end_recall(unit);
                }
            }
            What::ToHome(_) => unreachable!("it goes elsewhere"),
        }
    }

    pub(super) fn answer_recall(&mut self, unit: u32) {
        let cached = &mut self.cache[unit as usize].cached;
        let answer =
            if self.parameters.cache.writes_back_first { cached.recalled_writing_back() } else { cached.recalled() };
        let Some(answer) = answer else { return };
        self.tell_home(unit, answer);
        if !self.cache[unit as usize].cached.writing_back {
            self.end_recall(unit);
        }
    }

    fn end_recall(&mut self, unit: u32) {
        if std::mem::take(&mut self.cache[unit as usize].recall_holds) {
            self.end_cache_work(unit);
        }
    }

    /// Sends what the cache has to say of a line, and gives the message's key; where it no longer has the line, no core does.
    fn tell_home(&mut self, unit: u32, message: ToHome) -> u32 {
        if self.cache[unit as usize].cached.copy == Copy::Invalid {
            for core in &mut self.cores {
                core.drop_line(unit);
            }
        }
        self.note_copy(unit);
        let dirty = matches!(message, ToHome::Victim { dirty: true } | ToHome::Recalled { dirty: true, .. });
        let data = dirty.then(|| self.cache[unit as usize].data);
        self.send_at(self.agenda.now, unit, What::ToHome(message), data)
    }

    /// A line comes that was asked for: whoever can use it does, before it may be given up again.
    fn granted(&mut self, unit: u32, exclusive: bool, data: Data) {
        let line = &mut self.cache[unit as usize];
        line.cached.granted(exclusive);
        line.data = data;
        let waiters = std::mem::take(&mut line.waiters);
        waiters.iter().for_each(|_| self.leaves(Queue::Waiters, unit, self.agenda.now));
        self.leaves(Queue::Asked, unit, self.agenda.now);
        self.note_copy(unit);
        self.end_cache_work(unit);
        let mut again = Vec::new();
        for waiter in waiters {
            let usable = match waiter {
                Waiter::Load(_) | Waiter::Prefetch(_) => true,
                Waiter::Store(_) | Waiter::Combined(_) => exclusive,
            };
            if usable { self.use_line(waiter, unit) } else { again.push(waiter) }
        }
        if let Some(answer) = self.cache[unit as usize].cached.settle() {
            self.tell_home(unit, answer);
            self.end_recall(unit);
        }
        for waiter in again {
            if self.ask(unit, true, waiter) {
                self.use_line(waiter, unit);
            }
        }
    }

    /// Makes the access that has waited.
    fn use_line(&mut self, waiter: Waiter, unit: u32) {
        let back = self.agenda.now + self.parameters.cache.l2_to_core;
        if let Some(recorder) = &mut self.recorder {
            recorder.is_made(waiter, unit, self.agenda.now, back);
        }
        match waiter {
            Waiter::Load(core) => {
                let data = self.cache[unit as usize].data;
                let core = &mut self.cores[usize::from(core)];
                core.loaded = Some(data);
                core.fill(unit);
                let agent = core.agent;
                self.agenda.resume_at(agent, back);
            }
            Waiter::Prefetch(core) => self.prefetch_done(core, unit),
            Waiter::Store(core) => {
                // It is a hit: the grant was exclusive.
                let _ = self.cache[unit as usize].cached.access(true);
                self.perform_stores(core, unit);
            }
            Waiter::Combined(core) => {
                let _ = self.cache[unit as usize].cached.access(true);
                self.perform_atomic(core, unit);
                let agent = self.cores[usize::from(core)].agent;
                self.agenda.resume_at(agent, back);
            }
        }
    }

    // ---- prefetches ---------------------------------------------------------------------------------------------

    pub(super) fn prefetch_arrived(&mut self, core: u16, unit: u32) {
        if self.happens(self.disturbances.dropped_prefetches_permille) {
            return self.prefetch_ends(core);
        }
        if self.ask(unit, false, Waiter::Prefetch(core)) {
            self.prefetch_done(core, unit);
        }
    }

    fn prefetch_done(&mut self, core: u16, unit: u32) {
        self.cores[usize::from(core)].fill(unit);
        self.prefetch_ends(core);
    }

    fn prefetch_ends(&mut self, by: u16) {
        let back = self.agenda.now + self.parameters.cache.l2_to_core;
        let core = &mut self.cores[usize::from(by)];
        core.prefetches -= 1;
        let agent = core.agent;
        self.leaves(Queue::Prefetches(by), 0, self.agenda.now);
        if self.agenda.wait_of(agent) == Wait::Prefetch {
            self.agenda.resume_at(agent, back);
        }
    }

    // ---- stores -------------------------------------------------------------------------------------------------

    /// Takes a store into its core's buffer, which has room.
    pub(super) fn push_store(&mut self, core: u16, store: Store) {
        let there = self.agenda.now + self.parameters.cache.core_to_l2;
        self.cores[usize::from(core)].stores.push_back(Store { there, ..store });
        self.enters(Queue::StoreBuffer(core), store.unit, self.agenda.now);
        self.drain_at(core, there);
    }

    /// Lets the next store reach the second level at a time, or as soon after it as it can be there.
    fn drain_at(&mut self, core: u16, time: u64) {
        let state = &mut self.cores[usize::from(core)];
        let waits = state.stores.iter().enumerate().find(|(_, store)| !store.issued);
        let Some(there) = waits.filter(|(place, store)| !store.release || *place == 0).map(|(_, store)| store.there)
        else {
            return;
        };
        if !std::mem::replace(&mut state.draining, true) {
            self.agenda.at(time.max(there), Event::Drain(core));
        }
    }

    /// The next store reaches the second level.
    pub(super) fn drain(&mut self, core: u16) {
        self.perhaps_evict();
        let state = &mut self.cores[usize::from(core)];
        state.draining = false;
        let Some(place) = state.stores.iter().position(|store| !store.issued) else { return };
        let unit = state.stores[place].unit;
        state.stores[place].issued = true;
        if self.ask(unit, true, Waiter::Store(core)) {
            self.perform_stores(core, unit);
        }
        self.drain_at(core, self.agenda.now + self.parameters.cache.store_interval);
    }

    /// Performs a core's stores to a line that have reached the second level.
    fn perform_stores(&mut self, core: u16, unit: u32) {
        let state = &mut self.cores[usize::from(core)];
        let (data, before) = (&mut self.cache[unit as usize].data, state.stores.len());
        state.stores.retain(|store| {
            let performed = store.issued && store.unit == unit;
            if performed {
                store.apply(data);
            }
            !performed
        });
        state.performed = self.agenda.now;
        let (agent, performed) = (state.agent, before - state.stores.len());
        for left in (0..performed as u64).rev() {
            self.leaves_before(Queue::StoreBuffer(core), unit, self.agenda.now, left);
        }
        self.written(core, unit);
        if self.agenda.wait_of(agent) == Wait::Stores {
            self.agenda.resume_at(agent, self.agenda.now + self.parameters.cache.l2_to_core);
        }
        // One that waited for all before it may go on now.
        self.drain_at(core, self.agenda.now + self.parameters.cache.store_interval);
    }

    /// The first levels of the other cores lose a line that one has written.
    fn written(&mut self, by: u16, unit: u32) {
        self.note_copy(unit);
        for (core, state) in self.cores.iter_mut().enumerate() {
            if core != usize::from(by) {
                state.drop_line(unit);
            }
        }
    }

    // ---- evictions ----------------------------------------------------------------------------------------------

    /// A moment at which the cache may give a line up.
    pub(super) fn perhaps_evict(&mut self) {
        if !self.happens(self.disturbances.evictions_permille) {
            return;
        }
        let unit = self.draws.below(self.cache.len() as u64) as u32;
        if self.cache[unit as usize].cached.may_evict() {
            self.counters.evictions += 1;
            let victim = self.cache[unit as usize].cached.evict();
            let key = self.tell_home(unit, victim);
            if let Some(recorder) = &mut self.recorder {
                recorder.has_no_cause(key);
            }
        }
    }
}
