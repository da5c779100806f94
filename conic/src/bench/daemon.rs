//! `conic bench daemon`: two processes through `conic nic`, beside the same loopback within this one.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use conic_client::{Client, Options, Queue};
use conic_fabric::Time;
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{Features, Geometry, Host, Map, Nic, PhaseCredit, Wire, prepare};
use conic_load::{ClosedLoop, Workload};
use conic_native::{Flag, KeptCore, Memory, NativeCore, Pages, clock, pin};
use serde_json::json;

use super::common::{span, two_cores};
use super::failure::{Failure, code_of};
use super::link::{Outcome, Span, drive};
use super::placement::Spread;
use super::progress::Progress;
use super::temporary::{Folder, Program};
use crate::value::core_pair;

/// How long a slice is measured, and what comes before it.
const SLICE: Span = Span { warm_up: Time::from_nanoseconds(10_000_000), measured: Time::from_nanoseconds(50_000_000) };

/// The loopback between two processes, through the NIC's daemon: rate and latency beside the same within one process
///
/// Starts `conic nic` with a loopback network on a core of its own, or takes one that runs (--nic), attaches to it, and
/// alternates: a slice through the daemon, a slice with the NIC as a thread of this process on the same core, a slice of that
/// without its checks. Every byte of every payload is written, read and checked. The ratios are of neighbouring slices, so
/// that a virtual machine whose cores move does not matter.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The socket of a NIC that runs, with a loopback network [default: start one]
    #[arg(long, value_name = "SOCKET")]
    pub nic: Option<PathBuf>,
    /// Bytes of a packet, 60 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=9600))]
    pub packet_size: u16,
    /// Packets in flight, as many as two rings of 1024 descriptors hold at most; 1 shows the unloaded latency
    #[arg(long, value_name = "PACKETS", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=2048))]
    pub window: u64,
    /// Packets in one call at most
    #[arg(long, value_name = "PACKETS", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub burst: u16,
    /// Queue pairs of the client; one is busy, the others are idle
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub queues: u16,
    /// How long to measure, all slices together
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = span)]
    pub duration: Time,
    /// The cores of the application and of the NIC [default: the first two]
    #[arg(long, value_name = "APP,NIC", value_parser = core_pair)]
    pub cores: Option<(usize, usize)>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  conic bench daemon                       64-byte packets, 256 in flight
  conic bench daemon --window 1            the unloaded latency
  conic bench daemon --queues 256          one busy queue of 256
  conic bench daemon --nic /tmp/nic.sock   through a NIC that runs: conic nic --mode loopback --socket /tmp/nic.sock";

/// A daemon: one that ends with this program, or one that somebody else runs.
pub struct Daemon {
    started: Option<(Program, Folder)>,
    socket: PathBuf,
}

impl Daemon {
    /// Starts `conic nic` with options of its own.
    ///
    /// # Errors
    ///
    /// There is no place for its socket, or no such program.
    pub fn start(folder: Folder, options: &[&str]) -> Result<Daemon, Failure> {
        let failed = |what: &str, error: std::io::Error| Failure::failed(format!("{what}: {error}"));
        let socket = folder.join("nic.sock");
        let program = std::env::current_exe().map_err(|error| failed("finding this program", error))?;
        let mut command = Command::new(program);
        command.arg("nic").args(options).arg("--socket").arg(&socket);
        command.stdout(Stdio::null());
        let program = Program::start(command, |error| failed("starting the NIC", error))?;
        Ok(Daemon { started: Some((program, folder)), socket })
    }

