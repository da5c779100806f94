//! The paper's orderings with each guess of the platforms at the ends of its range.

use conic_fabric::{StateHint, Time};
use conic_interface::cxl::Requests;
use conic_sim::Failure;
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::{Platform, PlatformError};

use super::loopback::{Design, Loopback, loopback};
use super::throughput::{Throughput, receive, transmit};
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

fn median(machine: &CxlParameters, design: Design, bytes: usize) -> Result<f64, Failure> {
    let gap = Time::from_nanoseconds(20_000);
    let found = loopback(&Loopback { machine: machine.clone(), design, bytes, gap, packets: (8, 40) })?;
    Ok(percentile(&found.latencies, 0.5))
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
    let rate = |rx_packet, tx_packet, direction: fn(&Throughput) -> Result<f64, Failure>| {
        let requests = Requests { rx_packet, tx_packet, ..Requests::EVENT_DRIVEN };
        let design = Design { requests, batch: 24, ..Design::combination(0) };
        direction(&Throughput { machine: agilex.clone(), design, bytes: 1500, packets: 200 })
    };
    let (nc, owned) = (StateHint::NonCacheable, StateHint::CacheableOwned);
    let writes = rate(nc, nc, receive)? > rate(owned, nc, receive)?;
    let reads = rate(nc, nc, transmit)? > rate(nc, owned, transmit)?;
    Ok(vec![below, lowest[0], lowest[1], writes, reads, host_lowest[0], host_lowest[1]])
}

/// A guess at one end of its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Varied {
    /// The platforms' key.
    pub key: String,
    /// Its value there, with its unit.
    pub value: String,
    /// The machines with it.
    pub machines: Machines,
}

/// Every guess of the two platforms at both ends of its range, with what follows from it. One that both have is changed in both. A
/// value that leaves another without one that can be is left out.
///
/// # Errors
///
/// What is wrong with the platforms.
pub fn varied(
    agilex: &Platform<CxlParameters>,
    bluefield: &Platform<CxlParameters>,
) -> Result<Vec<Varied>, PlatformError> {
    let mut all = Vec::new();
    for (platform, only_own) in [(agilex, false), (bluefield, true)] {
        for guess in platform.guesses() {
            let shared = agilex.entry(&guess.key).is_some_and(|entry| bluefield.entry(&guess.key) == Some(entry));
            let Some((low, high)) = guess.range.filter(|_| !(only_own && shared)) else { continue };
            for value in [low, high] {
                let changed = |other: &Platform<CxlParameters>| {
                    let same = shared || other.name() == platform.name();
                    if same { other.vary(&guess.key, value).ok() } else { Some(other.parameters().clone()) }
                };
                let (Some(agilex), Some(bluefield)) = (changed(agilex), changed(bluefield)) else { continue };
                let value = format!("{value} {}", guess.unit);
                all.push(Varied { key: guess.key.clone(), value, machines: Machines { agilex, bluefield } });
            }
        }
    }
    Ok(all)
}
