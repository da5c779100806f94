//! Writes a capture file.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::error::{CaptureError, Problem};
use super::timestamp::Timestamp;
use super::{pcap, pcapng};

/// Bytes gathered before they are written.
const BUFFER: usize = 256 << 10;

/// The snapshot length that a pcap header declares: longer than any frame here.
const SNAPSHOT_LENGTH: u32 = 65_535;

/// The format of a capture file to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFormat {
    /// pcap with nanoseconds.
    Pcap,
    /// pcapng with one interface that counts nanoseconds.
    Pcapng,
}

impl CaptureFormat {
    /// The format that a file's extension stands for: `pcap` or `pcapng`.
    pub fn of_path(path: &Path) -> Option<CaptureFormat> {
        let extension = path.extension()?.to_str()?;
        if extension.eq_ignore_ascii_case("pcap") {
            Some(CaptureFormat::Pcap)
        } else if extension.eq_ignore_ascii_case("pcapng") {
            Some(CaptureFormat::Pcapng)
        } else {
            None
        }
    }
}

/// Writes Ethernet frames and the times of their capture, little end first.
///
/// What is written lies in a buffer of fixed size until that is full or [`CaptureWriter::finish`] is called. Dropping
/// the writer also writes it out, but then an error goes unseen.
pub struct CaptureWriter<W: Write> {
    file: PathBuf,
    out: W,
    format: CaptureFormat,
    buffer: Vec<u8>,
    /// Bytes that `out` has taken.
    written: u64,
}

impl CaptureWriter<File> {
    /// Makes a capture file, in the format of its extension, in place of one that is there.
    ///
    /// # Errors
    /// The extension is neither `.pcap` nor `.pcapng`, or the file cannot be made.
    pub fn create(path: &Path) -> Result<CaptureWriter<File>, CaptureError> {
        let failed = |problem| CaptureError { file: path.to_owned(), offset: 0, problem };
        let format = CaptureFormat::of_path(path).ok_or_else(|| failed(Problem::UnknownExtension))?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(|error| failed(Problem::Open(error)))?;
        Ok(CaptureWriter::new(file, format, path))
    }

    /// Makes a capture file, in the format of its extension, and replaces none: where one is there, the new one has a number before
    /// its extension, from 1. Its path is [`CaptureWriter::path`].
    ///
    /// # Errors
    /// As for [`CaptureWriter::create`].
    pub fn create_beside(path: &Path) -> Result<CaptureWriter<File>, CaptureError> {
        let failed = |problem| CaptureError { file: path.to_owned(), offset: 0, problem };
        let format = CaptureFormat::of_path(path).ok_or_else(|| failed(Problem::UnknownExtension))?;
        let (file, path) = create_beside(path, u32::MAX).map_err(|error| failed(Problem::Open(error)))?;
        Ok(CaptureWriter::new(file, format, path))
    }

    /// Writes a capture into the pipe that is there, in the format of its extension; none if there is no pipe. It waits until somebody
    /// reads.
    ///
    /// # Errors
    /// The extension is neither `.pcap` nor `.pcapng`, or the pipe cannot be opened.
    pub fn in_pipe(path: &Path) -> Result<Option<CaptureWriter<File>>, CaptureError> {
        let failed = |problem| CaptureError { file: path.to_owned(), offset: 0, problem };
        let format = CaptureFormat::of_path(path).ok_or_else(|| failed(Problem::UnknownExtension))?;
        if !path.metadata().is_ok_and(|about| about.file_type().is_fifo()) {
            return Ok(None);
        }
        // What has come into its place since is not written to.
        let file = OpenOptions::new().write(true).open(path).map_err(|error| failed(Problem::Open(error)))?;
        let about = file.metadata().map_err(|error| failed(Problem::Open(error)))?;
        Ok(about.file_type().is_fifo().then(|| CaptureWriter::new(file, format, path)))
    }
}

/// Makes a file that was not there, at `path` or else with a number before its extension, from 1 to `last`; and its path. Follows no link
/// and replaces nothing, whoever may write to the folder.
///
/// # Errors
/// It cannot be made; [`ErrorKind::AlreadyExists`] if all of them are there.
pub fn create_beside(path: &Path, last: u32) -> io::Result<(File, PathBuf)> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let mut number = 0;
    loop {
        let path = match number {
            0 => path.to_owned(),
            _ => path.with_extension(format!("{number}.{extension}")),
        };
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < last => number += 1,
            Err(error) => return Err(error),
        }
    }
}

