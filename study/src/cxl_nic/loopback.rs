//! Packets from a generator on the device through a core of the host, which copies each, and back to the device.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, LINE_BYTES, Layout, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{
    Homes, Host, MOST_IN_A_BATCH, PushControl, Queues, Receiver, Requests, Shape, Signal, Store, Transmitter,
};
use conic_sim::cxl::{Counters, CxlCore, CxlDevice, CxlParameters, CxlSimulation, Machine};
use conic_sim::protocol::cxl::Bias;
use conic_sim::{Failure, Role};

use crate::simulated::{Observer, ROUND_TRIP};

/// How the device reaches the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attachment {
    /// CXL.cache.
    Cxl,
    /// DMA over PCIe.
    Dma,
}

/// What a NIC is and where its structures lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Design {
    /// How it reaches the host.
    pub attachment: Attachment,
    /// The request type of each step.
    pub requests: Requests,
    /// In whose memory the structures lie.
    pub homes: Homes,
    /// How the host writes packets.
    pub store: Store,
    /// Transmit buffers of the device's memory are read without asking the host.
    pub device_bias: bool,
    /// Packets to the host that one completion speaks for at most: those that are due together.
    pub receive_batch: usize,
    /// Packets from the host that are fetched at once, and that one completion speaks for, at most.
    pub transmit_batch: usize,
    /// Ring pairs, each with engines of the device and a core of its own.
    pub rings: usize,
    /// The host sleeps until the device interrupts it, instead of polling.
    pub interrupts: bool,
    /// After how many of its cycles the device writes a pushed packet to memory (section 5.3); 0: it does not.
    pub write_back: u32,
}

impl Design {
    /// The paper's type-1 NIC with one of its eight combinations of request types.
    pub fn combination(number: u32) -> Design {
        Design {
            attachment: Attachment::Cxl,
            requests: Requests::combination(number),
            homes: Homes::HOST,
            store: Store::Cached,
            device_bias: false,
            receive_batch: 1,
            transmit_batch: 1,
            rings: 1,
            interrupts: false,
            write_back: 0,
        }
    }

    /// A NIC behind PCIe.
    pub fn pcie() -> Design {
        Design { attachment: Attachment::Dma, requests: Requests::DMA, ..Design::combination(0) }
    }
}

/// A loopback.
#[derive(Clone, Debug)]
pub struct Loopback {
    /// The machine.
    pub machine: CxlParameters,
    /// The NIC.
    pub design: Design,
    /// Bytes of a packet.
    pub bytes: usize,
    /// Time between two packets that count, on average; those before come every 5 us if that is sooner.
    pub gap: Time,
    /// Packets that come one right behind the other, as those do that a program sends in one call; then none for as many gaps.
    pub together: u64,
    /// Packets before the first that counts, and those that count. With fewer than [`around`] before, what is found is how caches fill.
    pub packets: (u64, u64),
    /// Which of many sequences of moments the packets are made at.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopbackOutcome {
    /// Each packet that counts, from its generation to its return, in picoseconds.
    pub latencies: Vec<u64>,
    /// Of those, how long the host had the packet, in picoseconds: from when its completion was in the host's memory until the host
    /// began to ring the doorbell for it; without a doorbell, until its transmit call was over.
    pub at_host: Vec<u64>,
    /// What crossed the links from when the first of them was back until the last was.
    pub counters: Counters,
    /// When the first packet that counts was back, and when the last was.
    pub back: Option<(Time, Time)>,
    /// What had crossed them when the first of them was back.
    before: Counters,
}

impl LoopbackOutcome {
    /// Packets a second that came back; none where fewer than two count.
    pub fn packets_per_second(&self) -> Option<f64> {
        let (first, last) = self.back.filter(|(first, last)| first < last)?;
        Some(self.counted() as f64 / last.since(first).seconds())
    }

    /// Packets whose messages were counted: all but the first, with whose return it begins.
    pub fn counted(&self) -> u64 {
        self.latencies.len().saturating_sub(1) as u64
    }

