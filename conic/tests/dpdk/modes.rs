//! What testpmd does with packets, mode by mode.

use std::path::Path;

use conic_client::{Client, Queue};
use conic_fabric::Time;
use conic_native::clock;
use conic_port::offload::checksum::{Verdict, fill, verify};

use crate::testpmd::{
    DEVICE, Running, Testpmd, alone, counter, daemon, driver, exchange, folder, options, receive_for, wait_for_echo,
};

/// The client's address, which testpmd is told as its peer's.
pub const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 0x11];

/// A group that testpmd gets frames of, and the client gets them back by.
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 7];

/// The addresses that testpmd's `flowgen` sends to and from.
const FLOWGEN: [[u8; 6]; 2] = [[0, 1, 2, 3, 4, 1], [0, 1, 2, 3, 4, 0]];

/// A frame with a UDP packet, or with a TCP segment where the number is odd, with all checksums right.
pub fn packet(from: [u8; 6], to: [u8; 6], length: usize, number: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|index| (number * 31 + index * 7) as u8).collect();
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[8, 0]);
    let bytes = (length - 14) as u16;
    let [high, low] = bytes.to_be_bytes();
    let is_tcp = number % 2 == 1;
    frame[14..34].copy_from_slice(&[
        0x45,
        0,
        high,
        low,
        0,
        number as u8,
        0,
        0,
        64,
        if is_tcp { 6 } else { 17 },
        0,
        0,
        198,
        18,
        0,
        1,
        198,
        18,
        1,
        2,
    ]);
    if is_tcp {
        // No options.
        frame[46] = 0x50;
    } else {
        let [high, low] = (bytes - 20).to_be_bytes();
        frame[38..40].copy_from_slice(&[high, low]);
    }
    fill(&mut frame);
    frame
}

/// Packets of several lengths, UDP and TCP in turn.
pub fn packets(from: [u8; 6], to: [u8; 6]) -> Vec<Vec<u8>> {
    let lengths = [60, 64, 65, 128, 333, 512, 1024, 1514].into_iter().enumerate();
    lengths.map(|(number, length)| packet(from, to, length, number)).collect()
}

fn unchanged(frame: &[u8]) -> Vec<u8> {
    frame.to_vec()
}

/// To a station, from the device.
pub fn sent_on_to(station: [u8; 6], frame: &[u8]) -> Vec<u8> {
    [&station[..], &DEVICE, &frame[12..]].concat()
}

/// To the peer, from the device.
pub fn sent_on(frame: &[u8]) -> Vec<u8> {
    sent_on_to(CLIENT, frame)
}

/// All five of a flow swapped, and the Ethernet addresses.
fn flow_swapped(frame: &[u8]) -> Vec<u8> {
    let pieces =
        [&frame[6..12], &frame[..6], &frame[12..26], &frame[30..34], &frame[26..30], &frame[36..38], &frame[34..36]];
    [&pieces.concat(), &frame[38..]].concat()
}

/// Sent on, and its checksums made right.
fn corrected(frame: &[u8]) -> Vec<u8> {
    let mut sent = sent_on(frame);
    fill(&mut sent);
    sent
}

/// The same with a wrong IP checksum and a wrong transport checksum.
pub fn spoilt(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24] ^= 0x55;
    let transport = if frame[23] == 6 { 50 } else { 40 };
    frame[transport] ^= 0x33;
    assert_eq!((verify(&frame).network, verify(&frame).transport), (Verdict::Bad, Verdict::Bad));
    frame
}

/// A daemon whose clients may send from any address: testpmd sends some frames on as they came.
pub fn open_daemon(folder: &Path) -> Running {
    let file = folder.join("nic.toml");
    std::fs::write(&file, "[[network]]\nown_address_only = false\n").expect("a file");
    daemon(folder, &["--config", file.to_str().expect("a name")])
}

pub fn run_mode(
    queue: &mut Queue,
    testpmd: &mut Testpmd,
    mode: &str,
    frames: &[Vec<u8>],
    expected: fn(&[u8]) -> Vec<u8>,
) {
    testpmd.say("stop");
    testpmd.say(&format!("set fwd {mode}"));
    testpmd.say("start");
    wait_for_echo(queue, &frames[0], expected, testpmd);
    for _ in 0..20 {
        let all = exchange(queue, frames, expected, Time::from_nanoseconds(20_000_000_000));
        assert!(all, "mode {mode}: frames were lost: {}", testpmd.log());
    }
}

/// What testpmd sends by itself: 2000 packets, of which each is sound.
fn check_generated(queue: &mut Queue, testpmd: &mut Testpmd, mode: &str, length: usize, addresses: [[u8; 6]; 2]) {
    testpmd.say("stop");
    testpmd.say(&format!("set fwd {mode}"));
    testpmd.say("start");
    let (mut count, until) = (0, clock::now() + Time::from_nanoseconds(20_000_000_000));
    while count < 2000 {
        assert!(clock::now() < until, "mode {mode}: {count} packets came: {}", testpmd.log());
        let frames = receive_for(queue, Time::from_nanoseconds(100_000_000));
        for frame in &frames {
            assert_eq!(frame[..12], addresses.concat(), "mode {mode}");
            assert_eq!((frame.len(), verify(frame).network), (length, Verdict::Good), "mode {mode}");
        }
        count += frames.len();
    }
    testpmd.say("stop");
    receive_for(queue, Time::from_nanoseconds(300_000_000));
}

