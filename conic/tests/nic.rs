//! The daemon as a program: clients in this process, the NIC in another.

#[path = "../../daemon/tests/support/waiting.rs"]
mod waiting;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use conic_check::skipped;
use conic_client::{AttachError, Buffer, Client, Link, Name, Options, Queue, Reason};
use conic_interface::burst::HostQueue;
use conic_interface::ccnic::Geometry;
use conic_load::{ClosedLoop, Workload};
use conic_native::clock;
use conic_port::{MAX_FRAME, Port, PortSpec, Receive, Transmit};
use tempfile::TempDir;
use waiting::wait_until;

/// A daemon that is killed when it is dropped.
struct Nic {
    child: Child,
    /// Where it says its counters.
    metrics: String,
    folder: TempDir,
}

impl Nic {
    fn start(arguments: &[&str]) -> Nic {
        Nic::start_in(tempfile::tempdir().expect("a folder"), arguments)
    }

    fn start_in(folder: TempDir, arguments: &[&str]) -> Nic {
        Nic::start_as(Command::new(env!("CARGO_BIN_EXE_conic")), folder, arguments)
    }

    /// The command is the program, or what starts it with the arguments that are put behind it.
    fn start_as(command: Command, folder: TempDir, arguments: &[&str]) -> Nic {
        Nic::start_into(Stdio::null(), command, folder, arguments)
    }

    /// The same with a log.
    fn start_into(log: Stdio, mut command: Command, folder: TempDir, arguments: &[&str]) -> Nic {
        let socket = folder.path().join("nic.sock");
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a free port");
        let metrics = port.to_string();
        command.args(["nic", "--metrics", &metrics, "--socket"]).arg(&socket).args(arguments).stdout(log);
        let child = command.spawn().expect("conic starts");
        let nic = Nic { child, metrics, folder };
        wait_until("the NIC listens", || Client::attach(&socket, &small(1)).is_ok());
        nic
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nic.sock")
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").count()
    }

    /// How long its threads have run.
    fn processor_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let ran = tasks.map(|task| {
            let path = task.expect("a thread").path().join("schedstat");
            let text = std::fs::read_to_string(path).expect("a thread's times");
            text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
        });
        Duration::from_nanos(ran.sum())
    }

    fn maps(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).expect("it runs");
        maps.lines().filter(|line| line.contains("conic (deleted)") || line.contains("/memfd:conic")).count()
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        // It may be dead already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_looks_on_sees_the_process_that_has_taken_over() {
    let nic = Nic::start(&[]);
    let process = || {
        let top = Command::new(env!("CARGO_BIN_EXE_conic"))
            .args(["top", "--once", "--json", "--interval", "0.1", "--socket"])
            .arg(nic.socket())
            .output()
            .expect("conic starts");
        let view: serde_json::Value = serde_json::from_slice(&top.stdout).expect("a view");
        view["process"].as_u64()
    };
    assert_eq!(process(), Some(nic.child.id().into()));
    let mut heir = Command::new(env!("CARGO_BIN_EXE_conic"));
    heir.args(["nic", "--metrics", &nic.metrics, "--adopt", "--socket"]).arg(nic.socket()).stdout(Stdio::null());
    let mut heir = heir.spawn().expect("conic starts");
    let seen = std::panic::catch_unwind(|| wait_until("it is the heir's", || process() == Some(heir.id().into())));
    heir.kill().and_then(|()| heir.wait()).expect("it ran");
    assert!(seen.is_ok(), "the one before is named still");
}

/// What Prometheus reads.
fn metrics_of(nic: &Nic) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(&nic.metrics).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn small(queues: u32) -> Options {
    let geometry = Geometry { queues, descriptors: 256, buffers: [1024, 256, 16], object_bytes: 0 };
    Options { geometry, name: Name::new("test").expect("a name"), ..Options::default() }
}

fn attach(socket: &Path, options: &Options) -> (Client, Vec<Queue>) {
    Client::attach(socket, options).unwrap_or_else(|error| panic!("{error}"))
}

/// A frame from one client to another, with a number in it.
fn frame(queue: &mut Queue, from: [u8; 6], to: [u8; 6], length: usize, number: u64) -> Buffer {
    let mut frame = None;
    wait_until("a buffer is free", || {
        frame = queue.allocate(length);
        frame.is_some()
    });
    let mut frame = frame.expect("it was waited for");
    let mut bytes = vec![0; length];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    for (index, byte) in bytes[14..].iter_mut().enumerate() {
        *byte = (number as usize * 31 + index) as u8;
    }
    frame.fill(&bytes);
    frame
}

