//! Control messages with descriptors, said to a daemon, and to a client by what it takes for one.
//!
//! | input | what it says |
//! |---|---|
//! | a byte | who hears it: [`TO_DAEMON`], [`TO_CLIENT`] |
//! | for each message a byte, and that many | how many descriptors, more than there may be among them, and their kinds |
//! | two bytes, and that many | the message |
//!
//! Of each input: what is read as a message is written as the same; nobody panics; the daemon answers or hangs up, and a client that it
//! serves does not notice; the client ends with a session or an error. In the end no descriptor and no region is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use conic_client::{Client, Link, Options, Queue};
use conic_control::{
    Attach, Attached, Bells, Extensions, Hello, Message, Name, OLDEST, Reason, Refused, VERSION, Wait, Welcome,
};
use conic_daemon::{Daemon, DaemonError, Ended, Stop};
use conic_fabric::Layout;
use conic_interface::ccnic::{Features, Geometry, Headroom, Map, notify::Notices};
use conic_native::clock;
use conic_nicd::config::Config;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use tempfile::TempDir;

use crate::support::waiting::try_until;
use crate::support::{held, settled};
use crate::target::Target;
use crate::wire::{KINDS, MOST_DESCRIPTORS, Wire, descriptor};

pub const TO_DAEMON: u8 = 0;
pub const TO_CLIENT: u8 = 1;

const GEOMETRY: Geometry = Geometry { queues: 1, descriptors: 16, buffers: [16, 8, 0], object_bytes: 0 };

/// Kinds of descriptors, of [`descriptor`].
const REGION: u8 = 0;
const SOCKET: u8 = 1;
const UNSEALED: u8 = 2;
const SHORT: u8 = 3;

/// Of these, what may be a region: sealed, and as long as it must be.
const MEMORIES: [u8; 2] = [REGION, KINDS - 1];

/// How often the client that is served looks whether it still is.
const INPUTS_BETWEEN_LOOKS: u64 = 64;

/// One message, with the kinds of its descriptors.
struct Said<'a> {
    kinds: &'a [u8],
    bytes: &'a [u8],
}

fn read(mut input: &[u8]) -> Vec<Said<'_>> {
    let mut all = Vec::new();
    while let [count, rest @ ..] = input {
        let (kinds, rest) = rest.split_at((usize::from(*count) % (MOST_DESCRIPTORS + 1)).min(rest.len()));
        let [low, high, rest @ ..] = rest else { break };
        let length = usize::from(u16::from_le_bytes([*low, *high])).clamp(1, 1 << 15);
        let (bytes, rest) = rest.split_at(length.min(rest.len()));
        if bytes.is_empty() {
            break;
        }
        all.push(Said { kinds, bytes });
        input = rest;
    }
    all
}

/// A conversation as an input.
fn write(to: u8, said: &[(Message, &[u8])]) -> Vec<u8> {
    let mut input = vec![to];
    for (message, kinds) in said {
        let bytes = message.encode();
        input.push(kinds.len() as u8);
        input.extend_from_slice(kinds);
        input.extend((bytes.len() as u16).to_le_bytes());
        input.extend(bytes);
    }
    input
}

