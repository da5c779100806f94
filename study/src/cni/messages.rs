//! Messages between the user's buffers of two nodes: round trips, and as many as go (CNI section 5.1).

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Time};
use conic_interface::cni::{Endpoint, MOST_PAYLOAD};
use conic_sim::bus::{BusCore, Counters};
use conic_sim::{Failure, Role};

use super::nodes::Nodes;
use crate::coherent_pio::percentile;

/// How many messages, and how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Between which nodes: the first sends first.
    pub nodes: Nodes,
    /// Bytes of a message, as the user sees it.
    pub bytes: u64,
    /// Messages that go before, and messages that count.
    pub messages: (u64, u64),
}

/// What round trips took.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTrips {
    /// Their median, in nanoseconds.
    pub median: f64,
    /// What the first node's buses carried for them.
    pub counters: Counters,
}

/// Bytes that a buffer of the user's has behind the longest message: the last part of a message is received whole.
const SLACK: u64 = 256;

impl Traffic {
    /// Where the user's second buffer begins, behind the first.
    fn second(&self) -> u64 {
        (self.bytes + SLACK).next_multiple_of(64)
    }
}

/// The `index`-th word of the `number`-th message.
fn word(number: u64, index: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index)
}

/// Changes the message's first word in its buffer; the rest stays, in the cache as the paper has it.
fn writes(core: &BusCore<'_>, at: Address, number: u64) {
    core.store(at, word(number, 0));
}

/// Fills a buffer, once.
fn fills(core: &BusCore<'_>, at: Address, bytes: u64) {
    (0..bytes.div_ceil(8)).for_each(|index| core.store(at.word(index as usize), word(1, index)));
}

/// Receives a message of `bytes` bytes: its parts come in order.
fn receives(endpoint: &mut Endpoint<BusCore<'_>>, into: Address, bytes: u64) {
    let mut done = 0;
    loop {
        if let Some(received) = endpoint.try_receive(into + done) {
            assert_eq!(received.bytes, (bytes - done).min(MOST_PAYLOAD), "a part of another length");
            done += received.bytes;
            if done == bytes {
                return;
            }
        } else {
            endpoint.core().spin();
        }
    }
}

/// Looks whether what was received is what was sent: the run's own check, after it was measured.
fn checks(core: &BusCore<'_>, at: Address, bytes: u64, number: u64) {
    let mut found = vec![0; bytes as usize];
    core.read_bytes(at, &mut found);
    for (index, part) in (0..).zip(found.chunks(8)) {
        let sent = word(if index == 0 { number } else { 1 }, index).to_ne_bytes();
        assert_eq!(part, &sent[..part.len()], "word {index} of message {number}");
    }
}

/// Round trips, one after the other.
///
/// # Errors
///
/// The simulator's.
pub fn round_trips(traffic: &Traffic) -> Result<RoundTrips, Failure> {
    let (mut simulation, places) = traffic.nodes.build(2 * traffic.second());
    let found = Rc::new(RefCell::new((Vec::new(), Counters::default())));
    let (into, asked) = (Rc::clone(&found), traffic.clone());
    let (bytes, out, back) = (traffic.bytes, places.user, places.user + traffic.second());
    traffic.nodes.processor(&mut simulation, 0, Role::Main, places, move |core, mut endpoint| {
        fills(core, out, bytes);
        let (warm, counting) = asked.messages;
        let mut before = Counters::default();
        for number in 0..warm + counting {
            if number == warm {
                before = core.machine().borrow().counters[0].clone();
            }
            writes(core, out, number);
            let begins = core.now();
            endpoint.send(1, out, bytes);
            receives(&mut endpoint, back, bytes);
            if number >= warm {
                into.borrow_mut().0.push(core.now().since(begins).picoseconds());
            }
        }
        into.borrow_mut().1 = core.machine().borrow().counters[0].since(&before);
        checks(core, back, bytes, warm + counting - 1);
    });
    traffic.nodes.processor(&mut simulation, 1, Role::Service, places, move |_, mut endpoint| {
        loop {
            receives(&mut endpoint, back, bytes);
            endpoint.send(0, back, bytes);
        }
    });
    simulation.run()?;
    let (latencies, counters) = found.take();
    Ok(RoundTrips { median: percentile(&latencies, 0.5), counters })
}

/// What a stream brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Millions of bytes a second that arrived in the receiver's buffer.
    pub megabytes: f64,
    /// What the receiver's buses carried meanwhile.
    pub counters: Counters,
}

/// Messages one way, as fast as they go.
///
/// # Errors
///
/// The simulator's.
pub fn stream(traffic: &Traffic) -> Result<Stream, Failure> {
    let (mut simulation, places) = traffic.nodes.build(2 * traffic.second());
    let found = Rc::new(RefCell::new(None));
    let into = Rc::clone(&found);
    let (bytes, out, back) = (traffic.bytes, places.user, places.user + traffic.second());
    let (warm, counting) = traffic.messages;
    traffic.nodes.processor(&mut simulation, 0, Role::Service, places, move |core, mut endpoint| {
        fills(core, out, bytes);
        for number in 0.. {
            writes(core, out, number);
            endpoint.send(1, out, bytes);
        }
    });
    traffic.nodes.processor(&mut simulation, 1, Role::Main, places, move |core, mut endpoint| {
        let counters = |core: &BusCore<'_>| core.machine().borrow().counters[1].clone();
        let (mut begins, mut before) = (Time::ZERO, Counters::default());
        for number in 0..warm + counting {
            if number == warm {
                (begins, before) = (core.now(), counters(core));
            }
            receives(&mut endpoint, back, bytes);
        }
        let took = core.now().since(begins).picoseconds() as f64;
        let megabytes = 1e6 * (bytes * counting) as f64 / took;
        into.replace(Some(Stream { megabytes, counters: counters(core).since(&before) }));
        checks(core, back, bytes, warm + counting - 1);
    });
    simulation.run()?;
    Ok(found.take().expect("the receiver ended with it"))
}
