//! The port with a frontend of the tests' own: what is agreed, what is refused, who comes and goes.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::half::feature;
use super::message::Place;
use super::ring::tests::{Driver, LENGTH, REGION};
use super::*;
use crate::peer::socket;

/// The features that a driver of today agrees on.
pub(super) const MODERN: u64 = feature::VERSION_1 | feature::MERGED_BUFFERS | feature::PROTOCOL | feature::INDIRECT;
/// The protocol's: replies, and memory one region after the other.
const PROTOCOL: u64 = 1 << 3 | 1 << 15;
const NEEDS_REPLY: u32 = 8;

pub(super) fn milliseconds(count: u64) -> Time {
    Time::from_nanoseconds(1_000_000 * count)
}

pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

pub(super) fn options(folder: &tempfile::TempDir) -> VhostOptions {
    VhostOptions::new(folder.path().join("socket").to_str().expect("text"))
}

pub(super) fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd")
}

fn has_rung(bell: &OwnedFd) -> bool {
    let mut bytes = [0; 8];
    rustix::io::read(bell, &mut bytes).is_ok_and(|read| read == 8)
}

pub(super) fn is_awake(port: &VhostUser) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(port.outside.waiter(), PollFlags::IN)], Some(&NOW)) == Ok(1)
}

/// Looks at the socket, so often that it is looked at whatever the time is; no frame may come.
pub(super) fn look(port: &mut VhostUser, now: Time) {
    let mut frame = [0; MAX_FRAME];
    port.attend(now);
    let got = port.receive(now, &mut frame).expect("vhost-user does not fail");
    assert!(matches!(got, Receive::None | Receive::Skipped), "{got:?}");
}

/// A frontend that says what the test wants.
pub(super) struct Frontend {
    socket: OwnedFd,
    closer: Closer,
}

impl Frontend {
    fn connect(port: &mut VhostUser) -> Frontend {
        // What was before may be on its way out, and nobody is let in while it is too much.
        while port.outside.closer.waiting() > crate::peer::MOST_UNCLOSED / 2 {
            conic_native::yield_core();
        }
        let socket = socket::connect(&port.options.socket, SocketType::STREAM).expect("a server");
        port.attend(Time::ZERO);
        Frontend { socket, closer: Closer::start().expect("a thread") }
    }

    fn write(&self, bytes: &[u8], descriptor: Option<&OwnedFd>) {
        // One that the port has shut out finds out when it listens.
        let _ = socket::send(&self.socket, bytes, descriptor.map(AsFd::as_fd));
    }

    pub(super) fn say(&self, request: u32, flags: u32, body: &[u64], descriptor: Option<&OwnedFd>) {
        let header = [request, 1 | flags, 8 * body.len() as u32].map(u32::to_ne_bytes).concat();
        let body: Vec<u8> = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.write(&[header, body].concat(), descriptor);
    }

    /// The word that is answered; none where there is no answer.
    fn hear(&self) -> Option<u64> {
        let mut bytes = [0; 20];
        let piece = socket::receive(&self.socket, &mut bytes, &self.closer).ok()??;
        (piece.bytes == 20).then(|| u64::from_ne_bytes(bytes[12..].try_into().expect("eight bytes")))
    }

    /// Says something of which the other side tells how it went.
    fn ask(&self, port: &mut VhostUser, request: u32, body: &[u64], descriptor: Option<&OwnedFd>) -> Option<u64> {
        self.say(request, NEEDS_REPLY, body, descriptor);
        port.attend(Time::ZERO);
        self.hear()
    }

    /// One at a port that others look after.
    pub(super) fn at(path: &str) -> Frontend {
        let socket = socket::connect(path, SocketType::STREAM).expect("a server");
        Frontend { socket, closer: Closer::start().expect("a thread") }
    }

