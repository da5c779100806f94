//! Whoever is not trusted: a network that sends what is no segment, a NIC that names what is no buffer, and an application that tells
//! what cannot be. Nobody else loses anything by it.

use crate::common::{Ground, Over, SMALL, connections, segment};
use conic_fabric::{Address, Core, Time};
use conic_interface::burst::{NicQueue, Packet};
use conic_interface::ccnic::{self, Features, Nic, PhaseCredit};
use conic_load::FarEnd;
use conic_tcp::segment::{Segment, sums_are_right};
use conic_tcp::{Acknowledge, Application, Clients, Counted, Load, Notice, Shape};

/// Good clients share a queue with frames that are none, and with segments of another connection that are as wrong as a checksum
/// lets them be.
#[test]
fn thousands_of_wrong_segments_harm_no_other_connection() {
    const WRONG: u64 = 30_000;
    let ground = Ground::new(Over::CcNic(Features::best()), SMALL, [5, 6]);
    let (mut fast_path, mut nic) = (ground.fast_path(0, Acknowledge::AtOnce), ground.nic(0));
    let mut application = Application::new(ground.core(), &ground.service, 0);
    // The last connection is the one that is abused: nobody's clients have it.
    let (abused, good) = ground.connections.split_last().expect("there are some");
    let mut clients = Clients::new(good, SMALL.buffers[0], Load { window: 4, requests_a_segment: 2 }, 3);
    let template = segment(abused, 64).frame(&[7; 64]);
    let mut draws = fastrand::Rng::with_seed(11);
    let (mut refused_by_sums, mut into) = (0, vec![0; 2048]);
    for wrong in 0..WRONG {
        let mut frame = template.clone();
        match wrong % 5 {
            0 => frame = (0..draws.usize(1..200)).map(|_| draws.u8(..)).collect(),
            1 => frame.truncate(draws.usize(1..frame.len())),
            2 => frame.extend(vec![0; draws.usize(1..100)]),
            3 => frame[draws.usize(..118)] ^= 1 << draws.u8(..8),
            // Any sequence number, acknowledgement and window, with checksums that are right.
            _ => {
                let other = Segment {
                    sequence: draws.u32(..),
                    acknowledged: draws.u32(..),
                    window: draws.u16(..),
                    ..segment(abused, 0)
                };
                frame = other.frame(&vec![1; draws.usize(..200)]);
            }
        }
        refused_by_sums += u64::from(!sums_are_right(&frame));
        let now = Time::from_nanoseconds(wrong);
        let mut frames = clients.packets(now).to_vec();
        clients.delivered(frames.len());
        frames.push(frame);
        for frame in &frames {
            let mut tries = 0;
            while !nic.deliver_frame(frame) {
                fast_path.step();
                application.step();
                tries += 1;
                assert!(tries < 1000, "it stands");
            }
        }
        fast_path.step();
        application.step();
        while let Some(length) = nic.take_frame(&mut into) {
            if Segment::of_frame(&into[..length]).expect("a segment").to != abused.peer {
                clients.came_back(&into[..length], now);
            }
        }
    }
    let account = clients.account();
    assert_eq!(account.corrupt(), 0);
    assert!(account.received() > WRONG, "{} answers", account.received());
    assert!(clients.answered().iter().all(|answered| *answered > 1000), "{:?}", clients.answered());
    let counted = fast_path.counted();
    assert!(refused_by_sums > WRONG / 2, "a NIC would have kept {refused_by_sums} from it");
    assert!(counted.malformed > WRONG / 4 && counted.unknown > 100 && counted.absurd > 1000, "{counted:?}");
    assert_eq!((counted.refused, application.refused()), (0, 0));
}

/// A peer may send segments that are longer than those of this side.
#[test]
fn a_segment_that_is_longer_than_any_that_is_sent_is_taken_as_far_as_there_is_room() {
    for over in [Over::CcNic(Features::best()), Over::Ring(64)] {
        for (bytes, room) in [(1461, 1 << 13), (1900, 1 << 13), (1900, 1024)] {
            let ground = Ground::new(over, Shape { buffers: [room; 2], ..SMALL }, [5, 6]);
            let (mut fast_path, mut nic) = (ground.fast_path(0, Acknowledge::AtOnce), ground.nic(0));
            let long = segment(&ground.connections[0], bytes).frame(&vec![4; bytes.into()]);
            assert!(nic.deliver_frame(&long), "{over:?}");
            while fast_path.step() > 0 {}
            assert_eq!(fast_path.counted().received_bytes, u64::from(bytes).min(room.into()), "{over:?}");
        }
    }
}

