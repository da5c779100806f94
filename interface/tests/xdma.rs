//! Transfers by copy engines against a model, with peers that keep to no rule, under every schedule, and between two threads.

use std::thread;

use crate::common::{Memory, bytes, replayed};
use conic_check::{Exploration, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::{Address, Core, Device, Layout, MemoryType, PlayedByCore};
use conic_interface::xdma::{Channel, Completion, Direction, Overhead, Shape, ShapeError, TransferError};
use conic_native::{Memory as Shared, NativeCore, Pages, yield_core};
use proptest::prelude::*;

const COMPLETIONS: [Completion; 2] = [Completion::Polled, Completion::Interrupt];

/// An engine for each direction.
fn place(bytes: u64) -> ([Channel; 2], Layout) {
    let mut layout = Layout::new();
    let shape = Shape { bytes, structure_lines: 4, registers: MemoryType::WriteBack };
    let channels = [Direction::ToDevice, Direction::ToHost];
    (channels.map(|direction| shape.place(direction, &mut layout).expect("a shape that can be")), layout)
}

/// Where the first segment of a name begins: the engine's towards the device.
fn start_of(layout: &Layout, name: &str) -> Address {
    layout.segments().iter().find(|segment| segment.name == name).expect("a segment of that name").start
}

proptest! {
    #![proptest_config(replayed(200))]

    /// Messages of any length cross, page by page, and what comes back may be shorter than there was room for.
    #[test]
    fn messages_cross_whole(
        interrupt in any::<bool>(),
        messages in prop::collection::vec((1..20_000_usize, 0..100_usize, 0..3_usize), 1..12),
    ) {
        let completion = COMPLETIONS[usize::from(interrupt)];
        let overhead = Overhead { call_lines: 3, page_lines: 1, completion_lines: 2, ..Overhead::default() };
        let (channels, layout) = place(20_000);
        let memory = Memory::new(&layout);
        let [mut out, mut back] = channels.map(|channel| channel.driver(memory.agent(0), completion, overhead));
        let [mut outer, mut inner] = channels.map(|channel| channel.engine(PlayedByCore(memory.agent(1)), completion));
        for (number, (length, short, polls)) in messages.into_iter().enumerate() {
            let message = bytes(number as u64, length);
            out.begin_write(&message).expect("the last call has returned");
            prop_assert_eq!(out.begin_write(&message), Err(TransferError::UnderWay));
            for _ in 0..polls {
                prop_assert_eq!(out.poll(), None, "the last report is not this transfer's");
            }
            let descriptors = outer.started().expect("it was started");
            prop_assert_eq!(descriptors, (length as u64).div_ceil(4096));
            prop_assert_eq!(outer.started(), None, "a start is one start");
            let list = outer.fetch(descriptors).expect("the list is whole");
            prop_assert_eq!(&outer.read(&list), &message);
            outer.done(list.bytes());
            prop_assert_eq!(out.poll(), Some(length as u64));
            prop_assert_eq!(out.poll(), None);
            let answer = bytes(!(number as u64), length.saturating_sub(short).max(1));
            back.begin_read(length as u64).expect("the last call has returned");
            let descriptors = inner.started().expect("it was started");
            let list = inner.fetch(descriptors).expect("the list is whole");
            inner.write(&list, &answer);
            inner.done(answer.len() as u64);
            prop_assert_eq!(back.poll(), Some(answer.len() as u64));
            let mut read = vec![0; answer.len()];
            back.read(&mut read);
            prop_assert_eq!(read, answer);
        }
        prop_assert_eq!((out.statistics(), back.statistics()), Default::default());
        prop_assert_eq!((outer.statistics(), inner.statistics()), Default::default());
    }

    /// Whatever a host stores into registers and descriptors, the engine touches no other memory, and says that it refused.
    #[test]
    fn a_host_that_keeps_to_no_rule_is_refused(
        list in prop_oneof![Just(None), any::<u64>().prop_map(Some)],
        run in prop_oneof![(0..4_u64, 0..9_u64).prop_map(|(transfer, count)| transfer << 32 | count), any::<u64>()],
        descriptors in prop::collection::vec((0..4_u64, any::<u64>()), 0..4),
    ) {
        let (channels, layout) = place(9000);
        let memory = Memory::new(&layout);
        let mut driver = channels[0].driver(memory.agent(0), Completion::Polled, Overhead::default());
        let mut engine = channels[0].engine(PlayedByCore(memory.agent(1)), Completion::Polled);
        driver.begin_write(&bytes(1, 9000)).expect("it fits");
        memory.poke(start_of(&layout, "xdma run register"), run);
        if let Some(list) = list {
            memory.poke(start_of(&layout, "xdma list register"), list);
        }
        for (word, value) in &descriptors {
            memory.poke(start_of(&layout, "xdma descriptors").word(*word as usize), *value);
        }
        let Some(count) = engine.started() else {
            // What the driver waits for is transfer 1: it hears of that one, and of no other.
            let is_its_own = run >> 32 == 1;
            prop_assert_eq!(driver.poll(), is_its_own.then_some(0));
            prop_assert_eq!(driver.statistics().refused_transfers, u64::from(is_its_own));
            prop_assert_eq!(engine.statistics().refused_runs, u64::from(run >> 32 != 0));
            return Ok(());
        };
        // The test's memory panics at an address outside of it.
        match engine.fetch(count) {
            Some(list) => {
                prop_assert!(list.bytes() <= 9000 + 4096);
                engine.read(&list);
                engine.done(list.bytes());
            }
            None => {
                prop_assert_eq!(engine.statistics().refused_lists, 1);
                prop_assert_eq!(driver.poll(), Some(0), "the driver hears that it was refused");
                prop_assert_eq!(driver.statistics().refused_transfers, 1);
            }
        }
    }

    /// Whatever a device reports, the driver gives no more bytes than there was room for.
    #[test]
    fn a_device_that_keeps_to_no_rule_is_refused(reports in prop::collection::vec((0..3_u64, 0..300_u64), 1..20)) {
        let (channels, layout) = place(200);
        let memory = Memory::new(&layout);
        let mut driver = channels[1].driver(memory.agent(0), Completion::Polled, Overhead::default());
        let reports_at: Vec<Address> =
            layout.segments().iter().filter(|segment| segment.name == "xdma report").map(|segment| segment.start).collect();
        driver.begin_read(200).expect("it fits");
        for (transfer, length) in reports {
            memory.poke(reports_at[1], transfer << 32 | length);
            if let Some(bytes) = driver.poll() {
                prop_assert!(transfer == 1 && bytes == length && (1..=200).contains(&bytes));
                return Ok(());
            }
        }
    }
}

#[test]
fn what_cannot_be_is_said() {
    let mut layout = Layout::new();
    let shape = Shape { bytes: 64, structure_lines: 2, registers: MemoryType::WriteBack };
    let mut refused = |shape: Shape| shape.place(Direction::ToHost, &mut layout).expect_err("it cannot be");
    assert_eq!(refused(Shape { bytes: 0, ..shape }), ShapeError::Bytes(0));
    assert_eq!(refused(Shape { structure_lines: 3, ..shape }), ShapeError::Structures(3));
    let (channels, layout) = place(100);
    let memory = Memory::new(&layout);
    let mut driver = channels[0].driver(memory.agent(0), Completion::Polled, Overhead::default());
    let error = driver.begin_write(&[0; 101]).expect_err("it does not fit");
    assert_eq!(error.to_string(), "a transfer has 1 to 100 bytes here, not 101");
}

#[test]
fn what_is_read_is_what_came_last_and_nothing_of_before() {
    let (channels, layout) = place(100);
    let memory = Memory::new(&layout);
    let mut driver = channels[1].driver(memory.agent(0), Completion::Polled, Overhead::default());
    let mut engine = channels[1].engine(PlayedByCore(memory.agent(1)), Completion::Polled);
    for (came, left) in [(100, 0), (30, 70)] {
        driver.begin_read(100).expect("the last call has returned");
        let descriptors = engine.started().expect("it was started");
        let list = engine.fetch(descriptors).expect("the list is whole");
        engine.write(&list, &[came as u8; 100][..came]);
        engine.done(came as u64);
        assert_eq!(driver.poll(), Some(came as u64));
        let mut read = [0xee; 100];
        driver.read(&mut read);
        assert_eq!(read[..came], [came as u8; 100][..came]);
        assert_eq!(read[came..], [0xee; 100][..left], "of a shorter transfer");
    }
}

/// Two messages there and back.
fn transfers(memory: &LoomMemory, channels: [Channel; 2], completion: Completion) {
    let [outer, inner] = channels.map(|channel| channel.engine(PlayedByCore(memory.core("device")), completion));
    let other = conic_check::spawn(move || {
        let (mut outer, mut inner) = (outer, inner);
        for turn in 1..=2_u8 {
            let descriptors = loop {
                match outer.started() {
                    Some(descriptors) => break descriptors,
                    None => outer.device().spin(),
                }
            };
            let list = outer.fetch(descriptors).expect("the list is whole");
            assert_eq!(outer.read(&list), [turn; 8]);
            outer.done(8);
            let descriptors = loop {
                match inner.started() {
                    Some(descriptors) => break descriptors,
                    None => inner.device().spin(),
                }
            };
            let list = inner.fetch(descriptors).expect("the list is whole");
            inner.write(&list, &[turn + 10; 8]);
            inner.done(8);
        }
    });
    let [mut out, mut back] =
        channels.map(|channel| channel.driver(memory.core("host"), completion, Overhead::default()));
    for turn in 1..=2_u8 {
        out.begin_write(&[turn; 8]).expect("the last call has returned");
        while out.poll().is_none() {
            out.core().spin();
        }
        back.begin_read(8).expect("the last call has returned");
        while back.poll().is_none() {
            back.core().spin();
        }
        let mut read = [0; 8];
        back.read(&mut read);
        assert_eq!(read, [turn + 10; 8]);
    }
    other.join().expect("the device ends");
}

#[test]
fn messages_keep_their_bytes_under_loom() {
    for completion in COMPLETIONS {
        let (channels, layout) = place(64);
        let executions =
            explore(&layout, Exploration::bounded(3), move |memory| transfers(memory, channels, completion));
        assert!(executions > 1, "{completion:?}");
    }
}

#[test]
fn each_ordering_of_a_transfer_is_needed_under_loom() {
    for (weaken, segment, by) in [
        (Weaken::RelaxedStore, "xdma run register", "host"),
        (Weaken::RelaxedLoad, "xdma run register", "device"),
        (Weaken::RelaxedStore, "xdma report", "device"),
        (Weaken::RelaxedLoad, "xdma report", "host"),
    ] {
        let (channels, layout) = place(64);
        let exploration = Exploration::bounded(3).weakened(Mutation::new(weaken).of(segment).by(by));
        let caught = catches(&layout, exploration, move |memory| transfers(memory, channels, Completion::Polled));
        // A list register that is not there yet is refused before anything is read.
        let expected = ["Causality violation", "the list is whole"];
        let found = expected.iter().any(|what| caught.message.contains(what));
        assert!(found, "{segment} {by}: {}", caught.message);
    }
}

#[test]
fn messages_cross_between_two_threads() {
    const MESSAGES: u64 = if cfg!(debug_assertions) { 3_000 } else { 100_000 };
    let (channels, layout) = place(10_000);
    let memory = Shared::create(&layout, Pages::Plain).expect("memory");
    let message = |number: u64| bytes(number % 97, 1 + (number * 1031 % 9999) as usize);
    let pause = |round: &mut u32| {
        *round += 1;
        if round.is_multiple_of(100) {
            yield_core();
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let core = NativeCore::new(&memory);
            let mut engine = channels[0].engine(PlayedByCore(core), Completion::Polled);
            let (mut number, mut round) = (0, 0);
            while number < MESSAGES {
                let Some(descriptors) = engine.started() else {
                    pause(&mut round);
                    continue;
                };
                let list = engine.fetch(descriptors).expect("the list is whole");
                assert!(engine.read(&list) == message(number), "message {number}");
                engine.done(list.bytes());
                number += 1;
            }
        });
        let mut driver = channels[0].driver(NativeCore::new(&memory), Completion::Polled, Overhead::default());
        let mut round = 0;
        for number in 0..MESSAGES {
            driver.begin_write(&message(number)).expect("the last call has returned");
            while driver.poll().is_none() {
                pause(&mut round);
            }
        }
        assert_eq!(driver.statistics(), Default::default());
        other.join().expect("the other thread ends");
    });
}
