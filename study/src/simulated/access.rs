//! One access to a line in a known state.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Home as Node, LINE_BYTES, Layout, SynchronisingWords, Time};
use conic_sim::{Options, Parameters, Role, Simulation};

use super::{failure, median_nanoseconds};
use crate::workload::{AccessLatency, AccessOutcome, Failure, Holder, Home};

/// The machine with its prefetchers off.
pub(super) fn without_prefetchers(machine: &Parameters) -> Parameters {
    let mut machine = machine.clone();
    machine.core.prefetch_next_line = false;
    machine.core.prefetch_stride = false;
    machine.core.prefetch_adjacent = false;
    machine
}

/// Times loads of lines that the holder has written and keeps.
pub(super) fn latency(question: &AccessLatency) -> Result<AccessOutcome, Failure> {
    let machine = without_prefetchers(&question.machine);
    let home = match question.home {
        Home::Reader => Node::Host,
        Home::Other => Node::Nic,
    };
    // As many as a private cache keeps with room to spare; more accesses take more rounds.
    let at_once = (machine.cache.l2_bytes / LINE_BYTES / 8).clamp(1, 1024);
    let mut times = Vec::new();
    while (times.len() as u64) < question.accesses.max(1) {
        let count = at_once.min(question.accesses.max(1) - times.len() as u64);
        times.extend(round(&machine, question, home, count)?);
    }
    let minimum = times.iter().min().map_or(0.0, |&time| time as f64 / 1e3);
    Ok(AccessOutcome { median_nanoseconds: median_nanoseconds(&mut times), minimum_nanoseconds: minimum })
}

fn round(machine: &Parameters, question: &AccessLatency, home: Node, count: u64) -> Result<Vec<u64>, Failure> {
    let mut layout = Layout::new();
    let lines = layout.add("lines", count * LINE_BYTES, 128, home, SynchronisingWords::ALL);
    let flag = layout.add("flag", LINE_BYTES, 128, Node::Host, SynchronisingWords::FIRST);
    let mut simulation = Simulation::new(machine, &layout, Options { seed: question.seed, ..Options::default() });
    let writer = match question.holder {
        Holder::Memory => None,
        Holder::NeighbourCore => Some(0),
        Holder::OtherNodeCore => Some(1),
    };
    if let Some(node) = writer {
        simulation.core("writer", node, Role::Main, Time::ZERO, move |core| {
            for index in 0..count {
                core.store(lines.lines(index), index);
            }
            // Release: the reader starts when every line is written.
            core.store_release(flag, 1);
        });
    }
    let times = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&times);
    simulation.core("reader", 0, Role::Main, Time::ZERO, move |core| {
        // Acquire: pairs with the writer's release.
        while writer.is_some() && core.load_acquire(flag) == 0 {
            core.spin();
        }
        for index in 0..count {
            let before = core.now();
            // Acquire: so that what follows depends on it, as in a chain of pointers.
            core.load_acquire(lines.lines(index));
            out.borrow_mut().push(core.now().since(before).picoseconds());
        }
    });
    simulation.run().map_err(failure)?;
    Ok(times.take())
}
