//! What may happen next, and what follows.

use conic_interface::pio::protocol::{Action, Event, Outcome, Phase};
use conic_sim::protocol::homed::{Access, Copy, Heard, Recall, ToCache, ToHome};

use super::mutation::Mutation;
use super::state::{Data, Kind, Message, Place, Prefetch, Setting, State, Value, Variant};

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The CPU's program goes on.
    Cpu,
    /// A buffered store reaches the cache.
    Store,
    /// It prefetches the n-th line of the response.
    Prefetch(u8),
    /// The data of the response is loaded before its control; a mistake.
    ReadAhead,
    /// A message arrives.
    Arrive(u8),
    /// The cache gives a line up.
    Evict(u16),
    /// A prefetcher asks for a line.
    Prefetcher(u16),
    /// The device has what is in the n-th line of its response.
    Fill(u16),
    /// The device has its response.
    Respond,
    /// A timer runs out.
    Expire(u8),
}

impl Step {
    /// Those of which none waits for ever while it may happen, a bit each; zero for what need never happen.
    pub fn fairness(self, state: &State) -> u16 {
        match self {
            Step::Cpu => 1,
            Step::Respond => 2,
            Step::Store => 4,
            Step::Arrive(place) => {
                let Message { line, kind, .. } = state.messages[usize::from(place)];
                8 << (2 * line + u16::from(matches!(kind, Kind::ToHome(_))))
            }
            _ => 0,
        }
    }
}

/// All steps that may be taken.
pub fn steps(setting: &Setting, mutation: Mutation, state: &State, steps: &mut Vec<Step>) {
    let cpu = &state.cpu;
    if Change::next_access(setting, state).is_none_or(|(line, write)| can_issue(setting, state, line, write)) {
        steps.push(Step::Cpu);
    }
    if cpu.buffered > 0 {
        let (line, _) = buffered_store(setting, state);
        if can_issue(setting, state, line, true) {
            steps.push(Step::Store);
        }
    }
    // The first line that has not been loaded.
    let prefetch_from = match (setting.prefetch, cpu.place) {
        (Prefetch::WithSignal, Place::Prefetch) => Some(0),
        (Prefetch::AfterControl, Place::Load(half @ 1..)) => Some((half / 2).max(1)),
        _ => None,
    };
    if let Some(from) = prefetch_from {
        let lines = setting.response_lines(cpu.current);
        for (place, &line) in (0..).zip(&lines) {
            if place >= from && cpu.prefetched >> place & 1 == 0 && can_issue(setting, state, line, false) {
                steps.push(Step::Prefetch(place));
            }
        }
    }
    let reads_ahead = mutation == Mutation::DataBeforeControl && setting.variant == Variant::Receive;
    if reads_ahead && cpu.place == Place::Prefetch && cpu.read_ahead.is_none() {
        steps.push(Step::ReadAhead);
    }
    for (place, message) in state.messages.iter().enumerate() {
        if (place == 0 || state.messages[place - 1] != *message) && can_arrive(setting, state, message) {
            steps.push(Step::Arrive(place as u8));
        }
    }
    for line in 0..setting.plan.lines() as u16 {
        let cached = &state.cached[usize::from(line)];
        // Two victims of one line on their way would be a third state of nothing new: the directory holds requests back.
        // Nor would a third word that the home has a line, which the cache waits for at recalls alone.
        let may_say = !setting.writes_back_first || state.written_under_way(line) < 2;
        if setting.evictions && cached.may_evict() && may_say {
            steps.push(Step::Evict(line));
        }
        let idle = cached.copy == Copy::Invalid && cached.asked.is_none();
        if setting.prefetcher && line < 2 * setting.plan.group && idle && can_issue(setting, state, line, false) {
            steps.push(Step::Prefetcher(line));
        }
    }
    if setting.fills && state.exchange.may_fill() {
        let lines = 1..setting.response_lines(cpu.current).len() as u16;
        steps.extend(lines.filter(|index| !state.exchange.filled().contains(*index)).map(Step::Fill));
    }
    if state.exchange.awaits_response() {
        steps.push(Step::Respond);
    }
    for (place, timer) in (0..).zip(&state.timers) {
        if setting.time_outs && timer.is_some() {
            steps.push(Step::Expire(place));
        }
    }
}

