//! Tests of the loader: what it refuses and how it says so, and what overrides do.

use super::*;

const ICX: &str = include_str!("../../../platforms/icx.toml");

fn parse(text: &str) -> Result<Platform, PlatformError> {
    Platform::parse("mine", text, &|name| SOCKETS.text_of(name).map(str::to_string))
}

fn icx() -> Platform {
    Platform::load("icx").unwrap_or_else(|error| panic!("{error}"))
}

/// What the loader says of a file that extends `icx` with these lines; line 3 is the first of them.
fn refused(lines: &str) -> String {
    let text = format!("description = \"x\"\nextends = \"icx\"\n{lines}\n");
    match parse(&text) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("this loads: {lines}"),
    }
}

fn accepted(lines: &str) -> Parameters {
    let text = format!("description = \"x\"\nextends = \"icx\"\n{lines}\n");
    parse(&text).unwrap_or_else(|error| panic!("{error}")).parameters
}

#[track_caller]
fn says(message: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(message.contains(wanted), "\"{wanted}\" is not in: {message}");
    }
}

/// A value of a key of `[core]`, with a source and a reason.
fn core(key: &str, parts: &str) -> String {
    format!("[core]\n{key} = {{ {parts}, source = \"document\", from = \"x\" }}")
}

#[test]
fn a_value_of_ones_own_replaces_the_one_below() {
    let parameters = accepted(&core("cores", "value = 8, unit = \"cores\""));
    assert_eq!(parameters.core.cores, 8);
    assert_eq!(parameters.name, "mine");
    assert_eq!(parameters.cache, icx().parameters.cache);
}

#[test]
fn unknown_keys_tables_and_parts_are_refused_with_line_and_hint() {
    let message = refused(&core("core", "value = 8, unit = \"cores\""));
    says(&message, &["mine.toml:4: core.core: no machine has", "did you mean core.cores?"]);
    says(&refused("[cores]\nx = 1"), &["mine.toml:3: cores: there is no such table (did you mean core?)"]);
    says(&refused("cores = 1"), &["mine.toml:3: cores: there is no such table"]);
    says(&refused("core = 1"), &["mine.toml:3: core: is a table"]);
    says(&refused("[core]\ncores = 8"), &["mine.toml:4: core.cores: give it as { value"]);
    says(&refused(&core("cores", "value = 8, unit = \"cores\", note = \"x\"")), &["`note` means nothing here"]);
    says(&refused("[inputs]\n\"A b\" = { value = 1 }"), &["lower-case"]);
}

#[test]
fn missing_keys_are_all_named_with_their_table() {
    let message = parse(
        "description = \"x\"\n[core]\ncores = { value = 8, unit = \"cores\", source = \"document\", from = \"x\" }",
    );
    let message = message.expect_err("nearly everything is missing").to_string();
    says(&message, &["mine.toml: core.frequency_megahertz: is missing; add it to [core]", "memory.latency"]);
    assert!(!message.contains("core.cores") && !message.contains("pcie."), "{message}");
    let half = "[nic]\ndescriptor_batch = { value = 8, unit = \"descriptors\", source = \"document\", from = \"x\" }";
    says(&refused(half), &["nic.pipeline_time: is missing"]);
}

#[test]
fn units_are_checked() {
    let cores = |parts: &str| refused(&core("cores", parts));
    says(&cores("value = 8"), &["core.cores: a number needs its `unit`"]);
    says(&cores("value = 8, unit = \"ways\""), &["its unit is \"cores\", not \"ways\""]);
    says(&cores("value = 8, unit = \"ns\""), &["its unit is \"cores\", not \"ns\""]);
    says(&cores("value = 8, unit = \"parsec\""), &["there is no unit \"parsec\"; there are ps, ns"]);
    says(&cores("value = true"), &["give a number, not true or false"]);
    says(&refused(&core("issue_cycles", "value = 1, unit = \"ns\"")), &["a time is given", "cycles is wanted"]);
    let clock = |parts: &str| refused(&core("frequency_megahertz", parts));
    says(&clock("value = 3, unit = \"GB/s\""), &["a clock frequency is wanted; its unit is one of MHz, GHz"]);
    says(&refused(&core("prefetch_stride", "value = 1, unit = \"ratio\"")), &["give true or false, not a number"]);
    says(&refused(&core("prefetch_stride", "value = true, unit = \"ratio\"")), &["leave `unit` out"]);
}

