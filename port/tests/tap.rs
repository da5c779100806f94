//! The TAP port against the kernel. Each test has a network namespace of its own, so that nothing on the machine is
//! touched; without the right to make one, a test says that it is skipped.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::support::network::{self, EXPERIMENT, frame, packet_socket, receive_at, wait};
use conic_check::skipped;
use conic_fabric::Time;
use conic_port::offload::checksum::{Verdict, fill, verify};
use conic_port::offload::segment::LONGEST;
use conic_port::offload::virtio::{Checksum, Metadata, Segmentation};
use conic_port::offload::{TCP, UDP};
use conic_port::{Ipv4Address, MAX_FRAME, MIN_FRAME, Port, Receive, Tap, TapOptions, Transmit};

/// Puts this thread into a network namespace of its own.
fn alone() -> bool {
    if !std::path::Path::new("/dev/net/tun").exists() {
        skipped("there is no /dev/net/tun here");
        return false;
    }
    network::alone()
}

fn options(name: &str) -> TapOptions {
    TapOptions { name: Some(name.to_owned()), up: true, ..TapOptions::default() }
}

/// The next frame of this EtherType that the port receives.
fn receive(tap: &mut Tap, kind: [u8; 2]) -> Vec<u8> {
    let mut buffer = [0xee; MAX_FRAME];
    for _ in 0..1000 {
        match tap.receive(Time::ZERO, &mut buffer).unwrap() {
            Receive::Frame { length, .. } if buffer[12..14] == kind => {
                return buffer[..length].to_vec();
            }
            Receive::Frame { .. } => {}
            Receive::None => wait(tap),
            other => panic!("{other:?}"),
        }
    }
    panic!("no frame of type {kind:02x?} came");
}

#[test]
fn frames_of_the_kernel_are_received_and_frames_transmitted_reach_it() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&TapOptions { mtu: Some(9586), ..options("conictest") }).unwrap();
    assert_eq!((tap.name(), tap.mtu(), tap.next_due()), ("conictest", 9586, None));
    let mut socket = packet_socket("conictest");
    for length in [60, 61, 1514, 9600] {
        let sent = frame(length, EXPERIMENT, length as u8);
        socket.write_all(&sent).unwrap();
        assert_eq!(receive(&mut tap, EXPERIMENT), sent);
        assert_eq!(tap.transmit(Time::ZERO, &sent).unwrap(), Transmit::Accepted);
        assert_eq!(receive_at(&mut socket), sent);
    }
    assert_eq!(tap.counters().transmitted_frames, 4);
    assert_eq!(tap.counters().transmitted_bytes, 60 + 61 + 1514 + 9600);
    assert_eq!(tap.counters().skipped(), 0);
}

#[test]
fn short_frames_of_the_kernel_are_padded_as_a_nic_pads_them() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&options("conictest")).unwrap();
    let mut socket = packet_socket("conictest");
    let sent = frame(42, EXPERIMENT, 5);
    socket.write_all(&sent).unwrap();
    let got = receive(&mut tap, EXPERIMENT);
    assert_eq!(got[..42], sent);
    assert_eq!(got[42..], [0; 18]);
    assert!(tap.counters().received_padded >= 1);
}

#[test]
fn a_frame_longer_than_the_buffer_is_counted_not_cut() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&options("conictest")).unwrap();
    let mut socket = packet_socket("conictest");
    let mut buffer = [0; MAX_FRAME];
    // What the kernel sends on its own when an interface comes up.
    while tap.receive(Time::ZERO, &mut buffer).unwrap() != Receive::None {}
    socket.write_all(&frame(1001, EXPERIMENT, 5)).unwrap();
    let mut skipped = false;
    for _ in 0..100 {
        match tap.receive(Time::ZERO, &mut buffer[..1000]).unwrap() {
            Receive::Skipped => skipped = true,
            Receive::None if skipped => break,
            Receive::None => wait(&tap),
            _ => {}
        }
    }
    assert!(skipped);
    assert_eq!(tap.counters().skipped_oversized, 1);
    socket.write_all(&frame(1000, EXPERIMENT, 6)).unwrap();
    assert_eq!(receive(&mut tap, EXPERIMENT), frame(1000, EXPERIMENT, 6));
}

