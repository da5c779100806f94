//! The cachable queue of Mukherjee et al. 1996 (CNI, section 2.2): an array of fixed-size messages in coherent memory.
//!
//! One sender and one receiver, no locks. The head pointer counts what the receiver took, the tail pointer what the
//! sender sent, each in a line of its own. The paper's three optimisations are switches of [`Shape`], so that each can be
//! measured alone:
//!
//! | optimisation | switch | off | on |
//! |---|---|---|---|
//! | lazy pointers | [`Shape::lazy_pointers`] | the sender loads the head for every message | only when its copy says full |
//! | message valid bits | [`Arrival::ValidBit`] | [`Arrival::TailPointer`]: the receiver polls the tail | it polls the message |
//! | sense reverse | [`Arrival::SenseReverse`] | the receiver clears the valid word | the word's meaning flips each pass |
//!
//! # Lines
//!
//! | line | written by | read by | synchronising words |
//! |---|---|---|---|
//! | first line of a message | the sender; its word 0 also the receiver ([`Arrival::ValidBit`] only) | the receiver | word 0, except with [`Arrival::TailPointer`] |
//! | other lines of a message | the sender | the receiver | none |
//! | tail | the sender ([`Arrival::TailPointer`] only) | the receiver | word 0 |
//! | head | the receiver | the sender | word 0 |
//!
//! A slot is the sender's while `sent - head < slots` does not count it, the receiver's from the announcement of its
//! message until the receiver stores a head that counts it.
//!
//! # Visibility
//!
//! | step | store | makes visible | to |
//! |---|---|---|---|
//! | send | word 0 of the message (or the tail), release, last | every line of the message | the receiver that acquires it |
//! | receive | head, release, last | that the message's lines were read, and its valid word cleared | the sender that acquires it |
//!
//! # Allowed and forbidden
//!
//! | move | |
//! |---|---|
//! | read lines of a message before its announcement was acquired | forbidden: they may be half written |
//! | clear a valid word after the head that counts it | forbidden: it may wipe out the next pass's message |
//! | store the head before the last read of the message | forbidden: the sender may overwrite what is being read |
//! | use a stale head in the sender | allowed: it is never ahead of the true one |
//! | fill all slots | allowed: the pointers count messages and never wrap, so full and empty differ (the paper keeps one slot empty) |
//! | attach either half when messages are in flight | forbidden: both halves start at message 0 of zeroed memory |

use std::fmt;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords};

/// Pointers lie this far apart, in bytes: a line each, and never two in a pair of lines that is fetched together.
const POINTER_SPACING: u64 = 128;

/// How the receiver learns that a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arrival {
    /// It polls the tail pointer.
    TailPointer,
    /// It polls the message's valid word, and clears it when it took the message.
    ValidBit,
    /// It polls the message's valid word, which means valid as 1 on the first pass, as 0 on the second, and so on.
    SenseReverse,
}

/// What a queue is: its size, and which of the paper's optimisations it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Messages that fit, a power of two.
    pub slots: u64,
    /// Lines of a message, 1 to [`Shape::MAX_MESSAGE_LINES`]. The paper's 256-byte messages have 4.
    pub message_lines: u64,
    /// Whether the sender keeps a copy of the head pointer and loads the true one only when that says full.
    pub lazy_pointers: bool,
    /// How the receiver learns that a message arrived.
    pub arrival: Arrival,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The number of slots is not a power of two, or is more than 2^32.
    Slots(u64),
    /// The number of lines of a message is 0 or too large.
    MessageLines(u64),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Slots(slots) => {
                write!(f, "a cachable queue has a power of two of slots, at most 2^32, not {slots}")
            }
            ShapeError::MessageLines(lines) => {
                write!(f, "a message has 1 to {} lines, not {lines}", Shape::MAX_MESSAGE_LINES)
            }
        }
    }
}

impl std::error::Error for ShapeError {}

impl Default for Shape {
    /// All three optimisations, the paper's 256-byte messages, and 64 of them.
    fn default() -> Shape {
        Shape { slots: 64, message_lines: 4, lazy_pointers: true, arrival: Arrival::SenseReverse }
    }
}

impl Shape {
    /// The most lines of a message.
    pub const MAX_MESSAGE_LINES: u64 = 64;

