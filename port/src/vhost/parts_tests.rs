//! A card in several parts, on threads of their own, with a driver of the tests' own: pairs stop, go on, lose their memory and are scribbled over
//! while frames pass; and parts go on in another process, whichever stops first.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use conic_native::Flag;

use super::half::feature;
use super::message::Place;
use super::ring::tests::{Driver, REGION};
use super::tests::{Frontend, MODERN, TO_CUT, begun, event, folder, is_awake, milliseconds, options, received};
use super::*;
use crate::offload::virtio::Checksum;

pub(super) fn parts(options: &VhostOptions, count: usize) -> Vec<VhostUser> {
    VhostUser::open_queues(&VhostOptions { queues: count, ..options.clone() }).expect("a port")
}

/// A card with so many pairs of rings, each ring with memory of its own: to the driver and from it.
pub(super) struct Guest {
    pub(super) frontend: Frontend,
    pub(super) pairs: Vec<[Driver; 2]>,
    pub(super) bells: Vec<[OwnedFd; 2]>,
    /// Frames that were sent, and those that have come back.
    sent: u32,
    came: BTreeSet<u32>,
}

/// Where a ring's memory begins.
pub(super) fn behind(ring: usize) -> u64 {
    2 * (ring * REGION) as u64
}

impl Guest {
    pub(super) fn connect(path: &str, pairs: usize, meanwhile: &mut dyn FnMut()) -> Guest {
        Guest::connect_with(path, pairs, MODERN | if pairs > 1 { feature::SEVERAL_QUEUES } else { 0 }, meanwhile)
    }

    /// The same, with these features.
    pub(super) fn connect_with(path: &str, pairs: usize, features: u64, meanwhile: &mut dyn FnMut()) -> Guest {
        let frontend = Frontend::at(path);
        frontend.agree(features);
        let new = |pair| [0, 1].map(|way| Driver::behind(behind(2 * pair + way)));
        let mut guest =
            Guest { frontend, pairs: (0..pairs).map(new).collect(), bells: Vec::new(), sent: 0, came: BTreeSet::new() };
        for ring in 0..2 * pairs {
            guest.bring(ring, meanwhile);
            let driver = &guest.pairs[ring / 2][ring % 2];
            guest.bells.push(guest.frontend.begin_ring(ring as u64, driver, meanwhile));
        }
        (0..pairs).for_each(|pair| (0..8).for_each(|_| guest.pairs[pair][0].post(2048)));
        guest
    }

    pub(super) fn ask(&self, request: u32, body: &[u64], descriptor: Option<&OwnedFd>) -> u64 {
        self.frontend.asked(request, body, descriptor, &mut || {})
    }

    /// Brings a ring's memory.
    fn bring(&self, ring: usize, meanwhile: &mut dyn FnMut()) {
        for (number, descriptor) in self.pairs[ring / 2][ring % 2].descriptors.iter().enumerate() {
            let Place { guest, bytes, user, offset } = Driver::place_of(behind(ring), number);
            let words = [0, guest, bytes, user, offset];
            assert_eq!(self.frontend.asked(37, &words, Some(descriptor), meanwhile), 0);
        }
    }

    /// Sends a frame by a pair, if there is room.
    pub(super) fn send(&mut self, pair: usize) {
        let driver = &mut self.pairs[pair][1];
        while driver.used().is_some() {}
        if driver.under_way() < 8 {
            let mut frame = [0; 60];
            frame[..4].copy_from_slice(&self.sent.to_ne_bytes());
            driver.send(&[0; LONG_HEADER], &frame);
            self.sent += 1;
        }
    }

    /// Takes what has come by any pair.
    pub(super) fn receive(&mut self) {
        for [inward, _] in &mut self.pairs {
            while let Some(got) = inward.got() {
                let number = u32::from_ne_bytes(got[LONG_HEADER..][..4].try_into().expect("four bytes"));
                assert!(number < self.sent && self.came.insert(number), "frame {number} came twice");
                inward.post(2048);
            }
        }
    }

    /// Receives until so many frames or fewer are under way.
    pub(super) fn settle(&mut self, left: u32, meanwhile: &mut dyn FnMut()) {
        let began = conic_native::clock::now();
        while self.sent - self.came.len() as u32 > left {
            meanwhile();
            self.receive();
            let now = conic_native::clock::now();
            assert!(now.since(began).seconds() < 20.0, "{} of {}", self.came.len(), self.sent);
            conic_native::yield_core();
        }
    }

