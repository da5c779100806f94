//! The loopback of an application whose data are its own: it copies each packet into a buffer of the interface to send it, and
//! out of one when it has come back, as a socket or a file does. Where its core has an engine for that, the engine copies
//! and the application goes on; it looks at the first line of what comes back.

use std::collections::VecDeque;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time, lines_of};
use conic_interface::burst::{HostQueue, Packet, fetch_ahead};

use crate::account::pattern;
use crate::closed_loop::{MOST, WORK_A_PACKET};
use crate::pace::Pace;
use crate::{Account, Traffic, Workload};

/// Words of an object before its payload: a time stamp and a sequence number.
const HEADER: usize = 2;

/// Where an application's data lie: an object for each packet that may be in flight, and room for each that comes back; with
/// a line each that says how far its copy is.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    send: Address,
    receive: Address,
    sent: Address,
    received: Address,
    slots: u64,
    lines: u64,
}

impl Objects {
    /// Places the data of an application with a window of packets, in the host's memory.
    pub fn place(layout: &mut Layout, packet_size: u16, window: u64) -> Objects {
        let (slots, lines) = (window.max(1), lines_of(u64::from(packet_size)).max(1));
        let mut data =
            |name: &str| layout.add(name, slots * lines * LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
        let (send, receive) = (data("objects to send"), data("objects received"));
        let mut words =
            |name: &str| layout.add(name, slots * LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::FIRST);
        let (sent, received) = (words("copies to send"), words("copies received"));
        Objects { send, receive, sent, received, slots, lines }
    }

    fn slot(&self, number: u64) -> u64 {
        number % self.slots
    }

    fn object(&self, of: Address, number: u64) -> Address {
        of.lines(self.slot(number) * self.lines)
    }
}

/// An application that keeps `window` packets in flight, each copied from an object of its own and to another one.
#[derive(Debug)]
pub struct CopyLoop<Q> {
    queue: Q,
    workload: Workload,
    objects: Objects,
    account: Account,
    pace: Option<Pace>,
    /// Packets of smaller sequence numbers are read whole when they have come back, others in their first line.
    whole_until: u64,
    /// Whether the core copies: it then fetches lines ahead.
    by_core: bool,
    /// Packets that are being copied to be sent, or wait for room in the ring, and the number of the first.
    leaving: VecDeque<Packet>,
    first_leaving: u64,
    /// Packets that are being copied out of their buffers, and the number of the first.
    arriving: VecDeque<Packet>,
    first_arriving: u64,
    lines: Vec<Line>,
    burst: Box<([Packet; MOST], [Address; MOST])>,
}

impl<Q: HostQueue> CopyLoop<Q> {
    /// An application on a queue; it writes its objects first. The first `whole_until` packets are read whole. `by_core`
    /// if the core has no engine for its copies.
    pub fn new(queue: Q, workload: Workload, objects: Objects, whole_until: u64, by_core: bool) -> CopyLoop<Q> {
        let workload = Workload { window: workload.window.clamp(1, objects.slots), ..workload.within_limits() };
        for slot in 0..objects.slots {
            let at = objects.object(objects.send, slot);
            for line in 0..objects.lines {
                queue.core().write_line(at.lines(line), &Line([pattern(slot, 0); 8]));
            }
        }
        CopyLoop {
            queue,
            workload,
            objects,
            account: Account::default(),
            pace: None,
            whole_until,
            by_core,
            leaving: VecDeque::new(),
            first_leaving: 0,
            arriving: VecDeque::new(),
            first_arriving: 0,
            lines: Vec::new(),
            burst: Box::new(([Packet::BLANK; MOST], [Address(0); MOST])),
        }
    }

    /// Writes the headers of what the window and the pace allow, and has the objects copied into buffers; how many.
    fn begin_sending(&mut self) -> usize {
        let room = self.workload.window.saturating_sub(self.account.in_flight()) as usize;
        let now = self.queue.core().now().picoseconds();
        let due = self.pace.map_or(usize::MAX, |pace| pace.waiting(self.account.sent, now));
        let count = room.min(due).min(self.workload.transmit_burst);
        if count == 0 {
            return 0;
        }
        let size = self.workload.packet_size;
        let count = self.queue.buf_alloc(size.into(), &mut self.burst.1[..count]);
        let core = self.queue.core();
        core.work(WORK_A_PACKET * count as u32);
        let first = self.account.sent;
        // All headers before the first copy: an engine reads what was written before, and waits for it once.
        for sequence in first..first + count as u64 {
            let object = self.objects.object(self.objects.send, sequence);
            core.store(object, self.pace.map_or(now, |pace| pace.due(sequence)));
            core.store(object.word(1), sequence);
        }
        for (sequence, &buffer) in (first..).zip(&self.burst.1[..count]) {
            let object = self.objects.object(self.objects.send, sequence);
            let done = self.objects.sent.lines(self.objects.slot(sequence));
            core.post_copy(object, buffer, self.objects.lines, done, sequence + 1);
            self.leaving.push_back(Packet::new(buffer, size));
        }
        self.account.sent += count as u64;
        count
    }

