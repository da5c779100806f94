//! Which messages cross between the nodes for each access in each state of the line.

use super::state::{Setting, State};
use super::step::{Change, Step, deliveries, initiatives};
use super::{FORWARDS, MAIN, Mutation, SNOOPS_SHARED, choices};
use crate::protocol::{Ask, ToHome};

/// A machine in which one thing happens after the other.
struct Quiet {
    setting: Setting,
    state: State,
}

impl Quiet {
    fn new(bits: u32, device: usize) -> Quiet {
        let setting =
            Setting { cores: [2, 2], device: Some(device), past_caches: true, recalls: false, choices: choices(bits) };
        Quiet { state: State::new(&setting), setting }
    }

    /// Takes a step and lets everything that follows happen; gives the messages that cross, in order.
    ///
    /// | letter | message |
    /// |---|---|
    /// | `r` | a request |
    /// | `s` | a snoop |
    /// | `a`, `A` | its answer; with the line |
    /// | `g`, `G` | a grant or the end of a write; with the line |
    /// | `B` | a write-back |
    fn take(&mut self, step: Step) -> String {
        let mut crossed = String::new();
        let mut next = vec![step];
        while let Some(&step) = next.first() {
            if let Step::Cross(from, place) = step {
                crossed += letter(&self.state.nodes[usize::from(from)].out[usize::from(place)]);
            }
            let mut change = Change { setting: &self.setting, mutation: Mutation::None, state: &mut self.state };
            change.take(step).expect("the protocol allows it");
            next.clear();
            deliveries(&self.setting, Mutation::None, &self.state, &mut next);
        }
        crossed
    }

    /// Takes a step, if it may happen.
    fn prepare(&mut self, step: Step) {
        let mut possible = Vec::new();
        initiatives(&self.setting, Mutation::None, &self.state, &mut possible);
        assert!(possible.contains(&step), "{step:?} is not possible");
        self.take(step);
    }
}

fn letter(message: &ToHome) -> &'static str {
    match message {
        ToHome::Request { .. } => "r",
        ToHome::Snoop(_) => "s",
        ToHome::NodeFound(found) if found.data => "A",
        ToHome::NodeFound(_) => "a",
        ToHome::Reply { data: true, .. } => "G",
        ToHome::Reply { .. } => "g",
        ToHome::WriteBack { .. } => "B",
        // The model's own; it takes no slot.
        ToHome::Complete => "",
        _ => panic!("{message:?} stays in its node"),
    }
}

/// The steps that make a state; core 1 of a node has what the state says, core 0 asks.
fn steps_to(state: &str) -> Vec<Step> {
    use Step::{Access, Evict};
    let modified = |node| vec![Access(node, 1, Ask::Own), Access(node, 1, Ask::Own)];
    let shared = vec![Access(0, 1, Ask::Read), Access(1, 1, Ask::Read)];
    match state {
        "nobody has it" => vec![],
        "exclusive at home" => vec![Access(0, 1, Ask::Read)],
        "exclusive at the other" => vec![Access(1, 1, Ask::Read)],
        "modified at home" => modified(0),
        "modified at the other" => modified(1),
        "shared by both" => shared,
        "shared by both, and the asker at home" => [shared, vec![Access(0, 0, Ask::Read)]].concat(),
        "shared by both, and the asker at the other" => [shared, vec![Access(1, 0, Ask::Read)]].concat(),
        "forwarded by the other alone" => [shared, vec![Evict(0, 1), Step::EvictLastLevel(0)]].concat(),
        "shared by the other alone" => {
            vec![Access(1, 1, Ask::Read), Access(0, 1, Ask::Read), Evict(0, 1), Step::EvictLastLevel(0)]
        }
        "in the last level at home" => [vec![Access(0, 1, Ask::Read)], vec![Evict(0, 1)]].concat(),
        "in the last level at the other" => [vec![Access(1, 1, Ask::Read)], vec![Evict(1, 1)]].concat(),
        "dirty in the last level at home" => [modified(0), vec![Evict(0, 1)]].concat(),
        "dirty in the last level at the other" => [modified(1), vec![Evict(1, 1)]].concat(),
        _ => panic!("no such state: {state}"),
    }
}

