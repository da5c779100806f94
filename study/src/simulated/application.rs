//! The application of a loopback, and what its threads measure: the same over every interface.

use std::cell::{Cell, RefCell};

use conic_fabric::{Layout, Time};
use conic_interface::burst::HostQueue;
use conic_load::{ClosedLoop, CopyLoop, Forwarder, Generator, Latency, Objects, Touch, Traffic, Workload};
use conic_sim::machine::Machine;
use conic_sim::probe::counters::AgentAccesses;
use conic_sim::{SimCore, SimDevice};

use super::wire::Wire;
use crate::workload::{Application, Interface, Loopback, LoopbackOutcome, RemoteAccesses};

/// What a recording calls the time from one receipt of packets to the next.
pub const ROUND_TRIP: &str = "round trip";

/// What one thread measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    packets: u64,
    span: Time,
    latency: Latency,
    from_writing: Latency,
    host: AgentAccesses,
    nic: AgentAccesses,
    /// Packets lost, and packets spoilt.
    wrong: [u64; 2],
}

/// What the threads share.
#[derive(Debug, Default)]
pub(super) struct Results {
    threads: Vec<Measured>,
    wire: Option<[Wire; 2]>,
}

/// The number of the first NIC's thread, where a host's has its own: its start counts from the host's, so that one queue pair alone runs
/// another way with another seed, too.
pub(super) const NICS: u64 = 1 << 20;

/// When a thread starts: within the first half microsecond, so that threads do not run in step.
pub(super) fn start_of(seed: u64, thread: u64) -> Time {
    let mixed = (seed ^ thread << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Time::from_picoseconds((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 45)
}

/// A thread: its number, the host's and the NIC's agent whose accesses it counts where it measures, and the host's own data,
/// where there are such. A NIC agent that serves several threads is counted by one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub number: usize,
    pub host: usize,
    pub nic: Option<usize>,
    pub objects: Option<Objects>,
}

/// The agents of a queue pair's two ends: set when both are on the machine, which is before a program of either runs.
#[derive(Debug, Default)]
pub(super) struct Ends {
    host: Cell<usize>,
    nic: Cell<Option<usize>>,
}

impl Ends {
    /// Says which they are; a NIC's core that serves many pairs is counted with one of them, and no end of the others.
    pub fn set(&self, host: usize, nic: Option<usize>) {
        self.host.set(host);
        self.nic.set(nic);
    }

    /// The pair's thread.
    pub fn thread(&self, number: usize, objects: Option<Objects>) -> Thread {
        Thread { number, host: self.host.get(), nic: self.nic.get(), objects }
    }
}

/// Places the data of each host thread's own, where it has any.
pub(super) fn place_objects(question: &Loopback, layout: &mut Layout) -> Vec<Option<Objects>> {
    let has = question.switches.application == Application::Copying;
    let place = |_| has.then(|| Objects::place(layout, question.packet_size, question.window));
    (0..question.threads).map(place).collect()
}

/// Where a program runs: a core, or a device.
pub(super) trait Seat {
    /// The machine.
    fn machine(&self) -> &RefCell<Machine>;
    /// Its agent.
    fn agent(&self) -> usize;
    /// Its time.
    fn now(&self) -> Time;
}

impl Seat for SimCore<'_> {
    fn machine(&self) -> &RefCell<Machine> {
        self.machine()
    }
    fn agent(&self) -> usize {
        self.agent()
    }
    fn now(&self) -> Time {
        conic_fabric::Core::now(self)
    }
}

impl Seat for SimDevice<'_> {
    fn machine(&self) -> &RefCell<Machine> {
        self.machine()
    }
    fn agent(&self) -> usize {
        self.agent()
    }
    fn now(&self) -> Time {
        conic_fabric::Device::now(self)
    }
}

/// What the host's program sends.
pub(super) fn workload(question: &Loopback) -> Workload {
    Workload {
        packet_size: question.packet_size,
        window: question.window,
        transmit_burst: question.transmit_burst,
        receive_burst: question.receive_burst,
        fetch_ahead: match question.interface {
            Interface::CcNic(features) => features.fetch_ahead,
            Interface::Ring => true,
            Interface::UnoptimisedRing | Interface::PcieRing => false,
        },
    }
}

/// The host's program of one queue pair.
pub(super) fn application<'a>(
    question: &Loopback,
    core: &'a SimCore<'a>,
    queue: Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a>,
    thread: Thread,
    results: &RefCell<Results>,
) {
    let workload = workload(question);
    match (question.switches.application, thread.objects) {
        (Application::Forwarding(touch), _) => {
            let mut application = Forwarder::new(queue, touch, question.receive_burst, workload.fetch_ahead);
            loop {
                application.step();
            }
        }
        (Application::Copying, Some(objects)) => {
            // What comes back while warming up is read whole.
            let (whole_until, by_core) = (question.packets.0, !question.switches.engines.host);
            let mut application = CopyLoop::new(queue, workload, objects, whole_until, by_core);
            measure(question, core, &mut application, thread, results);
        }
        (Application::Loopback | Application::Copying, _) => {
            let application = ClosedLoop::new(queue, workload);
            let mut application = if question.whole_bursts { application.of_whole_bursts() } else { application };
            measure(question, core, &mut application, thread, results);
        }
    }
}

