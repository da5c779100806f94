//! What is still to happen on a machine, in order, and what each agent waits for.

use std::fmt::Debug;

use crate::engine::{EventQueue, Key};
use crate::fiber::Scheduled;
use crate::simulation::Failure;

/// An agent: a core, or a device's engine.
#[derive(Clone, Copy, Debug)]
struct Agent<W> {
    wait: W,
    /// Which wait it is, so that a wake-up for an earlier one is told apart.
    epoch: u32,
}

/// An entry of the queue.
#[derive(Clone, Copy, Debug)]
enum Entry<E> {
    /// An agent goes on, if it is still at this wait.
    Resume(u16, u32),
    /// Something that the machine knows about.
    Event(E),
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next<E> {
    /// An agent goes on.
    Ready(usize),
    /// An event.
    Event(E),
}

/// A machine's time, its events that have not happened yet, and its agents' waits. Events at one time happen in the order in which
/// they were put in. Times are picoseconds.
#[derive(Debug)]
pub(crate) struct Agenda<W, E> {
    /// The time of the last event.
    pub(crate) now: u64,
    /// When a run is stopped.
    pub(crate) limit: u64,
    queue: EventQueue<Entry<E>>,
    sequence: u64,
    agents: Vec<Agent<W>>,
}

impl<W: Copy + PartialEq, E: Copy> Agenda<W, E> {
    /// Nothing, and nobody.
    pub(crate) fn new() -> Agenda<W, E> {
        Agenda { now: 0, limit: u64::MAX, queue: EventQueue::default(), sequence: 0, agents: Vec::new() }
    }

    /// How many agents there are: the number of the next.
    pub(crate) fn agents(&self) -> usize {
        self.agents.len()
    }

    /// Adds an agent, which goes on now.
    pub(crate) fn add(&mut self, wait: W) {
        let agent = self.agents.len();
        self.agents.push(Agent { wait, epoch: 0 });
        self.resume_at(agent, self.now);
    }

    /// Lets an event happen at a time, or now if that has passed.
    pub(crate) fn at(&mut self, time: u64, event: E) {
        self.push(time, Entry::Event(event));
    }

    fn push(&mut self, time: u64, entry: Entry<E>) {
        self.sequence += 1;
        self.queue.push(Key::new(time.max(self.now), 0, self.sequence), entry);
    }

    /// What an agent waits for.
    pub(crate) fn wait_of(&self, agent: usize) -> W {
        self.agents[agent].wait
    }

    fn wait_for(&mut self, agent: usize, wait: W) {
        let agent = &mut self.agents[agent];
        (agent.wait, agent.epoch) = (wait, agent.epoch.wrapping_add(1));
    }

    /// Lets an agent go on at a time, unless it waits for something else by then.
    pub(crate) fn resume_at(&mut self, agent: usize, time: u64) {
        let epoch = self.agents[agent].epoch;
        self.push(time, Entry::Resume(agent as u16, epoch));
    }

    /// Lets it go on at a time if this is what it waits for.
    pub(crate) fn wake(&mut self, agent: usize, wait: W, time: u64) {
        if self.agents[agent].wait == wait {
            self.resume_at(agent, time);
        }
    }

    /// Goes on to the next event, or the next agent that can go on.
    fn next(&mut self) -> Option<Next<E>> {
        loop {
            let (key, entry) = self.queue.pop()?;
            self.now = key.time;
            match entry {
                Entry::Resume(agent, epoch) if self.agents[usize::from(agent)].epoch == epoch => {
                    return Some(Next::Ready(agent.into()));
                }
                Entry::Resume(..) => {}
                Entry::Event(event) => return Some(Next::Event(event)),
            }
        }
    }
}

/// A machine that holds an [`Agenda`].
pub(crate) trait HasAgenda: 'static {
    /// What a program waits for.
    type Wait: Copy + Debug + PartialEq;
    /// What happens.
    type Event: Copy;
    /// A point in time, and nothing else.
    const TIME: Self::Wait;
    /// Nothing any more: the program has ended.
    const ENDED: Self::Wait;

