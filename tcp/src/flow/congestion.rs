//! How much of a connection may be under way, for the network's sake: slow start and congestion avoidance (RFC 5681), and recovery from
//! losses (RFC 6582) by going back, as this side keeps no copy of what has arrived behind a gap.
//!
//! | event | window | threshold |
//! |---|---|---|
//! | at first | ten segments (RFC 6928) | as large as can be |
//! | an acknowledgement, below the threshold | grows by as many bytes, a segment at most | - |
//! | the same, from the threshold on | by a segment for each window's worth of bytes | - |
//! | either, while less than half of it was in use | stays as it is (RFC 7661): what was not tried says nothing of the network | - |
//! | three acknowledgements that say the same | a segment | half of what was under way, two segments at least |
//! | then all that was under way is acknowledged | the threshold | - |
//! | no progress for a time | a segment | the same half, unless that already is what came of a timeout |
//!
//! RFC 6582 sends the first lost segment and keeps the others in flight. Going back forgets them, so that the window begins with one
//! segment here, too: the acknowledgement of that one tells of all that had arrived behind it. It is counted in bytes acknowledged, and
//! grows by no more than those: acknowledgements in small parts, or of nothing, gain their sender nothing.

use crate::segment::MOST_PAYLOAD;

/// Bytes of a segment: RFC 5681's SMSS.
const SEGMENT: u32 = MOST_PAYLOAD as u32;
/// The window at first.
const INITIAL: u32 = 10 * SEGMENT;
/// The largest window: twice the largest buffer and less, so that it bounds nothing that no loss has bounded.
const MOST: u32 = u16::MAX as u32;

/// What the network is thought to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Bytes that may be under way, a segment at least.
    pub window: u32,
    /// The window from which on it grows slowly.
    pub threshold: u32,
    /// Whether at least half of the window was in use when something was last sent.
    pub is_used: bool,
    /// Whether what was under way at a loss that acknowledgements told of is not acknowledged yet.
    pub recovers: bool,
}

impl Default for Congestion {
    fn default() -> Congestion {
        Congestion { window: INITIAL, threshold: MOST, is_used: false, recovers: false }
    }
}

impl Congestion {
    /// Something was sent, and so many bytes are under way.
    #[inline]
    pub fn sent(&mut self, under_way: u32) {
        self.is_used = 2 * under_way >= self.window;
    }

    /// So many bytes are acknowledged that were not, at least one.
    #[inline]
    pub fn acknowledged(&mut self, bytes: u32) {
        if !self.is_used {
            return;
        }
        let bytes = bytes.min(SEGMENT);
        let more = if self.window < self.threshold { bytes } else { (SEGMENT * bytes / self.window).max(1) };
        self.window = (self.window + more).min(MOST);
    }

    /// Acknowledgements told of a loss, when so many bytes were sent and not acknowledged.
    pub fn lost(&mut self, under_way: u32) {
        self.threshold = half(under_way);
        self.window = SEGMENT;
        self.recovers = true;
    }

    /// All that was under way at the last loss is acknowledged.
    #[inline]
    pub fn recovered(&mut self) {
        if self.recovers {
            self.window = self.window.max(self.threshold);
            self.recovers = false;
        }
    }

    /// Time told of a loss, when so many bytes were sent and not acknowledged; `again` where it did so already, of what was sent again.
    pub fn ran_out(&mut self, under_way: u32, again: bool) {
        if !again {
            self.threshold = half(under_way);
        }
        self.window = SEGMENT;
        self.recovers = false;
    }
}

