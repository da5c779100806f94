//! Bytes of a file in order, through a buffer of fixed size.
//!
//! Large reads, not a memory map: a mapped file that someone shortens while it is read kills the process, a read of
//! it just ends. Copying from the page cache is a small part of the cost of a frame.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// The size of the buffer, and so the longest piece that can be had at once.
pub(super) const CAPACITY: usize = 512 << 10;

/// A file read in order.
pub(super) struct Source<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// The bytes read and not yet consumed are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// The offset in the file of `buffer[0]`.
    base: u64,
    /// The reader has said that there is no more.
    ended: bool,
}

impl<R: Read> Source<R> {
    pub(super) fn new(reader: R) -> Source<R> {
        Source { reader, buffer: vec![0; CAPACITY].into_boxed_slice(), start: 0, end: 0, base: 0, ended: false }
    }

    pub(super) fn reader(&self) -> &R {
        &self.reader
    }

    /// The offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The next `length` bytes, or fewer where the file ends; they are not consumed. `length` is at most [`CAPACITY`]. Where it fails nothing
    /// is lost, and it may be tried again.
    #[inline]
    pub(super) fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        if self.end - self.start < length {
            self.fill(length)?;
        }
        let available = length.min(self.end - self.start);
        Ok(&self.buffer[self.start..self.start + available])
    }

    #[cold]
    fn fill(&mut self, length: usize) -> io::Result<()> {
        debug_assert!(length <= CAPACITY);
        while !self.ended && self.end - self.start < length {
            // Moved only for want of room, so that a file that fits is still whole when it is rewound.
            if self.start + length > CAPACITY {
                self.buffer.copy_within(self.start..self.end, 0);
                self.base += self.start as u64;
                self.end -= self.start;
                self.start = 0;
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Goes past `length` bytes that `peek` has shown.
    #[inline]
    pub(super) fn consume(&mut self, length: usize) {
        debug_assert!(length <= self.end - self.start);
        self.start += length;
    }

    /// `length` bytes from the file offset `offset`, which `peek` has shown and nothing has moved since.
    #[inline]
    pub(super) fn at(&self, offset: u64, length: usize) -> &[u8] {
        let start = (offset - self.base) as usize;
        &self.buffer[start..start + length]
    }
}

impl<R: Read + Seek> Source<R> {
    /// Begins the file again.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.start = 0;
        if self.base == 0 && self.ended {
            return Ok(());
        }
        self.reader.seek(SeekFrom::Start(0))?;
        self.end = 0;
        self.base = 0;
        self.ended = false;
        Ok(())
    }

    /// Whether the file can be begun again; an error says why not.
    pub(super) fn check_seekable(&mut self) -> io::Result<()> {
        self.reader.stream_position().map(|_| ())
    }
}
