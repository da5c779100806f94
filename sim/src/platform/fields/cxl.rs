//! The tables of a host and a device behind a CXL or a PCIe link.

use std::collections::BTreeMap;

use super::{
    Bytes, CACHE, Count, Cycles, Entry, Faults, Field, Flag, MEMORY, Megahertz, Model, PCIE, ParameterSet, Picoseconds,
    REFRESH, Ratio, Section, Taking, cache, contradictions_of_cache, contradictions_of_parts, contradictions_of_pcie,
    contradictions_of_refresh, fault_of_cache, memory, pcie, refresh, tell_of,
};
use crate::cxl::CxlParameters;
use crate::cxl::parameters::{
    CxlDeviceParameters, CxlLinkParameters, DcohParameters, DmaParameters, HostCoreParameters, HostParameters,
    SoftwareParameters,
};
use crate::parameters::{MemoryParameters, RefreshParameters};

sections! {
    CORE core "core" HostCoreParameters {
        cores: Count("cores"), 1.0;
        frequency_megahertz: Megahertz, 1.0;
        issue_cycles: Cycles, 0.0;
        l1_hit_cycles: Cycles, 0.0;
        l2_hit_cycles: Cycles, 0.0;
        atomic_cycles: Cycles, 0.0;
        line_fill_buffers: Count("lines"), 1.0;
        reorder_buffer: Count("instructions"), 1.0;
        work_instructions: Ratio, 0.1;
        store_buffer: Count("stores"), 1.0;
        write_combining_buffers: Count("buffers"), 1.0;
        work_scale: Ratio, 0.001;
    }
    HOST host "host" HostParameters {
        core_to_home: Picoseconds, 0.0;
        home_to_core: Picoseconds, 1.0;
        home_lookup: Picoseconds, 0.0;
        llc_read: Picoseconds, 0.0;
        snoop_lookup: Picoseconds, 0.0;
        interrupt: Picoseconds, 0.0;
        monitor_read: Picoseconds, 0.0;
        reads_pending_writes: Flag, 0.0;
    }
    LINK link "link" CxlLinkParameters {
        present: Flag, 0.0;
        crossing: Picoseconds, 1.0;
        quarter_time: Picoseconds, 1.0;
        line_quarters: Count("slots"), 1.0;
        data_header_quarters: Count("slots"), 0.0;
        device_request_quarters: Count("slots"), 1.0;
        snoop_quarters: Count("slots"), 1.0;
        answer_quarters: Count("slots"), 1.0;
        memory_request_quarters: Count("slots"), 1.0;
        flit_quarters: Count("slots"), 1.0;
        flit_error_rate: Ratio, 0.0;
        retry_flits: Count("flits"), 1.0;
        acknowledge: Picoseconds, 0.0;
        credit_return: Picoseconds, 0.0;
        request_credits: Count("requests"), 1.0;
        answer_credits: Count("requests"), 1.0;
        data_credits: Count("lines"), 1.0;
        memory_credits: Count("requests"), 1.0;
    }
    DCOH dcoh "dcoh" DcohParameters {
        cycle: Picoseconds, 1.0;
        ports: Count("requests"), 1.0;
        descriptor_ports: Count("requests"), 1.0;
        requests_in_flight: Count("requests"), 1.0;
        hit: Picoseconds, 0.0;
        miss: Picoseconds, 0.0;
        completion: Picoseconds, 0.0;
        pull: Picoseconds, 0.0;
        snoop: Picoseconds, 0.0;
        memory_pass: Picoseconds, 0.0;
        install: Picoseconds, 0.0;
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
    DEVICE_REFRESH device_refresh "device_refresh" RefreshParameters {
        interval: Picoseconds, 1.0;
        span: Picoseconds, 0.0;
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
        Section { name: "refresh", fields: REFRESH, optional: true },
        section("link", LINK),
        section("dcoh", DCOH),
        section("device_memory", DEVICE_MEMORY),
        Section { name: "device_refresh", fields: DEVICE_REFRESH, optional: true },
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
        let has = |section: &str| entries.keys().any(|key| key.starts_with(section));
        let (has_software, has_refresh, has_device_refresh) =
            (has("software."), has("refresh."), has("device_refresh."));
        let mut taking = Taking { entries, faults };
        let (core, cache, host) = (core(&mut taking), cache(&mut taking), host(&mut taking));
        let (memory, link, dcoh) = (memory(&mut taking), link(&mut taking), dcoh(&mut taking));
        let (device_memory, device) = (device_memory(&mut taking), device(&mut taking));
        let (pcie, dma) = (pcie(&mut taking), dma(&mut taking));
        let software = if has_software { Some(software(&mut taking)?) } else { None };
        let refresh = if has_refresh { Some(refresh(&mut taking)?) } else { None };
        let device_refresh = if has_device_refresh { Some(device_refresh(&mut taking)?) } else { None };
        let parameters = CxlParameters {
            name: name.to_string(),
            core: core?,
            cache: cache?,
            host: host?,
            memory: memory?,
            refresh,
            link: link?,
            dcoh: dcoh?,
            device_memory: device_memory?,
            device_refresh,
            device: device?,
            pcie: pcie?,
            dma: dma?,
            software,
        };
        tell_of(contradictions(&parameters), name, entries, faults);
        Some(parameters)
    }
}

/// Values that cannot be together, by the key to change.
fn contradictions(parameters: &CxlParameters) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    contradictions_of_cache(&parameters.cache, &mut found);
    contradictions_of_pcie(&parameters.pcie, &mut found);
    let (memory, device_memory) = (parameters.memory.channels, parameters.device_memory.channels);
    let parts = [("memory.channels", memory, "channels"), ("device_memory.channels", device_memory, "channels")];
    contradictions_of_parts(&parts, &mut found);
    for (key, (bytes, ways)) in [("dcoh.hmc_ways", parameters.dcoh.hmc()), ("dcoh.dmc_ways", parameters.dcoh.dmc())] {
        found.extend(fault_of_cache(bytes, ways).map(|fault| (key, fault)));
    }
    contradictions_of_refresh("refresh.span", parameters.refresh.as_ref(), &mut found);
    contradictions_of_refresh("device_refresh.span", parameters.device_refresh.as_ref(), &mut found);
    let link = &parameters.link;
    if link.flit_error_rate >= 1.0 {
        found.push(("link.flit_error_rate", "no flit would ever arrive: give less than 1".to_string()));
    }
    // The largest message: a line with its header, and a request or an answer.
    let largest =
        link.line_quarters + 2 * link.data_header_quarters + link.memory_request_quarters.max(link.answer_quarters);
    if link.retry_flits * link.flit_quarters < largest {
        let message = format!("a message of {largest} quarters of a slot would never fit into the retry buffer");
        found.push(("link.retry_flits", message));
    }
    if parameters.cache.device_write_ways == 0 {
        found.push(("cache.device_write_ways", "a push needs a way of the last-level cache".to_string()));
    }
    if parameters.software.as_ref().is_some_and(|software| software.memory < software.hit) {
        found.push(("software.memory", "memory is nearer than the caches (software.hit)".to_string()));
    }
    if parameters.core.cores > 64 {
        found.push(("core.cores", "a host has 64 cores at most: the snoop filter has a bit for each".to_string()));
    }
    found
}
