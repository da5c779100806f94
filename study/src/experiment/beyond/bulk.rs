//! Engines that copy payloads for the host's core, for the NIC's, or for both (section 6).

use conic_chart::Axis;

use super::super::findings::Findings;
use super::super::setting::{CC_NIC, Setting};
use super::sizes::{Reached, by_size, crossover, list, plot};
use crate::ask::Ask;
use crate::workload::{Application, Engines};

const SIZES: [u16; 6] = [64, 256, 512, 1500, 4096, 9600];

fn variant(ask: &mut Ask<'_>, setting: &Setting, engines: Engines) -> Vec<Reached> {
    by_size(ask, setting, &SIZES, |size| {
        let spr = &setting.platforms.spr;
        let mut question = setting.loopback(spr, CC_NIC, size);
        question.machine.engine.clone_from(&spr.engine);
        (question.switches.application, question.switches.engines) = (Application::Copying, engines);
        question
    })
}

/// What engines are worth by packet size. A host core copies each packet twice, a NIC core once.
pub(super) fn find(setting: &Setting, ask: &mut Ask<'_>, findings: &mut Findings) {
    let [cores, host, nic, both] = [(false, false), (true, false), (false, true), (true, true)]
        .map(|(host, nic)| variant(ask, setting, Engines { host, nic }));
    findings.list("beyond.bulk.cores_rate", "Mpps", list(&cores, |reached| reached.mpps));
    findings.list("beyond.bulk.host_rate", "Mpps", list(&host, |reached| reached.mpps));
    findings.list("beyond.bulk.nic_rate", "Mpps", list(&nic, |reached| reached.mpps));
    findings.list("beyond.bulk.both_rate", "Mpps", list(&both, |reached| reached.mpps));
    findings.list("beyond.bulk.cores_link_bytes", "bytes", list(&cores, |reached| reached.bytes));
    findings.list("beyond.bulk.both_link_bytes", "bytes", list(&both, |reached| reached.bytes));
    findings.number("beyond.bulk.host_crossover", "bytes", crossover(&host, &cores));
    findings.number("beyond.bulk.nic_crossover", "bytes", crossover(&nic, &cores));
    findings.number("beyond.bulk.both_crossover", "bytes", crossover(&both, &cores));
    let variants: [(&str, &[Reached]); 4] =
        [("cores copy", &cores), ("host engine", &host), ("NIC engine", &nic), ("both engines", &both)];
    let note =
        "Sapphire Rapids, one host core and one NIC core; the host copies each packet into a buffer and out of one.";
    let mut draw = |name, title: &str, axis, value| plot(findings, name, title, axis, &variants, value, note);
    draw("beyond-bulk-rate", "Copied packets of a core", Axis::linear("Payload", "Gb/s"), |reached| reached.gbps);
    draw("beyond-bulk-bytes", "Interconnect traffic of a copied packet", Axis::log("Both ways", "bytes"), |reached| {
        reached.bytes
    });
    draw("beyond-bulk-latency", "Latency of a copied packet", Axis::log("Median latency", "ns"), |reached| {
        reached.latency
    });
}
