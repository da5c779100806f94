//! Packets that a driver leaves to be finished, and that it takes so.

use super::half::feature;
use super::tests::{Guest, MODERN, TO_CUT, begun, folder, look, options};
use super::*;
use crate::offload::UDP;
use crate::offload::checksum::{Verdict, verify};
use crate::offload::virtio::{Checksum, Segmentation};

/// As [`begun`] makes one, with UDP.
fn begun_datagram(payload: usize) -> Vec<u8> {
    let mut packet = [&[2; 12][..], &[8, 0, 0x45, 0], &(28 + payload as u16).to_be_bytes()].concat();
    packet.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 80]);
    packet.extend([&(8 + payload as u16).to_be_bytes()[..], &[0, 0]].concat());
    packet.extend((0..payload).map(|at| at as u8));
    packet
}

#[test]
fn what_a_driver_leaves_is_done_and_what_it_takes_is_left() {
    let folder = folder();
    let options = VhostOptions { offload: true, ..options(&folder) };
    let mut port = VhostUser::open(&options).expect("a port");
    let [four, six] = feature::GUEST_TCP;
    let offloads = feature::CHECKSUM | feature::GUEST_CHECKSUM | four | six | feature::HOST_TCP[0];
    let mut guest = Guest::start(&mut port, MODERN | offloads);
    assert!(port.takes_unfinished());
    let mut frame = vec![0; LONGEST];
    let sound = |frame: &[u8]| verify(frame).transport == Verdict::Good;
    // From the driver: cut here, or left to who takes it so.
    guest.outward.send(&TO_CUT, &begun(2500));
    let mut lengths = Vec::new();
    for _ in 0..4 {
        if let Receive::Frame { length, .. } = port.receive(Time::ZERO, &mut frame).expect("a port") {
            assert!(sound(&frame[..length]));
            lengths.push(length);
        }
    }
    assert_eq!(lengths, [1054, 1054, 554]);
    guest.outward.send(&TO_CUT, &begun(2500));
    let mut metadata = Metadata::NONE;
    let got = port.receive_unfinished(Time::ZERO, &mut frame, &mut metadata).expect("a port");
    assert_eq!(got, Receive::Frame { length: 2554, captured: None });
    assert_eq!(metadata.segmentation.map(|segmentation| segmentation.size), Some(1000));
    // To a driver that takes it so.
    guest.inward.post(4000);
    let packet = begun(2500);
    assert_eq!(port.transmit_unfinished(Time::ZERO, &packet, metadata).expect("a port"), Transmit::Accepted);
    port.flush(Time::ZERO).expect("a port");
    let got = guest.inward.got().expect("a packet");
    assert_eq!((&got[..10], &got[LONG_HEADER..]), (&TO_CUT[..10], &packet[..]));
    // To one that takes only finished ones.
    drop(guest);
    look(&mut port, Time::ZERO);
    let mut guest = Guest::start(&mut port, MODERN);
    (0..3).for_each(|_| guest.inward.post(2000));
    assert_eq!(port.transmit_unfinished(Time::ZERO, &packet, metadata).expect("a port"), Transmit::Accepted);
    port.flush(Time::ZERO).expect("a port");
    let got: Vec<Vec<u8>> = std::iter::from_fn(|| guest.inward.got()).collect();
    assert_eq!(got.iter().map(|got| got.len() - LONG_HEADER).collect::<Vec<_>>(), [1054, 1054, 554]);
    assert!(got.iter().all(|got| got[..10] == [0; 10] && sound(&got[LONG_HEADER..])));
    // That a checksum was found right is said to who hears of checksums.
    let found_right = |port: &mut VhostUser, features: u64| {
        let mut guest = Guest::start(port, features);
        guest.inward.post(2000);
        let metadata = Metadata { checksum: Checksum::Valid, ..Metadata::NONE };
        let put = port.transmit_unfinished(Time::ZERO, &begun(100), metadata).expect("a port");
        port.flush(Time::ZERO).expect("a port");
        let said = guest.inward.got().expect("a packet")[0];
        drop(guest);
        look(port, Time::ZERO);
        (put, said)
    };
    drop(guest);
    look(&mut port, Time::ZERO);
    assert_eq!(found_right(&mut port, MODERN), (Transmit::Accepted, 0));
    assert_eq!(found_right(&mut port, MODERN | offloads), (Transmit::Accepted, 2));
    let mut guest = Guest::start(&mut port, MODERN);
    // What a driver says that has not agreed on it, or of a packet that is none, is refused.
    guest.outward.send(&TO_CUT, &[0; 60]);
    assert_eq!(port.receive(Time::ZERO, &mut frame).expect("a port"), Receive::Skipped);
    let mut plain = VhostUser::open(&VhostOptions::new("@conic-vhost-plain")).expect("a port");
    let mut guest = Guest::start(&mut plain, MODERN);
    guest.outward.send(&TO_CUT, &begun(2500));
    assert_eq!(plain.receive(Time::ZERO, &mut frame).expect("a port"), Receive::Skipped);
    assert_eq!(plain.counters().skipped_malformed, 1);
}

