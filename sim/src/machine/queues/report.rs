//! What the machine's queues say of themselves.

use crate::machine::{COMPLETING, Machine};
use crate::pcie::Way;
use crate::probe::queues::{Probed, Queues};

use super::Queue;

impl Probed for Machine {
    type Queue = Queue;

    #[inline(always)]
    fn probes(&self) -> &Option<Box<Queues<Queue>>> {
        &self.queues
    }

    #[inline(always)]
    fn probes_mut(&mut self) -> &mut Option<Box<Queues<Queue>>> {
        &mut self.queues
    }

    fn present(&self) -> u64 {
        self.now
    }

    fn all_queues(&self) -> Vec<Queue> {
        let of_core = [
            Queue::LineFill,
            Queue::LoadBuffer,
            Queue::Reorder,
            Queue::StoreBuffer,
            Queue::Gathering,
            Queue::Flushing,
            Queue::Unanswered,
            Queue::Uncached,
        ];
        let of_node = [Queue::Lines, Queue::Requests, Queue::Credits, Queue::WithoutCredit];
        let of_port = [
            Queue::PastCaches,
            Queue::RootPort,
            Queue::DeviceReads,
            Queue::Tags,
            Queue::WithoutTag,
            Queue::WriteCredits,
            Queue::WithoutWriteCredit,
            Queue::Wire(Way::ToRoot as u8),
            Queue::Wire(Way::ToDevice as u8),
        ];
        let mut all: Vec<Queue> = Vec::new();
        all.extend((0..self.agents.len() as u16).flat_map(|agent| of_core.map(|queue| queue(agent))));
        let engines = (0..self.agents.len() as u16).filter(|&agent| self.agents[usize::from(agent)].is_engine);
        all.extend(engines.map(Queue::Copies));
        for (node, this) in (0..).zip(&self.nodes) {
            all.extend(this.filter.iter().map(|_| Queue::WithoutWay(node)));
            all.extend(of_node.map(|queue| queue(node)));
            let of_slice = [Queue::Slice, Queue::Entries, Queue::WithoutEntry];
            all.extend((0..this.slices.number() as u8).flat_map(|slice| of_slice.map(|queue| queue(node, slice))));
            all.extend((0..this.out.links() as u8).map(|link| Queue::Link(node, link)));
            all.extend((0..self.parameters.memory.channels as u8).map(|channel| Queue::Channel(node, channel)));
        }
        all.extend(of_port.into_iter().filter(|_| self.port.is_some()));
        all
    }

    fn owner(&self, queue: Queue) -> String {
        const SIDES: [&str; 2] = ["host", "NIC"];
        let side = |node: u8| SIDES[usize::from(node)];
        match queue {
            Queue::LineFill(agent)
            | Queue::LoadBuffer(agent)
            | Queue::Reorder(agent)
            | Queue::StoreBuffer(agent)
            | Queue::Gathering(agent)
            | Queue::Flushing(agent)
            | Queue::Unanswered(agent)
            | Queue::Uncached(agent)
            | Queue::Copies(agent) => self.agent_name(agent.into()),
            Queue::Lines(node) | Queue::Requests(node) | Queue::WithoutWay(node) => format!("{} home", side(node)),
            Queue::Credits(node) | Queue::WithoutCredit(node) => format!("{} to {}", side(node), side(1 - node)),
            Queue::Slice(node, slice) | Queue::Entries(node, slice) | Queue::WithoutEntry(node, slice) => {
                format!("{} home {slice}", side(node))
            }
            Queue::Link(node, link) => format!("{} to {} {link}", side(node), side(1 - node)),
            Queue::Channel(node, channel) => format!("{} memory {channel}", side(node)),
            Queue::PastCaches => "host home".to_owned(),
            Queue::RootPort => "root port".to_owned(),
            Queue::Wire(0) => "NIC to root port".to_owned(),
            Queue::Wire(_) => "root port to NIC".to_owned(),
            _ => "PCIe link".to_owned(),
        }
    }

