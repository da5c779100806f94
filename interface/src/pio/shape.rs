//! How many lines an exchange has, where they lie, and which payload byte lies in which of them.

use std::fmt;

use conic_fabric::{Address, Home, LINE_BYTES, Layout, Line, SynchronisingWords};

use super::control::LONGEST;
use super::protocol::{Plan, Recalls};

/// Bytes of the control word.
const CONTROL_BYTES: u64 = 8;

/// Units of a group, and overflow units, at most.
const MOST_UNITS: u16 = 4096;

/// The lines of an exchange, in coherence units: what moves between caches as one.
///
/// A payload starts `header` bytes into its group, runs to the group's end, and goes on in the overflow units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a coherence unit, a power of two from 64.
    pub unit: u64,
    /// Units of each of the two groups, at least 1.
    pub group: u16,
    /// Units that both share.
    pub overflow: u16,
    /// Bytes before the payload, the control word among them: a multiple of 8, up to 64.
    pub header: u64,
    /// Groups start at a multiple of this, a power of two of at least a unit.
    pub alignment: u64,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// A unit is not a power of two, or is smaller than a line.
    Unit(u64),
    /// A group has no unit, or there are too many.
    Units(u16),
    /// The header is not a multiple of 8 from 8 to 64.
    Header(u64),
    /// The alignment is not a power of two, or is smaller than a unit.
    Alignment(u64),
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShapeError::Unit(unit) => {
                write!(f, "a coherence unit is a power of two of at least {LINE_BYTES} bytes, not {unit}")
            }
            ShapeError::Units(units) => write!(f, "a group has 1 to {MOST_UNITS} units, as many overflow, not {units}"),
            ShapeError::Header(header) => write!(f, "a header has 8, 16, 24 and so on to 64 bytes, not {header}"),
            ShapeError::Alignment(bytes) => {
                write!(f, "groups are aligned to a power of two of at least a unit, not to {bytes} bytes")
            }
        }
    }
}

impl std::error::Error for ShapeError {}

impl Shape {
    /// One pair of lines; the other line of a pair does not lie where a prefetcher of neighbours would fetch it.
    pub fn pair() -> Shape {
        Shape { unit: LINE_BYTES, group: 1, overflow: 0, header: CONTROL_BYTES, alignment: 2 * LINE_BYTES }
    }

    /// Two groups that hold a payload of so many bytes each.
    pub fn groups(bytes: u64) -> Shape {
        let units = bytes.saturating_add(CONTROL_BYTES).div_ceil(LINE_BYTES).clamp(1, u64::from(u16::MAX));
        Shape { group: units as u16, ..Shape::pair() }
    }

    /// A pair of control lines, and overflow lines for frames of so many bytes.
    pub fn frames(bytes: u64) -> Shape {
        let inline = LINE_BYTES - CONTROL_BYTES;
        let units = bytes.saturating_sub(inline).div_ceil(LINE_BYTES).min(u64::from(u16::MAX));
        Shape { overflow: units as u16, ..Shape::pair() }
    }

    /// The same payloads in units of another size; neighbouring lines are as far apart as before, in units.
    pub fn with_unit(self, unit: u64) -> Shape {
        let scale = |units: u16| (u64::from(units) * self.unit).div_ceil(unit.max(1)).min(u64::from(u16::MAX)) as u16;
        let alignment = self.alignment / self.unit * unit;
        Shape { unit, group: scale(self.group).max(1), overflow: scale(self.overflow), alignment, ..self }
    }

    /// Bytes of the longest payload.
    pub fn capacity(&self) -> u64 {
        let units = u64::from(self.group) + u64::from(self.overflow);
        units.saturating_mul(self.unit).saturating_sub(self.header)
    }

    /// Units that a payload of so many bytes lies in, from the group's first on; the control word's at least.
    #[inline]
    pub fn units_of(&self, bytes: u64) -> u16 {
        (self.header + bytes).div_ceil(self.unit) as u16
    }

