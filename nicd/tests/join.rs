//! TCP frames for a client that has them joined: joined where they follow each other, in the order of their flow, and the same
//! bytes again when they are cut.

use std::collections::BTreeMap;

use crate::support::clients::{Client, Outside, frame, mac, plain, port};
use conic_fabric::{Address, Core, Time};
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Descriptor, Features, Flags, Geometry, Host, Map, prepare};
use conic_interface::metadata::{Begun, Metadata};
use conic_native::{KeptCore, Memory, NativeCore, Pages};
use conic_nicd::switch::{MemberCounters, Offloads, Pin, Rules, Switch, SwitchOptions};
use conic_port::offload::checksum::{complete, fill};
use conic_port::offload::segment::Segments;
use conic_port::offload::virtio::Segmentation;
use conic_port::offload::{Headers, TCP};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const UNFINISHED: Offloads =
    Offloads { requests: true, verify: false, strip: false, unfinished: true, no_hash: false, join: false };
const JOIN: Offloads = Offloads { join: true, ..UNFINISHED };

/// A stream of TCP frames from station 9 to station 1, by its port.
struct Stream {
    source: u16,
    next: u32,
    identification: u16,
}

impl Client {
    /// Sends a frame with what the NIC is to do to it; false where there is no room.
    fn send_with(&mut self, frame: &[u8], request: Metadata) -> bool {
        let mut at = [Address(0)];
        if self.hosts[0].buf_alloc(frame.len() as u64, &mut at) == 0 {
            return false;
        }
        self.core.write_bytes(at[0], frame);
        self.hosts[0].tx_burst(&[Descriptor::new(at[0], frame.len() as u16).with_metadata(request.0)]) == 1
    }

