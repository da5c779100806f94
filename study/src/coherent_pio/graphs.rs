//! The graphs of section 5.3 with a part on a simulated device: what comes out of them, and how long a batch takes.
//!
//! # Time
//!
//! The graph runs for real, its device on the simulator. A batch's time is the sum of three parts, all of the modelled machine: the
//! exchanges, as simulated; what copying elements into and out of them takes, by the modelled core's loads and stores; and
//! Timely's own work, by [`conic_sim::eci::parameters::EciSoftwareParameters`]. No clock of the host's is read.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use conic_dataflow::wire::{exchange_bytes, prefix};
use conic_dataflow::{
    Bloom, Calls, Chain, Detail, Drops, Element, Fault, Offload, Operator, Program, Running, offload, trivial_filters,
};
use conic_sim::Failure;
use conic_sim::eci::EciParameters;
use conic_sim::eci::parameters::EciDeviceParameters;

use super::crossing::{Crossing, Part};
use super::simulated::{Pipeline, Simulated, SimulatedClock, Transport, unless_stopped};

/// Filters of the synthetic pipeline.
pub const FILTERS: u64 = 31;

/// Most bytes of the elements of an exchange: what the first-level cache holds (section 5.1).
pub const PAYLOAD_BYTES: usize = 32 << 10;

/// Batches that are sent after the first, and looked at.
const BATCHES: u64 = 4;

/// A graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// [`FILTERS`] trivial filters of 64-bit numbers, one after the other.
    Filters,
    /// Eight hashes of each 128-byte element.
    Bloom,
}

/// Why a graph with a part on a simulated device came to no end.
#[derive(Debug)]
pub enum NotOffloaded {
    /// The device cannot be, for such batches.
    Device(Fault),
    /// The modelled machine stopped.
    Machine(Failure),
}

impl fmt::Display for NotOffloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotOffloaded::Device(fault) => fault.fmt(f),
            NotOffloaded::Machine(failure) => write!(f, "the modelled machine stopped: {failure}"),
        }
    }
}

impl std::error::Error for NotOffloaded {}

impl From<Fault> for NotOffloaded {
    fn from(fault: Fault) -> Self {
        NotOffloaded::Device(fault)
    }
}

impl From<Failure> for NotOffloaded {
    fn from(failure: Failure) -> Self {
        NotOffloaded::Machine(failure)
    }
}

/// A batch's time, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTime {
    /// Timely's work on the CPU, and copying.
    pub software: u64,
    /// The exchanges with the device.
    pub exchanges: u64,
    /// In how many parts its elements crossed: more than one where the batch is longer than an exchange, none without a device.
    pub parts: u64,
}

impl BatchTime {
    /// The whole, in microseconds.
    pub fn microseconds(self) -> f64 {
        (self.software + self.exchanges) as f64 / 1e6
    }
}

/// The chain of filters.
fn filters() -> Chain<u64, u64> {
    let filters = trivial_filters(FILTERS);
    filters[1..].iter().fold(Chain::new(filters[0]), |chain, filter| chain.then(*filter))
}

fn number(batch: u64, at: usize) -> u64 {
    (at as u64 + 1).wrapping_mul(0x9e37_79b9) ^ batch << 20
}

fn filtered(number: &u64) -> Option<u64> {
    let filters = trivial_filters(FILTERS);
    filters.iter().try_fold(*number, |number, filter: &Drops| filter.apply(&number))
}

impl Graph {
    /// What the device's logic takes for it: filters stand one after the other.
    pub fn pipeline(self, device: &EciDeviceParameters) -> Pipeline {
        match self {
            Graph::Filters => Pipeline { latency: FILTERS as u32 * device.filter_latency, interval: 1 },
            Graph::Bloom => Pipeline { latency: device.hash_latency, interval: device.hash_interval },
        }
    }

    /// The part that runs on a device.
    pub fn program(self) -> Program {
        match self {
            Graph::Filters => filters().program().clone(),
            Graph::Bloom => Chain::new(Bloom).program().clone(),
        }
    }

