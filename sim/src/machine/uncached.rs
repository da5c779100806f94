//! What a core does past its caches: registers of a device, write-combining memory, non-temporal stores.
//!
//! | access | when it leaves the core | what waits for it |
//! |---|---|---|
//! | uncached store | at the front of the store buffer, one at a time | the stores behind it |
//! | uncached load | when no store is left, after flushing the write-combining buffers | the program |
//! | write-combining store | after every store before it, when its buffer is full, evicted or fenced | who needs its buffer |
//! | non-temporal store, flush of a line | at once, line by line | who needs its buffer, and fences |
//!
//! Stores to write-combining memory of the host become writes to memory, as non-temporal stores do; each keeps its buffer
//! until the home agents have answered. The buffers towards a device and towards memory are counted apart.

use conic_fabric::{Home, LINE_BYTES, Layout, Line, MemoryType};

use crate::parameters::Parameters;
use crate::pcie::uncached::Uncached;
use crate::pcie::write_combining::{Flush, WriteCombining};
use crate::protocol::{Ask, Asker, ToHome};

use super::access::{Step, WHOLE, merge};
use super::pcie::{Past, PcieEvent, Tlp};
use super::queues::Queue;
use super::stores::Store;
use super::{Event, Machine, Wait as W};
use crate::bytes::line_bytes;
use crate::probe::queues::Probed;

/// What a line is to the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Cached memory.
    WriteBack,
    /// A device's registers.
    DeviceUncached,
    /// A device's memory, mapped write-combining.
    DeviceCombining,
    /// The host's memory, mapped write-combining.
    MemoryCombining,
}

/// What each line of a region is to the cores; empty if all are cached memory.
///
/// # Panics
///
/// If the host's own memory is to be uncached: nothing in this project maps it so.
pub(crate) fn kinds(parameters: &Parameters, layout: &Layout) -> Vec<Kind> {
    if layout.segments().iter().all(|segment| segment.memory == MemoryType::WriteBack) {
        return Vec::new();
    }
    let mut kinds = vec![Kind::WriteBack; layout.bytes().div_ceil(LINE_BYTES) as usize];
    for segment in layout.segments() {
        let device = segment.home == Home::Nic && parameters.pcie.is_some();
        let kind = match segment.memory {
            MemoryType::WriteBack => continue,
            MemoryType::WriteCombining if device => Kind::DeviceCombining,
            MemoryType::WriteCombining => Kind::MemoryCombining,
            MemoryType::Uncached => {
                assert!(device, "{} is uncached, but no device behind PCIe has it", segment.name);
                Kind::DeviceUncached
            }
        };
        let first = (segment.start.0 / LINE_BYTES) as usize;
        kinds[first..first + segment.bytes.div_ceil(LINE_BYTES) as usize].fill(kind);
    }
    kinds
}

/// What of a core's accesses past its caches is under way.
#[derive(Debug)]
pub(crate) struct PastCaches {
    uncached: Option<Uncached>,
    /// The store at the front of the store buffer is on its way to a register.
    storing: bool,
    to_device: Option<WriteCombining>,
    to_memory: WriteCombining,
    /// Lines that write-combining buffers hold in part.
    gathered: Vec<(u32, Line)>,
    /// The lines of writes to memory that the home agents have not answered.
    unanswered: Vec<u32>,
    buffers: u32,
    /// The answer to the load of a register.
    pub answer: Option<Line>,
    /// For a device: something has come that its program may not have seen.
    pub news: bool,
}

impl PastCaches {
    pub fn new(parameters: &Parameters) -> PastCaches {
        let core = &parameters.core;
        PastCaches {
            uncached: parameters.pcie.as_ref().map(Uncached::new),
            storing: false,
            to_device: parameters.pcie.as_ref().map(|pcie| WriteCombining::to_device(core, pcie)),
            to_memory: WriteCombining::new(core.write_combining_buffers, 0, 0),
            gathered: Vec::new(),
            unanswered: Vec::new(),
            buffers: core.write_combining_buffers,
            answer: None,
            news: false,
        }
    }

