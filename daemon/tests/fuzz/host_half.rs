//! Images of a region, given to a client whose daemon lies: to the queue of the crate that programs link to, over real memory, and to the
//! same half over memory that counts accesses and refuses those that are not a host's.
//!
//! | asserted of each input | by |
//! |---|---|
//! | no panic | - |
//! | the half touches nothing but what is its to touch, and no payload outside of one buffer | [`Guard`] |
//! | a call does a bounded number of memory operations | [`CALL`] |
//! | every packet that the queue gives lies in one buffer, and a chain is no longer than one may be | [`Program`] |
//! | when the daemon is gone and a sound one is there, frames pass both ways, and no buffer of its region is missing | [`come_back`] |

use conic_client::{Buffer, Client, Link, MAX_SEGMENTS, Options, Queue};
use conic_control::{Extensions, VERSION};
use conic_fabric::{Address, Core};
use conic_interface::burst::HostQueue;
use conic_interface::ccnic::notify::PACKETS;
use conic_interface::ccnic::{Descriptor, Geometry, Host, PhaseCredit};
use conic_native::KeptCore;
use conic_native::channel::{Channel, Listener};
use tempfile::TempDir;

use crate::guard::{Guard, Side};
use crate::image::{Region, Said, read};
use crate::played::{self, give, welcome};
use crate::target::Target;

/// Small enough that an image of all of it is.
pub const GEOMETRY: Geometry = Geometry { queues: 1, descriptors: 16, buffers: [16, 8, 0], object_bytes: 0 };

/// Memory operations of a call, at most, beside the payload.
const CALL: u64 = 200;

/// Actions.
pub const RECEIVE: u8 = 0;
pub const FREE: u8 = 1;
pub const SEND: u8 = 2;
pub const PASS_ON: u8 = 3;
pub const SLEEP: u8 = 4;

/// The most buffers that the program keeps.
const MOST_KEPT: usize = 8;

/// The header's bit for a daemon that dies in the end, and another that comes.
pub const COMES_BACK: u64 = 1;

/// A program with the half of an interface that lies beneath a queue.
pub struct Beneath {
    pub region: Region,
    core: Guard,
    host: Host<Guard, PhaseCredit>,
    kept: Vec<Descriptor>,
    worst: u64,
}

impl Beneath {
    pub fn new() -> Beneath {
        let region = Region::new(GEOMETRY);
        let core = Guard::new(&region.memory, &region.map, "host", Side::Host);
        let host = Host::new(core.clone(), &region.map, 0);
        Beneath { region, core, host, kept: Vec::new(), worst: 0 }
    }

    /// Does one thing after the other; between two of them nothing else was done.
    fn bounded<T>(&mut self, call: impl FnOnce(&mut Host<Guard, PhaseCredit>) -> T) -> T {
        let before = self.core.crash().operations();
        let given = call(&mut self.host);
        let operations = self.core.crash().operations() - before;
        self.worst = self.worst.max(operations);
        assert!(operations <= CALL, "a call did {operations} operations");
        given
    }

    /// Whether a packet lies in one buffer, as the client's crate asks it of each.
    fn is_sound(&self, packet: &Descriptor) -> bool {
        let left = HostQueue::bytes_to_end(&self.host, packet.address());
        packet.length() > 0 && u64::from(packet.length()) <= left
    }

    fn transmit(&mut self, packet: Descriptor) {
        if self.bounded(|host| host.tx_burst(&[packet])) == 0 {
            self.bounded(|host| host.buf_free(&[packet.address()]));
        }
    }

    pub fn act(&mut self, action: u8, value: u64) {
        match action {
            FREE => {
                if let Some(packet) = self.kept.pop() {
                    self.bounded(|host| host.buf_free(&[packet.address()]));
                }
            }
            SEND => {
                let length = 60 + value % 4000;
                let mut at = [Address(0)];
                if self.bounded(|host| host.buf_alloc(length, &mut at)) == 1 {
                    self.core.write_bytes(at[0], &vec![value as u8; length as usize]);
                    self.transmit(Descriptor::new(at[0], length as u16));
                }
            }
            PASS_ON => {
                if let Some(packet) = self.kept.pop() {
                    self.transmit(Descriptor::new(packet.address(), packet.length()));
                }
            }
            SLEEP => {
                self.region.notices.wish_for(&self.core, 0, PACKETS);
                self.bounded(|host| host.has_packets());
                self.region.notices.wish_no_more(&self.core, 0);
                self.region.notices.call_if_resting(&self.core, 0);
            }
            _ => self.receive(1 + value as usize % 32),
        }
    }

    fn receive(&mut self, room: usize) {
        let mut packets = [Descriptor::BLANK; 32];
        let count = self.bounded(|host| host.rx_burst(&mut packets[..room]));
        for packet in &packets[..count] {
            if !self.is_sound(packet) {
                self.bounded(|host| host.buf_free(&[packet.address()]));
                continue;
            }
            // The guard panics if it leaves its buffer.
            self.core.read_bytes(packet.address(), &mut vec![0; usize::from(packet.length())]);
            self.kept.push(*packet);
        }
        while self.kept.len() > MOST_KEPT {
            let packet = self.kept.remove(0);
            self.bounded(|host| host.buf_free(&[packet.address()]));
        }
    }
}

/// A program with a queue, attached to a daemon that is played here.
struct Program {
    client: Client,
    queue: Queue,
    /// The daemon's end of everything.
    channel: Channel,
    nic: played::Nic,
    core: KeptCore,
    kept: Vec<Buffer>,
    received: u64,
}

fn let_in(listener: &Listener) -> (Channel, played::Nic) {
    let channel = welcome(listener, Extensions::KNOWN, VERSION);
    let nic = give(&channel, |_| {});
    (channel, nic)
}

