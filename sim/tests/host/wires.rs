//! Every command on a channel's wires against every other before it: the memory's constraints as distances of pairs, beside the
//! machine's, which are moments that each command sets.

use conic_sim::host::dram::{Channel, Command};
use conic_sim::host::parameters::DramParameters;
use conic_sim::host::{Traced, run_traced};

use super::{drawn, host};

/// How two banks are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Near {
    Channel,
    Rank,
    Group,
    Bank,
}

fn near(t: &DramParameters, one: usize, other: usize) -> Near {
    let (banks, groups) = (t.banks as usize, t.bank_groups as usize);
    match (one / banks == other / banks, one / banks / groups == other / banks / groups) {
        _ if one == other => Near::Bank,
        (true, _) => Near::Group,
        (_, true) => Near::Rank,
        _ => Near::Channel,
    }
}

/// The least time from one command to another; none: they have nothing to do with each other.
fn distance(t: &DramParameters, first: Command, second: Command, near: Near) -> u64 {
    use Command::{Activate, Precharge, Read, Write};
    let gap = if near == Near::Channel { t.rank_to_rank } else { 0 };
    let by_group = |long: u64, short: u64| if near >= Near::Group { long } else { short };
    match (first, second) {
        (Activate(_), Activate(_)) => match near {
            Near::Bank => t.activate_to_precharge + t.precharge,
            Near::Channel => 0,
            _ => by_group(t.activate_long, t.activate_short),
        },
        (Activate(_), Precharge) if near == Near::Bank => t.activate_to_precharge,
        (Activate(_), Read | Write) if near == Near::Bank => t.activate_to_access,
        (Precharge, Activate(_)) if near == Near::Bank => t.precharge,
        (Read, Precharge) if near == Near::Bank => t.read_to_precharge,
        (Write, Precharge) if near == Near::Bank => t.write_latency + t.burst + t.write_recovery,
        (Read, Read) | (Write, Write) if near == Near::Channel => t.burst + gap,
        (Read, Read) | (Write, Write) => by_group(t.access_long, t.access_short).max(t.burst),
        (Write, Read) if near == Near::Channel => (t.write_latency + t.burst + gap).saturating_sub(t.read_latency),
        (Write, Read) => t.write_latency + t.burst + by_group(t.write_to_read_long, t.write_to_read_short),
        (Read, Write) => (t.read_latency + t.burst + t.read_to_write.max(gap)).saturating_sub(t.write_latency),
        _ => 0,
    }
}

/// What is wrong with a channel's commands; none: nothing.
fn fault(t: &DramParameters, trace: &[(u64, Traced)]) -> Option<String> {
    let banks = (t.ranks * t.bank_groups * t.banks) as usize;
    let each = banks / t.ranks as usize;
    let mut open = vec![false; banks];
    let mut activates: Vec<Vec<u64>> = vec![Vec::new(); t.ranks as usize];
    let mut refreshed = vec![0; t.ranks as usize];
    for (index, (at, what)) in trace.iter().enumerate() {
        let wrong = |why: &str| Some(format!("{at} ps: {what:?}: {why}"));
        let (bank, command) = match *what {
            Traced::Refresh(rank) => {
                open[rank * each..(rank + 1) * each].fill(false);
                refreshed[rank] = at + t.refresh_span;
                continue;
            }
            Traced::Command(bank, command) => (bank, command),
        };
        if *at < refreshed[bank / each] {
            return wrong("its rank refreshes");
        }
        let fits = match command {
            Command::Activate(_) => !open[bank],
            _ => open[bank],
        };
        if !fits {
            return wrong("the bank's row is not as it has to be");
        }
        open[bank] = command != Command::Precharge;
        if matches!(command, Command::Activate(_)) {
            let of = &mut activates[bank / each];
            if of.len() >= 4 && of[of.len() - 4] + t.four_activates > *at {
                return wrong("a fifth activation within tFAW");
            }
            of.push(*at);
        }
        let recent = trace[..index].iter().rev().take_while(|(before, _)| before + 100_000 > *at);
        for (before, earlier) in recent {
            let Traced::Command(other, first) = *earlier else { continue };
            let least = distance(t, first, command, near(t, other, bank));
            if before + least > *at {
                return wrong(&format!("{least} ps after {first:?} of bank {other} at {before}"));
            }
            // A row that nobody used is closed in a cycle of its own.
            if first != Command::Precharge && command != Command::Precharge && before + t.cycle > *at {
                return wrong("two commands in a cycle");
            }
        }
    }
    None
}

