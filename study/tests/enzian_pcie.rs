//! Calls and frames over PCIe, on modelled Enzian and on the PC of the paper's calibration.

use std::rc::Rc;

use conic_fabric::Time;
use conic_interface::xdma::Completion;
use conic_sim::Parameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::pcie::Transport;
use conic_study::coherent_pio::pcie::calls::{Calls, calls, exchange};
use conic_study::coherent_pio::pcie::frames::{Frames, frames};
use conic_study::coherent_pio::percentile;

fn platform(name: &str) -> Parameters {
    let mut machine = Platform::load(name).expect("a platform that comes with the program").parameters().clone();
    // A tickless kernel.
    machine.timer = None;
    machine
}

fn asked(machine: &Parameters, transport: Transport, payload: usize) -> Calls {
    let machine = machine.clone();
    Calls { machine, transport, request: payload, response: payload, service: Time::ZERO, calls: (2, 8) }
}

/// Medians of `question`, received and sent, in nanoseconds.
fn medians(question: &Frames) -> [f64; 2] {
    let outcome = frames(question).expect("it ends");
    [&outcome.receive, &outcome.transmit].map(|times| percentile(times, 0.5))
}

fn looped(machine: &Parameters, transport: Transport, bytes: usize) -> Frames {
    Frames { machine: machine.clone(), transport, bytes, frames: (4, 100), seed: 7 }
}

const POLLED: Transport = Transport::Dma(Completion::Polled);
const INTERRUPT: Transport = Transport::Dma(Completion::Interrupt);

#[test]
fn a_call_by_loads_waits_for_each_of_16_bytes_in_turn() {
    let machine = platform("enzian-pcie");
    let median = |payload| calls(&asked(&machine, Transport::Pio, payload)).expect("it ends").median_nanoseconds();
    // The control word's load brings eight bytes of the response.
    let (one, five, many) = (median(8), median(8 + 4 * 16), median(8 + 64 * 16));
    // A load that meets the device's clock takes whole cycles of it; the longer request flushes a second line.
    let round_trip = (five - one) / 4.0;
    assert!((round_trip - 764.0).abs() < 12.0, "{round_trip} ns");
    assert!((many - one - 64.0 * round_trip).abs() < 700.0, "{many}: stores are posted");
    assert!(one < 1.06 * round_trip, "{one}: the store is on its way before the load");
}

#[test]
fn a_load_that_has_no_response_is_answered_in_time_and_repeated() {
    let machine = platform("enzian-pcie");
    let service = Time::from_nanoseconds(35_000_000);
    let question = Calls { service, calls: (0, 2), ..asked(&machine, Transport::Pio, 100) };
    let outcome = calls(&question).expect("no load waits for ever, and every response is right");
    // Three times the device's patience passes, and the fourth load has it.
    assert!(outcome.latencies.iter().all(|time| *time > 35_000_000_000 && *time < 35_020_000_000));
}

#[test]
fn frames_by_dma_of_64_bytes_are_what_was_fitted() {
    let machine = platform("enzian-pcie");
    let [receive, transmit] = medians(&looped(&machine, POLLED, 64));
    assert!(
        (receive / 65_390.0 - 1.0).abs() < 0.01 && (transmit / 10_060.0 - 1.0).abs() < 0.01,
        "{receive} {transmit}"
    );
}

#[test]
fn an_interrupt_costs_a_load_of_the_status_register_and_the_handler() {
    let machine = platform("enzian-pcie");
    let times = [POLLED, INTERRUPT].map(|transport| medians(&looped(&machine, transport, 64))[0]);
    let driver = machine.driver.as_ref().expect("the platform has one");
    let handler = f64::from(driver.interrupt_work) * machine.core.work_scale / 2.0;
    // Two calls end within a receive latency; the report that is polled and the message come one after the other.
    let more = (times[1] - times[0]) / 2.0 - handler - 764.0;
    assert!(more.abs() < 200.0, "{times:?}: {more}");
}

#[test]
fn memory_that_is_not_refreshed_leaves_dma_without_a_tail() {
    let machine = platform("enzian-pcie");
    let still = Parameters { refresh: None, ..machine.clone() };
    let spread = |machine: &Parameters| {
        let times = frames(&looped(machine, POLLED, 64)).expect("it ends").receive;
        percentile(&times, 0.99) / percentile(&times, 0.5)
    };
    let (with, without) = (spread(&machine), spread(&still));
    assert!(with > 1.01 && without < 1.005, "{with} {without}");
}

#[test]
fn a_tick_takes_the_core_once_an_interval_and_for_its_span() {
    let ticking = Platform::load("enzian-pcie").expect("it is shipped").parameters().clone();
    let timer = ticking.timer.clone().expect("the platform has a tick");
    let still = Parameters { timer: None, ..ticking.clone() };
    let question = |machine| Frames { frames: (0, 300), ..looped(machine, POLLED, 64) };
    let times = [&still, &ticking].map(|machine| frames(&question(machine)).expect("it ends").receive);
    let longest = times.each_ref().map(|times| *times.iter().max().expect("there are frames"));
    let span = timer.span as f64;
    assert!((longest[1] as f64) > longest[0] as f64 + 0.5 * span, "{longest:?}");
    // 300 frames of 85 us and the pauses between them are some 10 intervals of 4 ms.
    let slow = times[1].iter().filter(|time| **time > longest[0] + timer.span / 2).count();
    assert!((2..=15).contains(&slow), "{slow}");
}

#[test]
fn an_exchange_carries_any_functions_bytes_and_its_time() {
    let machine = platform("enzian-pcie");
    for transport in [Transport::Pio, POLLED, INTERRUPT] {
        let request: Vec<u8> = (0..1000_u32).map(|index| (index * 7) as u8).collect();
        let took = [0, 500_000].map(|nanoseconds| {
            let service = Time::from_nanoseconds(nanoseconds);
            let function = Rc::new(move |request: &[u8]| (request.iter().rev().take(300).copied().collect(), service));
            let (response, took) = exchange(&machine, transport, &request, 400, function).expect("it ends");
            assert!(response.iter().eq(request.iter().rev().take(300)), "{transport:?}");
            took
        });
        // Part of the function's time passes while a driver's call returns and the next begins.
        let longer = took[1].since(took[0]).picoseconds() as f64 / 500e6;
        assert!((0.8..1.01).contains(&longer), "{transport:?}: {longer}");
    }
}