    /// Stops a ring, and looks for a while whether anybody touches it.
    fn stop(&mut self, ring: usize) {
        let base = self.ask(11, &[ring as u64], None);
        let driver = &self.pairs[ring / 2][ring % 2];
        let before = driver.image();
        assert_eq!(base, ring as u64 | u64::from(driver.used_index()) << 32, "where it stands");
        for _ in 0..50 {
            conic_native::yield_core();
            assert!(driver.image() == before, "ring {ring} is touched behind the answer");
        }
    }

    fn go_on(&mut self, ring: usize) {
        let base = u64::from(self.pairs[ring / 2][ring % 2].used_index());
        assert_eq!(self.ask(10, &[ring as u64 | base << 32], None), 0);
        assert_eq!(self.ask(12, &[ring as u64], Some(&self.bells[ring][0])), 0);
    }
}

/// Ends threads, whatever becomes of the test that began them.
pub(super) struct Ended<'a>(pub(super) &'a Flag);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// Sends back what comes, until the end; what finds no ring or no room is tried again.
pub(super) fn send_back(mut part: VhostUser, stop: &Flag) -> VhostUser {
    let (mut frame, mut waits) = ([0; MAX_FRAME], None);
    while !stop.is_up() {
        let now = conic_native::clock::now();
        if waits.is_none()
            && let Receive::Frame { length, .. } = part.receive(now, &mut frame).expect("it does not fail")
        {
            waits = Some(length);
        }
        if let Some(length) = waits {
            if part.transmit(now, &frame[..length]).expect("it does not fail") == Transmit::Accepted {
                waits = None;
            } else {
                // The ring that it waits for may be told of by the control channel, or end with the session.
                part.attend(now);
                conic_native::yield_core();
            }
            part.flush(now).expect("it does not fail");
        } else {
            conic_native::yield_core();
        }
    }
    part
}

#[test]
fn pairs_stop_and_go_on_and_lose_their_memory_while_every_frame_of_theirs_comes_back_once() {
    let (folder, stop) = (folder(), Flag::new());
    let options = options(&folder);
    let mut generator = fastrand::Rng::with_seed(2031);
    std::thread::scope(|scope| {
        for part in parts(&options, 3) {
            let stop = &stop;
            scope.spawn(move || send_back(part, stop));
        }
        let _ended = Ended(&stop);
        let mut guest = Guest::connect(&options.socket, 3, &mut || {});
        for _ in 0..60 {
            let ring = generator.usize(..6);
            (0..20).for_each(|_| guest.send(generator.usize(..3)));
            match generator.usize(..4) {
                0 => {
                    guest.stop(ring);
                    guest.send(ring / 2);
                    guest.go_on(ring);
                }
                1 => {
                    // What lies in one from the driver is thrown away.
                    if ring % 2 == 1 {
                        guest.settle(0, &mut || {});
                    }
                    assert_eq!(guest.ask(18, &[ring as u64], None), 0);
                    guest.receive();
                    guest.send((ring / 2 + 1) % 3);
                    assert_eq!(guest.ask(18, &[ring as u64 | 1 << 32], None), 0);
                }
                2 => {
                    let place = Driver::place_of(behind(ring), 0);
                    assert_eq!(guest.ask(38, &[0, place.guest, place.bytes, place.user, 0], None), 0);
                    let before = guest.pairs[ring / 2][ring % 2].image();
                    guest.send((ring / 2 + 1) % 3);
                    assert!(guest.pairs[ring / 2][ring % 2].image() == before, "{ring} has lost its memory");
                    let descriptor = &guest.pairs[ring / 2][ring % 2].descriptors[0];
                    assert_eq!(guest.ask(37, &[0, place.guest, place.bytes, place.user, 0], Some(descriptor)), 0);
                }
                _ => assert_eq!(guest.ask(13, &[ring as u64], Some(&guest.bells[ring][1])), 0),
            }
            guest.settle(30, &mut || {});
        }
        guest.settle(0, &mut || {});
        assert!(guest.sent > 500, "{} frames", guest.sent);
    });
}

