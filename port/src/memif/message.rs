//! The messages of memif's control channel, protocol version 2.0.
//!
//! Each is one packet of 128 bytes: a type in 16 bits, then what belongs to it, packed, in the machine's byte order. "Server"
//! and "client" are called master and slave in older texts: the server listens, the client brings the memory.
//!
//! | message | from | answered by | carries a descriptor |
//! |---|---|---|---|
//! | hello | server | init | |
//! | init | client | acknowledgement | |
//! | add region | client | acknowledgement | the memory |
//! | add ring | client | acknowledgement | an eventfd |
//! | connect | client | connected | |
//! | disconnect | either | the end | |
//!
//! Source: the protocol's headers, `memif.h`, in DPDK's net/memif and in libmemif.

use std::fmt;

/// Bytes of a message.
pub(super) const MESSAGE: usize = 128;
/// Version 2.0.
pub(super) const VERSION: u16 = 2 << 8;
/// What begins every ring.
pub(super) const COOKIE: u32 = 0x03e3_1f20;
/// Bytes of a secret.
pub(super) const SECRET: usize = 24;
/// Bytes of a name.
const NAME: usize = 32;
/// Bytes of a reason.
const REASON: usize = 96;
/// The mode in which frames are Ethernet's.
pub(super) const ETHERNET: u8 = 0;
/// The ring goes from client to server.
const TO_SERVER: u16 = 1;

/// A text of fixed size, ended by a zero where there is room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Text<const BYTES: usize>(pub(super) [u8; BYTES]);

impl<const BYTES: usize> Text<BYTES> {
    pub(super) fn new(text: &str) -> Text<BYTES> {
        let mut bytes = [0; BYTES];
        let end = text.len().min(BYTES - 1);
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Text(bytes)
    }
}

impl<const BYTES: usize> fmt::Display for Text<BYTES> {
    /// What a peer wrote, with anything but plain letters made visible: it may end up in a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(BYTES);
        self.0[..end].escape_ascii().fmt(f)
    }
}

impl<const BYTES: usize> fmt::Debug for Text<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What the server can bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) name: Text<NAME>,
    pub(super) least_version: u16,
    pub(super) most_version: u16,
    /// The greatest index of a region.
    pub(super) last_region: u16,
    /// The greatest index of a ring to the client.
    pub(super) last_to_client: u16,
    /// The greatest index of a ring to the server.
    pub(super) last_to_server: u16,
    pub(super) most_log2_slots: u8,
}

/// Who the client is and what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) version: u16,
    pub(super) id: u32,
    pub(super) mode: u8,
    pub(super) secret: [u8; SECRET],
    pub(super) name: Text<NAME>,
}

/// A ring in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddRing {
    pub(super) to_server: bool,
    pub(super) index: u16,
    pub(super) region: u16,
    pub(super) offset: u32,
    pub(super) log2_slots: u8,
    pub(super) private_header: u16,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Acknowledge,
    Hello(Hello),
    Init(Init),
    AddRegion { index: u16, bytes: u64 },
    AddRing(AddRing),
    Connect(Text<NAME>),
    Connected(Text<NAME>),
    Disconnect { code: u32, reason: Text<REASON> },
}

impl Message {
    pub(super) fn disconnect(reason: &str) -> Message {
        Message::Disconnect { code: 0, reason: Text::new(reason) }
    }

