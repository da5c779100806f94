//! The AF_XDP socket against the kernel, over a pair of connected interfaces.

use std::io::Write;
use std::net::UdpSocket;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::support::network::{
    EXPERIMENT, alone, detail, frame, out_of_descriptors, packet_socket, pair, receive, receive_at, run, wait_for,
};
use conic_check::skipped;
use conic_fabric::Time;
use conic_port::offload::checksum::{self, Verdict};
use conic_port::{CopyMode, ForwardMode, Legacy, MAX_FRAME, Port, PortSpec, Receive, Transmit, XdpOptions, XdpSocket};

/// A pair of interfaces and a socket on one of them; `None`, with a word about it, where this kernel has no AF_XDP.
fn open(mtu: usize, options: XdpOptions) -> Option<XdpSocket> {
    if !pair(mtu) {
        return None;
    }
    match XdpSocket::open(&options) {
        Ok(port) => Some(port),
        Err(error) if error.to_string().contains("has no AF_XDP") => {
            skipped(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// All frames are somewhere: none was lost, none was made.
fn check_frames(port: &XdpSocket, frames: u64) {
    assert_eq!(detail(port, "frame_faults"), 0);
    let (free, receiving) = (detail(port, "frames_free"), detail(port, "frames_receiving"));
    assert_eq!(free + receiving, 2 * frames, "{free} free, {receiving} receiving");
    assert_eq!((detail(port, "kernel_transmit_invalid"), detail(port, "kernel_receive_invalid")), (0, 0));
}

fn both_ways(mtu: usize, lengths: &[usize], options: XdpOptions) {
    let Some(mut port) = open(mtu, options) else { return };
    let mut socket = packet_socket("v1");
    for round in 0..3u8 {
        for &length in lengths {
            let sent = frame(length, EXPERIMENT, round.wrapping_add(length as u8));
            socket.write_all(&sent).unwrap();
            assert_eq!(receive(&mut port), sent, "{length}");
            assert_eq!(port.transmit(Time::ZERO, &sent).unwrap(), Transmit::Accepted);
            port.flush(Time::ZERO).unwrap();
            assert_eq!(receive_at(&mut socket), sent, "{length}");
        }
    }
    port.flush(Time::ZERO).unwrap();
    assert_eq!(port.counters().received_frames, 3 * lengths.len() as u64);
    assert_eq!((port.counters().skipped(), port.counters().refused()), (0, 0));
    check_frames(&port, 64);
    let said = port.description();
    assert!(said.contains("AF_XDP on v0 queue 0") && said.contains("copy"), "{said}");
    assert_eq!(said.contains("copy mode"), !port.is_zero_copy());
}

fn small() -> XdpOptions {
    XdpOptions { frames: 64, ..XdpOptions::new("v0") }
}

#[test]
fn frames_of_every_size_pass_both_ways_unchanged() {
    both_ways(1500, &[60, 61, 64, 128, 1000, 1513, 1514], small());
}

#[test]
fn jumbo_frames_pass_in_several_buffers() {
    both_ways(9586, &[60, 1514, 3840, 3841, 4096, 4097, 8192, 9000, 9600], small());
}

#[test]
fn what_is_longer_than_the_longest_frame_is_left_out_and_counted_once() {
    let Some(mut port) = open(13_000, small()) else { return };
    let mut socket = packet_socket("v1");
    let mut buffer = [0; MAX_FRAME];
    for (count, length) in [(1, MAX_FRAME + 1), (2, 13_000)] {
        socket.write_all(&frame(length, EXPERIMENT, 1)).unwrap();
        loop {
            match port.receive(Time::ZERO, &mut buffer).unwrap() {
                Receive::None => wait_for(&port, 1000),
                Receive::Skipped => break,
                other => panic!("{length}: {other:?}"),
            }
        }
        assert_eq!((port.counters().skipped_oversized, port.counters().skipped()), (count, count), "{length}");
        let sent = frame(MAX_FRAME, EXPERIMENT, 2);
        socket.write_all(&sent).unwrap();
        assert_eq!(receive(&mut port), sent, "behind {length}");
    }
    port.flush(Time::ZERO).unwrap();
    check_frames(&port, 64);
}

#[test]
fn the_generic_hook_serves_too() {
    both_ways(1500, &[60, 1514], XdpOptions { generic: true, ..small() });
}

#[test]
fn thousands_of_frames_in_bursts_arrive_in_order_and_no_frame_of_memory_is_lost() {
    let Some(mut port) = open(1500, small()) else { return };
    let mut socket = packet_socket("v1");
    let mut buffer = [0; MAX_FRAME];
    let numbered = |number: u32| {
        let mut sent = frame(60 + number as usize % 1400, EXPERIMENT, 1);
        sent[20..24].copy_from_slice(&number.to_be_bytes());
        sent
    };
    for burst in 0..100u32 {
        for number in 0..50 {
            socket.write_all(&numbered(50 * burst + number)).unwrap();
        }
        for number in 0..50 {
            let length = loop {
                match port.receive(Time::ZERO, &mut buffer).unwrap() {
                    Receive::Frame { length, .. } => break length,
                    Receive::None => wait_for(&port, 1000),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(buffer[..length], numbered(50 * burst + number)[..]);
            // And back, through a ring that is shorter than what is under way.
            while port.transmit(Time::ZERO, &buffer[..length]).unwrap() == Transmit::Full {
                port.flush(Time::ZERO).unwrap();
            }
        }
        port.flush(Time::ZERO).unwrap();
        for number in 0..50 {
            assert_eq!(receive_at(&mut socket), numbered(50 * burst + number));
        }
    }
    port.flush(Time::ZERO).unwrap();
    assert_eq!((port.counters().received_frames, port.counters().transmitted_frames), (5000, 5000));
    check_frames(&port, 64);
}

#[test]
fn a_socket_goes_on_in_another_process_with_every_frame() {
    for options in [small(), XdpOptions { generic: true, ..small() }] {
        let Some(mut port) = open(1500, options.clone()) else { return };
        let mut socket = packet_socket("v1");
        for round in 0..40u8 {
            for number in 0..20 {
                socket.write_all(&frame(60 + number, EXPERIMENT, round)).unwrap();
            }
            let read = usize::from(round) % 20;
            for number in 0..read {
                assert_eq!(receive(&mut port), frame(60 + number, EXPERIMENT, round));
            }
            // Put into the ring, and not shown to the kernel.
            assert_eq!(port.transmit(Time::ZERO, &frame(99, EXPERIMENT, round)).unwrap(), Transmit::Accepted);
            assert!(port.can_bequeath(), "Linux 6.4 and newer map the rings of a bound socket");
            let legacy = port.bequeath().expect("it can");
            drop(port);
            port = XdpSocket::inherit(&options, vec![legacy]).unwrap().remove(0);
            assert_eq!(receive_at(&mut socket), frame(99, EXPERIMENT, round));
            for number in read..20 {
                assert_eq!(receive(&mut port), frame(60 + number, EXPERIMENT, round), "round {round}");
            }
        }
        port.flush(Time::ZERO).unwrap();
        check_frames(&port, 64);
        // The program goes with the last of them.
        drop(port);
        assert!(XdpSocket::open(&options).is_ok());
    }
}

#[test]
fn whoever_has_looked_in_vain_has_given_everything_back() {
    let Some(mut port) = open(1500, small()) else { return };
    let mut socket = packet_socket("v1");
    let mut buffer = [0; MAX_FRAME];
    // A few, and then as many as the rings hold, before anybody looks.
    for count in [10, 64] {
        for number in 0..count {
            socket.write_all(&frame(60, EXPERIMENT, number)).unwrap();
        }
        for number in 0..count {
            assert_eq!(receive(&mut port), frame(60, EXPERIMENT, number), "of {count}");
            // Half of the memory is for what is sent, whatever comes.
            assert!(detail(&port, "frames_free") >= 64);
        }
        while port.receive(Time::ZERO, &mut buffer).unwrap() != Receive::None {}
        assert_eq!((detail(&port, "frames_receiving"), detail(&port, "frames_free")), (64, 64));
    }
    port.finish().unwrap();
    assert_eq!(port.counters().missed, 0);
}

#[test]
fn a_frame_longer_than_the_callers_room_is_left_out_and_counted() {
    for (mtu, length) in [(1500, 1000), (9586, 9000)] {
        let Some(mut port) = open(mtu, small()) else { return };
        let mut socket = packet_socket("v1");
        for room in [length - 1, length] {
            let sent = frame(length, EXPERIMENT, 1);
            socket.write_all(&sent).unwrap();
            let mut buffer = vec![0; room];
            let got = loop {
                match port.receive(Time::ZERO, &mut buffer).unwrap() {
                    Receive::None => wait_for(&port, 1000),
                    got => break got,
                }
            };
            assert_eq!(matches!(got, Receive::Frame { .. }), room == length, "{got:?}");
            assert!(room < length || buffer == sent);
        }
        assert_eq!((port.counters().skipped_oversized, port.counters().skipped()), (1, 1));
    }
}

#[test]
fn what_is_not_all_of_a_socket_is_not_gone_on_with() {
    let Some(mut port) = open(1500, small()) else { return };
    let Some(whole) = port.bequeath() else { return };
    let again = |change: &dyn Fn(&mut Legacy)| {
        let descriptors = whole.descriptors.iter().map(|one| one.try_clone().unwrap()).collect();
        let mut legacy = Legacy { peer: String::new(), words: whole.words.clone(), descriptors };
        change(&mut legacy);
        legacy
    };
    let refused = |legacies| {
        let error = XdpSocket::inherit(&small(), legacies).unwrap_err().to_string();
        assert!(error.contains("is not all that belongs to the port"), "{error}");
    };
    // As many as there are queues, each with the size of its frames, all places and all descriptors.
    refused(vec![]);
    refused(vec![again(&|_| ()), again(&|_| ())]);
    refused(vec![again(&|legacy| legacy.words[3] = 1024)]);
    refused(vec![again(&|legacy| legacy.words[3] = 3000)]);
    refused(vec![again(&|legacy| legacy.words.truncate(6))]);
    refused(vec![again(&|legacy| legacy.words[4] = u64::MAX)]);
    refused(vec![again(&|legacy| legacy.descriptors.truncate(3))]);
    drop(port);
    let mut port = XdpSocket::inherit(&small(), vec![again(&|_| ())]).unwrap().remove(0);
    let mut socket = packet_socket("v1");
    socket.write_all(&frame(60, EXPERIMENT, 1)).unwrap();
    assert_eq!(receive(&mut port), frame(60, EXPERIMENT, 1));
}

#[test]
fn a_port_that_forwards_in_the_kernel_is_passed_on_with_its_tables_or_not_at_all() {
    let options = XdpOptions { forward: ForwardMode::Kernel, queues: 1, ..small() };
    let Some(mut port) = open(1500, options.clone()) else { return };
    assert!(port.description().ends_with("forwarding in the kernel"));
    let mut held = port.forwarding().expect("it forwards");
    // By itself it forwards nothing, and everything is received.
    let mut socket = packet_socket("v1");
    socket.write_all(&frame(60, EXPERIMENT, 1)).unwrap();
    assert_eq!(receive(&mut port), frame(60, EXPERIMENT, 1));
    held.place(0x0200_0000_0001, None).unwrap();
    held.open(1, held.device(), 1514).unwrap();
    let whole = port.bequeath().expect("it can");
    let again = |descriptors: usize| {
        let kept = whole.descriptors.iter().take(descriptors).map(|one| one.try_clone().unwrap()).collect();
        vec![Legacy { peer: String::new(), words: whole.words.clone(), descriptors: kept }]
    };
    drop((port, held));
    for descriptors in 4..8 {
        let error = XdpSocket::inherit(&options, again(descriptors)).unwrap_err().to_string();
        assert!(error.contains("is not all that belongs to the port"), "{error}");
    }
    let mut port = XdpSocket::inherit(&options, again(8)).unwrap().remove(0);
    let mut held = port.forwarding().expect("it forwards");
    assert!(!held.was_seen(0x0200_0000_0001).unwrap(), "nobody is known");
    assert_eq!(held.forwarded(1).unwrap(), (0, 0));
    socket.write_all(&frame(60, EXPERIMENT, 2)).unwrap();
    assert_eq!(receive(&mut port), frame(60, EXPERIMENT, 2));
    // One that forwards nothing has none.
    drop((port, held, whole));
    assert!(XdpSocket::open(&small()).unwrap().forwarding().is_none());
}

#[test]
fn who_is_never_idle_is_told_what_was_missed_as_well() {
    let Some(mut port) = open(1500, small()) else { return };
    let mut socket = packet_socket("v1");
    let mut buffer = [0; MAX_FRAME];
    // The kernel's statistics are looked at when the port is idle for the first time.
    assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None);
    for _ in 0..500 {
        socket.write_all(&frame(60, EXPERIMENT, 1)).unwrap();
    }
    wait_for(&port, 100);
    let later = Time::from_nanoseconds(11_000_000);
    for number in 0..40 {
        assert!(matches!(port.receive(later, &mut buffer).unwrap(), Receive::Frame { .. }), "frame {number}");
    }
    let missed = detail(&port, "kernel_receive_dropped") + detail(&port, "kernel_receive_ring_full");
    assert!(missed > 0);
    assert_eq!(port.counters().missed, missed);
}

#[test]
fn a_port_that_is_not_emptied_loses_frames_counts_them_and_goes_on() {
    let Some(mut port) = open(1500, small()) else { return };
    let mut socket = packet_socket("v1");
    let mut buffer = [0; MAX_FRAME];
    let mut came = 0;
    for _ in 0..3 {
        for _ in 0..500 {
            socket.write_all(&frame(60, EXPERIMENT, 1)).unwrap();
        }
        wait_for(&port, 100);
        while port.receive(Time::ZERO, &mut buffer).unwrap() != Receive::None {
            came += 1;
        }
    }
    assert!((64..1500).contains(&came), "{came}");
    let kernel = detail(&port, "kernel_receive_dropped")
        + detail(&port, "kernel_receive_ring_full")
        + detail(&port, "kernel_fill_ring_empty");
    assert!(kernel > 0);
    let missed = detail(&port, "kernel_receive_dropped") + detail(&port, "kernel_receive_ring_full");
    // Whoever only looks at the counters finds them, once it is time for a look.
    assert_eq!(port.receive(Time::from_nanoseconds(11_000_000), &mut buffer).unwrap(), Receive::None);
    for _ in 0..2 {
        assert_eq!(port.counters().missed, missed, "each is counted once");
        port.finish().unwrap();
    }
    let sent = frame(99, EXPERIMENT, 2);
    socket.write_all(&sent).unwrap();
    assert_eq!(receive(&mut port), sent);
    check_frames(&port, 64);
    // Who goes on with the socket has missed none of these.
    let legacy = port.bequeath().expect("it can");
    drop(port);
    let mut port = XdpSocket::inherit(&small(), vec![legacy]).unwrap().remove(0);
    port.finish().unwrap();
    assert_eq!(port.counters().missed, 0);
}

#[test]
fn checksums_that_a_neighbour_only_began_are_completed_where_that_is_asked_for() {
    let options = XdpOptions { complete_checksums: true, ..small() };
    let Some(mut port) = open(1500, options) else { return };
    run("ip", &["address", "add", "10.1.0.1/24", "dev", "v1"]);
    run("ip", &["neighbour", "add", "10.1.0.2", "lladdr", "02:00:00:00:00:02", "dev", "v1"]);
    let socket = UdpSocket::bind("10.1.0.1:0").unwrap();
    for length in [0, 1, 18, 1000] {
        socket.send_to(&vec![0xa5; length], "10.1.0.2:9").unwrap();
        let got = receive(&mut port);
        assert_eq!(checksum::verify(&got).transport, Verdict::Good, "{length}");
    }
}

#[test]
fn a_queue_that_was_just_another_sockets_is_waited_for() {
    let Some(port) = open(1500, small()) else { return };
    let busy = XdpSocket::open(&small()).unwrap_err().to_string();
    assert!(busy.contains("has an XDP program of somebody else"), "{busy}");
    drop(port);
    for _ in 0..20 {
        let mut port = XdpSocket::open(&small()).unwrap();
        port.transmit(Time::ZERO, &frame(60, EXPERIMENT, 1)).unwrap();
        port.flush(Time::ZERO).unwrap();
    }
}

#[test]
fn several_queues_of_an_interface_are_several_ports() {
    if !alone() || !run("ip", &["link", "add", "v0", "numrxqueues", "2", "numtxqueues", "2", "type", "veth"]) {
        return;
    }
    run("ip", &["link", "set", "v0", "up"]);
    let spec: PortSpec = "af-xdp:v0,queues=2,frames=64".parse().unwrap();
    let queues = spec.open().unwrap();
    assert_eq!(queues.len(), 2);
    assert!(queues[1].description().contains("queue 1"));
    drop(queues);
    let error = "af-xdp:v0,queue=2,frames=64".parse::<PortSpec>().unwrap().open().err().expect("no such queue");
    assert!(error.to_string().contains("queue 2"), "{error}");
}

#[test]
fn an_interface_that_goes_down_keeps_the_port_and_one_that_is_removed_ends_it() {
    let Some(mut port) = open(1500, small()) else { return };
    let mut socket = packet_socket("v1");
    run("ip", &["link", "set", "v0", "down"]);
    assert!(!port.is_up());
    for _ in 0..200 {
        let outcome = port.transmit(Time::ZERO, &frame(60, EXPERIMENT, 1)).unwrap();
        assert_ne!(outcome, Transmit::Refused);
    }
    port.flush(Time::ZERO).unwrap();
    assert!(port.counters().transmit_full > 0, "what is not sent waits, and then there is no room");
    assert!(port.next_due().is_some());
    run("ip", &["link", "set", "v0", "up"]);
    wait_for(&socket, 50);
    // Nothing follows it: a look is enough, and the next one is not worth it before a millisecond is over.
    let now = Time::from_nanoseconds(1_000_000);
    assert_eq!(port.receive(now, &mut [0; MAX_FRAME]).unwrap(), Receive::None);
    assert_eq!(receive_at(&mut socket), frame(60, EXPERIMENT, 1));
    assert!(port.is_up());
    run("ip", &["link", "delete", "v0"]);
    let mut buffer = [0; MAX_FRAME];
    let error = loop {
        match port.receive(Time::ZERO, &mut buffer) {
            Ok(got) => assert_ne!(got, Receive::End),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("v0 can no longer be used"), "{error}");
    assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
    assert_eq!(port.transmit(Time::ZERO, &frame(60, EXPERIMENT, 1)).unwrap(), Transmit::Refused);
}

#[test]
fn a_process_that_is_out_of_descriptors_keeps_its_port() {
    let Some(mut port) = open(1500, small()) else { return };
    let mut socket = packet_socket("v1");
    let taken = out_of_descriptors();
    let mut buffer = [0; MAX_FRAME];
    for milliseconds in [11, 22, 33] {
        let now = Time::from_nanoseconds(1_000_000 * milliseconds);
        assert_eq!(port.receive(now, &mut buffer).unwrap(), Receive::None);
    }
    drop(taken);
    let sent = frame(60, EXPERIMENT, 1);
    socket.write_all(&sent).unwrap();
    assert_eq!(receive(&mut port), sent);
}

#[test]
fn what_cannot_be_opened_is_named_with_what_to_do() {
    if !pair(1500) {
        return;
    }
    let zero_copy = XdpOptions { mode: CopyMode::ZeroCopy, ..small() };
    let absent = XdpOptions { interface: "absent".to_owned(), ..small() };
    let odd = XdpOptions { interface: "a/b".to_owned(), ..small() };
    for (options, says) in [
        (absent, "there is no interface absent"),
        (odd, "is no name for an interface"),
        (zero_copy, "cannot pass frames of queue 0 without copying"),
    ] {
        let error = XdpSocket::open(&options).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    // A thread of its own, because it cannot get its rights back.
    let without = || {
        // SAFETY: no memory is passed. The system call, unlike the library's function, changes this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        let error = XdpSocket::open(&small()).unwrap_err().to_string();
        assert!(error.contains("run with sudo"), "{error}");
    };
    std::thread::spawn(without).join().unwrap();
}

/// Does something while a thread sends this one signals that a handler takes, some ten thousand a second.
fn amid_signals(work: impl FnOnce()) {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing; nobody else in this program has one for that signal.
    let before = unsafe { libc::signal(libc::SIGURG, handler as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
    // SAFETY: no memory is passed.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let (end, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let end = end;
        scope.spawn(move || {
            while ended.recv_timeout(Duration::from_micros(20)) == Err(RecvTimeoutError::Timeout) {
                // SAFETY: no memory is passed; the thread lives at least as long as this scope.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
            }
        });
        work();
        drop(end);
    });
}

#[test]
fn signals_neither_keep_a_socket_from_opening_nor_change_where_its_program_is() {
    let Some(quiet) = open(1500, small()) else { return };
    let description = quiet.description();
    drop(quiet);
    amid_signals(|| {
        for round in 0..60 {
            let port = XdpSocket::open(&small()).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(port.description(), description, "round {round}");
        }
    });
}
