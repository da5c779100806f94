//! Requests for lines that nobody has: what home agents do is known at once, and some of it is done ahead.
//!
//! A request of a core for a line of its node that nobody has a copy of waits for memory, and when memory will answer is known when
//! it is asked. Until then nothing changes what the request ends in ([`Alone::Memory`]), so memory's answer need not be an event: the grant is sent at once, to arrive when it would have, and the line is under way until memory answers.
//!
//! | what memory's answer would have done at its time | is done |
//! |---|---|
//! | send the grant | ahead, with the place in the order that is kept for it behind memory's answer |
//! | free the entry of the request's slice | before the slice is next asked for an entry by what comes after that time; as an event, [`Event::Ends`], where somebody waits for one |
//! | start the next request for the line | by the same event, once there is such a request |
//!
//! Where somebody looks at messages or queues, memory's answer is an event, [`Event::Decides`], and the grant has the same place in the order.

use crate::engine::Key;
use crate::protocol::home::{Alone, asked_alone};
use crate::protocol::{Ask, Asker, Copy, ToHome, Version};

use super::line::Pending;
use super::{COMPLETING, Event, Machine};

/// A request of a slice that was answered ahead: its entry is not free yet, or nobody has looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// When memory answers it.
    pub ends: Key,
    pub line: u32,
    /// That is an event.
    pub told: bool,
}

impl Machine {
    /// What a message at a node's home agents needs, where it is a request for a line that nobody there has and that is all.
    #[inline(always)]
    pub(crate) fn needs_alone(&self, node: usize, line: u32, message: ToHome) -> Option<Alone> {
        let ToHome::Request { asker, ask, .. } = message else { return None };
        let record = &self.lines[line as usize];
        let alone = record.stable[node].alone(record.home() == node, asker, ask)?;
        (!self.is_under_way(node, line)).then_some(alone)
    }

    /// Starts such a request, where nobody looks at what happens meanwhile.
    #[inline(always)]
    pub(crate) fn start_alone(&mut self, node: usize, line: u32, alone: Alone, message: ToHome) {
        let ToHome::Request { ask, .. } = message else { return };
        match alone {
            Alone::Memory(core) => self.answer_ahead(node, line, core),
            Alone::Reply(core) => {
                self.lines[line as usize].pends(node, Pending::Reply { core, ask });
                self.cross(node, line, asked_alone(ask), Some((Asker::Core(core), ask)), false);
            }
            Alone::MemoryForNode => {
                let record = &mut self.lines[line as usize];
                let sets_directory = record.stable[node].starts_for_node(&self.choices, ask);
                record.pends(node, Pending::Memory { ask, sets_directory });
                let answers = self.nodes[node].memory.read_from(record.channel(), self.now);
                self.send_home(answers, node, node as u8, line, ToHome::Memory);
            }
        }
    }

    /// Ends a pending request of the other node: memory has answered.
    pub(crate) fn reply_alone(&mut self, node: usize, line: u32, ask: Ask, sets_directory: bool) {
        if sets_directory {
            self.write_memory(node, line);
        }
        let reply = self.lines[line as usize].stable[node].given_to_node(&self.choices, ask);
        let arrives = self.send_reply(node, line, reply);
        self.lines[line as usize].complete_at(node, arrives + self.timing.crossing);
    }

    /// Ends a pending request of a core: the home has replied.
    pub(crate) fn grant_alone(
        &mut self,
        node: usize,
        line: u32,
        core: u8,
        ask: Ask,
        (grant, version): (Copy, Version),
    ) {
        let record = &mut self.lines[line as usize];
        record.active[node] = 0;
        let message = record.stable[node].given_by_reply(&self.choices, core, ask, grant, version);
        let agent = self.nodes[node].cores[core as usize];
        self.send_core(self.now + self.ways[node].home_to_core, node as u8, agent, line, message);
        self.give_entry(node, line, true);
        self.give_credit(node, line);
        self.may_give_ways(node);
    }

