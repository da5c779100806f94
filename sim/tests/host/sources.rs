//! Sources with a mechanism of their own: applications, whose loads wait for each other; devices' ways of the last-level cache; a NIC that pauses its sender.

use conic_sim::host::{Application, CoreTraffic, DeviceTraffic, Domain, HostParameters, Pattern, Phase, Traffic, run};

use super::{host, mean, near, quiet, short};

/// A random line of which the next load's address is made, after so much work.
fn chain(work: u64) -> Application {
    let load = Phase { work, loads: 1, lines: 1, pattern: Pattern::Random, depends: true };
    Application { phases: vec![load], at_once: 8 }
}

/// An operation's time on one core, in nanoseconds.
fn operation(host: &HostParameters, application: &Application) -> f64 {
    let report = run(host, &Traffic { window: 200_000_000, ..Traffic::of_application(application, 1, None) });
    1e9 / report.operations_per_second()
}

#[test]
fn loads_that_wait_for_each_other_take_their_latency_each_and_work_comes_on_top() {
    let host = quiet();
    let (home, dram) = (&host.home, &host.dram);
    let at_home = home.to_memory + dram.activate_to_access + dram.read_latency + dram.burst + home.from_memory;
    // So long between two that each finds its row closed.
    let (latency, work) = (host.core.to_home + at_home, 2_000_000);
    let time = operation(&host, &chain(work));
    assert!((time / ((latency + work) as f64 / 1000.0) - 1.0).abs() < 0.01, "{time} ns");
    // Without work rows may still be open, of the same line or of another.
    let time = operation(&host, &chain(0));
    assert!((0.9..1.05).contains(&(time / (latency as f64 / 1000.0))), "{time} ns");
    // With a single line fill buffer, which is free later than its line is there.
    let mut one = host.clone();
    one.core.line_fill_buffers = 1;
    let longer = operation(&one, &chain(0)) - time;
    assert!((longer - host.core.refill as f64 / 1000.0).abs() < 1.5, "{longer} ns");
}

#[test]
fn loads_that_do_not_wait_overlap_as_far_as_they_may() {
    let host = quiet();
    let lines_at_once = |at_once: u32, depends: bool| {
        let load = Phase { work: 0, loads: 1, lines: 1, pattern: Pattern::Random, depends };
        let application = Application { phases: vec![load], at_once };
        let report = run(&host, &short(Traffic::of_application(&application, 1, None)));
        (report.domain(Domain::CoreRead).credits.maximum_occupancy, report.operations_per_second())
    };
    let (one, four, all) = (lines_at_once(1, false), lines_at_once(4, false), lines_at_once(64, false));
    assert_eq!([one.0, four.0, all.0], [1, 4, u64::from(host.core.line_fill_buffers)]);
    assert!(four.1 > 3.5 * one.1 && all.1 > 2.0 * four.1, "{one:?} {four:?} {all:?}");
    assert_eq!(lines_at_once(64, true).0, 1, "each needs the one before");
}

#[test]
fn the_database_waits_and_works_and_the_graph_waits_only() {
    let host = host();
    let stalled = |application: &Application| {
        let report = run(&host, &short(Traffic::of_application(application, 1, None)));
        let works: u64 = application.phases.iter().map(|phase| phase.work).sum();
        1.0 - report.operations_per_second() * works as f64 / 1e12
    };
    let (redis, graph) = (host.redis(), host.graph());
    let lines = |of: &Application| of.phases.iter().map(|phase| phase.loads * phase.lines).sum::<u32>();
    assert_eq!(lines(&redis), host.redis.dependent_loads + host.redis.value_lines);
    assert_eq!(lines(&graph), host.graph.neighbours + host.graph.vertex_lines);
    let (redis, graph) = (stalled(&redis), stalled(&graph));
    // Section 2.1: one spends a part of its time stalled, the other nearly all.
    assert!((0.1..0.7).contains(&redis) && graph > 0.75, "{redis}, {graph}");
}

/// A host whose devices write to the cache, into buffers of so many bytes each.
fn cached(buffer_bytes: u64) -> HostParameters {
    let mut host = host();
    host.iio.writes_to_cache = true;
    host.device.transfer_bytes = host.device.chunk_bytes;
    host.device.buffer_bytes = buffer_bytes;
    host
}

