//! Every schedule and ordering of small exchanges on memory, and each of their edges weakened.

use conic_check::loom::thread;
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::Core;
use conic_interface::pio::{Device, Features, Host, Lines, Played, Poll, Shape};

use crate::calls::place;

/// What a model's exchanges carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Script {
    shape: Shape,
    /// Bytes of each request and each response.
    request: usize,
    response: usize,
    calls: u8,
    /// The device says "try again" once, in the first call.
    defers: bool,
}

/// One line each way, a second line in the group, and one in the overflow lines in one direction.
fn scripts() -> [Script; 4] {
    let pair = Script { shape: Shape::pair(), request: 20, response: 20, calls: 2, defers: false };
    [
        pair,
        Script { shape: Shape::groups(72), request: 72, response: 72, ..pair },
        Script { shape: Shape::frames(72), request: 72, response: 0, ..pair },
        Script { shape: Shape::frames(72), request: 0, response: 72, ..pair },
    ]
}

fn serve(device: &mut Played<LoomCore>, script: &Script) {
    let mut read = [0; 128];
    for call in 0..script.calls {
        while device.poll().is_none() {
            device.spin();
        }
        let length = device.read(&mut read);
        assert_eq!(&read[..length], &[call + 1; 128][..script.request]);
        if script.defers && call == 0 {
            device.try_again();
        }
        while !device.respond(&[call + 100; 128][..script.response]) {
            device.spin();
        }
    }
}

fn exchange(memory: &LoomMemory, lines: Lines, script: Script) {
    let mut device = Played::new(memory.core("device"), lines);
    let thread = thread::spawn(move || serve(&mut device, &script));
    let mut host = Host::new(memory.core("host"), lines, Features::PLAYED);
    let mut read = [0; 128];
    for call in 0..script.calls {
        host.begin(&[call + 1; 128][..script.request], script.response).expect("the last call was answered");
        loop {
            match host.poll() {
                Poll::Response(length) => break assert_eq!(length, script.response),
                Poll::NotYet => host.core().spin(),
                Poll::Refused => panic!("refused"),
            }
        }
        host.read(&mut read);
        assert_eq!(&read[..script.response], &[call + 100; 128][..script.response]);
    }
    thread.join().expect("the device ends");
}

fn passes(script: Script) -> u64 {
    let (lines, layout) = place(script.shape);
    explore(&layout, Exploration::full(), move |memory| exchange(memory, lines, script))
}

#[test]
fn exchanges_keep_their_payloads_under_every_schedule() {
    for script in scripts() {
        let more = passes(Script { calls: 3, ..script });
        assert!(more > passes(script), "{script:?}");
        println!("{script:?}: {more} executions");
    }
}

#[test]
fn try_again_keeps_its_request_and_its_response_under_every_schedule() {
    for script in scripts() {
        assert!(passes(Script { defers: true, ..script }) > 1);
    }
}

/// Says that a weakening is found as a race on an owned word.
fn races(script: Script, mutation: Mutation) {
    let (lines, layout) = place(script.shape);
    let exploration = Exploration::full().weakened(mutation.clone());
    let caught = catches(&layout, exploration, move |memory| exchange(memory, lines, script));
    assert!(caught.message.contains("Causality violation"), "{script:?}, {mutation:?}: {}", caught.message);
}

#[test]
fn each_edge_is_needed() {
    let [pair, groups, transmit, receive] = scripts();
    for script in [pair, groups] {
        for (side, other) in [("host", "device"), ("device", "host")] {
            races(script, Mutation::new(Weaken::RelaxedPublish).by(side));
            races(script, Mutation::new(Weaken::SignalFirst).by(side));
            races(script, Mutation::new(Weaken::RelaxedLoad).by(other));
        }
    }
    // A frame that was taken: its lines may be written again.
    races(transmit, Mutation::new(Weaken::RelaxedPublish).by("device"));
    races(transmit, Mutation::new(Weaken::RelaxedLoad).by("host"));
    // A frame that was read: the request for the next has no payload, and is announced by its word alone.
    races(receive, Mutation::new(Weaken::RelaxedStore).by("host"));
    races(receive, Mutation::new(Weaken::RelaxedLoad).by("device"));
}
