//! What became of the packets that an application sent.

use conic_fabric::Time;

use crate::Latency;

/// The word that the packet with a sequence number and a time stamp is filled with: a stamp that comes back as another differs from the
/// words behind it.
#[inline(always)]
pub(crate) fn pattern(sequence: u64, stamp: u64) -> u64 {
    sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stamp
}

/// Packets sent, received, lost and spoilt, and their latencies.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub(crate) sent: u64,
    received: u64,
    lost: u64,
    corrupt: u64,
    pub(crate) latency: Latency,
    /// The same from when packets were written, where that is not what `latency` counts from.
    from_writing: Option<Box<Latency>>,
}

impl Account {
    /// Packets sent so far.
    #[inline(always)]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Packets received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets that never came back although later ones did, or until the application gave up.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Packets that came back with another payload or length, out of order, or twice.
    pub fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// The latencies so far.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// The latencies so far from when each packet was written, as the time stamp in it says. In a closed loop they are the
    /// latencies; in an open loop they leave out for how long a packet that was due waited to be written, which a program
    /// that reads no more than its packets' stamps cannot know.
    pub fn latency_from_writing(&self) -> &Latency {
        self.from_writing.as_deref().unwrap_or(&self.latency)
    }

    /// From now on latencies count from when packets are due.
    pub(crate) fn counts_from_due(&mut self) {
        self.from_writing = Some(Box::new(Latency::new()));
    }

    /// Forgets the latencies so far, at the end of a warm-up.
    pub fn forget_latency(&mut self) {
        self.latency.clear();
        if let Some(latency) = &mut self.from_writing {
            latency.clear();
        }
    }

    /// Enters a packet that is being sent, and gives its sequence number.
    #[inline(always)]
    pub fn send(&mut self) -> u64 {
        self.sent += 1;
        self.sent - 1
    }

    /// The sequence number of the packet that is to come back next.
    #[inline(always)]
    pub fn expected(&self) -> u64 {
        self.received + self.lost
    }

    /// Packets sent that have neither come back nor been given up.
    #[inline(always)]
    pub fn in_flight(&self) -> u64 {
        self.sent - self.received - self.lost
    }

    /// Enters a packet that came back whole in length, by its sequence number.
    #[inline(always)]
    pub fn enter(&mut self, sequence: u64) {
        if sequence == self.received + self.lost && sequence < self.sent {
            self.received += 1;
        } else {
            self.enter_unexpected(sequence);
        }
    }

    /// Enters packets that came back whole in length, in the order in which they were sent.
    #[inline(always)]
    pub(crate) fn enter_expected(&mut self, count: u64) {
        self.received += count;
    }

    #[cold]
    fn enter_unexpected(&mut self, sequence: u64) {
        let expected = self.received + self.lost;
        if sequence < expected || sequence >= self.sent {
            // One that came twice, or whose number cannot be believed, answers none that was sent.
            self.corrupt += 1;
        } else {
            self.lost += sequence - expected;
            self.received += 1;
        }
    }

    /// Enters that a packet's payload or length was not what was sent.
    pub fn spoilt(&mut self) {
        self.corrupt += 1;
    }

    /// Enters latencies of `count` packets that were sent at `stamp` and are there `now`, both in picoseconds.
    #[inline(always)]
    pub fn took(&mut self, stamp: u64, now: u64, count: u64) {
        self.latency.record(Time::from_picoseconds(now.saturating_sub(stamp)), count);
    }

    /// Enters latencies of packets that were written at `stamp` and are there `now`, where the others count from when they
    /// were due.
    pub(crate) fn took_from_writing(&mut self, stamp: u64, now: u64, count: u64) {
        if let Some(latency) = &mut self.from_writing {
            latency.record(Time::from_picoseconds(now.saturating_sub(stamp)), count);
        }
    }

    /// Whether to stop waiting for what is in flight, since it is later than `deadline`: it is lost then.
    pub(crate) fn gives_up(&mut self, now: Time, deadline: Time) -> bool {
        let late = now > deadline;
        if late {
            self.lost += self.in_flight();
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(count: u64) -> Account {
        Account { sent: count, ..Account::default() }
    }

    #[test]
    fn what_later_ones_overtook_is_lost_and_what_comes_twice_is_corrupt() {
        let mut account = sent(10);
        for sequence in [0, 1, 4, 1, 5] {
            account.enter(sequence);
        }
        assert_eq!((account.received(), account.lost(), account.corrupt(), account.in_flight()), (4, 2, 1, 4));
    }

    #[test]
    fn a_number_that_was_never_sent_answers_nothing() {
        let mut account = sent(3);
        account.enter(3);
        account.enter(u64::MAX);
        assert_eq!((account.received(), account.lost(), account.corrupt(), account.in_flight()), (0, 0, 2, 3));
        // Nor the one behind the last, when all have come.
        (0..=3).for_each(|sequence| account.enter(sequence));
        assert_eq!((account.received(), account.lost(), account.corrupt(), account.in_flight()), (3, 0, 3, 0));
    }

    #[test]
    fn what_is_in_flight_is_lost_once_its_time_is_over_and_not_before() {
        let mut account = sent(3);
        let deadline = Time::from_nanoseconds(5);
        assert!(!account.gives_up(deadline, deadline));
        assert_eq!(account.lost(), 0);
        assert!(account.gives_up(Time::from_picoseconds(5001), deadline));
        assert_eq!((account.lost(), account.in_flight()), (3, 0));
    }
}
