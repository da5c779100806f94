//! The probes of all queues of a machine, whichever machine: who is told of an entry or exit, what is shown of each queue, and
//! whether it can be right. A machine says which queues it has, and what these say of themselves (`Probed`).
//!
//! Nothing of this changes a run. Where nobody asked for it, an entry or exit costs a look at whether anybody did.

mod levels;
mod report;

use std::collections::BTreeMap;
use std::fmt::Debug;

use conic_fabric::Time;

use super::queue;
use levels::Changes;

pub(crate) use levels::Levels;
pub use report::QueueReport;

/// One call that is left out, to show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscount {
    /// Of which kind of queue: one of the machine's list of kinds.
    pub kind: &'static str,
    /// An exit, or an entry.
    pub exit: bool,
    /// The first that is left out, from 0.
    pub number: u64,
}

/// What a machine whose queues have probes offers to whoever runs it: the same calls on each.
macro_rules! probed {
    ($machine:ty) => {
        impl $machine {
            /// Probes every queue: how many are inside, and for how long. For a machine on which nothing has happened; it changes no run.
            pub fn probe_queues(&mut self) {
                self.begin_probes();
            }

            /// Leaves one call to a probe out: to show that [`Self::queue_faults`] finds it.
            pub fn miscount(&mut self, miscount: $crate::probe::queues::Miscount) {
                self.leave_out(miscount);
            }

            /// Begins a new window of every queue: a warm-up ends.
            pub fn restart_queues(&mut self) {
                self.restart_probes();
            }

            /// What the queues that anybody was in show of the window since the last restart; nothing without [`Self::probe_queues`].
            pub fn queue_reports(&self) -> Vec<$crate::probe::queues::QueueReport> {
                self.reports()
            }

            /// Queues whose probes were told what cannot be, and how.
            pub fn queue_faults(&self) -> Vec<String> {
                self.find_faults()
            }
        }
    };
}
pub(crate) use probed;

/// Which queue of a machine.
pub(crate) trait Name: Copy + Debug + Ord {
    /// Its kind, one of the machine's list of kinds.
    fn kind(self) -> &'static str;
}

/// The probes of a machine's queues, by name.
#[derive(Debug)]
pub(crate) struct Queues<Q> {
    probes: BTreeMap<Q, queue::Queue>,
    /// When the window of all of them began, also of those that nobody has been in.
    begun: Time,
    miscount: Option<Miscount>,
    /// Every change of a level, for a recording.
    changes: Option<Changes<Q>>,
}

impl<Q> Default for Queues<Q> {
    fn default() -> Queues<Q> {
        Queues { probes: BTreeMap::new(), begun: Time::ZERO, miscount: None, changes: None }
    }
}

impl<Q: Name> Queues<Q> {
    /// Whether this call is the one to be left out.
    fn leaves_out(&mut self, queue: Q, exit: bool) -> bool {
        let Some(miscount) = &mut self.miscount else { return false };
        if miscount.kind != queue.kind() || miscount.exit != exit {
            return false;
        }
        let this = miscount.number == 0;
        miscount.number = miscount.number.wrapping_sub(1);
        this
    }

    /// Tells a probe of entries or exits, so many at each time.
    fn tell(&mut self, queue: Q, changes: &[(u64, i64)], call: impl FnOnce(&mut queue::Queue)) {
        call(self.probes.entry(queue).or_insert_with(|| queue::Queue::new(self.begun)));
        if let Some(log) = &mut self.changes {
            log.note(queue, changes);
        }
    }
}

/// Picoseconds as a time.
pub(super) fn time(picoseconds: u64) -> Time {
    Time::from_picoseconds(picoseconds)
}

/// A machine whose queues have probes, where somebody wants to see them. What a machine's parts tell of entries and exits they tell after
/// the queue has changed.
pub(crate) trait Probed {
    /// Names of its queues.
    type Queue: Name;

    /// Where the probes are, if there are any.
    fn probes(&self) -> &Option<Box<Queues<Self::Queue>>>;
    /// The same, to be changed.
    fn probes_mut(&mut self) -> &mut Option<Box<Queues<Self::Queue>>>;
    /// The present, in picoseconds.
    fn present(&self) -> u64;
    /// Every queue that the machine has.
    fn all_queues(&self) -> Vec<Self::Queue>;
    /// Whose a queue is.
    fn owner(&self, queue: Self::Queue) -> String;
    /// How many a queue has room for.
    fn limit_of(&self, queue: Self::Queue) -> Option<u64>;
    /// What a queue says that it holds, at every moment; none where it does not know, or not between two calls.
    fn says(&self, queue: Self::Queue) -> Option<u64>;
    /// What a queue holds at the end of a run, a time in picoseconds.
    fn holds_at_end(&self, queue: Self::Queue, end: u64) -> Option<u64>;
    /// What a server has counted itself: entries, and the picoseconds for which it was taken where those are whole.
    fn served_by(&self, queue: Self::Queue) -> Option<(u64, Option<u64>)>;

    /// Whether anybody wants to see the queues.
    #[inline(always)]
    fn is_probed(&self) -> bool {
        self.probes().is_some()
    }

    /// Somebody is in a queue since `at`.
    #[inline(always)]
    fn enters(&mut self, queue: Self::Queue, who: u32, at: u64) {
        if self.is_probed() {
            self.tell_enters(queue, who, at);
        }
    }

    /// Somebody left a queue at `at`.
    #[inline(always)]
    fn leaves(&mut self, queue: Self::Queue, who: u32, at: u64) {
        if self.is_probed() {
            self.tell_leaves(queue, who, at);
        }
    }

