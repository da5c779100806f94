//! What a latency over coherent lines consists of: how much of it each stage of the machine is.
//!
//! A stage is made a little longer, and the run is made again: by how many times as much it takes longer, so often the stage lies on
//! the way. That counts stages that other stages hide as what they are: nothing. What remains are the core's instructions.

use conic_sim::eci::EciParameters;

use super::exchange::calls;
use super::figures::{Run, failed};
use super::frames::{Around, Arrives, receive, transmit};
use super::percentile;
use crate::experiment::Findings;
use crate::workload::Failure;

/// What the lists of terms are in, and their order.
const UNIT: &str = "ns: links, directory, wire, caches, device, port, core";

/// How much longer a stage is made, in picoseconds.
const LONGER: u64 = 100;

/// A stage's time in a machine, in picoseconds.
type Stage = fn(&mut EciParameters) -> &mut u64;

/// The stages of each term but the last, which is the rest.
const TERMS: [&[Stage]; 6] = [
    &[|machine| &mut machine.link.crossing],
    &[|machine| &mut machine.directory.pass],
    &[|machine| &mut machine.link.word_time],
    &[
        |machine| &mut machine.cache.core_to_l2,
        |machine| &mut machine.cache.l2_to_core,
        |machine| &mut machine.cache.store_interval,
        |machine| &mut machine.cache.recall_lookup,
    ],
    &[|machine| &mut machine.device.message_time],
    &[
        |machine| &mut machine.device.receive_stage,
        |machine| &mut machine.device.receive_line,
        |machine| &mut machine.device.transmit_stage,
        |machine| &mut machine.device.transmit_line,
    ],
];

/// The terms of a latency, and the rest, in nanoseconds.
fn terms(
    machine: &EciParameters,
    latency: impl Fn(EciParameters) -> Result<f64, Failure>,
) -> Result<Vec<f64>, Failure> {
    let whole = latency(machine.clone())?;
    let mut found = Vec::new();
    for stages in TERMS {
        let mut term = 0.0;
        for stage in stages {
            let mut longer = machine.clone();
            let time = *stage(&mut longer);
            *stage(&mut longer) += LONGER;
            term += (latency(longer)? - whole) / LONGER as f64 * time as f64;
        }
        found.push(term);
    }
    found.push(whole - found.iter().sum::<f64>());
    Ok(found)
}

/// The terms of a line there and back with either return, and of a frame of 64 bytes received and transmitted, whose clocks are
/// always at an edge here.
pub(super) fn decompositions(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let line = run.line();
    for (id, exclusive) in [("pio.beyond.terms_exclusive", true), ("pio.beyond.terms_shared", false)] {
        let question = run.invocation(line, exclusive);
        let latency = |machine| {
            let outcome = calls(&super::exchange::Calls { machine, ..question.clone() });
            Ok(outcome.map_err(failed)?.median_nanoseconds())
        };
        findings.list(id, UNIT, Some(terms(run.machine, latency)?));
    }
    let mut question = run.frames(64, false);
    question.around = Around::default();
    let machine = question.machine.clone();
    for (id, receives) in [("pio.beyond.terms_receive_64", true), ("pio.beyond.terms_transmit_64", false)] {
        let latency = |machine| {
            let frames = super::frames::Frames { machine, ..question.clone() };
            let times = if receives { receive(&frames, Arrives::WithTheLoad) } else { transmit(&frames) };
            Ok(percentile(&times.map_err(failed)?, 0.5))
        };
        findings.list(id, UNIT, Some(terms(&machine, latency)?));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use conic_sim::platform::Platform;

    use super::*;
    use crate::coherent_pio::Machines;
    use crate::experiment::{Effort, Value};

    #[test]
    fn an_exchange_has_four_crossings_and_four_passes_and_a_shared_return_six_of_each() {
        let eci = |name| Platform::<EciParameters>::load_as(name).expect("it is shipped").parameters().clone();
        let sockets = |name| Platform::load(name).expect("it is shipped").parameters().clone();
        let machines = Machines {
            enzian: eci("enzian"),
            enzian_pcie: sockets("enzian-pcie"),
            pc_pcie: sockets("pc-pcie"),
            thunderx: sockets("thunderx"),
            cxl: eci("cxl3-mem"),
        };
        let findings = decompositions(&mut Run::new(&machines, Effort::Quick)).expect("every run ends");
        let nic = machines.enzian.on_nic_clock();
        let of = [&machines.enzian, &machines.enzian, &nic, &nic];
        let counts = findings.predictions.iter().zip(of).map(|(found, machine)| match &found.value {
            Some(Value::List(terms)) => {
                let (crossing, pass) = (machine.link.crossing, machine.directory.pass);
                [(terms[0], crossing), (terms[1], pass)].map(|(term, stage)| (term * 1000.0 / stage as f64).round())
            }
            other => panic!("{}: {other:?}", found.id),
        });
        // A transmitted frame is taken before the exchange's grant: three messages.
        assert_eq!(counts.collect::<Vec<_>>(), [[4.0, 4.0], [6.0, 6.0], [4.0, 4.0], [3.0, 3.0]]);
    }
}
