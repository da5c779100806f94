//! The snoop filter's ways: how many lines stay, what is recalled for another, what that costs, and that nobody waits for ever.

use crate::common;
use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords, Time};
use conic_sim::parameters::SnoopFilterParameters;
use conic_sim::probe::counters::SnoopFilterCounters;
use conic_sim::{Options, Parameters, Role, Simulation};

/// A platform with one slice a node, a snoop filter of so many sets and ways, and memory and look-ups that nobody waits for.
fn filtered(sets: u32, ways: u32) -> Parameters {
    let mut parameters = common::without_prefetchers("icx");
    (parameters.memory.channels, parameters.memory.line_time) = (64, 1);
    (parameters.node.home_slices, parameters.node.home_service) = (1, 0);
    parameters.snoop_filter = Some(SnoopFilterParameters { sets, ways });
    parameters
}

/// What a core does: starts so many picoseconds after the others, then loads lines, or stores to them, one after the other.
#[derive(Clone)]
struct Plan {
    node: usize,
    start: u64,
    lines: Vec<u64>,
    stores: bool,
}

impl Plan {
    fn loads(start: u64, lines: impl IntoIterator<Item = u64>) -> Plan {
        Plan { node: 0, start, lines: lines.into_iter().collect(), stores: false }
    }
}

/// What came of it.
struct Outcome {
    /// How long each access of each core took, in picoseconds.
    took: Vec<Vec<u64>>,
    filters: [SnoopFilterCounters; 2],
    /// Lines that each node's filter has entries for, and that its private caches have.
    known: [(usize, usize); 2],
    reads: u64,
    writes: u64,
}

/// Lines of each node's memory; the other's come after the first's.
const LINES: u64 = 64;

/// The same times whether or not somebody looks at queues; each store is followed by a fence, and every value is checked.
fn run(parameters: &Parameters, plans: &[Plan]) -> Outcome {
    let watched = run_with(parameters, plans, Options { checked: true, ..Options::default() });
    let unwatched = run_with(parameters, plans, Options::default());
    assert_eq!(unwatched.took, watched.took, "the same times whether or not somebody looks");
    assert_eq!((unwatched.filters, unwatched.known), (watched.filters, watched.known));
    watched
}

fn run_with(parameters: &Parameters, plans: &[Plan], options: Options) -> Outcome {
    let mut layout = Layout::new();
    let memories = [Home::Host, Home::Nic]
        .map(|home| layout.add(&format!("{home:?}"), 64 * LINES, 64, home, SynchronisingWords::ALL));
    let mut simulation = Simulation::new(parameters, &layout, options);
    let took = Rc::new(RefCell::new(vec![Vec::new(); plans.len()]));
    for (index, plan) in plans.iter().cloned().enumerate() {
        let (took, start) = (Rc::clone(&took), Time::from_picoseconds(1_000_000 + plan.start));
        simulation.core(&format!("core {index}"), plan.node, Role::Main, start, move |core| {
            for line in plan.lines {
                let at: Address = memories[(line / LINES) as usize].lines(line % LINES);
                let begins = core.now();
                if plan.stores {
                    core.store_release(at, 7);
                    core.full_fence();
                } else {
                    core.load_acquire(at);
                }
                took.borrow_mut()[index].push(core.now().since(begins).picoseconds());
            }
        });
    }
    simulation.run().expect("all programs end");
    let machine = simulation.machine().borrow();
    let counted = machine.counted();
    let known = [0, 1].map(|node| (machine.filtered(node).expect("it has a limit"), machine.privately_cached(node)));
    Outcome {
        took: took.take(),
        filters: [0, 1].map(|node| counted.snoop_filters[node].counters),
        known,
        reads: counted.memories[0].counters.reads,
        writes: counted.memories[0].counters.writes,
    }
}

/// Loads that find a line in local memory, and in the last-level cache.
fn from_memory_and_last_level(parameters: &Parameters) -> (u64, u64) {
    let node = &parameters.node;
    let way = node.core_to_home + node.home_lookup + node.home_to_core;
    (way + parameters.memory.latency, way + node.llc_read)
}

/// From a recall to its last answer.
fn recalled_in(parameters: &Parameters) -> u64 {
    let node = &parameters.node;
    node.home_to_core + node.snoop_lookup + node.core_to_home
}

