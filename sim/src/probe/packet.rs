//! One packet's part of a recording.

use super::{Cause, OwnershipRecord, PlaceName, Recording};
use conic_fabric::Time;
use std::collections::{BTreeMap, BTreeSet};

impl Recording {
    /// What accesses to `lines` did that began from `from` on and before `until`: the accesses themselves, every message
    /// that they caused, directly or by another message, whatever line it is about and however late it is, and who owned
    /// the lines meanwhile.
    ///
    /// An access that waited for a message which another access had sent takes that one along; one that waited to leave until a
    /// message came that is not of the packet, such as a store behind those of an earlier one, has no cause here. Of each cache that held a
    /// line when the first of it happened, the change that gave it the line is kept, with its own earlier time. Causes are
    /// renumbered; places, segments and queues keep their numbers.
    pub fn packet(&self, lines: &[u64], from: Time, until: Time) -> Recording {
        let lines: BTreeSet<u64> = lines.iter().copied().collect();
        let within = |at: Time| from <= at && at < until;
        let spans =
            self.spans.iter().filter(|span| within(span.begins) && span.line.is_some_and(|line| lines.contains(&line)));
        let spans: Vec<_> = spans.copied().collect();
        let firsts: BTreeSet<usize> =
            spans.iter().filter_map(|span| span.first).map(|first| first.0 as usize).collect();
        // Where each selected message stands in the selection.
        let mut chosen: BTreeMap<usize, u32> = BTreeMap::new();
        let mut messages = Vec::new();
        for (number, message) in self.messages.iter().enumerate() {
            let cause = self.cause_of(number);
            let begins = cause.is_none() || message.asks;
            let own = begins && within(message.sent) && lines.contains(&message.line);
            let caused = cause.and_then(|cause| chosen.get(&cause).copied());
            if own || caused.is_some() || firsts.contains(&number) {
                chosen.insert(number, messages.len() as u32);
                let mut message = *message;
                message.cause = caused.map(Cause);
                messages.push(message);
            }
        }
        let spans = spans.into_iter().map(|mut span| {
            span.first = span.first.and_then(|first| chosen.get(&(first.0 as usize))).copied().map(Cause);
            span
        });
        let mut packet = Recording {
            places: self.places.clone(),
            segments: self.segments.clone(),
            messages,
            spans: spans.collect(),
            queues: self.queues.clone(),
            dropped: self.dropped,
            ..Recording::default()
        };
        let begin = packet.begin().unwrap_or(from);
        let end = packet.end();
        let shown: BTreeSet<u64> = packet.messages.iter().map(|message| message.line).chain(lines).collect();
        packet.ownership = self.ownership_within(&shown, begin, end);
        packet.levels = self.levels.iter().filter(|level| begin <= level.at && level.at <= end).copied().collect();
        packet
    }

    /// When the first access or message began.
    fn begin(&self) -> Option<Time> {
        let messages = self.messages.iter().map(|message| message.sent);
        messages.chain(self.spans.iter().map(|span| span.begins)).min()
    }

