//! Which slices are joined by arrows, and the number of each arrow.
//!
//! Every number is used by one sender and one receiver, and only where both are written and the sender is not later: the
//! viewer drops an arrow that ends before it begins.

use super::super::Recording;
use super::plan::{Item, What};
use std::collections::BTreeMap;

/// What sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    /// The handling of another message.
    Message(usize),
    /// An access of a program.
    Span(usize),
}

/// The arrows of a trace.
pub(super) struct Flows {
    /// What sent each message.
    senders: Vec<Option<Sender>>,
    /// The messages that each sender sent.
    sent: BTreeMap<Sender, Vec<usize>>,
    /// Whether both ends of a message's way are written.
    hops: Vec<bool>,
}

impl Flows {
    pub fn new(recording: &Recording, items: &[Item]) -> Flows {
        let count = recording.messages.len();
        let (mut flights, mut handlings) = (vec![None; count], vec![None; count]);
        for item in items {
            match item.what {
                What::Flight(number) => flights[number] = Some(item.begin),
                What::Handling(number) => handlings[number] = Some(item.begin),
                _ => {}
            }
        }
        let in_order = |sender: Option<u64>, number: usize| {
            sender.is_some_and(|sender| flights[number].is_some_and(|flight| sender <= flight))
        };
        let mut senders = vec![None; count];
        for (number, sender) in senders.iter_mut().enumerate() {
            let cause = recording.cause_of(number).filter(|cause| in_order(handlings[*cause], number));
            *sender = cause.map(Sender::Message);
        }
        for item in items {
            let What::Span(span) = item.what else { continue };
            let first = recording.spans[span].first.map(|first| first.0 as usize);
            // An access that waited for what another one had asked for did not send it.
            let own = first.filter(|first| *first < count && recording.cause_of(*first).is_none());
            if let Some(first) = own.filter(|first| in_order(Some(item.begin), *first)) {
                senders[first].get_or_insert(Sender::Span(span));
            }
        }
        let mut sent: BTreeMap<Sender, Vec<usize>> = BTreeMap::new();
        for (number, sender) in senders.iter().enumerate() {
            sender.iter().for_each(|sender| sent.entry(*sender).or_default().push(number));
        }
        let hops = flights.iter().zip(&handlings).map(|(flight, handling)| flight.is_some() && handling.is_some());
        Flows { senders, sent, hops: hops.collect() }
    }

    /// The arrow from a message's setting out to its arrival.
    pub fn hop(&self, message: usize) -> Option<u64> {
        self.hops[message].then_some(2 * message as u64 + 2)
    }

    /// The arrow to a message's setting out from what sent it.
    pub fn to_flight(&self, message: usize) -> Option<u64> {
        self.senders[message].map(|_| sending(message))
    }

    /// The arrows from a message's handling to what it sent.
    pub fn of_handling(&self, message: usize) -> impl Iterator<Item = u64> {
        self.of(Sender::Message(message))
    }

    /// The arrows from an access to what it sent.
    pub fn of_span(&self, span: usize) -> impl Iterator<Item = u64> {
        self.of(Sender::Span(span))
    }

    fn of(&self, sender: Sender) -> impl Iterator<Item = u64> {
        self.sent.get(&sender).into_iter().flatten().map(|message| sending(*message))
    }
}

fn sending(message: usize) -> u64 {
    2 * message as u64 + 1
}
