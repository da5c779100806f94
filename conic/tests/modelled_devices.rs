//! `conic sim cxl` and `conic sim pio` as programs: what they answer is what the studies find and what a trace shows.

mod common;

use std::collections::BTreeMap;

use serde_json::Value;

use common::{conic, is_positive, json};

/// The rows of a study, with what it is asked for; its files go into a folder of the test's.
fn study(arguments: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let output = conic(&format!("study {arguments} --json --output {}", folder.path().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("nothing but JSON is on stdout")
}

fn predicted<'a>(rows: &'a [Value], id: &str) -> &'a Value {
    &rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id} is among the results"))["predicted"]
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a number"))
}

#[test]
fn combination_0_has_the_latency_that_figure_10_has() {
    let rows = study("cxl-nic 10 --quick");
    let asked = |arguments: &str| json(&format!("sim cxl {arguments} --seed 0 --packets 100 --json"), 0);
    let (cxl, pcie) = (asked("--design 0"), asked("--platform bf3"));
    // To the picosecond.
    assert_eq!(&cxl["latency_ns"]["p50"], predicted(&rows, "cxl.unpublished.loopback_64"));
    assert_eq!(&pcie["latency_ns"]["p50"], predicted(&rows, "cxl.unpublished.loopback_64_pcie"));
    let less = |key: &str| 1.0 - number(&cxl["latency_ns"][key]) / number(&pcie["latency_ns"][key]);
    for (key, id) in [("p50", "cxl.fig10.median_64"), ("p99", "cxl.fig10.p99_64")] {
        assert!((less(key) - number(predicted(&rows, id))).abs() < 1e-9, "{id}: {}", less(key));
    }
    assert_eq!(cxl["packets"], 100);
}

/// Messages of each kind between host and device: a packet's in the loopback of `conic sim cxl`, and those that `conic trace cxl` shows of one.
fn messages(arguments: &str) -> [BTreeMap<String, f64>; 2] {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let simulated = json(&format!("sim cxl {arguments} --packets 64 --json"), 0);
    let traced = json(&format!("trace cxl {arguments} -o {} --json", folder.path().display()), 0);
    let a_packet = simulated["messages_per_packet"].as_object().expect("an object").iter();
    let mut one = BTreeMap::new();
    for count in traced["counts"].as_array().expect("a list") {
        let ends = [&count["from"], &count["to"]].map(|end| end.as_str().expect("a name"));
        if ["DCOH", "host home"].iter().all(|end| ends.contains(end)) {
            *one.entry(count["name"].as_str().expect("a name").to_owned()).or_insert(0.0) += number(&count["count"]);
        }
    }
    [a_packet.map(|(kind, count)| (kind.clone(), number(count))).collect(), one]
}

/// What a counter calls a message and what a trace does, which says what was found and which state is granted.
type Kind = (&'static str, &'static str);

#[test]
fn a_choice_moves_the_messages_that_a_trace_shows() {
    const STORED: Kind = ("WOWrInv", "WOWrInvF");
    const PUSHED: Kind = ("ItoMWr", "ItoMWr");
    const SHARED: Kind = ("Snp", "SnpData");
    const TAKEN: Kind = ("Snp", "SnpInv");
    let base = messages("");
    for (choice, kinds) in [
        ("receive-packet=NC-P", &[STORED, PUSHED][..]),
        ("receive-packet=CO", &[STORED, SHARED, ("RdOwnNoData", "RdOwnNoData"), ("RspFwd, data", "RspSFwdM, Data")]),
        ("receive-buffers=device-memory", &[("MemRd", "MemRd, SnpData"), ("MemFwd", "MemWrFwd")]),
        ("transmit-packet=CS", &[TAKEN, ("RdShared", "RdShared"), ("Rsp", "RspI")]),
        ("transmit-packet=CO", &[TAKEN, ("RdOwn", "RdOwn"), ("RspFwd, data", "RspIFwdM, Data")]),
        ("transmit-buffers=device-memory,-cached-stores", &[("MemRd", "MemRd, SnpInv"), ("MemWr", "MemWr")]),
        ("transmit-completion=CO", &[STORED, TAKEN, ("RdOwnNoData", "RdOwnNoData")]),
    ] {
        let with = messages(&format!("--choose {choice}"));
        for (counted, traced) in kinds {
            let moved = |place: usize, kind: &str| {
                let of = |all: &[BTreeMap<String, f64>; 2]| all[place].get(kind).copied().unwrap_or(0.0);
                of(&with) - of(&base)
            };
            let [simulated, traced] = [moved(0, counted), moved(1, traced)];
            assert!(traced != 0.0, "{choice}: {counted}");
            // Beside a packet's own there is what is done for many at once.
            assert!((simulated - traced).abs() < 0.1, "{choice}: {counted} by {simulated} and {traced}");
        }
    }
}

