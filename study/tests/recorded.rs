//! Calls and frames over line pairs, and packets of a CXL NIC, while they are written down: they take as long, and what was written down
//! is what was counted.

use std::collections::BTreeMap;

use conic_fabric::Time;
use conic_interface::pio::Behaviour;
use conic_sim::cxl::{CxlParameters, Machine as CxlMachine};
use conic_sim::eci::{Disturbances, EciParameters, Machine};
use conic_sim::platform::Platform;
use conic_sim::probe::{MessageRecord, Recording};
use conic_study::coherent_pio::calling::Makes;
use conic_study::coherent_pio::exchange::{CALL, Calls, calls, observed_calls};
use conic_study::coherent_pio::frames::{
    Around, Arrives, FRAME, Frames, observed_receive, observed_transmit, receive, transmit,
};
use conic_study::cxl_nic::loopback::{
    AT_HOST, Design, Loopback, RECEIVE_STAGE, TRANSMIT_STAGE, loopback, observed_loopback,
};
use conic_study::cxl_nic::{ccnic, layout, optimal};
use conic_study::simulated::{Observer, ROUND_TRIP};

/// Takes everything down.
#[derive(Default)]
struct Recorder(Recording);

impl Observer<Machine> for Recorder {
    fn begins(&mut self, machine: &mut Machine) {
        machine.record(usize::MAX);
    }
    fn ends(&mut self, machine: &mut Machine) {
        self.0 = machine.take_recording().expect("it was asked for");
    }
}

fn machines() -> [EciParameters; 2] {
    ["enzian", "cxl3-mem"]
        .map(|name| Platform::<EciParameters>::load_as(name).expect("it is shipped").parameters().clone())
}

/// How long each of what a recording calls so took.
fn spans(recording: &Recording, name: &str) -> Vec<u64> {
    let spans = recording.spans.iter().filter(|span| span.name == name);
    spans.map(|span| span.ends.since(span.begins).picoseconds()).collect()
}

#[test]
fn calls_take_as_long_while_they_are_written_down_and_no_message_is_missing() {
    for (machine, bytes, exclusive) in machines().iter().flat_map(|machine| {
        [(machine, 40, true), (machine, 40, false), (machine, 1_000, true), (machine, 1_000, false)]
    }) {
        let behaviour = Behaviour { exclusive, ..Behaviour::default() };
        let question = Calls { behaviour, ..Calls::new(machine, bytes, Makes::Inverted, (4, 6)) };
        let mut recorder = Recorder::default();
        let seen = observed_calls(&question, &mut recorder).expect("it ends");
        assert_eq!(calls(&question), Ok(seen.clone()), "{bytes} bytes on {}", machine.name);
        let Recorder(recording) = recorder;
        assert_eq!(spans(&recording, CALL)[4..], seen.latencies);
        // From the first call that counts on: what crossed the link is what its counters say.
        let begins = recording.spans.iter().filter(|span| span.name == CALL).nth(4).expect("ten calls").begins;
        let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
        for message in recording.messages.iter().filter(|message| message.sent >= begins) {
            match (recording.place(message.from).as_str(), recording.place(message.to).as_str()) {
                ("L2", "directory") => *there.entry(message.name).or_insert(0) += 1,
                ("directory", "L2") => *back.entry(message.name).or_insert(0) += 1,
                _ => {}
            }
        }
        let of = |kind| seen.counters.messages.of(kind);
        let sent = |name: &str| there.get(name).or(back.get(name)).copied().unwrap_or(0);
        assert_eq!(sent("ReadShared") + sent("ReadExclusive"), of("request"));
        assert_eq!(sent("Upgrade"), of("upgrade"));
        assert_eq!(sent("GrantShared") + sent("GrantExclusive"), of("grant"));
        assert_eq!([sent("Recall"), sent("VictimModified")], [of("recall"), of("victim with data")]);
        assert_eq!(
            there.values().sum::<u64>() + back.values().sum::<u64>(),
            seen.counters.messages.iter().map(|(_, count)| count).sum::<u64>()
        );
        // Two round trips for each line and its partner, and where they come back shared one more.
        let lines = (bytes as u64 + 8).div_ceil(machine.cache.line_bytes);
        assert_eq!([sent("Recall"), sent("Upgrade")], [6 * lines, if exclusive { 0 } else { 6 * lines }]);
    }
}

