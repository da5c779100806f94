//! A burst of segments on its way through the steps of a lookup.

use conic_fabric::{Core, Line};
use conic_interface::burst::{Packet, fetch_ahead};

use super::{WORK_BUCKET, WORK_PARSE};
use crate::segment::{HEADER_BYTES, NoSegment, Segment};
use crate::service::{Fixed, Service, hash};

/// Segments that are taken at once.
pub(super) const BURST: usize = 32;

/// Packets, and what is known of each.
#[derive(Debug)]
pub(super) struct Burst {
    pub packets: [Packet; BURST],
    pub segments: [Result<Segment, NoSegment>; BURST],
    headers: [Line; BURST],
    hashes: [u64; BURST],
    /// The connection that the bucket names first, and whether others may be looked for.
    named: [(Option<u32>, bool); BURST],
}

impl Default for Burst {
    fn default() -> Burst {
        Burst {
            packets: [Packet::BLANK; BURST],
            segments: [Err(NoSegment::Malformed); BURST],
            headers: [Line::ZERO; BURST],
            hashes: [0; BURST],
            named: [(None, false); BURST],
        }
    }
}

impl Burst {
    /// Reads the headers of a burst, then the buckets' lines, and asks for the connections' and for the rest of the payloads. Misses of
    /// one kind overlap; which bucket is read stands in the header, and which connection in the bucket: each waits for the one before.
    #[inline]
    pub fn look_up<C: Core>(&mut self, core: &C, service: &Service, count: usize) {
        let may_be_one = |packet: &Packet| packet.length() >= HEADER_BYTES && packet.address().is_line_aligned();
        for place in 0..count {
            let packet = self.packets[place];
            if may_be_one(&packet) {
                self.headers[place] = core.read_line(packet.address());
                fetch_ahead(core, &packet);
            }
        }
        for place in 0..count {
            let packet = self.packets[place];
            self.segments[place] = Err(NoSegment::Malformed);
            if !may_be_one(&packet) {
                continue;
            }
            core.depends_on(packet.address());
            core.work(WORK_PARSE);
            self.segments[place] = Segment::parse(&self.headers[place], packet.length());
            if let Ok(segment) = &self.segments[place] {
                self.hashes[place] = hash(&segment.from, &segment.to);
                core.prefetch_read(service.bucket(self.hashes[place], 0));
            }
        }
        for place in 0..count {
            if self.segments[place].is_ok() {
                let bucket = service.bucket(self.hashes[place], 0);
                let line = core.read_line(bucket);
                core.depends_on(bucket);
                core.work(WORK_BUCKET);
                self.named[place] = service.named(&line, self.hashes[place]);
                if let (Some(flow), _) = self.named[place] {
                    let [fixed, changing] = service.lines_of(flow);
                    core.prefetch_read(fixed);
                    core.prefetch_write(changing);
                }
            }
        }
    }

    /// The connection of a segment, if there is one.
    #[inline]
    pub fn connection<C: Core>(
        &self,
        core: &C,
        service: &Service,
        place: usize,
        segment: &Segment,
    ) -> Option<(u32, Fixed)> {
        let (named, more) = self.named[place];
        if let Some(flow) = named {
            let fixed = Fixed::from_line(&core.read_line(service.lines_of(flow)[0]));
            if fixed.is_of(&segment.from, &segment.to) {
                return Some((flow, fixed));
            }
        } else if !more {
            return None;
        }
        // Another connection has the same 32 bits of hash, or the bucket was full: seldom.
        let flow = service.find(core, self.hashes[place], &segment.from, &segment.to)?;
        Some((flow, Fixed::from_line(&core.read_line(service.lines_of(flow)[0]))))
    }
}
