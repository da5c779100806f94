//! The frontend in front of conic's own backend, and of one of the tests' own that says and writes what it likes.

use conic_fabric::Time;
use conic_native::Closer;
use rustix::net::SocketType;

use super::*;
use crate::offload::checksum::{Verdict, verify};
use crate::offload::virtio::{Checksum, Metadata};
use crate::peer::Role;
use crate::peer::socket::Listener;
use crate::vhost::channel::Heard;
use crate::vhost::message::{Answer, Request, answer};
use crate::vhost::ring::{INDEX, MERGED, SLOTS, USED};
use crate::{MAX_FRAME, Port, Receive, Transmit, VhostUser, VirtioUser};

fn options(folder: &tempfile::TempDir) -> VhostOptions {
    VhostOptions::new(folder.path().join("socket").to_str().expect("text"))
}

fn seconds(count: u64) -> Time {
    Time::from_nanoseconds(1_000_000_000 * count)
}

/// Both halves, joined.
struct Pair {
    backend: VhostUser,
    frontend: VirtioUser,
    now: Time,
}

impl Pair {
    fn open(backend: &VhostOptions, frontend: &VhostOptions) -> Pair {
        let pair = Pair {
            backend: VhostUser::open(backend).expect("a port"),
            frontend: VirtioUser::open(frontend).expect("a port"),
            now: Time::ZERO,
        };
        pair.joined()
    }

    /// Looks until both are there.
    fn joined(mut self) -> Pair {
        for _ in 0..10_000 {
            self.look();
            if self.backend.is_up() && self.frontend.is_up() {
                return self;
            }
        }
        panic!("{}; {}", self.backend.description(), self.frontend.description());
    }

    /// A millisecond passes, and both look; no frame may come.
    fn look(&mut self) {
        self.now += Time::from_nanoseconds(1_100_000);
        for port in [&mut self.backend as &mut dyn Port, &mut self.frontend] {
            assert_eq!(port.receive(self.now, &mut [0; MAX_FRAME]).expect("a port"), Receive::None);
        }
    }

    /// Sends frames of all these lengths both ways, several times round the ring.
    fn exchange(&mut self, lengths: &[usize], frames: usize) {
        let mut buffer = [0; MAX_FRAME];
        for number in 0..frames {
            let length = lengths[number % lengths.len()];
            let frame: Vec<u8> = (0..length).map(|at| (at * 31 + number) as u8).collect();
            for is_back in [false, true] {
                let (from, to): (&mut dyn Port, &mut dyn Port) = match is_back {
                    false => (&mut self.frontend, &mut self.backend),
                    true => (&mut self.backend, &mut self.frontend),
                };
                assert_eq!(from.transmit(self.now, &frame).expect("a port"), Transmit::Accepted, "{number} {length}");
                from.flush(self.now).expect("a port");
                let got = to.receive(self.now, &mut buffer).expect("a port");
                assert_eq!(got, Receive::Frame { length, captured: None }, "{number} {is_back}");
                assert_eq!(buffer[..length], frame[..]);
                assert_eq!(to.receive(self.now, &mut buffer).expect("a port"), Receive::None);
            }
        }
    }
}

const LENGTHS: [usize; 8] = [60, 64, 1514, 2036, 2037, 4084, 4085, 9600];

#[test]
fn frames_of_all_sizes_go_round_both_rings_whoever_listens() {
    let folder = tempfile::tempdir().expect("a folder");
    for role in [Role::Server, Role::Client] {
        let other = if role == Role::Server { Role::Client } else { Role::Server };
        let (backend, frontend) = (
            VhostOptions { role, ..options(&folder) },
            VhostOptions { role: other, log2_slots: 6, ..options(&folder) },
        );
        let mut pair = Pair::open(&backend, &frontend);
        pair.exchange(&LENGTHS, 400);
        // Who comes back is served again, in memory of its own.
        let Pair { backend: server, frontend: gone, now } = pair;
        drop(gone);
        pair = Pair { backend: server, frontend: VirtioUser::open(&frontend).expect("a port"), now }.joined();
        pair.exchange(&LENGTHS, 40);
        let Pair { backend: gone, frontend: client, now } = pair;
        drop(gone);
        pair = Pair { backend: VhostUser::open(&backend).expect("a port"), frontend: client, now }.joined();
        pair.exchange(&LENGTHS, 40);
        let faults = |port: &dyn Port| {
            port.details().iter().filter(|(name, _)| name.starts_with("fault")).map(|(_, count)| count).sum::<u64>()
        };
        assert_eq!((faults(&pair.backend), faults(&pair.frontend)), (0, 0));
    }
}