/// The buffered store that is next, and its half.
fn buffered_store(setting: &Setting, state: &State) -> (u16, usize) {
    let lines = setting.request_lines(state.cpu.current);
    let made = match state.cpu.place {
        Place::Write(half) => usize::from(half),
        _ => 2 * lines.len(),
    };
    let next = made - usize::from(state.cpu.buffered);
    (lines[next / 2], next % 2)
}

/// Transactions of a line's unit in the CPU's cache that wait for an answer.
fn transactions(setting: &Setting, state: &State, line: u16) -> (u8, u8) {
    let Some((units, slots)) = setting.units else { return (0, u8::MAX) };
    let unit = units[usize::from(line)];
    let waiting = state.cached.iter().zip(units).filter(|(cached, other)| *other == unit && cached.asked.is_some());
    (waiting.count() as u8, slots)
}

fn can_issue(setting: &Setting, state: &State, line: u16, write: bool) -> bool {
    let mut cached = state.cached[usize::from(line)];
    let (waiting, slots) = transactions(setting, state, line);
    match cached.access(write) {
        Access::Hit => true,
        Access::Miss(_) => waiting < slots,
        Access::Waits => false,
    }
}

fn can_arrive(setting: &Setting, state: &State, message: &Message) -> bool {
    let (waiting, slots) = transactions(setting, state, message.line);
    message.kind != Kind::ToCache(ToCache::Recall) || waiting < slots
}

/// A state that changes, and what is the same for all states.
pub struct Change<'a> {
    pub setting: &'a Setting,
    pub mutation: Mutation,
    pub state: &'a mut State,
    /// An exchange was completed.
    pub complete: bool,
}

