//! A PCIe link, packet by packet: two directions, what may pass what, tags and write credits.
//!
//! Each direction is a wire that carries one transaction-layer packet (TLP) at a time, in the order of the calls. So posted
//! writes never pass posted writes, and neither reads nor completions pass them. What may wait without being on the wire
//! is a read that has no tag, which everything else passes, and a posted write for which the root port has no credit,
//! which nothing behind it passes.

use std::collections::VecDeque;

use crate::credits::Credits;
use crate::parameters::PcieParameters;

pub mod chip;
mod pace;
mod tlp;
pub mod uncached;
pub mod write_combining;

pub use pace::Pace;
pub use tlp::{MOST_TLP, Pieces, Tlps, is_tlp_size};

/// A direction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the device to the root port: upstream.
    ToRoot,
    /// From the root port to the device: downstream.
    ToDevice,
}

/// What a TLP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlpKind {
    /// A memory write: nobody answers it.
    Posted,
    /// A memory read: completions answer it.
    Read,
    /// A completion with data.
    Completion,
}

/// What became of a TLP that the device sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on the wire, and at the root port at this time.
    Arrives(u64),
    /// It waits for a write credit of the root port, its own or that of a write before it:
    /// [`PcieLink::give_write_credit`] will name it.
    Waits,
}

/// What one direction of the link carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Memory writes.
    pub writes: u64,
    /// Memory reads.
    pub reads: u64,
    /// Completions.
    pub completions: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of the TLPs, data and framing included; acknowledgements and flow control are not.
    pub wire_bytes: u64,
}

/// A TLP that waits behind a write without a credit.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u32,
    kind: TlpKind,
    data_bytes: u32,
}

/// One direction's wire.
#[derive(Clone, Debug)]
struct Wire {
    pace: Pace,
    crossing: u64,
    counters: WireCounters,
}

impl Wire {
    fn send(&mut self, kind: TlpKind, data_bytes: u32, tlps: &Tlps, now: u64) -> u64 {
        let counter = match kind {
            TlpKind::Posted => &mut self.counters.writes,
            TlpKind::Read => &mut self.counters.reads,
            TlpKind::Completion => &mut self.counters.completions,
        };
        *counter += 1;
        let wire_bytes = u64::from(data_bytes) + tlps.overhead(kind);
        self.counters.data_bytes += u64::from(data_bytes);
        self.counters.wire_bytes += wire_bytes;
        self.pace.take(wire_bytes, now).1 + self.crossing
    }
}

/// A PCIe link between a root port and a device.
///
/// Calls are made in nondecreasing order of `now`. Times are picoseconds. A TLP has arrived when all of it has.
#[derive(Clone, Debug)]
pub struct PcieLink {
    tlps: Tlps,
    to_root: Wire,
    to_device: Wire,
    /// TLPs of the device behind a write without a credit, that write included, in their order.
    waiting: VecDeque<Waiting>,
    write_credits: Credits,
    tags: Credits,
}

impl PcieLink {
    /// An idle link.
    ///
    /// # Panics
    /// Where the parameters give no rate, no tag, no credit, or sizes that are not powers of two in order: see
    /// [`Tlps::new`].
    pub fn new(parameters: &PcieParameters) -> PcieLink {
        let p = parameters;
        assert!(p.link_layer_permille < 1000, "pcie.link_layer_permille is {}: nothing is left", p.link_layer_permille);
        // Megabits a second x permille = 1000 bits a second: a byte takes 8 x 10^12 / that picoseconds.
        let kilobits_per_second = p.megabits_per_second * u64::from(1000 - p.link_layer_permille);
        let pace = Pace::new(8_000_000_000, kilobits_per_second);
        let wire = Wire { pace, crossing: p.crossing, counters: WireCounters::default() };
        PcieLink {
            tlps: Tlps::new(p),
            to_root: wire.clone(),
            to_device: wire,
            waiting: VecDeque::new(),
            write_credits: Credits::new(p.posted_credits),
            tags: Credits::new(p.tags),
        }
    }

    /// How accesses are cut into TLPs on this link.
    pub fn tlps(&self) -> &Tlps {
        &self.tlps
    }

    /// The device's tags: one for each piece of [`Tlps::reads`], taken before [`PcieLink::request_read`] and given back
    /// when the last completion is there. A read that waits for one is passed by everything.
    pub fn tags(&mut self) -> &mut Credits {
        &mut self.tags
    }

