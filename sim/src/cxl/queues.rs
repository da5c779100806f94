//! The machine's queues, each with a probe ([`crate::probe::queues`]): which there are, and what they say of themselves.

use super::link::{CLASSES, Class};
use super::machine::Machine;
use super::ports::PORTS;
use crate::memory::Memory;
use crate::pcie::Way;
use crate::probe::queues::{Name, Probed, Queues, probed};
use crate::protocol::cxl::Side;

/// A queue or a pool of credits of the machine; of a core, an engine, a direction of a link (by its receiver), a memory channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    /// A core's line fill buffers.
    LineFill(u16),
    /// Loads that a core goes on behind.
    Reorder(u16),
    /// A core's stores that were not performed.
    StoreBuffer(u16),
    /// A core's writes past its caches, and flushes, that are not done.
    Nontemporal(u16),
    /// Reads of registers, and writes from when they leave their cores.
    RegisterReads,
    RegisterWrites,
    /// What cores and DMA engines asked the home agents and these have not begun: on its way, looked up, in a line. Of the device's
    /// requests, which the link has until they are looked up, those in a line.
    Jobs,
    /// Of that, what waits for one before it on the same line.
    Requests,
    /// Of that, what may not pass a posted write.
    BehindPosted,
    /// Lines of which a transaction is under way.
    Lines,
    /// A channel of the host's memory, or of the device's.
    Channel(Side, u8),
    /// A direction of the CXL link.
    Link(Side),
    /// Credits for a class of messages.
    Credits(Side, Class),
    /// Messages that wait for one.
    WithoutCredit(Side),
    /// What the link's layer keeps until it is acknowledged.
    Retry(Side),
    /// The device's reads that its logic has not taken.
    DeviceReads,
    /// An engine's writes that are not done.
    DeviceWrites(u16),
    /// Of those, what must come after others, and what waits behind them.
    Ordered(u16),
    /// A port of the coherence engine.
    Port(u8),
    /// Requests that the coherence engine has under way.
    Tags,
    /// Of those, the ones that wait for the host.
    Pending,
    /// Of those, the ones that wait for one of the same line.
    Behind,
    /// Lines that are put into the device's caches.
    Gate,
    /// Packets of DMA transfers.
    Pieces,
    /// Tags of DMA reads.
    ReadTags,
    /// Reads that wait for one.
    WithoutTag,
    /// Write credits of the root port.
    WriteCredits,
    /// What of the device waits behind a write without one.
    WithoutWriteCredit,
    /// Posted writes at the root port.
    RootPort,
    /// A direction of the PCIe link.
    Wire(Side),
}

/// Names of the kinds of queues, in the order of its variants.
pub const KINDS: [&str; 30] = [
    "line fill buffers",
    "loads under way",
    "store buffer",
    "writes past the caches",
    "register reads",
    "register writes",
    "requests at the home agents",
    "requests for a line",
    "accesses behind a posted write",
    "lines under way",
    "memory channel",
    "link",
    "link credits",
    "messages without a credit",
    "retry buffer",
    "device reads",
    "device writes",
    "writes in order",
    "port",
    "requests in flight",
    "requests to the host",
    "requests behind one for their line",
    "lines into the caches",
    "DMA packets",
    "read tags",
    "reads without a tag",
    "write credits",
    "transactions without a credit",
    "root port",
    "PCIe",
];

impl Name for Queue {
    fn kind(self) -> &'static str {
        let place = match self {
            Queue::LineFill(_) => 0,
            Queue::Reorder(_) => 1,
            Queue::StoreBuffer(_) => 2,
            Queue::Nontemporal(_) => 3,
            Queue::RegisterReads => 4,
            Queue::RegisterWrites => 5,
            Queue::Jobs => 6,
            Queue::Requests => 7,
            Queue::BehindPosted => 8,
            Queue::Lines => 9,
            Queue::Channel(..) => 10,
            Queue::Link(_) => 11,
            Queue::Credits(..) => 12,
            Queue::WithoutCredit(_) => 13,
            Queue::Retry(_) => 14,
            Queue::DeviceReads => 15,
            Queue::DeviceWrites(_) => 16,
            Queue::Ordered(_) => 17,
            Queue::Port(_) => 18,
            Queue::Tags => 19,
            Queue::Pending => 20,
            Queue::Behind => 21,
            Queue::Gate => 22,
            Queue::Pieces => 23,
            Queue::ReadTags => 24,
            Queue::WithoutTag => 25,
            Queue::WriteCredits => 26,
            Queue::WithoutWriteCredit => 27,
            Queue::RootPort => 28,
            Queue::Wire(_) => 29,
        };
        KINDS[place]
    }
}

