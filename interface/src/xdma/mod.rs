//! Transfers by a device's copy engines from descriptor lists in the host's memory, as the XDMA engines of an FPGA and their driver do
//! ("Rethinking Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects", sections 3 and 5: the DMA that it
//! compares with). A call transfers one message and returns when the engine has reported it: by a word in memory that the
//! driver polls, or by an interrupt.
//!
//! | file | what |
//! |---|---|
//! | `driver.rs` | the driver: a call from its entry to its return |
//! | `engine.rs` | the device's engines |
//!
//! # Memory of an engine; there is one for each direction
//!
//! | what | home | written by | read by | synchronising words |
//! |---|---|---|---|---|
//! | list register: where the descriptors begin | device, uncached | host | device | word 0 |
//! | run register: transfer, descriptors | device, uncached | host | device | word 0 |
//! | status register: last transfer that is done, and its length | device, uncached | device | host | words 0 and 1 |
//! | descriptors, 32 bytes each | host | host | device | none |
//! | report: last transfer that is done, and its length | host | device | host | word 0 |
//! | message of the interrupt: the same | host | device | host | word 0 |
//! | buffer, in pages | host | host, or device | the other | none |
//! | structures of the kernel | host | host | host | none |
//!
//! # A descriptor: 32 bytes
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 48 to 63 | `0xad4b` |
//! | 0 | 32 to 47 | descriptors that follow |
//! | 0 | 0 to 31 | bytes |
//! | 1 | all | address in the host's buffer |
//! | 2 | all | the transfer's number |
//! | 3 | all | 0 |
//!
//! # Who owns descriptors and buffer
//!
//! | from | until | owner |
//! |---|---|---|
//! | the report of the transfer before (at first: always) | the store to the run register | host |
//! | that | the report of this transfer | device |
//!
//! # Visibility
//!
//! | step | announces it | makes visible | to |
//! |---|---|---|---|
//! | the driver starts an engine | run register | list register, descriptors and, towards the device, the buffer | the device that acquires it |
//! | the engine is done | report, or the interrupt's message after it | the buffer from the device, and that descriptors and buffer were read | the driver that acquires it |
//!
//! The engine's writes are posted and stay in order, so data are there before the report, and that before the message. One
//! transfer is under way in each direction: the stock driver's calls wait for theirs.
//!
//! # Trust
//!
//! The device does not trust the host: numbers, magic, lengths and addresses are checked in 64-bit arithmetic, and a transfer that fails
//! a check is reported with the length `REFUSED`; a run register whose number is not the next transfer's starts none, and is counted.
//! The driver checks what is reported.

mod driver;
mod engine;

pub use driver::{Driver, DriverStatistics, TransferError};
pub use engine::{Engine, EngineStatistics, Fetched};

use std::fmt;

use conic_fabric::{Address, Core, DeviceMemory, Home, LINE_BYTES, Layout, MemoryType, SynchronisingWords};

/// Bytes of a page, which a descriptor's buffer does not cross.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 32;

/// What a descriptor begins with.
const MAGIC: u64 = 0xad4b;

/// The length that is reported where a transfer was refused.
const REFUSED: u64 = 0xffff_ffff;

/// Which way an engine copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the host to the device: `write` of a character device.
    ToDevice,
    /// From the device to the host: `read`.
    ToHost,
}

/// How the driver hears that a transfer is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Completion {
    /// It polls the report.
    Polled,
    /// It sleeps until an interrupt, whose handler reads the status register.
    Interrupt,
}

/// What the kernel does around a transfer: lines of its structures that it walks, and its work with each.
///
/// It pins the pages of the caller's buffer, maps them for the device, builds a list, queues a request, and undoes all of that. The
/// structures were last used long ago, or by another core: each line is found in memory. A structure has two lines, of which the first
/// points to the next structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Lines from the call's entry to the engine's start.
    pub call_lines: u32,
    /// Further lines for each page.
    pub page_lines: u32,
    /// Lines from the report to the call's return.
    pub completion_lines: u32,
    /// Work with each line, as [`Core::work`] counts it.
    pub line_work: u32,
    /// Work from an interrupt's message until the sleeper runs again.
    pub interrupt_work: u32,
}

