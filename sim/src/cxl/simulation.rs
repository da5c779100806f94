//! A run: cores and a device's engines with their programs.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Layout, Time};

use super::core::CxlCore;
use super::cores::CoreState;
use super::device::CxlDevice;
use super::machine::{Agent, Machine, Wait};
use super::parameters::CxlParameters;
use crate::fiber::{Fiber, Programs, Scheduled};
use crate::simulation::{Failure, Role};

/// A machine and the programs of its agents.
pub struct CxlSimulation {
    programs: Programs<Machine>,
}

impl Scheduled for Machine {
    type Wait = Wait;
    const TIME: Wait = Wait::Time;
    const ENDED: Wait = Wait::Ended;

    fn waits_for(&mut self, agent: usize, wait: Wait) -> Option<u64> {
        self.wait_for(agent, wait);
        None
    }
    fn wait_of(&self, agent: usize) -> Wait {
        self.agents[agent].wait
    }
    fn resume_at(&mut self, agent: usize, time: u64) {
        Machine::resume_at(self, agent, time);
    }
    fn next_ready(&mut self) -> Option<usize> {
        Machine::next_ready(self)
    }
    fn now(&self) -> u64 {
        self.now
    }
    fn limit(&self) -> u64 {
        self.limit
    }
    fn stuck(&self) -> Vec<String> {
        Machine::stuck(self)
    }
}

impl CxlSimulation {
    /// A machine with a region of zeroes, of which no cache has anything.
    pub fn new(parameters: &CxlParameters, layout: &Layout) -> CxlSimulation {
        let mut simulation = CxlSimulation { programs: Programs::new(Machine::new(parameters, layout)) };
        simulation.set_limit(Time::from_nanoseconds(10_000_000_000));
        simulation
    }

    /// Stops a run that is not over at this time.
    pub fn set_limit(&mut self, limit: Time) {
        self.machine().borrow_mut().limit = limit.picoseconds();
    }

    /// The machine, between runs.
    pub fn machine(&self) -> &Rc<RefCell<Machine>> {
        &self.programs.machine
    }

    /// Adds a core that runs `program`.
    ///
    /// # Panics
    ///
    /// If the machine has no further core, or the operating system gives no memory for a stack.
    pub fn core(&mut self, name: &str, role: Role, program: impl FnOnce(&CxlCore<'_>) + 'static) {
        let core = {
            let mut machine = self.machine().borrow_mut();
            let (agent, core) = (machine.agents.len(), machine.cores.len());
            let most = machine.parameters.core.cores as usize;
            assert!(core < most, "the machine has {most} cores");
            let state = CoreState::new(agent, &machine.parameters.cache);
            machine.cores.push(state);
            core as u16
        };
        self.add(name, role, move |fiber| program(&CxlCore::new(fiber, core)));
    }

    /// Adds an engine of the device, which runs `program`.
    ///
    /// # Panics
    ///
    /// If the operating system gives no memory for a stack.
    pub fn device(&mut self, name: &str, role: Role, program: impl FnOnce(&CxlDevice<'_>) + 'static) {
        {
            let mut machine = self.machine().borrow_mut();
            let agent = machine.agents.len();
            machine.engines.entry(agent).or_default();
        }
        self.add(name, role, move |fiber| program(&CxlDevice::new(fiber)));
    }

    fn add(&mut self, name: &str, role: Role, program: impl FnOnce(Fiber<'_, Machine>) + 'static) {
        self.programs.add(name, role, program);
        let mut machine = self.machine().borrow_mut();
        let (agent, now) = (machine.agents.len(), machine.now);
        machine.agents.push(Agent { wait: Wait::Time, epoch: 0 });
        machine.resume_at(agent, now);
    }

    /// Runs until every main program has ended.
    ///
    /// # Errors
    ///
    /// If that will never be, or not before the limit.
    pub fn run(&mut self) -> Result<(), Failure> {
        self.programs.run()
    }
}
