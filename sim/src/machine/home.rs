//! A node's home agents: what they send, and what that takes.

use crate::probe::queues::Probed;
use crate::protocol::home::{self, Action, Alone, LastLevel};
use crate::protocol::{Ask, Asker, Copy, ToCore, ToHome, Version};

use super::line::Pending;
use super::queues::Queue;
use super::recorder::Held;
use super::tags::Gone;
use super::{COMPLETING, Event, Machine};

impl Machine {
    /// Handles a message at a node's home agents.
    // On its own, as what is at a core is: together the loop over events has not enough of the host's registers.
    #[inline(never)]
    pub(crate) fn at_home(&mut self, node: usize, line: u32, message: ToHome) {
        match message {
            ToHome::Evicted { core, dirty, version } => return self.given_up(node, line, core, dirty, version),
            ToHome::Request { .. } => {
                if !self.has_way(node, line, message) {
                    return;
                }
                if let Some(alone) = self.needs_alone(node, line, message) {
                    if !self.is_watched() {
                        return self.start_alone(node, line, alone, message);
                    }
                    self.decides = matches!(alone, Alone::Memory(_));
                }
            }
            ToHome::Memory => {
                if let Some(Pending::Memory { ask, sets_directory }) = self.lines[line as usize].pending(node) {
                    return self.reply_alone(node, line, ask, sets_directory);
                }
            }
            ToHome::Reply { grant, version, .. } => {
                if let Some(Pending::Reply { core, ask }) = self.lines[line as usize].pending(node) {
                    return self.grant_alone(node, line, core, ask, (grant, version));
                }
            }
            _ => {}
        }
        let at = line as usize;
        // What the probes must know of before; nothing where nobody probes.
        let probed = self.queues.is_some();
        let under_way = if probed { self.under_way(node, line) } else { None };
        let index = self.begin(node, line);
        if let ToHome::NodeFound(_) = message {
            self.tell_of_memory(node, line, index);
        }
        let record = &mut self.lines[at];
        let is_home = record.home() == node;
        let stable = &mut record.stable[node];
        let active = &mut self.actives[index as usize - 1];
        let (before, had_copies) = (stable.last_level, stable.copies != 0);
        let by_device = message == ToHome::TakeEffect;
        let waiting = |active: &home::Active| if probed { active.waiting_requests() } else { 0 };
        let waited = waiting(active);
        let mut unchecked = 0;
        let newest = self.newest.get_mut(at).unwrap_or(&mut unchecked);
        if active.completed_by(self.now) {
            home::complete(is_home, &self.choices, stable, active, newest, &mut self.actions);
        }
        home::handle(is_home, &self.choices, stable, active, message, newest, &mut self.actions);
        let (after, wait) = (stable.last_level, waiting(active));
        self.requests_wait(node, line, message, waited, wait);
        self.send(node, line);
        if let ToHome::Reply { .. } = message {
            self.give_credit(node, line);
        }
        self.leave(node, line, index);
        self.line_was_handled(node, line, under_way);
        if (before == LastLevel::None) != (after == LastLevel::None) {
            self.keep_last_level(node, line, after != LastLevel::None, by_device);
        }
        if had_copies {
            self.may_forget(node, line);
        }
        if message != ToHome::Recall {
            self.may_give_ways(node);
        }
    }

    /// Lets go of what is written down at `index` of what is under way for a line, where nothing is, or it will end by itself.
    #[inline(always)]
    fn leave(&mut self, node: usize, line: u32, index: u32) {
        let active = &mut self.actives[index as usize - 1];
        if let Some(time) = active.must_hear_of_completion() {
            self.send_completion(node, line, time);
        } else if active.is_idle() {
            self.lines[line as usize].active[node] = 0;
            self.free_actives.push(index);
        } else if let Some(time) = active.completes_alone() {
            self.lines[line as usize].complete_at(node, time);
            self.free_actives.push(index);
        }
    }