    fn limit_of(&self, queue: Queue) -> Option<u64> {
        let core = &self.parameters.core;
        let agent = |agent: u16| &self.agents[usize::from(agent)];
        Some(match queue {
            Queue::LineFill(id) => agent(id).fills.limit() as u64,
            Queue::LoadBuffer(id) => agent(id).prefetch_limit as u64,
            Queue::Reorder(id) => agent(id).reorder.limit() as u64,
            Queue::StoreBuffer(id) => agent(id).store_limit as u64,
            Queue::Flushing(_) | Queue::Unanswered(_) => core.write_combining_buffers.into(),
            Queue::Uncached(_) => 1,
            Queue::Credits(node) => self.nodes[usize::from(node)].credits.limit().into(),
            Queue::Entries(node, _) => self.nodes[usize::from(node)].slices.entries().into(),
            Queue::Tags => self.parameters.pcie.as_ref()?.tags.into(),
            Queue::WriteCredits => self.parameters.pcie.as_ref()?.posted_credits.into(),
            _ => return None,
        })
    }

    fn says(&self, queue: Queue) -> Option<u64> {
        let agent = |agent: u16| &self.agents[usize::from(agent)];
        Some(match queue {
            Queue::LineFill(id) => agent(id).fills.len(),
            Queue::LoadBuffer(id) => agent(id).prefetches.len(),
            Queue::Reorder(id) => agent(id).reorder.len(),
            Queue::StoreBuffer(id) => agent(id).stores.len(),
            Queue::Gathering(id) => agent(id).past.gathering(),
            Queue::Unanswered(id) => agent(id).past.unanswered(),
            Queue::Credits(node) => self.nodes[usize::from(node)].credits.taken() as usize,
            Queue::WithoutCredit(node) => self.nodes[usize::from(node)].without_credit.len(),
            Queue::Entries(node, slice) => self.nodes[usize::from(node)].slices.busy(slice).0 as usize,
            Queue::WithoutEntry(node, slice) => self.nodes[usize::from(node)].slices.busy(slice).1,
            Queue::WithoutWay(node) => self.nodes[usize::from(node)].filter.as_ref()?.waiting(),
            Queue::Copies(engine) => self.engines.not_taken(engine.into()),
            Queue::PastCaches => self.past.len(),
            Queue::RootPort => self.port.as_ref()?.waiting_in_order(),
            Queue::DeviceReads => self.port.as_ref()?.reads.len(),
            Queue::Tags => self.port.as_ref()?.link.read_tags().taken() as usize,
            Queue::WithoutTag => self.port.as_ref()?.link.read_tags().waiting(),
            _ => return None,
        } as u64)
    }

    fn holds_at_end(&self, queue: Queue, end: u64) -> Option<u64> {
        let lines = |node: u8| (0..self.lines.len() as u32).filter_map(move |line| self.under_way(node.into(), line));
        let actives = |node: u8| {
            let places = self.lines.iter().map(move |line| line.active[usize::from(node)]);
            places.filter(|&place| place != 0 && place != COMPLETING).map(|place| &self.actives[place as usize - 1])
        };
        Some(match queue {
            Queue::Lines(node) => lines(node).filter(|known| known.is_none_or(|known| known > end)).count() as u64,
            Queue::Requests(node) => actives(node).map(|active| active.waiting_requests() as u64).sum(),
            Queue::Flushing(id) => self.agents[usize::from(id)].past.combining_for_device()?.leaving(end) as u64,
            Queue::WriteCredits => self.port.as_ref()?.link.write_credits().taken().into(),
            Queue::WithoutWriteCredit => self.port.as_ref()?.link.waiting() as u64,
            _ => self.says(queue)?,
        })
    }

    fn served_by(&self, queue: Queue) -> Option<(u64, Option<u64>)> {
        match queue {
            Queue::Slice(node, slice) => {
                let (looked_up, busy) = self.nodes[usize::from(node)].slices.served(slice.into());
                Some((looked_up, Some(busy)))
            }
            Queue::Link(node, link) => {
                let counters = self.nodes[usize::from(node)].out.link_counters(link.into());
                Some((counters.messages(), Some(counters.busy_picoseconds)))
            }
            Queue::Channel(node, channel) => {
                let memory = &self.nodes[usize::from(node)].memory;
                Some((memory.accesses_of(channel.into()), Some(memory.busy_time_of(channel.into()))))
            }
            Queue::Wire(way) => {
                let way = if way == Way::ToRoot as u8 { Way::ToRoot } else { Way::ToDevice };
                let counters = self.port.as_ref()?.link.counters(way);
                Some((counters.writes + counters.reads + counters.completions, None))
            }
            Queue::Flushing(id) => Some((self.agents[usize::from(id)].past.combining_for_device()?.flushes(), None)),
            _ => None,
        }
    }
}
