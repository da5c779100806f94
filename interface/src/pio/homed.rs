//! The device's half over the coherence messages of the lines that it is home to: it withholds the answer to the load that
//! signals a request, and answers when it chooses.

use conic_fabric::{Arrival, Ask, Grant, HomeAgent, Line, ReadTag, Time};

use super::control::{self, Kind};
use super::device::{Device, Refusals};
use super::protocol::{Action, Event, Exchange, Outcome, Recalls, Violation};
use super::shape::Lines;

/// How a device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Lines are returned exclusive, though they were asked for to read: the next request's stores are then silent.
    pub exclusive: bool,
    /// The order of recalls.
    pub recalls: Recalls,
    /// A load is told to try again after so long: less than what the CPU's cache waits, by what a recall and an answer take.
    pub patience: Time,
    /// Requests have no payload: what is in the lines is not looked at. For the NIC's receive.
    pub bare: bool,
}

impl Default for Behaviour {
    /// Exclusive, everything at once, and 20 ms.
    fn default() -> Behaviour {
        let patience = Time::from_nanoseconds(20_000_000);
        Behaviour { exclusive: true, recalls: Recalls::Together, patience, bare: false }
    }
}

/// What has come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Come<'a> {
    /// Its first bytes, up to the first line that is still on its way.
    pub bytes: &'a [u8],
    /// How many it has.
    pub of: usize,
}

/// The half that answers. `WORDS` words of 64 bits must have a bit for each unit of its lines.
#[derive(Debug)]
pub struct Homed<D, const WORDS: usize> {
    device: D,
    lines: Lines,
    behaviour: Behaviour,
    exchange: Exchange<WORDS>,
    /// Requests that were not answered, by unit.
    arrivals: Vec<Option<Arrival>>,
    recalls: Vec<(u16, ReadTag)>,
    /// When the load that waits is told to try again, and in which turn it began to wait.
    deadline: Option<(Time, u32)>,
    /// A request that was delivered and not polled, the last that was delivered, and the response to it.
    arrived: bool,
    request: Vec<u8>,
    response: Vec<u8>,
    /// Units of a request that is on its way that have come, from its first on; and of its response that are filled or need not be.
    come: u16,
    filled: u16,
    /// The request cannot be, and is answered so.
    refuses: bool,
    refusals: Refusals,
    /// Messages that the protocol does not know.
    violations: u64,
    last_violation: Option<Violation>,
    try_agains: u64,
    recalled: u64,
}

impl<D: HomeAgent, const WORDS: usize> Homed<D, WORDS> {
    /// A device that is home to fresh lines, all zeroes, of which no cache has any; none if `WORDS` is too small for them.
    pub fn new(device: D, lines: Lines, behaviour: Behaviour) -> Option<Homed<D, WORDS>> {
        let plan = lines.shape().plan(behaviour.recalls);
        let capacity = lines.capacity() as usize;
        Some(Homed {
            device,
            lines,
            behaviour,
            exchange: Exchange::new(plan)?,
            arrivals: (0..plan.lines()).map(|_| None).collect(),
            recalls: Vec::with_capacity(plan.lines() as usize),
            deadline: None,
            arrived: false,
            request: Vec::with_capacity(capacity),
            response: Vec::with_capacity(capacity),
            come: 0,
            filled: 0,
            refuses: false,
            refusals: Refusals::default(),
            violations: 0,
            last_violation: None,
            try_agains: 0,
            recalled: 0,
        })
    }