    /// Has a node's home agents hear that the other node has a reply, because a request waits for that.
    #[cold]
    #[inline(never)]
    fn send_completion(&mut self, node: usize, line: u32, time: u64) {
        self.send_home(time.max(self.now), 1 - node, node as u8, line, ToHome::Complete);
    }

    /// A core has given its copy of a line up: that changes nothing of what is under way for the line, and sends nothing.
    fn given_up(&mut self, node: usize, line: u32, core: u8, dirty: bool, version: Version) {
        let stable = &mut self.lines[line as usize].stable[node];
        let before = stable.last_level;
        stable.evicted(core, dirty, version);
        if before == LastLevel::None {
            self.keep_last_level(node, line, true, false);
        }
        self.may_forget(node, line);
        self.may_give_ways(node);
    }

    /// Where it is written down what is under way for a line in a node, from now on.
    #[inline(always)]
    fn begin(&mut self, node: usize, line: u32) -> u32 {
        let record = &mut self.lines[line as usize];
        let before = record.active[node];
        if before != 0 && before != COMPLETING && record.pending(node).is_none() {
            return before;
        }
        let index = self.free_actives.pop().unwrap_or_else(|| {
            self.actives.push(home::Active::default());
            self.untold_answers.push(None);
            self.actives.len() as u32
        });
        // Both at once: which of the two lines are mostly left as is hard for the host to foresee, that it is over is not.
        let may_last = (before == COMPLETING) & (record.completion() >= self.now);
        let pending = record.pending(node);
        record.active[node] = index;
        if let Some(request) = pending {
            self.write_down(index, request);
        } else if may_last {
            self.wait_for_completion(node, line, index);
        }
        index
    }

    /// Puts a line into the last-level cache's tags, or takes it out; a line that has to go for it is given up. What a
    /// device writes goes into some of the ways only.
    #[inline(never)]
    fn keep_last_level(&mut self, node: usize, line: u32, keep: bool, by_device: bool) {
        let this = &mut self.nodes[node];
        if !keep {
            if let Some(place) = this.last_level.find(line) {
                this.last_level.remove(place);
            }
            return;
        }
        let ways = if by_device { self.parameters.cache.device_write_ways as usize } else { usize::MAX };
        let (lines, now) = (&self.lines, self.now);
        let inserted =
            this.last_level.insert_within(ways, line, 0, |candidate| !lines[candidate as usize].is_busy(node, now));
        // Where all lines of the set are busy, the line is kept beyond the set's ways.
        let Some((_, Some(Gone { line: victim, .. }))) = inserted else { return };
        let is_home = self.home_of(victim) == node;
        let stable = &mut self.lines[victim as usize].stable[node];
        home::evict_last_level(is_home, stable, &mut self.actions);
        self.send(node, victim);
    }

    /// Sends what the home agents have decided to send about a line.
    fn send(&mut self, node: usize, line: u32) {
        let speculative = self.actions.len() > 1 && self.actions.contains(&Action::ReadMemory);
        // Nothing that is sent is handled before this ends, so nothing is added meanwhile.
        for place in 0..self.actions.len() {
            self.act(node, line, place, speculative);
        }
        self.actions.clear();
    }

