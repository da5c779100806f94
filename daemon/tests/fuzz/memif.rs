//! memif's messages: of a client, to a server.

use std::path::Path;

use conic_native::Mapping;
use conic_port::{Memif, MemifOptions};
use rustix::net::SocketType;

use crate::conversations::{ARM, BUFFERS, Language, MEMORY, OWN_MEMORY, RECEIVE, SEND};
use crate::image::{RECORD, Recorder};
use crate::wire::KINDS;

/// Bytes of a message.
const MESSAGE: usize = 128;

/// Where the second of the client's rings, of eight slots, lies.
const BACK: usize = 512;

/// What begins every ring.
const COOKIE: u64 = 0x03e3_1f20;

pub struct OfMemif;

impl Language for OfMemif {
    type Port = Memif;
    const SOCKET: SocketType = SocketType::SEQPACKET;
    const MESSAGE: usize = MESSAGE;
    const FRAMES: u64 = 4;

    fn open(path: &Path) -> Memif {
        Memif::open(&MemifOptions::new(path.to_str().expect("text"))).expect("a server")
    }

    fn say(message: &[u8]) -> Vec<u8> {
        message.to_vec()
    }

    fn prepare(memory: &Mapping) {
        [0, BACK].into_iter().for_each(|ring| memory.store_u64(ring, COOKIE));
    }

    fn sound() -> Vec<u8> {
        sound()
    }
}

/// A message of a kind, with these bytes behind it.
fn message(kind: u16, descriptor: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut message = [&[descriptor][..], &kind.to_ne_bytes(), &fields.concat()].concat();
    message.resize(1 + MESSAGE, 0);
    message
}

/// The conversation of a client that does everything right, and sends four frames and takes four.
fn sound() -> Vec<u8> {
    const NONE: u8 = KINDS;
    let ring = |to_server: u16, offset: usize| {
        let fields: [&[u8]; 6] =
            [&to_server.to_ne_bytes(), &[0; 2], &[0; 2], &(offset as u32).to_ne_bytes(), &[3], &[0; 2]];
        message(5, 4, &fields)
    };
    let mut said = vec![5];
    said.extend(message(3, NONE, &[&0x200_u16.to_ne_bytes(), &[0; 4], &[0], &[0; 24], b"test"]));
    said.extend(message(4, OWN_MEMORY, &[&[0; 2], &(MEMORY as u64).to_ne_bytes()]));
    said.extend(ring(1, 0));
    said.extend(ring(0, BACK));
    said.extend(message(6, NONE, &[b"test"]));
    let mut records = Recorder::new(0);
    // Empty buffers for what comes, and a packet of two descriptors among those that go.
    let slot = |ring: usize, slot: u64| (ring as u64 + 128) / 8 + 2 * slot;
    for number in 0..8 {
        records.word(slot(BACK, number), 2048 << 32);
        records.word(slot(BACK, number) + 1, BUFFERS + 512 * number);
    }
    records.word(BACK as u64 / 8, COOKIE | 8 << 48);
    for number in 0..5 {
        let goes_on = u64::from(number == 2);
        records.word(slot(0, number), goes_on | (60 + number) << 32);
        records.word(slot(0, number) + 1, BUFFERS + 512 * number);
        records.word(0, COOKIE | (number + 1) << 48);
        records.action(RECEIVE, 1);
        records.action(SEND, 100 * number);
    }
    records.action(ARM, 0);
    records.action(RECEIVE, 7);
    assert_eq!(records.input.len() % RECORD, 0);
    said.extend(records.input);
    said
}
