//! The rings of a card, each of which any thread that serves the card may reach, one at a time.
//!
//! | who | touches a ring | when |
//! |---|---|---|
//! | the part that it belongs to: ring `n` is of pair `n / 2`, and pair `p` of part `p` modulo their number | takes and puts packets | holding its lock, for one packet |
//! | a part of whose pairs none is in use | puts packets | the same |
//! | the part with the control channel | begins it, gives it another bell, stops it | holding its lock |
//!
//! A ring that is in use lies in its place together with the memory that it lies in, and is reached nowhere else: whoever stops it takes it out,
//! under the lock, and from then on no thread can touch it, before the answer to the message that asked for it is written. Memory
//! is mapped for as long as a ring, or the control channel, has it. So a change of memory stops all rings first, and begins them in the new one. The
//! lock is held for no call that waits, and for a system call only where the other side is told.
//!
//! Which rings are in use is said beside the locks too, as bits: a hint, which spares looks into empty places.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use conic_native::{Count, Held, spin, yield_core};
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::memory::Regions;
use crate::peer::{ring_bell, watch};

/// A ring that is in use.
#[derive(Debug)]
pub(super) struct Served<R> {
    pub(super) ring: R,
    /// The memory that it lies in.
    pub(super) regions: Arc<Regions>,
    /// What the other side is told by.
    pub(super) bell: Option<Arc<Held>>,
    /// What was agreed on when it began.
    pub(super) features: u64,
    /// Which session of the port it belongs to.
    pub(super) session: u64,
    /// What comes out of it is thrown away.
    pub(super) discards: bool,
}

/// Where a ring is while it is in use.
#[derive(Debug)]
pub(super) struct Entry<R> {
    pub(super) served: Option<Served<R>>,
    /// Its part has stopped, to go on in another process, and leaves it to the first.
    pub(super) is_left: bool,
    /// Where it stood then, if it was in use.
    pub(super) stood: Option<u16>,
}

/// What a part sleeps on.
#[derive(Debug)]
struct Sleep {
    waiter: OwnedFd,
    /// Rung by another part, and never read: told once for each time.
    bell: OwnedFd,
}

/// The rings of a card, and what each of its parts sleeps on.
#[derive(Debug)]
pub(super) struct Rings<R> {
    entries: Vec<Mutex<Entry<R>>>,
    sleeps: Vec<Sleep>,
    /// A bit for each ring: in use; in use, and of those of which the other side will not tell. Written by the control channel's thread alone.
    used: Count,
    polled: Count,
    /// What was agreed on of those in use.
    features: Count,
    /// Of a session, and why it cannot go on.
    complaint: Mutex<Option<(u64, &'static str)>>,
}

/// How often a thread looks at a lock that another one has before it lets others have its core: a few microseconds, in which a packet is put.
const LOOKS: u32 = 100;

/// Locks what a thread that panicked may have left: a ring is checked against the other side's lies, and so against half a step of this one's.
/// Whoever has it has it for a packet: one that sleeps for it would have to be woken, by a system call of who serves a ring.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut looks = 0;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(left)) => return left.into_inner(),
            Err(TryLockError::WouldBlock) if looks < LOOKS => {
                looks += 1;
                spin();
            }
            Err(TryLockError::WouldBlock) => yield_core(),
        }
    }
}

/// The numbers of the bits that are set, from the lowest on.
pub(super) fn bits(set: u32) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(set), |set| Some(set & set.wrapping_sub(1)))
        .take_while(|&set| set != 0)
        .map(|set| set.trailing_zeros() as usize)
}

/// The first bit from a number on, or the lowest, of a set that has one.
#[inline(always)]
pub(super) fn next_of(set: u32, from: usize) -> usize {
    let behind = set & u32::MAX.checked_shl(from as u32).unwrap_or(0);
    (if behind == 0 { set } else { behind }).trailing_zeros() as usize
}

