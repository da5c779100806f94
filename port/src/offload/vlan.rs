//! VLAN tags: put into a frame and taken out. Source: IEEE 802.1Q.

use super::headers::{VLAN_TYPES, big_endian};

/// Bytes of a tag.
pub const TAG_BYTES: usize = 4;

/// Where the tag lies: behind the two addresses.
const TAG_AT: usize = 12;

/// A tag's control information: priority (3 bits), drop eligible (1 bit), VLAN number (12 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its type: 0x8100, or 0x88a8 for a provider's.
    pub kind: u16,
    /// Its control information.
    pub control: u16,
}

impl Tag {
    /// A customer's tag of priority 0.
    pub const fn new(vlan: u16) -> Tag {
        Tag { kind: VLAN_TYPES[0], control: vlan & 0xfff }
    }

    /// The VLAN's number: 1 to 4094; 0 says "none, only a priority".
    pub const fn vlan(self) -> u16 {
        self.control & 0xfff
    }

    /// The outermost tag of a frame.
    pub fn of(frame: &[u8]) -> Option<Tag> {
        let kind = big_endian(frame, TAG_AT).filter(|kind| VLAN_TYPES.contains(kind))?;
        // With room for the type of what is tagged.
        big_endian(frame, TAG_AT + TAG_BYTES)?;
        Some(Tag { kind, control: big_endian(frame, TAG_AT + 2)? })
    }
}

/// Puts a tag into the frame in the first `length` bytes of `buffer`, as the outermost one, and gives the new length;
/// `None`, with nothing changed, where it is no frame or there is no room for four bytes more.
pub fn insert(buffer: &mut [u8], length: usize, tag: Tag) -> Option<usize> {
    if length < TAG_AT + 2 || length + TAG_BYTES > buffer.len() {
        return None;
    }
    buffer.copy_within(TAG_AT..length, TAG_AT + TAG_BYTES);
    buffer[TAG_AT..TAG_AT + 2].copy_from_slice(&tag.kind.to_be_bytes());
    buffer[TAG_AT + 2..TAG_AT + 4].copy_from_slice(&tag.control.to_be_bytes());
    Some(length + TAG_BYTES)
}

/// Takes the outermost tag out of a frame, and gives it; the frame is then four bytes shorter, and what it had as its last
/// four bytes is unspecified. `None`, with nothing changed, where it has none.
pub fn strip(frame: &mut [u8]) -> Option<Tag> {
    let tag = Tag::of(frame)?;
    frame.copy_within(TAG_AT + TAG_BYTES.., TAG_AT);
    Some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_in_and_comes_out_again() {
        let frame: Vec<u8> = (0..60).collect();
        let mut buffer = frame.clone();
        buffer.resize(68, 0);
        let outer = Tag { kind: 0x88a8, control: 0x6123 };
        assert_eq!(insert(&mut buffer, 60, Tag::new(7)), Some(64));
        assert_eq!(insert(&mut buffer, 64, outer), Some(68));
        assert_eq!(insert(&mut buffer, 68, outer), None);
        assert_eq!(buffer[..12], frame[..12]);
        assert_eq!(buffer[12..20], [0x88, 0xa8, 0x61, 0x23, 0x81, 0, 0, 7]);
        assert_eq!((outer.vlan(), strip(&mut buffer)), (0x123, Some(outer)));
        assert_eq!(strip(&mut buffer[..64]), Some(Tag::new(7)));
        assert_eq!(buffer[..60], frame);
        assert_eq!(strip(&mut buffer[..60]), None);
        assert_eq!(insert(&mut buffer, 13, outer), None, "no frame");
        assert_eq!(buffer[..60], frame);
    }

    #[test]
    fn a_frame_that_ends_in_its_tag_has_none() {
        let mut frame = [0; 18];
        frame[12] = 0x81;
        for length in 0..18 {
            assert_eq!(Tag::of(&frame[..length]), None, "{length}");
        }
        assert_eq!(strip(&mut frame), Some(Tag::new(0)));
    }
}