fn send(queue: &mut Queue, frame: Buffer) {
    let mut outgoing = vec![frame];
    wait_until("there is room to send", || queue.transmit(&mut outgoing) == 1);
}

fn receive(queue: &mut Queue) -> Buffer {
    let mut incoming = Vec::new();
    wait_until("a frame comes", || queue.receive(&mut incoming, 1) == 1);
    incoming.remove(0)
}

#[test]
fn two_clients_exchange_frames_of_all_sizes_through_the_daemon() {
    let nic = Nic::start(&[]);
    let (a, mut of_a) = attach(&nic.socket(), &small(1));
    let (b, mut of_b) = attach(&nic.socket(), &small(1));
    assert_ne!(a.mac(), b.mac());
    for (number, length) in (60..=9600).step_by(53).chain([60, 64, 65, 128, 129, 9600]).enumerate() {
        let there = frame(&mut of_a[0], a.mac(), b.mac(), length, number as u64);
        let expected = there.to_vec();
        send(&mut of_a[0], there);
        let mut got = receive(&mut of_b[0]);
        assert_eq!(got.to_vec(), expected, "{length} bytes");
        got.write(0, &a.mac());
        got.write(6, &b.mac());
        let expected = got.to_vec();
        send(&mut of_b[0], got);
        assert_eq!(receive(&mut of_a[0]).to_vec(), expected, "{length} bytes back");
    }
}

#[test]
fn a_loopback_network_returns_everything_to_its_queue() {
    let nic = Nic::start(&["--mode", "loopback"]);
    let (_client, queues) = attach(&nic.socket(), &small(2));
    for (index, queue) in queues.into_iter().enumerate() {
        let workload = Workload {
            packet_size: 64 + 500 * index as u16,
            window: 64,
            transmit_burst: 32,
            receive_burst: 32,
            fetch_ahead: true,
        };
        let mut load = ClosedLoop::new(queue, workload);
        while load.account().received() < 20_000 {
            load.step();
        }
        load.drain(clock::now() + conic_fabric::Time::from_nanoseconds(20_000_000_000));
        assert_eq!((load.account().lost(), load.account().corrupt()), (0, 0));
    }
}

#[test]
fn a_client_that_is_gone_leaves_nothing_and_costs_the_others_nothing() {
    let nic = Nic::start(&[]);
    let (a, mut of_a) = attach(&nic.socket(), &small(1));
    let (b, mut of_b) = attach(&nic.socket(), &small(1));
    wait_until("a region is kept for the next one", || nic.maps() == 3);
    // The daemon closes its copies of what it passed a moment after the client has them.
    let samples = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        (nic.descriptors(), nic.maps())
    });
    let baseline = samples.min().expect("there are samples");
    for round in 0..20 {
        let (c, mut of_c) = attach(&nic.socket(), &small(3));
        let lost = frame(&mut of_c[1], c.mac(), b.mac(), 100, round);
        send(&mut of_c[1], lost);
        // In the middle of things: its frame may be on its way.
        drop((c, of_c));
        let there = frame(&mut of_a[0], a.mac(), b.mac(), 200, round);
        let expected = there.to_vec();
        send(&mut of_a[0], there);
        wait_until("the frame comes", || receive(&mut of_b[0]).to_vec() == expected);
    }
    wait_until("everything is returned", || (nic.descriptors(), nic.maps()) == baseline);
}

