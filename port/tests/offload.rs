//! Segmentation and coalescing: each the other's inverse, with the checksums verified apart.

use conic_port::offload::checksum::{self, Verdict};
use conic_port::offload::coalesce::{Coalescer, Joined};
use conic_port::offload::segment::{LONGEST, Segments};
use conic_port::offload::virtio::{Checksum, Segmentation};
use conic_port::offload::{Headers, TCP, UDP};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const FIN: u8 = 1;
const PSH: u8 = 8;
const ACK: u8 = 16;
const CWR: u8 = 128;

/// A TCP packet; its IP lengths fit, its checksums are right.
fn tcp(six: bool, sequence: u32, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let length = 20 + options.len() + data.len();
    if six {
        packet.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
        packet.extend_from_slice(&(length as u16).to_be_bytes());
        packet.extend_from_slice(&[6, 64]);
        packet.extend_from_slice(&[0x20; 16]);
        packet.extend_from_slice(&[0x21; 16]);
    } else {
        packet.extend_from_slice(&[8, 0, 0x45, 0]);
        packet.extend_from_slice(&(20 + length as u16).to_be_bytes());
        packet.extend_from_slice(&[0x11, 0xfe, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    packet.extend_from_slice(&[0x30, 0x39, 0, 80]);
    packet.extend_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 9, (5 + options.len() as u8 / 4) << 4, flags, 1, 0, 0, 0, 0, 0]);
    packet.extend_from_slice(options);
    packet.extend_from_slice(data);
    checksum::fill(&mut packet);
    packet
}

fn udp(data: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend_from_slice(&(28 + data.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 0, 2, 0]);
    packet.extend_from_slice(&(8 + data.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(data);
    checksum::fill(&mut packet);
    packet
}

fn cut(packet: &[u8], size: u16, protocol: u8) -> Vec<Vec<u8>> {
    let mut segments = Segments::of(packet, Segmentation { size, protocol }).expect("a packet to cut");
    let mut frames = Vec::new();
    let mut frame = vec![0; segments.longest()];
    while let Some(length) = segments.next(packet, &mut frame) {
        frames.push(frame[..length].to_vec());
    }
    assert!(segments.is_done());
    frames
}

fn sequence(frame: &[u8], headers: &Headers) -> u32 {
    u32::from_be_bytes(frame[headers.transport + 4..headers.transport + 8].try_into().unwrap())
}

#[test]
fn every_segment_is_a_good_frame_and_flags_go_where_they_belong() {
    for six in [false, true] {
        let data: Vec<u8> = (0..4001u32).map(|at| (at * 7) as u8).collect();
        let packet = tcp(six, u32::MAX - 1000, ACK | PSH | FIN | CWR, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], &data);
        let frames = cut(&packet, 1000, TCP);
        assert_eq!(frames.len(), 5);
        let mut joined = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            let headers = Headers::of(frame).expect("a packet");
            assert_eq!(headers.end, frame.len());
            let verdicts = checksum::verify(frame);
            assert_eq!(verdicts.transport, Verdict::Good);
            assert_eq!(verdicts.network, if six { Verdict::Absent } else { Verdict::Good });
            let expected = (u32::MAX - 1000).wrapping_add(1000 * number as u32);
            assert_eq!(sequence(frame, &headers), expected);
            let last = if number == 4 { PSH | FIN } else { 0 };
            let first = if number == 0 { CWR } else { 0 };
            assert_eq!(frame[headers.transport + 13], ACK | last | first);
            if !six {
                assert_eq!(frame[18..20], (0x11feu16 + number as u16).to_be_bytes());
            }
            joined.extend_from_slice(&frame[headers.transport + 32..]);
        }
        assert_eq!(joined, data);
    }
}

#[test]
fn a_large_datagram_is_cut_into_datagrams() {
    let data: Vec<u8> = (0..2500u32).map(|at| at as u8).collect();
    let frames = cut(&udp(&data), 1200, UDP);
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [1242, 1242, 142]);
    for frame in &frames {
        assert_eq!(checksum::verify(frame).transport, Verdict::Good);
        assert_eq!(frame[38..40], (frame.len() as u16 - 34).to_be_bytes());
    }
    let joined: Vec<u8> = frames.iter().flat_map(|frame| frame[42..].to_vec()).collect();
    assert_eq!(joined, data);
}

