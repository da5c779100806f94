//! Each direction alone, as fast as it goes: packets without end, descriptors always posted, and a host that does not hold it up.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Time, lines_of};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{Host, MOST_IN_A_BATCH, Queues, Receiver, Signal, Store, Transmitter};
use conic_sim::cxl::{Counters, CxlCore, CxlDevice, CxlParameters, CxlSimulation, Machine};
use conic_sim::protocol::cxl::Bias;
use conic_sim::{Failure, Role};

use super::loopback::{Attachment, Design, Landings, ahead, place};

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

/// A moment at which a number of packets are through: both ends of what counts are of the same kind.
#[derive(Clone, Debug)]
struct Moment {
    at: Time,
    /// What had been counted until then.
    counters: Counters,
    /// Packets that had come out at the other end by then.
    packets: u64,
}

impl Moment {
    fn of(at: Time, machine: &RefCell<Machine>, packets: u64) -> Moment {
        Moment { at, counters: machine.borrow().counters.clone(), packets }
    }
}

/// Packets of all rings together, and when those that count began and ended.
#[derive(Debug)]
struct Progress {
    /// Packets before the first that counts, and those that count.
    packets: (u64, u64),
    through: u64,
    begin: Option<Moment>,
    end: Option<Moment>,
}

impl Progress {
    fn of(question: &Throughput) -> Rc<RefCell<Progress>> {
        Rc::new(RefCell::new(Progress { packets: question.packets, through: 0, begin: None, end: None }))
    }

    /// Some more of a ring are through.
    fn note(&mut self, at: Time, machine: &RefCell<Machine>, packets: u64) {
        let (warm, counting) = self.packets;
        self.through += packets;
        if self.begin.is_none() || self.through <= warm {
            self.begin = Some(Moment::of(at, machine, self.through));
        } else if self.end.is_none() && self.through >= warm + counting {
            self.end = Some(Moment::of(at, machine, self.through));
        }
    }

    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    fn flow(&self, bytes: usize) -> Flow {
        let (begin, end) = self.begin.as_ref().zip(self.end.as_ref()).expect("all rings go on until it is over");
        let packets = end.packets - begin.packets;
        let took = end.at.since(begin.at).picoseconds();
        let gigabits = 8_000.0 * (bytes as u64 * packets) as f64 / took as f64;
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
    let progress = Progress::of(question);
    for queues in queues {
        let (signal, all) = (question.design.requests.tx_signal, Rc::clone(&progress));
        simulation.core("host", Role::Main, move |core| discard(core, queues, signal, &all));
        let asked = question.clone();
        simulation.device("receive side", Role::Service, move |device| match asked.design.attachment {
            Attachment::Cxl => deliver(*device, device, queues, &asked),
            Attachment::Dma => deliver(device.dma(), device, queues, &asked),
        });
    }
    simulation.run()?;
    let flow = progress.borrow().flow(question.bytes);
    Ok(flow)
}

/// The device's receive side of one ring, which never ends.
fn deliver<D: Device>(face: D, engine: &CxlDevice<'_>, queues: Queues, asked: &Throughput) {
    let batch = asked.design.receive_batch.min(MOST_IN_A_BATCH);
    let ahead = ahead(&asked.machine, asked.design.homes.rx_ring, asked.design.rings);
    let mut receiver = Receiver::new(queues, face, asked.design.requests, ahead);
    let frames = vec![vec![1; asked.bytes]; batch];
    engine.wait_until(Time::from_nanoseconds(50_000));
    loop {
        let delivered = receiver.deliver(&frames);
        receiver.prefetch();
        if delivered == 0 {
            engine.spin();
        }
    }
}

/// A host that looks at no packet, until enough of all rings have come. What counts is when their completions were there: a device hands on
/// more than is through, and a host finds many at once.
fn discard(core: &CxlCore<'_>, queues: Queues, signal: Signal, all: &RefCell<Progress>) {
    let mut host = Host::new(queues, *core, signal);
    let mut packets = [Packet::BLANK; 64];
    core.machine().borrow_mut().watch(queues.rx_ring, queues.shape.descriptors);
    let mut landings = Landings::of(queues);
    while !all.borrow().is_over() {
        let count = host.rx_burst(&mut packets);
        if count == 0 {
            core.spin();
            continue;
        }
        let landed = landings.next(core, count);
        all.borrow_mut().note(*landed.last().expect("there is one"), core.machine(), count as u64);
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
    let progress = Progress::of(question);
    for queues in queues {
        let asked = question.clone();
        simulation.core("host", Role::Service, move |core| repeat(core, queues, &asked));
        let (asked, all) = (question.clone(), Rc::clone(&progress));
        simulation.device("transmit side", Role::Main, move |device| match asked.design.attachment {
            Attachment::Cxl => take(*device, device, queues, &asked, &all),
            Attachment::Dma => take(device.dma(), device, queues, &asked, &all),
        });
    }
    simulation.run()?;
    let flow = progress.borrow().flow(question.bytes);
    Ok(flow)
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

/// The device's transmit side of one ring, until enough of all rings have been taken.
fn take<D: Device>(face: D, engine: &CxlDevice<'_>, queues: Queues, asked: &Throughput, all: &RefCell<Progress>) {
    let mut transmitter = Transmitter::new(queues, face, asked.design.requests, asked.design.transmit_batch);
    if asked.design.device_bias {
        let bytes = queues.shape.buffers * queues.shape.buffer_bytes;
        engine.switch_bias(queues.tx_buffers, bytes, Bias::Device, true);
    }
    engine.wait_until(Time::from_nanoseconds(100_000));
    while !all.borrow().is_over() {
        let taken = transmitter.take(|_| ()) as u64;
        match (taken, asked.design.attachment) {
            (0, Attachment::Dma) => engine.spin_until(Time::NEVER),
            (0, Attachment::Cxl) => engine.work(1),
            _ => all.borrow_mut().note(engine.now(), engine.machine(), taken),
        }
    }
}
