//! Frames between two ports that the kernel forwards itself: the program's way past the socket, and the tables that it looks into.
//!
//! | a frame goes past the socket if | else |
//! |---|---|
//! | it came by a queue that has a socket | it is the network stack's, as ever |
//! | it lies in one buffer, has at least 60 bytes and at most what the other interface takes, and no VLAN tag | to the socket |
//! | with `complete-checksums`: its checksum is not begun, as far as a look at the fixed headers tells | to the socket, where it is completed |
//! | its source is known to be behind this port: learning and moving are the switch's | to the socket |
//! | its destination is known behind another port | to the socket, which also has all that is for many |
//! | the way to that port is open: no policy asks to see the frame | to the socket |
//! | that port's interface is there | to the socket |
//!
//! | map | key | value | whose it is |
//! |---|---|---|---|
//! | stations | MAC address, two zero bytes | the port behind which it is, or [`HERE`]; whether a frame came from it | the switch's but for the mark |
//! | ways | a port | bytes of the longest frame that goes there; 0: none does | the switch's |
//! | devices | a port | its interface | the switch's |
//! | counts | a port | frames and bytes that went there, of each processor | the program's |
//!
//! Each port has its own: what a port forwards depends on nobody else's map, goes when it goes, and is passed on with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::assembly::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use super::assembly::{Assembly, Helper, Instruction, Label, Sum, When, Width};
use super::bpf::{Map, MapKind};
use crate::forwarding::PORTS;
use crate::offload::headers::{ETHERNET_HEADER, TCP, UDP, VLAN_TYPES};
use crate::{MAX_FRAME, MIN_FRAME};

/// `XDP_PASS`: to the network stack.
const PASS: i32 = 2;
/// `XDP_REDIRECT`: what the kernel was asked for is done behind the program.
pub(super) const REDIRECT: i32 = 4;

/// Where `struct xdp_md` has what a program is told of a packet.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// What stands for a port where a station is behind the port that asks.
pub(super) const HERE: u32 = u32::MAX;

/// Stations that a port knows at most: as many as a switch remembers.
const STATIONS: u32 = 4096;

/// Where a station's mark lies in its value.
const MARK: i16 = 4;

/// The stack: a MAC address and two zero bytes, and below them a port.
const ADDRESS: i16 = -8;
const PORT: i16 = -12;

/// What the program looks into.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) stations: Map<8, 8>,
    pub(super) ways: Map<4, 4>,
    pub(super) devices: Map<4, 4>,
    pub(super) counts: Map<4, 16>,
}

/// How many descriptors they are.
pub(super) const TABLES: usize = 4;

impl Tables {
    pub(super) fn create() -> io::Result<Tables> {
        Ok(Tables {
            stations: Map::create(MapKind::Hash, STATIONS, "conic_stations")?,
            ways: Map::create(MapKind::Array, PORTS, "conic_ways")?,
            devices: Map::create(MapKind::Devices, PORTS, "conic_devices")?,
            counts: Map::create(MapKind::ArrayOfEach, PORTS, "conic_counts")?,
        })
    }

    /// Those of another process, in which nothing is known any more.
    pub(super) fn of_descriptors([stations, ways, devices, counts]: [OwnedFd; TABLES]) -> io::Result<Tables> {
        let tables = Tables {
            stations: Map::of_descriptor(stations),
            ways: Map::of_descriptor(ways),
            devices: Map::of_descriptor(devices),
            counts: Map::of_descriptor(counts),
        };
        for port in 0..PORTS {
            tables.ways.update(port.to_ne_bytes(), [0; 4])?;
            tables.devices.remove(port.to_ne_bytes())?;
        }
        tables.stations.clear()?;
        Ok(tables)
    }

    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; TABLES] {
        [self.stations.as_fd(), self.ways.as_fd(), self.devices.as_fd(), self.counts.as_fd()]
    }
}

/// The queues of an interface that have sockets: the first, and how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queues {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// `return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS)`, with R6 the context: a packet of a queue that has a socket
/// goes to it, any other to the kernel's network stack.
pub(super) fn to_the_socket(program: &mut Assembly, sockets: BorrowedFd<'_>) {
    program.load(Width::Word4, R2, R6, QUEUE);
    program.map(R1, sockets);
    program.compute_constant(Sum::Move, R3, PASS);
    program.call(Helper::RedirectMap);
    program.exit();
}

