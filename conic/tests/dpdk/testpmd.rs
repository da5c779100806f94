//! DPDK's driver, the daemon and testpmd, for the tests: started, spoken to, and driven with frames that are compared.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use conic_check::skipped;
use conic_client::{Client, Name, Options, Queue};
use conic_fabric::Time;
use conic_interface::ccnic::Geometry;
use conic_native::{clock, yield_core};
use tempfile::TempDir;

/// The device's address.
pub const DEVICE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// Programs of DPDK poll two cores: one test at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver, built once for these tests; none, with the reason on stderr, where it cannot be.
pub fn driver() -> Option<PathBuf> {
    static DRIVER: OnceLock<Option<PathBuf>> = OnceLock::new();
    DRIVER.get_or_init(build_driver).clone()
}

fn build_driver() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk");
    let mut build = Command::new(root.join("bindings/dpdk/build"));
    build.arg(&folder).arg(if cfg!(debug_assertions) { "dev" } else { "release" });
    let output = build.output().expect("the build runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    if let Some(why) = said.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        skipped(why);
        return None;
    }
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        skipped("DPDK's driver: no dpdk-testpmd here");
        return None;
    }
    // It checks all of the path.
    let is_open = |folder: &&Path| folder.metadata().expect("a folder").permissions().mode() & 0o002 != 0;
    if let Some(open) = folder.ancestors().find(is_open) {
        skipped(&format!("DPDK's driver: DPDK loads none from below {}, which everybody may write", open.display()));
        return None;
    }
    Some(folder.join("librte_net_conic.so"))
}

