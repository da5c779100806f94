//! The software NIC between a real interface and real ports.

use std::collections::VecDeque;

use crate::support::{Region, feature_sets, frame, receive, send};
use conic_fabric::Time;
use conic_interface::ccnic::{Features, Geometry, PhaseCredit, Policy};
use conic_interface::with_policy;
use conic_nicd::{Options, SoftwareNic};
use conic_port::{
    CaptureReader, CaptureWriter, Counters, Loopback, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Timestamp,
    Transmit,
};
use proptest::prelude::*;

const MICROSECOND: Time = Time::from_nanoseconds(1_000);

/// What [`Features::best`] is compiled as.
type Best = PhaseCredit;

fn geometry() -> Geometry {
    Geometry { descriptors: 64, buffers: [256, 128, 64], ..Geometry::default() }
}

/// Sends frames of these lengths through a loopback port of `slots` frames, a step at a time, and checks what comes back.
fn round<P: Policy>(features: Features, lengths: &[usize], slots: usize) {
    let region = Region::new(geometry(), features);
    let mut host = region.host::<P>(0);
    let mut nic = SoftwareNic::new(Loopback::new(slots), [region.wire::<P>(0)], Options::default());
    let (mut sent, mut received, mut fruitless) = (0, 0, 0);
    while received < lengths.len() {
        fruitless += 1;
        while sent < lengths.len() && send(&mut host, &frame(sent as u32, 0, lengths[sent])) {
            sent += 1;
        }
        nic.step(Time::ZERO).expect("a loopback does not fail");
        while let Some(got) = receive(&mut host) {
            assert_eq!(got, frame(received as u32, 0, lengths[received]), "frame {received}, {features}");
            (received, fruitless) = (received + 1, 0);
        }
        assert!(fruitless < 100, "it stands still after {received} of {} frames, {features}", lengths.len());
    }
    let counters = nic.counters();
    assert_eq!((counters.dropped(), counters.refused_from_host), (0, 0), "{features}");
    assert_eq!(counters.received_frames, lengths.len() as u64);
    assert_eq!(counters.received_bytes, lengths.iter().sum::<usize>() as u64);
    assert_eq!(
        (counters.transmitted_frames, counters.transmitted_bytes),
        (counters.received_frames, counters.received_bytes)
    );
}

#[test]
fn every_size_passes_unchanged_and_in_order() {
    let lengths: Vec<usize> = (MIN_FRAME..=MAX_FRAME).collect();
    round::<Best>(Features::best(), &lengths, 16);
}

#[test]
fn sizes_around_every_edge_pass_with_every_feature_set() {
    let edges = [60, 64, 104, 105, 128, 129, 192, 1514, 4095, 4096, 4097, 9599, 9600];
    let lengths: Vec<usize> = edges.iter().copied().cycle().take(400).collect();
    for features in feature_sets() {
        with_policy!(features, P => round::<P>(features, &lengths, 7));
    }
}

#[test]
fn a_host_that_manages_the_pool_alone_gets_its_frames() {
    // Its blank receive buffers are of the large class, so that frames of up to 4096 bytes can be received.
    let lengths: Vec<usize> = [60, 64, 105, 128, 1514, 4096].iter().copied().cycle().take(400).collect();
    for features in feature_sets() {
        let features = Features { shared_pool: false, ..features };
        with_policy!(features, P => round::<P>(features, &lengths, 7));
    }
}

#[test]
fn a_full_port_delays_frames_and_loses_none() {
    let lengths = vec![100; 300];
    round::<Best>(Features::best(), &lengths, 1);
}

