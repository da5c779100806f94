//! The port with a peer that it does not expect: broken messages, wrong descriptors, silence.

use std::os::fd::OwnedFd;

use conic_check::skipped;
use conic_native::{Held, Mapping};
use rustix::event::{EventfdFlags, eventfd};

use super::channel::{Channel, Heard};
use super::message::{AddRing, Hello, Init, Message, SECRET, Text, VERSION};
use super::session::{Offer, Reply};
use super::*;

/// Looks at one time after which the control channel has been looked at.
const LOOKS: u32 = crate::lookout::CALLS;

fn milliseconds(count: u64) -> Time {
    Time::from_nanoseconds(1_000_000 * count)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn server(folder: &tempfile::TempDir) -> Memif {
    Memif::open(&options(folder)).expect("a server")
}

fn options(folder: &tempfile::TempDir) -> MemifOptions {
    MemifOptions::new(folder.path().join("socket").to_str().expect("text"))
}

/// Lets the server look; no frame may come.
fn look(server: &mut Memif, now: Time) {
    let mut frame = [0; MAX_FRAME];
    let got = server.receive(now, &mut frame).expect("memif does not fail");
    assert!(matches!(got, Receive::None | Receive::Skipped), "{got:?}");
}

/// A connection to a server.
fn dial(path: &str) -> std::io::Result<Channel> {
    Channel::connect(path, &Closer::start()?)
}

/// A client that says what the test wants.
struct Raw {
    channel: Channel,
    memory: Option<Mapping>,
}

impl Raw {
    fn connect(server: &mut Memif) -> Raw {
        // What was before may be on its way out, and nobody is let in while it is too much.
        while server.closer.waiting() > crate::peer::MOST_UNCLOSED / 2 {
            conic_native::yield_core();
        }
        let channel = dial(&server.options.socket).expect("a server");
        look(server, Time::ZERO);
        Raw { channel, memory: None }
    }

    fn say(&self, message: Message, descriptor: Option<&OwnedFd>) {
        self.channel.send(&message.write(), descriptor.map(AsFd::as_fd)).expect("a server");
    }

    fn hear(&self) -> Option<Message> {
        match self.channel.hear() {
            Heard::Packet(bytes, _) => Some(Message::read(&bytes).expect("a message")),
            _ => None,
        }
    }
}

fn init() -> Init {
    Init { version: VERSION, id: 0, mode: 0, secret: [0; SECRET], name: Text::new("test") }
}

fn ring(to_server: bool) -> AddRing {
    let offset = if to_server { 0 } else { 512 };
    AddRing { to_server, index: 0, region: 0, offset, log2_slots: 3, private_header: 0 }
}

fn region() -> (Mapping, OwnedFd) {
    let (memory, descriptor) = Mapping::sealed(16_384).expect("memory");
    memory.store_u32(0, message::COOKIE);
    memory.store_u32(512, message::COOKIE);
    (memory, descriptor)
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd")
}

fn pipe() -> OwnedFd {
    std::io::pipe().expect("a pipe").1.into()
}

/// The messages of a client that does everything right, with their descriptors.
fn right() -> (Mapping, Vec<(Message, Option<OwnedFd>)>) {
    let (memory, descriptor) = region();
    let messages = vec![
        (Message::Init(init()), None),
        (Message::AddRegion { index: 0, bytes: 16_384 }, Some(descriptor)),
        (Message::AddRing(ring(true)), Some(event())),
        (Message::AddRing(ring(false)), Some(event())),
        (Message::Connect(Text::new("test")), None),
    ];
    (memory, messages)
}

/// A client that has said so many of the first messages, rightly.
fn begun(server: &mut Memif, rightly: usize) -> Raw {
    let mut client = Raw::connect(server);
    let (memory, messages) = right();
    for (message, descriptor) in messages.into_iter().take(rightly) {
        client.say(message, descriptor.as_ref());
    }
    client.memory = Some(memory);
    client
}

/// A client that has done everything right.
fn joined(server: &mut Memif) -> Raw {
    joined_with_bells(server).0
}

/// The same with its bells: of the ring to the server, and of the one to it.
fn joined_with_bells(server: &mut Memif) -> (Raw, [OwnedFd; 2]) {
    let mut client = Raw::connect(server);
    let (memory, messages) = right();
    let bells = [2, 3].map(|number: usize| messages[number].1.as_ref().expect("a bell").try_clone().expect("a copy"));
    for (message, descriptor) in messages {
        client.say(message, descriptor.as_ref());
        look(server, Time::ZERO);
    }
    assert!(server.is_connected(), "{}", server.description());
    while client.hear().is_some() {}
    client.memory = Some(memory);
    (client, bells)
}

/// Says the first messages rightly and then this one; gives the reason for which the server refuses it.
fn refusal(rightly: usize, message: Message, descriptors: Vec<OwnedFd>) -> String {
    let folder = folder();
    let mut server = server(&folder);
    let client = begun(&mut server, rightly);
    client.say(message, descriptors.first());
    look(&mut server, Time::ZERO);
    assert_eq!((server.counts.refused, server.is_connected()), (1, false), "{message:?}");
    // The hello, the acknowledgements, then the reason.
    let mut last = None;
    while let Some(heard) = client.hear() {
        last = Some(heard);
    }
    let Some(Message::Disconnect { reason, .. }) = last else { panic!("{message:?}: {last:?}") };
    // And the next client is served.
    let server = &mut server;
    joined(server);
    reason.to_string()
}

fn unsealed() -> OwnedFd {
    let descriptor = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).expect("memory");
    rustix::fs::ftruncate(&descriptor, 16_384).expect("memory");
    descriptor
}

