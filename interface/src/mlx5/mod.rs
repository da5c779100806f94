//! The rings of a ConnectX NIC as its driver `mlx5` uses them: a send queue of entries that may have packets in them, doorbell records,
//! completion queues.
//!
//! Facts about them are those of NVIDIA's Adapters Programmer's Reference Manual, as the names and sizes in DPDK's driver
//! (`mlx5_prm.h`, `mlx5_defs.h`) and the guide to it have them. What differs: words are in the byte order of the machine, a
//! completion says in its first word what a real one says in several, because a line is published by that one, and the owner
//! bit begins with 1, so that memory of zeroes has no completions.
//!
//! # Memory of one queue pair
//!
//! | what | home | written by | read by | synchronising words |
//! |---|---|---|---|---|
//! | doorbell | device | host | device | word 0 |
//! | send doorbell record | host | host | nobody here: a device that has lost a doorbell | word 0 |
//! | receive doorbell record | host | host | device | word 0 |
//! | send queue, blocks of 64 bytes | host | host | device | none |
//! | receive queue, 16 bytes a descriptor | host | host | device | none |
//! | send completions, a line each | host | device | host | word 0 |
//! | receive completions, a line each | host | device; host, after compressed ones | the other | word 0 |
//! | buffers, and metadata in front of them | as in [`crate::ring`] | | | none |
//!
//! Counters are 16 bits that nobody masks: of blocks that were put into the send queue, and of receive descriptors that were posted. So
//! all of a ring is used.
//!
//! # An entry of the send queue
//!
//! It begins with a block, and is 2 to 60 segments of 16 bytes in up to 15 blocks.
//!
//! | segment | bytes | what |
//! |---|---|---|
//! | control | 0 | opcode: 0x0a send, 0x29 enhanced multi-packet send |
//! | | 1, 2 | the number of its first block |
//! | | 4 | segments of the entry |
//! | | 8 | bit 3: it is to be reported |
//! | Ethernet | 12, 13 | how many of the packet's bytes stand here and behind, from byte 14 on |
//! | data | 0 to 3 | length, below 2^31 |
//! | | 8 to 15 | address |
//! | inline data | 0 to 3 | length, with bit 31 set; the data are behind it, up to a multiple of 16 bytes |
//!
//! A send is one packet: the bytes in the Ethernet segment and behind it, then those that data segments name, of which there are up to
//! [`crate::ccnic::MAX_SEGMENTS`]. A multi-packet send is a packet for each data segment. What may be sent from where is as in [`crate::ring`],
//! retained segments included.
//!
//! # When the driver does what
//!
//! | choice | what it is by | source |
//! |---|---|---|
//! | a packet's bytes are copied into its entry, and its buffer is free again | up to 290 bytes alone and 268 among others, with eight send queues or more: [`Inlining`] | DPDK's `txq_inline_max`, `txq_inline_mpw` and `txqs_min_inline` |
//! | packets of one segment that follow each other in a burst share an entry | up to 32 of them, in up to 15 blocks | `MLX5_EMPW_MAX_PACKETS`, `MLX5_WQE_SIZE_MAX` |
//! | an entry asks to be reported | 32 packets' buffers, or an eighth of the send queue, since the last that did | `MLX5_TX_COMP_THRESH`, `MLX5_TX_COMP_THRESH_INLINE_DIV` |
//! | completions of what was sent are looked at | each burst, two of them; all where buffers or blocks are short | `MLX5_TX_COMP_MAX_CQE` |
//! | the doorbell is rung | once a burst, with the last entry's first 8 bytes, behind the record; uncached and without a barrier | `mlx5_doorbell_ring`, `sq_db_nc` |
//! | the receive record is written | once per `rx_refill_threshold` posted buffers | `MLX5_VPMD_RXQ_RPLNSH_THRESH` |
//! | completions of what has come are looked at by four | the next four are asked for meanwhile | the vector receive path |
//!
//! # Completions
//!
//! | word 0 | what |
//! |---|---|
//! | bit 0 | owner: 1 in the first lap of the ring, 0 in the second, and so on |
//! | bits 2, 3 | 3: compressed |
//! | bits 4 to 7 | 0 sent, 2 received, 15 none |
//! | bits 16 to 31 | of what was sent: the number of the entry's first block |
//! | bits 32 to 63 | of what was received: the packet's bytes, 0 if the device refused the buffer; compressed: how many packets, 2 to 8 |
//!
//! A compressed one stands for so many packets and takes as many slots. Their lengths are the upper halves of the words of the next slot's
//! line, which is written before it; the others are not written. The host marks all of these but the first as none, since what
//! an older lap left there may have the owner bit of a later one.
//!
//! There is a slot for whatever can be reported at once, so the host tells nobody which completions it has taken.
//!
//! # Visibility
//!
//! | step | announces it | makes visible | to |
//! |---|---|---|---|
//! | `tx_burst` | doorbell, once a burst | entries and payloads | the device that reads it |
//! | device `flush` | a completion for each entry that asked | that it and all before it were read | the host that reads the completion |
//! | posting blank buffers | receive record | descriptors | the device that reads the record, when it has few left: nothing tells it |
//! | device `rx_push`, or `flush` where completions are compressed | a completion | payloads | the host that reads the completion |
//!
//! # Trust
//!
//! As in [`crate::ring`]: the device reads each block once into memory of its own, checks what it finds there, and counts what it refuses in
//! [`Refusals`]; the host checks completions.

