//! The key-value store on the NIC: against a model, under concurrent updates by the host (linearizable, and what is not is found),
//! and what hostile packets do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use conic_fabric::{Core, Device, Layout, PlayedByCore, StateHint, Time};
use conic_interface::cxl::serving::{
    Answer, Database, DatabaseShape, Handler, INLINE_BYTES, Request, ServingStatistics, Through,
};
use conic_sim::Role;
use conic_sim::cxl::{CxlParameters, CxlSimulation};
use conic_sim::platform::Platform;
use conic_sim::protocol::cxl::Bias;

const COHERENT: Through = Through::Coherent { read: StateHint::CacheableOwned, write: StateHint::CacheableOwned };

/// Bytes of the longest value.
const LONG: usize = 200;

/// A value that is told by its number: of so many bytes, each of which follows from the number.
fn value_of(number: u64, length: usize) -> Vec<u8> {
    let byte =
        |place: usize| if place < 8 { number.to_le_bytes()[place] } else { ((number as usize * 37) ^ place) as u8 };
    (0..length).map(byte).collect()
}

/// A short one.
fn value(number: u64) -> Vec<u8> {
    value_of(number, INLINE_BYTES)
}

/// Which value this is: all of it, not a part of one and a part of another.
fn number_of(value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    assert_eq!(value, value_of(number, value.len()), "of two values");
    number
}

#[test]
fn it_answers_as_a_map_does_where_one_thread_plays_both_sides() {
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 256, stamps: 8, buckets: 4, value_bytes: LONG as u64 }.place(&mut layout);
    let memory = crate::common::Memory::new(&layout);
    let host = memory.agent(0);
    let mut model = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(3);
    for key in 0..180 {
        let value = value_of(key, random.usize(8..=LONG));
        assert!(database.insert(&host, key * 7, &value));
        model.insert(key * 7, value);
    }
    assert!(!database.insert(&host, 7, &value(0)), "it is there");
    let device = || PlayedByCore(memory.agent(1));
    let mut handler = Handler::new(device(), device(), database, COHERENT, (0, 0));
    for step in 0..20_000 {
        let key = random.u64(..190) * 7;
        let new = value_of(step, random.usize(8..=LONG));
        match random.u8(..4) {
            0 => {
                let answer = handler.serve(&Request::Put(key, &new).packet());
                let known = model.get_mut(&key).map(|old| *old = new).is_some();
                assert_eq!(answer, Some(if known { Answer::Stored } else { Answer::Absent }));
            }
            1 => {
                assert_eq!(database.update(&host, key, &new), model.contains_key(&key));
                model.get_mut(&key).into_iter().for_each(|old| old.clone_from(&new));
            }
            _ => {
                let expected = model.get(&key).map_or(Answer::Absent, |value| Answer::Found(value.clone()));
                assert_eq!(handler.serve(&Request::Get(key).packet()), Some(expected), "key {key}, step {step}");
                assert_eq!(database.get(&host, key), model.get(&key).cloned());
            }
        }
    }
    let too_long = value_of(1, LONG + 1);
    assert_eq!(handler.serve(&Request::Put(7, &too_long).packet()), Some(Answer::TooLong));
    assert!(!database.update(&host, 7, &too_long) && !database.insert(&host, 5, &too_long));
    assert_eq!(database.get(&host, 7), model.get(&7).cloned(), "nothing has changed");
    let seen = handler.statistics();
    assert!(seen.hits > 500 && seen.evictions > 500 && seen.outdated > 100, "{seen:?}");
    assert_eq!(handler.serve(&[1; 12]), None);
    assert_eq!(handler.statistics().refused, 2);
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

