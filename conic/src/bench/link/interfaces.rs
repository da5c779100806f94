//! Each interface as something that a slice can run over.

use std::marker::PhantomData;

use conic_fabric::{Home, Layout, PlayedByCore, Time};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::ccnic::{Geometry, Host, Map, Nic, Policy, Wire, prepare};
use conic_interface::pio::nic::NicLines;
use conic_interface::pio::{Features, Shape};
use conic_interface::{cachable_queue, fastforward, ring};
use conic_load::message_loop::{
    CachableReceiver, CachableSender, Echo, FastForwardReceiver, FastForwardSender, MessageLoop, ReceivePacket,
    SendPacket, line_pair_ends, message_lines, slots_of,
};
use conic_load::{ClosedLoop, OneCore, Workload};
use conic_native::NativeCore;

use super::{Failure, Setup};

/// An interface over a region: makes each side's end of a queue pair.
pub trait Link: Send + Sync + 'static {
    /// The region it needs.
    fn layout(&self) -> &Layout;
    /// Makes a fresh region ready.
    fn prepare(&self, _core: &NativeCore<'_>) {}
    /// The application on a queue pair.
    fn application<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Traffic + use<'memory, Self>;
    /// The NIC's half of a queue pair.
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Turn + use<'memory, Self>;
}

/// An interface of which one core may run both halves.
pub trait Halves: Link {
    /// Both halves of the first queue pair.
    fn on_one_core<'memory>(
        &self,
        core: NativeCore<'memory>,
    ) -> OneCore<impl HostQueue + use<'memory, Self>, impl NicQueue + use<'memory, Self>>;
}

/// An application that sends and receives, and can be brought to an end.
pub trait Traffic: conic_load::Traffic {
    /// No packet becomes due any more.
    fn end_pace(&mut self);
    /// Packets that were due and have not come back.
    fn behind(&self) -> u64;
    /// Receives what is in flight.
    fn drain(&mut self, deadline: Time);
}

/// A NIC that turns packets around.
pub trait Turn {
    /// Turns some around, and says how many.
    fn turn_around(&mut self) -> usize;
    /// Says that this round made no progress.
    fn spin(&self);
}

macro_rules! traffic {
    ($($parameter:ident: $bound:ident),* => $loop:ty) => {
        impl<$($parameter: $bound),*> Traffic for $loop {
            fn end_pace(&mut self) {
                self.end_pace();
            }
            fn behind(&self) -> u64 {
                self.behind()
            }
            fn drain(&mut self, deadline: Time) {
                self.drain(deadline);
            }
        }
    };
}

traffic!(Q: HostQueue => ClosedLoop<Q>);
traffic!(Q: HostQueue => ClosedLoop<Q, true>);
traffic!(S: SendPacket, R: ReceivePacket => MessageLoop<S, R>);

/// The NIC's half of a packet interface.
struct Packets<N>(N);

impl<N: NicQueue> Turn for Packets<N> {
    #[inline(always)]
    fn turn_around(&mut self) -> usize {
        self.0.turn_around()
    }
    #[inline(always)]
    fn spin(&self) {
        self.0.spin();
    }
}

impl<S: SendPacket, R: ReceivePacket> Turn for Echo<S, R> {
    #[inline(always)]
    fn turn_around(&mut self) -> usize {
        self.turn_around()
    }
    #[inline(always)]
    fn spin(&self) {
        self.spin();
    }
}

/// Packets that an application sends, and receives, at once.
fn bursts(workload: &Workload) -> [usize; 2] {
    [workload.transmit_burst, workload.receive_burst]
}

fn cannot_be(error: impl std::fmt::Display) -> Failure {
    Failure::failed(error.to_string())
}

/// CC-NIC.
pub struct CcNic<P> {
    map: Map,
    workload: Workload,
    policy: PhantomData<fn() -> P>,
}

impl<P: Policy> CcNic<P> {
    /// As large as a setup needs it.
    pub fn new(setup: &Setup) -> Result<CcNic<P>, Failure> {
        let map = Map::new(geometry(setup), setup.features).map_err(cannot_be)?;
        Ok(CcNic { map, workload: setup.workload, policy: PhantomData })
    }
}

/// Descriptors that no ring has, nor a queue slots: whatever asks for more is refused.
const MOST_DESCRIPTORS: u64 = 1 << 33;

