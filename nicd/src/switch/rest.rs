//! Queues that have nothing to say are not looked at: their hosts call instead.

use conic_fabric::{Core, Time};

use super::looks::Looks;
use super::{Ring, Switch};

impl<C: Core> Switch<C> {
    /// Enters a queue from which nothing has come since a time.
    #[inline(always)]
    pub(super) fn note_idle(&mut self, now: Time, slot: usize, lane: usize, since: Option<Time>) {
        if since.is_some_and(|since| now.since(since) >= self.options.rest_after) {
            self.drowsy.push((slot as u32, lane as u32));
        }
    }

    /// Puts the queues to rest that were entered. One heavy fence serves all. A queue that was passed over several times is entered
    /// as often, and counts once: who has found it at rest must be the last to look.
    pub(super) fn put_to_rest(&mut self) {
        let awake: usize = self.members.iter().flatten().map(|member| member.awake.len()).sum();
        let spare = awake.saturating_sub(self.options.always_awake);
        let mut drowsy = std::mem::take(&mut self.drowsy);
        drowsy.sort_unstable();
        drowsy.dedup();
        drowsy.truncate(spare);
        for &(slot, lane) in &drowsy {
            if let Some(member) = &mut self.members[slot as usize] {
                member.set_resting(lane as usize, true);
            }
        }
        if let Some(member) = drowsy.first().and_then(|&(slot, _)| self.members[slot as usize].as_ref())
            && let Some(lane) = member.lanes.first()
        {
            lane.wire.core().heavy_fence();
        }
        for (slot, lane) in drowsy.drain(..) {
            let Some(member) = &mut self.members[slot as usize] else { continue };
            let rests = member.lanes[lane as usize].wire.nic().awaited(0).is_some();
            if rests {
                member.awake.retain(|&other| other != lane);
            } else {
                // Something came between the last look and the fence; its sender may have called, which is answered in vain.
                member.set_resting(lane as usize, false);
                member.lanes[lane as usize].idle_since = None;
            }
        }
        self.drowsy = drowsy;
    }

    /// Looks at queues again whose hosts have called.
    pub fn answer_calls(&mut self) {
        self.members.iter_mut().flatten().for_each(|member| member.answer_calls());
    }

    /// Whether no queue is looked at: nothing will be done before a host calls, a port has something, or a time comes.
    pub fn is_resting(&self) -> bool {
        self.members.iter().flatten().all(|member| member.awake.is_empty())
    }

    /// How long queues have waited between two looks at them.
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    /// Whoever steps it has slept while every queue rested: that was no wait.
    pub fn has_slept(&mut self) {
        self.looks.pause();
    }

    /// Who sleeps and is to be rung.
    pub fn take_rings(&mut self, into: &mut Vec<Ring>) {
        into.append(&mut self.rings);
    }
}
