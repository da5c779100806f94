//! An echo server over a TCP service behind the NIC chip: fast-path threads and one application thread, each on a core of a node.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::Home;
use conic_sim::{Options, Role, Simulation};
use conic_tcp::segment::{HEADER_BYTES, MOST_PAYLOAD};
use conic_tcp::{Application, Clients, Connection, Counted, FastPath, REQUEST_BYTES, Service, Shape};

use super::application::start_of;
use super::behind_chip::{Ends, Laid, Measured, Wanted, lay, nic_of};
use crate::workload::{TcpRpc, TcpRpcOutcome};

/// Packets of a queue that a fast-path thread holds at once: those that it receives and sends, and blank ones of either size.
const HELD: u64 = 256;

/// Runs a service.
///
/// # Errors
///
/// What is wrong with the question, or how the run failed.
pub(super) fn run(question: &TcpRpc) -> Result<TcpRpcOutcome, String> {
    let nic = nic_of(&question.machine)?;
    if question.threads == 0 || question.requests.1 == 0 {
        return Err("a service has a fast-path thread at least, and a request is measured at least".to_owned());
    }
    let cores = question.machine.core.cores as usize;
    if question.threads >= cores {
        return Err(format!(
            "{} fast-path threads and an application thread do not fit on the {cores} cores of a node",
            question.threads
        ));
    }
    let wanted = Wanted {
        reached: question.reached,
        threads: question.threads,
        window: HELD,
        most_bytes: HEADER_BYTES + MOST_PAYLOAD,
        object_bytes: 0,
        seed: question.seed,
    };
    let shape = Shape { flows: question.flows, threads: question.threads as u32, ..Shape::default() };
    let laid =
        lay(wanted, &nic, |layout, _| Service::place(layout, shape, Home::Host).map_err(|error| error.to_string()))?;
    if question.flows < wanted.queues() as u32 {
        return Err(format!("{} connections do not reach {} queues", question.flows, wanted.queues()));
    }
    let options = Options { seed: question.seed, ..Options::default() };
    let mut simulation = Simulation::new(&question.machine, &laid.layout, options);
    laid.fill(&simulation);
    let run = Rc::new(Run {
        question: question.clone(),
        connections: connections(question, wanted.queues()),
        room: shape.buffers[0],
        counted: vec![Cell::default(); question.threads],
        measured: RefCell::default(),
    });
    for (flow, (connection, _)) in (0..).zip(&run.connections) {
        if !laid.own.install(&simulation.setup(), flow, connection) {
            return Err(format!("connection {flow} finds no place"));
        }
    }
    add_service(&mut simulation, &laid, &run);
    laid.add_overlay(&mut simulation, |_, _| ());
    laid.add_chip(&mut simulation, &nic, &run);
    simulation.run().map_err(|failure| failure.to_string())?;
    let machine = simulation.machine().borrow();
    Ok(run.outcome(machine.operations(), machine.events()))
}

/// The connections, and the NIC's queue that each one's segments come from. The NIC spreads connections over its queues by a hash; here
/// they are dealt out in turn, which is as even as a hash can be.
fn connections(question: &TcpRpc, queues: usize) -> Vec<(Connection, usize)> {
    let connection = |flow: u32| {
        let queue = flow as usize % queues;
        let thread = (queue % question.threads) as u32;
        (Clients::connection(flow, thread), queue)
    };
    (0..question.flows).map(connection).collect()
}

/// What the programs share.
struct Run {
    question: TcpRpc,
    connections: Vec<(Connection, usize)>,
    /// Bytes that the service has room for on each.
    room: u32,
    /// What each fast-path thread counted until its last step.
    counted: Vec<Cell<Counted>>,
    measured: RefCell<Measured>,
}

impl Run {
    fn outcome(&self, operations: u64, events: u64) -> TcpRpcOutcome {
        let measured = self.measured.borrow();
        let sum = |of: fn(&Counted) -> u64| self.counted.iter().map(|counted| of(&counted.get())).sum::<u64>() as f64;
        let answers = sum(|counted| counted.sent_bytes) / f64::from(REQUEST_BYTES);
        TcpRpcOutcome {
            requests_per_second: measured.rate,
            median_nanoseconds: measured.nanoseconds(0.5),
            p99_nanoseconds: measured.nanoseconds(0.99),
            requests: measured.requests,
            answers_a_segment: answers / sum(|counted| counted.sent).max(1.0),
            sent_a_request: sum(|counted| counted.sent + counted.acknowledgements) / answers.max(1.0),
            wrong: measured.wrong,
            link_utilisation: measured.link_utilisation(),
            operations,
            events,
        }
    }
}

/// What is behind each queue: the clients of its connections.
impl Ends<Clients> for Run {
    fn far_end(&self, queue: usize) -> Clients {
        let of_queue = self.connections.iter().filter(|(_, of)| *of == queue);
        let connections: Vec<Connection> = of_queue.map(|(connection, _)| *connection).collect();
        Clients::new(&connections, self.room, self.question.load, self.question.seed)
    }
    fn requests(&self, queue: usize) -> (u64, u64) {
        let flows = self.connections.iter().filter(|(_, of)| *of == queue).count() as u64;
        let (warm, measured) = self.question.requests;
        (flows * warm, flows * measured)
    }
    fn come_in_bunches(&self) -> bool {
        true
    }
    fn payload_bytes(&self, clients: &Clients) -> u64 {
        clients.answered().into_iter().sum::<u64>() * u64::from(REQUEST_BYTES)
    }
    fn measured(&self) -> &RefCell<Measured> {
        &self.measured
    }
}

/// Adds the fast-path threads, and the application's.
fn add_service(simulation: &mut Simulation, laid: &Laid<Service>, run: &Rc<Run>) {
    let threads = run.question.threads;
    for thread in 0..threads {
        let (run, service) = (Rc::clone(run), laid.own.clone());
        laid.add_thread(simulation, (thread, "fast path"), move |_, queues| {
            let mut fast_path = FastPath::new(queues, &service, thread as u32, run.question.acknowledge);
            loop {
                fast_path.step();
                run.counted[thread].set(fast_path.counted());
            }
        });
    }
    let (service, start) = (laid.own.clone(), start_of(run.question.seed, 1 << 16));
    let agent = simulation.core("application", laid.node(), Role::Service, start, move |core| {
        let mut application = Application::new(core, &service, 0);
        loop {
            application.step();
        }
    });
    simulation.machine().borrow_mut().set_prefetchers(agent, true);
}