/// What makes the packets that a host forwards.
pub(super) fn generator(question: &Loopback, touch: Touch) -> Generator {
    Generator::new(question.packet_size, question.window, question.transmit_burst, touch)
}

/// Warms up, measures, and keeps the load until every thread has measured.
pub(super) fn measure(
    question: &Loopback,
    seat: &impl Seat,
    application: &mut impl Traffic,
    thread: Thread,
    results: &RefCell<Results>,
) {
    let (warm, measured) = question.packets;
    if let Some(rate) = question.offered {
        // With cold rings and caches an open loop would fall behind, and make up for it long after they are warm.
        while application.account().received() < warm / 2 {
            application.step();
        }
        let interval = Time::from_picoseconds((1e12 / rate) as u64);
        // What the closed loop has under way would stand in front of the open one's packets, near the highest rate for thousands.
        application.pace(Time::NEVER, interval);
        while application.account().in_flight() > 0 {
            application.step();
        }
        application.pace(seat.now(), interval);
    }
    while application.account().received() < warm {
        application.step();
    }
    application.account_mut().forget_latency();
    let wire_now = || match question.interface {
        Interface::PcieRing => Wire::of_pcie(&seat.machine().borrow()),
        _ => Wire::of(&seat.machine().borrow()),
    };
    let counters = || {
        let machine = seat.machine().borrow();
        let nic = thread.nic.map_or_else(AgentAccesses::default, |nic| machine.counters(nic));
        (machine.counters(thread.host), nic)
    };
    if thread.number == 0 {
        seat.machine().borrow_mut().begin_window();
    }
    let (begins, received, before, wire) = (seat.now(), application.account().received(), counters(), wire_now());
    let mut since = begins;
    // The burst that ended the warm-up may have brought all of them: then the next one is measured.
    while application.account().received() < (warm + measured).max(received + 1) {
        if application.step() > 0 {
            seat.machine().borrow_mut().note_span(seat.agent(), ROUND_TRIP, since);
            since = seat.now();
        }
    }
    let (ends, after, wire_after) = (seat.now(), counters(), wire_now());
    if thread.number == 0 {
        seat.machine().borrow_mut().end_window();
    }
    let account = application.account();
    let mut shared = results.borrow_mut();
    shared.threads.push(Measured {
        packets: account.received() - received,
        span: ends.since(begins),
        latency: account.latency().clone(),
        from_writing: account.latency_from_writing().clone(),
        host: after.0.since(&before.0),
        nic: after.1.since(&before.1),
        wrong: [account.lost(), account.corrupt()],
    });
    if thread.number == 0 {
        shared.wire = Some([wire, wire_after]);
    }
    drop(shared);
    // The load stays until every thread has measured.
    while results.borrow().threads.len() < question.threads {
        application.step();
    }
}

pub(super) fn outcome(
    question: &Loopback,
    results: &Results,
    operations: u64,
    events: u64,
    end: u64,
) -> LoopbackOutcome {
    let (mut latency, mut from_writing) = (Latency::new(), Latency::new());
    let (mut rate, mut packets, mut lost, mut corrupt) = (0.0, 0, 0, 0);
    let (mut host, mut nic) = (AgentAccesses::default(), AgentAccesses::default());
    for thread in &results.threads {
        latency.add(&thread.latency);
        from_writing.add(&thread.from_writing);
        rate += thread.packets as f64 / thread.span.seconds();
        packets += thread.packets;
        lost += thread.wrong[0];
        corrupt += thread.wrong[1];
        host.add(&thread.host);
        nic.add(&thread.nic);
    }
    let each = |accesses: &AgentAccesses| RemoteAccesses {
        reads: accesses.remote_reads as f64 / packets as f64,
        rfos: accesses.remote_rfos as f64 / packets as f64,
    };
    let nanoseconds = |time: Time| time.picoseconds() as f64 / 1e3;
    let [before, after] = results.wire.unwrap_or_default();
    let links = if question.interface == Interface::PcieRing { 1 } else { question.machine.interconnect.links };
    let bytes = after.bytes_per_second_since(&before).map(|bytes| bytes / rate);
    LoopbackOutcome {
        packets_per_second: rate,
        bits_per_second: rate * f64::from(question.packet_size) * 8.0,
        median_nanoseconds: nanoseconds(latency.quantile(0.5)),
        median_from_writing_nanoseconds: nanoseconds(from_writing.quantile(0.5)),
        p99_nanoseconds: nanoseconds(latency.quantile(0.99)),
        p999_nanoseconds: nanoseconds(latency.quantile(0.999)),
        minimum_nanoseconds: nanoseconds(latency.minimum()),
        nic: each(&nic),
        host: each(&host),
        link_utilisation: after.utilisation_since(&before, links),
        link_bytes: bytes,
        packets,
        lost,
        corrupt,
        simulated_seconds: end as f64 * 1e-12,
        operations,
        events,
    }
}