    /// Does one of the things that the home agents have decided to do about a line.
    #[inline(never)]
    fn act(&mut self, node: usize, line: u32, place: usize, speculative: bool) {
        // Not moved out: an action that was just written part by part would be copied only when the host's store buffer has
        // drained.
        match self.actions[place] {
            Action::ToCore(core, message) => {
                let agent = self.nodes[node].cores[core as usize];
                if let ToCore::Grant { .. } = message
                    && self.lines[line as usize].stable[node].last_level != LastLevel::None
                    && let Some(place) = self.nodes[node].last_level.find(line)
                {
                    self.nodes[node].last_level.touch(place);
                }
                if let ToCore::Grant { copy: Copy::Invalid, .. } = message {
                    return self.answer_once_written(node, agent, line, message);
                }
                if self.decides
                    && let Some(key) = self.place_of_decided(node)
                {
                    self.send_core_in_order(key, node as u8, agent, line, message);
                } else {
                    self.send_core(self.now + self.ways[node].home_to_core, node as u8, agent, line, message);
                }
                if let ToCore::Grant { .. } = message {
                    self.give_entry(node, line, true);
                }
            }
            Action::ToNode(message, on_behalf) => self.cross(node, line, message, on_behalf, speculative),
            Action::ReadMemory => {
                let done = self.nodes[node].memory.read_from(self.lines[line as usize].channel(), self.now);
                self.takes_channel(node, line, "MemoryRead", done - self.parameters.memory.latency);
                self.memory_answers(node, line, done);
            }
            Action::ReadLastLevel => {
                let done = self.now + self.ways[node].llc_read;
                self.send_home(done, node, node as u8, line, ToHome::LastLevel);
            }
            Action::WriteMemory => self.write_memory(node, line),
            Action::ToDevice(request, _) => {
                self.give_entry(node, line, true);
                self.answer_device(line, request);
            }
            Action::Written(write) => {
                // Where the line's memory is the other node's, its channel is not seen from here.
                self.written_until = 0;
                self.written(line, write);
            }
            Action::Ready(write) => self.write_is_ready(write),
        }
    }

    /// Writes a line to a node's memory.
    pub(super) fn write_memory(&mut self, node: usize, line: u32) {
        let done = self.nodes[node].memory.write_to(self.lines[line as usize].channel(), self.now);
        self.takes_channel(node, line, "MemoryWrite", done - self.parameters.memory.line_time);
        self.written_until = done;
    }

    /// Answers a core's write past the caches when memory has it, the later the more its channel has to do. Until then it is the home
    /// agents' matter: what they send to the core meanwhile arrives before.
    #[inline(never)]
    fn answer_once_written(&mut self, node: usize, agent: u16, line: u32, message: ToCore) {
        let accepted = (self.now + self.ways[node].write_latency).max(self.written_until);
        let key = self.key(accepted, node);
        if let Some(recorder) = &mut self.recorder {
            recorder.goes_on(key);
        }
        self.queue.push(key, Event::Answers { agent, line, message });
    }

    /// A node's home agents answer one of its cores, whose answer was held back.
    pub(crate) fn answer_core(&mut self, agent: u16, line: u32, message: ToCore) {
        let node = self.agents[agent as usize].node;
        let arrives = self.now + self.ways[usize::from(node)].home_to_core;
        self.send_core(arrives, node, agent, line, message);
        self.give_entry(usize::from(node), line, true);
    }

    /// Memory answers when it is `done`. Where the other node's answer is awaited too, and nobody looks at messages, nothing
    /// happens then unless that answer comes later still: it keeps its place in the order, and is no event yet.
    #[inline]
    fn memory_answers(&mut self, node: usize, line: u32, done: u64) {
        if std::mem::take(&mut self.decides) {
            return self.memory_will_decide(node, line, done);
        }
        let index = self.lines[line as usize].active[node] as usize - 1;
        if self.actives[index].awaits_node() && !self.is_watched() {
            self.untold_answers[index] = Some(self.key(done, node));
        } else {
            self.send_home(done, node, node as u8, line, ToHome::Memory);
        }
    }

    /// The other node has answered: memory has answered before, or its answer is an event.
    #[inline]
    fn tell_of_memory(&mut self, node: usize, line: u32, index: u32) {
        let place = index as usize - 1;
        if let Some(key) = self.untold_answers[place].take() {
            if key < self.present {
                self.actives[place].memory_has_answered();
            } else {
                self.queue.push(key, Event::Home { node: node as u8, line, message: ToHome::Memory });
            }
        }
    }

