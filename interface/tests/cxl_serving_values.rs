//! Values of several lines in the key-value store on the NIC: a reader of either side, interrupted before each of its operations by
//! writers of both, one of which stops before each of its own.

use std::cell::Cell;

use conic_check::{CrashCore, CrashMemory, Does, Outcome, ToldCore, run_until_death};
use conic_fabric::{Core, Layout, PlayedByCore, StateHint};
use conic_interface::cxl::serving::{Answer, Database, DatabaseShape, Handler, Request, Through};

const COHERENT: Through = Through::Coherent { read: StateHint::CacheableOwned, write: StateHint::CacheableOwned };
const BYTES: usize = 100;
const KEY: u64 = 3;

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host,
    Device,
}

fn value(number: u64) -> Vec<u8> {
    (0..BYTES).map(|place| (number as usize * 41 + place) as u8).collect()
}

fn write(
    core: &CrashCore,
    side: Side,
    handler: &mut Handler<PlayedByCore<&CrashCore>, PlayedByCore<&CrashCore>>,
    number: u64,
    database: &Database,
) {
    match side {
        Side::Host => assert!(database.update(core, KEY, &value(number))),
        Side::Device => assert_eq!(handler.serve(&Request::Put(KEY, &value(number)).packet()), Some(Answer::Stored)),
    }
}

/// What a reader gets before whose operation `at` so many values are written, the last of them up to its writer's operation `dies`;
/// none if the reader had fewer operations. And whether the last writer died.
fn read(reader: Side, writers: &[Side], at: u64, dies: u64) -> (Option<Vec<u8>>, bool) {
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 2, stamps: 2, buckets: 1, value_bytes: BYTES as u64 }.place(&mut layout);
    let memory = CrashMemory::new(&layout);
    assert!(database.insert(&memory.core("loader"), KEY, &value(0)));
    let writing = |core: CrashCore, sides: &[Side]| {
        let face = || PlayedByCore(&core);
        let mut handler = Handler::new(face(), face(), database, COHERENT, (0, 0));
        for (number, side) in (1..).zip(sides) {
            if number == sides.len() as u64 && dies > 0 {
                core.die_at(core.operations() + dies);
            }
            write(&core, *side, &mut handler, number, &database);
        }
    };
    let died = Cell::new(false);
    let happens = || {
        let outcome = run_until_death(|| writing(memory.core("writer"), writers));
        died.set(matches!(outcome, Outcome::Died(_)));
    };
    // Something else happens before one of the reader's accesses.
    let (left, by) = (Cell::new(at), Cell::new(Some(happens)));
    let core = ToldCore::new(memory.core("reader"), |does| {
        if matches!(does, Does::Prefetch(_) | Does::DependsOn(_) | Does::Work(_)) {
            return;
        }
        left.set(left.get().saturating_sub(1));
        if left.get() == 0
            && let Some(happens) = by.take()
        {
            happens();
        }
    });
    let found = match reader {
        Side::Host => database.get(&core, KEY).expect("it is there"),
        Side::Device => {
            // Its own table is empty: it reads the host's memory.
            let mut handler = Handler::new(PlayedByCore(&core), PlayedByCore(&core), database, COHERENT, (0, 0));
            match handler.serve(&Request::Get(KEY).packet()) {
                Some(Answer::Found(found)) => found,
                other => panic!("answered {other:?}"),
            }
        }
    };
    let over = by.take().is_some();
    (if over { None } else { Some(found) }, died.get())
}

#[test]
fn a_reader_that_is_interrupted_anywhere_finds_one_whole_value() {
    use Side::{Device, Host};
    let (mut runs, mut deaths) = (0, 0);
    // Where the device's handler reads, it does not write meanwhile.
    for (reader, sides) in [(Host, [Host, Device].as_slice()), (Device, [Host].as_slice())] {
        let sequences = |length: u32| {
            (0..sides.len().pow(length)).map(move |code| {
                (0..length).map(|place| sides[code / sides.len().pow(place) % sides.len()]).collect::<Vec<Side>>()
            })
        };
        for writers in (1..=4).flat_map(sequences) {
            for at in 1.. {
                if read(reader, &writers, at, 0).0.is_none() {
                    break;
                }
                for dies in 1.. {
                    let (found, died) = read(reader, &writers, at, dies);
                    let found = found.expect("as many operations as without a death, up to there");
                    let whole = (0..=writers.len() as u64).any(|number| found == value(number));
                    assert!(whole, "{reader:?} before its operation {at}, {writers:?} until {dies}: {found:?}");
                    runs += 1;
                    deaths += u64::from(died);
                    if !died {
                        break;
                    }
                }
            }
        }
    }
    assert!(runs > 10_000 && deaths > 10_000, "{runs} runs, {deaths} deaths");
}

/// A core whose every look at bulk data is met by an update.
struct Beset<'a>(&'a CrashCore, &'a Database);
conic_fabric::delegate_core!(['a] Beset<'a>, self => {
    assert!(self.1.update(self.0, KEY, &value(1)));
    self.0
});

#[test]
fn a_host_that_never_stops_does_not_keep_the_handler() {
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 2, stamps: 2, buckets: 1, value_bytes: BYTES as u64 }.place(&mut layout);
    let memory = CrashMemory::new(&layout);
    let host = memory.core("host");
    assert!(database.insert(&host, KEY, &value(0)));
    let beset = || PlayedByCore(Beset(&host, &database));
    let mut handler = Handler::new(PlayedByCore(&host), beset(), database, COHERENT, (0, 0));
    assert_eq!(handler.serve(&Request::Get(KEY).packet()), Some(Answer::Busy));
    assert!(handler.statistics().changed > 10);
}

#[test]
fn an_entry_that_cannot_be_is_none() {
    let mut layout = Layout::new();
    let database = DatabaseShape { entries: 2, stamps: 2, buckets: 1, value_bytes: BYTES as u64 }.place(&mut layout);
    let memory = CrashMemory::new(&layout);
    let host = memory.core("host");
    assert!(database.insert(&host, KEY, &value(0)));
    let entries = layout.segments().iter().find(|segment| segment.name == "entries").expect("it has entries").start;
    for entry in [entries, entries.lines(1)] {
        if host.load_acquire(entry) != 0 {
            // The longest value that the word can speak of.
            host.store_release(entry, host.load_acquire(entry) | 0x1fff << 3);
        }
    }
    let mut handler = Handler::new(PlayedByCore(&host), PlayedByCore(&host), database, COHERENT, (0, 0));
    assert_eq!(handler.serve(&Request::Get(KEY).packet()), Some(Answer::Absent));
    assert_eq!(handler.statistics().damaged, 1);
    assert_eq!(database.get(&host, KEY), None);
}
