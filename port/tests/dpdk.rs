//! A DPDK device as a port, against the kernel: DPDK's own packet-socket driver on one end of a pair of interfaces.
#![cfg(feature = "dpdk")]

mod support;

use std::io::Write;

use conic_fabric::Time;
use conic_port::{MAX_FRAME, Port, PortSpec, Receive, Transmit};
use support::network::{EXPERIMENT, detail, frame, packet_socket, pair, receive_at};

/// One test: DPDK starts once in a process.
#[test]
fn frames_pass_both_ways_through_a_device_and_errors_are_named() {
    let absent = "dpdk:net_absent0".parse::<PortSpec>().unwrap().open().err().unwrap().to_string();
    assert!(absent.contains("DPDK has no device net_absent0"), "{absent}");
    if !pair(1500) {
        return;
    }
    for round in 0..2 {
        let spec: PortSpec = format!("dpdk:net_af_packet{round};iface=v0,frames=256").parse().unwrap();
        let mut port = spec.open().unwrap().remove(0);
        let mut socket = packet_socket("v1");
        let mut buffer = [0; MAX_FRAME];
        for number in 0..500u32 {
            let length = [60, 61, 128, 1000, 1514][number as usize % 5];
            let sent = frame(length, EXPERIMENT, number as u8);
            socket.write_all(&sent).unwrap();
            let got = loop {
                match port.receive(Time::ZERO, &mut buffer).unwrap() {
                    Receive::Frame { length, .. } if buffer[12..14] == EXPERIMENT => break length,
                    _ => {}
                }
            };
            assert_eq!(buffer[..got], sent[..]);
            assert_eq!(port.transmit(Time::ZERO, &sent).unwrap(), Transmit::Accepted);
            port.flush(Time::ZERO).unwrap();
            assert_eq!(receive_at(&mut socket), sent);
        }
        assert!(port.description().contains("DPDK device net_af_packet") && detail(&port, "device_transmitted") >= 500);
        assert_eq!((port.counters().skipped(), port.counters().refused()), (0, 0));
    }
}
