//! The ring when either side dies before any of its memory operations.
//!
//! The survivor must not hang, must not take a packet that was not there whole, and the host's buffers stay accounted
//! for: the device never owned the pool, so there is nothing to recover in it.

use std::collections::BTreeSet;

use crate::common::bytes;
use conic_check::{CrashCore, CrashMemory, for_every_death, run_until_death};
use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, PlayedByCore, SynchronisingWords};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::Flags;
use conic_interface::ring::{Buffer, Host, Nic, NoBuffer, QueuePair, RxSignal, Shape};

const PACKETS: u64 = 24;
const LENGTH: usize = 100;
/// Bytes of the first segment, where a packet has two.
const HEADER: usize = 30;
/// Bytes from one packet's object to the next one's.
const OBJECT: u64 = 128;

/// What both sides have done so far.
#[derive(Default)]
struct Progress {
    sent: u64,
    looped: u64,
    received: u64,
    /// A packet that the device took and found no buffer for.
    held: Option<Vec<u8>>,
    /// What the device takes packets into.
    into: Vec<u8>,
    /// Where the program has the packets already, if it sends all but their headers from there.
    objects: Option<Address>,
}

impl Progress {
    fn send(&mut self, host: &mut Host<&CrashCore>, burst: u64) {
        if let Some(objects) = self.objects {
            return self.send_segments(host, burst, objects);
        }
        let mut buffers = [Buffer::default(); 4];
        let count = host.buf_alloc(&mut buffers[..burst.min(PACKETS - self.sent) as usize]);
        for (number, buffer) in (self.sent..).zip(&mut buffers[..count]) {
            host.write_packet(buffer, &bytes(number, LENGTH));
        }
        let sent = host.tx_burst(&buffers[..count]);
        host.buf_free(&buffers[sent..count]);
        self.sent += sent as u64;
    }

    /// Sends two packets of three in two segments: a header in a buffer, and the rest, which the program keeps, behind it. So packets
    /// also stand around the ring's end.
    fn send_segments(&mut self, host: &mut Host<&CrashCore>, burst: u64, objects: Address) {
        let mut buffers = [Address(0); 4];
        let wanted = &mut buffers[..burst.min(PACKETS - self.sent) as usize];
        let count = HostQueue::buf_alloc(host, LENGTH as u64, wanted);
        let mut segments = Vec::new();
        for (number, &at) in (self.sent..).zip(&buffers[..count]) {
            let header = if number % 3 == 0 { LENGTH } else { HEADER };
            host.core().write_bytes(at, &bytes(number, LENGTH)[..header]);
            let first = Packet::new(at, header as u16);
            if header == LENGTH {
                segments.push(first);
                continue;
            }
            let rest = objects + number * OBJECT + HEADER as u64;
            segments.push(first.with(Flags::NEXT));
            segments.push(Packet::new(rest, (LENGTH - HEADER) as u16).with(Flags::RETAIN));
        }
        let taken = HostQueue::tx_burst(host, &segments);
        assert!(segments[..taken].last().is_none_or(|last| !last.has(Flags::NEXT)), "half a packet was taken");
        let sent = segments[..taken].iter().filter(|segment| !segment.has(Flags::NEXT)).count();
        HostQueue::buf_free(host, &buffers[sent..count]);
        self.sent += sent as u64;
    }

    fn receive(&mut self, host: &mut Host<&CrashCore>, burst: u64) -> usize {
        let mut buffers = [Buffer::default(); 4];
        let count = host.rx_burst(&mut buffers[..burst as usize]);
        for buffer in &buffers[..count] {
            let mut packet = [0; 128];
            assert_eq!(host.read_packet(buffer, &mut packet), bytes(self.received, LENGTH));
            self.received += 1;
        }
        host.buf_free(&buffers[..count]);
        count
    }

    /// Loops packets back; returns whether anything moved.
    fn loop_back(&mut self, nic: &mut Nic<PlayedByCore<&CrashCore>>, burst: u64) -> bool {
        let before = self.looped;
        for _ in 0..burst {
            if self.held.is_none()
                && nic.poll_tx() != 0
                && let Some(length) = nic.take_tx(&mut self.into)
            {
                assert_eq!(self.into[..length], bytes(self.looped, LENGTH));
                self.held = Some(self.into[..length].to_vec());
            }
            match self.held.take() {
                Some(packet) if nic.rx_push(&packet) == Err(NoBuffer) => self.held = Some(packet),
                Some(_) => self.looped += 1,
                None => break,
            }
        }
        nic.flush() || self.looped != before
    }
}

