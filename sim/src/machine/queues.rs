//! The machine's queues, each with a probe ([`crate::probe::queues`]): which there are, and what they say of themselves.

mod report;

use crate::pcie::Way;
use crate::probe::queues::{Name, Probed, probed};
use crate::protocol::ToHome;

use super::{COMPLETING, Machine};

/// A queue or a pool of credits of the machine; of a core, a node, one of its links or memory channels, or of the PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    /// A core's line fill buffers.
    LineFill(u16),
    /// Loads and prefetches of a core that wait for a line fill buffer.
    LoadBuffer(u16),
    /// Loads that a core goes on behind.
    Reorder(u16),
    /// A core's stores that were not performed.
    StoreBuffer(u16),
    /// Write-combining buffers that gather stores.
    Gathering(u16),
    /// Those that are on their way to a device.
    Flushing(u16),
    /// Writes to memory past the caches that were not answered.
    Unanswered(u16),
    /// A core's uncached access.
    Uncached(u16),
    /// Copies that were posted to an engine, which has not taken them.
    Copies(u16),
    /// A slice of a node's home agents.
    Slice(u8, u8),
    /// Entries of a slice of a node's home agents.
    Entries(u8, u8),
    /// Requests that wait for one.
    WithoutEntry(u8, u8),
    /// Requests that wait for a way of a node's snoop filter.
    WithoutWay(u8),
    /// Lines for which a node's home agents have something under way.
    Lines(u8),
    /// Requests that wait for one before them on the same line.
    Requests(u8),
    /// A node's requests that the other node has not answered.
    Credits(u8),
    /// Those that wait for a credit.
    WithoutCredit(u8),
    /// A link, from a node to the other.
    Link(u8, u8),
    /// A channel of a node's memory.
    Channel(u8, u8),
    /// What the home agents do past the caches.
    PastCaches,
    /// The root port's queue of what the link brought.
    RootPort,
    /// The device's reads.
    DeviceReads,
    /// Tags of the device's reads.
    Tags,
    /// Reads that wait for one.
    WithoutTag,
    /// Write credits of the root port.
    WriteCredits,
    /// What of the device waits behind a write without one.
    WithoutWriteCredit,
    /// A direction of the PCIe link: to the root port, to the device.
    Wire(u8),
}

/// Names of the kinds of queues, in the order of its variants.
pub const KINDS: [&str; 27] = [
    "line fill buffers",
    "load buffer",
    "loads under way",
    "store buffer",
    "write-combining buffers",
    "write-combining buffers on their way",
    "writes past the caches",
    "uncached access",
    "copies for an engine",
    "home agent",
    "home agent entries",
    "requests without an entry",
    "requests without a way",
    "lines under way",
    "requests for a line",
    "request credits",
    "requests without a credit",
    "link",
    "memory channel",
    "requests past the caches",
    "root port",
    "device reads",
    "read tags",
    "reads without a tag",
    "write credits",
    "transactions without a credit",
    "PCIe",
];

impl Name for Queue {
    fn kind(self) -> &'static str {
        let place = match self {
            Queue::LineFill(_) => 0,
            Queue::LoadBuffer(_) => 1,
            Queue::Reorder(_) => 2,
            Queue::StoreBuffer(_) => 3,
            Queue::Gathering(_) => 4,
            Queue::Flushing(_) => 5,
            Queue::Unanswered(_) => 6,
            Queue::Uncached(_) => 7,
            Queue::Copies(_) => 8,
            Queue::Slice(..) => 9,
            Queue::Entries(..) => 10,
            Queue::WithoutEntry(..) => 11,
            Queue::WithoutWay(_) => 12,
            Queue::Lines(_) => 13,
            Queue::Requests(_) => 14,
            Queue::Credits(_) => 15,
            Queue::WithoutCredit(_) => 16,
            Queue::Link(..) => 17,
            Queue::Channel(..) => 18,
            Queue::PastCaches => 19,
            Queue::RootPort => 20,
            Queue::DeviceReads => 21,
            Queue::Tags => 22,
            Queue::WithoutTag => 23,
            Queue::WriteCredits => 24,
            Queue::WithoutWriteCredit => 25,
            Queue::Wire(_) => 26,
        };
        KINDS[place]
    }
}

