//! Which request types, placements and batch sizes are best for packets of a size: a search over all of them in the simulator.

use std::collections::{BTreeMap, BTreeSet};

use conic_fabric::{Home, StateHint, Time};
use conic_interface::cxl::{Requests, Signal, Store};
use conic_sim::Failure;
use conic_sim::cxl::CxlParameters;

use super::loopback::{Design, Loopback, loopback};
use super::percentile;
use super::throughput::{Throughput, receive, transmit};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The lowest median latency of a loopback.
    Latency,
    /// The highest throughput of each direction.
    Throughput,
}

/// A question.
#[derive(Clone, Debug)]
pub struct Question {
    /// The machine.
    pub machine: CxlParameters,
    /// Bytes of a packet.
    pub bytes: usize,
    /// Packets a second; none: one at a time.
    pub load: Option<f64>,
    /// What is wanted.
    pub goal: Goal,
    /// The device has memory of its own.
    pub memory: bool,
    /// Ring pairs that share the load, each with a core of its own.
    pub rings: usize,
}

/// What one choice of the advice brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The step or structure.
    pub what: &'static str,
    /// What is advised, and what the reference has.
    pub choice: [String; 2],
    /// How much worse the advice is with the reference's choice, in nanoseconds or Gb/s.
    pub worth: f64,
    /// Messages a packet with the reference's choice less those without, by kind, where they differ; for latency alone.
    pub messages: BTreeMap<&'static str, f64>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The best design. For throughput its halves were found apart, and its batch is that of transmission.
    pub design: Design,
    /// The batch of reception.
    pub receive_batch: usize,
    /// Its median latency in nanoseconds, or its throughput to the host and from it in Gb/s.
    pub value: Vec<f64>,
    /// The same of the paper's configuration for this device.
    pub reference: Vec<f64>,
    /// Simulations that it took.
    pub looked_at: usize,
    /// What each choice brings that differs from the paper's.
    pub reasons: Vec<Reason>,
}

const NC: StateHint = StateHint::NonCacheable;
const PUSH: StateHint = StateHint::NonCacheablePush;
const SHARED: StateHint = StateHint::CacheableShared;
const OWNED: StateHint = StateHint::CacheableOwned;

/// A hint's name in the paper.
pub fn hint_name(hint: StateHint) -> &'static str {
    match hint {
        StateHint::NonCacheable => "NC",
        StateHint::NonCacheablePush => "NC-P",
        StateHint::CacheableShared => "CS",
        StateHint::CacheableOwned => "CO",
    }
}

/// Which half of a NIC a choice belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// From the device to the host.
    Receive,
    /// From the host to the device.
    Transmit,
}

/// One thing that may be chosen: its name, what a design has of it, and how a design takes it from another.
struct Choice {
    what: &'static str,
    half: Half,
    of: fn(&Design) -> String,
    take: fn(&mut Design, &Design),
}

fn home_name(home: Home) -> &'static str {
    if home == Home::Host { "host memory" } else { "device memory" }
}

/// A [`Choice`] of a request type, or of a structure's home: the field of a design that it is.
macro_rules! choice {
    ($half:ident, $what:literal, $name:path, $($field:ident).+) => {
        Choice {
            what: $what,
            half: Half::$half,
            of: |design| $name(design.$($field).+).to_owned(),
            take: |design, from| design.$($field).+ = from.$($field).+,
        }
    };
}

const CHOICES: &[Choice] = &[
    choice!(Receive, "receive packet", hint_name, requests.rx_packet),
    choice!(Receive, "receive completion", hint_name, requests.rx_completion),
    choice!(Receive, "receive ring", home_name, homes.rx_ring),
    choice!(Receive, "receive buffers", home_name, homes.rx_buffers),
    choice!(Transmit, "polling for packets to transmit", hint_name, requests.tx_poll),
    choice!(Transmit, "transmit packet", hint_name, requests.tx_packet),
    choice!(Transmit, "transmit ring", home_name, homes.tx_ring),
    Choice {
        what: "transmit buffers, and how the host stores",
        half: Half::Transmit,
        of: |design| {
            let store = if design.store == Store::Cached { "cached stores" } else { "non-temporal stores" };
            let bias = if design.device_bias { ", device-bias" } else { "" };
            format!("{}, {store}{bias}", home_name(design.homes.tx_buffers))
        },
        take: |design, from| {
            design.homes.tx_buffers = from.homes.tx_buffers;
            (design.store, design.device_bias) = (from.store, from.device_bias);
        },
    },
    Choice {
        what: "batch",
        half: Half::Transmit,
        of: |design| design.batch.to_string(),
        take: |design, from| design.batch = from.batch,
    },
];

