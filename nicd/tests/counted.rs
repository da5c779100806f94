//! What a switch counts: each frame that passes with its bytes, and each that does not, by its reason.

use crate::support::clients::{Client, Fault, Outside, down, frame, mac, plain, port};
use conic_fabric::{Address, Time};
use conic_interface::ccnic::Descriptor;
use conic_native::KeptCore;
use conic_nicd::switch::{MemberCounters, Mode, Switch, SwitchOptions, SwitchPort};
use conic_port::{Counters, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};

fn counters(switch: &Switch<KeptCore>, session: u64) -> MemberCounters {
    switch.clients().find(|(own, ..)| *own == session).expect("a client").1
}

#[test]
fn what_passes_is_counted_with_its_bytes_for_sender_and_receiver() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut b = Client::attach(&mut switch, Time::ZERO, 2, 1, plain(2));
    // In one piece, put together, and from outside.
    for (number, (length, segments)) in [(60, 1), (1500, 1), (9600, 1), (900, 3)].into_iter().enumerate() {
        assert!(a.send(0, &frame(mac(1), mac(2), 1, number as u64, length), segments));
        switch.step(Time::ZERO);
    }
    outside.give(frame(mac(200), mac(2), 1, 9, 70));
    switch.step(Time::ZERO);
    assert_eq!(b.receive().len(), 5);
    let expected = MemberCounters { sent_frames: 4, sent_bytes: 12_060, ..MemberCounters::default() };
    assert_eq!(counters(&switch, 1), expected);
    let expected = MemberCounters { received_frames: 5, received_bytes: 12_130, ..MemberCounters::default() };
    assert_eq!(counters(&switch, 2), expected);
}

#[test]
fn frames_shorter_than_their_header_and_longer_than_the_longest_are_counted_and_go_nowhere() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let whole = frame(mac(1), mac(9), 1, 1, MAX_FRAME + 1);
    let cases =
        [(13, 1, 0), (14, 1, MIN_FRAME), (MAX_FRAME, 1, MAX_FRAME), (MAX_FRAME + 1, 1, 0), (MAX_FRAME + 1, 2, 0)];
    let mut dropped = 0;
    for (length, segments, arrives) in cases {
        assert!(a.send(0, &whole[..length], segments));
        switch.step(Time::ZERO);
        let lengths: Vec<usize> = outside.take().iter().map(Vec::len).collect();
        let expected = if arrives == 0 { Vec::new() } else { vec![arrives] };
        assert_eq!(lengths, expected, "{length} bytes in {segments}");
        dropped += u64::from(arrives == 0);
        assert_eq!(counters(&switch, 1).dropped_length, dropped);
    }
    assert_eq!(counters(&switch, 1).sent_frames, 2);
}

#[test]
fn a_full_ring_and_a_pool_without_buffers_are_counted_apart() {
    let outside = Outside::default();
    let mut switch: Switch<KeptCore> = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 4, plain(1));
    let flood = |switch: &mut Switch<KeptCore>, length: usize, frames: u64| {
        for number in 0..frames {
            outside.give(frame(mac(200), mac(1), 1, number, length));
        }
        (0..frames / 32 + 1).for_each(|_| _ = switch.step(Time::ZERO));
    };
    // There are fewer jumbo buffers than places in the ring, all of them the client's.
    let mut at = [Address(0)];
    let held: Vec<Address> =
        std::iter::from_fn(|| (a.hosts[0].buf_alloc(9000, &mut at) == 1).then_some(at[0])).collect();
    flood(&mut switch, 9000, 40);
    let counted = counters(&switch, 1);
    assert_eq!((counted.dropped_full, counted.received_frames + counted.dropped_no_buffer), (0, 40));
    assert!(counted.dropped_no_buffer > 30, "{counted:?}");
    a.hosts[0].buf_free(&held);
    a.receive();
    // More small frames of one flow than its ring has places, and buffers for all of them.
    let before = counters(&switch, 1);
    flood(&mut switch, 100, 2000);
    let counted = counters(&switch, 1);
    assert_eq!(counted.dropped_no_buffer, before.dropped_no_buffer);
    assert!(counted.dropped_full > 900, "{counted:?}");
    assert_eq!(counted.dropped_full + counted.received_frames - before.received_frames, 2000);
}