#[test]
fn a_datagram_whose_checksum_is_zero_is_cut_with_all_ones() {
    let plain = cut(&udp(&[0; 300]), 100, UDP);
    let value = &plain[1][40..42];
    let mut packet = udp(&[0; 300]);
    packet[142..144].copy_from_slice(value);
    let frames = cut(&packet, 100, UDP);
    assert_eq!((&frames[1][40..42], checksum::verify(&frames[1]).transport), (&[0xff, 0xff][..], Verdict::Good));
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let packet = tcp(false, 1, ACK, &[], &[7; 100]);
    let tcp_of = |size| Segmentation { size, protocol: TCP };
    assert!(Segments::of(&packet, Segmentation { size: 10, protocol: UDP }).is_none());
    assert!(Segments::of(&packet, tcp_of(0)).is_none());
    assert!(Segments::of(&tcp(false, 1, ACK, &[], &[]), tcp_of(10)).is_none());
    for (at, value) in [(46, 0x40), (46, 0xf0), (20, 0x20), (14, 0x46)] {
        let mut bad = packet.clone();
        bad[at] = value;
        let refused = Segments::of(&bad, tcp_of(10)).is_none_or(|segments| segments.longest() <= bad.len());
        assert!(refused, "byte {at}");
    }
    // A TCP header has 20 bytes.
    for words in 0..5 {
        let mut bad = packet.clone();
        bad[46] = words << 4;
        assert!(Segments::of(&bad, tcp_of(10)).is_none(), "a header of {words} words");
    }
    for length in 0..packet.len() {
        assert!(Segments::of(&packet[..length], tcp_of(10)).is_none(), "{length}");
    }
    let mut padded = packet.clone();
    for (length, fits) in [(LONGEST, true), (LONGEST + 1, false)] {
        padded.resize(length, 0);
        assert_eq!(Segments::of(&padded, tcp_of(10)).is_some(), fits, "{length}");
    }
    let longest = |size| Segments::of(&packet, tcp_of(size)).map(|segments| segments.longest());
    assert_eq!([longest(10), longest(100), longest(1448)], [Some(64), Some(154), Some(154)]);
    let mut segments = Segments::of(&packet, tcp_of(10)).expect("a packet to cut");
    assert_eq!(segments.next(&packet, &mut vec![0; segments.longest() - 1]), None);
}

/// Offers frames in order; gives what leaves: bytes and, for what was joined, the size.
fn coalesce(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<u16>)> {
    let mut held = Coalescer::new();
    let mut left = Vec::new();
    let let_go = |held: &mut Coalescer, left: &mut Vec<_>| {
        if let Some((packet, metadata, headers, payload)) = held.packet() {
            let size = metadata.segmentation.map(|segmentation| segmentation.size);
            let mut packet = packet.to_vec();
            if let Checksum::Partial { start, offset } = metadata.checksum {
                assert_eq!(usize::from(start), headers.transport);
                assert!(checksum::complete(&mut packet, start.into(), offset.into()));
            }
            assert_eq!(checksum::verify(&packet).transport, Verdict::Good);
            assert!(payload <= packet.len());
            left.push((packet, size));
        }
        held.clear();
    };
    for frame in frames {
        let mut joined = held.offer(frame);
        if joined != Joined::Held {
            let_go(&mut held, &mut left);
            if joined == Joined::Other {
                joined = held.offer(frame);
            }
            if joined != Joined::Held {
                left.push((frame.clone(), None));
            }
        }
    }
    let_go(&mut held, &mut left);
    left
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(8), ..ProptestConfig::default() })]

    #[test]
    fn joining_what_was_cut_gives_the_packet_again(
        six: bool, start: u32, size in 50u16..1500, length in 1usize..20_000, push: bool,
    ) {
        let data: Vec<u8> = (0..length).map(|at| (at * 31) as u8).collect();
        let flags = if push { ACK | PSH } else { ACK };
        let packet = tcp(six, start, flags, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], &data);
        let frames = cut(&packet, size, TCP);
        let joined = coalesce(&frames);
        let size = (frames.len() > 1).then_some(size);
        prop_assert_eq!(joined, vec![(packet, size)]);
    }
}

/// The frame with tags of type 0x8100, the outermost first.
fn tagged(frame: &[u8], tags: &[u16]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|control| [[0x81, 0], control.to_be_bytes()].concat());
    frame[..12].iter().copied().chain(tags).chain(frame[12..].iter().copied()).collect()
}

/// What a frame is that carries data of a stream, as one that follows the others or in some other way.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    at: u16,
    value: u8,
}

