//! `conic bench` as a program: what it prints for programs, and how it refuses. No figure is asserted.

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conic_check::skipped;
use serde_json::Value;

use common::{conic, is_positive, json};

/// Two programs that measure on the same two cores at once take turns of the scheduler, and some exchange nothing at all.
static MEASURING: Mutex<()> = Mutex::new(());

/// The right to measure. Machines with one core can measure nothing; there the refusal is what is tested.
fn can_measure() -> Option<MutexGuard<'static, ()>> {
    if conic_native::cores().len() >= 2 {
        // A test that failed while it measured has nothing half done.
        return Some(MEASURING.lock().unwrap_or_else(PoisonError::into_inner));
    }
    assert!(json("bench loopback --json", 1)["error"].is_string());
    skipped("this process may use one core only");
    None
}

/// What a measurement prints as JSON; again, if the machine was too restless to measure, for then anything may be next to nothing.
fn measured(arguments: &str) -> Value {
    let mut report = json(arguments, 0);
    for _ in 0..4 {
        if report["restless"] != true {
            break;
        }
        report = json(arguments, 0);
    }
    report
}

#[test]
fn the_service_has_each_figure_and_loses_nothing() {
    let Some(_alone) = can_measure() else { return };
    let report = measured("bench service --clients 3 --rounds 4 --mib 2,8 --duration 100ms --json");
    for key in ["packets_lost_in_upgrades", "packets_twice_in_upgrades", "sessions_lost_in_upgrades"] {
        assert_eq!(report[key], 0, "{key}");
    }
    assert_eq!([&report["clients"], &report["upgrades"]], [3, 1]);
    let packets = ["first_packet", "first_packet_both_asleep", "packet_after_150_us", "packet_after_500_us"];
    for key in ["wake_up", "attach", "attach_beside"].into_iter().chain(packets) {
        is_positive(&report["figures"][key]["spread"]["median"], key);
        assert_eq!(report["figures"][key]["rounds"], 4, "{key}");
    }
    for key in ["upgrade_blackout", "upgrade_gap", "usual_gap", "killed_2_mib", "killed_8_mib"] {
        is_positive(&report["figures"][key]["spread"]["median"], key);
    }
    // A share of a core; none at all is what is wanted.
    assert!(report["figures"]["at_rest"]["spread"]["median"].as_f64().is_some_and(|share| (0.0..2.0).contains(&share)));
}

#[test]
fn loopback_prints_what_it_promises_over_each_interface() {
    let Some(_alone) = can_measure() else { return };
    for interface in ["ccnic", "ring", "cachable-queue", "fastforward", "pio"] {
        let report = measured(&format!("bench loopback --interface {interface} --duration 50ms --json"));
        assert_eq!(report["interface"], interface);
        assert_eq!(report["features"].is_string(), interface == "ccnic");
        // Line pairs hold few packets, and no descriptors.
        let (window, descriptors) = if interface == "pio" { (4, Value::Null) } else { (256, 1024.into()) };
        assert_eq!([&report["packet_size"], &report["window"], &report["burst"]], [64, window, 32]);
        assert_eq!(report["descriptors"], descriptors);
        assert_eq!([&report["lost"], &report["corrupt"]], [0, 0]);
        for key in ["mpps", "gbps", "slices", "one_line_round_trip_ns"] {
            is_positive(&report[key], key);
        }
        for key in ["min", "p50", "p99", "p999"] {
            is_positive(&report["latency_ns"][key], key);
        }
        assert!(report["machine"]["processor"].is_string() && report["placement"].is_string());
        assert!(report["placements"].as_array().is_some_and(|places| !places.is_empty()));
    }
}

/// What loopback says of a machine that exists, and the simulator has nothing of. A simulated packet is waited for as long as it takes.
const NATIVE_ONLY: [&str; 7] =
    ["dropped_slices", "machine", "placement", "placements", "restless", "slices", "unfinished"];

/// The keys of an object.
fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn sim_prints_what_loopback_does() {
    let Some(_alone) = can_measure() else { return };
    let native = json("bench loopback --duration 20ms --json", 0);
    let modelled = json("sim --packets 100 --window 4 --json", 0);
    let missing: Vec<&str> = keys(&native).difference(&keys(&modelled)).copied().collect();
    assert_eq!(missing, NATIVE_ONLY);
    assert_eq!(keys(&native["latency_ns"]), keys(&modelled["latency_ns"]));
}

