//! What a sender leaves to the NIC is done for whoever does not take it as it is, and receivers are told what they asked for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::support::clients::{BEGUN, Client, Outside, REQUEST, mac, plain, port, tcp};
use conic_fabric::{Core, Time};
use conic_interface::ccnic::{Descriptor, Flags};
use conic_interface::metadata::{Begun, Metadata};
use conic_native::KeptCore;
use conic_nicd::switch::{Offloads, Rules, Switch, SwitchOptions, SwitchPort};
use conic_port::offload::Headers;
use conic_port::offload::checksum::{Verdict, fill, fold, pseudo_header, verify};
use conic_port::offload::virtio::{self, Checksum};
use conic_port::{Counters, Port, PortError, Receive, Transmit};

const ALL: Offloads =
    Offloads { requests: true, verify: true, strip: true, unfinished: true, no_hash: false, join: false };
const PLAIN: Offloads =
    Offloads { requests: true, verify: false, strip: false, unfinished: false, no_hash: false, join: false };

fn finished(mut frame: Vec<u8>) -> Vec<u8> {
    fill(&mut frame);
    frame
}

impl Client {
    /// Packets with what was said of them.
    fn hear(&mut self) -> Vec<(Vec<u8>, Metadata)> {
        let mut all: Vec<(Vec<u8>, Metadata)> = Vec::new();
        let mut packets = [Descriptor::BLANK; 32];
        let mut goes_on = false;
        loop {
            let count = self.hosts[0].rx_burst(&mut packets);
            for packet in &packets[..count] {
                let mut bytes = vec![0; usize::from(packet.length())];
                self.core.read_bytes(packet.address(), &mut bytes);
                match all.last_mut() {
                    Some((whole, _)) if goes_on => whole.extend(bytes),
                    _ => all.push((bytes, Metadata(packet.metadata))),
                }
                goes_on = packet.has(Flags::NEXT);
                self.hosts[0].buf_free(&[packet.address()]);
            }
            if count == 0 {
                return all;
            }
        }
    }
}

fn attach(switch: &mut Switch<KeptCore>, number: u64, offloads: Offloads) -> Client {
    Client::attach(switch, Time::ZERO, number, 1, Rules { offloads, promiscuous: true, ..plain(number) })
}

/// Steps until whoever has sent more than its share has paid it back.
fn settle(switch: &mut Switch<KeptCore>) {
    for _ in 0..8 {
        switch.step(Time::ZERO);
    }
}

fn dropped(switch: &Switch<KeptCore>, session: u64) -> u64 {
    switch.clients().find(|(own, ..)| *own == session).expect("a client").1.dropped_offload
}

#[test]
fn a_begun_checksum_is_completed_for_who_wants_it_whole_and_kept_for_who_does_not() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut whole = attach(&mut switch, 2, Offloads { verify: true, ..PLAIN });
    let mut begun = attach(&mut switch, 3, ALL);
    let mut old = attach(&mut switch, 4, Offloads::default());
    let mut without_hash = attach(&mut switch, 5, Offloads { no_hash: true, ..PLAIN });
    for payload in [6, 100, 1460, 8000] {
        for to in [2, 3, 4, 5, 200] {
            sender.ask(&tcp(1, to, payload), REQUEST);
        }
        switch.step(Time::ZERO);
        let good = Metadata::NONE.with(Metadata::TRANSPORT_GOOD | Metadata::NETWORK_GOOD);
        // Station 200 is not known: what is for it goes to everybody, to each in its form.
        let [(got, told), (flood, _)] = &whole.hear()[..] else { panic!("two frames of {payload} bytes of payload") };
        assert_eq!(flood, &finished(tcp(1, 200, payload)));
        assert_eq!((got, told.has(good.0)), (&finished(tcp(1, 2, payload)), true));
        assert!(told.hash().is_some());
        let [(got, told), (flood, _)] = &begun.hear()[..] else { panic!("two frames") };
        assert_eq!(flood[34..], tcp(1, 200, payload)[34..]);
        assert_eq!((told.begun(), told.has(Metadata::TRANSPORT_BAD)), (BEGUN.begun(), false));
        assert_eq!(got[34..], tcp(1, 3, payload)[34..], "the checksum is left begun");
        let [(got, told), _] = &old.hear()[..] else { panic!("two frames") };
        assert_eq!((got, *told), (&finished(tcp(1, 4, payload)), Metadata::NONE));
        let [(got, told), _] = &without_hash.hear()[..] else { panic!("two frames") };
        assert_eq!((got, *told), (&finished(tcp(1, 5, payload)), Metadata::NONE.with(Metadata::TRANSPORT_GOOD)));
        assert_eq!(outside.take(), [finished(tcp(1, 200, payload))]);
    }
    assert_eq!(dropped(&switch, 1), 0);
}

