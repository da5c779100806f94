//! Every interleaving of one line among two caches on the memory bus and one behind a bridge, with its home on either side.
//!
//! Data is a version: how many stores it has seen. A bus serves one transaction at a time, so that each is one step; only what the
//! bridge buffers is two.

use std::collections::BTreeSet;

use super::{Access, Copy, Transaction};

/// The caches: two on the memory bus and one behind the bridge. Without a bridge all three are on the memory bus.
const CACHES: usize = 3;
const BEHIND: usize = 2;

/// A mistake, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// Who has modified a line and is read from goes on as if it were the only one.
    StaysModified,
    /// The home answers although a cache has the line newer.
    HomeSupplies,
    /// A reader takes the line as the only one though others have it.
    TakesExclusive,
    /// An invalidation leaves shared copies.
    KeepsShared,
    /// An owner gives the line up as if its home had it.
    DropsOwned,
    /// The bridge lets others pass while it holds an invalidation.
    PassesPending,
    /// The bridge forgets an invalidation that it has answered.
    ForgetsPosted,
    /// The bridge answers who has no copy, and writes all of the line, at once.
    PostsWithoutCopy,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    bridge: bool,
    mutation: Mutation,
}

/// Versions beyond this are not told apart from it: stores stop there.
const MOST: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    copies: [Copy; CACHES],
    data: [u8; CACHES],
    home: u8,
    /// The newest version.
    newest: u8,
    /// What each cache's program has seen, so that it never sees less.
    seen: [u8; CACHES],
    /// An invalidation that the bridge holds, by whose it is.
    posted: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access(usize, Access),
    Evict(usize),
    Bridge,
}

impl State {
    const START: State = State {
        copies: [Copy::Invalid; CACHES],
        data: [0; CACHES],
        home: 0,
        newest: 0,
        seen: [0; CACHES],
        posted: None,
    };

    fn steps(&self, rules: Rules) -> Vec<Step> {
        let mut steps: Vec<Step> = self.posted.map(|_| Step::Bridge).into_iter().collect();
        for cache in 0..CACHES {
            steps.push(Step::Access(cache, Access::Load));
            if self.newest < MOST {
                steps.extend([Access::Store, Access::StoreWhole].map(|access| Step::Access(cache, access)));
            }
            if self.copies[cache] != Copy::Invalid {
                steps.push(Step::Evict(cache));
            }
        }
        // There is one line, which the bridge may hold an invalidation of.
        let pending = self.posted.is_some() && rules.mutation != Mutation::PassesPending;
        let may_go = |step: &Step| match *step {
            Step::Bridge => true,
            Step::Evict(cache) => self.copies[cache].evicted().is_none() || !pending,
            Step::Access(cache, access) => self.copies[cache].needs(access).is_none() || !pending,
        };
        steps.retain(may_go);
        steps
    }

    /// Lets the caches of one side, or of both, snoop a transaction; gives whether one had a copy, and the data of who supplies it.
    fn snoop(
        &mut self,
        rules: Rules,
        asker: usize,
        transaction: Transaction,
        side: Option<bool>,
    ) -> (bool, Option<u8>) {
        let (mut shared, mut supplied) = (false, None);
        for other in (0..CACHES).filter(|other| *other != asker) {
            if side.is_some_and(|behind| behind != (other == BEHIND)) {
                continue;
            }
            let copy = self.copies[other];
            shared |= copy != Copy::Invalid;
            if copy.supplies(transaction) && rules.mutation != Mutation::HomeSupplies {
                supplied = Some(self.data[other]);
            }
            self.copies[other] = match (rules.mutation, copy) {
                (Mutation::StaysModified, Copy::Modified) if transaction == Transaction::Read => copy,
                (Mutation::KeepsShared, Copy::Shared) => copy,
                _ => copy.snooped(transaction),
            };
        }
        (shared, supplied)
    }

    fn take(&mut self, step: Step, rules: Rules) -> Result<(), String> {
        match step {
            Step::Access(cache, access) => self.access(cache, access, rules),
            Step::Evict(cache) => {
                let writes = self.copies[cache].evicted();
                if writes.is_some() && !(rules.mutation == Mutation::DropsOwned && self.copies[cache] == Copy::Owned) {
                    self.home = self.data[cache];
                }
                self.copies[cache] = Copy::Invalid;
                Ok(())
            }
            Step::Bridge => {
                let Some(asker) = self.posted.take() else { return Ok(()) };
                let other_side = asker != BEHIND;
                self.snoop(rules, asker, Transaction::Invalidate, Some(other_side));
                Ok(())
            }
        }
    }

