//! Figures 11 and 12: operators of a stream's graph on the device.

use conic_chart::{Axis, Chart, Series};
use conic_dataflow::Detail;
use conic_interface::xdma::Completion;
use conic_sim::eci::EciParameters;

use super::crossing::Crossing;
use super::figures::Machines;
use super::graphs::{BatchTime, Graph, NotOffloaded};
use super::pcie;
use super::simulated::{CoherentLines, Pcie};
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

/// Whether one curve lies above another by more and more, as a share.
fn gains(slower: &Curve, faster: &Curve) -> bool {
    let shares: Vec<f64> = slower.iter().zip(faster).map(|((_, slower), (_, faster))| slower / faster).collect();
    shares.windows(2).all(|pair| pair[0] < pair[1])
}

/// The time that an element more takes, in microseconds.
fn per_element(curve: &Curve) -> Option<f64> {
    let [few, many] = SLOPE;
    Some((at(curve, many)? - at(curve, few)?) / (many - few) as f64)
}

fn curve(sizes: &[usize], time: impl Fn(usize) -> Result<BatchTime, NotOffloaded>) -> Result<Curve, NotOffloaded> {
    sizes.iter().map(|&elements| Ok((elements as f64, time(elements)?.microseconds()))).collect()
}

/// Over coherent lines, as published.
fn coherent(machine: &EciParameters, graph: Graph, detail: Detail, sizes: &[usize]) -> Result<Curve, NotOffloaded> {
    coherent_in(Crossing::Apart, machine, graph, detail, sizes)
}

fn coherent_in(
    crossing: Crossing,
    machine: &EciParameters,
    graph: Graph,
    detail: Detail,
    sizes: &[usize],
) -> Result<Curve, NotOffloaded> {
    curve(sizes, |elements| batch_in(crossing, machine, graph, detail, elements))
}

/// A batch over coherent lines.
fn batch_in(
    crossing: Crossing,
    machine: &EciParameters,
    graph: Graph,
    detail: Detail,
    elements: usize,
) -> Result<BatchTime, NotOffloaded> {
    let part = graph.part(&machine.device, crossing);
    let lines = CoherentLines::new(machine, &part, graph.exchange_bytes(detail));
    graph.offloaded(machine, elements, detail, lines?)
}

/// Over PCIe, by one way, as published.
fn over(
    machines: &Machines,
    transport: pcie::Transport,
    graph: Graph,
    detail: Detail,
    sizes: &[usize],
) -> Result<Curve, NotOffloaded> {
    curve(sizes, |elements| batch_over(machines, transport, graph, detail, elements))
}

/// A batch over PCIe.
fn batch_over(
    machines: &Machines,
    transport: pcie::Transport,
    graph: Graph,
    detail: Detail,
    elements: usize,
) -> Result<BatchTime, NotOffloaded> {
    let part = graph.part(&machines.enzian.device, Crossing::Apart);
    let device = Pcie::new(&machines.enzian_pcie, transport, &part, graph.exchange_bytes(detail));
    graph.offloaded(&machines.enzian, elements, detail, device)
}

/// By PIO over PCIe, and by DMA, polled.
fn over_pcie(machines: &Machines, graph: Graph, detail: Detail, sizes: &[usize]) -> Result<[Curve; 2], NotOffloaded> {
    let by = |transport| over(machines, transport, graph, detail, sizes);
    Ok([by(pcie::Transport::Pio)?, by(pcie::Transport::Dma(Completion::Polled))?])
}

fn software(machine: &EciParameters, graph: Graph, sizes: &[usize]) -> Result<Curve, NotOffloaded> {
    curve(sizes, |elements| Ok(graph.in_software(machine, elements)))
}

/// Figure 11. Progress crosses for each operator, in exchanges of its own: the paper speaks of an entire sub-graph's progress
/// tracking, and of statistics that are exchanged before and after a batch (section 5.3).
pub(super) fn filters(machines: &Machines) -> Result<Findings, NotOffloaded> {
    let (graph, machine) = (Graph::Filters, &machines.enzian);
    let software = software(machine, graph, &NUMBERS)?;
    let fused = curve(&NUMBERS, |elements| Ok(graph.fused(machine, elements)))?;
    let each = coherent(machine, graph, Detail::EachOperator, &NUMBERS)?;
    let collapsed = coherent(machine, graph, Detail::Collapsed, &NUMBERS)?;
    let together = coherent_in(Crossing::Together, machine, graph, Detail::EachOperator, &NUMBERS)?;
    let [pio, dma] = over_pcie(machines, graph, Detail::EachOperator, &NUMBERS)?;
    let mut findings = Findings::default();
    findings.holds("pio.fig11.eci_below_pcie_and_dma", Some(below(&each, &pio) && below(&each, &dma)));
    findings.holds("pio.fig11.eci_below_software", Some(below(&each, &software)));
    findings.holds("pio.fig11.pcie_not_below_software", Some(below(&software, &pio)));
    findings.holds("pio.fig11.dma_not_below_software", Some(below(&software, &dma)));
    for (id, curve) in [
        ("pio.beyond.fig11_software_one_line", &software),
        ("pio.beyond.fig11_fused_one_line", &fused),
        ("pio.beyond.fig11_eci_one_line", &each),
        ("pio.beyond.fig11_eci_one_line_collapsed", &collapsed),
        ("pio.improved.fig11_eci_one_line_together", &together),
        ("pio.beyond.fig11_pcie_one_line", &pio),
        ("pio.beyond.fig11_dma_one_line", &dma),
    ] {
        findings.number(id, "us", at(curve, NUMBERS[0]));
    }
    let chart = Chart::xy("31 filters", Axis::log("Numbers of a batch", ""), Axis::log("Time of a batch", "us"))
        .note("Exchanges are simulated. A batch's start-up is Figure 12's, as published; an operator's and a record's time is x86's, scaled.")
        .series(Series::line("software", software))
        .series(Series::line("software, one operator for all", fused))
        .series(Series::line("coherent PIO", each))
        .series(Series::line("coherent PIO, collapsed", collapsed))
        .series(Series::line("coherent PIO, progress with the data (an improvement)", together))
        .series(Series::line("PIO over PCIe", pio))
        .series(Series::line("DMA", dma));
    findings.plot("fig11", chart);
    Ok(findings)
}

