//! Why a command failed, for people and for programs.

use std::fmt;
use std::process::ExitCode;

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