    /// Takes one message, or one recall that is done, answers a request that cannot be, or tells a load that waited too long to try
    /// again. False: there was nothing to do.
    pub fn step(&mut self) -> bool {
        if let Some(arrival) = self.device.next_arrival() {
            self.arrived(arrival);
            return true;
        }
        if let Some(place) = self.recalls.iter().position(|(_, tag)| self.device.is_recalled(tag)) {
            let (unit, tag) = self.recalls.swap_remove(place);
            let _changed = self.device.finish_recall(tag);
            // Where the cache gave it up by itself meanwhile, that has arrived before, and must be heard of before.
            while let Some(arrival) = self.device.next_arrival() {
                self.arrived(arrival);
            }
            self.recalled += 1;
            self.event(Event::Recalled(unit));
            return true;
        }
        if self.refuses && self.exchange.awaits_response() {
            self.event(Event::Responded);
            return true;
        }
        match self.deadline {
            Some((deadline, turn)) if self.device.now() >= deadline => {
                self.deadline = None;
                self.event(Event::Expired(turn));
                true
            }
            _ => false,
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        let Some(unit) = self.lines.number_of(arrival.line) else {
            return self.violated(Violation::NoSuchLine(u16::MAX));
        };
        match arrival.ask {
            Ask::Evicted { .. } => self.event(Event::Evicted(unit)),
            Ask::Shared | Ask::Exclusive if self.arrivals[usize::from(unit)].is_some() => {
                self.violated(Violation::AskedTwice(unit));
            }
            Ask::Shared | Ask::Exclusive => {
                self.arrivals[usize::from(unit)] = Some(arrival);
                self.event(Event::Request(unit));
            }
        }
    }

    fn violated(&mut self, violation: Violation) {
        self.violations += 1;
        self.last_violation = Some(violation);
    }

    fn event(&mut self, event: Event) {
        if let Err(violation) = self.exchange.handle(event) {
            self.violated(violation);
        }
        while let Some(action) = self.exchange.next_action() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Deliver(group) => self.deliver(group.into()),
            Action::Fill(unit) => {
                let (lines, device) = (self.lines, &self.device);
                lines.spread_unit(unit, &self.response, |at, line| device.set_own_line(at, line));
            }
            Action::Publish(_, outcome) => self.publish(outcome),
            Action::Answer(unit) => {
                let Some(arrival) = self.arrivals[usize::from(unit)].take() else { return };
                let exclusive = self.behaviour.exclusive || arrival.ask == Ask::Exclusive;
                self.device.answer(arrival, if exclusive { Grant::Exclusive } else { Grant::Shared });
            }
            Action::StartTimer(turn) => {
                self.deadline = Some((self.device.now() + self.behaviour.patience, turn));
            }
            Action::Recall(unit) => self.recalls.push((unit, self.device.start_recall(self.lines.unit(unit)))),
        }
    }

    /// Takes the request into the device.
    fn deliver(&mut self, group: u32) {
        (self.arrived, self.come) = (true, 0);
        self.request.clear();
        if self.behaviour.bare {
            return;
        }
        match self.length(group) {
            Ok(length) => self.request.resize(length, 0),
            Err(count) => {
                *count(&mut self.refusals) += 1;
                (self.arrived, self.refuses) = (false, true);
                return;
            }
        }
        let (lines, device) = (self.lines, &self.device);
        lines.gather(group, &mut self.request, |at| device.own_line(at));
    }

    /// How many bytes a request has by its control word, or where it counts why it cannot be one.
    fn length(&self, group: u32) -> Result<usize, fn(&mut Refusals) -> &mut u64> {
        let word = self.device.own_line(self.lines.control(group)).0[0];
        let (kind, length) = (control::kind_of(word), control::length_of(word));
        // The exchange has turned since, if the load that delivered it is told to try again at once.
        let turn = self.exchange.turn();
        let this_turn = control::turn_of(word) == if turn & 1 == group { turn } else { turn.wrapping_sub(1) };
        match kind {
            Some(Kind::Request) if !this_turn => Err(|refusals| &mut refusals.turns),
            Some(Kind::Request) if length > self.lines.capacity() => Err(|refusals| &mut refusals.lengths),
            Some(Kind::Request) => Ok(length as usize),
            _ => Err(|refusals| &mut refusals.kinds),
        }
    }

