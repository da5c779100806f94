//! Figures 1 and 2: applications beside storage devices that are read from.

use conic_sim::Failure;
use conic_sim::host::HostReport;

use super::{Curve, Hosts, UNAFFECTED, chart, far_from_saturated, least, most};
use crate::experiment::{Effort, Findings};
use crate::host_network::runs::{Degradation, Meeting, Runs, Work};

/// An application's runs with one number of cores after the other.
struct Beside {
    cores: Vec<usize>,
    degradations: Vec<Degradation>,
    reports: Vec<HostReport>,
    /// What memory's channels move at most, in bytes a second.
    limit: f64,
}

impl Beside {
    fn of(runs: &mut Runs<'_>, work: Work, cores: &[usize], direct: bool) -> Beside {
        let meeting = |cores: &usize| Meeting::application(work, *cores, direct);
        Beside {
            cores: cores.to_vec(),
            degradations: cores.iter().map(|cores| runs.degradation_of(meeting(cores))).collect(),
            reports: cores.iter().map(|cores| runs.run(meeting(cores))).collect(),
            limit: runs.host.memory_bytes_per_second(),
        }
    }

    fn curve(&self, of: impl Fn(usize) -> f64) -> Curve {
        self.cores.iter().enumerate().map(|(index, cores)| (*cores as f64, of(index))).collect()
    }

    fn of_cores(&self) -> Curve {
        self.curve(|index| self.degradations[index].cores)
    }

    fn of_devices(&self) -> Curve {
        self.curve(|index| self.degradations[index].devices)
    }

    /// Memory's traffic as a part of what its channels move.
    fn utilisation(&self) -> Curve {
        self.curve(|index| in_memory(&self.reports[index]).iter().sum::<f64>() / self.limit)
    }

    /// Cores lose with any number of them, devices with none.
    fn is_blue(&self) -> bool {
        self.degradations.iter().all(|one| one.cores > UNAFFECTED && one.devices < UNAFFECTED)
    }

    fn bandwidth(&self, findings: &mut Findings, name: &'static str, title: &str) {
        let of = |which: usize| self.curve(|index| in_memory(&self.reports[index])[which] / 1e9);
        let limit = self.curve(|_| self.limit / 1e9);
        let series = [("C2M", of(0)), ("P2M", of(1)), ("memory's limit", limit)];
        findings.plot(name, chart(title, ("Memory bandwidth", "GB/s"), series));
    }
}

/// Bytes a second that memory moves for cores and for devices, whose lines may come from the cache.
fn in_memory(report: &HostReport) -> [f64; 2] {
    let all = report.memory().lines.iter().sum::<u64>() as f64 * 64.0 / report.window as f64 * 1e12;
    let cores = report.core_bytes_per_second();
    [cores, (all - cores).max(0.0)]
}

/// Numbers of cores from one to `most`, and of these few where there is little effort.
fn numbers(most: usize, step: usize, effort: Effort) -> Vec<usize> {
    let most = most.max(1);
    let mut all: Vec<usize> = match effort {
        Effort::Full => (1..=most).step_by(step).collect(),
        Effort::Quick => vec![1, most.div_ceil(2)],
    };
    all.push(most);
    all.dedup();
    all
}

/// Cores that the paper gives to FIO, of Ice Lake and of Cascade Lake.
const FIO_CORES: [usize; 2] = [4, 2];

/// For each server's core, one of a client.
const CORES_OF_REDIS: usize = 2;

