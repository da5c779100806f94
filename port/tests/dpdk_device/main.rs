//! A DPDK device as a port, against the kernel: DPDK's own packet-socket driver on one end of a pair of interfaces.

#[path = "../support/mod.rs"]
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
    for round in 0..3 {
        let queues = 1 + round / 2;
        let spec = format!("dpdk:net_af_packet{round};iface=v0;qpairs={queues},queues={queues},frames=256");
        let mut all = spec.parse::<PortSpec>().unwrap().open().unwrap();
        let mut socket = packet_socket("v1");
        let mut buffer = [0; MAX_FRAME];
        for number in 0..500u32 {
            let length = [60, 61, 128, 1000, 1514][number as usize % 5];
            let sent = frame(length, EXPERIMENT, number as u8);
            socket.write_all(&sent).unwrap();
            let got = loop {
                // The device spreads what it receives over its queues.
                let received = all.iter_mut().find_map(|queue| match queue.receive(Time::ZERO, &mut buffer).unwrap() {
                    Receive::Frame { length, .. } => Some(length),
                    _ => None,
                });
                match received {
                    Some(length) if buffer[12..14] == EXPERIMENT => break length,
                    _ => {}
                }
            };
            let port = &mut all[0];
            assert_eq!(buffer[..got], sent[..]);
            assert_eq!(port.transmit(Time::ZERO, &sent).unwrap(), Transmit::Accepted);
            port.flush(Time::ZERO).unwrap();
            assert_eq!(receive_at(&mut socket), sent);
        }
        let port = all.remove(0);
        assert!(port.description().contains("DPDK device net_af_packet") && detail(&port, "device_transmitted") >= 500);
        // What the device has counted is said by one of its queues: a port's counts are the sums of its queues'.
        assert_eq!((all.len(), all.iter().map(|queue| queue.details().len()).sum()), (queues - 1, 0));
        assert_eq!((port.counters().skipped(), port.counters().refused()), (0, 0));
    }
    what_a_full_ring_left_leaves_without_another_frame();
    a_device_that_refuses_is_not_kept();
    a_device_in_use_is_refused_and_stays_in_use();
}

fn open(spec: &str) -> Result<Vec<Box<dyn Port>>, String> {
    spec.parse::<PortSpec>().unwrap().open().map_err(|error| error.to_string())
}

/// Over a ring of DPDK's own, whose frames come back here.
fn what_a_full_ring_left_leaves_without_another_frame() {
    let mut port = open("dpdk:net_ring0,frames=1024").unwrap().remove(0);
    let sent = frame(60, EXPERIMENT, 7);
    // More than it holds: the last of them stay here.
    let accepted = (0..5000).take_while(|_| port.transmit(Time::ZERO, &sent).unwrap() == Transmit::Accepted).count();
    port.flush(Time::ZERO).unwrap();
    assert!((1024..4096).contains(&accepted), "{accepted}");
    let mut buffer = [0; MAX_FRAME];
    let mut came = 0;
    // One look in vain would be enough.
    for _ in 0..accepted + 100 {
        came += usize::from(port.receive(Time::ZERO, &mut buffer).unwrap() != Receive::None);
    }
    assert_eq!(came, accepted);
}

/// What is asked for next under its name is another device.
fn a_device_that_refuses_is_not_kept() {
    for (refused, next) in [
        // More queues than there are.
        ("net_af_packet7;iface=v0,queues=2", "net_af_packet7;iface=v0;qpairs=2,queues=2"),
        // Frames that fit no buffer, which the first queue says.
        ("net_af_packet8;iface=v0;blocksz=8192;framesz=8192", "net_af_packet8;iface=v0"),
    ] {
        let error = open(&format!("dpdk:{refused},frames=256")).err().unwrap();
        assert!(error.contains("refuses its queues"), "{refused}: {error}");
        open(&format!("dpdk:{next},frames=256")).unwrap();
    }
    // Its queues have their buffers when it does not start: it has nothing to bond.
    let error = open("dpdk:net_bonding7;mode=0,frames=256").err().unwrap();
    assert!(error.contains("refuses its queues"), "{error}");
    let error = open("dpdk:net_bonding7;mode=none,frames=256").err().unwrap();
    assert!(error.contains("DPDK has no device net_bonding7"), "{error}");
}

fn a_device_in_use_is_refused_and_stays_in_use() {
    const SPEC: &str = "dpdk:net_af_packet9;iface=v0,frames=256";
    let mut port = open(SPEC).unwrap().remove(0);
    let error = open(SPEC).err().unwrap();
    assert!(error.contains("is a port already"), "{error}");
    let mut socket = packet_socket("v1");
    let sent = frame(60, EXPERIMENT, 9);
    assert_eq!(port.transmit(Time::ZERO, &sent).unwrap(), Transmit::Accepted);
    port.flush(Time::ZERO).unwrap();
    assert_eq!(receive_at(&mut socket), sent);
    drop(port);
    open(SPEC).unwrap();
}