#[test]
fn a_ring_that_is_full_says_so_and_takes_more_when_it_was_emptied() {
    let folder = tempfile::tempdir().expect("a folder");
    let frontend = VhostOptions { role: Role::Client, log2_slots: 6, ..options(&folder) };
    let mut pair = Pair::open(&options(&folder), &frontend);
    for length in [60, 9600] {
        let frame = vec![7; length];
        let room = 64 / (length + 12).div_ceil(BUFFER);
        for round in 0..5 {
            for _ in 0..room {
                assert_eq!(pair.frontend.transmit(pair.now, &frame).expect("a port"), Transmit::Accepted, "{round}");
            }
            assert_eq!(pair.frontend.transmit(pair.now, &frame).expect("a port"), Transmit::Full);
            pair.frontend.flush(pair.now).expect("a port");
            for _ in 0..room {
                let got = pair.backend.receive(pair.now, &mut [0; MAX_FRAME]).expect("a port");
                assert_eq!(got, Receive::Frame { length, captured: None });
            }
            pair.look();
        }
    }
}

#[test]
fn a_frame_that_no_ring_can_hold_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let frontend = VhostOptions { role: Role::Client, log2_slots: 1, ..options(&folder) };
    let Pair { mut frontend, now, .. } = Pair::open(&options(&folder), &frontend);
    assert_eq!(frontend.transmit(now, &[7; 9600]).expect("a port"), Transmit::Refused);
    assert_eq!(frontend.counters().refused_over_mtu, 1);
    assert_eq!(frontend.transmit(now, &[7; 4084]).expect("a port"), Transmit::Accepted);
}

#[test]
fn several_queues_are_asked_for_and_as_many_used_as_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    for (offered, asked, used) in [(4, 2, 2), (2, 4, 2), (1, 4, 1), (4, 1, 1)] {
        let backend = VhostOptions { queues: offered, ..options(&folder) };
        let frontend = VhostOptions { role: Role::Client, queues: asked, ..options(&folder) };
        let mut pair = Pair::open(&backend, &frontend);
        pair.exchange(&LENGTHS, 40);
        let word = format!("{used} rings in and {used} out");
        let said = [pair.backend.description(), pair.frontend.description()];
        assert!(said.iter().all(|said| said.contains(&word)), "{said:?}");
    }
}

#[test]
fn who_sleeps_is_woken_by_the_other_half() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut pair = Pair::open(&options(&folder), &VhostOptions { role: Role::Client, ..options(&folder) });
    for _ in 0..3 {
        let Pair { backend, frontend, now } = &mut pair;
        for port in [&mut *backend as &mut dyn Port, frontend] {
            assert_eq!(port.next_due(), Some(Time::ZERO), "nobody would wake it");
            port.arm();
            assert_eq!(port.receive(*now, &mut [0; MAX_FRAME]).expect("a port"), Receive::None);
            assert!(port.next_due().is_none() && !is_awake(port));
        }
        frontend.transmit(*now, &[1; 60]).expect("a port");
        frontend.flush(*now).expect("a port");
        assert!(is_awake(backend) && !is_awake(frontend));
        backend.transmit(*now, &[1; 60]).expect("a port");
        backend.flush(*now).expect("a port");
        assert!(is_awake(frontend));
        for port in [backend as &mut dyn Port, frontend] {
            assert!(matches!(port.receive(*now, &mut [0; MAX_FRAME]), Ok(Receive::Frame { length: 60, .. })));
            assert!(!is_awake(port), "what rang before is forgotten");
        }
    }
}

fn is_awake(port: &dyn Port) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let descriptor = port.descriptor().expect("it can be slept on");
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&NOW)) == Ok(1)
}

