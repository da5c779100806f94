//! The tables of [`super`] as tests, and what the exploration must find.

use conic_fabric::StateHint as Hint;

use super::explore::{Found, Mutation, Question, Switching, explore};
use super::{
    Ask, Copy, DeviceLine, Effect, HostLine, Opcode, Operation, Side, Started, ToDevice, ToHost, Tracked, WHOLE,
};

/// Host and device in some state of a line; what is modified is 2, memory is 1.
fn pair(home: Side, host: Copy, device: Copy) -> (HostLine<u8>, DeviceLine<u8>) {
    let (mut host_line, mut device_line) = (HostLine::new(home, 1), DeviceLine::new(home, 1));
    (host_line.copy, device_line.copy) = (host, device);
    if host == Copy::Modified {
        host_line.data = 2;
    }
    if device == Copy::Modified {
        device_line.data = 2;
    }
    if home == Side::Host {
        host_line.device = match device {
            Copy::Invalid => Tracked::None,
            Copy::Shared => Tracked::Shared,
            _ => Tracked::Owned,
        };
    }
    (host_line, device_line)
}

/// Lets host and device talk until nothing is left to say; gives the names of what crossed the link.
fn talk(host: &mut HostLine<u8>, device: &mut DeviceLine<u8>, effects: Vec<Effect<u8>>) -> Vec<String> {
    let mut said = Vec::new();
    let mut open = effects;
    while !open.is_empty() {
        let mut next = Vec::new();
        for effect in open {
            let Effect::Send(message) = effect else { continue };
            said.push(name(&format!("{message:?}")));
            if let Some(reply) = device.receive(message).reply {
                said.push(name(&format!("{reply:?}")));
                next.extend(host.receive(reply));
            }
        }
        open = next;
    }
    said
}

