//! `conic bench key-value`: a key-value store between two cores, one of which plays the NIC and the clients behind it.

use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use conic_fabric::{Home, LINE_BYTES, Layout, SynchronisingWords, Time};
use conic_interface::{ccnic, ring};
use conic_kv::message::{HEADER_BYTES, MOST_VALUE_BYTES};
use conic_kv::{Catalogue, Clients, Demand, Server, Sizes, Store};
use conic_load::Network;
use conic_native::{Flag, Memory, NativeCore};
use serde::Serialize;

use super::arena::Arena;
use super::common::{Common, MachineReport, region, span};
use super::failure::{Failure, print_json};
use super::link::Interface;
use super::rounds::Dropped;
use super::served::{Queues, Served, Slice, measure, slice_of};

/// A key-value store between two cores, over CC-NIC and over a ring, with values sent from where they lie and copied
///
/// One core serves: it looks keys up and answers. The other one plays the NIC and the clients behind it: it makes requests, copies
/// them into receive buffers and answers out of the store's memory, and checks every byte. Rates are those of the slower of the two.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Sizes of values: ads, geo (laws through what CC-NIC section 5.7 says of two distributions), or so many bytes
    #[arg(long, value_name = "SIZES", default_value = "ads")]
    pub objects: Objects,
    /// Keys
    #[arg(long, value_name = "N", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub keys: u32,
    /// The exponent of Zipf's law, by which keys are asked for; 0: all as often
    #[arg(long, value_name = "EXPONENT", default_value = "0.75", value_parser = exponent)]
    pub zipf: f64,
    /// Sets among a hundred requests
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = clap::value_parser!(u16).range(0..=100))]
    pub sets: u16,
    /// Requests under way
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub window: u64,
    /// How long to measure each design, in slices of 50 ms, in turn
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = span)]
    pub duration: Time,
}

const EXAMPLES: &str = "Examples:
  conic bench key-value
  conic bench key-value --objects geo --sets 50
  conic bench key-value --objects 64 --window 1 --placement all --json";

/// Sizes of values, as the command line has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objects(Sizes);

impl FromStr for Objects {
    type Err = String;

    fn from_str(text: &str) -> Result<Objects, String> {
        match text {
            "ads" => return Ok(Objects(Sizes::ADS_LIKE)),
            "geo" => return Ok(Objects(Sizes::GEO_LIKE)),
            _ => {}
        }
        let bytes = text.parse().ok().filter(|bytes| (1..=MOST_VALUE_BYTES).contains(bytes));
        let bytes = bytes.ok_or_else(|| format!("ads, geo, or 1 to {MOST_VALUE_BYTES} bytes"))?;
        Ok(Objects(Sizes::Bytes(bytes)))
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Sizes::Bytes(bytes) => write!(f, "{bytes} bytes"),
            sizes if sizes == Sizes::ADS_LIKE => f.write_str("like Ads"),
            _ => f.write_str("like Geo"),
        }
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
    exponent.ok_or_else(|| "an exponent is a number from 0 to 10".to_owned())
}

/// Descriptors of each ring.
const DESCRIPTORS: u64 = 512;
/// Bytes of the largest packet.
const MOST_BYTES: u64 = (HEADER_BYTES + MOST_VALUE_BYTES) as u64;

/// An interface, and what becomes of values.
#[derive(Clone, Copy, Debug)]
struct Design {
    interface: Interface,
    /// In a word or three.
    how: &'static str,
    copied: bool,
}

const DESIGNS: [Design; 4] = [
    Design { interface: Interface::Ccnic, how: "copied", copied: true },
    Design { interface: Interface::Ccnic, how: "from where they lie", copied: false },
    Design { interface: Interface::Ring, how: "copied", copied: true },
    Design { interface: Interface::Ring, how: "from where they lie", copied: false },
];

/// A store in a region of its own.
struct Ground {
    memory: Memory,
    store: Store,
    queues: Queues,
}

