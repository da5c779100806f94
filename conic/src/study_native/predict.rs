//! The loopbacks on the simulated machine.

use conic_fabric::Time;
use conic_sim::Parameters;
use conic_study::simulated::loopback;
use conic_study::simulated::native::fit_work;
use conic_study::workload::{Interface, LoopbackOutcome, NIC_BURST, NicPlace, Prefetching, Switches};

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

/// The work of an interface's halves, fitted to what both take on one core.
pub struct Work<'a> {
    /// Which, and with which packets.
    pub subject: &'a Subject,
    /// The machine, with the scale of the host's work.
    pub machine: Parameters,
    /// The scale of the NIC's.
    pub nic: f64,
    /// What the host's half and the NIC's take for a packet, nanoseconds.
    pub takes: [Compared; 2],
}

/// Fits the work of halves, of which each takes so many nanoseconds a packet, on all cores.
///
/// # Errors
///
/// How a run failed.
pub fn fit<'a>(machine: &Parameters, halves: &[(&'a Subject, [f64; 2])]) -> Result<Vec<Work<'a>>, Failure> {
    let work = |&(subject, measured): &(&'a Subject, [f64; 2])| {
        let mut question = question(machine, subject);
        let found = fit_work(&mut question, measured).map_err(|failure| failure.to_string())?;
        let nic = question.nic_work.unwrap_or(question.machine.core.work_scale);
        let takes = [0, 1].map(|half| Compared::new(measured[half], found[half]));
        Ok(Work { subject, machine: question.machine, nic, takes })
    };
    on_all_cores(halves, work).into_iter().map(|work| work.map_err(|error: String| Failure::failed(error))).collect()
}

/// Predicts every loopback, each with the work of its interface, size and bursts, after the NIC has stood still for `stop`.
///
/// # Errors
///
/// How a run failed.
pub fn rows(works: &[Work<'_>], found: &[Found<'_>], stop: Time) -> Result<Vec<Row>, Failure> {
    let predicted = |one: &Found<'_>| {
        let work = works.iter().find(|work| work.subject.works_like(one.subject)).ok_or("its work is not known")?;
        let question = question(&work.machine, one.subject);
        let switches = Switches { late: stop, ..question.switches };
        loopback(&Loopback { nic_work: Some(work.nic), switches, ..question })
    };
    let row = |(one, outcome): (&Found<'_>, Result<LoopbackOutcome, String>)| {
        let outcome = outcome.map_err(Failure::failed)?;
        Ok(Row {
            interface: one.subject.interface.name(),
            features: one.subject.features_name(),
            packet_size: one.subject.workload.packet_size,
            window: one.subject.workload.window,
            mpps: Compared::new(one.rate / 1e6, outcome.packets_per_second / 1e6),
            p50_ns: Compared::new(one.latency, outcome.median_nanoseconds),
            slices: one.slices,
        })
    };
    found.iter().zip(on_all_cores(found, predicted)).map(row).collect()
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
        nic_burst: NIC_BURST,
        whole_bursts: false,
        offered: None,
        prefetching: Prefetching { host: true, nic: true },
        nic_work: None,
        // Both rings go round before anything counts.
        packets: (packets.max(2_500), packets),
        // What is measured keeps no metadata in its buffers.
        switches: Switches { bare_buffers: true, ..Switches::default() },
        seed: 1,
    }
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
