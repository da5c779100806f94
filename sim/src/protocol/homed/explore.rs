//! Every interleaving of one line between the CPU's cache and a device that answers and recalls whenever it may.
//!
//! Once for a cache that answers a recall with the line, and once for one that writes a changed line back first.
//!
//! While a recall is under way the CPU asks for nothing but to write a copy that it has: see the races of [`super`].

use std::collections::BTreeSet;

use super::{Access, Cached, Copy, Entry, Recall, ToCache, ToHome};

/// A mistake, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// A cache that waits to write a shared copy keeps it when it is recalled.
    KeepsSharedCopy,
    /// It gives the copy up, and forgets the recall before the grant comes.
    ForgetsRecall,
    /// The home takes "I had nothing" for the end of a recall.
    DoesNotWaitForVictim,
    /// The home answers a request before it has the victim that was sent before it.
    AnswersBeforeVictim,
    /// A cache gives a modified line up as if it were clean.
    EvictsAsClean,
    /// A recalled line stays locked.
    ForgetsUnlock,
    /// The home does not say that it has a line.
    ForgetsWritten,
    /// A cache that writes a line back for a recall forgets that one waits for that.
    ForgetsWritingBack,
}

/// What a cache does, and what is wrong.
#[derive(Clone, Copy, Debug)]
struct Rules {
    writes_back_first: bool,
    mutation: Mutation,
}

/// So many words of the home that it has a line are under way when the cache gives one up by itself, or the home recalls one, at most: the
/// cache needs none of them to go on, so that there could be any number.
const MOST_WRITTEN: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    /// The data is the newest, where there is any.
    ToHome(ToHome, bool),
    ToCache(ToCache, bool),
}

/// Data is the newest or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    cached: Cached,
    cache_is_newest: bool,
    entry: Entry,
    home_is_newest: bool,
    messages: Vec<Message>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Load,
    Store,
    Evict,
    Answer(bool),
    Recall,
    Unlock,
    Arrive(usize),
}

impl State {
    fn steps(&self, rules: Rules) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..self.messages.len()).map(Step::Arrive).collect();
        let quiet = self.entry.recall == Recall::None;
        if self.cached.asked.is_none() {
            if quiet || self.cached.copy != Copy::Invalid {
                steps.extend([Step::Load, Step::Store]);
            }
            if self.cached.may_evict() && self.written_under_way() < MOST_WRITTEN {
                steps.push(Step::Evict);
            }
        }
        if let (Some(write), true) = (self.entry.open, quiet) {
            steps.push(Step::Answer(true));
            if !write {
                steps.push(Step::Answer(false));
            }
        }
        // Neither a load that waits nor one on its way: see the module's comment.
        let reads = |asked: Option<bool>| asked.is_some() && self.cached.copy == Copy::Invalid;
        let may_recall = self.written_under_way() < MOST_WRITTEN && !reads(self.cached.asked);
        if quiet && self.entry.granted.is_some() && may_recall {
            steps.push(Step::Recall);
        }
        if self.entry.recall == Recall::Locked && rules.mutation != Mutation::ForgetsUnlock {
            steps.push(Step::Unlock);
        }
        steps
    }

    /// Words that the home has a line, and victims of which it will say so.
    fn written_under_way(&self) -> usize {
        let is_one = |message: &&Message| {
            matches!(
                message,
                Message::ToCache(ToCache::Written, _) | Message::ToHome(ToHome::Victim { dirty: true }, _)
            )
        };
        self.messages.iter().filter(is_one).count()
    }

    fn send_home(&mut self, message: ToHome) {
        self.messages.push(Message::ToHome(message, self.cache_is_newest));
        self.messages.sort_unstable();
    }

    fn access(&mut self, write: bool) -> Result<(), String> {
        match self.cached.access(write) {
            Access::Hit if write => {
                // Whatever else there is, is old now.
                self.home_is_newest = false;
                for message in &mut self.messages {
                    let (Message::ToHome(_, newest) | Message::ToCache(_, newest)) = message;
                    *newest = false;
                }
                self.messages.sort_unstable();
                self.cache_is_newest = true;
            }
            Access::Hit if !self.cache_is_newest => return Err("a load reads old data".to_owned()),
            Access::Hit | Access::Waits => {}
            Access::Miss(request) => self.send_home(request),
        }
        Ok(())
    }

    fn take(&mut self, step: Step, rules: Rules) -> Result<(), String> {
        match step {
            Step::Load => self.access(false),
            Step::Store => self.access(true),
            Step::Evict => {
                let ToHome::Victim { dirty } = self.cached.evict() else { return Err("not a victim".to_owned()) };
                self.send_home(ToHome::Victim { dirty: dirty && rules.mutation != Mutation::EvictsAsClean });
                Ok(())
            }
            Step::Answer(exclusive) => {
                let grant = self.entry.answer(exclusive);
                self.messages.push(Message::ToCache(grant, self.home_is_newest));
                self.messages.sort_unstable();
                Ok(())
            }
            Step::Recall => {
                let recall = self.entry.recall();
                self.messages.push(Message::ToCache(recall, false));
                self.messages.sort_unstable();
                Ok(())
            }
            Step::Unlock => {
                self.entry.unlock();
                Ok(())
            }
            Step::Arrive(place) => match self.messages.remove(place) {
                Message::ToHome(message, newest) => self.at_home(message, newest, rules),
                Message::ToCache(message, newest) => self.at_cache(message, newest, rules),
            },
        }
    }

    fn at_home(&mut self, message: ToHome, newest: bool, rules: Rules) -> Result<(), String> {
        if let ToHome::Victim { dirty: true } | ToHome::Recalled { dirty: true, .. } = message {
            self.home_is_newest = newest;
        }
        let is_told = rules.writes_back_first && rules.mutation != Mutation::ForgetsWritten;
        if is_told && matches!(message, ToHome::Victim { dirty: true }) {
            self.messages.push(Message::ToCache(ToCache::Written, false));
            self.messages.sort_unstable();
        }
        if rules.mutation == Mutation::AnswersBeforeVictim && matches!(message, ToHome::Request { .. }) {
            self.entry.granted = None;
        }
        self.entry.handle(message).map_err(|error| error.to_string())?;
        if rules.mutation == Mutation::DoesNotWaitForVictim && self.entry.recall == Recall::AwaitsVictim {
            self.entry.recall_is_done();
        }
        if self.entry.recall == Recall::Locked && !self.home_is_newest {
            return Err("a recall is done, and the home has old data".to_owned());
        }
        Ok(())
    }

    fn at_cache(&mut self, message: ToCache, newest: bool, rules: Rules) -> Result<(), String> {
        let answer = match message {
            ToCache::Recall if rules.mutation == Mutation::KeepsSharedCopy && self.cached.asked == Some(true) => {
                Some(ToHome::Recalled { found: true, dirty: false })
            }
            ToCache::Recall => {
                let answer =
                    if rules.writes_back_first { self.cached.recalled_writing_back() } else { self.cached.recalled() };
                if rules.mutation == Mutation::ForgetsWritingBack {
                    self.cached.writing_back = false;
                }
                if rules.mutation == Mutation::ForgetsRecall && self.cached.recall == Some(true) {
                    self.cached.recall = None;
                }
                answer
            }
            ToCache::Written => self.cached.written(),
            ToCache::Grant { exclusive } => {
                let write = self.cached.asked.ok_or("a grant that nobody asked for")?;
                self.cached.granted(exclusive);
                self.cache_is_newest = newest;
                self.access(write)?;
                self.cached.settle()
            }
        };
        if let Some(answer) = answer {
            self.send_home(answer);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let permitted = [Copy::Invalid, Copy::Shared, Copy::Modified]
            [self.entry.granted.map_or(0, |exclusive| 1 + usize::from(exclusive))];
        if self.cached.copy > permitted {
            return Err(format!("the cache has {:?}, and the directory {:?}", self.cached.copy, self.entry));
        }
        if self.cached.copy != Copy::Invalid && !self.cache_is_newest {
            return Err("the cache has old data".to_owned());
        }
        Ok(())
    }
}

