//! `conic invoke`: calls of a function on a device, through pairs of lines.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use conic_fabric::{Home, Layout, Time};
use conic_interface::pio::{Device, Features, Host, Lines, Played, Shape};
use conic_load::invocation::{Caller, Service};
use conic_load::{Function, KeptLatency, Latency};
use conic_native::{Flag, NativeCore, Pages, clock};

use crate::bench::arena::{Arena, Job, Raise};
use crate::bench::common::{Choice, Common, region, span};
use crate::bench::failure::Failure;
use crate::bench::placement::{Placement, rounded};
use crate::bench::progress::Progress;
use crate::bench::rounds::{Slices, Until, alternate, rounds_of};

mod output;
mod simulated;

/// Call a function on a device: how long a call takes, and how many there are in a second
///
/// The device is played by a core of this machine: it reads the request's line again and again where a device on a coherent
/// interconnect would withhold the answer to a load. Requests and responses of one line to 64 KiB lie in two groups of lines
/// that swap roles. Every response is compared with what this core computes itself. With `--device simulated` the device, and the
/// core that calls it, are of modelled machines, and what a call takes is the simulator's time.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// What the device computes: echo, bloom (eight 64-bit hashes of each 128 bytes), or checksum (RFC 1071)
    #[arg(long, value_name = "NAME", default_value = "echo")]
    pub function: Function,
    /// Bytes of a request, 1 to 65536 [default: one line's 56, then 128, or 120 in a simulated line of 128, 256 and so on to 65536]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub bytes: Option<u32>,
    /// How long to call with each size, in slices of 20 ms, the sizes in turn [default: 200ms]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub duration: Option<Time>,
    /// What the device is
    #[arg(long, value_enum, default_value_t = DeviceKind::Played)]
    pub device: DeviceKind,
    /// The modelled machine of a simulated device: a platform's name, or the path of a file that ends in .toml; may be repeated
    /// [default: enzian, enzian-pcie, pc-pcie, cxl3-mem]
    #[arg(long = "platform", value_name = "NAME")]
    pub platforms: Vec<String>,
    /// Calls of each size of a simulated device, 1 to 100000 [default: 40]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub calls: Option<u64>,
}

const EXAMPLES: &str = "Examples:
  conic invoke                                  an echo, from one line to 64 KiB
  conic invoke --function bloom                 the hashes of a Bloom filter
  conic invoke --function checksum --bytes 1500 --json

A call's latency is from just before its request is written to just after its response is read, one call after the other; \
bytes a second are those of requests and responses together. `here` is the same function computed by the calling core.

A simulated device is reached in each way that its machine has: over coherent lines (enzian; cxl3-mem, nearly all of whose values \
are guesses), by loads and stores over PCIe, and by copy engines whose driver polls or takes an interrupt (enzian-pcie; pc-pcie, a \
PC). The functions are computed, and every response is compared; what hashes take is the pipeline's of the paper on coherent \
programmed I/O, and a checksum is summed while its bytes come in. What would a checksum of 1500 bytes cost on each of these?

  conic invoke --device simulated --function checksum --bytes 1500
  conic invoke --device simulated --platform enzian --json";

/// What the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// Another core of this machine
    Played,
    /// Part of a modelled machine: it computes for real, and its time is the simulator's
    Simulated,
}

impl DeviceKind {
    /// Whether nothing is asked for that the device would not heed: options of a device that a core plays stand in `played`, of a
    /// simulated one in `simulated`, each beside whether it was given.
    ///
    /// # Errors
    ///
    /// Which of them goes with the other device.
    pub fn fitting(self, common: &Common, played: &[(&str, bool)], simulated: &[(&str, bool)]) -> Result<(), Failure> {
        let given =
            |options: &[(&str, bool)]| options.iter().find(|(_, given)| *given).map(|(name, _)| name.to_string());
        let of_cores = common.cores.is_some() || common.huge_pages || common.placement != Choice::Most;
        match self {
            DeviceKind::Played => match given(simulated) {
                Some(option) => Err(Failure::failed(format!("{option} goes with --device simulated"))),
                None => Ok(()),
            },
            DeviceKind::Simulated if of_cores => {
                Err(Failure::failed("--cores, --huge-pages and --placement go with a device that a core plays"))
            }
            DeviceKind::Simulated => match given(played) {
                Some(option) => Err(Failure::failed(format!("{option} goes with a device that a core plays"))),
                None => Ok(()),
            },
        }
    }
}

/// How long each size is called, where nothing else is asked for.
const DURATION: Time = Time::from_nanoseconds(200_000_000);

/// How long a slice is measured.
const SLICE: Time = Time::from_nanoseconds(20_000_000);

/// What comes before it.
const WARM_UP: Time = Time::from_nanoseconds(3_000_000);

/// How often a function is computed here, to see what that takes.
const COMPUTED_HERE: usize = 200;

/// What came of a slice.
#[derive(Clone, Debug)]
struct Outcome {
    calls: u64,
    wrong: u64,
    span: Time,
    latency: KeptLatency,
}

