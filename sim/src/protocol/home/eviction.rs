//! Copies that are given up: by a core, and by the last-level cache. Neither waits for anything.

use super::{Action, LastLevel, Right, Stable};
use crate::protocol::{ToHome, Version};

impl Stable {
    /// A core gives its copy up: all that [`ToHome::Evicted`] changes.
    pub fn evicted(&mut self, core: u8, dirty: bool, version: Version) {
        let bit = 1 << core;
        debug_assert!(self.copies & bit != 0, "only who has a copy gives one up");
        self.copies &= !bit;
        self.exclusive = false;
        self.last_level = self.last_level.max(if dirty { LastLevel::Dirty } else { LastLevel::Clean });
        self.last_level_version = version;
    }
}

/// Gives up the last-level cache's copy of a line for which nothing is under way.
pub fn evict_last_level(is_home: bool, stable: &mut Stable, actions: &mut Vec<Action>) {
    if stable.last_level == LastLevel::Dirty {
        if is_home {
            stable.memory_version = stable.last_level_version;
            actions.push(Action::WriteMemory);
        } else {
            let message = ToHome::WriteBack { keeps: stable.copies != 0, version: stable.last_level_version };
            actions.push(Action::ToNode(message, None));
        }
    }
    stable.last_level = LastLevel::None;
    if !is_home && stable.copies == 0 {
        stable.right = Right::None;
    }
}