impl<R> Rings<R> {
    /// Places for so many pairs of rings, for so many parts.
    pub(super) fn new(pairs: usize, parts: usize) -> io::Result<Rings<R>> {
        let sleep = |_| {
            let waiter = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            watch(&waiter, bell.as_fd(), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
            io::Result::Ok(Sleep { waiter, bell })
        };
        Ok(Rings {
            entries: (0..2 * pairs).map(|_| Mutex::new(Entry { served: None, is_left: false, stood: None })).collect(),
            sleeps: (0..parts).map(sleep).collect::<Result<_, _>>()?,
            used: Count::new(0),
            polled: Count::new(0),
            features: Count::new(0),
            complaint: Mutex::new(None),
        })
    }

    /// How many parts there are.
    pub(super) fn parts(&self) -> usize {
        self.sleeps.len()
    }

    /// The part that a ring belongs to.
    pub(super) fn part_of(&self, number: usize) -> usize {
        number / 2 % self.parts()
    }

    /// What a part sleeps on.
    pub(super) fn waiter(&self, part: usize) -> &OwnedFd {
        &self.sleeps[part].waiter
    }

    /// What the part of a ring sleeps on.
    pub(super) fn waiter_of(&self, number: usize) -> &OwnedFd {
        self.waiter(self.part_of(number))
    }

    /// Wakes a part, for another one.
    pub(super) fn wake(&self, part: usize) {
        if self.parts() > 1 {
            ring_bell(&self.sleeps[part].bell);
        }
    }

    /// A ring's place.
    pub(super) fn lock(&self, number: usize) -> MutexGuard<'_, Entry<R>> {
        lock(&self.entries[number])
    }

    /// Begins with a ring, which the other side tells of or does not.
    pub(super) fn begin(&self, number: usize, served: Served<R>, is_polled: bool) {
        self.features.set(served.features);
        self.lock(number).served = Some(served);
        self.set_polled(number, is_polled);
        self.used.set(self.used.get() | 1 << number);
        self.wake(self.part_of(number));
    }

    /// Says whether the other side tells of what is in a ring.
    pub(super) fn set_polled(&self, number: usize, is_polled: bool) {
        let bit = 1 << number;
        let others = self.polled.get() & !bit;
        self.polled.set(if is_polled { others | bit } else { others });
    }

    /// Takes a ring out of use: nobody touches it from here on.
    pub(super) fn stop(&self, number: usize) -> Option<Served<R>> {
        self.used.set(self.used.get() & !(1 << number));
        self.set_polled(number, false);
        self.lock(number).served.take()
    }

    /// Which rings are in use. Who sees an old word finds an empty place behind the lock, or looks into a ring a moment later.
    #[inline(always)]
    pub(super) fn used(&self) -> u32 {
        self.used.get() as u32
    }

    /// Which of them the other side will not tell of.
    pub(super) fn polled(&self) -> u32 {
        self.polled.get() as u32
    }

    /// What was agreed on, as far as is known without a lock; a ring that is used by it says whether it holds.
    pub(super) fn features(&self) -> u64 {
        self.features.get()
    }

    /// Says to the part with the control channel that a session cannot go on.
    pub(super) fn complain(&self, session: u64, why: &'static str) {
        *lock(&self.complaint) = Some((session, why));
        self.wake(0);
    }

    /// Why this session cannot go on, if another part says so.
    pub(super) fn complaint(&self, session: u64) -> Option<&'static str> {
        let said = lock(&self.complaint).take()?;
        (said.0 == session).then_some(said.1)
    }
}

/// How a part has the rings: alone, without a lock to take, or together with others.
#[derive(Debug)]
pub(super) enum Reach<R> {
    Alone(Box<Rings<R>>),
    Together(Arc<Rings<R>>),
}

/// A ring's place, for whoever has it.
pub(super) enum Reached<'a, R> {
    Own(&'a mut Entry<R>),
    Locked(MutexGuard<'a, Entry<R>>),
}

impl<R> Reached<'_, R> {
    /// The ring, where it is in use.
    #[inline(always)]
    pub(super) fn served(&mut self) -> Option<&mut Served<R>> {
        match self {
            Reached::Own(entry) => entry.served.as_mut(),
            Reached::Locked(entry) => entry.served.as_mut(),
        }
    }
}

impl<R> Reach<R> {
    /// One for each part of a card with so many pairs of rings.
    pub(super) fn deal(pairs: usize, parts: usize) -> io::Result<Vec<Reach<R>>> {
        let rings = Rings::new(pairs, parts)?;
        if parts == 1 {
            return Ok(vec![Reach::Alone(Box::new(rings))]);
        }
        let rings = Arc::new(rings);
        Ok((0..parts).map(|_| Reach::Together(Arc::clone(&rings))).collect())
    }

    /// All of them.
    #[inline(always)]
    pub(super) fn all(&self) -> &Rings<R> {
        match self {
            Reach::Alone(rings) => rings,
            Reach::Together(rings) => rings,
        }
    }

    /// One of them, to be used.
    #[inline(always)]
    pub(super) fn reach(&mut self, number: usize) -> Reached<'_, R> {
        match self {
            Reach::Alone(rings) => {
                Reached::Own(rings.entries[number].get_mut().unwrap_or_else(PoisonError::into_inner))
            }
            Reach::Together(rings) => Reached::Locked(rings.lock(number)),
        }
    }
}
