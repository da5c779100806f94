//! What goes over PCIe: registers, and DMA of the host's memory.

use conic_fabric::{LINE_BYTES, Line};

use super::home::{From, Job};
use super::machine::{Event, Machine, Wait};
use super::queues::Queue;
use crate::bytes::parts;
use crate::pcie::{Sent, Tlps};
use crate::probe::queues::Probed;
use crate::protocol::cxl::{Ask, Side};

/// A read of a DMA engine.
#[derive(Clone, Debug)]
pub(super) struct DmaRead {
    agent: usize,
    at: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) pieces_left: u32,
}

/// A packet of a transfer.
#[derive(Clone, Debug)]
pub(super) struct DmaPiece {
    at: u64,
    bytes: u64,
    lines_left: u32,
    /// Lines whose transaction has not begun.
    lines_to_begin: u32,
    /// How many posted writes had come to the root port with it.
    arrived: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Read(u32),
    /// The data, and the engine's number of the write if this is its last piece.
    Write(Vec<u8>, Option<(usize, u64)>),
    /// An interrupt's message for a core.
    Interrupt(u16),
}

impl Machine {
    /// When so many lines leave the engine, which take their turn now and then `latency`; never before an agent's writes that it
    /// was given earlier.
    fn engine_turn(&mut self, agent: usize, latency: u64, lines: u64) -> u64 {
        let turn = self.agenda.now.max(self.engine_free);
        self.engine_free = turn + lines * self.parameters.dma.line_time;
        (turn + latency).max(self.engines.entry(agent).or_default().dma_until)
    }

    /// Begins a DMA read; its number.
    pub(super) fn start_dma_read(&mut self, agent: usize, at: u64, bytes: u64, set_up: u64) -> u32 {
        let pieces: Vec<(u64, u64)> = self.pcie.tlps().reads(at, bytes).collect();
        let read = DmaRead { agent, at, buffer: vec![0; bytes as usize], pieces_left: pieces.len() as u32 };
        let read = self.dma_reads.insert(read) as u32;
        for (at, bytes) in pieces {
            let lines = parts(at, bytes).count() as u64;
            let start = self.engine_turn(agent, set_up + self.parameters.dma.engine_read, lines);
            let lines = lines as u32;
            let what = What::Read(read);
            let piece = DmaPiece { at, bytes, lines_left: lines, lines_to_begin: lines, arrived: 0, what };
            self.begin_piece(piece, agent, start);
        }
        read
    }

    /// Begins a DMA write: posted, in order.
    pub(super) fn start_dma_write(&mut self, agent: usize, at: u64, from: &[u8], set_up: u64) {
        let engine = self.engines.entry(agent).or_default();
        let number = engine.next_write;
        engine.next_write += 1;
        engine.writes.insert(number);
        self.enters(Queue::DeviceWrites(agent as u16), number as u32, self.agenda.now);
        let pieces: Vec<(u64, u64)> = self.pcie.tlps().writes(at, from.len() as u64).collect();
        let end = at + from.len() as u64;
        for (piece, bytes) in pieces {
            let lines = parts(piece, bytes).count() as u64;
            let start = self.engine_turn(agent, set_up + self.parameters.dma.engine_write, lines);
            self.engines.get_mut(&agent).expect("it has a turn").dma_until = start;
            let data = from[(piece - at) as usize..][..bytes as usize].to_vec();
            let last = (piece + bytes == end).then_some((agent, number));
            let piece = DmaPiece {
                at: piece,
                bytes,
                lines_left: lines as u32,
                lines_to_begin: lines as u32,
                arrived: 0,
                what: What::Write(data, last),
            };
            self.begin_piece(piece, agent, start);
        }
    }

    /// A piece of an agent's transfer leaves the engine at a time.
    fn begin_piece(&mut self, piece: DmaPiece, agent: usize, start: u64) {
        let (line, is_read) = ((piece.at / LINE_BYTES) as u32, matches!(piece.what, What::Read(_)));
        let key = self.dma_pieces.insert(piece) as u32;
        self.enters(Queue::Pieces, key, self.agenda.now);
        if let Some(recorder) = &mut self.recorder {
            let name = if is_read { "DMA read" } else { "DMA write" };
            recorder.asks_dma(key, line, name, agent, (self.agenda.now, start));
        }
        self.agenda.at(start, Event::DmaDone(key));
    }

