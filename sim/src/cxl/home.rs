//! The home agents: a line's transactions one after the other, and the host's memory.

use conic_fabric::Line;

use super::checks::Mistake;
use super::machine::{Event, Machine, Message};
use super::queues::Queue;
use super::recorder;
use crate::probe::queues::Probed;
use crate::protocol::cxl::{Ask, Copy, Effect, Opcode, Side, Snoop, ToDevice, ToHost};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A core's load, by its number.
    Load(u16, u32),
    /// A core that wants to write.
    Own(u16),
    /// A core's non-temporal store.
    Nontemporal(u16),
    /// A core's flush.
    Flush(u16),
    /// The last-level cache.
    Eviction,
    /// The device.
    Device,
    /// A piece of a DMA transfer.
    Dma(u32),
}

/// What a home agent is asked.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) line: u32,
    pub(super) ask: Ask<Line>,
    pub(super) from: From,
}

/// A line's transaction under way.
#[derive(Clone, Debug)]
pub(super) struct Running {
    from: From,
    /// When what goes on beside the device's part is over: memory is read while the device is snooped, and the caches are while a
    /// write is pulled.
    beside: u64,
    /// What a DMA engine reads.
    value: Option<Line>,
    /// The device writes the line into the host's memory or cache.
    writes: bool,
    /// By a push, which is over for the device when its data are pulled.
    pushes: bool,
}

impl Running {
    /// The core that gets the line, if one does.
    pub(super) fn gets_line(&self) -> Option<u16> {
        core_of(self.from).filter(|_| matches!(self.from, From::Load(..) | From::Own(_)))
    }
}

impl Machine {
    /// A core asks a line's home agent.
    pub(super) fn ask_home(&mut self, job: Job, delay: u64) {
        let there = self.agenda.now + delay;
        let watched = self.recorder.is_some().then(|| (job.line, job.from, recorder::of_job(&job)));
        let key = self.jobs.insert(job) as u32;
        self.enters(Queue::Jobs, key, self.agenda.now);
        if let Some((line, from, name)) = watched {
            self.note_request(key, line, from, name, there);
        }
        self.agenda.at(there + self.parameters.host.home_lookup, Event::AtHome(key));
    }

    pub(super) fn at_home(&mut self, key: u32) {
        if let From::Dma(piece) = self.jobs[key as usize].from
            && self.dma_must_wait(piece)
        {
            self.dma_parked.push(key);
            return self.enters(Queue::BehindPosted, key, self.agenda.now);
        }
        let line = self.jobs[key as usize].line;
        if self.running.contains_key(&line) {
            // It stays what it is: put off, and taken for one that came anew, it would count twice.
            if let Some(recorder) = &mut self.recorder {
                recorder.puts_off(key);
            }
            return self.waits_for(line, key);
        }
        let job = self.jobs.remove(key as usize);
        self.leaves(Queue::Jobs, key, self.agenda.now);
        self.begin(job);
    }

    /// A request of the device has been looked up.
    pub(super) fn looked_up_at_home(&mut self, job: Job) {
        if self.jitter > 0 {
            let late = self.draws.below(self.jitter);
            let key = self.put_off(job);
            return self.agenda.at(self.agenda.now + late, Event::AtHome(key));
        }
        self.begin_or_wait(job);
    }

    fn begin_or_wait(&mut self, job: Job) {
        let line = job.line;
        if self.running.contains_key(&line) {
            let key = self.put_off(job);
            return self.waits_for(line, key);
        }
        self.begin(job);
    }

    /// A job waits until those before it on its line are over.
    fn waits_for(&mut self, line: u32, key: u32) {
        self.waiting.entry(line).or_default().push_back(key);
        self.enters(Queue::Requests, key, self.agenda.now);
    }

    /// Keeps a job that has come for later; its number.
    fn put_off(&mut self, job: Job) -> u32 {
        let key = self.jobs.insert(job) as u32;
        self.enters(Queue::Jobs, key, self.agenda.now);
        if let Some(recorder) = &mut self.recorder {
            recorder.puts_off(key);
        }
        key
    }

    fn begin(&mut self, job: Job) {
        self.note_job(&job);
        let Job { line, ask, from } = job;
        let writes = match &ask {
            Ask::DmaWrite { .. } => true,
            Ask::Device(opcode) => matches!(opcode, Opcode::WriteInvalidate { .. } | Opcode::WritePush),
            _ => false,
        };
        let pushes = matches!(ask, Ask::Device(Opcode::WritePush));
        self.running.insert(line, Running { from, beside: 0, value: None, writes, pushes });
        self.enters(Queue::Lines, line, self.agenda.now);
        let effects = self.lines[line as usize].host.begin(ask);
        self.perform(line, effects, true);
        if let From::Dma(piece) = from {
            self.dma_line_begins(piece);
        }
    }