/// A TCP segment over IPv4 of so many bytes, whose checksum is begun.
fn unfinished(length: usize) -> (Vec<u8>, Metadata) {
    let mut frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
    let sum = !crate::offload::checksum::fold(crate::offload::checksum::sum(&frame[14..34], 0));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[46] = 0x50;
    let mut pseudo = [&frame[26..34], &[0, 6]].concat();
    pseudo.extend((length as u16 - 34).to_be_bytes());
    let begun = crate::offload::checksum::fold(crate::offload::checksum::sum(&pseudo, 0));
    frame[50..52].copy_from_slice(&begun.to_be_bytes());
    (frame, Metadata { checksum: Checksum::Partial { start: 34, offset: 16 }, segmentation: None })
}

#[test]
fn a_checksum_is_left_to_who_takes_it_so_and_completed_for_who_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (frame, metadata) = unfinished(600);
    for offload in [true, false] {
        let backend = VhostOptions { offload, ..options(&folder) };
        let frontend = VhostOptions { role: Role::Client, offload: true, ..options(&folder) };
        let Pair { mut backend, mut frontend, now } = Pair::open(&backend, &frontend);
        let sent = frontend.transmit_unfinished(now, &frame, metadata).expect("a port");
        assert_eq!(sent, Transmit::Accepted);
        frontend.flush(now).expect("a port");
        let (mut got, mut said) = (vec![0; MAX_FRAME], Metadata::NONE);
        let received = backend.receive_unfinished(now, &mut got, &mut said).expect("a port");
        assert_eq!(received, Receive::Frame { length: 600, captured: None });
        assert_eq!(said, if offload { metadata } else { Metadata::NONE });
        let is_right = verify(&got[..600]).transport == Verdict::Good;
        assert_eq!(is_right, !offload);
    }
}

/// A backend that answers what the test says.
struct Liar {
    channel: Channel,
    heard: Vec<u32>,
    /// The memory that it was given.
    memory: Option<Mapping>,
    bells: Vec<Held>,
    /// What was agreed on.
    features: u64,
}

/// What a backend of today has.
const FEATURES: u64 = feature::VERSION_1 | feature::MERGED_BUFFERS | feature::PROTOCOL;

impl Liar {
    fn accept(listener: &Listener) -> Liar {
        let (socket, _) = listener.accept().expect("a socket").expect("somebody has connected");
        let channel = Channel::of(socket, &Closer::start().expect("a thread"));
        Liar { channel, heard: Vec::new(), memory: None, bells: Vec::new(), features: 0 }
    }

    /// Answers what has come: `lie` may say something else than what is right.
    fn listen(&mut self, lie: impl Fn(u32, u64) -> Option<Vec<u8>>) {
        while let Heard::Message(header, body, mut descriptors) = self.channel.hear() {
            self.heard.push(header.request);
            match Request::read(header.request, &body).expect("a message") {
                Request::SetMemory(places) => {
                    let memory = descriptors.pop().expect("memory");
                    let bytes = places[0].bytes as usize;
                    self.memory = Some(Mapping::of(memory.as_fd(), bytes, 0).expect("memory"));
                }
                Request::SetFeatures(features) => self.features = features,
                Request::SetBell { .. } => self.bells.append(&mut descriptors),
                _ => {}
            }
            let right = match header.request {
                request::GET_FEATURES => FEATURES,
                request::GET_PROTOCOL => protocol::ALL | protocol::SEVERAL_QUEUES,
                request::GET_QUEUES => 1,
                _ => 0,
            };
            if header.needs_reply
                || matches!(header.request, request::GET_FEATURES | request::GET_PROTOCOL | request::GET_QUEUES)
            {
                let said = lie(header.request, right).unwrap_or_else(|| answer(header.request, Answer::Word(right)));
                let _ = self.channel.send(&said, None);
            }
        }
    }
}

/// A frontend that a liar has been joined to.
fn joined_to(lie: impl Fn(u32, u64) -> Option<Vec<u8>>) -> Joined {
    joined(false, lie)
}

type Joined = (VirtioUser, Liar, (Listener, tempfile::TempDir));