    fn agenda(&self) -> &Agenda<Self::Wait, Self::Event>;
    fn agenda_mut(&mut self) -> &mut Agenda<Self::Wait, Self::Event>;
    /// Lets an event happen: its time is now.
    fn happens(&mut self, event: Self::Event);
    /// Why nothing happens any more, where that is not that there is nothing to happen.
    fn fault(&self) -> Option<Failure> {
        None
    }
    /// Whether a program has asked that the run be interrupted, since this was last called.
    fn take_pause(&mut self) -> bool {
        false
    }
    /// What of the machine itself is stuck.
    fn stuck(&self) -> Vec<String>;
}

impl<M: HasAgenda> Scheduled for M {
    type Wait = M::Wait;
    const TIME: M::Wait = M::TIME;
    const ENDED: M::Wait = M::ENDED;

    fn waits_for(&mut self, agent: usize, wait: M::Wait) -> Option<u64> {
        self.agenda_mut().wait_for(agent, wait);
        None
    }
    fn wait_of(&self, agent: usize) -> M::Wait {
        self.agenda().wait_of(agent)
    }
    fn resume_at(&mut self, agent: usize, time: u64) {
        self.agenda_mut().resume_at(agent, time);
    }
    fn next_ready(&mut self) -> Option<usize> {
        while self.fault().is_none() {
            match self.agenda_mut().next()? {
                Next::Ready(agent) => return Some(agent),
                Next::Event(event) => self.happens(event),
            }
        }
        None
    }
    fn now(&self) -> u64 {
        self.agenda().now
    }
    fn limit(&self) -> u64 {
        self.agenda().limit
    }
    fn fault(&self) -> Option<Failure> {
        HasAgenda::fault(self)
    }
    fn take_pause(&mut self) -> bool {
        HasAgenda::take_pause(self)
    }
    fn stuck(&self) -> Vec<String> {
        HasAgenda::stuck(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Agenda, HasAgenda};
    use crate::fiber::Scheduled;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Wait {
        Time,
        Event(u8),
        Ended,
    }

    struct Machine {
        agenda: Agenda<Wait, u8>,
        happened: Vec<(u64, u8)>,
    }

    impl HasAgenda for Machine {
        type Wait = Wait;
        type Event = u8;
        const TIME: Wait = Wait::Time;
        const ENDED: Wait = Wait::Ended;

        fn agenda(&self) -> &Agenda<Wait, u8> {
            &self.agenda
        }
        fn agenda_mut(&mut self) -> &mut Agenda<Wait, u8> {
            &mut self.agenda
        }
        fn happens(&mut self, event: u8) {
            self.happened.push((self.agenda.now, event));
            self.agenda.wake(0, Wait::Event(event), self.agenda.now);
        }
        fn stuck(&self) -> Vec<String> {
            Vec::new()
        }
    }

    fn machine() -> Machine {
        let mut agenda = Agenda::new();
        agenda.add(Wait::Time);
        Machine { agenda, happened: Vec::new() }
    }

    #[test]
    fn an_agent_goes_on_for_what_it_waits_for_and_nothing_else() {
        let mut machine = machine();
        assert_eq!(machine.next_ready(), Some(0), "a new agent goes on at once");
        machine.resume_at(0, 10);
        assert_eq!(machine.waits_for(0, Wait::Event(2)), None);
        machine.agenda.at(20, 1);
        machine.agenda.at(30, 2);
        machine.agenda.at(40, 3);
        assert_eq!(
            (machine.next_ready(), machine.now()),
            (Some(0), 30),
            "not at 10: that wait is over; not for event 1"
        );
        assert_eq!(machine.happened, [(20, 1), (30, 2)]);
        assert_eq!((machine.next_ready(), machine.now()), (None, 40));
    }

    #[test]
    fn events_of_one_time_happen_in_the_order_they_were_put_in_and_none_in_the_past() {
        let mut machine = machine();
        machine.waits_for(0, Wait::Event(9));
        for event in [3, 1, 2] {
            machine.agenda.at(50, event);
        }
        machine.agenda.at(60, 9);
        assert_eq!((machine.next_ready(), machine.now()), (Some(0), 60));
        machine.agenda.at(5, 4);
        assert_eq!(machine.next_ready(), None);
        assert_eq!(machine.happened, [(50, 3), (50, 1), (50, 2), (60, 9), (60, 4)]);
    }
}
