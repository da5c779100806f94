//! What a run counts: accesses by agent, messages by link and direction, memory's traffic.
//!
//! Everything only ever grows; what a stretch of a run did is the difference of two snapshots. Times are picoseconds.

use std::collections::BTreeMap;

use conic_fabric::Time;
use serde::{Deserialize, Serialize};

/// Makes a struct of `u64` counters that can be subtracted and added field by field.
macro_rules! counters {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_about])* pub $field: u64,)*
        }

        impl $name {
            /// What was counted since an earlier snapshot of the same counters.
            pub fn since(&self, earlier: &$name) -> $name {
                $name { $($field: grown(self.$field, earlier.$field, stringify!($field)),)* }
            }

            /// Adds what other counters of the kind counted.
            pub fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

/// The growth of a counter.
///
/// # Panics
///
/// Where it shrank: the two are not snapshots of one run in order, and every figure made of them would be wrong.
fn grown(now: u64, before: u64, name: &str) -> u64 {
    now.checked_sub(before).unwrap_or_else(|| panic!("counter `{name}` went from {before} to {now}: not one run"))
}

/// Messages, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts(BTreeMap<&'static str, u64>);

impl MessageCounts {
    pub(crate) fn count(&mut self, kind: &'static str) {
        *self.0.entry(kind).or_insert(0) += 1;
    }

    /// How many of a kind there were.
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Each kind of which there were any, by name, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }

    /// What was counted since an earlier snapshot.
    pub fn since(&self, earlier: &MessageCounts) -> MessageCounts {
        let grown = self.iter().map(|(kind, count)| (kind, grown(count, earlier.of(kind), kind)));
        MessageCounts(grown.filter(|(_, count)| *count > 0).collect())
    }
}

counters! {
    /// Accesses of one agent, a core or a device's engine.
    ///
    /// Each load, store and atomic that is not a hint counts once in `loads`, `stores` or `atomics`. What crosses the interconnect counts in `remote_reads` and `remote_rfos` whoever asked for it:
    /// an access, a store buffer's ownership prefetch, a hardware or a software prefetch. That is what the processors'
    /// offcore-response counters count (CC-NIC section 5.6).
    AgentAccesses {
        /// Loads, a line each.
        loads,
        /// Stores, a line each.
        stores,
        /// Locked instructions.
        atomics,
        /// Answered by the first-level cache.
        l1_hits,
        /// Answered by the second-level cache.
        l2_hits,
        /// Answered by a store that the store buffer held.
        merged,
        /// Requests for data alone that crossed the interconnect.
        remote_reads,
        /// Requests for ownership that crossed the interconnect, upgrades of shared copies included.
        remote_rfos,
        /// Snoops that came for this agent's caches.
        snoops,
        /// Lines that the agent's caches gave up for want of room.
        evictions,
        /// Of those, lines that went out modified.
        write_backs,
        /// Prefetches that the hardware issued.
        hardware_prefetches,
        /// Prefetches that the code issued.
        software_prefetches,
        /// Rounds of polling that found nothing.
        spins,
    }
}

counters! {
    /// Time for which one agent stood still, by reason, in picoseconds. A moment counts under one reason: what the agent
    /// waits for first.
    Stalls {
        /// For the data of a load, also of a device's register, or a line that a locked instruction must own.
        load_picoseconds,
        /// For room in the store buffer, or for a write-combining buffer.
        store_buffer_picoseconds,
        /// For a line fill buffer or an entry of the load buffer.
        fill_buffer_picoseconds,
        /// For stores to be performed: before a fence, a locked instruction, or a load of some of their bytes.
        fence_picoseconds,
        /// For nothing but work that was stated in cycles. No stall; beside them, so that hits and issue are what is left of the
        /// agent's time.
        work_picoseconds,
        /// For a change of a line that it polls: rounds of polling that did nothing but hit, without the work stated in them.
        polling_picoseconds,
    }
}

counters! {
    /// What one direction of one link carried, or of several side by side.
    LinkCounters {
        /// Messages with a line.
        data_messages,
        /// Messages without.
        header_messages,
        /// Those of the headers that found a place in a flit that was leaving anyway.
        headers_riding,
        /// Flits that left.
        flits,
        /// Slots of those flits that carried something.
        slots_used,
        /// Bytes of those flits.
        bytes,
        /// Time for which the wires were taken, all links side by side together.
        busy_picoseconds,
    }
}