    /// Appends the queue to a layout: messages and tail where the sender lives, the head where the receiver lives.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(&self, layout: &mut Layout, sender: Home, receiver: Home) -> Result<Queue, ShapeError> {
        if !self.slots.is_power_of_two() || self.slots > 1 << 32 {
            return Err(ShapeError::Slots(self.slots));
        }
        if !(1..=Self::MAX_MESSAGE_LINES).contains(&self.message_lines) {
            return Err(ShapeError::MessageLines(self.message_lines));
        }
        let messages = self.place_messages(layout, sender);
        let one = SynchronisingWords::FIRST;
        let tail = layout.add("cachable queue tail", POINTER_SPACING, POINTER_SPACING, sender, one);
        let head = layout.add("cachable queue head", POINTER_SPACING, POINTER_SPACING, receiver, one);
        Ok(Queue { shape: *self, messages, head, tail })
    }

    fn place_messages(&self, layout: &mut Layout, home: Home) -> Address {
        let first = match self.arrival {
            Arrival::TailPointer => SynchronisingWords::NONE,
            Arrival::ValidBit | Arrival::SenseReverse => SynchronisingWords::FIRST,
        };
        let message_bytes = self.message_lines * LINE_BYTES;
        if self.message_lines == 1 || first == SynchronisingWords::NONE {
            return layout.add("cachable queue messages", self.slots * message_bytes, POINTER_SPACING, home, first);
        }
        // Only a message's first line has a synchronising word, and a segment's lines are all alike: two segments a
        // message, which lie back to back.
        let mut start = None;
        for slot in 0..self.slots {
            let alignment = if slot == 0 { POINTER_SPACING } else { LINE_BYTES };
            let at = layout.add("cachable queue messages", LINE_BYTES, alignment, home, first);
            let rest = layout.add(
                "cachable queue messages, other lines",
                message_bytes - LINE_BYTES,
                LINE_BYTES,
                home,
                SynchronisingWords::NONE,
            );
            let start = *start.get_or_insert(at);
            debug_assert_eq!((at, rest), (start + slot * message_bytes, at + LINE_BYTES));
        }
        start.expect("a queue has at least one slot")
    }
}

/// Where a queue lies; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    shape: Shape,
    messages: Address,
    head: Address,
    tail: Address,
}

impl Queue {
    /// The queue's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where its messages begin and end; the pointers lie elsewhere.
    pub fn messages(&self) -> [Address; 2] {
        [self.messages, self.messages.lines(self.shape.slots * self.shape.message_lines)]
    }

    /// The sender's half. The memory must be zeroed, and there must be one sender only.
    pub fn sender<C: Core>(&self, core: C) -> Sender<C> {
        Sender { core, queue: *self, sent: 0, shadow_head: 0, refused_heads: 0 }
    }

    /// The receiver's half. The memory must be zeroed, and there must be one receiver only.
    pub fn receiver<C: Core>(&self, core: C) -> Receiver<C> {
        Receiver { core, queue: *self, received: 0, refused_tails: 0 }
    }

    /// Where the `count`-th message lies.
    #[inline(always)]
    fn message(&self, count: u64) -> Address {
        self.messages.lines((count & (self.shape.slots - 1)) * self.shape.message_lines)
    }

    /// The valid word of the `count`-th message.
    #[inline(always)]
    fn valid(&self, count: u64) -> u64 {
        match self.shape.arrival {
            // Zeroed memory must read as not valid on the first pass, so that one is 1.
            Arrival::SenseReverse => u64::from(count & self.shape.slots == 0),
            Arrival::ValidBit | Arrival::TailPointer => 1,
        }
    }
}

/// The half that sends.
#[derive(Debug)]
pub struct Sender<C> {
    core: C,
    queue: Queue,
    /// Messages sent.
    sent: u64,
    /// A head that was true once.
    shadow_head: u64,
    refused_heads: u64,
}

impl<C: Core> Sender<C> {
    /// Sends a message, or returns false if the queue is full. Word 0 of its first line belongs to the queue and is not sent. A
    /// message that is shorter than the shape's leaves its slot's other lines as they are.
    ///
    /// # Panics
    ///
    /// If the message has no line, or more than the shape's number of them.
    #[inline]
    pub fn try_send(&mut self, message: &[Line]) -> bool {
        let queue = self.queue;
        assert!((1..=queue.shape.message_lines).contains(&(message.len() as u64)), "lines of a message");
        let sent = self.sent;
        if !self.has_room() {
            return false;
        }
        let at = queue.message(sent);
        if queue.shape.arrival == Arrival::TailPointer {
            self.core.write_lines(at, message);
            // Release: the message's lines before the count that announces them, for the receiver's load of the tail.
            self.core.store_release(queue.tail, sent + 1);
        } else {
            self.core.write_lines(at.lines(1), &message[1..]);
            let mut first = message[0];
            first.0[0] = queue.valid(sent);
            // Release on word 0: all lines of the message before it, for the receiver's load of the valid word.
            self.core.publish_line(at, &first);
        }
        self.sent = sent + 1;
        true
    }

