//! A death at every memory operation of an exchange, of either side.
//!
//! | the survivor | must |
//! |---|---|
//! | the NIC | receive, whole and in order, what the dead host had published, and nothing else; not hang; make the pool whole; serve a new host |
//! | the host | receive, whole and in order, what the dead NIC had delivered, and nothing else; not hang; make the pool whole, apart from what the application holds; go on with a new NIC |

use std::collections::VecDeque;

use conic_check::{Outcome, for_every_death, run_until_death};
use conic_fabric::{Address, Core};
use conic_interface::ccnic::{Descriptor, Features, Flags, Map, Packing, Signal};

use crate::common::*;
use crate::erased::{BoxedHost, BoxedNic, host, nic};
use crate::guard::{Guard, Side};

/// In a descriptor's metadata, beside the sequence number: the second segment of a packet.
const SECOND: u64 = 1 << 32;
/// The same: a packet that was sent in two segments.
const CHAIN: u64 = 1 << 33;

/// The length of a packet, or of a segment.
fn length(metadata: u64) -> u16 {
    match metadata {
        second if second & SECOND != 0 => 40,
        number if number % 7 == 3 => 200,
        number => 16 + (number % 5 * 20) as u16,
    }
}

/// The application and its host.
struct Application {
    host: BoxedHost<Guard>,
    sent: u64,
    received: u64,
    /// Written, and not taken by the ring yet.
    pending: Vec<Descriptor>,
    /// Buffers of packets received last, not freed yet.
    kept: VecDeque<Address>,
    /// Second segments in flight, which are the application's.
    retained: VecDeque<Address>,
    objects: Address,
}

impl Application {
    fn new(host: BoxedHost<Guard>, map: &Map, first: u64) -> Application {
        let objects = map.pool.objects;
        let (pending, kept, retained) = Default::default();
        Application { host, sent: first, received: first, pending, kept, retained, objects }
    }

    /// Every buffer that the application holds.
    fn held(&self) -> Vec<Address> {
        let in_pool = |at: &Address| *at < self.objects;
        let pending = self.pending.iter().filter(|one| !one.has(Flags::RETAIN)).map(|one| one.address());
        self.kept.iter().copied().chain(self.retained.iter().copied().filter(in_pool)).chain(pending).collect()
    }

    /// A first segment and a second one, which is retained: of the pool, or an object.
    fn chain(&mut self) -> Option<[Descriptor; 2]> {
        let number = self.sent;
        let header = packet(&mut *self.host, number, length(number))?;
        let from_pool = number.is_multiple_of(2);
        let object = if from_pool {
            packet(&mut *self.host, number | SECOND, length(SECOND)).map(|segment| segment.address())
        } else {
            Some(self.objects + 64 * (number % 32))
        };
        let Some(object) = object else {
            self.host.buf_free(&[header.address()]);
            return None;
        };
        write(self.host.core(), object, number | SECOND, length(SECOND));
        self.retained.push_back(object);
        let second = Descriptor::new(object, length(SECOND)).with(Flags::RETAIN).with_metadata(number | SECOND);
        Some([header.with_metadata(number).with(Flags::NEXT), second])
    }

    fn complete(&mut self) {
        let mut done = [Descriptor::BLANK; 8];
        let count = self.host.completions(&mut done);
        for segment in &done[..count] {
            let first = self.retained.pop_front().expect("no more come back than were retained");
            assert_eq!(segment.address(), first, "completions are out of order");
            // The application's again: it may write it, and the NIC must not read it any more.
            write(self.host.core(), first, u64::MAX - 7, 40);
            if first < self.objects {
                self.host.buf_free(&[first]);
            }
        }
    }

    /// Sends a group, one alone, or two segments.
    fn send(&mut self, round: u64) {
        self.complete();
        if self.pending.is_empty() {
            match round % 3 {
                2 => {
                    if let Some(chain) = self.chain() {
                        self.pending.extend(chain);
                        self.sent += 1;
                    }
                }
                kind => {
                    for _ in 0..[3, 1][kind as usize] {
                        let Some(one) = packet(&mut *self.host, self.sent, length(self.sent)) else { break };
                        self.pending.push(one.with_metadata(self.sent));
                        self.sent += 1;
                    }
                }
            }
        }
        let taken = self.host.tx_burst(&self.pending);
        self.pending.drain(..taken);
    }

