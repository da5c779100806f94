//! Every interleaving of a small machine with one line, over the transition functions that the simulator runs.
//!
//! Two nodes with a few cores each and perhaps a device. At any moment a core may load, store a word, store the whole line,
//! write it past the caches, or evict its copy; a node with nothing under way may evict its last-level cache's copy; the
//! device may read, or write either way; and any message that the channels let through may arrive. Breadth first, until
//! there is no new state; every state is held against [`invariants`].
//!
//! | file | what |
//! |---|---|
//! | `state.rs` | the machine's state, and versions made finite |
//! | `step.rs` | what may happen next, and what follows |
//! | `invariants.rs` | what holds in every state, and what when nothing is on its way |
//! | `search.rs` | the search, and whether everything comes to rest |
//! | `messages.rs` | the messages between the nodes for each access in each state |
//! | `mutation.rs` | mistakes to plant, each of which the search must find |

mod invariants;
mod messages;
mod mutation;
mod search;
mod state;
mod step;

use mutation::Mutation;
use search::{Explored, explore};
use state::Setting;

use super::home::Choices;

/// All combinations of the protocol's choices, by their bits.
fn choices(bits: u32) -> Choices {
    Choices {
        migratory_between_nodes: bits & 1 != 0,
        migratory_within_node: bits & 2 != 0,
        exclusive_grant: bits & 4 != 0,
        directory_write: bits & 8 != 0,
        speculative_memory_read: bits & 16 != 0,
        forwards_clean: bits & FORWARDS != 0,
        snoops_shared: bits & SNOOPS_SHARED != 0,
    }
}

/// How many combinations there are.
const ALL: u32 = 128;
/// MESIF instead of MESI.
const FORWARDS: u32 = 32;
/// A read asks sharers too.
const SNOOPS_SHARED: u32 = 64;
/// The platforms' choices, and those with every choice the other way but the speculative read.
const MAIN: [u32; 2] = [0b011_1101, 0b101_0010];
/// Those with which both E and F are asked for a read.
const FORWARDED: u32 = 0b111_0010;

fn explored(setting: &Setting) -> Explored {
    let explored = explore(setting, Mutation::None).unwrap_or_else(|fault| panic!("{setting:?}\n{fault}"));
    println!("{:?} cores, device at {:?}: {explored:?}", setting.cores, setting.device);
    explored
}

#[test]
fn one_core_on_each_node_is_coherent_with_all_choices() {
    // Without who forwards, to ask who shares is tried in one combination: it changes no state.
    for bits in (0..ALL).filter(|bits| bits & (FORWARDS | SNOOPS_SHARED) != SNOOPS_SHARED || *bits == MAIN[1]) {
        explored(&Setting {
            cores: [1, 1],
            device: None,
            past_caches: MAIN.contains(&bits),
            recalls: false,
            choices: choices(bits),
        });
    }
}

#[test]
fn a_device_on_either_node_sees_and_makes_coherent_writes() {
    for (device, bits) in [(0, MAIN[0]), (1, MAIN[1])] {
        explored(&Setting {
            cores: [1, 1],
            device: Some(device),
            past_caches: false,
            recalls: false,
            choices: choices(bits),
        });
    }
}

#[test]
fn two_cores_on_a_node_and_one_on_the_other_are_coherent() {
    for (cores, bits) in [([2, 1], MAIN[1]), ([1, 2], MAIN[0]), ([1, 2], FORWARDED)] {
        explored(&Setting { cores, device: None, past_caches: false, recalls: false, choices: choices(bits) });
    }
}

#[test]
fn a_planted_mistake_is_found() {
    for mutation in Mutation::ALL {
        let fault = [[1, 1], [1, 2]].into_iter().find_map(|cores| {
            let setting =
                Setting { cores, device: None, past_caches: false, recalls: false, choices: choices(MAIN[0]) };
            explore(&setting, mutation).err().map(|fault| (cores, fault))
        });
        let (cores, fault) = fault.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?} is found with {cores:?} cores: {}", fault.lines().next().unwrap_or_default());
    }
}

#[test]
fn a_line_may_be_recalled_from_a_node_at_any_moment_at_which_nothing_is_under_way() {
    for bits in [MAIN[0], MAIN[1], FORWARDED] {
        explored(&Setting { cores: [1, 1], device: None, past_caches: false, recalls: true, choices: choices(bits) });
    }
}

#[test]
fn a_planted_mistake_with_a_recalled_line_is_found() {
    for mutation in Mutation::OF_RECALLS {
        let fault = [[1, 1], [2, 1]].into_iter().find_map(|cores| {
            let setting = Setting { cores, device: None, past_caches: false, recalls: true, choices: choices(MAIN[0]) };
            explore(&setting, mutation).err().map(|fault| (cores, fault))
        });
        let (cores, fault) = fault.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?} is found with {cores:?} cores: {}", fault.lines().next().unwrap_or_default());
    }
}

#[test]
fn a_home_that_waits_for_its_reply_to_arrive_needs_no_order_between_replies_and_snoops() {
    let setting =
        Setting { cores: [1, 1], device: None, past_caches: false, recalls: false, choices: choices(MAIN[0]) };
    let as_it_is = explored(&setting);
    let weaker = explore(&setting, Mutation::SnoopOvertakesReply);
    assert_eq!(weaker.as_ref(), Ok(&as_it_is), "no reply and snoop are ever on their way together");
}

/// What takes minutes: `cargo test --release -p conic-sim --features exhaustive exhaustive`.
#[cfg(feature = "exhaustive")]
mod exhaustive {
    use super::*;

    /// Small machines: cores of each node, on which node a device is, and whether cores write past their caches.
    const SMALL: [([usize; 2], Option<usize>, bool); 5] = [
        ([1, 1], None, true),
        ([1, 1], Some(0), false),
        ([1, 1], Some(1), false),
        ([2, 1], None, false),
        ([1, 2], None, false),
    ];

    #[test]
    fn small_machines_with_all_choices() {
        // Writing the directory to memory changes no state: the first test holds it both ways.
        for bits in (0..ALL).filter(|bits| bits & 0b01000 == 0 && bits & (FORWARDS | SNOOPS_SHARED) != SNOOPS_SHARED) {
            for (cores, device, past_caches) in SMALL {
                explored(&Setting { cores, device, past_caches, recalls: false, choices: choices(bits) });
            }
        }
    }

    #[test]
    fn lines_that_are_recalled_with_the_main_choices() {
        for bits in MAIN {
            for (cores, device, past_caches) in SMALL {
                explored(&Setting { cores, device, past_caches, recalls: true, choices: choices(bits) });
            }
        }
    }

    #[test]
    fn larger_machines_with_the_main_choices() {
        for bits in MAIN {
            for cores in [[2, 2], [3, 1], [1, 3]] {
                explored(&Setting { cores, device: None, past_caches: false, recalls: false, choices: choices(bits) });
            }
            for device in [0, 1] {
                explored(&Setting {
                    cores: [1, 1],
                    device: Some(device),
                    past_caches: true,
                    recalls: false,
                    choices: choices(bits),
                });
            }
        }
    }
}
