//! A service on one core, and on the other one the NIC with the clients behind it: how its designs are measured by turns, and shown.

use conic_fabric::{PlayedByCore, Time};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::{ccnic, ring};
use conic_load::Traffic;
use conic_native::{NativeCore, clock};
use serde::{Serialize, Serializer};

use super::arena::Arena;
use super::common::{Common, nanoseconds, placement_line, print_notes, range, three_digits};
use super::failure::Failure;
use super::link::Interface;
use super::placement::{Placement, Spread};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate, rounds_of};

/// How long a slice is measured.
const SLICE: Time = Time::from_nanoseconds(50_000_000);
/// What comes before it.
const WARM_UP: Time = Time::from_nanoseconds(10_000_000);
/// How long the next answer is waited for at the end, when nothing more is asked.
const PATIENCE: Time = Time::from_nanoseconds(1_000_000_000);

/// A design by its interface, and what differs over it.
pub type Name = (Interface, &'static str);

/// A queue pair between the two cores, and whose it is.
pub enum Queues {
    CcNic(Box<ccnic::Map>),
    Ring(ring::QueuePair),
}

impl Queues {
    /// Puts all buffers into the pool, where there is one.
    pub fn fill(&self, core: &NativeCore<'_>) {
        if let Queues::CcNic(map) = self {
            map.pool.fill(core);
        }
    }

    /// The service's half.
    pub fn host<'a>(&'a self, core: NativeCore<'a>) -> Box<dyn HostQueue<Core = NativeCore<'a>> + 'a> {
        match self {
            Queues::CcNic(map) => ccnic::host_queue(core, map, 0),
            Queues::Ring(pair) => Box::new(pair.host(core)),
        }
    }

    /// The NIC's half.
    pub fn nic<'a>(&'a self, core: NativeCore<'a>) -> Box<dyn NicQueue + 'a> {
        match self {
            Queues::CcNic(map) => ccnic::nic_queue(core, map, 0),
            Queues::Ring(pair) => Box::new(ring::Wire::new(pair.nic(PlayedByCore(core)), pair.shape())),
        }
    }
}

/// What a slice found.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Requests a second.
    rate: f64,
    /// Median latency, nanoseconds.
    median: f64,
    /// Requests that were answered, those of the warm-up and of the end with them.
    answers: u64,
    /// What a command counts beside.
    beside: f64,
}

impl Slice {
    /// The same with what a command counted beside, for each request that was answered.
    pub fn with(self, counted: u64) -> Slice {
        Slice { beside: counted as f64 / self.answers.max(1) as f64, ..self }
    }
}

/// A slice of what clients ask over a queue pair; none of it is under way any more behind it.
///
/// # Errors
///
/// What was not answered, or wrongly.
pub fn slice_of(network: &mut impl Traffic) -> Result<Slice, String> {
    slice_for(network, SLICE, PATIENCE)
}

fn slice_for(network: &mut impl Traffic, slice: Time, patience: Time) -> Result<Slice, String> {
    let (before, begins) = work(network, clock::now() + WARM_UP);
    network.account_mut().forget_latency();
    let (after, ends) = work(network, begins + slice);
    let median = network.account().latency().quantile(0.5);
    // No request is due from now on.
    network.pace(Time::NEVER, slice);
    // As long as answers come: what a wide window has under way takes longer than any fixed time.
    let (mut left, mut deadline) = (network.account().in_flight(), clock::now() + patience);
    while left > 0 && clock::now() < deadline {
        network.step();
        if network.account().in_flight() < left {
            (left, deadline) = (network.account().in_flight(), clock::now() + patience);
        }
    }
    let account = network.account();
    let (lost, wrong) = (account.lost() + account.in_flight(), account.corrupt());
    if lost + wrong > 0 {
        return Err(format!("{lost} requests were not answered and {wrong} wrongly"));
    }
    Ok(Slice {
        rate: (after - before) as f64 / ends.since(begins).seconds(),
        median: median.picoseconds() as f64 / 1e3,
        answers: account.received(),
        beside: 0.0,
    })
}

