//! The PCIe-style interface: descriptor rings with head and tail registers, buffers managed by the host alone (CC-NIC
//! section 2.1; descriptors and their handling after the Intel E810).
//!
//! Over coherent memory it is the paper's "unoptimised" baseline: each register is a line. Over PCIe the same code runs
//! with the host's registers in device memory. The host half is written against [`conic_fabric::Core`], the device half
//! against [`conic_fabric::Device`], with split reads, so that descriptors and payloads are fetched at the same time.
//!
//! # Memory of one queue pair
//!
//! | what | home | written by | read by | synchronising words |
//! |---|---|---|---|---|
//! | TX tail register | device | host | device | word 0 |
//! | RX head register | device | host | device | word 0 |
//! | TX head register | host | device | host | word 0 |
//! | RX tail register | host | device | host | word 0 |
//! | TX ring, four descriptors a line | host | host | device | none |
//! | RX ring, four descriptors a line | host | host, then device | device, then host | none; with [`RxSignal::DescriptorDone`] word 0 of each descriptor |
//! | buffers | host | host on transmit, device on receive | the other | none |
//! | metadata in front of them, with [`Shape::metadata`] | host | host | host | none |
//!
//! Registers hold ring indexes, as the paper names them: the host moves the TX tail (packets to send) and the RX head
//! (blank buffers), the device the TX head (packets sent) and the RX tail (packets received). A ring whose two indexes
//! are equal has nothing in it, so one descriptor of each ring stays unused.
//!
//! # Descriptors: 16 bytes
//!
//! | descriptor | word 0 | word 1 |
//! |---|---|---|
//! | TX | address of the payload, or of a segment of it | bits 0 to 31: its length in bytes; bit 32 set: the packet goes on in the next descriptor; other bits 0 |
//! | RX, posted | address of a blank buffer, bit 0 clear | 0 |
//! | RX, written back | bit 0 set: done; bits 32 to 63: length in bytes, 0 if the device refused the buffer | unchanged |
//!
//! # Packets of several segments
//!
//! A packet is one TX descriptor, or up to [`crate::ccnic::MAX_SEGMENTS`], whose bytes follow each other; together they have at most
//! [`Shape::longest_packet`]. By [`crate::burst::HostQueue::tx_burst`] the host sends segments of two kinds (CC-NIC section 5.7: a
//! header in a buffer, and the object where it lies):
//!
//! | segment | lies | when it was sent |
//! |---|---|---|
//! | a buffer, or a part of one | in the buffers | the buffer returns to the pool by itself, whole; so one part of it is given, and others retained |
//! | retained ([`crate::ccnic::Flags::RETAIN`]) | in the buffers, or in the program's objects ([`QueuePair::with_objects`]) | it is the program's as before: it never enters the pool, and its metadata are not touched |
//!
//! Nobody is told when a retained segment has been read. The device reads it until the TX head passes it, at any time and in any order:
//! a program that changes it before then must bear it that a mixture of old and new bytes is sent, or let the receiver find that
//! out, as by a checksum or by a version in front of the object and behind it.
//!
//! A packet is given to the device whole, so it needs as many free descriptors; one of as many segments as the ring has descriptors
//! is never taken. A TX tail thus always stands between two packets, and the device refuses a packet that ends with it and was to go on.
//!
//! # Metadata in a buffer
//!
//! [`crate::buffer_metadata`] says what they are and when the host touches them; here they are a part of the buffer.
//!
//! # Who owns a descriptor and its buffer
//!
//! | ring | from | until | owner |
//! |---|---|---|---|
//! | TX | the device's store of a TX head that passes it (at first: always) | the host's store of a TX tail that passes it | host |
//! | TX | that | the store of the TX head that passes it | device |
//! | RX | the host's store of an RX head that passes it | the store of the RX tail that passes it (or of its done bit) | device |
//! | RX | that (at first: always) | the next store of an RX head that passes it | host |
//!
//! # Visibility
//!
//! | step | announces it | makes visible | to |
//! |---|---|---|---|
//! | `tx_burst` | TX tail, once a burst | descriptors and payloads | the device that reads the tail |
//! | device `flush` | TX head, once a burst | that payloads and descriptors were read | the host that reads the head, only when it is short of descriptors or buffers |
//! | `rx_burst`, refilling | RX head, once per `rx_refill_threshold` buffers | descriptors with blank buffers | the device that reads the head, when it has none left |
//! | device `flush` | RX tail, once a burst (or the done bit, once a packet) | payloads and written-back descriptors | the host that reads it |
//!
//! # Allowed and forbidden
//!
//! | move | |
//! |---|---|
//! | read a descriptor beyond what its register announced | forbidden, both sides |
//! | free or reuse a sent buffer before the TX head passed it | forbidden, host |
//! | change a retained segment before the TX head passed it | allowed, host, if what is sent then may be a mixture |
//! | announce a packet without its last segment | forbidden, host |
//! | take a buffer from the pool | forbidden to the device: it only ever uses buffers that were posted to it |
//! | move the TX head past a payload, or a segment of one, before its read has finished | forbidden, device |
//! | deliver out of order, or leave a hole | forbidden, device: a refused RX descriptor is written back with length 0 |
//! | keep stale copies of the other side's registers | allowed, both sides |
//! | post fewer buffers than the ring holds | allowed, host: the device then reports no buffer |
//!
//! # Trust
//!
//! The device does not trust the host: each register and each descriptor word is read once into a local and checked in
//! 64-bit arithmetic, and what fails is skipped and counted in [`Refusals`]: of a packet of several segments all of it, and once. The
//! host checks the device's registers and lengths too.

