//! A channel's controller: a queue of reads, one of writes, and which of their commands comes next.
//!
//! | mode | it begins when | it ends when |
//! |---|---|---|
//! | read | at first | `write_high` writes wait, and enough was read; or no read waits and `idle_writes` do |
//! | write | as above | `write_low` are left; or reads wait and `most_writes` were written, or it began for want of reads |
//!
//! First-ready, first-come: of the accesses whose row is open and whose time has come, the oldest; else of the activations and precharges, one
//! for each bank, that of the oldest request. A row that a waiting request finds open is not closed, and is used before an older request's, until that
//! one has waited for `age_cap` while its mode lasted: what it waited for the other mode is nobody's passing it.

use conic_fabric::Time;

use super::dram::{Channel, Command};
use super::parameters::{ControllerParameters, HostParameters};
use super::report::ChannelCounters;
use crate::probe::occupancy::Occupancy;

/// A request in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// The machine's number of it.
    pub(super) request: u32,
    pub(super) bank: u8,
    pub(super) row: u32,
    pub(super) entered: u64,
    /// The row was not open when it was first looked at, so that its activation is its own.
    pub(super) activated: bool,
}

/// What came next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A request's access was issued; its data is over at the time.
    Done { request: u32, writes: bool, data: u64 },
    /// An activation or a precharge was.
    Prepared,
    /// Nothing may come before this time.
    Wait(u64),
    /// Nothing waits.
    Idle,
}

