//! Data from node to node as fast as it goes.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};
use conic_sim::{Options, Role, SimCore, Simulation};

use super::failure;
use super::wire::Wire;
use crate::workload::{Failure, ReadOnly, ReadOnlyOutcome, Stream, StreamOutcome, StreamStores};

/// What the measuring threads of a run have found: bits a second of each, and the interconnect before and after the first's.
#[derive(Debug, Default)]
struct Found {
    rates: Vec<f64>,
    wire: Option<(Wire, Wire)>,
}

impl Found {
    fn enter(&mut self, thread: usize, lines: u64, span: Time, wire: (Wire, Wire)) {
        self.rates.push(lines as f64 * 8.0 * LINE_BYTES as f64 / span.seconds());
        if thread == 0 {
            self.wire = Some(wire);
        }
    }

    fn utilisation(&self, links: u32) -> [f64; 2] {
        self.wire.map_or([0.0; 2], |(before, after)| after.utilisation_since(&before, links))
    }
}

/// Reads lines in order.
fn read_in_order(core: &SimCore<'_>, from: Address, lines: std::ops::Range<u64>, mut each: impl FnMut(u64, Line)) {
    for index in lines {
        each(index, core.read_line(from.lines(index)));
    }
}

/// Reads what nobody writes.
pub(super) fn read_only(question: &ReadOnly) -> Result<ReadOnlyOutcome, Failure> {
    let (warm, measured) = question.lines;
    let each = warm + measured;
    let mut layout = Layout::new();
    let start =
        layout.add("lines", question.threads as u64 * each * LINE_BYTES, 4096, Home::Nic, SynchronisingWords::NONE);
    let mut simulation =
        Simulation::new(&question.machine, &layout, Options { seed: question.seed, ..Options::default() });
    let found = Rc::new(RefCell::new(Found::default()));
    for thread in 0..question.threads {
        let found = Rc::clone(&found);
        let threads = question.threads;
        simulation.core(&format!("reader {thread}"), 0, Role::Main, Time::ZERO, move |core| {
            let from = start.lines(thread as u64 * each);
            read_in_order(core, from, 0..warm, |_, _| {});
            let (begins, before) = (core.now(), Wire::now(core));
            read_in_order(core, from, warm..each, |_, _| {});
            found.borrow_mut().enter(thread, measured, core.now().since(begins), (before, Wire::now(core)));
            // The load stays until every thread has measured; what is read again is in the cache, and costs the link nothing.
            debug_assert!(found.borrow().rates.len() <= threads);
        });
    }
    simulation.run().map_err(failure)?;
    let found = found.borrow();
    let links = question.machine.interconnect.links;
    Ok(ReadOnlyOutcome { bits_per_second: found.rates.iter().sum(), link_utilisation: found.utilisation(links) })
}

/// The places of one pair of threads.
#[derive(Clone, Copy, Debug)]
struct Pair {
    data: Address,
    buffer: Address,
    /// Chunks written, and chunks read.
    written: Address,
    read: Address,
}

fn place(layout: &mut Layout, question: &Stream) -> Pair {
    let home = match question.stores {
        StreamStores::Caching => Home::Host,
        StreamStores::NonTemporal => Home::Nic,
    };
    let mut add = |name, bytes, home, words| layout.add(name, bytes, 128, home, words);
    Pair {
        written: add("written", LINE_BYTES, Home::Host, SynchronisingWords::FIRST),
        data: add("data", question.chunk_bytes * question.region_chunks, home, SynchronisingWords::NONE),
        read: add("read", LINE_BYTES, Home::Nic, SynchronisingWords::FIRST),
        buffer: add("buffer", question.chunk_bytes, Home::Nic, SynchronisingWords::NONE),
    }
}

/// Writes chunk after chunk; never ends.
fn write_chunks(core: &SimCore<'_>, question: &Stream, pair: Pair) {
    let lines = question.chunk_bytes / LINE_BYTES;
    for chunk in 0.. {
        // Acquire: the reader has read the chunk that is written over.
        while chunk >= core.load_acquire(pair.read) + question.region_chunks {
            core.spin();
        }
        let at = pair.data.lines(chunk % question.region_chunks * lines);
        for index in 0..lines {
            let line = Line([chunk; 8]);
            match question.stores {
                StreamStores::Caching => core.write_line(at.lines(index), &line),
                StreamStores::NonTemporal => core.write_nontemporal(at.lines(index), &[line]),
            }
        }
        if question.stores == StreamStores::NonTemporal {
            core.fence();
        }
        // Release: the chunk before its number.
        core.store_release(pair.written, chunk + 1);
    }
}

/// Copies chunk after chunk into a buffer of its own.
fn read_chunks(core: &SimCore<'_>, question: &Stream, pair: Pair, chunks: std::ops::Range<u64>) {
    let lines = question.chunk_bytes / LINE_BYTES;
    for chunk in chunks {
        // Acquire: pairs with the writer's release.
        while core.load_acquire(pair.written) <= chunk {
            core.spin();
        }
        let at = pair.data.lines(chunk % question.region_chunks * lines);
        read_in_order(core, at, 0..lines, |index, line| core.write_line(pair.buffer.lines(index), &line));
        // Release: the chunk has been read.
        core.store_release(pair.read, chunk + 1);
    }
}

/// Streams from node 0 to node 1.
pub(super) fn stream(question: &Stream) -> Result<StreamOutcome, Failure> {
    let mut layout = Layout::new();
    let pairs: Vec<_> = (0..question.pairs).map(|_| place(&mut layout, question)).collect();
    let mut simulation =
        Simulation::new(&question.machine, &layout, Options { seed: question.seed, ..Options::default() });
    let found = Rc::new(RefCell::new(Found::default()));
    for (thread, pair) in pairs.into_iter().enumerate() {
        let question_ = question.clone();
        simulation.core(&format!("writer {thread}"), 0, Role::Service, Time::ZERO, move |core| {
            write_chunks(core, &question_, pair);
        });
        let (question, found) = (question.clone(), Rc::clone(&found));
        simulation.core(&format!("reader {thread}"), 1, Role::Main, Time::ZERO, move |core| {
            let (warm, measured) = question.chunks;
            read_chunks(core, &question, pair, 0..warm);
            let (begins, before) = (core.now(), Wire::now(core));
            read_chunks(core, &question, pair, warm..warm + measured);
            let lines = measured * question.chunk_bytes / LINE_BYTES;
            found.borrow_mut().enter(thread, lines, core.now().since(begins), (before, Wire::now(core)));
            let mut chunk = warm + measured;
            // The load stays until every pair has measured.
            while found.borrow().rates.len() < question.pairs {
                read_chunks(core, &question, pair, chunk..chunk + 1);
                chunk += 1;
            }
        });
    }
    simulation.run().map_err(failure)?;
    let found = found.borrow();
    let links = question.machine.interconnect.links;
    Ok(StreamOutcome { bits_per_second: found.rates.iter().sum(), link_utilisation: found.utilisation(links) })
}
