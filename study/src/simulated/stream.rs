//! Data from node to node as fast as it goes.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};
use conic_sim::{Options, Role, SimCore, Simulation};

use super::failure;
use super::wire::Wire;
use crate::workload::{Failure, ReadOnly, ReadOnlyOutcome, Stream, StreamOutcome, StreamStores};

/// Reads lines in order.
fn read_in_order(core: &SimCore<'_>, from: Address, lines: std::ops::Range<u64>, mut each: impl FnMut(u64, Line)) {
    for index in lines {
        each(index, core.read_line(from.lines(index)));
    }
}

/// How many times the lines of its warm-up and its measurement a reader has: the load stays until the last to warm up has measured, and
/// lines that are read again would be in a cache, and cost the link nothing.
const SPARE: u64 = 4;

/// Reads what nobody writes.
pub(super) fn read_only(question: &ReadOnly) -> Result<ReadOnlyOutcome, Failure> {
    let (warm, measured) = question.lines;
    let each = SPARE * (warm + measured);
    let mut layout = Layout::new();
    let start =
        layout.add("lines", question.threads as u64 * each * LINE_BYTES, 4096, Home::Nic, SynchronisingWords::NONE);
    let mut simulation =
        Simulation::new(&question.machine, &layout, Options { seed: question.seed, ..Options::default() });
    let meter = Rc::new(Meter::default());
    for thread in 0..question.threads {
        let (meter, threads) = (Rc::clone(&meter), question.threads);
        simulation.core(&format!("reader {thread}"), 0, Role::Main, Time::ZERO, move |core| {
            let from = start.lines(thread as u64 * each);
            let read = |lines| read_in_order(core, from, lines, |_, _| meter.count(true));
            read(0..warm);
            let mut next = warm;
            if meter.warms_up() == threads {
                meter.measure(core, || read(warm..warm + measured));
            }
            // The load is there from before the measurement until after it.
            while meter.measured.get().is_none() {
                meter.short.set(meter.short.get() | (next == each));
                if meter.short.get() {
                    break;
                }
                read(next..next + 1);
                next += 1;
            }
        });
    }
    simulation.run().map_err(failure)?;
    if meter.short.get() {
        return Err(Failure(format!("a reader has read its {each} lines before the others have measured")));
    }
    let (bits_per_second, link_utilisation) = meter.outcome(question.machine.interconnect.links);
    Ok(ReadOnlyOutcome { bits_per_second, link_utilisation })
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

/// What all threads of a run share: how many lines have crossed, and what was measured of it.
#[derive(Debug, Default)]
struct Meter {
    /// Lines: those read where stores stay in the writer's caches, those written where they do not. A reader takes up to a region
    /// that crossed before it, so its own lines are not what the link carries meanwhile.
    crossed: Cell<u64>,
    /// Readers that have warmed up.
    warm: Cell<usize>,
    /// What crossed while the reader that was the last to warm up read what it measures: lines, how long, and the interconnect.
    measured: Cell<Option<(u64, Time, Wire, Wire)>>,
    /// A reader had nothing left to read before that.
    short: Cell<bool>,
}

impl Meter {
    fn count(&self, crosses: bool) {
        self.crossed.set(self.crossed.get() + u64::from(crosses));
    }

    /// Enters that a reader has warmed up; how many have.
    fn warms_up(&self) -> usize {
        self.warm.set(self.warm.get() + 1);
        self.warm.get()
    }

    /// Measures while `read` runs.
    fn measure(&self, core: &SimCore<'_>, read: impl FnOnce()) {
        let (begins, crossed, before) = (core.now(), self.crossed.get(), Wire::now(core));
        read();
        let lines = self.crossed.get() - crossed;
        self.measured.set(Some((lines, core.now().since(begins), before, Wire::now(core))));
    }

    /// Bits a second that crossed meanwhile, and the share of the interconnect of so many links.
    fn outcome(&self, links: u32) -> (f64, [f64; 2]) {
        let (lines, span, before, after) = self.measured.get().expect("the last reader to warm up measures");
        ((lines * LINE_BYTES * 8) as f64 / span.seconds(), after.utilisation_since(&before, links))
    }
}

/// Writes chunk after chunk; never ends.
fn write_chunks(core: &SimCore<'_>, question: &Stream, pair: Pair, meter: &Meter) {
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
            meter.count(question.stores == StreamStores::NonTemporal);
        }
        if question.stores == StreamStores::NonTemporal {
            core.fence();
        }
        // Release: the chunk before its number.
        core.store_release(pair.written, chunk + 1);
    }
}

