//! What a NIC chip does between a queue pair's program and the PCIe link: it takes its time over doorbells, fetches descriptors
//! in batches and payloads as soon as it knows of them, and gathers the descriptors that it writes back.
//!
//! The ring's device half runs on it unchanged. Where that reads a register, it is told only of the descriptors that are on the
//! chip, and finds their payloads already asked for: so many packets of a queue are on their way at once, as a chip has them.

use std::cell::RefCell;
use std::collections::VecDeque;

use conic_fabric::{Address, Device, LINE_BYTES, Layout, ReadTag, Segment, StateHint, Time};
use conic_interface::ring::{Chain, DESCRIPTOR_BYTES, QueuePair, Verdict, segment_of};
use conic_sim::SimDevice;
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::WriteBack;

use super::fetched::Fetched;

/// Marks the number of a read that needs no link: its descriptors are on the chip.
const ON_CHIP: u64 = 1 << 63;

/// Where the parts of one queue pair lie that the chip must tell apart.
#[derive(Clone, Copy, Debug)]
pub(in crate::simulated) struct Places {
    transmit_tail: Address,
    receive_head: Address,
    receive_tail: Address,
    receive_ring: Address,
    transmit_ring: Address,
    pair: QueuePair,
}

impl Places {
    /// Those of the queue pair that was placed last in a layout.
    ///
    /// # Panics
    ///
    /// If the layout has no queue pair.
    pub(in crate::simulated) fn of_last(layout: &Layout, pair: QueuePair) -> Places {
        let of = |name: &str| -> &Segment {
            let last = layout.segments().iter().rfind(|segment| segment.name == name);
            last.expect("a queue pair that was placed")
        };
        Places {
            transmit_tail: of("ring TX tail").start,
            receive_head: of("ring RX head").start,
            receive_tail: of("ring RX tail").start,
            receive_ring: of("ring RX descriptors").start,
            transmit_ring: of("ring TX descriptors").start,
            pair,
        }
    }

    /// The queue pair.
    pub(super) fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// The same with the program's own objects in `bytes` bytes from `start` on.
    pub(super) fn with_objects(self, start: Address, bytes: u64) -> Places {
        Places { pair: self.pair.with_objects(start, bytes), ..self }
    }
}

/// A register that the host writes, as the chip comes to know it.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    /// What the link has brought.
    written: u64,
    /// What will be known, and when.
    coming: VecDeque<(Time, u64)>,
    known: u64,
}

impl Doorbell {
    /// Takes what the link has brought by now, which the chip takes some time over; what is known.
    pub(super) fn hear(&mut self, written: u64, now: Time, takes: Time) -> u64 {
        if written != self.written {
            self.written = written;
            self.coming.push_back((now + takes, written));
        }
        while let Some(&(_, value)) = self.coming.front().filter(|(when, _)| *when <= now) {
            self.known = value;
            self.coming.pop_front();
        }
        self.known
    }

    /// What is known.
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// When more will be known.
    pub(super) fn next(&self) -> Option<Time> {
        self.coming.front().map(|&(when, _)| when)
    }
}

/// A payload that was asked for.
#[derive(Clone, Copy, Debug)]
struct Payload {
    read: u64,
    at: Address,
    bytes: u64,
    /// The next payload is of the same packet.
    goes_on: bool,
    /// The ring's device half has asked for it too.
    claimed: bool,
}

/// A queue pair's part of a chip.
#[derive(Debug)]
struct State {
    transmit_tail: Doorbell,
    receive_head: Doorbell,
    transmit: Fetched,
    receive: Fetched,
    /// Up to where descriptors were looked at, and the packet that the last one belongs to.
    judged: u64,
    chain: Chain,
    /// Up to where packets are known whole or refused, and payloads were asked for.
    started: u64,
    /// A packet was broken off at `started`, and the ring's device half does not know it yet.
    broken: bool,
    payloads: VecDeque<Payload>,
    payload_bytes: u64,
    pace: WriteBack,
    /// Descriptors to be written back: their indexes and first words.
    done: VecDeque<(u64, u64)>,
}

