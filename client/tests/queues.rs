//! A client's queue and its buffers over a NIC that is played here: what is sent and received, and that no buffer is lost.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::support::{Nic, SMALL, attached, come_back, give, welcome};
use conic_client::{Buffer, Client, Link, Metadata, Options, Queue, SharedMemory, Woken};
use conic_control::{Extensions, VERSION, Wait};
use conic_fabric::{Address, Time};
use conic_interface::burst::HostQueue;
use conic_interface::ccnic::notify::PACKETS;
use conic_interface::ccnic::{Descriptor, Flags, HostFaults, QueueFaults};
use conic_native::channel::{Channel, Listener};
use conic_native::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

/// A client with its queue, and who it is the client of.
struct World {
    client: Client,
    queue: Queue,
    nic: Nic,
    channel: Channel,
    listener: Listener,
    _folder: TempDir,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nic.sock");
        let listener = Listener::bind(&socket).expect("a socket");
        let (client, queue, channel, nic) = attached(&socket, &listener);
        World { client, queue, nic, channel, listener, _folder: folder }
    }

    /// A packet of so many bytes, which are these.
    fn packet(&mut self, number: u8, bytes: usize) -> Buffer {
        let mut buffer = self.queue.allocate(bytes).expect("a buffer is free");
        buffer.fill(&content(number, bytes));
        buffer
    }

    /// What the NIC has been sent.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        std::iter::repeat_with(|| self.nic.sent()).take(32).flatten().map(|(bytes, _)| bytes).collect()
    }

    /// The daemon goes and comes back; the NIC of before.
    fn come_back(&mut self) -> Nic {
        self.go();
        let (channel, nic) = come_back(&self.client, &self.listener);
        self.channel = channel;
        std::mem::replace(&mut self.nic, nic)
    }

    /// The daemon goes.
    fn go(&mut self) {
        // The other end of a channel that nobody has is closed.
        let (closed, _) = Channel::pair().expect("two ends");
        self.channel = closed;
        assert_eq!(self.client.maintain(), Link::Down);
    }

    /// Nobody keeps a buffer, and the NIC had nothing to refuse.
    fn check_whole(self) {
        let World { queue, mut nic, .. } = self;
        drop(queue);
        assert_eq!(nic.faults(), 0);
        assert_eq!(nic.free(), SMALL.buffers.iter().sum::<u64>());
    }
}

fn content(number: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 256) as u8 ^ number).collect()
}

/// Bytes of a packet, so that half of them need large buffers.
fn length(number: u8) -> usize {
    if number < 50 { 60 } else { 1000 }
}

fn contents(buffers: &[Buffer]) -> Vec<Vec<u8>> {
    buffers.iter().map(Buffer::to_vec).collect()
}

#[test]
fn packets_of_any_region_are_sent_and_empty_ones_are_freed() {
    let (mut own, mut other) = (World::new(), World::new());
    let said = Metadata::NONE.with(Metadata::NETWORK);
    let mut foreign = other.packet(2, 1500);
    foreign.set_metadata(said);
    let mut empty = own.packet(0, 60);
    empty.set_len(0);
    let mut last = own.packet(3, 64);
    last.set_metadata(said);
    let mut buffers = vec![own.packet(1, 100), empty, foreign, other.packet(4, 200), last];
    assert_eq!((own.queue.transmit(&mut buffers), buffers.len()), (5, 0));
    let expected = [
        (content(1, 100), Metadata::NONE.0),
        (content(2, 1500), said.0),
        (content(4, 200), Metadata::NONE.0),
        (content(3, 64), said.0),
    ];
    let sent: Vec<_> = std::iter::repeat_with(|| own.nic.sent()).take(8).flatten().collect();
    assert_eq!(sent, expected);
    assert_eq!((own.queue.faults().copied, other.queue.faults().copied), (2, 0));
    own.check_whole();
    other.check_whole();
}

/// The segments of packet `number`: pieces of it, the last of which has no next.
fn segments(world: &mut World, number: u8, lengths: &[usize]) -> Vec<Buffer> {
    let whole = content(number, lengths.iter().sum());
    let mut rest = &whole[..];
    let cut = |(index, &length): (usize, &usize)| {
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        let mut buffer = world.queue.allocate(length).expect("a buffer is free");
        buffer.fill(piece);
        buffer.set_has_next(index + 1 < lengths.len());
        buffer
    };
    lengths.iter().enumerate().map(cut).collect()
}

