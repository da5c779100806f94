//! A core that refuses what its side must never do, whatever the other side wrote.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_check::{CrashCore, CrashMemory};
use conic_fabric::{Address, Core, LINE_BYTES, Line, Time};
use conic_interface::ccnic::{Map, PoolMap};

/// Whose core it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Host,
    Nic,
}

/// What lies in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A gap between segments.
    Nothing,
    /// A ring, register or credit line that one side writes and the other at most clears.
    WrittenBy(Side),
    /// The ring into which the host posts buffers, and the NIC what it received.
    Posted,
    /// Words of the free set, or by which a host calls a NIC at rest: both sides update them.
    FreeSet,
    /// A buffer of so many bytes.
    Buffer(u64),
    /// Metadata in front of a buffer.
    Metadata,
    /// The host's own objects.
    Objects,
}

/// | access | where the host may | where the NIC may |
/// |---|---|---|
/// | load, line or bytes | anything | anything but metadata |
/// | store, line or bytes | its rings, registers and credits, a ring that it posts into; buffers; objects; metadata | its rings, registers and credits; buffers |
/// | a zero by `store_release` | also slots of the other's rings | the same |
/// | update | the free set, calls | the same |
/// | copy, read or write of several bytes or lines | within one buffer, or within the objects | the same |
#[derive(Clone, Debug)]
pub struct Guard {
    core: Rc<CrashCore>,
    side: Side,
    lines: Rc<Vec<Kind>>,
    pool: PoolMap,
    anything: Rc<Cell<bool>>,
    /// Copies that were posted and not made; none where they are made at once.
    copies: Rc<RefCell<Option<Vec<Copy>>>>,
}

/// A copy for an engine: from where, to where, how many lines, and what says that it is done.
type Copy = (Address, Address, u64, Address, u64);

impl Guard {
    pub fn new(memory: &CrashMemory, map: &Map, agent: &str, side: Side) -> Guard {
        let mut lines = vec![Kind::Nothing; map.layout.bytes().div_ceil(LINE_BYTES) as usize];
        for segment in map.layout.segments() {
            let kind = match segment.name.as_str() {
                "objects" => Kind::Objects,
                "small buffers" => Kind::Buffer(128),
                "large buffers" => Kind::Buffer(4096),
                "jumbo buffers" => Kind::Buffer(16384),
                name if name.starts_with("free ") || name == "calls" => Kind::FreeSet,
                "rests" => Kind::WrittenBy(Side::Nic),
                // A ring and its tail are its producer's, a credit line its consumer's.
                name if name.contains("receive credit") => Kind::WrittenBy(Side::Host),
                name if name.ends_with("credit") => Kind::WrittenBy(Side::Nic),
                "NIC copies" => Kind::WrittenBy(Side::Nic),
                name if name.ends_with("receive ring") && !map.features.shared_pool => Kind::Posted,
                name if name.contains("receive") => Kind::WrittenBy(Side::Nic),
                _ => Kind::WrittenBy(Side::Host),
            };
            lines[(segment.start.0 / LINE_BYTES) as usize..(segment.end().0 / LINE_BYTES) as usize].fill(kind);
        }
        for class in map.pool.classes.iter().filter(|class| class.metadata > 0) {
            for index in 0..class.count {
                let ends = class.start + index * class.distance();
                lines[((ends.0 - u64::from(class.metadata)) / LINE_BYTES) as usize..(ends.0 / LINE_BYTES) as usize]
                    .fill(Kind::Metadata);
            }
        }
        let core = Rc::new(memory.core(agent));
        Guard { core, side, lines: Rc::new(lines), pool: map.pool, anything: Rc::default(), copies: Rc::default() }
    }

    /// The world's core beneath.
    pub fn crash(&self) -> &CrashCore {
        &self.core
    }

    /// Whether everything is allowed, as in recovery.
    pub fn allow_anything(&self, anything: bool) {
        self.anything.set(anything);
    }

    /// From now on an engine makes copies, when [`Guard::make_copy`] says so.
    pub fn delay_copies(&self) {
        self.copies.replace(Some(Vec::new()));
    }

    /// Makes the `pick`-th of the copies that wait: engines finish in any order. False if none waits.
    pub fn make_copy(&self, pick: usize) -> bool {
        let mut copies = self.copies.borrow_mut();
        let Some(waiting) = copies.as_mut().filter(|waiting| !waiting.is_empty()) else { return false };
        let (from, to, lines, done, value) = waiting.remove(pick % waiting.len());
        drop(copies);
        self.copy_lines(from, to, lines);
        self.store_release(done, value);
        true
    }