mod device;
mod entry;
mod host;
mod receive;
mod send;

pub use device::{Nic, Refusals};
pub use host::{Host, HostStatistics};

use std::fmt;

use conic_fabric::{Address, Core, Device, Home, LINE_BYTES, Layout, MemoryType, SynchronisingWords};

use crate::ccnic::MAX_SEGMENTS;
use crate::ring::{self, Sources};
use entry::{BLOCK, Entry, MOST_BLOCKS};

/// Bytes of a receive descriptor.
const DESCRIPTOR_BYTES: u64 = 16;
/// Doorbell and records lie this far apart, in bytes.
const SPACING: u64 = 128;

/// Which packets are copied into their entries: those of up to so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlining {
    /// That are alone in an entry.
    pub alone: u64,
    /// That share one.
    pub among_others: u64,
}

impl Inlining {
    /// What DPDK's driver does by default on a NIC with so many send queues. With fewer than eight it copies nothing: it takes it that
    /// there are cores too few to copy, and link enough.
    pub fn of_queues(queues: usize) -> Option<Inlining> {
        (queues >= 8).then_some(Inlining { alone: 290, among_others: 268 })
    }
}

/// The size of a queue pair, and what its driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Buffers, and the sizes of rings: as many receive descriptors, and packets that are being sent, as `descriptors` says, up to 32768. Of
    /// the two signals and the threshold for reclaiming, neither means anything here.
    pub common: ring::Shape,
    /// Which packets are copied into their entries; none where it is none.
    pub inlining: Option<Inlining>,
    /// Packets of a burst share entries.
    pub multi_packet: bool,
    /// The device may report several received packets by one completion.
    pub compressed: bool,
    /// Sent packets between two that are reported.
    pub report_interval: u64,
    /// Blocks, and receive descriptors, that the device fetches at once.
    pub fetch_batch: u64,
}

impl Default for Shape {
    /// That of [`ring::Shape`], driven as DPDK does it with eight queues or more.
    fn default() -> Shape {
        Shape::of(ring::Shape::default(), 8)
    }
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// Its buffers or rings cannot be.
    Common(ring::ShapeError),
    /// More descriptors than counters of 16 bits tell apart.
    Descriptors(u64),
    /// Nothing would ever be fetched, or reported.
    Nothing,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Common(error) => error.fmt(f),
            ShapeError::Descriptors(descriptors) => {
                write!(f, "a ring has at most 32768 descriptors here, not {descriptors}")
            }
            ShapeError::Nothing => f.write_str("at least one descriptor is fetched at once, and one packet reported"),
        }
    }
}

impl std::error::Error for ShapeError {}

impl Shape {
    /// Rings as DPDK's driver uses those of a NIC with so many queues.
    pub fn of(common: ring::Shape, queues: usize) -> Shape {
        Shape {
            common,
            inlining: Inlining::of_queues(queues),
            multi_packet: true,
            compressed: true,
            report_interval: 32,
            fetch_batch: 16,
        }
    }

    /// Blocks of the send queue: as many as packets have that are alone in an entry, each as large as may be copied; but 16 to 32768.
    pub fn blocks(&self) -> u64 {
        let of_packet = self.inlining.map_or(BLOCK, |inlining| Entry::head_bytes(inlining.alone));
        (self.common.descriptors * of_packet.div_ceil(BLOCK) as u64).next_power_of_two().clamp(16, 1 << 15)
    }

    /// Blocks of the longest entry: a queue holds a few of them.
    fn most_blocks(&self) -> u64 {
        MOST_BLOCKS.min(self.blocks() / 4)
    }

    /// Slots for completions of what was sent.
    fn send_completions(&self) -> u64 {
        // A packet's worth of descriptors between two that ask, or an eighth of the blocks; and one more on either count.
        (self.common.descriptors / self.report_interval_of() + 10).next_power_of_two()
    }

