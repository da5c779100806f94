//! Which request types, placements and batch sizes are best for packets of a size: a search in the simulator.

mod choices;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use conic_fabric::Time;
use conic_interface::cxl::{Requests, Signal};
use conic_sim::Failure;
use conic_sim::cxl::{Counters, CxlParameters};

use super::loopback::{Design, Loopback, around, loopback};
use super::percentile;
use super::throughput::{Throughput, receive, transmit};
use choices::{Choice, Group, OWNED, designs, differences, joined};
pub use choices::{Half, choose, described, hint_name};

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
    /// How much worse the advice is with the reference's choice, in nanoseconds or Gb/s; none: the load is not carried then.
    pub worth: Option<f64>,
    /// Messages a packet with the reference's choice less those without, by kind, where they differ.
    pub messages: BTreeMap<&'static str, f64>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The best design. For throughput its halves were found apart.
    pub design: Design,
    /// Its median latency in nanoseconds, or its throughput to the host and from it in Gb/s.
    pub value: Vec<f64>,
    /// The same of the paper's configuration for this device; none where that does not carry the load.
    pub reference: Option<Vec<f64>>,
    /// Simulations that it took.
    pub looked_at: usize,
    /// What each choice brings that differs from the paper's.
    pub reasons: Vec<Reason>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum NoAdvice {
    /// The simulator's failure.
    Failed(Failure),
    /// No design that was found carries the load: packets a second that are asked for, and that the best of them carries.
    Overloaded {
        /// As the question has it.
        load: f64,
        /// By the design whose latency grows least.
        carried: f64,
    },
}

impl From<Failure> for NoAdvice {
    fn from(failure: Failure) -> NoAdvice {
        NoAdvice::Failed(failure)
    }
}

impl fmt::Display for NoAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAdvice::Failed(failure) => failure.fmt(f),
            NoAdvice::Overloaded { load, carried } => {
                let (load, carried) = (load / 1e6, carried / 1e6);
                write!(
                    f,
                    "no design carries {load} million packets a second, so that latency grows as long as they come; the best of them carries \
                     about {carried:.2} million: give less load, or more rings"
                )
            }
        }
    }
}

impl std::error::Error for NoAdvice {}

/// The paper's configuration for a question: section 7.2's with memory, combination 0 without.
pub fn reference(question: &Question) -> Design {
    let design = if question.memory { super::optimal() } else { Design::combination(0) };
    // Section 7.1 takes CO-read to poll where throughput counts, and batches of 8 and of 32.
    let (tx_poll, receive_batch, transmit_batch) = match question.goal {
        Goal::Latency => (design.requests.tx_poll, 1, 1),
        Goal::Throughput => (OWNED, 8, 32),
    };
    let requests = Requests { tx_poll, tx_signal: Signal::Descriptor, ..design.requests };
    Design { receive_batch, transmit_batch, requests, rings: question.rings, ..design }
}

/// Batches that are tried, of either half.
fn batches(question: &Question, half: Half) -> &'static [usize] {
    match (question.goal, half) {
        // A packet that comes alone goes alone.
        (Goal::Latency, _) if question.load.is_none() => &[1],
        (Goal::Latency, Half::Receive) => &[1, 8, 24],
        (Goal::Latency, Half::Transmit) => &[1, 8, 32],
        (Goal::Throughput, Half::Receive) => &[1, 8, 24],
        (Goal::Throughput, Half::Transmit) => &[8, 32, 96],
    }
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
    /// Packets a second that come back, where those are fewer than come: the longer it goes on, the higher the latency.
    carried: Option<f64>,
    /// Messages a packet, by kind.
    messages: Messages,
}

/// How much higher the median of the second half of the packets may be than that of the first where the load is carried, and by what part of
/// the time between them: a queue that is long already grows by little of itself.
const GROWTH: f64 = 0.1;
const GROWTH_OVER_TIME: f64 = 0.02;