    /// A piece leaves the engine; or, a read whose lines are all there, it is back at the device.
    pub(super) fn dma_done(&mut self, key: u32) {
        let piece = self.dma_pieces[key as usize].clone();
        match piece.what {
            What::Write(..) => {
                self.count("MWr");
                let sent = self.pcie.post_write(Tlps::data_bytes(piece.at, piece.bytes), key, self.agenda.now);
                self.sent(key, sent);
            }
            What::Interrupt(_) => {
                self.count("MSI");
                let sent = self.pcie.post_write(Tlps::data_bytes(piece.at, piece.bytes), key, self.agenda.now);
                self.sent(key, sent);
            }
            What::Read(_) if piece.lines_left > 0 => {
                self.count("MRd");
                let has_tag = self.pcie.tags().take(key, self.agenda.now);
                self.enters(if has_tag { Queue::ReadTags } else { Queue::WithoutTag }, key, self.agenda.now);
                if has_tag {
                    let sent = self.pcie.request_read(key, self.agenda.now);
                    self.sent(key, sent);
                }
            }
            What::Read(read) => {
                self.dma_pieces.remove(key as usize);
                self.leaves(Queue::Pieces, key, self.agenda.now);
                let next = self.pcie.tags().give(self.agenda.now);
                match next {
                    Some(next) => self.hands_over(Queue::ReadTags, key, next),
                    None => self.leaves(Queue::ReadTags, key, self.agenda.now),
                }
                if let Some(next) = next {
                    self.leaves(Queue::WithoutTag, next, self.agenda.now);
                    let sent = self.pcie.request_read(next, self.agenda.now);
                    self.sent(next, sent);
                }
                let state = &mut self.dma_reads[read as usize];
                state.pieces_left -= 1;
                let agent = state.agent;
                self.news(agent);
            }
        }
    }

    fn sent(&mut self, key: u32, sent: Sent) {
        if sent == Sent::Waits {
            self.enters(Queue::WithoutWriteCredit, key, self.agenda.now);
        }
        if let Sent::Arrives(there) = sent {
            self.takes_wire(Side::Host, self.agenda.now, there);
            if !matches!(self.dma_pieces[key as usize].what, What::Read(_)) {
                self.enters(Queue::WriteCredits, key, self.agenda.now);
            }
            if let Some(recorder) = &mut self.recorder {
                let piece = &self.dma_pieces[key as usize];
                let (name, line) = match piece.what {
                    What::Read(_) => ("MRd", Some(piece.at)),
                    What::Write(..) => ("MWr", Some(piece.at)),
                    What::Interrupt(_) => ("MSI", None),
                };
                let line = line.map(|at| (at / LINE_BYTES) as u32);
                recorder.piece_crosses(key, line, name, (self.agenda.now, there));
            }
            self.agenda.at(there + self.parameters.pcie.root_to_home, Event::AtRoot(key));
        }
    }

    /// A piece is at the home agents.
    pub(super) fn at_root(&mut self, key: u32) {
        let piece = self.dma_pieces[key as usize].clone();
        match piece.what {
            What::Write(..) => {
                self.dma_arrived += 1;
                self.dma_order.push_back(key);
                self.enters(Queue::RootPort, key, self.agenda.now);
                self.dma_pieces[key as usize].arrived = self.dma_arrived;
            }
            What::Read(_) => self.dma_pieces[key as usize].arrived = self.dma_arrived,
            What::Interrupt(core) => {
                self.dma_pieces.remove(key as usize);
                self.leaves(Queue::Pieces, key, self.agenda.now);
                let wakes = self.agenda.now + self.parameters.host.interrupt;
                if let Some(recorder) = &mut self.recorder {
                    recorder.interrupts(self.cores[usize::from(core)].agent, (self.agenda.now, wakes));
                }
                self.agenda.at(wakes, Event::Interrupts(core));
                return self.give_write_credit(key);
            }
        }
        let allocate = self.parameters.cache.device_write_ways > 0;
        for part in parts(piece.at, piece.bytes) {
            let ask = match &piece.what {
                What::Read(_) => Ask::DmaRead,
                What::Write(from, _) => Ask::DmaWrite { data: part.line_of(from), bytes: part.bytes, allocate },
                What::Interrupt(_) => return,
            };
            self.ask_home(Job { line: part.line, ask, from: From::Dma(key) }, 0);
        }
    }

