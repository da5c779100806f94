//! What a sender has left for the NIC to do, and what a receiver wants to be told: [`conic_interface::metadata`] in the switch.
//!
//! | what | who may take it as it is | done here for the others |
//! |---|---|---|
//! | a begun checksum | clients with [`Offloads::unfinished`], ports that say so | it is completed |
//! | a packet that stands for several | the same, of those clients whose limit and buffers allow its length | it is cut |
//! | a VLAN tag beside the frame | - | it is put in, and is then a tag like any other |
//! | the IPv4 header's checksum | - | it is filled in |
//!
//! A packet that does not fit what is said of it is dropped and counted, and nothing of it goes anywhere.

use conic_fabric::{Core, Time};
use conic_interface::ccnic::Descriptor;
use conic_interface::metadata::{Begun, Metadata, Offloads};
use conic_port::offload::checksum::{Verdict, complete, fill_network, fold, pseudo_header, verify};
use conic_port::offload::segment::{LEAST_PIECE_OF_PORT, LONGEST, Segments};
use conic_port::offload::virtio::{Checksum, Segmentation};
use conic_port::offload::vlan::{TAG_BYTES, Tag, insert};
use conic_port::offload::{Headers, Network, virtio};
use conic_port::{MAX_FRAME, MIN_FRAME};

use super::Switch;
use super::deliver::{Form, Route, Targets};
use super::forward::gather;
use super::header::{ETHERNET_HEADER, Header};
use super::table::Place;

/// Bytes of payload that each frame has at least, but for the last, into which a client has a packet cut: a header is built for each, and
/// by the byte they would cost this thread a thousand times what one large packet does. Network cards draw a line there as well: Linux
/// leaves nothing smaller to Intel's i40e and ice. Of what a port gives it is [`LEAST_PIECE_OF_PORT`], whoever cuts it.
const LEAST_PIECE: u16 = 64;

/// What is left to do for a packet, checked against it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    headers: Headers,
    begun: Begun,
    cut: Option<Segments>,
    size: u16,
}

impl Work {
    /// Whether it is cut into pieces of so many bytes of payload at least, but for the last, if it is to be cut.
    fn is_coarse(&self, least: u16) -> bool {
        self.cut.is_none() || self.size >= least
    }

    /// As receivers are told it.
    fn metadata(&self) -> Metadata {
        let metadata = Metadata::NONE.with_begun(self.begun);
        if self.cut.is_some() { metadata.with_large(self.size) } else { metadata }
    }

    /// Bytes that a sender is charged for its packet: those of the frames for which it stands, whoever takes it as it is.
    fn stands_for(&self, length: usize) -> usize {
        self.cut.map_or(length, |cut| cut.bytes(MIN_FRAME))
    }

    /// Whether the packet stands for several.
    pub(super) fn is_to_be_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// As another thread's switch is told it: where the checksum is begun, and the size of the pieces if it is to be cut.
    pub(super) fn for_trunk(&self) -> (Begun, Option<u16>) {
        (self.begun, self.cut.map(|_| self.size))
    }

    /// As ports are told it.
    pub(super) fn for_port(&self) -> virtio::Metadata {
        let (start, offset) = (u16::from(self.begun.start), u16::from(self.begun.offset));
        virtio::Metadata {
            checksum: Checksum::Partial { start, offset },
            segmentation: self.cut.map(|_| Segmentation { size: self.size, protocol: self.headers.protocol }),
        }
    }