#[test]
fn frames_over_the_mtu_are_counted_and_a_tag_is_not_part_of_it() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&TapOptions { mtu: Some(1500), ..options("conictest") }).unwrap();
    for (length, kind, expected) in [
        (1514, EXPERIMENT, Transmit::Accepted),
        (1515, EXPERIMENT, Transmit::Refused),
        (1518, [0x81, 0x00], Transmit::Accepted),
        (1518, [0x88, 0xa8], Transmit::Accepted),
        (1519, [0x81, 0x00], Transmit::Refused),
        (59, EXPERIMENT, Transmit::Refused),
        (9601, EXPERIMENT, Transmit::Refused),
    ] {
        let sent = tap.transmit(Time::ZERO, &frame(length, kind, 1)).unwrap();
        assert_eq!(sent, expected, "{length} {kind:02x?}");
    }
    assert_eq!((tap.counters().refused_over_mtu, tap.counters().refused_length), (2, 2));
}

#[test]
fn an_interface_that_is_down_refuses_and_is_counted() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&TapOptions { up: false, ..options("conictest") }).unwrap();
    let sent = tap.transmit(Time::ZERO, &frame(60, EXPERIMENT, 1)).unwrap();
    assert_eq!(sent, Transmit::Refused);
    assert_eq!((tap.counters().refused_by_kernel, tap.counters().transmitted_frames), (1, 0));
    assert_eq!(tap.receive(Time::ZERO, &mut [0; MAX_FRAME]).unwrap(), Receive::None);
}

#[test]
fn with_an_address_the_kernel_asks_for_its_neighbours_by_arp_and_hears_the_answer() {
    if !alone() {
        return;
    }
    let address: Ipv4Address = "10.77.0.1/24".parse().unwrap();
    let mut tap = Tap::open(&TapOptions { address: Some(address), ..options("conictest") }).unwrap();
    let socket = std::net::UdpSocket::bind("10.77.0.1:0").unwrap();
    // In the network by the mask of 24 bits, and out of it by the mask of the address's class.
    assert!(socket.send_to(b"hello", "10.78.0.2:9").is_err(), "no route beyond the mask");
    socket.send_to(b"hello", "10.77.0.2:9").unwrap();
    let request = receive(&mut tap, [0x08, 0x06]);
    assert_eq!(request.len(), MIN_FRAME);
    assert_eq!(request[28..32], [10, 77, 0, 1]);
    assert_eq!(request[38..42], [10, 77, 0, 2]);

    let mut answer = request.clone();
    let mine = [2, 0, 0, 0, 0, 9];
    answer[..6].copy_from_slice(&request[6..12]);
    answer[6..12].copy_from_slice(&mine);
    answer[20..22].copy_from_slice(&[0, 2]);
    answer[22..28].copy_from_slice(&mine);
    answer[28..32].copy_from_slice(&request[38..42]);
    answer[32..42].copy_from_slice(&request[22..32]);
    assert_eq!(tap.transmit(Time::ZERO, &answer).unwrap(), Transmit::Accepted);
    let datagram = receive(&mut tap, [0x08, 0x00]);
    assert_eq!(datagram[..6], mine);
    assert_eq!(datagram[42..47], *b"hello");
}

#[test]
fn a_second_user_and_an_interface_of_another_kind_are_named() {
    if !alone() {
        return;
    }
    let _tap = Tap::open(&options("conictest")).unwrap();
    let error = Tap::open(&options("conictest")).unwrap_err().to_string();
    assert!(error.contains("conictest is in use by another process"), "{error}");
    let error = Tap::open(&options("lo")).unwrap_err().to_string();
    assert!(error.contains("lo exists and is not a TAP interface"), "{error}");
}

#[test]
fn the_kernel_chooses_a_name_where_none_is_given_and_the_interface_goes_with_its_port() {
    if !alone() {
        return;
    }
    let first = Tap::open(&TapOptions::default()).unwrap();
    let second = Tap::open(&TapOptions::default()).unwrap();
    assert_eq!((first.name(), second.name()), ("conic0", "conic1"));
    drop(first);
    // A child that another test has just made holds the interface too, until it is the program that it is to be.
    let is_free = || Tap::open(&TapOptions::default()).unwrap().name() == "conic0";
    assert!((0..1000).any(|_| is_free()), "the interface stays");
}