#[test]
fn what_a_nic_names_and_is_no_buffer_is_neither_read_nor_written() {
    let features = Features::best();
    let geometry = ccnic::Geometry { queues: 1, descriptors: 64, buffers: [256, 64, 0], object_bytes: 4096 };
    let map = ccnic::Map::new(geometry, features).expect("a region that can be");
    let mut layout = map.layout.clone();
    let service = conic_tcp::Service::place(&mut layout, SMALL, conic_fabric::Home::Host).expect("a service");
    let memory = conic_native::Memory::create(&layout, conic_native::Pages::Plain).expect("a small region");
    let core = conic_native::NativeCore::new(&memory);
    map.pool.fill(&core);
    let connection = connections(SMALL, [5, 6])[0];
    assert!(service.install(&core, 0, &connection));
    let queue = ccnic::host_queue(core, &map, 0);
    let mut fast_path = conic_tcp::FastPath::new(vec![queue], &service, 0, Acknowledge::AtOnce);
    let mut nic = Nic::<_, PhaseCredit>::new(core, &map, 0);
    let good = segment(&connection, 64);
    let frame = good.frame(&[3; 64]);
    // A segment that lies among objects, and one that begins in a buffer and does not end in it.
    let among = map.objects().0;
    core.write_bytes(among, &frame);
    let small = nic.rx_alloc(64).expect("a buffer");
    core.write_bytes(small + 64, &frame[..64]);
    let named = [
        Packet::new(among, 118),
        Packet::new(Address(1 << 39), 118),
        Packet::new(Address(0), 118),
        Packet::new(small + 64, 118),
    ];
    assert_eq!(nic.rx_burst(&named), 4);
    while fast_path.step() > 0 {}
    assert_eq!(fast_path.counted(), Counted { malformed: 4, ..Counted::default() });
    let mut still = vec![0; frame.len()];
    core.read_bytes(among, &mut still);
    assert_eq!(still, frame);
    // And a segment behind them is taken.
    let at = nic.rx_alloc(118).expect("a buffer");
    core.write_bytes(at, &frame);
    assert_eq!(nic.rx_burst(&[Packet::new(at, 118)]), 1);
    while fast_path.step() > 0 {}
    assert_eq!(fast_path.counted().received_bytes, 64);
}

/// An application that is another process may write anything into its queue: the fast path takes of it what can be, and serves others.
#[test]
fn words_that_cannot_be_are_refused() {
    let shape = Shape { flows: 4, threads: 2, applications: 2, ..SMALL };
    let ground = Ground::new(Over::CcNic(Features::best()), shape, [5, 6]);
    let (mut fast_path, mut nic) = (ground.fast_path(0, Acknowledge::AtOnce), ground.nic(0));
    let mut sender = ground.service.context(0, 0).down.sender(ground.core());
    let mut draws = fastrand::Rng::with_seed(12);
    // 0 is this thread's and this application's; 1 is another thread's, 2 another application's, 3 both, and 4 and more are none.
    let mine = &ground.connections[0];
    assert_eq!((mine.thread, mine.application), (0, 0));
    let mut refused = 0;
    for _ in 0..5000 {
        let mut line = [0; 7];
        let words = draws.usize(1..=7);
        for word in &mut line[..words] {
            let flow = draws.u32(1..20);
            *word = Notice { flow, received: draws.u32(..1 << 24), transmit: draws.u32(..1 << 24) }.word();
        }
        // Of its own connection more than there is, in one word of each line.
        line[0] = match draws.u32(..3) {
            0 => Notice { flow: 0, received: draws.u32(1..1 << 24), transmit: 0 },
            1 => Notice { flow: 0, received: 0, transmit: draws.u32(1025..1 << 24) },
            _ => Notice { flow: 0xfffe, received: 1, transmit: 1 },
        }
        .word();
        while !sender.try_send(&line) {
            fast_path.step();
        }
        fast_path.step();
        refused += words as u64;
    }
    while fast_path.step() > 0 {}
    assert_eq!(fast_path.counted().refused, refused);
    assert_eq!(nic.take_frame(&mut [0; 2048]), None, "nothing was sent");
    // What can be is done: 64 bytes of this connection, from the transmit buffer.
    assert!(sender.try_send(&[Notice { flow: 0, received: 0, transmit: 64 }.word(), 0, 0, 0, 0, 0, 0]));
    while fast_path.step() > 0 {}
    let mut into = vec![0; 2048];
    let length = nic.take_frame(&mut into).expect("a segment");
    let sent = Segment::of_frame(&into[..length]).expect("a segment");
    assert_eq!((sent.to, sent.sequence, sent.payload_bytes), (mine.peer, mine.sent, 64));
    // And whatever words there are, nobody panics.
    for _ in 0..5000 {
        let line: [u64; 7] = std::array::from_fn(|_| draws.u64(..) & draws.u64(..) & draws.u64(..));
        while !sender.try_send(&line) {
            fast_path.step();
        }
        fast_path.step();
        while nic.take_frame(&mut into).is_some() {}
    }
}

