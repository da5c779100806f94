//! Tests of the platform files that come with the program: whole, consistent, and as the sources' formulas have them.

use super::*;
use crate::parameters::{Parameters, PcieParameters};

fn load(name: &str) -> Platform {
    Platform::load(name).unwrap_or_else(|error| panic!("{error}"))
}

/// The platform that a text describes, which may extend those that come with the program.
fn parse(name: &str, text: &str) -> Result<Platform, PlatformError> {
    Platform::parse(name, text, &|name| SOCKETS.text_to_extend(name).map(str::to_string))
}

fn pcie(parameters: &Parameters) -> &PcieParameters {
    parameters.pcie.as_ref().expect("the platform has PCIe")
}

#[test]
fn every_key_of_the_parameters_is_in_every_platform_with_its_provenance() {
    for name in Platform::names() {
        let platform = load(name);
        assert_eq!(platform.parameters().name, name);
        let (has_nic, has_fpga) = (name.starts_with("icx-"), name.ends_with("-pcie"));
        assert_eq!(platform.parameters().nic.is_some(), has_nic);
        // Intel's accelerator came with Sapphire Rapids, and the paper slows its uncore.
        let has_engine = name == "spr";
        assert_eq!(platform.parameters().engine.is_some(), has_engine);
        assert_eq!(platform.parameters().uncore.is_some(), has_engine);
        // What Intel's servers with a last-level cache that is not inclusive have.
        let has_filter = name == "spr" || name.starts_with("icx");
        assert_eq!(platform.parameters().snoop_filter.is_some(), has_filter);
        let has = |section: &&Section| match section.name {
            "engine" | "uncore" => has_engine,
            "snoop_filter" => has_filter,
            "nic" => has_nic,
            "pcie" => has_nic || has_fpga,
            "fpga" | "driver" | "refresh" | "timer" => has_fpga,
            _ => true,
        };
        for section in SOCKETS.sections.iter().filter(has) {
            for field in section.fields {
                let entry = platform.entry(field.key).unwrap_or_else(|| panic!("{name}: {}", field.key));
                assert!(!entry.from.is_empty() && entry.line.is_some());
                assert_eq!(entry.relation.is_some(), entry.source == Source::Derived, "{name}: {}", field.key);
            }
        }
        assert!(platform.guesses().all(|guess| guess.range.is_some()));
    }
}

#[test]
fn a_platform_that_lost_a_value_does_not_load() {
    for (name, text) in SHIPPED {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in
            lines.iter().enumerate().filter(|(_, line)| line.contains(" = { value") || line.contains(" = { derived"))
        {
            let less: Vec<&str> =
                lines.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, line)| *line).collect();
            let error = parse(name, &less.join("\n")).expect_err(line);
            let key = line.split(' ').next().unwrap_or_default();
            assert!(error.to_string().contains(&format!(".{key}")), "{line}: {error}");
        }
    }
}

#[test]
fn a_file_that_lost_its_end_does_not_load() {
    for (name, text) in SHIPPED {
        let whole = text.trim_end().len();
        for end in (0..whole).filter(|end| text.is_char_boundary(*end)) {
            assert!(parse(name, &text[..end]).is_err(), "{name} loads without what follows byte {end}");
        }
        assert!(parse(name, &text[..whole]).is_ok());
    }
}

#[test]
fn bytes_that_were_changed_never_bring_the_loader_down() {
    // At every place, one of the characters that mean something to TOML or to a relation, or none.
    let text = SOCKETS.text_of("icx-e810").expect("it is shipped");
    let mut refused = 0;
    for at in (0..text.len()).filter(|at| text.is_char_boundary(*at) && text.is_char_boundary(at + 1)) {
        let other = ["[", "\"", "\n", "-", "9", ""][at % 6];
        refused += usize::from(parse("icx-e810", &format!("{}{other}{}", &text[..at], &text[at + 1..])).is_err());
    }
    assert!(refused > text.len() / 8, "{refused}");
}

