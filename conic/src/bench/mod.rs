//! `conic bench`: measurements on this machine.

mod ablations;
pub mod arena;
pub mod common;
mod compare;
mod cxl;
mod daemon;
pub mod draw;
pub mod failure;
mod key_value;
pub mod limits;
pub mod link;
pub mod loopback;
mod peers;
mod pio;
pub mod placement;
mod ports;
pub mod progress;
pub mod rounds;
mod scaling;
mod served;
mod service;
mod simulator;
pub mod sweep;
mod tcp_rpc;
mod temporary;
mod tour;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use failure::Failure;
pub use temporary::end;

/// Options of `conic bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    tour: tour::Options,
}

const EXAMPLES: &str = "Examples:
  conic bench                          all of it, briefly; charts in out/bench.svg
  conic bench loopback --window 1      the unloaded latency of CC-NIC
  conic bench loopback --sweep         its throughput-latency curve
  conic bench daemon                   between two processes, through the NIC's daemon
  conic bench scaling                  several pairs of cores together, and the daemon's threads
  conic bench service                  that daemon at rest, at arrivals, deaths and upgrades
  conic bench peers                    against DPDK's memif, vhost-user and ring
  conic bench ports                    ports beside DPDK's drivers and the kernel's bridge
  conic bench pio                      a line pair's exchange beside one line's round trip
  conic bench key-value                a key-value store, its values sent from where they lie and copied
  conic bench tcp-rpc                  a TCP echo on a service that its application shares memory with
  conic bench cxl                      the CXL NIC's rings, by how the core that plays the device writes
  conic bench sim                      how fast the simulator is

Two threads are pinned to two cores and never idle. Everything is measured in short slices between probes of what one \
cache line's round trip costs; slices that were disturbed are left out, and where a virtual machine's cores move, the \
figures are kept apart by placement (near, far).";

#[derive(Debug, Subcommand)]
enum Command {
    Loopback(loopback::Arguments),
    Limits(limits::Arguments),
    Ablations(ablations::Arguments),
    Cxl(cxl::Arguments),
    Daemon(daemon::Arguments),
    KeyValue(key_value::Arguments),
    Peers(peers::Arguments),
    Pio(pio::Arguments),
    Ports(ports::Arguments),
    Scaling(scaling::Arguments),
    Service(service::Arguments),
    #[command(name = "sim")]
    Simulator(simulator::Arguments),
    TcpRpc(tcp_rpc::Arguments),
}

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    let (result, json) = match &arguments.command {
        None => (tour::main(&arguments.tour), arguments.tour.common.json),
        Some(Command::Loopback(arguments)) => (loopback::main(arguments), arguments.common.json),
        Some(Command::Ablations(arguments)) => (ablations::main(arguments), arguments.common.json),
        Some(Command::Cxl(arguments)) => (cxl::main(arguments), arguments.common.json),
        Some(Command::KeyValue(arguments)) => (key_value::main(arguments), arguments.common.json),
        Some(Command::Daemon(arguments)) => (daemon::main(arguments), arguments.json),
        Some(Command::Peers(arguments)) => (peers::main(arguments), arguments.common.json),
        Some(Command::Pio(arguments)) => (pio::main(arguments), arguments.common.json),
        Some(Command::Ports(arguments)) => (ports::main(arguments), arguments.json),
        Some(Command::Scaling(arguments)) => (scaling::main(arguments), arguments.json),
        Some(Command::Service(arguments)) => (service::main(arguments), arguments.json),
        Some(Command::Simulator(arguments)) => (simulator::main(arguments), arguments.json),
        Some(Command::TcpRpc(arguments)) => (tcp_rpc::main(arguments), arguments.common.json),
        Some(Command::Limits(arguments)) => (limits::main(arguments), arguments.common.json),
    };
    result.unwrap_or_else(|failure| failure.report(json))
}

/// Tells whoever wrote a command line what is wrong with it, or what they asked to be told: as one JSON object and with
/// exit code 1 where they asked for JSON.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && failure::json_is_wanted() {
        let message = error.to_string();
        return Failure::failed(message.trim().trim_start_matches("error: ")).report(true);
    }
    match error.print() {
        // Nobody can be told that nobody listens.
        Err(problem) if problem.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}