#[test]
fn times_may_be_given_in_any_unit_of_time_and_in_cycles() {
    let llc_read = |value: &str, unit: &str| {
        let line = format!("llc_read = {{ value = {value}, unit = \"{unit}\", source = \"measured\", from = \"x\" }}");
        accepted(&format!("[node]\n{line}")).node.llc_read
    };
    assert_eq!(llc_read("2500", "ps"), 2500);
    assert_eq!(llc_read("2.5", "ns"), 2500);
    assert_eq!(llc_read("0.0025", "us"), 2500);
    // At 3.6 GHz a cycle is 277.78 ps.
    assert_eq!(llc_read("1", "cycles"), 278);
    assert_eq!(llc_read("36", "cycles"), 10_000);
}

#[test]
fn numbers_that_the_simulator_cannot_have_are_refused() {
    let cores = |value: &str| refused(&core("cores", &format!("value = {value}, unit = \"cores\"")));
    says(&cores("1.5"), &["1.5 cores is not whole"]);
    says(&cores("0"), &["0 cores is too little; at least 1 cores"]);
    says(&cores("-3"), &["too little"]);
    says(&cores("4294967296"), &["4294967296 cores is too much; at most 4294967295 cores"]);
    says(&cores("nan"), &["`value` is a finite number"]);
    says(&cores("inf"), &["`value` is a finite number"]);
    says(&cores("1e999"), &["`value` is a finite number"]);
    says(&cores("99999999999999999999"), &["`value` is a finite number"]);
    says(&cores("\"8\""), &["`value` is a finite number"]);
    assert_eq!(accepted(&core("cores", "value = 0x10, unit = \"cores\"")).core.cores, 16);
    assert_eq!(accepted(&core("cores", "value = 4294967295, unit = \"cores\"")).core.cores, u32::MAX);
}

#[test]
fn provenance_is_not_optional() {
    let with = |rest: &str| refused(&format!("[core]\ncores = {{ value = 8, unit = \"cores\", {rest} }}"));
    says(&with("from = \"x\""), &["mine.toml:4: core.cores: `source` is \"measured\""]);
    says(&with("source = \"rumour\", from = \"x\""), &["`source` is \"measured\""]);
    says(&with("source = \"derived\", from = \"x\""), &["a relation goes to `derived`"]);
    says(&with("source = \"document\""), &["say in `from`"]);
    says(&with("source = \"document\", from = \" \""), &["`from` is a text in quotes"]);
    says(&refused("[core]\ncores = { unit = \"cores\", source = \"document\", from = \"x\" }"), &["give either"]);
    let both = core("cores", "value = 8, derived = \"8\", unit = \"cores\"");
    says(&refused(&both), &["give either `value`, or `derived`"]);
    let guessed_relation = "[core]\ncores = { derived = \"8\", unit = \"cores\", source = \"guess\", from = \"x\" }";
    says(&refused(guessed_relation), &["the `source` of a relation is \"derived\""]);
}

#[test]
fn ranges_are_there_for_guesses_and_hold() {
    let guess = |rest: &str| {
        format!("[core]\ncores = {{ value = 8, unit = \"cores\", source = \"guess\", from = \"x\"{rest} }}")
    };
    says(&refused(&guess("")), &["a guess needs `low` and `high`"]);
    says(&refused(&guess(", low = 4")), &["give both"]);
    says(&refused(&guess(", low = 9, high = 4")), &["is empty"]);
    says(&refused(&guess(", low = 9, high = 16")), &["mine.toml:4: core.cores: 8 is outside its range of 9 to 16"]);
    says(&refused(&guess(", low = 1, high = 7")), &["is outside its range"]);
    assert_eq!(accepted(&guess(", low = 8, high = 8")).core.cores, 8);
    // A relation's range is an assertion.
    let derived = |high: u32| {
        format!("[core]\ncores = {{ derived = \"2 * 4\", unit = \"cores\", from = \"x\", low = 1, high = {high} }}")
    };
    assert_eq!(accepted(&derived(8)).core.cores, 8);
    says(&refused(&derived(7)), &["8 is outside its range of 1 to 7"]);
}

