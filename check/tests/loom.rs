//! The loom world: what it explores, what it catches, and that each weakening is caught.

use conic_check::loom::thread;
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords};

/// Where the things of these models lie.
#[derive(Clone, Copy)]
struct Places {
    /// Lines with a synchronising word 0.
    ring: Address,
    /// Owned lines.
    data: Address,
}

fn layout() -> (Layout, Places) {
    let mut layout = Layout::new();
    let ring = layout.add("ring", 256, 64, Home::Host, SynchronisingWords::FIRST);
    let data = layout.add("data", 4096, 64, Home::Host, SynchronisingWords::NONE);
    (layout, Places { ring, data })
}

/// Waits until a synchronising word is no longer zero.
fn wait(core: &LoomCore, at: Address) -> u64 {
    loop {
        let value = core.load_acquire(at);
        if value != 0 {
            return value;
        }
        core.spin();
    }
}

/// One message in an owned line, announced by a word elsewhere.
fn message(memory: &LoomMemory, places: Places) {
    let sender = memory.core("sender");
    let receiver = memory.core("receiver");
    let thread = thread::spawn(move || {
        sender.write_line(places.data, &Line([7; 8]));
        sender.write_bytes(places.data + 67, b"between words");
        sender.store_release(places.ring, 1);
    });
    assert_eq!(wait(&receiver, places.ring), 1);
    assert_eq!(receiver.read_line(places.data), Line([7; 8]));
    let mut bytes = [0; 13];
    receiver.read_bytes(places.data + 67, &mut bytes);
    assert_eq!(&bytes, b"between words");
    thread.join().expect("the sender ends");
}

#[test]
fn a_message_through_one_word_is_explored_fully_and_each_weakening_is_caught() {
    let (layout, places) = layout();
    let executions = explore(&layout, Exploration::full(), move |memory| message(memory, places));
    assert!(executions > 1, "{executions} executions");
    for weaken in [Weaken::RelaxedStore, Weaken::RelaxedLoad] {
        let weakened = Exploration::full().weakened(Mutation::new(weaken));
        let caught = catches(&layout, weakened, move |memory| message(memory, places));
        assert!(caught.message.contains("Causality violation"), "{}", caught.message);
        assert!(caught.message.contains("of `data`"), "{}", caught.message);
    }
}