    /// What is left to do for a packet, if it is as the sender says: its outermost TCP or UDP packet is meant, and neither it nor what it is
    /// to be cut into is longer than `most`.
    pub(super) fn of(packet: &[u8], start: usize, offset: usize, size: Option<u16>, most: usize) -> Option<Work> {
        let headers = Headers::of(packet)?;
        if headers.transport != start || headers.checksum_at() != Some(start + offset) {
            return None;
        }
        let begun = Begun { start: u8::try_from(start).ok()?, offset: u8::try_from(offset).ok()? };
        let cut = match size {
            None => None,
            Some(size) => Some(Segments::of(packet, Segmentation { size, protocol: headers.protocol })?),
        };
        // One that would be one frame is one already.
        let cut = cut.filter(|cut| !cut.is_one());
        if cut.is_some_and(|cut| cut.longest() > most) || cut.is_none() && packet.len() > most {
            return None;
        }
        Some(Work { headers, begun, cut, size: size.unwrap_or(0) })
    }
}

impl<C: Core> Switch<C> {
    /// Sends on a client's packet for which something is to be done, given by its segments; the bytes for which it stands.
    pub(super) fn forward_request(
        &mut self,
        now: Time,
        slot: usize,
        lane: usize,
        segments: &[Descriptor],
        request: Metadata,
    ) -> usize {
        let Some(member) = &mut self.members[slot] else { return 0 };
        let length: usize = segments.iter().map(|segment| usize::from(segment.length())).sum();
        let most = if request.has(Metadata::LARGE) { LONGEST } else { MAX_FRAME };
        if !(ETHERNET_HEADER..=most).contains(&length) {
            member.counters.dropped_length += 1;
            return length;
        }
        member.counters.sent_frames += 1;
        member.counters.sent_bytes += length as u64;
        let core = member.lanes[lane].wire.nic().core();
        gather(core, segments, &mut self.frame);
        match self.prepare(length.max(MIN_FRAME), request) {
            Some((length, work)) => {
                self.forward_unfinished(now, Place::Client(slot as u32), length, work, Metadata::NONE);
                work.map_or(length, |work| work.stands_for(length))
            }
            None => {
                if let Some(member) = &mut self.members[slot] {
                    member.counters.dropped_offload += 1;
                }
                length
            }
        }
    }

    /// Does to the packet that lies here what everybody needs done; its length then, and what is left. None if it is not what the
    /// request says.
    fn prepare(&mut self, length: usize, request: Metadata) -> Option<(usize, Option<Work>)> {
        if !request.is_request() {
            return None;
        }
        let (mut length, mut moved) = (length, 0);
        if let Some(control) = request.vlan() {
            length = insert(&mut self.frame, length, Tag { control, ..Tag::new(0) })?;
            moved = TAG_BYTES;
        }
        let packet = &mut self.frame[..length];
        if request.has(Metadata::NETWORK) {
            let headers = Headers::of(packet).filter(|headers| headers.version == Network::Four)?;
            fill_network(packet, &headers);
        }
        let Some(Begun { start, offset }) = request.begun() else {
            return (length <= MAX_FRAME + TAG_BYTES).then_some((length, None));
        };
        let start = usize::from(start) + moved;
        // A frame is as long as any other without the tag that was put in.
        let work = Work::of(packet, start, offset.into(), request.large(), MAX_FRAME + moved)?;
        if request.large().is_some() {
            // Some leave it without the length, which is another one in each piece. Who takes the packet whole, or as the one frame that it
            // is, sums on from here.
            let Headers { transport, end, .. } = work.headers;
            let begun = fold(pseudo_header(packet, &work.headers, end - transport));
            let at = start + usize::from(offset);
            packet[at..at + 2].copy_from_slice(&begun.to_be_bytes());
        }
        work.is_coarse(LEAST_PIECE).then_some((length, Some(work)))
    }

    /// Sends the packet that lies here on, for which work is left: first as it is to whoever takes it so, then finished to the
    /// others.
    pub(super) fn forward_unfinished(
        &mut self,
        now: Time,
        from: Place,
        length: usize,
        work: Option<Work>,
        known: Metadata,
    ) {
        self.show(now, from, length);
        let header = Header::of_frame(&self.frame[..length]);
        // It stays where it is; see `forward_packet`.
        let mut route = self.route(now, from, &header);
        let Some(route) = &mut route else { return };
        route.known = known;
        self.send_unfinished(now, route, &header, length, work);
    }

