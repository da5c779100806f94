//! What a host and a NIC say to each other of a packet beside its bytes: offloads.
//!
//! One 64-bit word, the second of a packet's first descriptor (the words of its other descriptors are zero). Both
//! directions have the same layout; a program that asks for nothing leaves the word zero, and may ignore what it gets.
//!
//! | bits | field | there when |
//! |---|---|---|
//! | 0..32 | hash of the packet's flow (Toeplitz, as receive-side scaling has it) | [`Metadata::HASH`] |
//! | 0..8 | where the transport header begins, in bytes from the frame's beginning | [`Metadata::BEGUN`] |
//! | 8..16 | where the checksum lies, in bytes from there (TCP 16, UDP 6) | [`Metadata::BEGUN`] |
//! | 16..32 | bytes of payload of each packet that this one stands for | [`Metadata::LARGE`], which implies `BEGUN` |
//! | 32..48 | control information of a VLAN tag (type 0x8100) that is not in the frame | [`Metadata::VLAN`] |
//! | 48..64 | flags | always |
//!
//! | flag | bit | from the host to the NIC | from the NIC to the host |
//! |---|---|---|---|
//! | `BEGUN` | 48 | complete the checksum: its field holds the sum of the pseudo-header, not complemented | it is not complete, and need not be: the packet has been nowhere where it could change |
//! | `NETWORK` | 49 | fill in the checksum of the IPv4 header | - |
//! | `LARGE` | 50 | cut the TCP (or UDP) packet into several; the sum of the pseudo-header is made anew | it stands for several, or was never cut |
//! | `VLAN` | 51 | put the tag in | the tag was taken out |
//! | `HASH` | 52 | - | the hash is there |
//! | `TRANSPORT_GOOD`, `TRANSPORT_BAD` | 53, 54 | - | TCP's or UDP's checksum is right, or wrong; neither: there is none, or nobody looked |
//! | `NETWORK_GOOD`, `NETWORK_BAD` | 55, 56 | - | the same of the IPv4 header's |
//!
//! `BEGUN` and `HASH` share bits, so that there is one of them at most. The other bits are zero.
//!
//! Source of what a begun checksum is: Virtual I/O Device (VIRTIO) 1.2, 5.1.6. Linux's `CHECKSUM_PARTIAL` leaves the same sum in the field, and
//! so does DPDK's `rte_net_intel_cksum_prepare`, but for what is to be cut, where it leaves it without the length: with `LARGE` the NIC makes
//! the sum anew.

/// The word; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata(
    /// As it stands in a descriptor.
    pub u64,
);

/// Where a checksum is to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Where the transport header begins, in bytes from the frame's beginning.
    pub start: u8,
    /// Where the checksum lies, in bytes from `start`.
    pub offset: u8,
}

const TAG: u32 = 32;
const SIZE: u32 = 16;
const OFFSET: u32 = 8;

impl Metadata {
    /// Nothing is known, and nothing is to be done.
    pub const NONE: Metadata = Metadata(0);
    /// The transport's checksum is begun.
    pub const BEGUN: u64 = 1 << 48;
    /// The IPv4 header's checksum is to be filled in.
    pub const NETWORK: u64 = 1 << 49;
    /// The packet stands for several.
    pub const LARGE: u64 = 1 << 50;
    /// A VLAN tag stands here and not in the frame.
    pub const VLAN: u64 = 1 << 51;
    /// The flow's hash stands here.
    pub const HASH: u64 = 1 << 52;
    /// The transport's checksum was found right.
    pub const TRANSPORT_GOOD: u64 = 1 << 53;
    /// The transport's checksum was found wrong.
    pub const TRANSPORT_BAD: u64 = 1 << 54;
    /// The IPv4 header's checksum was found right.
    pub const NETWORK_GOOD: u64 = 1 << 55;
    /// The IPv4 header's checksum was found wrong.
    pub const NETWORK_BAD: u64 = 1 << 56;
    /// What a host may ask of a NIC.
    pub const REQUESTS: u64 = Metadata::BEGUN | Metadata::NETWORK | Metadata::LARGE | Metadata::VLAN;

    /// Whether all of some flags are set.
    #[inline(always)]
    pub const fn has(self, flags: u64) -> bool {
        self.0 & flags == flags
    }

