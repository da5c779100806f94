//! Each direction alone, as fast as it goes: packets without end, descriptors always posted, and a host that does not hold it up.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{Host, MOST_IN_A_BATCH, Queues, Receiver, Transmitter};
use conic_sim::cxl::{CxlCore, CxlParameters, CxlSimulation};
use conic_sim::protocol::cxl::Bias;
use conic_sim::{Failure, Role};

use super::loopback::{Design, place};

/// One direction at full speed.
#[derive(Clone, Debug)]
pub struct Throughput {
    /// The machine.
    pub machine: CxlParameters,
    /// The NIC, over CXL.
    pub design: Design,
    /// Bytes of a packet.
    pub bytes: usize,
    /// Packets that count; half as many go before.
    pub packets: u64,
}

/// What was found: when the first packet that counts, and the last, was through.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    begin: Time,
    end: Time,
}

impl Throughput {
    /// Gigabits a second.
    fn rate(&self, span: Span) -> f64 {
        8_000.0 * (self.bytes as u64 * self.packets) as f64 / span.end.since(span.begin).picoseconds() as f64
    }
}

/// Gigabits a second from the device to the host.
///
/// # Errors
///
/// The simulator's.
pub fn receive(question: &Throughput) -> Result<f64, Failure> {
    let (layout, queues) = place(&question.design, question.bytes);
    let mut simulation = CxlSimulation::new(&question.machine, &layout);
    let signal = question.design.requests.tx_signal;
    simulation.core("host", Role::Service, move |core| discard(core, queues, signal));
    let span = Rc::new(RefCell::new(Span::default()));
    let (asked, into) = (question.clone(), Rc::clone(&span));
    simulation.device("receive side", Role::Main, move |device| {
        let batch = asked.design.batch.min(MOST_IN_A_BATCH);
        let mut receiver = Receiver::new(queues, *device, asked.design.requests, 2 * batch.max(8));
        let frames = vec![vec![1; asked.bytes]; batch];
        device.wait_until(Time::from_nanoseconds(50_000));
        let (mut through, warm) = (0, asked.packets / 2);
        while through < warm + asked.packets {
            if through <= warm {
                into.borrow_mut().begin = device.now();
            }
            let left = (warm + asked.packets - through) as usize;
            let delivered = receiver.deliver(&frames[..batch.min(left)]) as u64;
            through += delivered;
            receiver.prefetch();
            if delivered == 0 {
                device.spin();
            }
        }
        device.await_writes();
        into.borrow_mut().end = device.now();
    });
    simulation.run()?;
    Ok(question.rate(*span.borrow()))
}

/// A host that looks at no packet.
fn discard(core: &CxlCore<'_>, queues: Queues, signal: conic_interface::cxl::Signal) {
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

/// Gigabits a second from the host to the device. The host's packets are written once: it posts the same buffers again.
///
/// # Errors
///
/// The simulator's.
pub fn transmit(question: &Throughput) -> Result<f64, Failure> {
    let (layout, queues) = place(&question.design, question.bytes);
    let mut simulation = CxlSimulation::new(&question.machine, &layout);
    let (asked, signal) = (question.clone(), question.design.requests.tx_signal);
    simulation.core("host", Role::Service, move |core| {
        let mut host = Host::new(queues, *core, signal);
        let mut buffers = [Address(0); 32];
        let payload = vec![1; asked.bytes];
        let mut written = std::collections::BTreeSet::new();
        loop {
            let count = host.buf_alloc(asked.bytes as u64, &mut buffers);
            for at in &buffers[..count] {
                if written.insert(at.0) {
                    host.write_packet(*at, &payload, asked.design.store);
                }
            }
            let packets: Vec<Packet> = buffers[..count].iter().map(|at| Packet::new(*at, asked.bytes as u16)).collect();
            let sent = host.tx_burst(&packets);
            host.buf_free(&buffers[sent..count]);
            if sent == 0 {
                core.spin();
            }
        }
    });
    let span = Rc::new(RefCell::new(Span::default()));
    let (asked, into) = (question.clone(), Rc::clone(&span));
    simulation.device("transmit side", Role::Main, move |device| {
        let mut transmitter = Transmitter::new(queues, *device, asked.design.requests, asked.design.batch);
        if asked.design.device_bias {
            let bytes = queues.shape.buffers * queues.shape.buffer_bytes;
            device.switch_bias(queues.tx_buffers, bytes, Bias::Device, true);
        }
        device.wait_until(Time::from_nanoseconds(100_000));
        let (mut through, warm) = (0, asked.packets / 2);
        while through < warm + asked.packets {
            if through <= warm {
                into.borrow_mut().begin = device.now();
            }
            let taken = transmitter.take(|_| ()) as u64;
            through += taken;
            if taken == 0 {
                device.work(1);
            }
        }
        // The last batch may reach beyond what counts.
        let over = through - warm - asked.packets;
        let mut span = into.borrow_mut();
        let part = asked.packets as f64 / (asked.packets + over) as f64;
        let whole = device.now().since(span.begin).picoseconds() as f64;
        span.end = span.begin + Time::from_picoseconds((whole * part) as u64);
    });
    simulation.run()?;
    Ok(question.rate(*span.borrow()))
}
