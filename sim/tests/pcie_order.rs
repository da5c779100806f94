//! What may be seen before what, between cores and a device behind PCIe.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, Layout, Line, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::link::mix;
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, Simulation};

const HINT: StateHint = StateHint::NonCacheablePush;

fn platform() -> Parameters {
    Platform::load("icx-cx6").expect("a platform that comes with the crate").parameters().clone()
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        mix(self.0) % bound
    }
}

/// A region with a register and some host memory.
fn region(lines: u64) -> (Layout, Address, Address) {
    let mut layout = Layout::new();
    let register = layout.add_registers("register", 64, Home::Nic, MemoryType::Uncached);
    let memory = layout.add("memory", 64 * lines, 4096, Home::Host, SynchronisingWords::ALL);
    (layout, register, memory)
}

/// A device writes numbered lines and then their number, to places that two cores keep reading and writing nearby. Whoever sees
/// the number sees the lines. Gives the times at which the first core saw each.
fn numbered_writes(parameters: &Parameters, options: Options) -> Vec<u64> {
    const ROUNDS: u64 = 300;
    const LINES: u64 = 24;
    let (layout, register, memory) = region(LINES + 2);
    let (number, noise) = (memory.lines(LINES), memory.lines(LINES + 1));
    let mut simulation = Simulation::new(parameters, &layout, options);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let times = Rc::clone(&seen);
    simulation.core("reader", 0, Role::Main, Time::ZERO, move |core| {
        let mut random = Random(1);
        for round in 1..=ROUNDS {
            // Copies of lines that the device is about to write, or is writing.
            for _ in 0..8 {
                core.prefetch_read(memory.lines(random.below(LINES)));
                core.work(random.below(400) as u32);
            }
            while core.load_acquire(number) < round {
                core.spin();
            }
            times.borrow_mut().push(core.now().picoseconds());
            for line in 0..LINES {
                let found = core.load_acquire(memory.lines(line));
                assert!(found >= round, "line {line} has {found} after number {round}");
            }
            core.store(noise, round);
            core.register_write(register, round);
        }
    });
    simulation.core("neighbour", 0, Role::Service, Time::ZERO, move |core| {
        let mut random = Random(77);
        loop {
            // Word 1 of the lines is this core's: it takes them away, changed.
            let line = memory.lines(random.below(LINES));
            core.store(line.word(1), random.below(100));
            core.work(random.below(500) as u32);
            if random.below(4) == 0 {
                core.load_acquire(memory.lines(random.below(LINES)));
            }
        }
    });
    simulation.device("writer", Role::Main, Time::ZERO, move |device| {
        let mut random = Random(5);
        for round in 1..=ROUNDS {
            let first = random.below(LINES);
            for index in 0..LINES {
                device.write(memory.lines((first + index) % LINES), &round.to_ne_bytes(), HINT);
            }
            device.write_word(number, round, HINT);
            while device.own_register(register) < round {
                device.spin();
            }
            assert!(device.read_word(noise, HINT) >= round, "the store before the register's");
        }
    });
    simulation.run().expect("the programs end");
    seen.take()
}

#[test]
fn a_number_is_never_seen_before_what_was_written_before_it() {
    for cache in [true, false] {
        let mut parameters = platform();
        if !cache {
            parameters.cache.device_write_ways = 0;
        }
        let times = numbered_writes(&parameters, Options { checked: true, ..Options::default() });
        assert!(times.is_sorted() && times.len() == 300);
    }
}

#[test]
fn how_it_is_simulated_changes_nothing() {
    let parameters = platform();
    let fast = numbered_writes(&parameters, Options::default());
    for (fast_forward, run_ahead) in [(false, false), (false, true), (true, false)] {
        let slow = numbered_writes(&parameters, Options { fast_forward, run_ahead, ..Options::default() });
        assert_eq!(slow, fast, "fast forward {fast_forward}, run ahead {run_ahead}");
    }
}

