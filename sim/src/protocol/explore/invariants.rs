//! What holds in every state, and what when nothing is on its way.
//!
//! | always | |
//! |---|---|
//! | one writer or many readers | if a core's copy is exclusive or modified, no other core has one |
//! | newest | every copy of a core has the newest version |
//! | an ordered write | while it may take effect and has not, no core has a copy |
//! | progress | if nothing is on its way, nobody waits for anything |
//!
//! When nothing is on its way and nobody waits:
//!
//! | what | at the home | at the other node |
//! |---|---|---|
//! | `copies` | names the cores that have a copy | the same |
//! | `exclusive` | set if that copy, then the only one of all, is exclusive or modified | the same |
//! | `right` | `Exclusive`: the other node has nothing | `None`: it has nothing |
//! | | `Shared`: all copies are shared, memory or its own last level is newest | `Shared`, `Forward`: nothing dirty; the home's is `Shared` |
//! | | `None`: it has no copy | `Exclusive`: the home's is `None` |
//! | last level | its version is the newest; it is empty beside an exclusive copy | the same |
//! | dirty | if nothing is modified or dirty, memory is the newest | |

use crate::protocol::Copy;
use crate::protocol::home::{LastLevel, Right};

use super::state::{NEWEST, State};

/// Checks a state.
pub fn check(state: &State) -> Result<(), String> {
    let copies: Vec<_> = state.copies().collect();
    if copies.len() > 1 && copies.iter().any(|(_, _, held)| held.copy >= Copy::Exclusive) {
        return Err(format!("a writer is not alone: {copies:?}"));
    }
    if let Some((node, core, held)) = copies.iter().find(|(_, _, held)| held.version != NEWEST) {
        return Err(format!("core {core} of node {node} has an old copy: {held:?}"));
    }
    if state.device.ready && !copies.is_empty() {
        return Err(format!("an ordered write is ready, and there are {copies:?}"));
    }
    if !state.is_silent() {
        return Ok(());
    }
    if !state.is_at_rest() {
        return Err("nothing is on its way, and somebody waits".to_owned());
    }
    for node in 0..2 {
        check_node(state, node)?;
    }
    check_between_nodes(state)
}

fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn check_node(state: &State, at: usize) -> Result<(), String> {
    let stable = &state.nodes[at].stable;
    let held = state.copies().filter(|(node, ..)| *node == at);
    let copies = held.fold(0, |copies, (_, core, _)| copies | 1 << core);
    require(stable.copies == copies, &format!("node {at}: the snoop filter is not what the cores have"))?;
    let owner = state.copies().any(|(node, _, held)| node == at && held.copy >= Copy::Exclusive);
    require(stable.exclusive == owner, &format!("node {at}: the snoop filter is wrong about an owner"))?;
    let last_level = stable.last_level != LastLevel::None;
    require(!(last_level && owner), &format!("node {at}: the last level has a line that a core owns"))?;
    let newest = stable.last_level_version == NEWEST;
    require(!last_level || newest, &format!("node {at}: the last level's copy is old"))
}

fn check_between_nodes(state: &State) -> Result<(), String> {
    let [home, other] = [0, 1].map(|node| &state.nodes[node].stable);
    let owner = |at: usize| state.copies().any(|(node, _, held)| node == at && held.copy >= Copy::Exclusive);
    let home_has = home.copies != 0 || home.last_level != LastLevel::None;
    let other_has = other.copies != 0 || other.last_level != LastLevel::None;
    let rights = (home.right, other.right);
    let allowed = [
        (Right::Exclusive, Right::None),
        (Right::Shared, Right::Shared),
        (Right::Shared, Right::Forward),
        (Right::Shared, Right::None),
        (Right::None, Right::Exclusive),
        (Right::None, Right::None),
    ];
    require(allowed.contains(&rights), &format!("the directory and the other node's right disagree: {rights:?}"))?;
    require(home.right != Right::None || !home_has, "the home has a copy of what it gave away")?;
    require(other.right != Right::None || !other_has, "the other node has a copy without a right")?;
    let may_own = |right: Right, owner: bool| right == Right::Exclusive || !owner;
    require(may_own(home.right, owner(0)) && may_own(other.right, owner(1)), "a core owns what its node may not")?;
    let other_dirty = other.last_level == LastLevel::Dirty;
    require(!other_dirty || other.right == Right::Exclusive, "the other node's last level changed without a right")?;
    let modified = state.copies().any(|(_, _, held)| held.copy == Copy::Modified);
    let dirty = modified || other_dirty || home.last_level == LastLevel::Dirty;
    require(dirty || home.memory_version == NEWEST, "the newest version is lost: memory is old and nothing is dirty")?;
    let memory_or_last_level = home.memory_version == NEWEST || home.last_level == LastLevel::Dirty;
    require(home.right != Right::Shared || memory_or_last_level, "a line is shared and its home does not have it")
}