/// The whole program of a port that forwards in the kernel. R6 is the context, R9 the packet's length; R7 is the packet, then where it
/// goes; R8 is what is known of its source.
pub(super) fn instructions(
    sockets: BorrowedFd<'_>,
    tables: &Tables,
    queues: Queues,
    begun_checksums_to_socket: bool,
) -> Vec<Instruction> {
    let mut program = Assembly::default();
    let (socket, done) = (program.label(), program.label());
    program.compute(Sum::Move, R6, R1);
    only_whole_frames(&mut program, queues, socket);
    if begun_checksums_to_socket {
        only_finished_checksums(&mut program, socket);
    }
    let at = ETHERNET_ADDRESS as i16;
    program.store_constant(Width::Word8, R10, ADDRESS, 0);
    look_up_station(&mut program, tables, at, socket);
    program.load(Width::Word4, R1, R0, 0);
    program.compute_constant(Sum::Move, R2, -1);
    // HERE, as a load of 32 bits gives it.
    program.compute_constant(Sum::ShiftRight, R2, 32);
    program.jump_when(R1, When::Differs, R2, socket);
    program.compute(Sum::Move, R8, R0);
    look_up_station(&mut program, tables, 0, socket);
    program.load(Width::Word4, R7, R0, 0);
    program.jump_when_constant(R7, When::AtLeast, PORTS as i32, socket);
    program.store(Width::Word4, R10, PORT, R7);
    look_up(&mut program, tables.ways.as_fd(), PORT, socket);
    program.load(Width::Word4, R1, R0, 0);
    program.jump_when(R9, When::Greater, R1, socket);
    program.map(R1, tables.devices.as_fd());
    program.compute(Sum::Move, R2, R7);
    program.compute_constant(Sum::Move, R3, PASS);
    program.call(Helper::RedirectMap);
    program.jump_when_constant(R0, When::Differs, REDIRECT, socket);
    count(&mut program, tables, done);
    program.load(Width::Word4, R1, R8, MARK);
    // Written once between two looks at it: other processors read it with each frame.
    program.jump_when_constant(R1, When::Differs, 0, done);
    program.store_constant(Width::Word4, R8, MARK, 1);
    program.set(done);
    program.compute_constant(Sum::Move, R0, REDIRECT);
    program.exit();
    program.set(socket);
    to_the_socket(&mut program, sockets);
    program.finish()
}

/// Bytes of an Ethernet address.
const ETHERNET_ADDRESS: usize = 6;

/// Goes on with a packet of one of the queues, in one piece, of a frame's length, without a tag; R7 is it, R9 its length.
fn only_whole_frames(program: &mut Assembly, queues: Queues, socket: Label) {
    program.load(Width::Word4, R1, R6, QUEUE);
    program.jump_when_constant(R1, When::Less, queues.first as i32, socket);
    program.jump_when_constant(R1, When::AtLeast, (queues.first + queues.count) as i32, socket);
    program.compute(Sum::Move, R1, R6);
    program.call(Helper::BufferLength);
    program.compute(Sum::Move, R9, R0);
    program.jump_when_constant(R9, When::Greater, MAX_FRAME as i32, socket);
    program.load(Width::Word4, R7, R6, DATA);
    program.load(Width::Word4, R3, R6, DATA_END);
    // In several buffers, all of it is longer than what lies in the first.
    program.compute(Sum::Move, R4, R7);
    program.compute(Sum::Plus, R4, R9);
    program.jump_when(R4, When::Greater, R3, socket);
    program.compute(Sum::Move, R4, R7);
    program.compute_constant(Sum::Plus, R4, MIN_FRAME as i32);
    program.jump_when(R4, When::Greater, R3, socket);
    program.load(Width::Word2, R4, R7, KIND);
    for kind in VLAN_TYPES {
        program.jump_when_constant(R4, When::Equal, kind.to_be().into(), socket);
    }
}

/// Where a frame says what it carries, and where that begins.
const KIND: i16 = 2 * ETHERNET_ADDRESS as i16;
const NETWORK: i16 = ETHERNET_HEADER as i16;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ICMP_OF_IPV6: u8 = 58;

