//! Three of the paper's five parallel programs (section 4.2, Table 3), on 16 nodes with active messages: what they compute is compared with
//! the same computed in one place.
//!
//! | program | what it does | messages |
//! |---|---|---|
//! | [`Program::Spsolve`] | values go down the edges of a directed acyclic graph; each node adds up what comes and sends the sum on | 12 bytes each edge |
//! | [`Program::Gauss`] | Gaussian elimination of rows dealt out to the nodes; the pivot's row goes to all | a row each |
//! | [`Program::Em3d`] | the two halves of a bipartite graph in turn; values go to remote neighbours | 12 bytes each remote edge |
//!
//! The paper names the inputs by a few numbers. Graphs here are drawn from a seed; the arithmetic between messages is stated as work.

mod em3d;
mod gauss;
mod spsolve;

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Time};
use conic_interface::cni::{Endpoint, MOST_PAYLOAD};
use conic_sim::bus::BusCore;
use conic_sim::{Failure, Role};

use super::nodes::Nodes;

/// A parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// Sums down a directed acyclic graph.
    Spsolve,
    /// Gaussian elimination.
    Gauss,
    /// Wave propagation on a bipartite graph.
    Em3d,
}

impl Program {
    /// All of them, in the paper's order.
    pub const ALL: [Program; 3] = [Program::Spsolve, Program::Gauss, Program::Em3d];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Program::Spsolve => "spsolve",
            Program::Gauss => "gauss",
            Program::Em3d => "em3d",
        }
    }
}

/// A run of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// On which nodes.
    pub nodes: Nodes,
    /// Which program.
    pub program: Program,
    /// The paper's input, or a small one.
    pub whole: bool,
}

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// From the first to the last, in microseconds.
    pub microseconds: f64,
    /// For how long the nodes' memory buses were taken, in microseconds, on average.
    pub memory_bus: f64,
    /// Network messages.
    pub messages: u64,
    /// Of those, taken in by software while others could not be sent.
    pub buffered: u64,
}

/// Bytes of the user's memory in each node: a buffer for what is sent, and one for what comes.
const USER_BYTES: u64 = 2 * BUFFER_BYTES;
const BUFFER_BYTES: u64 = 4096;

/// A node as a program sees it: active messages of words.
struct Messenger<'a> {
    core: BusCore<'a>,
    endpoint: Endpoint<BusCore<'a>>,
    out: Address,
    into: Address,
}

impl Messenger<'_> {
    fn node(&self) -> usize {
        self.core.node()
    }

    /// Sends words to another node, at most as many as the buffer holds.
    fn send(&mut self, to: usize, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.core.write_bytes(self.out, &bytes);
        self.endpoint.send(to as u16, self.out, bytes.len() as u64);
    }

    /// The next network message's words, and who sent it.
    fn poll(&mut self) -> Option<(usize, Vec<u32>)> {
        let received = self.endpoint.try_receive(self.into)?;
        let mut bytes = [0; MOST_PAYLOAD as usize];
        self.core.read_bytes(self.into, &mut bytes[..received.bytes as usize]);
        let words = bytes[..received.bytes as usize].chunks_exact(4);
        let words = words.map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes"))).collect();
        Some((received.from.into(), words))
    }

    /// The same, when one comes.
    fn next(&mut self) -> (usize, Vec<u32>) {
        loop {
            match self.poll() {
                Some(message) => return message,
                None => self.core.spin(),
            }
        }
    }

    fn work(&self, cycles: u64) {
        self.core.work(u32::try_from(cycles).unwrap_or(u32::MAX));
    }
}

/// What a program is on one machine: its parts, and what they are to compute.
trait Parallel: Clone + 'static {
    /// What a node computes.
    fn part(&self, node: &mut Messenger<'_>) -> Vec<u32>;
    /// What it should.
    fn expected(&self, node: usize) -> Vec<u32>;
}

/// Runs a program.
///
/// # Errors
///
/// The simulator's.
///
/// # Panics
///
/// If a node computes something else than it should.
pub fn run(asked: &Run) -> Result<Outcome, Failure> {
    let nodes = asked.nodes.count;
    match asked.program {
        Program::Spsolve => run_as(&spsolve::Graph::new(nodes, asked.whole), asked),
        Program::Gauss => run_as(&gauss::Matrix::new(nodes, asked.whole), asked),
        Program::Em3d => run_as(&em3d::Graph::new(nodes, asked.whole), asked),
    }
}

fn run_as(program: &impl Parallel, asked: &Run) -> Result<Outcome, Failure> {
    let (mut simulation, places) = asked.nodes.build(USER_BYTES);
    let found = Rc::new(RefCell::new((Time::ZERO, 0)));
    for node in 0..asked.nodes.count {
        let (program, into) = (program.clone(), Rc::clone(&found));
        asked.nodes.processor(&mut simulation, node, Role::Main, places, move |core, endpoint| {
            let (out, into_buffer) = (places.user, places.user + BUFFER_BYTES);
            let mut messenger = Messenger { core: *core, endpoint, out, into: into_buffer };
            let computed = program.part(&mut messenger);
            assert_eq!(computed, program.expected(node), "what node {node} has computed");
            let (last, buffered) = *into.borrow();
            into.replace((last.max(core.now()), buffered + messenger.endpoint.buffered()));
        });
    }
    simulation.run()?;
    let (last, buffered) = found.take();
    let machine = simulation.machine().borrow();
    let busy: u64 = machine.counters.iter().map(|counters| counters.memory_busy).sum();
    Ok(Outcome {
        microseconds: last.picoseconds() as f64 / 1e6,
        memory_bus: busy as f64 / 1e6 / asked.nodes.count as f64,
        messages: machine.counters.iter().map(|counters| counters.messages).sum(),
        buffered,
    })
}
