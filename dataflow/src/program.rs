//! The device's part of a graph, as the device runs it: bytes in, bytes out.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use conic_load::invocation::Answer;

use crate::operator::{Element, Gathering, Operator};
use crate::wire::{CLOSED, Flow, Reason, Request, prefix, write_refusal, write_response};

/// An operator over bytes.
trait Stage: Send + Sync {
    fn name(&self) -> String;
    /// Appends what it makes of some elements.
    fn run(&self, input: &[u8], output: &mut Vec<u8>);
}

impl<O: Operator> Stage for O {
    fn name(&self) -> String {
        Operator::name(self)
    }

    fn run(&self, input: &[u8], output: &mut Vec<u8>) {
        let size = O::Output::BYTES;
        let start = output.len();
        output.resize(start + input.len() / O::Input::BYTES * size, 0);
        let mut end = start;
        for element in input.chunks_exact(O::Input::BYTES) {
            if let Some(made) = self.apply(&O::Input::read(element)) {
                made.write(&mut output[end..end + size]);
                end += size;
            }
        }
        output.truncate(end);
    }
}

/// An operator with a state over bytes: what it keeps, by time.
trait Keeper: Send + Sync {
    fn name(&self) -> String;
    fn keep(&self) -> Box<dyn Kept>;
}

/// What one device keeps.
trait Kept: Send {
    /// Takes elements of a time.
    fn take(&mut self, time: u64, input: &[u8]);
    /// Appends what is made of a time that is complete, as much as `room` bytes hold; what is left comes the next time. False if
    /// something is left and there is not room for one element of it.
    fn give(&mut self, time: u64, room: usize, output: &mut Vec<u8>) -> bool;
}

impl<G: Gathering> Keeper for G {
    fn name(&self) -> String {
        Gathering::name(self)
    }

    fn keep(&self) -> Box<dyn Kept> {
        Box::new(Gathered { operator: self.clone(), states: BTreeMap::new(), made: BTreeMap::new() })
    }
}

struct Gathered<G: Gathering> {
    operator: G,
    states: BTreeMap<u64, G::State>,
    /// Bytes made of a time that is complete, and how many of them have been given.
    made: BTreeMap<u64, (Vec<u8>, usize)>,
}

impl<G: Gathering> Kept for Gathered<G> {
    fn take(&mut self, time: u64, input: &[u8]) {
        // A time of which nothing came, as where what is before dropped all of it, has no state.
        if input.is_empty() {
            return;
        }
        let state = self.states.entry(time).or_default();
        for element in input.chunks_exact(G::Input::BYTES) {
            self.operator.take(state, &G::Input::read(element));
        }
    }

    fn give(&mut self, time: u64, room: usize, output: &mut Vec<u8>) -> bool {
        let size = G::Output::BYTES;
        if let Some(state) = self.states.remove(&time) {
            let elements = self.operator.finish(&state);
            let mut bytes = vec![0; elements.len() * size];
            elements.iter().zip(bytes.chunks_exact_mut(size)).for_each(|(element, place)| element.write(place));
            self.made.insert(time, (bytes, 0));
        }
        if let Some((bytes, given)) = self.made.get_mut(&time) {
            if *given == bytes.len() {
                self.made.remove(&time);
                return true;
            }
            let end = bytes.len().min(*given + room / size * size);
            output.extend_from_slice(&bytes[*given..end]);
            // Nothing would be taken for the end.
            let moved = *given < end;
            *given = end;
            return moved;
        }
        true
    }
}

/// Operators one after the other, and perhaps one with a state behind them.
#[derive(Clone)]
pub struct Program {
    stages: Vec<Arc<dyn Stage>>,
    keeper: Option<Arc<dyn Keeper>>,
    /// Bytes of an element after each stage, those of one that comes in first.
    bytes: Vec<usize>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = (0..self.operators()).map(|operator| self.name(operator));
        f.debug_list().entries(names).finish()
    }
}

impl Program {
    /// How many operators it has.
    pub fn operators(&self) -> usize {
        self.stages.len() + usize::from(self.keeper.is_some())
    }

    /// Whether the last of them has a state.
    pub fn keeps(&self) -> bool {
        self.keeper.is_some()
    }

    /// An operator's name.
    pub fn name(&self, operator: usize) -> String {
        match (self.stages.get(operator), &self.keeper) {
            (Some(stage), _) => stage.name(),
            (None, Some(keeper)) => keeper.name(),
            (None, None) => panic!("there is no operator {operator}"),
        }
    }

    /// Whether elements have bytes, of which their number follows: those that come in, those that go out, and those between two
    /// operators.
    pub fn has_bytes(&self) -> bool {
        self.bytes.iter().all(|&bytes| bytes > 0)
    }

    /// Bytes of an element that comes in.
    pub fn input_bytes(&self) -> usize {
        self.bytes[0]
    }

    /// Bytes of an element that goes out.
    pub fn output_bytes(&self) -> usize {
        self.bytes[self.bytes.len() - 1]
    }

