//! What comes out is what the software graph makes, whatever the batches, the parts and the order in which devices answer.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::rig::{Rig, Shared, held};
use crate::wire::prefix;
use crate::{Bloom, Calls, Detail, Drops, Inline, Offload, OnCpu, Operator, Place, fused, placed, trivial_filters};

/// Bytes of an exchange that holds so many numbers, with a word for each of so many operators.
fn room(numbers: usize, operators: usize) -> usize {
    prefix(operators) + 8 * numbers
}

fn by(calls: Calls, detail: Detail) -> Offload {
    Offload { calls, detail }
}

/// All ways to offload.
pub fn ways() -> impl Iterator<Item = Offload> {
    let details = |calls| [Detail::Collapsed, Detail::EachOperator].map(|detail| by(calls, detail));
    [Calls::Blocking, Calls::Deferred].into_iter().flat_map(details)
}

/// What filters leave of batches, by time.
pub fn expected(batches: &[(u64, Vec<u64>)], operators: &[Drops]) -> BTreeMap<u64, Vec<u64>> {
    let mut results: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (time, batch) in batches {
        let left = batch.iter().copied().filter(|number| operators.iter().all(|one| one.apply(number).is_some()));
        results.entry(*time).or_default().extend(left);
    }
    results.retain(|_, batch| !batch.is_empty());
    results.values_mut().for_each(|batch| batch.sort_unstable());
    results
}

fn any_operators() -> impl Strategy<Value = Vec<(Place, Drops)>> {
    let place = prop_oneof![Just(Place::Cpu), Just(Place::Device), Just(Place::Device)];
    vec((place, (0_u64..16, 0_u64..16).prop_map(|(mask, value)| Drops { mask, value })), 1..9)
}

fn any_batches() -> impl Strategy<Value = Vec<(u64, Vec<u64>)>> {
    let batch = (0_u64..3, prop_oneof![vec(0_u64..64, 0..3), vec(0_u64..64, 0..40)]);
    vec(batch, 0..12).prop_map(|batches| {
        let mut time = 0;
        let step = |(more, batch): (u64, Vec<u64>)| {
            time += more;
            (time, batch)
        };
        batches.into_iter().map(step).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, rng_seed: RngSeed::Fixed(4), ..ProptestConfig::default() })]

    #[test]
    fn a_graph_with_parts_on_devices_makes_what_the_software_graph_makes(
        operators in any_operators(),
        batches in any_batches(),
        picks in vec(0_usize..8, 1..40),
        numbers in 1_usize..9,
        devices in 1_usize..4,
        way in 0_usize..4,
        stepping in any::<bool>(),
    ) {
        let way = ways().nth(way).expect("there are four");
        let desk = Shared::default();
        let mut rig = Rig::<u64, u64>::new(&desk, |stream| {
            let make = |program: &crate::Program| held(&desk, program, devices, room(numbers, program.operators()));
            placed(stream, &operators, way, make).expect("the devices have room")
        });
        for ((time, batch), pick) in batches.iter().zip(picks.iter().cycle()) {
            rig.send(*time, batch.clone());
            if stepping {
                rig.step().map_err(TestCaseError::fail)?;
                rig.release(*pick);
            }
        }
        let software = {
            let mut rig = Rig::<u64, u64>::new(&Shared::default(), |stream| {
                fused(stream, operators.iter().map(|(_, operator)| *operator).collect())
            });
            batches.iter().for_each(|(time, batch)| rig.send(*time, batch.clone()));
            rig.end(&[], |number| *number).map_err(TestCaseError::fail)?
        };
        let parts = operators.chunk_by(|(a, _), (b, _)| a == b).filter(|part| part[0].0 == Place::Device).count();
        let results = rig.end(&picks, |number| *number).map_err(TestCaseError::fail)?;
        let plain: Vec<Drops> = operators.iter().map(|(_, operator)| *operator).collect();
        prop_assert_eq!(&results, &software);
        prop_assert_eq!(&results, &expected(&batches, &plain));
        prop_assert_eq!(desk.borrow().closed, parts * devices, "every device hears that nothing more comes");
    }
}