const ACCESSES: [Ask; 6] = [Ask::Read, Ask::Own, Ask::OwnWhole, Ask::WriteMemory, Ask::ReadCurrent, Ask::WriteCache];

/// The state; then what crosses for each of [`ACCESSES`] by a core or a device at home, and at the other node.
///
/// An access in the node that alone has the line needs nothing from the other; to own what both share costs a round trip
/// without data; a line that only the home has comes with its grant, unless all of it is written; what the other node has
/// modified, or has clean and forwards, comes with its answer, unless all of it is written. A write to the other node's memory owns the
/// line first and then gives it back.
const TABLE: &[(&str, [&str; 6], [&str; 6])] = &[
    ("nobody has it", ["", "", "", "", "", ""], ["rG", "rG", "rg", "rgB", "rG", "rg"]),
    ("exclusive at home", ["", "", "", "", "", ""], ["rG", "rG", "rg", "rgB", "rG", "rg"]),
    ("modified at home", ["", "", "", "", "", ""], ["rG", "rG", "rg", "rgB", "rG", "rg"]),
    ("in the last level at home", ["", "", "", "", "", ""], ["rG", "rG", "rg", "rgB", "rG", "rg"]),
    ("dirty in the last level at home", ["", "", "", "", "", ""], ["rG", "rG", "rg", "rgB", "rG", "rg"]),
    ("exclusive at the other", ["sA", "sA", "sa", "sa", "sA", "sa"], ["", "", "", "B", "", ""]),
    ("in the last level at the other", ["sA", "sA", "sa", "sa", "sA", "sa"], ["", "", "", "B", "", ""]),
    ("modified at the other", ["sA", "sA", "sA", "sA", "sA", "sA"], ["", "", "", "B", "", ""]),
    ("dirty in the last level at the other", ["sA", "sA", "sA", "sA", "sA", "sA"], ["", "", "", "B", "", ""]),
    ("shared by both", ["", "sa", "sa", "sa", "", "sa"], ["", "rg", "rg", "rgB", "", "rg"]),
    ("shared by both, and the asker at home", ["", "sa", "sa", "sa", "", "sa"], ["", "rg", "rg", "rgB", "", "rg"]),
    ("shared by both, and the asker at the other", ["", "sa", "sa", "sa", "", "sa"], ["", "rg", "rg", "rgB", "", "rg"]),
    ("forwarded by the other alone", ["", "sA", "sa", "sa", "", "sa"], ["", "rg", "rg", "rgB", "", "rg"]),
    ("shared by the other alone", ["", "sa", "sa", "sa", "", "sa"], ["", "rg", "rg", "rgB", "", "rg"]),
];

fn messages(bits: u32, state: &str, node: usize, ask: Ask) -> String {
    let mut quiet = Quiet::new(bits, node);
    steps_to(state).into_iter().for_each(|step| quiet.prepare(step));
    quiet.take(match ask {
        Ask::ReadCurrent | Ask::WriteCache => Step::Device(ask, false),
        ask => Step::Access(node as u8, 0, ask),
    })
}

#[test]
fn each_access_in_each_state_sends_the_messages_that_the_table_says() {
    for (state, at_home, at_other) in TABLE {
        for (node, expected) in [at_home, at_other].into_iter().enumerate() {
            let crossed = ACCESSES.map(|ask| messages(MAIN[0], state, node, ask));
            assert_eq!(&crossed, expected, "node {node} asks for a line that is {state}: {ACCESSES:?}");
        }
    }
}

