//! What can be wrong with a capture file.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::reader::CAPTURED_MAX;

/// What is wrong with a capture file, and where. Its text also says what to do.
#[derive(Debug)]
pub struct CaptureError {
    /// The file, or a description where it has no path.
    pub file: PathBuf,
    /// The byte offset of the file header, record or block that is wrong; on writing, the bytes written before.
    pub offset: u64,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a capture file. Lengths are in bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be opened or made.
    Open(io::Error),
    /// The operating system cannot read it.
    Read(io::Error),
    /// The operating system cannot write it.
    Write(io::Error),
    /// The name ends neither in `.pcap` nor in `.pcapng`, so the format to write is unknown.
    UnknownExtension,
    /// The file is to be replayed several times, and is a pipe or the like.
    CannotRewind(io::Error),
    /// The capture to be replayed would be overwritten by the recording.
    SameFile,
    /// There is not one byte in it.
    Empty,
    /// It begins like no capture file.
    UnknownMagic([u8; 4]),
    /// It is compressed.
    Compressed(&'static str),
    /// It is of a pcap variant with other record headers.
    PcapVariant,
    /// A version of the format that this reader does not know.
    UnsupportedVersion(u16, u16),
    /// Frames of another link type than Ethernet.
    NotEthernet {
        /// The link type, as <https://www.tcpdump.org/linktypes.html> numbers them.
        link_type: u16,
        /// The interface of a pcapng file.
        interface: Option<u32>,
    },
    /// The file ends too early.
    EndsInside {
        /// What it ends inside of.
        what: &'static str,
        /// The bytes that this should have.
        needed: u64,
        /// The bytes that it has.
        found: u64,
    },
    /// A record claims to hold more than any frame could.
    AbsurdCapturedLength(u32),
    /// A block is shorter than its own fields, longer than its kind may be, or not a multiple of 4 long.
    BlockLength {
        /// The kind of block.
        what: &'static str,
        /// The length that it claims.
        length: u32,
        /// What such a block must have.
        must: &'static str,
    },
    /// The length at the end of a block is not the length at its beginning.
    BlockLengthsDiffer(u32, u32),
    /// A packet claims to be longer than the block that holds it.
    PacketOutgrowsBlock {
        /// The bytes captured, as claimed.
        captured: u32,
        /// The bytes that the block has for them.
        room: u32,
    },
    /// A section does not begin with the byte-order magic.
    ByteOrderMagic([u8; 4]),
    /// An option of an interface is longer than its block, or not of the length that its kind has.
    InterfaceOption(u16),
    /// A packet of an interface that the section has not described.
    UnknownInterface(u32),
    /// More interfaces in a section than this reader keeps.
    TooManyInterfaces(usize),
    /// The timestamp is past 2106 and the pcap format counts seconds in 32 bits.
    TimestampTooLate,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.problem {
            Problem::Open(_) | Problem::UnknownExtension | Problem::SameFile | Problem::Empty => {}
            _ => write!(f, "at byte {}: ", self.offset)?,
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for CaptureError {}

impl CaptureError {
    /// Whether nothing is wrong but that the other end of a pipe has given nothing more, or has no room for more, at this moment.
    pub fn is_to_come(&self) -> bool {
        matches!(&self.problem, Problem::Read(error) | Problem::Write(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

/// What to do about a file that is damaged from some point on.
const DAMAGED: &str = "the file is damaged from here on; capture it again, or keep the frames before with editcap";

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Open(error) => write!(f, "cannot be opened: {error}"),
            Problem::Read(error) => write!(f, "cannot be read: {error}"),
            Problem::Write(error) => {
                write!(f, "cannot be written: {error}; the file is incomplete")
            }
            Problem::UnknownExtension => {
                write!(f, "give the capture a name that ends in .pcap or .pcapng")
            }
            Problem::CannotRewind(error) => {
                write!(
                    f,
                    "cannot be replayed again from its beginning ({error}); give a regular file, or replay it once"
                )
            }
            Problem::SameFile => write!(f, "is the capture being replayed; record to another file"),
            Problem::Empty => write!(f, "the file is empty, not a capture; was the capture stopped before it began?"),
            Problem::UnknownMagic([a, b, c, d]) => write!(
                f,
                "begins with {a:02x} {b:02x} {c:02x} {d:02x}, which is neither pcap nor pcapng; \
                 convert it, for instance with: editcap -F pcapng IN OUT.pcapng"
            ),
            Problem::Compressed(with) => {
                write!(f, "is compressed; decompress it first, with: {with}")
            }
            Problem::PcapVariant => {
                write!(f, "is a pcap variant with other record headers; convert it with: editcap -F pcap IN OUT.pcap")
            }
            Problem::UnsupportedVersion(major, minor) => write!(
                f,
                "is of format version {major}.{minor}; known are pcap 2.4 and pcapng 1.0 and 1.2. Convert it with editcap"
            ),
            Problem::NotEthernet { link_type, interface } => {
                if let Some(interface) = interface {
                    write!(f, "a packet of interface {interface}, which ")?;
                }
                write!(
                    f,
                    "has link type {link_type}, not Ethernet (1); capture on an Ethernet interface, not on \"any\" or a tunnel"
                )
            }
            Problem::EndsInside { what, needed, found } => write!(
                f,
                "the file ends inside {what}: {found} of {needed} bytes are there; \
                 the capture was cut short, and what lies before is sound"
            ),
            Problem::TooManyInterfaces(limit) => {
                write!(f, "more than {limit} interfaces in one section; split the file with editcap")
            }
            Problem::TimestampTooLate => {
                write!(f, "a timestamp past the year 2106, which pcap cannot hold; write a .pcapng")
            }
            Problem::AbsurdCapturedLength(..)
            | Problem::BlockLength { .. }
            | Problem::BlockLengthsDiffer(..)
            | Problem::PacketOutgrowsBlock { .. }
            | Problem::ByteOrderMagic(..)
            | Problem::InterfaceOption(..)
            | Problem::UnknownInterface(..) => self.fmt_damage(f),
        }
    }
}

impl Problem {
    /// The text of what only a damaged file has.
    fn fmt_damage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::AbsurdCapturedLength(length) => {
                write!(
                    f,
                    "a record claims to hold {length} bytes, more than the {CAPTURED_MAX} any capture has; {DAMAGED}"
                )
            }
            Problem::BlockLength { what, length, must } => {
                write!(f, "{what} claims a length of {length} bytes and must have {must}; {DAMAGED}")
            }
            Problem::BlockLengthsDiffer(first, last) => {
                write!(f, "a block says {first} bytes at its beginning and {last} at its end; {DAMAGED}")
            }
            Problem::PacketOutgrowsBlock { captured, room } => {
                write!(f, "a packet claims {captured} bytes, and its block has room for {room}; {DAMAGED}")
            }
            Problem::ByteOrderMagic([a, b, c, d]) => write!(
                f,
                "a section's byte-order magic is {a:02x} {b:02x} {c:02x} {d:02x}, not 1a 2b 3c 4d either way round; {DAMAGED}"
            ),
            Problem::InterfaceOption(code) => {
                write!(f, "option {code} of an interface has a length that it cannot have; {DAMAGED}")
            }
            Problem::UnknownInterface(interface) => {
                write!(f, "a packet of interface {interface}, which no block before describes; {DAMAGED}")
            }
            // `fmt`, the only caller, names them all.
            _ => Ok(()),
        }
    }
}
