//! The root port of node 0: what a PCIe link brings, and what is sent over it.
//!
//! # What passes what
//!
//! What the link brings stands in one queue, in its order. A write asks the home agents for its lines at once, so that the
//! requests of many writes overlap; but it takes effect, line by line, only after every write before it. A read asks for its
//! lines, and an answer to a core goes on, once every write before them has its lines: from then on nobody can see what was
//! before those writes. Home agents and root port are taken to agree on that without any messages of their own.
//!
//! A write of a part of a line does not read the rest of it first, which the real one does where no cache has the line.

use std::collections::{BTreeMap, VecDeque};

use conic_fabric::{LINE_BYTES, Line};
use slab::Slab;

use crate::parameters::PcieParameters;
use crate::pcie::{PcieLink, Sent, Tlps, Way};
use crate::protocol::{Ask, Asker, ToHome};

use super::access::merge;
use super::queues::Queue;
use super::recorder::Held;
use super::{Event, Machine};
use crate::bytes::{Part, parts};
use crate::probe::queues::Probed;

/// A TLP on its way, by the number of its [`Tlp`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum PcieEvent {
    /// From a core, at the root port.
    FromCore(u32),
    /// From the root port, at the device.
    AtDevice(u32),
    /// A register's value is there to be sent.
    RegisterAnswers(u32),
    /// From the device, at the root port.
    AtRoot(u32),
    /// The data of a device's read are at the root port.
    DataAtRoot(u32),
}

/// A transaction: a TLP, and for a read those that answer it.
#[derive(Debug)]
pub(crate) enum Tlp {
    /// A core stores to the device: some bytes of a line.
    RegisterWrite { agent: u16, line: u32, bytes: u64, data: Line },
    /// A core loads the first `length` bytes from `at` on, all in one line.
    RegisterRead { agent: u16, at: u64, length: u32 },
    /// A piece of the device's read.
    Read { read: u32, at: u64, length: u64, lines_left: u32 },
    /// A piece of the device's write.
    Write { at: u64, data: Box<[u8]>, lines_left: u32 },
}

/// A read of the device: its pieces that are still on their way, and its data.
#[derive(Debug)]
pub(crate) struct Read {
    pub agent: u16,
    pub at: u64,
    pub pieces_left: u32,
    pub data: Vec<u8>,
}

/// Loads that a device withholds the answers to: whose device, and each with when it came.
#[derive(Debug)]
pub(crate) struct Withheld {
    pub by: u16,
    pub loads: Vec<(u32, u64)>,
}

/// Something that the home agents do past the caches, by the number that its request carries.
#[derive(Debug)]
pub(crate) enum Past {
    /// A line of a device's read.
    DeviceRead { tlp: u32 },
    /// A line of a device's write.
    DeviceWrite { tlp: u32, ready: bool },
    /// A core's non-temporal or write-combining store.
    CoreWrite { bytes: u64, data: Line },
}

/// An entry of the root port's queue.
#[derive(Clone, Copy, Debug)]
enum Ordered {
    Write { request: u32, line: u32 },
    Read(u32),
    Answer(u32),
}

/// The link of node 0 and its root port.
#[derive(Debug)]
pub(crate) struct RootPort {
    pub link: PcieLink,
    root_to_home: u64,
    register_read: u64,
    /// Edges of the device's clock, on which it takes a load; 1 where its clock is not known.
    device_cycle: u64,
    device_writes_to_cache: bool,
    pub tlps: Slab<Tlp>,
    pub reads: Slab<Read>,
    order: VecDeque<Ordered>,
    /// Which device looks at the register in a line.
    pub watchers: BTreeMap<u32, u16>,
    /// The pairs of words of the device's memory, by address over 16, whose loads wait for the device.
    pub withheld: BTreeMap<u64, Withheld>,
    /// Lines as a core had them when a device's read looked at its copy: the core may have written on since.
    pub found: BTreeMap<u32, Line>,
}

impl RootPort {
    /// Entries of its queue.
    pub fn waiting_in_order(&self) -> usize {
        self.order.len()
    }

    pub fn new(parameters: &PcieParameters, device_cycle: u64, device_write_ways: u32) -> RootPort {
        RootPort {
            link: PcieLink::new(parameters),
            root_to_home: parameters.root_to_home,
            register_read: parameters.register_read,
            device_cycle,
            device_writes_to_cache: device_write_ways > 0,
            tlps: Slab::new(),
            reads: Slab::new(),
            order: VecDeque::new(),
            watchers: BTreeMap::new(),
            withheld: BTreeMap::new(),
            found: BTreeMap::new(),
        }
    }
}