    /// One more that counts is back.
    fn count(&mut self, made: Time, out: Time) {
        self.latencies.push(out.since(made).picoseconds());
        let (first, last) = self.back.unwrap_or((out, out));
        self.back = Some((first.min(out), last.max(out)));
    }
}

/// What a recording calls a packet's stretches, in their order: from when it is made until the NIC begins to deliver it, ...
pub const RECEIVE_STAGE: &str = "receive stage";
/// ... from when its completion is there for the host until the host's transmit call is over, ...
pub const AT_HOST: &str = "at the host";
/// ... and from when the NIC has it again until it is out. [`ROUND_TRIP`] is from the beginning of the first to the end of this.
pub const TRANSMIT_STAGE: &str = "transmit stage";

/// The longest time between two packets (or bursts, a packet's share of it) that do not count: longer than one is under way, and shorter
/// than what is asked for, in which a device that polls does nothing else.
const WARMING_GAP: Time = Time::from_nanoseconds(5_000);

/// Packets that the host takes at once.
const BURST: usize = 32;

/// A packet's bytes: its number, when it was made, and what follows from both.
pub(super) fn fill(frame: &mut [u8], number: u64, made: Time) {
    for (place, byte) in frame.iter_mut().enumerate() {
        *byte = (number as usize ^ place.wrapping_mul(31)) as u8;
    }
    frame[..8].copy_from_slice(&number.to_le_bytes());
    frame[8..16].copy_from_slice(&made.picoseconds().to_le_bytes());
}

fn word(frame: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(frame[8 * place..8 * place + 8].try_into().expect("eight bytes"))
}

fn shape(design: &Design, bytes: usize) -> Shape {
    Shape { homes: design.homes, ..Shape::for_packets(bytes as u64) }
}

/// Descriptors that the receive side of a ring keeps read ahead where so many are posted: as many as the device's cache has room for, of
/// the host's lines or of its own, among all rings. (Section 4.2 has it prefetch those that are available.) Over PCIe the same.
pub(super) fn ahead(machine: &CxlParameters, ring: Home, rings: usize) -> usize {
    let bytes = if ring == Home::Host { machine.dcoh.hmc_bytes } else { machine.dcoh.dmc_bytes };
    (bytes / LINE_BYTES) as usize / rings.max(1)
}

/// Packets of a size that go once round the buffers of all rings of a design, which is more than once round the rings. Behind them every
/// line has been where it will be; before them buffers are in nobody's caches.
pub fn around(design: &Design, bytes: usize) -> u64 {
    design.rings as u64 * shape(design, bytes).buffers
}

/// A design's queue pairs, one a ring, in a layout of their own.
pub(super) fn place(design: &Design, bytes: usize) -> (Layout, Vec<Queues>) {
    let mut layout = Layout::new();
    let shape = shape(design, bytes);
    let place = |_| shape.place(&mut layout).expect("a shape of packets that fit");
    let queues = (0..design.rings).map(place).collect();
    (layout, queues)
}

/// One ring's part of a question about all: its packets, and the time between them.
fn of_ring(question: &Loopback) -> Loopback {
    let rings = question.design.rings as u64;
    let part = |packets: u64| packets.div_ceil(rings);
    let gap = Time::from_picoseconds(question.gap.picoseconds() * rings);
    Loopback { gap, packets: (part(question.packets.0), part(question.packets.1)), ..question.clone() }
}

/// Runs a loopback.
///
/// # Errors
///
/// The simulator's, where it never ends.
///
/// # Panics
///
/// If a packet comes back changed or out of order.
pub fn loopback(question: &Loopback) -> Result<LoopbackOutcome, Failure> {
    observed_loopback(question, &mut ())
}

