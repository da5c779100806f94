//! A port in several parts, each of which a thread of its own may serve.

use super::session_tests::is_awake;
use super::*;
use crate::peer::ring_bell;
use rustix::event::Timespec;
use rustix::event::{PollFd, PollFlags, poll};

fn parts(options: &MemifOptions, count: usize) -> Vec<Memif> {
    Memif::open_queues(&MemifOptions { queues: count, ..options.clone() }).expect("a port")
}

/// The other side of a port of this role, in one part.
fn other(options: &MemifOptions, role: Role, rings: usize) -> Memif {
    let role = if role == Role::Server { Role::Client } else { Role::Server };
    Memif::open(&MemifOptions { role, queues: rings, ..options.clone() }).expect("a peer")
}

/// Both sides look until the peer and all parts are together, or as long as such a handshake takes.
fn meet(own: &mut [Memif], peer: &mut Memif, from: u64) -> bool {
    for step in 0..300 {
        look(peer, milliseconds(from + step));
        own.iter_mut().for_each(|part| look(part, milliseconds(from + step)));
        if peer.is_connected() && own.iter().all(Memif::is_connected) {
            return true;
        }
    }
    false
}

/// A frame of a flow, with a number.
fn frame(flow: u8, number: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..34].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 0, 0, 2]);
    frame[34..38].copy_from_slice(&[4, 0, 4, 1]);
    frame[50] = number;
    frame
}

fn send(port: &mut Memif, frame: &[u8]) {
    assert_eq!(port.transmit(Time::ZERO, frame).expect("memif does not fail"), Transmit::Accepted);
    port.flush(Time::ZERO).expect("memif does not fail");
}

