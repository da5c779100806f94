//! The device face of the seam over PCIe: DMA by the device's logic, or set up by software on it.

use std::cell::Cell;

use conic_fabric::{Address, Device, Line, ReadTag, StateHint, Time};

use super::device::CxlDevice;

/// An engine of the device that reaches the host by DMA alone. Hints mean nothing to PCIe.
pub struct DmaDevice<'a> {
    device: CxlDevice<'a>,
    set_up: Cell<(u64, u64)>,
}

impl<'a> DmaDevice<'a> {
    pub(super) fn new(device: CxlDevice<'a>) -> DmaDevice<'a> {
        DmaDevice { device, set_up: Cell::new((0, 0)) }
    }

    /// From now on software on the device sets each transfer up, and sees when a read is done.
    pub fn set_up_by_software(&self) {
        let times = self.device.with(|machine| {
            let dma = &machine.parameters().dma;
            (dma.read_software, dma.write_software)
        });
        self.set_up.set(times);
    }

    /// From now on software on the device asks for each transfer by RDMA.
    ///
    /// # Panics
    ///
    /// If no software runs on the device.
    pub fn set_up_by_rdma(&self) {
        let times = self.device.with(|machine| {
            let software = machine.parameters().software.as_ref();
            let software = software.expect("the platform says what software on the device takes");
            (software.rdma_read, software.rdma_write)
        });
        self.set_up.set(times);
    }

    /// The engine itself.
    pub fn device(&self) -> &CxlDevice<'a> {
        &self.device
    }

    /// Waits until something comes that this program may not have seen, or until a time.
    pub fn spin_until(&self, until: Time) {
        self.device.spin_until(until);
    }
}

impl Device for DmaDevice<'_> {
    fn start_read(&self, at: Address, bytes: u64, _hint: StateHint) -> ReadTag {
        let agent = self.device.fiber.agent;
        let read = self.device.with(|machine| machine.start_dma_read(agent, at.0, bytes, self.set_up.get().0));
        ReadTag(read.into())
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.device.with(|machine| machine.dma_reads[tag.0 as usize].pieces_left == 0)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        self.device.await_read(at, || self.is_ready(&tag));
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
            machine.start_dma_write(agent, at.0, from, self.set_up.get().1);
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
    fn cycle(&self) -> Time {
        self.device.cycle()
    }
}
