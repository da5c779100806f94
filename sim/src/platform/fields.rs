//! Every key of a platform file, in one table that also makes the [`Parameters`]: a field that is not in the table does
//! not compile, and a row of the table that a file leaves out does not load. A kind of machine is a [`Model`] with its own table.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::error::Faults;
use super::unit::Dimension;
use crate::link::MOST_PARTS;
use crate::machine::tags::MOST_WAYS;
use crate::parameters::{
    CacheParameters, CoreParameters, DriverParameters, EngineParameters, FpgaParameters, InterconnectParameters,
    MemoryParameters, NicParameters, NodeParameters, Parameters, PcieParameters, ProtocolParameters, RefreshParameters,
    SnoopFilterParameters, TimerParameters, UncoreParameters,
};
use crate::pcie::{MOST_TLP, is_tlp_size};

/// What a field is a number of, and in which unit it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many of them: the name of the unit.
    Count(&'static str),
    /// Cycles of the core's clock.
    Cycles,
    /// A time.
    Picoseconds,
    /// A size.
    Bytes,
    /// A clock.
    Megahertz,
    /// A rate of data.
    MegabitsPerSecond,
    /// A rate of what is counted.
    PerSecond,
    /// A part in a thousand.
    Permille,
    /// Any number.
    Ratio,
    /// Yes or no.
    Flag,
}

impl Kind {
    /// The dimension, and base units in one unit of the field.
    pub(super) fn unit(self) -> (Dimension, f64) {
        match self {
            Kind::Count(_) | Kind::Ratio | Kind::Flag => (Dimension::NONE, 1.0),
            Kind::Cycles => (Dimension::CYCLES, 1.0),
            Kind::Picoseconds => (Dimension::TIME, 1.0),
            Kind::Bytes => (Dimension::BYTES, 1.0),
            Kind::Megahertz => (Dimension::FREQUENCY, 1e-6),
            Kind::MegabitsPerSecond => (Dimension::BYTE_RATE, 1.25e-7),
            Kind::PerSecond => (Dimension::RATE, 1e-12),
            Kind::Permille => (Dimension::NONE, 1e-3),
        }
    }

    /// The name of the unit in which a field is kept; empty where it has none.
    pub const fn own_unit(self) -> &'static str {
        match self {
            Kind::Count(counted) => counted,
            Kind::Cycles => "cycles",
            Kind::Picoseconds => "ps",
            Kind::Bytes => "bytes",
            Kind::Megahertz => "MHz",
            Kind::MegabitsPerSecond => "Mb/s",
            Kind::PerSecond => "1/s",
            Kind::Permille => "permille",
            Kind::Ratio | Kind::Flag => "",
        }
    }

    /// The most that a field may have that does not say so itself, in its unit: beyond, a machine's tables would find no memory,
    /// its times no room in the numbers that they are kept in, and a cycle would be shorter than a picosecond.
    const fn most(self) -> f64 {
        match self {
            Kind::Count(_) => 65_536.0,
            Kind::Cycles | Kind::Megahertz | Kind::Ratio => 1e6,
            Kind::Picoseconds => 1e11,
            Kind::Bytes => 4_294_967_296.0,
            Kind::MegabitsPerSecond => 1e9,
            Kind::PerSecond => 1e12,
            Kind::Permille => 1e3,
            Kind::Flag => 1.0,
        }
    }

    /// Whether a relation's result may be rounded to the field's unit; what is counted must come out whole.
    pub(super) fn rounds(self) -> bool {
        !matches!(self, Kind::Count(_) | Kind::Cycles | Kind::Bytes)
    }
}

/// A key, and what may be its value.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// As in `core.cores`.
    pub key: &'static str,
    /// What it is a number of.
    pub kind: Kind,
    /// The least value, in the field's unit.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

/// A number of a type that a field may have.
trait Number: Sized {
    /// The nearest number of this type, or what the largest one is.
    fn of(number: f64) -> Result<Self, f64>;
}

/// Above this not every whole number has an `f64` of its own.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

