//! A run: agents with their programs on a modelled machine.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use conic_fabric::{Address, Layout, Time};

use crate::core::SimCore;
use crate::device::SimDevice;
use crate::fiber::{Programs, Scheduled};
use crate::machine::{MOST_TIME, Machine, Options, Wait};
use crate::parameters::Parameters;
use crate::setup::SetupCore;

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
    /// A device withheld the answer to a request for longer than the CPU's cache waits.
    NoAnswer {
        /// The line that was asked for.
        line: Address,
        /// For how long.
        waited: Time,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Deadlock(who) => write!(f, "nothing can happen any more, and programs wait: {}", who.join("; ")),
            Failure::TimeLimit(limit) => write!(f, "the programs have not ended after {limit} of simulated time"),
            Failure::NoAnswer { line, waited } => {
                write!(f, "the request for the line at {line} had no answer after {waited}: the CPU faults")
            }
        }
    }
}

impl std::error::Error for Failure {}

/// A machine and the programs of its agents.
///
/// Programs share nothing but the machine's memory, and what the caller lets them capture; they run one at a time.
pub struct Simulation {
    programs: Programs<Machine>,
}

impl Scheduled for Machine {
    type Wait = Wait;
    const TIME: Wait = Wait::Time;
    const ENDED: Wait = Wait::Ended;

    fn waits_for(&mut self, agent: usize, wait: Wait) -> Option<u64> {
        self.agents[agent].wait_for(wait);
        (wait == Wait::Time).then(|| self.agents[agent].time)
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
}

impl Simulation {
    /// A machine with a region of zeroes.
    pub fn new(parameters: &Parameters, layout: &Layout, options: Options) -> Simulation {
        let machine = Machine::new(parameters, layout, options);
        let mut simulation = Simulation { programs: Programs::new(machine) };
        simulation.set_limit(Time::from_nanoseconds(10_000_000_000));
        simulation
    }

    /// Stops a run that is not over at this time.
    ///
    /// # Panics
    ///
    /// If that is more than 30 seconds.
    pub fn set_limit(&mut self, limit: Time) {
        assert!(
            limit.picoseconds() <= MOST_TIME,
            "a run may last 30 seconds of simulated time, and the limit is {limit}"
        );
        self.machine().borrow_mut().limit = limit.picoseconds();
    }

    /// The machine, between runs.
    pub fn machine(&self) -> &Rc<RefCell<Machine>> {
        &self.programs.machine
    }

    /// Memory before the programs start.
    pub fn setup(&self) -> SetupCore<'_> {
        SetupCore { machine: self.machine() }
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
        let agent = self.machine().borrow_mut().add_core(node);
        self.programs.add(name, role, move |fiber| program(&SimCore::new(fiber)));
        self.begins(agent, start)
    }

    /// Adds a copy engine to `node`, for the cores that [`Machine::set_engine`] gives it.
    ///
    /// # Panics
    ///
    /// If the machine has no copy engines, or the operating system gives no memory for a stack.
    pub fn engine(&mut self, name: &str, node: usize) -> usize {
        let agent = self.machine().borrow_mut().add_engine(node);
        let engine = self.machine().borrow().engine_parameters();
        self.programs.add(name, Role::Service, move |fiber| SimCore::new(fiber).copy_for_others(&engine));
        self.begins(agent, Time::ZERO)
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
        let agent = self.machine().borrow_mut().add_device();
        self.programs.add(name, role, move |fiber| program(&SimDevice::new(fiber)));
        self.begins(agent, start)
    }

    fn begins(&mut self, agent: usize, start: Time) -> usize {
        let mut machine = self.machine().borrow_mut();
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
        self.programs.run()?;
        self.check_queues();
        Ok(())
    }

    /// Stops a checked run whose queues were told what cannot be, or whose snoop filters know other lines than they must.
    fn check_queues(&self) {
        let machine = self.machine().borrow();
        if !machine.options.checked {
            return;
        }
        let faults = machine.queue_faults();
        assert!(faults.is_empty(), "queues do not hold what came and did not leave: {}", faults.join("; "));
        let faults = machine.filter_faults();
        assert!(faults.is_empty(), "snoop filters know other lines than cores have: {}", faults.join("; "));
    }
}
