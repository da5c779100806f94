//! A node's shared memory: its copies of blocks, the directories of those whose home it is, and the active messages between them
//! ([`crate::cni::shared`]).

use std::collections::{BTreeMap, VecDeque};

use conic_fabric::{Address, Core};

use super::Messenger;
use crate::cni::shared::{Access, Copy, Directory, Message};

/// Words of a block: "moderately large (128-byte) shared-memory blocks" (section 5.2).
pub(super) const BLOCK_WORDS: usize = 16;
const BLOCK_BYTES: u64 = 8 * BLOCK_WORDS as u64;

/// Cycles of a fault, from the access to the request, and of a message's handler beside what it copies: a table is looked up and changed.
const FAULT_WORK: u64 = 30;
const HANDLER_WORK: u64 = 30;

/// A block's name, which is the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block {
    /// Its home.
    pub(super) home: u16,
    /// Which of that node's.
    pub(super) number: u16,
}

/// Where a node has a block.
#[derive(Clone, Copy, Debug)]
struct Frame {
    at: Address,
    copy: Copy,
}

/// What the first word of an active message says: one of these by its place, or that a node has come to the end, or that all have.
const SAID: [Message; 10] = [
    Message::Request(Access::Read),
    Message::Request(Access::Write),
    Message::Grant { access: Access::Read, block: false },
    Message::Grant { access: Access::Read, block: true },
    Message::Grant { access: Access::Write, block: false },
    Message::Grant { access: Access::Write, block: true },
    Message::Recall(Access::Read),
    Message::Recall(Access::Write),
    Message::Return { block: false },
    Message::Return { block: true },
];
const AT_END: u32 = SAID.len() as u32;
const ALL_AT_END: u32 = AT_END + 1;

/// Whether a message brings its block.
fn brings(message: Message) -> bool {
    matches!(message, Message::Grant { block: true, .. } | Message::Return { block: true })
}

/// A node's part of the shared memory. A frame is given to a block when the node first touches it, and is its own for ever.
pub(super) struct SharedMemory {
    machines: usize,
    /// Where frames are, and how many there may be.
    at: Address,
    most: u64,
    frames: BTreeMap<Block, Frame>,
    directories: BTreeMap<Block, Directory>,
    /// What this node has said to itself.
    own: VecDeque<(Block, Message)>,
    /// How many nodes have come to the end, as node 0 knows; and whether all have.
    at_end: usize,
    all_at_end: bool,
}

impl SharedMemory {
    /// Of one of `machines` nodes, with frames in `bytes` bytes from `at` on.
    pub(super) fn new(machines: usize, at: Address, bytes: u64) -> SharedMemory {
        SharedMemory {
            machines,
            at,
            most: bytes / BLOCK_BYTES,
            frames: BTreeMap::new(),
            directories: BTreeMap::new(),
            own: VecDeque::new(),
            at_end: 0,
            all_at_end: false,
        }
    }

    /// How many bytes so many frames are.
    pub(super) fn bytes_of(frames: u64) -> u64 {
        frames * BLOCK_BYTES
    }

    fn frame(&mut self, here: usize, block: Block) -> &mut Frame {
        let (at, most, count) = (self.at, self.most, self.frames.len() as u64);
        self.frames.entry(block).or_insert_with(|| {
            assert!(count < most, "a node touches more than the {most} blocks that it has frames for");
            let copy = if usize::from(block.home) == here { Copy::Writable } else { Copy::Invalid };
            Frame { at: at + count * BLOCK_BYTES, copy }
        })
    }

    /// One of a block's words, as a program reads it.
    pub(super) fn word(&mut self, node: &mut Messenger<'_>, block: Block, word: usize) -> u64 {
        let at = self.gain(node, block, Access::Read);
        node.core.load(at.word(word))
    }

