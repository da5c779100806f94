//! Streams of requests: the logic's port, the wire's slots, the cache's install gate, requests in flight.

use conic_fabric::{Device, ReadTag, StateHint};
use conic_sim::cxl::CxlParameters;

use super::{between_refreshes, run};

/// Gigabytes a second of a stream of reads, or of writes.
pub(super) fn stream(parameters: &CxlParameters, write: bool, hint: StateHint) -> f64 {
    let lines = 8_000;
    run(
        parameters,
        lines,
        |_, _| (),
        move |device, places| {
            let start = device.now();
            let mut tags: Vec<(ReadTag, u64)> = Vec::new();
            for line in 0..lines {
                let at = places.packets.lines(line);
                if write {
                    device.write(at, &[1; 64], hint);
                } else {
                    tags.push((device.start_read(at, 64, hint), line));
                }
            }
            for (tag, line) in tags {
                device.finish_read(tag, places.packets.lines(line), &mut [0; 64]);
            }
            device.await_writes();
            64_000.0 * lines as f64 / device.now().since(start).picoseconds() as f64
        },
    )
}

#[test]
fn one_port_passes_a_line_a_cycle() {
    let p = between_refreshes("agilex7");
    let rate = stream(&p, false, StateHint::NonCacheable);
    // 400 MHz x 64 bytes, less the latency of the first at this length.
    assert!((0.95..=1.0).contains(&(rate / 25.6)), "{rate} GB/s");
}

#[test]
fn a_descriptor_does_not_wait_behind_a_packet_for_the_port() {
    let p = between_refreshes("agilex7");
    let read = |lines: usize| {
        run(
            &p,
            256,
            |_, _| (),
            move |device, places| {
                device.write(places.packets, &vec![1; 64 * lines], StateHint::NonCacheable);
                let start = device.now();
                device.read(places.host, &mut [0; 64], StateHint::NonCacheable);
                device.now().since(start).picoseconds()
            },
        )
    };
    // Behind 140 lines on one port it would wait for as many cycles; for the wire it waits for one request at most.
    let (alone, behind) = (read(0), read(140));
    let request = u64::from(p.link.device_request_quarters) * p.link.quarter_time;
    assert!(behind <= alone + request && 140 * p.dcoh.cycle > 100 * request, "{behind} ps, {alone} alone");
}

#[test]
fn packets_that_wait_for_their_port_keep_no_tag_from_a_descriptor() {
    let p = between_refreshes("agilex7");
    let lines = 400;
    assert!(lines > p.dcoh.requests_in_flight as usize, "as many as wait have no tags left");
    let took = run(
        &p,
        512,
        |_, _| (),
        move |device, places| {
            device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
            device.write(places.packets, &vec![1; 64 * lines], StateHint::NonCacheable);
            let start = device.now();
            device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
            device.now().since(start).picoseconds()
        },
    );
    assert_eq!(took, p.dcoh.hit, "it is in the device's cache");
}

#[test]
fn ports_that_wait_for_tags_take_turns() {
    let mut p = between_refreshes("agilex7");
    p.dcoh.requests_in_flight = 8;
    let done = |descriptors: u64| {
        run(
            &p,
            512,
            |_, _| (),
            move |device, places| {
                device.write(places.packets, &[1; 64 * 200], StateHint::NonCacheable);
                let start = device.now();
                let tags: Vec<ReadTag> = (0..descriptors)
                    .map(|line| device.start_read(places.host.lines(line), 64, StateHint::NonCacheable))
                    .collect();
                for (line, tag) in (0..).zip(tags) {
                    device.finish_read(tag, places.host.lines(line), &mut [0; 64]);
                }
                let read = device.now().since(start).picoseconds();
                device.await_writes();
                (read, device.now().since(start).picoseconds())
            },
        )
    };
    let ((_, alone), (read, both)) = (done(0), done(20));
    // Each of the twenty has every second tag, so forty requests' time of two hundred and twenty.
    assert!(both > alone && read < both / 4, "{read} of {both} ps, packets alone {alone}");
    assert!(read > both / 10, "a descriptor passes no more than one packet: {read} of {both} ps");
}

#[test]
fn two_ports_fill_the_slots_of_the_link() {
    let mut p = between_refreshes("agilex7");
    (p.dcoh.ports, p.dcoh.requests_in_flight) = (4, 2_000);
    let line = |quarters: u32| 64.0 / (f64::from(quarters) * p.link.quarter_time as f64 / 1000.0);
    let wire = p.link.line_quarters + p.link.data_header_quarters;
    let read = stream(&p, false, StateHint::NonCacheable);
    assert!((0.94..=1.0).contains(&(read / line(wire))), "{read} of {} GB/s", line(wire));
    // A push: its request and its data go the same way. 46.3 GB/s were measured on such a board.
    let push = stream(&p, true, StateHint::NonCacheablePush);
    let both = line(wire + p.link.device_request_quarters);
    assert!((0.94..=1.0).contains(&(push / both)), "{push} of {both} GB/s");
    assert!((both - 46.3).abs() / 46.3 < 0.05, "slot arithmetic gives {both} GB/s");
}

#[test]
fn lines_enter_the_devices_cache_one_after_the_other() {
    let p = between_refreshes("agilex7");
    let rate = stream(&p, false, StateHint::CacheableShared);
    let gate = 64.0 / (p.dcoh.install_interval as f64 / 1000.0);
    assert!((0.97..=1.0).contains(&(rate / gate)), "{rate} of {gate} GB/s");
}

#[test]
fn requests_in_flight_bound_the_rate_as_little_has_it() {
    let mut p = between_refreshes("agilex7");
    p.dcoh.requests_in_flight = 32;
    let rate = stream(&p, false, StateHint::NonCacheable);
    let bound = 32.0 * 64.0 / 406.0;
    assert!((0.97..=1.0).contains(&(rate / bound)), "{rate} of {bound} GB/s");
}