    /// Gathers bytes of a line; whether they are the first.
    fn gather(&mut self, line: u32, bytes: u64, data: &Line) -> bool {
        let gathered = self.gathered.iter_mut().find(|(gathered, _)| *gathered == line);
        let first = gathered.is_none();
        match gathered {
            Some((_, gathered)) => merge(gathered, bytes, data),
            None => self.gathered.push((line, *data)),
        }
        first
    }

    /// Lines that write-combining buffers hold in part.
    pub fn gathering(&self) -> usize {
        self.gathered.len()
    }

    /// The buffers towards a device.
    pub fn combining_for_device(&self) -> Option<&WriteCombining> {
        self.to_device.as_ref()
    }

    /// Writes to memory that were not answered.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    fn take(&mut self, flush: &Flush) -> (u32, Line) {
        let line = (flush.region / LINE_BYTES) as u32;
        let place = self.gathered.iter().position(|&(gathered, _)| gathered == line);
        place.map_or((line, Line::ZERO), |place| self.gathered.swap_remove(place))
    }

    /// Whether a write to memory finds no buffer.
    #[inline(never)]
    pub fn lacks_buffer(&self) -> bool {
        !self.unanswered.is_empty() && self.unanswered.len() + self.to_memory.held() >= self.buffers as usize
    }

    /// Whether a buffer towards memory gathers stores to this line.
    fn gathers(&self, line: u32) -> bool {
        self.gathered.iter().any(|&(gathered, _)| gathered == line)
    }

    /// Whether all buffers gather stores: then no answer can free one.
    fn gather_all(&self) -> bool {
        self.to_memory.held() >= self.buffers as usize
    }

    /// Whether a write of this line to memory was not answered. The core's own later accesses come after it.
    #[inline(always)]
    pub fn writes(&self, line: u32) -> bool {
        !self.unanswered.is_empty() && self.unanswered.contains(&line)
    }

    /// Whether every write to memory was answered.
    pub fn is_answered(&self) -> bool {
        self.unanswered.is_empty()
    }
}

/// The runs of neighbouring bytes in a mask: the first one, and how many.
fn runs(mut bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || {
        let first = u64::from((bytes != 0).then(|| bytes.trailing_zeros())?);
        let count = u64::from((bytes >> first).trailing_ones());
        bytes &= !line_bytes(first, count);
        Some((first, count))
    })
}

impl Machine {
    /// What a line is to the cores.
    #[inline]
    pub(crate) fn kind(&self, line: u32) -> Kind {
        self.kinds.get(line as usize).copied().unwrap_or(Kind::WriteBack)
    }

    /// Whether everything before an agent's time has happened: then the present is there, and it may use what others use too.
    pub(crate) fn is_present(&mut self, id: usize) -> bool {
        let time = self.agents[id].time;
        time <= self.now || self.advance_to(time)
    }

    /// Stores to a line that is not cached memory.
    #[inline(never)]
    pub(crate) fn store_past_caches(&mut self, id: usize, line: u32, bytes: u64, data: &Line) -> Step<()> {
        let kind = self.kind(line);
        let agent = &mut self.agents[id];
        match kind {
            Kind::WriteBack => return Ok(()),
            Kind::DeviceUncached if agent.stores.len() >= agent.store_limit => return Err(W::StoreRoom),
            Kind::DeviceUncached => {
                let first = agent.stores.is_empty() && agent.reorder.is_empty();
                let after = agent.reorder.last();
                agent.stores.push_back(line, bytes, data, after);
                agent.time += self.timing.issue;
                let time = agent.time;
                self.enters(Queue::StoreBuffer(id as u16), 0, time - self.timing.issue);
                if first {
                    self.start_uncached_store(id, time);
                }
            }
            _ if !agent.stores.is_empty() => return Err(W::StoresDone),
            _ if !agent.reorder.is_empty() => return Err(W::LoadsDone),
            Kind::DeviceCombining => self.combine_for_device(id, line, bytes, data)?,
            Kind::MemoryCombining => self.combine_for_memory(id, line, bytes, data)?,
        }
        let agent = &mut self.agents[id];
        agent.operations += 1;
        agent.counters.accesses.stores += 1;
        Ok(())
    }