    /// Packets between two that are reported, as far as the queue has so many: one that has no room for a packet of the most segments has
    /// asked.
    fn report_interval_of(&self) -> u64 {
        let before = self.common.descriptors.saturating_sub(MAX_SEGMENTS as u64 - 1).max(1);
        self.report_interval.min(self.common.descriptors / 2).min(before)
    }

    /// Appends a queue pair to a layout.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(&self, layout: &mut Layout) -> Result<QueuePair, ShapeError> {
        let common = &self.common;
        common.check().map_err(ShapeError::Common)?;
        if common.descriptors > 1 << 15 {
            return Err(ShapeError::Descriptors(common.descriptors));
        }
        if self.fetch_batch == 0 || self.report_interval == 0 {
            return Err(ShapeError::Nothing);
        }
        let (host, none, first) = (Home::Host, SynchronisingWords::NONE, SynchronisingWords::FIRST);
        let coherent = MemoryType::WriteBack;
        let doorbell = layout.add_registers("mlx5 doorbell", SPACING, Home::Nic, common.host_written_registers);
        let send_record = layout.add_registers("mlx5 send doorbell record", SPACING, host, coherent);
        let receive_record = layout.add_registers("mlx5 receive doorbell record", SPACING, host, coherent);
        let send_queue = layout.add("mlx5 send queue", self.blocks() * LINE_BYTES, 128, host, none);
        let receive_bytes = common.descriptors * DESCRIPTOR_BYTES;
        let receive_queue = layout.add("mlx5 receive queue", receive_bytes, 128, host, none);
        let bytes = self.send_completions() * LINE_BYTES;
        let send_completions = layout.add("mlx5 send completions", bytes, 128, host, first);
        let bytes = common.descriptors * LINE_BYTES;
        let receive_completions = layout.add("mlx5 receive completions", bytes, 128, host, first);
        let buffers = layout.add("mlx5 buffers", common.buffers * common.buffer_bytes, 4096, host, none);
        Ok(QueuePair {
            shape: *self,
            blocks: self.blocks(),
            send_slots: self.send_completions(),
            doorbell,
            send_record,
            receive_record,
            send_queue,
            receive_queue,
            send_completions,
            receive_completions,
            buffers,
            objects: (Address(0), 0),
        })
    }
}

/// Where a queue pair lies; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    shape: Shape,
    /// Blocks of the send queue, and slots for completions of what was sent.
    blocks: u64,
    send_slots: u64,
    doorbell: Address,
    send_record: Address,
    receive_record: Address,
    send_queue: Address,
    receive_queue: Address,
    send_completions: Address,
    receive_completions: Address,
    buffers: Address,
    /// The program's own memory, and how much there is.
    objects: (Address, u64),
}

impl QueuePair {
    /// The same with the program's own objects in `bytes` bytes from `start` on: segments that it retains may lie there. Both halves
    /// must be made from this pair.
    #[must_use]
    pub fn with_objects(self, start: Address, bytes: u64) -> QueuePair {
        QueuePair { objects: (start, bytes), ..self }
    }

    /// The queue pair's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The register that the host rings.
    pub fn doorbell(&self) -> Address {
        self.doorbell
    }

    /// The host half; posts the first blank buffers. The memory must be zeroed, and there must be one host only.
    pub fn host<C: Core>(&self, core: C) -> Host<C> {
        Host::new(*self, core)
    }

    /// The device half. The memory must have been zeroed before the host half was made, and there must be one only.
    pub fn nic<D: Device>(&self, device: D) -> Nic<D> {
        Nic::new(*self, device)
    }

    /// Where the host may send from.
    fn sources(&self) -> Sources {
        let common = &self.shape.common;
        Sources {
            buffers: self.buffers.0,
            buffers_bytes: common.buffers * common.buffer_bytes,
            room: common.room(),
            longest: common.longest_packet(),
            objects: self.objects.0.0,
            object_bytes: self.objects.1,
        }
    }

    /// A block of the send queue.
    #[inline(always)]
    fn block(&self, number: u16) -> Address {
        self.send_queue + (u64::from(number) & (self.blocks - 1)) * LINE_BYTES
    }

    /// A receive descriptor.
    #[inline(always)]
    fn descriptor(&self, number: u16) -> Address {
        self.receive_queue + (u64::from(number) & (self.shape.common.descriptors - 1)) * DESCRIPTOR_BYTES
    }

    /// The slot of a completion of what was sent.
    #[inline(always)]
    fn send_completion(&self, number: u32) -> Address {
        self.send_completions + (u64::from(number) & (self.send_slots - 1)) * LINE_BYTES
    }

    /// The slot of a completion of what was received.
    #[inline(always)]
    fn receive_completion(&self, number: u32) -> Address {
        self.receive_completions + (u64::from(number) & (self.shape.common.descriptors - 1)) * LINE_BYTES
    }
}
