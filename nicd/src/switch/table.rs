//! Where addresses were seen last: the bridge's memory.

use conic_fabric::Time;

/// Entries that share one index of the table.
const WAYS: usize = 4;

/// Of those, the ones that may be fixed: one is always left for what is learned, so that no choice of addresses makes a network
/// forget where the others are, and so send their frames to everybody.
const FIXED_WAYS: usize = WAYS - 1;

/// Where a frame comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A client, by its slot in the switch.
    Client(u32),
    /// A port, by its number in the switch.
    Port(u32),
    /// Another thread of the network, by its trunk's number in the switch.
    Trunk(u32),
    /// Somebody whom another thread serves, by the number that the switch has for it.
    Away(u32),
}

impl Place {
    /// Whether this switch itself serves it.
    #[inline(always)]
    pub(super) fn is_here(self) -> bool {
        matches!(self, Place::Client(_) | Place::Port(_))
    }
}

/// A MAC address in a VLAN (0 where frames have no tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Station {
    /// Its address, as 48 bits.
    pub mac: u64,
    /// Its VLAN.
    pub vlan: u16,
}

impl Station {
    /// From the address's bytes.
    pub fn new(mac: [u8; 6], vlan: u16) -> Station {
        let [a, b, c, d, e, f] = mac;
        Station { mac: u64::from_be_bytes([0, 0, a, b, c, d, e, f]), vlan }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    station: Station,
    place: Place,
    seen: Time,
    /// It is there until the place is gone, and is no other's.
    fixed: bool,
}

/// What was learned, in memory that does not grow: where it is full the entry that was seen longest ago makes room. Who is fixed is
/// always found, whatever addresses others have.
#[derive(Debug)]
pub struct Table {
    sets: Vec<[Option<Entry>; WAYS]>,
    /// Fixed stations whose set has no room, in order: as many as there are clients at most, and none where nobody chose addresses
    /// for it, or they are few.
    crowded: Vec<(Station, Place)>,
    age: Time,
    /// How often an address was seen at another place than before.
    moved: u64,
    /// Other switches are to be told where stations are.
    tells: bool,
    /// Stations that were seen here for the first time, or no longer elsewhere, since this was asked last, and where.
    news: Vec<(Station, Place)>,
    /// Counts what it forgot, and what is new in it.
    version: u64,
    /// Somebody has a copy, and is to be told who moved.
    notes_moves: bool,
    /// Stations that were seen at another place than before, or made room for others, since this was asked last.
    moves: Vec<Station>,
}

impl Table {
    /// A table of at least `entries` entries, which are forgotten when they were not seen for `age`.
    pub fn new(entries: usize, age: Time) -> Table {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        Table {
            sets: vec![[None; WAYS]; sets],
            crowded: Vec::new(),
            age,
            moved: 0,
            tells: false,
            news: Vec::new(),
            version: 0,
            notes_moves: false,
            moves: Vec::new(),
        }
    }

    /// From here on notes stations that move, or make room.
    pub(super) fn note_moves(&mut self) {
        self.notes_moves = true;
    }

    /// Notes them no more: nobody is left who would take what is noted.
    pub(super) fn note_no_moves(&mut self) {
        (self.notes_moves, self.moves) = (false, Vec::new());
    }

    /// Whether there are such.
    #[inline(always)]
    pub(super) fn has_moves(&self) -> bool {
        !self.moves.is_empty()
    }

    /// Those since this was asked last.
    pub(super) fn take_moves(&mut self) -> Vec<Station> {
        std::mem::take(&mut self.moves)
    }

    /// The same number as before while nothing is new in it, or was forgotten but for its age.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// From here on notes stations that are seen here and were not before.
    pub(super) fn tell(&mut self) {
        self.tells = true;
    }

    /// Stations that were noted since this was asked last.
    pub(super) fn take_news(&mut self) -> Vec<(Station, Place)> {
        std::mem::take(&mut self.news)
    }

