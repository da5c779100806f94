//! The paper's five parallel programs (section 4.2, Table 3), on 16 nodes with active messages: what they compute is compared, bit for bit,
//! with the same computed in one place.
//!
//! | program | what it does | messages |
//! |---|---|---|
//! | [`Program::Spsolve`] | values go down the edges of a directed acyclic graph; each node adds up what comes and sends the sum on | 12 bytes each edge |
//! | [`Program::Gauss`] | Gaussian elimination of rows dealt out to the nodes; the pivot's row goes to all | a row each |
//! | [`Program::Em3d`] | the two halves of a bipartite graph in turn; values go to remote neighbours | 12 bytes each remote edge |
//! | [`Program::Moldyn`] | particles within a cutoff of each other; everybody's forces are added up in a ring | 1.5 kilobytes a round |
//! | [`Program::Appbt`] | systems of blocks along every line of a cube, which is divided among the nodes | shared memory, by blocks of 128 bytes (`memory.rs`) |
//!
//! The paper names the inputs by a few numbers. Graphs here are drawn from a seed; the arithmetic between messages is stated as work.

mod appbt;
mod em3d;
mod gauss;
mod memory;
mod moldyn;
mod spsolve;

use std::cell::RefCell;
use std::collections::BTreeMap;
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
    /// Molecular dynamics.
    Moldyn,
    /// Fluid dynamics on a cube.
    Appbt,
}

impl Program {
    /// All of them, in the paper's order.
    pub const ALL: [Program; 5] = [Program::Spsolve, Program::Gauss, Program::Em3d, Program::Moldyn, Program::Appbt];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Program::Spsolve => "spsolve",
            Program::Gauss => "gauss",
            Program::Em3d => "em3d",
            Program::Moldyn => "moldyn",
            Program::Appbt => "appbt",
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
    /// What part of the time a node spends in what the paper calls the main communication, on average: moldyn's reduction.
    pub main_communication: f64,
    /// How many messages the node receives to which most come, over the average of the others.
    pub hot_spot: f64,
}

/// Bytes of a buffer in the user's memory: of the one for what is sent, and of the one for what comes.
const BUFFER_BYTES: u64 = 4096;

/// A node as a program sees it: active messages of words.
struct Messenger<'a> {
    core: BusCore<'a>,
    endpoint: Endpoint<BusCore<'a>>,
    out: Address,
    into: Address,
    /// The program's own memory.
    memory: Address,
    received: u64,
    /// How long its main communication has taken, in picoseconds.
    communicated: u64,
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
        self.received += 1;
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

    /// Does what is the program's main communication.
    fn main_communication(&mut self, act: impl FnOnce(&mut Self)) {
        let begins = self.core.now();
        act(self);
        self.communicated += self.core.now().since(begins).picoseconds();
    }

    fn work(&self, cycles: u64) {
        self.core.work(u32::try_from(cycles).unwrap_or(u32::MAX));
    }
}

/// What a program is on one machine: its parts, and what they are to compute.
trait Parallel: Clone + 'static {
    /// Bytes of memory that a node's part uses of the modelled machine's, beside buffers for messages.
    fn memory_bytes(&self) -> u64 {
        0
    }
    /// What a node computes.
    fn part(&self, node: &mut Messenger<'_>) -> Vec<u32>;
    /// What each should.
    fn expected(&self) -> Vec<Vec<u32>>;
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
        Program::Moldyn => run_as(&moldyn::Dynamics::new(nodes, asked.whole), asked),
        Program::Appbt => run_as(&appbt::Grid::new(nodes, asked.whole), asked),
    }
}

/// What a node has come out with.
struct Part {
    computed: Vec<u32>,
    ended: Time,
    buffered: u64,
    received: u64,
    communicated: u64,
}

fn run_as(program: &impl Parallel, asked: &Run) -> Result<Outcome, Failure> {
    let (mut simulation, places) = asked.nodes.build(2 * BUFFER_BYTES + program.memory_bytes());
    let parts = Rc::new(RefCell::new(BTreeMap::new()));
    for node in 0..asked.nodes.count {
        let (program, into) = (program.clone(), Rc::clone(&parts));
        asked.nodes.processor(&mut simulation, node, Role::Main, places, move |core, endpoint| {
            let mut messenger = Messenger {
                core: *core,
                endpoint,
                out: places.user,
                into: places.user + BUFFER_BYTES,
                memory: places.user + 2 * BUFFER_BYTES,
                received: 0,
                communicated: 0,
            };
            let computed = program.part(&mut messenger);
            let Messenger { endpoint, received, communicated, .. } = messenger;
            let (ended, buffered) = (core.now(), endpoint.buffered());
            into.borrow_mut().insert(node, Part { computed, ended, buffered, received, communicated });
        });
    }
    simulation.run()?;
    let parts: Vec<Part> = parts.take().into_values().collect();
    for (node, (part, expected)) in parts.iter().zip(program.expected()).enumerate() {
        assert!(part.computed == expected, "node {node} has computed something else than it should");
    }
    let machine = simulation.machine().borrow();
    let nodes = parts.len() as f64;
    let busy: u64 = machine.counters.iter().map(|counters| counters.memory_busy).sum();
    let spent = |part: &Part| part.communicated as f64 / part.ended.picoseconds() as f64;
    let received: Vec<f64> = parts.iter().map(|part| part.received as f64).collect();
    let (most, all) = (received.iter().copied().fold(0.0, f64::max), received.iter().sum::<f64>());
    Ok(Outcome {
        microseconds: parts.iter().map(|part| part.ended).max().unwrap_or(Time::ZERO).picoseconds() as f64 / 1e6,
        memory_bus: busy as f64 / 1e6 / nodes,
        messages: machine.counters.iter().map(|counters| counters.messages).sum(),
        buffered: parts.iter().map(|part| part.buffered).sum(),
        main_communication: parts.iter().map(spent).sum::<f64>() / nodes,
        hot_spot: most / ((all - most) / (nodes - 1.0)),
    })
}
