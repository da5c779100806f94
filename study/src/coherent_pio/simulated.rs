//! A device for Timely graphs that computes for real and whose time is the simulator's.
//!
//! What the graph sends crosses the modelled lines byte by byte, the device's half of the program computes on it, and its answer
//! crosses back. No time of the host's passes in the simulation; how long the exchanges took is on [`SimulatedClock`]. Where the
//! graph waits meanwhile ([`Simulated`], [`conic_dataflow::Calls::Blocking`]), that time and the graph's add up. Where it goes on
//! ([`Overlapped`], [`conic_dataflow::Calls::Deferred`]), the two overlap: there an exchange is over when so much time has passed
//! for the graph since it began as it took in the simulation.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use conic_dataflow::wire::Request;
use conic_dataflow::{Device, Fault, SyncActivator};
use conic_fabric::{Core, Home, Layout, Time};
use conic_interface::pio::{Behaviour, Features, Homed, Host, NotBegun};
use conic_sim::eci::{Disturbances, EciParameters, EciSimulation};
use conic_sim::{Failure, Parameters, Role};

use super::crossing::{Computing, Crossing, Part};
use super::exchange::{WORDS, call, shape};
use super::{flowing, pcie};

/// What the device's own logic takes for a batch, in cycles of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// From an element to what is made of it.
    pub latency: u32,
    /// From one element to the next.
    pub interval: u32,
}

impl Pipeline {
    /// How long it takes for the elements of a request.
    pub(super) fn time(self, cycle: u64, request: &[u8], element_bytes: usize) -> Time {
        let elements = Request::read(request, element_bytes).map_or(0, |request| request.elements) as u64;
        self.time_of(cycle, elements)
    }

    /// How long it takes for so many elements.
    pub(super) fn time_of(self, cycle: u64, elements: u64) -> Time {
        let cycles = u64::from(self.latency) + u64::from(self.interval) * elements.saturating_sub(1);
        Time::from_picoseconds(cycle * cycles)
    }
}

/// The simulated time that a device's exchanges have taken, and how often it was called. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct SimulatedClock(Rc<Cell<(u64, u64)>>);

impl SimulatedClock {
    /// All of it so far.
    pub fn elapsed(&self) -> Time {
        Time::from_picoseconds(self.0.get().0)
    }

    /// Calls so far: a batch takes one, or several where it is longer than an exchange. Each is as many exchanges as its
    /// [`Crossing`] says.
    pub fn calls(&self) -> u64 {
        self.0.get().1
    }

    fn add(&self, time: Time) {
        let (elapsed, calls) = self.0.get();
        self.0.set((elapsed + time.picoseconds(), calls + 1));
    }
}

/// A way to a device: what one exchange takes.
pub trait Transport: 'static {
    /// Bytes of the longest request and response.
    fn capacity(&self) -> usize;
    /// How the device expects batches to cross.
    fn crossing(&self) -> Crossing;
    /// Exchanges; the response has at most `most` bytes and replaces what is in `response`. Gives the time from before the request
    /// is written until the response was read.
    ///
    /// # Errors
    ///
    /// The simulator's.
    fn exchange(&mut self, request: &[u8], most: usize, response: &mut Vec<u8>) -> Result<Time, Failure>;
}

/// What stands between the graph and the program of the modelled core.
#[derive(Debug, Default)]
struct Call {
    request: Vec<u8>,
    most: usize,
    response: Vec<u8>,
    took: Time,
}

/// Coherent programmed I/O on a modelled machine.
pub struct CoherentLines {
    simulation: EciSimulation,
    call: Rc<RefCell<Call>>,
    capacity: usize,
    crossing: Crossing,
}

impl CoherentLines {
    /// A device that runs a part of a graph, behind groups of lines of so many bytes each way.
    ///
    /// # Errors
    ///
    /// The simulator's.
    ///
    /// # Panics
    ///
    /// If there are more lines than the protocol counts.
    pub fn new(machine: &EciParameters, part: &Part, bytes: usize) -> Result<Self, Failure> {
        let mut layout = Layout::new();
        let lines = shape(machine, bytes, 0).place(&mut layout, Home::Nic).expect("a shape of whole lines");
        let capacity = lines.capacity() as usize;
        let mut simulation = EciSimulation::new(machine, &layout, Disturbances::default());
        let left = Rc::new(RefCell::new(Call::default()));
        let outside = Rc::clone(&left);
        simulation.core("host", Role::Main, move |core| {
            let mut host = Host::new(*core, lines, Features::HOMED);
            loop {
                core.pause();
                let mut left = outside.borrow_mut();
                let Call { request, most, response, took } = &mut *left;
                let start = core.now();
                call(&mut host, request, *most, response);
                *took = core.now().since(start);
            }
        });
        let computing = Computing::new(part, machine.device.cycle, capacity);
        simulation.device("device", Role::Service, move |device| {
            let homed = Homed::<_, WORDS>::new(*device, lines, Behaviour::default()).expect("so many lines fit");
            flowing::serve(homed, computing);
        });
        // As far as the host's first pause.
        simulation.run()?;
        Ok(CoherentLines { simulation, call: left, capacity, crossing: part.crossing })
    }
}