/// Takes testpmd through its modes, and gives its log.
pub fn every_mode(driver: &Path, eal: &[&str], more: &[&str]) -> String {
    let folder = folder();
    let _nic = open_daemon(folder.path());
    let with_mac = conic_client::Options { mac: Some(CLIENT), ..options() };
    let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &with_mac).expect("a NIC");
    let queue = &mut queues[0];
    let peer = format!("--eth-peer=0,{}", CLIENT.map(|byte| format!("{byte:02x}")).join(":"));
    let noisy = ["--noisy-tx-sw-buffer-size=64", "--noisy-tx-sw-buffer-flushtime=5", "--noisy-lkup-memory=1"];
    let arguments: Vec<&str> =
        [&[peer.as_str(), "--noisy-lkup-num-reads=8", "--noisy-lkup-num-writes=2"][..], &noisy, more].concat();
    let mut testpmd = Testpmd::start(driver, folder.path(), eal, "", &arguments);
    run_mode(queue, &mut testpmd, "io", &packets(CLIENT, GROUP), unchanged);
    run_mode(queue, &mut testpmd, "mac", &packets(CLIENT, DEVICE), sent_on);
    run_mode(queue, &mut testpmd, "5tswap", &packets(CLIENT, DEVICE), flow_swapped);
    run_mode(queue, &mut testpmd, "noisy", &packets(CLIENT, GROUP), unchanged);
    for command in ["stop", "port stop 0", "csum set ip hw 0", "csum set udp hw 0", "csum set tcp hw 0", "port start 0"]
    {
        testpmd.say(command);
    }
    let spoilt: Vec<Vec<u8>> = packets(CLIENT, DEVICE).into_iter().map(spoilt).collect();
    run_mode(queue, &mut testpmd, "csum", &spoilt, corrected);
    check_generated(queue, &mut testpmd, "flowgen", 60, FLOWGEN);
    testpmd.say("set txpkts 64,96,40");
    check_generated(queue, &mut testpmd, "txonly", 200, [CLIENT, DEVICE]);
    let log = testpmd.end();
    assert_eq!((counter(&log, "ring_faults"), counter(&log, "buffers_refused"), counter(&log, "rx_bad")), (0, 0, 0));
    assert_eq!(counter(&log, "tx_bad"), 0);
    log
}

#[test]
fn every_mode_of_testpmd_passes_on_what_it_should() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let log = every_mode(&driver, &["--mbuf-pool-ops-name=conic"], &[]);
    assert!(counter(&log, "tx_chained") >= 2000 && counter(&log, "tx_copied") == 0, "{log}");
    let log = every_mode(&driver, &[], &[]);
    assert!(counter(&log, "tx_chained") == 0 && counter(&log, "tx_copied") >= 2000, "{log}");
}

/// Packets are received into the mempool whose mbufs are large enough for them.
#[test]
fn packets_of_two_sizes_are_received_into_two_mempools() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let _nic = open_daemon(folder.path());
    let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options()).expect("a NIC");
    let arguments = ["--mbuf-size=256,2176", "--multi-rx-mempool", "--forward-mode=io"];
    // Nothing is pointed to, so that all is copied into the mempools.
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], ",attach=65535", &arguments);
    run_mode(&mut queues[0], &mut testpmd, "io", &packets(CLIENT, GROUP), unchanged);
    testpmd.say("show mempool usage");
    let log = testpmd.end();
    assert!(counter(&log, "rx_copied") >= 160 && counter(&log, "rx_attached") == 0, "{log}");
}

/// A second device comes and goes while testpmd runs.
#[test]
fn a_device_comes_and_goes_while_testpmd_runs() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let socket = folder.path().join("nic.sock");
    let _nic = open_daemon(folder.path());
    let (_client, mut queues) = Client::attach(&socket, &options()).expect("a NIC");
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], "", &[]);
    for _ in 0..3 {
        let attach = format!("port attach net_conic1,path={},mac=02:00:00:00:00:77", socket.display());
        for command in ["stop", &attach, "port start 1", "set portlist 1"] {
            testpmd.say(command);
        }
        run_mode(&mut queues[0], &mut testpmd, "io", &packets(CLIENT, GROUP), unchanged);
        for command in ["stop", "port stop 1", "device detach net_conic1", "set portlist 0"] {
            testpmd.say(command);
        }
        run_mode(&mut queues[0], &mut testpmd, "io", &packets(CLIENT, GROUP), unchanged);
    }
    let log = testpmd.end();
    for text in ["Now total ports is 2", "Device net_conic1 is detached"] {
        assert_eq!(log.matches(text).count(), 3, "{text}: {log}");
    }
}
