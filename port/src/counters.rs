//! What a port counts.

use crate::netdevice::is_over_mtu;
use crate::{MAX_FRAME, MIN_FRAME, Receive};

/// Bytes of an Ethernet header: what is shorter is no frame.
const ETHERNET_HEADER: usize = 14;

/// What has passed through a port since it was made, and what has not, by reason. Bytes are without the frame check
/// sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames delivered by `receive`.
    pub received_frames: u64,
    /// Bytes of these, with the padding.
    pub received_bytes: u64,
    /// Frames among these that were shorter than 60 bytes and were padded with zeros.
    pub received_padded: u64,
    /// Frames skipped on receive: the capture holds only their beginning.
    pub skipped_truncated: u64,
    /// Frames skipped on receive: shorter than 60 bytes and not to be padded, or shorter than an Ethernet header.
    pub skipped_short: u64,
    /// Frames skipped on receive: longer than 9600 bytes, or than the buffer given.
    pub skipped_oversized: u64,
    /// Frames skipped on receive: what the peer or the kernel said of them cannot be.
    pub skipped_malformed: u64,
    /// Frames that were dropped before they reached this port, because it was not emptied in time, as far as the kernel
    /// says; they are in no other counter.
    pub missed: u64,
    /// Calls of `receive` that the kernel answered with an error other than "nothing there".
    pub receive_errors: u64,
    /// Frames accepted by `transmit`.
    pub transmitted_frames: u64,
    /// Bytes of these.
    pub transmitted_bytes: u64,
    /// Calls of `transmit` that found no room.
    pub transmit_full: u64,
    /// Frames refused on transmit: not 60 to 9600 bytes long.
    pub refused_length: u64,
    /// Frames refused on transmit: longer than the interface's MTU allows, or than all of the peer's ring has room for.
    pub refused_over_mtu: u64,
    /// Frames refused on transmit by the kernel: interface down, or no memory.
    pub refused_by_kernel: u64,
    /// Frames refused on transmit: nobody is at the other end.
    pub refused_link_down: u64,
}

impl Counters {
    /// Every counter with its name, for printing.
    pub fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("received_frames", self.received_frames),
            ("received_bytes", self.received_bytes),
            ("received_padded", self.received_padded),
            ("skipped_truncated", self.skipped_truncated),
            ("skipped_short", self.skipped_short),
            ("skipped_oversized", self.skipped_oversized),
            ("skipped_malformed", self.skipped_malformed),
            ("missed", self.missed),
            ("receive_errors", self.receive_errors),
            ("transmitted_frames", self.transmitted_frames),
            ("transmitted_bytes", self.transmitted_bytes),
            ("transmit_full", self.transmit_full),
            ("refused_length", self.refused_length),
            ("refused_over_mtu", self.refused_over_mtu),
            ("refused_by_kernel", self.refused_by_kernel),
            ("refused_link_down", self.refused_link_down),
        ]
    }

    /// Frames skipped on receive, for any reason.
    pub fn skipped(&self) -> u64 {
        self.skipped_truncated + self.skipped_short + self.skipped_oversized + self.skipped_malformed
    }

    /// Frames refused on transmit, for any reason.
    pub fn refused(&self) -> u64 {
        self.refused_length + self.refused_over_mtu + self.refused_by_kernel + self.refused_link_down
    }

    pub(crate) fn count_received(&mut self, length: usize) {
        self.received_frames += 1;
        self.received_bytes += length as u64;
    }

    /// Counts a frame that the kernel or a peer gave, in the first `length` bytes of `frame`, padded where it is short, and
    /// says what `receive` answers.
    pub(crate) fn receive_frame(&mut self, frame: &mut [u8], length: usize) -> Receive {
        if length < ETHERNET_HEADER {
            self.skipped_short += 1;
            return Receive::Skipped;
        }
        if frame.len() < length.max(MIN_FRAME) {
            self.skipped_oversized += 1;
            return Receive::Skipped;
        }
        if length < MIN_FRAME {
            frame[length..MIN_FRAME].fill(0);
            self.received_padded += 1;
        }
        let length = length.max(MIN_FRAME);
        self.count_received(length);
        Receive::Frame { length, captured: None }
    }

    /// Counts a frame that no port sends, because it is shorter than 60 or longer than 9600 bytes; whether it is one.
    #[inline]
    pub(crate) fn refuse_length(&mut self, frame: &[u8]) -> bool {
        let refused = !(MIN_FRAME..=MAX_FRAME).contains(&frame.len());
        self.refused_length += u64::from(refused);
        refused
    }

    /// Counts a frame that an interface of the kernel with this MTU does not send, or that is `gone`; whether it is one.
    #[inline]
    pub(crate) fn refuse(&mut self, frame: &[u8], mtu: usize, gone: bool) -> bool {
        if self.refuse_length(frame) {
            return true;
        }
        let over = is_over_mtu(frame, mtu);
        self.refused_over_mtu += u64::from(over);
        self.refused_by_kernel += u64::from(gone && !over);
        over || gone
    }

    pub(crate) fn count_transmitted(&mut self, length: usize) {
        self.transmitted_frames += 1;
        self.transmitted_bytes += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_frame_or_finds_no_room_is_skipped_and_what_is_short_is_padded() {
        let mut counters = Counters::default();
        let mut frame = [9; MIN_FRAME];
        assert_eq!(counters.receive_frame(&mut frame, ETHERNET_HEADER - 1), Receive::Skipped);
        assert_eq!((counters.skipped_short, frame), (1, [9; MIN_FRAME]));
        // There is room for it, and none for what it is padded with.
        assert_eq!(counters.receive_frame(&mut frame[..MIN_FRAME - 1], ETHERNET_HEADER), Receive::Skipped);
        assert_eq!(counters.receive_frame(&mut frame, MIN_FRAME + 1), Receive::Skipped);
        assert_eq!((counters.skipped_oversized, counters.received_frames), (2, 0));
        let length = MIN_FRAME;
        assert_eq!(counters.receive_frame(&mut frame, ETHERNET_HEADER), Receive::Frame { length, captured: None });
        assert_eq!((&frame[..ETHERNET_HEADER], &frame[ETHERNET_HEADER..]), (&[9; 14][..], &[0; 46][..]));
        assert_eq!(counters.receive_frame(&mut frame, MIN_FRAME), Receive::Frame { length, captured: None });
        assert_eq!((counters.received_frames, counters.received_bytes, counters.received_padded), (2, 120, 1));
    }
}