/// Homes that a structure may have.
fn homes(memory: bool) -> Vec<Home> {
    if memory { vec![Home::Host, Home::Nic] } else { vec![Home::Host] }
}

/// Where transmit buffers may lie, how the host stores them, and whether the device asks before it reads them. Device-bias needs
/// stores that leave the host no copy.
fn transmit_buffers(memory: bool) -> Vec<(Home, Store, bool)> {
    let mut all = vec![(Home::Host, Store::Cached, false), (Home::Host, Store::Nontemporal, false)];
    if memory {
        all.extend([
            (Home::Nic, Store::Cached, false),
            (Home::Nic, Store::Nontemporal, false),
            (Home::Nic, Store::Nontemporal, true),
        ]);
    }
    all
}

/// Designs of one half, the other half as in `base`.
fn halves(half: Half, base: Design, memory: bool, batches: &[usize]) -> Vec<Design> {
    let mut all = vec![base];
    match half {
        Half::Receive => {
            all = each(&all, &[NC, PUSH, OWNED], |design, hint| design.requests.rx_packet = *hint);
            all = each(&all, &[NC, PUSH, OWNED], |design, hint| design.requests.rx_completion = *hint);
            all = each(&all, &homes(memory), |design, home| design.homes.rx_ring = *home);
            all = each(&all, &homes(memory), |design, home| design.homes.rx_buffers = *home);
        }
        Half::Transmit => {
            all = each(&all, &[NC, SHARED, OWNED], |design, hint| design.requests.tx_poll = *hint);
            all = each(&all, &[NC, SHARED, OWNED], |design, hint| design.requests.tx_packet = *hint);
            all = each(&all, &homes(memory), |design, home| design.homes.tx_ring = *home);
            all = each(&all, &transmit_buffers(memory), |design, (home, store, device_bias)| {
                design.homes.tx_buffers = *home;
                (design.store, design.device_bias) = (*store, *device_bias);
            });
        }
    }
    each(&all, batches, |design, batch| design.batch = *batch)
}

/// Each of some designs with each of some values.
fn each<T>(designs: &[Design], values: &[T], set: impl Fn(&mut Design, &T)) -> Vec<Design> {
    let with = |design: &Design, value: &T| {
        let mut design = *design;
        set(&mut design, value);
        design
    };
    designs.iter().flat_map(|design| values.iter().map(|value| with(design, value)).collect::<Vec<_>>()).collect()
}

/// A design with the receive half of one and the transmit half of another.
fn joined(receive: &Design, transmit: &Design) -> Design {
    let mut design = *transmit;
    for choice in CHOICES.iter().filter(|choice| choice.half == Half::Receive) {
        (choice.take)(&mut design, receive);
    }
    design
}

/// The paper's configuration for a question: section 7.2's with memory, combination 0 without.
pub fn reference(question: &Question) -> Design {
    let design = if question.memory { super::optimal() } else { Design::combination(0) };
    let batch = if question.goal == Goal::Throughput { 16 } else { 1 };
    // Section 7.1 takes CO-read to poll where throughput counts.
    let tx_poll = if question.goal == Goal::Throughput { OWNED } else { design.requests.tx_poll };
    let requests = Requests { tx_poll, tx_signal: Signal::Descriptor, ..design.requests };
    Design { batch, requests, rings: question.rings, ..design }
}

/// A simulation that the search asks for. Each depends on nothing but its question and itself, so that several may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trial {
    design: Design,
    /// The direction whose throughput is wanted; none: the latency of a loopback is.
    rate_of: Option<Half>,
    /// A longer look, which decides.
    long: bool,
}

