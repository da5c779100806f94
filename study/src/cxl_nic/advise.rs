//! Which request types, placements and batch sizes are best for packets of a size: a search over all of them in the simulator.

use std::collections::BTreeMap;

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
    /// Designs that were simulated.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Receive,
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

/// Runs of the search.
struct Search<'a> {
    question: &'a Question,
    looked_at: usize,
    told: &'a mut dyn FnMut(usize),
}

impl Search<'_> {
    fn run(&mut self, design: Design, packets: (u64, u64)) -> Result<(f64, BTreeMap<&'static str, f64>), Failure> {
        self.looked_at += 1;
        (self.told)(self.looked_at);
        let Question { machine, bytes, load, .. } = self.question;
        let gap = load.map_or(Time::from_nanoseconds(20_000), |load| Time::from_picoseconds((1e12 / load) as u64));
        let outcome = loopback(&Loopback { machine: machine.clone(), design, bytes: *bytes, gap, packets, seed: 0 })?;
        let each = outcome.latencies.len() as f64;
        let messages = outcome.counters.messages.iter().map(|(kind, count)| (kind, count as f64 / each));
        Ok((percentile(&outcome.latencies, 0.5), messages.collect()))
    }

    fn rate(&mut self, design: Design, half: Half, packets: u64) -> Result<f64, Failure> {
        self.looked_at += 1;
        (self.told)(self.looked_at);
        let machine = self.question.machine.clone();
        let asked = Throughput { machine, design, bytes: self.question.bytes, packets };
        match half {
            Half::Receive => receive(&asked),
            Half::Transmit => transmit(&asked),
        }
    }

    /// The best of some designs, the first among them, which is what there was before: the best few by a short look, and of those and
    /// the first the best by a longer one. So what is found is never worse than what there was.
    fn best(
        &mut self,
        first: Design,
        others: Vec<Design>,
        mut look: impl FnMut(&mut Self, Design, bool) -> Result<f64, Failure>,
    ) -> Result<Design, Failure> {
        const FINALISTS: usize = 12;
        let mut ranked = Vec::with_capacity(others.len());
        for design in others {
            ranked.push((look(self, design, false)?, design));
        }
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        let finalists = ranked.into_iter().map(|(_, design)| design).filter(|design| *design != first).take(FINALISTS);
        let mut best = (look(self, first, true)?, first);
        for design in finalists.collect::<Vec<Design>>() {
            let found = look(self, design, true)?;
            if found < best.0 {
                best = (found, design);
            }
        }
        Ok(best.1)
    }

    /// The lowest latency: the halves in turn, each with the other's best, until neither gets better.
    fn lowest(&mut self) -> Result<Advice, Failure> {
        const SHORT: (u64, u64) = (4, 24);
        const LONG: (u64, u64) = (300, 200);
        let look =
            |search: &mut Self, design, long| search.run(design, if long { LONG } else { SHORT }).map(|found| found.0);
        let start = reference(self.question);
        let memory = self.question.memory;
        let mut design = start;
        loop {
            let before = design;
            for half in [Half::Receive, Half::Transmit] {
                design = self.best(design, halves(half, design, memory, &[1]), look)?;
            }
            if design == before {
                break;
            }
        }
        let (found, messages) = self.run(design, LONG)?;
        let (of_reference, _) = self.run(start, LONG)?;
        let mut reasons = Vec::new();
        for (choice, other) in differences(&design, &start) {
            let (without, others) = self.run(other, LONG)?;
            let kinds = messages.keys().chain(others.keys()).copied();
            let at = |of: &BTreeMap<&'static str, f64>, kind| of.get(kind).copied().unwrap_or(0.0);
            let saved = kinds.map(|kind| (kind, at(&others, kind) - at(&messages, kind)));
            let saved = saved.filter(|(_, count)| count.abs() > 0.05).collect();
            reasons.push(reason(choice, &design, &start, without - found, saved));
        }
        let (value, reference) = (vec![found], vec![of_reference]);
        Ok(Advice { design, receive_batch: design.batch, value, reference, looked_at: self.looked_at, reasons })
    }

    /// The highest throughput of each direction.
    fn highest(&mut self) -> Result<Advice, Failure> {
        const SHORT: u64 = 100;
        const LONG: u64 = 600;
        let start = reference(self.question);
        let (mut found, mut value, mut of_reference, mut reasons) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (half, batches) in [(Half::Receive, [8, 24]), (Half::Transmit, [24, 96])] {
            let all = halves(half, start, self.question.memory, &batches);
            let look = |search: &mut Self, design, long| {
                search.rate(design, half, if long { LONG } else { SHORT }).map(|rate| -rate)
            };
            let best = self.best(start, all, look)?;
            let rate = self.rate(best, half, LONG)?;
            of_reference.push(self.rate(start, half, LONG)?);
            for (choice, other) in differences(&best, &start) {
                let worth = rate - self.rate(other, half, LONG)?;
                reasons.push(reason(choice, &best, &start, worth, BTreeMap::new()));
            }
            value.push(rate);
            found.push(best);
        }
        let design = joined(&found[0], &found[1]);
        let (receive_batch, looked_at) = (found[0].batch, self.looked_at);
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

/// Searches. `told` hears how many designs have been looked at.
///
/// # Errors
///
/// The simulator's.
pub fn advise(question: &Question, told: &mut dyn FnMut(usize)) -> Result<Advice, Failure> {
    let mut search = Search { question, looked_at: 0, told };
    match question.goal {
        Goal::Latency => search.lowest(),
        Goal::Throughput => search.highest(),
    }
}
