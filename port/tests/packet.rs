//! The packet socket against the kernel, over a pair of connected interfaces.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;

use crate::support::network::{
    EXPERIMENT, alone, detail, frame, out_of_descriptors, packet_socket, pair, receive, receive_at, run, wait, wait_for,
};
use conic_fabric::Time;
use conic_native::socket::set_option;
use conic_native::{Flag, clock};
use conic_port::offload::checksum::{self, Verdict};
use conic_port::offload::virtio::{Checksum, HEADER_BYTES, Metadata, Segmentation, set_header_length};
use conic_port::offload::vlan::Tag;
use conic_port::offload::{Headers, TCP};
use conic_port::{MAX_FRAME, PacketOptions, PacketSocket, Port, PortSpec, Receive, Transmit};

const SECOND: Time = Time::from_nanoseconds(1_000_000_000);

#[test]
fn frames_of_every_size_pass_both_ways_unchanged() {
    if !pair(9586) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
    let mut socket = packet_socket("v1");
    for round in 0..3u8 {
        for length in [60, 61, 127, 128, 1000, 1514, 4000, 9599, 9600] {
            let sent = frame(length, EXPERIMENT, round.wrapping_add(length as u8));
            socket.write_all(&sent).unwrap();
            assert_eq!(receive(&mut port), sent);
            assert_eq!(port.transmit(Time::ZERO, &sent).unwrap(), Transmit::Accepted);
            port.flush(Time::ZERO).unwrap();
            assert_eq!(receive_at(&mut socket), sent);
        }
    }
    assert_eq!((port.counters().received_frames, port.counters().transmitted_frames), (27, 27));
    assert_eq!((port.counters().skipped(), port.counters().refused(), port.counters().missed), (0, 0, 0));
    assert!(port.is_up() && port.description().contains("packet socket on v0"));
}

#[test]
fn tags_that_the_kernel_takes_out_are_put_back() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
    let mut socket = packet_socket("v1");
    for kind in [[0x81, 0x00], [0x88, 0xa8]] {
        let mut sent = frame(80, kind, 3);
        sent[14..16].copy_from_slice(&[0x20, 0x64]);
        sent[16..18].copy_from_slice(&EXPERIMENT);
        socket.write_all(&sent).unwrap();
        assert_eq!(receive(&mut port), sent);
        let longest = frame(1518, kind, 3);
        assert_eq!(port.transmit(Time::ZERO, &longest).unwrap(), Transmit::Accepted);
        assert_eq!(port.transmit(Time::ZERO, &frame(1519, kind, 3)).unwrap(), Transmit::Refused);
    }
    assert_eq!(port.counters().refused_over_mtu, 2);
}

#[test]
fn checksums_that_the_kernel_leaves_to_the_hardware_are_completed() {
    if !pair(1500) || !run("ip", &["address", "add", "10.1.0.1/24", "dev", "v1"]) {
        return;
    }
    run("ip", &["neighbour", "add", "10.1.0.2", "lladdr", "02:00:00:00:00:02", "dev", "v1"]);
    let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
    let socket = UdpSocket::bind("10.1.0.1:0").unwrap();
    for length in [0, 1, 17, 18, 19, 1000, 1472] {
        socket.send_to(&vec![0xa5; length], "10.1.0.2:9").unwrap();
        let got = receive(&mut port);
        assert_eq!(got[23], 17, "a UDP packet");
        let verdicts = checksum::verify(&got);
        assert_eq!((verdicts.network, verdicts.transport), (Verdict::Good, Verdict::Good), "{length}");
    }
    assert_eq!(detail(&port, "checksums_completed"), 7);
}

/// A TCP packet with a tag and so many bytes of payload, and what a kernel says of it that leaves its cutting to the hardware.
fn tagged_packet(payload: usize, metadata: Metadata) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    packet.extend([0x81, 0, 0x60, 5, 8, 0, 0x45, 0, 0, 0, 0, 7, 0x40, 0]);
    packet.extend([64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 4, 0, 0, 80]);
    packet.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..payload).map(|at| (at * 7) as u8));
    let length = packet.len() as u16 - 18;
    packet[20..22].copy_from_slice(&length.to_be_bytes());
    let headers = Headers::of(&packet).unwrap();
    checksum::fill_network(&mut packet, &headers);
    let mut header = [0; HEADER_BYTES];
    metadata.write(Some(&headers), &mut header);
    set_header_length(&mut header, headers.transport + headers.transport_length(&packet));
    [&header[..], &packet].concat()
}

