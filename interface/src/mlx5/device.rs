//! The device half.

use conic_fabric::{Device, StateHint};

use super::QueuePair;
use super::receive::Receive;
use super::send::Send;
use crate::ring::{DeviceHalf, NoBuffer};

/// How the device reads what the host wrote.
pub(super) const READ: StateHint = StateHint::NonCacheable;

/// What of the host's the device half refused, by reason. Each counts where it was read, so a register that stays wrong
/// counts at each look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// A doorbell that names no entry that could be.
    pub doorbell: u64,
    /// A receive record that is no counter, goes back, or announces more descriptors than there are.
    pub receive_record: u64,
    /// A block that begins no entry where one should, or one whose entry goes beyond what was announced.
    pub entry: u64,
    /// A packet with a length of 0, above what may be where it lies, or beyond its entry; one that has too many segments.
    pub tx_length: u64,
    /// A data segment whose bytes are not all within the buffers, nor all within the program's objects.
    pub tx_address: u64,
    /// A receive descriptor whose buffer is not wholly within the buffers.
    pub rx_address: u64,
    /// A received packet that was empty or larger than a buffer; it was dropped. Not the host's fault.
    pub rx_length: u64,
}

impl Refusals {
    /// How often the host did wrong.
    pub fn by_host(&self) -> u64 {
        self.doorbell + self.receive_record + self.entry + self.tx_length + self.tx_address + self.rx_address
    }
}

/// The device half of a queue pair.
#[derive(Debug)]
pub struct Nic<D> {
    device: D,
    send: Send,
    receive: Receive,
    /// Completions wait for [`DeviceHalf::flush`], or [`Nic::complete`].
    held: bool,
    refusals: Refusals,
}

impl<D: Device> Nic<D> {
    pub(super) fn new(queues: QueuePair, device: D) -> Nic<D> {
        let held = queues.shape.compressed;
        Nic { device, send: Send::new(queues), receive: Receive::new(queues), held, refusals: Refusals::default() }
    }

    /// Takes what reads have brought, and asks for what there is to be asked for, where the doorbell says this: for a device to which
    /// that comes later than to its register.
    #[inline]
    pub fn look_at(&mut self, doorbell: u64) {
        self.receive.look(&self.device, &mut self.refusals);
        self.send.look_at(&self.device, doorbell, &mut self.refusals);
    }

    /// Reports what was sent, for whoever writes completions of what was received apart.
    #[inline]
    pub fn report(&mut self) {
        self.send.report(&self.device);
    }

    /// Writes a received packet into a blank buffer of which the device knows already, and completes nothing: for who looks, and
    /// completes, apart.
    ///
    /// # Errors
    ///
    /// If it knows of none; the packet may be offered again.
    #[inline]
    pub fn deliver(&mut self, packet: &[u8]) -> Result<(), NoBuffer> {
        self.receive.push(&self.device, packet, &mut self.refusals)
    }

    /// Packets that were received and not completed.
    #[inline]
    pub fn uncompleted(&self) -> usize {
        self.receive.done()
    }

    /// Completes so many received packets, those first that came first.
    #[inline]
    pub fn complete(&mut self, count: usize) {
        self.receive.complete(&self.device, count);
    }

    /// What was refused.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }
}

impl<D: Device> DeviceHalf for Nic<D> {
    type Device = D;
    #[inline(always)]
    fn device(&self) -> &D {
        &self.device
    }
    #[inline]
    fn poll_tx(&mut self) -> usize {
        if self.send.waiting() == 0 {
            // The first look asks, and the second one finds what was there already.
            self.send.look(&self.device, &mut self.refusals);
            self.send.look(&self.device, &mut self.refusals);
        }
        self.send.waiting()
    }
    #[inline]
    fn take_tx(&mut self, into: &mut [u8]) -> Option<usize> {
        self.send.take(&self.device, into)
    }
    #[inline]
    fn has_next_tx(&self) -> bool {
        self.send.next_length(&self.device).is_some()
    }
    #[inline]
    fn rx_push(&mut self, packet: &[u8]) -> Result<(), NoBuffer> {
        self.receive.find_buffer(&self.device, &mut self.refusals);
        let pushed = self.deliver(packet);
        if !self.held {
            self.receive.complete(&self.device, usize::MAX);
        }
        pushed
    }
    #[inline]
    fn flush(&mut self) {
        self.receive.complete(&self.device, usize::MAX);
        self.report();
    }
    fn refused_of_host(&self) -> u64 {
        self.refusals.by_host()
    }
    fn dropped_here(&self) -> u64 {
        self.refusals.rx_length
    }
}
