//! What is seen in which order, and what is stale when.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device, StateHint};
use conic_sim::Role;
use conic_sim::cxl::CxlSimulation;
use conic_sim::protocol::cxl::Bias;

use super::{machine, places};

#[test]
fn a_word_is_seen_after_the_writes_before_it() {
    for hint in [StateHint::NonCacheable, StateHint::NonCacheablePush, StateHint::CacheableOwned] {
        for (seed, dma) in (0..40).map(|seed| (seed, seed % 4 == 3)) {
            let (layout, places) = places(64);
            let mut simulation = CxlSimulation::new(&machine("agilex7"), &layout);
            simulation.machine().borrow_mut().disturb(seed, 2_000_000);
            simulation.core("host", Role::Main, move |core| {
                for number in 1..20_u64 {
                    while core.load_acquire(places.host) < number {
                        core.spin();
                    }
                    let mut bytes = [0; 1024];
                    core.read_bytes(places.host.lines(1), &mut bytes);
                    assert!(bytes.iter().all(|byte| *byte >= number as u8), "bytes of packet {number} are old");
                }
            });
            simulation.device("NIC", Role::Service, move |device| {
                for number in 1..20_u64 {
                    if dma {
                        let dma = device.dma();
                        dma.write(places.host.lines(1), &[number as u8; 1024], hint);
                        dma.write_word(places.host, number, hint);
                    } else {
                        device.write(places.host.lines(1), &[number as u8; 1024], hint);
                        device.write_word(places.host, number, hint);
                    }
                }
            });
            simulation.run().expect("it ends");
        }
    }
}

#[test]
fn an_engine_reads_what_it_wrote_before() {
    for hint in [StateHint::NonCacheable, StateHint::NonCacheablePush, StateHint::CacheableOwned] {
        let (layout, places) = places(64);
        let mut simulation = CxlSimulation::new(&machine("agilex7"), &layout);
        simulation.device("NIC", Role::Main, move |device| {
            for number in 1..20_u64 {
                for word in [places.host, places.device] {
                    // The word waits for these, and the read for the word.
                    device.write(places.host.lines(1), &[number as u8; 1024], hint);
                    device.write_word(word, number, hint);
                    let mut bytes = [0; 128];
                    device.read(word, &mut bytes, hint);
                    assert_eq!(bytes[..8], number.to_le_bytes(), "{hint:?}");
                    assert_eq!(device.read_word(word, StateHint::CacheableShared), number, "{hint:?}");
                }
            }
            device.await_writes();
        });
        simulation.run().expect("it ends");
    }
}

/// What a core reads of a line of the device that it has read before, after the device has written it.
fn read_after_write(bias: Bias, flush: bool) -> u64 {
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(&machine("agilex7"), &layout);
    let found = Rc::new(RefCell::new(0));
    let into = Rc::clone(&found);
    simulation.core("host", Role::Main, move |core| {
        assert_eq!(core.load(places.device), 0);
        core.store_release(places.host, 1);
        while core.load_acquire(places.host) != 2 {
            core.spin();
        }
        *into.borrow_mut() = core.load(places.device);
    });
    simulation.device("NIC", Role::Service, move |device| {
        while device.read_word(places.host, StateHint::NonCacheable) != 1 {}
        device.switch_bias(places.device, 64, bias, flush);
        device.write_word(places.device, 7, StateHint::NonCacheable);
        device.write_word(places.host, 2, StateHint::NonCacheable);
    });
    simulation.run().expect("it ends");
    found.take()
}

#[test]
fn stale_data_needs_device_bias_and_a_copy_that_nobody_flushed() {
    assert_eq!(read_after_write(Bias::Host, false), 7);
    assert_eq!(read_after_write(Bias::Device, true), 7);
    assert_eq!(read_after_write(Bias::Device, false), 0, "the host's copy goes stale");
}

#[test]
fn copies_that_do_not_fit_are_written_back() {
    // Four times the device's cache, and a quarter more than a set of the last level takes, written by either side.
    let lines = 8_192;
    let (layout, places) = places(lines);
    let mut parameters = machine("agilex7");
    (parameters.cache.l2_bytes, parameters.cache.l1_bytes, parameters.cache.llc_bytes) =
        (64 << 10, 12 << 10, 120 << 10);
    parameters.cache.llc_ways = 15;
    let mut simulation = CxlSimulation::new(&parameters, &layout);
    simulation.core("host", Role::Main, move |core| {
        while core.load_acquire(places.host) != 1 {
            core.spin();
        }
        for line in 1..lines {
            assert_eq!(core.load(places.host.lines(line)), line, "line {line} of the host");
            assert_eq!(core.load(places.device.lines(line)), line, "line {line} of the device");
            core.store(places.device.lines(line), 2 * line);
        }
        core.store_release(places.host, 2);
        for line in 1..lines {
            assert_eq!(core.load(places.device.lines(line)), 2 * line);
        }
    });
    simulation.device("NIC", Role::Main, move |device| {
        for line in 1..lines {
            device.write_word(places.host.lines(line), line, StateHint::CacheableOwned);
            device.write_word(places.device.lines(line), line, StateHint::CacheableOwned);
        }
        device.write_word(places.host, 1, StateHint::CacheableOwned);
        device.await_writes();
        while device.read_word(places.host, StateHint::NonCacheable) != 2 {}
        for line in (1..lines).step_by(37) {
            assert_eq!(device.read_word(places.device.lines(line), StateHint::CacheableShared), 2 * line);
        }
    });
    simulation.run().expect("it ends");
    let evictions = simulation.machine().borrow().counters.evictions;
    assert!(evictions > 2 * lines, "only {evictions} evictions");
}
