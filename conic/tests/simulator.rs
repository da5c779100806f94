//! The simulator's commands as a program: what they print for programs, and how they refuse.

mod common;

use std::collections::BTreeMap;

use conic_check::skipped;
use serde_json::Value;

use common::{conic, is_positive, json};

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

#[test]
fn sim_answers_as_loopback_does() {
    for (arguments, interface) in [
        ("--threads 2", "ccnic"),
        ("--interface ring --rate 0.5", "ring"),
        ("--interface pcie --platform icx-e810", "pcie"),
    ] {
        let report = json(&format!("sim {arguments} --packets 400 --window 16 --json"), 0);
        assert_eq!(report["interface"], interface);
        assert_eq!(report["features"].is_string(), interface == "ccnic");
        assert_eq!([&report["packet_size"], &report["window"], &report["burst"]], [64, 16, 32]);
        assert_eq!([&report["lost"], &report["corrupt"]], [0, 0]);
        is_positive(&report["mpps"], "mpps");
        is_positive(&report["gbps"], "gbps");
        for key in ["min", "p50", "p99", "p999"] {
            is_positive(&report["latency_ns"][key], key);
        }
        is_positive(&report["link_bytes_per_packet"][0], "link_bytes_per_packet");
        is_positive(&report["platform"]["guesses"], "guesses");
    }
}

