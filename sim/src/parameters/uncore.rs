//! A node whose uncore is slowed: what stands between private caches and wires takes as many cycles as before, and longer.

use super::{InterconnectParameters, NodeParameters, Parameters};

/// The clock of a node's uncore: of its mesh, home agents, last-level cache and link agents. [`NodeParameters`] and
/// [`InterconnectParameters`] hold at the clock that a platform has by default; node 1 may have another (CC-NIC section 5.9 slows
/// the NIC's socket). Memory and private caches have clocks of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct UncoreParameters {
    /// The default clock, in megahertz: node 0's.
    pub frequency_megahertz: u32,
    /// Node 1's, in megahertz.
    pub second_node_megahertz: u32,
    /// How much of a crossing is spent in one node's uncore, at the default clock, in picoseconds.
    pub crossing_part: u64,
    /// For how long a flit keeps a node's agent of its link busy, at the default clock, in picoseconds.
    pub flit_time: u64,
}

impl UncoreParameters {
    /// A time on node 1 that is `time` at the default clock.
    fn on_second_node(&self, time: u64) -> u64 {
        let slower = u64::from(self.second_node_megahertz);
        (time * u64::from(self.frequency_megahertz) + slower / 2) / slower
    }
}

impl Parameters {
    /// The ways between cores and home agents on a node, at the clock of its uncore. Past a core's own caches, which is the first
    /// part of the way to a home agent, time is the uncore's; a snooped core looks into its caches by its own clock.
    pub fn node_of(&self, node: usize) -> NodeParameters {
        let Some(uncore) = self.uncore.as_ref().filter(|_| node == 1) else { return self.node };
        let slowed = |time| uncore.on_second_node(time);
        let of_core = self.core.cycles(u64::from(self.core.l2_hit_cycles)).min(self.node.core_to_home);
        NodeParameters {
            core_to_home: of_core + slowed(self.node.core_to_home - of_core),
            home_to_core: slowed(self.node.home_to_core),
            home_lookup: slowed(self.node.home_lookup),
            home_service: slowed(self.node.home_service),
            llc_read: slowed(self.node.llc_read),
            ..self.node
        }
    }

    /// The links between the nodes: whatever crosses passes both nodes' agents, so that the slower one bounds it.
    pub fn links(&self) -> InterconnectParameters {
        let Some(uncore) = &self.uncore else { return self.interconnect.clone() };
        let crossing = self.interconnect.crossing - uncore.crossing_part + uncore.on_second_node(uncore.crossing_part);
        let flit_time = self.interconnect.flit_time.max(uncore.on_second_node(uncore.flit_time));
        InterconnectParameters { crossing, flit_time, ..self.interconnect.clone() }
    }
}