    /// Bytes that an exchange has for each element: it is as long one way as the other.
    pub fn element_bytes(&self) -> usize {
        self.input_bytes().max(self.output_bytes())
    }
}

/// A [`Program`] whose elements have types: it takes `A` and makes `D`.
#[derive(Clone, Debug)]
pub struct Chain<A, D> {
    program: Program,
    types: PhantomData<fn(A) -> D>,
}

impl<A: Element, D: Element> Chain<A, D> {
    /// One operator.
    pub fn new<O: Operator<Input = A, Output = D>>(operator: O) -> Chain<A, D> {
        let program = Program { stages: vec![Arc::new(operator)], keeper: None, bytes: vec![A::BYTES, D::BYTES] };
        Chain { program, types: PhantomData }
    }

    /// One operator with a state. Nothing may follow it on the device, for what it gives comes when its time is complete.
    pub fn gathering<G: Gathering<Input = A, Output = D>>(operator: G) -> Chain<A, D> {
        let program = Program { stages: Vec::new(), keeper: Some(Arc::new(operator)), bytes: vec![A::BYTES, D::BYTES] };
        Chain { program, types: PhantomData }
    }

    /// One with a state behind these; none if there is one already.
    pub fn gathered<G: Gathering<Input = D>>(mut self, operator: G) -> Option<Chain<A, G::Output>> {
        if self.program.keeps() {
            return None;
        }
        self.program.keeper = Some(Arc::new(operator));
        self.program.bytes.push(G::Output::BYTES);
        Some(Chain { program: self.program, types: PhantomData })
    }

    /// One more.
    ///
    /// # Panics
    ///
    /// If the last one has a state.
    pub fn then<O: Operator<Input = D>>(mut self, operator: O) -> Chain<A, O::Output> {
        assert!(!self.program.keeps(), "nothing follows an operator with a state on the device");
        self.program.stages.push(Arc::new(operator));
        self.program.bytes.push(O::Output::BYTES);
        Chain { program: self.program, types: PhantomData }
    }

    /// What the device is given.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// A request of which some has come.
#[derive(Clone, Copy, Debug)]
struct Begun {
    time: u64,
    operators: usize,
    elements: usize,
    wants_kept: bool,
    /// Elements that were computed.
    taken: usize,
}

impl Begun {
    fn of(request: &Request<'_>) -> Begun {
        let Request { time, operators, elements, wants_kept, .. } = *request;
        Begun { time, operators, elements, wants_kept, taken: 0 }
    }
}

/// A device's half: runs a program on requests, and checks what they say. Elements may be computed while others of their request are
/// still to come.
pub struct Executor {
    program: Program,
    kept: Option<Box<dyn Kept>>,
    /// Up to where each operator's input is complete, as far as this device was told.
    frontiers: Vec<u64>,
    /// The request that is taken and not finished, or why it is refused.
    begun: Result<Option<Begun>, Reason>,
    /// What each operator consumed and produced of it, and what was made of it.
    flows: Vec<Flow>,
    made: Vec<u8>,
    /// What one stage made of another's.
    buffers: [Vec<u8>; 2],
    /// An operator panicked: what it left is used for nothing any more.
    failed: bool,
    refused: u64,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("program", &self.program).field("frontiers", &self.frontiers).finish()
    }
}

impl Executor {
    /// A device's half before its first request.
    pub fn new(program: Program) -> Executor {
        let kept = program.keeper.as_ref().map(|keeper| keeper.keep());
        Executor {
            program,
            kept,
            frontiers: Vec::new(),
            begun: Ok(None),
            flows: Vec::new(),
            made: Vec::new(),
            buffers: Default::default(),
            failed: false,
            refused: 0,
        }
    }

    /// Whether it was told that nothing more comes.
    pub fn is_closed(&self) -> bool {
        !self.frontiers.is_empty() && self.frontiers.iter().all(|&frontier| frontier == CLOSED)
    }

    /// Up to where the input of each operator that the parent graph sees is complete, as far as this device was told.
    pub fn frontiers(&self) -> &[u64] {
        &self.frontiers
    }

    /// Requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes over what a request says of progress.
    fn learn(&mut self, request: &Request<'_>) -> Result<(), Reason> {
        let operators = request.operators;
        let is_another = !self.frontiers.is_empty() && operators != self.frontiers.len();
        if is_another || operators != 1 && operators != self.program.operators() {
            return Err(Reason::Operators);
        }
        self.frontiers.resize(operators, 0);
        if (0..operators).any(|index| request.frontier(index) < self.frontiers[index]) {
            return Err(Reason::Progress);
        }
        // The first operator's is what the elements come to; the others' may be complete up to here, and no further.
        let complete = (0..operators).map(|index| request.frontier(index)).max().unwrap_or(0);
        if request.elements > 0 && (request.time < complete || request.time == CLOSED) {
            return Err(Reason::Time);
        }
        for (index, frontier) in self.frontiers.iter_mut().enumerate() {
            *frontier = request.frontier(index);
        }
        Ok(())
    }

