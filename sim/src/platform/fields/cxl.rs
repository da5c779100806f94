//! The tables of a host and a device behind a CXL or a PCIe link.

use std::collections::BTreeMap;

use super::{
    Bytes, Count, Cycles, Entry, Faults, Field, MEMORY, Megahertz, Model, PCIE, ParameterSet, Picoseconds, Ratio,
    Section, Taking, memory, pcie,
};
use crate::cxl::CxlParameters;
use crate::cxl::parameters::{
    CxlDeviceParameters, CxlLinkParameters, DcohParameters, DmaParameters, HostCacheParameters, HostCoreParameters,
    HostParameters, SoftwareParameters,
};
use crate::machine::tags::MOST_WAYS;
use crate::parameters::MemoryParameters;

sections! {
    CORE core "core" HostCoreParameters {
        cores: Count("cores"), 1.0;
        frequency_megahertz: Megahertz, 1.0;
        issue_cycles: Cycles, 0.0;
        l1_hit_cycles: Cycles, 0.0;
        l2_hit_cycles: Cycles, 0.0;
        atomic_cycles: Cycles, 0.0;
        line_fill_buffers: Count("lines"), 1.0;
        store_buffer: Count("stores"), 1.0;
        write_combining_buffers: Count("buffers"), 1.0;
        work_scale: Ratio, 0.001;
    }
    CACHE cache "cache" HostCacheParameters {
        l1_bytes: Bytes, 64.0;
        l1_ways: Count("ways"), 1.0;
        l2_bytes: Bytes, 64.0;
        l2_ways: Count("ways"), 1.0;
        llc_bytes: Bytes, 64.0;
        llc_ways: Count("ways"), 1.0;
        device_write_ways: Count("ways"), 1.0;
    }
    HOST host "host" HostParameters {
        core_to_home: Picoseconds, 0.0;
        home_to_core: Picoseconds, 1.0;
        home_lookup: Picoseconds, 0.0;
        llc_read: Picoseconds, 0.0;
        snoop_lookup: Picoseconds, 0.0;
    }
    LINK link "link" CxlLinkParameters {
        crossing: Picoseconds, 1.0;
        quarter_time: Picoseconds, 1.0;
        line_quarters: Count("slots"), 1.0;
        data_header_quarters: Count("slots"), 0.0;
        device_request_quarters: Count("slots"), 1.0;
        snoop_quarters: Count("slots"), 1.0;
        answer_quarters: Count("slots"), 1.0;
        memory_request_quarters: Count("slots"), 1.0;
    }
    DCOH dcoh "dcoh" DcohParameters {
        cycle: Picoseconds, 1.0;
        ports: Count("requests"), 1.0;
        requests_in_flight: Count("requests"), 1.0;
        hit: Picoseconds, 0.0;
        miss: Picoseconds, 0.0;
        completion: Picoseconds, 0.0;
        pull: Picoseconds, 0.0;
        snoop: Picoseconds, 0.0;
        memory_pass: Picoseconds, 0.0;
        install_interval: Picoseconds, 0.0;
        hmc_bytes: Bytes, 64.0;
        hmc_ways: Count("ways"), 1.0;
        dmc_bytes: Bytes, 64.0;
        dmc_ways: Count("ways"), 1.0;
    }
    DEVICE_MEMORY device_memory "device_memory" MemoryParameters {
        latency: Picoseconds, 0.0;
        channels: Count("channels"), 1.0;
        line_time: Picoseconds, 1.0;
    }
    DEVICE device "device" CxlDeviceParameters {
        cycle: Picoseconds, 1.0;
        receive_stage: Picoseconds, 0.0;
        transmit_stage: Picoseconds, 0.0;
        doorbell: Picoseconds, 0.0;
        request: Picoseconds, 0.0;
    }
    DMA dma "dma" DmaParameters {
        engine_read: Picoseconds, 0.0;
        engine_write: Picoseconds, 0.0;
        line_time: Picoseconds, 0.0;
        read_software: Picoseconds, 0.0;
        write_software: Picoseconds, 0.0;
    }
    SOFTWARE software "software" SoftwareParameters {
        hit: Picoseconds, 0.0;
        memory: Picoseconds, 0.0;
        cache_bytes: Bytes, 64.0;
        cache_ways: Count("ways"), 1.0;
        request_in: Picoseconds, 0.0;
        request_out: Picoseconds, 0.0;
        rdma_read: Picoseconds, 0.0;
        rdma_write: Picoseconds, 0.0;
    }
}