/// The same where somebody looks at the machine. What a recording calls [`ROUND_TRIP`], [`RECEIVE_STAGE`], [`AT_HOST`] and
/// [`TRANSMIT_STAGE`] is each packet's, those that do not count included, in the packets' order.
///
/// # Errors
///
/// The simulator's, where it never ends.
///
/// # Panics
///
/// If a packet comes back changed or out of order.
pub fn observed_loopback(
    question: &Loopback,
    observer: &mut dyn Observer<Machine>,
) -> Result<LoopbackOutcome, Failure> {
    let (layout, queues) = place(&question.design, question.bytes);
    let mut simulation = CxlSimulation::new(&question.machine, &layout);
    let outcome = Rc::new(RefCell::new(LoopbackOutcome::default()));
    let rung = Rc::new(RefCell::new(Vec::new()));
    let each = of_ring(question);
    for (ring, queues) in queues.into_iter().enumerate() {
        let (asked, into, rings) = (each.clone(), Rc::clone(&outcome), Rc::clone(&rung));
        simulation.core("host", Role::Service, move |core| serve(core, queues, &asked, &into, &rings));
        let asked = each.clone();
        simulation.device("receive side", Role::Service, move |device| match asked.design.attachment {
            Attachment::Cxl => generate(*device, device, ring, queues, &asked),
            Attachment::Dma => generate(device.dma(), device, ring, queues, &asked),
        });
        let (asked, into) = (each.clone(), Rc::clone(&outcome));
        simulation.device("transmit side", Role::Main, move |device| match asked.design.attachment {
            Attachment::Cxl => take_back(*device, device, queues, &asked, &into),
            Attachment::Dma => take_back(device.dma(), device, queues, &asked, &into),
        });
    }
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run()?;
    observer.ends(&mut simulation.machine().borrow_mut());
    {
        let machine = simulation.machine().borrow();
        let left = |doorbell: &Rung| machine.rang(doorbell.core, doorbell.number).map(|at| at.since(doorbell.landed));
        let had: Vec<u64> = rung.borrow().iter().filter_map(left).map(Time::picoseconds).collect();
        outcome.borrow_mut().at_host.extend(had);
    }
    drop(simulation);
    Ok(outcome.take())
}

/// A packet that counts, and the doorbell that was rung for it, which leaves the core when the stores before it have.
struct Rung {
    landed: Time,
    core: u16,
    number: usize,
}

/// When the packets of a ring were there, one after the other. Completions come in order; a line that tells of several packets stands in the
/// first one's place, where the others' are older.
pub(super) struct Landings {
    ring: Address,
    descriptors: u64,
    seen: u64,
    last: Time,
}

impl Landings {
    /// Of the receive ring of a queue pair, from its first packet on.
    pub(super) fn of(queues: Queues) -> Landings {
        Landings { ring: queues.rx_ring, descriptors: queues.shape.descriptors, seen: 0, last: Time::ZERO }
    }

    /// Of the next packets, so many, and of none behind them.
    pub(super) fn next(&mut self, core: &CxlCore<'_>, count: usize) -> Vec<Time> {
        let begins = self.seen;
        self.seen += count as u64;
        let of = |position: u64| {
            let own = core.machine().borrow().landed(self.ring.lines(position % self.descriptors));
            self.last = self.last.max(own);
            self.last
        };
        (begins..begins + count as u64).map(of).collect()
    }
}

