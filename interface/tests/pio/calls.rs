//! Shapes, limits, and any sequence of calls against a model.

use conic_fabric::{Home, Layout};
use conic_interface::burst::NicQueue;
use conic_interface::pio::control::{Kind, word};
use conic_interface::pio::nic::NicLines;
use conic_interface::pio::{Device, Features, Host, Lines, NotBegun, Played, Poll, Shape, ShapeError};
use proptest::prelude::*;

use crate::common::{Memory, bytes, replayed};

pub fn place(shape: Shape) -> (Lines, Layout) {
    let mut layout = Layout::new();
    (shape.place(&mut layout, Home::Nic).expect("a shape that can be"), layout)
}

/// Shapes with every kind of border: one line, two lines a unit, a header of a whole line, groups, overflow.
pub fn shapes() -> Vec<Shape> {
    let wide = Shape { unit: 128, header: 64, alignment: 128, ..Shape::pair() };
    vec![
        Shape::pair(),
        Shape { header: 64, ..Shape::groups(200) },
        Shape::groups(200),
        Shape::frames(200),
        Shape { overflow: 3, ..wide },
        Shape { group: 3, header: 24, ..wide },
        Shape { group: 2, overflow: 2, ..Shape::pair() },
    ]
}

#[test]
fn a_payload_of_any_length_has_a_shape_if_only_one_that_is_refused() {
    for bytes in [u64::MAX - 8, u64::MAX - 7, u64::MAX] {
        let refused = Shape::groups(bytes).place(&mut Layout::new(), Home::Nic);
        assert_eq!(refused, Err(ShapeError::Units(u16::MAX)), "{bytes} bytes");
    }
}

#[test]
fn payloads_of_every_length_come_back_as_they_were_sent() {
    for shape in shapes() {
        let (lines, layout) = place(shape);
        let memory = Memory::new(&layout);
        let mut host = Host::new(memory.agent(0), lines, Features::PLAYED);
        let mut device = Played::new(memory.agent(1), lines);
        let most = shape.capacity() as usize;
        for length in 0..=most {
            let (request, response) = (bytes(length as u64, length), bytes(1 << 32 | length as u64, most - length));
            host.begin(&request, most).expect("it fits");
            assert_eq!((host.poll(), device.poll()), (Poll::NotYet, Some(length)), "{shape:?}");
            let mut read = vec![0; most];
            assert_eq!(device.read(&mut read), length);
            assert_eq!(read[..length], request, "{shape:?}");
            assert!(device.respond(&response) && !device.respond(&response));
            assert_eq!(host.poll(), Poll::Response(most - length));
            let mut read = vec![0; most];
            assert_eq!(host.read(&mut read), most - length);
            assert_eq!(read[..most - length], response, "{shape:?}");
        }
        assert_eq!((host.refused(), device.refusals().total()), (0, 0));
    }
}

#[test]
fn a_request_that_does_not_fit_or_comes_too_early_is_not_made() {
    let (lines, layout) = place(Shape::frames(100));
    let memory = Memory::new(&layout);
    let mut host = Host::new(memory.agent(0), lines, Features::PLAYED);
    let capacity = lines.shape().capacity();
    assert_eq!(capacity, 120);
    let too_long = host.begin(&[0; 121], 0).expect_err("121 bytes");
    assert_eq!(too_long, NotBegun::TooLong { bytes: 121, capacity });
    assert!(too_long.to_string().contains("121") && host.begin(&[], 121).is_err());
    host.begin(&[1; 120], 120).expect("it fits");
    assert_eq!(host.begin(&[], 0), Err(NotBegun::Busy));
}

#[test]
fn shapes_that_cannot_be_are_refused_with_their_reason() {
    let good = Shape::pair();
    for (shape, error, text) in [
        (Shape { unit: 96, ..good }, ShapeError::Unit(96), "not 96"),
        (Shape { unit: 32, ..good }, ShapeError::Unit(32), "not 32"),
        (Shape { group: 0, ..good }, ShapeError::Units(0), "not 0"),
        (Shape { overflow: 4097, ..good }, ShapeError::Units(4097), "not 4097"),
        (Shape { header: 4, ..good }, ShapeError::Header(4), "not 4"),
        (Shape { header: 72, ..good }, ShapeError::Header(72), "not 72"),
        (Shape { alignment: 100, ..good }, ShapeError::Alignment(100), "not to 100"),
        (Shape { unit: 128, alignment: 64, ..good }, ShapeError::Alignment(64), "not to 64"),
    ] {
        let refused = shape.place(&mut Layout::new(), Home::Nic).expect_err("refused");
        assert_eq!(refused, error);
        assert!(refused.to_string().contains(text), "{refused}");
    }
    // More than 2^24 bytes do not fit a control word's length.
    assert!(Shape { unit: 8192, group: 4096, alignment: 8192, ..good }.place(&mut Layout::new(), Home::Nic).is_err());
}

