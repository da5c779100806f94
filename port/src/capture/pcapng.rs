//! The pcapng format: blocks, each with its length at both ends. Source: draft-ietf-opsawg-pcapng.

use std::io::Read;

use super::error::Problem;
use super::pcap::ETHERNET;
use super::reader::{CAPTURED_MAX, Located, Order, Record, Step};
use super::source::{CAPACITY, Source};
use super::timestamp::Clock;

/// Block types. A section header's reads the same both ways round.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// A section's byte-order magic.
pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Option codes of an interface description.
const OPTION_END: u16 = 0;
pub(super) const OPTION_RESOLUTION: u16 = 9;
const OPTION_CHECK_SEQUENCE: u16 = 13;
const OPTION_OFFSET: u16 = 14;

/// Interfaces kept for a section: far more than any machine has, and what bounds the memory a file can claim.
const INTERFACES_MAX: usize = 65_536;

/// Bytes before the packet in an enhanced or obsolete packet block, and in a simple one.
const PACKET_HEADER: usize = 28;
const SIMPLE_PACKET_HEADER: usize = 12;
/// Bytes behind a block's body.
const TRAILER: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    /// Bytes kept of each packet; 0 for all.
    snapshot_length: u32,
    clock: Clock,
    /// Bytes of frame check sequence at the end of each frame.
    check_sequence: u32,
}

/// The section of a pcapng file that is being read.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
    /// A block that is being passed over: its length, and bytes of its body that are still to come. A source that gives what there is
    /// may have given a part.
    passing: Option<(u32, u64)>,
}

impl Pcapng {
    /// A file that begins with a section header, which is yet to be read.
    pub(super) fn new() -> Pcapng {
        Pcapng { order: Order::Little, interfaces: Vec::new(), passing: None }
    }

    /// Reads the next block.
    #[inline]
    pub(super) fn step<R: Read>(&mut self, source: &mut Source<R>) -> Result<Step, Problem> {
        if self.passing.is_some() {
            return self.go_past(source);
        }
        let head = source.peek(12)?;
        if head.len() < 12 {
            if head.is_empty() {
                return Ok(Step::End);
            }
            return Err(Problem::ends_inside("a block's header", 12, head.len()));
        }
        let kind = self.order.u32(head, 0);
        if kind == SECTION_HEADER {
            return self.section(source);
        }
        let length = self.order.u32(head, 4);
        match kind {
            ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET => self.packet(source, kind, length),
            INTERFACE_DESCRIPTION => self.interface(source, length),
            _ => {
                check_length("a block", length, 12, "at least 12")?;
                self.pass_over(source, length)
            }
        }
    }