#[test]
fn every_guess_may_take_both_ends_of_its_range() {
    for name in Platform::names() {
        let platform = load(name);
        for guess in platform.guesses() {
            let (low, high) = guess.range.expect("a guess has a range");
            let at = |value| platform.vary(&guess.key, value).unwrap_or_else(|error| panic!("{error}"));
            assert_ne!(at(low), at(high), "{name}: {}", guess.key);
            assert!(platform.vary(&guess.key, high + 1.0).is_err());
            assert!(platform.vary(&guess.key, low - 1.0).is_err());
        }
    }
}

/// The way of a load whose line the other node's second-level cache has modified, homed there: a request in a flit of its
/// own goes over, and a line comes back.
fn remote_modified(parameters: &Parameters) -> u64 {
    let (node, link) = (&parameters.node, &parameters.interconnect);
    let snoop = node.home_to_core + node.snoop_lookup + node.core_to_home;
    let wire = link.flit_time + u64::from(link.data_flits) * link.flit_time;
    let there = node.core_to_home + node.home_lookup + link.crossing + node.home_lookup;
    there + snoop + link.crossing + node.home_to_core + wire
}

#[test]
fn the_stages_make_the_latencies_of_figure_7() {
    for (name, nanoseconds) in [("icx", 114), ("spr", 171)] {
        let parameters = load(name).parameters;
        assert_eq!(remote_modified(&parameters), nanoseconds * 1000, "{name}");
        // "Slightly higher" where the reader is home.
        let more = parameters.protocol.speculative_read_penalty as f64 / (nanoseconds * 1000) as f64;
        assert!((0.02..=0.08).contains(&more), "{name}: {more}");
    }
}

#[test]
fn calibrated_latencies_hold_when_a_stage_is_varied() {
    let platform = load("spr");
    let varied = platform.vary("interconnect.crossing", 36.0).expect("36 ns are in the range");
    assert_eq!(varied.interconnect.crossing, 36_000);
    assert_eq!(remote_modified(&varied), 171_000);
    // What is asked of another machine is not spread over its stages.
    let other = platform.with(&["interconnect.crossing=36"]).expect("36 ns are a time").parameters;
    assert_eq!(other.node, platform.parameters().node);
    assert_eq!(remote_modified(&other), 179_000);
}

#[test]
fn memory_is_as_far_as_it_was_measured() {
    // Local, in nanoseconds, and remote: "approximately twice" (CC-NIC section 3.2).
    for (name, local, remote) in [("icx", 80..=90, None), ("spr", 98..=108, Some(211.0 / 1.11))] {
        let parameters = load(name).parameters;
        let (node, link) = (&parameters.node, &parameters.interconnect);
        let near = node.core_to_home + node.home_lookup + parameters.memory.latency + node.home_to_core;
        let far = near + node.home_lookup + 2 * link.crossing + u64::from(1 + link.data_flits) * link.flit_time;
        assert!(local.contains(&(near / 1000)), "{name}: {near}");
        assert!((1.6..=2.1).contains(&(far as f64 / near as f64)), "{name}: {near}, {far}");
        if let Some(remote) = remote {
            assert!((far as f64 / 1000.0 - remote).abs() < 0.01, "{name}: {far}");
        }
    }
}