impl Transport for CoherentLines {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn crossing(&self) -> Crossing {
        self.crossing
    }

    fn exchange(&mut self, request: &[u8], most: usize, response: &mut Vec<u8>) -> Result<Time, Failure> {
        {
            let mut call = self.call.borrow_mut();
            call.request.clear();
            call.request.extend_from_slice(request);
            call.most = most;
        }
        self.simulation.run()?;
        let mut call = self.call.borrow_mut();
        std::mem::swap(response, &mut call.response);
        Ok(call.took)
    }
}

/// A device behind PCIe: each exchange is a call of its own, on a machine that nothing has used before.
pub struct Pcie {
    machine: Parameters,
    transport: pcie::Transport,
    function: pcie::calls::Function,
    capacity: usize,
    crossing: Crossing,
}

impl Pcie {
    /// A device that runs a part of a graph, reached over PCIe by calls of so many bytes each way at most.
    ///
    /// # Panics
    ///
    /// When it is called, if the machine has no programmable device behind PCIe.
    pub fn new(machine: &Parameters, transport: pcie::Transport, part: &Part, bytes: usize) -> Pcie {
        let cycle = machine.fpga.as_ref().map_or(0, |fpga| fpga.cycle);
        let computing = RefCell::new(Computing::new(part, cycle, bytes));
        let function = move |request: &[u8]| {
            let mut response = Vec::new();
            let time = computing.borrow_mut().answer(request, &mut response);
            (response, time)
        };
        let (machine, crossing) = (machine.clone(), part.crossing);
        Pcie { machine, transport, function: Rc::new(function), capacity: bytes, crossing }
    }
}

impl Transport for Pcie {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn crossing(&self) -> Crossing {
        self.crossing
    }

    fn exchange(&mut self, request: &[u8], most: usize, response: &mut Vec<u8>) -> Result<Time, Failure> {
        let function = Rc::clone(&self.function);
        let (bytes, took) = pcie::calls::exchange(&self.machine, self.transport, request, most, function)?;
        *response = bytes;
        Ok(took)
    }
}

/// Why the modelled machine stopped, on its way out of a graph, whose operators have nobody to return an error to.
struct Stopped(Failure);

/// Runs a graph with a device that is [`Simulated`] or [`Overlapped`].
///
/// # Errors
///
/// The simulator's, which ends the graph where it is.
pub fn unless_stopped<T>(graph: impl FnOnce() -> T) -> Result<T, Failure> {
    // Nothing that the graph has touched is looked at again.
    catch_unwind(AssertUnwindSafe(graph)).map_err(|panic| match panic.downcast::<Stopped>() {
        Ok(stopped) => stopped.0,
        Err(panic) => resume_unwind(panic),
    })
}

/// A device behind a transport. Where its machine stops it unwinds, to [`unless_stopped`].
pub struct Simulated<T> {
    transport: T,
    response: Vec<u8>,
    clock: SimulatedClock,
}

impl<T: Transport> Simulated<T> {
    /// A device that keeps its time on a clock.
    pub fn new(transport: T, clock: SimulatedClock) -> Simulated<T> {
        Simulated { transport, response: Vec::new(), clock }
    }
}

impl<T: Transport> Device for Simulated<T> {
    fn capacity(&self) -> usize {
        self.transport.capacity()
    }

    fn begin(&mut self, request: &[u8], most: usize) -> Result<(), Fault> {
        let capacity = self.transport.capacity() as u64;
        let bytes = request.len().max(most) as u64;
        if bytes > capacity {
            return Err(Fault::NotBegun(NotBegun::TooLong { bytes, capacity }));
        }
        let (crossing, transport) = (self.transport.crossing(), &mut self.transport);
        let exchange = |request: &[u8], most, response: &mut Vec<u8>| transport.exchange(request, most, response);
        let took = crossing.batch(request, most, &mut self.response, exchange);
        // No panic hook is called: nothing is wrong with this program.
        self.clock.add(took.unwrap_or_else(|failure| resume_unwind(Box::new(Stopped(failure)))));
        Ok(())
    }

    fn poll(&mut self, response: &mut Vec<u8>) -> Result<bool, Fault> {
        std::mem::swap(response, &mut self.response);
        Ok(true)
    }

    fn spin(&self) {}

    fn wake_by(&mut self, _activator: SyncActivator) {}
}

/// A device behind a transport whose graph goes on meanwhile: the response is there when so much of the graph's time has passed as
/// the exchange took.
///
/// The transport's core is not the graph's, which goes on: one load that the device withholds would hold that up. Two such devices
/// are two machines, and take nothing from each other. Nothing but the passing of time ends an exchange, so that whoever looks too
/// early is woken to look again.
pub struct Overlapped<T> {
    device: Simulated<T>,
    now: Rc<dyn Fn() -> Time>,
    /// When the exchange is over that is under way.
    over: Option<Time>,
    wake: Option<SyncActivator>,
}

