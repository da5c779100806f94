//! Runs that would never end: they are stopped, and say who waits for what.

use crate::common;
use conic_fabric::{Core, Home, Layout, SynchronisingWords, Time};
use conic_sim::{Failure, Options, Role, Simulation};

fn waits_for_ever(options: Options) -> Simulation {
    let mut layout = Layout::new();
    let flag = layout.add("flag", 64, 64, Home::Nic, SynchronisingWords::FIRST);
    let mut simulation = Simulation::new(&common::platform("icx"), &layout, options);
    simulation.core("who reads", 0, Role::Main, Time::ZERO, move |core| {
        while core.load_acquire(flag) == 0 {
            core.spin();
        }
    });
    simulation.core("who writes", 1, Role::Main, Time::ZERO, move |core| core.store_release(flag.word(1), 1));
    simulation
}

#[test]
fn a_program_that_waits_for_ever_is_named() {
    let failure = waits_for_ever(Options::default()).run().expect_err("nobody writes the flag");
    assert_eq!(failure, Failure::Deadlock(vec!["who reads for Polling".to_owned()]));
    assert_eq!(failure.to_string(), "nothing can happen any more, and programs wait: who reads for Polling");
}

#[test]
fn polling_that_is_not_skipped_runs_into_the_time_limit() {
    let mut simulation = waits_for_ever(Options { fast_forward: false, ..Options::default() });
    let limit = Time::from_nanoseconds(20_000);
    simulation.set_limit(limit);
    assert_eq!(simulation.run(), Err(Failure::TimeLimit(limit)));
}

#[test]
#[should_panic(expected = "a run may last 30 seconds of simulated time, and the limit is 30000")]
fn a_limit_beyond_what_lines_have_room_for_is_refused() {
    let mut simulation = waits_for_ever(Options::default());
    simulation.set_limit(Time::from_nanoseconds(30_000_000_000));
    simulation.set_limit(Time::from_nanoseconds(30_000_000_001));
}

#[test]
fn a_run_may_last_as_long_as_its_limit() {
    let mut parameters = common::platform("icx");
    (parameters.core.frequency_megahertz, parameters.core.work_scale) = (3_100, 1.0);
    let run = |limit: u64| {
        let mut simulation = Simulation::new(&parameters, &Layout::new(), Options::default());
        simulation.core("who works", 0, Role::Main, Time::ZERO, |core| {
            (0..10).for_each(|_| {
                core.work(3_100);
                core.full_fence();
            });
        });
        simulation.set_limit(Time::from_nanoseconds(limit));
        simulation.run()
    };
    assert_eq!(run(10_000), Ok(()), "ten times 3,100 cycles at 3.1 GHz are 10 microseconds");
    assert_eq!(run(8_000), Err(Failure::TimeLimit(Time::from_nanoseconds(8_000))));
}

#[test]
fn a_service_does_not_keep_a_run_alive() {
    let mut layout = Layout::new();
    let flag = layout.add("flag", 64, 64, Home::Nic, SynchronisingWords::FIRST);
    let mut simulation = Simulation::new(&common::platform("spr"), &layout, Options::default());
    simulation.core("service", 1, Role::Service, Time::ZERO, move |core| {
        loop {
            core.load_acquire(flag);
            core.spin();
        }
    });
    simulation.core("main", 0, Role::Main, Time::ZERO, move |core| core.store_release(flag, 1));
    assert_eq!(simulation.run(), Ok(()));
}
