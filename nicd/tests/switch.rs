//! The switch as a whole: clients, ports and faults from one seed. One thread plays everybody, and time is a number.

use std::collections::{BTreeMap, VecDeque};

use crate::support::clients::{Client, EVERYBODY, Fault, Outside, frame, mac, plain, port, port_of, rules};
use crate::support::threads::{LINES, Threads};
use conic_fabric::{Address, Core, Time};
use conic_interface::ccnic::{Descriptor, Flags};
use conic_nicd::switch::{RateLimit, Rules, Station, Switch, SwitchOptions};

/// Flow and number of such a frame.
fn label(frame: &[u8]) -> ([u8; 6], u16, u64) {
    let from = frame[6..12].try_into().expect("six bytes");
    let number = frame[42..50].try_into().map(u64::from_be_bytes).expect("eight bytes");
    (from, u16::from_be_bytes([frame[34], frame[35]]), number)
}

/// What each station must still get: from whom, whom, flow; in order.
type Expected = BTreeMap<([u8; 6], [u8; 6], u16), VecDeque<Vec<u8>>>;

/// Everybody receives what has come.
fn drain(
    clients: &mut [Client],
    outside: &[Outside],
    expected: &mut Expected,
    far: [u8; 6],
    trace: &mut Vec<u8>,
    dead: &[[u8; 6]],
) {
    let got = clients.iter_mut().flat_map(|client| client.receive().into_iter().map(|frame| (client.mac, frame)));
    for (to, frame) in got.chain(outside.iter().flat_map(Outside::take).map(|frame| (far, frame))) {
        trace.extend_from_slice(&frame[..50]);
        take(expected, to, &frame, dead);
    }
}

/// The station outside.
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 200];

/// Everybody, and what they must still get.
struct World {
    random: fastrand::Rng,
    /// The other end of each of the port's queues.
    outside: Vec<Outside>,
    switch: Threads,
    clients: Vec<Client>,
    /// Who is gone and may have sent what is still on its way between threads.
    dead: Vec<[u8; 6]>,
    expected: Expected,
    now: Time,
    sessions: u64,
    number: u64,
    trace: Vec<u8>,
}

impl World {
    fn new(seed: u64, threads: usize, queues: usize) -> World {
        let outside: Vec<Outside> = (0..queues).map(|_| Outside::default()).collect();
        let options = SwitchOptions { rest_after: Time::from_nanoseconds(2_000), ..SwitchOptions::default() };
        let switch = Threads::new(threads, LINES, &options, vec![port_of(&outside, None)]);
        let (expected, trace) = (Expected::new(), Vec::new());
        let random = fastrand::Rng::with_seed(seed);
        let (clients, dead) = (Vec::new(), Vec::new());
        World { random, outside, switch, clients, dead, expected, now: Time::ZERO, sessions: 0, number: 0, trace }
    }

    fn drain(&mut self) {
        drain(&mut self.clients, &self.outside, &mut self.expected, FAR, &mut self.trace, &self.dead);
    }

    fn step(&mut self, most: u64) -> usize {
        self.now += Time::from_nanoseconds(1 + self.random.u64(..most));
        let moved = self.switch.step(self.now);
        self.drain();
        if moved == 0 {
            self.dead.clear();
        }
        moved
    }

    fn client_comes(&mut self) {
        // What is on its way to everybody would reach the new one too.
        self.switch.answer_calls();
        while self.switch.step(self.now) > 0 {
            self.drain();
        }
        self.sessions += 1;
        let (queues, mac) = (1 + self.random.u64(..3) as u32, mac(self.sessions % 100 + 1));
        let thread = match self.switch.switches.len() {
            1 => 0,
            threads => self.random.usize(..threads),
        };
        self.clients.push(self.switch.attach(thread, self.now, self.sessions, queues, rules(mac)));
    }

