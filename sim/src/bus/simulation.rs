//! A run: nodes with a processor and a network interface's engines, and their programs.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use conic_fabric::{Address, Layout, Time};

use super::core::BusCore;
use super::machine::{Attachment, Machine, Wait};
use super::parameters::BusParameters;
use crate::fiber::Programs;
use crate::simulation::{Failure, Role};

/// What an engine of a network interface has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineShape {
    /// Blocks of its direct-mapped cache.
    pub blocks: usize,
    /// The lines that share them; others that it touches, pointers, have a block each.
    pub lines: Range<Address>,
    /// Segments of registers whose accesses it is told of, by where they begin.
    pub registers: Vec<Address>,
}

/// Nodes and the programs of their agents.
pub struct BusSimulation {
    programs: Programs<Machine>,
}

impl BusSimulation {
    /// So many nodes, each with a region of zeroes laid out alike, and with its network interface in the same place.
    ///
    /// # Panics
    ///
    /// If the machine has not so many nodes.
    pub fn new(parameters: &BusParameters, layout: &Layout, nodes: usize, attachment: Attachment) -> BusSimulation {
        BusSimulation { programs: Programs::new(Machine::new(parameters, layout, nodes, attachment)) }
    }

    /// Stops a run that is not over at this time.
    pub fn set_limit(&mut self, limit: Time) {
        self.machine().borrow_mut().agenda.limit = limit.picoseconds();
    }

    /// The machine, between runs.
    pub fn machine(&self) -> &Rc<RefCell<Machine>> {
        &self.programs.machine
    }

    /// Adds a processor to a node, which runs `program`, and gives its number among all agents.
    ///
    /// # Panics
    ///
    /// If the node has one already and there is a bridge, before which one snoops; or the operating system gives no memory for a stack.
    pub fn processor(
        &mut self,
        node: usize,
        name: &str,
        role: Role,
        program: impl FnOnce(&BusCore<'_>) + 'static,
    ) -> usize {
        {
            let machine = self.machine().borrow();
            let has_one = machine.nodes[node].agents.iter().any(|agent| !machine.agents[*agent].is_engine);
            assert!(!has_one || machine.attachment != Attachment::IoBus, "node {node} has a processor");
        }
        self.add(node, name, role, None, program)
    }

    /// Adds an engine of a node's network interface, which runs `program`, and gives its number among all agents.
    ///
    /// # Panics
    ///
    /// If the operating system gives no memory for a stack.
    pub fn engine(
        &mut self,
        node: usize,
        name: &str,
        shape: &EngineShape,
        program: impl FnOnce(&BusCore<'_>) + 'static,
    ) -> usize {
        self.add(node, name, Role::Service, Some(shape), program)
    }

    fn add(
        &mut self,
        node: usize,
        name: &str,
        role: Role,
        shape: Option<&EngineShape>,
        program: impl FnOnce(&BusCore<'_>) + 'static,
    ) -> usize {
        self.machine().borrow_mut().add(node, shape);
        let agent = self.programs.add(name, role, move |fiber| program(&BusCore::new(fiber, fiber.agent)));
        self.machine().borrow_mut().agenda.add(Wait::Time);
        agent
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