    /// Whether a line of a piece must wait: posted writes take effect in their order, however long a line's turn takes, and a read
    /// does not pass those that came before it (PCI Express's ordering rules, "read request passes posted request": no).
    pub(super) fn dma_must_wait(&self, key: u32) -> bool {
        let Some(first) = self.dma_order.front().copied() else { return false };
        let piece = &self.dma_pieces[key as usize];
        match piece.what {
            What::Write(..) => first != key,
            What::Read(_) | What::Interrupt(_) => self.dma_pieces[first as usize].arrived <= piece.arrived,
        }
    }

    /// A line of a piece has its turn: the next write may follow the last of them.
    pub(super) fn dma_line_begins(&mut self, key: u32) {
        let piece = &mut self.dma_pieces[key as usize];
        piece.lines_to_begin -= 1;
        if piece.lines_to_begin > 0 || !matches!(piece.what, What::Write(..)) {
            return;
        }
        self.dma_order.pop_front();
        self.leaves(Queue::RootPort, key, self.agenda.now);
        let parked = std::mem::take(&mut self.dma_parked);
        let waits = |job: &u32| match self.jobs[*job as usize].from {
            From::Dma(piece) => self.dma_must_wait(piece),
            _ => false,
        };
        let (later, now): (Vec<u32>, Vec<u32>) = parked.into_iter().partition(waits);
        self.dma_parked = later;
        let (mut left, at) = (now.len() as u64, self.agenda.now);
        for job in now {
            left -= 1;
            self.leaves_before(Queue::BehindPosted, job, at, left);
            // Not here: the line that began is not done with its own turn.
            self.agenda.at(self.agenda.now, Event::AtHome(job));
        }
    }

    /// A line of a piece has been read or written.
    pub(super) fn dma_line_done(&mut self, key: u32, line: u32, value: Option<Line>) {
        let piece = &mut self.dma_pieces[key as usize];
        piece.lines_left -= 1;
        let (at, bytes, over) = (piece.at, piece.bytes, piece.lines_left == 0);
        let read = match &piece.what {
            What::Read(read) => Some(*read),
            What::Write(..) | What::Interrupt(_) => None,
        };
        if let (Some(read), Some(value)) = (read, value) {
            let state = &mut self.dma_reads[read as usize];
            let part = parts(at, bytes).find(|part| part.line == line).expect("the piece has this line");
            part.read(&value, &mut state.buffer[(at - state.at) as usize..]);
        }
        let back = self.agenda.now + self.parameters.pcie.root_to_home;
        if let Some(recorder) = self.recorder.as_mut().filter(|_| read.is_some()) {
            recorder.answers_root_port(line, (self.agenda.now, back));
        }
        match (over, read) {
            (false, _) => {}
            (true, Some(_)) => {
                let is_probed = self.is_probed();
                let recorder = &mut self.recorder;
                let mut arrivals = Vec::new();
                let there = self.pcie.complete(at, bytes, back, |at, there| {
                    if is_probed {
                        arrivals.push(there);
                    }
                    if let Some(recorder) = recorder {
                        recorder.completes(key, (at / LINE_BYTES) as u32, (back, there));
                    }
                });
                arrivals.into_iter().for_each(|arrives| self.takes_wire(Side::Device, back, arrives));
                self.count("CplD");
                self.agenda.at(there, Event::DmaDone(key));
            }
            (true, None) => {
                let piece = self.dma_pieces.remove(key as usize);
                self.leaves(Queue::Pieces, key, self.agenda.now);
                if let What::Write(_, Some((agent, number))) = piece.what {
                    self.engines.get_mut(&agent).expect("it wrote").writes.remove(&number);
                    self.leaves(Queue::DeviceWrites(agent as u16), number as u32, self.agenda.now);
                    self.news(agent);
                }
                self.give_write_credit(key);
            }
        }
    }

