//! Programmed I/O over PCIe: the device's memory is mapped, the host stores and loads it itself ("Rethinking Programmed I/O for
//! Fast Devices, Cheap Cores, and Coherent Interconnects", sections 3 and 5.2).
//!
//! Stores are posted and gathered into whole lines; each load waits for the one before it, and for the device. Two protocols:
//!
//! | file | what |
//! |---|---|
//! | `call.rs` | a function is called by storing its argument and loading its result |
//! | `host.rs`, `nic.rs` | a NIC with its packet buffer on the device, and a descriptor register for each direction |
//! | `control.rs` | the control words |
//!
//! # Memory of a call
//!
//! | what | mapped | written by | read by | synchronising words |
//! |---|---|---|---|---|
//! | request: control word, payload | write-combining | host | device | word 0 of the first line |
//! | response: control word, payload | write-combining | device | host | words 0 and 1 of the first line |
//!
//! # Memory of a NIC
//!
//! | register or buffer | mapped | written by | read by | synchronising words |
//! |---|---|---|---|---|
//! | receive descriptor: turn and length of the oldest frame that was not acknowledged | uncached | device | host | words 0 and 1 |
//! | receive acknowledgement: the last turn that was read | uncached | host | device | word 0 |
//! | transmit descriptors, one for each slot: turn and length of its frame | uncached | host | device | all |
//! | transmit count: the last turn that was taken | uncached | device | host | words 0 and 1 |
//! | receive and transmit slots, a frame each | write-combining | device; host | host; device | none |
//!
//! Turn `t`'s frame lies in slot `t` modulo the slots; the first turn is 1, so that fresh memory, all zeroes, is no frame.
//!
//! # Who owns a slot
//!
//! | ring | from | until | owner |
//! |---|---|---|---|
//! | receive | the acknowledgement of its turn (at first: always) | the descriptor that shows its next turn | device |
//! | receive | that | its acknowledgement | host |
//! | transmit | a count that has reached its turn (at first: always) | the descriptor of its next turn | host |
//! | transmit | that | the count reaches it | device |
//!
//! # Visibility
//!
//! | step | announces it | makes visible | to |
//! |---|---|---|---|
//! | call | request's control word, after a fence | the payload behind it | the device that acquires it |
//! | answer | response's control word, with word 1 | the payload | the host's load of both |
//! | frame in | receive descriptor | the slot's bytes | the host's load |
//! | frame read | receive acknowledgement | that the host's loads of the slot are done: it has their values | the device |
//! | frame out | transmit descriptor, after a fence | the slot's bytes | the device |
//! | frame taken | transmit count | that the slot was read | the host, which looks only when it is short of slots |
//!
//! Where a load's answer can be withheld ([`conic_fabric::DeviceMemory::withhold`]) the load of a control word or receive descriptor waits at the
//! device until there is something, and no longer than the device's patience: then it is answered with the old word, which says
//! "not yet". The words say turns, so an old one is never taken for a new one, and a load that is repeated finds the same.
//!
//! # Trust
//!
//! Neither side trusts the other: each word is read once, turns and lengths are checked, and what fails is counted and ignored.

mod call;
mod control;
mod host;
mod nic;

pub use call::{Call, CallError, CallShape, CallWindow, Callee};
pub use host::{Host, HostStatistics, TransmitError};
pub use nic::{Nic, NicStatistics, NoSlot};

use std::fmt;

use conic_fabric::{Address, Core, DeviceMemory, Home, LINE_BYTES, Layout, MemoryType, SynchronisingWords};

/// The control word and what a load of 16 bytes sees with it.
const PAIR: SynchronisingWords = SynchronisingWords(0b11);

/// The size of a NIC's packet buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Slots of each direction, a power of two from 1 to 4096.
    pub slots: u32,
    /// Bytes of a slot, a multiple of 64 from 64 to 65536: the longest frame.
    pub slot_bytes: u64,
    /// How the registers are mapped: uncached, or write-back where they are lines of memory.
    pub registers: MemoryType,
    /// How the slots are mapped: write-combining, or write-back.
    pub buffer: MemoryType,
}

impl Default for Shape {
    /// 16 slots for jumbo frames, behind PCIe.
    fn default() -> Shape {
        Shape { slots: 16, slot_bytes: 9664, registers: MemoryType::Uncached, buffer: MemoryType::WriteCombining }
    }
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The number of slots is no power of two from 1 to 4096.
    Slots(u32),
    /// The size of a slot, or of a call's window, is no multiple of 64 from 64 to 131072.
    Bytes(u64),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Slots(slots) => write!(f, "there is a power of two of slots, from 1 to 4096, not {slots}"),
            ShapeError::Bytes(bytes) => {
                write!(f, "a slot or window has a multiple of 64 bytes, from 64 to {MOST_BYTES}, not {bytes}")
            }
        }
    }
}

impl std::error::Error for ShapeError {}

/// Bytes of the largest slot or window.
const MOST_BYTES: u64 = 1 << 17;

fn check_bytes(bytes: u64) -> Result<(), ShapeError> {
    let sound = bytes.is_multiple_of(LINE_BYTES) && (LINE_BYTES..=MOST_BYTES).contains(&bytes);
    if sound { Ok(()) } else { Err(ShapeError::Bytes(bytes)) }
}

impl Shape {
    /// Appends a NIC's registers and slots to a layout.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(&self, layout: &mut Layout) -> Result<NicWindow, ShapeError> {
        if !self.slots.is_power_of_two() || self.slots > 4096 {
            return Err(ShapeError::Slots(self.slots));
        }
        check_bytes(self.slot_bytes)?;
        let mut register = |name: &str, words| {
            // A line apart, and never two in a pair of lines that is fetched together.
            layout.add_mapped(name, 2 * LINE_BYTES, Home::Nic, self.registers, words)
        };
        let receive = register("pcie-pio receive descriptor", PAIR);
        let acknowledged = register("pcie-pio receive acknowledgement", SynchronisingWords::FIRST);
        let taken = register("pcie-pio transmit count", PAIR);
        let bytes = 8 * u64::from(self.slots);
        let transmit = layout.add_registers("pcie-pio transmit descriptors", bytes, Home::Nic, self.registers);
        let bytes = u64::from(self.slots) * self.slot_bytes;
        let mut slots = |name: &str| layout.add_mapped(name, bytes, Home::Nic, self.buffer, SynchronisingWords::NONE);
        let (receive_slots, transmit_slots) = (slots("pcie-pio receive slots"), slots("pcie-pio transmit slots"));
        Ok(NicWindow { shape: *self, receive, acknowledged, transmit, taken, receive_slots, transmit_slots })
    }
}

/// Where a NIC's registers and slots lie; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicWindow {
    shape: Shape,
    receive: Address,
    acknowledged: Address,
    transmit: Address,
    taken: Address,
    receive_slots: Address,
    transmit_slots: Address,
}

impl NicWindow {
    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The host half, on fresh memory, all zeroes. There must be one.
    pub fn host<C: Core>(&self, core: C) -> Host<C> {
        Host::new(*self, core)
    }

    /// The device half, on fresh memory. There must be one.
    pub fn nic<D: DeviceMemory>(&self, device: D) -> Nic<D> {
        Nic::new(*self, device)
    }

    /// The transmit descriptor of a turn.
    fn descriptor(&self, turn: u32) -> Address {
        self.transmit.word((turn % self.shape.slots) as usize)
    }

    fn slot(&self, slots: Address, turn: u32) -> Address {
        slots + u64::from(turn % self.shape.slots) * self.shape.slot_bytes
    }
}
