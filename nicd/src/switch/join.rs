//! TCP frames for a client that follow each other in a burst, joined into packets that stand for them: the inverse of cutting.
//!
//! What a joined packet is made of, and what ends one, is said in [`conic_port::offload::coalesce`]. Nothing is held beyond the burst
//! that it came in. No frame passes another of its flow: each flow has one place where its frames are held, and what cannot be
//! joined to them has them leave first. Frames of one flow with different tags are held at the same place, and never joined.

use conic_fabric::Core;
use conic_interface::metadata::{Begun, Metadata};
use conic_port::offload::coalesce::{Coalescer, Joined};
use conic_port::offload::rss::{Ports, Toeplitz};
use conic_port::offload::virtio::{Checksum, Metadata as Virtio};
use conic_port::offload::vlan::TAG_BYTES;
use conic_port::offload::{Headers, TCP};

use super::deliver::{ADDRESSES, Way};
use super::member::Member;
use super::offload::Told;
use super::table::Place;

/// Places where frames are held, for each client that has them joined: flows that are joined at a time.
const PLACES: usize = 8;

/// What is held for one client.
pub(super) struct Joining {
    places: Vec<Held>,
    /// A bit for each place that holds something.
    full: u64,
}

/// Frames of one flow, the queue that they go to, and who sent the last of them: frames that can be joined are alike in all that chooses
/// a queue.
struct Held {
    frames: Coalescer,
    queue: usize,
    from: Place,
}

/// Which places have to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Its flow is held here, if anywhere.
    At(usize),
    /// It may belong to any flow.
    Any,
    /// It belongs to none that is ever held.
    Other,
}

/// The flow of a frame.
fn flow_of(frame: &[u8], toeplitz: &Toeplitz) -> Flow {
    let Some(headers) = Headers::of(frame).filter(|headers| headers.protocol == TCP) else { return Flow::Other };
    if headers.checksum_at().is_none() {
        // A fragment, or too short for its ports.
        return Flow::Any;
    }
    toeplitz.hash_frame(frame, Ports::default()).map_or(Flow::Any, |hash| Flow::At(hash as usize % PLACES))
}

impl Joining {
    /// For a client that takes packets of up to so many bytes.
    pub fn new(most: usize) -> Joining {
        let place = |_| Held { frames: Coalescer::with_room(most), queue: 0, from: Place::Client(0) };
        Joining { places: (0..PLACES).map(place).collect(), full: 0 }
    }

    /// Packets that are joined from here on have no more than so many bytes.
    pub fn limit(&mut self, most: usize) {
        self.places.iter_mut().for_each(|held| held.frames.limit(most));
    }
}

impl<C: Core> Member<C> {
    /// Holds a frame for this client to join others to it; false if it is to be delivered now, behind what has left for that.
    /// `joinable`: nothing is left to do for it, and it is long enough as the client gets it.
    pub(super) fn join(
        &mut self,
        way: Way,
        frame: &[u8],
        joinable: bool,
        toeplitz: &Toeplitz,
        dirty: &mut Vec<(u32, u32)>,
    ) -> bool {
        let Way { from, slot, queue } = way;
        let place = match flow_of(frame, toeplitz) {
            Flow::At(place) => place,
            Flow::Any => {
                self.let_go_of_joined(slot, toeplitz, dirty);
                return false;
            }
            Flow::Other => return false,
        };
        if !joinable {
            self.deliver_joined(slot, place, toeplitz, dirty);
            return false;
        }
        let mut joined = self.offer(place, frame);
        if joined != Joined::Held {
            self.deliver_joined(slot, place, toeplitz, dirty);
            if joined == Joined::Other {
                joined = self.offer(place, frame);
            }
        }
        if joined != Joined::Held {
            return false;
        }
        if let Some(joining) = &mut self.joining {
            joining.full |= 1 << place;
            let held = &mut joining.places[place];
            (held.queue, held.from) = (queue, from);
        }
        true
    }

    fn offer(&mut self, place: usize, frame: &[u8]) -> Joined {
        self.joining.as_mut().map_or(Joined::Never, |joining| joining.places[place].frames.offer(frame))
    }

    /// The queue that what is held at a place goes to, and from whom, if something is.
    fn way_of_joined(&self, slot: usize, place: usize) -> Option<Way> {
        let joining = self.joining.as_ref()?;
        let Held { queue, from, .. } = joining.places[place];
        (joining.full & 1 << place != 0).then_some(Way { from, slot, queue })
    }

    /// Whether something is held for it.
    #[inline(always)]
    pub(super) fn holds_joined(&self) -> bool {
        self.joining.as_ref().is_some_and(|joining| joining.full != 0)
    }

    /// Has everything leave that is held.
    pub(super) fn let_go_of_joined(&mut self, slot: usize, toeplitz: &Toeplitz, dirty: &mut Vec<(u32, u32)>) {
        for place in 0..PLACES {
            self.deliver_joined(slot, place, toeplitz, dirty);
        }
    }

    /// Copies what is held at a place into the client's region.
    fn deliver_joined(&mut self, slot: usize, place: usize, toeplitz: &Toeplitz, dirty: &mut Vec<(u32, u32)>) {
        let Some(way) = self.way_of_joined(slot, place) else { return };
        let Some(mut joining) = self.joining.take() else { return };
        joining.full &= !(1 << place);
        let held = &mut joining.places[place].frames;
        let frames = held.frames() as u64;
        if let Some((packet, said, ..)) = held.packet() {
            let offloads = self.rules.offloads;
            let tag = offloads.stripped(packet);
            let packet = if tag.is_some() { without_tag(packet) } else { packet };
            let mut metadata = offloads.describe(packet, known(said), tag);
            if offloads.are_hashed()
                && let Some(hash) = toeplitz.hash_frame(packet, Ports::default())
            {
                metadata = metadata.with_hash(hash);
            }
            match frames {
                1 => self.copy_in(way, packet, metadata, dirty),
                _ => self.copy_in_pieces(way, packet, metadata, frames, dirty),
            }
        }
        held.clear();
        self.joining = Some(joining);
    }
}

/// A packet that has a tag, without it: the addresses move, which are less than the rest.
fn without_tag(packet: &mut [u8]) -> &mut [u8] {
    packet.copy_within(..ADDRESSES, TAG_BYTES);
    &mut packet[TAG_BYTES..]
}

/// What a receiver is told of what leaves a coalescer.
fn known(said: Virtio) -> Metadata {
    match said.checksum {
        Checksum::Partial { start, offset } => {
            // Neither is more than a plain header behind two tags.
            let begun = Metadata::NONE.with_begun(Begun { start: start as u8, offset: offset as u8 });
            said.segmentation.map_or(begun, |segmentation| begun.with_large(segmentation.size))
        }
        _ => Metadata::NONE.with(Metadata::TRANSPORT_GOOD),
    }
}
