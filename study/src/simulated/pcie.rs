//! Packets through the ring over PCIe and back: host cores, and the NIC chip behind the link with a program for each queue pair.
//!
//! Utilisation and bytes of the outcome are those of the PCIe link, from the host to the NIC and back; nothing crosses between
//! the sockets.

mod fetched;
mod on_chip;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use conic_fabric::{Device, Layout, MemoryType, Time};
use conic_interface::ring;
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::Chip;
use conic_sim::{Options, Role, Simulation};

use super::Observer;
use super::application::{Results, Thread, application, outcome, start_of};
use crate::workload::{Loopback, LoopbackOutcome};
use on_chip::{OnChip, Places};

/// Descriptors of each ring.
const DESCRIPTORS: u64 = 1024;

/// Runs a loopback over PCIe.
pub(super) fn loopback(question: &Loopback, observer: &mut dyn Observer) -> Result<LoopbackOutcome, String> {
    let name = &question.machine.name;
    let Some(nic) = question.machine.nic.clone().filter(|_| question.machine.pcie.is_some()) else {
        return Err(format!(
            "{name} has no PCIe link with a NIC behind it: take a platform that has one, such as icx-cx6"
        ));
    };
    let shape = ring::Shape {
        descriptors: DESCRIPTORS,
        buffers: (2 * question.window).max(DESCRIPTORS) + 2 * DESCRIPTORS,
        rx_signal: ring::RxSignal::DescriptorDone,
        host_written_registers: MemoryType::Uncached,
        ..ring::Shape::for_packets(u64::from(question.packet_size)).map_err(|error| error.to_string())?
    };
    let mut layout = Layout::new();
    let pairs: Result<Vec<_>, _> = (0..question.threads).map(|_| shape.place(&mut layout)).collect();
    let pairs = pairs.map_err(|error| error.to_string())?;
    let options = Options { seed: question.seed, ..Options::default() };
    let mut simulation = Simulation::new(&question.machine, &layout, options);
    let results = Rc::new(RefCell::new(Results::default()));
    let chip = Rc::new(RefCell::new(Chip::new(&nic)));
    for (thread, pair) in pairs.into_iter().enumerate() {
        let start = start_of(question.seed, thread as u64);
        let (results, question_) = (Rc::clone(&results), question.clone());
        let host = simulation.core(&format!("host core {thread}"), 0, Role::Main, start, move |core| {
            // Host cores and queues of the NIC are made in pairs.
            let thread = Thread { number: thread, nic: Some(core.agent() + 1) };
            application(&question_, core, Box::new(pair.host(core)), thread, &results);
        });
        let (chip, nic, places) = (Rc::clone(&chip), nic.clone(), Places::find(&layout, thread, shape));
        simulation.device(&format!("NIC queue {thread}"), Role::Service, start, move |device| {
            turn_round(&pair, OnChip::new(device, &nic, places), &chip, &nic);
        });
        simulation.machine().borrow_mut().set_prefetchers(host, question.prefetching.host);
    }
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run().map_err(|failure| failure.to_string())?;
    observer.ends(&mut simulation.machine().borrow_mut());
    let machine = simulation.machine().borrow();
    let results = results.borrow();
    Ok(outcome(question, &results, machine.operations(), machine.events(), machine.now()))
}

/// What one queue pair's part of the chip does, for ever: takes packets as their reads are done, passes them through the chip,
/// and writes each to the host when the chip is done with it. Many are in the chip at once.
fn turn_round(pair: &ring::QueuePair, on_chip: OnChip<'_, '_>, chip: &RefCell<Chip>, parameters: &NicParameters) {
    let mut nic = pair.nic(on_chip);
    let mut frame = vec![0; pair.shape().buffer_bytes as usize];
    let mut inside: VecDeque<(Time, Box<[u8]>)> = VecDeque::new();
    let mut unannounced = 0;
    loop {
        nic.device().look();
        // The host posts blank buffers before any packet comes, and the chip fetches them as soon as they are posted.
        nic.poll_rx();
        while nic.poll_tx() != 0 && nic.device().has_payload() {
            let Some(length) = nic.take_tx(&mut frame) else { break };
            let now = nic.device().now().picoseconds();
            let done = chip.borrow_mut().turn_round(length as u32, now);
            inside.push_back((Time::from_picoseconds(done), frame[..length].into()));
            unannounced += 1;
        }
        let now = nic.device().now();
        while let Some((_, packet)) = inside.front().filter(|(done, _)| *done <= now) {
            if nic.rx_push(packet).is_err() {
                break;
            }
            inside.pop_front();
        }
        if unannounced >= parameters.descriptor_batch || unannounced > 0 && nic.next_tx_length().is_none() {
            unannounced = 0;
            nic.flush();
        }
        // A packet that is done but has no blank buffer waits for the news of one.
        let next = inside.front().map_or(Time::NEVER, |&(done, _)| done);
        let next = if next <= now { Time::NEVER } else { next };
        nic.device().wait(next);
    }
}
