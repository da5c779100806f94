//! Every interleaving of one exchange's lines, over the functions that the device's half and the simulator run.
//!
//! One CPU whose program writes requests and reads responses half a line at a time, its cache, the directory of the
//! device that is home to the lines, and the device. At any moment any message may arrive, in any order; the cache may give
//! up any line; the timer may run out; the device may have its response. Breadth first, until there is no new state.
//!
//! | file | what |
//! |---|---|
//! | `state.rs` | the machine's state |
//! | `step.rs` | what may happen next, and what follows |
//! | `search.rs` | the search, what holds in every state, and whether every exchange ends |
//! | `walk.rs` | random runs of machines that are too large for that |
//! | `mutation.rs` | mistakes to plant, each of which the search must find |

mod mutation;
mod search;
mod state;
mod step;
mod walk;

use conic_interface::pio::protocol::{Plan, Recalls};
use mutation::Mutation;
use search::{Explored, explore};
use state::{LINES, Prefetch, Setting, State, Variant};
use step::{Change, Step, steps};

fn setting(variant: Variant, exclusive: bool) -> Setting {
    let (group, overflow, recalls) = match variant {
        Variant::Transmit => (1, 1, Recalls::OverflowLast),
        Variant::Receive => (1, 1, Recalls::OverflowFirst),
        Variant::Invoke { request, response } => (request.max(response), 0, Recalls::Together),
    };
    Setting {
        variant,
        plan: Plan { group, overflow, recalls },
        exclusive,
        prefetch: match variant {
            Variant::Invoke { request, response } if request.max(response) > 1 => Prefetch::WithSignal,
            _ => Prefetch::No,
        },
        evictions: true,
        time_outs: true,
        fills: false,
        prefetcher: false,
        writes_back_first: false,
        units: None,
    }
}

const PAIR: Variant = Variant::Invoke { request: 1, response: 1 };
const GROUPS: Variant = Variant::Invoke { request: 2, response: 2 };

/// Explores a machine, which has as many states as are known: one more or less is a change of the protocol.
fn explored(setting: &Setting, states: usize) {
    let explored = explore(setting, Mutation::None).unwrap_or_else(|fault| panic!("{setting:?}\n{fault}"));
    println!("{:?}, exclusive {}, {:?}: {explored:?}", setting.variant, setting.exclusive, setting.plan.recalls);
    assert_eq!(explored.states, states, "{setting:?}");
    assert!(explored.completions > 0, "no exchange ends: {setting:?}");
}

#[test]
fn a_pair_with_every_eviction_and_time_out() {
    explored(&setting(PAIR, true), 6_888);
    explored(&setting(PAIR, false), 7_080);
}

#[test]
fn a_cache_that_writes_back_before_it_answers_a_recall_does_as_well() {
    let transmit = setting(Variant::Transmit, true);
    for (one, states) in [(setting(PAIR, true), 45_624), (setting(PAIR, false), 47_064), (transmit, 468_840)] {
        explored(&Setting { writes_back_first: true, ..one }, states);
    }
}

#[test]
fn the_nics_lines_with_every_eviction_and_time_out() {
    for (variant, together, in_turn) in [(Variant::Transmit, 34_632, 26_184), (Variant::Receive, 12_928, 9_848)] {
        let one = setting(variant, true);
        explored(&Setting { plan: Plan { recalls: Recalls::Together, ..one.plan }, ..one.clone() }, together);
        for recalls in [Recalls::OverflowFirst, Recalls::OverflowLast] {
            explored(&Setting { plan: Plan { recalls, ..one.plan }, ..one.clone() }, in_turn);
        }
    }
}

