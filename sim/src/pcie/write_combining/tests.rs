//! The rules of the buffers, each at its picosecond, and the shapes that they give stores of a program.

use super::super::tests::gen4;
use super::*;

/// Cores of Ice Lake: a store each cycle of 3.1 GHz, 24 buffers that take 300 ns to flush.
const BUFFERS: u64 = 24;
const ISSUE: u64 = 323;

fn buffers() -> WriteCombining {
    let p = gen4();
    WriteCombining::new(BUFFERS as u32, p.write_combining_flush, p.core_to_root)
}

/// A store for which nothing may be flushed.
fn quiet(buffers: &mut WriteCombining, address: u64, bytes: u32, now: u64) -> u64 {
    buffers.store(address, bytes, now, 0, |flush| panic!("{flush:?} was not to be"))
}

#[test]
fn partial_stores_merge_until_the_buffer_is_full_and_then_it_leaves_at_once() {
    let p = gen4();
    let mut buffers = buffers();
    for word in 0..15 {
        assert_eq!(quiet(&mut buffers, 128 + word * 4, 4, word), word);
    }
    assert_eq!(buffers.held(), 1);
    let mut flushed = Vec::new();
    assert_eq!(buffers.store(128 + 60, 4, 500, 0, |flush| flushed.push(flush)), 500);
    let expected = Flush {
        region: 128,
        bytes: u64::MAX,
        leaves: 500,
        at_port: 500 + p.core_to_root,
        free_from: 500 + p.write_combining_flush,
    };
    assert_eq!(flushed, [expected]);
    assert_eq!(flushed[0].writes().collect::<Vec<_>>(), [(128, 64)]);
    assert_eq!(buffers.held(), 0);
}

#[test]
fn a_store_of_a_whole_region_leaves_at_once() {
    let mut flushed = 0;
    assert_eq!(buffers().store(0, 64, 7, 0, |_| flushed += 1), 7);
    assert_eq!(flushed, 1);
}

#[test]
fn a_buffer_with_gaps_becomes_a_write_for_each_run() {
    let mut buffers = buffers();
    for (address, bytes) in [(8, 4), (12, 4), (32, 1), (60, 4)] {
        quiet(&mut buffers, 640 + address, bytes, 0);
    }
    let mut writes = Vec::new();
    buffers.fence(0, 0, |flush| writes.extend(flush.writes()));
    assert_eq!(writes, [(648, 8), (672, 1), (700, 4)]);
}

#[test]
fn a_store_that_finds_all_buffers_taken_flushes_the_oldest_and_waits_for_it() {
    let p = gen4();
    let mut buffers = buffers();
    for region in 0..BUFFERS {
        assert_eq!(quiet(&mut buffers, region * REGION, 4, region), region);
    }
    // The first region was stored into again, and is still the oldest.
    quiet(&mut buffers, 4, 4, BUFFERS);
    let now = 1_000;
    let mut flushed = Vec::new();
    let done = buffers.store(BUFFERS * REGION, 4, now, 0, |flush| flushed.push(flush));
    assert_eq!(done, now + p.write_combining_flush);
    let expected = Flush {
        region: 0,
        bytes: 0xff,
        leaves: now,
        at_port: now + p.core_to_root,
        free_from: now + p.write_combining_flush,
    };
    assert_eq!(flushed, [expected]);
    assert_eq!(buffers.waited(), p.write_combining_flush);
    // Merging into a region that is held waits for nothing.
    assert_eq!(quiet(&mut buffers, REGION + 4, 4, done), done);
}

#[test]
fn a_buffer_is_free_when_its_flush_is_done_and_not_before() {
    let p = gen4();
    for (ready, done) in [
        (p.write_combining_flush - 1, p.write_combining_flush),
        (p.write_combining_flush, p.write_combining_flush),
        (p.write_combining_flush + 1, p.write_combining_flush + 1),
    ] {
        let mut buffers = buffers();
        for region in 0..BUFFERS {
            buffers.store(region * REGION, 64, 0, 0, |_| ());
        }
        assert_eq!(quiet(&mut buffers, 0, 4, ready), done, "ready at {ready}");
    }
}