/// The host: copies each packet of a burst into a transmit buffer, and sends the burst at once.
fn serve(
    core: &CxlCore<'_>,
    queues: Queues,
    question: &Loopback,
    outcome: &RefCell<LoopbackOutcome>,
    rung: &RefCell<Vec<Rung>>,
) {
    let mut host = Host::new(queues, *core, question.design.requests.tx_signal);
    set_write_back(core, queues, question.design.write_back);
    core.machine().borrow_mut().watch(queues.rx_ring, queues.shape.descriptors);
    let mut landings = Landings::of(queues);
    let mut packets = [Packet::BLANK; BURST];
    let (mut copy, mut to) = (vec![0; question.bytes], [Address(0); BURST]);
    loop {
        let count = host.rx_burst(&mut packets);
        if count == 0 {
            if question.design.interrupts {
                core.await_interrupt();
            } else {
                core.spin();
            }
            continue;
        }
        let landed = landings.next(core, count);
        let mut free = 0;
        while free < count {
            let more = host.buf_alloc(question.bytes as u64, &mut to[free..count]);
            free += more;
            if more == 0 {
                // The device still reads the others.
                core.spin();
            }
        }
        let mut counting = Vec::with_capacity(count);
        for (packet, to) in packets[..count].iter().zip(&to) {
            core.read_bytes(packet.address(), &mut copy[..packet.length().into()]);
            host.write_packet(*to, &copy[..packet.length().into()], question.design.store);
            counting.push(word(&copy, 0) >= question.packets.0);
        }
        let copies: Vec<Packet> =
            packets[..count].iter().zip(&to).map(|(packet, to)| Packet::new(*to, packet.length())).collect();
        let mut sent = 0;
        while sent < count {
            let more = host.tx_burst(&copies[sent..]);
            note_at_host(core, &landed[sent..sent + more]);
            let counted = (sent..sent + more).filter(|place| counting[*place]).map(|place| landed[place]);
            match question.design.requests.tx_signal {
                Signal::Doorbell => {
                    let (core, number) = (core.number(), core.register_writes() - 1);
                    rung.borrow_mut().extend(counted.map(|landed| Rung { landed, core, number }));
                }
                Signal::Descriptor | Signal::Tail => {
                    let now = core.now();
                    outcome.borrow_mut().at_host.extend(counted.map(|landed| now.since(landed).picoseconds()));
                }
            }
            sent += more;
            if more == 0 {
                core.spin();
            }
        }
        host.buf_free(&packets[..count].iter().map(|packet| packet.address()).collect::<Vec<Address>>());
    }
}

/// Notes of some packets of a burst that they were at the host until now.
fn note_at_host(core: &CxlCore<'_>, landed: &[Time]) {
    landed.iter().for_each(|&since| core.note_span(AT_HOST, since, core.now()));
}

/// Tells the device after how many cycles it writes pushed packets back, where it does.
pub(super) fn set_write_back(core: &CxlCore<'_>, queues: Queues, cycles: u32) {
    if cycles > 0 {
        PushControl::new(*core, vec![queues]).write_back_after(cycles);
    }
}

/// Waits until a time, and writes back meanwhile what is due.
pub(super) fn wait_until<D: Device>(engine: &CxlDevice<'_>, receiver: &mut Receiver<D>, until: Time) {
    while let Some(due) = receiver.next_due().filter(|due| *due <= until) {
        engine.wait_until(due);
        receiver.prefetch();
    }
    engine.wait_until(until);
}