/// A relation for a time.
fn crossing(relation: &str) -> String {
    format!("[interconnect]\ncrossing = {{ derived = \"{relation}\", unit = \"ns\", from = \"x\" }}")
}

#[test]
fn relations_are_resolved_or_refused() {
    assert_eq!(
        accepted(&crossing("node.home_lookup * 3 + memory.latency - memory.latency")).interconnect.crossing,
        24_000
    );
    says(&refused(&crossing("node.lookup")), &["mine.toml:4: interconnect.crossing: node.lookup is not given"]);
    says(&refused(&crossing("node.home_lookup +")), &["ends where a number or a key is expected"]);
    says(&refused(&crossing("node.home_lookup + 1")), &["a time + a plain number makes no sense"]);
    says(&refused(&crossing("cache.l1_bytes")), &["the relation gives a number of bytes, which is not in ns"]);
    says(&refused(&crossing("protocol.exclusive_grant * node.home_lookup")), &["is true or false, and no number"]);
    says(&refused(&crossing("node.home_lookup / (1 - 1)")), &["divides by zero"]);
    says(&refused(&crossing("-node.home_lookup")), &["too little"]);
    says(
        &refused(
            &core("cores", "unit = \"cores\", value = 8")
                .replace("value = 8", "derived = \"15 / 2\"")
                .replace(", source = \"document\"", ""),
        ),
        &["7.5 cores is not whole"],
    );
}

#[test]
fn circles_are_refused_and_named() {
    says(
        &refused(&crossing("interconnect.crossing")),
        &["go in a circle: interconnect.crossing needs interconnect.crossing"],
    );
    // In icx, snoop_lookup follows from the crossing.
    let message = refused(&crossing("node.snoop_lookup"));
    says(&message, &["node.snoop_lookup needs", "in a circle"]);
}

#[test]
fn relations_behind_each_other_are_limited() {
    let chain = |length: usize| {
        let mut lines = "[inputs]\n".to_string();
        for at in 0..length {
            lines += &format!("a{at} = {{ derived = \"inputs.a{}\", unit = \"ns\", from = \"x\" }}\n", at + 1);
        }
        lines += &format!("a{length} = {{ value = 26, unit = \"ns\", source = \"document\", from = \"x\" }}\n");
        lines + &crossing("inputs.a0")
    };
    assert_eq!(accepted(&chain(30)).interconnect.crossing, 26_000);
    says(&refused(&chain(100_000)), &["relations stand behind each other"]);
}

#[test]
fn inputs_that_nothing_uses_and_checks_that_fail_are_refused() {
    let input = "[inputs]\nlatency = { value = 30, unit = \"ns\", source = \"document\", from = \"x\" }\n";
    says(&refused(input), &["mine.toml:4: inputs.latency: no relation and no check uses it"]);
    let check = |is: &str, within: &str| {
        format!(
            "{input}[checks]\nlatency = {{ is = \"{is}\", equals = \"inputs.latency\", within = {within}, from = \"x\" }}"
        )
    };
    accepted(&check("4 * node.home_lookup", "0.07"));
    let message = refused(&check("4 * node.home_lookup", "0.06"));
    says(&message, &["mine.toml:6: checks.latency: 4 * node.home_lookup is not inputs.latency", "0.0667"]);
    says(&refused(&check("cache.l1_bytes", "0.1")), &["a number of bytes and a time are never equal"]);
    says(&refused(&check("node.nothing", "0.1")), &["node.nothing is not given"]);
    says(&refused("[checks]\nx = { is = \"1\" }"), &["a check has `is` and `equals`"]);
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let cache = |key: &str, value: u64, unit: &str| {
        refused(&format!(
            "[cache]\n{key} = {{ value = {value}, unit = \"{unit}\", source = \"document\", from = \"x\" }}"
        ))
    };
    says(&cache("l1_bytes", 48_000, "bytes"), &["cache.l1_bytes: 48000 bytes are no whole number of sets"]);
    says(&cache("l2_ways", 40, "ways"), &["cache.l2_ways: the simulator's caches have 32 ways at most, not 40"]);
    says(&cache("device_write_ways", 13, "ways"), &["there are only 12 ways"]);
    let filter = |key: &str, value: u32, unit: &str| {
        let value = format!("{{ value = {value}, unit = \"{unit}\", source = \"document\", from = \"x\" }}");
        refused(&format!("[snoop_filter]\n{key} = {value}"))
    };
    says(&filter("ways", 33, "ways"), &["mine.toml:", "snoop_filter.ways: a set has 32 ways at most, not 33"]);
    says(&filter("ways", 0, "ways"), &["snoop_filter.ways"]);
    says(&filter("sets", 16_385, "sets"), &["snoop_filter.sets"]);
    let own = "[node]\nhome_own_entries = { value = 16, unit = \"entries\", source = \"document\", from = \"x\" }";
    says(&refused(own), &["node.home_own_entries: none of a slice's 16 entries", "left to the other node"]);
    let link = |key: &str, value: u64, unit: &str| {
        let line = format!("{key} = {{ value = {value}, unit = \"{unit}\", source = \"document\", from = \"x\" }}");
        refused(&format!("[interconnect]\n{line}"))
    };
    says(&link("data_slots", 13, "slots"), &["have only 12 slots"]);
    says(&link("header_slots", 4, "slots"), &["a flit has only 3 slots"]);
    let e810 = SOCKETS.text_of("icx-e810").expect("it is shipped");
    let nic = e810.split("[nic]\n").nth(1).unwrap_or_default();
    let nic: String = nic.split_inclusive('\n').filter(|line| !line.starts_with("pipeline_time")).collect();
    let text =
        format!("[nic]\n{nic}pipeline_time = {{ value = 1, unit = \"ns\", source = \"document\", from = \"x\" }}");
    says(&refused(&text), &["a NIC stands behind a PCIe link"]);
}

