//! Every interleaving of a few operations of a core and of a device on one line.
//!
//! Channels keep their order, and those that the specification lets overtake each other are apart: requests, answers and data to
//! the host; CXL.cache and CXL.mem messages to the device. What is shown: no two copies may be written at once, every valid copy
//! is what was written last, every read returns what the line was at some moment of it, and everything ends.

use std::collections::{BTreeSet, VecDeque};

use conic_check::Visited;
use conic_fabric::StateHint as Hint;

use super::{
    Ask, Bias, Contents, Copy, DeviceLine, Effect, HostLine, Opcode, Operation, Side, Started, ToDevice, ToHost,
    Tracked, WHOLE,
};

impl Contents for u8 {
    fn merge(&mut self, from: &u8, bytes: u64) {
        assert_eq!(bytes, WHOLE, "the exploration writes whole lines");
        *self = *from;
    }
}

/// A mistake, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// A device serves no request for its memory while it waits for the host.
    MemoryWaitsForCache,
    /// A pull is answered with data that a snoop has taken already, as if it were good.
    BogusIsGood,
    /// A copy goes when its write begins, not when it is pulled.
    DropsBeforePull,
    /// A host forwards without writing its modified copy back.
    ForwardsUnwritten,
    /// A snoop passes the grant that was sent before it.
    SnoopPassesGrant,
}

/// What may happen besides the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switching {
    /// Host-bias throughout.
    Never,
    /// The device changes the bias when it likes, and tells nobody.
    Raw,
    /// The device has the host flush first, and meanwhile the host keeps away, as software has to see to.
    Careful,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum HostOperation {
    Load,
    Store,
    Nontemporal,
    Evict,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    host: HostLine<u8>,
    device: DeviceLine<u8>,
    requests: VecDeque<ToHost<u8>>,
    answers: VecDeque<ToHost<u8>>,
    cache: VecDeque<ToDevice<u8>>,
    memory: VecDeque<ToDevice<u8>>,
    /// The core's operation, and whether the home agent has begun it.
    asked: Option<(HostOperation, bool)>,
    /// What the line is, as the writes took effect.
    current: u8,
    written: u8,
    /// What it was since the core's, and the device's, operation began.
    seen: [BTreeSet<u8>; 2],
    left: [u8; 2],
    /// Software's switch to device-bias: what is flushed, and that the host keeps away.
    careful: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub states: usize,
    /// A read that returned what the line no longer was.
    pub stale: bool,
    /// The first fault.
    pub fault: Option<String>,
}

pub(super) struct Question {
    pub home: Side,
    pub mutation: Mutation,
    pub switching: Switching,
    pub operations: [u8; 2],
}

/// Goes through all states.
pub(super) fn explore(question: &Question) -> Found {
    let start = State {
        host: HostLine::new(question.home, 0),
        device: DeviceLine::new(question.home, 0),
        requests: VecDeque::new(),
        answers: VecDeque::new(),
        cache: VecDeque::new(),
        memory: VecDeque::new(),
        asked: None,
        current: 0,
        written: 0,
        seen: [BTreeSet::new(), BTreeSet::new()],
        left: question.operations,
        careful: false,
    };
    let mut found = Found::default();
    let mut visited = Visited::new(start);
    let mut at = 0;
    while let Some(state) = visited.take() {
        let mut step = Step { question, doing: "", found: &mut found, fault: None, next: Vec::new() };
        step.all(&state);
        let Step { fault, next, .. } = step;
        let over = state.asked.is_none() && state.device.pending.is_none() && !state.host.is_busy();
        let stuck = next.is_empty() && !(over && state.left == [0, 0]);
        let fault = fault.or_else(|| stuck.then(|| "nothing can happen any more".to_owned()));
        found.fault = fault.map(|fault| visited.tell(at, None, &fault, &state));
        for (doing, state) in next {
            let fault = fault_of(&state, question).map(|fault| visited.tell(at, Some(doing), fault, &state));
            found.fault = found.fault.or(fault);
            visited.visit(state, at, doing);
        }
        if found.fault.is_some() {
            break;
        }
        at += 1;
    }
    found.states = visited.states();
    found
}

