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
fn the_command_that_counts_is_one_for_a_shell_and_what_it_writes_is_read() {
    let command = String::from_utf8(diagnose(&["--perf", "3"]).stdout).expect("it is text");
    assert!(command.starts_with("perf stat -a --per-socket -x, -o host.csv") && command.ends_with("  sleep 3\n"));
    let events: Vec<&str> = command.lines().filter_map(|line| line.strip_prefix("  -e ")).collect();
    // Where perf has none of these events, it writes each one down as not supported; here each is counted as one, but for the time.
    let name = |event: &str| {
        let event = event.trim_end_matches(" \\");
        event.split_once("name=").map_or(event.to_owned(), |(_, name)| name.trim_end_matches('/').to_owned())
    };
    let line = |event: &&str| match name(event).as_str() {
        "duration_time" => "S0,1,3000000000,ns,duration_time,1,100.00,,\n".to_owned(),
        name => format!("S0,8,1000000000,,{name},1,100.00,,\n"),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["diagnose", "-", "--cores", "2", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reads = command.spawn().expect("the program runs");
    let written: String = events.iter().map(line).collect();
    reads.stdin.take().expect("it is a pipe").write_all(written.as_bytes()).expect("it reads all");
    let output = reads.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(json(&output)["domains"].as_array().map(Vec::len), Some(2), "line fill buffers and writes of devices");
}

#[test]
fn the_diagnosis_fits_a_terminal() {
    let text = String::from_utf8(diagnose(&[EXAMPLE]).stdout).expect("it is text");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
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
        (&[EXAMPLE, "--cores", "3"][..], 1, "--cores goes with a file of perf's"),
        (&["--perf", "5", EXAMPLE][..], 2, "--perf"),
        (&["--perf", "0"][..], 2, "--perf"),
        (&[EXAMPLE, "--counters", "--fail-on", "red"][..], 2, "--fail-on"),
    ] {
        let output = diagnose(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let error = json(&diagnose(&["examples/none.json", "--json"]));
    assert!(error["error"].as_str().is_some_and(|message| message.contains("none.json")), "{error}");
    let error = json(&diagnose(&["--perf", "--json"]));
    assert!(error["error"].as_str().is_some_and(|message| message.contains("--perf")), "a script is no JSON: {error}");
}
