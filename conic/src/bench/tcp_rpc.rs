//! `conic bench tcp-rpc`: an echo server on a TCP service on one core; the other one plays the NIC and the clients behind it.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use conic_fabric::{Home, Layout, Time};
use conic_interface::{ccnic, ring};
use conic_load::Network;
use conic_native::{Flag, Memory, NativeCore};
use conic_tcp::segment::{HEADER_BYTES, MOST_PAYLOAD};
use conic_tcp::{Acknowledge, Application, Clients, Connection, Counted, FastPath, Load, Service, Shape};
use serde::Serialize;

use super::arena::Arena;
use super::common::{Common, MachineReport, region, span};
use super::failure::{Failure, print_json};
use super::link::Interface;
use super::rounds::Dropped;
use super::served::{Queues, Served, Slice, measure, slice_of};

/// A TCP echo between two cores, over CC-NIC and over a ring: a service in the manner of TAS, an application on it, and clients
///
/// One core serves: its fast path takes the segments of established connections, and an application that shares memory with it answers
/// each request of 64 bytes with the same bytes. The other core plays the NIC and the clients behind it, who check every byte. Rates
/// are those of the slower of the two.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Connections; 96 as in CC-NIC section 5.7
    #[arg(long, value_name = "N", default_value = "96", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub connections: u32,
    /// Requests under way on each connection
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub window: u32,
    /// Requests that a client writes at once, into one segment
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=22))]
    pub requests_a_segment: u32,
    /// How long to measure each design, in slices of 50 ms, in turn
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = span)]
    pub duration: Time,
}

const EXAMPLES: &str =
    "Acknowledgements go alone and at once, as TAS sends them, or with the answer, which halves the segments.

Timeouts follow measured round trips (RFC 6298), 10 ms beside them at least, and a window for each connection bounds what is under way \
(RFC 5681). Between the two cores nothing is lost: more than two segments an answer, or one with the answer, were sent again because \
a core was kept from its work for longer than that.

Examples:
  conic bench tcp-rpc
  conic bench tcp-rpc --connections 1 --window 1              the latency of one request
  conic bench tcp-rpc --window 64 --requests-a-segment 16 --json";

/// Descriptors of each ring.
const DESCRIPTORS: u64 = 512;
/// For how long an acknowledgement waits for an answer that it could go with.
const DELAY: Time = Time::from_nanoseconds(20_000);

/// An interface, and how data is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Design {
    interface: Interface,
    /// In a word or three.
    how: &'static str,
    acknowledge: Acknowledge,
}

const DESIGNS: [Design; 4] = [
    Design { interface: Interface::Ccnic, how: "acknowledged alone", acknowledge: Acknowledge::AtOnce },
    Design { interface: Interface::Ccnic, how: "with the answer", acknowledge: Acknowledge::Delayed(DELAY) },
    Design { interface: Interface::Ring, how: "acknowledged alone", acknowledge: Acknowledge::AtOnce },
    Design { interface: Interface::Ring, how: "with the answer", acknowledge: Acknowledge::Delayed(DELAY) },
];

/// A service in a region of its own.
struct Ground {
    memory: Memory,
    service: Service,
    connections: Vec<Connection>,
    queues: Queues,
}

