//! The device's side of a ring of either kind.

use super::half::Side;
use super::memory::Regions;
use super::packed::PackedRing;
use super::ring::{LONG_HEADER, Put, Ring, Taken};

/// The device's side of a ring.
#[derive(Debug)]
pub enum DeviceRing {
    Split(Ring),
    Packed(PackedRing),
}

impl Side for DeviceRing {
    #[inline]
    fn take(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        match self {
            DeviceRing::Split(ring) => ring.take(regions, header, frame),
            DeviceRing::Packed(ring) => ring.take(regions, header, frame),
        }
    }

    #[inline]
    fn put(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &[u8]) -> Put {
        match self {
            DeviceRing::Split(ring) => ring.put(regions, header, frame),
            DeviceRing::Packed(ring) => ring.put(regions, header, frame),
        }
    }

    #[inline]
    fn show(&mut self, regions: &Regions) -> bool {
        match self {
            DeviceRing::Split(ring) => ring.show(regions),
            DeviceRing::Packed(ring) => ring.show(regions),
        }
    }

    #[inline]
    fn unshown(&self) -> u16 {
        match self {
            DeviceRing::Split(ring) => ring.unshown(),
            DeviceRing::Packed(ring) => ring.unshown(),
        }
    }

    fn interrupt(&self, regions: &Regions, wanted: bool) {
        match self {
            DeviceRing::Split(ring) => ring.interrupt(regions, wanted),
            DeviceRing::Packed(ring) => ring.interrupt(regions, wanted),
        }
    }

    fn position(&self) -> u16 {
        match self {
            DeviceRing::Split(ring) => ring.position(),
            DeviceRing::Packed(ring) => ring.position(),
        }
    }
}
