//! One configuration of a packet interface, and one slice of the loopback workload through it.

use std::sync::Arc;

use conic_fabric::Time;
use conic_interface::ccnic::Features;
use conic_interface::with_policy;
use conic_load::{KeptLatency, Traffic as _, Workload};
use conic_native::{Flag, NativeCore, Pages, clock};

use super::arena::{Arena, Job};
use super::common::region;
use super::failure::Failure;

mod interfaces;

pub use interfaces::Traffic;
use interfaces::{CachableQueues, CcNic, FastForwardQueues, Halves, LinePairs, Link, Ring, Turn};

/// How long an application waits at the end for what is still in flight: many turns of a busy machine.
const DRAIN: Time = Time::from_nanoseconds(2_000_000_000);

/// Rounds between two looks at the clock, or at the flag that stops them.
const BETWEEN_LOOKS: usize = 64;

/// Which interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Interface {
    /// CC-NIC: inline signals, grouped descriptors, one recycled pool for both sides
    Ccnic,
    /// A PCIe-style ring with head and tail registers, here lines of coherent memory: the paper's unoptimised baseline
    Ring,
    /// CNI's cachable queue of 1996, a pair of them; packets go by value
    CachableQueue,
    /// FastForward, a pair of queues of one line a slot; packets go by value
    Fastforward,
    /// Coherent programmed I/O, a NIC of two line pairs with overflow lines; packets go by value, one a direction at a time
    Pio,
}

impl Interface {
    /// How many packets of one queue pair are in flight at most, with so many descriptors in each ring.
    pub fn in_flight(self, descriptors: u64) -> u64 {
        match self {
            // Two exchanges carry one each, the NIC has one in hand, and the application one that waits.
            Interface::Pio => 4,
            _ => descriptors.max(1).saturating_mul(2),
        }
    }

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Interface::Ccnic => "ccnic",
            Interface::Ring => "ring",
            Interface::CachableQueue => "cachable-queue",
            Interface::Fastforward => "fastforward",
            Interface::Pio => "pio",
        }
    }
}

/// What a slice runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which interface.
    pub interface: Interface,
    /// CC-NIC's switches; no other interface has any.
    pub features: Features,
    /// What is sent through each queue pair.
    pub workload: Workload,
    /// Queue pairs.
    pub queues: usize,
    /// From one packet of a queue pair to the next, where each is due at a time; else one is sent when another has come back.
    pub interval: Option<Time>,
    /// Descriptors of each ring.
    pub descriptors: u64,
    /// Pages of the region.
    pub pages: Pages,
}

/// How long a slice takes.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Not measured.
    pub warm_up: Time,
    /// Measured.
    pub measured: Time,
}

/// What came of a slice.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets received while it was measured.
    pub packets: u64,
    /// Packets a second.
    pub rate: f64,
    /// From just before a burst is written, or from when a packet was due, to just after the burst with its answer is received.
    pub latency: KeptLatency,
    /// Packets that were due and had not come when they were waited for no longer: they have no latency, and would have the longest.
    pub unfinished: u64,
    /// Packets that never came.
    pub lost: u64,
    /// Packets that came with another payload, out of order, or twice.
    pub corrupt: u64,
}

impl Outcome {
    fn none() -> Outcome {
        Outcome { packets: 0, rate: 0.0, latency: KeptLatency::default(), unfinished: 0, lost: 0, corrupt: 0 }
    }

    /// Adds what another slice, or another thread of the same, came to; rates are left alone.
    pub fn add(&mut self, other: &Outcome) {
        self.packets += other.packets;
        self.latency.add(&other.latency);
        self.unfinished += other.unfinished;
        self.lost += other.lost;
        self.corrupt += other.corrupt;
    }
}

/// Runs one slice in a region of its own.
///
/// # Errors
///
/// If the configuration cannot be, or the machine refuses it.
pub fn run(arena: &Arena, setup: &Setup, span: Span) -> Result<Outcome, Failure> {
    match setup.interface {
        Interface::Ccnic => {
            with_policy!(setup.features, P => run_link(arena, setup, span, CcNic::<P>::new(setup)?))
        }
        Interface::Ring => run_link(arena, setup, span, Ring::new(setup)?),
        Interface::CachableQueue => run_link(arena, setup, span, CachableQueues::new(setup)?),
        Interface::Fastforward => run_link(arena, setup, span, FastForwardQueues::new(setup)?),
        Interface::Pio => run_link(arena, setup, span, LinePairs::new(setup)?),
    }
}