#[test]
fn every_piece_of_a_packet_that_is_cut_has_the_tag_that_the_kernel_took_out() {
    const HEADER: usize = 58;
    if !pair(1500) {
        return;
    }
    let mut socket = packet_socket("v1");
    set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1).unwrap();
    let checksum = Checksum::Partial { start: 38, offset: 16 };
    // Where slots are not made for large packets, small ones come that are to be cut too.
    for (offload, size, payload) in [(true, 1442, 20_000), (true, 500, 1200), (false, 500, 1200)] {
        let mut port = PacketSocket::open(&PacketOptions { offload, ..PacketOptions::new("v0") }).unwrap();
        let metadata = Metadata { checksum, segmentation: Some(Segmentation { size: size as u16, protocol: TCP }) };
        let packet = tagged_packet(payload, metadata);
        socket.write_all(&packet).unwrap();
        let mut came = Vec::new();
        while came.len() < payload {
            let frame = receive(&mut port);
            assert_eq!(Tag::of(&frame), Some(Tag { kind: 0x8100, control: 0x6005 }), "of {payload} bytes");
            assert_eq!(frame.len(), HEADER + size.min(payload - came.len()));
            let verdicts = checksum::verify(&frame);
            assert_eq!((verdicts.network, verdicts.transport), (Verdict::Good, Verdict::Good));
            came.extend_from_slice(&frame[HEADER..]);
        }
        assert_eq!(came, packet[HEADER_BYTES + HEADER..]);
        assert_eq!((detail(&port, "packets_cut"), port.counters().skipped()), (1, 0));
        // The tag counts where there is no room for it.
        socket.write_all(&packet).unwrap();
        wait(&port);
        let room = HEADER + size - 1;
        assert_eq!(port.receive(Time::ZERO, &mut vec![0; room]).unwrap(), Receive::Skipped);
        assert_eq!(detail(&port, "packets_cut"), 1);
        assert_eq!(port.description().contains("with offloads"), offload, "{}", port.description());
    }
}

#[test]
fn a_ring_that_is_not_emptied_loses_frames_counts_them_and_goes_on() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions { frames: 64, ..PacketOptions::new("v0") }).unwrap();
    let mut socket = packet_socket("v1");
    let mut next = 0u32;
    for sent in [500, 1000, 1500] {
        for number in 0..500u32 {
            let mut sent = frame(60, EXPERIMENT, 1);
            sent[20..24].copy_from_slice(&number.to_be_bytes());
            socket.write_all(&sent).unwrap();
        }
        let mut buffer = [0; MAX_FRAME];
        let mut came = 0;
        while let Receive::Frame { length: 60, .. } = port.receive(Time::ZERO, &mut buffer).unwrap() {
            assert_eq!(buffer[20..24], u32::to_be_bytes(came), "in order, without gaps before the loss");
            came += 1;
        }
        assert!((64..500).contains(&came), "{came}");
        next += came;
        if sent == 1000 {
            // The first frame behind a loss says so.
            assert_eq!(port.counters().missed + u64::from(next), sent);
        }
    }
    port.finish().unwrap();
    assert_eq!(port.counters().missed + u64::from(next), 1500);
    assert_eq!(port.counters().received_frames, u64::from(next));
}

#[test]
fn a_burst_longer_than_the_ring_says_when_it_is_full_and_all_of_it_leaves() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions { frames: 16, ..PacketOptions::new("v0") }).unwrap();
    let mut socket = packet_socket("v1");
    for number in 0..5000u32 {
        let mut sent = frame(60 + number as usize % 1400, EXPERIMENT, 1);
        sent[20..24].copy_from_slice(&number.to_be_bytes());
        while port.transmit(Time::ZERO, &sent).unwrap() == Transmit::Full {
            port.flush(Time::ZERO).unwrap();
        }
        if number % 97 == 0 {
            port.flush(Time::ZERO).unwrap();
            for expected in number.saturating_sub(96)..=number {
                assert_eq!(receive_at(&mut socket)[20..24], expected.to_be_bytes());
            }
        }
    }
    assert_eq!((port.counters().transmitted_frames, detail(&port, "transmit_malformed")), (5000, 0));
}