#[test]
fn a_packet_of_several_segments_is_sent_whole_from_whatever_regions() {
    let (mut own, mut other) = (World::new(), World::new());
    let mut buffers = segments(&mut own, 1, &[60, 700, 3]);
    // One in whose middle lies a segment of another region, with one before it that fills a burst but for one.
    buffers.extend((2..30).map(|number| own.packet(number, 60)));
    buffers.extend(segments(&mut own, 30, &[10, 20, 30, 40]));
    let mut mixed = segments(&mut own, 31, &[50, 500, 5]);
    mixed[1] = segments(&mut other, 31, &[50, 500, 5]).swap_remove(1);
    buffers.extend(mixed);
    let mut unfinished = segments(&mut own, 32, &[100, 200]);
    let end = unfinished.pop();
    buffers.extend(unfinished);
    let mut sent = Vec::new();
    for left in [1, 1] {
        own.queue.transmit(&mut buffers);
        sent.extend(own.sent());
        assert_eq!(buffers.len(), left, "what has no end yet stays");
    }
    buffers.extend(end);
    assert_eq!((own.queue.transmit(&mut buffers), buffers.len()), (2, 0));
    sent.extend(own.sent());
    let expected: Vec<_> = (1..33).map(|number| content(number, bytes_of(number))).collect();
    assert_eq!(sent, expected);
    assert_eq!(own.queue.faults().copied, 1);
    own.check_whole();
    other.check_whole();
}

fn bytes_of(number: u8) -> usize {
    match number {
        1 => 763,
        30 => 100,
        31 => 555,
        32 => 300,
        _ => 60,
    }
}

#[test]
fn a_packet_of_more_segments_than_may_be_or_with_an_empty_one_is_a_mistake() {
    let mut world = World::new();
    let mut five = segments(&mut world, 1, &[60; 5]);
    let many = said(|| _ = world.queue.transmit(&mut five));
    assert_eq!(many, "a packet of 5 segments, and not of 4 at most");
    five[3].set_has_next(false);
    five[1].set_len(0);
    let empty = said(|| _ = world.queue.transmit(&mut five));
    assert_eq!(empty, "a packet of 4 segments has an empty one");
    drop(five);
    world.check_whole();
}

#[test]
fn a_packet_that_cannot_be_sent_behind_others_takes_none_of_them_with_it() {
    // As many as are sent at once, so that it stands at the front of what comes next.
    const BEFORE: u8 = 32;
    let mut world = World::new();
    let mut buffers: Vec<Buffer> = (0..BEFORE).map(|number| world.packet(number, 60)).collect();
    buffers.extend(segments(&mut world, BEFORE, &[60; 5]));
    // Those before it are the NIC's, and nobody frees them here.
    assert_eq!((world.queue.transmit(&mut buffers), buffers.len()), (BEFORE.into(), 5));
    let many = said(|| _ = world.queue.transmit(&mut buffers));
    assert_eq!((many.as_str(), buffers.len()), ("a packet of 5 segments, and not of 4 at most", 5));
    assert_eq!(world.sent(), (0..BEFORE).map(|number| content(number, 60)).collect::<Vec<_>>());
    drop(buffers);
    assert_eq!(world.queue.faults().host.freed_twice, 0);
    world.check_whole();
}

#[test]
fn received_segments_say_that_there_is_a_next_and_end() {
    let mut world = World::new();
    let lengths = [3000, 3000, 700, 60];
    let next = [true, true, false, false];
    let place = |(length, next): (&u16, bool)| {
        let at = world.nic.allocate(u64::from(*length));
        let segment = Descriptor::new(at, *length);
        if next { segment.with(Flags::NEXT) } else { segment }
    };
    let packets: Vec<Descriptor> = lengths.iter().zip(next).map(place).collect();
    world.nic.deliver_at(&packets);
    let mut buffers = Vec::new();
    // By twos: what was asked for does not say where a packet ends.
    assert_eq!([2, 2].map(|most| world.queue.receive(&mut buffers, most)), [2, 2]);
    assert_eq!(buffers.iter().map(|one| (one.len() as u16, one.has_next())).collect::<Vec<_>>(), {
        lengths.into_iter().zip(next).collect::<Vec<_>>()
    });
    // As they came they can be sent on.
    assert_eq!(world.queue.transmit(&mut buffers), 4);
    assert_eq!(world.sent().iter().map(Vec::len).collect::<Vec<_>>(), [6700, 60]);
    // A NIC that lies: no packet has an end.
    for slot in 1..4 {
        world.nic.deliver(&[content(9, 60), content(8, 60), content(7, 60), content(6, 60)]);
        world.nic.deny_ends(slot);
        world.queue.receive(&mut buffers, 4);
    }
    assert_eq!(buffers.iter().map(Buffer::has_next).collect::<Vec<_>>(), [true, true, true, false].repeat(3));
    assert_eq!(world.queue.faults().cut, 3);
    drop(buffers);
    world.check_whole();
}

