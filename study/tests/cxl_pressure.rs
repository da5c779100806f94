//! Pushes of the CXL-NIC while its host's last-level cache is under pressure: what the gate and the write-back do to packets that wait.

use conic_fabric::{Home, Time};
use conic_interface::cxl::{GatePolicy, Homes, PushStatistics, Requests};
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::percentile;
use conic_study::cxl_nic::loopback::{Design, Loopback, LoopbackOutcome, loopback};
use conic_study::cxl_nic::optimal;
use conic_study::cxl_nic::pressure::{Pressure, PressureOutcome, pressure};

fn machine() -> CxlParameters {
    Platform::<CxlParameters>::load_as("agilex7")
        .expect("a platform that comes with the simulator")
        .parameters()
        .clone()
}

/// Packets of 512 bytes, of which twenty wait for 24 us, beside a neighbour in a last-level cache of a megabyte: 128 KiB of it are the
/// device's ways.
fn question() -> Pressure {
    let mut machine = machine();
    (machine.cache.llc_bytes, machine.cache.llc_ways) = (1 << 20, 16);
    machine.cache.l2_bytes = 1 << 16;
    Pressure {
        machine,
        requests: Requests::PUSHED,
        homes: Homes { rx_ring: Home::Nic, rx_buffers: Home::Nic, ..Homes::HOST },
        gate: None,
        write_back: 0,
        bytes: 512,
        rings: 1,
        gap: Time::from_nanoseconds(1_200),
        waiting: 20,
        neighbours: 1,
        working_set: 2.0,
        packets: (200, 100),
    }
}

fn found(question: &Pressure) -> (PressureOutcome, f64) {
    let outcome = pressure(question).expect("it ends");
    assert_eq!(outcome.reads.len(), 100 * question.rings);
    let median = percentile(&outcome.reads, 0.5);
    (outcome, median)
}

#[test]
fn a_push_is_read_out_of_the_cache_and_an_early_write_back_or_a_closed_gate_make_it_a_write_to_memory() {
    let written = Pressure { requests: Requests::NON_COHERENT, ..question() };
    let (outcome, of_memory) = found(&written);
    assert_eq!((outcome.packets, outcome.lines.pushed), (PushStatistics::default(), 0));
    let (outcome, of_cache) = found(&question());
    assert!(outcome.packets.pushed >= 300 && outcome.lines.pushed > 800 && outcome.closings == 0, "{outcome:?}");
    assert!(of_cache < 0.3 * of_memory, "{of_cache} and {of_memory} ns");
    // What is timed is a packet's lines and not the descriptors that are posted now and then.
    let slowest = percentile(&outcome.reads, 0.99);
    assert!(slowest < 1.5 * of_cache, "{of_cache} and at most {slowest} ns");
    // They wait for 24 us: 9,600 cycles.
    let (outcome, late) = found(&Pressure { write_back: 12_000, ..question() });
    assert!(late < 1.05 * of_cache && outcome.lines.overwritten == 0, "{late} ns: {:?}", outcome.lines);
    assert!(outcome.packets.written_back > 250, "{:?}", outcome.packets);
    let (outcome, early) = found(&Pressure { write_back: 5_000, ..question() });
    assert!(early >= of_memory, "{early} and {of_memory} ns");
    // Of a packet's eight lines the host asks for the first when it hears of the packet; and its completion is never written back.
    let wanted = 7.0 / 9.0 * outcome.lines.pushed as f64;
    assert!((outcome.lines.overwritten as f64 / wanted - 1.0).abs() < 0.05, "{:?}", outcome.lines);
    let (outcome, gated) = found(&Pressure { gate: Some(GatePolicy::default()), ..question() });
    assert!(outcome.closings == 1 && outcome.packets.gated > 100 && outcome.lines.pushed == 0, "{outcome:?}");
    assert!((gated / of_memory - 1.0).abs() < 0.05, "{gated} and {of_memory} ns");
}

#[test]
fn the_gate_stays_open_beside_neighbours_who_find_room() {
    let question = Pressure { gate: Some(GatePolicy::default()), working_set: 0.25, ..question() };
    let (outcome, _) = found(&question);
    assert_eq!((outcome.closings, outcome.packets.gated), (0, 0));
}

#[test]
fn more_than_the_devices_ways_hold_is_evicted_unread_and_what_is_gated_is_not() {
    // 320 packets of eight lines where 2,048 lines have room.
    let crowded = Pressure { waiting: 320, packets: (640, 100), ..question() };
    let (outcome, _) = found(&crowded);
    assert!(outcome.evicted() > 0.2, "{:?}", outcome.lines);
    let (few, _) = found(&question());
    assert!(few.evicted() < 0.01, "{:?}", few.lines);
    let (outcome, _) = found(&Pressure { gate: Some(GatePolicy::default()), ..crowded });
    assert_eq!(outcome.lines.evicted, 0);
}

#[test]
fn several_rings_are_told_by_one_gate() {
    let question = Pressure { gate: Some(GatePolicy::default()), rings: 2, ..question() };
    let (outcome, median) = found(&question);
    assert_eq!((outcome.closings, outcome.lines.pushed), (1, 0));
    assert!(median > 200.0, "{median} ns");
}

/// A loopback of the configuration that pushes, with a write-back.
fn looped(write_back: u32) -> LoopbackOutcome {
    let design = Design { write_back, ..optimal() };
    let gap = Time::from_nanoseconds(20_000);
    loopback(&Loopback { machine: machine(), design, bytes: 64, gap, together: 1, packets: (64, 100), seed: 0 })
        .expect("it ends")
}

#[test]
fn a_loopbacks_pushed_packets_are_written_back_once_each_and_come_back_unchanged() {
    let writes = |outcome: &LoopbackOutcome| {
        outcome.counters.messages.iter().find(|(kind, _)| *kind == "WOWrInv").map_or(0, |(_, count)| count)
    };
    let (without, late) = (looped(0), looped(4_000));
    let more = writes(&late) as i64 - writes(&without) as i64;
    assert!((99..=101).contains(&more), "{more} writes more for 100 packets");
    let median = |outcome: &LoopbackOutcome| percentile(&outcome.latencies, 0.5);
    assert!((median(&late) / median(&without) - 1.0).abs() < 0.01, "the host has had them by then");
}