#[test]
fn a_receiver_may_ask_for_overflow_lines_when_it_has_the_control_line_and_not_before() {
    let receive = setting(Variant::Receive, true);
    let one = Setting { prefetch: Prefetch::AfterControl, ..receive.clone() };
    let two = Plan { overflow: 2, ..one.plan };
    explored(&Setting { plan: two, evictions: false, ..one.clone() }, 4_139);
    explored(&one, 17_240);
    // A request for an overflow line that comes after its victim and before a recall waits for the recall, and the recall for it.
    let fault = explore(&Setting { prefetch: Prefetch::WithSignal, ..receive }, Mutation::None).expect_err("too early");
    assert!(fault.starts_with("deadlock"), "{fault}");
}

#[test]
fn groups_of_lines_with_prefetches_in_any_order() {
    explored(&setting(GROUPS, true), 418_192);
    explored(&setting(Variant::Invoke { request: 2, response: 1 }, true), 75_000);
    for (request, response, states) in [(2, 2, 26_423), (1, 2, 26_334), (3, 3, 254_027)] {
        explored(&Setting { evictions: false, ..setting(Variant::Invoke { request, response }, true) }, states);
    }
}

#[test]
fn lines_of_a_response_that_are_answered_before_its_end() {
    // Whenever a line is filled: while the request is on its way, while the device works, after "try again".
    let filling = |variant| Setting { fills: true, ..setting(variant, true) };
    for (request, response, states) in [(2, 2, 90_935), (1, 2, 90_750)] {
        explored(&Setting { evictions: false, ..filling(Variant::Invoke { request, response }) }, states);
    }
    explored(&Setting { writes_back_first: true, evictions: false, ..filling(GROUPS) }, 120_631);
    explored(&Setting { time_outs: false, ..filling(GROUPS) }, 31_750);
    // A minute in an unoptimised build.
    if !cfg!(debug_assertions) {
        explored(&filling(GROUPS), 1_190_912);
    }
}

#[test]
fn random_runs_of_larger_machines_lose_nothing() {
    // A million each in an optimised build.
    let exchanges = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let groups = setting(Variant::Invoke { request: 3, response: 3 }, true);
    let filling = Setting { fills: true, ..groups.clone() };
    let mixed = setting(Variant::Invoke { request: 2, response: 3 }, false);
    let mixed = Setting { writes_back_first: true, fills: true, ..mixed };
    let transmit = setting(Variant::Transmit, false);
    let transmit = Setting { plan: Plan { overflow: 4, ..transmit.plan }, ..transmit };
    let receive = Setting { prefetch: Prefetch::AfterControl, ..setting(Variant::Receive, true) };
    let receive = Setting { plan: Plan { overflow: 4, ..receive.plan }, ..receive };
    for (seed, setting) in (1..).zip([groups, filling, mixed, transmit, receive]) {
        let walked = walk::walk(&setting, seed, exchanges).unwrap_or_else(|fault| panic!("{setting:?}\n{fault}"));
        println!("{:?}: {exchanges} exchanges, {walked:?}", setting.variant);
        assert!(walked.evictions > exchanges / 2 && walked.time_outs > exchanges / 20, "{walked:?}");
    }
}

#[test]
fn a_planted_mistake_is_found() {
    // A cache that gives nothing up is enough for what only groups show.
    let groups = Setting { evictions: false, ..setting(GROUPS, true) };
    let filling = Setting { fills: true, ..groups.clone() };
    let settings = [setting(PAIR, true), setting(Variant::Receive, true), groups, filling];
    for mutation in Mutation::ALL {
        let fault = settings.iter().find_map(|setting| {
            let fault = explore(setting, mutation).err()?;
            Some((setting.variant, fault))
        });
        let (variant, fault) = fault.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?} is found with {variant:?}: {}", fault.lines().next().unwrap_or_default());
    }
}