fn joined(offload: bool, lie: impl Fn(u32, u64) -> Option<Vec<u8>>) -> Joined {
    let folder = tempfile::tempdir().expect("a folder");
    let options = VhostOptions { role: Role::Client, queues: 2, log2_slots: 6, offload, ..options(&folder) };
    let closer = Closer::start().expect("a thread");
    let listener = Listener::open(&options.socket, SocketType::STREAM, false, &closer).expect("a socket");
    let mut port = VirtioUser::open(&options).expect("a port");
    port.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("a port");
    let mut liar = Liar::accept(&listener);
    for _ in 0..100 {
        liar.listen(&lie);
        port.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("a port");
    }
    (port, liar, (listener, folder))
}

#[test]
fn each_thing_is_said_once_and_in_order() {
    let (port, liar, _listener) = joined_to(|_, _| None);
    assert!(port.is_up(), "{}", port.description());
    let ring = [8, 10, 9, 13, 12];
    assert_eq!(liar.heard, [&[1, 15, 16, 3, 2, 5][..], &ring, &ring, &[18, 18]].concat());
    assert_eq!(liar.features, FEATURES);
    // Nobody is to ring until somebody sleeps.
    for (layout, begin) in rings() {
        let memory = liar.memory.as_ref().expect("memory");
        assert_eq!(memory.load_u16(begin + layout.available()), super::super::wish::NOT_NOW);
    }
    // What does not answer by agreement is told everything at once.
    let silent = |number, _| (number == request::GET_PROTOCOL).then(|| answer(number, Answer::Word(0)));
    let (port, liar, _listener) = joined_to(silent);
    assert!(port.is_up() && liar.heard.len() == 18, "{}", port.description());
}

#[test]
fn answers_that_cannot_be_end_the_connection_and_it_is_tried_again() {
    let all = [1, 15, 3, 2, 5, 8, 10, 9, 13, 12, 18];
    for at in all {
        let lies: [&dyn Fn(u32, u64) -> Vec<u8>; 4] = [
            &|number, word| answer(number + 1, Answer::Word(word)),
            &|number, _| ask(number, false, &[0, 0]),
            &|number, _| [&[number, 5, 4][..], &[0]].concat().into_iter().flat_map(u32::to_ne_bytes).collect(),
            // Twice: the second answers nothing.
            &|number, word| [answer(number, Answer::Word(word)), answer(number, Answer::Word(word))].concat(),
        ];
        for lie in lies {
            let (mut port, _liar, (listener, _folder)) =
                joined_to(|number, word| (number == at).then(|| lie(number, word)));
            assert!(!port.is_up() && port.description().contains("waiting; last"), "{at}: {}", port.description());
            port.receive(seconds(1), &mut [0; MAX_FRAME]).expect("a port");
            assert!(listener.accept().expect("a socket").is_some(), "it comes again");
        }
        if !matches!(at, 1 | 15) {
            let (port, ..) = joined_to(|number, _| (number == at).then(|| answer(number, Answer::Word(1))));
            assert!(!port.is_up() && port.description().contains("could not do"), "{at}: {}", port.description());
        }
    }
    // Several queues of which there is one are not agreed on.
    let several = |number, _| (number == 1).then(|| answer(1, Answer::Word(FEATURES | feature::SEVERAL_QUEUES)));
    let (port, liar, _listener) = joined_to(several);
    assert!(port.is_up() && liar.heard.contains(&request::GET_QUEUES));
    assert_eq!(liar.features, FEATURES);
    // A backend of old has one pair, and rings that need not be switched on.
    let (port, liar, _listener) =
        joined_to(|number, _| (number == 1).then(|| answer(1, Answer::Word(feature::VERSION_1))));
    let ring = [8, 10, 9, 13, 12];
    assert_eq!(liar.heard, [&[1, 3, 2, 5][..], &ring, &ring].concat());
    assert!(port.is_up());
    // That a checksum was found right is for drivers to hear, and for no device.
    let hears = FEATURES | feature::CHECKSUM | feature::GUEST_CHECKSUM;
    let (mut port, liar, _listener) = joined(true, |number, _| (number == 1).then(|| answer(1, Answer::Word(hears))));
    let (frame, _) = unfinished(600);
    let found = Metadata { checksum: Checksum::Valid, segmentation: None };
    assert_eq!(port.transmit_unfinished(Time::ZERO, &frame, found).expect("a port"), Transmit::Accepted);
    let (layout, begin) = rings()[1];
    assert_eq!(liar.memory.as_ref().expect("memory").load_u16(begin + layout.buffer(0)), 0);
    // An answer brings no descriptor.
    let (mut port, liar, _listener) = joined_to(|_, _| Some(Vec::new()));
    let said = answer(request::GET_FEATURES, Answer::Word(FEATURES));
    liar.channel.send(&said, Some(event().expect("a bell").as_fd())).expect("a socket");
    port.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("a port");
    assert!(port.description().contains("nothing that was asked"), "{}", port.description());
    // Who says nothing is waited for no longer than two seconds, from the beginning on.
    let (mut port, _liar, _listener) = joined_to(|_, _| Some(Vec::new()));
    port.receive(seconds(3), &mut [0; MAX_FRAME]).expect("a port");
    assert!(port.description().contains("too long"), "{}", port.description());
    let (mut port, mut liar, _listener) = joined_to(|number, _| (number == 5).then(Vec::new));
    port.receive(seconds(1), &mut [0; MAX_FRAME]).expect("a port");
    liar.listen(|_, _| None);
    assert!(port.description().contains("not yet in use"), "{}", port.description());
    port.receive(seconds(3), &mut [0; MAX_FRAME]).expect("a port");
    assert!(port.description().contains("too long"), "{}", port.description());
}

