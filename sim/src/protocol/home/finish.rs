//! How a request ends: who has the line then, in what state, and what memory and its directory must be told.

use super::{Action, Handling, LastLevel, Right, Running, core_bit};
use crate::protocol::{Ask, Asker, Copy, ToCore, ToHome, Version};

impl Handling<'_> {
    pub(super) fn finish(&mut self, running: &Running) {
        match running.ask {
            Ask::Read => self.finish_read(running),
            Ask::ReadCurrent => {
                let (version, _) = self.data(running);
                self.answer(running, Copy::Invalid, version, true);
            }
            Ask::Own | Ask::OwnWhole => self.finish_own(running),
            Ask::WriteCache => {
                let version = self.take_effect(running.write);
                let stable = &mut *self.stable;
                (stable.last_level, stable.last_level_version) = (LastLevel::Dirty, version);
                stable.right = Right::Exclusive;
                self.answer(running, Copy::Invalid, version, false);
            }
            Ask::WriteMemory => {
                self.stable.last_level = LastLevel::None;
                let version = self.take_effect(running.write);
                if self.is_home {
                    (self.stable.right, self.stable.memory_version) = (Right::Exclusive, version);
                    self.actions.push(Action::WriteMemory);
                } else {
                    // It owns the line now, and gives it back with what was written.
                    self.stable.right = Right::None;
                    self.actions.push(Action::ToNode(ToHome::WriteBack { keeps: false, version }, None));
                }
                self.answer(running, Copy::Invalid, version, false);
            }
        }
    }

    /// A write past the caches takes effect: only now is it known which write of the line it is.
    fn take_effect(&mut self, write: u32) -> Version {
        *self.newest = self.newest.wrapping_add(1);
        self.actions.push(Action::Written(write));
        *self.newest
    }

    /// The data that was found, and whether memory is older.
    fn data(&self, running: &Running) -> (Version, bool) {
        let stable = &*self.stable;
        let last_level_dirty = stable.last_level == LastLevel::Dirty;
        if let Some((grant, version, _)) = running.reply {
            return (version, grant == Copy::Modified);
        }
        if let Some(found) = running.from_core {
            return (found.version, found.was == Copy::Modified || last_level_dirty);
        }
        if stable.last_level != LastLevel::None {
            return (stable.last_level_version, last_level_dirty);
        }
        match running.from_node {
            Some(found) if found.data => (found.version, found.was == Copy::Modified),
            _ => (stable.memory_version, false),
        }
    }

    fn finish_own(&mut self, running: &Running) {
        let needed = self.needs_data(running);
        let (mut version, dirty) = self.data(running);
        if !self.is_home && running.reply.is_none_or(|(_, _, data)| !data) && self.has_local_data(running) {
            // The home gave the right; the data is here.
            version = running.from_core.map_or(self.stable.last_level_version, |found| found.version);
        }
        let copy = if dirty { Copy::Modified } else { Copy::Exclusive };
        let stable = &mut *self.stable;
        stable.last_level = LastLevel::None;
        match running.asker {
            Asker::Node => {
                (stable.copies, stable.exclusive, stable.right) = (0, false, Right::None);
                self.set_directory(running);
            }
            asker => (stable.copies, stable.exclusive, stable.right) = (core_bit(asker), true, Right::Exclusive),
        }
        self.answer(running, copy, version, needed);
    }

    fn finish_read(&mut self, running: &Running) {
        let (version, dirty) = self.data(running);
        let grant = match running.asker {
            Asker::Node => self.share_with_node(running, version, dirty),
            asker => self.share_with_core(running, core_bit(asker), version, dirty),
        };
        self.answer(running, grant, version, true);
    }

    fn share_with_core(&mut self, running: &Running, bit: u64, version: Version, dirty: bool) -> Copy {
        let stable = &mut *self.stable;
        let grant = if let Some((grant, _, _)) = running.reply {
            stable.right = match grant {
                Copy::Shared if self.choices.forwards_clean => Right::Forward,
                Copy::Shared => Right::Shared,
                _ => Right::Exclusive,
            };
            grant
        } else if let Some(found) = running.from_core {
            if found.keeps && found.was == Copy::Modified {
                (stable.last_level, stable.last_level_version) = (LastLevel::Dirty, version);
            }
            if found.keeps { Copy::Shared } else { found.was }
        } else if stable.last_level != LastLevel::None {
            let alone = stable.copies == 0 && stable.right == Right::Exclusive;
            if alone {
                stable.last_level = LastLevel::None;
            }
            match (alone, dirty) {
                (false, _) => Copy::Shared,
                (true, false) => Copy::Exclusive,
                (true, true) => Copy::Modified,
            }
        } else {
            self.take_from_node_or_memory(running, version)
        };
        self.stable.copies |= bit;
        self.stable.exclusive = grant != Copy::Shared;
        grant
    }

    /// At the home, for a core there: what the other node's answer, or memory, allows.
    fn take_from_node_or_memory(&mut self, running: &Running, version: Version) -> Copy {
        let stable = &mut *self.stable;
        if let Some(found) = running.from_node {
            stable.right = if found.keeps { Right::Shared } else { Right::Exclusive };
            if found.was == Copy::Modified && found.keeps {
                stable.memory_version = version;
                self.actions.push(Action::WriteMemory);
            }
            if found.was == Copy::Modified && !found.keeps {
                return Copy::Modified;
            }
        }
        let alone = stable.copies == 0 && stable.right == Right::Exclusive;
        if alone { Copy::Exclusive } else { Copy::Shared }
    }

    /// At the home, for the other node.
    fn share_with_node(&mut self, running: &Running, version: Version, dirty: bool) -> Copy {
        let stable = &mut *self.stable;
        let alone = stable.copies == 0;
        if dirty && alone && self.choices.migratory_between_nodes {
            (stable.last_level, stable.right, stable.exclusive) = (LastLevel::None, Right::None, false);
            return Copy::Modified;
        }
        if dirty {
            stable.memory_version = version;
            self.actions.push(Action::WriteMemory);
            if stable.last_level == LastLevel::Dirty {
                stable.last_level = LastLevel::Clean;
            }
        }
        let nobody = alone && stable.last_level == LastLevel::None && running.from_core.is_none();
        if nobody && self.choices.exclusive_grant {
            stable.right = Right::None;
            self.set_directory(running);
            return Copy::Exclusive;
        }
        stable.right = Right::Shared;
        Copy::Shared
    }

    /// Writes the line's entry in the directory, where the request changes it: a line is written whole.
    fn set_directory(&mut self, running: &Running) {
        if running.sets_directory {
            self.actions.push(Action::WriteMemory);
        }
    }

    fn answer(&mut self, running: &Running, copy: Copy, version: Version, data: bool) {
        self.active.completing = running.asker == Asker::Node;
        self.actions.push(match running.asker {
            Asker::Core(core) => Action::ToCore(core, ToCore::Grant { copy, version, data }),
            Asker::Device(request) => Action::ToDevice(request, version),
            Asker::Node => Action::ToNode(ToHome::Reply { grant: copy, version, data }, None),
        });
    }
}
