//! What is written down: every message once, under its cause, with the owners meanwhile; and that it changes nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Line, StateHint, Time};
use conic_sim::Role;
use conic_sim::cxl::{Counters, CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::probe::holding::holdings;
use conic_sim::probe::{MessageRecord, Recording};
use conic_sim::protocol::cxl::Bias;

use super::random::observed_run;
use super::{Places, between_refreshes, machine, places};

/// When the device begins; what the core has done before is over.
const BEGIN: u64 = 10_000;

/// What a core does first, and then the device: how long the device took, what was written down from then on, and all.
struct Case {
    took: u64,
    messages: Vec<MessageRecord>,
    all: Recording,
    counters: Counters,
}

fn case(
    parameters: &CxlParameters,
    before: impl Fn(&CxlCore<'_>, Places) + 'static,
    device: impl Fn(&CxlDevice<'_>, Places) + 'static,
) -> Case {
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    let taken = Rc::new(RefCell::new(Time::ZERO));
    simulation.core("host", Role::Main, move |core| before(core, places));
    let into = Rc::clone(&taken);
    simulation.device("engine", Role::Main, move |engine| {
        engine.wait_until(Time::from_nanoseconds(BEGIN));
        device(engine, places);
        engine.await_writes();
        *into.borrow_mut() = engine.now().since(Time::from_nanoseconds(BEGIN));
        // A push is over when its data has left.
        engine.wait_until(engine.now() + Time::from_nanoseconds(1_000));
    });
    simulation.machine().borrow_mut().record(10_000);
    simulation.run().expect("it ends");
    let mut machine = simulation.machine().borrow_mut();
    let (all, counters) = (machine.take_recording().expect("it was asked for"), machine.counters.clone());
    let begins = Time::from_nanoseconds(BEGIN);
    let messages = all.messages.iter().filter(|message| message.sent >= begins).copied().collect();
    Case { took: taken.borrow().picoseconds(), messages, all, counters }
}

impl Case {
    /// Each message's name and way.
    fn hops(&self) -> Vec<(&'static str, String)> {
        let way = |one: &MessageRecord| format!("{} -> {}", self.all.place(one.from), self.all.place(one.to));
        self.messages.iter().map(|one| (one.name, way(one))).collect()
    }

    /// That these are the messages from the device's beginning on.
    fn is(&self, hops: &[(&'static str, &str)]) {
        assert_eq!(self.hops(), hops.iter().map(|(name, way)| (*name, (*way).to_owned())).collect::<Vec<_>>());
        follows_causes(&self.all);
    }

    /// That one message after the other, from the first to the last, takes these times with these between them, and all together what
    /// the device took.
    fn takes(&self, times: &[(u64, u64)]) {
        let mut at = self.messages[0].sent.picoseconds();
        for (message, (takes, then)) in self.messages.iter().zip(times) {
            assert_eq!((message.sent.picoseconds(), message.arrives.picoseconds()), (at, at + takes), "{message:?}");
            at += takes + then;
        }
        assert_eq!(at - self.messages[0].sent.picoseconds(), self.took, "{:?}", self.hops());
    }

    /// Who owned a line, one after the other.
    fn owners(&self, name: &str) -> Vec<String> {
        let held = holdings(&self.all);
        let of_line = held.iter().filter(|(line, _)| self.all.line(**line) == name).flat_map(|(_, held)| held);
        of_line.map(|holding| holding.label(&self.all)).collect()
    }
}

/// A line of the host's memory that the core has modified.
fn modified(core: &CxlCore<'_>, places: Places) {
    core.write_line(places.host, &Line([1; 8]));
    core.full_fence();
}

fn read(hint: StateHint) -> impl Fn(&CxlDevice<'_>, Places) {
    move |device, places| device.read(places.host, &mut [0; 64], hint)
}

#[test]
fn an_nc_read_of_a_line_that_a_core_modified_is_six_messages_and_takes_no_copy_away() {
    let p = between_refreshes("agilex7");
    let found = case(&p, modified, read(StateHint::NonCacheable));
    found.is(&[
        ("NC-read", "engine -> DCOH"),
        ("RdCurr", "DCOH -> host home"),
        ("SnoopCurrent", "host home -> core 0"),
        ("FoundModified", "core 0 -> host home"),
        ("Data", "host home -> DCOH"),
        ("Data", "DCOH -> engine"),
    ]);
    let wire = |quarters: u32| u64::from(quarters) * p.link.quarter_time + p.link.crossing;
    found.takes(&[
        (p.dcoh.hit / 2, p.dcoh.miss - p.dcoh.hit / 2),
        (wire(p.link.device_request_quarters), p.host.home_lookup),
        (p.host.home_to_core, p.host.snoop_lookup),
        (p.host.core_to_home, 0),
        (wire(p.link.data_header_quarters + p.link.line_quarters), 0),
        (p.dcoh.completion, 0),
    ]);
    assert_eq!(found.owners("host 0"), ["M@core 0"]);
    let wait = found.all.spans.last().expect("the engine waited");
    assert_eq!(
        (wait.name, wait.line, wait.ends.since(wait.begins).picoseconds()),
        ("wait for a read", Some(0), found.took)
    );
}

#[test]
fn a_read_of_memory_waits_for_memory_and_finds_its_copy_the_next_time() {
    let p = between_refreshes("agilex7");
    let found = case(
        &p,
        |_, _| (),
        |device, places| {
            device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
            device.read(places.host, &mut [0; 64], StateHint::NonCacheable);
        },
    );
    found.is(&[
        ("CS-read", "engine -> DCOH"),
        ("RdShared", "DCOH -> host home"),
        ("MemoryRead", "host home -> host memory"),
        ("MemoryData", "host memory -> host home"),
        ("GO-S, Data", "host home -> DCOH"),
        ("Data", "DCOH -> engine"),
        ("NC-read", "engine -> DCOH"),
        ("Data", "DCOH -> engine"),
    ]);
    let wire = |quarters: u32| u64::from(quarters) * p.link.quarter_time + p.link.crossing;
    let granted = wire(p.link.answer_quarters + p.link.data_header_quarters + p.link.line_quarters);
    found.takes(&[
        (p.dcoh.hit / 2, p.dcoh.miss - p.dcoh.hit / 2),
        (wire(p.link.device_request_quarters), p.host.home_lookup),
        (0, 0),
        (p.memory.latency, 0),
        (granted, p.dcoh.install),
        (p.dcoh.completion, 0),
        (p.dcoh.hit / 2, 0),
        (p.dcoh.hit - p.dcoh.hit / 2, 0),
    ]);
    assert_eq!(found.owners("host 0"), ["S@HMC"]);
}

#[test]
fn a_line_that_the_device_owns_has_left_the_core() {
    let p = between_refreshes("agilex7");
    let found = case(&p, modified, read(StateHint::CacheableOwned));
    let names: Vec<&str> = found.messages.iter().map(|message| message.name).collect();
    assert_eq!(names, ["CO-read", "RdOwn", "SnoopInvalidate", "FoundModified", "GO-M, Data", "Data"]);
    assert_eq!(found.owners("host 0"), ["M@core 0", "I", "M@HMC"]);
    follows_causes(&found.all);
}

#[test]
fn an_nc_write_is_pulled_while_the_core_is_snooped_and_done_after_its_data() {
    let p = between_refreshes("agilex7");
    let found = case(&p, modified, |device, places| device.write(places.host, &[2; 64], StateHint::NonCacheable));
    found.is(&[
        ("NC-write", "engine -> DCOH"),
        ("WOWrInvF", "DCOH -> host home"),
        ("SnoopInvalidate", "host home -> core 0"),
        ("FoundModified", "core 0 -> host home"),
        ("ExtFastGO_WritePull", "host home -> DCOH"),
        ("Data", "DCOH -> host home"),
        ("MemoryWrite", "host home -> host memory"),
        ("ExtCmp", "host home -> DCOH"),
        ("Done", "DCOH -> engine"),
    ]);
    // The pull and the snoop have the request as their cause, and the completion the data.
    let named = |name: &str| found.all.messages.iter().position(|message| message.name == name);
    let cause = |name: &str| found.all.cause_of(named(name).expect("it was sent"));
    assert_eq!([cause("ExtFastGO_WritePull"), cause("SnoopInvalidate")], [named("WOWrInvF"); 2]);
    assert_eq!(cause("ExtCmp").map(|cause| found.all.messages[cause].name), Some("Data"));
    assert_eq!(found.owners("host 0"), ["M@core 0", "I"]);
    // Where the core takes longer than the data, its answer is what the completion waits for.
    let mut slow = p;
    slow.host.snoop_lookup = 1_000_000;
    let found = case(&slow, modified, |device, places| device.write(places.host, &[2; 64], StateHint::NonCacheable));
    let completion = found.all.messages.iter().position(|message| message.name == "ExtCmp").expect("it was sent");
    let cause = found.all.cause_of(completion).expect("it has one");
    assert_eq!(found.all.messages[cause].name, "FoundModified");
    follows_causes(&found.all);
}

#[test]
fn a_push_is_in_the_last_level_cache_and_what_the_device_evicts_says_so() {
    let mut p = between_refreshes("agilex7");
    let pushed = case(&p, |_, _| (), |device, places| device.write(places.host, &[2; 64], StateHint::NonCacheablePush));
    let names: Vec<&str> = pushed.messages.iter().map(|message| message.name).collect();
    assert_eq!(names, ["NC-P", "ItoMWr", "GO_WritePull", "Done", "Data"]);
    assert_eq!(pushed.owners("host 0"), ["M@last-level cache"]);
    // A cache of two lines loses one to the third: the clean one as it is, the modified one with its data.
    (p.dcoh.hmc_bytes, p.dcoh.hmc_ways) = (128, 2);
    let evicted = case(
        &p,
        |_, _| (),
        |device, places| {
            device.write(places.host, &[2; 64], StateHint::CacheableOwned);
            for line in 1..4 {
                device.read(places.host.lines(line), &mut [0; 64], StateHint::CacheableShared);
            }
        },
    );
    let of = |line: u64| -> Vec<&str> {
        let of_line = evicted.messages.iter().filter(|message| message.line == line);
        of_line
            .map(|message| message.name)
            .skip_while(|name| !name.ends_with("Evict") && !name.starts_with("CleanE"))
            .collect()
    };
    assert_eq!(of(0), ["DirtyEvict", "GO_WritePull", "Data", "MemoryWrite"]);
    assert_eq!(of(1), ["CleanEvictNoData", "GO-I"]);
    assert_eq!(evicted.owners("host 0"), ["M@HMC", "I"]);
    follows_causes(&evicted.all);
}

#[test]
fn a_core_that_loads_what_the_device_has_modified_snoops_it() {
    let p = between_refreshes("agilex7");
    let found = case(
        &p,
        |core, places| {
            core.wait_until(Time::from_nanoseconds(2 * BEGIN));
            core.load(places.host);
        },
        |device, places| device.write(places.host, &[2; 64], StateHint::CacheableOwned),
    );
    let names: Vec<&str> =
        found.messages.iter().map(|message| message.name).skip_while(|name| *name != "Read").collect();
    // Memory is read beside, for nothing.
    let expected = ["Read", "SnpData", "MemoryRead", "MemoryData", "RspSFwdM, Data", "MemoryWrite", "GrantShared"];
    let sorted = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<&str>>();
    assert_eq!(sorted(&names), sorted(&expected));
    assert_eq!(names.len(), expected.len());
    assert_eq!(found.owners("host 0"), ["M@HMC", "S@HMC", "S@HMC+core 0"]);
    follows_causes(&found.all);
}

#[test]
fn device_memory_is_asked_for_over_the_link_by_cores_and_in_host_bias_by_the_device() {
    let p = between_refreshes("agilex7");
    let write = |core: &CxlCore<'_>, places: Places| core.write_line(places.device, &Line([1; 8]));
    let host_bias = case(&p, write, |device, places| device.read(places.device, &mut [0; 64], StateHint::NonCacheable));
    let all: Vec<&str> = host_bias.all.messages.iter().map(|message| message.name).collect();
    assert_eq!(
        all[..6],
        ["ReadForOwnership", "MemRd, SnpInv", "MemoryRead", "MemoryData", "MemData, Cmp-E", "GrantExclusive"]
    );
    let names: Vec<&str> = host_bias.messages.iter().map(|message| message.name).collect();
    let written_back =
        ["NC-read", "RdCurr", "SnoopInvalidate", "FoundModified", "MemWr", "MemoryWrite", "Cmp", "MemRdFwd", "Data"];
    assert_eq!(names, written_back);
    assert_eq!(host_bias.owners("device 0"), ["M@core 0", "I", "S@DMC"]);
    // In device-bias the same read asks nobody; the switch before it has the host give the line up.
    let device_bias = case(&p, write, |device, places| {
        device.switch_bias(places.device, 64, Bias::Device, true);
        device.read(places.device, &mut [0; 64], StateHint::NonCacheable);
    });
    let names: Vec<&str> = device_bias.messages.iter().map(|message| message.name).collect();
    let after = names.iter().position(|name| *name == "NC-read, device-bias").expect("it is read");
    assert_eq!(names[..2], ["flush of the host", "CLFlush"]);
    assert_eq!(names[after..], ["NC-read, device-bias", "MemoryRead", "MemoryData", "Data"]);
    assert!(device_bias.all.spans.iter().any(|span| span.name == "switch to device-bias"));
    [host_bias, device_bias].iter().for_each(|found| follows_causes(&found.all));
}

#[test]
fn dma_and_a_doorbell_are_followed_over_every_hop() {
    let p = between_refreshes("bf3");
    let found = case(
        &p,
        |core, places| {
            core.register_write(places.register, 1);
            core.write_line(places.host, &Line([1; 8]));
        },
        |device, places| {
            let dma = device.dma();
            dma.read(places.host, &mut [0; 64], StateHint::NonCacheable);
            dma.write(places.host, &[2; 64], StateHint::NonCacheable);
        },
    );
    let all: Vec<&str> = found.all.messages.iter().take(2).map(|message| message.name).collect();
    assert_eq!(all, ["MMIO write", "MMIO write"]);
    found.is(&[
        ("DMA read", "engine -> PCIe endpoint"),
        ("MRd", "PCIe endpoint -> root port"),
        ("ReadCurrent", "root port -> host home"),
        ("SnoopCurrent", "host home -> core 0"),
        ("FoundModified", "core 0 -> host home"),
        ("LineData", "host home -> root port"),
        ("CplD", "root port -> PCIe endpoint"),
        ("DMA write", "engine -> PCIe endpoint"),
        ("MWr", "PCIe endpoint -> root port"),
        ("WriteCache", "root port -> host home"),
        ("SnoopInvalidate", "host home -> core 0"),
        ("FoundModified", "core 0 -> host home"),
    ]);
    assert_eq!(found.counters.messages.of("MRd"), 1);
    assert_eq!(found.owners("host 0"), ["E@core 0", "M@core 0", "M@last-level cache"]);
}

/// What [`Counters`] call a message on the CXL link, or a TLP; of those that two call alike, the way tells.
fn kind_of(name: &str) -> &'static str {
    match name {
        "WOWrInvF" | "WOWrInv" => "WOWrInv",
        "CleanEvictNoData" => "CleanEvict",
        "RspIFwdM, Data" | "RspSFwdM, Data" | "RspVFwdV, Data" => "RspFwd, data",
        "RspI" | "RspSHitSE" | "RspVHitV" => "Rsp",
        "Data" | "Data, bogus" => "data",
        "MemData, Cmp-E" | "MemData, Cmp-S" => "MemData",
        "SnpCur" | "SnpData" | "SnpInv" => "Snp",
        "GO-S, Data" | "GO-E, Data" | "GO-M, Data" => "GO, data",
        "GO-S" | "GO-E" | "GO-M" => "GO",
        "ExtFastGO_WritePull" | "GO_WritePull" => "GO_WritePull",
        "ExtCmp" | "GO-I" => "ExtCmp",
        "MemRd, SnpInv" | "MemRd, SnpData" => "MemRd",
        "MemWr" | "MemWrPtl" => "MemWr",
        "MemRdFwd" | "MemWrFwd" => "MemFwd",
        "RdCurr" => "RdCurr",
        "RdShared" => "RdShared",
        "RdOwn" => "RdOwn",
        "RdOwnNoData" => "RdOwnNoData",
        "ItoMWr" => "ItoMWr",
        "DirtyEvict" => "DirtyEvict",
        "CLFlush" => "CLFlush",
        "Cmp" => "Cmp",
        "MRd" => "MRd",
        "MWr" => "MWr",
        "CplD" => "CplD",
        other => panic!("{other} is no message on the CXL link, and no TLP"),
    }
}

/// That causes go before what they cause, and end where that begins.
fn follows_causes(recording: &Recording) {
    assert_eq!(recording.dropped, 0);
    let place = |message: &MessageRecord| [recording.place(message.from), recording.place(message.to)];
    for (number, message) in recording.messages.iter().enumerate() {
        assert!(message.sent <= message.arrives, "{message:?}");
        let [from, _] = place(message);
        let Some(cause) = message.cause else {
            // A core that gives up a line for one that it has asked nobody for.
            let gives_up = from == "host home" && ["MemWr", "MemoryWrite"].contains(&message.name);
            assert!(message.asks || gives_up, "{message:?} has no cause");
            continue;
        };
        let cause = recording.cause_of(number).unwrap_or_else(|| panic!("{cause:?} of {message:?} is behind it"));
        let cause = &recording.messages[cause];
        assert!(cause.arrives <= message.sent, "{message:?} after {cause:?}");
        let [_, to] = place(cause);
        // What a cache gives up for a line that has come: the last level through the home agents.
        let is_other = cause.line != message.line;
        let gives_up =
            is_other && (from == "host home" || message.name == "MemoryWrite" || message.name.contains("Evict"));
        let is_there = to == from || (to == "host home" && from == "last-level cache");
        assert!(is_there || message.asks || (gives_up && from == "host home"), "{message:?} after {cause:?}");
        assert!(!is_other || message.asks || gives_up, "{message:?} after {cause:?}");
    }
}

/// That a line which one cache may write no other has.
fn has_one_writer(recording: &Recording) {
    for (line, held) in holdings(recording) {
        for holding in held {
            let may = holding.holders.iter().filter(|(place, state)| {
                // What cores share is perhaps newer than memory in the last-level cache.
                let last_level = recording.place(*place) == "last-level cache";
                matches!(state, 'M' | 'E') && !(last_level && holding.holders.iter().all(|(_, other)| *other != 'E'))
            });
            assert!(may.count() == 0 || holding.holders.len() == 1, "{line}: {}", holding.label(recording));
        }
    }
}

#[test]
fn what_is_written_down_is_all_that_was_sent_and_changes_nothing() {
    let mut small = machine("agilex7");
    (small.dcoh.hmc_bytes, small.dcoh.hmc_ways) = (128, 2);
    (small.dcoh.dmc_bytes, small.dcoh.dmc_ways) = (128, 2);
    (small.cache.l1_bytes, small.cache.l1_ways) = (128, 2);
    (small.cache.l2_bytes, small.cache.l2_ways) = (128, 2);
    (small.cache.llc_bytes, small.cache.llc_ways) = (256, 4);
    for (parameters, seed) in
        (1..6).map(|seed| (machine("agilex7"), seed)).chain((6..12).map(|seed| (small.clone(), seed)))
    {
        let plain = observed_run(&parameters, seed, |_| ());
        let looked_at = observed_run(&parameters, seed, |machine| machine.record(usize::MAX));
        let mut machine = looked_at.machine().borrow_mut();
        let plain = plain.machine().borrow();
        assert_eq!((&machine.counters, machine.now()), (&plain.counters, plain.now()), "seed {seed}");
        let recording = machine.take_recording().expect("it was asked for");
        let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
        let links = [("DCOH", "host home"), ("PCIe endpoint", "root port")];
        for message in &recording.messages {
            let [from, to] = [message.from, message.to].map(|place| recording.place(place));
            let (from, to) = (from.as_str(), to.as_str());
            if links.contains(&(from, to)) || links.contains(&(to, from)) {
                *counted.entry(kind_of(message.name)).or_default() += 1;
            }
        }
        let expected: BTreeMap<&str, u64> = machine.counters.messages.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, expected, "seed {seed}");
        follows_causes(&recording);
        has_one_writer(&recording);
        assert!(recording.levels.last().is_some_and(|level| level.inside == 0), "nothing is left on the link");
    }
}

#[test]
fn a_recording_that_is_full_counts_what_it_leaves_out() {
    let whole = case(&machine("agilex7"), modified, read(StateHint::NonCacheable)).all;
    let records = whole.messages.len() + whole.spans.len() + whole.ownership.len();
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(&machine("agilex7"), &layout);
    simulation.core("host", Role::Main, move |core| modified(core, places));
    simulation.device("engine", Role::Main, move |engine| {
        engine.wait_until(Time::from_nanoseconds(BEGIN));
        engine.read(places.host, &mut [0; 64], StateHint::NonCacheable);
    });
    simulation.machine().borrow_mut().record(records - 3);
    simulation.run().expect("it ends");
    let cut = simulation.machine().borrow_mut().take_recording().expect("it was asked for");
    assert_eq!(cut.dropped, 3);
    assert_eq!(cut.line(places.host.0 / 64), "host 0");
    let _: Address = places.register;
}