    /// The same with some flags more.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, flags: u64) -> Metadata {
        Metadata(self.0 | flags)
    }

    /// The same with a checksum to be completed. Takes the hash's place.
    #[must_use]
    pub const fn with_begun(self, begun: Begun) -> Metadata {
        // A hash has the place of the size too; without one there may be a size, which stays.
        let cleared = if self.has(Metadata::HASH) { Metadata::HASH | 0xffff_ffff } else { 0xffff };
        let kept = self.0 & !cleared;
        Metadata(kept | begun.start as u64 | (begun.offset as u64) << OFFSET | Metadata::BEGUN)
    }

    /// The same for a packet, whose checksum is begun, that stands for several of `size` bytes of payload each.
    #[must_use]
    pub const fn with_large(self, size: u16) -> Metadata {
        Metadata(self.0 & !(0xffff << SIZE) | (size as u64) << SIZE | Metadata::LARGE)
    }

    /// The same with a VLAN tag's control information: priority (3 bits), drop eligible (1 bit), VLAN (12 bits).
    #[must_use]
    pub const fn with_vlan(self, control: u16) -> Metadata {
        Metadata(self.0 & !(0xffff << TAG) | (control as u64) << TAG | Metadata::VLAN)
    }

    /// The same with a flow's hash, unless a checksum is begun, which has its place.
    #[inline(always)]
    #[must_use]
    pub const fn with_hash(self, hash: u32) -> Metadata {
        if self.has(Metadata::BEGUN) { self } else { Metadata(self.0 & !0xffff_ffff | hash as u64 | Metadata::HASH) }
    }

    /// Where the checksum is to be completed, if it is.
    pub const fn begun(self) -> Option<Begun> {
        if !self.has(Metadata::BEGUN) {
            return None;
        }
        Some(Begun { start: self.0 as u8, offset: (self.0 >> OFFSET) as u8 })
    }

    /// Bytes of payload of each packet that this one stands for, if it stands for several.
    pub const fn large(self) -> Option<u16> {
        if self.has(Metadata::LARGE) { Some((self.0 >> SIZE) as u16) } else { None }
    }

    /// The control information of a VLAN tag that is not in the frame.
    pub const fn vlan(self) -> Option<u16> {
        if self.has(Metadata::VLAN) { Some((self.0 >> TAG) as u16) } else { None }
    }

    /// The flow's hash.
    pub const fn hash(self) -> Option<u32> {
        if self.has(Metadata::HASH) { Some(self.0 as u32) } else { None }
    }

    /// Whether it is a request that a host may make: known flags alone, with what belongs to them and nothing else.
    pub const fn is_request(self) -> bool {
        let fields = (if self.has(Metadata::BEGUN) { 0xffff } else { 0 })
            | (if self.has(Metadata::LARGE) { 0xffff << SIZE } else { 0 })
            | (if self.has(Metadata::VLAN) { 0xffff << TAG } else { 0 });
        let whole = !self.has(Metadata::LARGE) || (self.has(Metadata::BEGUN) && self.0 >> SIZE & 0xffff != 0);
        self.0 & !(Metadata::REQUESTS | fields) == 0 && whole
    }
}

/// What a host makes of its packets' metadata, as it says when it attaches. Nothing: what it says in metadata is not looked at, and
/// what it gets is zero. On a loopback network metadata comes back as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// What it asks for in metadata is done: checksums, segmentation, VLAN tags; and it gets the hash of each packet's flow.
    pub requests: bool,
    /// It is told whether checksums are right, at the price of a look at each byte. With `requests` only, as the others.
    pub verify: bool,
    /// VLAN tags (type 0x8100) are taken out of its packets, and stand in the metadata.
    pub strip: bool,
    /// It takes packets whose checksum is only begun, and packets that stand for several, of up to 64 KiB in chains of buffers.
    /// What comes from another host or a TAP interface need then not be finished at all.
    pub unfinished: bool,
    /// It does without the flow's hash, which then costs nothing where it has one queue.
    pub no_hash: bool,
    /// TCP frames of one flow that follow each other in a burst are joined into one packet that stands for them, at the price of a
    /// look at each byte. With `unfinished` only.
    pub join: bool,
}

impl Offloads {
    /// Each with its name.
    pub const fn named(self) -> [(&'static str, bool); 6] {
        [
            ("requests", self.requests),
            ("verify", self.verify),
            ("strip", self.strip),
            ("unfinished", self.unfinished),
            ("no_hash", self.no_hash),
            ("join", self.join),
        ]
    }

    /// The other way round: those that are there by their names.
    pub fn from_named(is_there: impl Fn(&str) -> bool) -> Offloads {
        Offloads {
            requests: is_there("requests"),
            verify: is_there("verify"),
            strip: is_there("strip"),
            unfinished: is_there("unfinished"),
            no_hash: is_there("no_hash"),
            join: is_there("join"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offload_is_found_again_by_its_name() {
        for (one, _) in Offloads::default().named() {
            let offloads = Offloads::from_named(|name| name == one);
            let there: Vec<_> = offloads.named().into_iter().filter(|(_, is_there)| *is_there).collect();
            assert_eq!(there, [(one, true)]);
        }
    }

    #[test]
    fn each_field_gives_back_what_was_put_in_and_leaves_the_others() {
        let begun = Begun { start: 34, offset: 16 };
        let request = Metadata::NONE.with_begun(begun).with_large(1448).with_vlan(0x6123).with(Metadata::NETWORK);
        assert_eq!((request.begun(), request.large(), request.vlan()), (Some(begun), Some(1448), Some(0x6123)));
        let elsewhere = Begun { start: 38, offset: 6 };
        let moved = request.with_begun(elsewhere);
        assert_eq!((moved.begun(), moved.large(), moved.vlan()), (Some(elsewhere), Some(1448), Some(0x6123)));
        assert!(request.is_request() && request.hash().is_none());
        assert_eq!(request.with_hash(7), request, "the checksum has the hash's place");
        let received = Metadata::NONE.with_hash(0xdead_beef).with_vlan(7).with(Metadata::TRANSPORT_GOOD);
        assert_eq!((received.hash(), received.vlan(), received.begun()), (Some(0xdead_beef), Some(7), None));
        assert_eq!(received.with_begun(begun).hash(), None);
        assert_eq!(Metadata::NONE.with_vlan(0xffff).with_vlan(1).vlan(), Some(1));
    }

    #[test]
    fn a_request_has_no_bit_that_means_nothing() {
        assert!(Metadata::NONE.is_request());
        for bit in 0..64 {
            let alone = Metadata(1 << bit);
            let meant = [48, 49, 51].contains(&bit);
            assert_eq!(alone.is_request(), meant, "bit {bit}");
        }
        // A packet that stands for several says of how many bytes, and its checksum is begun.
        assert!(!Metadata::NONE.with_large(1448).is_request());
        let begun = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 });
        assert!(!begun.with_large(0).is_request() && begun.with_large(1).is_request());
    }
}
