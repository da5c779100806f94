//! Lines that are put into the device's cache: each takes its turn, and waits for no line that is not there yet.

use conic_fabric::{Device, StateHint, Time};
use conic_sim::cxl::CxlParameters;
use conic_sim::protocol::cxl::Bias;

use super::{between_refreshes, run};

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
