//! The five network interfaces of Mukherjee et al. 1996 (CNI, section 3) between a processor and a network of 256-byte messages.
//!
//! | module | what |
//! |---|---|
//! | `words.rs` | NI2w: words through uncached registers, after the CM-5 |
//! | `registers.rs` | CNI4: a message in cachable device registers, cleared by an explicit handshake |
//! | `queues.rs` | CNI16Q, CNI512Q, CNI16Qm: [`crate::cachable_queue`]s |
//! | [`device`] | what a device's halves need besides the core face; the engine that any of them is |
//! | `window.rs` | how many messages to a node may be without acknowledgement, and how the processor learns of it |
//! | [`endpoint`] | the messaging layer: fragments, the window, and messages that are taken in while sending blocks |
//!
//! | interface | exposed | home | the processor learns of a message by | and of room by |
//! |---|---|---|---|---|
//! | NI2w | 2 words | device | an uncached status register | the same |
//! | CNI4 | 4 blocks each way | device | the same | the same |
//! | CNI16Q | 16 blocks each way | device | the message's valid word, cached | the queue's head, cached, lazily |
//! | CNI512Q | 512 blocks each way | device | the same | the same |
//! | CNI16Qm | 512 blocks of receive queue, of which the device caches 16; 16 of send queue | main memory | the same | the same |
//!
//! # Registers
//!
//! A segment each way, of which the device alone writes word 0, and the processor word 1.
//!
//! | word | sending | receiving |
//! |---|---|---|
//! | 0, status | messages that the device has taken (NI2w, CNI4) | messages that it has shown (NI2w, CNI4) |
//! | 1, command | messages that are ready (CNI4, queues) | messages that are cleared (CNI4) |
//!
//! NI2w's FIFO is a window of registers, a word of the message each; the device counts what is stored, and shows the next message when
//! the last word was loaded. So each word costs one access, as it does where every access goes to one register.
//!
//! # A message
//!
//! Bytes 0 to 7 are the queue's valid word; 8 and 9 the peer: where it goes, and once a device has it, where it is from; 10 and 11 the
//! length of what follows. That is the paper's header of 12 bytes; 244 are left.

pub mod device;
pub mod endpoint;
mod queues;
mod registers;
mod window;
mod words;

use std::fmt;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, MemoryType, SynchronisingWords, lines_of};

use crate::cachable_queue::{Arrival, Queue, Shape};
pub use device::{Device, ReceiveEngine, SendEngine};
pub use endpoint::Endpoint;
pub use queues::QueueHost;
pub use registers::RegisterHost;
pub use window::Window;
pub use words::WordHost;

/// Bytes of a network message's header (CNI section 5.1).
pub const HEADER_BYTES: u64 = 12;
/// Lines of a network message.
pub const MESSAGE_LINES: usize = 4;
/// Most bytes behind the header.
pub const MOST_PAYLOAD: u64 = LINE_BYTES * MESSAGE_LINES as u64 - HEADER_BYTES;

/// One of the paper's network interfaces (Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Words through uncached registers.
    Ni2w,
    /// Four cachable device registers each way.
    Cni4,
    /// Cachable queues of 16 blocks.
    Cni16Q,
    /// Cachable queues of 512 blocks.
    Cni512Q,
    /// A cachable queue of 512 blocks in main memory, of which the device caches 16.
    Cni16Qm,
}