/// What happened on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A command to a bank.
    Command(usize, Command),
    /// A refresh of a rank begins, whose rows were closed in time.
    Refresh(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Controller {
    settings: ControllerParameters,
    dram: Channel,
    pub(super) reads: Vec<Pending>,
    pub(super) writes: Vec<Pending>,
    writing: bool,
    /// It writes because no read waited.
    idle_visit: bool,
    /// Reads or writes in this mode so far, and since when.
    done: u32,
    since: u64,
    pub(super) read_queue: Occupancy,
    pub(super) write_queue: Occupancy,
    full_since: [Option<u64>; 2],
    pub(super) counters: ChannelCounters,
    /// Reads of each bank among the last of them, and the loads that were found so.
    bank_reads: Vec<u64>,
    pub(super) deviations: Vec<f64>,
    /// What happened, with its time, where that is wanted.
    pub(super) trace: Option<Vec<(u64, Traced)>>,
}

impl Controller {
    pub(super) fn new(parameters: &HostParameters) -> Controller {
        Controller {
            settings: parameters.controller.clone(),
            dram: Channel::new(&parameters.dram),
            reads: Vec::new(),
            writes: Vec::new(),
            writing: false,
            idle_visit: false,
            done: 0,
            since: 0,
            read_queue: Occupancy::new(Time::from_picoseconds(0)),
            write_queue: Occupancy::new(Time::from_picoseconds(0)),
            full_since: [None; 2],
            counters: ChannelCounters::default(),
            bank_reads: vec![0; parameters.banks()],
            deviations: Vec::new(),
            trace: None,
        }
    }

    pub(super) fn has_room(&self, writes: bool) -> bool {
        if writes {
            self.writes.len() < self.settings.write_entries as usize
        } else {
            self.reads.len() < self.settings.read_entries as usize
        }
    }

    /// Takes a request, for which there is room.
    pub(super) fn enter(&mut self, request: u32, (bank, row): (u8, u32), writes: bool, now: u64) {
        let pending = Pending { request, bank, row, entered: now, activated: false };
        let (queue, probe) = if writes {
            (&mut self.writes, &mut self.write_queue)
        } else {
            self.bank_reads[usize::from(bank)] += 1;
            self.deviations.extend(deviation(&mut self.bank_reads));
            (&mut self.reads, &mut self.read_queue)
        };
        queue.push(pending);
        probe.enter(Time::from_picoseconds(now));
        probe.holds(queue.len() as u64);
        self.note_full(now);
    }

    fn note_full(&mut self, now: u64) {
        let full = [
            self.reads.len() >= self.settings.read_full as usize,
            self.writes.len() >= self.settings.write_full as usize,
        ];
        let times = [&mut self.counters.read_full, &mut self.counters.write_full];
        for ((since, full), time) in self.full_since.iter_mut().zip(full).zip(times) {
            match (*since, full) {
                (None, true) => *since = Some(now),
                (Some(begun), false) => {
                    *time += now - begun;
                    *since = None;
                }
                _ => {}
            }
        }
    }

    /// A window begins.
    pub(super) fn restart(&mut self, now: u64) {
        self.counters = ChannelCounters::default();
        self.bank_reads.fill(0);
        self.deviations.clear();
        self.full_since = self.full_since.map(|since| since.map(|_| now));
        self.read_queue.restart(Time::from_picoseconds(now));
        self.write_queue.restart(Time::from_picoseconds(now));
    }

    /// The window ends.
    pub(super) fn finish(&mut self, now: u64) {
        let times = [&mut self.counters.read_full, &mut self.counters.write_full];
        for (since, time) in self.full_since.iter().zip(times) {
            *time += since.map_or(0, |begun| now - begun);
        }
    }

    fn choose_mode(&mut self, now: u64) {
        let s = &self.settings;
        let (reads, writes) = (self.reads.len() as u32, self.writes.len() as u32);
        let begins = |controller: &mut Controller, writing: bool, idle: bool| {
            (controller.writing, controller.idle_visit) = (writing, idle);
            (controller.done, controller.since) = (0, now);
        };
        if self.writing {
            let enough = reads > 0 && (self.done >= s.most_writes || self.idle_visit);
            if writes == 0 || enough || (!self.idle_visit && writes <= s.write_low) {
                begins(self, false, false);
                self.counters.mode_switches += 1;
            }
        } else if reads == 0 {
            if writes >= s.idle_writes.min(s.write_high) {
                begins(self, true, writes < s.write_high);
            }
        } else if writes >= s.write_high && (self.done >= s.least_reads || now - self.since >= s.least_read_time) {
            begins(self, true, false);
        }
    }

    /// Does what can be done now.
    pub(super) fn step(&mut self, now: u64) -> Step {
        while let Some((rank, begins)) = self.dram.refresh(now) {
            self.counters.refreshes += 1;
            self.trace.iter_mut().for_each(|trace| trace.push((begins, Traced::Refresh(rank))));
        }
        self.choose_mode(now);
        let mut chosen = self.choose(now);
        if let Some((at, ..)) = chosen
            && at > now + PATIENCE
            && self.other_goes_before(at, now)
        {
            chosen = self.choose(now);
        }
        match chosen {
            None => Step::Idle,
            Some((at, ..)) if at > now => Step::Wait(at.min(self.dram.refresh_due().max(now + 1))),
            Some((_, index, command)) => self.carry_out(index, command, now),
        }
    }

    /// Goes to the other mode where the first command of this one comes late, as those to a rank that refreshes do, and one of the other does not.
    fn other_goes_before(&mut self, at: u64, now: u64) -> bool {
        self.writing = !self.writing;
        let goes = self.choose(now).is_some_and(|(other, ..)| other + PATIENCE < at);
        if goes {
            self.counters.mode_switches += u64::from(!self.writing);
            (self.done, self.since, self.idle_visit) = (0, now, self.writing);
        } else {
            self.writing = !self.writing;
        }
        goes
    }

    /// The command that comes next: when, for which request, and which.
    fn choose(&mut self, now: u64) -> Option<(u64, usize, Command)> {
        let queue = if self.writing { &self.writes } else { &self.reads };
        let access = if self.writing { Command::Write } else { Command::Read };
        let mut best: Option<(bool, u64, usize, Command)> = None;
        // Banks whose oldest request has been seen, and those that it has for itself.
        let (mut seen, mut kept) = (0_u64, 0_u64);
        for (index, pending) in queue.iter().enumerate() {
            let (bank, bit) = (usize::from(pending.bank), 1_u64 << pending.bank);
            if kept & bit != 0 {
                continue;
            }
            if seen & bit == 0
                && let Some(at) = self.dram.close_unused(bank, self.settings.row_timer, now)
            {
                self.counters.closes += 1;
                self.trace.iter_mut().for_each(|trace| trace.push((at, Traced::Command(bank, Command::Precharge))));
            }
            let command = match self.dram.open_row(bank) {
                Some(row) if row == pending.row => access,
                _ if seen & bit != 0 => continue,
                Some(row) => {
                    seen |= bit;
                    let passed = queue[index..].iter().any(|other| other.bank == pending.bank && other.row == row);
                    if passed && now - pending.entered.max(self.since) < self.settings.age_cap {
                        continue;
                    }
                    kept |= bit;
                    Command::Precharge
                }
                None => Command::Activate(pending.row),
            };
            seen |= bit;
            let at = self.dram.ready_at(bank, command);
            // What may come now goes before what may not; then accesses before others; then the older.
            let prepares = command != access;
            let rank = (at > now, if at > now { at } else { 0 }, prepares);
            let better = best.is_none_or(|(of_prepares, of_at, ..)| {
                rank < (of_at > now, if of_at > now { of_at } else { 0 }, of_prepares)
            });
            if better {
                best = Some((prepares, at, index, command));
            }
        }
        best.map(|(_, at, index, command)| (at, index, command))
    }

    fn carry_out(&mut self, index: usize, command: Command, now: u64) -> Step {
        let writing = self.writing;
        let queue = if writing { &mut self.writes } else { &mut self.reads };
        let bank = usize::from(queue[index].bank);
        self.trace.iter_mut().for_each(|trace| trace.push((now, Traced::Command(bank, command))));
        let data = self.dram.issue(bank, command, now);
        let of = usize::from(writing);
        match command {
            Command::Activate(_) => {
                self.counters.activations[of] += 1;
                queue[index].activated = true;
                Step::Prepared
            }
            Command::Precharge => {
                self.counters.conflicts[of] += 1;
                Step::Prepared
            }
            Command::Read | Command::Write => {
                let pending = queue.remove(index);
                let left = queue.len() as u64;
                let probe = if writing { &mut self.write_queue } else { &mut self.read_queue };
                probe.leave(Time::from_picoseconds(now), Time::from_picoseconds(pending.entered));
                probe.holds(left);
                self.counters.lines[of] += 1;
                self.counters.row_misses[of] += u64::from(pending.activated);
                self.done += 1;
                self.note_full(now);
                Step::Done { request: pending.request, writes: writing, data }
            }
        }
    }
}

/// For how long a mode's first command is waited for, in picoseconds: longer than any constraint but a refresh takes.
const PATIENCE: u64 = 80_000;

/// Reads of a channel after which its banks' loads are looked at (the paper's section 5.1), and how many banks are.
const SAMPLE_READS: u64 = 1000;
const SAMPLED_BANKS: usize = 4;

/// The most loaded of the banks that are looked at over their mean, where it is time.
fn deviation(reads: &mut [u64]) -> Option<f64> {
    if reads.iter().sum::<u64>() < SAMPLE_READS {
        return None;
    }
    let sampled = &reads[..SAMPLED_BANKS.min(reads.len())];
    let (most, sum) = (sampled.iter().max().copied().unwrap_or(0), sampled.iter().sum::<u64>());
    let deviation = (sum > 0).then(|| most as f64 * sampled.len() as f64 / sum as f64);
    reads.fill(0);
    deviation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Platform;

    /// The order in which writes to one bank are done, of rows `A`, `B`, `A`, of which the first two waited for half a microsecond before the third made
    /// enough to begin with.
    fn order(age_cap: u64) -> Vec<u32> {
        let platform = Platform::<HostParameters>::load_as("cascade-lake").unwrap_or_else(|error| panic!("{error}"));
        let mut parameters = platform.parameters().clone();
        (parameters.controller.idle_writes, parameters.controller.age_cap) = (3, age_cap);
        let mut controller = Controller::new(&parameters);
        let (mut now, mut done) = (1_000, Vec::new());
        controller.enter(0, (0, 7), true, now);
        controller.enter(1, (0, 8), true, now);
        assert_eq!(controller.step(now), Step::Idle, "two are not enough");
        now += 500_000;
        controller.enter(2, (0, 7), true, now);
        while done.len() < 3 {
            match controller.step(now) {
                Step::Done { request, .. } => done.push(request),
                Step::Prepared => {}
                Step::Wait(until) => now = until,
                Step::Idle => panic!("writes wait"),
            }
        }
        done
    }

    #[test]
    fn what_a_request_waits_for_the_other_mode_does_not_count_as_its_age() {
        assert_eq!(order(100_000), [0, 2, 1], "the open row is used up first");
        // An activation and the first write take longer than this, with which it has been passed for too long.
        assert_eq!(order(1_000), [0, 1, 2]);
    }
}