    /// One dies with frames on their way, to it and from it.
    fn client_goes(&mut self) {
        let which = self.random.u64(..self.clients.len() as u64) as usize;
        let gone = self.clients.swap_remove(which);
        assert!(self.switch.detach(gone.session).is_some());
        self.expected.retain(|(from, to, _), _| *from != gone.mac && *to != gone.mac);
        // What it had sent may still have been delivered, or not.
        for client in &mut self.clients {
            client.receive().iter().for_each(|frame| take(&mut self.expected, client.mac, frame, &[gone.mac]));
        }
        let out = self.outside.iter().flat_map(Outside::take);
        out.for_each(|frame| take(&mut self.expected, FAR, &frame, &[gone.mac]));
        if self.switch.switches.len() > 1 {
            self.dead.push(gone.mac);
        }
    }

    fn outside_sends(&mut self) {
        let Some(to) = self.clients.first().map(|client| client.mac) else { return };
        self.number += 1;
        let sent = frame(FAR, to, 1, self.number, 60 + self.random.u64(..1400) as usize);
        self.expected.entry((FAR, to, 1)).or_default().push_back(sent.clone());
        // A flow is on one queue.
        self.outside[usize::from(to[5]) % self.outside.len()].give(sent);
    }

    /// The port fails in some way, or recovers.
    fn port_changes(&mut self) {
        let faults = [Fault::None, Fault::None, Fault::Full, Fault::Refuses, Fault::Fails];
        let fault = faults[self.random.u64(..5) as usize];
        self.outside.iter().for_each(|outside| outside.set(fault));
    }

    fn client_sends(&mut self) {
        let count = self.clients.len() as u64;
        if count < 2 {
            return;
        }
        let (from, to) = (self.random.u64(..count) as usize, self.random.u64(..count + 2) as usize);
        if from == to {
            return;
        }
        self.number += 1;
        let flow = self.random.u64(..4) as u16;
        let longest = if self.random.u64(..8) == 0 { 9540 } else { 300 };
        let length = 60 + self.random.u64(..longest) as usize;
        let queue = flow as usize % self.clients[from].hosts.len();
        let source = self.clients[from].mac;
        let receivers: Vec<[u8; 6]> = match self.clients.get(to) {
            Some(one) => vec![one.mac],
            None if to as u64 == count => vec![FAR],
            None => self.clients.iter().map(|one| one.mac).chain([FAR]).filter(|&one| one != source).collect(),
        };
        let target = if receivers.len() == 1 { receivers[0] } else { EVERYBODY };
        // To everybody is another flow, by its address.
        let flow = if receivers.len() == 1 { flow } else { flow + 100 };
        let sent = frame(source, target, flow, self.number, length);
        if self.clients[from].send(queue, &sent, 1 + self.random.u64(..3) as usize) {
            for to in receivers {
                self.expected.entry((source, to, flow)).or_default().push_back(sent.clone());
            }
        }
    }
}

/// Runs a world of so many threads, with a port of so many queues, for so many rounds and returns what can be seen of it, and how many
/// frames each fault of the port cost.
fn run(seed: u64, [threads, queues]: [usize; 2], rounds: u64) -> (Vec<u8>, [u64; 3]) {
    let mut world = World::new(seed, threads, queues);
    for round in 0..rounds {
        match world.random.u64(..12) {
            0 if world.clients.len() < 5 => world.client_comes(),
            1 if world.clients.len() > 3 => world.client_goes(),
            2 => world.outside_sends(),
            3 => world.port_changes(),
            _ => world.client_sends(),
        }
        if world.random.u64(..3) == 0 {
            // A station that was never heard of is looked for everywhere.
            if round < 50 {
                world.outside[round as usize % queues].give(frame(FAR, EVERYBODY, 9, 0, 60));
            }
            world.step(3_000);
        }
    }
    // Everything that was sent arrives.
    for _ in 0..200 {
        world.step(500);
    }
    world.expected.retain(|_, frames| !frames.is_empty());
    assert!(world.expected.is_empty(), "seed {seed}: {} flows lack frames", world.expected.len());
    for (session, counters, faults) in world.switch.clients() {
        let dropped = counters.dropped_full + counters.dropped_no_buffer + counters.dropped_length;
        assert_eq!((dropped, faults.total()), (0, 0), "seed {seed}, client {session}: {counters:?} {faults:?}");
    }
    for switch in &mut world.switch.switches {
        assert!(switch.take_offenders().is_empty());
        assert!(switch.trunks().all(|(_, counters)| counters.dropped_full == 0), "seed {seed}");
    }
    // What a failing port cost is counted by reason, and cost nobody else a frame.
    let counted = world.switch.first_port().switch;
    let lost = world
        .outside
        .iter()
        .map(Outside::lost)
        .fold([0; 3], |sum, lost| [0, 1, 2].map(|fault| sum[fault] + lost[fault]));
    assert_eq!([counted.dropped_full, counted.dropped_refused, counted.dropped_failed], lost, "seed {seed}");
    // Each of them was not told of: a port fails until it has sent something.
    let failures: usize = world.switch.switches.iter_mut().map(|switch| switch.take_failures().len()).sum();
    assert!(failures as u64 <= lost[2] && (failures == 0) == (lost[2] == 0), "seed {seed}: {failures} of {lost:?}");
    (world.trace, lost)
}

