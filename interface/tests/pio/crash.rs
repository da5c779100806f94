//! Either side dies before any of its memory operations: the other neither hangs nor reads half a payload, and whoever
//! takes over goes on.

use conic_check::{CrashCore, CrashMemory, Outcome, for_every_death, run_until_death};
use conic_interface::pio::{Device, Features, Host, Played, Poll, Shape};

use crate::calls::place;
use crate::common::bytes;

const CALLS: u64 = 5;

fn request(number: u64, shape: &Shape) -> Vec<u8> {
    let mut request = bytes(number, shape.capacity() as usize - number as usize % 3);
    request[0] = number as u8;
    request
}

/// A response leaves the overflow lines alone, as the NIC's do: a request in them must be whole for whoever takes over.
fn response(number: u8, shape: &Shape) -> Vec<u8> {
    let own = Shape { overflow: 0, ..*shape };
    bytes(u64::from(number) << 40, own.capacity() as usize - 5)
}

/// One round of the device: takes a request and answers it, or says "try again" first where it is so minded.
fn serve(device: &mut Played<&CrashCore>, defers: bool, shape: &Shape, working: &mut Option<u8>) -> Option<u8> {
    if device.poll().is_some() {
        let mut read = vec![0; shape.capacity() as usize];
        let length = device.read(&mut read);
        assert_eq!(read[..length], request(u64::from(read[0]), shape), "the device reads half a request");
        *working = Some(read[0]);
        if defers {
            device.try_again();
        }
    }
    let number = (*working)?;
    if device.respond(&response(number, shape)) { working.take() } else { None }
}

/// One round of the host: begins call `number` if none is under way, and looks for the answer.
fn call(host: &mut Host<&CrashCore>, number: u64, shape: &Shape) -> bool {
    if !host.is_waiting() {
        host.begin(&request(number, shape), 0).expect("it fits");
    }
    let Poll::Response(length) = host.poll() else { return false };
    let mut read = vec![0; length];
    assert_eq!(host.read(&mut read), length);
    assert_eq!(read, response(number as u8, shape), "the CPU reads half a response, or another's");
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Host,
    Device,
}

/// A script with a death at the victim's `n`-th operation, and a successor.
fn scenario(n: u64, shape: Shape, victim: Victim, defers: bool) -> Outcome<()> {
    let (lines, layout) = place(shape);
    let memory = CrashMemory::new(&layout);
    let (host_core, device_core) = (memory.core("host"), memory.core("device"));
    match victim {
        Victim::Host => &host_core,
        Victim::Device => &device_core,
    }
    .die_at(n);
    let mut host = Host::new(&host_core, lines, Features::PLAYED);
    let mut device = Played::new(&device_core, lines);
    let (mut done, mut working) = (0, None);
    let outcome = run_until_death(|| {
        for _ in 0..20 * CALLS {
            if done < CALLS && call(&mut host, done, &shape) {
                done += 1;
            }
            serve(&mut device, defers, &shape, &mut working);
        }
        assert_eq!(done, CALLS, "calls in vain");
    });
    if outcome == Outcome::Finished(()) {
        return outcome;
    }
    // The survivor's calls return, and find nothing that is not whole.
    for _ in 0..5 {
        match victim {
            Victim::Host => drop(serve(&mut device, defers, &shape, &mut working)),
            Victim::Device => done += u64::from(done < CALLS && call(&mut host, done, &shape)),
        }
    }
    let heir = memory.core("heir");
    match victim {
        Victim::Host => {
            let mut host = Host::resume(&heir, lines, Features::PLAYED);
            // What the last one had asked is answered first, and thrown away.
            for _ in 0..5 {
                host.poll();
                serve(&mut device, defers, &shape, &mut working);
            }
            assert!(!host.is_waiting() || working.is_none(), "the heir's first call waits");
            goes_on(&mut host, 0, |_| serve(&mut device, defers, &shape, &mut working), &shape);
        }
        Victim::Device => {
            let (mut device, mut working) = (Played::resume(&heir, lines), None);
            goes_on(&mut host, done, |_| serve(&mut device, defers, &shape, &mut working), &shape);
        }
    }
    outcome
}

/// New calls are answered. A call that was deferred by a device that died is refused, and made again.
fn goes_on(host: &mut Host<&CrashCore>, first: u64, mut device: impl FnMut(u64) -> Option<u8>, shape: &Shape) {
    let mut done = first;
    for round in 0..100 {
        done += u64::from(call(host, done, shape));
        device(round);
    }
    assert!(done > first + 10, "only {} calls of the heir were answered", done - first);
}

#[test]
fn either_side_may_die_anywhere_and_an_heir_goes_on() {
    let mut deaths = [0; 2];
    let shapes = [Shape::pair(), Shape::frames(150), Shape::groups(150)];
    for shape in shapes {
        for defers in [false, true] {
            for victim in [Victim::Host, Victim::Device] {
                deaths[victim as usize] += for_every_death(|n| scenario(n, shape, victim, defers));
            }
        }
    }
    println!("{deaths:?} deaths");
    assert!(deaths[0] > 500 && deaths[1] > 900, "{deaths:?} deaths");
}