/// Bytes of a reserved huge page.
const HUGE: u64 = 2 << 20;

/// Sealed as it should be, of a reserved huge page that may never come to be: making the file takes none, but a kernel with them.
fn huge() -> Option<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let descriptor = rustix::fs::memfd_create("test", flags).ok()?;
    rustix::fs::ftruncate(&descriptor, HUGE).expect("its size");
    rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK).expect("its seal");
    Some(descriptor)
}

#[test]
fn every_message_that_cannot_be_is_refused_with_its_reason() {
    let mut cases: Vec<(usize, Message, Option<OwnedFd>, &str)> = vec![
        (0, Message::Acknowledge, None, "unexpected message"),
        (0, Message::Connect(Text::new("x")), None, "unexpected message"),
        (0, Message::AddRegion { index: 0, bytes: 16_384 }, Some(region().1), "unexpected message"),
        (0, Message::AddRing(ring(true)), Some(event()), "unexpected message"),
        (0, session::hello(), None, "unexpected message"),
        (0, Message::Init(Init { version: 0x0100, ..init() }), None, "incompatible version"),
        (0, Message::Init(Init { id: 1, ..init() }), None, "there is no interface with this id"),
        (0, Message::Init(Init { mode: 1, ..init() }), None, "only Ethernet mode is supported"),
        (0, Message::Init(init()), Some(event()), "unexpected descriptor"),
        (1, Message::Init(init()), None, "unexpected message"),
        (1, Message::AddRegion { index: 0, bytes: 16_384 }, None, "one descriptor belongs to this message"),
        (1, Message::AddRegion { index: 1, bytes: 16_384 }, Some(region().1), "invalid region index"),
        (1, Message::AddRegion { index: 0, bytes: 0 }, Some(region().1), "the regions are empty or too large"),
        (1, Message::AddRegion { index: 0, bytes: 16_385 }, Some(region().1), "the region is no memory of this size"),
        (1, Message::AddRegion { index: 0, bytes: 1 << 31 }, Some(region().1), "the regions are empty or too large"),
        (1, Message::AddRegion { index: 0, bytes: 4096 }, Some(event()), "the region is no memory of this size"),
        (1, Message::AddRegion { index: 0, bytes: 4096 }, Some(pipe()), "the region is no memory of this size"),
        (1, Message::AddRegion { index: 0, bytes: 4096 }, Some(unsealed()), "the region is not sealed"),
        (2, Message::AddRegion { index: 1, bytes: u64::MAX }, Some(region().1), "the regions are too large"),
        (1, Message::AddRing(ring(true)), Some(event()), "the ring does not lie in its region"),
        (2, Message::AddRing(ring(true)), None, "one descriptor belongs to this message"),
        (2, Message::AddRing(AddRing { index: 1, ..ring(true) }), Some(event()), "invalid ring index"),
        (2, Message::AddRing(AddRing { region: 1, ..ring(true) }), Some(event()), "the ring does not lie"),
        (2, Message::AddRing(AddRing { offset: 16_384, ..ring(true) }), Some(event()), "the ring does not lie"),
        (2, Message::AddRing(AddRing { offset: 2, ..ring(true) }), Some(event()), "the ring does not lie"),
        (2, Message::AddRing(AddRing { log2_slots: 15, ..ring(true) }), Some(event()), "the ring does not lie"),
        (2, Message::AddRing(AddRing { log2_slots: 40, ..ring(true) }), Some(event()), "the ring does not lie"),
        (2, Message::AddRing(AddRing { private_header: 1, ..ring(true) }), Some(event()), "private headers"),
        (2, Message::AddRing(ring(true)), Some(pipe()), "the interrupt descriptor is no eventfd"),
        (2, Message::Connect(Text::new("x")), None, "there are no rings"),
        (5, Message::Acknowledge, None, "unexpected message"),
    ];
    match huge() {
        Some(memory) => {
            let message = Message::AddRegion { index: 0, bytes: HUGE };
            cases.push((1, message, Some(memory), "the region lies on reserved huge pages"));
        }
        None => skipped("a region on reserved huge pages: this kernel has none"),
    }
    for (rightly, message, descriptor, says) in cases {
        let reason = refusal(rightly, message, descriptor.into_iter().collect());
        assert!(reason.contains(says), "{message:?} behind {rightly}: {reason}");
    }
}