#[test]
fn payloads_lie_where_the_published_layout_has_them() {
    // Overflow lines of a frame: none up to 64 bytes, then one for each 128 bytes begun; 76 for the largest.
    let published = Shape { unit: 128, header: 64, overflow: 76, alignment: 128, ..Shape::pair() };
    for (length, overflow) in [(1, 0), (64, 0), (65, 1), (192, 1), (193, 2), (1536, 12), (9600, 75), (9664, 75)] {
        assert_eq!(published.units_of(length), 1 + overflow, "{length} bytes");
    }
    assert_eq!(published.capacity(), 64 + 76 * 128);
    let (lines, _) = place(published);
    assert_eq!(lines.control(1) - lines.control(0), 128, "neighbouring lines lie in different units of the caches");
    for number in 0..78 {
        assert_eq!(lines.number_of(lines.unit(number)), Some(number));
        assert_eq!(lines.number_of(lines.unit(number) + 127), Some(number));
    }
    let (lines, _) = place(Shape::pair());
    assert_eq!(lines.control(1) - lines.control(0), 128, "not in one pair of neighbours that a prefetcher fetches");
    assert_eq!(lines.number_of(lines.control(0) + 64), None);
}

#[test]
fn a_placement_says_whether_it_can_deadlock() {
    // As the exploration finds (`explore`): the loads that wait must leave a slot in every unit that a recall needs.
    let pair = Shape::pair();
    assert!(pair.can_deadlock(1, |_| 0) && !pair.can_deadlock(2, |_| 0) && !pair.can_deadlock(1, u32::from));
    let groups = Shape { group: 2, ..pair };
    assert!(groups.can_deadlock(2, |_| 0) && !groups.can_deadlock(3, |_| 0));
    let alternating = |line: u16| u32::from(line % 2);
    assert!(groups.can_deadlock(1, alternating) && !groups.can_deadlock(2, alternating));
    assert!(!groups.can_deadlock(1, |line| u32::from(line / 2)));
    let overflow = Shape { overflow: 1, ..pair };
    assert!(overflow.can_deadlock(1, |line| u32::from(line == 1)) && !overflow.can_deadlock(1, u32::from));
    // 64 KiB in 128-byte lines over 8 units of 16 slots: the loads of a group fill them four times over.
    let large = Shape::groups(65_536 - 8).with_unit(128);
    assert_eq!(large.group, 512);
    assert!(large.can_deadlock(16, |line| u32::from(line % 8)) && !large.can_deadlock(65, |line| u32::from(line % 8)));
}

#[test]
fn turns_may_run_over() {
    let (lines, layout) = place(Shape::frames(100));
    let memory = Memory::new(&layout);
    // As if there had been four thousand million answers but three.
    memory.poke(lines.control(u32::MAX - 2), word(u32::MAX - 3, Kind::Response, 0));
    let mut host = Host::resume(memory.agent(0), lines, Features::PLAYED);
    let mut device = Played::resume(memory.agent(1), lines);
    assert_eq!((host.turn(), device.turn()), (u32::MAX - 2, u32::MAX - 2));
    for call in 0..8 {
        host.begin(&[call; 100], 0).expect("the last call was answered");
        if call == 2 {
            // A successor reads it off the lines, whichever of the two numbers is the smaller.
            host = Host::resume(memory.agent(0), lines, Features::PLAYED);
            device = Played::resume(memory.agent(1), lines);
        }
        assert_eq!((host.is_waiting(), device.poll()), (true, Some(100)));
        assert!(device.respond(&[call]));
        assert_eq!(host.poll(), Poll::Response(1));
    }
    assert_eq!((host.turn(), host.refused(), device.refusals().total()), (5, 0, 0));
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Begin(usize),
    Poll,
    Take,
    Respond(usize),
    TryAgain,
    NewHost,
    NewDevice,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (0..200usize).prop_map(Call::Begin),
        Just(Call::Poll),
        Just(Call::Poll),
        Just(Call::Take),
        Just(Call::Take),
        (0..200usize).prop_map(Call::Respond),
        Just(Call::TryAgain),
        Just(Call::NewHost),
        Just(Call::NewDevice),
    ]
}

/// What should be: where a request and its response are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Model {
    Idle,
    Asked(Vec<u8>),
    Taken(Vec<u8>),
    Answered(Vec<u8>),
}

/// Whether a payload of that length is read, and is that one.
fn is_read(read: impl FnOnce(&mut [u8]) -> usize, length: usize, payload: &[u8]) -> bool {
    let mut into = vec![0; length + 1];
    read(&mut into) == length && into[..length] == *payload
}

