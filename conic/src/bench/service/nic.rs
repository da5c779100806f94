//! The daemon that is measured, and clients of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use conic_client::{Buffer, Client, Options, Queue};
use conic_fabric::Time;
use conic_interface::ccnic::Geometry;
use conic_native::clock;
use serde_json::Value;

use crate::bench::failure::Failure;
use crate::bench::temporary::{Folder, Program};

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client, and its one queue.
pub struct Member {
    pub client: Client,
    pub queue: Queue,
}

/// A small client: 256 descriptors, 1024 small and 256 large buffers.
pub fn small() -> Options {
    let geometry = Geometry { queues: 1, descriptors: 256, buffers: [1024, 256, 16], object_bytes: 0 };
    Options { geometry, ..Options::default() }
}

/// A daemon that ends with this program, and what it says.
pub struct Nic {
    program: Program,
    said: Receiver<(Time, Value)>,
    folder: Folder,
    core: usize,
    wakeup_latency: Option<u32>,
}

impl Nic {
    /// Starts one with a bridge on a core, which asks that cores wake up within so many microseconds.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start(core: usize, wakeup_latency: Option<u32>) -> Result<Nic, Failure> {
        let folder = Folder::new("conic-service")?;
        let (program, said) = spawn(&folder.join("nic.sock"), core, wakeup_latency, &[])?;
        let nic = Nic { program, said, folder, core, wakeup_latency };
        nic.hear("listening", |_| true)?;
        Ok(nic)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("nic.sock")
    }

    /// # Errors
    ///
    /// The daemon refuses.
    pub fn attach(&self, options: Options) -> Result<Member, Failure> {
        let attached = Client::attach(&self.socket(), &options);
        let (client, mut queues) = attached.map_err(|error| Failure::failed(error.to_string()))?;
        Ok(Member { client, queue: queues.swap_remove(0) })
    }

    /// Waits until the daemon says that something happened, and gives when that was read.
    pub fn hear(&self, event: &str, is_it: impl Fn(&Value) -> bool) -> Result<(Time, Value), Failure> {
        loop {
            let heard = self.said.recv_timeout(PATIENCE);
            let (at, said) = heard.map_err(|_| Failure::failed(format!("the NIC did not say \"{event}\"")))?;
            if said["event"] == event && is_it(&said) {
                return Ok((at, said));
            }
        }
    }

    /// What the daemon has said and nobody has heard is forgotten.
    pub fn forget(&self) {
        while self.said.try_recv().is_ok() {}
    }

    /// How long its threads have run.
    pub fn processor_time(&self) -> Result<Duration, Failure> {
        let gone = |error: std::io::Error| Failure::failed(format!("reading the NIC's processor time: {error}"));
        let mut sum = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.program.id())).map_err(gone)? {
            let text = std::fs::read_to_string(task.map_err(gone)?.path().join("schedstat")).map_err(gone)?;
            sum += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(sum))
    }

    /// Starts a daemon that takes over from this one, and waits until this one has ended. Gives what the other said of that.
    ///
    /// # Errors
    ///
    /// It does not take over.
    pub fn upgrade(&mut self) -> Result<Value, Failure> {
        let (program, said) = spawn(&self.socket(), self.core, self.wakeup_latency, &["--adopt"])?;
        let mut elder = std::mem::replace(&mut self.program, program);
        self.said = said;
        let (_, adopted) = self.hear("adopted", |_| true)?;
        // It ends by itself, and may have done so.
        let ended = elder.wait().map_err(|error| Failure::failed(format!("the old NIC: {error}")))?;
        if !ended.success() {
            return Err(Failure::failed(format!("the old NIC ended with {ended}")));
        }
        Ok(adopted)
    }
}

type Said = Receiver<(Time, Value)>;

fn spawn(socket: &Path, core: usize, wakeup_latency: Option<u32>, more: &[&str]) -> Result<(Program, Said), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::failed(format!("{what}: {error}"));
    let program = std::env::current_exe().map_err(|error| failed("finding this program", error))?;
    let mut command = Command::new(program);
    command.args(["nic", "--json", "--core", &core.to_string(), "--socket"]).arg(socket).args(more);
    if let Some(microseconds) = wakeup_latency {
        command.args(["--wakeup-latency", &microseconds.to_string()]);
    }
    command.stdout(Stdio::piped());
    let mut program = Program::start(command, |error| failed("starting the NIC", error))?;
    let (tell, said) = channel();
    let output = program.pipes().stdout.take().ok_or_else(|| Failure::failed("the NIC has no output"))?;
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let at = clock::now();
            let Ok(value) = serde_json::from_str(&line) else { continue };
            if tell.send((at, value)).is_err() {
                return;
            }
        }
    });
    Ok((program, said))
}

/// A frame from one to another with a number in it, if a buffer is free.
pub fn frame(from: &mut Queue, source: [u8; 6], to: [u8; 6], number: u64) -> Option<Buffer> {
    let mut frame = from.allocate(64)?;
    let mut bytes = [0; 64];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&source);
    // IEEE 802: a local experiment.
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..22].copy_from_slice(&number.to_le_bytes());
    frame.fill(&bytes);
    Some(frame)
}

/// The number in a frame.
pub fn number(frame: &Buffer) -> u64 {
    let mut number = [0; 8];
    frame.read(14, &mut number);
    u64::from_le_bytes(number)
}