#[test]
fn packets_that_are_due_at_a_pace_come_at_it_over_each_interface() {
    let Some(_alone) = can_measure() else { return };
    for interface in ["ccnic", "ring", "cachable-queue", "fastforward", "pio"] {
        let report = measured(&format!("bench loopback --interface {interface} --rate 0.01 --duration 100ms --json"));
        assert_eq!(report["offered_mpps"], 0.01);
        assert_eq!([&report["lost"], &report["corrupt"]], [0, 0]);
        // 500 packets a slice of 50 ms, and what a busy machine held back before it; a closed loop makes millions a second.
        let mpps = report["mpps"].as_f64().expect("a rate");
        assert!((0.002..=0.05).contains(&mpps), "{interface}: {mpps} of 0.01 million packets a second");
    }
}

#[test]
fn every_size_of_packet_and_several_queues_come_back_whole() {
    let Some(_alone) = can_measure() else { return };
    for more in [
        "--packet-size 60",
        "--packet-size 9600 --window 32",
        "--queues 3 --window 16",
        "--interface pio --packet-size 9600 --queues 2",
        "--interface pio --packet-size 61",
        "--features paper,no-shared-pool",
        "--features no-shared-pool --packet-size 9600 --window 8",
    ] {
        let report = measured(&format!("bench loopback {more} --duration 20ms --json"));
        assert_eq!([&report["lost"], &report["corrupt"]], [0, 0], "{more}");
        is_positive(&report["packets"], more);
    }
}

#[test]
fn pairs_of_cores_lose_nothing_together() {
    let Some(_alone) = can_measure() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("scaling.svg");
    // Two pairs, where there are so many cores, and so a bridge across threads.
    let most = (conic_native::cores().len() / 2).min(2);
    let report = json(&format!("bench scaling --rounds 2 --pairs {most} --json --svg {}", svg.display()), 0);
    assert_eq!([&report["lost"], &report["corrupt"]], [0, 0]);
    assert_eq!(report["cores"].as_array().map(Vec::len), Some(most));
    for (row, key) in
        ["lines", "ccnic", "ring", "daemon", "daemon_one_thread", "bridge", "bridge_across"].into_iter().enumerate()
    {
        let row = &report["rows"][row];
        assert_eq!(row["key"], key);
        if key == "bridge_across" && most < 2 {
            assert_eq!(row["counts"], Value::Array(Vec::new()));
            continue;
        }
        assert_eq!(row["counts"][0]["pairs"], most, "{key}");
        is_positive(&row["counts"][0]["mpps"]["max"], key);
        if key != "lines" {
            is_positive(&row["counts"][0]["p50_ns"]["max"], key);
        }
    }
    assert!(std::fs::read_to_string(&svg).is_ok_and(|text| text.starts_with("<svg")));
}

#[test]
fn limits_print_what_they_promise() {
    let Some(_alone) = can_measure() else { return };
    let report = measured("bench limits --duration 20ms --json");
    for key in [
        "one_line_round_trip_ns",
        "two_lines_round_trip_ns",
        "stream_lines_per_second_each_way",
        "stream_cached_gbps",
        "stream_nontemporal_gbps",
        "model_64_byte_mpps",
    ] {
        is_positive(&report[key], key);
    }
    for key in [
        "load_ns",
        "exchange_ns",
        "exchange_of_loaded_ns",
        "stores_of_read_lines_per_second",
        "loads_together_lines_per_second",
    ] {
        is_positive(&report["placements"][0][key]["median"], key);
    }
    for key in ["stream_lines_per_second_each_way", "swap_lines_per_second_each_way"] {
        assert_eq!(report[key], report["placements"][0][key]["median"], "{key}");
    }
}