/// What must hold in every state, and does not.
fn fault_of(state: &State, question: &Question) -> Option<&'static str> {
    let (host, device) = (&state.host, &state.device);
    // With changes of bias that nobody is told of, only staleness is of interest.
    if question.switching == Switching::Raw {
        return None;
    }
    let alone = host.copy.is_alone() && device.copy != Copy::Invalid;
    if alone || device.copy.is_alone() && host.copy != Copy::Invalid {
        return Some("a copy that may be written is not alone");
    }
    if host.copy != Copy::Invalid && host.data != state.current {
        return Some("the host's copy is old");
    }
    if device.copy != Copy::Invalid && device.data != state.current {
        return Some("the device's copy is old");
    }
    let modified = host.copy == Copy::Modified || device.copy == Copy::Modified;
    if !modified && state.asked.is_none() && device.pending.is_none() && !host.is_busy() {
        let memory = if question.home == Side::Host { host.memory } else { device.memory };
        // A grant without data leaves memory old until the device has written the line.
        if memory != state.current && host.device != Tracked::Owned {
            return Some("memory is old");
        }
    }
    None
}

struct Step<'a> {
    question: &'a Question,
    /// What the states that are found next are reached by.
    doing: &'static str,
    found: &'a mut Found,
    fault: Option<String>,
    next: Vec<(&'static str, State)>,
}

