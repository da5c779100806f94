//! A virtio network card as far as both of its halves are alike: features, rings, memory; and what they do differently.

use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use conic_native::{Closer, Held, Ringer};
use rustix::event::epoll;

use super::channel::Channel;
use super::memory::Regions;
use super::message::{Header, Parts};
use super::ring::{Agreed, LONG_HEADER, Put, Taken};
use super::rings::{Reach, Served};
use super::{Card, Counts, VhostOptions};
use crate::Legacy;
use crate::peer::{ring_peer, watch};

/// Bits of the device's features (VIRTIO 1.2, 5.1.3 and 6).
pub(super) mod feature {
    use crate::vhost::VhostOptions;

    /// Packets may come whose checksum is begun.
    pub(crate) const CHECKSUM: u64 = 1 << 0;
    /// The driver takes packets whose checksum is begun.
    pub(crate) const GUEST_CHECKSUM: u64 = 1 << 1;
    /// The driver takes TCP packets over IPv4, and over IPv6, that stand for several.
    pub(crate) const GUEST_TCP: [u64; 2] = [1 << 7, 1 << 8];
    /// Such may come.
    pub(crate) const HOST_TCP: [u64; 2] = [1 << 11, 1 << 12];
    pub(crate) const MERGED_BUFFERS: u64 = 1 << 15;
    /// The driver says itself where it is, when it is asked to.
    pub(crate) const GUEST_ANNOUNCE: u64 = 1 << 21;
    pub(crate) const SEVERAL_QUEUES: u64 = 1 << 22;
    /// vhost's own: what the device writes is logged.
    pub(crate) const LOG_ALL: u64 = 1 << 26;
    pub(crate) const ANY_LAYOUT: u64 = 1 << 27;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    /// vhost-user's own: there are further features, of the protocol, and rings begin switched off.
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const PACKED: u64 = 1 << 34;

    /// What a port of these options offers, or agrees to.
    pub(crate) fn offered(options: &VhostOptions) -> u64 {
        let mut offered = MERGED_BUFFERS | ANY_LAYOUT | INDIRECT | EVENT_INDEX | PROTOCOL | VERSION_1 | PACKED;
        if options.queues > 1 {
            offered |= SEVERAL_QUEUES;
        }
        if options.offload {
            offered |= CHECKSUM | GUEST_CHECKSUM;
            GUEST_TCP.iter().chain(&HOST_TCP).for_each(|bit| offered |= bit);
        }
        offered
    }
}

/// Bits of the protocol's features.
pub(super) mod protocol {
    pub(crate) const SEVERAL_QUEUES: u64 = 1 << 0;
    /// The log lies in memory that is passed.
    pub(crate) const LOG: u64 = 1 << 1;
    /// This side announces a station that does not do so itself.
    pub(crate) const ANNOUNCE: u64 = 1 << 2;
    pub(crate) const REPLIES: u64 = 1 << 3;
    pub(crate) const MTU: u64 = 1 << 4;
    pub(crate) const MEMORY_SLOTS: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
    pub(crate) const ALL: u64 = LOG | ANNOUNCE | REPLIES | MTU | MEMORY_SLOTS | STATUS;
}

/// One side of a ring: the device's, which uses what the driver makes available, or the driver's.
pub trait Side: Debug + Send {
    /// Takes the next packet, with the header before it.
    fn take(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken;
    /// Puts a packet behind a header.
    fn put(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &[u8]) -> Put;
    /// Shows the other side what was done; whether it wants to be told.
    fn show(&mut self, regions: &Regions) -> bool;
    /// How many slots the other side has not been shown.
    fn unshown(&self) -> u16;
    /// Asks the other side for word of news or for none. Behind the former a look into the ring is due.
    fn interrupt(&self, regions: &Regions, wanted: bool);
    /// Where a device stopped.
    fn position(&self) -> u16;
}

/// What the two halves of a card do differently.
pub trait Half: Debug + Sized + Send + 'static {
    /// How it drives a ring.
    type Ring: Side;
    /// What ports and errors call it.
    const KIND: &'static str;
    /// Which ring of a pair it puts packets into: 0, to the driver, or 1.
    const OUT: usize;
    /// The feature with which the other half takes packets whose checksum is begun.
    const CHECKSUM: u64;
    /// Those with which it takes TCP packets that stand for several, over IPv4 and IPv6.
    const TCP: [u64; 2];
    /// Whether it may say that a checksum was found right.
    const SAYS_VALID: bool;