impl Ground {
    fn new(design: Design, arguments: &Arguments, catalogue: &Catalogue) -> Result<Ground, Failure> {
        let bytes = catalogue.bytes_of_values();
        let keys = u64::from(arguments.keys);
        let refused = |error: &dyn fmt::Display| Failure::failed(error.to_string());
        let (layout, store, queues) = if design.interface == Interface::Ring {
            let mut layout = Layout::new();
            let values = layout.add("key-value values", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
            let store = Store::place(&mut layout, keys, (values, bytes), Home::Host);
            let shape = ring::Shape::for_packets(MOST_BYTES).map_err(|error| refused(&error))?;
            let shape = ring::Shape { descriptors: DESCRIPTORS, buffers: 3 * DESCRIPTORS, ..shape };
            let pair = shape.place(&mut layout).map_err(|error| refused(&error))?;
            (layout, store, Queues::Ring(pair.with_objects(values, bytes)))
        } else {
            let geometry = ccnic::Geometry {
                queues: 1,
                descriptors: DESCRIPTORS,
                buffers: [2048, 1024, 512],
                object_bytes: bytes,
            };
            let map = ccnic::Map::new(geometry, ccnic::Features::best()).map_err(|error| refused(&error))?;
            let mut layout = map.layout.clone();
            let store = Store::place(&mut layout, keys, map.objects(), Home::Host);
            (layout, store, Queues::CcNic(Box::new(map)))
        };
        fits(layout.bytes(), free_memory())?;
        let memory = region(&layout, arguments.common.pages())?;
        let core = NativeCore::new(&memory);
        queues.fill(&core);
        match store.fill(&core, catalogue) {
            true => Ok(Ground { memory, store, queues }),
            false => Err(Failure::failed(format!("the index has no room for {keys} keys"))),
        }
    }

    /// The NIC's core, with the clients behind it: asks and checks for a slice, and waits for every answer.
    fn ask(&self, catalogue: &Arc<Catalogue>, window: u64) -> Result<Slice, String> {
        let clients = Clients::new(Arc::clone(catalogue), window, 1);
        let mut network =
            Network::new(NativeCore::new(&self.memory), self.queues.nic(NativeCore::new(&self.memory)), clients);
        let slice = slice_of(&mut network)?;
        // Of values that were copied none is asked for again.
        let answers = network.far_end().answers();
        Ok(slice.with(answers.torn + answers.busy))
    }
}

/// Bytes of memory that a region may take now, where the system says so.
fn free_memory() -> Option<u64> {
    let said = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = said.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.trim().strip_suffix(" kB")?;
    Some(kibibytes.trim().parse::<u64>().ok()? << 10)
}

/// Refuses a region that there is no memory for. Each of its pages is touched before it is used, so that nobody would be told
/// otherwise: the system would end this program, or another.
fn fits(bytes: u64, free: Option<u64>) -> Result<(), Failure> {
    let Some(free) = free.filter(|&free| free < bytes) else { return Ok(()) };
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(Failure::failed(format!(
        "the store takes {:.1} GiB, and {:.1} GiB of memory are free: ask for fewer --keys, or smaller --objects",
        gibibytes(bytes),
        gibibytes(free)
    )))
}

impl Design {
    fn measure(self, arena: &Arena, arguments: &Arguments, catalogue: &Arc<Catalogue>) -> Result<Slice, Failure> {
        let ground = Arc::new(Ground::new(self, arguments, catalogue)?);
        let stop = Arc::new(Flag::new());
        let (of_nic, catalogue, window) = (Arc::clone(&ground), Arc::clone(catalogue), arguments.window);
        let serve = || {
            let copied_up_to = if self.copied { MOST_VALUE_BYTES } else { 0 };
            let mut server =
                Server::new(vec![ground.queues.host(NativeCore::new(&ground.memory))], ground.store, copied_up_to);
            while !stop.is_up() {
                server.step();
            }
        };
        let slice = arena.beside_application(&stop, move || of_nic.ask(&catalogue, window), serve)?;
        slice.map_err(Failure::failed)
    }
}

/// What is counted beside a design's rate.
#[derive(Clone, Debug, Serialize)]
struct AskedAgain {
    /// Share of the answers that had to be asked for again, in the median slice.
    asked_again: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    objects: String,
    keys: u32,
    zipf: f64,
    sets_percent: u16,
    window: u64,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    placements: Vec<Served<AskedAgain>>,
}

/// Runs the command.
///
/// # Errors
///
/// If the machine refuses it, or an answer was wrong.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (arena, machine) = arguments.common.arena(1)?;
    let Arguments { keys, zipf, sets, window, objects, .. } = *arguments;
    let catalogue = Arc::new(Catalogue::new(Demand { keys, sizes: objects.0, zipf, sets: 10 * sets, seed: 1 }));
    let names = DESIGNS.map(|design| (design.interface, design.how));
    let measured = measure(&arena, &arguments.common, arguments.duration, &names, |subject| {
        DESIGNS[subject].measure(&arena, arguments, &catalogue)
    })?;
    if !arguments.common.json {
        println!("a key-value store: {keys} keys, values {objects}, {sets}% sets, Zipf {zipf},");
        println!("{window} requests under way");
        machine.print();
        let percent =
            |again: f64| if again < 0.1 { format!("{:.3}%", 100.0 * again) } else { format!("{:.1}%", 100.0 * again) };
        measured.print(percent, NOTE);
        return Ok(ExitCode::SUCCESS);
    }
    let report = Report {
        schema: "conic.bench.key-value/1",
        objects: objects.to_string(),
        keys,
        zipf,
        sets_percent: sets,
        window,
        dropped_slices: measured.dropped(),
        restless: measured.is_restless(),
        machine,
        placements: measured.served(|asked_again| AskedAgain { asked_again }),
    };
    print_json(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// What the last column is.
const NOTE: &str = "the share of answers asked for again: values overwritten while they left";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_memory_has_no_room_for_is_refused_before_it_is_made() {
        assert!(free_memory().is_none_or(|free| free > 1 << 20));
        for free in [None, Some(100), Some(101)] {
            assert!(fits(100, free).is_ok());
        }
        assert!(fits(101, Some(100)).is_err());
    }
}