#[test]
fn short_frames_are_padded_and_longer_ones_than_jumbo_are_dropped_and_counted() {
    let region = Region::new(geometry(), Features::best());
    let mut host = region.host::<Best>(0);
    let mut nic = SoftwareNic::new(Loopback::new(64), [region.wire::<Best>(0)], Options::default());
    for length in [13, 14, 59, 60, 9600, 9601, 16_384] {
        let bytes = if length < 18 { vec![7; length] } else { frame(length as u32, 0, length) };
        assert!(send(&mut host, &bytes));
    }
    for _ in 0..10 {
        nic.step(Time::ZERO).expect("a loopback does not fail");
    }
    let mut padded = vec![7; 14];
    padded.resize(60, 0);
    let mut almost = frame(59, 0, 59);
    almost.push(0);
    let expected = [padded, almost, frame(60, 0, 60), frame(9600, 0, 9600)];
    for frame in expected {
        assert_eq!(receive(&mut host), Some(frame));
    }
    assert_eq!(receive(&mut host), None);
    let counters = nic.counters();
    assert_eq!(counters.transmitted_padded, 2);
    assert_eq!(counters.dropped_by_interface, 2, "9601 and 16384 bytes");
    assert_eq!(counters.dropped_by_port, 1, "13 bytes");
    assert_eq!(nic.port().counters().refused_length, 1);
}

#[test]
fn a_full_host_is_waited_for_and_then_loses_frames_by_count() {
    const PATIENCE: Time = Time::from_nanoseconds(5_000);
    let region = Region::new(Geometry { descriptors: 16, ..geometry() }, Features::best());
    let mut host = region.host::<Best>(0);
    let mut port = Loopback::new(4096);
    for number in 0..100 {
        port.transmit(Time::ZERO, &frame(number, 0, 200)).expect("a loopback does not fail");
    }
    let mut nic =
        SoftwareNic::new(port, [region.wire::<Best>(0)], Options { patience: PATIENCE, ..Options::default() });
    let start = MICROSECOND;
    // Until the patience is over, whatever the number of steps, nothing is dropped.
    for _ in 0..20 {
        nic.step(start).expect("a loopback does not fail");
    }
    nic.step(Time::from_picoseconds((start + PATIENCE).picoseconds() - 1)).expect("as above");
    let delivered = nic.counters().received_frames;
    assert!((1..100).contains(&delivered), "{delivered} of 100 frames fit into 16 descriptors");
    assert_eq!((nic.counters().dropped_host_full, nic.counters().host_full), (0, 1));
    assert_eq!(nic.next_due(), Some(Time::ZERO), "a frame waits");
    // Then frames are dropped without more waiting, a burst a step.
    nic.step(start + PATIENCE).expect("as above");
    assert_eq!(nic.counters().dropped_host_full, 1 + 32);
    // A host that takes its frames again gets what comes next, with patience again.
    let mut got = 0;
    while let Some(bytes) = receive(&mut host) {
        assert_eq!(bytes, frame(got, 0, 200));
        got += 1;
    }
    assert_eq!(u64::from(got), delivered);
    nic.step(start + PATIENCE).expect("as above");
    assert_eq!(receive(&mut host), Some(frame(got + 33, 0, 200)));
    assert_eq!(nic.counters().dropped_host_full, 33);
}

#[test]
fn frames_of_a_flow_stay_in_order_on_one_queue_of_several() {
    let region = Region::new(Geometry { queues: 4, ..geometry() }, Features::best());
    let mut hosts: Vec<_> = (0..4).map(|queue| region.host::<Best>(queue)).collect();
    let wires: Vec<_> = (0..4).map(|queue| region.wire::<Best>(queue)).collect();
    let mut port = Loopback::new(1024);
    for number in 0..1000 {
        port.transmit(Time::ZERO, &frame(number, (number * 7 % 32) as u8, 60)).expect("a loopback does not fail");
    }
    let mut nic = SoftwareNic::new(port, wires, Options::default());
    let mut last = [None; 32];
    let mut queue_of = [None; 32];
    let mut counts = [0; 4];
    for _ in 0..200 {
        nic.step(Time::ZERO).expect("a loopback does not fail");
        for (queue, host) in hosts.iter_mut().enumerate() {
            while let Some(bytes) = receive(host) {
                let number = u32::from_be_bytes([bytes[14], bytes[15], bytes[16], bytes[17]]);
                let flow = usize::from(bytes[11]);
                assert_eq!(bytes, frame(number, flow as u8, 60));
                assert!(last[flow].replace(number).is_none_or(|before| before < number), "flow {flow} is out of order");
                assert_eq!(*queue_of[flow].get_or_insert(queue), queue, "flow {flow} has changed its queue");
                counts[queue] += 1;
            }
        }
    }
    assert_eq!(counts.iter().sum::<i32>(), 1000);
    assert!(counts.iter().all(|&count| count > 0), "32 flows over four queues: {counts:?}");
}