/// Enough buffers for what can be in flight, of the class that the packets need, and few of the others. A host that posts
/// blank buffers itself does not know what will arrive: it posts large ones, or jumbo ones where there are no large.
fn geometry(setup: &Setup) -> Geometry {
    // More descriptors than a ring may have are refused with the rest of the geometry.
    let in_rings = setup.descriptors.min(MOST_DESCRIPTORS) * 2;
    let blanks = if setup.features.shared_pool { 0 } else { in_rings };
    let in_flight = (setup.workload.window.min(in_rings) + blanks + 1024) * setup.queues as u64;
    let count = in_flight.next_power_of_two();
    let buffers = match (setup.workload.packet_size, setup.features.shared_pool) {
        (0..=128, true) if setup.features.small_buffers => [count, 64, 64],
        (0..=128, false) if setup.features.small_buffers => [count, count, 0],
        (0..=4096, _) => [2048, count, 64],
        (_, true) => [2048, 64, count],
        (_, false) => [0, 0, count],
    };
    Geometry { queues: setup.queues as u32, descriptors: setup.descriptors, buffers, object_bytes: 0 }
}

impl<P: Policy> Link for CcNic<P> {
    fn layout(&self) -> &Layout {
        &self.map.layout
    }
    fn prepare(&self, core: &NativeCore<'_>) {
        prepare(core, &self.map);
    }
    fn application<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Traffic + use<'memory, P> {
        ClosedLoop::new(Host::<_, P>::new(core, &self.map, queue), self.workload)
    }
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Turn + use<'memory, P> {
        Packets(Wire::new(Nic::<_, P>::new(core, &self.map, queue)))
    }
}

impl<P: Policy> Halves for CcNic<P> {
    fn on_one_core<'memory>(
        &self,
        core: NativeCore<'memory>,
    ) -> OneCore<impl HostQueue + use<'memory, P>, impl NicQueue + use<'memory, P>> {
        let host = ClosedLoop::new(Host::<_, P>::new(core, &self.map, 0), self.workload);
        OneCore::new(host, Wire::new(Nic::<_, P>::new(core, &self.map, 0)))
    }
}

/// The PCIe-style ring.
pub struct Ring {
    layout: Layout,
    pairs: Vec<ring::QueuePair>,
    workload: Workload,
}

impl Ring {
    /// Descriptors as asked for, and buffers for both rings and what the application holds.
    pub fn new(setup: &Setup) -> Result<Ring, Failure> {
        let shape = setup.workload.ring(setup.descriptors).map_err(cannot_be)?;
        let mut layout = Layout::new();
        let pairs = (0..setup.queues).map(|_| shape.place(&mut layout)).collect::<Result<_, _>>().map_err(cannot_be)?;
        Ok(Ring { layout, pairs, workload: setup.workload })
    }
}

impl Link for Ring {
    fn layout(&self) -> &Layout {
        &self.layout
    }
    fn application<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Traffic + use<'memory> {
        ClosedLoop::new(self.pairs[queue].host(core), self.workload)
    }
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Turn + use<'memory> {
        Packets(ring::Wire::new(self.pairs[queue].nic(PlayedByCore(core)), self.pairs[queue].shape()))
    }
}

impl Halves for Ring {
    fn on_one_core<'memory>(
        &self,
        core: NativeCore<'memory>,
    ) -> OneCore<impl HostQueue + use<'memory>, impl NicQueue + use<'memory>> {
        let pair = &self.pairs[0];
        let nic = ring::Wire::new(pair.nic(PlayedByCore(core)), pair.shape());
        OneCore::new(ClosedLoop::new(pair.host(core), self.workload), nic)
    }
}

/// A pair of cachable queues.
pub struct CachableQueues {
    layout: Layout,
    pairs: Vec<(cachable_queue::Queue, cachable_queue::Queue)>,
    workload: Workload,
}

impl CachableQueues {
    /// A slot for every descriptor asked for, each as large as a packet.
    pub fn new(setup: &Setup) -> Result<CachableQueues, Failure> {
        let shape = cachable_queue::Shape {
            slots: setup.descriptors,
            message_lines: message_lines(setup.workload.packet_size),
            ..cachable_queue::Shape::default()
        };
        let mut layout = Layout::new();
        let mut pair = |_| {
            let there = shape.place(&mut layout, Home::Host, Home::Nic)?;
            Ok((there, shape.place(&mut layout, Home::Nic, Home::Host)?))
        };
        let pairs = (0..setup.queues).map(&mut pair).collect::<Result<_, cachable_queue::ShapeError>>();
        let pairs = pairs.map_err(cannot_be)?;
        Ok(CachableQueues { layout, pairs, workload: setup.workload })
    }
}

