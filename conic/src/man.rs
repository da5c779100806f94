//! `conic man`: the manual pages of the commands, written from what `--help` says.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages of all commands into a folder.
#[derive(clap::Args)]
pub struct Options {
    /// The folder, which must be there
    folder: PathBuf,
}

/// Writes them: `conic.1`, and one for each command and each of its commands, as `conic-nic.1`.
///
/// # Errors
///
/// A file cannot be written.
pub fn run(options: &Options, command: clap::Command) -> Result<ExitCode, Box<dyn Error>> {
    let folder = &options.folder;
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