probed!(Machine);

/// Entries and exits that take more than a call to tell of.
impl Machine {
    /// What is under way for a line in a node: nothing, or something and its end, where that is known.
    pub(super) fn under_way(&self, node: usize, line: u32) -> Option<Option<u64>> {
        let record = &self.lines[line as usize];
        match record.active[node] {
            0 => None,
            COMPLETING => Some(Some(record.completion())),
            place => Some(self.actives[place as usize - 1].known_end()),
        }
    }

    /// A node's home agents have handled a message about a line. `before`: what was known before it of the end of what was
    /// under way, if anything was.
    #[inline(always)]
    pub(crate) fn line_was_handled(&mut self, node: usize, line: u32, before: Option<Option<u64>>) {
        if self.is_probed() {
            self.note_line(node, line, before);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_line(&mut self, node: usize, line: u32, before: Option<Option<u64>>) {
        let (queue, now) = (Queue::Lines(node as u8), self.now);
        let after = self.under_way(node, line);
        // Whose end is known has left already, at that time.
        let was_inside = before == Some(None);
        if !was_inside && (after.is_none() || after == before) {
            return;
        }
        if !was_inside {
            self.enters(queue, line, now.max(before.flatten().unwrap_or(now)));
        }
        match after {
            None => self.leaves(queue, line, now),
            Some(Some(end)) => self.leaves(queue, line, end),
            Some(None) => {}
        }
    }

    /// A message is at a node's home agents, where `before` requests for its line waited; `after` it was handled so many wait.
    #[inline(always)]
    pub(crate) fn requests_wait(&mut self, node: usize, line: u32, message: ToHome, before: usize, after: usize) {
        if self.is_probed() {
            self.note_requests(Queue::Requests(node as u8), line, message, before, after);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_requests(&mut self, queue: Queue, line: u32, message: ToHome, before: usize, after: usize) {
        let comes = matches!(message, ToHome::Request { .. } | ToHome::OrderedWrite { .. });
        if comes {
            self.enters(queue, line, self.now);
        }
        for _ in after..before + usize::from(comes) {
            self.leaves(queue, line, self.now);
        }
    }

    /// A message takes a link's flits, from when it is ready until its last flit has left.
    #[inline(always)]
    pub(crate) fn takes_link(&mut self, node: usize, line: u32, ready: u64, arrives: u64) {
        if self.is_probed() {
            self.note_takes_link(node, line, ready, arrives);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_takes_link(&mut self, node: usize, line: u32, ready: u64, arrives: u64) {
        let out = &self.nodes[node].out;
        let link = out.link_of(u64::from(line)) as u8;
        self.serves(Queue::Link(node as u8, link), ready, arrives - self.timing.crossing);
    }

    /// A line takes a channel of a node's memory from `begins` on; `message` is what the home agents ask for.
    #[inline(always)]
    pub(crate) fn takes_channel(&mut self, node: usize, line: u32, message: &'static str, begins: u64) {
        self.note_memory(node, line, message, begins);
        if self.is_probed() {
            self.note_takes_channel(node, line, begins);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_takes_channel(&mut self, node: usize, line: u32, begins: u64) {
        let channel = self.nodes[node].memory.channel_of(u64::from(line)) as u8;
        self.serves(Queue::Channel(node as u8, channel), self.now, begins + self.parameters.memory.line_time);
    }

    /// A transaction takes the PCIe link's wire, to be at the other end when it `arrives`.
    #[inline(always)]
    pub(crate) fn takes_wire(&mut self, way: Way, arrives: u64) {
        if self.is_probed() {
            self.note_takes_wire(way, arrives);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_takes_wire(&mut self, way: Way, arrives: u64) {
        let crossing = self.parameters.pcie.as_ref().map_or(0, |pcie| pcie.crossing);
        self.serves(Queue::Wire(way as u8), self.now, arrives - crossing);
    }
}