impl LinkCounters {
    /// Messages of both kinds.
    pub fn messages(&self) -> u64 {
        self.data_messages + self.header_messages
    }

    /// The share of a span for which the wires of `links` links side by side were taken; zero for no span.
    pub fn utilisation(&self, span: Time, links: usize) -> f64 {
        let wires = span.picoseconds() as f64 * links as f64;
        if wires > 0.0 { self.busy_picoseconds as f64 / wires } else { 0.0 }
    }
}

counters! {
    /// One node's memory.
    MemoryCounters {
        /// Lines read.
        reads,
        /// Lines written.
        writes,
        /// Time for which the channels were taken, all together, in picoseconds.
        busy_picoseconds,
    }
}

counters! {
    /// One node's snoop filter, where it has a limit.
    SnoopFilterCounters {
        /// Entries that it gave up for other lines.
        evictions,
        /// Copies in private caches that were recalled with them.
        recalled,
        /// Requests that found every line of their set with something under way, and waited.
        waits,
    }
}

/// What one agent did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCounters {
    /// Its accesses.
    #[serde(flatten)]
    pub accesses: AgentAccesses,
    /// Where its time went.
    pub stalls: Stalls,
}

impl AgentCounters {
    /// What the agent did since an earlier snapshot.
    pub fn since(&self, earlier: &AgentCounters) -> AgentCounters {
        AgentCounters { accesses: self.accesses.since(&earlier.accesses), stalls: self.stalls.since(&earlier.stalls) }
    }

    /// Adds what another agent did.
    pub fn add(&mut self, other: &AgentCounters) {
        self.accesses.add(&other.accesses);
        self.stalls.add(&other.stalls);
    }
}

/// Something that has a name in the machine, and its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named<T> {
    /// Its name: `host core 0`, `host to NIC`, `host memory`.
    pub name: String,
    /// Its counters.
    #[serde(flatten)]
    pub counters: T,
}

/// All counters of a machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// When they were taken; of a difference, how long it spans.
    #[serde(rename = "time_picoseconds", serialize_with = "picoseconds")]
    pub time: Time,
    /// Agents.
    pub agents: Vec<Named<AgentCounters>>,
    /// Links, each direction on its own.
    pub links: Vec<Named<LinkCounters>>,
    /// Memories, by node.
    pub memories: Vec<Named<MemoryCounters>>,
    /// Snoop filters, by node; none without a limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snoop_filters: Vec<Named<SnoopFilterCounters>>,
}

impl Counters {
    /// What was counted since an earlier snapshot of the same run: a warm-up cut off. `time` is then the span between.
    ///
    /// # Panics
    ///
    /// Where the two are not snapshots of one machine, the earlier one first.
    pub fn since(&self, earlier: &Counters) -> Counters {
        assert!(self.time >= earlier.time, "a snapshot of {} since one of {}", self.time, earlier.time);
        Counters {
            time: self.time.since(earlier.time),
            agents: pairs(&self.agents, &earlier.agents, AgentCounters::since),
            links: pairs(&self.links, &earlier.links, LinkCounters::since),
            memories: pairs(&self.memories, &earlier.memories, MemoryCounters::since),
            snoop_filters: pairs(&self.snoop_filters, &earlier.snoop_filters, SnoopFilterCounters::since),
        }
    }
}

fn pairs<T>(now: &[Named<T>], before: &[Named<T>], since: impl Fn(&T, &T) -> T) -> Vec<Named<T>> {
    assert_eq!(now.len(), before.len(), "snapshots of two machines: their parts differ in number");
    let pair = |(now, before): (&Named<T>, &Named<T>)| {
        assert_eq!(now.name, before.name, "snapshots of two machines: their parts differ in name");
        Named { name: now.name.clone(), counters: since(&now.counters, &before.counters) }
    };
    now.iter().zip(before).map(pair).collect()
}

fn picoseconds<S: serde::Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.picoseconds())
}

#[cfg(test)]
mod tests;