/// What crosses for each access of a node in a state, with other choices than [`TABLE`]'s.
fn expected_with(bits: u32, state: &str, node: usize) -> [String; 6] {
    const EXCLUSIVE_GRANT: u32 = 0b00100;
    // The other node's first read makes it who forwards, and the home's read after it does not ask it.
    let as_state = match state {
        "exclusive at the other" | "in the last level at the other" | "shared by the other alone"
            if bits & EXCLUSIVE_GRANT == 0 =>
        {
            "forwarded by the other alone"
        }
        state => state,
    };
    let (_, at_home, at_other) = TABLE.iter().find(|(state, ..)| *state == as_state).expect("it has a row");
    let mut expected = [at_home, at_other][node].map(str::to_owned);
    let asks_sharers = bits & SNOOPS_SHARED != 0 && node == 0;
    if asks_sharers && as_state.ends_with("by the other alone") {
        let answer = if as_state.starts_with("forwarded") { "sA" } else { "sa" };
        (expected[0], expected[4]) = (answer.to_owned(), answer.to_owned());
    }
    if bits & FORWARDS == 0 && !as_state.contains("modified") && !as_state.contains("dirty") {
        // MESI: a clean line comes from memory.
        expected.iter_mut().for_each(|messages| *messages = messages.replace('A', "a"));
    }
    expected
}

#[test]
fn only_the_exclusive_grant_forwarding_and_asking_sharers_change_what_an_access_sends() {
    for bits in (0..7).map(|bit| MAIN[0] ^ 1 << bit).chain([MAIN[0] ^ (FORWARDS | SNOOPS_SHARED)]) {
        for (state, ..) in TABLE {
            for node in 0..2 {
                let crossed = ACCESSES.map(|ask| messages(bits, state, node, ask));
                assert_eq!(crossed, expected_with(bits, state, node), "choices {bits:#b}, node {node}, {state}");
            }
        }
    }
}

#[test]
fn who_had_a_line_last_forwards_it_once() {
    // Asked for a read, it gives the line and is no longer who forwards: the home, which lost its copies again, gets it from memory.
    let mut quiet = Quiet::new(MAIN[0] | SNOOPS_SHARED, 0);
    steps_to("forwarded by the other alone").into_iter().for_each(|step| quiet.prepare(step));
    let read = Step::Access(0, 0, Ask::Read);
    assert_eq!(quiet.take(read), "sA");
    quiet.prepare(Step::Evict(0, 0));
    quiet.prepare(Step::EvictLastLevel(0));
    assert_eq!(quiet.take(read), "sa");
    // The other node asks again for what it gave up in silence, and is the last again.
    for step in [Step::Evict(1, 1), Step::EvictLastLevel(1)] {
        quiet.prepare(step);
    }
    assert_eq!(quiet.take(Step::Access(1, 0, Ask::Read)), "rG");
    quiet.prepare(Step::Evict(0, 0));
    quiet.prepare(Step::EvictLastLevel(0));
    assert_eq!(quiet.take(read), "sA");
}

#[test]
fn a_migrating_line_comes_once_and_another_must_be_owned_after_it_was_read() {
    const MIGRATORY: u32 = 0b00001;
    for (node, apart) in [(0, ["sA", "sa"]), (1, ["rG", "rg"])] {
        let state = ["modified at the other", "modified at home"][node as usize];
        for (bits, expected) in [(MAIN[0], [apart[0], ""]), (MAIN[0] ^ MIGRATORY, apart)] {
            let mut quiet = Quiet::new(bits, 0);
            steps_to(state).into_iter().for_each(|step| quiet.prepare(step));
            let crossed = [Ask::Read, Ask::Own].map(|ask| quiet.take(Step::Access(node, 0, ask)));
            assert_eq!(crossed, expected, "node {node} reads and writes a line that is {state}, choices {bits:#b}");
        }
    }
}

#[test]
fn only_what_the_other_node_has_changed_is_written_back_across() {
    for (state, node, expected) in [
        ("in the last level at home", 0, ""),
        ("dirty in the last level at home", 0, ""),
        ("in the last level at the other", 1, ""),
        ("dirty in the last level at the other", 1, "B"),
    ] {
        let mut quiet = Quiet::new(MAIN[0], 0);
        steps_to(state).into_iter().for_each(|step| quiet.prepare(step));
        assert_eq!(quiet.take(Step::EvictLastLevel(node)), expected, "{state}");
    }
    for (state, node) in [("modified at home", 0), ("modified at the other", 1)] {
        let mut quiet = Quiet::new(MAIN[0], 0);
        steps_to(state).into_iter().for_each(|step| quiet.prepare(step));
        assert_eq!(quiet.take(Step::Evict(node, 1)), "", "its node's last level keeps it: {state}");
    }
}