#[test]
fn an_interface_that_is_removed_is_an_error_once_and_then_the_end() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&options("conictest")).unwrap();
    // The child inherits this thread's namespace.
    match Command::new("ip").args(["link", "delete", "conictest"]).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return skipped(&format!("there is no ip command here ({error})")),
    }
    let mut buffer = [0; MAX_FRAME];
    let error = loop {
        match tap.receive(Time::ZERO, &mut buffer) {
            Ok(got) => assert_ne!(got, Receive::End),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("conictest can no longer be used"), "{error}");
    assert_eq!(tap.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
    assert_eq!(tap.transmit(Time::ZERO, &frame(60, EXPERIMENT, 1)).unwrap(), Transmit::Refused);
}

#[test]
fn names_and_mtus_that_cannot_be_are_refused_before_the_kernel_is_asked() {
    for name in ["", "sixteen-letters-", "a b", "a/b", "conic%d", "..", "a:b", "\u{e4}"] {
        let error = Tap::open(&options(name)).unwrap_err().to_string();
        assert!(error.contains("is no name for an interface"), "{name:?}: {error}");
    }
    for mtu in [0, 67, 9587, usize::MAX] {
        let error = Tap::open(&TapOptions { mtu: Some(mtu), ..options("conictest") });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("out of range: give 68 to 9586"), "{error}");
    }
}

#[test]
fn without_permission_the_error_says_what_to_do() {
    // A thread of its own, because it cannot get its rights back.
    let without = || {
        if !alone() {
            return;
        }
        // SAFETY: no memory is passed. The system call, unlike the library's function, changes this thread only.
        let dropped = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(dropped, 0);
        let error = Tap::open(&options("conictest")).unwrap_err().to_string();
        let not_permitted = "making the TAP interface conictest needs CAP_NET_ADMIN: run with sudo, or create it \
                             first with: sudo ip tuntap add dev conictest mode tap user $USER";
        // Where the device file is open to root only.
        let no_driver = "/dev/net/tun cannot be opened (Permission denied (os error 13)): run with sudo, or";
        assert!(error == not_permitted || error.starts_with(no_driver), "{error}");
    };
    std::thread::spawn(without).join().unwrap();
}

#[test]
fn addresses_are_written_with_their_prefix() {
    let address: Ipv4Address = "192.168.7.1/20".parse().unwrap();
    assert_eq!(address.address().octets(), [192, 168, 7, 1]);
    assert_eq!(address.mask().octets(), [255, 255, 240, 0]);
    assert_eq!("1.2.3.4/0".parse::<Ipv4Address>().unwrap().mask().octets(), [0; 4]);
    assert_eq!("1.2.3.4/32".parse::<Ipv4Address>().unwrap().mask().octets(), [255; 4]);
    for wrong in ["1.2.3.4", "1.2.3.4/33", "1.2.3/8", "/8", "", "1.2.3.4/", "1.2.3.4/-1"] {
        assert!(wrong.parse::<Ipv4Address>().is_err(), "{wrong:?}");
    }
}

/// One end of a TCP connection, in a namespace of its own: its interface, and what it does with its address.
fn station<T: Send>(
    name: &'static str,
    address: &str,
    hand_over: &Sender<Tap>,
    talk: impl FnOnce() -> T + Send,
) -> Option<T> {
    if !alone() {
        return None;
    }
    let address = Some(address.parse().unwrap());
    hand_over.send(Tap::open(&TapOptions { address, offload: true, ..options(name) }).unwrap()).unwrap();
    Some(talk())
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..4 << 20).map(|at: usize| (at * 7 + at / 251 + seed) as u8).collect()
}

