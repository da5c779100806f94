//! The memory of a frontend: which of its addresses lie where.

use conic_native::{Held, Mapping};

use super::message::Place;
use super::ring::{Fault, LONG_HEADER};
use crate::peer::map_region;

/// A region that is mapped here.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) place: Place,
    /// How often it was brought: QEMU up to 7.2 brings each region for each pair of rings, and takes it away as often.
    pub(super) times: u32,
    memory: Mapping,
    /// Where in the mapping the region begins.
    begin: usize,
    /// For a process that goes on with the session.
    pub(super) descriptor: Held,
}

/// Bytes that lie together in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Which region.
    pub(super) region: usize,
    /// Where in its mapping.
    pub(super) at: usize,
}

/// All regions of a frontend. What is asked of them is what the frontend says, and is checked here.
#[derive(Debug, Default)]
pub struct Regions(pub(super) Vec<Region>);

impl Regions {
    /// Maps a region, beside those that there are.
    pub(super) fn add(
        &mut self,
        place: Place,
        descriptor: Held,
        unsealed: bool,
        most_bytes: u64,
    ) -> Result<(), &'static str> {
        if let Some(same) = self.0.iter_mut().find(|region| region.place == place) {
            same.times = same.times.saturating_add(1);
            return Ok(());
        }
        let overlaps = |own: u64, other: u64, bytes: u64| own < other + bytes && other < own + place.bytes;
        let bytes: u64 = self.0.iter().map(|region| region.place.bytes).sum();
        if bytes.checked_add(place.bytes).is_none_or(|bytes| bytes > most_bytes) {
            return Err("the frontend brings more memory than this port takes");
        }
        for Region { place: other, .. } in &self.0 {
            if overlaps(place.guest, other.guest, other.bytes) || overlaps(place.user, other.user, other.bytes) {
                return Err("regions of memory lie over each other");
            }
        }
        let (memory, begin) = map_region(place.offset, place.bytes, &descriptor, unsealed)?;
        self.0.push(Region { place, times: 1, memory, begin, descriptor });
        Ok(())
    }

    /// Where a region is that is taken away as often as it was brought, wherever its descriptor began; none where it is brought more often.
    ///
    /// # Errors
    /// There is none at this place.
    pub(super) fn take_away(&mut self, place: &Place) -> Result<Option<usize>, &'static str> {
        let key = |place: &Place| (place.guest, place.user, place.bytes);
        let at = self.0.iter().position(|region| key(&region.place) == key(place));
        let at = at.ok_or("there is no such region of memory")?;
        self.0[at].times -= 1;
        Ok((self.0[at].times == 0).then_some(at))
    }

    /// The mapping of a region.
    #[inline(always)]
    pub(super) fn memory(&self, region: usize) -> &Mapping {
        &self.0[region].memory
    }

    /// Where so many bytes lie that the frontend has at an address of its own, if they lie together.
    pub(super) fn of_user(&self, address: u64, bytes: usize) -> Option<Spot> {
        self.0.iter().enumerate().find_map(|(region, Region { place, begin, .. })| {
            let inside = address.checked_sub(place.user)?;
            let end = inside.checked_add(bytes as u64)?;
            (end <= place.bytes).then_some(Spot { region, at: begin + inside as usize })
        })
    }

    /// Where the guest has the byte that its frontend has at an address of its own.
    pub(super) fn guest_of_user(&self, address: u64) -> Option<u64> {
        let Spot { region, at } = self.of_user(address, 1)?;
        let Region { place, begin, .. } = &self.0[region];
        Some(place.guest + (at - begin) as u64)
    }

    /// Where the byte lies that descriptors say is at this address, and how many of so many lie behind it in the same region.
    #[inline(always)]
    pub(super) fn of_guest(&self, address: u64, bytes: usize) -> Result<(Spot, usize), Fault> {
        for (region, Region { place, begin, .. }) in self.0.iter().enumerate() {
            let inside = address.wrapping_sub(place.guest);
            if inside < place.bytes {
                let together = bytes.min((place.bytes - inside).try_into().unwrap_or(usize::MAX));
                return Ok((Spot { region, at: begin + inside as usize }, together));
            }
        }
        Err(Fault::Bounds)
    }

    /// Asks for the line at a guest's address: a hint, and nothing where there is no such address.
    #[inline(always)]
    pub(super) fn prefetch(&self, address: u64) {
        if let Ok((spot, _)) = self.of_guest(address, 1) {
            self.memory(spot.region).prefetch(spot.at);
        }
    }

    /// Copies bytes out of the guest's memory.
    #[inline(always)]
    pub(super) fn read(&self, mut address: u64, mut into: &mut [u8]) -> Result<(), Fault> {
        while !into.is_empty() {
            let (spot, together) = self.of_guest(address, into.len())?;
            let (now, later) = into.split_at_mut(together);
            self.memory(spot.region).read_bytes(spot.at, now);
            (address, into) = (address.wrapping_add(together as u64), later);
        }
        Ok(())
    }

    /// Copies a packet's header of so many bytes out of the guest's memory.
    #[inline(always)]
    pub(super) fn read_header(&self, address: u64, bytes: usize, into: &mut [u8; LONG_HEADER]) -> Result<(), Fault> {
        let (spot, together) = self.of_guest(address, bytes)?;
        if together < bytes {
            return self.read(address, &mut into[..bytes]);
        }
        load_header(self.memory(spot.region), spot.at, bytes, into);
        Ok(())
    }

    /// Copies a packet's header of so many bytes into the guest's memory.
    #[inline(always)]
    pub(super) fn write_header(&self, address: u64, bytes: usize, from: &[u8; LONG_HEADER]) -> Result<(), Fault> {
        let (spot, together) = self.of_guest(address, bytes)?;
        if together < bytes {
            return self.write(address, &from[..bytes]);
        }
        store_header(self.memory(spot.region), spot.at, bytes, from);
        Ok(())
    }

    /// Copies bytes into the guest's memory.
    #[inline(always)]
    pub(super) fn write(&self, mut address: u64, mut from: &[u8]) -> Result<(), Fault> {
        while !from.is_empty() {
            let (spot, together) = self.of_guest(address, from.len())?;
            let (now, later) = from.split_at(together);
            self.memory(spot.region).write_bytes(spot.at, now);
            (address, from) = (address.wrapping_add(together as u64), later);
        }
        Ok(())
    }
}