    /// That part with what its logic takes on a device, and how batches cross to it.
    pub fn part(self, device: &EciDeviceParameters, crossing: Crossing) -> Part {
        Part { program: self.program(), pipeline: self.pipeline(device), crossing }
    }

    fn operators(self) -> u64 {
        match self {
            Graph::Filters => FILTERS,
            Graph::Bloom => 1,
        }
    }

    /// Bytes of an element on its way in, and out.
    fn bytes(self) -> (u64, u64) {
        match self {
            Graph::Filters => (8, 8),
            Graph::Bloom => (128, 64),
        }
    }

    /// Bytes of an exchange, each way: with [`PAYLOAD_BYTES`] of elements, and the progress before them.
    pub fn exchange_bytes(self, detail: Detail) -> usize {
        let program = self.program();
        let element = program.element_bytes();
        exchange_bytes(PAYLOAD_BYTES / element, element, detail.operators(&program))
    }

    /// What a batch takes in software alone: each operator an operator of Timely's.
    pub fn in_software(self, machine: &EciParameters, elements: usize) -> BatchTime {
        let (software, elements) = (&machine.software, elements as u64);
        let graph = software.batch + (self.operators() - 1) * software.operator;
        let each = match self {
            Graph::Filters => FILTERS * software.record,
            Graph::Bloom => software.record + software.bloom_element,
        };
        BatchTime { software: graph + elements * each, ..BatchTime::default() }
    }

    /// The same with all operators in one of Timely's, where there is more than one: what can be had without a device.
    pub fn fused(self, machine: &EciParameters, elements: usize) -> BatchTime {
        let software = &machine.software;
        let each = match self {
            // A filter's own work without Timely's around it: two instructions.
            Graph::Filters => software.record + (FILTERS - 1) * machine.core.cycles(2),
            Graph::Bloom => software.record + software.bloom_element,
        };
        BatchTime { software: software.batch + elements as u64 * each, ..BatchTime::default() }
    }

    /// What Timely and copying take of a batch whose operators are on a device, to which it crosses in so many parts.
    fn around(
        self,
        machine: &EciParameters,
        elements: usize,
        detail: Detail,
        (crossing, parts): (Crossing, u64),
    ) -> u64 {
        let (software, core) = (&machine.software, &machine.core);
        let (seen, words) = match detail {
            Detail::Collapsed => (0, 1),
            Detail::EachOperator => (self.operators() - 1, self.operators()),
        };
        let (input, output) = self.bytes();
        // A load and a store for each: into a request, and out of a response. The lines' own are simulated.
        let accesses = |bytes: u64| 2 * bytes.div_ceil(core.access_bytes.into());
        // Each exchange has a header, of which one each way is before the progress.
        let headers = 2 * (crossing.exchanges() - 1) * accesses(prefix(0) as u64);
        let progress = 2 * accesses(prefix(words as usize) as u64);
        let copied = parts * (headers + progress) + elements as u64 * (accesses(input) + accesses(output));
        let copying = core.cycles(copied * u64::from(core.issue_cycles));
        software.batch + seen * software.stand_in + elements as u64 * software.record + copying
    }

    /// What a batch takes with all operators on a device, a median of several; what comes out is compared with what the operators
    /// make.
    ///
    /// # Errors
    ///
    /// If the device cannot be, or its machine stops.
    ///
    /// # Panics
    ///
    /// If something else comes out than the operators make.
    pub fn offloaded<T: Transport>(
        self,
        machine: &EciParameters,
        elements: usize,
        detail: Detail,
        transport: T,
    ) -> Result<BatchTime, NotOffloaded> {
        let crossing = transport.crossing();
        let (exchanges, parts) = unless_stopped(|| match self {
            Graph::Filters => run(&filters(), elements, detail, transport, number, filtered),
            Graph::Bloom => {
                let element =
                    |batch: u64, at: usize| std::array::from_fn(|byte| (byte * 7 + at * 3 + batch as usize) as u8);
                run(&Chain::new(Bloom), elements, detail, transport, element, |element| Bloom.apply(element))
            }
        })??;
        Ok(BatchTime { software: self.around(machine, elements, detail, (crossing, parts)), exchanges, parts })
    }
}