impl CaptureWriter<File> {
    /// What it writes to.
    pub(super) fn out(&self) -> &File {
        &self.out
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Writes a capture to `out`; `name` stands in error messages.
    pub fn new(out: W, format: CaptureFormat, name: impl Into<PathBuf>) -> CaptureWriter<W> {
        let mut buffer = Vec::with_capacity(BUFFER);
        match format {
            CaptureFormat::Pcap => pcap_header(&mut buffer),
            CaptureFormat::Pcapng => pcapng_header(&mut buffer),
        }
        CaptureWriter { file: name.into(), out, format, buffer, written: 0 }
    }

    /// Its name in error messages: the path of what was made as a file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Writes one frame.
    ///
    /// # Errors
    /// The disk is full, or the time is past what the format can hold; the frame is not in the file then, and what is
    /// there stays sound. A frame longer than [`super::CAPTURED_MAX`] is an error too.
    pub fn write(&mut self, captured: Timestamp, frame: &[u8]) -> Result<(), CaptureError> {
        let Ok(length) = u32::try_from(frame.len()) else {
            return Err(self.error(Problem::AbsurdCapturedLength(u32::MAX)));
        };
        if length > super::CAPTURED_MAX {
            return Err(self.error(Problem::AbsurdCapturedLength(length)));
        }
        if self.has_no_room(frame) {
            match self.write_out() {
                // A pipe that is full may have taken enough.
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.has_no_room(frame) => {}
                written => written.map_err(|error| self.error(Problem::Write(error)))?,
            }
        }
        let nanoseconds = captured.nanoseconds();
        match self.format {
            CaptureFormat::Pcap => {
                let Ok(seconds) = u32::try_from(nanoseconds / 1_000_000_000) else {
                    return Err(self.error(Problem::TimestampTooLate));
                };
                let fraction = (nanoseconds % 1_000_000_000) as u32;
                words(&mut self.buffer, &[seconds, fraction, length, length]);
                self.buffer.extend_from_slice(frame);
            }
            CaptureFormat::Pcapng => {
                let padded = length.next_multiple_of(4);
                let total = 32 + padded;
                let (high, low) = ((nanoseconds >> 32) as u32, nanoseconds as u32);
                let head = [pcapng::ENHANCED_PACKET, total, 0, high, low, length, length];
                words(&mut self.buffer, &head);
                self.buffer.extend_from_slice(frame);
                self.buffer.extend_from_slice(&[0; 3][..(padded - length) as usize]);
                words(&mut self.buffer, &[total]);
            }
        }
        Ok(())
    }

    fn has_no_room(&self, frame: &[u8]) -> bool {
        // The longest record is its frame, 32 bytes and up to 3 of padding.
        self.buffer.len() + frame.len() + 36 > BUFFER
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(&mut self) -> Result<(), CaptureError> {
        self.write_out().and_then(|()| self.out.flush()).map_err(|error| self.error(Problem::Write(error)))
    }

    /// Writes the buffer; what an error leaves unwritten stays in it, so that a later call continues without a tear.
    fn write_out(&mut self) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            if done == self.buffer.len() {
                break Ok(());
            }
            match self.out.write(&self.buffer[done..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(taken) => done += taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.buffer.drain(..done);
        self.written += done as u64;
        result
    }

    fn error(&self, problem: Problem) -> CaptureError {
        CaptureError { file: self.file.clone(), offset: self.written, problem }
    }
}

impl<W: Write> Drop for CaptureWriter<W> {
    fn drop(&mut self) {
        // Best effort: whoever wants to know calls `finish`.
        let _ = self.write_out();
    }
}

fn words(buffer: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        buffer.extend_from_slice(&word.to_le_bytes());
    }
}

fn pcap_header(buffer: &mut Vec<u8>) {
    let version = 2 | 4 << 16;
    let link_type = u32::from(pcap::ETHERNET);
    words(buffer, &[pcap::MAGIC_NANOSECONDS, version, 0, 0, SNAPSHOT_LENGTH, link_type]);
}

fn pcapng_header(buffer: &mut Vec<u8>) {
    let unknown = u32::MAX;
    words(buffer, &[pcapng::SECTION_HEADER, 28, pcapng::BYTE_ORDER_MAGIC, 1, unknown, unknown, 28]);
    let resolution_head = u32::from(pcapng::OPTION_RESOLUTION) | 1 << 16;
    let nanoseconds = 9;
    let end_of_options = 0;
    let link_type = u32::from(pcap::ETHERNET);
    words(buffer, &[pcapng::INTERFACE_DESCRIPTION, 32, link_type, 0, resolution_head, nanoseconds, end_of_options, 32]);
}