mod buffers;
mod burst;
mod device;
mod host;
mod pool;
mod segments;

pub(crate) use buffers::Buffers;
pub use burst::{DeviceHalf, Wire};
pub use device::{Nic, NoBuffer, Refusals};
pub use host::{Buffer, Host, HostStatistics};
pub use pool::PoolOrder;
pub(crate) use segments::Sources;
pub use segments::{Chain, Refused, Verdict, segment_of};

use std::fmt;

use conic_fabric::{Address, Core, Device, Home, LINE_BYTES, Layout, MemoryType, StateHint, SynchronisingWords};

use crate::buffer_metadata;

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: u64 = 16;

/// Registers lie this far apart, in bytes: a line each, and never two in a pair of lines that is fetched together.
const REGISTER_SPACING: u64 = 128;

/// Bit of word 1 of a TX descriptor whose packet goes on in the next one.
const MORE: u64 = 1 << 32;
/// Bit of a written-back RX descriptor that says it is one.
const DONE: u64 = 1;
/// Where the length of a written-back RX descriptor starts.
const LENGTH_SHIFT: u32 = 32;

/// How the device tells the host that a packet arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RxSignal {
    /// By moving the RX tail register (the paper's description).
    Register,
    /// By the done bit of the descriptor that it writes back (what E810 drivers poll).
    DescriptorDone,
}

/// The size of a queue pair and how it signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Descriptors of each ring, a power of two of at least 2; one of them stays unused.
    pub descriptors: u64,
    /// Buffers, at least as many as descriptors.
    pub buffers: u64,
    /// Bytes of a buffer, a multiple of 64: the largest packet, and the metadata.
    pub buffer_bytes: u64,
    /// A buffer begins with metadata of the host's ([`crate::buffer_metadata`]), and the payload is behind them.
    pub metadata: bool,
    /// In which order the host takes free buffers.
    pub pool_order: PoolOrder,
    /// The host looks for sent packets when fewer TX descriptors than this are free.
    pub tx_reclaim_threshold: u64,
    /// The host posts blank buffers when this many are missing.
    pub rx_refill_threshold: u64,
    /// How the device tells the host that a packet arrived.
    pub rx_signal: RxSignal,
    /// What the registers are that the host writes: lines of coherent memory, or device memory.
    pub host_written_registers: MemoryType,
    /// Where the device wants the payloads it writes.
    pub payload_hint: StateHint,
    /// The host asks for the first line of each payload by an instruction before it reads it.
    pub fetch_ahead: bool,
    /// Bytes of payload that the device asks for ahead of the packet it works on.
    pub read_ahead_bytes: u64,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The number of descriptors is not a power of two from 2 to 65536.
    Descriptors(u64),
    /// There are fewer buffers than descriptors, or more than 2^24.
    Buffers(u64),
    /// The size of a buffer is not a multiple of 64 from 64, or with metadata from 384, to 65536.
    BufferBytes(u64),
    /// No buffer holds a packet of this size.
    PacketBytes(u64),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Descriptors(descriptors) => {
                write!(f, "a ring has a power of two of descriptors, from 2 to 65536, not {descriptors}")
            }
            ShapeError::Buffers(buffers) => {
                write!(f, "a queue pair has at least as many buffers as descriptors, and at most 2^24, not {buffers}")
            }
            ShapeError::BufferBytes(bytes) => {
                write!(f, "a buffer has a multiple of 64 bytes, from 64 (384 with metadata) to 65536, not {bytes}")
            }
            ShapeError::PacketBytes(bytes) => {
                write!(f, "a packet has 1 to {} bytes, not {bytes}", Shape::MAX_PACKET_BYTES)
            }
        }
    }
}