impl RootPort {
    /// When a load that came at `arrived` and was withheld until `now` is answered: the device's own time for a load has two
    /// halves, and the second begins no sooner than the device decides.
    pub fn answers_at(&self, arrived: u64, now: u64) -> u64 {
        let edge = |time: u64| time.next_multiple_of(self.device_cycle);
        (edge(arrived) + self.register_read).max(edge(now) + self.register_read / 2)
    }
}

impl Machine {
    /// The root port.
    ///
    /// # Panics
    ///
    /// On a machine without one: its caller has made sure that there is one.
    pub(crate) fn port(&mut self) -> &mut RootPort {
        self.port.as_mut().expect("the machine has a PCIe link")
    }

    /// The source number of the root port.
    const PORT: usize = 2;

    pub(crate) fn send_tlp(&mut self, time: u64, event: PcieEvent) {
        let key = self.key(time, Self::PORT);
        if self.recorder.is_some() {
            self.note_tlp(key, event);
        }
        self.queue.push(key, Event::Pcie(event));
    }

    /// Writes down what goes over the link, and what a core sends to the root port.
    #[cold]
    #[inline(never)]
    fn note_tlp(&mut self, key: crate::engine::Key, event: PcieEvent) {
        let (to_device, tlp) = match event {
            PcieEvent::AtDevice(tlp) => (true, tlp),
            PcieEvent::AtRoot(tlp) => (false, tlp),
            PcieEvent::FromCore(tlp) => return self.note_from_core(key, tlp),
            PcieEvent::RegisterAnswers(_) => {
                return self.recorder.iter_mut().for_each(|recorder| recorder.goes_on(key));
            }
            // The home agents' last answer, which `answer_device` has written down.
            PcieEvent::DataAtRoot(_) => return self.recorder.iter_mut().for_each(|recorder| recorder.is_last(key)),
        };
        let (name, at) = match (&self.port().tlps[tlp as usize], to_device) {
            (Tlp::RegisterWrite { line, .. }, _) => ("RegisterWrite", u64::from(*line) * LINE_BYTES),
            (Tlp::RegisterRead { at, .. }, true) => ("RegisterRead", *at),
            (Tlp::RegisterRead { at, .. }, false) => ("RegisterData", *at),
            (Tlp::Read { at, .. }, false) => ("MemoryReadTlp", *at),
            (Tlp::Read { at, .. }, true) => ("CompletionTlp", *at),
            (Tlp::Write { at, .. }, _) => ("MemoryWriteTlp", *at),
        };
        let now = self.now;
        if let Some(recorder) = &mut self.recorder {
            recorder.over_pcie(key, now, name, at / LINE_BYTES, to_device);
        }
    }

    fn note_from_core(&mut self, key: crate::engine::Key, tlp: u32) {
        let (name, line, agent) = match self.port().tlps[tlp as usize] {
            Tlp::RegisterWrite { agent, line, .. } => ("RegisterWrite", line.into(), agent),
            Tlp::RegisterRead { agent, at, .. } => ("RegisterRead", at / LINE_BYTES, agent),
            _ => return,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.leaves_core(key, name, line, agent.into());
        }
    }

    /// The device has sent a TLP: it arrives, or waits for a credit, of whose coming [`Machine::give_write_credit`] tells.
    pub(crate) fn sent(&mut self, tlp: u32, sent: Sent) {
        match sent {
            Sent::Arrives(time) => self.goes_to_root(tlp, time),
            Sent::Waits => {
                self.holds_back(Held::Tlp(tlp));
                self.enters(Queue::WithoutWriteCredit, tlp, self.now);
            }
        }
    }

    /// A TLP of the device is on the wire.
    fn goes_to_root(&mut self, tlp: u32, arrives: u64) {
        self.takes_wire(Way::ToRoot, arrives);
        if let Tlp::Write { .. } = self.port().tlps[tlp as usize] {
            self.enters(Queue::WriteCredits, tlp, self.now);
        }
        self.send_tlp(arrives, PcieEvent::AtRoot(tlp));
    }

    fn give_write_credit(&mut self) {
        let now = self.now;
        let mut arrivals = Vec::new();
        self.port().link.give_write_credit(now, |tlp, arrival| arrivals.push((tlp, arrival)));
        for (tlp, arrival) in arrivals {
            self.leaves(Queue::WithoutWriteCredit, tlp, now);
            self.take_up(Held::Tlp(tlp), |this| this.goes_to_root(tlp, arrival));
        }
    }

    /// Handles a transaction of the PCIe link that is a stage further.
    // On its own: see `at_home`.
    #[inline(never)]
    pub(crate) fn at_pcie(&mut self, event: PcieEvent) {
        match event {
            PcieEvent::FromCore(tlp) => self.forward_to_device(tlp),
            PcieEvent::AtDevice(tlp) => self.at_device(tlp),
            PcieEvent::RegisterAnswers(tlp) => self.register_answers(tlp),
            PcieEvent::AtRoot(tlp) => self.at_root(tlp),
            PcieEvent::DataAtRoot(tlp) => self.data_at_root(tlp),
        }
    }

