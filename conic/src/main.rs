//! The command line of conic.

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The coherent NIC in software: packets between applications and a network interface over cache-coherent memory.
#[derive(Debug, Parser)]
#[command(name = "conic", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  conic bench                     a tour of this machine in under a minute
  conic bench loopback            packets through CC-NIC and back
  conic bench loopback --help     what can be chosen there";

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure interfaces on this machine; without a subcommand, a tour of everything.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Bench(arguments) => bench::main(&arguments),
    }
}
