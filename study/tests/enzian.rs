//! The line pair's halves on the modelled Enzian: messages counted on the link, deadlocks, time-outs, and random runs.

use std::collections::BTreeMap;

use conic_fabric::Time;
use conic_interface::pio::{Behaviour, Shape};
use conic_interface::work;
use conic_sim::Failure;
use conic_sim::eci::placement::{directory_unit_of, transaction_unit_of};
use conic_sim::eci::{Disturbances, EciParameters};
use conic_sim::parameters::TimerParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::calling::Makes;
use conic_study::coherent_pio::exchange::{Calls, CallsOutcome, calls};
use conic_study::coherent_pio::frames::{Around, Arrives, Frames, receive, transmit};
use conic_study::coherent_pio::{EXPERIMENTS, Machines, findings};
use conic_study::comparison::{Role, Row, compare, parse, summary};
use conic_study::experiment::Effort;

fn of(name: &str) -> EciParameters {
    Platform::<EciParameters>::load_as(name).expect("a platform that comes with the simulator").parameters().clone()
}

fn machine() -> EciParameters {
    of("enzian")
}

/// Calls of one line without disturbances.
fn one_line() -> Calls {
    Calls {
        machine: machine(),
        payload: 120,
        makes: Makes::Inverted,
        behaviour: Behaviour::default(),
        prefetch: false,
        alignment: 128,
        service: Time::ZERO,
        calls: (10, 100),
        disturbances: Disturbances::default(),
        timer: None,
    }
}

/// Messages by kind.
fn messages(outcome: &CallsOutcome) -> BTreeMap<&'static str, u64> {
    outcome.counters.messages.iter().collect()
}

fn counted(kinds: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    kinds.iter().copied().collect()
}

#[test]
fn an_exchange_is_exactly_two_round_trips_and_a_shared_return_one_more() {
    let exclusive = calls(&one_line()).expect("it ends");
    let two = counted(&[("request", 100), ("recall", 100), ("recalled with data", 100), ("grant", 100)]);
    assert_eq!(messages(&exclusive), two);
    assert!((exclusive.median_nanoseconds() - 900.0).abs() < 0.01, "{}", exclusive.median_nanoseconds());
    let behaviour = Behaviour { exclusive: false, ..Behaviour::default() };
    let shared = calls(&Calls { behaviour, ..one_line() }).expect("it ends");
    let mut three = two;
    three.insert("upgrade", 100);
    three.insert("grant", 200);
    assert_eq!(messages(&shared), three);
    // The upgrade: two crossings, a header and a line on the wire, two passes, a message's time; less what the host works between
    // its stores to the two halves of the line, which the first one's wait hides.
    let p = machine();
    let upgrade = 2 * p.link.crossing
        + u64::from(1 + p.link.line_words) * p.link.word_time
        + 2 * p.directory.pass
        + p.device.message_time
        - p.core.cycles(u64::from(work::CALL + work::DESCRIPTOR));
    let more = shared.median_nanoseconds() - exclusive.median_nanoseconds();
    assert!((more - upgrade as f64 / 1000.0).abs() < 0.01, "{more} beside {upgrade}");
}

#[test]
fn over_cxl_the_payload_is_written_back_before_the_recall_is_answered() {
    let machine = of("cxl3-mem");
    let line = |machine| Calls { machine, payload: 56, alignment: 64, ..one_line() };
    let outcome = calls(&line(machine.clone())).expect("it ends");
    let kinds = ["request", "recall", "victim with data", "written", "recalled", "grant"];
    assert_eq!(messages(&outcome), counted(&kinds.map(|kind| (kind, 100))));
    // What it takes longer than an answer that carries the line: the write's completion, and another header on the way.
    let mut carried = machine.clone();
    carried.cache.writes_back_first = false;
    let less = calls(&line(carried)).expect("it ends").median_nanoseconds();
    let completion = 2 * (machine.link.crossing + machine.directory.pass + machine.link.word_time);
    let more = outcome.median_nanoseconds() - less;
    assert!((more - completion as f64 / 1000.0).abs() < 0.01, "{more} ns beside {completion} ps");
}

#[test]
fn groups_take_two_round_trips_a_line_whether_they_are_prefetched_or_not() {
    for prefetch in [false, true] {
        let lines = 8 * 100;
        let outcome = calls(&Calls { payload: 8 * 128 - 8, prefetch, ..one_line() }).expect("it ends");
        let all = counted(&[("request", lines), ("recall", lines), ("recalled with data", lines), ("grant", lines)]);
        assert_eq!(messages(&outcome), all, "prefetch {prefetch}");
    }
}

