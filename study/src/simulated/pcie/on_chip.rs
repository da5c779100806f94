//! What a NIC chip does between a queue pair's program and the PCIe link: it takes its time over doorbells, fetches descriptors
//! in batches, keeps blank buffers' descriptors ready, and gathers the descriptors that it writes back.
//!
//! The ring's device half runs on it unchanged. Where that reads a register, it is told only of what the chip has come to.

use std::cell::RefCell;
use std::collections::VecDeque;

use conic_fabric::{Address, Device, LINE_BYTES, Layout, ReadTag, StateHint, Time};
use conic_interface::ring::{DESCRIPTOR_BYTES, Shape};
use conic_sim::SimDevice;
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::WriteBack;

/// Batches of blank buffers' descriptors that a chip has or fetches at most.
const BLANK_BATCHES: u64 = 2;

/// Where the parts of one queue pair lie that the chip must tell apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    transmit_tail: Address,
    receive_head: Address,
    receive_tail: Address,
    receive_ring: Address,
    transmit_ring: Address,
    descriptors: u64,
}

impl Places {
    /// Those of the `queue`-th queue pair of a layout.
    ///
    /// # Panics
    ///
    /// If the layout has no such queue pair.
    pub(super) fn find(layout: &Layout, queue: usize, shape: Shape) -> Places {
        let of = |name: &str| {
            let named = layout.segments().iter().filter(|segment| segment.name == name);
            named.map(|segment| segment.start).nth(queue).expect("a queue pair that was placed")
        };
        Places {
            transmit_tail: of("ring TX tail"),
            receive_head: of("ring RX head"),
            receive_tail: of("ring RX tail"),
            receive_ring: of("ring RX descriptors"),
            transmit_ring: of("ring TX descriptors"),
            descriptors: shape.descriptors,
        }
    }

    fn ring_bytes(&self) -> u64 {
        self.descriptors * DESCRIPTOR_BYTES
    }

    fn in_ring(&self, ring: Address, at: Address) -> Option<u64> {
        (at >= ring && at < ring + self.ring_bytes()).then(|| (at - ring) / DESCRIPTOR_BYTES)
    }
}

/// A register that the host writes, as the chip comes to know it.
#[derive(Debug, Default)]
struct Doorbell {
    /// What the link has brought.
    written: u64,
    /// What will be known, and when.
    coming: VecDeque<(Time, u64)>,
    /// What is known.
    known: u64,
    /// Up to where the ring's device half was told of it.
    told: u64,
}

/// Descriptors of blank buffers on the chip.
#[derive(Debug, Default)]
struct Blanks {
    /// Reads under way: their numbers, the first descriptor of each, and how many.
    fetches: VecDeque<(u64, u64, u64)>,
    /// Up to where descriptors were asked for, and up to where they are here.
    asked: u64,
    here: u64,
    /// Up to where the ring's device half has taken them.
    taken: u64,
    /// The first word of each, by its index.
    words: Vec<u64>,
}

/// Descriptors to be written back.
#[derive(Debug)]
struct Gathered {
    pace: WriteBack,
    descriptors: VecDeque<(u64, u64)>,
}

/// A queue pair's part of a chip.
pub(super) struct OnChip<'a, 'device> {
    device: &'a SimDevice<'device>,
    places: Places,
    doorbell_time: Time,
    batch: u64,
    transmit: RefCell<Doorbell>,
    receive: RefCell<Doorbell>,
    blanks: RefCell<Blanks>,
    gathered: RefCell<Gathered>,
    /// Numbers of the reads of payloads, in order.
    payloads: RefCell<VecDeque<u64>>,
}

impl<'a, 'device> OnChip<'a, 'device> {
    pub(super) fn new(device: &'a SimDevice<'device>, nic: &NicParameters, places: Places) -> OnChip<'a, 'device> {
        OnChip {
            device,
            places,
            doorbell_time: Time::from_picoseconds(nic.doorbell_time),
            batch: nic.descriptor_batch.into(),
            transmit: RefCell::default(),
            receive: RefCell::default(),
            blanks: RefCell::new(Blanks { words: vec![0; places.descriptors as usize], ..Blanks::default() }),
            gathered: RefCell::new(Gathered { pace: WriteBack::new(nic), descriptors: VecDeque::new() }),
            payloads: RefCell::default(),
        }
    }

    fn mask(&self) -> u64 {
        self.places.descriptors - 1
    }

    /// Looks at the doorbells, fetches blank buffers' descriptors, and writes back what has waited long enough.
    pub(super) fn look(&self) {
        self.hear(&self.transmit, self.places.transmit_tail);
        self.hear(&self.receive, self.places.receive_head);
        self.take_blanks();
        self.fetch_blanks();
        let now = self.device.now().picoseconds();
        let due = self.gathered.borrow_mut().pace.expire(now);
        self.write_back(due);
    }

    fn hear(&self, doorbell: &RefCell<Doorbell>, at: Address) {
        let written = self.device.own_register(at);
        let now = self.device.now();
        let mut doorbell = doorbell.borrow_mut();
        if written != doorbell.written {
            doorbell.written = written;
            doorbell.coming.push_back((now + self.doorbell_time, written));
        }
        while let Some(&(_, value)) = doorbell.coming.front().filter(|(when, _)| *when <= now) {
            doorbell.known = value;
            doorbell.coming.pop_front();
        }
    }

