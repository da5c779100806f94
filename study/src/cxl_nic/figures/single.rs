//! Figures 4 and 7: single operations.

use conic_chart::Axis;
use conic_fabric::StateHint;
use conic_sim::Failure;

use super::{Run, lines};
use crate::cxl_nic::operations::{self, Through};
use crate::experiment::Findings;

const SIZES: [usize; 8] = [64, 256, 512, 1024, 1500, 2048, 4096, 9000];
const NC: Through = Through::Cxl(StateHint::NonCacheable);

/// How much less the first is than the second, as a part of it.
pub(super) fn less(one: f64, other: f64) -> f64 {
    1.0 - one / other
}

/// Figure 4.
pub(super) fn operations(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let (agilex, bluefield) = (&run.machines.agilex, &run.machines.bluefield);
    let mut curves: [Vec<(f64, f64)>; 5] = Default::default();
    for bytes in SIZES {
        let values = [
            operations::write(agilex, NC, bytes)?,
            operations::read(agilex, NC, bytes)?,
            operations::write(bluefield, Through::SoftwareDma, bytes)?,
            operations::read(bluefield, Through::SoftwareDma, bytes)?,
            operations::read(agilex, Through::Dma, bytes)?,
        ];
        for (curve, value) in curves.iter_mut().zip(values) {
            curve.push((bytes as f64, value));
        }
        run.asked += values.len();
    }
    let small = curves.each_ref().map(|curve| curve[0].1);
    let growth = curves.each_ref().map(|curve| curve[curve.len() - 1].1 / curve[0].1);
    let [nc_write, nc_read, doca_write, doca_read, dma_read] = small;
    let mut findings = Findings::default();
    findings.number("cxl.fig4.write_64", "fraction", Some(less(nc_write, doca_write)));
    findings.number("cxl.fig4.read_64", "fraction", Some(less(nc_read, doca_read)));
    findings.number("cxl.fig4.read_64_vs_agilex_dma", "fraction", Some(less(nc_read, dma_read)));
    findings.number("cxl.fig4.nc_write_growth", "ratio", Some(growth[0]));
    findings.number("cxl.fig4.nc_read_growth", "ratio", Some(growth[1]));
    findings.number("cxl.fig4.doca_write_growth", "ratio", Some(growth[2]));
    findings.number("cxl.fig4.doca_read_growth", "ratio", Some(growth[3]));
    let fetched = operations::read_descriptor(agilex, NC)?;
    let fetched_doca = operations::read_descriptor(bluefield, Through::SoftwareDma)?;
    findings.number("cxl.fig4.descriptor_read", "fraction", Some(less(fetched, fetched_doca)));
    let completed = operations::complete(agilex, NC)?;
    let completed_doca = operations::complete(bluefield, Through::SoftwareDma)?;
    findings.number("cxl.fig4.completion", "fraction", Some(less(completed, completed_doca)));
    let polled = operations::signal_by_polling(agilex, StateHint::NonCacheable)?;
    let rung = operations::signal_by_register(bluefield)?;
    findings.number("cxl.fig4.signal", "fraction", Some(less(polled, rung)));
    let again = operations::read_again(agilex)?;
    findings.number("cxl.sec4.hit_speedup", "ratio", Some(nc_read / again));
    findings.number("cxl.unpublished.nc_read", "ns", Some(nc_read));
    findings.number("cxl.unpublished.nc_write", "ns", Some(nc_write));
    findings.number("cxl.unpublished.signal_co_read", "ns", {
        Some(operations::signal_by_polling(agilex, StateHint::CacheableOwned)?)
    });
    run.asked += 8;
    let [nc_write, nc_read, doca_write, doca_read, dma_read] = curves;
    let chart = lines(
        "Data movement",
        Axis::log("Transfer", "bytes"),
        Axis::linear("Latency", "ns"),
        [
            ("NC-write", nc_write),
            ("NC-read", nc_read),
            ("DMA write set up by software", doca_write),
            ("DMA read set up by software", doca_read),
            ("DMA read, Agilex-7", dma_read),
        ],
    );
    findings.plot("fig4", chart);
    Ok(findings)
}

/// Figure 7, and the device's own way to its memory.
pub(super) fn device_memory(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let machine = &run.machines.agilex;
    let mut curves: [Vec<(f64, f64)>; 4] = Default::default();
    for bytes in [64, 128, 256, 512] {
        let values = [
            operations::load(machine, bytes)?,
            operations::store(machine, bytes)?,
            operations::load_registers(machine, bytes)?,
            operations::store_registers(machine, bytes)?,
        ];
        for (curve, value) in curves.iter_mut().zip(values) {
            curve.push((bytes as f64, value));
        }
        run.asked += values.len();
    }
    let first = curves.each_ref().map(|curve| curve[0].1);
    let mut findings = Findings::default();
    findings.number("cxl.fig7.load_speedup", "ratio", Some(first[2] / first[0]));
    findings.number("cxl.fig7.store_speedup", "ratio", Some(first[3] / first[1]));
    let half_kilobyte = curves[2][3].1;
    findings.number("cxl.sec1.mmio_512", "ns", Some(half_kilobyte));
    let (host_bias, device_bias) = (operations::read_own(machine, false)?, operations::read_own(machine, true)?);
    findings.number("cxl.unpublished.d2d_host_bias", "ns", Some(host_bias));
    findings.number("cxl.unpublished.d2d_device_bias", "ns", Some(device_bias));
    findings.number("cxl.unpublished.load_after_push", "ns", Some(operations::load_pushed(machine)?));
    run.asked += 3;
    let [load, store, mmio_load, mmio_store] = curves;
    let chart = lines(
        "Device memory",
        Axis::log("Access", "bytes"),
        Axis::log("Latency", "ns"),
        [
            ("load over CXL.mem", load),
            ("store over CXL.mem", store),
            ("load over MMIO", mmio_load),
            ("store over MMIO", mmio_store),
        ],
    );
    findings.plot("fig7", chart);
    Ok(findings)
}