    /// Sends a packet of TCP over IPv4 that is to be cut into segments of `size` bytes of payload, and to get a tag; false where there
    /// is no room.
    fn send_large(&mut self, packet: &[u8], size: u16, tag: Option<u16>) -> bool {
        let mut begun = packet.to_vec();
        // The sum of the pseudo-header is what the field holds when the checksum is begun.
        let words = begun[26..34].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = words.sum::<u32>() + 6 + (begun.len() - 34) as u32;
        begun[50..52].copy_from_slice(&(((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        let request = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 }).with_large(size);
        let request = tag.map_or(request, |control| request.with_vlan(control));
        let mut at = [Address(0)];
        let mut pieces: Vec<Descriptor> = Vec::new();
        for piece in begun.chunks(8192) {
            if self.hosts[0].buf_alloc(piece.len() as u64, &mut at) == 0 {
                return false;
            }
            self.core.write_bytes(at[0], piece);
            pieces.push(Descriptor::new(at[0], piece.len() as u16).with(Flags::NEXT));
        }
        pieces[0] = pieces[0].with_metadata(request.0);
        let last = pieces.len() - 1;
        pieces[last] = pieces[last].without(Flags::NEXT);
        self.hosts[0].tx_burst(&pieces) == pieces.len()
    }
}

impl Stream {
    fn new(source: u16) -> Stream {
        Stream { source, next: u32::from(source) << 20, identification: source }
    }

    fn frame(&mut self, flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = [&mac(1)[..], &mac(9), &[8, 0, 0x45, 0]].concat();
        frame.extend((40 + payload as u16).to_be_bytes());
        frame.extend(self.identification.to_be_bytes());
        frame.extend([0, 0, 64, 6, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1]);
        frame.extend([self.source.to_be_bytes(), 80_u16.to_be_bytes()].concat());
        frame.extend(self.next.to_be_bytes());
        frame.extend([0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.extend((0..payload).map(|at| (self.next as usize + at * 7) as u8));
        frame.resize(frame.len().max(60), 0);
        fill(&mut frame);
        self.next = self.next.wrapping_add(payload as u32);
        self.identification = self.identification.wrapping_add(1);
        frame
    }
}

/// What a client got: packets with what was said of them.
fn hear(client: &mut Client, queue: usize) -> Vec<(Vec<u8>, Metadata)> {
    let mut all: Vec<(Vec<u8>, Metadata)> = Vec::new();
    let mut packets = [Descriptor::BLANK; 32];
    let mut goes_on = false;
    loop {
        let count = client.hosts[queue].rx_burst(&mut packets);
        for packet in &packets[..count] {
            let mut bytes = vec![0; usize::from(packet.length())];
            client.core.read_bytes(packet.address(), &mut bytes);
            match all.last_mut() {
                Some((whole, _)) if goes_on => whole.extend(bytes),
                _ => all.push((bytes, Metadata(packet.metadata))),
            }
            goes_on = packet.has(Flags::NEXT);
            client.hosts[queue].buf_free(&[packet.address()]);
        }
        if count == 0 {
            return all;
        }
    }
}

/// The frame with a tag.
fn tagged(frame: &[u8], control: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &control.to_be_bytes(), &frame[12..]].concat()
}

/// The frames that packets stand for, with the tags that were taken out of them.
fn cut(packets: Vec<(Vec<u8>, Metadata)>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (mut packet, told) in packets {
        let whole = |frame: &[u8]| told.vlan().map_or_else(|| frame.to_vec(), |control| tagged(frame, control));
        let Some(size) = told.large() else {
            frames.push(whole(&packet));
            continue;
        };
        let begun = told.begun().expect("what stands for several has its checksum begun");
        assert!(complete(&mut packet, begun.start.into(), begun.offset.into()));
        let mut segments = Segments::of(&packet, Segmentation { size, protocol: TCP }).expect("it can be cut");
        let mut frame = vec![0; segments.longest()];
        while let Some(length) = segments.next(&packet, &mut frame) {
            frames.push(whole(&frame[..length]));
        }
    }
    frames
}

fn attach(switch: &mut Switch<KeptCore>, number: u64, queues: u32, offloads: Offloads) -> Client {
    Client::attach(switch, Time::ZERO, number, queues, Rules { offloads, ..plain(number) })
}

/// Client 1, whose longest buffers are of 4 KiB.
fn without_jumbo(switch: &mut Switch<KeptCore>, offloads: Offloads) -> Client {
    let geometry = Geometry { queues: 1, descriptors: 256, buffers: [256, 256, 0], object_bytes: 0 };
    let map = Map::new(geometry, Features::best()).expect("a geometry that can be");
    let (map, notices) = Notices::in_map(map);
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    prepare(&NativeCore::new(&memory), &map);
    let core = KeptCore::new(std::sync::Arc::new(memory));
    let rules = Rules { offloads, ..plain(1) };
    switch.attach(Time::ZERO, 1, rules, (&map, notices), || core.clone());
    let hosts = vec![Host::new(core.clone(), &map, 0)];
    Client { session: 1, mac: mac(1), core, map, notices, hosts }
}

fn counters(switch: &Switch<KeptCore>, session: u64) -> MemberCounters {
    switch.clients().find(|(own, ..)| *own == session).expect("a client").1
}

#[test]
fn a_burst_of_one_stream_is_one_packet_for_who_has_it_joined_and_frames_for_the_others() {
    for (offloads, most) in [(JOIN, 1), (Offloads { verify: true, ..JOIN }, 1), (UNFINISHED, 32)] {
        let outside = Outside::default();
        let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
        let mut receiver = attach(&mut switch, 1, 1, offloads);
        for payload in [100, 1448, 1800] {
            let mut stream = Stream::new(1000);
            let sent: Vec<_> = (0..32).map(|_| stream.frame(0x10, payload)).collect();
            sent.iter().for_each(|frame| outside.give(frame.clone()));
            switch.step(Time::ZERO);
            let got = hear(&mut receiver, 0);
            assert_eq!(got.len(), most, "{payload}");
            if most == 1 {
                assert_eq!(got[0].1.large(), Some(payload as u16));
                assert_eq!(got[0].1.has(Metadata::NETWORK_GOOD), offloads.verify);
            }
            assert_eq!(cut(got), sent);
        }
        let counted = counters(&switch, 1);
        assert_eq!((counted.received_frames, counted.joined_frames), (3 * most as u64, 3 * (32 - most as u64)));
    }
}

#[test]
fn what_comes_from_a_client_is_joined_too_and_a_single_frame_is_as_it_was() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut receiver = attach(&mut switch, 1, 1, JOIN);
    let mut sender = attach(&mut switch, 9, 1, Offloads::default());
    let mut stream = Stream::new(5);
    let sent: Vec<_> = (0..10).map(|_| stream.frame(0x10, 1000)).collect();
    sent.iter().for_each(|frame| assert!(sender.send(0, frame, 1)));
    switch.step(Time::ZERO);
    let got = hear(&mut receiver, 0);
    assert_eq!((got.len(), got[0].1.large(), cut(got)), (1, Some(1000), sent));
    let alone = stream.frame(0x18, 500);
    assert!(sender.send(0, &alone, 1));
    switch.step(Time::ZERO);
    let [(got, told)] = &hear(&mut receiver, 0)[..] else { panic!("one frame") };
    assert_eq!((got, told.large(), told.has(Metadata::TRANSPORT_GOOD)), (&alone, None, true));
    assert!(told.hash().is_some());
}

#[test]
fn streams_that_take_turns_are_joined_each_and_a_frame_of_another_kind_stops_none() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut receiver = attach(&mut switch, 1, 1, JOIN);
    let mut streams = [Stream::new(1000), Stream::new(1001)];
    for number in 0..10 {
        streams.iter_mut().for_each(|stream| outside.give(stream.frame(0x10, 1000)));
        outside.give(frame(mac(9), mac(1), 7, number, 100));
    }
    switch.step(Time::ZERO);
    let got = hear(&mut receiver, 0);
    let large: Vec<_> = got.iter().filter(|(_, told)| told.large().is_some()).collect();
    assert_eq!((got.len(), large.len()), (12, 2), "ten datagrams, and a packet of each stream");
}

#[test]
fn frames_with_a_tag_are_joined_with_those_that_have_the_same() {
    for strip in [false, true] {
        let outside = Outside::default();
        let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
        let mut receiver = attach(&mut switch, 1, 1, Offloads { strip, ..JOIN });
        let mut stream = Stream::new(1000);
        // Of the same VLAN with another priority, and without a tag, too.
        let tags = [Some(7), Some(8), Some(0x6008), None];
        let mut sent = Vec::new();
        for number in 0..20 {
            let frame = stream.frame(0x10, 1448);
            sent.push(tags[number / 5].map_or_else(|| frame.clone(), |control| tagged(&frame, control)));
        }
        sent.iter().for_each(|frame| outside.give(frame.clone()));
        switch.step(Time::ZERO);
        let got = hear(&mut receiver, 0);
        let told: Vec<_> = got.iter().map(|(_, told)| told.vlan()).collect();
        assert_eq!(told, if strip { tags.to_vec() } else { vec![None; 4] });
        let starts: Vec<_> = got.iter().map(|(_, told)| told.begun().map(|begun| begun.start)).collect();
        assert_eq!(starts, if strip { [Some(34); 4] } else { [Some(38), Some(38), Some(38), Some(34)] });
        assert_eq!(cut(got), sent);
    }
}

#[test]
fn frames_whose_tag_stands_beside_them_are_joined() {
    for strip in [false, true] {
        let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
        let mut receiver = attach(&mut switch, 1, 1, Offloads { strip, ..JOIN });
        let mut sender = attach(&mut switch, 9, 1, UNFINISHED);
        let mut stream = Stream::new(5);
        let frames: Vec<_> = (0..8).map(|_| stream.frame(0x10, 1000)).collect();
        let mut send = |frame: &[u8], control| sender.send_with(frame, Metadata::NONE.with_vlan(control));
        assert!(frames[..4].iter().all(|frame| send(frame, 7)) && frames[4..].iter().all(|frame| send(frame, 9)));
        switch.step(Time::ZERO);
        let got = hear(&mut receiver, 0);
        assert_eq!(
            got.iter().map(|(packet, _)| packet.len()).collect::<Vec<_>>(),
            [if strip { 4054 } else { 4058 }; 2]
        );
        let sent: Vec<_> =
            frames.iter().enumerate().map(|(at, frame)| tagged(frame, if at < 4 { 7 } else { 9 })).collect();
        assert_eq!(cut(got), sent);
    }
}

/// Its size was lost.
#[test]
fn a_packet_that_stands_for_several_still_says_their_size_when_its_tag_is_taken_out() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut receiver = attach(&mut switch, 1, 1, Offloads { strip: true, ..UNFINISHED });
    let mut sender = attach(&mut switch, 9, 1, UNFINISHED);
    let large = Stream::new(5).frame(0x10, 6000);
    assert!(sender.send_large(&large, 1000, Some(7)));
    switch.step(Time::ZERO);
    let [(packet, told)] = &hear(&mut receiver, 0)[..] else { panic!("one packet") };
    assert_eq!((packet.len(), told.large(), told.vlan()), (6054, Some(1000), Some(7)));
    assert_eq!(told.begun(), Some(Begun { start: 34, offset: 16 }));
}

