//! `conic diagnose` as a program: a file's counters and a simulated host's, and what it refuses.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const EXAMPLE: &str = "examples/host-counters.json";

fn diagnose(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).arg("diagnose").args(arguments);
    command.output().expect("the program runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout")
}

#[test]
fn the_example_is_in_the_red_regime_and_its_counters_come_through_a_pipe() {
    let output = diagnose(&[EXAMPLE, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let diagnosis = json(&output);
    assert_eq!((&diagnosis["regime"], &diagnosis["platform"]), (&"red".into(), &"cascade-lake".into()));
    assert_eq!(diagnosis["domains"].as_array().map(Vec::len), Some(2));
    assert_eq!(diagnose(&[EXAMPLE, "--fail-on", "red"]).status.code(), Some(3));
    let text = String::from_utf8_lossy(&diagnose(&[EXAMPLE]).stdout).into_owned();
    assert!(text.starts_with("cascade-lake: red\nbottleneck: C2M-ReadWrite"), "{text}");
    assert!(text.contains("throttle cores that store"), "{text}");

    let written = diagnose(&["--simulate", "q1", "--cores", "2", "--counters"]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["diagnose", "-", "--json", "--fail-on", "red"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reads = command.spawn().expect("the program runs");
    reads.stdin.take().expect("it is a pipe").write_all(&written.stdout).expect("it reads all");
    let output = reads.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &json(&output)["regime"]), (Some(0), &"blue".into()));
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, code, words) in [
        (&["examples/none.json"][..], 1, "examples/none.json: No such file"),
        (&["Cargo.toml"][..], 1, "Cargo.toml: line 1: \"[package]\" is no name,value"),
        (&[EXAMPLE, "--platform", "icx"][..], 1, "one of \"host\" is wanted here"),
        (&[EXAMPLE, "--set", "iio.credits=1"][..], 1, "has no such value"),
        (&["--simulate", "q1", "--cores", "9"][..], 1, "--cores 9: cascade-lake has only 8"),
        (&[][..], 2, "FILE"),
        (&[EXAMPLE, "--cores", "3"][..], 2, "--cores"),
    ] {
        let output = diagnose(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let error = json(&diagnose(&["examples/none.json", "--json"]));
    assert!(error["error"].as_str().is_some_and(|message| message.contains("none.json")), "{error}");
}
