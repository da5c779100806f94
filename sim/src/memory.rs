//! A node's memory: channels side by side, each a line at a time.

use crate::link::Spread;
use crate::parameters::{MemoryParameters, RefreshParameters};

/// One channel.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    /// Until when it is taken.
    busy_until: u64,
    /// Lines that it has taken.
    accesses: u64,
    /// For how long it was refreshed while a line waited for nothing else.
    refreshing: u64,
    /// When its next refresh begins, seen from the last line that it took.
    next_refresh: u64,
}

impl Channel {
    /// When it is free of its refresh, from `now` on; asked in nondecreasing order of `now`.
    #[inline]
    fn past_refresh(&mut self, refresh: &RefreshParameters, now: u64) -> u64 {
        let &RefreshParameters { interval, span } = refresh;
        if now >= self.next_refresh {
            // Seldom, and the one division.
            self.next_refresh += ((now - self.next_refresh) / interval + 1) * interval;
        }
        let since = now + interval - self.next_refresh;
        if since < span { now + span - since } else { now }
    }
}

/// The memory of one node.
///
/// Calls are made in nondecreasing order of `now`. Times are picoseconds. A channel takes lines in the order of the calls;
/// reads and writes occupy it alike.
#[derive(Clone, Debug)]
pub struct Memory {
    latency: u64,
    line_time: u64,
    spread: Spread,
    channels: Vec<Channel>,
    reads: u64,
    writes: u64,
    waited: u64,
    refresh: Option<RefreshParameters>,
    /// Writes that wait for their channel, each with when it is free for them, where reads take their data out of the queue.
    pending: Option<Vec<(u64, u64)>>,
}

impl Memory {
    /// Idle memory.
    ///
    /// # Panics
    /// Where there is no channel or more than 64.
    pub fn new(parameters: &MemoryParameters) -> Memory {
        assert!(parameters.channels > 0, "memory.channels is 0: there must be a channel");
        Memory {
            latency: parameters.latency,
            line_time: parameters.line_time,
            // Another salt than the links', or a link's lines would all lie on some of the channels.
            spread: Spread::new(parameters.channels, 1),
            channels: vec![Channel::default(); parameters.channels as usize],
            reads: 0,
            writes: 0,
            waited: 0,
            refresh: None,
            pending: None,
        }
    }

    /// The same memory, whose channels are refreshed.
    pub fn refreshed(mut self, refresh: Option<RefreshParameters>) -> Memory {
        if let Some(refresh) = &refresh {
            let number = self.channels.len() as u64;
            for (turn, channel) in (0..).zip(&mut self.channels) {
                channel.next_refresh = refresh.interval * turn / number;
            }
        }
        self.refresh = refresh;
        self
    }

    /// The same memory, whose controllers look for a read's line among the writes that wait for their channel, if so told.
    pub fn forwarding(mut self, forwards: bool) -> Memory {
        self.pending = forwards.then(Vec::new);
        self
    }

    /// The channel that holds a line.
    pub fn channel_of(&self, line: u64) -> usize {
        self.spread.part(line)
    }

    /// Reads a line, out of the queue if it waits there to be written; says when it is back at the home agent that asked at `now`.
    pub fn read(&mut self, line: u64, now: u64) -> u64 {
        let waits = |pending: &Vec<(u64, u64)>| pending.iter().any(|(other, until)| *other == line && now < *until);
        if self.pending.as_ref().is_some_and(waits) {
            // Out of the controller's queue: no channel is asked.
            self.reads += 1;
            return now + self.latency;
        }
        self.read_from(self.channel_of(line), now)
    }

    /// The same for whoever knows the channel of the line.
    pub fn read_from(&mut self, channel: usize, now: u64) -> u64 {
        self.reads += 1;
        self.starts(channel, now) + self.latency
    }

