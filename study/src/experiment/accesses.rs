//! What crosses the interconnect a packet, and what that costs: Figures 17 and 18, on Sapphire Rapids.

use conic_chart::{Axis, Bar, Chart};

use super::curves::{curve, loaded};
use super::findings::Findings;
use super::loops::{below, minimum, mpps, ratio, with_window};
use super::setting::{CC_NIC, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Interface, Loopback, LoopbackOutcome, NicPlace, RemoteAccesses};

/// Packets of a call, and of a round of the NIC's, in the batched case, as in the paper: "processing descriptors in bursts of 8 and
/// filling ring cache lines without wasted space" (section 5.6).
const BATCH: usize = 8;
/// Packets in flight in the batched case: enough that every call is full.
const IN_FLIGHT: u64 = 64;
/// Descriptors of a group.
const GROUP: f64 = 4.0;
/// How near two counts are that are the same.
const SAME: f64 = 0.1;

fn one_thread(setting: &Setting, interface: Interface) -> Loopback {
    Loopback { threads: 1, ..setting.loopback(&setting.platforms.spr, interface, SMALL) }
}

/// The batched case's question. Only whole bursts are sent: a burst that was not would leave lines of the rings that are not full.
fn batched_question(setting: &Setting, interface: Interface) -> Loopback {
    let bursts = Loopback {
        transmit_burst: BATCH,
        receive_burst: BATCH,
        nic_burst: BATCH,
        whole_bursts: true,
        ..one_thread(setting, interface)
    };
    with_window(setting, &bursts, IN_FLIGHT)
}

fn batched(ask: &mut Ask<'_>, setting: &Setting, interface: Interface) -> Option<LoopbackOutcome> {
    ask.of(batched_question(setting, interface))
}

fn singular(ask: &mut Ask<'_>, setting: &Setting, interface: Interface) -> Option<LoopbackOutcome> {
    let question = Loopback { transmit_burst: 1, receive_burst: 1, ..one_thread(setting, interface) };
    ask.of(with_window(setting, &question, 1))
}

fn total(accesses: RemoteAccesses) -> f64 {
    accesses.reads + accesses.rfos
}

/// Figure 17: remote accesses a packet.
pub(super) fn remote_accesses(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let plain = Interface::UnoptimisedRing;
    let (ours, theirs) = (batched(ask, setting, CC_NIC), batched(ask, setting, plain));
    let (ours_single, theirs_single) = (singular(ask, setting, CC_NIC), singular(ask, setting, plain));
    let nic = |outcome: &Option<LoopbackOutcome>| outcome.as_ref().map(|outcome| outcome.nic);
    let list = |accesses: Option<RemoteAccesses>| accesses.map(|accesses| vec![accesses.reads, accesses.rfos]);

    let mut findings = Findings::default();
    findings.list("ccnic.fig17.batched", "accesses", list(nic(&ours)));
    let extra = nic(&theirs)
        .zip(nic(&ours))
        .map(|(theirs, ours)| vec![GROUP * (theirs.reads - ours.reads), GROUP * (theirs.rfos - ours.rfos)]);
    findings.list("ccnic.fig17.batched_unopt", "accesses", extra);
    findings.list("ccnic.fig17.singular", "accesses", list(nic(&ours_single)));
    findings.list("ccnic.fig17.singular_unopt", "accesses", list(nic(&theirs_single)));
    let symmetric = ours.as_ref().map(|outcome| (total(outcome.host) / total(outcome.nic) - 1.0).abs() <= SAME);
    findings.holds("ccnic.fig17.symmetric", symmetric);
    let fewer =
        |one: &Option<LoopbackOutcome>, other: &Option<LoopbackOutcome>| Some(total(nic(one)?) < total(nic(other)?));
    findings.holds("ccnic.fig17.packing_saves_ccnic", fewer(&ours, &ours_single));
    findings.holds("ccnic.fig17.packing_saves_unopt", fewer(&theirs, &theirs_single));
    findings.holds("ccnic.fig17.singular_below_unopt", fewer(&ours_single, &theirs_single));

    let cases = [
        ("CC-NIC, eight", &ours),
        ("unoptimised, eight", &theirs),
        ("CC-NIC, one", &ours_single),
        ("unoptimised, one", &theirs_single),
    ];
    let bars = cases.into_iter().filter_map(|(name, outcome)| Some((name, nic(outcome)?))).flat_map(|(name, nic)| {
        [Bar::new(format!("{name}: reads"), nic.reads).highlight(), Bar::new(format!("{name}: RFOs"), nic.rfos)]
    });
    let bars: Vec<Bar> = bars.collect();
    let chart = Chart::bars("The NIC's accesses across the interconnect", Axis::linear("Accesses a packet", ""), bars)
        .note("Sapphire Rapids, one thread, 64-byte packets; bursts of eight, or one packet at a time. RFO: read for ownership.");
    findings.plot("fig17", chart);
    findings
}

/// The share of the interconnect in one thread's latency, the mean of unloaded and loaded, without the rest of Figure 18.
pub(super) fn share_of_interconnect(setting: &Setting, ask: &mut Ask<'_>) -> Option<f64> {
    let across = one_thread(setting, CC_NIC);
    let within = Loopback { nic_place: NicPlace::SameNode, ..across.clone() };
    let unloaded = below(minimum(ask, setting, &within), minimum(ask, setting, &across));
    let loaded = below(loaded(ask, setting, &within), loaded(ask, setting, &across));
    Some(f64::midpoint(unloaded?, loaded?))
}

/// Figure 18: one thread, with the NIC on the other socket and on the host's own.
pub(super) fn same_socket(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let across = one_thread(setting, CC_NIC);
    let within = Loopback { nic_place: NicPlace::SameNode, ..across.clone() };
    let across = curve(ask, setting, &across);
    let within = curve(ask, setting, &within);
    let at_minimum = below(within.minimum, across.minimum);
    let loaded = below(within.loaded, across.loaded);
    // The paper has one share for both; they stand beside it, because a mean hides how far they are apart.
    let share = at_minimum.zip(loaded).map(|(one, other)| f64::midpoint(one, other));
    let faster = ratio(within.peak.as_ref().map(mpps), across.peak.as_ref().map(mpps)).map(|ratio| ratio - 1.0);
    let mut findings = Findings::default();
    findings.number("ccnic.fig18.interconnect_share", "fraction", share);
    findings.number("ccnic.fig18.interconnect_share_unloaded", "fraction", at_minimum);
    findings.number("ccnic.fig18.interconnect_share_loaded", "fraction", loaded);
    findings.number("ccnic.fig18.same_socket_rate", "fraction", faster);
    let chart = Chart::xy(
        "One thread, with the NIC across the interconnect and on its own socket",
        Axis::linear("Packets", "Mpps"),
        Axis::linear("Median latency", "ns"),
    )
    .note(
        "Sapphire Rapids, CC-NIC, 64-byte packets: one in flight, open loops, and the closed loop at its highest rate.",
    )
    .series(across.series("across", mpps))
    .series(within.series("own socket", mpps));
    findings.plot("fig18", chart);
    findings
}
