//! An interface of one's own on two machines that one does not own: between two sockets, and to a device behind CXL.
//!
//!     cargo run --release -p conic-sim --example own_interface
//!
//! The interface is a queue of one line each way. Its two halves are written once, against the seam: the host's against `Core`, the device's
//! against `Device`, whose requests say in which state it wants a line. What they run on is the rest of this file.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;

use conic_fabric::{
    Address, Core, Device, Home, LINE_BYTES, Layout, Line, PlayedByCore, StateHint, SynchronisingWords, Time,
};
use conic_sim::cxl::{CxlParameters, CxlSimulation};
use conic_sim::platform::Platform;
use conic_sim::{Options, Role, Simulation};

/// Where the two lines are. Word 0 of each is the number of the message in it; it synchronises, and the others belong to the writer until then.
#[derive(Clone, Copy)]
struct Queue {
    to_device: Address,
    to_host: Address,
}

impl Queue {
    /// Each line in its reader's memory.
    fn place(layout: &mut Layout) -> Queue {
        let mut line = |name, home| layout.add(name, LINE_BYTES, LINE_BYTES, home, SynchronisingWords::FIRST);
        Queue { to_device: line("to the device", Home::Nic), to_host: line("to the host", Home::Host) }
    }

    /// The host's half: sends a message, and waits for the answer to it.
    fn call(&self, host: &impl Core, number: u64, message: u64) -> u64 {
        host.publish_line(self.to_device, &Line([number, message, 0, 0, 0, 0, 0, 0]));
        // Acquire, pairs with the release of the answer's word 0: the word behind it is there.
        while host.load_acquire(self.to_host) != number {
            host.spin();
        }
        host.load(self.to_host.word(1))
    }

    /// The device's half: waits for a message, and answers with its complement. The hints are the design: with CacheableShared the device
    /// keeps the line that it polls, and hears when the host takes it; NonCacheable leaves the answer in the host's memory.
    fn answer(&self, device: &impl Device, number: u64) {
        while device.read_word(self.to_device, StateHint::CacheableShared) != number {
            device.spin();
        }
        let mut message = [0; 8];
        device.read(self.to_device.word(1), &mut message, StateHint::CacheableShared);
        let answer = !u64::from_le_bytes(message);
        device.publish_line(self.to_host, &Line([number, answer, 0, 0, 0, 0, 0, 0]), StateHint::NonCacheable);
    }
}

/// Calls, of which the first half finds caches that nothing was in yet.
const CALLS: u64 = 200;

/// The host's program: how long each call takes of the second half.
fn calls(host: &impl Core, queue: Queue, times: &RefCell<Vec<Time>>) {
    for number in 1..=CALLS {
        let start = host.now();
        assert_eq!(queue.call(host, number, 3 * number), !(3 * number), "the answer to message {number}");
        if number > CALLS / 2 {
            times.borrow_mut().push(host.now().since(start));
        }
    }
}

/// The median.
fn median(times: &RefCell<Vec<Time>>) -> Time {
    let mut times = times.take();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Between two sockets, where a core plays the device: a round trip.
fn on_sockets(platform: &Platform) -> Result<Time, conic_sim::Failure> {
    let mut layout = Layout::new();
    let queue = Queue::place(&mut layout);
    let mut simulation = Simulation::new(platform.parameters(), &layout, Options::default());
    let times = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&times);
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| calls(core, queue, &into));
    simulation.core("device", 1, Role::Service, Time::ZERO, move |core| {
        for number in 1.. {
            queue.answer(&PlayedByCore(core), number);
        }
    });
    simulation.run()?;
    Ok(median(&times))
}

/// To a device behind CXL, which speaks CXL.cache: a round trip.
fn over_cxl(platform: &Platform<CxlParameters>) -> Result<Time, conic_sim::Failure> {
    let mut layout = Layout::new();
    let queue = Queue::place(&mut layout);
    let mut simulation = CxlSimulation::new(platform.parameters(), &layout);
    let times = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&times);
    simulation.core("host", Role::Main, move |core| calls(core, queue, &into));
    simulation.device("device", Role::Service, move |device| {
        for number in 1.. {
            queue.answer(device, number);
        }
    });
    simulation.run()?;
    Ok(median(&times))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (sockets, cxl) = (Platform::load("icx")?, Platform::load_as("agilex7")?);
    println!("a message there and its answer back, a line each:");
    println!("  {:8} {}  ({})", sockets.name(), on_sockets(&sockets)?, sockets.description());
    println!("  {:8} {}  ({})", cxl.name(), over_cxl(&cxl)?, cxl.description());
    // What if the device were nearer? Every value of a machine can be replaced.
    let nearer = cxl.with(&["link.crossing=30ns"])?;
    println!("  {:8} {}  (with link.crossing=30ns)", nearer.name(), over_cxl(&nearer)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_runs_on_both_machines_and_a_nearer_device_answers_sooner() {
        let (sockets, cxl) =
            (Platform::load("icx").expect("it is shipped"), Platform::load_as("agilex7").expect("so is it"));
        let crosses = |crossing: u64, times: u64| Time::from_picoseconds(times * crossing);
        let between = on_sockets(&sockets).expect("it ends");
        assert!(
            between > crosses(sockets.parameters().interconnect.crossing, 4),
            "{between}: each line crosses after it is asked for"
        );
        let far = over_cxl(&cxl).expect("it ends");
        assert!(far > between && far > crosses(cxl.parameters().link.crossing, 4), "{far}, {between} between sockets");
        let near = over_cxl(&cxl.with(&["link.crossing=30ns"]).expect("it can be")).expect("it ends");
        let saved = crosses(cxl.parameters().link.crossing - 30_000, 4);
        assert!(far.since(near) >= saved, "{far} and {near}, each crossing takes {saved} less");
        assert!(main().is_ok());
    }
}
