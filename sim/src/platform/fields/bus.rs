//! The tables of nodes whose processor and network interface share snooping buses.

use std::collections::BTreeMap;

use super::{
    Bytes, Count, Cycles, Entry, Faults, Field, Flag, Megahertz, Model, ParameterSet, Ratio, Section, Taking, tell_of,
};
use crate::bus::BusParameters;
use crate::bus::parameters::{
    BusCoreParameters, BusDeviceParameters, CacheBusParameters, IoBusParameters, MemoryBusParameters, NetworkParameters,
};

sections! {
    CORE core "core" BusCoreParameters {
        frequency_megahertz: Megahertz, 1.0;
        load_cycles: Cycles, 1.0;
        store_cycles: Cycles, 1.0;
        miss_cycles: Cycles, 0.0;
        store_buffer: Count("stores"), 1.0;
        cache_bytes: Bytes, 64.0;
        work_scale: Ratio, 0.001;
    }
    BUS bus "bus" MemoryBusParameters {
        cycle: Cycles, 1.0;
        load: Cycles, 1.0;
        store: Cycles, 1.0;
        block: Cycles, 1.0;
        invalidate: Cycles, 1.0;
        write_back: Cycles, 1.0;
        snarfing: Flag, 0.0;
    }
    CACHE_BUS cache_bus "cache_bus" CacheBusParameters {
        load: Cycles, 1.0;
        store: Cycles, 1.0;
    }
    IO io "io" IoBusParameters {
        cycle: Cycles, 1.0;
        load: Cycles, 1.0;
        store: Cycles, 1.0;
        block_to_core: Cycles, 1.0;
        block_to_device: Cycles, 1.0;
        invalidate: Cycles, 1.0;
        buffer: Count("requests"), 1.0;
        refusal: Cycles, 0.0;
    }
    DEVICE device "device" BusDeviceParameters {
        step: Cycles, 1.0;
        fifo_messages: Count("messages"), 1.0;
    }
    NETWORK network "network" NetworkParameters {
        nodes: Count("nodes"), 1.0, 256.0;
        latency: Cycles, 1.0;
        window: Count("messages"), 1.0;
    }
}

/// Nodes of a processor and a network interface on snooping buses.
pub const BUSES: &Model = &Model {
    name: "bus",
    sections: &[
        Section { name: "core", fields: CORE, optional: false },
        Section { name: "bus", fields: BUS, optional: false },
        Section { name: "cache_bus", fields: CACHE_BUS, optional: false },
        Section { name: "io", fields: IO, optional: false },
        Section { name: "device", fields: DEVICE, optional: false },
        Section { name: "network", fields: NETWORK, optional: false },
    ],
    shipped: super::super::SHIPPED_BUSES,
    parts: &[],
};

impl ParameterSet for BusParameters {
    const MODEL: &'static Model = BUSES;

    fn build(name: &str, entries: &BTreeMap<String, Entry>, faults: &mut Faults) -> Option<BusParameters> {
        let mut taking = Taking { entries, faults };
        let (core, bus, cache_bus) = (core(&mut taking), bus(&mut taking), cache_bus(&mut taking));
        let (io, device, network) = (io(&mut taking), device(&mut taking), network(&mut taking));
        let parameters = BusParameters {
            name: name.to_string(),
            core: core?,
            bus: bus?,
            cache_bus: cache_bus?,
            io: io?,
            device: device?,
            network: network?,
        };
        let bytes = parameters.core.cache_bytes;
        let odd = (!(bytes / 64).is_power_of_two() || !bytes.is_multiple_of(64)).then(|| {
            ("core.cache_bytes", format!("a direct-mapped cache has a power of two of blocks, not {bytes} bytes"))
        });
        tell_of(odd.into_iter().collect(), name, entries, faults);
        Some(parameters)
    }
}
