//! Every mistake that is easily made is found: planted, it makes the checks of the other tests fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::equality::{expected, ways};
use super::rig::{Rig, Shared, held};
use crate::offload::{Calls, Offload, offload_with};
use crate::planted::{Mistake, Planted};
use crate::wire::prefix;
use crate::{Chain, Drops};

const FILTERS: [Drops; 3] =
    [Drops { mask: 3, value: 1 }, Drops { mask: 0x100, value: 0x100 }, Drops { mask: 7, value: 2 }];

/// A graph with a part on two devices that answer in turn, the later of two calls first; an error if anything is wrong.
fn run(way: Offload, mistake: Option<Mistake>) -> Result<(), String> {
    let desk = Shared::default();
    let chain = FILTERS[1..].iter().fold(Chain::new(FILTERS[0]), |chain, filter| chain.then(*filter));
    let mut rig = Rig::<u64, u64>::new(&desk, |stream| {
        let devices = held(&desk, chain.program(), 2, prefix(3) + 8 * 4);
        offload_with(stream, &chain, devices, way, Planted { mistake }).expect("there is room")
    });
    // The second is filtered out whole, the third is split.
    let batches = [(0, vec![0, 4, 8]), (1, vec![0x100, 0x101]), (2, (0..12).collect()), (3, vec![8])];
    for (time, batch) in &batches {
        rig.send(*time, batch.clone());
        rig.advance_to(time + 1);
        rig.step()?;
    }
    for _ in 0..batches.len() + 2 {
        rig.release(1);
        rig.step()?;
    }
    if rig.may_come(3) {
        return Err("times that are complete are not".to_owned());
    }
    let results = rig.end(&[1], |number| *number)?;
    if results != expected(&batches, &FILTERS) {
        return Err(format!("something else came out: {results:?}"));
    }
    if desk.borrow().closed != 2 {
        return Err("a device was not told that nothing more comes".to_owned());
    }
    Ok(())
}

fn found(way: Offload, mistake: Mistake) -> bool {
    // A panic of Timely's, or of the offload's, is a finding.
    !catch_unwind(AssertUnwindSafe(|| run(way, Some(mistake)))).is_ok_and(|result| result.is_ok())
}

#[test]
fn without_a_mistake_nothing_is_found() {
    for way in ways() {
        assert_eq!(run(way, None), Ok(()), "{way:?}");
    }
}

/// A test for each, so that the list of tests is the list of mistakes.
macro_rules! found_in {
    ($($test:ident: $mistake:ident $which:expr;)*) => {
        $(#[test]
        fn $test() {
            let which: fn(&Offload) -> bool = $which;
            for way in ways().filter(which) {
                assert!(found(way, Mistake::$mistake), "{way:?}");
            }
        })*
    };
}

fn all(_: &Offload) -> bool {
    true
}

fn deferred(way: &Offload) -> bool {
    way.calls == Calls::Deferred
}

found_in! {
    an_initial_capability_that_is_kept_is_found: KeepsCapability all;
    a_device_that_wakes_nobody_is_found: NoWaking deferred;
    records_consumed_before_the_device_is_done_are_found: ConsumesEarly deferred;
    messages_counted_for_records_are_found: CountsMessages all;
    a_record_too_many_is_found: ProducesMore all;
    an_empty_result_that_completes_nothing_is_found: ForgetsEmpty all;
    a_response_taken_for_the_oldest_call_is_found: TakesOldest deferred;
    the_rest_of_a_split_batch_that_is_lost_is_found: LosesRest all;
    a_device_that_is_not_told_of_the_end_is_found: NoClosing all;
    a_device_that_is_told_too_much_progress_is_found: TellsMore all;
}