/// The reason for which a server that bears so many bytes hangs up, if it does, behind what is said to it.
fn answer(most_bytes: u64, messages: impl IntoIterator<Item = (Message, OwnedFd)>) -> Option<String> {
    let folder = folder();
    let mut server = Memif::open(&MemifOptions { most_bytes, ..options(&folder) }).expect("a server");
    let client = Raw::connect(&mut server);
    client.say(Message::Init(init()), None);
    for (message, descriptor) in messages {
        client.say(message, Some(&descriptor));
        look(&mut server, Time::ZERO);
    }
    let heard = std::iter::from_fn(|| client.hear());
    let reason =
        |message| if let Message::Disconnect { reason, .. } = message { Some(reason.to_string()) } else { None };
    heard.filter_map(reason).last()
}

#[test]
fn a_client_brings_no_more_regions_bytes_and_rings_than_are_borne() {
    let regions = |count: u16| (0..count).map(|index| (Message::AddRegion { index, bytes: 16_384 }, region().1));
    let (most, all) = (session::MOST_REGIONS as u16, 16_384 * session::MOST_REGIONS as u64);
    assert_eq!(answer(all, regions(most)), None);
    assert_eq!(answer(2 * all, regions(most + 1)).as_deref(), Some("invalid region index"));
    assert_eq!(answer(all - 1, regions(most)).as_deref(), Some("the regions are empty or too large"), "all together");
    for to_server in [true, false] {
        let rings = |count: u16| {
            regions(1)
                .chain((0..count).map(move |index| (Message::AddRing(AddRing { index, ..ring(to_server) }), event())))
        };
        let most = session::MOST_RINGS as u16;
        assert_eq!(answer(all, rings(most)), None);
        assert_eq!(answer(all, rings(most + 1)).as_deref(), Some("invalid ring index"));
    }
}

