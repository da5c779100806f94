//! Key results of two studies stay as they are known to be, and hardly move with the seed: short runs of single points. They are this
//! project's own predictions, and no published value. `enzian` has the same for coherent programmed I/O.

use std::fs;
use std::path::Path;

use conic_fabric::Time;
use conic_interface::ccnic::Features;
use conic_sim::Parameters;
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::percentile;
use conic_study::cxl_nic::loopback::{Design, Loopback as CxlLoopback, around, loopback};
use conic_study::cxl_nic::throughput::{Throughput, receive, transmit};
use conic_study::cxl_nic::{ccnic, optimal};
use conic_study::simulated::Simulator;
use conic_study::workload::{Interface, Loopback, Machine};

/// By how much a result may differ from what is written down here: nothing that anybody would see in a figure.
const ROOM: f64 = 0.005;

/// By how much results may differ over seeds.
const SEEDS: f64 = 0.02;

/// What was found, by a name.
type Found = Vec<(&'static str, f64)>;

/// What is known: a line for each result, `name = value`, in parts that begin with `[title]`.
fn known(title: &str) -> Vec<(String, f64)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/predictions.txt");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().map(str::trim).skip_while(|line| *line != format!("[{title}]")).skip(1);
    let of_part = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    of_part.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

/// Compares what was found with what is known.
fn stay(title: &str, found: &Found) {
    let known = known(title);
    let listed: Vec<String> = found.iter().map(|(name, value)| format!("{name} = {value:.3}")).collect();
    let all = listed.join("\n");
    let names = |(name, _): &(&'static str, f64)| (*name).to_owned();
    let of_known: Vec<String> = known.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(found.iter().map(names).collect::<Vec<String>>(), of_known, "these were found:\n{all}");
    // What is no number has moved, too.
    let has_moved = |found: f64, known: f64| found.is_nan() || (found / known - 1.0).abs() > ROOM;
    let moved = found.iter().zip(&known).filter(|((_, found), (_, known))| has_moved(*found, *known));
    let moved: Vec<String> =
        moved.map(|((name, found), (_, known))| format!("{name}: {found:.3}, and it was {known}")).collect();
    assert!(
        moved.is_empty(),
        "predictions have moved. If a model was changed on purpose, run its study anew (conic study), change FIGURES.md and README.md where \
         they say otherwise now, and study/tests/predictions.txt, in the commit that changes the model. If none was, this is a fault:\n{}\n\
         all of them:\n{all}",
        moved.join("\n")
    );
}

/// Asserts that no result of one seed is further from that of the first than it may be.
fn hardly_move(of_seed: impl Fn(u64) -> Found) {
    let first = of_seed(1);
    for seed in 2..5 {
        for ((name, first), (_, other)) in first.iter().zip(of_seed(seed)) {
            assert!((other / first - 1.0).abs() < SEEDS, "{name}: {first} with seed 1, {other} with seed {seed}");
        }
    }
}

fn host(name: &str) -> Parameters {
    Platform::load(name).expect("the platform is shipped").parameters().clone()
}

/// Median latency of one packet in flight, and the rate of many.
fn coherent(
    names: [&'static str; 2],
    machine: &Parameters,
    interface: Interface,
    packet_size: u16,
    seed: u64,
) -> Found {
    let question = Loopback { packet_size, seed, packets: (1_200, 1_500), ..Loopback::new(machine, interface) };
    let ask = |window| {
        Simulator.loopback(&Loopback { window, ..question.clone() }).unwrap_or_else(|failure| panic!("{failure}"))
    };
    let (alone, many) = (ask(1), ask(64));
    names.into_iter().zip([alone.median_nanoseconds, many.packets_per_second / 1e6]).collect()
}

/// CC-NIC and what it is compared with: nanoseconds, and million packets a second of a thread.
fn of_ccnic(seed: u64) -> Found {
    let (icx, spr) = (host("icx"), host("spr"));
    let paper = Interface::CcNic(Features::paper());
    let mut found = coherent(["icx CC-NIC, latency", "icx CC-NIC, rate"], &icx, paper, 64, seed);
    found.extend(coherent(["spr CC-NIC, latency", "spr CC-NIC, rate"], &spr, paper, 64, seed));
    found.extend(coherent(["spr CC-NIC 1500, latency", "spr CC-NIC 1500, rate"], &spr, paper, 1500, seed));
    found.extend(coherent(["spr ring, latency", "spr ring, rate"], &spr, Interface::UnoptimisedRing, 64, seed));
    found.extend(coherent(["cx6, latency", "cx6, rate"], &host("icx-cx6"), Interface::PcieRing, 64, seed));
    found
}

fn device(name: &str) -> CxlParameters {
    Platform::<CxlParameters>::load_as(name).expect("the platform is shipped").parameters().clone()
}

/// Median latency of packets that find everything at rest.
fn at_rest(machine: &CxlParameters, design: Design, bytes: usize, seed: u64) -> f64 {
    let packets = (around(&design, bytes), 200);
    let gap = Time::from_nanoseconds(20_000);
    let question = CxlLoopback { machine: machine.clone(), design, bytes, gap, together: 1, packets, seed };
    percentile(&loopback(&question).expect("it ends").latencies, 0.5)
}

/// NICs behind CXL and PCIe: nanoseconds.
fn of_cxl(seed: u64) -> Found {
    let (agilex, bluefield) = (device("agilex7"), device("bf3"));
    let designs = [
        ("combination 0", &agilex, Design::combination(0), 64),
        ("combination 0, 1500", &agilex, Design::combination(0), 1500),
        ("combination 4", &agilex, Design::combination(4), 64),
        ("optimal", &agilex, optimal(), 64),
        ("optimal, 1500", &agilex, optimal(), 1500),
        ("CC-NIC's layout", &agilex, ccnic(), 64),
        ("DMA", &bluefield, Design::pcie(), 64),
        ("DMA, 1500", &bluefield, Design::pcie(), 1500),
    ];
    designs.map(|(name, machine, design, bytes)| (name, at_rest(machine, design, bytes, seed))).into()
}

/// The highest rates each way: gigabits a second.
fn highest() -> Found {
    let machine = device("agilex7");
    let of = |design: Design| {
        let question = Throughput { machine: machine.clone(), design, bytes: 1500, packets: (1_000, 1_000) };
        [receive(&question), transmit(&question)].map(|flow| flow.expect("it ends").gigabits)
    };
    let [[to, from], [pushed, fetched]] = [of(Design::combination(0)), of(optimal())];
    vec![
        ("combination 0, to the host", to),
        ("combination 0, from it", from),
        ("optimal, to the host", pushed),
        ("optimal, from it", fetched),
    ]
}

#[test]
fn ccnics_key_results_stay() {
    stay("ccnic", &of_ccnic(1));
}

#[test]
fn the_cxl_nics_key_results_stay() {
    let mut found = of_cxl(0);
    found.extend(highest());
    stay("cxl-nic", &found);
}

#[test]
fn ccnics_key_results_hardly_move_with_the_seed() {
    hardly_move(of_ccnic);
}

#[test]
fn the_cxl_nics_key_results_hardly_move_with_the_seed() {
    hardly_move(of_cxl);
}