/// A batch of one line of numbers through the filters with each operator's progress, in microseconds.
pub(super) fn filters_one_line(machine: &EciParameters) -> Result<Option<f64>, NotOffloaded> {
    Ok(at(&coherent(machine, Graph::Filters, Detail::EachOperator, &NUMBERS[..1])?, NUMBERS[0]))
}

/// A batch of so many numbers through the filters over PCIe, as a share of what it takes in software.
pub(super) fn over_software(
    machines: &Machines,
    transport: pcie::Transport,
    numbers: usize,
) -> Result<Option<f64>, NotOffloaded> {
    let offloaded = over(machines, transport, Graph::Filters, Detail::EachOperator, &[numbers])?;
    let software = software(&machines.enzian, Graph::Filters, &[numbers])?;
    Ok(at(&offloaded, numbers).zip(at(&software, numbers)).map(|(offloaded, software)| offloaded / software))
}

/// The time that an element more takes where a Bloom filter is offloaded, in microseconds.
pub(super) fn bloom_per_element(machine: &EciParameters) -> Result<Option<f64>, NotOffloaded> {
    Ok(per_element(&coherent(machine, Graph::Bloom, Detail::Collapsed, &SLOPE)?))
}

/// Figure 12.
pub(super) fn bloom(machines: &Machines) -> Result<Findings, NotOffloaded> {
    let (graph, machine) = (Graph::Bloom, &machines.enzian);
    let software = software(machine, graph, &ELEMENTS)?;
    let offloaded = coherent(machine, graph, Detail::Collapsed, &ELEMENTS)?;
    let [pio, dma] = over_pcie(machines, graph, Detail::Collapsed, &ELEMENTS)?;
    let mut findings = Findings::default();
    findings.number("pio.fig12.per_element", "us", per_element(&offloaded));
    let near_25 = |curve: &Curve| at(curve, 1).is_some_and(|time| (20.0..37.5).contains(&time));
    findings.holds(
        "pio.fig12.pio_and_software_start_near_25",
        Some([&software, &offloaded, &pio].into_iter().all(near_25)),
    );
    findings.holds("pio.fig12.advantage_increases", Some(gains(&software, &offloaded)));
    findings.holds("pio.fig12.pcie_cost_increases", Some(gains(&pio, &offloaded)));
    // Over the whole curve, while programmed I/O over PCIe takes many times as long.
    let flat = dma.first().zip(dma.last()).map(|(one, many)| many.1 < 1.5 * one.1);
    findings.holds("pio.fig12.dma_barely_increases", flat);
    findings.holds("pio.fig12.dma_above_eci", Some(below(&offloaded, &dma)));
    findings.number("pio.beyond.fig12_pcie_per_element", "us", per_element(&pio));
    findings.number("pio.beyond.fig12_dma_per_element", "us", per_element(&dma));
    let chart = Chart::xy("Bloom filter", Axis::log("Elements of a batch", ""), Axis::log("Time of a batch", "us"))
        .note("Exchanges are simulated. Timely's own time is the published start-up, and a record's is x86's, scaled.")
        .series(Series::line("software", software))
        .series(Series::line("coherent PIO", offloaded))
        .series(Series::line("PIO over PCIe", pio))
        .series(Series::line("DMA", dma));
    findings.plot("fig12", chart);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use conic_sim::platform::Platform;

    use super::*;

    #[test]
    fn every_studied_batch_crosses_in_one_part() {
        let lines = |name| Platform::<EciParameters>::load_as(name).expect("it is shipped").parameters().clone();
        let sockets = |name| Platform::load(name).expect("it is shipped").parameters().clone();
        let machines = Machines {
            enzian: lines("enzian"),
            enzian_pcie: sockets("enzian-pcie"),
            pc_pcie: sockets("pc-pcie"),
            thunderx: sockets("thunderx"),
            cxl: lines("cxl3-mem"),
        };
        // The longest of each figure.
        for (graph, sizes, details) in [
            (Graph::Filters, &NUMBERS[..], &[Detail::Collapsed, Detail::EachOperator][..]),
            (Graph::Bloom, &ELEMENTS[..], &[Detail::Collapsed][..]),
        ] {
            let elements = *sizes.last().expect("a figure has points");
            for &detail in details {
                let of = |time: Result<BatchTime, NotOffloaded>| time.expect("the device answers").parts;
                for (machine, crossing) in [&machines.enzian, &machines.cxl]
                    .into_iter()
                    .flat_map(|machine| [Crossing::Together, Crossing::Apart].map(|crossing| (machine, crossing)))
                {
                    let parts = of(batch_in(crossing, machine, graph, detail, elements));
                    assert_eq!(parts, 1, "{graph:?}, {detail:?}, {crossing:?}, {}", machine.name);
                }
                for transport in [pcie::Transport::Pio, pcie::Transport::Dma(Completion::Polled)] {
                    let parts = of(batch_over(&machines, transport, graph, detail, elements));
                    assert_eq!(parts, 1, "{graph:?}, {detail:?}, {transport:?}");
                }
            }
        }
    }
}
