//! The limit kernels end, move what they say, and can be run again where they say so.

use conic_fabric::{Home, Layout, Time};
use conic_load::limits::{
    Exchange, LineAndFlag, LinePair, Moved, RoundTrip, Side, SlotPair, Store, Stream, Swap, Take, Taking,
};
use conic_native::{Memory, NativeCore, Pages, clock};

/// Runs both sides in fresh regions, longer each time, until the host's has moved something: on a machine with few cores
/// the other thread may not run at first.
fn both<R: Send>(
    layout: &Layout,
    nic: impl Fn(&NativeCore<'_>) -> R + Sync,
    host: impl Fn(&NativeCore<'_>, Time) -> Moved,
) -> (Moved, R) {
    for span in (0..16).map(|doubled| Time::from_nanoseconds(1_000_000 << doubled)) {
        let memory = Memory::create(layout, Pages::Plain).expect("a small region");
        let (moved, other) = std::thread::scope(|scope| {
            let nic = scope.spawn(|| nic(&NativeCore::new(&memory)));
            let moved = host(&NativeCore::new(&memory), clock::now() + span);
            (moved, nic.join().expect("the NIC's side"))
        });
        if moved.count > 0 {
            assert!(moved.span > Time::ZERO && moved.nanoseconds_each() > 0.0 && moved.per_second() > 0.0, "{moved:?}");
            return (moved, other);
        }
    }
    panic!("nothing moved in a minute");
}

#[test]
fn round_trips_can_be_called_again_at_once() {
    for kernel in [RoundTrip::one_line, RoundTrip::two_lines] {
        let mut layout = Layout::new();
        let kernel = kernel(&mut layout);
        let nic = |core: &NativeCore<'_>| (0..20).for_each(|_| kernel.answer(core));
        both(&layout, nic, |core, until| {
            for _ in 0..19 {
                kernel.call(core, Time::ZERO);
            }
            kernel.call(core, until)
        });
    }
}

#[test]
fn a_line_and_its_flag_go_there_and_back() {
    let mut layout = Layout::new();
    let kernel = LineAndFlag::new(&mut layout);
    both(&layout, |core| kernel.answer(core), |core, until| kernel.call(core, until));
}

#[test]
fn payloads_are_exchanged_through_a_line_pair_and_through_slots() {
    let mut layout = Layout::new();
    let pair = LinePair::new(&mut layout, Home::Nic);
    both(&layout, |core| pair.answer(core), |core, until| pair.call(core, until, |_| ()));
    let mut layout = Layout::new();
    let slots = SlotPair::new(&mut layout);
    both(&layout, |core| slots.answer(core), |core, until| slots.call(core, until, |_| ()));
}

#[test]
fn lines_are_taken_in_every_way_whole_turns_at_a_time() {
    for (how, lines) in [
        (Take::Loads, 48),
        (Take::Exchanges, 48),
        (Take::ExchangesOfLoaded, 48),
        (Take::LoadsTogether, 256),
        (Take::StoresTogether, 256),
        (Take::StoresOfRead, 256),
    ] {
        let mut layout = Layout::new();
        let kernel = Taking::new(&mut layout, how);
        let (moved, ()) = both(&layout, |core| kernel.give(core), |core, until| kernel.take(core, until));
        assert_eq!(moved.count % lines, 0, "{how:?}");
    }
}

#[test]
fn a_stream_of_lines_arrives_whole() {
    let mut layout = Layout::new();
    let kernel = Exchange::new(&mut layout);
    let (moved, (read, sum)) = both(&layout, |core| kernel.read(core), |core, until| kernel.write(core, until));
    // Each line carries its index in seven words, and one line says stop.
    let expected = (0..moved.count).fold(u64::MAX, |sum, index| sum ^ index);
    assert_eq!((read, sum), (moved.count + 1, expected));
}

#[test]
fn streams_run_both_ways_at_once() {
    let mut layout = Layout::new();
    let kernel = Exchange::new(&mut layout);
    let nic = |core: &NativeCore<'_>| kernel.both_ways(core, Side::Nic, Time::NEVER);
    both(&layout, nic, |core, until| kernel.both_ways(core, Side::Host, until));
}

#[test]
fn lines_are_swapped_in_both_directions() {
    let mut layout = Layout::new();
    let kernel = Swap::new(&mut layout);
    let nic = |core: &NativeCore<'_>| kernel.run(core, Side::Nic, Time::NEVER);
    let (host, nic) = both(&layout, nic, |core, until| kernel.run(core, Side::Host, until));
    assert!(nic.count.abs_diff(host.count) <= 256, "{} and {} lines", nic.count, host.count);
}

#[test]
fn chunks_arrive_whole_cached_or_not() {
    for store in [Store::Cached, Store::NonTemporal] {
        let mut layout = Layout::new();
        let kernel = Stream::new(&mut layout, 64 << 10);
        let (moved, last) = both(&layout, |core| kernel.read(core), |core, until| kernel.write(core, store, until));
        let number = moved.count / 1024 - 1;
        assert!(last.iter().all(|line| line.0 == [number; 8]), "a chunk was read before it was whole");
    }
}