#[test]
fn a_line_in_four_flits_is_the_read_only_rate() {
    // Lanes, GT/s, links; what four flits a line give, and what was measured (CC-NIC section 3.3), in Gb/s.
    for (name, lanes, transfers, links, model, measured) in
        [("icx", 20.0, 11.2, 3, 448.0, 443.0), ("spr", 24.0, 16.0, 4, 1024.0, 1020.0)]
    {
        let link = load(name).parameters.interconnect;
        assert_eq!((link.links, link.flit_bytes, link.flit_slots), (links, 24, 3));
        assert_eq!((link.data_flits, link.data_slots, link.header_slots), (4, 10, 1));
        let picoseconds = f64::from(link.flit_bytes) * 8.0 / (lanes * transfers) * 1000.0;
        assert_eq!(link.flit_time, picoseconds.round() as u64, "{name}");
        let line = f64::from(link.data_flits) * link.flit_time as f64;
        let rate = f64::from(link.links) * 64.0 * 8.0 / line * 1000.0;
        assert!((rate / model - 1.0).abs() < 0.0005, "{name}: {rate}");
        assert!((rate / measured - 1.0).abs() < 0.015, "{name}: {rate}");
    }
}

#[test]
fn memory_channels_give_nine_tenths_of_their_rate() {
    for (name, channels, megatransfers) in [("icx", 6, 3200.0), ("spr", 8, 4800.0)] {
        let memory = load(name).parameters.memory;
        assert_eq!(memory.channels, channels);
        let picoseconds: f64 = 64.0 / (8.0 * megatransfers * 1e6 * 0.9) * 1e12;
        assert_eq!(memory.line_time, picoseconds.round() as u64, "{name}");
    }
}

#[test]
fn no_limit_on_what_is_in_flight_binds_below_the_read_only_rate() {
    for (name, gigabits) in [("icx", 443.0), ("spr", 1020.0)] {
        let platform = load(name);
        let lines_per_picosecond = gigabits / 8.0 / 64.0 / 1000.0;
        let node = &platform.parameters().node;
        let crossing = platform.parameters().interconnect.crossing;
        let far = node.core_to_home
            + node.home_to_core
            + 2 * (node.home_lookup + crossing)
            + platform.parameters().memory.latency;
        let needed = lines_per_picosecond * far as f64;
        let least = |key: &str| {
            let (low, _) = platform.entry(key).and_then(|entry| entry.range).expect("it is a guess");
            platform.vary(key, low).expect("it may take its least value")
        };
        assert!(f64::from(least("interconnect.request_credits").interconnect.request_credits) > needed, "{name}");
    }
}

#[test]
fn every_hop_to_a_core_leaves_the_simulator_8_nanoseconds_to_look_ahead() {
    for name in Platform::names() {
        assert!(load(name).parameters().node.home_to_core >= 8_000, "{name}");
    }
}

#[test]
fn pcie_bytes_give_the_published_rates() {
    for name in ["icx-cx6", "icx-e810"] {
        let parameters = load(name).parameters;
        let link = pcie(&parameters);
        let near = |is: f64, published: f64| assert!((is / published - 1.0).abs() < 0.001, "{is}, not {published}");
        near(link.megabits_per_second as f64, 16.0 * 16_000.0 * 128.0 / 130.0);
        near(link.megabits_per_second as f64, 252_100.0);
        let usable = link.megabits_per_second as f64 / 1000.0 * f64::from(1000 - link.link_layer_permille) / 1000.0;
        near(usable, 227.4);
        // Data a second of writes and reads of 64 and 256 bytes on a 4.0 x16 link, in Gb/s, from a published model.
        for (bytes, write, read) in [(64.0, 165.4, 173.3), (256.0, 207.9, 210.9)] {
            near(usable * bytes / (bytes + f64::from(link.write_overhead)), write);
            near(usable * bytes / (bytes + f64::from(link.completion_overhead)), read);
        }
        assert_eq!((link.max_payload, link.max_read_request, link.read_completion_boundary), (256, 512, 64));
        assert!(link.write_combining_flush >= 15 * 10_000, "{}", link.write_combining_flush);
    }
}

