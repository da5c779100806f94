//! `conic nic` with the kernel's stack and other programs behind its ports, in network namespaces: ping, iperf3, tcpreplay, tshark.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use conic_check::skipped;
use conic_client::Operator;
use conic_port::{CaptureReader, MAX_FRAME, PortSpec, Receive, set_checksum_offload, set_receive_offload};
use serde_json::Value;

use crate::Nic;
use crate::net::{Net, ip, obstacle, text, there};
use crate::waiting::{try_until, wait_until};
use conic_native::clock;

/// The port at which iperf3 listens, as the kernel lists it.
const IPERF3: &str = ":1451 ";

/// Says what is left out where nothing can be done here.
fn is_possible(what: &str) -> bool {
    if let Some(obstacle) = obstacle() {
        skipped(&format!("{what}: {obstacle}"));
        return false;
    }
    true
}

fn has_tap(what: &str) -> bool {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    if opened.is_err() {
        skipped(&format!("{what}: /dev/net/tun cannot be opened"));
    }
    opened.is_ok()
}

/// A NIC in the third namespace, its two ports joined as they are or by a wire. An interface that a TAP port makes there is moved to the
/// namespace whose stack is its peer, and has the address of the one that was there.
fn start(net: &Net, ports: [&str; 2], more: &[&str]) -> Nic {
    ip(&["-n", &net.names[2], "link", "set", "lo", "up"]);
    let command = net.command(2, env!("CARGO_BIN_EXE_conic"), &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [&["--port", ports[0], "--port", ports[1]][..], more].concat();
    let nic = Nic::start_as(command, folder, &arguments);
    for (place, (port, end)) in ports.into_iter().zip(["a", "b"]).enumerate() {
        let Some(tap) = port.strip_prefix("tap:").and_then(|rest| rest.split(',').next()) else { continue };
        let (name, address) = (&net.names[place], format!("10.5.0.{}/24", place + 1));
        ip(&["-n", &net.names[2], "link", "set", tap, "netns", name]);
        ip(&["-n", name, "address", "flush", "dev", &format!("{end}0")]);
        ip(&["-n", name, "link", "set", tap, "txqueuelen", "5000", "up"]);
        ip(&["-n", name, "address", "add", &address, "dev", tap]);
    }
    nic
}

/// What iperf3 says at both ends of a run from the first namespace to the second: client, server.
fn measured(net: &Net, arguments: &[&str]) -> [Value; 2] {
    let mut server = net.command(1, "iperf3", &["-4", "-s", "-1", "-J"]);
    let server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("ip was there");
    let listens = || {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("they can be listed");
        // 0A is a socket that listens.
        sockets.lines().any(|line| line.contains(IPERF3) && line.contains(" 00000000:0000 0A "))
    };
    net.inside(1, || wait_until("iperf3 listens", listens));
    let common = ["60", "iperf3", "-c", "10.5.0.2", "-J", "--connect-timeout", "5000"];
    let client = net.command(0, "timeout", &[&common[..], arguments].concat()).output().expect("ip was there");
    let server = server.wait_with_output().expect("it ends with its client");
    [client, server].map(|output| {
        let said = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
        assert!(output.status.success() && said.get("error").is_none(), "{arguments:?}: {said}");
        said
    })
}

fn number(said: &Value, path: &str) -> u64 {
    said.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {said}")) as u64
}

/// What was sent and received by one of iperf3's runs, as either end says by itself.
fn bytes_of([client, server]: &[Value; 2], is_back: bool) -> [u64; 2] {
    let (sender, receiver) = if is_back { (server, client) } else { (client, server) };
    [number(sender, "/end/sum_sent/bytes"), number(receiver, "/end/sum_received/bytes")]
}

/// Bytes that lie in the sockets of both ends, at most. When a run ends, iperf3 reads no more of what is there.
const IN_SOCKETS: u64 = 16 << 20;

/// How counters of what did not pass begin.
const LOSSES: [&str; 5] = ["dropped", "missed", "receive_errors", "refused", "skipped"];

/// What a NIC says of all that it has.
fn listed(nic: &Nic) -> Value {
    let operator = Operator::connect(&nic.socket(), Duration::from_secs(10)).expect("it listens");
    serde_json::from_str(&operator.ask(r#"{"ask": "list"}"#).expect("it answers")).expect("an answer")
}

/// What did not pass through a NIC, by where and why.
fn losses(nic: &Nic) -> BTreeMap<String, u64> {
    let list = listed(nic);
    let ends = ["ports", "trunks"].into_iter().flat_map(|kind| {
        let ends = list["networks"][0][kind].as_array().unwrap_or_else(|| panic!("no {kind} in {list}"));
        ends.iter().enumerate().map(move |(number, end)| (kind, number, end))
    });
    let counters = ends.flat_map(|(kind, number, end)| {
        let parts = ["counters", "switch"].into_iter().filter_map(|part| end[part].as_object());
        parts.flatten().map(move |(name, count)| (format!("{kind} {number} {name}"), count))
    });
    let is_loss =
        |name: &str| LOSSES.iter().any(|loss| name.rsplit(' ').next().is_some_and(|name| name.starts_with(loss)));
    let lost: BTreeMap<String, u64> = counters
        .filter(|(name, _)| is_loss(name))
        .map(|(name, count)| (name, count.as_u64().expect("a number")))
        .collect();
    assert!(lost.len() > 10, "its losses are counted by other names: {list}");
    lost
}

/// Pings as fast as they are answered, and iperf3 by TCP both ways, as fast as it goes, and by TCP and UDP at a pace, at which the NIC loses nothing.
fn exercise(net: &Net, nic: &Nic, name: &str) {
    if there("ping") {
        // The next when an answer comes, or a hundredth of a second later.
        let arguments = ["-q", "-f", "-W", "10", "-c", "200", "-s", "1400", "10.5.0.2"];
        let said = text(&net.command(0, "ping", &arguments).output().expect("ip was there"));
        assert!(said.contains(" 0% packet loss"), "{name}: {said}");
    }
    if !there("iperf3") {
        return;
    }
    for (direction, way) in [("there", &[][..]), ("back", &["-R"])] {
        let run = measured(net, &[&["-n", "20M"], way].concat());
        let [sent, received] = bytes_of(&run, !way.is_empty());
        let again = number(&run[usize::from(!way.is_empty())], "/end/sum_sent/retransmits");
        println!("{name}: TCP {direction}: {sent} bytes sent, {received} received, {again} segments sent again");
        assert!(received <= sent && sent - received < IN_SOCKETS, "{name}: {sent} bytes sent, {received} received");
    }
    // What one end misses then lay in a socket when the run ended, or found none with room: the NIC has passed all of it on.
    for (protocol, how) in [("TCP", ["-b", "30M", "-l", "16K"].as_slice()), ("UDP", &["-b", "4M", "-l", "1400", "-u"])]
    {
        let passed = || number(&listed(nic), "/networks/0/ports/1/counters/transmitted_bytes");
        let (before, begun) = (losses(nic), passed());
        let run = measured(net, &[&["-t", "1"], how].concat());
        let [sent, received] = bytes_of(&run, false);
        println!("{name}: {protocol} at a pace: {sent} bytes sent, {received} received");
        assert!(sent > 1 << 18 && received <= sent, "{name}: {protocol}: {sent} bytes sent, {received} received");
        // What TCP had not sent when the run ended it does not send.
        let least = if protocol == "UDP" { sent } else { received };
        wait_until("the NIC has passed it on", || passed() - begun >= least);
        assert_eq!(losses(nic), before, "{name}: {protocol} at a pace: the NIC lost some");
    }
}

#[test]
fn ping_and_iperf3_pass_between_two_ports_of_one_nic() {
    if !is_possible("conic nic between namespaces") || !has_tap("conic nic between namespaces") {
        return;
    }
    for (name, ports, more) in [
        ("tap-tap", ["tap:t0", "tap:t1"], &[][..]),
        ("tap-tap-offload", ["tap:t0,offload", "tap:t1,offload"], &["--threads", "2"]),
        ("tap-xdp", ["tap:t0", "af-xdp:b1,complete-checksums"], &[]),
        ("tap-xdp-offload", ["tap:t0,offload", "af-xdp:b1,complete-checksums"], &[]),
    ] {
        let net = Net::new(name);
        let nic = start(&net, ports, more);
        exercise(&net, &nic, name);
        drop(nic);
    }
}

/// Frames that the kernel forwarded from a NIC's first port, and their bytes.
fn forwarded(nic: &Nic) -> [u64; 2] {
    let list = listed(nic);
    ["frames", "bytes"].map(|what| number(&list, &format!("/networks/0/ports/0/counters/kernel_forwarded_in_{what}")))
}

/// Between ports that forward in the kernel, what a neighbour leaves to be completed goes the long way, and all else the short one.
#[test]
fn ping_and_iperf3_pass_where_the_kernel_forwards() {
    if !is_possible("forwarding in the kernel between namespaces") || !there("ping") || !there("iperf3") {
        return;
    }
    for (name, leaves_checksums) in [("xdp-begun", true), ("xdp-whole", false)] {
        let net = Net::new(name);
        for (place, end) in ["a0", "b0"].into_iter().enumerate() {
            net.inside(place, || {
                set_receive_offload(end, true).expect("veth can");
                set_checksum_offload(end, leaves_checksums).expect("veth can");
            });
        }
        let ports = ["a1", "b1"].map(|end| format!("af-xdp:{end},complete-checksums,forward=kernel"));
        let nic = start(&net, [&ports[0], &ports[1]], &[]);
        let ping = |count: &str| {
            let arguments = ["-q", "-f", "-W", "10", "-c", count, "-s", "1400", "10.5.0.2"];
            let said = text(&net.command(0, "ping", &arguments).output().expect("ip was there"));
            assert!(said.contains(" 0% packet loss"), "{name}: {said}");
        };
        wait_until("the kernel forwards", || {
            ping("1");
            forwarded(&nic)[0] > 0
        });
        let [before, _] = forwarded(&nic);
        ping("300");
        let [frames, bytes] = forwarded(&nic);
        assert!((295..=305).contains(&(frames - before)), "{name}: of 300 pings {} went past the NIC", frames - before);
        // What the receiver has had when the sender ends; the rest may be in sockets, and is then not sent.
        let [there, _] = [&[][..], &["-R"]].map(|way| {
            let [sent, received] = bytes_of(&measured(&net, &[&["-n", "20M"], way].concat()), !way.is_empty());
            println!("{name} {way:?}: {sent} bytes sent, {received} received");
            assert!(received <= sent && sent - received < IN_SOCKETS, "{name}: {sent} bytes sent, {received} received");
            received
        });
        let past = forwarded(&nic)[1] - bytes;
        assert!(
            if leaves_checksums { past < 1 << 20 } else { past > there },
            "{name}: {past} bytes went past the NIC, of {there}"
        );
        drop(nic);
    }
}

/// Frames of the sample that are sent, of all its sizes, and how many a second: what waits while a thread has no core finds room in every ring.
const FRAMES: usize = 3000;
const PACE: &str = "1500";

/// What tcpreplay sends on `a0` comes out at `b0`: every frame, byte by byte, and as many as tshark counts there, as it sees them.
fn replayed(name: &str, port: &str, more: &[&str]) {
    let net = Net::new(name);
    let folder = tempfile::tempdir().expect("a folder");
    let sample = folder.path().join("sent.pcap");
    let made = Command::new(env!("CARGO_BIN_EXE_conic")).arg("sample").arg(&sample).output().expect("the program");
    assert!(made.status.success(), "{}", text(&made));
    let expected = frames_of(&sample);
    assert_eq!(expected.len(), FRAMES);
    for (namespace, link) in [(0, "a0"), (2, "a1"), (2, "b1"), (1, "b0")] {
        net.quiet(namespace, link);
    }
    // As much as is sent while nobody runs who takes it.
    ip(&["-n", &net.names[0], "link", "set", "a0", "txqueuelen", "20000"]);
    // A wire, because the sample's stations talk to each other from one side.
    let wire = [&["--connect", "port:0,port:1"], more].concat();
    let _nic = start(&net, [port, "af-packet:b1,frames=1024"], &wire);
    let fields = ["-T", "fields", "-e", "frame.len", "-e", "eth.src", "-e", "eth.dst", "-e", "ip.id"];
    let count = expected.len().to_string();
    let watcher = there("tshark").then(|| {
        let arguments = [&["-n", "-l", "-i", "b0", "-c", &count, "-a", "duration:20"][..], &fields].concat();
        let mut command = net.command(1, "tshark", &arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip was there");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        lines.by_ref().map_while(Result::ok).find(|line| line.contains("Capturing on")).expect("it has begun");
        (child, lines)
    });
    let got = net.inside(1, || {
        let spec: PortSpec = "af-packet:b0,frames=4096".parse().expect("a port");
        let mut end = spec.open().expect("root may").remove(0);
        let sample = sample.to_str().expect("text");
        let arguments = ["-q", "-i", "a0", "--pps", PACE, "--limit", &count, sample];
        let mut replay = net.command(0, "tcpreplay", &arguments);
        let replay = replay.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip was there");
        let (mut got, mut frame) = (Vec::new(), vec![0; MAX_FRAME]);
        let whole = try_until("every frame comes", || {
            while let Receive::Frame { length, .. } = end.receive(clock::now(), &mut frame).expect("it goes on") {
                got.push(frame[..length].to_vec());
            }
            got.len() >= expected.len()
        });
        let output = replay.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", text(&output));
        assert!(whole.is_ok(), "{name}: {} frames of {}", got.len(), expected.len());
        got
    });
    let differs = got.iter().zip(&expected).position(|(got, expected)| got != expected);
    assert_eq!((got.len(), differs), (expected.len(), None), "{name}");
    let Some((child, _lines)) = watcher else { return };
    let seen = text(&child.wait_with_output().expect("it ends"));
    let file = Command::new("tshark")
        .args(["-n", "-c", &count, "-r"])
        .arg(&sample)
        .args(fields)
        .output()
        .expect("it is there");
    let sent = String::from_utf8_lossy(&file.stdout);
    let differs = seen.lines().zip(sent.lines()).position(|(seen, sent)| seen != sent);
    assert_eq!((seen.lines().count(), differs), (sent.lines().count(), None), "{name}: as tshark sees it");
}

/// A capture's first frames.
fn frames_of(path: &std::path::Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).expect("a capture");
    let mut frames = Vec::new();
    while frames.len() < FRAMES && reader.next_record().expect("a sound one").is_some() {
        frames.push(reader.data().to_vec());
    }
    frames
}

#[test]
fn what_tcpreplay_sends_into_one_port_comes_out_of_the_other() {
    if !is_possible("tcpreplay into conic nic") || !there("tcpreplay") {
        return;
    }
    replayed("xdp", "af-xdp:a1,frames=4096", &[]);
    replayed("packet", "af-packet:a1,frames=1024", &["--threads", "2"]);
}