#[test]
fn what_cannot_be_is_one_json_object_with_its_reason() {
    for (arguments, reason) in [
        ("bench loopback --packet-size 59 --json", "59"),
        ("bench loopback --json --packet-size 9601", "9601"),
        ("bench loopback --features papr --json", "small-buffers"),
        ("bench loopback --cores 0,0 --json", "core"),
        ("bench loopback --cores 0,9999 --json", "9999"),
        ("bench loopback --duration 5 --json", "50ms"),
        ("bench scaling --pairs 64 --cores 0,1 --json", "128 cores"),
        ("bench scaling --cores 0 --json", "two cores"),
        ("bench scaling --only bridge_across --pairs 1 --json", "two pairs"),
        ("bench scaling --cores 0,0 --json", "core 0"),
        ("bench scaling --cores 0,9999 --json", "9999"),
        ("bench loopback --rate 0 --json", "from 0.001"),
        ("bench loopback --rate 1 --sweep --json", "--sweep"),
        ("bench loopback --descriptors 100 --duration 1ms --json", "100"),
        ("bench loopback --descriptors 9223372036854775808 --json", "2^20"),
        ("bench loopback --interface ring --descriptors 9223372036854775808 --json", "65536"),
        ("bench loopback --interface fastforward --descriptors 9223372036854775808 --json", "2^32"),
        ("bench loopback --interface cachable-queue --descriptors 9223372036854775808 --json", "2^32"),
        ("bench loopback --interface ring --features paper --json", "leave them out"),
        ("bench loopback --interface pio --descriptors 64 --json", "leave them out"),
        ("bench ablations --window 2049 --json", "2048"),
        ("bench daemon --window 2049 --json", "2048"),
        ("bench peers --duration 61s --json", "60s"),
        ("bench peers --duration 999us --json", "1ms"),
        ("bench loopback --interface cachable-queue --packet-size 9600 --duration 1ms --json", "lines"),
        ("bench nonsense --json", "nonsense"),
        ("bench daemon --cores 0 --json", "two core numbers"),
        ("bench service --mib 1 --json", "from 2 to 512"),
        ("replay /does/not/exist.pcap --json", "cannot be opened"),
        ("bridge --port capture:replay=/does/not/exist.pcap --json", "cannot be opened"),
        ("sample /does/not/exist.pcap --json", "cannot be opened"),
        ("tap --mtu 1 --json", "68 to 9586"),
    ] {
        let refusal = json(arguments, 1);
        let message = refusal["error"].as_str().unwrap_or_else(|| panic!("conic {arguments}: {refusal}"));
        assert!(message.contains(reason), "conic {arguments}: {message}");
        assert!(!message.starts_with("error"), "conic {arguments}: {message}");
    }
}

#[test]
fn people_are_refused_on_stderr() {
    let output = conic("bench loopback --packet-size 59");
    assert!(output.stdout.is_empty() && !output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("from 60 to 9600"));
}

#[test]
fn peers_say_what_is_missing_and_how_to_get_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    let output = command.args(["bench", "peers", "--json"]).env("PATH", "/nonexistent").output().expect("conic runs");
    assert_eq!(output.status.code(), Some(2));
    let refusal: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let message = refusal["error"].as_str().expect("a reason");
    assert!(message.contains("pkg-config") && message.contains("make peers"), "{message}");
}

#[test]
fn the_tour_prints_everything_and_draws_it() {
    let Some(_alone) = can_measure() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let svg = directory.path().join("charts").join("bench.svg");
    let report = measured(&format!("bench --quick --json --svg {}", svg.display()));
    for key in ["limits", "interfaces", "large", "ablations"] {
        assert!(report[key].as_array().is_some_and(|list| !list.is_empty()), "{key}");
    }
    assert!(report["sweep"]["curves"].as_array().is_some_and(|curves| curves.len() >= 2));
    assert!(report["dropped_slices"]["moved"].is_u64() && report["restless"].is_boolean());
    assert_eq!([&report["sweep"]["lost"], &report["sweep"]["corrupt"]], [0, 0]);
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    assert!(picture.starts_with("<svg") && !picture.contains("NaN"));
}

#[test]
fn a_line_pair_stands_beside_one_lines_round_trip() {
    let Some(_alone) = can_measure() else { return };
    let report = measured("bench pio --duration 20ms --json");
    for key in ["one_line_round_trip_ns", "line_pair_ns", "line_pair_ratio", "fastforward_ns"] {
        is_positive(&report[key], key);
    }
    assert_eq!(report["placements"][0]["exchanges"].as_array().map(Vec::len), Some(4));
}

