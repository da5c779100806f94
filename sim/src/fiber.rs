//! How a program waits: the others go on until what it waits for has come.

use std::cell::{Cell, RefCell, RefMut};

use corosensei::Yielder;

use crate::machine::{Machine, Wait};

/// An agent's program on its own stack.
#[derive(Clone, Copy)]
pub(crate) struct Fiber<'a> {
    pub(crate) machine: &'a RefCell<Machine>,
    /// Whose turn it is, when a program hands over.
    pub(crate) next: &'a Cell<Option<usize>>,
    pub(crate) yielder: &'a Yielder<(), ()>,
    pub(crate) agent: usize,
}

impl Fiber<'_> {
    /// Lets the others go on until what is waited for has come, or `until`. Events happen here, without a switch, until another
    /// agent can go on.
    #[inline(never)]
    pub(crate) fn wait(&self, mut machine: RefMut<'_, Machine>, wait: Wait, until: Option<u64>) {
        machine.agents[self.agent].wait_for(wait);
        let until = if wait == Wait::Time { Some(machine.agents[self.agent].time) } else { until };
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
}
