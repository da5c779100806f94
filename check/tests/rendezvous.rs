//! The message-level world, and a call through a pair of the device's lines (coherent PIO section 4, variant c).

use std::thread;

use conic_check::{RendezvousCore, RendezvousDevice, RendezvousMemory};
use conic_fabric::{
    Address, Ask, Core, Device, Grant, Home, HomeAgent, Layout, Line, MemoryType, StateHint, SynchronisingWords,
};

/// Where the things of these tests lie.
#[derive(Clone, Copy)]
struct Places {
    /// The host's memory.
    host: Address,
    /// Two lines of the device's.
    pair: [Address; 2],
    /// A register of the device's.
    register: Address,
}

fn memory(seed: u64, eviction_percent: u64) -> (RendezvousMemory, Places) {
    let mut layout = Layout::new();
    let host = layout.add("host memory", 256, 64, Home::Host, SynchronisingWords::FIRST);
    let pair = layout.add("line pair", 128, 64, Home::Nic, SynchronisingWords::FIRST);
    let register = layout.add_registers("register", 64, Home::Nic, MemoryType::Uncached);
    let places = Places { host, pair: [pair, pair.lines(1)], register };
    (RendezvousMemory::new(&layout, seed, eviction_percent), places)
}

/// What the device computes.
fn function(arguments: &Line) -> Line {
    Line(arguments.0.map(|word| word.rotate_left(7) ^ 0x5555))
}

/// The core's half of the exchange.
struct Caller<C> {
    core: C,
    pair: [Address; 2],
    turn: usize,
}

impl<C: Core> Caller<C> {
    fn call(&mut self, arguments: &Line) -> Line {
        let (request, response) = (self.pair[self.turn], self.pair[1 - self.turn]);
        self.core.publish_line(request, arguments);
        // This load tells the device that the arguments are there, and ends when it answers.
        let signal = self.core.load_acquire(response);
        let result = self.core.read_line(response);
        assert_eq!(signal, result.0[0], "a line that is loaded again holds what it held");
        self.turn = 1 - self.turn;
        result
    }
}

/// The device's half of the exchange.
struct Responder<D> {
    device: D,
    pair: [Address; 2],
    /// What each line held when it was answered last, for a device that forgets.
    saved: [Line; 2],
    /// Which line the core writes its arguments to, and reads its last result from.
    current: usize,
    grant: Grant,
    /// Whether what the cache gives up is kept: what a device must do, and a broken one forgets.
    keeps_evicted: bool,
    calls: u64,
    evictions: u64,
    writable: u64,
}

impl<D: HomeAgent> Responder<D> {
    fn new(device: D, pair: [Address; 2], grant: Grant) -> Responder<D> {
        let saved = [Line::ZERO; 2];
        Responder { device, pair, saved, current: 0, grant, keeps_evicted: true, calls: 0, evictions: 0, writable: 0 }
    }

    /// Takes one message, if one arrived.
    fn step(&mut self) -> bool {
        let Some(arrival) = self.device.next_arrival() else {
            self.device.spin();
            return false;
        };
        let line = self.pair.iter().position(|&at| at == arrival.line).expect("a line of the pair");
        match arrival.ask {
            Ask::Evicted { changed } => self.evicted(line, changed),
            // A line that the cache gave up too early, or a store to it.
            Ask::Shared if line == self.current => self.device.answer(arrival, self.grant),
            Ask::Exclusive if line == self.current => {
                self.writable += 1;
                self.device.answer(arrival, Grant::Exclusive);
            }
            Ask::Shared => {
                let result = function(&self.recall_arguments());
                self.saved[line] = result;
                self.current = line;
                self.calls += 1;
                self.device.set_own_line(self.pair[line], &result);
                self.device.answer(arrival, self.grant);
            }
            Ask::Exclusive => panic!("a store to a line that holds no result"),
        }
        true
    }

    fn evicted(&mut self, line: usize, changed: bool) {
        self.evictions += 1;
        if changed && !self.keeps_evicted {
            self.device.set_own_line(self.pair[line], &self.saved[line]);
        }
    }

    fn recall_arguments(&mut self) -> Line {
        let tag = self.device.start_recall(self.pair[self.current]);
        while !self.device.is_recalled(&tag) {
            self.device.spin();
        }
        let _changed = self.device.finish_recall(tag);
        // The cache may have given the line up before the recall reached it; then it has said so.
        while let Some(arrival) = self.device.next_arrival() {
            let line = self.pair.iter().position(|&at| at == arrival.line).expect("a line of the pair");
            match arrival.ask {
                Ask::Evicted { changed } => self.evicted(line, changed),
                other => panic!("{other:?} from a core that waits"),
            }
        }
        self.device.own_line(self.pair[self.current])
    }
}

/// What a run of calls gave.
#[derive(Debug, PartialEq, Eq)]
struct Tally {
    wrong: u64,
    calls: u64,
    evictions: u64,
    writable: u64,
}