/// What is wrong with a platform that comes with the program once a value is replaced, if anything is.
fn fault_of<P: ParameterSet>(name: &str, value: &str) -> String {
    let platform: Platform<P> = Platform::load_as(name).unwrap_or_else(|error| panic!("{error}"));
    platform.with(&[value]).map_or_else(|error| error.to_string(), |_| panic!("{name} takes {value}"))
}

#[test]
fn values_for_which_no_machine_has_room_are_refused() {
    use crate::cxl::CxlParameters;
    let refused = |value: &str| fault_of::<Parameters>("icx-e810", value);
    says(&refused("core.load_buffer=4294967295"), &["4294967295 loads is too much; at most 65536 loads"]);
    says(&refused("cache.l2_bytes=1000000MiB"), &["is too much; at most 4294967296 bytes"]);
    says(&refused("memory.line_time=1000000us"), &["is too much; at most 100000000000 ps"]);
    says(&refused("core.l1_hit_cycles=4294967295"), &["is too much; at most 1000000 cycles"]);
    // A cycle of less than a picosecond would take none.
    says(&refused("core.frequency_megahertz=2000GHz"), &["2000000 MHz is too much; at most 1000000 MHz"]);
    says(&refused("core.work_scale=1000000000000"), &["is too much; at most 1000000"]);
    says(&refused("memory.channels=65"), &["memory.channels: lines are shared out to at most 64 channels"]);
    says(&refused("interconnect.links=65"), &["interconnect.links: lines are shared out to at most 64 links"]);
    for key in ["memory.channels", "device_memory.channels"] {
        says(&fault_of::<CxlParameters>("agilex7", &format!("{key}=65")), &[key, "at most 64 channels"]);
    }
    assert!(icx().with(&["core.load_buffer=65536", "memory.line_time=100000us"]).is_ok());
}

#[test]
fn sizes_and_rates_that_no_link_of_pcie_has_are_refused() {
    use crate::cxl::CxlParameters;
    for (value, wanted) in [
        ("pcie.max_payload=192", "a power of two from 64 to 4096"),
        ("pcie.max_payload=8192", "a power of two from 64 to 4096"),
        ("pcie.max_read_request=100", "a power of two from 64 to 4096"),
        ("pcie.read_completion_boundary=32", "a power of two from 64 to 4096"),
        ("pcie.read_completion_boundary=512", "no multiple of pcie.read_completion_boundary"),
        ("pcie.megabits_per_second=1Mb/s", "too little"),
    ] {
        says(&fault_of::<Parameters>("icx-e810", value), &[wanted]);
        says(&fault_of::<CxlParameters>("agilex7", value), &[wanted]);
    }
    says(&fault_of::<Parameters>("icx-e810", "nic.packets_per_second=0.0001Mpps"), &["too little"]);
}

