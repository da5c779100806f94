//! What the driver leaves to the NIC: TCP packets that are cut, and VLAN tags that are put in.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use conic_client::{Begun, Client, Metadata, Offloads, Options, Queue};
use conic_fabric::Time;
use conic_port::offload::checksum::{Verdict, fill, verify};
use conic_port::offload::vlan::{Tag, strip};

use crate::modes::{CLIENT, open_daemon, packet, packets, run_mode, sent_on};
use crate::testpmd::{
    DEVICE, Running, Testpmd, alone, counter, daemon, driver, folder, options, program, receive_for, send,
    wait_for_echo, wait_until,
};

/// What `large.c` sends: its arguments.
struct Large {
    version: u8,
    payload: usize,
    segment: usize,
    size: usize,
    tag: Option<u16>,
    /// Buffers of 16 KiB that the NIC has.
    jumbo: u32,
}

const COUNT: usize = 5;

fn with_mac() -> Options {
    Options { mac: Some(CLIENT), ..options() }
}

/// `large.c` with its arguments.
fn large_command(driver: &Path, folder: &Path, eal: &[&str], large: &Large) -> Command {
    let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let mut command = Command::new(program("large"));
    command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256", "-l", "0"]).args(eal);
    command.arg(format!("--file-prefix=conic{}", folder.file_name().expect("a name").to_string_lossy()));
    command.arg("-d").arg(driver);
    let (socket, jumbo) = (folder.join("nic.sock"), large.jumbo);
    command.arg(format!("--vdev=net_conic0,path={},mac={},jumbo={jumbo}", socket.display(), text(DEVICE)));
    command.arg("--").arg(text(CLIENT)).arg(large.version.to_string());
    command.args([large.payload, large.segment, large.size].map(|number| number.to_string()));
    command.arg(large.tag.map_or(-1, i32::from).to_string()).arg(COUNT.to_string());
    command.stdin(Stdio::null());
    command
}

/// Has packets sent, and gives the frames that come of them.
fn send_large(driver: &Path, folder: &Path, eal: &[&str], large: &Large) -> Vec<Vec<u8>> {
    let socket = folder.join("nic.sock");
    let (_client, mut queues) = Client::attach(&socket, &with_mac()).expect("a NIC");
    let log = folder.join("large.log");
    let written = std::fs::File::create(&log).expect("a file");
    let mut command = large_command(driver, folder, eal, large);
    command.stdout(written.try_clone().expect("a file")).stderr(written);
    let mut running = Running(command.spawn().expect("it starts"));
    let mut all = Vec::new();
    wait_until("it has sent all", || {
        all.extend(receive_for(&mut queues[0], Time::from_nanoseconds(10_000_000)));
        let ended = running.0.try_wait().expect("it can be asked");
        let said = || std::fs::read_to_string(&log).expect("a log");
        assert!(ended.is_none_or(|status| status.success()), "{}", said());
        ended.is_some()
    });
    all
}

/// Puts frames together again, and checks that they are the packets, each piece sound and no longer than it may be.
fn check(frames: Vec<Vec<u8>>, large: &Large) {
    let mut packets: BTreeMap<u32, BTreeMap<usize, Vec<u8>>> = BTreeMap::new();
    let (network, transport) = if large.version == 4 { (Verdict::Good, 34) } else { (Verdict::Absent, 54) };
    for mut frame in frames.into_iter().filter(|frame| frame[..12] == [CLIENT, DEVICE].concat()) {
        assert_eq!(Tag::of(&frame).map(|tag| (tag.kind, tag.control)), large.tag.map(|control| (0x8100, control)));
        if strip(&mut frame).is_some() {
            frame.truncate(frame.len() - 4);
        }
        let verdicts = verify(&frame);
        assert_eq!((verdicts.network, verdicts.transport), (network, Verdict::Good));
        let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let end = if large.version == 4 { 14 + word(16) } else { 54 + word(18) };
        let sequence = u32::from_be_bytes(frame[transport + 4..transport + 8].try_into().expect("four bytes"));
        let payload = frame[transport + 20..end].to_vec();
        let most = if large.size == 0 { large.payload } else { large.size };
        assert!(payload.len() <= most, "a piece of {} bytes", payload.len());
        let pieces = packets.entry(sequence / 1_000_000).or_default();
        assert!(pieces.insert(sequence as usize % 1_000_000, payload).is_none(), "a piece came twice");
    }
    assert_eq!(packets.len(), COUNT);
    for (number, pieces) in packets {
        assert_eq!(pieces.len(), if large.size == 0 { 1 } else { large.payload.div_ceil(large.size) });
        let bytes: Vec<u8> = pieces.into_values().flatten().collect();
        let sent = (0..large.payload).map(|at| (7 * at + at / 256 + number as usize) as u8);
        assert!(bytes == sent.collect::<Vec<u8>>(), "packet {number} came with other bytes");
    }
}

