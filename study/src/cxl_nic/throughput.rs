//! Each direction alone, as fast as it goes: packets without end, descriptors always posted, and a host that does not hold it up.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Time, lines_of};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{Host, MOST_IN_A_BATCH, Queues, Receiver, Signal, Store, Transmitter};
use conic_sim::cxl::{Counters, CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::protocol::cxl::Bias;
use conic_sim::{Failure, Role};

use super::loopback::{Attachment, Design, place};

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
    /// Packets that counted.
    pub packets: u64,
    /// What crossed the links while they were under way.
    pub counters: Counters,
}

/// A moment, and what had been counted until then.
#[derive(Clone, Debug)]
struct Moment {
    at: Time,
    counters: Counters,
}

impl Moment {
    fn of(engine: &CxlDevice<'_>) -> Moment {
        Moment { at: engine.now(), counters: engine.machine().borrow().counters.clone() }
    }
}

/// When the first packet that counts was begun, and the last was through; of all rings.
type Span = Option<(Moment, Moment)>;

/// Both spans in one.
fn joined(one: Span, begin: Moment, end: Moment) -> Span {
    let Some((first, last)) = one else { return Some((begin, end)) };
    Some((if begin.at < first.at { begin } else { first }, if end.at > last.at { end } else { last }))
}

impl Throughput {
    /// One ring's part of the packets.
    fn of_ring(&self) -> (u64, u64) {
        let part = |packets: u64| packets.div_ceil(self.design.rings as u64);
        (part(self.packets.0), part(self.packets.1))
    }

    fn flow(&self, span: Span) -> Flow {
        let (begin, end) = span.expect("each ring has added its own");
        let packets = self.of_ring().1 * self.design.rings as u64;
        let gigabits = 8_000.0 * (self.bytes as u64 * packets) as f64 / end.at.since(begin.at).picoseconds() as f64;
        Flow { gigabits, packets, counters: end.counters.since(&begin.counters) }
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
    let span = Rc::new(RefCell::new(None));
    for queues in queues {
        let signal = question.design.requests.tx_signal;
        simulation.core("host", Role::Service, move |core| discard(core, queues, signal));
        let (asked, into) = (question.clone(), Rc::clone(&span));
        simulation.device("receive side", Role::Main, move |device| {
            let (begin, end) = match asked.design.attachment {
                Attachment::Cxl => deliver(*device, device, queues, &asked),
                Attachment::Dma => deliver(device.dma(), device, queues, &asked),
            };
            let before = into.take();
            into.replace(joined(before, begin, end));
        });
    }
    simulation.run()?;
    Ok(question.flow(span.take()))
}

/// The device's receive side of one ring: from when until when.
fn deliver<D: Device>(face: D, engine: &CxlDevice<'_>, queues: Queues, asked: &Throughput) -> (Moment, Moment) {
    let batch = asked.design.receive_batch.min(MOST_IN_A_BATCH);
    let mut receiver = Receiver::new(queues, face, asked.design.requests, 2 * batch.max(8));
    let frames = vec![vec![1; asked.bytes]; batch];
    engine.wait_until(Time::from_nanoseconds(50_000));
    let ((warm, counting), mut begin) = (asked.of_ring(), Moment::of(engine));
    let mut through = 0;
    while through < warm + counting {
        if through <= warm {
            begin = Moment::of(engine);
        }
        let left = (warm + counting - through) as usize;
        let delivered = receiver.deliver(&frames[..batch.min(left)]) as u64;
        through += delivered;
        receiver.prefetch();
        if delivered == 0 {
            engine.spin();
        }
    }
    engine.await_writes();
    (begin, Moment::of(engine))
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
    let span = Rc::new(RefCell::new(None));
    for queues in queues {
        let asked = question.clone();
        simulation.core("host", Role::Service, move |core| repeat(core, queues, &asked));
        let (asked, into) = (question.clone(), Rc::clone(&span));
        simulation.device("transmit side", Role::Main, move |device| {
            let (begin, end) = match asked.design.attachment {
                Attachment::Cxl => take(*device, device, queues, &asked),
                Attachment::Dma => take(device.dma(), device, queues, &asked),
            };
            let before = into.take();
            into.replace(joined(before, begin, end));
        });
    }
    simulation.run()?;
    Ok(question.flow(span.take()))
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
fn take<D: Device>(face: D, engine: &CxlDevice<'_>, queues: Queues, asked: &Throughput) -> (Moment, Moment) {
    let mut transmitter = Transmitter::new(queues, face, asked.design.requests, asked.design.transmit_batch);
    if asked.design.device_bias {
        let bytes = queues.shape.buffers * queues.shape.buffer_bytes;
        engine.switch_bias(queues.tx_buffers, bytes, Bias::Device, true);
    }
    engine.wait_until(Time::from_nanoseconds(100_000));
    let ((warm, counting), mut begin) = (asked.of_ring(), Moment::of(engine));
    let mut through = 0;
    while through < warm + counting {
        if through <= warm {
            begin = Moment::of(engine);
        }
        let taken = transmitter.take(|_| ()) as u64;
        through += taken;
        match (taken, asked.design.attachment) {
            (0, Attachment::Dma) => engine.spin_until(Time::NEVER),
            (0, Attachment::Cxl) => engine.work(1),
            _ => {}
        }
    }
    // The last batch may reach beyond what counts.
    let over = through - warm - counting;
    let part = counting as f64 / (counting + over) as f64;
    let mut end = Moment::of(engine);
    let whole = end.at.since(begin.at).picoseconds() as f64;
    end.at = begin.at + Time::from_picoseconds((whole * part) as u64);
    (begin, end)
}
