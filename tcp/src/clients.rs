//! Clients: the far end of connections, with so many requests under way on each, as TAS's `testclient` has them. They check that every
//! byte of every answer is right and in order.
//!
//! A request is 64 bytes that say its connection and its number, and the answer is to be the same. A client's end of a connection is
//! a [`Flow`] like the service's, over buffers of its own: what is checked of the protocol by both sides having it alike, the tests of
//! `flow.rs` check against segments made by hand.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use conic_fabric::Time;
use conic_load::{Account, FarEnd, Pace};

use crate::REQUEST_BYTES;
use crate::flow::{Flow, Timeouts};
use crate::segment::{End, HEADER_BYTES, MOST_PAYLOAD, Segment};
use crate::service::Connection;

/// Frames that are made at once.
const BURST: usize = 32;
/// Bytes of a client's buffers.
const BUFFER_BYTES: u32 = 1 << 15;

/// What clients ask of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests under way of each connection, 1 to 512.
    pub window: u32,
    /// Requests of a segment at most, 1 to 22: one where each is written by itself and sent at once.
    pub requests_a_segment: u32,
}

/// One connection's far end.
#[derive(Debug)]
struct Client {
    local: End,
    peer: End,
    /// What its requests are known by.
    mark: u64,
    flow: Flow,
    receive: Vec<u8>,
    transmit: Vec<u8>,
    /// Where the next answer begins in `receive`, and the next request in `transmit`.
    read_at: u32,
    write_at: u32,
    asked: u64,
    answered: u64,
    /// When those that were asked and not answered were made, in picoseconds.
    made: VecDeque<u64>,
    owes: bool,
    /// Acknowledgements that are to say the same, for data behind a gap or data that came twice.
    repeats: u32,
    is_ready: bool,
}

/// The clients behind one queue of the NIC's.
#[derive(Debug)]
pub struct Clients {
    clients: Vec<Client>,
    by_end: BTreeMap<(u32, u16), usize>,
    load: Load,
    timeouts: Timeouts,
    account: Account,
    /// Clients that may have something to send, in turn.
    ready: VecDeque<usize>,
    next_look: Time,
    frames: Vec<Vec<u8>>,
    pace: Option<Pace>,
}

impl Clients {
    /// The n-th connection of a service of one application, up to 64,512 of them, with a client's port of its own and sequence numbers that
    /// are spread over all there are; `thread` is the fast-path thread that has it.
    pub fn connection(number: u32, thread: u32) -> Connection {
        Connection {
            local: End { station: [2, 0, 0, 0, 0, 1], address: 0x0a00_0001, port: 7 },
            peer: End { station: [2, 0, 0, 0, 0, 2], address: 0x0a00_0002, port: 1024 + number as u16 },
            received: number.wrapping_mul(0x9e37_79b9),
            sent: number.wrapping_mul(0x85eb_ca6b),
            window: Clients::window_bytes(),
            thread,
            application: 0,
        }
    }

    /// The peers of these connections, which the service has as they are here, with room for so many bytes on each. Requests are drawn
    /// with this seed.
    pub fn new(connections: &[Connection], room: u32, load: Load, seed: u64) -> Clients {
        let load = Load {
            window: load.window.clamp(1, BUFFER_BYTES / REQUEST_BYTES),
            requests_a_segment: load.requests_a_segment.clamp(1, u32::from(MOST_PAYLOAD) / REQUEST_BYTES),
        };
        let client = |connection: &Connection| Client {
            local: connection.peer,
            peer: connection.local,
            mark: seed.rotate_left(32) ^ u64::from(connection.peer.address) << 16 ^ u64::from(connection.peer.port),
            flow: Flow::established(connection.sent, connection.received, BUFFER_BYTES, room),
            receive: vec![0; BUFFER_BYTES as usize],
            transmit: vec![0; BUFFER_BYTES as usize],
            read_at: 0,
            write_at: 0,
            asked: 0,
            answered: 0,
            made: VecDeque::new(),
            owes: false,
            repeats: 0,
            is_ready: true,
        };
        let clients: Vec<Client> = connections.iter().map(client).collect();
        let end = |(index, client): (usize, &Client)| ((client.local.address, client.local.port), index);
        Clients {
            by_end: clients.iter().enumerate().map(end).collect(),
            ready: (0..clients.len()).collect(),
            clients,
            load,
            timeouts: Timeouts::default(),
            account: Account::default(),
            next_look: Time::NEVER,
            frames: Vec::new(),
            pace: None,
        }
    }