/// What a trial found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// A median in nanoseconds, or Gb/s.
    value: f64,
    /// Messages a packet, by kind; of a loopback.
    messages: BTreeMap<&'static str, f64>,
}

impl Trial {
    /// Simulates it.
    ///
    /// # Errors
    ///
    /// The simulator's.
    pub fn run(&self, question: &Question) -> Result<Outcome, Failure> {
        let (machine, bytes, design) = (question.machine.clone(), question.bytes, self.design);
        let Some(half) = self.rate_of else {
            let packets = if self.long { (300, 200) } else { (4, 24) };
            let one_at_a_time = Time::from_nanoseconds(20_000);
            let gap = question.load.map_or(one_at_a_time, |load| Time::from_picoseconds((1e12 / load) as u64));
            let outcome = loopback(&Loopback { machine, design, bytes, gap, together: 1, packets, seed: 0 })?;
            let each = outcome.latencies.len() as f64;
            let messages = outcome.counters.messages.iter().map(|(kind, count)| (kind, count as f64 / each));
            return Ok(Outcome { value: percentile(&outcome.latencies, 0.5), messages: messages.collect() });
        };
        let asked = Throughput { machine, design, bytes, packets: if self.long { 600 } else { 100 } };
        let value = match half {
            Half::Receive => receive(&asked)?,
            Half::Transmit => transmit(&asked)?,
        };
        Ok(Outcome { value, messages: BTreeMap::new() })
    }

    /// How good what was found is: less is better.
    fn badness(&self, outcome: &Outcome) -> f64 {
        if self.rate_of.is_some() { -outcome.value } else { outcome.value }
    }
}

/// Answers trials, in their order.
pub type Answers<'a> = dyn FnMut(&[Trial]) -> Vec<Result<Outcome, Failure>> + 'a;

/// Runs of the search.
struct Search<'a> {
    question: &'a Question,
    /// What was simulated once is not simulated again: the halves' searches come back to the same designs.
    known: BTreeMap<Trial, Outcome>,
    answers: &'a mut Answers<'a>,
}

