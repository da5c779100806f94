//! The graphs that are measured, and one slice of a measurement.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use conic_dataflow::{
    Bloom, Calls, Chain, Detail, Drops, Element, Exchange, Executor, Fault, Inline, Offload, Operator, Program,
    Running, Serving, Stream, SyncActivator, fused, offload, software, trivial_filters, wire,
};
use conic_fabric::{Core, Home, Layout, Time};
use conic_interface::pio::{Features, Host, Lines, Played, Shape};
use conic_load::{KeptLatency, Latency};
use conic_native::{Flag, Memory, NativeCore, Pages, clock};

use crate::bench::arena::{Arena, Job, Raise};
use crate::bench::common::region;
use crate::bench::failure::Failure;

/// Bytes of the elements of an exchange, each way; larger batches are split. Progress comes on top, or its few bytes would make
/// another exchange of a batch of as many bytes.
pub const PAYLOAD_BYTES: usize = 16_384;

/// Exchanges of a device: both are in use where calls are deferred.
pub const EXCHANGES: usize = 2;

/// Filters of the pipeline (section 5.3).
pub const FILTERS: u64 = 31;

/// Bytes of an exchange, each way, with each filter's progress.
pub fn exchange_bytes() -> usize {
    wire::exchange_bytes(PAYLOAD_BYTES / 8, 8, FILTERS as usize)
}

/// Batches that are sent in turn.
const PATTERNS: usize = 4;

/// Batches between two looks at the clock for whether it is time to stop.
const BETWEEN_LOOKS: usize = 8;

/// A graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// A pipeline of trivial filters of 64-bit numbers.
    Filters,
    /// Eight hashes of each 128-byte element.
    Bloom,
}

/// How a graph is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each operator an operator of Timely's.
    Software,
    /// All of them one operator of Timely's.
    Fused,
    /// On a device that computes on the calling core, with all that crossing needs but the crossing itself.
    Inline,
    /// On a device that another core plays.
    Played(Offload),
}

const fn played(calls: Calls, detail: Detail) -> Way {
    Way::Played(Offload { calls, detail })
}

/// One operator stands for the device's part, and waits for it.
pub const COLLAPSED: Way = played(Calls::Blocking, Detail::Collapsed);

impl Graph {
    /// Both.
    pub const ALL: [Graph; 2] = [Graph::Filters, Graph::Bloom];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Graph::Filters => "filters",
            Graph::Bloom => "bloom",
        }
    }

    /// What it is.
    pub fn title(self) -> &'static str {
        match self {
            Graph::Filters => "31 trivial filters of 64-bit numbers",
            Graph::Bloom => "eight hashes of each 128-byte element",
        }
    }

    /// Elements of a batch. Four numbers are what one line holds.
    pub fn sizes(self) -> &'static [usize] {
        match self {
            Graph::Filters => &[1, 4, 16, 64, 256, 1024, 4096],
            Graph::Bloom => &[1, 4, 16, 64, 256],
        }
    }

    /// The ways to run it that differ.
    pub fn ways(self) -> &'static [Way] {
        const ALL: [Way; 7] = [
            Way::Software,
            Way::Fused,
            Way::Inline,
            COLLAPSED,
            played(Calls::Deferred, Detail::Collapsed),
            played(Calls::Blocking, Detail::EachOperator),
            played(Calls::Deferred, Detail::EachOperator),
        ];
        const OF_ONE_OPERATOR: [Way; 4] =
            [Way::Fused, Way::Inline, COLLAPSED, played(Calls::Deferred, Detail::Collapsed)];
        match self {
            Graph::Filters => &ALL,
            Graph::Bloom => &OF_ONE_OPERATOR,
        }
    }
}

