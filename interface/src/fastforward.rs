//! FastForward (Giacomoni et al., PPoPP 2008): a queue whose slots themselves say whether they are full.
//!
//! One producer and one consumer. Neither ever sees the other's position: the producer writes a slot that is empty, the
//! consumer empties a slot that is full. This is the message exchange that coherent programmed I/O compares with
//! (its Figure 4): one line a slot, of which word 0 says full or empty and the other seven are the payload.
//!
//! # Lines
//!
//! | line | state | owned by | written by |
//! |---|---|---|---|
//! | slot | word 0 is 0: empty | the producer | the producer: payload, then word 0 |
//! | slot | word 0 is 1: full | the consumer | the consumer: word 0 only, to 0 |
//!
//! Word 0 of each slot synchronises, the others are owned. The positions (how many were sent, how many received) are
//! private.
//!
//! # Visibility
//!
//! | step | store | makes visible | to |
//! |---|---|---|---|
//! | send | word 0 = 1, release, last | the payload | the consumer that acquires it |
//! | receive | word 0 = 0, release, after the payload was read | that the slot may be overwritten | the producer that acquires it |
//!
//! # Allowed and forbidden
//!
//! | move | |
//! |---|---|
//! | read the payload before word 0 was acquired as full | forbidden |
//! | empty a slot before its payload was read | forbidden: the producer may overwrite what is being read |
//! | skip an empty slot | forbidden, both sides: the order of slots is the order of messages |
//! | look at a slot further on | allowed (temporal slipping, asking ahead), without acting on it |
//!
//! # Temporal slipping
//!
//! A consumer that has caught up takes each line away from the producer at the moment it is written. With
//! [`Shape::slip`], a consumer that finds its slot empty lets the producer get ahead: it takes nothing until the slot
//! `distance - 1` further on is full, or until it has asked `patience` times in vain (so that the last messages of a
//! burst arrive too). The original measures the distance from both positions and waits in a loop; here the far slot says
//! it and each call returns at once. It costs latency at low load and is off by default.

use std::fmt;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords};

const EMPTY: u64 = 0;
const FULL: u64 = 1;

/// What a slot carries: 56 bytes.
pub type Payload = [u64; 7];

/// How far a consumer that has caught up lets the producer get ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slip {
    /// Messages that must wait before the consumer goes on, 2 to the number of slots.
    pub distance: u64,
    /// How many calls it waits for them, at least 1.
    pub patience: u32,
}

/// What a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Slots, a power of two.
    pub slots: u64,
    /// Temporal slipping.
    pub slip: Option<Slip>,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The number of slots is not a power of two, or is more than 2^32.
    Slots(u64),
    /// The slip's distance is below 2 or above the number of slots, or its patience is 0.
    Slip(Slip),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Slots(slots) => {
                write!(f, "a FastForward queue has a power of two of slots, at most 2^32, not {slots}")
            }
            ShapeError::Slip(slip) => write!(
                f,
                "a slip needs a distance from 2 to the number of slots and a patience of at least 1, not {} and {}",
                slip.distance, slip.patience
            ),
        }
    }
}

impl std::error::Error for ShapeError {}

impl Default for Shape {
    /// 64 slots, no slipping.
    fn default() -> Shape {
        Shape { slots: 64, slip: None }
    }
}

impl Shape {
    /// Appends the queue to a layout, where the producer lives.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(&self, layout: &mut Layout, producer: Home) -> Result<Queue, ShapeError> {
        if !self.slots.is_power_of_two() || self.slots > 1 << 32 {
            return Err(ShapeError::Slots(self.slots));
        }
        if let Some(slip) = self.slip
            && (!(2..=self.slots).contains(&slip.distance) || slip.patience == 0)
        {
            return Err(ShapeError::Slip(slip));
        }
        let bytes = self.slots * LINE_BYTES;
        let slots = layout.add("FastForward slots", bytes, 2 * LINE_BYTES, producer, SynchronisingWords::FIRST);
        Ok(Queue { shape: *self, slots })
    }
}

/// Where a queue lies; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    shape: Shape,
    slots: Address,
}

impl Queue {
    /// The queue's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The producer's half. The memory must be zeroed, and there must be one producer only.
    pub fn sender<C: Core>(&self, core: C) -> Sender<C> {
        Sender { core, queue: *self, sent: 0 }
    }

    /// The consumer's half. The memory must be zeroed, and there must be one consumer only.
    pub fn receiver<C: Core>(&self, core: C) -> Receiver<C> {
        Receiver { core, queue: *self, received: 0, waiting: 0, took_any: false }
    }

    #[inline(always)]
    fn slot(&self, count: u64) -> Address {
        self.slots.lines(count & (self.shape.slots - 1))
    }
}

/// The half that sends.
#[derive(Debug)]
pub struct Sender<C> {
    core: C,
    queue: Queue,
    sent: u64,
}

impl<C: Core> Sender<C> {
    /// Sends a message, or returns false if the queue is full.
    #[inline]
    pub fn try_send(&mut self, payload: &Payload) -> bool {
        let sent = self.sent;
        let slot = self.queue.slot(sent);
        // Acquire: the consumer's reads of the payload before this side overwrites it.
        if self.core.load_acquire(slot) != EMPTY {
            return false;
        }
        let [a, b, c, d, e, f, g] = *payload;
        // Release on word 0: the payload before it, for the consumer's load of word 0.
        self.core.publish_line(slot, &Line([FULL, a, b, c, d, e, f, g]));
        self.sent = sent + 1;
        true
    }

    /// Asks for the slot of the next message, for a sender that has time before it: its look whether that slot is empty then waits
    /// for nothing. Pays where messages are far apart, and a message otherwise takes a third round trip.
    #[inline]
    pub fn ask_ahead(&self) {
        self.core.prefetch_read(self.queue.slot(self.sent));
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}

/// The half that receives.
#[derive(Debug)]
pub struct Receiver<C> {
    core: C,
    queue: Queue,
    received: u64,
    /// Calls left for which a slip may still wait; 0 when it does not slip.
    waiting: u32,
    /// Whether a message was taken since the last slip ended: an idle queue slips once, not for ever.
    took_any: bool,
}

impl<C: Core> Receiver<C> {
    /// Receives a message, if there is one (and, when it slips, if enough others wait behind it).
    #[inline]
    pub fn try_receive(&mut self) -> Option<Payload> {
        let received = self.received;
        if self.waiting != 0 && self.keeps_waiting(received) {
            return None;
        }
        let slot = self.queue.slot(received);
        // Acquire: the producer's writes of the payload before this side reads them.
        if self.core.load_acquire(slot) == EMPTY {
            if let Some(slip) = self.queue.shape.slip
                && self.took_any
            {
                self.waiting = slip.patience;
                self.took_any = false;
            }
            return None;
        }
        let Line([_, a, b, c, d, e, f, g]) = self.core.read_line(slot);
        // Release: the reads of the payload before the producer may overwrite it.
        self.core.store_release(slot, EMPTY);
        self.received = received + 1;
        self.took_any = true;
        Some([a, b, c, d, e, f, g])
    }

    /// Whether a consumer that slips waits on; counts the call.
    fn keeps_waiting(&mut self, received: u64) -> bool {
        let Some(slip) = self.queue.shape.slip else { return false };
        // Nothing is read on the strength of this load; the acquire of the consumer's own slot follows.
        if self.core.load_acquire(self.queue.slot(received + slip.distance - 1)) != EMPTY {
            self.waiting = 0;
            return false;
        }
        self.waiting -= 1;
        self.waiting != 0
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}