/// Runs one slice of CC-NIC or the ring with both halves on this core, by turns, in a region of its own. Gives for how long the host's
/// half and the NIC's have the core for a packet, in nanoseconds.
///
/// # Errors
///
/// As [`run`].
pub fn run_halves(setup: &Setup, span: Span) -> Result<[f64; 2], Failure> {
    match setup.interface {
        Interface::Ccnic => with_policy!(setup.features, P => halves(CcNic::<P>::new(setup)?, setup.pages, span)),
        Interface::Ring => halves(Ring::new(setup)?, setup.pages, span),
        other => Err(Failure::failed(format!("the halves of {} do not run on one core", other.name()))),
    }
}

fn halves<L: Halves>(link: L, pages: Pages, span: Span) -> Result<[f64; 2], Failure> {
    let memory = region(link.layout(), pages)?;
    let core = NativeCore::new(&memory);
    link.prepare(&core);
    let mut both = link.on_one_core(core);
    let mut until = |end: Time| {
        both.forget_spans();
        let before = both.account().received();
        while clock::now() < end {
            both.step();
        }
        let packets = (both.account().received() - before) as f64;
        both.spans().map(|span| span.picoseconds() as f64 / 1e3 / packets)
    };
    until(clock::now() + span.warm_up);
    Ok(until(clock::now() + span.measured))
}

fn run_link<L: Link>(arena: &Arena, setup: &Setup, span: Span, link: L) -> Result<Outcome, Failure> {
    let memory = Arc::new(region(link.layout(), setup.pages)?);
    link.prepare(&NativeCore::new(&memory));
    let (link, stop) = (Arc::new(link), Arc::new(Flag::new()));
    let (pairs, interval) = (arena.pairs().len().min(setup.queues), setup.interval);
    let mut nics: Vec<Job> = Vec::new();
    let mut applications: Vec<Box<dyn FnOnce() -> Outcome + Send>> = Vec::new();
    for pair in 0..pairs {
        let queues: Vec<usize> = (pair..setup.queues).step_by(pairs).collect();
        let mine = queues.clone();
        let (shared, region, flag) = (Arc::clone(&link), Arc::clone(&memory), Arc::clone(&stop));
        nics.push(Box::new(move || {
            let nic = |&queue: &usize| shared.nic(NativeCore::new(&region), queue);
            serve(&mut mine.iter().map(nic).collect::<Vec<_>>(), &flag);
        }));
        let (shared, region) = (Arc::clone(&link), Arc::clone(&memory));
        applications.push(Box::new(move || {
            let application = |&queue: &usize| shared.application(NativeCore::new(&region), queue);
            drive(&mut queues.iter().map(application).collect::<Vec<_>>(), span, interval)
        }));
    }
    let mut total = Outcome::none();
    for outcome in arena.run(&stop, nics, applications)? {
        total.add(&outcome);
        total.rate += outcome.rate;
    }
    Ok(total)
}

fn serve<N: Turn>(nics: &mut [N], stop: &Flag) {
    if let [nic] = nics {
        while !stop.is_up() {
            if nic.turn_around() == 0 {
                nic.spin();
            }
        }
        return;
    }
    while !stop.is_up() {
        let turned: usize = nics.iter_mut().map(Turn::turn_around).sum();
        if turned == 0 {
            nics[0].spin();
        }
    }
}

/// Runs applications for a span, and receives at the end what is in flight. With an interval, packets of each are due at that pace
/// from the middle of the warm-up on: a cold ring would fall behind it. Those that are due when the span ends are then sent and waited
/// for, as long again at most: what was late at the end is late in the figures.
pub fn drive<T: Traffic>(loops: &mut [T], span: Span, interval: Option<Time>) -> Outcome {
    let end_of_warm_up = clock::now() + span.warm_up;
    if let Some(interval) = interval {
        work(loops, clock::now() + Time::from_picoseconds(span.warm_up.picoseconds() / 2));
        loops.iter_mut().for_each(|one| one.pace(clock::now(), interval));
    }
    work(loops, end_of_warm_up);
    loops.iter_mut().for_each(|one| one.account_mut().forget_latency());
    let before: u64 = loops.iter().map(|one| one.account().received()).sum();
    let start = clock::now();
    work(loops, start + span.measured);
    let seconds = clock::now().since(start).seconds();
    let packets = loops.iter().map(|one| one.account().received()).sum::<u64>() - before;
    let mut outcome = Outcome::none();
    (outcome.packets, outcome.rate) = (packets, packets as f64 / seconds);
    loops.iter_mut().for_each(Traffic::end_pace);
    let patience = clock::now() + span.measured;
    while loops.iter().any(|one| one.behind() > 0) && clock::now() < patience {
        for one in loops.iter_mut() {
            one.step();
        }
    }
    for one in loops.iter_mut() {
        outcome.latency.add(&one.account().latency().kept());
        outcome.unfinished += one.behind();
        one.drain(clock::now() + DRAIN);
        outcome.lost += one.account().lost();
        outcome.corrupt += one.account().corrupt();
    }
    outcome
}

