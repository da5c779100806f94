//! The host's ways to memory: latencies to the picosecond, credits, back-pressure, and every command on a channel's wires.

mod sources;
mod wires;

use conic_sim::draws::Draws;
use conic_sim::host::{CoreTraffic, DeviceTraffic, Domain, HostParameters, HostReport, Pattern, Traffic, run};
use conic_sim::platform::Platform;

/// Cascade Lake.
pub fn host() -> HostParameters {
    Platform::<HostParameters>::load_as("cascade-lake").unwrap_or_else(|error| panic!("{error}")).parameters().clone()
}

/// The same without refreshes in the time of a test.
fn quiet() -> HostParameters {
    let mut host = host();
    host.dram.refresh_interval = 1_000_000_000;
    host
}

fn short(traffic: Traffic) -> Traffic {
    Traffic { warm_up: 10_000_000, window: 30_000_000, ..traffic }
}

fn mean(report: &HostReport, domain: Domain) -> f64 {
    report.domain(domain).credits.mean_residence_nanoseconds
}

fn nanoseconds(picoseconds: u64) -> f64 {
    picoseconds as f64 / 1000.0
}

fn near(is: f64, wanted: f64) {
    assert!((is - wanted).abs() < 0.001, "{is} instead of {wanted}");
}

/// One buffer, random lines, and so long between two that every row is closed meanwhile.
fn alone(writes: bool) -> (HostParameters, Traffic) {
    let mut host = quiet();
    host.core.line_fill_buffers = 1;
    let core = CoreTraffic { writes, pattern: Pattern::Random, work: 2_000_000 };
    let traffic = Traffic { warm_up: 10_000_000, window: 100_000_000, ..Traffic::of(core, 1, None) };
    (host, traffic)
}

#[test]
fn an_unloaded_read_takes_its_stages_and_an_activation() {
    let (host, traffic) = alone(false);
    let report = run(&host, &traffic);
    let (home, dram) = (&host.home, &host.dram);
    let at_home = home.to_memory + dram.activate_to_access + dram.read_latency + dram.burst + home.from_memory;
    near(report.domain(Domain::CoreRead).home.mean_residence_nanoseconds, nanoseconds(at_home));
    near(mean(&report, Domain::CoreRead), nanoseconds(host.core.to_home + at_home));
    near(report.read_queues[0].mean_residence_nanoseconds, nanoseconds(dram.activate_to_access));
    let memory = report.memory();
    assert!(memory.lines[0] > 40 && memory.activations[0] == memory.lines[0] && memory.conflicts == [0, 0]);
}

#[test]
fn a_core_s_write_is_over_when_a_slice_has_it_and_holds_the_buffer_of_its_read() {
    let (host, traffic) = alone(true);
    let report = run(&host, &traffic);
    near(mean(&report, Domain::CoreWrite), nanoseconds(host.core.write_to_home));
    let both = mean(&report, Domain::CoreRead) + mean(&report, Domain::CoreWrite);
    near(report.fill_buffers.mean_residence_nanoseconds, both);
    let to_memory = report.domain(Domain::CoreWrite).home.mean_residence_nanoseconds;
    near(to_memory, nanoseconds(host.home.core_write_to_memory));
    let (reads, writes) = (report.domain(Domain::CoreRead).lines, report.domain(Domain::CoreWrite).lines);
    assert!(reads.abs_diff(writes) <= 1, "{reads} lines came and {writes} were evicted");
}

#[test]
fn a_device_s_write_is_over_when_the_controller_has_it_or_the_cache() {
    let few = |devices| Traffic { device_gap: Some(1_000_000), ..Traffic::of(CoreTraffic::READ, 0, Some(devices)) };
    let mut host = quiet();
    let unloaded = |host: &HostParameters| mean(&run(host, &short(few(DeviceTraffic::Writes))), Domain::DeviceWrite);
    near(unloaded(&host), nanoseconds(host.iio.write_to_home + host.home.device_write_to_memory));
    host.iio.writes_to_cache = true;
    near(unloaded(&host), nanoseconds(host.iio.write_to_home));
    let report = run(&host, &short(few(DeviceTraffic::Reads)));
    let (home, dram) = (&host.home, &host.dram);
    // Lines side by side, but too late for the row that the first has opened.
    let of_memory = dram.activate_to_access + dram.read_latency + dram.burst;
    let whole = host.iio.read_to_home + home.to_memory + of_memory + home.from_memory + host.iio.read_return;
    near(mean(&report, Domain::DeviceRead), nanoseconds(whole));
}

#[test]
fn devices_alone_bring_their_rate_with_credits_to_spare() {
    let host = host();
    let report = run(&host, &short(Traffic::of(CoreTraffic::READ, 0, Some(DeviceTraffic::Writes))));
    let rate = host.device.write_megabits_per_second as f64 * 1e6 / 8.0;
    assert!((report.device_bytes_per_second() / rate - 1.0).abs() < 0.01, "{}", report.device_bytes_per_second());
    let credits = report.domain(Domain::DeviceWrite).credits;
    assert!((64.0..72.0).contains(&credits.mean_occupancy), "{}", credits.mean_occupancy);
}

