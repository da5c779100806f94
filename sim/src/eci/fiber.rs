//! How a program of this machine waits.

use std::cell::{Cell, RefCell, RefMut};

use corosensei::Yielder;

use super::machine::{Machine, Wait};

/// An agent's program on its own stack.
#[derive(Clone, Copy)]
pub(super) struct Fiber<'a> {
    pub(super) machine: &'a RefCell<Machine>,
    /// Whose turn it is, when a program hands over.
    pub(super) next: &'a Cell<Option<usize>>,
    pub(super) yielder: &'a Yielder<(), ()>,
    pub(super) agent: usize,
}

impl Fiber<'_> {
    /// Waits for what is to come, or, where that is a time, until then. Events happen here, without a switch, until another
    /// agent can go on.
    pub(super) fn wait(&self, mut machine: RefMut<'_, Machine>, wait: Wait, until: Option<u64>) {
        machine.wait_for(self.agent, wait);
        if let Some(until) = until {
            machine.resume_at(self.agent, until);
        }
        match machine.next_ready() {
            Some(agent) if agent == self.agent && machine.now <= machine.limit => return,
            ready => self.next.set(ready),
        }
        drop(machine);
        self.yielder.suspend(());
    }

    /// Lets time pass.
    pub(super) fn pass(&self, picoseconds: u64) {
        if picoseconds > 0 {
            let machine = self.machine.borrow_mut();
            let until = machine.now + picoseconds;
            self.wait(machine, Wait::Time, Some(until));
        }
    }
}