/// One buffer, several of its own, several into which it is copied, and all that there is room for; by IPv4 and IPv6.
#[test]
fn tcp_packets_are_cut_by_the_nic() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let _nic = open_daemon(folder.path());
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        for (version, payload, segment, size) in [
            (4, 1900, 2048, 500),
            (4, 6000, 1800, 1448),
            (6, 6000, 1800, 1428),
            (4, 9000, 1024, 9000),
            (6, 40_000, 2000, 1000),
            (4, 60_000, 2048, 1448),
        ] {
            for tag in [None, Some(0x6123)] {
                let large = Large { version, payload, segment, size, tag, jumbo: 64 };
                check(send_large(&driver, folder.path(), eal, &large), &large);
            }
        }
    }
}

/// Checksums of what lies in one buffer and in several, all of which the NIC has or none that has room for all of it.
#[test]
fn checksums_are_filled_in_wherever_a_packet_lies() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let _nic = open_daemon(folder.path());
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        for (version, payload, segment, jumbo) in
            [(4, 2900, 2048, 0), (6, 2901, 1001, 0), (4, 9000, 1024, 0), (6, 8999, 2047, 0), (6, 2901, 1001, 64)]
        {
            let large = Large { version, payload, segment, size: 0, tag: (payload > 8000).then_some(0x6123), jumbo };
            check(send_large(&driver, folder.path(), eal, &large), &large);
        }
    }
}

/// Cut by the application's wish, as testpmd's checksum engine asks for it, and the pieces' content compared.
#[test]
fn testpmd_has_what_it_forwards_cut() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        let folder = folder();
        let _nic = open_daemon(folder.path());
        let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &with_mac()).expect("a NIC");
        let peer = format!("--eth-peer=0,{}", CLIENT.map(|byte| format!("{byte:02x}")).join(":"));
        let mut testpmd = Testpmd::start(&driver, folder.path(), eal, "", &[&peer, "--max-pkt-len=9600"]);
        let commands = ["port stop 0", "csum set ip hw 0", "csum set tcp hw 0", "tso set 1000 0", "port start 0"];
        for command in commands.into_iter().chain(["set fwd csum", "start"]) {
            testpmd.say(command);
        }
        let all = packets(CLIENT, DEVICE);
        wait_for_echo(&mut queues[0], &all[0], sent_on, &testpmd);
        // Of the first payload of TCP 1460 bytes go in two frames.
        let (whole, tcp) = (&all[7], &all[7][54..]);
        send(&mut queues[0], whole);
        let back = receive_for(&mut queues[0], Time::from_nanoseconds(500_000_000));
        let lengths: Vec<usize> = back.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1054, 54 + tcp.len() - 1000], "{}", testpmd.log());
        let joined: Vec<u8> = back.iter().flat_map(|frame| frame[54..].to_vec()).collect();
        assert_eq!(joined, tcp);
        assert!(back.iter().all(|frame| verify(frame).transport == Verdict::Good));
        let log = testpmd.end();
        assert_eq!(counter(&log, "tx_bad"), 0);
    }
}

/// Frames of one TCP flow that follow each other.
fn flow(count: usize, payload: usize) -> Vec<Vec<u8>> {
    let segment = |number: usize| {
        let mut frame = packet(CLIENT, DEVICE, 54 + payload, 1);
        // Numbered in the IP header, not to be fragmented, its place in the flow, an acknowledgement and nothing else.
        frame[18..21].copy_from_slice(&[0, number as u8, 0x40]);
        frame[38..42].copy_from_slice(&((number * payload) as u32).to_be_bytes());
        frame[47] = 0x10;
        frame[54..].iter_mut().enumerate().for_each(|(index, byte)| *byte = (number * 31 + index * 7) as u8);
        fill(&mut frame);
        frame
    };
    (0..count).map(segment).collect()
}