    fn kind(&self, at: Address) -> Kind {
        let kind = self.lines.get((at.0 / LINE_BYTES) as usize).copied();
        kind.filter(|&kind| kind != Kind::Nothing)
            .unwrap_or_else(|| panic!("{:?} touched {at}, where nothing is", self.side))
    }

    fn may_store(&self, at: Address, access: &str) {
        let allowed = match self.kind(at) {
            Kind::WrittenBy(side) => side == self.side,
            Kind::Buffer(_) | Kind::Posted => true,
            Kind::Objects | Kind::Metadata => self.side == Side::Host,
            Kind::FreeSet | Kind::Nothing => false,
        };
        assert!(allowed || self.anything.get(), "{:?} did a {access} at {at}, which is not its to write", self.side);
    }

    fn may_load(&self, at: Address) {
        let metadata = self.lines.get((at.0 / LINE_BYTES) as usize) == Some(&Kind::Metadata);
        assert!(!metadata || self.side == Side::Host, "the NIC read the host's metadata at {at}");
    }

    /// Payload stays within one buffer; metadata are a word.
    fn is_payload(&self, at: Address, bytes: u64, access: &str) {
        match self.kind(at) {
            Kind::Buffer(size) => {
                let start = self.pool.buffer_of(at).expect("a buffer lies there");
                let inside = at - start + bytes <= size;
                assert!(inside, "{:?}: {access} of {bytes} bytes at {at} leaves its buffer", self.side);
            }
            Kind::Metadata if self.side == Side::Host => assert_eq!((at.0 % LINE_BYTES, bytes), (0, 8), "{access}"),
            Kind::Objects => assert!(
                bytes == 0 || self.kind(at + (bytes - 1)) == Kind::Objects,
                "{:?}: {access} of {bytes} bytes at {at} leaves the objects",
                self.side
            ),
            other => panic!("{:?}: {access} at {at}, which is {other:?} and no payload", self.side),
        }
    }
}

impl Core for Guard {
    fn load_acquire(&self, at: Address) -> u64 {
        self.core.load_acquire(at)
    }
    fn store_release(&self, at: Address, value: u64) {
        let clears = value == 0 && matches!(self.kind(at), Kind::WrittenBy(_));
        if !clears {
            self.may_store(at, "store_release");
        }
        self.core.store_release(at, value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        assert_eq!(self.kind(at), Kind::FreeSet, "an update at {at}");
        self.core.fetch_and(at, bits)
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        assert_eq!(self.kind(at), Kind::FreeSet, "an update at {at}");
        self.core.fetch_or(at, bits)
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        assert_eq!(self.kind(at), Kind::FreeSet, "an update at {at}");
        self.core.compare_exchange(at, current, new)
    }
    fn load(&self, at: Address) -> u64 {
        self.may_load(at);
        self.core.load(at)
    }
    fn store(&self, at: Address, value: u64) {
        self.may_store(at, "store");
        self.core.store(at, value);
    }
    fn read_line(&self, at: Address) -> Line {
        self.may_load(at);
        self.core.read_line(at)
    }
    fn write_line(&self, at: Address, line: &Line) {
        self.may_store(at, "write_line");
        self.core.write_line(at, line);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        self.may_store(at, "publish_line");
        assert!(matches!(self.kind(at), Kind::WrittenBy(_) | Kind::Posted), "a line was published at {at}");
        self.core.publish_line(at, line);
    }
    fn read_lines(&self, at: Address, into: &mut [Line]) {
        self.is_payload(at, LINE_BYTES * into.len() as u64, "read_lines");
        self.core.read_lines(at, into);
    }
    fn write_lines(&self, at: Address, from: &[Line]) {
        self.is_payload(at, LINE_BYTES * from.len() as u64, "write_lines");
        self.may_store(at, "write_lines");
        self.core.write_lines(at, from);
    }
    fn copy_lines(&self, from: Address, to: Address, lines: u64) {
        self.is_payload(from, LINE_BYTES * lines, "copy_lines");
        self.is_payload(to, LINE_BYTES * lines, "copy_lines");
        self.may_store(to, "copy_lines");
        self.core.copy_lines(from, to, lines);
    }
    fn post_copy(&self, from: Address, to: Address, lines: u64, done: Address, value: u64) {
        if let Some(waiting) = self.copies.borrow_mut().as_mut() {
            return waiting.push((from, to, lines, done, value));
        }
        self.copy_lines(from, to, lines);
        self.store_release(done, value);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        self.is_payload(at, into.len() as u64, "read_bytes");
        self.core.read_bytes(at, into);
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        self.is_payload(at, from.len() as u64, "write_bytes");
        self.may_store(at, "write_bytes");
        self.core.write_bytes(at, from);
    }
    fn full_fence(&self) {}
    fn spin(&self) {
        self.core.spin();
    }
    fn now(&self) -> Time {
        self.core.now()
    }
}
