//! Latencies and serialisation to the picosecond, by hand-written devices.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Address, Ask, Core, Device, Grant, Home, HomeAgent, Layout, SynchronisingWords};

use super::parameters::*;
use super::{Disturbances, EciCore, EciDevice, EciSimulation};
use crate::probe::Recording;
use crate::simulation::{Failure, Role};

/// Round numbers, so that sums are easy to read.
pub(super) fn parameters() -> EciParameters {
    EciParameters {
        name: "test".to_owned(),
        core: EciCoreParameters {
            cores: 4,
            frequency_megahertz: 2000,
            issue_cycles: 2,
            access_bytes: 16,
            l1_hit_cycles: 4,
            store_buffer: 8,
            prefetches: 8,
        },
        cache: EciCacheParameters {
            line_bytes: 128,
            l1_bytes: 32 << 10,
            l1_ways: 32,
            core_to_l2: 10_000,
            l2_to_core: 11_000,
            store_interval: 2_000,
            recall_lookup: 5_000,
            writes_back_first: false,
            transaction_units: 8,
            unit_transactions: 16,
            patience: 40_000_000,
        },
        link: EciLinkParameters { links: 2, crossing: 150_000, word_bytes: 8, word_time: 600, line_words: 17 },
        directory: EciDirectoryParameters {
            slices: 2,
            units: 32,
            transactions: 2,
            pass: 70_000,
            header_time: 3_000,
            line_time: 6_000,
        },
        device: EciDeviceParameters {
            cycle: 3_000,
            message_time: 3_000,
            timer_resolution: 1_000_000,
            nic_cycle: 4_000,
            nic_crossing: 20_000,
            nic_crossing_interval: 12_000,
            port_cycle: 3_103,
            hash_latency: 64,
            hash_interval: 2,
            filter_latency: 1,
            receive_stage: 36_000,
            receive_line: 8_500,
            transmit_stage: 36_000,
            transmit_line: 9_000,
        },
        software: EciSoftwareParameters {
            batch: 25_000_000,
            operator: 3_000_000,
            stand_in: 2_000_000,
            record: 5_000,
            bloom_element: 2_600_000,
        },
    }
}

/// Lines from address 0.
pub(super) fn lines(count: u64) -> Layout {
    let mut layout = Layout::new();
    layout.add("lines", count * 128, 128, Home::Nic, SynchronisingWords::NONE);
    layout
}

/// Answers every request at once.
pub(super) fn answering(grant: Grant) -> impl FnOnce(&EciDevice<'_>) {
    move |device| {
        loop {
            while let Some(arrival) = device.next_arrival() {
                match arrival.ask {
                    Ask::Evicted { .. } => {}
                    Ask::Exclusive => device.answer(arrival, Grant::Exclusive),
                    Ask::Shared => device.answer(arrival, grant),
                }
            }
            device.spin();
        }
    }
}

/// Picoseconds that each step of a core's program took, beside a device that answers every request at once.
fn timed(
    parameters: &EciParameters,
    grant: Grant,
    program: impl FnOnce(&EciCore<'_>, &mut dyn FnMut()) + 'static,
) -> Vec<u64> {
    let mut simulation = EciSimulation::new(parameters, &lines(64), Disturbances::default());
    let times = Rc::new(RefCell::new(Vec::new()));
    let (out, last) = (Rc::clone(&times), Rc::new(Cell::new(0)));
    simulation.core("core", Role::Main, move |core| {
        program(core, &mut || {
            let now = core.now().picoseconds();
            out.borrow_mut().push(now - last.replace(now));
        });
    });
    simulation.device("device", Role::Service, answering(grant));
    simulation.run().expect("it ends");
    drop(simulation);
    Rc::into_inner(times).expect("the programs are gone").into_inner()
}

/// A miss's way: over a header and a line, two passes, and the device's cycle.
const ROUND_TRIP: u64 = 150_000 + 600 + 70_000 + 3_000 + 70_000 + 17 * 600 + 150_000;

#[test]
fn a_load_takes_the_sum_of_its_stages() {
    let times = timed(&parameters(), Grant::Exclusive, |core, step| {
        core.load(Address(0));
        step();
        core.load(Address(8));
        step();
        core.read_line(Address(64));
        step();
    });
    let miss = 1_000 + 10_000 + ROUND_TRIP + 11_000 + 1_000;
    assert_eq!(times, [miss, 1_000 + 2_000, 4 * 1_000 + 2_000]);
}

#[test]
fn a_store_to_a_shared_line_pays_a_round_trip_and_to_an_exclusive_one_none() {
    let program = |core: &EciCore<'_>, step: &mut dyn FnMut()| {
        core.load(Address(0));
        step();
        core.store(Address(0), 7);
        core.full_fence();
        step();
        assert_eq!(core.load(Address(0)), 7);
    };
    let silent = 1_000 + 10_000 + 11_000;
    assert_eq!(timed(&parameters(), Grant::Exclusive, program)[1], silent);
    assert_eq!(timed(&parameters(), Grant::Shared, program)[1], silent + ROUND_TRIP);
}