#[test]
fn the_nics_differ_in_the_chip_and_not_in_the_link() {
    let (cx6, e810) = (load("icx-cx6").parameters, load("icx-e810").parameters);
    let link_of_e810 = PcieParameters { register_read: pcie(&cx6).register_read, ..pcie(&e810).clone() };
    assert_eq!(*pcie(&cx6), link_of_e810);
    assert_eq!((cx6.core, cx6.node, cx6.cache), (e810.core, e810.node, e810.cache));
    let icx = load("icx").parameters;
    assert_eq!((icx.interconnect, icx.memory, icx.protocol), (cx6.interconnect, cx6.memory, cx6.protocol));
}

#[test]
fn a_register_and_a_loopback_take_as_long_as_they_were_measured() {
    let e810 = load("icx-e810").parameters;
    let link = pcie(&e810);
    let usable = link.megabits_per_second as f64 * f64::from(1000 - link.link_layer_permille) / 1000.0;
    let wire = f64::from(link.read_overhead + link.completion_overhead + 8) * 8.0 / usable * 1e6;
    let whole = (2 * (link.core_to_root + link.crossing) + link.register_read) as f64 + wire;
    assert!((whole - 982_000.0).abs() < 1.0, "{whole}");
    // The last is what a run takes beyond the stages; the study's tests run it.
    // A ConnectX's entry comes with the payload in it; the E810 reads both.
    for (name, nanoseconds, packets, beyond, reads) in
        [("icx-cx6", 2116, 76_000_000, 157, 1), ("icx-e810", 3809, 192_000_000, 83, 2)]
    {
        let parameters = load(name).parameters;
        let (link, node) = (pcie(&parameters), &parameters.node);
        let nic = parameters.nic.as_ref().expect("the platform has a NIC");
        let doorbell = link.core_to_root + link.crossing + nic.doorbell_time;
        let read = 2 * (link.crossing + link.root_to_home) + node.home_lookup + node.llc_read;
        let write = link.crossing + link.root_to_home + node.home_lookup;
        let miss = node.core_to_home + node.home_lookup + node.llc_read + node.home_to_core;
        let chip = nic.pipeline_time + nic.write_back_wait;
        assert_eq!(doorbell + reads * read + chip + write + 2 * miss, (nanoseconds - beyond) * 1000, "{name}");
        assert_eq!((nic.packets_per_second, nic.megabits_per_second), (packets, 200_000));
    }
}

#[test]
fn the_published_sizes_are_there() {
    let icx = load("icx").parameters;
    // The base clocks of section 5.1 are the low ends: turbo is taken to be on.
    assert_eq!((icx.core.cores, icx.core.frequency_megahertz), (16, 3600));
    assert_eq!((icx.cache.l1_bytes, icx.cache.l2_bytes, icx.cache.llc_bytes), (48 << 10, 5 << 18, 36 << 20));
    assert_eq!((icx.core.line_fill_buffers, icx.core.load_buffer, icx.core.store_buffer), (12, 128, 72));
    assert_eq!(icx.core.write_combining_buffers, 24);
    assert_eq!(icx.core.reorder_buffer, 352);
    let spr = load("spr").parameters;
    assert_eq!((spr.core.cores, spr.core.frequency_megahertz), (56, 3000));
    assert_eq!((spr.cache.l1_bytes, spr.cache.l2_bytes, spr.cache.llc_bytes), (48 << 10, 2 << 20, 105 << 20));
    assert_eq!((spr.core.line_fill_buffers, spr.core.load_buffer, spr.core.store_buffer), (16, 192, 112));
    assert_eq!(spr.core.reorder_buffer, 512);
}

