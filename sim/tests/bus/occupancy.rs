//! An access is as long as Table 2 says, beside the load or store itself (2 or 3 cycles) and 2 until it asks for the bus; and occupies the
//! buses for so long.

use conic_fabric::Core;
use conic_sim::bus::Attachment;

use super::{Places, parameters, took, wait_until};
use conic_sim::bus::BusCore;

/// Picoseconds of so many cycles.
fn cycles(count: u64) -> u64 {
    parameters().core.cycles(count)
}

fn idle(_: &BusCore<'_>, _: Places) {}

#[test]
fn uncached_accesses_occupy_the_bus_that_they_are_on() {
    // The I/O bus begins at a cycle of its own, two of the memory bus: here two of the processor's cycles later.
    for (attachment, expected, memory, io) in [
        (Attachment::CacheBus, 4, 0, 0),
        (Attachment::MemoryBus, 2 + 28 + 2, 28, 0),
        (Attachment::IoBus, 2 + 28 + 2 + 20 + 2, 50, 20),
    ] {
        let (span, counters) = took(attachment, idle, |core, places| {
            core.register_read(places.registers);
        });
        assert_eq!(
            (span, counters.memory_busy, counters.io_busy),
            (expected, cycles(memory), cycles(io)),
            "{attachment:?}"
        );
    }
    for (attachment, memory, io) in [(Attachment::MemoryBus, 12, 0), (Attachment::IoBus, 12, 20)] {
        let (span, counters) = took(attachment, idle, |core, places| core.register_write(places.registers, 1));
        assert_eq!((span, counters.memory_busy, counters.io_busy), (3, cycles(memory), cycles(io)), "{attachment:?}");
        let (span, _) = took(attachment, idle, |core, places| {
            core.register_write(places.registers, 1);
            core.full_fence();
        });
        // The store leaves at once, at the next cycle of the bus, and is through when the bridge has it.
        assert_eq!(span, 3 + 1 + 12, "{attachment:?}");
    }
}

#[test]
fn a_full_store_buffer_stops_the_processor_and_a_load_waits_for_all_stores() {
    let stores = u64::from(parameters().core.store_buffer);
    let (span, _) = took(Attachment::MemoryBus, idle, move |core, places| {
        (0..stores).for_each(|value| core.register_write(places.registers, value));
    });
    assert_eq!(span, 3 * stores);
    let (span, _) = took(Attachment::MemoryBus, idle, move |core, places| {
        (0..stores + 4).for_each(|value| core.register_write(places.registers, value));
    });
    // The last one finds room when four are through.
    assert_eq!(span, 3 + 1 + 4 * 12);
    let (span, _) = took(Attachment::MemoryBus, idle, move |core, places| {
        (0..2).for_each(|value| core.register_write(places.registers, value));
        assert_eq!(core.register_read(places.registers), 1);
    });
    assert_eq!(span, 3 + 1 + 2 * 12 + 2 + 28 + 2);
}

#[test]
fn blocks_and_invalidations_occupy_the_buses_as_long_as_table_2_says() {
    let read = |core: &BusCore<'_>, places: Places| assert_eq!(core.load(places.device), 7);
    let writes = |core: &BusCore<'_>, places: Places| core.store(places.device, 7);
    let (span, counters) = took(Attachment::MemoryBus, writes, read);
    assert_eq!((span, counters.memory_busy), (2 + 42 + 2, cycles(42)));
    let (span, counters) = took(Attachment::IoBus, writes, read);
    // Two cycles until the I/O bus begins one of its own.
    assert_eq!((span, counters.memory_busy, counters.io_busy), (2 + 42 + 34 + 2, cycles(76), cycles(34)));
    let (_, counters) = took(Attachment::MemoryBus, writes, |core, places| {
        core.load(places.device);
        core.store(places.device, 8);
        core.store(places.device, 9);
    });
    let kinds: Vec<(&str, u64)> = counters.memory.iter().collect();
    assert_eq!((kinds, counters.memory_busy), (vec![("invalidate", 1), ("read", 1)], cycles(42 + 10)));
    let (_, counters) = took(Attachment::IoBus, writes, |core, places| {
        core.load(places.device);
        core.store(places.device, 8);
    });
    assert_eq!(counters.io.iter().collect::<Vec<_>>(), [("invalidate", 1), ("read", 1)]);
    assert_eq!((counters.memory_busy, counters.io_busy), (cycles(76 + 10), cycles(34 + 16)));
}

#[test]
fn who_has_a_line_alone_writes_it_without_a_bus_and_who_writes_it_whole_needs_none_of_it() {
    let (_, counters) = took(Attachment::MemoryBus, idle, |core, places| {
        core.load(places.memory);
        core.store(places.memory, 1);
        core.load(places.memory);
    });
    assert_eq!(counters.memory.iter().collect::<Vec<_>>(), [("read", 1)]);
    let (_, counters) = took(Attachment::MemoryBus, idle, |core, places| core.store(places.memory, 1));
    assert_eq!(counters.memory.iter().collect::<Vec<_>>(), [("read exclusive", 1)]);
    let engine = |core: &BusCore<'_>, places: Places| {
        wait_until(core, super::BEGINS + 1_000);
        core.write_line(places.device, &conic_fabric::Line([5; 8]));
    };
    let (_, counters) = took(Attachment::MemoryBus, engine, |core, places| {
        wait_until(core, super::BEGINS + 3_000);
        assert_eq!(core.load(places.device.word(7)), 5);
    });
    assert_eq!(counters.memory.iter().collect::<Vec<_>>(), [("invalidate", 1), ("read", 1)]);
}

#[test]
fn what_displaces_a_modified_block_writes_it_back_first() {
    let (_, counters) = took(
        Attachment::MemoryBus,
        |core, places| {
            // Two lines of main memory that are one block of the engine's: outside its lines each has its own, inside they share.
            wait_until(core, super::BEGINS + 1_000);
            core.store(places.device, 1);
            core.store(places.memory, 1);
        },
        |core, places| {
            wait_until(core, super::BEGINS + 3_000);
            // 256 KiB apart would be one block of the processor's; the region is smaller, so it keeps both.
            core.store(places.device.lines(1), 1);
            core.store(places.memory.lines(1), 1);
        },
    );
    assert_eq!(counters.memory.of("write back"), 0);
    assert_eq!(counters.memory.of("read exclusive"), 4);
}