impl std::error::Error for ShapeError {}

impl Default for Shape {
    /// 256 descriptors, 768 buffers of 2 KiB, thresholds of 32 as DPDK drivers have them, registers in coherent memory.
    fn default() -> Shape {
        Shape {
            descriptors: 256,
            buffers: 768,
            buffer_bytes: 2048,
            metadata: false,
            pool_order: PoolOrder::LastFirst,
            tx_reclaim_threshold: 32,
            rx_refill_threshold: 32,
            rx_signal: RxSignal::Register,
            host_written_registers: MemoryType::WriteBack,
            payload_hint: StateHint::NonCacheablePush,
            fetch_ahead: true,
            read_ahead_bytes: 16 << 10,
        }
    }
}

impl Shape {
    /// The largest packet: a jumbo frame.
    pub const MAX_PACKET_BYTES: u64 = 9600;

    /// The default shape with buffers for packets of up to `bytes` bytes: 2 KiB, 4 KiB, or 9600 bytes.
    ///
    /// # Errors
    ///
    /// If `bytes` is 0 or more than [`Shape::MAX_PACKET_BYTES`].
    pub fn for_packets(bytes: u64) -> Result<Shape, ShapeError> {
        let buffer_bytes = match bytes {
            1..=2048 => 2048,
            2049..=4096 => 4096,
            4097..=Self::MAX_PACKET_BYTES => Self::MAX_PACKET_BYTES,
            _ => return Err(ShapeError::PacketBytes(bytes)),
        };
        Ok(Shape { buffer_bytes, ..Shape::default() })
    }

    /// The same with metadata in front of packets of up to `bytes` bytes, in larger buffers where both do not fit: a buffer of 4 KB is
    /// that with its metadata, and the next one begins where it ends (CC-NIC section 3.3 divides one into 32 of 128 bytes).
    pub fn with_metadata(self, bytes: u64) -> Shape {
        let buffer_bytes = self.buffer_bytes.max((buffer_metadata::BYTES + bytes).next_multiple_of(LINE_BYTES));
        Shape { buffer_bytes, metadata: true, ..self }
    }

    /// The same with metadata in front of packets of up to `bytes` bytes, or of what a buffer had room for before, in buffers that lie as
    /// those of a DPDK pool do: an odd number of lines apart, so that they share no few sets of a cache (`rte_mempool` pads its
    /// elements until their lines have no divisor in common with the memory's channels and ranks).
    pub fn with_pooled_metadata(self, bytes: u64) -> Shape {
        let lines = (buffer_metadata::BYTES + self.buffer_bytes.max(bytes)).div_ceil(LINE_BYTES) | 1;
        Shape { buffer_bytes: lines * LINE_BYTES, metadata: true, ..self }
    }

    /// Bytes of a buffer in front of its payload.
    #[inline(always)]
    fn metadata_bytes(&self) -> u64 {
        if self.metadata { buffer_metadata::BYTES } else { 0 }
    }

    /// Bytes of the largest packet that a buffer holds.
    #[inline(always)]
    pub fn room(&self) -> u64 {
        self.buffer_bytes - self.metadata_bytes()
    }

    /// Bytes of the longest packet that may be sent: one of several segments, or one from the program's objects, need not fit into a
    /// buffer.
    #[inline(always)]
    pub fn longest_packet(&self) -> u64 {
        Self::MAX_PACKET_BYTES.max(self.room())
    }

