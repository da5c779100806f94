//! What a machine did between two moments: its counters and its queues.

use conic_fabric::Time;

use crate::probe::counters::{Counters, MemoryCounters, Named};
use crate::probe::queues::QueueReport;

use super::Machine;

/// A stretch of a run, for a report.
#[derive(Clone, Debug)]
pub struct Window {
    /// What was counted.
    pub counters: Counters,
    /// What the queues' probes show.
    pub queues: Vec<QueueReport>,
}

/// The stretch of a run that is looked at.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    begins: Counters,
    window: Option<Window>,
}

impl Machine {
    /// All counters now.
    pub fn counted(&self) -> Counters {
        const SIDES: [&str; 2] = ["host", "NIC"];
        let agents = self.agents.iter().enumerate();
        let memory = |node: usize| {
            let memory = &self.nodes[node].memory;
            MemoryCounters { reads: memory.reads(), writes: memory.writes(), busy_picoseconds: memory.busy_time() }
        };
        Counters {
            time: Time::from_picoseconds(self.now),
            agents: agents
                .map(|(id, agent)| Named { name: self.agent_name(id), counters: agent.counted(self.now).0 })
                .collect(),
            links: [0, 1]
                .map(|from| Named {
                    name: format!("{} to {}", SIDES[from], SIDES[1 - from]),
                    counters: self.nodes[from].out.counters(),
                })
                .into(),
            memories: [0, 1]
                .map(|node| Named { name: format!("{} memory", SIDES[node]), counters: memory(node) })
                .into(),
            snoop_filters: [0, 1]
                .into_iter()
                .filter_map(|node| {
                    let counters = self.nodes[node].filter.as_ref()?.counters;
                    Some(Named { name: format!("{} snoop filter", SIDES[node]), counters })
                })
                .collect(),
        }
    }

    /// Begins a window of the probed queues, and of the counters, where the queues are probed: a warm-up ends.
    pub fn begin_window(&mut self) {
        if self.queues.is_some() {
            self.restart_queues();
            self.looked = Some(Box::new(Looked { begins: self.counted(), window: None }));
        }
    }

    /// Ends it.
    pub fn end_window(&mut self) {
        if let Some(mut looked) = self.looked.take() {
            let counters = self.counted().since(&looked.begins);
            looked.window = Some(Window { counters, queues: self.queue_reports() });
            self.looked = Some(looked);
        }
    }

    /// The window that was ended last; none where nobody asked for one before the run.
    pub fn window(&self) -> Option<&Window> {
        self.looked.as_ref()?.window.as_ref()
    }
}