/// Half of what was under way.
fn half(under_way: u32) -> u32 {
    (under_way / 2).clamp(2 * SEGMENT, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In use, with this window and threshold.
    fn used(window: u32, threshold: u32) -> Congestion {
        Congestion { window, threshold, is_used: true, recovers: false }
    }

    #[test]
    fn below_the_threshold_the_window_grows_by_what_is_acknowledged() {
        let mut congestion = used(SEGMENT, 8 * SEGMENT);
        congestion.acknowledged(SEGMENT);
        assert_eq!(congestion.window, 2 * SEGMENT);
        congestion.acknowledged(64);
        assert_eq!(congestion.window, 2 * SEGMENT + 64);
        congestion.acknowledged(5 * SEGMENT);
        assert_eq!(congestion.window, 3 * SEGMENT + 64, "a segment for an acknowledgement, at most");
    }

    #[test]
    fn from_the_threshold_on_it_grows_by_a_segment_for_a_window() {
        let mut congestion = used(10 * SEGMENT, 10 * SEGMENT);
        congestion.acknowledged(SEGMENT);
        assert_eq!(congestion.window, 10 * SEGMENT + SEGMENT / 10);
        (0..9).for_each(|_| congestion.acknowledged(SEGMENT));
        let grown = congestion.window - 10 * SEGMENT;
        assert!((SEGMENT * 9 / 10..=SEGMENT).contains(&grown), "{grown}");
        // In small parts as in large ones, rounded down; and a byte at least, of a byte as well.
        let mut small = used(10 * SEGMENT, 10 * SEGMENT);
        (0..10 * SEGMENT / 64).for_each(|_| small.acknowledged(64));
        let grown = small.window - 10 * SEGMENT;
        assert!((SEGMENT * 8 / 10..=SEGMENT).contains(&grown), "{grown}");
        let mut least = used(40 * SEGMENT, 10 * SEGMENT);
        least.acknowledged(1);
        assert_eq!(least.window, 40 * SEGMENT + 1);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        for threshold in [MOST, 2 * SEGMENT] {
            let mut congestion = Congestion { window: 10 * SEGMENT, threshold, ..Congestion::default() };
            congestion.sent(5 * SEGMENT - 1);
            congestion.acknowledged(SEGMENT);
            assert_eq!(congestion.window, 10 * SEGMENT);
            congestion.sent(5 * SEGMENT);
            congestion.acknowledged(SEGMENT);
            assert!(congestion.window > 10 * SEGMENT);
        }
    }

    #[test]
    fn the_largest_window_is_not_exceeded() {
        let mut congestion = used(SEGMENT, MOST);
        (0..100_000).for_each(|_| congestion.acknowledged(u32::MAX));
        assert_eq!(congestion.window, MOST);
        congestion.lost(u32::MAX);
        assert_eq!(congestion.threshold, MOST);
    }

    #[test]
    fn a_loss_leaves_a_segment_until_what_was_under_way_is_there_and_then_half() {
        let mut congestion = used(20 * SEGMENT, MOST);
        congestion.lost(18 * SEGMENT);
        assert_eq!((congestion.window, congestion.threshold), (SEGMENT, 9 * SEGMENT));
        congestion.acknowledged(SEGMENT);
        assert_eq!(congestion.window, 2 * SEGMENT, "what comes meanwhile is slow start");
        congestion.recovered();
        assert_eq!((congestion.window, congestion.recovers), (9 * SEGMENT, false));
        congestion.window = 12 * SEGMENT;
        congestion.recovered();
        assert_eq!(congestion.window, 12 * SEGMENT, "it ends once");
    }

    #[test]
    fn what_little_was_under_way_leaves_two_segments() {
        let mut congestion = Congestion::default();
        congestion.lost(SEGMENT);
        assert_eq!(congestion.threshold, 2 * SEGMENT);
        congestion.ran_out(SEGMENT, false);
        assert_eq!(congestion.threshold, 2 * SEGMENT);
    }

    #[test]
    fn a_timeout_begins_anew_and_the_next_one_leaves_the_threshold() {
        let mut congestion = used(20 * SEGMENT, MOST);
        congestion.lost(18 * SEGMENT);
        congestion.ran_out(12 * SEGMENT, false);
        assert_eq!((congestion.window, congestion.threshold, congestion.recovers), (SEGMENT, 6 * SEGMENT, false));
        congestion.recovered();
        assert_eq!(congestion.window, SEGMENT, "time says nothing of what had arrived");
        congestion.ran_out(SEGMENT, true);
        assert_eq!((congestion.window, congestion.threshold), (SEGMENT, 6 * SEGMENT));
    }
}