#[test]
fn queues_are_shown_of_every_part_of_the_machine_and_littles_law_holds_for_each() {
    for (arguments, kind, of) in [
        ("--platform icx --threads 2", "request credits", "host to NIC"),
        ("--platform icx-cx6 --interface pcie", "read tags", "PCIe link"),
    ] {
        let arguments = format!("sim {arguments} --packets 400 --window 16 --json");
        let (plain, report) = (json(&arguments, 0), json(&format!("{arguments} --queues"), 0));
        assert!(plain["probes"].is_null());
        assert_eq!([&plain["mpps"], &plain["latency_ns"]], [&report["mpps"], &report["latency_ns"]]);
        let queues = report["probes"]["queues"].as_array().expect("a list of queues");
        assert!(queues.iter().all(|queue| queue["littles_law_holds"] == true), "{arguments}");
        let named = |kind: &str, of: &str| queues.iter().find(|queue| queue["queue"] == kind && queue["of"] == of);
        for queue in [named(kind, of), named("line fill buffers", "host core 0")] {
            let queue = queue.unwrap_or_else(|| panic!("{arguments} shows {kind} of {of}"));
            is_positive(&queue["mean_occupancy"], "mean_occupancy");
            is_positive(&queue["arrivals"], "arrivals");
            is_positive(&queue["mean_time_ns"], "mean_time_ns");
            assert!(queue["most"].as_u64() <= queue["limit"].as_u64(), "{queue}");
        }
        let agents = report["probes"]["counters"]["agents"].as_array().expect("a list of agents");
        assert_eq!(agents[0]["name"], "host core 0");
        is_positive(&agents[0]["loads"], "loads");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures_and_an_override_others() {
    let ask = |more: &str| json(&format!("sim --packets 400 --window 8 --json {more}"), 0);
    let (first, second, far) = (ask(""), ask(""), ask("--set interconnect.crossing=100ns"));
    assert_eq!(first, second);
    let latency = |report: &Value| report["latency_ns"]["p50"].as_f64().unwrap_or_default();
    assert!(latency(&far) > latency(&first) + 100.0, "{far}");
    assert_eq!(far["platform"]["overrides"][0], "interconnect.crossing=100ns");
}

#[test]
fn a_sweep_has_a_point_for_each_window_and_a_chart() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("curve.svg");
    let report = json(&format!("sim --sweep --packets 200 --svg {} --json", svg.display()), 0);
    assert_eq!(report["points"].as_array().map(Vec::len), Some(11));
    assert_eq!(report["points"][10]["window"], 1024);
    assert!(std::fs::read_to_string(&svg).expect("the chart").starts_with("<svg "));
}

#[test]
fn questions_that_cannot_be_are_refused_with_what_to_do() {
    for (arguments, says) in [
        ("sim --platform nowhere", "there is no such platform"),
        ("sim --set interconnect.crossng=1ns", "did you mean interconnect.crossing"),
        ("sim --threads 57", "56 threads"),
        ("sim --threads 29 --same-socket", "28 threads"),
        ("sim --threads 0", "56 threads"),
        ("sim --interface pcie", "icx-e810"),
        ("sim --interface ring --features paper", "leave them out"),
        ("sim --interface pcie --platform icx-cx6 --same-socket", "behind its link"),
        ("sim --rate 0", "0.001 to 10000"),
        ("sim --features quick", "there is no feature"),
        ("sim --platform agilex7", "conic sim cxl asks a machine of its model"),
        ("sim --platform enzian", "conic sim pio asks a machine of its model"),
        ("sim --window 1 cxl", "cannot be used with"),
        ("trace --interface pcie", "icx-e810"),
        ("trace --number 33", "33"),
        ("trace --platform enzian", "conic trace call, receive or transmit --platform enzian"),
        ("trace call --platform spr", "enzian, cxl3-mem"),
        ("trace call --platform spr", "conic trace without a subcommand follows packets on it"),
        ("trace receive --platform bf3", "enzian, cxl3-mem"),
        ("trace transmit --platform nowhere", "there is no such platform"),
        ("trace call --set link.crosing=1ns", "did you mean link.crossing"),
        ("trace call --bytes 0", "from 1 to 65536"),
        ("trace call --interface ring", "unexpected argument '--interface'"),
        ("trace receive --packet-size 59", "from 60 to 9600"),
        ("trace receive --after 11ms", "from 1us to 10ms"),
        ("trace --burst 2 call", "cannot be used with"),
        ("trace --platform agilex7 --features paper", "--features is of machines with two sockets"),
        ("trace --platform bf3 --interface ccnic", "conic trace cxl --platform bf3"),
        ("trace cxl --platform spr", "agilex7, bf3"),
        ("trace cxl --platform nowhere", "there is no such platform"),
        ("trace cxl --platform bf3 --design 3", "leave --design out"),
        ("trace cxl --design 8", "layout-1 to layout-4"),
        ("trace cxl --choose polling=CO", "polling for it"),
        ("trace cxl --choose transmit-packet=NC-P", "one of NC; CS; CO"),
        ("trace cxl --choose receive-batch=26", "give 1 to 25"),
        ("trace cxl --choose NC", "give a choice as in"),
        ("trace cxl --design dma --choose transmit-packet=CS", "the receive batch and the transmit batch"),
        ("trace cxl --set dcoh.cicle=1ns", "did you mean dcoh.cycle"),
        ("trace cxl --number 33", "33"),
    ] {
        let error = json(&format!("{arguments} --json"), 1)["error"].to_string();
        assert!(error.contains(says), "{arguments}: {error}");
    }
}

#[test]
fn a_trace_over_pcie_follows_a_doorbell_and_a_read_over_every_hop() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path().display();
    // A packet of 512 bytes is read at once and answered by two completions.
    let asked = "trace --platform icx-cx6 --interface pcie --packet-size 512";
    let report = json(&format!("{asked} -o {at} --json"), 0);
    let messages = report["messages"].as_array().expect("a list of messages");
    let is =
        |message: &Value, hop: [&str; 3]| ["name", "from", "to"].iter().zip(hop).all(|(key, is)| message[*key] == is);
    for (hop, cause) in [
        (["RegisterWrite", "root port", "NIC"], ["RegisterWrite", "host core 0", "root port"]),
        (["ReadCurrent", "root port", "host home"], ["MemoryReadTlp", "NIC", "root port"]),
        (["CompletionTlp", "root port", "NIC"], ["LineData", "host home", "root port"]),
        (["WriteCache", "root port", "host home"], ["MemoryWriteTlp", "NIC", "root port"]),
    ] {
        let found: Vec<&Value> = messages.iter().filter(|message| is(message, hop)).collect();
        assert!(!found.is_empty(), "{hop:?} is not in the trace");
        for message in found {
            let place = message["cause"].as_u64().unwrap_or_else(|| panic!("{message} has no cause")) as usize;
            assert!(is(&messages[place], cause), "{message} is caused by {}", messages[place]);
        }
    }
    let number = |name: &str| messages.iter().filter(|message| message["name"] == name).count();
    // 8 lines of payload and one of descriptors; read requests of up to 512 bytes, completions of up to 256.
    assert_eq!((number("LineData"), number("MemoryReadTlp"), number("CompletionTlp")), (9, 2, 3));
    let diagram = std::fs::read_to_string(folder.path().join("packet.svg")).expect("the diagram");
    assert!(diagram.contains("LineData") && diagram.contains("root port"));
}

