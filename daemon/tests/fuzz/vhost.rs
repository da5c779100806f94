//! vhost-user's messages: of a frontend, to the backend.
//!
//! | bytes of a message | what |
//! |---|---|
//! | 0 | the request |
//! | 1 | flags beside the version's |
//! | 2 | bytes that follow the header, at most 40 |
//! | 3.. | these |

use std::path::Path;

use conic_native::Mapping;
use conic_port::{VhostOptions, VhostUser};
use rustix::net::SocketType;

use crate::conversations::{ARM, BUFFERS, Language, MEMORY, OWN_MEMORY, RECEIVE, SEND};
use crate::image::{RECORD, Recorder};
use crate::wire::KINDS;

/// Bytes of the longest message of the sound frontend, behind its header.
const BODY: usize = 40;

/// Where the memory begins for the guest and for the frontend.
const BEGIN: u64 = 0x10_0000;

/// Slots of a ring, and where the parts of the two lie: descriptors, and from there what is available and what is used.
const SLOTS: u64 = 8;
const RINGS: [u64; 2] = [0, 1024];
const AVAILABLE: u64 = 256;
const USED: u64 = 512;

/// Packed rings.
const PACKED: u64 = 1 << 34;

/// All that is written is logged, and by which address a ring's used part is.
const LOG_ALL: u64 = 1 << 26;
const LOGGED: u64 = 1 << 32;

/// Merged buffers, indirect descriptors, and the protocol's features, with version 1.
const FEATURES: u64 = 1 << 15 | 1 << 28 | 1 << 30 | 1 << 32;

pub struct OfVhost;

impl Language for OfVhost {
    type Port = VhostUser;
    const SOCKET: SocketType = SocketType::STREAM;
    const MESSAGE: usize = 3 + BODY;
    const FRAMES: u64 = 4;

    fn open(path: &Path) -> VhostUser {
        let options = VhostOptions::new(path.to_str().expect("text"));
        VhostUser::open(&VhostOptions { queues: 2, offload: true, ..options }).expect("a port")
    }

    fn say(message: &[u8]) -> Vec<u8> {
        let bytes = usize::from(message[2]).min(BODY);
        let header = [message[0].into(), 1 | u32::from(message[1]), bytes as u32].map(u32::to_ne_bytes);
        [header.as_flattened(), &message[3..3 + bytes]].concat()
    }

    fn prepare(_memory: &Mapping) {}

    /// Sends four frames, one of them in two pieces, and takes four.
    fn sound() -> Vec<u8> {
        [said(FEATURES, 0), records()].concat()
    }
}

impl OfVhost {
    /// What sound peers say: with rings of either kind, and the same of a machine that has come and goes again, whose log is kept.
    pub fn all() -> Vec<(&'static str, Vec<u8>)> {
        let split = |features| [said(FEATURES | features, 0), records()].concat();
        let packed = |features| [said(FEATURES | PACKED | features, 1 << 15), packed_records()].concat();
        vec![
            ("sound", split(0)),
            ("packed", packed(0)),
            ("migrating", split(LOG_ALL)),
            ("migrating-packed", packed(LOG_ALL)),
        ]
    }
}

/// What is said until both rings, which begin at this position, are in use.
fn said(features: u64, base: u64) -> Vec<u8> {
    const NONE: u8 = KINDS;
    const EVENTFD: u8 = 4;
    const SEALED: u8 = 9;
    let log = if features & LOG_ALL == 0 { 0 } else { LOGGED };
    let mut said = vec![0];
    let mut say = |request: u8, descriptor: u8, words: &[u64]| {
        said.extend([descriptor, request, 0, 8 * words.len() as u8]);
        said.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        said.resize(said.len() + BODY - 8 * words.len(), 0);
        said[0] += 1;
    };
    say(2, NONE, &[features]);
    say(16, NONE, &[1 << 15]);
    if log > 0 {
        say(6, SEALED, &[1 << 16, 1 << 15]);
    }
    say(37, OWN_MEMORY, &[0, BEGIN, MEMORY as u64, BEGIN, 0]);
    for (ring, begin) in (0..).zip(RINGS) {
        let at = BEGIN + begin;
        say(8, NONE, &[ring | SLOTS << 32]);
        say(9, NONE, &[ring | log, at, at + USED, at + AVAILABLE, if log > 0 { at + USED } else { 0 }]);
        if base > 0 {
            say(10, NONE, &[ring | base << 32]);
        }
        if log == 0 {
            say(13, EVENTFD, &[ring]);
        }
        say(12, EVENTFD, &[ring]);
        say(18, NONE, &[ring | 1 << 32]);
    }
    if log > 0 {
        say(19, NONE, &[2]);
    }
    said
}

/// Descriptors of both rings, the first of a chain last; then frames go.
fn packed_records() -> Vec<u8> {
    const AVAILABLE: u64 = 128 << 48;
    const NEXT: u64 = 1 << 48;
    const WRITE: u64 = 2 << 48;
    let mut records = Recorder::new(0);
    for number in (0..SLOTS).rev() {
        let buffer = BEGIN + BUFFERS + 512 * number;
        let goes_on = if number == 2 { NEXT } else { 0 };
        for (ring, word) in [(0, WRITE | 512), (1, goes_on | (72 + number))] {
            let at = (RINGS[ring] + 16 * number) / 8;
            records.word(at, buffer);
            records.word(at + 1, AVAILABLE | number << 32 | word);
        }
    }
    for number in 0..4 {
        records.action(RECEIVE, 1);
        records.action(SEND, 100 * number);
    }
    records.action(ARM, 0);
    records.action(RECEIVE, 7);
    assert_eq!(records.input.len() % RECORD, 0);
    records.input
}

fn records() -> Vec<u8> {
    const NEXT: u64 = 1 << 32;
    const WRITE: u64 = 2 << 32;
    let mut records = Recorder::new(0);
    for number in 0..SLOTS {
        let buffer = BEGIN + BUFFERS + 512 * number;
        records.word((RINGS[0] + 16 * number) / 8, buffer);
        records.word((RINGS[0] + 16 * number) / 8 + 1, WRITE | 512);
        records.word((RINGS[1] + 16 * number) / 8, buffer);
        let goes_on = if number == 2 { NEXT | 3 << 48 } else { 0 };
        records.word((RINGS[1] + 16 * number) / 8 + 1, goes_on | (72 + number));
    }
    // What is available: flags, index, the numbers of the first two slots; of four more; of the last two.
    let available = |ring: usize, index: u64| ((RINGS[ring] + AVAILABLE) / 8, index << 16 | 1 << 48);
    let (word, all) = available(0, SLOTS);
    records.word(word + 1, 5 << 48 | 4 << 32 | 3 << 16 | 2);
    records.word(word + 2, 7 << 16 | 6);
    records.word(word, all);
    records.word(available(1, 0).0 + 1, 4 << 16 | 2);
    for number in 0..4 {
        let (word, index) = available(1, number + 1);
        records.word(word, index);
        records.action(RECEIVE, 1);
        records.action(SEND, 100 * number);
    }
    records.action(ARM, 0);
    records.action(RECEIVE, 7);
    assert_eq!(records.input.len() % RECORD, 0);
    records.input
}
