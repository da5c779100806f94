//! Where each core's and each device's next line is.

use super::parameters::{HostDeviceParameters, HostParameters};
use super::place::{AddressMap, Place};
use super::traffic::{CoreTraffic, Pattern};
use crate::draws::Draws;

/// Lines of each buffer: 1 GiB.
pub(super) const BUFFER_LINES: u64 = 1 << 24;

/// A core's walk through its buffer.
#[derive(Clone, Debug)]
pub(super) struct CoreSource {
    buffer: u64,
    traffic: CoreTraffic,
    next: u64,
    draws: Draws,
    cached_lines: u64,
}

impl CoreSource {
    pub(super) fn new(number: u64, traffic: CoreTraffic, parameters: &HostParameters, seed: u64) -> CoreSource {
        let mut draws = Draws::new(seed ^ (number + 1) << 32);
        let next = draws.below(BUFFER_LINES);
        CoreSource { buffer: number, traffic, next, draws, cached_lines: parameters.core.cached_bytes / 64 }
    }

    /// The next line that is missed.
    pub(super) fn read(&mut self, map: &AddressMap) -> (u64, Place) {
        let line = match self.traffic.pattern {
            Pattern::Sequential => {
                self.next = (self.next + 1) % BUFFER_LINES;
                self.next
            }
            Pattern::Random => self.draws.below(BUFFER_LINES),
        };
        (line, map.place(self.buffer, line))
    }

    /// The line that is evicted for one that was missed.
    pub(super) fn evicted(&mut self, map: &AddressMap, line: u64) -> Place {
        let line = match self.traffic.pattern {
            Pattern::Sequential => (line + BUFFER_LINES - self.cached_lines) % BUFFER_LINES,
            Pattern::Random => self.draws.below(BUFFER_LINES),
        };
        map.place(self.buffer, line)
    }
}

/// One device: the transfers that it is at, each by its next line.
#[derive(Clone, Debug)]
struct Device {
    transfers: Vec<u64>,
    at: usize,
}

/// The devices, which take turns on their link, each with a packet.
#[derive(Clone, Debug)]
pub(super) struct DeviceSource {
    devices: Vec<Device>,
    packet_lines: u64,
    chunk_lines: u64,
    transfer_lines: u64,
    at: usize,
    in_packet: u64,
    buffer_lines: u64,
    draws: Draws,
}

/// Buffers of devices are counted from here.
const FIRST_DEVICE_BUFFER: u64 = 1 << 12;

impl DeviceSource {
    pub(super) fn new(of: &HostDeviceParameters, seed: u64) -> DeviceSource {
        let mut source = DeviceSource {
            devices: Vec::new(),
            packet_lines: of.packet_bytes / 64,
            chunk_lines: of.chunk_bytes / 64,
            transfer_lines: of.transfer_bytes / 64,
            at: 0,
            in_packet: 0,
            buffer_lines: of.buffer_bytes / 64,
            draws: Draws::new(seed ^ 0xdeca_f000),
        };
        for _ in 0..of.devices {
            let transfers =
                (0..of.transfers).map(|_| source.begin() + source.draws.below(source.transfer_lines)).collect();
            let device = Device { transfers, at: 0 };
            source.devices.push(device);
        }
        source
    }

    /// A new transfer's first line.
    fn begin(&mut self) -> u64 {
        self.draws.below(self.buffer_lines / self.transfer_lines) * self.transfer_lines
    }

    /// The next line, by its number in memory.
    pub(super) fn next(&mut self, map: &AddressMap) -> u64 {
        let buffer = FIRST_DEVICE_BUFFER + self.at as u64;
        let device = &self.devices[self.at];
        let (transfer, line) = (device.at, device.transfers[device.at]);
        let next = line + 1;
        let begins = if next.is_multiple_of(self.transfer_lines) { self.begin() } else { next };
        let device = &mut self.devices[self.at];
        device.transfers[transfer] = begins;
        if next.is_multiple_of(self.chunk_lines) {
            device.at = (transfer + 1) % device.transfers.len();
        }
        self.in_packet += 1;
        if self.in_packet == self.packet_lines {
            self.in_packet = 0;
            self.at = (self.at + 1) % self.devices.len();
        }
        map.physical(buffer, line)
    }
}
