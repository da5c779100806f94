//! The crash world: where agents die, what memory they leave, and what the driver says of a failure.

use conic_check::{CrashCore, CrashMemory, for_every_death, run_until_death};
use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords};

/// Where the things of these scenarios lie.
#[derive(Clone, Copy)]
struct Places {
    /// Lines with a synchronising word 0.
    ring: Address,
    /// Owned lines.
    data: Address,
}

fn memory() -> (CrashMemory, Places) {
    let mut layout = Layout::new();
    let ring = layout.add("ring", 256, 64, Home::Host, SynchronisingWords::FIRST);
    let data = layout.add("data", 4096, 64, Home::Host, SynchronisingWords::NONE);
    (CrashMemory::new(&layout), Places { ring, data })
}

/// One message in an owned line, announced by a word elsewhere.
fn send(core: &CrashCore, places: Places) {
    core.write_line(places.data, &Line([7; 8]));
    core.store_release(places.ring, 1);
}

#[test]
fn a_survivor_sees_a_message_whole_or_not_at_all_wherever_its_sender_dies() {
    let mut torn = Vec::new();
    let deaths = for_every_death(|n| {
        let (memory, places) = memory();
        let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
        sender.die_at(n);
        let outcome = run_until_death(|| send(&sender, places));
        let line = receiver.read_line(places.data);
        if receiver.load_acquire(places.ring) == 1 {
            assert_eq!(line, Line([7; 8]));
        }
        torn.push(line.0.iter().filter(|&&word| word == 7).count());
        outcome
    });
    assert_eq!(deaths, 9);
    assert_eq!(torn, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]);
}
