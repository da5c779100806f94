//! Lines whose home is a device that sees their coherence messages: what the CPU's cache and the device's directory do,
//! without time.
//!
//! MOESI's four states without O: nobody but the CPU's cache ever has a copy, for the device has none (it keeps the data of
//! its lines, not a cache of them). [`Cached`] is one line in the CPU's shared cache, [`Entry`] the same line in the
//! directory of its home. Between the two, messages about one line may arrive in any order.
//!
//! | message to the home | means | ECI |
//! |---|---|---|
//! | `Request { has_copy: false }` | a load or a store missed | RLDI, RLDX |
//! | `Request { has_copy: true }` | a store hit a shared copy | RC2D_S |
//! | `Victim` | the cache gave the line up by itself; told always, with data if it had changed | VICD, VICC, VICS |
//! | `Recalled` | the answer to a recall: what the cache had, with data if it had changed | HAKD, HAKS, HAKI |
//!
//! | message to the cache | means | ECI |
//! |---|---|---|
//! | `Grant` | the line, to read or to write | PSHA, PEMD |
//! | `Recall` | give it up | FEVX, SINV |
//! | `Written` | the home has a line that was given up with new data | none; CXL.mem's completion of a write |
//!
//! ECI's cache answers a recall with the line. One over CXL.mem (3.0, back-invalidate) answers without data: it writes a changed line
//! back first, as if it gave it up by itself, and answers when the home has it ([`Cached::recalled_writing_back`]).
//!
//! # Races
//!
//! | race | what happens |
//! |---|---|
//! | a recall meets the line's own request, and the cache has no copy | the recall waits for the grant, and takes the line after its first use. A home that withholds that grant until the recall is answered stops for ever |
//! | a recall meets a request to write a shared copy | it may have overtaken the grant, or the home may not know of the request: the copy goes at once, the answer is that there is none, and after the grant's first use the line is given up. A home that knows of the request takes that answer for the end of the recall, one that has granted it waits for the victim |
//! | a recall writes a changed line back, and hears that the home has an earlier one | it says that it has nothing; the home waits for the victim, as where they cross |
//! | a recall crosses a victim | the cache says that it has nothing; the home waits for the victim too, whichever is first |
//! | a request overtakes the victim before it | the home waits for the victim before the device hears of the request |
//! | a request meets a recall | it waits until the recall is done and the line is unlocked. If the recall also finds the cache waiting for that request, both wait for ever: a home must not recall what the cache may just have given up and asked for again (the line pair's protocol does not, see its forbidden moves) |

#[cfg(test)]
mod explore;

/// A copy in the CPU's cache. `Ord` is by what it permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// None.
    #[default]
    Invalid,
    /// To read.
    Shared,
    /// To write, not written yet.
    Exclusive,
    /// Written.
    Modified,
}

impl Copy {
    /// The letter that the literature writes.
    pub fn letter(self) -> char {
        ['I', 'S', 'E', 'M'][self as usize]
    }
}

/// A message to the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToHome {
    /// The cache wants the line.
    Request {
        /// To write it.
        write: bool,
        /// It has a shared copy.
        has_copy: bool,
    },
    /// It gave it up.
    Victim {
        /// With new data.
        dirty: bool,
    },
    /// It was told to give it up.
    Recalled {
        /// It had a copy until then.
        found: bool,
        /// With new data.
        dirty: bool,
    },
}

/// A message to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToCache {
    /// The line and its data.
    Grant {
        /// It may be written.
        exclusive: bool,
    },
    /// Give it up.
    Recall,
    /// A line that was given up with new data has come.
    Written,
}

/// A line in the CPU's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cached {
    /// Its copy.
    pub copy: Copy,
    /// What it has asked for: `Some(true)` to write.
    pub asked: Option<bool>,
    /// A recall came before the grant that it, perhaps, is about: `Some(true)` if it was answered.
    pub recall: Option<bool>,
    /// A recall is answered when the home has the line that it found changed.
    pub writing_back: bool,
}

/// How an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Done.
    Hit,
    /// It waits for the grant of this request, which is to be sent.
    Miss(ToHome),
    /// It waits for a request that is under way.
    Waits,
}

impl Cached {
    /// A load, or a store.
    pub fn access(&mut self, write: bool) -> Access {
        if self.copy >= Copy::Exclusive || (self.copy == Copy::Shared && !write) {
            if write {
                self.copy = Copy::Modified;
            }
            return Access::Hit;
        }
        if self.asked.is_some() {
            return Access::Waits;
        }
        self.asked = Some(write);
        Access::Miss(ToHome::Request { write, has_copy: self.copy == Copy::Shared })
    }

    /// Whether the line may be given up: it is there, and not asked for.
    pub fn may_evict(&self) -> bool {
        self.copy != Copy::Invalid && self.asked.is_none()
    }

    /// Gives the line up.
    pub fn evict(&mut self) -> ToHome {
        let dirty = std::mem::take(&mut self.copy) == Copy::Modified;
        ToHome::Victim { dirty }
    }

    /// Takes a grant. The access that waits for it must be made now, before [`Cached::settle`].
    pub fn granted(&mut self, exclusive: bool) {
        self.asked = None;
        self.copy = if exclusive { Copy::Exclusive } else { Copy::Shared };
    }

    /// Gives the line up for a recall that came before the grant, after the access that waited for the grant.
    pub fn settle(&mut self) -> Option<ToHome> {
        match self.recall.take()? {
            false => Some(self.give_up()),
            true => Some(self.evict()),
        }
    }

