//! `conic sim pio`: one's own question about coherent programmed I/O.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use conic_fabric::Time;
use conic_sim::eci::EciParameters;
use conic_sim::parameters::TimerParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::exchange::{Calls, CallsOutcome, calls, observed_calls};
use conic_study::coherent_pio::frames::{Arrives, Frames, observed_receive, observed_transmit, receive, transmit};
use conic_study::coherent_pio::percentile;
use serde::Serialize;

use super::lines::{CallQuestion, FrameQuestion, LinesQuestion, Returns, frames, wait};
use super::queues::{Watched, Watching, print_watched};
use super::{PlatformReport, elsewhere, print_guesses};
use crate::bench::common::{nanoseconds, three_digits};
use crate::bench::failure::{Failure, print_json};
use crate::bench::placement::rounded;
use crate::value::{in_lines, span};

/// Frames and calls over pairs of lines whose home is the device: latency by percentiles
///
/// Coherent programmed I/O: a CPU loads a line of the device's, which withholds its answer until there is one. Both halves run on a modelled
/// machine whose device sees the coherence messages of its lines.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    Receive(Receive),
    Transmit(Transmit),
    Call(Call),
}

const EXAMPLES: &str = "Examples:
  conic sim pio receive                            64-byte frames to the CPU, on Enzian
  conic sim pio transmit --bytes 1500              frames to the NIC
  conic sim pio call --bytes 1000                  calls of a function on the device
  conic sim pio receive --platform cxl3-mem        on CXL.mem 3.0";

const RECEIVED: &str = "Examples:
  conic sim pio receive                            64 bytes, in half of a line
  conic sim pio receive --bytes 9600 --prefetch    all lines of a frame asked for together
  conic sim pio receive --after 50us               loads that wait at the NIC for their frame
  conic sim pio receive --tick                     what the kernel's timer interrupt does to the tail
  conic sim pio receive --platform cxl3-mem --set link.crossing=40ns

A frame's latency is from its last beat at the NIC's port until the CPU has it in registers. conic study coherent-pio has seed 1 and 400 frames, \
8200 with the tick; conic trace receive shows one frame's messages.";

const TRANSMITTED: &str = "Examples:
  conic sim pio transmit                           64 bytes, in half of a line
  conic sim pio transmit --bytes 1500              with overflow lines
  conic sim pio transmit --returns shared          what each frame pays for its first stores

A frame's latency is from the CPU's registers to its last beat at the NIC's port. conic study coherent-pio has seed 1 and 400 frames, 8200 with \
the tick; conic trace transmit shows one frame's messages.";

const CALLED: &str = "Examples:
  conic sim pio call                               64 bytes each way, in a line
  conic sim pio call --bytes 4096                  groups of lines
  conic sim pio call --bytes 4096 --one-by-one     lines of a response in turn
  conic sim pio call --returns shared              what each exchange pays for its first store
  conic sim pio call --function bloom --bytes 1280 --json

A call's latency is from before its request is written until its response was read; one follows the other. conic invoke --device simulated has \
the same beside calls over PCIe; conic trace call shows one call's messages.";

/// Which machine, how many, and what becomes of what is found.
#[derive(Clone, Debug, Args)]
struct Common {
    #[command(flatten)]
    question: LinesQuestion,
    /// The kernel's timer interrupt takes the core, as often as on Enzian (250 Hz) and for as long as is guessed there (5us), or for SPAN,
    /// as in --tick=2us
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true, value_parser = tick)]
    tick: Option<Option<Time>>,
    /// How many are measured, after 16 that are not [default: 400, or 8200 with --tick]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: Option<u64>,
    /// Show how full each of the machine's queues was while it was measured
    #[arg(long)]
    queues: bool,
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    json: bool,
}