/// Frames of a stream: most follow each other, some are short, pushed, lost, repeated, ended, or have a byte that is another.
fn stream(six: bool, steps: &[Step]) -> Vec<Vec<u8>> {
    const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let (mut next, mut identification, mut frames) = (u32::MAX - 5000, 0xfffa_u16, Vec::new());
    for &Step { kind, at, value } in steps {
        let (mut flags, mut length, mut stamps) = (ACK, 300, STAMPS);
        match kind {
            10 => length = 1 + usize::from(value),
            11 => flags |= PSH,
            12 => flags |= FIN,
            13 => next = next.wrapping_add(u32::from(at)),
            14 => next = next.wrapping_sub(u32::from(at)),
            15 => identification = identification.wrapping_add(at),
            16 => stamps[7] = value,
            _ => {}
        }
        let data: Vec<u8> = (0..length).map(|at| (at as u32).wrapping_add(next) as u8).collect();
        let mut frame = tcp(six, next, flags, &stamps, &data);
        if !six {
            frame[18..20].copy_from_slice(&identification.to_be_bytes());
            checksum::fill(&mut frame);
        }
        if (17..20).contains(&kind) {
            // In the headers, for the most part; the checksums right in spite of it, or wrong.
            let place = usize::from(at) % if kind == 17 { frame.len() } else { 66 };
            frame[place] ^= value;
            if kind == 19 {
                checksum::fill(&mut frame);
            }
        }
        next = next.wrapping_add(length as u32);
        identification = identification.wrapping_add(1);
        frames.push(frame);
    }
    frames
}

/// The identification of a packet that may not be made fragments says nothing, and may be another.
fn without_idle_identification(mut frame: Vec<u8>) -> Vec<u8> {
    let tag = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
    let packet = &mut frame[tag..];
    if packet[12..14] == [8, 0] && packet[20] & 0x40 != 0 {
        packet[18..20].fill(0);
        packet[24..26].fill(0);
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, rng_seed: RngSeed::Fixed(9), ..ProptestConfig::default() })]

    #[test]
    fn cutting_what_was_joined_gives_the_frames_again(
        six: bool,
        tag: Option<u16>,
        steps in proptest::collection::vec((0u8..21, any::<u16>(), any::<u8>()), 1..60),
    ) {
        let steps: Vec<Step> = steps.into_iter().map(|(kind, at, value)| Step { kind, at, value }).collect();
        // All with one tag, but for those with another.
        let own = |step: &Step| if step.kind == 20 { Some(tag.unwrap_or(0) ^ u16::from(step.value)) } else { tag };
        let untagged = stream(six, &steps);
        let frames: Vec<_> = untagged.iter().zip(&steps).map(|(frame, step)| tagged(frame, own(step).as_slice())).collect();
        let joined = coalesce(&frames);
        let again = joined.into_iter().flat_map(|(packet, size)| match size {
            Some(size) => cut(&packet, size, TCP),
            None => vec![packet],
        });
        let plain = |frames: Vec<Vec<u8>>| frames.into_iter().map(without_idle_identification).collect::<Vec<_>>();
        prop_assert_eq!(plain(again.collect()), plain(frames));
    }
}

#[test]
fn frames_are_joined_that_have_the_same_tags_and_no_others() {
    let parts: Vec<Vec<u8>> = cut(&tcp(false, 1, ACK, &[], &[7; 2000]), 1000, TCP);
    let count = |first: Vec<u8>, second: Vec<u8>| coalesce(&[first, second]).len();
    for tags in [&[][..], &[7], &[0x6007], &[7, 8]] {
        let frames: Vec<_> = parts.iter().map(|part| tagged(part, tags)).collect();
        let joined = coalesce(&frames);
        assert_eq!((joined.len(), joined[0].1), (1, Some(1000)), "{tags:?}");
        assert_eq!(cut(&joined[0].0, 1000, TCP), frames, "{tags:?}");
        // Another VLAN, priority, count of tags, or type.
        for others in [&[][..], &[9], &[0x2007], &[0x1007], &[7], &[7, 9], &[9, 8], &[8, 7]] {
            if tags != others {
                assert_eq!(count(frames[0].clone(), tagged(&parts[1], others)), 2, "{tags:?} {others:?}");
            }
        }
        let mut of_a_provider = tagged(&parts[1], tags);
        if !tags.is_empty() {
            of_a_provider[12..14].copy_from_slice(&[0x88, 0xa8]);
            assert_eq!(count(frames[0].clone(), of_a_provider), 2, "{tags:?}");
        }
    }
}