/// They would be filled up, and what fills them up would lie between what is joined.
#[test]
fn frames_that_are_too_short_without_their_tag_come_by_themselves_to_who_gets_them_without() {
    for (strip, lengths) in [(true, vec![60, 60]), (false, vec![62])] {
        let outside = Outside::default();
        let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
        let mut receiver = attach(&mut switch, 1, 1, Offloads { strip, ..JOIN });
        let mut stream = Stream::new(1000);
        for _ in 0..2 {
            outside.give(tagged(&stream.frame(0x10, 2)[..56], 7));
        }
        switch.step(Time::ZERO);
        let got = hear(&mut receiver, 0);
        assert_eq!(got.iter().map(|(packet, _)| packet.len()).collect::<Vec<_>>(), lengths);
        assert!(got.iter().all(|(_, told)| told.vlan() == strip.then_some(7)));
    }
}

#[test]
fn nothing_passes_what_is_held_of_its_flow() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut receiver = attach(&mut switch, 1, 1, JOIN);
    let part = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Stream::new(1000).frame(0x10, 100);
        change(&mut frame);
        fill(&mut frame);
        frame
    };
    let behind: [(&str, Vec<u8>); 6] = [
        ("an end", part(&|frame| frame[47] = 0x11)),
        ("a fragment", part(&|frame| frame[20] = 0x20)),
        ("a later fragment", part(&|frame| frame[21] = 0x10)),
        ("a wrong length of the header", part(&|frame| frame[46] = 0xf0)),
        ("an acknowledgement alone", Stream::new(1000).frame(0x10, 0)),
        ("a tag", {
            let frame = part(&|_| {});
            [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
        }),
    ];
    for (what, behind) in behind {
        let mut stream = Stream::new(1000);
        let sent = vec![stream.frame(0x10, 500), stream.frame(0x10, 500), behind.clone(), stream.frame(0x10, 500)];
        sent.iter().for_each(|frame| outside.give(frame.clone()));
        switch.step(Time::ZERO);
        let got = hear(&mut receiver, 0);
        assert_eq!((got.len(), got[1].0 == behind), (3, true), "{what}");
        assert_eq!(cut(got), sent, "{what}");
    }
}

