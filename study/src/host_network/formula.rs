//! The paper's analytic formula (section 6.1, Figures 9 and 10): a domain's mean latency from counters of the memory controller.
//!
//! ```text
//! read  = constant + O * switches / lines_read * t_switch            switching
//!                  + O * lines_written / lines_read * t_line         writes before it
//!                  + (O - 1) * t_line                                reads before it
//!                  + activations / lines_read * tRCD + conflicts / lines_read * tRP     top of the queue
//! write = constant + P * (the same with reads and writes changed over, and N for O)
//! ```
//!
//! `O` is the mean number of reads in a channel's queue, `N` that of writes which wait to be admitted to one, `P` the part of the time for which it is
//! full. Printed and coded formula differ: the code of the paper's artifact has no "- 1" in the write's, and adds the reads that wait at the home agent to `O`
//! where cores store and devices read. [`Form`] says which is meant.

use conic_sim::host::{Domain, HostParameters, HostReport};

/// Which of the two published forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As the paper prints it.
    Printed,
    /// As the artifact has it.
    Coded,
}

/// Times that the formula takes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// A change between reading and writing, either way.
    pub mode_switch: f64,
    /// A line on a channel.
    pub line: f64,
    /// tRCD.
    pub activate: f64,
    /// tRP.
    pub precharge: f64,
}

/// Its inputs (the paper's Table 2), of a mean channel. Pairs are of reads and of writes, sums over all channels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Part of the time for which a write queue is full.
    pub write_queue_full: f64,
    /// Writes that wait to be admitted to a channel's queue, on average.
    pub writes_waiting: f64,
    /// Changes from writing to reading.
    pub mode_switches: f64,
    /// Lines read and written.
    pub lines: [f64; 2],
    /// Reads in a channel's queue, on average.
    pub read_queue: f64,
    /// Reads that wait at the home agent for a channel's queue, on average.
    pub reads_waiting: f64,
    /// Precharges because of another open row.
    pub conflicts: [f64; 2],
    /// Activations.
    pub activations: [f64; 2],
}

/// A latency's parts beyond its constant, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Parts {
    /// Changes between reading and writing.
    pub switching: f64,
    /// Lines of the other direction that go before.
    pub other_direction: f64,
    /// Lines of the same.
    pub same_direction: f64,
    /// The line's own row.
    pub top_of_queue: f64,
}

impl Parts {
    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.switching + self.other_direction + self.same_direction + self.top_of_queue
    }

    fn times(self, factor: f64) -> Parts {
        let Parts { switching, other_direction, same_direction, top_of_queue } = self;
        Parts {
            switching: switching * factor,
            other_direction: other_direction * factor,
            same_direction: same_direction * factor,
            top_of_queue: top_of_queue * factor,
        }
    }
}

impl Timing {
    /// A host's.
    pub fn of(host: &HostParameters) -> Timing {
        let nanoseconds = |picoseconds: u64| picoseconds as f64 / 1000.0;
        Timing {
            mode_switch: nanoseconds(host.formula.mode_switch),
            line: nanoseconds(host.dram.burst),
            activate: nanoseconds(host.dram.activate_to_access),
            precharge: nanoseconds(host.dram.precharge),
        }
    }
}

impl Inputs {
    /// What a simulated host's counters say.
    pub fn of(report: &HostReport) -> Inputs {
        let (memory, channels) = (report.memory(), report.channels.len() as f64);
        let both = |pair: [u64; 2]| pair.map(|count| count as f64);
        let waiting = |of: [Domain; 2]| of.map(|one| report.domain(one).blocked.mean_occupancy).iter().sum::<f64>();
        Inputs {
            write_queue_full: report.write_queue_full(),
            writes_waiting: waiting([Domain::CoreWrite, Domain::DeviceWrite]) / channels,
            mode_switches: memory.mode_switches as f64,
            lines: both(memory.lines),
            read_queue: report.read_queue(),
            reads_waiting: waiting([Domain::CoreRead, Domain::DeviceRead]) / channels,
            conflicts: both(memory.conflicts),
            activations: both(memory.activations),
        }
    }

