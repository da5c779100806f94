//! The loopbacks on the simulated machine.

use conic_sim::Parameters;
use conic_study::simulated::loopback;
use conic_study::simulated::native::fit_work;
use conic_study::workload::{Interface, LoopbackOutcome, NicPlace, Prefetching, Switches};

use super::{Compared, Failure, Loopback, Row, Subject};
use crate::bench::link;
use crate::spread::on_all_cores;

/// A loopback with what was measured of it.
pub struct Found<'a> {
    /// Which.
    pub subject: &'a Subject,
    /// Packets a second.
    pub rate: f64,
    /// Median round trip, nanoseconds.
    pub latency: f64,
    /// From how many slices.
    pub slices: usize,
}

/// Predicts every loopback; gives the fitted scale of work too, if the one that it is fitted to was measured.
///
/// # Errors
///
/// How a run failed.
pub fn rows(machine: &Parameters, found: &[Found<'_>]) -> Result<(Vec<Row>, Option<f64>), Failure> {
    let mut machine = machine.clone();
    let mut work_scale = None;
    if let Some(fitted) = found.iter().find(|one| one.subject.is_fitted()) {
        let mut question = question(&machine, fitted.subject);
        let scale = fit_work(&mut question, fitted.rate).map_err(|failure| Failure::failed(failure.to_string()))?;
        machine = question.machine;
        work_scale = Some(scale);
    }
    let outcomes = all(&machine, found)?;
    let row = |(one, outcome): (&Found<'_>, LoopbackOutcome)| Row {
        interface: one.subject.interface.name(),
        features: (one.subject.interface == link::Interface::Ccnic).then_some(one.subject.variant),
        packet_size: one.subject.workload.packet_size,
        window: one.subject.workload.window,
        rate_role: if one.subject.is_fitted() { "calibration" } else { "prediction" },
        mpps: Compared::new(one.rate / 1e6, outcome.packets_per_second / 1e6),
        p50_ns: Compared::new(one.latency, outcome.median_nanoseconds),
        slices: one.slices,
    };
    Ok((found.iter().zip(outcomes).map(row).collect(), work_scale))
}

/// The question that a loopback of this machine is.
fn question(machine: &Parameters, subject: &Subject) -> Loopback {
    let workload = subject.workload;
    let lines = u64::from(workload.packet_size).div_ceil(64);
    // Enough that the window turns over several times and the rings and pools have gone round; fewer of long packets.
    let packets = (24_000 / (4 + lines)).max(8 * workload.window).max(600);
    Loopback {
        machine: machine.clone(),
        interface: match subject.interface {
            link::Interface::Ring => Interface::Ring,
            _ => Interface::CcNic(subject.features),
        },
        nic_place: NicPlace::Remote,
        threads: 1,
        packet_size: workload.packet_size,
        window: workload.window,
        transmit_burst: workload.transmit_burst,
        receive_burst: workload.receive_burst,
        offered: None,
        prefetching: Prefetching { host: true, nic: true },
        // Both rings go round before anything counts.
        packets: (packets.max(2_500), packets),
        switches: Switches::default(),
        seed: 1,
    }
}

/// Runs all, on all cores.
fn all(machine: &Parameters, found: &[Found<'_>]) -> Result<Vec<LoopbackOutcome>, Failure> {
    let questions: Vec<Loopback> = found.iter().map(|one| question(machine, one.subject)).collect();
    on_all_cores(&questions, loopback).into_iter().map(|outcome| outcome.map_err(Failure::failed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_predicted_is_what_is_measured() {
        let preset = conic_study::simulated::native::preset().expect("it comes with the program");
        let mut rings = 0;
        for subject in super::super::subjects(false).expect("the variants are known") {
            let asked = question(preset.parameters(), &subject);
            // The paper's baseline takes buffers in another order and asks for nothing ahead: it is not what is measured.
            match subject.interface {
                link::Interface::Ring => assert_eq!(asked.interface, Interface::Ring),
                _ => assert_eq!(asked.interface, Interface::CcNic(subject.features)),
            }
            rings += usize::from(subject.interface == link::Interface::Ring);
            assert_eq!((asked.packet_size, asked.window), (subject.workload.packet_size, subject.workload.window));
        }
        assert_eq!(rings, 16);
    }
}
