//! CNI's study: what is calibrated comes out as it went in, messages arrive whole over every interface, and the transactions of a message
//! are those that the paper counts.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::Core;
use conic_interface::cni::Kind;
use conic_sim::Failure;
use conic_sim::bus::{Attachment, BusParameters, Counters};
use conic_sim::platform::Platform;
use conic_study::cni::messages::{Traffic, round_trips, stream};
use conic_study::cni::nodes::Nodes;
use conic_study::cni::{EXPERIMENTS, HEADLINES, findings};
use conic_study::comparison::{Figure, Role, compare, parse};
use conic_study::experiment::{Effort, Value};
use conic_study::sensitivity::numbers;

fn machine() -> BusParameters {
    Platform::<BusParameters>::load_as("hypersparc").unwrap_or_else(|error| panic!("{error}")).parameters().clone()
}

fn traffic(attachment: Attachment, kind: Kind, bytes: u64, messages: (u64, u64)) -> Traffic {
    Traffic { nodes: Nodes { machine: machine(), attachment, kind, count: 2 }, bytes, messages }
}

/// Every interface on each bus that it may be on.
fn all() -> Vec<(Attachment, Kind)> {
    let on_memory = Kind::ALL.map(|kind| (Attachment::MemoryBus, kind));
    let on_io = [Kind::Ni2w, Kind::Cni4, Kind::Cni16Q, Kind::Cni512Q].map(|kind| (Attachment::IoBus, kind));
    on_memory.into_iter().chain(on_io).chain([(Attachment::CacheBus, Kind::Ni2w)]).collect()
}

#[test]
fn every_published_result_is_predicted_or_said_not_to_be_and_calibrated_ones_are_met() {
    let found = findings(EXPERIMENTS, &machine(), Effort::Quick, |cases, run| cases.iter().map(run).collect());
    let failed: Vec<_> = found.iter().flat_map(|found| &found.failures).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(!numbers(&found, &HEADLINES).contains(&None), "each headline is a number that is found");
    let predictions: Vec<_> = found.iter().flat_map(|found| found.findings.predictions.clone()).collect();
    let published = parse(include_str!("../../results/cni.toml")).expect("the file is right");
    let rows = compare(&predictions, &published, true).expect("every id is known");
    for result in &published {
        let row = rows.iter().find(|row| row.id == result.id);
        let predicted = row.is_some_and(|row| row.predicted.is_some());
        assert_eq!(predicted, result.role != Role::NotModelled, "{}", result.id);
    }
    let unpublished: Vec<&str> =
        rows.iter().filter(|row| row.role == Role::Unpublished).map(|row| row.id.as_str()).collect();
    assert_eq!(unpublished, [""; 0]);
    for row in rows.iter().filter(|row| row.role == Role::Calibration) {
        let (Some(Value::Number(found)), Some(Figure::Exactly(wanted))) = (&row.predicted, row.published) else {
            panic!("{row:?}");
        };
        assert!((found / wanted - 1.0).abs() < 0.01, "{}: {found} instead of {wanted}", row.id);
    }
}

#[test]
fn messages_of_any_length_arrive_whole_over_every_interface() {
    // The programs look at every word; 244 bytes fill a network message, and one block's end lies between 52 and 53.
    for (attachment, kind) in all() {
        for bytes in [1, 8, 52, 53, 244, 245, 700] {
            let asked = traffic(attachment, kind, bytes, (3, 12));
            let failed = |failure| panic!("{kind} on the {attachment:?}, {bytes} bytes: {failure}");
            round_trips(&asked).map_or_else(failed, |found| assert!(found.median > 0.0));
            stream(&asked).map_or_else(failed, |found| assert!(found.megabytes > 0.0));
        }
    }
}

/// What the first node's memory bus carries for a round trip of 64 bytes, over many.
fn carried(kind: Kind) -> (Counters, f64) {
    let rounds = 64;
    let found = round_trips(&traffic(Attachment::MemoryBus, kind, 64, (160, rounds))).expect("it ends");
    (found.counters, rounds as f64)
}

