//! `conic replay`: a capture through the whole path, with a proof that nothing changed.

mod output;
mod report;
mod witness;

use std::error::Error;
use std::io::{Cursor, IsTerminal, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use conic_fabric::{Core, Time};
use conic_interface::burst::{HostQueue, NicQueue, Packet};
use conic_interface::ccnic::{Features, Geometry, Map, host_queue, nic_queue, prepare};
use conic_native::{Flag, Memory, NativeCore, Pages, pin};
use conic_nicd::SoftwareNic;
use conic_port::{CapturePort, CaptureReader, CaptureWriter, Loops, MAX_FRAME, Port, PortError, Replay, Speed};

use crate::idle::Idle;
use crate::sample;
use crate::value::{Cores, grouped};
use report::Outcome;
use witness::Witness;

/// How long no frame may come back while some are on their way before they are given up, and the rest with them.
const STANDSTILL: Time = Time::from_nanoseconds(2_000_000_000);

/// How long the NIC waits for an application that takes no frames: longer than any pause of a thread that shares its core.
const PATIENCE: Time = Time::from_nanoseconds(1_000_000_000);

/// How often progress is shown.
const PROGRESS: Time = Time::from_nanoseconds(250_000_000);

/// Send a capture through the whole path and prove that nothing changed.
///
/// The path: capture, NIC thread, ccnic interface, application thread, and back to the NIC thread. The application reads
/// and writes every byte of every frame. Each frame that comes back is compared with the one that went in; an output file
/// is read again and compared too. Exits with 1 if anything differs, or the capture is damaged.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The capture to replay: pcap or pcapng
    #[arg(required_unless_present = "sample")]
    capture: Option<PathBuf>,
    /// Replay a sample of 20,000 frames instead, 60 to 9600 bytes each
    #[arg(long, conflicts_with = "capture")]
    sample: bool,
    /// Record what comes back, with the original timestamps: .pcap or .pcapng
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// When frames are sent: fast, recorded, or a factor such as 2x or 0.5x
    #[arg(long, default_value = "fast")]
    pace: Pace,
    /// How many times; 0: until interrupted
    #[arg(long = "loop", default_value_t = 1, value_name = "N")]
    loops: u64,
    /// The interface's switches, such as paper or best,no-inline-payload
    #[arg(long, default_value = "best")]
    features: Features,
    /// The cores of the application and of the NIC [default: the first two this process may use]
    #[arg(long, value_name = "APP,NIC")]
    cores: Option<Cores>,
    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  conic replay capture.pcap                          as fast as it goes
  conic replay --sample                              without a file
  conic replay capture.pcapng --pace recorded        with the times between its frames
  conic replay capture.pcap --output back.pcapng     what came back, in a file
  conic replay capture.pcap --loop 0                 until Ctrl-C";

#[derive(Clone, Copy)]
struct Pace(conic_port::Pace);

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Pace, String> {
        Ok(Pace(match text {
            "fast" => conic_port::Pace::AsFastAsPossible,
            "recorded" => conic_port::Pace::Recorded(Speed::RECORDED),
            _ => match text.strip_suffix('x') {
                Some(factor) => conic_port::Pace::Recorded(factor.parse().map_err(str::to_owned)?),
                None => return Err("give fast, recorded, or a factor such as 2x or 0.5x".to_owned()),
            },
        }))
    }
}

/// Where the frames come from; it can be opened again, to compare.
#[derive(Clone)]
enum Input {
    File(PathBuf),
    Sample(Arc<[u8]>),
}

impl Input {
    fn open(&self, replay: Replay) -> Result<Box<dyn Port>, PortError> {
        Ok(match self {
            // A pipe is waited for: nobody else is served here meanwhile.
            Input::File(path) => Box::new(CapturePort::replay_from(CaptureReader::open(path)?, replay)?),
            Input::Sample(bytes) => {
                let reader = CaptureReader::new(Cursor::new(bytes.clone()), "sample")?;
                Box::new(CapturePort::replay_from(reader, replay)?)
            }
        })
    }

    fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Sample(_) => "sample".to_owned(),
        }
    }

    /// Whether opening it again gives the same frames.
    fn is_repeatable(&self) -> bool {
        match self {
            Input::File(path) => path.metadata().is_ok_and(|about| about.is_file()),
            Input::Sample(_) => true,
        }
    }
}