#[test]
fn as_many_lines_as_a_set_has_ways_stay_and_one_more_recalls_exactly_the_one_that_was_asked_for_longest_ago() {
    for ways in [1, 2, 12, 16, 24] {
        let parameters = filtered(2, ways);
        let (memory, last_level) = from_memory_and_last_level(&parameters);
        let hit = parameters.core.cycles(parameters.core.l1_hit_cycles.into());
        let even = |numbers: std::ops::Range<u64>| numbers.map(|number| 2 * number);
        let most = u64::from(ways);
        let full = run(&parameters, &[Plan::loads(0, even(0..most).chain(even(0..most)))]);
        assert_eq!(full.filters, [SnoopFilterCounters::default(); 2], "{ways} ways");
        assert!(full.took[0][ways as usize..].iter().all(|&took| took == hit), "{ways} ways: all stay");
        // The other set has ways of its own.
        let besides = run(&parameters, &[Plan::loads(0, even(0..most).chain([1]))]);
        assert_eq!(besides.filters[0].evictions, 0);
        let more = run(&parameters, &[Plan::loads(0, even(0..most + 1).chain(even(1..most + 1)).chain([0]))]);
        assert_eq!(more.filters[0], SnoopFilterCounters { evictions: 2, recalled: 2, waits: 0 }, "{ways} ways");
        let took = &more.took[0];
        assert!(took[..=ways as usize].iter().all(|&took| took == memory), "{ways} ways: a recall delays no request");
        assert!(took[ways as usize + 1..2 * ways as usize + 1].iter().all(|&took| took == hit), "the others stay");
        assert_eq!(took[2 * ways as usize + 1], last_level, "what was recalled misses, and lies in the last level");
        assert_eq!(more.known, [(ways as usize, ways as usize), (0, 0)]);
    }
}

#[test]
fn a_line_that_another_core_asks_for_again_goes_later_and_a_hit_in_a_private_cache_is_not_seen() {
    let parameters = filtered(1, 3);
    let late = 10_000_000;
    // The first core's hits on line 0 count for nothing; the second core's request for it does.
    let hits = run(&parameters, &[Plan::loads(0, [0, 1, 2, 0, 0, 3, 1])]);
    assert_eq!(hits.filters[0].evictions, 1);
    assert_eq!(hits.took[0][6], parameters.core.cycles(parameters.core.l1_hit_cycles.into()), "line 1 stayed");
    let shared = run(&parameters, &[Plan::loads(0, [0, 1, 2]), Plan::loads(late, [0, 3]), Plan::loads(2 * late, [1])]);
    let (_, last_level) = from_memory_and_last_level(&parameters);
    assert_eq!(shared.took[2][0], last_level, "line 1 was the one to go");
    assert_eq!(shared.filters[0], SnoopFilterCounters { evictions: 2, recalled: 2, waits: 0 });
}

#[test]
fn every_copy_of_a_recalled_line_goes_and_counts() {
    let parameters = filtered(1, 1);
    let late = 10_000_000;
    let plans = [Plan::loads(0, [0]), Plan::loads(late, [0]), Plan::loads(2 * late, [0]), Plan::loads(3 * late, [1])];
    let outcome = run(&parameters, &plans);
    assert_eq!(outcome.filters[0], SnoopFilterCounters { evictions: 1, recalled: 3, waits: 0 });
    assert_eq!(outcome.known[0], (1, 1));
}

#[test]
fn a_request_for_a_line_that_is_being_recalled_waits_for_the_answers_and_not_a_picosecond_longer() {
    let parameters = filtered(1, 2);
    let ((memory, last_level), recalled_in) = (from_memory_and_last_level(&parameters), recalled_in(&parameters));
    let late = 10_000_000;
    for after in [1, recalled_in - 1, recalled_in, recalled_in + 1] {
        let plans = [Plan::loads(0, [0, 1]), Plan::loads(late, [2]), Plan::loads(late + after, [0])];
        let outcome = run(&parameters, &plans);
        assert_eq!(outcome.took[1], [memory], "the request that causes the recall takes as long as without");
        assert_eq!(outcome.took[2], [last_level + recalled_in.saturating_sub(after)], "{after} ps after");
    }
}

#[test]
fn a_recalled_line_that_was_changed_is_in_the_last_level_and_memory_is_not_written() {
    let parameters = filtered(1, 1);
    let stores = Plan { stores: true, ..Plan::loads(0, [0, 1]) };
    let outcome = run(&parameters, &[stores, Plan::loads(10_000_000, [0])]);
    let (_, last_level) = from_memory_and_last_level(&parameters);
    assert_eq!(outcome.took[1], [last_level], "a checked run has seen the newest version");
    assert_eq!((outcome.reads, outcome.writes), (2, 0));
}

#[test]
fn a_request_waits_where_every_line_of_its_set_has_something_under_way_and_no_longer() {
    let parameters = filtered(1, 1);
    let (memory, _) = from_memory_and_last_level(&parameters);
    let held = parameters.memory.latency;
    for after in [1, held - 1, held, held + 1] {
        let outcome = run(&parameters, &[Plan::loads(0, [0]), Plan::loads(after, [1])]);
        let waits = held.saturating_sub(after);
        assert_eq!(outcome.took, [[memory], [memory + waits]], "{after} ps after");
        assert_eq!(outcome.filters[0].waits, u64::from(waits > 0));
    }
    // In the order in which they came.
    let three = [0, 30, 20].map(|start| Plan::loads(start, [start]));
    let outcome = run(&parameters, &three);
    assert_eq!(outcome.took, [[memory], [memory + 2 * held - 30], [memory + held - 20]]);
}