/// The same frame as a neighbour leaves it that has the NIC finish its checksum: the sum of the pseudo-header stands there (RFC 9293).
fn begun(frame: &[u8]) -> Vec<u8> {
    let mut begun = frame.to_vec();
    let words = frame[26..34].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>() + 6 + (frame.len() - 34) as u32;
    let sum = (sum & 0xffff) + (sum >> 16);
    begun[50..52].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
    begun
}

/// Sends frames in one call.
fn send_at_once(queue: &mut Queue, frames: &[Vec<u8>], metadata: Metadata) {
    let buffers = frames.iter().map(|frame| {
        let mut buffer = queue.allocate(frame.len()).expect("a buffer");
        buffer.fill(frame);
        buffer.set_metadata(metadata);
        buffer
    });
    let mut outgoing: Vec<_> = buffers.collect();
    assert_eq!(queue.transmit(&mut outgoing), frames.len());
}

/// Receives frames of TCP until they have so many bytes of payload.
fn receive_payload(queue: &mut Queue, bytes: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    wait_until("all that was sent comes back", || {
        all.extend(receive_for(queue, Time::from_nanoseconds(10_000_000)));
        all.iter().map(|frame| frame.len() - 54).sum::<usize>() >= bytes
    });
    all
}

/// What testpmd says of its packets that stand for several: the most segments, and the most bytes, of one of them.
fn most_joined(log: &str) -> (usize, usize) {
    let number = |line: &str, name: &str| {
        line.split(name).nth(1)?.split(|next: char| !next.is_ascii_digit()).next()?.parse::<usize>().ok()
    };
    let mut lines = log.lines().peekable();
    let mut most = (0, 0);
    while let Some(line) = lines.next() {
        if lines.peek().is_some_and(|next| next.contains("RTE_MBUF_F_RX_LRO")) {
            let (segments, bytes) = (number(line, "nb_segs="), number(line, " - length="));
            most = (most.0.max(segments.unwrap_or(0)), most.1.max(bytes.unwrap_or(0)));
        }
    }
    most
}

/// Joined on the way to testpmd, in chains, and cut again on the way back.
#[test]
fn testpmd_gets_joined_what_comes_in_segments() {
    const PAYLOAD: usize = 1400;
    const PADDING: [u8; 4] = [0xa5; 4];
    // All that the device says that it gives.
    const MOST: &str = "--max-lro-pkt-size=60416";
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let frames = flow(30, PAYLOAD);
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        let folder = folder();
        let _nic = open_daemon(folder.path());
        let options = Options { offloads: Offloads { requests: true, ..Offloads::default() }, ..with_mac() };
        let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options).expect("a NIC");
        let peer = format!("--eth-peer=0,{}", CLIENT.map(|byte| format!("{byte:02x}")).join(":"));
        let mut testpmd = Testpmd::start(&driver, folder.path(), eal, ",lro=1", &[&peer, "--enable-lro", MOST]);
        let all = packets(CLIENT, DEVICE);
        run_mode(&mut queues[0], &mut testpmd, "mac", &all, sent_on);
        // What a neighbour has only begun is finished: this mode sends it on as it is.
        let metadata = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 });
        send_at_once(&mut queues[0], &[begun(&frames[0])], metadata);
        assert!(receive_payload(&mut queues[0], PAYLOAD) == [sent_on(&frames[0])], "{}", testpmd.log());
        // Padding is not of the packet, whatever it is.
        let short = flow(1, 2).swap_remove(0);
        send_at_once(&mut queues[0], &[[&begun(&short)[..], &PADDING].concat()], metadata);
        let padded = [&sent_on(&short)[..], &PADDING].concat();
        assert_eq!(receive_payload(&mut queues[0], 2 + PADDING.len()), [padded], "{}", testpmd.log());
        say_all(&mut testpmd, &["stop", "port stop 0", "csum set ip hw 0", "csum set tcp hw 0", "tso set 1000 0"]);
        say_all(&mut testpmd, &["port start 0", "set verbose 1", "set fwd csum", "start"]);
        // The mode before gives the same echo.
        wait_until("testpmd forwards so", || testpmd.log().contains("csum packet forwarding"));
        wait_for_echo(&mut queues[0], &all[0], sent_on, &testpmd);
        // A burst may reach the NIC in two, of which each is joined.
        wait_until("many segments come as one packet", || {
            send_at_once(&mut queues[0], &frames, Metadata::NONE);
            let back = receive_payload(&mut queues[0], payload.len());
            assert!(back.iter().all(|frame| frame.len() <= 1054 && verify(frame).transport == Verdict::Good));
            let joined: Vec<u8> = back.iter().flat_map(|frame| frame[54..].to_vec()).collect();
            assert!(joined == payload, "{} frames, {} bytes: {}", back.len(), joined.len(), testpmd.log());
            most_joined(&testpmd.log()).0 > 1
        });
        let log = testpmd.end();
        assert_eq!((counter(&log, "rx_bad"), counter(&log, "tx_bad"), counter(&log, "ring_faults")), (0, 0, 0));
    }
}

