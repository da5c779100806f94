//! A NIC that has an engine move payloads: it posts a copy for each packet and goes on.

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords, lines_of};

use super::burst::{ROUND, Wire, gather};
use super::pool::lengths_of;
use super::{Descriptor, Flags, MAX_SEGMENTS, Map, Nic, Policy};
use crate::burst::NicQueue;
use crate::with_policy;

/// Packets that are copied at the same time at most. Slots and buffers go back to the host when all of them are done, so
/// this also bounds for how long they are kept.
const MOST: usize = 4 * ROUND;

/// Where a queue pair's copies say that they are done: a line each, in the NIC's memory.
#[derive(Clone, Copy, Debug)]
pub struct Completions(Address);

impl Completions {
    /// Places them.
    pub fn place(layout: &mut Layout) -> Completions {
        let bytes = MOST as u64 * LINE_BYTES;
        Completions(layout.add("NIC copies", bytes, LINE_BYTES, Home::Nic, SynchronisingWords::FIRST))
    }
}

/// A NIC's queue pair that turns packets around by copies of [`Core::post_copy`]; otherwise it is a [`Wire`].
#[derive(Debug)]
pub struct BulkWire<C, P> {
    wire: Wire<C, P>,
    completions: Completions,
    /// Packets that were polled and not completed, and the packets into which they are copied, with their numbers.
    polled: Vec<Descriptor>,
    copied: Vec<(Descriptor, u64)>,
    /// Of those, the first that was not delivered.
    delivered: usize,
    posted: u64,
}

impl<C: Core, P: Policy> BulkWire<C, P> {
    /// Puts a NIC's queue pair to work. The engine must have nothing left to do of a NIC that is gone.
    pub fn new(nic: Nic<C, P>, completions: Completions) -> BulkWire<C, P> {
        // What a predecessor's copies said would be taken for the end of this one's, which count from the beginning again.
        for line in 0..MOST as u64 {
            // Release, as of every completion; nobody but this core reads it.
            nic.core().store_release(completions.0.lines(line), 0);
        }
        let (polled, copied) = (Vec::with_capacity(MOST), Vec::with_capacity(MOST));
        BulkWire { wire: Wire::new(nic), completions, polled, copied, delivered: 0, posted: 0 }
    }

    fn completion(&self, number: u64) -> Address {
        self.completions.0.lines(number % MOST as u64)
    }

    /// Polls packets and posts their copies, as many as there is room for in the receive ring.
    fn begin(&mut self) {
        let waiting = self.copied.len() - self.delivered;
        let round = self.wire.round();
        let nic = self.wire.nic();
        let room = nic.rx_room(waiting + round).saturating_sub(waiting).min(round).min(MOST - self.polled.len());
        if room < MAX_SEGMENTS {
            return;
        }
        let mut polled = [Descriptor::BLANK; ROUND];
        let count = nic.poll_tx(&mut polled[..room]);
        self.polled.extend_from_slice(&polled[..count]);
        let mut rest = &polled[..count];
        while !rest.is_empty() {
            let segments = rest.iter().take_while(|segment| segment.has(Flags::NEXT)).count() + 1;
            let (packet, others) = rest.split_at(segments.min(rest.len()));
            self.wire.nic().rx_claim(lengths_of(rest));
            self.post(packet);
            rest = others;
        }
    }

    /// Has a packet copied, given by its segments.
    fn post(&mut self, segments: &[Descriptor]) {
        let (packet, done, value) = (segments[0], self.completion(self.posted), self.posted + 1);
        let nic = self.wire.nic();
        // An engine moves whole lines: packets of several pieces, or that begin within a line, are for this core.
        let copy = if segments.len() == 1 && packet.address().is_line_aligned() {
            let length = u64::from(packet.length());
            nic.rx_alloc(length).map(|to| {
                nic.core().post_copy(packet.address(), to, lines_of(length), done, value);
                Descriptor::new(to, packet.length()).with_metadata(packet.metadata)
            })
        } else {
            let gathered = gather(nic, segments);
            if gathered.is_some() {
                // Release, as of every copy; this core alone reads it.
                nic.core().store_release(done, value);
            }
            gathered
        };
        match copy {
            Some(copy) => {
                self.copied.push((copy, self.posted));
                self.posted += 1;
            }
            None => self.wire.count_dropped(),
        }
    }

    /// Delivers packets that are copied, in order; how many.
    fn deliver(&mut self) -> usize {
        let mut ready = [Descriptor::BLANK; ROUND];
        let mut count = 0;
        while count < ROUND
            && let Some(&(packet, number)) = self.copied.get(self.delivered + count)
        {
            let at = self.completion(number);
            // Acquire, pairs with the release that ends a copy: its lines are there before the host is told of them.
            if self.wire.nic().core().load_acquire(at) != number + 1 {
                break;
            }
            ready[count] = packet;
            count += 1;
        }
        // Room was asked for packets that go four to a slot. Those that are copied sooner than the ones behind them begin a slot each, so
        // that the ring may be full before all have gone: the rest goes when the host has taken some.
        let sent = if count > 0 { self.wire.nic().rx_burst(&ready[..count]) } else { 0 };
        self.delivered += sent;
        sent
    }
}

impl<C: Core, P: Policy> NicQueue for BulkWire<C, P> {
    fn turn_around(&mut self) -> usize {
        self.begin();
        let delivered = self.deliver();
        if self.delivered == self.copied.len() {
            // Also where nothing was polled: packets may have been refused, and their slots go back.
            let polled = std::mem::take(&mut self.polled);
            self.wire.nic().complete_tx(&polled);
            self.polled = polled;
            self.polled.clear();
            self.copied.clear();
            self.delivered = 0;
        }
        delivered
    }
    fn handle_at_most(&mut self, packets: usize) {
        self.wire.handle_at_most(packets);
    }
    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
        self.wire.take_frame(frame)
    }
    fn deliver_frame(&mut self, frame: &[u8]) -> bool {
        self.wire.deliver_frame(frame)
    }
    fn deliver_frames(&mut self, frames: &[Vec<u8>]) -> usize {
        self.wire.deliver_frames(frames)
    }
    fn drain(&mut self) {
        self.wire.drain();
    }
    fn spin(&self) {
        self.wire.spin();
    }
    fn refused(&self) -> u64 {
        self.wire.refused()
    }
    fn dropped(&self) -> u64 {
        self.wire.dropped()
    }
}

/// The NIC's half for switches that are known only when the program runs, with copies posted.
pub fn bulk_nic_queue<'a, C: Core + 'a>(
    core: C,
    map: &Map,
    queue: usize,
    completions: Completions,
) -> Box<dyn NicQueue + 'a> {
    with_policy!(map.features, P => Box::new(BulkWire::new(Nic::<C, P>::new(core, map, queue), completions)))
}