#[test]
fn a_pair_in_one_serialising_unit_deadlocks_and_in_different_ones_does_not() {
    let mut serialising = machine();
    serialising.directory.transactions = 1;
    serialising.cache.unit_transactions = 1;
    // Alignments at which the second line is in the first one's directory unit, and in its transaction unit.
    for (alignment, unit) in [(256 * 128, "directory unit"), (16 * 128, "transaction unit")] {
        let line = alignment / 128;
        let shares = [
            directory_unit_of(&serialising.directory, line) == directory_unit_of(&serialising.directory, 0),
            transaction_unit_of(&serialising.cache, line) == transaction_unit_of(&serialising.cache, 0),
        ];
        assert!(shares[usize::from(unit == "transaction unit")], "line {line}");
        let mut only = serialising.clone();
        if unit == "directory unit" {
            only.cache.unit_transactions = 16;
        }
        let outcome = calls(&Calls { machine: only, alignment, ..one_line() });
        let Err(Failure::Deadlock(who)) = outcome else { panic!("{unit}: {outcome:?}") };
        assert!(who.iter().any(|text| text.contains("the recall of the line") && text.contains(unit)), "{who:?}");
        let shape = Shape { unit: 128, group: 1, overflow: 0, header: 8, alignment };
        assert!(shape.can_deadlock(1, |_| 0), "the interface's own rule says so");
    }
    let outcome =
        calls(&Calls { machine: serialising.clone(), ..one_line() }).expect("neighbours are in different units");
    assert_eq!(outcome.latencies.len(), 100);
    let unit_of = |line: u16| transaction_unit_of(&serialising.cache, line.into()) as u32;
    assert!(!Shape { unit: 128, group: 1, overflow: 0, header: 8, alignment: 128 }.can_deadlock(1, unit_of));
}

#[test]
fn a_service_beyond_the_caches_patience_is_bridged_by_try_again_and_faults_without() {
    let mut short = machine();
    short.cache.patience = 20_000_000;
    let patience = Time::from_nanoseconds(5_000);
    let behaviour = Behaviour { patience, ..Behaviour::default() };
    let service = Time::from_nanoseconds(100_000);
    let bridged = Calls { machine: short, behaviour, service, calls: (0, 50), ..one_line() };
    let outcome = calls(&bridged).expect("it ends");
    assert!(outcome.try_agains >= 50 * 12, "{}", outcome.try_agains);
    let warm = calls(&Calls { calls: (50, 50), ..bridged.clone() }).expect("it ends");
    assert!(warm.try_agains.abs_diff(outcome.try_agains) <= 2, "{}: those of calls that count", warm.try_agains);
    let behaviour = Behaviour { patience: Time::NEVER, ..Behaviour::default() };
    let outcome = calls(&Calls { behaviour, ..bridged });
    assert!(matches!(outcome, Err(Failure::NoAnswer { .. })), "{outcome:?}");
}

/// Everything that a correct program must bear.
fn rough(seed: u64) -> Disturbances {
    Disturbances {
        seed,
        evictions_permille: 60,
        dropped_prefetches_permille: 100,
        prefetch_delay: 400_000,
        message_delay: 300_000,
    }
}

/// How many times as many exchanges random runs have in an optimised build: over two million in all.
const MORE: u64 = if cfg!(debug_assertions) { 1 } else { 20 };

#[test]
fn random_runs_lose_repeat_and_change_nothing() {
    let machines = [machine(), of("cxl3-mem")];
    let mut evictions = 0;
    for seed in 0..128_u64 {
        let machine = machines[seed as usize / 64].clone();
        let payload = [0, 1, 120, 121, 500, 1016, 4000, 7][seed as usize % 8];
        // Sometimes the function takes about as long as the device waits before it says "try again".
        let service = Time::from_nanoseconds([0, 2_000][seed as usize / 8 % 2]);
        let behaviour = Behaviour {
            exclusive: !seed.is_multiple_of(3),
            patience: Time::from_nanoseconds(3_000),
            ..Behaviour::default()
        };
        let question = Calls {
            machine,
            payload,
            behaviour,
            service,
            prefetch: seed.is_multiple_of(2),
            calls: (0, 500 * MORE),
            disturbances: rough(seed),
            ..one_line()
        };
        let outcome = calls(&question).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert_eq!(outcome.latencies.len() as u64, 500 * MORE);
        evictions += outcome.counters.evictions;
    }
    assert!(evictions > 40_000 * MORE, "{evictions}");
}

fn frames(bytes: usize, seed: u64) -> Frames {
    Frames {
        machine: machine(),
        bytes,
        prefetch: seed.is_multiple_of(2),
        exclusive: seed.is_multiple_of(3),
        frames: (0, 300),
        disturbances: rough(seed),
        around: Around { clocks: true, timer: None, pauses: seed.is_multiple_of(2).then_some(seed) },
    }
}

