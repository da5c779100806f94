//! The line-pair protocol of coherent programmed I/O (section 4) as a transition function, without time and without data.
//!
//! A device is home to two groups of lines with alternating roles, and perhaps to overflow lines that both share. The
//! CPU's software writes arguments into the lines of the *current* group (and into overflow lines), then loads from the
//! other one. That load is the signal: the device withholds its answer, takes back whatever the CPU's cache has of the
//! current group and of the overflow lines, and answers when it has a response or must say "try again". The other group
//! is then the current one.
//!
//! | variant | payload of the request | payload of the response | the device responds |
//! |---|---|---|---|
//! | (a), the NIC's transmit | a frame | none | when it has room for it |
//! | (b), the NIC's receive | none | a frame | when one is there |
//! | (c), an invocation | arguments | results | when they are computed |
//!
//! To this function the three are the same; what is in the lines is its caller's. One pair is two groups of one line.
//!
//! # Events and actions
//!
//! Whoever has the coherence messages (a directory controller, [`conic_fabric::HomeAgent`], the exploration) calls
//! [`Exchange::handle`] for each event and then takes [`Exchange::next_action`] until there is none. Nothing allocates.
//!
//! | event | when |
//! |---|---|
//! | `Request(line)` | the CPU's cache asks for a line: a load, a store, or a prefetch missed |
//! | `Evicted(line)` | it gave a line up by itself; its data, if it had changed, lies in the device's copy now |
//! | `Recalled(line)` | a recall is done, and the line is unlocked; data as for an eviction |
//! | `Filled(index)` | the device's function has what will be in a group's `index`-th line of the response, and nothing will change it |
//! | `Responded` | the device's function has a response (at most once for each `Deliver`) |
//! | `Expired(turn)` | the timer of that turn ran out |
//!
//! | action | what to do |
//! |---|---|
//! | `Deliver(group)` | the request is whole, in the device's copy of that group: take it, and respond sooner or later |
//! | `Fill(line)` | write what the response has in it into the device's copy of that line, which is answered next |
//! | `Publish(group, Response)` | write the response into the device's copy of that group, but for lines that were filled, which the CPU's cache may have; the group is the current one from now on |
//! | `Publish(group, TryAgain)` | write "try again" into that group's first line, and nothing else |
//! | `Answer(line)` | answer the CPU's request for it with the device's copy |
//! | `StartTimer(turn)` | a load of the CPU waits from now on |
//! | `Recall(line)` | fetch it back from the CPU's cache, leaving nothing there |
//!
//! # Phases
//!
//! | phase | a request for a line of the other group | any other request | leaves when |
//! |---|---|---|---|
//! | `Idle` | is the signal: `Recalling` | is answered at once, as often as it comes | signalled |
//! | `Recalling` | waits, if it is not filled | waits | all that the CPU had is back: `Working` |
//! | `Working` | waits, if it is not filled | waits | responded, or expired: all waiting requests for the new current group and the overflow lines are answered, `Idle` |
//!
//! # Lines of a response before its end
//!
//! Section 4 has groups of lines as several instances of variant (c), each of which answers its load when it has data to send.
//! Whatever the response has in a line but the first may therefore be `Filled` as soon as there is a request, while others of its
//! lines are still on their way: the load of that line is answered when the line of the same place in the request is back, and does not
//! wait for the others. The first line has the control word and comes last, so that the CPU goes on when all has come. After "try
//! again" what was filled still is, for the lines that the CPU then loads.
//!
//! # Forbidden
//!
//! | move | because |
//! |---|---|
//! | answer a line of the other group before the line of its place in the current one is back | both lines of a pair would be valid in the CPU's cache |
//! | answer the first line of the other group before all recalls are done | the CPU would write the next request while this one's lines are taken |
//! | recall the line whose request waits | the recall waits for that request (the CPU's cache holds it back until then) |
//! | recall what was answered with "try again" before the next signal | the CPU may still read it, and must see it go before it sees the other |
//! | act on the order of requests, or on how many there are | prefetches overtake each other, are dropped, and come twice |
//! | take the request's payload again after "try again" | the load that follows means "go on": there is nothing new |
//! | respond and say "try again" to one signal | a response that is there when the timer runs out is the answer to this signal or to the next, never to both |
//! | the CPU: ask for overflow lines before the control line has come | its request for one that it has just given up would wait for the recall, and the recall for the request |
//! | the CPU: go on before every line that it prefetched has come | a prefetch that comes late would be taken for the next signal |
//!
//! A cache's requests for one line reach this function in order with its evictions: a request says that it has no copy, or asks
//! to write a shared one. The directory that stands before it sees to that (`conic_sim::protocol::homed`).

