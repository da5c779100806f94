//! The device face of the seam over PCIe: DMA by the device's logic, or set up by software on it.

use std::cell::Cell;

use conic_fabric::{Address, Device, Line, ReadTag, StateHint, Time};

use super::device::CxlDevice;

/// An engine of the device that reaches the host by DMA alone. Hints mean nothing to PCIe.
pub struct DmaDevice<'a> {
    device: CxlDevice<'a>,
    by_software: Cell<bool>,
}

impl<'a> DmaDevice<'a> {
    pub(super) fn new(device: CxlDevice<'a>) -> DmaDevice<'a> {
        DmaDevice { device, by_software: Cell::new(false) }
    }

    /// From now on software on the device sets each transfer up, and sees when a read is done.
    pub fn set_up_by_software(&self) {
        self.by_software.set(true);
    }

    /// The engine itself.
    pub fn device(&self) -> &CxlDevice<'a> {
        &self.device
    }

    fn set_up(&self, software: u64) -> u64 {
        if self.by_software.get() { software } else { 0 }
    }

    /// Waits until something comes that this program may not have seen, or until a time.
    pub fn spin_until(&self, until: Time) {
        self.device.spin_until(until);
    }
}

impl Device for DmaDevice<'_> {
    fn start_read(&self, at: Address, bytes: u64, _hint: StateHint) -> ReadTag {
        let agent = self.device.fiber.agent;
        let read = self.device.with(|machine| {
            let set_up = self.set_up(machine.parameters().dma.read_software);
            machine.start_dma_read(agent, at.0, bytes, set_up)
        });
        ReadTag(read.into())
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.device.with(|machine| machine.dma_reads[tag.0 as usize].pieces_left == 0)
    }
    fn finish_read(&self, tag: ReadTag, _at: Address, into: &mut [u8]) {
        while !self.is_ready(&tag) {
            self.device.spin_until(Time::NEVER);
        }
        let read = self.device.with(|machine| machine.dma_reads.remove(tag.0 as usize));
        into.copy_from_slice(&read.buffer);
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        let mut word = [0; 8];
        self.read(at, &mut word, hint);
        u64::from_ne_bytes(word)
    }
    fn write(&self, at: Address, from: &[u8], _hint: StateHint) {
        let agent = self.device.fiber.agent;
        self.device.with(|machine| {
            let set_up = self.set_up(machine.parameters().dma.write_software);
            machine.start_dma_write(agent, at.0, from, set_up);
        });
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        // Posted writes keep their order.
        self.write(at, &value.to_ne_bytes(), hint);
    }
    fn publish_line(&self, at: Address, line: &Line, hint: StateHint) {
        // One packet, which the root port performs at once.
        self.write(at, &line.to_bytes(), hint);
    }
    fn own_register(&self, at: Address) -> u64 {
        self.device.own_register(at)
    }
    fn spin(&self) {
        self.device.spin();
    }
    fn now(&self) -> Time {
        self.device.now()
    }
    fn work(&self, cycles: u32) {
        self.device.work(cycles);
    }
}
