//! Unloaded latencies: the calibrated ones come out as they went in, the others as the sums of their stages.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device, Line, StateHint, Time};
use conic_sim::Role;
use conic_sim::cxl::{CxlCore, CxlDevice, CxlParameters, CxlSimulation};

use super::{between_refreshes, machine, places, run};

/// How long a read of a line takes the device, in nanoseconds, after `before`.
fn device_read(parameters: &CxlParameters, of_device: bool, hint: StateHint, before: Option<StateHint>) -> f64 {
    let taken = run(
        parameters,
        8,
        |_, _| (),
        move |device, places| {
            let at = if of_device { places.device } else { places.host };
            let mut line = [0; 64];
            if let Some(before) = before {
                device.read(at, &mut line, before);
            }
            let start = device.now();
            device.read(at, &mut line, hint);
            device.now().since(start)
        },
    );
    taken.picoseconds() as f64 / 1000.0
}

fn near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 0.01, "{found} instead of {wanted} ns");
}

#[test]
fn an_nc_read_and_a_hit_are_calibrated() {
    let p = between_refreshes("agilex7");
    near(device_read(&p, false, StateHint::NonCacheable, None), 406.0);
    near(device_read(&p, false, StateHint::NonCacheable, Some(StateHint::CacheableShared)), 406.0 / 3.3);
    // A copy that may be read may not be written: the host is asked, and its answer carries a grant beside the data.
    let own = device_read(&p, false, StateHint::CacheableOwned, Some(StateHint::CacheableShared));
    near(own, 406.0 + (p.link.answer_quarters * p.link.quarter_time as u32) as f64 / 1000.0);
}

#[test]
fn host_bias_costs_a_round_trip_and_device_bias_none() {
    let p = between_refreshes("agilex7");
    let quarters = p.link.device_request_quarters + p.link.memory_request_quarters;
    let round_trip = 2 * p.link.crossing + p.host.home_lookup + u64::from(quarters) * p.link.quarter_time;
    let mut free_of = Vec::new();
    // What is put into the device's cache takes its time there, whoever was asked.
    for hint in [StateHint::NonCacheable, StateHint::CacheableShared, StateHint::CacheableOwned] {
        let by_host = device_read(&p, true, hint, None);
        let free = run(
            &p,
            8,
            |_, _| (),
            move |device, places| {
                device.switch_bias(places.device, 512, conic_sim::protocol::cxl::Bias::Device, true);
                let start = device.now();
                device.read(places.device, &mut [0; 64], hint);
                device.now().since(start).picoseconds() as f64 / 1000.0
            },
        );
        near(by_host - free, round_trip as f64 / 1000.0);
        free_of.push(free);
    }
    let install = p.dcoh.install as f64 / 1000.0;
    near(free_of[1] - free_of[0], install);
    near(free_of[2] - free_of[0], install);
}

#[test]
fn cores_that_share_a_line_are_heard_before_the_device_owns_it() {
    let p = between_refreshes("agilex7");
    let owned = |stored: bool| {
        run(
            &p,
            8,
            move |core, places| {
                if stored {
                    core.write_line(places.host, &Line([1; 8]));
                }
            },
            |device, places| {
                device.wait_until(Time::from_nanoseconds(10_000));
                device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
                let start = device.now();
                device.write(places.host, &[1; 64], StateHint::CacheableOwned);
                device.await_writes();
                device.now().since(start).picoseconds() as f64 / 1000.0
            },
        )
    };
    let heard = p.host.home_to_core + p.host.snoop_lookup + p.host.core_to_home;
    near(owned(true) - owned(false), heard as f64 / 1000.0);
}

