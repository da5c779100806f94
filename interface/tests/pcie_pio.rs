//! Programmed I/O over PCIe against a model, with peers that keep to no rule, under every schedule, and between two threads.

use std::collections::VecDeque;
use std::thread;

use crate::common::{Memory, bytes, replayed};
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::{Address, Core, Device, Layout, MemoryType, PlayedByCore, Time};
use conic_interface::pcie_pio::{Call, CallError, CallShape, CallWindow, Callee, Host, Nic, NicWindow, NoSlot, Shape};
use conic_interface::pcie_pio::{ShapeError, TransmitError};
use conic_native::{Memory as Shared, NativeCore, Pages, yield_core};
use proptest::prelude::*;

fn nic_of(slots: u32, slot_bytes: u64) -> (NicWindow, Layout) {
    let memory = MemoryType::WriteBack;
    let mut layout = Layout::new();
    let shape = Shape { slots, slot_bytes, registers: memory, buffer: memory };
    (shape.place(&mut layout).expect("a shape that can be"), layout)
}

fn call_of(payload: u64) -> (CallWindow, Layout) {
    let mut layout = Layout::new();
    let shape = CallShape { payload, memory: MemoryType::WriteBack };
    (shape.place(&mut layout).expect("a shape that can be"), layout)
}

fn start_of(layout: &Layout, name: &str) -> Address {
    layout.segments().iter().find(|segment| segment.name == name).expect("a segment of that name").start
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    Receive,
    Take,
    /// Brings the oldest frame that was taken back.
    Bring,
    Reclaim,
    Idle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..200_usize).prop_map(Step::Send),
        Just(Step::Receive),
        Just(Step::Take),
        Just(Step::Bring),
        Just(Step::Reclaim),
        Just(Step::Idle),
    ]
}

proptest! {
    #![proptest_config(replayed(400))]

    /// Frames go round in any order of the two sides' steps: none is lost, repeated, changed or passed by another.
    #[test]
    fn frames_go_round_in_any_order_of_steps(slots in 0..3_u32, steps in prop::collection::vec(step(), 1..120)) {
        let (window, layout) = nic_of(1 << slots, 256);
        let memory = Memory::new(&layout);
        let (mut host, mut nic) = (window.host(memory.agent(0)), window.nic(PlayedByCore(memory.agent(1))));
        let (mut sent, mut out, mut back) = (0, VecDeque::new(), VecDeque::new());
        let mut into = vec![0; 256];
        for step in steps {
            match step {
                Step::Send(length) => {
                    let frame = bytes(sent, length);
                    if host.transmit(&frame).expect("it fits") {
                        sent += 1;
                        out.push_back(frame);
                    } else {
                        prop_assert_eq!(out.len(), 1 << slots);
                    }
                }
                Step::Take => match nic.transmit(&mut into) {
                    Some(length) => {
                        prop_assert_eq!(&into[..length], out.pop_front().expect("it was sent"));
                        back.push_back((into[..length].to_vec(), false));
                    }
                    None => prop_assert!(out.is_empty()),
                },
                Step::Bring => {
                    let shown = back.iter().filter(|(_, brought)| *brought).count();
                    if let Some((frame, brought)) = back.iter_mut().find(|(_, brought)| !brought) {
                        match nic.receive(frame) {
                            Ok(()) => *brought = true,
                            Err(error) => prop_assert_eq!((error, shown), (NoSlot::Full, 1 << slots)),
                        }
                    }
                }
                Step::Receive => match host.receive(&mut into) {
                    Some(length) => {
                        let (frame, brought) = back.pop_front().expect("it was brought");
                        prop_assert!(brought && into[..length] == frame);
                    }
                    // What was brought behind another frame is shown when the device has looked.
                    None => {
                        nic.look();
                        if back.front().is_some_and(|(_, brought)| *brought) {
                            let length = host.receive(&mut into).expect("it is shown now");
                            prop_assert_eq!(&into[..length], &back.pop_front().expect("it was brought").0);
                        }
                    }
                },
                Step::Reclaim => host.reclaim(),
                Step::Idle => nic.idle(Time::ZERO),
            }
        }
        prop_assert_eq!(host.statistics(), Default::default());
        prop_assert_eq!(nic.statistics(), Default::default());
    }

    /// Whatever either side's words become, the other goes on without a panic, and takes nothing that does not fit.
    #[test]
    fn a_peer_that_keeps_to_no_rule_is_refused(
        words in prop::collection::vec((0..6_usize, any::<u64>()), 1..60),
        near in prop::collection::vec((0..6_usize, 0..5_u64, 0..400_u64), 1..60),
    ) {
        let (window, layout) = nic_of(2, 128);
        let memory = Memory::new(&layout);
        let (mut host, mut nic) = (window.host(memory.agent(0)), window.nic(PlayedByCore(memory.agent(1))));
        let words = words.into_iter().chain(near.into_iter().map(|(at, turn, length)| (at, turn << 32 | 1 << 31 | length)));
        let mut into = vec![0; 128];
        for (number, (which, word)) in words.enumerate() {
            let names = ["receive descriptor", "receive acknowledgement", "transmit descriptors", "transmit count"];
            let place = start_of(&layout, &format!("pcie-pio {}", names[which % 4]));
            memory.poke(place + 8 * (which as u64 / 4), word);
            prop_assert!(host.transmit(&bytes(number as u64, 100)).is_ok());
            prop_assert!(host.receive(&mut into).is_none_or(|length| length <= 128));
            prop_assert!(nic.transmit(&mut into).is_none_or(|length| (1..=128).contains(&length)));
            let _ = nic.receive(&into);
            host.reclaim();
            nic.idle(Time::ZERO);
        }
    }

    /// Calls of any lengths, either side late.
    #[test]
    fn calls_are_answered_once_each_and_whole(
        calls in prop::collection::vec((0..300_usize, 0..300_usize, 0..3_usize, 0..3_usize), 1..40),
    ) {
        let (window, layout) = call_of(300);
        let memory = Memory::new(&layout);
        let mut host = Call::new(memory.agent(0), window);
        let mut device = Callee::new(PlayedByCore(memory.agent(1)), window, Time::ZERO);
        for (number, (request, response, early, late)) in calls.into_iter().enumerate() {
            let asked = bytes(number as u64, request);
            host.begin(&asked).expect("the last call was answered");
            prop_assert_eq!(host.begin(&asked), Err(CallError::Waiting));
            for _ in 0..early {
                prop_assert_eq!(host.poll(), None, "the last response is no answer to this call");
            }
            prop_assert_eq!(device.poll(), Some(request));
            let mut read = vec![0; request];
            device.read(&mut read);
            prop_assert_eq!(&read, &asked);
            let answer = bytes(!(number as u64), response);
            prop_assert!(device.respond(&answer) && !device.respond(&answer));
            for _ in 0..late {
                prop_assert_eq!(device.poll(), None, "the last request is no new one");
            }
            prop_assert_eq!(host.poll(), Some(response));
            // A response may be loaded again: it is the same.
            for _ in 0..2 {
                let mut read = vec![0; 300];
                prop_assert_eq!(host.read(&mut read), response);
                prop_assert_eq!(&read[..response], &answer);
            }
        }
        prop_assert_eq!((host.refused(), device.refused()), (0, 0));
    }
}

