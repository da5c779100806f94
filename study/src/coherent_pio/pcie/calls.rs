//! Calls of a function on the device: how long one takes, and whether every byte is right.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device as _, Layout, MemoryType, Time};
use conic_interface::pcie_pio::{Call, CallShape, CallWindow, Callee};
use conic_interface::xdma::{Channel, Completion, Direction, Driver, Engine, Fetched, Shape};
use conic_sim::{Failure, Options, Parameters, Role, SimCore, SimDevice, Simulation};

use super::super::calling::{Calling, Makes, Timed};
use super::{PATIENCE, Transport, fpga, overhead, wait_until};

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
    /// What the device makes of a request: a response of so many bytes.
    pub makes: Makes,
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
    let into = Rc::clone(&outcome);
    let Calls { request, response, makes, service, calls, .. } = *question;
    let way = Way {
        machine: question.machine.clone(),
        longest: [request, response],
        calls: calls.0 + calls.1,
        function: Rc::new(move |request: &[u8]| {
            let mut bytes = Vec::new();
            makes.answer(request, response, &mut bytes);
            (bytes, service)
        }),
    };
    let program = move |core: &SimCore<'_>, call: &mut dyn FnMut(&[u8], &mut Vec<u8>)| {
        let Timed { latencies, elapsed } =
            Calling { request, response, makes, calls }.time(|| core.now(), || (), |request, into| call(request, into));
        *into.borrow_mut() = Some(CallsOutcome { latencies, elapsed });
    };
    way.run(question.transport, program)?;
    let outcome = outcome.borrow_mut().take();
    Ok(outcome.expect("the host's program ended"))
}

/// One call of any function, on a machine that nothing has used before: the function gets the request and gives the response and
/// how long it takes. Gives the response, and the time from before the request was written until the response was read.
///
/// # Errors
///
/// The simulator's, where the call never ends.
///
/// # Panics
///
/// If the machine has no programmable device behind PCIe, or request or response is empty or longer than `most`.
pub fn exchange(
    machine: &Parameters,
    transport: Transport,
    request: &[u8],
    most: usize,
    function: Function,
) -> Result<(Vec<u8>, Time), Failure> {
    let way = Way { machine: machine.clone(), longest: [request.len(), most], calls: 1, function };
    let (asked, outcome) = (request.to_vec(), Rc::new(RefCell::new(None)));
    let into = Rc::clone(&outcome);
    way.run(transport, move |core, call| {
        let (start, mut response) = (core.now(), Vec::new());
        call(&asked, &mut response);
        *into.borrow_mut() = Some((response, core.now().since(start)));
    })?;
    let outcome = outcome.borrow_mut().take();
    Ok(outcome.expect("the host's program ended"))
}

/// What a device computes: the response to a request, and how long that takes.
pub type Function = Rc<dyn Fn(&[u8]) -> (Vec<u8>, Time)>;

/// A machine with a function on its device.
struct Way {
    machine: Parameters,
    /// Bytes of the longest request and of the longest response.
    longest: [usize; 2],
    /// How many calls there will be.
    calls: u64,
    function: Function,
}

impl Way {
    /// Runs a host's program, which is given a way to call.
    fn run(
        self,
        transport: Transport,
        program: impl FnOnce(&SimCore<'_>, &mut dyn FnMut(&[u8], &mut Vec<u8>)) + 'static,
    ) -> Result<(), Failure> {
        match transport {
            Transport::Pio => self.by_pio(program),
            Transport::Dma(completion) => self.by_dma(completion, program),
        }
    }

    fn by_pio(
        self,
        program: impl FnOnce(&SimCore<'_>, &mut dyn FnMut(&[u8], &mut Vec<u8>)) + 'static,
    ) -> Result<(), Failure> {
        let mut layout = Layout::new();
        let payload = self.longest.into_iter().max().unwrap_or_default() as u64;
        let shape = CallShape { payload, memory: MemoryType::WriteCombining };
        let window = shape.place(&mut layout).expect("a payload that fits");
        let mut simulation = Simulation::new(&self.machine, &layout, Options::default());
        simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
            let mut host = Call::new(core, window);
            program(core, &mut |request, response| {
                host.begin(request).expect("the request fits, and the last was answered");
                let length = loop {
                    match host.poll() {
                        Some(length) => break length,
                        None => core.spin(),
                    }
                };
                response.resize(length, 0);
                host.read(response);
                assert_eq!(host.refused(), 0, "the device broke the protocol");
            });
        });
        simulation.device("device", Role::Service, Time::ZERO, move |device| self.answer_pio(device, window));
        simulation.run()
    }

