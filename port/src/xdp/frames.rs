//! The frames of a socket's memory, and who has each: a frame is in exactly one place at any time.
//!
//! | from | to | when |
//! |---|---|---|
//! | free | receiving | put into the fill ring |
//! | receiving | free | taken out of the receive ring |
//! | free | sending | put into the transmit ring |
//! | sending | free | taken out of the completion ring |
//!
//! The kernel could only break this by a mistake of its own, or another program that shares the memory by its: whatever
//! else comes back is refused and counted.

use conic_native::Mapping;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Receiving,
    Sending,
}

/// Frames whose places are said in one word.
const PLACES: usize = 32;

/// The memory of a socket, in frames of one size.
pub(super) struct Frames {
    memory: Mapping,
    bytes: usize,
    places: Vec<Place>,
    free: Vec<u32>,
    receiving: usize,
    /// Frames that came back and should not have.
    faults: u64,
}

impl Frames {
    pub(super) fn new(memory: Mapping, bytes: usize) -> Frames {
        let count = memory.bytes() / bytes;
        Frames {
            memory,
            bytes,
            places: vec![Place::Free; count],
            free: (0..count as u32).rev().collect(),
            receiving: 0,
            faults: 0,
        }
    }

    /// Goes on with memory whose frames are where [`Frames::places`] said; none where that cannot be.
    pub(super) fn at(memory: Mapping, bytes: usize, places: &[u64]) -> Option<Frames> {
        let mut frames = Frames::new(memory, bytes);
        if places.len() != frames.places.len().div_ceil(PLACES) {
            return None;
        }
        for (frame, place) in frames.places.iter_mut().enumerate() {
            *place = match places[frame / PLACES] >> (2 * (frame % PLACES)) & 3 {
                0 => Place::Free,
                1 => Place::Receiving,
                2 => Place::Sending,
                _ => return None,
            };
        }
        frames.free.retain(|&frame| frames.places[frame as usize] == Place::Free);
        frames.receiving = frames.places.iter().filter(|&&place| place == Place::Receiving).count();
        Some(frames)
    }

    /// Where each frame is: two bits of a word, the lowest first.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        let word = |places: &[Place]| {
            places.iter().rev().fold(0, |word, place| {
                let bits = match place {
                    Place::Free => 0,
                    Place::Receiving => 1,
                    Place::Sending => 2,
                };
                word << 2 | bits
            })
        };
        self.places.chunks(PLACES).map(word)
    }

    pub(super) fn memory(&self) -> &Mapping {
        &self.memory
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn receiving(&self) -> usize {
        self.receiving
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    fn lend(&mut self, place: Place) -> Option<u64> {
        let frame = self.free.pop()?;
        self.places[frame as usize] = place;
        Some(u64::from(frame) * self.bytes as u64)
    }

    /// Lends a frame to the kernel to receive into; its address.
    pub(super) fn lend_to_receive(&mut self) -> Option<u64> {
        let address = self.lend(Place::Receiving)?;
        self.receiving += 1;
        Some(address)
    }

    /// Lends a frame to send; its address.
    pub(super) fn lend_to_send(&mut self) -> Option<u64> {
        self.lend(Place::Sending)
    }

    fn take_back(&mut self, address: u64, place: Place) -> bool {
        let frame = usize::try_from(address).unwrap_or(usize::MAX) / self.bytes;
        if self.places.get(frame) != Some(&place) {
            self.faults += 1;
            return false;
        }
        self.places[frame] = Place::Free;
        self.free.push(frame as u32);
        true
    }

    /// Takes back a frame that was sent, or that is not sent after all.
    pub(super) fn sent(&mut self, address: u64) -> bool {
        self.take_back(address, Place::Sending)
    }

    /// Takes back a frame into which `length` bytes were received at `address`. `false`, and counted, where that cannot be:
    /// then nothing at that address may be read.
    pub(super) fn received(&mut self, address: u64, length: u32) -> bool {
        let within = address % self.bytes as u64 + u64::from(length) <= self.bytes as u64;
        let back = self.take_back(address, Place::Receiving);
        self.receiving -= usize::from(back);
        self.faults += u64::from(back && !within);
        back && within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Frames {
        Frames::new(Mapping::anonymous(8 * 2048).expect("memory"), 2048)
    }

    #[test]
    fn every_frame_is_lent_once_and_comes_back_once() {
        let mut frames = frames();
        let lent: Vec<u64> = (0..4).map(|_| frames.lend_to_receive().expect("a frame")).collect();
        let sent: Vec<u64> = (0..4).map(|_| frames.lend_to_send().expect("a frame")).collect();
        assert_eq!((frames.lend_to_send(), frames.free(), frames.receiving()), (None, 0, 4));
        let all: std::collections::BTreeSet<u64> = lent.iter().chain(&sent).copied().collect();
        assert_eq!(all, (0..8).map(|frame| frame * 2048).collect());
        assert!(lent.iter().all(|&address| frames.received(address + 256, 60)));
        assert!(sent.iter().all(|&address| frames.sent(address)));
        assert_eq!((frames.free(), frames.receiving(), frames.faults()), (8, 0, 0));
    }

    #[test]
    fn whoever_goes_on_has_each_frame_where_it_was() {
        let (memory, descriptor) = Mapping::sealed(70 * 2048).expect("memory");
        let mut frames = Frames::new(memory, 2048);
        let lent: Vec<u64> = (0..40).map(|_| frames.lend_to_receive().expect("a frame")).collect();
        let sent: Vec<u64> = (0..20).map(|_| frames.lend_to_send().expect("a frame")).collect();
        let again = || Mapping::of(std::os::fd::AsFd::as_fd(&descriptor), 70 * 2048, 0).expect("the same memory");
        let places: Vec<u64> = frames.places().collect();
        let mut next = Frames::at(again(), 2048, &places).expect("they can be");
        assert_eq!((next.free(), next.receiving()), (10, 40));
        assert!(
            lent.iter().all(|&address| next.received(address, 60)) && sent.iter().all(|&address| next.sent(address))
        );
        assert_eq!((next.free(), next.receiving(), next.faults()), (70, 0, 0));
        for wrong in [&places[1..], &[3, 0, 0], &[0; 4]] {
            assert!(Frames::at(again(), 2048, wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn what_was_not_lent_so_is_refused_and_counted() {
        let mut frames = frames();
        let lent = frames.lend_to_receive().expect("a frame");
        let sent = frames.lend_to_send().expect("a frame");
        assert!(!frames.sent(lent) && !frames.received(sent, 60));
        assert!(!frames.sent(8 * 2048) && !frames.received(u64::MAX, 60) && !frames.sent(7 * 2048));
        assert!(frames.sent(sent) && !frames.sent(sent));
        // Too long for what is left of its frame: the frame is back, and is not read.
        assert!(!frames.received(lent + 2000, 49));
        assert_eq!((frames.faults(), frames.free(), frames.receiving()), (7, 8, 0));
    }
}