#[test]
fn a_trace_holds_every_message_of_a_packet_under_its_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().display();
    for interface in ["ccnic", "ring"] {
        let report = json(&format!("trace --interface {interface} -o {at} --json"), 0);
        let messages = report["messages"].as_array().expect("messages");
        assert!(messages.len() > 20, "{interface}: {}", messages.len());
        for (number, message) in messages.iter().enumerate() {
            if let Some(cause) = message["cause"].as_u64() {
                let cause = &messages[usize::try_from(cause).expect("a place in the list")];
                assert!(message["sent_ns"].as_f64() >= cause["arrives_ns"].as_f64(), "{interface}: {number}");
                let is_answered_there = message["from"] == cause["to"];
                assert_eq!(is_answered_there, !comes_from_elsewhere(message), "{interface}: {message} after {cause}");
            }
        }
        is_positive(&report["round_trip_ns"], "round_trip_ns");
        let svg = std::fs::read_to_string(folder.path().join("packet.svg")).expect("the diagram");
        assert!(svg.starts_with("<svg ") && svg.contains("ReadForOwnership"));
        assert!(!std::fs::read(folder.path().join("packet.pftrace")).expect("the trace").is_empty());
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// What `conic trace` followed over line pairs.
struct Exchange(Value, tempfile::TempDir);

impl Exchange {
    fn of(arguments: &str) -> Exchange {
        let folder = tempfile::tempdir().expect("a folder");
        let report = json(&format!("trace {arguments} -o {} --json", folder.path().display()), 0);
        Exchange(report, folder)
    }

    /// Messages on a hop, by name and line, in the order of names.
    fn on(&self, from: &str, to: &str) -> Vec<(&str, &str)> {
        let messages = self.0["messages"].as_array().expect("messages").iter();
        let on = messages.filter(|message| message["from"] == from && message["to"] == to);
        let mut found: Vec<(&str, &str)> = on.map(|one| (text(&one["name"]), text(&one["line"]))).collect();
        found.sort_unstable();
        found
    }

    /// How many of each cross the link.
    fn crossing(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (name, _) in self.on("L2", "directory").into_iter().chain(self.on("directory", "L2")) {
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Who owned a line, one after the other.
    fn owners(&self, line: &str) -> Vec<&str> {
        let owners = self.0["owners"].as_array().expect("owners").iter();
        owners.filter(|one| one["line"] == line).map(|one| text(&one["owners"])).collect()
    }

    /// That each message goes on from hop to hop, once, and begins when its cause is there.
    fn is_whole(&self) {
        assert_eq!(self.on("L2", "directory"), self.on("directory", "device"));
        assert_eq!(self.on("device", "directory"), self.on("directory", "L2"));
        let messages = self.0["messages"].as_array().expect("messages");
        for message in messages {
            let asks = message["from"] == "core 0";
            assert_eq!(message["cause"].is_null(), asks, "{message}");
            if let Some(cause) = message["cause"].as_u64() {
                let cause = &messages[usize::try_from(cause).expect("a place in the list")];
                assert_eq!(cause["to"], message["from"], "{message} after {cause}");
                assert!(message["sent_ns"].as_f64() >= cause["arrives_ns"].as_f64(), "{message} after {cause}");
            }
        }
        is_positive(&self.0["took_ns"], "took_ns");
        let what = text(&self.0["what"]);
        let read = |extension| std::fs::read(self.1.path().join(format!("{what}.{extension}"))).expect("it is written");
        let svg = String::from_utf8(read("svg")).expect("text");
        assert!(svg.starts_with("<svg ") && svg.contains("directory") && svg.contains("@L2"));
        assert!(!read("pftrace").is_empty());
    }
}

#[test]
fn a_trace_of_a_call_is_two_round_trips_a_line_and_a_shared_return_one_more() {
    let exclusive = ["GrantExclusive", "ReadShared", "Recall", "RecalledModified"];
    for (bytes, lines) in [(64, 1), (1_000, 8)] {
        let call = Exchange::of(&format!("call --bytes {bytes}"));
        call.is_whole();
        assert_eq!(call.crossing(), exclusive.map(|name| (name, lines)).into());
        let shared = Exchange::of(&format!("call --bytes {bytes} --returns shared"));
        shared.is_whole();
        let mut more: BTreeMap<&str, usize> = exclusive.map(|name| (name, lines)).into();
        more.extend([("Upgrade", lines), ("GrantShared", lines)]);
        assert_eq!(shared.crossing(), more);
        let [less, more] = [&call, &shared].map(|one| one.0["took_ns"].as_f64().expect("a time"));
        assert!(more > less + 300.0, "an upgrade's round trip: {less} and {more}");
    }
}

#[test]
fn the_owners_of_a_traced_pair_change_as_the_paper_says() {
    // The line that is written is the cache's to write; it is the device's when it was recalled, and the other one is the cache's.
    let call = Exchange::of("call");
    assert_eq!((&call.0["function"], &call.0["bytes"]), (&"echo".into(), &64.into()));
    let (written, loaded) = ("group 0 control 0", "group 1 control 0");
    assert_eq!(call.owners(written), ["E@L2", "M@L2", "I", "L@device", "E@device"]);
    assert_eq!(call.owners(loaded), ["E@device", "I", "E@L2"]);
    let shared = Exchange::of("call --returns shared");
    assert_eq!(shared.owners(written), ["S@L2+device", "S@L2", "M@L2", "I", "L@device", "E@device"]);
    assert_eq!(shared.owners(loaded), ["E@device", "S@device", "S@L2+device"]);
    // Over CXL a changed line goes home before the recall is answered.
    let written_back = Exchange::of("call --bytes 56 --platform cxl3-mem");
    written_back.is_whole();
    let names = ["GrantExclusive", "ReadShared", "Recall", "RecalledNothing", "VictimModified", "Written"];
    assert_eq!(written_back.crossing(), names.map(|name| (name, 1)).into());
    assert_eq!(written_back.owners(written), ["E@L2", "M@L2", "I", "E@device", "L@device", "E@device"]);
}

#[test]
fn a_trace_of_a_frame_takes_its_overflow_lines_along() {
    // A control line holds 64 bytes of a frame, and two overflow lines the other 136.
    let received = Exchange::of("receive --packet-size 200");
    received.is_whole();
    let all = ["GrantExclusive", "ReadShared", "Recall", "RecalledClean"];
    assert_eq!(received.crossing(), all.map(|name| (name, 3)).into());
    let transmitted = Exchange::of("transmit --packet-size 200");
    transmitted.is_whole();
    let expected =
        [("GrantExclusive", 3), ("ReadExclusive", 2), ("ReadShared", 1), ("Recall", 3), ("RecalledModified", 3)];
    assert_eq!(transmitted.crossing(), expected.into());
    // The next frame's control line is the one that came back: to read, where the NIC returns it so.
    let shared = Exchange::of("transmit --returns shared");
    let expected = ["GrantExclusive", "GrantShared", "ReadShared", "Recall", "RecalledModified", "Upgrade"];
    assert_eq!(shared.crossing(), expected.map(|name| (name, 1)).into());
    // One that comes 50 us after the CPU has begun to ask finds the load at the device, with the last one's lines taken back.
    let late = Exchange::of("receive --after 50us");
    late.is_whole();
    assert_eq!(late.crossing(), all.map(|name| (name, 1)).into());
    let messages = late.0["messages"].as_array().expect("messages");
    let sent = |name| messages.iter().find(|one| one["name"] == name).and_then(|one| one["sent_ns"].as_f64());
    assert!(sent("RecalledClean") < Some(1_000.0) && sent("GrantExclusive") > Some(50_000.0));
    let took = |one: &Exchange| one.0["took_ns"].as_f64().expect("a time");
    assert!(took(&late) + 300.0 < took(&Exchange::of("receive")), "the recall is done before: {}", took(&late));
}

/// Memory answers home agents, and the other node tells that it has a reply, without a message that asks them to.
fn comes_from_elsewhere(message: &Value) -> bool {
    message["name"] == "MemoryData" || message["name"] == "Complete"
}

#[test]
fn this_machine_is_measured_and_predicted() {
    if conic_native::cores().len() < 2 {
        assert!(json("study native --json", 1)["error"].is_string());
        skipped("this process may use one core only");
        return;
    }
    let report = json("study native --quick --rounds 1 --json", 0);
    let place = &report["placements"][0];
    // Three round trips, lines taken in six ways, and three streams.
    assert_eq!(place["calibration"].as_array().map(Vec::len), Some(3 + 6 + 3));
    let load = &place["calibration"][3];
    // What is solved for comes out, whatever was measured.
    assert!(load["error"].as_f64().is_some_and(|error| error.abs() < 0.05), "{load}");
    // Four variants of CC-NIC and the ring, two sizes of packets, two of bursts.
    let work = place["work"].as_array().expect("work");
    assert_eq!(work.len(), 5 * 2 * 2);
    for one in work {
        is_positive(&one["host_ns"]["measured"], "measured");
        is_positive(&one["nic_ns"]["measured"], "measured");
    }
    for row in place["loopbacks"].as_array().expect("loopbacks") {
        is_positive(&row["mpps"]["predicted"], "predicted");
        is_positive(&row["p50_ns"]["predicted"], "predicted");
    }
    assert!(report["median_error"].is_number() && report["lacks"].is_array());
}

#[test]
fn sim_has_the_switches_beyond_the_paper() {
    let sim = |arguments: &str| json(&format!("sim {arguments} --packets 300 --json"), 0);
    assert!(sim("--window 1")["beyond"].is_null(), "nothing is switched on");
    let latency = |arguments: &str| {
        let report = sim(arguments);
        assert_eq!([&report["lost"], &report["corrupt"]], [0, 0]);
        report["latency_ns"]["p50"].as_f64().expect("a latency")
    };
    let polled = latency("--window 1 --queue-pairs 200");
    assert!(polled > 1.5 * latency("--window 1 --queue-pairs 200 --attention snoops"));
    let header = sim("--window 1 --forward header --packet-size 4096");
    assert_eq!(header["beyond"]["forward"], "header");
    let whole = sim("--window 1 --forward whole --packet-size 4096");
    let bytes = |report: &Value| report["link_bytes_per_packet"][0].as_f64().expect("bytes");
    assert!(bytes(&header) * 10.0 < bytes(&whole), "{} {}", bytes(&header), bytes(&whole));
    let engine = latency("--window 1 --copy --engine both");
    let bare = sim("--window 1 --bare-buffers");
    assert_eq!(bare["beyond"]["bare_buffers"], true);
    assert!(bare["operations"].as_u64() < sim("--window 1")["operations"].as_u64(), "nobody touches metadata");
    assert!(engine > latency("--window 1 --copy") + 600.0, "three start-up times of 200 ns");
}

#[test]
fn switches_that_do_nothing_are_refused() {
    for (arguments, says) in [
        ("--attention snoops", "--queue-pairs"),
        ("--forward header --copy", "--copy"),
        ("--engine host", "does not copy"),
        ("--copy --engine host --platform icx", "icx has no copy engines"),
        ("--interface ring --engine nic", "CC-NIC alone"),
        ("--interface pcie --platform icx-cx6 --queue-pairs 4", "the chip serves all queue pairs"),
        ("--queue-pairs 1 --threads 2", "queue pair"),
        ("--interface ring --bare-buffers", "CC-NIC alone"),
        ("--interface pcie --platform icx-cx6 --bare-buffers", "CC-NIC alone"),
    ] {
        let error = json(&format!("sim {arguments} --json"), 1)["error"].to_string();
        assert!(error.contains(says), "{arguments}: {error}");
    }
}

/// Each of these would compute for minutes or for hours before it writes.
#[test]
fn an_output_that_cannot_be_written_is_found_before_the_work() {
    let points = tempfile::tempdir().expect("there is room for a folder");
    let ccnic = format!("study ccnic --points {} --output /proc/none", points.path().display());
    for (arguments, option) in [
        ("sim --sweep --packets 1000000000 --svg /proc/none/curve.svg", "--svg"),
        ("study cxl-nic --output /proc/none", "--output"),
        ("study coherent-pio --output /proc/none", "--output"),
        (&ccnic, "--output"),
        ("study ccnic --points /proc/none --output /proc/none", "--output"),
        ("trace --packet-size 9600 --burst 32 --output /proc/none", "--output"),
        ("trace cxl --packet-size 9600 --burst 32 --output /proc/none", "--output"),
        ("dataflow --device simulated --duration 1h --svg /proc/none/curve.svg", "--svg"),
        ("bench --svg /proc/none/curve.svg", "--svg"),
        ("bench loopback --sweep --duration 1h --svg /proc/none/curve.svg", "--svg"),
    ] {
        let error = json(&format!("{arguments} --json"), 1)["error"].to_string();
        assert!(error.contains("/proc/none") && error.contains(&format!("with {option}")), "{arguments}: {error}");
    }
}

#[test]
fn a_working_set_and_a_write_back_are_asked_of_pushes_under_pressure() {
    for option in ["--working-set", "--write-back"] {
        let error = json(&format!("study cxl-nic 4 {option} 1 --json"), 1)["error"].to_string();
        assert!(error.contains(&format!("{option} goes with pressure")), "{error}");
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let study = |options: &str| {
        let output = folder.path().display();
        let asked = "study cxl-nic pressure --quick --working-set 0.5 --json";
        let said = conic(&format!("{asked} {options} --output {output}"));
        let rows: Value = serde_json::from_slice(&said.stdout).expect("nothing but JSON is on stdout");
        let is_it = |row: &&Value| row["id"] == "cxl.unpublished.pressure_median";
        let row = rows.as_array().and_then(|rows| rows.iter().find(is_it)).expect("it is among the results");
        row["predicted"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect::<Vec<f64>>()
    };
    // By NC-write, NC-P, the same gated, and written back: somewhat after the host reads the packet, then before.
    let [written, pushed, gated, late] = study("")[..] else { panic!("four ways") };
    assert!(
        pushed < 0.5 * written && gated == pushed && late < 1.1 * pushed,
        "{written}, {pushed}, {gated}, {late} ns"
    );
    let early = study("--write-back 1000")[3];
    assert!(early >= written, "{early} ns");
    let plots = ["pressure", "pressure-p99", "pressure-evicted", "pressure-neighbours", "pressure-waiting"];
    for name in plots.into_iter().chain(["pressure-write-back", "pressure-write-back-neighbours"]) {
        assert!(folder.path().join(format!("{name}.svg")).exists(), "{name}");
    }
}

#[test]
fn no_more_packets_are_asked_for_than_rings_hold() {
    let error = json("sim --window 2049 --json", 1)["error"].to_string();
    assert!(error.contains("a whole number from 1 to 2048 is wanted"), "{error}");
}

/// What `conic trace` followed through a NIC behind CXL or PCIe.
fn followed(arguments: &str) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let report = json(&format!("trace {arguments} -o {} --json", folder.path().display()), 0);
    let messages = report["messages"].as_array().expect("messages");
    for message in messages {
        if let Some(cause) = message["cause"].as_u64() {
            let cause = &messages[usize::try_from(cause).expect("a place in the list")];
            assert!(message["sent_ns"].as_f64() >= cause["arrives_ns"].as_f64(), "{message} after {cause}");
        }
    }
    let sum = |list: &str, key: &str| -> f64 {
        let all = report[list].as_array().expect("a list").iter();
        all.map(|one| one[key].as_f64().unwrap_or_else(|| panic!("{one} has a number"))).sum()
    };
    let round_trip = report["round_trip_ns"].as_f64().expect("a time");
    assert!((sum("parts", "ns") - round_trip).abs() < 1e-3, "{}", report["parts"]);
    assert_eq!(sum("counts", "count"), messages.len() as f64, "{arguments}");
    let read =
        |extension: &str| std::fs::read(folder.path().join(format!("packet.{extension}"))).expect("it is written");
    let svg = String::from_utf8(read("svg")).expect("text");
    assert!(svg.starts_with("<svg ") && svg.contains("host home") && svg.contains("@core 0"));
    assert!(!read("pftrace").is_empty());
    report
}

/// How many of each kind cross the link about lines of a segment, `DCOH` being the device's end.
fn crossing<'a>(report: &'a Value, segment: &str) -> BTreeMap<&'a str, usize> {
    let messages = report["messages"].as_array().expect("messages").iter();
    let of_segment = messages.filter(|one| text(&one["line"]).starts_with(segment));
    let ways = [("DCOH", "host home"), ("host home", "DCOH")];
    let crossing = of_segment.filter(|one| ways.contains(&(text(&one["from"]), text(&one["to"]))));
    let mut counts = BTreeMap::new();
    crossing.for_each(|one| *counts.entry(text(&one["name"])).or_default() += 1);
    counts
}

#[test]
fn a_trace_over_cxl_has_the_messages_of_each_request_type_and_placement() {
    let once = |names: &[&'static str]| names.iter().map(|name| (*name, 1)).collect::<BTreeMap<&str, usize>>();
    let written = once(&["WOWrInvF", "ExtFastGO_WritePull", "Data", "ExtCmp"]);
    let combination = followed("cxl");
    assert_eq!(crossing(&combination, "receive buffers"), written);
    assert_eq!(crossing(&combination, "transmit buffers"), BTreeMap::from([("RdCurr", 1), ("Data", 1)]));
    // The completion. Descriptors are read ahead as soon as the host has posted them, 32 at a time: none because of this packet.
    assert_eq!(crossing(&combination, "receive ring"), written);
    assert_eq!(combination["design"]["receive packet"], "NC");
    // The same by what a user types first.
    let plain = followed("--platform agilex7");
    assert_eq!((&plain["messages"], &plain["parts"]), (&combination["messages"], &combination["parts"]));
    // A packet that the device owns is fetched from it by the core.
    let owned = followed("cxl --design 4");
    let expected = once(&["RdOwnNoData", "GO-E", "SnpData", "RspSFwdM, Data"]);
    assert_eq!(crossing(&owned, "receive buffers"), expected);
    let shared = followed("cxl --choose transmit-packet=CS");
    assert_eq!(crossing(&shared, "transmit buffers"), once(&["RdShared", "GO-S, Data", "SnpInv", "RspI"]));
    assert_eq!(shared["design"]["transmit packet"], "CS");
    // Pushed packets, and stores into the device's memory that it reads without asking.
    let optimal = followed("cxl --design optimal");
    assert_eq!(crossing(&optimal, "receive buffers"), once(&["ItoMWr", "GO_WritePull", "Data"]));
    assert_eq!(crossing(&optimal, "transmit buffers"), once(&["MemWr", "Cmp"]));
    let owners = optimal["owners"].as_array().expect("owners").iter();
    let of_buffer: Vec<&str> = owners
        .filter(|one| text(&one["line"]).starts_with("receive buffers"))
        .map(|one| text(&one["owners"]))
        .collect();
    assert_eq!(of_buffer, ["M@core 0", "I", "M@last-level cache", "M@core 0"]);
}

#[test]
fn a_trace_of_a_burst_is_that_of_all_its_packets_and_one_over_pcie_has_dma_and_a_doorbell() {
    let burst = followed("cxl --burst 4 --packet-size 100 --choose receive-batch=4 --choose transmit-batch=4");
    let count = |report: &Value, segment: &str, name: &str| crossing(report, segment).get(name).copied().unwrap_or(0);
    // Two lines a packet, of which the second is written in part. The first packet is due before the others, and waits for none of them.
    assert_eq!([count(&burst, "receive buffers", "WOWrInvF"), count(&burst, "receive buffers", "WOWrInv")], [4, 4]);
    assert_eq!(count(&burst, "receive ring", "WOWrInvF"), 2);
    assert_eq!(count(&burst, "transmit buffers", "RdCurr"), 8);
    let pcie = followed("--platform bf3");
    let counts = pcie["counts"].as_array().expect("counts").iter();
    let of = |name: &str| -> u64 {
        let named = counts.clone().filter(|one| one["name"] == name);
        named.map(|one| one["count"].as_u64().expect("a number")).sum()
    };
    // The packet and its completion; a descriptor to transmit, and its packet; the doorbell over two hops.
    assert_eq!(["MWr", "MRd", "CplD", "MMIO write", "WriteCache"].map(of), [2, 2, 2, 2, 2]);
}