fn work<T: Traffic>(loops: &mut [T], until: Time) {
    while clock::now() < until {
        for _ in 0..BETWEEN_LOOKS {
            for one in loops.iter_mut() {
                one.step();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use conic_load::{Account, Traffic as Loop};
    use conic_native::Memory;

    use super::interfaces::{LinePairs, Turn as _};
    use super::*;

    /// A packet that is due while it is measured, and comes after that.
    struct Late {
        account: Account,
        over: bool,
        /// Packets that are due and are never sent.
        waiting: u64,
    }

    impl Loop for Late {
        fn step(&mut self) -> usize {
            if self.account.sent() == 0 {
                self.account.send();
            } else if self.over && self.account.in_flight() > 0 {
                self.account.enter(0);
                self.account.took(0, 5_000, 1);
                return 1;
            }
            0
        }
        fn account(&self) -> &Account {
            &self.account
        }
        fn account_mut(&mut self) -> &mut Account {
            &mut self.account
        }
        fn pace(&mut self, _: Time, _: Time) {}
    }

    impl Traffic for Late {
        fn end_pace(&mut self) {
            self.over = true;
        }
        fn behind(&self) -> u64 {
            self.waiting + self.account.in_flight()
        }
        fn drain(&mut self, _: Time) {
            while self.account.in_flight() > 0 {
                self.step();
            }
        }
    }

    #[test]
    fn a_packet_that_is_due_when_the_span_ends_is_late_in_the_figures() {
        let span = Span { warm_up: Time::from_nanoseconds(10_000), measured: Time::from_nanoseconds(200_000_000) };
        let mut loops = [Late { account: Account::default(), over: false, waiting: 0 }];
        let outcome = drive(&mut loops, span, Some(Time::from_nanoseconds(1)));
        assert_eq!((outcome.packets, outcome.lost), (0, 0), "it is no part of the rate");
        assert_eq!((outcome.latency.count(), outcome.latency.minimum().nanoseconds()), (1, 5));
        assert_eq!(outcome.unfinished, 0);
    }

    #[test]
    fn packets_that_were_due_and_have_no_latency_are_told() {
        let span = Span { warm_up: Time::from_nanoseconds(10_000), measured: Time::from_nanoseconds(10_000_000) };
        let mut loops = [2, 3].map(|waiting| Late { account: Account::default(), over: false, waiting });
        let outcome = drive(&mut loops, span, Some(Time::from_nanoseconds(1)));
        assert_eq!((outcome.unfinished, outcome.lost), (5, 0));
    }

    #[test]
    fn line_pairs_hold_as_many_packets_as_they_are_said_to() {
        let workload =
            Workload { packet_size: 64, window: 100, transmit_burst: 100, receive_burst: 1, fetch_ahead: false };
        let setup = Setup {
            interface: Interface::Pio,
            features: Features::best(),
            workload,
            queues: 1,
            interval: None,
            descriptors: 1024,
            pages: Pages::Plain,
        };
        let link = LinePairs::new(&setup).expect("there are such lines");
        let memory = Memory::create(link.layout(), Pages::Plain).expect("a small region");
        let (mut application, mut nic) =
            (link.application(NativeCore::new(&memory), 0), link.nic(NativeCore::new(&memory), 0));
        let mut most = 0;
        for _ in 0..100 {
            // The NIC does what it can before the application sends again.
            for _ in 0..3 {
                nic.turn_around();
            }
            let received = application.step() as u64;
            most = most.max(application.account().in_flight() + received);
        }
        // By turns. At the same time the NIC may have one more in hand, taken between the application's sending and its receiving.
        assert_eq!(most + 1, Interface::Pio.in_flight(1024));
    }
}
