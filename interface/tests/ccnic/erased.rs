//! The policies behind one type, so that a test is compiled once and not for each.

use conic_fabric::{Address, Core};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::ccnic::{Allocator, Descriptor, Features, Host, HostFaults, Map, Nic, NicFaults, Policy, Wire};
use conic_interface::with_policy;

/// A [`Host`] of any policy.
pub trait AnyHost<C> {
    fn core(&self) -> &C;
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize;
    fn buf_free(&mut self, buffers: &[Address]);
    fn tx_burst(&mut self, packets: &[Descriptor]) -> usize;
    fn rx_burst(&mut self, out: &mut [Descriptor]) -> usize;
    fn completions(&mut self, out: &mut [Descriptor]) -> usize;
    fn faults(&self) -> HostFaults;
    fn allocator(&self) -> &Allocator;
    fn drain(&mut self);
    fn recover(self: Box<Self>, map: &Map, queue: usize, held: &[Address]) -> (BoxedHost<C>, u64);
}

/// A [`Nic`] of any policy.
pub trait AnyNic<C> {
    fn core(&self) -> &C;
    fn poll_tx(&mut self, out: &mut [Descriptor]) -> usize;
    fn complete_tx(&mut self, packets: &[Descriptor]);
    fn rx_alloc(&mut self, bytes: u64) -> Option<Address>;
    fn rx_free(&mut self, at: Address);
    fn rx_burst(&mut self, packets: &[Descriptor]) -> usize;
    fn rx_room(&mut self, want: usize) -> usize;
    fn faults(&self) -> NicFaults;
    fn allocator(&self) -> &Allocator;
    fn drain(&mut self);
    fn recover(self: Box<Self>, map: &Map, queue: usize, held: &[Address]) -> (BoxedNic<C>, u64);
    fn wire(self: Box<Self>) -> BoxedWire<C>;
}

/// A [`Wire`] of any policy.
pub trait AnyWire<C> {
    fn turn_around(&mut self) -> usize;
    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize>;
    fn deliver_frame(&mut self, frame: &[u8]) -> bool;
    fn refused(&self) -> u64;
    fn dropped(&self) -> u64;
    fn nic(&mut self) -> &mut dyn AnyNic<C>;
    fn into_nic(self: Box<Self>) -> BoxedNic<C>;
}

pub type BoxedHost<C> = Box<dyn AnyHost<C>>;
pub type BoxedNic<C> = Box<dyn AnyNic<C>>;
pub type BoxedWire<C> = Box<dyn AnyWire<C>>;

/// The host's half of an instance with these features.
pub fn host<C: Core + 'static>(features: Features, core: C, map: &Map, queue: usize) -> BoxedHost<C> {
    with_policy!(features, P => Box::new(Host::<C, P>::new(core, map, queue)))
}

/// The NIC's half.
pub fn nic<C: Core + 'static>(features: Features, core: C, map: &Map, queue: usize) -> BoxedNic<C> {
    with_policy!(features, P => Box::new(Nic::<C, P>::new(core, map, queue)))
}

impl<C: Core + 'static, P: Policy> AnyHost<C> for Host<C, P> {
    fn core(&self) -> &C {
        Host::core(self)
    }
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        HostQueue::buf_alloc(self, bytes, out)
    }
    fn buf_free(&mut self, buffers: &[Address]) {
        HostQueue::buf_free(self, buffers);
    }
    fn tx_burst(&mut self, packets: &[Descriptor]) -> usize {
        HostQueue::tx_burst(self, packets)
    }
    fn rx_burst(&mut self, out: &mut [Descriptor]) -> usize {
        HostQueue::rx_burst(self, out)
    }
    fn completions(&mut self, out: &mut [Descriptor]) -> usize {
        Host::completions(self, out)
    }
    fn faults(&self) -> HostFaults {
        Host::faults(self)
    }
    fn allocator(&self) -> &Allocator {
        Host::allocator(self)
    }
    fn drain(&mut self) {
        Host::drain(self);
    }
    fn recover(self: Box<Self>, map: &Map, queue: usize, held: &[Address]) -> (BoxedHost<C>, u64) {
        let (host, lost) = Host::recover(*self, map, queue, held.iter().copied());
        (Box::new(host), lost)
    }
}

impl<C: Core + 'static, P: Policy> AnyNic<C> for Nic<C, P> {
    fn core(&self) -> &C {
        Nic::core(self)
    }
    fn poll_tx(&mut self, out: &mut [Descriptor]) -> usize {
        Nic::poll_tx(self, out)
    }
    fn complete_tx(&mut self, packets: &[Descriptor]) {
        Nic::complete_tx(self, packets);
    }
    fn rx_alloc(&mut self, bytes: u64) -> Option<Address> {
        Nic::rx_alloc(self, bytes)
    }
    fn rx_free(&mut self, at: Address) {
        Nic::rx_free(self, at);
    }
    fn rx_burst(&mut self, packets: &[Descriptor]) -> usize {
        Nic::rx_burst(self, packets)
    }
    fn rx_room(&mut self, want: usize) -> usize {
        Nic::rx_room(self, want)
    }
    fn faults(&self) -> NicFaults {
        Nic::faults(self)
    }
    fn allocator(&self) -> &Allocator {
        Nic::allocator(self)
    }
    fn drain(&mut self) {
        Nic::drain(self);
    }
    fn recover(self: Box<Self>, map: &Map, queue: usize, held: &[Address]) -> (BoxedNic<C>, u64) {
        let (nic, lost) = Nic::recover(*self, map, queue, held.iter().copied());
        (Box::new(nic), lost)
    }
    fn wire(self: Box<Self>) -> BoxedWire<C> {
        Box::new(Wire::new(*self))
    }
}

impl<C: Core + 'static, P: Policy> AnyWire<C> for Wire<C, P> {
    fn turn_around(&mut self) -> usize {
        NicQueue::turn_around(self)
    }
    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
        NicQueue::take_frame(self, frame)
    }
    fn deliver_frame(&mut self, frame: &[u8]) -> bool {
        NicQueue::deliver_frame(self, frame)
    }
    fn refused(&self) -> u64 {
        NicQueue::refused(self)
    }
    fn dropped(&self) -> u64 {
        NicQueue::dropped(self)
    }
    fn nic(&mut self) -> &mut dyn AnyNic<C> {
        Wire::nic(self)
    }
    fn into_nic(self: Box<Self>) -> BoxedNic<C> {
        Box::new(Wire::into_nic(*self))
    }
}