/// An application that never looks at what it is told, but says that it has read it, is told less in the end, and stops nobody.
#[test]
fn an_application_that_does_not_listen_stops_nobody() {
    let shape = Shape { flows: 1, notices: 1, ..SMALL };
    let ground = Ground::new(Over::CcNic(Features::best()), shape, [5, 6]);
    let (mut fast_path, mut nic) = (ground.fast_path(0, Acknowledge::AtOnce), ground.nic(0));
    let mut sender = ground.service.context(0, 0).down.sender(ground.core());
    let mut next = segment(&ground.connections[0], 1000);
    let mut into = vec![0; 2048];
    let all = 18_000_000_u64;
    for _ in 0..all / 1000 {
        assert!(nic.deliver_frame(&next.frame(&[4; 1000])));
        while fast_path.step() > 0 {}
        while nic.take_frame(&mut into).is_some() {}
        assert!(sender.try_send(&[Notice { flow: 0, received: 1000, transmit: 0 }.word(), 0, 0, 0, 0, 0, 0]));
        while fast_path.step() > 0 {}
        next.sequence = next.sequence.wrapping_add(1000);
    }
    assert_eq!((fast_path.counted().received_bytes, fast_path.counted().refused), (all, 0));
    // The first line told of one segment; all that came since is summed up, and more than a notice can say.
    let mut receiver = ground.service.context(0, 0).up.receiver(ground.core());
    let told = |line: Option<[u64; 7]>| Notice::of_word(line.expect("a line")[0]).expect("a notice");
    assert_eq!(told(receiver.try_receive()), Notice { flow: 0, received: 1000, transmit: 0 });
    while fast_path.step() > 0 {}
    assert_eq!(told(receiver.try_receive()), Notice { flow: 0, received: (1 << 24) - 1, transmit: 0 });
}

#[test]
fn what_is_for_a_slow_path_or_another_thread_is_counted_and_dropped() {
    let shape = Shape { threads: 2, ..SMALL };
    let ground = Ground::new(Over::CcNic(Features::best()), shape, [5, 6]);
    let (mut fast_path, mut nic) = (ground.fast_path(0, Acknowledge::AtOnce), ground.nic(0));
    let mut reset = segment(&ground.connections[0], 0).frame(&[]);
    reset[47] |= 4;
    let elsewhere = segment(&ground.connections[1], 3).frame(&[1; 3]);
    let mut stranger = segment(&ground.connections[0], 3);
    stranger.from.port += 5000;
    for frame in [reset, elsewhere, stranger.frame(&[1; 3])] {
        assert!(nic.deliver_frame(&frame));
    }
    while fast_path.step() > 0 {}
    assert_eq!(fast_path.counted(), Counted { for_slow_path: 1, unknown: 2, ..Counted::default() });
    assert_eq!(nic.take_frame(&mut [0; 2048]), None);
}

#[test]
fn a_connection_is_installed_once_and_where_there_is_a_place() {
    let ground = Ground::new(Over::CcNic(Features::best()), SMALL, [5, 6]);
    let core = ground.core();
    let known = ground.connections[3];
    let mut other = known;
    other.peer.port += 9000;
    for (flow, connection) in [(3, known), (4, known), (3, other), (SMALL.flows, other)] {
        assert!(!ground.service.install(&core, flow, &connection), "{flow}");
    }
}

/// Nobody else would tell a peer that was told of next to no room that there is some again.
#[test]
fn a_peer_that_had_no_room_is_told_when_there_is_some() {
    let ground = Ground::new(Over::CcNic(Features::best()), Shape { flows: 1, ..SMALL }, [5, 6]);
    let (mut fast_path, mut nic) = (ground.fast_path(0, Acknowledge::AtOnce), ground.nic(0));
    let mut sender = ground.service.context(0, 0).down.sender(ground.core());
    let full = segment(&ground.connections[0], 1024).frame(&[4; 1024]);
    assert!(nic.deliver_frame(&full));
    let mut into = vec![0; 2048];
    let mut told = |fast_path: &mut conic_tcp::FastPath<_>| {
        while fast_path.step() > 0 {}
        let frame = nic.take_frame(&mut into);
        frame.map(|length| Segment::of_frame(&into[..length]).expect("a segment").window)
    };
    assert_eq!((told(&mut fast_path), told(&mut fast_path)), (Some(0), None));
    // A little, and then so much that it is worth a segment.
    for (read, expected) in [(200, None), (100, Some(300)), (100, None)] {
        assert!(sender.try_send(&[Notice { flow: 0, received: read, transmit: 0 }.word(), 0, 0, 0, 0, 0, 0]));
        assert_eq!(told(&mut fast_path), expected, "{read} more");
    }
}