#[test]
fn a_ring_that_is_full_leaves_with_the_next_frame_and_what_is_left_in_it_at_the_end() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions { frames: 16, ..PacketOptions::new("v0") }).unwrap();
    let mut socket = packet_socket("v1");
    // Nobody calls `flush`.
    for number in 0..200u8 {
        assert_eq!(port.transmit(Time::ZERO, &frame(60, EXPERIMENT, number)).unwrap(), Transmit::Accepted, "{number}");
    }
    assert!(port.next_due().is_some());
    port.finish().unwrap();
    for number in 0..200u8 {
        assert_eq!(receive_at(&mut socket), frame(60, EXPERIMENT, number));
    }
    assert_eq!((port.counters().transmit_full, port.next_due()), (0, None));
}

#[test]
fn what_the_kernel_does_not_send_at_once_is_sent_later_though_nothing_follows_it() {
    if !pair(1500) {
        return;
    }
    // What waits there is the socket's, and is more than it may have: the kernel stops between two frames.
    if !run("tc", &["qdisc", "add", "dev", "v0", "root", "tbf", "rate", "8mbit", "burst", "4k", "limit", "1m"]) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions { traffic_control: true, ..PacketOptions::new("v0") }).unwrap();
    let mut socket = packet_socket("v1");
    for number in 0..200u8 {
        assert_eq!(port.transmit(Time::ZERO, &frame(1500, EXPERIMENT, number)).unwrap(), Transmit::Accepted);
    }
    port.flush(Time::ZERO).unwrap();
    assert!(port.next_due().is_some(), "it cannot have sent all of them");
    // From here on it is looked at as whoever sleeps does.
    let mut buffer = [0; MAX_FRAME];
    for number in 0..200u8 {
        let mut came = [0; 1500];
        while socket.read(&mut came).is_err() {
            let due = port.next_due().map_or(clock::now() + SECOND, |due| due.max(clock::now()));
            wait_for(&socket, due.since(clock::now()).nanoseconds().div_ceil(1_000_000) as i32);
            assert_eq!(port.receive(clock::now(), &mut buffer).unwrap(), Receive::None);
        }
        assert_eq!(came[..], frame(1500, EXPERIMENT, number)[..]);
    }
    assert_eq!((port.counters().refused_by_kernel, port.next_due()), (0, None));
}

#[test]
fn frames_pass_the_kernels_traffic_control_only_where_that_is_asked_for() {
    if !pair(1500) || !run("tc", &["qdisc", "add", "dev", "v0", "root", "blackhole"]) {
        return;
    }
    let mut socket = packet_socket("v1");
    for (number, traffic_control) in [true, false].into_iter().enumerate() {
        let mut port = PacketSocket::open(&PacketOptions { traffic_control, ..PacketOptions::new("v0") }).unwrap();
        assert_eq!(port.transmit(Time::ZERO, &frame(60, EXPERIMENT, number as u8)).unwrap(), Transmit::Accepted);
        port.flush(Time::ZERO).unwrap();
    }
    assert_eq!(receive_at(&mut socket), frame(60, EXPERIMENT, 1), "the first was dropped there");
}

#[test]
fn what_others_send_out_of_the_interface_is_not_received() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
    packet_socket("v0").write_all(&frame(60, EXPERIMENT, 1)).unwrap();
    packet_socket("v1").write_all(&frame(60, EXPERIMENT, 2)).unwrap();
    assert_eq!(receive(&mut port), frame(60, EXPERIMENT, 2));
    assert_eq!(port.counters().received_frames, 1);
}

#[test]
fn the_interface_takes_frames_for_any_address_where_that_is_asked_for() {
    if !pair(1500) {
        return;
    }
    for promiscuous in [true, false] {
        let _port = PacketSocket::open(&PacketOptions { promiscuous, ..PacketOptions::new("v0") }).unwrap();
        let shown = Command::new("ip").args(["-d", "link", "show", "v0"]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(&format!("promiscuity {} ", u8::from(promiscuous))), "{shown}");
    }
}

