//! Entries of the send queue, segment by segment.

use conic_fabric::{Address, Core, LINE_BYTES, Line};

/// Bytes of a segment.
pub(super) const SEGMENT: usize = 16;
/// Bytes of a basic block.
pub(super) const BLOCK: usize = LINE_BYTES as usize;
/// Blocks of the longest entry: 60 segments, which is what DPDK's driver fills of the 63 that the control segment can say.
pub(super) const MOST_BLOCKS: u64 = 15;
/// Packets of one entry, at most (DPDK: as many as there are between two completions).
pub(super) const MOST_PACKETS: usize = 32;

/// Where the control and the Ethernet segment end, and where bytes begin that stand in the latter and go on behind it.
const BEHIND: usize = 2 * SEGMENT;
const HEAD_SIZE: usize = 28;
pub(super) const HEAD: usize = 30;
/// Bytes of an inline data segment before its data.
const INLINE_HEADER: usize = 4;

const SEND: u64 = 0x0a;
const MULTI_PACKET: u64 = 0x29;
const ASKS: u64 = 0x08;
const INLINE: u32 = 1 << 31;

/// What the control segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    /// Each data segment is a packet.
    pub multi_packet: bool,
    /// The number of the entry's first block, counted for ever, in 16 bits.
    pub index: u16,
    /// Segments, this one and the Ethernet segment included, at most 63.
    pub segments: u64,
    /// The device is to report it.
    pub asks: bool,
}

impl Control {
    /// Word 0, which the doorbell repeats.
    pub fn word(self) -> u64 {
        let opcode = if self.multi_packet { MULTI_PACKET } else { SEND };
        opcode | u64::from(self.index) << 8 | self.segments << 32
    }

    /// Reads word 0; none where it is no entry's.
    pub fn of(word: u64) -> Option<Control> {
        let opcode = word & 0xff;
        let (index, segments) = ((word >> 8) as u16, word >> 32);
        let sound = matches!(opcode, SEND | MULTI_PACKET) && word >> 24 & 0xff == 0 && (2..=63).contains(&segments);
        sound.then_some(Control { multi_packet: opcode == MULTI_PACKET, index, segments, asks: false })
    }

    /// How many blocks the entry has.
    pub fn blocks(self) -> u16 {
        (self.segments as usize * SEGMENT).div_ceil(BLOCK) as u16
    }
}

/// An entry that is being put together.
#[derive(Debug)]
pub(super) struct Entry {
    bytes: [u8; MOST_BLOCKS as usize * BLOCK],
    used: usize,
}

impl Entry {
    pub fn new() -> Entry {
        Entry { bytes: [0; MOST_BLOCKS as usize * BLOCK], used: BEHIND }
    }

    /// Begins one without data.
    pub fn begin(&mut self) {
        self.bytes[SEGMENT..BEHIND].fill(0);
        self.used = BEHIND;
    }

    /// Bytes that a packet takes which is copied into an entry of several.
    pub fn inline_segment_bytes(length: u64) -> usize {
        (INLINE_HEADER + length as usize).next_multiple_of(SEGMENT)
    }

    /// Bytes of an entry whose only packet is copied into it.
    pub fn head_bytes(length: u64) -> usize {
        (HEAD + length as usize).next_multiple_of(SEGMENT).max(BEHIND)
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.used
    }

    /// Adds a data segment that says where the data are.
    pub fn add_pointer(&mut self, address: u64, length: u64) {
        let space = &mut self.bytes[self.used..][..SEGMENT];
        space[..8].copy_from_slice(&length.to_ne_bytes());
        space[8..].copy_from_slice(&address.to_ne_bytes());
        self.used += SEGMENT;
    }

    /// Adds a data segment that has the data themselves.
    pub fn add_inline<C: Core>(&mut self, core: &C, address: u64, length: u64) {
        let space = &mut self.bytes[self.used..];
        space[..INLINE_HEADER].copy_from_slice(&(length as u32 | INLINE).to_ne_bytes());
        core.read_bytes(Address(address), &mut space[INLINE_HEADER..][..length as usize]);
        self.used += Self::inline_segment_bytes(length);
    }

    /// Adds bytes to those that stand in the Ethernet segment and behind it, of which there are `before`. No other segment may have
    /// been added.
    pub fn add_head<C: Core>(&mut self, core: &C, before: u64, address: u64, length: u64) {
        let size = before + length;
        self.bytes[HEAD_SIZE..HEAD].copy_from_slice(&(size as u16).to_ne_bytes());
        core.read_bytes(Address(address), &mut self.bytes[HEAD + before as usize..][..length as usize]);
        self.used = Self::head_bytes(size);
    }