#[test]
fn a_large_packet_for_which_buffers_run_out_is_dropped_whole_and_takes_none_with_it() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut whole = attach(&mut switch, 2, ALL);
    let lost = |switch: &Switch<KeptCore>| {
        switch.clients().find(|(session, ..)| *session == 2).expect("it is there").1.dropped_no_buffer
    };
    let mut held = Vec::new();
    let mut at = [conic_fabric::Address(0)];
    // All but two of the buffers that such a packet needs four of.
    while whole.hosts[0].buf_alloc(16_000, &mut at) == 1 {
        held.push(at[0]);
    }
    let free_two = |whole: &mut Client, held: &mut Vec<_>| {
        whole.hosts[0].buf_free(&held.split_off(held.len() - 2));
        whole.hosts[0].drain();
    };
    free_two(&mut whole, &mut held);
    for round in 1..100 {
        sender.ask(&tcp(1, 2, 60_000), REQUEST.with_large(1448));
        settle(&mut switch);
        assert_eq!((whole.hear().len(), lost(&switch)), (0, round));
    }
    // Two more are enough: those two are still there.
    free_two(&mut whole, &mut held);
    sender.ask(&tcp(1, 2, 60_000), REQUEST.with_large(1448));
    settle(&mut switch);
    let [(got, _)] = &whole.hear()[..] else { panic!("a packet") };
    assert_eq!(got[34..], tcp(1, 2, 60_000)[34..]);
}

#[test]
fn a_large_packet_is_cut_for_who_wants_frames_and_passed_whole_to_who_takes_it() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut frames = attach(&mut switch, 2, PLAIN);
    let mut whole = attach(&mut switch, 3, ALL);
    for payload in [3000, 20_000, 60_000] {
        let request = REQUEST.with_large(1448);
        sender.ask(&tcp(1, 2, payload), request);
        settle(&mut switch);
        let got = frames.hear();
        assert_eq!(got.len(), payload.div_ceil(1448), "{payload}");
        let mut joined = Vec::new();
        for (frame, _) in &got {
            assert_eq!((verify(frame).network, verify(frame).transport), (Verdict::Good, Verdict::Good));
            joined.extend_from_slice(&frame[54..]);
        }
        assert_eq!(joined, tcp(1, 2, payload)[54..]);
        sender.ask(&tcp(1, 3, payload), request);
        settle(&mut switch);
        let heard = whole.hear();
        let [(got, told)] = &heard[..] else { panic!("{} packets of {payload} bytes", heard.len()) };
        assert_eq!((told.large(), told.begun()), (Some(1448), BEGUN.begun()));
        assert_eq!(got[34..], tcp(1, 3, payload)[34..]);
    }
    // What would be one frame is one.
    sender.ask(&tcp(1, 3, 1000), REQUEST.with_large(1448));
    settle(&mut switch);
    let [(_, told)] = &whole.hear()[..] else { panic!("one frame") };
    assert_eq!((told.large(), told.begun()), (None, BEGUN.begun()));
}

/// DPDK's applications leave the sum of what is to be cut without the length.
#[test]
fn the_sum_of_what_is_to_be_cut_is_made_anew_whoever_takes_it() {
    let gone = Arc::new(Mutex::new(Vec::new()));
    let queue = Box::new(Unfinished(Arc::default(), Arc::clone(&gone), Counters::default()));
    let mut switch =
        Switch::new(SwitchOptions::default(), vec![SwitchPort { queues: vec![queue], vlan: None, circuit: None }]);
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut frames = attach(&mut switch, 2, PLAIN);
    let mut whole = attach(&mut switch, 3, ALL);
    // One that is one frame already, and one that is not.
    for payload in [1000, 20_000] {
        for to in [2, 3, 200] {
            let mut packet = tcp(1, to, payload);
            let headers = Headers::of(&packet).expect("a packet");
            let sum = fold(pseudo_header(&packet, &headers, 0));
            packet[50..52].copy_from_slice(&sum.to_be_bytes());
            assert_ne!(packet, tcp(1, to, payload));
            sender.ask(&packet, REQUEST.with_large(1448));
            settle(&mut switch);
        }
        let got = frames.hear();
        assert!(!got.is_empty() && got.iter().all(|(frame, _)| verify(frame).transport == Verdict::Good), "{payload}");
        assert_eq!(whole.hear()[0].0[34..], tcp(1, 3, payload)[34..], "{payload}");
        let sent = std::mem::take(&mut *gone.lock().expect("nobody panicked"));
        assert_eq!(sent[0].0[34..], tcp(1, 200, payload)[34..], "{payload}");
    }
    assert_eq!(dropped(&switch, 1), 0);
}