#[test]
fn rings_that_are_scribbled_over_end_sessions_and_no_thread() {
    let (folder, stop) = (folder(), Flag::new());
    let options = options(&folder);
    let mut generator = fastrand::Rng::with_seed(2032);
    let parts = std::thread::scope(|scope| {
        let serve = |part| scope.spawn(|| send_back(part, &stop));
        let threads: Vec<_> = parts(&options, 2).into_iter().map(serve).collect();
        let ended = Ended(&stop);
        for _ in 0..12 {
            let mut guest = Guest::connect(&options.socket, 2, &mut || {});
            for _ in 0..400 {
                guest.send(generator.usize(..2));
                let driver = &guest.pairs[generator.usize(..2)][generator.usize(..2)];
                driver.scribble(&mut generator);
            }
            // Wrong indexes in rings of the second part: the first is told, and hangs up.
            guest.pairs[1].iter_mut().for_each(Driver::run_ahead);
            let began = conic_native::clock::now();
            while !guest.frontend.is_shut_out() {
                conic_native::yield_core();
                assert!(conic_native::clock::now().since(began).seconds() < 20.0);
            }
        }
        drop(ended);
        threads.into_iter().map(|thread| thread.join().expect("it goes on")).collect::<Vec<_>>()
    });
    let of = |part: &VhostUser, wanted| part.details().iter().find(|(name, _)| *name == wanted).expect("it").1;
    assert_eq!((of(&parts[0], "sessions"), of(&parts[0], "sessions_ended")), (12, 12));
    assert_eq!((of(&parts[1], "sessions"), of(&parts[1], "sessions_ended")), (0, 0), "the first counts them");
    assert!(of(&parts[1], "fault_index") > 0, "{:?}", parts[1].details());
}

/// Everybody looks, at a time at which the socket is looked at; what comes is sent back.
pub(super) fn look(own: &mut [Option<VhostUser>], now: Time) {
    for part in own.iter_mut().flatten() {
        part.attend(now);
        let mut frame = [0; MAX_FRAME];
        while let Receive::Frame { length, .. } = part.receive(now, &mut frame).expect("it does not fail") {
            assert_eq!(part.transmit(now, &frame[..length]).expect("it does not fail"), Transmit::Accepted);
            part.flush(now).expect("it does not fail");
        }
    }
}

#[test]
fn another_process_goes_on_with_all_parts_or_the_frontend_comes_again() {
    let mut generator = fastrand::Rng::with_seed(2033);
    let (mut kept, mut ended, mut now) = (0, 0, Time::ZERO);
    for round in 0..80 {
        let folder = folder();
        let (options, count) = (options(&folder), generator.usize(1..=3));
        let options = VhostOptions { queues: count, ..options };
        let mut own: Vec<Option<VhostUser>> = parts(&options, count).into_iter().map(Some).collect();
        let mut guest = Guest::connect(&options.socket, count, &mut || look(&mut own, Time::ZERO));
        (0..20).for_each(|_| guest.send(generator.usize(..count)));
        guest.settle(0, &mut || look(&mut own, Time::ZERO));
        let mut order: Vec<usize> = (0..count).collect();
        generator.shuffle(&mut order);
        let (between, after) = (generator.usize(..3), generator.usize(..count));
        let mut legacies: Vec<Option<Legacy>> = own.iter().map(|_| None).collect();
        let mut is_whole = true;
        (0..9).for_each(|_| guest.send(generator.usize(..count)));
        for (stopped, &number) in order.iter().enumerate() {
            let has_first = own[0].is_some();
            match between {
                // A ring begins anew between two that stop: with the other process, whoever had it.
                1 if stopped == after && has_first => {
                    let ring = generator.usize(..2 * count);
                    let meanwhile = &mut || own.iter_mut().flatten().for_each(|part| part.attend(now));
                    let base = guest.frontend.asked(11, &[ring as u64], None, meanwhile);
                    assert_eq!(base >> 32, guest.pairs[ring / 2][ring % 2].used_index().into());
                    assert_eq!(guest.frontend.asked(10, &[base], None, meanwhile), 0);
                    assert_eq!(guest.frontend.asked(12, &[ring as u64], Some(&guest.bells[ring][0]), meanwhile), 0);
                }
                2 if stopped == after && has_first => {
                    guest.frontend.hang_up();
                    now += milliseconds(5);
                    look(&mut own, now);
                    is_whole = false;
                }
                _ => {}
            }
            legacies[number] = own[number].take().expect("it is there").bequeath();
        }
        let legacies = legacies.into_iter().map(|legacy| legacy.expect("it can be passed on")).collect();
        let mut own: Vec<_> =
            VhostUser::inherit(&options, legacies).expect("they go on").into_iter().map(Some).collect();
        let all_up = own.iter().flatten().all(VhostUser::is_connected);
        assert_eq!(all_up, is_whole, "round {round}: {between} of {order:?} behind {after}");
        if !is_whole {
            ended += 1;
            guest = Guest::connect(&options.socket, count, &mut || look(&mut own, now));
            (0..9).for_each(|_| guest.send(generator.usize(..count)));
        }
        kept += u64::from(is_whole);
        guest.settle(0, &mut || look(&mut own, now));
    }
    assert!(kept > 20 && ended > 10, "{kept} went on, {ended} did not");
}

