//! The paper's loopback workload (section 5.1): the whole payload written, time-stamped, sent, received and read.

use conic_fabric::{Address, Core, LINE_BYTES, Line, Time, lines_of};
use conic_interface::burst::{HostQueue, Packet, fetch_ahead};
use conic_interface::ring;

use crate::account::pattern;
use crate::pace::Pace;
use crate::{Account, Traffic};

/// Cycles that the application works for a packet, besides writing or reading its lines, which are one instruction each: its
/// pattern, its sequence number, its place in the account. Scaled as [`conic_interface::work`] says.
pub(crate) const WORK_A_PACKET: u32 = 12;

/// Most packets in one burst.
pub(crate) const MOST: usize = 256;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Bytes of a packet, at least 16: a time stamp and a sequence number.
    pub packet_size: u16,
    /// Packets in flight at most.
    pub window: u64,
    /// Packets sent, and received, in one call at most; up to 256.
    pub transmit_burst: usize,
    /// Packets received in one call at most; up to 256.
    pub receive_burst: usize,
    /// The lines of the packet after the one being read are asked for by instructions.
    pub fetch_ahead: bool,
}

impl Workload {
    /// Packets that are sent and received in bursts of one size, and fetched ahead.
    pub fn of_bursts(packet_size: u16, window: u64, burst: usize) -> Workload {
        Workload { packet_size, window, transmit_burst: burst, receive_burst: burst, fetch_ahead: true }
    }

    /// The ring with head and tail registers that carries it: buffers for both rings and for what the application holds.
    ///
    /// # Errors
    ///
    /// If there is no such ring.
    pub fn ring(&self, descriptors: u64) -> Result<ring::Shape, ring::ShapeError> {
        let shape = ring::Shape::for_packets(u64::from(self.packet_size))?;
        Ok(ring::Shape { descriptors, buffers: descriptors.saturating_mul(3), ..shape })
    }

    /// The nearest one that can be.
    pub(crate) fn within_limits(self) -> Workload {
        Workload {
            packet_size: self.packet_size.max(16),
            transmit_burst: self.transmit_burst.clamp(1, MOST),
            receive_burst: self.receive_burst.clamp(1, MOST),
            window: self.window.max(1),
            ..self
        }
    }
}

/// An application that keeps `window` packets in flight: it sends while fewer are, and checks each one that comes back:
/// its sequence number (order, loss, duplicates) and every word of its payload.
///
/// A closed loop: a slow answer delays the next packet, as it would for a program that waits for answers. Latency is from
/// just before a burst is written to just after the burst with its answer is received. [`Traffic::pace`] makes an open
/// loop of it, whose latency is from when a packet was due; [`Account::latency_from_writing`] has the other one too.
///
/// With `FRAMED` an Ethernet header stands before the time stamp ([`ClosedLoop::framed`]), so that a bridge passes packets on.
#[derive(Debug)]
pub struct ClosedLoop<Q, const FRAMED: bool = false> {
    queue: Q,
    workload: Workload,
    /// What stands before the time stamp where it is framed.
    header: Header,
    /// The bits of a packet's last line that are the packet's: what lies behind them need not travel.
    checked: Line,
    account: Account,
    /// Packets that were written and did not fit into the ring.
    waiting: [Packet; MOST],
    waiting_count: usize,
    pace: Option<Pace>,
    /// Sends no fewer than a whole burst at once.
    whole: bool,
    /// Room for a burst; kept, because clearing it anew costs more than a packet.
    burst: Box<Burst>,
}

/// A burst that was received, or is written.
#[derive(Debug)]
struct Burst {
    packets: [Packet; MOST],
    buffers: [Address; MOST],
    /// What was read in each: its time stamp and its sequence number.
    seen: [[u64; 2]; MOST],
}

/// The words before a packet's time stamp: of those that are sent, and of those that come back.
#[derive(Clone, Copy, Debug)]
struct Header {
    sent: [u64; 2],
    received: [u64; 2],
}

/// The first words of a frame: two addresses, the EtherType for local experiments (IEEE 802), and two bytes of zeroes.
pub fn frame_header(to: [u8; 6], from: [u8; 6]) -> [u64; 2] {
    let [a, b, c, d, e, f] = to;
    let [g, h, i, j, k, l] = from;
    [[a, b, c, d, e, f, g, h], [i, j, k, l, 0x88, 0xb5, 0, 0]].map(u64::from_ne_bytes)
}

