//! What the program does with each kind of frame, as the kernel runs it.

use std::os::fd::AsFd;

use conic_check::skipped;

use super::*;
use crate::offload::checksum;
use crate::xdp::bpf::{load, try_out};

/// Who is behind this port, who behind port 3, and who is known nowhere.
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 3];
const WAY: u32 = 3;

fn key(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a, b, c, d, e, f, 0, 0]
}

fn at(port: u32) -> [u8; 8] {
    let [a, b, c, d] = port.to_ne_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

/// A program on its tables, without sockets: what goes to one goes to the network stack.
struct Tried {
    tables: Tables,
    program: std::os::fd::OwnedFd,
}

impl Tried {
    /// None, with a word about it, where the process may not.
    fn new(queues: Queues, begun_checksums_to_socket: bool) -> Option<Tried> {
        let tables = match Tables::create() {
            Ok(tables) => tables,
            Err(error) => {
                skipped(&format!("making maps needs CAP_BPF and CAP_NET_ADMIN ({error})"));
                return None;
            }
        };
        let sockets = Map::<4, 4>::create(MapKind::Sockets, 2, "sockets").expect("another map");
        let instructions = instructions(sockets.as_fd(), &tables, queues, begun_checksums_to_socket);
        let program = load(&instructions, "conic_tried").expect("the kernel takes the program");
        tables.stations.update(key(NEAR), at(HERE)).expect("there is room");
        tables.stations.update(key(FAR), at(WAY)).expect("there is room");
        tables.ways.update(WAY.to_ne_bytes(), 1514_u32.to_ne_bytes()).expect("there is such a port");
        // The loopback interface: nothing is sent there.
        tables.devices.update(WAY.to_ne_bytes(), 1_u32.to_ne_bytes()).expect("there is such an interface");
        Some(Tried { tables, program })
    }

    fn forwards(&self, frame: &[u8]) -> bool {
        match try_out(self.program.as_fd(), frame).expect("it runs") as i32 {
            REDIRECT => true,
            PASS => false,
            other => panic!("the program gives {other}"),
        }
    }

    fn counted(&self) -> (u64, u64) {
        let each = self.tables.counts.get_of_each(WAY.to_ne_bytes()).expect("there is such a port");
        let word = |value: &[u8; 16], at: usize| u64::from_ne_bytes(std::array::from_fn(|index| value[at + index]));
        each.iter().fold((0, 0), |(frames, bytes), value| (frames + word(value, 0), bytes + word(value, 8)))
    }

    fn mark(&self) -> u32 {
        let value = self.tables.stations.get(key(NEAR)).expect("the map is there").expect("it is known");
        u32::from_ne_bytes(std::array::from_fn(|index| value[4 + index]))
    }
}

const ALL: Queues = Queues { first: 0, count: 1 };

fn frame(to: [u8; 6], from: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = vec![0x5a; length];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

#[test]
fn a_frame_between_stations_that_are_known_is_forwarded_counted_and_marks_its_sender() {
    let Some(tried) = Tried::new(ALL, false) else { return };
    assert_eq!(tried.mark(), 0);
    for length in [60, 61, 64, 1000, 1514] {
        assert!(tried.forwards(&frame(FAR, NEAR, length)), "{length}");
    }
    assert_eq!((tried.counted(), tried.mark()), ((5, 60 + 61 + 64 + 1000 + 1514), 1));
}

#[test]
fn every_other_frame_goes_to_the_socket_uncounted() {
    let Some(tried) = Tried::new(ALL, false) else { return };
    let tagged = |kind: [u8; 2]| {
        let mut frame = frame(FAR, NEAR, 64);
        frame[12..14].copy_from_slice(&kind);
        frame
    };
    let all = [
        ("its source is unknown", frame(FAR, NOBODY, 64)),
        ("its source is behind another port", frame(FAR, FAR, 64)),
        ("its source is many", frame(FAR, [3, 0, 0, 0, 0, 1], 64)),
        ("its destination is unknown", frame(NOBODY, NEAR, 64)),
        ("its destination is behind the same port", frame(NEAR, NEAR, 64)),
        ("it is for everybody", frame([0xff; 6], NEAR, 64)),
        ("it is for many", frame([1, 0, 0x5e, 0, 0, 1], NEAR, 64)),
        ("it is longer than its way", frame(FAR, NEAR, 1515)),
        ("it lies in several buffers", frame(FAR, NEAR, 5000)),
        ("it has a tag", tagged([0x81, 0x00])),
        ("it has a provider's tag", tagged([0x88, 0xa8])),
    ];
    for (why, frame) in all {
        assert!(!tried.forwards(&frame), "{why}");
    }
    assert_eq!((tried.counted(), tried.mark()), ((0, 0), 0));
}

#[test]
fn what_is_shorter_than_a_frame_goes_to_the_socket_at_every_length() {
    for begun in [false, true] {
        let Some(tried) = Tried::new(ALL, begun) else { return };
        // The kernel runs programs on no less than an Ethernet header.
        for length in 14..60 {
            for kind in [[0x08, 0x00], [0x86, 0xdd], [0x88, 0xb5]] {
                let mut frame = frame(FAR, NEAR, length);
                frame[12..14].copy_from_slice(&kind);
                assert!(!tried.forwards(&frame), "{length}");
            }
        }
        assert_eq!(tried.counted(), (0, 0));
    }
}

#[test]
fn a_way_that_is_closed_or_leads_nowhere_and_a_queue_without_a_socket_forward_nothing() {
    let Some(tried) = Tried::new(ALL, false) else { return };
    let one = frame(FAR, NEAR, 64);
    let ways = |longest: u32| tried.tables.ways.update(WAY.to_ne_bytes(), longest.to_ne_bytes()).expect("it is there");
    for (longest, forwards) in [(0, false), (63, false), (64, true)] {
        ways(longest);
        assert_eq!(tried.forwards(&one), forwards, "{longest}");
    }
    tried.tables.devices.remove(WAY.to_ne_bytes()).expect("it was there");
    assert!(!tried.forwards(&one), "the interface is gone");
    assert_eq!(tried.counted(), (1, 64));
    tried.tables.devices.update(WAY.to_ne_bytes(), 1_u32.to_ne_bytes()).expect("there is such an interface");
    for port in [PORTS, PORTS + 1, HERE - 1] {
        tried.tables.stations.update(key(FAR), at(port)).expect("it is known");
        assert!(!tried.forwards(&one), "there is no port {port}");
    }
    // What is run here comes by queue 0.
    for (first, count, forwards) in [(1, 1, false), (0, 2, true)] {
        let Some(tried) = Tried::new(Queues { first, count }, false) else { return };
        assert_eq!(tried.forwards(&one), forwards, "queues from {first} on");
    }
}

#[test]
fn tables_that_are_passed_on_know_nothing_and_their_way_is_closed() {
    let Some(tried) = Tried::new(ALL, false) else { return };
    let one = frame(FAR, NEAR, 64);
    assert!(tried.forwards(&one));
    let passed = tried.tables.descriptors().map(|map| map.try_clone_to_owned().expect("a descriptor"));
    let passed = Tables::of_descriptors(passed).expect("they are maps");
    let known = [NEAR, FAR].map(|mac| passed.stations.get(key(mac)).expect("it is a map"));
    assert_eq!(known, [None, None]);
    for mac in [NEAR, FAR] {
        let place = if mac == NEAR { HERE } else { WAY };
        passed.stations.update(key(mac), at(place)).expect("there is room");
    }
    assert!(!tried.forwards(&one), "the way is closed");
    passed.ways.update(WAY.to_ne_bytes(), 1514_u32.to_ne_bytes()).expect("it is there");
    assert!(!tried.forwards(&one), "and leads nowhere");
}

/// A datagram or a segment of IPv4 or IPv6 with sound checksums, from the near station to the far one.
fn packet(version: u8, protocol: u8, length: usize) -> Vec<u8> {
    let mut frame = frame(FAR, NEAR, length);
    let transport = if version == 4 {
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol]);
        frame[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
        frame[24..34].copy_from_slice(&[0, 0, 10, 0, 0, 1, 10, 255, 255, 2]);
        34
    } else {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, protocol, 64]);
        frame[18..20].copy_from_slice(&(length as u16 - 54).to_be_bytes());
        frame[22..54].fill(0xfe);
        54
    };
    if protocol == UDP {
        let own = (length - transport) as u16;
        frame[transport + 4..transport + 6].copy_from_slice(&own.to_be_bytes());
    } else {
        frame[transport + 12] = 5 << 4;
    }
    checksum::fill(&mut frame);
    frame
}