mod lines;

pub use lines::LineSet;

/// In which order the CPU's copies are taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recalls {
    /// All at once.
    #[default]
    Together,
    /// The group's first, then the overflow lines: the published NIC's transmit, which learns the length from the first.
    OverflowLast,
    /// The overflow lines, then the group's: the published NIC's receive.
    OverflowFirst,
}

/// What an exchange consists of.
///
/// Lines are numbered: the first group's from 0, the second group's from `group`, the overflow lines from `2 * group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Plan {
    /// Lines of each group, at least 1.
    pub group: u16,
    /// Overflow lines.
    pub overflow: u16,
    /// The order of recalls.
    pub recalls: Recalls,
}

impl Plan {
    /// How many lines there are.
    pub fn lines(&self) -> u32 {
        2 * u32::from(self.group) + u32::from(self.overflow)
    }

    /// The number of a line of a group (0 or 1).
    #[inline]
    pub fn line(&self, group: u16, index: u16) -> u16 {
        group * self.group + index
    }

    fn group_set<const WORDS: usize>(&self, group: u32) -> LineSet<WORDS> {
        LineSet::range((group & 1) as u16 * self.group, self.group)
    }

    fn overflow_set<const WORDS: usize>(&self) -> LineSet<WORDS> {
        LineSet::range(2 * self.group, self.overflow)
    }
}

/// What happened; see the table in [`self`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The CPU's cache asks for a line.
    Request(u16),
    /// It gave one up.
    Evicted(u16),
    /// A recall is done.
    Recalled(u16),
    /// The device has what a line of each group, by its place there, has of the response.
    Filled(u16),
    /// The device has a response.
    Responded,
    /// A turn's timer ran out.
    Expired(u32),
}

/// What the CPU's load gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The response.
    Response,
    /// Nothing yet.
    TryAgain,
}

/// What to do; see the table in [`self`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The request is there, in this group.
    Deliver(u16),
    /// Fill the line that is answered next.
    Fill(u16),
    /// Fill the lines that are answered next, of this group.
    Publish(u16, Outcome),
    /// Answer the request for a line.
    Answer(u16),
    /// A load waits since now.
    StartTimer(u32),
    /// Fetch a line back.
    Recall(u16),
}

/// An event that cannot be: the directory, or the device's function, broke the contract. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Violation {
    /// There is no such line.
    NoSuchLine(u16),
    /// The line was asked for and has not been answered.
    AskedTwice(u16),
    /// No recall of this line is under way.
    NotRecalled(u16),
    /// There is nothing to respond to, or there was a response already.
    NothingAsked,
    /// A group has no such line, or it is the first, which is not filled before the response is whole.
    NotFilled(u16),
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Violation::NoSuchLine(line) => write!(f, "there is no line {line}"),
            Violation::AskedTwice(line) => write!(f, "line {line} is asked for while its last request waits"),
            Violation::NotRecalled(line) => write!(f, "line {line} comes back without a recall"),
            Violation::NothingAsked => f.write_str("a response to nothing"),
            Violation::NotFilled(index) => write!(f, "line {index} of a group is not filled before the others"),
        }
    }
}

impl std::error::Error for Violation {}