impl Overhead {
    /// Lines of structures that so many calls of so many bytes walk without coming to one again; as many as there may be.
    pub fn lines(&self, calls: u64, bytes: u64) -> u64 {
        let pages = bytes.div_ceil(PAGE_BYTES) * u64::from(self.page_lines);
        let lines = calls * (u64::from(self.call_lines) + u64::from(self.completion_lines) + pages);
        lines.next_multiple_of(2).clamp(2, 1 << 24)
    }
}

/// From one of the kernel's structures to the next: two lines, and as many of something else behind them, so that what a prefetcher
/// brings from beyond a structure is none that is walked later.
const STRUCTURE_BYTES: u64 = 4 * LINE_BYTES;

/// The size of an engine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the longest transfer, from 1 to 1 MiB.
    pub bytes: u64,
    /// Lines of the kernel's structures, which the driver walks round and round: an even number, at least 2.
    pub structure_lines: u64,
    /// How the registers are mapped.
    pub registers: MemoryType,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// A transfer has no byte, or more than 1 MiB.
    Bytes(u64),
    /// There are no lines of structures, more than 2^24, or an odd number.
    Structures(u64),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Bytes(bytes) => write!(f, "a transfer has 1 to {MOST_BYTES} bytes, not {bytes}"),
            ShapeError::Structures(lines) => {
                write!(f, "there is an even number of lines of structures, from 2 to 2^24, not {lines}")
            }
        }
    }
}

impl std::error::Error for ShapeError {}

const MOST_BYTES: u64 = 1 << 20;

impl Shape {
    /// Appends an engine's registers and memory to a layout.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(&self, direction: Direction, layout: &mut Layout) -> Result<Channel, ShapeError> {
        if !(1..=MOST_BYTES).contains(&self.bytes) {
            return Err(ShapeError::Bytes(self.bytes));
        }
        if !(2..=1 << 24).contains(&self.structure_lines) || !self.structure_lines.is_multiple_of(2) {
            return Err(ShapeError::Structures(self.structure_lines));
        }
        let mut register = |name: &str, words| {
            // A line apart, and never two in a pair of lines that is fetched together.
            layout.add_mapped(name, 2 * LINE_BYTES, Home::Nic, self.registers, words)
        };
        let list = register("xdma list register", SynchronisingWords::FIRST);
        let run = register("xdma run register", SynchronisingWords::FIRST);
        let status = register("xdma status register", SynchronisingWords(0b11));
        let (home, none) = (Home::Host, SynchronisingWords::NONE);
        let pages = self.bytes.div_ceil(PAGE_BYTES);
        let report = layout.add("xdma report", 2 * LINE_BYTES, 2 * LINE_BYTES, home, SynchronisingWords::FIRST);
        let message = layout.add("xdma interrupt", 2 * LINE_BYTES, 2 * LINE_BYTES, home, SynchronisingWords::FIRST);
        let descriptors = layout.add("xdma descriptors", pages * DESCRIPTOR_BYTES, PAGE_BYTES, home, none);
        let buffer = layout.add("xdma buffer", pages * PAGE_BYTES, PAGE_BYTES, home, none);
        let structures = self.structure_lines / 2 * STRUCTURE_BYTES;
        let structures = layout.add("kernel structures", structures, PAGE_BYTES, home, none);
        Ok(Channel { shape: *self, direction, list, run, status, report, message, descriptors, buffer, structures })
    }
}

/// Where an engine's memory lies; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    shape: Shape,
    direction: Direction,
    list: Address,
    run: Address,
    status: Address,
    report: Address,
    message: Address,
    descriptors: Address,
    buffer: Address,
    structures: Address,
}

impl Channel {
    /// The driver's half, on fresh memory, all zeroes. There must be one.
    pub fn driver<C: Core>(&self, core: C, completion: Completion, overhead: Overhead) -> Driver<C> {
        Driver::new(*self, core, completion, overhead)
    }

    /// The engine, on fresh memory. There must be one.
    pub fn engine<D: DeviceMemory>(&self, device: D, completion: Completion) -> Engine<D> {
        Engine::new(*self, device, completion)
    }

    /// Descriptors of the longest transfer.
    fn pages(&self) -> u64 {
        self.shape.bytes.div_ceil(PAGE_BYTES)
    }
}

/// A transfer's number and another number of at most 32 bits, in a word.
fn word(transfer: u32, number: u64) -> u64 {
    u64::from(transfer) << 32 | number
}
