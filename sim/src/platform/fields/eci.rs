//! The tables of a CPU and a device that is home to coherent lines.

use std::collections::BTreeMap;

use super::{
    Bytes, Count, Cycles, Entry, Faults, Field, Flag, Megahertz, Model, ParameterSet, Picoseconds, Section, Taking,
    tell_of,
};
use crate::eci::parameters::{
    EciCacheParameters, EciCoreParameters, EciDeviceParameters, EciDirectoryParameters, EciLinkParameters,
    EciSoftwareParameters,
};
use crate::eci::{EciParameters, MOST_LINE_BYTES};

sections! {
    CORE core "core" EciCoreParameters {
        cores: Count("cores"), 1.0;
        frequency_megahertz: Megahertz, 1.0;
        issue_cycles: Cycles, 0.0;
        access_bytes: Bytes, 8.0;
        l1_hit_cycles: Cycles, 0.0;
        store_buffer: Count("stores"), 1.0;
        prefetches: Count("lines"), 1.0;
    }
    CACHE cache "cache" EciCacheParameters {
        line_bytes: Bytes, 64.0;
        l1_bytes: Bytes, 64.0;
        l1_ways: Count("ways"), 1.0;
        core_to_l2: Picoseconds, 0.0;
        l2_to_core: Picoseconds, 0.0;
        store_interval: Picoseconds, 0.0;
        recall_lookup: Picoseconds, 0.0;
        writes_back_first: Flag, 0.0;
        transaction_units: Count("units"), 1.0;
        unit_transactions: Count("requests"), 1.0;
        patience: Picoseconds, 1.0, 1e14;
    }
    LINK link "link" EciLinkParameters {
        links: Count("links"), 1.0;
        crossing: Picoseconds, 1.0;
        word_bytes: Bytes, 1.0;
        word_time: Picoseconds, 1.0;
        line_words: Count("words"), 1.0;
    }
    DIRECTORY directory "directory" EciDirectoryParameters {
        slices: Count("slices"), 1.0;
        units: Count("units"), 1.0;
        transactions: Count("requests"), 1.0;
        pass: Picoseconds, 0.0;
        header_time: Picoseconds, 0.0;
        line_time: Picoseconds, 0.0;
    }
    DEVICE device "device" EciDeviceParameters {
        cycle: Picoseconds, 1.0;
        message_time: Picoseconds, 0.0;
        timer_resolution: Picoseconds, 1.0;
        nic_cycle: Picoseconds, 1.0;
        nic_crossing: Picoseconds, 0.0;
        nic_crossing_interval: Picoseconds, 0.0;
        port_cycle: Picoseconds, 1.0;
        hash_latency: Cycles, 1.0;
        hash_interval: Cycles, 1.0;
        filter_latency: Cycles, 1.0;
        receive_stage: Picoseconds, 0.0;
        receive_line: Picoseconds, 0.0;
        transmit_stage: Picoseconds, 0.0;
        transmit_line: Picoseconds, 0.0;
    }
    SOFTWARE software "software" EciSoftwareParameters {
        batch: Picoseconds, 0.0;
        operator: Picoseconds, 0.0;
        stand_in: Picoseconds, 0.0;
        record: Picoseconds, 0.0;
        bloom_element: Picoseconds, 0.0;
    }
}

/// A CPU and a device over ECI.
pub const ECI: &Model = &Model {
    name: "eci",
    sections: &[
        Section { name: "core", fields: CORE, optional: false },
        Section { name: "cache", fields: CACHE, optional: false },
        Section { name: "link", fields: LINK, optional: false },
        Section { name: "directory", fields: DIRECTORY, optional: false },
        Section { name: "device", fields: DEVICE, optional: false },
        Section { name: "software", fields: SOFTWARE, optional: false },
    ],
    shipped: super::super::SHIPPED_ECI,
    parts: &[],
};

impl ParameterSet for EciParameters {
    const MODEL: &'static Model = ECI;

    fn build(name: &str, entries: &BTreeMap<String, Entry>, faults: &mut Faults) -> Option<EciParameters> {
        let mut taking = Taking { entries, faults };
        let (core, cache, link) = (core(&mut taking), cache(&mut taking), link(&mut taking));
        let (directory, device, software) = (directory(&mut taking), device(&mut taking), software(&mut taking));
        let parameters = EciParameters {
            name: name.to_string(),
            core: core?,
            cache: cache?,
            link: link?,
            directory: directory?,
            device: device?,
            software: software?,
        };
        tell_of(contradictions(&parameters), name, entries, faults);
        Some(parameters)
    }
}

/// Values that cannot be together, by the key to change.
fn contradictions(parameters: &EciParameters) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let (cache, directory, link) = (&parameters.cache, &parameters.directory, &parameters.link);
    if !cache.line_bytes.is_power_of_two() || cache.line_bytes > MOST_LINE_BYTES {
        let message = format!("a line has 64 or {MOST_LINE_BYTES} bytes, not {}", cache.line_bytes);
        return vec![("cache.line_bytes", message)];
    }
    let sets = cache.l1_bytes / cache.line_bytes / u64::from(cache.l1_ways);
    if sets == 0 || !cache.l1_bytes.is_multiple_of(cache.line_bytes * u64::from(cache.l1_ways)) {
        let message = format!(
            "{} bytes are no whole number of sets of {} lines of {} bytes",
            cache.l1_bytes, cache.l1_ways, cache.line_bytes
        );
        found.push(("cache.l1_bytes", message));
    }
    if directory.slices > 2 {
        found.push(("directory.slices", "the address hash's lowest bit is the slice: give 1 or 2".to_string()));
    }
    if !directory.units.is_power_of_two() || directory.units > 32 {
        found.push((
            "directory.units",
            "five bits of the address hash are the unit: give 1, 2, 4, 8, 16 or 32".to_string(),
        ));
    }
    if link.links > crate::link::MOST_PARTS {
        found.push(("link.links", format!("there are at most {} links", crate::link::MOST_PARTS)));
    }
    found
}
