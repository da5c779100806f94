//! A line on a snooping bus: MOESI with invalidation on writes, after the MBus's level 2 (CNI, section 4.1).
//!
//! Three pure functions: what a cache needs of the bus for an access, what a transaction that is granted makes of the asker's copy,
//! and what the others do when they snoop it. A bus carries one transaction at a time and every cache snoops it, so a line has no
//! transient states on a bus. The bridge has one, for it buffers invalidations: of a line that
//! one side has been answered about and the other has not seen, nothing is granted but what the bridge itself brings.
//!
//! # What an access needs
//!
//! | copy | load | store | store of the whole block |
//! |---|---|---|---|
//! | Modified | hit | hit | hit |
//! | Exclusive | hit | hit, silently Modified | hit, silently Modified |
//! | Owned, Shared | hit | `Invalidate` | `Invalidate` |
//! | Invalid | `Read` | `ReadExclusive` | `Invalidate`: whoever writes all of a block needs none of it |
//!
//! # What snoops do
//!
//! | copy | `Read` | `ReadExclusive` | `Invalidate` |
//! |---|---|---|---|
//! | Modified, Owned | supplies, and is Owned | supplies, and is Invalid | Invalid |
//! | Exclusive, Shared | Shared; the home supplies | Invalid; the home supplies | Invalid |
//!
//! The asker is Shared after a `Read` that somebody else had a copy for, else Exclusive; Modified after the other two. Who gives up
//! a Modified or Owned copy writes it back to its home; others give theirs up silently.
//!
//! # The bridge
//!
//! A bridge answers an invalidation of who has a copy on one bus at once, and passes it on to the other later. Meanwhile the writer has
//! the line Modified, and a cache behind the bridge may still read what was there before: old, but never again once the invalidation
//! is through. Until then no other transaction about this line goes either way, or both sides of the bridge could own it. Who has no
//! copy waits for the other side, where somebody may be writing: what is written there after the bridge's answer would be lost. The
//! exploration plants both mistakes.

#[cfg(test)]
mod explore;

/// A cache's copy of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// None.
    #[default]
    Invalid,
    /// One of several; the home, or an owner, has the same.
    Shared,
    /// The only one, as the home has it.
    Exclusive,
    /// Newer than the home's; others may have shared copies of it.
    Owned,
    /// Newer than the home's, and the only one.
    Modified,
}

/// What a program does with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads some of it.
    Load,
    /// Writes some of it.
    Store,
    /// Writes all of it.
    StoreWhole,
}

/// What the bus carries for a block that is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transaction {
    /// The block, to read.
    Read,
    /// The block, to write.
    ReadExclusive,
    /// Every other copy is to go; the asker has the block, or writes all of it.
    Invalidate,
    /// A block that is given up goes to its home.
    WriteBack,
}

impl Copy {
    /// Whether the home's data is older.
    pub fn is_dirty(self) -> bool {
        matches!(self, Copy::Owned | Copy::Modified)
    }

    /// What an access needs of the bus; none where the copy suffices.
    pub fn needs(self, access: Access) -> Option<Transaction> {
        match (self, access) {
            (Copy::Modified | Copy::Exclusive, _) => None,
            (Copy::Owned | Copy::Shared, Access::Load) => None,
            (Copy::Owned | Copy::Shared, _) | (Copy::Invalid, Access::StoreWhole) => Some(Transaction::Invalidate),
            (Copy::Invalid, Access::Load) => Some(Transaction::Read),
            (Copy::Invalid, Access::Store) => Some(Transaction::ReadExclusive),
        }
    }

    /// The copy after an access that needed nothing of the bus.
    #[must_use]
    pub fn after_hit(self, access: Access) -> Copy {
        match access {
            Access::Load => self,
            Access::Store | Access::StoreWhole => Copy::Modified,
        }
    }

    /// The asker's copy once its transaction is granted; `shared`: another cache had a copy.
    pub fn granted(transaction: Transaction, shared: bool) -> Copy {
        match transaction {
            Transaction::Read if shared => Copy::Shared,
            Transaction::Read => Copy::Exclusive,
            Transaction::ReadExclusive | Transaction::Invalidate => Copy::Modified,
            Transaction::WriteBack => Copy::Invalid,
        }
    }

    /// The copy after another's transaction was snooped.
    #[must_use]
    pub fn snooped(self, transaction: Transaction) -> Copy {
        match (transaction, self) {
            (Transaction::WriteBack, copy) => copy,
            (_, Copy::Invalid) | (Transaction::ReadExclusive | Transaction::Invalidate, _) => Copy::Invalid,
            (Transaction::Read, Copy::Modified | Copy::Owned) => Copy::Owned,
            (Transaction::Read, Copy::Exclusive | Copy::Shared) => Copy::Shared,
        }
    }

    /// Whether this cache, and not the home, supplies the block to another's transaction.
    pub fn supplies(self, transaction: Transaction) -> bool {
        self.is_dirty() && matches!(transaction, Transaction::Read | Transaction::ReadExclusive)
    }

    /// Whether a bridge may answer a transaction of whoever has this copy before the other side has seen it.
    pub fn may_be_posted(self, transaction: Transaction) -> bool {
        match transaction {
            Transaction::Invalidate => self != Copy::Invalid,
            Transaction::WriteBack => true,
            Transaction::Read | Transaction::ReadExclusive => false,
        }
    }

    /// What giving the copy up needs of the bus.
    pub fn evicted(self) -> Option<Transaction> {
        self.is_dirty().then_some(Transaction::WriteBack)
    }
}