impl Link for CachableQueues {
    fn layout(&self) -> &Layout {
        &self.layout
    }
    fn application<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Traffic + use<'memory> {
        let ((there, back), Workload { packet_size, window, .. }) = (self.pairs[queue], self.workload);
        let sender = CachableSender::new(there.sender(core), packet_size);
        let receiver = CachableReceiver::new(back.receiver(core), packet_size);
        MessageLoop::new(sender, receiver, packet_size, window, bursts(&self.workload))
    }
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Turn + use<'memory> {
        let ((there, back), size) = (self.pairs[queue], self.workload.packet_size);
        Echo::new(CachableSender::new(back.sender(core), size), CachableReceiver::new(there.receiver(core), size), size)
    }
}

/// A pair of FastForward queues.
pub struct FastForwardQueues {
    layout: Layout,
    pairs: Vec<(fastforward::Queue, fastforward::Queue)>,
    workload: Workload,
}

impl FastForwardQueues {
    /// Slots for as many packets as descriptors were asked for.
    pub fn new(setup: &Setup) -> Result<FastForwardQueues, Failure> {
        let slots = setup.descriptors.min(MOST_DESCRIPTORS) * slots_of(setup.workload.packet_size);
        let slots = slots.next_power_of_two();
        let shape = fastforward::Shape { slots, ..fastforward::Shape::default() };
        let mut layout = Layout::new();
        let mut pair = |_| Ok((shape.place(&mut layout, Home::Host)?, shape.place(&mut layout, Home::Nic)?));
        let pairs = (0..setup.queues).map(&mut pair).collect::<Result<_, fastforward::ShapeError>>();
        let pairs = pairs.map_err(cannot_be)?;
        Ok(FastForwardQueues { layout, pairs, workload: setup.workload })
    }
}

impl Link for FastForwardQueues {
    fn layout(&self) -> &Layout {
        &self.layout
    }
    fn application<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Traffic + use<'memory> {
        let ((there, back), Workload { packet_size, window, .. }) = (self.pairs[queue], self.workload);
        let receiver = FastForwardReceiver::new(back.receiver(core), packet_size);
        let sender = FastForwardSender::new(there.sender(core));
        MessageLoop::new(sender, receiver, packet_size, window, bursts(&self.workload))
    }
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Turn + use<'memory> {
        let ((there, back), size) = (self.pairs[queue], self.workload.packet_size);
        let receiver = FastForwardReceiver::new(there.receiver(core), size);
        Echo::new(FastForwardSender::new(back.sender(core)), receiver, size)
    }
}

/// A NIC of two line pairs with overflow lines.
pub struct LinePairs {
    layout: Layout,
    pairs: Vec<NicLines>,
    workload: Workload,
}

impl LinePairs {
    /// Lines for frames of the workload's size.
    pub fn new(setup: &Setup) -> Result<LinePairs, Failure> {
        let shape = Shape::frames(u64::from(setup.workload.packet_size).next_multiple_of(8));
        let mut layout = Layout::new();
        let mut pair = |_| NicLines::place(&shape, &mut layout, Home::Nic);
        let pairs = (0..setup.queues).map(&mut pair).collect::<Result<_, _>>().map_err(cannot_be)?;
        Ok(LinePairs { layout, pairs, workload: setup.workload })
    }
}

impl Link for LinePairs {
    fn layout(&self) -> &Layout {
        &self.layout
    }
    fn application<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Traffic + use<'memory> {
        let Workload { packet_size, window, .. } = self.workload;
        let (sender, receiver) = line_pair_ends(&self.pairs[queue], [core, core], Features::PLAYED, packet_size);
        MessageLoop::new(sender, receiver, packet_size, window, bursts(&self.workload))
    }
    fn nic<'memory>(&self, core: NativeCore<'memory>, queue: usize) -> impl Turn + use<'memory> {
        Packets(self.pairs[queue].played([core, core]))
    }
}