/// Where the rings of 64 slots lie: to the driver and from it.
fn rings() -> [(Layout, usize); 2] {
    let layout = Layout::of(64);
    [(layout, 0), (layout, layout.bytes())]
}

impl Liar {
    /// Says in a ring that so many elements were used, the last of them this one.
    fn uses(&self, ring: usize, index: u16, number: u32, bytes: u32) {
        let (layout, begin) = rings()[ring];
        let (memory, used) = (self.memory.as_ref().expect("memory"), begin + layout.used());
        let slot = usize::from(index.wrapping_sub(1)) % 64;
        memory.store_u32(used + SLOTS + USED * slot, number);
        memory.store_u32(used + SLOTS + USED * slot + 4, bytes);
        memory.store_release_u16(used + INDEX, index);
    }
}

fn count(port: &VirtioUser, kind: &str) -> u64 {
    port.details().into_iter().find(|(name, _)| *name == kind).map_or(0, |(_, count)| count)
}

fn receive(port: &mut VirtioUser) -> Receive {
    port.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("a port")
}

#[test]
fn more_than_is_under_way_and_what_is_not_are_not_taken_back() {
    let (mut port, liar, _listener) = joined_to(|_, _| None);
    // More than there are buffers, in either ring.
    liar.uses(0, 65, 0, 72);
    assert_eq!((receive(&mut port), count(&port, "fault_index"), port.is_up()), (Receive::Skipped, 1, false));
    let (mut port, liar, _listener) = joined_to(|_, _| None);
    liar.uses(1, 1, 0, 0);
    for _ in 0..64 {
        assert_eq!(port.transmit(Time::ZERO, &[7; 60]).expect("a port"), Transmit::Accepted);
    }
    liar.uses(1, 65, 0, 0);
    assert_eq!(port.transmit(Time::ZERO, &[7; 60]).expect("a port"), Transmit::Refused);
    assert!(count(&port, "fault_index") == 1 && !port.is_up());
    // More than are under way, though not more than there are slots.
    let (mut port, liar, _listener) = joined_to(|_, _| None);
    (0..12).for_each(|_| assert_eq!(port.transmit(Time::ZERO, &[7; 9600]).expect("a port"), Transmit::Accepted));
    liar.uses(1, 13, 0, 0);
    assert_eq!(port.transmit(Time::ZERO, &[7; 9600]).expect("a port"), Transmit::Refused);
    assert_eq!(count(&port, "fault_index"), 1);
    // One that was used twice.
    let (mut port, liar, _listener) = joined_to(|_, _| None);
    (0..64).for_each(|_| assert_eq!(port.transmit(Time::ZERO, &[7; 60]).expect("a port"), Transmit::Accepted));
    liar.uses(1, 1, 5, 0);
    liar.uses(1, 2, 5, 0);
    assert_eq!(port.transmit(Time::ZERO, &[7; 60]).expect("a port"), Transmit::Refused);
    assert_eq!(count(&port, "fault_number"), 1);
    assert_eq!(port.transmit(Time::ZERO, &[7; 60]).expect("a port"), Transmit::Accepted, "the first is free");
}

