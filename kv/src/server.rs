//! A server: it receives requests on its queues and answers each in the buffer that it came in.
//!
//! What a get sends is not copied: a header, and the value from where it lies, as two segments of a packet (CC-NIC sections 2.1 and
//! 5.7). A burst goes through in steps, so that the misses of its lookups overlap: headers, then buckets, then slots, as
//! `rte_hash_lookup_bulk` does.

use conic_fabric::{Address, Core, Line, lines_of};
use conic_interface::burst::{HostQueue, Packet, Waiting, receive_whole};
use conic_interface::ccnic::Flags;

use crate::message::{Answer, HEADER_BYTES, Operation, Request, Status};
use crate::store::{Hashed, Refused, Slot, Store};

/// Requests that are received at once.
const BURST: usize = 32;
/// Segments after which the interface is asked which ones the NIC has read: seldom, as each look takes a line from the NIC.
const COMPLETED: usize = 4 * BURST;
/// Bytes of the smallest buffer that packets lie in, but for some of a ring's: a larger one is taken for more.
const LEAST_BUFFER_BYTES: u16 = 128;

/// Cycles that the server works for a request, counted and scaled as [`conic_interface::work`] says: taking the header apart, and the
/// hash.
const WORK_REQUEST: u32 = 28;
/// The same for comparing a bucket's signatures.
const WORK_BUCKET: u32 = 8;
/// The same for an answer's header with its checksum.
const WORK_ANSWER: u32 = 24;

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Values that were sent.
    pub gets: u64,
    /// Values that were put.
    pub sets: u64,
    /// Requests for keys that are not there.
    pub missing: u64,
    /// Requests for a value that another server was replacing.
    pub busy: u64,
    /// Values that do not fit where their keys' values lie.
    pub too_long: u64,
    /// Packets that are no requests; they were dropped.
    pub malformed: u64,
}

/// A burst on its way through the steps of a lookup.
#[derive(Debug)]
struct Burst {
    packets: [Packet; BURST],
    headers: [Line; BURST],
    requests: [Option<(Request, Hashed)>; BURST],
    likely: [Option<Slot>; BURST],
    /// Packets that are no requests.
    refused: [Address; BURST],
}

/// One queue and the answers that it had no room for.
#[derive(Debug)]
struct Port<Q> {
    queue: Q,
    answers: Waiting,
    /// Segments sent since the interface was asked which ones the NIC has read.
    retained: usize,
}

/// One thread's server of a store.
#[derive(Debug)]
pub struct Server<Q> {
    ports: Vec<Port<Q>>,
    store: Store,
    copied_up_to: u16,
    served: Served,
    burst: Box<Burst>,
    lines: Vec<Line>,
}

impl<Q: HostQueue> Server<Q> {
    /// A server of a store on some queues, one after the other. Values of up to `copied_up_to` bytes are copied behind their
    /// header, into a buffer of the interface, instead of being sent from where they lie: 0 for none.
    pub fn new(queues: Vec<Q>, store: Store, copied_up_to: u16) -> Server<Q> {
        let port = |queue| Port { queue, answers: Waiting::default(), retained: 0 };
        let burst = Burst {
            packets: [Packet::BLANK; BURST],
            headers: [Line::ZERO; BURST],
            requests: [None; BURST],
            likely: [None; BURST],
            refused: [Address(0); BURST],
        };
        Server {
            ports: queues.into_iter().map(port).collect(),
            store,
            copied_up_to,
            served: Served::default(),
            burst: Box::new(burst),
            lines: Vec::new(),
        }
    }

    /// What became of the requests so far.
    pub fn served(&self) -> Served {
        self.served
    }

    /// Serves a burst of each queue, and returns how many requests there were; spins where there was nothing to do.
    pub fn step(&mut self) -> usize {
        let (mut received, mut sent) = (0, 0);
        for number in 0..self.ports.len() {
            sent += self.ports[number].send();
            // Whose ring is full receives no more until it is not.
            if self.ports[number].answers.is_empty() {
                received += self.serve(number);
                sent += self.ports[number].send();
            }
        }
        if received + sent == 0
            && let Some(port) = self.ports.first()
        {
            port.queue.core().spin();
        }
        received
    }

    fn serve(&mut self, number: usize) -> usize {
        let Server { ports, store, copied_up_to, served, burst, lines } = self;
        let Port { queue, answers, .. } = &mut ports[number];
        let count = receive_whole(queue, &mut burst.packets);
        if count == 0 {
            return 0;
        }
        burst.look_up(queue.core(), store, count);
        let mut refused = 0;
        for place in 0..count {
            let packet = burst.packets[place];
            let Some((request, hashed)) = burst.requests[place] else {
                burst.refused[refused] = packet.address();
                refused += 1;
                continue;
            };
            let (header, likely) = (&burst.headers[place], burst.likely[place]);
            let slot = store.find(queue.core(), hashed, likely);
            let answering = Answering { queue: &mut *queue, store, packet, header, request, lines: &mut *lines };
            match (slot, request.operation) {
                (None, _) => {
                    served.missing += 1;
                    answers.push(answering.say(Status::Missing));
                }
                (Some(slot), Operation::Get) => answering.get(slot, *copied_up_to, served, answers),
                (Some(slot), Operation::Set) => answers.push(answering.set(slot, served)),
            }
        }
        if refused > 0 {
            served.malformed += refused as u64;
            queue.buf_free(&burst.refused[..refused]);
        }
        count
    }
}

