//! Requests for lines that nobody in their node has a copy of and for which nothing is under way: there is one thing to do, and what
//! [`handle`](super::handle) would find out step by step is known at once.

use super::{Active, Choices, LastLevel, Right, Running, Stable};
use crate::protocol::{Ask, Asker, Copy, ToCore, ToHome, Version};

/// What a request for such a line needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// A core's, at the line's home: memory's answer and nothing else, and nothing that can come before that answer changes what the request
    /// ends in, because nobody else has a copy to give up or to be asked for.
    Memory(u8),
    /// A core's, not at the line's home: the home's reply.
    Reply(u8),
    /// The other node's: memory's answer, which the reply waits for.
    MemoryForNode,
}

impl Stable {
    /// What a request needs for a line for which nothing is under way; none where there is more to it.
    #[inline(always)]
    pub fn alone(&self, is_home: bool, asker: Asker, ask: Ask) -> Option<Alone> {
        // At once, as in `Running::awaits`.
        let nobody = (self.copies == 0) & (self.last_level == LastLevel::None) & matches!(ask, Ask::Read | Ask::Own);
        if !nobody {
            return None;
        }
        match asker {
            Asker::Core(core) if is_home => (self.right == Right::Exclusive).then_some(Alone::Memory(core)),
            Asker::Core(core) => (self.right == Right::None).then_some(Alone::Reply(core)),
            Asker::Node => matches!(self.right, Right::None | Right::Exclusive).then_some(Alone::MemoryForNode),
            Asker::Device(_) => None,
        }
    }

    /// The request needs [`Alone::Memory`]: what the home knows of the line once memory has answered, and what it then sends to the core.
    #[inline(always)]
    pub fn given_by_memory(&mut self, core: u8) -> ToCore {
        (self.copies, self.exclusive) = (1 << core, true);
        ToCore::Grant { copy: Copy::Exclusive, version: self.memory_version, data: true }
    }
}

impl Stable {
    /// A request of a core that needs [`Alone::Reply`] has it: what the node knows of the line from now on, and what it sends to the core.
    #[inline(always)]
    pub fn given_by_reply(&mut self, choices: &Choices, core: u8, ask: Ask, grant: Copy, version: Version) -> ToCore {
        let shared = (ask == Ask::Read) & (grant == Copy::Shared);
        let clean = if choices.forwards_clean { Right::Forward } else { Right::Shared };
        self.right = if shared { clean } else { Right::Exclusive };
        (self.copies, self.exclusive) = (1 << core, !shared);
        let owned = if grant == Copy::Modified { Copy::Modified } else { Copy::Exclusive };
        ToCore::Grant { copy: if ask == Ask::Read { grant } else { owned }, version, data: true }
    }

    /// A request of the other node that needs [`Alone::MemoryForNode`] starts: whether it will change the line's entry in the directory.
    #[inline(always)]
    pub fn starts_for_node(&mut self, choices: &Choices, ask: Ask) -> bool {
        let sets_directory = self.must_set_directory(choices, Asker::Node, ask);
        // It asks, so it has given the line up.
        self.right = Right::Exclusive;
        sets_directory
    }

    /// Memory has answered it: what the home knows of the line from now on, and what it replies.
    #[inline(always)]
    pub fn given_to_node(&mut self, choices: &Choices, ask: Ask) -> ToHome {
        let exclusive = (ask == Ask::Own) | choices.exclusive_grant;
        self.right = if exclusive { Right::None } else { Right::Shared };
        self.exclusive &= ask == Ask::Read;
        let grant = if exclusive { Copy::Exclusive } else { Copy::Shared };
        ToHome::Reply { grant, version: self.memory_version, data: true }
    }
}

/// What the home is asked for a request that needs [`Alone::Reply`].
#[inline(always)]
pub fn asked_alone(ask: Ask) -> ToHome {
    ToHome::Request { asker: Asker::Node, ask, has_data: false, write: 0 }
}

impl Active {
    /// There is more to a request now that needs [`Alone::Reply`] and has asked its home.
    pub fn asked_home(&mut self, core: u8, ask: Ask) {
        self.running = Some(Running { asked_home: true, ..Running::started(Asker::Core(core), ask, false) });
    }

    /// There is more to a request now that needs [`Alone::MemoryForNode`] and has started.
    pub fn reads_memory_for_node(&mut self, ask: Ask, sets_directory: bool) {
        let running = Running::started(Asker::Node, ask, false);
        self.running = Some(Running { memory_awaited: true, sets_directory, ..running });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, handle};
    use super::*;

    const CHOICES: Choices = Choices {
        migratory_between_nodes: true,
        migratory_within_node: true,
        exclusive_grant: true,
        directory_write: true,
        speculative_memory_read: true,
        forwards_clean: true,
        snoops_shared: true,
    };

    /// States of a line in one node: nobody, who asks, others, or both may have it.
    fn states() -> impl Iterator<Item = Stable> {
        let rights = [Right::None, Right::Shared, Right::Forward, Right::Exclusive];
        let levels = [LastLevel::None, LastLevel::Clean, LastLevel::Dirty];
        let copies =
            [(0, false), (0, true), (0b100, false), (0b100, true), (0b010, false), (0b010, true), (0b110, false)];
        rights.into_iter().flat_map(move |right| {
            levels.into_iter().flat_map(move |last_level| {
                copies.into_iter().map(move |(copies, exclusive)| {
                    let (last_level_version, memory_version) = (8, 7);
                    Stable { copies, exclusive, right, last_level, last_level_version, memory_version }
                })
            })
        })
    }

