//! A fast-path thread (TAS, EuroSys 2019): it takes segments from its queues, appends their payload to receive buffers, tells
//! applications by context queues, takes what these say, and sends what they wrote.
//!
//! A burst goes through in steps, so that its misses overlap: headers, then buckets, then connections, as TAS parses, looks up and asks
//! for state and buffers in loops of their own. A connection belongs to one thread, to whose queues the NIC spreads its segments, so
//! that its line is nobody else's and needs no lock; TAS, which may move connections between threads, takes one.

use std::collections::VecDeque;

use conic_fabric::{Address, Core, Line, Time};
use conic_interface::burst::{HostQueue, Packet, fetch_ahead};
use conic_interface::fastforward::Receiver;

mod burst;
mod out;

use self::burst::{BURST, Burst};
use self::out::Port;
use crate::context::{Notice, Outbox, receive};
use crate::flow::{Flow, Timeouts};
use crate::segment::{HEADER_BYTES, MOST_PAYLOAD, NoSegment, Segment};
use crate::service::{Fixed, Service, read_parts, write_parts};

/// Cycles that a thread works for a segment, counted and scaled as [`conic_interface::work`] says: taking the headers apart, and the
/// hash. These are a guess from the code here; TAS's own work is not published in these parts.
const WORK_PARSE: u32 = 28;
/// The same for comparing a bucket's entries.
const WORK_BUCKET: u32 = 8;
/// The same for a connection's transition, and what is told of it. This, [`WORK_NOTICE`] and [`WORK_SEND`] were guessed as 30, 10 and 14
/// before there were round trips and a window of the network's; they have grown as the instructions of the transitions have, which were
/// counted: 163, 62 and 125 then, 293, 95 and 240 now, where each acknowledgement is of a segment that is timed.
const WORK_TAKE: u32 = 55;
/// The same for the headers of a segment.
const WORK_HEADER: u32 = 24;
/// The same for a notice of an application.
const WORK_NOTICE: u32 = 16;
/// The same for finding out what of a connection is to be sent.
const WORK_SEND: u32 = 28;

/// Lines of notices that are taken from an application at once.
const LINES_OF_NOTICES: usize = 8;

/// When the peer is told of what it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// At once, by an acknowledgement in the buffer that the data came in: TAS's way (its `fast_flows_packet` and `flow_tx_ack`).
    #[default]
    AtOnce,
    /// With the next data that is sent, or alone after so long; at once where data is missing or came twice.
    Delayed(Time),
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Segments of connections of this thread.
    pub segments: u64,
    /// Bytes that came in order.
    pub received_bytes: u64,
    /// Segments with data that were sent, those that were sent again too.
    pub sent: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Acknowledgements that were sent alone.
    pub acknowledgements: u64,
    /// How often what was under way was sent again because of time.
    pub timeouts: u64,
    /// Packets that are no segments.
    pub malformed: u64,
    /// Segments for a slow path.
    pub for_slow_path: u64,
    /// Segments of no connection, or of another thread's.
    pub unknown: u64,
    /// Segments that acknowledge what was never sent.
    pub absurd: u64,
    /// Notices of what an application cannot have read or written.
    pub refused: u64,
}

/// What a thread knows of a connection beside its lines.
#[derive(Clone, Copy, Debug, Default)]
struct Private {
    /// Which of this thread's queues its last segment came from.
    port: u32,
    is_ready: bool,
    /// When the peer is to be told of what it sent and was not told of, and whether that time has come: then even if there is no data
    /// to go with it.
    owed: Option<Time>,
    at_once: bool,
}

/// A fast-path thread.
#[derive(Debug)]
pub struct FastPath<Q: HostQueue> {
    ports: Vec<Port<Q>>,
    service: Service,
    number: u32,
    acknowledge: Acknowledge,
    timeouts: Timeouts,
    /// By application.
    inboxes: Vec<Receiver<Q::Core>>,
    outboxes: Vec<Outbox<Q::Core>>,
    /// By connection.
    private: Vec<Private>,
    /// Its connections.
    own: Vec<u32>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<u32>,
    /// Connections whose peers are to be told of something, and when, the earliest first.
    delayed: VecDeque<(Time, u32)>,
    /// When to look for what has been under way for too long: never later than something has.
    next_look: Time,
    counted: Counted,
    burst: Box<Burst>,
    notices: Vec<Notice>,
    bytes: Vec<u8>,
}

