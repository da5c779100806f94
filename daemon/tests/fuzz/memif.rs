//! Conversations with a memif server, and what a client that was let in writes into its memory.
//!
//! | input | what it says |
//! |---|---|
//! | a byte | how many messages come |
//! | for each a byte, and 128 | the kind of its descriptor, none from [`KINDS`] on; the message |
//! | the rest, in records | as of images: words of the client's memory, and what the server does in between |
//!
//! Of each input: the server neither panics nor fails, gives no frame longer than one may be, and hangs up when its client has; and the next
//! client is served.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use conic_fabric::{Home, Layout, SynchronisingWords, Time};
use conic_native::Mapping;
use conic_port::{MAX_FRAME, Memif, MemifOptions, Port, Receive, Transmit};
use tempfile::TempDir;

use crate::image::{RECORD, Recorder, Said, read};
use crate::support::waiting::wait_until;
use crate::target::Target;
use crate::wire::{KINDS, Wire, descriptor};

/// Bytes of a message.
const MESSAGE: usize = 128;

/// Bytes of the client's memory, and where its two rings, of eight slots, and its buffers lie in it.
const MEMORY: usize = 16_384;
const BACK: usize = 512;
const BUFFERS: u64 = 8192;

/// What begins every ring.
const COOKIE: u64 = 0x03e3_1f20;

/// The kind of descriptor that is the client's memory.
const OWN_MEMORY: u8 = 0x80;

/// Looks within which the server has hung up on a client that is gone.
const LOOKS: usize = 100;

/// Actions.
const RECEIVE: u8 = 0;
const SEND: u8 = 1;
const ARM: u8 = 2;

pub struct Conversations {
    path: PathBuf,
    server: Memif,
    now: Time,
    layout: Layout,
    frames: u64,
    sent: u64,
    joined: u64,
    _folder: TempDir,
}

impl Default for Conversations {
    fn default() -> Conversations {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("memif.sock");
        let server = Memif::open(&MemifOptions::new(path.to_str().expect("text"))).expect("a server");
        let mut layout = Layout::new();
        layout.add("memory", MEMORY as u64, 4096, Home::Host, SynchronisingWords::NONE);
        let (now, frames, sent, joined) = (Time::ZERO, 0, 0, 0);
        Conversations { path, server, now, layout, frames, sent, joined, _folder: folder }
    }
}

impl Conversations {
    /// Lets the server look at everything; whether it gave a frame. The time is late enough for it to look at its sockets each time.
    fn look(&mut self) -> bool {
        self.now += Time::from_nanoseconds(5_000_000);
        let mut frame = [0; MAX_FRAME];
        match self.server.receive(self.now, &mut frame).expect("memif does not fail") {
            Receive::Frame { length, .. } => {
                assert!((14..=MAX_FRAME).contains(&length), "a frame of {length} bytes");
                self.frames += 1;
                true
            }
            _ => false,
        }
    }

    fn act(&mut self, action: u8, value: u64) {
        match action {
            SEND => {
                let frame = vec![value as u8; 60 + value as usize % 9541];
                let sent = self.server.transmit(self.now, &frame).expect("memif does not fail");
                self.sent += u64::from(sent == Transmit::Accepted);
                self.server.flush(self.now).expect("memif does not fail");
            }
            ARM => self.server.arm(),
            _ => _ = (0..=value % 8).filter(|_| self.look()).count(),
        }
    }

    /// A connection. What was before may be on its way out, and nobody is let in while it is too much.
    fn connect(&mut self) -> Wire {
        let mut wire = None;
        wait_until("there is room for another client", || {
            self.look();
            wire = Wire::connect(&self.path).ok();
            wire.is_some()
        });
        wire.expect("it was waited for")
    }

    /// A client says these, and what the rest of the input says.
    fn converse(&mut self, input: &[u8]) {
        let wire = self.connect();
        let (memory, region) = Mapping::sealed(MEMORY).expect("memory");
        [0, BACK].into_iter().for_each(|ring| memory.store_u64(ring, COOKIE));
        self.look();
        let (&count, rest) = input.split_first().unwrap_or((&0, &[]));
        let said = rest.chunks_exact(1 + MESSAGE).take(usize::from(count % 16));
        let records = &rest[said.len() * (1 + MESSAGE)..];
        let mut heard = [0; 256];
        for message in said {
            let with: Option<OwnedFd> = match message[0] {
                OWN_MEMORY.. => Some(region.try_clone().expect("a copy")),
                kind if kind < KINDS => Some(descriptor(kind, &self.layout)),
                _ => None,
            };
            wire.say(&message[1..], with.as_ref().map(AsFd::as_fd).as_slice());
            self.look();
            while wire.hear(&mut heard).is_some() {}
        }
        self.joined += u64::from(self.server.is_connected());
        // The first record is only there to be like an image.
        let (_, records) = read(records);
        for one in records {
            match one {
                Said::Word(word, value) => memory.store_u64(8 * (word as usize % (MEMORY / 8)), value),
                Said::Action(action, value) => self.act(action, value),
            }
        }
        drop(wire);
        let looks = (0..LOOKS).take_while(|_| {
            self.look();
            self.server.is_connected()
        });
        assert!(looks.count() < LOOKS, "the server does not hang up on who is gone");
    }
}

impl Target for Conversations {
    fn run(&mut self, input: &[u8]) {
        self.converse(input);
        let (mut frames, joined) = (0, self.joined);
        // As above; who is let in late has said its last word by then.
        wait_until("a sound client is served", || {
            frames = self.frames;
            self.converse(&sound());
            self.joined > joined
        });
        assert_eq!(self.frames - frames, 4, "a sound client's frames behind it");
    }

    fn end(&mut self) -> String {
        format!("{} sessions, {} frames from clients, {} to them", self.joined, self.frames, self.sent)
    }
}

/// A message of a kind, with these bytes behind it.
fn message(kind: u16, descriptor: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut message = [&[descriptor][..], &kind.to_ne_bytes(), &fields.concat()].concat();
    message.resize(1 + MESSAGE, 0);
    message
}

/// The conversation of a client that does everything right, and sends four frames and takes four.
pub fn sound() -> Vec<u8> {
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