#[test]
fn a_large_packet_behind_others_of_a_burst_arrives_whole_and_behind_them() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut whole = attach(&mut switch, 2, ALL);
    for before in [1, 27, 28, 29, 31] {
        (0..before).for_each(|_| sender.ask(&tcp(1, 2, 10), REQUEST));
        sender.ask(&tcp(1, 2, 60_000), REQUEST.with_large(1448));
        sender.ask(&tcp(1, 2, 11), REQUEST);
        settle(&mut switch);
        let lengths: Vec<usize> = whole.hear().iter().map(|(packet, _)| packet.len()).collect();
        let expected = [&vec![64; before][..], &[60_054, 65]].concat();
        assert_eq!(lengths, expected);
    }
}

#[test]
fn what_fills_a_frame_up_is_zeroes_and_not_what_lay_there() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut frames = attach(&mut switch, 2, PLAIN);
    let mut strips = attach(&mut switch, 3, Offloads { strip: true, ..PLAIN });
    // The last piece is three bytes of payload behind 54 of headers.
    sender.ask(&tcp(1, 2, 2 * 1448 + 3), REQUEST.with_large(1448));
    switch.step(Time::ZERO);
    let got = frames.hear();
    assert_eq!((got.len(), got[2].0.len(), &got[2].0[57..]), (3, 60, &[0; 3][..]));
    // A frame that is too short without its tag, into buffers that have held others.
    for _ in 0..200 {
        outside.give([&mac(3)[..], &mac(9), &[0x81, 0, 0, 7, 0x88, 0xb5], &[0xee; 80]].concat());
        switch.step(Time::ZERO);
        assert_eq!(strips.hear().len(), 1);
        outside.give([&mac(3)[..], &mac(9), &[0x81, 0, 0, 7, 0x88, 0xb5], &[0xdd; 42]].concat());
        switch.step(Time::ZERO);
        let [(got, told)] = &strips.hear()[..] else { panic!("a frame") };
        assert_eq!((got.len(), &got[14..56], &got[56..]), (60, &[0xdd; 42][..], &[0; 4][..]));
        assert_eq!(told.vlan(), Some(7));
    }
    // A provider's tag is none that a client can be told of: it stays.
    let provider = [&mac(3)[..], &mac(9), &[0x88, 0xa8, 0, 7, 0x88, 0xb5], &[0xdd; 60]].concat();
    outside.give(provider.clone());
    switch.step(Time::ZERO);
    let [(got, told)] = &strips.hear()[..] else { panic!("a frame") };
    assert_eq!((got, told.vlan()), (&provider, None));
}

#[test]
fn what_is_told_of_a_frame_is_told_behind_a_change_of_its_tag_too() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let member = Rules { vlan: Some(7), ..plain(1) };
    let mut sender = Client::attach(&mut switch, Time::ZERO, 1, 1, member);
    let mut trunk = attach(&mut switch, 2, Offloads { verify: true, ..PLAIN });
    let back = finished(tcp(2, 1, 100));
    assert!(trunk.send(0, &[&back[..12], &[0x81, 0, 0, 7], &back[12..]].concat(), 1));
    switch.step(Time::ZERO);
    assert_eq!(sender.receive(), [back]);
    let mut sent = finished(tcp(1, 2, 100));
    for verdict in [Metadata::TRANSPORT_GOOD, Metadata::TRANSPORT_BAD] {
        assert!(sender.send(0, &sent, 1));
        switch.step(Time::ZERO);
        let [(got, told)] = &trunk.hear()[..] else { panic!("a frame") };
        assert_eq!((got.len(), &got[12..16]), (sent.len() + 4, &[0x81, 0, 0, 7][..]));
        assert!(told.has(verdict | Metadata::NETWORK_GOOD), "{told:x?}");
        sent[60] ^= 1;
    }
}

