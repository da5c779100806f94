//! What an operator joins: cross-connects, pinned flows, limits and loopbacks; and ports that are told before a sleep.

use std::sync::{Arc, Mutex};

use crate::support::clients::{Client, EVERYBODY, Outside, frame, mac, plain, port};
use conic_fabric::Time;
use conic_native::{Flag, KeptCore};
use conic_nicd::switch::{
    Circuit, MemberCounters, Mirror, Mode, Party, Pin, RateLimit, Rules, Switch, SwitchOptions, SwitchPort,
};
use conic_port::offload::rss::{Ports, Toeplitz};
use conic_port::{Counters, Port, PortError, Receive, Transmit};

fn bridge(ports: Vec<SwitchPort>) -> Switch<KeptCore> {
    Switch::new(SwitchOptions::default(), ports)
}

fn end(number: u64, far: bool) -> Option<Circuit> {
    Some(Circuit { number, far })
}

fn counters(switch: &Switch<KeptCore>, session: u64) -> MemberCounters {
    switch.clients().find(|(own, ..)| *own == session).expect("a client").1
}

#[test]
fn a_circuit_carries_everything_between_its_ends_and_nothing_else() {
    let (cable, outside) = (Outside::default(), Outside::default());
    let wired = SwitchPort { circuit: end(3, false), ..port(&cable, Some(9)) };
    let mut switch = bridge(vec![wired, port(&outside, None)]);
    let far = Rules { circuit: end(3, true), ..plain(1) };
    let mut one = Client::attach(&mut switch, Time::ZERO, 1, 1, far.clone());
    let mut second = Client::attach(&mut switch, Time::ZERO, 2, 1, Rules { mac: mac(2), ..far });
    let mut free = Client::attach(&mut switch, Time::ZERO, 3, 1, plain(3));
    // Whatever its address says, and with its tags, though the port is a member of a VLAN.
    let sent = frame(mac(1), mac(3), 1, 1, 100);
    let tagged = [&sent[..12], &[0x81, 0, 0, 5], &sent[12..]].concat();
    assert!(one.send(0, &sent, 1) && one.send(0, &tagged, 2));
    assert!(one.send(0, &frame(mac(1), EVERYBODY, 1, 2, 90), 1));
    switch.step(Time::ZERO);
    assert_eq!(cable.take(), [sent, tagged.clone(), frame(mac(1), EVERYBODY, 1, 2, 90)]);
    assert_eq!((free.receive().len(), second.receive().len(), outside.take().len()), (0, 0, 0));
    cable.give(tagged.clone());
    switch.step(Time::ZERO);
    assert_eq!((one.receive(), free.receive().len(), outside.take().len()), (vec![tagged], 0, 0));
    // Who does not belong to it reaches it neither by its address nor by a flood.
    assert!(free.send(0, &frame(mac(3), mac(1), 1, 3, 100), 1));
    assert!(free.send(0, &frame(mac(3), EVERYBODY, 1, 4, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((one.receive().len(), cable.take().len(), outside.take().len()), (0, 0, 1));
    assert_eq!(counters(&switch, 3).dropped_no_way, 1);
    // The second has the end when the first is gone; until then what it sends is counted.
    assert!(second.send(0, &frame(mac(2), mac(9), 1, 5, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((cable.take().len(), counters(&switch, 2).dropped_no_way), (0, 1));
    assert!(switch.detach(1).is_some());
    assert!(second.send(0, &frame(mac(2), mac(9), 1, 6, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!(cable.take(), [frame(mac(2), mac(9), 1, 6, 100)]);
    assert_eq!(switch.circuits().find(|(party, ..)| *party == Party::Client(2)).expect("it").2, Some(Party::Port(0)));
}

#[test]
fn an_operator_connects_and_disconnects_while_frames_flow() {
    let outside = Outside::default();
    let mut switch = bridge(vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let promiscuous = Rules { promiscuous: true, ..plain(2) };
    let mut b = Client::attach(&mut switch, Time::ZERO, 2, 1, promiscuous);
    assert!(switch.connect(Party::Client(1), end(0, false)) && switch.connect(Party::Client(2), end(0, true)));
    assert!(!switch.connect(Party::Client(9), None) && !switch.connect(Party::Port(1), None));
    assert!(a.send(0, &frame(mac(1), mac(200), 1, 1, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((b.receive().len(), outside.take().len()), (1, 0));
    assert!(switch.connect(Party::Client(1), None) && switch.connect(Party::Client(2), None));
    assert!(a.send(0, &frame(mac(1), mac(200), 1, 2, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((b.receive().len(), outside.take().len()), (1, 1), "the bridge looks for the station everywhere");
    // A sender that is connected has its own address all the same.
    assert!(switch.connect(Party::Client(1), end(0, false)) && switch.connect(Party::Client(2), end(0, true)));
    assert!(a.send(0, &frame(mac(7), mac(200), 1, 3, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((b.receive().len(), counters(&switch, 1).dropped_spoofed), (0, 1));
}

#[test]
fn who_is_put_into_another_circuit_leaves_nobody_behind_in_the_old_one() {
    let mut switch = bridge(Vec::new());
    let attach = |switch: &mut _, number| Client::attach(switch, Time::ZERO, number, 1, plain(number));
    let mut clients = [1, 2, 3, 4].map(|number| attach(&mut switch, number));
    let connect = |switch: &mut Switch<KeptCore>, number, between: [u64; 2]| {
        assert!(switch.connect(Party::Client(between[0]), end(number, false)));
        assert!(switch.connect(Party::Client(between[1]), end(number, true)));
    };
    connect(&mut switch, 1, [1, 2]);
    connect(&mut switch, 2, [3, 4]);
    connect(&mut switch, 3, [1, 3]);
    // The second and the fourth reach each other as anybody does.
    assert!(clients[1].send(0, &frame(mac(2), mac(4), 1, 1, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((clients[3].receive().len(), switch.circuits().count()), (1, 2));
    // Connected anew, and the other way round.
    connect(&mut switch, 4, [3, 1]);
    assert!(switch.circuits().all(|(_, circuit, other)| circuit.number == 4 && other.is_some()));
    // Whoever shares an end with who goes has it from then on.
    assert!(switch.connect(Party::Client(2), end(4, true)) && switch.connect(Party::Client(1), None));
    let found = switch.circuits().find(|(party, ..)| *party == Party::Client(3)).expect("it is connected");
    assert_eq!(found.2, Some(Party::Client(2)));
}

fn pin(text: &str, queue: Option<u32>) -> Pin {
    Pin { pattern: text.parse().expect(text), queue }
}

#[test]
fn a_pinned_flow_goes_to_its_client_and_queue_and_no_other_does() {
    let outside = Outside::default();
    let mut switch = bridge(vec![port(&outside, None)]);
    // It has queues 0 to 3.
    let pins = vec![pin("source-port=5", Some(2)), pin("source-port=6", None), pin("source-port=7", Some(4))];
    let mut pinned = Client::attach(&mut switch, Time::ZERO, 1, 4, Rules { pins, ..plain(1) });
    let mut other = Client::attach(&mut switch, Time::ZERO, 2, 1, plain(2));
    let mut queue_of = |switch: &mut Switch<KeptCore>, frame: Vec<u8>| -> Option<usize> {
        outside.give(frame);
        switch.step(Time::ZERO);
        let found = (0..4).find(|&queue| pinned.hosts[queue].has_packets());
        pinned.receive();
        found
    };
    let usual: Vec<_> = (0..4).map(|flow| queue_of(&mut switch, frame(mac(200), mac(1), flow, 1, 100))).collect();
    assert!(usual.iter().any(|queue| *queue != Some(2)), "{usual:?}");
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(1), 5, 1, 100)), Some(2));
    // Also if it is for another, or for a station that nobody knows.
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(2), 5, 1, 100)), Some(2));
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(99), 5, 1, 100)), Some(2));
    assert!(queue_of(&mut switch, frame(mac(200), mac(2), 6, 1, 100)).is_some());
    assert!(queue_of(&mut switch, frame(mac(200), mac(2), 7, 1, 100)).is_some(), "spread: it has no such queue");
    assert_eq!(other.receive().len(), 0);
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(2), 4, 1, 100)), None);
    assert_eq!(other.receive().len(), 1);
    // A broadcast goes to all, and to the queue.
    assert_eq!(queue_of(&mut switch, frame(mac(200), EVERYBODY, 5, 1, 100)), Some(2));
    assert_eq!(other.receive().len(), 1);
    assert!(switch.unpin(1) && switch.pin(1, pin("source-port=1", Some(3))));
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(2), 5, 1, 100)), None);
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(2), 1, 1, 100)), Some(3));
    assert_eq!(switch.pins().count(), 1);
    // Who is in a circuit gets nothing but by that.
    assert!(switch.connect(Party::Client(1), end(0, false)));
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(2), 1, 1, 100)), None);
    assert!(switch.connect(Party::Client(1), None));
    assert_eq!(queue_of(&mut switch, frame(mac(200), mac(2), 1, 1, 100)), Some(3));
}

/// As a program is told where it asks for the NIC's table: of 512 entries, each the queue of its number modulo theirs.
#[test]
fn flows_lie_in_the_queues_that_a_table_of_512_entries_has() {
    let outside = Outside::default();
    let mut switch = bridge(vec![port(&outside, None)]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 3, plain(1));
    for flow in 0..200 {
        let sent = frame(mac(200), mac(1), flow, 1, 100);
        let hash = Toeplitz::default().hash_frame(&sent, Ports::default()).expect("it has a flow");
        outside.give(sent);
        switch.step(Time::ZERO);
        assert!(client.hosts[hash as usize % 512 % 3].has_packets(), "flow {flow}");
        client.receive();
    }
}

#[test]
fn a_pinned_flow_does_not_leave_its_vlan() {
    let outside = Outside::default();
    let mut switch = bridge(vec![port(&outside, None)]);
    let member = |number, vlan| Rules { vlan, ..plain(number) };
    let pins = vec![pin("source-port=5", None)];
    let rules = Rules { pins, promiscuous: true, ..member(1, Some(8)) };
    let mut pinned = Client::attach(&mut switch, Time::ZERO, 1, 1, rules);
    let mut stranger = Client::attach(&mut switch, Time::ZERO, 2, 1, member(2, Some(7)));
    let mut trunk = Client::attach(&mut switch, Time::ZERO, 3, 1, member(3, None));
    // Without a tag, with one of another VLAN, and with its own; as one piece and as several.
    for (vlan, arrives) in [(0, 0), (7, 0), (8, 2)] {
        let plain = frame(mac(3), mac(9), 5, 1, 100);
        let tagged = [&plain[..12], &[0x81, 0, 0, vlan], &plain[12..]].concat();
        let sent = if vlan == 0 { &plain } else { &tagged };
        assert!(trunk.send(0, sent, 1) && trunk.send(0, sent, 2));
        switch.step(Time::ZERO);
        assert_eq!(pinned.receive(), vec![plain; arrives], "VLAN {vlan}");
    }
    assert!(stranger.send(0, &frame(mac(2), mac(9), 5, 1, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!(pinned.receive().len(), 0);
    // In the others it goes where it is addressed to, as if nobody had pinned it.
    stranger.receive();
    let to_stranger = frame(mac(3), mac(2), 5, 2, 100);
    assert!(trunk.send(0, &[&to_stranger[..12], &[0x81, 0, 0, 7], &to_stranger[12..]].concat(), 1));
    switch.step(Time::ZERO);
    assert_eq!((stranger.receive(), pinned.receive().len()), (vec![to_stranger], 0));
    // A pin that names another VLAN is none, and one that names its own is.
    for (vlan, arrives) in [(7, 0), (8, 1)] {
        assert!(switch.unpin(1) && switch.pin(1, pin(&format!("source-port=5,vlan={vlan}"), None)));
        for (number, to) in [(7, 2), (8, 9)] {
            let sent = frame(mac(3), mac(to), 5, 2, 100);
            assert!(trunk.send(0, &[&sent[..12], &[0x81, 0, 0, number], &sent[12..]].concat(), 1));
        }
        outside.take();
        switch.step(Time::ZERO);
        let floods = outside.take().len();
        assert_eq!((stranger.receive().len(), floods), (1, 1 - arrives), "its pin names VLAN {vlan}");
        // Nobody knows station 9: without a pin it is asked for everywhere in its VLAN.
        assert_eq!(pinned.receive().len(), 1);
    }
}

#[test]
fn a_loopback_counts_bytes_and_keeps_limits() {
    let options = SwitchOptions { mode: Mode::Loopback, ..SwitchOptions::default() };
    let mut switch = Switch::new(options, Vec::new());
    let limit = RateLimit { bytes_per_second: 1_000_000, burst_bytes: 10_000 };
    let mut slow = Client::attach(&mut switch, Time::ZERO, 1, 2, Rules { limit: Some(limit), ..plain(1) });
    let mut fast = Client::attach(&mut switch, Time::ZERO, 2, 1, plain(2));
    let (mut bytes, mut others) = ([0; 2], 0);
    for step in 0..20_000u64 {
        for queue in 0..2 {
            while slow.send(queue, &frame(mac(1), mac(9), queue as u16, step, 500), 1 + (step % 2) as usize) {}
        }
        others += u64::from(fast.send(0, &frame(mac(2), mac(9), 1, step, 60), 1));
        switch.step(Time::from_nanoseconds(50_000 * step));
        for got in slow.receive() {
            bytes[usize::from(got[35])] += got.len();
        }
        fast.receive();
    }
    // A second's worth, what may be sent at once, and a burst of the ring that was begun.
    let sum = bytes[0] + bytes[1];
    assert!((1_000_000..1_000_000 + 10_000 + 20_000).contains(&sum), "{bytes:?} bytes in a second");
    assert!(bytes.iter().all(|&one| one > sum / 3), "{bytes:?}: both queues have a share");
    let counted = counters(&switch, 2);
    assert_eq!((counted.sent_frames, counted.sent_bytes), (others, 60 * others));
    assert_eq!((counted.received_frames, counted.received_bytes), (others, 60 * others));
}

#[test]
fn a_loopback_turns_some_bursts_around_and_then_it_is_anothers_turn() {
    let options = SwitchOptions { mode: Mode::Loopback, ..SwitchOptions::default() };
    let mut switch = Switch::new(options, Vec::new());
    let mut clients = [1, 2].map(|number| Client::attach(&mut switch, Time::ZERO, number, 1, plain(number)));
    for (client, frames) in clients.iter_mut().zip([200, 10]) {
        (0..frames).for_each(|number| assert!(client.send(0, &frame(mac(1), mac(9), 1, number, 500), 1)));
    }
    switch.step(Time::ZERO);
    let got = clients.each_mut().map(|client| client.receive().len());
    assert_eq!(got, [4 * 29, 10], "four bursts, as long as room for a slot is left, and whoever has less");
    switch.step(Time::ZERO);
    assert_eq!(clients[0].receive().len(), 200 - 4 * 29);
}

/// Takes so many copies.
struct Few(Arc<Mutex<Vec<Vec<u8>>>>, usize);

impl Mirror for Few {
    fn copy(&mut self, _now: Time, frame: &[u8]) -> bool {
        let mut all = self.0.lock().expect("nobody panicked");
        let room = all.len() < self.1;
        if room {
            all.push(frame.to_vec());
        }
        room
    }
}

#[test]
fn a_mirror_has_what_one_sends_and_gets_and_nothing_waits_for_it() {
    let (outside, copies) = (Outside::default(), Arc::new(Mutex::new(Vec::new())));
    let mut switch = bridge(vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut b = Client::attach(&mut switch, Time::ZERO, 2, 1, plain(2));
    switch.mirror(Party::Client(1), Box::new(Few(Arc::clone(&copies), 3)));
    let sent: Vec<Vec<u8>> = [100, 1500, 9600].map(|length| frame(mac(1), mac(2), 1, 1, length)).into();
    let back: Vec<Vec<u8>> = [90, 200].map(|length| frame(mac(2), mac(1), 1, 2, length)).into();
    assert!(a.send(0, &sent[0], 1) && a.send(0, &sent[1], 2) && b.send(0, &back[0], 1));
    // Of others, and so not seen.
    assert!(b.send(0, &frame(mac(2), mac(200), 1, 3, 100), 1));
    outside.give(frame(mac(200), mac(2), 1, 4, 100));
    switch.step(Time::ZERO);
    let seen = copies.lock().expect("nobody panicked").clone();
    assert_eq!(seen.len(), 3, "two that it sent, one that it got");
    assert!(seen.contains(&sent[0]) && seen.contains(&sent[1]) && seen.contains(&back[0]));
    // There is no room for more, and they arrive all the same.
    assert!(a.send(0, &sent[2], 1) && b.send(0, &back[1], 1));
    switch.step(Time::ZERO);
    switch.step(Time::ZERO);
    assert_eq!(a.receive(), back);
    let got = b.receive();
    assert!(sent.iter().all(|one| got.contains(one)), "{} frames", got.len());
    let counters = switch.mirrors().next().expect("it").1;
    assert_eq!((counters.frames, counters.bytes, counters.dropped), (3, 100 + 1500 + 90, 2));
    // Another takes its place.
    switch.mirror(Party::Client(1), Box::new(Few(Arc::clone(&copies), 3)));
    assert_eq!(switch.mirrors().map(|(_, counters)| counters.frames).collect::<Vec<_>>(), [0]);
    assert!(switch.unmirror(Party::Client(1)).is_some() && switch.unmirror(Party::Client(1)).is_none());
    // It goes with its client.
    switch.mirror(Party::Client(2), Box::new(Few(copies, 3)));
    assert!(switch.detach(2).is_some());
    assert_eq!(switch.mirrors().count(), 0);
}

/// A port whose other end wakes only who has asked for it, as a peer over shared memory does.
struct Sleeper(Arc<Flag>, Counters);

impl Port for Sleeper {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        Ok(Receive::None)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        Ok(Transmit::Accepted)
    }
    fn next_due(&self) -> Option<Time> {
        // As `memif` does: until somebody asks to be woken it wants to be looked at.
        (!self.0.is_up()).then_some(Time::ZERO)
    }
    fn counters(&self) -> &Counters {
        &self.1
    }
    fn arm(&mut self) {
        self.0.raise();
    }
}

#[test]
fn ports_are_told_before_a_sleep() {
    let armed = Arc::new(Flag::new());
    let queue = Box::new(Sleeper(Arc::clone(&armed), Counters::default()));
    let mut switch = bridge(vec![SwitchPort { queues: vec![queue], vlan: None, circuit: None }]);
    assert_eq!(switch.next_due(), Some(Time::ZERO), "not to be slept on yet");
    switch.arm();
    assert!(armed.is_up());
    assert_eq!(switch.next_due(), None);
}

#[test]
fn a_short_frame_is_filled_up_with_zeroes_and_not_with_what_another_sent() {
    let mut switch = bridge(Vec::new());
    let mut clients = [1, 2, 3].map(|number| Client::attach(&mut switch, Time::ZERO, number, 1, plain(number)));
    // In two pieces, so that it is put together in the switch's own memory, where the next one will be.
    assert!(clients[0].send(0, &[&mac(2)[..], &mac(1), &[0x5e; 88]].concat(), 2));
    switch.step(Time::ZERO);
    assert_eq!(clients[1].receive().len(), 1);
    let short = [&mac(2)[..], &mac(3), &[8, 0, 1, 2, 3]].concat();
    for segments in [1, 2] {
        assert!(clients[2].send(0, &short, segments));
        switch.step(Time::ZERO);
        let filled = [&short[..], &[0; 60][short.len()..]].concat();
        assert_eq!(clients[1].receive(), [filled], "in {segments} pieces");
    }
}
