//! A graph that is stepped by hand, and a device that answers when the test says so.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::rc::Rc;

use timely::dataflow::Stream;
use timely::scheduling::SyncActivator;

use crate::device::{Device, Fault};
use crate::operator::Element;
use crate::program::{Executor, Program};
use crate::running::Running;

/// Steps in which a graph that has something to do must have done something.
const STEPS: usize = 60;

/// What devices hold, by their number.
#[derive(Default)]
pub struct Desk {
    held: BTreeMap<usize, u64>,
    ready: BTreeSet<usize>,
    wake: BTreeMap<usize, SyncActivator>,
    made: usize,
    /// Devices that were told that nothing more comes.
    pub closed: usize,
    /// Most calls that were held at the same time.
    pub most: usize,
}

/// A desk that several have.
pub type Shared = Rc<RefCell<Desk>>;

/// A device that computes at once and answers when its desk says so, or when the host has to wait.
pub struct Held {
    number: usize,
    desk: Shared,
    executor: Executor,
    /// Parts in which requests have come to it.
    cuts: u64,
    response: Vec<u8>,
    capacity: usize,
}

/// Devices for one part.
pub fn held(desk: &Shared, program: &Program, count: usize, capacity: usize) -> Vec<Held> {
    let make = |_| {
        let number = desk.borrow().made;
        desk.borrow_mut().made += 1;
        let executor = Executor::new(program.clone());
        Held { number, desk: Rc::clone(desk), executor, cuts: number as u64, response: Vec::new(), capacity }
    };
    (0..count).map(make).collect()
}

impl Device for Held {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn begin(&mut self, request: &[u8], most: usize) -> Result<(), Fault> {
        self.response.resize(most, 0);
        // It comes in parts, cut anywhere: what is made of the first stays.
        let (mut come, mut made) = (0, Vec::new());
        while come < request.len() {
            let part = self.cuts.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
            self.cuts += 1;
            come = request.len().min(come + part as usize);
            let more = self.executor.take(&request[..come], request.len());
            assert!(more.starts_with(&made), "what was made changes when more comes");
            made = more.to_vec();
        }
        let length = self.executor.finish(&mut self.response);
        assert!(self.response[..length].ends_with(&made), "something else is answered than was made");
        self.response.truncate(length);
        let word = |at: usize| u64::read(&request[at..at + 8]);
        let desk = &mut *self.desk.borrow_mut();
        desk.closed += usize::from(self.executor.is_closed());
        if word(0) >> 16 > 0 && self.executor.refused() == 0 {
            desk.held.insert(self.number, word(8));
            desk.most = desk.most.max(desk.held.len());
        } else {
            desk.ready.insert(self.number);
        }
        Ok(())
    }

    fn poll(&mut self, response: &mut Vec<u8>) -> Result<bool, Fault> {
        let desk = &mut *self.desk.borrow_mut();
        let ready = desk.ready.remove(&self.number);
        if ready {
            desk.held.remove(&self.number);
            std::mem::swap(response, &mut self.response);
        }
        Ok(ready)
    }

    fn spin(&self) {
        self.desk.borrow_mut().ready.insert(self.number);
    }

    fn wake_by(&mut self, activator: SyncActivator) {
        self.desk.borrow_mut().wake.insert(self.number, activator);
    }
}

/// A running graph, and what came out of it.
pub struct Rig<A: Element, D> {
    graph: Running<A>,
    results: Rc<RefCell<BTreeMap<u64, Vec<D>>>>,
    desk: Shared,
}

impl<A: Element, D: Element> Rig<A, D> {
    /// A graph between an input and a probe.
    pub fn new(
        desk: &Shared,
        build: impl for<'scope> FnOnce(Stream<'scope, u64, Vec<A>>) -> Stream<'scope, u64, Vec<D>>,
    ) -> Rig<A, D> {
        let results: Rc<RefCell<BTreeMap<u64, Vec<D>>>> = Rc::default();
        let into = Rc::clone(&results);
        let came = move |time, batch: &[D]| {
            assert!(!batch.is_empty(), "an empty message at {time}");
            into.borrow_mut().entry(time).or_default().extend_from_slice(batch);
        };
        let Ok(graph) = Running::new::<D, Infallible>(|stream| Ok(build(stream)), came);
        Rig { graph, results, desk: Rc::clone(desk) }
    }

    /// Sends a batch at a time that is not before the last.
    pub fn send(&mut self, time: u64, mut batch: Vec<A>) {
        self.graph.send(time, &mut batch);
    }

    /// Says that all times before one are complete.
    pub fn advance_to(&mut self, time: u64) {
        self.graph.advance_to(time);
    }

    /// Steps until nothing happens any more; an error if the frontier passes what a device holds.
    pub fn step(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.graph.step();
            let desk = self.desk.borrow();
            if let Some(time) = desk.held.values().find(|time| !self.graph.may_come(**time)) {
                return Err(format!("the frontier passed {time}, which a device holds"));
            }
        }
        Ok(())
    }

    /// Lets the device that is the `pick`-th of those that hold something answer; false if none does.
    pub fn release(&mut self, pick: usize) -> bool {
        let desk = &mut *self.desk.borrow_mut();
        let holding: Vec<usize> = desk.held.keys().copied().filter(|number| !desk.ready.contains(number)).collect();
        let Some(number) = holding.get(pick % holding.len().max(1)) else { return false };
        desk.ready.insert(*number);
        if let Some(wake) = desk.wake.get(number) {
            wake.activate().expect("the worker is there");
        }
        true
    }

    /// Whether a time may still come out of the graph.
    pub fn may_come(&self, time: u64) -> bool {
        self.graph.may_come(time)
    }

    /// Whether something of a time came out.
    pub fn came(&self, time: u64) -> bool {
        self.results.borrow().contains_key(&time)
    }

    /// Steps until a time is complete, as it must be some day; calls `wait` between.
    pub fn wait_until(&mut self, time: u64, wait: impl Fn()) {
        while self.may_come(time) {
            self.graph.step();
            wait();
        }
    }

    /// Closes the input and lets everything end: what came out, each time's sorted by `key`. An error if the graph does not end.
    pub fn end<K: Ord>(mut self, picks: &[usize], key: impl Fn(&D) -> K) -> Result<BTreeMap<u64, Vec<D>>, String> {
        self.graph.close();
        let mut picks = picks.iter().copied().cycle();
        loop {
            self.step()?;
            if !self.release(picks.next().unwrap_or(0)) {
                break;
            }
        }
        if !self.graph.has_ended() {
            return Err("the graph does not end".to_owned());
        }
        let mut results = self.results.borrow().clone();
        results.values_mut().for_each(|batch| batch.sort_by_key(&key));
        Ok(results)
    }
}