    /// Takes what has come of a request: computes the elements that it has not computed yet, if they are whole.
    fn go_on(&mut self, mut begun: Option<Begun>, come: &[u8], of: usize) -> Result<Option<Begun>, Reason> {
        let input = self.program.input_bytes();
        let Some(request) = Request::begun(come, of, input)? else { return Ok(None) };
        let begun = match &mut begun {
            Some(begun) => begun,
            None => {
                self.learn(&request)?;
                self.made.clear();
                self.flows.clear();
                self.flows.resize(self.program.operators(), Flow::default());
                begun.insert(Begun::of(&request))
            }
        };
        if begun.wants_kept {
            return Ok(Some(*begun));
        }
        let elements = request.payload().len() / input;
        let new = &request.payload()[begun.taken * input..elements * input];
        let [from, to] = &mut self.buffers;
        let mut consumed = (elements - begun.taken) as u32;
        for (index, stage) in self.program.stages.iter().enumerate() {
            to.clear();
            stage.run(if index == 0 { new } else { from }, to);
            let produced = (to.len() / self.program.bytes[index + 1]) as u32;
            self.flows[index].add(consumed, produced);
            consumed = produced;
            std::mem::swap(from, to);
        }
        match &mut self.kept {
            Some(kept) => {
                kept.take(begun.time, if self.program.stages.is_empty() { new } else { from });
                self.flows[self.program.stages.len()].add(consumed, 0);
            }
            None if self.made.is_empty() => std::mem::swap(&mut self.made, from),
            None => self.made.extend_from_slice(from),
        }
        begun.taken = elements;
        Ok(Some(*begun))
    }

    /// Takes what has come of a request of `of` bytes, its first bytes, and gives what was made of it so far: the elements of the
    /// response, of which those that are there will not change. What has come once must come again, with more behind it, until the
    /// request is [`Executor::finish`]ed.
    pub fn take(&mut self, come: &[u8], of: usize) -> &[u8] {
        // The thread goes on after a panic, whose message has been printed: a worker waits for this answer, and would for ever.
        self.begun = match (self.failed, self.begun) {
            (true, _) => Err(Reason::Failed),
            (_, Err(reason)) => Err(reason),
            (_, Ok(begun)) => {
                catch_unwind(AssertUnwindSafe(|| self.go_on(begun, come, of))).unwrap_or(Err(Reason::Failed))
            }
        };
        match self.begun {
            Ok(Some(_)) => &self.made,
            _ => &[],
        }
    }

    /// Writes the response to the request that was taken, and gives its length.
    pub fn finish(&mut self, response: &mut [u8]) -> usize {
        let finish = || match std::mem::replace(&mut self.begun, Ok(None))? {
            Some(begun) if begun.wants_kept => self.give_kept(begun, response),
            Some(begun) if begun.taken == begun.elements => self.write(begun, response),
            _ => Err(Reason::Length),
        };
        let finished = catch_unwind(AssertUnwindSafe(finish)).unwrap_or(Err(Reason::Failed));
        finished.unwrap_or_else(|reason| {
            self.failed |= reason == Reason::Failed;
            self.refused += 1;
            write_refusal(response, reason)
        })
    }

    fn write(&self, begun: Begun, response: &mut [u8]) -> Result<usize, Reason> {
        let start = prefix(begun.operators);
        let end = start + self.made.len();
        let elements = (self.made.len() / self.program.output_bytes()) as u32;
        response.get_mut(start..end).ok_or(Reason::Room)?.copy_from_slice(&self.made);
        if begun.operators == self.flows.len() {
            write_response(response, begun.time, elements, self.flows.iter().copied());
        } else {
            let flow = Flow { consumed: begun.elements as u32, produced: elements };
            write_response(response, begun.time, elements, [flow].into_iter());
        }
        Ok(end)
    }
}

impl Executor {
    /// Answers a request for what was kept of a time.
    fn give_kept(&mut self, request: Begun, response: &mut [u8]) -> Result<usize, Reason> {
        let complete = self.frontiers.first().is_some_and(|&frontier| request.time < frontier);
        let (Some(kept), true) = (&mut self.kept, complete && request.operators == 1 && request.elements == 0) else {
            return Err(Reason::Kept);
        };
        let start = prefix(1);
        let room = response.len().checked_sub(start).ok_or(Reason::Room)?;
        let made = &mut self.buffers[0];
        made.clear();
        if !kept.give(request.time, room, made) {
            return Err(Reason::Room);
        }
        response[start..start + made.len()].copy_from_slice(made);
        let produced = (made.len() / self.program.output_bytes()) as u32;
        write_response(response, request.time, produced, [Flow { consumed: 0, produced }].into_iter());
        Ok(start + made.len())
    }
}

impl Answer for Executor {
    fn room(&self, capacity: usize) -> usize {
        capacity
    }

    fn answer(&mut self, request: &[u8], response: &mut [u8]) -> usize {
        self.take(request, request.len());
        self.finish(response)
    }
}