#[test]
fn the_other_nodes_copies_need_no_entry_at_their_home() {
    let parameters = filtered(1, 1);
    let there = Plan { node: 1, ..Plan::loads(0, 0..8) };
    let outcome = run(&parameters, &[there, Plan::loads(100_000_000, [9])]);
    assert_eq!((outcome.filters[0].evictions, outcome.filters[1].evictions), (0, 7));
    assert_eq!(outcome.known, [(1, 1); 2]);
}

#[test]
fn when_nothing_is_under_way_the_filter_has_entries_for_just_the_lines_in_private_caches() {
    for seed in 0..12 {
        let mut random = common::Random::new(seed, 1);
        let mut parameters = filtered(1 + random.below(4) as u32, 1 + random.below(6) as u32);
        if random.coin() {
            // The fewest entries that may be, and one way: who waits for the one holds the other.
            (parameters.node.home_entries, parameters.node.home_own_entries) = (2, 1);
            parameters.snoop_filter = Some(SnoopFilterParameters { sets: 1, ways: 1 });
        }
        let mut plans: Vec<_> = (0..6)
            .map(|core| Plan {
                node: core % 2,
                start: random.below(1_000_000),
                lines: (0..300).map(|_| random.below(2 * LINES)).collect(),
                stores: random.coin(),
            })
            .collect();
        plans.push(Plan::loads(1_000_000_000, [0]));
        let Outcome { filters, known, .. } = run(&parameters, &plans);
        assert!(known[0].0 > 0 && known.iter().all(|(known, cached)| known == cached), "seed {seed}: {known:?}");
        assert!(filters.iter().all(|filter| filter.evictions > 100), "seed {seed}: {filters:?}");
    }
}

#[test]
fn where_every_set_has_ways_for_all_lines_of_the_region_a_limit_changes_nothing_and_with_one_way_less_it_does() {
    let plans: Vec<_> = (0..6)
        .map(|core| {
            let mut random = common::Random::new(core, 2);
            let lines = (0..400).map(|_| random.below(2 * LINES)).collect();
            Plan { node: core as usize % 2, start: core, lines, stores: core < 2 }
        })
        .chain([Plan::loads(1_000_000_000, [0])])
        .collect();
    let with = |ways: u32| run(&filtered(8, ways), &plans);
    let most = (2 * LINES / 8) as u32;
    let (enough, more, less) = (with(most), with(most + 9), with(most - 1));
    assert_eq!(enough.took, more.took);
    assert_eq!(enough.filters, [SnoopFilterCounters::default(); 2]);
    assert!(enough.known.iter().all(|(known, cached)| known == cached), "{:?}", enough.known);
    assert!(less.filters[0].evictions > 0 && less.took != enough.took);
}

#[test]
fn a_recall_takes_a_look_up_of_its_slice() {
    let mut parameters = filtered(1, 2);
    parameters.node.home_service = 7_000;
    let (memory, _) = from_memory_and_last_level(&parameters);
    let late = 10_000_000;
    let third = |ways: u32| {
        let filter = Some(SnoopFilterParameters { sets: 1, ways });
        let parameters = Parameters { snoop_filter: filter, ..parameters.clone() };
        let plans = [Plan::loads(0, [0, 1]), Plan::loads(late, [2]), Plan::loads(late + 7_000, [3])];
        run(&parameters, &plans).took[2][0]
    };
    assert_eq!((third(4), third(3)), (memory, memory), "no recall before it");
    assert_eq!(third(2), memory + 7_000, "the recall of the request before it");
}

#[test]
fn a_recording_names_a_recall_and_says_which_request_caused_it() {
    let parameters = filtered(1, 1);
    let mut layout = Layout::new();
    let memory = layout.add("memory", 2 * 64, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, Options::default());
    simulation.core("core", 0, Role::Main, Time::from_picoseconds(1_000_000), move |core| {
        core.write_line(memory.lines(0), &Line([7; 8]));
        core.full_fence();
        core.load_acquire(memory.lines(1));
    });
    simulation.machine().borrow_mut().record(1_000);
    simulation.run().expect("all programs end");
    let recording = simulation.machine().borrow_mut().take_recording().expect("it was asked for");
    let about = |name: &str, line: u64| {
        let at = recording.messages.iter().position(|message| message.name == name && message.line == line);
        at.unwrap_or_else(|| panic!("no {name} of line {line}"))
    };
    let cause = |at: usize| recording.messages[at].cause.map(|cause| cause.0 as usize);
    let recall = about("Recall", 0);
    assert_eq!(cause(recall), Some(about("Read", 1)));
    assert_eq!(cause(about("FoundModified", 0)), Some(recall));
}
