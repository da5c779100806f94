//! `conic bench`: measurements on this machine.

mod ablations;
mod arena;
mod common;
mod compare;
mod failure;
mod limits;
mod link;
mod loopback;
mod peers;
mod placement;
mod progress;
mod rounds;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Options of `conic bench`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Loopback(loopback::Arguments),
    Limits(limits::Arguments),
    Ablations(ablations::Arguments),
    Peers(peers::Arguments),
}

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    let (result, json) = match &arguments.command {
        Command::Loopback(arguments) => (loopback::main(arguments), arguments.common.json),
        Command::Ablations(arguments) => (ablations::main(arguments), arguments.common.json),
        Command::Peers(arguments) => (peers::main(arguments), arguments.common.json),
        Command::Limits(arguments) => (limits::main(arguments), arguments.common.json),
    };
    result.unwrap_or_else(|failure| failure.report(json))
}