    /// The tags, for their counters.
    pub fn read_tags(&self) -> &Credits {
        &self.tags
    }

    /// The device writes: one TLP, a piece of [`Tlps::writes`], of `data_bytes` as [`Tlps::data_bytes`] counts them. It
    /// takes a write credit, which [`PcieLink::give_write_credit`] gives back. `id` names it if it has to wait.
    pub fn post_write(&mut self, data_bytes: u32, id: u32, now: u64) -> Sent {
        self.send_to_root(Waiting { id, kind: TlpKind::Posted, data_bytes }, now)
    }

    /// The device asks for a piece of [`Tlps::reads`], for which it holds a tag.
    pub fn request_read(&mut self, id: u32, now: u64) -> Sent {
        self.send_to_root(Waiting { id, kind: TlpKind::Read, data_bytes: 0 }, now)
    }

    /// The device answers a core's read of a register.
    pub fn complete_register_read(&mut self, data_bytes: u32, id: u32, now: u64) -> Sent {
        self.send_to_root(Waiting { id, kind: TlpKind::Completion, data_bytes }, now)
    }

    /// The root port has passed a write on, and has room for another: `sent` is told of every waiting TLP that is on the
    /// wire now, with its `id` and its arrival at the root port.
    ///
    /// # Panics
    /// Where no write holds a credit.
    pub fn give_write_credit(&mut self, now: u64, mut sent: impl FnMut(u32, u64)) {
        // Writes queue here and not for the credit, because reads and completions queue with them.
        self.write_credits.give(now);
        while let Some(&next) = self.waiting.front() {
            if next.kind == TlpKind::Posted && !self.write_credits.try_take(now) {
                break;
            }
            self.waiting.pop_front();
            sent(next.id, self.to_root.send(next.kind, next.data_bytes, &self.tlps, now));
        }
    }

    /// Credits of the root port's writes, for their counters.
    pub fn write_credits(&self) -> &Credits {
        &self.write_credits
    }

    /// TLPs of the device that wait for a write credit.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn send_to_root(&mut self, tlp: Waiting, now: u64) -> Sent {
        let blocked = !self.waiting.is_empty() || tlp.kind == TlpKind::Posted && !self.write_credits.try_take(now);
        if blocked {
            self.waiting.push_back(tlp);
            return Sent::Waits;
        }
        Sent::Arrives(self.to_root.send(tlp.kind, tlp.data_bytes, &self.tlps, now))
    }

    /// A core writes to the device, one TLP; says when it is at the device. `now` is the time at the root port.
    pub fn post_register_write(&mut self, data_bytes: u32, now: u64) -> u64 {
        self.to_device.send(TlpKind::Posted, data_bytes, &self.tlps, now)
    }

    /// A core reads a register of the device; says when the request is at the device. `now` is the time at the root port.
    pub fn request_register_read(&mut self, now: u64) -> u64 {
        self.to_device.send(TlpKind::Read, 0, &self.tlps, now)
    }

    /// The root port answers a read of the device, a piece of [`Tlps::reads`], whose data are there at `now`; says when the
    /// last completion is at the device. `each` is told of every completion's address and arrival.
    pub fn complete(&mut self, address: u64, bytes: u64, now: u64, mut each: impl FnMut(u64, u64)) -> u64 {
        let mut arrival = now;
        for (at, bytes) in self.tlps.completions(address, bytes) {
            let data_bytes = Tlps::data_bytes(at, bytes);
            arrival = self.to_device.send(TlpKind::Completion, data_bytes, &self.tlps, now);
            each(at, arrival);
        }
        arrival
    }

    /// From when on a direction's wire takes another TLP: its backlog, if that is later than now.
    pub fn free_from(&self, way: Way) -> u64 {
        self.wire(way).pace.busy_until()
    }

    /// What a direction carried.
    pub fn counters(&self, way: Way) -> WireCounters {
        self.wire(way).counters
    }

    /// Time that a TLP of so many bytes, overhead included, takes on the wire, in picoseconds.
    pub fn wire_time(&self, wire_bytes: u64) -> u64 {
        self.to_root.pace.time_of(wire_bytes)
    }

    fn wire(&self, way: Way) -> &Wire {
        match way {
            Way::ToRoot => &self.to_root,
            Way::ToDevice => &self.to_device,
        }
    }
}

#[cfg(test)]
mod tests;