/// Reads a header of so many bytes, in the words in which it is looked at here: a load of more than was stored at once waits until all of it
/// has reached the cache.
#[inline(always)]
pub(super) fn load_header(memory: &Mapping, at: usize, bytes: usize, into: &mut [u8; LONG_HEADER]) {
    let first = memory.read_u64(at);
    let second = if bytes == LONG_HEADER { memory.read_u32(at + 8) } else { memory.read_u16(at + 8).into() };
    into[..8].copy_from_slice(&first.to_ne_bytes());
    into[8..].copy_from_slice(&second.to_ne_bytes());
}

/// Writes a header of so many bytes, in the words in which it was made.
#[inline(always)]
pub(super) fn store_header(memory: &Mapping, at: usize, bytes: usize, from: &[u8; LONG_HEADER]) {
    let [first @ .., a, b, c, d] = *from;
    memory.write_u64(at, u64::from_ne_bytes(first));
    let second = u32::from_ne_bytes([a, b, c, d]);
    if bytes == LONG_HEADER { memory.write_u32(at + 8, second) } else { memory.write_u16(at + 8, second as u16) }
}

/// Sets a header's count of buffers, by the word that it is stored in.
#[inline(always)]
pub(super) fn set_merged(header: &mut [u8; LONG_HEADER], buffers: u16) {
    let [.., a, b, _, _] = *header;
    let [c, d] = buffers.to_le_bytes();
    header[8..].copy_from_slice(&[a, b, c, d]);
}
