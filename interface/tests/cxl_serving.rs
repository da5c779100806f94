//! The key-value store on the NIC: against a model, under concurrent updates by the host (linearizable, and what is not is found),
//! and what hostile packets do.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use conic_fabric::{Core, Device, Layout, PlayedByCore, StateHint, Time};
use conic_interface::cxl::serving::{
    Answer, Bytes, Database, DatabaseShape, Handler, MOST_VALUE_BYTES, Request, Through,
};
use conic_sim::Role;
use conic_sim::cxl::{CxlParameters, CxlSimulation};
use conic_sim::platform::Platform;
use conic_sim::protocol::cxl::Bias;

const COHERENT: Through = Through::Coherent { read: StateHint::CacheableOwned, write: StateHint::CacheableOwned };

fn value(number: u64) -> Bytes {
    let mut value = [0; MOST_VALUE_BYTES];
    for (place, byte) in value.iter_mut().enumerate() {
        *byte = (number >> (place % 6 * 8)) as u8 ^ place as u8;
    }
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

fn number_of(value: &Bytes) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

#[test]
fn it_answers_as_a_map_does_where_one_thread_plays_both_sides() {
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 256, stamps: 8, buckets: 4 }.place(&mut layout);
    let memory = common::Memory::new(&layout);
    let host = memory.agent(0);
    let mut model = BTreeMap::new();
    for key in 0..180 {
        assert!(database.insert(&host, key * 7, &value(key)));
        model.insert(key * 7, value(key));
    }
    assert!(!database.insert(&host, 7, &value(0)), "it is there");
    let device = || PlayedByCore(memory.agent(1));
    let mut handler = Handler::new(device(), device(), database, COHERENT, (0, 0));
    let mut state = 3;
    for step in 0..20_000 {
        let key = random(&mut state, 190) * 7;
        match random(&mut state, 4) {
            0 => {
                let answer = handler.serve(&Request::Put(key, value(step)).packet());
                let known = model.get_mut(&key).map(|old| *old = value(step)).is_some();
                assert_eq!(answer, Some(if known { Answer::Stored } else { Answer::Absent }));
            }
            1 => {
                let known = model.get_mut(&key).map(|old| *old = value(step)).is_some();
                assert_eq!(database.update(&host, key, &value(step)), known);
            }
            _ => {
                let expected = model.get(&key).map_or(Answer::Absent, |value| Answer::Found(*value));
                assert_eq!(handler.serve(&Request::Get(key).packet()), Some(expected), "key {key}, step {step}");
                assert_eq!(database.get(&host, key), model.get(&key).copied());
            }
        }
    }
    let seen = handler.statistics();
    assert!(seen.hits > 500 && seen.evictions > 500 && seen.outdated > 100, "{seen:?}");
    assert_eq!(handler.serve(&[1; 12]), None);
    assert_eq!(handler.statistics().refused, 1);
}

/// What somebody did to a key, from when to when.
#[derive(Clone, Copy, Debug)]
struct Done {
    write: bool,
    value: u64,
    begin: Time,
    end: Time,
}

/// Whether operations on one register whose written values are all different can be put into an order (Gibbons and Korach): no two
/// values' forward zones overlap, and no backward zone lies in a forward one.
fn is_linearizable(history: &[Done]) -> bool {
    let mut zones: BTreeMap<u64, (Time, Time, Option<Time>)> = BTreeMap::new();
    for done in history {
        let zone = zones.entry(done.value).or_insert((done.end, done.begin, None));
        *zone = (zone.0.min(done.end), zone.1.max(done.begin), zone.2);
        if done.write {
            zone.2 = Some(done.begin);
        }
    }
    let early = |done: &Done| !done.write && zones[&done.value].2.is_some_and(|written| done.end < written);
    if history.iter().any(early) {
        return false;
    }
    let (forward, backward): (Vec<_>, Vec<_>) =
        zones.values().partition(|(first_end, last_begin, _)| first_end < last_begin);
    let overlap =
        |one: &(Time, Time, Option<Time>), other: &(Time, Time, Option<Time>)| one.0.max(other.0) < one.1.min(other.1);
    let apart = (0..forward.len()).all(|one| (0..one).all(|other| !overlap(forward[one], forward[other])));
    apart && backward.iter().all(|inner| !forward.iter().any(|outer| outer.0 < inner.1 && inner.0 < outer.1))
}

