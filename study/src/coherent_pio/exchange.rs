//! Calls of a function on the device: how long one takes, what crosses the links, and whether every byte is right.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device as _, Home, Layout, Time};
use conic_interface::pio::{Behaviour, Device, Features, Homed, Host, Poll, Shape};
use conic_sim::eci::{Counters, Disturbances, EciDevice, EciParameters, EciSimulation};
use conic_sim::{Failure, Role};

/// Words of the protocol's sets of lines: enough for two groups of 64 KiB and a control word, in lines of 64 bytes.
pub(super) const WORDS: usize = 33;

/// Bytes of the control word, which lies in the first line.
pub const CONTROL_BYTES: usize = 8;

/// Calls of an echo on the device, one after the other.
#[derive(Clone, Debug)]
pub struct Calls {
    /// The machine.
    pub machine: EciParameters,
    /// Payload of each request and of each response, control word not among it.
    pub payload: usize,
    /// How the device's half behaves.
    pub behaviour: Behaviour,
    /// Whether the lines of a response are asked for together.
    pub prefetch: bool,
    /// Bytes to whose multiples a group of lines is aligned; a line where that is enough.
    pub alignment: u64,
    /// How long the function takes.
    pub service: Time,
    /// Calls before the first that counts, and those that count.
    pub calls: (u64, u64),
    /// What else happens.
    pub disturbances: Disturbances,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct CallsOutcome {
    /// Each call that counts, from before its request is written until its response was read, in picoseconds.
    pub latencies: Vec<u64>,
    /// From the beginning of the first to the end of the last.
    pub elapsed: Time,
    /// What crossed the links during those calls.
    pub counters: Counters,
    /// How often the CPU was told to try again.
    pub try_agains: u64,
}

impl CallsOutcome {
    /// The median of the latencies, in nanoseconds.
    pub fn median_nanoseconds(&self) -> f64 {
        super::percentile(&self.latencies, 0.5)
    }

    /// Bytes a second, both ways together.
    pub fn bytes_per_second(&self, payload: usize) -> f64 {
        2.0 * payload as f64 * self.latencies.len() as f64 / self.elapsed.seconds()
    }
}

/// The bytes of call `number`: its number, and what follows from number and place.
pub fn fill(bytes: &mut [u8], number: u64) {
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (place % 7 * 8)) as u8 ^ (place / 7) as u8;
    }
    let head = number.to_le_bytes();
    let length = bytes.len().min(head.len());
    bytes[..length].copy_from_slice(&head[..length]);
}

/// The device's function: every byte inverted, so that a request is no response.
pub(super) fn function(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// Two groups of lines for payloads of so many bytes.
pub(super) fn shape(machine: &EciParameters, payload: usize, alignment: u64) -> Shape {
    let unit = machine.cache.line_bytes;
    let group = (payload + CONTROL_BYTES).div_ceil(unit as usize).max(1) as u16;
    Shape { unit, group, overflow: 0, header: CONTROL_BYTES as u64, alignment: alignment.max(unit) }
}

/// Makes the calls, and checks each response by content and sequence.
///
/// # Errors
///
/// The simulator's, where the calls never end.
///
/// # Panics
///
/// If the shape cannot be, or a response is wrong.
pub fn calls(question: &Calls) -> Result<CallsOutcome, Failure> {
    let shape = shape(&question.machine, question.payload, question.alignment);
    let mut layout = Layout::new();
    let lines = shape.place(&mut layout, Home::Nic).expect("a shape of whole lines");
    let mut simulation = EciSimulation::new(&question.machine, &layout, question.disturbances);
    let outcome = Rc::new(RefCell::new(None));
    let (asked, into) = (question.clone(), Rc::clone(&outcome));
    simulation.core("host", Role::Main, move |core| {
        let features = Features { prefetch: asked.prefetch, ..Features::HOMED };
        let mut host = Host::new(*core, lines, features);
        let (mut request, mut response) = (vec![0; asked.payload], vec![0; asked.payload]);
        let (mut latencies, mut began, mut before) = (Vec::new(), Time::ZERO, Counters::default());
        for number in 0..asked.calls.0 + asked.calls.1 {
            fill(&mut request, number);
            if number == asked.calls.0 {
                (began, before) = (core.now(), core.machine().borrow().counters.clone());
            }
            let start = core.now();
            call(&mut host, &request, &mut response);
            if number >= asked.calls.0 {
                latencies.push(core.now().since(start).picoseconds());
            }
            function(&mut response);
            assert!(response == request, "the response to call {number} is wrong");
        }
        let counters = core.machine().borrow().counters.since(&before);
        let (elapsed, try_agains) = (core.now().since(began), host.try_agains());
        *into.borrow_mut() = Some(CallsOutcome { latencies, elapsed, counters, try_agains });
    });
    let asked = question.clone();
    simulation.device("device", Role::Service, move |device| {
        let homed = Homed::<_, WORDS>::new(*device, lines, asked.behaviour).expect("so many lines fit");
        serve(homed, |request, response| {
            response.extend_from_slice(request);
            function(response);
            asked.service
        });
    });
    simulation.run()?;
    drop(simulation);
    let outcome = outcome.borrow_mut().take();
    Ok(outcome.expect("the host's program ended"))
}

fn call<C: Core>(host: &mut Host<C>, request: &[u8], response: &mut [u8]) {
    host.begin(request, response.len()).expect("the request fits, and the last was answered");
    loop {
        match host.poll() {
            Poll::Response(length) => {
                assert_eq!(length, response.len(), "the response has the request's length");
                host.read(response);
                return;
            }
            Poll::NotYet => host.core().spin(),
            Poll::Refused => panic!("the device refused a request"),
        }
    }
}

/// Answers requests for ever: `answer` writes the response to a request, and says how long it takes.
pub(super) fn serve<const N: usize>(
    mut homed: Homed<EciDevice<'_>, N>,
    mut answer: impl FnMut(&[u8], &mut Vec<u8>) -> Time,
) {
    let (mut request, mut response) = (Vec::new(), Vec::new());
    let mut due = None;
    loop {
        if let Some(length) = homed.poll() {
            request.resize(length, 0);
            homed.read(&mut request);
            response.clear();
            let took = answer(&request, &mut response);
            due = Some(homed.device().now() + took);
        }
        let is_due = due.is_some_and(|due| homed.device().now() >= due);
        if is_due && homed.respond(&response) {
            due = None;
        } else {
            homed.device().spin_until(due.unwrap_or(Time::NEVER));
        }
        assert_eq!(homed.violations(), (0, None), "the CPU broke the line pair's protocol");
    }
}