#[test]
fn a_tag_is_put_in_and_taken_out() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut strips = attach(&mut switch, 2, Offloads { strip: true, ..PLAIN });
    let mut begun = attach(&mut switch, 3, ALL);
    let tagged = |to, payload| {
        let frame = finished(tcp(1, to, payload));
        [&frame[..12], &[0x81, 0, 0x60, 7], &frame[12..]].concat()
    };
    for payload in [6, 7, 500] {
        for to in [2, 3, 200] {
            sender.ask(&tcp(1, to, payload), REQUEST.with_vlan(0x6007));
        }
        switch.step(Time::ZERO);
        assert_eq!(outside.take(), [tagged(200, payload)]);
        let got = strips.hear();
        assert_eq!((&got[0].0, got[0].1.vlan()), (&finished(tcp(1, 2, payload)), Some(0x6007)), "{payload}");
        let got = begun.hear();
        assert_eq!((got[0].1.vlan(), got[0].1.begun()), (Some(0x6007), BEGUN.begun()), "{payload}");
        assert_eq!(got[0].0[34..], tcp(1, 3, payload)[34..]);
    }
}

/// Without a checksum to be summed, those that are longer than others only by their tag came through.
#[test]
fn the_longest_frame_gets_its_tag_and_its_checksum() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut begun = attach(&mut switch, 2, ALL);
    let mut strips = attach(&mut switch, 3, Offloads { strip: true, ..PLAIN });
    for bytes in 9596..=9600 {
        for to in [2, 3, 200] {
            let frame = tcp(1, to, bytes - 54);
            // Alone, and as a piece of what is cut.
            sender.ask(&frame, REQUEST.with_vlan(7));
            sender.ask(&tcp(1, to, 2 * (bytes - 54)), REQUEST.with_large(bytes as u16 - 54).with_vlan(7));
            settle(&mut switch);
            let heard = match to {
                2 => begun.hear(),
                3 => strips.hear(),
                _ => outside.take().into_iter().map(|frame| (frame, Metadata::NONE)).collect(),
            };
            let [(got, told), pieces @ ..] = &heard[..] else { panic!("nothing of {bytes} bytes") };
            let finished = finished(frame);
            // Two, of the same length, for who does not take them as one.
            let lengths: Vec<usize> = pieces.iter().map(|(piece, _)| piece.len()).collect();
            match to {
                2 => {
                    assert_eq!((got.len(), told.vlan(), told.begun()), (bytes, Some(7), BEGUN.begun()));
                    assert_eq!(lengths, [2 * bytes - 54]);
                }
                3 => assert_eq!((got == &finished, told.vlan(), lengths), (true, Some(7), vec![bytes; 2])),
                _ => {
                    assert!(*got == [&finished[..12], &[0x81, 0, 0, 7], &finished[12..]].concat(), "{bytes}");
                    assert_eq!(lengths, [bytes + 4; 2]);
                }
            }
            for client in [&mut begun, &mut strips] {
                client.hear();
            }
        }
    }
    assert_eq!(dropped(&switch, 1), 0);
    // A tag is no room for more, and without one there is none for it.
    sender.ask(&tcp(1, 3, 30_000), REQUEST.with_large(9601 - 54).with_vlan(7));
    sender.ask(&tcp(1, 3, 30_000), REQUEST.with_large(9601 - 54));
    settle(&mut switch);
    assert_eq!((strips.hear().len(), dropped(&switch, 1)), (0, 2));
}

