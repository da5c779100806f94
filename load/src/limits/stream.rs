//! Lines that stream from core to core.

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};

use super::{Moved, STOP, lines};

/// Lines of each ring: small enough to stay in a first-level cache together with the other direction's.
const RING: u64 = 256;

/// Lines that are written, or read, in one go.
const BURST: u64 = 16;

/// Lines after which a consumer says how far it is.
const CREDIT: u64 = 64;

/// Bursts between two looks at the clock.
const BETWEEN_LOOKS: u32 = 16;

/// Lines that are asked for ahead of the one being read.
const AHEAD: u64 = 8;

/// Lines that an out-of-order core reads ahead of the one that its program has come to: some twenty instructions each, of the
/// 450 to 550 that it looks at.
const LOOKS_AHEAD: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ring {
    lines: Address,
    credit: Address,
}

impl Ring {
    fn new(layout: &mut Layout, writer: Home, reader: Home) -> Ring {
        let lines_at = lines(layout, "stream", RING, writer, SynchronisingWords::FIRST);
        let credit = lines(layout, "stream credit", 1, reader, SynchronisingWords::FIRST);
        Ring { lines: lines_at, credit }
    }
}

/// The writing end: word 0 of each line is its number, from 1.
struct Writer {
    ring: Ring,
    written: u64,
    allowed: u64,
}

impl Writer {
    fn new(ring: Ring) -> Writer {
        Writer { ring, written: 0, allowed: RING }
    }

    #[inline(always)]
    fn room<C: Core>(&mut self, core: &C) -> u64 {
        if self.written == self.allowed {
            // Acquire: the lines before it have been read and may be overwritten.
            self.allowed = core.load_acquire(self.ring.credit) + RING;
        }
        self.allowed - self.written
    }

    #[inline(always)]
    fn write<C: Core>(&mut self, core: &C, value: u64) {
        let at = self.ring.lines.lines(self.written % RING);
        self.written += 1;
        // Word 0 is released last, and is the signal.
        core.publish_line(at, &Line([self.written, value, value, value, value, value, value, value]));
    }

    #[inline(always)]
    fn burst<C: Core>(&mut self, core: &C) -> u64 {
        let count = self.room(core).min(BURST);
        for _ in 0..count {
            self.write(core, self.written);
        }
        count
    }

    /// Writes a last line that says so.
    fn stop<C: Core>(&mut self, core: &C, mut meanwhile: impl FnMut()) {
        while self.room(core) == 0 {
            meanwhile();
            core.spin();
        }
        self.write(core, STOP);
    }
}

/// The reading end.
struct Reader {
    ring: Ring,
    read: u64,
    returned: u64,
    /// Everything that was read goes in, so that no read can be left out.
    sum: u64,
    stopped: bool,
}

impl Reader {
    fn new(ring: Ring) -> Reader {
        Reader { ring, read: 0, returned: 0, sum: 0, stopped: false }
    }

    #[inline(always)]
    fn burst<C: Core>(&mut self, core: &C) -> u64 {
        let mut count = 0;
        while count < BURST {
            let at = self.ring.lines.lines(self.read % RING);
            // Acquire: pairs with the writer's release of word 0; the rest of the line is then there. What stands in a line only
            // grows. Not `!=`: a compiler may take what was loaded for the number that it was found equal to, and compute the
            // next line's place from it; then every load waits for the one before (24 instead of 91 million lines a second).
            if core.load_acquire(at) <= self.read {
                break;
            }
            // A core that has found a line full foresees that the next ones are, and has begun their loads by now. One that
            // waits for a line foresees no more than another look at it.
            core.will_read(self.ring.lines.lines((self.read + LOOKS_AHEAD) % RING), 0);
            let line = core.read_line(at);
            self.sum = line.0[1..].iter().fold(self.sum, |sum, word| sum ^ word);
            self.stopped = line.0[7] == STOP;
            self.read += 1;
            count += 1;
        }
        if self.read - self.returned >= CREDIT {
            self.returned = self.read;
            // Release: every line before it has been read.
            core.store_release(self.ring.credit, self.read);
        }
        count
    }
}

