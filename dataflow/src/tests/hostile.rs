//! Messages that cannot be are refused with their reason, on both sides.

use conic_load::invocation::Answer;

use crate::device::Fault;
use crate::wire::{BadResponse, CLOSED, Reason, Response, begin_request, prefix};
use crate::{Calls, Detail};
use crate::{Chain, Drops, Executor, Inline, Offload, OnCpu, trivial_filters};

fn executor() -> Executor {
    let none = Drops { mask: 0, value: 1 };
    Executor::new(Chain::new(none).then(none).then(none).program().clone())
}

fn request(time: u64, frontiers: &[u64], numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    begin_request(&mut bytes, time, numbers.len() as u32, frontiers);
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

/// What a device answers, for a caller that sent so many numbers at a time.
fn answer(executor: &mut Executor, request: &[u8], room: usize) -> Vec<u8> {
    let mut response = vec![0xee; room];
    let length = executor.answer(request, &mut response);
    response.truncate(length);
    response
}

fn refusal(executor: &mut Executor, request: &[u8]) -> Option<Reason> {
    let response = answer(executor, request, 4096);
    match Response::read(&response, 8, 0, 0, 1) {
        Err(BadResponse::Refused(reason)) => Some(reason),
        _ => None,
    }
}

#[test]
fn every_cut_of_a_request_is_refused_and_changes_nothing() {
    let whole = request(7, &[5, 4, 3], &[1, 2, 3]);
    for length in 0..whole.len() {
        let mut executor = executor();
        assert_eq!(refusal(&mut executor, &whole[..length]), Some(Reason::Length), "{length} bytes");
        assert!(executor.frontiers().is_empty());
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(refusal(&mut executor(), &longer), Some(Reason::Length));
    assert_eq!(refusal(&mut executor(), &whole), None);
}

#[test]
fn requests_that_contradict_what_was_said_are_refused() {
    let mut device = executor();
    assert_eq!(refusal(&mut device, &request(0, &[0, 0], &[])), Some(Reason::Operators));
    assert_eq!(refusal(&mut device, &request(5, &[5, 5, 5], &[1])), None);
    assert_eq!(refusal(&mut device, &request(6, &[5, 4, 5], &[1])), Some(Reason::Progress));
    assert_eq!(refusal(&mut device, &request(4, &[5, 5, 5], &[1])), Some(Reason::Time));
    assert_eq!(refusal(&mut device, &request(6, &[5, 5, 7], &[1])), Some(Reason::Time));
    assert_eq!(refusal(&mut device, &request(CLOSED, &[5, 5, 5], &[1])), Some(Reason::Time));
    assert_eq!(device.frontiers(), [5, 5, 5]);
    assert!(!device.is_closed());
    assert_eq!(refusal(&mut device, &request(0, &[CLOSED; 3], &[])), None);
    assert!(device.is_closed());
    assert_eq!(refusal(&mut device, &request(9, &[CLOSED; 3], &[1])), Some(Reason::Time));
    assert_eq!(device.refused(), 6);
}

#[test]
fn a_request_that_speaks_of_other_operators_than_before_takes_no_progress_back() {
    let mut device = executor();
    assert_eq!(refusal(&mut device, &request(5, &[5, 5, 5], &[1])), None);
    assert_eq!(refusal(&mut device, &request(5, &[5], &[1])), Some(Reason::Operators));
    assert_eq!(refusal(&mut device, &request(5, &[3], &[])), Some(Reason::Operators));
    assert_eq!(device.frontiers(), [5, 5, 5]);
    assert_eq!(refusal(&mut device, &request(5, &[5, 0, 0], &[1])), Some(Reason::Progress));
    assert_eq!(device.frontiers(), [5, 5, 5]);
}

/// An operator whose elements have no bytes: of them nothing but their number would cross, which is not counted by bytes.
#[derive(Clone, Copy)]
struct Nothing;

impl crate::Operator for Nothing {
    type Input = u64;
    type Output = [u8; 0];
    fn name(&self) -> String {
        "nothing".to_owned()
    }
    fn apply(&self, _element: &u64) -> Option<[u8; 0]> {
        Some([])
    }
}

/// One that makes numbers of them again.
#[derive(Clone, Copy)]
struct OfNothing;

impl crate::Operator for OfNothing {
    type Input = [u8; 0];
    type Output = u64;
    fn name(&self) -> String {
        "of nothing".to_owned()
    }
    fn apply(&self, _element: &[u8; 0]) -> Option<u64> {
        Some(1)
    }
}

#[test]
fn elements_without_bytes_are_refused_when_the_graph_is_built() {
    let how = Offload { calls: Calls::Blocking, detail: Detail::Collapsed };
    let faults = timely::example(move |scope| {
        use timely::dataflow::operators::ToStream;
        let graph = || {
            let stream = (0..10_u64).to_stream(scope);
            OnCpu::new(stream, how, |program: &crate::Program| vec![Inline::new(program, 4096)]).device(Nothing)
        };
        [graph().back().err(), graph().device(OfNothing).back().err()]
    });
    assert_eq!(faults, [Some(Fault::Empty), Some(Fault::Empty)]);
}

/// An operator that panics at one number.
#[derive(Clone, Copy)]
struct Panics;

impl crate::Operator for Panics {
    type Input = u64;
    type Output = u64;
    fn name(&self) -> String {
        "panics".to_owned()
    }
    fn apply(&self, element: &u64) -> Option<u64> {
        assert_ne!(*element, 7);
        Some(*element)
    }
}

#[test]
fn an_operator_that_panics_is_a_refusal_and_so_is_all_that_comes_after_it() {
    let mut device = Executor::new(Chain::new(Panics).program().clone());
    assert_eq!(refusal(&mut device, &request(1, &[0], &[1])), None);
    for number in [7, 1] {
        assert_eq!(refusal(&mut device, &request(2, &[1], &[number])), Some(Reason::Failed));
    }
    assert_eq!(refusal(&mut device, &request(0, &[CLOSED], &[])), Some(Reason::Failed));
    assert_eq!(device.refused(), 3);
}

#[test]
fn a_response_without_room_is_a_refusal() {
    let whole = request(0, &[0], &[1, 2]);
    assert_eq!(answer(&mut executor(), &whole, prefix(1) + 16).len(), prefix(1) + 16);
    for room in 16..prefix(1) + 16 {
        let response = answer(&mut executor(), &whole, room);
        let read = Response::read(&response, 8, 0, 2, 1).map(|_| ());
        assert_eq!(read, Err(BadResponse::Refused(Reason::Room)), "{room} bytes");
    }
    assert_eq!(answer(&mut executor(), &whole, 15), [0_u8; 0]);
}

#[test]
fn every_cut_and_every_changed_number_of_a_response_is_refused() {
    let whole = answer(&mut executor(), &request(7, &[0, 0, 0], &[1, 2, 3]), 4096);
    let read = |bytes: &[u8]| Response::read(bytes, 8, 7, 3, 3).map(|_| ());
    assert_eq!(read(&whole), Ok(()));
    for length in 0..whole.len() {
        assert_eq!(read(&whole[..length]), Err(BadResponse::Malformed(Reason::Length)), "{length} bytes");
    }
    for byte in 0..prefix(3) {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[byte] ^= 1 << bit;
            assert!(read(&changed).is_err(), "byte {byte}, bit {bit}");
        }
    }
}

#[test]
fn a_graph_without_room_or_devices_is_refused_when_it_is_built() {
    let how = Offload { calls: Calls::Blocking, detail: Detail::EachOperator };
    let capacity = prefix(31) + 7;
    let faults = timely::example(move |scope| {
        use timely::dataflow::operators::ToStream;
        [vec![capacity], vec![]].map(|capacities| {
            let stream = (0..10_u64).to_stream(scope);
            let devices = |program: &crate::Program| {
                capacities.iter().map(|&capacity| Inline::new(program, capacity)).collect::<Vec<_>>()
            };
            let filters = trivial_filters(31);
            let first = OnCpu::new(stream, how, devices).device(filters[0]);
            filters[1..].iter().fold(first, |graph, filter| graph.device(*filter)).back().err()
        })
    });
    assert_eq!(faults, [Some(Fault::Small { capacity, needed: capacity + 1 }), Some(Fault::None)]);
}
