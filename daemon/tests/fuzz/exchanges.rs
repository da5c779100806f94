//! Real exchanges, whose images the corpora of both halves keep: what each of them writes into the region, between whatever the other does.

use conic_fabric::{Address, Core};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::notify::{PACKETS, ROOM};
use conic_interface::ccnic::{Descriptor, Flags, Host, Nic, PhaseCredit, RingMap, Wire};
use conic_interface::metadata::{Begun, Metadata};

use crate::bystander::{self, mac};
use crate::guard::{Guard, Side};
use crate::host_half::{self, Beneath};
use crate::image::Recorder;
use crate::nic_half::{self, LOOPBACK, OFFENDER, World};

/// Turns of an exchange.
const TURNS: u64 = 40;

/// All of them: the file's name, and what it holds; of clients first, then of NICs.
pub fn all() -> [Vec<(&'static str, Vec<u8>)>; 2] {
    let clients = [
        ("small", of_client(0, 1, small)),
        ("sizes", of_client(0, 2, sizes)),
        ("chains", of_client(0b1001, 3, chains)),
        ("offloads", of_client(0b111111, 4, offloads)),
        ("retained", of_client(0, 5, retained)),
        ("loopback", of_client(LOOPBACK, 6, sizes)),
    ];
    // The last is what no sound NIC does.
    let nics = [
        ("packets", of_nic(0, 7, packets)),
        ("chains", of_nic(1, 8, nic_chains)),
        ("chains-without-end", of_nic(1, 9, endless)),
    ];
    [clients.into(), nics.into()]
}

/// A client of the switch that plays by the rules.
struct Sound {
    core: Guard,
    host: Host<Guard, PhaseCredit>,
    /// Objects of its own, which it may send without giving them away.
    objects: Address,
}

type Turn = fn(&mut Sound, &mut fastrand::Rng);

fn of_client(header: u64, seed: u64, turn: Turn) -> Vec<u8> {
    let (mut world, mut recorder) = (World::new(header), Recorder::new(header));
    let mut random = fastrand::Rng::with_seed(seed);
    recorder.begin(&world.region);
    let core = Guard::new(&world.region.memory, &world.region.map, "client", Side::Host);
    let host = Host::new(core.clone(), &world.region.map, 0);
    let mut sound = Sound { core, host, objects: world.region.map.objects().0 };
    let notices = world.region.notices;
    for number in 0..TURNS {
        let mut packets = [Descriptor::BLANK; 8];
        let count = sound.host.rx_burst(&mut packets);
        packets[..count].iter().for_each(|packet| sound.host.buf_free(&[packet.address()]));
        turn(&mut sound, &mut random);
        if number % 7 == 3 {
            notices.wish_for(&sound.core, 0, PACKETS | ROOM);
        }
        notices.call_if_resting(&sound.core, 0);
        recorder.end(&world.region);
        let actions = [
            nic_half::STEP_ONCE,
            nic_half::TO_OFFENDER,
            nic_half::BETWEEN,
            nic_half::TO_ALL,
            nic_half::FLOW,
            nic_half::LARGE,
        ];
        let (action, value) = match number % 10 {
            // Long enough for a queue to go to rest.
            9 => (nic_half::STEP_OFTEN, (20 << 17) | 60_000),
            _ => (actions[random.usize(..6)], random.u64(..1 << 13)),
        };
        recorder.action(action, value);
        world.act(action, value);
        recorder.begin(&world.region);
    }
    recorder.input
}

impl Sound {
    /// Sends bytes, in so many segments, with metadata, or nothing where there is no room.
    fn send(&mut self, frame: &[u8], segments: usize, metadata: Metadata, flags: u8) {
        let mut packets = Vec::new();
        for part in frame.chunks(frame.len().div_ceil(segments)) {
            let mut at = [Address(0)];
            if self.host.buf_alloc(part.len() as u64, &mut at) == 0 {
                break;
            }
            self.core.write_bytes(at[0], part);
            packets.push(Descriptor::new(at[0], part.len() as u16).with(Flags::NEXT | flags));
        }
        if packets.len() == segments {
            packets[0] = packets[0].with_metadata(metadata.0);
            packets[segments - 1] = packets[segments - 1].without(Flags::NEXT);
            if self.host.tx_burst(&packets) == segments {
                return;
            }
        }
        packets.iter().for_each(|packet| self.host.buf_free(&[packet.address()]));
    }

    fn send_plain(&mut self, to: u64, length: usize, segments: usize) {
        self.send(&frame(to, length), segments, Metadata::NONE, 0);
    }
}

fn frame(to: u64, length: usize) -> Vec<u8> {
    let mut frame = [&mac(to)[..], &mac(OFFENDER), &[0x88, 0xb5]].concat();
    // The rest is nothing, so that images are small: no half looks at it.
    frame.resize(length, 0);
    frame
}

/// TCP to the first of the others, with its checksum begun.
fn tcp(payload: usize) -> Vec<u8> {
    bystander::tcp(mac(1), mac(OFFENDER), 1, payload)
}

fn small(sound: &mut Sound, random: &mut fastrand::Rng) {
    for _ in 0..random.u8(..4) {
        sound.send_plain(random.u64(1..=2), random.usize(60..=104), 1);
    }
}

fn sizes(sound: &mut Sound, random: &mut fastrand::Rng) {
    let length = [60, 105, 128, 129, 1514, 4096, 9600][random.usize(..7)];
    let to = [1, 2, 0xff][random.usize(..3)];
    sound.send_plain(to, length, 1);
}

fn chains(sound: &mut Sound, random: &mut fastrand::Rng) {
    let segments = random.usize(1..=4);
    sound.send_plain(1, random.usize(100..=500), segments);
}

fn offloads(sound: &mut Sound, random: &mut fastrand::Rng) {
    let begun = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 }).with(Metadata::NETWORK);
    match random.u8(..4) {
        0 => sound.send(&tcp(3000), 1, begun.with_large(1000), 0),
        1 => sound.send(&tcp(200), 2, begun, 0),
        2 => sound.send(&frame(2, 100), 1, Metadata::NONE.with_vlan(7), 0),
        _ => sound.send(&tcp(64), 1, begun, 0),
    }
}