/// Flow and number of each frame that is there.
fn got(port: &mut Memif) -> Vec<(u8, u8)> {
    let mut frame = [0; MAX_FRAME];
    let mut next = || match port.receive(Time::ZERO, &mut frame).expect("memif does not fail") {
        Receive::Frame { .. } => Some((frame[29], frame[50])),
        Receive::None => None,
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(&mut next).collect()
}

/// Every part sends to the peer and hears what came by its rings, each frame once.
fn frames_pass(own: &mut [Memif], peer: &mut Memif) {
    const FLOWS: u8 = 64;
    for (number, part) in own.iter_mut().enumerate() {
        (0..FLOWS).for_each(|flow| send(part, &frame(flow, number as u8)));
        let mut came = got(peer);
        came.sort_unstable();
        assert_eq!(came, (0..FLOWS).map(|flow| (flow, number as u8)).collect::<Vec<_>>(), "of part {number}");
    }
    (0..FLOWS).for_each(|flow| send(peer, &frame(flow, 0)));
    let of_parts: Vec<Vec<(u8, u8)>> = own.iter_mut().map(got).collect();
    assert!(of_parts.iter().all(|came| !came.is_empty()), "{of_parts:?}");
    let mut came: Vec<u8> = of_parts.into_iter().flatten().map(|(flow, _)| flow).collect();
    came.sort_unstable();
    assert_eq!(came, (0..FLOWS).collect::<Vec<_>>());
}

#[test]
fn the_rings_of_a_session_are_dealt_to_all_parts_and_each_frame_passes_once() {
    for role in [Role::Server, Role::Client] {
        for (count, rings) in (1..=4).flat_map(|count| (count..=6).map(move |rings| (count, rings))) {
            let folder = folder();
            let options = MemifOptions { role, ..options(&folder) };
            let mut own = parts(&options, count);
            assert_eq!(own.len(), count);
            let mut peer = other(&options, role, rings);
            assert!(meet(&mut own, &mut peer, 0), "{}", own[0].description());
            let rings = if role == Role::Server { rings } else { count };
            assert!(own[0].description().contains(&format!("{rings} rings in and {rings} out")));
            assert!(own[1..].iter().all(|part| part.description().is_empty()), "the first speaks for all");
            frames_pass(&mut own, &mut peer);
        }
    }
}

#[test]
fn a_peer_with_fewer_rings_than_there_are_parts_is_told_so() {
    let folder = folder();
    let mut own = parts(&options(&folder), 3);
    let mut peer = other(&options(&folder), Role::Server, 2);
    assert!(!meet(&mut own, &mut peer, 0));
    assert!(peer.description().contains("fewer rings to you than this port has queues"), "{}", peer.description());
    drop(peer);
    let mut peer = other(&options(&folder), Role::Server, 3);
    assert!(meet(&mut own, &mut peer, 1000), "{}", own[0].description());

    let wanted = MemifOptions { queues: 2, ..MemifOptions::new("socket") };
    for (last_to_server, refusal) in [(0, Some("the server takes fewer rings than this port has queues")), (1, None)] {
        let Message::Hello(hello) = session::hello() else { panic!("it is one") };
        let hello = Message::Hello(Hello { last_to_server, ..hello });
        assert_eq!(Offer::for_parts(2).hear(hello, &[], &wanted).err(), refusal);
    }
}

/// Says that it will sleep, as a thread does that serves this part.
fn rest(part: &mut Memif) {
    part.arm();
    look(part, Time::ZERO);
    assert!(part.next_due().is_none_or(|due| due > Time::ZERO), "it may not sleep");
}

#[test]
fn parts_that_sleep_are_woken_for_a_session_and_for_its_end_and_sleep_again() {
    let folder = folder();
    let mut own = parts(&options(&folder), 3);
    for round in 0..3 {
        own.iter_mut().for_each(rest);
        assert_eq!(own.iter().map(is_awake).collect::<Vec<_>>(), [false; 3], "round {round}");
        let mut peer = other(&options(&folder), Role::Server, 3);
        for step in 0.. {
            look(&mut peer, milliseconds(1000 * round + step));
            if !is_awake(&own[0]) && peer.is_connected() {
                break;
            }
            look(&mut own[0], Time::ZERO);
        }
        assert!(is_awake(&own[1]) && is_awake(&own[2]), "they have rings");
        for part in &mut own {
            look(part, Time::ZERO);
            assert!(part.is_connected());
            rest(part);
        }
        assert_eq!(own.iter().map(is_awake).collect::<Vec<_>>(), [false; 3], "round {round}");
        // A frame wakes whoever has its ring, and nobody else.
        (0..64).for_each(|flow| send(&mut peer, &frame(flow, 0)));
        assert_eq!(own.iter().map(is_awake).collect::<Vec<_>>(), [true; 3]);
        assert_eq!(own.iter_mut().map(|part| got(part).len()).sum::<usize>(), 64);
        own.iter_mut().for_each(rest);
        drop(peer);
        assert!(is_awake(&own[0]));
        rest(&mut own[0]);
        assert!(!own[0].is_connected() && is_awake(&own[1]) && is_awake(&own[2]), "they have to leave their rings");
        own[1..].iter_mut().for_each(rest);
        assert!(own.iter().all(|part| !part.is_connected()));
    }
    assert_eq!((own[0].counts.sessions, own[0].counts.ended), (3, 3));
}

#[test]
fn a_session_that_has_ended_before_a_part_heard_of_it_wakes_that_once() {
    let folder = folder();
    let mut own = parts(&options(&folder), 2);
    own.iter_mut().for_each(rest);
    let mut peer = other(&options(&folder), Role::Server, 2);
    for step in 0..300 {
        look(&mut peer, milliseconds(step));
        look(&mut own[0], milliseconds(step));
    }
    assert!(own[0].is_connected());
    drop(peer);
    look(&mut own[0], milliseconds(1000));
    assert!(!own[0].is_connected() && is_awake(&own[1]));
    rest(&mut own[1]);
    assert!(!own[1].is_connected() && !is_awake(&own[1]));
}

#[test]
fn a_part_whose_rings_are_broken_ends_the_session_for_all_and_not_the_next_one() {
    let folder = folder();
    let mut own = parts(&options(&folder), 2);
    let mut peer = other(&options(&folder), Role::Server, 2);
    assert!(meet(&mut own, &mut peer, 0));
    // The peer's head of the ring that the second part reads.
    let rings = peer.rings.as_ref().expect("a session");
    rings.transmit[1].ring.scribble_head(&rings.regions, 0x7777);
    rest(&mut own[0]);
    assert!(!is_awake(&own[0]));
    look(&mut own[1], Time::ZERO);
    assert!(!own[1].is_connected() && own[0].is_connected() && is_awake(&own[0]));
    assert_eq!(own[1].counts.faults[Fault::Index as usize], 1);
    rest(&mut own[0]);
    assert!(!own[0].is_connected() && own[0].description().contains("an index of a ring cannot be"));
    for _ in 0..2 * LOOKS {
        look(&mut peer, Time::ZERO);
    }
    assert!(!peer.is_connected() && peer.description().contains("an index of a ring cannot be"));
    assert!(meet(&mut own, &mut peer, 1000), "{}", own[0].description());
    // What is said late of a session that has ended is not said of this one.
    let Place::Other(first) = &own[1].place else { panic!("it is not the first") };
    first.complain(Complaint { session: 1, why: "late" });
    own.iter_mut().for_each(rest);
    assert!(own.iter().all(Memif::is_connected), "{}", own[0].description());
    frames_pass(&mut own, &mut peer);
}

#[test]
fn whoever_has_left_cannot_wake_the_port_any_more() {
    let folder = folder();
    let mut server = server(&folder);
    let (client, bells) = joined_with_bells(&mut server);
    drop(client);
    for _ in 0..2 * LOOKS {
        look(&mut server, Time::ZERO);
    }
    assert!(!server.is_connected());
    rest(&mut server);
    assert!(!is_awake(&server));
    ring_bell(&bells[0]);
    assert!(!is_awake(&server), "the peer has kept its bell");
}

/// What comes between two parts that stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    /// The peer goes, and the first part hears of it.
    End,
    /// The peer goes, and another one comes.
    Another,
}

