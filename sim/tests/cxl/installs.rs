//! Lines that are put into the device's cache: each takes its turn, whoever had them before, and waits for no line that is not there yet.

use conic_fabric::{Core, Device, Line, StateHint, Time};
use conic_sim::cxl::{CxlDevice, CxlParameters};
use conic_sim::protocol::cxl::Bias;

use super::{Places, between_refreshes, run};

/// What the device does with each of many lines of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Read(StateHint),
    WritesPart,
}

/// Picoseconds in which the device does something with `lines` of its own lines at once, which a core has modified, or nobody.
fn many(p: &CxlParameters, does: Does, lines: u64, modified: bool) -> u64 {
    run(
        p,
        64,
        move |core, places| {
            (0..lines).filter(|_| modified).for_each(|line| core.write_line(places.device.lines(line), &Line([1; 8])));
        },
        move |device, places| {
            device.wait_until(Time::from_nanoseconds(50_000));
            let start = device.now();
            let at = |line| places.device.lines(line);
            match does {
                Does::Read(hint) => {
                    let tags: Vec<_> = (0..lines).map(|line| device.start_read(at(line), 64, hint)).collect();
                    for (line, tag) in (0..).zip(tags) {
                        device.finish_read(tag, at(line), &mut [0; 64]);
                    }
                }
                Does::WritesPart => {
                    (0..lines).for_each(|line| device.write(at(line), &[2; 8], StateHint::CacheableOwned));
                    device.await_writes();
                }
            }
            device.now().since(start).picoseconds()
        },
    )
}

#[test]
fn a_line_that_the_host_writes_back_takes_its_turn_into_the_devices_cache_as_any_other_does() {
    let mut p = between_refreshes("agilex7");
    p.dcoh.install_interval = 100_000;
    let reads = [StateHint::CacheableShared, StateHint::CacheableOwned].map(Does::Read);
    for does in reads.into_iter().chain([Does::WritesPart]) {
        for modified in [false, true] {
            let more = many(&p, does, 32, modified) - many(&p, does, 16, modified);
            assert_eq!(more, 16 * p.dcoh.install_interval, "{does:?}, modified {modified}");
        }
    }
    // What is read past the cache enters it only where the host writes it back.
    let past = Does::Read(StateHint::NonCacheable);
    assert_eq!(many(&p, past, 32, true) - many(&p, past, 16, true), 16 * p.dcoh.install_interval);
    assert!(many(&p, past, 32, false) < 8 * p.dcoh.install_interval);
}

/// Picoseconds that a write of a whole line of the device's own takes, of which its cache has a Shared copy before, or none.
fn write_of_own(p: &CxlParameters, bias: Bias, shared: bool) -> u64 {
    run(
        p,
        8,
        |_, _| (),
        move |device, places| {
            device.switch_bias(places.device, 512, bias, true);
            if shared {
                device.read(places.device, &mut [0; 64], StateHint::CacheableShared);
            }
            let start = device.now();
            device.write(places.device, &[1; 64], StateHint::CacheableOwned);
            device.await_writes();
            device.now().since(start).picoseconds()
        },
    )
}

#[test]
fn a_copy_that_could_only_be_read_is_put_there_anew_where_it_is_written() {
    let p = between_refreshes("agilex7");
    for bias in [Bias::Host, Bias::Device] {
        let [without, with] = [false, true].map(|shared| write_of_own(&p, bias, shared));
        assert_eq!(without, with, "{bias:?}");
        let mut free = p.clone();
        free.dcoh.install = 0;
        assert_eq!(with - write_of_own(&free, bias, true), p.dcoh.install, "{bias:?}");
    }
}

/// Picoseconds that a write of one line takes the device in device-bias, where it has begun to read another one a few cycles before, or not.
fn write_behind(p: &CxlParameters, read: bool) -> u64 {
    let port = Time::from_picoseconds(4 * p.dcoh.cycle);
    run(
        p,
        8,
        |_, _| (),
        move |device, places| {
            device.switch_bias(places.device, 512, Bias::Device, true);
            let tag = read.then(|| device.start_read(places.device, 64, StateHint::CacheableShared));
            device.wait_until(device.now() + port);
            let start = device.now();
            device.write(places.device.lines(1), &[1; 64], StateHint::CacheableOwned);
            device.await_writes();
            let taken = device.now().since(start).picoseconds();
            if let Some(tag) = tag {
                device.finish_read(tag, places.device, &mut [0; 64]);
            }
            taken
        },
    )
}

#[test]
fn a_line_that_is_there_waits_for_no_other_whose_memory_is_still_read() {
    let mut p = between_refreshes("agilex7");
    assert!(p.device_memory.latency > 4 * (p.dcoh.install_interval + p.dcoh.cycle), "the write is there first");
    assert_eq!(write_behind(&p, true), write_behind(&p, false));
    (p.dcoh.install, p.dcoh.install_interval) = (0, 0);
    assert_eq!(write_behind(&p, true), write_behind(&p, false));
}

/// Picoseconds for a read of a line that the device's cache of one line has, after `then` was done with another that a core has modified.
fn read_again(p: &CxlParameters, then: impl Fn(&CxlDevice<'_>, Places) + 'static) -> u64 {
    run(
        p,
        8,
        |core, places| core.write_line(places.device.lines(1), &Line([1; 8])),
        move |device, places| {
            device.wait_until(Time::from_nanoseconds(10_000));
            device.read(places.device, &mut [0; 64], StateHint::CacheableShared);
            then(device, places);
            let start = device.now();
            device.read(places.device, &mut [0; 64], StateHint::CacheableShared);
            device.now().since(start).picoseconds()
        },
    )
}

#[test]
fn what_the_host_writes_back_for_a_write_past_the_devices_cache_takes_no_place_in_it() {
    let mut p = between_refreshes("agilex7");
    (p.dcoh.dmc_bytes, p.dcoh.dmc_ways) = (64, 1);
    let after = |hint| {
        read_again(&p, move |device, places| {
            device.write(places.device.lines(1), &[3; 8], hint);
            device.await_writes();
        })
    };
    assert_eq!(after(StateHint::NonCacheable), p.dcoh.hit);
    assert!(after(StateHint::CacheableOwned) > p.dcoh.hit, "what is written in the cache takes the other's place");
}
