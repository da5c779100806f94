//! DPDK's stock examples on the driver: l2fwd, l3fwd and l3fwd-power, unchanged, of the installed version's source.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use conic_check::skipped;
use conic_client::{Client, Options};
use conic_fabric::Time;
use conic_port::offload::checksum::{Verdict, verify};

use crate::modes::{packets, sent_on_to};
use crate::testpmd::{
    DEVICE, Running, alone, daemon, driver, exchange, folder, options, receive_for, send, wait_until,
};

/// Where l2fwd sends what comes from its first port to.
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Builds an example with its own Makefile; none, with the reason on stderr, where its source could not be had.
fn build(driver: &Path, name: &str) -> Option<PathBuf> {
    let folder = driver.parent().expect("a folder").join("headers/examples").join(name);
    if !folder.exists() {
        skipped(&format!("DPDK's {name}: its source is not there"));
        return None;
    }
    let output = Command::new("make").arg("-C").arg(&folder).arg("shared").output().expect("make runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(folder.join("build").join(format!("{name}-shared")))
}

/// Runs an example, which has one queue, on a device of so many, and checks what it sends back; of one that sleeps also after it has
/// fallen asleep.
fn forwards(name: &str, arguments: &[&str], expected: fn(&[u8]) -> Vec<u8>, lanes: usize, sleeps: bool) {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let Some(program) = build(&driver, name) else { return };
    let folder = folder();
    let socket = folder.path().join("nic.sock");
    let _nic = daemon(folder.path(), &[]);
    let with_mac = Options { mac: Some(CLIENT), ..options() };
    let (_client, mut queues) = Client::attach(&socket, &with_mac).expect("a NIC");
    let log = folder.path().join("log");
    let written = std::fs::File::create(&log).expect("a file");
    let device = DEVICE.map(|byte| format!("{byte:02x}")).join(":");
    let mut command = Command::new(program);
    command.args(["-l", "1", "--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256"]);
    command.arg("--mbuf-pool-ops-name=conic").arg("-d").arg(&driver);
    command.arg(format!("--file-prefix=conic-{name}"));
    command.arg(format!("--vdev=net_conic0,path={},mac={device},queues={lanes}", socket.display()));
    command.arg("--").args(arguments);
    command.current_dir(folder.path()).stdin(Stdio::null());
    command.stdout(written.try_clone().expect("a file")).stderr(written);
    let mut running = Running(command.spawn().expect("it starts"));
    let frames = packets(CLIENT, DEVICE);
    let said = || std::fs::read_to_string(&log).expect("a log");
    wait_until("the first frame comes back", || {
        assert!(running.0.try_wait().expect("it can be asked").is_none(), "{name} ended: {}", said());
        send(&mut queues[0], &frames[0]);
        receive_for(&mut queues[0], Time::from_nanoseconds(200_000_000)).contains(&expected(&frames[0]))
    });
    receive_for(&mut queues[0], Time::from_nanoseconds(200_000_000));
    // Flows that come by several queues are in any order: one frame after the other then.
    let at_once = if lanes == 1 { frames.len() } else { 1 };
    for _ in 0..50 {
        if sleeps {
            wait_until("it sleeps", || is_asleep(running.0.id()));
        }
        let mut bursts = frames.chunks(at_once);
        let all = bursts.all(|burst| exchange(&mut queues[0], burst, expected, Time::from_nanoseconds(20_000_000_000)));
        assert!(all, "{name}: frames were lost: {}", said());
    }
}

/// Whether a process' first thread, which forwards, is asleep, and does not only do so for a moment.
fn is_asleep(process: u32) -> bool {
    (0..5).all(|_| {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
        // Behind the name in parentheses.
        let asleep = status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
        std::thread::sleep(Duration::from_millis(2));
        asleep
    })
}

/// l2fwd's: to the station with the port's number.
fn bridged(frame: &[u8]) -> Vec<u8> {
    sent_on_to(CLIENT, frame)
}

/// l3fwd's: on to the next hop, with a hop less.
fn routed(frame: &[u8]) -> Vec<u8> {
    let mut sent = sent_on_to(CLIENT, frame);
    sent[22] -= 1;
    let checksum = u16::from_be_bytes([sent[24], sent[25]]);
    // The time to live is the high byte of its word: one's complement arithmetic, RFC 1624.
    let (sum, carry) = checksum.overflowing_add(0x100);
    sent[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    assert_eq!(verify(&sent).network, Verdict::Good);
    sent
}

#[test]
fn stock_l2fwd_forwards() {
    forwards("l2fwd", &["-p", "0x1"], bridged, 1, false);
}

#[test]
fn stock_l3fwd_routes() {
    let rules = folder();
    let (four, six) = (rules.path().join("four"), rules.path().join("six"));
    std::fs::write(&four, "R198.18.0.0/16 0\n").expect("a file");
    std::fs::write(&six, "R2001:0200:0:0:0:0:0:0/48 0\n").expect("a file");
    let destination = format!("--eth-dest=0,{}", CLIENT.map(|byte| format!("{byte:02x}")).join(":"));
    let (four, six) = (format!("--rule_ipv4={}", four.display()), format!("--rule_ipv6={}", six.display()));
    forwards("l3fwd", &["-p", "0x1", "-P", "--config=(0,0,1)", &destination, &four, &six], routed, 1, false);
}

/// It waits for the device's interrupts: of its one queue, or of all three that come to it.
#[test]
fn stock_l3fwd_power_sleeps_until_packets_come() {
    for lanes in [1, 3] {
        forwards("l3fwd-power", &["-p", "0x1", "-P", "--config=(0,0,1)", "--interrupt-only"], routed, lanes, true);
    }
}