#[test]
fn the_check_tells_what_cannot_be() {
    let at = |begin, end| (Time::from_nanoseconds(begin), Time::from_nanoseconds(end));
    let done = |write, value, (begin, end)| Done { write, value, begin, end };
    let fine =
        [done(true, 1, at(0, 10)), done(true, 2, at(5, 20)), done(false, 1, at(12, 14)), done(false, 2, at(15, 30))];
    assert!(is_linearizable(&fine));
    let back =
        [done(true, 1, at(0, 4)), done(true, 2, at(5, 8)), done(false, 2, at(9, 10)), done(false, 1, at(11, 12))];
    assert!(!is_linearizable(&back));
    assert!(!is_linearizable(&[done(true, 1, at(0, 4)), done(true, 2, at(5, 8)), done(false, 1, at(9, 10))]));
    assert!(!is_linearizable(&[done(false, 1, at(0, 4)), done(true, 1, at(5, 8))]));
}

/// How the host updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Update {
    Stamped,
    /// Plain stores of the entry alone, as if coherence of the host's memory were enough.
    EntryAlone,
}

const KEYS: u64 = 3;

/// Histories of keys that two cores of the host and the handler read and write at once.
fn histories(seed: u64, update: Update) -> Vec<Vec<Done>> {
    let machine = Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 16, stamps: 8, buckets: 1 }.place(&mut layout);
    let mut simulation = CxlSimulation::new(&machine, &layout);
    simulation.set_limit(Time::from_nanoseconds(5_000_000));
    simulation.machine().borrow_mut().disturb(seed, 80_000);
    let history = Rc::new(RefCell::new(vec![Vec::new(); KEYS as usize]));
    let note = |history: &RefCell<Vec<Vec<Done>>>, key: u64, done| history.borrow_mut()[key as usize].push(done);
    for core in 0..2_u64 {
        let history = Rc::clone(&history);
        simulation.core("host", Role::Main, move |face| {
            if core == 0 {
                for key in 0..KEYS {
                    let begin = face.now();
                    assert!(database.insert(face, key, &value(key)));
                    note(&history, key, Done { write: true, value: key, begin, end: face.now() });
                }
            }
            face.wait_until(Time::from_nanoseconds(20_000));
            let mut state = seed * 8 + core;
            for step in 0..80 {
                let key = random(&mut state, KEYS);
                face.work(random(&mut state, 800) as u32);
                let begin = face.now();
                if random(&mut state, 3) == 0 {
                    let number = 1_000 * (core + 1) + step;
                    match update {
                        Update::Stamped => assert!(database.update(face, key, &value(number))),
                        Update::EntryAlone => store_entry(face, &database, key, number),
                    }
                    note(&history, key, Done { write: true, value: number, begin, end: face.now() });
                } else {
                    let found = number_of(&database.get(face, key).expect("it is there"));
                    note(&history, key, Done { write: false, value: found, begin, end: face.now() });
                }
            }
        });
    }
    let into = Rc::clone(&history);
    simulation.device("handler", Role::Main, move |device| {
        device.wait_until(Time::from_nanoseconds(20_000));
        let (at, bytes) = database.of_device();
        device.switch_bias(at, bytes, Bias::Device, true);
        let mut handler = Handler::new(*device, *device, database, COHERENT, (4, 4));
        let mut state = seed * 8 + 7;
        for step in 0..120 {
            let key = random(&mut state, KEYS);
            let begin = device.now();
            let number = 10_000 + step;
            let put = random(&mut state, 4) == 0;
            let request = if put { Request::Put(key, value(number)) } else { Request::Get(key) };
            let (write, value) = match handler.serve(&request.packet()).expect("it is a request") {
                Answer::Found(found) => (false, number_of(&found)),
                Answer::Stored => (true, number),
                Answer::Absent => panic!("key {key} is there"),
            };
            note(&into, key, Done { write, value, begin, end: device.now() });
            device.work(random(&mut state, 200) as u32);
        }
    });
    simulation.run().expect("it ends");
    drop(simulation);
    history.take()
}

/// An update that stores the entry, and tells nobody.
fn store_entry(core: &impl Core, database: &Database, key: u64, number: u64) {
    // In a copy of the database whose keys are so few, an entry is found as the database finds it: by reading.
    assert!(database.overwrite(core, key, &value(number)));
    core.full_fence();
}

#[test]
fn reads_and_writes_of_both_sides_have_an_order() {
    for seed in 1..40 {
        for (key, history) in histories(seed, Update::Stamped).iter().enumerate() {
            assert!(is_linearizable(history), "seed {seed}, key {key}: {history:#?}");
        }
    }
}

#[test]
fn updates_that_tell_nobody_are_found_out() {
    let found = (1..40).any(|seed| histories(seed, Update::EntryAlone).iter().any(|history| !is_linearizable(history)));
    assert!(found, "stale copies on the device went unnoticed");
}
