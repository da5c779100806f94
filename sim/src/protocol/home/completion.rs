//! The other node's acknowledgement of a reply, where it is known before when it comes.

use super::{Action, Active, Choices, Stable, handle};
use crate::protocol::{ToHome, Version};

/// Handles [`ToHome::Complete`], as [`handle`] does, where it comes late and so seldom.
#[cold]
#[inline(never)]
pub fn complete(
    is_home: bool,
    choices: &Choices,
    stable: &mut Stable,
    active: &mut Active,
    newest: &mut Version,
    actions: &mut Vec<Action>,
) {
    handle(is_home, choices, stable, active, ToHome::Complete, newest, actions);
}

impl Active {
    /// Whoever knows when a reply will have been acknowledged says so; [`crate::protocol::ToHome::Complete`] need then be sent
    /// only if something waits for it ([`Active::must_hear_of_completion`]), or before the next message after that time
    /// ([`Active::completed_by`]).
    pub fn completes_at(&mut self, time: u64) {
        (self.completing, self.completion) = (true, Some(time));
    }

    /// What is under way ends, and [`crate::protocol::ToHome::Complete`] will say when, whoever waits for it.
    pub fn will_be_completed(&mut self) {
        (self.completing, self.completion) = (true, None);
    }

    /// When a reply will have been acknowledged, where that is known and all that is under way; then nothing is any more, and
    /// whoever asked must say [`Active::completes_at`] before the next message that comes before that time.
    pub fn completes_alone(&mut self) -> Option<u64> {
        let others = self.running.is_some() || self.serving.is_some() || self.deferred.is_some();
        if others || !self.waiting.is_empty() || self.unneeded != 0 {
            return None;
        }
        let time = self.completion.take()?;
        self.completing = false;
        Some(time)
    }

    /// When what is under way will have ended, where that is known before: a reply is on its way, and nobody waits for its
    /// acknowledgement.
    pub fn known_end(&self) -> Option<u64> {
        self.completion.filter(|_| self.unneeded == 0)
    }

    /// Whether a reply has been acknowledged by `now` and nobody has said so.
    pub fn completed_by(&self, now: u64) -> bool {
        self.completion.is_some_and(|time| time <= now)
    }

    /// When [`crate::protocol::ToHome::Complete`] must be sent because a request waits for it; once.
    pub fn must_hear_of_completion(&mut self) -> Option<u64> {
        if self.waiting.is_empty() { None } else { self.completion.take() }
    }
}