/// Strikes a frame out that a station got; it must be the next of its flow, or from one of the `dead`, whose flows may have holes.
fn take(expected: &mut Expected, to: [u8; 6], got: &[u8], dead: &[[u8; 6]]) {
    let (from, flow, number) = label(got);
    if flow == 9 || dead.contains(&from) {
        return;
    }
    let flows = expected.get_mut(&(from, to, flow));
    // A frame for a station that is not known yet goes to everybody; only its own counts.
    let Some(next) = flows.and_then(|frames| frames.front().cloned()) else {
        assert_ne!(got[..6], to, "{number} of flow {flow} came twice, or was never sent");
        return;
    };
    if got[..6] != to && got[..6] != EVERYBODY {
        return;
    }
    assert_eq!(next, got, "flow {flow} from {from:?} to {to:?} is out of order or changed");
    expected.get_mut(&(from, to, flow)).map(VecDeque::pop_front);
}

#[test]
fn every_frame_arrives_once_in_order_and_unchanged_whatever_the_seed() {
    let mut lost = [0; 3];
    let several = |seed| [(seed, [2, 1]), (seed, [3, 1]), (seed, [2, 2]), (seed, [3, 2]), (seed, [2, 5])];
    for (seed, size) in (1..20).map(|seed| (seed, [1, 1])).chain((20..30).flat_map(several)) {
        let (_, cost) = run(seed, size, 400);
        lost.iter_mut().zip(cost).for_each(|(sum, cost)| *sum += cost);
    }
    assert!(lost.iter().all(|&count| count > 0), "a fault cost nothing: {lost:?}");
}

#[test]
fn one_seed_is_one_run() {
    for size in [[1, 1], [3, 1], [3, 2]] {
        assert_eq!(run(7, size, 300), run(7, size, 300));
        assert_ne!(run(7, size, 300), run(8, size, 300));
    }
}

