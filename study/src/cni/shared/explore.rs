//! Every interleaving of the accesses of three nodes, the first of which is its home, to one block.
//!
//! Data is old or new: whether a copy has seen the last store. Messages between two nodes stay in order; those of different pairs do not.

use std::collections::{BTreeSet, VecDeque};

use super::{Access, Copy, Directory, Message};

const NODES: usize = 3;
const HOME: usize = 0;

/// A mistake, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A reader keeps its copy though it is recalled.
    KeepsCopy,
    /// Who had a block writable still writes when others read.
    StaysWritable,
    /// What is given back leaves the home's memory as it was.
    ForgetsBlock,
    /// A grant never brings the block.
    GrantsWithoutBlock,
    /// A recall is answered for one reader by the home itself, who does not ask.
    AnswersForReader,
    /// A message may overtake another between the same two nodes.
    Overtakes,
    /// A request that comes while another is served is lost.
    LosesRequest,
}

/// A message on its way; if a block comes with it, whether that is new.
type Sent = (Message, bool);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    copies: [Copy; NODES],
    /// Whether each node's memory has the last store.
    new: [bool; NODES],
    wants: [Option<Access>; NODES],
    directory: Directory,
    /// Messages by sender and receiver.
    channels: [[VecDeque<Sent>; NODES]; NODES],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access(usize, Access),
    Deliver { from: usize, to: usize, place: usize },
}

impl State {
    fn start() -> State {
        let mut copies = [Copy::Invalid; NODES];
        copies[HOME] = Copy::Writable;
        State {
            copies,
            new: [true, false, false],
            wants: [None; NODES],
            directory: Directory::new(HOME),
            channels: Default::default(),
        }
    }

    fn steps(&self, mutation: Mutation) -> Vec<Step> {
        let mut steps = Vec::new();
        for node in (0..NODES).filter(|node| self.wants[*node].is_none()) {
            steps.extend([Access::Read, Access::Write].map(|access| Step::Access(node, access)));
        }
        for (from, channels) in self.channels.iter().enumerate() {
            for (to, channel) in channels.iter().enumerate() {
                let next = if mutation == Mutation::Overtakes { channel.len() } else { channel.len().min(1) };
                steps.extend((0..next).map(|place| Step::Deliver { from, to, place }));
            }
        }
        steps
    }

    fn send(&mut self, from: usize, to: usize, message: Message, mutation: Mutation) {
        let message = match message {
            Message::Grant { access, .. } if mutation == Mutation::GrantsWithoutBlock => {
                Message::Grant { access, block: false }
            }
            message => message,
        };
        if mutation == Mutation::AnswersForReader && message == Message::Recall(Access::Write) && to == NODES - 1 {
            return self.channels[to][from].push_back((Message::Return { block: false }, false));
        }
        let new = self.new[from];
        self.channels[from][to].push_back((message, new));
    }