/// Sends batches through a chain on a device, one after the other, and gives the median of their exchanges' times, and in how many
/// parts each crossed.
fn run<A: Element, D: Element + PartialEq + std::fmt::Debug, T: Transport>(
    chain: &Chain<A, D>,
    elements: usize,
    detail: Detail,
    transport: T,
    make: impl Fn(u64, usize) -> A,
    apply: impl Fn(&A) -> Option<D>,
) -> Result<(u64, u64), Fault> {
    let clock = SimulatedClock::default();
    let device = Simulated::new(transport, clock.clone());
    let how = Offload { calls: Calls::Blocking, detail };
    let came = Rc::new(RefCell::new(Vec::new()));
    let last = Rc::new(Cell::new(0));
    let (sink, at) = (Rc::clone(&came), Rc::clone(&last));
    let mut graph: Running<A> = Running::new(
        |stream| offload(stream, chain, vec![device], how),
        move |time, batch: &[D]| {
            at.set(time);
            sink.borrow_mut().extend_from_slice(batch);
        },
    )?;
    let (mut times, mut parts) = (Vec::new(), 0);
    for batch in 0..=BATCHES {
        let mut sent: Vec<A> = (0..elements).map(|at| make(batch, at)).collect();
        let expected: Vec<D> = sent.iter().filter_map(&apply).collect();
        let before = (clock.elapsed(), clock.calls());
        graph.send(batch, &mut sent);
        graph.advance_to(batch + 1);
        while graph.may_come(batch) {
            graph.step();
        }
        let got = std::mem::take(&mut *came.borrow_mut());
        assert!(got == expected && last.get() <= batch, "batch {batch} came out other than its operators make it");
        // The first one's lines are in nobody's cache.
        if batch > 0 {
            times.push(clock.elapsed().since(before.0).picoseconds());
        }
        parts = clock.calls() - before.1;
    }
    graph.close();
    while !graph.has_ended() {
        graph.step();
    }
    times.sort_unstable();
    Ok((times[times.len() / 2], parts))
}

#[cfg(test)]
mod tests {
    use conic_fabric::Time;
    use conic_sim::platform::Platform;

    use super::super::simulated::CoherentLines;
    use super::*;

    fn machine(name: &str) -> EciParameters {
        let platform: Platform<EciParameters> = Platform::load_as(name).unwrap_or_else(|error| panic!("{error}"));
        platform.parameters().clone()
    }

    fn exchanges(machine: &EciParameters, graph: Graph, elements: usize, detail: Detail, crossing: Crossing) -> u64 {
        let part = graph.part(&machine.device, crossing);
        let lines = CoherentLines::new(machine, &part, graph.exchange_bytes(detail)).expect("it begins");
        graph.offloaded(machine, elements, detail, lines).expect("the device answers").exchanges
    }

    #[test]
    fn graphs_on_a_simulated_device_make_what_their_operators_make_and_take_its_time() {
        for name in ["enzian", "cxl3-mem"] {
            let machine = machine(name);
            // Two round trips, whatever else.
            let least = 4 * machine.link.crossing;
            for (graph, crossing) in [Graph::Filters, Graph::Bloom]
                .into_iter()
                .flat_map(|graph| [Crossing::Together, Crossing::Apart].map(|crossing| (graph, crossing)))
            {
                let least = crossing.exchanges() * least;
                // The last is longer than an exchange.
                let times =
                    [1, 16, 700].map(|elements| exchanges(&machine, graph, elements, Detail::Collapsed, crossing));
                assert!(least < times[0] && times[0] < times[1] && times[1] < times[2], "{name}: {times:?}");
                assert!(times[0] < 4 * least, "{name}: {times:?}");
            }
            let of = |detail, crossing| exchanges(&machine, Graph::Filters, 16, detail, crossing);
            for crossing in [Crossing::Together, Crossing::Apart] {
                assert!(of(Detail::EachOperator, crossing) > of(Detail::Collapsed, crossing));
            }
        }
    }