/// See the table in [`self`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The CPU has its answer.
    Idle,
    /// A load waits, and the CPU's copies are on their way back.
    Recalling,
    /// A load waits, and the device works.
    Working,
}

/// The device's side of one exchange: of one pair of groups of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exchange<const WORDS: usize> {
    plan: Plan,
    phase: Phase,
    /// Answers so far; its parity is the current group.
    turn: u32,
    /// A request was delivered and its response not published.
    pending: bool,
    /// Its response is there.
    ready: bool,
    /// Lines of it that are there before, by their place in a group.
    filled: LineSet<WORDS>,
    /// The turn's timer ran out.
    expired: bool,
    /// What the CPU's cache may have.
    held: LineSet<WORDS>,
    /// What it asked for and was not answered.
    asked: LineSet<WORDS>,
    /// Lines to fill and to answer, and those that were filled since the last signal.
    fills: LineSet<WORDS>,
    given: LineSet<WORDS>,
    /// Answers to give.
    answers: LineSet<WORDS>,
    /// Recalls to start.
    recalls: LineSet<WORDS>,
    /// Recalls to start when those before are done.
    later: LineSet<WORDS>,
    /// Recalls under way.
    recalling: LineSet<WORDS>,
    deliver: Option<u16>,
    publish: Option<(u16, Outcome)>,
    start_timer: bool,
}

impl<const WORDS: usize> Exchange<WORDS> {
    /// An exchange in which the CPU has no line and writes the first group; none if there are more lines than `WORDS`
    /// words have bits, or a group is empty.
    pub fn new(plan: Plan) -> Option<Exchange<WORDS>> {
        (plan.group > 0 && plan.lines() <= LineSet::<WORDS>::CAPACITY).then_some(Exchange {
            plan,
            phase: Phase::Idle,
            turn: 0,
            pending: false,
            ready: false,
            filled: LineSet::EMPTY,
            expired: false,
            held: LineSet::EMPTY,
            asked: LineSet::EMPTY,
            fills: LineSet::EMPTY,
            given: LineSet::EMPTY,
            answers: LineSet::EMPTY,
            recalls: LineSet::EMPTY,
            later: LineSet::EMPTY,
            recalling: LineSet::EMPTY,
            deliver: None,
            publish: None,
            start_timer: false,
        })
    }

    /// The plan.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// How many answers were published. Its lowest bit is the current group.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Whether a response may be given: a request was delivered, and nothing came of it yet.
    pub fn awaits_response(&self) -> bool {
        self.pending && !self.ready
    }

    /// Whether a request is signalled or delivered that has no response, so that lines of one may be filled.
    pub fn may_fill(&self) -> bool {
        (self.phase != Phase::Idle || self.pending) && !self.ready
    }

    /// Whether a line of the current group has come of a request that is signalled and not delivered yet.
    pub fn has_come(&self, line: u16) -> bool {
        self.phase == Phase::Recalling && !self.pending && !self.is_due(line)
    }

    /// The lines of the response that are there before the whole, by their place in a group.
    pub fn filled(&self) -> &LineSet<WORDS> {
        &self.filled
    }

    /// Whether a line was filled since the last signal.
    pub fn was_filled(&self, line: u16) -> bool {
        self.given.contains(line)
    }

    /// Whether the CPU's cache may have a line, or it is on its way back.
    fn is_due(&self, line: u16) -> bool {
        [&self.held, &self.recalls, &self.later, &self.recalling].iter().any(|set| set.contains(line))
    }

    /// The lines that the CPU's cache may have.
    pub fn held(&self) -> &LineSet<WORDS> {
        &self.held
    }

    /// The same exchange as if its turns were counted from 0 again, with the same roles: a finite number of them for an
    /// exploration. Any timer that runs must be renamed with it.
    pub fn with_turns_modulo(mut self, turns: u32) -> Exchange<WORDS> {
        self.turn %= turns & !1;
        self
    }

