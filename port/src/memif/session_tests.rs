//! A session with a peer that is slow, greedy or hostile, or that another process goes on with.

use std::os::unix::fs::PermissionsExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, SealFlags};

use super::*;

/// Puts so many packets of 60 bytes into a client's ring to the server, at its beginning.
fn fill(memory: &Mapping, ring: usize, packets: u16) {
    for slot in 0..usize::from(packets) {
        memory.store_u32(ring + 128 + 16 * slot + 4, 60);
        memory.store_u32(ring + 128 + 16 * slot + 8, 12_288);
    }
    memory.store_release_u16(ring + 6, packets);
}

/// Posts so many empty buffers in a client's ring from the server.
fn post(memory: &Mapping, buffers: u16) {
    for slot in 0..usize::from(buffers) {
        memory.store_u32(512 + 128 + 16 * slot + 4, 2048);
        memory.store_u32(512 + 128 + 16 * slot + 8, 8192);
    }
    memory.store_release_u16(512 + 6, buffers);
}

fn receive(server: &mut Memif) -> Receive {
    server.receive(Time::ZERO, &mut [0; MAX_FRAME]).expect("memif does not fail")
}

pub(super) fn is_awake(server: &Memif) -> bool {
    let waiter = server.descriptor().expect("one to wait on");
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(waiter, PollFlags::IN)], Some(&now)).expect("a poll") > 0
}

#[test]
fn a_bell_that_would_block_is_made_not_to() {
    let folder = folder();
    let mut server = server(&folder);
    let client = begun(&mut server, 2);
    let bell = eventfd(0, EventfdFlags::empty()).expect("an eventfd");
    client.say(Message::AddRing(ring(true)), Some(&bell));
    look(&mut server, Time::ZERO);
    // Both descriptors are of one open file.
    assert!(rustix::fs::fcntl_getfl(&bell).expect("its flags").contains(OFlags::NONBLOCK));
}

#[test]
fn a_bell_that_is_full_and_blocks_keeps_nobody_waiting() {
    let folder = folder();
    let mut server = server(&folder);
    let (client, [_, bell]) = joined_with_bells(&mut server);
    post(client.memory.as_ref().expect("joined"), 1);
    client.memory.as_ref().expect("joined").store_u16(512 + 4, 0);
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("room for so many");
    let flags = rustix::fs::fcntl_getfl(&bell).expect("its flags");
    rustix::fs::fcntl_setfl(&bell, flags - OFlags::NONBLOCK).expect("it may block again");
    // On a thread of its own, which this test can outlive.
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let sent = server.transmit(Time::ZERO, &[1; 60]).expect("memif does not fail");
        server.flush(Time::ZERO).expect("memif does not fail");
        let _ = done.send((sent, server.counts.interrupts));
    });
    let sent = is_done.recv_timeout(std::time::Duration::from_secs(20)).expect("it does not wait for the bell");
    assert_eq!(sent, (Transmit::Accepted, 1));
}

#[test]
fn a_ring_that_is_never_empty_gives_back_its_slots_and_starves_no_other() {
    let folder = folder();
    let mut server = server(&folder);
    let client = Raw::connect(&mut server);
    let (memory, mut messages) = right();
    // Two rings of 64 slots to the server, both full, and no other: where that began, the first has a slot.
    memory.store_u32(512, 0);
    memory.store_u32(2048, message::COOKIE);
    let full = |index: u16| AddRing { index, offset: 2048 * u32::from(index), log2_slots: 6, ..ring(true) };
    messages[2] = (Message::AddRing(full(0)), Some(event()));
    messages[3] = (Message::AddRing(full(1)), Some(event()));
    for (message, descriptor) in messages {
        client.say(message, descriptor.as_ref());
        look(&mut server, Time::ZERO);
    }
    fill(&memory, 0, 64);
    fill(&memory, 2048, 64);
    for number in 0..2 * BATCH {
        assert_eq!(receive(&mut server), Receive::Frame { length: 60, captured: None }, "packet {number}");
    }
    assert_eq!([64, 2048 + 64].map(|tail| memory.load_u16(tail)), [BATCH; 2]);
}

#[test]
fn what_a_ring_cannot_take_is_counted_and_what_it_has_is_shown() {
    let folder = folder();
    let mut server = server(&folder);
    let (client, _) = joined_with_bells(&mut server);
    let memory = client.memory.as_ref().expect("joined");
    post(memory, 2);
    let mut send = || server.transmit(Time::ZERO, &[1; 60]).expect("memif does not fail");
    assert_eq!([send(), send()], [Transmit::Accepted; 2]);
    assert_eq!(memory.load_u16(512 + 64), 0, "it is told once a burst");
    assert_eq!(send(), Transmit::Full);
    assert_eq!((memory.load_u16(512 + 64), server.counters.transmit_full), (2, 1), "whoever has none left is told");
    // An index that cannot be ends the session, whichever way the ring goes.
    memory.store_release_u16(512 + 6, 0x7777);
    let sent = server.transmit(Time::ZERO, &[1; 60]).expect("memif does not fail");
    assert_eq!((sent, server.is_connected()), (Transmit::Refused, false));
    assert_eq!((server.counts.faults[Fault::Index as usize], server.counters.refused_link_down), (1, 1));
}