const SIDES: [Side; 2] = [Side::Host, Side::Device];

probed!(Machine);

impl Machine {
    fn memory_of(&mut self, side: Side) -> (&mut Memory, u64, u64) {
        let p = &self.parameters;
        match side {
            Side::Host => (&mut self.memory, p.memory.latency, p.memory.line_time),
            Side::Device => (&mut self.device_memory, p.device_memory.latency, p.device_memory.line_time),
        }
    }

    /// Has a side's memory read a line, as [`Memory::read`].
    pub(super) fn reads_memory(&mut self, side: Side, line: u32) -> u64 {
        let (now, is_probed) = (self.agenda.now, self.is_probed());
        let (memory, latency, line_time) = self.memory_of(side);
        if !is_probed {
            return memory.read(line.into(), now);
        }
        let channel = memory.channel_of(line.into());
        let before = memory.accesses_of(channel);
        let ready = memory.read(line.into(), now);
        // A line that waits to be written is read out of the controller's queue, and asks no channel.
        if memory.accesses_of(channel) > before {
            self.serves(Queue::Channel(side, channel as u8), now, ready - latency + line_time);
        }
        ready
    }

    /// Has it write one, as [`Memory::write`].
    pub(super) fn writes_memory(&mut self, side: Side, line: u32) -> u64 {
        let now = self.agenda.now;
        let is_probed = self.is_probed();
        let (memory, ..) = self.memory_of(side);
        let done = memory.write(line.into(), now);
        if !is_probed {
            return done;
        }
        let channel = memory.channel_of(line.into()) as u8;
        self.serves(Queue::Channel(side, channel), now, done);
        done
    }

    /// A TLP is on a direction of the PCIe link since `at`, and arrives.
    pub(super) fn takes_wire(&mut self, receiver: Side, at: u64, arrives: u64) {
        self.serves(Queue::Wire(receiver), at, arrives - self.parameters.pcie.crossing);
    }
}

fn way_to(receiver: Side) -> Way {
    if receiver == Side::Host { Way::ToRoot } else { Way::ToDevice }
}

fn name_of(side: Side) -> &'static str {
    if side == Side::Host { "host" } else { "device" }
}

impl Probed for Machine {
    type Queue = Queue;

    fn probes(&self) -> &Option<Box<Queues<Queue>>> {
        &self.queues
    }

    fn probes_mut(&mut self) -> &mut Option<Box<Queues<Queue>>> {
        &mut self.queues
    }

    fn present(&self) -> u64 {
        self.agenda.now
    }

    fn all_queues(&self) -> Vec<Queue> {
        let mut all = vec![
            Queue::RegisterReads,
            Queue::RegisterWrites,
            Queue::Jobs,
            Queue::Requests,
            Queue::BehindPosted,
            Queue::Lines,
            Queue::DeviceReads,
            Queue::Tags,
            Queue::Pending,
            Queue::Behind,
            Queue::Gate,
            Queue::Pieces,
            Queue::ReadTags,
            Queue::WithoutTag,
            Queue::WriteCredits,
            Queue::WithoutWriteCredit,
            Queue::RootPort,
        ];
        let of_core = [Queue::LineFill, Queue::Reorder, Queue::StoreBuffer, Queue::Nontemporal];
        all.extend((0..self.cores.len() as u16).flat_map(|core| of_core.map(|queue| queue(core))));
        let of_engine = [Queue::DeviceWrites, Queue::Ordered];
        all.extend(self.engines.keys().flat_map(|&agent| of_engine.map(|queue| queue(agent as u16))));
        all.extend((0..PORTS as u8).map(Queue::Port));
        for side in SIDES {
            let channels =
                if side == Side::Host { &self.parameters.memory } else { &self.parameters.device_memory }.channels;
            all.extend((0..channels as u8).map(|channel| Queue::Channel(side, channel)));
            all.extend([Queue::Link, Queue::WithoutCredit, Queue::Retry, Queue::Wire].map(|queue| queue(side)));
            all.extend(CLASSES.map(|class| Queue::Credits(side, class)));
        }
        all
    }