#[test]
fn a_store_that_follows_another_takes_as_long_to_the_second_level() {
    let times = timed(&parameters(), Grant::Exclusive, |core, step| {
        core.load(Address(0));
        step();
        core.store(Address(0), 7);
        // The second is issued just before the first is there.
        core.work(16);
        core.store(Address(8), 7);
        core.full_fence();
        step();
    });
    assert_eq!(times[1], (1_000 + 8_000 + 1_000) + 10_000 + 11_000);
}

#[test]
fn lines_of_one_link_wait_for_each_other_and_of_the_other_do_not() {
    // The last of two prefetched lines: on one link, the second line waits for the first one's wire, longer than for its slice.
    let mut one = parameters();
    one.link.word_time = 6_000;
    let both = |second: u64| {
        move |core: &EciCore<'_>, step: &mut dyn FnMut()| {
            core.prefetch_read(Address(0));
            core.prefetch_read(Address(128 * second));
            core.load(Address(0));
            step();
            core.load(Address(128 * second));
            step();
        }
    };
    let neighbours = timed(&one, Grant::Exclusive, both(1));
    one.link.links = 1;
    let together = timed(&one, Grant::Exclusive, both(1));
    // Apart they come as far apart as the device heard of them, together a line's time on the wire.
    assert_eq!(neighbours[0], together[0]);
    assert_eq!(together[1] - neighbours[1], 17 * 6_000 - 3_000, "{neighbours:?} {together:?}");
}

/// Writes one line and loads another, whose answer the device withholds until it has the first one back.
fn exchange(parameters: &EciParameters, written: u64, loaded: u64) -> Result<(), Failure> {
    exchange_on(parameters, [written, loaded], Grant::Exclusive, None).map(|_| ())
}

/// The same by a device that returns what was asked for to read in some way; with so many records, if any are wanted.
pub(super) fn exchange_on(
    parameters: &EciParameters,
    [written, loaded]: [u64; 2],
    grant: Grant,
    records: Option<usize>,
) -> Result<Option<Recording>, Failure> {
    let mut simulation = EciSimulation::new(parameters, &lines(4096), Disturbances::default());
    let [written, loaded] = [written, loaded].map(|line| Address(128 * line));
    simulation.core("core", Role::Main, move |core| {
        core.store(written, 7);
        core.full_fence();
        assert_eq!(core.load(loaded), 8);
    });
    simulation.device("device", Role::Service, move |device| {
        loop {
            while let Some(arrival) = device.next_arrival() {
                if arrival.line == loaded {
                    let tag = device.start_recall(written);
                    assert!(device.finish_recall(tag), "it was written");
                    let mut line = device.own_line(written);
                    line.0[0] += 1;
                    device.set_own_line(loaded, &line);
                }
                match arrival.ask {
                    Ask::Evicted { .. } => {}
                    Ask::Exclusive => device.answer(arrival, Grant::Exclusive),
                    Ask::Shared => device.answer(arrival, grant),
                }
            }
            device.spin();
        }
    });
    if let Some(records) = records {
        simulation.machine().borrow_mut().record(records);
    }
    simulation.run()?;
    Ok(simulation.machine().borrow_mut().take_recording())
}

/// The next line that the directory handles in the same unit, but not the CPU's cache; and the other way round.
fn partners(parameters: &EciParameters) -> [u64; 2] {
    let directory = |line| super::placement::directory_unit_of(&parameters.directory, line);
    let cache = |line| super::placement::transaction_unit_of(&parameters.cache, line);
    let find = |same: &dyn Fn(u64) -> bool| (1..4096).find(|line| same(*line)).expect("there are enough lines");
    [
        find(&|line| directory(line) == directory(0) && cache(line) != cache(0)),
        find(&|line| directory(line) != directory(0) && cache(line) == cache(0)),
    ]
}

#[test]
fn two_lines_of_one_serialising_unit_stop_for_ever_and_two_of_different_ones_do_not() {
    let mut serialising = parameters();
    serialising.directory.transactions = 1;
    serialising.cache.unit_transactions = 1;
    let [of_directory, of_cache] = partners(&serialising);
    assert_eq!(exchange(&serialising, 1, 0), Ok(()));
    for (partner, unit) in [(of_directory, "directory unit"), (of_cache, "transaction unit")] {
        let Err(Failure::Deadlock(who)) = exchange(&serialising, partner, 0) else { panic!("it ends") };
        let recalled = format!("the recall of the line at {:#x} for {unit}", partner * 128);
        assert!(who.iter().any(|text| text.starts_with(&recalled)), "{who:?}");
    }
    // With a second slot there is room for the recall.
    assert_eq!([of_directory, of_cache].map(|partner| exchange(&parameters(), partner, 0)), [Ok(()), Ok(())]);
}

#[test]
fn a_request_without_an_answer_faults_when_the_cache_has_waited_enough() {
    let mut simulation = EciSimulation::new(&parameters(), &lines(2), Disturbances::default());
    simulation.core("core", Role::Main, |core| {
        core.load(Address(128));
    });
    simulation.device("device", Role::Service, |device| {
        while device.next_arrival().is_none() {
            device.spin();
        }
    });
    let Err(Failure::NoAnswer { line, waited }) = simulation.run() else { panic!("it ends") };
    assert_eq!((line, waited.picoseconds()), (Address(128), parameters().cache.patience));
    assert_eq!(simulation.machine().borrow().now(), 11_000 + parameters().cache.patience);
}
