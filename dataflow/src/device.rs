//! What a device offers to the graph.

use std::fmt;

use conic_load::invocation::Answer;
use timely::scheduling::SyncActivator;

use crate::program::{Executor, Program};
use crate::wire::{BadResponse, Reason, prefix};

/// Why a device cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An exchange has no room for a single element.
    Small {
        /// Bytes of an exchange.
        capacity: usize,
        /// Bytes that one element needs, with what goes before it.
        needed: usize,
    },
    /// There is no device at all.
    None,
    /// Elements that have no bytes: nothing of them can cross.
    Empty,
    /// The program has more operators than a request can say.
    Operators(usize),
    /// An operator has a state, and there are several devices, or its parent sees each operator.
    State,
    /// The last exchange is not over, or this one is too long.
    NotBegun(conic_interface::pio::NotBegun),
    /// The device refused the lines of the exchange.
    Lines,
    /// The device will not answer any more.
    Stopped,
    /// The device refused a request.
    Refused(Reason),
    /// A response cannot be one.
    Malformed(Reason),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Small { capacity, needed } => {
                write!(
                    f,
                    "an element needs {needed} bytes of an exchange, and the device's holds {capacity}: give it more lines"
                )
            }
            Fault::None => f.write_str("operators were placed on a device, and no device was given"),
            Fault::Empty => f.write_str("elements of no bytes cannot cross to a device, nor between its operators"),
            Fault::Operators(count) => write!(f, "{count} operators are more than a request can name; collapse them"),
            Fault::State => f.write_str(
                "an operator with a state is on one device, with one exchange, and collapsed with what is before it",
            ),
            Fault::NotBegun(why) => write!(f, "the device took no request: {why}"),
            Fault::Lines => f.write_str("the device refused the lines of a request"),
            Fault::Stopped => f.write_str("the device has stopped, and will not answer"),
            Fault::Refused(reason) => write!(f, "the device refused a request: {reason}"),
            Fault::Malformed(reason) => write!(f, "the device's response is none: {reason}"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<BadResponse> for Fault {
    fn from(bad: BadResponse) -> Fault {
        match bad {
            BadResponse::Refused(reason) => Fault::Refused(reason),
            BadResponse::Malformed(reason) => Fault::Malformed(reason),
        }
    }
}

/// A device that is called with bytes and answers with bytes, one call at a time.
pub trait Device: 'static {
    /// Bytes of the longest request, and of the longest response.
    fn capacity(&self) -> usize;

    /// Calls. `most` is how many bytes the response has at most.
    ///
    /// # Errors
    ///
    /// If the last call is not over, or this one cannot be.
    fn begin(&mut self, request: &[u8], most: usize) -> Result<(), Fault>;

    /// Looks for the response; it replaces what is in `response`. False if there is none yet.
    ///
    /// # Errors
    ///
    /// If there will be none.
    fn poll(&mut self, response: &mut Vec<u8>) -> Result<bool, Fault>;

    /// Says that this round of waiting made no progress.
    fn spin(&self);

    /// Whom to wake when a call is over. A device that answers before [`Device::begin`] returns need not.
    fn wake_by(&mut self, activator: SyncActivator);
}

/// A device that computes on the calling thread, when it is called.
#[derive(Debug)]
pub struct Inline {
    executor: Executor,
    response: Vec<u8>,
    capacity: usize,
}

impl Inline {
    /// A device whose exchanges hold so many bytes each way.
    pub fn new(program: &Program, capacity: usize) -> Inline {
        Inline { executor: Executor::new(program.clone()), response: Vec::new(), capacity }
    }

    /// What it knows.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }
}

impl Device for Inline {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn begin(&mut self, request: &[u8], most: usize) -> Result<(), Fault> {
        // Room for a refusal at the least.
        self.response.resize(most.max(prefix(0)), 0);
        let bytes = self.executor.answer(request, &mut self.response);
        self.response.truncate(bytes);
        Ok(())
    }

    fn poll(&mut self, response: &mut Vec<u8>) -> Result<bool, Fault> {
        std::mem::swap(response, &mut self.response);
        Ok(true)
    }

    fn spin(&self) {}

    fn wake_by(&mut self, _activator: SyncActivator) {}
}