#[test]
fn a_ring_that_is_full_takes_packets_from_the_front_and_leaves_the_others() {
    let mut world = World::new();
    let mut buffers: Vec<Buffer> = (0..100).map(|number| world.packet(number, length(number))).collect();
    let (mut sent, mut rounds) = (Vec::new(), 0);
    while !buffers.is_empty() {
        let count = world.queue.transmit(&mut buffers);
        assert_eq!(buffers.len() + sent.len() + count, 100);
        sent.extend(world.sent());
        assert_eq!(sent.len() + buffers.len(), 100);
        rounds += 1;
    }
    assert!(
        rounds > 1 && sent == (0..100).map(|number| content(number, length(number))).collect::<Vec<_>>(),
        "{rounds}"
    );
    world.check_whole();
}

#[test]
fn as_many_packets_are_received_as_were_asked_for_and_one_that_is_nowhere_is_none() {
    let mut world = World::new();
    let all: Vec<Vec<u8>> = (0..45).map(|number| content(number, 200)).collect();
    world.nic.deliver(&all[..44]);
    let mut buffers = Vec::new();
    // Whole groups of four, and more than are moved at once.
    for (most, count) in [(8, 8), (100, 36), (100, 0)] {
        assert_eq!(world.queue.receive(&mut buffers, most), count);
    }
    world.nic.deliver_at(&[Descriptor::new(Address(64), 200)]);
    world.nic.deliver(&all[44..]);
    (0..2).for_each(|_| _ = world.queue.receive(&mut buffers, 100));
    assert_eq!(contents(&buffers), all);
    assert_eq!(world.queue.faults().no_buffer, 1);
    drop(buffers);
    world.check_whole();
}

#[test]
fn buffers_of_any_region_are_freed_in_their_own() {
    let (mut own, mut other) = (World::new(), World::new());
    let mut buffers = vec![own.packet(1, 100), other.packet(2, 100), own.packet(3, 1500), other.packet(4, 1500)];
    own.queue.free(&mut buffers);
    assert!(buffers.is_empty());
    own.check_whole();
    other.check_whole();
}

/// What is said of a mistake of the program.
fn said(mistake: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(mistake)).expect_err("it is one");
    panic.downcast_ref::<String>().expect("a text").clone()
}

#[test]
fn nothing_is_written_or_read_beyond_a_packet() {
    let mut world = World::new();
    assert!(world.queue.allocate(1 << 16).is_none());
    let mut buffer = world.packet(1, 60);
    let capacity = buffer.capacity();
    buffer.set_len(capacity);
    let beyond = said(|| buffer.set_len(capacity + 1));
    assert_eq!(beyond, format!("a buffer of {capacity} bytes has no room for {}", capacity + 1));
    buffer.set_len(60);
    buffer.write(58, &[1, 2]);
    for at in [59, 60, usize::MAX] {
        for said in [said(|| buffer.write(at, &[1, 2])), said(|| buffer.read(at, &mut [0; 2]))] {
            assert_eq!(said, format!("2 bytes at {at} do not lie in a packet of 60 bytes"));
        }
    }
    let (at, memory) = (Address(buffer.pointer() as u64 - world.queue.region().0 as u64), world.queue.memory());
    assert_eq!(
        [0, 10, 60].map(|into| world.queue.capacity_at(at + into)),
        [0, 10, 60].map(|into| (capacity - into) as u32)
    );
    assert_eq!((world.queue.capacity_at(Address(0)), memory.give_back(&[Address(0)])), (0, 1));
    assert!(world.queue.is_in_a_buffer(at, capacity as u16) && !world.queue.is_in_a_buffer(at + 1, capacity as u16));
    assert!(memory.is_same(&world.queue.memory()) && !memory.is_same(&World::new().queue.memory()));
    drop(buffer);
    world.check_whole();
}