/// Conversations in which nobody says anything wrong, and such as differ from these in their descriptors.
pub fn sound() -> Vec<(&'static str, Vec<u8>)> {
    let name = |text: &str| Name::new(text).expect("a name");
    let hello = Message::Hello(Hello { versions: (OLDEST, VERSION), extensions: Extensions::KNOWN, name: name("x") });
    let attach =
        |mac| Message::Attach(Attach { geometry: GEOMETRY, headroom: Headroom::NONE, network: Name::default(), mac });
    let address = Message::Address { mac: [2, 9, 9, 9, 9, 9], granted: false };
    let promiscuous = Message::Promiscuous { on: true, granted: false };
    let question = Message::Query("{\"ask\":\"list\"}".to_owned());
    let welcome = Message::Welcome(Welcome {
        version: VERSION,
        extensions: Extensions::KNOWN,
        most_queues: 4,
        most_descriptors: 64,
        most_bytes: 1 << 30,
    });
    let attached = |bells| {
        Message::Attached(Attached {
            session: 1,
            geometry: GEOMETRY,
            features: Features::best(),
            bytes: layout().bytes(),
            mac: [2; 6],
            longest_frame: 9600,
            wait: Wait::Notify,
            fences: false,
            network: Name::default(),
            bells,
        })
    };
    let refused = Message::Refused(Refused { reason: Reason::Faults, text: "too many faults".to_owned() });
    let (given, bell): (&[u8], &[u8]) = (&[REGION, SOCKET, SOCKET], &[SOCKET]);
    let bells = Message::Bells(Bells { first: 0, count: 1 });
    vec![
        // What is wrong with these is what comes with them.
        ("unsealed", write(TO_CLIENT, &[(welcome.clone(), &[]), (attached(1), &[UNSEALED, SOCKET, SOCKET])])),
        ("short", write(TO_CLIENT, &[(welcome.clone(), &[]), (attached(1), &[SHORT, SOCKET, SOCKET])])),
        ("none", write(TO_CLIENT, &[(welcome.clone(), &[]), (attached(1), &[])])),
        ("too-many", write(TO_CLIENT, &[(welcome.clone(), &[SOCKET; 20]), (attached(1), given)])),
        ("with-region", write(TO_DAEMON, &[(hello.clone(), given), (attach(None), given)])),
        ("attach", write(TO_DAEMON, &[(hello.clone(), &[]), (attach(None), &[]), (Message::Longest(3000), &[])])),
        ("address", write(TO_DAEMON, &[(hello.clone(), &[]), (attach(Some([2, 7, 7, 7, 7, 7])), &[]), (address, &[])])),
        ("promiscuous", write(TO_DAEMON, &[(hello.clone(), &[]), (attach(None), &[]), (promiscuous, &[])])),
        ("detach", write(TO_DAEMON, &[(hello.clone(), &[]), (attach(None), &[]), (Message::Detach, &[])])),
        ("question", write(TO_DAEMON, &[(hello, &[]), (question, &[])])),
        ("given", write(TO_CLIENT, &[(welcome.clone(), &[]), (attached(1), given)])),
        ("bells", write(TO_CLIENT, &[(welcome.clone(), &[]), (attached(0), &given[..2]), (bells, bell)])),
        ("refused", write(TO_CLIENT, &[(welcome.clone(), &[]), (refused.clone(), &[])])),
        ("sent-away", write(TO_CLIENT, &[(welcome, &[]), (attached(1), given), (refused, &[])])),
    ]
}

fn layout() -> Layout {
    let map = Map::new(GEOMETRY, Features::best()).expect("a geometry that can be");
    Notices::in_map(map).0.layout
}

/// A daemon in this process, a client of it, and a socket at which somebody listens who is none.
pub struct Control {
    socket: PathBuf,
    played: PathBuf,
    listener: OwnedFd,
    stop: Stop,
    daemon: Option<std::thread::JoinHandle<Result<Ended, DaemonError>>>,
    client: Client,
    _queues: Vec<Queue>,
    layout: Layout,
    baseline: (usize, usize),
    inputs: u64,
    sessions: u64,
    refused: u64,
    read: u64,
    _folder: TempDir,
}

impl Default for Control {
    fn default() -> Control {
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, played) = (folder.path().join("nic.sock"), folder.path().join("played.sock"));
        let config = Config { socket: socket.clone(), ..Config::default() }.checked().expect("a sound configuration");
        let stop = Stop::new().expect("a descriptor");
        let daemon = Daemon::start(config, stop.clone(), Box::new(|_| {})).expect("it starts");
        let daemon = Some(std::thread::spawn(move || daemon.run()));
        let options = Options { geometry: GEOMETRY, ..Options::default() };
        let (client, _queues) = Client::attach(&socket, &options).expect("the daemon lets it in");
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&played).expect("a path")).expect("a folder");
        listen(&listener, 8).expect("a socket");
        crate::support::waiting::wait_until("a region is kept for the next one", || held().1 == 3);
        Control {
            socket,
            played,
            listener,
            stop,
            daemon,
            client,
            _queues,
            layout: layout(),
            baseline: settled(),
            inputs: 0,
            sessions: 0,
            refused: 0,
            read: 0,
            _folder: folder,
        }
    }
}