#[test]
fn no_command_comes_before_the_memory_allows() {
    for seed in 100..116 {
        let (host, traffic) = drawn(seed);
        let (report, traces) = run_traced(&host, &traffic);
        for trace in &traces {
            assert_eq!(fault(&host.dram, trace), None, "seed {seed}");
        }
        let commands: usize = traces.iter().map(Vec::len).sum();
        let lines: u64 = report.memory().lines.iter().sum();
        assert!(commands as u64 > lines && lines > 0, "seed {seed}: {commands} commands for {lines} lines");
        let refreshes = traces.iter().flatten().filter(|(_, what)| matches!(what, Traced::Refresh(_))).count();
        assert!(refreshes > 0, "seed {seed}");
    }
}

/// Commands with their banks, each as early as it may come; one more; and how long after the last of them it may.
type Case<'a> = (&'a [(usize, Command)], usize, Command, u64);

#[test]
fn each_command_may_come_when_its_constraint_is_over_and_not_before() {
    use Command::{Activate, Precharge, Read, Write};
    let t = host().dram;
    // Bank 0, another of its group, one of another group, one of the other rank.
    let (same, group, rank) = (1, 4, 16);
    let cases: &[Case<'_>] = &[
        (&[(0, Activate(1))], 0, Read, t.activate_to_access),
        (&[(0, Activate(1))], 0, Precharge, t.activate_to_precharge),
        (&[(0, Activate(1))], same, Activate(1), t.activate_long),
        (&[(0, Activate(1))], group, Activate(1), t.activate_short),
        (&[(0, Activate(1))], rank, Activate(1), t.cycle),
        (&[(0, Activate(1)), (0, Precharge)], 0, Activate(2), t.precharge),
        (&[(0, Activate(1)), (same, Activate(1)), (0, Read)], same, Read, t.access_long),
        (&[(0, Activate(1)), (group, Activate(1)), (0, Read)], group, Read, t.access_short),
        (&[(0, Activate(1)), (rank, Activate(1)), (0, Read)], rank, Read, t.burst + t.rank_to_rank),
        (&[(0, Activate(1)), (0, Write)], 0, Precharge, t.write_latency + t.burst + t.write_recovery),
        (&[(0, Activate(1)), (0, Write)], 0, Read, t.write_latency + t.burst + t.write_to_read_long),
        (
            &[(0, Activate(1)), (group, Activate(1)), (0, Write)],
            group,
            Read,
            t.write_latency + t.burst + t.write_to_read_short,
        ),
        (
            &[(0, Activate(1)), (group, Activate(1)), (0, Read)],
            group,
            Write,
            t.read_latency + t.burst + t.read_to_write - t.write_latency,
        ),
        (&[(0, Activate(1)), (0, Read)], 0, Write, t.access_long),
    ];
    for (before, bank, command, least) in cases {
        let (mut channel, mut last) = (Channel::new(&t), 0);
        for (bank, command) in *before {
            last = channel.ready_at(*bank, *command).max(last);
            channel.issue(*bank, *command, last);
        }
        assert_eq!(channel.ready_at(*bank, *command) - last, *least, "{command:?} after {before:?}");
    }
}

#[test]
fn a_rank_is_activated_four_times_in_a_window() {
    let t = host().dram;
    let mut channel = Channel::new(&t);
    let mut times = Vec::new();
    for bank in [0, 4, 8, 12, 1] {
        let at = channel.ready_at(bank, Command::Activate(1));
        channel.issue(bank, Command::Activate(1), at);
        times.push(at);
    }
    assert_eq!(times[4] - times[0], t.four_activates.max(4 * t.activate_short));
    assert!(channel.ready_at(16, Command::Activate(1)) < times[4] + t.activate_short, "the other rank has its own");
}

#[test]
fn the_checker_finds_commands_that_come_too_early() {
    let t = host().dram;
    let act = |bank| Traced::Command(bank, Command::Activate(1));
    let read = |bank| Traced::Command(bank, Command::Read);
    let first = t.activate_to_access;
    for (trace, word) in [
        (vec![(0, act(0)), (first - 1, read(0))], "ps after Activate"),
        (vec![(0, act(0)), (first, read(0)), (first + t.access_long - 1, read(0))], "ps after Read"),
        (vec![(0, read(0))], "not as it has to be"),
        (vec![(0, act(0)), (0, act(16))], "two commands"),
        (vec![(0, Traced::Refresh(0)), (t.refresh_span - 1, act(0))], "refreshes"),
        (
            (0..5).map(|n| (n * t.activate_short.max(5_000), act(n as usize * 4 % 16 + n as usize / 4))).collect(),
            "tFAW",
        ),
    ] {
        let found = fault(&t, &trace).expect(word);
        assert!(found.contains(word), "{found}");
    }
}