#[test]
fn a_packet_without_its_front_is_sent_from_there_and_freed_whole() {
    let mut world = World::new();
    let mut buffers = vec![world.packet(1, 100), world.packet(2, 1500), world.packet(3, 60)];
    let capacity = buffers[1].capacity();
    buffers[0].trim_front(14);
    buffers[1].trim_front(600);
    assert_eq!((buffers[1].len(), buffers[1].capacity()), (900, capacity - 600));
    assert_eq!(contents(&buffers)[1], content(2, 1500)[600..]);
    for count in [61, 1 << 16] {
        assert_eq!(said(|| buffers[2].trim_front(count)), format!("a packet of 60 bytes has no {count} to take away"));
    }
    // One without any byte left is freed.
    buffers[2].trim_front(60);
    assert_eq!(world.queue.transmit(&mut buffers), 3);
    assert_eq!(world.sent(), [content(1, 100)[14..].to_vec(), content(2, 1500)[600..].to_vec()]);
    let mut buffers = vec![world.packet(1, 100), world.packet(2, 1500)];
    buffers.iter_mut().for_each(|buffer| buffer.trim_front(70));
    // One that fills its buffer ends where the next begins.
    let mut full = world.packet(3, 60);
    full.set_len(full.capacity());
    full.trim_front(full.capacity());
    drop((buffers.pop(), full));
    world.queue.free(&mut buffers);
    world.check_whole();
}

#[test]
fn what_was_delivered_before_a_reconnection_is_received_behind_it() {
    let mut world = World::new();
    let all: Vec<Vec<u8>> = (0..41).map(|number| content(number, 200)).collect();
    world.nic.deliver(&all[..40]);
    world.nic.deliver_at(&[Descriptor::new(Address(64), 200)]);
    let memory = world.queue.memory();
    let mut before = world.come_back();
    assert!(world.queue.is_stale());
    assert!(world.queue.wait(Duration::from_secs(10)), "there are some");
    assert!(!world.queue.is_stale() && !world.queue.renew() && !memory.is_same(&world.queue.memory()));
    world.nic.deliver(&all[40..]);
    let mut buffers = Vec::new();
    for (most, count) in [(2, 2), (30, 30), (20, 9)] {
        assert_eq!(world.queue.receive(&mut buffers, most), count);
    }
    assert_eq!(contents(&buffers), all);
    // They go out of the new one.
    let mut sent = Vec::new();
    while !buffers.is_empty() {
        assert!(world.queue.transmit(&mut buffers) > 0);
        sent.extend(world.sent());
    }
    assert_eq!((sent, world.queue.faults().copied, before.sent().len()), (all, 40, 0));
    world.check_whole();
}

#[test]
fn who_moves_on_is_not_kept_by_a_daemon_that_goes_on_delivering() {
    let mut world = World::new();
    let packet = Descriptor::new(world.nic.allocate(60), 60);
    let mut before = world.come_back();
    before.deliver_again_and_again(packet);
    let queue = &mut world.queue;
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| queue.allocate(60).is_some());
        while !moving.is_finished() {
            before.deliver_again_and_again(packet);
        }
        assert!(moving.join().expect("it ends"), "there are free ones in the new region");
    });
    let (mut kept, most) = (Vec::new(), world.queue.most_delivered());
    let count = world.queue.receive(&mut kept, usize::MAX);
    assert!((1..=most).contains(&count), "{count}");
}

/// How many buffers of a region are free or the NIC's of before, which is dead.
fn free_or_lost(memory: &SharedMemory, before: &mut Nic) -> u64 {
    before.free();
    memory.free().iter().sum()
}

#[test]
fn what_was_sent_to_a_daemon_that_died_and_not_read_is_free_behind_a_reconnection() {
    const ALL: u64 = SMALL.buffers[0] + SMALL.buffers[1];
    // Of the first quarter of the ring nobody knows whether it was read; a payload in the ring, of two slots, has no buffer.
    for (alone, doubtful) in [(0, 16), (1, 8), (2, 0)] {
        let mut world = World::new();
        let memory = world.queue.memory();
        let held = [world.packet(1, 60), world.packet(2, 1000)];
        world.nic.deliver(&(0..3).map(|number| content(number, 200)).collect::<Vec<_>>());
        for number in 0..alone {
            let mut buffers = vec![world.packet(number, 60)];
            assert_eq!(world.queue.transmit(&mut buffers), 1);
        }
        let mut buffers: Vec<Buffer> = (0..70).map(|number| world.packet(number, length(number))).collect();
        assert_eq!(world.queue.transmit(&mut buffers), 64 - 8 * usize::from(alone));
        drop(buffers);
        let mut before = world.come_back();
        assert!(world.queue.renew());
        assert_eq!(free_or_lost(&memory, &mut before), ALL - 2 - doubtful, "{alone} alone");
        drop(held);
        assert_eq!(free_or_lost(&memory, &mut before), ALL - doubtful, "{alone} alone");
        assert_eq!(world.queue.faults().host.freed_twice, 0);
        world.check_whole();
    }
}

