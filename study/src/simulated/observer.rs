//! Whoever looks at a machine that a question is run on.

use conic_sim::machine::Machine;

/// Looks at the machine of a run: to time it from outside, or to take its recording. `M` is which kind of machine it is.
pub trait Observer<M = Machine> {
    /// All programs are there, and nothing has happened yet.
    fn begins(&mut self, _machine: &mut M) {}
    /// The main programs have ended.
    fn ends(&mut self, _machine: &mut M) {}
}

/// Nobody looks.
impl<M> Observer<M> for () {}
