//! A run: cores and a device with their programs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Layout, Time};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::core::EciCore;
use super::core_state::CoreState;
use super::device::EciDevice;
use super::fiber::Fiber;
use super::machine::{Agent, Disturbances, Machine, Wait};
use super::parameters::EciParameters;
use crate::simulation::{Failure, Role};

/// Bytes of a program's stack: a payload may lie on it.
const STACK_BYTES: usize = 512 << 10;

struct Program {
    name: String,
    role: Role,
    fiber: Coroutine<(), (), (), DefaultStack>,
}

/// A machine and the programs of its agents.
pub struct EciSimulation {
    machine: Rc<RefCell<Machine>>,
    next: Rc<Cell<Option<usize>>>,
    programs: Vec<Program>,
}

impl EciSimulation {
    /// A machine with a region of zeroes, of which no cache has anything.
    ///
    /// # Panics
    ///
    /// If the region has lines whose home is not the device, or registers: those are not modelled.
    pub fn new(parameters: &EciParameters, layout: &Layout, disturbances: Disturbances) -> EciSimulation {
        let machine = Rc::new(RefCell::new(Machine::new(parameters, layout, disturbances)));
        EciSimulation { machine, next: Rc::new(Cell::new(None)), programs: Vec::new() }
    }

    /// Stops a run that is not over at this time.
    pub fn set_limit(&mut self, limit: Time) {
        self.machine.borrow_mut().limit = limit.picoseconds();
    }

    /// The machine, between runs.
    pub fn machine(&self) -> &Rc<RefCell<Machine>> {
        &self.machine
    }

    /// Adds a core that runs `program`.
    ///
    /// # Panics
    ///
    /// If the machine has no further core, or the operating system gives no memory for a stack.
    pub fn core(&mut self, name: &str, role: Role, program: impl FnOnce(&EciCore<'_>) + 'static) {
        let (agent, core) = {
            let mut machine = self.machine.borrow_mut();
            let (agent, core) = (machine.agents.len(), machine.cores.len());
            let most = machine.parameters.core.cores as usize;
            assert!(core < most, "the machine has {most} cores");
            let state = CoreState::new(agent, &machine.parameters.cache);
            machine.cores.push(state);
            (agent, core as u16)
        };
        let (machine, next) = (Rc::clone(&self.machine), Rc::clone(&self.next));
        let program: Box<dyn FnOnce(&EciCore<'_>)> = Box::new(program);
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            program(&EciCore::new(Fiber { machine: &machine, next: &next, yielder, agent }, core));
        });
        self.add(name, role, fiber);
    }

    /// Adds the device, which runs `program`.
    ///
    /// # Panics
    ///
    /// If there is one, or the operating system gives no memory for a stack.
    pub fn device(&mut self, name: &str, role: Role, program: impl FnOnce(&EciDevice<'_>) + 'static) {
        let agent = {
            let mut machine = self.machine.borrow_mut();
            let agent = machine.agents.len();
            assert!(machine.device.is_none(), "the machine has one device");
            machine.device = Some(agent);
            agent
        };
        let (machine, next) = (Rc::clone(&self.machine), Rc::clone(&self.next));
        let program: Box<dyn FnOnce(&EciDevice<'_>)> = Box::new(program);
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            program(&EciDevice::new(Fiber { machine: &machine, next: &next, yielder, agent }));
        });
        self.add(name, role, fiber);
    }

    fn add(&mut self, name: &str, role: Role, fiber: Coroutine<(), (), (), DefaultStack>) {
        self.programs.push(Program { name: name.to_owned(), role, fiber });
        let mut machine = self.machine.borrow_mut();
        let (agent, now) = (machine.agents.len(), machine.now);
        machine.agents.push(Agent { wait: Wait::Time, epoch: 0 });
        machine.resume_at(agent, now);
    }

    /// Runs until every main program has ended.
    ///
    /// # Errors
    ///
    /// If that will never be, not before the limit, or a request waits longer than the CPU's cache does.
    pub fn run(&mut self) -> Result<(), Failure> {
        let mut left = self.programs.iter().filter(|program| program.role == Role::Main).count();
        while left > 0 {
            let agent = match self.next.take() {
                Some(agent) => agent,
                None => {
                    let ready = self.machine.borrow_mut().next_ready();
                    ready.ok_or_else(|| self.stopped())?
                }
            };
            let (now, limit) = (self.machine.borrow().now, self.machine.borrow().limit);
            if now > limit {
                return Err(Failure::TimeLimit(Time::from_picoseconds(limit)));
            }
            if let CoroutineResult::Return(()) = self.programs[agent].fiber.resume(()) {
                self.machine.borrow_mut().wait_for(agent, Wait::Ended);
                left -= usize::from(self.programs[agent].role == Role::Main);
            }
        }
        Ok(())
    }

    /// Why nothing happens any more.
    fn stopped(&self) -> Failure {
        let machine = self.machine.borrow();
        if let Some(fault) = &machine.fault {
            return fault.clone();
        }
        let waits = |(agent, program): (usize, &Program)| {
            let wait = machine.agents[agent].wait;
            (wait != Wait::Ended).then(|| format!("{} for {wait:?}", program.name))
        };
        let programs = self.programs.iter().enumerate().filter_map(waits);
        Failure::Deadlock(programs.chain(machine.stuck()).collect())
    }
}