#[test]
fn a_daemon_that_dies_is_found_and_one_that_comes_back_is_used() {
    let mut nic = Nic::start(&["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let queue = &mut queues[0];
    let (mac, kept) = (client.mac(), frame(queue, [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 300, 7));
    let contents = kept.to_vec();
    nic.kill();
    let begun = clock::now();
    let mut incoming = Vec::new();
    while client.link() == Link::Up {
        queue.receive(&mut incoming, 32);
        assert!(clock::now().since(begun).seconds() < 10.0, "the link stays up over a dead daemon");
    }
    let mut unsent = vec![frame_of(&contents, queue)];
    assert_eq!(queue.transmit(&mut unsent), 0, "nothing is taken while the link is down");
    let folder = std::mem::replace(&mut nic.folder, tempfile::tempdir().expect("a folder"));
    let nic = Nic::start_in(folder, &["--mode", "loopback"]);
    wait_until("the client is back", || client.maintain() == Link::Up);
    assert_eq!((client.mac(), client.reconnects()), (mac, 1));
    assert_eq!(kept.to_vec(), contents, "a buffer of the time before");
    send(queue, kept);
    assert_eq!(receive(queue).to_vec(), contents);
    assert_eq!(queue.faults().copied, 1);
    drop(nic);
}

fn frame_of(contents: &[u8], queue: &mut Queue) -> Buffer {
    let mut frame = queue.allocate(contents.len()).expect("buffers are left");
    frame.fill(contents);
    frame
}

#[test]
fn a_socket_in_a_folder_that_is_not_there_is_refused_and_none_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("misspelt/nic.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_conic")).args(["nic", "--socket"]).arg(&socket).output();
    let output = output.expect("conic runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("there is no folder") && text.contains("--socket"), "{text}");
    assert!(!folder.path().join("misspelt").exists());
}

#[test]
fn refusals_say_why() {
    let nic = Nic::start(&[]);
    let refused = |options: &Options| match Client::attach(&nic.socket(), options) {
        Err(AttachError::Refused(refused)) => (refused.reason, refused.text),
        other => panic!("{other:?}"),
    };
    let network = Options { network: Name::new("nowhere").expect("a name"), ..small(1) };
    assert_eq!(refused(&network), (Reason::Network, "there is no network nowhere; there are default".to_owned()));
    assert_eq!(refused(&Options { mac: Some([1, 0, 0, 0, 0, 0]), ..small(1) }).0, Reason::Mac);
    let many = Options { geometry: Geometry { queues: 1000, ..small(1).geometry }, ..small(1) };
    assert_eq!(refused(&many).0, Reason::Quota);
    let (first, _queues) = attach(&nic.socket(), &small(1));
    let same = Options { mac: Some(first.mac()), ..small(1) };
    assert!(refused(&same).1.contains("another client's"));
    let nowhere =
        Client::attach(Path::new("/nonexistent/nic.sock"), &small(1)).expect_err("nobody is there").to_string();
    assert!(nowhere.contains("conic nic --socket"), "{nowhere}");
}

#[test]
fn the_first_packet_is_there_soon_after_attaching() {
    let nic = Nic::start(&["--mode", "loopback"]);
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = clock::now();
        let (_client, mut queues) = attach(&nic.socket(), &small(1));
        let first = frame(&mut queues[0], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 64, 1);
        send(&mut queues[0], first);
        receive(&mut queues[0]);
        best = best.min(Duration::from_nanos(clock::now().since(begun).nanoseconds()));
    }
    // 5 ms are the goal; a debug build on a busy machine is given more.
    assert!(best < Duration::from_millis(100), "{best:?} from attaching to the first packet");
}

#[test]
fn raw_calls_and_buffers_are_the_same_queue() {
    let nic = Nic::start(&["--mode", "loopback"]);
    let (_client, mut queues) = attach(&nic.socket(), &small(1));
    let queue = &mut queues[0];
    let mut at = [conic_fabric::Address(0)];
    assert_eq!(queue.buf_alloc(60, &mut at), 1);
    conic_fabric::Core::write_bytes(queue.core(), at[0], &[9; 60]);
    wait_until("it is sent", || queue.tx_burst(&[conic_interface::burst::Packet::new(at[0], 60)]) == 1);
    assert_eq!(receive(queue).to_vec(), [9; 60]);
}

#[test]
fn sides_that_sleep_wake_each_other() {
    for mode in ["adaptive", "interrupt", "spin"] {
        let nic = Nic::start(&["--wait", mode]);
        let (a, mut of_a) = attach(&nic.socket(), &small(2));
        let (b, mut of_b) = attach(&nic.socket(), &small(1));
        let mut incoming = Vec::new();
        for round in 0..60 {
            if round % 3 == 0 {
                // Long enough for everybody to have gone to sleep.
                std::thread::sleep(Duration::from_millis(2));
            }
            let there = frame(&mut of_a[1], a.mac(), b.mac(), 60 + 40 * (round as usize % 5), round);
            let expected = there.to_vec();
            send(&mut of_a[1], there);
            assert!(of_b[0].wait(Duration::from_secs(20)), "{mode}: nobody rang in round {round}");
            assert_eq!(of_b[0].receive(&mut incoming, 4), 1, "{mode}");
            assert_eq!(incoming.remove(0).to_vec(), expected);
        }
        assert!(!of_b[0].wait(Duration::from_millis(1)), "{mode}: nothing was sent");
    }
}

#[test]
fn a_queue_that_waits_finds_its_daemon_dead() {
    let mut nic = Nic::start(&[]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    nic.kill();
    let begun = clock::now();
    assert!(!queues[0].wait(Duration::from_millis(200)));
    assert_eq!(client.link(), Link::Down);
    assert!(clock::now().since(begun).seconds() < 10.0);
}

/// Shells start programs with 1024 descriptors, which some hundred clients with a few queues each would use up.
#[test]
fn a_daemon_takes_as_many_descriptors_as_it_may_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -S -n 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_conic"), "nic", "--socket"]);
    let child = shell.arg(&socket).stdout(Stdio::null()).spawn().expect("a shell");
    let nic = Nic { child, metrics: String::new(), folder };
    wait_until("the NIC listens", || Client::attach(&socket, &small(1)).is_ok());
    let clients: Vec<_> = (0..20).map(|_| attach(&socket, &small(2))).collect();
    assert!(nic.descriptors() > 60, "{} descriptors of {} clients", nic.descriptors(), clients.len());
}

#[test]
fn idle_clients_cost_the_daemon_next_to_nothing() {
    let nic = Nic::start(&[]);
    let clients: Vec<_> = (0..64).map(|_| attach(&nic.socket(), &small(1))).collect();
    // The queues go to rest, at the latest when a busy machine has let the daemon run.
    let mut quiet = false;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        let before = nic.processor_time();
        std::thread::sleep(Duration::from_millis(500));
        let ran = nic.processor_time() - before;
        quiet = ran < Duration::from_millis(5);
        if quiet {
            break;
        }
    }
    assert!(quiet, "64 idle clients keep the daemon busy");
    drop(clients);
}