impl<Q: HostQueue> Port<Q> {
    /// Sends what waits, and returns how many segments were taken.
    fn send(&mut self) -> usize {
        if self.answers.is_empty() {
            return 0;
        }
        let count = self.answers.send(&mut self.queue);
        self.retained += count;
        // Values are the store's whatever becomes of them: that they were read tells nothing, but makes room.
        if count == 0 || self.retained >= COMPLETED {
            self.retained = 0;
            while self.queue.completions(&mut [Packet::BLANK; BURST]) == BURST {}
        }
        count
    }
}

impl Burst {
    /// Reads the headers of a burst, then the buckets' lines, and asks for the slots'. Misses of one kind overlap; which bucket is
    /// read stands in the header, and which slot in the bucket, so that each kind waits for the one before.
    #[inline]
    fn look_up<C: Core>(&mut self, core: &C, store: &Store, count: usize) {
        let may_be_one = |packet: &Packet| packet.length() >= HEADER_BYTES && packet.address().is_line_aligned();
        for place in 0..count {
            if may_be_one(&self.packets[place]) {
                self.headers[place] = core.read_line(self.packets[place].address());
            }
        }
        for place in 0..count {
            let packet = self.packets[place];
            self.requests[place] = None;
            if !may_be_one(&packet) {
                continue;
            }
            core.depends_on(packet.address());
            core.work(WORK_REQUEST);
            if let Some(request) = Request::parse(&self.headers[place], packet.length()) {
                let hashed = store.hash(request.key);
                core.prefetch_read(store.first_bucket(hashed));
                self.requests[place] = Some((request, hashed));
            }
        }
        for place in 0..count {
            self.likely[place] = None;
            if let Some((_, hashed)) = self.requests[place] {
                core.work(WORK_BUCKET);
                self.likely[place] = store.likely(core, hashed);
                if let Some(slot) = self.likely[place] {
                    core.prefetch_read(slot.line());
                }
            }
        }
    }
}

/// A request that is being answered.
struct Answering<'a, Q> {
    queue: &'a mut Q,
    store: &'a Store,
    packet: Packet,
    header: &'a Line,
    request: Request,
    lines: &'a mut Vec<Line>,
}

impl<Q: HostQueue> Answering<'_, Q> {
    /// Writes a header over the request's.
    fn write_header(&self, status: Status, value_bytes: u16, checksum: u32) {
        let Request { key, number, .. } = self.request;
        let answer = Answer { status, key, value_bytes, number, checksum };
        self.queue.core().work(WORK_ANSWER);
        self.queue.core().write_line(self.packet.address(), &answer.header(self.header));
    }

    /// An answer without a value.
    fn say(&self, status: Status) -> Packet {
        self.write_header(status, 0, 0);
        Packet::new(self.packet.address(), HEADER_BYTES)
    }

    fn get(mut self, slot: Slot, copied_up_to: u16, served: &mut Served, answers: &mut Waiting) {
        let value = match self.store.value(self.queue.core(), slot) {
            Ok(value) => value,
            Err(_) => {
                served.busy += 1;
                return answers.push(self.say(Status::Busy));
            }
        };
        served.gets += 1;
        if value.bytes <= copied_up_to && self.make_room(value.bytes) {
            self.lines.resize(lines_of(value.bytes.into()) as usize, Line::ZERO);
            self.queue.core().read_lines(value.at, self.lines);
            self.queue.core().write_lines(self.packet.address().lines(1), self.lines);
            self.write_header(Status::Done, value.bytes, value.checksum);
            return answers.push(Packet::new(self.packet.address(), HEADER_BYTES + value.bytes));
        }
        self.write_header(Status::Done, value.bytes, value.checksum);
        let header = Packet::new(self.packet.address(), HEADER_BYTES);
        if value.bytes == 0 {
            return answers.push(header);
        }
        answers.push(header.with(Flags::NEXT));
        answers.push(Packet::new(value.at, value.bytes).with(Flags::RETAIN));
    }

    /// Has a buffer for a header and so many bytes behind it; false, and the request's is as it was, if there is none.
    fn make_room(&mut self, bytes: u16) -> bool {
        if HEADER_BYTES + bytes <= LEAST_BUFFER_BYTES
            && self.queue.bytes_to_end(self.packet.address()) >= LEAST_BUFFER_BYTES.into()
        {
            return true;
        }
        let mut larger = [Address(0)];
        if self.queue.buf_alloc(u64::from(HEADER_BYTES + bytes), &mut larger) == 0 {
            return false;
        }
        self.queue.buf_free(&[self.packet.address()]);
        self.packet = Packet::new(larger[0], HEADER_BYTES);
        true
    }

    fn set(self, slot: Slot, served: &mut Served) -> Packet {
        let Request { value_bytes: bytes, checksum, .. } = self.request;
        let core = self.queue.core();
        let put = self.store.replace(core, slot, (bytes, checksum), |to| {
            self.lines.resize(lines_of(bytes.into()) as usize, Line::ZERO);
            core.read_lines(self.packet.address().lines(1), self.lines);
            // What is behind the value in its last line is written with it, and never sent.
            core.write_lines(to, self.lines);
        });
        let (status, count) = match put {
            Ok(()) => (Status::Done, &mut served.sets),
            Err(Refused::Busy) => (Status::Busy, &mut served.busy),
            Err(Refused::TooLong) => (Status::TooLong, &mut served.too_long),
        };
        *count += 1;
        self.write_header(status, 0, 0);
        Packet::new(self.packet.address(), HEADER_BYTES)
    }
}
