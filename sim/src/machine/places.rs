//! Places in the code, numbered: what stands for a load's instruction pointer.
//!
//! A place is known by its file, line and column, so that a build does not matter; its number says which one it was to be met
//! in this machine, so that neither does where else in a file something is written. Its address only finds it again quickly.

use std::panic::Location;

/// A place in the code.
pub(crate) type Place = &'static Location<'static>;

/// One place by its address, of which there may be several; none where the address is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    address: usize,
    number: u32,
}

/// The places of a machine's programs.
#[derive(Debug)]
pub(crate) struct Places {
    /// By number.
    places: Vec<Place>,
    /// By address, open to the next; a power of two, and at most half full.
    known: Vec<Known>,
    addresses: usize,
}

impl Default for Places {
    fn default() -> Places {
        Places { places: Vec::new(), known: vec![Known::default(); 64], addresses: 0 }
    }
}

impl Places {
    /// The number of a place.
    #[inline]
    pub(crate) fn number(&mut self, place: Place) -> usize {
        let address = std::ptr::from_ref(place).addr();
        let mut at = self.home(address);
        loop {
            let Known { address: known, number } = self.known[at];
            if known == address {
                return number as usize;
            }
            if known == 0 {
                return self.meet(place);
            }
            at = (at + 1) % self.known.len();
        }
    }

    /// Where the search for an address begins.
    fn home(&self, address: usize) -> usize {
        (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (usize::BITS - self.known.len().ilog2())
    }

    /// Numbers a place whose address is new.
    #[cold]
    fn meet(&mut self, place: Place) -> usize {
        let number = self.places.iter().position(|&other| other == place).unwrap_or(self.places.len());
        if number == self.places.len() {
            self.places.push(place);
        }
        self.addresses += 1;
        if 2 * self.addresses > self.known.len() {
            let before = std::mem::take(&mut self.known);
            self.known = vec![Known::default(); 2 * before.len()];
            before.into_iter().filter(|known| known.address != 0).for_each(|known| self.keep(known));
        }
        self.keep(Known { address: std::ptr::from_ref(place).addr(), number: number as u32 });
        number
    }

    fn keep(&mut self, known: Known) {
        let mut at = self.home(known.address);
        while self.known[at].address != 0 {
            at = (at + 1) % self.known.len();
        }
        self.known[at] = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn here() -> Place {
        Location::caller()
    }

    /// More places than there is room for at first.
    fn many() -> Vec<Place> {
        let ten = || [here(), here(), here(), here(), here(), here(), here(), here(), here(), here()];
        let more = || [here(), here(), here(), here(), here(), here(), here(), here(), here(), here()];
        let others = || [here(), here(), here(), here(), here(), here(), here(), here(), here(), here()];
        let rest = || [here(), here(), here(), here(), here(), here(), here(), here(), here(), here()];
        [ten(), more(), others(), rest()].concat()
    }

    #[test]
    fn every_place_has_the_number_of_its_turn_and_keeps_it() {
        let (mut places, many) = (Places::default(), many());
        for _ in 0..2 {
            let numbers: Vec<usize> = many.iter().map(|&place| places.number(place)).collect();
            assert_eq!(numbers, (0..many.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_place_at_two_addresses_is_one() {
        let mut places = Places::default();
        let place = here();
        let again: Place = Box::leak(Box::new(*place));
        assert_eq!([here(), place, again, place].map(|place| places.number(place)), [0, 1, 1, 1]);
    }
}
