//! The pool under every schedule and every ordering: no buffer twice, none lost; and that each of its edges is needed.
//!
//! | edge | configuration in which it is the only one | weakened by |
//! |---|---|---|
//! | freed, then allocated by the other | one buffer, each side uses it once | `UpdateWithoutRelease` by whoever frees |
//! | the same, the word seen before it was freed again | one buffer, one side uses it twice | `UpdateWithoutAcquire` by the other |
//! | filled, then allocated | none: the filler starts the others | - |
//!
//! The acquire of the load before an allocation is stronger than it need be: the update after it acquires, and reads a
//! later value. The release of an allocation and the acquire of a free order nothing; the seam's updates have both.

use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore, spawn};
use conic_fabric::{Address, Core};
use conic_interface::ccnic::{Allocator, AllocatorFeatures, Features, Geometry, Map};

const FREE: &str = "free small buffers";

fn map(buffers: u64, features: Features) -> Map {
    let geometry = Geometry { queues: 1, descriptors: 4, buffers: [buffers, 0, 0], object_bytes: 0 };
    Map::new(geometry, features).expect("a geometry that can be")
}

/// Allocates, writes, reads back and frees, so many times; waits where the pool is dry.
fn use_buffers(core: &LoomCore, allocator: &mut Allocator, mine: u64, times: u32, at_once: usize) {
    for _ in 0..times {
        let mut held = Vec::new();
        while held.len() < at_once {
            match allocator.allocate(core, 8) {
                Some(at) => held.push(at),
                None => core.spin(),
            }
        }
        for &at in &held {
            core.store(at, mine);
        }
        for &at in &held {
            assert_eq!(core.load(at), mine, "two own it");
            allocator.free(core, at);
        }
    }
}

/// Two sides; each `(times, at once)`.
fn share(memory: &LoomMemory, map: &Map, script: [(u32, usize); 2]) {
    let (ours, theirs) = (memory.core("ours"), memory.core("theirs"));
    map.pool.fill(&ours);
    let features = AllocatorFeatures::of(&map.features);
    let mut us = Allocator::new(map.pool, features, false);
    let mut them = Allocator::new(map.pool, features, true);
    let thread = spawn(move || {
        use_buffers(&theirs, &mut them, 2, script[1].0, script[1].1);
        them.drain(&theirs);
        assert_eq!(them.freed_twice() + them.not_a_buffer(), 0);
    });
    use_buffers(&ours, &mut us, 1, script[0].0, script[0].1);
    us.drain(&ours);
    thread.join().expect("the other side ends");
    assert_eq!(us.freed_twice() + us.not_a_buffer(), 0);
    assert_eq!(map.pool.free(&ours)[0], map.geometry.buffers[0], "some are lost");
}

fn passes(buffers: u64, features: Features, exploration: Exploration, script: [(u32, usize); 2]) {
    let map = map(buffers, features);
    let layout = map.layout.clone();
    let executions = explore(&layout, exploration, move |memory| share(memory, &map, script));
    println!("{buffers} buffers, {script:?}: {executions} executions");
    assert!(executions > 1);
}

fn races(mutation: Mutation, script: [(u32, usize); 2]) {
    let map = map(1, Features::paper());
    let layout = map.layout.clone();
    let exploration = Exploration::full().weakened(mutation.clone());
    let caught = catches(&layout, exploration, move |memory| share(memory, &map, script));
    assert!(caught.message.contains("Causality violation"), "{mutation:?}: {}", caught.message);
}

#[test]
fn no_buffer_has_two_owners_and_none_is_lost() {
    for recycling in [true, false] {
        for scattered in [true, false] {
            let features = Features { recycling, scattered, ..Features::paper() };
            passes(1, features, Exploration::full(), [(2, 1), (2, 1)]);
            passes(2, features, Exploration::full(), [(1, 1), (1, 2)]);
            passes(4, features, Exploration::bounded(3), [(2, 1), (2, 1)]);
            passes(4, features, Exploration::bounded(2), [(2, 2), (2, 2)]);
        }
    }
}

#[test]
fn the_edge_from_a_free_to_the_next_allocation_is_needed() {
    for agent in ["ours", "theirs"] {
        races(Mutation::new(Weaken::UpdateWithoutRelease).of(FREE).by(agent), [(1, 1), (1, 1)]);
    }
    races(Mutation::new(Weaken::UpdateWithoutAcquire).of(FREE).by("ours"), [(1, 1), (2, 1)]);
    races(Mutation::new(Weaken::UpdateWithoutAcquire).of(FREE).by("theirs"), [(2, 1), (1, 1)]);
}

#[test]
fn the_acquire_of_the_load_before_an_allocation_is_more_than_is_needed() {
    let map = map(1, Features::paper());
    let layout = map.layout.clone();
    let weakened = Exploration::full().weakened(Mutation::new(Weaken::RelaxedLoad).of(FREE));
    // If this fails, the load orders something by now: then the table above has a row more.
    assert!(explore(&layout, weakened, move |memory| share(memory, &map, [(2, 1), (2, 1)])) > 1);
}

#[test]
fn a_side_that_was_slower_by_a_batch_does_not_find_the_pool_dry() {
    let features = Features { scattered: false, ..Features::paper() };
    let map = map(64, features);
    let layout = map.layout.clone();
    let executions = explore(&layout, Exploration::full(), move |memory| {
        let (ours, theirs) = (memory.core("ours"), memory.core("theirs"));
        map.pool.fill(&ours);
        let features = AllocatorFeatures::of(&map.features);
        let mut us = Allocator::new(map.pool, features, false);
        let mut them = Allocator::new(map.pool, features, true);
        let thread = spawn(move || them.allocate(&theirs, 8).expect("there are enough for both"));
        let ours = us.allocate(&ours, 8).expect("there are enough for both");
        assert_ne!(thread.join().expect("the other side ends"), ours);
    });
    assert!(executions > 1);
}

#[test]
fn a_buffer_freed_twice_is_counted_once_by_someone() {
    let map = map(2, Features { recycling: false, ..Features::paper() });
    let layout = map.layout.clone();
    let executions = explore(&layout, Exploration::full(), move |memory| {
        let (ours, theirs) = (memory.core("ours"), memory.core("theirs"));
        map.pool.fill(&ours);
        let features = AllocatorFeatures::of(&map.features);
        let mut us = Allocator::new(map.pool, features, false);
        let mut them = Allocator::new(map.pool, features, true);
        let at = us.allocate(&ours, 8).expect("a full pool");
        let thread = spawn(move || {
            them.free(&theirs, at);
            // Neither a buffer nor in one.
            them.free(&theirs, Address(0));
            assert_eq!(them.not_a_buffer(), 1);
            them.freed_twice()
        });
        us.free(&ours, at + 5);
        let twice = us.freed_twice() + thread.join().expect("the other side ends");
        assert_eq!(twice, 1);
        assert_eq!(map.pool.free(&ours)[0], 2);
    });
    assert!(executions > 1);
}