/// Copies chunk after chunk into a buffer of its own.
fn read_chunks(core: &SimCore<'_>, question: &Stream, pair: Pair, meter: &Meter, chunks: std::ops::Range<u64>) {
    let lines = question.chunk_bytes / LINE_BYTES;
    for chunk in chunks {
        // Acquire: pairs with the writer's release.
        while core.load_acquire(pair.written) <= chunk {
            core.spin();
        }
        let at = pair.data.lines(chunk % question.region_chunks * lines);
        read_in_order(core, at, 0..lines, |index, line| {
            core.write_line(pair.buffer.lines(index), &line);
            meter.count(question.stores == StreamStores::Caching);
        });
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
    let meter = Rc::new(Meter::default());
    for (thread, pair) in pairs.into_iter().enumerate() {
        let (question_, meter_) = (question.clone(), Rc::clone(&meter));
        simulation.core(&format!("writer {thread}"), 0, Role::Service, Time::ZERO, move |core| {
            write_chunks(core, &question_, pair, &meter_);
        });
        let (question, meter) = (question.clone(), Rc::clone(&meter));
        simulation.core(&format!("reader {thread}"), 1, Role::Main, Time::ZERO, move |core| {
            let (warm, measured) = question.chunks;
            read_chunks(core, &question, pair, &meter, 0..warm);
            if meter.warms_up() == question.pairs {
                meter.measure(core, || read_chunks(core, &question, pair, &meter, warm..warm + measured));
            }
            // The load is there from before the measurement until after it.
            for chunk in warm.. {
                if meter.measured.get().is_some() {
                    break;
                }
                read_chunks(core, &question, pair, &meter, chunk..chunk + 1);
            }
        });
    }
    simulation.run().map_err(failure)?;
    let (bits_per_second, link_utilisation) = meter.outcome(question.machine.interconnect.links);
    Ok(StreamOutcome { bits_per_second, link_utilisation })
}

#[cfg(test)]
mod tests {
    use super::*;
    use conic_sim::Parameters;
    use conic_sim::platform::Platform;

    /// What a machine's links carry from node to node, bits a second.
    fn carries(machine: &Parameters) -> f64 {
        let wire = &machine.interconnect;
        let line_time = wire.flit_time as f64 * f64::from(wire.data_flits) / f64::from(wire.links);
        8.0 * LINE_BYTES as f64 / line_time * 1e12
    }

    #[test]
    fn readers_read_no_more_than_their_link_carries() {
        for (name, threads) in [("icx", 16), ("spr", 56)] {
            let machine = Platform::load(name).expect("a platform that comes with the crate").parameters().clone();
            let carries = carries(&machine);
            let question = ReadOnly { machine, threads, lines: (300, 1000), seed: 1 };
            let outcome = read_only(&question).expect("it ends");
            let share = outcome.bits_per_second / carries;
            println!("{name}: {share} of what the link carries, {outcome:?}");
            assert!((0.5..=1.02).contains(&share), "{name}: {share} of what the link carries");
            // What is under way at the ends of the measurement is no fiftieth of it.
            assert!((share / outcome.link_utilisation[1] - 1.0).abs() <= 0.02, "{name}: {share} of {outcome:?}");
        }
    }

    #[test]
    fn no_stream_carries_more_than_its_link() {
        let spr = Platform::load("spr").expect("a platform that comes with the crate");
        // An eighth of its caches, and chunks of an eighth of the study's: some pairs' regions stay in them, others' do not.
        let mut machine = spr.parameters().clone();
        machine.cache.l2_bytes /= 8;
        machine.cache.llc_bytes /= 8;
        let carries = carries(&machine);
        for stores in [StreamStores::Caching, StreamStores::NonTemporal] {
            let question = Stream {
                machine: machine.clone(),
                stores,
                pairs: 42,
                chunk_bytes: 128 << 10,
                region_chunks: 2,
                chunks: (2, 2),
                seed: 1,
            };
            let outcome = stream(&question).expect("it ends");
            // What is under way at the ends of the measurement is no hundredth of it.
            let share = outcome.bits_per_second / carries;
            println!("{stores:?}: {share} of what the link carries");
            assert!((0.5..=1.01).contains(&share), "{stores:?}: {share} of what the link carries");
            assert!(share <= 1.01 * outcome.link_utilisation[0], "{stores:?}: {share} of {outcome:?}");
        }
    }
}
