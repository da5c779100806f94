//! The tables of a host whose ways to memory are modelled.

use std::collections::BTreeMap;

use super::{
    Bytes, Count, Cycles, Entry, Faults, Field, Flag, MegabitsPerSecond, Megahertz, Model, ParameterSet, Picoseconds,
    Section, Taking, tell_of,
};
use crate::host::HostParameters;
use crate::host::parameters::{
    ControllerParameters, DramParameters, FormulaParameters, GraphParameters, HomeParameters, HostCoreParameters,
    HostDeviceParameters, IioParameters, NicParameters, RedisParameters,
};

sections! {
    CORE core "core" HostCoreParameters {
        cores: Count("cores"), 1.0, 1024.0;
        frequency_megahertz: Megahertz, 1.0;
        line_fill_buffers: Count("lines"), 1.0;
        refill: Picoseconds, 0.0;
        to_home: Picoseconds, 0.0;
        write_to_home: Picoseconds, 0.0;
        cached_bytes: Bytes, 0.0, 1_073_741_824.0;
    }
    HOME home "home" HomeParameters {
        slices: Count("slices"), 1.0;
        entries: Count("entries"), 2.0;
        write_entries: Count("entries"), 1.0;
        to_memory: Picoseconds, 0.0;
        from_memory: Picoseconds, 0.0;
        core_write_to_memory: Picoseconds, 0.0;
        device_write_to_memory: Picoseconds, 0.0;
    }
    IIO iio "iio" IioParameters {
        write_credits: Count("lines"), 1.0;
        read_credits: Count("lines"), 1.0;
        write_to_home: Picoseconds, 0.0;
        read_to_home: Picoseconds, 0.0;
        read_return: Picoseconds, 0.0;
        writes_to_cache: Flag, 0.0;
        cache_bytes: Bytes, 64.0, 1_073_741_824.0;
        cache_ways: Count("ways"), 1.0, 64.0;
    }
    CONTROLLER controller "controller" ControllerParameters {
        channels: Count("channels"), 1.0, 64.0;
        read_entries: Count("entries"), 1.0, 1024.0;
        write_entries: Count("entries"), 1.0, 1024.0;
        write_high: Count("entries"), 1.0;
        write_low: Count("entries"), 0.0;
        most_writes: Count("writes"), 1.0;
        least_reads: Count("reads"), 0.0;
        least_read_time: Picoseconds, 0.0;
        idle_writes: Count("entries"), 1.0;
        age_cap: Picoseconds, 0.0;
        row_timer: Picoseconds, 1.0;
        read_full: Count("entries"), 1.0;
        write_full: Count("entries"), 1.0;
    }
    DRAM dram "dram" DramParameters {
        ranks: Count("ranks"), 1.0, 8.0;
        bank_groups: Count("groups"), 1.0, 8.0;
        banks: Count("banks"), 1.0, 8.0;
        row_bytes: Bytes, 64.0, 1_048_576.0;
        interleaved_groups: Count("groups"), 1.0, 8.0;
        page_bytes: Bytes, 4096.0, 1_073_741_824.0;
        cycle: Picoseconds, 1.0, 1e6;
        read_latency: Picoseconds, 0.0, 1e9;
        write_latency: Picoseconds, 0.0, 1e9;
        burst: Picoseconds, 1.0, 1e9;
        activate_to_access: Picoseconds, 0.0, 1e9;
        precharge: Picoseconds, 0.0, 1e9;
        activate_to_precharge: Picoseconds, 0.0, 1e9;
        access_short: Picoseconds, 0.0, 1e9;
        access_long: Picoseconds, 0.0, 1e9;
        activate_short: Picoseconds, 0.0, 1e9;
        activate_long: Picoseconds, 0.0, 1e9;
        four_activates: Picoseconds, 0.0, 1e9;
        write_recovery: Picoseconds, 0.0, 1e9;
        read_to_precharge: Picoseconds, 0.0, 1e9;
        write_to_read_short: Picoseconds, 0.0, 1e9;
        write_to_read_long: Picoseconds, 0.0, 1e9;
        read_to_write: Picoseconds, 0.0, 1e9;
        rank_to_rank: Picoseconds, 0.0, 1e9;
        refresh_interval: Picoseconds, 1.0, 1e9;
        refresh_span: Picoseconds, 0.0, 1e9;
    }
    DEVICE device "device" HostDeviceParameters {
        write_megabits_per_second: MegabitsPerSecond, 1.0;
        read_megabits_per_second: MegabitsPerSecond, 1.0;
        devices: Count("devices"), 1.0, 64.0;
        transfers: Count("transfers"), 1.0, 1024.0;
        packet_bytes: Bytes, 64.0, 4096.0;
        chunk_bytes: Bytes, 64.0, 16_777_216.0;
        transfer_bytes: Bytes, 4096.0, 16_777_216.0;
        buffer_bytes: Bytes, 4096.0, 1_099_511_627_776.0;
    }
    NIC nic "nic" NicParameters {
        megabits_per_second: MegabitsPerSecond, 1.0;
        packet_bytes: Bytes, 64.0, 16_384.0;
        buffer_bytes: Bytes, 64.0, 1_073_741_824.0;
        pause_bytes: Bytes, 64.0;
        resume_bytes: Bytes, 0.0;
        pause_delay: Picoseconds, 1.0, 1e9;
        memory_bytes: Bytes, 4096.0, 1_099_511_627_776.0;
    }
    REDIS redis "redis" RedisParameters {
        dependent_loads: Count("loads"), 1.0, 1024.0;
        value_lines: Count("lines"), 1.0, 65_536.0;
        query_cycles: Cycles, 0.0, 1e6;
    }
    GRAPH graph "graph" GraphParameters {
        neighbours: Count("nodes"), 1.0, 65_536.0;
        vertex_lines: Count("lines"), 0.0, 65_536.0;
        neighbour_cycles: Cycles, 0.0, 1e6;
        loads_at_once: Count("loads"), 1.0, 1024.0;
    }
    FORMULA formula "formula" FormulaParameters {
        mode_switch: Picoseconds, 0.0;
        core_read: Picoseconds, 1.0;
        core_read_write: Picoseconds, 1.0;
        device_write: Picoseconds, 1.0;
        device_read: Picoseconds, 1.0;
    }
}