    /// As it is before anything is said.
    fn new(options: &VhostOptions) -> Self;

    /// What it rings when there is something for the other side.
    fn bell(queue: &Queue) -> Option<&Arc<Held>>;

    /// What the other side rings.
    fn awaited(queue: &Queue) -> Option<&Arc<Held>>;

    /// Says what is to be said first.
    fn greet(_device: &mut Device<Self>, _channel: &Channel) -> Result<(), &'static str> {
        Ok(())
    }

    /// Whether the other side has to say something before the connection can be used.
    fn is_expecting(_device: &Device<Self>) -> bool {
        false
    }

    /// Takes a message: its header, what follows, its descriptors.
    fn hear(
        device: &mut Device<Self>,
        message: (Header, &[u8], Vec<Held>),
        channel: &Channel,
        options: &VhostOptions,
        outside: &Outside<Self::Ring>,
        counts: &mut Counts,
    ) -> Result<(), &'static str>;

    /// The station that is to be announced, where the other side has just asked for it.
    fn announced(_device: &mut Device<Self>) -> Option<[u8; 6]> {
        None
    }

    /// What another process needs to go on; nothing where it begins anew.
    fn pass_on(card: &mut Card<Self>) -> Option<Legacy>;
}

/// What a card, or a part of one, needs of this process.
#[derive(Debug)]
pub struct Outside<R> {
    /// Which part this is.
    pub(super) part: usize,
    /// The rings, and what is slept on.
    pub(super) rings: Reach<R>,
    /// Closes what the other side has passed.
    pub(super) closer: Closer,
    /// Rings the other side's bells; none where the system has nothing that does so without waiting.
    pub(super) ringer: Option<Arc<Ringer>>,
}

impl<R> Outside<R> {
    /// What this part sleeps on.
    pub(super) fn waiter(&self) -> &OwnedFd {
        self.rings.all().waiter(self.part)
    }
}

/// One ring, as far as it has been said what it is.
#[derive(Debug, Default)]
pub struct Queue {
    pub(super) slots: u32,
    pub(super) parts: Option<Parts>,
    /// By which address writes to what the device uses are logged, where they are.
    pub(super) log: Option<u64>,
    pub(super) kick: Option<Arc<Held>>,
    pub(super) call: Option<Arc<Held>>,
    /// Kicked, or said to be polled, since it was stopped.
    pub(super) is_started: bool,
    pub(super) is_enabled: bool,
    /// Comes from the driver, which has switched it off: it is emptied, so that what was sent meanwhile does not leave when it is on again.
    pub(super) discards: bool,
    /// Where it stopped, or is to begin.
    pub(super) base: u16,
    /// Started, and enabled or to be emptied, and all of it lies in the memory: it is served ([`super::rings`]).
    pub(super) is_used: bool,
}

/// A card: what was agreed, its memory, its rings.
#[derive(Debug)]
pub struct Device<H: Half> {
    pub(super) features: u64,
    /// Each ring that is in use has them too: they change only while there is none.
    pub(super) regions: Arc<Regions>,
    /// Two for each pair: to the driver, from the driver.
    pub(super) queues: Vec<Queue>,
    /// Which session of the port it is.
    pub(super) session: u64,
    pub(super) half: H,
}

impl<H: Half> Device<H> {
    /// One to which nobody has said anything.
    pub(super) fn new(options: &VhostOptions, session: u64) -> Device<H> {
        let queues = (0..2 * options.queues).map(|_| Queue::default()).collect();
        Device { features: 0, regions: Arc::default(), queues, session, half: H::new(options) }
    }