#[test]
fn what_was_passed_of_parts_is_all_that_belongs_to_them_or_is_refused() {
    let folder = folder();
    let options = VhostOptions { queues: 2, ..options(&folder) };
    let legacies = || {
        let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
        let guest = Guest::connect(&options.socket, 2, &mut || look(&mut own, Time::ZERO));
        let legacies: Vec<Legacy> =
            own.iter_mut().flatten().map(|part| part.bequeath().expect("it can be passed on")).collect();
        (legacies, guest)
    };
    assert!(VhostUser::inherit(&options, Vec::new()).is_err());
    for number in 0..2 {
        for cut in 0.. {
            let (mut whole, _guest) = legacies();
            let words = &mut whole[number].words;
            if cut == words.len() {
                break;
            }
            words.truncate(cut);
            assert!(VhostUser::inherit(&options, whole).is_err(), "{cut} words of part {number}");
            let _ = std::fs::remove_file(&options.socket);
        }
    }
    // Words of another session are no error: the frontend comes again.
    let (mut whole, guest) = legacies();
    whole[1].words[0] += 1;
    let own = VhostUser::inherit(&options, whole).expect("they go on");
    assert!(!own[0].is_connected() && guest.frontend.is_shut_out());
}

#[test]
fn each_part_is_woken_by_its_own_ring_and_by_what_the_first_does_to_it() {
    let folder = folder();
    let options = options(&folder);
    let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
    let mut guest = Guest::connect(&options.socket, 2, &mut || look(&mut own, Time::ZERO));
    let mut own: Vec<VhostUser> = own.into_iter().flatten().collect();
    let rest = |own: &mut [VhostUser]| {
        own.iter_mut().for_each(|part| {
            part.arm();
            assert_eq!(part.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("it does not fail"), Receive::None);
            assert!(part.next_due().is_none() && !is_awake(part));
        });
    };
    for pair in [0, 1] {
        rest(&mut own);
        guest.send(pair);
        rustix::io::write(&guest.bells[2 * pair + 1][0], &1u64.to_ne_bytes()).expect("an eventfd");
        assert_eq!([is_awake(&own[0]), is_awake(&own[1])], [pair == 0, pair == 1]);
        let got = own[pair].receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("it does not fail");
        assert!(matches!(got, Receive::Frame { length: 60, .. }), "{got:?}");
    }
    // The first begins a ring of the second's anew: that one has to ask for kicks again, and is not asked for them by the old one's.
    let first = |own: &mut [VhostUser], request: u32, body: &[u64], bell: Option<&OwnedFd>| {
        guest.frontend.asked(request, body, bell, &mut || own[0].attend(Time::ZERO))
    };
    rest(&mut own);
    let base = first(&mut own, 11, &[3], None);
    assert_eq!(first(&mut own, 10, &[base], None), 0);
    // One that has never rung.
    let kick = event();
    assert_eq!(first(&mut own, 12, &[3], Some(&kick)), 0);
    assert!(is_awake(&own[1]));
    rest(&mut own);
    // A driver that says that it will not kick is looked at again and again, by the part that it is said of.
    assert_eq!(first(&mut own, 12, &[0x103], None), 0);
    assert!(is_awake(&own[1]));
    assert_eq!([own[0].next_due(), own[1].next_due()], [None, Some(Time::ZERO)]);
}

#[test]
fn a_part_whose_pair_is_off_sends_by_the_others_and_none_sends_when_all_are() {
    let folder = folder();
    let options = options(&folder);
    let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
    let mut guest = Guest::connect(&options.socket, 2, &mut || look(&mut own, Time::ZERO));
    let mut own: Vec<VhostUser> = own.into_iter().flatten().collect();
    for (is_off, ring, expected) in
        [(false, 2, Transmit::Accepted), (true, 0, Transmit::Accepted), (true, 2, Transmit::Refused)]
    {
        if is_off {
            let off = if ring == 0 { 2 } else { 0 };
            assert_eq!(guest.frontend.asked(18, &[off], None, &mut || own[0].attend(Time::ZERO)), 0);
        }
        let transmit = own[1].transmit(Time::ZERO, &[7; 60]).expect("it does not fail");
        own[1].flush(Time::ZERO).expect("it does not fail");
        assert_eq!(transmit, expected, "{ring}");
        let came = guest.pairs.iter_mut().position(|[inward, _]| inward.got().is_some());
        assert_eq!(came, (expected == Transmit::Accepted).then_some(ring / 2));
    }
}

