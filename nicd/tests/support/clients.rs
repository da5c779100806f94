//! Clients and ports of a switch, played by a test.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use conic_fabric::{Address, Core, Time};
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Descriptor, Features, Flags, Geometry, Host, Map, PhaseCredit, prepare};
use conic_interface::metadata::{Begun, Metadata};
use conic_native::{KeptCore, Memory, NativeCore, Pages};
use conic_nicd::switch::{Offloads, Rules, Switch, SwitchPort};
use conic_port::offload::virtio::{self, Checksum};
use conic_port::{Counters, Port, PortError, Receive, Transmit};

/// The address of all stations.
pub const EVERYBODY: [u8; 6] = [0xff; 6];

/// The other end of a port.
#[derive(Clone, Default)]
pub struct Outside(Arc<Mutex<Frames>>);

/// What comes from outside, and what has gone there.
#[derive(Default)]
pub struct Frames {
    /// Each with whether the port has looked at its checksums, where it does that.
    coming: VecDeque<(Vec<u8>, bool)>,
    pub gone: Vec<Vec<u8>>,
    fault: Fault,
    /// Whether the port has looked at the checksums of what comes, and found them good.
    checked: bool,
    /// Of those that are gone, how many each fault cost: full, refused, failed.
    lost: [u64; 3],
}

/// What a port does with what it is to send.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Its ring is full, as where the kernel says EBUSY or EAGAIN for long.
    Full,
    /// Nobody is at the other end, or it does not take such frames.
    Refuses,
    /// Each call is an error, as where the link is down.
    Fails,
    /// It takes frames, and fails when it is to let go of them.
    Holds,
}

impl Outside {
    pub fn give(&self, frame: Vec<u8>) {
        self.0.lock().expect("nobody panicked").coming.push_back((frame, true));
    }
    /// The same of one whose checksums nobody has looked at.
    pub fn give_unchecked(&self, frame: Vec<u8>) {
        self.0.lock().expect("nobody panicked").coming.push_back((frame, false));
    }
    fn next(&self) -> Option<(Vec<u8>, bool)> {
        self.0.lock().expect("nobody panicked").coming.pop_front()
    }
    pub fn set(&self, fault: Fault) {
        self.0.lock().expect("nobody panicked").fault = fault;
    }
    /// Frames come with a word that their checksums are good.
    pub fn check(&self) {
        self.0.lock().expect("nobody panicked").checked = true;
    }
    /// How many frames each fault cost: full, refused, failed.
    pub fn lost(&self) -> [u64; 3] {
        self.0.lock().expect("nobody panicked").lost
    }
    pub fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().expect("nobody panicked").gone)
    }
}

/// A port's error.
pub fn down() -> PortError {
    conic_port::CaptureReader::open(std::path::Path::new("/nonexistent/capture")).err().expect("there is none").into()
}

pub struct TestPort(Outside, Counters);

impl Port for TestPort {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        self.receive_unfinished(now, frame, &mut virtio::Metadata::default())
    }
    fn takes_unfinished(&self) -> bool {
        self.0.0.lock().expect("nobody panicked").checked
    }
    fn receive_unfinished(
        &mut self,
        _now: Time,
        frame: &mut [u8],
        metadata: &mut virtio::Metadata,
    ) -> Result<Receive, PortError> {
        let Some((next, is_checked)) = self.0.next() else { return Ok(Receive::None) };
        if is_checked {
            metadata.checksum = Checksum::Valid;
        }
        frame[..next.len()].copy_from_slice(&next);
        Ok(Receive::Frame { length: next.len(), captured: None })
    }
    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        let mut frames = self.0.0.lock().expect("nobody panicked");
        // Noted in any case, so that what was lost can be struck out where it would have come.
        frames.gone.push(frame.to_vec());
        let (which, outcome) = match frames.fault {
            Fault::None | Fault::Holds => return Ok(Transmit::Accepted),
            Fault::Full => (0, Ok(Transmit::Full)),
            Fault::Refuses => (1, Ok(Transmit::Refused)),
            Fault::Fails => (2, Err(down())),
        };
        frames.lost[which] += 1;
        outcome
    }
    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        match self.0.0.lock().expect("nobody panicked").fault {
            Fault::Holds => Err(down()),
            _ => Ok(()),
        }
    }
    fn next_due(&self) -> Option<Time> {
        None
    }
    fn counters(&self) -> &Counters {
        &self.1
    }
}

pub fn port(outside: &Outside, vlan: Option<u16>) -> SwitchPort {
    port_of(std::slice::from_ref(outside), vlan)
}

/// A port with a queue for each of these ends.
pub fn port_of(outside: &[Outside], vlan: Option<u16>) -> SwitchPort {
    let queue = |one: &Outside| Box::new(TestPort(one.clone(), Counters::default())) as Box<dyn Port>;
    SwitchPort { queues: outside.iter().map(queue).collect(), vlan, circuit: None }
}

/// A client that plays by the rules, with what it got.
pub struct Client {
    pub session: u64,
    pub mac: [u8; 6],
    pub core: KeptCore,
    pub map: Map,
    pub notices: Notices,
    pub hosts: Vec<Host<KeptCore, PhaseCredit>>,
}

pub fn rules(mac: [u8; 6]) -> Rules {
    Rules {
        mac,
        own_address_only: true,
        promiscuous: false,
        vlan: None,
        limit: None,
        circuit: None,
        pins: Vec::new(),
        offloads: Offloads::default(),
        longest: None,
    }
}