fn filters(desk: &Shared, filters: &[Drops], way: Offload, devices: usize, numbers: usize) -> Rig<u64, u64> {
    let operators: Vec<(Place, Drops)> = filters.iter().map(|filter| (Place::Device, *filter)).collect();
    Rig::new(desk, |stream| {
        let make = |program: &crate::Program| held(desk, program, devices, room(numbers, program.operators()));
        placed(stream, &operators, way, make).expect("the devices have room")
    })
}

#[test]
fn many_epochs_are_in_flight_and_complete_in_any_order() {
    for detail in [Detail::Collapsed, Detail::EachOperator] {
        let desk = Shared::default();
        let mut rig = filters(&desk, &trivial_filters(31), by(Calls::Deferred, detail), 50, 10);
        let batches: Vec<(u64, Vec<u64>)> = (0..50).map(|time| (time, (time..time + 10).collect())).collect();
        for (time, batch) in &batches {
            rig.send(*time, batch.clone());
        }
        rig.advance_to(50);
        rig.step().expect("nothing passes");
        assert_eq!(desk.borrow().most, 50);
        // The last first: each completes, and the frontier stays at the first.
        for last in (1..50).rev() {
            assert!(rig.release(last));
            rig.step().expect("nothing passes");
            assert!(rig.may_come(0) && (last < 32 || rig.came(last as u64)), "{last}");
        }
        assert!(rig.release(0));
        rig.step().expect("nothing passes");
        assert!(!rig.may_come(49) && rig.may_come(50));
        let results = rig.end(&[], |number| *number).expect("it ends");
        assert_eq!(results, expected(&batches, &trivial_filters(31)));
    }
}

#[test]
fn batches_of_which_nothing_is_left_complete_their_time() {
    for way in ways() {
        let desk = Shared::default();
        let mut rig = filters(&desk, &[Drops { mask: 0, value: 0 }; 3], way, 2, 4);
        for time in 0..5 {
            rig.send(time, (0..10).collect());
        }
        rig.advance_to(5);
        rig.step().expect("nothing passes");
        while rig.release(0) {
            rig.step().expect("nothing passes");
        }
        assert!(!rig.may_come(4), "{way:?}: nothing comes, and all is complete");
        assert!(rig.end(&[], |number| *number).expect("it ends").is_empty());
    }
}

#[test]
fn an_order_is_kept_within_a_batch_on_one_device() {
    let desk = Shared::default();
    let mut rig = filters(&desk, &trivial_filters(1), by(Calls::Deferred, Detail::Collapsed), 1, 3);
    rig.send(0, (0..20).rev().collect());
    let results = rig.end(&[], |_| ()).expect("it ends");
    assert_eq!(results[&0], (1..20).rev().collect::<Vec<u64>>());
}

#[test]
fn hashes_from_the_device_are_the_softwares_and_go_on_on_the_cpu() {
    let elements: Vec<[u8; 128]> = (0..70_u8).map(|seed| std::array::from_fn(|at| seed ^ at as u8)).collect();
    let hashes: Vec<[u64; 8]> = elements.iter().filter_map(|element| Bloom.apply(element)).collect();
    for way in ways() {
        let mut rig = Rig::<[u8; 128], [u64; 8]>::new(&Shared::default(), |stream| {
            // A line's 56 bytes do not hold an element, and 64 of them are split.
            let graph = OnCpu::new(stream, way, |program| vec![Inline::new(program, 4096)]).device(Bloom);
            graph.back().expect("there is room").finish()
        });
        rig.send(3, elements.clone());
        let results = rig.end(&[], |_| ()).expect("it ends");
        assert_eq!(results, BTreeMap::from([(3, hashes.clone())]));
    }
}

#[test]
fn an_input_that_closes_at_once_ends_the_graph() {
    for way in ways() {
        let desk = Shared::default();
        let rig = filters(&desk, &trivial_filters(31), way, 2, 4);
        assert!(rig.end(&[], |number| *number).expect("it ends").is_empty());
        assert_eq!(desk.borrow().closed, 2);
    }
}
