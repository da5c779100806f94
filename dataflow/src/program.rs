//! The device's part of a graph, as the device runs it: bytes in, bytes out.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use conic_load::invocation::Answer;

use crate::operator::{Element, Operator};
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

/// Operators one after the other.
#[derive(Clone)]
pub struct Program {
    stages: Vec<Arc<dyn Stage>>,
    /// Bytes of an element after each stage, those of one that comes in first.
    bytes: Vec<usize>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages.iter().map(|stage| stage.name())).finish()
    }
}

impl Program {
    /// How many operators it has.
    pub fn operators(&self) -> usize {
        self.stages.len()
    }

    /// An operator's name.
    pub fn name(&self, operator: usize) -> String {
        self.stages[operator].name()
    }

    /// Bytes of an element that comes in.
    pub fn input_bytes(&self) -> usize {
        self.bytes[0]
    }

    /// Bytes of an element that goes out.
    pub fn output_bytes(&self) -> usize {
        self.bytes[self.bytes.len() - 1]
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
        let program = Program { stages: vec![Arc::new(operator)], bytes: vec![A::BYTES, D::BYTES] };
        Chain { program, types: PhantomData }
    }

    /// One more.
    pub fn then<O: Operator<Input = D>>(mut self, operator: O) -> Chain<A, O::Output> {
        self.program.stages.push(Arc::new(operator));
        self.program.bytes.push(O::Output::BYTES);
        Chain { program: self.program, types: PhantomData }
    }

    /// What the device is given.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// A device's half: runs a program on requests, and checks what they say.
#[derive(Debug)]
pub struct Executor {
    program: Program,
    /// Up to where each operator's input is complete, as far as this device was told.
    frontiers: Vec<u64>,
    flows: Vec<Flow>,
    /// What one stage made of another's.
    buffers: [Vec<u8>; 2],
    refused: u64,
}

impl Executor {
    /// A device's half before its first request.
    pub fn new(program: Program) -> Executor {
        Executor { program, frontiers: Vec::new(), flows: Vec::new(), buffers: Default::default(), refused: 0 }
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
        if operators != 1 && operators != self.program.operators() {
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

    fn run(&mut self, bytes: &[u8], response: &mut [u8]) -> Result<usize, Reason> {
        let request = Request::read(bytes, self.program.input_bytes())?;
        self.learn(&request)?;
        let output = self.program.output_bytes();
        self.flows.clear();
        let [from, to] = &mut self.buffers;
        let mut consumed = request.elements as u32;
        for (index, stage) in self.program.stages.iter().enumerate() {
            to.clear();
            stage.run(if index == 0 { request.payload() } else { from }, to);
            let produced = (to.len() / self.program.bytes[index + 1]) as u32;
            self.flows.push(Flow { consumed, produced });
            consumed = produced;
            std::mem::swap(from, to);
        }
        let start = prefix(request.operators);
        let end = start + from.len();
        let elements = (from.len() / output) as u32;
        response.get_mut(start..end).ok_or(Reason::Room)?.copy_from_slice(from);
        if request.operators == self.flows.len() {
            write_response(response, request.time, elements, self.flows.iter().copied());
        } else {
            let flow = Flow { consumed: request.elements as u32, produced: elements };
            write_response(response, request.time, elements, [flow].into_iter());
        }
        Ok(end)
    }
}

impl Answer for Executor {
    fn room(&self, capacity: usize) -> usize {
        capacity
    }

    fn answer(&mut self, request: &[u8], response: &mut [u8]) -> usize {
        self.run(request, response).unwrap_or_else(|reason| {
            self.refused += 1;
            write_refusal(response, reason)
        })
    }
}
