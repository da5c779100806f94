//! Reads a capture file, whichever format it has.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use super::error::{CaptureError, Problem};
use super::pcap::{self, Pcap};
use super::pcapng::{Pcapng, SECTION_HEADER};
use super::source::Source;
use super::timestamp::Timestamp;

/// The most bytes that a record may claim to hold: the largest snapshot length that capture programs use.
pub const CAPTURED_MAX: u32 = 262_144;

/// A packet of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where in the file the record or block begins.
    pub offset: u64,
    /// When it was captured; simple packet blocks do not say.
    pub timestamp: Option<Timestamp>,
    /// Bytes of the frame that the file holds, without a frame check sequence that the file declares.
    pub captured: u32,
    /// Bytes that the frame had on the wire, likewise.
    pub wire: u32,
}

impl Record {
    /// Whether the file holds only the beginning of the frame.
    pub fn is_truncated(&self) -> bool {
        self.captured < self.wire
    }

    pub(super) fn without_check_sequence(mut self, bytes: u32) -> Record {
        if bytes > 0 {
            self.wire = self.wire.saturating_sub(bytes);
            self.captured = self.captured.min(self.wire);
        }
        self
    }
}

/// A packet and the offset in the file of its first byte.
pub(super) struct Located {
    pub(super) record: Record,
    pub(super) data: u64,
}

/// What one step through a file met.
pub(super) enum Step {
    Packet(Located),
    /// A block that is no packet.
    Other,
    End,
}

/// Which end of a number comes first. The offsets are those of fields that the caller has seen to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    #[inline]
    fn bytes<const N: usize>(self, from: &[u8], at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&from[at..at + N]);
        if self == Order::Big {
            bytes.reverse();
        }
        bytes
    }

    #[inline]
    pub(super) fn u16(self, from: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(from, at))
    }

    #[inline]
    pub(super) fn u32(self, from: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(from, at))
    }

    #[inline]
    pub(super) fn u64(self, from: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(from, at))
    }
}

impl Problem {
    pub(super) fn ends_inside(what: &'static str, needed: usize, found: usize) -> Problem {
        Problem::EndsInside { what, needed: needed as u64, found: found as u64 }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Read(error)
    }
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// Reads the packets of a capture file in order: pcap (micro- and nanoseconds) and pcapng, in both byte orders.
///
/// Its memory is fixed (a buffer of 512 KiB, and 32 bytes for each interface that a section describes), whatever
/// lengths the file claims. Nothing is allocated for a packet.
pub struct CaptureReader<R> {
    file: PathBuf,
    source: Source<R>,
    format: Format,
    /// Where the packet that `next_record` gave lies: offset in the file, bytes.
    current: (u64, usize),
    /// The end was reached or an error reported.
    ended: bool,
}

impl CaptureReader<File> {
    /// Opens a capture file.
    ///
    /// # Errors
    /// It cannot be opened, or does not begin like a capture of Ethernet frames.
    pub fn open(path: &Path) -> Result<CaptureReader<File>, CaptureError> {
        let file = File::open(path).map_err(|error| CaptureError {
            file: path.to_owned(),
            offset: 0,
            problem: Problem::Open(error),
        })?;
        CaptureReader::new(file, path)
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        self.source.reader()
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads a capture from `reader`; `name` stands in error messages.
    ///
    /// # Errors
    /// It does not begin like a capture of Ethernet frames. (A pcapng file says of each interface what its frames are:
    /// one that is not Ethernet is an error when its first packet is met.)
    pub fn new(reader: R, name: impl Into<PathBuf>) -> Result<CaptureReader<R>, CaptureError> {
        let file = name.into();
        let mut source = Source::new(reader);
        match begin(&mut source) {
            Ok(format) => Ok(CaptureReader { file, source, format, current: (0, 0), ended: false }),
            Err(problem) => Err(CaptureError { file, offset: 0, problem }),
        }
    }

    /// Goes to the next packet; `None` at the end of the file.
    ///
    /// # Errors
    /// The file is broken here. It is reported once; afterwards the file is at its end. Of a reader that does not wait, and has nothing
    /// now, that is an error too ([`CaptureError::is_to_come`]), behind which it goes on.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record>, CaptureError> {
        self.current.1 = 0;
        while !self.ended {
            let offset = self.source.offset();
            let step = match &mut self.format {
                Format::Pcap(pcap) => pcap.step(&mut self.source),
                Format::Pcapng(pcapng) => pcapng.step(&mut self.source),
            };
            match step {
                Ok(Step::Packet(Located { record, data })) => {
                    self.current = (data, record.captured as usize);
                    return Ok(Some(record));
                }
                Ok(Step::Other) => {}
                Ok(Step::End) => self.ended = true,
                Err(problem) => {
                    let error = self.error(offset, problem);
                    self.ended = !error.is_to_come();
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// The bytes of the packet that `next_record` gave; none before it and after the end.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let (offset, length) = self.current;
        if length == 0 { &[] } else { self.source.at(offset, length) }
    }

    fn error(&self, offset: u64, problem: Problem) -> CaptureError {
        CaptureError { file: self.file.clone(), offset, problem }
    }
}

impl<R: Read + Seek> CaptureReader<R> {
    /// Begins the file again.
    ///
    /// # Errors
    /// It is a pipe or the like, or no longer begins like a capture.
    pub fn rewind(&mut self) -> Result<(), CaptureError> {
        self.current.1 = 0;
        self.ended = true;
        let offset = self.source.offset();
        self.source.rewind().map_err(|error| self.error(offset, Problem::CannotRewind(error)))?;
        self.format = begin(&mut self.source).map_err(|problem| self.error(0, problem))?;
        self.ended = false;
        Ok(())
    }

    /// Finds out whether `rewind` can work, before the file is used up.
    ///
    /// # Errors
    /// The file is a pipe or the like.
    pub(super) fn check_rewind(&mut self) -> Result<(), CaptureError> {
        let offset = self.source.offset();
        self.source.check_seekable().map_err(|error| self.error(offset, Problem::CannotRewind(error)))
    }
}

/// Recognises the format and reads what comes before the first record or block.
fn begin<R: Read>(source: &mut Source<R>) -> Result<Format, Problem> {
    let head = source.peek(4)?;
    let &[a, b, c, d] = head else {
        return Err(match head.len() {
            0 => Problem::Empty,
            found => Problem::ends_inside("the file header", pcap::HEADER, found),
        });
    };
    let magic = [a, b, c, d];
    if u32::from_le_bytes(magic) == SECTION_HEADER {
        let mut pcapng = Pcapng::new();
        // The section header itself.
        pcapng.step(source)?;
        return Ok(Format::Pcapng(pcapng));
    }
    for (order, number) in [(Order::Little, u32::from_le_bytes(magic)), (Order::Big, u32::from_be_bytes(magic))] {
        let fraction_unit = match number {
            pcap::MAGIC_MICROSECONDS => 1_000,
            pcap::MAGIC_NANOSECONDS => 1,
            pcap::MAGIC_LONG_RECORDS => return Err(Problem::PcapVariant),
            _ => continue,
        };
        return Pcap::begin(source, order, fraction_unit).map(Format::Pcap);
    }
    Err(match magic {
        [0x1f, 0x8b, _, _] => Problem::Compressed("gunzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => Problem::Compressed("unzstd"),
        [0xfd, b'7', b'z', b'X'] => Problem::Compressed("unxz"),
        [0x04, 0x22, 0x4d, 0x18] => Problem::Compressed("unlz4"),
        [b'B', b'Z', b'h', _] => Problem::Compressed("bunzip2"),
        _ => Problem::UnknownMagic(magic),
    })
}
