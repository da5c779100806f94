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
//! | `mutation.rs` | mistakes to plant, each of which the search must find |

mod invariants;
mod mutation;
mod search;
mod state;
mod step;

use mutation::Mutation;
use search::{Explored, explore};
use state::Setting;

use super::home::Choices;

/// All combinations of the protocol's choices.
fn all_choices() -> impl Iterator<Item = Choices> {
    (0..32).map(|bits: u32| Choices {
        migratory_between_nodes: bits & 1 != 0,
        migratory_within_node: bits & 2 != 0,
        exclusive_grant: bits & 4 != 0,
        directory_write: bits & 8 != 0,
        speculative_memory_read: bits & 16 != 0,
    })
}

fn explored(setting: &Setting) -> Explored {
    explore(setting, Mutation::None).unwrap_or_else(|fault| panic!("{setting:?}\n{fault}"))
}

#[test]
fn one_core_on_each_node_is_coherent_whatever_happens() {
    let mut states = Vec::new();
    for choices in all_choices() {
        let setting = Setting { cores: [1, 1], device: None, past_caches: true, choices };
        states.push(explored(&setting).states);
    }
    println!("{states:?} states");
}
