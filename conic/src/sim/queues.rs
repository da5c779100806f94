//! `--queues` of `conic sim`, `conic sim cxl` and `conic sim pio`: how full a machine's queues were, and what the parts of a host of two
//! nodes did.

use std::collections::BTreeMap;

use conic_chart::{Align, Column, Table, TerminalStyle};
use conic_sim::machine::Machine;
use conic_sim::machine::window::Window;
use conic_sim::probe::counters::{Counters, Named, SnoopFilterCounters};
use conic_sim::probe::queues::QueueReport;
use conic_study::simulated::Observer;
use serde::Serialize;

use crate::bench::common::{nanoseconds, three_digits};
use crate::bench::placement::rounded;

/// Plain text.
const STYLE: TerminalStyle = TerminalStyle { colour: false, ascii: false };

/// Looks at the queues of a run while it measures.
#[derive(Debug, Default)]
pub struct Looking(Option<Window>);

impl Observer for Looking {
    fn begins(&mut self, machine: &mut Machine) {
        machine.probe_queues();
    }
    fn ends(&mut self, machine: &mut Machine) {
        self.0 = machine.window().cloned();
    }
}

/// Looks at the queues of a run on a machine with a CXL device, or on one over ECI.
#[derive(Debug, Default)]
pub struct Watching(Option<Vec<QueueReport>>);

impl Observer<conic_sim::cxl::Machine> for Watching {
    fn begins(&mut self, machine: &mut conic_sim::cxl::Machine) {
        machine.probe_queues();
    }
    fn ends(&mut self, machine: &mut conic_sim::cxl::Machine) {
        self.0 = Some(machine.queue_reports());
    }
}

impl Observer<conic_sim::eci::Machine> for Watching {
    fn begins(&mut self, machine: &mut conic_sim::eci::Machine) {
        machine.probe_queues();
    }
    fn ends(&mut self, machine: &mut conic_sim::eci::Machine) {
        self.0 = Some(machine.queue_reports());
    }
}

/// What was seen of one of these.
#[derive(Clone, Debug, Serialize)]
pub struct Watched {
    queues: Vec<Queue>,
}

impl Watching {
    /// What was seen of the run.
    pub fn seen(self) -> Option<Watched> {
        Some(Watched { queues: self.0?.into_iter().map(Queue::of).collect() })
    }
}

/// A queue over the time that was measured.
#[derive(Clone, Debug, Serialize)]
struct Queue {
    queue: &'static str,
    of: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    mean_occupancy: f64,
    most: u64,
    arrivals: u64,
    departures: u64,
    mean_time_ns: f64,
    /// Whether the integral of the occupancy is the sum of the stays, exactly.
    littles_law_holds: bool,
}

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    queues: Vec<Queue>,
    counters: Counters,
}

impl Looking {
    /// What was seen of the run.
    pub fn seen(self) -> Option<Seen> {
        let Window { counters, queues } = self.0?;
        Some(Seen { queues: queues.into_iter().map(Queue::of).collect(), counters })
    }
}

impl Queue {
    fn of(report: QueueReport) -> Queue {
        let little = &report.little;
        Queue {
            queue: report.kind,
            mean_occupancy: rounded(little.mean_occupancy, 4),
            most: little.maximum_occupancy,
            arrivals: little.arrivals,
            departures: little.departures,
            mean_time_ns: rounded(little.mean_residence_nanoseconds, 3),
            littles_law_holds: little.holds(),
            of: report.of,
            limit: report.limit,
        }
    }

    /// Whose it is, without the number of the core, the slice, the link or the channel.
    fn side(&self) -> &str {
        self.of.trim_end_matches(|last: char| last.is_ascii_digit()).trim_end()
    }
}

/// Queues of one kind and side.
#[derive(Default)]
struct Group {
    number: usize,
    occupancy: f64,
    most: u64,
    limit: Option<u64>,
    arrivals: u64,
    departures: u64,
    time: f64,
}

/// Prints what was seen of a host of two nodes.
pub fn print(seen: &Seen, packets: u64) {
    println!(
        "\n  queues while it was measured; --json has each of them, and the counters of each\n  agent, link, memory and snoop filter"
    );
    print_table(&seen.queues, &conic_sim::machine::queues::KINDS, ("a packet", packets));
    print_filters(&seen.counters.snoop_filters);
    print_law(&seen.queues);
}

/// Prints what was seen of another machine, whose queues are of these kinds; `each` is what arrivals are counted by, and how many there were.
pub fn print_watched(seen: &Watched, kinds: &[&str], each: (&str, u64)) {
    println!("\n  queues while it was measured; --json has each of them");
    print_table(&seen.queues, kinds, each);
    print_law(&seen.queues);
}

/// Prints queues of one kind and side together, in the order of the kinds.
fn print_table(queues: &[Queue], kinds: &[&str], (each, number): (&str, u64)) {
    let mut groups: BTreeMap<(usize, &str, &str), Group> = BTreeMap::new();
    for queue in queues {
        let rank = kinds.iter().position(|kind| *kind == queue.queue).unwrap_or(kinds.len());
        let group = groups.entry((rank, queue.queue, queue.side())).or_default();
        group.number += 1;
        group.occupancy += queue.mean_occupancy;
        group.most = group.most.max(queue.most);
        group.limit = queue.limit;
        group.arrivals += queue.arrivals;
        group.departures += queue.departures;
        group.time += queue.mean_time_ns * queue.departures as f64;
    }
    let right = |name: &str, unit: &str| Column { align: Align::Right, unit: unit.to_owned(), ..Column::text(name) };
    let names = [Column::text("queue"), Column::text("of"), right("", "number")];
    let figures = [right("inside", "mean"), right("", "most"), right("arrivals", each), right("time", "mean")];
    let mut table = Table::new(names.into_iter().chain(figures));
    for ((_, kind, side), group) in &groups {
        let most = group.limit.map_or(group.most.to_string(), |limit| format!("{} of {limit}", group.most));
        table.row([
            (*kind).into(),
            (*side).into(),
            group.number.to_string().into(),
            three_digits(group.occupancy / group.number as f64).into(),
            most.into(),
            three_digits(group.arrivals as f64 / number.max(1) as f64).into(),
            nanoseconds(group.time / group.departures.max(1) as f64).into(),
        ]);
    }
    print!("{}", table.draw(STYLE));
}

/// Says whether the figures can be right.
fn print_law(queues: &[Queue]) {
    let (all, broken) = (queues.len(), queues.iter().filter(|queue| !queue.littles_law_holds).count());
    match broken {
        0 => println!("  Little's law holds for all {all} queues, to the picosecond"),
        broken => println!("  Little's law does not hold for {broken} of {all} queues: their figures are wrong"),
    }
}

/// Prints what the nodes' snoop filters gave up, where these have a limit.
fn print_filters(filters: &[Named<SnoopFilterCounters>]) {
    if filters.is_empty() {
        return;
    }
    let right = |name: &str, unit: &str| Column { align: Align::Right, unit: unit.to_owned(), ..Column::text(name) };
    let figures = [right("entries", "given up"), right("copies", "recalled"), right("requests", "that waited")];
    let mut table = Table::new([Column::text("")].into_iter().chain(figures));
    for Named { name, counters } in filters {
        let SnoopFilterCounters { evictions, recalled, waits } = counters;
        table.row([name.as_str().into()].into_iter().chain([evictions, recalled, waits].map(|n| n.to_string().into())));
    }
    print!("{}", table.draw(STYLE));
}