    /// Takes an event. All actions of the last one must have been taken.
    ///
    /// # Errors
    ///
    /// If it cannot be.
    pub fn handle(&mut self, event: Event) -> Result<(), Violation> {
        if let Event::Request(line) | Event::Evicted(line) | Event::Recalled(line) = event
            && u32::from(line) >= self.plan.lines()
        {
            return Err(Violation::NoSuchLine(line));
        }
        match event {
            Event::Request(line) if self.asked.contains(line) => return Err(Violation::AskedTwice(line)),
            Event::Request(line) => self.asked.insert(line),
            Event::Evicted(line) => {
                self.held.remove(line);
                self.recalls.remove(line);
                self.later.remove(line);
            }
            Event::Recalled(line) if !self.recalling.remove(line) => return Err(Violation::NotRecalled(line)),
            Event::Recalled(line) => drop(self.held.remove(line)),
            Event::Filled(index) if index == 0 || index >= self.plan.group => return Err(Violation::NotFilled(index)),
            Event::Filled(_) if !self.may_fill() => return Err(Violation::NothingAsked),
            Event::Filled(index) => self.filled.insert(index),
            Event::Responded if !self.awaits_response() => return Err(Violation::NothingAsked),
            Event::Responded => self.ready = true,
            Event::Expired(turn) => self.expired |= turn == self.turn && self.phase != Phase::Idle,
        }
        self.advance();
        Ok(())
    }

    /// What to do next, if anything.
    #[inline]
    pub fn next_action(&mut self) -> Option<Action> {
        if let Some(group) = self.deliver.take() {
            return Some(Action::Deliver(group));
        }
        if let Some((group, outcome)) = self.publish.take() {
            return Some(Action::Publish(group, outcome));
        }
        if let Some(line) = self.fills.take_first() {
            self.answers.insert(line);
            self.given.insert(line);
            return Some(Action::Fill(line));
        }
        // Answers before recalls: a line that is answered now may be recalled at once.
        if let Some(line) = self.answers.take_first() {
            return Some(Action::Answer(line));
        }
        if std::mem::take(&mut self.start_timer) {
            return Some(Action::StartTimer(self.turn));
        }
        let line = self.recalls.take_first()?;
        self.recalling.insert(line);
        Some(Action::Recall(line))
    }

    /// Goes on as far as it goes.
    fn advance(&mut self) {
        self.go_on();
        if self.phase != Phase::Idle && !self.filled.is_empty() {
            self.answer_filled();
        }
    }

    fn go_on(&mut self) {
        loop {
            match self.phase {
                Phase::Idle if self.asked.and(&self.plan.group_set(self.turn.wrapping_add(1))).is_empty() => {
                    return self.answer_all(self.asked);
                }
                Phase::Idle => self.signalled(),
                Phase::Recalling if !self.recalls.is_empty() || !self.recalling.is_empty() => return,
                Phase::Recalling if !self.later.is_empty() => {
                    (self.recalls, self.later) = (self.later, LineSet::EMPTY);
                }
                Phase::Recalling => {
                    self.phase = Phase::Working;
                    // After "try again" the request has been delivered before.
                    self.deliver = (!self.pending).then_some((self.turn & 1) as u16);
                    self.pending = true;
                }
                Phase::Working if self.ready => {
                    (self.pending, self.ready, self.filled) = (false, false, LineSet::EMPTY);
                    self.publish(Outcome::Response);
                }
                Phase::Working if self.expired => self.publish(Outcome::TryAgain),
                Phase::Working => return,
            }
        }
    }

    /// The CPU has loaded from the other group: what it has of the current one is the request.
    fn signalled(&mut self) {
        self.phase = Phase::Recalling;
        self.expired = false;
        self.start_timer = true;
        self.given = LineSet::EMPTY;
        let group = self.held.and(&self.plan.group_set(self.turn));
        let overflow = self.held.and(&self.plan.overflow_set());
        (self.recalls, self.later) = match self.plan.recalls {
            Recalls::Together => (group.or(&overflow), LineSet::EMPTY),
            Recalls::OverflowLast => (group, overflow),
            Recalls::OverflowFirst => (overflow, group),
        };
    }

