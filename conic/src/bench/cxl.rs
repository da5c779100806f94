//! `conic bench cxl`: the CXL NIC's rings between two cores, one of which plays the device, by how it writes and reads.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use conic_fabric::{Address, Core, Layout, PlayedByCore, StateHint, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{Host, Queues, Receiver, Requests, Shape, Signal, Store, Transmitter};
use conic_load::Latency;
use conic_native::{Flag, NativeCore, clock, demotes};
use serde::Serialize;

use super::arena::Arena;
use super::common::{
    Common, MachineReport, nanoseconds, placement_line, print_notes, range, region, span, three_digits,
};
use super::failure::{Failure, print_json};
use super::placement::{Placement, Spread};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate, rounds_of};

/// The CXL NIC's rings between two cores, by the request types of the one that plays the device
///
/// A packet goes from the core that plays the device to the other, which copies it and sends it back, one at a time. A hint becomes
/// what a core can do: CS and CO are loads and stores, NC-write is a non-temporal store of each whole line, NC-P a store after which
/// the line is demoted to the shared cache (cldemote), and left out where the processor has no such instruction.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a packet
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = clap::value_parser!(u16).range(16..=9000))]
    pub size: u16,
    /// How long to measure each design, in slices of 20 ms, in turn
    #[arg(long, value_name = "TIME", default_value = "400ms", value_parser = span)]
    pub duration: Time,
}

const EXAMPLES: &str = "What is visible on one socket: in which cache a line is when the other side asks for it: the writer's own, the one \
that both share, or none. What is not: a device's own cache and memory, bias, and what a request costs a link; those are in conic study cxl-nic.

A slice's figure is the median latency of its packets. It stands beside one of loads and stores of the same round and the same placement of \
the cores; the ratio is over those pairs. A difference is called visible where the slices' ratios lie on one side of 1, and the machine rested.

Examples:
  conic bench cxl
  conic bench cxl --size 1500
  conic bench cxl --duration 2s --placement all --json";

/// How long a slice is measured.
const SLICE: Time = Time::from_nanoseconds(20_000_000);
/// What comes before it.
const WARM_UP: Time = Time::from_nanoseconds(2_000_000);
/// Descriptors that the receive side keeps read ahead.
const AHEAD: usize = 8;

/// How the two sides write and read.
#[derive(Clone, Copy, Debug)]
struct Design {
    name: &'static str,
    requests: Requests,
    store: Store,
}

const LOADS_AND_STORES: Requests = Requests::LOADS_AND_STORES;

const DESIGNS: [Design; 6] = [
    Design { name: "loads and stores (CS, CO)", requests: LOADS_AND_STORES, store: Store::Cached },
    Design {
        name: "packets by NC-write",
        requests: Requests { rx_packet: StateHint::NonCacheable, ..LOADS_AND_STORES },
        store: Store::Cached,
    },
    Design {
        name: "packets and completions by NC-P",
        requests: Requests {
            rx_packet: StateHint::NonCacheablePush,
            rx_completion: StateHint::NonCacheablePush,
            ..LOADS_AND_STORES
        },
        store: Store::Cached,
    },
    Design {
        name: "polling by CO-read",
        requests: Requests { tx_poll: StateHint::CacheableOwned, ..LOADS_AND_STORES },
        store: Store::Cached,
    },
    Design {
        name: "a tail beside the descriptors",
        requests: Requests { tx_signal: Signal::Tail, ..LOADS_AND_STORES },
        store: Store::Cached,
    },
    Design { name: "the host's stores past its caches", requests: LOADS_AND_STORES, store: Store::Nontemporal },
];

/// Why a design is left out.
#[derive(Clone, Debug, Serialize)]
struct LeftOut {
    design: &'static str,
    why: &'static str,
}

