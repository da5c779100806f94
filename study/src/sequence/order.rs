//! The order of the lifelines: those that talk to each other stand close.

use conic_sim::probe::{PlaceName, Recording};
use std::collections::BTreeMap;

/// Places beyond which no order is looked for: a diagram of more is for searching in, not for looking at.
const MOST: usize = 24;

/// The places of a recording that send, receive or do something, in an order in which the messages' ways are short, the
/// sender of the first message on the left.
///
/// Places start in the order in which they are first named; then any two are exchanged for as long as that shortens the ways.
pub(super) fn places(recording: &Recording) -> Vec<PlaceName> {
    let mut places: Vec<PlaceName> = Vec::new();
    let messages = recording.messages.iter().flat_map(|message| [message.from, message.to]);
    for place in messages.chain(recording.spans.iter().map(|span| span.place)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let mut ways: BTreeMap<(PlaceName, PlaceName), usize> = BTreeMap::new();
    for message in &recording.messages {
        *ways.entry((message.from, message.to)).or_default() += 1;
    }
    let mut shortest = length(&places, &ways);
    while places.len() <= MOST
        && let Some((better, order)) = exchange(&places, &ways, shortest)
    {
        (shortest, places) = (better, order);
    }
    let first = recording.messages.first().map(|message| message.from);
    if places.iter().rev().position(|place| Some(*place) == first)
        < places.iter().position(|place| Some(*place) == first)
    {
        places.reverse();
    }
    places
}

/// How many gaps between lifelines all messages cross together.
fn length(places: &[PlaceName], ways: &BTreeMap<(PlaceName, PlaceName), usize>) -> usize {
    let at: BTreeMap<PlaceName, usize> = places.iter().copied().zip(0..).collect();
    ways.iter().map(|((from, to), count)| at[from].abs_diff(at[to]) * count).sum()
}

/// The best order with two places exchanged, if it is shorter than `shortest`.
fn exchange(
    places: &[PlaceName],
    ways: &BTreeMap<(PlaceName, PlaceName), usize>,
    shortest: usize,
) -> Option<(usize, Vec<PlaceName>)> {
    let pairs = (0..places.len()).flat_map(|a| (0..a).map(move |b| (b, a)));
    let orders = pairs.map(|(a, b)| {
        let mut order = places.to_vec();
        order.swap(a, b);
        (length(&order, ways), order)
    });
    orders.min_by_key(|(length, _)| *length).filter(|(length, _)| *length < shortest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use conic_fabric::Time;
    use conic_sim::probe::MessageRecord;

    fn recording(hops: &[(u16, u16)]) -> Recording {
        let message = |&(from, to): &(u16, u16)| MessageRecord {
            name: "Read",
            line: 0,
            from: PlaceName(from),
            to: PlaceName(to),
            sent: Time::ZERO,
            arrives: Time::ZERO,
            cause: None,
            asks: false,
        };
        Recording { messages: hops.iter().map(message).collect(), ..Recording::default() }
    }

    fn order(hops: &[(u16, u16)]) -> Vec<u16> {
        places(&recording(hops)).into_iter().map(|place| place.0).collect()
    }

    #[test]
    fn a_chain_of_places_stands_in_its_order_whatever_their_numbers() {
        // Core 4 asks home 0, that asks home 1, that asks core 5, and the answer goes back.
        assert_eq!(order(&[(4, 0), (0, 1), (1, 5), (5, 1), (1, 0), (0, 4)]), [4, 0, 1, 5]);
        // A hop that is rare does not tear the others apart; memory 2 is home 0's.
        assert_eq!(order(&[(4, 0), (0, 2), (2, 0), (0, 1), (1, 5), (1, 5), (5, 1), (1, 0), (0, 4)])[0], 4);
    }

    #[test]
    fn the_first_sender_stands_on_the_left() {
        let there = [(7, 3), (3, 2), (2, 1), (1, 0)];
        assert_eq!(order(&there), [7, 3, 2, 1, 0]);
        let back: Vec<(u16, u16)> = there.iter().rev().map(|(from, to)| (*to, *from)).collect();
        assert_eq!(order(&back), [0, 1, 2, 3, 7]);
    }

    #[test]
    fn many_places_stand_as_they_are_named() {
        let hops: Vec<(u16, u16)> = (0..200u16).map(|n| (n, n * 7 % 200)).collect();
        let mut found = order(&hops);
        assert_eq!(found.len(), 200);
        assert_eq!(found[..4], [0, 1, 7, 2]);
        found.sort();
        assert_eq!(found, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn no_exchange_of_two_shortens_the_ways() {
        let hops: Vec<(u16, u16)> = (0..200u32).map(|n| ((n * n % 11) as u16, (n * 7 % 13) as u16)).collect();
        let recording = recording(&hops);
        let found = places(&recording);
        let mut ways = BTreeMap::new();
        hops.iter().for_each(|(from, to)| *ways.entry((PlaceName(*from), PlaceName(*to))).or_default() += 1);
        assert_eq!(exchange(&found, &ways, length(&found, &ways)), None);
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(sorted, (0..13).map(PlaceName).collect::<Vec<_>>());
    }

    #[test]
    fn places_that_only_do_something_are_there_and_idle_ones_are_not() {
        let mut recording = recording(&[(1, 2)]);
        recording.places = vec!["idle".to_string(); 9];
        recording.spans.push(conic_sim::probe::SpanRecord {
            name: "work",
            place: PlaceName(5),
            line: None,
            begins: Time::ZERO,
            ends: Time::ZERO,
            first: None,
        });
        assert_eq!(places(&recording), [PlaceName(1), PlaceName(2), PlaceName(5)]);
        assert_eq!(places(&Recording::default()), []);
    }
}
