//! CNI4: a message in four cachable device registers, with the explicit clear that they need.

use conic_fabric::{Address, Core};

use super::{Carrier, Composed, HEADER_BYTES, MESSAGE_WORK, MOST_PAYLOAD, POLL_WORK, Place, Received, header};

/// The processor's half.
#[derive(Debug)]
pub struct RegisterHost<C> {
    core: C,
    place: Place,
    sent: u64,
    received: u64,
}

/// Where a way's blocks begin.
pub(super) fn blocks(carrier: Carrier) -> Address {
    let Carrier::Blocks(at) = carrier else { panic!("CNI4 has cachable device registers") };
    at
}

impl<C: Core> RegisterHost<C> {
    pub(super) fn new(place: Place, core: C) -> RegisterHost<C> {
        RegisterHost { core, place, sent: 0, received: 0 }
    }

    pub(super) fn try_send(&mut self, to: u16, from: Address, bytes: u64) -> bool {
        // The blocks are free once the device has read all that was in them.
        if self.core.register_read(self.place.send.status()) != self.sent {
            self.core.work(POLL_WORK);
            return false;
        }
        self.core.work(MESSAGE_WORK);
        let composed = Composed::new(&self.core, to, from, bytes);
        self.core.write_bytes(blocks(self.place.send.carrier).word(1), composed.used());
        self.sent += 1;
        self.core.register_write(self.place.send.command(), self.sent);
        true
    }

    pub(super) fn try_receive(&mut self, into: Address) -> Option<Received> {
        // The handshake's third step as well: a message is not shown before the last one's copies are gone.
        if self.core.register_read(self.place.receive.status()) == self.received {
            self.core.work(POLL_WORK);
            return None;
        }
        self.core.work(MESSAGE_WORK);
        let at = blocks(self.place.receive.carrier);
        let (from, bytes) = header(self.core.load(at.word(1)));
        let bytes = bytes.min(MOST_PAYLOAD);
        let mut message = [0; MOST_PAYLOAD as usize];
        self.core.read_bytes(at + HEADER_BYTES, &mut message[..bytes as usize]);
        self.core.write_bytes(into, &message[..bytes as usize]);
        self.received += 1;
        // Its first step. The second, that the device has seen it, is the order of uncached accesses: the next look at the status is behind it.
        self.core.register_write(self.place.receive.command(), self.received);
        Some(Received { from, bytes })
    }
}