    /// Parts of a read's latency beyond its constant; none where nothing was read.
    pub fn read(&self, timing: &Timing, form: Form) -> Parts {
        let queue = match form {
            Form::Printed => self.read_queue,
            Form::Coded => self.read_queue + self.reads_waiting,
        };
        self.parts(timing, 0, queue, (queue - 1.0).max(0.0))
    }

    /// Parts of a device's write's latency beyond its constant; none where nothing was written.
    pub fn write(&self, timing: &Timing, form: Form) -> Parts {
        let before = match form {
            Form::Printed => (self.writes_waiting - 1.0).max(0.0),
            Form::Coded => self.writes_waiting,
        };
        self.parts(timing, 1, self.writes_waiting, before).times(self.write_queue_full)
    }

    /// Of one direction, with so many of it that wait, and so many before one of them.
    fn parts(&self, timing: &Timing, of: usize, waiting: f64, before: f64) -> Parts {
        let (own, other) = (self.lines[of], self.lines[1 - of]);
        if own <= 0.0 {
            return Parts::default();
        }
        Parts {
            switching: waiting * self.mode_switches / own * timing.mode_switch,
            other_direction: waiting * other / own * timing.line,
            same_direction: before * timing.line,
            top_of_queue: self.activations[of] / own * timing.activate + self.conflicts[of] / own * timing.precharge,
        }
    }
}

/// A domain's throughput from its credits and its latency, in bytes a second (section 4.1).
pub fn throughput(credits: f64, latency_nanoseconds: f64) -> f64 {
    credits * 64.0 / latency_nanoseconds * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing { mode_switch: 8.0, line: 2.5, activate: 14.0, precharge: 15.0 };
    const INPUTS: Inputs = Inputs {
        write_queue_full: 0.5,
        writes_waiting: 6.0,
        mode_switches: 10.0,
        lines: [100.0, 50.0],
        read_queue: 4.0,
        reads_waiting: 2.0,
        conflicts: [10.0, 5.0],
        activations: [20.0, 25.0],
    };

    #[test]
    fn a_read_waits_for_what_is_before_it() {
        let parts = INPUTS.read(&TIMING, Form::Printed);
        assert!((parts.switching - 4.0 * 0.1 * 8.0).abs() < 1e-12);
        assert!((parts.other_direction - 4.0 * 0.5 * 2.5).abs() < 1e-12);
        assert!((parts.same_direction - 3.0 * 2.5).abs() < 1e-12);
        assert!((parts.top_of_queue - (0.2 * 14.0 + 0.1 * 15.0)).abs() < 1e-12);
        let sum = parts.switching + parts.other_direction + parts.same_direction + parts.top_of_queue;
        assert!((parts.sum() - sum).abs() < 1e-12);
        let coded = INPUTS.read(&TIMING, Form::Coded);
        assert!((coded.same_direction - 5.0 * 2.5).abs() < 1e-12, "the reads at the home agent count");
    }

    #[test]
    fn a_write_waits_only_while_the_queue_is_full_and_the_code_has_no_minus_one() {
        let [printed, coded] = [Form::Printed, Form::Coded].map(|form| INPUTS.write(&TIMING, form));
        assert!((printed.same_direction - 0.5 * 5.0 * 2.5).abs() < 1e-12);
        assert!((coded.same_direction - 0.5 * 6.0 * 2.5).abs() < 1e-12);
        assert!((coded.switching - 0.5 * 6.0 * 0.2 * 8.0).abs() < 1e-12);
        assert!((coded.other_direction - 0.5 * 6.0 * 2.0 * 2.5).abs() < 1e-12);
        assert!((coded.top_of_queue - 0.5 * (0.5 * 14.0 + 0.1 * 15.0)).abs() < 1e-12);
        assert_eq!(Inputs { write_queue_full: 0.0, ..INPUTS }.write(&TIMING, Form::Coded).sum(), 0.0);
    }

    #[test]
    fn without_lines_there_is_no_latency_to_explain() {
        assert_eq!(Inputs::default().read(&TIMING, Form::Coded), Parts::default());
        assert_eq!(Inputs { lines: [0.0, 5.0], ..INPUTS }.read(&TIMING, Form::Printed).sum(), 0.0);
    }

    #[test]
    fn throughput_is_credits_over_latency() {
        assert!((throughput(92.0, 300.0) - 92.0 * 64.0 / 300e-9).abs() < 1.0);
    }
}
