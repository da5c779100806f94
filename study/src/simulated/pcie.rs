//! Packets through the ring over PCIe and back: host cores, and the NIC chip behind the link with a program for each queue pair.
//!
//! Utilisation and bytes of the outcome are those of the PCIe link, from the host to the NIC and back; nothing crosses between
//! the sockets.

mod fetched;
mod on_chip;
mod rings;
#[cfg(test)]
mod segments;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use conic_fabric::{Layout, Time};
use conic_interface::ring;
use conic_load::{Account, FarEnd, Traffic};
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::Chip;
use conic_sim::{Options, Role, SimDevice, Simulation};

use super::application::{Ends, NICS, Results, application, generator, measure, place_objects, start_of};
use super::loopback::{finish, keeps_metadata};
use super::{Observer, engines};
use crate::workload::{Application, DESCRIPTORS, Loopback, LoopbackOutcome, Serving};
pub(super) use rings::Pair;
use rings::Rings;

/// Runs a loopback over PCIe.
pub(super) fn loopback(question: &Loopback, observer: &mut dyn Observer) -> Result<LoopbackOutcome, String> {
    let name = &question.machine.name;
    let Some(nic) = question.machine.nic.clone().filter(|_| question.machine.pcie.is_some()) else {
        return Err(format!(
            "{name} has no PCIe link with a NIC behind it: take a platform that has one, such as icx-cx6"
        ));
    };
    if question.switches.serving != Serving::OneEach {
        return Err("over PCIe the chip serves all queue pairs: leave out how a NIC core serves them".to_owned());
    }
    if question.switches.engines.nic {
        return Err("over PCIe the chip moves payloads itself: leave out the NIC's copy engine".to_owned());
    }
    engines::check(question)?;
    keeps_metadata(question)?;
    let size = u64::from(question.packet_size);
    let shape = ring::Shape {
        descriptors: DESCRIPTORS,
        buffers: question.ring_buffers(),
        ..ring::Shape::for_packets(size).map_err(|error| error.to_string())?.with_pooled_metadata(size)
    };
    let mut layout = Layout::new();
    // A program on all cores of the socket has a queue for each, whichever of them are looked at.
    let queues = question.threads.max(question.machine.core.cores as usize);
    let pairs: Result<Vec<_>, _> =
        (0..question.threads).map(|_| Pair::place(&mut layout, shape, &nic, queues)).collect();
    let pairs = pairs?;
    let objects = place_objects(question, &mut layout);
    let options = Options { seed: question.seed, ..Options::default() };
    let mut simulation = Simulation::new(&question.machine, &layout, options);
    let results = Rc::new(RefCell::new(Results::default()));
    let chip = Rc::new(RefCell::new(Chip::new(&nic)));
    let (host_role, nic_role) = match question.switches.application {
        Application::Loopback | Application::Copying => (Role::Main, Role::Service),
        Application::Forwarding(_) => (Role::Service, Role::Main),
    };
    let mut hosts = Vec::new();
    for (thread, pair) in pairs.into_iter().enumerate() {
        let start = start_of(question.seed, thread as u64);
        let ends = Rc::new(Ends::default());
        let (results_, question_, objects_) = (Rc::clone(&results), question.clone(), objects[thread]);
        let ends_ = Rc::clone(&ends);
        let host = simulation.core(&format!("host core {thread}"), 0, host_role, start, move |core| {
            let thread = ends_.thread(thread, objects_);
            application(&question_, core, pair.host(core), thread, &results_);
        });
        let (chip, nic) = (Rc::clone(&chip), nic.clone());
        let (results, question_, ends_) = (Rc::clone(&results), question.clone(), Rc::clone(&ends));
        let start = start + start_of(question.seed, NICS + thread as u64);
        let queue = simulation.device(&format!("NIC queue {thread}"), nic_role, start, move |device| {
            let queue = ChipQueue::new(&pair, device, &nic, &chip);
            let Application::Forwarding(touch) = question_.switches.application else { queue.turn_round() };
            let mut network = ChipNetwork::new(queue, generator(&question_, touch));
            measure(&question_, device, &mut network, ends_.thread(thread, None), &results);
        });
        ends.set(host, Some(queue));
        simulation.machine().borrow_mut().set_prefetchers(host, question.prefetching.host);
        hosts.push(host);
    }
    engines::give(question, &mut simulation, &hosts, (0, &[]));
    finish(question, simulation, observer, &results)
}

/// One queue pair's part of the chip: takes packets as their reads are done and passes them through the chip; many are in the
/// chip at once.
pub(super) struct ChipQueue<'a> {
    rings: Box<dyn Rings + 'a>,
    chip: &'a RefCell<Chip>,
    frame: Vec<u8>,
    /// Whether what is sent comes back from the chip itself.
    turns_round: bool,
    /// Packets in the chip, and when it is done with each.
    inside: VecDeque<(Time, Box<[u8]>)>,
}