/// A device writes one word and reads another; a core stores that other and, after a fence, loads the first. `lead` is by how
/// much the core is later. Gives what each read.
fn crossed(lead: u64) -> (u64, u64) {
    let (layout, _, memory) = region(8);
    let (one, other) = (memory, memory.lines(4));
    let mut simulation = Simulation::new(&platform(), &layout, Options { checked: true, ..Options::default() });
    let found = Rc::new(RefCell::new((9, 9)));
    let (by_core, by_device) = (Rc::clone(&found), Rc::clone(&found));
    simulation.core("core", 0, Role::Main, Time::from_picoseconds(lead), move |core| {
        // It has the first word in its cache, so its load can be early; and owns the other, so its store is too.
        core.load_acquire(one);
        core.store(other.word(1), 1);
        core.full_fence();
        core.work(1500);
        core.store(other, 1);
        core.full_fence();
        by_core.borrow_mut().0 = core.load_acquire(one);
    });
    simulation.device("device", Role::Main, Time::from_nanoseconds(500), move |device| {
        device.write_word(one, 1, HINT);
        by_device.borrow_mut().1 = device.read_word(other, HINT);
    });
    simulation.run().expect("both programs end");
    let found = *found.borrow();
    found
}

#[test]
fn a_read_does_not_pass_the_writes_before_it() {
    let found: Vec<_> = (0..800).map(|step| crossed(step * 1_000)).collect();
    assert!(!found.contains(&(0, 0)), "a read was answered before a write that came before it could be seen");
    // The sweep meets every other outcome, so the two did cross.
    for outcome in [(0, 1), (1, 0), (1, 1)] {
        assert!(found.contains(&outcome), "never {outcome:?}");
    }
}

#[test]
fn a_device_reads_a_cores_stores_in_their_order() {
    let (layout, _, memory) = region(64);
    let (first, second) = (memory, memory.lines(32));
    let mut simulation = Simulation::new(&platform(), &layout, Options { checked: true, ..Options::default() });
    simulation.core("core", 0, Role::Service, Time::ZERO, move |core| {
        for value in 1.. {
            core.store(first, value);
            core.store(second, value);
        }
    });
    simulation.device("device", Role::Main, Time::ZERO, move |device| {
        let mut last = 0;
        for round in 0..200 {
            let later = device.read_word(second, HINT);
            let earlier = device.read_word(first, HINT);
            assert!(earlier >= later, "round {round}: {earlier} and then {later} were stored");
            assert!(later >= last, "round {round}: {later} after {last}");
            last = earlier;
        }
        assert!(last > 0, "the device saw the core at work");
    });
    simulation.run().expect("the device's program ends");
}

#[test]
fn nontemporal_and_write_combining_stores_are_seen_after_a_fence() {
    for (name, node) in [("icx", 0), ("icx", 1), ("icx-cx6", 0)] {
        let parameters = Platform::load(name).expect("a platform that comes with the crate").parameters().clone();
        let mut layout = Layout::new();
        let near = layout.add("near", 64 * 64, 64, Home::Host, SynchronisingWords::ALL);
        let combining = layout.add_registers("combining", 64 * 64, Home::Host, MemoryType::WriteCombining);
        let far = layout.add("far", 64 * 64, 64, Home::Nic, SynchronisingWords::ALL);
        let number = layout.add("number", 64, 64, Home::Host, SynchronisingWords::FIRST);
        let seen = layout.add("seen", 64, 64, Home::Nic, SynchronisingWords::FIRST);
        let mut simulation = Simulation::new(&parameters, &layout, Options { checked: true, ..Options::default() });
        const ROUNDS: u64 = 20;
        simulation.core("writer", node, Role::Main, Time::ZERO, move |core| {
            for round in 1..=ROUNDS {
                for index in 0..64 {
                    core.write_nontemporal(near.lines(index), &[Line([round; 8])]);
                    core.write_nontemporal(far.lines(index), &[Line([round; 8])]);
                    core.store(combining.lines(index).word(2), round);
                }
                core.fence();
                core.store_release(number, round);
                while core.load_acquire(seen) != round {
                    core.spin();
                }
            }
        });
        simulation.core("reader", 1 - node, Role::Main, Time::ZERO, move |core| {
            for round in 1..=ROUNDS {
                while core.load_acquire(number) != round {
                    core.spin();
                }
                for index in 0..64 {
                    for at in [near, far] {
                        assert_eq!(core.read_line(at.lines(index)), Line([round; 8]), "{name}, node {node}");
                    }
                }
                core.store_release(seen, round);
            }
        });
        simulation.run().expect("both programs end");
    }
}
