//! Protocol Buffers' wire format, as far as a trace needs it: varints, fixed 64-bit values, and nested bytes.

/// A message in the making.
#[derive(Debug, Default)]
pub(super) struct Wire {
    bytes: Vec<u8>,
}

/// Wire types (Protocol Buffers' encoding guide).
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl Wire {
    /// The message's bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// An integer, a boolean or an enumeration's value. A negative one is given as its two's complement.
    pub fn integer(&mut self, field: u64, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    /// A `fixed64`.
    pub fn fixed(&mut self, field: u64, value: u64) {
        self.key(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A string.
    pub fn text(&mut self, field: u64, text: &str) {
        self.key(field, LENGTH);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// A message within this one, which `fill` writes.
    pub fn nested(&mut self, field: u64, fill: impl FnOnce(&mut Wire)) {
        self.key(field, LENGTH);
        let start = self.bytes.len();
        fill(self);
        // The length goes before what was written; it is short, and so is what moves.
        let body = self.bytes.len() - start;
        self.varint(body as u64);
        let length = self.bytes.len() - start - body;
        self.bytes[start..].rotate_right(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_guides_own_examples() {
        let mut wire = Wire::default();
        wire.integer(1, 150);
        wire.text(2, "testing");
        wire.nested(3, |inner| inner.integer(1, 150));
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(wire.into_bytes(), expected);
    }

    #[test]
    fn a_long_nested_message_has_a_long_length_before_it() {
        let mut wire = Wire::default();
        wire.nested(1, |inner| inner.text(2, &"x".repeat(300)));
        let bytes = wire.into_bytes();
        // 300 characters, a key and a length of two bytes: 303 = 0x2f + 2 * 128.
        assert_eq!(bytes[..6], [0x0a, 0xaf, 0x02, 0x12, 0xac, 0x02]);
        assert_eq!(bytes.len(), 306);
        assert!(bytes[6..].iter().all(|byte| *byte == b'x'));
    }

    #[test]
    fn the_largest_values() {
        let mut wire = Wire::default();
        wire.integer(47, u64::MAX);
        wire.fixed(47, u64::MAX - 1);
        let bytes = wire.into_bytes();
        assert_eq!(bytes[..2], [0xf8, 0x02]);
        assert_eq!(bytes[2..12], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(bytes[12..], [0xf9, 0x02, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }
}
