//! Figure 15: a key-value store on the NIC.

use conic_chart::{Axis, Bar, Chart};
use conic_sim::Failure;

use super::Run;
use super::single::less;
use crate::cxl_nic::percentile;
use crate::cxl_nic::serving::{Server, Serving, serve};
use crate::experiment::{Effort, Findings};

/// Keys, and buckets of four in the device's memory: a tenth of the keys. The paper gives neither.
const KEYS: u64 = 20_000;
const BUCKETS: u64 = 512;
/// Bytes of a value: one that an entry's line has room for, as the paper names none; and, for itself, one of several lines.
const VALUE_BYTES: usize = 48;
const LONG_VALUE_BYTES: usize = 256;
/// The exponent of Zipf's law that such studies use; the paper gives none.
const ZIPF: f64 = 0.99;

/// What is asked for in each of the figure's four groups.
const REQUESTS: [&str; 4] = ["Zipf, GET", "Zipf, half PUT", "uniform, GET", "uniform, half PUT"];

/// Median and 99th percentile, in nanoseconds.
fn latency(
    run: &mut Run<'_>,
    server: Server,
    value_bytes: usize,
    zipf: Option<f64>,
    writes: u64,
) -> Result<(f64, f64), Failure> {
    run.asked += 1;
    let machine = match server {
        Server::Logic => run.machines.agilex.clone(),
        Server::Software => run.machines.bluefield.clone(),
    };
    let requests = if run.effort == Effort::Quick { (4_000, 1_000) } else { (20_000, 10_000) };
    let served =
        serve(&Serving { machine, server, keys: KEYS, buckets: BUCKETS, value_bytes, zipf, writes, requests })?;
    Ok((percentile(&served.latencies, 0.5), percentile(&served.latencies, 0.99)))
}

/// Figure 15.
pub(super) fn stores(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (zipf, writes) in [(Some(ZIPF), 0), (Some(ZIPF), 500), (None, 0), (None, 500)] {
        ours.push(latency(run, Server::Logic, VALUE_BYTES, zipf, writes)?);
        theirs.push(latency(run, Server::Software, VALUE_BYTES, zipf, writes)?);
    }
    let mut findings = Findings::default();
    let reductions = vec![less(ours[0].0, theirs[0].0), less(ours[0].1, theirs[0].1)];
    findings.list("cxl.fig15.kvs", "fraction", Some(reductions));
    let increase = (ours[2].0 / ours[0].0 + ours[3].0 / ours[1].0) / 2.0 - 1.0;
    findings.number("cxl.fig15.uniform", "fraction", Some(increase));
    let mut long = Vec::new();
    for server in [Server::Logic, Server::Software] {
        for (zipf, writes) in [(Some(ZIPF), 0), (None, 500)] {
            long.push(latency(run, server, LONG_VALUE_BYTES, zipf, writes)?.0);
        }
    }
    findings.list("cxl.unpublished.kvs_long_values", "ns", Some(long));
    let drawn = |title, pick: fn(&(f64, f64)) -> f64| {
        let of = |name: &'static str, results: &[(f64, f64)]| {
            let bar = |(request, result)| Bar::new(format!("{request}, {name}"), pick(result));
            REQUESTS.into_iter().zip(results).map(bar).collect::<Vec<Bar>>()
        };
        let (ours, theirs) = (of("CXL-NIC", &ours), of("SmartNIC", &theirs));
        let bars = ours.into_iter().zip(theirs).flat_map(|(one, other)| [one.highlight(), other]);
        Chart::bars(title, Axis::linear("Latency", "ns"), bars)
    };
    findings.plot("fig15", drawn("Median latency of a key-value store", |latency| latency.0));
    findings.plot("fig15-p99", drawn("99th percentile of a key-value store's latency", |latency| latency.1));
    Ok(findings)
}
