//! The machine's queues, each with a probe ([`crate::probe::queues`]): which there are, and what they say of themselves.

use super::arbiter::Which;
use super::machine::Machine;
use crate::probe::queues::{Name, Probed, Queues, probed};

/// A queue of the machine; of an agent, a node, a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    /// Uncached stores of an agent that are not through.
    Stores(u16),
    /// What waits for a node's bus.
    Arbitration(u16, Which),
    /// Who has it.
    Bus(u16, Which),
    /// What the bridge holds for it.
    Bridge(u16, Which),
    /// Accesses to registers that a node's engines have not heard of.
    Registers(u16),
    /// Messages from a node to another that are not acknowledged.
    Window(u16, u16),
    /// Messages that have come to a node.
    Arrived(u16),
    /// Acknowledgements that have come to it.
    Acknowledged(u16),
}

/// Names of the kinds of queues, in the order of its variants.
pub const KINDS: [&str; 8] = [
    "uncached stores",
    "waits for a bus",
    "bus",
    "bridge",
    "register accesses",
    "messages without acknowledgement",
    "messages",
    "acknowledgements",
];

impl Name for Queue {
    fn kind(self) -> &'static str {
        let place = match self {
            Queue::Stores(_) => 0,
            Queue::Arbitration(..) => 1,
            Queue::Bus(..) => 2,
            Queue::Bridge(..) => 3,
            Queue::Registers(_) => 4,
            Queue::Window(..) => 5,
            Queue::Arrived(_) => 6,
            Queue::Acknowledged(_) => 7,
        };
        KINDS[place]
    }
}

probed!(Machine);

fn name_of(which: Which) -> &'static str {
    match which {
        Which::Memory => "memory bus",
        Which::Io => "I/O bus",
    }
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
        let mut all: Vec<Queue> = (0..self.agents.len() as u16).map(Queue::Stores).collect();
        let nodes = self.nodes.len() as u16;
        for node in 0..nodes {
            for which in [Which::Memory, Which::Io] {
                all.extend([Queue::Arbitration, Queue::Bus, Queue::Bridge].map(|queue| queue(node, which)));
            }
            all.extend([Queue::Registers, Queue::Arrived, Queue::Acknowledged].map(|queue| queue(node)));
            all.extend((0..nodes).map(|to| Queue::Window(node, to)));
        }
        all
    }

    fn owner(&self, queue: Queue) -> String {
        match queue {
            Queue::Stores(agent) => format!("agent {agent}"),
            Queue::Arbitration(node, which) | Queue::Bus(node, which) => format!("{} of node {node}", name_of(which)),
            Queue::Bridge(node, which) => format!("to the {} of node {node}", name_of(which)),
            Queue::Window(from, to) => format!("node {from} to node {to}"),
            Queue::Registers(node) | Queue::Arrived(node) | Queue::Acknowledged(node) => format!("node {node}"),
        }
    }

    fn limit_of(&self, queue: Queue) -> Option<u64> {
        Some(match queue {
            Queue::Stores(agent) if !self.agents[usize::from(agent)].is_engine => {
                self.parameters.core.store_buffer.into()
            }
            Queue::Bus(..) => 1,
            Queue::Bridge(..) => self.parameters.io.buffer.into(),
            Queue::Window(..) => self.parameters.network.window.into(),
            _ => return None,
        })
    }

    fn says(&self, queue: Queue) -> Option<u64> {
        let node = |node: u16| &self.nodes[usize::from(node)];
        Some(match queue {
            Queue::Stores(agent) => self.agents[usize::from(agent)].stores.len(),
            Queue::Arbitration(id, which) => node(id).bus(which).queue.len(),
            Queue::Bus(id, which) => usize::from(node(id).bus(which).is_taken()),
            Queue::Bridge(id, which) => node(id).posted[which.place()] as usize,
            Queue::Registers(id) => {
                let agents = node(id).agents.iter().map(|&agent| &self.agents[agent]);
                agents.flat_map(|agent| &agent.registers).map(|(_, accesses)| accesses.len()).sum()
            }
            Queue::Window(from, to) => node(from).port.outstanding[usize::from(to)] as usize,
            Queue::Arrived(id) => node(id).port.arrived.len(),
            Queue::Acknowledged(id) => node(id).port.acknowledged.len(),
        } as u64)
    }

    fn holds_at_end(&self, queue: Queue, _end: u64) -> Option<u64> {
        self.says(queue)
    }

    fn served_by(&self, queue: Queue) -> Option<(u64, Option<u64>)> {
        let Queue::Bus(node, which) = queue else { return None };
        let counters = &self.counters[usize::from(node)];
        let carried = if which == Which::Memory { &counters.memory } else { &counters.io };
        Some((carried.iter().map(|(_, count)| count).sum(), None))
    }
}