/// Runs `rounds` calls with fresh arguments.
fn exchange(seed: u64, eviction_percent: u64, grant: Grant, keeps_evicted: bool, rounds: u64) -> Tally {
    let (memory, places) = memory(seed, eviction_percent);
    let (core, device) = memory.ends();
    thread::scope(|scope| {
        let device = scope.spawn(move || {
            let mut responder = Responder { keeps_evicted, ..Responder::new(device, places.pair, grant) };
            while !responder.device.core_is_gone() {
                responder.step();
            }
            // What the cache gave up last.
            while responder.step() {}
            (responder.calls, responder.evictions, responder.writable)
        });
        let mut caller = Caller { core, pair: places.pair, turn: 0 };
        let mut wrong = 0;
        for round in 0..rounds {
            let arguments = Line(std::array::from_fn(|index| round << 8 | index as u64));
            wrong += u64::from(caller.call(&arguments) != function(&arguments));
        }
        drop(caller);
        let (calls, evictions, writable) = device.join().expect("the device ends");
        Tally { wrong, calls, evictions, writable }
    })
}

#[test]
fn thousands_of_calls_through_a_line_pair_keep_their_payloads_whatever_the_cache_gives_up() {
    for (seed, percent) in [(1, 1), (2, 10), (3, 50), (4, 100)] {
        let tally = exchange(seed, percent, Grant::Exclusive, true, 2_000);
        assert_eq!((tally.wrong, tally.calls), (0, 2_000), "seed {seed}, {percent}%");
        assert!(tally.evictions > 20 * percent, "seed {seed}, {percent}%: {tally:?}");
    }
}

#[test]
fn an_exclusive_answer_makes_the_next_store_silent_and_a_shared_one_does_not() {
    let exclusive = exchange(0, 0, Grant::Exclusive, true, 1_000);
    assert_eq!(exclusive, Tally { wrong: 0, calls: 1_000, evictions: 0, writable: 1 });
    let shared = exchange(0, 0, Grant::Shared, true, 1_000);
    assert_eq!(shared, Tally { wrong: 0, calls: 1_000, evictions: 0, writable: 1_000 });
    assert_eq!(exchange(5, 20, Grant::Shared, true, 1_000).wrong, 0);
}

#[test]
fn a_seed_replays_a_run() {
    let [one, again, other] = [6, 6, 7].map(|seed| exchange(seed, 30, Grant::Exclusive, true, 500));
    assert_eq!(one, again);
    assert_ne!(one, other);
}

#[test]
fn a_device_that_forgets_what_the_cache_gave_up_is_found_out() {
    let tally = exchange(8, 10, Grant::Exclusive, false, 500);
    assert!(tally.wrong > 10, "{tally:?}");
}

/// Runs the core's part on a thread, and the device's here.
fn both<T: Send>(
    eviction_percent: u64,
    core_part: impl FnOnce(RendezvousCore, Places) -> T + Send,
    device_part: impl FnOnce(RendezvousDevice, Places) + Send,
) -> (thread::Result<T>, thread::Result<()>) {
    let (memory, places) = memory(0, eviction_percent);
    let (core, device) = memory.ends();
    thread::scope(|scope| {
        let core = scope.spawn(move || core_part(core, places));
        let device = scope.spawn(move || device_part(device, places));
        (core.join(), device.join())
    })
}

/// The next message that arrives.
fn next(device: &RendezvousDevice) -> conic_fabric::Arrival {
    loop {
        let gone = device.core_is_gone();
        if let Some(arrival) = device.next_arrival() {
            return arrival;
        }
        assert!(!gone, "the core went without a message");
        device.spin();
    }
}

fn text(result: thread::Result<()>) -> String {
    *result.expect_err("a panic").downcast::<String>().expect("a message")
}

#[test]
fn a_recall_returns_what_the_core_changed_and_nothing_of_a_clean_line() {
    let (core, device) = both(
        0,
        |core, places| {
            core.store(places.pair[0].word(3), 33);
            core.store(places.pair[0].word(4), 44);
            core.load(places.pair[1].word(1))
        },
        |device, places| {
            let arrival = next(&device);
            assert_eq!((arrival.line, arrival.ask), (places.pair[0], Ask::Exclusive));
            device.set_own_line(arrival.line, &Line([1; 8]));
            device.answer(arrival, Grant::Exclusive);
            // Nothing arrives of the second store.
            let arrival = next(&device);
            assert_eq!((arrival.line, arrival.ask), (places.pair[1], Ask::Shared));
            let tag = device.start_recall(places.pair[0]);
            assert!(!device.is_recalled(&tag), "a recall takes its time");
            assert!(device.is_recalled(&tag));
            assert!(device.finish_recall(tag));
            assert_eq!(device.own_line(places.pair[0]), Line([1, 1, 1, 33, 44, 1, 1, 1]));
            device.set_own_line(arrival.line, &Line([9; 8]));
            device.answer(arrival, Grant::Exclusive);
            for line in places.pair {
                let tag = device.start_recall(line);
                assert!(!device.finish_recall(tag));
            }
        },
    );
    assert_eq!(core.expect("the core ends"), 9);
    device.expect("the device ends");
}