#[test]
fn what_cannot_be_is_said() {
    let mut layout = Layout::new();
    let shape = Shape::default();
    assert_eq!(Shape { slots: 3, ..shape }.place(&mut layout), Err(ShapeError::Slots(3)));
    assert_eq!(Shape { slots: 0, ..shape }.place(&mut layout), Err(ShapeError::Slots(0)));
    assert_eq!(Shape { slot_bytes: 100, ..shape }.place(&mut layout), Err(ShapeError::Bytes(100)));
    let huge = CallShape { payload: u64::MAX, memory: MemoryType::WriteBack };
    assert!(huge.place(&mut layout).is_err());
    let (window, layout) = nic_of(1, 64);
    let memory = Memory::new(&layout);
    let mut host = window.host(memory.agent(0));
    assert_eq!(host.transmit(&[]), Err(TransmitError::Length(0, 64)));
    let error = host.transmit(&[0; 65]).expect_err("it is longer than a slot");
    assert_eq!(error.to_string(), "a frame has 1 to 64 bytes here, not 65");
    let (window, layout) = call_of(56);
    let memory = Memory::new(&layout);
    let error = Call::new(memory.agent(0), window).begin(&[0; 57]).expect_err("it does not fit");
    assert!(error.to_string().contains("at most 56 bytes"), "{error}");
}

/// Calls of two lines each, from a host and a device with one memory.
fn calls(memory: &LoomMemory, window: CallWindow) {
    let device = PlayedByCore(memory.core("device"));
    let other = conic_check::spawn(move || {
        let mut callee = Callee::new(device, window, Time::ZERO);
        for turn in 1..=2_u8 {
            while callee.poll().is_none() {
                callee.device().spin();
            }
            let mut request = [0; 72];
            callee.read(&mut request);
            assert_eq!(request, [turn; 72]);
            assert!(callee.respond(&[turn + 10; 24]));
        }
    });
    let mut call = Call::new(memory.core("host"), window);
    for turn in 1..=2_u8 {
        call.begin(&[turn; 72]).expect("the last call was answered");
        while call.poll().is_none() {
            call.core().spin();
        }
        let mut response = [0; 24];
        assert_eq!(call.read(&mut response), 24);
        assert_eq!(response, [turn + 10; 24]);
    }
    other.join().expect("the device ends");
}

