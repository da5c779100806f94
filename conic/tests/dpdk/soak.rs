//! All sizes, in bursts of 1 to 1024, by queues of which unequal numbers receive and send.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use conic_client::{Client, Options};
use conic_interface::ccnic::Geometry;

use crate::modes::{CLIENT, packet};
use crate::testpmd::{
    DEVICE, Running, alone, daemon, driver, exchange_in_any_order, folder, frame, options, program, swapped, wait_until,
};

/// Frames under way at once: of those that lie in large buffers as many as a burst has, of others as many as have room.
const BURSTS: [usize; 11] = [1, 2, 7, 32, 33, 64, 255, 256, 512, 1000, 1024];
const JUMBO_BURST: usize = 48;
const JUMBO: usize = 2700;

/// `burst.c` on a device.
pub struct Burst {
    process: Running,
    log: PathBuf,
}

impl Burst {
    /// `more`: arguments of the device, beginning with a comma, and of the program.
    pub fn start(
        driver: &Path,
        folder: &Path,
        eal: &[&str],
        receivers: usize,
        senders: usize,
        more: [&str; 2],
    ) -> Burst {
        let log = folder.join("log");
        let written = std::fs::File::create(&log).expect("a file");
        let mac = DEVICE.map(|byte| format!("{byte:02x}")).join(":");
        let most = receivers.max(senders);
        let mut command = Command::new(program("burst"));
        command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "512", "-l", "1"]).args(eal);
        command.arg(format!("--file-prefix=conic{}", folder.file_name().expect("a name").to_string_lossy()));
        command.arg("-d").arg(driver);
        let sizes = "descriptors=2048,buffers=8192,jumbo=256";
        let socket = folder.join("nic.sock");
        command.arg(format!("--vdev=net_conic0,path={},mac={mac},queues={most},{sizes}{}", socket.display(), more[0]));
        command.arg("--").arg(receivers.to_string()).arg(senders.to_string());
        command.args(more[1].split_whitespace());
        command.stdin(Stdio::null()).stdout(written.try_clone().expect("a file")).stderr(written);
        let mut burst = Burst { process: Running(command.spawn().expect("it starts")), log };
        wait_until("the device is there", || burst.said().contains("ready\n"));
        burst
    }

    /// What it has said; it still runs.
    pub fn said(&mut self) -> String {
        let said = std::fs::read_to_string(&self.log).expect("a log");
        assert!(self.process.0.try_wait().expect("it can be asked").is_none(), "it ended: {said}");
        said
    }

    /// Ends it, and gives what it has said.
    pub fn end(mut self) -> String {
        self.said();
        let id = rustix::process::Pid::from_child(&self.process.0);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is told");
        let status = self.process.0.wait().expect("it ends");
        let said = std::fs::read_to_string(&self.log).expect("a log");
        assert!(status.success(), "{said}");
        said
    }
}

fn soak(driver: &Path, eal: &[&str], receivers: usize, senders: usize, more: &str) {
    let folder = folder();
    let _nic = daemon(folder.path(), &[]);
    let geometry = Geometry { queues: 1, descriptors: 2048, buffers: [4096, 4096, 256], object_bytes: 0 };
    let with_mac = Options { mac: Some(CLIENT), geometry, ..options() };
    let (_client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &with_mac).expect("a NIC");
    let mut burst = Burst::start(driver, folder.path(), eal, receivers, senders, [more, ""]);
    // What is of no flow comes to the first queue, which always receives.
    let one = |length: usize| {
        if receivers < senders { frame(CLIENT, length, length as u64) } else { packet(CLIENT, DEVICE, length, length) }
    };
    let mut small = (60..JUMBO).cycle().map(one);
    for count in BURSTS.into_iter().chain(BURSTS) {
        let frames: Vec<Vec<u8>> = small.by_ref().take(count).collect();
        exchange_in_any_order(&mut queues[0], &frames, swapped, || burst.said());
    }
    let jumbo: Vec<usize> = (JUMBO..=9600).collect();
    for some in jumbo.chunks(JUMBO_BURST) {
        let frames: Vec<Vec<u8>> = some.iter().map(|&length| one(length)).collect();
        exchange_in_any_order(&mut queues[0], &frames, swapped, || burst.said());
    }
    let said = burst.end();
    let largest = said.rsplit_once("largest burst: ").and_then(|(_, text)| text.trim().parse::<usize>().ok());
    assert!(largest.is_some_and(|largest| largest > 256), "{said}");
}

#[test]
fn all_sizes_come_back_in_bursts_of_all_sizes() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    soak(&driver, &["--mbuf-pool-ops-name=conic"], 1, 1, "");
    soak(&driver, &[], 1, 1, "");
    // Nothing is pointed to: long packets are copied into chains of mbufs.
    soak(&driver, &[], 1, 1, ",attach=65535");
}

#[test]
fn all_sizes_come_back_by_unequal_numbers_of_queues() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    soak(&driver, &["--mbuf-pool-ops-name=conic"], 3, 1, "");
    soak(&driver, &[], 4, 2, "");
    soak(&driver, &[], 2, 4, "");
}