/// Has clients ask and check until a time; how many answers there are then, and when that is.
fn work(network: &mut impl Traffic, until: Time) -> (u64, Time) {
    while clock::now() < until {
        for _ in 0..16 {
            network.step();
        }
    }
    (network.account().received(), clock::now())
}

/// A design in one placement of the cores.
#[derive(Clone, Debug, Serialize)]
struct Row<M> {
    #[serde(serialize_with = "in_words")]
    design: Name,
    requests_per_second: Spread,
    median_ns: Spread,
    /// The rate over the first design's of the same round.
    ratio: Spread,
    /// What a command counts beside, in the median slice.
    #[serde(flatten)]
    beside: M,
}

fn in_words<S: Serializer>((interface, how): &Name, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}, {how}", interface.name()))
}

/// The designs in one placement of the cores, with what the command counts beside their rates.
#[derive(Clone, Debug, Serialize)]
pub struct Served<M> {
    placement: &'static str,
    slices: usize,
    designs: Vec<Row<M>>,
}

/// What was measured of designs, in the placements that were asked for.
pub struct Measured {
    names: Vec<Name>,
    slices: Slices<Slice>,
    chosen: Vec<Placement>,
}

/// Measures designs by turns, each for so long in all.
///
/// # Errors
///
/// What a measurement says, or that the machine was too restless for any.
pub fn measure(
    arena: &Arena,
    common: &Common,
    duration: Time,
    names: &[Name],
    measure: impl FnMut(usize) -> Result<Slice, Failure>,
) -> Result<Measured, Failure> {
    let mut progress = Progress::new();
    progress.start("designs");
    let until = Until::rounds(rounds_of(duration, SLICE), names.len(), SLICE + WARM_UP);
    let slices = alternate(arena, names.len(), until, &mut progress, measure)?;
    progress.clear();
    let complete = slices.complete(names.len());
    let chosen: Vec<Placement> = common.placement.of(&complete).into_iter().cloned().collect();
    let measured = Measured { names: names.to_vec(), slices, chosen };
    if measured.served(|_| ()).is_empty() { Err(Failure::restless()) } else { Ok(measured) }
}

impl Measured {
    /// Slices that were disturbed, and left out.
    pub fn dropped(&self) -> Dropped {
        self.slices.dropped
    }

    /// Whether the machine was too restless for all that was asked for.
    pub fn is_restless(&self) -> bool {
        self.slices.restless
    }

    /// Each placement's designs, with what the command counts beside in its own words.
    pub fn served<M>(&self, beside: impl Fn(f64) -> M) -> Vec<Served<M>> {
        self.chosen.iter().filter_map(|place| self.of_place(place, &beside)).collect()
    }

    fn of_place<M>(&self, place: &Placement, beside: impl Fn(f64) -> M) -> Option<Served<M>> {
        let row = |(subject, &design): (usize, &Name)| {
            let (rate, ratio) = self.slices.with_ratio_to_first(place, subject, |slice| slice.rate)?;
            Some(Row {
                design,
                requests_per_second: rate.rounded(0),
                median_ns: self.slices.spread(place, subject, |slice| slice.median)?.rounded(1),
                ratio: ratio.rounded(2),
                beside: beside(self.slices.spread(place, subject, |slice| slice.beside)?.median),
            })
        };
        let designs = self.names.iter().enumerate().map(row).collect::<Option<_>>()?;
        Some(Served { placement: place.label, slices: place.members.len(), designs })
    }

    /// Prints a table a placement, whose last column is what the command counts beside: `note` says what that is.
    pub fn print(&self, beside: impl Fn(f64) -> String, note: &str) {
        for place in &self.chosen {
            let Some(served) = self.of_place(place, &beside) else { continue };
            println!("\n  {}", placement_line(place, served.slices, SLICE));
            let mut over = None;
            for Row { design, requests_per_second: rate, median_ns, ratio, beside } in &served.designs {
                let (interface, how) = *design;
                if over.replace(interface) != Some(interface) {
                    println!("    {}", interface.name());
                }
                println!("{}", row(how, *rate, *median_ns, *ratio, beside));
            }
            println!("    million requests a second and their median latency: medians over slices, and");
            println!("    the slices' range; the rate over the first one's of the same round;");
            println!("    {note}");
        }
        print_notes(&self.slices);
    }
}

