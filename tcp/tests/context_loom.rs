//! Buffers under every schedule and ordering: they have no synchronising word, and what a notice says is what orders them.

use conic_check::loom::thread;
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords};
use conic_interface::fastforward::{Receiver, Shape};
use conic_tcp::{Context, Notice};

/// One line of context queues, and a receive buffer of one word.
fn place() -> (Context, Address, Layout) {
    let mut layout = Layout::new();
    let buffer = layout.add("buffer", LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let context = Context::place(&mut layout, Shape { slots: 1, slip: None }, Home::Host).expect("a shape that can be");
    (context, buffer, layout)
}

fn line(received: u32) -> [u64; 7] {
    [Notice { flow: 3, received, transmit: 0 }.word(), 0, 0, 0, 0, 0, 0]
}

fn wait(receiver: &mut Receiver<LoomCore>) -> Notice {
    loop {
        if let Some(line) = receiver.try_receive() {
            return Notice::of_word(line[0]).expect("a notice");
        }
        receiver.core().spin();
    }
}

/// The fast path puts a word into the buffer and tells of it; the application reads it and says so; then another one is put there.
fn exchange(memory: &LoomMemory, context: Context, buffer: Address) {
    let fast_path = || memory.core("fast path");
    let (fast, mut up, mut down) = (fast_path(), context.up.sender(fast_path()), context.down.receiver(fast_path()));
    let thread = thread::spawn(move || {
        for word in 1..=2 {
            fast.store(buffer, word);
            while !up.try_send(&line(8)) {
                fast.spin();
            }
            assert_eq!(wait(&mut down).received, 8);
        }
    });
    let application = || memory.core("application");
    let (core, mut up, mut down) =
        (application(), context.up.receiver(application()), context.down.sender(application()));
    for word in 1..=2 {
        assert_eq!(wait(&mut up).received, 8);
        assert_eq!(core.load(buffer), word);
        while !down.try_send(&line(8)) {
            core.spin();
        }
    }
    thread.join().expect("the fast path ends");
}

#[test]
fn what_is_told_of_is_there_and_what_was_read_may_be_overwritten() {
    let (context, buffer, layout) = place();
    assert!(explore(&layout, Exploration::full(), move |memory| exchange(memory, context, buffer)) > 1);
}

#[test]
fn a_notice_must_release_and_its_reader_acquire() {
    for side in ["fast path", "application"] {
        for weaken in [Weaken::RelaxedPublish, Weaken::RelaxedLoad] {
            let (context, buffer, layout) = place();
            let exploration = Exploration::full().weakened(Mutation::new(weaken).by(side));
            let caught = catches(&layout, exploration, move |memory| exchange(memory, context, buffer));
            assert!(caught.message.contains("Causality violation"), "{side}: {}", caught.message);
        }
    }
}