impl Number for u64 {
    fn of(number: f64) -> Result<u64, f64> {
        if (0.0..=MOST_EXACT).contains(&number) { Ok(number.round() as u64) } else { Err(MOST_EXACT) }
    }
}

impl Number for u32 {
    fn of(number: f64) -> Result<u32, f64> {
        let most = f64::from(u32::MAX);
        if (0.0..=most).contains(&number) { Ok(number.round() as u32) } else { Err(most) }
    }
}

impl Number for f64 {
    fn of(number: f64) -> Result<f64, f64> {
        Ok(number)
    }
}

impl Number for bool {
    fn of(number: f64) -> Result<bool, f64> {
        Ok(number != 0.0)
    }
}

/// Resolved values on their way into a `Parameters`.
struct Taking<'a> {
    entries: &'a BTreeMap<String, Entry>,
    faults: &'a mut Faults,
}

impl Taking<'_> {
    fn take<T: Number>(&mut self, key: &str) -> Option<T> {
        let entry = self.entries.get(key)?;
        T::of(entry.plain)
            .map_err(|most| {
                let message = format!("{} does not fit; in the field's own unit at most {most}", entry.plain);
                self.faults.add(&entry.file, entry.line, Some(key), message);
            })
            .ok()
    }
}

/// A row of a table: its largest value is that of its kind, where it does not say another.
macro_rules! field {
    ($key:expr, $kind:expr, $least:literal) => {
        Field { key: $key, kind: $kind, least: $least, most: $kind.most() }
    };
    ($key:expr, $kind:expr, $least:literal, $most:literal) => {
        Field { key: $key, kind: $kind, least: $least, most: $most }
    };
}

macro_rules! sections {
    ($($table:ident $function:ident $section:literal $type:ident { $($field:ident: $kind:expr, $least:literal $(, $most:literal)?;)* })*) => {
        $(
            const $table: &[Field] =
                &[$(field!(concat!($section, ".", stringify!($field)), $kind, $least $(, $most)?)),*];

            fn $function(taking: &mut Taking<'_>) -> Option<$type> {
                // Every field is looked at before the first that does not fit ends it.
                $(let $field = taking.take(concat!($section, ".", stringify!($field)));)*
                Some($type { $($field: $field?),* })
            }
        )*
    };
}

use Kind::{Bytes, Count, Cycles, Flag, MegabitsPerSecond, Megahertz, PerSecond, Permille, Picoseconds, Ratio};

mod bus;
mod cxl;
mod eci;
mod host;
mod sockets;
pub use bus::BUSES;
pub use cxl::CXL;
pub use eci::ECI;
pub use host::HOST;
use sockets::{contradictions_of_home, contradictions_of_uncore};

