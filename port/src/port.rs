//! The contract of a port.

use std::os::fd::BorrowedFd;

use conic_fabric::Time;

use crate::offload::virtio::Metadata;
use crate::{Counters, Forwarding, Legacy, PortError, Timestamp};

/// The shortest frame, in bytes without the frame check sequence (IEEE 802.3: 64 with it).
pub const MIN_FRAME: usize = 60;

/// The longest frame, in bytes without the frame check sequence: a jumbo frame.
pub const MAX_FRAME: usize = 9600;

/// Which of [`Port::details`] are no counts: what there is at the moment, and 1 for what is so.
pub const LEVELS: [&str; 4] = ["frames_free", "frames_receiving", "interrupts_may_wait", "zero_copy"];

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
    /// It may stay in the port until [`Port::flush`].
    ///
    /// # Errors
    /// The destination is broken (a full disk) or gone (a device); the frame was not sent.
    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError>;

    /// Whether it takes and gives packets for which work is left: a checksum that is begun, or one that stands for several.
    fn takes_unfinished(&self) -> bool {
        false
    }

    /// [`Port::receive`], but leaves to the caller what `metadata` then says. A packet that stands for several has up to
    /// [`crate::offload::segment::LONGEST`] bytes, for which `frame` should have room. Only where [`Port::takes_unfinished`].
    ///
    /// # Errors
    /// As for [`Port::receive`].
    fn receive_unfinished(
        &mut self,
        now: Time,
        frame: &mut [u8],
        metadata: &mut Metadata,
    ) -> Result<Receive, PortError> {
        *metadata = Metadata::NONE;
        let room = frame.len().min(MAX_FRAME);
        self.receive(now, &mut frame[..room])
    }

    /// [`Port::transmit`] of a packet for which is left what `metadata` says, checked by the caller. Only where
    /// [`Port::takes_unfinished`].
    ///
    /// # Errors
    /// As for [`Port::transmit`].
    fn transmit_unfinished(&mut self, now: Time, packet: &[u8], metadata: Metadata) -> Result<Transmit, PortError> {
        let _ = (now, packet, metadata);
        Ok(Transmit::Refused)
    }

    /// Lets leave what [`Port::transmit`] has accepted: called once after a burst, because telling the kernel or a peer
    /// costs more than a frame. A port for which that is not so does nothing here.
    ///
    /// # Errors
    /// As for [`Port::transmit`].
    fn flush(&mut self, now: Time) -> Result<(), PortError> {
        let _ = now;
        Ok(())
    }

    /// The time from which [`Port::receive`] should next be called; a time that has passed means at once. `None`
    /// where that depends on the outside or on a call of [`Port::transmit`], and after the end.
    fn next_due(&self) -> Option<Time>;

    /// What has passed through this port, and what has not, by reason.
    fn counters(&self) -> &Counters;

    /// What only this kind of port counts, by name, since it was made, and its [`LEVELS`]. Not for the inner loop: it allocates.
    fn details(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Whether there is somebody at the other end: a carrier, a peer.
    fn is_up(&self) -> bool {
        true
    }

    /// What it is, for people: kind, name, and in which mode it works where there is a choice.
    fn description(&self) -> String {
        "port".to_owned()
    }

    /// Says that the caller is about to sleep on [`Port::descriptor`], so that the other end wakes it: a peer that polls
    /// costs both sides nothing otherwise. Behind it, [`Port::receive`] is called once more, and [`Port::next_due`] asked,
    /// before sleeping. Receiving ends it.
    fn arm(&mut self) {}

    /// A descriptor that is readable when [`Port::receive`] may have something, to sleep on behind [`Port::arm`], until [`Port::next_due`] at
    /// most; none where the port depends on nothing outside. It always is the same one, and not readable for what waits for its time.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// What forwards frames between this port and others before they are received here, where it was opened so: one for all queues of
    /// a port, any of which gives it.
    fn forwarding(&self) -> Option<Box<dyn Forwarding>> {
        None
    }

    /// Drops what has come and was not received, uncounted, where another process gets the same beside this one: whoever takes over
    /// from that one begins here.
    fn forget_received(&mut self) {}

    /// Whether another process can go on with this queue where it stands: [`Port::bequeath`] then gives what it needs.
    fn can_bequeath(&self) -> bool {
        false
    }

    /// Stops here, and gives what another process needs to go on: whoever is at the other end notices nothing but a pause. Behind it
    /// this port may only be dropped; where the other process does not go on, this one may, by the same that it gave. None where it cannot be
    /// passed on, or is broken. What cannot be shared, as a device of DPDK, gives nothing ([`Legacy::is_nothing`]): the other process opens it
    /// when this one has dropped all its queues, and until then they are used again as they are if that one does not.
    fn bequeath(&mut self) -> Option<Legacy> {
        None
    }

    /// Writes out what is buffered. A port that records to a file must be finished, or its last frames may be lost.
    ///
    /// # Errors
    /// The destination is broken (a full disk).
    fn finish(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        (**self).receive(now, frame)
    }

    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        (**self).transmit(now, frame)
    }

    fn takes_unfinished(&self) -> bool {
        (**self).takes_unfinished()
    }

    fn receive_unfinished(
        &mut self,
        now: Time,
        frame: &mut [u8],
        metadata: &mut Metadata,
    ) -> Result<Receive, PortError> {
        (**self).receive_unfinished(now, frame, metadata)
    }

    fn transmit_unfinished(&mut self, now: Time, packet: &[u8], metadata: Metadata) -> Result<Transmit, PortError> {
        (**self).transmit_unfinished(now, packet, metadata)
    }

    fn flush(&mut self, now: Time) -> Result<(), PortError> {
        (**self).flush(now)
    }

    fn next_due(&self) -> Option<Time> {
        (**self).next_due()
    }

    fn counters(&self) -> &Counters {
        (**self).counters()
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        (**self).details()
    }

    fn is_up(&self) -> bool {
        (**self).is_up()
    }

    fn description(&self) -> String {
        (**self).description()
    }

    fn arm(&mut self) {
        (**self).arm();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn forwarding(&self) -> Option<Box<dyn Forwarding>> {
        (**self).forwarding()
    }

    fn forget_received(&mut self) {
        (**self).forget_received();
    }

    fn can_bequeath(&self) -> bool {
        (**self).can_bequeath()
    }

    fn bequeath(&mut self) -> Option<Legacy> {
        (**self).bequeath()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        (**self).finish()
    }
}