impl<Q: HostQueue<Core: Clone>> FastPath<Q> {
    /// The thread of this number on its queues, at least one; its connections are installed.
    ///
    /// # Panics
    ///
    /// If there is no queue.
    pub fn new(queues: Vec<Q>, service: &Service, number: u32, acknowledge: Acknowledge) -> FastPath<Q> {
        let core = queues.first().expect("a fast-path thread has a queue").core().clone();
        let shape = service.shape();
        let contexts: Vec<_> = (0..shape.applications).map(|of| service.context(number, of)).collect();
        let is_own = |flow: &u32| {
            let fixed = core.read_line(service.lines_of(*flow)[0]);
            fixed != Line::ZERO && Fixed::from_line(&fixed).thread == number
        };
        FastPath {
            ports: queues.into_iter().map(Port::new).collect(),
            number,
            acknowledge,
            timeouts: Timeouts::default(),
            inboxes: contexts.iter().map(|context| context.down.receiver(core.clone())).collect(),
            outboxes: contexts.iter().map(|of| Outbox::new(of.up.sender(core.clone()), shape.flows)).collect(),
            private: vec![Private::default(); shape.flows as usize],
            own: (0..shape.flows).filter(is_own).collect(),
            ready: VecDeque::new(),
            delayed: VecDeque::new(),
            next_look: Time::NEVER,
            counted: Counted::default(),
            burst: Box::default(),
            notices: Vec::new(),
            // A peer may send longer segments than this side does: as much as a receive buffer has room for.
            bytes: vec![
                0;
                usize::from(HEADER_BYTES + MOST_PAYLOAD).max(shape.buffers[0] as usize).next_multiple_of(64)
            ],
            service: service.clone(),
        }
    }

    /// The same, sending again what has been under way for as long as these say instead of [`Timeouts::default`].
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> FastPath<Q> {
        FastPath { timeouts, ..self }
    }

    /// What it did so far.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Takes a burst of each queue, what applications said, and sends what may be sent; returns how much there was to do, and spins
    /// where there was nothing.
    pub fn step(&mut self) -> usize {
        let now = self.core().now();
        let mut moved = 0;
        for number in 0..self.ports.len() {
            moved += self.ports[number].send();
            // Whose ring is full receives no more until it is not.
            if self.ports[number].is_empty() {
                moved += self.take_segments(number, now);
            }
        }
        moved += self.take_notices(now);
        self.look_at_clock(now);
        moved += self.send(now);
        moved += self.outboxes.iter_mut().map(Outbox::flush).sum::<usize>();
        if moved == 0 {
            let delayed = self.delayed.front().map_or(Time::NEVER, |&(due, _)| due);
            match self.next_look.min(delayed) {
                Time::NEVER => self.core().spin(),
                until => self.core().spin_until(until),
            }
        }
        moved
    }

    fn core(&self) -> &Q::Core {
        self.ports[0].queue().core()
    }

    fn take_segments(&mut self, port: usize, now: Time) -> usize {
        let count = self.ports[port].receive(&mut self.burst);
        if count == 0 {
            return 0;
        }
        self.burst.look_up(self.ports[port].queue().core(), &self.service, count);
        let (mut free, mut freed) = ([Address(0); BURST], 0);
        for place in 0..count {
            if !self.take_segment(port, place, now) {
                free[freed] = self.burst.packets[place].address();
                freed += 1;
            }
        }
        self.ports[port].free(&free[..freed]);
        count
    }

    /// Takes a segment; true if its buffer was used for an acknowledgement.
    fn take_segment(&mut self, port: usize, place: usize, now: Time) -> bool {
        let packet = self.burst.packets[place];
        let segment = match self.burst.segments[place] {
            Ok(segment) => segment,
            Err(NoSegment::Malformed) => {
                self.counted.malformed += 1;
                return false;
            }
            Err(NoSegment::ForSlowPath) => {
                self.counted.for_slow_path += 1;
                return false;
            }
        };
        let core = self.ports[port].queue().core();
        let Some((flow, fixed)) = self.burst.connection(core, &self.service, place, &segment) else {
            self.counted.unknown += 1;
            return false;
        };
        if fixed.thread != self.number {
            self.counted.unknown += 1;
            return false;
        }
        core.work(WORK_TAKE);
        let at = self.service.lines_of(flow)[1];
        let mut state = Flow::from_line(&core.read_line(at));
        let Some(taken) = state.take(&segment, now) else {
            self.counted.absurd += 1;
            return false;
        };
        if taken.bytes > 0 {
            let payload = &mut self.bytes[..taken.bytes as usize];
            core.read_bytes(packet.address() + u64::from(segment.payload_at) + u64::from(taken.from), payload);
            write_parts(core, self.service.receive_parts(flow, taken.at, taken.bytes), payload);
        }
        core.write_line(at, &state.to_line());
        // A window that closes has something wait for time that waited for a buffer before, or for its turn; and a round trip that was
        // measured may have what is under way wait for less.
        self.watch(&state, now);
        self.counted.segments += 1;
        self.counted.received_bytes += u64::from(taken.delivered);
        self.private[flow as usize].port = port as u32;
        let notice = Notice { flow, received: taken.delivered, transmit: taken.freed };
        self.outboxes[fixed.application as usize].add(notice);
        if taken.may_send {
            self.make_ready(flow);
        }
        if !taken.acknowledge {
            return false;
        }
        match self.acknowledge {
            Acknowledge::Delayed(time) if !taken.out_of_order => {
                self.owe(flow, now + time);
                false
            }
            _ => {
                self.counted.acknowledgements += 1;
                let header = header_of(&fixed, &state, state.highest, 0);
                self.ports[port].acknowledge_in(packet, &header);
                let private = &mut self.private[flow as usize];
                (private.owed, private.at_once) = (None, false);
                true
            }
        }
    }

