//! Bytes of messages: a header, then fields.

use std::fmt;

/// Bytes of every message's header:
///
/// | bytes | field |
/// |---|---|
/// | 0 to 3 | `CNIC` |
/// | 4 to 5 | kind |
/// | 6 to 7 | version of the sender's encoding |
/// | 8 to 11 | bytes of the message, header included |
/// | 12 to 13 | descriptors that come with it |
/// | 14 to 15 | zero |
pub const HEADER: usize = 16;

const MAGIC: [u8; 4] = *b"CNIC";

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl Malformed {
    pub(crate) fn new(why: impl Into<String>) -> Malformed {
        Malformed(why.into())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Puts a message together.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(kind: u16, descriptors: u16) -> Writer {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(crate::VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(descriptors.to_le_bytes());
        bytes.extend([0; 2]);
        Writer(bytes)
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }
    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }
    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.0.extend(value);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[8..12].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

/// Takes a message apart.
pub(crate) struct Reader<'bytes> {
    rest: &'bytes [u8],
    pub(crate) kind: u16,
    pub(crate) descriptors: u16,
}

impl<'bytes> Reader<'bytes> {
    pub(crate) fn new(bytes: &'bytes [u8]) -> Result<Reader<'bytes>, Malformed> {
        let mut reader = Reader { rest: bytes, kind: 0, descriptors: 0 };
        if reader.array::<4>("the first word")? != MAGIC {
            return Err(Malformed::new("it does not begin as conic's messages do"));
        }
        reader.kind = reader.u16("the kind")?;
        let _version = reader.u16("the version")?;
        let length = reader.u32("the length")? as usize;
        if length != bytes.len() {
            return Err(Malformed::new(format!("it says that it has {length} bytes, and has {}", bytes.len())));
        }
        reader.descriptors = reader.u16("the number of descriptors")?;
        if reader.u16("the reserved bytes")? != 0 {
            return Err(Malformed::new("its reserved bytes are not zero"));
        }
        Ok(reader)
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'bytes [u8], Malformed> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| Malformed::new(format!("it ends within {what}")))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Malformed> {
        self.take(N, what)?.try_into().map_err(|_| Malformed::new(format!("it ends within {what}")))
    }
    pub(crate) fn u16(&mut self, what: &str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }
    /// Text that fills the message.
    pub(crate) fn text(&mut self, what: &str) -> Result<String, Malformed> {
        let bytes = std::mem::take(&mut self.rest);
        String::from_utf8(bytes.to_vec()).map_err(|_| Malformed::new(format!("{what} is no text")))
    }

    pub(crate) fn finish<T>(self, value: T) -> Result<T, Malformed> {
        match self.rest.len() {
            0 => Ok(value),
            more => Err(Malformed::new(format!("it has {more} bytes more than its kind"))),
        }
    }
}
