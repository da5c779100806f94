//! What the host says of pushes: the gate's registers and its policy, and packets that are written back at their cycle.

use std::cell::{Cell, RefCell};
use std::thread;

use crate::common::{Memory, bytes};
use crate::cxl::{PACKETS, go_round, small, turn_around};
use conic_fabric::{Address, Core, Device, LINE_BYTES, PlayedByCore, ReadTag, StateHint, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{
    CachePressure, GatePolicy, Host, PushControl, PushGate, PushStatistics, Queues, Receiver, Requests, Shape, Store,
    Transmitter,
};
use conic_native::{Flag, NativeCore, Pages, yield_core};

const CYCLE: Time = Time::from_picoseconds(2_500);
const PUSH: StateHint = StateHint::NonCacheablePush;

/// A device with a clock that the test sets, and what it wrote.
struct Clocked<'test, D> {
    device: D,
    now: &'test Cell<Time>,
    writes: &'test RefCell<Vec<(Address, StateHint)>>,
}

impl<D: Device> Device for Clocked<'_, D> {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        self.device.start_read(at, bytes, hint)
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.device.is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        self.device.finish_read(tag, at, into);
    }
    fn finish_line(&self, tag: ReadTag, at: Address) -> conic_fabric::Line {
        self.device.finish_line(tag, at)
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        self.device.read_word(at, hint)
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        // A line that is published is written as one and by its first word.
        if at.is_line_aligned() {
            self.writes.borrow_mut().push((at, hint));
        }
        self.device.write(at, from, hint);
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        self.writes.borrow_mut().push((at, hint));
        self.device.write_word(at, value, hint);
    }
    fn own_register(&self, at: Address) -> u64 {
        self.device.own_register(at)
    }
    fn spin(&self) {
        self.device.spin();
    }
    fn now(&self) -> Time {
        self.now.get()
    }
    fn cycle(&self) -> Time {
        CYCLE
    }
}

/// A pressure of so many thousandths of a cache of a million bytes, and bytes that were brought in so far.
fn pressure(thousandths: u64, brought_in: u64) -> CachePressure {
    CachePressure { occupied: thousandths * 1_000, capacity: 1_000_000, brought_in }
}

fn milliseconds(milliseconds: u64) -> Time {
    Time::from_nanoseconds(milliseconds * 1_000_000)
}

#[test]
fn a_full_cache_closes_the_gate_while_others_bring_lines_in_and_neither_limit_opens_it_at_once() {
    let policy =
        GatePolicy { full: 900, room: 800, busy: milliseconds(10), rest: milliseconds(20), ..GatePolicy::default() };
    // After a millisecond: a tenth of the cache brought in is all of it in ten, a twentieth in twenty.
    let allows = |allowed, thousandths, brought_in: u64| {
        policy.allows(
            allowed,
            (milliseconds(5), pressure(0, 7)),
            (milliseconds(6), pressure(thousandths, 7 + brought_in)),
        )
    };
    for (thousandths, brought_in, closes, opens) in [
        (899, 100_000, false, false),
        (900, 100_000, true, false),
        (900, 99_999, false, false),
        (1_000, 1_000_000, true, false),
        (800, 50_000, false, false),
        (799, 1_000_000, false, true),
        (1_000, 50_000, false, false),
        (1_000, 49_999, false, true),
        (1_000, 0, false, true),
    ] {
        assert_eq!(!allows(true, thousandths, brought_in), closes, "{thousandths}, {brought_in}: whether it closes");
        assert_eq!(allows(false, thousandths, brought_in), opens, "{thousandths}, {brought_in}: whether it opens");
    }
}

#[test]
fn the_gate_writes_its_register_where_that_is_news_and_decides_nothing_by_its_first_look() {
    let (layout, queues) = small();
    let memory = Memory::new(&layout);
    let mut gate = PushGate::new(PushControl::new(memory.agent(0), vec![queues]), GatePolicy::default());
    let mut register = Vec::new();
    assert_eq!(gate.next_look(), Time::ZERO);
    let mut look = |now: u64, thousandths, brought_in| {
        gate.look(milliseconds(now), pressure(thousandths, brought_in));
        register.push(memory.peek(queues.push_gate));
        // The device looks in between, so that each write by the host takes the line from it.
        memory.agent(1).load_acquire(queues.push_gate);
        (gate.is_open(), gate.closings(), gate.next_look().since(milliseconds(now)))
    };
    let interval = GatePolicy::default().interval;
    assert_eq!(look(1, 1_000, 500_000), (true, 0, interval), "what came before the first look is of no known time");
    assert_eq!(look(2, 1_000, 900_000), (false, 1, interval));
    assert_eq!(look(3, 850, 970_000), (false, 1, interval));
    assert_eq!(look(4, 1_000, 970_001), (true, 1, interval));
    assert_eq!(look(5, 850, 1_970_000), (true, 1, interval));
    assert_eq!(look(6, 1_000, 2_970_000), (false, 2, interval));
    assert_eq!(register, [0, 1, 1, 0, 0, 1]);
    assert_eq!(memory.ownerships(0, queues.push_gate.line(), LINE_BYTES), 3, "one for each time that it changed");
}