/// The generator and the device's receive side: packets at times without a period.
fn generate<D: Device>(face: D, engine: &CxlDevice<'_>, ring: usize, queues: Queues, question: &Loopback) {
    let stage = Time::from_picoseconds(engine.machine().borrow().parameters().device.receive_stage);
    let batch = question.design.receive_batch.clamp(1, MOST_IN_A_BATCH);
    let ahead = ahead(&question.machine, question.design.homes.rx_ring, question.design.rings);
    let mut receiver = Receiver::new(queues, face, question.design.requests, ahead);
    let mut frames = vec![vec![0; question.bytes]; batch];
    // The host has posted its descriptors, and the caches are at rest.
    let begin = Time::from_nanoseconds(50_000);
    if question.design.device_bias {
        let bytes = queues.shape.buffers * queues.shape.buffer_bytes;
        engine.switch_bias(queues.tx_buffers, bytes, Bias::Device, true);
    }
    engine.wait_until(begin);
    receiver.prefetch();
    let together = question.together.max(1);
    let gap = question.gap.picoseconds() * together;
    let line_time = engine.machine().borrow().parameters().dma.line_time;
    let packet_time = (question.bytes as u64).div_ceil(LINE_BYTES) * line_time;
    // The rings' packets come one after the other.
    let begin = begin + Time::from_picoseconds(gap / question.design.rings as u64 * ring as u64);
    // A packet is made when it is due, even where the one before it still waits for a descriptor.
    let warming = question.packets.0 / together;
    let sooner = gap.min(WARMING_GAP.picoseconds() * together);
    let made = |number: u64| {
        let (burst, place) = (number / together, number % together);
        let (due, gap) = match burst.checked_sub(warming) {
            None => ((burst + 1) * sooner, sooner),
            Some(counting) => (warming * sooner + (counting + 1) * gap, gap),
        };
        // A golden ratio's multiples fall evenly into every phase.
        let turn = burst.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(conic_sim::link::mix(question.seed));
        let phase = (turn >> 40) % (gap / 4).max(1);
        begin + Time::from_picoseconds(due + phase + place * packet_time)
    };
    let (mut next, all) = (0, question.packets.0 + question.packets.1);
    while next < all {
        wait_until(engine, &mut receiver, made(next) + stage);
        // Nothing waits for a batch to be full: what has come by now goes together.
        let behind = (next + 1..all).take(batch - 1).take_while(|number| made(*number) + stage <= engine.now());
        let count = 1 + behind.count();
        for (number, frame) in (next..).zip(&mut frames[..count]) {
            fill(frame, number, made(number));
        }
        let begins = engine.now();
        let delivered = receiver.deliver(&frames[..count]);
        (next..).take(delivered).for_each(|number| engine.note_span(RECEIVE_STAGE, made(number), begins));
        if delivered == 0 {
            receiver.device().spin();
            continue;
        }
        next += delivered as u64;
        if question.design.interrupts {
            engine.interrupt(ring as u16);
        }
        receiver.prefetch();
    }
    loop {
        engine.spin_until(receiver.next_due().unwrap_or(Time::NEVER));
        receiver.prefetch();
    }
}

/// The device's transmit side, which has the packets' time stamps.
fn take_back<D: Device>(
    face: D,
    engine: &CxlDevice<'_>,
    queues: Queues,
    question: &Loopback,
    outcome: &RefCell<LoopbackOutcome>,
) {
    let stage = Time::from_picoseconds(engine.machine().borrow().parameters().device.transmit_stage);
    let mut transmitter = Transmitter::new(queues, face, question.design.requests, question.design.transmit_batch);
    let mut right = vec![0; question.bytes];
    let mut next = 0;
    // The ring is looked at when there is something in it: the host's first packet comes after this.
    engine.wait_until(Time::from_nanoseconds(40_000));
    while next < question.packets.0 + question.packets.1 {
        let engine_ = *engine;
        let taken = transmitter.take(|frame| {
            let (number, made) = (word(frame, 0), Time::from_picoseconds(word(frame, 1)));
            fill(&mut right, number, made);
            assert!(number == next && frame == right, "packet {next} came back wrong");
            // The first of all rings.
            if number >= question.packets.0 && outcome.borrow().back.is_none() {
                let mut machine = engine_.machine().borrow_mut();
                machine.restart_queues();
                outcome.borrow_mut().before = machine.counters.clone();
            }
            let (back, out) = (engine_.now(), engine_.now() + stage);
            engine_.note_span(TRANSMIT_STAGE, back, out);
            engine_.note_span(ROUND_TRIP, made, out);
            if number >= question.packets.0 {
                outcome.borrow_mut().count(made, out);
            }
            next += 1;
        });
        match (taken, question.design.attachment) {
            (0, Attachment::Dma) => engine.spin_until(Time::NEVER),
            (0, Attachment::Cxl) => engine.work(1),
            _ => {}
        }
    }
    let mut outcome = outcome.borrow_mut();
    outcome.counters = engine.machine().borrow().counters.since(&outcome.before);
}