#[test]
fn what_a_daemon_that_died_had_read_and_given_back_is_still_the_programs_behind_a_reconnection() {
    const ALL: u64 = SMALL.buffers[0] + SMALL.buffers[1];
    // As far as a NIC goes without saying so, and further.
    for sent in [4, 12, 16, 40] {
        let mut world = World::new();
        let memory = world.queue.memory();
        let mut buffers: Vec<Buffer> = (0..sent).map(|number| world.packet(number, 60)).collect();
        assert_eq!(world.queue.transmit(&mut buffers), usize::from(sent));
        assert_eq!(world.nic.sent().len(), usize::from(sent));
        // They come back in what is delivered, and the program holds them.
        let all: Vec<Vec<u8>> = (0..sent).map(|number| content(number, 110)).collect();
        world.nic.deliver(&all);
        let mut held = Vec::new();
        while held.len() < usize::from(sent) {
            assert!(world.queue.receive(&mut held, 100) > 0);
        }
        let mut before = world.come_back();
        assert!(world.queue.renew());
        assert_eq!(free_or_lost(&memory, &mut before), ALL - u64::from(sent), "{sent} sent");
        assert_eq!(contents(&held), all);
        drop(held);
        assert_eq!(free_or_lost(&memory, &mut before), ALL, "{sent} sent");
        world.check_whole();
    }
}

/// They began anew with each region, and whoever reads them as counters saw them go back.
#[test]
fn faults_are_counted_over_every_reconnection() {
    let mut world = World::new();
    for rounds in 1..=3 {
        let mut at = [Address(0)];
        assert_eq!(world.queue.buf_alloc(60, &mut at), 1);
        // Twice the same, which is found when both have come back to the pool, and what is none.
        world.queue.buf_free(&[at[0], at[0], Address(0)]);
        world.come_back();
        assert!(world.queue.renew());
        let HostFaults { freed_twice, not_a_buffer, .. } = world.queue.faults().host;
        assert_eq!((freed_twice, not_a_buffer), (rounds, rounds));
    }
    let fault = QueueFaults { credit: 1, doorbell: 2, inline: 3 };
    let other = QueueFaults { credit: 10, doorbell: 20, inline: 30 };
    let sum = HostFaults { transmit: fault, receive: other, not_a_buffer: 4, freed_twice: 5 }.plus(&HostFaults {
        transmit: other,
        receive: QueueFaults::default(),
        not_a_buffer: 40,
        freed_twice: 50,
    });
    let both = QueueFaults { credit: 11, doorbell: 22, inline: 33 };
    assert_eq!(sum, HostFaults { transmit: both, receive: other, not_a_buffer: 44, freed_twice: 55 });
}

#[test]
fn nothing_is_sent_to_a_daemon_that_is_gone_and_whoever_polls_notices() {
    let mut world = World::new();
    let mut buffers = vec![world.packet(1, 100)];
    world.go();
    assert_eq!((world.queue.transmit(&mut buffers), buffers.len()), (0, 1));
    assert_eq!(world.nic.sent().len(), 0);
    drop(buffers);
    for received in [true, false] {
        let mut world = World::new();
        world.channel = Channel::pair().expect("two ends").0;
        assert_eq!(world.client.link(), Link::Up, "nobody has looked");
        // It has all that the ring holds, so that nothing more is sent.
        let mut buffers: Vec<Buffer> = (0..100).map(|number| world.packet(number, length(number))).collect();
        world.queue.transmit(&mut buffers);
        for _ in 0..3000 {
            let moved =
                if received { world.queue.receive(&mut Vec::new(), 1) } else { world.queue.transmit(&mut buffers) };
            assert_eq!(moved, 0);
        }
        assert_eq!(world.client.link(), Link::Down, "{received}");
    }
}

