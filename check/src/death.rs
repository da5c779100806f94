//! Deaths: what one is, how a run ends in one, and a driver that tries them all.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use conic_fabric::Address;

use crate::explore::message_of;

/// A memory operation, as the seam names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `load`.
    Load,
    /// `load_acquire`.
    LoadAcquire,
    /// `store`.
    Store,
    /// `store_release`.
    StoreRelease,
    /// `fetch_and`, `fetch_or` or `compare_exchange`.
    Update,
    /// `read_line`.
    ReadLine,
    /// One word of `write_line`.
    WriteLine,
    /// One of the three stores of `publish_line`.
    PublishLine,
    /// `read_bytes`.
    ReadBytes,
    /// One word of `write_bytes`.
    WriteBytes,
}

/// Where an agent died: before this operation, and after all those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Who.
    pub agent: String,
    /// The number of the operation, from 1.
    pub operation: u64,
    /// Which operation.
    pub kind: Operation,
    /// On what.
    pub at: Address,
    /// The same with the segment's name.
    pub place: String,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` died before its operation {}: {:?}, {}", self.agent, self.operation, self.kind, self.place)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a run that nobody died in is the last of its kind"]
pub enum Outcome<T> {
    /// Nobody died.
    Finished(T),
    /// An agent did.
    Died(Death),
}

thread_local! {
    /// The death of the scenario that runs, for the message if it fails.
    static LAST: Cell<Option<Death>> = const { Cell::new(None) };
}

/// Ends the agent that calls it.
pub(crate) fn die(death: Death) -> ! {
    resume_unwind(Box::new(death))
}

/// Runs an agent's code until it ends or a [`crate::CrashCore`] in it dies. A death prints nothing; any other panic goes
/// on.
///
/// What the survivors need must be borrowed by the closure, not owned: what it owns dies with it.
pub fn run_until_death<T>(run: impl FnOnce() -> T) -> Outcome<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Outcome::Finished(value),
        Err(payload) => match payload.downcast::<Death>() {
            Ok(death) => {
                LAST.set(Some((*death).clone()));
                Outcome::Died(*death)
            }
            Err(payload) => resume_unwind(payload),
        },
    }
}

/// Calls a scenario with `n` from 1 on until nobody dies in it, and returns how many deaths there were.
///
/// The scenario makes a fresh memory, lets one core die at its `n`-th operation ([`crate::CrashCore::die_at`]), runs the
/// script ([`run_until_death`]), checks what the survivor then does, and returns the outcome of the run.
///
/// # Panics
///
/// If the scenario panics, with `n`, the operation, and what the panic said.
pub fn for_every_death<T>(mut scenario: impl FnMut(u64) -> Outcome<T>) -> u64 {
    for n in 1.. {
        LAST.set(None);
        match catch_unwind(AssertUnwindSafe(|| scenario(n))) {
            Ok(Outcome::Died(_)) => {}
            Ok(Outcome::Finished(_)) => return n - 1,
            Err(payload) => {
                let death = LAST.take().map_or("nobody had died".to_owned(), |death| death.to_string());
                panic!("scenario {n} ({death}): {}", message_of(payload.as_ref()));
            }
        }
    }
    unreachable!("2^64 scenarios")
}