    /// How long a batch of elements for the Bloom filter takes to cross and be computed.
    fn through(machine: &EciParameters, pipeline: Pipeline, elements: usize, crossing: Crossing) -> u64 {
        let part = Part { pipeline, ..Graph::Bloom.part(&machine.device, crossing) };
        let bytes = Graph::Bloom.exchange_bytes(Detail::Collapsed);
        let lines = CoherentLines::new(machine, &part, bytes).expect("it begins");
        Graph::Bloom.offloaded(machine, elements, Detail::Collapsed, lines).expect("the device answers").exchanges
    }

    #[test]
    fn a_machine_that_stops_is_an_error_and_not_a_panic() {
        /// Answers so often, and then no more.
        struct Stops<T>(T, u32);
        impl<T: Transport> Transport for Stops<T> {
            fn capacity(&self) -> usize {
                self.0.capacity()
            }
            fn crossing(&self) -> Crossing {
                self.0.crossing()
            }
            fn exchange(&mut self, request: &[u8], most: usize, response: &mut Vec<u8>) -> Result<Time, Failure> {
                self.1 = self.1.checked_sub(1).ok_or(Failure::Deadlock(vec!["host".to_owned()]))?;
                self.0.exchange(request, most, response)
            }
        }
        let (machine, detail) = (machine("enzian"), Detail::Collapsed);
        for graph in [Graph::Filters, Graph::Bloom] {
            let part = graph.part(&machine.device, Crossing::Together);
            let lines = CoherentLines::new(&machine, &part, graph.exchange_bytes(detail)).expect("it begins");
            let why = graph.offloaded(&machine, 3, detail, Stops(lines, 2)).expect_err("it stops");
            let stopped = Failure::Deadlock(vec!["host".to_owned()]);
            assert_eq!(why.to_string(), format!("the modelled machine stopped: {stopped}"));
        }
    }

    #[test]
    fn an_element_takes_its_pipelines_time() {
        let machine = machine("enzian");
        let pipeline = Graph::Bloom.pipeline(&machine.device);
        let longer = Pipeline { latency: pipeline.latency + 1000, interval: pipeline.interval + 10 };
        for crossing in [Crossing::Together, Crossing::Apart] {
            let [of, longer] = [pipeline, longer].map(|pipeline| through(&machine, pipeline, 1, crossing));
            assert_eq!(longer - of, 1000 * machine.device.cycle);
        }
    }

    #[test]
    fn elements_are_computed_while_their_batch_crosses_and_the_longer_of_the_two_is_what_it_takes() {
        for (machine, crossing) in
            [("enzian", Crossing::Apart), ("enzian", Crossing::Together), ("cxl3-mem", Crossing::Apart)]
        {
            let machine = self::machine(machine);
            let cycles = |pipeline: Pipeline| pipeline.time_of(machine.device.cycle, 64).picoseconds();
            let of = |pipeline, elements| through(&machine, pipeline, elements, crossing);
            let (at_once, line) = (Pipeline { latency: 0, interval: 0 }, of(Pipeline { latency: 0, interval: 0 }, 1));
            let crosses = of(at_once, 64);
            // Where computing takes longer, the batch takes as long as that, a line's way there and back, and what the CPU writes and reads.
            let slow = [100, 200].map(|interval| Pipeline { latency: 0, interval });
            let [once, twice] = slow.map(|pipeline| of(pipeline, 64));
            assert!(cycles(slow[0]) > 2 * crosses, "{} of {crosses}", cycles(slow[0]));
            assert_eq!(twice - once, cycles(slow[1]) - cycles(slow[0]), "nothing but computing is waited for");
            let rest = once - cycles(slow[0]);
            assert!((line..crosses).contains(&rest), "{rest}, between {line} and {crosses}");
            // Where crossing does, it hides what the elements before the last take.
            let fast = Pipeline { latency: 0, interval: (crosses / 8 / 64 / machine.device.cycle) as u32 };
            let more = of(fast, 64) - crosses;
            assert!(more < cycles(fast) / 4, "{more} of {}", cycles(fast));
        }
    }
}
