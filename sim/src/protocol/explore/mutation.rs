//! Mistakes to plant.

use crate::protocol::home::{Action, Active, Stable};
use crate::protocol::{Found, Snoop, ToHome};

/// A mistake, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The protocol as it is.
    None,
}

impl Mutation {
    /// What a core says when it gives up its copy.
    pub fn evicted(self, message: ToHome) -> ToHome {
        message
    }

    /// The snoop that a core acts on.
    pub fn core_snoop(self, snoop: Snoop) -> Snoop {
        snoop
    }

    /// What a core answers.
    pub fn found(self, found: Found) -> Found {
        found
    }

    /// Before a message is handled.
    pub fn before(self, _at: usize, _message: &ToHome, _active: &mut Active) {}

    /// After it was.
    pub fn after(self, _at: usize, _before: &Stable, _stable: &mut Stable, _actions: &mut [Action]) {}
}
