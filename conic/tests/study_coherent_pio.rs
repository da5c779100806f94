//! `conic study coherent-pio` as a program: what it prints, writes, and refuses.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn study(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["study", "coherent-pio"]).args(arguments).arg("--output").arg(folder.join("report"));
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes UTF-8")
}

fn one_line_exchange(folder: &Path, arguments: &[&str]) -> f64 {
    let output = study(folder, &[&["6", "--quick", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    let row = rows.iter().find(|row| row["id"] == "pio.fig6.exclusive").expect("the exchange is among the results");
    row["predicted"].as_f64().expect("it is a number")
}

#[test]
fn the_fitted_exchange_comes_out_and_is_written_with_its_plot() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let exchange = one_line_exchange(folder.path(), &[]);
    assert!((exchange - 900.0).abs() < 9.0, "{exchange} ns");
    for name in ["results.json", "report.html"] {
        assert!(folder.path().join("report").join(name).exists(), "{name}");
    }
    let files = std::fs::read_dir(folder.path().join("report")).expect("the folder was made");
    assert!(files.flatten().any(|file| file.path().extension().is_some_and(|end| end == "svg")), "there is a plot");
    // Four messages cross: 10 ns more for each are 40 ns more for the exchange.
    let longer = one_line_exchange(folder.path(), &["--set", "link.crossing=160ns"]);
    assert!((longer - exchange - 40.0).abs() < 1.0, "{exchange} and {longer} ns");
}

#[test]
fn why_a_point_failed_is_said_beside_json_too() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    // The paper's deadlock.
    let output = study(folder.path(), &["7", "--quick", "--json", "--set", "cache.unit_transactions=1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let _: Vec<Value> = serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    assert!(text(&output.stderr).contains("failed"), "{}", text(&output.stderr));
}

#[test]
fn fastforward_and_a_machine_of_a_coming_generation_stand_beside_the_line_pair() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let rows = |arguments: &[&str]| -> Vec<Value> {
        let output = study(folder.path(), &[arguments, &["--quick", "--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout")
    };
    let value = |rows: &[Value], id: &str| {
        let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id} is among the results"));
        (row["predicted"].as_f64().expect("it is a number"), row["role"].clone())
    };
    let six = rows(&["6"]);
    let (fastforward, role) = value(&six, "pio.fig6.fastforward");
    assert_eq!(role, "prediction");
    assert!(fastforward > value(&six, "pio.fig6.exclusive").0, "{fastforward} ns");
    let (asking, role) = value(&six, "pio.improved.fastforward_asking_ahead");
    assert!(role == "unpublished" && asking < fastforward, "{asking} ns");
    let what_if = rows(&["cxl3-mem"]);
    assert!(what_if.iter().all(|row| row["role"] == "unpublished" && row["published"].is_null()));
    let (exclusive, _) = value(&what_if, "pio.whatif.exclusive");
    assert!(exclusive < value(&what_if, "pio.whatif.shared").0, "{exclusive} ns");
    let further = rows(&["cxl3-mem", "--set", "cxl3-mem:link.crossing=1us"]);
    assert!(
        value(&further, "pio.whatif.exclusive").0 > exclusive + 3000.0,
        "more than three crossings of a microsecond"
    );
}

#[test]
fn the_guesses_at_the_ends_of_their_ranges_move_the_results() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let output = study(folder.path(), &["--sensitivity", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    let moved = |id: &str, guess: &str| rows.iter().any(|row| row["id"] == id && row["guess"] == guess);
    assert!(moved("pio.fig12.per_element", "enzian core.prefetches"));
    assert!(moved("pio.fig6.fastforward", "thunderx node.home_lookup"));
    assert!(!moved("pio.fig6.fastforward", "enzian core.prefetches"), "the two machines share no value");
    assert!(moved("pio.whatif.exclusive", "cxl3-mem link.crossing"));
    assert!(
        !moved("pio.whatif.exclusive", "enzian link.crossing") && !moved("pio.fig6.shared", "cxl3-mem link.crossing")
    );
    assert!(folder.path().join("report/sensitivity.html").exists());
}

#[test]
fn the_calibration_over_pcie_comes_out_with_its_plots() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let output = study(folder.path(), &["1", "2", "--quick", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    let predicted = |id: &str| rows.iter().find(|row| row["id"] == id).map(|row| row["predicted"].clone());
    // The PC is faster by both: it has the same device, and a faster core and memory.
    for id in ["pio.fig1.enzian_over_pc", "pio.fig2.enzian_over_pc"] {
        let ratio = predicted(id).and_then(|value| value.as_f64()).expect("it is a number");
        assert!((1.2..4.0).contains(&ratio), "{id}: {ratio}");
    }
    assert_eq!(predicted("pio.fig1.constant_to_4096"), Some(Value::Bool(true)));
    let files = std::fs::read_dir(folder.path().join("report")).expect("the folder was made");
    let plots = files.flatten().filter(|file| file.path().extension().is_some_and(|end| end == "svg")).count();
    assert_eq!(plots, 2);
}

#[test]
fn what_there_is_not_is_refused() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    for arguments in [&["9"][..], &["6", "--set", "link.crosing=160ns"], &["6", "--set", "cxl3-mem:link.crosing=1ns"]] {
        let output = study(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).starts_with("error: ") && output.stdout.is_empty(), "{arguments:?}");
    }
    assert!(!folder.path().join("report").exists());
}

#[test]
fn options_of_another_device_than_the_one_that_is_asked_for_are_refused() {
    let of_both = [
        ("--platform enzian", "--platform goes with"),
        ("--device simulated --cores 0,1", "--cores"),
        ("--device simulated --huge-pages", "--huge-pages"),
        ("--device simulated --placement all", "--placement"),
    ];
    let of_calls = [("--calls 3", "--calls goes with"), ("--device simulated --duration 1ms", "--duration goes with")];
    let dataflow =
        of_both.map(|(options, says)| ("dataflow --duration 1us --svg /proc/none/dataflow.svg", options, says));
    let invoke = of_both.into_iter().chain(of_calls).map(|(options, says)| ("invoke", options, says));
    for (command, options, says) in dataflow.into_iter().chain(invoke) {
        let mut conic = Command::new(env!("CARGO_BIN_EXE_conic"));
        conic.args(command.split(' ')).args(options.split(' ')).arg("--json");
        let output = conic.output().expect("the program runs");
        assert_eq!(output.status.code(), Some(1), "{command} {options}");
        assert!(text(&output.stdout).contains(says), "{command} {options}: {}", text(&output.stdout));
    }
}

#[test]
fn calls_of_a_function_are_told_for_each_way_that_a_machine_has() {
    let invoke = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["invoke", "--device", "simulated", "--calls", "4"]).args(arguments.split(' '));
        let output = command.output().expect("the program runs");
        (output.status.code(), text(&output.stdout))
    };
    let (code, printed) = invoke("--bytes 120 --json");
    assert_eq!(code, Some(0), "{printed}");
    let report: Value = serde_json::from_str(&printed).expect("nothing but JSON is on stdout");
    assert_eq!((&report["function"], &report["device"]), (&Value::from("echo"), &Value::from("simulated")));
    let mut found = Vec::new();
    for way in report["ways"].as_array().expect("ways") {
        let name = [&way["platform"], &way["way"]].map(|name| name.as_str().expect("a name").to_owned());
        let [size] = &way["sizes"].as_array().expect("sizes")[..] else { panic!("one size was asked for: {way}") };
        assert_eq!([&size["bytes"], &size["response_bytes"], &size["calls"]], [120, 120, 4]);
        let latency = ["min", "p50", "max"].map(|key| size["latency_ns"][key].as_f64().expect("a time"));
        assert!(latency[0] > 0.0 && latency.is_sorted(), "{way}");
        // One call after the other: as many a second as one takes of it, and 240 bytes each.
        let rate = size["calls_per_second"].as_f64().expect("a rate");
        assert!((1e9 / rate).clamp(latency[0], latency[2]) * rate / 1e9 - 1.0 < 0.05, "{way}");
        assert!((size["bytes_per_second"].as_f64().expect("a rate") / rate - 240.0).abs() < 1.0, "{way}");
        found.push((name.join(" "), latency[1]));
    }
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let over_pcie = ["pcie-pio", "dma-polled", "dma-interrupt"];
    let expected = ["enzian-pcie", "pc-pcie"].map(|platform| over_pcie.map(|way| format!("{platform} {way}")));
    assert_eq!(names[0], "enzian pio");
    assert_eq!(names[1..7], expected.concat());
    assert_eq!(names[7..], ["cxl3-mem pio"]);
    // The one point that was fitted, as `study coherent-pio 6` has it.
    assert!((found[0].1 - 900.0).abs() < 1.0 && found[1..7].iter().all(|(_, time)| *time > found[0].1), "{found:?}");
    let (code, printed) = invoke("--function checksum --bytes 1500");
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let (code, printed) = invoke("--platform icx --json");
    assert!(code == Some(1) && printed.contains("icx has no device that computes"), "{printed}");
}

#[test]
fn a_graph_s_device_can_be_part_of_a_modelled_machine() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let svg = folder.path().join("dataflow.svg");
    let dataflow = |platform: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["dataflow", "--device", "simulated", "--duration", "1ms", "--json", "--platform", platform]);
        command.arg("--svg").arg(&svg).output().expect("the program runs")
    };
    let output = dataflow("enzian");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout");
    assert_eq!((report["device"].as_str(), report["platform"].as_str()), (Some("simulated"), Some("enzian")));
    let graphs = report["graphs"].as_array().expect("graphs");
    assert_eq!(graphs.len(), 6);
    let number = |value: &Value| value.as_u64().expect("a number");
    let payload = number(&report["payload_bytes"]);
    // A header, and the progress of each of the filters.
    assert_eq!(number(&report["exchange_bytes"]), payload + 16 + 8 * 31);
    for graph in graphs {
        let rows = graph["sizes"].as_array().expect("sizes");
        let times: Vec<f64> = rows.iter().filter_map(|row| row["simulated_ns"].as_f64()).collect();
        assert!(times.len() == rows.len() && times.is_sorted() && times[0] > 600.0, "{times:?}");
        let deferred = graph["way"].as_str().expect("a way").ends_with("deferred");
        for row in rows {
            assert_eq!(row["wrong"], 0, "{row}");
            let [simulated, together, latency, on_the_way] =
                ["simulated_ns", "together_ns", "latency_ns", "on_the_way"]
                    .map(|key| row[key].as_f64().expect("a figure"));
            let Some(host) = row["host_ns"].as_f64() else {
                assert!(deferred, "{row}");
                // Two exchanges at a time: no batch takes less than half of what its own do, and none is complete before they are over.
                assert!(together > 0.4 * simulated && latency > 0.49 * simulated, "{row}");
                // A host that waited for each before it sent the next would have less than one on the way.
                assert!((1.0..=4.0).contains(&on_the_way), "{row}");
                continue;
            };
            assert!(!deferred && host > 0.0 && (host + simulated - together).abs() < 0.2, "{row}");
            assert_eq!((latency, on_the_way), (together, 1.0), "{row}");
        }
        // As many exchanges as the elements need, whatever goes before them.
        let element = if graph["graph"] == "filters" { 8 } else { 128 };
        for row in rows {
            let least = (element * number(&row["elements"])).div_ceil(payload);
            assert_eq!(row["exchanges"].as_u64(), Some(least), "{} {}: {row}", graph["graph"], graph["way"]);
        }
    }
    assert!(std::fs::read_to_string(&svg).expect("a picture").starts_with("<svg"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["dataflow", "--device", "simulated", "--duration", "1ms"]).arg("--svg").arg(&svg);
    let printed = text(&command.output().expect("the program runs").stdout);
    assert!(printed.contains("batches on the way"), "{printed}");
    let mut table = printed.lines().take_while(|line| !line.contains("what came out"));
    assert!(table.all(|line| line.chars().count() <= 80), "{printed}");
    // Loads that wait fill the caches' units that recalls need: the paper's deadlock, and no fault of this program's.
    let small = folder.path().join("small.toml");
    let shipped = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../platforms/enzian.toml"));
    let shipped = shipped.expect("a platform that comes");
    let changed = shipped.replace("unit_transactions = { value = 16", "unit_transactions = { value = 1");
    assert_ne!(changed, shipped);
    std::fs::write(&small, changed).expect("there is room for a file");
    let stopped = dataflow(small.to_str().expect("a name of letters"));
    assert_eq!(stopped.status.code(), Some(1), "{}", text(&stopped.stderr));
    let error: Value = serde_json::from_slice(&stopped.stdout).expect("nothing but JSON is on stdout");
    assert!(error["error"].as_str().is_some_and(|error| error.contains("the modelled machine stopped: ")), "{error}");
    assert!(!text(&stopped.stderr).contains("panicked"), "{}", text(&stopped.stderr));
    let refused = dataflow("icx");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("it is a machine of model"), "{}", text(&refused.stdout));
}