    fn set_of(&self, station: Station) -> usize {
        // The multiplier is 2^64 over the golden ratio, made odd; the high bits are the mixed ones.
        let mixed = (station.mac ^ u64::from(station.vlan) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.sets.len() - 1)
    }

    /// Where a station is, if that is known and not too long ago.
    pub fn find(&self, now: Time, station: Station) -> Option<Place> {
        let mut entries = self.sets[self.set_of(station)].iter().flatten();
        let Some(found) = entries.find(|entry| entry.station == station) else { return self.find_crowded(station) };
        (found.fixed || now.since(found.seen) < self.age).then_some(found.place)
    }

    /// Where a station is that is fixed and had no room in its set.
    #[inline(always)]
    fn find_crowded(&self, station: Station) -> Option<Place> {
        if self.crowded.is_empty() {
            return None;
        }
        self.crowded_at(station).ok().map(|index| self.crowded[index].1)
    }

    #[cold]
    #[inline(never)]
    fn crowded_at(&self, station: Station) -> Result<usize, usize> {
        self.crowded.binary_search_by_key(&station, |(station, _)| *station)
    }

    /// Enters that a station was seen at a place. One that is fixed elsewhere stays there.
    #[inline(always)]
    pub fn learn(&mut self, now: Time, station: Station, place: Place) {
        let set = self.set_of(station);
        // Most frames come from where their sender was before.
        if let Some(known) = self.sets[set].iter_mut().flatten().find(|entry| entry.station == station)
            && known.place == place
        {
            if !known.fixed {
                known.seen = now;
            }
            return;
        }
        self.enter(Entry { station, place, seen: now, fixed: false }, true);
    }

    /// The same where another switch says so, who tells all others itself.
    pub(super) fn hear_of(&mut self, now: Time, station: Station, place: Place) {
        self.enter(Entry { station, place, seen: now, fixed: false }, false);
    }

    /// Enters that a station is at a place for as long as that exists; false if another place has it fixed.
    pub fn fix(&mut self, now: Time, station: Station, place: Place) -> bool {
        // Others are told of it otherwise.
        self.enter(Entry { station, place, seen: now, fixed: true }, false)
    }

    /// Enters one, and notes it where that is news.
    #[inline(never)]
    fn enter(&mut self, new: Entry, is_news: bool) -> bool {
        let set = self.set_of(new.station);
        let set = &mut self.sets[set];
        if let Some(known) = set.iter_mut().flatten().find(|entry| entry.station == new.station) {
            if known.fixed {
                return known.place == new.place;
            }
            if known.place != new.place {
                self.moved += 1;
                self.version += 1;
                if self.notes_moves {
                    self.moves.push(new.station);
                }
                note(self.tells && is_news, &mut self.news, &new);
            }
            if !new.fixed {
                *known = new;
                return true;
            }
        } else if let Some(place) = self.find_crowded(new.station) {
            return place == new.place;
        } else {
            note(self.tells && is_news, &mut self.news, &new);
        }
        self.put(new);
        true
    }

    /// Puts in one that is new, or fixed and was not.
    fn put(&mut self, new: Entry) {
        self.version += 1;
        let set = self.set_of(new.station);
        let set = &mut self.sets[set];
        if new.fixed {
            // It may have been learned elsewhere.
            if let Some(place) = set.iter_mut().find(|place| place.is_some_and(|entry| entry.station == new.station)) {
                *place = None;
            }
            if set.iter().flatten().filter(|entry| entry.fixed).count() >= FIXED_WAYS {
                if let Err(index) = self.crowded_at(new.station) {
                    self.crowded.insert(index, (new.station, new.place));
                }
                return;
            }
        }
        // An empty place first, then the one that was seen longest ago.
        let free = set.iter_mut().filter(|entry| entry.is_none_or(|entry| !entry.fixed));
        let oldest = free.min_by_key(|entry| entry.map(|entry| entry.seen));
        let oldest = oldest.expect("not all of a set is fixed").replace(new);
        if let Some(entry) = oldest.filter(|_| self.notes_moves) {
            self.moves.push(entry.station);
        }
    }