    /// The same, sending again what has been under way for as long as these say instead of [`Timeouts::default`].
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Clients {
        Clients { timeouts, ..self }
    }

    /// The window that a client's end has for what is sent to it, as [`Connection::window`] says it.
    pub fn window_bytes() -> u16 {
        BUFFER_BYTES as u16
    }

    /// How many answers each connection had.
    pub fn answered(&self) -> Vec<u64> {
        self.clients.iter().map(|client| client.answered).collect()
    }

    fn make_ready(&mut self, index: usize) {
        if !std::mem::replace(&mut self.clients[index].is_ready, true) {
            self.ready.push_back(index);
        }
    }

    /// Has everything sent again that has been under way for too long.
    fn look_at_clock(&mut self, now: Time) {
        if now < self.next_look {
            return;
        }
        self.next_look = Time::NEVER;
        for index in 0..self.clients.len() {
            let flow = &mut self.clients[index].flow;
            match flow.due(now, &self.timeouts) {
                Some(due) if due <= now => {
                    flow.run_out(now);
                    self.make_ready(index);
                }
                due => self.next_look = self.next_look.min(due.unwrap_or(Time::NEVER)),
            }
        }
    }

    /// Has the clock looked at when what a client waits for is due.
    fn watch(&mut self, index: usize, now: Time) {
        let due = self.clients[index].flow.due(now, &self.timeouts);
        self.next_look = self.next_look.min(due.unwrap_or(Time::NEVER));
    }

    /// Makes requests of a client as far as its window, and the pace, let it.
    fn ask(&mut self, index: usize, now: Time) {
        loop {
            let due = self.pace.is_none_or(|pace| pace.waiting(self.account.sent(), now.picoseconds()) > 0);
            let client = &mut self.clients[index];
            if !due || client.made.len() >= self.load.window as usize {
                return;
            }
            if !client.flow.bump(0, REQUEST_BYTES, [BUFFER_BYTES; 2], now) {
                return;
            }
            let request = request(client.mark, client.asked);
            let at = (client.write_at % BUFFER_BYTES) as usize;
            client.transmit[at..at + REQUEST_BYTES as usize].copy_from_slice(&request);
            client.write_at = client.write_at.wrapping_add(REQUEST_BYTES);
            client.asked += 1;
            let sequence = self.account.send();
            client.made.push_back(self.pace.map_or(now.picoseconds(), |pace| pace.due(sequence)));
        }
    }

    /// Makes one frame of a client, if it has one to send.
    fn make(&mut self, index: usize, now: Time) -> Option<Vec<u8>> {
        self.ask(index, now);
        // Against a closed window what was asked waits for time, and what is under way may wait for less than it did. Who has sent
        // something has a turn again, and comes by here.
        self.watch(index, now);
        let most = self.load.requests_a_segment * REQUEST_BYTES;
        let client = &mut self.clients[index];
        if client.repeats > 0 {
            client.repeats -= 1;
            return Some(client.frame(client.flow.highest, 0, 0));
        }
        if let Some(send) = client.flow.next(most, now) {
            client.owes = false;
            return Some(client.frame(send.sequence, send.at, send.bytes));
        }
        if std::mem::take(&mut client.owes) {
            return Some(client.frame(client.flow.highest, 0, 0));
        }
        None
    }
}

impl Client {
    /// A frame with so many bytes of the transmit buffer.
    fn frame(&self, sequence: u32, at: u32, bytes: u32) -> Vec<u8> {
        let (before, behind) = around_the_end(at, bytes);
        let payload = [&self.transmit[before], &self.transmit[behind]].concat();
        let segment = Segment {
            from: self.local,
            to: self.peer,
            sequence,
            acknowledged: self.flow.received,
            window: self.flow.advertised(),
            payload_at: HEADER_BYTES,
            payload_bytes: bytes as u16,
        };
        segment.frame(&payload)
    }