    /// The same, of a packet of which it is known where it goes, and what is known of it.
    pub(super) fn send_unfinished(
        &mut self,
        now: Time,
        route: &Route,
        header: &Header,
        length: usize,
        work: Option<Work>,
    ) {
        let Some(work) = work else {
            return self.send_on(now, route, header, length);
        };
        let route = Route { large: if work.cut.is_some() { length } else { 0 }, ..*route };
        let unfinished = Route { known: work.metadata(), work: Some(work), ..route };
        self.send_in_form(now, &unfinished, header, length, Form::AsItIs);
        let finished = Route { known: Metadata::NONE.with(Metadata::TRANSPORT_GOOD), served: true, ..route };
        if !self.places().any(|place| self.form_at(&finished, place) != Form::Never) {
            return;
        }
        match work.cut {
            None => {
                let Begun { start, offset } = work.begun;
                // It fits: the work was checked against the packet.
                if complete(&mut self.frame[..length], start.into(), offset.into()) {
                    self.send_on(now, &finished, header, length);
                }
            }
            Some(mut cut) => {
                std::mem::swap(&mut self.frame, &mut self.packet);
                while let Some(piece) = cut.next(&self.packet[..length], &mut self.frame[..MAX_FRAME + TAG_BYTES]) {
                    self.frame[piece..piece.max(MIN_FRAME)].fill(0);
                    let header = Header::of_frame(&self.frame[..piece.max(MIN_FRAME)]);
                    self.send_on(now, &finished, &header, piece.max(MIN_FRAME));
                }
            }
        }
    }

    /// Sends on the packet that a port gave, with what the port knows of it; false if it is not what the port says.
    pub(super) fn forward_from_port(
        &mut self,
        now: Time,
        port: u32,
        length: usize,
        metadata: virtio::Metadata,
    ) -> bool {
        let known = match metadata.checksum {
            Checksum::Valid => Metadata::NONE.with(Metadata::TRANSPORT_GOOD),
            _ => Metadata::NONE,
        };
        let work = match metadata.checksum {
            Checksum::Partial { start, offset } => {
                let size = metadata.segmentation.map(|segmentation| segmentation.size);
                match Work::of(&self.frame[..length], start.into(), offset.into(), size, MAX_FRAME) {
                    Some(work) if work.is_coarse(LEAST_PIECE_OF_PORT) => Some(work),
                    Some(_) => return false,
                    // A checksum of what is not known here: it is completed as the port says.
                    None if size.is_none()
                        && length <= MAX_FRAME
                        && complete(&mut self.frame[..length], start.into(), offset.into()) =>
                    {
                        None
                    }
                    None => return false,
                }
            }
            _ if metadata.segmentation.is_some() || length > MAX_FRAME => return false,
            _ => None,
        };
        self.forward_unfinished(now, Place::Port(port), length, work, known);
        true
    }

    /// Whether a place takes packets for which work is left, of which one that stands for several has `large` bytes.
    #[inline(always)]
    pub(super) fn takes_unfinished(&self, place: Place, large: usize) -> bool {
        match place {
            Place::Client(slot) => self.members[slot as usize]
                .as_ref()
                .is_some_and(|member| member.rules.offloads.unfinished && large <= member.longest),
            Place::Port(port) => self.ports[port as usize].takes_unfinished,
            // It is finished where it arrives, for those who do not take it so.
            Place::Trunk(_) | Place::Away(_) => true,
        }
    }