#[test]
fn a_cache_that_gives_a_line_up_says_so_with_what_changed() {
    let (core, device) = both(
        100,
        |core, places| core.store(places.pair[0].word(3), 33),
        |device, places| {
            let arrival = next(&device);
            device.answer(arrival, Grant::Exclusive);
            let arrival = next(&device);
            assert_eq!((arrival.line, arrival.ask), (places.pair[0], Ask::Evicted { changed: true }));
            assert_eq!(device.own_line(places.pair[0]), Line([0, 0, 0, 33, 0, 0, 0, 0]));
        },
    );
    core.expect("the core ends");
    device.expect("the device ends");
}

#[test]
fn mistakes_of_a_device_are_errors_and_not_hangs() {
    let load = |core: RendezvousCore, places: Places| {
        core.load(places.pair[0].word(1));
    };
    let (core, _) = both(0, load, |device, _| drop(device));
    assert!(text(core).contains("the device went without an answer"));
    let (_, device) = both(0, load, |device, places| {
        let _arrival = next(&device);
        let _tag = device.start_recall(places.pair[0]);
    });
    assert!(text(device).contains("waits for its load"));
    let (_, device) = both(
        0,
        |core, places| core.store(places.pair[0].word(1), 1),
        |device, _| device.answer(next(&device), Grant::Shared),
    );
    assert!(text(device).contains("Exclusive"));
    let (_, device) = both(0, |_, _| (), |device, places| device.write(places.pair[0], &[1], StateHint::NonCacheable));
    assert!(text(device).contains("of `line pair`"));
}

#[test]
fn prefetches_are_answered_in_any_order_and_loads_take_their_answers() {
    for unit in [64, 128] {
        let mut layout = Layout::new();
        let lines = layout.add("lines", 8 * 128, 128, Home::Nic, SynchronisingWords::NONE);
        let memory = RendezvousMemory::with_unit(&layout, 1, 20, unit);
        let (core, device) = memory.ends();
        let (orders, seen) = thread::scope(|scope| {
            let device = scope.spawn(move || {
                let (mut orders, mut held) = (std::collections::BTreeSet::new(), Vec::new());
                let (mut order, mut answered) = (Vec::new(), 0);
                loop {
                    let gone = device.core_is_gone();
                    match device.next_arrival() {
                        Some(arrival) if arrival.ask == Ask::Shared => {
                            order.push(arrival.line);
                            held.push(arrival);
                        }
                        Some(arrival) => assert!(matches!(arrival.ask, Ask::Evicted { .. })),
                        None if gone => return orders,
                        // Several at once, the last first.
                        None => {
                            while let Some(arrival) = held.pop() {
                                for index in 0..unit / 64 {
                                    let line = arrival.line.lines(index);
                                    device.set_own_line(line, &Line([line.0 + answered; 8]));
                                }
                                device.answer(arrival, Grant::Shared);
                                answered += 1 << 20;
                                orders.insert(std::mem::take(&mut order));
                            }
                        }
                    }
                }
            });
            let mut seen = 0;
            for _ in 0..200 {
                (0..8).for_each(|index| core.prefetch_read(lines + 128 * index));
                for index in 0..8 {
                    let at = lines + 128 * index + (unit - 64);
                    assert_eq!(core.load(at.word(5)) & 0xf_ffff, at.0);
                    seen += 1;
                }
            }
            drop(core);
            (device.join().expect("the device ends"), seen)
        });
        assert_eq!(seen, 1_600);
        assert!(orders.iter().any(|order| !order.is_sorted()), "no prefetch overtook another: {orders:?}");
    }
}

#[test]
fn host_memory_and_registers_are_seen_by_both() {
    let (memory, places) = memory(0, 0);
    let (core, device) = memory.ends();
    core.write_bytes(places.host + 10, b"from the host");
    let mut bytes = [0; 13];
    device.read(places.host + 10, &mut bytes, StateHint::CacheableShared);
    assert_eq!(&bytes, b"from the host");
    device.write(places.host + 75, b"from the device", StateHint::NonCacheablePush);
    device.write_word(places.host, 1, StateHint::CacheableOwned);
    assert_eq!(core.load_acquire(places.host), 1);
    let mut bytes = [0; 15];
    core.read_bytes(places.host + 75, &mut bytes);
    assert_eq!(&bytes, b"from the device");
    assert_eq!(core.fetch_or(places.host, 6), 1);
    assert_eq!(core.fetch_and(places.host, 3), 7);
    assert_eq!(core.compare_exchange(places.host, 3, 8), Ok(3));
    assert_eq!(device.read_word(places.host, StateHint::NonCacheable), 8);
    core.register_write(places.register, 5);
    assert_eq!(device.own_register(places.register), 5);
}
