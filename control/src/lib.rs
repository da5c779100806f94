//! What a client and the NIC's daemon say to each other: messages, their encoding, and the order they come in. Pure: no
//! socket, no clock, no memory.
//!
//! | step | client says | daemon says | descriptors |
//! |---|---|---|---|
//! | 1 | [`Hello`] | [`Welcome`] or [`Refused`] | none |
//! | 2 | [`Attach`] | [`Attached`] or [`Refused`] | region, kick, and a bell for each of the first queues |
//! | 3 | - | [`Bells`], until each queue has one | bells |
//! | then | [`Message::Detach`], or it closes the socket | [`Refused`], if it is detached for its faults | none |
//!
//! Every message begins with the same 16 bytes ([`HEADER`]) and says how long it is; what follows is little-endian, and a
//! receiver takes neither less nor more than the message's kind has. Names are UTF-8, zero-filled.
//!
//! Who owns a descriptor: the daemon makes each and keeps its own copy; the client owns the copies that it received. A
//! client passes none: what comes with its messages is closed and the client is refused.

mod message;
mod wire;

pub use message::{
    Attach, Attached, Bells, Hello, Kind, MOST_BELLS, Message, Name, Network, REASONS, Reason, Refused, Wait, Welcome,
};
pub use wire::{HEADER, Malformed};

/// The version of the messages, and of a region's layout, that this program speaks.
pub const VERSION: u16 = 1;

/// The oldest that it speaks too.
pub const OLDEST: u16 = 1;

/// What can be asked for in addition; a peer ignores bits that it does not know, so that each is used only where both have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions(
    /// A bit for each.
    pub u64,
);

impl Extensions {
    /// The NIC sleeps when there is nothing to do, and is woken by a notify flag and a kick.
    pub const NOTIFY: u64 = 1;
    /// What stands in packets' metadata is done, and packets come with metadata: their flow's hash, to begin with.
    pub const OFFLOADS: u64 = 1 << 1;
    /// Packets come with a word on their checksums. Only with `OFFLOADS`, as the next two.
    pub const VERIFY: u64 = 1 << 2;
    /// Packets come without their VLAN tag, which stands in the metadata.
    pub const STRIP: u64 = 1 << 3;
    /// Packets may come with a checksum that is only begun, and several as one.
    pub const UNFINISHED: u64 = 1 << 4;
    /// The flow's hash is not wanted, which is then not computed where no queue has to be chosen either. Only with `OFFLOADS`.
    pub const NO_HASH: u64 = 1 << 5;
    /// What this program has.
    pub const KNOWN: Extensions = Extensions(
        Extensions::NOTIFY
            | Extensions::OFFLOADS
            | Extensions::VERIFY
            | Extensions::STRIP
            | Extensions::UNFINISHED
            | Extensions::NO_HASH,
    );

    /// Those that both have.
    pub const fn both(self, other: Extensions) -> Extensions {
        Extensions(self.0 & other.0)
    }

    /// Whether some are there.
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
}

/// The version that two sides speak, given what each says of itself; none if they have none in common.
pub fn common_version(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let newest = ours.1.min(theirs.1);
    (newest >= ours.0.max(theirs.0)).then_some(newest)
}
