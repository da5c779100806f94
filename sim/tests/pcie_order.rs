//! What may be seen before what, between cores and a device behind PCIe.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, Layout, Line, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::draws::Draws;
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, Simulation};

const HINT: StateHint = StateHint::NonCacheablePush;

fn platform() -> Parameters {
    Platform::load("icx-cx6").expect("a platform that comes with the crate").parameters().clone()
}

/// A region with a register and some host memory.
fn region(lines: u64) -> (Layout, Address, Address) {
    let mut layout = Layout::new();
    let register = layout.add_registers("register", 64, Home::Nic, MemoryType::Uncached);
    let memory = layout.add("memory", 64 * lines, 4096, Home::Host, SynchronisingWords::ALL);
    (layout, register, memory)
}

/// Rounds of numbered writes.
const ROUNDS: u64 = 300;

/// A device writes numbered lines and then their number, to places that some other cores keep taking from each other. Whoever
/// sees the number sees the lines. The reader polls the number, or looks now and then. Gives the times at which it saw each, and how
/// often it and each of the others was snooped.
fn numbered_writes(parameters: &Parameters, options: Options, others: u64, polls: bool) -> (Vec<u64>, Vec<u64>) {
    const LINES: u64 = 4;
    let (layout, register, memory) = region(LINES + 2);
    let (number, noise) = (memory.lines(LINES), memory.lines(LINES + 1));
    let mut simulation = Simulation::new(parameters, &layout, options);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let times = Rc::clone(&seen);
    simulation.core("reader", 0, Role::Main, Time::ZERO, move |core| {
        let mut random = Draws::new(1);
        for round in 1..=ROUNDS {
            // Copies of lines that the device is about to write, or is writing.
            for _ in 0..8 {
                core.prefetch_read(memory.lines(random.below(LINES)));
                core.work(random.below(400) as u32);
            }
            while core.load_acquire(number) < round {
                if polls {
                    core.spin();
                } else {
                    // It may have, or be about to get, a line as it was before the device's write.
                    (0..LINES).for_each(|line| core.prefetch_read(memory.lines(line)));
                    core.work(random.below(300) as u32);
                }
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
    for other in 0..others {
        simulation.core("other", 0, Role::Service, Time::ZERO, move |core| {
            let mut random = Draws::new(1000 * other + 77);
            loop {
                // Word 1 of the lines is these cores': each takes them away, changed.
                core.store(memory.lines(random.below(LINES)).word(1), random.below(100));
                core.work(random.below(100) as u32);
                if random.below(4) == 0 {
                    core.load_acquire(memory.lines(random.below(LINES)));
                }
            }
        });
    }
    simulation.device("writer", Role::Main, Time::ZERO, move |device| {
        let mut random = Draws::new(5);
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
    let machine = simulation.machine().borrow();
    (seen.take(), (0..=others as usize).map(|core| machine.counters(core).snoops).collect())
}

#[test]
fn a_number_is_never_seen_before_what_was_written_before_it() {
    for cache in [true, false] {
        let mut parameters = platform();
        if !cache {
            parameters.cache.device_write_ways = 0;
        }
        for (others, polls) in [(1, true), (6, false)] {
            let options = Options { checked: true, ..Options::default() };
            let (_, snoops) = numbered_writes(&parameters, options, others, polls);
            // The reader loses its copies of the lines too, and not the number's alone; so it had old ones.
            assert!(snoops.iter().all(|&snoops| snoops > 10 * ROUNDS), "the writes hardly met copies: {snoops:?}");
        }
    }
}

#[test]
fn how_it_is_simulated_changes_nothing() {
    let parameters = platform();
    let fast = numbered_writes(&parameters, Options::default(), 2, true);
    for (fast_forward, run_ahead) in [(false, false), (false, true), (true, false)] {
        let slow = numbered_writes(&parameters, Options { fast_forward, run_ahead, ..Options::default() }, 2, true);
        assert_eq!(slow, fast, "fast forward {fast_forward}, run ahead {run_ahead}");
    }
}

/// A device writes one word and reads another; a core stores that other and, after a fence, loads the first, which it has asked
/// for before, among cores that take it from each other. `start` and `between` are when, in nanoseconds. Gives what each read.
fn crossed(start: u64, between: u64) -> (u64, u64) {
    let (layout, _, memory) = region(8);
    let (one, other) = (memory, memory.lines(4));
    let mut simulation = Simulation::new(&platform(), &layout, Options { checked: true, ..Options::default() });
    let found = Rc::new(RefCell::new((9, 9)));
    let (by_core, by_device) = (Rc::clone(&found), Rc::clone(&found));
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        core.store(other.word(1), 1);
        core.full_fence();
        core.work((start * 31 / 10) as u32);
        core.prefetch_read(one);
        core.work((between * 31 / 10) as u32);
        core.store(other, 1);
        core.full_fence();
        by_core.borrow_mut().0 = core.load_acquire(one);
    });
    for word in 1..8 {
        simulation.core("other", 0, Role::Service, Time::ZERO, move |core| {
            for round in 1.. {
                core.store(one.word(word), round);
                core.full_fence();
            }
        });
    }
    simulation.device("device", Role::Main, Time::from_nanoseconds(500), move |device| {
        device.write_word(one, 1, HINT);
        by_device.borrow_mut().1 = device.read_word(other, HINT);
    });
    simulation.run().expect("both programs end");
    found.take()
}

#[test]
fn a_read_does_not_pass_the_writes_before_it() {
    let when = (200..900).step_by(10).flat_map(|start| [0, 30, 60, 120].map(|between| (start, between)));
    let found: Vec<_> = when.map(|(start, between)| crossed(start, between)).collect();
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

#[test]
fn a_flushed_line_is_in_memory_alone_with_all_that_was_stored() {
    let parameters = platform();
    let (layout, _, memory) = region(8);
    let flag = memory.lines(4);
    let mut simulation = Simulation::new(&parameters, &layout, Options { checked: true, ..Options::default() });
    simulation.core("other", 0, Role::Main, Time::ZERO, move |core| {
        core.store(memory.word(1), 7);
        core.store_release(flag, 1);
    });
    let took = Rc::new(RefCell::new((0, 0)));
    let into = Rc::clone(&took);
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        while core.load_acquire(flag) == 0 {
            core.spin();
        }
        core.store(memory.word(2), 8);
        core.flush(memory);
        core.fence();
        let load = || {
            let before = core.now();
            assert_eq!((core.load_acquire(memory.word(1)), core.load(memory.word(2))), (7, 8));
            core.now().since(before).picoseconds()
        };
        *into.borrow_mut() = (load(), load());
    });
    simulation.run().expect("both programs end");
    let (node, hit) = (&parameters.node, parameters.core.cycles(u64::from(parameters.core.l1_hit_cycles)));
    let issue = parameters.core.cycles(u64::from(parameters.core.issue_cycles));
    let memory_load = node.core_to_home + node.home_lookup + parameters.memory.latency + node.home_to_core;
    assert_eq!(took.take(), (memory_load + issue, hit + issue));
}
