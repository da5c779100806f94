//! The command line of conic.

mod idle;
mod replay;
mod responder;
mod sample;
mod tap;
mod value;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The coherent NIC in software.
#[derive(Parser)]
#[command(name = "conic", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send a capture through the whole path and prove that nothing changed
    Replay(replay::Options),
    /// Write a small capture with frames of all sizes
    Sample(sample::Options),
    /// Make a network interface with an application behind it that answers ping and UDP echo
    Tap(tap::Options),
    /// Play the NIC of a region that comes over the standard input
    #[command(hide = true)]
    NicProcess,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Replay(options) => replay::run(&options),
        Command::Sample(options) => sample::run(&options),
        Command::Tap(options) => tap::run(&options),
        Command::NicProcess => conic_nicd::process::serve().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    result.unwrap_or_else(|error| {
        eprintln!("conic: {error}");
        ExitCode::FAILURE
    })
}