/// The other end of the NIC's memif, connected.
fn memif_peer(socket: &Path) -> Box<dyn Port> {
    let spec: PortSpec = format!("memif:{},role=client", socket.display()).parse().expect("a port");
    let mut peer = spec.open().expect("a memif").remove(0);
    wait_until("they are together", || {
        let _ = peer.receive(clock::now(), &mut [0; MAX_FRAME]).expect("it goes on");
        peer.is_up()
    });
    peer
}

#[test]
fn a_daemon_with_an_idle_peer_sleeps_and_is_woken_by_its_first_frame() {
    let folder = tempfile::tempdir().expect("a folder");
    let memif = folder.path().join("memif.sock");
    let nic = Nic::start(&["--port", &format!("memif:{},role=server", memif.display())]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let mut peer = memif_peer(&memif);
    let mut quiet = false;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        let before = nic.processor_time();
        std::thread::sleep(Duration::from_millis(500));
        quiet = nic.processor_time() - before < Duration::from_millis(25);
        if quiet {
            break;
        }
    }
    assert!(quiet, "an idle memif keeps the daemon awake");
    for round in 0..5 {
        std::thread::sleep(Duration::from_millis(20));
        let mut sent = vec![round; 100];
        sent[..12].copy_from_slice(&[client.mac(), [2, 0, 0, 0, 0, 9]].concat());
        wait_until("it is sent", || peer.transmit(clock::now(), &sent).expect("it goes on") == Transmit::Accepted);
        peer.flush(clock::now()).expect("it goes on");
        assert_eq!(receive(&mut queues[0]).to_vec(), sent, "round {round}");
    }
    assert!(matches!(peer.receive(clock::now(), &mut [0; MAX_FRAME]), Ok(Receive::None | Receive::Frame { .. })));
}

#[test]
fn an_operator_lists_limits_and_detaches() {
    let nic = Nic::start(&[]);
    let socket = nic.socket();
    let ctl = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.arg("ctl").arg("--socket").arg(&socket).args(arguments.split_whitespace());
        command.output().expect("conic runs")
    };
    let (a, mut of_a) = attach(&socket, &small(2));
    let (b, _of_b) = attach(&socket, &small(1));
    let sent = frame(&mut of_a[0], a.mac(), b.mac(), 100, 1);
    send(&mut of_a[0], sent);
    let list = || -> serde_json::Value {
        let output = ctl("list --json");
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    };
    wait_until("the frame is counted", || {
        list()["clients"].as_array().is_some_and(|all| all.iter().any(|one| one["counters"]["received_frames"] == 1))
    });
    let session = a.attached().session;
    let found = list()["clients"]
        .as_array()
        .expect("clients")
        .iter()
        .any(|one| one["session"] == session && one["queues"] == 2);
    assert!(found, "{}", list());
    let table = String::from_utf8(ctl("list").stdout).expect("text");
    assert!(table.contains("network default (bridge), 2 clients"), "{table}");
    assert!(ctl(&format!("limit {session} --rate 1000000")).status.success());
    assert!(String::from_utf8_lossy(&ctl("detach 999").stderr).contains("no client 999"));
    assert!(ctl(&format!("detach {session}")).status.success());
    wait_until("it learns that it is detached", || {
        a.maintain();
        a.detached().is_some()
    });
    assert_eq!(a.detached().map(|refused| refused.reason), Some(Reason::Operator));
}

