//! `conic study ccnic` as a program: what it prints, writes, and refuses.

use std::path::Path;
use std::process::{Command, Output};

fn study(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["study", "ccnic"]).args(arguments);
    command.arg("--output").arg(folder.join("report")).arg("--points").arg(folder.join("points"));
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes UTF-8")
}

#[test]
fn the_calibrated_latencies_come_out_as_they_went_in() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let output = study(folder.path(), &["7", "table1", "--quick", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    for row in &rows {
        let keys: Vec<&String> = row.as_object().expect("a row is an object").keys().collect();
        assert_eq!(keys, ["id", "predicted", "published", "role", "unit"]);
        assert_eq!(row["role"], "calibration", "{row}");
    }
    for id in ["ccnic.fig7.icx.remote_l2", "ccnic.fig7.spr.remote_l2"] {
        let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id} is missing"));
        let [predicted, published] = ["predicted", "published"].map(|key| row[key].as_f64().expect("it is a number"));
        assert!((predicted / published - 1.0).abs() < 0.01, "{row}");
    }
    let kept = std::fs::read_to_string(folder.path().join("report/results.json")).expect("results are written");
    assert_eq!(kept, text(&output.stdout));
    assert!(folder.path().join("report/fig7.svg").exists());
    let again = study(folder.path(), &["7", "table1", "--quick"]);
    let lines = text(&again.stdout);
    assert!(lines.contains("0 points simulated"), "{lines}");
    let report = folder.path().join("report/report.html");
    assert_eq!(lines.lines().last(), Some(format!("report: {}", report.display()).as_str()));
    assert!(report.exists());
}

#[test]
fn an_unknown_figure_is_refused_with_those_that_there_are() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let output = study(folder.path(), &["22"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no figure \"22\"; there are table1, mmio, 2, 3"));
    assert!(output.stdout.is_empty());
    let output = study(folder.path(), &["7", "all", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the error is JSON");
    assert!(error["error"].as_str().is_some_and(|message| message.contains("\"all\"")), "{error}");
    assert!(!folder.path().join("report").exists());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    std::fs::write(folder.path().join("report"), "a file").expect("it can be written");
    let output = study(folder.path(), &["table1"]);
    assert_eq!(output.status.code(), Some(1));
    let report = folder.path().join("report");
    assert!(text(&output.stderr).contains(report.to_str().expect("the path is plain")), "{}", text(&output.stderr));
}

#[test]
fn the_snooping_bus_is_studied_from_the_command_line() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["study", "cni"]).args(arguments).arg("--output").arg(folder.path());
        command.output().expect("the program runs")
    };
    let output = run(&["local", "--quick", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    assert_eq!(rows[0]["id"], "cni.sec5.transfer");
    assert_eq!((&rows[0]["predicted"], &rows[0]["published"]), (&230.0.into(), &230.0.into()));
    let output = run(&["9"]);
    assert!(text(&output.stderr).contains("there is no figure \"9\"; there are local, 6, 7, 8"));
    let output = run(&["local", "--set", "bus.blok=40"]);
    assert!(text(&output.stderr).contains("bus.block"), "{}", text(&output.stderr));
}