    /// Whether both sides agreed on a feature.
    pub(super) fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    pub(super) fn agreed(&self) -> Agreed {
        let merges = self.has(feature::MERGED_BUFFERS);
        Agreed {
            event_index: self.has(feature::EVENT_INDEX),
            merges,
            long_header: merges || self.has(feature::VERSION_1),
        }
    }

    /// Gives a ring to the part that it belongs to.
    pub(super) fn serve(&mut self, number: usize, ring: H::Ring, outside: &Outside<H::Ring>) {
        let queue = &mut self.queues[number];
        queue.is_used = true;
        let served = Served {
            ring,
            regions: Arc::clone(&self.regions),
            bell: H::bell(queue).cloned(),
            // A packet that is made ready for a driver does not ask whether it migrates.
            features: self.features & !feature::LOG_ALL,
            session: self.session,
            discards: queue.discards,
        };
        let is_polled = number % 2 != H::OUT && H::awaited(queue).is_none();
        outside.rings.all().begin(number, served, is_polled);
    }

    /// Stops a ring, and shows the other side what was done. No thread touches it behind this.
    pub(super) fn stop(&mut self, number: usize, outside: &Outside<H::Ring>) {
        self.queues[number].is_used = false;
        if let Some(mut served) = outside.rings.all().stop(number) {
            served.show(outside.ringer.as_deref());
            self.queues[number].base = served.ring.position();
        } else if let Some(position) = outside.rings.all().lock(number).stood.take() {
            self.queues[number].base = position;
        }
    }

    pub(super) fn stop_all(&mut self, outside: &Outside<H::Ring>) {
        (0..self.queues.len()).for_each(|number| self.stop(number, outside));
    }

    /// Leaves all rings and the memory that they lie in.
    pub(super) fn leave_memory(&mut self, outside: &Outside<H::Ring>) {
        self.stop_all(outside);
        // Whoever unmaps the last of memory gives all its pages back, and others wait for this thread.
        outside.closer.close(std::mem::take(&mut self.regions));
    }

    /// The memory, to be changed: no ring may be in use.
    pub(super) fn memory(&mut self) -> Result<&mut Regions, &'static str> {
        Arc::get_mut(&mut self.regions).ok_or("the memory is in use")
    }

    /// Waits for what the other side rings of a ring, where it rings of it: told once for each time that it is written, and never read, which
    /// could be made to wait.
    pub(super) fn await_word(&self, number: usize, outside: &Outside<H::Ring>) -> std::io::Result<()> {
        match H::awaited(&self.queues[number]) {
            // A word that says that there is room is never waited for.
            Some(awaited) if number % 2 != H::OUT => {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                watch(outside.rings.all().waiter_of(number), awaited.as_fd(), flags)
            }
            _ => Ok(()),
        }
    }

    /// Waits for it no longer. The other side has the same descriptor: closing this one alone would leave it in the waiter.
    pub(super) fn forget_awaited(&self, number: usize, outside: &Outside<H::Ring>) {
        if let Some(awaited) = H::awaited(&self.queues[number]) {
            // One that was never added needs not be removed.
            let _ = epoll::delete(outside.rings.all().waiter_of(number), awaited);
        }
    }

    /// The other side is gone.
    pub(super) fn end(mut self, outside: &Outside<H::Ring>) {
        self.leave_memory(outside);
        (0..self.queues.len()).for_each(|number| self.forget_awaited(number, outside));
        // With what else of the other side's is mapped.
        outside.closer.close(self.half);
    }

    /// How many pairs can be sent to, and received from.
    pub(super) fn pairs(&self) -> (usize, usize) {
        let goes = |queue: &&Queue| queue.is_used && !queue.discards;
        let used = |from: usize| self.queues.iter().skip(from).step_by(2).filter(goes).count();
        (used(H::OUT), used(1 - H::OUT))
    }
}

impl<R: Side> Served<R> {
    /// Shows the other side what was done; whether it had to be told, which it was.
    #[inline]
    pub(super) fn show(&mut self, ringer: Option<&Ringer>) -> bool {
        match &self.bell {
            _ if !self.ring.show(&self.regions) => false,
            Some(bell) => {
                ring_peer(ringer, bell);
                true
            }
            None => false,
        }
    }
}
