//! Rate by batch size: Figure 16, on Ice Lake.

use conic_chart::{Axis, Chart, Series};
use conic_sim::Parameters;

use super::findings::Findings;
use super::loops::peak;
use super::setting::{BURST, CC_NIC, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Interface, Loopback};

/// What counts as the highest rate.
const NEAR: f64 = 0.9;
/// What counts as significantly less, of what the other one loses.
const MUCH_LESS: f64 = 0.5;

/// Rates by batch size, in packets a second: transmit batches, then receive batches; the other one at its largest.
struct Rates {
    transmit: Vec<(usize, f64)>,
    receive: Vec<(usize, f64)>,
    /// The highest of both, once all are known.
    highest: Option<f64>,
}

fn rates(ask: &mut Ask<'_>, setting: &Setting, machine: &Parameters, interface: Interface) -> Rates {
    let base = setting.loopback(machine, interface, SMALL);
    let batches = setting.pick(&[1, 2, 4, 8, 16, 32][..], &[1, 4, 32][..]);
    let mut of = |change: fn(&mut Loopback, usize)| -> Vec<(usize, f64)> {
        let rate = |&batch: &usize| {
            let mut question = base.clone();
            change(&mut question, batch);
            Some((batch, peak(ask, setting, &question)?.outcome.packets_per_second))
        };
        batches.iter().filter_map(rate).collect()
    };
    let transmit = of(|question, batch| question.transmit_burst = batch);
    let receive = of(|question, batch| question.receive_burst = batch);
    let known = transmit.len() == batches.len() && receive.len() == batches.len();
    let highest = transmit.iter().chain(&receive).map(|point| point.1).max_by(f64::total_cmp);
    Rates { transmit, receive, highest: highest.filter(|_| known) }
}

impl Rates {
    fn transmit_share(&self, batch: usize) -> Option<f64> {
        let rate = self.transmit.iter().find(|point| point.0 == batch)?.1;
        Some(rate / self.highest?)
    }

    fn lowest_share(&self, rates: &[(usize, f64)]) -> Option<f64> {
        let lowest = rates.iter().map(|point| point.1).min_by(f64::total_cmp)?;
        Some(lowest / self.highest?)
    }

    /// Whether receive batches cost much less than transmit batches do.
    fn is_less_sensitive_to_receive(&self) -> Option<bool> {
        let [transmit, receive] = [self.lowest_share(&self.transmit)?, self.lowest_share(&self.receive)?];
        Some(1.0 - receive <= MUCH_LESS * (1.0 - transmit))
    }

    fn series(&self, name: &str, points: &[(usize, f64)]) -> Series {
        let over = self.highest.unwrap_or(f64::NAN);
        Series::line(name, points.iter().map(|&(batch, rate)| (batch as f64, rate / over)))
    }
}

/// Figure 16: rate over the highest, by transmit and by receive batch.
pub(super) fn batches(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let cc_nic = rates(ask, setting, &setting.platforms.icx, CC_NIC);
    let e810 = rates(ask, setting, &setting.platforms.icx_e810, Interface::PcieRing);
    let mut findings = Findings::default();
    findings.number("ccnic.fig16.tx1_ccnic", "fraction", cc_nic.transmit_share(1));
    findings.number("ccnic.fig16.tx1_e810", "fraction", e810.transmit_share(1));
    findings.number("ccnic.fig16.rx_min_ccnic", "fraction", cc_nic.lowest_share(&cc_nic.receive));
    findings.number("ccnic.fig16.rx_min_e810", "fraction", e810.lowest_share(&e810.receive));
    let full_lines = cc_nic.transmit_share(4).map(|share| share >= NEAR);
    findings.holds("ccnic.fig16.tx_peak_with_full_lines", full_lines);
    findings.holds("ccnic.fig16.rx_less_sensitive_ccnic", cc_nic.is_less_sensitive_to_receive());
    findings.holds("ccnic.fig16.rx_less_sensitive_e810", e810.is_less_sensitive_to_receive());
    let chart = |title: &str, axis: &str| {
        Chart::xy(title, Axis::log(axis, "packets"), Axis::linear("Rate over the highest", "").range(0.0, 1.05))
            .note(format!("Ice Lake, all cores, 64-byte packets; the other batch is {BURST}."))
    };
    let transmit = chart("Rate by transmit batch", "Transmit batch")
        .series(cc_nic.series("CC-NIC", &cc_nic.transmit))
        .series(e810.series("E810", &e810.transmit));
    let receive = chart("Rate by receive batch", "Receive batch")
        .series(cc_nic.series("CC-NIC", &cc_nic.receive))
        .series(e810.series("E810", &e810.receive));
    findings.plot("fig16-transmit", transmit);
    findings.plot("fig16-receive", receive);
    findings
}
