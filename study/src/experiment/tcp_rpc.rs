//! An echo server over a TCP service behind the ConnectX-6, driven directly and through the overlay: Table 2's last row (section 5.7).
//!
//! What TAS works for a segment is not published in the parts that this has, nor how many requests are under way: the service is
//! [`conic_tcp`], and its clients are as those of TAS's own benchmark are by default ([`TcpRpc::new`]). A node has a thread a core.

use conic_chart::{Axis, Chart, Series};
use conic_interface::ccnic::Features;
use conic_tcp::Load;

use super::findings::Findings;
use super::loops::fewest_threads;
use super::setting::Setting;
use crate::ask::Ask;
use crate::workload::{Interface, Reached, TcpRpc, TcpRpcOutcome};

/// Share of the highest rate at which threads are counted: section 5.7's.
const SHARE: f64 = 0.95;

/// A way to the NIC, and its results' ids.
struct Way {
    name: &'static str,
    /// With so many cores of a node.
    reached: fn(usize) -> Reached,
    /// Rate and threads.
    ids: [&'static str; 2],
}

const WAYS: [Way; 2] = [
    Way {
        name: "CX6",
        reached: |_| Reached::Directly,
        ids: ["ccnic.table2.tcp_rpc.rate_cx6", "ccnic.table2.tcp_rpc.threads_cx6"],
    },
    Way {
        name: "CC-NIC overlay",
        reached: |cores| Reached::Overlay { interface: Interface::CcNic(Features::paper()), threads: cores },
        ids: ["ccnic.table2.tcp_rpc.rate_ccnic", "ccnic.table2.tcp_rpc.threads_ccnic"],
    },
];

fn mops(outcome: &TcpRpcOutcome) -> f64 {
    outcome.requests_per_second / 1e6
}

/// Table 2's TCP echo RPC.
pub(super) fn echo(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let machine = &setting.platforms.icx_cx6;
    let cores = machine.core.cores as usize;
    // The application has a core of the node.
    let most = cores.saturating_sub(1);
    let steps = setting.pick(&[1, 2, 4, 6, 9, 12][..], &[1, 3, 6]);
    let counts: Vec<usize> = steps.iter().copied().filter(|&threads| threads < most).chain([most]).collect();
    let mut findings = Findings::default();
    let mut chart = Chart::xy(
        "TCP echo RPC by fast-path threads",
        Axis::linear("Fast-path threads", ""),
        Axis::linear("Requests", "Mops/s"),
    );
    for way in &WAYS {
        let question = |threads: usize| TcpRpc {
            reached: (way.reached)(cores),
            threads,
            requests: setting.pick((256, 256), (256, 128)),
            seed: setting.seed,
            ..TcpRpc::new(machine)
        };
        let (known, fewest) =
            fewest_threads(&counts, SHARE, |threads| ask.of(question(threads)), |outcome| outcome.requests_per_second);
        let highest = known.iter().map(|(_, outcome)| mops(outcome)).fold(0.0, f64::max);
        let [rate, threads] = way.ids;
        findings.number(rate, "Mops/s", fewest.map(|_| highest));
        findings.number(threads, "threads", fewest.map(|threads| threads as f64));
        chart = chart
            .series(Series::line(way.name, known.iter().map(|(threads, outcome)| (*threads as f64, mops(outcome)))));
        // Clients that put what they have to ask into one segment, as a stream's sender may.
        let together = |&threads: &usize| {
            let question = question(threads);
            let load = Load { requests_a_segment: TOGETHER, ..question.load };
            ask.of(TcpRpc { load, ..question }).map(|outcome| (threads as f64, mops(&outcome)))
        };
        let line: Vec<_> = counts.iter().filter_map(together).collect();
        chart = chart.series(Series::line(format!("{}, {TOGETHER} requests a segment", way.name), line));
    }
    let note = "ICX with a CX6; one application thread, 96 connections with 64 requests of 64 bytes under way each.";
    findings.plot("table2-tcp-rpc", chart.note(note));
    findings
}

/// Requests of a segment at most where clients put several into one: as many as one holds.
const TOGETHER: u32 = 22;