    /// What somebody had in a pool of credits, the next one has now.
    #[inline(always)]
    fn hands_over(&mut self, queue: Self::Queue, from: u32, to: u32) {
        if self.is_probed() {
            self.tell_hand_over(queue, from, to);
        }
    }

    /// Somebody comes to one server at `at`, which is done with it at `done`.
    #[inline(always)]
    fn serves(&mut self, queue: Self::Queue, at: u64, done: u64) {
        if self.is_probed() {
            self.tell_stay(queue, at, done, queue::Queue::serve);
        }
    }

    /// Somebody comes at `at` and will leave at `until`.
    #[inline(always)]
    fn stays(&mut self, queue: Self::Queue, at: u64, until: u64) {
        if self.is_probed() {
            self.tell_stay(queue, at, until, queue::Queue::stay);
        }
    }

    /// Somebody left a queue at `at`, and `others` that the queue does not hold any more either will be told of next.
    #[inline(always)]
    fn leaves_before(&mut self, queue: Self::Queue, who: u32, at: u64, others: u64) {
        if self.is_probed() {
            let says = self.says(queue);
            self.tell_exit(queue, who, at, says.map(|says| says + others));
        }
    }

    /// See [`Probed::enters`].
    #[cold]
    #[inline(never)]
    fn tell_enters(&mut self, queue: Self::Queue, who: u32, at: u64) {
        let says = self.says(queue);
        self.tell_entry(queue, who, at, says);
    }

    /// See [`Probed::leaves`].
    #[cold]
    #[inline(never)]
    fn tell_leaves(&mut self, queue: Self::Queue, who: u32, at: u64) {
        let says = self.says(queue);
        self.tell_exit(queue, who, at, says);
    }

    /// See [`Probed::hands_over`].
    #[cold]
    #[inline(never)]
    fn tell_hand_over(&mut self, queue: Self::Queue, from: u32, to: u32) {
        let (now, says) = (self.present(), self.says(queue));
        self.tell_exit(queue, from, now, says.map(|says| says - 1));
        self.tell_entry(queue, to, now, says);
    }

    /// Tells a probe of an entry, after which the queue says that it holds so many.
    fn tell_entry(&mut self, queue: Self::Queue, who: u32, at: u64, says: Option<u64>) {
        let Some(queues) = self.probes_mut() else { return };
        if !queues.leaves_out(queue, false) {
            queues.tell(queue, &[(at, 1)], |probe| probe.enter(who, time(at), says));
        }
    }

    /// Tells a probe of an exit, after which the queue says that it holds so many.
    fn tell_exit(&mut self, queue: Self::Queue, who: u32, at: u64, says: Option<u64>) {
        let now = self.present();
        let Some(queues) = self.probes_mut() else { return };
        if !queues.leaves_out(queue, true) {
            queues.tell(queue, &[(at, -1)], |probe| probe.leave(who, time(at), time(now), says));
        }
    }

    /// See [`Probed::serves`] and [`Probed::stays`].
    #[cold]
    #[inline(never)]
    fn tell_stay(&mut self, queue: Self::Queue, at: u64, until: u64, call: fn(&mut queue::Queue, Time, Time)) {
        let Some(queues) = self.probes_mut() else { return };
        if !queues.leaves_out(queue, false) {
            queues.tell(queue, &[(at, 1), (until, -1)], |probe| call(probe, time(at), time(until)));
        }
    }

    /// What a queue is called.
    fn name_of(&self, queue: Self::Queue) -> String {
        format!("{}: {}", self.owner(queue), queue.kind())
    }

    /// Probes the queues from now on, on a machine on which nothing has happened.
    fn begin_probes(&mut self) {
        self.probes_mut().get_or_insert_default();
    }

    /// Leaves one call to a probe out: to show that [`Probed::find_faults`] finds it.
    fn leave_out(&mut self, miscount: Miscount) {
        if let Some(queues) = self.probes_mut() {
            queues.miscount = Some(miscount);
        }
    }

    /// Begins a new window of every queue: a warm-up ends.
    fn restart_probes(&mut self) {
        let end = self.last_change();
        if let Some(queues) = self.probes_mut() {
            queues.begun = end;
            queues.probes.values_mut().for_each(|probe| probe.restart(end));
        }
    }

    /// When a probe was last told of something, or now.
    fn last_change(&self) -> Time {
        let probes = self.probes().iter().flat_map(|queues| queues.probes.values());
        probes.map(queue::Queue::latest).fold(time(self.present()), Time::max)
    }

    /// What the queues that anybody was in show of the window since the last restart; nothing where they have no probes.
    fn reports(&self) -> Vec<QueueReport>
    where
        Self: Sized,
    {
        report::reports(self)
    }

    /// Queues whose probes were told what cannot be: where the integral of the occupancy is not the sum of the stays, where
    /// the probe does not hold what the queue does, where more were inside than there is room for, where a server was taken
    /// for another time or number than it counted itself.
    fn find_faults(&self) -> Vec<String>
    where
        Self: Sized,
    {
        report::faults(self)
    }

    /// Writes down every change of a queue's level from now on, about `limit` at most. Where the queues have no probes yet, they
    /// have from now on; that is for a machine on which nothing has happened.
    fn log_queues(&mut self, limit: usize) {
        let queues = self.probes_mut().get_or_insert_default();
        queues.changes = Some(Changes::new(limit));
    }

    /// Ends writing them down, and gives what was.
    fn take_levels(&mut self) -> Levels
    where
        Self: Sized,
    {
        levels::take(self)
    }
}
