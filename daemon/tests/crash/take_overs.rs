//! One daemon takes over from another, and one of the two is stopped at a step of that. Who serves afterwards stands as a table in
//! `daemon/src/server/adopt/leaving.rs`; this is the same one.

use std::path::PathBuf;

use conic_native::clock;

use crate::matrix::{Row, Table, start_daemon};
use crate::served::{Fate, Player, held_by};
use crate::stops::{Blow, Plan, Step};
use crate::support::bystanders::Bystanders;
use crate::support::waiting::{try_until, wait_until};

use After::{Heir, HeirOrNobody, Nobody, Old};

/// Who is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Old,
    Heir,
}

/// Who serves when one of them was killed, or has stood still and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Old,
    Heir,
    Nobody,
    /// The word that decides was said before the death, or not.
    HeirOrNobody,
}

/// What is to come of a stop.
struct Case {
    who: Who,
    name: &'static str,
    killed: After,
    /// Behind a moment in which it stood still.
    stopped: After,
    /// It stands still until frames flow again without it.
    flows_without: bool,
}

const fn case(who: Who, name: &'static str, killed: After, stopped: After) -> Case {
    Case { who, name, killed, stopped, flows_without: false }
}

const CASES: [Case; 12] = [
    case(Who::Heir, "adopt: ask", Old, Heir),
    case(Who::Heir, "adopt: say that it is ready", Old, Heir),
    Case { flows_without: true, ..case(Who::Heir, "adopt: say that everything is its own", Old, Old) },
    case(Who::Heir, "adopt: go on with clients", Nobody, Heir),
    case(Who::Heir, "adopt: begin", Nobody, Heir),
    case(Who::Old, "adopt: say what there is", Nobody, Heir),
    case(Who::Old, "adopt: stop serving", Nobody, Heir),
    case(Who::Old, "adopt: say what is left", Nobody, Heir),
    case(Who::Old, "adopt: say that this was all", Nobody, Heir),
    case(Who::Old, "adopt: hear whose it is", HeirOrNobody, Heir),
    case(Who::Old, "adopt: let everything go", Heir, Heir),
    case(Who::Old, "adopt: say that it is closed", Heir, Heir),
];

/// Stops each of the two at each step, both ways, so many times.
pub fn stop_take_overs(rounds: u64) -> Table {
    let mut table = Table::new();
    for case in (0..rounds).flat_map(|_| &CASES) {
        let phase = if case.who == Who::Old { "old one" } else { "new one" };
        let step = Step { phase: phase.to_owned(), name: case.name.to_owned(), place: "-".to_owned() };
        let row = table.entry(step).or_default();
        attempt(case, Blow::Kill, row);
        attempt(case, Blow::Stop, row);
    }
    table
}

fn attempt(case: &Case, blow: Blow, row: &mut Row) {
    let own = held_by("self");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let step = Step { phase: "daemon".to_owned(), name: case.name.to_owned(), place: "-".to_owned() };
    let plan = Plan { step, occurrence: 1, blow };
    let mut old = start_daemon(&socket, (case.who == Who::Old).then_some(&plan));
    let after = if blow == Blow::Kill { case.killed } else { case.stopped };
    let mut all = Bystanders::attach(&socket, matches!(after, Nobody | HeirOrNobody)).expect("the bystanders attach");
    flow(&mut all, &plan);
    let baseline = old.holds();
    let text = plan.to_text();
    let mut heir = Player::start("heir", &socket, Some(if case.who == Who::Heir { &text } else { "-" }));
    let victim = if case.who == Who::Old { &mut old } else { &mut heir };
    let mut fate = None;
    wait_until(&format!("{plan:?}: it is stopped"), || {
        all.step();
        fate = victim.fate(false);
        fate.is_some()
    });
    let stopped = clock::now();
    match blow {
        Blow::Kill => {
            assert_eq!(fate, Some(Fate::Killed), "{plan:?}");
            row.kills += 1;
        }
        Blow::Stop => {
            assert_eq!(fate, Some(Fate::Stopped), "{plan:?}");
            row.stops += 1;
            (0..100).for_each(|_| all.step());
            if case.flows_without {
                flow(&mut all, &plan);
            }
            victim.go_on();
        }
    }
    // It says so when it serves, and else ends.
    let serves = heir.is_ready();
    let pair = Pair { old, heir, socket, plan: plan.clone() };
    match after {
        Old => pair.must_leave_the_old_one(serves, &mut all, baseline),
        Heir => pair.must_leave_the_new_one(serves, &mut all),
        HeirOrNobody if serves => pair.must_leave_the_new_one(serves, &mut all),
        Nobody | HeirOrNobody => pair.must_leave_nobody(serves, &mut all),
    }
    row.microseconds.push(clock::now().since(stopped).nanoseconds() / 1000);
    drop(all);
    assert_eq!(held_by("self"), own, "{plan:?}: clients of daemons that are gone hold something");
}

