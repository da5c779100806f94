//! The device's side of a ring of either kind, whose writes are logged or are not.

use super::half::Side;
use super::log::{Logged, Pages};
use super::memory::Regions;
use super::packed::PackedRing;
use super::ring::{LONG_HEADER, Put, Ring, Taken};

/// The device's side of a ring.
// Its kind in a byte of its own: folded into a vector's capacity, as the compiler would have it, it took five more instructions at each look.
#[derive(Debug)]
#[repr(u8)]
pub enum DeviceRing {
    Split(Ring),
    Packed(PackedRing),
    /// Either, while its machine migrates. A kind of its own: what the others do for a packet has nothing in it that asks whether it is logged.
    Logged(Box<Logged>),
}

impl DeviceRing {
    /// The same, logged there, or not.
    pub(super) fn logged(self, pages: Option<Pages>) -> DeviceRing {
        let plain = self.into_plain();
        match pages {
            Some(pages) => DeviceRing::Logged(Box::new(Logged::new(plain, pages))),
            None => plain,
        }
    }

    /// The same, not logged.
    pub(super) fn into_plain(self) -> DeviceRing {
        match self {
            DeviceRing::Logged(logged) => logged.into_plain(),
            plain => plain,
        }
    }
}

impl Side for DeviceRing {
    #[inline]
    fn take(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        match self {
            DeviceRing::Split(ring) => ring.take(regions, header, frame),
            DeviceRing::Packed(ring) => ring.take(regions, header, frame),
            DeviceRing::Logged(ring) => ring.take(regions, header, frame),
        }
    }

    #[inline]
    fn put(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &[u8]) -> Put {
        match self {
            DeviceRing::Split(ring) => ring.put(regions, header, frame),
            DeviceRing::Packed(ring) => ring.put(regions, header, frame),
            DeviceRing::Logged(ring) => ring.put(regions, header, frame),
        }
    }

    #[inline]
    fn show(&mut self, regions: &Regions) -> bool {
        match self {
            DeviceRing::Split(ring) => ring.show(regions),
            DeviceRing::Packed(ring) => ring.show(regions),
            DeviceRing::Logged(ring) => ring.show(regions),
        }
    }

    #[inline]
    fn unshown(&self) -> u16 {
        match self {
            DeviceRing::Split(ring) => ring.unshown(),
            DeviceRing::Packed(ring) => ring.unshown(),
            DeviceRing::Logged(ring) => ring.unshown(),
        }
    }

    fn interrupt(&self, regions: &Regions, wanted: bool) {
        match self {
            DeviceRing::Split(ring) => ring.interrupt(regions, wanted),
            DeviceRing::Packed(ring) => ring.interrupt(regions, wanted),
            DeviceRing::Logged(ring) => ring.interrupt(regions, wanted),
        }
    }

    fn position(&self) -> u16 {
        match self {
            DeviceRing::Split(ring) => ring.position(),
            DeviceRing::Packed(ring) => ring.position(),
            DeviceRing::Logged(ring) => ring.position(),
        }
    }
}