    /// Sends a message of bytes, which begin behind the queue's word 0, or returns false if the queue is full. Only words that it has
    /// are written, those of its first line last.
    ///
    /// # Panics
    ///
    /// If a slot does not have so many bytes.
    pub fn try_send_bytes(&mut self, message: &[u8]) -> bool {
        let queue = self.queue;
        assert!(message.len() as u64 + 8 <= queue.shape.message_lines * LINE_BYTES, "bytes of a message");
        let sent = self.sent;
        if !self.has_room() {
            return false;
        }
        let at = queue.message(sent);
        let (first, rest) = message.split_at(message.len().min(LINE_BYTES as usize - 8));
        self.core.write_bytes(at.lines(1), rest);
        self.core.write_bytes(at.word(1), first);
        if queue.shape.arrival == Arrival::TailPointer {
            // Release: the message before the count that announces it, for the receiver's load of the tail.
            self.core.store_release(queue.tail, sent + 1);
        } else {
            // Release: the message before the word that announces it, for the receiver's load of it.
            self.core.store_release(at, queue.valid(sent));
        }
        self.sent = sent + 1;
        true
    }

    /// Whether one more message fits.
    #[inline(always)]
    pub fn has_room(&mut self) -> bool {
        let (sent, slots) = (self.sent, self.queue.shape.slots);
        if self.queue.shape.lazy_pointers && sent - self.shadow_head < slots {
            return true;
        }
        // Acquire: the receiver's reads of a slot, and its clearing of the valid word, before this side overwrites it.
        let head = self.core.load_acquire(self.queue.head);
        let in_flight = sent.wrapping_sub(head);
        if in_flight > slots {
            self.refused_heads += 1;
            return false;
        }
        self.shadow_head = head;
        in_flight < slots
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// How often the head pointer claimed what cannot be (more taken than sent, or taken back); such a head is ignored.
    pub fn refused_heads(&self) -> u64 {
        self.refused_heads
    }
}

/// The half that receives.
#[derive(Debug)]
pub struct Receiver<C> {
    core: C,
    queue: Queue,
    /// Messages received.
    received: u64,
    refused_tails: u64,
}

impl<C: Core> Receiver<C> {
    /// Receives a message, or returns false if there is none. Word 0 of its first line reads 0.
    ///
    /// # Panics
    ///
    /// If `into` does not have the shape's number of lines.
    #[inline]
    pub fn try_receive(&mut self, into: &mut [Line]) -> bool {
        let queue = self.queue;
        assert_eq!(into.len() as u64, queue.shape.message_lines, "lines of a message");
        let at = self.next_slot();
        if !self.has_message() {
            return false;
        }
        self.core.read_lines(at, into);
        into[0].0[0] = 0;
        self.release();
        true
    }

    /// Whether there is a message; its lines may be read from [`Receiver::next_slot`] on until it is released.
    #[inline(always)]
    pub fn has_message(&mut self) -> bool {
        self.has_arrived(self.next_slot(), self.received)
    }

    /// Whether every slot has a message, so that the sender waits for one to be released. A receiver that polls messages finds that in the
    /// slot behind the last one that it has released, which the sender writes last of all: a line that the receiver has in its cache
    /// until then.
    pub fn is_full(&self) -> bool {
        let Queue { shape, tail, .. } = self.queue;
        if shape.arrival == Arrival::TailPointer {
            // Acquire: as in `has_arrived`; nothing is read on the strength of it alone.
            return self.core.load_acquire(tail).wrapping_sub(self.received) == shape.slots;
        }
        let last = self.received + shape.slots - 1;
        // Acquire: the same.
        self.core.load_acquire(self.queue.message(last)) == self.queue.valid(last)
    }

    /// Where the message lies that is, or will be, the next. Its word 0 belongs to the queue.
    #[inline(always)]
    pub fn next_slot(&self) -> Address {
        self.queue.message(self.received)
    }

    /// Gives the sender the slot of the message that [`Receiver::has_message`] has told of, when it has been read.
    #[inline(always)]
    pub fn release(&mut self) {
        let (queue, received) = (self.queue, self.received);
        if queue.shape.arrival == Arrival::ValidBit {
            // Its order against the head, which follows, is all that matters, and the head's release gives it.
            self.core.store_release(queue.message(received), 0);
        }
        self.received = received + 1;
        // Release: the reads of the message, and the clearing, before the sender may overwrite them.
        self.core.store_release(queue.head, received + 1);
    }

    #[inline(always)]
    fn has_arrived(&mut self, at: Address, received: u64) -> bool {
        let queue = &self.queue;
        if queue.shape.arrival == Arrival::TailPointer {
            // Acquire: the sender's writes of the message's lines before this side reads them.
            let waiting = self.core.load_acquire(queue.tail).wrapping_sub(received);
            if waiting > queue.shape.slots {
                self.refused_tails += 1;
                return false;
            }
            return waiting != 0;
        }
        // Acquire: as above; the valid word was written after every line of the message.
        self.core.load_acquire(at) == queue.valid(received)
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// How often the tail pointer claimed more messages than there are slots, or fewer than were received.
    pub fn refused_tails(&self) -> u64 {
        self.refused_tails
    }
}