/// Waits at most so long for the other end.
fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// A TCP frame of a flow with a VLAN tag, and 1000 bytes of payload.
fn segment(number: usize, tag: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend([0x81, 0, 0x60, tag, 8, 0, 0x45, 0, 4, 16, 0, number as u8, 0x40, 0]);
    frame.extend([64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 4, 0, 0, 80]);
    frame.extend((1000 * number as u32).to_be_bytes());
    frame.extend([0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.extend((0..1000).map(|at: usize| (at * 7 + number) as u8));
    fill(&mut frame);
    frame
}

#[test]
fn what_is_held_when_the_interface_goes_is_counted_and_that_is_said_once() {
    if !alone() {
        return;
    }
    for (finish, frames) in [(false, 1), (false, 3), (true, 3)] {
        let mut tap = Tap::open(&TapOptions { offload: true, ..options("conictest") }).unwrap();
        for number in 0..frames {
            assert_eq!(tap.transmit(Time::ZERO, &segment(number, 7)).unwrap(), Transmit::Accepted);
        }
        assert_eq!((tap.counters().transmitted_frames, tap.next_due()), (frames as u64, Some(Time::ZERO)));
        if !network::run("ip", &["link", "delete", "conictest"]) {
            return;
        }
        let error = if finish { tap.finish() } else { tap.flush(Time::ZERO) }.unwrap_err().to_string();
        assert!(error.contains("conictest can no longer be used"), "{error}");
        tap.flush(Time::ZERO).unwrap();
        tap.finish().unwrap();
        let counters = tap.counters();
        assert_eq!((counters.transmitted_frames, counters.transmitted_bytes), (0, 0));
        assert_eq!((counters.refused_by_kernel, tap.next_due()), (frames as u64, None));
    }
}

/// Two interfaces with offloads that the kernel's bridge joins.
fn bridged() -> Option<(Tap, Tap)> {
    if !alone() || !network::run("ip", &["link", "add", "between", "type", "bridge"]) {
        return None;
    }
    let open = |name: &str| Tap::open(&TapOptions { offload: true, ..options(name) }).unwrap();
    let taps = (open("conicone"), open("conictwo"));
    network::run("ip", &["link", "set", "conicone", "master", "between"]);
    network::run("ip", &["link", "set", "conictwo", "master", "between"]);
    network::run("ip", &["link", "set", "between", "up"]);
    Some(taps)
}

#[test]
fn frames_that_were_joined_for_the_kernel_are_cut_again_where_they_come_out() {
    const FRAMES: usize = 8;
    let Some((mut one, mut two)) = bridged() else { return };
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(|number| segment(number, 7)).collect();
    let mut buffer = vec![0; LONGEST];
    let (mut came, mut rounds) = (Vec::new(), 0);
    while came.is_empty() {
        rounds += 1;
        assert!(rounds < 1000, "nothing came");
        frames.iter().for_each(|frame| assert_eq!(one.transmit(Time::ZERO, frame).unwrap(), Transmit::Accepted));
        one.flush(Time::ZERO).unwrap();
        wait(&two);
        // Also where whoever takes packets whole asks in between: what is begun is cut to its end.
        for number in 0.. {
            let got = match number % 2 {
                0 => two.receive(Time::ZERO, &mut buffer[..MAX_FRAME]).unwrap(),
                _ if came.is_empty() => Receive::Skipped,
                _ => two.receive_unfinished(Time::ZERO, &mut buffer, &mut Metadata::NONE.clone()).unwrap(),
            };
            match got {
                // The kernel may have something to say itself.
                Receive::Frame { length, .. } if buffer[12..14] == [0x81, 0] => came.push(buffer[..length].to_vec()),
                Receive::None => break,
                _ => {}
            }
            assert_eq!(two.next_due().is_some(), !came.is_empty() && came.len() < FRAMES, "{}", came.len());
        }
    }
    assert_eq!(came.len(), FRAMES);
    for (came, sent) in came.iter().zip(&frames) {
        // The kernel numbers packets as it likes, and the checksum of the header with it.
        assert_eq!((&came[..22], &came[30..]), (&sent[..22], &sent[30..]));
    }
    let (packets, joined) = (network::detail(&one, "packets_joined"), network::detail(&one, "frames_joined"));
    assert_eq!((packets, joined), (rounds, rounds * FRAMES as u64));
    // One alone is not joined to anything.
    one.transmit(Time::ZERO, &frames[0]).unwrap();
    one.flush(Time::ZERO).unwrap();
    assert_eq!((network::detail(&one, "packets_joined"), one.next_due()), (packets, None));
}

#[test]
fn packets_that_the_interface_could_not_have_sent_are_refused_and_those_too_long_are_left_out() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&TapOptions { offload: true, mtu: Some(1500), ..options("conictest") }).unwrap();
    let (packet, begun) = (segment(0, 7), Checksum::Partial { start: 38, offset: 16 });
    let of = |size| Metadata { checksum: begun, segmentation: Some(Segmentation { size, protocol: TCP }) };
    // A header of 58 bytes with the tag, of 54 without.
    let mut long = [&packet[..], &[0; 1500]].concat();
    long[20..22].copy_from_slice(&2540_u16.to_be_bytes());
    let mut plain = long.clone();
    plain.drain(12..16);
    let untagged = Checksum::Partial { start: 34, offset: 16 };
    // The tag is not part of the MTU.
    for (size, expected) in [(1460, Transmit::Accepted), (1461, Transmit::Refused)] {
        let sent = tap.transmit_unfinished(Time::ZERO, &long, of(size)).unwrap();
        assert_eq!(sent, expected, "{size}");
        let sent = tap.transmit_unfinished(Time::ZERO, &plain, Metadata { checksum: untagged, ..of(size) }).unwrap();
        assert_eq!(sent, expected, "{size} without a tag");
    }
    let mut other = packet.clone();
    other[27] = 99;
    assert_eq!(tap.transmit_unfinished(Time::ZERO, &other, of(500)).unwrap(), Transmit::Refused, "nobody can cut it");
    assert_eq!((tap.counters().refused_over_mtu, tap.counters().refused()), (3, 3));
    // It may have been given another MTU.
    network::run("ip", &["link", "set", "conictest", "mtu", "20000"]);
    let mut socket = packet_socket("conictest");
    let mut buffer = vec![0; LONGEST];
    for unfinished in [true, false] {
        while tap.receive(Time::ZERO, &mut buffer[..MAX_FRAME]).unwrap() != Receive::None {}
        socket.write_all(&frame(MAX_FRAME + 1, EXPERIMENT, 1)).unwrap();
        let got = if unfinished {
            tap.receive_unfinished(Time::ZERO, &mut buffer, &mut Metadata::NONE.clone())
        } else {
            tap.receive(Time::ZERO, &mut buffer[..MAX_FRAME])
        };
        assert_eq!(got.unwrap(), Receive::Skipped);
    }
    assert_eq!((tap.counters().skipped_oversized, tap.counters().skipped()), (2, 2));
}