#[test]
fn a_sender_has_its_own_address() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut b = Client::attach(&mut switch, Time::ZERO, 2, 1, plain(2));
    assert!(a.send(0, &frame(mac(2), mac(200), 1, 1, 100), 1));
    assert!(a.send(0, &frame(mac(1), mac(2), 1, 2, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!(b.receive(), [frame(mac(1), mac(2), 1, 2, 100)]);
    assert!(outside.take().is_empty());
    let (_, counters, _) = switch.clients().next().expect("the first client");
    assert_eq!((counters.dropped_spoofed, counters.sent_frames), (1, 2));
    // Nor can it take another's address over.
    assert_eq!(switch.table().find(Time::ZERO, Station::new(mac(2), 0)), Some(conic_nicd::switch::Place::Client(1)));
}

#[test]
fn a_frame_does_not_go_back_to_where_it_came_from_and_a_group_is_no_sender() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, Rules { own_address_only: false, ..plain(1) });
    outside.give(frame(mac(200), mac(1), 1, 1, 100));
    outside.give(frame(mac(201), mac(200), 1, 2, 100));
    assert!(a.send(0, &frame(mac(1), mac(1), 1, 3, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((a.receive().len(), outside.take().len()), (1, 0));
    let (port, client) = (switch.ports().next().expect("it").switch, switch.clients().next().expect("it").1);
    assert_eq!((port.dropped_no_way, client.dropped_no_way), (1, 1));
    let known = switch.table().stations(Time::ZERO).len();
    assert!(a.send(0, &frame([3, 0, 0, 0, 0, 9], mac(200), 1, 4, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((outside.take().len(), switch.table().stations(Time::ZERO).len()), (1, known));
}

#[test]
fn vlans_are_apart_and_tags_come_and_go_at_their_edges() {
    let (trunk, access) = (Outside::default(), Outside::default());
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&trunk, None), port(&access, Some(8))]);
    let member = |number, vlan| Rules { vlan: Some(vlan), ..plain(number) };
    let mut red = Client::attach(&mut switch, Time::ZERO, 1, 1, member(1, 7));
    let mut blue = Client::attach(&mut switch, Time::ZERO, 2, 1, member(2, 8));
    let mut red_too = Client::attach(&mut switch, Time::ZERO, 3, 1, member(3, 7));
    let everybody = frame(mac(1), EVERYBODY, 1, 1, 100);
    assert!(red.send(0, &everybody, 1));
    switch.step(Time::ZERO);
    assert_eq!(red_too.receive(), std::slice::from_ref(&everybody));
    assert_eq!((blue.receive().len(), access.take().len()), (0, 0));
    let tagged = [&everybody[..12], &[0x81, 0, 0, 7], &everybody[12..]].concat();
    assert_eq!(trunk.take(), [tagged]);
    // Back through the trunk, tagged, to one of them.
    let answer = frame(mac(50), mac(2), 1, 2, 100);
    let tagged = [&answer[..12], &[0x81, 0, 0, 8], &answer[12..]].concat();
    trunk.give(tagged.clone());
    switch.step(Time::ZERO);
    assert_eq!((blue.receive(), red.receive().len()), (vec![answer], 0));
    // A member may send no tags, not even its own VLAN's.
    for vlan in [7, 8] {
        assert!(red.send(0, &[&everybody[..12], &[0x81, 0, 0, vlan], &everybody[12..]].concat(), 1));
    }
    switch.step(Time::ZERO);
    assert_eq!((blue.receive().len(), red_too.receive().len()), (0, 0));
    assert_eq!((access.take().len(), trunk.take().len()), (0, 0));
    assert_eq!(switch.clients().next().expect("the first").1.dropped_vlan, 2);
    // The other VLAN is as far from this one.
    let everybody = frame(mac(2), EVERYBODY, 1, 3, 100);
    assert!(blue.send(0, &everybody, 1));
    switch.step(Time::ZERO);
    assert_eq!((red.receive().len(), red_too.receive().len(), access.take()), (0, 0, vec![everybody]));
    // What is too short without its tag is filled up for each of several, with zeroes.
    trunk.give([&EVERYBODY[..], &mac(50), &[0x81, 0, 0, 7], &[0xee; 44]].concat());
    switch.step(Time::ZERO);
    let filled = [&EVERYBODY[..], &mac(50), &[0xee; 44], &[0; 4]].concat();
    assert_eq!((red.receive(), red_too.receive()), (vec![filled.clone()], vec![filled]));
}

#[test]
fn a_tag_goes_in_and_out_between_two_clients_in_frames_of_every_size() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut member = Client::attach(&mut switch, Time::ZERO, 1, 1, Rules { vlan: Some(7), ..plain(1) });
    let mut trunk = Client::attach(&mut switch, Time::ZERO, 2, 2, plain(2));
    for length in (60..330).chain([1513, 1514, 4090, 9000, 9596]) {
        // The first teaches the switch where the other end is in this VLAN.
        let back = frame(mac(2), mac(1), 1, length as u64, length);
        let tagged = [&back[..12], &[0x81, 0, 0, 7], &back[12..]].concat();
        assert!(trunk.send(0, &tagged, 1));
        switch.step(Time::ZERO);
        assert_eq!(member.receive(), [back], "{length} bytes");
        let there = frame(mac(1), mac(2), 1, length as u64, length);
        let tagged = [&there[..12], &[0x81, 0, 0, 7], &there[12..]].concat();
        assert!(member.send(0, &there, 1));
        switch.step(Time::ZERO);
        assert_eq!(trunk.receive(), [tagged], "{length} bytes");
    }
    // One that is too short without its tag is filled up.
    let short = [&frame(mac(2), mac(1), 1, 1, 60)[..12], &[0x81, 0, 0, 7], &[0xff; 44]].concat();
    assert!(trunk.send(0, &short, 1));
    switch.step(Time::ZERO);
    let got = member.receive().remove(0);
    assert_eq!((got.len(), &got[12..56], &got[56..]), (60, &[0xff; 44][..], &[0; 4][..]));
    assert_eq!(outside.take().len(), 0, "everybody's place was known");
}

#[test]
fn nothing_of_what_lies_behind_a_frame_in_its_senders_buffer_gets_to_another() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut sender = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut untagged = Client::attach(&mut switch, Time::ZERO, 2, 1, Rules { vlan: Some(7), ..plain(2) });
    let mut receiver = Client::attach(&mut switch, Time::ZERO, 3, 1, plain(3));
    for length in (60..330).chain([1500, 9001]) {
        let tagged = frame(mac(1), mac(2), 1, 1, length);
        let tagged = [&tagged[..12], &[0x81, 0, 0, 7], &tagged[12..]].concat();
        let whole = [frame(mac(1), mac(3), 1, 1, length), tagged];
        let packets = whole.map(|frame| {
            let mut at = [Address(0)];
            let length = frame.len() as u64;
            let room = length.next_multiple_of(64);
            assert_eq!(sender.hosts[0].buf_alloc(room, &mut at), 1);
            // What was in the buffer before.
            sender.core.write_bytes(at[0], &vec![0xaa; room as usize]);
            sender.core.write_bytes(at[0], &frame);
            Descriptor::new(at[0], length as u16)
        });
        assert_eq!(sender.hosts[0].tx_burst(&packets), 2);
        switch.step(Time::ZERO);
        for client in [&mut receiver, &mut untagged] {
            let mut got = [Descriptor::BLANK; 2];
            assert_eq!(client.hosts[0].rx_burst(&mut got), 1, "{length} bytes");
            let (at, end) = (got[0].address(), u64::from(got[0].length()));
            let mut behind = vec![0; (end.next_multiple_of(64) - end) as usize];
            client.core.read_bytes(at + end, &mut behind);
            assert!(!behind.contains(&0xaa), "{length} bytes: {behind:x?}");
            client.hosts[0].buf_free(&[at]);
        }
    }
}

#[test]
fn a_limited_client_sends_at_its_rate_and_the_others_as_they_like() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let limit = RateLimit { bytes_per_second: 1_000_000, burst_bytes: 10_000 };
    let mut slow = Client::attach(&mut switch, Time::ZERO, 1, 1, Rules { limit: Some(limit), ..plain(1) });
    let mut sent_bytes = 0;
    // A second, in steps of ten microseconds, with always something to send.
    for step in 0..100_000u64 {
        while slow.send(0, &frame(mac(1), mac(200), 1, step, 1000), 1) {}
        switch.step(Time::from_nanoseconds(10_000 * step));
        sent_bytes += outside.take().iter().map(Vec::len).sum::<usize>();
    }
    // What may be sent at once, a second's worth, and a burst of the ring that was begun.
    assert!((1_000_000..1_000_000 + 10_000 + 33_000).contains(&sent_bytes), "{sent_bytes} bytes in a second");
    assert!(switch.clients().all(|(_, counters, _)| counters.dropped_full == 0), "nothing was dropped: it waits");
}

