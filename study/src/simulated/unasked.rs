//! A NIC core of the published configuration, in which nobody issues prefetch instructions.

use conic_fabric::{Address, Core, Device, Line, PlayedByCore, ReadTag, StateHint, Time};

/// A core that plays a ring's device and asks for nothing ahead: a read starts where its bytes are loaded. The paper speaks of its
/// processors' own prefetchers alone (CC-NIC section 5.8), and CC-NIC as published has no such instruction either.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unasked<C>(
    /// The core.
    pub PlayedByCore<C>,
);

impl<C: Core> Device for Unasked<C> {
    fn start_read(&self, at: Address, _bytes: u64, _hint: StateHint) -> ReadTag {
        ReadTag(at.0)
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.0.is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        self.0.finish_read(tag, at, into);
    }
    fn finish_line(&self, tag: ReadTag, at: Address) -> Line {
        self.0.finish_line(tag, at)
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        self.0.read_word(at, hint)
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        self.0.write(at, from, hint);
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        self.0.write_word(at, value, hint);
    }
    fn publish_line(&self, at: Address, line: &Line, hint: StateHint) {
        self.0.publish_line(at, line, hint);
    }
    fn own_register(&self, at: Address) -> u64 {
        self.0.own_register(at)
    }
    fn spin(&self) {
        self.0.spin();
    }
    fn now(&self) -> Time {
        self.0.now()
    }
    fn depends_on(&self, at: Address) {
        self.0.depends_on(at);
    }
    fn work(&self, cycles: u32) {
        self.0.work(cycles);
    }
}
