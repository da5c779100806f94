//! A port whose queues several threads serve is one port: whoever sends to it and whatever comes from it.

use crate::support::clients::{Client, EVERYBODY, Outside, frame, mac, plain, port, port_of};
use crate::support::threads::Threads;
use conic_fabric::Time;
use conic_nicd::switch::{Circuit, Party, Rules, Station};

/// A station behind the port whose queues several threads serve.
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 200];

/// So many threads with a port 0 of several queues, a port 1 of one, and a client on each thread: client `n` on thread `n - 1`.
struct World {
    threads: Threads,
    queues: Vec<Outside>,
    other: Outside,
    clients: Vec<Client>,
}

impl World {
    fn new(count: usize, queues: usize) -> World {
        World::with(count, queues, None, plain)
    }

    fn with(count: usize, queues: usize, vlan: Option<u16>, rules: impl Fn(u64) -> Rules) -> World {
        let (queues, other) = ((0..queues).map(|_| Outside::default()).collect::<Vec<_>>(), Outside::default());
        let ports = vec![port_of(&queues, vlan), port(&other, None)];
        let mut threads = Threads::bridge(count, ports);
        let clients = threads.attach_all(count as u64, 1, rules);
        World { threads, queues, other, clients }
    }

    /// A client sends a frame, and it goes where it goes.
    fn send(&mut self, number: u64, frame: &[u8]) {
        assert!(self.clients[number as usize - 1].send(0, frame, 1));
        self.threads.settle(Time::ZERO);
    }

    /// A frame comes by a queue of the port.
    fn come(&mut self, queue: usize, frame: Vec<u8>) {
        self.queues[queue].give(frame);
        self.threads.settle(Time::ZERO);
    }

    /// Which queues of the port frames have left by.
    fn left(&self) -> Vec<usize> {
        let queues = self.queues.iter().enumerate();
        queues.flat_map(|(queue, outside)| vec![queue; outside.take().len()]).collect()
    }

    /// How many frames each client got.
    fn got(&mut self) -> Vec<usize> {
        self.clients.iter_mut().map(|client| client.receive().len()).collect()
    }

    /// Frames that went from thread to thread.
    fn crossed(&self) -> u64 {
        self.threads.switches.iter().flat_map(|switch| switch.trunks()).map(|(_, counters)| counters.sent_frames).sum()
    }
}

#[test]
fn a_frame_for_everybody_leaves_by_one_queue_and_comes_to_each_once() {
    for (count, queues) in (1..=4).flat_map(|count| (1..=5).map(move |queues| (count, queues))) {
        let mut world = World::new(count, queues);
        for number in 1..=count as u64 {
            // To everybody, and to one of whom nobody knows where it is.
            for (flow, to, is_for_all) in [(1, EVERYBODY, true), (2, mac(99), false)] {
                world.send(number, &frame(mac(number), to, flow, number, 300));
                let left = world.left();
                assert_eq!((left.len(), world.other.take().len()), (1, 1), "{count} threads, {queues} queues");
                let own = number as usize - 1;
                assert!(own >= queues || left[0] % count == own, "by queue {left:?} from thread {own}");
                let gets = |other| usize::from(other != number && is_for_all);
                let others: Vec<usize> = (1..=count as u64).map(gets).collect();
                assert_eq!(world.got(), others, "{count} threads, {queues} queues, from {number}");
            }
        }
        for queue in 0..queues {
            for (flow, to, copies) in [(1, EVERYBODY, 1), (2, mac(99), 0)] {
                world.come(queue, frame(FAR, to, flow, 1, 300));
                assert_eq!((world.left(), world.other.take().len()), (vec![], 1), "{count} threads, queue {queue}");
                assert_eq!(world.got(), vec![copies; count], "{count} threads, queue {queue} of {queues}");
            }
        }
        world.other.give(frame(mac(201), EVERYBODY, 1, 1, 300));
        world.threads.settle(Time::ZERO);
        assert_eq!((world.left().len(), world.other.take().len()), (1, 0), "{count} threads, {queues} queues");
        assert_eq!(world.got(), vec![1; count]);
    }
}