#[test]
fn a_large_packet_of_a_client_does_not_pass_what_is_held_of_its_flow() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut receiver = attach(&mut switch, 1, 1, JOIN);
    let mut sender = attach(&mut switch, 9, 1, UNFINISHED);
    let mut stream = Stream::new(5);
    let first = stream.frame(0x10, 1000);
    let large = stream.frame(0x10, 4000);
    assert!(sender.send(0, &first, 1));
    assert!(sender.send_large(&large, 1000, None));
    switch.step(Time::ZERO);
    let got = hear(&mut receiver, 0);
    assert_eq!((got.len(), &got[0].0), (2, &first));
    assert_eq!((got[1].1.large(), got[1].0[54..] == large[54..]), (Some(1000), true));
}

#[test]
fn a_client_without_large_buffers_gets_packets_that_its_buffers_hold() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut receiver = without_jumbo(&mut switch, JOIN);
    let mut stream = Stream::new(1000);
    let sent: Vec<_> = (0..32).map(|_| stream.frame(0x10, 1448)).collect();
    sent.iter().for_each(|frame| outside.give(frame.clone()));
    switch.step(Time::ZERO);
    let got = hear(&mut receiver, 0);
    assert!((2..10).contains(&got.len()) && got.iter().all(|(packet, _)| packet.len() <= 4 * 4096), "{}", got.len());
    assert_eq!(cut(got), sent);
}