    /// Whether it can be.
    pub(crate) fn check(&self) -> Result<(), ShapeError> {
        if !self.descriptors.is_power_of_two() || !(2..=1 << 16).contains(&self.descriptors) {
            return Err(ShapeError::Descriptors(self.descriptors));
        }
        if !(self.descriptors..=1 << 24).contains(&self.buffers) {
            return Err(ShapeError::Buffers(self.buffers));
        }
        let least = LINE_BYTES + self.metadata_bytes();
        if !self.buffer_bytes.is_multiple_of(LINE_BYTES) || !(least..=1 << 16).contains(&self.buffer_bytes) {
            return Err(ShapeError::BufferBytes(self.buffer_bytes));
        }
        Ok(())
    }

    /// Appends a queue pair to a layout.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(&self, layout: &mut Layout) -> Result<QueuePair, ShapeError> {
        self.check()?;
        let ring_bytes = self.descriptors * DESCRIPTOR_BYTES;
        let rx_words = match self.rx_signal {
            RxSignal::Register => SynchronisingWords::NONE,
            RxSignal::DescriptorDone => SynchronisingWords::EVERY_DESCRIPTOR,
        };
        let host_written = self.host_written_registers;
        let coherent = MemoryType::WriteBack;
        Ok(QueuePair {
            shape: *self,
            tx_tail: layout.add_registers("ring TX tail", REGISTER_SPACING, Home::Nic, host_written),
            rx_head: layout.add_registers("ring RX head", REGISTER_SPACING, Home::Nic, host_written),
            tx_head: layout.add_registers("ring TX head", REGISTER_SPACING, Home::Host, coherent),
            rx_tail: layout.add_registers("ring RX tail", REGISTER_SPACING, Home::Host, coherent),
            tx_ring: layout.add("ring TX descriptors", ring_bytes, 128, Home::Host, SynchronisingWords::NONE),
            rx_ring: layout.add("ring RX descriptors", ring_bytes, 128, Home::Host, rx_words),
            buffers: layout.add(
                "ring buffers",
                self.buffers * self.buffer_bytes,
                4096,
                Home::Host,
                SynchronisingWords::NONE,
            ),
            objects: Address(0),
            object_bytes: 0,
        })
    }
}

/// Where a queue pair lies; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    shape: Shape,
    tx_tail: Address,
    rx_head: Address,
    tx_head: Address,
    rx_tail: Address,
    tx_ring: Address,
    rx_ring: Address,
    buffers: Address,
    /// The program's own memory, and how much there is.
    objects: Address,
    object_bytes: u64,
}

impl QueuePair {
    /// The same with the program's own objects in `bytes` bytes from `start` on: segments that it retains may lie there. Both halves
    /// must be made from this pair.
    #[must_use]
    pub fn with_objects(self, start: Address, bytes: u64) -> QueuePair {
        QueuePair { objects: start, object_bytes: bytes, ..self }
    }

    /// The queue pair's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The host half; posts the first blank buffers. The memory must be zeroed, and there must be one host only.
    pub fn host<C: Core>(&self, core: C) -> Host<C> {
        Host::new(*self, core)
    }

    /// The device half. The memory must have been zeroed before the host half was made, and there must be one only.
    pub fn nic<D: Device>(&self, device: D) -> Nic<D> {
        Nic::new(*self, device)
    }

    /// The highest ring index, and what an index is masked with.
    #[inline(always)]
    fn mask(&self) -> u64 {
        self.shape.descriptors - 1
    }

    /// Where the host may send from.
    #[inline(always)]
    fn sources(&self) -> Sources {
        Sources {
            buffers: self.buffers.0,
            buffers_bytes: self.buffers_bytes(),
            room: self.shape.room(),
            longest: self.shape.longest_packet(),
            objects: self.objects.0,
            object_bytes: self.object_bytes,
        }
    }

    /// Where the first buffer's payload starts.
    #[inline(always)]
    fn first_payload(&self) -> u64 {
        self.buffers.0 + self.shape.metadata_bytes()
    }

    /// How many bytes the buffers have together.
    #[inline(always)]
    fn buffers_bytes(&self) -> u64 {
        self.shape.buffers * self.shape.buffer_bytes
    }

    /// The first address after the buffers.
    #[inline(always)]
    fn buffers_end(&self) -> u64 {
        self.buffers.0 + self.buffers_bytes()
    }
}

/// The descriptor at an index of a ring.
#[inline(always)]
fn descriptor(ring: Address, index: u64) -> Address {
    ring + index * DESCRIPTOR_BYTES
}