    fn access(&mut self, cache: usize, access: Access, rules: Rules) -> Result<(), String> {
        if let Some(transaction) = self.copies[cache].needs(access) {
            let posts = match rules.mutation {
                Mutation::PostsWithoutCopy => transaction == Transaction::Invalidate,
                _ => self.copies[cache].may_be_posted(transaction),
            };
            let buffered = rules.bridge && posts;
            let own_side = buffered.then_some(cache == BEHIND);
            let (shared, supplied) = self.snoop(rules, cache, transaction, own_side);
            if transaction != Transaction::Invalidate {
                self.data[cache] = supplied.unwrap_or(self.home);
            }
            let shared = shared && rules.mutation != Mutation::TakesExclusive;
            self.copies[cache] = Copy::granted(transaction, shared);
            if buffered && rules.mutation != Mutation::ForgetsPosted {
                self.posted = Some(cache);
            }
        }
        match access {
            Access::Load => {
                if self.data[cache] < self.seen[cache] {
                    return Err(format!("cache {cache} reads version {} after {}", self.data[cache], self.seen[cache]));
                }
                self.seen[cache] = self.data[cache];
            }
            Access::Store | Access::StoreWhole => {
                if access == Access::Store && self.data[cache] != self.newest {
                    return Err(format!("cache {cache} writes a part of version {}", self.data[cache]));
                }
                self.newest += 1;
                (self.data[cache], self.seen[cache]) = (self.newest, self.newest);
            }
        }
        self.copies[cache] = self.copies[cache].after_hit(access);
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        // What an invalidation in the bridge has still to reach does not count.
        let counts = |cache: &usize| match self.posted {
            Some(asker) => *cache == asker || (*cache == BEHIND) == (asker == BEHIND),
            None => true,
        };
        let held: Vec<usize> =
            (0..CACHES).filter(counts).filter(|cache| self.copies[*cache] != Copy::Invalid).collect();
        let has = |wanted: &[Copy]| held.iter().filter(|cache| wanted.contains(&self.copies[**cache])).count();
        if has(&[Copy::Modified, Copy::Exclusive]) > 0 && held.len() > 1 {
            return Err("two copies of what one has alone".to_owned());
        }
        if has(&[Copy::Owned, Copy::Modified]) > 1 {
            return Err("two owners".to_owned());
        }
        if let Some(old) = held.iter().find(|cache| self.data[**cache] != self.newest) {
            return Err(format!("cache {old} has an old copy that nothing is on its way to"));
        }
        if has(&[Copy::Owned, Copy::Modified]) == 0 && self.posted.is_none() && self.home != self.newest {
            return Err("nobody has the newest data".to_owned());
        }
        Ok(())
    }
}

/// How many states there are, or what is wrong in one.
fn explore(rules: Rules) -> Result<usize, String> {
    let mut known = BTreeSet::from([State::START]);
    let mut frontier = vec![State::START];
    while let Some(state) = frontier.pop() {
        for step in state.steps(rules) {
            let mut after = state;
            after
                .take(step, rules)
                .and_then(|()| after.check())
                .map_err(|why| format!("{why}: {step:?} in {state:?}"))?;
            for cache in 0..CACHES {
                // The version of data that is not there does not matter.
                if after.copies[cache] == Copy::Invalid {
                    after.data[cache] = 0;
                }
            }
            if known.insert(after) {
                frontier.push(after);
            }
        }
    }
    Ok(known.len())
}

#[test]
fn a_line_is_coherent_on_a_bus_and_across_a_bridge() {
    for bridge in [false, true] {
        let states = explore(Rules { bridge, mutation: Mutation::None }).unwrap_or_else(|fault| panic!("{fault}"));
        println!("bridge {bridge}: {states} states");
        assert!(states > 500, "bridge {bridge}: {states} states");
    }
}

#[test]
fn a_planted_mistake_is_found() {
    let anywhere = [
        Mutation::StaysModified,
        Mutation::HomeSupplies,
        Mutation::TakesExclusive,
        Mutation::KeepsShared,
        Mutation::DropsOwned,
    ];
    let on_bus = anywhere.map(|mutation| (false, mutation));
    let at_bridge =
        [Mutation::PassesPending, Mutation::ForgetsPosted, Mutation::PostsWithoutCopy].map(|mutation| (true, mutation));
    for (bridge, mutation) in on_bus.into_iter().chain(at_bridge) {
        let fault = explore(Rules { bridge, mutation }).expect_err(&format!("{mutation:?} is not found"));
        println!("{mutation:?}: {fault}");
    }
}

#[test]
fn the_tables_are_what_the_functions_do() {
    use Copy::{Exclusive, Invalid, Modified, Owned, Shared};
    use Transaction::{Invalidate, Read, ReadExclusive};
    let all = [Modified, Exclusive, Owned, Shared, Invalid];
    let needs = |access| all.map(|copy| copy.needs(access));
    assert_eq!(needs(Access::Load), [None, None, None, None, Some(Read)]);
    assert_eq!(needs(Access::Store), [None, None, Some(Invalidate), Some(Invalidate), Some(ReadExclusive)]);
    assert_eq!(needs(Access::StoreWhole), [None, None, Some(Invalidate), Some(Invalidate), Some(Invalidate)]);
    assert_eq!(all.map(|copy| copy.snooped(Read)), [Owned, Shared, Owned, Shared, Invalid]);
    assert_eq!(all.map(|copy| copy.supplies(Read)), [true, false, true, false, false]);
    for transaction in [ReadExclusive, Invalidate] {
        assert_eq!(all.map(|copy| copy.snooped(transaction)), [Invalid; 5]);
        assert_eq!(Copy::granted(transaction, true), Modified);
    }
    assert!(!Modified.supplies(Invalidate) && Owned.supplies(ReadExclusive));
    assert_eq!([Copy::granted(Read, true), Copy::granted(Read, false)], [Shared, Exclusive]);
    let written_back = all.map(|copy| copy.evicted().is_some());
    assert_eq!(written_back, [true, false, true, false, false]);
}
