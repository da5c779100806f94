//! `conic dataflow --device simulated`: the graphs on this machine, their device on a modelled one.
//!
//! The host's part of a batch is what this machine's clock says, less what it took to simulate; the device's is the time of the
//! exchanges in the simulation. They are of two machines, and reported apart. Where the host waits for its device, the sum is
//! what a batch would take if this machine had that device. Where calls are deferred, both overlap, and no sum is right: there an
//! exchange ends when so much of the host's time has passed as it took in the simulation, the simulation's own work taken out, and
//! what batches take is read off that one clock.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;
use std::rc::Rc;

use conic_chart::{Axis, Chart, Point, Series};
use conic_dataflow::{Calls, Device, Element, Offload, Running, offload};
use conic_fabric::Time;
use conic_load::Latency;
use conic_native::clock;
use conic_sim::Failure as SimFailure;
use conic_sim::eci::EciParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::crossing::Crossing;
use conic_study::coherent_pio::graphs::Graph as Modelled;
use conic_study::coherent_pio::simulated::{
    CoherentLines, Overlapped, Simulated, SimulatedClock, Transport, unless_stopped,
};
use serde::Serialize;

use super::Options;
use super::graphs::{EXCHANGES, Graph, PAYLOAD_BYTES, Part, Way, Words, bloom, exchange_bytes, filters, sums};
use crate::bench::common::{count, nanoseconds};
use crate::bench::draw;
use crate::bench::failure::{Failure, print_json};
use crate::bench::placement::rounded;

/// Batches of a graph and a size before the first that counts.
const WARM_UP: u64 = 20;

/// Batches at least.
const LEAST: u64 = 50;

/// Batches that are on the way at once at most where calls are deferred: one in each exchange, and as many behind them.
const MOST_ON_THE_WAY: usize = 2 * EXCHANGES;

/// What a batch takes.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    elements: usize,
    /// On this machine's clock: Timely, and copying; a median. Where the host goes on meanwhile, it looks for results when it has
    /// nothing else to do, and nothing tells the one from the other.
    host_ns: Option<f64>,
    /// On the simulator's: the exchanges; a median, or, where several are on the way, a mean.
    simulated_ns: f64,
    /// From one batch to the next: the sum of both where the host waits, and a median on the common clock where it does not.
    together_ns: f64,
    /// From just before a batch is sent until it is complete: the same sum, or a median on the common clock.
    latency_ns: f64,
    /// Batches on the way, in the mean of the time: fewer than may be where the host takes longer for one than its exchanges do.
    on_the_way: f64,
    /// Exchanges of a batch.
    exchanges: u64,
    batches: u64,
    wrong: u64,
}

/// A graph in one way.
#[derive(Clone, Debug, Serialize)]
struct Curves {
    graph: &'static str,
    way: &'static str,
    sizes: Vec<Row>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    device: &'static str,
    platform: &'a str,
    /// Of an exchange each way, and what of it are elements, the rest being progress.
    exchange_bytes: usize,
    payload_bytes: usize,
    graphs: &'a [Curves],
}

/// A transport whose simulation's own time on this machine is kept.
struct Timed {
    inner: CoherentLines,
    spent: Rc<Cell<Time>>,
}

impl Transport for Timed {
    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn crossing(&self) -> Crossing {
        self.inner.crossing()
    }

    fn exchange(&mut self, request: &[u8], most: usize, response: &mut Vec<u8>) -> Result<Time, SimFailure> {
        let start = clock::now();
        let took = self.inner.exchange(request, most, response);
        self.spent.set(self.spent.get() + clock::now().since(start));
        took
    }
}