/// Histories of keys that two cores of the host and the handler read and write at once, with values of this length; `pause`: how many
/// cycles each of them rests at most between two operations.
fn histories(seed: u64, update: Update, length: usize, pause: u64) -> (Vec<Vec<Done>>, ServingStatistics) {
    let machine = Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 16, stamps: 8, buckets: 1, value_bytes: LONG as u64 }.place(&mut layout);
    let mut simulation = CxlSimulation::new(&machine, &layout);
    simulation.set_limit(Time::from_nanoseconds(5_000_000));
    simulation.machine().borrow_mut().disturb(seed, 80_000);
    let history = Rc::new(RefCell::new(vec![Vec::new(); KEYS as usize]));
    let seen = Rc::new(RefCell::new(ServingStatistics::default()));
    let value = move |number| value_of(number, length);
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
            let mut random = fastrand::Rng::with_seed(seed * 8 + core);
            for step in 0..80 {
                let key = random.u64(..KEYS);
                face.work(random.u64(..4 * pause) as u32);
                let begin = face.now();
                if random.u8(..3) == 0 {
                    let number = 1_000 * (core + 1) + step;
                    match update {
                        Update::Stamped => assert!(database.update(face, key, &value(number))),
                        Update::EntryAlone => store_entry(face, &database, key, &value(number)),
                    }
                    note(&history, key, Done { write: true, value: number, begin, end: face.now() });
                } else {
                    let found = number_of(&database.get(face, key).expect("it is there"));
                    note(&history, key, Done { write: false, value: found, begin, end: face.now() });
                }
            }
        });
    }
    let (into, counted) = (Rc::clone(&history), Rc::clone(&seen));
    simulation.device("handler", Role::Main, move |device| {
        device.wait_until(Time::from_nanoseconds(20_000));
        let (at, bytes) = database.of_device();
        device.switch_bias(at, bytes, Bias::Device, true);
        let mut handler = Handler::new(*device, *device, database, COHERENT, (4, 4));
        let mut random = fastrand::Rng::with_seed(seed * 8 + 7);
        for step in 0..120 {
            let key = random.u64(..KEYS);
            let begin = device.now();
            let number = 10_000 + step;
            let put = random.u8(..4) == 0;
            let new = value(number);
            let request = if put { Request::Put(key, &new) } else { Request::Get(key) };
            let (write, value) = match handler.serve(&request.packet()).expect("it is a request") {
                Answer::Found(found) => (false, number_of(&found)),
                Answer::Stored => (true, number),
                other => panic!("key {key} is there: {other:?}"),
            };
            note(&into, key, Done { write, value, begin, end: device.now() });
            device.work(random.u32(..pause as u32));
        }
        *counted.borrow_mut() = handler.statistics();
    });
    simulation.run().expect("it ends");
    drop(simulation);
    (history.take(), seen.take())
}

/// An update that stores the entry, and tells nobody.
fn store_entry(core: &impl Core, database: &Database, key: u64, value: &[u8]) {
    // In a copy of the database whose keys are so few, an entry is found as the database finds it: by reading.
    assert!(database.overwrite(core, key, value));
    core.full_fence();
}

#[test]
fn reads_and_writes_of_both_sides_have_an_order() {
    let mut changed = 0;
    for (length, pause) in [(INLINE_BYTES, 200), (INLINE_BYTES, 1), (LONG, 200), (LONG, 1)] {
        for seed in 1..20 {
            let (histories, seen) = histories(seed, Update::Stamped, length, pause);
            for (key, history) in histories.iter().enumerate() {
                assert!(is_linearizable(history), "{length} bytes, seed {seed}, key {key}: {history:#?}");
            }
            changed += seen.changed;
        }
    }
    assert!(changed > 0, "no value changed while it was read: nothing of that was tried");
}

#[test]
fn updates_that_tell_nobody_are_found_out() {
    let one = |seed| histories(seed, Update::EntryAlone, INLINE_BYTES, 200).0;
    let found = (1..40).any(|seed| one(seed).iter().any(|history| !is_linearizable(history)));
    assert!(found, "stale copies on the device went unnoticed");
}

/// Checks in the host's memory what a model has; how many values there are others.
fn differing<C: Core>(host: &C, database: &Database, model: &BTreeMap<u64, Vec<u8>>) -> usize {
    model.iter().filter(|(key, value)| database.get(host, **key).as_ref() != Some(value)).count()
}

/// A random history of GET and PUT, written back, on a device that has room for four keys, where one thread plays both sides.
fn written_back(seed: u64, through: Through) -> ServingStatistics {
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 64, stamps: 8, buckets: 1, value_bytes: LONG as u64 }.place(&mut layout);
    let memory = crate::common::Memory::new(&layout);
    let host = memory.agent(0);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model: BTreeMap<u64, Vec<u8>> = (0..12).map(|key| (key, value(key))).collect();
    model.iter().for_each(|(key, value)| assert!(database.insert(&host, *key, value)));
    let device = || PlayedByCore(memory.agent(1));
    let mut handler = Handler::new(device(), device(), database, through, (0, 0)).writing_back();
    let (mut used, mut behind) = (Vec::new(), 0);
    for step in 0..2_500 {
        let key = random.u64(..13);
        let (request, expected) = if random.bool() {
            let new = value_of(100 + step, random.usize(8..=LONG));
            let known = model.get_mut(&key).map(|old| old.clone_from(&new)).is_some();
            (Request::Put(key, &new).packet(), if known { Answer::Stored } else { Answer::Absent })
        } else {
            let expected = model.get(&key).map_or(Answer::Absent, |value| Answer::Found(value.clone()));
            (Request::Get(key).packet(), expected)
        };
        assert_eq!(handler.serve(&request), Some(expected), "seed {seed}, step {step}, key {key}");
        if model.contains_key(&key) {
            used.retain(|other| *other != key);
            used.insert(0, key);
            used.truncate(4);
        }
        // Whether its program has the time for it or not.
        if random.bool() {
            handler.settle();
            let gone = model.iter().filter(|(key, _)| !used.contains(key));
            let gone = gone.map(|(key, value)| (*key, value.clone())).collect();
            assert_eq!(differing(&host, &database, &gone), 0, "seed {seed}, step {step}: what had to go has arrived");
            behind += differing(&host, &database, &model);
        }
        if random.u8(..50) == 0 {
            let number = database.recall(&host);
            assert!(!database.is_recalled(&host, number) && handler.attend() && !handler.attend());
            assert!(database.is_recalled(&host, number) && differing(&host, &database, &model) == 0);
        }
    }
    assert!(behind > 1_000, "{behind} values that the device alone had");
    handler.write_out();
    assert_eq!(differing(&host, &database, &model), 0, "seed {seed}: everything is there in the end");
    handler.statistics()
}