/// A message's name without what it carries.
fn name(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

/// An operation of the device, from a pair of states: messages, and the states afterwards.
pub(super) fn device_does(
    home: Side,
    states: (Copy, Copy),
    operation: Operation<u8>,
) -> (Vec<String>, (Copy, Copy), u8) {
    let (mut host, mut device) = pair(home, states.0, states.1);
    let said = match device.start(operation) {
        Started::Done { .. } => Vec::new(),
        Started::Asked(opcode) => {
            let effects = host.begin(Ask::Device(opcode));
            let mut said = vec![name(&format!("{opcode:?}"))];
            said.extend(talk(&mut host, &mut device, effects));
            said
        }
    };
    assert!(device.pending.is_none() && !host.is_busy(), "{said:?}");
    let memory = if home == Side::Host { host.memory } else { device.memory };
    (said, (host.copy, device.copy), memory)
}

pub(super) fn write(hint: Hint) -> Operation<u8> {
    Operation::Write { hint, data: 7, bytes: WHOLE }
}

/// The host's copy, and the device's.
pub(super) type Copies = (Copy, Copy);

pub(super) const I: Copy = Copy::Invalid;
pub(super) const S: Copy = Copy::Shared;
pub(super) const E: Copy = Copy::Exclusive;
pub(super) const M: Copy = Copy::Modified;

#[test]
fn writes_of_lines_of_the_host_are_as_the_table_says() {
    for before in [(I, I), (S, I), (E, I), (M, I), (S, S), (I, S), (I, E), (I, M)] {
        let (said, states, memory) = device_does(Side::Host, before, write(Hint::NonCacheable));
        assert_eq!(said[1..], ["Pull", "Pulled", "Finished"], "{before:?}");
        assert_eq!((states, memory), ((I, I), 7), "{before:?}");
        let (said, states, memory) = device_does(Side::Host, before, write(Hint::NonCacheablePush));
        assert_eq!(said, ["WritePush", "Pull", "Pulled"], "{before:?}");
        assert_eq!(states, (M, I), "{before:?}");
        assert_ne!(memory, 7, "a push goes to the cache alone");
        let (said, states, _) = device_does(Side::Host, before, write(Hint::CacheableOwned));
        assert_eq!(said.is_empty(), before.1.is_alone(), "{before:?}");
        assert_eq!(states, (I, M), "{before:?}");
    }
}

#[test]
fn requests_for_lines_of_the_device_are_as_the_table_says() {
    let [nc, cs, co] = [Hint::NonCacheable, Hint::CacheableShared, Hint::CacheableOwned].map(Operation::Read);
    let written_back: &[&str] = &["MemoryWrite", "MemoryDone", "MemoryForward"];
    for (operation, clean) in [(&nc, (E, I)), (&cs, (S, S)), (&co, (I, E))] {
        let (said, states, _) = device_does(Side::Device, (E, I), operation.clone());
        assert_eq!((&said[1..], states), (&["MemoryForward".to_owned()][..], clean), "{operation:?}");
        let (said, states, memory) = device_does(Side::Device, (M, I), operation.clone());
        assert_eq!(said[1..], *written_back, "{operation:?}");
        assert_eq!((states.0, memory), (I, 2), "{operation:?}");
        let (said, ..) = device_does(Side::Device, (I, M), operation.clone());
        assert!(said.is_empty(), "a copy that is there needs no request");
    }
    let (said, states, memory) = device_does(Side::Device, (M, I), write(Hint::NonCacheable));
    assert_eq!((said[1..].join(" "), states, memory), ("MemoryForward".to_owned(), (I, I), 7));
    let (said, states, memory) = device_does(Side::Device, (S, S), write(Hint::NonCacheablePush));
    assert_eq!((said[1..].join(" "), states, memory), ("Pull Pulled".to_owned(), (M, I), 1));
}

/// An ask of the host, from a pair of states: messages and the states afterwards.
pub(super) fn host_does(home: Side, states: (Copy, Copy), ask: Ask<u8>) -> (Vec<String>, (Copy, Copy)) {
    let (mut host, mut device) = pair(home, states.0, states.1);
    let effects = host.begin(ask);
    let said = talk(&mut host, &mut device, effects);
    assert!(!host.is_busy());
    (said, (host.copy, device.copy))
}

#[test]
fn a_snoop_that_takes_a_line_from_its_eviction_makes_the_data_bogus() {
    let (mut host, mut device) = pair(Side::Host, I, M);
    assert_eq!(device.start(Operation::Evict), Started::Asked(Opcode::DirtyEvict));
    let effects = host.begin(Ask::Own);
    talk(&mut host, &mut device, effects);
    host.write(&9, WHOLE);
    let effects = host.begin(Ask::Device(Opcode::DirtyEvict));
    assert_eq!(effects, [Effect::Send(ToDevice::Pull)]);
    let reply = device.receive(ToDevice::Pull).reply.expect("a pull is answered");
    assert!(matches!(reply, ToHost::Pulled { bogus: true, .. }), "{reply:?}");
    host.receive(reply);
    assert_eq!((host.copy, host.data, host.device), (M, 9, Tracked::None));
}

fn explored(home: Side, mutation: Mutation, switching: Switching) -> Found {
    explore(&Question { home, mutation, switching, operations: [2, 2] })
}

#[test]
fn every_interleaving_is_coherent_and_ends() {
    for home in [Side::Host, Side::Device] {
        let found = explored(home, Mutation::None, Switching::Never);
        assert_eq!((found.fault, found.stale), (None, false), "{home:?}");
        assert!(found.states > 2_000, "{home:?}: only {} states", found.states);
    }
    let found = explored(Side::Device, Mutation::None, Switching::Careful);
    assert_eq!((found.fault, found.stale), (None, false));
}

#[test]
fn stale_data_is_possible_in_device_bias_that_nobody_was_told_of() {
    let found = explored(Side::Device, Mutation::None, Switching::Raw);
    assert!(found.stale && found.fault.is_none(), "{:?}", found.fault);
}

#[test]
fn the_exploration_finds_each_mistake() {
    for (home, mutation) in [
        (Side::Device, Mutation::MemoryWaitsForCache),
        (Side::Host, Mutation::BogusIsGood),
        (Side::Host, Mutation::DropsBeforePull),
        (Side::Device, Mutation::ForwardsUnwritten),
        (Side::Host, Mutation::SnoopPassesGrant),
    ] {
        let found = explored(home, mutation, Switching::Never);
        assert!(found.fault.is_some(), "{mutation:?} was not found in {} states", found.states);
    }
}
