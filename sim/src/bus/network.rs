//! Messages between nodes: a span each, and a window of messages that are not acknowledged.

use std::collections::VecDeque;

use conic_fabric::Line;

use super::machine::{Event, Machine};
use super::queues::Queue;
use crate::probe::queues::Probed;

/// Most lines of a network message: 256 bytes (CNI section 4.1).
pub const MOST_PACKET_LINES: usize = 4;

/// A network message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The node that sent it.
    pub from: usize,
    /// Its lines.
    pub lines: [Line; MOST_PACKET_LINES],
    /// How many of them it has.
    pub count: usize,
}

/// A node's end of the network.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    /// Messages to each node that are not acknowledged.
    pub(super) outstanding: Vec<u32>,
    /// Messages that have come, oldest first.
    pub(super) arrived: VecDeque<Packet>,
    /// Nodes that have acknowledged a message, oldest first.
    pub(super) acknowledged: VecDeque<usize>,
}

impl Machine {
    /// Whether the window to a node lets one more message go.
    pub(super) fn may_inject(&self, node: usize, to: usize) -> bool {
        self.nodes[node].port.outstanding[to] < self.parameters.network.window
    }

    /// Puts a message on its way.
    pub(super) fn inject(&mut self, node: usize, to: usize, packet: Packet) {
        assert!(self.may_inject(node, to), "the window from node {node} to node {to} is full");
        self.nodes[node].port.outstanding[to] += 1;
        self.enters(Queue::Window(node as u16, to as u16), 0, self.agenda.now);
        self.counters[node].messages += 1;
        let key = self.packets.insert((to, packet)) as u32;
        let there = self.agenda.now + self.cycles(self.parameters.network.latency);
        self.agenda.at(there, Event::Arrives(key));
    }

    pub(super) fn packet_arrives(&mut self, key: u32) {
        let (to, packet) = self.packets.remove(key as usize);
        self.nodes[to].port.arrived.push_back(packet);
        self.enters(Queue::Arrived(to as u16), 0, self.agenda.now);
        self.tell_engines(to);
    }

    /// Takes the oldest message that has come, and acknowledges it.
    pub(super) fn take_packet(&mut self, node: usize) -> Option<Packet> {
        let packet = self.nodes[node].port.arrived.pop_front()?;
        self.leaves(Queue::Arrived(node as u16), 0, self.agenda.now);
        let there = self.agenda.now + self.cycles(self.parameters.network.latency);
        self.agenda.at(there, Event::Acknowledged { from: node as u16, to: packet.from as u16 });
        Some(packet)
    }

    /// Takes the oldest acknowledgement that has come: the node that it is from.
    pub(super) fn take_acknowledgement(&mut self, node: usize) -> Option<usize> {
        let from = self.nodes[node].port.acknowledged.pop_front()?;
        self.leaves(Queue::Acknowledged(node as u16), 0, self.agenda.now);
        Some(from)
    }

    pub(super) fn acknowledged(&mut self, from: usize, to: usize) {
        let port = &mut self.nodes[to].port;
        port.outstanding[from] -= 1;
        port.acknowledged.push_back(from);
        self.leaves(Queue::Window(to as u16, from as u16), 0, self.agenda.now);
        self.enters(Queue::Acknowledged(to as u16), 0, self.agenda.now);
        self.tell_engines(to);
    }
}