#[test]
fn clients_share_by_bytes_whatever_their_queues_and_frames() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut small = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut large = Client::attach(&mut switch, Time::ZERO, 2, 3, plain(2));
    // The switch knows where they are sent to.
    outside.give(frame(mac(200), mac(1), 1, 0, 60));
    switch.step(Time::ZERO);
    let mut bytes = [0usize; 2];
    for step in 0..3000u64 {
        // Refilled by the switch's own step at most: both have always something to send.
        while small.send(0, &frame(mac(1), mac(200), 1, step, 400), 1) {}
        for queue in 0..3 {
            while large.send(queue, &frame(mac(2), mac(200), 1, step, 1500), 1) {}
        }
        switch.step(Time::from_nanoseconds(step));
        for sent in outside.take() {
            bytes[usize::from(sent[11] - 1)] += sent.len();
        }
    }
    let share = bytes[0] as f64 / (bytes[0] + bytes[1]) as f64;
    let counters: Vec<_> = switch.clients().map(|(_, counters, _)| counters).collect();
    assert!(
        (0.45..0.55).contains(&share),
        "{counters:?}: the client with one queue and small frames has {share} of the bytes"
    );
}

#[test]
fn queues_that_say_nothing_rest_and_wake_when_they_are_called() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 200, plain(1));
    let rest = SwitchOptions::default().rest_after;
    switch.step(Time::ZERO);
    switch.step(Time::from_picoseconds(rest.picoseconds() - 1));
    assert!(!switch.is_resting());
    switch.step(rest);
    assert!(switch.is_resting());
    for queue in [0, 63, 64, 199] {
        assert!(client.send(queue, &frame(mac(1), mac(200), 1, 1, 100), 1));
        switch.answer_calls();
        assert!(!switch.is_resting());
        assert_eq!(switch.step(rest), 1, "queue {queue}");
    }
    assert_eq!(outside.take().len(), 4);
}