#[test]
fn what_a_packet_is_not_is_dropped_and_counted() {
    let mut switch = Switch::<KeptCore>::new(SwitchOptions::default(), Vec::new());
    let mut sender = attach(&mut switch, 1, PLAIN);
    let mut receiver = attach(&mut switch, 2, ALL);
    let frame = tcp(1, 2, 100);
    let mut six = frame.clone();
    six[12..14].copy_from_slice(&[0x86, 0xdd]);
    let begun = |start, offset| Metadata::NONE.with_begun(Begun { start, offset });
    let wrong: [(&[u8], Metadata); 10] = [
        (&frame, begun(35, 16)),
        // The field is there, and not where it would have to be for what is summed.
        (&frame, begun(35, 15)),
        (&frame, begun(33, 17)),
        (&frame, begun(34, 6)),
        (&frame, begun(255, 255)),
        (&frame, Metadata(1 << 60)),
        (&frame, Metadata(7)),
        (&frame, BEGUN.with_large(0)),
        (&six, REQUEST),
        (&six, Metadata::NONE.with(Metadata::NETWORK)),
    ];
    for (count, (frame, request)) in wrong.into_iter().enumerate() {
        sender.ask(frame, request);
        switch.step(Time::ZERO);
        assert_eq!((receiver.hear().len(), dropped(&switch, 1)), (0, count as u64 + 1), "{request:x?}");
    }
    let before = dropped(&switch, 1);
    // A packet of IPv6 has no checksum of its own, and no frame holds what is to be cut so coarsely.
    let six = [&frame[..12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64], &[1; 32][..], &frame[34..54]].concat();
    sender.ask(&six, Metadata::NONE.with(Metadata::NETWORK));
    sender.ask(&tcp(1, 2, 30_000), BEGUN.with_large(9600));
    settle(&mut switch);
    assert_eq!((receiver.hear().len(), dropped(&switch, 1)), (0, before + 2));
    // Too short for its addresses, and too long for a frame without a word on how to cut it.
    sender.ask(&frame[..13], Metadata::NONE.with(Metadata::NETWORK));
    sender.ask(&tcp(1, 2, 9600), REQUEST);
    settle(&mut switch);
    let counted = switch.clients().find(|(session, ..)| *session == 1).expect("it is there").1;
    assert_eq!((receiver.hear().len(), counted.dropped_offload, counted.dropped_length), (0, before + 2, 2));
    // Who did not say that it asks is not listened to.
    let mut old = attach(&mut switch, 3, Offloads::default());
    old.ask(&tcp(3, 2, 100), Metadata(u64::MAX));
    switch.step(Time::ZERO);
    assert!(receiver.hear()[0].1.has(Metadata::TRANSPORT_BAD), "the checksum is only begun, and nobody said so");
}

/// A port that gives and takes packets with work left, as a TAP interface with offloads does.
struct Unfinished(Arc<Mutex<VecDeque<Packet>>>, Arc<Mutex<Vec<Packet>>>, Counters);

type Packet = (Vec<u8>, virtio::Metadata);

impl Port for Unfinished {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        Ok(Receive::None)
    }
    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        self.1.lock().expect("nobody panicked").push((frame.to_vec(), virtio::Metadata::NONE));
        Ok(Transmit::Accepted)
    }
    fn takes_unfinished(&self) -> bool {
        true
    }
    fn receive_unfinished(
        &mut self,
        _now: Time,
        frame: &mut [u8],
        metadata: &mut virtio::Metadata,
    ) -> Result<Receive, PortError> {
        let Some((packet, work)) = self.0.lock().expect("nobody panicked").pop_front() else {
            return Ok(Receive::None);
        };
        frame[..packet.len()].copy_from_slice(&packet);
        *metadata = work;
        Ok(Receive::Frame { length: packet.len(), captured: None })
    }
    fn transmit_unfinished(
        &mut self,
        _now: Time,
        packet: &[u8],
        metadata: virtio::Metadata,
    ) -> Result<Transmit, PortError> {
        self.1.lock().expect("nobody panicked").push((packet.to_vec(), metadata));
        Ok(Transmit::Accepted)
    }
    fn next_due(&self) -> Option<Time> {
        None
    }
    fn counters(&self) -> &Counters {
        &self.2
    }
}