#[test]
fn a_packet_that_is_joined_is_no_longer_than_there_is_room() {
    let frames: Vec<Vec<u8>> = cut(&tcp(true, 1, ACK, &[], &[7; 20_000]), 1000, TCP);
    for most in [1073, 1074, 2073, 2074, 10_000, 30_000] {
        let mut held = Coalescer::with_room(most);
        let taken = frames.iter().take_while(|frame| held.offer(frame) == Joined::Held).count();
        assert_eq!(taken, (most.saturating_sub(74) / 1000).min(20), "{most}");
    }
}

#[test]
fn a_packet_that_is_joined_has_a_length_that_fits_its_header() {
    // Headers of 40 bytes and 50 times 1310 are 65,540: there is room for them, and IP has no such length.
    let frames: Vec<Vec<u8>> = (0..50).map(|number| tcp(false, number * 1310, ACK, &[], &[7; 1310])).collect();
    let mut held = Coalescer::new();
    let offered = frames.into_iter().enumerate().map(|(number, mut frame)| {
        frame[18..20].copy_from_slice(&(number as u16).to_be_bytes());
        checksum::fill(&mut frame);
        held.offer(&frame)
    });
    let outcomes: Vec<Joined> = offered.collect();
    assert_eq!((outcomes[..49].iter().all(|&one| one == Joined::Held), outcomes[49]), (true, Joined::Other));
    let (packet, ..) = held.packet().expect("49 frames");
    assert_eq!((packet.len(), &packet[16..18]), (54 + 49 * 1310, &64_230u16.to_be_bytes()[..]));
}

#[test]
fn what_is_not_to_be_fragmented_needs_no_identification_and_options_of_ip_are_not_joined() {
    let frames = [1, 501].map(|sequence| {
        let mut frame = tcp(false, sequence, ACK, &[], &[5; 500]);
        frame[20] = 0x40;
        checksum::fill(&mut frame);
        frame
    });
    let mut held = Coalescer::new();
    assert_eq!(frames.map(|frame| held.offer(&frame)), [Joined::Held; 2]);
    let mut frame = tcp(false, 1, ACK, &[], &[5; 500]);
    // Four times "no operation".
    frame.splice(34..34, [1; 4]);
    frame[14] = 0x46;
    let length = frame.len() as u16 - 14;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    checksum::fill(&mut frame);
    assert_eq!(checksum::verify(&frame).transport, Verdict::Good);
    assert_eq!(Coalescer::new().offer(&frame), Joined::Never);
}

#[test]
fn only_frames_that_follow_each_other_exactly_are_joined() {
    let data = [5; 500];
    let first = tcp(false, 1000, ACK, &[], &data);
    let next = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = tcp(false, 1500, ACK, &[], &data);
        frame[19] = 0xff;
        change(&mut frame);
        checksum::fill(&mut frame);
        frame
    };
    let joined = |second: Vec<u8>| coalesce(&[first.clone(), second]).len() == 1;
    assert!(joined(next(&|_| {})));
    // Addresses, ports, sequence, acknowledgement, flags, window, urgent, life time, service, identification, fragment.
    for (at, name) in [
        (0, "destination"),
        (6, "source"),
        (15, "service"),
        (19, "identification"),
        (22, "life time"),
        (29, "address"),
        (33, "address"),
        (34, "port"),
        (37, "port"),
        (41, "sequence"),
        (45, "acknowledgement"),
        (48, "window"),
        (53, "urgent"),
    ] {
        assert!(!joined(next(&|frame| frame[at] ^= 1)), "{name}");
    }
    for flags in [ACK | FIN, ACK | 2, ACK | 4, ACK | 0x20, ACK | 0x40, 0] {
        assert!(!joined(next(&|frame| frame[47] = flags)), "flags {flags:02x}");
    }
    let mut bad = next(&|_| {});
    bad[60] ^= 1;
    assert!(!joined(bad), "a wrong checksum must stay visible");
    // After a shorter one or one with PSH nothing follows.
    let short = tcp(false, 1500, ACK, &[], &data[..400]);
    let after = tcp(false, 1900, ACK, &[], &data[..400]);
    let frames = |second: &[u8]| coalesce(&[first.clone(), second.to_vec(), after.clone()]).len();
    let mut short = short;
    short[19] = 0xff;
    checksum::fill(&mut short);
    assert_eq!(frames(&short), 2);
}
