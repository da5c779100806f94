//! A NIC that receives: packets come at its link's rate into its buffer, from where lines go to memory; before it is full, a pause frame stops the sender.
//!
//! | the buffer holds | what the NIC does |
//! |---|---|
//! | `pause_bytes` or more | asks the sender to pause (priority flow control); what comes within `pause_delay` still comes |
//! | `resume_bytes` or less, after that | lets it go on, which takes as long |
//! | all it can | drops the packet |

use super::parameters::NicParameters;

/// What a NIC saw in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicCounters {
    /// Packets that came.
    pub packets: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Pause frames.
    pub pauses: u64,
    /// For how long the sender was stopped, in picoseconds.
    pub paused: u64,
    /// Lines that its buffer held at most.
    pub most_lines: u64,
}

/// What the sender is to be told, a `pause_delay` later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Pause,
    Resume,
}

#[derive(Clone, Debug)]
pub(super) struct Nic {
    parameters: NicParameters,
    /// Lines in its buffer.
    lines: u64,
    /// What the sender was asked for last.
    asked: Frame,
    /// Since when the sender is stopped.
    stopped: Option<u64>,
    pub(super) counters: NicCounters,
}

impl Nic {
    pub(super) fn new(parameters: &NicParameters) -> Nic {
        Nic {
            parameters: parameters.clone(),
            lines: 0,
            asked: Frame::Resume,
            stopped: None,
            counters: NicCounters::default(),
        }
    }

    /// Time from packet to packet, in picoseconds.
    pub(super) fn interval(&self) -> u64 {
        (self.parameters.packet_bytes * 8 * 1_000_000 / self.parameters.megabits_per_second).max(1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines == 0
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// A packet comes whole.
    pub(super) fn packet(&mut self) -> Option<Frame> {
        let of = &self.parameters;
        let lines = of.packet_bytes / 64;
        self.counters.packets += 1;
        if self.lines + lines > of.buffer_bytes / 64 {
            self.counters.dropped += 1;
        } else {
            self.lines += lines;
        }
        self.counters.most_lines = self.counters.most_lines.max(self.lines);
        let pauses = self.asked == Frame::Resume && self.lines >= of.pause_bytes / 64;
        self.counters.pauses += u64::from(pauses);
        pauses.then(|| self.ask(Frame::Pause))
    }

    /// A line leaves its buffer for memory.
    pub(super) fn line_leaves(&mut self) -> Option<Frame> {
        self.lines -= 1;
        let resumes = self.asked == Frame::Pause && self.lines <= self.parameters.resume_bytes / 64;
        resumes.then(|| self.ask(Frame::Resume))
    }

    fn ask(&mut self, frame: Frame) -> Frame {
        self.asked = frame;
        frame
    }

    /// A frame has come to the sender: whether it goes on now.
    pub(super) fn at_sender(&mut self, frame: Frame, now: u64) -> bool {
        match (frame, self.stopped) {
            (Frame::Pause, None) => self.stopped = Some(now),
            (Frame::Resume, Some(since)) => {
                self.counters.paused += now - since;
                self.stopped = None;
                return true;
            }
            _ => {}
        }
        false
    }

    /// The window begins.
    pub(super) fn restart(&mut self, now: u64) {
        self.counters = NicCounters { most_lines: self.lines, ..NicCounters::default() };
        self.stopped = self.stopped.map(|_| now);
    }

    /// The window ends.
    pub(super) fn finish(&mut self, now: u64) {
        self.counters.paused += self.stopped.map_or(0, |since| now - since);
    }
}