    /// Changes of the given lines from `begin` to `end`, after what each cache held at `begin`.
    fn ownership_within(&self, lines: &BTreeSet<u64>, begin: Time, end: Time) -> Vec<OwnershipRecord> {
        let of_lines = self.ownership.iter().filter(|change| lines.contains(&change.line));
        let mut held: BTreeMap<(u64, PlaceName), OwnershipRecord> = BTreeMap::new();
        let mut changes = Vec::new();
        for change in of_lines {
            if change.at < begin {
                held.insert((change.line, change.place), *change);
            } else if change.at <= end {
                changes.push(*change);
            }
        }
        let mut ownership: Vec<OwnershipRecord> = held.into_values().filter(|change| change.state != 'I').collect();
        ownership.sort_by_key(|change| change.at);
        ownership.extend(changes);
        ownership
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{loopback, nanoseconds};
    use super::*;

    #[test]
    fn a_packet_is_its_accesses_and_all_that_they_caused() {
        let all = loopback();
        let packet = all.packet(&[8], nanoseconds(0), nanoseconds(500));
        let names: Vec<&str> = packet.messages.iter().map(|message| message.name).collect();
        assert_eq!(names, ["Read", "Snoop", "Data", "WriteBack", "Done"]);
        // The write-back is about another line, and was sent long after the time span: it was caused.
        assert_eq!((packet.messages[3].line, packet.messages[3].sent), (3, nanoseconds(900)));
        let causes: Vec<Option<u32>> = packet.messages.iter().map(|m| m.cause.map(|cause| cause.0)).collect();
        assert_eq!(causes, [None, Some(0), Some(1), Some(2), Some(1)]);
        assert_eq!(packet.spans.len(), 1);
        assert_eq!(packet.spans[0].first, Some(Cause(0)));
        assert_eq!(packet.places, all.places);
    }

    #[test]
    fn the_span_of_time_is_of_the_accesses() {
        let all = loopback();
        let sent = all.messages[0].sent;
        let just_before = Time::from_picoseconds(sent.picoseconds() - 1_000);
        assert_eq!(all.packet(&[8], nanoseconds(0), just_before).messages, []);
        assert_eq!(all.packet(&[8], nanoseconds(700), nanoseconds(1_000)).messages, []);
        assert_eq!(all.packet(&[99], nanoseconds(0), nanoseconds(1_000)).messages, []);
    }

    #[test]
    fn owners_from_before_are_kept_and_other_lines_left_out() {
        let packet = loopback().packet(&[8], nanoseconds(0), nanoseconds(500));
        let owners: Vec<(u64, u16, char, u64)> =
            packet.ownership.iter().map(|o| (o.line, o.place.0, o.state, o.at.nanoseconds())).collect();
        assert_eq!(owners, [(8, 3, 'M', 20), (3, 0, 'M', 30), (8, 3, 'I', 180), (8, 0, 'M', 260), (3, 0, 'I', 900)]);
    }

    #[test]
    fn an_access_that_waited_for_anothers_message_takes_it_along() {
        let mut all = loopback();
        // The prefetch of line 8's neighbour was sent by nobody's access; a load of line 8 then waited for it.
        let mut waited = all.spans[0];
        waited.first = Some(Cause(2));
        all.spans.push(waited);
        let packet = all.packet(&[8], nanoseconds(0), nanoseconds(500));
        assert!(packet.messages.iter().any(|message| message.name == "Prefetch"));
    }

    #[test]
    fn a_request_that_waited_for_anothers_message_is_of_the_packet_and_an_answer_to_that_is_not() {
        let mut all = loopback();
        let (mut store, mut answer) = (all.messages[0], all.messages[1]);
        (store.name, store.line, store.cause) = ("ReadForOwnership", 21, Some(Cause(3)));
        (store.sent, store.arrives) = (nanoseconds(610), nanoseconds(640));
        (answer.name, answer.line, answer.cause, answer.sent) = ("FoundClean", 21, Some(Cause(3)), nanoseconds(620));
        all.messages.extend([store, answer]);
        let packet = all.packet(&[20, 21], nanoseconds(500), nanoseconds(700));
        assert!(packet.messages.iter().all(|message| message.cause.is_none()));
        let names: Vec<&str> = packet.messages.iter().map(|message| message.name).collect();
        assert_eq!(names, ["Read", "ReadForOwnership"]);
    }

    #[test]
    fn causes_that_point_nowhere_are_no_causes() {
        let mut all = loopback();
        all.messages[1].cause = Some(Cause(1));
        all.messages[3].cause = Some(Cause(4_000_000_000));
        all.spans[0].first = Some(Cause(4_000_000_000));
        let packet = all.packet(&[8], nanoseconds(0), nanoseconds(500));
        assert!(packet.messages.iter().all(|message| message.cause.is_none_or(|cause| cause.0 < 9)));
        assert_eq!(packet.spans[0].first, None);
    }
}
