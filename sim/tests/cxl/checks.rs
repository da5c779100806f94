//! A checked run finds nothing wrong where nothing is, changes nothing, and ends at each of the faults that are planted.

use conic_sim::cxl::{CxlParameters, Machine, Mistake};

use super::machine;
use super::random::observed_run;

/// A host and a device whose caches hold so few lines that they give them up all the time.
fn small() -> CxlParameters {
    let mut parameters = machine("agilex7");
    (parameters.dcoh.hmc_bytes, parameters.dcoh.hmc_ways) = (128, 2);
    (parameters.dcoh.dmc_bytes, parameters.dcoh.dmc_ways) = (128, 2);
    (parameters.cache.l1_bytes, parameters.cache.l1_ways) = (128, 2);
    (parameters.cache.l2_bytes, parameters.cache.l2_ways) = (128, 2);
    (parameters.cache.llc_bytes, parameters.cache.llc_ways) = (256, 4);
    parameters
}

#[test]
fn nothing_is_found_where_nothing_is_wrong_and_nothing_is_changed() {
    for parameters in [machine("agilex7"), small()] {
        for seed in 1..24 {
            let outcome = |prepare: fn(&mut Machine)| {
                let simulation = observed_run(&parameters, seed, prepare);
                let machine = simulation.machine().borrow();
                (machine.counters.clone(), machine.now())
            };
            assert_eq!(outcome(Machine::check), outcome(|_| ()), "seed {seed}");
        }
    }
}

/// A checked run with a mistake in it, which the programs' own checks may miss.
fn mistaken(mistake: Mistake) {
    observed_run(&small(), 1, |machine| {
        machine.check();
        machine.plant(mistake);
    });
}

#[test]
#[should_panic(expected = "the device's copy is old")]
fn a_copy_that_a_snoop_does_not_take_away_is_found() {
    mistaken(Mistake::KeepsCopy);
}

#[test]
#[should_panic(expected = "the host's copy is old")]
fn a_store_that_is_lost_is_found() {
    mistaken(Mistake::LosesStore);
}

#[test]
#[should_panic(expected = "is old")]
fn data_that_were_pulled_and_lost_are_found() {
    mistaken(Mistake::LosesPull);
}

#[test]
#[should_panic(expected = "the host has no copy, and a cache has the line")]
fn a_line_that_a_core_keeps_is_found() {
    mistaken(Mistake::KeepsLine);
}
