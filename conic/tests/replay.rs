//! `conic replay` and `conic sample`, as a user runs them.

use std::path::Path;
use std::process::{Command, Output};

use conic_port::{CaptureReader, CaptureWriter, Timestamp};
use serde_json::Value;

fn conic(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conic")).args(arguments).output().expect("the program")
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("a JSON object")
}

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).to_str().expect("a path of letters").to_owned()
}

/// A capture of these frame lengths, ten microseconds apart.
fn write(file: &str, lengths: &[usize]) {
    let mut writer = CaptureWriter::create(Path::new(file)).expect("a file");
    for (number, &length) in lengths.iter().enumerate() {
        let frame: Vec<u8> = (0..length).map(|at| (at ^ number) as u8).collect();
        writer.write(Timestamp::from_nanoseconds(10_000 * number as u64), &frame).expect("a disk");
    }
    writer.finish().expect("a disk");
}

#[test]
fn the_sample_comes_back_identical_with_every_kind_of_interface() {
    let directory = tempfile::tempdir().expect("a directory");
    for (number, features) in ["best", "paper", "register,packed", "padded,no-whole-line"].iter().enumerate() {
        let file = path(&directory, &format!("{number}.pcapng"));
        let output = conic(&["replay", "--sample", "--json", "--features", features, "--output", &file]);
        let report = report(&output);
        assert!(output.status.success(), "{report}");
        assert_eq!((&report["identical"], &report["frames_out"]), (&true.into(), &20_000.into()));
        assert_eq!((&report["output"]["identical"], &report["output"]["frames"]), (&true.into(), &20_000.into()));
    }
}

#[test]
fn a_written_sample_is_the_one_in_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let (sample, recorded) = (path(&directory, "sample.pcapng"), path(&directory, "recorded.pcapng"));
    assert!(conic(&["sample", &sample]).status.success());
    assert!(conic(&["replay", "--sample", "--output", &recorded]).status.success());
    assert_eq!(std::fs::read(sample).expect("a file"), std::fs::read(recorded).expect("a file"));
}

#[test]
fn a_capture_is_replayed_as_often_as_asked_and_unfit_frames_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let (input, back) = (path(&directory, "in.pcap"), path(&directory, "back.pcap"));
    write(&input, &[60, 42, 9600, 9601, 13, 1514]);
    let output = conic(&["replay", &input, "--json", "--loop", "3", "--output", &back]);
    let report = report(&output);
    assert!(output.status.success(), "{report}");
    assert_eq!((&report["frames_in"], &report["frames_identical"]), (&12.into(), &12.into()));
    assert_eq!((&report["skipped"]["oversized"], &report["skipped"]["short"]), (&3.into(), &3.into()));
    assert_eq!((&report["padded"], &report["output"]["frames"]), (&3.into(), &12.into()));
    let mut recorded = CaptureReader::open(Path::new(&back)).expect("a capture");
    let times: Vec<u64> = std::iter::from_fn(|| recorded.next_record().expect("a sound capture"))
        .map(|record| record.timestamp.expect("a time").nanoseconds())
        .collect();
    assert_eq!(times, [0, 10_000, 20_000, 50_000].repeat(3));
}

#[test]
fn the_recorded_pace_takes_the_recorded_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = path(&directory, "in.pcap");
    write(&input, &[60; 5001]);
    for (pace, least) in [("recorded", 0.05), ("0.5x", 0.1)] {
        let output = conic(&["replay", &input, "--json", "--pace", pace]);
        let seconds = report(&output)["seconds"].as_f64().expect("a number");
        assert!(output.status.success() && seconds >= least, "{seconds} s at pace {pace}");
    }
}

#[test]
fn a_broken_capture_is_replayed_up_to_the_break_and_reported_with_its_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let (input, back) = (path(&directory, "cut.pcap"), path(&directory, "back.pcap"));
    write(&input, &[100; 10]);
    let whole = std::fs::read(&input).expect("a file");
    std::fs::write(&input, &whole[..24 + 116 * 7 + 50]).expect("a disk");
    let output = conic(&["replay", &input, "--json", "--output", &back]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert_eq!((&report["frames_identical"], &report["output"]["frames"]), (&7.into(), &7.into()));
    let error = report["error"].as_str().expect("a text");
    assert!(error.contains(&format!("at byte {}", 24 + 116 * 7)), "{error}");
}

#[test]
fn what_cannot_be_replayed_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let (input, empty, text) =
        (path(&directory, "in.pcap"), path(&directory, "empty.pcap"), path(&directory, "text.pcap"));
    write(&input, &[100; 10]);
    write(&empty, &[]);
    std::fs::write(&text, "no capture").expect("a disk");
    let cases: [(&[&str], &str); 8] = [
        (&["replay", &text], "neither pcap nor pcapng"),
        (&["replay", "/does/not/exist.pcap"], "cannot be opened"),
        (&["replay", &input, "--output", &input], "is the capture being replayed"),
        (&["replay", &input, "--output", "back.txt"], "ends in .pcap or .pcapng"),
        (&["replay", &input, "--features", "fast"], "there is no feature \"fast\""),
        (&["replay", &input, "--cores", "0,100000"], "may not run on core 100000"),
        (&["replay", &input, "--cores", "0,0,0"], "two core numbers"),
        (&["replay", &input, "--pace", "slow"], "recorded, or a factor"),
    ];
    for (arguments, expected) in cases {
        let output = conic(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected), "{arguments:?}: {text}");
    }
    assert_eq!(std::fs::read(&input).expect("a file").len(), 24 + 10 * 116, "the capture is untouched");
    let nothing = conic(&["replay", &empty]);
    assert_eq!(nothing.status.code(), Some(1), "a proof over no frames proves nothing");
}

#[test]
fn a_recording_that_cannot_be_written_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let full = path(&directory, "full.pcap");
    std::os::unix::fs::symlink("/dev/full", &full).expect("a link");
    let output = conic(&["replay", "--sample", "--json", "--output", &full]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report["error"].as_str().expect("a text").contains("cannot be written"), "{report}");
    assert_eq!(report["output"]["identical"], false);
}

#[test]
fn an_interrupted_replay_ends_with_a_verdict() {
    let directory = tempfile::tempdir().expect("a directory");
    let back = path(&directory, "back.pcap");
    // A hundred times slower than recorded, so that it is far from its end when it is interrupted.
    let mut child = Command::new(env!("CARGO_BIN_EXE_conic"))
        .args(["replay", "--sample", "--json", "--pace", "0.01x", "--output", &back])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a process");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("a pipe"), &mut text).expect("text");
    let report: Value = serde_json::from_str(&text).expect("a JSON object");
    assert!(child.wait().expect("a process").success(), "{report}");
    let frames = report["frames_out"].as_u64().expect("a number");
    assert!(frames < 20_000 && report["output"]["frames"] == frames, "{report}");
}

#[test]
fn a_recording_into_a_pipe_ends_and_is_said_not_to_be_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let (pipe, input) = (path(&directory, "out.pcapng"), path(&directory, "in.pcapng"));
    write(&input, &[60, 1514]);
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).expect("it is written")
    });
    let output = conic(&["replay", &input, "--output", &pipe]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("not compared: it is no file"), "{said}");
    assert_eq!(reader.join().expect("it reads to the end"), std::fs::read(&input).expect("a file"));
}