#[test]
fn a_frame_that_does_not_fit_is_left_out_and_counted_and_the_next_one_comes() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
    // Longer than the slots, which were made for the MTU of before.
    run("ip", &["link", "set", "v0", "mtu", "9000"]);
    run("ip", &["link", "set", "v1", "mtu", "9000"]);
    let mut socket = packet_socket("v1");
    let sent = frame(80, EXPERIMENT, 2);
    socket.write_all(&frame(4000, EXPERIMENT, 1)).unwrap();
    socket.write_all(&sent).unwrap();
    assert_eq!(port.receive(Time::ZERO, &mut [0; MAX_FRAME]).unwrap(), Receive::Skipped);
    assert_eq!((receive(&mut port), port.counters().skipped_truncated), (sent.clone(), 1));
    // Longer than the caller's room.
    let mut tagged = frame(80, [0x81, 0x00], 3);
    tagged[14..16].copy_from_slice(&[0x20, 0x64]);
    for (longer, room) in [(&sent, 79), (&tagged, 79)] {
        socket.write_all(longer).unwrap();
        socket.write_all(&sent).unwrap();
        assert_eq!(port.receive(Time::ZERO, &mut [0; MAX_FRAME][..room]).unwrap(), Receive::Skipped);
        assert_eq!(receive(&mut port), sent);
    }
    assert_eq!((port.counters().skipped_oversized, port.counters().skipped()), (2, 3));
}

#[test]
fn what_was_there_can_be_forgotten_and_what_comes_then_is_received() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions { frames: 16, ..PacketOptions::new("v0") }).unwrap();
    let mut socket = packet_socket("v1");
    for count in [0, 1, 10, 100] {
        for _ in 0..count {
            socket.write_all(&frame(60, EXPERIMENT, 1)).unwrap();
        }
        port.forget_received();
        let sent = frame(60, EXPERIMENT, 2);
        socket.write_all(&sent).unwrap();
        assert_eq!(receive(&mut port), sent, "behind {count}");
    }
    assert_eq!(port.counters().received_frames, 4);
    // More came than there were slots; what the kernel dropped of it is not missed either.
    port.finish().unwrap();
    assert_eq!(port.counters().missed, 0);
}

#[test]
fn no_frame_comes_twice_while_queues_are_opened() {
    const TIMES: usize = 5;
    if !pair(1500) {
        return;
    }
    for _ in 0..TIMES {
        let mut socket = packet_socket("v1");
        let stop = Flag::new();
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| {
                for number in 0u64.. {
                    let mut sent = frame(60, EXPERIMENT, number as u8);
                    sent[14..22].copy_from_slice(&number.to_be_bytes());
                    // Of what finds no room nothing comes at all.
                    let _ = socket.write(&sent);
                    if stop.is_up() {
                        break;
                    }
                }
            });
            let options = PacketOptions { queues: 8, frames: 8192, ..PacketOptions::new("v0") };
            let mut queues = PacketSocket::open_queues(&options).unwrap();
            stop.raise();
            sends.join().unwrap();
            let (mut seen, mut buffer) = (BTreeSet::new(), [0; MAX_FRAME]);
            for (queue, port) in queues.iter_mut().enumerate() {
                while let Receive::Frame { .. } = port.receive(Time::ZERO, &mut buffer).unwrap() {
                    let number = u64::from_be_bytes(buffer[14..22].try_into().unwrap());
                    assert!(seen.insert(number), "frame {number} came again, to queue {queue}");
                }
            }
            assert!(!seen.is_empty(), "the first queue takes all until there are others");
        });
    }
}

#[test]
fn the_queues_of_a_group_share_the_flows_and_lose_none() {
    if !pair(1500) || !run("ip", &["address", "add", "10.1.0.1/24", "dev", "v1"]) {
        return;
    }
    run("ip", &["neighbour", "add", "10.1.0.2", "lladdr", "02:00:00:00:00:02", "dev", "v1"]);
    let spec: PortSpec = "af-packet:v0,queues=3".parse().unwrap();
    let mut queues = spec.open().unwrap();
    assert_eq!(queues.len(), 3);
    // All at once: the port of a socket that is closed may be the next one's.
    let sockets: Vec<UdpSocket> = (0..60).map(|_| UdpSocket::bind("10.1.0.1:0").unwrap()).collect();
    for socket in &sockets {
        for _ in 0..3 {
            socket.send_to(b"hello", "10.1.0.2:9").unwrap();
        }
    }
    let mut buffer = [0; MAX_FRAME];
    let mut owner = std::collections::BTreeMap::new();
    for (queue, port) in queues.iter_mut().enumerate() {
        while let Receive::Frame { .. } = port.receive(Time::ZERO, &mut buffer).unwrap() {
            if buffer[23] == 17 {
                let entry = owner.entry([buffer[34], buffer[35]]).or_insert((queue, 0));
                assert_eq!(entry.0, queue, "a flow came to two queues");
                entry.1 += 1;
            }
        }
    }
    assert!(owner.len() == 60 && owner.values().all(|(_, count)| *count == 3), "{owner:?}");
    let used: std::collections::BTreeSet<usize> = owner.values().map(|(queue, _)| *queue).collect();
    assert_eq!(used.len(), 3);
}