/// A receive half of small rings on a memory of one thread, its host, and the device's clock and writes.
struct Rig {
    memory: Memory,
    queues: Queues,
    now: Cell<Time>,
    writes: RefCell<Vec<(Address, StateHint)>>,
}

impl Rig {
    fn new() -> Rig {
        let (layout, queues) = small();
        Rig { memory: Memory::new(&layout), queues, now: Cell::default(), writes: RefCell::default() }
    }

    fn device(&self) -> Clocked<'_, PlayedByCore<impl Core + '_>> {
        Clocked { device: PlayedByCore(self.memory.agent(1)), now: &self.now, writes: &self.writes }
    }

    fn control(&self) -> PushControl<impl Core + '_> {
        PushControl::new(self.memory.agent(0), vec![self.queues])
    }

    /// The hints of what the device has written since this was last asked.
    fn hints(&self) -> Vec<StateHint> {
        self.writes.take().into_iter().map(|(_, hint)| hint).collect()
    }
}

/// Takes a packet of these bytes, and gives its buffer back.
fn take<C: Core>(host: &mut Host<C>, wanted: &[u8]) -> Address {
    let mut packets = [Packet::BLANK];
    assert_eq!(host.rx_burst(&mut packets), 1);
    let mut found = vec![0; packets[0].length().into()];
    host.core().read_bytes(packets[0].address(), &mut found);
    assert_eq!(found, wanted);
    host.buf_free(&[packets[0].address()]);
    packets[0].address()
}

#[test]
fn a_device_that_no_host_tells_of_a_gate_pushes_every_packet_and_writes_none_back() {
    let rig = Rig::new();
    let mut host = Host::new(rig.queues, rig.memory.agent(0), Requests::PUSHED.tx_signal);
    let mut receiver = Receiver::new(rig.queues, rig.device(), Requests::PUSHED, 4);
    for number in 0..100 {
        let frame = bytes(number, 60 + number as usize * 13);
        assert_eq!(receiver.deliver(&[&frame]), 1);
        rig.now.set(milliseconds(number));
        receiver.prefetch();
        take(&mut host, &frame);
    }
    assert!(rig.hints().iter().all(|hint| *hint == PUSH));
    assert_eq!(receiver.pushes(), PushStatistics { pushed: 100, gated: 0, written_back: 0 });
    assert_eq!(receiver.next_due(), None);
}

#[test]
fn while_the_gate_is_closed_nothing_is_pushed_and_every_packet_comes_at_once_all_the_same() {
    let rig = Rig::new();
    let mut host = Host::new(rig.queues, rig.memory.agent(0), Requests::PUSHED.tx_signal);
    let mut receiver = Receiver::new(rig.queues, rig.device(), Requests::PUSHED, 4);
    let mut control = rig.control();
    let mut counts = PushStatistics::default();
    for number in 0..200_u64 {
        let allowed = number / 7 % 3 != 1;
        control.allow(allowed);
        let frame = bytes(number, 60 + number as usize * 7);
        rig.writes.take();
        assert_eq!(receiver.deliver(&[&frame]), 1);
        let hints = rig.hints();
        let wanted = if allowed { PUSH } else { StateHint::NonCacheable };
        assert!(hints.len() >= 2 && hints.iter().all(|hint| *hint == wanted), "packet {number}: {hints:?}");
        if allowed {
            counts.pushed += 1
        } else {
            counts.gated += 1
        }
        take(&mut host, &frame);
    }
    assert_eq!(receiver.pushes(), counts);
    // What is not to be pushed is no push that the gate held.
    let mut other = Receiver::new(rig.queues, rig.device(), Requests::NON_COHERENT, 4);
    control.allow(false);
    let _ = other.deliver(&[[1; 64]]);
    assert_eq!(other.pushes(), PushStatistics::default());
}

#[test]
fn a_pushed_packet_is_written_back_at_its_cycle_and_not_before() {
    let rig = Rig::new();
    let mut host = Host::new(rig.queues, rig.memory.agent(0), Requests::PUSHED.tx_signal);
    let mut receiver = Receiver::new(rig.queues, rig.device(), Requests::PUSHED, 4);
    let mut control = rig.control();
    let start = milliseconds(1);
    for cycles in [1, 1_000, u32::MAX] {
        rig.now.set(start);
        control.write_back_after(cycles);
        let frame = bytes(cycles.into(), 200);
        assert_eq!(receiver.deliver(&[&frame]), 1);
        let due = start + Time::from_picoseconds(2_500 * u64::from(cycles));
        assert_eq!(receiver.next_due(), Some(due));
        rig.writes.take();
        let before = receiver.pushes().written_back;
        rig.now.set(due - Time::from_picoseconds(1));
        receiver.prefetch();
        assert_eq!((rig.hints(), receiver.pushes().written_back), (vec![], before), "{cycles} cycles");
        rig.now.set(due);
        receiver.prefetch();
        assert_eq!(receiver.pushes().written_back, before + 1, "{cycles} cycles");
        let at = take(&mut host, &frame);
        assert_eq!(rig.writes.take(), [(at, StateHint::NonCacheable)]);
        assert_eq!(receiver.next_due(), None, "once");
    }
}

