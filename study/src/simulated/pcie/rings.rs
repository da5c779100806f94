//! The rings that a NIC behind PCIe has, of either kind: which one, the platform says.

use conic_fabric::{Address, Layout, MemoryType, Time};
use conic_interface::ring::DeviceHalf;
use conic_interface::{mlx5, ring};
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::WriteBack;
use conic_sim::{SimCore, SimDevice};

use super::on_chip::{Doorbell, OnChip, Places};
use crate::simulated::behind_chip::HostHalf;

/// Descriptors of which the last is reported as sent, and with it the others: what DPDK's driver of the E810 asks for by default
/// (`tx_rs_thresh`).
const REPORTED: u64 = 32;
/// When fewer are reported nevertheless, for whoever has few: after the interval at whose end Intel's NICs write back what is left
/// (by default 50 us for what was sent).
const LEFT_OVER: Time = Time::from_nanoseconds(50_000);

/// One of a NIC's queue pairs.
#[derive(Clone, Copy, Debug)]
pub(in crate::simulated) enum Pair {
    /// Driven as an E810 is.
    Ring(Places),
    /// Driven as a ConnectX is.
    Mlx5(mlx5::QueuePair),
}

impl Pair {
    /// Appends a queue pair to a layout, one of so many that its NIC has; signals and registers are those of the NIC.
    pub(in crate::simulated) fn place(
        layout: &mut Layout,
        common: ring::Shape,
        nic: &NicParameters,
        queues: usize,
    ) -> Result<Pair, String> {
        let common = ring::Shape {
            rx_signal: ring::RxSignal::DescriptorDone,
            host_written_registers: MemoryType::Uncached,
            ..common
        };
        if nic.mlx5_rings {
            let shape = mlx5::Shape { fetch_batch: nic.descriptor_batch.into(), ..mlx5::Shape::of(common, queues) };
            return shape.place(layout).map(Pair::Mlx5).map_err(|error| error.to_string());
        }
        let pair = common.place(layout).map_err(|error| error.to_string())?;
        Ok(Pair::Ring(Places::of_last(layout, pair)))
    }

    /// The same with the program's own objects in `bytes` bytes from `start` on.
    pub(in crate::simulated) fn with_objects(self, start: Address, bytes: u64) -> Pair {
        match self {
            Pair::Ring(places) => Pair::Ring(places.with_objects(start, bytes)),
            Pair::Mlx5(pair) => Pair::Mlx5(pair.with_objects(start, bytes)),
        }
    }

    /// The host half.
    pub(in crate::simulated) fn host<'a>(&self, core: &'a SimCore<'a>) -> HostHalf<'a> {
        match self {
            Pair::Ring(places) => Box::new(places.pair().host(core)),
            Pair::Mlx5(pair) => Box::new(pair.host(core)),
        }
    }

    /// Bytes of the longest packet.
    pub(super) fn longest_packet(&self) -> u64 {
        match self {
            Pair::Ring(places) => places.pair().shape().longest_packet(),
            Pair::Mlx5(pair) => pair.shape().common.longest_packet(),
        }
    }

    /// The device half on a chip.
    pub(super) fn on_chip<'a>(&self, device: &'a SimDevice<'_>, nic: &NicParameters) -> Box<dyn Rings + 'a> {
        match self {
            Pair::Ring(places) => {
                let nic = places.pair().nic(OnChip::new(device, nic, *places));
                Box::new(OfRing { nic, unreported: None })
            }
            Pair::Mlx5(pair) => Box::new(OfMlx5 {
                nic: pair.nic(device),
                doorbell: (pair.doorbell(), Doorbell::default(), Time::from_picoseconds(nic.doorbell_time)),
                pace: WriteBack::new(nic),
                paced: 0,
            }),
        }
    }
}

