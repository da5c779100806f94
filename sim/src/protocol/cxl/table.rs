//! Every request in every pair of states that host and device can have of a line, as the CXL specification's tables of CXL.cache
//! requests, snoops and CXL.mem requests have them: written out here, and not computed by what is tested.
//!
//! No functional model of CXL that could be asked instead is packaged for a program to link: what there is are emulators of whole
//! machines, whose devices of type 3 have no CXL.cache.

use conic_fabric::StateHint as Hint;

use super::tests::{Copies, E, I, M, S, device_does, host_does, write};
use super::{Ask, Bias, DeviceLine, Operation, Side, Started, WHOLE};

/// The host's copy and the device's: all pairs in which a copy that may be written is alone.
const PAIRS: [Copies; 8] = [(I, I), (S, I), (E, I), (M, I), (I, S), (S, S), (I, E), (I, M)];

/// For each of [`PAIRS`], what crosses the link, and the copies afterwards.
type Row<T> = (T, [(&'static str, Copies); 8]);

const READ: [Hint; 3] = [Hint::NonCacheable, Hint::CacheableShared, Hint::CacheableOwned];

/// What the device does with lines of the host.
fn of_host() -> Vec<Row<Operation<u8>>> {
    let [nc, cs, co] = READ.map(Operation::Read);
    let (current, shared, own) = ("ReadCurrent Current", "ReadShared Grant", "ReadOwn Grant");
    let (written, pushed) = ("WriteInvalidate Pull Pulled Finished", "WritePush Pull Pulled");
    let (no_data, flush) = ("ReadOwnNoData Grant", "FlushHost Finished");
    let clean = "CleanEvict Finished";
    vec![
        (
            nc,
            [
                (current, (I, I)),
                (current, (S, I)),
                (current, (E, I)),
                (current, (M, I)),
                ("", (I, S)),
                ("", (S, S)),
                ("", (I, E)),
                ("", (I, M)),
            ],
        ),
        (
            cs,
            [
                (shared, (I, S)),
                (shared, (S, S)),
                (shared, (S, S)),
                (shared, (S, S)),
                ("", (I, S)),
                ("", (S, S)),
                ("", (I, E)),
                ("", (I, M)),
            ],
        ),
        (
            co,
            [
                (own, (I, E)),
                (own, (I, E)),
                (own, (I, E)),
                (own, (I, M)),
                (own, (I, E)),
                (own, (I, E)),
                ("", (I, E)),
                ("", (I, M)),
            ],
        ),
        (write(Hint::NonCacheable), [(written, (I, I)); 8]),
        (write(Hint::NonCacheablePush), [(pushed, (M, I)); 8]),
        (
            write(Hint::CacheableOwned),
            [
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                ("", (I, M)),
                ("", (I, M)),
            ],
        ),
        (
            Operation::Evict,
            [
                ("", (I, I)),
                ("", (S, I)),
                ("", (E, I)),
                ("", (M, I)),
                (clean, (I, I)),
                (clean, (S, I)),
                (clean, (I, I)),
                ("DirtyEvict Pull Pulled", (I, I)),
            ],
        ),
        (
            Operation::FlushHost,
            [
                (flush, (I, I)),
                (flush, (I, I)),
                (flush, (I, I)),
                (flush, (I, I)),
                (flush, (I, S)),
                (flush, (I, S)),
                (flush, (I, E)),
                (flush, (I, M)),
            ],
        ),
    ]
}

/// What the device does with lines of its own, in host-bias.
fn of_device() -> Vec<Row<Operation<u8>>> {
    let [nc, cs, co] = READ.map(Operation::Read);
    let (current, shared, own) = ("ReadCurrent MemoryForward", "ReadShared MemoryForward", "ReadOwn MemoryForward");
    let (written, no_data) = ("WriteInvalidate MemoryForward", "ReadOwnNoData MemoryForward");
    let (pushed, flush) = ("WritePush Pull Pulled", "FlushHost Finished");
    vec![
        (
            nc,
            [
                (current, (I, I)),
                (current, (S, I)),
                (current, (E, I)),
                ("ReadCurrent MemoryWrite MemoryDone MemoryForward", (I, I)),
                ("", (I, S)),
                ("", (S, S)),
                ("", (I, E)),
                ("", (I, M)),
            ],
        ),
        (
            cs,
            [
                (shared, (I, S)),
                (shared, (S, S)),
                (shared, (S, S)),
                ("ReadShared MemoryWrite MemoryDone MemoryForward", (I, S)),
                ("", (I, S)),
                ("", (S, S)),
                ("", (I, E)),
                ("", (I, M)),
            ],
        ),
        (
            co,
            [
                (own, (I, E)),
                (own, (I, E)),
                (own, (I, E)),
                ("ReadOwn MemoryWrite MemoryDone MemoryForward", (I, E)),
                (own, (I, E)),
                (own, (I, E)),
                ("", (I, E)),
                ("", (I, M)),
            ],
        ),
        (
            write(Hint::NonCacheable),
            [
                (written, (I, I)),
                (written, (I, I)),
                (written, (I, I)),
                (written, (I, I)),
                (written, (I, I)),
                (written, (I, I)),
                ("", (I, I)),
                ("", (I, I)),
            ],
        ),
        (write(Hint::NonCacheablePush), [(pushed, (M, I)); 8]),
        (
            write(Hint::CacheableOwned),
            [
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                (no_data, (I, M)),
                ("", (I, M)),
                ("", (I, M)),
            ],
        ),
        (
            Operation::Evict,
            [
                ("", (I, I)),
                ("", (S, I)),
                ("", (E, I)),
                ("", (M, I)),
                ("", (I, I)),
                ("", (S, I)),
                ("", (I, I)),
                ("", (I, I)),
            ],
        ),
        (
            Operation::FlushHost,
            [
                (flush, (I, I)),
                (flush, (I, I)),
                (flush, (I, I)),
                ("FlushHost MemoryWrite MemoryDone Finished", (I, I)),
                (flush, (I, S)),
                (flush, (I, S)),
                (flush, (I, E)),
                (flush, (I, M)),
            ],
        ),
    ]
}

#[test]
fn every_request_of_the_device_is_as_the_tables_say_in_every_pair_of_states() {
    for (home, rows) in [(Side::Host, of_host()), (Side::Device, of_device())] {
        for (operation, outcomes) in rows {
            for (before, (messages, after)) in PAIRS.into_iter().zip(outcomes) {
                let (said, states, _) = device_does(home, before, operation.clone());
                assert_eq!((said.join(" ").as_str(), states), (messages, after), "{home:?} {before:?} {operation:?}");
            }
        }
    }
}

#[test]
fn no_request_in_device_bias_crosses_the_link_whatever_the_device_has() {
    let mut operations: Vec<Operation<u8>> = READ.into_iter().map(Operation::Read).collect();
    operations.extend([write(Hint::NonCacheable), write(Hint::CacheableOwned), Operation::Evict]);
    for copy in [I, S, E, M] {
        for operation in &operations {
            let mut line = DeviceLine::new(Side::Device, 1);
            (line.bias, line.copy) = (Bias::Device, copy);
            let started = line.start(operation.clone());
            assert!(matches!(started, Started::Done { .. }), "{copy:?} {operation:?}: {started:?}");
        }
    }
}

/// What the host does with lines of its own, and with lines of the device.
fn by_host() -> Vec<(Side, Row<Ask<u8>>)> {
    let store = Ask::Nontemporal { data: 7, bytes: WHOLE };
    let (snoop, read, written) = ("Snoop Snooped", "MemoryRead MemoryData", "MemoryWrite MemoryDone");
    let stored = [
        ("", (I, I)),
        ("", (I, I)),
        ("", (I, I)),
        ("", (I, I)),
        (snoop, (I, I)),
        (snoop, (I, I)),
        (snoop, (I, I)),
        (snoop, (I, I)),
    ];
    vec![
        (
            Side::Host,
            (
                Ask::Load,
                [
                    ("", (E, I)),
                    ("", (S, I)),
                    ("", (E, I)),
                    ("", (M, I)),
                    ("", (S, S)),
                    ("", (S, S)),
                    (snoop, (S, S)),
                    (snoop, (S, S)),
                ],
            ),
        ),
        (
            Side::Host,
            (
                Ask::Own,
                [
                    ("", (E, I)),
                    ("", (E, I)),
                    ("", (E, I)),
                    ("", (M, I)),
                    (snoop, (E, I)),
                    (snoop, (E, I)),
                    (snoop, (E, I)),
                    (snoop, (E, I)),
                ],
            ),
        ),
        (Side::Host, (store.clone(), stored)),
        (Side::Host, (Ask::Flush, stored)),
        (Side::Host, (Ask::DmaWrite { data: 7, bytes: WHOLE, allocate: false }, stored)),
        (Side::Host, (Ask::DmaWrite { data: 7, bytes: WHOLE, allocate: true }, stored.map(|(said, _)| (said, (M, I))))),
        (
            Side::Host,
            (
                Ask::DmaRead,
                [
                    ("", (I, I)),
                    ("", (S, I)),
                    ("", (E, I)),
                    ("", (M, I)),
                    ("", (I, S)),
                    ("", (S, S)),
                    (snoop, (I, E)),
                    (snoop, (I, M)),
                ],
            ),
        ),
        (Side::Host, (Ask::Evict, PAIRS.map(|(_, device)| ("", (I, device))))),
        (
            Side::Device,
            (
                Ask::Load,
                [
                    (read, (E, I)),
                    ("", (S, I)),
                    ("", (E, I)),
                    ("", (M, I)),
                    (read, (S, S)),
                    ("", (S, S)),
                    (read, (S, S)),
                    (read, (S, S)),
                ],
            ),
        ),
        (
            Side::Device,
            (
                Ask::Own,
                [
                    (read, (E, I)),
                    (read, (E, I)),
                    ("", (E, I)),
                    ("", (M, I)),
                    (read, (E, I)),
                    (read, (E, I)),
                    (read, (E, I)),
                    (read, (E, I)),
                ],
            ),
        ),
        (Side::Device, (store, [(written, (I, I)); 8])),
        (
            Side::Device,
            (
                Ask::Evict,
                [
                    ("", (I, I)),
                    ("", (I, I)),
                    ("", (I, I)),
                    (written, (I, I)),
                    ("", (I, S)),
                    ("", (I, S)),
                    ("", (I, E)),
                    ("", (I, M)),
                ],
            ),
        ),
    ]
}

#[test]
fn every_request_of_the_host_is_as_the_tables_say_in_every_pair_of_states() {
    for (home, (ask, outcomes)) in by_host() {
        for (before, (messages, after)) in PAIRS.into_iter().zip(outcomes) {
            let (said, states) = host_does(home, before, ask.clone());
            assert_eq!((said.join(" ").as_str(), states), (messages, after), "{home:?} {before:?} {ask:?}");
        }
    }
}
