//! What a client and the NIC's daemon say to each other: messages, their encoding, and the order they come in. Pure: no
//! socket, no clock, no memory.
//!
//! | step | client says | daemon says | descriptors |
//! |---|---|---|---|
//! | 1 | [`Hello`] | [`Welcome`] or [`Refused`] | none |
//! | 2 | [`Attach`] | [`Attached`] or [`Refused`] | region, kick, and a bell for each of the first queues |
//! | 3 | - | [`Bells`], until each queue has one | bells |
//! | then | [`Message::Longest`], whenever it wants | the same, when it is so | none |
//! | then | [`Message::Address`], likewise | whether it has the address now | none |
//! | then | [`Message::Promiscuous`], likewise | whether that is so now | none |
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

use conic_interface::metadata::Offloads;

/// The version of the messages, and of a region's layout, that this program speaks.
pub const VERSION: u16 = 2;

/// The oldest that it speaks too.
pub const OLDEST: u16 = 2;

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
    /// TCP frames of one flow that follow each other come as one packet. Only with `UNFINISHED`.
    pub const JOIN: u64 = 1 << 6;
    /// The client may say how long packets that stand for several are at most.
    pub const LONGEST: u64 = 1 << 7;
    /// The client may change its address.
    pub const ADDRESS: u64 = 1 << 8;
    /// The client may ask for frames whose station nobody is known to have. A daemon without it gives them to everybody.
    pub const PROMISCUOUS: u64 = 1 << 9;
    /// What this program has.
    pub const KNOWN: Extensions = Extensions(
        Extensions::NOTIFY
            | Extensions::OFFLOADS
            | Extensions::VERIFY
            | Extensions::STRIP
            | Extensions::UNFINISHED
            | Extensions::NO_HASH
            | Extensions::JOIN
            | Extensions::LONGEST
            | Extensions::ADDRESS
            | Extensions::PROMISCUOUS,
    );

    /// What a client says that makes so much of metadata.
    pub fn of_offloads(offloads: Offloads) -> Extensions {
        let Offloads { requests, verify, strip, unfinished, no_hash, join } = offloads;
        let bit = |is: bool, bit: u64| if is { bit } else { 0 };
        Extensions(
            bit(requests, Extensions::OFFLOADS)
                | bit(verify, Extensions::VERIFY)
                | bit(strip, Extensions::STRIP)
                | bit(unfinished, Extensions::UNFINISHED)
                | bit(no_hash, Extensions::NO_HASH)
                | bit(join, Extensions::JOIN),
        )
    }

    /// What a client makes of metadata that says so: each only with those that it goes with.
    pub fn offloads(self) -> Offloads {
        let wished = |bits: u64| self.has(Extensions::OFFLOADS | bits);
        Offloads {
            requests: wished(0),
            verify: wished(Extensions::VERIFY),
            strip: wished(Extensions::STRIP),
            unfinished: wished(Extensions::UNFINISHED),
            no_hash: wished(Extensions::NO_HASH),
            join: wished(Extensions::UNFINISHED | Extensions::JOIN),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_what_was_said_and_none_is_heard_without_those_that_it_goes_with() {
        let all = Offloads::from_named(|_| true);
        assert_eq!(Extensions::of_offloads(all).offloads(), all);
        for (one, _) in all.named() {
            let without = Offloads::from_named(|name| name != one);
            let heard = Extensions::of_offloads(without).offloads();
            let told: Vec<_> = heard.named().into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
            match one {
                "requests" => assert!(told.is_empty(), "{told:?}"),
                "unfinished" => assert_eq!(told, ["requests", "verify", "strip", "no_hash"]),
                _ => assert_eq!(heard, without),
            }
        }
        let others = Extensions::NOTIFY | Extensions::LONGEST | Extensions::ADDRESS | Extensions::PROMISCUOUS;
        let known = Extensions(Extensions::KNOWN.0 & !others);
        assert_eq!(known, Extensions::of_offloads(all));
    }
}