    /// Answers calls for ever.
    fn answer_pio(&self, device: &SimDevice<'_>, window: CallWindow) {
        let cycle = Time::from_picoseconds(fpga(&self.machine).cycle);
        let mut callee = Callee::new(device, window, PATIENCE);
        let mut due: Option<(Time, Vec<u8>)> = None;
        loop {
            if let Some((_, response)) = due.take_if(|(at, _)| *at <= device.now()) {
                assert!(callee.respond(&response), "the response fits");
            } else if let Some(length) = callee.poll().filter(|_| due.is_none()) {
                let mut request = vec![0; length];
                callee.read(&mut request);
                let (response, service) = (self.function)(&request);
                due = Some((device.now() + service + cycle, response));
            } else {
                callee.answer_in_time();
                let patience = callee.withheld_since().map_or(Time::NEVER, |since| since + PATIENCE);
                device.spin_until(due.as_ref().map_or(Time::NEVER, |(at, _)| *at).min(patience));
            }
            assert_eq!(callee.refused(), 0, "the host broke the protocol");
        }
    }

    fn by_dma(
        self,
        completion: Completion,
        program: impl FnOnce(&SimCore<'_>, &mut dyn FnMut(&[u8], &mut Vec<u8>)) + 'static,
    ) -> Result<(), Failure> {
        let mut layout = Layout::new();
        let overhead = overhead(&self.machine);
        let mut place = |direction, bytes: usize| {
            // Structures that no call has touched before: the kernel's lines were last used long ago.
            let structure_lines = overhead.lines(self.calls, bytes as u64);
            let shape = Shape { bytes: bytes as u64, structure_lines, registers: MemoryType::Uncached };
            shape.place(direction, &mut layout).expect("a transfer that can be")
        };
        let [request, response] = self.longest;
        let channels = [place(Direction::ToDevice, request), place(Direction::ToHost, response)];
        let mut simulation = Simulation::new(&self.machine, &layout, Options::default());
        simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
            let [mut out, mut back] = channels.map(|channel| channel.driver(core, completion, overhead));
            program(core, &mut |request, into| {
                out.begin_write(request).expect("it fits, and the last call has returned");
                assert_eq!(returned(core, &mut out), request.len() as u64, "all of it was sent");
                back.begin_read(response as u64).expect("it fits, and the last call has returned");
                into.resize(returned(core, &mut back) as usize, 0);
                back.read(into);
            });
        });
        simulation.device("device", Role::Service, Time::ZERO, move |device| {
            self.answer_dma(device, channels, completion);
        });
        simulation.run()
    }

    /// Moves requests and responses for ever.
    fn answer_dma(&self, device: &SimDevice<'_>, channels: [Channel; 2], completion: Completion) {
        let engine_time = Time::from_picoseconds(fpga(&self.machine).engine_time);
        let [mut out, mut back] = channels.map(|channel| channel.engine(device, completion));
        let mut response: Option<(Time, Vec<u8>)> = None;
        let mut room: Option<Fetched> = None;
        loop {
            if let Some(list) = fetched(device, &mut out, engine_time) {
                let request = out.read(&list);
                let (bytes, service) = (self.function)(&request);
                response = Some((device.now() + service, bytes));
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
