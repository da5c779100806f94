//! Shared memory over messages: Tempest's default protocol, an invalidation protocol with a directory at each block's home (CNI section 4.2;
//! its reference 38), as functions of a node's copy and of a directory. What carries the messages and the blocks is `applications/memory.rs`;
//! the exploration runs the same functions.
//!
//! The paper assumes hardware that checks each access to a block against the node's copy, and software that does the rest.
//!
//! # A node's copy
//!
//! | copy | read | write | after `Recall(Read)` | after `Recall(Write)` |
//! |---|---|---|---|---|
//! | Writable | goes | goes | `ReadOnly`; the block goes back | `Invalid`; the block goes back |
//! | `ReadOnly` | goes | `Request(Write)` | does not come | `Invalid` |
//! | Invalid | `Request(Read)` | `Request(Write)` | does not come | does not come |
//!
//! # The directory
//!
//! | request | one has it writable | some have it to read |
//! |---|---|---|
//! | read | `Recall(Read)` to that one, then the grant, with the block | the grant at once, with the block |
//! | write | `Recall(Write)` to that one, then the grant, with the block | `Recall(Write)` to each other, then the grant; with the block if the asker had none |
//!
//! Of a block's requests one is served at a time; the others wait, oldest first. Between two nodes messages arrive in the order in which
//! they were sent. So a grant is there before the recall of what it gave, and an asker that the directory counts among those who read has
//! its copy still when its grant comes. No copy is ever given up by itself: a node's memory holds all that it uses.

#[cfg(test)]
mod explore;

use std::collections::{BTreeSet, VecDeque};

/// What a program does with a block, and how far a copy is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Reads it; others may meanwhile.
    Read,
    /// Writes it; nobody else has it meanwhile.
    Write,
}

/// A node's copy of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Copy {
    /// None.
    #[default]
    Invalid,
    /// One that others may have as well.
    ReadOnly,
    /// The only one.
    Writable,
}

/// What is said of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Message {
    /// To its home: the sender wants to access it.
    Request(Access),
    /// To who asked: it may; with the block, unless its copy is good.
    Grant {
        /// What it may do.
        access: Access,
        /// Whether the block comes with it.
        block: bool,
    },
    /// To who has a copy: it is wanted, to read or to write.
    Recall(Access),
    /// To its home: the copy is given up as asked; with the block, if it was the only one.
    Return {
        /// Whether the block comes with it.
        block: bool,
    },
}

impl Copy {
    /// Whether an access needs nothing.
    pub fn suffices(self, access: Access) -> bool {
        match access {
            Access::Read => self != Copy::Invalid,
            Access::Write => self == Copy::Writable,
        }
    }

    /// The copy that a grant makes.
    pub fn granted(access: Access) -> Copy {
        match access {
            Access::Read => Copy::ReadOnly,
            Access::Write => Copy::Writable,
        }
    }

    /// The copy after it was recalled for another's access, and what its home is told.
    #[must_use]
    pub fn recalled(self, access: Access) -> (Copy, Message) {
        let after = if access == Access::Read { Copy::ReadOnly } else { Copy::Invalid };
        (after, Message::Return { block: self == Copy::Writable })
    }
}

/// Who has copies of a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holders {
    /// One node has it writable.
    Owner(usize),
    /// These have it to read; the home's memory has it as they do.
    Readers(BTreeSet<usize>),
}

/// What a block's home knows of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Directory {
    holders: Holders,
    /// The request that is being served, and how many copies have not been given up for it.
    served: Option<(usize, Access, usize)>,
    /// Requests that came meanwhile.
    waiting: VecDeque<(usize, Access)>,
}

impl Directory {
    /// Of a block that its home has.
    pub fn new(home: usize) -> Directory {
        Directory { holders: Holders::Owner(home), served: None, waiting: VecDeque::new() }
    }

    /// What a message from a node makes the home say, and to whom. A block that came with it is in the home's memory already; one that a
    /// grant takes along is as it is there.
    ///
    /// # Panics
    ///
    /// If the message is none for a home, or nobody was asked for what is given up.
    pub fn hears(&mut self, from: usize, message: Message) -> Vec<(usize, Message)> {
        match message {
            Message::Request(access) => self.waiting.push_back((from, access)),
            Message::Return { .. } => self.gives_up(from),
            Message::Grant { .. } | Message::Recall(_) => panic!("{message:?} is not for a home"),
        }
        self.goes_on()
    }

    /// Takes a node's copy off the list, or makes it one of a reader.
    fn gives_up(&mut self, from: usize) {
        let (_, access, left) = self.served.as_mut().expect("a copy is given up that nobody has recalled");
        *left -= 1;
        match (&mut self.holders, *access) {
            (Holders::Owner(owner), Access::Read) => self.holders = Holders::Readers(BTreeSet::from([*owner])),
            (Holders::Owner(_), Access::Write) => self.holders = Holders::Readers(BTreeSet::new()),
            (Holders::Readers(readers), _) => {
                readers.remove(&from);
            }
        }
    }

    /// Serves what can be served.
    fn goes_on(&mut self) -> Vec<(usize, Message)> {
        let mut said = Vec::new();
        loop {
            match self.served {
                Some((_, _, left)) if left > 0 => return said,
                Some((asker, access, _)) => {
                    said.push((asker, self.grants(asker, access)));
                    self.served = None;
                }
                None => {
                    let Some((asker, access)) = self.waiting.pop_front() else { return said };
                    let recalled = self.in_the_way(asker, access);
                    self.served = Some((asker, access, recalled.len()));
                    said.extend(recalled.into_iter().map(|node| (node, Message::Recall(access))));
                }
            }
        }
    }

    /// Whose copies are to be given up for an access.
    fn in_the_way(&self, asker: usize, access: Access) -> Vec<usize> {
        match (&self.holders, access) {
            (Holders::Owner(owner), _) => vec![*owner],
            (Holders::Readers(_), Access::Read) => Vec::new(),
            (Holders::Readers(readers), Access::Write) => {
                readers.iter().copied().filter(|node| *node != asker).collect()
            }
        }
    }

    fn grants(&mut self, asker: usize, access: Access) -> Message {
        let Holders::Readers(readers) = &mut self.holders else { panic!("an owner's copy was recalled") };
        let block = !readers.contains(&asker);
        match access {
            Access::Read => {
                readers.insert(asker);
            }
            Access::Write => self.holders = Holders::Owner(asker),
        }
        Message::Grant { access, block }
    }
}