#[test]
fn every_queue_may_send_while_the_port_is_slow() {
    let region = Region::new(Geometry { queues: 3, ..geometry() }, Features::best());
    let mut hosts: Vec<_> = (0..3).map(|queue| region.host::<Best>(queue)).collect();
    let wires: Vec<_> = (0..3).map(|queue| region.wire::<Best>(queue)).collect();
    let mut nic = SoftwareNic::new(Loopback::new(1), wires, Options { burst: 4, ..Options::default() });
    let mut numbers = [0u32; 3];
    let mut seen = [0u32; 3];
    for _ in 0..600 {
        for (queue, host) in hosts.iter_mut().enumerate() {
            while send(host, &frame(numbers[queue], queue as u8, 60)) {
                numbers[queue] += 1;
            }
        }
        nic.step(Time::ZERO).expect("a loopback does not fail");
        for host in &mut hosts {
            while let Some(bytes) = receive(host) {
                let (queue, number) =
                    (usize::from(bytes[11]), u32::from_be_bytes(bytes[14..18].try_into().expect("four")));
                assert_eq!(number, seen[queue], "queue {queue} is out of order");
                seen[queue] += 1;
            }
        }
    }
    let (least, most) = (seen.iter().min().expect("three"), seen.iter().max().expect("three"));
    assert!(*least > 100 && most - least < most / 4, "the queues were served {seen:?} times");
}

/// A port whose transmit always fails and that receives one frame.
struct Broken {
    received: bool,
    counters: Counters,
}

impl Port for Broken {
    fn receive(&mut self, _: Time, bytes: &mut [u8]) -> Result<Receive, PortError> {
        if std::mem::replace(&mut self.received, true) {
            return Ok(Receive::End);
        }
        bytes[..60].copy_from_slice(&frame(0, 0, 60));
        Ok(Receive::Frame { length: 60, captured: None })
    }