sections! {
    CORE core "core" CoreParameters {
        cores: Count("cores"), 1.0, 4_294_967_295.0;
        frequency_megahertz: Megahertz, 1.0;
        issue_cycles: Cycles, 0.0;
        l1_hit_cycles: Cycles, 0.0;
        l2_hit_cycles: Cycles, 0.0;
        atomic_cycles: Cycles, 0.0;
        poll_exit_cycles: Cycles, 0.0;
        pause_cycles: Cycles, 0.0;
        clock_cycles: Cycles, 0.0;
        line_fill_buffers: Count("lines"), 1.0;
        store_fill_buffers: Count("lines"), 1.0;
        load_buffer: Count("loads"), 1.0;
        reorder_buffer: Count("instructions"), 1.0;
        work_instructions: Ratio, 0.1;
        store_buffer: Count("stores"), 1.0;
        write_combining_buffers: Count("buffers"), 1.0;
        work_scale: Ratio, 0.001;
        prefetch_next_line: Flag, 0.0;
        prefetch_stride: Flag, 0.0;
        prefetch_adjacent: Flag, 0.0;
    }
    CACHE cache "cache" CacheParameters {
        l1_bytes: Bytes, 64.0;
        l1_ways: Count("ways"), 1.0;
        l2_bytes: Bytes, 64.0;
        l2_ways: Count("ways"), 1.0;
        llc_bytes: Bytes, 64.0;
        llc_ways: Count("ways"), 1.0;
        device_write_ways: Count("ways"), 0.0;
    }
    NODE node "node" NodeParameters {
        core_to_home: Picoseconds, 0.0;
        home_to_core: Picoseconds, 1.0;
        home_lookup: Picoseconds, 0.0;
        home_slices: Count("slices"), 1.0;
        home_service: Picoseconds, 0.0;
        home_entries: Count("entries"), 2.0;
        home_own_entries: Count("entries"), 1.0;
        llc_read: Picoseconds, 0.0;
        snoop_lookup: Picoseconds, 0.0;
        write_latency: Picoseconds, 0.0;
    }
    SNOOP_FILTER snoop_filter "snoop_filter" SnoopFilterParameters {
        sets: Count("sets"), 1.0, 16_384.0;
        ways: Count("ways"), 1.0;
    }
    MEMORY memory "memory" MemoryParameters {
        latency: Picoseconds, 0.0;
        channels: Count("channels"), 1.0;
        line_time: Picoseconds, 1.0;
    }
    INTERCONNECT interconnect "interconnect" InterconnectParameters {
        links: Count("links"), 1.0;
        crossing: Picoseconds, 1.0;
        flit_time: Picoseconds, 1.0;
        flit_bytes: Bytes, 1.0;
        flit_slots: Count("slots"), 1.0;
        data_flits: Count("flits"), 1.0;
        data_slots: Count("slots"), 1.0;
        header_slots: Count("slots"), 1.0;
        request_credits: Count("requests"), 1.0;
    }
    UNCORE uncore "uncore" UncoreParameters {
        frequency_megahertz: Megahertz, 1.0;
        second_node_megahertz: Megahertz, 1.0;
        crossing_part: Picoseconds, 0.0;
        flit_time: Picoseconds, 0.0;
    }
    PROTOCOL protocol "protocol" ProtocolParameters {
        migratory_between_nodes: Flag, 0.0;
        migratory_within_node: Flag, 0.0;
        exclusive_grant: Flag, 0.0;
        directory_write: Flag, 0.0;
        speculative_memory_read: Flag, 0.0;
        speculative_read_penalty: Picoseconds, 0.0;
        full_line_store_without_data: Flag, 0.0;
        forwards_clean: Flag, 0.0;
        snoops_shared: Flag, 0.0;
    }
    PCIE pcie "pcie" PcieParameters {
        megabits_per_second: MegabitsPerSecond, 100.0;
        crossing: Picoseconds, 1.0;
        max_payload: Bytes, 64.0;
        max_read_request: Bytes, 64.0;
        read_completion_boundary: Bytes, 4.0;
        write_overhead: Bytes, 0.0;
        read_overhead: Bytes, 1.0;
        completion_overhead: Bytes, 0.0;
        link_layer_permille: Permille, 0.0;
        tags: Count("reads"), 1.0;
        posted_credits: Count("writes"), 1.0;
        root_to_home: Picoseconds, 0.0;
        core_to_root: Picoseconds, 0.0;
        register_read: Picoseconds, 0.0;
        uncached_store: Picoseconds, 0.0;
        write_combining_flush: Picoseconds, 0.0;
        access_bytes: Bytes, 8.0;
    }
    NIC nic "nic" NicParameters {
        packets_per_second: PerSecond, 1000.0;
        megabits_per_second: MegabitsPerSecond, 1.0;
        mlx5_rings: Flag, 0.0;
        descriptor_batch: Count("descriptors"), 1.0;
        write_back_batch: Count("descriptors"), 1.0;
        write_back_wait: Picoseconds, 0.0;
        doorbell_time: Picoseconds, 0.0;
        pipeline_time: Picoseconds, 0.0;
    }
    ENGINE engine "engine" EngineParameters {
        engines: Count("engines"), 1.0;
        lines_in_flight: Count("lines"), 1.0;
        line_time: Picoseconds, 0.0;
        start_up: Picoseconds, 0.0;
        post: Picoseconds, 0.0;
    }
    FPGA fpga "fpga" FpgaParameters {
        cycle: Picoseconds, 1.0;
        port_cycle: Picoseconds, 1.0;
        engine_time: Picoseconds, 0.0;
        receive_stage: Picoseconds, 0.0;
        receive_line: Picoseconds, 0.0;
        transmit_stage: Picoseconds, 0.0;
        transmit_line: Picoseconds, 0.0;
        loopback: Picoseconds, 0.0;
    }
    DRIVER driver "driver" DriverParameters {
        call_lines: Count("lines"), 0.0;
        page_lines: Count("lines"), 0.0;
        completion_lines: Count("lines"), 0.0;
        line_work: Cycles, 0.0;
        interrupt_work: Cycles, 0.0;
    }
    REFRESH refresh "refresh" RefreshParameters {
        interval: Picoseconds, 1.0;
        span: Picoseconds, 0.0;
    }
    TIMER timer "timer" TimerParameters {
        interval: Picoseconds, 1.0;
        span: Picoseconds, 0.0;
    }
}