    fn owner(&self, queue: Queue) -> String {
        match queue {
            Queue::LineFill(core) | Queue::Reorder(core) | Queue::StoreBuffer(core) | Queue::Nontemporal(core) => {
                format!("core {core}")
            }
            Queue::DeviceWrites(agent) | Queue::Ordered(agent) => self.agent_name(agent.into()),
            Queue::Jobs | Queue::Requests | Queue::BehindPosted | Queue::Lines => "home agents".to_owned(),
            Queue::Channel(side, channel) => format!("{} memory {channel}", name_of(side)),
            Queue::Credits(receiver, class) => format!("{} to the {}", class.name(), name_of(receiver)),
            Queue::Link(receiver) | Queue::WithoutCredit(receiver) | Queue::Retry(receiver) | Queue::Wire(receiver) => {
                format!("to the {}", name_of(receiver))
            }
            Queue::Port(0) => "packets".to_owned(),
            Queue::Port(_) => "descriptors".to_owned(),
            Queue::DeviceReads => "device".to_owned(),
            Queue::Tags | Queue::Pending | Queue::Behind | Queue::Gate => "coherence engine".to_owned(),
            _ => "PCIe link".to_owned(),
        }
    }

    fn limit_of(&self, queue: Queue) -> Option<u64> {
        let p = &self.parameters;
        Some(u64::from(match queue {
            Queue::LineFill(_) => p.core.line_fill_buffers,
            Queue::StoreBuffer(_) => p.core.store_buffer,
            Queue::Nontemporal(_) => p.core.write_combining_buffers,
            Queue::Credits(receiver, class) => self.channel(receiver).credits(class).limit(),
            Queue::Tags => p.dcoh.requests_in_flight,
            Queue::ReadTags => p.pcie.tags,
            Queue::WriteCredits => p.pcie.posted_credits,
            _ => return None,
        }))
    }

    fn says(&self, queue: Queue) -> Option<u64> {
        let core = |core: u16| &self.cores[usize::from(core)];
        let engine = |agent: u16| self.engines.get(&usize::from(agent));
        Some(match queue {
            Queue::LineFill(id) => core(id).fills as usize,
            Queue::Reorder(id) => core(id).reorder.len(),
            Queue::StoreBuffer(id) => core(id).stores.len(),
            Queue::Nontemporal(id) => core(id).nontemporal as usize,
            Queue::Jobs => self.jobs.len(),
            Queue::BehindPosted => self.dma_parked.len(),
            Queue::Lines => self.running.len(),
            Queue::DeviceReads => self.reads.len(),
            Queue::DeviceWrites(agent) => engine(agent)?.writes.len(),
            Queue::Ordered(agent) => engine(agent)?.ordered.len(),
            Queue::Port(port) => self.ports[usize::from(port)].waiting(),
            Queue::Tags => self.in_flight.taken() as usize,
            Queue::Pending => self.pending.len(),
            Queue::Pieces => self.dma_pieces.len(),
            Queue::ReadTags => self.pcie.read_tags().taken() as usize,
            Queue::WithoutTag => self.pcie.read_tags().waiting(),
            Queue::RootPort => self.dma_order.len(),
            _ => return None,
        } as u64)
    }

    fn holds_at_end(&self, queue: Queue, _end: u64) -> Option<u64> {
        Some(match queue {
            Queue::Requests => self.waiting.values().map(|waiting| waiting.len() as u64).sum(),
            Queue::Behind => self.behind.values().map(|behind| behind.len() as u64).sum(),
            Queue::Credits(receiver, class) => self.channel(receiver).credits(class).taken().into(),
            Queue::WithoutCredit(receiver) => self.channel(receiver).waiting() as u64,
            Queue::WriteCredits => self.pcie.write_credits().taken().into(),
            Queue::WithoutWriteCredit => self.pcie.waiting() as u64,
            _ => self.says(queue)?,
        })
    }

    fn served_by(&self, queue: Queue) -> Option<(u64, Option<u64>)> {
        Some(match queue {
            Queue::Channel(side, channel) => {
                let memory = if side == Side::Host { &self.memory } else { &self.device_memory };
                (memory.accesses_of(channel.into()), Some(memory.busy_time_of(channel.into())))
            }
            Queue::Link(receiver) | Queue::Retry(receiver) => (self.channel(receiver).messages(), None),
            Queue::Gate => (self.gate.lines(), None),
            Queue::Wire(receiver) => {
                let counters = self.pcie.counters(way_to(receiver));
                (counters.writes + counters.reads + counters.completions, None)
            }
            Queue::RegisterReads => (self.counters.messages.of("MMIO read"), None),
            Queue::RegisterWrites => (self.counters.messages.of("MMIO write"), None),
            _ => return None,
        })
    }
}