impl Way {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Way::Software => "software",
            Way::Fused => "software, fused",
            Way::Inline => "inline",
            Way::Played(Offload { calls: Calls::Blocking, detail: Detail::Collapsed }) => "collapsed",
            Way::Played(Offload { calls: Calls::Deferred, detail: Detail::Collapsed }) => "collapsed, deferred",
            Way::Played(Offload { calls: Calls::Blocking, detail: Detail::EachOperator }) => "each operator",
            Way::Played(Offload { calls: Calls::Deferred, detail: Detail::EachOperator }) => "each operator, deferred",
        }
    }
}

/// What came of a slice.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Batches.
    pub batches: u64,
    /// Those of which something else came out than the software makes.
    pub wrong: u64,
    /// From just before a batch is sent to just after the probe says that its time is complete.
    pub latency: KeptLatency,
}

/// Lines between the two cores. They stay for as long as the process lives, since a graph's operators may.
pub struct Region {
    memory: &'static Memory,
    lines: [Lines; EXCHANGES],
}

impl Region {
    /// Fresh lines.
    ///
    /// # Errors
    ///
    /// If the system gives no memory.
    pub fn new(pages: Pages) -> Result<Region, Failure> {
        let mut layout = Layout::new();
        let mut place = || Shape::groups(exchange_bytes() as u64).place(&mut layout, Home::Nic);
        let lines = [place(), place()].map(|lines| lines.map_err(|error| Failure::failed(error.to_string())));
        let [first, second] = lines;
        let lines = [first?, second?];
        let memory = region(&layout, pages)?;
        Ok(Region { memory: Box::leak(Box::new(memory)), lines })
    }

    /// The exchanges of a device that runs a program, and what the core that plays it does until it is told to stop. Both take
    /// over from whoever had the lines before.
    fn devices(&self, program: &Program, calls: Calls, stop: Arc<Flag>) -> (Vec<PlayedExchange>, Job) {
        let count = if calls == Calls::Blocking { 1 } else { EXCHANGES };
        let (memory, lines) = (self.memory, self.lines);
        let (tell, told) = channel();
        let program = program.clone();
        let gone = Arc::new(Flag::new());
        let goes = Arc::clone(&gone);
        let device: Job = Box::new(move || {
            let serving = |lines: Lines| {
                let device = Played::resume(NativeCore::new(memory), lines);
                Serving::new(device, Executor::new(program.clone()), lines.shape().capacity() as usize)
            };
            let mut all: Vec<_> = lines[..count].iter().copied().map(serving).collect();
            // Goes before `all`, which wakes whoever waits for an answer.
            let _goes = Raise(&goes);
            if calls == Calls::Deferred {
                for serving in &mut all {
                    let Ok(activator) = told.recv() else { return };
                    serving.wake(activator);
                }
            }
            let core = NativeCore::new(memory);
            while !stop.is_up() {
                let served = all.iter_mut().map(Serving::serve).filter(|served| *served).count();
                if served == 0 {
                    core.spin();
                }
            }
        });
        let exchange =
            |lines: &Lines| PlayedExchange { lines: *lines, tell: tell.clone(), gone: Arc::clone(&gone), memory };
        (lines[..count].iter().map(exchange).collect(), device)
    }
}

/// An exchange before it is on the thread that uses it.
struct PlayedExchange {
    lines: Lines,
    tell: Sender<SyncActivator>,
    gone: Arc<Flag>,
    memory: &'static Memory,
}

impl PlayedExchange {
    fn begin(self) -> Exchange<NativeCore<'static>> {
        let host = Host::resume(NativeCore::new(self.memory), self.lines, Features::PLAYED);
        let (tell, gone) = (self.tell, self.gone);
        // A device that is gone wakes nobody.
        Exchange::new(host, move |activator| drop(tell.send(activator))).watching(move || gone.is_up())
    }
}

/// How long a slice warms up, and how long it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub warm_up: Time,
    pub measured: Time,
}