#[test]
fn a_packet_that_was_made_ready_for_another_driver_is_made_ready_again() {
    let folder = folder();
    let mut own: Vec<Option<VhostUser>> = parts(&options(&folder), 1).into_iter().map(Some).collect();
    let _guest = Guest::connect(&options(&folder).socket, 1, &mut || look(&mut own, Time::ZERO));
    let port = own[0].as_mut().expect("it is there");
    let begun = Metadata { checksum: Checksum::Partial { start: 34, offset: 6 }, ..Metadata::NONE };
    port.features = MODERN | feature::GUEST_CHECKSUM;
    assert_eq!(port.put(Time::ZERO, begun, None, &[7; 60]), Transmit::Full);
    port.features = port.outside.rings.all().features();
    assert_eq!(port.put(Time::ZERO, begun, None, &[7; 60]), Transmit::Accepted);
}

#[test]
fn a_ring_that_begins_behind_the_end_of_its_part_goes_on_too() {
    let folder = folder();
    let options = VhostOptions { queues: 2, ..options(&folder) };
    let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
    let mut guest = Guest::connect(&options.socket, 2, &mut || look(&mut own, Time::ZERO));
    (0..5).for_each(|_| guest.send(1));
    guest.settle(0, &mut || look(&mut own, Time::ZERO));
    let attend = |own: &mut [Option<VhostUser>], request: u32, body: &[u64], bell: Option<&OwnedFd>| {
        let meanwhile = &mut || own.iter_mut().flatten().for_each(|part| part.attend(Time::ZERO));
        guest.frontend.asked(request, body, bell, meanwhile)
    };
    let bases = [2, 3].map(|ring| attend(&mut own, 11, &[ring], None));
    let other = own[1].take().expect("it is there").bequeath().expect("it can be passed on");
    for (ring, base) in [2, 3].into_iter().zip(bases) {
        assert_eq!(attend(&mut own, 10, &[base], None), 0);
        assert_eq!(attend(&mut own, 12, &[ring], Some(&guest.bells[ring as usize][0])), 0);
    }
    let first = own[0].take().expect("it is there").bequeath().expect("it can be passed on");
    let heirs = VhostUser::inherit(&options, vec![first, other]).expect("they go on");
    let mut own: Vec<_> = heirs.into_iter().map(Some).collect();
    assert!(own.iter().flatten().all(VhostUser::is_connected));
    (0..5).for_each(|_| guest.send(1));
    guest.settle(0, &mut || look(&mut own, Time::ZERO));
}

#[test]
fn each_part_leaves_the_rest_of_a_packet_that_it_cuts() {
    let folder = folder();
    let options = VhostOptions { queues: 2, offload: true, ..options(&folder) };
    let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
    let features = MODERN | feature::SEVERAL_QUEUES | feature::CHECKSUM | feature::HOST_TCP[0];
    let mut guest = Guest::connect_with(&options.socket, 2, features, &mut || look(&mut own, Time::ZERO));
    let mut own: Vec<VhostUser> = own.into_iter().flatten().collect();
    for (pair, part) in own.iter_mut().enumerate() {
        guest.pairs[pair][1].send(&TO_CUT, &begun(1500 + 400 * pair));
        assert_eq!(received(part).len(), 1054);
    }
    let legacies = own.iter_mut().map(|part| part.bequeath().expect("it can be passed on")).collect();
    let mut own = VhostUser::inherit(&options, legacies).expect("they go on");
    for (part, rest) in own.iter_mut().zip([554, 954]) {
        assert_eq!(received(part).len(), rest);
    }
}

