//! Operators with a state: what they keep of a time comes when the time is complete, and the frontier waits for it.

use std::collections::BTreeMap;

use conic_load::invocation::Answer;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::equality::expected;
use super::rig::{Rig, Shared, held};
use crate::offload::{Calls, Detail, Offload, offload_with};
use crate::planted::{Mistake, Planted};
use crate::wire::{BadResponse, Reason, Response, begin_request, prefix, want_kept};
use crate::{Chain, Counts, Drops, Executor, Fault, Inline, OnCpu, offload};

const FILTER: Drops = Drops { mask: 7, value: 3 };

fn way(calls: Calls) -> Offload {
    Offload { calls, detail: Detail::Collapsed }
}

/// A filter and a count of what it leaves.
fn chain() -> Chain<u64, [u64; 2]> {
    Chain::new(FILTER).gathered(Counts).expect("a filter has no state")
}

/// What comes of batches, by time.
fn counted(batches: &[(u64, Vec<u64>)]) -> BTreeMap<u64, Vec<[u64; 2]>> {
    let count = |(time, numbers): (u64, Vec<u64>)| {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        numbers.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
        (time, counts.into_iter().map(|(number, count)| [number, count]).collect())
    };
    expected(batches, &[FILTER]).into_iter().map(count).collect()
}

/// A graph whose device's exchanges hold so many numbers.
fn rig(desk: &Shared, calls: Calls, numbers: usize, mistake: Option<Mistake>) -> Rig<u64, [u64; 2]> {
    let chain = chain();
    Rig::new(desk, |stream| {
        let devices = held(desk, chain.program(), 1, prefix(1) + 16 * numbers);
        offload_with(stream, &chain, devices, way(calls), Planted { mistake }).expect("there is room")
    })
}