    /// The device has answered.
    pub(super) fn answered(&mut self, line: u32, answer: ToHost<Line>) {
        let with_data = matches!(answer, ToHost::Snooped { data: Some(_), .. });
        let Running { writes, pushes, .. } = self.running[&line];
        let heard = self.perhaps_lost(answer);
        let effects = self.lines[line as usize].host.receive(heard);
        self.check_answer(line, &answer, (writes, pushes));
        self.perform(line, effects, !with_data);
    }

    /// An answer of the device's, unless a mistake loses it.
    fn perhaps_lost(&mut self, answer: ToHost<Line>) -> ToHost<Line> {
        match answer {
            ToHost::Pulled { data, bogus, .. } if self.errs(Mistake::LosesPull) => {
                ToHost::Pulled { data, bytes: 0, bogus }
            }
            other => other,
        }
    }

    /// Does what a transaction needs, in time; what was begun beside the device's part counts if `beside_counts`.
    fn perform(&mut self, line: u32, effects: Vec<Effect<Line>>, beside_counts: bool) {
        self.check_effects(line, &effects);
        let Running { from, beside, .. } = self.running[&line];
        let (now, asker) = (self.agenda.now, core_of(from));
        let mut time = if beside_counts { now.max(beside) } else { now };
        let before = self.recorder.as_mut().map(|recorder| recorder.goes_on(line, time > now));
        // Caches that were read need not be asked again for what becomes of their copies.
        let (mut caches_asked, snoop) = (false, snoop_of(&effects));
        let asks_device = effects.iter().any(|effect| matches!(effect, Effect::Send(_)))
            && !effects.iter().any(|effect| matches!(effect, Effect::Done(_)));
        for effect in effects {
            if let Some(core) = asker
                && matches!(effect, Effect::ReadMemory | Effect::Send(ToDevice::MemoryRead(_)))
            {
                self.cores[usize::from(core)].brought_in += 1;
            }
            match effect {
                Effect::Send(message) => self.send_at(time, Message::ToDevice(line, message)),
                Effect::ReadMemory => {
                    let ready = self.reads_memory(Side::Host, line);
                    self.note_memory_read(line, false, ready, asks_device);
                    if asks_device {
                        self.running.get_mut(&line).expect("it is under way").beside = ready;
                    } else {
                        time = time.max(ready);
                    }
                }
                Effect::WriteMemory => {
                    // Nobody waits for it; channels are told in the order of time.
                    let done = self.writes_memory(Side::Host, line);
                    self.note_memory_write(line, false, done);
                }
                Effect::ReadCaches => {
                    time = self.ask_caches(line, None, snoop, time);
                    caches_asked = true;
                }
                Effect::ShareCaches => {
                    if !caches_asked {
                        time = self.ask_caches(line, asker, snoop, time);
                    }
                    self.share(line, asker);
                }
                Effect::InvalidateCaches => {
                    let keeps = asker.filter(|_| matches!(from, From::Own(_)));
                    if !caches_asked {
                        time = self.ask_caches(line, keeps, snoop, time);
                    }
                    self.invalidate(line, keeps);
                    if asks_device {
                        self.goes_on_beside(line, time);
                    }
                }
                Effect::InstallLastLevel => self.install_last_level(line, true),
                Effect::Done(value) => self.ends(line, value, time),
            }
        }
        if let (Some(recorder), Some(before)) = (&mut self.recorder, before) {
            recorder.goes_back(before);
        }
        self.note_owners(line);
        self.check_line(line);
    }

    /// Has the caches asked for a line at a time; when they have answered.
    fn ask_caches(&mut self, line: u32, asker: Option<u16>, snoop: Snoop, asked: u64) -> u64 {
        let takes = self.time_of_caches(line, asker, snoop);
        self.note_caches(line, asker, snoop, asked, takes);
        asked + takes
    }

    /// The caches give a line up until a time, beside the device's part.
    fn goes_on_beside(&mut self, line: u32, until: u64) {
        self.running.get_mut(&line).expect("it is under way").beside = until;
        if let Some(recorder) = &mut self.recorder {
            recorder.goes_on_beside(line);
        }
    }

    /// A transaction has nothing more to wait for at a time; then its asker is told.
    fn ends(&mut self, line: u32, value: Option<Line>, time: u64) {
        let running = self.running.get_mut(&line).expect("it is under way");
        running.value = value;
        let from = running.from;
        let back = if core_of(from).is_some() { self.parameters.host.home_to_core } else { 0 };
        if let Some(recorder) = &mut self.recorder {
            let granted = recorder::of_grant(self.lines[line as usize].host.copy);
            let told = recorder::told(from, |core| self.cores[usize::from(core)].agent, granted);
            recorder.ends(line, told, time, time + back);
        }
        self.agenda.at(time + back, Event::Finishes(line));
    }