/// Goes on with a frame whose transport checksum is not the sum of its pseudo-header alone, as a sender leaves one that expects its
/// hardware to complete it (`checksum::complete_if_begun`). What is not seen at a glance goes to the socket: IPv4 with options or in
/// fragments, IPv6 with extension headers. R3 is the packet's end.
fn only_finished_checksums(program: &mut Assembly, socket: Label) {
    let (six, compare, finished) = (program.label(), program.label(), program.label());
    program.jump_when_constant(R4, When::Equal, IPV6.to_be().into(), six);
    program.jump_when_constant(R4, When::Differs, IPV4.to_be().into(), finished);
    const FOUR: i16 = NETWORK + 20;
    program.load(Width::Byte, R1, R7, NETWORK);
    // Version 4, five words of header.
    program.jump_when_constant(R1, When::Differs, 0x45, socket);
    program.load(Width::Word2, R1, R7, NETWORK + 6);
    program.compute_constant(Sum::And, R1, 0x3fff_u16.to_be().into());
    program.jump_when_constant(R1, When::Differs, 0, socket);
    program.load(Width::Byte, R1, R7, NETWORK + 9);
    // The length of what is summed: all but the header.
    program.load(Width::Word2, R4, R7, NETWORK + 2);
    program.swap_to_network(R4);
    program.jump_when_constant(R4, When::Less, 20, socket);
    program.compute_constant(Sum::Plus, R4, -20);
    sum_words(program, NETWORK + 12, 2);
    checksum_field(program, FOUR, finished, compare);
    program.set(six);
    const SIX: i16 = NETWORK + 40;
    // With room for either transport's checksum.
    program.compute(Sum::Move, R1, R7);
    program.compute_constant(Sum::Plus, R1, i32::from(SIX) + 18);
    program.jump_when(R1, When::Greater, R3, socket);
    program.load(Width::Byte, R1, R7, NETWORK + 6);
    program.jump_when_constant(R1, When::Equal, ICMP_OF_IPV6.into(), finished);
    program.load(Width::Word2, R4, R7, NETWORK + 4);
    program.swap_to_network(R4);
    sum_words(program, NETWORK + 8, 8);
    let extended = socket;
    checksum_field(program, SIX, extended, compare);
    program.set(compare);
    // R2 is the sum, R8 the field.
    fold(program);
    program.jump_when(R2, When::Equal, R8, socket);
    program.set(finished);
}

/// R2 = the sum of the pseudo-header: so many words of 32 bits from `at` on, the protocol in R1, the length in R4. The sum does not
/// depend on the byte order, but for that of its result.
fn sum_words(program: &mut Assembly, at: i16, words: i16) {
    program.compute(Sum::Move, R2, R1);
    program.swap_to_network(R2);
    program.swap_to_network(R4);
    program.compute(Sum::Plus, R2, R4);
    for word in 0..words {
        program.load(Width::Word4, R4, R7, at + 4 * word);
        program.compute(Sum::Plus, R2, R4);
    }
}

/// R8 = the checksum of the transport that R1 says, whose header is at `at`; another goes on at `other`, these at `compare`.
fn checksum_field(program: &mut Assembly, at: i16, other: Label, compare: Label) {
    let datagram = program.label();
    program.jump_when_constant(R1, When::Equal, UDP.into(), datagram);
    program.jump_when_constant(R1, When::Differs, TCP.into(), other);
    program.load(Width::Word2, R8, R7, at + 16);
    program.jump(compare);
    program.set(datagram);
    program.load(Width::Word2, R8, R7, at + 6);
    program.jump(compare);
}

/// R2 folded to 16 bits, as `checksum::fold` does it; R1 is spoilt.
fn fold(program: &mut Assembly) {
    // Of ten words of at most 32 bits: each step leaves a smaller sum, the third at most 16 bits and a carry, the fourth none.
    for _ in 0..4 {
        program.compute(Sum::Move, R1, R2);
        program.compute_constant(Sum::ShiftRight, R1, 16);
        program.compute_constant(Sum::And, R2, 0xffff);
        program.compute(Sum::Plus, R2, R1);
    }
}

/// R0 = what is known of the station whose address is at `at` in the packet; where that is nothing, goes on there.
fn look_up_station(program: &mut Assembly, tables: &Tables, at: i16, unknown: Label) {
    program.load(Width::Word4, R1, R7, at);
    program.store(Width::Word4, R10, ADDRESS, R1);
    program.load(Width::Word2, R1, R7, at + 4);
    program.store(Width::Word2, R10, ADDRESS + 4, R1);
    look_up(program, tables.stations.as_fd(), ADDRESS, unknown);
}

/// R0 = the value in a map of the key at `key` of the stack; where there is none, goes on there.
fn look_up(program: &mut Assembly, map: BorrowedFd<'_>, key: i16, none: Label) {
    program.compute(Sum::Move, R2, R10);
    program.compute_constant(Sum::Plus, R2, key.into());
    program.map(R1, map);
    program.call(Helper::LookUp);
    program.jump_when_constant(R0, When::Equal, 0, none);
}

/// Counts a packet of R9 bytes on its way to the port on the stack. Nothing else runs on this processor meanwhile.
fn count(program: &mut Assembly, tables: &Tables, done: Label) {
    look_up(program, tables.counts.as_fd(), PORT, done);
    program.load(Width::Word8, R1, R0, 0);
    program.compute_constant(Sum::Plus, R1, 1);
    program.store(Width::Word8, R0, 0, R1);
    program.load(Width::Word8, R1, R0, 8);
    program.compute(Sum::Plus, R1, R9);
    program.store(Width::Word8, R0, 8, R1);
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;