    /// Handles a message in one node; gives what follows.
    fn handled(
        is_home: bool,
        choices: &Choices,
        (stable, active): (&mut Stable, &mut Active),
        message: ToHome,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        handle(is_home, choices, stable, active, message, &mut 7, &mut actions);
        actions
    }

    /// Handles a request in every state both ways, and gives how many were known at once.
    fn compare(is_home: bool, choices: &Choices, asker: Asker) -> usize {
        let asks = [Ask::Read, Ask::Own, Ask::OwnWhole, Ask::ReadCurrent];
        let mut found = 0;
        for (before, ask) in states().flat_map(|state| asks.map(|ask| (state, ask))) {
            if let Some(alone) = before.alone(is_home, asker, ask) {
                found += 1;
                compare_one(choices, before, alone, ToHome::Request { asker, ask, has_data: false, write: 0 });
            }
        }
        found
    }

    fn compare_one(choices: &Choices, before: Stable, alone: Alone, request: ToHome) {
        let what = format!("{before:?}, {request:?}, {choices:?}");
        let ToHome::Request { asker, ask, .. } = request else { panic!("{what}") };
        let is_home = !matches!(alone, Alone::Reply(_));
        let (mut stable, mut active) = (before, Active::default());
        let (mut foreseen, mut more) = (before, Active::default());
        let actions = handled(is_home, choices, (&mut stable, &mut active), request);
        match alone {
            Alone::Memory(core) => {
                assert_eq!(actions, [Action::ReadMemory], "{what}");
                let actions = handled(is_home, choices, (&mut stable, &mut active), ToHome::Memory);
                assert_eq!(actions, [Action::ToCore(core, foreseen.given_by_memory(core))], "{what}");
                assert!(active.is_idle(), "{what}");
            }
            Alone::Reply(core) => {
                assert_eq!(actions, [Action::ToNode(asked_alone(ask), Some((asker, ask)))], "{what}");
                more.asked_home(core, ask);
                assert_eq!((stable, &active), (foreseen, &more), "{what}");
                for grant in [Copy::Shared, Copy::Exclusive, Copy::Modified] {
                    let (mut stable, mut active, mut foreseen) = (stable, active.clone(), foreseen);
                    let reply = ToHome::Reply { grant, version: 9, data: true };
                    let actions = handled(is_home, choices, (&mut stable, &mut active), reply);
                    let given = foreseen.given_by_reply(choices, core, ask, grant, 9);
                    assert_eq!(actions, [Action::ToCore(core, given)], "{grant:?}: {what}");
                    assert_eq!(stable, foreseen, "{grant:?}: {what}");
                    assert!(active.is_idle(), "{grant:?}: {what}");
                }
                return;
            }
            Alone::MemoryForNode => {
                assert_eq!(actions, [Action::ReadMemory], "{what}");
                let sets_directory = foreseen.starts_for_node(choices, ask);
                more.reads_memory_for_node(ask, sets_directory);
                assert_eq!((stable, &active), (foreseen, &more), "{what}");
                let actions = handled(is_home, choices, (&mut stable, &mut active), ToHome::Memory);
                let written = sets_directory.then_some(Action::WriteMemory);
                let reply = Action::ToNode(foreseen.given_to_node(choices, ask), None);
                assert_eq!(actions, Vec::from_iter(written.into_iter().chain([reply])), "{what}");
            }
        }
        assert_eq!(stable, foreseen, "{what}");
    }

    #[test]
    fn what_is_known_at_once_is_what_is_found_step_by_step() {
        for bits in 0..128_u8 {
            let bit = |place: u8| bits >> place & 1 == 1;
            let choices = Choices {
                migratory_between_nodes: bit(0),
                migratory_within_node: bit(1),
                exclusive_grant: bit(2),
                directory_write: bit(3),
                speculative_memory_read: bit(4),
                forwards_clean: bit(5),
                snoops_shared: bit(6),
            };
            // Two asks, with and without the mark of an exclusive copy that nobody has; the other node's with two rights.
            assert_eq!(compare(true, &choices, Asker::Core(2)), 4);
            assert_eq!(compare(false, &choices, Asker::Core(2)), 4);
            assert_eq!(compare(true, &choices, Asker::Node), 8);
            assert_eq!(compare(true, &choices, Asker::Device(2)), 0);
        }
    }

    #[test]
    fn nothing_is_taken_for_known_where_somebody_must_be_asked_first() {
        let alone = Stable { right: Right::Exclusive, ..Stable::default() };
        assert_eq!(alone.alone(true, Asker::Core(2), Ask::Read), Some(Alone::Memory(2)));
        for (other, asks) in [
            (Stable { copies: 0b100, ..alone }, "its own copy"),
            (Stable { copies: 0b010, exclusive: true, ..alone }, "another core's"),
            (Stable { last_level: LastLevel::Clean, ..alone }, "the last-level cache's"),
            (Stable { right: Right::None, ..alone }, "the other node's"),
            (Stable { right: Right::Shared, ..alone }, "the other node's clean one"),
        ] {
            assert_eq!(other.alone(true, Asker::Core(2), Ask::Own), None, "{asks}");
            let request = ToHome::Request { asker: Asker::Core(2), ask: Ask::Own, has_data: false, write: 0 };
            let actions = handled(true, &CHOICES, (&mut { other }, &mut Active::default()), request);
            assert_ne!(actions, [Action::ReadMemory], "{asks}");
        }
    }
}