#[test]
fn a_checksum_that_is_begun_is_left_to_the_socket_where_that_completes_it_and_no_other_is() {
    let (Some(careful), Some(plain)) = (Tried::new(ALL, true), Tried::new(ALL, false)) else { return };
    for (version, protocol) in [(4, TCP), (4, UDP), (6, TCP), (6, UDP)] {
        for length in 74..200 {
            let whole = packet(version, protocol, length);
            assert!(careful.forwards(&whole) && plain.forwards(&whole), "IPv{version}, {protocol}, {length}");
            // As a sender leaves it: the sum of the pseudo-header.
            let mut begun = whole.clone();
            let headers = crate::offload::headers::Headers::of(&begun).expect("it is a packet");
            let field = headers.checksum_at().expect("it has one");
            let sum = checksum::fold(checksum::pseudo_header(&begun, &headers, headers.segment(&begun).len()));
            begun[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            assert!(!careful.forwards(&begun) && plain.forwards(&begun), "IPv{version}, {protocol}, {length}");
            assert!(checksum::complete_if_begun(&mut begun) && begun == whole);
        }
    }
    // What is not looked into, or has nothing to be begun.
    let changed = |version, at: usize, value: u8| {
        let mut frame = packet(version, UDP, 100);
        frame[at] = value;
        frame
    };
    let all = [
        ("options", changed(4, 14, 0x46), false),
        ("a fragment behind others", changed(4, 21, 1), false),
        ("a fragment with others behind", changed(4, 20, 0x20), false),
        ("a packet shorter than its header", changed(4, 17, 19), false),
        ("ICMP", changed(4, 23, 1), true),
        ("ICMP of IPv6", changed(6, 20, 58), true),
        ("an extension of IPv6", changed(6, 20, 0), false),
        ("neither", frame(FAR, NEAR, 100), true),
        ("IPv6 without room for a transport", packet(6, UDP, 74)[..71].to_vec(), false),
    ];
    for (what, frame, forwards) in all {
        assert_eq!(careful.forwards(&frame), forwards, "{what}");
        assert!(plain.forwards(&frame), "{what}");
    }
}