/// A table of a platform file.
#[derive(Debug)]
pub struct Section {
    /// As in `[core]`.
    pub name: &'static str,
    /// Its keys.
    pub fields: &'static [Field],
    /// Whether a platform may do without it.
    pub optional: bool,
}

/// A kind of machine: what its platform files hold.
#[derive(Debug)]
pub struct Model {
    /// What a file calls it in `model = "..."`; a file without is of [`SOCKETS`].
    pub name: &'static str,
    /// Its tables, in the order in which they are shown.
    pub sections: &'static [Section],
    /// The platforms of this kind that come with the program: name and text.
    pub shipped: &'static [(&'static str, &'static str)],
    /// What some of them extend and is none by itself: name and text.
    pub parts: &'static [(&'static str, &'static str)],
}

impl Model {
    /// Every key, in order.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.sections.iter().flat_map(|section| section.fields)
    }

    /// The field of a key.
    pub fn find(&self, key: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.key == key)
    }

    /// The text of a platform that comes with the program.
    pub fn text_of(&self, name: &str) -> Option<&'static str> {
        self.shipped.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// The text of what a file may extend: a platform that comes with the program, or a part of some.
    pub fn text_to_extend(&self, name: &str) -> Option<&'static str> {
        let part = || self.parts.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        self.text_of(name).or_else(part)
    }
}

/// What a kind of machine is made of, as its platform files give it.
pub trait ParameterSet: Clone + std::fmt::Debug + PartialEq + Sized + 'static {
    /// The kind of machine.
    const MODEL: &'static Model;
    /// The parameters that the entries make; nothing where one is missing or does not fit, which `faults` then tells.
    fn build(name: &str, entries: &BTreeMap<String, Entry>, faults: &mut Faults) -> Option<Self>;
}

/// Two sockets, or a host and a device, of x86 cores.
pub const SOCKETS: &Model =
    &Model { name: "sockets", sections: SECTIONS, shipped: super::SHIPPED, parts: super::PARTS };

impl ParameterSet for Parameters {
    const MODEL: &'static Model = SOCKETS;
    fn build(name: &str, entries: &BTreeMap<String, Entry>, faults: &mut Faults) -> Option<Parameters> {
        build(name, entries, faults)
    }
}

/// The sections, in the order in which they are shown.
const SECTIONS: &[Section] = &[
    Section { name: "core", fields: CORE, optional: false },
    Section { name: "cache", fields: CACHE, optional: false },
    Section { name: "node", fields: NODE, optional: false },
    Section { name: "snoop_filter", fields: SNOOP_FILTER, optional: true },
    Section { name: "memory", fields: MEMORY, optional: false },
    Section { name: "interconnect", fields: INTERCONNECT, optional: false },
    Section { name: "uncore", fields: UNCORE, optional: true },
    Section { name: "protocol", fields: PROTOCOL, optional: false },
    Section { name: "pcie", fields: PCIE, optional: true },
    Section { name: "nic", fields: NIC, optional: true },
    Section { name: "engine", fields: ENGINE, optional: true },
    Section { name: "fpga", fields: FPGA, optional: true },
    Section { name: "driver", fields: DRIVER, optional: true },
    Section { name: "refresh", fields: REFRESH, optional: true },
    Section { name: "timer", fields: TIMER, optional: true },
];