#[test]
fn enzian_is_whole_and_its_exchange_adds_up() {
    use crate::eci::EciParameters;
    let platform: Platform<EciParameters> = Platform::load_as("enzian").unwrap_or_else(|error| panic!("{error}"));
    for field in ECI.fields() {
        let entry = platform.entry(field.key).unwrap_or_else(|| panic!("{}", field.key));
        assert_eq!(entry.relation.is_some(), entry.source == Source::Derived, "{}", field.key);
    }
    let EciParameters { core, cache, link, directory, device, .. } = platform.parameters();
    let wires = 2 * u64::from(link.line_words + 1) * link.word_time;
    let cpu = 2 * (cache.core_to_l2 + cache.l2_to_core) + cache.store_interval + cache.recall_lookup;
    // The last are the host half's own, which the study's tests run.
    let instructions = core.cycles(u64::from(14 * core.issue_cycles + 2 * core.l1_hit_cycles + 26));
    let passes = 4 * (link.crossing + directory.pass) + 2 * device.message_time;
    assert!((wires + cpu + instructions + passes).abs_diff(900_000) <= 4);
    // Section 4: 600 ns of crossings, and the rest mostly in the directory controller.
    assert!(4 * directory.pass > 150_000 && 4 * directory.pass < 300_000, "{}", directory.pass);
}