#[test]
fn a_station_is_behind_the_own_part_of_each_thread_whichever_heard_it() {
    let mut world = World::new(3, 3);
    // It speaks to a client of the first thread, and the others are told.
    world.come(0, frame(FAR, mac(1), 1, 1, 100));
    assert_eq!(world.got(), [1, 0, 0]);
    for number in 1..=3 {
        world.send(number, &frame(mac(number), FAR, 1, number, 100));
        assert_eq!(world.left(), [number as usize - 1]);
    }
    assert_eq!((world.crossed(), world.other.take().len()), (0, 0));
    // Its answers come by whatever queue, and change nothing.
    for (queue, number) in (0..3).flat_map(|queue| (1..=3).map(move |number| (queue, number))) {
        world.come(queue, frame(FAR, mac(number), 1, number, 100));
        world.send(number, &frame(mac(number), FAR, 1, number, 100));
        assert_eq!(world.left(), [number as usize - 1]);
    }
    assert_eq!((world.crossed(), world.got()), (6, vec![3; 3]));
}

#[test]
fn a_thread_without_a_part_has_one_way_to_the_port() {
    let mut world = World::new(4, 2);
    for queue in [0, 1, 0] {
        world.come(queue, frame(FAR, mac(3), 1, 1, 100));
        for number in [3, 4] {
            let before = world.crossed();
            world.send(number, &frame(mac(number), FAR, 1, number, 100));
            // Threads 2 and 3 are as far behind the port's first as 0 and 1.
            assert_eq!((world.left(), world.crossed() - before), (vec![number as usize - 3], 1));
        }
    }
}

#[test]
fn who_was_forgotten_is_asked_for_once_and_leaves_once() {
    let mut world = World::new(2, 2);
    world.come(0, frame(FAR, mac(1), 1, 1, 100));
    // The first thread hears of it again, the second does not.
    let late = Time::from_nanoseconds(200_000_000_000);
    world.queues[0].give(frame(FAR, mac(1), 1, 2, 100));
    world.threads.settle(late);
    let later = late + Time::from_nanoseconds(150_000_000_000);
    let known = |world: &World| {
        let find = |thread: usize| world.threads.switches[thread].table().find(later, Station::new(FAR, 0));
        [find(0).is_some(), find(1).is_some()]
    };
    assert_eq!(known(&world), [true, false]);
    for number in 3..6 {
        assert!(world.clients[1].send(0, &frame(mac(2), FAR, 1, number, 100), 1));
        world.threads.settle(later);
        assert_eq!(world.left(), [1], "each by the part of its sender's thread");
    }
    assert_eq!((world.threads.trunk(1, 0).sent_frames, known(&world)), (1, [true, true]));
}

#[test]
fn nothing_goes_back_out_of_the_port_it_came_from() {
    let mut world = World::new(2, 2);
    let (one, other) = (FAR, mac(201));
    world.come(0, frame(one, mac(1), 1, 1, 100));
    world.come(1, frame(other, mac(2), 1, 1, 100));
    world.got();
    let crossed = world.crossed();
    // Two that are both behind it speak to each other, by either queue.
    for queue in 0..2 {
        world.come(queue, frame(one, other, 1, 2, 100));
        world.come(queue, frame(other, one, 1, 2, 100));
    }
    assert_eq!((world.left(), world.other.take().len(), world.got()), (vec![], 0, vec![0, 0]));
    assert_eq!((world.threads.first_port().switch.dropped_no_way, world.crossed()), (4, crossed));
}

#[test]
fn nor_does_it_where_the_thread_that_has_it_did_not_know_yet_who_had_moved_there() {
    let mut world = World::new(2, 2);
    let moving = mac(201);
    // Behind the other port, which the second thread has, and both know it.
    world.other.give(frame(moving, mac(2), 1, 1, 100));
    world.threads.settle(Time::ZERO);
    world.got();
    // It has moved to the first port, of which the second thread hears before what the first thread sends there after it.
    world.queues[0].give(frame(FAR, moving, 1, 2, 100));
    world.queues[1].give(frame(moving, mac(2), 1, 3, 100));
    world.threads.settle(Time::ZERO);
    assert_eq!((world.left(), world.other.take().len(), world.got()), (vec![], 0, vec![0, 1]));
    assert_eq!((world.threads.trunk(0, 1).sent_frames, world.threads.trunk(1, 0).dropped_no_way), (1, 1));
}