/// The device that a queue pair's program sees.
pub(super) struct OnChip<'a, 'device> {
    device: &'a SimDevice<'device>,
    places: Places,
    doorbell_time: Time,
    state: RefCell<State>,
}

impl<'a, 'device> OnChip<'a, 'device> {
    pub(super) fn new(device: &'a SimDevice<'device>, nic: &NicParameters, places: Places) -> OnChip<'a, 'device> {
        let fetched = |ring| Fetched::new(ring, places.pair.shape().descriptors, nic.descriptor_batch.into());
        let state = State {
            transmit_tail: Doorbell::default(),
            receive_head: Doorbell::default(),
            transmit: fetched(places.transmit_ring),
            receive: fetched(places.receive_ring),
            judged: 0,
            chain: Chain::default(),
            started: 0,
            broken: false,
            payloads: VecDeque::new(),
            payload_bytes: 0,
            pace: WriteBack::new(nic),
            done: VecDeque::new(),
        };
        let doorbell_time = Time::from_picoseconds(nic.doorbell_time);
        OnChip { device, places, doorbell_time, state: RefCell::new(state) }
    }

    /// Looks at the doorbells, fetches what they announce, and writes back what has waited long enough.
    pub(super) fn look(&self) {
        let (device, now) = (self.device, self.device.now());
        let (tail, head) =
            (device.own_register(self.places.transmit_tail), device.own_register(self.places.receive_head));
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.transmit_tail.hear(tail, now, self.doorbell_time);
        state.receive_head.hear(head, now, self.doorbell_time);
        state.receive.take(device);
        state.receive.fetch(device, state.receive_head.known, true);
        state.transmit.take(device);
        self.start_payloads(state);
        state.transmit.fetch(device, state.transmit_tail.known, false);
        let due = state.pace.expire(now.picoseconds());
        self.write_back(state, due);
    }

    /// Asks for the payloads of packets whose descriptors are all here, as far as there is room for them.
    fn start_payloads(&self, state: &mut State) {
        let (pair, shape) = (&self.places.pair, self.places.pair.shape());
        while state.judged != state.transmit.here() && !state.broken {
            if !state.chain.is_open() && state.payload_bytes >= shape.read_ahead_bytes {
                return;
            }
            let [address, word] = state.transmit.words(state.judged);
            let verdict = state.chain.look(pair, address, word);
            state.judged = (state.judged + 1) & (shape.descriptors - 1);
            state.transmit.use_up_to(state.judged);
            // The ring's device half refuses the same packets itself: it judges by the same rules, and is told of the same ends.
            if state.chain.is_open() && state.judged == state.transmit_tail.known {
                state.chain.break_off();
                state.broken = true;
            }
            if verdict == Verdict::Whole {
                self.start_packet(state);
            }
            if !state.chain.is_open() {
                state.started = state.judged;
            }
        }
    }

    /// Asks for the payloads of a packet, whose descriptors are those that were looked at last.
    fn start_packet(&self, state: &mut State) {
        let mut index = state.started;
        while index != state.judged {
            let [address, word] = state.transmit.words(index);
            let ((bytes, goes_on), at) = (segment_of(word), Address(address));
            let ReadTag(read) = self.device.start_read(at, bytes, StateHint::NonCacheable);
            state.payloads.push_back(Payload { read, at, bytes, goes_on, claimed: false });
            state.payload_bytes += bytes;
            index = (index + 1) & (self.places.pair.shape().descriptors - 1);
        }
    }

    /// Whether all payloads of the next packet are here, or those of them that were not taken yet.
    pub(super) fn has_payload(&self) -> bool {
        for payload in &self.state.borrow().payloads {
            if !self.device.is_ready(&ReadTag(payload.read)) {
                return false;
            }
            if !payload.goes_on {
                return true;
            }
        }
        false
    }

