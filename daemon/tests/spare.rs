//! The region that is made before anybody asks for it.

#[path = "support/served.rs"]
#[allow(dead_code, reason = "nothing is taken over here")]
mod served;
#[path = "support/waiting.rs"]
mod waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use conic_client::{Client, Options};
use conic_fabric::Time;
use conic_interface::ccnic::Geometry;
use conic_native::{clock, yield_core};
use conic_nicd::config::{Config, Limits};
use served::Served;
use waiting::wait_until;

/// The tests look at this process's mappings, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn config(folder: &Path, spare_mib: u64) -> Config {
    let limits = Limits { spare_mib, ..Limits::default() };
    let config = Config { socket: folder.join("nic.sock"), limits, ..Config::default() };
    config.checked().expect("a sound configuration")
}

fn asking_for(geometry: Geometry) -> Options {
    Options { geometry, ..Options::default() }
}

const SMALL: Geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };

/// The regions that this process has mapped, and how often: those of clients twice, because it is both sides.
fn regions() -> BTreeMap<u64, usize> {
    let mut times = BTreeMap::new();
    for line in std::fs::read_to_string("/proc/self/maps").expect("they can be listed").lines() {
        let mut fields = line.split_whitespace();
        if let (Some(inode), Some(path)) = (fields.nth(4), fields.next())
            && path.contains("memfd:conic")
        {
            *times.entry(inode.parse().expect("a number")).or_default() += 1;
        }
    }
    times
}

/// The region that nobody has; none if there is none, or more than one.
fn spare() -> Option<u64> {
    let unused: Vec<u64> = regions().into_iter().filter(|&(_, times)| times == 1).map(|(inode, _)| inode).collect();
    if let [one] = unused[..] { Some(one) } else { None }
}

/// Waits until another region than `before` is there that nobody has.
fn another(before: u64) -> u64 {
    let mut kept = None;
    wait_until("a region is kept for the next one", || {
        kept = spare().filter(|&one| one != before);
        kept.is_some()
    });
    kept.expect("it was waited for")
}

#[test]
fn a_region_of_the_layout_asked_for_last_is_made_before_it_is_asked_for_and_given_once() {
    let _turn = TURN.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), Limits::default().spare_mib);
    let served = Served::start(config.clone());
    let attach = |geometry| Client::attach(&config.socket, &asking_for(geometry)).expect("it is served");
    let larger = Geometry { descriptors: 128, ..SMALL };

    let first = attach(SMALL);
    let made = another(0);
    let second = attach(SMALL);
    assert_eq!(regions().get(&made), Some(&2), "the second has it");
    let made = another(made);
    let third = attach(larger);
    assert_ne!(regions().get(&made), Some(&2), "it is of another layout");
    wait_until("what was made for nothing is gone", || regions().len() == 3);
    let fourth = attach(larger);
    let made = another(made);
    let fifth = attach(larger);
    assert_eq!(regions().get(&made), Some(&2), "the fifth has it");
    drop((first, second, third, fourth, fifth));
    wait_until("nothing is held but what is kept for the next one", || regions().len() == 1);
    served.end();
    // The one that the fifth's attaching began may be on its way still, in a thread that finds at its end that nobody asks any more.
    wait_until("nothing is held behind the daemon's end", || regions().is_empty());
}

#[test]
fn clients_that_come_at_once_get_regions_of_their_own() {
    let _turn = TURN.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), Limits::default().spare_mib);
    let served = Served::start(config.clone());
    for _ in 0..20 {
        let attach = || Client::attach(&config.socket, &asking_for(SMALL)).expect("it is served");
        let clients: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(attach)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it attaches")).collect()
        });
        let own = regions().into_values().filter(|&times| times == 2).count();
        assert_eq!(own, clients.len(), "no two have the same");
    }
    wait_until("nothing is held but what is kept for the next one", || regions().len() == 1);
    served.end();
}

#[test]
fn none_is_made_where_that_is_not_wanted_or_it_is_too_large() {
    let _turn = TURN.lock();
    let of_objects = |mebibytes: u64| Geometry { object_bytes: mebibytes << 20, ..SMALL };
    for (spare_mib, geometry) in [(0, SMALL), (1, of_objects(1)), (2, of_objects(2))] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), spare_mib);
        let served = Served::start(config.clone());
        let client = Client::attach(&config.socket, &asking_for(geometry)).expect("it is served");
        let until = clock::now() + Time::from_nanoseconds(100_000_000);
        while clock::now() < until {
            assert_eq!(spare(), None);
            yield_core();
        }
        drop(client);
        wait_until("nothing is held", || regions().is_empty());
        served.end();
    }
}