    /// Takes a segment; none where it acknowledges what was never sent.
    fn take(&mut self, segment: &Segment, payload: &[u8], now: Time) -> Option<()> {
        let taken = self.flow.take(segment, now)?;
        // At once and not byte by byte: what is compared soon would wait for each of them to have reached the cache.
        let (before, behind) = around_the_end(taken.at, taken.bytes);
        let (first, rest) = payload[taken.from as usize..][..taken.bytes as usize].split_at(before.len());
        self.receive[before].copy_from_slice(first);
        self.receive[behind].copy_from_slice(rest);
        self.owes |= taken.acknowledge;
        self.repeats += u32::from(taken.out_of_order);
        Some(())
    }

    /// Takes the next answer, if it is whole: when its request was made, and whether it is what was asked for.
    fn answer(&mut self, now: Time) -> Option<(u64, bool)> {
        if self.flow.receive_at.wrapping_sub(self.read_at) < REQUEST_BYTES {
            return None;
        }
        let at = (self.read_at % BUFFER_BYTES) as usize;
        let right = self.receive[at..at + REQUEST_BYTES as usize] == request(self.mark, self.answered);
        self.read_at = self.read_at.wrapping_add(REQUEST_BYTES);
        let read = self.flow.bump(REQUEST_BYTES, 0, [BUFFER_BYTES; 2], now);
        debug_assert!(read, "what came may be read");
        // An answer that nobody asked for is wrong, whatever it says.
        let made = self.made.pop_front();
        self.answered += u64::from(made.is_some());
        Some((made.unwrap_or(0), right && made.is_some()))
    }
}

/// Where so many bytes from a place on lie in a buffer that goes round: up to its end, and from its beginning.
fn around_the_end(at: u32, bytes: u32) -> (Range<usize>, Range<usize>) {
    let begins = at % BUFFER_BYTES;
    let before = bytes.min(BUFFER_BYTES - begins);
    (begins as usize..(begins + before) as usize, 0..(bytes - before) as usize)
}

/// The bytes of a connection's request.
fn request(mark: u64, number: u64) -> [u8; REQUEST_BYTES as usize] {
    let mut bytes = [0; REQUEST_BYTES as usize];
    for (index, word) in (0..).zip(bytes.chunks_exact_mut(8)) {
        let mixed = (mark ^ number << 3 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
    }
    bytes
}

impl FarEnd for Clients {
    fn packets(&mut self, now: Time) -> &[Vec<u8>] {
        if self.frames.is_empty() {
            self.look_at_clock(now);
            if self.pace.is_some() {
                (0..self.clients.len()).for_each(|index| self.make_ready(index));
            }
            while self.frames.len() < BURST
                && let Some(index) = self.ready.pop_front()
            {
                self.clients[index].is_ready = false;
                if let Some(frame) = self.make(index, now) {
                    self.frames.push(frame);
                    self.make_ready(index);
                }
            }
        }
        &self.frames
    }
    fn delivered(&mut self, count: usize) {
        self.frames.drain(..count);
    }
    fn came_back(&mut self, frame: &[u8], now: Time) {
        let Ok(segment) = Segment::of_frame(frame) else { return self.account.spoilt() };
        let Some(&index) = self.by_end.get(&(segment.to.address, segment.to.port)) else {
            return self.account.spoilt();
        };
        let client = &mut self.clients[index];
        let payload = &frame[segment.payload_at.into()..][..segment.payload_bytes.into()];
        let is_peer = (segment.from, segment.to) == (client.peer, client.local);
        if !is_peer || client.take(&segment, payload, now).is_none() {
            return self.account.spoilt();
        }
        while let Some((made, right)) = self.clients[index].answer(now) {
            if right {
                self.account.enter(self.account.expected());
                self.account.took(made, now.picoseconds(), 1);
            } else {
                self.account.spoilt();
            }
        }
        self.make_ready(index);
    }
    fn next_due(&self) -> Time {
        let paced = self.pace.map_or(Time::NEVER, |pace| Time::from_picoseconds(pace.due(self.account.sent())));
        self.next_look.min(paced)
    }
    fn burst(&self) -> usize {
        BURST
    }
    fn most_bytes(&self) -> usize {
        (HEADER_BYTES + MOST_PAYLOAD).into()
    }
    fn account(&self) -> &Account {
        &self.account
    }
    fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.pace = Some(Pace::new(start, self.account.sent(), interval));
    }
}
