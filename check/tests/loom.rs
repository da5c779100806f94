//! The loom world: what it explores, what it catches, and that each weakening is caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore, spawn};
use conic_fabric::{
    Address, Core, Device, Home, Layout, Line, MemoryType, PlayedByCore, StateHint, SynchronisingWords,
};

/// Where the things of these models lie.
#[derive(Clone, Copy)]
struct Places {
    /// Four lines with a synchronising word 0.
    ring: Address,
    /// Owned lines.
    data: Address,
    /// A line of write-combining registers.
    doorbell: Address,
}

fn layout() -> (Layout, Places) {
    let mut layout = Layout::new();
    let ring = layout.add("ring", 256, 64, Home::Host, SynchronisingWords::FIRST);
    let data = layout.add("data", 8192, 64, Home::Host, SynchronisingWords::NONE);
    let doorbell = layout.add_registers("doorbell", 64, Home::Nic, MemoryType::WriteCombining);
    (layout, Places { ring, data, doorbell })
}

/// Explores a model fully, and returns the number of executions.
fn passes(model: impl Fn(&LoomMemory, Places) + Send + Sync + 'static) -> u64 {
    let (layout, places) = layout();
    explore(&layout, Exploration::full(), move |memory| model(memory, places))
}

/// The message of the failure of a model that must fail.
fn fails(mutation: Option<Mutation>, model: impl Fn(&LoomMemory, Places) + Send + Sync + 'static) -> String {
    let (layout, places) = layout();
    catches(&layout, Exploration { mutation, ..Exploration::full() }, move |memory| model(memory, places)).message
}

/// A weakening must be found as a race on an owned word.
fn races(mutation: Mutation, model: impl Fn(&LoomMemory, Places) + Send + Sync + 'static) {
    let message = fails(Some(mutation.clone()), model);
    assert!(message.contains("Causality violation") && message.contains(" of `"), "{mutation:?}: {message}");
}

/// Waits until a synchronising word is, or is not, zero.
fn wait(core: &LoomCore, at: Address, for_zero: bool) -> u64 {
    loop {
        let value = core.load_acquire(at);
        if (value == 0) == for_zero {
            return value;
        }
        core.spin();
    }
}

/// One message in owned lines, announced by a word elsewhere.
fn message(memory: &LoomMemory, places: Places) {
    let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
    let thread = spawn(move || {
        sender.write_line(places.data, &Line([7; 8]));
        sender.write_bytes(places.data + 67, b"between words");
        sender.store_release(places.ring, 1);
    });
    assert_eq!(wait(&receiver, places.ring, false), 1);
    assert_eq!(receiver.read_line(places.data), Line([7; 8]));
    let mut bytes = [0; 13];
    receiver.read_bytes(places.data + 67, &mut bytes);
    assert_eq!(&bytes, b"between words");
    thread.join().expect("the sender ends");
}

#[test]
fn a_message_through_one_word_is_explored_fully_and_each_weakening_is_caught() {
    assert!(passes(message) > 1);
    races(Mutation::new(Weaken::RelaxedStore), message);
    races(Mutation::new(Weaken::RelaxedLoad), message);
}

#[test]
fn a_weakening_may_be_limited_to_a_segment_and_to_an_agent() {
    races(Mutation::new(Weaken::RelaxedStore).of("ring").by("sender"), message);
    races(Mutation::new(Weaken::RelaxedLoad).of("ring").by("receiver"), message);
    let (layout, places) = layout();
    for elsewhere in [Mutation::new(Weaken::RelaxedStore).of("data"), Mutation::new(Weaken::RelaxedLoad).by("sender")] {
        explore(&layout, Exploration::full().weakened(elsewhere), move |memory| message(memory, places));
    }
}

/// A ring whose lines carry their message and are cleared by the consumer, `SLOTS` long.
fn ring<const SLOTS: u64, const MESSAGES: u64>(memory: &LoomMemory, places: Places) {
    let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
    let thread = spawn(move || {
        for number in 0..MESSAGES {
            let slot = places.ring.lines(number % SLOTS);
            wait(&sender, slot, true);
            sender.publish_line(slot, &Line([number + 1; 8]));
        }
    });
    for number in 0..MESSAGES {
        let slot = places.ring.lines(number % SLOTS);
        wait(&receiver, slot, false);
        assert_eq!(receiver.read_line(slot), Line([number + 1; 8]));
        receiver.store_release(slot, 0);
    }
    thread.join().expect("the sender ends");
}

