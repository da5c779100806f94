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
use crate::value::in_lines;

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

const EXAMPLES: &str = "Searched are the request type of each step (NC, NC-P, CS, CO), what tells the device of a packet, whose memory each ring and \
buffer lies in, how the host stores packets, device-bias, and batches where packets may come together. They are searched in four groups, of which \
every design is simulated, each group with the best of the others in turn until none gets better; designs that differ in several groups at once are \
not all looked at. What each choice brings is shown by taking it back: time, and messages a packet.

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
    if !platform.parameters().link.present {
        return Err(format!(
            "{}: its device has no CXL, of whose requests the advice is; give a platform with a CXL device, such as agilex7",
            platform.name()
        ));
    }
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
    let title = format!(
        "{bytes} bytes: {}; the paper's configuration: {of_paper} ({} simulations in {:.1} s)",
        numbers(&advice.value),
        advice.looked_at,
        took.seconds()
    );
    let mut text = in_lines(title.split(' '), " ", COLUMNS).join("\n");
    text.push('\n');
    text += &choices(goal, advice).draw(TerminalStyle::default());
    if advice.reasons.iter().any(|reason| !reason.messages.is_empty()) {
        text.push('\n');
        text += &messages(advice).draw(TerminalStyle::default());
    }
    text.push('\n');
    text
}

/// Columns that an answer takes at most, and those of a cell whose text may be long.
const COLUMNS: usize = 80;
const CELL: usize = 20;

/// What is advised, what the paper has instead, and what that costs.
fn choices(goal: Goal, advice: &Advice) -> Table {
    let mut table = Table::new([
        Column::text("step or structure"),
        Column::text("advice"),
        Column::text("instead of"),
        Column { align: Align::Right, ..Column::text("worth") },
    ]);
    for (what, choice) in described(&advice.design) {
        let reason = advice.reasons.iter().find(|reason| reason.what == what);
        let other = reason.map_or("", |reason| &reason.choice[1]);
        let worth = reason.map_or_else(String::new, |reason| match reason.worth {
            Some(worth) => format!("{worth:.1} {}", unit(goal)),
            None => "the load".to_owned(),
        });
        let lines = |text: &str| in_lines(text.split(' '), " ", CELL);
        let (advised, instead) = (lines(&choice), lines(other));
        for index in 0..advised.len().max(instead.len()) {
            let of = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
            let first = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
            table.row([first(what), of(&advised), of(&instead), first(&worth)].map(Cell::from));
        }
    }
    table
}

/// The messages that a choice saves or adds.
fn messages(advice: &Advice) -> Table {
    let mut table = Table::new(["step or structure", "messages a packet that it saves (-: adds)"].map(Column::text));
    for Reason { what, messages, .. } in &advice.reasons {
        let counts: Vec<String> = messages.iter().map(|(kind, count)| format!("{kind} {count:.1}")).collect();
        if counts.is_empty() {
            continue;
        }
        for (index, line) in in_lines(counts.iter().map(String::as_str), ", ", COLUMNS - CELL - 2).iter().enumerate() {
            table.row([if index == 0 { what } else { "" }, line].map(Cell::from));
        }
    }
    table
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
