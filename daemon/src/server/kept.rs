//! Regions of clients that have left, or were detached, by an operator or for what they did, while the program runs on: it may hold buffers
//! there, or keep all that it manages its memory by, and go on with them when it has attached again. Such a region keeps its contents and
//! its share of its user's quota
//!
//! | until | which is seen by |
//! |---|---|
//! | nothing in the program has it any more | the end of a bell, which goes with the region there |
//! | the program has ended, whoever has a copy of that bell | its process |
//! | its user asks for more than the quota has beside it, the oldest first | [`Daemon::make_room`] |
//! | its user has as many of them as it may have clients, or all have as many as there may be clients, the oldest first | [`Daemon::keep`] |
//!
//! It is then emptied as any other. Each costs three descriptors here: its memory, a bell, the process.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use conic_native::channel::Channel;
use conic_native::{Memory, clock};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::net::{Shutdown, shutdown};

use super::Daemon;
use super::region::{Departing, Taken};

/// A region that its program may use still.
pub(super) struct Kept {
    pub memory: Arc<Memory>,
    pub taken: Taken,
    pub process: OwnedFd,
    pub bell: OwnedFd,
    /// The connection by which descriptors of it went out and were not all taken.
    pub unread: Option<Channel>,
}

/// Whether nothing in the program has the region any more, or the program has ended.
fn is_over(process: &OwnedFd, bell: &OwnedFd) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut looked_at = [PollFd::new(process, PollFlags::IN), PollFd::new(bell, PollFlags::empty())];
    poll(&mut looked_at, Some(&NOW)).is_ok_and(|ready| ready > 0)
}

impl Daemon {
    /// Does with the region of a client that has left what is to be done, now that no thread touches it.
    pub(super) fn depart(&mut self, mut departing: Departing) {
        // The threads have let go of them.
        let mut bells = Arc::try_unwrap(std::mem::take(&mut departing.bells)).unwrap_or_default();
        // Who leaves by itself has mostly let go of everything before.
        let holder = departing.holder.take();
        let held = holder.and_then(|process| bells.pop_if(|bell| !is_over(&process, bell)).map(|bell| (process, bell)));
        bells.into_iter().for_each(|bell| self.close_bell(bell));
        let Some((process, bell)) = held else { return self.give_back(departing) };
        // Whoever sleeps behind it reads its end, as of the others.
        let _ = shutdown(&bell, Shutdown::Write);
        let Departing { memory, mut taken, leaving, unread, .. } = departing;
        if let Some(leaving) = leaving {
            self.log_leaving(taken.user, leaving, (clock::now(), true));
        }
        self.expect_no_more(taken.user);
        let (unread, read) = match unread {
            Some(channel) if !channel.has_unread() => (None, Some(channel)),
            unread => (unread, None),
        };
        read.into_iter().for_each(|channel| self.close(channel));
        if unread.is_none() {
            // It is nobody's session, and has no queues.
            self.quota.give_back(taken.user, taken.clients, taken.queues, 0);
            (taken.clients, taken.queues) = (0, 0);
        }
        self.keep(Kept { memory, taken, process, bell, unread });
        self.attend_to_postponed();
    }

    /// Watches who has a region; where that cannot be, or there are too many, one goes.
    pub(super) fn keep(&mut self, kept: Kept) {
        let (number, user) = (self.next, kept.taken.user);
        self.next += 1;
        let [of_bell, of_process] = [number << 1, number << 1 | 1].map(epoll::EventData::new_u64);
        // The bell's end is told in any case, and nothing that the other side may write to it.
        let watched = epoll::add(&self.epoll, &kept.bell, of_bell, epoll::EventFlags::empty())
            .and_then(|()| epoll::add(&self.epoll, &kept.process, of_process, epoll::EventFlags::IN));
        self.kept.insert(number, kept);
        if watched.is_err() {
            return self.keep_no_longer(number);
        }
        let limits = self.config.limits;
        if self.kept_of(user).count() > limits.clients_per_user as usize {
            self.keep_oldest_no_longer(user);
        } else if self.kept.len() > limits.clients as usize {
            let users = self.kept.values().map(|kept| kept.taken.user);
            // Whoever has most stands aside.
            let most = users.max_by_key(|&user| self.kept_of(user).count()).unwrap_or(user);
            self.keep_oldest_no_longer(most);
        }
    }

    /// A user's regions that are kept, the oldest first.
    fn kept_of(&self, user: u32) -> impl Iterator<Item = (u64, &Kept)> {
        self.kept.iter().filter(move |(_, kept)| kept.taken.user == user).map(|(&number, kept)| (number, kept))
    }

    /// Whether a user has the room that it asks for as soon as regions are back that are on their way: one that was kept is sent on its way
    /// where it is one of those that stand against it.
    pub(super) fn make_room(&mut self, user: u32, queues: u32, bytes: u64) -> bool {
        if self.returning.contains(&user) {
            return true;
        }
        let kept = self.kept_of(user).map(|(_, kept)| kept.taken.bytes).sum();
        self.quota.has_room_without(user, queues, bytes, kept) && self.keep_oldest_no_longer(user)
    }

    /// Has the oldest region of a user given back that is kept; whether there is one.
    fn keep_oldest_no_longer(&mut self, user: u32) -> bool {
        let oldest = self.kept_of(user).next().map(|(number, _)| number);
        oldest.into_iter().for_each(|number| self.keep_no_longer(number));
        oldest.is_some()
    }

    /// Has a region given back that was kept, if it is one.
    pub(super) fn keep_no_longer(&mut self, number: u64) {
        let Some(Kept { memory, taken, process, bell, unread }) = self.kept.remove(&number) else { return };
        // Descriptors that are closed leave the epoll by themselves only when no copy of them is left anywhere.
        let _ = epoll::delete(&self.epoll, bell.as_fd());
        let _ = epoll::delete(&self.epoll, process.as_fd());
        self.returning.push(taken.user);
        self.close_bell(bell);
        self.give_back(Departing::unheld(memory, taken, unread));
    }
}