    /// Says something of which the other side tells how it went, and waits for that.
    pub(super) fn asked(
        &self,
        request: u32,
        body: &[u64],
        descriptor: Option<&OwnedFd>,
        meanwhile: &mut dyn FnMut(),
    ) -> u64 {
        self.say(request, NEEDS_REPLY, body, descriptor);
        let began = conic_native::clock::now();
        loop {
            if let Some(word) = self.hear() {
                return word;
            }
            meanwhile();
            assert!(conic_native::clock::now().since(began).seconds() < 20.0, "no answer to {request}");
            conic_native::yield_core();
        }
    }

    pub(super) fn hang_up(&self) {
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).expect("a socket");
    }

    /// Whether the port has hung up.
    pub(super) fn is_shut_out(&self) -> bool {
        let mut bytes = [0; 64];
        loop {
            match socket::receive(&self.socket, &mut bytes, &self.closer) {
                Ok(None) => return false,
                Ok(Some(piece)) if piece.bytes > 0 => {}
                _ => return true,
            }
        }
    }

    pub(super) fn agree(&self, features: u64) {
        self.say(3, 0, &[], None);
        self.say(2, 0, &[features], None);
        self.say(16, 0, &[PROTOCOL], None);
    }

    fn bring(&self, port: &mut VhostUser, driver: &Driver, begin: u64) {
        for (number, descriptor) in driver.descriptors.iter().enumerate() {
            let Place { guest, bytes, user, offset } = Driver::place_of(begin, number);
            assert_eq!(self.ask(port, 37, &[0, guest, bytes, user, offset], Some(descriptor)), Some(0));
        }
    }

    /// Sets a ring up; its kick and its call.
    fn begin(&self, port: &mut VhostUser, ring: u64, driver: &Driver) -> [OwnedFd; 2] {
        self.begin_ring(ring, driver, &mut || port.attend(Time::ZERO))
    }

    /// The same, at a port that is looked after meanwhile.
    pub(super) fn begin_ring(&self, ring: u64, driver: &Driver, meanwhile: &mut dyn FnMut()) -> [OwnedFd; 2] {
        let bells = [event(), event()];
        let parts = driver.parts();
        let addresses = [ring, parts.descriptors, parts.used, parts.available, 0];
        let [kick, call] = [Some(&bells[0]), Some(&bells[1])];
        assert_eq!(self.asked(8, &[ring | u64::from(LENGTH) << 32], None, meanwhile), 0);
        assert_eq!(self.asked(10, &[ring], None, meanwhile), 0);
        assert_eq!(self.asked(9, &addresses, None, meanwhile), 0);
        assert_eq!(self.asked(13, &[ring], call, meanwhile), 0);
        assert_eq!(self.asked(12, &[ring], kick, meanwhile), 0);
        assert_eq!(self.asked(18, &[ring | 1 << 32], None, meanwhile), 0);
        bells
    }
}

/// Both rings of a frontend that has agreed on everything.
pub(super) struct Guest {
    frontend: Frontend,
    /// To the driver, and from it.
    pub(super) inward: Driver,
    pub(super) outward: Driver,
    bells: [[OwnedFd; 2]; 2],
}

impl Guest {
    pub(super) fn start(port: &mut VhostUser, features: u64) -> Guest {
        let frontend = Frontend::connect(port);
        frontend.agree(features);
        port.attend(Time::ZERO);
        let behind = 2 * REGION as u64;
        let (inward, outward) = (Driver::behind(0), Driver::behind(behind));
        frontend.bring(port, &inward, 0);
        frontend.bring(port, &outward, behind);
        let bells = [frontend.begin(port, 0, &inward), frontend.begin(port, 1, &outward)];
        assert!(bells.iter().all(|[_, call]| has_rung(call)), "nobody knows what was said before");
        assert!(port.is_connected() && port.is_up());
        Guest { frontend, inward, outward, bells }
    }

