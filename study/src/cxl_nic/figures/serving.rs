//! Figure 15: a key-value store on the NIC.

use conic_chart::{Axis, Bar, Chart};
use conic_sim::Failure;

use super::Run;
use super::single::less;
use crate::cxl_nic::percentile;
use crate::cxl_nic::serving::{Server, Serving, serve};
use crate::experiment::{Effort, Findings};

/// How large a store is, which the paper does not say.
#[derive(Clone, Copy)]
struct Size {
    keys: u64,
    /// Buckets of four keys in the device's memory.
    buckets: u64,
    /// The most wanted keys are in the device's memory at the start, as the paper says, and the host's table in no cache.
    preloaded: bool,
}

/// A part of a store in memory: a device's 16,384 keys (8%) are 1.25 MiB there, forty times its cache; the host's table, which would be
/// 32 MiB of the 60 that its last-level cache has, is in memory.
const LARGE: Size = Size { keys: 200_000, buckets: 4_096, preloaded: true };
/// One that fits into every cache but the device's own, which begins empty.
const SMALL: Size = Size { keys: 20_000, buckets: 512, preloaded: false };
/// Bytes of a value: one that an entry's line has room for, as the paper names none; and, for itself, one of several lines.
const VALUE_BYTES: usize = 48;
const LONG_VALUE_BYTES: usize = 256;
/// The exponent of Zipf's law that such studies use; the paper gives none.
const ZIPF: f64 = 0.99;

/// What is asked for in each of the figure's four groups.
const REQUESTS: [&str; 4] = ["Zipf, GET", "Zipf, half PUT", "uniform, GET", "uniform, half PUT"];

/// Median and 99th percentile, in nanoseconds, and the part of the requests whose key was in the device's memory.
#[derive(Clone, Copy)]
struct Store {
    median: f64,
    p99: f64,
    hits: f64,
}

fn latency(
    run: &mut Run<'_>,
    size: Size,
    server: Server,
    value_bytes: usize,
    zipf: Option<f64>,
    writes: u64,
) -> Result<Store, Failure> {
    run.asked += 1;
    let machine = match server {
        Server::Logic => run.machines.agilex.clone(),
        Server::Software => run.machines.bluefield.clone(),
    };
    let requests = if run.asked_for.effort == Effort::Quick { (4_000, 1_000) } else { (20_000, 10_000) };
    let Size { keys, buckets, preloaded } = size;
    let served = serve(&Serving { machine, server, keys, buckets, value_bytes, zipf, writes, preloaded, requests })?;
    Ok(Store {
        median: percentile(&served.latencies, 0.5),
        p99: percentile(&served.latencies, 0.99),
        hits: served.hits,
    })
}

/// Of the four groups of requests, on the CXL-NIC and on the SmartNIC.
struct Both {
    ours: Vec<Store>,
    theirs: Vec<Store>,
}

impl Both {
    fn of(run: &mut Run<'_>, size: Size) -> Result<Both, Failure> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (zipf, writes) in [(Some(ZIPF), 0), (Some(ZIPF), 500), (None, 0), (None, 500)] {
            ours.push(latency(run, size, Server::Logic, VALUE_BYTES, zipf, writes)?);
            theirs.push(latency(run, size, Server::Software, VALUE_BYTES, zipf, writes)?);
        }
        Ok(Both { ours, theirs })
    }

    /// How much less median and 99th percentile are: Zipf, read-only.
    fn reductions(&self) -> Vec<f64> {
        let (one, other) = (self.ours[0], self.theirs[0]);
        vec![less(one.median, other.median), less(one.p99, other.p99)]
    }

    /// How much more the median is with uniform keys, on average over both mixes.
    fn increase(&self) -> f64 {
        let more = |uniform: usize, zipf: usize| self.ours[uniform].median / self.ours[zipf].median;
        (more(2, 0) + more(3, 1)) / 2.0 - 1.0
    }
}

/// Figure 15.
pub(super) fn stores(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let large = Both::of(run, LARGE)?;
    let small = Both::of(run, SMALL)?;
    let mut findings = Findings::default();
    findings.list("cxl.fig15.kvs", "fraction", Some(large.reductions()));
    findings.number("cxl.fig15.uniform", "fraction", Some(large.increase()));
    let hits = |both: &Both| vec![both.ours[0].hits, both.ours[2].hits];
    findings.list("cxl.unpublished.kvs_hits", "fraction", Some(hits(&large)));
    let in_caches = [small.reductions(), vec![small.increase()], hits(&small)].concat();
    findings.list("cxl.unpublished.kvs_in_caches", "fraction", Some(in_caches));
    let mut long = Vec::new();
    for server in [Server::Logic, Server::Software] {
        for (zipf, writes) in [(Some(ZIPF), 0), (None, 500)] {
            long.push(latency(run, SMALL, server, LONG_VALUE_BYTES, zipf, writes)?.median);
        }
    }
    findings.list("cxl.unpublished.kvs_long_values", "ns", Some(long));
    let drawn = |title, pick: fn(&Store) -> f64| {
        let of = |name: &'static str, results: &[Store]| {
            let bar = |(request, result)| Bar::new(format!("{request}, {name}"), pick(result));
            REQUESTS.into_iter().zip(results).map(bar).collect::<Vec<Bar>>()
        };
        let (ours, theirs) = (of("CXL-NIC", &large.ours), of("SmartNIC", &large.theirs));
        let bars = ours.into_iter().zip(theirs).flat_map(|(one, other)| [one.highlight(), other]);
        Chart::bars(title, Axis::linear("Latency", "ns"), bars)
    };
    findings.plot("fig15", drawn("Median latency of a key-value store", |store| store.median));
    findings.plot("fig15-p99", drawn("99th percentile of a key-value store's latency", |store| store.p99));
    Ok(findings)
}
