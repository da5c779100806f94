//! Every length of a frame, 60 to 9600 bytes, through every kind of port, unchanged.

use std::fs::File;
use std::io::Write;

use crate::support::network::{EXPERIMENT, alone, packet_socket, pair, receive, receive_at};
use conic_check::skipped;
use conic_fabric::Time;
use conic_port::{
    MAX_FRAME, MIN_FRAME, Memif, MemifOptions, PacketOptions, PacketSocket, Port, PortSpec, Receive, Role, Tap,
    TapOptions, Transmit, XdpOptions, XdpSocket,
};

/// An MTU for frames of 9600 bytes.
const MTU: usize = MAX_FRAME - 14;

/// A frame whose every byte depends on its place and on the frame's length.
fn frame(length: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|at| (at * 7 + at / 256 + length) as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, EXPERIMENT[0], EXPERIMENT[1]]);
    frame
}

fn transmit(port: &mut impl Port, frame: &[u8]) {
    assert_eq!(port.transmit(Time::ZERO, frame).unwrap(), Transmit::Accepted, "{} bytes", frame.len());
    port.flush(Time::ZERO).unwrap();
}

fn assert_sound(port: &impl Port) {
    assert_eq!((port.counters().skipped(), port.counters().refused()), (0, 0), "{:?}", port.counters());
}

/// From one port of a pair to the other, and back.
fn between(one: &mut impl Port, other: &mut impl Port) {
    for length in MIN_FRAME..=MAX_FRAME {
        let sent = frame(length);
        pass(&sent, one, other);
        pass(&sent, other, one);
    }
    assert_sound(one);
    assert_sound(other);
}

fn pass(sent: &[u8], from: &mut impl Port, to: &mut impl Port) {
    let mut buffer = [0; MAX_FRAME];
    transmit(from, sent);
    let Receive::Frame { length, .. } = to.receive(Time::ZERO, &mut buffer).unwrap() else {
        panic!("{} bytes: nothing came: {:?}", sent.len(), to.counters());
    };
    assert!(buffer[..length] == *sent, "{} bytes arrive as {length}, or changed", sent.len());
    assert_eq!(to.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None, "one frame is one frame");
}

/// From another program of the machine, which sends and receives with this socket, to the port, and back.
fn with_kernel(port: &mut impl Port, socket: &mut File) {
    for length in MIN_FRAME..=MAX_FRAME {
        let sent = frame(length);
        socket.write_all(&sent).unwrap();
        assert!(receive(port) == sent, "{length} bytes arrive changed");
        transmit(port, &sent);
        assert!(receive_at(socket) == sent, "{length} bytes come back changed");
    }
    assert_sound(port);
}

#[test]
fn memif_with_buffers_longer_and_shorter_than_the_frames() {
    // From one buffer a frame to 150, and rings of which such a chain takes more than half.
    for (log2_slots, buffer_bytes) in [(4, 16_384), (10, 2048), (3, 2048), (8, 64)] {
        let folder = tempfile::tempdir().unwrap();
        let options = MemifOptions::new(folder.path().join("socket").to_str().unwrap());
        let options = MemifOptions { log2_slots, buffer_bytes, ..options };
        let mut server = Memif::open(&options).unwrap();
        let mut client = Memif::open(&MemifOptions { role: Role::Client, ..options }).unwrap();
        let mut buffer = [0; MAX_FRAME];
        for _ in 0..100 {
            server.receive(Time::ZERO, &mut buffer).unwrap();
            client.receive(Time::ZERO, &mut buffer).unwrap();
        }
        assert!(server.is_up() && client.is_up(), "{}; {}", server.description(), client.description());
        between(&mut client, &mut server);
    }
}

#[test]
fn loopback_and_impairment() {
    for text in ["loopback", "impair:loss=0%+loopback"] {
        let mut port = text.parse::<PortSpec>().unwrap().open().unwrap().remove(0);
        let mut buffer = [0; MAX_FRAME];
        for length in MIN_FRAME..=MAX_FRAME {
            let sent = frame(length);
            transmit(&mut port, &sent);
            let got = port.receive(Time::ZERO, &mut buffer).unwrap();
            assert_eq!(got, Receive::Frame { length, captured: None }, "{text}");
            assert!(buffer[..length] == sent, "{text}: {length} bytes changed");
        }
        assert_sound(&port);
    }
}

#[test]
fn capture_files() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["all.pcap", "all.pcapng"] {
        let path = folder.path().join(name);
        let open =
            |what| format!("capture:{what}={}", path.display()).parse::<PortSpec>().unwrap().open().unwrap().remove(0);
        let mut recorder = open("record");
        (MIN_FRAME..=MAX_FRAME).for_each(|length| transmit(&mut recorder, &frame(length)));
        recorder.finish().unwrap();
        assert_sound(&recorder);
        let mut replayer = open("replay");
        let mut buffer = [0; MAX_FRAME];
        for length in MIN_FRAME..=MAX_FRAME {
            let got = replayer.receive(Time::ZERO, &mut buffer).unwrap();
            assert!(matches!(got, Receive::Frame { length: got, .. } if got == length), "{name}: {got:?}");
            assert!(buffer[..length] == frame(length), "{name}: {length} bytes changed");
        }
        assert_eq!(replayer.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
        assert_sound(&replayer);
    }
}

#[test]
fn tap_with_and_without_offloads() {
    for offload in [false, true] {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return skipped("there is no /dev/net/tun here");
        }
        if !alone() {
            return;
        }
        // Without IPv6 nothing sends on it by itself.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        let name = Some("conicsizes".to_owned());
        let options = TapOptions { name, mtu: Some(MTU), up: true, offload, ..TapOptions::default() };
        let mut tap = Tap::open(&options).unwrap();
        with_kernel(&mut tap, &mut packet_socket("conicsizes"));
    }
}

#[test]
fn packet_sockets() {
    for offload in [false, true] {
        if !pair(MTU) {
            return;
        }
        let mut port = PacketSocket::open(&PacketOptions { offload, ..PacketOptions::new("v0") }).unwrap();
        with_kernel(&mut port, &mut packet_socket("v1"));
    }
}

#[test]
fn af_xdp_in_several_buffers() {
    if !pair(MTU) {
        return;
    }
    match XdpSocket::open(&XdpOptions::new("v0")) {
        Ok(mut port) => with_kernel(&mut port, &mut packet_socket("v1")),
        Err(error) if error.to_string().contains("has no AF_XDP") => skipped(&error.to_string()),
        Err(error) => panic!("{error}"),
    }
}