#[test]
fn a_load_comes_back_at_its_rate_or_is_said_not_to() {
    let kept_up = json("sim cxl --rate 0.2 --packets 400 --json", 0);
    assert!((number(&kept_up["mpps"]) / 0.2 - 1.0).abs() < 0.02, "{}", kept_up["mpps"]);
    let behind = json("sim cxl --rate 50 --packets 400 --json", 0);
    assert!(number(&behind["mpps"]) < 10.0, "{}", behind["mpps"]);
    assert!(number(&behind["latency_ns"]["p50"]) > 2.0 * number(&kept_up["latency_ns"]["p50"]));
    let text = String::from_utf8(conic("sim cxl --rate 50 --packets 400").stdout).expect("text");
    assert!(text.contains("it does not keep up with 50 Mpps"), "{text}");
    // More rings carry more, and so do batches.
    let highest = |arguments: &str| {
        let report = json(&format!("sim cxl {arguments} --packets 400 --json"), 0);
        ["highest_to_host", "highest_from_host"].map(|way| number(&report[way]["mpps"]))
    };
    let (one, four, batched) = (highest(""), highest("--rings 4"), highest("--batch 16"));
    for way in 0..2 {
        assert!(four[way] > one[way] && batched[way] > one[way], "{one:?}, {four:?}, {batched:?}");
    }
}

#[test]
fn questions_that_cannot_be_are_refused_with_what_to_do() {
    for (arguments, says) in [
        ("sim cxl --platform spr", "agilex7, bf3"),
        ("sim cxl --platform spr", "conic sim asks a machine of its model"),
        ("sim cxl --platform enzian", "conic sim pio asks a machine of its model"),
        ("sim cxl --platform nowhere", "there is no such platform"),
        ("sim cxl --platform bf3 --design 3", "leave --design out"),
        ("sim cxl --design 8", "layout-1 to layout-4"),
        ("sim cxl --choose polling=CO", "polling for it"),
        ("sim cxl --choose transmit-packet=NC-P", "one of NC; CS; CO"),
        ("sim cxl --design dma --choose transmit-packet=CS", "the receive batch and the transmit batch"),
        ("sim cxl --set dcoh.cicle=1ns", "did you mean dcoh.cycle"),
        ("sim cxl --packet-size 59", "from 60 to 9600"),
        ("sim cxl --packet-size 9601", "from 60 to 9600"),
        ("sim cxl --batch 26", "from 1 to 25"),
        ("sim cxl --burst 33", "from 1 to 32"),
        ("sim cxl --rings 0", "a whole number from 1"),
        ("sim cxl --rings 65535", "see core.cores"),
        ("sim cxl --packets 1", "from 2 to 1000000"),
        ("sim cxl --packets 1000000", "ask for fewer --packets"),
        ("sim cxl --rate 0", "0.001 to 10000"),
        ("sim cxl --window 4", "unexpected argument '--window'"),
    ] {
        let error = json(&format!("{arguments} --json"), 1)["error"].to_string();
        assert!(error.contains(says), "{arguments}: {error}");
    }
}