impl Ground {
    fn new(design: Design, arguments: &Arguments) -> Result<Ground, Failure> {
        let refused = |error: &dyn fmt::Display| Failure::failed(error.to_string());
        let (mut layout, queues) = if design.interface == Interface::Ring {
            let mut layout = Layout::new();
            let shape = ring::Shape::for_packets(u64::from(HEADER_BYTES + MOST_PAYLOAD));
            let shape = shape.map_err(|error| refused(&error))?;
            let shape = ring::Shape { descriptors: DESCRIPTORS, buffers: 3 * DESCRIPTORS, ..shape };
            let pair = shape.place(&mut layout).map_err(|error| refused(&error))?;
            (layout, Queues::Ring(pair))
        } else {
            let (descriptors, buffers) = (DESCRIPTORS, [2048, 1024, 0]);
            let geometry = ccnic::Geometry { queues: 1, descriptors, buffers, object_bytes: 0 };
            let map = ccnic::Map::new(geometry, ccnic::Features::best()).map_err(|error| refused(&error))?;
            (map.layout.clone(), Queues::CcNic(Box::new(map)))
        };
        let shape = Shape { flows: arguments.connections, ..Shape::default() };
        let service = Service::place(&mut layout, shape, Home::Host).map_err(|error| refused(&error))?;
        let memory = region(&layout, arguments.common.pages())?;
        let core = NativeCore::new(&memory);
        queues.fill(&core);
        let connections: Vec<Connection> = (0..shape.flows).map(|flow| Clients::connection(flow, 0)).collect();
        for (flow, connection) in (0..).zip(&connections) {
            if !service.install(&core, flow, connection) {
                return Err(Failure::failed(format!("connection {flow} finds no place")));
            }
        }
        Ok(Ground { memory, service, connections, queues })
    }

    /// The NIC's core, with the clients behind it: asks and checks for a slice, and waits for every answer.
    fn ask(&self, load: Load) -> Result<Slice, String> {
        let room = self.service.shape().buffers[0];
        let clients = Clients::new(&self.connections, room, load, 1);
        let core = NativeCore::new(&self.memory);
        slice_of(&mut Network::new(core, self.queues.nic(core), clients))
    }

    /// The other core: the fast path and the application, by turns, until it is to stop; what the fast path did.
    fn serve(&self, acknowledge: Acknowledge, stop: &Flag) -> Counted {
        let core = NativeCore::new(&self.memory);
        let mut fast_path = FastPath::new(vec![self.queues.host(core)], &self.service, 0, acknowledge);
        let mut application = Application::new(core, &self.service, 0);
        while !stop.is_up() {
            fast_path.step();
            application.step();
        }
        fast_path.counted()
    }
}

impl Design {
    fn measure(self, arena: &Arena, arguments: &Arguments) -> Result<Slice, Failure> {
        let ground = Arc::new(Ground::new(self, arguments)?);
        let stop = Arc::new(Flag::new());
        let of_nic = Arc::clone(&ground);
        let Arguments { window, requests_a_segment, .. } = *arguments;
        let mut counted = Counted::default();
        let serve = || counted = ground.serve(self.acknowledge, &stop);
        let ask = move || of_nic.ask(Load { window, requests_a_segment });
        let slice = arena.beside_application(&stop, ask, serve)?.map_err(Failure::failed)?;
        Ok(slice.with(counted.sent + counted.acknowledgements))
    }
}

/// What is counted beside a design's rate.
#[derive(Clone, Debug, Serialize)]
struct Sent {
    /// Segments that the service sent for each answer, in the median slice.
    segments_a_request: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    connections: u32,
    window: u32,
    requests_a_segment: u32,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    placements: Vec<Served<Sent>>,
}

/// Runs the command.
///
/// # Errors
///
/// If the machine refuses it, or an answer was wrong.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (arena, machine) = arguments.common.arena(1)?;
    let Arguments { connections, window, requests_a_segment, duration, .. } = *arguments;
    let names = DESIGNS.map(|design| (design.interface, design.how));
    let measured =
        measure(&arena, &arguments.common, duration, &names, |subject| DESIGNS[subject].measure(&arena, arguments))?;
    if !arguments.common.json {
        let plural = if connections == 1 { "" } else { "s" };
        println!("a TCP echo of 64 bytes: {connections} connection{plural}, {window} under way on each,");
        println!("{requests_a_segment} a segment at most");
        machine.print();
        measured.print(|sent| format!("{sent:.2}"), "segments that the service sent for each answer");
        return Ok(ExitCode::SUCCESS);
    }
    let report = Report {
        schema: "conic.bench.tcp-rpc/1",
        connections,
        window,
        requests_a_segment,
        dropped_slices: measured.dropped(),
        restless: measured.is_restless(),
        machine,
        placements: measured.served(|segments_a_request| Sent { segments_a_request }),
    };
    print_json(&report)?;
    Ok(ExitCode::SUCCESS)
}