/// Frames out and in again, through one slot each way, so that each is used again.
fn frames(memory: &LoomMemory, window: NicWindow) {
    let device = PlayedByCore(memory.core("device"));
    let other = conic_check::spawn(move || {
        let mut nic: Nic<PlayedByCore<LoomCore>> = window.nic(device);
        for turn in 1..=2_u8 {
            let mut frame = [0; 64];
            while nic.transmit(&mut frame).is_none() {
                Device::spin(nic.device());
            }
            assert_eq!(frame[..16], [turn; 16]);
            while nic.receive(&[turn + 10; 16]).is_err() {
                Device::spin(nic.device());
            }
        }
    });
    let mut host: Host<LoomCore> = window.host(memory.core("host"));
    for turn in 1..=2_u8 {
        while !host.transmit(&[turn; 16]).expect("it fits") {
            host.core().spin();
        }
        let mut frame = [0; 64];
        while host.receive(&mut frame).is_none() {
            host.core().spin();
        }
        assert_eq!(frame[..16], [turn + 10; 16]);
    }
    other.join().expect("the device ends");
}

#[test]
fn calls_and_frames_keep_their_bytes_under_loom() {
    let (window, layout) = call_of(72);
    let executions = explore(&layout, Exploration::full(), move |memory| calls(memory, window));
    let (window, layout) = nic_of(1, 64);
    let more = explore(&layout, Exploration::bounded(3), move |memory| frames(memory, window));
    assert!(executions > 1 && more > 1, "{executions} {more}");
}

fn mutation(weaken: Weaken, segment: &str, by: &str) -> Mutation {
    Mutation::new(weaken).of(&format!("pcie-pio {segment}")).by(by)
}

#[test]
fn each_ordering_of_a_call_is_needed_under_loom() {
    for mutation in [
        mutation(Weaken::RelaxedPublish, "request", "host"),
        mutation(Weaken::SignalFirst, "request", "host"),
        mutation(Weaken::RelaxedLoad, "request", "device"),
        mutation(Weaken::RelaxedStore, "response", "device"),
        mutation(Weaken::RelaxedLoad, "response", "host"),
    ] {
        let (window, layout) = call_of(72);
        let caught = catches(&layout, Exploration::full().weakened(mutation), move |memory| calls(memory, window));
        assert!(caught.message.contains("Causality violation"), "{}", caught.message);
    }
}

#[test]
fn each_ordering_of_a_frame_is_needed_under_loom() {
    for mutation in [
        mutation(Weaken::RelaxedStore, "transmit descriptors", "host"),
        mutation(Weaken::RelaxedLoad, "transmit descriptors", "device"),
        mutation(Weaken::RelaxedStore, "receive descriptor", "device"),
        mutation(Weaken::RelaxedLoad, "receive descriptor", "host"),
    ] {
        let (window, layout) = nic_of(1, 64);
        let exploration = Exploration::bounded(3).weakened(mutation);
        let caught = catches(&layout, exploration, move |memory| frames(memory, window));
        assert!(caught.message.contains("Causality violation"), "{}", caught.message);
    }
}

/// Waits a little; the other thread may need this very core.
fn pause(core: &impl Core, round: &mut u32) {
    *round += 1;
    core.spin();
    if round.is_multiple_of(100) {
        yield_core();
    }
}

#[test]
fn frames_and_calls_cross_between_two_threads() {
    const FRAMES: u64 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let (window, layout) = nic_of(8, 2048);
    let memory = Shared::create(&layout, Pages::Plain).expect("memory");
    let core = || NativeCore::new(&memory);
    let frame = |number: u64| bytes(number % 97, 1 + (number * 31 % 1500) as usize);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut nic = window.nic(PlayedByCore(core()));
            let (mut turned, mut round, mut held) = (0, 0, vec![0; 2048]);
            while turned < FRAMES {
                let Some(length) = nic.transmit(&mut held) else {
                    pause(&core(), &mut round);
                    continue;
                };
                while nic.receive(&held[..length]).is_err() {
                    pause(&core(), &mut round);
                }
                turned += 1;
            }
            assert_eq!(nic.statistics(), Default::default());
            // What was brought last is shown when the one before was acknowledged.
            let mut round = 0;
            while round < 1_000_000 && nic.unacknowledged() > 0 {
                nic.look();
                pause(&core(), &mut round);
            }
        });
        let mut host = window.host(core());
        let (mut sent, mut received, mut round, mut into) = (0, 0, 0, vec![0; 2048]);
        while received < FRAMES {
            let went = sent < FRAMES && sent - received < 8 && host.transmit(&frame(sent)).expect("it fits");
            sent += u64::from(went);
            match host.receive(&mut into) {
                Some(length) => {
                    assert!(into[..length] == frame(received), "frame {received}");
                    received += 1;
                }
                None if !went => pause(host.core(), &mut round),
                None => {}
            }
        }
        assert_eq!(host.statistics(), Default::default());
        other.join().expect("the other thread ends");
    });
}
