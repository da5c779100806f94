//! Where a service lies: a table that finds a connection's number, two lines a connection, its buffers, and the context queues.
//!
//! | part | what it is | written by | synchronising words |
//! |---|---|---|---|
//! | table | a line a bucket, eight words: 32 bits of hash above a connection's number and 1, 0 for none | whoever installs | none |
//! | fixed line | word 0 the addresses, 1 the ports, thread and application, 2 and 3 the stations | whoever installs | none |
//! | flow line | [`Flow`] | the connection's fast-path thread | none |
//! | receive buffer | bytes in order, and one interval behind a gap | the fast-path thread; the application may read what it was told of | none |
//! | transmit buffer | bytes to be sent | the application, where it was told of room; the fast-path thread reads what it was told of | none |
//! | context queues | [`crate::context`] | its two ends | word 0 |
//!
//! Setting up a connection is the work of TAS's slow path, which is not here: [`Service::install`] writes one that is established,
//! before anybody serves it.

use std::fmt;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords};
use conic_interface::fastforward;

use crate::context::Context;
use crate::flow::Flow;
use crate::segment::End;

/// How large a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Connections, at most 2^15.
    pub flows: u32,
    /// Fast-path threads.
    pub threads: u32,
    /// Application threads.
    pub applications: u32,
    /// Bytes of each connection's receive and transmit buffer, a power of two each, of a line to 2^15.
    pub buffers: [u32; 2],
    /// Lines of each context queue, a power of two.
    pub notices: u64,
}

impl Default for Shape {
    /// The connections of section 5.7, one thread of each kind, and TAS's buffers of 8 KiB (`tcp_rxbuf_len`, `tcp_txbuf_len`).
    fn default() -> Shape {
        Shape { flows: 96, threads: 1, applications: 1, buffers: [8192; 2], notices: 256 }
    }
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// There is no connection, or too many.
    Flows(u32),
    /// There is no thread of a kind, or more than 256.
    Threads(u32),
    /// A buffer is no power of two, or too small or large.
    Buffer(u32),
    /// The context queues cannot be.
    Notices(u64),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Flows(flows) => write!(f, "a service has 1 to {MOST_FLOWS} connections, not {flows}"),
            ShapeError::Threads(threads) => {
                write!(f, "a service has 1 to {MOST_THREADS} threads of a kind, not {threads}")
            }
            ShapeError::Buffer(bytes) => {
                write!(f, "a buffer has a power of two of bytes, {LINE_BYTES} to {MOST_BUFFER_BYTES}, not {bytes}")
            }
            ShapeError::Notices(lines) => write!(f, "a context queue has a power of two of lines, not {lines}"),
        }
    }
}

impl std::error::Error for ShapeError {}

const MOST_FLOWS: u32 = 1 << 15;
const MOST_THREADS: u32 = 1 << 8;
/// A window of 16 bits says how much room there is, and none is scaled.
const MOST_BUFFER_BYTES: u32 = 1 << 15;
/// Connections that a bucket holds.
const BUCKET: u64 = 8;

/// An established connection, as it is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// This side's end.
    pub local: End,
    /// The other one.
    pub peer: End,
    /// The sequence number of the peer's next byte.
    pub received: u32,
    /// That of this side's.
    pub sent: u32,
    /// Bytes that the peer has room for.
    pub window: u16,
    /// The fast-path thread whose queues its segments come from.
    pub thread: u32,
    /// The application thread that it is for.
    pub application: u32,
}

/// What never changes of a connection: its fixed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// This side's end.
    pub local: End,
    /// The other one.
    pub peer: End,
    /// Its fast-path thread.
    pub thread: u32,
    /// Its application thread.
    pub application: u32,
}

fn station(word: u64) -> [u8; 6] {
    word.to_le_bytes()[..6].try_into().expect("six of eight bytes")
}