    fn publish(&mut self, outcome: Outcome) {
        self.phase = Phase::Idle;
        self.turn = self.turn.wrapping_add(1);
        self.publish = Some(((self.turn & 1) as u16, outcome));
        self.expired = false;
        let readable = self.plan.group_set(self.turn).or(&self.plan.overflow_set());
        self.answer_all(self.asked.and(&readable));
    }

    /// Answers requests for lines of the other group that are filled, and in whose place the current one's line is back.
    fn answer_filled(&mut self) {
        let mut filled = self.filled;
        while let Some(index) = filled.take_first() {
            let [taken, given] =
                [self.turn, self.turn.wrapping_add(1)].map(|turn| self.plan.line((turn & 1) as u16, index));
            if self.asked.contains(given) && !self.is_due(taken) {
                self.asked.remove(given);
                self.held.insert(given);
                self.fills.insert(given);
            }
        }
    }

    /// Answers requests.
    fn answer_all(&mut self, lines: LineSet<WORDS>) {
        self.answers = self.answers.or(&lines);
        self.asked = self.asked.without(&lines);
        self.held = self.held.or(&lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(exchange: &mut Exchange<1>, event: Event) -> Vec<Action> {
        exchange.handle(event).expect("an event that can be");
        std::iter::from_fn(|| exchange.next_action()).collect()
    }

    #[test]
    fn a_line_is_filled_for_a_request_and_never_a_groups_first() {
        let plan = Plan { group: 2, overflow: 1, recalls: Recalls::Together };
        let mut exchange = Exchange::<1>::new(plan).expect("five lines");
        assert_eq!(exchange.handle(Event::Filled(1)), Err(Violation::NothingAsked));
        assert_eq!(actions(&mut exchange, Event::Request(1)), [Action::Answer(1)]);
        assert_eq!(actions(&mut exchange, Event::Request(3)), [Action::StartTimer(0), Action::Recall(1)]);
        for index in [0, 2, 4] {
            assert_eq!(exchange.handle(Event::Filled(index)), Err(Violation::NotFilled(index)));
        }
        // Filled and asked for, it waits for the line in its place.
        assert!(!exchange.has_come(1) && actions(&mut exchange, Event::Filled(1)).is_empty());
        let back = actions(&mut exchange, Event::Recalled(1));
        assert_eq!(back, [Action::Deliver(0), Action::Fill(3), Action::Answer(3)]);
        assert!(exchange.was_filled(3) && !exchange.was_filled(2));
        // The first one waits for the end, and nothing is filled after it.
        assert!(actions(&mut exchange, Event::Request(2)).is_empty());
        let end = actions(&mut exchange, Event::Responded);
        assert_eq!(end, [Action::Publish(1, Outcome::Response), Action::Answer(2)]);
        assert_eq!(exchange.handle(Event::Filled(1)), Err(Violation::NothingAsked));
    }

    #[test]
    fn turns_may_run_over() {
        let mut exchange =
            Exchange::new(Plan { group: 1, overflow: 0, recalls: Recalls::Together }).expect("two lines");
        exchange.turn = u32::MAX;
        for turn in [u32::MAX, 0] {
            let (current, other) = ((turn & 1) as u16, (turn & 1 ^ 1) as u16);
            assert_eq!(actions(&mut exchange, Event::Request(current)), [Action::Answer(current)]);
            assert_eq!(
                actions(&mut exchange, Event::Request(other)),
                [Action::StartTimer(turn), Action::Recall(current)]
            );
            assert_eq!(actions(&mut exchange, Event::Recalled(current)), [Action::Deliver(current)]);
            let answered = [Action::Publish(other, Outcome::Response), Action::Answer(other)];
            assert_eq!(actions(&mut exchange, Event::Responded), answered);
        }
        assert_eq!(exchange.turn(), 1);
    }
}