    /// Has a connection's peer told of what it sent at this time, if it was not by then.
    fn owe(&mut self, flow: u32, due: Time) {
        let private = &mut self.private[flow as usize];
        if private.owed.is_none() {
            private.owed = Some(due);
            self.delayed.push_back((due, flow));
        }
    }

    fn make_ready(&mut self, flow: u32) {
        let private = &mut self.private[flow as usize];
        if !private.is_ready {
            private.is_ready = true;
            self.ready.push_back(flow);
        }
    }

    /// Has the clock looked at when what a connection waits for is due. What it waits for from now on is due no earlier than the shortest
    /// timeout is: mostly the clock is looked at by then anyway. What it waited for before was watched then.
    #[inline]
    fn watch(&mut self, state: &Flow, now: Time) {
        if self.next_look <= now + self.timeouts.shortest() {
            return;
        }
        if let Some(due) = state.due(now, &self.timeouts) {
            self.next_look = self.next_look.min(due);
        }
    }

    /// Takes what applications have read and written.
    fn take_notices(&mut self, now: Time) -> usize {
        let mut taken = 0;
        for application in 0..self.inboxes.len() {
            self.notices.clear();
            for _ in 0..LINES_OF_NOTICES {
                let notices = &mut self.notices;
                match receive(&mut self.inboxes[application], |notice| notices.push(notice)) {
                    0 => break,
                    count => taken += count,
                }
            }
            let flows = self.service.shape().flows;
            for notice in self.notices.iter().filter(|notice| notice.flow < flows) {
                let [fixed, changing] = self.service.lines_of(notice.flow);
                self.core().prefetch_read(fixed);
                self.core().prefetch_write(changing);
            }
            for index in 0..self.notices.len() {
                let notice = self.notices[index];
                if !self.take_notice(application as u32, notice, now) {
                    self.counted.refused += 1;
                }
            }
        }
        taken
    }

    /// Takes a notice; false, and nothing changes, where it is none of a connection of this thread and that application, or says what
    /// cannot be. Whoever wrote it may be another process.
    fn take_notice(&mut self, application: u32, notice: Notice, now: Time) -> bool {
        let shape = self.service.shape();
        if notice.flow >= shape.flows {
            return false;
        }
        let core = self.ports[0].queue().core();
        core.work(WORK_NOTICE);
        let [fixed, changing] = self.service.lines_of(notice.flow);
        let fixed = core.read_line(fixed);
        let is_of = |fixed: Fixed| (fixed.thread, fixed.application) == (self.number, application);
        if fixed == Line::ZERO || !is_of(Fixed::from_line(&fixed)) {
            return false;
        }
        let mut state = Flow::from_line(&core.read_line(changing));
        let room = state.receive_room;
        if !state.bump(notice.received, notice.transmit, shape.buffers, now) {
            return false;
        }
        core.write_line(changing, &state.to_line());
        self.watch(&state, now);
        // A peer that had next to no room is told that there is some: nobody else would.
        let little = shape.buffers[0] / 4;
        if room < little && state.receive_room >= little {
            let private = &mut self.private[notice.flow as usize];
            (private.owed, private.at_once) = (Some(now), true);
            self.make_ready(notice.flow);
        }
        if state.unsent > 0 {
            self.make_ready(notice.flow);
        }
        true
    }