#[test]
fn a_polling_loop_that_takes_no_time_is_refused() {
    let idle = ["core.issue_cycles=0", "core.pause_cycles=0", "core.l1_hit_cycles=0"];
    let error = icx().with(&idle[1..]).expect_err("time would stand still").to_string();
    says(&error, &["core.pause_cycles", "a round of polling would take no time"]);
    assert!(icx().with(&idle[..2]).is_ok() && icx().with(&[idle[0], idle[2]]).is_ok());
}

#[test]
fn files_extend_each_other_in_a_line() {
    let load = |text: &str| parse(text).expect_err("it does not load").to_string();
    let line = "[core]\ncores = { value = 8, unit = \"cores\", source = \"document\", from = \"x\" }";
    says(
        &load(&format!("description = \"x\"\nextends = \"icy\"\n{line}")),
        &["extends: there is no platform \"icy\" to extend (did you mean icx?)"],
    );
    says(&load(&format!("description = \"x\"\nextends = \"mine\"\n{line}")), &["in a circle: mine, mine"]);
    says(&load(&format!("description = \"x\"\nextends = 3\n{line}")), &["mine.toml:2: extends: give it a text"]);
    says(&load(&format!("extends = \"icx\"\n{line}")), &["description: say in a line"]);
    says(&load("description = \"x\"\nextends = \"icx\"\n"), &["gives no value of its own"]);
    let pair = |name: &str| {
        Some(format!("description = \"x\"\nextends = \"{}\"\n{line}", if name == "a" { "b" } else { "a" }))
    };
    let error = Platform::parse("a", &pair("a").unwrap_or_default(), &pair).expect_err("a extends b extends a");
    says(&error.to_string(), &["in a circle: a, b, a"]);
    let endless = |name: &str| Some(format!("description = \"x\"\nextends = \"{name}x\"\n{line}"));
    assert!(Platform::parse("a", &endless("a").unwrap_or_default(), &endless).is_err());
}

#[test]
fn what_is_not_toml_is_refused_with_its_line() {
    let load = |text: &str| parse(text).expect_err("it is not TOML").to_string();
    says(&load("description = \"x\"\n[core\n"), &["mine.toml:2: this is not TOML"]);
    says(&load("description = \"x\"\ndescription = \"y\"\n"), &["mine.toml:2: this is not TOML"]);
    says(&load(&format!("a = {}", "[".repeat(100_000))), &["this is not TOML"]);
    says(&load("\u{0}\u{1}"), &["this is not TOML"]);
    says(&load(""), &["description"]);
}

#[test]
fn all_faults_are_told_in_the_order_of_the_lines() {
    let message = refused("[node]\nllc_read = 3\n[core]\nfoo = 1\n[memory]\nlatency = { value = 2 }");
    let lines: Vec<&str> = message.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(lines, ["mine.toml:4", "mine.toml:6", "mine.toml:8", "mine.toml:8", "mine.toml:8"], "{message}");
}

