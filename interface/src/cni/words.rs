//! NI2w: every word of a message through an uncached register.

use conic_fabric::{Address, Core};

use super::{Carrier, Composed, MESSAGE_WORK, MOST_PAYLOAD, POLL_WORK, Place, Received, header, words_with};

/// The processor's half.
#[derive(Debug)]
pub struct WordHost<C> {
    core: C,
    place: Place,
    fifo_messages: u64,
    sent: u64,
    received: u64,
}

/// Where a way's window begins.
fn window(carrier: Carrier) -> Address {
    let Carrier::Window(at) = carrier else { panic!("NI2w has windows of registers") };
    at
}

impl<C: Core> WordHost<C> {
    pub(super) fn new(place: Place, core: C, fifo_messages: u64) -> WordHost<C> {
        WordHost { core, place, fifo_messages, sent: 0, received: 0 }
    }

    pub(super) fn try_send(&mut self, to: u16, from: Address, bytes: u64) -> bool {
        let taken = self.core.register_read(self.place.send.status());
        if self.sent.wrapping_sub(taken) >= self.fifo_messages {
            self.core.work(POLL_WORK);
            return false;
        }
        self.core.work(MESSAGE_WORK);
        let composed = Composed::new(&self.core, to, from, bytes);
        let at = window(self.place.send.carrier);
        // Word 0 is the header's first, whose place other interfaces use for their valid word.
        self.core.register_write(at, self.sent);
        for (index, chunk) in composed.used().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.core.register_write(at.word(1 + index), u64::from_ne_bytes(word));
        }
        self.sent += 1;
        true
    }

    pub(super) fn try_receive(&mut self, into: Address) -> Option<Received> {
        if self.core.register_read(self.place.receive.status()) == self.received {
            self.core.work(POLL_WORK);
            return None;
        }
        self.core.work(MESSAGE_WORK);
        let at = window(self.place.receive.carrier);
        self.core.register_read(at);
        let first = self.core.register_read(at.word(1));
        let (from, bytes) = header(first);
        let bytes = bytes.min(MOST_PAYLOAD);
        let mut message = [0; 8 + MOST_PAYLOAD as usize];
        message[..8].copy_from_slice(&first.to_ne_bytes());
        for index in 2..words_with(bytes) {
            let place = 8 * (index - 1);
            message[place..place + 8].copy_from_slice(&self.core.register_read(at.word(index)).to_ne_bytes());
        }
        self.core.write_bytes(into, &message[4..4 + bytes as usize]);
        self.received += 1;
        Some(Received { from, bytes })
    }
}
