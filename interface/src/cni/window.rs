//! The sliding window of CNI's section 4.1: "a processor can send up to four network messages per destination before it blocks waiting for
//! acknowledgments".
//!
//! The device counts, for each node, the messages to it that were acknowledged. The processor counts those that it sent, and looks at
//! the device's count only when its own copy of it says that the window is full, as it does with a queue's head (section 2.2). How
//! it learns of acknowledgements is not published: here as of everything else that is status, from uncached registers with NI2w and
//! CNI4, from cachable memory, a block for each node, with the queues (section 3).

use conic_fabric::{Address, Core, Home, Layout, MemoryType, SynchronisingWords};

use super::{Kind, POLL_WORK};

/// Counts in memory lie this far apart, in bytes, as a queue's pointers do.
const COUNT_SPACING: u64 = 128;

/// Where a device counts what each node has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    at: Address,
    nodes: u16,
    is_cached: bool,
}

impl Window {
    pub(super) fn place(kind: Kind, nodes: u16, layout: &mut Layout) -> Window {
        let is_cached = kind.queue_blocks().is_some();
        let count = u64::from(nodes);
        let at = if is_cached {
            let (bytes, one) = (count * COUNT_SPACING, SynchronisingWords::FIRST);
            layout.add("acknowledgements", bytes, COUNT_SPACING, kind.home(), one)
        } else {
            layout.add_registers("acknowledgements", 8 * count, Home::Nic, MemoryType::Uncached)
        };
        Window { at, nodes, is_cached }
    }

    /// Where the messages to a node are counted.
    fn count(&self, node: u16) -> Address {
        assert!(node < self.nodes, "there are {} nodes, and no number {node}", self.nodes);
        self.at + u64::from(node) * if self.is_cached { COUNT_SPACING } else { 8 }
    }

    /// The processor's half, which lets so many messages to a node go before one of them is acknowledged.
    pub(super) fn unacknowledged(self, most: u64) -> Unacknowledged {
        let nodes = self.nodes.into();
        Unacknowledged { window: self, most, sent: vec![0; nodes], acknowledged: vec![0; nodes] }
    }

    /// The device's half.
    pub(super) fn acknowledged(self) -> Acknowledged {
        Acknowledged { window: self, counts: vec![0; self.nodes.into()] }
    }
}

/// What the processor knows of the messages that it sent.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    window: Window,
    most: u64,
    /// Messages to each node, and those that were acknowledged when it last looked.
    sent: Vec<u64>,
    acknowledged: Vec<u64>,
}

impl Unacknowledged {
    /// Whether one more message may go to a node.
    pub(super) fn may_send<C: Core>(&mut self, core: &C, to: u16) -> bool {
        let (window, index) = (self.window, usize::from(to));
        let at = window.count(to);
        if self.sent[index] - self.acknowledged[index] < self.most {
            return true;
        }
        core.work(POLL_WORK);
        // Acquire: nothing but the count itself is made visible by it; the fabric's loads of synchronising words are none weaker.
        let count = if window.is_cached { core.load_acquire(at) } else { core.register_read(at) };
        // A device that counts what was not sent opens its own window, and nobody else's.
        self.acknowledged[index] = count.min(self.sent[index]);
        self.sent[index] - self.acknowledged[index] < self.most
    }

    /// A message to a node has gone.
    pub(super) fn note_sent(&mut self, to: u16) {
        self.sent[usize::from(to)] += 1;
    }
}

/// What the device knows of them.
#[derive(Debug)]
pub(super) struct Acknowledged {
    window: Window,
    counts: Vec<u64>,
}

impl Acknowledged {
    /// A node has acknowledged a message.
    pub(super) fn note<D: Core>(&mut self, device: &D, by: u16) {
        let at = self.window.count(by);
        let count = &mut self.counts[usize::from(by)];
        *count += 1;
        if self.window.is_cached {
            // Release: nothing but the count itself; the fabric's stores of synchronising words are none weaker.
            device.store_release(at, *count);
        } else {
            device.register_write(at, *count);
        }
    }
}
