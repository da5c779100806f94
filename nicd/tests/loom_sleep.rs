//! Sides that sleep, under every schedule and every ordering that C11 allows: no wake-up is lost, and each half of the fences is
//! needed.
//!
//! The switch is the product's, its network's thread as the daemon's: it steps, and sleeps as soon as every queue rests; the host is
//! the client's half. Sleeping is loom's: a side that nobody wakes is a deadlock, which loom finds. What the kernel does is taken for
//! granted: a kick or a ring, once written, wakes its sleeper, now or when it next goes to sleep.
//!
//! | edge | weakened by | caught as |
//! |---|---|---|
//! | host: sent before the rest is looked at; NIC: at rest before the last look at the ring | `NoFullFence` of either | the NIC sleeps over a packet |
//! | NIC: delivered before the wish is looked at; host: wished before its last look at the ring | `NoFullFence` of either | the host sleeps over a packet |
//! | a call that is left over from an earlier rest is cleared before the next | a NIC that leaves it | the NIC sleeps over a packet |
//!
//! The releases and acquires of rest, call and wish carry nothing that the kernel's own order would not: none can be caught alone.

use std::sync::Arc;

use conic_check::loom::sync::{Condvar, Mutex};
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore, spawn};
use conic_fabric::{Address, Core, Home, Layout, SynchronisingWords, Time};
use conic_interface::burst::Packet;
use conic_interface::ccnic::notify::{Notices, PACKETS};
use conic_interface::ccnic::{Features, Geometry, Host, Map, PhaseCredit};
use conic_nicd::switch::{Mode, Rules, Switch, SwitchOptions};

/// What an eventfd or a socket is between a sleeper and who wakes it: it stays rung until somebody has woken of it.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("nobody panics with it") = true;
        self.heard.notify_one();
    }

    fn nap(&self) {
        *self.rung.lock().expect("nobody panics with it") = false;
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().expect("nobody panics with it");
        while !*rung {
            rung = self.heard.wait(rung).expect("nobody panics with it");
        }
        *rung = false;
    }
}

/// Where the flags and one word each way lie: rings with nothing about them that loom would have to try beside.
#[derive(Clone, Copy)]
struct Places {
    notices: Notices,
    sent: Address,
    delivered: Address,
}

fn small() -> (Layout, Places) {
    let mut layout = Layout::new();
    let word = |layout: &mut Layout, name, home| layout.add(name, 64, 64, home, SynchronisingWords::FIRST);
    let sent = word(&mut layout, "sent", Home::Host);
    let delivered = word(&mut layout, "delivered", Home::Nic);
    let notices = Notices::place(&mut layout, 1);
    (layout, Places { notices, sent, delivered })
}

/// A host that sends so many packets, and a NIC that rests and sleeps whenever it finds nothing.
fn call(memory: &LoomMemory, places: Places, packets: u64, forgetful: bool) {
    let (host, nic) = (memory.core("host"), memory.core("nic"));
    let kick = Arc::new(Bell::default());
    let own = Arc::clone(&kick);
    let thread = spawn(move || {
        let taken = |already: u64| nic.load_acquire(places.sent) > already;
        let mut already = 0;
        while already < packets {
            if taken(already) {
                already = nic.load_acquire(places.sent);
                continue;
            }
            // A nap over other queues: it may have heard a kick of this one, whose call is then left over.
            own.nap();
            places.notices.rest(&nic, 0, 1, u64::from(!forgetful));
            nic.heavy_fence();
            if taken(already) {
                places.notices.rest(&nic, 0, 0, 0);
                continue;
            }
            // As the daemon's thread does: first it sleeps, then it looks who has called.
            own.sleep();
            while places.notices.calls(&nic, 0) & 1 == 0 {
                own.sleep();
            }
            places.notices.rest(&nic, 0, 0, 0);
        }
    });
    for number in 1..=packets {
        host.store_release(places.sent, number);
        if places.notices.call_if_resting(&host, 0) {
            kick.ring();
        }
    }
    thread.join().expect("the NIC ends");
}

/// A NIC that delivers so many packets, and a host that sleeps whenever it finds nothing.
fn ring(memory: &LoomMemory, places: Places, packets: u64) {
    let (host, nic) = (memory.core("host"), memory.core("nic"));
    let bell = Arc::new(Bell::default());
    let own = Arc::clone(&bell);
    let thread = spawn(move || {
        let mut already = 0;
        while already < packets {
            let has_packets = || host.load_acquire(places.delivered) > already;
            if !has_packets() {
                places.notices.wish_for(&host, 0, PACKETS);
                if !has_packets() {
                    own.sleep();
                }
                places.notices.wish_no_more(&host, 0);
            }
            already = host.load_acquire(places.delivered);
        }
    });
    for number in 1..=packets {
        nic.store_release(places.delivered, number);
        if places.notices.must_ring(&nic, 0, PACKETS) {
            bell.ring();
        }
    }
    thread.join().expect("the host ends");
}

#[test]
fn no_call_of_a_nic_that_rests_is_lost() {
    let (layout, places) = small();
    let executions = explore(&layout, Exploration::bounded(3), move |memory| call(memory, places, 2, false));
    println!("{executions} executions");
    assert!(executions > 100, "the model has shrunk: {executions} executions");
}

