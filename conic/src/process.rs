//! A NIC in a process of its own: the region travels over a Unix socket, packets through the region alone.
//!
//! | step | parent, the host | child, the NIC |
//! |---|---|---|
//! | 1 | makes the region, starts the child with one end of a socket as its standard input | |
//! | 2 | sends the [`Agreement`] and, with it, the region's descriptor | checks both, maps the region |
//! | 3 | waits for `ready` | says `ready`, works |
//! | 4 | closes its sending end | says what it has done, ends |
//!
//! A child that dies is found by its socket, and so is a parent. What the child held is not lost: see
//! `conic_interface::ccnic::Host::recover`.

mod agreement;

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{Map, nic_queue};
use conic_native::{Flag, Memory, MemoryError, NativeCore, pin};

pub use agreement::Agreement;

/// How long a child may take to begin, and to end, before it is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a NIC's process cannot be had, or is no more.
#[derive(Debug)]
pub enum ProcessError {
    /// A system call failed.
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The region was refused.
    Memory(MemoryError),
    /// The other side said something that cannot be, or nothing more.
    Peer(String),
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessError::System { doing, error } => write!(f, "{doing}: {error}"),
            ProcessError::Memory(error) => error.fmt(f),
            ProcessError::Peer(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ProcessError {}

fn system(doing: &'static str) -> impl Fn(io::Error) -> ProcessError {
    move |error| ProcessError::System { doing, error }
}

/// What a NIC has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Packets received from the host and delivered to it again.
    pub turned_around: u64,
    /// Packets dropped for want of a buffer.
    pub dropped: u64,
    /// What the host did that it should not have.
    pub refused: u64,
}

impl Report {
    fn to_line(self) -> String {
        format!("done {} {} {}\n", self.turned_around, self.dropped, self.refused)
    }

    fn of_line(line: &str) -> Option<Report> {
        let mut words = line.strip_prefix("done ")?.split_ascii_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        Some(Report { turned_around: next()?, dropped: next()?, refused: next()? })
    }
}

/// A process that plays the NIC of a region: a loopback, each packet received as a wire would.
///
/// Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub struct NicProcess {
    child: Child,
    control: BufReader<UnixStream>,
}

impl NicProcess {
    /// Starts `command`, which must call [`serve`], as the NIC of a region that is ready for use, and waits until it is at
    /// work. `core` is the core that it binds itself to.
    ///
    /// # Errors
    ///
    /// The program cannot be started, refuses the region, or does not answer.
    pub fn start(
        mut command: Command,
        memory: &Memory,
        map: &Map,
        core: Option<usize>,
    ) -> Result<NicProcess, ProcessError> {
        let (ours, theirs) = UnixStream::pair().map_err(system("making a socket"))?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(system("setting a socket's time-out"))?;
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn();
        let child = child.map_err(system("starting the NIC's process"))?;
        // The command keeps its copy of the child's end until it is dropped, which would hide the child's death.
        drop(command);
        let mut process = NicProcess { child, control: BufReader::new(ours) };
        let agreement = Agreement { geometry: map.geometry, features: map.features, core };
        agreement.send(process.control.get_ref(), memory.descriptor())?;
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(ProcessError::Peer(format!("the NIC's process said '{other}'"))),
        }
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process in order and says what it has done. Every buffer that it held is back in the pool.
    ///
    /// # Errors
    ///
    /// It has died, or does not answer.
    pub fn stop(mut self) -> Result<Report, ProcessError> {
        let closed = self.control.get_ref().shutdown(Shutdown::Write);
        closed.map_err(system("closing the NIC's socket"))?;
        let line = self.line()?;
        let report = Report::of_line(&line);
        let report = report.ok_or_else(|| ProcessError::Peer(format!("the NIC's process said '{line}'")))?;
        let status = self.child.wait().map_err(system("waiting for the NIC's process"))?;
        if status.success() {
            Ok(report)
        } else {
            Err(ProcessError::Peer(format!("the NIC's process ended: {status}")))
        }
    }

    /// Kills the process where it stands (SIGKILL) and waits until it is gone: from then on it touches nothing.
    ///
    /// # Errors
    ///
    /// The system refuses; then the process may still run.
    pub fn kill(mut self) -> Result<(), ProcessError> {
        self.end().map_err(system("killing the NIC's process"))
    }

    fn end(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// The next line that the child says; its end, if it says none.
    fn line(&mut self) -> Result<String, ProcessError> {
        let mut line = String::new();
        self.control.read_line(&mut line).map_err(system("waiting for the NIC's process"))?;
        if line.is_empty() {
            let status = self.child.wait().map_err(system("waiting for the NIC's process"))?;
            return Err(ProcessError::Peer(format!("the NIC's process ended: {status}")));
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for NicProcess {
    fn drop(&mut self) {
        // It may be gone already; there is nobody left to tell of another failure.
        let _ = self.end();
    }
}

/// Plays the NIC, in the process that [`NicProcess::start`] has started, until the parent stops it or is gone.
///
/// # Errors
///
/// Standard input is no socket of such a parent, or what came over it is refused.
pub fn serve() -> Result<(), ProcessError> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(system("opening the standard input"))?;
    let control = UnixStream::from(input);
    let (agreement, descriptor) = Agreement::receive(&control)?;
    let map =
        Map::new(agreement.geometry, agreement.features).map_err(|error| ProcessError::Peer(error.to_string()))?;
    let memory = Memory::attach(descriptor, map.layout.bytes()).map_err(ProcessError::Memory)?;
    if let Some(core) = agreement.core {
        pin(core).map_err(system("binding the NIC to its core"))?;
    }
    let stop = Flag::new();
    let report = std::thread::scope(|scope| {
        // The loop below must not make a system call for each round, so another thread waits for the parent.
        scope.spawn(|| wait_for_end(&control, &stop));
        say(&control, "ready\n")?;
        let wires = (0..map.queues.len()).map(|queue| nic_queue(NativeCore::new(&memory), &map, queue));
        Ok(turn_around(wires.collect(), &stop))
    })?;
    say(&control, &report.to_line())
}

/// Blocks until the parent has closed its end, or is gone.
fn wait_for_end(mut control: &UnixStream, stop: &Flag) {
    let mut ignored = [0; 64];
    while control.read(&mut ignored).is_ok_and(|count| count > 0) {}
    stop.raise();
}

fn say(mut control: &UnixStream, line: &str) -> Result<(), ProcessError> {
    io::Write::write_all(&mut control, line.as_bytes()).map_err(system("answering the host"))
}

fn turn_around(mut wires: Vec<Box<dyn NicQueue + '_>>, stop: &Flag) -> Report {
    let mut report = Report::default();
    while !stop.is_up() {
        let moved: usize = wires.iter_mut().map(NicQueue::turn_around).sum();
        report.turned_around += moved as u64;
        if moved == 0 {
            wires[0].spin();
        }
    }
    for wire in &mut wires {
        report.dropped += wire.dropped();
        report.refused += wire.refused();
        wire.drain();
    }
    report.turned_around -= report.dropped.min(report.turned_around);
    report
}