    /// The root port has passed a posted write on.
    fn give_write_credit(&mut self, key: u32) {
        self.leaves(Queue::WriteCredits, key, self.agenda.now);
        let mut sent = Vec::new();
        self.pcie.give_write_credit(self.agenda.now, |id, there| sent.push((id, there)));
        for (id, there) in sent {
            self.leaves(Queue::WithoutWriteCredit, id, self.agenda.now);
            self.sent(id, Sent::Arrives(there));
        }
    }

    /// A core writes a register: from now on its way.
    pub(super) fn write_register(&mut self, core: u16, at: u64, value: u64) {
        self.count("MMIO write");
        let root = self.agenda.now + self.parameters.pcie.core_to_root;
        let there = self.pcie.post_register_write(8, root);
        self.takes_wire(Side::Device, root, there);
        if let Some(recorder) = &mut self.recorder {
            let agent = self.cores[usize::from(core)].agent;
            let times = [self.agenda.now, root, there];
            recorder.accesses_register(agent, (at / LINE_BYTES) as u32, "MMIO write", times, None);
        }
        let written = there + self.parameters.device.doorbell;
        self.stays(Queue::RegisterWrites, self.agenda.now, written);
        self.agenda.at(written, Event::RegisterWritten(at, value));
    }

    /// The device sends an interrupt's message (MSI-X) to a core: a posted write on CXL.io, behind those before it, and in no order
    /// with anything of CXL.cache.
    ///
    /// # Panics
    ///
    /// If there is no such core.
    pub(super) fn interrupt(&mut self, core: u16) {
        assert!(usize::from(core) < self.cores.len(), "there is no core {core}");
        let what = What::Interrupt(core);
        let key =
            self.dma_pieces.insert(DmaPiece { at: 0, bytes: 4, lines_left: 0, lines_to_begin: 0, arrived: 0, what })
                as u32;
        self.enters(Queue::Pieces, key, self.agenda.now);
        if let Some(recorder) = &mut self.recorder {
            recorder.is_to_interrupt(key);
        }
        self.agenda.at(self.agenda.now, Event::DmaDone(key));
    }

    /// A core's program hears of an interrupt.
    pub(super) fn interrupted(&mut self, core: u16) {
        let state = &mut self.cores[usize::from(core)];
        state.interrupted = true;
        let agent = state.agent;
        self.agenda.wake(agent, Wait::Interrupt, self.agenda.now);
    }

    pub(super) fn register_written(&mut self, at: u64, value: u64) {
        self.register_values.insert(at, value);
        let engines: Vec<usize> = self.engines.keys().copied().collect();
        for agent in engines {
            self.news(agent);
        }
    }

    /// A core reads a register; it goes on when the answer is there.
    pub(super) fn read_register(&mut self, agent: u16, at: u64) {
        self.count("MMIO read");
        let p = self.parameters.pcie.clone();
        let root = self.agenda.now + p.core_to_root;
        let asked = self.pcie.request_register_read(root);
        self.takes_wire(Side::Device, root, asked);
        let there = asked + p.register_read;
        // The answer's way is as long as that of the device's other packets; those are not told apart here.
        let wire = self.pcie.wire_time(u64::from(p.access_bytes + p.completion_overhead));
        let back = there + wire + p.crossing;
        if let Some(recorder) = &mut self.recorder {
            let (times, line) = ([self.agenda.now, root, asked], (at / LINE_BYTES) as u32);
            let answer = Some([there, back, back + p.core_to_root]);
            recorder.accesses_register(agent.into(), line, "MMIO read", times, answer);
        }
        self.stays(Queue::RegisterReads, self.agenda.now, back + p.core_to_root);
        self.agenda.at(back + p.core_to_root, Event::RegisterRead(agent));
    }

    pub(super) fn register_read(&mut self, agent: u16) {
        self.agenda.wake(agent.into(), Wait::Register, self.agenda.now);
    }
}