#[test]
fn a_client_that_scribbles_over_its_region_is_named_and_the_others_lose_nothing() {
    let outside = Outside::default();
    // It would have to call for its queues to be looked at again.
    let options = SwitchOptions { rest_after: Time::NEVER, ..SwitchOptions::default() };
    let mut switch = Switch::new(options.clone(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut b = Client::attach(&mut switch, Time::ZERO, 2, 2, plain(2));
    let hostile = Client::attach(&mut switch, Time::ZERO, 3, 2, plain(3));
    let mut random = fastrand::Rng::with_seed(99);
    let words = hostile.core.memory().bytes() / 8;
    let mut named = 0;
    for step in 0..4000u64 {
        for _ in 0..200 {
            // Its rings more often than the rest: they are where most can go wrong.
            let ring = hostile.map.queues[random.u64(..2) as usize].transmit;
            let at = match random.u64(..8) {
                0 => Address(random.u64(..words) * 8),
                _ => ring.ring + random.u64(..ring.slots * 8) * 8,
            };
            let flags = if random.u64(..2) == 0 { Flags::PHASE } else { random.u8(..) };
            let value = match random.u64(..4) {
                0 => random.u64(..),
                1 => hostile.core.load_acquire(Address(random.u64(..words) * 8)),
                2 => Descriptor::new(Address(random.u64(..words * 8)), random.u16(..)).with(flags).word,
                _ => Descriptor::new(hostile.map.pool.classes[0].start, 100).with(flags).word,
            };
            hostile.core.store_release(at, value);
        }
        let now = Time::from_nanoseconds(1000 * step);
        let sent = frame(mac(1), mac(2), (step % 4) as u16, step, 60 + (step % 1000) as usize);
        assert!(a.send(0, &sent, 1));
        switch.step(now);
        let own = |got: &Vec<u8>| got[6..12] == mac(1);
        assert_eq!(b.receive().into_iter().filter(own).collect::<Vec<_>>(), [sent]);
        a.receive();
        outside.take();
        for offender in switch.take_offenders() {
            assert_eq!(offender.session, 3);
            assert!(offender.faults.total() > options.most_faults);
            named += 1;
        }
    }
    assert_eq!(named, 1, "{:?}", switch.clients().map(|(_, _, faults)| faults).collect::<Vec<_>>());
    assert!(switch.clients().filter(|(session, ..)| *session != 3).all(|(_, _, faults)| faults.total() == 0));
    assert!(switch.detach(3).is_some());
}
