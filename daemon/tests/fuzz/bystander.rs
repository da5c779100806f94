//! A client that plays by the rules beside one that does not.

use std::collections::VecDeque;

use conic_fabric::{Address, Core, Time};
use conic_interface::ccnic::{Descriptor, Geometry, Host, HostFaults, PhaseCredit};
use conic_interface::metadata::{Begun, Metadata, Offloads};
use conic_nicd::switch::{Rules, Switch};
use conic_port::offload::checksum::fill;

use crate::guard::{Guard, Side};
use crate::image::Region;

const GEOMETRY: Geometry = Geometry { queues: 1, descriptors: 64, buffers: [32, 16, 4], object_bytes: 0 };

/// TCP over IPv4, its checksum begun: the sum of the pseudo-header.
pub fn tcp(to: [u8; 6], from: [u8; 6], sequence: u32, payload: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[8, 0, 0x45, 0]].concat();
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from[5], 10, 0, 0, to[5]]);
    frame.extend([4, 0, 0, 80]);
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 2, 0x50, 0x10, 1, 0]);
    frame.extend((2 * 0x0a00 + u16::from(from[5]) + u16::from(to[5]) + 6 + 20 + payload as u16).to_be_bytes());
    frame.resize(54 + payload, 0);
    frame
}

pub struct Bystander {
    region: Region,
    core: Guard,
    host: Host<Guard, PhaseCredit>,
    pub session: u64,
    pub mac: [u8; 6],
    number: u64,
    /// What was sent to it by whoever plays by the rules, and has not come yet.
    expected: VecDeque<Vec<u8>>,
    pub received: u64,
    /// Of those, what did not come.
    pub lost: u64,
}

/// The address of a station.
pub fn mac(session: u64) -> [u8; 6] {
    [2, 0, 0, 0, 0, session as u8]
}

impl Bystander {
    pub fn attach(switch: &mut Switch<Guard>, session: u64) -> Bystander {
        let region = Region::new(GEOMETRY);
        // What it asks for is done; what it gets is finished, and never stands for several.
        let offloads = Offloads { requests: true, no_hash: true, ..Offloads::default() };
        let rules = Rules { mac: mac(session), own_address_only: true, offloads, ..Rules::default() };
        let nic = || Guard::new(&region.memory, &region.map, "nic", Side::Nic);
        switch.attach(Time::ZERO, session, rules, (&region.map, region.notices), nic);
        let core = Guard::new(&region.memory, &region.map, "bystander", Side::Host);
        let host = Host::new(core.clone(), &region.map, 0);
        let (number, received, lost) = (0, 0, 0);
        let expected = VecDeque::new();
        Bystander { region, core, host, session, mac: mac(session), number, expected, received, lost }
    }

    /// Sends a frame of so many bytes, which tells by its content which it is; none if there was no room.
    pub fn send(&mut self, to: [u8; 6], length: usize) -> Option<Vec<u8>> {
        self.number += 1;
        let mut frame = [&to[..], &self.mac, &[0x88, 0xb5], &self.number.to_le_bytes()].concat();
        frame.extend((frame.len()..length).map(|at| (self.number as usize * 31 + at + at / 256) as u8));
        self.transmit(&frame, Metadata::NONE).then_some(frame)
    }

    /// Sends a packet of TCP that stands for several, or frames of one flow behind each other, with so many bytes of payload together.
    pub fn send_flow(&mut self, to: [u8; 6], payload: usize, frames: usize) {
        let each = payload / frames;
        for number in 0..frames {
            let mut frame = tcp(to, self.mac, (number * each) as u32, each);
            let begun = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 }).with(Metadata::NETWORK);
            let metadata = if frames == 1 { begun.with_large(1000) } else { Metadata::NONE };
            if frames > 1 {
                fill(&mut frame);
            }
            self.transmit(&frame, metadata);
        }
    }

    fn transmit(&mut self, frame: &[u8], metadata: Metadata) -> bool {
        let mut at = [Address(0)];
        if self.host.buf_alloc(frame.len() as u64, &mut at) == 0 {
            return false;
        }
        self.core.write_bytes(at[0], frame);
        let sent = self.host.tx_burst(&[Descriptor::new(at[0], frame.len() as u16).with_metadata(metadata.0)]);
        if sent == 0 {
            self.host.buf_free(&at);
            return false;
        }
        self.region.notices.call_if_resting(&self.core, 0);
        true
    }

    /// Such a frame is for this one.
    pub fn expect(&mut self, frame: Vec<u8>) {
        self.expected.push_back(frame);
    }

    /// Takes what has come. Frames whose source is one of `sound` must be those that were sent, unchanged and in order.
    pub fn receive(&mut self, sound: &[[u8; 6]]) {
        let mut packets = [Descriptor::BLANK; 32];
        loop {
            let count = self.host.rx_burst(&mut packets);
            for packet in &packets[..count] {
                let mut frame = vec![0; usize::from(packet.length())];
                self.core.read_bytes(packet.address(), &mut frame);
                self.host.buf_free(&[packet.address()]);
                if frame.len() >= 12 && sound.iter().any(|mac| frame[6..12] == *mac) {
                    let place = self.expected.iter().position(|expected| *expected == frame);
                    let begins = &frame[..frame.len().min(64)];
                    let place = place.unwrap_or_else(|| {
                        panic!("{} bytes came that nobody sent so, or a second time: {begins:?}", frame.len())
                    });
                    self.lost += place as u64;
                    self.expected.drain(..=place);
                    self.received += 1;
                }
            }
            if count == 0 {
                return;
            }
        }
    }

    /// Nothing more is on its way.
    pub fn settle(&mut self) {
        self.lost += self.expected.drain(..).count() as u64;
    }

    /// When neither side keeps anything, all buffers are there.
    pub fn check_whole(&mut self) {
        self.host.drain();
        assert_eq!(self.region.map.pool.free(&self.core), GEOMETRY.buffers, "buffers of a bystander are missing");
        assert_eq!(self.host.faults(), HostFaults::default());
    }
}
