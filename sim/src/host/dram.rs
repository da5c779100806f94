//! A channel's memory as constraints between commands: when each may come, and what it changes.
//!
//! | command | not before, after ... | of |
//! |---|---|---|
//! | activation | tRP a precharge; tRC the bank's last | the bank |
//! | | tRRD_L, tRRD_S another; tFAW the fourth before | the group, the rank |
//! | precharge | tRAS an activation; tRTP a read; CWL + burst + tWR a write | the bank |
//! | access | tRCD an activation | the bank |
//! | | tCCD_L, tCCD_S another | the group, the rank |
//! | read | CWL + burst + tWTR_L, tWTR_S a write | the group, the rank |
//! | any access | its data finds the data bus free, with a gap between ranks and between a read and a write | the channel |
//! | any | a cycle another command | the channel |
//!
//! A refresh closes a rank's rows and takes tRP and tRFC of it.

use super::parameters::DramParameters;

/// A command to a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens a row.
    Activate(u32),
    /// Closes the open one.
    Precharge,
    /// Reads a line of the open row.
    Read,
    /// Writes one.
    Write,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bank {
    open: Option<u32>,
    activate_at: u64,
    precharge_at: u64,
    access_at: u64,
    used: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    activate_at: u64,
    access_at: u64,
    read_at: u64,
}

#[derive(Clone, Debug, Default)]
struct Rank {
    activate_at: u64,
    access_at: u64,
    read_at: u64,
    /// The last four activations, the oldest at `oldest`; none yet: [`None`].
    activates: [Option<u64>; 4],
    oldest: usize,
    refresh_due: u64,
}

/// The data bus: until when, from which rank, and whether it was a write.
#[derive(Clone, Copy, Debug)]
struct Bus {
    until: u64,
    rank: usize,
    writes: bool,
}

/// The banks of a channel. Banks are numbered `(rank * groups + group) * banks + bank`.
#[derive(Clone, Debug)]
pub struct Channel {
    timing: DramParameters,
    banks: Vec<Bank>,
    groups: Vec<Group>,
    ranks: Vec<Rank>,
    bus: Option<Bus>,
    command_at: u64,
}

impl Channel {
    /// A channel whose rows are all closed. The ranks' refreshes take turns.
    pub fn new(timing: &DramParameters) -> Channel {
        let (ranks, groups) = (timing.ranks as usize, timing.bank_groups as usize);
        let rank = |rank: usize| Rank {
            refresh_due: timing.refresh_interval * (rank as u64 + 1) / ranks as u64,
            ..Rank::default()
        };
        Channel {
            timing: timing.clone(),
            banks: vec![Bank::default(); ranks * groups * timing.banks as usize],
            groups: vec![Group::default(); ranks * groups],
            ranks: (0..ranks).map(rank).collect(),
            bus: None,
            command_at: 0,
        }
    }

    fn group_of(&self, bank: usize) -> usize {
        bank / self.timing.banks as usize
    }

    fn rank_of(&self, bank: usize) -> usize {
        self.group_of(bank) / self.timing.bank_groups as usize
    }

    /// The open row of a bank.
    pub fn open_row(&self, bank: usize) -> Option<u32> {
        self.banks[bank].open
    }

    /// When a command may come at the earliest, if nothing comes before it.
    pub fn ready_at(&self, bank: usize, command: Command) -> u64 {
        let (group, rank) = (&self.groups[self.group_of(bank)], &self.ranks[self.rank_of(bank)]);
        let of_bank = &self.banks[bank];
        let ready = match command {
            Command::Activate(_) => {
                let four = rank.activates[rank.oldest].map_or(0, |fourth| fourth + self.timing.four_activates);
                of_bank.activate_at.max(group.activate_at).max(rank.activate_at).max(four)
            }
            Command::Precharge => of_bank.precharge_at,
            Command::Read | Command::Write => {
                let writes = command == Command::Write;
                let after_writes = if writes { 0 } else { group.read_at.max(rank.read_at) };
                let access = of_bank.access_at.max(group.access_at).max(rank.access_at);
                access.max(after_writes).max(self.bus_allows(self.rank_of(bank), writes))
            }
        };
        ready.max(self.command_at)
    }

