//! `conic platform` as a program: what it prints for people and for programs, and how it refuses.

use std::process::{Command, Output};

use serde_json::Value;

fn conic(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conic")).args(arguments.split_whitespace()).output().expect("conic runs")
}

fn text(arguments: &str) -> String {
    let output = conic(arguments);
    assert!(output.status.success(), "conic {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("conic prints UTF-8")
}

fn json(arguments: &str, code: i32) -> Value {
    let output = conic(arguments);
    assert_eq!(output.status.code(), Some(code), "conic {arguments}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("conic {arguments}: {error}"))
}

#[test]
fn list_names_every_platform() {
    let names = [
        "icx",
        "spr",
        "icx-cx6",
        "icx-e810",
        "thunderx",
        "enzian-pcie",
        "pc-pcie",
        "enzian",
        "cxl3-mem",
        "agilex7",
        "bf3",
        "cxl-asic",
        "cxl3-asic",
        "hypersparc",
        "cascade-lake",
        "ice-lake",
    ];
    let printed = text("platform list");
    assert!(names.iter().all(|name| printed.lines().any(|line| line.starts_with(&format!("{name} ")))), "{printed}");
    let list = json("platform list --json", 0);
    let listed: Vec<&str> = list.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect();
    assert_eq!(listed, names);
}

#[test]
fn show_prints_each_value_with_its_provenance_and_then_the_guesses() {
    let printed = text("platform show icx-e810");
    let line = |key: &str| printed.lines().find(|line| line.starts_with(&format!("{key} "))).unwrap_or_default();
    let words = |key: &str| line(key).split_whitespace().take(4).collect::<Vec<_>>();
    assert_eq!(words("core.line_fill_buffers"), ["core.line_fill_buffers", "12", "lines", "document"]);
    assert_eq!(words("nic.packets_per_second"), ["nic.packets_per_second", "192", "Mpps", "measured"]);
    assert!(
        line("interconnect.flit_time").contains("= interconnect.flit_bytes / (inputs.lanes * inputs.transfer_rate)")
    );
    let (_, guesses) = printed.split_once("values are guesses:").expect("the guesses are listed");
    assert!(guesses.contains("pcie.crossing") && !guesses.contains("nic.packets_per_second"));
    let only = text("platform show icx-e810 --guesses");
    assert!(only.contains("pcie.crossing") && !only.contains("nic.packets_per_second"));
}

#[test]
fn json_has_every_value_and_its_provenance() {
    let report = json("platform show spr --json", 0);
    assert_eq!(report["schema"], "conic.platform/1");
    let entries = report["entries"].as_array().expect("an array of entries");
    assert_eq!(report["values"], entries.len());
    let find = |key: &str| entries.iter().find(|entry| entry["key"] == key).unwrap_or_else(|| panic!("{key}"));
    let lookup = find("node.home_lookup");
    assert_eq!([&lookup["value"], &lookup["low"], &lookup["high"]], [22.0, 16.0, 26.0]);
    assert_eq!([&lookup["unit"], &lookup["provenance"], &lookup["file"]], ["ns", "guess", "spr.toml"]);
    assert!(lookup["line"].is_u64() && lookup["relation"].is_null());
    assert_eq!(find("protocol.migratory_between_nodes")["value"], true);
    assert!(find("node.snoop_lookup")["relation"].is_string());
    let guesses = json("platform show spr --guesses --json", 0);
    let guesses = guesses["entries"].as_array().expect("an array of entries");
    assert_eq!(report["guesses"], guesses.len());
    assert!(guesses.iter().all(|entry| entry["provenance"] == "guess" && entry["low"].is_number()));
}

#[test]
fn values_can_be_replaced() {
    let report = json("platform show icx --json --set core.line_fill_buffers=16 --set interconnect.crossing=40ns", 0);
    let entries = report["entries"].as_array().expect("an array of entries");
    let find = |key: &str| entries.iter().find(|entry| entry["key"] == key).unwrap_or_else(|| panic!("{key}"));
    assert_eq!(find("core.line_fill_buffers")["value"], 16.0);
    assert_eq!(find("core.line_fill_buffers")["provenance"], "override");
    assert_eq!(find("interconnect.crossing")["value"], 40.0);
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    for (arguments, wanted) in [
        ("platform show icy", "did you mean icx?"),
        ("platform show enzyan", "enzian, "),
        ("platform show icx --set core.core=1", "did you mean core.cores?"),
        ("platform show no/such.toml", "cannot be opened"),
    ] {
        let output = conic(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "conic {arguments}");
        assert!(said.contains(wanted) && output.stdout.is_empty(), "conic {arguments}: {said}");
        let error = json(&format!("{arguments} --json"), 1);
        assert!(error["error"].as_str().is_some_and(|text| text.contains(wanted)), "{error}");
    }
}

#[test]
fn whoever_reads_may_close_the_pipe_before_the_first_line() {
    for arguments in ["platform list", "platform show icx", "sim --packets 200 --json", "study coherent-pio 1 --quick"]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let folder = std::env::temp_dir().join(format!("conic-closed-pipe-{}", std::process::id()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(arguments.split_whitespace());
        if arguments.starts_with("study") {
            command.arg("--output").arg(&folder);
        }
        let output = command.stdout(writer).output().expect("conic runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 141)), "conic {arguments}: {:?}, {said}", output.status);
        assert_eq!(said, "", "conic {arguments}");
        drop(std::fs::remove_dir_all(folder));
    }
}

#[test]
fn a_full_disk_is_an_error_and_no_panic() {
    for arguments in ["platform list", "sim --packets 200 --json", "nic --help"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        let output = command.args(arguments.split_whitespace()).stdout(full).output().expect("conic runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "conic {arguments}: {said}");
        assert!(!said.contains("panicked"), "conic {arguments}: {said}");
        assert!(arguments.contains("--help") || said.contains("cannot be written: stdout: No space left"), "{said}");
    }
}
