//! Several exchanges of one device: the messages that arrive at it, sorted by whose lines they are about.

use std::cell::RefCell;
use std::collections::VecDeque;

use conic_fabric::{Address, Arrival, Device, Grant, HomeAgent, Line, ReadTag, StateHint, Time};

use super::shape::Lines;

/// A device that is home to the lines of several exchanges.
#[derive(Debug)]
pub struct Sorted<H> {
    agent: H,
    exchanges: Vec<Lines>,
    waiting: Vec<RefCell<VecDeque<Arrival>>>,
}

impl<H: HomeAgent> Sorted<H> {
    /// A device with these exchanges.
    pub fn new(agent: H, exchanges: &[Lines]) -> Sorted<H> {
        let waiting = exchanges.iter().map(|_| RefCell::default()).collect();
        Sorted { agent, exchanges: exchanges.to_vec(), waiting }
    }

    /// What the device is to one of the exchanges: it hears of its lines only, and the first one of those that are nobody's too.
    ///
    /// # Panics
    ///
    /// If there is no such exchange.
    pub fn exchange(&self, index: usize) -> Part<'_, H> {
        assert!(index < self.exchanges.len(), "there are {} exchanges, and no number {index}", self.exchanges.len());
        Part { whole: self, index }
    }

    /// The device.
    pub fn agent(&self) -> &H {
        &self.agent
    }

    fn next_of(&self, index: usize) -> Option<Arrival> {
        while let Some(arrival) = self.agent.next_arrival() {
            let of = self.exchanges.iter().position(|lines| lines.number_of(arrival.line).is_some()).unwrap_or(0);
            self.waiting[of].borrow_mut().push_back(arrival);
        }
        self.waiting[index].borrow_mut().pop_front()
    }
}

/// A device as one of its exchanges sees it.
#[derive(Debug)]
pub struct Part<'a, H> {
    whole: &'a Sorted<H>,
    index: usize,
}

impl<H: HomeAgent> Device for Part<'_, H> {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        self.whole.agent.start_read(at, bytes, hint)
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.whole.agent.is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        self.whole.agent.finish_read(tag, at, into);
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        self.whole.agent.read_word(at, hint)
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        self.whole.agent.write(at, from, hint);
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        self.whole.agent.write_word(at, value, hint);
    }
    fn own_register(&self, at: Address) -> u64 {
        self.whole.agent.own_register(at)
    }
    fn spin(&self) {
        self.whole.agent.spin();
    }
    fn now(&self) -> Time {
        self.whole.agent.now()
    }
    fn work(&self, cycles: u32) {
        self.whole.agent.work(cycles);
    }
    fn cycle(&self) -> Time {
        self.whole.agent.cycle()
    }
}

impl<H: HomeAgent> HomeAgent for Part<'_, H> {
    fn next_arrival(&self) -> Option<Arrival> {
        self.whole.next_of(self.index)
    }
    fn answer(&self, arrival: Arrival, grant: Grant) {
        self.whole.agent.answer(arrival, grant);
    }
    fn own_line(&self, at: Address) -> Line {
        self.whole.agent.own_line(at)
    }
    fn set_own_line(&self, at: Address, line: &Line) {
        self.whole.agent.set_own_line(at, line);
    }
    fn start_recall(&self, at: Address) -> ReadTag {
        self.whole.agent.start_recall(at)
    }
    fn is_recalled(&self, tag: &ReadTag) -> bool {
        self.whole.agent.is_recalled(tag)
    }
    fn finish_recall(&self, tag: ReadTag) -> bool {
        self.whole.agent.finish_recall(tag)
    }
}
