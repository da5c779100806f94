//! Calls of a function on the device: how long one takes, what crosses the links, and whether every byte is right.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device as _, Home, Layout, Time};
use conic_interface::pio::{Behaviour, Device, Features, Homed, Host, Poll, Shape};
use conic_sim::eci::{Counters, Disturbances, EciDevice, EciParameters, EciSimulation, Machine};
use conic_sim::parameters::TimerParameters;
use conic_sim::{Failure, Role};

use super::calling::{Calling, Makes, Timed};
use crate::simulated::Observer;

/// Words of the protocol's sets of lines: enough for two groups of 64 KiB and a control word, in lines of 64 bytes.
pub(super) const WORDS: usize = 33;

/// Bytes of the control word, which lies in the first line.
pub const CONTROL_BYTES: usize = 8;

/// The name of the span that a recording has of each call, from before its request is written until its response was read.
pub const CALL: &str = "call";

/// Calls of a function on the device, one after the other.
#[derive(Clone, Debug)]
pub struct Calls {
    /// The machine.
    pub machine: EciParameters,
    /// Payload of each request, control word not among it.
    pub payload: usize,
    /// What the device makes of it.
    pub makes: Makes,
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
    /// The timer interrupt that takes the core.
    pub timer: Option<TimerParameters>,
}

impl Calls {
    /// Calls whose request and response have so many bytes of payload at most: lines of a group that has several are asked for
    /// together, and nothing else happens.
    pub fn new(machine: &EciParameters, payload: usize, makes: Makes, calls: (u64, u64)) -> Calls {
        let line = machine.cache.line_bytes;
        let longest = payload.max(makes.response_bytes(payload));
        Calls {
            machine: machine.clone(),
            payload,
            makes,
            behaviour: Behaviour::default(),
            prefetch: (longest + CONTROL_BYTES) as u64 > line,
            alignment: line,
            service: Time::ZERO,
            calls,
            disturbances: Disturbances::default(),
            timer: None,
        }
    }

    fn calling(&self) -> Calling {
        let Calls { payload, makes, calls, .. } = *self;
        Calling { request: payload, response: makes.response_bytes(payload), makes, calls }
    }
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
    /// How often the CPU was told to try again in those calls.
    pub try_agains: u64,
}

impl CallsOutcome {
    /// The median of the latencies, in nanoseconds.
    pub fn median_nanoseconds(&self) -> f64 {
        super::percentile(&self.latencies, 0.5)
    }

    /// Bytes a second, where a request and its response have so many together.
    pub fn bytes_per_second(&self, both: usize) -> f64 {
        both as f64 * self.latencies.len() as f64 / self.elapsed.seconds()
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
    observed_calls(question, &mut ())
}

/// The same, with somebody who looks at the machine before the first event and after the last.
///
/// # Errors
///
/// As [`calls`].
///
/// # Panics
///
/// As [`calls`].
pub fn observed_calls(question: &Calls, observer: &mut dyn Observer<Machine>) -> Result<CallsOutcome, Failure> {
    let calling = question.calling();
    let shape = shape(&question.machine, calling.request.max(calling.response), question.alignment);
    let mut layout = Layout::new();
    let lines = shape.place(&mut layout, Home::Nic).expect("a shape of whole lines");
    let mut simulation = EciSimulation::new(&question.machine, &layout, question.disturbances);
    if let Some(timer) = question.timer.clone() {
        simulation.set_timer(timer);
    }
    let outcome = Rc::new(RefCell::new(None));
    let (prefetch, into) = (question.prefetch, Rc::clone(&outcome));
    simulation.core("host", Role::Main, move |core| {
        let host = RefCell::new(Host::new(*core, lines, Features { prefetch, ..Features::HOMED }));
        let counters = || core.machine().borrow().counters.clone();
        // The counters and the answers of "try again", when the first call begins that counts.
        let mut before = (Counters::default(), 0);
        let begins = || {
            core.machine().borrow_mut().restart_queues();
            before = (counters(), host.borrow().try_agains());
        };
        let timed = calling.time(
            || core.now(),
            begins,
            |request, into| {
                let since = core.now();
                call(&mut host.borrow_mut(), request, calling.response, into);
                core.note_span(CALL, since, core.now());
            },
        );
        let Timed { latencies, elapsed } = timed;
        let (counters, try_agains) = (counters().since(&before.0), host.borrow().try_agains() - before.1);
        *into.borrow_mut() = Some(CallsOutcome { latencies, elapsed, counters, try_agains });
    });
    let asked = question.clone();
    simulation.device("device", Role::Service, move |device| {
        let homed = Homed::<_, WORDS>::new(*device, lines, asked.behaviour).expect("so many lines fit");
        serve(homed, |request, response| {
            asked.makes.answer(request, calling.response, response);
            asked.service
        });
    });
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run()?;
    observer.ends(&mut simulation.machine().borrow_mut());
    drop(simulation);
    let outcome = outcome.borrow_mut().take();
    Ok(outcome.expect("the host's program ended"))
}

/// Makes one call; the response, of `most` bytes at most, replaces what is in `response`.
pub(super) fn call<C: Core>(host: &mut Host<C>, request: &[u8], most: usize, response: &mut Vec<u8>) {
    host.begin(request, most).expect("the request fits, and the last was answered");
    let length = loop {
        match host.poll() {
            Poll::Response(length) => break length,
            Poll::NotYet => host.core().spin(),
            Poll::Refused => panic!("the device refused the lines of a request"),
        }
    };
    response.resize(length, 0);
    host.read(response);
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