/// Who sends such frames would else leave places to others for which there is room.
#[test]
fn a_frame_that_no_buffer_of_a_client_holds_makes_nobody_stand_back() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut receiver = without_jumbo(&mut switch, Offloads::default());
    // More than an eighth of the ring's places are taken.
    for (count, length) in [(64, 100), (3, 9000), (100, 100)] {
        for number in 0..count {
            outside.give(frame(mac(200), mac(1), 1, number, length));
        }
        (0..8).for_each(|_| _ = switch.step(Time::ZERO));
    }
    let counted = counters(&switch, 1);
    assert_eq!((counted.dropped_no_buffer, counted.dropped_full), (3, 0));
    assert_eq!(receiver.receive().len(), 164);
}

#[test]
fn no_packet_is_longer_than_a_client_takes_whoever_joined_it() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut joined = attach(&mut switch, 1, 1, JOIN);
    let mut unfinished = attach(&mut switch, 2, 1, UNFINISHED);
    let mut sender = attach(&mut switch, 9, 1, UNFINISHED);
    let mut stream = Stream::new(5);
    let large = stream.frame(0x10, 6000);
    // Exactly three segments, and a byte less.
    for (limit, lengths) in [(54 + 3000, vec![3054, 3054]), (54 + 2999, vec![2054; 3]), (1054, vec![1054; 6])] {
        switch.limit_packets(1, limit);
        switch.limit_packets(2, limit);
        let mut stream = Stream::new(5);
        let frames: Vec<_> = (0..6).map(|_| stream.frame(0x10, 1000)).collect();
        frames.iter().for_each(|frame| outside.give(frame.clone()));
        switch.step(Time::ZERO);
        let got = hear(&mut joined, 0);
        assert_eq!(got.iter().map(|(packet, _)| packet.len()).collect::<Vec<_>>(), lengths, "from a port, {limit}");
        assert_eq!(cut(got), frames);
        assert!(sender.send_large(&large, 1000, None));
        switch.step(Time::ZERO);
        let got = hear(&mut joined, 0);
        assert_eq!(got.iter().map(|(packet, _)| packet.len()).collect::<Vec<_>>(), lengths, "from a client, {limit}");
        assert_eq!(cut(got).concat().len(), frames.concat().len());
        // Who has nothing joined gets the pieces.
        assert!(sender.send_large(&[&mac(2)[..], &large[6..]].concat(), 1000, None));
        switch.step(Time::ZERO);
        assert_eq!(hear(&mut unfinished, 0).iter().map(|(packet, _)| packet.len()).collect::<Vec<_>>(), [1054; 6]);
    }
    switch.limit_packets(2, 6054);
    assert!(sender.send_large(&[&mac(2)[..], &large[6..]].concat(), 1000, None));
    switch.step(Time::ZERO);
    assert_eq!(hear(&mut unfinished, 0)[0].0.len(), 6054);
}

/// In the direction of a client whose buffers do not hold it, a packet was lost.
#[test]
fn a_packet_that_a_clients_buffers_do_not_hold_comes_cut() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut receiver = without_jumbo(&mut switch, UNFINISHED);
    let mut sender = attach(&mut switch, 9, 1, UNFINISHED);
    let large = Stream::new(5).frame(0x10, 4 * 4096);
    assert!(sender.send_large(&large, 1024, None));
    switch.step(Time::ZERO);
    let got = hear(&mut receiver, 0);
    assert_eq!((got.len(), counters(&switch, 1).dropped_no_buffer), (16, 0));
    assert!(got.iter().flat_map(|(frame, _)| &frame[54..]).eq(&large[54..]));
}

