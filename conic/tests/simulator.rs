//! The simulator's commands as a program: what they print for programs, and how they refuse.

use std::process::{Command, Output};

use serde_json::Value;

fn conic(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conic")).args(arguments.split_whitespace()).output().expect("conic runs")
}

/// What conic prints on stdout, which must be one JSON value and nothing else.
fn json(arguments: &str, code: i32) -> Value {
    let output = conic(arguments);
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "conic {arguments}: {printed}\n{said}");
    assert_eq!(printed.lines().count(), 1, "conic {arguments}: {printed}");
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("conic {arguments}: {error}: {printed}"))
}

fn is_positive(value: &Value, name: &str) {
    assert!(value.as_f64().is_some_and(|figure| figure > 0.0), "{name}: {value}");
}

const SPEEDS: [&str; 4] =
    ["loopback_operations_per_second", "hit_operations_per_second", "miss_operations_per_second", "events_per_second"];

#[test]
fn the_simulators_speed_is_given_by_number_of_agents() {
    let report = json("bench sim --agents 4,2 --duration 20ms --rounds 2 --json", 0);
    for key in SPEEDS {
        is_positive(&report[key], key);
        for (row, agents) in [2, 4].into_iter().enumerate() {
            assert_eq!(report["by_agents"][row]["agents"], agents);
            is_positive(&report["by_agents"][row][key]["median"], key);
        }
    }
    assert_eq!(report["goals"].as_array().map(Vec::len), Some(5));
}

#[test]
fn speeds_that_cannot_be_measured_are_refused() {
    for (arguments, says) in [
        ("bench sim --platform nowhere --json", "there is no such platform"),
        ("bench sim --agents 3 --json", "2 to 112"),
        ("bench sim --agents x --json", "--agents"),
    ] {
        let error = json(arguments, 1)["error"].to_string();
        assert!(error.contains(says), "{arguments}: {error}");
    }
}
