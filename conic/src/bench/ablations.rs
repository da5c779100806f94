//! `conic bench ablations`: what each of CC-NIC's features is worth on this machine (the paper's sections 5.4 and 5.5).

use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_interface::ccnic::{Features, Packing, Signal};
use conic_load::Workload;
use conic_native::Pages;
use serde::Serialize;

use super::common::{Common, MachineReport, print_left_out};
use super::compare::{self, Case, Compared, Plan, Row, compare};
use super::draw;
use super::failure::{Failure, print_json};
use super::link::{Interface, Setup, Span};
use super::placement::Spread;
use super::progress::Progress;
use super::rounds::Dropped;

/// What each of CC-NIC's features is worth: each off alone, off one after the other, and batch sizes
///
/// Every configuration is measured in turn, a short slice each, round after round; its ratio to the first of its group is
/// taken from slices of the same round, so that what the machine does meanwhile falls out.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Rounds, in each of which every configuration gets a slice
    #[arg(long, value_name = "NUMBER", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Bytes of a packet, 60 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=9600))]
    pub packet_size: u16,
    /// Packets in flight, where rates are measured, as many as two rings of 1024 descriptors hold at most; latencies are measured
    /// with one
    #[arg(long, value_name = "PACKETS", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=2048))]
    pub window: u64,
    /// Only this group
    #[arg(long, value_enum)]
    pub group: Option<Group>,
}

const EXAMPLES: &str = "Examples:
  conic bench ablations
  conic bench ablations --group cumulative
  conic bench ablations --json --rounds 20 > ablations.json

CC-NIC's Figures 14 (signals, descriptor layout), 15 (buffer management) and 16 (batch sizes) are the same experiments.";

/// Configurations that are compared with one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    /// The best features, each off alone
    Best,
    /// CC-NIC as published, each of its features off alone
    Paper,
    /// CC-NIC as published, and its buffer features off one after the other (Figure 15)
    Cumulative,
    /// Packets sent at once, with receive bursts of 32 (Figure 16a)
    TransmitBatch,
    /// Packets received at once, with transmit bursts of 32 (Figure 16b)
    ReceiveBatch,
}

const GROUPS: [Group; 5] = [Group::Best, Group::Paper, Group::Cumulative, Group::TransmitBatch, Group::ReceiveBatch];

/// Batch sizes, the one that the others are compared with first.
const BATCHES: [usize; 6] = [32, 16, 8, 4, 2, 1];

impl Group {
    fn name(self) -> &'static str {
        match self {
            Group::Best => "best",
            Group::Paper => "paper",
            Group::Cumulative => "cumulative",
            Group::TransmitBatch => "transmit-batch",
            Group::ReceiveBatch => "receive-batch",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Group::Best => "the best features, each off alone",
            Group::Paper => "CC-NIC as published, each feature off alone",
            Group::Cumulative => "CC-NIC as published, buffer features off one after the other",
            Group::TransmitBatch => "packets sent at once, received up to 32 at once",
            Group::ReceiveBatch => "packets received at once, sent up to 32 at once",
        }
    }

    fn has_latency(self) -> bool {
        !matches!(self, Group::TransmitBatch | Group::ReceiveBatch)
    }

    /// The configurations, the one that the others are compared with first.
    pub fn cases(self, setup: Setup) -> Vec<Case> {
        let with = |features: Features| {
            let workload = Workload { fetch_ahead: features.fetch_ahead, ..setup.workload };
            Setup { features, workload, ..setup }
        };
        let each_off = |name, all| -> Vec<Case> {
            one_off(name, all).into_iter().map(|(name, features)| Case::new(name, with(features))).collect()
        };
        match self {
            Group::Best => each_off("best", Features::best()),
            Group::Paper => each_off("paper", Features::paper()),
            Group::Cumulative => {
                let full = Features::paper();
                let unordered = Features { recycling: false, scattered: false, ..full };
                let large = Features { small_buffers: false, ..unordered };
                let own = Features { shared_pool: false, ..large };
                vec![
                    Case::new("paper", with(full)),
                    Case::new("no recycling, buffers in order", with(unordered)),
                    Case::new("and no small buffers", with(large)),
                    Case::new("and a pool of the host's only", with(own)),
                ]
            }
            Group::TransmitBatch => batches(setup, |workload, size| Workload { transmit_burst: size, ..workload }),
            Group::ReceiveBatch => batches(setup, |workload, size| Workload { receive_burst: size, ..workload }),
        }
    }
}

fn batches(setup: Setup, set: fn(Workload, usize) -> Workload) -> Vec<Case> {
    let case = |size: usize| Case::new(size.to_string(), Setup { workload: set(setup.workload, size), ..setup });
    BATCHES.into_iter().map(case).collect()
}