#[test]
fn a_call_is_lost_without_either_half_of_the_fences() {
    for agent in ["host", "nic"] {
        let (layout, places) = small();
        let weakened = Exploration::full().weakened(Mutation::new(Weaken::NoFullFence).by(agent));
        let caught = catches(&layout, weakened, move |memory| call(memory, places, 1, false));
        assert!(caught.message.contains("deadlock"), "{agent}: {caught:?}");
    }
}

#[test]
fn a_call_is_lost_where_one_is_left_over() {
    let (layout, places) = small();
    let caught = catches(&layout, Exploration::bounded(3), move |memory| call(memory, places, 2, true));
    assert!(caught.message.contains("deadlock"), "{caught:?}");
}

#[test]
fn no_ring_of_a_host_that_waits_is_lost() {
    let (layout, places) = small();
    let executions = explore(&layout, Exploration::bounded(3), move |memory| ring(memory, places, 2));
    println!("{executions} executions");
    assert!(executions > 100, "the model has shrunk: {executions} executions");
}

#[test]
fn a_ring_is_lost_without_either_half_of_the_fences() {
    for agent in ["host", "nic"] {
        let (layout, places) = small();
        let weakened = Exploration::full().weakened(Mutation::new(Weaken::NoFullFence).by(agent));
        let caught = catches(&layout, weakened, move |memory| ring(memory, places, 1));
        assert!(caught.message.contains("deadlock"), "{agent}: {caught:?}");
    }
}

/// A loopback of one client, whose rings hold two lines.
fn loopback() -> (Arc<Map>, Notices) {
    let geometry = Geometry { queues: 1, descriptors: 8, buffers: [4, 0, 0], object_bytes: 0 };
    let map = Map::new(geometry, Features::best()).expect("a geometry that can be");
    let (map, notices) = Notices::in_map(map);
    (Arc::new(map), notices)
}

/// The product's switch, which sleeps when all its queues rest, and a host that sends one frame and sleeps until it is back.
fn there_and_back(memory: &LoomMemory, map: &Arc<Map>, notices: Notices) {
    map.pool.fill(&memory.core("builder"));
    let (kick, bell) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let (nic_core, host_core) = (memory.core("nic"), memory.core("host"));
    let (own_kick, own_bell, nic_map) = (Arc::clone(&kick), Arc::clone(&bell), Arc::clone(map));
    let thread = spawn(move || {
        let options = SwitchOptions { mode: Mode::Loopback, rest_after: Time::ZERO, ..SwitchOptions::default() };
        let mut switch: Switch<LoomCore> = Switch::new(options, Vec::new());
        let rules = Rules { mac: [2; 6], ..Rules::default() };
        let mut core = Some(nic_core);
        switch.attach(Time::ZERO, 1, rules, (&nic_map, notices), || core.take().expect("one queue"));
        let mut rings = Vec::new();
        loop {
            let moved = switch.step(Time::ZERO);
            switch.take_rings(&mut rings);
            rings.drain(..).for_each(|_| own_bell.ring());
            if moved > 0 {
                break;
            }
            if switch.is_resting() {
                own_kick.sleep();
                switch.answer_calls();
            }
        }
    });
    let map = Arc::clone(map);
    let host = spawn(move || {
        let mut host = Host::<_, PhaseCredit>::new(host_core, &map, 0);
        let mut at = [Address(0)];
        assert_eq!(host.buf_alloc(60, &mut at), 1, "buffers are free");
        host.core().store(at[0], 7);
        assert_eq!(host.tx_burst(&[Packet::new(at[0], 60)]), 1, "the ring is empty");
        if notices.call_if_resting(host.core(), 0) {
            kick.ring();
        }
        let mut out = [Packet::BLANK; 4];
        loop {
            notices.wish_for(host.core(), 0, PACKETS);
            if !host.has_packets() {
                bell.sleep();
            }
            notices.wish_no_more(host.core(), 0);
            if host.rx_burst(&mut out) == 1 {
                break;
            }
        }
        assert_eq!(host.core().load(out[0].address()), 7);
    });
    thread.join().expect("the NIC ends");
    host.join().expect("the host ends");
}

#[test]
fn the_switch_and_a_host_that_both_sleep_wake_each_other() {
    let (map, notices) = loopback();
    let layout = map.layout.clone();
    let executions = explore(&layout, Exploration::bounded(2), move |memory| there_and_back(memory, &map, notices));
    println!("{executions} executions");
    assert!(executions > 100, "the model has shrunk: {executions} executions");
}

#[test]
fn the_switch_sleeps_over_a_frame_without_either_half_of_the_fences() {
    for agent in ["host", "nic"] {
        let (map, notices) = loopback();
        let layout = map.layout.clone();
        let weakened = Exploration::bounded(2).weakened(Mutation::new(Weaken::NoFullFence).by(agent));
        let caught = catches(&layout, weakened, move |memory| there_and_back(memory, &map, notices));
        assert!(caught.message.contains("deadlock"), "{agent}: {caught:?}");
    }
}