#[test]
fn a_fault_of_a_session_that_is_over_takes_no_ring_of_the_next() {
    let folder = folder();
    let options = options(&folder);
    let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
    let mut guest = Guest::connect(&options.socket, 2, &mut || look(&mut own, Time::ZERO));
    let session = |own: &[Option<VhostUser>]| {
        let part = own[1].as_ref().expect("it is there");
        part.outside.rings.all().lock(3).served.as_ref().expect("it is in use").session
    };
    let before = session(&own);
    guest.frontend.hang_up();
    look(&mut own, milliseconds(5));
    guest = Guest::connect(&options.socket, 2, &mut || look(&mut own, milliseconds(5)));
    let now = session(&own);
    assert_ne!(before, now);
    let part = own[1].as_mut().expect("it is there");
    part.fault(Time::ZERO, (3, before), Fault::Index);
    (0..5).for_each(|_| guest.send(1));
    guest.settle(0, &mut || look(&mut own, milliseconds(5)));
    // One of its own does.
    let part = own[1].as_mut().expect("it is there");
    part.fault(Time::ZERO, (3, now), Fault::Index);
    assert!(part.outside.rings.all().lock(3).served.is_none());
    look(&mut own, milliseconds(10));
    assert!(guest.frontend.is_shut_out());
}

/// Whatever a driver sends by a pair that it has switched off must not leave when that is on again, nor lie there for as long.
#[test]
fn a_ring_from_the_driver_that_is_off_is_emptied_and_nothing_comes_of_it() {
    let folder = folder();
    let options = VhostOptions { queues: 2, ..options(&folder) };
    let mut own: Vec<Option<VhostUser>> = parts(&options, 2).into_iter().map(Some).collect();
    let mut guest = Guest::connect(&options.socket, 2, &mut || look(&mut own, Time::ZERO));
    let mut own: Vec<VhostUser> = own.into_iter().flatten().collect();
    let asked = |own: &mut [VhostUser], guest: &Guest, request: u32, body: u64| {
        guest.frontend.asked(request, &[body], None, &mut || own[0].attend(Time::ZERO))
    };
    let receive = |own: &mut [VhostUser]| own[1].receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("it does not fail");
    let came = Receive::Frame { length: 60, captured: None };
    // What lies there when it is switched off, and what comes then.
    (0..2).for_each(|_| guest.send(1));
    assert_eq!(receive(&mut own), came);
    assert_eq!(asked(&mut own, &guest, 18, 3), 0);
    guest.send(1);
    assert_eq!([0; 3].map(|_| receive(&mut own)), [Receive::Skipped, Receive::Skipped, Receive::None]);
    let count = |own: &[VhostUser]| own[1].details().iter().find(|(name, _)| *name == "packets_discarded").copied();
    assert_eq!((guest.pairs[1][1].used_index(), count(&own)), (3, Some(("packets_discarded", 2))));
    assert!(own[0].description().contains("1 rings in and 2 out"), "{}", own[0].description());
    // Whoever goes on empties it too.
    let legacies = own.iter_mut().map(|part| part.bequeath().expect("it can be passed on")).collect();
    let mut own = VhostUser::inherit(&options, legacies).expect("they go on");
    guest.send(1);
    assert_eq!([receive(&mut own), receive(&mut own)], [Receive::Skipped, Receive::None]);
    assert_eq!(guest.pairs[1][1].used_index(), 4);
    // On again, at once or when it was said where it begins: what is sent then comes.
    for is_set in [false, true] {
        if is_set {
            assert_eq!(asked(&mut own, &guest, 18, 3), 0);
            let base = u64::from(guest.pairs[1][1].used_index());
            assert_eq!(asked(&mut own, &guest, 10, 3 | base << 32), 0);
        }
        assert_eq!(asked(&mut own, &guest, 18, 3 | 1 << 32), 0);
        guest.send(1);
        assert_eq!([receive(&mut own), receive(&mut own)], [came, Receive::None]);
    }
    // One to the driver is let alone: nothing is put into it.
    assert_eq!([2, 0].map(|ring| asked(&mut own, &guest, 18, ring)), [0, 0]);
    let image = [0, 1].map(|pair: usize| guest.pairs[pair][0].image());
    assert_eq!(own[1].transmit(Time::ZERO, &[7; 60]).expect("it does not fail"), Transmit::Refused);
    assert_eq!([0, 1].map(|pair: usize| guest.pairs[pair][0].image()), image);
    // One that is only emptied is not in use for who agrees on something else.
    let features = MODERN | feature::EVENT_INDEX;
    assert_eq!([(11, 1), (18, 3)].map(|(request, body)| asked(&mut own, &guest, request, body)), [1, 0]);
    assert_eq!(asked(&mut own, &guest, 2, features), 0);
}