#[test]
fn what_fits_into_the_devices_ways_never_sees_memory_and_what_does_not_all_of_it_does() {
    let traffic = short(Traffic::of(CoreTraffic::READ, 0, Some(DeviceTraffic::Writes)));
    let fits = run(&cached(1 << 12), &traffic);
    assert!(fits.cache.hits > 1000 && fits.cache.misses == 0, "{:?}", fits.cache);
    assert_eq!(fits.memory().lines, [0, 0], "each line is overwritten in place");
    let large = run(&cached(1 << 29), &traffic);
    let (cache, written) = (large.cache, large.memory().lines[1]);
    assert!(
        cache.hits * 20 < cache.misses && cache.write_backs * 100 > cache.misses * 98,
        "a way is found full: {cache:?}"
    );
    assert!(written.abs_diff(cache.write_backs) < 100, "{written} of {}", cache.write_backs);
    // The credit is back when the slice has the line, in either case.
    let host = host();
    for report in [&fits, &large] {
        near(mean(report, Domain::DeviceWrite), host.iio.write_to_home as f64 / 1000.0);
    }
    assert_eq!(run(&host, &traffic).cache, Default::default(), "without direct cache access there is none");
}

#[test]
fn lines_that_the_cache_writes_back_do_not_lie_side_by_side_any_more() {
    let misses = |host: &HostParameters| {
        let memory = run(host, &short(Traffic::of(CoreTraffic::READ, 0, Some(DeviceTraffic::Writes)))).memory();
        memory.activations[1] as f64 / memory.lines[1] as f64
    };
    let mut through = host();
    through.iio.writes_to_cache = true;
    let (direct, through) = (misses(&host()), misses(&through));
    assert!(through > 2.0 * direct, "{through} of lines from the cache need a row, {direct} of devices' own");
}

/// The NIC beside so many cores that store.
fn nic(host: &HostParameters, cores: usize, devices: DeviceTraffic) -> conic_sim::host::HostReport {
    let traffic = Traffic::of(CoreTraffic::READ_WRITE, cores, Some(devices));
    run(host, &Traffic { nic: true, warm_up: 150_000_000, window: 300_000_000, ..traffic })
}

#[test]
fn a_nic_alone_moves_what_its_network_brings_and_pauses_nobody() {
    let host = host();
    let rate = host.nic.megabits_per_second as f64 * 1e6 / 8.0;
    for devices in [DeviceTraffic::Writes, DeviceTraffic::Reads] {
        let report = nic(&host, 0, devices);
        assert!((report.device_bytes_per_second() / rate - 1.0).abs() < 0.01, "{}", report.device_bytes_per_second());
        assert_eq!((report.paused(), report.nic.is_some()), (0.0, devices == DeviceTraffic::Writes));
    }
}

#[test]
fn a_nic_whose_lines_wait_pauses_its_sender_for_as_long_as_memory_takes_and_drops_nothing() {
    let host = host();
    let report = nic(&host, 6, DeviceTraffic::Writes);
    let counters = report.nic.expect("it receives");
    let rate = host.nic.megabits_per_second as f64 * 1e6 / 8.0;
    let moved = report.device_bytes_per_second() / rate;
    assert!(moved < 0.95, "memory holds it back: {moved}");
    assert!((report.paused() - (1.0 - moved)).abs() < 0.03, "stopped for {} of the time", report.paused());
    assert_eq!(counters.dropped, 0);
    // More than a packet comes after the one with which it asked for a pause.
    let most = (host.nic.pause_bytes + host.nic.packet_bytes) / 64 + 1..=host.nic.buffer_bytes / 64;
    assert!(counters.pauses > 1 && most.contains(&counters.most_lines), "{counters:?}");
    // Without room for what comes before the sender stops, packets are lost.
    let mut tight = host.clone();
    tight.nic.pause_bytes = tight.nic.buffer_bytes - 64;
    let counters = nic(&tight, 6, DeviceTraffic::Writes).nic.expect("it receives");
    assert!(counters.dropped > 0, "{counters:?}");
}