    /// A block's words.
    pub(super) fn read(&mut self, node: &mut Messenger<'_>, block: Block) -> [u64; BLOCK_WORDS] {
        let at = self.gain(node, block, Access::Read);
        let mut bytes = [0; BLOCK_BYTES as usize];
        node.core.read_bytes(at, &mut bytes);
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|index| u64::from_ne_bytes(words[index]))
    }

    /// Writes a block's words: others see all of them or none.
    pub(super) fn write(&mut self, node: &mut Messenger<'_>, block: Block, words: &[u64; BLOCK_WORDS]) {
        let at = self.gain(node, block, Access::Write);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        node.core.write_bytes(at, &bytes);
    }

    /// Waits until somebody else wants to write a block that this node has to read.
    pub(super) fn await_recall(&mut self, node: &mut Messenger<'_>, block: Block) {
        while self.frame(node.node(), block).copy != Copy::Invalid {
            self.step_or_spin(node);
        }
    }

    /// Answers what others ask, while there is something.
    pub(super) fn serve(&mut self, node: &mut Messenger<'_>) {
        while self.step(node) {}
    }

    /// Answers what others ask until every node has come here.
    pub(super) fn ends(&mut self, node: &mut Messenger<'_>) {
        match node.node() {
            0 => self.one_at_end(node),
            _ => node.send(0, &[AT_END]),
        }
        while !self.all_at_end {
            self.step_or_spin(node);
        }
    }

    fn one_at_end(&mut self, node: &mut Messenger<'_>) {
        self.at_end += 1;
        if self.at_end == self.machines {
            self.all_at_end = true;
            (1..self.machines).for_each(|to| node.send(to, &[ALL_AT_END]));
        }
    }

    /// Makes this node's copy suffice for an access, which is to follow before anything else is heard. Gives where the block is.
    fn gain(&mut self, node: &mut Messenger<'_>, block: Block, access: Access) -> Address {
        let here = node.node();
        if !self.frame(here, block).copy.suffices(access) {
            node.work(FAULT_WORK);
            self.say(node, block, block.home.into(), Message::Request(access));
            while !self.frame(here, block).copy.suffices(access) {
                self.step_or_spin(node);
            }
        }
        self.frame(here, block).at
    }

    fn step_or_spin(&mut self, node: &mut Messenger<'_>) {
        if !self.step(node) {
            node.core.spin();
        }
    }

    /// Hears one message, if there is one.
    fn step(&mut self, node: &mut Messenger<'_>) -> bool {
        if let Some((block, message)) = self.own.pop_front() {
            self.hears(node, node.node(), block, message);
            return true;
        }
        let Some((from, words)) = node.poll() else { return false };
        match words[0] {
            AT_END => self.one_at_end(node),
            ALL_AT_END => self.all_at_end = true,
            said => {
                let [number, home] = [words[1] as u16, (words[1] >> 16) as u16];
                let (block, message) = (Block { home, number }, SAID[said as usize]);
                if brings(message) {
                    let at = self.frame(node.node(), block).at;
                    let bytes: Vec<u8> = words[2..].iter().flat_map(|word| word.to_ne_bytes()).collect();
                    node.core.write_bytes(at, &bytes);
                }
                self.hears(node, from, block, message);
            }
        }
        true
    }

    fn hears(&mut self, node: &mut Messenger<'_>, from: usize, block: Block, message: Message) {
        node.work(HANDLER_WORK);
        let here = node.node();
        match message {
            Message::Request(_) | Message::Return { .. } => {
                let directory = self.directories.entry(block).or_insert_with(|| Directory::new(here));
                for (to, message) in directory.hears(from, message) {
                    self.say(node, block, to, message);
                }
            }
            Message::Grant { access, .. } => self.frame(here, block).copy = Copy::granted(access),
            Message::Recall(access) => {
                let frame = self.frame(here, block);
                let (after, answer) = frame.copy.recalled(access);
                frame.copy = after;
                self.say(node, block, block.home.into(), answer);
            }
        }
    }

    fn say(&mut self, node: &mut Messenger<'_>, block: Block, to: usize, message: Message) {
        let here = node.node();
        if to == here {
            return self.own.push_back((block, message));
        }
        let said = SAID.iter().position(|other| *other == message).expect("every message has its place");
        let mut words = vec![said as u32, u32::from(block.home) << 16 | u32::from(block.number)];
        if brings(message) {
            let mut bytes = [0; BLOCK_BYTES as usize];
            node.core.read_bytes(self.frame(here, block).at, &mut bytes);
            words.extend(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)));
        }
        node.send(to, &words);
    }
}

#[cfg(test)]
mod tests {
    use conic_interface::cni::Kind;
    use conic_sim::bus::{Attachment, BusParameters};
    use conic_sim::platform::Platform;

    use super::*;
    use crate::cni::applications::{Parallel, Program, Run, run_as};
    use crate::cni::nodes::Nodes;

    /// Every node counts in a few blocks, which all want to write.
    #[derive(Clone)]
    struct Counting;

    const MACHINES: usize = 4;
    const BLOCKS: u16 = 3;
    const ROUNDS: u64 = 30;

    impl Parallel for Counting {
        fn memory_bytes(&self) -> u64 {
            SharedMemory::bytes_of(BLOCKS.into())
        }
        fn part(&self, node: &mut Messenger<'_>) -> Vec<u32> {
            let mut memory = SharedMemory::new(MACHINES, node.memory, self.memory_bytes());
            // Each has another node's home; the last node has none.
            let blocks = [0, 1, 2].map(|home| Block { home, number: 7 });
            for round in 0..ROUNDS {
                for block in blocks {
                    let at = memory.gain(node, block, Access::Write);
                    node.core.store(at, node.core.load(at) + 1);
                    node.work(10 * (round + node.node() as u64));
                }
                memory.serve(node);
            }
            let all = ROUNDS * MACHINES as u64;
            for block in blocks {
                while memory.word(node, block, 0) < all {
                    memory.await_recall(node, block);
                }
            }
            let counted = blocks.map(|block| memory.read(node, block)[0] as u32);
            memory.ends(node);
            counted.to_vec()
        }
        fn expected(&self) -> Vec<Vec<u32>> {
            vec![vec![ROUNDS as u32 * MACHINES as u32; BLOCKS.into()]; MACHINES]
        }
    }

    #[test]
    fn what_all_nodes_count_in_the_same_blocks_is_counted_once_each() {
        let platform = Platform::<BusParameters>::load_as("hypersparc").expect("a platform that is there");
        for kind in [Kind::Ni2w, Kind::Cni16Qm] {
            let machine = platform.parameters().clone();
            let nodes = Nodes { machine, attachment: Attachment::MemoryBus, kind, count: MACHINES };
            let found = run_as(&Counting, &Run { nodes, program: Program::Appbt, whole: false });
            let found = found.unwrap_or_else(|failure| panic!("{kind}: {failure}"));
            // Each block goes from node to node: it is asked for, recalled, given back and granted.
            assert!(found.messages > 3 * ROUNDS, "{found:?}");
        }
    }
}
