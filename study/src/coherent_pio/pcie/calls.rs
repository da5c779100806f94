//! Calls of a function on the device: how long one takes, and whether every byte is right.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device as _, Layout, MemoryType, Time};
use conic_interface::pcie_pio::{Call, CallShape, CallWindow, Callee};
use conic_interface::xdma::{Channel, Completion, Direction, Driver, Engine, Fetched, Shape};
use conic_sim::{Failure, Options, Parameters, Role, SimCore, SimDevice, Simulation};

use super::super::exchange::{fill, function};
use super::{PATIENCE, Transport, fpga, overhead, wait_for_news, wait_until};

/// Calls of a function on the device, one after the other.
#[derive(Clone, Debug)]
pub struct Calls {
    /// The machine.
    pub machine: Parameters,
    /// How bytes cross.
    pub transport: Transport,
    /// Payload of each request, at least a byte.
    pub request: usize,
    /// Payload of each response, at least a byte.
    pub response: usize,
    /// How long the function takes.
    pub service: Time,
    /// Calls before the first that counts, and those that count.
    pub calls: (u64, u64),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallsOutcome {
    /// Each call that counts, from before its request is written until its response was read, in picoseconds.
    pub latencies: Vec<u64>,
    /// From the beginning of the first to the end of the last.
    pub elapsed: Time,
}

impl CallsOutcome {
    /// The median of the latencies, in nanoseconds.
    pub fn median_nanoseconds(&self) -> f64 {
        super::super::percentile(&self.latencies, 0.5)
    }
}

/// The response to a request: the request's bytes inverted, over and over, as many as asked for.
fn response_to(request: &[u8], bytes: usize) -> Vec<u8> {
    let mut response: Vec<u8> = request.iter().copied().cycle().take(bytes).collect();
    function(&mut response);
    response
}

/// Makes the calls, and checks each response by content and sequence.
///
/// # Errors
///
/// The simulator's, where the calls never end.
///
/// # Panics
///
/// If the machine has no programmable device behind PCIe, a payload is empty or too long, or a response is wrong.
pub fn calls(question: &Calls) -> Result<CallsOutcome, Failure> {
    let outcome = Rc::new(RefCell::new(None));
    match question.transport {
        Transport::Pio => by_pio(question, &outcome)?,
        Transport::Dma(completion) => by_dma(question, completion, &outcome)?,
    }
    let outcome = outcome.borrow_mut().take();
    Ok(outcome.expect("the host's program ended"))
}

type Slot = Rc<RefCell<Option<CallsOutcome>>>;

/// Times calls of `call`, which is given the request and where the response goes.
fn measure(asked: &Calls, core: &SimCore<'_>, mut call: impl FnMut(&[u8], &mut [u8])) -> CallsOutcome {
    let (mut request, mut response) = (vec![0; asked.request], vec![0; asked.response]);
    let (mut latencies, mut began) = (Vec::new(), Time::ZERO);
    for number in 0..asked.calls.0 + asked.calls.1 {
        fill(&mut request, number);
        if number == asked.calls.0 {
            began = core.now();
        }
        let start = core.now();
        call(&request, &mut response);
        if number >= asked.calls.0 {
            latencies.push(core.now().since(start).picoseconds());
        }
        assert!(response == response_to(&request, asked.response), "the response to call {number} is wrong");
    }
    CallsOutcome { latencies, elapsed: core.now().since(began) }
}

fn by_pio(question: &Calls, outcome: &Slot) -> Result<(), Failure> {
    let mut layout = Layout::new();
    let payload = question.request.max(question.response) as u64;
    let shape = CallShape { payload, memory: MemoryType::WriteCombining };
    let window = shape.place(&mut layout).expect("a payload that fits");
    let mut simulation = Simulation::new(&question.machine, &layout, Options::default());
    let (asked, into) = (question.clone(), Rc::clone(outcome));
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        let mut host = Call::new(core, window);
        *into.borrow_mut() = Some(measure(&asked, core, |request, response| {
            host.begin(request).expect("the request fits, and the last was answered");
            while host.poll().is_none() {
                core.spin();
            }
            assert_eq!(host.read(response), response.len(), "the response has the length that was asked for");
            assert_eq!(host.refused(), 0, "the device broke the protocol");
        }));
    });
    let asked = question.clone();
    simulation.device("device", Role::Service, Time::ZERO, move |device| answer_pio(device, window, &asked));
    simulation.run()
}

