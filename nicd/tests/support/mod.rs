//! What the tests share: clients and ports of a switch, the switches of several threads; and a host, a region, and frames that tell
//! which they are.

pub mod clients;
pub mod threads;

use conic_fabric::{Address, Core};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::{Features, Geometry, Host, Map, Nic, Packing, Policy, Signal, Wire, prepare};
use conic_native::{Memory, NativeCore, Pages};

/// A region and its map.
pub struct Region {
    pub map: Map,
    pub memory: Memory,
}

impl Region {
    pub fn new(geometry: Geometry, features: Features) -> Region {
        let map = Map::new(geometry, features).expect("a geometry that can be");
        let memory = Memory::create(&map.layout, Pages::Plain).expect("a region of plain pages");
        prepare(&NativeCore::new(&memory), &map);
        Region { map, memory }
    }

    pub fn host<P: Policy>(&self, queue: usize) -> Host<NativeCore<'_>, P> {
        Host::new(NativeCore::new(&self.memory), &self.map, queue)
    }

    pub fn wire<P: Policy>(&self, queue: usize) -> Wire<NativeCore<'_>, P> {
        Wire::new(Nic::new(NativeCore::new(&self.memory), &self.map, queue))
    }
}

/// Every signal with every packing, with and without what else changes how a frame travels.
pub fn feature_sets() -> Vec<Features> {
    let mut sets = Vec::new();
    for signal in [Signal::Clear, Signal::Phase, Signal::Register] {
        for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
            for whole_line in [true, false] {
                sets.push(Features { signal, packing, whole_line, ..Features::best() });
            }
        }
    }
    sets.push(Features::paper());
    sets.push(Features { recycling: false, scattered: false, small_buffers: false, ..Features::paper() });
    sets
}

/// Sends a frame if there is a buffer and room; false otherwise.
pub fn send<Q: HostQueue>(host: &mut Q, frame: &[u8]) -> bool {
    let mut buffer = [Address(0)];
    if host.buf_alloc(frame.len() as u64, &mut buffer) == 0 {
        return false;
    }
    host.core().write_bytes(buffer[0], frame);
    let sent = host.tx_burst(&[Packet::new(buffer[0], frame.len() as u16)]) == 1;
    if !sent {
        host.buf_free(&buffer);
    }
    sent
}

/// Receives a frame, if there is one, and frees its buffer.
pub fn receive<Q: HostQueue>(host: &mut Q) -> Option<Vec<u8>> {
    let mut packet = [Packet::BLANK];
    if host.rx_burst(&mut packet) == 0 {
        return None;
    }
    let mut frame = vec![0; usize::from(packet[0].length())];
    host.core().read_bytes(packet[0].address(), &mut frame);
    host.buf_free(&[packet[0].address()]);
    Some(frame)
}

/// A frame whose every byte depends on its number and its place; `flow` is its source address.
pub fn frame(number: u32, flow: u8, length: usize) -> Vec<u8> {
    let byte = |at: usize| (number as usize ^ at.wrapping_mul(31) ^ at >> 3).wrapping_mul(197) as u8;
    let mut frame: Vec<u8> = (0..length).map(byte).collect();
    // An experimental Ethernet type, so that the flow is the pair of hardware addresses.
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, flow, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}
