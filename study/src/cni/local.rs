//! Two processors of one node, without a network interface (CNI section 5.1.2).

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};
use conic_interface::cachable_queue::{Arrival, Queue, Shape};
use conic_sim::bus::{Attachment, BusParameters, BusSimulation};
use conic_sim::{Failure, Role};

/// How long a load takes of a line that the other processor has modified, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn transfer(machine: &BusParameters) -> Result<f64, Failure> {
    let mut layout = Layout::new();
    let at = layout.add("a line", LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::ALL);
    let mut simulation = BusSimulation::new(machine, &layout, 1, Attachment::MemoryBus);
    let took = Rc::new(Cell::new(Time::ZERO));
    let into = Rc::clone(&took);
    simulation.processor(0, "writer", Role::Main, move |core| core.store(at, 1));
    simulation.processor(0, "reader", Role::Main, move |core| {
        core.spin_until(Time::from_nanoseconds(10_000));
        let begins = core.now();
        assert_eq!(core.load(at), 1, "what the writer wrote");
        into.set(core.now().since(begins));
    });
    simulation.run()?;
    Ok(took.get().picoseconds() as f64 / 1e3)
}

/// Lines of a message, and messages that the queue holds.
const LINES: u64 = 4;
const SLOTS: u64 = 16;

/// What a cachable queue between the two carries from one's buffer to the other's, in millions of bytes a second.
///
/// # Errors
///
/// The simulator's.
pub fn bandwidth(machine: &BusParameters, messages: u64) -> Result<f64, Failure> {
    let mut layout = Layout::new();
    let shape = Shape { slots: SLOTS, message_lines: LINES, lazy_pointers: true, arrival: Arrival::SenseReverse };
    let queue = shape.place(&mut layout, Home::Host, Home::Host).expect("such a queue can be");
    let buffers =
        [0, 1].map(|_| layout.add("a buffer", LINES * LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE));
    let mut simulation = BusSimulation::new(machine, &layout, 1, Attachment::MemoryBus);
    let took = Rc::new(Cell::new(Time::ZERO));
    let into = Rc::clone(&took);
    let (warm, all) = (4 * SLOTS, 4 * SLOTS + messages);
    let [from, to] = buffers;
    // The sender goes on: until the last message that counts the two share the bus.
    simulation.processor(0, "sender", Role::Service, move |core| sends(core, queue, from));
    simulation.processor(0, "receiver", Role::Main, move |core| {
        let mut receiver = queue.receiver(*core);
        let mut begins = Time::ZERO;
        for number in 0..all {
            if number == warm {
                begins = core.now();
            }
            let mut lines = [Line::ZERO; LINES as usize];
            while !receiver.try_receive(&mut lines) {
                core.spin();
            }
            assert_eq!(lines[1].0[0], number, "messages come in order");
            core.write_lines(to, &lines);
        }
        into.set(core.now().since(begins));
    });
    simulation.run()?;
    Ok(1e6 * (messages * LINES * LINE_BYTES) as f64 / took.get().picoseconds() as f64)
}

fn sends<C: Core + Copy>(core: &C, queue: Queue, from: Address) {
    let mut sender = queue.sender(*core);
    for number in 0.. {
        let mut lines = [Line::ZERO; LINES as usize];
        core.read_lines(from, &mut lines);
        lines[1].0[0] = number;
        while !sender.try_send(&lines) {
            core.spin();
        }
    }
}

#[cfg(test)]
mod tests {
    use conic_sim::platform::Platform;

    use super::*;

    #[test]
    fn as_much_is_carried_however_many_messages_count() {
        let platform = Platform::<BusParameters>::load_as("hypersparc").unwrap_or_else(|error| panic!("{error}"));
        let [few, many] = [100, 1_000].map(|messages| bandwidth(platform.parameters(), messages).expect("it ends"));
        assert!((few / many - 1.0).abs() < 0.003, "{few} and {many} MB/s");
    }
}
