//! What is seen in which order, and what is stale when.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device, StateHint, Time};
use conic_sim::Role;
use conic_sim::cxl::CxlSimulation;
use conic_sim::protocol::cxl::Bias;

use super::{between_refreshes, machine, places};

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

#[test]
fn a_read_of_a_dma_engine_does_not_pass_the_writes_before_it() {
    let (layout, places) = places(64);
    let mut simulation = CxlSimulation::new(&machine("bf3"), &layout);
    // The core keeps the first line busy at its home agent, so that the writes behind it wait there.
    simulation.core("host", Role::Service, move |core| {
        loop {
            core.load_acquire(places.host);
            core.flush(places.host);
        }
    });
    simulation.device("NIC", Role::Main, move |device| {
        let (dma, hint) = (device.dma(), StateHint::NonCacheable);
        for number in 1..500_u64 {
            dma.write_word(places.host, number, hint);
            dma.write_word(places.host.lines(1), number, hint);
            assert_eq!(dma.read_word(places.host.lines(1), hint), number, "the read passed the write");
        }
        device.await_writes();
    });
    simulation.run().expect("it ends");
}

#[test]
fn a_core_goes_on_behind_the_write_of_a_register_and_its_later_stores_wait() {
    let parameters = between_refreshes("bf3");
    let held = parameters.pcie.uncached_store;
    let (layout, places) = places(4);
    let mut simulation = CxlSimulation::new(&parameters, &layout);
    let times = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&times);
    simulation.core("host", Role::Main, move |core| {
        core.store(places.host, 1);
        core.full_fence();
        let mut times = into.borrow_mut();
        times.push(core.now().picoseconds());
        for value in 1..=2 {
            core.register_write(places.register, value);
        }
        core.store(places.host, 2);
        times.push(core.now().picoseconds());
        core.full_fence();
        times.push(core.now().picoseconds());
        core.wait_until(core.now() + Time::from_nanoseconds(10_000));
    });
    let arrived = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&arrived);
    simulation.device("NIC", Role::Service, move |device| {
        for value in 1..=2 {
            while device.own_register(places.register) != value {
                device.spin_until(Time::NEVER);
            }
            into.borrow_mut().push(device.now().picoseconds());
        }
    });
    simulation.run().expect("it ends");
    let (times, arrived) = (times.take(), arrived.take());
    assert!(times[1] - times[0] < held, "the program waits for no write of a register: {times:?}");
    // Two of them, and the store behind them, whose line is there.
    let fenced = times[2] - times[0] - 2 * held;
    assert!(fenced < parameters.core.cycles(16), "{times:?}, {held}");
    if let [first, second] = arrived[..] {
        assert_eq!(second - first, held, "one is in flight between core and root port");
    } else {
        panic!("both writes arrive: {arrived:?}");
    }
}

#[test]
fn a_read_waits_for_anothers_write_in_the_engine_only_as_long_as_its_lines_take() {
    let parameters = between_refreshes("bf3");
    let taken = |other_writes: bool| {
        let (layout, places) = places(64);
        let mut simulation = CxlSimulation::new(&parameters, &layout);
        let taken = Rc::new(RefCell::new(0));
        let into = Rc::clone(&taken);
        simulation.device("writer", Role::Service, move |device| {
            device.wait_until(Time::from_nanoseconds(10_000));
            if other_writes {
                device.dma().write(places.packets, &[1; 64], StateHint::NonCacheable);
            }
            device.await_writes();
        });
        simulation.device("reader", Role::Main, move |device| {
            device.wait_until(Time::from_nanoseconds(10_000) + Time::from_picoseconds(100));
            let start = device.now();
            device.dma().read(places.packets.lines(8), &mut [0; 64], StateHint::NonCacheable);
            *into.borrow_mut() = device.now().since(start).picoseconds();
        });
        simulation.run().expect("it ends");
        taken.take()
    };
    let line = parameters.dma.line_time;
    let more = taken(true) - taken(false);
    assert!(more <= line, "{more} ps more, a line takes {line}");
}

#[test]
fn a_polled_line_that_another_one_drives_out_is_polled_on() {
    let mut p = between_refreshes("agilex7");
    // One line in each of the core's caches.
    (p.cache.l1_bytes, p.cache.l1_ways, p.cache.l2_bytes, p.cache.l2_ways) = (64, 1, 64, 1);
    let (layout, places) = places(64);
    let mut simulation = CxlSimulation::new(&p, &layout);
    simulation.core("host", Role::Main, move |core| {
        assert_eq!(core.load_acquire(places.host), 0);
        core.prefetch_read(places.host.lines(1));
        while core.load_acquire(places.host) == 0 {
            core.spin();
        }
    });
    simulation.device("NIC", Role::Service, move |device| {
        device.wait_until(Time::from_nanoseconds(20_000));
        device.write_word(places.host, 1, StateHint::NonCacheable);
    });
    simulation.run().expect("the core sees the word");
}

#[test]
fn a_register_is_read_behind_the_writes_before() {
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(&machine("agilex7"), &layout);
    simulation.core("host", Role::Main, move |core| {
        for value in 1..=5 {
            core.register_write(places.register, value);
        }
        assert_eq!(core.register_read(places.register), 5);
    });
    simulation.run().expect("it ends");
}