/// What a client says to a server that bears so much, one message for each acknowledgement.
fn offered(hello: Hello, wanted: &MemifOptions) -> Result<Vec<Message>, &'static str> {
    let mut offer = Offer::default();
    let mut reply = offer.hear(Message::Hello(hello), &[], wanted)?;
    let mut said = Vec::new();
    loop {
        said.push(match reply {
            Reply::Send(message) | Reply::Pass(message, _) => message,
            Reply::Wait => break,
            Reply::Ready(..) => panic!("nobody has said that it is connected"),
        });
        reply = offer.hear(Message::Acknowledge, &[], wanted)?;
    }
    let connected = Message::Connected(Text::new("test"));
    assert!(matches!(offer.hear(connected, &[], wanted), Ok(Reply::Ready(..))));
    Ok(said)
}

#[test]
fn a_client_asks_for_no_more_than_its_server_bears() {
    let Message::Hello(hello) = session::hello() else { panic!("it is one") };
    let wanted = MemifOptions { queues: 4, log2_slots: 10, ..MemifOptions::new("socket") };
    let rings = |hello| {
        let said = offered(hello, &wanted).expect("it can be served");
        assert!(matches!(said.last(), Some(Message::Connect(_))), "{said:?}");
        let rings =
            said.iter().filter_map(|message| if let Message::AddRing(ring) = message { Some(ring) } else { None });
        rings.map(|ring| (ring.to_server, ring.index, ring.log2_slots)).collect::<Vec<_>>()
    };
    assert_eq!(rings(hello).len(), 8);
    let small = Hello { last_to_server: 1, last_to_client: 0, most_log2_slots: 3, ..hello };
    assert_eq!(rings(small), [(true, 0, 3), (true, 1, 3), (false, 0, 3)]);
    for (least_version, most_version) in [(0, VERSION - 1), (VERSION + 1, u16::MAX)] {
        let hello = Hello { least_version, most_version, ..hello };
        assert_eq!(offered(hello, &wanted), Err("incompatible version"));
    }
}

#[test]
fn a_server_that_says_what_it_cannot_is_refused_by_its_client() {
    let wanted = MemifOptions::new("socket");
    let connected = || Message::Connected(Text::new("test"));
    let mut offer = Offer::default();
    for early in [Message::Acknowledge, connected(), Message::Init(init())] {
        assert_eq!(offer.hear(early, &[], &wanted).err(), Some("unexpected message"));
    }
    assert_eq!(offer.hear(session::hello(), &[Held::own(event())], &wanted).err(), Some("unexpected descriptor"));
    assert!(offer.hear(session::hello(), &[], &wanted).is_ok());
    for wrong in [session::hello(), connected(), Message::Connect(Text::new("test"))] {
        assert_eq!(offer.hear(wrong, &[], &wanted).err(), Some("unexpected message"), "{wrong:?}");
    }
}

#[test]
fn a_client_says_how_far_it_came_with_a_server_that_goes_without_a_word() {
    let wanted = MemifOptions { queues: 2, ..MemifOptions::new("socket") };
    let mut offer = Offer::default();
    let mut found = vec![offer.parting()];
    offer.hear(session::hello(), &[], &wanted).expect("it is served");
    for _ in 0..7 {
        found.push(offer.parting());
        offer.hear(Message::Acknowledge, &[], &wanted).expect("a next step");
    }
    let expected =
        ["said what it is", "id and secret", "id and secret", "1 of 4", "2 of 4", "3 of 4", "4 of 4", "the last ring"];
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}");
    }
}

/// A region may be a gigabyte of nothing: making all of it present would keep the others waiting for its size's time.
#[test]
fn a_region_takes_no_memory_before_it_is_used() {
    let folder = folder();
    let mut server = server(&folder);
    let client = Raw::connect(&mut server);
    let (memory, bytes) = (unsealed(), 256 << 20);
    rustix::fs::ftruncate(&memory, bytes).expect("its size");
    rustix::fs::fcntl_add_seals(&memory, rustix::fs::SealFlags::SHRINK).expect("its seal");
    client.say(Message::Init(init()), None);
    client.say(Message::AddRegion { index: 0, bytes }, Some(&memory));
    look(&mut server, Time::ZERO);
    assert_eq!(std::iter::from_fn(|| client.hear()).skip(1).collect::<Vec<_>>(), [Message::Acknowledge; 2]);
    let present = 512 * rustix::fs::fstat(&memory).expect("its status").st_blocks;
    assert!(present < 1 << 20, "{present} of {bytes} bytes");
}