/// What of a load comes back where latencies grow, in packets a second.
fn carried(load: f64, latencies: &[u64]) -> Option<f64> {
    let (first, second) = latencies.split_at(latencies.len() / 2);
    let [before, after] = [first, second].map(|half| percentile(half, 0.5));
    let gap = 1e9 / load;
    // From the middle of one half to that of the other.
    let growth = (after - before) / first.len() as f64;
    (after - before > GROWTH * before || growth > GROWTH_OVER_TIME * gap).then(|| 1e9 / (gap + growth))
}

/// Messages, by kind.
type Messages = BTreeMap<&'static str, f64>;

fn a_packet(counters: &Counters, packets: u64) -> Messages {
    counters.messages.iter().map(|(kind, count)| (kind, count as f64 / packets as f64)).collect()
}

/// By how much the second has more of each kind, where it is worth a word.
fn saved(found: &Messages, without: &Messages) -> Messages {
    let at = |of: &Messages, kind| of.get(kind).copied().unwrap_or(0.0);
    let kinds = found.keys().chain(without.keys()).copied();
    kinds.map(|kind| (kind, at(without, kind) - at(found, kind))).filter(|(_, count)| count.abs() > 0.05).collect()
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
            return self.latency(question);
        };
        let packets = if self.long { (around(&design, bytes).max(300), 600) } else { (50, 100) };
        let asked = Throughput { machine, design, bytes, packets };
        let flow = match half {
            Half::Receive => receive(&asked)?,
            Half::Transmit => transmit(&asked)?,
        };
        Ok(Outcome { value: flow.gigabits, carried: None, messages: a_packet(&flow.counters, flow.packets) })
    }

    /// A short look is at how caches fill, which chooses those that are looked at for long, once all buffers have been used. Under load that is
    /// long enough that a queue which grows is seen to.
    fn latency(&self, question: &Question) -> Result<Outcome, Failure> {
        let (machine, bytes, design) = (question.machine.clone(), question.bytes, self.design);
        // Packets before the first that counts, and those that count.
        let packets = match (self.long, question.load) {
            (false, None) => (4, 24),
            (true, None) => (around(&design, bytes), 200),
            (false, Some(_)) => (32, 96),
            // What comes in 60 us, of which one in a hundred that is not carried is a good part of a latency.
            (true, Some(load)) => {
                let counting = 600.max((load * 60e-6) as u64);
                (around(&design, bytes).max(counting / 2), counting)
            }
        };
        let one_at_a_time = Time::from_nanoseconds(20_000);
        let gap = question.load.map_or(one_at_a_time, |load| Time::from_picoseconds((1e12 / load) as u64));
        let outcome = loopback(&Loopback { machine, design, bytes, gap, together: 1, packets, seed: 0 })?;
        let messages = a_packet(&outcome.counters, outcome.counted());
        let carried = question.load.and_then(|load| carried(load, &outcome.latencies));
        Ok(Outcome { value: percentile(&outcome.latencies, 0.5), carried, messages })
    }

    /// How bad what was found is: that it does not carry the load, then what is wanted. A short look shows only the latter.
    fn badness(&self, outcome: &Outcome) -> (bool, f64) {
        let value = if self.rate_of.is_some() { -outcome.value } else { outcome.value };
        (self.long && outcome.carried.is_some(), value)
    }
}

/// Whether the first is less bad.
fn better(one: (bool, f64), other: (bool, f64)) -> bool {
    one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)).is_lt()
}

/// Answers trials, in their order.
pub type Answers<'a> = dyn FnMut(&[Trial]) -> Vec<Result<Outcome, Failure>> + 'a;

