//! What a host's home agents and a CXL device do with one line, without time: two functions of state that the machine
//! ([`crate::cxl`]), the exhaustive exploration and the random tester run.
//!
//! A line's home is the host's memory or the device's. The host's home agent is where a line's transactions take turns, whatever
//! its home: it has one under way and the next begins when that is over. The caches of the host's cores count as one cache here;
//! which of the cores has a copy is the machine's business. Names in brackets are those of the CXL specification.
//!
//! # Requests of the device for lines of the host (CXL.cache)
//!
//! | hint, request | the device's copy afterwards | the host's afterwards | messages |
//! |---|---|---|---|
//! | NC-read (`RdCurr`) | none new | unchanged | request, data |
//! | CS-read (`RdShared`) | Shared | modified: written back, Shared; else Shared | request, grant with data |
//! | CO-read (`RdOwn`) | Exclusive; Modified if the host's was | none | request, grant with data |
//! | CO-write of a whole line (`RdOwnNoData`) | Modified | none | request, grant |
//! | NC-write (`WOWrInv`) | none | none; memory is written | request, pull, data, done (`ExtCmp`) |
//! | NC-P (`ItoMWr`) | none | Modified, in the last-level cache | request, pull, data |
//! | eviction, modified (`DirtyEvict`) | none | unchanged; memory is written | request, pull, data |
//! | eviction, clean (`CleanEvictNoData`) | none | unchanged | request, done |
//!
//! An NC-write is pulled as soon as its turn comes (`ExtFastGO_WritePull`), while the host's caches give the line up; that it is done
//! comes after both. A push is pulled when they have given it up.
//!
//! A copy that the device has stays valid until its write is pulled: a snoop that is ordered before the write must find it. If a
//! snoop takes a copy that is being evicted, the data that is pulled afterwards is marked bogus and dropped.
//!
//! # Requests of the device for its own lines (D2D)
//!
//! In host-bias the same requests, except that the host answers with *forward* (`MemRdFwd`, `MemWrFwd`) when the device may go on
//! with its own memory; a copy that the host modified is written back before (`MemWr`), and the host waits for that to be done,
//! because CXL.mem keeps no order between writes and forwards. What was written back is in the device's cache as well, Shared, where
//! the operation that waits finds it ("DCOH updates the cache line in DMC and invalidates the host copy", CXL-NIC section 2.1). A copy in the device's cache needs no request. In device-bias
//! nothing is asked at all, so a copy that the host has goes stale. A push is a CXL.cache write in either bias, and gives the host a
//! copy: in device-bias software must not push.
//!
//! # Requests of the host for lines of the device (CXL.mem)
//!
//! | the host's | message | the device's copy afterwards | the host's afterwards |
//! |---|---|---|---|
//! | load | read (`MemRd`, `SnpData`) | Shared if it had one; memory is written first | Shared if it had one, else Exclusive |
//! | store | read (`MemRd`, `SnpInv`) | none | Exclusive, then Modified |
//! | non-temporal store, eviction, flush | write (`MemWr`, `SnpInv`) | none | none |
//!
//! The device serves these without waiting for a request of its own: a device that waited would deadlock with a host that is
//! serving that request, as the exploration shows.

mod device;
#[cfg(test)]
mod explore;
mod host;
#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;

pub use device::{DeviceLine, Operation, Received, Started};
pub use host::{Ask, Effect, HostLine, Tracked};

pub use crate::bytes::WHOLE;

/// A line's contents: of which bytes may be replaced.
pub trait Contents: Clone {
    /// Takes those bytes from `from` whose bits are set.
    fn merge(&mut self, from: &Self, bytes: u64);
}

impl Contents for conic_fabric::Line {
    fn merge(&mut self, from: &Self, bytes: u64) {
        crate::bytes::merge(self, bytes, from);
    }
}

/// What a cache has of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// Nothing.
    #[default]
    Invalid,
    /// What memory has, perhaps as others.
    Shared,
    /// What memory has, alone.
    Exclusive,
    /// Newer than memory, alone.
    Modified,
}

impl Copy {
    /// Whether it may be written.
    pub fn is_alone(self) -> bool {
        self >= Copy::Exclusive
    }

    /// Its letter.
    pub fn letter(self) -> char {
        match self {
            Copy::Invalid => 'I',
            Copy::Shared => 'S',
            Copy::Exclusive => 'E',
            Copy::Modified => 'M',
        }
    }
}

/// Whose memory a line lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The host's.
    Host,
    /// The device's.
    Device,
}

/// Who must be asked before a device touches its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bias {
    /// The host.
    Host,
    /// Nobody: software sees to it that the host has no copy.
    Device,
}

/// What a device asks of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opcode {
    /// `RdCurr`
    ReadCurrent,
    /// `RdShared`
    ReadShared,
    /// `RdOwn`
    ReadOwn,
    /// `RdOwnNoData`
    ReadOwnNoData,
    /// `WOWrInvF`, or `WOWrInv` of parts of a line.
    WriteInvalidate {
        /// All of the line is written.
        whole: bool,
    },
    /// `ItoMWr`
    WritePush,
    /// `DirtyEvict`
    DirtyEvict,
    /// `CleanEvictNoData`
    CleanEvict,
    /// `CLFlush`: the host's caches give the line up.
    FlushHost,
}

/// How a snoop leaves the copy that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Snoop {
    /// Unchanged (`SnpCur`).
    Current,
    /// Shared at most (`SnpData`).
    Data,
    /// Gone (`SnpInv`).
    Invalidate,
}

/// A message to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToHost<V> {
    /// A request of the device.
    Request(Opcode),
    /// A snoop's answer [RspIHitI, RspSHitSE, RspSFwdM, ...].
    Snooped {
        /// The copy that the device still has.
        left: Copy,
        /// The line, if the device had modified it.
        data: Option<V>,
    },
    /// The data of a write or an eviction.
    Pulled {
        /// The line.
        data: V,
        /// Which bytes of it are written.
        bytes: u64,
        /// A snoop has taken the line already: this is to be dropped.
        bogus: bool,
    },
    /// A line of the device's memory (`MemData`).
    MemoryData {
        /// The line.
        data: V,
        /// The host may write it.
        exclusive: bool,
    },
    /// The device's memory is written (`Cmp`).
    MemoryDone,
}

/// A message to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToDevice<V> {
    /// Give up a copy of a line of the host.
    Snoop(Snoop),
    /// A copy (`GO-S`, `GO-E`, `GO-M`), with data unless it was not asked for.
    Grant {
        /// The copy.
        copy: Copy,
        /// The line.
        data: Option<V>,
    },
    /// What a line is now, without a copy.
    Current(V),
    /// Send the data of the write (`GO_WritePull`).
    Pull,
    /// The request is done (`ExtCmp`, `GO-I`).
    Finished,
    /// The host reads a line of the device's memory (`MemRd`).
    MemoryRead(Snoop),
    /// The host writes one (`MemWr`).
    MemoryWrite {
        /// The line.
        data: V,
        /// Which bytes of it are written.
        bytes: u64,
    },
    /// The device may go on with its own memory (`MemRdFwd`, `MemWrFwd`).
    MemoryForward,
}