impl<Q: HostQueue> ClosedLoop<Q> {
    /// An application on a queue.
    pub fn new(queue: Q, workload: Workload) -> ClosedLoop<Q> {
        ClosedLoop::with_header(queue, workload, Header { sent: [0; 2], received: [0; 2] })
    }
}

impl<Q: HostQueue> ClosedLoop<Q, true> {
    /// The same with addresses of its own and of whoever sends everything back with the two swapped. A packet has 32 bytes at least.
    pub fn framed(queue: Q, workload: Workload, own: [u8; 6], other: [u8; 6]) -> ClosedLoop<Q, true> {
        let workload = Workload { packet_size: workload.packet_size.max(32), ..workload };
        let header = Header { sent: frame_header(other, own), received: frame_header(own, other) };
        ClosedLoop::with_header(queue, workload, header)
    }
}

impl<Q: HostQueue, const FRAMED: bool> ClosedLoop<Q, FRAMED> {
    fn with_header(queue: Q, workload: Workload, header: Header) -> ClosedLoop<Q, FRAMED> {
        let workload = workload.within_limits();
        ClosedLoop {
            queue,
            workload,
            header,
            checked: WHOLE.beginning((u64::from(workload.packet_size) + 63) % 64 + 1),
            account: Account::default(),
            waiting: [Packet::BLANK; MOST],
            waiting_count: 0,
            pace: None,
            whole: false,
            burst: Box::new(Burst {
                packets: [Packet::BLANK; MOST],
                buffers: [Address(0); MOST],
                seen: [[0; 2]; MOST],
            }),
        }
    }

    /// The queue.
    pub fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// The same, sending whole transmit bursts alone: it waits until the window has room for one. An open loop sends what is due.
    pub fn of_whole_bursts(self) -> ClosedLoop<Q, FRAMED> {
        ClosedLoop { whole: true, ..self }
    }

    /// The queue, given back; what is in flight in it is whoever's takes it.
    pub fn into_queue(self) -> Q {
        self.queue
    }

    /// What became of its packets.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The same, to forget a warm-up's latencies.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Sends what the window allows, receives what has come, and returns how many came.
    #[inline(always)]
    pub fn step(&mut self) -> usize {
        let sent = self.send();
        let received = self.receive();
        if sent + received == 0 {
            match self.pace {
                None => self.queue.core().spin(),
                Some(pace) => {
                    self.queue.core().spin_until(Time::from_picoseconds(pace.due(self.account.sent)));
                }
            }
        }
        received
    }

    /// No packet becomes due any more; one that was keeps its time, however late it is sent.
    pub fn end_pace(&mut self) {
        let now = self.queue.core().now().picoseconds();
        if let Some(pace) = &mut self.pace {
            pace.end(now);
        }
    }

    /// Packets that were due and have not come back. In a closed loop none is due.
    pub fn behind(&self) -> u64 {
        if self.pace.is_some() { self.due() as u64 + self.account.in_flight() } else { 0 }
    }

    /// Receives what is still in flight, without sending more, until nothing is or `deadline` has passed; what has not
    /// come by then is lost.
    pub fn drain(&mut self, deadline: Time) {
        let keep = self.workload.window;
        self.workload.window = 0;
        while self.waiting_count > 0 || self.account.in_flight() > 0 {
            if self.step() == 0 && self.account.gives_up(self.queue.core().now(), deadline) {
                break;
            }
        }
        self.workload.window = keep;
    }

    #[inline(always)]
    fn send(&mut self) -> usize {
        if self.waiting_count == 0 {
            let room = self.workload.window.saturating_sub(self.account.in_flight()) as usize;
            let count = room.min(self.workload.transmit_burst).min(self.due());
            if count < self.least() {
                return 0;
            }
            self.write(count);
        }
        let sent = self.queue.tx_burst(&self.waiting[..self.waiting_count]);
        if sent < self.waiting_count {
            self.waiting.copy_within(sent..self.waiting_count, 0);
        }
        self.waiting_count -= sent;
        sent
    }