/// Which side of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that keeps the time.
    Host,
    /// The one that stops when it is told.
    Nic,
}

/// Lines in a ring each way: written in bursts, the signal in the line, credits in batches. Needs a fresh region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    to_nic: Ring,
    to_host: Ring,
}

impl Exchange {
    /// Two rings, each in its writer's memory.
    pub fn new(layout: &mut Layout) -> Exchange {
        Exchange { to_nic: Ring::new(layout, Home::Host, Home::Nic), to_host: Ring::new(layout, Home::Nic, Home::Host) }
    }

    /// Writes lines and reads the other side's until `until` (the host) or until told (the NIC); says how many this side read.
    pub fn both_ways<C: Core>(&self, core: &C, side: Side, until: Time) -> Moved {
        let (out, back) = match side {
            Side::Host => (self.to_nic, self.to_host),
            Side::Nic => (self.to_host, self.to_nic),
        };
        let (mut writer, mut reader) = (Writer::new(out), Reader::new(back));
        let start = core.now();
        let end = loop {
            for _ in 0..BETWEEN_LOOKS {
                if writer.burst(core) + reader.burst(core) == 0 {
                    core.spin();
                }
            }
            if reader.stopped || side == Side::Host && core.now() >= until {
                break core.now();
            }
        };
        let moved = Moved { count: reader.read, span: end.since(start) };
        writer.stop(core, || {
            reader.burst(core);
        });
        while !reader.stopped {
            if reader.burst(core) == 0 {
                core.spin();
            }
        }
        moved
    }

    /// Writes lines to the other side, which calls [`Exchange::read`], until `until`.
    pub fn write<C: Core>(&self, core: &C, until: Time) -> Moved {
        let mut writer = Writer::new(self.to_nic);
        let start = core.now();
        let end = loop {
            for _ in 0..BETWEEN_LOOKS {
                if writer.burst(core) == 0 {
                    core.spin();
                }
            }
            let now = core.now();
            if now >= until {
                break now;
            }
        };
        let moved = Moved { count: writer.written, span: end.since(start) };
        writer.stop(core, || {});
        moved
    }

    /// Reads what [`Exchange::write`] writes, until that stops; returns how many lines, and the exclusive or of all their
    /// words.
    pub fn read<C: Core>(&self, core: &C) -> (u64, u64) {
        let mut reader = Reader::new(self.to_nic);
        while !reader.stopped {
            if reader.burst(core) == 0 {
                core.spin();
            }
        }
        (reader.read, reader.sum)
    }
}

/// Lines of one ring that both sides write: each overwrites what it has read with its own. Needs a fresh region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    lines: Address,
}

impl Swap {
    /// A ring in the host's memory.
    pub fn new(layout: &mut Layout) -> Swap {
        Swap { lines: lines(layout, "swap", RING, Home::Host, SynchronisingWords::FIRST) }
    }

    /// Reads each line and overwrites it until `until` (the host) or until told (the NIC); says how many lines it read.
    ///
    /// In lap `l` the host writes `2 l + 1` and the NIC answers `2 l + 2` in word 0 of each line.
    pub fn run<C: Core>(&self, core: &C, side: Side, until: Time) -> Moved {
        let mine = if side == Side::Host { 1 } else { 2 };
        let (mut position, mut sum) = (0u64, 0u64);
        let start = core.now();
        let mut stopped = false;
        let end = loop {
            for _ in 0..BETWEEN_LOOKS as u64 * BURST {
                let at = self.lines.lines(position % RING);
                let lap = position / RING * 2;
                // Acquire: pairs with the other side's release of word 0.
                let word = core.load_acquire(at);
                if word == STOP {
                    stopped = true;
                    break;
                }
                if word != lap + mine - 1 {
                    core.spin();
                    continue;
                }
                core.prefetch_write(self.lines.lines((position + AHEAD) % RING));
                sum = core.read_line(at).0[1..].iter().fold(sum, |sum, word| sum ^ word);
                // Word 0 is released last, and is the signal.
                core.publish_line(at, &Line([lap + mine, sum, position, sum, position, sum, position, sum]));
                position += 1;
            }
            if stopped || side == Side::Host && core.now() >= until {
                break core.now();
            }
        };
        if side == Side::Host {
            for index in 0..RING {
                // Release: nothing depends on it.
                core.store_release(self.lines.lines(index), STOP);
            }
        }
        Moved { count: position, span: end.since(start) }
    }
}