fn word_of(station: [u8; 6]) -> u64 {
    station.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

impl Fixed {
    /// What a line says.
    #[inline]
    pub fn from_line(line: &Line) -> Fixed {
        let [addresses, ports, local, peer, ..] = line.0;
        Fixed {
            local: End { station: station(local), address: addresses as u32, port: ports as u16 },
            peer: End { station: station(peer), address: (addresses >> 32) as u32, port: (ports >> 16) as u16 },
            thread: (ports >> 32) as u16 as u32,
            application: (ports >> 48) as u32,
        }
    }

    fn to_line(self) -> Line {
        let Fixed { local, peer, thread, application } = self;
        let addresses = u64::from(local.address) | u64::from(peer.address) << 32;
        let ports = u64::from(local.port) | u64::from(peer.port) << 16;
        let places = u64::from(thread) << 32 | u64::from(application) << 48;
        Line([addresses, ports | places, word_of(local.station), word_of(peer.station), 0, 0, 0, 0])
    }

    /// Whether a segment of these ends is this connection's. Stations are not compared: a router may be another one's.
    #[inline]
    pub fn is_of(&self, from: &End, to: &End) -> bool {
        (self.peer.address, self.peer.port, self.local.address, self.local.port)
            == (from.address, from.port, to.address, to.port)
    }
}

/// The hash of a connection's addresses and ports, as a segment from the peer has them.
#[inline]
pub fn hash(from: &End, to: &End) -> u64 {
    let addresses = u64::from(from.address) << 32 | u64::from(to.address);
    let ports = u64::from(from.port) << 16 | u64::from(to.port);
    let mixed = (addresses ^ ports.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a service lies; everybody's half is made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    shape: Shape,
    table: Address,
    buckets: u64,
    lines: Address,
    receive: Address,
    transmit: Address,
    /// By fast-path thread, and for each by application.
    contexts: Vec<Context>,
}

impl Service {
    /// Appends a service to a layout.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(layout: &mut Layout, shape: Shape, home: Home) -> Result<Service, ShapeError> {
        if !(1..=MOST_FLOWS).contains(&shape.flows) {
            return Err(ShapeError::Flows(shape.flows));
        }
        for threads in [shape.threads, shape.applications] {
            if !(1..=MOST_THREADS).contains(&threads) {
                return Err(ShapeError::Threads(threads));
            }
        }
        for bytes in shape.buffers {
            if !bytes.is_power_of_two() || !(LINE_BYTES as u32..=MOST_BUFFER_BYTES).contains(&bytes) {
                return Err(ShapeError::Buffer(bytes));
            }
        }
        let flows = u64::from(shape.flows);
        // Half full at most: a connection's bucket, and seldom another.
        let buckets = (2 * flows).div_ceil(BUCKET).next_power_of_two();
        let mut add = |name: &str, bytes| layout.add(name, bytes, 2 * LINE_BYTES, home, SynchronisingWords::NONE);
        let table = add("TCP table", buckets * LINE_BYTES);
        let lines = add("TCP connections", flows * 2 * LINE_BYTES);
        let receive = add("TCP receive buffers", flows * u64::from(shape.buffers[0]));
        let transmit = add("TCP transmit buffers", flows * u64::from(shape.buffers[1]));
        let queue = fastforward::Shape { slots: shape.notices, slip: None };
        let contexts: Result<Vec<_>, _> =
            (0..shape.threads * shape.applications).map(|_| Context::place(layout, queue, home)).collect();
        let contexts = contexts.map_err(|_| ShapeError::Notices(shape.notices))?;
        Ok(Service { shape, table, buckets, lines, receive, transmit, contexts })
    }

    /// How large it is.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The context queues between a fast-path thread and an application thread.
    pub fn context(&self, thread: u32, application: u32) -> Context {
        self.contexts[(thread * self.shape.applications + application) as usize]
    }

    /// Writes an established connection with this number, which nobody serves yet; false where the number or a thread is none of the
    /// service's, the number has a connection or the connection is there already, or the table is full.
    #[must_use]
    pub fn install(&self, core: &impl Core, flow: u32, connection: &Connection) -> bool {
        let Connection { local, peer, received, sent, window, thread, application } = *connection;
        if flow >= self.shape.flows || thread >= self.shape.threads || application >= self.shape.applications {
            return false;
        }
        let hash = hash(&peer, &local);
        let [fixed, changing] = self.lines_of(flow);
        if core.read_line(fixed) != Line::ZERO || self.find(core, hash, &peer, &local).is_some() {
            return false;
        }
        let entry = hash >> 32 << 32 | u64::from(flow + 1);
        for step in 0..self.buckets {
            let bucket = self.bucket(hash, step);
            let line = core.read_line(bucket);
            if let Some(free) = line.0.iter().position(|&word| word == 0) {
                core.store(bucket.word(free), entry);
                core.write_line(fixed, &Fixed { local, peer, thread, application }.to_line());
                let flow = Flow::established(received, sent, self.shape.buffers[0], window.into());
                core.write_line(changing, &flow.to_line());
                return true;
            }
        }
        false
    }

    /// The bucket that is looked at first for a hash, or so many behind it.
    #[inline]
    pub(crate) fn bucket(&self, hash: u64, step: u64) -> Address {
        self.table.lines((hash.wrapping_add(step)) & (self.buckets - 1))
    }

    /// The fixed line of a connection, and the one that changes.
    #[inline]
    pub(crate) fn lines_of(&self, flow: u32) -> [Address; 2] {
        let fixed = self.lines.lines(2 * u64::from(flow));
        [fixed, fixed.lines(1)]
    }

    /// The connection that a bucket's line names for a hash, the first of them; none where it names none. True where the next bucket
    /// may have it.
    #[inline]
    pub(crate) fn named(&self, line: &Line, hash: u64) -> (Option<u32>, bool) {
        let tag = hash >> 32;
        let hit = line.0.iter().find(|&&word| word >> 32 == tag && word as u32 != 0);
        (hit.map(|&word| word as u32 - 1), line.0[BUCKET as usize - 1] != 0)
    }

    /// Looks through the table for a connection; for when the first bucket's first hit was not it.
    pub(crate) fn find(&self, core: &impl Core, hash: u64, from: &End, to: &End) -> Option<u32> {
        for step in 0..self.buckets {
            let line = core.read_line(self.bucket(hash, step));
            for word in line.0.into_iter().filter(|word| word >> 32 == hash >> 32 && *word as u32 != 0) {
                let flow = word as u32 - 1;
                if Fixed::from_line(&core.read_line(self.lines_of(flow)[0])).is_of(from, to) {
                    return Some(flow);
                }
            }
            if line.0[BUCKET as usize - 1] == 0 {
                return None;
            }
        }
        None
    }

    /// The parts of a connection's receive buffer that so many bytes from a position on lie in: one, or two where they go around.
    #[inline]
    pub(crate) fn receive_parts(&self, flow: u32, at: u32, bytes: u32) -> [(Address, usize); 2] {
        parts(self.receive, self.shape.buffers[0], flow, at, bytes)
    }

    /// The same of its transmit buffer.
    #[inline]
    pub(crate) fn transmit_parts(&self, flow: u32, at: u32, bytes: u32) -> [(Address, usize); 2] {
        parts(self.transmit, self.shape.buffers[1], flow, at, bytes)
    }
}

fn parts(start: Address, buffer: u32, flow: u32, at: u32, bytes: u32) -> [(Address, usize); 2] {
    debug_assert!(bytes <= buffer, "{bytes} bytes in a buffer of {buffer}");
    let (start, at) = (start + u64::from(flow) * u64::from(buffer), at & (buffer - 1));
    let first = bytes.min(buffer - at);
    [(start + u64::from(at), first as usize), (start, (bytes - first) as usize)]
}

/// Reads bytes that lie in one part or two.
#[inline]
pub(crate) fn read_parts(core: &impl Core, parts: [(Address, usize); 2], into: &mut [u8]) {
    let (first, second) = into.split_at_mut(parts[0].1);
    core.read_bytes(parts[0].0, first);
    if !second.is_empty() {
        core.read_bytes(parts[1].0, second);
    }
}

/// Writes bytes into one part or two.
#[inline]
pub(crate) fn write_parts(core: &impl Core, parts: [(Address, usize); 2], from: &[u8]) {
    let (first, second) = from.split_at(parts[0].1);
    core.write_bytes(parts[0].0, first);
    if !second.is_empty() {
        core.write_bytes(parts[1].0, second);
    }
}