/// The application's limit holds for what the NIC joins and for what a neighbour sends uncut. Where it names none, the ethdev layer takes
/// a frame's length for it, and nothing is joined.
#[test]
fn joined_packets_are_no_longer_than_the_application_takes() {
    const PAYLOAD: usize = 1400;
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let frames = flow(30, PAYLOAD);
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    let uncut = begun(
        &[&frames[0][..16], &((40 + 6 * PAYLOAD) as u16).to_be_bytes(), &frames[0][18..54], &payload[..6 * PAYLOAD]]
            .concat(),
    );
    let large =
        Metadata::NONE.with_begun(Begun { start: 34, offset: 16 }).with_large(PAYLOAD as u16).with(Metadata::NETWORK);
    // Tagged ones, too, whose tag the driver takes out of what is joined.
    for (limit, tag, expected) in [
        (Some(5000), None, 54 + 3 * PAYLOAD),
        (Some(58 + 2 * PAYLOAD), Some(0x6123), 54 + 2 * PAYLOAD),
        (None, None, 0),
    ] {
        let folder = folder();
        let _nic = open_daemon(folder.path());
        let options = Options { offloads: Offloads { requests: true, ..Offloads::default() }, ..with_mac() };
        let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options).expect("a NIC");
        let peer = format!("--eth-peer=0,{}", CLIENT.map(|byte| format!("{byte:02x}")).join(":"));
        let limit = limit.map(|bytes| format!("--max-lro-pkt-size={bytes}"));
        let arguments: Vec<&str> = [&peer, "--enable-lro"].into_iter().chain(limit.as_deref()).collect();
        let mut testpmd = Testpmd::start(&driver, folder.path(), &[], ",lro=1", &arguments);
        let all = packets(CLIENT, DEVICE);
        say_all(
            &mut testpmd,
            &["show port info 0", "port stop 0", "csum set ip hw 0", "csum set tcp hw 0", "tso set 1000 0"],
        );
        say_all(&mut testpmd, &["port start 0", "vlan set strip on 0", "set verbose 1", "set fwd csum", "start"]);
        wait_for_echo(&mut queues[0], &all[0], sent_on, &testpmd);
        wait_until("what may be joined is", || {
            let with_tag = |metadata: Metadata| tag.map_or(metadata, |control| metadata.with_vlan(control));
            send_at_once(&mut queues[0], &frames, with_tag(Metadata::NONE));
            let back = receive_payload(&mut queues[0], payload.len());
            assert!(back.iter().flat_map(|frame| &frame[54..]).eq(&payload));
            send_at_once(&mut queues[0], std::slice::from_ref(&uncut), with_tag(large));
            let back = receive_payload(&mut queues[0], 6 * PAYLOAD);
            assert!(back.iter().flat_map(|frame| &frame[54..]).eq(&payload[..6 * PAYLOAD]));
            most_joined(&testpmd.log()).1 >= expected
        });
        let log = testpmd.end();
        assert_eq!(most_joined(&log).1, expected);
        assert_eq!(log.contains("VLAN tci=0x6123"), tag.is_some(), "{log}");
        assert!(log.contains("Maximum configurable size of LRO aggregated packet: 60416"), "{log}");
    }
}

/// An application that knows nothing of joined packets gets none.
#[test]
fn a_device_that_joins_is_for_applications_that_want_it() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let _nic = open_daemon(folder.path());
    let testpmd = Testpmd::start(&driver, folder.path(), &[], ",lro=1", &[]);
    wait_until("it is refused", || testpmd.log().contains("with lro=1 the application must want LRO"));
}