    /// How long it takes to have what the caches hold of a line, other than the asker's own.
    fn time_of_caches(&self, line: u32, asker: Option<u16>, snoop: Snoop) -> u64 {
        let p = &self.parameters.host;
        let own = asker.map_or(0, |core| 1 << core);
        let state = &self.lines[line as usize];
        if asker.is_some() && state.holders & own != 0 && state.holders & !own == 0 {
            return 0;
        }
        let others = state.holders & !own;
        let in_last_level = self.last_level.has(line);
        // A line that a core may have modified is asked for there, and one that is to go is taken away there; of one that cores share, what
        // it holds is in the last level, or in memory.
        if others != 0 && (snoop == Snoop::Invalidate || !in_last_level || state.host.copy.is_alone()) {
            p.home_to_core + p.snoop_lookup + p.core_to_home
        } else if in_last_level {
            p.llc_read
        } else {
            0
        }
    }

    /// Cores share a line, the asker among them; the last-level cache has it too if several do.
    fn share(&mut self, line: u32, asker: Option<u16>) {
        let state = &mut self.lines[line as usize];
        let before = state.holders;
        if let Some(core) = asker {
            state.holders |= 1 << core;
            self.reads_last_level(line);
        }
        let state = &self.lines[line as usize];
        let others = before & !asker.map_or(0, |core| 1 << core);
        if state.host.copy != Copy::Invalid && others != 0 && !self.last_level.has(line) {
            self.install_last_level(line, false);
        }
    }

    /// The copies of all cores but one go, and that of the last-level cache.
    fn invalidate(&mut self, line: u32, but: Option<u16>) {
        let keep = but.map_or(0, |core| 1 << core);
        let gone = self.lines[line as usize].holders & !keep;
        let errs = gone != 0 && but.is_none() && self.errs(Mistake::KeepsLine);
        for core in (0..self.cores.len() as u16).filter(|core| gone >> core & 1 == 1) {
            self.loses(core, line);
        }
        self.lines[line as usize].holders = if errs { gone } else { keep };
        self.leaves_last_level(line, but.is_some());
    }

    /// A line goes for want of room in the last-level cache.
    pub(super) fn give_up(&mut self, line: u32) {
        self.begin_or_wait(Job { line, ask: Ask::Evict, from: From::Eviction });
    }

    /// A transaction is over, and whoever asked has what it asked for; the next may begin.
    pub(super) fn finishes(&mut self, line: u32) {
        let Running { from, value, writes, .. } = self.running.remove(&line).expect("it was under way");
        self.leaves(Queue::Lines, line, self.agenda.now);
        if writes {
            self.note_landing(line);
        }
        match from {
            From::Load(core, load) => self.load_arrived(core, load, line),
            From::Own(core) => self.owned(core, line),
            From::Nontemporal(core) => self.stored_past_caches(core, line),
            From::Flush(core) => self.nontemporal_done(core, line),
            From::Dma(piece) => self.dma_line_done(piece, line, value),
            From::Eviction | From::Device => {}
        }
        self.note_owners(line);
        let Some(queue) = self.waiting.get_mut(&line) else { return };
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&line);
        }
        if let Some(next) = next {
            if let Some(recorder) = &mut self.recorder {
                recorder.has_its_turn(next);
            }
            let job = self.jobs.remove(next as usize);
            self.leaves(Queue::Requests, next, self.agenda.now);
            self.leaves(Queue::Jobs, next, self.agenda.now);
            self.begin_or_wait(job);
        }
    }

    /// Whether a line's home agent has decided about what a core asks, and its answer has not come to the core. The protocol's state
    /// of the line is already that after the answer.
    pub(super) fn is_answering(&self, core: u16, line: u32) -> bool {
        self.running.get(&line).is_some_and(|running| core_of(running.from) == Some(core))
    }

    /// Who asks in the transaction of a line that is under way, if one is.
    pub(super) fn asker_of(&self, line: u32) -> Option<From> {
        self.running.get(&line).map(|running| running.from)
    }

    /// Says whose wait has no end.
    pub(super) fn stuck(&self) -> Vec<String> {
        let host = self.running.iter().map(|(line, running)| format!("line {line} for {:?}", running.from));
        host.chain(self.pending.keys().map(|line| format!("the device for line {line}"))).collect()
    }
}

/// How cores are snooped for what has to be done.
fn snoop_of(effects: &[Effect<Line>]) -> Snoop {
    let any = |wanted: fn(&Effect<Line>) -> bool| effects.iter().any(wanted);
    if any(|effect| matches!(effect, Effect::InvalidateCaches)) {
        Snoop::Invalidate
    } else if any(|effect| matches!(effect, Effect::ShareCaches)) {
        Snoop::Data
    } else {
        Snoop::Current
    }
}

/// The core that asks, if one does.
fn core_of(from: From) -> Option<u16> {
    match from {
        From::Load(core, _) | From::Own(core) | From::Nontemporal(core) | From::Flush(core) => Some(core),
        From::Eviction | From::Device | From::Dma(_) => None,
    }
}
