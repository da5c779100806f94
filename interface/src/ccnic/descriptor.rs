//! The 16-byte descriptor.

use conic_fabric::{Address, LINE_BYTES};

/// What a descriptor says of itself, beside address and length.
///
/// | bit | name | meaning |
/// |---|---|---|
/// | 0 | `VALID` | not blank; in word 0 of a slot it is the signal |
/// | 1 | `PHASE` | the ring's lap is even, where slots are reused by phase |
/// | 2 | `NEXT` | the packet goes on in the next descriptor of this slot |
/// | 3 | `RETAIN` | the sender keeps the buffer and is told when it has been read |
/// | 4 | `INLINE` | the payload is in the slot itself |
/// | 5 | `CONTINUED` | this slot holds the rest of the payload that began in the one before |
/// | 6 | `POSTED` | it names a blank buffer, which the NIC may receive into |
pub struct Flags;

impl Flags {
    /// Not blank.
    pub const VALID: u8 = 1;
    /// The ring's lap is even.
    pub const PHASE: u8 = 1 << 1;
    /// The packet goes on in the next descriptor of this slot.
    pub const NEXT: u8 = 1 << 2;
    /// The sender keeps the buffer.
    pub const RETAIN: u8 = 1 << 3;
    /// The payload is in the slot.
    pub const INLINE: u8 = 1 << 4;
    /// The slot holds the rest of an inline payload.
    pub const CONTINUED: u8 = 1 << 5;
    /// The descriptor names a blank buffer.
    pub const POSTED: u8 = 1 << 6;
}

/// A packet, or one segment of it, as it stands in a ring: 16 bytes (CC-NIC section 2.1).
///
/// | word | bits | field |
/// |---|---|---|
/// | 0 | 0..40 | address of the first payload byte, from the start of the region |
/// | 0 | 40..48 | [`Flags`] |
/// | 0 | 48..64 | length in bytes |
/// | 1 | 0..64 | metadata, which the queue carries and does not read: [`crate::metadata`] |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Address, flags and length.
    pub word: u64,
    /// What the two ends agree on.
    pub metadata: u64,
}

const ADDRESS_BITS: u32 = 40;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
const FLAGS_SHIFT: u32 = 40;
const LENGTH_SHIFT: u32 = 48;
const LENGTH_MASK: u64 = (u16::MAX as u64) << LENGTH_SHIFT;

impl Descriptor {
    /// No packet.
    pub const BLANK: Descriptor = Descriptor { word: 0, metadata: 0 };

    /// A packet of `length` bytes at `address`.
    #[inline(always)]
    pub const fn new(address: Address, length: u16) -> Descriptor {
        let word = address.0 & ADDRESS_MASK | (Flags::VALID as u64) << FLAGS_SHIFT | (length as u64) << LENGTH_SHIFT;
        Descriptor { word, metadata: 0 }
    }

    /// The same with one more flag.
    #[inline(always)]
    pub const fn with(self, flag: u8) -> Descriptor {
        Descriptor { word: self.word | (flag as u64) << FLAGS_SHIFT, ..self }
    }

    /// The same without a flag.
    #[inline(always)]
    pub const fn without(self, flag: u8) -> Descriptor {
        Descriptor { word: self.word & !((flag as u64) << FLAGS_SHIFT), ..self }
    }

    /// The same with metadata.
    #[inline(always)]
    pub const fn with_metadata(self, metadata: u64) -> Descriptor {
        Descriptor { metadata, ..self }
    }

    /// A packet of one segment as it is received: as long as this one, with its metadata, somewhere else, and nobody's to keep.
    #[inline(always)]
    pub(crate) const fn received_at(self, address: Address) -> Descriptor {
        let kept = self.word & (LENGTH_MASK | flag_bit(Flags::VALID));
        Descriptor { word: kept | address.0 & ADDRESS_MASK, metadata: self.metadata }
    }

    /// Where the payload starts.
    #[inline(always)]
    pub const fn address(self) -> Address {
        Address(self.word & ADDRESS_MASK)
    }

    /// Where the payload starts, for a packet of one segment that its sender does not keep. For any other it is an address that lies in
    /// no region: the flags stand above the bits that a region's addresses have.
    #[inline(always)]
    pub(crate) const fn address_if_plain(self) -> Address {
        Address(self.word & (ADDRESS_MASK | flag_bit(Flags::NEXT | Flags::RETAIN)))
    }

    /// Whether it is a packet of one segment that begins with a line.
    #[inline(always)]
    pub(crate) const fn is_of_whole_lines(self) -> bool {
        self.word & ((LINE_BYTES - 1) | flag_bit(Flags::NEXT)) == 0
    }

    /// How many bytes it has.
    #[inline(always)]
    pub const fn length(self) -> u16 {
        (self.word >> LENGTH_SHIFT) as u16
    }

    /// Whether a flag is set.
    #[inline(always)]
    pub const fn has(self, flag: u8) -> bool {
        has_flag(self.word, flag)
    }

    /// Whether it stands for no packet.
    #[inline(always)]
    pub const fn is_blank(self) -> bool {
        !self.has(Flags::VALID)
    }

    /// How many lines its payload touches.
    #[inline(always)]
    pub const fn lines(self) -> u64 {
        (self.address().0 % LINE_BYTES + self.length() as u64).div_ceil(LINE_BYTES)
    }
}

/// The flags that belong to the ring and not to the packet: nobody's descriptor brings them along or takes them away.
pub(crate) const RING_FLAGS: u64 = flag_bit(Flags::PHASE | Flags::INLINE | Flags::CONTINUED | Flags::POSTED);

/// Whether a flag is set in a descriptor's word 0.
#[inline(always)]
pub(crate) const fn has_flag(word: u64, flag: u8) -> bool {
    word & (flag as u64) << FLAGS_SHIFT != 0
}

/// A flag in its place in word 0.
#[inline(always)]
pub(crate) const fn flag_bit(flag: u8) -> u64 {
    (flag as u64) << FLAGS_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_gives_back_what_was_put_in() {
        let at = Address((1 << 40) - 64);
        let descriptor = Descriptor::new(at, u16::MAX).with(Flags::NEXT).with_metadata(7);
        assert_eq!((descriptor.address(), descriptor.length(), descriptor.metadata), (at, u16::MAX, 7));
        assert!(descriptor.has(Flags::NEXT) && !descriptor.has(Flags::RETAIN) && !descriptor.is_blank());
        assert_eq!(descriptor.without(Flags::NEXT), Descriptor::new(at, u16::MAX).with_metadata(7));
        assert_eq!(Descriptor::new(Address(63), 2).lines(), 2);
    }

    #[test]
    fn what_is_received_elsewhere_is_nobodys_to_keep() {
        let to = Address((1 << 40) - 128);
        for flags in [0, Flags::RETAIN, Flags::RETAIN | Flags::PHASE] {
            let sent = Descriptor::new(Address(64), 1500).with(flags).with_metadata(9);
            assert_eq!(sent.received_at(to), Descriptor::new(to, 1500).with_metadata(9));
        }
    }
}