#[test]
fn a_port_whose_queues_never_came_has_failed_to_send() {
    let missing = SwitchPort { queues: Vec::new(), vlan: None, circuit: None };
    let mut switch: Switch<KeptCore> = Switch::new(SwitchOptions::default(), vec![missing]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    assert!(a.send(0, &frame(mac(1), mac(200), 1, 1, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!(switch.ports().next().expect("it").switch.dropped_failed, 1);
}

#[test]
fn a_loopback_counts_what_no_buffer_of_the_client_holds() {
    let options = SwitchOptions { mode: Mode::Loopback, ..SwitchOptions::default() };
    let mut switch = Switch::new(options, Vec::new());
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    assert!(a.send(0, &[7; 20_000], 2) && a.send(0, &[7; 100], 1));
    switch.step(Time::ZERO);
    assert_eq!(a.receive(), [[7; 100]]);
    let counted = counters(&switch, 1);
    assert_eq!((counted.sent_frames, counted.received_frames, counted.dropped_no_buffer), (2, 1, 1));
}

#[test]
fn slots_of_what_is_refused_come_back() {
    let outside = Outside::default();
    // However often it is at fault, it stays.
    let options = SwitchOptions { most_faults: u64::MAX, ..SwitchOptions::default() };
    let mut switch = Switch::new(options, vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let slots = a.map.queues[0].transmit.slots;
    for number in 0..4 * slots {
        let nowhere = Descriptor::new(Address(u64::from(u32::MAX)), 100);
        assert_eq!(a.hosts[0].tx_burst(&[nowhere; 4]), 4, "{number}");
        a.notices.call_if_resting(&a.core, 0);
        switch.step(Time::ZERO);
    }
    assert_eq!(switch.clients().next().expect("it").2.address, 16 * slots);
    assert!(a.send(0, &frame(mac(1), mac(200), 1, 1, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!(outside.take().len(), 1);
}

/// A port from which nothing can be received, again and again, and into which nothing can be sent from then on.
#[derive(Default)]
struct Broken {
    counters: Counters,
    has_failed: bool,
}

impl Port for Broken {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        self.has_failed = true;
        Err(down())
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        if self.has_failed { Err(down()) } else { Ok(Transmit::Accepted) }
    }
    fn next_due(&self) -> Option<Time> {
        Some(Time::ZERO)
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[test]
fn a_port_that_failed_is_named_once_and_not_asked_again() {
    let broken = SwitchPort { queues: vec![Box::new(Broken::default())], vlan: None, circuit: None };
    let mut switch: Switch<KeptCore> = Switch::new(SwitchOptions::default(), vec![broken]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    (0..5).for_each(|_| _ = switch.step(Time::ZERO));
    assert_eq!((switch.take_failures().len(), switch.next_due()), (1, None));
    assert!(client.send(0, &frame(mac(1), mac(200), 1, 1, 100), 1));
    switch.step(Time::ZERO);
    let counted = switch.ports().next().expect("it").switch.dropped_failed;
    assert_eq!((switch.take_failures().len(), counted), (0, 1), "a frame for it is lost, and not a second message");
}

/// Sends so many frames in bursts of 32 while the port has a fault; how many failures are told, and how many frames it failed to send.
fn sends_into(
    (switch, client, outside): (&mut Switch<KeptCore>, &mut Client, &Outside),
    fault: Fault,
    frames: u64,
) -> (usize, u64) {
    outside.set(fault);
    let before = switch.ports().next().expect("it").switch.dropped_failed;
    for number in 0..frames {
        assert!(client.send(0, &frame(mac(1), mac(200), 1, number, 100), 1));
        if number % 32 == 31 || number + 1 == frames {
            switch.step(Time::ZERO);
        }
    }
    (switch.take_failures().len(), switch.ports().next().expect("it").switch.dropped_failed - before)
}

#[test]
fn a_port_that_fails_to_send_is_named_once_until_it_has_sent_again() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut send = |fault, frames| sends_into((&mut switch, &mut a, &outside), fault, frames);
    assert_eq!(send(Fault::Fails, 100), (1, 100));
    assert_eq!(send(Fault::Fails, 100), (0, 100));
    // It failed no more, and sent nothing.
    assert_eq!(send(Fault::Full, 10), (0, 0));
    assert_eq!(send(Fault::Fails, 10), (0, 10));
    assert_eq!(send(Fault::None, 1), (0, 0));
    assert_eq!(send(Fault::Fails, 100), (1, 100));
}

#[test]
fn a_port_that_takes_frames_and_cannot_let_go_of_them_is_named_once() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut send = |fault, frames| sends_into((&mut switch, &mut a, &outside), fault, frames);
    assert_eq!(send(Fault::Holds, 100), (1, 0));
    assert_eq!(send(Fault::Holds, 100), (0, 0));
    assert_eq!(send(Fault::None, 1), (0, 0));
    assert_eq!(send(Fault::Holds, 1), (1, 0));
}

#[test]
fn a_port_counts_for_all_its_queues() {
    let queue = |received_frames| -> Box<dyn Port> {
        let counters = Counters { received_frames, ..Counters::default() };
        Box::new(Broken { counters, ..Broken::default() })
    };
    let two = SwitchPort { queues: vec![queue(3), queue(4)], vlan: None, circuit: None };
    let switch: Switch<KeptCore> = Switch::new(SwitchOptions::default(), vec![two]);
    let own = switch.ports().next().expect("it").own;
    assert_eq!(
        own.iter().filter(|(name, _)| *name == "received_frames").collect::<Vec<_>>(),
        [&("received_frames", 7)]
    );
}