#[test]
fn elements_that_cannot_be_are_faults_by_kind() {
    // Numbers beyond the ring, bytes beyond the buffer or within the header; no buffers, and more than were used.
    let (mut port, liar, _listener) = joined_to(|_, _| None);
    let (layout, begin) = rings()[0];
    let memory = liar.memory.as_ref().expect("memory");
    let lies =
        [(64, 72, "fault_number"), (u32::MAX, 72, "fault_number"), (0, 2049, "fault_bounds"), (1, 11, "fault_bounds")];
    for (index, (number, bytes, kind)) in (1..).zip(lies) {
        memory.store_u16(begin + layout.buffer(number as usize % 64) + MERGED, 1);
        let before = count(&port, kind);
        liar.uses(0, index, number, bytes);
        assert_eq!((receive(&mut port), count(&port, kind)), (Receive::Skipped, before + 1), "{number} {bytes}");
    }
    for (index, merged) in [(5, 0), (6, 2), (7, 300)] {
        memory.store_u16(begin + layout.buffer(2) + MERGED, merged);
        liar.uses(0, index, 2, 72);
        assert_eq!(receive(&mut port), Receive::Skipped);
    }
    assert_eq!(count(&port, "fault_chain"), 3);
    // One that is sound is taken all the same.
    memory.store_u16(begin + layout.buffer(3) + MERGED, 1);
    liar.uses(0, 8, 3, 72);
    assert_eq!(receive(&mut port), Receive::Frame { length: 60, captured: None });
    // One that is longer than a frame may be is left out, all of it.
    for (index, part) in (9..).zip([2048; 5]) {
        memory.store_u16(begin + layout.buffer(index as usize) + MERGED, 5);
        liar.uses(0, index, index.into(), part);
    }
    assert_eq!((receive(&mut port), port.counters().skipped_oversized), (Receive::Skipped, 1));
    assert_eq!(receive(&mut port), Receive::None);
    port.flush(Time::ZERO).expect("a port");
    // Each buffer is back but those of which it said what cannot be: twice no number, twice no bytes of a chain.
    let available = begin + layout.available() + INDEX;
    assert_eq!(memory.load_u16(available), 64 + 13 - 2);
    // Patience has an end.
    for index in 14..=77 {
        liar.uses(0, index, 99, 72);
        receive(&mut port);
    }
    assert!(!port.is_up() && port.description().contains("too many broken"), "{}", port.description());
}

#[test]
fn memory_that_is_scribbled_over_harms_nobody() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut frames = 0;
    for _ in 0..40 {
        let (mut port, liar, _listener) = joined_to(|_, _| None);
        let memory = liar.memory.as_ref().expect("memory");
        let mut next = [0u16; 2];
        for _ in 0..500 {
            let ring = random.usize(..2);
            let (layout, begin) = rings()[ring];
            if random.u8(..) < 60 {
                // Anywhere in what is not buffers, the used ring most of all.
                let from = if random.bool() { layout.used() } else { 0 };
                memory.store_u16(begin + random.usize(from / 2..layout.buffer(0) / 2) * 2, random.u16(..));
            } else {
                next[ring] = next[ring].wrapping_add(1);
                let number = random.u32(..66);
                memory.store_u16(begin + layout.buffer(number as usize % 64) + MERGED, random.u16(..8).clamp(1, 2));
                liar.uses(ring, next[ring], number, random.u32(..2100));
            }
            let mut frame = [0; MAX_FRAME];
            frames += u64::from(matches!(port.receive(Time::ZERO, &mut frame), Ok(Receive::Frame { .. })));
            port.transmit(Time::ZERO, &frame[..random.usize(60..5000)]).expect("a port");
            port.flush(Time::ZERO).expect("a port");
        }
    }
    assert!(frames > 100, "{frames}: nothing came through");
}
