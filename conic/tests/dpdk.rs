//! DPDK's driver: stock testpmd on a daemon, traffic driven through it by a client and checked.
//!
//! Skipped, visibly, where DPDK or its drivers' headers cannot be had.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use conic_client::{Client, Name, Options, Queue};
use conic_fabric::Time;
use conic_interface::ccnic::Geometry;
use conic_native::{clock, yield_core};
use tempfile::TempDir;

/// The device's address.
const DEVICE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// The driver, built once for this test; none, with the reason on stderr, where it cannot be.
fn driver() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk");
    let mut build = Command::new(root.join("bindings/dpdk/build"));
    build.arg(&folder).arg(if cfg!(debug_assertions) { "dev" } else { "release" });
    let output = build.output().expect("the build runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    if let Some(skipped) = said.lines().find(|line| line.starts_with("skipped: ")) {
        eprintln!("{skipped}");
        return None;
    }
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        eprintln!("skipped: DPDK's driver: no dpdk-testpmd here");
        return None;
    }
    Some(folder.join("librte_net_conic.so"))
}

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may be dead already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn daemon(folder: &Path, arguments: &[&str]) -> Running {
    let socket = folder.join("nic.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.arg("nic").arg("--socket").arg(&socket).args(arguments).stdout(Stdio::null());
    let nic = Running(command.spawn().expect("conic starts"));
    wait_until("the NIC listens", || Client::attach(&socket, &options()).is_ok());
    nic
}

fn options() -> Options {
    let geometry = Geometry { queues: 1, descriptors: 256, buffers: [1024, 256, 16], object_bytes: 0 };
    Options { geometry, name: Name::new("test").expect("a name"), ..Options::default() }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = clock::now();
    while !done() {
        assert!(clock::now().since(begun).seconds() < 40.0, "waited too long: {what}");
        yield_core();
    }
}

/// testpmd with one device; it ends when it is told so.
struct Testpmd {
    process: Running,
    commands: ChildStdin,
    log: PathBuf,
}

impl Testpmd {
    fn start(driver: &Path, folder: &Path, eal: &[&str], more: &str, arguments: &[&str]) -> Testpmd {
        let log = folder.join("testpmd.log");
        let written = std::fs::File::create(&log).expect("a file");
        let mac = DEVICE.map(|byte| format!("{byte:02x}")).join(":");
        let device = format!("--vdev=net_conic0,path={},mac={mac}{more}", folder.join("nic.sock").display());
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256", "-l", "0,1"]);
        command.arg(format!("--file-prefix=conic{}", folder.file_name().expect("a name").to_string_lossy()));
        command.arg("-d").arg(driver).arg(device).args(eal).arg("--").arg("-i").arg("--total-num-mbufs=2048");
        command.args(arguments).stdin(Stdio::piped());
        command.stdout(written.try_clone().expect("a file")).stderr(written);
        let mut process = Running(command.spawn().expect("testpmd starts"));
        let commands = process.0.stdin.take().expect("it was asked for");
        Testpmd { process, commands, log }
    }

    fn say(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("testpmd listens");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// Ends it, and gives its log.
    fn end(mut self) -> String {
        self.say("stop");
        self.say("show port xstats 0");
        self.say("quit");
        let mut ended = None;
        wait_until("testpmd ends", || {
            ended = self.process.0.try_wait().expect("it can be asked");
            ended.is_some()
        });
        let log = self.log();
        assert!(ended.is_some_and(|status| status.success()), "{log}");
        log
    }
}

/// A counter of testpmd's log, where it stood last.
fn counter(log: &str, name: &str) -> u64 {
    let found = log.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).next_back();
    let found = found.and_then(|value| value.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {log}"))
}

fn frame(from: [u8; 6], length: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..6].copy_from_slice(&DEVICE);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    for (index, byte) in bytes[14..].iter_mut().enumerate() {
        *byte = (number as usize * 31 + index * 7) as u8;
    }
    bytes
}

fn send(queue: &mut Queue, frame: &[u8]) {
    let mut outgoing = Vec::new();
    wait_until("there is room to send", || {
        outgoing.extend(queue.allocate(frame.len()).filter(|_| outgoing.is_empty()));
        outgoing.iter_mut().for_each(|buffer| buffer.fill(frame));
        queue.transmit(&mut outgoing) == 1
    });
}

/// Sends frames to testpmd, which swaps their addresses, and checks what comes back; `true` if all did within a time.
fn exchange(queue: &mut Queue, own: [u8; 6], frames: &[Vec<u8>], patience: Time) -> bool {
    frames.iter().for_each(|frame| send(queue, frame));
    let (mut back, mut incoming) = (0, Vec::new());
    let until = clock::now() + patience;
    while back < frames.len() && clock::now() < until {
        queue.receive(&mut incoming, 32);
        for buffer in incoming.drain(..) {
            let mut expected = frames[back].clone();
            expected[..6].copy_from_slice(&own);
            expected[6..12].copy_from_slice(&DEVICE);
            assert_eq!(buffer.to_vec(), expected, "frame {back} of {} bytes", expected.len());
            back += 1;
        }
        yield_core();
    }
    back == frames.len()
}

/// Waits until testpmd sends back.
fn wait_for_echo(queue: &mut Queue, own: [u8; 6], testpmd: &Testpmd) {
    let first = vec![frame(own, 60, 0)];
    let begun = clock::now();
    // A frame that came too early was dropped; those that come late are taken here.
    while !exchange(queue, own, &first, Time::from_nanoseconds(300_000_000)) {
        assert!(clock::now().since(begun).seconds() < 40.0, "no echo: {}", testpmd.log());
    }
    let mut late = Vec::new();
    let until = clock::now() + Time::from_nanoseconds(200_000_000);
    while clock::now() < until {
        queue.receive(&mut late, 32);
        late.clear();
    }
}

/// Frames of all lengths, sent through testpmd in bursts of each size and compared.
fn echo_everything(driver: &Path, eal: &[&str], more: &str, direct: bool) {
    let folder = folder();
    let _nic = daemon(folder.path(), &[]);
    let (client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options()).expect("a NIC");
    let mut testpmd = Testpmd::start(driver, folder.path(), eal, more, &["--forward-mode=macswap"]);
    testpmd.say("start");
    wait_for_echo(&mut queues[0], client.mac(), &testpmd);
    let lengths: Vec<usize> = (60..=2048).step_by(37).chain([60, 64, 65, 128, 1514, 2048, 3000, 9000, 9600]).collect();
    for (round, burst) in [1, 7, 16].into_iter().enumerate() {
        for (number, some) in lengths.chunks(burst).enumerate() {
            let frames: Vec<Vec<u8>> = some
                .iter()
                .enumerate()
                .map(|(index, &length)| frame(client.mac(), length, (round * 10_000 + number * 100 + index) as u64))
                .collect();
            let patience = Time::from_nanoseconds(20_000_000_000);
            let all = exchange(&mut queues[0], client.mac(), &frames, patience);
            assert!(all, "frames of {some:?} bytes were lost: {}", testpmd.end());
        }
    }
    let log = testpmd.end();
    assert_eq!((counter(&log, "ring_faults"), counter(&log, "buffers_refused"), counter(&log, "rx_bad")), (0, 0, 0));
    let (in_place, copied) = (counter(&log, "rx_direct"), counter(&log, "rx_copied"));
    if direct {
        assert!(in_place > 100 && copied == 0, "{log}");
        assert!(counter(&log, "tx_direct") > 100, "{log}");
    } else {
        assert!(in_place == 0 && copied > 10 && counter(&log, "rx_attached") > 100, "{log}");
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn stock_testpmd_sends_back_what_it_gets_through_copies_and_in_place() {
    let Some(driver) = driver() else { return };
    echo_everything(&driver, &[], "", false);
    echo_everything(&driver, &["--mbuf-pool-ops-name=conic"], "", true);
    echo_everything(&driver, &[], ",zero-copy=1", true);
    goes_on_when_the_daemon_comes_back(&driver);
}

fn goes_on_when_the_daemon_comes_back(driver: &Path) {
    let folder = folder();
    let socket = folder.path().join("nic.sock");
    let nic = daemon(folder.path(), &[]);
    let eal = ["--mbuf-pool-ops-name=conic"];
    let mut testpmd = Testpmd::start(driver, folder.path(), &eal, "", &["--forward-mode=macswap"]);
    testpmd.say("start");
    let (client, mut queues) = Client::attach(&socket, &options()).expect("a NIC");
    wait_for_echo(&mut queues[0], client.mac(), &testpmd);
    drop((client, queues, nic));
    wait_until("testpmd hears that the daemon is gone", || testpmd.log().contains("the daemon is gone"));
    let _nic = daemon(folder.path(), &[]);
    wait_until("testpmd hears that it is back", || testpmd.log().contains("the daemon is back"));
    let (client, mut queues) = Client::attach(&socket, &options()).expect("a NIC");
    wait_for_echo(&mut queues[0], client.mac(), &testpmd);
    let frames: Vec<Vec<u8>> = (0..10).map(|index| frame(client.mac(), 60 + 200 * index, index as u64)).collect();
    assert!(exchange(&mut queues[0], client.mac(), &frames, Time::from_nanoseconds(20_000_000_000)));
    let log = testpmd.end();
    assert_eq!((counter(&log, "reconnects"), counter(&log, "link_downs")), (1, 1));
}
