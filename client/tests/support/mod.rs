//! A daemon that a test plays, message by message, and the NIC behind it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conic_client::{Client, Options, Queue};
use conic_control::{Attach, Attached, Extensions, Message, Name, VERSION, Wait, Welcome};
use conic_fabric::{Address, Core, LINE_BYTES};
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Descriptor, Features, Flags, Geometry, Headroom, Map, PhaseCredit, prepare};
use conic_native::channel::{Channel, Listener};
use conic_native::{KeptCore, Memory, NativeCore, Pages};

pub const SMALL: Geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };

/// The next message of a client.
pub fn hear(channel: &Channel) -> Message {
    loop {
        if let Some(received) = channel.receive().expect("the client is there") {
            return Message::decode(&received.bytes, received.descriptors.len()).expect("a message");
        }
        channel.wait(Duration::from_secs(1)).expect("the client is there");
    }
}

pub fn say(channel: &Channel, message: &Message) {
    channel.send(&message.encode(), &[]).expect("the client is there");
}

/// Welcomes the next client, as a daemon that has these extensions and speaks this version.
pub fn welcome(listener: &Listener, extensions: Extensions, version: u16) -> Channel {
    let channel = loop {
        match listener.accept().expect("a socket") {
            Some(channel) => break channel,
            None => conic_native::spin(),
        }
    };
    let Message::Hello(hello) = hear(&channel) else { panic!("a greeting") };
    let extensions = extensions.both(hello.extensions);
    let (most_queues, most_descriptors, most_bytes) = (1, SMALL.descriptors, u64::MAX);
    say(&channel, &Message::Welcome(Welcome { version, extensions, most_queues, most_descriptors, most_bytes }));
    channel
}

/// The NIC's side of what a client was given, with one queue.
pub struct Nic {
    nic: conic_interface::ccnic::Nic<KeptCore, PhaseCredit>,
    pub map: Map,
    /// What the client keeps of its buffers for itself, as it said.
    pub headroom: Headroom,
    pub notices: Notices,
    /// What the client is rung by.
    pub bell: OwnedFd,
    /// What the client kicks.
    pub kick: OwnedFd,
}

impl Nic {
    pub fn core(&self) -> &KeptCore {
        self.nic.core()
    }

    /// What the client has sent: each packet, whole, with its metadata.
    pub fn sent(&mut self) -> Vec<(Vec<u8>, u64)> {
        let mut packets = [Descriptor::BLANK; 64];
        let count = self.nic.poll_tx(&mut packets);
        let read = |segment: &Descriptor| {
            let mut bytes = vec![0; usize::from(segment.length())];
            self.nic.core().read_bytes(segment.address(), &mut bytes);
            bytes
        };
        let whole = packets[..count].split_inclusive(|segment| !segment.has(Flags::NEXT));
        let sent = whole.map(|packet| (packet.iter().flat_map(read).collect(), packet[0].metadata)).collect();
        self.nic.complete_tx(&packets[..count]);
        sent
    }

    /// Delivers packets, all at once.
    pub fn deliver(&mut self, packets: &[Vec<u8>]) {
        let place = |bytes: &Vec<u8>| {
            let at = self.allocate(bytes.len() as u64);
            self.nic.core().write_bytes(at, bytes);
            Descriptor::new(at, bytes.len() as u16)
        };
        let packets: Vec<Descriptor> = packets.iter().map(place).collect();
        self.deliver_at(&packets);
    }

    /// Delivers whatever these say.
    pub fn deliver_at(&mut self, packets: &[Descriptor]) {
        assert_eq!(self.nic.rx_burst(packets), packets.len(), "there is room");
    }

    /// Delivers the same packet as often as there is room for it.
    pub fn deliver_again_and_again(&mut self, packet: Descriptor) {
        while self.nic.rx_burst(&[packet; 32]) > 0 {}
    }

    /// A buffer for a packet of so many bytes.
    pub fn allocate(&mut self, bytes: u64) -> Address {
        self.nic.rx_alloc(bytes).expect("a buffer is free")
    }

    /// Makes each packet of a slot, which are four, go on.
    pub fn deny_ends(&mut self, slot: u64) {
        // Ordered as this thread does it: it is alone.
        let first = self.map.queues[0].receive.ring + slot * LINE_BYTES;
        for at in [0, 16, 32, 48].map(|word| first + word) {
            let mut said = Descriptor::BLANK;
            said.word = self.core().load_acquire(at);
            self.core().store_release(at, said.with(Flags::NEXT).word);
        }
    }

    /// What the client did that it should not have.
    pub fn faults(&self) -> u64 {
        self.nic.faults().total()
    }

    /// How many buffers of the region are free when this side keeps none.
    pub fn free(&mut self) -> u64 {
        self.nic.drain();
        self.map.pool.free(self.nic.core()).iter().sum()
    }
}

/// Gives a client that was welcomed what it wishes for, and says this of it.
pub fn give(channel: &Channel, say: impl FnOnce(&mut Attached)) -> Nic {
    let Message::Attach(wish) = hear(channel) else { panic!("a wish") };
    give_to(channel, &wish, say)
}

/// The same where the wish was heard already.
pub fn give_to(channel: &Channel, wish: &Attach, say: impl FnOnce(&mut Attached)) -> Nic {
    let map = Map::with_headroom(wish.geometry, Features::best(), wish.headroom).expect("a geometry that can be");
    let (map, notices) = Notices::in_map(map);
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    prepare(&NativeCore::new(&memory), &map);
    let mut attached = Attached {
        session: 1,
        geometry: map.geometry,
        features: map.features,
        bytes: map.layout.bytes(),
        mac: [2; 6],
        longest_frame: 9600,
        wait: Wait::Notify,
        fences: false,
        network: Name::default(),
        bells: 1,
    };
    say(&mut attached);
    let [kick, bell] = [(); 2].map(|()| UnixStream::pair().expect("two ends"));
    let passed = [memory.descriptor(), kick.1.as_fd(), bell.1.as_fd()];
    let passed = &passed[..2 + usize::from(attached.bells)];
    channel.send(&Message::Attached(attached).encode(), passed).expect("the client is there");
    let nic = conic_interface::ccnic::Nic::new(KeptCore::new(Arc::new(memory)), &map, 0);
    Nic { nic, map, headroom: wish.headroom, notices, bell: bell.0.into(), kick: kick.0.into() }
}

/// Lets the next client in, as a daemon that has these extensions.
pub fn let_in(listener: &Listener, extensions: Extensions) -> (Channel, Nic) {
    let channel = welcome(listener, extensions, VERSION);
    let nic = give(&channel, |_| {});
    (channel, nic)
}

/// A client of a daemon that is played, with its queue; the daemon's end of its connection, and the NIC.
pub fn attached(socket: &Path, listener: &Listener) -> (Client, Queue, Channel, Nic) {
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| let_in(listener, Extensions::KNOWN));
        let options = Options { geometry: SMALL, ..Options::default() };
        let (client, mut queues) = Client::attach(socket, &options).unwrap_or_else(|error| panic!("{error}"));
        let (channel, nic) = daemon.join().expect("it lets the client in");
        (client, queues.remove(0), channel, nic)
    })
}

/// Lets a client in again that has lost its connection.
pub fn come_back(client: &Client, listener: &Listener) -> (Channel, Nic) {
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| let_in(listener, Extensions::KNOWN));
        while client.maintain() == conic_client::Link::Down {}
        daemon.join().expect("it lets the client in")
    })
}