    /// Receives what is there, checks it, and frees what came before.
    fn receive(&mut self) -> usize {
        let mut out = [Descriptor::BLANK; 5];
        let count = self.host.rx_burst(&mut out);
        for one in &out[..count] {
            let number = one.metadata & !CHAIN;
            assert_eq!(number, self.received, "the host received out of order, or twice");
            let core = self.host.core();
            verify(core, one.address(), number, length(number));
            if one.metadata & CHAIN != 0 {
                let first = u64::from(length(number));
                verify(core, one.address() + first, number | SECOND, length(SECOND));
            }
            self.received += 1;
            self.kept.push_back(one.address());
        }
        while self.kept.len() > 2 {
            let oldest = self.kept.pop_front().expect("more than two");
            self.host.buf_free(&[oldest]);
        }
        count
    }
}

/// The NIC, as a wire that checks what it reads.
struct Card {
    nic: BoxedNic<Guard>,
    next: u64,
}

impl Card {
    /// Polls, checks every packet, turns it around if `deliver`, and returns how many there were.
    fn step(&mut self, deliver: bool) -> usize {
        if deliver && self.nic.rx_room(8) < 8 {
            return 0;
        }
        let mut polled = [Descriptor::BLANK; 8];
        let count = self.nic.poll_tx(&mut polled);
        let mut delivered = Vec::new();
        for segments in polled[..count].chunk_by(|before, _| before.has(Flags::NEXT)) {
            let number = segments[0].metadata;
            assert_eq!(number, self.next, "the NIC received out of order, or twice");
            self.next += 1;
            let mut bytes = Vec::new();
            for segment in segments {
                assert_eq!(segment.length(), length(segment.metadata));
                verify(self.nic.core(), segment.address(), segment.metadata, segment.length());
                bytes.extend(self::bytes(segment.metadata, segment.length().into()));
            }
            if deliver {
                let chain = if segments.len() > 1 { CHAIN } else { 0 };
                let to = self.nic.rx_alloc(bytes.len() as u64).expect("a pool large enough for the script");
                self.nic.core().write_bytes(to, &bytes);
                delivered.push(Descriptor::new(to, bytes.len() as u16).with_metadata(number | chain));
            }
        }
        assert_eq!(self.nic.rx_burst(&delivered), delivered.len(), "there was room");
        self.nic.complete_tx(&polled[..count]);
        count
    }

    fn assert_clean(&self) {
        assert_eq!(self.nic.faults().total(), 0, "{:?}", self.nic.faults());
    }
}

const ROUNDS: u64 = 15;

fn exchange(application: &mut Application, card: &mut Card) {
    for round in 0..ROUNDS {
        application.send(round);
        if round % 2 == 1 {
            // Twice as much at once, so that the rings fill and wrap.
            application.send(round + 1);
        }
        card.step(true);
        application.receive();
    }
}

/// An exchange that must come to its end.
fn exchange_all(application: &mut Application, card: &mut Card) {
    exchange(application, card);
    let mut rounds = 0;
    while !application.pending.is_empty() || application.received < application.sent {
        let taken = application.host.tx_burst(&application.pending);
        application.pending.drain(..taken);
        card.step(true);
        application.receive();
        rounds += 1;
        assert!(rounds < 100, "the new pair hangs: {} of {}", application.received, application.sent);
    }
    card.step(true);
    application.complete();
    assert!(application.retained.is_empty(), "a retained segment never came back");
    card.assert_clean();
}

fn small() -> conic_interface::ccnic::Geometry {
    geometry(16, [32, 32, 1], 2048)
}

/// Everything is where it must be at the end of an exchange.
fn account(mut application: Application, mut card: Card, map: &Map, memory: &conic_check::CrashMemory) {
    application.host.drain();
    card.nic.drain();
    if map.features.shared_pool {
        assert_whole(memory, map, application.held(), [0; 3]);
    } else {
        // What the host has posted is in the ring, or with the NIC.
        let free: u64 = map.pool.free(&memory.core("accountant")).iter().sum();
        let all: u64 = map.geometry.buffers.iter().sum();
        let held = application.held().len() as u64 + map.geometry.descriptors;
        assert!(free + held >= all, "{} buffers are lost", all - free - held);
    }
    assert_eq!(application.host.faults(), Default::default());
}