    /// Sends packets that were copied, in order; how many.
    fn send(&mut self) -> usize {
        let (core, mut count) = (self.queue.core(), 0);
        while count < self.workload.transmit_burst
            && let Some(&packet) = self.leaving.get(count)
        {
            let number = self.first_leaving + count as u64;
            // Acquire, pairs with the release that ends a copy: its lines are there before the NIC is told of them.
            if core.load_acquire(self.objects.sent.lines(self.objects.slot(number))) != number + 1 {
                break;
            }
            self.burst.0[count] = packet;
            count += 1;
        }
        let sent = if count == 0 { 0 } else { self.queue.tx_burst(&self.burst.0[..count]) };
        self.leaving.drain(..sent);
        self.first_leaving += sent as u64;
        sent
    }

    /// Receives packets and has them copied out of their buffers; how many.
    fn begin_receiving(&mut self) -> usize {
        let room = (self.objects.slots as usize - self.arriving.len()).min(self.workload.receive_burst);
        let count = self.queue.rx_burst(&mut self.burst.0[..room]);
        let core = self.queue.core();
        for (index, &packet) in self.burst.0[..count].iter().enumerate() {
            if self.by_core
                && self.workload.fetch_ahead
                && let Some(next) = self.burst.0[..count].get(index + 1)
            {
                fetch_ahead(core, next);
            }
            let number = self.first_arriving + self.arriving.len() as u64;
            let object = self.objects.object(self.objects.receive, number);
            let done = self.objects.received.lines(self.objects.slot(number));
            let lines = packet.lines().min(self.objects.lines);
            core.post_copy(packet.address(), object, lines, done, number + 1);
            self.arriving.push_back(packet);
        }
        count
    }

    /// Looks at packets that were copied, and frees their buffers; how many.
    fn receive(&mut self) -> usize {
        let mut count = 0;
        while count < self.workload.receive_burst
            && let Some(&packet) = self.arriving.get(count)
        {
            let (core, number) = (self.queue.core(), self.first_arriving + count as u64);
            // Acquire, pairs with the release that ends a copy: its lines are there, and the buffer is read.
            if core.load_acquire(self.objects.received.lines(self.objects.slot(number))) != number + 1 {
                break;
            }
            self.look_at(packet, number);
            self.burst.1[count] = packet.address();
            count += 1;
        }
        if count > 0 {
            self.queue.core().work(WORK_A_PACKET * count as u32);
            self.queue.buf_free(&self.burst.1[..count]);
            self.arriving.drain(..count);
            self.first_arriving += count as u64;
        }
        count
    }

    fn look_at(&mut self, packet: Packet, number: u64) {
        let core = self.queue.core();
        let lines = if number < self.whole_until { self.objects.lines } else { 1 };
        self.lines.resize(lines as usize, Line::ZERO);
        core.read_lines(self.objects.object(self.objects.receive, number), &mut self.lines);
        let [stamp, sequence, ..] = self.lines[0].0;
        let word = pattern(self.objects.slot(sequence), 0);
        let words = usize::from(self.workload.packet_size) / 8;
        let mut payload = self.lines.iter().flat_map(|line| &line.0).take(words).skip(HEADER);
        self.account.enter(sequence);
        if packet.length() != self.workload.packet_size || payload.any(|other| *other != word) {
            self.account.spoilt();
        }
        self.account.took(stamp, core.now().picoseconds(), 1);
    }
}

impl<Q: HostQueue> Traffic for CopyLoop<Q> {
    fn step(&mut self) -> usize {
        let received = self.receive();
        let progress = self.begin_receiving() + self.begin_sending() + self.send();
        if received + progress == 0 {
            match self.pace {
                None => self.queue.core().spin(),
                Some(pace) => self.queue.core().spin_until(Time::from_picoseconds(pace.due(self.account.sent))),
            }
        }
        received
    }
    fn account(&self) -> &Account {
        &self.account
    }
    fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.pace = Some(Pace::new(start, self.account.sent, interval));
    }
}
