//! Calls and frames over PCIe, on modelled Enzian and on the PC of the paper's calibration.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Core, Device, Layout, Time};
use conic_interface::pcie_pio;
use conic_interface::xdma::Completion;
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, Simulation};
use conic_study::coherent_pio::calling::Makes;
use conic_study::coherent_pio::pcie::Transport;
use conic_study::coherent_pio::pcie::calls::{Calls, calls, exchange};
use conic_study::coherent_pio::pcie::frames::{Frames, frames};
use conic_study::coherent_pio::percentile;

fn platform(name: &str) -> Parameters {
    platform_with(name, &[])
}

fn platform_with(name: &str, values: &[&str]) -> Parameters {
    let platform = Platform::load(name).and_then(|platform: Platform| platform.with(values));
    let mut machine = platform.expect("a platform that comes with the program").parameters().clone();
    // A tickless kernel.
    machine.timer = None;
    machine
}

fn asked(machine: &Parameters, transport: Transport, payload: usize) -> Calls {
    let (machine, makes, service) = (machine.clone(), Makes::Inverted, Time::ZERO);
    Calls { machine, transport, request: payload, response: payload, makes, service, calls: (2, 8) }
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
    // Whether the load is there before the response or behind it: the device's clock and the link decide.
    for other in ["fpga.cycle=3.1ns", "fpga.cycle=1ns", "inputs.pcie_lanes=4"] {
        let machine = platform_with("enzian-pcie", &[other]);
        let one = calls(&asked(&machine, Transport::Pio, 8)).expect("it ends").median_nanoseconds();
        assert!(one < 1200.0, "{other}: {one} ns");
    }
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

/// Frames that come so long after the host's load has waited for the device's patience, or before; each as often as it was
/// received, and how often the host was told "not yet".
fn around_the_time_out(machine: &Parameters, patience: Time, offsets: &'static [i64]) -> (Vec<u8>, u64) {
    let mut layout = Layout::new();
    let window = pcie_pio::Shape::default().place(&mut layout).expect("a shape that can be");
    let mut simulation = Simulation::new(machine, &layout, Options::default());
    let (received, not_yets) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
    let (into, count) = (Rc::clone(&received), Rc::clone(&not_yets));
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        let (mut host, mut frame) = (window.host(core), [0; 64]);
        // One look more than there are frames finds that none comes twice.
        while into.borrow().len() < offsets.len() {
            match host.receive(&mut frame) {
                Some(length) => {
                    assert_eq!((length, frame[..64] == [frame[0]; 64]), (64, true), "the frame is whole");
                    into.borrow_mut().push(frame[0]);
                }
                None => count.set(count.get() + 1),
            }
        }
        assert_eq!(host.receive(&mut frame), None);
        assert_eq!(host.statistics(), Default::default());
    });
    simulation.device("NIC", Role::Service, Time::ZERO, move |device| {
        let (mut nic, mut due) = (window.nic(device), None);
        let mut left = (0..).zip(offsets);
        let mut next = left.next();
        loop {
            nic.look();
            let since = nic.withheld_since();
            if let (None, Some(since), Some((_, offset))) = (due, since, next) {
                let at = (since + patience).picoseconds().saturating_add_signed(*offset);
                due = Some(Time::from_picoseconds(at));
            }
            if let (Some(at), Some((number, _))) = (due, next)
                && at <= device.now()
            {
                nic.receive(&[number; 64]).expect("the host acknowledges each frame");
                (next, due) = (left.next(), None);
            }
            nic.idle(patience);
            let end = nic.withheld_since().map_or(Time::NEVER, |since| since + patience);
            device.spin_until(end.min(due.unwrap_or(Time::NEVER)));
        }
    });
    simulation.run().expect("the host receives every frame");
    drop(simulation);
    (received.take(), not_yets.get())
}

#[test]
fn a_frame_that_comes_at_the_time_out_is_received_once() {
    let machine = platform("enzian-pcie");
    // From a microsecond before to one after, in steps of less than a cycle about the time-out itself.
    const OFFSETS: [i64; 13] =
        [-1_000_000, -400_000, -5_000, -3_000, -1_000, -1, 0, 1, 1_000, 3_000, 5_000, 400_000, 1_000_000];
    let (received, not_yets) = around_the_time_out(&machine, Time::from_nanoseconds(20_000), &OFFSETS);
    assert_eq!(received, (0..OFFSETS.len() as u8).collect::<Vec<_>>());
    // An answer takes what the descriptor holds when it leaves the device: "not yet" was said where a frame came later still.
    let leaves = machine.pcie.as_ref().map_or(0, |pcie| pcie.register_read / 2);
    let late = OFFSETS.iter().filter(|offset| **offset > leaves as i64).count() as u64;
    assert_eq!(not_yets, late);
}

#[test]
fn a_frame_that_comes_long_after_the_time_out_is_not_lost() {
    let machine = platform("enzian-pcie");
    let (received, not_yets) = around_the_time_out(&machine, Time::from_nanoseconds(20_000), &[205_000_000, 0]);
    assert_eq!(received, [0, 1]);
    assert!((10..=12).contains(&not_yets), "{not_yets}");
}

#[test]
fn looking_at_a_descriptor_takes_nothing_away() {
    let machine = platform("enzian-pcie");
    let mut layout = Layout::new();
    let window = pcie_pio::Shape::default().place(&mut layout).expect("a shape that can be");
    let descriptor = layout.segments().iter().find(|segment| segment.name == "pcie-pio receive descriptor");
    let descriptor = descriptor.expect("it is placed").start;
    let mut simulation = Simulation::new(&machine, &layout, Options::default());
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        let words: Vec<u64> = (0..3).map(|_| core.register_read(descriptor)).collect();
        assert!(words[0] != 0 && words.iter().all(|word| *word == words[0]), "{words:?}");
        let mut frame = [0; 64];
        assert_eq!(window.host(core).receive(&mut frame), Some(64));
        assert_eq!(frame, [5; 64]);
    });
    simulation.device("NIC", Role::Service, Time::ZERO, move |device| {
        let mut nic = window.nic(device);
        nic.receive(&[5; 64]).expect("there is room");
        loop {
            nic.look();
            device.spin();
        }
    });
    simulation.run().expect("the host's program ends");
}

#[test]
fn no_prefetcher_brings_the_kernels_structures() {
    let on = platform("pc-pcie");
    assert!(on.core.prefetch_stride && on.core.prefetch_next_line && on.core.prefetch_adjacent);
    let mut off = on.clone();
    (off.core.prefetch_stride, off.core.prefetch_next_line, off.core.prefetch_adjacent) = (false, false, false);
    let median = |machine: &Parameters| {
        let question = Calls { calls: (4, 40), ..asked(machine, POLLED, 64) };
        calls(&question).expect("it ends").median_nanoseconds()
    };
    let (on, off) = (median(&on), median(&off));
    assert!((on / off - 1.0).abs() < 0.02, "{on} and {off} ns");
}