/// The rules of a client whose address is its number.
pub fn plain(number: u64) -> Rules {
    rules(mac(number))
}

impl Client {
    pub fn attach(switch: &mut Switch<KeptCore>, now: Time, session: u64, queues: u32, rules: Rules) -> Client {
        Client::attach_through(switch, now, session, queues, rules, KeptCore::clone)
    }

    /// The same with a switch that sees the region through another core.
    pub fn attach_through<C: Core>(
        switch: &mut Switch<C>,
        now: Time,
        session: u64,
        queues: u32,
        rules: Rules,
        through: impl Fn(&KeptCore) -> C,
    ) -> Client {
        // Each queue pair keeps buffers on two stacks, a quarter of a class each at most.
        let many = 128 * u64::from(queues.next_power_of_two());
        let geometry = Geometry { queues, descriptors: 1024, buffers: [many, 4 * many, 32], object_bytes: 0 };
        let map = Map::new(geometry, Features::best()).expect("a geometry that can be");
        let (map, notices) = Notices::in_map(map);
        let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
        prepare(&NativeCore::new(&memory), &map);
        let core = KeptCore::new(Arc::new(memory));
        let mac = rules.mac;
        switch.attach(now, session, rules, (&map, notices), || through(&core));
        let hosts = (0..queues as usize).map(|queue| Host::new(core.clone(), &map, queue)).collect();
        Client { session, mac, core, map, notices, hosts }
    }

    /// Sends a frame, in as many segments as asked for; false if there was no room or no buffer.
    pub fn send(&mut self, queue: usize, frame: &[u8], segments: usize) -> bool {
        let host = &mut self.hosts[queue];
        let mut packets = Vec::new();
        for part in frame.chunks(frame.len().div_ceil(segments)) {
            let mut at = [Address(0)];
            if host.buf_alloc(part.len() as u64, &mut at) == 0 {
                break;
            }
            self.core.write_bytes(at[0], part);
            packets.push(Descriptor::new(at[0], part.len() as u16).with(Flags::NEXT));
        }
        let whole = packets.iter().map(|packet| usize::from(packet.length())).sum::<usize>() == frame.len();
        if let Some(last) = packets.last_mut() {
            *last = last.without(Flags::NEXT);
        }
        if whole && host.tx_burst(&packets) == packets.len() {
            // Nobody sleeps here, so a call is all that is needed.
            self.notices.call_if_resting(&self.core, queue);
            return true;
        }
        packets.iter().for_each(|packet| host.buf_free(&[packet.address()]));
        false
    }

    /// Sends a packet for which something is to be done.
    pub fn ask(&mut self, frame: &[u8], request: Metadata) {
        assert!(self.may_ask(frame, request), "there are buffers, and room");
    }

    /// The same; false if there was no room or no buffer.
    pub fn may_ask(&mut self, frame: &[u8], request: Metadata) -> bool {
        let mut packets = Vec::new();
        for part in frame.chunks(16_384) {
            let mut at = [Address(0)];
            if self.hosts[0].buf_alloc(part.len() as u64, &mut at) == 0 {
                break;
            }
            self.core.write_bytes(at[0], part);
            packets.push(Descriptor::new(at[0], part.len() as u16).with(Flags::NEXT));
        }
        let whole = packets.len() == frame.len().div_ceil(16_384);
        if let (Some(last), true) = (packets.last_mut(), whole) {
            *last = last.without(Flags::NEXT);
            packets[0] = packets[0].with_metadata(request.0);
            if self.hosts[0].tx_burst(&packets) == packets.len() {
                self.notices.call_if_resting(&self.core, 0);
                return true;
            }
        }
        packets.iter().for_each(|packet| self.hosts[0].buf_free(&[packet.address()]));
        false
    }

    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for host in &mut self.hosts {
            let mut packets = [Descriptor::BLANK; 32];
            loop {
                let count = host.rx_burst(&mut packets);
                for packet in &packets[..count] {
                    let mut frame = vec![0; usize::from(packet.length())];
                    self.core.read_bytes(packet.address(), &mut frame);
                    all.push(frame);
                    host.buf_free(&[packet.address()]);
                }
                if count == 0 {
                    break;
                }
            }
        }
        all
    }
}

/// TCP from one station to another, with `payload` bytes; its checksum is begun.
pub fn tcp(from: u8, to: u8, payload: usize) -> Vec<u8> {
    let mut frame = [&mac(to.into())[..], &mac(from.into()), &[8, 0, 0x45, 0]].concat();
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0]);
    // The pseudo-header: addresses, protocol, length.
    let sum = 2 * 0x0a00 + u32::from(from) + u32::from(to) + 6 + 20 + payload as u32;
    frame.extend(((sum & 0xffff) as u16 + (sum >> 16) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..payload).map(|at| (at * 7 + at / 256) as u8));
    frame
}

/// What is to be done for such a packet.
pub const BEGUN: Metadata = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 });
pub const REQUEST: Metadata = BEGUN.with(Metadata::NETWORK);

pub fn mac(number: u64) -> [u8; 6] {
    [2, 0, 0, 0, 0, number as u8]
}

/// An IPv4 frame with UDP: a flow by its port, and a number.
pub fn frame(from: [u8; 6], to: [u8; 6], flow: u16, number: u64, length: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[8, 0, 0x45, 0]].concat();
    frame.extend((length as u16 - 14).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from[5], 10, 0, 0, to[5]]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0, 7, 0, 0, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|index| (number as usize * 7 + index) as u8));
    frame
}
