//! The pcap format: a header of 24 bytes, then records of 16 bytes and the captured bytes.
//! Source: draft-ietf-opsawg-pcap.

use std::io::Read;

use super::error::Problem;
use super::reader::{CAPTURED_MAX, Located, Order, Record, Step};
use super::source::Source;
use super::timestamp::Timestamp;

/// The magic number of a file with microseconds.
pub(super) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// The magic number of a file with nanoseconds.
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The magic number of a variant whose record headers are 24 bytes long.
pub(super) const MAGIC_LONG_RECORDS: u32 = 0xa1b2_cd34;
/// Bytes of the file header.
pub(super) const HEADER: usize = 24;
/// Bytes of a record's header.
pub(super) const RECORD_HEADER: usize = 16;
/// The link type of Ethernet, here and in pcapng.
pub(super) const ETHERNET: u16 = 1;

/// How the records of a pcap file are to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pcap {
    order: Order,
    /// Nanoseconds of one unit of a record's fraction of a second.
    fraction_unit: u64,
    /// Bytes of frame check sequence at the end of each frame.
    check_sequence: u32,
}

impl Pcap {
    /// Reads the file header, whose magic number has been seen.
    pub(super) fn begin<R: Read>(source: &mut Source<R>, order: Order, fraction_unit: u64) -> Result<Pcap, Problem> {
        let header = source.peek(HEADER)?;
        if header.len() < HEADER {
            return Err(Problem::ends_inside("the file header", HEADER, header.len()));
        }
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if (major, minor) != (2, 4) {
            return Err(Problem::UnsupportedVersion(major, minor));
        }
        // The snapshot length at byte 16 is not looked at: files with longer records exist, and all readers take them.
        let network = order.u32(header, 20);
        let link_type = network as u16;
        if link_type != ETHERNET {
            return Err(Problem::NotEthernet { link_type, interface: None });
        }
        // Bit 26 says that the top four bits count the frame check sequence, in 16-bit words.
        let check_sequence = if network & (1 << 26) != 0 { (network >> 28) * 2 } else { 0 };
        source.consume(HEADER);
        Ok(Pcap { order, fraction_unit, check_sequence })
    }

    /// Reads the next record.
    #[inline]
    pub(super) fn step<R: Read>(&self, source: &mut Source<R>) -> Result<Step, Problem> {
        let offset = source.offset();
        let header = source.peek(RECORD_HEADER)?;
        if header.len() < RECORD_HEADER {
            if header.is_empty() {
                return Ok(Step::End);
            }
            return Err(Problem::ends_inside("a record's header", RECORD_HEADER, header.len()));
        }
        let seconds = u64::from(self.order.u32(header, 0));
        let fraction = u64::from(self.order.u32(header, 4));
        let captured = self.order.u32(header, 8);
        let wire = self.order.u32(header, 12);
        if captured > CAPTURED_MAX {
            return Err(Problem::AbsurdCapturedLength(captured));
        }
        let length = RECORD_HEADER + captured as usize;
        let found = source.peek(length)?.len();
        if found < length {
            return Err(Problem::ends_inside("a record", length, found));
        }
        source.consume(length);
        // Below 2^64: 2^32 seconds are 4.3e18 nanoseconds, 2^32 microseconds 4.3e12.
        let nanoseconds = seconds * 1_000_000_000 + fraction * self.fraction_unit;
        let record = Record { offset, timestamp: Some(Timestamp::from_nanoseconds(nanoseconds)), captured, wire };
        Ok(Step::Packet(Located {
            record: record.without_check_sequence(self.check_sequence),
            data: offset + RECORD_HEADER as u64,
        }))
    }
}
