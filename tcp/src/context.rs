//! Context queues: how a fast-path thread and an application thread tell each other of bytes, in shared memory.
//!
//! A pair for each two of them, one queue each way (TAS, EuroSys 2019: "context RX and TX queues"). A queue is FastForward's
//! ([`conic_interface::fastforward`], explored there under loom with each of its orderings weakened), as TAS's entries, too, say by
//! themselves whether they are full. A line carries up to seven notices, a word each:
//!
//! | bits | to the application | to the fast path |
//! |---|---|---|
//! | 0..16 | the connection's number and 1; a word of 0 is no notice | the same |
//! | 16..40 | bytes that came, in order | bytes that were read |
//! | 40..64 | bytes of the transmit buffer that are free again | bytes that were written into it |
//!
//! The queue's announcement of a line releases what its sender did to the buffers before: the payload that a notice tells of, or the
//! reads of the room that it gives back. Buffers have no synchronising word of their own.
//!
//! The application may be another process, which the fast path does not trust: [`crate::Flow::bump`] checks what a notice says.

use std::collections::VecDeque;

use conic_fabric::{Core, Home, Layout};
use conic_interface::fastforward::{Payload, Queue, Receiver, Sender, Shape, ShapeError};

/// Notices of a line.
const NOTICES: usize = 7;
const AMOUNT_BITS: u32 = 24;
const AMOUNT: u64 = (1 << AMOUNT_BITS) - 1;

/// What one side tells the other of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// The connection.
    pub flow: u32,
    /// Bytes that came, or were read: fewer than 2^24.
    pub received: u32,
    /// Bytes that are free again, or were written: fewer than 2^24.
    pub transmit: u32,
}

impl Notice {
    /// Its word.
    pub fn word(&self) -> u64 {
        let [received, transmit] = [self.received, self.transmit].map(|bytes| u64::from(bytes).min(AMOUNT));
        u64::from(self.flow + 1) & 0xffff | received << 16 | transmit << (16 + AMOUNT_BITS)
    }

    /// What a word says; none where it is no notice.
    pub fn of_word(word: u64) -> Option<Notice> {
        let flow = (word as u16).checked_sub(1)?.into();
        let received = (word >> 16 & AMOUNT) as u32;
        Some(Notice { flow, received, transmit: (word >> (16 + AMOUNT_BITS)) as u32 })
    }
}

/// The two queues between a fast-path thread and an application thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// From the fast path to the application.
    pub up: Queue,
    /// From the application to the fast path.
    pub down: Queue,
}

impl Context {
    /// Appends the queues to a layout.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(layout: &mut Layout, shape: Shape, home: Home) -> Result<Context, ShapeError> {
        Ok(Context { up: shape.place(layout, home)?, down: shape.place(layout, home)? })
    }
}

/// Notices that are to be sent: what is told of one connection is summed up until there is room for a line.
#[derive(Debug)]
pub(crate) struct Outbox<C> {
    sender: Sender<C>,
    /// By connection: what is to be said of it.
    sums: Vec<[u32; 2]>,
    /// Connections of which something is, in the order in which it began to be.
    waiting: VecDeque<u32>,
}

impl<C: Core> Outbox<C> {
    /// An outbox for so many connections.
    pub fn new(sender: Sender<C>, flows: u32) -> Outbox<C> {
        Outbox { sender, sums: vec![[0; 2]; flows as usize], waiting: VecDeque::new() }
    }

    /// Has this said. Buffers are smaller than what a notice can say; an application that claims to have read what it was never told of
    /// may be told too little, and nobody else is.
    #[inline]
    pub fn add(&mut self, notice: Notice) {
        if (notice.received, notice.transmit) == (0, 0) {
            return;
        }
        let sums = &mut self.sums[notice.flow as usize];
        if *sums == [0; 2] {
            self.waiting.push_back(notice.flow);
        }
        sums[0] = sums[0].saturating_add(notice.received);
        sums[1] = sums[1].saturating_add(notice.transmit);
    }

    /// Sends what there is room for, and returns how many notices.
    #[inline]
    pub fn flush(&mut self) -> usize {
        let mut sent = 0;
        while !self.waiting.is_empty() {
            let mut line = Payload::default();
            let count = self.waiting.len().min(NOTICES);
            for (word, &flow) in line.iter_mut().zip(&self.waiting) {
                let [received, transmit] = self.sums[flow as usize];
                *word = Notice { flow, received, transmit }.word();
            }
            if !self.sender.try_send(&line) {
                return sent;
            }
            self.waiting.drain(..count).for_each(|flow| self.sums[flow as usize] = [0; 2]);
            sent += count;
        }
        sent
    }
}

/// Receives a line of notices; 0 where none is there.
#[inline]
pub(crate) fn receive<C: Core>(receiver: &mut Receiver<C>, mut each: impl FnMut(Notice)) -> usize {
    let Some(line) = receiver.try_receive() else { return 0 };
    let mut count = 0;
    for notice in line.into_iter().map_while(Notice::of_word) {
        each(notice);
        count += 1;
    }
    // A line without a notice is one all the same: there was something to do.
    count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_was_put_in_and_zero_nothing() {
        for notice in [
            Notice { flow: 0, received: 1, transmit: 0 },
            Notice { flow: 0xfffe, received: AMOUNT as u32, transmit: AMOUNT as u32 },
            Notice { flow: 77, received: 0, transmit: 8192 },
        ] {
            assert_eq!(Notice::of_word(notice.word()), Some(notice));
        }
        let more = Notice { flow: 1, received: u32::MAX, transmit: 1 << 24 };
        let most = Notice { flow: 1, received: AMOUNT as u32, transmit: AMOUNT as u32 };
        assert_eq!(
            Notice::of_word(more.word()),
            Some(most),
            "no more than there is room for, and of the same connection"
        );
        assert_eq!(Notice::of_word(0), None);
        assert_eq!(Notice::of_word(0xffff_0000), None);
    }
}
