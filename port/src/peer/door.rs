//! The door of a port: who listens, and whether somebody new may come in.

use std::os::fd::{AsFd, OwnedFd};

use conic_fabric::Time;
use conic_native::{Closer, Held};
use rustix::event::epoll;

use super::bell::watch;
use super::socket::Listener;

/// How long a client waits before it tries to connect again, and a server before it looks whether it may let somebody in again.
pub(crate) const RETRY: Time = Time::from_nanoseconds(100_000_000);
/// Things that peers have left here and that are not yet closed, beyond which nobody new is let in: a peer that leaves what takes long to
/// close could come again and again otherwise, until this process has no descriptor left. A session of two rings leaves five, one of all the
/// regions and rings that there may be some fifty, and a message that ends a connection with what came with it 254 at most: more than the sum
/// of these there never are.
pub(crate) const MOST_UNCLOSED: usize = 64;

/// Where peers come in.
#[derive(Debug)]
pub(crate) struct Door {
    /// A server's.
    pub(crate) listener: Option<Listener>,
    closer: Closer,
    /// Nobody is let in, nor waited for; until when this is not looked at again.
    shut: Option<Time>,
    /// How often nobody more was let in, because too much was left to close.
    pub(crate) times_shut: u64,
}

impl Door {
    pub(crate) fn new(listener: Option<Listener>, closer: Closer) -> Door {
        Door { listener, closer, shut: None, times_shut: 0 }
    }

    /// Whether somebody new may come. While nobody may, who waits wakes nobody either.
    pub(crate) fn is_open(&mut self, now: Time, waiter: &OwnedFd) -> bool {
        let is_open = self.closer.waiting() <= MOST_UNCLOSED;
        self.times_shut += u64::from(!is_open && self.shut.is_none());
        if let Some(listener) = &self.listener {
            if !is_open && self.shut.is_none() {
                // One that stays wakes for nothing, and no more.
                let _ = epoll::delete(waiter, listener);
            } else if is_open && self.shut.is_some() && watch(waiter, listener.as_fd(), epoll::EventFlags::IN).is_err()
            {
                // No memory; tried again like the other.
                self.shut = Some(now + RETRY);
                return false;
            }
        }
        self.shut = (!is_open).then_some(now + RETRY);
        is_open
    }

    /// The connection of who waits, if somebody does, and whether its user may come in: this process's, root, or anybody.
    pub(crate) fn accept(&self, any_user: bool) -> Option<(Held, Result<(), &'static str>)> {
        let (socket, user) = self.listener.as_ref()?.accept().ok()??;
        let own = rustix::process::geteuid().as_raw();
        let allowed = if user == own || user == 0 || any_user { Ok(()) } else { Err("this user may not connect") };
        Some((socket, allowed))
    }

    /// Until when nobody is let in, where nobody is.
    pub(crate) fn shut(&self) -> Option<Time> {
        self.shut
    }

    /// Things that others left and that are still being closed.
    pub(crate) fn unclosed(&self) -> usize {
        self.closer.waiting()
    }
}
