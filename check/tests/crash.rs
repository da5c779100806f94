//! The crash world: where agents die, what memory they leave, and what the driver says of a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};

use conic_check::{CrashCore, CrashMemory, Operation, Outcome, for_every_death, run_until_death};
use conic_fabric::{
    Address, Core, Device, Home, Layout, Line, MemoryType, PlayedByCore, StateHint, SynchronisingWords, Time,
};

/// Where the things of these scenarios lie.
#[derive(Clone, Copy)]
struct Places {
    /// Lines with a synchronising word 0.
    ring: Address,
    /// Owned lines.
    data: Address,
    /// A line of registers.
    register: Address,
}

fn memory() -> (CrashMemory, Places) {
    let mut layout = Layout::new();
    let ring = layout.add("ring", 256, 64, Home::Host, SynchronisingWords::FIRST);
    let data = layout.add("data", 4096, 64, Home::Host, SynchronisingWords::NONE);
    let register = layout.add_registers("register", 64, Home::Nic, MemoryType::Uncached);
    (CrashMemory::new(&layout), Places { ring, data, register })
}

/// What a panic that is expected says.
fn message_of(run: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a message")).to_owned(),
    }
}

/// Runs something with a death at each of its operations, and returns a line of memory after each.
fn left_by(run: impl Fn(&CrashCore, Places), seen: impl Fn(&CrashCore, Places) -> Line) -> Vec<Line> {
    let mut left = Vec::new();
    for_every_death(|n| {
        let (memory, places) = memory();
        let (victim, survivor) = (memory.core("victim"), memory.core("survivor"));
        victim.die_at(n);
        let outcome = run_until_death(|| run(&victim, places));
        left.push(seen(&survivor, places));
        outcome
    });
    left
}

/// A line whose words that `bits` names are 7, the others 0.
fn sevens(bits: u8) -> Line {
    Line(std::array::from_fn(|index| if bits >> index & 1 == 1 { 7 } else { 0 }))
}

#[test]
fn a_survivor_sees_a_message_whole_or_not_at_all_wherever_its_sender_dies() {
    let deaths = for_every_death(|n| {
        let (memory, places) = memory();
        let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
        sender.die_at(n);
        let outcome = run_until_death(|| {
            sender.write_line(places.data, &Line([7; 8]));
            sender.store_release(places.ring, 1);
        });
        let announced = receiver.load_acquire(places.ring) == 1;
        assert_eq!(announced, n > 9);
        if announced {
            assert_eq!(receiver.read_line(places.data), Line([7; 8]));
        }
        outcome
    });
    assert_eq!(deaths, 9);
}

#[test]
fn a_line_tears_after_every_word_and_a_published_one_where_the_native_one_does() {
    let seen = |core: &CrashCore, places: Places| core.read_line(places.data);
    let words = [0, 1, 3, 7, 15, 31, 63, 127, 255].map(sevens);
    assert_eq!(left_by(|core, places| core.write_line(places.data, &Line([7; 8])), seen), words);
    assert_eq!(left_by(|core, places| core.write_nontemporal(places.data, &[Line([7; 8])]), seen), words);
    assert_eq!(
        left_by(
            |core, places| core.publish_line(places.ring, &Line([7; 8])),
            |core, places| core.read_line(places.ring)
        ),
        [0, 0xf0, 0xfc, 0xff].map(sevens)
    );
    // Twelve bytes from byte 5 on touch three words.
    let bytes = left_by(|core, places| core.write_bytes(places.data + 5, &[0xff; 12]), seen);
    let [a, b, c] = [0xffff_ff00_0000_0000, u64::MAX, 0xff];
    let partial = |words: [u64; 3]| Line(std::array::from_fn(|index| words.get(index).copied().unwrap_or(0)));
    assert_eq!(bytes, [[0, 0, 0], [a, 0, 0], [a, b, 0], [a, b, c]].map(partial));
}