/// A set of features, and every set that differs from it in one.
fn one_off(name: &str, all: Features) -> Vec<(String, Features)> {
    let mut sets = vec![(name.to_owned(), all)];
    let mut add = |name: &str, features: Features| {
        if features != all {
            sets.push((name.to_owned(), features));
        }
    };
    add("signals cleared, not phased", Features { signal: Signal::Clear, ..all });
    add("signals phased, not cleared", Features { signal: Signal::Phase, ..all });
    add("signals in a register", Features { signal: Signal::Register, ..all });
    add("descriptors packed", Features { packing: Packing::Packed, ..all });
    add("descriptors padded", Features { packing: Packing::Padded, ..all });
    add("lines not written whole", Features { whole_line: false, ..all });
    if all.inline_payload {
        add("no payloads in the ring", Features { inline_payload: false, ..all });
    } else {
        add("payloads in the ring", Features { inline_payload: true, ..all });
    }
    if all.fetch_ahead {
        add("nothing fetched ahead", Features { fetch_ahead: false, ..all });
    } else {
        add("lines fetched ahead", Features { fetch_ahead: true, ..all });
    }
    add("no recycling", Features { recycling: false, ..all });
    add("buffers in order", Features { scattered: false, ..all });
    add("no small buffers", Features { small_buffers: false, ..all });
    add("a pool of the host's only", Features { shared_pool: false, ..all });
    sets
}

/// One configuration in one placement, for JSON.
#[derive(Clone, Debug, Serialize)]
struct Entry<'a> {
    group: &'static str,
    baseline: &'a str,
    placement: &'static str,
    one_line_round_trip_ns: Spread,
    #[serde(flatten)]
    row: &'a Row,
    /// Of the group.
    dropped_slices: Dropped,
    /// Whether nothing could be left out of the group.
    restless: bool,
    machine: &'a MachineReport,
}

/// Runs the command.
///
/// # Errors
///
/// If the machine refuses it.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (arena, machine) = arguments.common.arena(1)?;
    let setup = base(arguments.packet_size, arguments.window, arguments.common.pages());
    let mut progress = Progress::new();
    let mut all: Vec<(Group, Compared)> = Vec::new();
    for group in GROUPS.into_iter().filter(|&group| arguments.group.is_none_or(|only| only == group)) {
        progress.start(group.title());
        let plan = plan(group, usize::from(arguments.rounds), &setup);
        all.push((group, compare(&arena, &group.cases(setup), plan, arguments.common.placement, &mut progress)?));
    }
    progress.clear();
    let code = || Compared::code_of(all.iter().map(|(_, compared)| compared), (0, 0));
    if arguments.common.json {
        report_as_json(&all, &machine)?;
        return Ok(code());
    }
    println!("ablations of CC-NIC: packets of {} bytes, {} in flight", arguments.packet_size, arguments.window);
    machine.print();
    for (group, compared) in &all {
        for comparison in &compared.comparisons {
            println!("\n  {}", group.title());
            compare::print(comparison);
            println!();
            draw::on_terminal(&draw::bars(group.title(), comparison, ""));
        }
        print_left_out(compared.dropped, compared.restless);
    }
    Ok(code())
}

/// What every configuration starts from.
pub fn base(packet_size: u16, window: u64, pages: Pages) -> Setup {
    Setup {
        interface: Interface::Ccnic,
        features: Features::best(),
        workload: Workload { packet_size, window, transmit_burst: 32, receive_burst: 32, fetch_ahead: true },
        queues: 1,
        interval: None,
        descriptors: 1024,
        pages,
    }
}

/// Slices of 20 ms, and no more than three times as long as they should take.
fn plan(group: Group, rounds: usize, setup: &Setup) -> Plan {
    let span = Span { warm_up: Time::from_nanoseconds(4_000_000), measured: Time::from_nanoseconds(20_000_000) };
    let slices = group.cases(*setup).len() * if group.has_latency() { 2 } else { 1 } * rounds;
    let limit = Time::from_nanoseconds(3 * 28_000_000 * slices as u64);
    Plan { rounds, limit, span, latency: group.has_latency() }
}

fn report_as_json(all: &[(Group, Compared)], machine: &MachineReport) -> Result<(), Failure> {
    let mut entries = Vec::new();
    for (group, compared) in all {
        for comparison in &compared.comparisons {
            let baseline = comparison.rows.first().map_or("", |row| row.name.as_str());
            entries.extend(comparison.rows.iter().map(|row| Entry {
                group: group.name(),
                baseline,
                placement: comparison.placement,
                one_line_round_trip_ns: comparison.one_line_round_trip_ns,
                row,
                dropped_slices: compared.dropped,
                restless: compared.restless,
                machine,
            }));
        }
    }
    print_json(&entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_off_alone_once() {
        for (name, all, count) in [("best", Features::best(), 12), ("paper", Features::paper(), 12)] {
            let sets = one_off(name, all);
            assert_eq!(sets[0], (name.to_owned(), all));
            for (index, (name, set)) in sets.iter().enumerate().skip(1) {
                assert!(sets[..index].iter().all(|(_, other)| other != set), "{name} is there twice");
                let (text, base) = (set.to_string(), all.to_string());
                let differences = text.split(',').zip(base.split(',')).filter(|(a, b)| a != b).count();
                assert_eq!(differences, 1, "{name} differs from the base in one feature");
            }
            assert_eq!(sets.len(), count);
        }
    }

    #[test]
    fn a_group_compares_with_its_full_configuration_or_its_largest_batch() {
        let setup = base(64, 256, Pages::Plain);
        let first = |group: Group| group.cases(setup).remove(0).setup;
        assert_eq!(first(Group::Cumulative).features, Features::paper());
        assert_eq!(first(Group::TransmitBatch).workload.transmit_burst, 32);
        let sizes: Vec<_> =
            Group::ReceiveBatch.cases(setup).iter().map(|case| case.setup.workload.receive_burst).collect();
        assert_eq!(sizes, [32, 16, 8, 4, 2, 1]);
    }
}
