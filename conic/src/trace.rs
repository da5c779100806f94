//! `conic trace`: every message that one packet, one call or one frame causes on a modelled machine.

mod cxl;
mod lines;
mod output;
mod packet;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use conic_fabric::Time;
use conic_sim::eci;
use conic_sim::machine::Machine;
use conic_sim::probe::Recording;
use conic_study::simulated::Observer;

use crate::bench::failure::Failure;

/// Every message that one packet causes, from its first store to its last load; or one call, or one frame, over pairs of lines
///
/// Without a subcommand: a loopback with one burst in flight runs until it is steady. Then one round trip is written down: each access
/// that missed, each message that it caused, directly or through another, and who owned each line meanwhile. The subcommand cxl has the
/// choices of a NIC behind CXL or PCIe; the others do the same for coherent programmed I/O, on machines whose device is home to
/// coherent lines.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    packet: packet::Options,
}

const EXAMPLES: &str = "What is written, named after what is followed:
  packet.pftrace   for https://ui.perfetto.dev: a row for each agent, cache and line; arrows from cause to effect
  packet.svg       a sequence diagram, with the owners of each line

Times are from the packet's beginning. A line is named by its segment of the region and its number there.

Examples:
  conic trace                                   a 64-byte packet through CC-NIC on Sapphire Rapids
  conic trace --interface ring -o out/ring      the same through the baseline
  conic trace --features paper,no-shared-pool   what an ablation adds
  conic trace --platform icx --packet-size 1500 --burst 4
  conic trace --platform agilex7                through a NIC behind CXL; conic trace cxl --help has its choices
  conic trace call                              a call over a pair of lines on Enzian
  conic trace receive --platform cxl3-mem       a frame from a NIC on CXL.mem 3.0";

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Cxl(cxl::Options),
    Call(lines::Call),
    Receive(lines::Receive),
    Transmit(lines::Transmit),
}

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    let (result, json) = match &arguments.command {
        None => (packet::run(&arguments.packet), arguments.packet.output.json),
        Some(Command::Cxl(packet)) => (cxl::run(packet), packet.output.json),
        Some(Command::Call(call)) => (call.run(), call.common.output.json),
        Some(Command::Receive(receive)) => (receive.run(), receive.common.output.json),
        Some(Command::Transmit(transmit)) => (transmit.run(), transmit.common.output.json),
    };
    result.unwrap_or_else(|failure| failure.report(json))
}

/// How many there are to choose from, of whatever is followed.
const TRIPS: i64 = 33;

/// Records of a run, at most.
const LIMIT: usize = 8_000_000;

/// Takes the recording of a whole run.
struct Recorded(Option<Recording>);

impl Observer for Recorded {
    fn begins(&mut self, machine: &mut Machine) {
        machine.record(LIMIT);
    }
    fn ends(&mut self, machine: &mut Machine) {
        self.0 = machine.take_recording();
    }
}

impl Observer<conic_sim::cxl::Machine> for Recorded {
    fn begins(&mut self, machine: &mut conic_sim::cxl::Machine) {
        machine.record(LIMIT);
    }
    fn ends(&mut self, machine: &mut conic_sim::cxl::Machine) {
        self.0 = machine.take_recording();
    }
}

impl Observer<eci::Machine> for Recorded {
    fn begins(&mut self, machine: &mut eci::Machine) {
        machine.record(LIMIT);
    }
    fn ends(&mut self, machine: &mut eci::Machine) {
        self.0 = machine.take_recording();
    }
}

impl Recorded {
    /// All that was written down; `smaller` are the options that make it less.
    ///
    /// # Errors
    ///
    /// If that is nothing, or more than there was room for.
    fn all(self, smaller: &str) -> Result<Recording, Failure> {
        let all = self.0.ok_or_else(|| Failure::failed("nothing was written down"))?;
        if all.dropped > 0 {
            return Err(Failure::failed(format!("more than {LIMIT} records: ask for a smaller {smaller}")));
        }
        Ok(all)
    }
}

/// What is followed: what was written down of it, and when it was.
struct Followed {
    recording: Recording,
    begins: Time,
    ends: Time,
}

impl Followed {
    /// What began in a span of time, and all that it caused.
    fn of(all: &Recording, begins: Time, ends: Time) -> Followed {
        let within = |at: Time| begins <= at && at < ends;
        let asked = all.messages.iter().filter(|one| (one.cause.is_none() || one.asks) && within(one.sent));
        let waited = all.spans.iter().filter(|span| within(span.begins)).filter_map(|span| span.line);
        let lines: Vec<u64> = asked.map(|message| message.line).chain(waited).collect();
        Followed { recording: all.packet(&lines, begins, ends), begins, ends }
    }

    /// Nanoseconds from its beginning; less than zero for what was caused before.
    fn since(&self, at: Time) -> f64 {
        (at.picoseconds() as f64 - self.begins.picoseconds() as f64) / 1e3
    }
}
