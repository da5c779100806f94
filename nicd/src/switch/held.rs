//! Ports that wait where the way to another thread is nearly full.
//!
//! What a port has not given yet is lost nowhere: it lies in the kernel's queues or a peer's ring, and their sender is slowed. So a port whose
//! frames go by a trunk is asked for the next one only where that has room for the longest, whose 64 KiB are a sixteenth of a ring. The other
//! thread takes what is there with each of its steps and waits for nobody, so that nobody waits in a circle.
//!
//! Clients' frames are lost where there is no room, as in every switch. While a port waits, ports and clients have turns, of a quarter
//! of the ring each: without, whoever looks first would have all that comes free.
//!
//! | turn | ports | clients | ends |
//! |---|---|---|---|
//! | everybody's | any room | any room | a port finds none |
//! | ports' | any room | leave a quarter of the ring | ports have put a quarter |
//! | clients' | wait | any room | clients have put a quarter, or nothing since a port looked last |
//!
//! It is everybody's again at the next audit that finds room.

use conic_fabric::Core;
use conic_port::MAX_FRAME;
use conic_port::offload::segment::LONGEST;

use super::{PortEnd, Switch};

/// Whose turn it is to put frames on a trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// No port waits.
    #[default]
    Everybody,
    /// Ports', for so many lines more.
    Ports { left: u64 },
    /// Clients', who have put so many lines, and had put so many when a port looked last.
    Clients { put: u64, seen: u64 },
}

impl Turn {
    /// A port looks whether it may put a frame, on a way whose turns are so many lines long.
    pub fn look(self, has_room: bool, length: u64) -> Turn {
        match self {
            Turn::Everybody if has_room => Turn::Everybody,
            Turn::Ports { left: 0 } => Turn::Clients { put: 0, seen: 0 },
            Turn::Ports { left } => Turn::Ports { left },
            Turn::Clients { put, seen } if put > seen && put < length => Turn::Clients { put, seen: put },
            Turn::Everybody | Turn::Clients { .. } => Turn::Ports { left: length },
        }
    }

    /// A port has put so many lines.
    pub fn port_has_put(&mut self, lines: u64) {
        if let Turn::Ports { left } = self {
            *left = left.saturating_sub(lines);
        }
    }

    /// A client has.
    #[inline(always)]
    pub fn client_has_put(&mut self, lines: u64) {
        if let Turn::Clients { put, .. } = self {
            *put += lines;
        }
    }
}

impl PortEnd {
    /// The longest frame that it may give, in bytes; unfinished packets are longer, where anybody here takes them.
    pub fn longest(&self, has_unfinished: bool) -> usize {
        if has_unfinished && self.takes_unfinished { LONGEST } else { MAX_FRAME }
    }
}

impl<C: Core> Switch<C> {
    /// Whether a port waits with its next frame, because the way that its frames have gone by lately may lack room for it.
    pub(super) fn is_held_back(&mut self, port: usize) -> bool {
        let end = &self.ports[port];
        let Some(trunk) = end.across else { return false };
        let longest = end.longest(self.has_unfinished);
        !self.trunks[trunk].lets_port(longest)
    }

    /// Forgets which ports have sent to other threads, and whose turn it is, where there is room.
    pub(super) fn forget_held(&mut self) {
        for end in &mut self.ports {
            let longest = end.longest(self.has_unfinished);
            end.across = end.across.filter(|&trunk| !self.trunks[trunk].has_room_for(longest));
        }
        for (number, trunk) in self.trunks.iter_mut().enumerate() {
            if self.ports.iter().all(|end| end.across != Some(number)) {
                trunk.turn = Turn::Everybody;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_clients_have_turns_while_one_waits() {
        let mut turn = Turn::Everybody.look(true, 10);
        assert_eq!(turn, Turn::Everybody);
        turn = turn.look(false, 10);
        turn.client_has_put(99);
        turn.port_has_put(4);
        assert_eq!(turn.look(true, 10), Turn::Ports { left: 6 });
        turn.port_has_put(7);
        turn = turn.look(true, 10);
        assert_eq!(turn, Turn::Clients { put: 0, seen: 0 });
        turn.port_has_put(3);
        turn.client_has_put(3);
        turn = turn.look(true, 10);
        assert_eq!(turn, Turn::Clients { put: 3, seen: 3 });
        // They put nothing more, or all that they may.
        assert_eq!(turn.look(true, 10), Turn::Ports { left: 10 });
        turn.client_has_put(6);
        assert_eq!(turn.look(false, 10), Turn::Clients { put: 9, seen: 9 });
        turn.client_has_put(1);
        assert_eq!(turn.look(false, 10), Turn::Ports { left: 10 });
    }
}