impl Kind {
    /// All five, in the paper's order.
    pub const ALL: [Kind; 5] = [Kind::Ni2w, Kind::Cni4, Kind::Cni16Q, Kind::Cni512Q, Kind::Cni16Qm];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ni2w => "NI2w",
            Kind::Cni4 => "CNI4",
            Kind::Cni16Q => "CNI16Q",
            Kind::Cni512Q => "CNI512Q",
            Kind::Cni16Qm => "CNI16Qm",
        }
    }

    /// Blocks of the send queue and of the receive queue, where there are queues.
    fn queue_blocks(self) -> Option<[u64; 2]> {
        match self {
            Kind::Ni2w | Kind::Cni4 => None,
            Kind::Cni16Q => Some([16, 16]),
            Kind::Cni512Q => Some([512, 512]),
            Kind::Cni16Qm => Some([16, 512]),
        }
    }

    /// Blocks that the device caches of each queue.
    pub fn cached_blocks(self) -> usize {
        match self {
            Kind::Ni2w => 0,
            Kind::Cni4 => MESSAGE_LINES,
            Kind::Cni16Q | Kind::Cni16Qm => 16,
            Kind::Cni512Q => 512,
        }
    }

    /// Whether messages overflow to main memory, so that whoever is blocked need not take them in.
    pub fn overflows_to_memory(self) -> bool {
        self == Kind::Cni16Qm
    }

    /// Where the lines live that processor and device share, if they are memory.
    fn home(self) -> Home {
        if self.overflows_to_memory() { Home::Host } else { Home::Nic }
    }

    /// Appends what the interface of each of `nodes` nodes needs to a layout.
    pub fn place(self, nodes: u16, layout: &mut Layout) -> Place {
        let [send, receive] = [0, 1].map(|way| Way::new(self, way, layout));
        Place { kind: self, send, receive, window: Window::place(self, nodes, layout) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One direction of an interface: its registers, and what carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where its registers begin.
    pub registers: Address,
    /// What carries its messages.
    pub carrier: Carrier,
    /// The lines that the device caches in its blocks: from here to there.
    pub cached: [Address; 2],
}

/// What carries messages one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A window of registers.
    Window(Address),
    /// Blocks that are device registers.
    Blocks(Address),
    /// A cachable queue.
    Queue(Queue),
}

impl Way {
    fn new(kind: Kind, way: usize, layout: &mut Layout) -> Way {
        let registers = layout.add_registers("network interface's registers", 16, Home::Nic, MemoryType::Uncached);
        let bytes = LINE_BYTES * MESSAGE_LINES as u64;
        let from = Address(layout.bytes());
        let carrier = match kind.queue_blocks() {
            None if kind == Kind::Ni2w => Carrier::Window(layout.add_registers(
                "network interface's FIFO",
                bytes,
                Home::Nic,
                MemoryType::Uncached,
            )),
            None => {
                let words = SynchronisingWords::NONE;
                Carrier::Blocks(layout.add("cachable device registers", bytes, LINE_BYTES, Home::Nic, words))
            }
            Some(blocks) => {
                let shape = Shape {
                    slots: blocks[way] / MESSAGE_LINES as u64,
                    message_lines: MESSAGE_LINES as u64,
                    lazy_pointers: true,
                    arrival: Arrival::SenseReverse,
                };
                Carrier::Queue(shape.place(layout, kind.home(), kind.home()).expect("the paper's shapes can be"))
            }
        };
        let messages = match carrier {
            Carrier::Queue(queue) => queue.messages(),
            Carrier::Window(_) => [from, from],
            Carrier::Blocks(at) => [at, at + bytes],
        };
        Way { registers, carrier, cached: messages }
    }

    /// The register that the device writes.
    pub fn status(&self) -> Address {
        self.registers
    }

    /// The register that the processor writes.
    pub fn command(&self) -> Address {
        self.registers.word(1)
    }

    /// The segments of registers that the device is told of accesses to.
    pub fn watched_registers(&self) -> Vec<Address> {
        match self.carrier {
            Carrier::Window(at) => vec![self.registers, at],
            Carrier::Blocks(_) | Carrier::Queue(_) => vec![self.registers],
        }
    }
}

/// Where a node's interface lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which it is.
    pub kind: Kind,
    /// From the processor.
    pub send: Way,
    /// To the processor.
    pub receive: Way,
    /// What nodes have acknowledged.
    pub window: Window,
}

impl Place {
    /// The processor's half. `fifo_messages`: what NI2w's send queue holds.
    pub fn host<C: Core + Clone>(&self, core: C, fifo_messages: u64) -> Host<C> {
        match self.kind {
            Kind::Ni2w => Host::Words(WordHost::new(*self, core, fifo_messages)),
            Kind::Cni4 => Host::Registers(RegisterHost::new(*self, core)),
            Kind::Cni16Q | Kind::Cni512Q | Kind::Cni16Qm => Host::Queues(QueueHost::new(*self, core)),
        }
    }
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub from: u16,
    /// Bytes behind its header.
    pub bytes: u64,
}

