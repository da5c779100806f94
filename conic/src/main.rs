//! The command line of conic.

mod advise;
mod bench;
mod bridge;
mod ctl;
mod dataflow;
mod diagnose;
mod idle;
mod invoke;
mod man;
mod nic;
mod plain;
mod platform;
mod replay;
mod responder;
mod sample;
mod sim;
mod spread;
mod status_line;
mod study;
mod study_native;
mod tap;
mod top;
mod trace;
mod value;
mod writable;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use bench::failure::{Failure, json_is_wanted};

/// The coherent NIC in software: packets between applications and a network interface over cache-coherent memory.
#[derive(Parser)]
#[command(name = "conic", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  conic bench                     a tour of this machine in under a minute
  conic bench loopback            packets through CC-NIC and back
  conic bridge --port tap:t0      frames between two ports, or back to one
  conic diagnose --simulate q3    what holds a host's way to memory back, from its counters
  conic invoke                    calls of a function on a device that a core plays
  conic dataflow                  operators of a Timely graph on a device that a core plays
  conic nic                       queues of a software NIC for other processes
  conic replay capture.pcap       a capture through the whole path, with a proof that nothing changed
  conic sim                       packets through CC-NIC on a machine that nobody here owns
  conic trace                     every message that one packet, call or frame causes
  conic tap                       a network interface that answers ping
  conic top                       what a software NIC that runs does at this moment";

#[derive(Subcommand)]
enum Command {
    Advise(advise::Options),
    /// Measure interfaces on this machine; without a subcommand, a tour of everything
    Bench(bench::Arguments),
    Bridge(bridge::Options),
    Ctl(ctl::Options),
    Dataflow(dataflow::Options),
    Diagnose(diagnose::Options),
    Invoke(invoke::Options),
    Nic(Box<nic::Options>),
    /// The machines that the simulator knows, and where each of their values is from
    Platform(platform::Arguments),
    /// Send a capture through the whole path and prove that nothing changed
    Replay(replay::Options),
    /// Write a small capture with frames of all sizes
    Sample(sample::Options),
    Sim(Box<sim::Arguments>),
    /// Predict what papers measured, on machines that are simulated
    Study(study::Arguments),
    /// Make a network interface with an application behind it that answers ping and UDP echo
    Tap(tap::Options),
    Top(top::Options),
    Trace(Box<trace::Arguments>),
    #[command(hide = true)]
    Man(man::Options),
    /// Play the NIC of a region that comes over the standard input
    #[command(hide = true)]
    NicProcess,
}

/// What a shell gives for a program that a closed pipe ended: 128 and the signal's number.
const CLOSED_PIPE: i32 = 141;

/// Ends the program where its output cannot be written: in silence where whoever reads it has seen enough (`conic ... | head`), as programs
/// in C end by the signal that Rust's ignore, and with an error where a disk is full. What a measurement has started or made for the time
/// goes with it. Sockets are not touched by it: whoever writes to one hears what became of it.
fn end_with_the_reader() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        let Some(of_output) = said.strip_prefix("failed printing to ") else { return before(panic) };
        if of_output.contains("Broken pipe") {
            bench::end(CLOSED_PIPE);
        }
        // Where it is the errors' own output, nobody can be told.
        let _ = writeln!(std::io::stderr(), "error: the output cannot be written: {of_output}");
        bench::end(1);
    }));
}

fn main() -> ExitCode {
    end_with_the_reader();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let words: Vec<OsString> = std::env::args_os().collect();
            return bench::refuse(&plain::plainly(error, &words, |words| Arguments::try_parse_from(words).err()));
        }
    };
    let result = match arguments.command {
        Command::Advise(options) => Ok(advise::main(&options)),
        Command::Bench(arguments) => Ok(bench::main(&arguments)),
        Command::Bridge(options) => bridge::run(&options),
        Command::Ctl(options) => ctl::run(&options),
        Command::Dataflow(options) => Ok(dataflow::main(&options)),
        Command::Diagnose(options) => Ok(diagnose::main(&options)),
        Command::Invoke(options) => Ok(invoke::main(&options)),
        Command::Man(options) => man::run(&options, Arguments::command()),
        Command::Nic(options) => nic::run(&options),
        Command::Platform(arguments) => Ok(platform::main(&arguments)),
        Command::Replay(options) => replay::run(&options),
        Command::Sample(options) => sample::run(&options),
        Command::Sim(arguments) => Ok(sim::main(&arguments)),
        Command::Study(arguments) => Ok(study::main(&arguments)),
        Command::Tap(options) => tap::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Trace(arguments) => Ok(trace::main(&arguments)),
        Command::NicProcess => conic::process::serve().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    result.unwrap_or_else(|error| Failure::failed(error.to_string()).report(json_is_wanted()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help behind the options of a command and of each of its commands.
    fn helps(command: &clap::Command, found: &mut Vec<(String, String)>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        found.push((command.get_name().to_owned(), help));
        command.get_subcommands().for_each(|one| helps(one, found));
    }

    #[test]
    fn every_command_shows_an_example() {
        fn without(command: &clap::Command, found: &mut Vec<String>) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            if !help.contains("Example") {
                found.push(command.get_name().to_owned());
            }
            command.get_subcommands().filter(|one| !one.is_hide_set()).for_each(|one| without(one, found));
        }
        let mut found = Vec::new();
        without(&Arguments::command(), &mut found);
        assert_eq!(found, [""; 0], "commands without an example");
    }

    #[test]
    fn a_paragraph_of_help_is_one_line_which_fits_any_terminal_when_it_is_wrapped() {
        let mut found = Vec::new();
        helps(&Arguments::command(), &mut found);
        assert!(found.len() > 20, "{} commands", found.len());
        for (name, help) in found {
            let lines: Vec<&str> = help.lines().collect();
            let runs_on = |line: &str| !line.is_empty() && !line.starts_with(' ');
            let cut = lines.windows(2).find(|pair| runs_on(pair[0]) && runs_on(pair[1]));
            assert_eq!(cut, None, "conic {name}: a paragraph is cut into lines");
        }
    }
}
