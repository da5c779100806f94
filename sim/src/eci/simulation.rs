//! A run: cores and a device with their programs.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Layout, Time};

use super::core::EciCore;
use super::core_state::CoreState;
use super::device::EciDevice;
use super::machine::{Disturbances, Machine, Wait};
use super::parameters::EciParameters;
use crate::fiber::{Fiber, Programs};
use crate::parameters::TimerParameters;
use crate::simulation::{Failure, Role};

/// A machine and the programs of its agents.
pub struct EciSimulation {
    programs: Programs<Machine>,
}

impl EciSimulation {
    /// A machine with a region of zeroes, of which no cache has anything.
    ///
    /// # Panics
    ///
    /// If the region has lines whose home is not the device, or registers: those are not modelled.
    pub fn new(parameters: &EciParameters, layout: &Layout, disturbances: Disturbances) -> EciSimulation {
        EciSimulation { programs: Programs::new(Machine::new(parameters, layout, disturbances)) }
    }

    /// Stops a run that is not over at this time.
    pub fn set_limit(&mut self, limit: Time) {
        self.machine().borrow_mut().agenda.limit = limit.picoseconds();
    }

    /// Lets a timer interrupt take each core that is added from now on: before its next step, whatever was under way.
    pub fn set_timer(&mut self, timer: TimerParameters) {
        self.machine().borrow_mut().timer = Some(timer);
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
    pub fn core(&mut self, name: &str, role: Role, program: impl FnOnce(&EciCore<'_>) + 'static) {
        let core = {
            let mut machine = self.machine().borrow_mut();
            let (agent, core) = (machine.agenda.agents(), machine.cores.len());
            let most = machine.parameters.core.cores as usize;
            assert!(core < most, "the machine has {most} cores");
            let state = CoreState::new(agent, &machine.parameters.cache, machine.timer.as_ref());
            machine.cores.push(state);
            core as u16
        };
        self.add(name, role, move |fiber| program(&EciCore::new(fiber, core)));
    }

    /// Adds the device, which runs `program`.
    ///
    /// # Panics
    ///
    /// If there is one, or the operating system gives no memory for a stack.
    pub fn device(&mut self, name: &str, role: Role, program: impl FnOnce(&EciDevice<'_>) + 'static) {
        {
            let mut machine = self.machine().borrow_mut();
            assert!(machine.device.is_none(), "the machine has one device");
            machine.device = Some(machine.agenda.agents());
        }
        self.add(name, role, move |fiber| program(&EciDevice::new(fiber)));
    }

    fn add(&mut self, name: &str, role: Role, program: impl FnOnce(Fiber<'_, Machine>) + 'static) {
        self.programs.add(name, role, program);
        self.machine().borrow_mut().agenda.add(Wait::Time);
    }

    /// Runs until every main program has ended, or one asks for a pause ([`EciCore::pause`]); a program that did goes on when this
    /// is called again.
    ///
    /// # Errors
    ///
    /// If that will never be, not before the limit, or a request waits longer than the CPU's cache does.
    pub fn run(&mut self) -> Result<(), Failure> {
        {
            let mut machine = self.machine().borrow_mut();
            let now = machine.agenda.now;
            for agent in 0..machine.agenda.agents() {
                machine.agenda.wake(agent, Wait::Outside, now);
            }
        }
        self.programs.run()
    }
}