/// Runs the command.
///
/// # Errors
///
/// If there is no such platform, or the device stops.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let platform = Platform::<EciParameters>::load_as(options.platform.as_deref().unwrap_or("enzian"));
    let platform = platform.map_err(|error| Failure::failed(error.to_string()))?;
    let machine = platform.parameters();
    let mut graphs = Vec::new();
    for graph in Graph::ALL {
        for &way in graph.ways() {
            let Way::Played(how) = way else { continue };
            let row = |&elements| batches(graph, machine, how, elements, options.duration);
            let sizes = graph.sizes().iter().map(row).collect::<Result<_, _>>()?;
            graphs.push(Curves { graph: graph.name(), way: way.name(), sizes });
        }
    }
    let charts = charts(&graphs, platform.name());
    draw::to_file(&charts, &options.svg)?;
    if options.common.json {
        let report = Report {
            schema: "conic.dataflow.simulated/1",
            device: "simulated",
            platform: platform.name(),
            exchange_bytes: exchange_bytes(),
            payload_bytes: PAYLOAD_BYTES,
            graphs: &graphs,
        };
        print_json(&report)?;
    } else {
        table(&graphs, platform.name());
        charts.iter().for_each(draw::on_terminal);
        println!("charts: {}", options.svg.display());
    }
    let wrong: u64 = graphs.iter().flat_map(|graph| &graph.sizes).map(|row| row.wrong).sum();
    if wrong > 0 {
        eprintln!("error: of {wrong} batches something else came out than the operators make");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn batches(graph: Graph, machine: &EciParameters, how: Offload, elements: usize, span: Time) -> Result<Row, Failure> {
    let modelled = match graph {
        Graph::Filters => Modelled::Filters,
        Graph::Bloom => Modelled::Bloom,
    };
    let part = modelled.part(&machine.device, Crossing::Together);
    let lines = || {
        let lines = CoherentLines::new(machine, &part, exchange_bytes());
        lines.map_err(|error| Failure::failed(error.to_string()))
    };
    let count = if how.calls == Calls::Blocking { 1 } else { EXCHANGES };
    let lines = (0..count).map(|_| lines()).collect::<Result<Vec<_>, _>>()?;
    let measured = unless_stopped(|| match graph {
        Graph::Filters => measure(&filters(elements), how, lines, span),
        Graph::Bloom => measure(&bloom(elements), how, lines, span),
    });
    measured.unwrap_or_else(|failure| Err(Failure::failed(format!("the modelled machine stopped: {failure}"))))
}

fn measure<A: Element, D: Words>(
    part: &Part<A, D>,
    how: Offload,
    lines: Vec<CoherentLines>,
    span: Time,
) -> Result<Row, Failure> {
    let clocks = Clocks::default();
    let timed = lines.into_iter().map(|inner| Timed { inner, spent: Rc::clone(&clocks.spent) });
    match how.calls {
        Calls::Blocking => {
            let device = |transport| Simulated::new(transport, clocks.simulated.clone());
            one_by_one(part, how, timed.map(device).collect(), &clocks, span)
        }
        Calls::Deferred => {
            let device = |transport| Overlapped::new(transport, clocks.simulated.clone(), clocks.common());
            several(part, how, timed.map(device).collect(), &clocks, span)
        }
    }
}

/// The times of which a batch's time consists.
#[derive(Default)]
struct Clocks {
    /// The exchanges', in the simulation.
    simulated: SimulatedClock,
    /// What of this machine's is not the graph's: what it took to simulate.
    spent: Rc<Cell<Time>>,
}

impl Clocks {
    /// This machine's clock, which stands while it simulates: on it the graph's work and the exchanges overlap.
    fn common(&self) -> Rc<dyn Fn() -> Time> {
        let spent = Rc::clone(&self.spent);
        Rc::new(move || clock::now().since(spent.get()))
    }

    /// Does what is not the graph's work.
    fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = clock::now();
        let done = work();
        self.spent.set(self.spent.get() + clock::now().since(start));
        done
    }
}

/// The graph with its part on devices; `came` gets what comes out, at its time.
fn running<A: Element, D: Words, V: Device>(
    part: &Part<A, D>,
    how: Offload,
    devices: Vec<V>,
    mut came: impl FnMut(u64, (usize, u64)) + 'static,
) -> Result<Running<A>, Failure> {
    let graph = Running::new(
        |stream| offload(stream, &part.chain, devices, how),
        move |time, batch: &[D]| came(time, sums(batch)),
    );
    graph.map_err(|fault| Failure::failed(fault.to_string()))
}

fn add(sum: &mut (usize, u64), more: (usize, u64)) {
    *sum = (sum.0 + more.0, sum.1.wrapping_add(more.1));
}

