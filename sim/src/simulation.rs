//! A run: agents with their programs on a modelled machine.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use conic_fabric::{Layout, Time};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::core::SimCore;
use crate::device::SimDevice;
use crate::fiber::Fiber;
use crate::machine::{Machine, Options, Wait};
use crate::parameters::Parameters;
use crate::setup::SetupCore;

/// Bytes of a program's stack: the interfaces keep bursts on it.
const STACK_BYTES: usize = 256 << 10;

/// Whether a run goes on until a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The run ends when every program of this kind has ended.
    Main,
    /// It serves the others and is stopped when they have ended.
    Service,
}

/// Why a run stopped before its programs ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing can happen any more, and programs wait: who for what.
    Deadlock(Vec<String>),
    /// The run went on past the limit that was set.
    TimeLimit(Time),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Deadlock(who) => write!(f, "nothing can happen any more, and programs wait: {}", who.join("; ")),
            Failure::TimeLimit(limit) => write!(f, "the programs have not ended after {limit} of simulated time"),
        }
    }
}

impl std::error::Error for Failure {}

type Stacked = Coroutine<(), (), (), DefaultStack>;

struct Program {
    name: String,
    role: Role,
    fiber: Stacked,
}

/// A machine and the programs of its agents.
///
/// Programs share nothing but the machine's memory, and what the caller lets them capture; they run one at a time.
pub struct Simulation {
    machine: Rc<RefCell<Machine>>,
    /// Whose turn it is, when a program hands over.
    next: Rc<Cell<Option<usize>>>,
    programs: Vec<Program>,
}

impl Simulation {
    /// A machine with a region of zeroes.
    pub fn new(parameters: &Parameters, layout: &Layout, options: Options) -> Simulation {
        let machine = Rc::new(RefCell::new(Machine::new(parameters, layout, options)));
        let mut simulation = Simulation { machine, next: Rc::new(Cell::new(None)), programs: Vec::new() };
        simulation.set_limit(Time::from_nanoseconds(10_000_000_000));
        simulation
    }

    /// Stops a run that is not over at this time.
    pub fn set_limit(&mut self, limit: Time) {
        self.machine.borrow_mut().limit = limit.picoseconds();
    }

    /// The machine, between runs.
    pub fn machine(&self) -> &Rc<RefCell<Machine>> {
        &self.machine
    }

    /// Memory before the programs start.
    pub fn setup(&self) -> SetupCore<'_> {
        SetupCore { machine: &self.machine }
    }

    /// Adds a core of `node` that runs `program`, from `start` on.
    ///
    /// # Panics
    ///
    /// If the operating system gives no memory for a stack.
    pub fn core(
        &mut self,
        name: &str,
        node: usize,
        role: Role,
        start: Time,
        program: impl FnOnce(&SimCore<'_>) + 'static,
    ) -> usize {
        let agent = self.machine.borrow_mut().add_core(node);
        let (machine, next) = (Rc::clone(&self.machine), Rc::clone(&self.next));
        let program: Box<dyn FnOnce(&SimCore<'_>)> = Box::new(program);
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            program(&SimCore::new(Fiber { machine: &machine, next: &next, yielder, agent }));
        });
        self.add(name, role, start, fiber, agent)
    }

    /// Adds a copy engine to `node`, for the cores that [`Machine::set_engine`] gives it.
    ///
    /// # Panics
    ///
    /// If the machine has no copy engines, or the operating system gives no memory for a stack.
    pub fn engine(&mut self, name: &str, node: usize) -> usize {
        let agent = self.machine.borrow_mut().add_engine(node);
        let engine = self.machine.borrow().engine_parameters();
        let (machine, next) = (Rc::clone(&self.machine), Rc::clone(&self.next));
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            let core = SimCore::new(Fiber { machine: &machine, next: &next, yielder, agent });
            core.copy_for_others(&engine)
        });
        self.add(name, Role::Service, Time::ZERO, fiber, agent)
    }

    /// Adds a device behind the PCIe link of node 0 that runs `program`, from `start` on.
    ///
    /// # Panics
    ///
    /// If the machine has no PCIe link, or the operating system gives no memory for a stack.
    pub fn device(
        &mut self,
        name: &str,
        role: Role,
        start: Time,
        program: impl FnOnce(&SimDevice<'_>) + 'static,
    ) -> usize {
        let agent = self.machine.borrow_mut().add_device();
        let (machine, next) = (Rc::clone(&self.machine), Rc::clone(&self.next));
        let program: Box<dyn FnOnce(&SimDevice<'_>)> = Box::new(program);
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            program(&SimDevice::new(Fiber { machine: &machine, next: &next, yielder, agent }));
        });
        self.add(name, role, start, fiber, agent)
    }

    fn add(&mut self, name: &str, role: Role, start: Time, fiber: Stacked, agent: usize) -> usize {
        self.programs.push(Program { name: name.to_owned(), role, fiber });
        let mut machine = self.machine.borrow_mut();
        machine.agents[agent].time = start.picoseconds();
        machine.agents[agent].spinning.begins = start.picoseconds();
        machine.agents[agent].wait_for(Wait::Time);
        machine.resume_at(agent, start.picoseconds());
        agent
    }

    /// Runs until every main program has ended.
    ///
    /// # Errors
    ///
    /// If that will never be, or not before the limit.
    ///
    /// # Panics
    ///
    /// In a checked run, at the first fault of the machine: see [`Options::checked`].
    pub fn run(&mut self) -> Result<(), Failure> {
        let mut left = self.programs.iter().filter(|program| program.role == Role::Main).count();
        while left > 0 {
            let agent = match self.next.take() {
                Some(agent) => agent,
                None => {
                    let ready = self.machine.borrow_mut().next_ready();
                    ready.ok_or_else(|| self.deadlock())?
                }
            };
            let (now, limit) = (self.machine.borrow().now(), self.machine.borrow().limit);
            if now > limit {
                return Err(Failure::TimeLimit(Time::from_picoseconds(limit)));
            }
            if let CoroutineResult::Return(()) = self.programs[agent].fiber.resume(()) {
                self.machine.borrow_mut().agents[agent].wait_for(Wait::Ended);
                left -= usize::from(self.programs[agent].role == Role::Main);
            }
        }
        self.check_queues();
        Ok(())
    }

    /// Stops a checked run whose queues were told what cannot be.
    fn check_queues(&self) {
        let machine = self.machine.borrow();
        let faults = if machine.options.checked { machine.queue_faults() } else { Vec::new() };
        assert!(faults.is_empty(), "queues do not hold what came and did not leave: {}", faults.join("; "));
    }

    fn deadlock(&self) -> Failure {
        let machine = self.machine.borrow();
        let waits = |(agent, program): (usize, &Program)| {
            let this = &machine.agents[agent];
            (this.wait != Wait::Ended).then(|| format!("{} for {:?}", program.name, this.wait))
        };
        Failure::Deadlock(self.programs.iter().enumerate().filter_map(waits).collect())
    }
}