impl<T: Transport> Overlapped<T> {
    /// A device that keeps its exchanges' time on a clock; `now` says what time it is for the graph, in which the simulation itself
    /// takes none.
    pub fn new(transport: T, clock: SimulatedClock, now: Rc<dyn Fn() -> Time>) -> Overlapped<T> {
        Overlapped { device: Simulated::new(transport, clock), now, over: None, wake: None }
    }
}

impl<T: Transport> Device for Overlapped<T> {
    fn capacity(&self) -> usize {
        self.device.capacity()
    }

    fn begin(&mut self, request: &[u8], most: usize) -> Result<(), Fault> {
        let before = self.device.clock.elapsed();
        self.device.begin(request, most)?;
        self.over = Some((self.now)() + self.device.clock.elapsed().since(before));
        Ok(())
    }

    fn poll(&mut self, response: &mut Vec<u8>) -> Result<bool, Fault> {
        if self.over.is_some_and(|over| (self.now)() < over) {
            if let Some(wake) = &self.wake {
                // The worker is this thread's, and there.
                let _ = wake.activate();
            }
            return Ok(false);
        }
        self.over = None;
        self.device.poll(response)
    }

    fn spin(&self) {}

    fn wake_by(&mut self, activator: SyncActivator) {
        self.wake = Some(activator);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use conic_dataflow::{Bloom, Calls, Chain, Detail, Offload, Operator, Running, offload};
    use conic_sim::platform::Platform;

    use super::super::graphs::Graph;
    use super::*;

    /// A batch's elements.
    fn batch(time: u64, elements: usize) -> Vec<[u8; 128]> {
        (0..elements).map(|at| std::array::from_fn(|byte| (byte * 7 + at * 3) as u8 ^ time as u8)).collect()
    }

    /// Whoever is not woken to look again never comes there.
    fn step_until(graph: &mut Running<[u8; 128]>, is_there: impl Fn(&Running<[u8; 128]>) -> bool) {
        for _ in 0..1_000_000 {
            if is_there(graph) {
                return;
            }
            graph.step();
        }
        panic!("it does not come");
    }

    #[test]
    fn the_frontier_waits_for_what_a_device_holds_and_later_batches_come_meanwhile() {
        let machine = Platform::<EciParameters>::load_as("enzian").expect("it is shipped").parameters().clone();
        let part = Graph::Bloom.part(&machine.device, Crossing::Together);
        let bytes = Graph::Bloom.exchange_bytes(Detail::Collapsed);
        // The graph's time: a nanosecond each time that somebody looks, and what is added here.
        let time = Rc::new(Cell::new(Time::ZERO));
        let passes = Rc::clone(&time);
        let now: Rc<dyn Fn() -> Time> = Rc::new(move || {
            passes.set(passes.get() + Time::from_nanoseconds(1));
            passes.get()
        });
        let clock = SimulatedClock::default();
        let device = || {
            let lines = CoherentLines::new(&machine, &part, bytes).expect("it begins");
            Overlapped::new(lines, clock.clone(), Rc::clone(&now))
        };
        let (came, chain) = (Rc::new(RefCell::new(BTreeMap::new())), Chain::new(Bloom));
        let into = Rc::clone(&came);
        let how = Offload { calls: Calls::Deferred, detail: Detail::Collapsed };
        let mut graph: Running<[u8; 128]> = Running::new(
            |stream| offload(stream, &chain, vec![device(), device()], how),
            move |time, batch: &[[u64; 8]]| {
                into.borrow_mut().entry(time).or_insert_with(Vec::new).extend_from_slice(batch)
            },
        )
        .expect("the devices hold a batch");
        // The first takes many times as long as the others, which come and go beside it.
        let sizes = [(0, 200), (1, 1), (2, 3)];
        for (time, elements) in sizes {
            graph.send(time, &mut batch(time, elements));
            graph.advance_to(time + 1);
        }
        let start = time.get();
        step_until(&mut graph, |_| came.borrow().contains_key(&1));
        assert!(graph.may_come(0) && graph.may_come(1), "a device holds the first, and the second is there");
        assert!(!came.borrow().contains_key(&0));
        // A line there and back takes some 900 ns, and looking takes none of the simulation's.
        let took = time.get().since(start).nanoseconds();
        assert!((900..2_000).contains(&took), "{took} ns");
        step_until(&mut graph, |graph| !graph.may_come(2));
        let took = time.get().since(start);
        assert!(took < clock.elapsed(), "{took:?} of {:?}: exchanges overlap", clock.elapsed());
        for (time, elements) in sizes {
            let right: Vec<[u64; 8]> =
                batch(time, elements).iter().filter_map(|element| Bloom.apply(element)).collect();
            assert_eq!(came.borrow()[&time], right, "batch {time}");
        }
        graph.close();
        step_until(&mut graph, Running::has_ended);
    }
}