    fn take_blanks(&self) {
        let mut blanks = self.blanks.borrow_mut();
        while let Some(&(read, first, count)) = blanks.fetches.front() {
            if !self.device.is_ready(&ReadTag(read)) {
                return;
            }
            let mut bytes = vec![0; (count * DESCRIPTOR_BYTES) as usize];
            let at = self.places.receive_ring + first * DESCRIPTOR_BYTES;
            self.device.finish_read(ReadTag(read), at, &mut bytes);
            for (index, descriptor) in bytes.chunks_exact(DESCRIPTOR_BYTES as usize).enumerate() {
                let word = descriptor[..8].try_into().expect("eight bytes");
                blanks.words[first as usize + index] = u64::from_ne_bytes(word);
            }
            blanks.here = (first + count) & self.mask();
            blanks.fetches.pop_front();
        }
    }

    fn fetch_blanks(&self) {
        let posted = self.receive.borrow().known;
        if posted > self.mask() {
            return;
        }
        let mut blanks = self.blanks.borrow_mut();
        loop {
            let first = blanks.asked;
            let room = (BLANK_BATCHES * self.batch).saturating_sub(first.wrapping_sub(blanks.taken) & self.mask());
            let there = posted.wrapping_sub(first) & self.mask();
            let count = there.min(room).min(self.batch).min(self.places.descriptors - first);
            // A whole batch, or the last ones that were posted: a fetch of a few would waste a request.
            if count == 0 || count < self.batch.min(there) && first + count != self.places.descriptors {
                return;
            }
            let at = self.places.receive_ring + first * DESCRIPTOR_BYTES;
            let ReadTag(read) = self.device.start_read(at, count * DESCRIPTOR_BYTES, StateHint::NonCacheable);
            blanks.fetches.push_back((read, first, count));
            blanks.asked = (first + count) & self.mask();
        }
    }

    /// Whether the next payload is here.
    pub(super) fn has_payload(&self) -> bool {
        self.payloads.borrow().front().is_some_and(|&read| self.device.is_ready(&ReadTag(read)))
    }

    /// Waits for whatever comes next, but no longer than `until`.
    pub(super) fn wait(&self, until: Time) {
        let mut until = until;
        for doorbell in [&self.transmit, &self.receive] {
            if let Some(&(when, _)) = doorbell.borrow().coming.front() {
                until = until.min(when);
            }
        }
        if let Some(deadline) = self.gathered.borrow().pace.deadline() {
            until = until.min(Time::from_picoseconds(deadline));
        }
        self.device.spin_until(until);
    }

    /// Writes descriptors back: a write for each run of neighbours.
    fn write_back(&self, count: u32) {
        let mut gathered = self.gathered.borrow_mut();
        let mut count = count as usize;
        while count > 0 {
            let Some(&(first, _)) = gathered.descriptors.front() else { return };
            let mut bytes = Vec::with_capacity((2 * LINE_BYTES) as usize);
            while let Some(&(index, word)) = gathered.descriptors.front().filter(|_| count > 0) {
                if index != first + (bytes.len() as u64) / DESCRIPTOR_BYTES {
                    break;
                }
                bytes.extend_from_slice(&word.to_ne_bytes());
                bytes.extend_from_slice(&[0; 8]);
                gathered.descriptors.pop_front();
                count -= 1;
            }
            let at = self.places.receive_ring + first * DESCRIPTOR_BYTES;
            self.device.write(at, &bytes, StateHint::NonCacheablePush);
        }
    }
}

impl Device for OnChip<'_, '_> {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        let ReadTag(read) = self.device.start_read(at, bytes, hint);
        if self.places.in_ring(self.places.transmit_ring, at).is_none() {
            self.payloads.borrow_mut().push_back(read);
        }
        ReadTag(read)
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.device.is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        let mut payloads = self.payloads.borrow_mut();
        if payloads.front() == Some(&tag.0) {
            payloads.pop_front();
        }
        drop(payloads);
        self.device.finish_read(tag, at, into);
    }
    /// A blank buffer's descriptor is on the chip already; nothing else is read by the word.
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        let Some(index) = self.places.in_ring(self.places.receive_ring, at) else {
            return self.device.read_word(at, hint);
        };
        let mut blanks = self.blanks.borrow_mut();
        blanks.taken = (index + 1) & self.mask();
        blanks.words[index as usize]
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        self.device.write(at, from, hint);
    }
    /// A descriptor that is written back may wait for others. The RX tail is not written: these chips signal by descriptor.
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        if at == self.places.receive_tail {
            return;
        }
        let Some(index) = self.places.in_ring(self.places.receive_ring, at) else {
            return self.device.write_word(at, value, hint);
        };
        let due = {
            let mut gathered = self.gathered.borrow_mut();
            gathered.descriptors.push_back((index, value));
            gathered.pace.add(self.device.now().picoseconds())
        };
        self.write_back(due);
    }
    fn own_register(&self, at: Address) -> u64 {
        if at == self.places.receive_head {
            return self.blanks.borrow().here;
        }
        if at != self.places.transmit_tail {
            return self.device.own_register(at);
        }
        // As many as one fetch takes; a register that is no index is passed on, to be refused.
        let mut doorbell = self.transmit.borrow_mut();
        let ahead = doorbell.known.wrapping_sub(doorbell.told) & self.mask();
        if doorbell.known > self.mask() {
            return doorbell.known;
        }
        doorbell.told = (doorbell.told + ahead.min(self.batch)) & self.mask();
        doorbell.told
    }
    fn spin(&self) {
        self.device.spin();
    }
    fn now(&self) -> Time {
        self.device.now()
    }
    fn work(&self, cycles: u32) {
        self.device.work(cycles);
    }
}
