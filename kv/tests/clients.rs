//! Clients before stores that do wrong: what they notice.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use conic_fabric::{Line, Time};
use conic_kv::message::{Answer, HEADER_BYTES, Operation, Request, Status, checksum};
use conic_kv::{Catalogue, Clients, Demand, Sizes};
use conic_load::FarEnd;

/// What a store does with a set, which it says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// What it should.
    Keeps,
    /// Nothing.
    Forgets,
    /// What it should with the first one for a key alone.
    KeepsTheFirst,
    /// What it should, but it gives the value before the last one.
    IsOneBehind,
    /// The same, but it gives another key's value.
    Confuses,
    /// The same, but it gives what a set would have put there whose turn has not come.
    Foresees,
}

/// A store's values, by key, the last one first.
#[derive(Debug)]
struct Double {
    does: Does,
    values: BTreeMap<u64, Vec<Vec<u8>>>,
    bytes: usize,
}

impl Double {
    fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        let header = Line::from_bytes(frame.first_chunk().expect("a header"));
        let request = Request::parse(&header, frame.len() as u16).expect("a request");
        let confused = self.does == Does::Confuses && request.operation == Operation::Get;
        let of = if confused { request.key ^ 1 } else { request.key };
        let (values, bytes) = (self.values.entry(of).or_default(), self.bytes);
        let mut value = Vec::new();
        match request.operation {
            Operation::Set => {
                let put = frame[usize::from(HEADER_BYTES)..].to_vec();
                match self.does {
                    Does::Forgets => {}
                    Does::KeepsTheFirst if !values.is_empty() => {}
                    _ => values.insert(0, put),
                }
            }
            Operation::Get => {
                let place = usize::from(self.does == Does::IsOneBehind);
                value = values.get(place).cloned().unwrap_or_else(|| vec![0; bytes]);
                if self.does == Does::Foresees && value.iter().any(|byte| *byte != 0) {
                    // Numbers are in the lowest bits.
                    value.chunks_mut(8).for_each(|word| word[2] ^= 1);
                }
            }
        }
        let value_bytes = value.len() as u16;
        let Request { key, number, .. } = request;
        let answer = Answer { status: Status::Done, key, value_bytes, number, checksum: checksum(&value) };
        [&answer.header(&header).to_bytes()[..], &value].concat()
    }
}

/// Has clients with these seeds ask one store by turns, and gives how many answers of so many each found wrong.
fn corrupt(does: Does, seeds: &[u64], requests: u64) -> Vec<u64> {
    let demand = Demand { keys: 20, sizes: Sizes::Bytes(45), zipf: 0.5, sets: 300, seed: 3 };
    let catalogue = Arc::new(Catalogue::new(demand));
    let mut double = Double { does, values: BTreeMap::new(), bytes: 45 };
    let mut clients: Vec<_> = seeds.iter().map(|&seed| Clients::new(Arc::clone(&catalogue), 50, seed)).collect();
    let mut under_way = vec![VecDeque::new(); seeds.len()];
    while clients.iter().any(|one| one.account().received() < requests) {
        for (one, waiting) in clients.iter_mut().zip(&mut under_way) {
            let made = one.packets(Time::ZERO).to_vec();
            one.delivered(made.len());
            waiting.extend(made);
            // A part of what is under way, so that there is always more behind it.
            for _ in 0..7 {
                if let Some(frame) = waiting.pop_front() {
                    one.came_back(&double.answer(&frame), Time::ZERO);
                }
            }
        }
    }
    assert!(clients.iter().all(|one| one.account().lost() == 0));
    clients.iter().map(|one| one.account().corrupt()).collect()
}

#[test]
fn a_store_that_does_as_it_says_is_believed() {
    assert_eq!(corrupt(Does::Keeps, &[9], 100_000), [0]);
    // Values of others are none of one's own, whatever their numbers.
    assert_eq!(corrupt(Does::Keeps, &[0, 1, 2], 100_000), [0; 3]);
}

#[test]
fn a_store_that_does_not_do_what_it_says_is_found_out() {
    for does in [Does::Forgets, Does::KeepsTheFirst, Does::IsOneBehind, Does::Confuses, Does::Foresees] {
        let wrong = corrupt(does, &[9], 10_000)[0];
        assert!(wrong > 5000, "{does:?}: {wrong} of 7000 gets");
        // With others about, a value may be theirs: what was one's own, or was never put, is still seen.
        let wrong = corrupt(does, &[9, 10], 10_000);
        assert!(wrong.iter().all(|wrong| *wrong > 1000), "{does:?}: {wrong:?} of 7000 gets each");
    }
}

/// A client that comes to a store which others, or itself, have used before.
#[test]
fn what_was_put_before_is_no_fault() {
    let demand = Demand { keys: 3, sizes: Sizes::Bytes(45), zipf: 0.0, sets: 100, seed: 3 };
    let catalogue = Arc::new(Catalogue::new(demand));
    let mut double = Double { does: Does::Keeps, values: BTreeMap::new(), bytes: 45 };
    for requests in [5000, 10, 3, 5000] {
        let mut clients = Clients::new(Arc::clone(&catalogue), 1, 9);
        while clients.account().received() < requests {
            let made = clients.packets(Time::ZERO).to_vec();
            clients.delivered(made.len());
            made.iter().for_each(|frame| clients.came_back(&double.answer(frame), Time::ZERO));
        }
        assert_eq!(clients.account().corrupt(), 0, "{requests}");
    }
}
