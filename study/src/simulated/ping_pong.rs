//! Round trips between two cores.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords, Time};
use conic_sim::{Options, Role, SimCore, Simulation};

use super::access::without_prefetchers;
use super::{failure, median_nanoseconds};
use crate::workload::{Failure, PingPong, PingPongLayout, PingPongOutcome};

fn place(layout: &mut Layout, question: PingPongLayout) -> (Address, Address) {
    let home = |node: u8| if node == 0 { Home::Host } else { Home::Nic };
    let mut line = |name, home| layout.add(name, LINE_BYTES, 2 * LINE_BYTES, home, SynchronisingWords::ALL);
    match question {
        PingPongLayout::SeparateLines { node } => (line("first", home(node)), line("second", home(node))),
        PingPongLayout::ReaderHomed => (line("first", Home::Nic), line("second", Home::Host)),
        PingPongLayout::WriterHomed => (line("first", Home::Host), line("second", Home::Nic)),
        PingPongLayout::OneLine { node } => {
            let line = line("both", home(node));
            (line, line.word(1))
        }
    }
}

/// Requests of the two cores so far that crossed the interconnect.
fn requests(core: &SimCore<'_>) -> u64 {
    let machine = core.machine().borrow();
    (0..2).map(|agent| machine.counters(agent)).map(|counters| counters.remote_reads + counters.remote_rfos).sum()
}

/// Sends a number there and back.
pub(super) fn round_trips(question: &PingPong) -> Result<PingPongOutcome, Failure> {
    let machine = without_prefetchers(&question.machine);
    let mut layout = Layout::new();
    let (first, second) = place(&mut layout, question.layout);
    let mut simulation = Simulation::new(&machine, &layout, Options { seed: question.seed, ..Options::default() });
    let (warm, measured) = question.rounds;
    let rounds = warm + measured;
    let results = Rc::new(RefCell::new((Vec::new(), 0)));
    let out = Rc::clone(&results);
    simulation.core("caller", 0, Role::Main, Time::ZERO, move |core| {
        let mut before = 0;
        for round in 1..=rounds {
            if round == warm + 1 {
                before = requests(core);
            }
            let start = core.now();
            // Release, and acquire below and in the answerer: nothing but the numbers changes hands.
            core.store_release(first, round);
            while core.load_acquire(second) != round {
                core.spin();
            }
            if round > warm {
                out.borrow_mut().0.push(core.now().since(start).picoseconds());
            }
        }
        out.borrow_mut().1 = requests(core) - before;
    });
    simulation.core("answerer", 1, Role::Main, Time::ZERO, move |core| {
        for round in 1..=rounds {
            // Acquire and release: as in the caller.
            while core.load_acquire(first) != round {
                core.spin();
            }
            core.store_release(second, round);
        }
    });
    simulation.run().map_err(failure)?;
    let (mut times, requests) = results.take();
    let remote_requests = requests as f64 / measured.max(1) as f64;
    Ok(PingPongOutcome { median_nanoseconds: median_nanoseconds(&mut times), remote_requests })
}