fn retained(sound: &mut Sound, random: &mut fastrand::Rng) {
    let mut done = [Descriptor::BLANK; 8];
    let count = sound.host.completions(&mut done);
    let objects = sound.objects;
    let buffers = done[..count].iter().filter(|done| done.address() < objects || done.address() >= objects + 1024);
    let buffers: Vec<Address> = buffers.map(|done| done.address()).collect();
    sound.host.buf_free(&buffers);
    if random.bool() {
        let bytes = frame(2, 300);
        sound.core.write_bytes(objects, &bytes);
        sound.host.tx_burst(&[Descriptor::new(objects, 300).with(Flags::RETAIN)]);
    } else {
        sound.send(&frame(1, 80), 1, Metadata::NONE, Flags::RETAIN);
    }
}

type NicTurn = fn(&mut Wire<Guard, PhaseCredit>, &RingMap, &mut fastrand::Rng);

/// What a NIC writes that plays by the rules.
fn of_nic(header: u64, seed: u64, turn: NicTurn) -> Vec<u8> {
    let (mut beneath, mut recorder) = (Beneath::new(), Recorder::new(header));
    let mut random = fastrand::Rng::with_seed(seed);
    recorder.begin(&beneath.region);
    let core = Guard::new(&beneath.region.memory, &beneath.region.map, "nic", Side::Nic);
    let mut wire = Wire::new(Nic::new(core, &beneath.region.map, 0));
    let receive = beneath.region.map.queues[0].receive;
    for _ in 0..TURNS {
        turn(&mut wire, &receive, &mut random);
        recorder.end(&beneath.region);
        let actions = [
            host_half::RECEIVE,
            host_half::RECEIVE,
            host_half::SEND,
            host_half::PASS_ON,
            host_half::FREE,
            host_half::SLEEP,
        ];
        let (action, value) = (actions[random.usize(..6)], random.u64(..1 << 12));
        recorder.action(action, value);
        beneath.act(action, value);
        recorder.begin(&beneath.region);
    }
    recorder.input
}

fn packets(wire: &mut Wire<Guard, PhaseCredit>, _: &RingMap, random: &mut fastrand::Rng) {
    if random.bool() {
        wire.turn_around();
    }
    for _ in 0..random.u8(..4) {
        let length = [60, 104, 105, 1514, 4096][random.usize(..5)];
        let mut frame = vec![0; length];
        frame[..14].copy_from_slice(&[length as u8; 14]);
        wire.deliver_frame(&frame);
    }
}

fn nic_chains(wire: &mut Wire<Guard, PhaseCredit>, receive: &RingMap, random: &mut fastrand::Rng) {
    packets(wire, receive, random);
    let pieces = random.usize(1..=4);
    let nic = wire.nic();
    if nic.rx_room(4) < 4 {
        return;
    }
    let chain: Vec<Address> = (0..pieces).map_while(|_| nic.rx_alloc(200)).collect();
    let packets: Vec<Descriptor> = chain.iter().map(|&at| Descriptor::new(at, 200).with(Flags::NEXT)).collect();
    if let Some((last, before)) = packets.split_last() {
        let packets = [before, &[last.without(Flags::NEXT)]].concat();
        assert_eq!(nic.rx_burst(&packets), packets.len(), "room was asked for");
    }
}

/// Segments each of which says that another follows: that is written over the ends of packets that were sent.
fn endless(wire: &mut Wire<Guard, PhaseCredit>, receive: &RingMap, _: &mut fastrand::Rng) {
    let nic = wire.nic();
    if nic.rx_room(8) < 8 {
        return;
    }
    let packets: Vec<Address> = (0..8).map_while(|_| nic.rx_alloc(100)).collect();
    let packets: Vec<Descriptor> = packets.iter().map(|&at| Descriptor::new(at, 100)).collect();
    nic.rx_burst(&packets);
    let core = nic.core();
    for slot in 0..receive.slots {
        let line = receive.ring.lines(slot);
        // Ordered as this thread does it: it is alone. The first word of four is the one that synchronises.
        let mut said = Descriptor::BLANK;
        said.word = core.load_acquire(line);
        core.store_release(line, said.with(Flags::NEXT).word);
        for word in [2, 4, 6] {
            said.word = core.load(line.word(word));
            core.store(line.word(word), said.with(Flags::NEXT).word);
        }
    }
}
