//! What a node that is not a line's home does with its home's snoop.

use super::{Action, Handling, LastLevel, Order, Right, Serving};
use crate::protocol::{Copy, Found, Snoop, ToHome};

impl Handling<'_> {
    pub(super) fn snooped(&mut self, snoop: Snoop) {
        let recalled = self.active.is_recalling();
        debug_assert!(!self.is_home && self.active.deferred.is_none());
        debug_assert!(recalled || self.active.serving.is_none(), "a home asks once at a time");
        match &self.active.running {
            _ if recalled => self.active.deferred = Some(snoop),
            Some(running) if !running.asked_home || running.order == Order::Ready => self.active.deferred = Some(snoop),
            _ => {
                self.serve(snoop);
                self.start_next();
            }
        }
    }

    /// Serves the home's snoop.
    pub(super) fn serve(&mut self, snoop: Snoop) {
        let copies = self.stable.copies;
        let cores = match snoop {
            Snoop::Invalidate | Snoop::Own => copies,
            _ if self.stable.exclusive => copies,
            // One of those that share it has the data, where the last level has not.
            _ if self.forwards() && self.stable.last_level == LastLevel::None => copies & copies.wrapping_neg(),
            _ => 0,
        };
        self.snoop_cores(cores, snoop);
        self.active.serving = Some(Serving { snoop, cores, from_core: None });
        if cores == 0 {
            self.finish_serving();
        }
    }

    /// Whether this node gives its home a clean line.
    fn forwards(&self) -> bool {
        self.choices.forwards_clean && self.stable.right >= Right::Forward
    }

    pub(super) fn finish_serving(&mut self) {
        let Some(serving) = self.active.serving.take() else { return };
        if serving.snoop == Snoop::Recall {
            return self.finish_recall(&serving);
        }
        let forwards = self.forwards() && serving.snoop != Snoop::Invalidate;
        let stable = &mut *self.stable;
        let core_changed = serving.from_core.is_some_and(|found| found.was == Copy::Modified);
        let dirty = core_changed || stable.last_level == LastLevel::Dirty;
        let version = match serving.from_core {
            Some(found) => found.version,
            None => stable.last_level_version,
        };
        let had_any = serving.from_core.is_some() || stable.copies != 0 || stable.last_level != LastLevel::None;
        let was = match stable.right {
            _ if dirty => Copy::Modified,
            _ if !had_any => Copy::Invalid,
            Right::Exclusive => Copy::Exclusive,
            _ => Copy::Shared,
        };
        // A migrating line leaves no copy behind; one that several cores share does not migrate.
        let goes = matches!(serving.snoop, Snoop::Invalidate | Snoop::Own)
            || serving.snoop == Snoop::Migrate && was == Copy::Modified && stable.copies == 0;
        if goes {
            (stable.last_level, stable.right) = (LastLevel::None, Right::None);
            if let Some(running) = self.active.running.as_mut() {
                running.from_core = None;
            }
        } else if serving.snoop != Snoop::Current {
            if stable.last_level == LastLevel::Dirty {
                stable.last_level = LastLevel::Clean;
            }
            let still = stable.copies != 0 || stable.last_level != LastLevel::None;
            stable.right = if still { Right::Shared } else { Right::None };
        }
        let keeps = stable.right != Right::None;
        let data = was == Copy::Modified || forwards && was != Copy::Invalid;
        self.actions.push(Action::ToNode(ToHome::NodeFound(Found { was, keeps, data, version }), None));
    }
}