/// A program of these tests in C, built.
pub fn program(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dpdk").join(name).with_extension("c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk");
    let (program, headers) = (folder.join(name), folder.join("headers"));
    // With what the driver itself is built with: its text may be part of the program.
    let build = "cc -O2 -Wall -Wextra -Werror -DALLOW_INTERNAL_API -DALLOW_EXPERIMENTAL_API \
                 -isystem \"$3\" $(pkg-config --cflags libdpdk) \"$1\" -o \"$2\" $(pkg-config --libs libdpdk)";
    let files = [&source, &program, &headers];
    let output = Command::new("sh").args(["-c", build, "sh"]).args(files).output().expect("sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A process that is killed when it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may be dead already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn daemon(folder: &Path, arguments: &[&str]) -> Running {
    let socket = folder.join("nic.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.arg("nic").arg("--socket").arg(&socket).args(arguments).stdout(Stdio::null());
    let nic = Running(command.spawn().expect("conic starts"));
    wait_until("the NIC listens", || Client::attach(&socket, &options()).is_ok());
    nic
}

pub fn options() -> Options {
    let geometry = Geometry { queues: 1, descriptors: 256, buffers: [1024, 256, 16], object_bytes: 0 };
    Options { geometry, name: Name::new("test").expect("a name"), ..Options::default() }
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = clock::now();
    while !done() {
        assert!(clock::now().since(begun).seconds() < 40.0, "waited too long: {what}");
        yield_core();
    }
}

/// testpmd with one device; it ends when it is told so.
pub struct Testpmd {
    process: Running,
    commands: ChildStdin,
    log: PathBuf,
}

impl Testpmd {
    pub fn start(driver: &Path, folder: &Path, eal: &[&str], more: &str, arguments: &[&str]) -> Testpmd {
        let log = folder.join("testpmd.log");
        let written = std::fs::File::create(&log).expect("a file");
        let mac = DEVICE.map(|byte| format!("{byte:02x}")).join(":");
        let device = format!("--vdev=net_conic0,path={},mac={mac}{more}", folder.join("nic.sock").display());
        // Line by line: the log is read while it runs.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]);
        command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256", "-l", "0,1"]);
        command.arg(format!("--file-prefix=conic{}", folder.file_name().expect("a name").to_string_lossy()));
        command.arg("-d").arg(driver).arg(device).args(eal).arg("--").arg("-i").arg("--total-num-mbufs=2048");
        command.args(arguments).stdin(Stdio::piped());
        command.stdout(written.try_clone().expect("a file")).stderr(written);
        let mut process = Running(command.spawn().expect("testpmd starts"));
        let commands = process.0.stdin.take().expect("it was asked for");
        Testpmd { process, commands, log }
    }

    pub fn say(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("testpmd listens");
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// How many descriptors it has.
    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.0.id());
        std::fs::read_dir(folder).expect("it runs").count()
    }

    /// Ends it, and gives its log.
    pub fn end(mut self) -> String {
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
pub fn counter(log: &str, name: &str) -> u64 {
    let found = log.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).next_back();
    let found = found.and_then(|value| value.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {log}"))
}

pub fn frame(from: [u8; 6], length: usize, number: u64) -> Vec<u8> {
    frame_to(DEVICE, from, length, number)
}

pub fn frame_to(to: [u8; 6], from: [u8; 6], length: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    for (index, byte) in bytes[14..].iter_mut().enumerate() {
        *byte = (number as usize * 31 + index * 7) as u8;
    }
    bytes
}

pub fn send(queue: &mut Queue, frame: &[u8]) {
    let mut outgoing = Vec::new();
    wait_until("there is room to send", || {
        outgoing.extend(queue.allocate(frame.len()).filter(|_| outgoing.is_empty()));
        outgoing.iter_mut().for_each(|buffer| buffer.fill(frame));
        queue.transmit(&mut outgoing) == 1
    });
}

/// Swaps the addresses of a frame, as testpmd's `macswap` does.
pub fn swapped(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

/// Sends frames, and checks that each comes back as `expected` makes it; `true` if all did within a time.
pub fn exchange(queue: &mut Queue, frames: &[Vec<u8>], expected: fn(&[u8]) -> Vec<u8>, patience: Time) -> bool {
    frames.iter().for_each(|frame| send(queue, frame));
    let (mut back, mut incoming) = (0, Vec::new());
    let until = clock::now() + patience;
    while back < frames.len() && clock::now() < until {
        queue.receive(&mut incoming, 32);
        for buffer in incoming.drain(..) {
            let sent = &frames[back];
            assert_eq!(buffer.to_vec(), expected(sent), "frame {back} of {} bytes", sent.len());
            back += 1;
        }
        yield_core();
    }
    back == frames.len()
}

/// Sends frames, and checks that all come back as `expected` makes them, in any order; `log` is shown where they do not.
pub fn exchange_in_any_order(
    queue: &mut Queue,
    frames: &[Vec<u8>],
    expected: fn(&[u8]) -> Vec<u8>,
    log: impl FnOnce() -> String,
) {
    frames.iter().for_each(|frame| send(queue, frame));
    let (mut back, begun) = (Vec::new(), clock::now());
    while back.len() < frames.len() && clock::now().since(begun).seconds() < 20.0 {
        back.extend(receive_for(queue, Time::from_nanoseconds(500_000)));
    }
    let mut expected: Vec<Vec<u8>> = frames.iter().map(|frame| expected(frame)).collect();
    expected.sort();
    back.sort();
    let lengths: Vec<usize> = frames.iter().map(Vec::len).collect();
    assert!(expected == back, "{} of {} came back as they should: {lengths:?} {}", back.len(), frames.len(), log());
}

/// Waits until a frame comes back as it should; what comes back otherwise is from before.
pub fn wait_for_echo(queue: &mut Queue, first: &[u8], expected: fn(&[u8]) -> Vec<u8>, testpmd: &Testpmd) {
    let begun = clock::now();
    let wanted = expected(first);
    let mut found = false;
    while !found {
        assert!(clock::now().since(begun).seconds() < 40.0, "no echo: {}", testpmd.log());
        send(queue, first);
        found = receive_for(queue, Time::from_nanoseconds(200_000_000)).contains(&wanted);
    }
    // Those that come late.
    receive_for(queue, Time::from_nanoseconds(200_000_000));
}

/// What comes within a time.
pub fn receive_for(queue: &mut Queue, patience: Time) -> Vec<Vec<u8>> {
    let (mut all, mut incoming) = (Vec::new(), Vec::new());
    let until = clock::now() + patience;
    while clock::now() < until {
        queue.receive(&mut incoming, 32);
        all.extend(incoming.drain(..).map(|buffer| buffer.to_vec()));
        yield_core();
    }
    all
}

pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}
