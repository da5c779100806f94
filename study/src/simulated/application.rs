//! The application of a loopback, and what its threads measure: the same over every interface.

use std::cell::RefCell;

use conic_fabric::Time;
use conic_interface::burst::HostQueue;
use conic_load::{ClosedLoop, Latency, Workload};
use conic_sim::SimCore;
use conic_sim::probe::counters::AgentAccesses;

use super::wire::Wire;
use crate::workload::{Interface, Loopback, LoopbackOutcome, RemoteAccesses};

/// What a recording calls the time from one receipt of packets to the next.
pub const ROUND_TRIP: &str = "round trip";

/// What one thread measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    packets: u64,
    span: Time,
    latency: Latency,
    host: AgentAccesses,
    nic: AgentAccesses,
    wrong: u64,
}

/// What the threads share.
#[derive(Debug, Default)]
pub(super) struct Results {
    threads: Vec<Measured>,
    wire: Option<[Wire; 2]>,
}

/// When a thread starts: within the first half microsecond, so that threads do not run in step.
pub(super) fn start_of(seed: u64, thread: u64) -> Time {
    let mixed = (seed ^ thread << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Time::from_picoseconds((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 45)
}

/// The NIC agent of a host agent: they are made in pairs.
fn nic_of(host_agent: usize) -> usize {
    host_agent + 1
}

pub(super) fn application<'a>(
    question: &Loopback,
    core: &'a SimCore<'a>,
    queue: Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a>,
    thread: usize,
    results: &RefCell<Results>,
) {
    let workload = Workload {
        packet_size: question.packet_size,
        window: question.window,
        transmit_burst: question.transmit_burst,
        receive_burst: question.receive_burst,
        fetch_ahead: matches!(question.interface, Interface::CcNic(features) if features.fetch_ahead),
    };
    let mut application = ClosedLoop::new(queue, workload);
    let (warm, measured) = question.packets;
    if let Some(rate) = question.offered {
        // With cold rings and caches an open loop would fall behind, and make up for it long after they are warm.
        while application.account().received() < warm / 2 {
            application.step();
        }
        let interval = Time::from_picoseconds((1e12 / rate) as u64);
        application = application.paced(now(core), interval);
    }
    while application.account().received() < warm {
        application.step();
    }
    application.account_mut().forget_latency();
    let wire_now = || match question.interface {
        Interface::PcieRing => Wire::of_pcie_now(core),
        _ => Wire::now(core),
    };
    let counters = || {
        let machine = core.machine().borrow();
        (*machine.counters(core.agent()), *machine.counters(nic_of(core.agent())))
    };
    let (begins, received, before, wire) = (now(core), application.account().received(), counters(), wire_now());
    let mut since = begins;
    while application.account().received() < warm + measured {
        if application.step() > 0 {
            core.machine().borrow_mut().note_span(core.agent(), ROUND_TRIP, since);
            since = now(core);
        }
    }
    let (ends, after, wire_after) = (now(core), counters(), wire_now());
    let account = application.account();
    let mut shared = results.borrow_mut();
    shared.threads.push(Measured {
        packets: account.received() - received,
        span: ends.since(begins),
        latency: account.latency().clone(),
        host: after.0.since(&before.0),
        nic: after.1.since(&before.1),
        wrong: account.lost() + account.corrupt(),
    });
    if thread == 0 {
        shared.wire = Some([wire, wire_after]);
    }
    drop(shared);
    // The load stays until every thread has measured.
    while results.borrow().threads.len() < question.threads {
        application.step();
    }
}

fn now(core: &SimCore<'_>) -> Time {
    conic_fabric::Core::now(core)
}

pub(super) fn outcome(
    question: &Loopback,
    results: &Results,
    operations: u64,
    events: u64,
    end: u64,
) -> LoopbackOutcome {
    let mut latency = Latency::new();
    let (mut rate, mut packets, mut wrong) = (0.0, 0, 0);
    let (mut host, mut nic) = (AgentAccesses::default(), AgentAccesses::default());
    for thread in &results.threads {
        latency.add(&thread.latency);
        rate += thread.packets as f64 / thread.span.seconds();
        packets += thread.packets;
        wrong += thread.wrong;
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
        p99_nanoseconds: nanoseconds(latency.quantile(0.99)),
        minimum_nanoseconds: nanoseconds(latency.minimum()),
        nic: each(&nic),
        host: each(&host),
        link_utilisation: after.utilisation_since(&before, links),
        link_bytes: bytes,
        packets,
        wrong,
        simulated_seconds: end as f64 * 1e-12,
        operations,
        events,
    }
}
