//! What every benchmark's command line and output share.

use std::fmt::Write;
use std::sync::Once;

use clap::{Args, ValueEnum};
use conic_fabric::{Layout, Time};
use conic_native::{Machine, Memory, Pages, cores};
use serde::Serialize;

use super::arena::{Arena, ArenaError};
use super::failure::Failure;
use super::placement::{Placement, Spread};
use super::rounds::{Dropped, Slices};
use crate::status_line::StatusLine;
use crate::value::{core_pair, in_lines};

pub use crate::value::{grouped as count, span};

/// Options of every benchmark.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Print one JSON object (or array) on stdout and nothing else there; errors too, with exit code 1, or 2 where something must be installed
    #[arg(long)]
    pub json: bool,
    /// The cores of the application and of the NIC, for example 0,1 [default: the first two this process may use]
    #[arg(long, value_name = "APP,NIC", value_parser = core_pair)]
    pub cores: Option<(usize, usize)>,
    /// Put the shared region on 2 MiB pages if the system has enough of them free, and say so where it has not
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

    /// The threads, up to `pairs` pairs of them, and the machine that they are on.
    ///
    /// # Errors
    ///
    /// If there are not enough cores.
    pub fn arena(&self, pairs: usize) -> Result<(Arena, MachineReport), ArenaError> {
        let usable = usable_cores();
        let arena = Arena::new(pairs, self.cores)?;
        let machine = MachineReport::of(&arena, usable);
        Ok((arena, machine))
    }
}

/// Makes a region to measure in; says once where it lies on plain pages although huge ones were asked for.
///
/// # Errors
///
/// The machine refuses it.
pub fn region(layout: &Layout, pages: Pages) -> Result<Memory, ArenaError> {
    static SAID: Once = Once::new();
    let memory = Memory::create(layout, pages)?;
    if pages == Pages::HugeIfAvailable && memory.pages() == Pages::Plain {
        SAID.call_once(|| {
            // Not behind what stands there.
            StatusLine::new().clear();
            eprintln!("{}", too_few_huge_pages(memory.bytes()));
        });
    }
    Ok(memory)
}

fn too_few_huge_pages(bytes: u64) -> String {
    let pages = bytes.div_ceil(2 << 20);
    format!(
        "note: fewer than {pages} huge pages (2 MiB) are free, so that the region lies on plain ones; `sudo sysctl vm.nr_hugepages={pages}` \
         reserves them"
    )
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

    /// The same for a terminal of 80 columns, indented.
    pub fn lines(&self) -> Vec<String> {
        in_lines(self.line().split(' '), " ", 78).into_iter().map(|line| format!("  {line}")).collect()
    }

    /// Prints these.
    pub fn print(&self) {
        self.lines().iter().for_each(|line| println!("{line}"));
    }
}

/// The cores of two sides, for who pins them itself: the two that were chosen, or the first two that this process may use.
///
/// # Errors
///
/// They are the same, or there are not two.
pub fn two_cores(chosen: Option<(usize, usize)>) -> Result<(usize, usize), Failure> {
    match (chosen, cores().as_slice()) {
        (Some((one, other)), _) if one == other => Err(Failure::failed(format!(
            "the two sides need a core each, not both core {one}: give two, as in --cores 0,1"
        ))),
        (Some(pair), _) => Ok(pair),
        (None, [one, other, ..]) => Ok((*one, *other)),
        (None, _) => Err(Failure::failed("this process may use one core, and needs two")),
    }
}

/// The cores that this process may use, asked before its threads are pinned.
pub fn usable_cores() -> usize {
    cores().len()
}

/// Nanoseconds as people read them: `431 ns`, `1.28 us`, `12.1 ms`, `1.25 s`.
pub fn nanoseconds(value: f64) -> String {
    match value.abs() {
        size if size < 99.95 => format!("{value:.1} ns"),
        size if size < 1_000.0 => format!("{value:.0} ns"),
        size if size < 1e6 => format!("{} us", three_digits(value / 1e3)),
        size if size < 1e9 => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

/// A number with three significant digits from one to a thousand, and at least two from a thousandth to one.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        small if small > 0.0 && small < 0.01 => format!("{value:.4}"),
        small if small > 0.0 && small < 0.1 => format!("{value:.3}"),
        small if small < 9.995 => format!("{value:.2}"),
        middle if middle < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Reads a rate in millions of packets a second, for clap.
///
/// # Errors
///
/// What to give instead.
pub fn mpps(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=10_000.0).contains(rate));
    rate.ok_or_else(|| "give millions of packets a second from 0.001 to 10000, as in 2.5".to_owned())
}

/// `(50.1 to 54.0)`, or nothing where there is only one value.
pub fn range(spread: Spread, format: impl Fn(f64) -> String) -> String {
    if spread.min == spread.max {
        return String::new();
    }
    format!("({} to {})", format(spread.min), format(spread.max))
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
        println!("  note: the machine never rested; the least disturbed slices count;");
        println!("  their rates are too low, and their times too high");
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
    fn figures_are_written_for_people() {
        assert_eq!([43.21, 431.4, 1_284.0, 12_100_000.0].map(nanoseconds), ["43.2 ns", "431 ns", "1.28 us", "12.1 ms"]);
        assert_eq!(nanoseconds(1.25e9), "1.25 s");
        let numbers = [0.0, 0.00123, 0.0123, 0.123, 1.234, 12.34, 123.4, 1234.0].map(three_digits);
        assert_eq!(numbers, ["0.00", "0.0012", "0.012", "0.12", "1.23", "12.3", "123", "1234"]);
    }

    #[test]
    fn a_machine_with_a_long_name_takes_lines_that_a_terminal_has() {
        let machine = MachineReport {
            processor: "Intel(R) Xeon(R) Platinum 8480CL CPU @ 2.00GHz".to_owned(),
            cores: 224,
            application_core: 100,
            nic_core: 101,
            numa_nodes: 2,
            kernel: "Linux 6.18".to_owned(),
            virtual_machine: true,
        };
        let lines = machine.lines();
        assert!(lines.len() == 2 && lines.iter().all(|line| line.len() <= 80 && line.starts_with("  ")), "{lines:#?}");
        let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        assert_eq!(words.join(" "), machine.line());
    }
}