impl<'a> ChipQueue<'a> {
    /// A queue pair's part of a chip, which its device's program runs.
    pub(super) fn new(
        pair: &Pair,
        device: &'a SimDevice<'_>,
        parameters: &NicParameters,
        chip: &'a RefCell<Chip>,
    ) -> ChipQueue<'a> {
        let frame = vec![0; pair.longest_packet() as usize];
        let rings = pair.on_chip(device, parameters);
        ChipQueue { rings, chip, frame, turns_round: false, inside: VecDeque::new() }
    }

    /// Takes what the host sends into the chip.
    fn take(&mut self) {
        self.rings.look();
        while let Some(length) = self.rings.take(&mut self.frame) {
            let now = self.rings.now().picoseconds();
            let (mut chip, bytes) = (self.chip.borrow_mut(), length as u32);
            let done = if self.turns_round { chip.turn_round(bytes, now) } else { chip.send(bytes, now) };
            self.inside.push_back((Time::from_picoseconds(done), self.frame[..length].into()));
        }
    }

    /// Tells the host of what was sent, where that is due; then waits for whatever comes next, but no longer than `until`, and
    /// if that is for ever only where it `may_rest`.
    fn report_and_wait(&mut self, until: Time, may_rest: bool) {
        let now = self.rings.now();
        let left_over = self.rings.report();
        // A packet that is done but has no blank buffer waits for the news of one.
        let next = self.inside.front().map(|&(done, _)| done).filter(|&done| done > now);
        let until = [next, left_over].into_iter().flatten().fold(until, Time::min);
        // Where a far end has just had the last packet, it may be that nothing comes until its program has gone on.
        if until.picoseconds() < Time::NEVER.picoseconds() || may_rest {
            self.rings.wait(until);
        }
    }

    /// Writes each packet to the host when the chip is done with it, for ever.
    fn turn_round(mut self) -> ! {
        self.turns_round = true;
        loop {
            self.take();
            let now = self.rings.now();
            while let Some((_, packet)) = self.inside.front().filter(|(done, _)| *done <= now) {
                if !self.rings.deliver(packet) {
                    break;
                }
                self.inside.pop_front();
            }
            self.report_and_wait(Time::NEVER, true);
        }
    }
}

/// A queue pair whose packets come from a far end and go back to it.
pub(super) struct ChipNetwork<'a, E> {
    queue: ChipQueue<'a>,
    far_end: E,
    /// Packets on their way in through the chip, and when it is done with each.
    coming: VecDeque<(Time, Box<[u8]>)>,
}

impl<'a, E: FarEnd> ChipNetwork<'a, E> {
    /// A queue pair and who is behind it.
    pub(super) fn new(queue: ChipQueue<'a>, far_end: E) -> ChipNetwork<'a, E> {
        ChipNetwork { queue, far_end, coming: VecDeque::new() }
    }

    /// Who is behind it.
    pub(super) fn far_end(&self) -> &E {
        &self.far_end
    }

    /// Takes what the far end sends now into the chip.
    fn come(&mut self, now: Time) {
        loop {
            let packets = self.far_end.packets(now);
            if packets.is_empty() {
                return;
            }
            let mut chip = self.queue.chip.borrow_mut();
            for packet in packets {
                let done = chip.come(packet.len() as u32, now.picoseconds());
                self.coming.push_back((Time::from_picoseconds(done), packet.as_slice().into()));
            }
            let count = packets.len();
            self.far_end.delivered(count);
        }
    }
}

impl<E: FarEnd> Traffic for ChipNetwork<'_, E> {
    fn step(&mut self) -> usize {
        let queue = &mut self.queue;
        queue.take();
        let now = queue.rings.now();
        let mut taken = 0;
        while let Some((done, packet)) = queue.inside.front().filter(|(done, _)| *done <= now) {
            self.far_end.came_back(packet, *done);
            queue.inside.pop_front();
            taken += 1;
        }
        self.come(now);
        while let Some((_, packet)) = self.coming.front().filter(|(done, _)| *done <= now) {
            if !self.queue.rings.deliver(packet) {
                break;
            }
            self.coming.pop_front();
        }
        // What is done and was not delivered waits for a buffer, and what is due and was not made for the window.
        let next = [Some(self.far_end.next_due()), self.coming.front().map(|&(done, _)| done)];
        let next = next.into_iter().flatten().filter(|&next| next > now).min();
        self.queue.report_and_wait(next.unwrap_or(Time::NEVER), taken == 0);
        taken
    }
    fn account(&self) -> &Account {
        self.far_end.account()
    }
    fn account_mut(&mut self) -> &mut Account {
        self.far_end.account_mut()
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.far_end.pace(start, interval);
    }
}