/// A queue pair and its layout, and where the program has its objects.
fn place(descriptors: u64, rx_signal: RxSignal) -> (QueuePair, Layout, Address) {
    let shape = Shape {
        descriptors,
        buffers: 2 * descriptors,
        buffer_bytes: 128,
        tx_reclaim_threshold: 2,
        rx_refill_threshold: 2,
        rx_signal,
        ..Shape::default()
    };
    let mut layout = Layout::new();
    let queues = shape.place(&mut layout).expect("a shape that can be");
    let objects = layout.add("objects", PACKETS * OBJECT, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    (queues.with_objects(objects, PACKETS * OBJECT), layout, objects)
}

/// Runs the exchange with a death at each operation of one side after the rings were set up.
fn every_death(placed: &(QueuePair, Layout, Address), segments: bool, host_dies: bool, burst: u64) -> u64 {
    let (queues, layout, objects) = placed;
    for_every_death(|n| {
        let memory = CrashMemory::new(layout);
        let (host_core, nic_core) = (memory.core("host"), memory.core("nic"));
        if segments {
            (0..PACKETS).for_each(|number| host_core.write_bytes(*objects + number * OBJECT, &bytes(number, LENGTH)));
        }
        let (mut host, mut nic) = (queues.host(&host_core), queues.nic(PlayedByCore(&nic_core)));
        let victim = if host_dies { &host_core } else { &nic_core };
        victim.die_at(victim.operations() + n);
        let (objects, into) = (segments.then_some(*objects), vec![0; 128]);
        let mut progress = Progress { objects, into, ..Progress::default() };
        let outcome = run_until_death(|| {
            while progress.received < PACKETS {
                progress.send(&mut host, burst);
                progress.loop_back(&mut nic, burst);
                progress.receive(&mut host, burst);
            }
        });
        if host_core.is_dead() {
            // It comes to rest, with no complaint: what a dead host announced is sound.
            while progress.loop_back(&mut nic, burst) {}
            assert_eq!(nic.refusals().by_host(), 0);
            let taken = progress.looped + u64::from(progress.held.is_some());
            assert!((progress.sent..=progress.sent + burst).contains(&taken), "{taken} of {} taken", progress.sent);
        }
        if nic_core.is_dead() {
            settle(&mut progress, &mut host, queues.shape(), burst);
        }
        outcome
    })
}

/// A host whose device died: it receives what was announced, sends until the ring is full, and has all its buffers.
fn settle(progress: &mut Progress, host: &mut Host<&CrashCore>, shape: Shape, burst: u64) {
    let mut idle = 0;
    while idle < 10 {
        let before = progress.sent;
        progress.send(host, burst);
        let received = progress.receive(host, burst);
        idle = if received == 0 && progress.sent == before { idle + 1 } else { 0 };
    }
    assert!(progress.received <= progress.sent);
    let statistics = host.statistics();
    assert_eq!((statistics.refused_registers, statistics.refused_packets, statistics.refused_frees), (0, 0, 0));
    host.reclaim();
    let mut buffers = [Buffer::default(); 64];
    let device = host.device_buffers();
    let free = host.buf_alloc(&mut buffers);
    assert_eq!((free + device) as u64, shape.buffers);
    let distinct: BTreeSet<_> = buffers[..free].iter().map(|buffer| buffer.address).collect();
    assert_eq!(distinct.len(), free, "a buffer is in the pool twice");
}

/// The same with rings of several sizes, whose packets are sent whole or, where a ring holds such, many of them in two segments.
fn every_death_of(host_dies: bool) -> u64 {
    let mut deaths = 0;
    for signal in [RxSignal::Register, RxSignal::DescriptorDone] {
        for (descriptors, burst) in [(2, 1), (4, 1), (4, 3), (16, 4)] {
            let placed = place(descriptors, signal);
            deaths += every_death(&placed, false, host_dies, burst);
            if descriptors > 2 {
                deaths += every_death(&placed, true, host_dies, burst);
            }
        }
    }
    deaths
}

#[test]
fn the_device_survives_the_hosts_death_anywhere() {
    let deaths = every_death_of(true);
    assert!(deaths > 6000, "{deaths} deaths");
}

#[test]
fn the_host_survives_the_devices_death_anywhere() {
    let deaths = every_death_of(false);
    assert!(deaths > 4000, "{deaths} deaths");
}
