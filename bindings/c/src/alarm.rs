//! One descriptor a queue to sleep on, that stays the same whatever becomes of the daemon.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use conic_client::{Link, Queue};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// How soon a queue looks again whose daemon is gone.
const GONE: Duration = Duration::from_millis(10);
/// How soon a queue looks again that may not be rung.
const UNSURE: Duration = Duration::from_millis(1);

/// A descriptor that is readable when the queue's bell rings, or when it is time to look again. Bells belong to sessions, and
/// a program that has given a descriptor to an event loop cannot exchange it: this one holds the present session's bell.
#[derive(Debug)]
pub(crate) struct Alarm {
    inside: OwnedFd,
    timer: OwnedFd,
    /// The bell that is inside, and the generation of the queue whose it is.
    bell: Option<(OwnedFd, u64)>,
}

impl Alarm {
    pub(crate) fn new() -> Result<Alarm, Errno> {
        let inside = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&inside, &timer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Alarm { inside, timer, bell: None })
    }

    /// The descriptor, which is the library's.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.inside.as_raw_fd()
    }

    /// Gets ready to wake a program that waits for this queue.
    pub(crate) fn set(&mut self, queue: &Queue) -> Result<(), Errno> {
        if queue.link() == Link::Down {
            // A bell whose other end is gone would ring for ever.
            self.leave()?;
            return self.wake_in(GONE);
        }
        if self.bell.as_ref().is_none_or(|(_, generation)| *generation != queue.generation()) {
            self.leave()?;
            // A descriptor of its own: what is to be left must be there, and the region may go first.
            let bell = rustix::io::fcntl_dupfd_cloexec(queue.bell(), 0)?;
            epoll::add(&self.inside, &bell, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
            self.bell = Some((bell, queue.generation()));
        }
        if queue.may_miss_bells() { self.wake_in(UNSURE) } else { Ok(()) }
    }

    /// Forgets what is over; to be called when the program has woken.
    pub(crate) fn clear(&mut self) -> Result<(), Errno> {
        self.wake_in(Duration::ZERO)
    }

    fn leave(&mut self) -> Result<(), Errno> {
        match self.bell.take() {
            Some((bell, _)) => epoll::delete(self.inside.as_fd(), bell),
            None => Ok(()),
        }
    }

    /// Sets the timer, once; zero stops it. What it had to say is forgotten.
    fn wake_in(&self, time: Duration) -> Result<(), Errno> {
        const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: NEVER, it_value: value })
            .map(drop)
    }
}