#[test]
fn a_ring_cleared_by_its_consumer_needs_each_of_its_edges() {
    assert!(passes(ring::<1, 3>) > 1);
    assert!(passes(ring::<2, 4>) > passes(ring::<2, 3>));
    races(Mutation::new(Weaken::RelaxedPublish), ring::<1, 2>);
    races(Mutation::new(Weaken::SignalFirst), ring::<1, 2>);
    races(Mutation::new(Weaken::RelaxedLoad).by("receiver"), ring::<1, 2>);
    // The way back: that the consumer has read the line before the producer writes it again.
    races(Mutation::new(Weaken::RelaxedStore).by("receiver"), ring::<1, 2>);
    races(Mutation::new(Weaken::RelaxedLoad).by("sender"), ring::<1, 2>);
}

/// A word handed over by a bit that is set, and back by one that is cleared.
fn bits(memory: &LoomMemory, places: Places) {
    let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
    let thread = spawn(move || {
        sender.store(places.data, 1);
        sender.fetch_or(places.ring, 2);
        while sender.fetch_and(places.ring, !4) & 4 == 0 {
            sender.spin();
        }
        assert_eq!(sender.load(places.data), 2);
    });
    while receiver.compare_exchange(places.ring, 2, 0) != Ok(2) {
        receiver.spin();
    }
    assert_eq!(receiver.load(places.data), 1);
    receiver.store(places.data, 2);
    receiver.fetch_or(places.ring, 4);
    thread.join().expect("the sender ends");
}

#[test]
fn updates_acquire_and_release() {
    assert!(passes(bits) > 1);
    for agent in ["sender", "receiver"] {
        races(Mutation::new(Weaken::UpdateWithoutAcquire).by(agent), bits);
        races(Mutation::new(Weaken::UpdateWithoutRelease).by(agent), bits);
    }
}

/// A message written past the caches.
fn nontemporal(memory: &LoomMemory, places: Places) {
    let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
    let thread = spawn(move || {
        sender.write_nontemporal(places.data, &[Line([7; 8]), Line([8; 8])]);
        sender.fence();
        sender.store_release(places.ring, 1);
    });
    wait(&receiver, places.ring, false);
    assert_eq!(receiver.read_line(places.data.lines(1)), Line([8; 8]));
    thread.join().expect("the sender ends");
}

/// A register line written to write-combining memory, and announced.
fn combined(memory: &LoomMemory, places: Places) {
    let (host, device) = (memory.core("host"), memory.core("device"));
    let thread = spawn(move || {
        host.register_write_line(places.doorbell, &Line([5; 8]));
        host.fence();
        host.store_release(places.ring, 1);
    });
    wait(&device, places.ring, false);
    assert_eq!(device.register_read(places.doorbell.word(3)), 5, "the register was announced too early");
    thread.join().expect("the host ends");
}

#[test]
fn stores_past_the_caches_need_their_fence() {
    assert!(passes(nontemporal) > 1);
    assert!(passes(combined) > 1);
    races(Mutation::new(Weaken::NoFence), nontemporal);
    let message = fails(Some(Mutation::new(Weaken::NoFence)), combined);
    assert!(message.contains("announced too early"), "{message}");
}

