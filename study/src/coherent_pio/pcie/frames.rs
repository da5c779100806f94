//! A NIC's two directions, its port looped back: from the CPU having a frame in its registers to the frame's last beat at the
//! port, and from that beat, when it has come back, until the CPU has read the frame.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Core, Device as _, Layout, MemoryType, Time};
use conic_interface::pcie_pio;
use conic_interface::xdma::{Channel, Completion, Direction, Fetched, Shape};
use conic_sim::parameters::FpgaParameters;
use conic_sim::{Failure, Options, Parameters, Role, SimCore, SimDevice, Simulation};

use super::super::calling::fill;
use super::super::frames::LONGEST_FRAME;
use super::super::port::{Port, pause, rest};
use super::calls::{fetched, returned};
use super::{PATIENCE, Transport, fpga, overhead, wait_for_news, wait_until};

/// Frames of one size, one after the other, each sent and received by one thread.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The machine.
    pub machine: Parameters,
    /// How bytes cross.
    pub transport: Transport,
    /// Bytes of a frame, from 8 to 9600.
    pub bytes: usize,
    /// Frames before the first that counts, and those that count.
    pub frames: (u64, u64),
    /// What the pauses between frames are drawn from.
    pub seed: u64,
}

/// Latencies in picoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramesOutcome {
    /// From the CPU having each frame to its last beat at the port.
    pub transmit: Vec<u64>,
    /// From each frame's last beat at the port until the CPU has read it.
    pub receive: Vec<u64>,
}

/// What a run's two programs tell each other outside of the machine: when things happened.
#[derive(Debug, Default)]
struct Witness {
    /// When the host had the present frame.
    had: Cell<u64>,
    /// When its last beat came in at the port.
    beat: Cell<u64>,
    outcome: RefCell<FramesOutcome>,
}

/// A frame that is on its way from the port's output back to the interface.
struct Looped {
    /// When its last beat comes in.
    beat: Time,
    /// When the interface has it.
    there: Time,
    frame: Vec<u8>,
}

/// The port, looped back.
struct Loopback<'a> {
    port: Port,
    fpga: FpgaParameters,
    asked: &'a Frames,
    witness: &'a Witness,
    /// Frames that went out.
    sent: u64,
    looped: Option<Looped>,
}

impl<'a> Loopback<'a> {
    fn new(asked: &'a Frames, witness: &'a Witness) -> Loopback<'a> {
        let fpga = fpga(&asked.machine);
        Loopback { port: Port::of_fpga(&fpga), fpga, asked, witness, sent: 0, looped: None }
    }

    /// The interface has all of a frame that is to go out.
    fn send(&mut self, frame: Vec<u8>, now: Time) {
        let out = self.port.goes_out(now, frame.len());
        let mut right = vec![0; self.asked.bytes];
        fill(&mut right, self.sent);
        assert!(frame == right, "frame {} came out wrong", self.sent);
        if self.sent >= self.asked.frames.0 {
            let latency = out.picoseconds() - self.witness.had.get();
            self.witness.outcome.borrow_mut().transmit.push(latency);
        }
        self.sent += 1;
        let beat = self.port.beat(out + Time::from_picoseconds(self.fpga.loopback));
        self.looped = Some(Looped { beat, there: self.port.comes_in(beat, frame.len()), frame });
    }

    /// The frame that the interface has by now.
    fn came(&mut self, now: Time) -> Option<Vec<u8>> {
        let looped = self.looped.take_if(|looped| looped.there <= now)?;
        self.witness.beat.set(looped.beat.picoseconds());
        Some(looped.frame)
    }

    /// When the next frame is there.
    fn next(&self) -> Option<Time> {
        self.looped.as_ref().map(|looped| looped.there)
    }
}

/// Sends and receives the frames, and checks each by content and sequence.
///
/// # Errors
///
/// The simulator's, where that never ends.
///
/// # Panics
///
/// If the machine has no programmable device behind PCIe, or a frame comes out or in wrong.
pub fn frames(question: &Frames) -> Result<FramesOutcome, Failure> {
    let witness = Rc::new(Witness::default());
    match question.transport {
        Transport::Pio => by_pio(question, &witness)?,
        Transport::Dma(completion) => by_dma(question, completion, &witness)?,
    }
    Ok(witness.outcome.take())
}

/// Sends and receives each frame by `both`, and pauses, when `idle` may do what is not urgent.
fn exchange(
    asked: &Frames,
    core: &SimCore<'_>,
    witness: &Witness,
    mut idle: impl FnMut(),
    mut both: impl FnMut(&[u8], &mut [u8]),
) {
    let (mut frame, mut back) = (vec![0; asked.bytes], vec![0; asked.bytes]);
    for number in 0..asked.frames.0 + asked.frames.1 {
        fill(&mut frame, number);
        witness.had.set(core.now().picoseconds());
        both(&frame, &mut back);
        if number >= asked.frames.0 {
            let latency = core.now().picoseconds() - witness.beat.get();
            witness.outcome.borrow_mut().receive.push(latency);
        }
        assert!(back == frame, "frame {number} came in wrong");
        idle();
        rest(core, pause(asked.seed, number));
    }
}

