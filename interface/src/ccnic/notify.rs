//! How two sides that sleep wake each other: flags in the region beside the rings.
//!
//! | line | home | who writes | what it says |
//! |---|---|---|---|
//! | rest | NIC | NIC | a bit for each queue pair that the NIC does not look at: who sends there must call |
//! | call | host | host sets, NIC clears | a bit for each queue pair that the NIC is to look at again |
//! | wish, one for each queue pair | host | host sets, NIC clears | [`PACKETS`]: ring when packets were delivered; [`ROOM`]: when sent ones were taken |
//!
//! # Who sleeps when
//!
//! | side | puts itself to sleep | is woken |
//! |---|---|---|
//! | NIC, a queue pair | sets the rest bit, heavy fence, looks at the ring once more | host: sends, light fence, sees the rest bit, sets the call bit, kicks |
//! | host, a queue pair | sets its wish, heavy fence, looks at the ring once more | NIC: delivers, light fence, sees the wish, clears it, rings |
//!
//! The two fences together keep each side's look behind its own store ([`Core::light_fence`]): either the sleeper's second look finds
//! what the other sent, or the other finds that the sleeper sleeps. The light half stands in the path of every burst and costs next to
//! nothing; the heavy half is paid by who has nothing to do.
//!
//! What the peer writes here can cost it a wake-up, or this side a look in vain; nothing else is derived from it.

use conic_fabric::{Address, Core, Home, LINE_BYTES, LINE_WORDS, Layout, SynchronisingWords};

use super::map::Map;

/// The most queue pairs that a notice has room for.
pub const MOST_QUEUES: usize = 64 * LINE_WORDS;

/// The host wants to be rung when packets were delivered.
pub const PACKETS: u64 = 1;
/// The host wants to be rung when packets that it sent were taken.
pub const ROOM: u64 = 2;

/// Where the flags lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notices {
    rest: Address,
    call: Address,
    wishes: Address,
}

impl Notices {
    /// Places the flags in a map's layout, and gives both: what client and daemon make of geometry and features.
    pub fn in_map(mut map: Map) -> (Map, Notices) {
        let queues = map.queues.len();
        let notices = Notices::place(&mut map.layout, queues);
        (map, notices)
    }

    /// Places the flags of so many queue pairs behind what is in a layout.
    ///
    /// # Panics
    ///
    /// With more than [`MOST_QUEUES`]: whoever lays regions out has a limit below.
    pub fn place(layout: &mut Layout, queues: usize) -> Notices {
        assert!(queues <= MOST_QUEUES, "{queues} queue pairs, and {MOST_QUEUES} at most can sleep");
        let lines = |layout: &mut Layout, name, count: u64, home| {
            layout.add(name, count * LINE_BYTES, 2 * LINE_BYTES, home, SynchronisingWords::ALL)
        };
        let call = lines(layout, "calls", 1, Home::Host);
        let wishes = lines(layout, "wishes", queues as u64, Home::Host);
        let rest = lines(layout, "rests", 1, Home::Nic);
        Notices { rest, call, wishes }
    }

    fn wish(&self, queue: usize) -> Address {
        self.wishes.lines(queue as u64)
    }

    // ---- the host ------------------------------------------------------------------------------------------------

    /// The host has sent something: whether it must kick the NIC, whom it has called.
    #[inline(always)]
    pub fn call_if_resting<C: Core>(&self, core: &C, queue: usize) -> bool {
        core.light_fence();
        let bit = 1 << (queue % 64);
        // Acquire: pairs with the release of `rest`; nothing is read by it.
        if core.load_acquire(self.rest.word(queue / 64)) & bit == 0 {
            return false;
        }
        // Acquire and release: the NIC that sees the call sees what was sent.
        core.fetch_or(self.call.word(queue / 64), bit) & bit == 0
    }

    /// The host goes to sleep: from here on the NIC rings. The host looks once more before it sleeps.
    pub fn wish_for<C: Core>(&self, core: &C, queue: usize, what: u64) {
        // Release, then the heavy half: the look that follows is behind it.
        core.store_release(self.wish(queue), what);
        core.heavy_fence();
    }

    /// The host is awake again.
    pub fn wish_no_more<C: Core>(&self, core: &C, queue: usize) {
        // Release: nothing depends on it; a ring in vain is all that it may save.
        core.store_release(self.wish(queue), 0);
    }

    // ---- the NIC -------------------------------------------------------------------------------------------------

    /// The NIC has delivered something, or taken something: whether it must ring, which it then does once for each wish.
    #[inline(always)]
    pub fn must_ring<C: Core>(&self, core: &C, queue: usize, what: u64) -> bool {
        core.light_fence();
        let at = self.wish(queue);
        // Acquire: pairs with the release of `wish_for`; nothing is read by it.
        if core.load_acquire(at) & what == 0 {
            return false;
        }
        // Release: who wishes again does so after it was rung.
        core.store_release(at, 0);
        true
    }

    /// The NIC does not look at some queue pairs, given by a word of 64 and their bits in it: who sends there calls. For those that
    /// are new among them, [`Core::heavy_fence`] follows, and one more look.
    ///
    /// A call that is still there for a new one is of an earlier rest, which ended by that look; left alone, it would keep the
    /// next call from kicking.
    pub fn rest<C: Core>(&self, core: &C, word: usize, resting: u64, new: u64) {
        if new != 0 {
            // Acquire and release: before the rest is to be seen, so that no call that answers it is lost.
            core.fetch_and(self.call.word(word), !new);
        }
        // Release: as in the table above, with the heavy fence that follows.
        core.store_release(self.rest.word(word), resting);
    }

    /// The queue pairs of a word of 64 that the host has called, each given once.
    #[inline(always)]
    pub fn calls<C: Core>(&self, core: &C, word: usize) -> u64 {
        let at = self.call.word(word);
        // Acquire: pairs with the host's `fetch_or`: what was sent is seen by who looks at its ring.
        let calls = core.load_acquire(at);
        if calls != 0 {
            core.fetch_and(at, !calls);
        }
        calls
    }
}
