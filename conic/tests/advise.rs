//! `conic advise` as a program: its answer is at least as good as the paper's configuration, and it refuses what cannot be.

use std::process::{Command, Output};

fn advise(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conic")).arg("advise").args(arguments).output().expect("the program runs")
}

#[test]
fn it_is_no_worse_than_the_paper_at_any_size_and_says_why() {
    let output = advise(&["--size", "64", "--size", "600", "--size", "2400", "--no-device-memory", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<serde_json::Value> =
        serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    assert_eq!(answers.len(), 3);
    for answer in &answers {
        let [found, paper] = ["value", "paper"].map(|key| answer[key][0].as_f64().expect("it is a number"));
        assert!(found <= paper, "{found} against {paper} ns at {} bytes", answer["bytes"]);
        let reasons = answer["reasons"].as_array().expect("there are reasons");
        assert!(found == paper || !reasons.is_empty());
        assert_eq!(answer["design"]["receive buffers"], "host memory");
        assert!(answer["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let output = advise(&["--platform", "icx"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("one of \"cxl\" is wanted here"));
    let output = advise(&["--platform", "bf3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("its device has no CXL"));
    let output = advise(&["--goal", "throughput", "--load", "1", "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the error is JSON");
    assert!(error["error"].as_str().is_some_and(|message| message.contains("--load")), "{error}");
    assert_eq!(advise(&["--size", "3"]).status.code(), Some(2));
}

#[test]
fn an_answer_fits_into_80_columns() {
    for goal in ["latency", "throughput"] {
        let output = advise(&["--size", "64", "--goal", goal, "--no-device-memory"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("messages a packet that it saves"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