    /// Writes down at `index` what is under way for a line, where that was a pending request: there will be more.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_down(&mut self, index: u32, request: Pending) {
        let active = &mut self.actives[index as usize - 1];
        match request {
            Pending::Reply { core, ask } => active.asked_home(core, ask),
            Pending::Memory { ask, sets_directory } => active.reads_memory_for_node(ask, sets_directory),
        }
    }

    /// Whether something is under way for a line, in the order of events and not just by the time.
    #[inline(always)]
    fn is_under_way(&self, node: usize, line: u32) -> bool {
        let record = &self.lines[line as usize];
        record.is_busy(node, self.now)
            || record.active[node] == COMPLETING && record.completion() == self.now && self.ends_later(node, line)
    }

    #[cold]
    #[inline(never)]
    fn ends_later(&self, node: usize, line: u32) -> bool {
        self.nodes[node].slices.ends_later(self.lines[line as usize].slice(), line, self.present)
    }

    /// Whether somebody looks at messages or queues, which must then come and go when they do.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        self.recorder.is_some() || self.queues.is_some()
    }

    /// Answers a request that memory decides.
    pub(crate) fn answer_ahead(&mut self, node: usize, line: u32, core: u8) {
        let record = &mut self.lines[line as usize];
        let answered = self.nodes[node].memory.read_from(record.channel(), self.now);
        let message = record.stable[node].given_by_memory(core);
        record.complete_at(node, answered);
        let slice = record.slice();
        let ends = self.key(answered, node);
        let arrives = self.key(answered + self.ways[node].home_to_core, node);
        let agent = self.nodes[node].cores[core as usize];
        self.send_core_in_order(arrives, node as u8, agent, line, message);
        let waited_for = self.nodes[node].slices.ends(slice, Ahead { ends, line, told: false });
        if waited_for {
            self.tell_of_ends(node, slice);
        }
    }

    /// Has memory's answer to a request that it decides be an event, and keeps the place behind it for the grant.
    #[cold]
    #[inline(never)]
    pub(crate) fn memory_will_decide(&mut self, node: usize, line: u32, done: u64) {
        let key = self.key(done, node);
        self.sequences[node] += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.sent_to_home(key, self.now, node, node as u8, line, ToHome::Memory);
        }
        self.queue.push(key, Event::Decides { node: node as u8, line });
    }

    /// Memory answers such a request.
    #[cold]
    #[inline(never)]
    pub(crate) fn memory_has_decided(&mut self, node: usize, line: u32) {
        self.decides = true;
        self.at_home(node, line, ToHome::Memory);
    }

    /// The place in the order of the grant that memory's answer, which is handled now, decides.
    pub(crate) fn place_of_decided(&mut self, node: usize) -> Option<Key> {
        std::mem::take(&mut self.decides).then(|| self.present.next(self.ways[node].home_to_core))
    }

    /// Makes the ends of a slice's requests that were answered ahead events: somebody waits for an entry.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_of_ends(&mut self, node: usize, slice: u8) {
        for ahead in self.nodes[node].slices.ahead_mut(slice).iter_mut().filter(|ahead| !ahead.told) {
            ahead.told = true;
            self.queue.push(ahead.ends, Event::Ends { node: node as u8, line: ahead.line });
        }
    }

    /// A message has come for a line of which nothing is under way but what ends by itself at its `completion`, now or later: what
    /// is then written down of it at `index` waits for that end, if it has not come.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_completion(&mut self, node: usize, line: u32, index: u32) {
        let (present, now) = (self.present, self.now);
        let record = &self.lines[line as usize];
        let (slice, completion) = (record.slice(), record.completion());
        let active = &mut self.actives[index as usize - 1];
        let ahead = self.nodes[node].slices.ahead_mut(slice);
        if let Some(ahead) = ahead.iter_mut().find(|ahead| ahead.line == line && present.is_before(ahead.ends)) {
            active.will_be_completed();
            if !std::mem::replace(&mut ahead.told, true) {
                self.queue.push(ahead.ends, Event::Ends { node: node as u8, line });
            }
        } else if completion > now {
            active.completes_at(completion);
        }
    }

    /// Memory has answered a request that was answered ahead.
    #[cold]
    #[inline(never)]
    pub(crate) fn answered_ahead_ends(&mut self, node: usize, line: u32) {
        let record = &self.lines[line as usize];
        let (slice, active, present) = (record.slice(), record.active[node], self.present);
        self.nodes[node].slices.ahead_mut(slice).retain(|ahead| ahead.ends != present);
        self.give_entry(node, line, true);
        if active != 0 && active != COMPLETING {
            self.at_home(node, line, ToHome::Complete);
        }
        self.may_give_ways(node);
    }
}