    /// A frame each way, several times.
    fn exchange(&mut self, port: &mut VhostUser, from: usize) {
        let mut frame = [0; MAX_FRAME];
        for number in from..from + 3 * LENGTH as usize {
            let length = 60 + number * 97 % 1400;
            let sent: Vec<u8> = (0..length).map(|at| (at + number) as u8).collect();
            self.outward.send(&[0; LONG_HEADER], &sent);
            let got = port.receive(Time::ZERO, &mut frame).expect("a frame");
            assert_eq!(got, Receive::Frame { length, captured: None });
            assert_eq!(frame[..length], sent[..]);
            look(port, Time::ZERO);
            assert!(self.outward.used().is_some() && has_rung(&self.bells[1][1]), "the driver is told");
            assert_eq!(port.transmit(Time::ZERO, &sent).expect("a port"), Transmit::Full);
            self.inward.post(2048);
            assert_eq!(port.transmit(Time::ZERO, &sent).expect("a port"), Transmit::Accepted);
            assert_eq!(self.inward.got(), None, "it is shown when the burst is over");
            port.flush(Time::ZERO).expect("a port");
            let got = self.inward.got().expect("a frame");
            assert_eq!((got[MERGED_AT], &got[LONG_HEADER..]), (1, &sent[..]));
            assert!(has_rung(&self.bells[0][1]));
        }
    }
}

/// Where the header counts merged buffers.
const MERGED_AT: usize = 10;

#[test]
fn frames_go_both_ways_and_the_driver_is_told() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    assert!(!port.is_up());
    assert_eq!(port.transmit(Time::ZERO, &[0; 60]).expect("a port"), Transmit::Refused);
    let mut guest = Guest::start(&mut port, MODERN);
    guest.exchange(&mut port, 0);
    let counters = *port.counters();
    assert_eq!((counters.received_frames, counters.transmitted_frames, counters.refused_link_down), (48, 48, 1));
    drop(guest);
    look(&mut port, Time::ZERO);
    assert!(!port.is_up() && port.description().contains("the other side is gone"), "{}", port.description());
}

#[test]
fn who_sleeps_is_woken_by_a_kick_a_message_and_a_frontend() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    let connected = socket::connect(&port.options.socket, SocketType::STREAM).expect("a server");
    assert!(is_awake(&port));
    drop(connected);
    look(&mut port, Time::ZERO);
    look(&mut port, Time::ZERO);
    let mut guest = Guest::start(&mut port, MODERN);
    for _ in 0..3 {
        assert_eq!(port.next_due(), Some(Time::ZERO), "nobody would wake it");
        port.arm();
        look(&mut port, Time::ZERO);
        assert!(port.next_due().is_none() && !is_awake(&port));
        guest.outward.send(&[0; LONG_HEADER], &[7; 60]);
        rustix::io::write(&guest.bells[1][0], &1u64.to_ne_bytes()).expect("an eventfd");
        assert!(is_awake(&port));
        let got = port.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("a frame");
        assert!(matches!(got, Receive::Frame { length: 60, .. }));
        // What is received ends the wish, and what rang before is forgotten.
        assert!(!is_awake(&port));
    }
    // A driver that says it will not kick is looked at again and again; its interrupts go to another bell, which rings at once.
    let call = event();
    assert_eq!(guest.frontend.ask(&mut port, 13, &[1], Some(&call)), Some(0));
    assert!(has_rung(&call));
    assert_eq!(guest.frontend.ask(&mut port, 12, &[0x101], None), Some(0));
    port.arm();
    look(&mut port, Time::ZERO);
    assert_eq!(port.next_due(), Some(Time::ZERO));
    // Another bell is waited for, and the old one no longer.
    let bell = event();
    assert_eq!(guest.frontend.ask(&mut port, 12, &[1], Some(&bell)), Some(0));
    port.arm();
    look(&mut port, Time::ZERO);
    rustix::io::write(&guest.bells[1][0], &1u64.to_ne_bytes()).expect("an eventfd");
    assert!(!is_awake(&port));
    rustix::io::write(&bell, &1u64.to_ne_bytes()).expect("an eventfd");
    assert!(is_awake(&port));
    look(&mut port, Time::ZERO);
    guest.frontend.say(1, 0, &[], None);
    assert!(is_awake(&port));
    look(&mut port, milliseconds(5));
    assert!(guest.frontend.hear().is_some());
}

