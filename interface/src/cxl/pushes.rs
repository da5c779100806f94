//! What the host says of pushes into its cache, by two registers of the device, and the policy by which it stops them (section 5.3:
//! adaptive push-write gating, and post-push write-back).

use conic_fabric::{Address, Core, Device, Time};

use super::Queues;

impl Queues {
    /// Whether the host has packets pushed into its cache at present, as the device's register says.
    pub(super) fn allows_pushes<D: Device>(&self, device: &D) -> bool {
        device.own_register(self.push_gate) == 0
    }

    /// After how long a packet that is pushed now is to be written to memory, if it is.
    pub(super) fn write_back_after<D: Device>(&self, device: &D) -> Option<Time> {
        // The register has 32 bits, so that no cycles of a device's clock are more than a time can be.
        let cycles = device.own_register(self.write_back) & u64::from(u32::MAX);
        (cycles > 0).then(|| Time::from_picoseconds(cycles * device.cycle().picoseconds()))
    }
}

/// What a host says of pushes: the device's registers, as a core of the host writes them. Any core may, but one at a time.
#[derive(Clone, Debug)]
pub struct PushControl<C> {
    core: C,
    queues: Vec<Queues>,
    allowed: bool,
}

impl<C: Core> PushControl<C> {
    /// For these queue pairs, whose device has been reset: it pushes, and writes nothing back.
    pub fn new(core: C, queues: Vec<Queues>) -> PushControl<C> {
        PushControl { core, queues, allowed: true }
    }

    /// The core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Whether the host has packets pushed at present.
    pub fn are_allowed(&self) -> bool {
        self.allowed
    }

    /// Has packets pushed from now on, or written to memory instead. The registers are written where that is news: a write is posted,
    /// and holds the core's later stores.
    pub fn allow(&mut self, allowed: bool) {
        if self.allowed != allowed {
            self.allowed = allowed;
            self.write_all(|queues| queues.push_gate, (!allowed).into());
        }
    }

    /// Has each packet that is pushed from now on written to memory after so many cycles of the device's clock; 0: not at all. The host
    /// may not write into receive buffers then: what it wrote would be overwritten.
    pub fn write_back_after(&mut self, cycles: u32) {
        self.write_all(|queues| queues.write_back, cycles.into());
    }

    fn write_all(&self, register: fn(&Queues) -> Address, value: u64) {
        for queues in &self.queues {
            self.core.register_write(register(queues), value);
        }
    }
}

/// What a host's monitoring tells of its last-level cache at one time.
///
/// On Xeons this is Intel's Resource Director Technology (Software Developer's Manual, volume 3B, section 18.18; in Linux the files
/// `llc_occupancy` and `mbm_total_bytes` of `resctrl`): occupancy (CMT) of all groups, external bandwidth (MBM) of the cores that do
/// not receive packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePressure {
    /// Bytes of it that hold something.
    pub occupied: u64,
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes that others than the receiving cores have had brought in from memory so far.
    pub brought_in: u64,
}

/// When pushes are stopped and when they go on.
///
/// The paper names a threshold of utilisation. A last-level cache that was once full stays so, whoever filled it and has ended since: what
/// is in it shows no need. So a full cache is under pressure only while others bring lines into it, each of which displaces one, and
/// one that is full and at rest is not. Each limit has a second one, so that neither pushes' own lines nor those that others bring
/// back once pushes have stopped turn the gate to and fro.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatePolicy {
    /// The part of the cache, in thousandths, from which on it is full; and below which it has room again.
    pub full: u32,
    /// See [`GatePolicy::full`].
    pub room: u32,
    /// Others are busy where they would bring the whole cache in anew within this time, and at rest where that would take longer than
    /// [`GatePolicy::rest`].
    pub busy: Time,
    /// See [`GatePolicy::busy`].
    pub rest: Time,
    /// From one look to the next.
    pub interval: Time,
}

impl Default for GatePolicy {
    /// Full at nine tenths, room below eight; others that bring the cache in within 10 ms are busy (6 GB/s for 60 MiB, a part of what one
    /// core can), and at rest beyond 20; a look each 100 us, which costs a core some hundredths of its time.
    fn default() -> GatePolicy {
        GatePolicy {
            full: 900,
            room: 800,
            busy: Time::from_nanoseconds(10_000_000),
            rest: Time::from_nanoseconds(20_000_000),
            interval: Time::from_nanoseconds(100_000),
        }
    }
}

impl GatePolicy {
    /// Whether pushes are to be allowed, where they are or are not so far, by what a look shows and what the one before it did.
    pub fn allows(&self, allowed: bool, before: (Time, CachePressure), now: (Time, CachePressure)) -> bool {
        let (span, pressure) = (now.0.since(before.0), now.1);
        let thousandths = u128::from(pressure.occupied) * 1000;
        let of = |limit: u32| u128::from(limit) * u128::from(pressure.capacity);
        // Whether what was brought in meanwhile, at that rate, is the whole cache within a time.
        let brought_in = u128::from(pressure.brought_in.saturating_sub(before.1.brought_in));
        let within = |time: Time| {
            let share = u128::from(pressure.capacity) * u128::from(span.picoseconds());
            brought_in > 0 && share <= brought_in * u128::from(time.picoseconds())
        };
        if allowed {
            thousandths < of(self.full) || !within(self.busy)
        } else {
            thousandths < of(self.room) || !within(self.rest)
        }
    }
}

/// The host's adaptive gate: a policy that looks at the cache's pressure and writes the device's registers.
#[derive(Clone, Debug)]
pub struct PushGate<C> {
    control: PushControl<C>,
    policy: GatePolicy,
    before: Option<(Time, CachePressure)>,
    /// How often it was closed.
    closings: u64,
}

impl<C: Core> PushGate<C> {
    /// An open gate.
    pub fn new(control: PushControl<C>, policy: GatePolicy) -> PushGate<C> {
        PushGate { control, policy, before: None, closings: 0 }
    }

    /// Whether packets are pushed.
    pub fn is_open(&self) -> bool {
        self.control.are_allowed()
    }

    /// How often it was closed.
    pub fn closings(&self) -> u64 {
        self.closings
    }

    /// When the next look is due.
    pub fn next_look(&self) -> Time {
        self.before.map_or(Time::ZERO, |(at, _)| at + self.policy.interval)
    }

    /// Takes what the monitoring tells now. The first look decides nothing: what is brought in shows from one to the next.
    pub fn look(&mut self, now: Time, pressure: CachePressure) {
        let now = (now, pressure);
        if let Some(before) = self.before.replace(now) {
            let was_open = self.is_open();
            self.control.allow(self.policy.allows(was_open, before, now));
            self.closings += u64::from(was_open && !self.is_open());
        }
    }
}