    fn take(&mut self, step: Step, mutation: Mutation) -> Result<(), String> {
        match step {
            Step::Access(node, access) if self.copies[node].suffices(access) => self.access(node, access),
            Step::Access(node, access) => {
                self.wants[node] = Some(access);
                self.send(node, HOME, Message::Request(access), mutation);
                Ok(())
            }
            Step::Deliver { from, to, place } => {
                let sent = self.channels[from][to].remove(place).expect("a message that is there");
                self.deliver(from, to, sent, mutation)
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize, (message, new): Sent, mutation: Mutation) -> Result<(), String> {
        match message {
            Message::Request(_) | Message::Return { .. } => {
                if message == (Message::Return { block: true }) && mutation != Mutation::ForgetsBlock {
                    self.new[HOME] = new;
                }
                let is_busy = self.directory.served.is_some();
                if mutation == Mutation::LosesRequest && is_busy && matches!(message, Message::Request(_)) {
                    return Ok(());
                }
                for (node, said) in self.directory.hears(from, message) {
                    self.send(HOME, node, said, mutation);
                }
                Ok(())
            }
            Message::Grant { access, block } => {
                if block {
                    self.new[to] = new;
                }
                self.copies[to] = Copy::granted(access);
                let wanted = self.wants[to].take();
                if wanted != Some(access) {
                    return Err(format!("node {to} is granted {access:?}, and wanted {wanted:?}"));
                }
                self.access(to, access)
            }
            Message::Recall(access) => {
                let (after, answer) = self.copies[to].recalled(access);
                self.send(to, HOME, answer, mutation);
                self.copies[to] = match (mutation, self.copies[to]) {
                    (Mutation::KeepsCopy, Copy::ReadOnly) | (Mutation::StaysWritable, Copy::Writable) => {
                        self.copies[to]
                    }
                    _ => after,
                };
                Ok(())
            }
        }
    }

    fn access(&mut self, node: usize, access: Access) -> Result<(), String> {
        if !self.new[node] {
            return Err(format!("node {node} accesses ({access:?}) what is old"));
        }
        if access == Access::Write {
            self.new = [false; NODES];
            self.channels.iter_mut().flatten().flatten().for_each(|sent| sent.1 = false);
            self.new[node] = true;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let having = |copy| self.copies.iter().filter(|other| **other == copy).count();
        if having(Copy::Writable) > 1 || having(Copy::Writable) == 1 && having(Copy::ReadOnly) > 0 {
            return Err("who writes is not alone".to_owned());
        }
        let nothing_comes = self.channels.iter().flatten().all(VecDeque::is_empty);
        if nothing_comes && self.wants.iter().any(Option::is_some) {
            return Err("who has asked waits for ever".to_owned());
        }
        Ok(())
    }
}

/// How many states there are, or what is wrong in one.
fn explore(mutation: Mutation) -> Result<usize, String> {
    let mut known = BTreeSet::from([State::start()]);
    let mut frontier = vec![State::start()];
    while let Some(state) = frontier.pop() {
        for step in state.steps(mutation) {
            let mut after = state.clone();
            let taken = after.take(step, mutation).and_then(|()| after.check());
            taken.map_err(|why| format!("{why}: {step:?} in {state:?}"))?;
            for node in (0..NODES).filter(|node| *node != HOME) {
                // Whether a block is old that is not there does not matter.
                after.new[node] &= after.copies[node] != Copy::Invalid;
            }
            if known.insert(after.clone()) {
                frontier.push(after);
            }
        }
    }
    Ok(known.len())
}

#[test]
fn one_writes_or_many_read_and_each_sees_the_last_write() {
    let states = explore(Mutation::None).unwrap_or_else(|fault| panic!("{fault}"));
    println!("{states} states");
    assert!(states > 500, "{states} states");
}

#[test]
fn a_planted_mistake_is_found() {
    for mutation in [
        Mutation::KeepsCopy,
        Mutation::StaysWritable,
        Mutation::ForgetsBlock,
        Mutation::GrantsWithoutBlock,
        Mutation::AnswersForReader,
        Mutation::Overtakes,
        Mutation::LosesRequest,
    ] {
        let fault = std::panic::catch_unwind(|| explore(mutation)).unwrap_or_else(|_| Err("a panic".to_owned()));
        let fault = fault.expect_err(&format!("{mutation:?} is not found"));
        println!("{mutation:?}: {fault}");
    }
}

#[test]
fn an_upgrade_brings_no_block_and_a_block_comes_with_every_other_grant() {
    let mut directory = Directory::new(HOME);
    let grant = |access, block| Message::Grant { access, block };
    assert_eq!(directory.hears(1, Message::Request(Access::Read)), [(HOME, Message::Recall(Access::Read))]);
    let returned = Message::Return { block: true };
    assert_eq!(directory.hears(HOME, returned), [(1, grant(Access::Read, true))]);
    assert_eq!(directory.hears(2, Message::Request(Access::Read)), [(2, grant(Access::Read, true))]);
    let recall = Message::Recall(Access::Write);
    assert_eq!(directory.hears(1, Message::Request(Access::Write)), [(HOME, recall), (2, recall)]);
    assert_eq!(directory.hears(2, Message::Request(Access::Read)), [], "a request is served at a time");
    assert_eq!(directory.hears(2, Message::Return { block: false }), []);
    let said = directory.hears(HOME, Message::Return { block: false });
    assert_eq!(said, [(1, grant(Access::Write, false)), (1, Message::Recall(Access::Read))]);
    assert_eq!(directory.hears(1, returned), [(2, grant(Access::Read, true))]);
}
