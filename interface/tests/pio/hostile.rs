//! A peer that writes anything, anywhere, at any time: it is refused and counted, and harms only itself.

use conic_fabric::Layout;
use conic_interface::pio::control::{Kind, word};
use conic_interface::pio::{Device, Features, Host, Lines, Played, Poll, Refusals, Shape};
use proptest::prelude::*;

use crate::calls::{place, shapes};
use crate::common::{Memory, bytes, replayed};

fn pair() -> (Lines, Layout) {
    place(Shape::pair())
}

#[test]
fn a_device_refuses_scribbled_control_words_once_each_and_by_reason() {
    let (lines, layout) = pair();
    let memory = Memory::new(&layout);
    let mut device = Played::new(memory.agent(1), lines);
    let control = lines.control(0);
    let none = Refusals::default();
    for (scribble, refusals) in [
        (0, none),
        (word(1, Kind::Request, 8), Refusals { turns: 1, ..none }),
        (word(u32::MAX, Kind::Continue, 0), Refusals { turns: 2, ..none }),
        (u64::MAX, Refusals { turns: 2, kinds: 1, ..none }),
        (word(0, Kind::Response, 0), Refusals { turns: 2, kinds: 2, ..none }),
        (0xff, Refusals { turns: 2, kinds: 3, ..none }),
    ] {
        memory.poke(control, scribble);
        for _ in 0..3 {
            assert_eq!(device.poll(), None, "{scribble:#x}");
        }
        assert_eq!(device.refusals(), refusals, "{scribble:#x}");
        assert!(!device.respond(&[1]) && !device.is_working());
    }
    memory.poke(control, word(0, Kind::Request, 56));
    assert_eq!(device.poll(), Some(56));
}

#[test]
fn a_request_that_is_too_long_is_answered_so_and_the_next_is_taken() {
    for length in [57, 1 << 20, (1 << 24) - 1] {
        let (lines, layout) = pair();
        let memory = Memory::new(&layout);
        let mut host = Host::new(memory.agent(0), lines, Features::PLAYED);
        let mut device = Played::new(memory.agent(1), lines);
        host.begin(&[5; 56], 0).expect("it fits");
        memory.poke(lines.control(0), word(0, Kind::Request, length));
        assert_eq!((device.poll(), device.refusals().lengths), (None, 1));
        assert_eq!((host.poll(), host.is_waiting()), (Poll::Refused, false));
        host.begin(&[6; 56], 0).expect("it fits");
        assert_eq!(device.poll(), Some(56));
        assert!(device.respond(&[7]));
        assert_eq!(host.poll(), Poll::Response(1));
    }
}

#[test]
fn a_host_refuses_scribbled_answers_once_each() {
    let (lines, layout) = pair();
    let memory = Memory::new(&layout);
    let mut host = Host::new(memory.agent(0), lines, Features::PLAYED);
    host.begin(&[1; 8], 0).expect("it fits");
    let answer = lines.control(1);
    let scribbles =
        [word(0, Kind::Response, 57), word(1, Kind::Response, 8), word(0, Kind::TryAgain, 1), u64::MAX, 0x77];
    for (count, scribble) in (1..).zip(scribbles) {
        memory.poke(answer, scribble);
        for _ in 0..3 {
            assert_eq!(host.poll(), Poll::NotYet, "{scribble:#x}");
        }
        assert_eq!(host.refused(), count, "{scribble:#x}");
    }
    memory.poke(answer, word(0, Kind::Response, 56));
    assert_eq!(host.poll(), Poll::Response(56));
}

proptest! {
    #![proptest_config(replayed(3000))]

    #[test]
    fn whatever_a_peer_scribbles_nothing_is_read_or_written_beyond_the_lines(
        shape in prop::sample::select(shapes()),
        scribbles in prop::collection::vec((any::<bool>(), 0..4000u64, prop_oneof![
            any::<u64>(),
            (0..6u32, 0..6u8, 0..1500u32).prop_map(|(turn, kind, length)| {
                u64::from(turn) << 32 | u64::from(kind) << 24 | u64::from(length)
            }),
        ], 0..6u8), 0..60),
    ) {
        let (lines, layout) = place(shape);
        // Behind the lines lies another's memory, which must stay as it is: an access to it panics in this world.
        let memory = Memory::new(&layout);
        let most = shape.capacity() as usize;
        let mut host = Host::new(memory.agent(0), lines, Features::PLAYED);
        let mut device = Played::new(memory.agent(1), lines);
        let mut room = vec![0; most + 100];
        for (control, at, value, call) in scribbles {
            let at = if control { lines.control(at as u32) } else { conic_fabric::Address(at * 8 % layout.bytes()) };
            memory.poke(at, value);
            match call {
                0 => drop(host.begin(&bytes(value, most), most)),
                1 => if let Poll::Response(length) = host.poll() {
                    prop_assert!(length <= most && host.read(&mut room) == length);
                },
                2 => if let Some(length) = device.poll() {
                    prop_assert!(length <= most && device.read(&mut room) == length);
                },
                3 => drop(device.respond(&room)),
                4 => device.try_again(),
                _ => {
                    host = Host::resume(memory.agent(0), lines, Features::PLAYED);
                    device = Played::resume(memory.agent(1), lines);
                }
            }
        }
    }
}
