//! Several queues: flows are spread by the NIC's hash, and what testpmd is told of each packet is what is true of it.

use std::collections::BTreeMap;

use conic_client::{Client, Options, Queue};
use conic_fabric::Time;
use conic_port::offload::checksum::{Verdict, fill, verify};
use conic_port::offload::rss::{DEFAULT_KEY, Ports, Toeplitz};

use crate::modes::{CLIENT, open_daemon, packet, spoilt};
use crate::soak::Burst;
use crate::testpmd::{
    DEVICE, Testpmd, alone, counter, driver, exchange_in_any_order, folder, options, receive_for, send, wait_until,
};

/// Receive offloads of DPDK's `rte_ethdev.h`, as testpmd's argument has them: checksums of IPv4, UDP and TCP, and the hash.
const RECEIVE_OFFLOADS: &str = "--rx-offloads=0x8000e";

/// What testpmd says of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    queue: usize,
    hash: Option<u32>,
    network: Verdict,
    transport: Verdict,
}

/// Packets of many flows, each from a station of its own: UDP and TCP, by IPv4 and IPv6, with right and wrong checksums, a
/// datagram without one, and a frame of no IP.
fn flows() -> Vec<Vec<u8>> {
    let station = |number: usize| [2, 0, 0, 0, 1, number as u8];
    let mut frames: Vec<Vec<u8>> =
        (0..24).map(|number| packet(station(number), DEVICE, 60 + 61 * (number % 24), number)).collect();
    frames.extend((24..32).map(|number| spoilt(packet(station(number), DEVICE, 60 + 9 * number, number))));
    frames.extend((32..48).map(|number| packet_by_six(station(number), number)));
    let mut without = packet(station(48), DEVICE, 100, 48);
    without[40..42].fill(0);
    frames.push(without);
    let mut other = packet(station(49), DEVICE, 100, 49);
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    frames.push(other);
    frames
}

/// The same addresses and ports as `packet` makes, in a packet by IPv6.
fn packet_by_six(from: [u8; 6], number: usize) -> Vec<u8> {
    let four = packet(from, DEVICE, 120, number);
    let transport = &four[34..];
    let mut frame = [&four[..12], &[0x86, 0xdd, 0x60, 0, 0, 0], &(transport.len() as u16).to_be_bytes()].concat();
    frame.extend([four[23], 64]);
    frame.extend((0..32).map(|at| (at * 5 + number) as u8));
    frame.extend(transport);
    fill(&mut frame);
    frame
}

/// What is true of a frame, for an application with so many queues on a device with `lanes`.
fn truth(frame: &[u8], lanes: usize, queues: usize) -> Said {
    let hash = Toeplitz::default().hash_frame(frame, Ports::default());
    let verdicts = verify(frame);
    let queue = hash.unwrap_or(0) as usize % 512 % lanes % queues;
    Said { queue, hash, network: verdicts.network, transport: verdicts.transport }
}

/// What testpmd's log says of each packet, by the station it came from.
fn said(log: &str) -> BTreeMap<String, Vec<Said>> {
    let mut all: BTreeMap<String, Vec<Said>> = BTreeMap::new();
    let lines: Vec<&str> = log.lines().collect();
    for pair in lines.windows(2) {
        let (Some((_, packet)), Some((_, flags))) = (pair[0].split_once("  src="), pair[1].split_once("  ol_flags: "))
        else {
            continue;
        };
        let number = |name: &str| {
            let text = packet.split_once(name)?.1.split(' ').next()?;
            u32::from_str_radix(text, 16).ok()
        };
        let verdict = |of: &str| match ["GOOD", "BAD"].map(|is| flags.contains(&format!("RX_{of}_CKSUM_{is}"))) {
            [true, false] => Verdict::Good,
            [false, true] => Verdict::Bad,
            _ => Verdict::Absent,
        };
        let said = Said {
            queue: number("Receive queue=0x").expect("a queue") as usize,
            hash: number("RSS hash=0x"),
            network: verdict("IP"),
            transport: verdict("L4"),
        };
        all.entry(packet[..17].to_owned()).or_default().push(said);
    }
    all
}

/// Waits until testpmd has written something of each frame, and checks it.
fn check_said(testpmd: &Testpmd, frames: &[Vec<u8>], lanes: usize, queues: usize) {
    let name = |frame: &[u8]| frame[6..12].iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":");
    wait_until("testpmd has told of each packet", || {
        let told = said(&testpmd.log());
        frames.iter().all(|frame| told.contains_key(&name(frame)))
    });
    let told = said(&testpmd.log());
    for (number, frame) in frames.iter().enumerate() {
        for said in &told[&name(frame)] {
            assert_eq!(*said, truth(frame, lanes, queues), "packet {number} of {} bytes", frame.len());
        }
    }
    let used: std::collections::BTreeSet<usize> = told.values().flatten().map(|said| said.queue).collect();
    assert_eq!(used, (0..queues).collect(), "every queue has had a packet");
}

