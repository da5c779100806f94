//! A NIC's two directions: from a frame's last beat at the device's port until the CPU has read it, and back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Core, Device as _, Home, Layout, Time};
use conic_interface::pio::nic::NicLines;
use conic_interface::pio::protocol::Recalls;
use conic_interface::pio::{Behaviour, Device, Features, Homed, Shape};
use conic_sim::eci::{Disturbances, EciCore, EciDevice, EciParameters, EciSimulation, Machine};
use conic_sim::parameters::TimerParameters;
use conic_sim::{Failure, Role};

use super::calling::fill;
use super::port::{Port, pause, rest};
use crate::simulated::Observer;

/// Words of the protocol's sets of lines: two control lines and the overflow lines of a frame of 9600 bytes, in lines of 64 bytes.
const WORDS: usize = 3;

/// The longest frame.
pub const LONGEST_FRAME: usize = 9600;

/// The name of the span that a recording has of each frame: from when the CPU begins to send it, or to ask for it, until it has done
/// so, and a frame that it sends has gone out of the port.
pub const FRAME: &str = "frame";

/// Frames of one size, one after the other.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The machine.
    pub machine: EciParameters,
    /// Bytes of a frame.
    pub bytes: usize,
    /// Whether the driver asks for all overflow lines of a frame together; the published one does not.
    pub prefetch: bool,
    /// Whether the device returns the transmitted line exclusive, so that the next frame's stores are silent. The published one's
    /// does: its directory controller answers every read so (the artifact, two months before the paper's submission).
    pub exclusive: bool,
    /// Frames before the first that counts, and those that count.
    pub frames: (u64, u64),
    /// What else happens.
    pub disturbances: Disturbances,
    /// What is around the interface.
    pub around: Around,
}

/// The clocks between port and interface, the kernel's tick, and how frames follow each other. The default has none of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Around {
    /// Whether the clocks of the interface's logic and of the port have edges, at which each takes what the other brings.
    pub clocks: bool,
    /// The timer interrupt that takes the core.
    pub timer: Option<TimerParameters>,
    /// What the pauses between frames are drawn from; without, each follows the one before.
    pub pauses: Option<u64>,
}

impl Around {
    /// A machine's port, with these clocks.
    fn port(&self, machine: &EciParameters) -> Port {
        let port = Port::of_home(&machine.device);
        if self.clocks { port } else { port.without_edges() }
    }

    /// Lets a core pause after frame `number`.
    fn pause(&self, core: &EciCore<'_>, number: u64) {
        if let Some(seed) = self.pauses {
            rest(core, pause(seed, number));
        }
    }

    fn surround(&self, simulation: &mut EciSimulation) {
        if let Some(timer) = self.timer.clone() {
            simulation.set_timer(timer);
        }
    }
}

/// Where an exchange with overflow lines lies.
fn place(question: &Frames) -> (Layout, NicLines) {
    let unit = question.machine.cache.line_bytes;
    // Half of a control line is the payload's.
    let header = unit / 2;
    let overflow = (question.bytes.max(LONGEST_FRAME) as u64 - header).div_ceil(unit) as u16;
    let shape = Shape { unit, group: 1, overflow, header, alignment: unit };
    let mut layout = Layout::new();
    let lines = NicLines::place(&shape, &mut layout, Home::Nic).expect("a shape of whole lines");
    (layout, lines)
}

/// Begins a window of the machine's queues with the first frame that counts.
fn begin_window(core: &EciCore<'_>, question: &Frames, number: u64) {
    if number == question.frames.0 {
        core.machine().borrow_mut().restart_queues();
    }
}

fn features(question: &Frames) -> Features {
    Features { prefetch: question.prefetch, ..Features::HOMED }
}

/// From the CPU having a frame in its registers to the frame's last beat at the port, in picoseconds each.
///
/// # Errors
///
/// The simulator's, where that never ends.
///
/// # Panics
///
/// If a frame comes out wrong, or out of order.
pub fn transmit(question: &Frames) -> Result<Vec<u64>, Failure> {
    observed_transmit(question, &mut ())
}