#[test]
fn a_ring_stops_where_it_is_and_goes_on_there() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    let mut guest = Guest::start(&mut port, MODERN);
    guest.exchange(&mut port, 0);
    let base = guest.frontend.ask(&mut port, 11, &[1], None).expect("an answer");
    assert_eq!(base, 1 | 48 << 32);
    guest.outward.send(&[0; LONG_HEADER], &[7; 60]);
    look(&mut port, Time::ZERO);
    // Its memory goes and comes meanwhile. What was brought twice is there until it was taken away as often.
    let place = Driver::place_of(2 * REGION as u64, 0);
    let words = [0, place.guest, place.bytes, place.user, 0];
    assert_eq!(guest.frontend.ask(&mut port, 37, &words, Some(&guest.outward.descriptors[0])), Some(0));
    assert_eq!(guest.frontend.ask(&mut port, 38, &words, None), Some(0));
    assert_eq!(guest.frontend.ask(&mut port, 38, &words, None), Some(0));
    assert_eq!(guest.frontend.ask(&mut port, 38, &words, None), Some(1), "it is gone");
    assert_eq!(guest.frontend.ask(&mut port, 37, &words, Some(&guest.outward.descriptors[0])), Some(0));
    look(&mut port, Time::ZERO);
    assert_eq!(guest.frontend.ask(&mut port, 10, &[base], None), Some(0));
    assert_eq!(guest.frontend.ask(&mut port, 12, &[1], Some(&guest.bells[1][0])), Some(0));
    let got = port.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("a frame");
    assert!(matches!(got, Receive::Frame { length: 60, .. }), "{got:?}");
    look(&mut port, Time::ZERO);
    assert!(guest.outward.used().is_some());
    // A driver's reset stops everything until it is set up again.
    assert_eq!(guest.frontend.ask(&mut port, 39, &[0], None), Some(0));
    assert!(!port.is_up());
}

#[test]
fn another_process_goes_on_where_this_one_stops() {
    let folder = folder();
    let options = options(&folder);
    let mut port = VhostUser::open(&options).expect("a port");
    let mut guest = Guest::start(&mut port, MODERN);
    for round in 0..5 {
        guest.exchange(&mut port, 100 * round);
        // Some that are sent and not taken, and one that was put and not shown.
        guest.outward.send(&[0; LONG_HEADER], &[round as u8; 60]);
        guest.inward.post(2048);
        assert_eq!(port.transmit(Time::ZERO, &[round as u8; 60]).expect("a port"), Transmit::Accepted);
        let legacy = port.bequeath().expect("a legacy");
        drop(port);
        assert!(!guest.frontend.is_shut_out());
        port = VhostUser::inherit(&options, vec![legacy]).expect("a port").remove(0);
        assert!(port.is_up(), "{}", port.description());
        assert_eq!(guest.inward.got().map(|got| got[LONG_HEADER]), Some(round as u8));
        assert!(has_rung(&guest.bells[0][1]));
        let mut frame = [0; MAX_FRAME];
        let got = port.receive(Time::ZERO, &mut frame).expect("a frame");
        assert!(matches!(got, Receive::Frame { length: 60, .. }) && frame[0] == round as u8, "{got:?}");
        look(&mut port, Time::ZERO);
        assert!(guest.outward.used().is_some() && has_rung(&guest.bells[1][1]));
    }
    // One that is in the middle of a message comes again.
    guest.frontend.write(&[1, 0, 0], None);
    look(&mut port, milliseconds(3));
    let legacy = port.bequeath().expect("a legacy");
    drop(port);
    let mut port = VhostUser::inherit(&options, vec![legacy]).expect("a port").remove(0);
    assert!(guest.frontend.is_shut_out() && !port.is_up());
    let _again = Guest::start(&mut port, MODERN);
    // Nobody is no legacy either; words that are missing are an error.
    let mut nobody = VhostUser::open(&VhostOptions::new("@conic-vhost-legacy")).expect("a port");
    let legacy = nobody.bequeath().expect("a legacy");
    let short = Legacy { words: Vec::new(), ..legacy };
    assert!(VhostUser::inherit(&options, vec![short]).is_err());
}