    /// Has everything sent again that has been under way for too long, and peers told that have waited for long enough.
    fn look_at_clock(&mut self, now: Time) {
        while let Some(&(due, flow)) = self.delayed.front().filter(|&&(due, _)| due <= now) {
            self.delayed.pop_front();
            let private = &mut self.private[flow as usize];
            // What went with data meanwhile is owed no more, and what came behind that is owed later.
            if private.owed == Some(due) {
                private.at_once = true;
                self.make_ready(flow);
            }
        }
        if now < self.next_look {
            return;
        }
        self.next_look = Time::NEVER;
        let mut next = Time::NEVER;
        for index in 0..self.own.len() {
            let (flow, core) = (self.own[index], self.ports[0].queue().core());
            let at = self.service.lines_of(flow)[1];
            let mut state = Flow::from_line(&core.read_line(at));
            let Some(due) = state.due(now, &self.timeouts) else { continue };
            if due > now {
                next = next.min(due);
                continue;
            }
            state.run_out(now);
            core.write_line(at, &state.to_line());
            self.counted.timeouts += 1;
            // From when it is sent on it waits for time again.
            self.make_ready(flow);
        }
        self.next_look = next;
    }

    /// Sends a segment of each of some connections that have something to send, and returns how many.
    fn send(&mut self, now: Time) -> usize {
        let count = self.ready.len().min(BURST);
        for &flow in self.ready.iter().take(count) {
            let core = self.ports[0].queue().core();
            let state = Flow::from_line(&core.read_line(self.service.lines_of(flow)[1]));
            let bytes = state.sendable(MOST_PAYLOAD.into());
            let [(start, bytes), _] = self.service.transmit_parts(flow, state.transmit_at, bytes);
            if bytes > 0 {
                core.prefetch_read(start.line());
                fetch_ahead(core, &Packet::new(start.line(), bytes as u16));
            }
        }
        let sent = (0..count).filter(|_| self.send_next(now)).count();
        self.ports.iter_mut().for_each(|port| _ = port.send());
        sent
    }

    /// Sends a segment of the connection whose turn it is; false where it had nothing to send or there was no room.
    fn send_next(&mut self, now: Time) -> bool {
        let Some(flow) = self.ready.pop_front() else { return false };
        let private = self.private[flow as usize];
        let port = &mut self.ports[private.port as usize];
        let core = port.queue().core();
        core.work(WORK_SEND);
        let [fixed, changing] = self.service.lines_of(flow);
        let mut state = Flow::from_line(&core.read_line(changing));
        let bytes = state.sendable(MOST_PAYLOAD.into());
        if bytes == 0 && !(private.owed.is_some() && private.at_once) {
            self.private[flow as usize].is_ready = false;
            return false;
        }
        let Some(at) = port.blank(HEADER_BYTES + bytes as u16) else {
            self.ready.push_back(flow);
            return false;
        };
        let core = port.queue().core();
        let fixed = Fixed::from_line(&core.read_line(fixed));
        let send = state.next(bytes, now);
        let sequence = send.map_or(state.highest, |send| send.sequence);
        let header = header_of(&fixed, &state, sequence, bytes as u16);
        let frame = &mut self.bytes[..usize::from(HEADER_BYTES) + bytes as usize];
        frame[..usize::from(HEADER_BYTES)].copy_from_slice(&header.to_bytes()[..usize::from(HEADER_BYTES)]);
        if let Some(send) = send {
            let parts = self.service.transmit_parts(flow, send.at, send.bytes);
            read_parts(core, parts, &mut frame[usize::from(HEADER_BYTES)..]);
            core.write_line(changing, &state.to_line());
            self.counted.sent += 1;
            self.counted.sent_bytes += u64::from(bytes);
        } else {
            self.counted.acknowledgements += 1;
        }
        let length = frame.len() as u16;
        core.work(WORK_HEADER);
        // Whole lines: what is behind the frame in its last one is never sent.
        core.write_bytes(at, &self.bytes[..usize::from(length).next_multiple_of(64)]);
        port.put(Packet::new(at, length));
        let private = &mut self.private[flow as usize];
        (private.owed, private.at_once) = (None, false);
        private.is_ready = state.sendable(MOST_PAYLOAD.into()) > 0;
        if private.is_ready {
            self.ready.push_back(flow);
        }
        if send.is_some() {
            self.watch(&state, now);
        }
        true
    }
}

/// The headers of a connection's segment with so many bytes from this sequence number on.
#[inline]
fn header_of(fixed: &Fixed, state: &Flow, sequence: u32, payload_bytes: u16) -> Line {
    let segment = Segment {
        from: fixed.local,
        to: fixed.peer,
        sequence,
        acknowledged: state.received,
        window: state.advertised(),
        payload_at: HEADER_BYTES,
        payload_bytes,
    };
    segment.header()
}
