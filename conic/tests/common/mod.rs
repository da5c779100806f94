//! What tests of the command line share: running the program, and reading what it prints for programs.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs conic with some words.
pub fn conic(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conic")).args(arguments.split_whitespace()).output().expect("conic runs")
}

/// What conic prints on stdout, which must be one JSON value and nothing else.
pub fn json(arguments: &str, code: i32) -> Value {
    let output = conic(arguments);
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "conic {arguments}: {printed}\n{said}");
    assert_eq!(printed.lines().count(), 1, "conic {arguments}: {printed}");
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("conic {arguments}: {error}: {printed}"))
}

/// A figure that was measured or computed.
pub fn is_positive(value: &Value, name: &str) {
    assert!(value.as_f64().is_some_and(|figure| figure > 0.0), "{name}: {value}");
}