/// Runs a graph for a slice.
///
/// # Errors
///
/// If it cannot be, or the machine refuses it.
pub fn slice(
    arena: &Arena,
    region: &Region,
    graph: Graph,
    way: Way,
    elements: usize,
    span: Span,
) -> Result<Outcome, Failure> {
    match graph {
        Graph::Filters => run(arena, region, way, span, filters(elements), trivial_filters(FILTERS)),
        Graph::Bloom => run(arena, region, way, span, bloom(elements), Bloom),
    }
}

/// Operators that may run on a device, and what they are given.
pub struct Part<A, D> {
    /// The operators.
    pub chain: Chain<A, D>,
    /// Their batches.
    pub work: Work<A>,
}

/// The filters, and what they are given.
pub fn filters(elements: usize) -> Part<u64, u64> {
    let filters = trivial_filters(FILTERS);
    let chain = filters[1..].iter().fold(Chain::new(filters[0]), |chain, filter| chain.then(*filter));
    // The first ones pass all filters, so that small batches go all the way.
    let number = |batch: usize, at: usize| (at as u64 + 1).wrapping_mul(0x9e37_79b9) ^ (batch as u64) << 20;
    let work = Work::new(elements, number, |number| filters.iter().try_fold(*number, |n, one| one.apply(&n)));
    Part { chain, work }
}

/// The Bloom filter, and what it is given.
pub fn bloom(elements: usize) -> Part<[u8; 128], [u64; 8]> {
    let element = |batch: usize, at: usize| std::array::from_fn(|byte| (byte * 7 + at * 3 + batch) as u8);
    let work = Work::new(elements, element, |element| Bloom.apply(element));
    Part { chain: Chain::new(Bloom), work }
}

/// Batches, and of each the number of its results and the sum of their words.
pub struct Work<A> {
    batches: Vec<Vec<A>>,
    sums: Vec<(usize, u64)>,
}

impl<A> Work<A> {
    fn new<D: Words>(elements: usize, make: impl Fn(usize, usize) -> A, apply: impl Fn(&A) -> Option<D>) -> Work<A> {
        let batch = |batch| (0..elements).map(|at| make(batch, at)).collect();
        let batches: Vec<Vec<A>> = (0..PATTERNS).map(batch).collect();
        let sums = batches.iter().map(|batch| sums(&batch.iter().filter_map(&apply).collect::<Vec<D>>())).collect();
        Work { batches, sums }
    }
}

impl<A: Clone> Work<A> {
    /// The batch of a time, and the number of its results and the sum of their words.
    pub fn batch(&self, time: u64) -> (Vec<A>, (usize, u64)) {
        let pattern = time as usize % PATTERNS;
        (self.batches[pattern].clone(), self.sums[pattern])
    }

    /// Elements of a batch.
    pub fn elements(&self) -> usize {
        self.batches[0].len()
    }
}

/// What comes out of a graph, as words.
pub trait Words: Element {
    /// The sum of its words.
    fn sum(&self) -> u64;
}

impl Words for u64 {
    fn sum(&self) -> u64 {
        *self
    }
}

impl<const N: usize> Words for [u64; N] {
    fn sum(&self) -> u64 {
        self.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

/// How many results there are, and the sum of their words.
pub fn sums<D: Words>(results: &[D]) -> (usize, u64) {
    (results.len(), results.iter().fold(0, |sum, result| sum.wrapping_add(result.sum())))
}

/// A graph's operators in software.
trait InSoftware<A, D>: Send + 'static {
    /// Each an operator of Timely's.
    fn each<'scope>(&self, stream: Stream<'scope, u64, Vec<A>>) -> Stream<'scope, u64, Vec<D>>;
    /// All of them one.
    fn all<'scope>(&self, stream: Stream<'scope, u64, Vec<A>>) -> Stream<'scope, u64, Vec<D>>;
}