/// Frames to a group come back to the client as they are sent on unchanged.
fn to_group(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 7]);
    frame
}

fn start(testpmd: &mut Testpmd, queue: &mut Queue, mode: &str) {
    testpmd.say(&format!("set fwd {mode}"));
    testpmd.say("start");
    wait_until("it forwards", || testpmd.log().contains("packet forwarding - ports=1"));
    receive_for(queue, Time::from_nanoseconds(300_000_000));
}

fn with_mac() -> Options {
    Options { mac: Some(CLIENT), ..options() }
}

#[test]
fn flows_are_spread_over_queues_and_told_as_they_are() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let conic = &["--mbuf-pool-ops-name=conic"][..];
    // Packets in several mbufs, of which each has an odd number of bytes.
    let odd = ["--mbuf-size=385", "--enable-scatter"];
    let none: [&str; 0] = [];
    // The last two receive from fewer queues than the device has.
    for (eal, lanes, queues, copies, pieces) in [
        (conic, 3, 3, "", &none[..]),
        (&[], 4, 4, "", &none),
        (&[], 2, 2, "", &none),
        (&[], 2, 2, ",attach=65535", &odd),
        (conic, 4, 3, "", &none),
        (&[], 5, 1, "", &none),
    ] {
        let folder = folder();
        let _nic = open_daemon(folder.path());
        let (_client, mut client) = Client::attach(&folder.path().join("nic.sock"), &with_mac()).expect("a NIC");
        let count = [format!("--rxq={queues}"), format!("--txq={queues}")];
        let arguments = [&[count[0].as_str(), &count[1], RECEIVE_OFFLOADS], pieces].concat();
        let more = format!(",queues={lanes}{copies}");
        let mut testpmd = Testpmd::start(&driver, folder.path(), eal, &more, &arguments);
        start(&mut testpmd, &mut client[0], "io");
        let frames: Vec<Vec<u8>> = flows().into_iter().map(to_group).collect();
        for _ in 0..20 {
            exchange_in_any_order(&mut client[0], &frames, <[u8]>::to_vec, || testpmd.log());
        }
        testpmd.say("set verbose 1");
        wait_until("it tells", || testpmd.log().contains("Change verbose level"));
        exchange_in_any_order(&mut client[0], &frames, <[u8]>::to_vec, || testpmd.log());
        check_said(&testpmd, &frames, lanes, queues);
        let log = testpmd.end();
        assert_eq!((counter(&log, "rx_bad"), counter(&log, "tx_bad"), counter(&log, "ring_faults")), (0, 0, 0));
        for queue in 0..queues {
            assert!(counter(&log, &format!("rx_q{queue}_packets")) > 0, "{log}");
            assert!(counter(&log, &format!("tx_q{queue}_packets")) > 0, "{log}");
        }
    }
}

/// With one queue the NIC does not hash, and the driver does.
#[test]
fn the_hash_of_one_queue_is_the_same() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let _nic = open_daemon(folder.path());
    let (_client, mut client) = Client::attach(&folder.path().join("nic.sock"), &with_mac()).expect("a NIC");
    for queues in [1, 3] {
        let mut burst = Burst::start(&driver, folder.path(), &[], queues, queues, ["", "hash"]);
        let frames = flows();
        frames.iter().for_each(|frame| send(&mut client[0], frame));
        wait_until("all are told", || burst.said().matches(": ").count() >= frames.len());
        let said = burst.end();
        for frame in &frames {
            let hash = truth(frame, queues, queues).hash.map_or("none".to_owned(), |hash| format!("{hash:08x}"));
            let line = format!("\n{}: {hash}\n", frame[11]);
            assert!(said.contains(&line), "{line} {said}");
        }
    }
}

/// The table and the key that can be asked for are the NIC's, and others are refused.
#[test]
fn the_table_and_the_key_are_the_nics() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let _nic = open_daemon(folder.path());
    let arguments = ["--rxq=3", "--txq=3"];
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], ",queues=5", &arguments);
    // testpmd reads 128 bytes of masks at most: some entries of each group of 64.
    testpmd.say("show port 0 rss reta 512 (0xffff,1,1,1,1,1,1,0x8000000000000000)");
    testpmd.say("show port 0 rss-hash key");
    testpmd.say("port config 0 rss reta (0,0),(1,1),(7,2)");
    testpmd.say("port config 0 rss reta (0,2)");
    let log = testpmd.end();
    for entry in (0..16).chain([64, 128, 192, 256, 320, 384, 511]) {
        let line = format!("hash index={entry}, queue={}\n", entry % 5 % 3);
        assert!(log.contains(&line), "{line}{log}");
    }
    let key = DEFAULT_KEY.map(|byte| format!("{byte:02X}")).concat();
    assert!(log.contains(&key), "{key}: {log}");
    assert_eq!(log.matches("Bad redirection table parameter, return code = -95").count(), 1, "{log}");
}