    /// The fewest packets that are sent at once. Where receive bursts are the smaller ones, each makes room for as few packets as
    /// itself: a closed loop then waits until a whole transmit burst fits, or one size would set both.
    #[inline(always)]
    fn least(&self) -> usize {
        let Workload { transmit_burst, receive_burst, window, .. } = self.workload;
        let whole = (self.whole || receive_burst < transmit_burst) && self.pace.is_none();
        if whole { transmit_burst.min(window as usize).max(1) } else { 1 }
    }

    /// How many packets are due and not sent.
    #[inline(always)]
    fn due(&self) -> usize {
        let Some(pace) = self.pace else { return usize::MAX };
        pace.waiting(self.account.sent, self.queue.core().now().picoseconds())
    }

    #[inline(always)]
    fn write(&mut self, count: usize) {
        let size = self.workload.packet_size;
        let buffers = &mut self.burst.buffers;
        let count = self.queue.buf_alloc(u64::from(size), &mut buffers[..count]);
        let core = self.queue.core();
        let now = core.now().picoseconds();
        let lines = lines_of(u64::from(size));
        let mut sequence = self.account.sent;
        for (space, &at) in self.waiting.iter_mut().zip(&buffers[..count]) {
            core.work(WORK_A_PACKET);
            let word = pattern(sequence, now);
            core.write_line(at, &Line(first_line(self.header.sent, now, sequence, word, FRAMED)));
            for index in 1..lines {
                core.write_line(at.lines(index), &Line([word; 8]));
            }
            *space = Packet::new(at, size);
            sequence += 1;
        }
        self.account.sent = sequence;
        self.waiting_count = count;
    }

    #[inline(always)]
    fn receive(&mut self) -> usize {
        let count = self.queue.rx_burst(&mut self.burst.packets[..self.workload.receive_burst]);
        if count == 0 {
            return 0;
        }
        let now = self.queue.core().now().picoseconds();
        let differs = self.read_burst(count);
        self.enter_burst(now, count);
        if differs {
            self.count_spoilt(count);
        }
        self.queue.buf_free(&self.burst.buffers[..count]);
        count
    }

    /// Reads a burst whole, and says whether some packet had another payload or length than it should: a burst is judged once. Nothing
    /// else is done here, so that what is summed up stays in registers.
    #[inline(always)]
    fn read_burst(&mut self, count: usize) -> bool {
        let ClosedLoop { queue, workload, header, checked, burst, .. } = self;
        let Burst { packets, buffers, seen } = &mut **burst;
        let core = queue.core();
        // One line is asked for by the interface.
        let fetches = workload.fetch_ahead && workload.packet_size > LINE_BYTES as u16;
        let (mut difference, mut lengths) = (Line::ZERO, 0);
        let packets = &packets[..count];
        for (index, ((packet, at), seen)) in packets.iter().zip(buffers).zip(seen).enumerate() {
            if fetches && let Some(next) = packets.get(index + 1) {
                fetch_ahead(core, next);
            }
            core.work(WORK_A_PACKET);
            *seen = read::<_, FRAMED>(core, packet, workload.packet_size, header, checked, &mut difference);
            lengths |= packet.length() ^ workload.packet_size;
            *at = packet.address();
        }
        lengths != 0 || is_any(&difference)
    }

    /// Enters a burst that was read, and its latencies: those of packets that were written at once together.
    #[inline(always)]
    fn enter_burst(&mut self, now: u64, count: usize) {
        let [first, _] = self.burst.seen[0];
        let expected = self.account.expected();
        let unlike = self.burst.seen[..count]
            .iter()
            .zip(expected..)
            .fold(0, |sum, ([stamp, sequence], expected)| sum | (stamp ^ first) | (sequence ^ expected));
        // More than are in flight are not all of this loop's: each is looked at.
        if unlike == 0 && self.pace.is_none() && count as u64 <= self.account.in_flight() {
            self.account.enter_expected(count as u64);
            self.account.took(first, now, count as u64);
        } else {
            self.enter_each(now, count);
        }
    }

