//! `conic bridge` between two network namespaces, with the kernel's stack and other programs as peers.

mod net;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use conic_check::skipped;
use net::{Net, ip, obstacle, text, there};

fn bridge(net: &Net, ports: [&str; 2], more: &[&str]) -> Bridge {
    let mut arguments = vec!["bridge", "--port", ports[0], "--port", ports[1], "--duration", "60s"];
    arguments.extend_from_slice(more);
    let mut command = net.command(2, env!("CARGO_BIN_EXE_conic"), &arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("ip was there");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for line in lines.by_ref() {
        if line.expect("text").contains("Ctrl-C ends it") {
            break;
        }
    }
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect());
    Bridge { child, rest: Some(rest) }
}

/// `conic bridge`; killed when dropped.
struct Bridge {
    child: Child,
    rest: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Bridge {
    /// Ends it in order; gives what it said.
    fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a process");
        assert!(self.child.wait().expect("a process").success(), "an interrupted bridge ends in order");
        self.rest.take().expect("not taken before").join().expect("a reader").join("\n")
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Datagrams of all sizes there and back, and streams both ways, between sockets of the two namespaces; every byte is looked at.
fn converse(net: &Net) {
    const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
    let content = |length: usize| (0..length).map(|at| (at * 7 + length) as u8).collect::<Vec<u8>>();
    let [near, far]: [SocketAddr; 2] = ["10.5.0.1:0", "10.5.0.2:0"].map(|text| text.parse().expect("an address"));
    let bind = |place, at: SocketAddr| net.inside(place, || UdpSocket::bind(at)).expect("a free port");
    let (one, other) = (bind(0, near), bind(1, far));
    let (here, there) = (one.local_addr().expect("a port"), other.local_addr().expect("a port"));
    let mut room = [0; 2000];
    for length in (1..=1472).step_by(29) {
        let sent = content(length);
        for (from, to, address) in [(&one, &other, there), (&other, &one, here)] {
            to.set_read_timeout(PATIENCE).expect("a socket");
            from.send_to(&sent, address).expect("a way there");
            let got = to.recv(&mut room).expect("it comes");
            assert!(room[..got] == sent, "{length} bytes");
        }
    }
    let listener = net.inside(1, || TcpListener::bind(far)).expect("a free port");
    let there = listener.local_addr().expect("a port");
    let near = net.inside(0, || TcpStream::connect_timeout(&there, Duration::from_secs(20))).expect("a way there");
    let (far, _) = listener.accept().expect("who has connected");
    let stream = content(8 << 20);
    for (mut from, mut to) in [(&near, &far), (&far, &near)] {
        to.set_read_timeout(PATIENCE).expect("a socket");
        let mut got = vec![0; stream.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&stream).expect("the other side reads"));
            to.read_exact(&mut got).expect("all of it comes");
        });
        assert!(got == stream, "a byte was changed");
    }
}

/// Sockets' datagrams and streams, and where they are installed ping in bursts, and TCP both ways by iperf3.
///
/// For its last answer ping waits an interval, or twice the longest round trip so far: the bursts are sent at once, and behind them one
/// at a time in intervals in which a busy machine lets whoever answers run.
fn exercise(net: &Net, name: &str) {
    converse(net);
    if there("ping") {
        for arguments in [&["-l", "100", "-c", "104"][..], &["-l", "20", "-c", "24", "-s", "1400"]] {
            let common = &["-q", "-W", "10", "-i", "0.5"];
            let output = net.command(0, "ping", &[common, arguments, &["10.5.0.2"]].concat()).output();
            let said = text(&output.expect("ip was there"));
            assert!(said.contains(" 0% packet loss"), "{name}: {said}");
        }
    }
    if there("iperf3") {
        for reverse in [&[][..], &["-R"]] {
            let mut server = net.command(1, "iperf3", &["-s", "-1"]).stdout(Stdio::null()).spawn().expect("as above");
            let client = [&["-c", "10.5.0.2", "-n", "20M", "--connect-timeout", "5000"][..], reverse].concat();
            let mut output = net.command(0, "timeout", &[&["60", "iperf3"][..], &client].concat()).output();
            for _ in 0..20 {
                // The server may not listen yet.
                if output.as_ref().is_ok_and(|output| output.status.success()) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
                output = net.command(0, "timeout", &[&["60", "iperf3"][..], &client].concat()).output();
            }
            let output = output.expect("ip was there");
            let _ = server.kill();
            let _ = server.wait();
            assert!(output.status.success(), "{name}: {}", text(&output));
        }
    }
}

#[test]
fn ping_and_tcp_pass_between_ports_of_every_kind() {
    if let Some(obstacle) = obstacle() {
        skipped(&format!("conic bridge: {obstacle}"));
        return;
    }
    for (name, ports) in [
        ("packet", ["af-packet:a1,offload", "af-packet:b1,offload"]),
        ("xdp", ["af-xdp:a1,complete-checksums", "af-xdp:b1,complete-checksums"]),
        ("mixed", ["af-xdp:a1,complete-checksums", "af-packet:b1,offload"]),
    ] {
        let net = Net::new(name);
        let bridge = bridge(&net, ports, &[]);
        exercise(&net, name);
        let said = bridge.stop();
        assert!(said.contains("received_frames"), "{said}");
        assert!(!said.contains("malformed") && !said.contains("frame_faults"), "{said}");
    }
}