#[test]
fn a_ring_without_its_cookie_is_refused_when_it_is_to_be_used() {
    let folder = folder();
    let mut server = server(&folder);
    let client = Raw::connect(&mut server);
    let (memory, messages) = right();
    memory.store_u32(512, 0);
    for (message, descriptor) in messages {
        client.say(message, descriptor.as_ref());
    }
    look(&mut server, Time::ZERO);
    assert!(server.description().contains("a ring does not begin with its cookie"), "{}", server.description());
}

#[test]
fn a_secret_must_be_given_whole() {
    let folder = folder();
    // As long as a secret may be: its last letter counts too.
    let (whole, but_one) = ("open sesame, as in book", "open sesame, as in boot");
    for (secret, given, good) in [
        ("open sesame", "", false),
        ("open sesame", "open", false),
        ("open sesame", "open sesame!", false),
        ("open sesame", "open sesame", true),
        (whole, but_one, false),
        (whole, &whole[..SECRET - 2], false),
        (whole, whole, true),
        // libmemif sends behind the end what lay in its memory.
        ("open sesame", "open sesame\0U\x7fU", true),
        ("open sesame", "open\0sesame", false),
    ] {
        let wanted = MemifOptions { secret: Some(secret.to_owned()), ..options(&folder) };
        let mut server = Memif::open(&wanted).expect("a server");
        let client = Raw::connect(&mut server);
        let mut secret = [0; SECRET];
        secret[..given.len()].copy_from_slice(given.as_bytes());
        client.say(Message::Init(Init { secret, ..init() }), None);
        look(&mut server, Time::ZERO);
        assert!(matches!(client.hear(), Some(Message::Hello(_))));
        assert_eq!(client.hear() == Some(Message::Acknowledge), good, "{given:?}");
    }
}

#[test]
fn a_client_that_says_nothing_is_let_go_in_time_and_one_at_any_point_of_the_handshake() {
    for rightly in 0..5 {
        let folder = folder();
        let mut server = server(&folder);
        let _client = begun(&mut server, rightly);
        look(&mut server, milliseconds(1));
        let due = server.next_due().expect("a deadline");
        look(&mut server, Time::from_picoseconds(due.picoseconds() - 1));
        assert_eq!(server.counts.timed_out, 0);
        look(&mut server, due);
        assert_eq!((server.counts.timed_out, server.counts.ended), (1, 0), "behind {rightly} messages");
        // One that dies instead, at the same point.
        drop(begun(&mut server, rightly));
        look(&mut server, Time::ZERO);
        joined(&mut server);
    }
}

#[test]
fn each_step_of_the_handshake_has_its_own_time() {
    let folder = folder();
    let mut server = server(&folder);
    let client = Raw::connect(&mut server);
    let (_memory, messages) = right();
    // Longer than a step may take, all together.
    for (number, (message, descriptor)) in messages.into_iter().enumerate() {
        client.say(message, descriptor.as_ref());
        look(&mut server, milliseconds(1999 * (number as u64 + 1)));
    }
    assert!(server.is_connected(), "{}", server.description());
}

#[test]
fn a_client_with_fewer_rings_than_the_one_before_is_served() {
    let folder = folder();
    let mut server = server(&folder);
    let client = Raw::connect(&mut server);
    let (memory, mut messages) = right();
    memory.store_u32(1024, message::COOKIE);
    let second = AddRing { index: 1, offset: 1024, ..ring(true) };
    messages.insert(3, (Message::AddRing(second), Some(event())));
    for (message, descriptor) in messages {
        client.say(message, descriptor.as_ref());
        look(&mut server, Time::ZERO);
    }
    // A packet in the second, at which the server stays for what follows it.
    memory.store_u32(1024 + 128 + 4, 60);
    memory.store_u32(1024 + 128 + 8, 8192);
    memory.store_release_u16(1024 + 6, 1);
    let mut frame = [0; MAX_FRAME];
    let got = server.receive(Time::ZERO, &mut frame).expect("memif does not fail");
    assert_eq!(got, Receive::Frame { length: 60, captured: None });
    drop(client);
    while server.is_connected() {
        look(&mut server, Time::ZERO);
    }
    joined(&mut server);
}