/// How long something takes a core, in nanoseconds.
fn core_takes(parameters: &CxlParameters, what: impl Fn(&CxlCore<'_>, super::Places) + 'static) -> f64 {
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    let taken = Rc::new(RefCell::new(Time::ZERO));
    let into = Rc::clone(&taken);
    simulation.core("host", Role::Main, move |core| {
        let start = core.now();
        what(core, places);
        *into.borrow_mut() = core.now().since(start);
    });
    simulation.run().expect("it ends");
    drop(simulation);
    taken.take().picoseconds() as f64 / 1000.0
}

#[test]
fn loads_of_device_memory_and_of_registers_are_calibrated() {
    let p = between_refreshes("agilex7");
    near(core_takes(&p, |core, places| assert_eq!(core.load(places.host), 0)), 117.0);
    near(core_takes(&p, |core, places| assert_eq!(core.load(places.device), 0)), 375.0);
    near(
        core_takes(&p, |core, places| assert_eq!(core.register_read(places.register), Default::default())),
        5.6 * 375.0,
    );
    let stored = core_takes(&p, |core, places| {
        core.write_line(places.device, &Line::ZERO);
        core.full_fence();
    });
    near(stored, 375.0 + p.core.cycles(1) as f64 / 1000.0);
}

#[test]
fn dma_takes_what_the_paper_says() {
    let p = between_refreshes("agilex7");
    let taken = run(
        &p,
        8,
        |_, _| (),
        |device, places| {
            let dma = device.dma();
            let start = dma.now();
            dma.read(places.host, &mut [0; 64], StateHint::NonCacheable);
            dma.now().since(start).picoseconds() as f64 / 1000.0
        },
    );
    near(taken, 3.125 * 406.0);
    let p = between_refreshes("bf3");
    for (software, wanted) in [(false, 1000.0), (true, 406.0 / 0.19)] {
        let taken = run(
            &p,
            8,
            |_, _| (),
            move |device, places| {
                let dma = device.dma();
                if software {
                    dma.set_up_by_software();
                }
                let start = dma.now();
                dma.read(places.host, &mut [0; 64], StateHint::NonCacheable);
                dma.now().since(start).picoseconds() as f64 / 1000.0
            },
        );
        near(taken, wanted);
    }
}

#[test]
fn a_device_in_silicon_is_faster_and_its_platforms_load() {
    let read = |name: &str| device_read(&between_refreshes(name), false, StateHint::NonCacheable, None);
    let (board, silicon, faster_link) = (read("agilex7"), read("cxl-asic"), read("cxl3-asic"));
    assert!(faster_link < silicon && silicon < 0.6 * board, "{board}, {silicon}, {faster_link} ns");
}

#[test]
fn a_read_that_meets_a_refresh_waits_until_it_is_over() {
    let p = machine("agilex7");
    let refresh = p.refresh.clone().expect("its memory is refreshed");
    let slowest = (0..32).map(|start| {
        run(
            &p,
            8,
            |_, _| (),
            move |device, places| {
                device.wait_until(Time::from_nanoseconds(1_000 + start * 3_900 / 32));
                let start = device.now();
                device.read(places.host, &mut [0; 64], StateHint::NonCacheable);
                device.now().since(start).picoseconds()
            },
        )
    });
    let found: Vec<u64> = slowest.collect();
    let met = found.iter().filter(|taken| **taken > 406_010).count();
    // A channel stands still for 295 of 3900 ns: for two or three of these 32 moments.
    assert!((2..=3).contains(&met), "{met} of 32 reads met a refresh");
    assert!(found.iter().all(|taken| *taken <= 406_010 + refresh.span), "{found:?}");
    near(found.iter().copied().min().expect("there are reads") as f64 / 1000.0, 406.0);
}

/// How long something takes the device with lines that a core has modified, in nanoseconds.
fn with_modified(parameters: &CxlParameters, what: impl Fn(&CxlDevice<'_>, super::Places) + 'static) -> f64 {
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    let taken = Rc::new(RefCell::new(Time::ZERO));
    let into = Rc::clone(&taken);
    simulation.core("host", Role::Main, move |core| {
        core.write_line(places.host, &Line([1; 8]));
        core.write_line(places.device, &Line([1; 8]));
    });
    simulation.device("device", Role::Main, move |device| {
        device.wait_until(Time::from_nanoseconds(10_000));
        let start = device.now();
        what(device, places);
        *into.borrow_mut() = device.now().since(start);
    });
    simulation.run().expect("it ends");
    drop(simulation);
    taken.take().picoseconds() as f64 / 1000.0
}

#[test]
fn an_nc_write_is_pulled_while_the_cores_are_snooped_and_done_after_both() {
    let mut p = between_refreshes("agilex7");
    let write = |p: &CxlParameters| {
        with_modified(p, |device, places| {
            device.write(places.host, &[2; 64], StateHint::NonCacheable);
            device.await_writes();
        })
    };
    let wire = |quarters: u32| u64::from(quarters) * p.link.quarter_time;
    let asked = p.dcoh.miss + wire(p.link.device_request_quarters) + p.link.crossing + p.host.home_lookup;
    let data = wire(p.link.data_header_quarters + p.link.line_quarters);
    let pulled = wire(p.link.answer_quarters) + 2 * p.link.crossing + p.dcoh.pull + data + p.host.home_lookup;
    let done = wire(p.link.answer_quarters) + p.link.crossing + p.dcoh.completion;
    near(write(&p), (asked + pulled + done) as f64 / 1000.0);
    // Where a core takes longer to give its copy up than the data to come, that is what is waited for.
    p.host.snoop_lookup = 1_000_000;
    let snooped = p.host.home_to_core + p.host.snoop_lookup + p.host.core_to_home;
    near(write(&p), (asked + snooped + done) as f64 / 1000.0);
}

#[test]
fn what_the_host_writes_back_for_a_read_of_the_device_is_found_in_the_devices_cache() {
    let read = |latency: u64, again: bool| {
        let mut p = between_refreshes("agilex7");
        p.device_memory.latency = latency;
        with_modified(&p, move |device, places| {
            for _ in 0..=u32::from(again) {
                let mut line = [0; 64];
                device.read(places.device, &mut line, StateHint::NonCacheable);
                assert_eq!(line[0], 1);
            }
        })
    };
    // The device's memory is not waited for.
    near(read(90_000, false), read(1_000_000, false));
    let hit = between_refreshes("agilex7").dcoh.hit as f64 / 1000.0;
    near(read(90_000, true) - read(90_000, false), hit);
}

/// How many of 64 stores of the device, spread over the refresh's interval, a polling core finds later than others.
fn found_late(reads_pending_writes: bool) -> usize {
    const STORES: u64 = 64;
    let mut p = machine("agilex7");
    p.host.reads_pending_writes = reads_pending_writes;
    let (layout, places) = places(STORES);
    let mut simulation = CxlSimulation::new(&p, &layout);
    let found = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&found);
    let moment = |store: u64| Time::from_nanoseconds(50_000 * (store + 1) + store * 3_900 / STORES);
    simulation.core("host", Role::Main, move |core| {
        for store in 0..STORES {
            while core.load_acquire(places.host.lines(store)) == 0 {
                core.spin();
            }
            into.borrow_mut().push(core.now().since(moment(store)).picoseconds());
        }
    });
    simulation.device("device", Role::Service, move |device| {
        for store in 0..STORES {
            device.wait_until(moment(store));
            device.write(places.host.lines(store), &[1; 64], StateHint::NonCacheable);
        }
    });
    simulation.run().expect("it ends");
    let found = found.take();
    let least = *found.iter().min().expect("there are stores");
    found.iter().filter(|taken| **taken > least + 10_000).count()
}

#[test]
fn a_core_seldom_waits_for_a_refresh_where_it_reads_what_the_device_has_just_written() {
    // Some five of 64 come within a refresh; then the line still waits to be written.
    let (without, with) = (found_late(false), found_late(true));
    assert!((3..=8).contains(&without) && with == 0, "{with} and {without} of 64");
}

#[test]
fn a_load_of_a_line_that_is_on_its_way_waits_for_it_and_asks_for_nothing() {
    let p = between_refreshes("agilex7");
    let alone = core_takes(&p, |core, places| {
        core.load(places.host);
    });
    let issue = p.core.cycles(p.core.issue_cycles.into()) as f64 / 1000.0;
    // Before the request is at the home agent, while memory is read, and when the line is there.
    for later in [0, 20, 60, 100] {
        let both = core_takes(&p, move |core, places| {
            core.prefetch_read(places.host);
            core.prefetch_read(places.host);
            let asked = core.now();
            core.wait_until(asked + Time::from_nanoseconds(later));
            core.load(places.host);
            assert_eq!(core.machine().borrow().counters.misses, 1, "{later} ns later");
        });
        near(both, alone + issue);
    }
}

#[test]
fn a_store_takes_effect_when_its_line_has_come_and_no_sooner() {
    let p = between_refreshes("agilex7");
    let issue = p.core.cycles(p.core.issue_cycles.into()) as f64 / 1000.0;
    let alone = core_takes(&p, |core, places| {
        core.store(places.host, 1);
        core.full_fence();
    });
    let load = core_takes(&p, |core, places| {
        core.load(places.host);
    });
    // Before the request is at the home agent, while memory is read, and while the line is under way to the core.
    for later in [0, 20, 60, 100] {
        let twice = core_takes(&p, move |core, places| {
            let start = core.now();
            core.store(places.host, 1);
            core.wait_until(start + Time::from_nanoseconds(later));
            core.store(places.host.word(1), 2);
            core.full_fence();
        });
        near(twice, alone);
        let after_a_load = core_takes(&p, move |core, places| {
            let start = core.now();
            core.prefetch_read(places.host);
            core.wait_until(start + Time::from_nanoseconds(later));
            core.store(places.host, 1);
            core.full_fence();
        });
        near(after_a_load, load + issue);
    }
}

#[test]
fn a_store_asks_for_its_line_beside_a_load_of_bulk_data_before_it_and_waits_for_that() {
    let mut p = between_refreshes("agilex7");
    let issue = p.core.cycles(p.core.issue_cycles.into()) as f64 / 1000.0;
    let store = |p: &CxlParameters, cycles| {
        core_takes(p, move |core, places| {
            core.work(cycles);
            core.store(places.host, 1);
            core.full_fence();
        })
    };
    let behind = |p: &CxlParameters, cycles| {
        core_takes(p, move |core, places| {
            core.read_line(places.host.lines(1));
            core.work(cycles);
            core.store(places.host, 1);
            core.full_fence();
        })
    };
    near(behind(&p, 0), issue + store(&p, 0));
    // A load that takes longer than the store's line is what the store waits for.
    let slow = |core: &CxlCore<'_>, places: super::Places| {
        core.read_line(places.device);
    };
    let alone = core_takes(&p, move |core, places| {
        slow(core, places);
        core.full_fence();
    });
    let both = core_takes(&p, move |core, places| {
        slow(core, places);
        core.store(places.host, 1);
        core.full_fence();
    });
    near(both, alone);
    // What lies a reorder buffer behind the load waits for it: its last picosecond, and the store with it.
    let load = core_takes(&p, |core, places| {
        core.load(places.host);
    });
    let cycles = 60;
    p.core.reorder_buffer = 70;
    let span = p.core.reorder_span() as f64 / 1000.0;
    let work = p.core.work(cycles) as f64 / 1000.0;
    assert!(span < issue + work && span < load);
    near(behind(&p, cycles), load + (issue + work - span) + store(&p, 0));
}

