//! What crosses to the device and back, and what waits to: batches are split into what an exchange holds, and their results
//! put together again.

use std::collections::{BTreeSet, VecDeque};

use crate::device::{Device, Fault};
use crate::offload::Calls;
use crate::operator::Element;
use crate::planted::{Mistake, Planted};
use crate::program::Program;
use crate::wire::{self, CLOSED, Flow, Response, prefix};

/// Elements of one time that wait.
struct Batch<A> {
    time: u64,
    elements: Vec<A>,
    /// How many of them have been sent.
    sent: usize,
}

/// What a device was called with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Called {
    /// So many elements.
    Elements(u32),
    /// It is to give what it kept.
    Kept,
}

/// A device, and what it holds.
struct Slot<V> {
    device: V,
    /// The time that it was called with, and with what.
    holds: Option<(u64, Called)>,
}

/// What Timely is to be told of a time.
pub enum Statement {
    /// Records were consumed and produced.
    Flow(Flow),
    /// Something was kept, and holds the time.
    Keeps,
    /// All of it was given.
    KeepsNoMore,
}

/// The CPU's end of the channels to and from the devices that run one part of a graph.
pub struct Channel<A, D, V> {
    slots: Vec<Slot<V>>,
    waiting: VecDeque<Batch<A>>,
    /// Up to where each stand-in's input is complete.
    frontiers: Vec<u64>,
    /// What the device said of each operator and Timely has not been told.
    statements: Vec<Vec<(u64, Statement)>>,
    /// Where an operator has a state: the times of which the device keeps something.
    keeps: Option<BTreeSet<u64>>,
    /// What came back and was not passed on.
    results: Vec<(u64, Vec<D>)>,
    /// Elements of an exchange at most.
    most: usize,
    input_bytes: usize,
    output_bytes: usize,
    closed: bool,
    request: Vec<u8>,
    response: Vec<u8>,
    pub planted: Planted,
}

impl<A: Element, D: Element, V: Device> Channel<A, D, V> {
    /// Channels for a program of which the parent graph sees `operators` operators.
    ///
    /// # Errors
    ///
    /// If there is no device, or one has no room for an element; if elements have no bytes; where an operator has a state, if there
    /// are several devices, or the parent graph sees more than one operator.
    pub fn new(program: &Program, operators: usize, devices: Vec<V>) -> Result<Channel<A, D, V>, Fault> {
        if operators > wire::MOST_OPERATORS {
            return Err(Fault::Operators(operators));
        }
        if program.keeps() && (operators != 1 || devices.len() > 1) {
            return Err(Fault::State);
        }
        if !program.has_bytes() {
            return Err(Fault::Empty);
        }
        let capacity = devices.iter().map(Device::capacity).min().ok_or(Fault::None)?;
        let (input_bytes, output_bytes) = (program.input_bytes(), program.output_bytes());
        let most = wire::elements_in(capacity, program.element_bytes(), operators);
        if most == 0 {
            let needed = wire::exchange_bytes(1, program.element_bytes(), operators);
            return Err(Fault::Small { capacity, needed });
        }
        Ok(Channel {
            slots: devices.into_iter().map(|device| Slot { device, holds: None }).collect(),
            waiting: VecDeque::new(),
            frontiers: vec![0; operators],
            statements: (0..operators).map(|_| Vec::new()).collect(),
            keeps: program.keeps().then(BTreeSet::new),
            results: Vec::new(),
            most: most.min(u32::MAX as usize),
            input_bytes,
            output_bytes,
            closed: false,
            request: Vec::new(),
            response: Vec::new(),
            planted: Planted::default(),
        })
    }

    /// The devices.
    pub fn devices(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().map(|slot| &mut slot.device)
    }

    /// Takes elements of a time, to be sent.
    pub fn take(&mut self, time: u64, elements: Vec<A>) {
        if !elements.is_empty() {
            self.waiting.push_back(Batch { time, elements, sent: 0 });
        }
    }

    /// Learns up to where an operator's input is complete.
    pub fn learn(&mut self, operator: usize, frontier: u64) {
        self.frontiers[operator] = frontier + u64::from(self.planted.is(Mistake::TellsMore) && frontier != CLOSED) * 2;
    }