#[test]
fn an_operator_connects_clients_and_pins_flows() {
    let nic = Nic::start(&[]);
    let socket = nic.socket();
    let ctl = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.arg("ctl").arg("--socket").arg(&socket).args(arguments.split_whitespace());
        let output = command.output().expect("conic runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), text)
    };
    let (a, mut of_a) = attach(&socket, &small(1));
    let (b, mut of_b) = attach(&socket, &small(1));
    let (c, mut of_c) = attach(&socket, &small(4));
    let [one, two, three] = [&a, &b, &c].map(|client| client.attached().session);
    assert_eq!(ctl(&format!("connect client:{one} client:{two}")), (true, String::new()));
    // To the third, by its address, and it comes to the second.
    let sent = frame(&mut of_a[0], a.mac(), c.mac(), 100, 1);
    let expected = sent.to_vec();
    send(&mut of_a[0], sent);
    assert_eq!(receive(&mut of_b[0]).to_vec(), expected);
    assert!(ctl("list").1.contains(&format!("connected client:{one} to client:{two}")), "{}", ctl("list").1);
    assert_eq!(ctl(&format!("disconnect client:{two}")), (true, String::new()));
    assert!(ctl(&format!("disconnect client:{two}")).1.contains("not connected"));
    assert!(ctl(&format!("connect client:{one} port:0")).1.contains("no port:0"), "it has no ports");
    assert!(ctl(&format!("connect client:{one} station:0")).1.contains("client:NUMBER or port:NUMBER"));
    let from_a = a.mac().map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(ctl(&format!("pin {three} --queue 3 --match source-mac={from_a}")), (true, String::new()));
    assert!(ctl(&format!("pin {three} --queue 4 --match vlan=7")).1.contains("4 queues"));
    assert!(ctl(&format!("pin {three} --match port=7")).1.contains("destination-port"));
    let pinned = format!("pinned source-mac={from_a} to client {three}, queue 3");
    assert!(ctl("list").1.contains(&pinned), "{}", ctl("list").1);
    let sent = frame(&mut of_a[0], a.mac(), b.mac(), 100, 2);
    let expected = sent.to_vec();
    send(&mut of_a[0], sent);
    assert_eq!(receive(&mut of_c[3]).to_vec(), expected);
    assert_eq!(ctl(&format!("unpin {three}")), (true, String::new()));
    assert!(!ctl("list").1.contains("pinned"));
}

/// What lies in a capture file, once so many frames do.
fn captured(file: &Path, count: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    wait_until("the file is written out", || {
        found.clear();
        let Ok(mut reader) = conic_port::CaptureReader::open(file) else { return false };
        while let Ok(Some(_)) = reader.next_record() {
            found.push(reader.data().to_vec());
        }
        found.len() == count
    });
    found
}

