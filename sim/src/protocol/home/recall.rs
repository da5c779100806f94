//! A line for which a node's snoop filter has no entry any more: its copies in the node go.

use super::{Active, Handling, LastLevel, Serving};
use crate::protocol::{Asker, Copy, Snoop};

impl Handling<'_> {
    /// Asks every core that has a copy to give it up.
    pub(super) fn recall(&mut self) {
        let cores = self.stable.copies;
        assert!(self.active.is_idle() && cores != 0, "what is recalled has copies and nothing under way");
        self.snoop_cores(cores, Snoop::Recall);
        self.active.serving = Some(Serving { snoop: Snoop::Recall, cores, from_core: None });
    }

    /// Every core has answered: what they had is in the last-level cache, where an evicted line comes too. Of a core that evicted its
    /// copy before the recall came, it is there already.
    pub(super) fn finish_recall(&mut self, serving: &Serving) {
        debug_assert!(self.stable.copies == 0, "no core keeps a recalled line");
        let Some(found) = serving.from_core else { return };
        let changed = found.was == Copy::Modified;
        let stable = &mut *self.stable;
        stable.last_level = stable.last_level.max(if changed { LastLevel::Dirty } else { LastLevel::Clean });
        stable.last_level_version = found.version;
    }
}

impl Active {
    /// Whether the line is being recalled.
    pub fn is_recalling(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.snoop == Snoop::Recall)
    }

    /// Whether a core of this node has asked for a copy and not been granted it: the line's entry in the snoop filter is that core's.
    pub fn wants_copy(&self) -> bool {
        let running = self.running.iter().map(|running| (running.asker, running.ask));
        let waiting = self.waiting.iter().map(|waiting| (waiting.asker, waiting.ask));
        running.chain(waiting).any(|(asker, ask)| matches!(asker, Asker::Core(_)) && ask.brings_copy())
    }
}