#[test]
fn the_cxl_nics_request_types_stand_beside_loads_and_stores() {
    let Some(_alone) = can_measure() else { return };
    let report = measured("bench cxl --size 200 --duration 20ms --json");
    assert_eq!(report["bytes"], 200);
    let designs = report["placements"][0]["designs"].as_array().expect("there is a placement");
    let left_out = report["left_out"].as_array().expect("it is said what is not measured");
    assert_eq!(designs.len() + left_out.len(), 6);
    for design in designs {
        is_positive(&design["ns"]["median"], "ns");
        is_positive(&design["ratio"]["median"], "ratio");
    }
    assert_eq!(designs[0]["ratio"]["median"], 1.0);
    assert_eq!(designs[0]["visible"], false);
}

/// Wide figures among them: a rate that is due, and that nothing keeps up with.
#[test]
fn tables_fit_a_terminal_of_80_columns() {
    let Some(_alone) = can_measure() else { return };
    // For the charts that some draw.
    let folder = tempfile::tempdir().expect("a folder");
    for command in [
        "bench limits --duration 20ms",
        "bench loopback --rate 900 --window 256 --duration 50ms",
        "bench loopback --features paper --duration 50ms",
        "bench pio --duration 20ms",
        "bench cxl --duration 20ms",
        "bench key-value --keys 500 --duration 20ms",
        "bench tcp-rpc --duration 20ms",
        "invoke --duration 1ms",
        "dataflow --duration 5ms",
    ] {
        let mut conic = Command::new(env!("CARGO_BIN_EXE_conic"));
        conic.args(command.split(' ')).env("COLUMNS", "80").current_dir(&folder);
        let output = conic.output().expect("conic runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.lines().count() > 4, "{command}: {printed}");
        let wide: Vec<&str> = printed.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{command}: {wide:#?}");
    }
}

#[test]
fn a_key_value_store_is_asked_over_both_interfaces() {
    let Some(_alone) = can_measure() else { return };
    for (objects, name) in [("ads", "like Ads"), ("geo", "like Geo"), ("9000", "9000 bytes")] {
        let options = format!("--objects {objects} --keys 500 --sets 50 --duration 20ms");
        let report = measured(&format!("bench key-value {options} --json"));
        assert_eq!(report["objects"], name);
        let designs = report["placements"][0]["designs"].as_array().expect("there is a placement");
        let names: Vec<&str> = designs.iter().filter_map(|design| design["design"].as_str()).collect();
        let how = ["copied", "from where they lie"];
        assert_eq!(names, ["ccnic", "ring"].map(|over| how.map(|how| format!("{over}, {how}"))).concat());
        for design in designs {
            is_positive(&design["requests_per_second"]["median"], "rate");
            is_positive(&design["median_ns"]["median"], "latency");
        }
        // What was copied nobody overwrites; with so few keys and so many sets some of what was not is.
        assert_eq!([&designs[0]["asked_again"], &designs[2]["asked_again"]], [0.0, 0.0]);
        is_positive(&designs[1]["asked_again"], "asked again");
    }
    for wrong in
        ["--objects 0", "--objects 9601", "--objects huge", "--zipf=-1", "--zipf nan", "--keys 0", "--sets 101"]
    {
        let report = json(&format!("bench key-value {wrong} --json"), 1);
        assert!(report["error"].as_str().is_some_and(|error| error.contains(&wrong[..6])), "{report}");
    }
}

#[test]
fn a_tcp_service_answers_over_both_interfaces_with_and_without_acknowledgements_of_their_own() {
    let Some(_alone) = can_measure() else { return };
    for (connections, window, segment) in [(3, 2, 1), (96, 64, 16)] {
        let options = format!("--connections {connections} --window {window} --requests-a-segment {segment}");
        let report = measured(&format!("bench tcp-rpc {options} --duration 20ms --json"));
        assert_eq!(
            [&report["connections"], &report["window"], &report["requests_a_segment"]],
            [connections, window, segment]
        );
        let designs = report["placements"][0]["designs"].as_array().expect("there is a placement");
        assert_eq!(designs.len(), 4);
        for design in designs {
            is_positive(&design["requests_per_second"]["median"], "rate");
            is_positive(&design["median_ns"]["median"], "latency");
            // How many depends on how long a busy machine lets segments wait: they are counted in the room's own tests.
            is_positive(&design["segments_a_request"], "segments");
        }
    }
    for wrong in ["--connections 0", "--connections 4097", "--window 0", "--window 513", "--requests-a-segment 23"] {
        let report = json(&format!("bench tcp-rpc {wrong} --json"), 1);
        assert!(report["error"].as_str().is_some_and(|error| error.contains(&wrong[..6])), "{report}");
    }
}

#[test]
fn a_function_is_called_with_one_size_or_with_all() {
    let Some(_alone) = can_measure() else { return };
    for (function, bytes, response) in [("echo", 56, 56), ("bloom", 1000, 512), ("checksum", 65_536, 2)] {
        let report = measured(&format!("invoke --function {function} --bytes {bytes} --duration 5ms --json"));
        assert_eq!([&report["function"], &report["device"]], [function, "played by a core"]);
        assert_eq!(report["wrong"], 0);
        let size = &report["placements"][0]["sizes"][0];
        assert_eq!([&size["bytes"], &size["response_bytes"]], [bytes, response]);
        for key in ["calls", "calls_per_second", "bytes_per_second", "here_ns"] {
            is_positive(&size[key], key);
        }
        for key in ["min", "p50", "p90", "p99", "p999", "max"] {
            is_positive(&size["latency_ns"][key], key);
        }
    }
    let report = measured("invoke --duration 1ms --json");
    let sizes = report["placements"][0]["sizes"].as_array().expect("sizes");
    assert_eq!(sizes.len(), 11);
    assert_eq!(
        [&sizes[0]["lines_each_way"], &sizes[10]["lines_each_way"]],
        [&Value::from(vec![1, 1]), &Value::from(vec![1025, 1025])]
    );
    for (arguments, reason) in [("invoke --bytes 0 --json", "65536"), ("invoke --function sort --json", "checksum")] {
        let refusal = json(arguments, 1);
        assert!(refusal["error"].as_str().is_some_and(|message| message.contains(reason)), "{refusal}");
    }
}

#[test]
fn operators_on_a_device_stand_beside_the_softwares() {
    let Some(_alone) = can_measure() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("dataflow.svg");
    let report = measured(&format!("dataflow --duration 10ms --json --svg {}", svg.display()));
    assert_eq!(report["wrong"], 0);
    is_positive(&report["one_line_round_trip_ns"], "one_line_round_trip_ns");
    assert!(report["crossing_ns"].is_number() && report["exchange_ns"].is_number());
    let graphs = report["placements"][0]["graphs"].as_array().expect("graphs");
    for (graph, name, sizes, ways) in [(&graphs[0], "filters", 7, 7), (&graphs[1], "bloom", 5, 4)] {
        assert_eq!(graph["graph"], name);
        let rows = graph["sizes"].as_array().expect("sizes");
        assert_eq!(rows.len(), sizes);
        for row in rows {
            let cells = row["ways"].as_array().expect("ways");
            assert_eq!(cells.len(), ways);
            for cell in cells {
                is_positive(&cell["batches"], "batches");
                is_positive(&cell["batch_ns"]["p50"], "p50");
            }
        }
    }
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    assert!(picture.starts_with("<svg") && !picture.contains("NaN"));
}

/// The processes of this machine whose command line names a folder.
fn processes_at(folder: &Path) -> Vec<String> {
    let name = folder.to_str().expect("a name of letters");
    let processes = std::fs::read_dir("/proc").expect("a process has a folder").flatten();
    let lines = processes.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(name)).collect()
}

#[test]
fn a_signal_that_ends_a_measurement_leaves_no_folder_and_no_process() {
    let Some(_alone) = can_measure() else { return };
    for measurement in ["daemon", "service"] {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["bench", measurement, "--duration", "60s"]).env("TMPDIR", folder.path());
        let mut running = command.spawn().expect("conic runs");
        let sockets = || {
            let entries = std::fs::read_dir(folder.path()).expect("it is there").flatten();
            entries.filter(|entry| entry.path().join("nic.sock").exists()).count()
        };
        let mut patience = 2000;
        while sockets() == 0 {
            patience -= 1;
            assert!(patience > 0, "bench {measurement} starts no NIC");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!processes_at(folder.path()).is_empty(), "bench {measurement} starts a NIC");
        let number = rustix::process::Pid::from_child(&running);
        rustix::process::kill_process(number, rustix::process::Signal::INT).expect("it runs");
        assert_eq!(running.wait().expect("it ends").code(), Some(130), "bench {measurement}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).expect("it is there").flatten().collect();
        assert!(left.is_empty(), "bench {measurement} leaves {left:?}");
        assert_eq!(processes_at(folder.path()), [""; 0], "bench {measurement}");
    }
}

#[test]
fn whoever_closes_the_pipe_before_the_report_finds_no_folder_and_no_process() {
    let Some(_alone) = can_measure() else { return };
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["bench", "daemon", "--duration", "150ms"]).env("TMPDIR", folder.path()).stdout(writer);
    let output = command.output().expect("conic runs");
    assert_eq!(output.status.code(), Some(141), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "it leaves {left:?}");
    assert_eq!(processes_at(folder.path()), [""; 0]);
}

