//! Packets of which work is left: what the other half leaves is done here, and for one that takes only finished ones, what others left.

use conic_fabric::Time;

use super::Card;
use super::half::{Half, feature};
use super::ring::{LONG_HEADER, Taken};
use crate::offload::segment::Segments;
use crate::offload::virtio::{Checksum, HEADER_BYTES, Metadata, Segmentation};
use crate::offload::{Headers, Network, TCP};
use crate::vnet::{Cutter, complete};
use crate::{MAX_FRAME, Receive, Transmit};

impl<H: Half> Card<H> {
    /// What a header says of a packet; none where it says what was not agreed on, or means nothing.
    pub(super) fn said(&self, header: &[u8; LONG_HEADER]) -> Option<Metadata> {
        let metadata = Metadata::read(header.first_chunk::<HEADER_BYTES>()?)?;
        // To cut UDP was not offered.
        if metadata.segmentation.is_some_and(|segmentation| segmentation.protocol != TCP) {
            return None;
        }
        let is_plain = metadata.segmentation.is_none() && !matches!(metadata.checksum, Checksum::Partial { .. });
        // Nobody has found anything right for whom this side would take a stranger's word.
        let checksum = if metadata.checksum == Checksum::Valid { Checksum::Unknown } else { metadata.checksum };
        (is_plain || self.options.offload).then_some(Metadata { checksum, ..metadata })
    }

    /// What may be said to the other side: that a checksum was found right only to a driver that has agreed to hear of checksums (5.1.6.4.1).
    pub(super) fn known_to_peer(&self, metadata: Metadata) -> Metadata {
        let hears = H::SAYS_VALID && self.has(feature::GUEST_CHECKSUM);
        let is_hidden = metadata.checksum == Checksum::Valid && !hears;
        Metadata { checksum: if is_hidden { Checksum::Unknown } else { metadata.checksum }, ..metadata }
    }

    /// Whether the other side takes a packet as it is. One of UDP that is to be cut is never agreed on (5.1.6.4.1).
    pub(super) fn peer_takes(&self, metadata: Metadata, headers: &Headers) -> bool {
        let checksum = !matches!(metadata.checksum, Checksum::Partial { .. }) || self.has(H::CHECKSUM);
        let of_version = H::TCP[usize::from(headers.version == Network::Six)];
        let cuts = |segmentation: Segmentation| segmentation.protocol == TCP && self.has(of_version);
        checksum && metadata.segmentation.is_none_or(cuts)
    }

    /// Does what is left of a packet, and puts what comes of it, for a driver that takes none with work left.
    pub(super) fn put_finished(&mut self, now: Time, packet: &[u8], metadata: Metadata) -> Transmit {
        let mut finished = std::mem::take(&mut self.finished);
        let transmit = match metadata.segmentation.map(|segmentation| Segments::of(packet, segmentation)) {
            None => self.put_complete(now, packet, metadata, &mut finished),
            Some(cut) => match cut.filter(|cut| cut.longest() <= MAX_FRAME) {
                Some(cut) => self.put_cut(now, packet, cut, &mut finished),
                None => {
                    self.counters.refused_length += 1;
                    Transmit::Refused
                }
            },
        };
        self.finished = finished;
        transmit
    }

    fn put_complete(&mut self, now: Time, packet: &[u8], metadata: Metadata, finished: &mut [u8]) -> Transmit {
        let Some(frame) = finished.get_mut(..packet.len()) else {
            self.counters.refused_length += 1;
            return Transmit::Refused;
        };
        frame.copy_from_slice(packet);
        if complete(frame, metadata, &mut self.work) {
            self.put(now, Metadata::NONE, None, frame)
        } else {
            self.counters.refused_length += 1;
            Transmit::Refused
        }
    }

    /// Full where not one of the frames found room. Where some did, the sender finds out by its flow that others did not, as on any wire.
    fn put_cut(&mut self, now: Time, packet: &[u8], mut cut: Segments, finished: &mut [u8]) -> Transmit {
        self.work.packets_cut += 1;
        let mut first = None;
        while let Some(length) = cut.next(packet, finished) {
            let put = self.put(now, Metadata::NONE, None, &finished[..length]);
            if *first.get_or_insert(put) != Transmit::Accepted {
                break;
            }
        }
        first.unwrap_or(Transmit::Refused)
    }

    /// Gives a packet that was taken: `None` where it is to be cut and that has begun.
    fn finish_taken(&mut self, frame: &mut [u8], header: &[u8; LONG_HEADER], length: usize) -> Option<Receive> {
        let Some(metadata) = self.said(header) else {
            self.counters.skipped_malformed += 1;
            return Some(Receive::Skipped);
        };
        if metadata.segmentation.is_some() {
            let begun = self.cutter.begin(length, metadata, frame.len(), &mut self.work);
            self.counters.skipped_malformed += u64::from(!begun);
            return if begun { None } else { Some(Receive::Skipped) };
        }
        let Some(into) = frame.get_mut(..length) else {
            self.counters.skipped_oversized += 1;
            return Some(Receive::Skipped);
        };
        into.copy_from_slice(&self.cutter.taken()[..length]);
        if complete(into, metadata, &mut self.work) {
            Some(self.counters.receive_frame(frame, length))
        } else {
            self.counters.skipped_malformed += 1;
            Some(Receive::Skipped)
        }
    }

    /// Takes a packet of a driver that may leave work: it lies in the cutter's room first.
    pub(super) fn receive_and_finish(&mut self, now: Time, frame: &mut [u8]) -> Receive {
        let mut header = [0; LONG_HEADER];
        if !self.cutter.is_busy() {
            let mut cutter = std::mem::replace(&mut self.cutter, Cutter::nothing());
            let taken = self.next_packet(now, &mut header, cutter.room());
            self.cutter = cutter;
            match taken {
                Taken::None => return Receive::None,
                Taken::Refused(_) | Taken::Discarded => return Receive::Skipped,
                Taken::TooLong => {
                    self.counters.skipped_oversized += 1;
                    return Receive::Skipped;
                }
                Taken::Packet(length) => {
                    if let Some(receive) = self.finish_taken(frame, &header, length) {
                        return receive;
                    }
                }
            }
        }
        match self.cutter.next(frame) {
            Some(length) => self.counters.receive_frame(frame, length),
            None => Receive::Skipped,
        }
    }
}