    /// What is there of the request that is signalled or delivered, if that can be one: lines may come in any order, and what stands
    /// behind one that has not come is not among it. What was given once stays as it is.
    pub fn come(&mut self) -> Option<Come<'_>> {
        if self.exchange.awaits_response() && !self.refuses {
            return Some(Come { bytes: &self.request, of: self.request.len() });
        }
        let group = self.exchange.turn() & 1;
        let first = self.exchange.plan().line(group as u16, self.come);
        let shape = self.lines.shape();
        if self.behaviour.bare || self.come == 0 && !self.exchange.has_come(first) {
            return None;
        }
        let of = self.length(group).ok()?;
        let before = self.come;
        while self.come < shape.units_of(of as u64).min(shape.group)
            && self.exchange.has_come(self.exchange.plan().line(group as u16, self.come))
        {
            self.come += 1;
        }
        if self.come > before {
            let (lines, device) = (self.lines, &self.device);
            self.request.resize(of.min(shape.payload_of(self.come)), 0);
            lines.gather(group, &mut self.request, |at| device.own_line(at));
        }
        Some(Come { bytes: &self.request, of })
    }

    /// Says that the bytes of the response from `from` on are final, as far as there are any: lines that are full of them are answered when
    /// they are asked for, before the response is whole. Nothing without a request. The response that ends the exchange must begin with them.
    pub fn fill(&mut self, from: usize, response: &[u8]) {
        let (shape, capacity) = (self.lines.shape(), self.lines.capacity() as usize);
        if self.refuses || !self.exchange.may_fill() {
            return;
        }
        let response = &response[..response.len().min(capacity)];
        let known = self.response.len().min(response.len());
        self.response.truncate(known);
        self.response.extend_from_slice(&response[known..]);
        // The first line is never filled, nor one with bytes before `from`.
        let first = shape.units_of(from as u64).max(1);
        let full = shape.full_units(response.len() as u64).min(shape.group);
        for unit in self.filled.max(first)..full {
            self.event(Event::Filled(unit));
        }
        self.filled = self.filled.max(full);
    }

    /// Writes what the load will find.
    fn publish(&mut self, outcome: Outcome) {
        self.deadline = None;
        // The turn that this ends.
        let turn = self.exchange.turn().wrapping_sub(1);
        let (mut first, word) = match outcome {
            Outcome::Response if std::mem::take(&mut self.refuses) => {
                (Line::ZERO, control::word(turn, Kind::Refused, 0))
            }
            Outcome::Response => {
                let (lines, device, exchange) = (self.lines, &self.device, &self.exchange);
                let first = lines.spread(turn.wrapping_add(1), &self.response, |at, line| {
                    if !lines.number_of(at).is_some_and(|unit| exchange.was_filled(unit)) {
                        device.set_own_line(at, line);
                    }
                });
                (first, control::word(turn, Kind::Response, self.response.len() as u32))
            }
            Outcome::TryAgain => {
                self.try_agains += 1;
                (Line::ZERO, control::word(turn, Kind::TryAgain, 0))
            }
        };
        if outcome == Outcome::Response {
            self.filled = 0;
            self.response.clear();
        }
        first.0[0] = word;
        self.device.set_own_line(self.lines.control(turn.wrapping_add(1)), &first);
    }

    /// Answers so far, "try again" among them: where a CPU that attaches must begin.
    pub fn turn(&self) -> u32 {
        self.exchange.turn()
    }

    /// How often a load was told to try again.
    pub fn try_agains(&self) -> u64 {
        self.try_agains
    }

    /// How many recalls were done.
    pub fn recalled(&self) -> u64 {
        self.recalled
    }

    /// Messages that could not be, and the last of them.
    pub fn violations(&self) -> (u64, Option<Violation>) {
        (self.violations, self.last_violation)
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<D: HomeAgent, const WORDS: usize> Device for Homed<D, WORDS> {
    fn poll(&mut self) -> Option<usize> {
        while self.step() {}
        std::mem::take(&mut self.arrived).then_some(self.request.len())
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        let length = self.request.len().min(into.len());
        into[..length].copy_from_slice(&self.request[..length]);
        length
    }

    fn respond(&mut self, response: &[u8]) -> bool {
        if self.refuses || self.arrived || !self.exchange.awaits_response() {
            return false;
        }
        let capacity = self.lines.capacity() as usize;
        self.response.clear();
        self.response.extend_from_slice(&response[..response.len().min(capacity)]);
        self.event(Event::Responded);
        true
    }

    fn is_working(&self) -> bool {
        self.exchange.awaits_response()
    }

    fn spin(&self) {
        self.device.spin();
    }

    fn refusals(&self) -> Refusals {
        self.refusals
    }
}