#[test]
fn a_write_queue_that_is_full_holds_back_devices_and_not_cores() {
    let mut host = quiet();
    // Writes are done late, few at a time.
    (host.controller.most_writes, host.controller.least_reads) = (8, 200);
    host.controller.least_read_time = 1_000_000;
    // Longer than 92 lines that wait for 4 us each take to come through.
    let traffic = Traffic::of(CoreTraffic::READ, 6, Some(DeviceTraffic::Writes));
    let traffic = Traffic { window: 200_000_000, ..traffic };
    let report = run(&host, &traffic);
    let credits = report.domain(Domain::DeviceWrite).credits;
    assert_eq!(credits.maximum_occupancy, u64::from(host.iio.write_credits));
    assert!(credits.mean_occupancy > 85.0, "{}", credits.mean_occupancy);
    assert!(report.write_queue_full() > 0.9);
    assert!(report.domain(Domain::DeviceWrite).blocked.mean_occupancy > 20.0);
    // Throughput is credits over latency, whatever held them back.
    let by_credits = credits.mean_occupancy * 64.0 / credits.mean_residence_nanoseconds * 1e9;
    assert!(
        (report.device_bytes_per_second() / by_credits - 1.0).abs() < 0.02,
        "{} and {by_credits}",
        report.device_bytes_per_second()
    );
    host.iio.writes_to_cache = true;
    let cached = run(&host, &traffic);
    let [one, other] = [&report, &cached].map(|report| mean(report, Domain::DeviceWrite));
    assert!(other < 0.75 * one, "{other} ns with the cache, {one} without");
}

#[test]
fn slices_that_are_full_hold_back_reads_as_well() {
    let traffic = short(Traffic::of(CoreTraffic::READ_WRITE, 6, Some(DeviceTraffic::Writes)));
    let wait = |entries: u32| {
        let mut host = quiet();
        (host.home.entries, host.home.write_entries) = (entries, entries - 2);
        let report = run(&host, &traffic);
        [Domain::CoreRead, Domain::DeviceWrite].map(|one| report.domain(one).admission.mean_residence_nanoseconds)
    };
    let (few, many) = (wait(6), wait(64));
    assert_eq!(many, [0.0, 0.0], "nobody waits where there is room");
    assert!(few[0] > 20.0 && few[1] > 20.0, "{few:?}");
}

#[test]
fn writes_are_done_between_the_watermarks() {
    let mut host = quiet();
    (host.controller.write_high, host.controller.write_low) = (30, 10);
    (host.controller.least_reads, host.controller.idle_writes) = (0, 30);
    // Few come while some are written.
    let traffic = short(Traffic::of(CoreTraffic::READ, 6, Some(DeviceTraffic::Writes)));
    let report = run(&host, &Traffic { device_gap: Some(20_000), ..traffic });
    let memory = report.memory();
    let a_visit = memory.lines[1] as f64 / memory.mode_switches as f64;
    assert!((19.5..25.0).contains(&a_visit), "20 writes and those that come meanwhile, not {a_visit}");
    assert!(report.write_queues.iter().all(|queue| queue.maximum_occupancy == 30));
}

/// Six cores that read beside devices that write, with a controller that was changed.
fn changed(change: impl Fn(&mut HostParameters)) -> HostReport {
    let mut host = quiet();
    change(&mut host);
    run(&host, &short(Traffic::of(CoreTraffic::READ, 6, Some(DeviceTraffic::Writes))))
}

#[test]
fn a_request_that_has_waited_for_long_gets_its_row() {
    let conflicts = |cap: u64| {
        let mut host = quiet();
        host.controller.age_cap = cap;
        run(&host, &short(Traffic::of(CoreTraffic::READ, 6, None))).memory().conflicts[0]
    };
    let (at_once, never) = (conflicts(0), conflicts(1_000_000_000));
    assert!(at_once * 10 > never * 11, "{at_once} rows are closed for older requests, {never} where those wait");
}

#[test]
fn cores_that_read_let_writes_go_before_them_after_a_time() {
    let full = |time: u64| {
        let report = changed(|host| {
            (host.controller.least_reads, host.controller.least_read_time) = (10_000, time);
        });
        report.write_queue_full()
    };
    let (soon, late) = (full(100_000), full(1_000_000_000));
    assert!(soon < 0.8 * late, "full for {soon} of the time, and for {late} where only time without reads counts");
}

#[test]
fn writes_that_began_because_nobody_read_end_when_somebody_does() {
    let mut host = quiet();
    (host.controller.idle_writes, host.controller.write_low) = (20, 0);
    let report = run(&host, &short(Traffic::of(CoreTraffic::READ, 1, Some(DeviceTraffic::Writes))));
    let memory = report.memory();
    let a_visit = memory.lines[1] as f64 / memory.mode_switches as f64;
    assert!(a_visit < 15.0, "20 and more waited, and {a_visit} were written");
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    let traffic = short(Traffic::of(CoreTraffic::READ_WRITE, 3, Some(DeviceTraffic::Writes)));
    let host = host();
    assert_eq!(run(&host, &traffic), run(&host, &traffic));
    assert_ne!(run(&host, &traffic), run(&host, &Traffic { seed: 2, ..traffic }));
    let devices = Some(DeviceTraffic::Writes);
    let both = Traffic { applications: vec![host.redis(), host.graph()], ..Traffic::of(CoreTraffic::READ, 1, devices) };
    let traffic = short(Traffic { nic: true, ..both });
    assert_eq!(run(&host, &traffic), run(&host, &traffic));
    assert_ne!(run(&host, &traffic), run(&host, &Traffic { seed: 2, ..traffic }));
}