#[test]
fn a_packet_longer_than_a_frame_is_counted_as_that() {
    let folder = folder();
    let mut server = server(&folder);
    let (client, _) = joined_with_bells(&mut server);
    let memory = client.memory.as_ref().expect("joined");
    fill(memory, 0, 2);
    memory.store_u32(128 + 4, MAX_FRAME as u32 + 1);
    memory.store_u32(128 + 8, 0);
    assert_eq!([receive(&mut server), receive(&mut server)][0], Receive::Skipped);
    let Counters { skipped_oversized, skipped_malformed, received_frames, .. } = server.counters;
    assert_eq!((skipped_oversized, skipped_malformed, received_frames), (1, 0, 1));
}

#[test]
fn whoever_goes_on_has_given_back_what_was_read_and_is_woken() {
    let folder = folder();
    let mut first = server(&folder);
    let (client, [bell, _]) = joined_with_bells(&mut first);
    let memory = client.memory.as_ref().expect("joined");
    // All slots are read, and none was given back: nothing is told for each.
    fill(memory, 0, 8);
    (0..8).for_each(|_| assert!(matches!(receive(&mut first), Receive::Frame { .. })));
    assert_eq!(memory.load_u16(64), 0);
    let legacy = first.bequeath().expect("it can be passed on");
    assert_eq!(memory.load_u16(64), 8, "else the ring would be full for ever");
    let mut heir = Memif::inherit(&options(&folder), vec![legacy]).expect("it goes on").remove(0);
    heir.arm();
    look(&mut heir, Time::ZERO);
    assert!(!is_awake(&heir));
    rustix::io::write(&bell, &1u64.to_ne_bytes()).expect("it rings");
    assert!(is_awake(&heir), "rung");
    look(&mut heir, Time::ZERO);
    assert!(!is_awake(&heir));
    client.say(Message::disconnect("enough"), None);
    assert!(is_awake(&heir), "spoken to");
}

#[test]
fn a_ring_that_was_good_needs_no_cookie_when_another_process_goes_on_with_it() {
    let folder = folder();
    let mut first = server(&folder);
    let client = joined(&mut first);
    let memory = client.memory.as_ref().expect("joined");
    [0, 512].into_iter().for_each(|ring| memory.store_u32(ring, 0));
    let legacy = first.bequeath().expect("it can be passed on");
    drop(first);
    let mut heir = Memif::inherit(&options(&folder), vec![legacy]).expect("it goes on").remove(0);
    fill(memory, 0, 1);
    assert!(heir.is_connected());
    assert_eq!(receive(&mut heir), Receive::Frame { length: 60, captured: None });
    drop(client);
    (0..2 * LOOKS).for_each(|_| look(&mut heir, Time::ZERO));
    assert!(!heir.is_connected());
    joined(&mut heir);
}

#[test]
fn a_client_whose_memory_cannot_be_mapped_again_loses_its_session_and_the_port_goes_on() {
    let folder = folder();
    let mut first = server(&folder);
    let client = Raw::connect(&mut first);
    let descriptor = unsealed();
    rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK).expect("its seal");
    let memory = Mapping::of(descriptor.as_fd(), 16_384, 0).expect("memory");
    [0, 512].into_iter().for_each(|ring| memory.store_u32(ring, message::COOKIE));
    let (_, mut messages) = right();
    messages[1].1 = Some(descriptor.try_clone().expect("a copy"));
    for (message, descriptor) in messages {
        client.say(message, descriptor.as_ref());
        look(&mut first, Time::ZERO);
    }
    assert!(first.is_connected(), "{}", first.description());
    while client.hear().is_some() {}
    // Nobody maps it for writing from now on; who has done so keeps that.
    rustix::fs::fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE).expect("its seal");
    let legacy = first.bequeath().expect("it can be passed on");
    drop(first);
    let mut heir = Memif::inherit(&options(&folder), vec![legacy]).expect("it goes on").remove(0);
    assert!(!heir.is_connected());
    let Some(Message::Disconnect { reason, .. }) = client.hear() else { panic!("it is not told") };
    assert_eq!(reason.to_string(), "the region cannot be mapped");
    joined(&mut heir);
}

#[test]
fn only_who_may_is_served() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to be another user");
        return;
    }
    let folder = folder();
    // The folder is none that keeps others out.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = options(&folder).socket;
    let refusal = Some("this user may not connect");
    // A file keeps others out by itself.
    for (name, any_user, expected) in [
        (format!("@{path}"), false, Some(refusal)),
        (format!("@{path}"), true, Some(None)),
        (path.clone(), false, None),
        (path, true, Some(None)),
    ] {
        let mut server = Memif::open(&MemifOptions { any_user, ..MemifOptions::new(&name) }).expect("a server");
        // A thread of its own, because it cannot get its rights back.
        let connect = || {
            // SAFETY: no memory is passed. The system call, unlike the library's function, changes this thread only.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
            dial(&name)
        };
        let connected = std::thread::scope(|scope| scope.spawn(connect).join().expect("it tries"));
        look(&mut server, Time::ZERO);
        let heard = connected.map(|channel| match (Raw { channel, memory: None }).hear() {
            Some(Message::Disconnect { reason, .. }) => Some(reason.to_string()),
            Some(Message::Hello(_)) => None,
            other => panic!("{other:?}"),
        });
        let came = heard.as_ref().ok().map(Option::as_deref);
        assert_eq!(came, expected, "{name}, any user: {any_user}: {heard:?}");
        assert_eq!(server.counts.refused, u64::from(expected == Some(refusal)));
    }
}