/// Replays, and prints the verdict.
///
/// # Errors
///
/// The capture cannot be opened, the output cannot be made, or the machine refuses memory or cores.
pub fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let input = match &options.capture {
        Some(path) => Input::File(path.clone()),
        None => Input::Sample(sample::in_memory(sample::FRAMES, sample::SEED).into()),
    };
    let loops = NonZeroU64::new(options.loops).map_or(Loops::Forever, Loops::Times);
    let replay = Replay { pace: options.pace.0, loops, ..Replay::default() };
    let repeatable = input.is_repeatable();
    let port = input.open(replay)?;
    let writer = match &options.output {
        Some(path) => {
            output::refuse_input(path, options.capture.as_deref())?;
            Some(CaptureWriter::create(path)?)
        }
        None => None,
    };
    let stop = Arc::new(Flag::new());
    let raised = stop.clone();
    ctrlc::set_handler(move || raised.raise())?;
    let cores = options.cores.or_else(Cores::default_pair);
    let witness = Witness::new(port, writer, stop);
    let map = Map::new(Geometry { buffers: [2048, 512, 256], ..Geometry::default() }, options.features)?;
    let passed = pass_through(&map, witness, cores)?;
    let output = options.output.as_ref().map(|path| {
        let input = repeatable.then_some(&input);
        let compared = match passed.recorded {
            true => output::compare(path, input, replay, passed.verdict.identical),
            false => output::Compared::Differs("it could not be written to its end".to_owned()),
        };
        output::Output { path: path.clone(), compared }
    });
    let outcome = Outcome { input: input.name(), features: options.features, cores, passed, output };
    outcome.print(options.json);
    Ok(if outcome.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What came of sending the frames through.
struct Passed {
    verdict: witness::Verdict,
    port: conic_port::Counters,
    nic: conic_nicd::Counters,
    /// What was wrong with the capture or with the output.
    error: Option<String>,
    /// Whether everything that came back was recorded.
    recorded: bool,
}

/// Runs the NIC here and the application in another thread until the port is at its end and everything is back.
fn pass_through(map: &Map, witness: Witness, cores: Option<Cores>) -> Result<Passed, Box<dyn Error>> {
    let memory = Memory::create(&map.layout, Pages::HugeIfAvailable)?;
    prepare(&NativeCore::new(&memory), map);
    let wire = nic_queue(NativeCore::new(&memory), map, 0);
    let options = conic_nicd::Options { patience: PATIENCE, ..conic_nicd::Options::default() };
    let nic = SoftwareNic::new(witness, [wire], options);
    let done = Flag::new();
    std::thread::scope(|scope| {
        let application = scope.spawn(|| {
            let bound = cores.map_or(Ok(()), |cores| pin(cores.application));
            forward(host_queue(NativeCore::new(&memory), map, 0), &done);
            bound
        });
        let bound = cores.map_or(Ok(()), |cores| pin(cores.nic));
        let passed = drive(nic, &NativeCore::new(&memory));
        done.raise();
        application.join().expect("the application thread only forwards")?;
        bound?;
        Ok(passed)
    })
}

fn drive(mut nic: SoftwareNic<Box<dyn NicQueue + '_>, Witness>, core: &NativeCore<'_>) -> Passed {
    let mut idle = Idle::default();
    let mut shown = Progress::new(core.now());
    let (mut back, mut moved) = (0, core.now());
    loop {
        let now = core.now();
        let step = nic.step(now).expect("the witness keeps the errors of its port");
        if nic.port().is_empty() || nic.port().verdict().frames_out != back {
            (back, moved) = (nic.port().verdict().frames_out, now);
        } else if now.since(moved) > STANDSTILL {
            nic.port_mut().give_up();
            break;
        }
        if !step.is_idle() {
            idle.reset();
        } else if nic.is_ended() && nic.port().is_empty() {
            break;
        } else {
            idle.wait(core);
        }
        shown.show(now, nic.port().verdict().frames_in);
    }
    shown.clear();
    let counters = nic.counters();
    let (_, witness) = nic.into_parts();
    let port = *witness.counters();
    let (verdict, error, recorded) = witness.finish();
    Passed { verdict, port, nic: counters, error, recorded }
}

/// The application: reads and writes every byte of every frame, and sends it back.
fn forward(mut queue: impl HostQueue, done: &Flag) {
    const BURST: usize = 32;
    let mut packets = [Packet::BLANK; BURST];
    let mut bytes = [0u8; MAX_FRAME];
    let mut idle = Idle::default();
    while !done.is_up() {
        let mut count = queue.rx_burst(&mut packets);
        if count == 0 {
            idle.wait(queue.core());
            continue;
        }
        idle.reset();
        for packet in &packets[..count] {
            let frame = &mut bytes[..usize::from(packet.length())];
            queue.core().read_bytes(packet.address(), frame);
            queue.core().write_bytes(packet.address(), frame);
        }
        // What the ring does not take now waits; the NIC empties it as long as it runs.
        while count > 0 && !done.is_up() {
            let sent = queue.tx_burst(&packets[..count]);
            packets.copy_within(sent..count, 0);
            count -= sent;
            if sent == 0 {
                idle.wait(queue.core());
            }
        }
    }
}

/// A line on a terminal that says how far it is; nothing where there is no terminal.
struct Progress {
    terminal: bool,
    next: Time,
}

impl Progress {
    fn new(now: Time) -> Progress {
        Progress { terminal: std::io::stderr().is_terminal(), next: now + PROGRESS }
    }

    fn show(&mut self, now: Time, frames: u64) {
        if self.terminal && now > self.next {
            self.next = now + PROGRESS;
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{} frames ", grouped(frames));
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