fn end<A: Element>(mut graph: Running<A>) {
    graph.close();
    while !graph.has_ended() {
        graph.step();
    }
}

fn median(latency: &Latency) -> f64 {
    rounded(latency.quantile(0.5).picoseconds() as f64 / 1e3, 1)
}

/// Sends one batch after the other, each when the last is complete.
fn one_by_one<A: Element, D: Words, V: Device>(
    part: &Part<A, D>,
    how: Offload,
    devices: Vec<V>,
    Clocks { simulated, spent }: &Clocks,
    span: Time,
) -> Result<Row, Failure> {
    let work = &part.work;
    let came = Rc::new(Cell::new((0, 0_u64)));
    let into = Rc::clone(&came);
    let mut graph = running(part, how, devices, move |_, more| {
        let mut sum = into.get();
        add(&mut sum, more);
        into.set(sum);
    })?;
    let (mut host, mut device) = (Latency::new(), Latency::new());
    let (mut time, mut wrong, mut exchanges, begin) = (0, 0, 0, clock::now());
    while time < WARM_UP + LEAST || clock::now().since(begin) < span {
        let (mut batch, right) = work.batch(time);
        came.set((0, 0));
        let before = (simulated.elapsed(), spent.get());
        let calls = simulated.calls();
        let start = clock::now();
        graph.send(time, &mut batch);
        graph.advance_to(time + 1);
        while graph.may_come(time) {
            graph.step();
        }
        let took = clock::now().since(start);
        if time >= WARM_UP {
            // Two readings of the clock around each exchange are in neither.
            host.record(took.since(spent.get().since(before.1)), 1);
            device.record(simulated.elapsed().since(before.0), 1);
        }
        exchanges = simulated.calls() - calls;
        wrong += u64::from(came.get() != right);
        time += 1;
    }
    end(graph);
    let (host_ns, simulated_ns) = (median(&host), median(&device));
    let together_ns = rounded(host_ns + simulated_ns, 1);
    Ok(Row {
        elements: work.elements(),
        host_ns: Some(host_ns),
        simulated_ns,
        together_ns,
        latency_ns: together_ns,
        on_the_way: 1.0,
        exchanges,
        batches: time - WARM_UP,
        wrong,
    })
}

/// A batch that is on the way.
struct Sent {
    time: u64,
    at: Time,
    /// What must come of it.
    right: (usize, u64),
}

/// Keeps several batches on the way, one more for each look at what has come.
///
/// From one to the next is the median of what as many take as may be on the way: two may end in one look, and the system may take
/// the core away for longer than all of them take.
fn several<A: Element, D: Words, V: Device>(
    part: &Part<A, D>,
    how: Offload,
    devices: Vec<V>,
    clocks: &Clocks,
    span: Time,
) -> Result<Row, Failure> {
    let (work, simulated, now) = (&part.work, &clocks.simulated, clocks.common());
    let came: Rc<RefCell<BTreeMap<u64, (usize, u64)>>> = Rc::default();
    let into = Rc::clone(&came);
    let mut graph =
        running(part, how, devices, move |time, more| add(into.borrow_mut().entry(time).or_default(), more))?;
    let (mut sent, mut latency, mut rounds) = (VecDeque::new(), Latency::new(), Latency::new());
    let mut ends = VecDeque::new();
    let (mut next, mut wrong, mut last, mut on_their_way) = (0, 0, Time::ZERO, Time::ZERO);
    let (mut began, begin) = ((Time::ZERO, Time::ZERO, 0), clock::now());
    loop {
        let goes_on = next < WARM_UP + LEAST || clock::now().since(begin) < span;
        if goes_on && sent.len() < MOST_ON_THE_WAY {
            let (mut batch, right) = clocks.aside(|| work.batch(next));
            if next == WARM_UP {
                began = (now(), simulated.elapsed(), simulated.calls());
            }
            sent.push_back(Sent { time: next, at: now(), right });
            graph.send(next, &mut batch);
            next += 1;
            graph.advance_to(next);
        } else if sent.is_empty() {
            break;
        }
        graph.step();
        while let Some(first) = sent.front()
            && !graph.may_come(first.time)
        {
            last = now();
            if first.time >= WARM_UP {
                latency.record(last.since(first.at), 1);
                on_their_way += last.since(first.at);
                ends.push_back(last);
                if ends.len() > MOST_ON_THE_WAY {
                    rounds.record(last.since(ends.pop_front().unwrap_or(last)), 1);
                }
            }
            wrong += u64::from(came.borrow_mut().remove(&first.time).unwrap_or_default() != first.right);
            sent.pop_front();
        }
    }
    // Every batch takes as many.
    let exchanges = simulated.calls() / next;
    let each = |time: Time, count: u64| rounded(time.picoseconds() as f64 / 1e3 / count as f64, 1);
    let took = each(simulated.elapsed().since(began.1), simulated.calls() - began.2);
    let all = last.since(began.0);
    end(graph);
    Ok(Row {
        elements: work.elements(),
        host_ns: None,
        simulated_ns: rounded(took * exchanges as f64, 1),
        together_ns: rounded(median(&rounds) / MOST_ON_THE_WAY as f64, 1),
        latency_ns: median(&latency),
        on_the_way: rounded(on_their_way.picoseconds() as f64 / all.picoseconds() as f64, 2),
        exchanges,
        batches: next - WARM_UP,
        wrong,
    })
}