impl Change<'_> {
    /// Takes a step; says what is wrong with it, if something is.
    pub fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Cpu => self.cpu(),
            Step::Store => {
                let (line, half) = buffered_store(self.setting, self.state);
                if self.access(line, true) {
                    self.state.cache_data[usize::from(line)][half] = Value::Request;
                    self.state.cpu.buffered -= 1;
                }
                Ok(())
            }
            Step::Prefetch(place) => {
                let line = self.setting.response_lines(self.state.cpu.current)[usize::from(place)];
                self.state.cpu.prefetched |= 1 << place;
                self.access(line, false);
                Ok(())
            }
            Step::ReadAhead => {
                let line = usize::from(self.setting.response_lines(self.state.cpu.current)[1]);
                self.state.cpu.read_ahead = Some(match self.state.cached[line].copy {
                    Copy::Invalid => self.state.home_data[line][0],
                    _ => self.state.cache_data[line][0],
                });
                Ok(())
            }
            Step::Arrive(place) => {
                let message = self.state.messages.remove(place.into());
                match message.kind {
                    Kind::ToHome(kind) => self.at_home(message.line, kind, message.data),
                    Kind::ToCache(kind) => self.at_cache(message.line, kind, message.data),
                }
            }
            Step::Evict(line) => {
                let victim = self.state.cached[usize::from(line)].evict();
                self.state.send(line, Kind::ToHome(victim));
                Ok(())
            }
            Step::Prefetcher(line) => {
                self.access(line, false);
                Ok(())
            }
            Step::Fill(index) => {
                if self.mutation == Mutation::FillsBeforeRecalled {
                    let current = (self.state.exchange.turn() & 1) as u16;
                    let _ = self.state.exchange.handle(Event::Recalled(self.setting.plan.line(current, index)));
                    self.drain()?;
                }
                self.event(Event::Filled(index))
            }
            Step::Respond => self.event(Event::Responded),
            Step::Expire(place) => {
                let turn = self.state.timers[usize::from(place)].take().expect("a timer that runs");
                self.event(Event::Expired(turn))
            }
        }
    }

    /// Makes an access, or asks for the line; says whether it was made.
    fn access(&mut self, line: u16, write: bool) -> bool {
        match self.state.cached[usize::from(line)].access(write) {
            Access::Hit => true,
            Access::Miss(request) => {
                self.state.send(line, Kind::ToHome(request));
                false
            }
            Access::Waits => false,
        }
    }

    /// The access that the CPU's program makes next.
    fn next_access(setting: &Setting, state: &State) -> Option<(u16, bool)> {
        let cpu = &state.cpu;
        match cpu.place {
            Place::Write(half) => Some((setting.request_lines(cpu.current)[usize::from(half / 2)], true)),
            Place::Prefetch => None,
            Place::Load(half) => Some((setting.response_lines(cpu.current)[usize::from(half / 2)], false)),
            Place::Settle(place) => Some((setting.response_lines(cpu.current)[usize::from(place)], false)),
        }
    }

    /// The program goes on by one step, which may be to ask for a line and wait.
    fn cpu(&mut self) -> Result<(), String> {
        let cpu = self.state.cpu;
        if self.mutation == Mutation::NoFence
            && let Place::Write(half) = cpu.place
        {
            self.state.cpu.buffered += 1;
            self.state.cpu.place = self.after_write(half);
            return Ok(());
        }
        let Some((line, write)) = Self::next_access(self.setting, self.state) else {
            self.state.cpu.place = Place::Load(0);
            return Ok(());
        };
        if self.access(line, write) { self.accessed(line) } else { Ok(()) }
    }

    fn after_write(&self, half: u8) -> Place {
        let last = 2 * self.setting.request_lines(self.state.cpu.current).len() - 1;
        if usize::from(half) == last { Place::Prefetch } else { Place::Write(half + 1) }
    }

    /// The program's access is made: what it reads or writes, and where the program goes.
    fn accessed(&mut self, line: u16) -> Result<(), String> {
        let at = usize::from(line);
        match self.state.cpu.place {
            Place::Write(half) => {
                self.state.cache_data[at][usize::from(half % 2)] = Value::Request;
                self.state.cpu.place = self.after_write(half);
                Ok(())
            }
            Place::Prefetch => Ok(()),
            Place::Load(0) if self.state.cache_data[at][0] == Value::TryAgain => {
                self.settle(1);
                Ok(())
            }
            Place::Load(half) => {
                let value = self.state.cache_data[at][usize::from(half % 2)];
                // The second half of the transmit's control line carries nothing.
                let nothing = self.setting.variant == Variant::Transmit && half == 1;
                if value != Value::Response && !nothing {
                    return Err(format!("the CPU reads {value:?} in half {half} of the response"));
                }
                if half == 2 && self.state.cpu.read_ahead.is_some_and(|value| value != Value::Response) {
                    return Err("the CPU has read old data before the control line".to_owned());
                }
                let lines = self.setting.response_lines(self.state.cpu.current).len();
                if usize::from(half) + 1 < 2 * lines {
                    self.state.cpu.place = Place::Load(half + 1);
                    return Ok(());
                }
                self.completed()
            }
            Place::Settle(place) => {
                self.settle(place + 1);
                Ok(())
            }
        }
    }

    /// After "try again", the lines that were prefetched are loaded, and then the other line.
    fn settle(&mut self, from: u8) {
        let lines = self.setting.response_lines(self.state.cpu.current).len() as u8;
        let cpu = &mut self.state.cpu;
        let next = (from..lines).find(|place| cpu.prefetched >> place & 1 == 1);
        match next {
            Some(place) if self.mutation != Mutation::ForgetsPrefetched => cpu.place = Place::Settle(place),
            _ => {
                (cpu.place, cpu.prefetched, cpu.read_ahead) = (Place::Prefetch, 0, None);
                if self.mutation != Mutation::TurnsOnlyOnResponse {
                    cpu.current = 1 - cpu.current;
                }
            }
        }
    }

    /// The CPU has its response.
    fn completed(&mut self) -> Result<(), String> {
        let has_request = self.setting.variant != Variant::Receive;
        if (has_request && !self.state.delivered) || !self.state.responded {
            return Err("an exchange ends that the device knows nothing of".to_owned());
        }
        if self.state.cpu.buffered > 0 {
            // A full store buffer holds the program up.
            return Ok(());
        }
        let cpu = &mut self.state.cpu;
        (cpu.prefetched, cpu.read_ahead) = (0, None);
        cpu.current = 1 - cpu.current;
        cpu.place = if has_request { Place::Write(0) } else { Place::Prefetch };
        (self.state.delivered, self.state.responded) = (false, false);
        self.state.parity = !self.state.parity;
        self.complete = true;
        self.state.rename(|value| if value == Value::TryAgain { value } else { Value::Old });
        Ok(())
    }

    fn at_cache(&mut self, line: u16, message: ToCache, data: Data) -> Result<(), String> {
        let at = usize::from(line);
        let cached = &mut self.state.cached[at];
        let answer = match message {
            ToCache::Recall => {
                // Only where something is asked for ahead of its signal.
                let early = self.setting.prefetch == Prefetch::WithSignal && self.setting.variant == Variant::Receive;
                let ahead = self.setting.prefetcher || early;
                if cached.asked.is_some() && self.mutation == Mutation::None && !ahead {
                    return Err(format!("a recall of line {line} meets a request for it"));
                }
                if self.setting.writes_back_first { cached.recalled_writing_back() } else { cached.recalled() }
            }
            ToCache::Written => cached.written(),
            ToCache::Grant { exclusive } => {
                let write = cached.asked.ok_or("a grant that nobody asked for")?;
                if write && !exclusive {
                    return Err(format!("a store to line {line} is answered with a shared copy"));
                }
                cached.granted(exclusive);
                self.state.cache_data[at] = data;
                self.use_once(line, write)?;
                self.state.cached[at].settle()
            }
        };
        if let Some(answer) = answer {
            self.state.send(line, Kind::ToHome(answer));
        }
        Ok(())
    }

    /// The access that waited for a grant is made before anything else can happen to the line.
    fn use_once(&mut self, line: u16, write: bool) -> Result<(), String> {
        if write && self.state.cpu.buffered > 0 {
            return self.take(Step::Store);
        }
        if Self::next_access(self.setting, self.state) == Some((line, write)) { self.cpu() } else { Ok(()) }
    }

    fn at_home(&mut self, line: u16, message: ToHome, data: Data) -> Result<(), String> {
        let at = usize::from(line);
        let dirty = matches!(message, ToHome::Victim { dirty: true } | ToHome::Recalled { dirty: true, .. });
        let forgets = self.mutation == Mutation::ForgetsVictims && matches!(message, ToHome::Victim { .. });
        if dirty && !forgets {
            self.state.home_data[at] = data;
        }
        if self.setting.writes_back_first && matches!(message, ToHome::Victim { dirty: true }) {
            self.state.send(line, Kind::ToCache(ToCache::Written));
        }
        let mut heard = self.state.entries[at].handle(message).map_err(|error| error.to_string())?;
        if self.mutation == Mutation::IgnoresCrossingVictim && self.state.entries[at].recall == Recall::AwaitsVictim {
            // The victim that comes later finds nothing that it belongs to.
            self.state.entries[at].recall = Recall::Locked;
            heard.recalled = true;
        }
        self.hear(line, heard)
    }

    /// Tells the device what its directory has heard.
    fn hear(&mut self, line: u16, heard: Heard) -> Result<(), String> {
        if heard.evicted {
            self.event(Event::Evicted(line))?;
        }
        let mut request = heard.request;
        if heard.recalled {
            if self.mutation != Mutation::ForgetsUnlock {
                request = self.state.entries[usize::from(line)].unlock();
            }
            match self.mutation {
                // The device has taken it for done before.
                Mutation::AnswersBeforeRecalled | Mutation::RecallsTryAgainAtOnce | Mutation::FillsBeforeRecalled => {
                    let _ = self.state.exchange.handle(Event::Recalled(line));
                    self.drain()?;
                }
                _ => self.event(Event::Recalled(line))?,
            }
        }
        if request.is_some() { self.request(line) } else { Ok(()) }
    }

    fn request(&mut self, line: u16) -> Result<(), String> {
        let group = self.setting.plan.group;
        let current = (self.state.exchange.turn() & 1) as u16;
        let signals = line < 2 * group && line / group != current;
        match self.mutation {
            Mutation::OnlyFirstLineSignals if signals && !line.is_multiple_of(group) => return Ok(()),
            Mutation::AnswersOnce if line < 2 * group && !signals && self.state.responded => return Ok(()),
            Mutation::CountsRequests if signals && self.state.exchange.phase() == Phase::Idle => {
                let others = (0..group).map(|index| self.setting.plan.line(1 - current, index));
                // Those that wait at the directory, this one included, stand for what a device would have counted.
                let mut others: Vec<u16> = others.filter(|&other| other != line).collect();
                if !others.iter().all(|&other| self.state.entries[usize::from(other)].open.is_some()) {
                    return Ok(());
                }
                others.drain(..).try_for_each(|other| self.event(Event::Request(other)))?;
            }
            Mutation::RecallsWhatIsAsked if signals && self.state.entries[usize::from(line)].recall == Recall::None => {
                let recall = self.state.entries[usize::from(line)].recall();
                self.state.send(line, Kind::ToCache(recall));
                return Ok(());
            }
            _ => {}
        }
        self.event(Event::Request(line))
    }

    fn event(&mut self, event: Event) -> Result<(), String> {
        self.state.exchange.handle(event).map_err(|error| error.to_string())?;
        self.drain()
    }

    /// Does what the device has decided.
    fn drain(&mut self) -> Result<(), String> {
        while let Some(action) = self.state.exchange.next_action() {
            self.act(action)?;
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Deliver(group) => self.deliver(group),
            Action::Fill(line) => {
                if self.mutation != Mutation::AnswersUnfilled {
                    self.state.home_data[usize::from(line)] = [Value::Response; 2];
                }
                Ok(())
            }
            Action::Publish(group, outcome) => self.publish(group, outcome),
            Action::Answer(line) => {
                let entry = &mut self.state.entries[usize::from(line)];
                let grant = entry.answer(self.setting.exclusive || entry.open == Some(true));
                self.state.send(line, Kind::ToCache(grant));
                let says_try_again = self.state.home_data[usize::from(line)][0] == Value::TryAgain;
                if self.mutation == Mutation::RecallsTryAgainAtOnce && says_try_again {
                    let recall = self.state.entries[usize::from(line)].recall();
                    self.state.send(line, Kind::ToCache(recall));
                    return self.event(Event::Evicted(line));
                }
                Ok(())
            }
            Action::StartTimer(turn) => {
                self.state.timers = [Some(turn), self.state.timers[0]];
                if self.mutation == Mutation::TakesContinueForRequest && self.state.delivered {
                    return self.deliver(0);
                }
                Ok(())
            }
            Action::Recall(line) => {
                if self.mutation == Mutation::RecallsOneTooFew && line + 1 == self.last_of_group(line) {
                    return self.event(Event::Recalled(line));
                }
                let recall = self.state.entries[usize::from(line)].recall();
                self.state.send(line, Kind::ToCache(recall));
                if self.mutation == Mutation::AnswersBeforeRecalled {
                    return self.event(Event::Recalled(line));
                }
                Ok(())
            }
        }
    }

    /// One more than the last line of a line's group, or of the overflow lines.
    fn last_of_group(&self, line: u16) -> u16 {
        let group = self.setting.plan.group;
        if line < 2 * group { (line / group + 1) * group } else { self.setting.plan.lines() as u16 }
    }

    fn deliver(&mut self, group: u16) -> Result<(), String> {
        if self.setting.variant == Variant::Receive {
            self.state.delivered = true;
            return Ok(());
        }
        if self.state.delivered {
            return Err("a request is taken twice".to_owned());
        }
        self.state.delivered = true;
        for line in self.setting.request_lines(group) {
            let data = self.state.home_data[usize::from(line)];
            if data != [Value::Request; 2] {
                return Err(format!("the device takes {data:?} in line {line} of the request"));
            }
        }
        Ok(())
    }

    fn publish(&mut self, answered: u16, outcome: Outcome) -> Result<(), String> {
        if self.state.responded {
            return Err(format!("a request that was answered gets {outcome:?}"));
        }
        match outcome {
            Outcome::Response => {
                self.state.responded = true;
                let wrong = self.state.wrong;
                for line in self.setting.response_lines(1 - answered) {
                    // The CPU may have it.
                    if self.state.exchange.was_filled(line) {
                        continue;
                    }
                    let body = if wrong { Value::Old } else { Value::Response };
                    self.state.home_data[usize::from(line)] = [Value::Response, body];
                }
                self.state.wrong = self.mutation == Mutation::RespondsTwice;
            }
            Outcome::TryAgain => {
                self.state.rename(|value| if value == Value::TryAgain { Value::Old } else { value });
                let control = self.setting.plan.line(answered, 0);
                self.state.home_data[usize::from(control)][0] = Value::TryAgain;
                self.state.wrong |= self.mutation == Mutation::LosesResponseAtTimeOut;
            }
        }
        Ok(())
    }
}