#[test]
fn random_frames_arrive_once_in_order_and_whole() {
    let machines = [machine(), of("cxl3-mem")];
    for seed in 0..96_u64 {
        let bytes = [64, 65, 200, 1536, 9, 3000][seed as usize % 6];
        let machine = machines[seed as usize / 48].clone();
        let question = Frames { machine, frames: (0, 300 * MORE), ..frames(bytes, seed) };
        let sent = transmit(&question).unwrap_or_else(|failure| panic!("transmit, seed {seed}: {failure}"));
        // The last frame is counted before its sender ends.
        assert_eq!(sent.len() as u64, 300 * MORE);
        let arrives = [Arrives::WithTheLoad, Arrives::After(Time::from_nanoseconds(2_000))][seed as usize / 6 % 2];
        let came = receive(&question, arrives).unwrap_or_else(|failure| panic!("receive, seed {seed}: {failure}"));
        assert_eq!(came.len() as u64, 300 * MORE);
    }
}

#[test]
fn a_load_that_waits_at_the_device_has_its_frame_one_way_later() {
    let question = plain(Around::default());
    let waiting = receive(&question, Arrives::After(Time::from_nanoseconds(3_000))).expect("it ends");
    let p = machine();
    // The port's stages, a pass, the line on the wire, the link, the way to the core, and its instructions, the call's among them.
    let stages = p.device.receive_stage + p.device.receive_line + p.directory.pass;
    let wire = u64::from(p.link.line_words) * p.link.word_time + p.link.crossing + p.cache.l2_to_core;
    let instructions = p.core.cycles(u64::from((1 + 4) * p.core.issue_cycles + p.core.l1_hit_cycles + work::CALL));
    assert!(waiting.iter().all(|time| *time == stages + wire + instructions), "{waiting:?}");
}

#[test]
fn a_long_frame_that_the_port_loops_comes_while_the_last_one_is_given_back() {
    let received = |bytes, arrives| {
        let question = Frames { around: Around::default(), disturbances: Disturbances::default(), ..frames(bytes, 1) };
        receive(&question, arrives).expect("it ends")[100]
    };
    assert_eq!(received(64, Arrives::Looped), received(64, Arrives::WithTheLoad));
    let later = machine().device.transmit_line * (1536_u64.div_ceil(128) - 1);
    assert_eq!(received(1536, Arrives::WithTheLoad) - received(1536, Arrives::Looped), later);
}

#[test]
fn on_a_nics_clock_every_message_crosses_to_the_directory_and_takes_as_many_longer_cycles() {
    let p = machine();
    let received = |machine| {
        let question = Frames { machine, ..plain(Around::default()) };
        receive(&question, Arrives::WithTheLoad).expect("it ends")[100]
    };
    let nic = p.on_nic_clock();
    // Request, recall, its answer, grant; the device hears of two of them.
    let pass = p.directory.pass * p.device.nic_cycle / p.device.cycle - p.directory.pass;
    let longer = 4 * (pass + p.device.nic_crossing) + 2 * (p.device.nic_cycle - p.device.cycle);
    assert_eq!(received(nic) - received(p), longer);
    // Where one clock is all there is, nothing changes.
    let asic = of("cxl3-mem");
    assert_eq!(asic.on_nic_clock(), asic);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let question = |seed| Calls { payload: 1016, prefetch: true, disturbances: rough(seed), ..one_line() };
    let outcome = |seed| calls(&question(seed)).expect("it ends");
    assert_eq!(outcome(5), outcome(5));
    assert_ne!(outcome(5).latencies, outcome(6).latencies);
}

/// By how much a published value may be missed to which nothing was fitted, as a share of it.
const MISSED_BY: f64 = 0.29;

/// Those that are missed by more, and what by: the largest of many frames, where what disturbs so few is not modelled.
const MISSED_BY_MORE: [(&str, f64); 4] = [
    ("pio.table1.eci_64.transmit_p100", 0.31),
    ("pio.table1.dma_64.receive_p100", 0.34),
    ("pio.table1.dma_64.transmit_p100", 0.37),
    ("pio.table1.pcie_64.transmit_p100", 0.93),
];

/// The published statements that do not hold here. One more or less is a change of the models, to be said in `FIGURES.md`.
const DO_NOT_HOLD: [&str; 4] = [
    "pio.fig8.eci_rises_to_32768",
    "pio.fig10.transmit_pcie_competes",
    "pio.fig11.pcie_not_below_software",
    "pio.fig11.dma_not_below_software",
];

/// How well the study does stays as it is known to be.
fn stays(rows: &[Row]) {
    let summary = summary(rows);
    assert_eq!(summary.disagreeing, DO_NOT_HOLD);
    assert_eq!((summary.agreeing, summary.counted, summary.unanswered), ((23, 27), 28, 0));
    assert!(summary.median.is_some_and(|median| median < 0.1), "{:?}", summary.median);
    for row in rows {
        let Some(error) = row.error else { continue };
        let more = MISSED_BY_MORE.iter().find(|(id, _)| *id == row.id);
        let most = match row.role {
            Role::Calibration => 0.01,
            _ => more.map_or(MISSED_BY, |(_, most)| *most),
        };
        assert!(error < most, "{}: {error}", row.id);
    }
}