#[test]
fn frames_take_as_long_while_they_are_written_down() {
    for (machine, bytes) in machines().iter().flat_map(|machine| [(machine, 64), (machine, 500)]) {
        let question = Frames {
            machine: machine.on_nic_clock(),
            bytes,
            prefetch: false,
            exclusive: true,
            frames: (4, 6),
            disturbances: Disturbances::default(),
            around: Around { clocks: true, timer: None, pauses: Some(1) },
        };
        let mut recorder = Recorder::default();
        let seen = observed_receive(&question, Arrives::WithTheLoad, &mut recorder);
        assert_eq!(receive(&question, Arrives::WithTheLoad), seen, "{bytes} bytes on {}", machine.name);
        // The port's clock takes a frame at its next edge.
        let (spans_of, edge) = (spans(&recorder.0, FRAME), machine.device.port_cycle);
        for (span, latency) in spans_of[4..].iter().zip(seen.expect("it ends")) {
            assert!((latency..latency + edge).contains(span), "{span} for {latency}");
        }
        let mut recorder = Recorder::default();
        let seen = observed_transmit(&question, &mut recorder);
        assert_eq!(transmit(&question), seen, "{bytes} bytes on {}", machine.name);
        for (span, latency) in spans(&recorder.0, FRAME)[4..].iter().zip(seen.expect("it ends")) {
            assert!(*span >= latency, "{span} for {latency}");
        }
    }
}

/// Takes everything of a host with a CXL or a PCIe device down.
#[derive(Default)]
struct CxlRecorder(Recording);

impl Observer<CxlMachine> for CxlRecorder {
    fn begins(&mut self, machine: &mut CxlMachine) {
        machine.record(usize::MAX);
    }
    fn ends(&mut self, machine: &mut CxlMachine) {
        self.0 = machine.take_recording().expect("it was asked for");
    }
}

#[test]
fn packets_of_a_cxl_nic_take_as_long_while_they_are_written_down_and_their_stretches_follow_one_another() {
    let mut designs: Vec<(&str, Design)> = (0..8).map(|number| ("agilex7", Design::combination(number))).collect();
    designs.extend([optimal(), ccnic(), layout(2), layout(4)].map(|design| ("agilex7", design)));
    let batches = Design { receive_batch: 4, transmit_batch: 4, ..Design::combination(2) };
    designs.extend([("agilex7", batches), ("bf3", Design::pcie())]);
    for (name, design) in designs {
        let machine = Platform::<CxlParameters>::load_as(name).expect("it is shipped").parameters().clone();
        let together = design.receive_batch as u64;
        let (packets, gap) = ((4 * together, 3 * together), Time::from_nanoseconds(20_000));
        let question = Loopback { machine, design, bytes: 200, gap, together, packets, seed: 3 };
        let mut recorder = CxlRecorder::default();
        let seen = observed_loopback(&question, &mut recorder).expect("it ends");
        assert_eq!(loopback(&question), Ok(seen.clone()), "{design:?}");
        let Recording { spans: all, messages, .. } = &recorder.0;
        assert_eq!(spans(&recorder.0, ROUND_TRIP)[packets.0 as usize..], seen.latencies);
        let named = |name: &str| all.iter().filter(|span| span.name == name).collect::<Vec<_>>();
        let [trips, received, at_host, transmitted] = [ROUND_TRIP, RECEIVE_STAGE, AT_HOST, TRANSMIT_STAGE].map(named);
        for (((trip, received), at_host), transmitted) in trips.iter().zip(received).zip(at_host).zip(transmitted) {
            assert_eq!((trip.begins, trip.ends), (received.begins, transmitted.ends));
            assert!(received.ends < at_host.begins && at_host.begins < at_host.ends, "{design:?}");
            assert!(at_host.ends < transmitted.begins, "{design:?}");
        }
        // What was counted from the first packet that counts on was written down, and each message once.
        let first = recorder.0.spans.iter().filter(|span| span.name == TRANSMIT_STAGE).nth(packets.0 as usize);
        let begins = first.expect("so many came back").begins;
        let place = |message: &MessageRecord| [message.from, message.to].map(|place| recorder.0.place(place));
        let crosses = |message: &&MessageRecord| {
            let [from, to] = place(message);
            let ways = [("DCOH", "host home"), ("host home", "DCOH"), ("PCIe endpoint", "root port")];
            message.sent > begins && ways.contains(&(&from, &to))
        };
        let written = messages.iter().filter(crosses).count() as u64;
        let counts = &seen.counters.messages;
        let counted: u64 = counts.iter().map(|(_, count)| count).sum();
        let beside = counts.of("CplD") + counts.of("MMIO write");
        // At the beginning what is sent at that very moment counts in the one and not in the other.
        assert!(written.abs_diff(counted - beside) <= 2, "{design:?}: {written} of {}", counted - beside);
    }
}