    /// Writes a line; says when its channel is done with it. Nobody waits for that: a read of the line that comes later is
    /// behind it on the same channel.
    pub fn write(&mut self, line: u64, now: u64) -> u64 {
        let done = self.write_to(self.channel_of(line), now);
        if let Some(pending) = &mut self.pending {
            pending.retain(|(_, until)| now < *until);
            pending.push((line, done - self.line_time));
        }
        done
    }

    /// The same for whoever knows the channel of the line.
    pub fn write_to(&mut self, channel: usize, now: u64) -> u64 {
        self.writes += 1;
        self.starts(channel, now) + self.line_time
    }

    /// Takes a channel for a line, as soon as it is free.
    #[inline]
    fn starts(&mut self, channel: usize, now: u64) -> u64 {
        let channel = &mut self.channels[channel];
        let free = channel.busy_until.max(now);
        let start = self.refresh.as_ref().map_or(free, |refresh| channel.past_refresh(refresh, free));
        channel.refreshing += start - free;
        channel.busy_until = start + self.line_time;
        channel.accesses += 1;
        self.waited += start - now;
        start
    }

    /// Lines read.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Lines written.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Lines that one channel has read and written.
    pub fn accesses_of(&self, channel: usize) -> u64 {
        self.channels[channel].accesses
    }

    /// For how long one channel was taken, in picoseconds; a refresh that a line waited for is part of that.
    pub fn busy_time_of(&self, channel: usize) -> u64 {
        self.channels[channel].accesses * self.line_time + self.channels[channel].refreshing
    }