#[test]
fn a_queue_is_gone_on_with_as_it_was_opened_and_all_that_was_held_has_left() {
    if !alone() {
        return;
    }
    let with = |offload| TapOptions { offload, ..options("conictest") };
    for offload in [false, true] {
        let mut tap = Tap::open(&with(offload)).unwrap();
        assert_eq!(tap.transmit(Time::ZERO, &segment(0, 7)).unwrap(), Transmit::Accepted);
        assert_eq!(tap.next_due().is_some(), offload, "it is held to be joined to others");
        let mut legacy = || vec![tap.bequeath().unwrap()];
        for wrong in [with(!offload), TapOptions { queues: 2, ..with(offload) }] {
            let legacies = (0..wrong.queues).flat_map(|_| legacy()).collect();
            let error = Tap::inherit(&wrong, legacies).unwrap_err().to_string();
            assert!(error.contains("conictest exists and is not a TAP interface"), "{error}");
        }
        let two = legacy().into_iter().chain(legacy()).collect();
        for number in [vec![], two] {
            assert!(Tap::inherit(&with(offload), number).is_err());
        }
        // It may have another MTU since.
        network::run("ip", &["link", "set", "conictest", "mtu", "1300"]);
        let again = Tap::inherit(&with(offload), legacy()).unwrap();
        assert_eq!(again[0].mtu(), 1300);
        assert_eq!((tap.next_due(), again.len(), again[0].name()), (None, 1, "conictest"));
    }
}

#[test]
fn an_interface_that_lies_in_another_namespace_is_gone_on_with() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&TapOptions { mtu: Some(1400), ..options("conictest") }).unwrap();
    // As when the interface is given to a container: whoever has the queue is not where it is.
    let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    assert!(network::alone());
    let legacy = tap.bequeath().unwrap();
    let again = Tap::inherit(&options("conictest"), vec![legacy]).unwrap();
    assert_eq!((again[0].name(), again[0].mtu()), ("conictest", 1400));
    drop(namespace);
}

