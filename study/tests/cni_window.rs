//! The window of section 4.1: a processor blocks at four messages to a node that are not acknowledged, and whoever blocks takes messages in,
//! so that no ring of nodes waits for each other.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Layout, Time};
use conic_interface::cni::endpoint::Buffers;
use conic_interface::cni::{Endpoint, Kind};
use conic_sim::bus::{Attachment, BusCore, BusParameters};
use conic_sim::platform::Platform;
use conic_sim::{Failure, Role};
use conic_study::cni::nodes::{Nodes, Places};

fn nodes(kind: Kind, count: usize) -> Nodes {
    let platform = Platform::<BusParameters>::load_as("hypersparc").unwrap_or_else(|error| panic!("{error}"));
    Nodes { machine: platform.parameters().clone(), attachment: Attachment::MemoryBus, kind, count }
}

/// Where what comes is received to, behind what is sent.
fn back(places: Places) -> Address {
    places.user + 512
}

/// How many messages a node has sent to one that receives none, after so many to one that does.
fn sent_before_blocking(kind: Kind, before: u64) -> [u64; 2] {
    let nodes = nodes(kind, 3);
    let (mut simulation, places) = nodes.build(1024);
    let sent = Rc::new([0, 0].map(Cell::new));
    let into = Rc::clone(&sent);
    nodes.processor(&mut simulation, 0, Role::Service, places, move |_, mut endpoint| {
        for (sent, to, count) in [(&into[0], 2, before), (&into[1], 1, u64::MAX)] {
            for number in 1..=count {
                endpoint.send(to, places.user, 200);
                sent.set(number);
            }
        }
    });
    nodes.processor(&mut simulation, 2, Role::Service, places, move |core, mut endpoint| {
        loop {
            if endpoint.try_receive(back(places)).is_none() {
                core.spin();
            }
        }
    });
    nodes.processor(&mut simulation, 1, Role::Main, places, |core, _| {
        core.spin_until(Time::from_nanoseconds(2_000_000))
    });
    simulation.run().unwrap_or_else(|failure| panic!("{kind}: {failure}"));
    [sent[0].get(), sent[1].get()]
}

#[test]
fn a_processor_blocks_at_four_messages_to_a_node_that_are_not_acknowledged() {
    for kind in Kind::ALL {
        let parameters = nodes(kind, 3).machine;
        // What the other's device has taken and so acknowledged: its FIFO and what it shows, or its queue's slots and one message more.
        let taken = match kind {
            Kind::Ni2w | Kind::Cni4 => u64::from(parameters.device.fifo_messages) + 1,
            Kind::Cni16Q => 4 + 1,
            Kind::Cni512Q | Kind::Cni16Qm => 128 + 1,
        };
        let window = u64::from(parameters.network.window);
        assert_eq!(sent_before_blocking(kind, 50), [50, taken + window], "{kind}");
    }
}

/// Several times what the longest of these scripts takes.
const LIMIT: Time = Time::from_nanoseconds(20_000_000);

/// What a node does, in order: sends to another, or looks for a message.
type Steps = Vec<Option<u16>>;

/// Nodes that send seven times of eight, half of that to the first of the others.
fn script(seed: u64, nodes: u16, steps: u64) -> Vec<Steps> {
    let draw = |node: u16, step: u64| {
        let mixed = (seed << 40 ^ u64::from(node) << 20 ^ step).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        let others = mixed >> 4 & if mixed & 8 == 0 { 0 } else { 3 };
        let to = (others % u64::from(nodes)) as u16;
        (mixed & 7 > 0).then_some(if to == node { (node + 1) % nodes } else { to })
    };
    (0..nodes).map(|node| (0..steps).map(|step| draw(node, step)).collect()).collect()
}

/// A node that follows its steps.
struct Follower<'a> {
    core: BusCore<'a>,
    endpoint: Endpoint<BusCore<'a>>,
    places: Places,
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Follower<'_> {
    fn send(&mut self, to: u16) {
        let number = &mut self.sent[usize::from(to)];
        self.core.store(self.places.user, *number);
        *number += 1;
        self.endpoint.send(to, self.places.user, 200);
    }

    fn look(&mut self) -> bool {
        let Some(found) = self.endpoint.try_receive(back(self.places)) else { return false };
        let number = &mut self.received[usize::from(found.from)];
        assert_eq!(self.core.load(back(self.places)), *number, "messages of node {} come in order", found.from);
        *number += 1;
        true
    }

    fn follow(&mut self, steps: &Steps, expected: &[u64]) {
        for step in steps {
            match step {
                Some(to) => self.send(*to),
                None => drop(self.look()),
            }
        }
        while self.received != expected {
            if !self.look() {
                self.core.spin();
            }
        }
    }
}

/// Lets nodes follow a script, and receive what is left; in `buffers` lies what each takes in, if it is not where it usually does. Gives
/// how many messages were taken in.
fn follow(kind: Kind, script: &[Steps], buffers: Option<Buffers>) -> Result<u64, Failure> {
    let nodes = nodes(kind, script.len());
    let (mut simulation, places) = nodes.build(1024);
    simulation.set_limit(LIMIT);
    let places = Places { buffers: buffers.unwrap_or(places.buffers), ..places };
    let taken_in = Rc::new(Cell::new(0));
    for (node, steps) in script.iter().enumerate() {
        let to_me = |from: &Steps| from.iter().filter(|step| **step == Some(node as u16)).count() as u64;
        let (steps, expected) = (steps.clone(), script.iter().map(to_me).collect::<Vec<u64>>());
        let into = Rc::clone(&taken_in);
        nodes.processor(&mut simulation, node, Role::Main, places, move |core, endpoint| {
            let [sent, received] = [(); 2].map(|()| vec![0; expected.len()]);
            let mut follower = Follower { core: *core, endpoint, places, sent, received };
            follower.follow(&steps, &expected);
            into.set(into.get() + follower.endpoint.buffered());
        });
    }
    simulation.run()?;
    Ok(taken_in.get())
}

#[test]
fn nodes_that_all_send_come_to_an_end_because_who_blocks_takes_messages_in() {
    for kind in Kind::ALL {
        let taken_in = |seed| {
            follow(kind, &script(seed, 4, 80), None).unwrap_or_else(|failure| panic!("{kind}, seed {seed}: {failure}"))
        };
        let taken: u64 = (1..=3).map(taken_in).sum();
        // Of these 128 a node hold what comes, so that nobody has to.
        let holds_all = matches!(kind, Kind::Cni512Q | Kind::Cni16Qm);
        assert!(holds_all || taken > 0, "{kind}: nobody was blocked");
    }
}

#[test]
fn nodes_that_take_nothing_in_while_they_are_blocked_wait_for_each_other() {
    let none = Buffers::place(&mut Layout::new(), 0);
    // As many as fill the longest queues, and not a node's buffers.
    let script = script(1, 2, 280);
    for kind in Kind::ALL {
        assert!(follow(kind, &script, None).is_ok_and(|taken| taken > 0), "{kind}");
        // Where polls are bus transactions, they go on until the time is over.
        let failure = follow(kind, &script, Some(none)).expect_err("who has no buffers cannot go on");
        assert!(matches!(failure, Failure::Deadlock(_) | Failure::TimeLimit(LIMIT)), "{kind}: {failure}");
    }
}
