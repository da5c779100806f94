//! A run: cores and a device's engines with their programs.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Layout, Time};

use super::core::CxlCore;
use super::cores::CoreState;
use super::device::CxlDevice;
use super::machine::{Machine, Wait};
use super::parameters::CxlParameters;
use crate::fiber::{Fiber, Programs};
use crate::simulation::{Failure, Role};

/// A machine and the programs of its agents.
pub struct CxlSimulation {
    programs: Programs<Machine>,
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
        self.machine().borrow_mut().agenda.limit = limit.picoseconds();
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
            let (agent, core) = (machine.agenda.agents(), machine.cores.len());
            let most = machine.parameters.core.cores as usize;
            assert!(core < most, "the machine has {most} cores");
            let state = CoreState::new(agent, &machine.parameters);
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
            let agent = machine.agenda.agents();
            machine.engines.entry(agent).or_default();
        }
        self.add(name, role, move |fiber| program(&CxlDevice::new(fiber)));
    }

    fn add(&mut self, name: &str, role: Role, program: impl FnOnce(Fiber<'_, Machine>) + 'static) {
        self.programs.add(name, role, program);
        let mut machine = self.machine().borrow_mut();
        machine.names.push(name.to_owned());
        machine.agenda.add(Wait::Time);
    }

    /// Runs until every main program has ended.
    ///
    /// # Errors
    ///
    /// If that will never be, or not before the limit.
    ///
    /// # Panics
    ///
    /// In a checked run, at the first fault of the machine: see [`Machine::check`].
    pub fn run(&mut self) -> Result<(), Failure> {
        self.programs.run()?;
        self.machine().borrow().check_end();
        Ok(())
    }
}