    /// Ends it with its control segment, of which the number of segments is set; the blocks, and that segment's first word.
    pub fn end(&mut self, control: Control) -> (impl Iterator<Item = Line> + '_, u64) {
        let word = Control { segments: (self.used / SEGMENT) as u64, ..control }.word();
        self.bytes[..8].copy_from_slice(&word.to_ne_bytes());
        let asks = if control.asks { ASKS } else { 0 };
        self.bytes[8..SEGMENT].copy_from_slice(&asks.to_ne_bytes());
        let blocks = self.bytes[..self.used.next_multiple_of(BLOCK)].chunks_exact(BLOCK);
        (blocks.map(|block| Line::from_bytes(block.try_into().expect("a block is a line"))), word)
    }
}

/// A packet's bytes, as a device finds them in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// In the entry: from where on, and how many.
    Inline(usize, usize),
    /// In memory: address and length.
    At(u64, u64),
}

/// An entry as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read<'bytes> {
    bytes: &'bytes [u8],
    pub control: Control,
    /// Where the next data segment is.
    at: usize,
}

impl<'bytes> Read<'bytes> {
    /// Reads one of so many blocks; none where it is none.
    pub fn of(bytes: &'bytes [u8]) -> Option<Read<'bytes>> {
        let control = Control::of(word(bytes, 0))?;
        let bytes = bytes.get(..control.segments as usize * SEGMENT)?;
        let asks = word(bytes, 8) & ASKS != 0;
        Some(Read { bytes, control: Control { asks, ..control }, at: BEHIND })
    }

    /// The bytes that stand in the Ethernet segment and behind it, if there are any; data segments come behind them. None where they
    /// do not all lie in the entry.
    pub fn head(&mut self) -> Option<Data> {
        let size = u16::from_ne_bytes([self.bytes[HEAD_SIZE], self.bytes[HEAD_SIZE + 1]]).into();
        let end = Entry::head_bytes(size as u64);
        (end <= self.bytes.len()).then(|| {
            self.at = end;
            Data::Inline(HEAD, size)
        })
    }

    /// The next data segment; an error where it does not all lie in the entry.
    pub fn next(&mut self) -> Option<Result<Data, ()>> {
        let at = self.at;
        if at >= self.bytes.len() {
            return None;
        }
        let word_0 = word(self.bytes, at);
        if word_0 as u32 & INLINE == 0 {
            self.at = at + SEGMENT;
            return Some(Ok(Data::At(word(self.bytes, at + 8), word_0)));
        }
        let length = (word_0 as u32 & !INLINE) as usize;
        let (from, end) = (at + INLINE_HEADER, (at + INLINE_HEADER).saturating_add(length));
        self.at = end.saturating_add(SEGMENT - 1) / SEGMENT * SEGMENT;
        Some(if end <= self.bytes.len() { Ok(Data::Inline(from, length)) } else { Err(()) })
    }

    /// The bytes.
    pub fn bytes(&self) -> &'bytes [u8] {
        self.bytes
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A completion, which is word 0 of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    /// An entry of the send queue, by the number of its first block, and all before it.
    Sent(u16),
    /// A packet of so many bytes; of none if the device refused the buffer.
    Received(u32),
    /// So many packets, whose lengths stand in the next line.
    Compressed(u32),
}

/// Mini-completions of a line.
pub(super) const MINI: usize = 8;

const OWNER: u64 = 1;
const COMPRESSED: u64 = 3 << 2;
const RESPONDER: u64 = 2 << 4;
const INVALID: u64 = 0xf << 4;
/// Opcode and format.
const KIND: u64 = 0xfe;

impl Completion {
    /// Word 0 of a slot from which on the next lap is the device's: no completion, whatever lap it is.
    pub const NONE: u64 = INVALID;

    /// The owner bit of the completion of a number: it flips with each lap, and begins with 1, so that memory which is all zeroes has none.
    fn owner(number: u32, slots: u64) -> u64 {
        (u64::from(number) / slots + 1) & OWNER
    }

    /// Word 0 of the completion of a number in a ring of so many slots, a power of two.
    pub fn word(self, number: u32, slots: u64) -> u64 {
        Self::owner(number, slots)
            | match self {
                Completion::Sent(index) => u64::from(index) << 16,
                Completion::Received(bytes) => RESPONDER | u64::from(bytes) << 32,
                Completion::Compressed(count) => RESPONDER | COMPRESSED | u64::from(count) << 32,
            }
    }

    /// Whether word 0 is a completion of this number.
    pub fn is_there(word: u64, number: u32, slots: u64) -> bool {
        word & OWNER == Self::owner(number, slots) && word & INVALID != INVALID
    }

    /// What word 0 says; none where it says nothing that there is.
    pub fn of(word: u64) -> Option<Completion> {
        let count = (word >> 32) as u32;
        match word & KIND {
            0 => Some(Completion::Sent((word >> 16) as u16)),
            RESPONDER => Some(Completion::Received(count)),
            kind if kind == RESPONDER | COMPRESSED => Some(Completion::Compressed(count)),
            _ => None,
        }
    }
}