#[test]
fn every_prediction_has_its_published_result_and_withheld_ones_have_no_value() {
    let sockets = |name| Platform::load(name).expect("it is shipped").parameters().clone();
    let machines = Machines {
        enzian: machine(),
        enzian_pcie: sockets("enzian-pcie"),
        pc_pcie: sockets("pc-pcie"),
        thunderx: sockets("thunderx"),
        cxl: of("cxl3-mem"),
    };
    let found = findings(EXPERIMENTS, &machines, Effort::Quick);
    assert!(found.iter().all(|found| found.failures.is_empty()), "{found:?}");
    let predictions: Vec<_> = found.iter().flat_map(|found| found.findings.predictions.clone()).collect();
    let text = include_str!("../../results/coherent-pio.toml");
    let rows = compare(&predictions, &parse(text).expect("it is read"), true).expect("ids and units agree");
    let ours = |id: &str| ["pio.improved.", "pio.beyond.", "pio.whatif."].iter().any(|prefix| id.starts_with(prefix));
    for row in rows.iter().filter(|row| !ours(&row.id)) {
        assert_ne!(row.role, Role::Unpublished, "{}", row.id);
        assert_eq!(row.predicted.is_some(), row.role != Role::NotModelled, "{}", row.id);
    }
    stays(&rows);
    let withheld: Vec<&str> = rows.iter().filter(|row| row.role == Role::Withheld).map(|row| row.id.as_str()).collect();
    let table = ["eci_1536", "eci_9600", "dma_1536", "dma_9600", "pcie_1536", "pcie_9600"];
    let table = table.map(|row| format!("pio.table1.{row}"));
    assert_eq!(withheld[0], "pio.fig8.peak");
    assert_eq!(withheld[1..7], table);
    assert_eq!(withheld[7..], ["pio.fig12.per_element"]);
}

/// Frames of 64 bytes, one after the other, with nothing else going on.
fn plain(around: Around) -> Frames {
    Frames { prefetch: false, exclusive: false, disturbances: Disturbances::default(), around, ..frames(64, 1) }
}

#[test]
fn clocks_that_are_never_in_phase_spread_frames_by_less_than_a_cycle_of_each() {
    let spread = |times: Vec<u64>| times.iter().max().zip(times.iter().min()).map_or(0, |(most, least)| most - least);
    let both = |around: Around| {
        let question = Frames { frames: (16, 300), ..plain(around) };
        let received = receive(&question, Arrives::WithTheLoad).expect("it ends");
        [spread(received), spread(transmit(&question).expect("it ends"))]
    };
    assert_eq!(both(Around::default()), [0, 0]);
    for spread in both(Around { clocks: true, timer: None, pauses: Some(1) }) {
        assert!((1_000..=7_103).contains(&spread), "{spread} ps");
    }
}

#[test]
fn a_tick_takes_the_core_in_few_of_the_frames_and_once_in_each() {
    let (interval, span) = (100_000_000, 5_000_000);
    let timer = Some(TimerParameters { interval, span });
    let question = |timer| Frames { frames: (16, 1000), ..plain(Around { timer, ..Around::default() }) };
    let receive = |timer| receive(&question(timer), Arrives::WithTheLoad).expect("it ends");
    let (still, ticking) = (receive(None), receive(timer));
    let usual = still[0];
    assert!(still.iter().all(|time| *time == usual));
    let late: Vec<u64> = ticking.iter().copied().filter(|time| *time != usual).collect();
    // 1000 frames of about a microsecond, and what they lose, are some ten intervals.
    assert!((5..=15).contains(&late.len()), "{late:?}");
    assert!(late.iter().all(|time| *time <= usual + span), "{late:?}");
    assert!(late.iter().any(|time| *time == usual + span), "{late:?}");
}

#[test]
fn a_tick_that_comes_between_two_frames_lengthens_neither() {
    let (interval, span) = (100_000_000, 5_000_000);
    let timer = Some(TimerParameters { interval, span });
    let around = Around { timer, pauses: Some(1), ..Around::default() };
    let question = Frames { frames: (0, 1000), ..plain(around) };
    for times in [receive(&question, Arrives::WithTheLoad), transmit(&question)] {
        let times = times.expect("it ends");
        let usual = *times.iter().min().expect("there are frames");
        let late = times.iter().filter(|time| **time > usual + span / 2).count();
        // A frame takes about a microsecond and the pause behind it five: of some sixty ticks some ten come within a frame.
        assert!((1..30).contains(&late), "{late}");
    }
}