/// The parameters that the entries make; nothing where one is missing or does not fit, which `faults` then tells.
fn build(name: &str, entries: &BTreeMap<String, Entry>, faults: &mut Faults) -> Option<Parameters> {
    let has = |section: &str| entries.keys().any(|key| key.starts_with(section));
    let (has_pcie, has_nic, has_engine) = (has("pcie."), has("nic."), has("engine."));
    let (has_fpga, has_driver) = (has("fpga."), has("driver."));
    let (has_refresh, has_timer, has_uncore) = (has("refresh."), has("timer."), has("uncore."));
    let has_filter = has("snoop_filter.");
    let mut taking = Taking { entries, faults };
    let (core, cache, node) = (core(&mut taking), cache(&mut taking), node(&mut taking));
    let (memory, interconnect, protocol) = (memory(&mut taking), interconnect(&mut taking), protocol(&mut taking));
    let (pcie, nic, engine) = (pcie(&mut taking), nic(&mut taking), engine(&mut taking));
    let (fpga, driver) = (fpga(&mut taking), driver(&mut taking));
    let (refresh, timer, uncore) = (refresh(&mut taking), timer(&mut taking), uncore(&mut taking));
    let snoop_filter = snoop_filter(&mut taking);
    if has_pcie && pcie.is_none() || has_nic && nic.is_none() || has_engine && engine.is_none() {
        return None;
    }
    if has_fpga && fpga.is_none() || has_driver && driver.is_none() || has_filter && snoop_filter.is_none() {
        return None;
    }
    if has_refresh && refresh.is_none() || has_timer && timer.is_none() || has_uncore && uncore.is_none() {
        return None;
    }
    let parameters = Parameters {
        name: name.to_string(),
        core: core?,
        cache: cache?,
        node: node?,
        snoop_filter,
        memory: memory?,
        interconnect: interconnect?,
        uncore,
        protocol: protocol?,
        pcie,
        nic,
        engine,
        fpga,
        driver,
        refresh,
        timer,
    };
    tell_of(contradictions(&parameters), name, entries, faults);
    Some(parameters)
}