/// The designs that this processor can play, and those that it cannot.
fn designs(demotes: bool) -> (Vec<Design>, Vec<LeftOut>) {
    let (left_out, played): (Vec<Design>, Vec<Design>) =
        DESIGNS.into_iter().partition(|design| !demotes && design.requests.rx_packet == StateHint::NonCacheablePush);
    let why = "this processor has no cldemote: a push would be a plain store";
    (played, left_out.into_iter().map(|design| LeftOut { design: design.name, why }).collect())
}

impl Design {
    /// The median latency of a slice's packets, in nanoseconds.
    fn measure(self, arena: &Arena, arguments: &Arguments) -> Result<f64, Failure> {
        let mut layout = Layout::new();
        let shape = Shape::for_packets(arguments.size.into());
        let queues = shape.place(&mut layout).map_err(|error| Failure::failed(error.to_string()))?;
        let memory = Arc::new(region(&layout, arguments.common.pages())?);
        let (of_device, stop) = (Arc::clone(&memory), Arc::new(Flag::new()));
        let bytes = arguments.size.into();
        let device = move || self.play(&NativeCore::new(&of_device), queues, bytes);
        let host = || self.turn_around(&NativeCore::new(&memory), queues, &stop);
        let latency = arena.beside_application(&stop, device, host)?;
        Ok(latency.quantile(0.5).picoseconds() as f64 / 1e3)
    }

    /// The host: copies each packet, and sends it back.
    fn turn_around(self, core: &NativeCore<'_>, queues: Queues, stop: &Flag) {
        let mut host = Host::new(queues, core, self.requests.tx_signal);
        let mut packets = [Packet::BLANK; 8];
        let mut copy = vec![0; queues.shape.buffer_bytes as usize];
        while !stop.is_up() {
            let count = host.rx_burst(&mut packets);
            if count == 0 {
                core.spin();
            }
            for packet in &packets[..count] {
                let (mut to, copy) = ([Address(0)], &mut copy[..packet.length().into()]);
                // One packet is under way: there are buffers and descriptors.
                host.buf_alloc(packet.length().into(), &mut to);
                core.read_bytes(packet.address(), copy);
                host.write_packet(to[0], copy, self.store);
                host.tx_burst(&[Packet::new(to[0], packet.length())]);
                host.buf_free(&[packet.address()]);
            }
        }
    }

    /// The core that plays the device: a packet at a time, and how long each took.
    fn play(self, core: &NativeCore<'_>, queues: Queues, bytes: usize) -> Latency {
        let mut receiver = Receiver::new(queues, PlayedByCore(core), self.requests, AHEAD);
        let mut transmitter = Transmitter::new(queues, PlayedByCore(core), self.requests, 1);
        let mut frame = vec![0; bytes.next_multiple_of(64)];
        let begin = clock::now() + WARM_UP;
        let mut latency = Latency::new();
        let mut number = 0_u64;
        loop {
            number += 1;
            fill(&mut frame, number);
            let start = clock::now();
            while receiver.deliver(&[&frame[..bytes]]) == 0 {
                core.spin();
            }
            let mut same = false;
            while transmitter.take(|back| same = back == &frame[..bytes]) == 0 {
                core.spin();
            }
            let end = clock::now();
            assert!(same, "packet {number} came back changed");
            if end >= begin {
                latency.record(end.since(start), 1);
            }
            if end >= begin + SLICE {
                return latency;
            }
            receiver.prefetch();
        }
    }
}

/// Writes a packet of which every word is another than it was in the packet before: what was left of that one is seen.
fn fill(frame: &mut [u8], number: u64) {
    for (index, word) in (0_u64..).zip(frame.chunks_exact_mut(8)) {
        word.copy_from_slice(&number.wrapping_mul(2 * index + 1).to_le_bytes());
    }
}

/// One design in one placement of the cores.
#[derive(Clone, Debug, Serialize)]
struct Row {
    design: &'static str,
    ns: Spread,
    /// Over loads and stores of the same round.
    ratio: Spread,
    /// Whether all slices' ratios lie on one side of 1, and the machine rested.
    visible: bool,
}