/// How many states there are, or what is wrong in one.
fn explore(rules: Rules) -> Result<usize, String> {
    let start = State {
        cached: Cached::default(),
        cache_is_newest: false,
        entry: Entry::default(),
        home_is_newest: true,
        messages: Vec::new(),
    };
    let mut known = BTreeSet::from([start.clone()]);
    let mut frontier = vec![start];
    while let Some(state) = frontier.pop() {
        let steps = state.steps(rules);
        let progress = |step: &Step| matches!(step, Step::Arrive(_) | Step::Answer(_) | Step::Unlock);
        if state.cached.asked.is_some() && !steps.iter().any(progress) {
            return Err(format!("deadlock: {state:?}"));
        }
        if matches!(state.entry.recall, Recall::Sent | Recall::AwaitsVictim) && state.messages.is_empty() {
            return Err(format!("a recall has no answer, and none is on its way: {state:?}"));
        }
        for step in steps {
            let mut after = state.clone();
            after
                .take(step, rules)
                .and_then(|()| after.check())
                .map_err(|why| format!("{why}: {step:?} in {state:?}"))?;
            // The version of data that is not there does not matter.
            after.cache_is_newest &= after.cached.copy != Copy::Invalid;
            if known.insert(after.clone()) {
                frontier.push(after);
            }
        }
    }
    Ok(known.len())
}

#[test]
fn a_line_is_coherent_whatever_its_home_does() {
    for (writes_back_first, expected) in [(false, 61), (true, 141)] {
        let states = explore(Rules { writes_back_first, mutation: Mutation::None });
        let states = states.unwrap_or_else(|fault| panic!("{fault}"));
        println!("writes back first {writes_back_first}: {states} states");
        assert_eq!(states, expected);
    }
}

#[test]
fn a_planted_mistake_is_found() {
    let of_both = [
        Mutation::KeepsSharedCopy,
        Mutation::ForgetsRecall,
        Mutation::DoesNotWaitForVictim,
        Mutation::AnswersBeforeVictim,
        Mutation::EvictsAsClean,
        Mutation::ForgetsUnlock,
    ];
    let of_one = [Mutation::ForgetsWritten, Mutation::ForgetsWritingBack];
    let both = [false, true].into_iter().flat_map(|first| of_both.map(|mutation| (first, mutation)));
    for (writes_back_first, mutation) in both.chain(of_one.map(|mutation| (true, mutation))) {
        let found = explore(Rules { writes_back_first, mutation });
        let fault = found.expect_err(&format!("{mutation:?} is not found, writes back first: {writes_back_first}"));
        println!("{mutation:?}: {fault}");
    }
}

#[test]
fn a_message_that_cannot_be_is_refused_and_changes_nothing() {
    let mut entry = Entry::default();
    for message in [ToHome::Victim { dirty: true }, ToHome::Recalled { found: true, dirty: false }] {
        let refused = entry.handle(message).expect_err("nothing was granted, and nothing recalled");
        assert!(refused.to_string().contains("came for a line"), "{refused}");
        assert_eq!(entry, Entry::default());
    }
    assert_eq!(
        entry.handle(ToHome::Request { write: false, has_copy: false }).map(|heard| heard.request),
        Ok(Some(false))
    );
    assert!(entry.handle(ToHome::Request { write: true, has_copy: false }).is_err());
}