    /// Bytes of a payload that its first so many units hold.
    pub(super) fn payload_of(&self, units: u16) -> usize {
        (u64::from(units) * self.unit).saturating_sub(self.header) as usize
    }

    /// Units that the first so many bytes of a payload fill.
    pub(super) fn full_units(&self, bytes: u64) -> u16 {
        ((self.header + bytes) / self.unit) as u16
    }

    /// The protocol's plan of this shape.
    pub fn plan(&self, recalls: Recalls) -> Plan {
        Plan { group: self.group, overflow: self.overflow, recalls }
    }

    /// Whether loads that the device withholds, all of one group's, can fill a unit of the CPU's cache that a recall needs,
    /// where the cache handles a line's transactions in `unit_of(line)` and so many at once in each.
    ///
    /// Lines are numbered as [`Plan`] says. Both roles are looked at.
    pub fn can_deadlock(&self, slots: u32, unit_of: impl Fn(u16) -> u32) -> bool {
        let lines = self.plan(Recalls::Together).lines() as u16;
        (0..2).any(|waiting| {
            let waits = |line: u16| line < 2 * self.group && line / self.group == waiting;
            let recalled = (0..lines).filter(|&line| !waits(line));
            recalled.map(&unit_of).any(|unit| {
                let filled = (0..lines).filter(|&line| waits(line) && unit_of(line) == unit).count();
                filled as u32 >= slots
            })
        })
    }

    fn check(&self) -> Result<(), ShapeError> {
        if !self.unit.is_power_of_two() || self.unit < LINE_BYTES {
            return Err(ShapeError::Unit(self.unit));
        }
        if let Some(&units) = [self.group, self.overflow].iter().find(|&&units| units > MOST_UNITS) {
            return Err(ShapeError::Units(units));
        }
        if self.group == 0 || self.capacity() > LONGEST {
            return Err(ShapeError::Units(self.group));
        }
        if !self.header.is_multiple_of(8) || !(CONTROL_BYTES..=LINE_BYTES).contains(&self.header) {
            return Err(ShapeError::Header(self.header));
        }
        if !self.alignment.is_power_of_two() || self.alignment < self.unit {
            return Err(ShapeError::Alignment(self.alignment));
        }
        Ok(())
    }

    /// Appends the lines to a layout. Their home is the device's side where there is a device that answers for them, and
    /// may be either where a core plays it.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(&self, layout: &mut Layout, home: Home) -> Result<Lines, ShapeError> {
        self.check()?;
        let mut group = |name| {
            let start =
                layout.add(&format!("{name} control"), LINE_BYTES, self.alignment, home, SynchronisingWords::FIRST);
            let rest = u64::from(self.group) * self.unit - LINE_BYTES;
            if rest > 0 {
                layout.add(name, rest, LINE_BYTES, home, SynchronisingWords::NONE);
            }
            start
        };
        let groups = [group("group 0"), group("group 1")];
        let bytes = u64::from(self.overflow) * self.unit;
        let overflow = match bytes {
            0 => groups[0],
            _ => layout.add("overflow", bytes, self.alignment, home, SynchronisingWords::NONE),
        };
        Ok(Lines { shape: *self, capacity: self.capacity(), groups, overflow })
    }
}

/// Where an exchange lies; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    shape: Shape,
    /// The shape's, worked out once: it stands in the inner loops.
    capacity: u64,
    groups: [Address; 2],
    overflow: Address,
}

impl Lines {
    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of the longest payload.
    #[inline(always)]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The line with the control word of a turn's request. A turn's answer has its control word where the next one's
    /// request will have it.
    #[inline(always)]
    pub fn control(&self, turn: u32) -> Address {
        self.groups[(turn & 1) as usize]
    }

