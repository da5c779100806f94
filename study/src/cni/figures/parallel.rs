//! Figure 8: five parallel programs on 16 nodes.

use std::collections::BTreeMap;

use conic_chart::{Axis, Bar, Chart};
use conic_interface::cni::Kind;
use conic_sim::Failure;
use conic_sim::bus::Attachment;

use super::{Case, Run, better};
use crate::cni::applications::{self, Outcome, Program};
use crate::cni::nodes::Nodes;
use crate::experiment::{Effort, Findings};

use Attachment::{CacheBus, IoBus, MemoryBus};
use Kind::{Cni4, Cni16Q, Cni16Qm, Cni512Q, Ni2w};

/// What every configuration took, by program.
struct Outcomes(BTreeMap<Case, Outcome>);

impl Outcomes {
    /// Runs all; no run knows of another.
    fn all(run: &mut Run<'_>) -> Result<Outcomes, Failure> {
        let (machine, whole) = (run.machine, run.effort == Effort::Full);
        let ask = |(program, attachment, kind): &Case| {
            let count = machine.network.nodes as usize;
            let nodes = Nodes { machine: machine.clone(), attachment: *attachment, kind: *kind, count };
            applications::run(&applications::Run { nodes, program: *program, whole })
        };
        let cases = Program::ALL.iter().flat_map(|program| ALL.map(|(attachment, kind)| (*program, attachment, kind)));
        let cases: Vec<Case> = cases.collect();
        run.asked += cases.len();
        let outcomes = (run.spread)(&cases, &ask);
        let outcomes = cases.into_iter().zip(outcomes).map(|(case, outcome)| Ok((case, outcome?)));
        outcomes.collect::<Result<_, _>>().map(Outcomes)
    }

    fn of(&self, program: Program, (attachment, kind): (Attachment, Kind)) -> Outcome {
        self.0[&(program, attachment, kind)]
    }

    /// By how much one configuration is faster than another.
    fn faster(&self, program: Program, one: (Attachment, Kind), other: (Attachment, Kind)) -> f64 {
        better(self.of(program, one).microseconds, self.of(program, other).microseconds)
    }

    /// Within how much of another's performance one comes: what it is short of it, as a part of it; negative where it is above.
    fn short_of(&self, program: Program, one: (Attachment, Kind), other: (Attachment, Kind)) -> f64 {
        1.0 - 1.0 / (1.0 + self.faster(program, other, one))
    }

    /// By how much one is faster in each program, in the paper's order.
    fn each(&self, one: (Attachment, Kind), other: (Attachment, Kind)) -> Option<Vec<f64>> {
        Some(Program::ALL.map(|program| self.faster(program, one, other)).to_vec())
    }

    /// How much less of the memory bus one takes than NI2w there, on average over the programs.
    fn less_occupied(&self, one: (Attachment, Kind)) -> f64 {
        let of = |program| 1.0 - self.of(program, one).memory_bus / self.of(program, (MemoryBus, Ni2w)).memory_bus;
        Program::ALL.map(of).iter().sum::<f64>() / Program::ALL.len() as f64
    }

    /// How much less of the memory bus CNI4 on the I/O bus takes than NI2w there.
    fn relieved(&self, program: Program) -> f64 {
        1.0 - self.of(program, (IoBus, Cni4)).memory_bus / self.of(program, (IoBus, Ni2w)).memory_bus
    }

    /// Whether one is at least as fast as others in each program.
    fn best(&self, one: (Attachment, Kind), others: &[(Attachment, Kind)]) -> bool {
        let beats =
            |other: &(Attachment, Kind)| Program::ALL.iter().all(|program| self.faster(*program, one, *other) >= 0.0);
        others.iter().all(beats)
    }
}

const ALL: [(Attachment, Kind); 10] = [
    (MemoryBus, Ni2w),
    (MemoryBus, Cni4),
    (MemoryBus, Cni16Q),
    (MemoryBus, Cni512Q),
    (MemoryBus, Cni16Qm),
    (IoBus, Ni2w),
    (IoBus, Cni4),
    (IoBus, Cni16Q),
    (IoBus, Cni512Q),
    (CacheBus, Ni2w),
];

/// What a configuration is called in a plot.
fn name((attachment, kind): (Attachment, Kind)) -> String {
    let bus = match attachment {
        CacheBus => "cache bus",
        MemoryBus => "memory bus",
        IoBus => "I/O bus",
    };
    format!("{kind}, {bus}")
}

/// Figure 8.
pub(super) fn programs(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let outcomes = Outcomes::all(run)?;
    let mut findings = Findings::default();
    withheld(&outcomes, &mut findings);
    statements(&outcomes, &mut findings);
    findings.number("cni.sec4.moldyn_reduction", "fraction", {
        Some(outcomes.of(Program::Moldyn, (MemoryBus, Ni2w)).main_communication)
    });
    findings.number("cni.sec5.appbt_hot_spot", "ratio", Some(outcomes.of(Program::Appbt, (IoBus, Cni4)).hot_spot));
    for (program, plot) in
        Program::ALL.into_iter().zip(["fig8-spsolve", "fig8-gauss", "fig8-em3d", "fig8-moldyn", "fig8-appbt"])
    {
        let bar = |configuration: (Attachment, Kind)| {
            let speedup = 1.0 + outcomes.faster(program, configuration, (MemoryBus, Ni2w));
            Bar::new(name(configuration), speedup)
        };
        let title = format!("{}: how much faster than NI2w on the memory bus", program.name());
        findings.plot(plot, Chart::bars(title, Axis::linear("Speedup", ""), ALL.map(bar)));
    }
    Ok(findings)
}