#[test]
fn what_is_written_back_arrives_with_its_last_value() {
    for seed in 0..6 {
        for through in [COHERENT, Through::Remote] {
            let seen = written_back(seed, through);
            assert!(seen.hits > 500 && seen.evictions > 500 && seen.written_back > 500, "{seen:?}");
        }
    }
}

#[test]
fn a_put_of_a_key_on_the_device_sends_the_host_nothing() {
    let machine = Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 16, stamps: 8, buckets: 1, value_bytes: LONG as u64 }.place(&mut layout);
    let mut simulation = CxlSimulation::new(&machine, &layout);
    simulation
        .core("host", Role::Main, move |face| (0..4).for_each(|key| assert!(database.insert(face, key, &value(key)))));
    simulation.device("handler", Role::Main, move |device| {
        device.wait_until(Time::from_nanoseconds(20_000));
        let (at, bytes) = database.of_device();
        device.switch_bias(at, bytes, Bias::Device, true);
        let mut handler = Handler::new(*device, *device, database, COHERENT, (0, 0)).writing_back();
        let mut messages = |requests: &[Request<'_>]| {
            let before = device.machine().borrow().counters.clone();
            for request in requests {
                handler.serve(&request.packet()).expect("it is a request");
            }
            handler.attend();
            device.await_writes();
            device.machine().borrow().counters.since(&before).messages.iter().map(|(_, count)| count).sum::<u64>()
        };
        let long = value_of(8, LONG);
        let all: Vec<Request<'_>> = (0..4).map(Request::Get).collect();
        assert!(messages(&all) > 0, "they come from the host");
        let puts: Vec<Request<'_>> =
            (0..40).map(|step| Request::Put(step % 4, if step < 20 { &long } else { &long[..8] })).collect();
        assert_eq!(messages(&puts), 0);
        assert_eq!(messages(&all), 0);
    });
    simulation.run().expect("it ends");
}

/// Requests one behind the other, for more keys than a bucket has room for: what the device has written on behind an answer is what
/// the next request finds.
#[test]
fn a_request_finds_what_the_one_before_it_took_in() {
    const MANY: u64 = 7;
    let machine = Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 16, stamps: 8, buckets: 1, value_bytes: LONG as u64 }.place(&mut layout);
    let mut simulation = CxlSimulation::new(&machine, &layout);
    simulation.core("host", Role::Main, move |face| {
        (0..MANY).for_each(|key| assert!(database.insert(face, key, &value_of(key, 8 + 30 * key as usize))));
    });
    simulation.device("handler", Role::Main, move |device| {
        device.wait_until(Time::from_nanoseconds(20_000));
        let (at, bytes) = database.of_device();
        device.switch_bias(at, bytes, Bias::Device, true);
        let mut handler = Handler::new(*device, *device, database, COHERENT, (0, 0));
        let mut newest: Vec<Vec<u8>> = (0..MANY).map(|key| value_of(key, 8 + 30 * key as usize)).collect();
        let mut random = fastrand::Rng::with_seed(5);
        for step in 0..2_000 {
            let key = random.u64(..MANY);
            if random.u8(..4) == 0 {
                newest[key as usize] = value_of(step, 8 + 12 * (step % 16) as usize);
                let answer = handler.serve(&Request::Put(key, &newest[key as usize]).packet());
                assert_eq!(answer, Some(Answer::Stored));
            } else {
                let expected = Some(Answer::Found(newest[key as usize].clone()));
                assert_eq!(handler.serve(&Request::Get(key).packet()), expected, "step {step}, key {key}");
            }
        }
        let seen = handler.statistics();
        assert!(seen.hits > 200 && seen.evictions > 200, "{seen:?}");
    });
    simulation.run().expect("it ends");
}