fn host_dies(features: Features, n: u64) -> Outcome<()> {
    let (map, memory) = world(features, small());
    let core = Guard::new(&memory, &map, "host", Side::Host);
    core.crash().die_at(n);
    let mut card = Card { nic: nic(features, Guard::new(&memory, &map, "nic", Side::Nic), &map, 0), next: 0 };
    let outcome = run_until_death(|| {
        let mut application = Application::new(host(features, core, &map, 0), &map, 0);
        exchange(&mut application, &mut card);
    });
    let mut polls = 0;
    while card.step(false) > 0 {
        polls += 1;
        assert!(polls < 100, "the NIC receives for ever");
    }
    card.assert_clean();
    card.nic.core().allow_anything(true);
    let (recovered, _) = card.nic.recover(&map, 0, &[]);
    recovered.core().allow_anything(false);
    assert_whole(&memory, &map, [], recovered.allocator().held());
    let mut card = Card { nic: recovered, next: 1000 };
    let successor = host(features, Guard::new(&memory, &map, "successor", Side::Host), &map, 0);
    let mut application = Application::new(successor, &map, 1000);
    exchange_all(&mut application, &mut card);
    account(application, card, &map, &memory);
    outcome
}

fn nic_dies(features: Features, n: u64) -> Outcome<()> {
    let (map, memory) = world(features, small());
    let core = Guard::new(&memory, &map, "nic", Side::Nic);
    core.crash().die_at(n);
    let host = host(features, Guard::new(&memory, &map, "host", Side::Host), &map, 0);
    let mut application = Application::new(host, &map, 0);
    let outcome = run_until_death(|| {
        let mut card = Card { nic: nic(features, core, &map, 0), next: 0 };
        exchange(&mut application, &mut card);
    });
    let mut receives = 0;
    while application.receive() > 0 {
        receives += 1;
        assert!(receives < 100, "the host receives for ever");
    }
    application.complete();
    let held = application.held();
    let Application { host, pending, kept, retained, objects, .. } = application;
    assert_eq!(host.faults(), Default::default());
    host.core().allow_anything(true);
    let (recovered, _) = host.recover(&map, 0, &held);
    recovered.core().allow_anything(false);
    if features.shared_pool {
        assert_whole(&memory, &map, held.iter().copied(), recovered.allocator().held());
    }
    // What was retained comes back by no completion, and what was never sent need not be.
    let mut application = Application::new(recovered, &map, 1000);
    let unsent = pending.iter().filter(|one| !one.has(Flags::RETAIN)).map(|one| one.address());
    let given_up: Vec<_> = retained.into_iter().filter(|&at| at < objects).chain(unsent).collect();
    application.host.buf_free(&given_up);
    application.kept = kept;
    let successor = nic(features, Guard::new(&memory, &map, "successor", Side::Nic), &map, 0);
    let mut card = Card { nic: successor, next: 1000 };
    exchange_all(&mut application, &mut card);
    account(application, card, &map, &memory);
    outcome
}

/// Every death of either side with some features; prints and returns how many.
fn deaths(features: Features) -> u64 {
    let of_host = for_every_death(|n| host_dies(features, n));
    let of_nic = for_every_death(|n| nic_dies(features, n));
    println!("{features}: {of_host} deaths of the host, {of_nic} of the NIC");
    assert!(of_host > 500 && of_nic > 500, "the script has shrunk");
    of_host + of_nic
}

fn all_deaths(features: impl IntoIterator<Item = Features>) {
    let points: u64 = features.into_iter().map(deaths).sum();
    println!("{points} deaths in all");
    assert!(points > 7000, "the script has shrunk");
}

#[test]
fn of_the_paper_and_its_ablations() {
    let paper = Features::paper();
    all_deaths([
        paper,
        Features { whole_line: false, ..paper },
        Features { recycling: false, ..paper },
        Features { scattered: false, ..paper },
        Features { small_buffers: false, ..paper },
        Features { shared_pool: false, ..paper },
        Features { inline_payload: true, ..paper },
    ]);
}

#[test]
fn with_phases() {
    let best = Features::best();
    all_deaths([
        best,
        Features { whole_line: false, ..best },
        Features { recycling: false, ..best },
        Features { small_buffers: false, ..best },
        Features { shared_pool: false, ..best },
        Features { packing: Packing::Packed, ..best },
        Features { packing: Packing::Padded, ..best },
    ]);
}

#[test]
fn with_other_packings_and_registers() {
    let paper = Features::paper();
    let registers = Features { signal: Signal::Register, ..paper };
    all_deaths([
        Features { packing: Packing::Packed, ..paper },
        Features { packing: Packing::Padded, inline_payload: true, ..paper },
        Features { packing: Packing::Packed, shared_pool: false, ..paper },
        registers,
        Features { packing: Packing::Packed, ..registers },
        Features { packing: Packing::Padded, whole_line: false, ..registers },
        Features { shared_pool: false, ..registers },
    ]);
}