/// To cut UDP is not offered to drivers, and none is asked to.
#[test]
fn udp_arrives_cut_and_is_not_taken_uncut() {
    let folder = folder();
    let mut port = VhostUser::open(&VhostOptions { offload: true, ..options(&folder) }).expect("a port");
    let [four, six] = feature::GUEST_TCP;
    let offloads = feature::CHECKSUM | feature::GUEST_CHECKSUM | four | six | feature::HOST_TCP[0];
    let mut guest = Guest::start(&mut port, MODERN | offloads);
    (0..3).for_each(|_| guest.inward.post(2000));
    let (checksum, size) = (Checksum::Partial { start: 34, offset: 6 }, 1000);
    let metadata = Metadata { checksum, segmentation: Some(Segmentation { size, protocol: UDP }) };
    let sent = port.transmit_unfinished(Time::ZERO, &begun_datagram(2500), metadata).expect("a port");
    assert_eq!(sent, Transmit::Accepted);
    port.flush(Time::ZERO).expect("a port");
    let got: Vec<Vec<u8>> = std::iter::from_fn(|| guest.inward.got()).collect();
    assert_eq!(got.iter().map(|got| got.len() - LONG_HEADER).collect::<Vec<_>>(), [1042, 1042, 542]);
    for got in got {
        assert_eq!((&got[..10], verify(&got[LONG_HEADER..]).transport), (&[0; 10][..], Verdict::Good));
    }
    // One that is whole is taken with its checksum begun.
    guest.inward.post(2000);
    let metadata = Metadata { segmentation: None, ..metadata };
    port.transmit_unfinished(Time::ZERO, &begun_datagram(100), metadata).expect("a port");
    port.flush(Time::ZERO).expect("a port");
    assert_eq!(guest.inward.got().expect("a packet")[..10], [1, 0, 42, 0, 0, 0, 34, 0, 6, 0]);
    // From a driver, either way of receiving.
    for skipped in 1..=2 {
        guest.outward.send(&[1, 5, 42, 0, 0xe8, 3, 34, 0, 6, 0, 0, 0], &begun_datagram(2500));
        let mut frame = vec![0; LONGEST];
        let got = match skipped {
            1 => port.receive(Time::ZERO, &mut frame[..MAX_FRAME]),
            _ => port.receive_unfinished(Time::ZERO, &mut frame, &mut Metadata::NONE.clone()),
        };
        assert_eq!((got.expect("a port"), port.counters().skipped_malformed), (Receive::Skipped, skipped));
    }
}

/// A header is built for each piece, by the thread that all who are behind the port's network share.
#[test]
fn what_a_driver_wants_cut_into_crumbs_is_refused_and_counted() {
    let folder = folder();
    let mut port = VhostUser::open(&VhostOptions { offload: true, ..options(&folder) }).expect("a port");
    let mut guest = Guest::start(&mut port, MODERN | feature::CHECKSUM | feature::HOST_TCP[0]);
    let mut give = |payload, size: u8| {
        let mut header = TO_CUT;
        header[4..6].copy_from_slice(&[size, 0]);
        guest.outward.send(&header, &begun(payload));
        let mut frame = [0; MAX_FRAME];
        let given = |_: &()| matches!(port.receive(Time::ZERO, &mut frame), Ok(Receive::Frame { .. }));
        let frames = std::iter::repeat(()).take_while(given).count();
        (frames, port.counters().skipped_malformed)
    };
    assert_eq!(give(2500, 1), (0, 1));
    assert_eq!(give(2500, 31), (0, 2));
    assert_eq!(give(2500, 32), (79, 2), "a guest whose peer takes next to nothing at once is served");
    assert_eq!(give(1, 1), (1, 2), "what is one frame already is not cut");
}
