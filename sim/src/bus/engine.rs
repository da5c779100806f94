//! What an engine of a network interface has besides the core face: accesses to its registers, and the network.

use conic_fabric::{Address, Line, RegisterAccess};

use super::core::BusCore;
use super::network::{MOST_PACKET_LINES, Packet};
use super::queues::Queue;
use crate::probe::queues::Probed;

impl BusCore<'_> {
    /// The next access to a segment of registers that this engine answers for, in the order in which they came; `start`: where the
    /// segment begins.
    pub fn next_access(&self, start: Address) -> Option<RegisterAccess> {
        self.with(|machine| {
            let registers = &mut machine.agents[self.agent].registers;
            let access = registers.iter_mut().find(|(at, _)| *at == start)?.1.pop_front()?;
            let now = machine.now();
            machine.leaves(Queue::Registers(self.node as u16), 0, now);
            Some(access)
        })
    }

    /// Whether a message to a node may be put into the network: fewer are without acknowledgement than its window has.
    pub fn may_inject(&self, to: usize) -> bool {
        self.with(|machine| machine.may_inject(self.node, to))
    }

    /// Puts a message of 1 to [`MOST_PACKET_LINES`] lines into the network.
    ///
    /// # Panics
    ///
    /// If the window is full, or the message has another number of lines.
    pub fn inject(&self, to: usize, message: &[Line]) {
        assert!((1..=MOST_PACKET_LINES).contains(&message.len()), "a network message of {} lines", message.len());
        let mut lines = [Line::ZERO; MOST_PACKET_LINES];
        lines[..message.len()].copy_from_slice(message);
        let packet = Packet { from: self.node, lines, count: message.len() };
        self.step();
        self.with(|machine| machine.inject(self.node, to, packet));
    }

    /// Takes the oldest acknowledgement that has come: the node that it is from.
    pub fn take_acknowledgement(&self) -> Option<usize> {
        let from = self.with(|machine| machine.take_acknowledgement(self.node));
        if from.is_some() {
            self.step();
        }
        from
    }

    /// Takes the oldest message that has come, which acknowledges it.
    pub fn take_packet(&self) -> Option<Packet> {
        let packet = self.with(|machine| machine.take_packet(self.node));
        if packet.is_some() {
            self.step();
        }
        packet
    }
}