#[test]
fn work_crosses_to_and_from_a_port_that_takes_it() {
    let (coming, gone) = (Arc::new(Mutex::new(VecDeque::new())), Arc::new(Mutex::new(Vec::new())));
    let queue = Box::new(Unfinished(Arc::clone(&coming), Arc::clone(&gone), Counters::default()));
    let mut switch =
        Switch::new(SwitchOptions::default(), vec![SwitchPort { queues: vec![queue], vlan: None, circuit: None }]);
    let mut plain = attach(&mut switch, 1, PLAIN);
    let mut whole = attach(&mut switch, 2, ALL);
    plain.ask(&tcp(1, 200, 30_000), REQUEST.with_large(1448));
    plain.ask(&tcp(1, 200, 100), REQUEST);
    switch.step(Time::ZERO);
    let sent = std::mem::take(&mut *gone.lock().expect("nobody panicked"));
    let sizes: Vec<_> =
        sent.iter().map(|(packet, work)| (packet.len(), work.segmentation.map(|one| one.size))).collect();
    assert_eq!(sizes, [(30_054, Some(1448)), (154, None)], "one packet for the kernel, and not twenty-one");
    assert!(sent.iter().all(|(_, work)| work.checksum == Checksum::Partial { start: 34, offset: 16 }));
    whole.hear();
    // Back, to one that takes it whole and to one that does not; and one of which the kernel says that it is right.
    let segmentation = Some(virtio::Segmentation { size: 1448, protocol: 6 });
    let work = virtio::Metadata { checksum: Checksum::Partial { start: 34, offset: 16 }, segmentation };
    let valid = virtio::Metadata { checksum: Checksum::Valid, segmentation: None };
    for (packet, work) in [
        (tcp(200, 1, 30_000), work),
        (tcp(200, 2, 30_000), work),
        (tcp(200, 2, 100), valid),
        (tcp(200, 2, 100), virtio::Metadata { segmentation, ..valid }),
        // Longer than a frame, and nobody says how it is to be cut: of TCP, of what is not known here, and finished.
        (tcp(200, 2, 30_000), virtio::Metadata { segmentation: None, ..work }),
        (of_no_protocol(tcp(200, 2, 30_000)), virtio::Metadata { segmentation: None, ..work }),
        (tcp(200, 2, 30_000), valid),
    ] {
        coming.lock().expect("nobody panicked").push_back((packet, work));
    }
    switch.step(Time::ZERO);
    assert_eq!(plain.hear().len(), 30_000_usize.div_ceil(1448));
    let got = whole.hear();
    assert_eq!((got[0].0.len(), got[0].1.large()), (30_054, Some(1448)));
    assert!(got.len() == 2 && got[1].1.has(Metadata::TRANSPORT_GOOD), "the kernel knows");
    assert_eq!(switch.ports().next().expect("it").switch.dropped_offload, 4);
}

/// Who sits behind a port, such as a guest of vhost-user, would stop its network's thread: a header is built for each byte.
#[test]
fn what_a_port_wants_cut_into_crumbs_is_dropped_and_counted() {
    let coming = Arc::new(Mutex::new(VecDeque::new()));
    let queue = Box::new(Unfinished(Arc::clone(&coming), Arc::default(), Counters::default()));
    let mut switch =
        Switch::new(SwitchOptions::default(), vec![SwitchPort { queues: vec![queue], vlan: None, circuit: None }]);
    let mut plain = attach(&mut switch, 1, PLAIN);
    let mut whole = attach(&mut switch, 2, ALL);
    let checksum = Checksum::Partial { start: 34, offset: 16 };
    let mut give = |to, payload, size| {
        let segmentation = Some(virtio::Segmentation { size, protocol: 6 });
        let packet = (tcp(200, to, payload), virtio::Metadata { checksum, segmentation });
        coming.lock().expect("nobody panicked").push_back(packet);
        switch.step(Time::ZERO);
        let dropped = switch.ports().next().expect("it").switch.dropped_offload;
        (plain.hear().len(), whole.hear().len(), dropped)
    };
    assert_eq!(give(1, 3100, 1), (0, 0, 1));
    assert_eq!(give(2, 60_000, 1), (0, 0, 2), "nor does it pass whole: the next would have to cut it");
    assert_eq!(give(1, 3100, 31), (0, 0, 3));
    assert_eq!(give(1, 3100, 32), (97, 0, 3), "a guest whose peer takes next to nothing at once is served");
    assert_eq!(give(1, 1, 1), (1, 0, 3), "what is one frame already is not cut");
}

#[test]
fn what_stands_for_several_crosses_from_a_port_to_another_as_one() {
    let ends = [(); 2].map(|()| (Arc::new(Mutex::new(VecDeque::new())), Arc::new(Mutex::new(Vec::new()))));
    let ports = ends.each_ref().map(|(coming, gone)| {
        let queue = Box::new(Unfinished(Arc::clone(coming), Arc::clone(gone), Counters::default()));
        SwitchPort { queues: vec![queue], vlan: None, circuit: None }
    });
    let mut switch = Switch::<KeptCore>::new(SwitchOptions::default(), ports.into());
    let segmentation = Some(virtio::Segmentation { size: 1448, protocol: 6 });
    let work = virtio::Metadata { checksum: Checksum::Partial { start: 34, offset: 16 }, segmentation };
    ends[0].0.lock().expect("nobody panicked").push_back((tcp(100, 200, 30_000), work));
    switch.step(Time::ZERO);
    assert_eq!(*ends[1].1.lock().expect("nobody panicked"), [(tcp(100, 200, 30_000), work)]);
    assert_eq!(ends[0].1.lock().expect("nobody panicked").len(), 0);
}

/// The same with a protocol that has no checksum known here.
fn of_no_protocol(mut frame: Vec<u8>) -> Vec<u8> {
    frame[23] = 99;
    frame
}