/// A design's line. Whatever the figures are, a terminal of 80 columns has it.
fn row(how: &str, rate: Spread, median_ns: Spread, ratio: Spread, beside: &str) -> String {
    // A machine that is taken away for most of the time gives thousandths, which nobody compares.
    let short = |value: f64| if value < 0.1 { format!("{value:.2}") } else { three_digits(value) };
    let millions = |value: f64| short(value / 1e6);
    format!(
        "     {how:20} {:>4} {:14} {:>7} {:>4} {:14} {beside:>6}",
        millions(rate.median),
        range(rate, millions),
        nanoseconds(median_ns.median),
        short(ratio.median),
        range(ratio, short),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conic_fabric::Layout;
    use conic_interface::burst::NicQueue;
    use conic_kv::{Catalogue, Clients, Demand, Sizes};
    use conic_load::{Account, Network};
    use conic_native::{Memory, Pages};

    use super::*;

    #[test]
    fn a_line_is_no_wider_than_a_terminal_whatever_the_machine_does() {
        let of = |[min, median, max]: [f64; 3]| Spread { min, median, max };
        for (rate, median, ratio) in [
            ([7_700.0, 7_710.0, 40_123.0], 8.004e6, [0.0196, 0.0203, 0.0401]),
            ([12_345_678.0, 123_456_789.0, 234_567_890.0], 1_284.0, [10.04, 12.34, 123.4]),
            ([0.0, 400_000.0, 812_345.0], 12.34e9, [0.0, 1.0, 12.34]),
        ] {
            let line = row("from where they lie", of(rate), of([median; 3]), of(ratio), "1.684%");
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    /// A queue pair whose store stands still.
    struct Silent;

    impl NicQueue for Silent {
        fn turn_around(&mut self) -> usize {
            0
        }
        fn take_frame(&mut self, _: &mut [u8]) -> Option<usize> {
            None
        }
        fn deliver_frame(&mut self, _: &[u8]) -> bool {
            true
        }
        fn spin(&self) {}
        fn refused(&self) -> u64 {
            0
        }
        fn dropped(&self) -> u64 {
            0
        }
    }

    #[test]
    fn requests_that_nobody_answers_are_said_to_be_so() {
        let memory = Memory::create(&Layout::new(), Pages::Plain).expect("a small region");
        let demand = Demand { keys: 10, sizes: Sizes::Bytes(8), zipf: 0.0, sets: 0, seed: 1 };
        let clients = Clients::new(Arc::new(Catalogue::new(demand)), 7, 1);
        let mut network = Network::new(NativeCore::new(&memory), Silent, clients);
        let short = Time::from_nanoseconds(1_000_000);
        let error = slice_for(&mut network, short, short).expect_err("nothing was answered");
        assert_eq!(error, "7 requests were not answered and 0 wrongly");
    }

    /// Eight requests, of which one is answered each tenth of a second.
    struct Slow {
        account: Account,
        next: Time,
    }

    impl Traffic for Slow {
        fn step(&mut self) -> usize {
            let now = clock::now();
            if now < self.next || self.account.in_flight() == 0 {
                return 0;
            }
            self.account.enter(self.account.expected());
            self.account.took(now.picoseconds(), now.picoseconds(), 1);
            self.next = now + Time::from_nanoseconds(100_000_000);
            1
        }
        fn account(&self) -> &Account {
            &self.account
        }
        fn account_mut(&mut self) -> &mut Account {
            &mut self.account
        }
        fn pace(&mut self, _: Time, _: Time) {}
    }

    #[test]
    fn answers_are_waited_for_as_long_as_they_come() {
        let mut account = Account::default();
        for _ in 0..8 {
            account.send();
        }
        let mut slow = Slow { account, next: clock::now() };
        let (short, patience) = (Time::from_nanoseconds(1_000_000), Time::from_nanoseconds(500_000_000));
        let slice = slice_for(&mut slow, short, patience).expect("they come");
        assert_eq!(slice.answers, 8);
    }
}