/// Passes the parts on in this order; behind so many of them something comes between.
fn pass_on(mut own: Vec<Memif>, peer: &mut Memif, order: &[usize], (between, after): (Between, usize)) -> Vec<Legacy> {
    let mut legacies: Vec<Option<Legacy>> = own.iter().map(|_| None).collect();
    for (stopped, &number) in order.iter().enumerate() {
        if stopped == after && between != Between::Nothing {
            peer.end(Time::ZERO, "on purpose");
            let mut going: Vec<&mut Memif> = own
                .iter_mut()
                .enumerate()
                .filter(|(part, _)| legacies[*part].is_none())
                .map(|(_, part)| part)
                .collect();
            for step in 0..300 {
                // What came before the end may still be there.
                going.iter_mut().for_each(|part| drop(part.receive(milliseconds(step), &mut [0; MAX_FRAME])));
                if between == Between::Another {
                    look(peer, milliseconds(step));
                }
            }
        }
        legacies[number] = own[number].bequeath();
    }
    legacies.into_iter().map(|legacy| legacy.expect("it can be passed on")).collect()
}

#[test]
fn another_process_goes_on_with_a_whole_session_or_with_none() {
    let mut generator = fastrand::Rng::with_seed(2027);
    let (mut kept, mut ended) = (0, 0);
    for round in 0..300 {
        let folder = folder();
        let role = [Role::Server, Role::Client][generator.usize(..2)];
        let options = MemifOptions { role, log2_slots: 7, ..options(&folder) };
        let count = generator.usize(1..=4);
        let mut own = parts(&options, count);
        let mut peer = other(&options, role, generator.usize(count..=5));
        assert!(meet(&mut own, &mut peer, 0));
        frames_pass(&mut own, &mut peer);
        let (mut order, between) = ((0..count).collect::<Vec<_>>(), [Between::Nothing, Between::End, Between::Another]);
        generator.shuffle(&mut order);
        let between = (between[generator.usize(..3)], generator.usize(..count));
        let on_the_way = generator.u8(..60);
        (0..on_the_way).for_each(|flow| send(&mut peer, &frame(flow, 1)));
        let legacies = pass_on(own, &mut peer, &order, between);
        // The first says whether there is a session, and which at the end; the others begin with theirs.
        let first = &legacies[0].words;
        let is_whole = first[1] > 0 && legacies[1..].iter().all(|other| Some(&other.words[0]) == first.last());
        let options = MemifOptions { queues: count, ..options };
        let mut own = Memif::inherit(&options, legacies).expect("they go on");
        let connected = own.iter().filter(|part| part.is_connected()).count();
        assert_eq!(connected, if is_whole { count } else { 0 }, "round {round}, {between:?} of {order:?}");
        if between.0 == Between::Nothing {
            assert!(is_whole, "round {round}");
            let mut came: Vec<u8> = own.iter_mut().flat_map(got).map(|(flow, _)| flow).collect();
            came.sort_unstable();
            assert_eq!(came, (0..on_the_way).collect::<Vec<_>>(), "round {round}");
        }
        (kept, ended) = if connected == 0 { (kept, ended + 1) } else { (kept + 1, ended) };
        assert!(meet(&mut own, &mut peer, 10_000), "{between:?} of {order:?}: {}", own[0].description());
        frames_pass(&mut own, &mut peer);
    }
    assert!(kept > 100 && ended > 50, "{kept} sessions went on, {ended} did not");
}