fn table(graphs: &[Curves], platform: &str) {
    println!("operators of a Timely graph, on a device of the modelled machine {platform}; a batch");
    println!("  host: this machine's clock, less the simulation; simulated: the exchanges, on");
    println!("  the simulator's clock");
    println!("  where the host waits for its device, their sum is what this machine would take");
    println!("  with that device; where calls are deferred, up to {MOST_ON_THE_WAY} batches are on the way and");
    println!("  both overlap: an exchange ends when as much of the host's time has passed as");
    println!("  it takes in the simulation; together: from one batch to the next");
    for one in graphs {
        println!("\n  {}, {}; elements of a batch:", one.graph, one.way);
        let line = |name: &str, cell: &dyn Fn(&Row) -> String| {
            let cells: String = one.sizes.iter().map(|row| format!(" {:>7}", cell(row))).collect();
            println!("  {name:20}{cells}");
        };
        line("", &|row| count(row.elements as u64));
        if one.sizes.iter().all(|row| row.host_ns.is_some()) {
            line("host", &|row| row.host_ns.map_or_else(String::new, nanoseconds));
        }
        line("simulated", &|row| nanoseconds(row.simulated_ns));
        line("together", &|row| nanoseconds(row.together_ns));
        // Deferred.
        if one.sizes.iter().all(|row| row.host_ns.is_none()) {
            line("sent to complete", &|row| nanoseconds(row.latency_ns));
            line("batches on the way", &|row| format!("{:.1}", row.on_the_way));
        }
        line("exchanges of a batch", &|row| row.exchanges.to_string());
    }
    println!("\n  what came out of every batch was compared with what the operators make");
}

/// A chart for each graph and way.
fn charts(graphs: &[Curves], platform: &str) -> Vec<Chart> {
    let chart = |one: &Curves| {
        let axes = (Axis::log("Elements of a batch", ""), Axis::log("Time of a batch", "us"));
        let title = format!("{}, {}, on a device of {platform}", one.graph, one.way);
        let points = |figure: fn(&Row) -> Option<f64>| {
            let point = move |row: &Row| Some(Point::new(row.elements as f64, figure(row)? / 1e3));
            one.sizes.iter().filter_map(point).collect::<Vec<_>>()
        };
        let chart = Chart::xy(title, axes.0, axes.1)
            .note("The host's part is of the machine that ran this, the exchanges' of the modelled one.");
        let host = points(|row| row.host_ns);
        let chart = match host.is_empty() {
            true => chart.series(Series::line("from one batch to the next", points(|row| Some(row.together_ns)))),
            false => chart.series(Series::line("host", host)),
        };
        chart.series(Series::line("exchanges, simulated", points(|row| Some(row.simulated_ns))))
    };
    graphs.iter().map(chart).collect()
}