    /// Waits for whatever comes next, but no longer than `until`.
    pub(super) fn wait(&self, until: Time) {
        let state = self.state.borrow();
        let heard = [&state.transmit_tail, &state.receive_head].map(Doorbell::next);
        let until = heard.into_iter().flatten().fold(until, Time::min);
        let until = state.pace.deadline().map_or(until, |deadline| until.min(Time::from_picoseconds(deadline)));
        drop(state);
        self.device.spin_until(until);
    }

    /// Writes descriptors back: a write for each run of neighbours.
    fn write_back(&self, state: &mut State, count: u32) {
        let mut left = count as usize;
        while left > 0 {
            let Some(&(first, _)) = state.done.front() else { return };
            let mut bytes = Vec::with_capacity((2 * LINE_BYTES) as usize);
            while let Some(&(index, word)) = state.done.front().filter(|_| left > 0) {
                if index != first + bytes.len() as u64 / DESCRIPTOR_BYTES {
                    break;
                }
                bytes.extend_from_slice(&word.to_ne_bytes());
                bytes.extend_from_slice(&[0; 8]);
                state.done.pop_front();
                left -= 1;
            }
            self.device.write(state.receive.at(first), &bytes, StateHint::NonCacheablePush);
        }
    }
}

impl Device for OnChip<'_, '_> {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        let mut state = self.state.borrow_mut();
        if let Some(index) = state.transmit.index(at) {
            return ReadTag(ON_CHIP | index);
        }
        let asked = |payload: &&mut Payload| !payload.claimed && payload.at == at && payload.bytes == bytes;
        match state.payloads.iter_mut().find(asked) {
            Some(payload) => {
                payload.claimed = true;
                ReadTag(payload.read)
            }
            None => self.device.start_read(at, bytes, hint),
        }
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        tag.0 & ON_CHIP != 0 || self.device.is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        let mut state = self.state.borrow_mut();
        if tag.0 & ON_CHIP != 0 {
            for (index, descriptor) in (tag.0 & !ON_CHIP..).zip(into.chunks_exact_mut(DESCRIPTOR_BYTES as usize)) {
                let [address, length] = state.transmit.words(index);
                descriptor[..8].copy_from_slice(&address.to_ne_bytes());
                descriptor[8..].copy_from_slice(&length.to_ne_bytes());
            }
            return;
        }
        if let Some(&payload) = state.payloads.front().filter(|payload| payload.read == tag.0) {
            state.payloads.pop_front();
            state.payload_bytes -= payload.bytes;
        }
        drop(state);
        self.device.finish_read(tag, at, into);
    }
    /// The descriptor of a blank buffer is on the chip; nothing else is read by the word.
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        let mut state = self.state.borrow_mut();
        let Some(index) = state.receive.index(at) else {
            drop(state);
            return self.device.read_word(at, hint);
        };
        state.receive.use_up_to(index + 1);
        state.receive.words(index)[0]
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        self.device.write(at, from, hint);
    }
    /// A descriptor that is written back may wait for others. The RX tail is not written: these chips signal by descriptor.
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        if at == self.places.receive_tail {
            return;
        }
        let now = self.device.now().picoseconds();
        let mut state = self.state.borrow_mut();
        let Some(index) = state.receive.index(at) else {
            drop(state);
            return self.device.write_word(at, value, hint);
        };
        state.done.push_back((index, value));
        let due = state.pace.add(now, index);
        self.write_back(&mut state, due);
    }
    fn own_register(&self, at: Address) -> u64 {
        let mut state = self.state.borrow_mut();
        if at == self.places.receive_head {
            state.receive.here()
        } else if at == self.places.transmit_tail {
            let started = state.started;
            // The device half goes up to here before it asks again, and so breaks off the same packet.
            if std::mem::take(&mut state.broken) {
                self.start_payloads(&mut state);
            }
            started
        } else {
            drop(state);
            self.device.own_register(at)
        }
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
    fn cycle(&self) -> Time {
        self.device.cycle()
    }
}