#[test]
fn what_was_passed_of_parts_is_all_that_belongs_to_them_or_is_refused() {
    let folder = folder();
    let options = options(&folder);
    let legacies = || {
        let mut own = parts(&options, 2);
        let mut peer = other(&options, Role::Server, 2);
        assert!(meet(&mut own, &mut peer, 0));
        let order = [0, 1];
        (pass_on(own, &mut peer, &order, (Between::Nothing, 0)), peer)
    };
    assert!(Memif::inherit(&options, Vec::new()).is_err());
    for number in 0..2 {
        for cut in 0.. {
            let (mut whole, _peer) = legacies();
            let words = &mut whole[number].words;
            if cut == words.len() {
                break;
            }
            words.truncate(cut);
            assert!(Memif::inherit(&options, whole).is_err(), "{cut} words of part {number}");
            // Whoever had it has given its socket away, and this one failed.
            let _ = std::fs::remove_file(&options.socket);
        }
    }
}

/// Parts on threads of their own that send back what comes, sleeping in between, while peers come and go.
#[test]
fn parts_on_threads_send_back_every_frame_of_every_peer() {
    const PEERS: u64 = 20;
    let folder = folder();
    let options = options(&folder);
    let stop = conic_native::Flag::default();
    let mut generator = fastrand::Rng::with_seed(2028);
    std::thread::scope(|scope| {
        for mut part in parts(&options, 2) {
            let stop = &stop;
            scope.spawn(move || {
                let mut frame = [0; MAX_FRAME];
                while !stop.is_up() {
                    let now = conic_native::clock::now();
                    if let Receive::Frame { length, .. } = part.receive(now, &mut frame).expect("memif does not fail") {
                        send(&mut part, &frame[..length]);
                        continue;
                    }
                    part.arm();
                    let came = part.receive(now, &mut frame).expect("memif does not fail");
                    if let Receive::Frame { length, .. } = came {
                        send(&mut part, &frame[..length]);
                    } else if part.next_due().is_none() {
                        let waiter = part.descriptor().expect("one to wait on");
                        let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                        poll(&mut [PollFd::from_borrowed_fd(waiter, PollFlags::IN)], Some(&patience)).expect("a poll");
                    }
                }
            });
        }
        for _ in 0..PEERS {
            let mut peer = other(&options, Role::Server, 3);
            let (mut frame_there, mut sent, mut came) = ([0; MAX_FRAME], [0u8; 64], [0u8; 64]);
            let began = conic_native::clock::now();
            while came.iter().any(|&count| count < 200) {
                let now = conic_native::clock::now();
                assert!(now < began + Time::from_nanoseconds(20_000_000_000), "{came:?} of {sent:?}");
                let got = peer.receive(now, &mut frame_there).expect("memif does not fail");
                if let Receive::Frame { .. } = got {
                    let flow = usize::from(frame_there[29]);
                    assert_eq!(frame_there[50], came[flow], "flow {flow} is in order");
                    came[flow] += 1;
                }
                let flow = generator.usize(..64);
                if peer.is_connected() && sent[flow] < 200 && sent[flow] < came[flow] + 4 {
                    send(&mut peer, &frame(flow as u8, sent[flow]));
                    sent[flow] += 1;
                }
            }
        }
        stop.raise();
    });
}

#[test]
fn a_session_that_a_part_has_not_heard_of_goes_on_and_the_next_one_has_another_number() {
    let folder = folder();
    let options = options(&folder);
    let mut own = parts(&options, 2);
    let mut peer = other(&options, Role::Server, 2);
    for step in 0..300 {
        look(&mut peer, milliseconds(step));
        look(&mut own[0], milliseconds(step));
    }
    assert!(own[0].is_connected() && !own[1].is_connected());
    let legacies = pass_on(own, &mut peer, &[1, 0], (Between::Nothing, 0));
    let mut own = Memif::inherit(&MemifOptions { queues: 2, ..options }, legacies).expect("they go on");
    assert!(own.iter().all(Memif::is_connected));
    frames_pass(&mut own, &mut peer);
    let numbers =
        |own: &[Memif]| own.iter().map(|part| part.rings.as_ref().map(|rings| rings.session)).collect::<Vec<_>>();
    let before = numbers(&own);
    peer.end(Time::ZERO, "on purpose");
    look(&mut own[0], milliseconds(1000));
    assert!(!own[0].is_connected() && meet(&mut own, &mut peer, 2000));
    let after = numbers(&own);
    assert!(before[0] == before[1] && after[0] == after[1] && before[0] < after[0], "{before:?}, then {after:?}");
}
