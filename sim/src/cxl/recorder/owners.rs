//! Who owns a line, as a recording has it.

use super::super::machine::Machine;
use super::{DEVICE_LINES, HOST_LINES, LAST_LEVEL, place_of};
use crate::protocol::cxl::{Copy, Side};

impl Machine {
    /// Writes down that a line's owners are perhaps others.
    pub(in crate::cxl) fn note_owners(&mut self, line: u32) {
        let Some(recorder) = &mut self.recorder else { return };
        let (state, now) = (&self.lines[line as usize], self.agenda.now);
        let copy = state.host.copy;
        // What the home agent has decided is not there before the answer is.
        let answered = self.running.get(&line).and_then(|running| running.gets_line());
        let mut holders = state.holders;
        if let Some(core) = answered
            && recorder.log.state(place_of(self.cores[usize::from(core)].agent), line.into()) == 'I'
        {
            holders &= !(1 << core);
        }
        let is_shared = holders.count_ones() > 1;
        for (core, of_core) in self.cores.iter().enumerate() {
            let letter = match holders >> core & 1 {
                0 => 'I',
                _ if answered == Some(core as u16) => continue,
                _ if is_shared => Copy::Shared.letter(),
                _ => copy.letter(),
            };
            recorder.log.owns(place_of(of_core.agent), line.into(), letter, now);
        }
        let in_last_level = holders.count_ones() != 1 && self.last_level.has(line);
        let letter = match (in_last_level, copy) {
            (false, _) => 'I',
            // None of several sharers may write it, but what the last level has may be newer than memory.
            (true, Copy::Exclusive) if is_shared => 'S',
            (true, copy) => copy.letter(),
        };
        recorder.log.owns(LAST_LEVEL, line.into(), letter, now);
        let place = if state.device.home == Side::Host { HOST_LINES } else { DEVICE_LINES };
        recorder.log.owns(place, line.into(), state.device.copy.letter(), now);
    }
}
