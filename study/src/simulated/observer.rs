//! Whoever looks at a machine that a question is run on.

use conic_sim::machine::Machine;

/// Looks at the machine of a run: to time it from outside, or to take its recording.
pub trait Observer {
    /// All programs are there, and nothing has happened yet.
    fn begins(&mut self, _machine: &mut Machine) {}
    /// The main programs have ended.
    fn ends(&mut self, _machine: &mut Machine) {}
}

/// Nobody looks.
impl Observer for () {}