/// What a port receives, of which something is there.
pub(super) fn received(port: &mut VhostUser) -> Vec<u8> {
    let mut frame = vec![0; MAX_FRAME];
    match port.receive(Time::ZERO, &mut frame).expect("a port") {
        Receive::Frame { length, .. } => frame[..length].to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_packet_that_is_being_cut_is_cut_to_its_end_by_whoever_goes_on() {
    let folder = folder();
    let options = VhostOptions { offload: true, ..options(&folder) };
    let mut port = VhostUser::open(&options).expect("a port");
    let mut guest = Guest::start(&mut port, MODERN | feature::CHECKSUM | feature::HOST_TCP[0]);
    guest.outward.send(&TO_CUT, &begun(2500));
    let whole: Vec<Vec<u8>> = (0..3).map(|_| received(&mut port)).collect();
    // Its frontend may have gone meanwhile.
    for is_there in [true, false] {
        guest.outward.send(&TO_CUT, &begun(2500));
        assert_eq!(received(&mut port), whole[0]);
        if !is_there {
            guest.frontend.hang_up();
            port.attend(milliseconds(1));
        }
        let legacy = port.bequeath().expect("a legacy");
        drop(port);
        port = VhostUser::inherit(&options, vec![legacy]).expect("a port").remove(0);
        assert_eq!((port.is_up(), port.next_due()), (is_there, Some(Time::ZERO)));
        assert_eq!([received(&mut port), received(&mut port)], whole[1..]);
        let got = port.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("a port");
        assert_eq!(got, Receive::None, "nothing comes twice");
    }
    // What does not belong to such a packet is an error.
    let mut guest = Guest::start(&mut port, MODERN | feature::CHECKSUM | feature::HOST_TCP[0]);
    guest.outward.send(&TO_CUT, &begun(100));
    received(&mut port);
    let before = port.bequeath().expect("a legacy").words.len();
    for change in [
        |words: &mut Vec<u64>, _| words.truncate(words.len() - 1),
        |words, _| words.push(0),
        |words, at| words[at] = 1 << 17,
        |words, at| words[at] = 30,
        |words, at| words[at + 1] = 0,
        |words, at| words[at + 2] = 1,
        |words, at| words[at + 2] = 3000,
    ] as [fn(&mut Vec<u64>, usize); 7]
    {
        let mut port = VhostUser::open(&VhostOptions { socket: "@conic-vhost-cut".to_owned(), ..options.clone() });
        let port = port.as_mut().expect("a port");
        let mut guest = Guest::start(port, MODERN | feature::CHECKSUM | feature::HOST_TCP[0]);
        guest.outward.send(&TO_CUT, &begun(2500));
        received(port);
        let mut legacy = port.bequeath().expect("a legacy");
        change(&mut legacy.words, before);
        assert!(VhostUser::inherit(&options, vec![legacy]).is_err());
    }
}

#[test]
fn a_packed_ring_stands_where_it_takes_and_uses_and_dpdk_says_the_one_alone() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    for (features, said, answer) in [
        (MODERN | feature::PACKED, 0x8005_8005, Some(0x8005_8005)),
        (MODERN | feature::PACKED, 0x8003, Some(0x8003_8003)),
        (MODERN, 0x8003, Some(0x8003)),
        (MODERN, 0x8005_8005, None),
    ] {
        let frontend = Frontend::connect(&mut port);
        frontend.agree(features);
        let heard = frontend.ask(&mut port, 10, &[said << 32], None);
        assert_eq!(heard, Some(u64::from(answer.is_none())));
        if let Some(answer) = answer {
            assert_eq!(frontend.ask(&mut port, 11, &[0], None), Some(answer << 32));
        }
        drop(frontend);
        look(&mut port, Time::ZERO);
    }
}

#[test]
fn what_cannot_be_is_answered_so_or_ends_the_session() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    let unsealed = OwnedFd::from(tempfile::tempfile_in("/dev/shm").expect("a file"));
    let pipe: OwnedFd = std::io::pipe().expect("a pipe").1.into();
    let place = Driver::place_of(0, 0);
    let region = [0, place.guest, place.bytes, place.user, 0];
    let lies: [(&str, u32, &[u64], Option<&OwnedFd>); 14] = [
        ("a feature that was not offered", 2, &[1 << 24], None),
        ("a feature of the protocol that was not offered", 16, &[1 << 3 | 1 << 8], None),
        ("memory without a descriptor", 37, &region, None),
        ("memory that can be cut", 37, &region, Some(&unsealed)),
        ("memory that is a pipe", 37, &region, Some(&pipe)),
        ("a bell that is a pipe", 12, &[0], Some(&pipe)),
        ("a bell of no ring", 12, &[2], Some(&pipe)),
        ("no slots", 8, &[0], None),
        ("three slots", 8, &[3 << 32], None),
        ("a ring that there is not", 8, &[2 | 16 << 32], None),
        ("a descriptor that belongs to nothing", 18, &[1 << 32], Some(&pipe)),
        ("an index beyond 16 bits", 10, &[1 << 48], None),
        ("a region that there is not", 38, &region, None),
        ("a message that was not agreed on", 21, &[0], None),
    ];
    for (what, request, body, descriptor) in lies {
        let frontend = Frontend::connect(&mut port);
        frontend.agree(MODERN);
        port.attend(Time::ZERO);
        assert_eq!(frontend.ask(&mut port, request, body, descriptor), Some(1), "{what}");
        assert!(!frontend.is_shut_out(), "{what}");
        frontend.say(request, 0, body, descriptor);
        port.attend(Time::ZERO);
        assert!(frontend.is_shut_out(), "{what}, and nobody wants to hear it");
    }
    for bytes in [&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0]] {
        let frontend = Frontend::connect(&mut port);
        frontend.write(bytes, None);
        port.attend(Time::ZERO);
        assert!(frontend.is_shut_out(), "{bytes:?}");
    }
    // Each byte of a message with a descriptor of its own.
    let frontend = Frontend::connect(&mut port);
    let bytes = [[37, 1, 512].map(u32::to_ne_bytes).concat(), vec![0; 100]].concat();
    for (number, byte) in bytes.iter().enumerate().take(message::MOST_REGIONS + 1) {
        assert!(!frontend.is_shut_out(), "{number}");
        frontend.write(&[*byte], Some(&pipe));
        port.attend(Time::ZERO);
    }
    assert!(frontend.is_shut_out());
    let details = port.details();
    assert!(details.contains(&("requests_failed", 14)) && details.contains(&("peers_refused", 17)), "{details:?}");
}