    /// Sends a message to the other node.
    pub(super) fn cross(
        &mut self,
        node: usize,
        line: u32,
        message: ToHome,
        on_behalf: Option<(Asker, Ask)>,
        speculative: bool,
    ) {
        if let Some((Asker::Core(core), ask)) = on_behalf {
            let agent = self.nodes[node].cores[core as usize] as usize;
            let accesses = &mut self.agents[agent].counters.accesses;
            if ask.takes_all() {
                accesses.remote_rfos += 1;
            } else {
                accesses.remote_reads += 1;
            }
        }
        if let ToHome::Request { .. } = message {
            let this = &mut self.nodes[node];
            if !this.credits.try_take(self.now) {
                let id = this.without_credit.insert((line, message));
                this.credits.take(id as u32, self.now);
                self.holds_back(Held::Crossing(node as u8, id as u32));
                self.enters(Queue::WithoutCredit(node as u8), id as u32, self.now);
                return;
            }
            self.enters(Queue::Credits(node as u8), line, self.now);
        }
        let penalty = self.timing.speculative_penalty;
        if speculative && penalty > 0 && matches!(message, ToHome::Snoop(_)) {
            return self.hold_back(node, line, message, penalty);
        }
        self.put_on_wire(node, line, message);
    }

    /// Has a message depart so much later. Until then it takes nothing of its link, which others of this node use.
    fn hold_back(&mut self, node: usize, line: u32, message: ToHome, picoseconds: u64) {
        let key = self.key(self.now + picoseconds, node);
        if let Some(recorder) = &mut self.recorder {
            recorder.goes_on(key);
        }
        self.queue.push(key, Event::Departs { node: node as u8, line, message });
    }

    /// Gives back the credit of a request for a line that has been answered; the request that waits longest takes it.
    pub(super) fn give_credit(&mut self, node: usize, answered: u32) {
        let this = &mut self.nodes[node];
        if let Some(id) = this.credits.give(self.now) {
            let (line, message) = this.without_credit.remove(id as usize);
            self.leaves(Queue::WithoutCredit(node as u8), id, self.now);
            self.hands_over(Queue::Credits(node as u8), answered, line);
            self.take_up(Held::Crossing(node as u8, id), |this| this.put_on_wire(node, line, message));
        } else {
            self.leaves(Queue::Credits(node as u8), answered, self.now);
        }
    }

    /// A reply with a line leaves for the other node; says when it is there.
    pub(super) fn send_reply(&mut self, node: usize, line: u32, message: ToHome) -> u64 {
        let link = self.lines[line as usize].link();
        let arrives = self.nodes[node].out.send_data_over(link, self.now);
        self.give_entry(node, line, false);
        self.send_home(arrives, node, 1 - node as u8, line, message);
        arrives
    }

    /// A message to the other node is ready for the link of its line.
    pub(crate) fn put_on_wire(&mut self, node: usize, line: u32, message: ToHome) {
        let carries_line = match message {
            ToHome::Reply { data, .. } => data,
            ToHome::NodeFound(found) => found.data,
            ToHome::WriteBack { .. } => true,
            _ => false,
        };
        let (out, link) = (&mut self.nodes[node].out, self.lines[line as usize].link());
        let arrives =
            if carries_line { out.send_data_over(link, self.now) } else { out.send_header_over(link, self.now) };
        self.takes_link(node, line, self.now, arrives);
        if let ToHome::Reply { .. } = message {
            let index = self.lines[line as usize].active[node];
            self.actives[index as usize - 1].completes_at(arrives + self.timing.crossing);
            self.give_entry(node, line, false);
        }
        let looked_up = match message {
            ToHome::Request { .. } | ToHome::Snoop(_) => self.ways[1 - node].home_lookup,
            _ => 0,
        };
        self.send_home(arrives + looked_up, node, 1 - node as u8, line, message);
    }
}