#[test]
fn a_platform_is_known_by_name_or_by_path() {
    let names = ["icx", "spr", "icx-cx6", "icx-e810", "thunderx", "enzian-pcie", "pc-pcie"];
    assert_eq!(Platform::names().collect::<Vec<_>>(), names);
    let message = Platform::load("spx").expect_err("there is none").to_string();
    says(&message, &["there is no such platform (did you mean spr?)", "icx-cx6", ".toml"]);
    says(
        &Platform::load("no/such.toml").expect_err("there is none").to_string(),
        &["no/such.toml", "cannot be opened"],
    );
    says(&Platform::load("/dev/zero").expect_err("it never ends").to_string(), &["/dev/zero"]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../platforms/icx-cx6.toml");
    let (by_path, by_name) = (Platform::load(path), Platform::load("icx-cx6"));
    assert_eq!(by_path.map(|platform| platform.parameters), by_name.map(|platform| platform.parameters));
}

#[test]
fn overrides_replace_and_say_so() {
    let platform = icx();
    let changed = platform
        .with(&[
            "core.line_fill_buffers=16",
            "interconnect.crossing = 40ns",
            "node.llc_read=9 cycles",
            "protocol.exclusive_grant=false",
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    let parameters = changed.parameters();
    assert_eq!(parameters.core.line_fill_buffers, 16);
    assert_eq!(parameters.interconnect.crossing, 40_000);
    assert_eq!(parameters.node.llc_read, 2500);
    assert!(!parameters.protocol.exclusive_grant);
    assert_eq!(parameters.node.snoop_lookup, platform.parameters.node.snoop_lookup);
    let entry = changed.entry("interconnect.crossing").expect("it is there");
    assert_eq!((entry.source, entry.value, entry.unit.as_str()), (Source::Override, Value::Number(40.0), "ns"));
    assert_eq!((&entry.relation, entry.range), (&None, None));
    // The later one holds, and the earlier ones stay.
    let again = changed.with(&["core.line_fill_buffers=20"]).expect("20 is a number").parameters;
    assert_eq!((again.core.line_fill_buffers, again.interconnect.crossing), (20, 40_000));
    assert_eq!(platform.with(&[""; 0]).expect("nothing was changed").parameters, platform.parameters);
}

#[test]
fn an_input_that_is_replaced_changes_what_follows_from_it() {
    let faster = icx().with(&["inputs.transfer_rate=22.4"]).expect("it is a rate").parameters;
    assert_eq!(faster.interconnect.flit_time, 429);
    let farther = icx().with(&["inputs.remote_l2_modified=120ns"]).expect("it is a time").parameters;
    assert_ne!(farther.node.snoop_lookup, icx().parameters.node.snoop_lookup);
    says(&icx().with(&["inputs.transfer_rate=5ns"]).expect_err("no rate").to_string(), &["its unit is one of", "GT/s"]);
}

#[test]
fn overrides_are_checked_like_files() {
    let refused = |text: &str| match icx().with(&[text]) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("this is taken: {text}"),
    };
    says(&refused("core.line_fill_buffer=16"), &["no such value (did you mean core.line_fill_buffers?)"]);
    says(&refused("core.cores"), &["key=value"]);
    says(&refused("core.cores="), &["does not begin with a number"]);
    says(&refused("core.cores=many"), &["does not begin with a number"]);
    says(&refused("core.cores=8ways"), &["its unit is \"cores\""]);
    says(&refused("core.cores=8.5"), &["not whole"]);
    says(&refused("core.cores=0"), &["too little"]);
    says(&refused("core.cores=1e9"), &["there is no unit \"e9\""]);
    says(&refused("core.cores=true"), &["give a number"]);
    says(&refused("core.prefetch_stride=1"), &["give true or false"]);
    says(&refused("cache.l1_bytes=48000bytes"), &["no whole number of sets"]);
    says(&refused("nic.doorbell_time=1"), &["no such value"]);
    let both = icx().with(&["core.cores=0", "core.x=1"]).expect_err("both are wrong").to_string();
    says(&both, &["core.x"]);
}

#[test]
fn variations_are_held_to_the_range() {
    let platform = icx();
    says(
        &platform.vary("node.home_lookup", 13.0).expect_err("over 12").to_string(),
        &["13 is outside its range of 6 to 12"],
    );
    says(
        &platform.vary("node.home_lookups", 8.0).expect_err("unknown").to_string(),
        &["did you mean node.home_lookup?"],
    );
    let varied = platform.vary("core.prefetch_stride", 0.0).expect("it is a switch");
    assert!(!varied.core.prefetch_stride && varied.core.prefetch_next_line);
    let changed = platform.with(&["node.home_lookup=9"]).expect("9 ns are a time");
    says(&changed.vary("node.home_lookup", 8.0).expect_err("replaced").to_string(), &["it was replaced"]);
    assert_eq!(changed.vary("node.llc_read", 1.0).expect("in the range").node.home_lookup, 9000);
}

#[test]
fn entries_come_in_the_order_of_the_parameters() {
    let platform = icx();
    let keys: Vec<&str> = platform.entries().map(|entry| entry.key.as_str()).collect();
    assert_eq!((keys[0], keys[1]), ("core.cores", "core.frequency_megahertz"));
    assert!(keys[keys.len() - 1].starts_with("inputs."));
    assert_eq!(keys.len(), platform.entries.len());
    let line = ICX.lines().position(|line| line.starts_with("cores")).map(|at| at + 1);
    assert_eq!(platform.entry("core.cores").expect("it is there").line, line);
}