/// Calls of one size in one placement of the cores.
#[derive(Clone, Debug, serde::Serialize)]
struct Row {
    bytes: usize,
    response_bytes: usize,
    lines_each_way: [u16; 2],
    calls: u64,
    latency_ns: LatencyReport,
    calls_per_second: f64,
    bytes_per_second: f64,
    /// The same function computed by the calling core.
    here_ns: f64,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct LatencyReport {
    min: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl LatencyReport {
    /// By the least one, and by what gives the latency of which such a share of the calls took no more, in nanoseconds.
    fn of(least: f64, quantile: impl Fn(f64) -> f64) -> LatencyReport {
        let quantile = |share| rounded(quantile(share), 1);
        LatencyReport {
            min: rounded(least, 1),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: quantile(1.0),
        }
    }
}

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let played = [("--duration", options.duration.is_some())];
    let simulated = [("--platform", !options.platforms.is_empty()), ("--calls", options.calls.is_some())];
    let result = options.device.fitting(&options.common, &played, &simulated).and_then(|()| match options.device {
        DeviceKind::Played => run(options),
        DeviceKind::Simulated => simulated::run(options),
    });
    result.unwrap_or_else(|failure| failure.report(options.common.json))
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    let sizes: Vec<usize> = match options.bytes {
        Some(bytes) => vec![bytes as usize],
        None => [56].into_iter().chain((7..=16).map(|power| 1 << power)).collect(),
    };
    let (arena, machine) = options.common.arena(1)?;
    let here: Vec<f64> = sizes.iter().map(|&bytes| computed_here(options.function, bytes)).collect();
    let until = Until::rounds(rounds_of(options.duration.unwrap_or(DURATION), SLICE), sizes.len(), SLICE + WARM_UP);
    let mut progress = Progress::new();
    progress.start(format!("{} on a device", options.function));
    let pages = options.common.pages();
    let measured = alternate(&arena, sizes.len(), until, &mut progress, |size| {
        slice(&arena, options.function, sizes[size], pages)
    })?;
    progress.clear();
    let complete = measured.complete(sizes.len());
    let chosen = options.common.placement.of(&complete);
    let rows = |place: &&Placement| {
        let row = |size: usize| row(&measured, place, size, options.function, sizes[size], here[size]);
        (0..sizes.len()).map(row).collect::<Option<Vec<_>>>()
    };
    let reports: Vec<Vec<Row>> = chosen.iter().map(rows).collect::<Option<_>>().unwrap_or_default();
    if reports.is_empty() {
        return Err(Failure::restless());
    }
    let wrong = measured.all().map(|slice| slice.value.wrong).sum();
    if options.common.json {
        output::json(options.function, &chosen, reports, &measured, machine, wrong)?;
    } else {
        output::table(options.function, &chosen, &reports, &measured, &machine, SLICE);
    }
    if wrong > 0 {
        eprintln!("error: {wrong} responses were wrong");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Lines for requests and responses of one size.
fn lines(function: Function, bytes: usize, layout: &mut Layout) -> Result<Lines, Failure> {
    let most = bytes.max(function.response_bytes(bytes)) as u64;
    Shape::groups(most).place(layout, Home::Nic).map_err(|error| Failure::failed(error.to_string()))
}

/// One slice of calls, in a region of its own.
fn slice(arena: &Arena, function: Function, bytes: usize, pages: Pages) -> Result<Outcome, Failure> {
    let mut layout = Layout::new();
    let lines = lines(function, bytes, &mut layout)?;
    let memory = Arc::new(region(&layout, pages)?);
    let stop = Arc::new(Flag::new());
    let (region, flag) = (Arc::clone(&memory), Arc::clone(&stop));
    let gone = Arc::new(Flag::new());
    let goes = Arc::clone(&gone);
    let device: Job = Box::new(move || {
        let _goes = Raise(&goes);
        let device = Played::new(NativeCore::new(&region), lines);
        let mut service = Service::new(device, function, lines.shape().capacity() as usize);
        while !flag.is_up() {
            if !service.serve() {
                service.device().spin();
            }
        }
    });
    let caller: Box<dyn FnOnce() -> Outcome + Send> = Box::new(move || {
        let host = Host::new(NativeCore::new(&memory), lines, Features::PLAYED);
        let mut caller = Caller::new(host, function, bytes).expect("the lines were made for it");
        caller.watch(move || gone.is_up());
        let start = caller.call_until(clock::now() + WARM_UP);
        caller.forget();
        let end = caller.call_until(start + SLICE);
        let (calls, wrong) = (caller.calls(), caller.wrong());
        Outcome { calls, wrong, span: end.since(start), latency: caller.latency().kept() }
    });
    let mut outcomes = arena.run(&stop, vec![device], vec![caller])?;
    outcomes.pop().ok_or_else(|| Failure::failed("no thread called"))
}

/// What the function takes on this core, in nanoseconds: the median.
fn computed_here(function: Function, bytes: usize) -> f64 {
    let request: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
    let mut response = vec![0; function.response_bytes(bytes)];
    let mut took = Latency::new();
    for _ in 0..COMPUTED_HERE {
        let start = clock::now();
        function.apply(black_box(&request), black_box(&mut response));
        took.record(clock::now().since(start), 1);
    }
    rounded(took.quantile(0.5).picoseconds() as f64 / 1e3, 1)
}

fn row(
    measured: &Slices<Outcome>,
    place: &Placement,
    subject: usize,
    function: Function,
    bytes: usize,
    here_ns: f64,
) -> Option<Row> {
    let (mut calls, mut span, mut latency) = (0, 0.0, KeptLatency::default());
    for outcome in measured.of(place, subject) {
        calls += outcome.calls;
        span += outcome.span.seconds();
        latency.add(&outcome.latency);
    }
    let nanoseconds = |time: Time| time.picoseconds() as f64 / 1e3;
    let response_bytes = function.response_bytes(bytes);
    let shape = Shape::groups(bytes.max(response_bytes) as u64);
    (calls > 0).then(|| Row {
        bytes,
        response_bytes,
        lines_each_way: [bytes, response_bytes].map(|bytes| shape.units_of(bytes as u64)),
        calls,
        latency_ns: LatencyReport::of(nanoseconds(latency.minimum()), |share| nanoseconds(latency.quantile(share))),
        calls_per_second: rounded(calls as f64 / span, 0),
        bytes_per_second: rounded(calls as f64 * (bytes + response_bytes) as f64 / span, 0),
        here_ns,
    })
}