    /// The unit with a number, as [`Plan`] counts them.
    #[inline]
    pub fn unit(&self, number: u16) -> Address {
        let Shape { unit, group, .. } = self.shape;
        let (start, index) = match number {
            number if number < group => (self.groups[0], number),
            number if number < 2 * group => (self.groups[1], number - group),
            number => (self.overflow, number - 2 * group),
        };
        start + u64::from(index) * unit
    }

    /// The number of the unit that holds an address, if it is one of these lines.
    pub fn number_of(&self, at: Address) -> Option<u16> {
        let Shape { unit, group, overflow, .. } = self.shape;
        let within = |start: Address, units: u16, first: u16| {
            let index = at.0.checked_sub(start.0)? / unit;
            (index < u64::from(units)).then(|| first + index as u16)
        };
        within(self.groups[0], group, 0)
            .or_else(|| within(self.groups[1], group, group))
            .or_else(|| within(self.overflow, overflow, 2 * group))
    }

    /// The `index`-th unit of what a turn's request, or the answer of the turn before, lies in: the group's, then overflow.
    #[inline]
    pub(super) fn unit_of_turn(&self, turn: u32, index: u16) -> Address {
        let Shape { group, .. } = self.shape;
        if index < group { self.unit((turn & 1) as u16 * group + index) } else { self.unit(group + index) }
    }

    /// The `index`-th line of the same.
    #[inline]
    fn line(&self, turn: u32, index: u64) -> Address {
        let lines = u64::from(self.shape.group) * (self.shape.unit / LINE_BYTES);
        if index < lines { self.control(turn).lines(index) } else { self.overflow.lines(index - lines) }
    }

    /// Writes all of a payload but what lies in the first line, and gives that line, its control word empty.
    #[inline]
    pub(super) fn spread(&self, turn: u32, payload: &[u8], mut write: impl FnMut(Address, &Line)) -> Line {
        let header = self.shape.header as usize;
        let (inline, rest) = payload.split_at(payload.len().min(LINE_BYTES as usize - header));
        for (index, chunk) in (1..).zip(rest.chunks(LINE_BYTES as usize)) {
            write(self.line(turn, index), &line_of(0, chunk));
        }
        line_of(header, inline)
    }

    /// Writes what a payload has in one of a group's units, which is not its first.
    pub(super) fn spread_unit(&self, number: u16, payload: &[u8], mut write: impl FnMut(Address, &Line)) {
        let start = self.shape.payload_of(number % self.shape.group);
        let bytes = payload.get(start..).unwrap_or_default().chunks(LINE_BYTES as usize);
        let lines = self.shape.unit / LINE_BYTES;
        for (index, chunk) in (0..lines).zip(bytes) {
            write(self.unit(number).lines(index), &line_of(0, chunk));
        }
    }

    /// Reads the first bytes of a payload, as many as there is room for.
    #[inline]
    pub(super) fn gather(&self, turn: u32, into: &mut [u8], mut read: impl FnMut(Address) -> Line) {
        let header = self.shape.header as usize;
        let inline = into.len().min(LINE_BYTES as usize - header);
        let (inline, rest) = into.split_at_mut(inline);
        if !inline.is_empty() {
            let line = read(self.control(turn)).to_bytes();
            inline.copy_from_slice(&line[header..header + inline.len()]);
        }
        for (index, chunk) in (1..).zip(rest.chunks_mut(LINE_BYTES as usize)) {
            let line = read(self.line(turn, index)).to_bytes();
            chunk.copy_from_slice(&line[..chunk.len()]);
        }
    }
}

/// A line with some bytes in it, and zeroes around them.
#[inline(always)]
fn line_of(offset: usize, bytes: &[u8]) -> Line {
    if let Ok(whole) = bytes.try_into() {
        return Line::from_bytes(whole);
    }
    let mut line = [0; LINE_BYTES as usize];
    line[offset..offset + bytes.len()].copy_from_slice(bytes);
    Line::from_bytes(&line)
}