/// The two of which one was stopped.
struct Pair {
    old: Player,
    heir: Player,
    socket: PathBuf,
    plan: Plan,
}

impl Pair {
    fn must_leave_the_old_one(mut self, serves: bool, all: &mut Bystanders, baseline: (usize, usize)) {
        let Pair { old, heir, socket, plan } = &mut self;
        assert!(!serves, "{plan:?}: both serve");
        let fate = heir.fate(true);
        assert!(matches!(fate, Some(Fate::Killed | Fate::Ended(1))), "{plan:?}: the new one ended so: {fate:?}");
        flow(all, plan);
        assert_eq!(old.fate(false), None, "{plan:?}: the old one has ended");
        let held = try_until("it holds what it held before", || {
            all.step();
            old.holds() == baseline
        });
        held.unwrap_or_else(|why| panic!("{plan:?}: {why}: {:?} instead of {baseline:?}", old.holds()));
        // It has all that another needs still.
        let mut next = Player::start("heir", socket, None);
        let serves = next.is_ready();
        Pair { heir: next, ..self }.must_leave_the_new_one(serves, all);
    }

    fn must_leave_the_new_one(self, serves: bool, all: &mut Bystanders) {
        let Pair { mut old, mut heir, plan, .. } = self;
        assert!(serves, "{plan:?}: the new one ended so: {:?}", heir.fate(true));
        let fate = old.fate(true);
        assert!(matches!(fate, Some(Fate::Killed | Fate::Ended(0))), "{plan:?}: the old one ended so: {fate:?}");
        flow(all, &plan);
        let lost = (all.lost(), all.sessions());
        assert_eq!(lost, (0, [0; 3]), "{plan:?}: bystanders lost frames, or their sessions");
        assert_eq!(heir.end().0, Fate::Ended(0), "{plan:?}: the new one at its end");
    }

    fn must_leave_nobody(self, serves: bool, all: &mut Bystanders) {
        let Pair { mut old, mut heir, socket, plan } = self;
        assert!(!serves, "{plan:?}: the new one says that it serves");
        let fates = [&mut old, &mut heir].map(|one| one.fate(true));
        // One of them was killed, and the other has nothing to serve with.
        let right =
            matches!(fates, [Some(Fate::Killed), Some(Fate::Ended(1))] | [Some(Fate::Ended(0)), Some(Fate::Killed)]);
        assert!(right, "{plan:?}: {fates:?}");
        wait_until("all find that nobody is there", || all.have_noticed());
        let next = start_daemon(&socket, None);
        wait_until("all are attached again", || all.is_up());
        flow(all, &plan);
        assert!(all.sessions().iter().all(|&count| count == 1), "{plan:?}: {:?} sessions", all.sessions());
        assert_eq!(next.end().0, Fate::Ended(0), "{plan:?}: the next one at its end");
    }
}

/// Frames flow.
fn flow(all: &mut Bystanders, plan: &Plan) {
    let target = all.received() + 200;
    let flows = try_until("frames flow", || {
        all.step();
        all.received() >= target
    });
    flows.unwrap_or_else(|why| panic!("{plan:?}: {why}: {}", all.describe()));
}