#[test]
fn who_sleeps_is_rung_for_what_was_put_before_another_process_takes_over() {
    let folder = folder();
    let mut server = server(&folder);
    let client = Raw::connect(&mut server);
    let (memory, messages) = right();
    let bell = messages[3].1.as_ref().map(|bell| bell.try_clone().expect("a descriptor")).expect("a ring's");
    for (message, descriptor) in messages {
        client.say(message, descriptor.as_ref());
        look(&mut server, Time::ZERO);
    }
    // An empty buffer in the ring to the client, which asks for interrupts.
    memory.store_u32(512 + 128 + 4, 2048);
    memory.store_u32(512 + 128 + 8, 8192);
    memory.store_u16(512 + 4, 0);
    memory.store_release_u16(512 + 6, 1);
    assert_eq!(server.transmit(Time::ZERO, &[1; 60]).expect("memif does not fail"), Transmit::Accepted);
    let mut count = [0; 8];
    assert!(rustix::io::read(&bell, &mut count).is_err(), "not before a flush");
    assert!(server.bequeath().is_some());
    assert_eq!((rustix::io::read(&bell, &mut count), memory.load_u16(512 + 64)), (Ok(8), 1));
    drop(client);
}

#[test]
fn who_fills_the_eventfd_that_it_is_rung_by_and_has_it_block_keeps_nobody_waiting() {
    let folder = folder();
    let mut server = server(&folder);
    let (client, [_, bell]) = joined_with_bells(&mut server);
    let memory = client.memory.as_ref().expect("joined");
    memory.store_u32(512 + 128 + 4, 2048);
    memory.store_u32(512 + 128 + 8, 8192);
    memory.store_u16(512 + 4, 0);
    memory.store_release_u16(512 + 6, 1);
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("there is room");
    // The flag is the open file's: the server's as well.
    rustix::fs::fcntl_setfl(&bell, rustix::fs::OFlags::empty()).expect("a file");
    assert_eq!(server.transmit(Time::ZERO, &[1; 60]).expect("memif does not fail"), Transmit::Accepted);
    server.flush(Time::ZERO).expect("memif does not fail");
    let mut count = [0; 8];
    assert_eq!((rustix::io::read(&bell, &mut count), server.counts.interrupts), (Ok(8), 1));
    assert_eq!(
        u64::from_ne_bytes(count),
        u64::MAX,
        "not by a write, which might have waited: that would not have come to this"
    );
}

#[test]
fn a_client_in_the_middle_of_its_handshake_is_told_that_another_process_takes_over() {
    let folder = folder();
    let mut server = server(&folder);
    let client = begun(&mut server, 2);
    look(&mut server, Time::ZERO);
    assert!(server.bequeath().is_some());
    let last = std::iter::from_fn(|| client.hear()).last();
    let Some(Message::Disconnect { reason, .. }) = last else { panic!("{last:?}") };
    assert_eq!(reason.to_string(), "another process takes over");
}

/// The kernel's own end in front of a packet cannot be had at will. An empty packet reads like it.
#[test]
fn what_lies_behind_what_reads_like_the_end_is_heard() {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    let closer = Closer::start().expect("a thread");
    let heard = |said: &[&[u8]]| {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
        for packet in said {
            send(&other, packet, SendFlags::empty()).expect("there is room");
        }
        Channel::of_descriptor(one, &closer).hear()
    };
    assert!(matches!(heard(&[b"", b"last"]), Heard::Packet(bytes, _) if bytes == b"last"));
    assert!(matches!(heard(&[b""]), Heard::End));
}

