//! When lines are put into the device's cache: one after the other, an interval apart.

/// When lines begin to be put there, in order; only those that may still keep another line waiting.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    begins: Vec<u64>,
    lines: u64,
}

impl Gate {
    /// When a line begins to be put there that can be from `there` on, now or later. A line that is there before another one whose turn was
    /// given away ahead, as memory is still read for it, finds the gap before it.
    pub(super) fn begins(&mut self, now: u64, there: u64, interval: u64) -> u64 {
        self.lines += 1;
        let past = self.begins.partition_point(|begins| begins + interval <= now);
        self.begins.drain(..past);
        let mut place = self.begins.partition_point(|begins| begins + interval <= there);
        let mut free = there;
        while let Some(taken) = self.begins.get(place).filter(|taken| **taken < free + interval) {
            free = taken + interval;
            place += 1;
        }
        if interval > 0 {
            self.begins.insert(place, free);
        }
        free
    }

    /// Lines so far.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_the_first_gap_in_which_it_is_an_interval_from_every_other() {
        let mut gate = Gate::default();
        // One whose memory is still read; those that are there now, until they meet it; and one behind them all.
        let lines = [(0, 25), (0, 0), (0, 0), (0, 0), (0, 0), (21, 30)];
        assert_eq!(lines.map(|(now, there)| gate.begins(now, there, 10)), [25, 0, 10, 35, 45, 55]);
        assert_eq!(gate.begins(100, 100, 10), 100);
        assert_eq!(gate.begins(109, 109, 10), 110);
    }

    #[test]
    fn without_an_interval_nothing_waits() {
        let mut gate = Gate::default();
        assert_eq!([50, 0, 0, 50].map(|there| gate.begins(0, there, 0)), [50, 0, 0, 50]);
    }
}
