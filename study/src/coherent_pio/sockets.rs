//! FastForward between two sockets of the CPU that Enzian has one of: a line there, a line back.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Home, Layout, Time};
use conic_interface::fastforward::{Payload, Receiver, Sender, Shape};
use conic_sim::{Failure, Options, Parameters, Role, SimCore, Simulation};

/// Exchanges of one message each way, one after the other.
#[derive(Clone, Debug)]
pub struct Slots {
    /// A machine of two sockets.
    pub machine: Parameters,
    /// Whether a sender asks for its next slot while it waits for the answer. Then a message takes two round trips of the
    /// interconnect (section 4, Figure 4); otherwise the look whether the slot is empty is a third.
    pub ask_ahead: bool,
    /// In whose memory a queue lies: its sender's, or its receiver's.
    pub at_sender: bool,
    /// Exchanges before the first that counts, and those that count.
    pub rounds: (u64, u64),
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotsOutcome {
    /// Each exchange that counts, from before its request is written until its answer was read, in picoseconds.
    pub latencies: Vec<u64>,
    /// Requests of both sockets that crossed the interconnect, for each exchange.
    pub crossings: f64,
}

/// Requests of the two cores so far that crossed the interconnect.
fn requests(core: &SimCore<'_>) -> u64 {
    let machine = core.machine().borrow();
    (0..2).map(|agent| machine.counters(agent)).map(|counters| counters.remote_reads + counters.remote_rfos).sum()
}

fn message(round: u64) -> Payload {
    std::array::from_fn(|word| round * 7 + word as u64)
}

fn send<C: Core>(sender: &mut Sender<C>, payload: &Payload, ask_ahead: bool) {
    while !sender.try_send(payload) {
        sender.core().spin();
    }
    if ask_ahead {
        sender.ask_ahead();
    }
}

fn receive<C: Core>(receiver: &mut Receiver<C>) -> Payload {
    loop {
        match receiver.try_receive() {
            Some(payload) => return payload,
            None => receiver.core().spin(),
        }
    }
}

/// Makes the exchanges, and checks what comes back.
///
/// # Errors
///
/// The simulator's, where they never end.
///
/// # Panics
///
/// If an answer is wrong.
pub fn slots(question: &Slots) -> Result<SlotsOutcome, Failure> {
    let mut layout = Layout::new();
    let [first, second] = if question.at_sender { [Home::Host, Home::Nic] } else { [Home::Nic, Home::Host] };
    let mut queue = |home| Shape::default().place(&mut layout, home).expect("the default shape can be");
    let (there, back) = (queue(first), queue(second));
    let mut simulation = Simulation::new(&question.machine, &layout, Options::default());
    let (warm, measured) = question.rounds;
    let rounds = warm + measured;
    let results = Rc::new(RefCell::new((Vec::new(), 0)));
    let (out, ask_ahead) = (Rc::clone(&results), question.ask_ahead);
    simulation.core("caller", 0, Role::Main, Time::ZERO, move |core| {
        let (mut sender, mut receiver) = (there.sender(core), back.receiver(core));
        let mut before = 0;
        for round in 0..rounds {
            if round == warm {
                before = requests(core);
            }
            let start = core.now();
            send(&mut sender, &message(round), ask_ahead);
            let answer = receive(&mut receiver);
            if round >= warm {
                out.borrow_mut().0.push(core.now().since(start).picoseconds());
            }
            assert_eq!(answer, message(round).map(|word| !word), "the answer to message {round} is wrong");
        }
        out.borrow_mut().1 = requests(core) - before;
    });
    simulation.core("answerer", 1, Role::Main, Time::ZERO, move |core| {
        let (mut receiver, mut sender) = (there.receiver(core), back.sender(core));
        for _ in 0..rounds {
            let asked = receive(&mut receiver);
            send(&mut sender, &asked.map(|word| !word), ask_ahead);
        }
    });
    simulation.run()?;
    drop(simulation);
    let (latencies, requests) = results.take();
    Ok(SlotsOutcome { latencies, crossings: requests as f64 / measured.max(1) as f64 })
}

#[cfg(test)]
mod tests {
    use conic_sim::platform::Platform;

    use super::*;

    #[test]
    fn a_sender_that_asks_ahead_saves_a_round_trip_each_way() {
        let platform = Platform::load("thunderx").unwrap_or_else(|error| panic!("{error}"));
        let run = |ask_ahead, at_sender| {
            let machine = platform.parameters().clone();
            let outcome = slots(&Slots { machine, ask_ahead, at_sender, rounds: (80, 40) }).expect("it ends");
            super::super::percentile(&outcome.latencies, 0.5)
        };
        let crossing = platform.parameters().interconnect.crossing as f64 / 1000.0;
        for at_sender in [false, true] {
            let (waits, asks) = (run(false, at_sender), run(true, at_sender));
            // Two crossings and the lookups of each.
            assert!((4.0..5.0).contains(&((waits - asks) / crossing)), "{waits} and {asks} ns");
        }
    }
}
