//! The link's layer: damaged flits, and few credits.

use conic_fabric::StateHint;
use conic_sim::cxl::{CxlParameters, LayerCounters};

use super::machine;
use super::random::random_run;
use super::stream::stream;

#[test]
fn without_errors_nothing_is_sent_again_and_nothing_waits_for_a_credit() {
    let simulation = random_run(&machine("agilex7"), 3);
    let machine = simulation.machine().borrow();
    assert_eq!(machine.link_layer(), [LayerCounters::default(); 2]);
}

#[test]
fn damaged_flits_and_few_credits_lose_nothing_and_stop_nothing() {
    let mut parameters = machine("agilex7");
    let link = &mut parameters.link;
    (link.request_credits, link.answer_credits, link.data_credits, link.memory_credits) = (1, 1, 1, 1);
    (link.flit_error_rate, link.retry_flits) = (0.2, 2);
    // Caches of two lines, so that evictions and snoops of the same lines meet.
    (parameters.dcoh.hmc_bytes, parameters.dcoh.hmc_ways) = (128, 2);
    (parameters.dcoh.dmc_bytes, parameters.dcoh.dmc_ways) = (128, 2);
    let (mut damaged, mut waited) = (0, 0);
    for seed in 200..240 {
        let simulation = random_run(&parameters, seed);
        let machine = simulation.machine().borrow();
        for counters in machine.link_layer() {
            damaged += counters.damaged;
            waited += counters.waited;
        }
    }
    assert!(damaged > 10_000 && waited > 10_000, "{damaged} messages damaged, {waited} waited");
}

/// Reads past the port's limit, so that the link decides.
fn wide() -> CxlParameters {
    let mut p = super::between_refreshes("agilex7");
    (p.dcoh.ports, p.dcoh.requests_in_flight) = (4, 2_000);
    p
}

#[test]
fn credits_bound_the_rate_as_little_has_it() {
    let mut p = wide();
    p.link.data_credits = 16;
    let rate = stream(&p, false, StateHint::NonCacheable);
    // A credit is taken for a line's time on the wire, its way there, and its own way back.
    let line = u64::from(p.link.line_quarters + p.link.data_header_quarters) * p.link.quarter_time;
    let taken = line + 2 * p.link.crossing + p.link.credit_return;
    let bound = 16.0 * 64.0 / (taken as f64 / 1000.0);
    assert!((0.93..=1.0).contains(&(rate / bound)), "{rate} of {bound} GB/s");
}

#[test]
fn each_damaged_flit_costs_the_link_a_round_trip() {
    let mut p = wide();
    p.link.flit_error_rate = 0.01;
    let rate = stream(&p, false, StateHint::NonCacheable);
    let quarters = f64::from(p.link.line_quarters + p.link.data_header_quarters);
    let line = quarters * p.link.quarter_time as f64;
    let damaged = 1.0 - 0.99_f64.powf(quarters / f64::from(p.link.flit_quarters));
    let again = (p.link.acknowledge + 2 * p.link.crossing) as f64 + line;
    let bound = 64_000.0 / (line + damaged / (1.0 - damaged) * again);
    assert!((0.9..=1.1).contains(&(rate / bound)), "{rate} of {bound} GB/s");
}
