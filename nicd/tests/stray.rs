//! Frames for stations of which nobody knows where they are: who gets them, and who must not.

use conic_fabric::Time;
use conic_native::KeptCore;
use conic_nicd::switch::{Rules, Switch, SwitchOptions};

use crate::support::clients::{Client, Outside, frame, mac, plain, port};
use crate::support::threads::Threads;

const CLIENTS: u64 = 6;

/// A bridge of so many threads, and what must be true of it.
struct World {
    threads: Threads,
    clients: Vec<Client>,
    rules: Vec<Rules>,
    outside: Option<Outside>,
    /// A station that nobody has.
    next: u64,
}

/// What a member of a VLAN, or who passes tags, gets of a frame of `vlan`: tagged, untagged, or nothing.
fn form_for(own: Option<u16>, vlan: u16) -> Option<bool> {
    match own {
        Some(own) => (own == vlan).then_some(false),
        None => Some(vlan != 0),
    }
}

impl World {
    fn new(threads: usize, random: &mut fastrand::Rng) -> World {
        let outside = random.bool().then(Outside::default);
        let mut threads = Threads::bridge(threads, outside.iter().map(|outside| port(outside, None)).collect());
        let has_vlans = random.bool();
        let rules: Vec<Rules> = (1..=CLIENTS)
            .map(|number| Rules {
                own_address_only: random.u8(0..4) > 0,
                promiscuous: random.u8(0..4) == 0,
                vlan: (has_vlans && random.bool()).then(|| random.u16(7..9)),
                ..plain(number)
            })
            .collect();
        let clients = threads.attach_all(CLIENTS, 1, |number| rules[number as usize - 1].clone());
        World { threads, clients, rules, outside, next: 1 << 16 }
    }

    fn unknown(&mut self) -> [u8; 6] {
        self.next += 1;
        let [.., a, b, c] = self.next.to_be_bytes();
        [6, 0, 0, a, b, c]
    }

    /// A client becomes promiscuous, or no longer is.
    fn turn(&mut self, which: usize) {
        let rules = &mut self.rules[which];
        rules.promiscuous ^= true;
        let (session, promiscuous) = (which as u64 + 1, rules.promiscuous);
        let all = self.threads.switches.iter_mut().all(|switch| switch.set_promiscuous(session, promiscuous));
        assert!(all, "every thread knows it");
        let told: Vec<u64> = self.threads.switches.iter().flat_map(Switch::promiscuous).collect();
        assert_eq!(told.contains(&session), promiscuous);
    }

    /// A frame for a station from a client, or from outside; with a tag where it is of a VLAN.
    fn send(&mut self, from: Option<usize>, to: [u8; 6], tag: Option<u16>) {
        let own = from.and_then(|from| self.rules[from].vlan);
        let tag = tag.filter(|_| own.is_none());
        let vlan = own.or(tag).unwrap_or(0);
        let source = from.map_or(mac(200), |from| self.rules[from].mac);
        let untagged = frame(source, to, 1, self.next, 100);
        let tagged = [&untagged[..12], &[0x81, 0], &vlan.to_be_bytes(), &untagged[12..]].concat();
        let sent = if tag.is_some() { &tagged } else { &untagged };
        let in_form = |is_tagged| if is_tagged { tagged.clone() } else { untagged.clone() };
        let before = from.map(|from| self.threads.counters(from as u64 + 1).dropped_no_way);
        match (from, &self.outside) {
            (Some(from), _) => assert!(self.clients[from].send(0, sent, 1)),
            (None, Some(outside)) => outside.give(sent.clone()),
            (None, None) => return,
        }
        self.threads.settle(Time::ZERO);
        let mut reached = 0;
        for (number, (client, rules)) in self.clients.iter_mut().zip(&self.rules).enumerate() {
            let may_have = !rules.own_address_only || rules.promiscuous || rules.mac == to;
            let expected = form_for(rules.vlan, vlan).filter(|_| may_have && Some(number) != from).map(in_form);
            reached += usize::from(expected.is_some());
            assert_eq!(client.receive(), Vec::from_iter(expected), "client {number}, {rules:?}, from {from:?}");
        }
        if let (Some(from), Some(before)) = (from, before) {
            let is_outside = self.outside.as_ref().map(|outside| outside.take());
            reached += is_outside.as_ref().map_or(0, Vec::len);
            assert_eq!(is_outside, self.outside.as_ref().map(|_| vec![in_form(vlan != 0)]), "what leaves by the port");
            let lost = self.threads.counters(from as u64 + 1).dropped_no_way - before;
            assert_eq!(lost, u64::from(reached == 0), "what reaches nobody is counted, and nothing else");
        }
    }
}

#[test]
fn a_frame_for_nobody_who_is_known_goes_to_those_alone_that_may_have_its_station() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(1 + seed as usize % 3, &mut random);
        for _ in 0..40 {
            if random.u8(0..3) == 0 {
                world.turn(random.usize(..CLIENTS as usize));
            }
            let from = (random.u8(0..4) > 0).then(|| random.usize(..CLIENTS as usize));
            let (to, tag) = (world.unknown(), random.bool().then(|| random.u16(7..9)));
            world.send(from, to, tag);
        }
    }
}

/// It may be spoken to in a VLAN in which it has said nothing yet.
#[test]
fn who_passes_tags_is_found_by_its_own_address_in_every_vlan() {
    for threads in 1..=2 {
        let mut random = fastrand::Rng::with_seed(0);
        let mut world = World::new(threads, &mut random);
        world.threads = Threads::bridge(threads, Vec::new());
        world.outside = None;
        world.rules = (1..=3).map(|number| Rules { vlan: (number == 3).then_some(7), ..plain(number) }).collect();
        let rules = world.rules.clone();
        world.clients = world.threads.attach_all(3, 1, |number| rules[number as usize - 1].clone());
        world.send(Some(0), mac(2), Some(9));
        world.send(Some(2), mac(1), None);
        // None of the two has that address, and a client without a station behind it may be asked in vain.
        world.send(Some(0), mac(99), Some(9));
    }
}

#[test]
fn a_frame_for_several_stations_goes_to_everybody() {
    let mut switch: Switch<KeptCore> = Switch::new(SwitchOptions::default(), Vec::new());
    let attach = |switch: &mut Switch<KeptCore>, number| Client::attach(switch, Time::ZERO, number, 1, plain(number));
    let mut clients = [1, 2, 3].map(|number| attach(&mut switch, number));
    for to in [[0xff; 6], [1, 0, 0x5e, 0, 0, 7], [0x33, 0x33, 0, 0, 0, 1]] {
        assert!(clients[0].send(0, &frame(mac(1), to, 1, 1, 100), 1));
        switch.step(Time::ZERO);
        assert_eq!([0, 1, 2].map(|client: usize| clients[client].receive().len()), [0, 1, 1]);
    }
}