    /// For how long accesses waited for their channels, all together, in picoseconds.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// For how long channels were taken, all together, in picoseconds; a refresh that a line waits for is part of that.
    pub fn busy_time(&self) -> u64 {
        (0..self.channels.len()).map(|channel| self.busy_time_of(channel)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 channels of DDR4-3200: 25.6 GB/s each, a line in 2.5 ns.
    fn ddr4() -> MemoryParameters {
        MemoryParameters { latency: 60_000, channels: 8, line_time: 2_500 }
    }

    #[test]
    fn a_refresh_holds_a_line_up_until_it_is_over_and_not_a_picosecond_longer() {
        let p = ddr4();
        let refresh = RefreshParameters { interval: 800_000, span: 35_000 };
        let memory = Memory::new(&p).refreshed(Some(refresh.clone()));
        let line = (0..64).find(|line| memory.channel_of(*line) == 3).expect("some line lies on each channel");
        // The fourth of eight channels is refreshed three eighths of an interval after the first.
        let begins = 5 * refresh.interval + 3 * refresh.interval / 8;
        for (asked, starts) in [
            (begins - 1, begins - 1),
            (begins, begins + refresh.span),
            (begins + refresh.span - 1, begins + refresh.span),
            (begins + refresh.span, begins + refresh.span),
        ] {
            let mut memory = memory.clone();
            assert_eq!(memory.read(line, asked), starts + p.latency, "asked at {asked}");
            assert_eq!(memory.busy_time(), p.line_time + starts - asked);
        }
    }

    #[test]
    fn a_read_takes_what_still_waits_to_be_written_out_of_the_queue_and_nothing_else_does() {
        let p = ddr4();
        let refresh = RefreshParameters { interval: 800_000, span: 35_000 };
        let memory = Memory::new(&p).refreshed(Some(refresh.clone()));
        let mut of_a_channel = (0..).filter(|line| memory.channel_of(*line) == 3);
        let (line, other) = (of_a_channel.next().expect("endless"), of_a_channel.next().expect("endless"));
        let begins = 5 * refresh.interval + 3 * refresh.interval / 8;
        let ends = begins + refresh.span;
        // A write that comes within the refresh waits until its end; what follows it on the channel is a line's time later.
        let behind = ends + p.line_time + p.latency;
        for (forwards, read, asked, there) in [
            (true, line, begins + 2, begins + 2 + p.latency),
            (true, line, ends - 1, ends - 1 + p.latency),
            (true, line, ends, behind),
            (true, other, begins + 2, behind),
            (false, line, begins + 2, behind),
        ] {
            let mut memory = memory.clone().forwarding(forwards);
            memory.write(line, begins + 1);
            assert_eq!(memory.read(read, asked), there, "line {read} asked at {asked}, {forwards}");
            assert_eq!((memory.reads(), memory.writes()), (1, 1));
        }
        // One that was written at once is in memory.
        let mut memory = memory.forwarding(true);
        memory.write(line, begins - 100);
        assert_eq!(memory.read(line, begins), ends + p.latency);
    }

    #[test]
    fn an_idle_channel_answers_after_the_latency() {
        let p = ddr4();
        assert_eq!(Memory::new(&p).read(3, 1_000), 1_000 + p.latency);
        assert_eq!(Memory::new(&p).write(3, 1_000), 1_000 + p.line_time);
    }

    #[test]
    fn a_second_access_waits_for_the_channel_and_not_a_picosecond_longer() {
        let p = ddr4();
        for (ready, starts) in [
            (0, p.line_time),
            (p.line_time - 1, p.line_time),
            (p.line_time, p.line_time),
            (p.line_time + 1, p.line_time + 1),
        ] {
            for write_first in [false, true] {
                let mut memory = Memory::new(&p);
                if write_first {
                    memory.write(5, 0)
                } else {
                    memory.read(5, 0)
                };
                assert_eq!(memory.read(5, ready), starts + p.latency, "ready at {ready}");
                assert_eq!(memory.waited(), starts - ready);
            }
        }
    }

    #[test]
    fn channels_do_not_wait_for_each_other() {
        let p = ddr4();
        let mut memory = Memory::new(&p);
        let other = (1..).find(|&line| memory.channel_of(line) != memory.channel_of(0)).expect("there are eight");
        memory.read(0, 0);
        assert_eq!(memory.read(other, 0), p.latency);
    }

    #[test]
    fn all_channels_together_reach_their_peak() {
        // 8 channels x 3200 MT/s x 8 bytes.
        let peak_gigabytes = 8.0 * 3.2 * 8.0;
        let p = ddr4();
        let mut memory = Memory::new(&p);
        let lines = 400_000;
        let last = (0..lines).map(|line| memory.read(line, 0)).max().expect("lines were read") - p.latency;
        let last = last + p.line_time;
        let gigabytes = (lines * 64) as f64 / last as f64 * 1000.0;
        assert!(gigabytes <= peak_gigabytes, "{gigabytes} GB/s is more than the channels have");
        assert!(gigabytes > 0.9999 * peak_gigabytes, "{gigabytes} of {peak_gigabytes} GB/s");
        assert_eq!((memory.reads(), memory.writes()), (lines, 0));
        assert_eq!(memory.busy_time(), lines * p.line_time);
    }

    #[test]
    fn the_lines_of_a_link_lie_on_all_channels() {
        let interconnect = crate::parameters::InterconnectParameters {
            links: 4,
            crossing: 0,
            flit_time: 1,
            flit_bytes: 24,
            flit_slots: 3,
            data_flits: 4,
            data_slots: 9,
            header_slots: 1,
            request_credits: 1,
        };
        let links = crate::link::Direction::new(&interconnect);
        let memory = Memory::new(&MemoryParameters { channels: 4, ..ddr4() });
        let mut lines = [0; 4];
        for line in (0..16_000).filter(|&line| links.link_of(line) == 1) {
            lines[memory.channel_of(line)] += 1;
        }
        assert!(lines.iter().all(|&lines| (900..1_100).contains(&lines)), "{lines:?}");
    }

    #[test]
    #[should_panic(expected = "memory.channels is 0")]
    fn memory_without_channels_is_refused() {
        Memory::new(&MemoryParameters { channels: 0, ..ddr4() });
    }
}