/// Those that are no longer than a frame may be were lost.
#[test]
fn a_packet_that_no_single_buffer_of_a_client_holds_comes_in_several() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut receiver = without_jumbo(&mut switch, UNFINISHED);
    let mut strips = attach(&mut switch, 2, 1, Offloads { strip: true, ..UNFINISHED });
    let mut sender = attach(&mut switch, 9, 1, UNFINISHED);
    // With a tag, and to everybody, it has four bytes more.
    for bytes in [4092, 4093, 4096, 4097, 5000, 9600, 9601, 9604, 9605] {
        let mut large = Stream::new(5).frame(0x10, bytes - 54);
        for (to, tag) in [([0xff; 6], Some(7)), (mac(1), None)] {
            large[..6].copy_from_slice(&to);
            assert!(sender.send_large(&large, 1024, tag));
            switch.step(Time::ZERO);
            let is_for_all = tag.is_some();
            let got = hear(&mut receiver, 0);
            let [(packet, told)] = &got[..] else { panic!("{} packets of {bytes} bytes", got.len()) };
            let at = if is_for_all { 4 } else { 0 };
            assert_eq!((packet.len(), told.large()), (bytes + at, Some(1024)));
            assert!(packet[54 + at..] == large[54..] && packet[..12] == large[..12], "{bytes} bytes");
            let got = hear(&mut strips, 0);
            assert_eq!(got.len(), usize::from(is_for_all));
            for (packet, told) in got {
                assert_eq!((packet.len(), told.vlan(), told.large()), (bytes, tag, Some(1024)));
                assert!(packet[54..] == large[54..] && packet[..14] == large[..14], "{bytes} bytes");
            }
        }
    }
    assert_eq!(counters(&switch, 1).dropped_no_buffer, 0);
}

/// The tag that is taken out for one is there for the others, for whom the packet is cut, too.
#[test]
fn a_large_packet_to_everybody_is_whole_behind_who_has_its_tag_taken_out() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let strips = Offloads { strip: true, ..UNFINISHED };
    let mut receivers = [strips, strips, UNFINISHED];
    let mut sender = attach(&mut switch, 9, 1, UNFINISHED);
    let mut clients: Vec<Client> =
        receivers.iter_mut().zip(1..).map(|(offloads, number)| attach(&mut switch, number, 1, *offloads)).collect();
    let mut large = Stream::new(5).frame(0x10, 20_000);
    large[..6].fill(0xff);
    assert!(sender.send_large(&large, 1000, Some(7)));
    switch.step(Time::ZERO);
    for (client, at) in clients.iter_mut().zip([0, 0, 4]) {
        let [(packet, told)] = &hear(client, 0)[..] else { panic!("one packet") };
        assert_eq!((packet.len(), told.vlan()), (large.len() + at, (at == 0).then_some(7)));
        assert!(packet[54 + at..] == large[54..] && packet[..12] == large[..12]);
    }
    let frames = outside.take();
    assert_eq!(frames.len(), 20);
    assert!(frames.iter().all(|frame| frame[12..16] == [0x81, 0, 0, 7]));
    assert!(frames.iter().flat_map(|frame| &frame[58..]).eq(&large[54..]));
}

#[test]
fn frames_that_find_no_buffer_are_counted_each() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut receiver = attach(&mut switch, 1, 1, JOIN);
    let mut at = [Address(0)];
    while receiver.hosts[0].buf_alloc(16_000, &mut at) == 1 {}
    let mut stream = Stream::new(1000);
    (0..32).for_each(|_| outside.give(stream.frame(0x10, 1448)));
    switch.step(Time::ZERO);
    let counted = counters(&switch, 1);
    assert_eq!((hear(&mut receiver, 0).len(), counted.dropped_no_buffer, counted.joined_frames), (0, 32, 0));
}

#[test]
fn a_flow_whose_frames_go_to_two_queues_is_not_joined_over_them() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut receiver = attach(&mut switch, 1, 2, JOIN);
    let pattern = "source-mac=02:00:00:00:00:08".parse().expect("a pattern");
    let mut stream = Stream::new(1000);
    let mut sent: Vec<_> = (0..6).map(|_| stream.frame(0x10, 100)).collect();
    // The last three come from another station, and with it to the queue that the first three do not go to.
    sent[3..].iter_mut().for_each(|frame| frame[6..12].copy_from_slice(&mac(8)));
    sent[..3].iter().for_each(|frame| outside.give(frame.clone()));
    switch.step(Time::ZERO);
    let first = usize::from(hear(&mut receiver, 0).is_empty());
    assert_eq!(hear(&mut receiver, first).len(), first);
    assert!(switch.pin(1, Pin { pattern, queue: Some(1 - first as u32) }));
    sent.iter().for_each(|frame| outside.give(frame.clone()));
    switch.step(Time::ZERO);
    assert_eq!(cut(hear(&mut receiver, first)), sent[..3]);
    assert_eq!(cut(hear(&mut receiver, 1 - first)), sent[3..]);
}

