//! The contract of a port.

use conic_fabric::Time;

use crate::{Counters, PortError, Timestamp};

/// The shortest frame, in bytes without the frame check sequence (IEEE 802.3: 64 with it).
pub const MIN_FRAME: usize = 60;

/// The longest frame, in bytes without the frame check sequence: a jumbo frame.
pub const MAX_FRAME: usize = 9600;

/// What one call of [`Port::receive`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// No frame now; one may come later ([`Port::next_due`] says when, where that is known).
    None,
    /// A frame lies in the first `length` bytes of the buffer; the rest of the buffer is unspecified.
    Frame {
        /// [`MIN_FRAME`] to [`MAX_FRAME`] bytes.
        length: usize,
        /// When it was captured, where the port knows: capture files do, unless the record has no time.
        captured: Option<Timestamp>,
    },
    /// One frame was skipped and counted by its reason; the buffer holds nothing. Another may follow at once.
    Skipped,
    /// No frame will come any more.
    End,
}

/// What became of a frame given to [`Port::transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// The port has taken a copy.
    Accepted,
    /// There is no room now; the same frame may be accepted later.
    Full,
    /// The frame cannot leave here and was counted by its reason; trying again will not help.
    Refused,
}

/// A place where packets enter and leave. The contract is a table in this room's README.
///
/// No method blocks on the outside world (a capture file is read from disk, which may wait for the disk), reads a
/// clock, or allocates for a frame.
pub trait Port: Send {
    /// Takes the next frame that is there at time `now` into `frame`, which should hold [`MAX_FRAME`] bytes: a frame
    /// that does not fit is skipped and counted as oversized. `now` must not go backwards between calls.
    ///
    /// # Errors
    /// The source is broken (a capture file) or gone (a device). It is reported once; afterwards the port says
    /// [`Receive::End`].
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError>;

    /// Sends a copy of `frame` at time `now`. A frame that is not [`MIN_FRAME`] to [`MAX_FRAME`] bytes long is refused.
    ///
    /// # Errors
    /// The destination is broken (a full disk) or gone (a device); the frame was not sent.
    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError>;

    /// The time from which [`Port::receive`] should next be called; a time that has passed means at once. `None`
    /// where that depends on the outside or on a call of [`Port::transmit`], and after the end.
    fn next_due(&self) -> Option<Time>;

    /// What has passed through this port, and what has not, by reason.
    fn counters(&self) -> &Counters;

    /// Writes out what is buffered. A port that records to a file must be finished, or its last frames may be lost.
    ///
    /// # Errors
    /// The destination is broken (a full disk).
    fn finish(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}
