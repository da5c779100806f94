//! Each direction alone, as fast as it goes: packets without end, descriptors always posted, and a host that does not hold it up.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Time, lines_of};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{Host, MOST_IN_A_BATCH, Queues, Receiver, Signal, Store, Transmitter};
use conic_sim::cxl::{Counters, CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::protocol::cxl::Bias;
use conic_sim::{Failure, Role};

use super::loopback::{Attachment, Design, ahead, place};

/// One direction at full speed.
#[derive(Clone, Debug)]
pub struct Throughput {
    /// The machine.
    pub machine: CxlParameters,
    /// The NIC.
    pub design: Design,
    /// Bytes of a packet.
    pub bytes: usize,
    /// Packets before the first that counts, and those that count, of all rings together. With fewer than
    /// [`around`](super::loopback::around) before, what is found is how caches fill.
    pub packets: (u64, u64),
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Gigabits a second.
    pub gigabits: f64,
    /// Packets that counted: those asked for, and what the last batch reached beyond them.
    pub packets: u64,
    /// What crossed the links while they were under way.
    pub counters: Counters,
}

/// A moment between two calls of an engine's, which both ends of what counts are: as much is under way at the one as at the other.
#[derive(Clone, Debug)]
struct Moment {
    at: Time,
    /// What had been counted until then.
    counters: Counters,
    /// Packets that the engine's calls had been for until then.
    packets: u64,
}

impl Moment {
    fn of(engine: &CxlDevice<'_>, packets: u64) -> Moment {
        Moment { at: engine.now(), counters: engine.machine().borrow().counters.clone(), packets }
    }
}

/// From when until when packets counted, and how many.
#[derive(Clone, Debug)]
struct Span {
    begin: Moment,
    end: Moment,
    packets: u64,
}

impl Span {
    fn new(begin: Moment, end: Moment) -> Span {
        let packets = end.packets - begin.packets;
        Span { begin, end, packets }
    }

    /// Two rings' spans in one.
    fn joined(self, other: Span) -> Span {
        Span {
            begin: if other.begin.at < self.begin.at { other.begin } else { self.begin },
            end: if other.end.at > self.end.at { other.end } else { self.end },
            packets: self.packets + other.packets,
        }
    }

    fn flow(&self, bytes: usize) -> Flow {
        let took = self.end.at.since(self.begin.at).picoseconds();
        let gigabits = 8_000.0 * (bytes as u64 * self.packets) as f64 / took as f64;
        Flow { gigabits, packets: self.packets, counters: self.end.counters.since(&self.begin.counters) }
    }
}

/// The spans of all rings so far.
type Spans = Rc<RefCell<Option<Span>>>;

fn add(spans: &Spans, span: Span) {
    let before = spans.take();
    spans.replace(Some(match before {
        Some(others) => others.joined(span),
        None => span,
    }));
}

impl Throughput {
    /// One ring's part of the packets.
    fn of_ring(&self) -> (u64, u64) {
        let part = |packets: u64| packets.div_ceil(self.design.rings as u64);
        (part(self.packets.0), part(self.packets.1))
    }

    fn flow(&self, spans: &Spans) -> Flow {
        spans.take().expect("each ring has added its own").flow(self.bytes)
    }
}

/// Packets from the device to the host.
///
/// # Errors
///
/// The simulator's.
pub fn receive(question: &Throughput) -> Result<Flow, Failure> {
    let (layout, queues) = place(&question.design, question.bytes);
    let mut simulation = CxlSimulation::new(&question.machine, &layout);
    let spans = Spans::default();
    for queues in queues {
        let signal = question.design.requests.tx_signal;
        simulation.core("host", Role::Service, move |core| discard(core, queues, signal));
        let (asked, into) = (question.clone(), Rc::clone(&spans));
        simulation.device("receive side", Role::Main, move |device| {
            let span = match asked.design.attachment {
                Attachment::Cxl => deliver(*device, device, queues, &asked),
                Attachment::Dma => deliver(device.dma(), device, queues, &asked),
            };
            add(&into, span);
        });
    }
    simulation.run()?;
    Ok(question.flow(&spans))
}

/// The device's receive side of one ring: from when until when.
fn deliver<D: Device>(face: D, engine: &CxlDevice<'_>, queues: Queues, asked: &Throughput) -> Span {
    let batch = asked.design.receive_batch.min(MOST_IN_A_BATCH);
    let ahead = ahead(&asked.machine, asked.design.homes.rx_ring, asked.design.rings);
    let mut receiver = Receiver::new(queues, face, asked.design.requests, ahead);
    let frames = vec![vec![1; asked.bytes]; batch];
    engine.wait_until(Time::from_nanoseconds(50_000));
    let ((warm, counting), mut begin) = (asked.of_ring(), Moment::of(engine, 0));
    let mut through = 0;
    while through < warm + counting {
        if through <= warm {
            begin = Moment::of(engine, through);
        }
        let delivered = receiver.deliver(&frames) as u64;
        through += delivered;
        receiver.prefetch();
        if delivered == 0 {
            engine.spin();
        }
    }
    Span::new(begin, Moment::of(engine, through))
}

/// A host that looks at no packet.
fn discard(core: &CxlCore<'_>, queues: Queues, signal: Signal) {
    let mut host = Host::new(queues, *core, signal);
    let mut packets = [Packet::BLANK; 64];
    loop {
        let count = host.rx_burst(&mut packets);
        if count == 0 {
            core.spin();
            continue;
        }
        let buffers: Vec<Address> = packets[..count].iter().map(|packet| packet.address()).collect();
        host.buf_free(&buffers);
    }
}

/// Packets from the host to the device. The host stores into each line of a packet before it posts it, so that none is in the device's
/// cache from the time before.
///
/// # Errors
///
/// The simulator's.
pub fn transmit(question: &Throughput) -> Result<Flow, Failure> {
    let (layout, queues) = place(&question.design, question.bytes);
    let mut simulation = CxlSimulation::new(&question.machine, &layout);
    let spans = Spans::default();
    for queues in queues {
        let asked = question.clone();
        simulation.core("host", Role::Service, move |core| repeat(core, queues, &asked));
        let (asked, into) = (question.clone(), Rc::clone(&spans));
        simulation.device("transmit side", Role::Main, move |device| {
            let span = match asked.design.attachment {
                Attachment::Cxl => take(*device, device, queues, &asked),
                Attachment::Dma => take(device.dma(), device, queues, &asked),
            };
            add(&into, span);
        });
    }
    simulation.run()?;
    Ok(question.flow(&spans))
}

/// A host that sends as fast as it can.
fn repeat(core: &CxlCore<'_>, queues: Queues, asked: &Throughput) {
    let mut host = Host::new(queues, *core, asked.design.requests.tx_signal);
    let mut buffers = [Address(0); 32];
    let (mut payload, mut number) = (vec![1; asked.bytes], 0_u64);
    loop {
        let count = host.buf_alloc(asked.bytes as u64, &mut buffers);
        for at in &buffers[..count] {
            number += 1;
            match asked.design.store {
                // A word of each line: the host is not to be what is measured, and the line is the host's all the same.
                Store::Cached => {
                    (0..lines_of(asked.bytes as u64)).for_each(|line| core.store(at.lines(line), number));
                }
                Store::Nontemporal => {
                    payload[..8].copy_from_slice(&number.to_le_bytes());
                    host.write_packet(*at, &payload, Store::Nontemporal);
                }
            }
        }
        let packets: Vec<Packet> = buffers[..count].iter().map(|at| Packet::new(*at, asked.bytes as u16)).collect();
        let sent = host.tx_burst(&packets);
        host.buf_free(&buffers[sent..count]);
        if sent == 0 {
            core.spin();
        }
    }
}

/// The device's transmit side of one ring: from when until when.
fn take<D: Device>(face: D, engine: &CxlDevice<'_>, queues: Queues, asked: &Throughput) -> Span {
    let mut transmitter = Transmitter::new(queues, face, asked.design.requests, asked.design.transmit_batch);
    if asked.design.device_bias {
        let bytes = queues.shape.buffers * queues.shape.buffer_bytes;
        engine.switch_bias(queues.tx_buffers, bytes, Bias::Device, true);
    }
    engine.wait_until(Time::from_nanoseconds(100_000));
    let ((warm, counting), mut begin) = (asked.of_ring(), Moment::of(engine, 0));
    let mut through = 0;
    while through < warm + counting {
        if through <= warm {
            begin = Moment::of(engine, through);
        }
        let taken = transmitter.take(|_| ()) as u64;
        through += taken;
        match (taken, asked.design.attachment) {
            (0, Attachment::Dma) => engine.spin_until(Time::NEVER),
            (0, Attachment::Cxl) => engine.work(1),
            _ => {}
        }
    }
    Span::new(begin, Moment::of(engine, through))
}