    /// Sends the store at the front of the store buffer, which is one to a register, unless it is on its way already.
    #[inline(never)]
    pub(crate) fn start_uncached_store(&mut self, id: usize, time: u64) {
        let past = &mut self.agents[id].past;
        if std::mem::replace(&mut past.storing, true) {
            return;
        }
        let Some(&Store { line, bytes, .. }) = self.agents[id].stores.front() else { return };
        let data = *self.agents[id].stores.data(0);
        self.evict_for_device(id, time);
        let Some(path) = self.agents[id].past.uncached.as_mut() else { return };
        let store = path.store(time);
        self.register_write(id, line, bytes, &data, store.at_root);
        self.enters(Queue::Uncached(id as u16), 0, store.leaves);
        self.agents[id].expect_own(store.done);
        let key = self.key(store.done, Self::source_of(id));
        self.queue.push(key, Event::UncachedStored { agent: id as u16 });
    }

    /// The store to a register at the front of the store buffer is done.
    #[inline(never)]
    pub(crate) fn uncached_stored(&mut self, id: usize) {
        let agent = &mut self.agents[id];
        agent.message_arrived(self.now);
        agent.not_pure();
        agent.past.storing = false;
        agent.stores.pop_front();
        agent.requested = agent.requested.saturating_sub(1);
        self.leaves(Queue::StoreBuffer(id as u16), 0, self.now);
        self.leaves(Queue::Uncached(id as u16), 0, self.now);
        self.perform_stores(id);
        self.use_fill_buffers(id);
        if self.agents[id].is_served() {
            self.make_ready(id);
        }
    }

    fn register_write(&mut self, id: usize, line: u32, bytes: u64, data: &Line, at_root: u64) {
        let tlp = self.port().tlps.insert(Tlp::RegisterWrite { agent: id as u16, line, bytes, data: *data });
        self.send_tlp(at_root, PcieEvent::FromCore(tlp as u32));
    }