    fn section<R: Read>(&mut self, source: &mut Source<R>) -> Result<Step, Problem> {
        const WHAT: &str = "a section header";
        let head = source.peek(16)?;
        let magic = [head[8], head[9], head[10], head[11]];
        self.order = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (BYTE_ORDER_MAGIC, _) => Order::Little,
            (_, BYTE_ORDER_MAGIC) => Order::Big,
            _ => return Err(Problem::ByteOrderMagic(magic)),
        };
        let length = self.order.u32(head, 4);
        check_length(WHAT, length, 28, "at least 28")?;
        if head.len() < 16 {
            return Err(Problem::ends_inside(WHAT, length as usize, head.len()));
        }
        let (major, minor) = (self.order.u16(head, 12), self.order.u16(head, 14));
        if (major, minor) != (1, 0) && (major, minor) != (1, 2) {
            return Err(Problem::UnsupportedVersion(major, minor));
        }
        self.interfaces.clear();
        self.pass_over(source, length)
    }

    /// Goes past a block whose content does not matter, however long it claims to be, and checks its end.
    fn pass_over<R: Read>(&mut self, source: &mut Source<R>, length: u32) -> Result<Step, Problem> {
        self.passing = Some((length, u64::from(length) - TRAILER as u64));
        self.go_past(source)
    }

    fn go_past<R: Read>(&mut self, source: &mut Source<R>) -> Result<Step, Problem> {
        let Some((length, left)) = &mut self.passing else { return Ok(Step::Other) };
        while *left > 0 {
            let step = source.peek((*left).min(CAPACITY as u64) as usize)?.len();
            if step == 0 {
                break;
            }
            source.consume(step);
            *left -= step as u64;
        }
        let (length, left) = (*length, *left);
        let trailer = source.peek(TRAILER)?;
        if trailer.len() < TRAILER {
            let found = u64::from(length) - TRAILER as u64 - left + trailer.len() as u64;
            return Err(Problem::EndsInside { what: "a block", needed: u64::from(length), found });
        }
        let last = self.order.u32(trailer, 0);
        if last != length {
            return Err(Problem::BlockLengthsDiffer(length, last));
        }
        source.consume(TRAILER);
        self.passing = None;
        Ok(Step::Other)
    }

    fn interface<R: Read>(&mut self, source: &mut Source<R>, length: u32) -> Result<Step, Problem> {
        let order = self.order;
        let block = whole(source, order, "an interface description", length, 20, "20 to 524288")?;
        let mut interface = Interface {
            link_type: order.u16(block, 8),
            snapshot_length: order.u32(block, 12),
            clock: Clock::MICROSECONDS,
            check_sequence: 0,
        };
        interface.read_options(&block[16..block.len() - TRAILER], order)?;
        if self.interfaces.len() == INTERFACES_MAX {
            return Err(Problem::TooManyInterfaces(INTERFACES_MAX));
        }
        self.interfaces.push(interface);
        source.consume(length as usize);
        Ok(Step::Other)
    }

    #[inline]
    fn packet<R: Read>(&self, source: &mut Source<R>, kind: u32, length: u32) -> Result<Step, Problem> {
        let offset = source.offset();
        let order = self.order;
        let simple = kind == SIMPLE_PACKET;
        let (header, must) =
            if simple { (SIMPLE_PACKET_HEADER, "16 to 524288") } else { (PACKET_HEADER, "32 to 524288") };
        let block = whole(source, order, "a packet block", length, header + TRAILER, must)?;
        let number = match kind {
            ENHANCED_PACKET => order.u32(block, 8),
            OBSOLETE_PACKET => u32::from(order.u16(block, 8)),
            _ => 0,
        };
        let interface = self.interfaces.get(number as usize).ok_or(Problem::UnknownInterface(number))?;
        if interface.link_type != ETHERNET {
            let link_type = interface.link_type;
            return Err(Problem::NotEthernet { link_type, interface: Some(number) });
        }
        let (captured, wire, timestamp) = if simple {
            let wire = order.u32(block, 8);
            let limit = interface.snapshot_length;
            (if limit == 0 { wire } else { wire.min(limit) }, wire, None)
        } else {
            let units = u64::from(order.u32(block, 12)) << 32 | u64::from(order.u32(block, 16));
            let timestamp = interface.clock.timestamp(units);
            (order.u32(block, 20), order.u32(block, 24), Some(timestamp))
        };
        let room = length - (header + TRAILER) as u32;
        if captured > room {
            return Err(Problem::PacketOutgrowsBlock { captured, room });
        }
        if captured > CAPTURED_MAX {
            return Err(Problem::AbsurdCapturedLength(captured));
        }
        let record = Record { offset, timestamp, captured, wire }.without_check_sequence(interface.check_sequence);
        source.consume(length as usize);
        Ok(Step::Packet(Located { record, data: offset + header as u64 }))
    }
}

impl Interface {
    /// Reads the options that bear on packets; `options` is whole 4-byte words.
    fn read_options(&mut self, mut options: &[u8], order: Order) -> Result<(), Problem> {
        while options.len() >= 4 {
            let (code, length) = (order.u16(options, 0), usize::from(order.u16(options, 2)));
            if code == OPTION_END {
                break;
            }
            let rest = &options[4..];
            let padded = length.next_multiple_of(4);
            if padded > rest.len() {
                return Err(Problem::InterfaceOption(code));
            }
            let value = &rest[..length];
            match (code, value) {
                (OPTION_RESOLUTION, &[resolution]) => {
                    self.clock = self.clock.with_resolution(resolution);
                }
                (OPTION_OFFSET, &[_, _, _, _, _, _, _, _]) => {
                    self.clock = self.clock.with_offset(order.u64(value, 0) as i64);
                }
                // In bytes, as the flags of a packet count it; some writers take the option to mean bits.
                (OPTION_CHECK_SEQUENCE, &[4 | 32]) => self.check_sequence = 4,
                (OPTION_CHECK_SEQUENCE, &[_]) => {}
                (OPTION_RESOLUTION | OPTION_OFFSET | OPTION_CHECK_SEQUENCE, _) => {
                    return Err(Problem::InterfaceOption(code));
                }
                _ => {}
            }
            options = &rest[padded..];
        }
        Ok(())
    }
}

fn check_length(what: &'static str, length: u32, least: usize, must: &'static str) -> Result<(), Problem> {
    if (length as usize) < least {
        return Err(Problem::BlockLength { what, length, must });
    }
    if !length.is_multiple_of(4) {
        return Err(Problem::BlockLength { what, length, must: "a multiple of 4" });
    }
    Ok(())
}

/// Shows a whole block, its two lengths checked, without consuming it.
#[inline]
fn whole<'a, R: Read>(
    source: &'a mut Source<R>,
    order: Order,
    what: &'static str,
    length: u32,
    least: usize,
    must: &'static str,
) -> Result<&'a [u8], Problem> {
    check_length(what, length, least, must)?;
    let size = length as usize;
    if size > CAPACITY {
        return Err(Problem::BlockLength { what, length, must });
    }
    let block = source.peek(size)?;
    if block.len() < size {
        return Err(Problem::ends_inside(what, size, block.len()));
    }
    let last = order.u32(block, size - TRAILER);
    if last != length {
        return Err(Problem::BlockLengthsDiffer(length, last));
    }
    Ok(block)
}
