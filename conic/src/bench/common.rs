//! What every benchmark's command line and output share.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use conic_fabric::Time;
use conic_native::{Machine, Pages, cores};
use serde::Serialize;

use super::arena::{Arena, ArenaError};
use super::placement::{Placement, Spread};
use super::rounds::{Dropped, Slices};

/// Options of every benchmark.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Print one JSON object (or array) on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    pub json: bool,
    /// The cores of the application and of the NIC, for example 0,1 [default: the first two this process may use]
    #[arg(long, value_name = "APP,NIC", value_parser = core_pair)]
    pub cores: Option<(usize, usize)>,
    /// Put the shared region on 2 MiB pages if the system has enough of them free
    #[arg(long)]
    pub huge_pages: bool,
    /// Report where the two cores were near, far, or all placements; a virtual machine's cores may move while it runs
    #[arg(long, value_enum, default_value_t = Choice::Most)]
    pub placement: Choice,
}

impl Common {
    /// The pages that were asked for.
    pub fn pages(&self) -> Pages {
        if self.huge_pages { Pages::HugeIfAvailable } else { Pages::Plain }
    }

    /// The threads, up to `pairs` pairs of them.
    ///
    /// # Errors
    ///
    /// If there are not enough cores.
    pub fn arena(&self, pairs: usize) -> Result<Arena, ArenaError> {
        Arena::new(pairs, self.cores)
    }
}

/// Which placements are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The one with the most slices
    Most,
    /// The one with the shortest round trip
    Near,
    /// The one with the longest round trip
    Far,
    /// The one with the most slices as the headline, then the others
    All,
}

impl Choice {
    /// The placements to report, the headline first, of those that have what is asked, the one with most slices first.
    pub fn of<'a>(self, complete: &[&'a Placement]) -> Vec<&'a Placement> {
        let by_distance = |a: &&&Placement, b: &&&Placement| a.round_trip.median.total_cmp(&b.round_trip.median);
        match self {
            Choice::Most => complete.iter().take(1).copied().collect(),
            Choice::Near => complete.iter().min_by(by_distance).into_iter().copied().collect(),
            Choice::Far => complete.iter().max_by(by_distance).into_iter().copied().collect(),
            Choice::All => complete.to_vec(),
        }
    }
}

/// The machine a figure was measured on, for JSON.
#[derive(Clone, Debug, Serialize)]
pub struct MachineReport {
    processor: String,
    cores: usize,
    application_core: usize,
    nic_core: usize,
    numa_nodes: usize,
    kernel: String,
    virtual_machine: bool,
}

impl MachineReport {
    /// This machine, and the first pair of cores of an arena.
    pub fn of(arena: &Arena, before: usize) -> MachineReport {
        let (machine, (application_core, nic_core)) = (Machine::here(), arena.pairs()[0]);
        MachineReport {
            processor: machine.processor,
            cores: before,
            application_core,
            nic_core,
            numa_nodes: machine.numa_nodes,
            kernel: machine.kernel,
            virtual_machine: machine.virtual_machine,
        }
    }

    /// The same in a line.
    pub fn line(&self) -> String {
        let mut line = format!("{}, {} cores", self.processor, self.cores);
        if self.numa_nodes > 1 {
            let _ = write!(line, ", {} NUMA nodes", self.numa_nodes);
        }
        if self.virtual_machine {
            line.push_str(", a virtual machine");
        }
        let _ = write!(line, "; application on core {}, NIC on core {}", self.application_core, self.nic_core);
        line
    }
}

/// The cores that this process may use, asked before its threads are pinned.
pub fn usable_cores() -> usize {
    cores().len()
}

pub fn core_pair(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("two core numbers are wanted, as in 0,1, not \"{text}\"");
    let (application, nic) = text.split_once(',').ok_or_else(wrong)?;
    let number = |part: &str| part.trim().parse().map_err(|_| wrong());
    Ok((number(application)?, number(nic)?))
}