#[test]
fn what_is_asked_is_said_with_the_answer() {
    let arguments = "sim cxl --design optimal --choose transmit-batch=4 --set link.crossing=30ns --packets 64";
    let report = json(&format!("{arguments} --json"), 0);
    assert_eq!(report["design_name"], "the configuration of section 7.2 but transmit-batch=4");
    assert_eq!([&report["design"]["receive packet"], &report["design"]["transmit batch"]], ["NC-P", "4"]);
    assert_eq!(report["platform"]["overrides"], serde_json::json!(["link.crossing=30ns"]));
    for key in ["min", "p50", "p99", "p999"] {
        is_positive(&report["latency_ns"][key], key);
    }
    let text = String::from_utf8(conic(arguments).stdout).expect("text");
    for part in ["with link.crossing=30ns", "receive packet: NC-P", "ItoMWr", "p99.9", "conic platform show agilex7"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
}

/// Percentiles that `conic sim pio` finds, in nanoseconds.
fn percentiles(arguments: &str, names: &[&str]) -> Vec<f64> {
    let report = json(&format!("sim pio {arguments} --json"), 0);
    names.iter().map(|name| number(&report["latency_ns"][name])).collect()
}

/// Nanoseconds as the study has them, in microseconds.
fn same(nanoseconds: &[f64], microseconds: &[f64]) {
    let near = |(found, wanted): (&f64, &f64)| (found - 1000.0 * wanted).abs() < 1e-6;
    assert!(
        nanoseconds.len() == microseconds.len() && nanoseconds.iter().zip(microseconds).all(near),
        "{nanoseconds:?} ns, {microseconds:?} us"
    );
}

#[test]
fn frames_have_the_percentiles_of_table_1_with_the_kernels_tick_and_without() {
    let rows = study("coherent-pio table1");
    for way in ["receive", "transmit"] {
        let found = percentiles(way, &["p50", "p95", "p99", "max"]);
        let wanted = ["p50", "p95", "p99", "p100"]
            .map(|part| number(predicted(&rows, &format!("pio.table1.eci_64.{way}_{part}"))));
        same(&found, &wanted);
    }
    let ticking = ["receive", "transmit"].map(|way| percentiles(&format!("{way} --tick"), &["p50", "p99", "max"]));
    let wanted = predicted(&rows, "pio.beyond.ticking_eci_64").as_array().expect("a list");
    same(&ticking.concat(), &wanted.iter().map(number).collect::<Vec<f64>>());
}

#[test]
fn calls_have_the_medians_of_figure_6() {
    let rows = study("coherent-pio 6");
    for returns in ["exclusive", "shared"] {
        let found = percentiles(&format!("call --bytes 120 --returns {returns} --count 64"), &["p50"]);
        assert_eq!(found[0], number(predicted(&rows, &format!("pio.fig6.{returns}"))), "{returns}");
    }
}

#[test]
fn options_of_programmed_io_do_what_they_say() {
    let median = |arguments: &str| percentiles(arguments, &["p50"])[0];
    // Lines one after the other take a round trip each.
    assert!(median("receive --bytes 9600 --prefetch --count 16") < 0.5 * median("receive --bytes 9600 --count 16"));
    assert!(median("call --bytes 4000 --count 16") < 0.5 * median("call --bytes 4000 --one-by-one --count 16"));
    assert!(median("transmit --returns shared --count 16") > 100.0 + median("transmit --count 16"));
    assert_eq!(median("receive --packet-size 9600 --count 16"), median("receive --bytes 9600 --count 16"));
    // A load that waits at the device has its way there behind it.
    assert!(median("receive --after 50us --count 16") < median("receive --count 16") - 100.0);
    // The longer a tick takes, the later is who comes behind it.
    let most = |span: &str| percentiles(&format!("call --tick={span} --count 8200"), &["max"])[0];
    let (short, long) = (most("2us"), most("20us"));
    assert!((long - short - 18_000.0).abs() < 2_000.0, "{short} and {long}");
    // Another seed, other pauses.
    assert_eq!(
        percentiles("receive --count 50", &["min", "p99"]),
        percentiles("receive --count 50 --seed 1", &["min", "p99"])
    );
    let all = ["min", "p50", "p95", "p99", "max"];
    assert_ne!(percentiles("receive --count 50", &all), percentiles("receive --count 50 --seed 2", &all));
    assert!(median("receive --platform cxl3-mem --count 16") < median("receive --count 16"));
    let call = json("sim pio call --function bloom --bytes 1280 --count 16 --json", 0);
    assert_eq!(
        [&call["response_bytes"], &call["function"], &call["try_agains"]],
        [&Value::from(640), &"bloom".into(), &0.into()]
    );
    for key in ["calls_per_second", "gib_per_second"] {
        is_positive(&call[key], key);
    }
    let text = String::from_utf8(conic("sim pio call --count 16").stdout).expect("text");
    for part in ["1.00 recall", "million calls a second", "lines come back exclusive", "conic platform show enzian"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn programmed_io_that_cannot_be_is_refused_with_what_to_do() {
    for (arguments, says) in [
        ("sim pio receive --platform spr", "enzian, cxl3-mem"),
        ("sim pio receive --platform spr", "conic sim asks a machine of its model"),
        ("sim pio call --platform agilex7", "conic sim cxl asks a machine of its model"),
        ("sim pio transmit --platform nowhere", "there is no such platform"),
        ("sim pio call --set link.crosing=1ns", "did you mean link.crossing"),
        ("sim pio call --bytes 0", "from 1 to 65536"),
        ("sim pio receive --bytes 59", "from 60 to 9600"),
        ("sim pio transmit --bytes 9601", "from 60 to 9600"),
        ("sim pio receive --after 11ms", "from 1us to 10ms"),
        ("sim pio receive --tick=2ms", "from 1us to 1ms"),
        ("sim pio receive --count 0", "from 1 to 100000"),
        ("sim pio transmit --prefetch", "unexpected argument '--prefetch'"),
    ] {
        let error = json(&format!("{arguments} --json"), 1)["error"].to_string();
        assert!(error.contains(says), "{arguments}: {error}");
    }
}

#[test]
fn queues_are_shown_and_littles_law_holds_for_each() {
    for (arguments, kinds) in [
        ("sim cxl --packets 64", ["link", "requests in flight", "memory channel"]),
        ("sim cxl --platform bf3 --packets 64", ["PCIe", "DMA packets", "root port"]),
        ("sim pio receive --bytes 1500 --count 20", ["link", "directory slice", "transactions of a cache unit"]),
        ("sim pio transmit --count 20", ["link", "store buffer", "transactions of a directory unit"]),
        ("sim pio call --count 20", ["link", "recalls", "lines asked for"]),
    ] {
        let (plain, mut report) =
            (json(&format!("{arguments} --json"), 0), json(&format!("{arguments} --queues --json"), 0));
        let probes = report.as_object_mut().expect("an object").remove("probes").expect("it was asked for");
        assert_eq!(report, plain, "{arguments}: who looks changes nothing");
        let queues = probes["queues"].as_array().expect("a list of queues");
        assert!(queues.iter().all(|queue| queue["littles_law_holds"] == true), "{arguments}");
        let text = conic(&format!("{arguments} --queues"));
        let text = String::from_utf8(text.stdout).expect("it is text");
        assert!(text.contains(&format!("Little's law holds for all {} queues", queues.len())), "{text}");
        for kind in kinds {
            let used = queues.iter().filter(|queue| queue["queue"] == kind);
            assert!(used.map(|queue| number(&queue["arrivals"])).sum::<f64>() > 0.0, "{arguments}: {kind}");
            assert!(text.contains(kind), "{kind}: {text}");
        }
    }
}
