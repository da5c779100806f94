//! A client that plays by the rules beside one that does not.

use std::collections::VecDeque;

use conic_fabric::{Address, Core, Time};
use conic_interface::ccnic::{Descriptor, Geometry, Host, HostFaults, PhaseCredit};
use conic_nicd::switch::{Rules, Switch};

use crate::guard::{Guard, Side};
use crate::image::Region;

const GEOMETRY: Geometry = Geometry { queues: 1, descriptors: 64, buffers: [32, 16, 4], object_bytes: 0 };

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
        let rules = Rules { mac: mac(session), own_address_only: true, ..Rules::default() };
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
        let mut at = [Address(0)];
        if self.host.buf_alloc(length as u64, &mut at) == 0 {
            return None;
        }
        self.core.write_bytes(at[0], &frame);
        if self.host.tx_burst(&[Descriptor::new(at[0], length as u16)]) == 0 {
            self.host.buf_free(&at);
            return None;
        }
        self.region.notices.call_if_resting(&self.core, 0);
        Some(frame)
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