#[test]
fn a_two_word_message_without_a_signal_is_seen_torn_at_exactly_one_point() {
    let torn: Vec<_> = left_by(
        |core, places| {
            core.store(places.data, 7);
            core.store(places.data.word(1), 7);
        },
        |core, places| core.read_line(places.data),
    )
    .into_iter()
    .map(|line| line.0[0] != line.0[1])
    .collect();
    assert_eq!(torn, [false, true, false]);
}

#[test]
fn every_kind_of_operation_is_a_point_and_a_death_says_which() {
    let mut kinds = Vec::new();
    let deaths = for_every_death(|n| {
        let (memory, places) = memory();
        let core = memory.core("victim");
        core.die_at(n);
        let outcome = run_until_death(|| {
            core.load(places.data);
            core.load_acquire(places.ring);
            core.store(places.data, 1);
            core.store_release(places.ring, 2);
            assert_eq!(core.fetch_or(places.ring, 1), 2);
            assert_eq!(core.fetch_and(places.ring, 1), 3);
            assert_eq!(core.compare_exchange(places.ring, 2, 5), Err(1));
            assert_eq!(core.compare_exchange(places.ring, 1, 5), Ok(1));
            core.read_line(places.ring.lines(1));
            core.read_bytes(places.data + 3, &mut [0; 30]);
            core.register_write(places.register, 1);
        });
        if let Outcome::Died(death) = &outcome {
            assert_eq!((death.agent.as_str(), death.operation, core.operations()), ("victim", n, n - 1));
            assert!(core.is_dead());
            kinds.push(death.kind);
        }
        outcome
    });
    use Operation::{Load, LoadAcquire, ReadBytes, ReadLine, Store, StoreRelease, Update};
    let all =
        [Load, LoadAcquire, Store, StoreRelease, Update, Update, Update, Update, ReadLine, ReadBytes, StoreRelease];
    assert_eq!(kinds, all);
    assert_eq!(deaths, all.len() as u64);
}

#[test]
fn a_failed_check_names_the_scenario_and_the_operation() {
    let message = message_of(|| {
        for_every_death(|n| {
            let (memory, places) = memory();
            let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
            sender.die_at(n);
            let outcome = run_until_death(|| {
                sender.store_release(places.ring, 1);
                sender.store(places.data.word(9), 1);
            });
            let announced = receiver.load_acquire(places.ring) == 1;
            assert!(!announced || receiver.load(places.data.word(9)) == 1, "announced too early");
            outcome
        });
    });
    assert_eq!(
        message,
        "scenario 2 (`sender` died before its operation 2: Store, word 1 of line 1 of `data` (at 0x148)): \
         announced too early"
    );
}

#[test]
fn a_failure_before_any_death_is_not_blamed_on_one() {
    let (memory, places) = memory();
    let core = memory.core("an earlier scenario");
    core.die_at(1);
    let earlier = run_until_death(|| core.load(places.data));
    assert!(matches!(earlier, Outcome::Died(_)));
    let message = message_of(|| {
        for_every_death(|_| -> Outcome<()> { panic!("a mistake") });
    });
    assert_eq!(message, "scenario 1 (nobody had died): a mistake");
}

#[test]
fn only_a_death_ends_a_run_quietly() {
    let message = message_of(|| {
        let outcome = run_until_death(|| panic!("an ordinary panic"));
        let () = match outcome {
            Outcome::Finished(()) | Outcome::Died(_) => (),
        };
    });
    assert_eq!(message, "an ordinary panic");
    assert_eq!(run_until_death(|| 5), Outcome::Finished(5));
}

#[test]
fn what_a_destructor_does_while_its_agent_dies_changes_nothing_and_the_dead_do_nothing_more() {
    /// Clears a word when it goes, as a lock does.
    struct Guard<'a>(&'a CrashCore, Address);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.store_release(self.1, 0);
        }
    }
    let (memory, places) = memory();
    let victim = memory.core("victim");
    victim.die_at(2);
    let outcome = run_until_death(|| {
        let _guard = Guard(&victim, places.ring);
        victim.store_release(places.ring, 1);
        victim.load(places.data);
    });
    assert!(matches!(outcome, Outcome::Died(_)));
    assert_eq!(memory.core("survivor").load_acquire(places.ring), 1);
    let message = message_of(|| victim.store(places.data, 1));
    assert_eq!(message, "`victim` is dead and cannot do a Store");
}