    fn transmit(&mut self, _: Time, _: &[u8]) -> Result<Transmit, PortError> {
        Err(CaptureReader::new(&b"no capture"[..], "broken").err().expect("it is no capture").into())
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[test]
fn a_port_that_fails_to_send_still_receives() {
    let region = Region::new(geometry(), Features::best());
    let mut host = region.host::<Best>(0);
    let port = Broken { received: false, counters: Counters::default() };
    let mut nic = SoftwareNic::new(port, [region.wire::<Best>(0)], Options::default());
    assert!(send(&mut host, &frame(1, 0, 60)));
    assert!(nic.step(Time::ZERO).is_err());
    assert_eq!(receive(&mut host), Some(frame(0, 0, 60)));
    assert!(nic.step(Time::ZERO).is_ok_and(|step| step.is_idle()) && nic.is_ended());
    assert_eq!(nic.counters().dropped_port_failed, 1);
}

#[test]
fn a_capture_passes_with_its_unfit_frames_counted() {
    use conic_port::{CaptureFormat, CapturePort, Replay};
    let mut file = Vec::new();
    let mut writer = CaptureWriter::new(&mut file, CaptureFormat::Pcap, "test");
    let lengths = [60, 40, 9600, 9601, 1514, 13, 200];
    for (number, &length) in lengths.iter().enumerate() {
        let bytes = frame(number as u32, 0, length.max(18));
        writer.write(Timestamp::from_nanoseconds(number as u64), &bytes[..length]).expect("memory");
    }
    writer.finish().expect("memory");
    drop(writer);
    // The last frame is said to have been longer than what was captured of it: its wire length is before its bytes.
    let wire_length = file.len() - 200 - 4;
    file[wire_length..wire_length + 4].copy_from_slice(&201u32.to_le_bytes());

    let reader = CaptureReader::new(std::io::Cursor::new(file), "test").expect("a capture");
    let port = CapturePort::replay_from(reader, Replay::default()).expect("a capture");
    let region = Region::new(geometry(), Features::best());
    let mut host = region.host::<Best>(0);
    let mut nic = SoftwareNic::new(port, [region.wire::<Best>(0)], Options::default());
    while !nic.is_ended() {
        nic.step(Time::ZERO).expect("a sound capture");
    }
    let mut padded = frame(1, 0, 40);
    padded.resize(60, 0);
    for expected in [frame(0, 0, 60), padded, frame(2, 0, 9600), frame(4, 0, 1514)] {
        assert_eq!(receive(&mut host), Some(expected));
    }
    assert_eq!(receive(&mut host), None);
    let counters = nic.port().counters();
    assert_eq!((counters.skipped_truncated, counters.skipped_oversized, counters.skipped_short), (1, 1, 1));
    assert_eq!((counters.received_padded, nic.counters().received_frames), (1, 4));
}

/// One call, by the host or by whoever drives the NIC.
#[derive(Clone, Copy, Debug)]
enum Call {
    Send { length: usize },
    Step { nanoseconds: u64 },
    Receive { most: usize },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let length = prop_oneof![60usize..130, 60usize..=MAX_FRAME];
    let call = prop_oneof![
        4 => length.prop_map(|length| Call::Send { length }),
        2 => (0u64..300).prop_map(|nanoseconds| Call::Step { nanoseconds }),
        1 => (1usize..40).prop_map(|most| Call::Receive { most }),
    ];
    proptest::collection::vec(call, 1..400)
}

fn random_calls<P: Policy>(features: Features, calls: &[Call], slots: usize) -> Result<(), TestCaseError> {
    let region = Region::new(Geometry { descriptors: 16, ..geometry() }, features);
    let mut host = region.host::<P>(0);
    let options = Options { burst: 3, patience: MICROSECOND };
    let mut nic = SoftwareNic::new(Loopback::new(slots), [region.wire::<P>(0)], options);
    let mut now = Time::ZERO;
    let mut expected = VecDeque::new();
    let (mut number, mut lost) = (0, 0);
    let mut take = |host: &mut _, expected: &mut VecDeque<Vec<u8>>| {
        let Some(bytes) = receive(host) else { return Ok(false) };
        // Those that it overtook were dropped for want of room; how many is checked at the end.
        while let Some(front) = expected.pop_front() {
            if front == bytes {
                return Ok(true);
            }
            lost += 1;
        }
        Err(TestCaseError::fail("a frame came that was not sent, or not as it was, or out of order"))
    };
    for &call in calls {
        match call {
            Call::Send { length } => {
                let bytes = frame(number, 0, length);
                if send(&mut host, &bytes) {
                    expected.push_back(bytes);
                    number += 1;
                }
            }
            Call::Step { nanoseconds } => {
                now += Time::from_nanoseconds(nanoseconds);
                nic.step(now).expect("a loopback does not fail");
            }
            Call::Receive { most } => {
                for _ in 0..most {
                    if !take(&mut host, &mut expected)? {
                        break;
                    }
                }
            }
        }
    }
    for _ in 0..2000 {
        nic.step(now).expect("a loopback does not fail");
        while take(&mut host, &mut expected)? {}
    }
    let counters = nic.counters();
    prop_assert_eq!(expected.len() as u64 + lost, counters.dropped(), "frames vanished without a count");
    prop_assert_eq!(counters.dropped(), counters.dropped_host_full);
    prop_assert_eq!(counters.received_frames + counters.dropped_host_full, u64::from(number));
    // Nothing is on its way now: every buffer is in the pool or on one of the two stacks.
    host.drain();
    let (mut wires, _) = nic.into_parts();
    wires[0].nic().drain();
    prop_assert_eq!(region.map.pool.free(host.core()), region.map.geometry.buffers);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_calls_loses_changes_or_reorders_a_frame(
        calls in calls(),
        set in 0usize..20,
        slots in 1usize..40,
    ) {
        let features = feature_sets()[set];
        with_policy!(features, P => random_calls::<P>(features, &calls, slots))?;
    }
}