/// Whether a frame is of one of the streams. One with another address or protocol, whose ports lie elsewhere, or that is no packet, is
/// another flow's and may lie in the other queue.
fn is_of_the_streams(frame: &[u8]) -> bool {
    let headers = Headers::of(frame).filter(|headers| headers.protocol == TCP);
    headers.is_some_and(|headers| {
        headers.checksum_at() == Some(headers.network + 36) && headers.addresses(frame) == [10, 0, 0, 9, 10, 0, 0, 1]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, rng_seed: RngSeed::Fixed(10), ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_each_flow_is_whole_and_in_order(
        steps in proptest::collection::vec((0u16..12, 0u8..17, any::<u16>(), 1u8..=255), 1..100),
        limit in proptest::option::of(0u32..4000),
        strip: bool,
    ) {
        let outside = Outside::default();
        let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
        let mut receiver = attach(&mut switch, 1, 2, Offloads { strip, ..JOIN });
        limit.iter().for_each(|&limit| switch.limit_packets(1, limit));
        let mut streams: Vec<_> = (1000..1012).map(Stream::new).collect();
        let mut sent: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
        let flow = |frame: &[u8]| {
            let at = if frame[12..14] == [0x81, 0] { 38 } else { 34 };
            u16::from_be_bytes([frame[at], frame[at + 1]])
        };
        for (number, kind, at, value) in steps {
            let stream = &mut streams[usize::from(number)];
            let mut frame = match kind {
                10 => stream.frame(0x18, 200),
                11 => stream.frame(0x11, 200),
                12 => stream.frame(0x10, 1 + usize::from(value)),
                13 => { stream.next = stream.next.wrapping_add(u32::from(at)); stream.frame(0x10, 200) }
                _ => stream.frame(0x10, 200),
            };
            if kind == 14 || kind == 15 {
                // Behind the addresses, so that it comes here, and not in the ports, so that it is known by them.
                let place = 14 + usize::from(at) % (frame.len() - 14);
                if !(34..38).contains(&place) {
                    frame[place] ^= value;
                    if kind == 15 && place != 20 {
                        fill(&mut frame);
                    }
                }
            }
            // A third of the streams have no tag, the others one each, and some frames another.
            let tag = match kind {
                16 => Some(at),
                _ => [None, Some(7), Some(0x6007)][usize::from(number) % 3],
            };
            let frame = tag.map_or_else(|| frame.clone(), |control| tagged(&frame, control));
            sent.entry(flow(&frame)).or_default().push(frame.clone());
            outside.give(frame);
        }
        let mut got: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
        for _ in 0..8 {
            switch.step(Time::ZERO);
            for queue in 0..2 {
                let packets = hear(&mut receiver, queue);
                let longest = packets.iter().filter(|(_, told)| told.large().is_some()).map(|(packet, _)| packet.len()).max();
                prop_assert!(longest.is_none_or(|longest| limit.is_none_or(|limit| longest <= limit as usize)));
                for frame in cut(packets) {
                    got.entry(flow(&frame)).or_default().push(frame);
                }
            }
        }
        let plain = |mut flows: BTreeMap<u16, Vec<Vec<u8>>>| {
            flows.values_mut().for_each(|frames| frames.retain(|frame| is_of_the_streams(frame)));
            flows
        };
        let (got, sent) = (plain(got), plain(sent));
        for (flow, sent) in &sent {
            let got = got.get(flow).map_or(&[][..], |frames| frames);
            let differs = got.iter().zip(sent).position(|(got, sent)| got != sent);
            prop_assert_eq!((differs, got.len()), (None, sent.len()), "flow {}: {:x?}", flow,
                differs.map(|at| (&got[at], &sent[at])));
        }
    }
}
