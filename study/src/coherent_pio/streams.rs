//! Figures 11 and 12: operators of a stream's graph on the device.

use conic_chart::{Axis, Chart, Series};
use conic_dataflow::{Detail, Fault};

use super::graphs::{EXCHANGE_BYTES, Graph};
use super::simulated::CoherentLines;
use conic_sim::eci::EciParameters;

use crate::experiment::Findings;

/// Numbers of a batch of the filters: one line's, and on.
const NUMBERS: [usize; 8] = [16, 32, 64, 128, 256, 512, 1024, 2048];

/// Elements of a batch of the Bloom filter.
const ELEMENTS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Between which batches the time an element is taken.
const SLOPE: [usize; 2] = [64, 256];

/// Points of a curve: elements of a batch, and its time in microseconds.
type Curve = Vec<(f64, f64)>;

fn at(curve: &Curve, elements: usize) -> Option<f64> {
    curve.iter().find(|(size, _)| *size == elements as f64).map(|(_, time)| *time)
}

/// Whether one curve lies below another everywhere.
fn below(one: &Curve, other: &Curve) -> bool {
    one.iter().zip(other).all(|((_, one), (_, other))| one < other)
}

/// The time that an element more takes, in microseconds.
fn per_element(curve: &Curve) -> Option<f64> {
    let [few, many] = SLOPE;
    Some((at(curve, many)? - at(curve, few)?) / (many - few) as f64)
}

fn coherent(machine: &EciParameters, graph: Graph, detail: Detail, sizes: &[usize]) -> Result<Curve, Fault> {
    let point = |elements: &usize| {
        let lines = CoherentLines::new(machine, &graph.program(), graph.pipeline(), EXCHANGE_BYTES);
        let lines = lines.map_err(|_| Fault::Stopped)?;
        Ok((*elements as f64, graph.offloaded(machine, *elements, detail, lines)?.microseconds()))
    };
    sizes.iter().map(point).collect()
}

fn software(machine: &EciParameters, graph: Graph, sizes: &[usize]) -> Curve {
    sizes.iter().map(|&elements| (elements as f64, graph.in_software(machine, elements).microseconds())).collect()
}

/// Figure 11. Progress crosses for each operator: the paper's graph is that of an entire sub-graph's statistics (section 5.3).
pub(super) fn filters(machine: &EciParameters) -> Result<Findings, Fault> {
    let graph = Graph::Filters;
    let software = software(machine, graph, &NUMBERS);
    let fused = NUMBERS.map(|elements| (elements as f64, graph.fused(machine, elements).microseconds())).to_vec();
    let each = coherent(machine, graph, Detail::EachOperator, &NUMBERS)?;
    let collapsed = coherent(machine, graph, Detail::Collapsed, &NUMBERS)?;
    let mut findings = Findings::default();
    findings.holds("pio.fig11.eci_below_software", Some(below(&each, &software)));
    findings.number("pio.fig11.eci_one_line", "us", at(&each, NUMBERS[0]));
    findings.number("pio.fig11.eci_one_line_collapsed", "us", at(&collapsed, NUMBERS[0]));
    findings.number("pio.fig11.software_one_line", "us", at(&software, NUMBERS[0]));
    findings.number("pio.fig11.fused_one_line", "us", at(&fused, NUMBERS[0]));
    let chart = Chart::xy("31 filters", Axis::log("Numbers of a batch", ""), Axis::log("Time of a batch", "us"))
        .note("Timely's own time is what it takes on x86, scaled; exchanges are simulated.")
        .series(Series::line("software", software))
        .series(Series::line("software, one operator for all", fused))
        .series(Series::line("coherent PIO, each operator's progress", each))
        .series(Series::line("coherent PIO, collapsed", collapsed));
    findings.plot("fig11", chart);
    Ok(findings)
}

/// A batch of one line of numbers through the filters with each operator's progress, in microseconds.
pub(super) fn filters_one_line(machine: &EciParameters) -> Result<Option<f64>, Fault> {
    Ok(at(&coherent(machine, Graph::Filters, Detail::EachOperator, &NUMBERS[..1])?, NUMBERS[0]))
}

/// The time that an element more takes where a Bloom filter is offloaded, in microseconds.
pub(super) fn bloom_per_element(machine: &EciParameters) -> Result<Option<f64>, Fault> {
    Ok(per_element(&coherent(machine, Graph::Bloom, Detail::Collapsed, &SLOPE)?))
}

/// Figure 12.
pub(super) fn bloom(machine: &EciParameters) -> Result<Findings, Fault> {
    let graph = Graph::Bloom;
    let software = software(machine, graph, &ELEMENTS);
    let offloaded = coherent(machine, graph, Detail::Collapsed, &ELEMENTS)?;
    let mut findings = Findings::default();
    findings.number("pio.fig12.per_element", "us", per_element(&offloaded));
    let one = at(&offloaded, 1).zip(at(&software, 1));
    findings
        .holds("pio.fig12.all_start_near_25", one.map(|(a, b)| [a, b].iter().all(|time| (20.0..30.0).contains(time))));
    let gains: Vec<f64> = software.iter().zip(&offloaded).map(|((_, cpu), (_, device))| cpu / device).collect();
    let grows = gains.windows(2).all(|pair| pair[0] < pair[1]);
    findings.holds("pio.fig12.advantage_increases", Some(grows));
    let chart = Chart::xy("Bloom filter", Axis::log("Elements of a batch", ""), Axis::log("Time of a batch", "us"))
        .note("Timely's own time is the published start-up; exchanges are simulated.")
        .series(Series::line("software", software))
        .series(Series::line("coherent PIO", offloaded));
    findings.plot("fig12", chart);
    Ok(findings)
}