#[test]
fn a_packet_that_is_being_cut_is_cut_to_its_end_by_whoever_goes_on() {
    const FRAMES: usize = 8;
    let Some((mut one, mut two)) = bridged() else { return };
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(|number| segment(number, 7)).collect();
    let mut came = Vec::new();
    for _ in 0..1000 {
        if came.is_empty() {
            frames.iter().for_each(|frame| assert_eq!(one.transmit(Time::ZERO, frame).unwrap(), Transmit::Accepted));
            one.flush(Time::ZERO).unwrap();
            wait(&two);
        }
        let mut buffer = [0; MAX_FRAME];
        match two.receive(Time::ZERO, &mut buffer).unwrap() {
            Receive::Frame { length, .. } if buffer[12..14] == [0x81, 0] => came.push(buffer[..length].to_vec()),
            Receive::None if !came.is_empty() => break,
            _ => {}
        }
        if came.len() == 1 {
            let options = TapOptions { offload: true, ..options("conictwo") };
            let (legacy, mut short) = (two.bequeath().unwrap(), two.bequeath().unwrap());
            short.words.pop();
            assert!(Tap::inherit(&options, vec![short]).is_err());
            two = Tap::inherit(&options, vec![legacy]).unwrap().remove(0);
        }
    }
    // The bridge may have had several rounds of them before it passed any on.
    assert!(!came.is_empty() && came.len().is_multiple_of(FRAMES), "{}", came.len());
    assert!(came.iter().zip(frames.iter().cycle()).all(|(came, sent)| came[30..] == sent[30..]));
}

/// A kernel before 6.2 takes no UDP that it is to cut.
#[test]
fn udp_reaches_the_kernel_cut() {
    if !alone() {
        return;
    }
    let mut tap = Tap::open(&TapOptions { offload: true, ..options("conictest") }).unwrap();
    let mut socket = packet_socket("conictest");
    let mut packet = [&[2; 12][..], &[8, 0, 0x45, 0], &2528_u16.to_be_bytes()].concat();
    packet.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 80, 9, 0xcc, 0, 0]);
    packet.resize(2542, 7);
    let (checksum, size) = (Checksum::Partial { start: 34, offset: 6 }, 1000);
    let metadata = Metadata { checksum, segmentation: Some(Segmentation { size, protocol: UDP }) };
    // What is held of others is not passed.
    assert_eq!(tap.transmit(Time::ZERO, &segment(0, 7)).unwrap(), Transmit::Accepted);
    assert_eq!(tap.transmit_unfinished(Time::ZERO, &packet, metadata).unwrap(), Transmit::Accepted);
    let mut came = Vec::new();
    for _ in 0..1000 {
        let mut buffer = [0; 2 * MAX_FRAME];
        match socket.read(&mut buffer) {
            // The kernel sends packets of IPv6 of its own.
            Ok(length) if buffer[12..14] == [8, 0] => came.push(buffer[..length].to_vec()),
            Ok(_) => {}
            Err(_) if came.len() > 1 => break,
            Err(_) => wait(&socket),
        }
    }
    let lengths: Vec<usize> = came.iter().map(Vec::len).collect();
    assert!(lengths.len() == 4 && lengths[1..] == [1042, 1042, 542], "{lengths:?}");
    assert!(came[1..].iter().all(|frame| verify(frame).transport == Verdict::Good));
    let counters = tap.counters();
    assert_eq!((counters.transmitted_frames, counters.refused()), (2, 0));
    assert_eq!(network::detail(&tap, "packets_cut"), 1);
}

/// Frames of one flow with a VLAN tag are one packet for the kernel, which passes it on as one packet: whatever it looks at in it, it
/// finds right.
#[test]
fn frames_with_a_tag_are_joined_for_the_kernel() {
    const FRAMES: usize = 8;
    let Some((mut one, mut two)) = bridged() else { return };
    let mut packet = vec![0; LONGEST];
    for tag in [7, 8] {
        let frames: Vec<Vec<u8>> = (0..FRAMES).map(|number| segment(number, tag)).collect();
        let payload = frames.iter().flat_map(|frame| &frame[58..]);
        let mut whole = None;
        for _ in 0..1000 {
            for frame in &frames {
                assert_eq!(one.transmit(Time::ZERO, frame).unwrap(), Transmit::Accepted);
            }
            one.flush(Time::ZERO).unwrap();
            let mut metadata = Metadata::NONE;
            // The kernel may have something to say itself.
            match two.receive_unfinished(Time::ZERO, &mut packet, &mut metadata).unwrap() {
                Receive::Frame { length, .. } if packet[12..16] == [0x81, 0, 0x60, tag] => {
                    whole = Some((length, metadata))
                }
                Receive::Frame { .. } => {}
                _ => wait(&two),
            }
            if whole.is_some() {
                break;
            }
        }
        let (length, metadata) = whole.expect("it comes out of the other interface");
        assert_eq!(length, 58 + FRAMES * 1000);
        assert_eq!(metadata.segmentation.map(|one| one.size), Some(1000));
        assert_eq!(metadata.checksum, Checksum::Partial { start: 38, offset: 16 });
        assert!(packet[58..length].iter().eq(payload));
    }
}