#[test]
fn every_guess_of_a_device_that_is_home_to_lines_may_take_both_ends_of_its_range() {
    use crate::eci::EciParameters;
    for name in names_of(ECI) {
        let platform: Platform<EciParameters> = Platform::load_as(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(platform.parameters().name, name);
        let mut ranges = 0;
        for guess in platform.guesses() {
            let (low, high) = guess.range.expect("a guess has a range");
            let at = |value| platform.vary(&guess.key, value).unwrap_or_else(|error| panic!("{error}"));
            assert_ne!(at(low), at(high), "{name}: {}", guess.key);
            ranges += 1;
        }
        assert!(ranges > 10, "{name}: {ranges}");
    }
}

#[test]
fn nodes_on_snooping_buses_have_table_2_and_every_guess_of_theirs_may_take_both_ends_of_its_range() {
    use crate::bus::BusParameters;
    let platform: Platform<BusParameters> = Platform::load_as("hypersparc").unwrap_or_else(|error| panic!("{error}"));
    let BusParameters { core, bus, cache_bus, io, .. } = platform.parameters();
    assert_eq!([cache_bus.load, bus.load, bus.load + io.load], [4, 28, 48]);
    assert_eq!([cache_bus.store, bus.store, bus.store + io.store], [4, 12, 32]);
    assert_eq!([bus.block, bus.block + io.block_to_core, bus.block + io.block_to_device], [42, 76, 62]);
    assert_eq!(core.cycles((core.miss_cycles + bus.block + core.load_cycles).into()), 230_000);
    // What the table does not have.
    assert_eq!([bus.invalidate, bus.write_back, io.invalidate], [10, 26, 16]);
    let mut ranges = 0;
    for guess in platform.guesses() {
        let (low, high) = guess.range.expect("a guess has a range");
        let at = |value| platform.vary(&guess.key, value).unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(at(low), at(high), "{}", guess.key);
        ranges += 1;
    }
    assert!(ranges >= 7, "{ranges}");
    let odd = platform.vary("core.cache_bytes", 100_000.0).expect_err("no power of two of blocks").to_string();
    assert!(odd.contains("core.cache_bytes") && odd.contains("a power of two of blocks"), "{odd}");
}

#[test]
fn every_guess_of_a_host_with_a_cxl_or_a_pcie_device_may_take_both_ends_of_its_range() {
    use crate::cxl::CxlParameters;
    for name in ["agilex7", "bf3"] {
        let platform: Platform<CxlParameters> = Platform::load_as(name).unwrap_or_else(|error| panic!("{error}"));
        let mut ranges = 0;
        for guess in platform.guesses() {
            let (low, high) = guess.range.expect("a guess has a range");
            for value in [low, high] {
                platform
                    .vary(&guess.key, value)
                    .unwrap_or_else(|error| panic!("{name}: {} at {value}: {error}", guess.key));
            }
            ranges += 1;
        }
        assert!(ranges > 30, "{name}: {ranges}");
    }
}

#[test]
fn every_guess_of_a_host_may_take_both_ends_of_its_range_and_its_stages_add_up() {
    use crate::host::HostParameters;
    for name in names_of(HOST) {
        let platform: Platform<HostParameters> = Platform::load_as(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(platform.parameters().name, name);
        let guesses: Vec<&Entry> = platform.guesses().collect();
        assert!(guesses.len() > 20, "{name}: {}", guesses.len());
        for guess in guesses {
            let (low, high) = guess.range.expect("a guess has a range");
            let at = |value| platform.vary(&guess.key, value).unwrap_or_else(|error| panic!("{error}"));
            assert_ne!(at(low), at(high), "{name}: {}", guess.key);
        }
    }
    let platform: Platform<HostParameters> = Platform::load_as("cascade-lake").expect("it is shipped");
    let HostParameters { core, home, iio, dram, .. } = platform.parameters();
    let waits = platform.entry("inputs.core_read_waits").map_or(0.0, |entry| entry.plain) as u64;
    let read = core.to_home + home.to_memory + dram.read_latency + dram.burst + home.from_memory + waits;
    assert!(read.abs_diff(71_000) <= 2, "{read}");
    assert_eq!(iio.write_to_home + home.device_write_to_memory, 305_000);
    // Two channels of DDR4-2933.
    assert!((platform.parameters().memory_bytes_per_second() / 46.9e9 - 1.0).abs() < 0.01);
}

#[test]
fn values_of_a_host_that_cannot_be_together_are_refused() {
    use crate::host::HostParameters;
    let platform: Platform<HostParameters> = Platform::load_as("cascade-lake").expect("it is shipped");
    for (change, word) in [
        ("controller.channels=3", "no power of two"),
        ("home.write_entries=12", "reads need one"),
        ("controller.write_low=37", "less than controller.write_high"),
        ("controller.write_high=41", "only 40 entries"),
        ("dram.interleaved_groups=8", "there are only 4"),
        ("dram.ranks=8", "at most 64 banks"),
        ("device.chunk_bytes=320bytes", "a multiple of 256 bytes"),
        ("dram.refresh_span=8us", "nothing is left"),
        ("core.line_fill_buffers=0", "too little"),
    ] {
        let error = platform.with(&[change]).expect_err(change).to_string();
        assert!(error.contains(word), "{change}: {error}");
    }
}

#[test]
fn a_machine_of_another_model_is_told_from_one_that_is_not_there() {
    let error = Platform::load("enzian").expect_err("it is no machine of sockets").to_string();
    assert!(error.contains("it is a machine of model \"eci\", and one of \"sockets\" is wanted here"), "{error}");
    let text = ECI.text_of("enzian").expect("it is shipped");
    let error = Platform::parse("mine", text, &|_| None).expect_err("it is of another model").to_string();
    assert!(error.contains("mine.toml:2: model: the file is of model \"eci\""), "{error}");
    assert_eq!((model_of("enzian").name, model_of("icx").name, model_of("none").name), ("eci", "sockets", "sockets"));
}

#[test]
fn unknown_keys_and_relations_of_an_eci_machine_are_refused() {
    use crate::eci::EciParameters;
    let text = ECI.text_of("enzian").expect("it is shipped");
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        let parsed: Result<Platform<EciParameters>, _> =
            Platform::parse_as("mine", &text.replacen(from, to, 1), &|_| None);
        parsed.expect_err(to).to_string()
    };
    assert!(refused("prefetches =", "prefetchs =").contains("did you mean core.prefetches?"));
    assert!(refused("[link]", "[interconnect]").contains("there is no such table"));
    assert!(refused("inputs.coding)", "inputs.codeing)").contains("inputs.codeing is not given"));
    assert!(refused("slices = { value = 2", "slices = { value = 4").contains("the address hash's lowest bit"));
    assert!(refused("value = 32, unit = \"KiB\"", "value = 33, unit = \"KiB\"").contains("no whole number of sets"));
}