#[test]
fn who_says_nothing_or_half_of_it_makes_way_and_there_is_one_at_a_time() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    let silent = Frontend::connect(&mut port);
    let second = Frontend::connect(&mut port);
    assert!(second.is_shut_out() && !silent.is_shut_out());
    assert_eq!(port.next_due(), Some(milliseconds(2000)));
    look(&mut port, milliseconds(1999));
    assert!(!silent.is_shut_out());
    look(&mut port, milliseconds(2000));
    assert!(silent.is_shut_out());
    // Who has said something may be silent for as long as a machine takes to boot; not in the middle of a message.
    let booting = Frontend::connect(&mut port);
    booting.say(1, 0, &[], None);
    look(&mut port, milliseconds(3000));
    look(&mut port, milliseconds(900_000));
    assert!(booting.hear().is_some() && !booting.is_shut_out());
    booting.write(&[1, 0, 0, 0, 1], None);
    look(&mut port, milliseconds(900_001));
    look(&mut port, milliseconds(902_000));
    assert!(!booting.is_shut_out());
    look(&mut port, milliseconds(902_001));
    assert!(booting.is_shut_out());
    assert!(port.details().contains(&("handshakes_timed_out", 2)), "{:?}", port.details());
}

#[test]
fn who_talks_on_and_on_is_heard_a_few_times_in_a_millisecond() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    let frontend = Frontend::connect(&mut port);
    let heard = |port: &mut VhostUser, now: Time| {
        (0..400).for_each(|_| frontend.say(1, 0, &[], None));
        (0..10).for_each(|_| port.attend(now));
        std::iter::from_fn(|| frontend.hear()).count()
    };
    assert_eq!(heard(&mut port, Time::ZERO), 256);
    assert_eq!(heard(&mut port, milliseconds(1) - Time::from_nanoseconds(1)), 0);
    assert_eq!((heard(&mut port, milliseconds(1)), heard(&mut port, milliseconds(3))), (4, 8));
    assert_eq!(heard(&mut port, milliseconds(3000)), 256);
}