proptest! {
    #![proptest_config(replayed(2000))]

    #[test]
    fn any_calls_are_those_of_one_request_and_one_response_at_a_time(
        shape in prop::sample::select(shapes()),
        calls in prop::collection::vec(call(), 0..80),
    ) {
        let (lines, layout) = place(shape);
        let memory = Memory::new(&layout);
        let most = shape.capacity() as usize;
        let mut host = Host::new(memory.agent(0), lines, Features::PLAYED);
        let mut device = Played::new(memory.agent(1), lines);
        let (mut model, mut seed, mut deferred) = (Model::Idle, 0, false);
        for call in calls {
            seed += 1;
            match call {
                Call::Begin(length) => {
                    let request = bytes(seed, length.min(most));
                    let idle = model == Model::Idle;
                    prop_assert_eq!(host.begin(&request, most).is_ok(), idle);
                    if idle {
                        model = Model::Asked(request);
                    }
                }
                Call::Poll => match (host.poll(), &model) {
                    (Poll::Response(length), Model::Answered(response)) => {
                        prop_assert!(is_read(|read| host.read(read), length, response));
                        model = Model::Idle;
                    }
                    // The first look after "try again" says that it did; the next may find the response.
                    (Poll::NotYet, Model::Answered(_)) => prop_assert!(deferred),
                    (poll, _) => prop_assert_eq!(poll, Poll::NotYet),
                },
                Call::Take => match (device.poll(), model.clone()) {
                    (Some(length), Model::Asked(request)) => {
                        prop_assert!(is_read(|read| device.read(read), length, &request));
                        model = Model::Taken(request);
                    }
                    (taken, model) => prop_assert!(taken.is_none() && !matches!(model, Model::Asked(_))),
                },
                Call::Respond(length) => {
                    let response = bytes(seed << 32, length.min(most));
                    let responds = device.respond(&response);
                    let may = matches!(model, Model::Taken(_));
                    prop_assert!(may || !responds);
                    prop_assert!(responds || !may || deferred);
                    if responds {
                        (model, deferred) = (Model::Answered(response), false);
                    }
                }
                Call::TryAgain => {
                    device.try_again();
                    deferred |= matches!(model, Model::Taken(_));
                }
                Call::NewHost => {
                    host = Host::resume(memory.agent(0), lines, Features::PLAYED);
                    if matches!(model, Model::Answered(_)) {
                        // What the last host had not polled is lost with it.
                        model = Model::Idle;
                    }
                    prop_assert_eq!(host.is_waiting(), model != Model::Idle);
                }
                Call::NewDevice if !deferred => {
                    device = Played::resume(memory.agent(1), lines);
                    if let Model::Taken(request) = model.clone() {
                        model = Model::Asked(request);
                    }
                }
                Call::NewDevice => {}
            }
        }
        prop_assert_eq!((host.refused(), device.refusals().total()), (0, 0));
    }
}

#[test]
fn a_nic_carries_frames_of_all_sizes_both_ways_and_refuses_what_does_not_fit() {
    for shape in [Shape::frames(9600), Shape { unit: 128, header: 64, overflow: 76, alignment: 128, ..Shape::pair() }] {
        let mut layout = Layout::new();
        let lines = NicLines::place(&shape, &mut layout, Home::Nic).expect("a shape that can be");
        let memory = Memory::new(&layout);
        let mut host = lines.host([memory.agent(0), memory.agent(0)], Features::PLAYED);
        let mut nic = lines.played([memory.agent(1), memory.agent(1)]);
        let mut into = vec![0; 9600];
        assert_eq!(host.receive.receive(&mut into), None);
        for length in (1..=9600).step_by(97).chain([64, 65, 9600]) {
            let frame = bytes(length as u64, length);
            assert_eq!(host.transmit.try_transmit(&frame), Ok(true));
            assert_eq!(host.transmit.try_transmit(&frame), Ok(false), "one at a time");
            assert!(!host.transmit.is_taken());
            assert_eq!(nic.take_frame(&mut into), Some(length));
            assert!(host.transmit.is_taken());
            assert_eq!(into[..length], frame);
            assert!(nic.deliver_frame(&frame), "{length} bytes");
            assert!(!nic.deliver_frame(&frame), "one at a time");
            into.fill(0);
            assert_eq!(host.receive.receive(&mut into), Some(length));
            assert_eq!(into[..length], frame);
            // And through its own loop.
            assert_eq!((host.transmit.try_transmit(&frame), nic.turn_around(), nic.turn_around()), (Ok(true), 1, 0));
            assert_eq!(host.receive.receive(&mut into), Some(length));
            assert_eq!(into[..length], frame);
        }
        assert!(host.transmit.try_transmit(&vec![0; shape.capacity() as usize + 1]).is_err());
        assert!(nic.deliver_frame(&vec![0; shape.capacity() as usize + 1]) && nic.deliver_frame(&[]));
        assert_eq!((nic.dropped(), nic.refused(), host.transmit.dropped()), (2, 0, 0));
        assert_eq!(host.transmit.try_transmit(&[7; 300]), Ok(true));
        assert_eq!((nic.take_frame(&mut [0; 299]), nic.dropped()), (None, 3));
        assert!(host.transmit.is_taken());
    }
}