#[derive(Clone, Debug, Serialize)]
struct PlacementReport {
    placement: &'static str,
    slices: usize,
    designs: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    bytes: u16,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    left_out: Vec<LeftOut>,
    placements: Vec<PlacementReport>,
}

/// Runs the command.
///
/// # Errors
///
/// If the machine refuses it.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (arena, machine) = arguments.common.arena(1)?;
    let mut progress = Progress::new();
    progress.start("request types");
    let (designs, left_out) = designs(demotes());
    let until = Until::rounds(rounds_of(arguments.duration, SLICE), designs.len(), SLICE + WARM_UP);
    let measured =
        alternate(&arena, designs.len(), until, &mut progress, |subject| designs[subject].measure(&arena, arguments))?;
    progress.clear();
    let complete = measured.complete(designs.len());
    let chosen = arguments.common.placement.of(&complete);
    let reports: Vec<PlacementReport> = chosen.iter().filter_map(|place| report(&measured, &designs, place)).collect();
    if reports.is_empty() {
        return Err(Failure::restless());
    }
    if !arguments.common.json {
        println!("a packet of {} bytes to the host and back, one at a time, a core as the device", arguments.size);
        machine.print();
        chosen.iter().zip(&reports).for_each(|(place, report)| print(place, report));
        for LeftOut { design, why } in &left_out {
            println!("    left out: {design}:\n      {why}");
        }
        print_notes(&measured);
        return Ok(ExitCode::SUCCESS);
    }
    let report = Report {
        schema: "conic.bench.cxl/1",
        bytes: arguments.size,
        dropped_slices: measured.dropped,
        restless: measured.restless,
        machine,
        left_out,
        placements: reports,
    };
    print_json(&report)?;
    Ok(ExitCode::SUCCESS)
}

fn report(measured: &Slices<f64>, designs: &[Design], place: &Placement) -> Option<PlacementReport> {
    let row = |(subject, design): (usize, &Design)| {
        let (ns, ratio) = measured.with_ratio_to_first(place, subject, |figure| *figure)?;
        // Slices that were disturbed show whose turn it was, and nothing of the caches.
        let visible = !measured.restless && (ratio.min > 1.0 || ratio.max < 1.0);
        Some(Row { design: design.name, ns: ns.rounded(1), ratio: ratio.rounded(2), visible })
    };
    let designs = designs.iter().enumerate().map(row).collect::<Option<_>>()?;
    Some(PlacementReport { placement: place.label, slices: place.members.len(), designs })
}

fn print(place: &Placement, report: &PlacementReport) {
    println!("\n  {}", placement_line(place, report.slices, SLICE));
    for Row { design, ns, ratio, visible } in &report.designs {
        let says = match (visible, ratio.median < 1.0) {
            (false, _) => "",
            (true, true) => " faster",
            (true, false) => " slower",
        };
        let row = format!(
            "    {design:34} {:>8} {:>6} {}{says}",
            nanoseconds(ns.median),
            three_digits(ratio.median),
            range(*ratio, three_digits),
        );
        println!("{}", row.trim_end());
    }
    println!("    medians over a slice's packets and then over slices; then over loads and");
    println!("    stores of the same round, and its range; faster or slower: that is visible");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_are_left_out_where_nothing_is_demoted() {
        let (played, left_out) = designs(true);
        assert!(played.len() == DESIGNS.len() && left_out.is_empty());
        let (played, left_out) = designs(false);
        assert!(played.iter().all(|design| !design.name.contains("NC-P")) && left_out.len() == 1, "{left_out:?}");
        assert_eq!(played.len() + 1, DESIGNS.len());
    }

    #[test]
    fn no_word_of_a_packet_is_what_it_was_in_the_packet_before() {
        let (mut before, mut frame) = (vec![0; 256], vec![0; 256]);
        for number in 1..1000 {
            fill(&mut frame, number);
            assert!(before.chunks(8).zip(frame.chunks(8)).all(|(old, new)| old != new), "packet {number}");
            before.copy_from_slice(&frame);
        }
    }
}