#[test]
fn a_client_comes_again_when_its_frontend_does() {
    let folder = folder();
    let (closer, server) = (Closer::start().expect("a thread"), options(&folder));
    let mut port = VhostUser::open(&VhostOptions { role: Role::Client, ..server.clone() }).expect("a port");
    look(&mut port, Time::ZERO);
    assert_eq!(port.next_due(), Some(milliseconds(100)));
    for round in 0..3 {
        let listener = Listener::open(&server.socket, SocketType::STREAM, false, &closer).expect("a listener");
        let now = milliseconds(200 * (round + 1));
        look(&mut port, now);
        let (socket, _) = listener.accept().expect("a listener").expect("the port");
        let frontend = Frontend { socket: socket.into_inner(), closer: closer.clone() };
        frontend.say(1, 0, &[], None);
        look(&mut port, now + milliseconds(1));
        assert!(frontend.hear().is_some_and(|features| features & MODERN == MODERN), "{round}");
        drop((frontend, listener));
        look(&mut port, now + milliseconds(2));
    }
    assert!(port.details().contains(&("sessions", 3)));
}

#[test]
fn broken_descriptors_end_a_session_when_they_are_many_and_an_index_at_once() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    let mut guest = Guest::start(&mut port, MODERN);
    let mut frame = [0; MAX_FRAME];
    for number in 1..=PATIENCE {
        guest.outward.send(&[0; 5], &[]);
        assert_eq!(port.receive(Time::ZERO, &mut frame).expect("a port"), Receive::Skipped);
        assert_eq!(port.is_up(), number < PATIENCE);
    }
    assert!(guest.frontend.is_shut_out());
    let details = port.details();
    assert!(details.contains(&("fault_bounds", PATIENCE)), "{details:?}");
    assert_eq!(port.counters().skipped_malformed, PATIENCE);
    // Whoever comes next is given the same patience.
    let mut guest = Guest::start(&mut port, MODERN);
    guest.outward.send(&[0; 5], &[]);
    assert_eq!(port.receive(Time::ZERO, &mut frame).expect("a port"), Receive::Skipped);
    look(&mut port, Time::ZERO);
    assert!(guest.outward.used().is_some() && has_rung(&guest.bells[1][1]));
    guest.exchange(&mut port, 0);
}

/// A TCP packet over IPv4 with so many bytes of payload, its checksum begun.
pub(super) fn begun(payload: usize) -> Vec<u8> {
    let mut packet = [&[2; 12][..], &[8, 0, 0x45, 0], &(40 + payload as u16).to_be_bytes()].concat();
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..payload).map(|at| at as u8));
    packet
}