/// Runs of the search.
struct Search<'a> {
    question: &'a Question,
    /// What was simulated once is not simulated again: the groups' searches come back to the same designs.
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
            .map(|(outcome, trial)| (trial.badness(outcome).1, trial.design))
            .collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        let finalists = ranked.into_iter().map(|(_, design)| design).filter(|design| *design != first).take(FINALISTS);
        let long = trials(&std::iter::once(first).chain(finalists).collect::<Vec<Design>>(), true);
        let found = self.find(&long)?;
        let badness = found.iter().zip(&long).map(|(outcome, trial)| (trial.badness(outcome), trial.design));
        // The first of those that are as good.
        let best = badness.reduce(|best, next| if better(next.0, best.0) { next } else { best });
        Ok(best.map_or(first, |(_, design)| design))
    }

    /// The best of some groups: each in turn with the others' best, until none gets better.
    fn best_of(&mut self, groups: &[Group], start: Design, rate_of: Option<Half>) -> Result<Design, Failure> {
        let mut design = start;
        loop {
            let before = design;
            for group in groups {
                let all = designs(*group, design, self.question.memory, batches(self.question, group.half()));
                design = self.best(design, all, rate_of)?;
            }
            if design == before {
                return Ok(design);
            }
        }
    }

    /// The lowest latency.
    fn lowest(mut self) -> Result<Advice, NoAdvice> {
        let start = reference(self.question);
        let design = self.best_of(&Group::ALL, start, None)?;
        let trial = |design| Trial { design, rate_of: None, long: true };
        let (found, of_reference) = (self.find_one(trial(design))?, self.find_one(trial(start))?);
        if let (Some(carried), Some(load)) = (found.carried, self.question.load) {
            return Err(NoAdvice::Overloaded { load, carried });
        }
        let changes: Vec<(&Choice, Design)> = differences(&design, &start).collect();
        let without = self.find(&changes.iter().map(|(_, other)| trial(*other)).collect::<Vec<Trial>>())?;
        let reasons = changes.iter().zip(&without).map(|((choice, _), without)| {
            let worth = without.carried.is_none().then_some(without.value - found.value);
            reason(choice, &design, &start, worth, saved(&found.messages, &without.messages))
        });
        let (reasons, value) = (reasons.collect(), vec![found.value]);
        let reference = of_reference.carried.is_none().then_some(vec![of_reference.value]);
        Ok(Advice { design, value, reference, looked_at: self.known.len(), reasons })
    }

    /// The highest throughput of each direction.
    fn highest(mut self) -> Result<Advice, NoAdvice> {
        let start = reference(self.question);
        let (mut halves_found, mut of_reference, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        for half in [Half::Receive, Half::Transmit] {
            let groups: Vec<Group> = Group::ALL.into_iter().filter(|group| group.half() == half).collect();
            let best = self.best_of(&groups, start, Some(half))?;
            let trial = |design| Trial { design, rate_of: Some(half), long: true };
            let found = self.find_one(trial(best))?;
            of_reference.push(self.find_one(trial(start))?.value);
            let changes: Vec<(&Choice, Design)> = differences(&best, &start).collect();
            let without = self.find(&changes.iter().map(|(_, other)| trial(*other)).collect::<Vec<Trial>>())?;
            for ((choice, _), without) in changes.iter().zip(&without) {
                let saved = saved(&found.messages, &without.messages);
                reasons.push(reason(choice, &best, &start, Some(found.value - without.value), saved));
            }
            halves_found.push(best);
        }
        let design = joined(&halves_found[0], &halves_found[1]);
        // What a half of the whole design carries: a choice of one may touch the other, as a doorbell does how blank buffers are posted.
        let halves = [Half::Receive, Half::Transmit].map(|half| Trial { design, rate_of: Some(half), long: true });
        let value = self.find(&halves)?.iter().map(|outcome| outcome.value).collect();
        Ok(Advice { design, value, reference: Some(of_reference), looked_at: self.known.len(), reasons })
    }
}

fn reason(choice: &Choice, design: &Design, from: &Design, worth: Option<f64>, messages: Messages) -> Reason {
    Reason { what: choice.what, choice: [(choice.of)(design), (choice.of)(from)], worth, messages }
}

/// Searches. `answers` runs trials of the question, by [`Trial::run`], one after the other or several at once.
///
/// # Errors
///
/// The simulator's, or that no design carries the load.
pub fn advise<'a>(question: &'a Question, answers: &'a mut Answers<'a>) -> Result<Advice, NoAdvice> {
    let search = Search { question, known: BTreeMap::new(), answers };
    match question.goal {
        Goal::Latency => search.lowest(),
        Goal::Throughput => search.highest(),
    }
}