#[test]
fn a_ring_with_flags_that_nobody_knows_is_no_message() {
    let mut bytes = Message::AddRing(ring(true)).write();
    for flags in [2u16, 0x8000, 0x8001] {
        bytes[2..4].copy_from_slice(&flags.to_ne_bytes());
        assert_eq!(Message::read(&bytes), Err("a ring has unknown flags"));
    }
}

/// Takes as long to be dropped as nobody says that it may go.
struct Slow(std::sync::mpsc::Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        // Whoever has gone without a word has said it too.
        let _ = self.0.recv();
    }
}

/// Leaves more to close than somebody is let in beside, until a word comes or nobody can say it.
fn leave_too_much(server: &mut Memif) -> std::sync::mpsc::Sender<()> {
    let (go_on, told) = std::sync::mpsc::channel();
    server.closer.close(Slow(told));
    // Each peer leaves its connection and a descriptor.
    let peers = (0..200).map_while(|_| {
        let client = Raw { channel: dial(&server.options.socket).ok()?, memory: None };
        look(server, Time::ZERO);
        client.hear()?;
        client.say(Message::Acknowledge, Some(&event()));
        look(server, Time::ZERO);
        Some(client)
    });
    assert_eq!(peers.count(), crate::peer::MOST_UNCLOSED / 2);
    assert_eq!(server.closer.waiting(), crate::peer::MOST_UNCLOSED + 1);
    go_on
}

#[test]
fn who_goes_on_lets_somebody_in_whatever_was_left_to_close_before() {
    let folder = folder();
    let mut first = server(&folder);
    let _still = leave_too_much(&mut first);
    look(&mut first, Time::ZERO);
    assert!(first.description().contains("letting nobody in"), "{}", first.description());
    let legacy = first.bequeath().expect("it can be passed on");
    let mut heir = Memif::inherit(&options(&folder), vec![legacy]).expect("it goes on").remove(0);
    let client = Raw { channel: dial(&heir.options.socket).expect("it listens"), memory: None };
    // Those that nobody let in before it have gone.
    (0..10).for_each(|_| look(&mut heir, Time::ZERO));
    assert!(matches!(client.hear(), Some(Message::Hello(_))), "{}", heir.description());
}

#[test]
fn nobody_is_let_in_and_nobody_is_woken_while_too_much_is_left_to_close() {
    let folder = folder();
    let mut server = server(&folder);
    let go_on = leave_too_much(&mut server);
    let late = Raw { channel: dial(&server.options.socket).expect("it listens"), memory: None };
    server.arm();
    look(&mut server, Time::ZERO);
    let due = server.next_due().expect("it looks again");
    assert!(due > Time::ZERO && !is_awake(&server) && late.hear().is_none());
    assert!(server.description().contains("letting nobody in"), "{}", server.description());
    look(&mut server, due);
    assert!(server.details().contains(&("times_shut", 1)), "{:?}", server.details());
    go_on.send(()).expect("it waits for this");
    while server.closer.waiting() > 0 {
        conic_native::yield_core();
    }
    // One that has gone waits before it.
    let due = server.next_due().expect("it looks again");
    (0..10).for_each(|_| look(&mut server, due));
    let said: Vec<_> = std::iter::from_fn(|| late.hear()).collect();
    assert!(matches!(said[..], [Message::Hello(_)]), "{said:?}");
    drop(late);
    while !server.description().contains("the other side is gone") {
        look(&mut server, due);
    }
    assert_eq!((server.next_due(), is_awake(&server)), (None, false));
    let _next = dial(&server.options.socket).expect("it listens");
    assert!(is_awake(&server), "who waits wakes it again");
}

#[test]
fn only_memory_is_looked_at_and_only_sealed_memory_unless_it_need_not_be() {
    let folder = folder();
    let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").expect("a file of no memory"));
    let no_memory = Some("the region is no memory of this size");
    for (unsealed, memory, expected) in [
        (false, file(), no_memory),
        (true, file(), no_memory),
        (true, pipe(), no_memory),
        (false, super::unsealed(), Some("the region is not sealed against shrinking")),
        (true, super::unsealed(), None),
        (false, region().1, None),
    ] {
        let wanted = MemifOptions { unsealed, ..options(&folder) };
        assert_eq!(
            crate::peer::map_region(0, 4096, &memory, wanted.unsealed).err(),
            expected,
            "{unsealed}: {memory:?}"
        );
    }
}
