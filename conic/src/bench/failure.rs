//! Why a command failed, for people and for programs.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::arena::ArenaError;

/// Why a command failed, and with which exit code.
#[derive(Debug)]
pub struct Failure {
    /// What, where, and what to do about it.
    pub message: String,
    /// 1: it failed, or cannot be; 2: something that must be installed is missing.
    pub code: u8,
}

impl Failure {
    /// It failed, or what was asked cannot be.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 1 }
    }

    /// Something that must be installed is missing.
    pub fn missing(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 2 }
    }

    /// No slice of a measurement counts.
    pub fn restless() -> Failure {
        Failure::failed("the cores moved during every slice: try again, or with a longer --duration")
    }

    /// Tells whoever asked: one JSON object on stdout, or a line on stderr.
    pub fn report(&self, as_json: bool) -> ExitCode {
        if as_json {
            println!("{}", json!({ "error": self.message }));
        } else {
            eprintln!("error: {}", self.message);
        }
        ExitCode::from(self.code)
    }
}

/// How a command ends in which so many packets were lost, and so many corrupt: whoever asked is told on stderr, whatever is on stdout.
pub fn code_of(lost: u64, corrupt: u64) -> ExitCode {
    if lost == 0 && corrupt == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {lost} packets were lost and {corrupt} corrupt");
    ExitCode::FAILURE
}

/// Prints a report as one line of JSON on stdout.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub fn print_json(report: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string(report).map_err(|error| Failure::failed(error.to_string()))?);
    Ok(())
}

/// Whether the command line asks for JSON: for what fails before its options are read, or in a command that does not pass them on.
pub fn json_is_wanted() -> bool {
    std::env::args_os().any(|argument| argument == "--json")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ArenaError> for Failure {
    fn from(error: ArenaError) -> Failure {
        Failure::failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lost_anything_has_failed() {
        assert_eq!(code_of(0, 0), ExitCode::SUCCESS);
        for (lost, corrupt) in [(1, 0), (0, 1), (u64::MAX, 1)] {
            assert_eq!(code_of(lost, corrupt), ExitCode::FAILURE);
        }
    }
}
