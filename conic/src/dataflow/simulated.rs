//! `conic dataflow --device simulated`: the graphs on this machine, their device on a modelled one.
//!
//! The host's part of a batch is what this machine's clock says, less what it took to simulate; the device's is the time of the
//! exchanges in the simulation. They are of two machines, and reported apart. The host waits for its device, so that the sum is
//! what a batch would take if this machine had that device.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::rc::Rc;

use conic_chart::{Axis, Chart, Point, Series};
use conic_dataflow::{Calls, Detail, Element, Offload, Running, offload};
use conic_fabric::Time;
use conic_load::Latency;
use conic_native::clock;
use conic_sim::Failure as SimFailure;
use conic_sim::eci::EciParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::crossing::Crossing;
use conic_study::coherent_pio::graphs::Graph as Modelled;
use conic_study::coherent_pio::simulated::{CoherentLines, Simulated, SimulatedClock, Transport};
use serde::Serialize;

use super::Options;
use super::graphs::{Graph, PAYLOAD_BYTES, Part, Words, bloom, exchange_bytes, filters, sums};
use crate::bench::common::{count, nanoseconds};
use crate::bench::draw;
use crate::bench::failure::{Failure, print_json};
use crate::bench::placement::rounded;

/// Batches of a graph and a size before the first that counts.
const WARM_UP: u64 = 20;

/// Batches at least.
const LEAST: u64 = 50;

/// Medians of a batch's two parts.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    elements: usize,
    /// On this machine's clock: Timely, and copying.
    host_ns: f64,
    /// On the simulator's: the exchanges.
    simulated_ns: f64,
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

/// Why the modelled machine stopped, on its way out of a graph, whose operators have nobody to return an error to.
struct Stopped(SimFailure);

/// A transport whose simulation's own time on this machine is kept. Where the simulation stops, it unwinds with [`Stopped`].
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
        // No panic hook is called: nothing is wrong with this program.
        Ok(took.unwrap_or_else(|failure| resume_unwind(Box::new(Stopped(failure)))))
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
        let ways: &[(Detail, &str)] = match graph {
            Graph::Filters => &[(Detail::Collapsed, "collapsed"), (Detail::EachOperator, "each operator")],
            Graph::Bloom => &[(Detail::Collapsed, "collapsed")],
        };
        for &(detail, way) in ways {
            let row = |&elements| batches(graph, machine, detail, elements, options.duration);
            let sizes = graph.sizes().iter().map(row).collect::<Result<_, _>>()?;
            graphs.push(Curves { graph: graph.name(), way, sizes });
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

fn batches(graph: Graph, machine: &EciParameters, detail: Detail, elements: usize, span: Time) -> Result<Row, Failure> {
    let modelled = match graph {
        Graph::Filters => Modelled::Filters,
        Graph::Bloom => Modelled::Bloom,
    };
    let lines = CoherentLines::new(machine, &modelled.part(&machine.device, Crossing::Together), exchange_bytes());
    let lines = lines.map_err(|error| Failure::failed(error.to_string()))?;
    let measured = catch_unwind(AssertUnwindSafe(|| match graph {
        Graph::Filters => measure(&filters(elements), detail, lines, span),
        Graph::Bloom => measure(&bloom(elements), detail, lines, span),
    }));
    measured.unwrap_or_else(|panic| match panic.downcast::<Stopped>() {
        Ok(stopped) => Err(Failure::failed(format!("the modelled machine stopped: {}", stopped.0))),
        Err(panic) => resume_unwind(panic),
    })
}

/// Sends one batch after the other, each when the last is complete.
fn measure<A: Element, D: Words>(
    part: &Part<A, D>,
    detail: Detail,
    lines: CoherentLines,
    span: Time,
) -> Result<Row, Failure> {
    let Part { chain, work } = part;
    let (simulated, spent) = (SimulatedClock::default(), Rc::new(Cell::new(Time::ZERO)));
    let device = Simulated::new(Timed { inner: lines, spent: Rc::clone(&spent) }, simulated.clone());
    let came = Rc::new(Cell::new((0, 0_u64)));
    let into = Rc::clone(&came);
    let how = Offload { calls: Calls::Blocking, detail };
    let graph = Running::new(
        |stream| offload(stream, chain, vec![device], how),
        move |_, batch: &[D]| {
            let ((count, sum), (more, other)) = (into.get(), sums(batch));
            into.set((count + more, sum.wrapping_add(other)));
        },
    );
    let mut graph: Running<A> = graph.map_err(|fault| Failure::failed(fault.to_string()))?;
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
    graph.close();
    while !graph.has_ended() {
        graph.step();
    }
    let median = |latency: &Latency| rounded(latency.quantile(0.5).picoseconds() as f64 / 1e3, 1);
    let elements = work.elements();
    let (host_ns, simulated_ns) = (median(&host), median(&device));
    Ok(Row { elements, host_ns, simulated_ns, exchanges, batches: time - WARM_UP, wrong })
}

fn table(graphs: &[Curves], platform: &str) {
    println!("operators of a Timely graph, on a device of the modelled machine {platform}; a batch's time, medians");
    println!("  host: this machine's clock, less the simulation; simulated: the exchanges, on the simulator's clock");
    println!("  the host waits for its device, so that their sum is what this machine would take with that device");
    for one in graphs {
        println!("\n  {}, {}; elements of a batch:", one.graph, one.way);
        let heading: String = one.sizes.iter().map(|row| format!(" {:>9}", count(row.elements as u64))).collect();
        println!("    {:24}{heading}", "");
        let line = |name: &str, figure: fn(&Row) -> f64| {
            let figures: String = one.sizes.iter().map(|row| format!(" {:>9}", nanoseconds(figure(row)))).collect();
            println!("    {name:24}{figures}");
        };
        line("host", |row| row.host_ns);
        line("simulated", |row| row.simulated_ns);
        line("together", |row| row.host_ns + row.simulated_ns);
        let exchanges: String = one.sizes.iter().map(|row| format!(" {:>9}", row.exchanges)).collect();
        println!("    {:24}{exchanges}", "exchanges of a batch");
    }
    println!("\n  what came out of every batch was compared with what the operators make");
}

/// A chart for each graph and way.
fn charts(graphs: &[Curves], platform: &str) -> Vec<Chart> {
    let chart = |one: &Curves| {
        let axes = (Axis::log("Elements of a batch", ""), Axis::log("Time of a batch", "us"));
        let title = format!("{}, {}, on a device of {platform}", one.graph, one.way);
        let points = |figure: fn(&Row) -> f64| {
            one.sizes.iter().map(move |row| Point::new(row.elements as f64, figure(row) / 1e3)).collect::<Vec<_>>()
        };
        Chart::xy(title, axes.0, axes.1)
            .note("The host's part is of the machine that ran this, the exchanges' of the modelled one.")
            .series(Series::line("host", points(|row| row.host_ns)))
            .series(Series::line("exchanges, simulated", points(|row| row.simulated_ns)))
    };
    graphs.iter().map(chart).collect()
}