impl Program {
    fn new(folder: &TempDir, listener: &Listener) -> Program {
        std::thread::scope(|scope| {
            let daemon = scope.spawn(|| let_in(listener));
            let options = Options { geometry: GEOMETRY, ..Options::default() };
            let attached = Client::attach(&folder.path().join("nic.sock"), &options);
            let (client, mut queues) = attached.unwrap_or_else(|error| panic!("{error}"));
            let (channel, nic) = daemon.join().expect("it lets the client in");
            let core = nic.core().clone();
            Program { client, queue: queues.remove(0), channel, nic, core, kept: Vec::new(), received: 0 }
        })
    }

    fn act(&mut self, action: u8, value: u64) {
        match action {
            FREE => drop(self.kept.pop()),
            SEND => {
                let length = 60 + value as usize % 4000;
                if let Some(mut buffer) = self.queue.allocate(length) {
                    buffer.fill(&vec![value as u8; length]);
                    self.queue.transmit(&mut vec![buffer]);
                }
            }
            PASS_ON => {
                if let Some(mut buffer) = self.kept.pop() {
                    buffer.set_has_next(false);
                    self.queue.transmit(&mut vec![buffer]);
                }
            }
            SLEEP => {
                self.queue.arm();
                self.queue.disarm();
            }
            _ => self.receive(1 + value as usize % 32),
        }
    }

    fn receive(&mut self, room: usize) {
        let mut incoming = Vec::new();
        let count = self.queue.receive(&mut incoming, room);
        assert!(count == incoming.len() && count <= room, "{count} of {room}");
        for buffer in &incoming {
            let bytes = buffer.to_vec();
            assert!(!bytes.is_empty() && bytes.len() <= buffer.capacity(), "{} bytes", bytes.len());
            assert!(buffer.len() <= 4096, "no buffer holds {} bytes", buffer.len());
        }
        let chain = incoming.split_inclusive(|buffer| !buffer.has_next()).map(<[Buffer]>::len).max();
        assert!(chain.unwrap_or(0) <= MAX_SEGMENTS, "a chain of {chain:?}");
        self.received += incoming.len() as u64;
        self.kept.append(&mut incoming);
        let surplus = self.kept.len().saturating_sub(MOST_KEPT);
        self.kept.drain(..surplus);
    }

    /// The daemon dies, and a sound one comes.
    fn come_back(self, listener: &Listener) {
        let Program { client, mut queue, channel, nic, kept, .. } = self;
        drop((channel, nic, kept));
        let (_channel, mut nic) = std::thread::scope(|scope| {
            let daemon = scope.spawn(|| let_in(listener));
            while client.maintain() == Link::Down || client.reconnects() == 0 {}
            daemon.join().expect("it lets the client in")
        });
        let mut incoming = Vec::new();
        // What lay in the old region is given once more.
        queue.receive(&mut incoming, 64);
        incoming.clear();
        for number in 0..8 {
            let sent = vec![number; 60 + 100 * usize::from(number)];
            let mut buffer = queue.allocate(sent.len()).expect("a whole pool");
            buffer.fill(&sent);
            assert_eq!(queue.transmit(&mut vec![buffer]), 1);
            assert_eq!(nic.sent(), [(sent.clone(), 0)]);
            nic.deliver(std::slice::from_ref(&sent));
            assert_eq!(queue.receive(&mut incoming, 4), 1);
            assert_eq!(incoming.remove(0).to_vec(), sent);
        }
        drop((queue, incoming));
        assert_eq!((nic.faults(), nic.free()), (0, GEOMETRY.buffers.iter().sum()), "a buffer is missing");
    }
}

/// Images for a client.
pub struct HostHalf {
    folder: TempDir,
    listener: Listener,
    worst: u64,
    received: u64,
    faults: u64,
    cut: u64,
    came_back: u64,
}

impl Default for HostHalf {
    fn default() -> HostHalf {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = Listener::bind(&folder.path().join("nic.sock")).expect("a socket");
        HostHalf { folder, listener, worst: 0, received: 0, faults: 0, cut: 0, came_back: 0 }
    }
}

impl Target for HostHalf {
    fn run(&mut self, input: &[u8]) {
        let (header, said) = read(input);
        let mut beneath = Beneath::new();
        let mut program = Program::new(&self.folder, &self.listener);
        for one in said {
            match one {
                Said::Word(word, value) => {
                    beneath.region.write(word, value);
                    let at = Address(word % beneath.region.words() * 8);
                    program.core.store_release(at, value);
                }
                Said::Action(action, value) => {
                    beneath.act(action, value);
                    program.act(action, value);
                }
            }
        }
        beneath.act(RECEIVE, 31);
        program.act(RECEIVE, 31);
        self.worst = self.worst.max(beneath.worst);
        let faults = program.queue.faults();
        let host = faults.host;
        let of_host = host.transmit.total() + host.receive.total() + host.not_a_buffer + host.freed_twice;
        self.cut += faults.cut;
        self.faults += of_host + faults.no_buffer + faults.cut;
        self.received += program.received;
        if header & COMES_BACK != 0 {
            program.come_back(&self.listener);
            self.came_back += 1;
        }
    }

    fn end(&mut self) -> String {
        let HostHalf { worst, received, faults, cut, came_back, .. } = *self;
        assert!(faults > 100 && cut > 10, "{faults} faults, {cut} chains cut: too coarse");
        assert!(received > 100 && came_back > 10, "{received} received, {came_back} times back: too coarse");
        format!(
            "{faults} faults, {received} packets received, {cut} chains cut, {came_back} times another daemon; {worst} operations in a \
             call at most"
        )
    }
}