#[test]
fn a_tap_with_offloads_joins_and_cuts_what_tcp_sends() {
    if let Some(obstacle) = obstacle() {
        skipped(&format!("conic bridge: {obstacle}"));
        return;
    }
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        skipped("conic bridge with a TAP interface: /dev/net/tun cannot be opened");
        return;
    }
    let net = Net::new("tap");
    // The TAP interface is made in the bridge's namespace, whose own stack is then the peer of namespace b.
    let bridge = bridge(&net, ["tap:t0,offload,address=10.5.0.1/24", "af-packet:b1,offload"], &["--burst", "64"]);
    let inside = Net { names: [net.names[2].clone(), net.names[1].clone(), String::new()] };
    exercise(&inside, "tap");
    std::mem::forget(inside);
    let said = bridge.stop();
    assert!(!said.contains("malformed"), "{said}");
    assert!(said.contains("packets_cut") && said.contains("packets_joined"), "{said}");
}

/// What tshark sees of a capture that tcpreplay sends on an interface of a namespace and that leaves the bridge at `b1`; what it
/// sees of the capture itself; and what the bridge said.
fn replayed(net: &Net, (place, interface): (usize, &str), ports: [&str; 2]) -> [String; 3] {
    let directory = tempfile::tempdir().expect("a directory");
    let (sent, came) = (directory.path().join("sent.pcap"), directory.path().join("came.pcap"));
    let (sent, came) = (sent.to_str().expect("text"), came.to_str().expect("text"));
    let sample = Command::new(env!("CARGO_BIN_EXE_conic")).args(["sample", sent]).output().expect("the program");
    assert!(sample.status.success(), "{}", text(&sample));
    for (namespace, link) in [(0, "a0"), (2, "a1"), (2, "b1"), (1, "b0")] {
        net.quiet(namespace, link);
    }
    // An interface that the bridge makes is up before anything else can be said of it.
    net.command(2, "sysctl", &["-q", "net.ipv6.conf.default.disable_ipv6=1"]).output().expect("ip was there");
    let bridge = bridge(net, ports, &[]);
    net.quiet(place, interface);
    // As much as is sent while nobody runs who takes it.
    ip(&["-n", &net.names[place], "link", "set", interface, "txqueuelen", "20000"]);
    let record = format!("capture:record={came}");
    let mut recorder = net
        .command(1, env!("CARGO_BIN_EXE_conic"), &["bridge", "--port", "af-packet:b0,frames=4096", "--port", &record])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ip was there");
    let mut lines = BufReader::new(recorder.stdout.take().expect("a pipe")).lines();
    lines.by_ref().map_while(Result::ok).find(|line| line.contains("Ctrl-C")).expect("it has begun");
    let arguments = ["-q", "-i", interface, "--mbps", "50", sent];
    let output = net.command(place, "tcpreplay", &arguments).output().expect("as above");
    assert!(output.status.success(), "{}", text(&output));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a process");
    assert!(recorder.wait().expect("a process").success());
    let said = bridge.stop();
    let frames = |file: &str| {
        let arguments =
            ["-r", file, "-T", "fields", "-e", "frame.len", "-e", "eth.src", "-e", "eth.dst", "-e", "ip.id"];
        let output = Command::new("tshark").args(arguments).output().expect("it is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    [frames(sent), frames(came), said]
}

#[test]
fn a_capture_sent_by_tcpreplay_arrives_as_tshark_sees_it() {
    if let Some(obstacle) = obstacle() {
        skipped(&format!("conic bridge: {obstacle}"));
        return;
    }
    if !there("tcpreplay") || !there("tshark") {
        return;
    }
    for (name, from, ports) in [
        ("xdp", (0, "a0"), ["af-xdp:a1,frames=4096", "af-packet:b1,frames=1024"]),
        // The TAP interface is in the bridge's own namespace, and so is who sends on it.
        ("tap", (2, "t0"), ["tap:t0,mtu=9586", "af-packet:b1,frames=1024"]),
    ] {
        if name == "tap" && std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
            skipped("tcpreplay over a TAP interface: /dev/net/tun cannot be opened");
            continue;
        }
        let net = Net::new(&format!("replay-{name}"));
        let [expected, got, said] = replayed(&net, from, ports);
        assert!(expected.lines().count() > 10);
        let differs = got.lines().zip(expected.lines()).position(|(got, expected)| got != expected);
        assert_eq!((got.lines().count(), differs), (expected.lines().count(), None), "{name}: {said}");
    }
}

#[test]
fn what_is_wrong_with_a_port_is_said_before_anything_runs() {
    for (arguments, says) in [
        (&["--port", "tapp:t0"][..], "'tapp' is no kind of port"),
        (&["--port", "loopback", "--port", "loopback", "--port", "loopback"], "give --port once or twice"),
        (&["--port", "af-packet:there-is-none"], "there is no interface there-is-none"),
        (&["--port", "loopback", "--port", "af-xdp:lo,forward=kernel"], "is for a switch that learns"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_conic")).arg("bridge").args(arguments).output();
        let output = output.expect("the program");
        let said = text(&output);
        assert!(!output.status.success() && said.contains(says), "{said}");
    }
}
