//! Programs on their own stacks, whatever the machine: how they wait, and how they run by turns.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt::Debug;
use std::rc::Rc;

use conic_fabric::Time;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::simulation::{Failure, Role};

/// Bytes of a program's stack: the interfaces keep bursts on it, and programs a payload.
const STACK_BYTES: usize = 512 << 10;

/// A machine whose agents are programs.
pub(crate) trait Scheduled: 'static {
    /// What a program waits for.
    type Wait: Copy + Debug + PartialEq;
    /// A point in time, and nothing else.
    const TIME: Self::Wait;
    /// Nothing any more: the program has ended.
    const ENDED: Self::Wait;

    /// Notes what an agent's program waits for, and gives the time at which it goes on by itself, if it is one.
    fn waits_for(&mut self, agent: usize, wait: Self::Wait) -> Option<u64>;
    /// What it waits for.
    fn wait_of(&self, agent: usize) -> Self::Wait;
    /// Lets an agent go on at a time, unless it waits for something else by then.
    fn resume_at(&mut self, agent: usize, time: u64);
    /// Lets events happen until an agent can go on; none if nothing can happen any more.
    fn next_ready(&mut self) -> Option<usize>;
    /// The time of the last event, in picoseconds.
    fn now(&self) -> u64;
    /// When a run is stopped.
    fn limit(&self) -> u64;
    /// Why it stopped, where that is not that nothing can happen.
    fn fault(&self) -> Option<Failure> {
        None
    }
    /// Whether a program has asked that the run be interrupted, since this was last called.
    fn take_pause(&mut self) -> bool {
        false
    }
    /// What of the machine itself is stuck.
    fn stuck(&self) -> Vec<String> {
        Vec::new()
    }
}

/// An agent's program on its own stack.
pub(crate) struct Fiber<'a, M> {
    pub(crate) machine: &'a RefCell<M>,
    /// Whose turn it is, when a program hands over.
    next: &'a Cell<Option<usize>>,
    yielder: &'a Yielder<(), ()>,
    pub(crate) agent: usize,
}

// Not derived: that would ask it of the machine.
impl<M> Clone for Fiber<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Fiber<'_, M> {}

impl<M: Scheduled> Fiber<'_, M> {
    /// Lets so much time pass, in picoseconds.
    pub(crate) fn pass(&self, picoseconds: u64) {
        if picoseconds > 0 {
            let machine = self.machine.borrow_mut();
            let until = machine.now() + picoseconds;
            self.wait(machine, M::TIME, Some(until));
        }
    }

    /// Lets the others go on until what is waited for has come, or `until`. Events happen here, without a switch, until another
    /// agent can go on.
    #[inline(never)]
    pub(crate) fn wait(&self, mut machine: RefMut<'_, M>, wait: M::Wait, until: Option<u64>) {
        let by_itself = machine.waits_for(self.agent, wait);
        if let Some(until) = by_itself.or(until) {
            machine.resume_at(self.agent, until);
        }
        match machine.next_ready() {
            Some(agent) if agent == self.agent && machine.now() <= machine.limit() => return,
            ready => self.next.set(ready),
        }
        drop(machine);
        self.yielder.suspend(());
    }
}

struct Program {
    name: String,
    role: Role,
    stack: Coroutine<(), (), (), DefaultStack>,
}

/// The programs of a machine's agents, in the order of the agents' numbers.
pub(crate) struct Programs<M> {
    pub(crate) machine: Rc<RefCell<M>>,
    next: Rc<Cell<Option<usize>>>,
    programs: Vec<Program>,
}

impl<M: Scheduled> Programs<M> {
    /// None yet.
    pub(crate) fn new(machine: M) -> Programs<M> {
        Programs { machine: Rc::new(RefCell::new(machine)), next: Rc::default(), programs: Vec::new() }
    }

    /// Adds the program of the next agent and returns the agent's number; it is for the caller to say when it begins.
    ///
    /// # Panics
    ///
    /// If the operating system gives no memory for a stack.
    pub(crate) fn add(&mut self, name: &str, role: Role, program: impl FnOnce(Fiber<'_, M>) + 'static) -> usize {
        let agent = self.programs.len();
        let (machine, next) = (Rc::clone(&self.machine), Rc::clone(&self.next));
        // What is handed over to a stack must be small, and a program may hold a whole machine's parameters.
        let program = Box::new(program);
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        let stack = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            program(Fiber { machine: &machine, next: &next, yielder, agent });
        });
        self.programs.push(Program { name: name.to_owned(), role, stack });
        agent
    }

    /// Runs until every main program has ended, or one asks for a pause.
    ///
    /// # Errors
    ///
    /// If that will never be, or not before the limit, or the machine has a fault.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        let mut left =
            self.programs.iter().filter(|program| program.role == Role::Main && !program.stack.done()).count();
        while left > 0 {
            let agent = match self.next.take() {
                Some(agent) => agent,
                None => {
                    let ready = self.machine.borrow_mut().next_ready();
                    ready.ok_or_else(|| self.stopped())?
                }
            };
            let (now, limit) = (self.machine.borrow().now(), self.machine.borrow().limit());
            if now > limit {
                return Err(Failure::TimeLimit(Time::from_picoseconds(limit)));
            }
            if let CoroutineResult::Return(()) = self.programs[agent].stack.resume(()) {
                self.machine.borrow_mut().waits_for(agent, M::ENDED);
                left -= usize::from(self.programs[agent].role == Role::Main);
            }
            if self.machine.borrow_mut().take_pause() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Why nothing happens any more.
    fn stopped(&self) -> Failure {
        let machine = self.machine.borrow();
        if let Some(fault) = machine.fault() {
            return fault;
        }
        let waits = |(agent, program): (usize, &Program)| {
            let wait = machine.wait_of(agent);
            (wait != M::ENDED).then(|| format!("{} for {wait:?}", program.name))
        };
        let programs = self.programs.iter().enumerate().filter_map(waits);
        Failure::Deadlock(programs.chain(machine.stuck()).collect())
    }
}