    /// Attaches to it; to one that was just started, when it listens.
    ///
    /// # Errors
    ///
    /// It refuses, does not listen, or has ended.
    pub fn attach(&mut self, options: &Options) -> Result<(Client, Vec<Queue>), Failure> {
        let until = clock::now() + Time::from_nanoseconds(5_000_000_000);
        loop {
            let error = match Client::attach(&self.socket, options) {
                Ok(attached) => return Ok(attached),
                Err(error) => error,
            };
            let Some((program, _)) = &mut self.started else { return Err(Failure::failed(error.to_string())) };
            if program.has_ended().map_err(|error| Failure::failed(format!("the NIC: {error}")))? {
                return Err(Failure::failed("the NIC that was started has ended; its reason is above"));
            }
            if clock::now() >= until {
                return Err(Failure::failed(error.to_string()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// If the daemon cannot be had, or the machine refuses memory or cores.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (application, nic) = two_cores(arguments.cores)?;
    let mut daemon = match &arguments.nic {
        Some(socket) => Daemon { started: None, socket: socket.clone() },
        None => Daemon::start(Folder::new("conic-bench")?, &["--mode", "loopback", "--core", &nic.to_string()])?,
    };
    pin(application).map_err(|error| Failure::failed(format!("core {application}: {error}")))?;
    let geometry = geometry(arguments.window, arguments.packet_size, arguments.queues);
    let (client, mut queues) = daemon.attach(&Options { geometry, ..Options::default() })?;
    let workload = Workload::of_bursts(arguments.packet_size, arguments.window, arguments.burst.into());
    let mut queue = Some(queues.swap_remove(0));
    let rounds = (arguments.duration.picoseconds() / (3 * SLICE.measured.picoseconds())).max(1);
    let (mut taken, mut left_out): (Vec<[Outcome; 3]>, Vec<[Outcome; 3]>) = (Vec::new(), Vec::new());
    let mut progress = Progress::new();
    for round in 0..rounds {
        progress.start(format!("loopback through the NIC and within one process, round {} of {rounds}", round + 1));
        let mut through = ClosedLoop::new(queue.take().expect("it is put back"), workload);
        let daemon = drive(std::slice::from_mut(&mut through), SLICE, None);
        queue = Some(through.into_queue());
        // Each such slice waits for its packets until it gives them up: the first one is enough.
        if daemon.packets == 0 {
            return Err(Failure::failed(
                "a slice ended without one packet that came back: is the NIC's network a loopback?",
            ));
        }
        // The daemon's thread goes to sleep, and its core is free.
        std::thread::sleep(Duration::from_millis(2));
        let checked = within(workload, nic, true)?;
        let trusting = within(workload, nic, false)?;
        // Where one of the two threads was not let onto its core for all of a slice, its rate says nothing.
        let idle = checked.packets == 0 || trusting.packets == 0;
        let rounds = if idle { &mut left_out } else { &mut taken };
        rounds.push([daemon, checked, trusting]);
    }
    drop((client, queues));
    progress.clear();
    if taken.is_empty() {
        return Err(Failure::failed("each round had a slice without one packet: the machine is too busy"));
    }
    show(arguments, &taken, &left_out)
}

/// Room for the packets in flight, and for what idle queue pairs keep aside.
pub fn geometry(window: u64, packet_size: u16, queues: u16) -> Geometry {
    let count = (window + 1024 + 64 * u64::from(queues - 1)).next_power_of_two();
    let buffers = match packet_size {
        0..=128 => [count, 64, 64],
        129..=4096 => [1024, count, 64],
        _ => [1024, 64, count],
    };
    Geometry { queues: u32::from(queues), descriptors: 1024, buffers, object_bytes: 0 }
}

/// A slice with the NIC as a thread of this process.
fn within(workload: Workload, nic: usize, checked: bool) -> Result<Outcome, Failure> {
    let geometry = geometry(workload.window, workload.packet_size, 1);
    let map = Map::new(geometry, Features::best()).map_err(|error| Failure::failed(error.to_string()))?;
    // As the daemon makes its clients' regions.
    let memory = Memory::create(&map.layout, Pages::Plain);
    let memory = Arc::new(memory.map_err(|error| Failure::failed(error.to_string()))?);
    prepare(&NativeCore::new(&memory), &map);
    let (stop, core) = (Flag::new(), KeptCore::new(memory));
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(nic)?;
            let half = Nic::<_, PhaseCredit>::new(core.clone(), &map, 0);
            let mut wire = Wire::new(if checked { half } else { half.trusting() });
            while !stop.is_up() {
                if wire.turn_around() == 0 {
                    wire.spin();
                }
            }
            Ok::<(), std::io::Error>(())
        });
        let host = Host::<_, PhaseCredit>::new(core.clone(), &map, 0);
        let outcome = drive(&mut [ClosedLoop::new(host, workload)], SLICE, None);
        stop.raise();
        thread.join().map(|pinned| pinned.map(|()| outcome))
    });
    match outcome {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(error)) => Err(Failure::failed(format!("core {nic}: {error}"))),
        Err(_) => Err(Failure::failed("the NIC's thread died; its message is above")),
    }
}

