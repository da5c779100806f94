//! What becomes of lines that the device pushes into the last-level cache, and what the host's monitoring tells of that cache.

use conic_fabric::{Address, Core, Device, LINE_BYTES, StateHint, Time};
use conic_sim::cxl::{CacheMonitoring, CxlCore, CxlDevice, CxlParameters, CxlSimulation, PushedLines};
use conic_sim::{Failure, Role};

use super::{Places, between_refreshes, places};

/// Sets of the last-level cache, of 15 ways of which the device's lines go to two.
const SETS: u64 = 4;

fn small() -> CxlParameters {
    let mut parameters = between_refreshes("agilex7");
    parameters.cache.llc_bytes = SETS * u64::from(parameters.cache.llc_ways) * LINE_BYTES;
    assert_eq!((parameters.cache.llc_ways, parameters.cache.device_write_ways), (15, 2));
    parameters
}

/// A core's step at one time, and the device's at another, each after all that was before.
fn in_turn(
    parameters: &CxlParameters,
    device: impl Fn(&CxlDevice<'_>, Places) + 'static,
    core: impl Fn(&CxlCore<'_>, Places) + 'static,
) -> Result<(), Failure> {
    let (layout, places) = places(64);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    simulation.device("device", Role::Main, move |engine| device(engine, places));
    simulation.core("host", Role::Main, move |host| {
        host.wait_until(Time::from_nanoseconds(100_000));
        core(host, places);
    });
    simulation.run()
}

fn push(device: &CxlDevice<'_>, at: Address, hint: StateHint) {
    device.write(at, &[1; LINE_BYTES as usize], hint);
    // A push is over for the device when its data has left.
    device.wait_until(device.now() + Time::from_nanoseconds(2_000));
}

#[test]
fn each_pushed_line_is_read_or_evicted_or_overwritten_and_counted_once() {
    let pushed = |device: &CxlDevice<'_>, places: Places| {
        // Three of one set, which has two ways for them: the first has to go.
        for line in 0..3 {
            push(device, places.device.lines(line * SETS), StateHint::NonCacheablePush);
        }
        let counted = device.machine().borrow().counters.pushed_lines;
        assert_eq!(counted, PushedLines { pushed: 3, read: 0, evicted: 1, overwritten: 0 });
        push(device, places.device.lines(SETS), StateHint::NonCacheable);
        push(device, places.device.lines(1), StateHint::NonCacheablePush);
        push(device, places.device.lines(1), StateHint::NonCacheablePush);
    };
    in_turn(&small(), pushed, |core, places| {
        let counted = || core.machine().borrow().counters.pushed_lines;
        let before = PushedLines { pushed: 5, read: 0, evicted: 1, overwritten: 2 };
        assert_eq!(counted(), before);
        // A line that was read may be overwritten, or go, without being missed.
        core.load(places.device.lines(2 * SETS));
        core.load(places.device.lines(2 * SETS));
        assert_eq!(counted(), PushedLines { read: 1, ..before });
        core.flush(places.device.lines(2 * SETS));
        core.fence();
        assert_eq!(counted(), PushedLines { read: 1, ..before });
        core.store(places.device.lines(1), 7);
        core.full_fence();
        assert_eq!(counted(), PushedLines { read: 2, ..before });
    })
    .expect("it ends");
}

#[test]
fn the_monitoring_tells_what_is_there_and_what_a_group_of_cores_brought_in_and_takes_its_time() {
    let parameters = small();
    let (capacity, read) = (parameters.cache.llc_bytes, parameters.host.monitor_read);
    assert!(read > 0);
    let pushed = |device: &CxlDevice<'_>, places: Places| {
        push(device, places.device, StateHint::NonCacheablePush);
        push(device, places.device.lines(1), StateHint::NonCacheablePush);
        // Past the caches: nothing is in them.
        push(device, places.device.lines(2), StateHint::NonCacheable);
    };
    in_turn(&parameters, pushed, move |core, places| {
        let begin = core.now();
        let told = core.monitor_cache(&[0]);
        assert_eq!(core.now().since(begin), Time::from_picoseconds(2 * read));
        assert_eq!(told, CacheMonitoring { occupied: 128, capacity, brought_in: 0 });
        // One out of the cache, one out of the device's memory, three out of the host's.
        for at in [places.device, places.device.lines(2), places.host, places.host.lines(1), places.host.lines(2)] {
            core.load(at);
            core.load(at);
        }
        assert_eq!(core.monitor_cache(&[0]), CacheMonitoring { brought_in: 4 * LINE_BYTES, ..told });
        assert_eq!(core.monitor_cache(&[]), told, "nobody else has brought anything in");
        core.flush(places.device);
        core.fence();
        assert_eq!(core.monitor_cache(&[]).occupied, 64);
    })
    .expect("it ends");
}

#[test]
fn what_is_left_in_the_last_level_cache_is_read_from_there_and_the_first_of_too_many_is_not() {
    let parameters = small();
    let (p, lines) = (parameters.host.clone(), SETS * 15);
    let (layout, places) = places(64);
    let mut simulation = CxlSimulation::new(&parameters, &layout);
    // One more than there is room for: the first of that set goes.
    simulation.machine().borrow_mut().leave_in_last_level(places.packets, lines + 1);
    simulation.core("host", Role::Main, move |core| {
        let told = core.monitor_cache(&[0]);
        assert_eq!((told.occupied, told.brought_in), (told.capacity, 0));
        for (line, brought_in) in [(1, 0), (lines, 0), (0, 1)] {
            let begin = core.now();
            core.load(places.packets.lines(line));
            let took = core.now().since(begin).picoseconds();
            let of_cache = p.core_to_home + p.home_lookup + p.llc_read + p.home_to_core;
            assert_eq!(took == of_cache, brought_in == 0, "line {line} took {took} ps, out of the cache {of_cache}");
            assert_eq!(core.monitor_cache(&[0]).brought_in, brought_in * LINE_BYTES);
        }
    });
    simulation.run().expect("it ends");
}