/// By the program's buffers, and by addresses.
#[test]
fn who_only_sends_and_has_no_buffer_notices_that_the_daemon_is_gone() {
    for by_address in [false, true] {
        let mut world = World::new();
        let held: Vec<Buffer> = std::iter::from_fn(|| world.queue.allocate(1000)).collect();
        assert!(!held.is_empty());
        world.channel = Channel::pair().expect("two ends").0;
        assert_eq!(world.client.link(), Link::Up, "nobody has looked");
        for _ in 0..3000 {
            if by_address {
                assert_eq!(world.queue.buf_alloc(1000, &mut [Address(0); 4]), 0);
            } else {
                assert!(world.queue.allocate(1000).is_none());
            }
        }
        assert_eq!(world.client.link(), Link::Down, "{by_address}");
    }
}

/// Whether a descriptor can be read, or its other end is gone.
fn is_readable(descriptor: impl AsFd) -> bool {
    let mut waited = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("it can be asked") > 0
}

#[test]
fn who_sleeps_is_rung_once_and_who_is_awake_is_not() {
    let mut world = World::new();
    let must_ring = |world: &World| world.nic.notices.must_ring(world.nic.core(), 0, PACKETS);
    assert!(!must_ring(&world));
    assert!(!world.queue.arm() && must_ring(&world) && !must_ring(&world));
    // Rung more often than once, before it has woken up.
    for _ in 0..3 {
        rustix::io::write(&world.nic.bell, &[1; 16]).expect("there is room");
    }
    assert!(is_readable(world.queue.bell()));
    world.queue.disarm();
    assert!(!is_readable(world.queue.bell()));
    assert!(!world.queue.arm());
    world.queue.disarm();
    assert!(!must_ring(&world), "it is awake");
    world.nic.deliver(&[content(1, 200)]);
    assert!(world.queue.arm() && !must_ring(&world), "it need not sleep");
    assert!(world.queue.wait(Duration::from_secs(10)));
    assert_eq!(world.queue.receive(&mut Vec::new(), 10), 1);
    // Nobody is kicked who looks.
    let mut buffers = vec![world.packet(1, 100)];
    assert_eq!(world.queue.transmit(&mut buffers), 1);
    assert!(!is_readable(&world.nic.kick));
    world.nic.notices.rest(world.nic.core(), 0, 1, 1);
    let mut buffers = vec![world.packet(2, 100)];
    assert_eq!(world.queue.transmit(&mut buffers), 1);
    assert!(is_readable(&world.nic.kick), "it does not look, and sleeps");
    // Nor is who has been called and has not heard it yet.
    assert!(rustix::io::read(&world.nic.kick, &mut [0; 64]).expect("a kick") > 0);
    let mut buffers = vec![world.packet(3, 100)];
    assert_eq!(world.queue.transmit(&mut buffers), 1);
    assert!(!is_readable(&world.nic.kick), "it was kicked already");
}

#[test]
fn a_daemon_that_never_sleeps_is_called_and_not_kicked() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    for (wait, is_kicked) in [(Wait::Spin, false), (Wait::Notify, true)] {
        let (mut queue, nic, _channel) = std::thread::scope(|scope| {
            let daemon = scope.spawn(|| {
                let channel = welcome(&listener, Extensions::KNOWN, VERSION);
                (give(&channel, |attached| attached.wait = wait), channel)
            });
            let options = Options { geometry: SMALL, ..Options::default() };
            let (_client, mut queues) = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
            let (nic, channel) = daemon.join().expect("it lets the client in");
            (queues.remove(0), nic, channel)
        });
        nic.notices.rest(nic.core(), 0, 1, 1);
        let mut buffer = queue.allocate(100).expect("a buffer is free");
        buffer.fill(&content(1, 100));
        assert_eq!(queue.transmit(&mut vec![buffer]), 1);
        assert_eq!(nic.notices.calls(nic.core(), 0), 1, "it does not look at this queue by itself");
        // A client that never kicks has let go of its end.
        let kicked = is_readable(&nic.kick) && rustix::io::read(&nic.kick, &mut [0; 64]).expect("it can be read") > 0;
        assert_eq!(kicked, is_kicked, "{wait:?}");
    }
}