    /// Whether something waits or is held by a device.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.slots.iter().any(|slot| slot.holds.is_some()) || self.complete().is_some()
    }

    /// The first time of which the device keeps something and nothing more comes.
    fn complete(&self) -> Option<u64> {
        let first = *self.keeps.as_ref()?.first()?;
        (first < self.frontiers[0]).then_some(first)
    }

    /// Sends what waits and takes what is done: all of it, or as much as can be without waiting.
    ///
    /// # Errors
    ///
    /// If a device cannot go on.
    pub fn pump(&mut self, calls: Calls) -> Result<(), Fault> {
        loop {
            let mut moved = false;
            for index in 0..self.slots.len() {
                moved |= self.finish(index)?;
                moved |= self.begin(index)?;
            }
            match calls {
                Calls::Blocking if !self.is_busy() => return Ok(()),
                Calls::Blocking if !moved => self.slots.iter().for_each(|slot| slot.device.spin()),
                Calls::Deferred if !moved => return Ok(()),
                Calls::Blocking | Calls::Deferred => {}
            }
        }
    }

    /// Calls a device that is free with the next elements that wait.
    fn begin(&mut self, index: usize) -> Result<bool, Fault> {
        let complete = self.complete();
        let slot = &mut self.slots[index];
        if slot.holds.is_some() {
            return Ok(false);
        }
        if let Some(time) = complete {
            wire::begin_request(&mut self.request, time, 0, &self.frontiers);
            wire::want_kept(&mut self.request);
            slot.device.begin(&self.request, prefix(1) + self.most * self.output_bytes)?;
            slot.holds = Some((time, Called::Kept));
            return Ok(true);
        }
        let Some(batch) = self.waiting.front_mut() else { return Ok(false) };
        let left = &batch.elements[batch.sent..];
        let elements = &left[..left.len().min(self.most)];
        let (time, count) = (batch.time, elements.len());
        wire::begin_request(&mut self.request, time, count as u32, &self.frontiers);
        let start = self.request.len();
        self.request.resize(start + count * self.input_bytes, 0);
        for (element, place) in elements.iter().zip(self.request[start..].chunks_exact_mut(self.input_bytes)) {
            element.write(place);
        }
        batch.sent += count;
        if batch.sent == batch.elements.len() || self.planted.is(Mistake::LosesRest) {
            self.waiting.pop_front();
        }
        let most = prefix(self.frontiers.len()) + count * self.output_bytes;
        slot.device.begin(&self.request, most)?;
        slot.holds = Some((time, Called::Elements(count as u32)));
        Ok(true)
    }

    /// Takes a device's response, if it is there.
    fn finish(&mut self, index: usize) -> Result<bool, Fault> {
        let slot = &mut self.slots[index];
        let Some((time, called)) = slot.holds else { return Ok(false) };
        if !slot.device.poll(&mut self.response)? {
            return Ok(false);
        }
        slot.holds = None;
        let response = match called {
            Called::Elements(count) => {
                Response::read(&self.response, self.output_bytes, time, count, self.statements.len())?
            }
            Called::Kept => Response::read_kept(&self.response, self.output_bytes, time)?,
        };
        let time = match self.slots.iter().filter_map(|slot| slot.holds).map(|(time, _)| time).min() {
            Some(oldest) if self.planted.is(Mistake::TakesOldest) => oldest.min(time),
            _ => time,
        };
        if response.payload().is_empty() && self.planted.is(Mistake::ForgetsEmpty) {
            return Ok(true);
        }
        for (flow, statements) in response.flows().zip(&mut self.statements) {
            // What consumed nothing says nothing, and Timely would not call its stand-in to say it.
            if flow.consumed > 0 || flow.produced > 0 {
                statements.push((time, Statement::Flow(flow)));
            }
        }
        if let Some(keeps) = &mut self.keeps {
            let changed = match called {
                Called::Elements(_) => keeps.insert(time).then_some(Statement::Keeps),
                Called::Kept if response.payload().is_empty() => keeps.remove(&time).then_some(Statement::KeepsNoMore),
                Called::Kept => None,
            };
            let changed = changed.filter(|_| !self.planted.is(Mistake::HoldsNothing));
            self.statements[0].extend(changed.map(|statement| (time, statement)));
        }
        if !response.payload().is_empty() {
            if self.results.last().is_none_or(|(last, _)| *last != time) {
                self.results.push((time, Vec::new()));
            }
            if let Some((_, results)) = self.results.last_mut() {
                results.extend(response.payload().chunks_exact(self.output_bytes).map(D::read));
            }
        }
        Ok(true)
    }

    /// What is to be stated for an operator.
    pub fn statements(&mut self, operator: usize) -> impl Iterator<Item = (u64, Statement)> {
        self.statements[operator].drain(..)
    }

    /// What came back since it was last asked.
    pub fn results(&mut self) -> impl Iterator<Item = (u64, Vec<D>)> {
        self.results.drain(..)
    }

    /// Tells the devices that nothing more comes, once, when that is so.
    ///
    /// # Errors
    ///
    /// If a device cannot go on.
    pub fn close(&mut self) -> Result<(), Fault> {
        let keeps = self.keeps.as_ref().is_some_and(|keeps| !keeps.is_empty());
        let over = self.frontiers.iter().all(|&frontier| frontier == CLOSED) && !self.is_busy() && !keeps;
        if self.closed || !over || self.planted.is(Mistake::NoClosing) {
            return Ok(());
        }
        self.closed = true;
        wire::begin_request(&mut self.request, 0, 0, &self.frontiers);
        for slot in &mut self.slots {
            slot.device.begin(&self.request, prefix(self.frontiers.len()))?;
            while !slot.device.poll(&mut self.response)? {
                slot.device.spin();
            }
            Response::read(&self.response, self.output_bytes, 0, 0, self.frontiers.len())?;
        }
        Ok(())
    }
}