    /// Whether somebody who gets a frame is told what needs a look at all of it.
    #[inline(always)]
    pub(super) fn is_looked_at(&self, route: &Route) -> bool {
        let looks = |place: Place| match place {
            Place::Client(slot) => {
                let member = self.members[slot as usize].as_ref();
                member.is_some_and(|member| member.rules.offloads.need_a_look())
                    && self.form_at(route, place) != Form::Never
            }
            Place::Port(_) | Place::Trunk(_) | Place::Away(_) => false,
        };
        self.has_lookers
            && match route.targets {
                Targets::One(place) => looks(place),
                Targets::AllBut(_) => self.places().any(looks),
            }
    }
}

/// What a client's wishes come to.
pub(super) trait Told {
    /// Whether it is told the hash of each packet's flow.
    fn are_hashed(&self) -> bool;
    /// Whether its frames must all be laid out here on their way.
    fn need_a_look(&self) -> bool;
    /// The tag that is taken out of a frame for it.
    fn stripped(&self, frame: &[u8]) -> Option<Tag>;
    /// What a client is told of a frame that is whole, of which something is known already. `tag` was taken out of it.
    fn describe(&self, frame: &[u8], known: Metadata, tag: Option<Tag>) -> Metadata;
}

impl Told for Offloads {
    #[inline(always)]
    fn are_hashed(&self) -> bool {
        self.requests && !self.no_hash
    }

    #[inline(always)]
    fn need_a_look(&self) -> bool {
        self.verify || self.strip || self.join
    }

    #[inline(always)]
    fn stripped(&self, frame: &[u8]) -> Option<Tag> {
        if self.strip { Tag::of(frame).filter(|tag| tag.kind == Tag::new(0).kind) } else { None }
    }

    fn describe(&self, frame: &[u8], known: Metadata, tag: Option<Tag>) -> Metadata {
        let mut told = known;
        if let Some(tag) = tag {
            told = told.with_vlan(tag.control);
            if let Some(Begun { start, offset }) = told.begun() {
                told = told.with_begun(Begun { start: start.saturating_sub(TAG_BYTES as u8), offset });
            }
        }
        if !self.verify {
            return told;
        }
        let verdicts = verify(frame);
        if !told.has(Metadata::BEGUN) && !told.has(Metadata::TRANSPORT_GOOD) {
            told = told.with(flag(verdicts.transport, Metadata::TRANSPORT_GOOD, Metadata::TRANSPORT_BAD));
        }
        told.with(flag(verdicts.network, Metadata::NETWORK_GOOD, Metadata::NETWORK_BAD))
    }
}

fn flag(verdict: Verdict, good: u64, bad: u64) -> u64 {
    match verdict {
        Verdict::Good => good,
        Verdict::Bad => bad,
        Verdict::Absent => 0,
    }
}

/// Offloads as one daemon hands them to the next: each by its name. What a daemon does not know of, it does not hand over.
pub(super) mod handed_over {
    use std::collections::BTreeMap;

    use conic_interface::metadata::Offloads;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(offloads: &Offloads, serializer: S) -> Result<S::Ok, S::Error> {
        BTreeMap::from(offloads.named()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Offloads, D::Error> {
        let named = BTreeMap::<String, bool>::deserialize(deserializer)?;
        Ok(Offloads::from_named(|name| named.get(name).is_some_and(|&is_there| is_there)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rules;
    use super::*;

    #[test]
    fn offloads_are_handed_over_and_what_a_daemon_did_not_know_is_not_there() {
        let rules = Rules {
            offloads: Offloads { requests: true, join: true, ..Offloads::default() },
            longest: Some(9000),
            ..Rules::default()
        };
        let text = toml::to_string(&rules).expect("rules can be written");
        assert_eq!(toml::from_str::<Rules>(&text).expect("and read"), rules);
        let old = text.replace("join = true\n", "").replace("no_hash = false\n", "").replace("longest = 9000\n", "");
        assert_ne!(old, text);
        let old = toml::from_str::<Rules>(&old).expect("and read without what is new");
        assert_eq!((old.offloads, old.longest), (Offloads { requests: true, ..Offloads::default() }, None));
    }
}