#[test]
fn a_second_client_is_told_that_somebody_is_there_and_disturbs_nobody() {
    let folder = folder();
    let mut server = server(&folder);
    let first = joined(&mut server);
    let second = dial(&server.options.socket).expect("a server");
    (0..2 * LOOKS).for_each(|_| look(&mut server, Time::ZERO));
    let Heard::Packet(bytes, _) = second.hear() else { panic!("no answer") };
    let Ok(Message::Disconnect { reason, .. }) = Message::read(&bytes) else { panic!("{bytes:?}") };
    assert_eq!(reason.to_string(), "already connected");
    assert!(server.is_connected() && matches!(second.hear(), Heard::End));
    drop(first);
    (0..2 * LOOKS).for_each(|_| look(&mut server, Time::ZERO));
    assert!(!server.is_connected() && server.description().contains("the other side is gone"));
}

#[test]
fn whoever_goes_on_breaking_the_rules_is_disconnected() {
    let folder = folder();
    let mut server = server(&folder);
    let client = joined(&mut server);
    let memory = client.memory.as_ref().expect("joined");
    let mut head = 0;
    for _ in 0..PATIENCE {
        assert!(server.is_connected());
        // No such region.
        memory.store_u16(128 + 16 * (head as usize % 8) + 2, 9);
        head += 1;
        memory.store_release_u16(6, head);
        look(&mut server, Time::ZERO);
    }
    assert!(!server.is_connected());
    assert_eq!((server.counts.faults[Fault::Region as usize], server.counters.skipped_malformed), (PATIENCE, PATIENCE));
    let mut last = None;
    while let Some(message) = client.hear() {
        last = Some(message);
    }
    assert!(format!("{last:?}").contains("too many broken descriptors"), "{last:?}");
    let client = joined(&mut server);
    client.memory.as_ref().expect("joined").store_release_u16(6, 0x7777);
    look(&mut server, Time::ZERO);
    assert!(!server.is_connected() && server.counts.faults[Fault::Index as usize] == 1);
}

#[test]
fn packets_without_their_end_or_without_a_byte_are_counted_and_end_no_session() {
    for (flags, length, fault) in [(1, 60, Fault::Chain), (0, 0, Fault::Empty)] {
        let folder = folder();
        let mut server = server(&folder);
        let client = joined(&mut server);
        let memory = client.memory.as_ref().expect("joined");
        for head in 1..=2 * PATIENCE as u16 {
            memory.store_u16(128 + 16 * usize::from((head - 1) % 8), flags);
            memory.store_u32(128 + 16 * usize::from((head - 1) % 8) + 4, length);
            memory.store_release_u16(6, head);
            // The slots go back with the second look.
            (0..2).for_each(|_| look(&mut server, Time::ZERO));
            assert_eq!((server.is_connected(), memory.load_u16(64)), (true, head));
        }
        let counted = (server.counts.faults[fault as usize], server.counters.skipped_malformed);
        assert_eq!(counted, (2 * PATIENCE, 2 * PATIENCE));
    }
}

#[test]
fn who_gives_a_buffer_without_a_byte_to_be_filled_is_disconnected() {
    let folder = folder();
    let mut server = server(&folder);
    let client = joined(&mut server);
    let memory = client.memory.as_ref().expect("joined");
    memory.store_u32(512 + 128 + 4, 0);
    memory.store_release_u16(512 + 6, 1);
    // It stands in the way of every frame.
    for _ in 0..PATIENCE {
        assert!(server.is_connected());
        assert_eq!(server.transmit(Time::ZERO, &[1; 60]).expect("memif does not fail"), Transmit::Refused);
    }
    assert!(!server.is_connected());
}