/// The processor's half of an interface: messages are copied from a buffer of the user's, and into one.
#[derive(Debug)]
pub enum Host<C> {
    /// NI2w.
    Words(WordHost<C>),
    /// CNI4.
    Registers(RegisterHost<C>),
    /// The others.
    Queues(QueueHost<C>),
}

impl<C: Core + Clone> Host<C> {
    /// Sends `bytes` bytes, at most [`MOST_PAYLOAD`], that lie at `from` to a node, or returns false if there is no room.
    pub fn try_send(&mut self, to: u16, from: Address, bytes: u64) -> bool {
        match self {
            Host::Words(host) => host.try_send(to, from, bytes),
            Host::Registers(host) => host.try_send(to, from, bytes),
            Host::Queues(host) => host.try_send(to, from, bytes),
        }
    }

    /// Receives a message into the buffer at `into`, which has room for [`MOST_PAYLOAD`] bytes.
    pub fn try_receive(&mut self, into: Address) -> Option<Received> {
        match self {
            Host::Words(host) => host.try_receive(into),
            Host::Registers(host) => host.try_receive(into),
            Host::Queues(host) => host.try_receive(into),
        }
    }
}

/// A network message as a device has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its lines; those that it does not have are zeroes.
    pub lines: [Line; MESSAGE_LINES],
}

impl Message {
    /// Where it goes, or is from.
    pub fn peer(&self) -> u16 {
        header(self.lines[0].0[1]).0
    }

    /// Bytes behind its header.
    pub fn payload(&self) -> u64 {
        header(self.lines[0].0[1]).1
    }

    /// The same from, or to, another node.
    #[must_use]
    pub fn with_peer(mut self, peer: u16) -> Message {
        let mut bytes = self.lines[0].0[1].to_ne_bytes();
        bytes[..2].copy_from_slice(&peer.to_ne_bytes());
        self.lines[0].0[1] = u64::from_ne_bytes(bytes);
        self
    }

    /// The lines that it has.
    pub fn used(&self) -> &[Line] {
        &self.lines[..lines_with(self.payload())]
    }
}

/// How many lines a message with so many bytes behind its header has; more than there are is taken for all.
fn lines_with(payload: u64) -> usize {
    (lines_of(HEADER_BYTES + payload) as usize).min(MESSAGE_LINES)
}

/// How many words it has.
fn words_with(payload: u64) -> usize {
    (HEADER_BYTES + payload.min(MOST_PAYLOAD)).div_ceil(8) as usize
}

/// Peer and length in a message's second word.
fn header(word: u64) -> (u16, u64) {
    let bytes = word.to_ne_bytes();
    (u16::from_ne_bytes([bytes[0], bytes[1]]), u16::from_ne_bytes([bytes[2], bytes[3]]).into())
}

/// A message's bytes behind the queue's word: peer, length, and the payload, which is copied from a buffer.
struct Composed {
    bytes: [u8; 4 + MOST_PAYLOAD as usize],
    length: usize,
}

impl Composed {
    fn new<C: Core>(core: &C, to: u16, from: Address, bytes: u64) -> Composed {
        assert!(bytes <= MOST_PAYLOAD, "a network message carries at most {MOST_PAYLOAD} bytes, not {bytes}");
        let mut composed = Composed { bytes: [0; 4 + MOST_PAYLOAD as usize], length: 4 + bytes as usize };
        composed.bytes[..2].copy_from_slice(&to.to_ne_bytes());
        composed.bytes[2..4].copy_from_slice(&(bytes as u16).to_ne_bytes());
        core.read_bytes(from, &mut composed.bytes[4..4 + bytes as usize]);
        composed
    }

    fn used(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What a processor works in sending or receiving a message, and in looking for one that is not there: see [`crate::work`].
const MESSAGE_WORK: u32 = crate::work::CALL + crate::work::DESCRIPTOR;
const POLL_WORK: u32 = crate::work::RECORD;