/// Messages that each of some exchanges takes, one after the other, if nothing is given up and nothing waits too long.
fn messages(variant: Variant, exclusive: bool) -> Vec<usize> {
    let setting = Setting { evictions: false, time_outs: false, ..setting(variant, exclusive) };
    let (mut state, mut messages, mut exchanges) = (State::new(&setting), 0, Vec::new());
    while exchanges.len() < 6 {
        let mut possible = Vec::new();
        steps(&setting, Mutation::None, &state, &mut possible);
        let arrives = |step: &&Step| matches!(step, Step::Arrive(_));
        let prefetches = |step: &&Step| matches!(step, Step::Prefetch(_));
        let step = possible.iter().find(arrives).or_else(|| possible.iter().find(prefetches)).unwrap_or(&possible[0]);
        messages += usize::from(matches!(step, Step::Arrive(_)));
        let mut change = Change { setting: &setting, mutation: Mutation::None, state: &mut state, complete: false };
        change.take(*step).expect("the protocol allows it");
        if change.complete {
            exchanges.push(std::mem::take(&mut messages));
        }
    }
    exchanges
}

#[test]
fn each_exchange_takes_two_round_trips_and_a_shared_return_makes_the_next_store_pay_a_third() {
    // A line asked for and granted, a line recalled and given up: two messages each. The first store also misses.
    assert_eq!(messages(PAIR, true), [6, 4, 4, 4, 4, 4]);
    assert_eq!(messages(PAIR, false), [6, 6, 6, 6, 6, 6]);
    // Two lines each way, at the same time.
    assert_eq!(messages(GROUPS, true), [12, 8, 8, 8, 8, 8]);
    // The frame's overflow line is fetched by the CPU after the control line, or before it is written again.
    assert_eq!(messages(Variant::Transmit, true), [10, 8, 8, 8, 8, 8]);
    assert_eq!(messages(Variant::Receive, true), [4, 8, 8, 8, 8, 8]);
}

/// A pair, or groups, whose lines' transactions the CPU's cache handles in these units.
fn placed(variant: Variant, units: [u8; LINES], slots: u8) -> Result<Explored, String> {
    explore(&Setting { units: Some((units, slots)), ..setting(variant, true) }, Mutation::None)
}

#[test]
fn lines_of_a_pair_in_one_unit_deadlock_and_in_two_do_not() {
    let fault = placed(PAIR, [0; LINES], 1).expect_err("the recall waits for the load, and the load for the recall");
    assert!(fault.starts_with("deadlock"), "{fault}");
    assert!(placed(PAIR, [0, 1, 0, 0, 0, 0], 1).is_ok());
    // One more slot than loads can wait is enough too.
    assert!(placed(PAIR, [0; LINES], 2).is_ok());
}

#[test]
fn groups_deadlock_if_the_loads_that_wait_can_fill_a_unit_that_recalls_need() {
    assert!(placed(GROUPS, [0; LINES], 2).expect_err("two loads fill it").starts_with("deadlock"));
    assert!(placed(GROUPS, [0; LINES], 3).is_ok());
    // Neighbouring lines in different units: both groups in both of them.
    assert!(placed(GROUPS, [0, 1, 0, 1, 0, 0], 1).expect_err("each load fills one").starts_with("deadlock"));
    assert!(placed(GROUPS, [0, 1, 0, 1, 0, 0], 2).is_ok());
    assert!(placed(GROUPS, [0, 0, 1, 1, 0, 0], 1).is_ok());
    // Overflow lines beside the control lines.
    assert!(placed(Variant::Receive, [0, 1, 0, 0, 0, 0], 1).expect_err("line 0 waits").starts_with("deadlock"));
    assert!(placed(Variant::Receive, [0, 1, 2, 0, 0, 0], 1).is_ok());
}

#[test]
fn a_prefetcher_that_asks_for_the_other_line_of_a_pair_is_a_false_signal() {
    for variant in [PAIR, GROUPS] {
        let one = Setting { prefetcher: true, evictions: false, time_outs: false, ..setting(variant, true) };
        let fault = explore(&one, Mutation::None).expect_err("the device takes what is not written yet");
        assert!(fault.contains("the device takes") || fault.contains("both valid"), "{fault}");
    }
}