    /// Takes a recall, and answers it unless it has to wait.
    pub fn recalled(&mut self) -> Option<ToHome> {
        if self.asked.is_none() {
            return Some(self.give_up());
        }
        let had = std::mem::take(&mut self.copy);
        self.recall = Some(had != Copy::Invalid);
        (had != Copy::Invalid).then_some(ToHome::Recalled { found: false, dirty: false })
    }

    /// Takes a recall as a cache does that writes a changed line back before it answers: what it sends now.
    pub fn recalled_writing_back(&mut self) -> Option<ToHome> {
        if self.copy != Copy::Modified || !self.may_evict() {
            return self.recalled();
        }
        self.writing_back = true;
        Some(self.evict())
    }

    /// Hears that the home has a line that was written back; the answer to the recall that waits for that, if one does. It may be about an
    /// earlier victim than the recall's: then the home still waits for that.
    pub fn written(&mut self) -> Option<ToHome> {
        std::mem::take(&mut self.writing_back).then_some(ToHome::Recalled { found: false, dirty: false })
    }

    fn give_up(&mut self) -> ToHome {
        let had = std::mem::take(&mut self.copy);
        ToHome::Recalled { found: had != Copy::Invalid, dirty: had == Copy::Modified }
    }
}

/// A recall, as the directory sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recall {
    /// None.
    #[default]
    None,
    /// It has no answer.
    Sent,
    /// The cache had nothing: the victim is on its way.
    AwaitsVictim,
    /// It is done, and nobody gets the line before [`Entry::unlock`].
    Locked,
}

/// A line in the directory of its home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// What the cache may have: `Some(true)` to write.
    pub granted: Option<bool>,
    /// The recall under way.
    pub recall: Recall,
    /// A request that waits for a victim, or for a recall: whether it wants to write, and whether it came with a copy.
    pub waiting: Option<(bool, bool)>,
    /// A request that the device has not answered: `Some(true)` to write.
    pub open: Option<bool>,
}

/// What the device hears of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The cache gave the line up by itself.
    pub evicted: bool,
    /// A recall is done; the line is locked.
    pub recalled: bool,
    /// The cache asks for the line: `Some(true)` to write. To be answered with [`Entry::answer`].
    pub request: Option<bool>,
}

/// A message that no cache of this protocol sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected(pub ToHome, pub Entry);

impl std::fmt::Display for Unexpected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} came for a line that the directory has as {:?}", self.0, self.1)
    }
}

impl std::error::Error for Unexpected {}

impl Entry {
    /// Takes a message of the cache. The data of one that is dirty must be in the device's copy before the device hears of
    /// it; what the device hears of, it hears in the order of [`Heard`]'s fields.
    ///
    /// # Errors
    ///
    /// If the message cannot be; it changed nothing.
    pub fn handle(&mut self, message: ToHome) -> Result<Heard, Unexpected> {
        let unexpected = Unexpected(message, *self);
        let mut heard = Heard::default();
        match message {
            ToHome::Request { .. } if self.waiting.is_some() || self.open.is_some() => return Err(unexpected),
            ToHome::Request { write, has_copy } => {
                self.waiting = Some((write, has_copy));
                if self.recall == Recall::AwaitsVictim && self.gave_up_shared() {
                    heard.recalled = self.recall_is_done();
                }
            }
            ToHome::Victim { .. } if self.granted.is_none() => return Err(unexpected),
            ToHome::Victim { .. } => {
                (self.granted, heard.evicted) = (None, true);
                if self.recall == Recall::AwaitsVictim {
                    heard.recalled = self.recall_is_done();
                }
            }
            ToHome::Recalled { .. } if self.recall != Recall::Sent => return Err(unexpected),
            ToHome::Recalled { found: false, .. } if self.granted.is_some() && !self.gave_up_shared() => {
                self.recall = Recall::AwaitsVictim;
            }
            ToHome::Recalled { .. } => heard.recalled = self.recall_is_done(),
        }
        heard.request = self.next_request();
        Ok(heard)
    }

    /// Whether a cache that had nothing for a recall had a shared copy until then, which it wants to write.
    fn gave_up_shared(&self) -> bool {
        self.granted == Some(false) && (self.open.is_some() || matches!(self.waiting, Some((_, true))))
    }

    fn recall_is_done(&mut self) -> bool {
        (self.granted, self.recall) = (None, Recall::Locked);
        true
    }

    /// A request that need wait no longer.
    fn next_request(&mut self) -> Option<bool> {
        let (write, has_copy) = self.waiting?;
        // A shared copy may have been recalled since the request was sent; one that is not there was given up.
        if self.recall != Recall::None || (self.granted.is_some() && !has_copy) {
            return None;
        }
        self.waiting = None;
        self.open = Some(write);
        self.open
    }

    /// Answers the request that the device heard of, when no recall is under way and the line is not locked. One to write must be
    /// answered exclusive.
    pub fn answer(&mut self, exclusive: bool) -> ToCache {
        self.open = None;
        self.granted = Some(exclusive);
        ToCache::Grant { exclusive }
    }

    /// Fetches the line back. One recall at a time.
    pub fn recall(&mut self) -> ToCache {
        self.recall = Recall::Sent;
        ToCache::Recall
    }

    /// Lets a recalled line be asked for again; gives the request that waited for it, which the device now hears of.
    pub fn unlock(&mut self) -> Option<bool> {
        self.recall = Recall::None;
        self.next_request()
    }
}