/// Prints the rounds that were taken, and what was lost in those that were left out, too.
fn show(arguments: &Arguments, taken: &[[Outcome; 3]], left_out: &[[Outcome; 3]]) -> Result<ExitCode, Failure> {
    let spread = |figure: &dyn Fn(&[Outcome; 3]) -> f64| {
        let values: Vec<f64> = taken.iter().map(figure).collect();
        Spread::of(&values).ok_or_else(|| Failure::failed("nothing was measured"))
    };
    let rate = |which: usize| spread(&move |round| round[which].rate / 1e6);
    let median = |which: usize| spread(&move |round| round[which].latency.quantile(0.5).picoseconds() as f64 / 1e3);
    let (through, within, trusting) = (rate(0)?, rate(1)?, rate(2)?);
    let of_within = spread(&|round| round[0].rate / round[1].rate)?;
    let price = spread(&|round| 1.0 - round[1].rate / round[2].rate)?;
    let all = || taken.iter().chain(left_out).flatten();
    let (lost, corrupt): (u64, u64) = (all().map(|one| one.lost).sum(), all().map(|one| one.corrupt).sum());
    let (latency, latency_within) = (median(0)?, median(1)?);
    if arguments.json {
        let report = json!({
            "schema": "conic.bench.daemon/2",
            "packet_size": arguments.packet_size, "window": arguments.window, "queues": arguments.queues,
            "rounds": taken.len(), "left_out": left_out.len(),
            "daemon_mpps": through, "in_process_mpps": within, "in_process_unchecked_mpps": trusting,
            "daemon_over_in_process": of_within, "price_of_validation": price,
            "daemon_p50_ns": latency, "in_process_p50_ns": latency_within,
            "lost": lost, "corrupt": corrupt,
        });
        println!("{report}");
    } else {
        let Arguments { packet_size, window, queues, .. } = arguments;
        let of_these = if *queues == 1 { "one queue".to_owned() } else { format!("{queues} queues, one busy") };
        println!("loopback: packets of {packet_size} bytes, {window} in flight, {of_these}");
        let line = |what: &str, rate: Spread, latency: Option<Spread>| {
            let latency = latency.map_or(String::new(), |one| format!(", median {:.0} ns", one.median));
            println!("  {what:<34} {:6.1} Mpps ({:.1} to {:.1}){latency}", rate.median, rate.min, rate.max);
        };
        line("two processes, through the daemon", through, Some(latency));
        line("one process, checks on", within, Some(latency_within));
        line("one process, checks off", trusting, None);
        println!(
            "  daemon over one process            {:.3} ({:.3} to {:.3})",
            of_within.median, of_within.min, of_within.max
        );
        println!("  price of validation                {:.1}%", 100.0 * price.median);
        println!("  {} rounds of slices of 50 ms; {lost} packets lost, {corrupt} corrupt", taken.len());
        if !left_out.is_empty() {
            println!("  {} rounds left out: a slice had no packet, the machine was busy", left_out.len());
        }
    }
    Ok(code_of(lost, corrupt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_that_ends_at_once_is_said_to_have_ended() {
        // This program, which the tests are in, takes no such option.
        let folder = Folder::new("conic-bench-ends").expect("a folder");
        let mut daemon = Daemon::start(folder, &["--mode", "loopback"]).expect("it starts");
        let refused = daemon.attach(&Options::default()).map(drop).expect_err("nobody listens");
        assert!(refused.message.contains("has ended"), "{}", refused.message);
    }
}