#[test]
fn a_line_that_was_asked_for_to_be_written_is_written_when_it_has_come() {
    let p = between_refreshes("agilex7");
    let issue = p.core.cycles(p.core.issue_cycles.into()) as f64 / 1000.0;
    let alone = core_takes(&p, |core, places| {
        core.store(places.host, 1);
        core.full_fence();
    });
    for later in [0, 60, 100, 500] {
        let ahead = core_takes(&p, move |core, places| {
            let start = core.now();
            core.prefetch_write(places.host);
            core.prefetch_write(places.host);
            core.wait_until(start + Time::from_nanoseconds(later));
            core.store(places.host, 1);
            core.full_fence();
            assert_eq!(core.machine().borrow().counters.misses, 0, "nothing is loaded");
        });
        // One that has come is there at once.
        near(ahead, if later < 500 { alone } else { later as f64 + issue });
    }
    // A load of such a line waits for it as well, and asks for nothing.
    let loaded = core_takes(&p, |core, places| {
        core.prefetch_write(places.host);
        core.load(places.host);
        assert_eq!(core.machine().borrow().counters.misses, 0);
    });
    near(loaded, alone + p.core.cycles(p.core.l1_hit_cycles.into()) as f64 / 1000.0);
}

#[test]
fn a_line_that_is_put_into_the_devices_cache_takes_longer_whether_it_had_a_copy_or_not() {
    let p = between_refreshes("agilex7");
    // A core has modified the line: its cache is read instead of memory, and the device keeps a copy.
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(&p, &layout);
    let taken = Rc::new(RefCell::new(Time::ZERO));
    simulation.core("host", Role::Main, move |core| core.write_line(places.host, &Line([1; 8])));
    let into = Rc::clone(&taken);
    simulation.device("device", Role::Main, move |device| {
        device.wait_until(Time::from_nanoseconds(10_000));
        let start = device.now();
        device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
        *into.borrow_mut() = device.now().since(start);
    });
    simulation.run().expect("it ends");
    near(taken.borrow().picoseconds() as f64 / 1000.0, 477.0);
    // Owning a line to write it takes the same whether it was shared before: what is written is put there.
    let write = |before: bool| {
        run(
            &p,
            8,
            |_, _| (),
            move |device, places| {
                if before {
                    device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
                }
                let start = device.now();
                device.write(places.host, &[1; 64], StateHint::CacheableOwned);
                device.await_writes();
                device.now().since(start).picoseconds() as f64 / 1000.0
            },
        )
    };
    let wire = u64::from(p.link.device_request_quarters + p.link.answer_quarters) * p.link.quarter_time;
    let asked = p.dcoh.miss + 2 * p.link.crossing + wire + p.host.home_lookup + p.dcoh.completion;
    for before in [false, true] {
        near(write(before), (asked + p.dcoh.install) as f64 / 1000.0);
    }
    assert!(p.dcoh.install > 30_000, "the stage of the fill alone takes 30 ns: {}", p.dcoh.install);
}