#[test]
fn an_operator_has_a_clients_frames_copied_to_a_file() {
    let nic = Nic::start(&[]);
    let (a, mut of_a) = attach(&nic.socket(), &small(1));
    let (b, mut of_b) = attach(&nic.socket(), &small(1));
    let file = nic.folder.path().join("a.pcapng");
    let mirror = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        let end = format!("client:{}", a.attached().session);
        command.args(["ctl", "--socket"]).arg(nic.socket()).args(["mirror", &end]).args(more);
        let output = command.output().expect("conic runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let path = file.to_str().expect("text");
    assert_eq!(mirror(&[path, "--limit", "650"]), (true, String::new()));
    let mut expected = Vec::new();
    for number in 0..10 {
        let sent = frame(&mut of_a[0], a.mac(), b.mac(), 100 + number, number as u64);
        expected.push(sent.to_vec());
        send(&mut of_a[0], sent);
        receive(&mut of_b[0]);
    }
    assert!(mirror(&[path]).1.contains("is there already"));
    assert_eq!(mirror(&[]), (true, String::new()));
    assert!(mirror(&[]).1.contains("not mirrored"));
    // 100 to 105 bytes are 615; the next does not fit, and nothing behind it is let through.
    assert_eq!(captured(&file, 6), expected[..6]);
}

#[test]
fn flags_say_whose_frames_are_copied_from_the_start() {
    let said = |mirrors: &[&str], more: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["nic", "--port", "capture:record=gone.pcap", more]);
        for mirror in mirrors {
            command.args(["--mirror", mirror]);
        }
        let output = command.output().expect("conic runs");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let both = ["port:0,/tmp/port.pcapng", "client:web,/tmp/web.pcap"];
    assert!(said(&both, "--check").starts_with("sound: "));
    let text = said(&both, "--print-config");
    let config = conic_nicd::config::Config::read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(config.networks[0].mirrors, both.map(|mirror| mirror.parse().expect("a mirror")));
    for (mirror, reason) in [
        ("port:1,/tmp/port.pcap", "no port:1"),
        ("port:0,port.pcap", "whole path"),
        ("port:0,/tmp/port.txt", ".pcap or .pcapng"),
        ("port:0", "an end and a file"),
    ] {
        let text = said(&[mirror], "--check");
        assert!(text.contains(reason), "{mirror}: {text}");
    }
}

#[test]
fn a_loopback_networks_frames_are_copied_to_a_file_too() {
    let nic = Nic::start(&["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(2));
    let (_other, mut of_other) = attach(&nic.socket(), &small(1));
    let file = nic.folder.path().join("a.pcap");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    let end = format!("client:{}", client.attached().session);
    command.args(["ctl", "--socket"]).arg(nic.socket()).args(["mirror", &end]).arg(&file);
    assert!(command.status().expect("conic runs").success());
    let mut expected = Vec::new();
    for number in 0..10 {
        let queue = &mut queues[number % 2];
        let sent = frame(queue, client.mac(), client.mac(), 60 + 700 * number, number as u64);
        expected.push(sent.to_vec());
        send(queue, sent);
        receive(queue);
        let not_copied = frame(&mut of_other[0], client.mac(), client.mac(), 90, 99);
        send(&mut of_other[0], not_copied);
        receive(&mut of_other[0]);
    }
    let text = metrics_of(&nic);
    assert!(
        text.contains(&format!("conic_mirror_total{{network=\"default\",end=\"{end}\",what=\"frames\"}} 10\n")),
        "{text}"
    );
    drop((client, queues));
    assert_eq!(captured(&file, 10), expected);
}

#[test]
fn flags_connect_and_pin_and_metrics_say_so() {
    let nic = Nic::start(&[
        "--connect",
        "client:left,client:right",
        "--connect",
        "client:test,client:nobody",
        "--pin",
        "web,queue=0,destination-mac=02:00:00:00:00:09",
    ]);
    let named = |name: &str| Options { name: Name::new(name).expect("a name"), ..small(1) };
    let (left, mut of_left) = attach(&nic.socket(), &named("left"));
    let (right, mut of_right) = attach(&nic.socket(), &named("right"));
    let (web, mut of_web) = attach(&nic.socket(), &named("web"));
    let (other, mut of_other) = attach(&nic.socket(), &named("other"));
    let (_alone, _queues) = attach(&nic.socket(), &small(1));
    // Over the wire whatever it is addressed to, and by the pin whatever it is addressed to.
    let over = frame(&mut of_left[0], left.mac(), other.mac(), 100, 1);
    let by_pin = frame(&mut of_other[0], other.mac(), [2, 0, 0, 0, 0, 9], 100, 2);
    let expected = [over.to_vec(), by_pin.to_vec()];
    send(&mut of_left[0], over);
    send(&mut of_other[0], by_pin);
    assert_eq!([receive(&mut of_right[0]).to_vec(), receive(&mut of_web[0]).to_vec()], expected);
    let text = metrics_of(&nic);
    let ends = [left, right].map(|client| format!("client:{}", client.attached().session));
    let whole = format!("conic_circuit{{network=\"default\",near=\"{}\",far=\"{}\"}} 1\n", ends[0], ends[1]);
    assert_eq!(text.matches(&whole).count(), 1, "{text}");
    assert!(text.contains(",far=\"\"} 0\n") && text.matches("conic_circuit{").count() == 2, "{text}");
    let pins = format!("conic_pinned_flows{{network=\"default\",session=\"{}\"}} 1\n", web.attached().session);
    assert!(text.contains(&pins) && text.matches("conic_pinned_flows{").count() == 5, "{text}");
}

/// A log that takes nothing more, as a pipe that nobody reads, and who could read it.
fn full_log() -> (Stdio, UnixStream) {
    use std::io::Write;
    let (mut log, reader) = UnixStream::pair().expect("two ends");
    log.set_nonblocking(true).expect("a socket can be that");
    while log.write(&[b'\n'; 4096]).is_ok() {}
    while log.write(b"\n").is_ok() {}
    log.set_nonblocking(false).expect("a socket can be that");
    (OwnedFd::from(log).into(), reader)
}

#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    use std::io::{BufRead, BufReader};
    let (log, reader) = full_log();
    let program = Command::new(env!("CARGO_BIN_EXE_conic"));
    let nic = Nic::start_into(log, program, tempfile::tempdir().expect("a folder"), &[]);
    let clients = [1, 2].map(|queues| attach(&nic.socket(), &small(queues)));
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    let listed = command.args(["ctl", "list", "--socket"]).arg(nic.socket()).output().expect("conic runs");
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("2 clients"), "{text}");
    // Nothing of it is lost to who reads it at last.
    reader.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has one");
    let mut lines = BufReader::new(reader).lines().map_while(Result::ok).filter(|line| !line.is_empty());
    assert!(lines.next().is_some_and(|line| line.starts_with("listening")));
    for (client, _) in &clients {
        let expected = format!("client {} attached", client.attached().session);
        assert!(lines.any(|line| line.starts_with(&expected)), "{expected}");
    }
}

