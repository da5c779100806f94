//! The coherence protocol: states, messages, and the two transition functions, without any time.
//!
//! MESI or MESIF ([`home::Choices::forwards_clean`]) between two nodes (two sockets, or a host and a device), each a set of
//! cores with private caches, a shared last-level cache and home agents. Every line has a home, one of the nodes; that
//! node's `right` to a line is at the same time the directory of the other node's. [`cache::snooped`] is what a core's private cache does with a message;
//! [`home::handle`] what a node's home agents do. The simulated machine, the exhaustive exploration and the random tester
//! all run these two functions.
//!
//! # Channels
//!
//! Messages from one agent to another about one line stay in order, except that requests and snoops, which are looked up on
//! their way, may be overtaken by what is not. The protocol relies on this: a grant that was sent before a snoop arrives before
//! it; a write-back that was sent before a request or a snoop's answer arrives before it. The exploration shows that each is
//! needed.
//!
//! # Stable states of a line in a node
//!
//! | at its home, `right` | means | at the other node, `right` | means |
//! |---|---|---|---|
//! | `Exclusive` | the other node has no copy | `None` | this node has no copy |
//! | `Shared` | the other node may have copies, memory or this node's last level is current | `Shared` | it has clean copies, as others may |
//! | | | `Forward` | the same, and it was the last to be given one: MESIF's F |
//! | `None` | the other node may have modified it | `Exclusive` | nobody else has a copy |
//!
//! The version in a message without data (`data: false`) means nothing: the asker has the data, or will write all of it.
//!
//! The other node may give up a clean line without a word, so its home may believe that it still has it.
//!
//! # Snoops of the other node
//!
//! The home's directory says whether it is asked. Intel's memory directory has the three states, two bits beside the line's check
//! bits: I is `Exclusive` here, S `Shared`, A (any) `None`.
//!
//! | directory | a read of the home's | a write of the home's |
//! |---|---|---|
//! | I | not asked | not asked |
//! | S | not asked, as memory is current; asked where [`home::Choices::snoops_shared`] | asked |
//! | A | asked | asked |
//!
//! What it answers has the names of Intel's counters of snoop responses, which say that reads that find E or F are commonly answered
//! RspSFwd, and that RspIFwd answers an ownership that finds M, E or F. With the line, in bold; F and E give it in MESIF alone,
//! without which their answers are those of S.
//!
//! | it has | [`Snoop::Share`], `Migrate` | [`Snoop::Own`] | [`Snoop::Invalidate`] | [`Snoop::Current`] |
//! |---|---|---|---|---|
//! | M | **RspIFwd** if it migrates, else **RspFwdSWb** | **RspIFwd** | **RspIFwd** | **the line**, and keeps it |
//! | E, F | **RspSFwd**, and has it shared | **RspIFwd** | RspI | **the line**, and keeps what it has |
//! | S | RspS | RspI | RspI | RspS |
//! | nothing | RspI | RspI | RspI | RspI |
//!
//! Every answer goes to the home, which is where the asker is: with two nodes nobody else asks. Where the directory says A, the home
//! reads memory beside the snoop and must have the answer all the same, as the line may be modified: what the answer brings is
//! used, and memory's data only where it brings none. F is with the node that was given the line last, so a read of the home's takes it
//! away; the home's own copies need none, as memory is there. F that is given up is given up in silence: nobody forwards then.
//!
//! # Recalls
//!
//! A snoop filter may know fewer lines than private caches can hold. Where its set is full it gives a line's entry up, and every copy in
//! the node goes ([`ToHome::Recall`], [`Snoop::Recall`]), into the last-level cache as if each core had evicted its own. The node's right
//! to the line does not change, and the other node hears of nothing. A home's snoop that comes meanwhile waits for the cores'
//! answers, which wait for nothing.
//!
//! # Requests
//!
//! | request | the asker gets | the others' copies |
//! |---|---|---|
//! | `Read` | shared; exclusive if nobody has a copy; modified where the hand-over is migratory | modified: handed over, or shared |
//! | `Own` | exclusive, with the data unless it has it | invalid |
//! | `OwnWhole` | exclusive, without the data: it writes the whole line | invalid |
//! | `ReadCurrent` | the data, no copy (device reads) | unchanged |
//! | `WriteCache` | its data goes to the last-level cache (device writes) | invalid |
//! | `WriteMemory` | its data goes to memory (non-temporal stores, device writes); to the other node's, whose line is owned whole first and then written back | invalid |
//!
//! # Forbidden
//!
//! | who | must not | because |
//! |---|---|---|
//! | a core | evict a line that it has asked to own | the home may grant it without data |
//! | a home | start a request for a line while another is under way | the first has not taken effect everywhere |
//! | home agents | recall a line with something under way | who answers whom could not be told |
//! | the other node | let a snoop wait for its own request | the home answers that request after the snoop |

pub mod cache;
pub mod cxl;
#[cfg(test)]
mod explore;
pub mod home;
pub mod homed;
pub mod snooping;