#[test]
fn an_interface_that_goes_down_refuses_and_works_again_when_it_is_up() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
    let mut socket = packet_socket("v1");
    run("ip", &["link", "set", "v0", "down"]);
    assert!(!port.is_up());
    for _ in 0..10 {
        port.transmit(Time::ZERO, &frame(60, EXPERIMENT, 1)).unwrap();
    }
    port.flush(Time::ZERO).unwrap();
    let counters = port.counters();
    assert_eq!((counters.refused_by_kernel, counters.transmitted_frames, counters.transmitted_bytes), (10, 0, 0));
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..10_000 {
        assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None);
    }
    run("ip", &["link", "set", "v0", "up"]);
    wait_for(&socket, 100);
    let sent = frame(99, EXPERIMENT, 2);
    port.transmit(Time::ZERO, &sent).unwrap();
    port.flush(Time::ZERO).unwrap();
    assert_eq!(receive_at(&mut socket), sent);
    socket.write_all(&sent).unwrap();
    assert_eq!(receive(&mut port), sent);
}

#[test]
fn an_interface_that_is_removed_is_an_error_once_and_then_the_end() {
    for was_down in [false, true] {
        if !pair(1500) {
            return;
        }
        let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
        let mut buffer = [0; MAX_FRAME];
        if was_down {
            // The kernel says so on the socket, once, and of the removal nothing more.
            run("ip", &["link", "set", "v0", "down"]);
            for _ in 0..10_000 {
                assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None);
            }
            assert!(port.next_due().is_some(), "nobody would wake it");
        }
        run("ip", &["link", "delete", "v0"]);
        let told = (0..10_000).find_map(|_| match port.receive(Time::ZERO, &mut buffer) {
            Ok(got) => {
                assert_eq!(got, Receive::None);
                None
            }
            Err(error) => Some(error.to_string()),
        });
        assert!(told.as_ref().is_some_and(|told| told.contains("v0 can no longer be used")), "{was_down}: {told:?}");
        assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
        assert_eq!(port.transmit(Time::ZERO, &frame(60, EXPERIMENT, 1)).unwrap(), Transmit::Refused);
        assert!(!port.is_up());
    }
}

#[test]
fn an_interface_that_is_down_while_the_process_is_out_of_descriptors_is_still_there() {
    if !pair(1500) {
        return;
    }
    let mut port = PacketSocket::open(&PacketOptions::new("v0")).unwrap();
    let mut socket = packet_socket("v1");
    run("ip", &["link", "set", "v0", "down"]);
    let taken = out_of_descriptors();
    let mut buffer = [0; MAX_FRAME];
    for milliseconds in [11, 22, 33] {
        let now = Time::from_nanoseconds(1_000_000 * milliseconds);
        assert_eq!(port.receive(now, &mut buffer).unwrap(), Receive::None);
        assert!(port.next_due().is_some(), "nobody would say when it is up, or gone");
    }
    drop(taken);
    run("ip", &["link", "set", "v0", "up"]);
    wait_for(&socket, 100);
    let sent = frame(60, EXPERIMENT, 1);
    socket.write_all(&sent).unwrap();
    assert_eq!(receive(&mut port), sent);
}

#[test]
fn what_cannot_be_opened_is_named_with_what_to_do() {
    if !alone() {
        return;
    }
    for (name, says) in [("absent", "there is no interface absent"), ("a/b", "is no name for an interface")] {
        let error = PacketSocket::open(&PacketOptions::new(name)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    // A thread of its own, because it cannot get its rights back.
    let without = || {
        // SAFETY: no memory is passed. The system call, unlike the library's function, changes this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        let error = PacketSocket::open(&PacketOptions::new("lo")).unwrap_err().to_string();
        assert!(error.contains("needs CAP_NET_RAW: run with sudo"), "{error}");
    };
    std::thread::spawn(without).join().unwrap();
}
