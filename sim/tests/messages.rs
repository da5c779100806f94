//! What an access makes cross the interconnect and makes memory do: each access, of a line in each state, home to each node.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords, Time};
use conic_sim::{Options, Role, SimCore, Simulation};

use crate::common::without_prefetchers;

/// What the accessing core, of node 0, does with the line.
type Access = fn(&SimCore<'_>, Address);

/// Messages with a line and without from node 0 to node 1, the same back; lines that the home's memory reads and writes.
type Counted = [u64; 6];

fn counted(core: &SimCore<'_>, home: usize) -> Counted {
    let machine = core.machine().borrow();
    let [there, back] = [0, 1].map(|from| machine.direction(from).counters());
    let memory = machine.memory(home);
    let crossed = [there.data_messages, there.header_messages, back.data_messages, back.header_messages];
    [crossed[0], crossed[1], crossed[2], crossed[3], memory.reads(), memory.writes()]
}

/// Counts one access to a line of `home`'s memory that another core, of a node, has accessed before.
fn count(forwards: bool, home: usize, before: Option<(usize, Access)>, access: Access) -> Counted {
    let mut parameters = without_prefetchers("icx");
    assert!(parameters.protocol.forwards_clean, "Intel's sockets speak MESIF");
    parameters.protocol.forwards_clean = forwards;
    let of = [Home::Host, Home::Nic][home];
    let mut layout = Layout::new();
    let line = layout.add("line", 64, 64, of, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, Options { checked: true, ..Options::default() });
    if let Some((node, first)) = before {
        simulation.core("first", node, Role::Main, Time::ZERO, move |core| first(core, line));
    }
    let result = Rc::new(Cell::new([0; 6]));
    let into = Rc::clone(&result);
    simulation.core("core", 0, Role::Main, Time::from_nanoseconds(10_000), move |core| {
        let earlier = counted(core, home);
        access(core, line);
        core.full_fence();
        // What is written back without an answer has arrived by then.
        core.work(10_000);
        core.full_fence();
        let now = counted(core, home);
        into.set(std::array::from_fn(|index| now[index] - earlier[index]));
    });
    simulation.run().expect("the programs end");
    result.get()
}

fn load(core: &SimCore<'_>, line: Address) {
    core.load_acquire(line);
}
fn store(core: &SimCore<'_>, line: Address) {
    core.store(line, 7);
}
fn nontemporal(core: &SimCore<'_>, line: Address) {
    core.write_nontemporal(line, &[Line([7; 8])]);
}

/// A state of the line, and what a load, a store and a non-temporal store make of it.
type Row = (&'static str, Option<(usize, Access)>, [Counted; 3]);

fn check(forwards: bool, home: usize, rows: &[Row]) {
    for (state, before, expected) in rows {
        for ((what, access), expected) in
            [("load", load as Access), ("store", store), ("nontemporal", nontemporal)].into_iter().zip(expected)
        {
            assert_eq!(count(forwards, home, *before, access), *expected, "home {home}, {state}, {what}");
        }
    }
}

#[test]
fn a_line_of_ones_own_memory_asks_the_other_node_only_where_that_may_have_it() {
    // Memory is read beside the snoop, and for nothing where the other node gives the line; what is written whole is not read.
    check(
        true,
        0,
        &[
            ("nobody has it", None, [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]]),
            ("a neighbour read it", Some((0, load)), [[0; 6], [0; 6], [0, 0, 0, 0, 0, 1]]),
            ("a neighbour wrote it", Some((0, store)), [[0; 6], [0; 6], [0, 0, 0, 0, 0, 1]]),
            ("the other read it", Some((1, load)), [[0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]]),
            ("the other wrote it", Some((1, store)), [[0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 0, 1]]),
        ],
    );
}

#[test]
fn without_who_forwards_a_clean_line_of_the_other_node_comes_from_memory() {
    let read = [[0, 1, 0, 1, 1, 0], [0, 1, 0, 1, 1, 0], [0, 1, 0, 1, 0, 1]];
    check(false, 0, &[("the other read it", Some((1, load)), read)]);
}

#[test]
fn a_line_of_the_other_memory_asks_its_home_unless_a_neighbour_has_it_alone() {
    // The directory's entry is written with the line that leaves, unless a core there hands it over, changed or not. A non-temporal
    // store owns the line first and gives it back.
    let past = [1, 1, 0, 1, 1, 2];
    check(
        true,
        1,
        &[
            ("nobody has it", None, [[0, 1, 1, 0, 1, 1], [0, 1, 1, 0, 1, 1], past]),
            ("a neighbour read it", Some((0, load)), [[0; 6], [0; 6], [1, 0, 0, 0, 0, 1]]),
            ("a neighbour wrote it", Some((0, store)), [[0; 6], [0; 6], [1, 0, 0, 0, 0, 1]]),
            ("the other read it", Some((1, load)), [[0, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], past]),
            ("the other wrote it", Some((1, store)), [[0, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], past]),
        ],
    );
}