/// Adds values that cannot be together to the faults, each where its key stands; a key that stands nowhere, to the platform.
fn tell_of(
    contradictions: Vec<(&'static str, String)>,
    name: &str,
    entries: &BTreeMap<String, Entry>,
    faults: &mut Faults,
) {
    for (key, message) in contradictions {
        let entry = entries.get(key);
        let (file, line) = entry.map_or((name, None), |entry| (entry.file.as_str(), entry.line));
        faults.add(file, line, Some(key), message);
    }
}

/// Why a cache of so many bytes and ways cannot be.
fn fault_of_cache(bytes: u64, ways: u32) -> Option<String> {
    if ways > MOST_WAYS {
        return Some(format!("the simulator's caches have {MOST_WAYS} ways at most, not {ways}"));
    }
    (!bytes.is_multiple_of(64 * u64::from(ways)))
        .then(|| format!("{bytes} bytes are no whole number of sets of {ways} lines of 64 bytes"))
}

/// Values of a host's caches that cannot be together.
fn contradictions_of_cache(cache: &CacheParameters, found: &mut Vec<(&'static str, String)>) {
    let keys = [
        ("cache.l1_bytes", "cache.l1_ways"),
        ("cache.l2_bytes", "cache.l2_ways"),
        ("cache.llc_bytes", "cache.llc_ways"),
    ];
    for ((of_bytes, of_ways), (bytes, ways)) in keys.into_iter().zip(cache.sizes()) {
        let key = if ways > MOST_WAYS { of_ways } else { of_bytes };
        found.extend(fault_of_cache(bytes, ways).map(|fault| (key, fault)));
    }
    if cache.device_write_ways > cache.llc_ways {
        found.push(("cache.device_write_ways", format!("there are only {} ways (cache.llc_ways)", cache.llc_ways)));
    }
}

/// Why something cannot take `span` of every `interval`, in picoseconds.
fn fault_of_span(interval: u64, span: u64) -> Option<String> {
    (span >= interval).then(|| format!("nothing is left of an interval of {interval} ps; give less"))
}

/// A refresh that leaves nothing of its memory.
fn contradictions_of_refresh(
    key: &'static str,
    refresh: Option<&RefreshParameters>,
    found: &mut Vec<(&'static str, String)>,
) {
    found.extend(refresh.and_then(|one| fault_of_span(one.interval, one.span)).map(|fault| (key, fault)));
}

/// Values of a PCIe link that cannot be together.
fn contradictions_of_pcie(pcie: &PcieParameters, found: &mut Vec<(&'static str, String)>) {
    if !pcie.access_bytes.is_power_of_two() || pcie.access_bytes > 64 {
        found.push(("pcie.access_bytes", "an access has 8, 16, 32 or 64 bytes".to_string()));
    }
    if pcie.link_layer_permille >= 1000 {
        found.push(("pcie.link_layer_permille", "nothing of the link is left for data; give less".to_string()));
    }
    for (key, size) in [
        ("pcie.max_payload", pcie.max_payload),
        ("pcie.max_read_request", pcie.max_read_request),
        ("pcie.read_completion_boundary", pcie.read_completion_boundary),
    ] {
        if !is_tlp_size(size) {
            found.push((key, format!("{size} bytes are no size of a TLP: give a power of two from 64 to {MOST_TLP}")));
        }
    }
    if !pcie.max_payload.is_multiple_of(pcie.read_completion_boundary) {
        let message = format!("{} bytes are no multiple of pcie.read_completion_boundary", pcie.max_payload);
        found.push(("pcie.max_payload", message));
    }
}

/// Lines that are shared out to more parts than there can be.
fn contradictions_of_parts(parts: &[(&'static str, u32, &str)], found: &mut Vec<(&'static str, String)>) {
    for (key, number, name) in parts {
        if *number > MOST_PARTS {
            found.push((key, format!("lines are shared out to at most {MOST_PARTS} {name}")));
        }
    }
}

/// Values that cannot be together, by the key to change.
fn contradictions(parameters: &Parameters) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    contradictions_of_cache(&parameters.cache, &mut found);
    if parameters.core.pause_cycles == 0 && parameters.core.l1_hit_cycles == 0 {
        let message = "a round of polling would take no time, as core.l1_hit_cycles is 0 too; give one of them a cycle";
        found.push(("core.pause_cycles", message.to_string()));
    }
    let link = &parameters.interconnect;
    let parts = [
        ("node.home_slices", parameters.node.home_slices, "slices"),
        ("memory.channels", parameters.memory.channels, "channels"),
        ("interconnect.links", link.links, "links"),
    ];
    contradictions_of_parts(&parts, &mut found);
    let slots = u64::from(link.data_flits) * u64::from(link.flit_slots);
    if u64::from(link.data_slots) > slots {
        let flits = link.data_flits;
        found.push(("interconnect.data_slots", format!("a line's {flits} flits (data_flits) have only {slots} slots")));
    }
    if link.header_slots > link.flit_slots {
        let message = format!("a flit has only {} slots (interconnect.flit_slots)", link.flit_slots);
        found.push(("interconnect.header_slots", message));
    }
    contradictions_of_home(parameters, &mut found);
    contradictions_of_uncore(parameters, &mut found);
    contradictions_of_refresh("refresh.span", parameters.refresh.as_ref(), &mut found);
    if let Some(TimerParameters { interval, span }) = parameters.timer {
        found.extend(fault_of_span(interval, span).map(|fault| ("timer.span", fault)));
    }
    if let Some(pcie) = &parameters.pcie {
        contradictions_of_pcie(pcie, &mut found);
    } else if parameters.nic.is_some() {
        found.push(("nic.packets_per_second", "a NIC stands behind a PCIe link: add a [pcie] table".to_string()));
    }
    found
}
