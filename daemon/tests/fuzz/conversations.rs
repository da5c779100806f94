//! Conversations with a port at a Unix socket, and what a peer that was let in writes into its memory.
//!
//! | input | what it says |
//! |---|---|
//! | a byte | how many messages come |
//! | for each a byte, and what a message of the kind takes | the kind of its descriptor, none from [`KINDS`] on; the message |
//! | the rest, in records | as of images: words of the peer's memory, and what the port does in between |
//!
//! Of each input: the port neither panics nor fails, gives no frame longer than one may be, and hangs up when its peer has; and the next
//! peer is served.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use conic_fabric::{Home, Layout, SynchronisingWords, Time};
use conic_native::Mapping;
use conic_port::{MAX_FRAME, Port, Receive, Transmit};
use rustix::net::SocketType;
use tempfile::TempDir;

use crate::image::{Said, read};
use crate::support::waiting::wait_until;
use crate::target::Target;
use crate::wire::{KINDS, Wire, descriptor};

/// Bytes of the peer's memory, and where its buffers lie in it.
pub const MEMORY: usize = 16_384;
pub const BUFFERS: u64 = 8192;

/// The kind of descriptor that is the peer's memory.
pub const OWN_MEMORY: u8 = 0x80;

/// Looks within which the port has hung up on a peer that is gone.
const LOOKS: usize = 100;

/// Actions.
pub const RECEIVE: u8 = 0;
pub const SEND: u8 = 1;
pub const ARM: u8 = 2;

/// A kind of port, and its language.
pub trait Language {
    type Port: Port;
    const SOCKET: SocketType;
    /// Bytes of a message in an input.
    const MESSAGE: usize;
    /// Frames that the sound peer sends.
    const FRAMES: u64;

    fn open(path: &Path) -> Self::Port;
    /// A message as it is said.
    fn say(message: &[u8]) -> Vec<u8>;
    /// What lies in a peer's memory when it comes.
    fn prepare(memory: &Mapping);
    /// The conversation of a peer that does everything right.
    fn sound() -> Vec<u8>;
}

pub struct Conversations<L: Language> {
    path: PathBuf,
    port: L::Port,
    now: Time,
    layout: Layout,
    frames: u64,
    sent: u64,
    joined: u64,
    _folder: TempDir,
}

impl<L: Language> Default for Conversations<L> {
    fn default() -> Conversations<L> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("peer.sock");
        let port = L::open(&path);
        let mut layout = Layout::new();
        layout.add("memory", MEMORY as u64, 4096, Home::Host, SynchronisingWords::NONE);
        let (now, frames, sent, joined) = (Time::ZERO, 0, 0, 0);
        Conversations { path, port, now, layout, frames, sent, joined, _folder: folder }
    }
}

impl<L: Language> Conversations<L> {
    /// Lets the port look at everything; whether it gave a frame. The time is late enough for it to look at its sockets each time.
    fn look(&mut self) -> bool {
        self.now += Time::from_nanoseconds(5_000_000);
        let mut frame = [0; MAX_FRAME];
        match self.port.receive(self.now, &mut frame).expect("it does not fail") {
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
                let sent = self.port.transmit(self.now, &frame).expect("it does not fail");
                self.sent += u64::from(sent == Transmit::Accepted);
                self.port.flush(self.now).expect("it does not fail");
            }
            ARM => self.port.arm(),
            _ => _ = (0..=value % 8).filter(|_| self.look()).count(),
        }
    }

    /// A connection. What was before may be on its way out, and nobody is let in while it is too much.
    fn connect(&mut self) -> Wire {
        let mut wire = None;
        wait_until("there is room for another peer", || {
            self.look();
            wire = Wire::connect(&self.path, L::SOCKET).ok();
            wire.is_some()
        });
        wire.expect("it was waited for")
    }

    /// A peer says these, and what the rest of the input says.
    fn converse(&mut self, input: &[u8]) {
        let wire = self.connect();
        let (memory, region) = Mapping::sealed(MEMORY).expect("memory");
        L::prepare(&memory);
        self.look();
        let (&count, rest) = input.split_first().unwrap_or((&0, &[]));
        let said = rest.chunks_exact(1 + L::MESSAGE).take(usize::from(count % 16));
        let records = &rest[said.len() * (1 + L::MESSAGE)..];
        let mut heard = [0; 256];
        for message in said {
            let with: Option<OwnedFd> = match message[0] {
                OWN_MEMORY.. => Some(region.try_clone().expect("a copy")),
                kind if kind < KINDS => Some(descriptor(kind, &self.layout)),
                _ => None,
            };
            wire.say(&L::say(&message[1..]), with.as_ref().map(AsFd::as_fd).as_slice());
            self.look();
            while wire.hear(&mut heard).is_some() {}
        }
        self.joined += u64::from(self.port.is_up());
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
            self.port.is_up()
        });
        assert!(looks.count() < LOOKS, "the port does not hang up on who is gone");
    }
}

impl<L: Language> Target for Conversations<L> {
    fn run(&mut self, input: &[u8]) {
        self.converse(input);
        let (mut frames, joined) = (0, self.joined);
        // As above; who is let in late has said its last word by then.
        wait_until("a sound peer is served", || {
            frames = self.frames;
            self.converse(&L::sound());
            self.joined > joined
        });
        assert_eq!(self.frames - frames, L::FRAMES, "a sound peer's frames behind it");
    }

    fn end(&mut self) -> String {
        format!("{} sessions, {} frames from peers, {} to them", self.joined, self.frames, self.sent)
    }
}