impl Search<'_> {
    /// What trials find, in their order.
    fn find(&mut self, trials: &[Trial]) -> Result<Vec<Outcome>, Failure> {
        let new: BTreeSet<Trial> = trials.iter().copied().filter(|trial| !self.known.contains_key(trial)).collect();
        let new: Vec<Trial> = new.into_iter().collect();
        for (trial, outcome) in new.iter().zip((self.answers)(&new)) {
            self.known.insert(*trial, outcome?);
        }
        Ok(trials.iter().map(|trial| self.known[trial].clone()).collect())
    }

    fn find_one(&mut self, trial: Trial) -> Result<Outcome, Failure> {
        self.find(&[trial]).map(|mut found| found.remove(0))
    }

    /// The best of some designs, the first among them, which is what there was before: the best few by a short look, and of those and
    /// the first the best by a longer one. So what is found is never worse than what there was.
    fn best(&mut self, first: Design, others: Vec<Design>, rate_of: Option<Half>) -> Result<Design, Failure> {
        const FINALISTS: usize = 12;
        let trials = |designs: &[Design], long| -> Vec<Trial> {
            designs.iter().map(|design| Trial { design: *design, rate_of, long }).collect()
        };
        let short = trials(&others, false);
        let mut ranked: Vec<(f64, Design)> = self
            .find(&short)?
            .iter()
            .zip(&short)
            .map(|(outcome, trial)| (trial.badness(outcome), trial.design))
            .collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        let finalists = ranked.into_iter().map(|(_, design)| design).filter(|design| *design != first).take(FINALISTS);
        let long = trials(&std::iter::once(first).chain(finalists).collect::<Vec<Design>>(), true);
        let found = self.find(&long)?;
        let badness = found.iter().zip(&long).map(|(outcome, trial)| (trial.badness(outcome), trial.design));
        // The first of those that are as good.
        let best = badness.reduce(|best, next| if next.0 < best.0 { next } else { best });
        Ok(best.map_or(first, |(_, design)| design))
    }

    /// The lowest latency: the halves in turn, each with the other's best, until neither gets better.
    fn lowest(mut self) -> Result<Advice, Failure> {
        let start = reference(self.question);
        let memory = self.question.memory;
        let mut design = start;
        loop {
            let before = design;
            for half in [Half::Receive, Half::Transmit] {
                design = self.best(design, halves(half, design, memory, &[1]), None)?;
            }
            if design == before {
                break;
            }
        }
        let trial = |design| Trial { design, rate_of: None, long: true };
        let (found, of_reference) = (self.find_one(trial(design))?, self.find_one(trial(start))?);
        let changes: Vec<(&Choice, Design)> = differences(&design, &start).collect();
        let without = self.find(&changes.iter().map(|(_, other)| trial(*other)).collect::<Vec<Trial>>())?;
        let reasons = changes.iter().zip(&without).map(|((choice, _), without)| {
            let kinds = found.messages.keys().chain(without.messages.keys()).copied();
            let at = |of: &Outcome, kind| of.messages.get(kind).copied().unwrap_or(0.0);
            let saved = kinds.map(|kind| (kind, at(without, kind) - at(&found, kind)));
            let saved = saved.filter(|(_, count)| count.abs() > 0.05).collect();
            reason(choice, &design, &start, without.value - found.value, saved)
        });
        let (reasons, value, reference) = (reasons.collect(), vec![found.value], vec![of_reference.value]);
        Ok(Advice { design, receive_batch: design.batch, value, reference, looked_at: self.known.len(), reasons })
    }

    /// The highest throughput of each direction.
    fn highest(mut self) -> Result<Advice, Failure> {
        let start = reference(self.question);
        let (mut halves_found, mut value, mut of_reference, mut reasons) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (half, batches) in [(Half::Receive, [8, 24]), (Half::Transmit, [24, 96])] {
            let all = halves(half, start, self.question.memory, &batches);
            let best = self.best(start, all, Some(half))?;
            let trial = |design| Trial { design, rate_of: Some(half), long: true };
            let rate = self.find_one(trial(best))?.value;
            of_reference.push(self.find_one(trial(start))?.value);
            let changes: Vec<(&Choice, Design)> = differences(&best, &start).collect();
            let without = self.find(&changes.iter().map(|(_, other)| trial(*other)).collect::<Vec<Trial>>())?;
            for ((choice, _), without) in changes.iter().zip(&without) {
                reasons.push(reason(choice, &best, &start, rate - without.value, BTreeMap::new()));
            }
            value.push(rate);
            halves_found.push(best);
        }
        let design = joined(&halves_found[0], &halves_found[1]);
        let (receive_batch, looked_at) = (halves_found[0].batch, self.known.len());
        Ok(Advice { design, receive_batch, value, reference: of_reference, looked_at, reasons })
    }
}

/// The choices in which a design differs from another, and the design with the other's choice.
fn differences<'a>(design: &'a Design, from: &'a Design) -> impl Iterator<Item = (&'static Choice, Design)> + 'a {
    CHOICES.iter().filter(|choice| (choice.of)(design) != (choice.of)(from)).map(|choice| {
        let mut other = *design;
        (choice.take)(&mut other, from);
        (choice, other)
    })
}

fn reason(
    choice: &Choice,
    design: &Design,
    from: &Design,
    worth: f64,
    messages: BTreeMap<&'static str, f64>,
) -> Reason {
    Reason { what: choice.what, choice: [(choice.of)(design), (choice.of)(from)], worth, messages }
}

/// What a design has of everything that may be chosen.
pub fn described(design: &Design) -> Vec<(&'static str, String)> {
    CHOICES.iter().map(|choice| (choice.what, (choice.of)(design))).collect()
}

/// Searches. `answers` runs trials of the question, by [`Trial::run`], one after the other or several at once.
///
/// # Errors
///
/// The simulator's.
pub fn advise<'a>(question: &'a Question, answers: &'a mut Answers<'a>) -> Result<Advice, Failure> {
    let search = Search { question, known: BTreeMap::new(), answers };
    match question.goal {
        Goal::Latency => search.lowest(),
        Goal::Throughput => search.highest(),
    }
}