/// Figure 1.
pub(super) fn ice_lake(hosts: &mut Hosts<'_>) -> Result<Findings, Failure> {
    let runs = &mut hosts.ice_lake;
    let mut findings = Findings::default();
    let cores = (runs.host.core.cores as usize).saturating_sub(FIO_CORES[0]);
    let redis = Beside::of(runs, Work::Redis, &numbers(cores / CORES_OF_REDIS, 2, runs.effort), true);
    let graph = Beside::of(runs, Work::Graph, &numbers(cores, 4, runs.effort), true);
    for (of, [of_least, of_most, of_devices], work) in [
        (
            &redis,
            ["host.fig1.redis_degradation_least", "host.fig1.redis_degradation_most", "host.fig1.redis_fio_most"],
            Work::Redis,
        ),
        (
            &graph,
            ["host.fig1.graph_degradation_least", "host.fig1.graph_degradation_most", "host.fig1.graph_fio_most"],
            Work::Graph,
        ),
    ] {
        findings.number(of_least, "ratio", Some(least(&of.of_cores())));
        findings.number(of_most, "ratio", Some(most(&of.of_cores())));
        findings.number(of_devices, "ratio", Some(most(&of.of_devices())));
        let (degradation, bandwidth) = match work {
            Work::Redis => ("fig1-redis-degradation", "fig1-redis-bandwidth"),
            _ => ("fig1-graph-degradation", "fig1-graph-bandwidth"),
        };
        let title = format!("{} beside FIO on Ice Lake", work.name());
        let series = [(work.name(), of.of_cores()), ("FIO", of.of_devices())];
        findings.plot(degradation, chart(&title, ("Degradation", "ratio"), series));
        of.bandwidth(&mut findings, bandwidth, &title);
    }
    findings.number("host.fig1.bandwidth_least", "fraction", Some(least(&redis.utilisation())));
    findings.number("host.fig1.bandwidth_most", "fraction", Some(most(&redis.utilisation())));
    findings.holds("host.fig1.redis_blue", Some(redis.is_blue()));
    findings.holds("host.fig1.graph_blue", Some(graph.is_blue()));
    let [of_redis, of_graph] = [&redis, &graph].map(|one| most(&one.of_cores()));
    findings.holds("host.fig1.graph_loses_more", Some(of_graph > of_redis));
    let few = graph.degradations.iter().zip(graph.utilisation()).filter(|(_, (cores, _))| *cores < 15.0);
    let early = few.into_iter().all(|(one, (_, used))| one.cores > UNAFFECTED && far_from_saturated(used));
    findings.holds("host.fig1.graph_degrades_early", Some(early));
    Ok(findings)
}

/// Ids of an application in Figure 2: most degradation with the switch on and off, of devices with it on and off, and what is said.
const IDS: [[&str; 6]; 2] = [
    [
        "host.fig2.redis_degradation_on",
        "host.fig2.redis_degradation_off",
        "host.fig2.redis_fio_on",
        "host.fig2.redis_fio_off",
        "host.fig2.redis_blue",
        "host.fig2.redis_worse_with_ddio",
    ],
    [
        "host.fig2.graph_degradation_on",
        "host.fig2.graph_degradation_off",
        "host.fig2.graph_fio_on",
        "host.fig2.graph_fio_off",
        "host.fig2.graph_blue",
        "host.fig2.graph_worse_with_ddio",
    ],
];

/// Figure 2.
pub(super) fn direct_access(hosts: &mut Hosts<'_>) -> Result<Findings, Failure> {
    let runs = &mut hosts.cascade_lake;
    let mut findings = Findings::default();
    let cores = (runs.host.core.cores as usize).saturating_sub(FIO_CORES[1]);
    let plots = [
        ["fig2-redis-degradation", "fig2-redis-bandwidth-on", "fig2-redis-bandwidth-off"],
        ["fig2-graph-degradation", "fig2-graph-bandwidth-on", "fig2-graph-bandwidth-off"],
    ];
    let works = [(Work::Redis, cores / CORES_OF_REDIS), (Work::Graph, cores)];
    for (((work, cores), ids), plots) in works.into_iter().zip(IDS).zip(plots) {
        let numbers = numbers(cores, 1, runs.effort);
        let [on, off] = [true, false].map(|direct| Beside::of(runs, work, &numbers, direct));
        for (id, curve) in ids.into_iter().zip([on.of_cores(), off.of_cores(), on.of_devices(), off.of_devices()]) {
            findings.number(id, "ratio", Some(most(&curve)));
        }
        findings.holds(ids[4], Some(on.is_blue()));
        let worse = on.degradations.iter().zip(&off.degradations).all(|(on, off)| on.cores > off.cores);
        findings.holds(ids[5], Some(worse));
        let title = format!("{} beside FIO on Cascade Lake", work.name());
        let series = [
            ("C2M, DDIO on", on.of_cores()),
            ("C2M, DDIO off", off.of_cores()),
            ("FIO, DDIO on", on.of_devices()),
            ("FIO, DDIO off", off.of_devices()),
        ];
        findings.plot(plots[0], chart(&title, ("Degradation", "ratio"), series));
        on.bandwidth(&mut findings, plots[1], &format!("{title}, DDIO on"));
        off.bandwidth(&mut findings, plots[2], &format!("{title}, DDIO off"));
    }
    let [on, off] = [true, false].map(|direct| {
        let alone = runs.without_cores(Meeting::application(Work::Graph, 0, direct));
        (in_memory(&alone)[1], alone.memory().activations[1] as f64 / alone.memory().lines[1].max(1) as f64)
    });
    findings.holds("host.fig2.ddio_saves_no_bandwidth", Some((on.0 / off.0 - 1.0).abs() < UNAFFECTED - 1.0));
    findings.number("host.fig2.write_row_misses_on", "fraction", Some(on.1));
    findings.number("host.fig2.write_row_misses_off", "fraction", Some(off.1));
    Ok(findings)
}
