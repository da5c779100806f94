//! A core that runs an application: an operation again and again, whose loads wait for each other or do not.
//!
//! Instructions run in the program's order. Those of a phase take its `work`; then its loads begin, as far as line fill buffers are free and no more than
//! `at_once` are on their way. A phase that depends on the one before begins when every load is there: the core stalls. One that does not begins as
//! soon as those before it have begun, as an out-of-order core's does.

use super::source::BUFFER_LINES;
use super::traffic::{Application, Pattern, Phase};
use crate::draws::Draws;

/// What a core does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It misses a line of its buffer.
    Load(u64),
    /// It works until then.
    Work(u64),
    /// It waits: for a line, a buffer, or the end of work that it was said before.
    Wait,
}

/// How far it is in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Before,
    Works(u64),
    Loads,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    application: Application,
    phase: usize,
    progress: Progress,
    /// Lines of the phase that are still to be loaded, and the latest.
    left: u32,
    line: u64,
    /// Where the next line of those in order is.
    next: u64,
    /// Line fill buffers that are free.
    free: u32,
    /// Loads on their way.
    loads: u32,
    draws: Draws,
    /// Operations whose loads have all begun.
    pub(super) operations: u64,
}

impl Program {
    pub(super) fn new(application: &Application, buffers: u32, seed: u64) -> Program {
        let mut draws = Draws::new(seed);
        let next = draws.below(BUFFER_LINES);
        Program {
            application: application.clone(),
            phase: 0,
            progress: Progress::Before,
            left: 0,
            line: 0,
            next,
            free: buffers,
            loads: 0,
            draws,
            operations: 0,
        }
    }

    /// What it does now; to be asked again after a load, when work ends, and when a line or a buffer comes back.
    pub(super) fn next(&mut self, now: u64) -> Next {
        // A round of phases that neither work nor load is no reason to go on at the same moment.
        for _ in 0..=self.application.phases.len() {
            let Some(phase) = self.application.phases.get(self.phase).copied() else { return Next::Wait };
            match self.progress {
                Progress::Before if phase.depends && self.loads > 0 => return Next::Wait,
                Progress::Before => {
                    self.left = phase.loads * phase.lines;
                    self.progress = Progress::Works(now + phase.work);
                    if phase.work > 0 {
                        return Next::Work(now + phase.work);
                    }
                    self.progress = Progress::Loads;
                }
                Progress::Works(until) if now < until => return Next::Wait,
                Progress::Works(_) => self.progress = Progress::Loads,
                Progress::Loads => {}
            }
            if self.left > 0 {
                return self.load(phase);
            }
            self.progress = Progress::Before;
            self.phase += 1;
            if self.phase == self.application.phases.len() {
                self.phase = 0;
                self.operations += 1;
            }
        }
        Next::Wait
    }

    fn load(&mut self, phase: Phase) -> Next {
        if self.free == 0 || self.loads == self.application.at_once {
            return Next::Wait;
        }
        self.line = match phase.pattern {
            Pattern::Sequential => {
                self.next = (self.next + 1) % BUFFER_LINES;
                self.next
            }
            Pattern::Random if self.left.is_multiple_of(phase.lines) => self.draws.below(BUFFER_LINES),
            Pattern::Random => (self.line + 1) % BUFFER_LINES,
        };
        self.left -= 1;
        self.free -= 1;
        self.loads += 1;
        Next::Load(self.line)
    }

    /// A line is there.
    pub(super) fn arrives(&mut self) {
        self.loads -= 1;
    }

    /// Its line fill buffer is free.
    pub(super) fn buffer_is_free(&mut self) {
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: Phase = Phase { work: 0, loads: 1, lines: 3, pattern: Pattern::Random, depends: true };

    fn program(phases: &[Phase], at_once: u32, buffers: u32) -> Program {
        Program::new(&Application { phases: phases.to_vec(), at_once }, buffers, 7)
    }

    fn line(next: Next) -> u64 {
        match next {
            Next::Load(line) => line,
            other => panic!("{other:?} is no load"),
        }
    }

    #[test]
    fn a_phase_that_depends_begins_when_every_load_before_it_is_there_and_works_first() {
        let mut program = program(&[LOADS, Phase { work: 50, loads: 1, lines: 1, ..LOADS }], 8, 8);
        let lines = [(); 3].map(|()| line(program.next(0)));
        assert_eq!([lines[1] - lines[0], lines[2] - lines[1]], [1, 1], "side by side");
        assert_eq!(program.next(0), Next::Wait);
        program.arrives();
        program.arrives();
        assert_eq!(program.next(5), Next::Wait, "one is still on its way");
        program.arrives();
        assert_eq!(program.next(9), Next::Work(59));
        assert_eq!(program.next(58), Next::Wait, "said once");
        assert!(!lines.contains(&line(program.next(59))), "elsewhere");
        assert_eq!(program.operations, 0);
        assert_eq!(program.next(59), Next::Wait);
        assert_eq!(program.operations, 1, "and the next operation waits for this one's last line");
    }

    #[test]
    fn a_phase_that_does_not_depend_goes_on_as_far_as_buffers_and_its_parallelism_reach() {
        let edge = Phase { work: 10, loads: 1, lines: 1, pattern: Pattern::Random, depends: false };
        for (at_once, buffers) in [(2, 5), (5, 2)] {
            let mut program = program(&[edge], at_once, buffers);
            for load in 0..2 {
                assert_eq!(program.next(10 * load), Next::Work(10 * load + 10));
                line(program.next(10 * load + 10));
            }
            assert_eq!(program.next(20), Next::Work(30), "the next one's instructions run meanwhile");
            assert_eq!(program.next(30), Next::Wait);
            program.arrives();
            assert_eq!(matches!(program.next(31), Next::Load(_)), buffers == 5, "a buffer is free later than its line");
            program.buffer_is_free();
            assert_eq!(matches!(program.next(33), Next::Load(_)), buffers == 2);
        }
    }

    #[test]
    fn lines_in_order_go_on_where_they_were_and_phases_of_nothing_do_nothing() {
        let stream = Phase { pattern: Pattern::Sequential, lines: 1, depends: false, ..LOADS };
        let mut program = program(&[stream, LOADS], 64, 64);
        let first = line(program.next(0));
        assert_eq!(program.next(0), Next::Wait);
        program.arrives();
        assert!((0..3).all(|_| matches!(program.next(0), Next::Load(_))));
        assert_eq!(line(program.next(0)), (first + 1) % BUFFER_LINES, "beside those that are on their way");
        for phases in [&[Phase { loads: 0, ..LOADS }; 2][..], &[]] {
            assert_eq!(self::program(phases, 1, 1).next(0), Next::Wait);
        }
    }
}