const fn section(name: &'static str, fields: &'static [Field]) -> Section {
    Section { name, fields, optional: false }
}

/// A host and a device over CXL.
pub const CXL: &Model = &Model {
    name: "cxl",
    sections: &[
        section("core", CORE),
        section("cache", CACHE),
        section("host", HOST),
        section("memory", MEMORY),
        section("link", LINK),
        section("dcoh", DCOH),
        section("device_memory", DEVICE_MEMORY),
        section("device", DEVICE),
        section("pcie", PCIE),
        section("dma", DMA),
        Section { name: "software", fields: SOFTWARE, optional: true },
    ],
    shipped: super::super::SHIPPED_CXL,
    parts: &[],
};

impl ParameterSet for CxlParameters {
    const MODEL: &'static Model = CXL;

    fn build(name: &str, entries: &BTreeMap<String, Entry>, faults: &mut Faults) -> Option<CxlParameters> {
        let has_software = entries.keys().any(|key| key.starts_with("software."));
        let mut taking = Taking { entries, faults };
        let (core, cache, host) = (core(&mut taking), cache(&mut taking), host(&mut taking));
        let (memory, link, dcoh) = (memory(&mut taking), link(&mut taking), dcoh(&mut taking));
        let (device_memory, device) = (device_memory(&mut taking), device(&mut taking));
        let (pcie, dma) = (pcie(&mut taking), dma(&mut taking));
        let software = if has_software { Some(software(&mut taking)?) } else { None };
        let parameters = CxlParameters {
            name: name.to_string(),
            core: core?,
            cache: cache?,
            host: host?,
            memory: memory?,
            link: link?,
            dcoh: dcoh?,
            device_memory: device_memory?,
            device: device?,
            pcie: pcie?,
            dma: dma?,
            software,
        };
        for (key, message) in contradictions(&parameters) {
            let entry = entries.get(key);
            let (file, line) = entry.map_or((name, None), |entry| (entry.file.as_str(), entry.line));
            faults.add(file, line, Some(key), message);
        }
        Some(parameters)
    }
}

/// Values that cannot be together, by the key to change.
fn contradictions(parameters: &CxlParameters) -> Vec<(&'static str, String)> {
    let (cache, dcoh) = (&parameters.cache, &parameters.dcoh);
    let caches = [
        ("cache.l1_ways", cache.l1_bytes, cache.l1_ways),
        ("cache.l2_ways", cache.l2_bytes, cache.l2_ways),
        ("cache.llc_ways", cache.llc_bytes, cache.llc_ways),
        ("dcoh.hmc_ways", dcoh.hmc_bytes, dcoh.hmc_ways),
        ("dcoh.dmc_ways", dcoh.dmc_bytes, dcoh.dmc_ways),
    ];
    let mut found = Vec::new();
    for (key, bytes, ways) in caches {
        if ways > MOST_WAYS {
            found.push((key, format!("the simulator's caches have {MOST_WAYS} ways at most, not {ways}")));
        } else if !bytes.is_multiple_of(64 * u64::from(ways)) {
            found.push((key, format!("{bytes} bytes are no whole number of sets of {ways} lines of 64 bytes")));
        }
    }
    if parameters.software.as_ref().is_some_and(|software| software.memory < software.hit) {
        found.push(("software.memory", "memory is nearer than the caches (software.hit)".to_string()));
    }
    if cache.device_write_ways > cache.llc_ways {
        found.push(("cache.device_write_ways", format!("there are only {} ways (cache.llc_ways)", cache.llc_ways)));
    }
    if parameters.pcie.link_layer_permille >= 1000 {
        found.push(("pcie.link_layer_permille", "nothing of the link is left for data; give less".to_string()));
    }
    if !parameters.pcie.max_payload.is_multiple_of(parameters.pcie.read_completion_boundary) {
        let bytes = parameters.pcie.max_payload;
        found.push(("pcie.max_payload", format!("{bytes} bytes are no multiple of pcie.read_completion_boundary")));
    }
    if parameters.core.cores > 64 {
        found.push(("core.cores", "a host has 64 cores at most: the snoop filter has a bit for each".to_string()));
    }
    found
}