fn by_pio(question: &Frames, witness: &Rc<Witness>) -> Result<(), Failure> {
    let mut layout = Layout::new();
    let window = pcie_pio::Shape::default().place(&mut layout).expect("a shape that can be");
    let mut simulation = Simulation::new(&question.machine, &layout, Options::default());
    let (asked, seen) = (question.clone(), Rc::clone(witness));
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        let host = RefCell::new(window.host(core));
        exchange(
            &asked,
            core,
            &seen,
            || host.borrow_mut().reclaim(),
            |frame, back| {
                let mut host = host.borrow_mut();
                assert!(
                    host.transmit(frame).expect("a frame that fits"),
                    "the device takes each frame before the next"
                );
                while host.receive(back).is_none() {
                    core.spin();
                }
            },
        );
    });
    let (asked, seen) = (question.clone(), Rc::clone(witness));
    simulation.device("NIC", Role::Service, Time::ZERO, move |device| {
        let port = Loopback::new(&asked, &seen);
        serve_pio(device, window, port);
    });
    simulation.run()
}

fn serve_pio(device: &SimDevice<'_>, window: pcie_pio::NicWindow, mut port: Loopback<'_>) {
    let mut nic = window.nic(device);
    let mut frame = vec![0; LONGEST_FRAME];
    loop {
        while let Some(length) = nic.transmit(&mut frame) {
            port.send(frame[..length].to_vec(), device.now());
        }
        if let Some(frame) = port.came(device.now()) {
            nic.receive(&frame).expect("the host acknowledges each frame");
        }
        nic.idle(PATIENCE);
        match port.next() {
            Some(there) => device.spin_until(there),
            None => wait_for_news(device, nic.withheld_since()),
        }
    }
}

fn by_dma(question: &Frames, completion: Completion, witness: &Rc<Witness>) -> Result<(), Failure> {
    let mut layout = Layout::new();
    let overhead = overhead(&question.machine);
    let (bytes, calls) = (question.bytes as u64, question.frames.0 + question.frames.1);
    let shape = Shape { bytes, structure_lines: overhead.lines(calls, bytes), registers: MemoryType::Uncached };
    let mut place = |direction| shape.place(direction, &mut layout).expect("a transfer that can be");
    let channels = [place(Direction::ToDevice), place(Direction::ToHost)];
    let mut simulation = Simulation::new(&question.machine, &layout, Options::default());
    let (asked, seen) = (question.clone(), Rc::clone(witness));
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        let [mut out, mut back] = channels.map(|channel| channel.driver(core, completion, overhead));
        exchange(
            &asked,
            core,
            &seen,
            || (),
            |frame, into| {
                out.begin_write(frame).expect("it fits, and the last call has returned");
                assert_eq!(returned(core, &mut out), frame.len() as u64, "all of it was sent");
                back.begin_read(into.len() as u64).expect("it fits, and the last call has returned");
                assert_eq!(returned(core, &mut back), into.len() as u64, "all of it came");
                back.read(into);
            },
        );
    });
    let (asked, seen) = (question.clone(), Rc::clone(witness));
    simulation.device("NIC", Role::Service, Time::ZERO, move |device| {
        let port = Loopback::new(&asked, &seen);
        serve_dma(device, channels, completion, port);
    });
    simulation.run()
}

fn serve_dma(device: &SimDevice<'_>, channels: [Channel; 2], completion: Completion, mut port: Loopback<'_>) {
    let engine_time = Time::from_picoseconds(port.fpga.engine_time);
    let [mut out, mut back] = channels.map(|channel| channel.engine(device, completion));
    let mut room: Option<Fetched> = None;
    let mut come: Option<Vec<u8>> = None;
    loop {
        if let Some(list) = fetched(device, &mut out, engine_time) {
            let frame = out.read(&list);
            port.send(frame, device.now());
            wait_until(device, device.now() + engine_time);
            out.done(list.bytes());
        }
        come = come.or_else(|| port.came(device.now()));
        room = room.or_else(|| fetched(device, &mut back, engine_time));
        match (&room, &come) {
            (Some(list), Some(frame)) => {
                back.write(list, frame);
                wait_until(device, device.now() + engine_time);
                back.done(frame.len() as u64);
                (room, come) = (None, None);
            }
            _ => device.spin_until(port.next().unwrap_or(Time::NEVER)),
        }
    }
}
