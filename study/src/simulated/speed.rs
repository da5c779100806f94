//! Work that the simulator's own speed is measured with. Whoever measures brings the clock, as an [`Observer`].

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords, Time};
use conic_interface::ccnic::Features;
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

use super::{Observer, observed_loopback};
use crate::workload::{Interface, Loopback, Prefetching};

/// Lines that each agent keeps to itself where all accesses hit: a third of a first-level cache of 48 KiB.
const OWN_LINES: u64 = 256;

/// Lines of the region where all accesses miss, all agents together: 16 MiB.
const FAR_LINES: u64 = 1 << 18;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Packets of 64 bytes through CC-NIC with its best features and back, 64 in flight on each pair of agents.
    Loopback,
    /// Two loads and a store of lines that the agent's own first-level cache holds, over and over.
    Hits,
    /// Loads and stores, as many of each, of random lines of a region 48 times as large as all caches.
    Misses,
}

/// What was simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Memory operations, all agents together.
    pub operations: u64,
    /// Events of the engine.
    pub events: u64,
    /// Lines that came from memory.
    pub memory_reads: u64,
}

impl Work {
    /// Runs it with `agents` agents for about `operations` operations.
    ///
    /// # Errors
    ///
    /// There are fewer than two agents or more than the machine has cores, or how the run failed.
    pub fn run(
        self,
        machine: &Parameters,
        agents: usize,
        operations: u64,
        observer: &mut dyn Observer,
    ) -> Result<Done, String> {
        let most = 2 * machine.core.cores as usize;
        if agents < 2 || agents % 2 == 1 || agents > most {
            return Err(format!("{} has 2 to {most} agents, an even number of them, not {agents}", machine.name));
        }
        match self {
            Work::Loopback => loopback(machine, agents, operations, observer),
            Work::Hits => accesses(machine.clone(), agents, operations, OWN_LINES * agents as u64, hits, observer),
            Work::Misses => accesses(with_small_caches(machine), agents, operations, FAR_LINES, misses, observer),
        }
    }
}

/// A packet's accesses, about: what divides operations into packets.
const OPERATIONS_PER_PACKET: u64 = 10;

fn loopback(machine: &Parameters, agents: usize, operations: u64, observer: &mut dyn Observer) -> Result<Done, String> {
    let threads = agents / 2;
    let packets = (operations / OPERATIONS_PER_PACKET / threads as u64).max(64);
    let question = Loopback {
        threads,
        window: 64,
        prefetching: Prefetching { host: false, nic: false },
        packets: (0, packets),
        ..Loopback::new(machine, Interface::CcNic(Features::best()))
    };
    let outcome = observed_loopback(&question, observer)?;
    if outcome.wrong() > 0 {
        return Err(format!("{} packets were lost or spoilt on the way", outcome.wrong()));
    }
    Ok(Done { operations: outcome.operations, events: outcome.events, memory_reads: 0 })
}

/// The machine with caches of a third of a MiB in all with eight agents, so that a region of 16 MiB is far larger.
fn with_small_caches(machine: &Parameters) -> Parameters {
    let mut small = machine.clone();
    (small.cache.l1_bytes, small.cache.l1_ways) = (4 << 10, 8);
    (small.cache.l2_bytes, small.cache.l2_ways) = (16 << 10, 8);
    (small.cache.llc_bytes, small.cache.llc_ways) = (112 << 10, 14);
    small
}

/// Lines of one agent, of all, and how often it accesses one.
#[derive(Clone, Copy, Debug)]
struct Share {
    region: Address,
    lines: u64,
    agent: u64,
    operations: u64,
}

/// Puts the same program on `agents` cores, half of them on each node.
fn accesses(
    machine: Parameters,
    agents: usize,
    operations: u64,
    lines: u64,
    program: fn(&SimCore<'_>, Share),
    observer: &mut dyn Observer,
) -> Result<Done, String> {
    let mut layout = Layout::new();
    let half = lines / 2 * LINE_BYTES;
    let region = layout.add("of the host", half, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    layout.add("of the NIC", half, LINE_BYTES, Home::Nic, SynchronisingWords::NONE);
    let mut simulation = Simulation::new(&machine, &layout, Options::default());
    let each = operations / agents as u64;
    for agent in 0..agents {
        let share = Share { region, lines, agent: agent as u64, operations: each };
        // Not in step, as no two cores are.
        let start = Time::from_picoseconds(137 * agent as u64);
        let agent = simulation.core(&format!("core {agent}"), agent % 2, Role::Main, start, move |core| {
            program(core, share);
        });
        simulation.machine().borrow_mut().set_prefetchers(agent, false);
    }
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run().map_err(|failure| failure.to_string())?;
    observer.ends(&mut simulation.machine().borrow_mut());
    let machine = simulation.machine().borrow();
    let memory_reads = (0..2).map(|node| machine.memory(node).reads()).sum();
    Ok(Done { operations: machine.operations(), events: machine.events(), memory_reads })
}

/// Two loads and a store at a time over the agent's own lines.
fn hits(core: &SimCore<'_>, share: Share) {
    let first = share.region.lines(share.agent * OWN_LINES);
    let mut sum = 0;
    for round in 0..share.operations / 3 {
        let at = first.lines(round * 2 % OWN_LINES);
        sum ^= core.load(at) ^ core.load(at.lines(1));
        core.store(at, sum ^ round);
    }
}

/// A load and a store at a time, of random lines.
fn misses(core: &SimCore<'_>, share: Share) {
    let mut random = (share.agent + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        // xorshift64 (Marsaglia, 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        share.region.lines(random % share.lines)
    };
    for _ in 0..share.operations / 2 {
        let value = core.load(next());
        core.store(next(), value + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conic_sim::platform::Platform;

    fn done(work: Work, agents: usize) -> Done {
        let spr = Platform::load("spr").expect("it comes with the program");
        work.run(spr.parameters(), agents, 40_000, &mut ()).expect("it runs")
    }

    #[test]
    fn hits_hit_and_misses_go_to_memory() {
        let hits = done(Work::Hits, 4);
        // Each line comes from memory once.
        assert_eq!(hits.memory_reads, 4 * OWN_LINES);
        assert!(hits.operations.abs_diff(40_000) < 20, "{hits:?}");
        let misses = done(Work::Misses, 4);
        assert!(misses.memory_reads as f64 > 0.95 * misses.operations as f64, "{misses:?}");
    }

    #[test]
    fn a_loopback_has_about_as_many_operations_as_it_was_asked_for() {
        let done = done(Work::Loopback, 4);
        assert!((20_000..90_000).contains(&done.operations), "{done:?}");
    }

    #[test]
    fn numbers_of_agents_that_cannot_be_are_refused() {
        let spr = Platform::load("spr").expect("it comes with the program");
        for agents in [0, 1, 3, 114] {
            let refusal =
                Work::Hits.run(spr.parameters(), agents, 1_000, &mut ()).expect_err("there are no such cores");
            assert!(refusal.contains("2 to 112"), "{refusal}");
        }
    }
}