    #[inline(never)]
    fn enter_each(&mut self, now: u64, count: usize) {
        let (mut same_stamp, mut stamp) = (0, 0);
        for index in 0..count {
            let [written, sequence] = self.burst.seen[index];
            self.account.enter(sequence);
            if written != stamp {
                self.took(stamp, now, same_stamp);
                (stamp, same_stamp) = (written, 0);
            }
            same_stamp += 1;
            if let Some(pace) = self.pace {
                self.account.took(pace.due_of(sequence, written), now, 1);
            }
        }
        self.took(stamp, now, same_stamp);
    }

    /// Enters latencies of packets that were written at once.
    #[inline(always)]
    fn took(&mut self, written: u64, now: u64, count: u64) {
        match self.pace {
            None => self.account.took(written, now, count),
            Some(_) => self.account.took_from_writing(written, now, count),
        }
    }

    /// Looks again at a burst in which some payload, or length, was wrong, packet by packet.
    #[cold]
    fn count_spoilt(&mut self, count: usize) {
        let size = self.workload.packet_size;
        for packet in &self.burst.packets[..count] {
            if packet.length() != size {
                self.account.spoilt();
            }
            let mut difference = Line::ZERO;
            read::<_, FRAMED>(self.queue.core(), packet, size, &self.header, &self.checked, &mut difference);
            if is_any(&difference) {
                self.account.spoilt();
            }
        }
    }
}

/// Reads a packet whole and returns its time stamp and sequence number. What its payload has other than it should is added to
/// `difference`, lane by lane.
///
/// A line stays in registers. In memory, to have its last bytes cut off, it would be loaded in other pieces than it was stored in,
/// which waits for every store before it, those to lines on their way included: 5 instead of 15 million packets of 1500 bytes a
/// second on a processor that stores a line in halves.
#[inline(always)]
fn read<C: Core, const FRAMED: bool>(
    core: &C,
    packet: &Packet,
    size: u16,
    header: &Header,
    checked: &Line,
    difference: &mut Line,
) -> [u64; 2] {
    let first = core.read_line(packet.address());
    let (stamp, sequence) = if FRAMED { (first.0[2], first.0[3]) } else { (first.0[0], first.0[1]) };
    let word = pattern(sequence, stamp);
    let expected = first_line(header.received, stamp, sequence, word, FRAMED);
    let last = lines_of(u64::from(size)) - 1;
    if last == 0 {
        add_difference(difference, &first, expected, checked);
        return [stamp, sequence];
    }
    add_difference(difference, &first, expected, &WHOLE);
    for index in 1..last {
        add_difference(difference, &core.read_line(packet.address().lines(index)), [word; 8], &WHOLE);
    }
    add_difference(difference, &core.read_line(packet.address().lines(last)), [word; 8], checked);
    [stamp, sequence]
}

/// The words of a packet's first line.
#[inline(always)]
fn first_line([to, from]: [u64; 2], stamp: u64, sequence: u64, word: u64, framed: bool) -> [u64; 8] {
    if framed {
        return [to, from, stamp, sequence, word, word, word, word];
    }
    [stamp, sequence, word, word, word, word, word, word]
}

impl<Q: HostQueue, const FRAMED: bool> Traffic for ClosedLoop<Q, FRAMED> {
    #[inline(always)]
    fn step(&mut self) -> usize {
        ClosedLoop::step(self)
    }
    fn account(&self) -> &Account {
        ClosedLoop::account(self)
    }
    fn account_mut(&mut self) -> &mut Account {
        ClosedLoop::account_mut(self)
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.account.counts_from_due();
        self.pace = Some(Pace::new(start, self.account.sent, interval));
    }
}

/// All bits of a line.
const WHOLE: Line = Line([u64::MAX; 8]);

/// Whether any bit of a line is set: word by word, so that a line that was put together of words is not loaded as one.
#[inline(always)]
fn is_any(line: &Line) -> bool {
    line.0.iter().fold(0, |sum, word| sum | word) != 0
}

/// Adds what a line has other than it should in the bits that are checked.
#[inline(always)]
fn add_difference(difference: &mut Line, line: &Line, expected: [u64; 8], checked: &Line) {
    for (((sum, word), expected), checked) in difference.0.iter_mut().zip(line.0).zip(expected).zip(checked.0) {
        *sum |= (word ^ expected) & checked;
    }
}
