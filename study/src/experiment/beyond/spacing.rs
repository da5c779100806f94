//! Buffers of 4 KB that lie 4096 bytes apart, and an odd number of lines: the unoptimised ring's are the one, CC-NIC's without small
//! buffers the other, and neither distance is published.

use super::super::ablation::{managed_rate, steps};
use super::super::findings::Findings;
use super::super::loops::{below, mpps, peak, ratio};
use super::super::setting::{CC_NIC, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Interface, Spacing};

const PAGES: Option<Spacing> = Some(Spacing::Pages);
const ODD_LINES: Option<Spacing> = Some(Spacing::OddLines);

/// What the distance decides of Figure 15's small buffers, and of CC-NIC beside the unoptimised interface. Each interface's own
/// distance is asked as the figures ask it.
pub(super) fn find(setting: &Setting, ask: &mut Ask<'_>, findings: &mut Findings) {
    let (icx, spr) = (&setting.platforms.icx, &setting.platforms.spr);
    let [_, (_, before), (_, no_small), _] = steps();
    let before = managed_rate(ask, setting, &setting.loopback(spr, Interface::CcNic(before), SMALL));
    for (id, spacing) in [("beyond.spacing.pages.no_small", PAGES), ("beyond.spacing.odd.no_small", None)] {
        let mut question = setting.loopback(spr, Interface::CcNic(no_small), SMALL);
        question.switches.spacing = spacing;
        findings.number(id, "fraction", below(managed_rate(ask, setting, &question), before));
    }
    let [ours_icx, ours_spr] = [icx, spr]
        .map(|machine| peak(ask, setting, &setting.loopback(machine, CC_NIC, SMALL)).map(|peak| mpps(&peak.outcome)));
    for (ids, spacing) in [
        (["beyond.spacing.pages.unopt_rate_reduction", "beyond.spacing.pages.unopt_rate_ratio"], None),
        (["beyond.spacing.odd.unopt_rate_reduction", "beyond.spacing.odd.unopt_rate_ratio"], ODD_LINES),
    ] {
        let [plain_icx, plain_spr] = [icx, spr].map(|machine| {
            let mut question = setting.loopback(machine, Interface::UnoptimisedRing, SMALL);
            question.switches.spacing = spacing;
            peak(ask, setting, &question).map(|peak| mpps(&peak.outcome))
        });
        findings.number(ids[0], "fraction", below(plain_icx, ours_icx));
        findings.number(ids[1], "ratio", ratio(ours_spr, plain_spr));
    }
}
