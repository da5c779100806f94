//! Timer interrupts of cores: they take the core from its program, also while that polls.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Core, Home, Layout, SynchronisingWords, Time};
use conic_sim::parameters::TimerParameters;
use conic_sim::platform::Platform;
use conic_sim::{Options, Role, Simulation};

/// When a program that polls two words sees each of many numbers that another writes now and then, and what its core did.
fn seen(timer: &TimerParameters, options: Options) -> (Vec<Time>, String) {
    let mut parameters = Platform::load("pc-pcie").expect("it comes with the crate").parameters().clone();
    parameters.timer = Some(timer.clone());
    let mut layout = Layout::new();
    let words = layout.add("words", 128, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, options);
    simulation.core("writer", 1, Role::Main, Time::ZERO, move |core| {
        for number in 1..=60_u64 {
            core.work((number * 977 % 4_000) as u32);
            core.store_release(words.lines(number % 2), number);
            core.full_fence();
        }
    });
    let times = Rc::new(Cell::new(Vec::new()));
    let into = Rc::clone(&times);
    let reader = simulation.core("reader", 0, Role::Main, Time::ZERO, move |core| {
        let (mut times, mut last) = (Vec::new(), 0);
        while last < 60 {
            let newest = core.load_acquire(words).max(core.load_acquire(words.lines(1)));
            if newest == last {
                core.spin();
                continue;
            }
            last = newest;
            times.push(core.now());
        }
        into.set(times);
    });
    simulation.run().expect("both programs end");
    let done = format!("{:?}", simulation.machine().borrow().counted().agents[reader]);
    (times.take(), done)
}

#[test]
fn an_interrupt_takes_a_polling_core_for_as_long_whether_rounds_are_skipped_or_lived_through() {
    for (interval, span) in [(3_000_000, 0), (3_000_000, 200_000), (7_000_001, 1_300_000), (500_000, 20_000)] {
        let timer = TimerParameters { interval, span };
        let exact =
            seen(&timer, Options { fast_forward: false, run_ahead: false, checked: true, ..Options::default() });
        for (fast_forward, run_ahead) in [(true, false), (false, true), (true, true)] {
            let other = seen(&timer, Options { fast_forward, run_ahead, checked: true, ..Options::default() });
            assert_eq!(other, exact, "{timer:?}, fast forward {fast_forward}, run ahead {run_ahead}");
        }
    }
}