#[test]
fn a_queue_moves_each_block_with_an_invalidation_and_a_read() {
    // 76 bytes are two blocks out and two back (section 2.2). On top come the pointers, twice a pass of a queue, and a look at what the
    // other node has acknowledged, once in four messages.
    let acknowledged = 0.25;
    for (kind, pointers) in [(Kind::Cni512Q, 0.1), (Kind::Cni16Q, 1.0)] {
        let (counters, rounds) = carried(kind);
        let a_round = |what| counters.memory.of(what) as f64 / rounds;
        for what in ["read", "invalidate"] {
            let least = 4.0 + acknowledged;
            assert!((least..=least + pointers).contains(&a_round(what)), "{kind}: {} times {what}", a_round(what));
        }
        assert_eq!((a_round("store"), a_round("load"), a_round("write back")), (1.0, 0.0, 0.0), "{kind}");
    }
}

#[test]
fn a_queue_in_main_memory_writes_back_what_overflows() {
    let (counters, rounds) = carried(Kind::Cni16Qm);
    let a_round = |what| counters.memory.of(what) as f64 / rounds;
    // Of a slot of four blocks two are written, and displace those of four slots before.
    assert!((1.9..=2.1).contains(&a_round("write back")), "{counters:?}");
    // The send queue of four slots has its head read once a pass, and the window of four messages lets as many go unasked.
    assert!((4.45..=4.55).contains(&a_round("read")), "{counters:?}");
}

#[test]
fn words_cost_an_access_each_and_cachable_registers_a_poll_and_a_handshake() {
    let (counters, rounds) = carried(Kind::Ni2w);
    let a_round = |what| counters.memory.of(what) as f64 / rounds;
    // Ten words of eight bytes each way; the rest of the loads look at a status.
    assert_eq!((a_round("store"), a_round("read"), a_round("invalidate")), (10.0, 0.0, 0.0));
    assert!(a_round("load") > 12.0, "{counters:?}");
    let (counters, rounds) = carried(Kind::Cni4);
    let a_round = |what| counters.memory.of(what) as f64 / rounds;
    // One store says that a message is ready, one that it is cleared, which invalidates its two blocks.
    assert_eq!((a_round("store"), a_round("read"), a_round("invalidate")), (2.0, 4.0, 4.0));
    assert!(a_round("load") > 2.0, "{counters:?}");
}

/// Two nodes that send each other so many messages before they receive any; gives how many they took in while they could not send.
fn sends_before_receiving(kind: Kind, messages: u64) -> Result<[u64; 2], Failure> {
    let nodes = Nodes { machine: machine(), attachment: Attachment::MemoryBus, kind, count: 2 };
    let (mut simulation, places) = nodes.build(1024);
    let buffered = Rc::new(Cell::new([0; 2]));
    for node in 0..2 {
        let into = Rc::clone(&buffered);
        nodes.processor(&mut simulation, node, conic_sim::Role::Main, places, move |core, mut endpoint| {
            let (out, back) = (places.user, places.user + 512);
            for number in 0..messages {
                core.store(out, number);
                endpoint.send(1 - node as u16, out, 200);
            }
            for number in 0..messages {
                while endpoint.try_receive(back).is_none() {
                    core.spin();
                }
                assert_eq!(core.load(back), number, "messages come in order");
            }
            let mut all = into.get();
            all[node] = endpoint.buffered();
            into.set(all);
        });
    }
    simulation.run()?;
    Ok(buffered.get())
}

#[test]
fn a_full_queue_in_main_memory_is_drained_by_who_cannot_send() {
    let taken_in = |messages| {
        sends_before_receiving(Kind::Cni16Qm, messages).unwrap_or_else(|failure| panic!("{messages}: {failure}"))
    };
    // Its 512 blocks hold 128 messages, and the network four, beside the engines'.
    assert_eq!(taken_in(120), [0; 2], "what the queue holds is left there");
    let [one, other] = taken_in(150);
    assert!(one.max(other) >= 128, "once it is full, all of it is drained: {one}, {other}");
    assert!(taken_in(300).iter().all(|count| *count >= 128));
    // Others take messages in, one at a time, as soon as they cannot send.
    assert!(sends_before_receiving(Kind::Cni512Q, 300).is_ok_and(|taken| taken.iter().all(|count| *count > 0)));
}

#[test]
fn the_same_run_comes_out_the_same() {
    let once = || stream(&traffic(Attachment::IoBus, Kind::Cni16Q, 300, (10, 40))).expect("it ends");
    assert_eq!(once(), once());
}