/// Answers calls for ever.
fn answer_pio(device: &SimDevice<'_>, window: CallWindow, asked: &Calls) {
    let cycle = Time::from_picoseconds(fpga(&asked.machine).cycle);
    let mut callee = Callee::new(device, window, PATIENCE);
    let mut request = vec![0; asked.request];
    loop {
        if callee.poll().is_some() {
            wait_until(device, device.now() + asked.service + cycle);
            callee.read(&mut request);
            assert!(callee.respond(&response_to(&request, asked.response)), "the response fits");
        } else {
            wait_for_news(device, callee.withheld_since());
        }
        assert_eq!(callee.refused(), 0, "the host broke the protocol");
    }
}

fn by_dma(question: &Calls, completion: Completion, outcome: &Slot) -> Result<(), Failure> {
    let mut layout = Layout::new();
    let calls = question.calls.0 + question.calls.1;
    let overhead = overhead(&question.machine);
    let mut place = |direction, bytes: usize| {
        // Structures that no call has touched before: the kernel's lines were last used long ago.
        let shape = Shape {
            bytes: bytes as u64,
            structure_lines: overhead.lines(calls, bytes as u64),
            registers: MemoryType::Uncached,
        };
        shape.place(direction, &mut layout).expect("a transfer that can be")
    };
    let channels = [place(Direction::ToDevice, question.request), place(Direction::ToHost, question.response)];
    let mut simulation = Simulation::new(&question.machine, &layout, Options::default());
    let (asked, into) = (question.clone(), Rc::clone(outcome));
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        let [mut out, mut back] = channels.map(|channel| channel.driver(core, completion, overhead));
        *into.borrow_mut() = Some(measure(&asked, core, |request, response| {
            out.begin_write(request).expect("it fits, and the last call has returned");
            assert_eq!(returned(core, &mut out), request.len() as u64, "all of it was sent");
            back.begin_read(response.len() as u64).expect("it fits, and the last call has returned");
            assert_eq!(returned(core, &mut back), response.len() as u64, "all of it came");
            back.read(response);
        }));
    });
    let asked = question.clone();
    simulation.device("device", Role::Service, Time::ZERO, move |device| {
        answer_dma(device, channels, completion, &asked);
    });
    simulation.run()
}

/// Waits until a call returns.
pub(super) fn returned<C: Core>(core: &SimCore<'_>, driver: &mut Driver<C>) -> u64 {
    loop {
        if let Some(bytes) = driver.poll() {
            return bytes;
        }
        core.spin();
    }
}

/// A start of an engine, if there is one: its list, fetched.
pub(super) fn fetched(
    device: &SimDevice<'_>,
    engine: &mut Engine<&SimDevice<'_>>,
    engine_time: Time,
) -> Option<Fetched> {
    let descriptors = engine.started()?;
    wait_until(device, device.now() + engine_time);
    Some(engine.fetch(descriptors).expect("the driver's list is whole"))
}

/// Moves requests and responses for ever.
fn answer_dma(device: &SimDevice<'_>, channels: [Channel; 2], completion: Completion, asked: &Calls) {
    let engine_time = Time::from_picoseconds(fpga(&asked.machine).engine_time);
    let [mut out, mut back] = channels.map(|channel| channel.engine(device, completion));
    let mut response: Option<(Time, Vec<u8>)> = None;
    let mut room: Option<Fetched> = None;
    loop {
        if let Some(list) = fetched(device, &mut out, engine_time) {
            let request = out.read(&list);
            response = Some((device.now() + asked.service, response_to(&request, asked.response)));
            wait_until(device, device.now() + engine_time);
            out.done(list.bytes());
        }
        room = room.or_else(|| fetched(device, &mut back, engine_time));
        match (&room, &response) {
            (Some(list), Some((ready, bytes))) => {
                wait_until(device, *ready);
                back.write(list, bytes);
                wait_until(device, device.now() + engine_time);
                back.done(bytes.len() as u64);
                (room, response) = (None, None);
            }
            _ => device.spin(),
        }
    }
}
