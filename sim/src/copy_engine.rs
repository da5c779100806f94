//! What a copy engine does, for ever, and how a core posts copies to it.

use std::collections::VecDeque;
use std::panic::Location;

use conic_fabric::{Address, Core, LINE_BYTES};

use crate::core::SimCore;
use crate::machine::Copying;
use crate::machine::access::{Use, WHOLE};
use crate::parameters::EngineParameters;
use crate::protocol::Ask;

/// The copies that an engine has taken, in order, and how far it is with them.
#[derive(Debug, Default)]
struct Taken {
    copies: VecDeque<Copying>,
    /// Lines of the first that are written.
    written: u64,
    /// The copy whose lines are asked for next, and its first line that was not.
    asking: (usize, u64),
    /// Lines that were asked for and are not written.
    asked: u64,
}

impl Taken {
    /// The next line to ask for, and that it was asked for.
    fn ask(&mut self) -> Option<Address> {
        while let Some(copy) = self.copies.get(self.asking.0) {
            let line = self.asking.1;
            if line < copy.lines {
                self.asking.1 += 1;
                self.asked += 1;
                return Some(copy.from.lines(line));
            }
            self.asking = (self.asking.0 + 1, 0);
        }
        None
    }

    /// Notes that the first copy is made.
    fn finish(&mut self) {
        self.copies.pop_front();
        self.written = 0;
        self.asking = self.asking.0.checked_sub(1).map_or((0, 0), |copy| (copy, self.asking.1));
    }
}

impl SimCore<'_> {
    /// Makes the copies that are posted to this agent, in order; it asks for lines of later ones while it waits for those of
    /// the first.
    pub(crate) fn copy_for_others(&self, engine: &EngineParameters) -> ! {
        let mut taken = Taken::default();
        loop {
            if taken.copies.is_empty() {
                taken.copies.push_back(self.until_done(|machine, agent, _| machine.next_copy(agent)));
            }
            while let Some(copy) = self.until_done(|machine, agent, _| machine.waiting_copy(agent)) {
                taken.copies.push_back(copy);
            }
            while taken.asked < u64::from(engine.lines_in_flight)
                && let Some(line) = taken.ask()
            {
                self.ask(line, Ask::Read, false);
            }
            let Copying { from, to, lines, done, value } = taken.copies[0];
            if taken.written < lines {
                self.copy_line(from.lines(taken.written), to.lines(taken.written), engine.line_time);
                taken.written += 1;
                taken.asked -= 1;
            }
            if taken.written == lines {
                self.store_release(done, value);
                taken.finish();
            }
        }
    }

    fn copy_line(&self, from: Address, to: Address, line_time: u64) {
        let begins = self.now().picoseconds();
        let line = (from.0 / LINE_BYTES) as u32;
        let place = Location::caller();
        let data = self
            .until_done(|machine, agent, waited| machine.load(agent, line, WHOLE, Use::Word, waited, place).copied());
        self.write_line(to, &data);
        let mut machine = self.machine().borrow_mut();
        let time = &mut machine.agents[self.agent()].time;
        *time = (*time).max(begins + line_time);
    }

    /// Posts a copy to this core's engine.
    pub(crate) fn post(&self, copying: Copying) {
        self.until_done(|machine, agent, _| machine.post_copy(agent, copying));
    }
}