impl Step<'_> {
    fn reached(&mut self, state: State) {
        self.next.push((self.doing, state));
    }

    fn all(&mut self, state: &State) {
        self.doing = "the core begins";
        self.core_begins(state);
        self.doing = "the core's request is looked up";
        self.core_is_looked_up(state);
        self.doing = "the device begins";
        self.device_begins(state);
        self.doing = "the device's request is looked up";
        self.request_is_looked_up(state);
        self.doing = "the device's answer arrives";
        if !state.answers.is_empty() {
            let mut state = state.clone();
            let answer = state.answers.pop_front().expect("it is not empty");
            self.answered(state, answer);
        }
        self.doing = "a message of CXL.cache arrives";
        self.cache_message(state);
        self.doing = "a message of CXL.mem arrives";
        let waits = self.question.mutation == Mutation::MemoryWaitsForCache && state.device.pending.is_some();
        let forward = state.memory.front() == Some(&ToDevice::MemoryForward);
        if !state.memory.is_empty() && (!waits || forward) {
            let mut state = state.clone();
            let message = state.memory.pop_front().expect("it is not empty");
            self.device_receives(state, message);
        }
    }

    fn core_begins(&mut self, state: &State) {
        if state.asked.is_some() || state.left[0] == 0 || state.careful {
            return;
        }
        for operation in [HostOperation::Load, HostOperation::Store, HostOperation::Nontemporal, HostOperation::Evict] {
            let mut state = state.clone();
            state.left[0] -= 1;
            state.asked = Some((operation, false));
            state.seen[0] = BTreeSet::from([state.current]);
            self.reached(state);
        }
    }

    fn core_is_looked_up(&mut self, state: &State) {
        let Some((operation, false)) = state.asked else { return };
        if state.host.is_busy() {
            return;
        }
        let mut state = state.clone();
        state.asked = Some((operation, true));
        let ask = match operation {
            HostOperation::Load => Ask::Load,
            HostOperation::Store => Ask::Own,
            HostOperation::Nontemporal => {
                state.written += 1;
                Ask::Nontemporal { data: state.written, bytes: WHOLE }
            }
            HostOperation::Evict => Ask::Evict,
        };
        let effects = state.host.begin(ask);
        self.effects(state, effects, true);
    }

    fn device_begins(&mut self, state: &State) {
        if state.device.pending.is_some() {
            return;
        }
        self.switches(state);
        // Between the flush and the change of the bias the device does nothing else.
        if state.left[1] == 0 || state.careful && state.device.bias == Bias::Host {
            return;
        }
        let reads = [Hint::NonCacheable, Hint::CacheableShared, Hint::CacheableOwned].map(|hint| (hint, false));
        let writes = [Hint::NonCacheable, Hint::NonCacheablePush, Hint::CacheableOwned].map(|hint| (hint, true));
        for (hint, write) in reads.into_iter().chain(writes) {
            // A push gives the host a copy, which software keeps away.
            if state.careful && hint == Hint::NonCacheablePush {
                continue;
            }
            let mut state = state.clone();
            state.left[1] -= 1;
            let operation = if write {
                state.written += 1;
                Operation::Write { hint, data: state.written, bytes: WHOLE }
            } else {
                Operation::Read(hint)
            };
            self.device_starts(state, operation);
        }
        let mut state = state.clone();
        state.left[1] -= 1;
        self.device_starts(state, Operation::Evict);
    }

    /// Changes of the bias.
    fn switches(&mut self, state: &State) {
        match (self.question.switching, state.device.bias) {
            (Switching::Raw, bias) if self.question.home == Side::Device => {
                let mut state = state.clone();
                state.device.bias = if bias == Bias::Host { Bias::Device } else { Bias::Host };
                self.reached(state);
            }
            // The host keeps away first, then its caches are flushed, then the bias changes.
            (Switching::Careful, Bias::Host) if !state.careful && state.asked.is_none() => {
                let mut state = state.clone();
                state.careful = true;
                self.device_starts(state, Operation::FlushHost);
            }
            (Switching::Careful, Bias::Host) if state.careful => {
                let mut state = state.clone();
                state.device.bias = Bias::Device;
                self.reached(state);
            }
            (Switching::Careful, Bias::Device) => {
                let mut state = state.clone();
                (state.device.bias, state.careful) = (Bias::Host, false);
                self.reached(state);
            }
            _ => {}
        }
    }

    fn device_starts(&mut self, mut state: State, operation: Operation<u8>) {
        state.seen[1] = BTreeSet::from([state.current]);
        match state.device.start(operation.clone()) {
            Started::Asked(opcode) => {
                let early = matches!(opcode, Opcode::WriteInvalidate { .. } | Opcode::WritePush);
                if self.question.mutation == Mutation::DropsBeforePull && early {
                    state.device.copy = Copy::Invalid;
                }
                state.requests.push_back(ToHost::Request(opcode));
            }
            Started::Done { value, .. } => match operation {
                Operation::Write { data, .. } => written(&mut state, data),
                Operation::Read(_) => self.read(&state, 1, value),
                _ => {}
            },
        }
        self.reached(state);
    }

    fn read(&mut self, state: &State, who: usize, value: u8) {
        if state.seen[who].contains(&value) {
            return;
        }
        self.found.stale = true;
        if self.question.switching != Switching::Raw {
            self.fault.get_or_insert_with(|| {
                format!("a read returned {value}, and the line was one of {:?}", state.seen[who])
            });
        }
    }

    fn request_is_looked_up(&mut self, state: &State) {
        if state.host.is_busy() || state.requests.is_empty() {
            return;
        }
        let mut state = state.clone();
        let Some(ToHost::Request(opcode)) = state.requests.pop_front() else { unreachable!("only requests are here") };
        let mut effects = state.host.begin(Ask::Device(opcode));
        if self.question.mutation == Mutation::ForwardsUnwritten && state.host.is_busy() {
            let write = effects.iter().position(|one| matches!(one, Effect::Send(ToDevice::MemoryWrite { .. })));
            if let Some(place) = write {
                effects[place] = Effect::Send(ToDevice::MemoryForward);
                let home = state.host.home;
                state.host = HostLine::new(home, state.host.memory);
            }
        }
        self.effects(state, effects, false);
    }

    fn answered(&mut self, mut state: State, answer: ToHost<u8>) {
        let mut answer = answer;
        if let (Mutation::BogusIsGood, ToHost::Pulled { bogus, .. }) = (self.question.mutation, &mut answer) {
            *bogus = false;
        }
        let core = matches!(answer, ToHost::Snooped { .. } | ToHost::MemoryData { .. });
        let core = core || answer == ToHost::MemoryDone && matches!(state.asked, Some((_, true)));
        let effects = state.host.receive(answer);
        if matches!(answer, ToHost::Pulled { bogus: false, .. })
            && let Some(Operation::Write { data, .. }) = pulled_write(&state)
        {
            written(&mut state, data);
        }
        self.effects(state, effects, core);
    }

    fn effects(&mut self, mut state: State, effects: Vec<Effect<u8>>, core: bool) {
        for effect in effects {
            match effect {
                Effect::Send(
                    message @ (ToDevice::MemoryRead(_) | ToDevice::MemoryWrite { .. } | ToDevice::MemoryForward),
                ) => {
                    state.memory.push_back(message);
                }
                Effect::Send(message) => state.cache.push_back(message),
                Effect::Done(_) if core => self.core_done(&mut state),
                _ => {}
            }
        }
        self.reached(state);
    }

    fn core_done(&mut self, state: &mut State) {
        let Some((operation, true)) = state.asked.take() else { unreachable!("the core has asked") };
        match operation {
            HostOperation::Load => {
                let value = state.host.data;
                self.read(state, 0, value);
            }
            HostOperation::Store => {
                state.written += 1;
                let value = state.written;
                state.host.write(&value, WHOLE);
                written(state, value);
            }
            // It took effect where memory was written: for a line of the host, now.
            HostOperation::Nontemporal if state.host.home == Side::Host => {
                let value = state.host.memory;
                written(state, value);
            }
            HostOperation::Nontemporal | HostOperation::Evict => {}
        }
    }

    fn cache_message(&mut self, state: &State) {
        let mut passes = vec![0];
        let snoop = state.cache.iter().position(|one| matches!(one, ToDevice::Snoop(_)));
        if self.question.mutation == Mutation::SnoopPassesGrant {
            passes.extend(snoop.filter(|place| *place > 0));
        }
        for place in passes {
            let mut state = state.clone();
            let Some(message) = state.cache.remove(place) else { continue };
            self.device_receives(state, message);
        }
    }

    fn device_receives(&mut self, mut state: State, message: ToDevice<u8>) {
        let before = state.device.pending.clone();
        let received = state.device.receive(message);
        if let ToDevice::MemoryWrite { data, .. } = message {
            written(&mut state, data);
        }
        match (&before, received.done) {
            (Some(Operation::Read(_)), Some(value)) => self.read(&state, 1, value),
            // A write that the device performs itself; a pulled one takes effect at the host.
            (Some(Operation::Write { data, .. }), Some(_))
                if matches!(message, ToDevice::Grant { .. } | ToDevice::MemoryForward) =>
            {
                written(&mut state, *data);
            }
            _ => {}
        }
        if let Some(reply) = received.reply {
            state.answers.push_back(reply);
        }
        self.reached(state);
    }
}

/// The write whose data was pulled: its value is where the host put it.
fn pulled_write(state: &State) -> Option<Operation<u8>> {
    let host = &state.host;
    let data = if host.copy == Copy::Modified { host.data } else { host.memory };
    Some(Operation::Write { hint: Hint::NonCacheable, data, bytes: WHOLE })
}

/// A write takes effect.
fn written(state: &mut State, value: u8) {
    state.current = value;
    for seen in &mut state.seen {
        seen.insert(value);
    }
}
