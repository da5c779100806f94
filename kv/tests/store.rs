//! The index, and who may replace a value.

use conic_fabric::{Home, LINE_BYTES, Layout, SynchronisingWords};
use conic_kv::{Filling, Refused, Store, Value};
use conic_native::{Memory, NativeCore, Pages};

#[test]
fn a_value_that_is_being_replaced_is_nobody_elses() {
    let mut layout = Layout::new();
    let values = layout.add("values", LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let store = Store::place(&mut layout, 1, (values, LINE_BYTES), Home::Host);
    let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
    let core = NativeCore::new(&memory);
    assert!(Filling::new(store).insert(&core, 5, 10));
    let slot = store.find(&core, store.hash(5), None).expect("it was put in");
    let done = store.replace(&core, slot, (20, 77), |at| {
        assert_eq!(at, values);
        assert_eq!(store.value(&core, slot), Err(Refused::Busy));
        assert_eq!(store.replace(&core, slot, (30, 78), |_| panic!("it is somebody else's")), Err(Refused::Busy));
    });
    assert_eq!(done, Ok(()));
    assert_eq!(store.value(&core, slot), Ok(Value { at: values, bytes: 20, checksum: 77 }));
    assert_eq!(store.replace(&core, slot, (30, 78), |_| ()), Ok(()), "and then it is free again");
}

#[test]
fn an_index_finds_every_key_and_no_other() {
    let keys = 100_000;
    let mut layout = Layout::new();
    let bytes = keys * LINE_BYTES;
    let values = layout.add("values", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let store = Store::place(&mut layout, keys, (values, bytes), Home::Host);
    let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
    let core = NativeCore::new(&memory);
    let mut filling = Filling::new(store);
    // Every third number, so that those between are not there.
    for key in 0..keys {
        assert!(filling.insert(&core, 3 * key, (key % 65) as u16), "key {key}");
    }
    assert!(!filling.insert(&core, 3 * keys, 1), "all slots are taken");
    let mut elsewhere = 0;
    for key in 0..3 * keys {
        let hashed = store.hash(key);
        let likely = store.likely(&core, hashed);
        let found = store.find(&core, hashed, likely);
        elsewhere += u64::from(found.is_some() && found != likely);
        let bytes = found.map(|slot| store.value(&core, slot).expect("nobody replaces it").bytes);
        assert_eq!(bytes, key.is_multiple_of(3).then_some((key / 3 % 65) as u16), "key {key}");
    }
    assert!((1..keys / 20).contains(&elsewhere), "{elsewhere} keys are not where they are looked for first");
}