#[test]
fn sleep_is_ended_by_an_interrupt_and_only_asked_for_when_nothing_comes() {
    let folder = folder();
    let mut server = server(&folder);
    let client = joined(&mut server);
    let memory = client.memory.as_ref().expect("joined");
    assert_eq!((memory.load_u16(4), server.next_due()), (1, Some(Time::ZERO)));
    (0..100).for_each(|_| look(&mut server, Time::ZERO));
    assert_eq!((memory.load_u16(4), server.next_due()), (1, Some(Time::ZERO)), "nobody has said that it will sleep");
    server.arm();
    look(&mut server, Time::ZERO);
    assert_eq!((memory.load_u16(4), server.next_due()), (0, None), "now it may sleep");
    memory.store_u32(128 + 4, 60);
    memory.store_u32(128 + 8, 8192);
    memory.store_release_u16(6, 1);
    let mut frame = [0; MAX_FRAME];
    let got = server.receive(Time::ZERO, &mut frame).expect("memif does not fail");
    assert_eq!(got, Receive::Frame { length: 60, captured: None });
    assert_eq!((memory.load_u16(4), server.next_due()), (1, Some(Time::ZERO)));
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count();
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

/// Sequences of right and wrong messages with right and wrong descriptors: the server survives each, keeps nothing of it,
/// and serves the next client.
#[test]
fn any_conversation_is_survived() {
    let mut generator = fastrand::Rng::with_seed(0x6672_616d);
    let folder = folder();
    let mut server = server(&folder);
    for _ in 0..300 {
        let client = Raw::connect(&mut server);
        let (memory, messages) = right();
        let mut messages: Vec<_> = messages.into_iter().map(|(message, with)| (message.write(), with)).collect();
        for _ in 0..generator.usize(..4) {
            let (one, other) = (generator.usize(..messages.len()), generator.usize(..messages.len()));
            match generator.u8(..5) {
                0 => messages.swap(one, other),
                1 => messages[one].0[generator.usize(..40)] = generator.u8(..),
                2 => messages[one].0[..2].copy_from_slice(&generator.u16(..10).to_ne_bytes()),
                3 => {
                    messages[one].1 = [None, Some(event()), Some(pipe()), Some(unsealed())][generator.usize(..4)]
                        .as_ref()
                        .map(|descriptor| descriptor.try_clone().expect("a descriptor"))
                }
                _ => messages[one].0 = std::array::from_fn(|_| generator.u8(..)),
            }
        }
        for (bytes, descriptor) in &messages {
            // The server may have hung up.
            let _ = client.channel.send(bytes, descriptor.as_ref().map(AsFd::as_fd));
            look(&mut server, Time::ZERO);
        }
        // Where it was let in, everything in its memory is nonsense.
        (0..2048).for_each(|word| memory.store_u64(8 * word, generator.u64(..)));
        let mut frame = [0; MAX_FRAME];
        for _ in 0..100 {
            // Nonsense may hold a frame.
            let _ = server.receive(Time::ZERO, &mut frame);
            let _ = server.transmit(Time::ZERO, &[1; 60]);
        }
        drop(client);
        for _ in 0..2 * LOOKS {
            if server.is_connected() {
                let _ = server.receive(Time::ZERO, &mut frame);
            }
        }
        assert!(!server.is_connected());
    }
    assert!(server.counts.sessions > 20 && server.counts.refused > 100, "{:?}", server.counts);
    joined(&mut server);
}

/// Alone in its process's descriptor table it would be exact; beside other tests it is a bound that a leak of one for each
/// of a thousand sessions exceeds.
#[test]
fn a_thousand_sessions_leave_no_descriptor_behind() {
    let folder = folder();
    let mut server = server(&folder);
    let before = descriptors();
    for _ in 0..1000 {
        drop(joined(&mut server));
        let looks = (0..2 * LOOKS).take_while(|_| {
            look(&mut server, Time::ZERO);
            server.is_connected()
        });
        assert!(looks.count() < 2 * LOOKS as usize);
    }
    assert!(descriptors() < before + 500, "{before}, now {}", descriptors());
}

#[test]
fn what_is_nearly_a_message_is_read_as_what_it_says_or_refused() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/memif");
    let mut read = 0u64;
    let inputs = conic_check::fuzz(&corpus, 2026, 200_000, |bytes| {
        if let Ok(message) = Message::read(bytes) {
            // Texts and flags come back as they were; what lies behind the last field does not.
            assert_eq!(Message::read(&message.write()), Ok(message));
            read += 1;
        }
    });
    assert!(read > inputs / 100, "{read} of {inputs} inputs were messages: the mutations are too coarse");
}

#[path = "parts_tests.rs"]
mod parts_tests;
#[path = "session_tests.rs"]
mod session_tests;