#[test]
fn a_nontemporal_store_to_what_another_reads_is_a_race_whatever_comes_before_its_fence() {
    let message = fails(None, |memory, places| {
        let (writer, reader) = (memory.core("writer"), memory.core("reader"));
        let thread = spawn(move || {
            reader.load(places.data);
            reader.store_release(places.ring, 1);
        });
        writer.write_nontemporal(places.data, &[Line::ZERO]);
        wait(&writer, places.ring, false);
        writer.fence();
        thread.join().expect("the reader ends");
    });
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn a_core_reads_its_own_nontemporal_stores_and_a_locked_instruction_empties_its_buffers() {
    passes(|memory, places| {
        let core = memory.core("writer");
        core.write_nontemporal(places.data, &[Line([1; 8])]);
        assert_eq!(core.load(places.data.word(7)), 1);
        core.write_nontemporal(places.data, &[Line([2; 8])]);
        core.fetch_or(places.ring, 1);
        assert_eq!(memory.core("reader").load(places.data), 2);
        core.write_nontemporal(places.data, &[Line([3; 8])]);
        drop(core);
        assert_eq!(memory.core("reader").load(places.data), 3);
    });
}

/// An access that the layout forbids.
type WrongAccess = fn(&LoomCore, Places);

#[test]
fn an_access_of_the_wrong_kind_names_segment_and_address() {
    let wrong: [(&str, WrongAccess); 9] = [
        ("load_acquire: word 2 of line 1 of `data` (at 0x150)", |core, places| {
            core.load_acquire(places.data.lines(1).word(2));
        }),
        ("store_release: word 1 of line 0 of `ring` (at 0x8)", |core, places| {
            core.store_release(places.ring.word(1), 1)
        }),
        ("fetch_or: word 1 of line 0 of `ring`", |core, places| {
            core.fetch_or(places.ring.word(1), 1);
        }),
        ("publish_line: word 0 of line 0 of `data`", |core, places| core.publish_line(places.data, &Line::ZERO)),
        ("load: word 0 of line 3 of `ring` (at 0xc0)", |core, places| {
            core.load(places.ring.lines(3));
        }),
        ("store: word 0 of line 0 of `ring`", |core, places| core.store(places.ring, 1)),
        ("write_line: word 0 of line 0 of `ring`", |core, places| core.write_line(places.ring, &Line::ZERO)),
        ("write_nontemporal: word 0 of line 0 of `ring`", |core, places| {
            core.write_nontemporal(places.ring, &[Line::ZERO]);
        }),
        ("read_bytes: word 0 of line 1 of `ring`", |core, places| core.read_bytes(places.ring + 60, &mut [0; 5])),
    ];
    for (expected, access) in wrong {
        let message = fails(None, move |memory, places| access(&memory.core("agent"), places));
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let message = fails(None, |memory, places| {
        memory.core("agent").load(places.doorbell + 64);
    });
    assert!(message.contains("lies in no segment"), "{message}");
    let message = fails(None, |memory, places| {
        memory.core("agent").load(places.data + 4);
    });
    assert!(message.contains("is not the address of a word"), "{message}");
}

/// Two threads that each write one word of a line, `apart` words from each other.
fn neighbours(memory: &LoomMemory, places: Places, apart: usize) {
    let (one, other) = (memory.core("one"), memory.core("other"));
    let thread = spawn(move || one.write_bytes(places.data, &[1; 8]));
    other.store(places.data.word(apart), 2);
    thread.join().expect("the other thread ends");
    assert_eq!(memory.core("reader").load(places.data.word(apart)), 2);
}

#[test]
fn two_words_of_a_line_may_have_two_owners_but_one_word_may_not() {
    passes(|memory, places| neighbours(memory, places, 1));
    let message = fails(None, |memory, places| neighbours(memory, places, 0));
    assert!(message.contains("Causality violation") && message.contains("(at 0x100)"), "{message}");
}

#[test]
fn a_model_may_touch_many_words_and_others_in_other_schedules() {
    let many = passes(|memory, places| {
        let (one, other) = (memory.core("one"), memory.core("other"));
        let thread = spawn(move || {
            one.store_release(places.ring, 1);
            for index in 0..500 {
                assert_eq!(one.load(places.data.word(index)), 0);
            }
        });
        if other.load_acquire(places.ring) == 0 {
            for index in 500..1000 {
                assert_eq!(other.load(places.data.word(index)), 0);
                other.store(places.data.word(index), 1);
            }
        }
        thread.join().expect("the other thread ends");
    });
    let few = passes(|memory, places| {
        let (one, other) = (memory.core("one"), memory.core("other"));
        let thread = spawn(move || one.store_release(places.ring, 1));
        other.load_acquire(places.ring);
        thread.join().expect("the other thread ends");
    });
    assert_eq!(many, few);
}

/// How many executions end with each side having missed the other's word: each sets its own, then looks at the other's.
fn misses(look: fn(&LoomCore, Address) -> u64) -> u64 {
    let missed = Arc::new(Mutex::new(0));
    let count = Arc::clone(&missed);
    passes(move |memory, places| {
        let (one, other) = (memory.core("one"), memory.core("other"));
        let [first, second] = [places.ring, places.ring.lines(1)];
        let thread = spawn(move || {
            one.fetch_or(first, 1);
            look(&one, second)
        });
        other.fetch_or(second, 1);
        let seen = look(&other, first);
        if seen + thread.join().expect("the other thread ends") == 0 {
            *count.lock().expect("a count") += 1;
        }
    });
    *missed.lock().expect("a count")
}

#[test]
fn two_sides_may_miss_each_other_unless_each_fences_or_looks_with_an_update() {
    assert!(misses(|core, at| core.load_acquire(at)) > 0);
    let fenced = misses(|core, at| {
        core.full_fence();
        core.load_acquire(at)
    });
    assert_eq!(fenced, 0);
    assert_eq!(misses(|core, at| core.fetch_or(at, 0)), 0);
}

#[test]
fn a_loop_that_waits_without_a_spin_is_caught() {
    let message = fails(None, |memory, places| {
        let (one, other) = (memory.core("one"), memory.core("other"));
        let thread = spawn(move || one.store_release(places.ring, 1));
        while other.load_acquire(places.ring) == 0 {}
        thread.join().expect("the other thread ends");
    });
    assert!(message.contains("maximum number of branches"), "{message}");
}

#[test]
fn a_thread_has_room_for_large_values_and_a_stack_that_overflows_is_an_error() {
    passes(|_, _| spawn(|| assert_eq!(std::hint::black_box([1u8; 300_000])[7], 1)).join().expect("the thread ends"));
    let message = fails(None, |_, _| assert_eq!(std::hint::black_box([1u8; 100_000])[7], 1));
    assert!(message.contains("a stack that overflowed"), "{message}");
}

#[test]
fn a_core_that_plays_a_device_is_explored_like_any_other() {
    let model = |memory: &LoomMemory, places: Places| {
        let (host, device) = (memory.core("host"), PlayedByCore(memory.core("device")));
        let thread = spawn(move || {
            device.write(places.data, &[9; 128], StateHint::NonCacheable);
            device.write(places.data + 130, b"pushed", StateHint::NonCacheablePush);
            device.write_word(places.ring, 1, StateHint::CacheableOwned);
        });
        wait(&host, places.ring, false);
        assert_eq!(host.read_line(places.data.lines(1)), Line([0x0909_0909_0909_0909; 8]));
        let mut bytes = [0; 6];
        host.read_bytes(places.data + 130, &mut bytes);
        assert_eq!(&bytes, b"pushed");
        thread.join().expect("the device ends");
    };
    passes(model);
    races(Mutation::new(Weaken::NoFence), model);
    races(Mutation::new(Weaken::RelaxedStore).by("device"), model);
}

#[test]
fn a_weakening_that_nothing_notices_and_an_exploration_cut_short_are_failures() {
    let (layout, places) = layout();
    let unnoticed = catch_unwind(AssertUnwindSafe(|| {
        let weakened = Exploration::full().weakened(Mutation::new(Weaken::RelaxedPublish));
        catches(&layout, weakened, move |memory| message(memory, places))
    }));
    let text = unnoticed.expect_err("a model without a publish does not notice a relaxed one");
    let text = text.downcast::<String>().expect("a message");
    assert!(text.contains("nothing was caught") && text.contains("weakened 0 accesses"), "{text}");

    let short = Exploration { max_executions: 2, ..Exploration::full() };
    let caught = catches(&layout, short, move |memory| message(memory, places));
    assert!(caught.message.contains("not explored after 2 executions"), "{}", caught.message);
    assert_eq!(caught.execution, 3);
}

#[test]
fn fewer_preemptions_are_fewer_executions() {
    let (layout, places) = layout();
    let counts: Vec<u64> = [1, 2]
        .map(|bound| explore(&layout, Exploration::bounded(bound), move |memory| ring::<2, 3>(memory, places)))
        .into();
    let all = passes(ring::<2, 3>);
    assert!(1 < counts[0] && counts[0] < counts[1] && counts[1] < all, "{counts:?}, {all}");
}
