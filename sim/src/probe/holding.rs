//! Who holds a line in what state, over time.

use super::{PlaceName, Recording};
use conic_fabric::Time;
use std::collections::BTreeMap;

/// A stretch of time over which the same caches held a line in the same states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// From when.
    pub from: Time,
    /// Until when: the next change, or the recording's end.
    pub until: Time,
    /// The caches that held it and each one's state, in the order of the places; empty if none did.
    pub holders: Vec<(PlaceName, char)>,
}

impl Holding {
    /// The state and its holders: `M@host core 0`, `S@host core 0+NIC core 1`, `F@host core 1, S@NIC core 0`, or `I`.
    pub fn label(&self, recording: &Recording) -> String {
        let mut by_state: BTreeMap<char, Vec<String>> = BTreeMap::new();
        for (place, state) in &self.holders {
            by_state.entry(*state).or_default().push(recording.place(*place));
        }
        if by_state.is_empty() {
            return "I".to_string();
        }
        let groups: Vec<String> = by_state.iter().map(|(state, who)| format!("{state}@{}", who.join("+"))).collect();
        groups.join(", ")
    }
}

/// Each line's holdings in the order of time, from the first change that was written down. Changes of one moment count as
/// one, so that a line that moves is never shown without a holder.
pub fn holdings(recording: &Recording) -> BTreeMap<u64, Vec<Holding>> {
    let mut changes: BTreeMap<u64, Vec<(Time, PlaceName, char)>> = BTreeMap::new();
    for change in &recording.ownership {
        changes.entry(change.line).or_default().push((change.at, change.place, change.state));
    }
    let end = recording.end();
    changes.into_iter().map(|(line, changes)| (line, of_line(changes, end))).collect()
}

fn of_line(mut changes: Vec<(Time, PlaceName, char)>, end: Time) -> Vec<Holding> {
    changes.sort_by_key(|change| change.0);
    let mut holders: BTreeMap<PlaceName, char> = BTreeMap::new();
    let mut holdings: Vec<Holding> = Vec::new();
    for same in changes.chunk_by(|a, b| a.0 == b.0) {
        let at = same[0].0;
        for (_, place, state) in same {
            match state {
                'I' => holders.remove(place),
                state => holders.insert(*place, *state),
            };
        }
        let now: Vec<(PlaceName, char)> = holders.iter().map(|(place, state)| (*place, *state)).collect();
        match holdings.last_mut() {
            Some(last) if last.holders == now => continue,
            Some(last) => last.until = at,
            None => {}
        }
        holdings.push(Holding { from: at, until: end, holders: now });
    }
    holdings
}

#[cfg(test)]
mod tests {
    use super::super::OwnershipRecord;
    use super::*;

    fn recording(changes: &[(u64, u16, char)]) -> Recording {
        let change = |&(at, place, state): &(u64, u16, char)| OwnershipRecord {
            line: 5,
            place: PlaceName(place),
            state,
            at: Time::from_nanoseconds(at),
        };
        let places = ["host core 0", "host core 1", "NIC core 0"].map(str::to_string).to_vec();
        Recording { places, ownership: changes.iter().map(change).collect(), ..Recording::default() }
    }

    fn labels(changes: &[(u64, u16, char)]) -> Vec<(u64, u64, String)> {
        let recording = recording(changes);
        let line =
            |holding: &Holding| (holding.from.nanoseconds(), holding.until.nanoseconds(), holding.label(&recording));
        holdings(&recording).get(&5).map(|of| of.iter().map(line).collect()).unwrap_or_default()
    }

    #[test]
    fn a_line_that_moves_is_never_without_a_holder() {
        let moved = labels(&[(10, 0, 'M'), (40, 0, 'I'), (40, 2, 'M'), (90, 2, 'I')]);
        let expected = [(10, 40, "M@host core 0"), (40, 90, "M@NIC core 0"), (90, 90, "I")];
        assert_eq!(moved, expected.map(|(from, until, label)| (from, until, label.to_string())));
    }

    #[test]
    fn sharers_stand_together_by_state() {
        let shared = labels(&[(1, 2, 'S'), (2, 0, 'S'), (3, 1, 'F')]);
        assert_eq!(shared[1].2, "S@host core 0+NIC core 0");
        assert_eq!(shared[2].2, "F@host core 1, S@host core 0+NIC core 0");
    }

    #[test]
    fn changes_that_change_nothing_do_not_split_and_late_ones_are_put_in_order() {
        assert_eq!(labels(&[(10, 0, 'E'), (20, 0, 'E'), (30, 1, 'I')]), [(10, 30, "E@host core 0".to_string())]);
        let sorted = labels(&[(30, 0, 'I'), (10, 0, 'E')]);
        assert_eq!(sorted, [(10, 30, "E@host core 0".to_string()), (30, 30, "I".to_string())]);
    }

    #[test]
    fn a_place_without_a_name_is_still_a_holder() {
        assert_eq!(labels(&[(1, 9, 'M')])[0].2, "M@place 9");
    }
}