    /// When an access may come so that its data finds the bus free.
    fn bus_allows(&self, rank: usize, writes: bool) -> u64 {
        let Some(bus) = self.bus else { return 0 };
        let turn = if writes && !bus.writes { self.timing.read_to_write } else { 0 };
        let other_rank = if rank == bus.rank { 0 } else { self.timing.rank_to_rank };
        let latency = if writes { self.timing.write_latency } else { self.timing.read_latency };
        (bus.until + turn.max(other_rank)).saturating_sub(latency)
    }

    /// A command comes; returns when its data is over, for an access.
    pub fn issue(&mut self, bank: usize, command: Command, now: u64) -> u64 {
        let (in_group, in_rank) = (self.group_of(bank), self.rank_of(bank));
        let t = &self.timing;
        let (of_bank, group, rank) = (&mut self.banks[bank], &mut self.groups[in_group], &mut self.ranks[in_rank]);
        self.command_at = self.command_at.max(now + t.cycle);
        match command {
            Command::Activate(row) => {
                of_bank.open = Some(row);
                of_bank.used = now;
                of_bank.access_at = now + t.activate_to_access;
                of_bank.precharge_at = now + t.activate_to_precharge;
                of_bank.activate_at = now + t.activate_to_precharge + t.precharge;
                group.activate_at = now + t.activate_long;
                rank.activate_at = now + t.activate_short;
                rank.activates[rank.oldest] = Some(now);
                rank.oldest = (rank.oldest + 1) % rank.activates.len();
                now
            }
            Command::Precharge => {
                of_bank.open = None;
                of_bank.activate_at = of_bank.activate_at.max(now + t.precharge);
                now
            }
            Command::Read | Command::Write => {
                let writes = command == Command::Write;
                let until = now + t.burst + if writes { t.write_latency } else { t.read_latency };
                of_bank.used = now;
                group.access_at = now + t.access_long;
                rank.access_at = now + t.access_short;
                if writes {
                    of_bank.precharge_at = of_bank.precharge_at.max(until + t.write_recovery);
                    group.read_at = until + t.write_to_read_long;
                    rank.read_at = until + t.write_to_read_short;
                } else {
                    of_bank.precharge_at = of_bank.precharge_at.max(now + t.read_to_precharge);
                }
                self.bus = Some(Bus { until, rank: in_rank, writes });
                until
            }
        }
    }

    /// Closes a row that was not used for `timer`: returns when, if that is past. The command finds a cycle of its own.
    pub fn close_unused(&mut self, bank: usize, timer: u64, now: u64) -> Option<u64> {
        let of_bank = &mut self.banks[bank];
        of_bank.open?;
        let at = (of_bank.used + timer).max(of_bank.precharge_at);
        (at <= now).then(|| {
            of_bank.open = None;
            of_bank.activate_at = of_bank.activate_at.max(at + self.timing.precharge);
            at
        })
    }

    /// Refreshes ranks that are due: returns the rank and when its refresh begins, which is when all its rows are closed.
    pub fn refresh(&mut self, now: u64) -> Option<(usize, u64)> {
        let in_rank = self.ranks.iter().position(|rank| rank.refresh_due <= now)?;
        let due = self.ranks[in_rank].refresh_due;
        let each = self.banks.len() / self.ranks.len();
        let banks = &mut self.banks[in_rank * each..(in_rank + 1) * each];
        // Rows are closed first, as soon as each may be.
        let free = |bank: &Bank| match bank.open {
            Some(_) => bank.precharge_at.max(due) + self.timing.precharge,
            None => bank.activate_at,
        };
        let begins = banks.iter().map(free).max().unwrap_or(due).max(due);
        for bank in banks {
            bank.open = None;
            bank.activate_at = bank.activate_at.max(begins + self.timing.refresh_span);
        }
        self.ranks[in_rank].refresh_due += self.timing.refresh_interval;
        Some((in_rank, begins))
    }

    /// When the next refresh is due.
    pub fn refresh_due(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.refresh_due).min().unwrap_or(u64::MAX)
    }
}
