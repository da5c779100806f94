//! What the guesses of the platforms may decide: the paper's orderings, and the headline results.

use conic_fabric::{StateHint, Time};
use conic_interface::cxl::Requests;
use conic_sim::Failure;
use conic_sim::cxl::CxlParameters;

use super::loopback::{Design, Loopback, around, loopback};
use super::operations::{self, Through};
use super::throughput::{Flow, Throughput, receive, transmit};
use super::{Machines, layout, percentile};

/// What the paper says is less than what.
pub const ORDERINGS: &[&str] = &[
    "Figure 10: combination 0 is below the PCIe NIC",
    "Figure 10: combination 0 is lowest, 64 bytes",
    "Figure 10: combination 0 is lowest, 1500 bytes",
    "Figure 11: NC-write is above CO-write",
    "Figure 11: NC-read is above CO-read",
    "Figure 13: layout 1 is lowest, 64 bytes",
    "Figure 13: layout 1 is lowest, 1500 bytes",
];

/// Packets that count. The host looks at one completion for each 32 packets that it has sent, so a median of fewer than some of those
/// rounds hangs on where among them it begins.
const COUNTING: u64 = 160;

/// The latency below which a part of an unloaded loopback's packets lies.
fn latency(machine: &CxlParameters, design: Design, bytes: usize, part: f64) -> Result<f64, Failure> {
    let (machine, gap) = (machine.clone(), Time::from_nanoseconds(20_000));
    let packets = (around(&design, bytes), COUNTING);
    let found = loopback(&Loopback { machine, design, bytes, gap, together: 1, packets, seed: 0 })?;
    Ok(percentile(&found.latencies, part))
}

fn median(machine: &CxlParameters, design: Design, bytes: usize) -> Result<f64, Failure> {
    latency(machine, design, bytes, 0.5)
}

/// Whether each of [`ORDERINGS`] holds on these machines.
///
/// # Errors
///
/// The simulator's.
pub fn orderings(machines: &Machines) -> Result<Vec<bool>, Failure> {
    let Machines { agilex, bluefield } = machines;
    let (mut below, mut lowest, mut host_lowest) = (true, Vec::new(), Vec::new());
    for bytes in [64, 1500] {
        let pcie = median(bluefield, Design::pcie(), bytes)?;
        let all: Result<Vec<f64>, Failure> =
            (0..8).map(|number| median(agilex, Design::combination(number), bytes)).collect();
        let all = all?;
        below &= all[0] < pcie;
        lowest.push(all[1..].iter().all(|other| all[0] <= *other));
        let layouts: Result<Vec<f64>, Failure> = (1..=4).map(|number| median(agilex, layout(number), bytes)).collect();
        let layouts = layouts?;
        host_lowest.push(layouts[1..].iter().all(|other| layouts[0] < *other));
    }
    let rate = |rx_packet, tx_packet, direction: fn(&Throughput) -> Result<Flow, Failure>| {
        let requests = Requests { rx_packet, tx_packet, ..Requests::EVENT_DRIVEN };
        let design = Design { requests, receive_batch: 24, transmit_batch: 24, ..Design::combination(0) };
        let packets = (around(&design, 1500), 200);
        let flow = direction(&Throughput { machine: agilex.clone(), design, bytes: 1500, packets })?;
        Ok::<f64, Failure>(flow.gigabits)
    };
    let (nc, owned) = (StateHint::NonCacheable, StateHint::CacheableOwned);
    let writes = rate(nc, nc, receive)? > rate(owned, nc, receive)?;
    let reads = rate(nc, nc, transmit)? > rate(nc, owned, transmit)?;
    Ok(vec![below, lowest[0], lowest[1], writes, reads, host_lowest[0], host_lowest[1]])
}

/// The results that the sensitivity report is about, with their units.
pub const HEADLINES: [(&str, &str); 6] = [
    ("cxl.fig10.median_64", "fraction"),
    ("cxl.fig10.median_1500", "fraction"),
    ("cxl.fig10.p99_64", "fraction"),
    ("cxl.fig4.nc_read_growth", "ratio"),
    ("cxl.fig4.nc_write_growth", "ratio"),
    ("cxl.fig4.completion", "fraction"),
];

/// The headline results on these machines, with little effort; none where a run fails.
pub fn headlines(machines: &Machines) -> Vec<Option<f64>> {
    let found = |result: Result<f64, Failure>| result.ok();
    let less = |part: f64, bytes: usize| -> Result<f64, Failure> {
        let pcie = latency(&machines.bluefield, Design::pcie(), bytes, part)?;
        Ok(1.0 - latency(&machines.agilex, Design::combination(0), bytes, part)? / pcie)
    };
    let nc = Through::Cxl(StateHint::NonCacheable);
    let growth = |operation: fn(&CxlParameters, Through, usize) -> Result<f64, Failure>| -> Result<f64, Failure> {
        Ok(operation(&machines.agilex, nc, 9000)? / operation(&machines.agilex, nc, 64)?)
    };
    let completion = || -> Result<f64, Failure> {
        let doca = operations::complete(&machines.bluefield, Through::SoftwareDma)?;
        Ok(1.0 - operations::complete(&machines.agilex, nc)? / doca)
    };
    let all = [
        less(0.5, 64),
        less(0.5, 1500),
        less(0.99, 64),
        growth(operations::read),
        growth(operations::write),
        completion(),
    ];
    all.into_iter().map(found).collect()
}