fn tagged(frame: &[u8], control: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &control.to_be_bytes(), &frame[12..]].concat()
}

/// Of a frame with a tag, the same sent on with another.
fn tag_changed(frame: &[u8]) -> Vec<u8> {
    let without = [&frame[..12], &frame[16..]].concat();
    tagged(&sent_on(&without), 7)
}

fn tag_taken(frame: &[u8]) -> Vec<u8> {
    sent_on(&[&frame[..12], &frame[16..]].concat())
}

fn tag_kept(frame: &[u8]) -> Vec<u8> {
    sent_on(frame)
}

fn say_all(testpmd: &mut Testpmd, commands: &[&str]) {
    commands.iter().for_each(|command| testpmd.say(command));
}

/// Tags are taken out where the application asks for it, also while it runs, and put in where a packet asks for it.
#[test]
fn tags_are_taken_out_and_put_in() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let frames: Vec<Vec<u8>> = packets(CLIENT, DEVICE).iter().map(|frame| tagged(frame, 0x6123)).collect();
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        let folder = folder();
        let _nic = open_daemon(folder.path());
        let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &with_mac()).expect("a NIC");
        let queue: &mut Queue = &mut queues[0];
        let peer = format!("--eth-peer=0,{}", CLIENT.map(|byte| format!("{byte:02x}")).join(":"));
        let mut testpmd = Testpmd::start(&driver, folder.path(), eal, "", &[&peer]);
        run_mode(queue, &mut testpmd, "mac", &frames, tag_kept);
        testpmd.say("vlan set strip on 0");
        run_mode(queue, &mut testpmd, "mac", &frames, tag_taken);
        say_all(&mut testpmd, &["set verbose 1", "stop", "port stop 0", "tx_vlan set 0 7", "port start 0"]);
        run_mode(queue, &mut testpmd, "mac", &frames, tag_changed);
        assert!(testpmd.log().contains("VLAN tci=0x6123"), "{}", testpmd.log());
        say_all(&mut testpmd, &["set verbose 0", "stop", "port stop 0", "tx_vlan reset 0", "port start 0"]);
        testpmd.say("vlan set strip off 0");
        run_mode(queue, &mut testpmd, "mac", &frames, tag_kept);
        let log = testpmd.end();
        assert_eq!((counter(&log, "tx_bad"), counter(&log, "rx_bad")), (0, 0));
    }
}

/// A tag that is taken out counts among a packet's bytes, whether or not the NIC may join packets.
#[test]
fn bytes_are_counted_as_they_came() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let frames = vec![tagged(&packet(CLIENT, DEVICE, 100, 0), 0x6123); 5];
    for (more, wanted) in [("", &[][..]), (",lro=1", &["--enable-lro"])] {
        let folder = folder();
        let _nic = open_daemon(folder.path());
        let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &with_mac()).expect("a NIC");
        let peer = format!("--eth-peer=0,{}", CLIENT.map(|byte| format!("{byte:02x}")).join(":"));
        let arguments: Vec<&str> = [&[peer.as_str()][..], wanted].concat();
        let mut testpmd = Testpmd::start(&driver, folder.path(), &[], more, &arguments);
        testpmd.say("vlan set strip on 0");
        run_mode(&mut queues[0], &mut testpmd, "mac", &frames, tag_taken);
        let log = testpmd.end();
        let [packets, bytes] = ["rx_good_packets", "rx_good_bytes"].map(|name| counter(&log, name));
        assert!(packets >= 100 && bytes == packets * frames[0].len() as u64, "{more}: {packets}, {bytes}: {log}");
    }
}

/// On a loopback network nobody puts a tag in: it comes back beside the frame, as it was sent, and is not lost.
#[test]
fn a_tag_comes_back_beside_the_frame_on_a_loopback_network() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let file = folder.path().join("nic.toml");
    std::fs::write(&file, "[[network]]\nmode = \"loopback\"\n").expect("a file");
    let _nic = daemon(folder.path(), &["--config", file.to_str().expect("a name")]);
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], "", &[]);
    say_all(&mut testpmd, &["port stop 0", "tx_vlan set 0 1234", "port start 0", "set verbose 1", "set fwd io"]);
    testpmd.say("start tx_first");
    wait_until("testpmd tells of the tags", || testpmd.log().matches("VLAN tci=0x4d2").count() >= 32);
    testpmd.end();
}