#[test]
fn a_graph_goes_on_on_the_cpu_behind_a_state_on_the_device() {
    let mut rig = Rig::<u64, [u64; 2]>::new(&Shared::default(), |stream| {
        let graph = OnCpu::new(stream, way(Calls::Blocking), |program| vec![Inline::new(program, 4096)]);
        let graph = graph.cpu(FILTER).gathering(Counts).back().expect("there is room");
        graph.finish()
    });
    let batches = [(0, vec![3, 1, 1]), (2, vec![5])];
    for (time, batch) in &batches {
        rig.send(*time, batch.clone());
    }
    assert_eq!(rig.end(&[], |pair| *pair), Ok(counted(&batches)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_each_time_whatever_the_batches_and_exchanges(
        steps in vec((0_u64..3, vec(0_u64..20, 0..30)), 0..12),
        numbers in 1_usize..9,
        deferred in any::<bool>(),
        stepping in any::<bool>(),
    ) {
        let mut time = 0;
        let batches: Vec<(u64, Vec<u64>)> = steps.into_iter().map(|(more, batch)| { time += more; (time, batch) }).collect();
        let desk = Shared::default();
        let mut rig = rig(&desk, if deferred { Calls::Deferred } else { Calls::Blocking }, numbers, None);
        for (time, batch) in &batches {
            rig.send(*time, batch.clone());
            if stepping {
                rig.step().map_err(TestCaseError::fail)?;
                rig.release(0);
            }
        }
        let results = rig.end(&[0], |pair| *pair).map_err(TestCaseError::fail)?;
        prop_assert_eq!(results, counted(&batches));
        // What was kept may be asked for after that.
        prop_assert!(desk.borrow().closed >= 1, "the device hears that nothing more comes");
    }
}

/// Two batches of one time, and what comes when: an error if it is too early, too late or wrong.
fn two_batches(mistake: Option<Mistake>) -> Result<(), String> {
    let mut rig = rig(&Shared::default(), Calls::Blocking, 2, mistake);
    let batches = [(4, vec![1, 2, 3, 4, 1, 9]), (4, vec![1])];
    for (time, batch) in &batches {
        rig.send(*time, batch.clone());
        rig.step()?;
        if rig.came(4) || !rig.may_come(4) {
            return Err("something came, or nothing more can, before the time was complete".to_owned());
        }
    }
    rig.advance_to(5);
    rig.step()?;
    if !rig.came(4) || rig.may_come(4) {
        return Err("the time is complete, and what was kept of it did not come".to_owned());
    }
    let results = rig.end(&[0], |pair| *pair)?;
    if results == counted(&batches) { Ok(()) } else { Err(format!("something else came out: {results:?}")) }
}

#[test]
fn what_is_kept_comes_when_its_time_is_complete_and_not_before() {
    assert_eq!(two_batches(None), Ok(()));
}

#[test]
fn a_time_that_is_kept_and_not_held_is_found() {
    let outcome = std::panic::catch_unwind(|| two_batches(Some(Mistake::HoldsNothing)));
    assert!(!outcome.is_ok_and(|result| result.is_ok()));
}

#[test]
fn a_state_that_cannot_be_placed_is_refused() {
    let refused = |detail, devices: usize| {
        let mut found = None;
        let chain = chain();
        let _rig = Rig::<u64, u64>::new(&Shared::default(), |stream| {
            let devices = (0..devices).map(|_| Inline::new(chain.program(), 4096)).collect();
            let how = Offload { calls: Calls::Blocking, detail };
            found = offload(stream.clone(), &chain, devices, how).err();
            stream
        });
        found
    };
    assert_eq!(refused(Detail::Collapsed, 2), Some(Fault::State));
    assert_eq!(refused(Detail::EachOperator, 1), Some(Fault::State));
    assert_eq!(refused(Detail::Collapsed, 1), None);
    assert!(chain().gathered(Again).is_none(), "nothing follows a state on the device");
}

/// A request to a device for what it kept of a time, whose input is complete up to another, with some numbers.
fn wanted(executor: &mut Executor, time: u64, frontier: u64, numbers: &[u64]) -> Vec<u8> {
    let mut request = Vec::new();
    begin_request(&mut request, time, numbers.len() as u32, &[frontier]);
    numbers.iter().for_each(|number| request.extend_from_slice(&number.to_le_bytes()));
    want_kept(&mut request);
    let mut response = vec![0; 4096];
    let length = executor.answer(&request, &mut response);
    response.truncate(length);
    response
}

#[test]
fn what_was_kept_is_refused_where_that_cannot_be() {
    let refused = |chain: &Chain<u64, [u64; 2]>, time, frontier, numbers: &[u64]| {
        let response = wanted(&mut Executor::new(chain.program().clone()), time, frontier, numbers);
        Response::read_kept(&response, 16, time).err()
    };
    let kept = Some(BadResponse::Refused(Reason::Kept));
    assert_eq!(refused(&chain(), 3, 3, &[]), kept, "the time is not complete");
    assert_eq!(refused(&chain(), 3, 3, &[7]), kept, "there are elements");
    assert_eq!(refused(&chain(), 3, 4, &[7]), Some(BadResponse::Refused(Reason::Time)));
    assert_eq!(refused(&chain(), 3, 4, &[]), None, "nothing was kept, and nothing is given");
    let stateless = Chain::new(FILTER);
    let response = wanted(&mut Executor::new(stateless.program().clone()), 3, 4, &[]);
    assert_eq!(Response::read_kept(&response, 8, 3).err(), kept, "nobody keeps anything");
}

/// How many numbers came of a time: something also of a time of which nothing came, if it were asked.
#[derive(Clone, Copy)]
struct HowMany;

impl crate::Gathering for HowMany {
    type Input = u64;
    type Output = u64;
    type State = u64;
    fn name(&self) -> String {
        "how many".to_owned()
    }
    fn take(&self, state: &mut u64, _element: &u64) {
        *state += 1;
    }
    fn finish(&self, state: &u64) -> Vec<u64> {
        vec![*state]
    }
}

#[test]
fn a_state_is_not_asked_of_a_time_of_which_nothing_came_to_it() {
    let chain = Chain::new(FILTER).gathered(HowMany).expect("a filter has no state");
    let desk = Shared::default();
    let mut rig = Rig::<u64, u64>::new(&desk, |stream| {
        let devices = held(&desk, chain.program(), 1, 4096);
        offload(stream, &chain, devices, way(Calls::Blocking)).expect("there is room")
    });
    // The filter leaves nothing of the second time.
    for (time, batch) in [(1, vec![1, 3, 5]), (2, vec![3, 11]), (4, vec![3, 2])] {
        rig.send(time, batch);
    }
    assert_eq!(rig.end(&[0], |number| *number), Ok(BTreeMap::from([(1, vec![2]), (4, vec![1])])));
}

#[test]
fn what_was_kept_waits_for_a_response_with_room_for_it() {
    let mut executor = Executor::new(Chain::gathering(Counts).program().clone());
    let mut request = Vec::new();
    begin_request(&mut request, 3, 1, &[3]);
    request.extend_from_slice(&7_u64.to_le_bytes());
    executor.answer(&request, &mut [0; 64]);
    begin_request(&mut request, 3, 0, &[4]);
    want_kept(&mut request);
    for room in [prefix(1), prefix(1) + 15] {
        let mut response = vec![0; room];
        let length = executor.answer(&request, &mut response);
        let read = Response::read_kept(&response[..length], 16, 3).map(|_| ());
        assert_eq!(read, Err(BadResponse::Refused(Reason::Room)), "{room} bytes");
    }
    let response = wanted(&mut executor, 3, 4, &[]);
    assert_eq!(Response::read_kept(&response, 16, 3).map(|response| response.payload().len()), Ok(16));
    let mut response = vec![0; prefix(1)];
    let length = executor.answer(&request, &mut response);
    assert!(Response::read_kept(&response[..length], 16, 3).is_ok(), "that nothing is left needs no room");
}

#[test]
fn every_changed_number_of_a_response_of_what_was_kept_is_refused() {
    let mut executor = Executor::new(chain().program().clone());
    let mut request = Vec::new();
    begin_request(&mut request, 3, 2, &[3]);
    [1_u64, 1].iter().for_each(|number| request.extend_from_slice(&number.to_le_bytes()));
    executor.answer(&request, &mut [0; 4096]);
    let response = wanted(&mut executor, 3, 4, &[]);
    assert_eq!(Response::read_kept(&response, 16, 3).map(|response| response.payload().len()), Ok(16));
    // The header, the time, and the counts; the elements are what they are.
    for byte in 0..prefix(1) {
        let mut wrong = response.clone();
        wrong[byte] ^= 1;
        assert!(Response::read_kept(&wrong, 16, 3).is_err(), "byte {byte}");
    }
    for length in 0..response.len() {
        assert!(Response::read_kept(&response[..length], 16, 3).is_err(), "{length} bytes");
    }
}

/// A second state behind the first.
#[derive(Clone, Copy)]
struct Again;

impl crate::Gathering for Again {
    type Input = [u64; 2];
    type Output = [u64; 2];
    type State = ();
    fn name(&self) -> String {
        "again".to_owned()
    }
    fn take(&self, _state: &mut (), _element: &[u64; 2]) {}
    fn finish(&self, _state: &()) -> Vec<[u64; 2]> {
        Vec::new()
    }
}