/// A host with few of everything, and traffic, from a seed.
pub fn drawn(seed: u64) -> (HostParameters, Traffic) {
    let (mut draws, mut host) = (Draws::new(seed), host());
    let mut between = |least: u64, most: u64| (least + draws.below(most - least + 1)) as u32;
    host.core.line_fill_buffers = between(1, 16);
    (host.home.slices, host.home.entries) = (between(1, 18), between(2, 12));
    host.home.write_entries = between(1, u64::from(host.home.entries) - 1);
    (host.iio.write_credits, host.iio.read_credits) = (between(1, 92), between(1, 192));
    host.iio.writes_to_cache = between(0, 2) == 0;
    let controller = &mut host.controller;
    controller.channels = 1 << between(0, 2);
    (controller.read_entries, controller.write_entries) = (between(1, 48), between(2, 40));
    controller.write_high = between(1, u64::from(controller.write_entries));
    controller.write_low = between(0, u64::from(controller.write_high) - 1);
    (controller.most_writes, controller.least_reads) = (between(1, 64), between(0, 64));
    controller.idle_writes = between(1, 20);
    controller.row_timer = u64::from(between(20_000, 400_000));
    controller.age_cap = u64::from(between(0, 400_000));
    (host.dram.ranks, host.dram.interleaved_groups) = (1 << between(0, 1), 1 << between(0, 2));
    let pattern = if between(0, 1) == 0 { Pattern::Random } else { Pattern::Sequential };
    let core = CoreTraffic { writes: between(0, 1) == 0, pattern, work: u64::from(between(0, 50_000)) };
    // Packets are few and pauses short, so that both happen in the time of a test.
    host.nic.packet_bytes = 64 * u64::from(between(1, 64));
    (host.nic.buffer_bytes, host.nic.pause_bytes, host.nic.resume_bytes) =
        (16_384, 8_192, 64 * u64::from(between(0, 127)));
    host.nic.pause_delay = u64::from(between(1, 400_000));
    host.device.buffer_bytes = host.device.transfer_bytes * u64::from(between(1, 64));
    let applications = [host.redis(), host.graph()];
    let runs = between(0, 3) as usize;
    let nic = between(0, 2) == 0;
    let devices = [None, Some(DeviceTraffic::Writes), Some(DeviceTraffic::Reads)][between(0, 2) as usize];
    let cores = between(u64::from(devices.is_none()), 6) as usize;
    let applications = (0..runs).map(|number| applications[number % 2].clone()).collect();
    let traffic = Traffic::of(core, cores, devices);
    (host, Traffic { seed, warm_up: 3_000_000, window: 12_000_000, applications, nic, ..traffic })
}

#[test]
fn every_queue_obeys_littles_law_no_credit_is_made_or_lost_and_everything_moves() {
    let (mut operations, mut pauses) = (0, 0);
    for seed in 0..40 {
        let (host, traffic) = drawn(seed);
        let report = run(&host, &traffic);
        for (name, queue) in report.queues() {
            assert!(queue.holds(), "seed {seed}: {name}: {queue:?}");
        }
        let most = |domain: Domain| report.domain(domain).credits.maximum_occupancy;
        let cores = traffic.cores.len() + traffic.applications.len();
        let buffers = u64::from(host.core.line_fill_buffers) * cores as u64;
        assert!(report.fill_buffers.maximum_occupancy <= buffers, "seed {seed}");
        assert!(most(Domain::DeviceWrite) <= host.iio.write_credits.into(), "seed {seed}");
        assert!(most(Domain::DeviceRead) <= host.iio.read_credits.into(), "seed {seed}");
        let within = |queues: &[conic_sim::probe::occupancy::Little], entries: u32| {
            queues.iter().all(|queue| queue.maximum_occupancy <= entries.into())
        };
        assert!(within(&report.read_queues, host.controller.read_entries), "seed {seed}");
        assert!(within(&report.write_queues, host.controller.write_entries), "seed {seed}");
        let at_home: f64 = Domain::ALL.iter().map(|one| report.domain(*one).home.mean_occupancy).sum();
        assert!(at_home <= f64::from(host.home.slices * host.home.entries), "seed {seed}");
        let moved = report.core_bytes_per_second() > 0.0 || cores == 0;
        let delivered = report.device_bytes_per_second() > 0.0 || traffic.devices.is_none();
        assert!(moved && delivered, "seed {seed}: {host:?}");
        (operations, pauses) = (operations + report.operations, pauses + report.nic.map_or(0, |nic| nic.pauses));
    }
    assert!(operations > 100 && pauses > 10, "{operations} operations, {pauses} pauses");
}