#[test]
fn spinning_while_nobody_writes_is_a_hang_and_spinning_while_somebody_does_is_not() {
    let (memory, places) = memory();
    let (waiting, busy) = (memory.core("waiting"), memory.core("busy"));
    for round in 0..3 * CrashCore::SPINS_IN_VAIN {
        busy.store(places.data, round);
        waiting.spin();
    }
    let message = message_of(|| {
        while waiting.load_acquire(places.ring) == 0 {
            waiting.spin();
        }
    });
    assert!(message.contains("`waiting` hangs"), "{message}");
}

#[test]
fn time_passes_with_operations_and_jumps_to_a_deadline() {
    let (memory, places) = memory();
    let core = memory.core("core");
    assert_eq!(core.now(), Time::ZERO);
    core.store(places.data, 1);
    assert_eq!(core.now(), Time::from_nanoseconds(1));
    core.spin_until(Time::from_nanoseconds(500));
    assert!(core.now() >= Time::from_nanoseconds(500));
}

#[test]
fn an_access_of_the_wrong_kind_names_segment_and_address() {
    let (memory, places) = memory();
    let core = memory.core("core");
    let message = message_of(|| core.store_release(places.data.lines(1).word(2), 1));
    assert_eq!(message, "store_release: word 2 of line 1 of `data` (at 0x150) is an owned word");
    let message = message_of(|| core.write_bytes(places.ring + 60, &[1; 5]));
    assert_eq!(message, "write_bytes: word 0 of line 1 of `ring` (at 0x40) is a synchronising word");
    let message = message_of(|| core.write_line(places.ring, &Line::ZERO));
    assert_eq!(message, "write_line: word 0 of line 0 of `ring` (at 0x0) is a synchronising word");
    let message = message_of(|| core.store(Address(1 << 20), 1));
    assert_eq!(message, "0x100000 lies in no segment of the layout");
}

#[test]
fn a_core_that_plays_a_device_reads_and_writes_what_the_host_does() {
    let (memory, places) = memory();
    let (host, device) = (memory.core("host"), PlayedByCore(memory.core("device")));
    host.write_bytes(places.data + 10, b"from the host, across a line's end: 0123456789012345678901234567890123456789");
    let mut read = [0; 75];
    let tag = device.start_read(places.data + 10, 75, StateHint::CacheableShared);
    assert!(device.is_ready(&tag));
    device.finish_read(tag, places.data + 10, &mut read);
    assert_eq!(&read, b"from the host, across a line's end: 0123456789012345678901234567890123456789"[..75].as_ref());
    let hints =
        [StateHint::NonCacheable, StateHint::NonCacheablePush, StateHint::CacheableShared, StateHint::CacheableOwned];
    for (number, hint) in hints.into_iter().enumerate() {
        let content = [number as u8 + 1; 200];
        for (at, length) in [(places.data + 256, 128), (places.data + 256 + 7, 200)] {
            device.write(at, &content[..length], hint);
            let (mut by_host, mut by_device) = ([0; 200], [0; 200]);
            host.read_bytes(at, &mut by_host[..length]);
            device.read(at, &mut by_device[..length], hint);
            assert_eq!((&by_host[..length], &by_device[..length]), (&content[..length], &content[..length]));
        }
    }
    device.write_word(places.ring, 42, StateHint::CacheableOwned);
    assert_eq!(host.load_acquire(places.ring), 42);
    host.store_release(places.ring, 43);
    assert_eq!(device.read_word(places.ring, StateHint::NonCacheable), 43);
    host.register_write(places.register.word(5), 44);
    assert_eq!(device.own_register(places.register.word(5)), 44);
}