/// A packet of which is left what a driver says in this header.
pub(super) const TO_CUT: [u8; LONG_HEADER] = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];

#[test]
fn sessions_leave_nothing_behind() {
    let folder = folder();
    let mut port = VhostUser::open(&options(&folder)).expect("a port");
    let open = || std::fs::read_dir("/proc/self/fd").expect("a process").count();
    let settle = |port: &VhostUser| {
        while port.outside.closer.waiting() > 0 {
            conic_native::yield_core();
        }
    };
    let mut guest = Guest::start(&mut port, MODERN);
    guest.exchange(&mut port, 0);
    drop(guest);
    look(&mut port, Time::ZERO);
    settle(&port);
    let waits = |port: &VhostUser| {
        let path = format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(port.outside.waiter()));
        std::fs::read_to_string(path).expect("a waiter").matches("tfd:").count()
    };
    let before = waits(&port);
    for round in 0..200 {
        let mut guest = Guest::start(&mut port, MODERN);
        guest.exchange(&mut port, round);
        // Some rings have other bells in between.
        assert_eq!(guest.frontend.ask(&mut port, 12, &[1], Some(&event())), Some(0));
        drop(guest);
        look(&mut port, Time::ZERO);
    }
    settle(&port);
    assert_eq!(waits(&port), before, "what is waited for");
    // Tests run beside this one, and have descriptors of their own: 200 sessions would have left a thousand.
    assert!(open() < 900, "{}", open());
}

#[test]
fn any_message_is_survived() {
    let folder = folder();
    let mut port = VhostUser::open(&VhostOptions { queues: 2, offload: true, ..options(&folder) }).expect("a port");
    let mut random = fastrand::Rng::with_seed(0x5eed_0042);
    let driver = Driver::behind(0);
    let (bell, pipe) = (event(), OwnedFd::from(std::io::pipe().expect("a pipe").1));
    let mut frontend = Frontend::connect(&mut port);
    for number in 0..20_000 {
        let now = milliseconds(number);
        let place = Driver::place_of(0, random.usize(..2));
        let parts = driver.parts();
        let interesting = [
            random.u64(..),
            0,
            1,
            2,
            3,
            1 << 32,
            16 << 32,
            place.guest,
            place.user,
            place.bytes,
            parts.descriptors,
            parts.used,
            parts.available,
            MODERN,
            PROTOCOL,
            0x100,
            MODERN | feature::LOG_ALL,
            REGION as u64,
        ];
        let body: Vec<u64> = (0..random.usize(..6)).map(|_| interesting[random.usize(..interesting.len())]).collect();
        let sound = [0, place.guest, place.bytes, place.user, 0];
        let request = random.u32(..42);
        let body = match request {
            37 if random.bool() => &sound[..],
            9 if random.bool() => {
                &[random.u64(..4) | random.u64(..2) << 32, parts.descriptors, parts.used, parts.available, place.guest]
            }
            6 if random.bool() => &[REGION as u64, 0],
            _ => &body[..],
        };
        let descriptor =
            [None, None, Some(&bell), Some(&pipe), Some(&driver.descriptors[random.usize(..2)])][random.usize(..5)];
        frontend.say(request, if random.u8(..8) > 0 { NEEDS_REPLY } else { 0 }, body, descriptor);
        let mut frame = [0; MAX_FRAME];
        port.attend(now);
        let got = port.receive(now, &mut frame).expect("a port");
        // A frame comes of a message alone.
        assert!(!matches!(got, Receive::Frame { .. }) || frame[12..14] == [0x80, 0x35], "{got:?}");
        let _ = port.transmit(now, &[1; 60]).expect("a port");
        if frontend.is_shut_out() {
            frontend = Frontend::connect(&mut port);
            frontend.agree(MODERN);
            port.attend(Time::ZERO);
        }
    }
    let sessions = port.details().into_iter().find(|(name, _)| *name == "sessions").expect("a count").1;
    assert!(sessions > 100, "{sessions}");
}