/// The same, with somebody who looks at the machine before the first event and after the last.
///
/// # Errors
///
/// As [`transmit`].
///
/// # Panics
///
/// As [`transmit`].
pub fn observed_transmit(question: &Frames, observer: &mut dyn Observer<Machine>) -> Result<Vec<u64>, Failure> {
    let (layout, lines) = place(question);
    let mut simulation = EciSimulation::new(&question.machine, &layout, question.disturbances);
    question.around.surround(&mut simulation);
    let latencies = Rc::new(RefCell::new(Vec::new()));
    let start = Rc::new(Cell::new(Time::ZERO));
    let last_beat = Rc::new(Cell::new(Time::ZERO));
    let (asked, begins, is_out) = (question.clone(), Rc::clone(&start), Rc::clone(&last_beat));
    simulation.core("host", Role::Main, move |core| {
        let mut host = lines.host([*core; 2], features(&asked));
        let mut frame = vec![0; asked.bytes];
        for number in 0..asked.frames.0 + asked.frames.1 {
            begin_window(core, &asked, number);
            fill(&mut frame, number);
            begins.set(core.now());
            let taken = host.transmit.try_transmit(&frame).expect("the frame fits");
            assert!(taken && host.transmit.is_taken(), "the load waits until the device has the frame");
            core.note_span(FRAME, begins.get(), core.now().max(is_out.get()));
            asked.around.pause(core, number);
        }
    });
    let (asked, out) = (question.clone(), Rc::clone(&latencies));
    simulation.device("NIC", Role::Service, move |device| {
        let behaviour =
            Behaviour { exclusive: asked.exclusive, recalls: Recalls::OverflowLast, ..Behaviour::default() };
        let mut homed = Homed::<_, WORDS>::new(*device, lines.transmit, behaviour).expect("so many lines fit");
        let port = asked.around.port(&asked.machine);
        let (mut frame, mut right) = (vec![0; asked.bytes], vec![0; asked.bytes]);
        let mut number = 0;
        loop {
            while let Some(length) = homed.poll() {
                let beat = port.goes_out(homed.device().now(), length);
                last_beat.set(beat);
                assert_eq!(homed.read(&mut frame), asked.bytes, "the whole frame is there");
                fill(&mut right, number);
                assert!(frame == right, "frame {number} came out wrong");
                if number >= asked.frames.0 {
                    out.borrow_mut().push(beat.since(start.get()).picoseconds());
                }
                number += 1;
                assert!(homed.respond(&[]), "the load waits");
            }
            homed.spin();
        }
    });
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run()?;
    observer.ends(&mut simulation.machine().borrow_mut());
    drop(simulation);
    Ok(latencies.take())
}

/// When a frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrives {
    /// When the CPU begins to ask for it: its load has to give the last frame's lines back first.
    WithTheLoad,
    /// Looped by the port, as the published one is: a frame of one line when the CPU begins to ask (the artifact's marks have its
    /// last beat 212 ns before that load is at the device, which is the load's way there), a longer one later by what its further
    /// lines take to go out.
    Looped,
    /// So long after that: where that is long, the load waits at the device.
    After(Time),
}

/// From a frame's last beat at the port until the CPU has it in its registers, in picoseconds each.
///
/// # Errors
///
/// The simulator's, where that never ends.
///
/// # Panics
///
/// If a frame comes in wrong, or out of order.
pub fn receive(question: &Frames, arrives: Arrives) -> Result<Vec<u64>, Failure> {
    observed_receive(question, arrives, &mut ())
}

/// The same, with somebody who looks at the machine before the first event and after the last.
///
/// # Errors
///
/// As [`receive`].
///
/// # Panics
///
/// As [`receive`].
pub fn observed_receive(
    question: &Frames,
    arrives: Arrives,
    observer: &mut dyn Observer<Machine>,
) -> Result<Vec<u64>, Failure> {
    let (layout, lines) = place(question);
    let mut simulation = EciSimulation::new(&question.machine, &layout, question.disturbances);
    question.around.surround(&mut simulation);
    let latencies = Rc::new(RefCell::new(Vec::new()));
    // Which frame was asked for, and when its last beat is at the port.
    let next = Rc::new(Cell::new((0_u64, Time::NEVER)));
    let (asked, out, beats) = (question.clone(), Rc::clone(&latencies), Rc::clone(&next));
    simulation.core("host", Role::Main, move |core| {
        let mut host = lines.host([*core; 2], features(&asked));
        let port = asked.around.port(&asked.machine);
        let (mut frame, mut right) = (vec![0; asked.bytes], vec![0; asked.bytes]);
        for number in 0..asked.frames.0 + asked.frames.1 {
            begin_window(core, &asked, number);
            let begins = core.now();
            let beat = match arrives {
                Arrives::WithTheLoad => begins,
                Arrives::Looped => begins + port.out_behind_one_line(asked.bytes),
                Arrives::After(time) => begins + time,
            };
            let beat = port.beat(beat);
            beats.set((number, beat));
            while host.receive.receive(&mut frame).is_none() {
                core.spin();
            }
            core.note_span(FRAME, begins, core.now());
            if number >= asked.frames.0 {
                out.borrow_mut().push(core.now().since(beat).picoseconds());
            }
            fill(&mut right, number);
            assert!(frame == right, "frame {number} came in wrong");
            asked.around.pause(core, number);
        }
    });
    let asked = question.clone();
    simulation.device("NIC", Role::Service, move |device| deliver(*device, &asked, &lines, &next));
    observer.begins(&mut simulation.machine().borrow_mut());
    simulation.run()?;
    observer.ends(&mut simulation.machine().borrow_mut());
    drop(simulation);
    Ok(latencies.take())
}

/// Delivers each frame when it has come.
fn deliver(device: EciDevice<'_>, asked: &Frames, lines: &NicLines, next: &Cell<(u64, Time)>) {
    let behaviour = Behaviour { recalls: Recalls::OverflowFirst, bare: true, ..Behaviour::default() };
    let mut homed = Homed::<_, WORDS>::new(device, lines.receive, behaviour).expect("so many lines fit");
    let port = asked.around.port(&asked.machine);
    let mut frame = vec![0; asked.bytes];
    let mut delivered = None;
    loop {
        homed.poll();
        let (number, beat) = next.get();
        let is_new = beat != Time::NEVER && delivered != Some(number);
        let there = if is_new { port.comes_in(beat, asked.bytes) } else { Time::ZERO };
        if homed.is_working() && device.now() < there {
            device.wait_until(there);
            continue;
        }
        fill(&mut frame, number);
        if is_new && homed.respond(&frame) {
            delivered = Some(number);
        } else {
            homed.spin();
        }
    }
}