    fn forward_to_device(&mut self, tlp: u32) {
        let now = self.now;
        let port = self.port();
        let arrives = match port.tlps[tlp as usize] {
            Tlp::RegisterWrite { line, bytes, .. } => {
                let first = u64::from(line) * LINE_BYTES + u64::from(bytes.trailing_zeros());
                port.link.post_register_write(Tlps::data_bytes(first, bytes.count_ones().into()), now)
            }
            _ => port.link.request_register_read(now),
        };
        self.takes_wire(Way::ToDevice, arrives);
        self.send_tlp(arrives, PcieEvent::AtDevice(tlp));
    }

    fn at_device(&mut self, tlp: u32) {
        let now = self.now;
        let port = self.port();
        match port.tlps[tlp as usize] {
            Tlp::RegisterWrite { line, bytes, data, .. } => {
                port.tlps.remove(tlp as usize);
                let watcher = port.watchers.get(&line).copied();
                merge(&mut self.data[line as usize], bytes, &data);
                if let Some(agent) = watcher {
                    self.tell_device(agent as usize);
                }
            }
            Tlp::RegisterRead { at, .. } => {
                if let Some(withheld) = port.withheld.get_mut(&(at / 16)) {
                    withheld.loads.push((tlp, now));
                    let device = withheld.by.into();
                    self.holds_back(Held::Tlp(tlp));
                    return self.tell_device(device);
                }
                let ready = now.next_multiple_of(port.device_cycle) + port.register_read;
                self.send_tlp(ready, PcieEvent::RegisterAnswers(tlp));
            }
            Tlp::Read { read, .. } => {
                port.tlps.remove(tlp as usize);
                self.completed(tlp, read);
            }
            Tlp::Write { .. } => {}
        }
    }

    /// The last completion of a piece of the device's read has come.
    fn completed(&mut self, tlp: u32, read: u32) {
        let now = self.now;
        let next = self.port().link.tags().give(now);
        match next {
            Some(next) => self.hands_over(Queue::Tags, tlp, next),
            None => self.leaves(Queue::Tags, tlp, now),
        }
        if let Some(next) = next {
            self.leaves(Queue::WithoutTag, next, now);
            self.take_up(Held::Tlp(next), |this| {
                let sent = this.port().link.request_read(next, now);
                this.sent(next, sent);
            });
        }
        let this = &mut self.port().reads[read as usize];
        this.pieces_left -= 1;
        if this.pieces_left == 0 {
            let agent = this.agent as usize;
            self.tell_device(agent);
        }
    }

    fn register_answers(&mut self, tlp: u32) {
        let now = self.now;
        let port = self.port();
        let Tlp::RegisterRead { agent, at, length } = port.tlps[tlp as usize] else { return };
        let sent = port.link.complete_register_read(Tlps::data_bytes(at, length.into()), tlp, now);
        self.agents[agent as usize].past.answer = Some(self.data[(at / LINE_BYTES) as usize]);
        self.sent(tlp, sent);
    }

    fn at_root(&mut self, tlp: u32) {
        let port = self.port();
        let (at, length) = match &port.tlps[tlp as usize] {
            Tlp::Write { at, data, .. } => (*at, data.len() as u64),
            other => {
                let is_read = matches!(other, Tlp::Read { .. });
                port.order.push_back(if is_read { Ordered::Read(tlp) } else { Ordered::Answer(tlp) });
                self.holds_back(Held::Tlp(tlp));
                self.enters(Queue::RootPort, 0, self.now);
                return self.pass_on();
            }
        };
        let ask = if port.device_writes_to_cache { Ask::WriteCache } else { Ask::WriteMemory };
        for Part { line, .. } in parts(at, length) {
            let write = self.new_past(Past::DeviceWrite { tlp, ready: false });
            self.port().order.push_back(Ordered::Write { request: write, line });
            self.enters(Queue::RootPort, 0, self.now);
            self.ask_from_port(line, ToHome::OrderedWrite { request: write as u16, ask, write });
        }
    }

    fn ask_from_port(&mut self, line: u32, message: ToHome) {
        let arrives = self.now + self.port().root_to_home + self.ways[0].home_lookup;
        self.send_home(arrives, Self::PORT, 0, line, message);
    }

    /// A number for something past the caches.
    ///
    /// # Panics
    ///
    /// If 65536 are under way: a device's tags and write credits allow a fraction of that.
    pub(crate) fn new_past(&mut self, past: Past) -> u32 {
        let request = self.past.insert(past);
        assert!(request <= usize::from(u16::MAX), "more than 65536 lines are read and written past the caches at once");
        self.enters(Queue::PastCaches, request as u32, self.now);
        request as u32
    }