#[test]
fn a_buffer_that_is_on_its_way_out_is_waited_for_before_another_is_flushed() {
    let p = gen4();
    let mut buffers = buffers();
    for region in 0..BUFFERS {
        buffers.store(region * REGION, if region == 5 { 64 } else { 4 }, region, 0, |_| ());
    }
    assert_eq!(quiet(&mut buffers, 9_000 * REGION, 4, 100), 5 + p.write_combining_flush);
}

#[test]
fn a_buffer_stays_taken_until_the_port_takes_its_write() {
    let p = gen4();
    for (port_free_from, done) in [
        (p.write_combining_flush - 1, p.write_combining_flush),
        (p.write_combining_flush + 1, p.write_combining_flush + 1),
        (3 * p.write_combining_flush, 3 * p.write_combining_flush),
    ] {
        let mut buffers = buffers();
        buffers.store(0, 64, 0, port_free_from, |_| ());
        assert_eq!(buffers.fence(10, 0, |_| ()), done);
    }
}

#[test]
fn a_fence_flushes_the_oldest_first_and_waits_for_all() {
    let p = gen4();
    let mut buffers = buffers();
    assert_eq!(buffers.fence(3, 0, |_| panic!("nothing was stored")), 3);
    buffers.store(7 * REGION, 64, 10, 0, |_| ());
    assert_eq!(buffers.clone().fence(20, 0, |_| ()), 10 + p.write_combining_flush);
    quiet(&mut buffers, 3 * REGION, 4, 20);
    quiet(&mut buffers, 0, 4, 20);
    let mut regions = Vec::new();
    assert_eq!(buffers.fence(30, 0, |flush| regions.push(flush.region)), 30 + p.write_combining_flush);
    assert_eq!(regions, [3 * REGION, 0]);
    let later = 30 + p.write_combining_flush;
    assert_eq!(buffers.fence(later, 0, |_| panic!("all is flushed")), later);
}

#[test]
#[should_panic(expected = "crosses a region")]
fn a_store_across_regions_is_refused() {
    buffers().store(60, 8, 0, 0, |_| ());
}

/// Time of `stores` stores of 4 bytes, each to a region of its own.
fn scattered(stores: u64) -> u64 {
    let mut buffers = buffers();
    (0..stores).fold(0, |now, store| buffers.store(store * REGION, 4, now, 0, |_| ()) + ISSUE)
}

#[test]
fn scattered_stores_are_cheap_while_buffers_last_and_then_wait_for_flushes() {
    // CC-NIC Figure 3: below 20 ns up to 24 stores, at least 15 times that beyond, and growing.
    let p = gen4();
    for stores in 1..=64_u64 {
        let waits = stores.saturating_sub(BUFFERS) * p.write_combining_flush;
        assert_eq!(scattered(stores), stores * ISSUE + waits, "{stores} stores");
    }
    assert!(scattered(BUFFERS) < 20_000);
    assert!(scattered(BUFFERS + 1) >= 15 * scattered(BUFFERS));
}

/// Time of a program that writes `bytes` in whole regions and then fences, without the issue of the fence.
fn written(bytes: u64) -> u64 {
    let mut buffers = buffers();
    let (mut now, mut done) = (0, 0);
    for region in 0..bytes / REGION {
        done = buffers.store(region * REGION, 64, now, 0, |_| ());
        now = done + ISSUE;
    }
    buffers.fence(done, 0, |_| ())
}

#[test]
fn throughput_grows_with_the_bytes_between_fences_and_needs_kilobytes_for_its_peak() {
    // CC-NIC Figure 2: nearly the peak takes 4 KiB a barrier.
    let flush = gen4().write_combining_flush;
    let peak = (BUFFERS * REGION) as f64 / flush as f64;
    let mut last = 0.0;
    for power in 6..=13 {
        let bytes = 1 << power;
        let before_the_last = bytes / REGION - 1;
        // Rounds of all buffers, each as long as a flush; then the last store's place in its round, and its flush.
        let expected = before_the_last / BUFFERS * flush + before_the_last % BUFFERS * ISSUE + flush;
        assert_eq!(written(bytes), expected, "{bytes} bytes a fence");
        let throughput = bytes as f64 / written(bytes) as f64;
        assert!(throughput > last, "{bytes} bytes a fence are no faster than half of them");
        assert_eq!(throughput > 0.8 * peak, bytes >= 4096, "{bytes} bytes a fence: {throughput} of {peak}");
        last = throughput;
    }
}
