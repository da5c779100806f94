//! Stock `dpdk-testpmd` at the other end of a port.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use conic_check::skipped;
use conic_native::clock;
use conic_port::{MAX_FRAME, Port, Receive, Transmit};

/// A frame that says which it is.
pub fn frame(length: usize, number: u32) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|at| (at * 7) as u8 ^ number as u8).collect();
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame[20..24].copy_from_slice(&number.to_be_bytes());
    frame
}

/// `dpdk-testpmd` on one device, sending back what comes; killed when dropped.
pub struct Testpmd {
    child: Child,
    /// What DPDK writes there goes with it.
    _folder: tempfile::TempDir,
}

impl Testpmd {
    /// `None`, with a word about it, where it is not installed.
    pub fn start(device: &str, more: &[&str]) -> Option<Testpmd> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("dpdk-testpmd");
        command.args(["-l", "0,1", "--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256"]);
        command.args(["--vdev", device, "--", "--total-num-mbufs=8192", "--forward-mode=io", "--auto-start"]);
        command.args(["--no-lsc-interrupt", "--stats-period=60", "--no-flush-rx"]).args(more);
        command.env("XDG_RUNTIME_DIR", folder.path()).stdin(Stdio::piped());
        match command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
            Ok(mut child) => {
                let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
                let begun = lines.by_ref().map_while(Result::ok).any(|line| line.contains("packet forwarding"));
                if !begun {
                    skipped(&format!("dpdk-testpmd is there and does not start with {device}"));
                    let _ = child.wait();
                    return None;
                }
                std::thread::spawn(move || lines.for_each(drop));
                Some(Testpmd { child, _folder: folder })
            }
            Err(error) => {
                skipped(&format!("there is no dpdk-testpmd here ({error})"));
                None
            }
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends frames of these lengths, which testpmd sends back, and checks each.
pub fn exchange(port: &mut impl Port, lengths: &[usize], frames: u32) {
    let mut buffer = [0; MAX_FRAME];
    let begun = clock::now();
    let late = || {
        assert!(clock::now().since(begun).seconds() < 60.0, "testpmd does not answer");
    };
    while !port.is_up() {
        port.receive(clock::now(), &mut buffer).unwrap();
        late();
    }
    // DPDK posts its first buffers when it first looks: until then there is no room.
    let (mut sent, mut came) = (0, 0);
    while came < frames {
        let now = clock::now();
        let mut burst = 0;
        while sent < frames && sent - came < 64 && burst < 32 {
            let length = lengths[sent as usize % lengths.len()];
            match port.transmit(now, &frame(length, sent)).unwrap() {
                Transmit::Accepted => sent += 1,
                Transmit::Full => break,
                Transmit::Refused => panic!("{} {:?}", port.description(), port.counters()),
            }
            burst += 1;
        }
        port.flush(now).unwrap();
        while let Receive::Frame { length, .. } = port.receive(now, &mut buffer).unwrap() {
            let expected = frame(lengths[came as usize % lengths.len()], came);
            assert_eq!(buffer[..length], expected[..], "frame {came}: {}", port.description());
            came += 1;
        }
        late();
    }
    assert_eq!((port.counters().skipped(), port.counters().refused()), (0, 0));
}

/// Frames of one buffer, and of several.
pub const PLAIN: &[usize] = &[60, 64, 65, 128, 1000, 1514, 2048];