#[test]
fn what_the_host_sets_holds_for_later_pushes_and_each_is_written_at_its_own_time() {
    let rig = Rig::new();
    let _host = Host::new(rig.queues, rig.memory.agent(0), Requests::PUSHED.tx_signal);
    let mut receiver = Receiver::new(rig.queues, rig.device(), Requests::PUSHED, 4);
    let mut control = rig.control();
    for cycles in [4_000, 400, 0] {
        control.write_back_after(cycles);
        assert_eq!(receiver.deliver(&[[7; 64]]), 1);
    }
    let mut dues = Vec::new();
    while let Some(due) = receiver.next_due() {
        dues.push(due.nanoseconds());
        rig.now.set(due);
        receiver.prefetch();
    }
    assert_eq!(dues, [1_000, 10_000], "the later push is due first, the last not at all");
    assert_eq!(receiver.pushes(), PushStatistics { pushed: 3, gated: 0, written_back: 2 });
}

#[test]
fn a_buffers_next_packet_is_not_overwritten_by_what_was_pushed_there_before() {
    let rig = Rig::new();
    let mut host = Host::new(rig.queues, rig.memory.agent(0), Requests::PUSHED.tx_signal);
    let mut receiver = Receiver::new(rig.queues, rig.device(), Requests::PUSHED, 4);
    let mut control = rig.control();
    // Each buffer has been pushed to, and then is pushed to again or written, before the first push is due.
    control.write_back_after(1_000);
    for round in 0..3_u64 {
        control.allow(round < 2);
        for number in 0..24 {
            let frame = [(round * 24 + number) as u8; 64];
            assert_eq!(receiver.deliver(&[frame]), 1);
            if round == 2 {
                rig.now.set(milliseconds(1));
                receiver.prefetch();
            }
            take(&mut host, &frame);
        }
    }
    assert_eq!(receiver.pushes().gated, 24);
    assert_eq!(receiver.next_due(), None);
}

#[test]
fn any_contents_of_the_registers_are_a_gate_and_a_number_of_cycles() {
    let rig = Rig::new();
    let _host = Host::new(rig.queues, rig.memory.agent(0), Requests::PUSHED.tx_signal);
    let mut receiver = Receiver::new(rig.queues, rig.device(), Requests::PUSHED, 4);
    rig.memory.poke(rig.queues.push_gate, 1 << 63);
    assert_eq!(receiver.deliver(&[[1; 64]]), 1);
    rig.memory.poke(rig.queues.push_gate, 0);
    for (value, due) in [(u64::MAX << 32, None), (u64::MAX, Some(u64::from(u32::MAX) * 5 / 2)), (3 << 40 | 8, Some(20))]
    {
        rig.memory.poke(rig.queues.write_back, value);
        assert_eq!(receiver.deliver(&[[1; 64]]), 1);
        assert_eq!(receiver.next_due().map(Time::nanoseconds), due, "{value:#x}");
        rig.now.set(receiver.next_due().unwrap_or_default());
        receiver.prefetch();
        rig.now.set(Time::ZERO);
    }
    assert_eq!(receiver.pushes(), PushStatistics { pushed: 3, gated: 1, written_back: 2 });
}

#[test]
fn a_gate_that_another_thread_moves_loses_and_changes_nothing() {
    let mut layout = conic_fabric::Layout::new();
    let shape = Shape { descriptors: 16, buffers: 24, ..Shape::for_packets(1500) };
    let queues = shape.place(&mut layout).expect("a shape that can be");
    let memory = conic_native::Memory::create(&layout, Pages::Plain).expect("memory");
    let requests = Requests::PUSHED;
    let mut host = Host::new(queues, NativeCore::new(&memory), requests.tx_signal);
    let mut control = PushControl::new(NativeCore::new(&memory), vec![queues]);
    let device = || PlayedByCore(NativeCore::new(&memory));
    let mut receiver = Receiver::new(queues, device(), requests, 4);
    let mut transmitter = Transmitter::new(queues, device(), requests, 8);
    let done = Flag::new();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut turned = 0;
            while !done.is_up() {
                let count = turn_around(&mut host, Store::Cached) as u64;
                if count == 0 {
                    host.core().spin();
                    yield_core();
                }
                turned += count;
                control.allow(turned / 5 % 2 == 0);
                control.write_back_after((turned % 3) as u32 * 500);
            }
        });
        go_round(&mut receiver, &mut transmitter, || other.is_finished());
        done.raise();
        other.join().expect("the other thread ends");
    });
    let PushStatistics { pushed, gated, written_back } = receiver.pushes();
    assert!(pushed + gated == PACKETS && pushed > 0 && gated > 0 && written_back > 0, "{:?}", receiver.pushes());
}