    /// Takes a station back that is fixed at a place. Others may be seen there still.
    pub(super) fn release(&mut self, station: Station, place: Place) {
        self.version += 1;
        let set = self.set_of(station);
        for entry in &mut self.sets[set] {
            if entry.is_some_and(|entry| entry.fixed && entry.station == station && entry.place == place) {
                *entry = None;
            }
        }
        self.crowded.retain(|known| *known != (station, place));
    }

    /// Forgets all that is at a place.
    pub fn forget(&mut self, place: Place) {
        self.version += 1;
        for entry in self.sets.iter_mut().flatten() {
            if entry.is_some_and(|entry| entry.place == place) {
                *entry = None;
            }
        }
        self.crowded.retain(|(_, at)| *at != place);
    }

    /// Forgets all clients: others have their places from here on.
    pub(super) fn forget_clients(&mut self) {
        self.version += 1;
        for entry in self.sets.iter_mut().flatten() {
            if entry.is_some_and(|entry| matches!(entry.place, Place::Client(_))) {
                *entry = None;
            }
        }
        self.crowded.retain(|(_, at)| !matches!(at, Place::Client(_)));
    }

    /// Every station with its place, those not seen for too long left out.
    pub fn stations(&self, now: Time) -> Vec<(Station, Place)> {
        let entries = self.sets.iter().flatten().flatten();
        let young = entries.filter(|entry| entry.fixed || now.since(entry.seen) < self.age);
        let mut all: Vec<_> = young.map(|entry| (entry.station, entry.place)).collect();
        all.extend(&self.crowded);
        all.sort_unstable();
        all
    }