impl Control {
    fn say(&self, wire: &Wire, said: &[Said<'_>]) {
        for one in said {
            let with: Vec<OwnedFd> = one.kinds.iter().map(|&kind| descriptor(kind, &self.layout)).collect();
            let with: Vec<BorrowedFd<'_>> = with.iter().map(AsFd::as_fd).collect();
            if !wire.say(one.bytes, &with) {
                break;
            }
        }
        wire.say_no_more();
    }

    fn daemon_hears(&mut self, said: &[Said<'_>]) {
        let wire = Wire::connect(&self.socket, SocketType::SEQPACKET).expect("it listens");
        self.say(&wire, said);
        wire.hear_out();
        if self.inputs.is_multiple_of(INPUTS_BETWEEN_LOOKS) {
            assert_eq!((self.client.maintain(), self.client.reconnects()), (Link::Up, 0), "the daemon's client");
        }
    }

    fn client_hears(&mut self, said: &[Said<'_>]) {
        let options =
            Options { geometry: GEOMETRY, reconnect: false, patience: Duration::from_secs(5), ..Options::default() };
        let attached = std::thread::scope(|scope| {
            let client = scope.spawn(|| Client::attach(&self.played, &options));
            let wire = Wire::of(accept_with(&self.listener, SocketFlags::CLOEXEC).expect("the client calls"));
            self.say(&wire, said);
            // Its end is the client's word that it has heard enough.
            client.join().expect("a client does not panic")
        });
        let Ok((client, mut queues)) = attached else {
            self.refused += 1;
            return;
        };
        self.sessions += 1;
        let is_memory = |one: &Said<'_>| one.kinds.first().is_some_and(|kind| MEMORIES.contains(&(kind % KINDS)));
        assert!(said.iter().any(is_memory), "a client took what is no region for one");
        let _ = client.limit_packets(3000);
        assert_eq!(client.maintain(), Link::Down, "the daemon is gone");
        let mut incoming = Vec::new();
        for queue in &mut queues {
            queue.receive(&mut incoming, 32);
            let mut outgoing: Vec<_> = queue.allocate(100).into_iter().collect();
            queue.transmit(&mut outgoing);
        }
    }
}

impl Target for Control {
    fn run(&mut self, input: &[u8]) {
        let Some((to, rest)) = input.split_first() else { return };
        let said = read(rest);
        for one in &said {
            for descriptors in [0, one.kinds.len()] {
                if let Ok(message) = Message::decode(one.bytes, descriptors) {
                    assert_eq!(message.descriptors(), descriptors, "{message:?}");
                    assert_eq!(Message::decode(&message.encode(), descriptors).as_ref(), Ok(&message));
                    self.read += 1;
                }
            }
        }
        self.inputs += 1;
        if to % 2 == TO_CLIENT { self.client_hears(&said) } else { self.daemon_hears(&said) }
    }

    fn end(&mut self) -> String {
        let begun = clock::now();
        // The region that is kept for the next client is not there when the last one has taken it and was let go.
        let (descriptors, regions) = self.baseline;
        let is_left = || matches!(held(), (one, other) if one > descriptors || other > regions);
        let closed = try_until("all is closed", || !is_left());
        closed.unwrap_or_else(|why| panic!("{why}: {:?} instead of {:?}", held(), self.baseline));
        let seconds = clock::now().since(begun).seconds();
        let Control { sessions, refused, read, .. } = *self;
        assert!(sessions > 2 && refused > 10, "{sessions} sessions, {refused} refused: too coarse");
        format!(
            "{read} messages read; clients had {sessions} sessions and refused {refused}; all closed after {seconds:.1} s"
        )
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(daemon) = self.daemon.take() {
            let ended = daemon.join();
            assert!(std::thread::panicking() || matches!(ended, Ok(Ok(_))), "the daemon ended in {ended:?}");
        }
    }
}