/// How a stream's bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Through the caches.
    Cached,
    /// Past them.
    NonTemporal,
}

/// Megabytes from one side to the other, each announced by a register, read into a local buffer (CC-NIC Figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    data: Address,
    chunk_lines: u64,
    written: Address,
    read: Address,
}

/// Chunks that the writer may be ahead.
const CHUNKS: u64 = 2;

impl Stream {
    /// Room for two chunks of `chunk_bytes` bytes each (the paper: 1 MiB), rounded up to lines, and a register each way.
    pub fn new(layout: &mut Layout, chunk_bytes: u64) -> Stream {
        let chunk_lines = chunk_bytes.div_ceil(LINE_BYTES).max(1);
        let data = layout.add("stream", CHUNKS * chunk_lines * LINE_BYTES, 4096, Home::Host, SynchronisingWords::NONE);
        let written = lines(layout, "written", 1, Home::Host, SynchronisingWords::FIRST);
        let read = lines(layout, "read", 1, Home::Nic, SynchronisingWords::FIRST);
        Stream { data, chunk_lines, written, read }
    }

    fn chunk(&self, number: u64) -> Address {
        self.data.lines(number % CHUNKS * self.chunk_lines)
    }

    /// Writes chunks until `until`, and then stops [`Stream::read`]. Counts lines that were read. Needs a fresh region.
    pub fn write<C: Core>(&self, core: &C, store: Store, until: Time) -> Moved {
        let start = core.now();
        let mut chunks = 0;
        while core.now() < until {
            // Acquire: the reader has read what is about to be overwritten.
            while core.load_acquire(self.read) + CHUNKS <= chunks {
                core.spin();
            }
            let at = self.chunk(chunks);
            let line = Line([chunks; 8]);
            for index in 0..self.chunk_lines {
                match store {
                    Store::Cached => core.write_line(at.lines(index), &line),
                    Store::NonTemporal => core.write_nontemporal(at.lines(index), &[line]),
                }
            }
            if store == Store::NonTemporal {
                core.fence();
            }
            chunks += 1;
            // Release: the chunk becomes visible with the register.
            core.store_release(self.written, chunks);
        }
        // Acquire: as above.
        while core.load_acquire(self.read) < chunks {
            core.spin();
        }
        let end = core.now();
        // Release: nothing depends on it.
        core.store_release(self.written, STOP);
        Moved { count: chunks * self.chunk_lines, span: end.since(start) }
    }

    /// Reads chunks into a buffer of its own until the writer stops.
    pub fn read<C: Core>(&self, core: &C) -> Vec<Line> {
        let mut local = vec![Line::ZERO; self.chunk_lines as usize];
        let mut chunks = 0;
        loop {
            // Acquire: pairs with the writer's release of the chunk.
            let written = core.load_acquire(self.written);
            if written == STOP {
                return local;
            }
            if written > chunks {
                core.read_lines(self.chunk(chunks), &mut local);
                chunks += 1;
                // Release: the chunk was read and may be overwritten.
                core.store_release(self.read, chunks);
            } else {
                core.spin();
            }
        }
    }
}