impl InSoftware<u64, u64> for Vec<Drops> {
    fn each<'scope>(&self, stream: Stream<'scope, u64, Vec<u64>>) -> Stream<'scope, u64, Vec<u64>> {
        self.iter().fold(stream, |stream, filter| software(stream, *filter))
    }
    fn all<'scope>(&self, stream: Stream<'scope, u64, Vec<u64>>) -> Stream<'scope, u64, Vec<u64>> {
        fused(stream, self.clone())
    }
}

impl InSoftware<[u8; 128], [u64; 8]> for Bloom {
    fn each<'scope>(&self, stream: Stream<'scope, u64, Vec<[u8; 128]>>) -> Stream<'scope, u64, Vec<[u64; 8]>> {
        software(stream, *self)
    }
    fn all<'scope>(&self, stream: Stream<'scope, u64, Vec<[u8; 128]>>) -> Stream<'scope, u64, Vec<[u64; 8]>> {
        self.each(stream)
    }
}

/// Runs a graph in one way.
fn run<A: Element + Sync, D: Words>(
    arena: &Arena,
    region: &Region,
    way: Way,
    span: Span,
    part: Part<A, D>,
    operators: impl InSoftware<A, D>,
) -> Result<Outcome, Failure> {
    let Part { chain, work } = part;
    let stop = Arc::new(Flag::new());
    let (mut jobs, mut exchanges) = (Vec::new(), Vec::new());
    if let Way::Played(how) = way {
        let (found, job) = region.devices(chain.program(), how.calls, Arc::clone(&stop));
        exchanges = found;
        jobs.push(job);
    }
    let application = move || {
        let came = Rc::new(Cell::new((0, 0_u64)));
        let into = Rc::clone(&came);
        let sink = move |_, batch: &[D]| {
            let ((count, sum), (more, other)) = (into.get(), sums(batch));
            into.set((count + more, sum.wrapping_add(other)));
        };
        let inline = Offload { calls: Calls::Blocking, detail: Detail::Collapsed };
        let graph = match way {
            Way::Software => Running::new(|stream| Ok(operators.each(stream)), sink),
            Way::Fused => Running::new(|stream| Ok(operators.all(stream)), sink),
            Way::Inline => {
                let device = Inline::new(chain.program(), exchange_bytes());
                Running::new(|stream| offload(stream, &chain, vec![device], inline), sink)
            }
            Way::Played(how) => {
                let devices = exchanges.into_iter().map(PlayedExchange::begin).collect();
                Running::new(|stream| offload(stream, &chain, devices, how), sink)
            }
        };
        graph.map(|graph| measure(graph, &work, &came, span))
    };
    let mut outcomes = arena.run(&stop, jobs, vec![Box::new(application)])?;
    let outcome: Option<Result<Outcome, Fault>> = outcomes.pop();
    outcome
        .ok_or_else(|| Failure::failed("no thread ran the graph"))?
        .map_err(|fault| Failure::failed(fault.to_string()))
}

/// Sends one batch after the other, each when the last is complete.
fn measure<A: Element>(mut graph: Running<A>, work: &Work<A>, came: &Cell<(usize, u64)>, span: Span) -> Outcome {
    let mut outcome = Outcome { batches: 0, wrong: 0, latency: KeptLatency::default() };
    let mut latency = Latency::new();
    let mut time = 0;
    for until in [span.warm_up, span.measured] {
        outcome.batches = 0;
        latency.clear();
        let until = clock::now() + until;
        while clock::now() < until {
            for _ in 0..BETWEEN_LOOKS {
                let (mut batch, right) = work.batch(time);
                came.set((0, 0));
                let start = clock::now();
                graph.send(time, &mut batch);
                graph.advance_to(time + 1);
                while graph.may_come(time) {
                    graph.step();
                }
                latency.record(clock::now().since(start), 1);
                outcome.batches += 1;
                outcome.wrong += u64::from(came.get() != right);
                time += 1;
            }
        }
    }
    graph.close();
    while !graph.has_ended() {
        graph.step();
    }
    outcome.latency = latency.kept();
    outcome
}