    /// How often an address moved.
    pub fn moved(&self) -> u64 {
        self.moved
    }
}

/// Notes what is new here. Not inlined: it is in nobody's way who is known.
#[cold]
#[inline(never)]
fn note(tells: bool, news: &mut Vec<(Station, Place)>, new: &Entry) {
    if tells && new.place.is_here() {
        news.push((new.station, new.place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(number: u8) -> Station {
        Station::new([2, 0, 0, 0, 0, number], 0)
    }

    #[test]
    fn an_entry_lives_until_its_age_and_no_longer() {
        let age = Time::from_nanoseconds(1000);
        let mut table = Table::new(16, age);
        table.learn(Time::ZERO, station(1), Place::Port(3));
        let before = Time::from_picoseconds(age.picoseconds() - 1);
        assert_eq!(table.find(before, station(1)), Some(Place::Port(3)));
        assert_eq!(table.find(age, station(1)), None);
        table.learn(age, station(1), Place::Client(0));
        assert_eq!(table.find(age, station(1)), Some(Place::Client(0)));
        assert_eq!(table.moved(), 1);
        assert_eq!(table.find(age, Station { vlan: 1, ..station(1) }), None);
    }

    #[test]
    fn an_entry_ages_past_64_bits_of_picoseconds() {
        let (age, late) = (Time::from_nanoseconds(1000), Time::from_picoseconds(u64::MAX));
        let mut table = Table::new(16, age);
        let seen = late - Time::from_picoseconds(1);
        table.learn(seen, station(1), Place::Port(3));
        assert_eq!(table.find(late + Time::from_nanoseconds(999), station(1)), Some(Place::Port(3)));
        assert_eq!(table.find(seen + age, station(1)), None);
    }

    #[test]
    fn a_fixed_station_is_no_others() {
        let mut table = Table::new(16, Time::from_nanoseconds(10));
        assert!(table.fix(Time::ZERO, station(1), Place::Client(1)));
        table.learn(Time::ZERO, station(1), Place::Client(2));
        assert!(!table.fix(Time::ZERO, station(1), Place::Client(2)));
        assert_eq!(table.find(Time::NEVER, station(1)), Some(Place::Client(1)));
        table.forget(Place::Client(1));
        assert_eq!(table.find(Time::ZERO, station(1)), None);
    }

    #[test]
    fn who_was_seen_longest_ago_makes_room_and_who_is_too_old_is_not_listed() {
        let at = |number: u8| Time::from_nanoseconds(u64::from(number));
        let mut table = Table::new(WAYS, at(100));
        for number in [2, 1, 4, 3, 5] {
            table.learn(at(number), station(number), Place::Port(0));
        }
        let known =
            |table: &Table, now| table.stations(now).iter().map(|(station, _)| station.mac as u8).collect::<Vec<_>>();
        assert_eq!(known(&table, at(5)), [2, 3, 4, 5], "1 was seen longest ago, and there is room for four");
        assert_eq!(known(&table, at(103)), [4, 5]);
    }

    #[test]
    fn who_moves_or_makes_room_is_noted_and_what_is_new_has_another_version() {
        let mut table = Table::new(WAYS, Time::from_nanoseconds(100));
        table.learn(Time::ZERO, station(1), Place::Port(0));
        table.learn(Time::ZERO, station(1), Place::Port(1));
        assert!(!table.has_moves(), "nobody has asked for it");
        table.note_moves();
        let mut version = table.version();
        let mut is_new = |table: &Table| std::mem::replace(&mut version, table.version()) != table.version();
        table.learn(Time::ZERO, station(1), Place::Port(1));
        assert!(!table.has_moves() && !is_new(&table));
        table.learn(Time::ZERO, station(1), Place::Port(0));
        assert_eq!((is_new(&table), table.take_moves()), (true, vec![station(1)]));
        for number in 2..=4 {
            table.learn(Time::from_nanoseconds(1), station(number), Place::Port(0));
            assert_eq!((is_new(&table), table.has_moves()), (true, false), "there was room for {number}");
        }
        table.learn(Time::from_nanoseconds(2), station(5), Place::Port(0));
        assert_eq!((is_new(&table), table.take_moves()), (true, vec![station(1)]));
        table.forget(Place::Port(0));
        assert!(is_new(&table));
    }

    #[test]
    fn who_is_fixed_is_found_and_others_are_learned_whatever_addresses_were_chosen() {
        // One set, in which all addresses meet.
        let mut table = Table::new(WAYS, Time::from_nanoseconds(10));
        // One of them was seen elsewhere before.
        table.learn(Time::ZERO, station(7), Place::Port(1));
        for number in (0..20).rev() {
            assert!(table.fix(Time::ZERO, station(number), Place::Client(number.into())));
        }
        let all = |table: &Table| table.stations(Time::ZERO).len();
        let at = |table: &Table, number: u8| table.find(Time::ZERO, station(number));
        for number in 0..20 {
            table.learn(Time::ZERO, station(number), Place::Port(0));
            assert!(!table.fix(Time::ZERO, station(number), Place::Client(99)), "another has it");
            assert_eq!(at(&table, number), Some(Place::Client(number.into())));
        }
        assert_eq!((all(&table), table.moved()), (20, 1), "the one that was seen elsewhere is there once");
        for number in 100..110 {
            table.learn(Time::ZERO, station(number), Place::Port(0));
            assert_eq!(at(&table, number), Some(Place::Port(0)));
        }
        table.release(station(3), Place::Client(3));
        table.release(station(19), Place::Client(18));
        table.forget(Place::Client(18));
        for (number, place) in [(3, None), (18, None), (19, Some(Place::Client(19))), (4, Some(Place::Client(4)))] {
            assert_eq!(at(&table, number), place, "{number}");
        }
        assert_eq!(all(&table), 19, "18 who are fixed, and the last who was learned");
    }

    #[test]
    fn a_flood_of_addresses_does_not_drive_out_what_is_fixed() {
        let mut table = Table::new(64, Time::from_nanoseconds(1_000_000));
        assert!(table.fix(Time::ZERO, station(1), Place::Client(1)));
        for number in 0..100_000u32 {
            let [a, b, c, d] = number.to_be_bytes();
            table.learn(Time::from_nanoseconds(1), Station::new([6, 0, a, b, c, d], 0), Place::Port(0));
        }
        assert_eq!(table.find(Time::ZERO, station(1)), Some(Place::Client(1)));
        assert!(table.stations(Time::ZERO).len() <= 64);
    }
}