    /// Passes on what stands at the front of the root port's queue.
    fn pass_on(&mut self) {
        while let Some(&front) = self.port().order.front() {
            match front {
                Ordered::Write { request, line } => {
                    if !matches!(self.past[request as usize], Past::DeviceWrite { ready: true, .. }) {
                        return;
                    }
                    let now = self.now;
                    self.take_up(Held::Write(request), |this| {
                        this.send_home(now, Self::PORT, 0, line, ToHome::TakeEffect);
                    });
                }
                Ordered::Read(tlp) => self.take_up(Held::Tlp(tlp), |this| this.ask_for_piece(tlp)),
                Ordered::Answer(tlp) => {
                    let answered = self.port().tlps.remove(tlp as usize);
                    if let Tlp::RegisterRead { agent, at, .. } = answered {
                        self.take_up(Held::Tlp(tlp), |this| {
                            this.register_loaded(agent as usize, at / LINE_BYTES);
                        });
                    }
                }
            }
            self.port().order.pop_front();
            self.leaves(Queue::RootPort, 0, self.now);
        }
    }

    fn ask_for_piece(&mut self, tlp: u32) {
        let Tlp::Read { at, length, .. } = self.port().tlps[tlp as usize] else { return };
        for Part { line, .. } in parts(at, length) {
            let request = self.new_past(Past::DeviceRead { tlp });
            let asker = Asker::Device(request as u16);
            self.ask_from_port(line, ToHome::Request { asker, ask: Ask::ReadCurrent, has_data: false, write: 0 });
        }
    }

    /// An ordered write has its line.
    #[inline(never)]
    pub(crate) fn write_is_ready(&mut self, write: u32) {
        if let Past::DeviceWrite { ready, .. } = &mut self.past[write as usize] {
            *ready = true;
        }
        self.holds_back(Held::Write(write));
        self.pass_on();
    }

    /// A write past the caches takes effect.
    #[inline(never)]
    pub(crate) fn written(&mut self, line: u32, write: u32) {
        match self.past[write as usize] {
            Past::CoreWrite { bytes, data } => {
                merge(&mut self.data[line as usize], bytes, &data);
                self.past.remove(write as usize);
                self.leaves(Queue::PastCaches, write, self.now);
            }
            Past::DeviceWrite { tlp, .. } => self.device_has_written(line, tlp),
            Past::DeviceRead { .. } => {}
        }
    }

    fn device_has_written(&mut self, line: u32, tlp: u32) {
        let port = self.port.as_mut().expect("the machine has a PCIe link");
        let Tlp::Write { at, data, lines_left } = &mut port.tlps[tlp as usize] else { return };
        if let Some(part) = parts(*at, data.len() as u64).find(|part| part.line == line) {
            merge(&mut self.data[line as usize], part.bytes, &part.line_of(data));
        }
        *lines_left -= 1;
        if *lines_left == 0 {
            port.tlps.remove(tlp as usize);
            self.leaves(Queue::WriteCredits, tlp, self.now);
            self.give_write_credit();
        }
    }

    /// The home agents answer a device's request for a line.
    #[inline(never)]
    pub(crate) fn answer_device(&mut self, line: u32, request: u16) {
        let past = self.past.remove(request.into());
        self.leaves(Queue::PastCaches, request.into(), self.now);
        let Past::DeviceRead { tlp } = past else { return };
        let now = self.now;
        let port = self.port.as_mut().expect("the machine has a PCIe link");
        let data = port.found.remove(&line).unwrap_or(self.data[line as usize]);
        let Tlp::Read { read, at, length, lines_left } = &mut port.tlps[tlp as usize] else { return };
        let into = &mut port.reads[*read as usize];
        if let Some(part) = parts(*at, *length).find(|part| part.line == line) {
            part.read(&data, &mut into.data[(*at - into.at) as usize..]);
        }
        *lines_left -= 1;
        let (arrives, all) = (now + port.root_to_home, *lines_left == 0);
        self.note_answer_to_port(line, arrives);
        if all {
            self.send_tlp(arrives, PcieEvent::DataAtRoot(tlp));
        }
    }

    fn data_at_root(&mut self, tlp: u32) {
        let now = self.now;
        let port = self.port();
        let Tlp::Read { at, length, .. } = port.tlps[tlp as usize] else { return };
        let mut completions = Vec::new();
        let arrives = port.link.complete(at, length, now, |at, arrives| completions.push((at, arrives)));
        let last = completions.len().saturating_sub(1);
        for (number, (at, arrives)) in completions.into_iter().enumerate() {
            self.takes_wire(Way::ToDevice, arrives);
            if number < last {
                self.note_completion(at / LINE_BYTES, arrives);
            }
        }
        self.send_tlp(arrives, PcieEvent::AtDevice(tlp));
    }
}
