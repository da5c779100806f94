//! What drives packets through an interface, whichever side it stands on.

use conic_fabric::Time;

use crate::Account;

/// A program that sends packets and takes them back.
pub trait Traffic {
    /// Sends what it may, takes what has come, and returns how many came; spins where neither was possible.
    fn step(&mut self) -> usize;
    /// What became of its packets.
    fn account(&self) -> &Account;
    /// The same, to forget a warm-up's latencies.
    fn account_mut(&mut self) -> &mut Account;
    /// Makes an open loop of it: packets are due one `interval` after the other from `start` on, whatever became of those
    /// before, and latency counts from then. The window still bounds what is in flight; what it holds back is late, and
    /// its latency says so. Packets that were sent before were not due at any time. From [`Time::NEVER`] on none is due: nothing
    /// more is sent, and what is under way comes.
    fn pace(&mut self, start: Time, interval: Time);
}