/// A host whose ways to memory are modelled by their credits.
pub const HOST: &Model = &Model {
    name: "host",
    sections: &[
        Section { name: "core", fields: CORE, optional: false },
        Section { name: "home", fields: HOME, optional: false },
        Section { name: "iio", fields: IIO, optional: false },
        Section { name: "controller", fields: CONTROLLER, optional: false },
        Section { name: "dram", fields: DRAM, optional: false },
        Section { name: "device", fields: DEVICE, optional: false },
        Section { name: "nic", fields: NIC, optional: false },
        Section { name: "redis", fields: REDIS, optional: false },
        Section { name: "graph", fields: GRAPH, optional: false },
        Section { name: "formula", fields: FORMULA, optional: false },
    ],
    shipped: super::super::SHIPPED_HOST,
    parts: &[],
};

impl ParameterSet for HostParameters {
    const MODEL: &'static Model = HOST;

    fn build(name: &str, entries: &BTreeMap<String, Entry>, faults: &mut Faults) -> Option<HostParameters> {
        let mut taking = Taking { entries, faults };
        let (core, home, iio) = (core(&mut taking), home(&mut taking), iio(&mut taking));
        let (controller, dram) = (controller(&mut taking), dram(&mut taking));
        let (device, nic, formula) = (device(&mut taking), nic(&mut taking), formula(&mut taking));
        let (redis, graph) = (redis(&mut taking), graph(&mut taking));
        let parameters = HostParameters {
            name: name.to_string(),
            core: core?,
            home: home?,
            iio: iio?,
            controller: controller?,
            dram: dram?,
            device: device?,
            nic: nic?,
            redis: redis?,
            graph: graph?,
            formula: formula?,
        };
        tell_of(contradictions(&parameters), name, entries, faults);
        Some(parameters)
    }
}

/// Values that cannot be together, by the key to change.
fn contradictions(parameters: &HostParameters) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let (home, controller, dram) = (&parameters.home, &parameters.controller, &parameters.dram);
    for (key, value) in [
        ("controller.channels", controller.channels.into()),
        ("dram.ranks", dram.ranks.into()),
        ("dram.bank_groups", dram.bank_groups.into()),
        ("dram.banks", dram.banks.into()),
        ("dram.row_bytes", dram.row_bytes),
        ("dram.interleaved_groups", dram.interleaved_groups.into()),
        ("dram.page_bytes", dram.page_bytes),
    ] {
        if !u64::is_power_of_two(value) {
            found.push((key, format!("{value} is no power of two, as bits of an address say which")));
        }
    }
    if parameters.banks() > 64 {
        found.push(("dram.ranks", format!("a channel has at most 64 banks, not {}", parameters.banks())));
    }
    if dram.interleaved_groups > dram.bank_groups {
        found.push(("dram.interleaved_groups", format!("there are only {} (dram.bank_groups)", dram.bank_groups)));
    }
    if home.write_entries >= home.entries {
        found.push(("home.write_entries", format!("reads need one of the {} (home.entries)", home.entries)));
    }
    if controller.write_high > controller.write_entries {
        let message = format!("the queue has only {} entries (controller.write_entries)", controller.write_entries);
        found.push(("controller.write_high", message));
    }
    if controller.write_low >= controller.write_high {
        found.push(("controller.write_low", "give less than controller.write_high".to_string()));
    }
    let device = &parameters.device;
    for (key, bytes, of) in [
        ("device.packet_bytes", device.packet_bytes, 64),
        ("device.chunk_bytes", device.chunk_bytes, device.packet_bytes),
        ("device.transfer_bytes", device.transfer_bytes, device.chunk_bytes),
        ("device.buffer_bytes", device.buffer_bytes, device.transfer_bytes),
        ("nic.packet_bytes", parameters.nic.packet_bytes, 64),
        ("nic.memory_bytes", parameters.nic.memory_bytes, device.packet_bytes),
    ] {
        if !bytes.is_multiple_of(of) {
            found.push((key, format!("give a multiple of {of} bytes, of which it consists")));
        }
    }
    let nic = &parameters.nic;
    if nic.pause_bytes > nic.buffer_bytes {
        found.push(("nic.pause_bytes", format!("it holds only {} bytes (nic.buffer_bytes)", nic.buffer_bytes)));
    }
    if nic.resume_bytes >= nic.pause_bytes {
        found.push(("nic.resume_bytes", "give less than nic.pause_bytes".to_string()));
    }
    if dram.refresh_span + dram.precharge + dram.activate_to_precharge >= dram.refresh_interval {
        let message = format!("nothing is left of an interval of {} ps; give less", dram.refresh_interval);
        found.push(("dram.refresh_span", message));
    }
    found
}