#[test]
fn who_waits_in_vain_wakes_up_in_time_and_notices_who_has_gone_and_come() {
    let mut world = World::new();
    let wait = Duration::from_millis(5);
    let begun = clock::now();
    assert!(!world.queue.wait(wait));
    let waited = clock::now().since(begun).nanoseconds();
    assert!((5_000_000..1_000_000_000).contains(&waited), "{waited} ns");
    assert_eq!(world.queue.wait_here(wait), Woken::Time);
    assert!(!world.nic.notices.must_ring(world.nic.core(), 0, PACKETS), "it is awake again");
    world.come_back();
    assert_eq!(world.queue.wait_here(Duration::from_secs(10)), Woken::Stale);
    // And on with that one, where a packet comes.
    world.nic.deliver(&[content(1, 200)]);
    assert!(world.queue.wait(Duration::from_secs(10)));
    // Neither a bell nor a word comes any more.
    world.channel = Channel::pair().expect("two ends").0;
    world.nic.bell = std::fs::File::open("/dev/null").expect("it is there").into();
    assert_eq!(world.queue.receive(&mut Vec::new(), 10), 1);
    assert_eq!(world.client.link(), Link::Up, "nobody has looked");
    assert!(!world.queue.wait(wait));
    assert_eq!(world.client.link(), Link::Down);
}

#[test]
fn who_may_miss_a_bell_looks_again_by_itself() {
    let World { mut queue, mut nic, client: _client, channel: _channel, .. } = World::new();
    assert!(queue.may_miss_bells(), "the daemon's half is no fence");
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let begun = clock::now();
            (queue.wait(Duration::from_secs(20)), clock::now().since(begun))
        });
        while !nic.notices.must_ring(nic.core(), 0, PACKETS) {
            conic_native::spin();
        }
        // It sleeps, or is about to, and nobody rings.
        nic.deliver(&[content(1, 200)]);
        let (is_there, waited) = waits.join().expect("it wakes up");
        assert!(is_there && waited < Time::from_nanoseconds(10_000_000_000), "{waited}");
    });
}

#[test]
fn who_waits_while_the_daemon_goes_and_comes_back_gets_the_next_packet() {
    let World { client, mut queue, nic, channel, listener, _folder } = World::new();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || queue.wait(Duration::from_secs(20)));
        while !nic.notices.must_ring(nic.core(), 0, PACKETS) {
            conic_native::spin();
        }
        drop((channel, nic));
        while client.look() == Link::Up {}
        let (_channel, mut nic) = come_back(&client, &listener);
        nic.deliver(&[content(1, 200)]);
        // Whether it sleeps already.
        let _ = rustix::io::write(&nic.bell, &[1]);
        assert!(waits.join().expect("it wakes up"));
    });
}

#[test]
fn what_waits_is_counted_and_stays_and_so_is_the_room_to_send() {
    let mut world = World::new();
    assert_eq!((world.queue.waiting(64), world.queue.room()), (0, 64));
    // Short ones lie in the ring's lines where they are alone, others in groups.
    let lengths = [60, 100, 40, 1400, 60, 60, 60, 60, 60, 700];
    let packets: Vec<Vec<u8>> = (0..).zip(lengths).map(|(number, bytes)| content(number, bytes)).collect();
    world.nic.deliver(&packets[..1]);
    world.nic.deliver(&packets[1..2]);
    world.nic.deliver(&packets[2..]);
    assert_eq!((world.queue.waiting(64), world.queue.waiting(3), world.queue.waiting(0)), (10, 3, 0));
    let (mut into, mut came) = (Vec::new(), 0);
    for most in [1, 2, 1, 3, 3, 3] {
        came += world.queue.receive(&mut into, most);
        assert_eq!((came + world.queue.waiting(64), into.len()), (10, came));
    }
    assert_eq!(came, 10);
    // A burst takes as many places as it has packets, rounded up to a slot.
    let mut burst: Vec<Buffer> = (0..8).map(|number| world.packet(number, 500)).collect();
    assert_eq!((world.queue.transmit(&mut burst), world.queue.room()), (8, 56));
    let mut one = vec![world.packet(9, 500)];
    assert_eq!((world.queue.transmit(&mut one), world.queue.room()), (1, 52));
    // What the NIC has read is room when it says so: after a quarter of the ring at the latest.
    while world.queue.room() >= 16 {
        let mut more = vec![world.packet(1, 500)];
        assert_eq!(world.queue.transmit(&mut more), 1);
    }
    world.sent();
    assert!(world.queue.room() >= 48, "{}", world.queue.room());
}