#[test]
fn a_signal_while_the_peers_are_compiled_leaves_no_half_of_them() {
    let place = tempfile::tempdir().expect("there is room for a folder");
    let (tools, cache) = (place.path().join("tools"), place.path().join("cache"));
    std::fs::create_dir(&tools).expect("a folder");
    // A compiler that works for as long as its sources are there.
    let compiler = "if [ \"$1\" = --version ]; then echo 1; else while [ -e loopback.c ]; do sleep 0.02; done; fi";
    for (name, text) in [("pkg-config", "echo -lnothing"), ("cc", compiler)] {
        let tool = tools.join(name);
        std::fs::write(&tool, format!("#!/bin/sh\n{text}\n")).expect("a file");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["bench", "peers"]).env("PATH", path).env("XDG_CACHE_HOME", &cache).env_remove("CC");
    let mut running = command.spawn().expect("conic runs");
    let kept = || std::fs::read_dir(cache.join("conic")).map_or(0, |entries| entries.flatten().count());
    let mut patience = 2000;
    while kept() == 0 {
        patience -= 1;
        assert!(patience > 0, "nothing is compiled");
        std::thread::sleep(Duration::from_millis(10));
    }
    let number = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(number, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(running.wait().expect("it ends").code(), Some(130));
    assert_eq!(kept(), 0, "half a program is left");
}

#[test]
fn huge_pages_that_are_not_there_are_missed_aloud() {
    let Some(_alone) = can_measure() else { return };
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    if free.trim().parse().is_ok_and(|free: u64| free > 0) {
        return skipped("this machine has huge pages free");
    }
    for (more, notes) in [("", 0), (" --huge-pages", 1)] {
        let output = conic(&format!("bench loopback --duration 100ms --json{more}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches("sudo sysctl vm.nr_hugepages=").count(), notes, "{said}");
        assert!(output.status.success(), "{said}");
    }
}

#[test]
fn no_more_packets_are_said_to_be_in_flight_than_rings_hold() {
    let Some(_alone) = can_measure() else { return };
    for (window, in_flight) in [(128, 128), (129, 128), (1 << 20, 128)] {
        let output = conic(&format!("bench loopback --descriptors 64 --window {window} --duration 20ms --json"));
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["window"], in_flight);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains(&format!("up to 128 packets in flight, and not {window}")), window > 128, "{said}");
    }
    let output = conic("bench loopback --interface pio --window 5 --duration 20ms --json");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["window"], 4);
    assert!(String::from_utf8_lossy(&output.stderr).contains("up to 4 packets in flight, and not 5"));
    let folder = tempfile::tempdir().expect("a folder");
    for (more, last) in [("--descriptors 4", 8), ("--interface pio", 4)] {
        let svg = folder.path().join("curve.svg");
        let report = measured(&format!("bench loopback --sweep {more} --duration 20ms --json --svg {}", svg.display()));
        let points = report["curves"][0]["points"].as_array().expect("points");
        assert_eq!(points.last().expect("there are some")["window"], last, "{more}");
        assert_eq!([&report["lost"], &report["corrupt"]], [0, 0]);
    }
}

#[test]
fn a_nic_from_which_nothing_comes_back_is_said_to_be_so_at_once() {
    let Some(_alone) = can_measure() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["nic", "--mode", "bridge", "--socket"]).arg(&socket).stdout(std::process::Stdio::null());
    let mut nic = command.spawn().expect("conic runs");
    let mut patience = 2000;
    while !socket.exists() && patience > 0 {
        patience -= 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    // A day of slices, each of which would wait for its packets.
    let report = conic(&format!("bench daemon --nic {} --duration 24h --json", socket.display()));
    nic.kill().and_then(|()| nic.wait()).expect("it runs");
    let report: Value = serde_json::from_slice(&report.stdout).expect("one JSON object");
    assert!(report["error"].as_str().is_some_and(|error| error.contains("loopback")), "{report}");
}