    /// Reads a message; says what is wrong with what is none.
    pub(super) fn read(bytes: &[u8]) -> Result<Message, &'static str> {
        let bytes: &[u8; MESSAGE] = bytes.try_into().map_err(|_| "a message is not 128 bytes long")?;
        let mut fields = Fields { bytes, at: 2 };
        Ok(match u16::from_ne_bytes([bytes[0], bytes[1]]) {
            1 => Message::Acknowledge,
            2 => Message::Hello(Hello {
                name: Text(fields.take()),
                least_version: fields.u16(),
                most_version: fields.u16(),
                last_region: fields.u16(),
                last_to_client: fields.u16(),
                last_to_server: fields.u16(),
                most_log2_slots: fields.take::<1>()[0],
            }),
            3 => Message::Init(Init {
                version: fields.u16(),
                id: u32::from_ne_bytes(fields.take()),
                mode: fields.take::<1>()[0],
                secret: fields.take(),
                name: Text(fields.take()),
            }),
            4 => Message::AddRegion { index: fields.u16(), bytes: u64::from_ne_bytes(fields.take()) },
            5 => {
                let flags = fields.u16();
                if flags & !TO_SERVER != 0 {
                    return Err("a ring has unknown flags");
                }
                Message::AddRing(AddRing {
                    to_server: flags & TO_SERVER != 0,
                    index: fields.u16(),
                    region: fields.u16(),
                    offset: u32::from_ne_bytes(fields.take()),
                    log2_slots: fields.take::<1>()[0],
                    private_header: fields.u16(),
                })
            }
            6 => Message::Connect(Text(fields.take())),
            7 => Message::Connected(Text(fields.take())),
            8 => Message::Disconnect { code: u32::from_ne_bytes(fields.take()), reason: Text(fields.take()) },
            _ => return Err("a message has an unknown type"),
        })
    }

    /// Writes a message.
    pub(super) fn write(&self) -> [u8; MESSAGE] {
        let mut writer = Writer { bytes: [0; MESSAGE], at: 2 };
        let kind: u16 = match self {
            Message::Acknowledge => 1,
            Message::Hello(hello) => {
                writer.put(&hello.name.0);
                for word in [
                    hello.least_version,
                    hello.most_version,
                    hello.last_region,
                    hello.last_to_client,
                    hello.last_to_server,
                ] {
                    writer.put(&word.to_ne_bytes());
                }
                writer.put(&[hello.most_log2_slots]);
                2
            }
            Message::Init(init) => {
                writer.put(&init.version.to_ne_bytes());
                writer.put(&init.id.to_ne_bytes());
                writer.put(&[init.mode]);
                writer.put(&init.secret);
                writer.put(&init.name.0);
                3
            }
            Message::AddRegion { index, bytes } => {
                writer.put(&index.to_ne_bytes());
                writer.put(&bytes.to_ne_bytes());
                4
            }
            Message::AddRing(ring) => {
                writer.put(&u16::from(ring.to_server).to_ne_bytes());
                writer.put(&ring.index.to_ne_bytes());
                writer.put(&ring.region.to_ne_bytes());
                writer.put(&ring.offset.to_ne_bytes());
                writer.put(&[ring.log2_slots]);
                writer.put(&ring.private_header.to_ne_bytes());
                5
            }
            Message::Connect(name) => {
                writer.put(&name.0);
                6
            }
            Message::Connected(name) => {
                writer.put(&name.0);
                7
            }
            Message::Disconnect { code, reason } => {
                writer.put(&code.to_ne_bytes());
                writer.put(&reason.0);
                8
            }
        };
        writer.bytes[..2].copy_from_slice(&kind.to_ne_bytes());
        writer.bytes
    }
}

struct Fields<'a> {
    bytes: &'a [u8; MESSAGE],
    at: usize,
}

impl Fields<'_> {
    fn take<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let field = std::array::from_fn(|index| self.bytes[self.at + index]);
        self.at += BYTES;
        field
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }
}

struct Writer {
    bytes: [u8; MESSAGE],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let hello = Hello {
            name: Text::new("conic"),
            least_version: VERSION,
            most_version: VERSION,
            last_region: 15,
            last_to_client: 7,
            last_to_server: 6,
            most_log2_slots: 14,
        };
        let init = Init { version: VERSION, id: 0x0102_0304, mode: 0, secret: [7; SECRET], name: Text::new("x") };
        let ring =
            AddRing { to_server: true, index: 3, region: 1, offset: 0x1000_0040, log2_slots: 10, private_header: 2 };
        vec![
            Message::Acknowledge,
            Message::Hello(hello),
            Message::Init(init),
            Message::AddRegion { index: 2, bytes: 1 << 40 },
            Message::AddRing(ring),
            Message::Connect(Text::new("there")),
            Message::Connected(Text::new("here")),
            Message::disconnect("enough"),
        ]
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_shorter_or_longer() {
        for message in messages() {
            let bytes = message.write();
            assert_eq!(Message::read(&bytes), Ok(message));
            assert!(Message::read(&bytes[..127]).is_err() && Message::read(&[0; 129]).is_err());
        }
        assert_eq!(Message::read(&[0; 128]), Err("a message has an unknown type"));
        assert_eq!(Message::read(&[0xff; 128]), Err("a message has an unknown type"));
    }

    /// The offsets of the protocol's packed structures.
    #[test]
    fn fields_lie_where_the_protocol_has_them() {
        let [_, hello, init, region, ring, connect, _, disconnect] = messages().try_into().expect("eight messages");
        let at = |message: &Message, at: usize, bytes: &[u8]| {
            assert_eq!(&message.write()[at..at + bytes.len()], bytes, "{message:?} at {at}");
        };
        at(&hello, 0, &[2, 0, b'c']);
        at(&hello, 34, &[0, 2, 0, 2, 15, 0, 7, 0, 6, 0, 14]);
        at(&init, 0, &[3, 0, 0, 2, 4, 3, 2, 1, 0, 7]);
        at(&init, 33, b"x");
        at(&region, 0, &[4, 0, 2, 0, 0, 0, 0, 0, 0, 1]);
        at(&ring, 0, &[5, 0, 1, 0, 3, 0, 1, 0, 0x40, 0, 0, 0x10, 10, 2, 0]);
        at(&connect, 0, b"\x06\0there");
        at(&disconnect, 0, b"\x08\0\0\0\0\0enough");
    }

    #[test]
    fn what_a_peer_wrote_is_shown_without_control_characters() {
        let mut text = Text::<32>::new("a");
        text.0[1..4].copy_from_slice(b"\x1b[m");
        assert_eq!(text.to_string(), "a\\x1b[m");
        assert_eq!(Text::<4>::new("long").to_string(), "lon");
    }
}