#[test]
fn a_nic_ends_when_it_is_told_to_though_nobody_reads_its_log() {
    let (log, _reader) = full_log();
    let program = Command::new(env!("CARGO_BIN_EXE_conic"));
    let mut nic = Nic::start_into(log, program, tempfile::tempdir().expect("a folder"), &[]);
    let process = rustix::process::Pid::from_child(&nic.child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    wait_until("it has ended", || {
        nic.child.try_wait().expect("it can be asked").is_some_and(|status| status.success())
    });
}

#[test]
fn metrics_are_text_over_http() {
    use std::io::{Read, Write};
    let nic = Nic::start(&[]);
    let address = nic.metrics.clone();
    let (client, _queues) = attach(&nic.socket(), &small(1));
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let answer = get("/metrics");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let line = format!("session=\"{}\"", client.attached().session);
    assert!(answer.contains(&line) && answer.contains("conic_clients{network=\"default\"} 1"), "{answer}");
    assert!(get("/else").starts_with("HTTP/1.1 404"));
    // A request comes in as many pieces as TCP likes.
    let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
    stream.write_all(b"GET /met").expect("it reads");
    assert!(get("/metrics").starts_with("HTTP/1.1 200"), "meanwhile others are answered");
    stream.write_all(b"rics HTTP/1.1\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // One that says nothing does not hold the daemon up.
    let _silent = std::net::TcpStream::connect(&address).expect("it listens");
    assert!(get("/metrics").starts_with("HTTP/1.1 200"));
}

#[test]
fn top_shows_who_sends_and_how_much() {
    let nic = Nic::start(&["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let top = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["top", "--interval", "0.3", "--socket"]).arg(nic.socket()).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut looking = top(&["--once", "--json"]).spawn().expect("conic starts");
    let mut number = 0;
    wait_until("it has looked twice", || {
        let next = frame(&mut queues[0], client.mac(), client.mac(), 100, number);
        send(&mut queues[0], next);
        receive(&mut queues[0]);
        number += 1;
        looking.try_wait().expect("it can be asked").is_some()
    });
    let output = looking.wait_with_output().expect("it ended");
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let shown = &view["clients"][0];
    let mac: Vec<String> = client.mac().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((shown["name"].as_str(), shown["mac"].as_str()), (Some("test"), Some(mac.join(":").as_str())));
    assert!(shown["sent"]["frames"].as_f64() > Some(0.0) && shown["received"]["frames"].as_f64() > Some(0.0), "{view}");
    assert!(view["networks"][0]["core"].as_f64() > Some(0.0) && view["process"].as_u64() > Some(0), "{view}");

    let screen = top(&["--once"]).output().expect("it runs");
    let screen = String::from_utf8_lossy(&screen.stdout);
    assert!(screen.starts_with("conic top   ") && screen.contains(&mac.join(":")), "{screen}");
    let refused = top(&[]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--once"), "{refused:?}");
}

#[test]
fn clients_outside_the_process_namespace_of_the_nic_are_served_and_their_end_is_seen() {
    let apart = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]);
        command
    };
    if !apart().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        skipped("no process namespace can be made (unshare --pid)");
        return;
    }
    let mut program = apart();
    program.arg(env!("CARGO_BIN_EXE_conic"));
    let nic = Nic::start_as(program, tempfile::tempdir().expect("a folder"), &["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let frame = frame(&mut queues[0], [2; 6], [2; 6], 64, 7);
    queues[0].transmit(&mut vec![frame]);
    let mut incoming = Vec::new();
    wait_until("the frame comes back", || queues[0].receive(&mut incoming, 1) == 1);
    let clients =
        || metrics_of(&nic).lines().filter(|line| line.starts_with("conic_clients")).map(str::to_owned).collect();
    let there: Vec<String> = clients();
    assert!(there.iter().any(|line| line.ends_with(" 1")), "{there:?}");
    drop((incoming, queues, client));
    wait_until("nobody is there", || {
        let left: Vec<String> = clients();
        left.iter().all(|line| line.ends_with(" 0"))
    });
}

/// Takes from a program what a container takes: it has users, mounts and processes of its own, no capability and no way to one, no device,
/// and a root that it cannot write, but for a folder.
const CONFINE: &str = r#"mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro / && mount -t tmpfs none /dev &&
    exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@""#;

/// What runs the program, with its arguments, that is put behind it so; or says why the test is skipped.
fn confined(folder: &Path) -> Option<Command> {
    let confined = || {
        let mut command = Command::new("unshare");
        command.args(["-Urpm", "--fork", "--kill-child", "sh", "-c", CONFINE]).arg(folder);
        command
    };
    if confined().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Some(confined());
    }
    skipped("no namespaces can be made (unshare -Urpm), or there is no setpriv");
    None
}

/// Where the client finds the socket that plays the inside of a container.
const INSIDE: &str = "CONIC_TEST_SOCKET_SEEN_FROM_INSIDE";

#[test]
fn a_client_in_a_container_needs_the_socket_and_nothing_else() {
    if let Some(socket) = std::env::var_os(INSIDE) {
        assert!(File::create("/conic-test").is_err() && !Path::new("/dev/null").exists(), "it is not confined");
        let (client, mut queues) = attach(socket.as_ref(), &small(1));
        for number in 0..1000 {
            let next = frame(&mut queues[0], client.mac(), client.mac(), 60 + number as usize, number);
            let sent = next.to_vec();
            send(&mut queues[0], next);
            assert_eq!(receive(&mut queues[0]).to_vec(), sent);
        }
        return;
    }
    let nic = Nic::start(&["--mode", "loopback"]);
    let Some(mut program) = confined(nic.folder.path()) else { return };
    program.arg(std::env::current_exe().expect("this program"));
    program.args(["--exact", "a_client_in_a_container_needs_the_socket_and_nothing_else"]);
    let output = program.env(INSIDE, nic.socket()).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_nic_in_a_container_serves_clients_and_a_memif_peer_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut program) = confined(folder.path()) else { return };
    program.arg(env!("CARGO_BIN_EXE_conic"));
    let socket = folder.path().join("memif.sock");
    let port = format!("memif:{},role=server", socket.display());
    let nic = Nic::start_as(program, folder, &["--port", &port]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let (mut peer, mut got) = (memif_peer(&socket), vec![0; MAX_FRAME]);
    let far = [2, 0, 0, 0, 0, 0x77];
    let next = frame(&mut queues[0], client.mac(), far, 300, 7);
    let mut sent = next.to_vec();
    send(&mut queues[0], next);
    wait_until("the frame arrives", || {
        let come = peer.receive(clock::now(), &mut got).expect("memif does not fail");
        matches!(come, Receive::Frame { length: 300, .. }) && got[..300] == sent[..]
    });
    sent[..6].copy_from_slice(&client.mac());
    sent[6..12].copy_from_slice(&far);
    assert_eq!(peer.transmit(clock::now(), &sent).expect("memif does not fail"), Transmit::Accepted);
    peer.flush(clock::now()).expect("memif does not fail");
    assert_eq!(receive(&mut queues[0]).to_vec(), sent);
}
