//! CNI16Q, CNI512Q and CNI16Qm: messages in cachable queues.

use conic_fabric::{Address, Core};

use super::{Carrier, Composed, HEADER_BYTES, MESSAGE_WORK, MOST_PAYLOAD, POLL_WORK, Place, Received, header};
use crate::cachable_queue::{Queue, Receiver, Sender};

/// The processor's half.
#[derive(Debug)]
pub struct QueueHost<C> {
    core: C,
    place: Place,
    sender: Sender<C>,
    receiver: Receiver<C>,
    sent: u64,
}

/// A way's queue.
pub(super) fn queue(carrier: Carrier) -> Queue {
    let Carrier::Queue(queue) = carrier else { panic!("this interface has cachable queues") };
    queue
}

impl<C: Core + Clone> QueueHost<C> {
    pub(super) fn new(place: Place, core: C) -> QueueHost<C> {
        let sender = queue(place.send.carrier).sender(core.clone());
        let receiver = queue(place.receive.carrier).receiver(core.clone());
        QueueHost { core, place, sender, receiver, sent: 0 }
    }

    pub(super) fn try_send(&mut self, to: u16, from: Address, bytes: u64) -> bool {
        if !self.sender.has_room() {
            self.core.work(POLL_WORK);
            return false;
        }
        self.core.work(MESSAGE_WORK);
        let composed = Composed::new(&self.core, to, from, bytes);
        let has_gone = self.sender.try_send_bytes(composed.used());
        debug_assert!(has_gone, "there was room");
        self.sent += 1;
        // The device keeps count of messages that are ready: an uncached store costs less than a block for a word.
        self.core.register_write(self.place.send.command(), self.sent);
        true
    }

    /// Whether the device can give nothing more before a message is received.
    pub(super) fn is_full(&self) -> bool {
        self.receiver.is_full()
    }

    pub(super) fn try_receive(&mut self, into: Address) -> Option<Received> {
        if !self.receiver.has_message() {
            self.core.work(POLL_WORK);
            return None;
        }
        self.core.work(MESSAGE_WORK);
        let at = self.receiver.next_slot();
        let (from, bytes) = header(self.core.load(at.word(1)));
        let bytes = bytes.min(MOST_PAYLOAD);
        let mut message = [0; MOST_PAYLOAD as usize];
        self.core.read_bytes(at + HEADER_BYTES, &mut message[..bytes as usize]);
        self.receiver.release();
        self.core.write_bytes(into, &message[..bytes as usize]);
        Some(Received { from, bytes })
    }
}