/// Frames from the NIC to the CPU, one after the other
#[derive(Clone, Debug, Args)]
#[command(after_help = RECEIVED)]
struct Receive {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    frame: Frame,
    /// The driver asks for all overflow lines of a frame together; the published one does not
    #[arg(long)]
    prefetch: bool,
    /// A frame's last beat is at the port so long after the CPU has begun to ask for it, 1us to 10ms [default: at once, for a frame of
    /// several lines later by what those take to go out of the port that loops it]
    #[arg(long, value_name = "TIME", value_parser = wait)]
    after: Option<Time>,
}

/// Frames from the CPU to the NIC, one after the other
#[derive(Clone, Debug, Args)]
#[command(after_help = TRANSMITTED)]
struct Transmit {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    frame: Frame,
    /// How the NIC returns a line that was asked for to read
    #[arg(long, value_enum, default_value_t = Returns::Exclusive)]
    returns: Returns,
}

/// Calls of a function on the device, one after the other
#[derive(Clone, Debug, Args)]
#[command(after_help = CALLED)]
struct Call {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    call: CallQuestion,
    /// The driver asks for the lines of a response one after the other, instead of for all of a group together
    #[arg(long)]
    one_by_one: bool,
}

/// Which frames.
#[derive(Clone, Debug, Args)]
struct Frame {
    #[command(flatten)]
    frame: FrameQuestion,
    /// The seed of the pauses between frames; the same seed gives the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// Those before the first that counts.
const WARM: u64 = 16;

/// How many count where nothing else is asked for, and where the kernel ticks.
const COUNT: u64 = 400;
const TICKING: u64 = 8_200;

/// Where the kernel's tick is from.
const TICKS: &str = "enzian-pcie";

/// Reads for how long a tick takes the core.
fn tick(text: &str) -> Result<Time, String> {
    let time = span(text)?;
    match time.nanoseconds() {
        ..=1_000_000 => Ok(time),
        _ => Err(format!("a time from 1us to 1ms is wanted, not \"{text}\"")),
    }
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Percentiles {
    min: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Percentiles {
    fn of(picoseconds: &[u64]) -> Percentiles {
        let at = |part| rounded(percentile(picoseconds, part), 3);
        Percentiles { min: at(0.0), p50: at(0.5), p95: at(0.95), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// What calls have beside their latencies.
#[derive(Clone, Debug, Serialize)]
struct Calling {
    response_bytes: usize,
    function: &'static str,
    calls_per_second: f64,
    /// Of requests and responses together.
    gib_per_second: f64,
    messages_per_call: BTreeMap<&'static str, f64>,
    /// How often the CPU was told to try again.
    try_agains: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    /// `receive`, `transmit` or `call`.
    what: &'static str,
    platform: PlatformReport,
    bytes: usize,
    /// How the device returns a line, where that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    returns: Option<&'static str>,
    /// Whether several lines are asked for together.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefetch: Option<bool>,
    /// For how long a load waits for its frame, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ns: Option<f64>,
    /// For how long the kernel's tick takes the core; none without.
    tick_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    count: usize,
    latency_ns: Percentiles,
    #[serde(flatten)]
    calling: Option<Calling>,
    /// From when until when a latency is.
    timed: &'static str,
    /// How full the queues were, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<Watched>,
}

/// Asks, and says what is found.
///
/// # Errors
///
/// What cannot be asked for, or why there is no answer.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let report = match &options.what {
        What::Receive(receive) => receive.report(),
        What::Transmit(transmit) => transmit.report(),
        What::Call(call) => call.report(),
    }?;
    if options.is_json() {
        print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// Whether JSON is wanted, of errors too.
    pub fn is_json(&self) -> bool {
        match &self.what {
            What::Receive(receive) => receive.common.json,
            What::Transmit(transmit) => transmit.common.json,
            What::Call(call) => call.common.json,
        }
    }
}

fn stopped(failure: conic_sim::Failure) -> Failure {
    Failure::failed(format!("the modelled machine stopped: {failure}"))
}

fn in_nanoseconds(time: Time) -> f64 {
    time.picoseconds() as f64 / 1e3
}

impl Common {
    fn platform(&self) -> Result<Platform<EciParameters>, Failure> {
        self.question.platform(elsewhere)
    }

    /// How many count.
    fn count(&self) -> u64 {
        self.count.unwrap_or(if self.tick.is_some() { TICKING } else { COUNT })
    }

    /// The kernel's tick, where there is to be one.
    fn timer(&self) -> Result<Option<TimerParameters>, Failure> {
        let Some(span) = self.tick else { return Ok(None) };
        let platform = Platform::load(TICKS).map_err(|error| Failure::failed(error.to_string()))?;
        let timer = platform.parameters().timer.clone();
        let timer =
            timer.ok_or_else(|| Failure::failed(format!("{TICKS} has no timer, from which --tick takes its own")))?;
        Ok(Some(TimerParameters { span: span.map_or(timer.span, Time::picoseconds), ..timer }))
    }

    /// What is said of frames.
    fn report(
        &self,
        (what, timed): (&'static str, &'static str),
        platform: &Platform<EciParameters>,
        question: &Frames,
        seed: u64,
        latencies: &[u64],
    ) -> Report {
        Report {
            schema: "conic.sim.pio/1",
            what,
            platform: PlatformReport::of(platform, &self.question.platform, &self.question.overrides),
            bytes: question.bytes,
            returns: None,
            prefetch: None,
            after_ns: None,
            tick_ns: question.around.timer.as_ref().map(|timer| timer.span as f64 / 1e3),
            seed: Some(seed),
            count: latencies.len(),
            latency_ns: Percentiles::of(latencies),
            calling: None,
            timed,
            probes: None,
        }
    }
}

/// The frames that are asked for, but for what only one way has.
fn asked(common: &Common, frame: &Frame, platform: &Platform<EciParameters>) -> Result<Frames, Failure> {
    let mut question = frames(platform, frame.frame.bytes, (WARM, common.count()), frame.seed);
    question.around.timer = common.timer()?;
    Ok(question)
}

impl Receive {
    fn report(&self) -> Result<Report, Failure> {
        let Receive { common, frame, prefetch, after } = self;
        let platform = common.platform()?;
        let question = Frames { prefetch: *prefetch, ..asked(common, frame, &platform)? };
        let (mut watching, arrives) = (Watching::default(), after.map_or(Arrives::Looped, Arrives::After));
        let latencies = match common.queues {
            true => observed_receive(&question, arrives, &mut watching),
            false => receive(&question, arrives),
        }
        .map_err(stopped)?;
        let what = ("receive", "from a frame's last beat at the port until the CPU has it");
        let after_ns = after.map(in_nanoseconds);
        let report = common.report(what, &platform, &question, frame.seed, &latencies);
        Ok(Report { prefetch: Some(*prefetch), after_ns, probes: watching.seen(), ..report })
    }
}

impl Transmit {
    fn report(&self) -> Result<Report, Failure> {
        let Transmit { common, frame, returns } = self;
        let platform = common.platform()?;
        let question = Frames { exclusive: *returns == Returns::Exclusive, ..asked(common, frame, &platform)? };
        let mut watching = Watching::default();
        let latencies = match common.queues {
            true => observed_transmit(&question, &mut watching),
            false => transmit(&question),
        }
        .map_err(stopped)?;
        let what = ("transmit", "from the CPU's registers to a frame's last beat at the port");
        let report = common.report(what, &platform, &question, frame.seed, &latencies);
        Ok(Report { returns: Some(returns.name()), probes: watching.seen(), ..report })
    }
}

impl Call {
    fn report(&self) -> Result<Report, Failure> {
        let Call { common, call, one_by_one } = self;
        let platform = common.platform()?;
        let mut question =
            Calls { timer: common.timer()?, ..call.calls(platform.parameters(), (WARM, common.count())) };
        // Where there are several lines.
        let longer = question.prefetch;
        question.prefetch &= !one_by_one;
        let mut watching = Watching::default();
        let outcome = match common.queues {
            true => observed_calls(&question, &mut watching),
            false => calls(&question),
        }
        .map_err(stopped)?;
        Ok(Report {
            schema: "conic.sim.pio/1",
            what: "call",
            platform: PlatformReport::of(&platform, &common.question.platform, &common.question.overrides),
            bytes: call.bytes(),
            returns: Some(call.returns()),
            prefetch: longer.then_some(question.prefetch),
            after_ns: None,
            tick_ns: question.timer.as_ref().map(|timer| timer.span as f64 / 1e3),
            seed: None,
            count: outcome.latencies.len(),
            latency_ns: Percentiles::of(&outcome.latencies),
            calling: Some(Calling::of(&outcome, call)),
            timed: "from before a request is written until its response was read",
            probes: watching.seen(),
        })
    }
}

impl Calling {
    fn of(outcome: &CallsOutcome, call: &CallQuestion) -> Calling {
        let response_bytes = call.response_bytes();
        let calls = outcome.latencies.len() as f64;
        let a_call = |(kind, count)| (kind, rounded(count as f64 / calls, 3));
        Calling {
            response_bytes,
            function: call.function(),
            calls_per_second: rounded(calls / outcome.elapsed.seconds(), 0),
            gib_per_second: rounded(outcome.bytes_per_second(call.bytes() + response_bytes) / f64::from(1 << 30), 3),
            messages_per_call: outcome.counters.messages.iter().map(a_call).collect(),
            try_agains: outcome.try_agains,
        }
    }
}

fn print(report: &Report) {
    let Report { what, bytes, platform, calling, .. } = report;
    let subject = match calling {
        Some(calling) => {
            format!("calls with {bytes} bytes ({}), {} bytes back", calling.function, calling.response_bytes)
        }
        None => format!("{what} of frames of {bytes} bytes"),
    };
    println!("simulated {subject}, one after the other");
    println!("  {}: {}", platform.name, platform.description);
    platform.overrides.iter().for_each(|replaced| println!("  with {replaced}"));
    let mut said: Vec<String> = report.returns.iter().map(|returns| format!("lines come back {returns}")).collect();
    said.extend(report.prefetch.map(|together| match together {
        true => "lines are asked for together".to_owned(),
        false => "lines are asked for one after the other".to_owned(),
    }));
    said.extend(report.after_ns.map(|time| format!("a load waits {} for its frame", nanoseconds(time))));
    said.extend(report.tick_ns.map(|time| format!("the kernel's tick takes the core for {}", nanoseconds(time))));
    println!("  {}", said.join("; "));
    println!();
    let Percentiles { min, p50, p95, p99, p999, max } = report.latency_ns;
    let [min, p50, p95, p99, p999, max] = [min, p50, p95, p99, p999, max].map(nanoseconds);
    println!("    latency  min {min}, p50 {p50}, p95 {p95}, p99 {p99}, p99.9 {p999}, max {max}");
    println!("             {}; {} of them", report.timed, report.count);
    if let Some(calling) = calling {
        let (rate, data) = (three_digits(calling.calls_per_second / 1e6), three_digits(calling.gib_per_second));
        println!("    rate     {rate} million calls a second, {data} GiB/s both ways together");
        let messages = calling.messages_per_call.iter().map(|(kind, count)| format!("{count:.2} {kind}"));
        let messages: Vec<String> = messages.collect();
        let lines = in_lines(messages.iter().map(String::as_str), ", ", 86);
        let heads = std::iter::once("messages").chain(std::iter::repeat("        "));
        lines.iter().zip(heads).for_each(|(line, head)| println!("    {head} {line}"));
        if calling.try_agains > 0 {
            println!("             the CPU was told to try again {} times", calling.try_agains);
        }
    }
    if let Some(seen) = &report.probes {
        let each = if calling.is_some() { "a call" } else { "a frame" };
        print_watched(seen, &conic_sim::eci::queues::KINDS, (each, report.count as u64));
    }
    println!();
    print_guesses(platform);
}
