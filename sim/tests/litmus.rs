//! Litmus tests of total store order: which outcomes of small programs are seen, and which never.
//!
//! Each round starts with all programs at a barrier, copies of the two words in random places, and random delays.

use crate::common;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::common::Random;
use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords, Time};
use conic_sim::{Options, Role, SimCore, Simulation};

const ROUNDS: u64 = 400;

/// What one program does in a round: it writes 1 and 2 for that round's new values, and says what it read.
type Thread = fn(&SimCore<'_>, Address, Address, u64) -> [u64; 2];

/// How often each outcome was seen: for each thread, whether its two reads gave this round's value.
type Outcomes = BTreeMap<Vec<[bool; 2]>, u64>;

fn wait_for_all(core: &SimCore<'_>, flags: &[Address], me: usize, round: u64) {
    core.store_release(flags[me], round);
    for &flag in flags {
        while core.load_acquire(flag) < round {
            core.spin();
        }
    }
}

/// Runs the threads in rounds on a machine of the seed, on alternating nodes.
fn outcomes(threads: &[Thread], seed: u64) -> Outcomes {
    let mut parameters = common::tiny(if seed.is_multiple_of(2) { "icx" } else { "spr" }, seed);
    parameters.core.store_buffer = 4;
    let mut layout = Layout::new();
    let [host, nic] =
        [Home::Host, Home::Nic].map(|home| layout.add(&format!("{home:?}"), 4096, 64, home, SynchronisingWords::ALL));
    let mut random = Random::new(seed, 0);
    let mut places = || if random.coin() { host.lines(random.below(2)) } else { nic.lines(random.below(2)) };
    let words: Rc<Vec<(Address, Address)>> = Rc::new((0..ROUNDS).map(|_| (places(), places().word(1))).collect());
    let flags: Rc<Vec<Address>> = Rc::new((0..threads.len() as u64).map(|thread| host.lines(8 + thread)).collect());
    let mut simulation = Simulation::new(&parameters, &layout, Options { checked: true, ..Options::default() });
    let seen = Rc::new(RefCell::new(vec![vec![[false; 2]; threads.len()]; ROUNDS as usize]));
    for (me, &thread) in threads.iter().enumerate() {
        let (words, flags, seen) = (Rc::clone(&words), Rc::clone(&flags), Rc::clone(&seen));
        simulation.core(&format!("thread {me}"), me % 2, Role::Main, Time::ZERO, move |core| {
            let mut random = Random::new(seed, 1 + me as u64);
            for (index, &(x, y)) in words.iter().enumerate() {
                let round = index as u64 + 1;
                wait_for_all(core, &flags, me, 2 * round);
                for at in [x, y] {
                    match random.below(4) {
                        0 => core.prefetch_read(at),
                        1 => core.prefetch_write(at),
                        _ => {}
                    }
                }
                wait_for_all(core, &flags, me, 2 * round + 1);
                core.work(random.below(600) as u32);
                seen.borrow_mut()[index][me] = thread(core, x, y, round).map(|value| value == round);
            }
        });
    }
    simulation.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    let mut outcomes = Outcomes::new();
    seen.borrow().iter().for_each(|outcome| *outcomes.entry(outcome.clone()).or_default() += 1);
    outcomes
}

/// All outcomes over several seeds.
fn all_outcomes(threads: &[Thread]) -> Outcomes {
    let mut all = Outcomes::new();
    for seed in 0..12 {
        outcomes(threads, seed).into_iter().for_each(|(outcome, count)| *all.entry(outcome).or_default() += count);
    }
    println!("{all:?}");
    all
}

const NOTHING: u64 = u64::MAX;

#[test]
fn a_store_may_be_seen_after_a_later_load_but_not_across_a_fence() {
    let threads: [Thread; 2] = [
        |core, x, y, round| {
            core.store(x, round);
            [core.load(y), NOTHING]
        },
        |core, x, y, round| {
            core.store(y, round);
            [core.load(x), NOTHING]
        },
    ];
    let both_old = vec![[false; 2]; 2];
    assert!(all_outcomes(&threads).contains_key(&both_old), "stores wait in a store buffer, and loads do not");
    let fenced: [Thread; 2] = [
        |core, x, y, round| {
            core.store(x, round);
            core.full_fence();
            [core.load(y), NOTHING]
        },
        |core, x, y, round| {
            core.store(y, round);
            core.full_fence();
            [core.load(x), NOTHING]
        },
    ];
    let outcomes = all_outcomes(&fenced);
    assert!(!outcomes.contains_key(&both_old), "a fence waits for the stores before it");
    assert!(outcomes.len() >= 3, "the threads meet in every other way: {outcomes:?}");
}

#[test]
fn a_message_is_there_when_its_flag_is() {
    let threads: [Thread; 2] = [
        |core, x, y, round| {
            core.store(x, round);
            core.store_release(y, round);
            [NOTHING; 2]
        },
        |core, x, y, _| [core.load_acquire(y), core.load(x)],
    ];
    let outcomes = all_outcomes(&threads);
    assert!(!outcomes.contains_key(&vec![[false; 2], [true, false]]), "the flag, and not the message");
    assert!(outcomes.len() == 3, "neither, the message alone, both: {outcomes:?}");
}

/// The word at a place, by a load of bulk data, which the program goes on behind.
fn bulk(core: &SimCore<'_>, at: Address) -> u64 {
    let line = Address(at.0 - at.0 % LINE_BYTES);
    core.read_line(line).0[(at.0 - line.0) as usize / 8]
}

#[test]
fn loads_that_a_core_goes_on_behind_are_seen_in_their_order() {
    // The second load is of bulk data as well, or waits, or hits where the core has a copy.
    let readers: [Thread; 3] = [
        |core, x, y, _| [bulk(core, y), bulk(core, x)],
        |core, x, y, _| [bulk(core, y), core.load(x)],
        |core, x, y, _| [core.load(y), bulk(core, x)],
    ];
    for reader in readers {
        let writer: Thread = |core, x, y, round| {
            core.store(x, round);
            core.store_release(y, round);
            [NOTHING; 2]
        };
        let outcomes = all_outcomes(&[writer, reader]);
        assert!(!outcomes.contains_key(&vec![[false; 2], [true, false]]), "the flag, and not the message");
        assert!(outcomes.len() == 3, "neither, the message alone, both: {outcomes:?}");
    }
}

#[test]
fn a_store_behind_a_load_of_bulk_data_is_not_seen_before_what_the_load_found() {
    let threads: [Thread; 2] = [
        |core, x, y, round| {
            let seen = bulk(core, x);
            core.store(y, round);
            [seen, NOTHING]
        },
        |core, x, y, round| {
            let seen = bulk(core, y);
            core.store(x, round);
            [seen, NOTHING]
        },
    ];
    let outcomes = all_outcomes(&threads);
    assert!(!outcomes.contains_key(&vec![[true, false]; 2]), "both loads before both stores");
    assert!(outcomes.len() == 3, "{outcomes:?}");
}

#[test]
fn no_load_sees_a_store_that_comes_after_it() {
    let threads: [Thread; 2] = [
        |core, x, y, round| {
            let seen = core.load(x);
            core.store(y, round);
            [seen, NOTHING]
        },
        |core, x, y, round| {
            let seen = core.load(y);
            core.store(x, round);
            [seen, NOTHING]
        },
    ];
    let outcomes = all_outcomes(&threads);
    assert!(!outcomes.contains_key(&vec![[true, false]; 2]), "both loads before both stores");
    assert!(outcomes.len() == 3, "{outcomes:?}");
}

#[test]
fn all_readers_see_two_stores_in_the_same_order() {
    let threads: [Thread; 4] = [
        |core, x, _, round| {
            core.store(x, round);
            [NOTHING; 2]
        },
        |core, _, y, round| {
            core.store(y, round);
            [NOTHING; 2]
        },
        |core, x, y, _| [core.load(x), core.load(y)],
        |core, x, y, _| [core.load(y), core.load(x)],
    ];
    let outcomes = all_outcomes(&threads);
    let disagree = vec![[false; 2], [false; 2], [true, false], [true, false]];
    assert!(!outcomes.contains_key(&disagree), "one sees x first and the other y");
    assert!(outcomes.len() >= 12, "of the fifteen others, most: {outcomes:?}");
}

#[test]
fn a_core_sees_its_own_store_before_the_others_do() {
    let threads: [Thread; 2] = [
        |core, x, y, round| {
            core.store(x, round);
            let own = core.load(x);
            [own, core.load(y)]
        },
        |core, x, y, round| {
            core.store(y, round);
            let own = core.load(y);
            [own, core.load(x)]
        },
    ];
    let outcomes = all_outcomes(&threads);
    assert!(outcomes.keys().flatten().all(|[own, _]| *own), "a load gives what the store buffer holds: {outcomes:?}");
    assert!(outcomes.contains_key(&vec![[true, false]; 2]), "while the other does not see it yet");
}