    fn combine_for_device(&mut self, id: usize, line: u32, bytes: u64, data: &Line) -> Step<()> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        let port_free_from = self.port().link.free_from(crate::pcie::Way::ToDevice);
        let issue = self.timing.issue;
        let agent = &mut self.agents[id];
        let Some(combining) = agent.past.to_device.as_mut() else { return Ok(()) };
        let mut flushes = Vec::new();
        agent.time += issue;
        let mut time = agent.time;
        for (first, count) in runs(bytes) {
            let at = u64::from(line) * LINE_BYTES + first;
            time = combining.store(at, count as u32, time, port_free_from, |flush| flushes.push(flush));
        }
        agent.time = time;
        // What was flushed to make room is gone before this store's bytes join the line; it may be the line itself.
        let (before, own): (Vec<Flush>, Vec<Flush>) =
            flushes.into_iter().partition(|flush| flush.region != u64::from(line) * LINE_BYTES);
        self.flush_to_device(id, &before);
        if self.agents[id].past.gather(line, bytes, data) {
            self.enters(Queue::Gathering(id as u16), line, time);
        }
        self.flush_to_device(id, &own);
        Ok(())
    }

    fn flush_to_device(&mut self, id: usize, flushes: &[Flush]) {
        for flush in flushes {
            let (line, data) = self.agents[id].past.take(flush);
            self.leaves(Queue::Gathering(id as u16), line, flush.leaves);
            self.stays(Queue::Flushing(id as u16), flush.leaves, flush.free_from);
            for (at, count) in flush.writes() {
                self.register_write(id, line, line_bytes(at % LINE_BYTES, count), &data, flush.at_port);
            }
        }
    }

    /// Sends what the write-combining buffers towards the device hold, without waiting.
    fn evict_for_device(&mut self, id: usize, time: u64) {
        let Some(combining) = self.agents[id].past.to_device.as_mut() else { return };
        if combining.held() == 0 {
            return;
        }
        let mut flushes = Vec::new();
        combining.evict(time, 0, |flush| flushes.push(flush));
        self.flush_to_device(id, &flushes);
    }

    fn combine_for_memory(&mut self, id: usize, line: u32, bytes: u64, data: &Line) -> Step<()> {
        let issue = self.timing.issue;
        if !self.agents[id].past.gathers(line) {
            self.find_buffer(id)?;
        }
        let agent = &mut self.agents[id];
        agent.time += issue;
        let time = agent.time;
        let mut flushes = Vec::new();
        for (first, count) in runs(bytes) {
            let at = u64::from(line) * LINE_BYTES + first;
            agent.past.to_memory.store(at, count as u32, time, 0, |flush| flushes.push(flush));
        }
        let (before, own): (Vec<Flush>, Vec<Flush>) =
            flushes.into_iter().partition(|flush| flush.region != u64::from(line) * LINE_BYTES);
        self.flush_to_memory(id, &before);
        if self.agents[id].past.gather(line, bytes, data) {
            self.enters(Queue::Gathering(id as u16), line, time);
        }
        self.flush_to_memory(id, &own);
        Ok(())
    }

    /// Makes sure that a write to memory finds a buffer. Where all gather, the oldest is sent off: its place is free when that is answered.
    fn find_buffer(&mut self, id: usize) -> Step<()> {
        let past = &mut self.agents[id].past;
        if past.lacks_buffer() {
            return Err(W::WriteRoom);
        }
        if !past.gather_all() {
            return Ok(());
        }
        let agent = &mut self.agents[id];
        let mut flushes = Vec::new();
        agent.past.to_memory.evict_oldest(agent.time, 0, &mut |flush| flushes.push(flush));
        self.flush_to_memory(id, &flushes);
        Err(W::WriteRoom)
    }

    fn flush_to_memory(&mut self, id: usize, flushes: &[Flush]) {
        for flush in flushes {
            let (line, data) = self.agents[id].past.take(flush);
            self.leaves(Queue::Gathering(id as u16), line, flush.leaves);
            self.write_to_memory(id, line, flush.bytes, &data, flush.leaves);
        }
    }

    fn write_to_memory(&mut self, id: usize, line: u32, bytes: u64, data: &Line, time: u64) {
        let write = self.new_past(Past::CoreWrite { bytes, data: *data });
        let agent = &mut self.agents[id];
        agent.past.unanswered.push(line);
        let (node, asker) = (agent.node, Asker::Core(agent.core));
        self.enters(Queue::Unanswered(id as u16), line, time);
        let way = &self.ways[usize::from(node)];
        let arrives = time + way.core_to_home + way.home_lookup;
        let message = ToHome::Request { asker, ask: Ask::WriteMemory, has_data: false, write };
        self.send_home(arrives, Self::source_of(id), node, line, message);
    }

    /// The home agents have answered a write to memory.
    #[inline(never)]
    pub(crate) fn memory_written(&mut self, id: usize, line: u32) {
        let unanswered = &mut self.agents[id].past.unanswered;
        let write = unanswered.iter().position(|&written| written == line).expect("an answer to a write");
        unanswered.swap_remove(write);
        self.leaves(Queue::Unanswered(id as u16), line, self.now);
    }

    /// Stores a whole line of cached memory past the caches.
    pub(crate) fn store_nontemporal(&mut self, id: usize, line: u32, data: &Line) -> Step<()> {
        if self.kind(line) != Kind::WriteBack {
            return self.store(id, line, WHOLE, data);
        }
        self.send_past_caches(id, line, WHOLE, data)?;
        self.agents[id].counters.accesses.stores += 1;
        Ok(())
    }

    /// Writes a line back to memory and takes it out of every cache: a write past the caches of no byte, which a fence waits
    /// for. It costs memory a write where the line was clean too, which the real one does not.
    pub(crate) fn flush_line(&mut self, id: usize, line: u32) -> Step<()> {
        if self.kind(line) != Kind::WriteBack {
            return Ok(());
        }
        self.send_past_caches(id, line, 0, &Line::ZERO)
    }

    fn send_past_caches(&mut self, id: usize, line: u32, bytes: u64, data: &Line) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        let issue = self.timing.issue;
        let agent = &mut self.agents[id];
        agent.not_pure();
        if agent.stores.write(line) {
            return Err(W::StoresTo(line));
        }
        if !agent.reorder.is_empty() {
            return Err(W::LoadsDone);
        }
        self.find_buffer(id)?;
        let agent = &mut self.agents[id];
        agent.time += issue;
        agent.operations += 1;
        let time = agent.time;
        self.write_to_memory(id, line, bytes, data, time);
        Ok(())
    }

    /// Flushes the write-combining buffers and waits until they are free and every write to memory was answered. What the
    /// store buffer holds is not waited for: it stays in order by itself.
    pub(crate) fn store_fence(&mut self, id: usize) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        self.agents[id].not_pure();
        let to_memory = &mut self.agents[id].past.to_memory;
        if to_memory.held() > 0 {
            let mut flushes = Vec::new();
            let time = self.agents[id].time;
            self.agents[id].past.to_memory.evict(time, 0, |flush| flushes.push(flush));
            self.flush_to_memory(id, &flushes);
        }
        if !self.agents[id].past.is_answered() {
            return Err(W::WritesDone);
        }
        if self.agents[id].past.to_device.is_some() {
            if !self.is_present(id) {
                return Err(W::Time);
            }
            let port_free_from = self.port().link.free_from(crate::pcie::Way::ToDevice);
            let agent = &mut self.agents[id];
            let mut flushes = Vec::new();
            if let Some(combining) = agent.past.to_device.as_mut() {
                agent.time = combining.fence(agent.time, port_free_from, |flush| flushes.push(flush));
            }
            self.flush_to_device(id, &flushes);
        }
        Ok(())
    }

    /// Loads `length` bytes of a device's register, all in one line, and gives the line.
    pub(crate) fn load_register(&mut self, id: usize, at: u64, length: u32) -> Step<Line> {
        if let Some(answer) = self.agents[id].past.answer.take() {
            return Ok(answer);
        }
        if !self.may_act(id) {
            return Err(W::Time);
        }
        let agent = &mut self.agents[id];
        agent.not_pure();
        if !agent.stores.is_empty() {
            return Err(W::StoresDone);
        }
        if !agent.reorder.is_empty() {
            return Err(W::LoadsDone);
        }
        agent.operations += 1;
        agent.counters.accesses.loads += 1;
        let time = agent.time;
        self.evict_for_device(id, time);
        let Some(path) = self.agents[id].past.uncached.as_mut() else { return Ok(Line::ZERO) };
        let at_root = path.load(time);
        self.enters(Queue::Uncached(id as u16), 0, time);
        let tlp = self.port().tlps.insert(Tlp::RegisterRead { agent: id as u16, at, length });
        self.send_tlp(at_root, PcieEvent::FromCore(tlp as u32));
        Err(W::Register)
    }

    /// The answer to a core's load of a register is at the root port.
    pub(crate) fn register_loaded(&mut self, id: usize, line: u64) {
        let now = self.now;
        if let Some(path) = self.agents[id].past.uncached.as_mut() {
            let there = path.loaded(now);
            self.leaves(Queue::Uncached(id as u16), 0, there);
            self.note_answer_to_core(id, line, there);
            self.resume_at(id, there);
        }
    }
}