/// What one interface gives, to the other as it is; how long the longest packet was, and how many stood for several.
fn carry(from: &mut Tap, to: &mut Tap, packet: &mut [u8]) -> (usize, u64) {
    let (mut longest, mut large, mut metadata) = (0, 0, Metadata::NONE);
    while let Receive::Frame { length, .. } = from.receive_unfinished(Time::ZERO, packet, &mut metadata).unwrap() {
        let sent = &packet[..length];
        for _ in 0..1000 {
            let outcome = if metadata == Metadata::NONE {
                to.transmit(Time::ZERO, sent).unwrap()
            } else {
                to.transmit_unfinished(Time::ZERO, sent, metadata).unwrap()
            };
            if outcome == Transmit::Accepted {
                break;
            }
            assert_eq!(outcome, Transmit::Full);
        }
        longest = longest.max(length);
        large += u64::from(metadata.segmentation.is_some() && matches!(metadata.checksum, Checksum::Partial { .. }));
    }
    to.flush(Time::ZERO).unwrap();
    (longest, large)
}

/// Two kernels' TCP leave checksums and cutting to the interface, and what is left is passed on: nobody does it, and every byte
/// arrives.
#[test]
fn what_one_kernel_leaves_to_be_done_another_takes_as_it_is() {
    if !alone() {
        return;
    }
    let (hand_over, taps) = channel();
    let (listens, heard) = channel();
    std::thread::scope(|scope| {
        let to_second = hand_over.clone();
        let first = scope.spawn(move || {
            station("conicone", "10.9.0.1/24", &hand_over, move || {
                let listener = TcpListener::bind("10.9.0.1:5001").unwrap();
                listens.send(()).unwrap();
                // Nobody may ever come.
                network::wait_for(&listener, 20_000);
                listener.set_nonblocking(true).unwrap();
                let (stream, _) = listener.accept().unwrap();
                let mut stream = patient(stream);
                let mut heard = vec![0; 4 << 20];
                stream.read_exact(&mut heard).unwrap();
                stream.write_all(&bytes(9)).unwrap();
                heard == bytes(5)
            })
        });
        let mut one = taps.recv().unwrap();
        let second = scope.spawn(move || {
            station("conictwo", "10.9.0.2/24", &to_second, move || {
                let address = "10.9.0.1:5001".parse().unwrap();
                heard.recv_timeout(Duration::from_secs(20)).unwrap();
                let mut stream = patient(TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap());
                stream.write_all(&bytes(5)).unwrap();
                let mut heard = vec![0; 4 << 20];
                stream.read_exact(&mut heard).unwrap();
                heard == bytes(9)
            })
        });
        let mut two = taps.recv().unwrap();
        let mut packet = vec![0; LONGEST];
        let (mut longest, mut large) = ([0; 2], [0; 2]);
        while !(first.is_finished() && second.is_finished()) {
            let there = carry(&mut one, &mut two, &mut packet);
            let back = carry(&mut two, &mut one, &mut packet);
            for (number, (length, count)) in [there, back].into_iter().enumerate() {
                longest[number] = longest[number].max(length);
                large[number] += count;
            }
        }
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (Some(true), Some(true)));
        assert!(longest.iter().all(|&length| length > MAX_FRAME), "{longest:?}");
        assert!(large.iter().all(|&count| count > 10), "{large:?}");
        for tap in [one, two] {
            assert_eq!((tap.counters().skipped(), tap.counters().refused()), (0, 0));
        }
    });
}