/// What the paper gives numbers of that are not known here.
fn withheld(outcomes: &Outcomes, findings: &mut Findings) {
    let each = |one, other| outcomes.each(one, other);
    findings.list("cni.fig8.memory.cni16qm", "fraction", each((MemoryBus, Cni16Qm), (MemoryBus, Ni2w)));
    findings.list("cni.fig8.io.cni512q", "fraction", each((IoBus, Cni512Q), (IoBus, Ni2w)));
    findings.list("cni.fig8.memory.cni4", "fraction", each((MemoryBus, Cni4), (MemoryBus, Ni2w)));
    findings.list("cni.fig8.io.cni4", "fraction", each((IoBus, Cni4), (IoBus, Ni2w)));
    findings.list("cni.fig8.io.cni16q_over_cni4", "fraction", each((IoBus, Cni16Q), (IoBus, Cni4)));
    findings.list("cni.fig8.io.cni512q_over_cni16q", "fraction", each((IoBus, Cni512Q), (IoBus, Cni16Q)));
    findings.list("cni.fig8.io.cni4_occupancy", "fraction", {
        Some([Program::Gauss, Program::Moldyn].map(|program| outcomes.relieved(program)).to_vec())
    });
    let short = |program: &Program| outcomes.short_of(*program, (MemoryBus, Cni16Qm), (CacheBus, Ni2w));
    let small = [Program::Spsolve, Program::Gauss, Program::Moldyn].iter().map(short).fold(f64::MIN, f64::max);
    findings.list("cni.fig8.cache_bus", "fraction", Some(vec![small, short(&Program::Appbt)]));
    findings.number("cni.fig8.memory.cni512q_over_cni16q.em3d", "fraction", {
        Some(outcomes.faster(Program::Em3d, (MemoryBus, Cni512Q), (MemoryBus, Cni16Q)))
    });
    findings.number("cni.fig8.memory.cni16qm_over_cni512q.spsolve", "fraction", {
        Some(outcomes.faster(Program::Spsolve, (MemoryBus, Cni16Qm), (MemoryBus, Cni512Q)))
    });
    let most = [Cni16Q, Cni512Q, Cni16Qm].map(|kind| outcomes.less_occupied((MemoryBus, kind)));
    findings.number("cni.fig8.occupancy.queues", "fraction", most.into_iter().reduce(f64::max));
    findings.number("cni.fig8.occupancy.cni4", "fraction", Some(outcomes.less_occupied((MemoryBus, Cni4))));
}

/// What the paper says without a number.
fn statements(outcomes: &Outcomes, findings: &mut Findings) {
    let others = |of: Attachment, but: Kind| -> Vec<(Attachment, Kind)> {
        ALL.into_iter().filter(|(attachment, kind)| *attachment == of && *kind != but).collect()
    };
    findings.holds("cni.fig8.memory.cni16qm_best", {
        Some(outcomes.best((MemoryBus, Cni16Qm), &others(MemoryBus, Cni16Qm)))
    });
    findings.holds("cni.fig8.io.cni512q_best", Some(outcomes.best((IoBus, Cni512Q), &others(IoBus, Cni512Q))));
    findings.holds("cni.fig8.em3d_above_cache_bus", {
        Some(outcomes.faster(Program::Em3d, (MemoryBus, Cni16Qm), (CacheBus, Ni2w)) > 0.0)
    });
    findings.holds("cni.fig8.occupancy.queues_below_cni4", {
        let cni4 = outcomes.less_occupied((MemoryBus, Cni4));
        Some([Cni16Q, Cni512Q, Cni16Qm].iter().all(|kind| outcomes.less_occupied((MemoryBus, *kind)) > cni4))
    });
    let gains = |bus, one, other| move |program: &Program| outcomes.faster(*program, (bus, one), (bus, other));
    let blocks = [Program::Gauss, Program::Moldyn, Program::Appbt];
    let gain = |program: &Program| [MemoryBus, IoBus].iter().all(|bus| gains(*bus, Cni4, Ni2w)(program) > 0.0);
    findings.holds("cni.fig8.cni4_moves_blocks", Some(blocks.iter().all(gain)));
    findings.holds("cni.fig8.cni4_moves_small_messages", Some([Program::Spsolve, Program::Em3d].iter().all(gain)));
    findings.holds("cni.fig8.moldyn.cni4_gains_less_on_io", {
        Some(gains(IoBus, Cni4, Ni2w)(&Program::Moldyn) < gains(MemoryBus, Cni4, Ni2w)(&Program::Moldyn))
    });
    findings.holds("cni.fig8.io.cni4_relieves_gauss_more", {
        Some(outcomes.relieved(Program::Gauss) > outcomes.relieved(Program::Moldyn))
    });
    findings.holds("cni.fig8.memory.cni512q_above_cni16q.em3d", {
        Some(gains(MemoryBus, Cni512Q, Cni16Q)(&Program::Em3d) > 0.0)
    });
    let bursts = [Program::Spsolve, Program::Gauss, Program::Em3d, Program::Appbt];
    findings.holds("cni.fig8.io.cni16q_above_cni4", {
        Some(bursts.iter().all(|program| gains(IoBus, Cni16Q, Cni4)(program) > 0.0))
    });
    findings.holds("cni.fig8.io.cni16q_below_cni4.moldyn", Some(gains(IoBus, Cni16Q, Cni4)(&Program::Moldyn) < 0.0));
    let small = [Program::Spsolve, Program::Em3d, Program::Moldyn];
    findings.holds("cni.fig8.io.cni512q_above_cni16q", {
        Some(small.iter().all(|program| gains(IoBus, Cni512Q, Cni16Q)(program) > 0.0))
    });
}