/// The number of writes that a copy of a line has seen: what stands for its data, so that every access can be checked.
pub type Version = u32;

/// A core's copy of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Copy {
    /// It has none.
    #[default]
    Invalid,
    /// Clean, others may have it (S, and F: the home chooses who forwards).
    Shared,
    /// Clean, the only one.
    Exclusive,
    /// Changed, the only one.
    Modified,
}

impl Copy {
    /// The letter that the literature writes.
    pub fn letter(self) -> char {
        ['I', 'S', 'E', 'M'][self as usize]
    }
}

/// What is asked of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Ask {
    /// A load missed.
    Read,
    /// A store missed, or hit a shared copy.
    Own,
    /// A store of a whole line missed.
    OwnWhole,
    /// A device reads, without keeping a copy.
    ReadCurrent,
    /// A device writes a whole line into the last-level cache.
    WriteCache,
    /// A whole line is written to memory past the caches.
    WriteMemory,
}

impl Ask {
    /// Whether everybody else's copy must go.
    pub fn takes_all(self) -> bool {
        !matches!(self, Ask::Read | Ask::ReadCurrent)
    }

    /// Whether its asker has a copy from then on, where that is a core.
    pub fn brings_copy(self) -> bool {
        matches!(self, Ask::Read | Ask::Own | Ask::OwnWhole)
    }

    /// Whether it brings a line to be written.
    pub fn writes(self) -> bool {
        matches!(self, Ask::WriteCache | Ask::WriteMemory)
    }
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// A core of this node, by its number.
    Core(u8),
    /// A device of this node, by the number of its request.
    Device(u16),
    /// The other node.
    Node,
}

/// What a snoop wants of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Snoop {
    /// A modified copy is handed over, a clean one becomes shared.
    Migrate,
    /// It becomes shared; a modified one's data is given.
    Share,
    /// It goes.
    Invalidate,
    /// Its data, and no change.
    Current,
    /// It goes, and the data is wanted: of a node, one that forwards gives it though it is clean.
    Own,
    /// It goes, because its node's snoop filter has no entry for it any more. No snoop of the other node.
    Recall,
}

/// What a snooped copy was, and its data if it was not invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Found {
    /// What it was before.
    pub was: Copy,
    /// Whether the snooped side still has a copy.
    pub keeps: bool,
    /// Whether the data comes with the answer. A core's always does, where it has a copy.
    pub data: bool,
    /// Its data.
    pub version: Version,
}

/// A message to a node's home agents, about one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToHome {
    /// A request. `has_data`: the other node, asking to own, has a clean copy.
    Request {
        /// Who asks.
        asker: Asker,
        /// For what.
        ask: Ask,
        /// The asker has the data already.
        has_data: bool,
        /// Which write past the caches it is; whoever made it keeps the data until [`home::Action::Written`] names it.
        write: u32,
    },
    /// A device's request to write that takes effect only when [`ToHome::TakeEffect`] says so, because the writes that its
    /// link brought before must be seen first. Until then it keeps the line from everybody else.
    OrderedWrite {
        /// The device's request.
        request: u16,
        /// `WriteCache` or `WriteMemory`.
        ask: Ask,
        /// Which write it is.
        write: u32,
    },
    /// The ordered write for which [`home::Action::Ready`] was said takes effect.
    TakeEffect,
    /// A core gave up its copy.
    Evicted {
        /// The core.
        core: u8,
        /// Whether it had changed it.
        dirty: bool,
        /// Its data.
        version: Version,
    },
    /// A core's answer to a snoop.
    CoreFound {
        /// The core.
        core: u8,
        /// What it had.
        found: Found,
    },
    /// The other node's answer to a snoop.
    NodeFound(Found),
    /// The home's snoop.
    Snoop(Snoop),
    /// The home's answer to this node's request.
    Reply {
        /// What the node may do with it; `Invalid` where it asked for no copy.
        grant: Copy,
        /// The data.
        version: Version,
        /// Whether it travels: not if the node has it, or writes all of it.
        data: bool,
    },
    /// The other node has the reply: the home may go on with the line. Until then it would have to recall what is still on
    /// its way (QPI and UPI resolve that conflict with an acknowledgement too). Whoever delivers a reply sends this, a crossing later;
    /// it needs no slot of a link, because where nobody waits nothing is sent.
    Complete,
    /// The other node gave back a line that it had changed.
    WriteBack {
        /// It still has clean copies, exclusively.
        keeps: bool,
        /// The data.
        version: Version,
    },
    /// The node's snoop filter has given the line's entry up: every copy in the node goes. Only for a line with copies for which
    /// nothing is under way.
    Recall,
    /// Memory answers a read.
    Memory,
    /// The last-level cache answers a read.
    LastLevel,
}

/// A message to a core's private cache, about one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToCore {
    /// A snoop.
    Snoop(Snoop),
    /// What it asked for.
    Grant {
        /// What it has from now on; `Invalid` for a write to memory that is done.
        copy: Copy,
        /// The data.
        version: Version,
        /// Whether it travels: not if the core has it, or writes all of it.
        data: bool,
    },
}