/// Reads a span of time: 50ms, 2s, 1.5s, 200us.
///
/// # Errors
///
/// What is wanted instead.
pub fn span(text: &str) -> Result<Time, String> {
    let wrong = || format!("a time is wanted, as in 50ms, 2s or 1.5s, not \"{text}\"");
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        _ => return Err(wrong()),
    };
    let nanoseconds = number.trim().parse::<f64>().map_err(|_| wrong())? * scale;
    if !(1e3..=3600e9).contains(&nanoseconds) {
        return Err(format!("a time from 1us to 60m is wanted, not \"{text}\""));
    }
    Ok(Time::from_nanoseconds(nanoseconds as u64))
}

/// Nanoseconds as people read them: `431 ns`, `1.28 us`, `12.1 ms`.
pub fn nanoseconds(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.1} ns"),
        value if value < 1_000.0 => format!("{value:.0} ns"),
        value if value < 1e6 => format!("{} us", three_digits(value / 1e3)),
        value => format!("{} ms", three_digits(value / 1e6)),
    }
}

/// A number with three significant digits, if it is below a thousand.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `(50.1 to 54.0)`, or nothing where there is only one value.
pub fn range(spread: Spread, format: impl Fn(f64) -> String) -> String {
    if spread.min == spread.max {
        return String::new();
    }
    format!("({} to {})", format(spread.min), format(spread.max))
}

/// A count with commas.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The heading of a placement.
pub fn placement_line(place: &Placement, slices: usize, slice: Time) -> String {
    let trip = place.round_trip;
    let spread = range(trip, |value| format!("{value:.0}"));
    let milliseconds = slice.picoseconds() as f64 / 1e9;
    let name = match place.label {
        "steady" | "restless" => String::new(),
        label => format!("cores {label}: "),
    };
    let trip = nanoseconds(trip.median);
    format!("{name}one line's round trip {trip} {spread}; {} of {milliseconds} ms", self::slices(slices))
}

/// Says what was left out of a run, if anything was.
pub fn print_notes<T>(measured: &Slices<T>) {
    print_left_out(measured.dropped, measured.restless);
}

/// Says what was left out, if anything was.
pub fn print_left_out(dropped: Dropped, restless: bool) {
    let Dropped { moved, disturbed } = dropped;
    if moved > 0 {
        println!("  {} left out: the hypervisor moved the cores meanwhile", slices(moved));
    }
    if disturbed > 0 {
        println!("  {} left out: another process ran on one of the cores", slices(disturbed));
    }
    if restless {
        println!("  note: the machine never rested; the least disturbed slices count, and their figures are too low");
    }
}

/// A number of slices in words.
fn slices(count: usize) -> String {
    if count == 1 { "1 slice".to_owned() } else { format!("{count} slices") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(span("50ms"), Ok(Time::from_nanoseconds(50_000_000)));
        assert_eq!(span("1.5s"), Ok(Time::from_nanoseconds(1_500_000_000)));
        for bad in ["", "5", "ms", "5h", "-1s", "0s", "1e99s", "NaNs", "5 parsecs"] {
            assert!(span(bad).is_err(), "{bad} was read as a time");
        }
    }

    #[test]
    fn cores_are_two_numbers() {
        assert_eq!(core_pair("0,1"), Ok((0, 1)));
        assert_eq!(core_pair("3, 2"), Ok((3, 2)));
        for bad in ["", "1", "1,", "a,b", "0,1,2"] {
            assert!(core_pair(bad).is_err(), "{bad} was read as two cores");
        }
    }

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!([43.21, 431.4, 1_284.0, 12_100_000.0].map(nanoseconds), ["43.2 ns", "431 ns", "1.28 us", "12.1 ms"]);
        assert_eq!([0, 999, 1_000, 36_112_456].map(count), ["0", "999", "1,000", "36,112,456"]);
    }
}
