//! `conic advise`: which request types, placements and batch sizes a CXL NIC should use, by trying them on a modelled machine.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use conic_chart::{Align, Cell, Column, Table, TerminalStyle};
use conic_fabric::Time;
use conic_native::clock;
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::Platform;
use conic_study::cxl_nic::advise::{Advice, Goal, Question, Reason, Trial, advise, described};
use serde_json::{Value, json};

use crate::bench::failure::Failure;
use crate::spread::on_all_cores;
use crate::status_line::StatusLine;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// The lowest median latency of a loopback
    Latency,
    /// The highest throughput of each direction
    Throughput,
}

/// Find the best request types, placements and batch sizes for a CXL NIC
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Bytes of a packet; may be repeated [default: 64 and 1500]
    #[arg(long = "size", value_name = "BYTES", value_parser = clap::value_parser!(u16).range(16..=9000))]
    sizes: Vec<u16>,
    /// What is wanted
    #[arg(long, value_enum, default_value = "latency")]
    goal: Wanted,
    /// Packets a second, in millions; without it one packet at a time (for the goal latency)
    #[arg(long, value_name = "MPPS", value_parser = load)]
    load: Option<f64>,
    /// The device has no memory of its own (type 1)
    #[arg(long)]
    no_device_memory: bool,
    /// Ring pairs that share the load, each with a core of the host
    #[arg(long, value_name = "RINGS", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=16))]
    rings: u8,
    /// A platform of model cxl: its name, or a path to a .toml file
    #[arg(long, value_name = "NAME", default_value = "agilex7")]
    platform: String,
    /// Replace a value of the platform, as in dcoh.cycle=1ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print one JSON array on stdout and nothing else there; an error as one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Every design is simulated: the request type of each step (NC, NC-P, CS, CO), whose memory each ring and buffer lies in, how the \
host stores packets, device-bias, batches. What each choice brings is shown by taking it back: time, and messages a packet.

Examples:
  conic advise                                     lowest latency for 64 and 1500 bytes
  conic advise --size 64 --size 9000               each in less than a minute
  conic advise --size 256 --load 0.2               at 0.2 million packets a second, batches tried as well
  conic advise --goal throughput --size 1500 --rings 2
  conic advise --no-device-memory --set dcoh.cycle=1ns --set dcoh.miss=60ns";

/// A load in millions a second.
fn load(text: &str) -> Result<f64, String> {
    let load: f64 = text.parse().map_err(|_| "give a number of million packets a second, such as 0.5".to_owned())?;
    if (1e-3..=100.0).contains(&load) { Ok(load) } else { Err("give 0.001 to 100".to_owned()) }
}

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let shown = run(options).map(|text| print!("{text}"));
    shown.map_or_else(|message| Failure::failed(message).report(options.json), |()| ExitCode::SUCCESS)
}

fn run(options: &Options) -> Result<String, String> {
    if options.goal == Wanted::Throughput && options.load.is_some() {
        return Err("--load goes with the goal latency: throughput is what is found".to_owned());
    }
    let platform = Platform::<CxlParameters>::load_as(&options.platform)
        .and_then(|platform| platform.with(&options.overrides))
        .map_err(|error| error.to_string())?;
    let sizes = if options.sizes.is_empty() { vec![64, 1500] } else { options.sizes.clone() };
    let goal = if options.goal == Wanted::Latency { Goal::Latency } else { Goal::Throughput };
    let (mut text, mut answers) = (String::new(), Vec::new());
    for bytes in sizes {
        let question = Question {
            machine: platform.parameters().clone(),
            bytes: bytes.into(),
            load: options.load.map(|load| load * 1e6),
            goal,
            memory: !options.no_device_memory,
            rings: options.rings.into(),
        };
        let line = StatusLine::new();
        let mut looked = 0;
        let mut together = |trials: &[Trial]| {
            looked += trials.len();
            line.show(&format!("{bytes} bytes: {looked} simulations"));
            on_all_cores(trials, |trial| trial.run(&question))
        };
        let start = clock::now();
        let advice = advise(&question, &mut together).map_err(|failure| failure.to_string())?;
        let took = clock::now().since(start);
        drop(line);
        answers.push(as_json(bytes, goal, &advice, took));
        text += &as_text(bytes, goal, &advice, took);
    }
    if options.json {
        return Ok(format!("{}\n", Value::Array(answers)));
    }
    Ok(text)
}

/// The unit of an advice's values.
fn unit(goal: Goal) -> &'static str {
    if goal == Goal::Latency { "ns" } else { "Gb/s" }
}

fn as_text(bytes: u16, goal: Goal, advice: &Advice, took: Time) -> String {
    let numbers = |values: &[f64]| match (goal, values) {
        (Goal::Throughput, [to_host, from_host]) => format!("{to_host:.1} Gb/s to the host, {from_host:.1} from it"),
        (_, values) => values.iter().map(|value| format!("{value:.0} ns")).collect(),
    };
    let of_paper =
        advice.reference.as_ref().map_or_else(|| "does not carry this load".to_owned(), |values| numbers(values));
    let mut text = format!(
        "{bytes} bytes: {}; the paper's configuration: {of_paper} ({} simulations in {:.1} s)\n",
        numbers(&advice.value),
        advice.looked_at,
        took.seconds()
    );
    let worth = |what: &str| advice.reasons.iter().filter(move |reason| reason.what == what).collect::<Vec<_>>();
    let mut table = Table::new([
        Column::text("step or structure"),
        Column::text("advice"),
        Column::text("instead of"),
        Column { align: Align::Right, ..Column::text("worth") },
        Column::text("messages a packet that it saves (-: adds)"),
    ]);
    for (what, choice) in described(&advice.design) {
        let reasons = worth(what);
        if reasons.is_empty() {
            table.row([what, choice.as_str(), "", "", ""].map(Cell::from));
        }
        for Reason { choice: [advised, other], worth, messages, .. } in reasons {
            let saved: Vec<String> = messages.iter().map(|(kind, count)| format!("{kind} {count:.1}")).collect();
            let worth = worth.map_or_else(|| "the load".to_owned(), |worth| format!("{worth:.1} {}", unit(goal)));
            let cells = [what.to_owned(), advised.clone(), other.clone(), worth, saved.join(", ")];
            table.row(cells.map(Cell::from));
        }
    }
    text += &table.draw(TerminalStyle::default());
    text.push('\n');
    text
}

fn as_json(bytes: u16, goal: Goal, advice: &Advice, took: Time) -> Value {
    let design: serde_json::Map<String, Value> =
        described(&advice.design).into_iter().map(|(what, choice)| (what.to_owned(), json!(choice))).collect();
    let reason = |reason: &Reason| {
        let [advised, other] = &reason.choice;
        json!({ "what": reason.what, "advised": advised, "instead_of": other, "worth": reason.worth, "messages": reason.messages })
    };
    json!({
        "bytes": bytes, "unit": unit(goal), "value": advice.value, "paper": advice.reference, "design": design,
        "simulations": advice.looked_at, "seconds": took.seconds(),
        "reasons": advice.reasons.iter().map(reason).collect::<Vec<_>>(),
    })
}