#[test]
fn a_station_that_moves_is_known_to_all_where_it_is_now() {
    let mut world = World::new(2, 2);
    for round in 0..4 {
        world.come(round % 2, frame(FAR, mac(1), 1, 1, 100));
        for number in 1..=2 {
            world.send(number, &frame(mac(number), FAR, 1, 2, 100));
            assert_eq!((world.left(), world.other.take().len()), (vec![number as usize - 1], 0));
        }
        // To the port of the second thread, where again one alone hears of it.
        world.other.give(frame(FAR, mac(2), 1, 3, 100));
        world.threads.settle(Time::ZERO);
        for number in 1..=2 {
            world.send(number, &frame(mac(number), FAR, 1, 4, 100));
            assert_eq!((world.left(), world.other.take().len()), (vec![], 1));
        }
    }
}

#[test]
fn a_port_is_a_member_of_its_vlan_on_every_thread() {
    // Client 1 is of its VLAN, client 2 of another, client 3 passes tags, and so does the other port.
    let vlan = |number| [Some(7), Some(8), None][number as usize - 1];
    let mut world = World::with(3, 3, Some(7), |number| Rules { vlan: vlan(number), ..plain(number) });
    let tagged = |frame: &[u8], vlan| [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat();
    for queue in 0..3 {
        let sent = frame(FAR, EVERYBODY, 1, 1, 100);
        world.come(queue, sent.clone());
        let [one, two, three] = [0, 1, 2].map(|client: usize| world.clients[client].receive());
        assert_eq!((one, two, three), (vec![sent.clone()], vec![], vec![tagged(&sent, 7)]));
        assert_eq!((world.other.take(), world.left()), (vec![tagged(&sent, 7)], vec![]));
        // A member may send no tags.
        world.come(queue, tagged(&sent, 7));
        assert_eq!(world.got(), [0, 0, 0]);
    }
    assert_eq!(world.threads.first_port().switch.dropped_vlan, 3);
    let sent = frame(mac(3), EVERYBODY, 1, 1, 100);
    for (vlan, count) in [(7, 1), (8, 0)] {
        world.send(3, &tagged(&sent, vlan));
        let left: Vec<Vec<u8>> = world.queues.iter().flat_map(Outside::take).collect();
        assert_eq!(left, vec![sent.clone(); count], "without its tag, and only of its VLAN");
    }
}

#[test]
fn circuits_join_all_parts_of_a_port_with_one_end() {
    let end = |number, far| Some(Circuit { number, far });
    // With a client of the second thread: whatever comes goes to it, and what it sends leaves by its thread's part.
    let mut world = World::new(3, 3);
    assert!(
        world.threads.connect(Party::Port(0), end(1, false)) && world.threads.connect(Party::Client(2), end(1, true))
    );
    for queue in 0..3 {
        world.come(queue, frame(FAR, mac(1), 1, 1, 100));
        assert_eq!((world.got(), world.left()), (vec![0, 1, 0], vec![]));
    }
    world.send(2, &frame(mac(2), mac(1), 1, 1, 100));
    world.send(1, &frame(mac(1), EVERYBODY, 1, 1, 100));
    assert_eq!((world.left(), world.other.take().len(), world.got()), (vec![1], 1, vec![0, 0, 1]));
    for (index, switch) in world.threads.switches.iter().enumerate() {
        let port = switch.circuits().find(|(party, ..)| *party == Party::Port(0));
        assert_eq!(port, Some((Party::Port(0), Circuit { number: 1, far: false }, Some(Party::Client(2)))), "{index}");
    }
    // With the other port, which is on the second thread.
    assert!(world.threads.connect(Party::Client(2), None) && world.threads.connect(Party::Port(1), end(1, true)));
    for queue in 0..3 {
        world.come(queue, frame(FAR, mac(1), 1, 2, 100));
        assert_eq!((world.other.take().len(), world.left(), world.got()), (1, vec![], vec![0, 0, 0]));
    }
    world.other.give(frame(mac(201), mac(1), 1, 3, 100));
    world.threads.settle(Time::ZERO);
    assert_eq!(world.left(), [1]);
    assert!(world.threads.connect(Party::Port(0), None) && world.threads.connect(Party::Port(1), None));
    world.come(2, frame(FAR, mac(1), 1, 4, 100));
    assert_eq!(world.got(), [1, 0, 0]);
}

#[test]
fn a_client_of_a_thread_without_a_part_is_in_a_circuit_with_a_port() {
    let mut world = World::new(3, 2);
    let end = |far| Some(Circuit { number: 1, far });
    assert!(world.threads.connect(Party::Port(0), end(false)) && world.threads.connect(Party::Client(3), end(true)));
    for queue in 0..2 {
        world.come(queue, frame(FAR, mac(1), 1, 1, 100));
        assert_eq!((world.got(), world.left()), (vec![0, 0, 1], vec![]));
        world.send(3, &frame(mac(3), mac(1), 1, 1, 100));
        assert_eq!((world.left(), world.got()), (vec![0], vec![0, 0, 0]));
    }
}

#[test]
fn two_ports_of_several_queues_in_a_circuit_need_no_other_thread() {
    let (near, far): ([Outside; 2], [Outside; 2]) = Default::default();
    let end = |far| Some(Circuit { number: 1, far });
    let mut ports = vec![port_of(&near, None), port_of(&far, None)];
    (ports[0].circuit, ports[1].circuit) = (end(false), end(true));
    let mut threads = Threads::bridge(2, ports);
    for (from, to) in [(&near, &far), (&far, &near)] {
        for (number, queue) in from.iter().enumerate() {
            let sent = frame(FAR, EVERYBODY, 1, number as u64, 100);
            queue.give(sent.clone());
            threads.settle(Time::ZERO);
            let left: Vec<Vec<u8>> = to.iter().flat_map(Outside::take).collect();
            assert_eq!(left, [sent]);
        }
    }
    assert_eq!((threads.trunk(0, 1).sent_frames, threads.trunk(1, 0).sent_frames), (0, 0));
}

#[test]
fn a_part_that_is_inherited_is_served_and_one_that_is_given_is_not() {
    let mut world = World::new(2, 4);
    // Nothing of them can be passed on, but they are used no more.
    for switch in &mut world.threads.switches {
        assert!(switch.bequeath(0).is_empty());
    }
    world.queues[3].give(frame(FAR, mac(1), 1, 1, 100));
    world.threads.settle(Time::ZERO);
    assert_eq!(world.got(), [0, 0]);
    let queues = port_of(&world.queues, None).queues;
    for (thread, part) in conic_nicd::switch::Parts::new(0, 4, 2).deal(queues) {
        world.threads.switches[thread].inherit(0, part);
    }
    world.threads.settle(Time::ZERO);
    assert_eq!(world.got(), [1, 0]);
    world.send(2, &frame(mac(2), FAR, 1, 1, 100));
    assert!(matches!(world.left()[..], [1 | 3]), "by the part of its thread");
}

/// As where another daemon was to go on with them, and did not.
#[test]
fn queues_that_gave_nothing_are_used_again_as_they_are() {
    let mut world = World::new(2, 4);
    for switch in &mut world.threads.switches {
        assert!(switch.bequeath(0).is_empty());
    }
    world.queues[3].give(frame(FAR, mac(1), 1, 1, 100));
    world.threads.settle(Time::ZERO);
    assert_eq!(world.got(), [0, 0]);
    for switch in &mut world.threads.switches {
        switch.take_back(0);
    }
    world.threads.settle(Time::ZERO);
    assert_eq!(world.got(), [1, 0]);
    world.send(2, &frame(mac(2), FAR, 1, 1, 100));
    assert!(matches!(world.left()[..], [1 | 3]), "by the part of its thread");
    // There is nothing to take back any more, and nothing to close.
    for switch in &mut world.threads.switches {
        assert!(switch.take_bequeathed(0).is_empty());
        switch.take_back(0);
    }
    world.queues[3].give(frame(FAR, mac(1), 1, 2, 100));
    world.threads.settle(Time::ZERO);
    assert_eq!(world.got(), [1, 0]);
}
