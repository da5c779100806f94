//! Lines that an agent watches: what a device has that acts on snoops instead of looking at every line in turn.
//!
//! The agent's cache holds a copy of each watched line, as it would if the line were polled. Whatever takes the copy away,
//! a snoop or an eviction, puts the line's tag into a queue, from which the program takes it. A copy that was lost is no
//! longer there to be snooped, so a tag is given once, and whoever wants another watches the line again.

use std::collections::{BTreeSet, VecDeque};

use super::access::{Step, Use, WHOLE};
use super::places::Place;
use super::{Machine, Wait as W};

/// What stands for the queue of tags among the lines of a round of polling.
const TAGS: u32 = u32::MAX;

/// What an agent watches, and what it has not been told yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Watched lines with their tags.
    lines: BTreeSet<(u32, u64)>,
    /// Tags of lines whose copies have gone, first to last.
    gone: VecDeque<u64>,
}

impl Watched {
    /// A copy has gone.
    #[inline]
    pub(crate) fn lost(&mut self, line: u32) {
        if !self.lines.is_empty() {
            self.tell(line);
        }
    }

    #[inline(never)]
    fn tell(&mut self, line: u32) {
        while let Some(&(_, tag)) = self.lines.range((line, 0)..=(line, u64::MAX)).next() {
            self.lines.remove(&(line, tag));
            self.gone.push_back(tag);
        }
    }
}

impl Machine {
    /// Watches a line, once the agent has a copy of it; that is a load, and takes the time of one.
    pub(crate) fn watch(&mut self, id: usize, line: u32, tag: u64, waited: bool, place: Place) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        // A load would take its data from a store that waits, and there might be no copy yet.
        if self.agents[id].stores.write(line) {
            self.agents[id].not_pure();
            return Err(W::StoresTo(line));
        }
        self.load(id, line, WHOLE, Use::Word, waited, place)?;
        let agent = &mut self.agents[id];
        agent.not_pure();
        agent.watched.lines.insert((line, tag));
        Ok(())
    }

    /// Takes the first tag; that takes the time of a load that hits the first level, there is one or not.
    pub(crate) fn changed(&mut self, id: usize) -> Step<Option<u64>> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        let hit = self.timing.l1_hit;
        let agent = &mut self.agents[id];
        agent.time += hit;
        agent.note_read(TAGS);
        let tag = agent.watched.gone.pop_front();
        if tag.is_some() {
            agent.not_pure();
        } else {
            // No load: the round's reads are counted as such when rounds are skipped.
            agent.spinning.present.hints += 1;
        }
        Ok(tag)
    }
}