/// The device half of a queue pair, as the chip's program has it.
pub(super) trait Rings {
    /// The time.
    fn now(&self) -> Time;
    /// Looks at the doorbells, takes what reads have brought, and asks for what there is to be asked for.
    fn look(&mut self);
    /// Takes the next packet to send, if all of it is there, and returns its length.
    fn take(&mut self, frame: &mut [u8]) -> Option<usize>;
    /// Writes a packet to the host; false if there is no blank buffer now.
    fn deliver(&mut self, packet: &[u8]) -> bool;
    /// Tells the host of what was sent, where that is due, and returns when it will be.
    fn report(&mut self) -> Option<Time>;
    /// Waits for whatever comes next, but no longer than `until`.
    fn wait(&self, until: Time);
}

/// Rings like an E810's.
struct OfRing<'a, 'd> {
    nic: ring::Nic<OnChip<'a, 'd>>,
    /// Since when descriptors have been unreported.
    unreported: Option<Time>,
}

impl Rings for OfRing<'_, '_> {
    fn now(&self) -> Time {
        conic_fabric::Device::now(self.nic.device())
    }
    fn look(&mut self) {
        self.nic.device().look();
        // The host posts blank buffers before any packet comes, and the chip fetches them as soon as they are posted.
        self.nic.poll_rx();
    }
    fn take(&mut self, frame: &mut [u8]) -> Option<usize> {
        while self.nic.poll_tx() != 0 && self.nic.device().has_payload() {
            let before = self.now();
            // None: the rest of the packet's descriptors come with the next poll, which finds them on the chip.
            let Some(length) = self.nic.take_tx(frame) else { continue };
            debug_assert_eq!(self.now(), before, "a packet is taken when all of it is there");
            return Some(length);
        }
        None
    }
    fn deliver(&mut self, packet: &[u8]) -> bool {
        self.nic.rx_push(packet).is_ok()
    }
    /// [`REPORTED`] at once, or those that are left over.
    fn report(&mut self) -> Option<Time> {
        let (now, count) = (self.now(), self.nic.unreported());
        let since = self.unreported.unwrap_or(now);
        self.unreported = (count > 0).then_some(since);
        if count >= REPORTED || (count > 0 && now >= since + LEFT_OVER) {
            self.nic.flush();
            self.unreported = None;
        }
        self.unreported.map(|since| since + LEFT_OVER)
    }
    fn wait(&self, until: Time) {
        self.nic.device().wait(until);
    }
}

/// Rings like a ConnectX's: their device half fetches by itself, and the host asks for each report.
struct OfMlx5<'a, 'd> {
    nic: mlx5::Nic<&'a SimDevice<'d>>,
    /// Where it is, what is known of it, and how long that takes.
    doorbell: (Address, Doorbell, Time),
    pace: WriteBack,
    /// Completions that the pace was told of.
    paced: u64,
}

impl Rings for OfMlx5<'_, '_> {
    fn now(&self) -> Time {
        conic_fabric::Device::now(*self.nic.device())
    }
    fn look(&mut self) {
        let now = self.now();
        let (at, doorbell, takes) = &mut self.doorbell;
        let written = conic_fabric::Device::own_register(*self.nic.device(), *at);
        self.nic.look_at(doorbell.hear(written, now, *takes));
        let due = self.pace.expire(now.picoseconds());
        self.nic.complete(due as usize);
    }
    fn take(&mut self, frame: &mut [u8]) -> Option<usize> {
        if let Some(length) = self.nic.take_tx(frame) {
            return Some(length);
        }
        // What was taken has made room.
        self.nic.look_at(self.doorbell.1.known());
        self.nic.take_tx(frame)
    }
    fn deliver(&mut self, packet: &[u8]) -> bool {
        let (now, before) = (self.now().picoseconds(), self.nic.uncompleted());
        // Without a look, which takes time in which a packet may be done that nobody would wait for then.
        let delivered = self.nic.deliver(packet).is_ok();
        for _ in before..self.nic.uncompleted() {
            let due = self.pace.add(now, self.paced);
            self.paced += 1;
            self.nic.complete(due as usize);
        }
        delivered
    }
    fn report(&mut self) -> Option<Time> {
        self.nic.report();
        None
    }
    fn wait(&self, until: Time) {
        let heard = self.doorbell.1.next().into_iter();
        let paced = self.pace.deadline().map(Time::from_picoseconds);
        self.nic.device().spin_until(heard.chain(paced).fold(until, Time::min));
    }
}
