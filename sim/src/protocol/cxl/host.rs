//! The host's side of a line: its home agent, with the caches of all cores as one.

use super::{Contents, Copy, Opcode, Side, Snoop, ToDevice, ToHost, WHOLE};

/// What the home agent knows of the device's copy of a line of the host; it may be less by now, never more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tracked {
    /// There is none.
    #[default]
    None,
    /// It is Shared.
    Shared,
    /// It is Exclusive or Modified.
    Owned,
}

/// What is asked of the home agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask<V> {
    /// A core loads.
    Load,
    /// A core wants to write.
    Own,
    /// A core's non-temporal store.
    Nontemporal {
        /// The line.
        data: V,
        /// Which bytes of it are written.
        bytes: u64,
    },
    /// The caches give the line up.
    Evict,
    /// A core flushes the line from all caches.
    Flush,
    /// A DMA engine reads.
    DmaRead,
    /// A DMA engine writes.
    DmaWrite {
        /// The line.
        data: V,
        /// Which bytes of it are written.
        bytes: u64,
        /// Into the last-level cache instead of memory.
        allocate: bool,
    },
    /// The device.
    Device(Opcode),
}

/// What has to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect<V> {
    /// A message goes to the device.
    Send(ToDevice<V>),
    /// The host's memory is read.
    ReadMemory,
    /// The host's memory is written.
    WriteMemory,
    /// The caches are read; no copy changes.
    ReadCaches,
    /// No core may write its copy any more; the asking core gets one, if one asks.
    ShareCaches,
    /// The copies go, but the asking core's.
    InvalidateCaches,
    /// The line is in the last-level cache now, modified.
    InstallLastLevel,
    /// It is over; with the line, where a DMA engine reads.
    Done(Option<V>),
}

/// What the home agent waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Active<V> {
    /// A snoop's answer, for this.
    Snoop(Ask<V>),
    /// The data of a device's write.
    Pull(Opcode),
    /// A line of the device's memory, to load or to write.
    Memory { own: bool },
    /// That the device's memory is written; then what is sent.
    Write(Option<ToDevice<V>>),
}

/// A line as the host has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostLine<V> {
    /// Whose memory it lives in.
    pub home: Side,
    /// The copy in the host's caches.
    pub copy: Copy,
    /// Its contents, where there is one.
    pub data: V,
    /// The host's memory, if it is home.
    pub memory: V,
    /// The device's copy, if the host is home.
    pub device: Tracked,
    active: Option<Active<V>>,
}

impl<V: Contents> HostLine<V> {
    /// A line that is in no cache.
    pub fn new(home: Side, contents: V) -> HostLine<V> {
        HostLine {
            home,
            copy: Copy::Invalid,
            data: contents.clone(),
            memory: contents,
            device: Tracked::None,
            active: None,
        }
    }

    /// Whether something is under way.
    pub fn is_busy(&self) -> bool {
        self.active.is_some()
    }

    /// The newest that the host has of its own line.
    fn own(&self) -> V {
        if self.copy == Copy::Invalid { self.memory.clone() } else { self.data.clone() }
    }

    /// A core writes a line that it has alone.
    ///
    /// # Panics
    ///
    /// If it has not.
    pub fn write(&mut self, data: &V, bytes: u64) {
        assert!(self.copy.is_alone(), "a store to a copy that is not alone");
        self.data.merge(data, bytes);
        self.copy = Copy::Modified;
    }

    /// Begins what is asked.
    ///
    /// # Panics
    ///
    /// If something is under way.
    pub fn begin(&mut self, ask: Ask<V>) -> Vec<Effect<V>> {
        assert!(self.active.is_none(), "one transaction of a line at a time");
        let mut effects = Vec::new();
        match (self.home, ask) {
            (Side::Host, Ask::Device(opcode)) => self.device_asks(opcode, &mut effects),
            (Side::Device, Ask::Device(opcode)) => self.device_asks_for_own(opcode, &mut effects),
            (Side::Host, ask) => match self.snoop_for(&ask) {
                Some(snoop) => {
                    effects.push(Effect::Send(ToDevice::Snoop(snoop)));
                    let reads = matches!(ask, Ask::Load | Ask::Own | Ask::DmaRead) && self.copy == Copy::Invalid;
                    if reads {
                        // In parallel; it is of no use if the device has the line modified.
                        effects.push(Effect::ReadMemory);
                    }
                    self.active = Some(Active::Snoop(ask));
                }
                None => {
                    let reads = matches!(ask, Ask::Load | Ask::Own | Ask::DmaRead) && self.copy == Copy::Invalid;
                    if reads {
                        effects.push(Effect::ReadMemory);
                    }
                    self.host_goes_on(ask, &mut effects);
                }
            },
            (Side::Device, ask) => self.host_asks_device(ask, &mut effects),
        }
        effects
    }

    /// The snoop that must come before what the host wants of its own line.
    fn snoop_for(&self, ask: &Ask<V>) -> Option<Snoop> {
        match (ask, self.device) {
            (Ask::Evict, _) | (_, Tracked::None) => None,
            (Ask::Load | Ask::DmaRead, Tracked::Shared) => None,
            (Ask::Load, Tracked::Owned) => Some(Snoop::Data),
            (Ask::DmaRead, Tracked::Owned) => Some(Snoop::Current),
            (Ask::Own, _) if self.copy.is_alone() => None,
            _ => Some(Snoop::Invalidate),
        }
    }

    /// What the host wants of its own line, the device having no copy that hinders it.
    fn host_goes_on(&mut self, ask: Ask<V>, effects: &mut Vec<Effect<V>>) {
        let mut value = None;
        match ask {
            Ask::Load => {
                if self.copy == Copy::Invalid {
                    self.data = self.memory.clone();
                    self.copy = if self.device == Tracked::None { Copy::Exclusive } else { Copy::Shared };
                }
                effects.push(Effect::ShareCaches);
            }
            Ask::Own => {
                self.data = self.own();
                self.copy = self.copy.max(Copy::Exclusive);
                effects.push(Effect::InvalidateCaches);
            }
            Ask::Nontemporal { data, bytes } | Ask::DmaWrite { data, bytes, allocate: false } => {
                self.memory = self.own();
                self.memory.merge(&data, bytes);
                self.copy = Copy::Invalid;
                effects.extend([Effect::InvalidateCaches, Effect::WriteMemory]);
            }
            Ask::DmaWrite { data, bytes, allocate: true } => {
                let reads = bytes != WHOLE && self.copy == Copy::Invalid;
                self.data = self.own();
                self.data.merge(&data, bytes);
                self.copy = Copy::Modified;
                if reads {
                    effects.push(Effect::ReadMemory);
                }
                effects.extend([Effect::InvalidateCaches, Effect::InstallLastLevel]);
            }
            Ask::Evict | Ask::Flush => {
                effects.push(Effect::InvalidateCaches);
                if self.copy == Copy::Modified {
                    self.memory = self.data.clone();
                    effects.push(Effect::WriteMemory);
                }
                self.copy = Copy::Invalid;
            }
            Ask::DmaRead => {
                if self.copy != Copy::Invalid {
                    effects.push(Effect::ReadCaches);
                }
                value = Some(self.own());
            }
            Ask::Device(_) => unreachable!("the device's requests are handled apart"),
        }
        effects.push(Effect::Done(value));
    }

    /// The device asks for a line of the host.
    fn device_asks(&mut self, opcode: Opcode, effects: &mut Vec<Effect<V>>) {
        match opcode {
            Opcode::ReadCurrent => {
                effects.push(self.read_effect());
                effects.extend([Effect::Send(ToDevice::Current(self.own())), Effect::Done(None)]);
            }
            Opcode::ReadShared => {
                effects.push(self.read_effect());
                if self.copy != Copy::Invalid {
                    effects.push(Effect::ShareCaches);
                }
                if self.copy == Copy::Modified {
                    self.memory = self.data.clone();
                    effects.push(Effect::WriteMemory);
                }
                self.copy = self.copy.min(Copy::Shared);
                self.device = Tracked::Shared;
                let grant = ToDevice::Grant { copy: Copy::Shared, data: Some(self.own()) };
                effects.extend([Effect::Send(grant), Effect::Done(None)]);
            }
            Opcode::ReadOwn | Opcode::ReadOwnNoData => {
                let with_data = opcode == Opcode::ReadOwn;
                if with_data {
                    effects.push(self.read_effect());
                }
                effects.push(Effect::InvalidateCaches);
                let modified = with_data && self.copy == Copy::Modified;
                let copy = if modified { Copy::Modified } else { Copy::Exclusive };
                let data = with_data.then(|| self.own());
                (self.copy, self.device) = (Copy::Invalid, Tracked::Owned);
                effects.extend([Effect::Send(ToDevice::Grant { copy, data }), Effect::Done(None)]);
            }
            Opcode::WriteInvalidate { .. } => {
                // Its answer says nothing but that it is accepted: what comes after the snoops is that it is done.
                effects.extend([Effect::Send(ToDevice::Pull), Effect::InvalidateCaches]);
                self.active = Some(Active::Pull(opcode));
            }
            Opcode::WritePush => {
                effects.extend([Effect::InvalidateCaches, Effect::Send(ToDevice::Pull)]);
                self.active = Some(Active::Pull(opcode));
            }
            Opcode::DirtyEvict => {
                effects.push(Effect::Send(ToDevice::Pull));
                self.active = Some(Active::Pull(opcode));
            }
            Opcode::CleanEvict => {
                self.device = Tracked::None;
                effects.extend([Effect::Send(ToDevice::Finished), Effect::Done(None)]);
            }
            Opcode::FlushHost => {
                self.host_goes_on(Ask::Evict, effects);
                effects.insert(effects.len() - 1, Effect::Send(ToDevice::Finished));
            }
        }
    }

    /// Where a line of the host is read.
    fn read_effect(&self) -> Effect<V> {
        if self.copy == Copy::Invalid { Effect::ReadMemory } else { Effect::ReadCaches }
    }

    /// The device asks for a line of its own.
    fn device_asks_for_own(&mut self, opcode: Opcode, effects: &mut Vec<Effect<V>>) {
        let then = match opcode {
            Opcode::WritePush => {
                effects.extend([Effect::InvalidateCaches, Effect::Send(ToDevice::Pull)]);
                self.active = Some(Active::Pull(opcode));
                return;
            }
            Opcode::FlushHost => ToDevice::Finished,
            Opcode::DirtyEvict | Opcode::CleanEvict => unreachable!("the device gives its own lines up by itself"),
            _ => ToDevice::MemoryForward,
        };
        let keeps = matches!(opcode, Opcode::ReadCurrent | Opcode::ReadShared) && self.copy != Copy::Modified;
        // A line that is written whole needs nothing written back first.
        let overwritten = matches!(opcode, Opcode::WriteInvalidate { whole: true } | Opcode::ReadOwnNoData);
        let writes_back = self.copy == Copy::Modified && !overwritten;
        if keeps {
            if opcode == Opcode::ReadShared && self.copy != Copy::Invalid {
                self.copy = Copy::Shared;
                effects.push(Effect::ShareCaches);
            }
        } else {
            effects.push(Effect::InvalidateCaches);
            self.copy = Copy::Invalid;
        }
        if writes_back {
            effects.push(Effect::Send(ToDevice::MemoryWrite { data: self.data.clone(), bytes: WHOLE }));
            self.active = Some(Active::Write(Some(then)));
        } else {
            effects.extend([Effect::Send(then), Effect::Done(None)]);
        }
    }

    /// The host wants something of a line of the device.
    fn host_asks_device(&mut self, ask: Ask<V>, effects: &mut Vec<Effect<V>>) {
        match ask {
            Ask::Load if self.copy != Copy::Invalid => effects.extend([Effect::ShareCaches, Effect::Done(None)]),
            Ask::Own if self.copy.is_alone() => effects.extend([Effect::InvalidateCaches, Effect::Done(None)]),
            Ask::Load | Ask::Own => {
                let own = matches!(ask, Ask::Own);
                let snoop = if own { Snoop::Invalidate } else { Snoop::Data };
                effects.push(Effect::Send(ToDevice::MemoryRead(snoop)));
                self.active = Some(Active::Memory { own });
            }
            Ask::Nontemporal { data, bytes } => {
                let (mut whole, modified) = (self.data.clone(), self.copy == Copy::Modified);
                whole.merge(&data, bytes);
                let (data, bytes) = if modified { (whole, WHOLE) } else { (data, bytes) };
                self.copy = Copy::Invalid;
                effects.extend([Effect::InvalidateCaches, Effect::Send(ToDevice::MemoryWrite { data, bytes })]);
                self.active = Some(Active::Write(None));
            }
            Ask::Evict | Ask::Flush => {
                effects.push(Effect::InvalidateCaches);
                if self.copy == Copy::Modified {
                    let data = self.data.clone();
                    effects.push(Effect::Send(ToDevice::MemoryWrite { data, bytes: WHOLE }));
                    self.active = Some(Active::Write(None));
                } else {
                    effects.push(Effect::Done(None));
                }
                self.copy = Copy::Invalid;
            }
            Ask::DmaRead | Ask::DmaWrite { .. } => unreachable!("a DMA engine works on the host's memory"),
            Ask::Device(_) => unreachable!("the device's requests are handled apart"),
        }
    }

    /// Handles an answer of the device.
    ///
    /// # Panics
    ///
    /// If it answers what was not asked.
    pub fn receive(&mut self, message: ToHost<V>) -> Vec<Effect<V>> {
        let mut effects = Vec::new();
        let active = self.active.take().expect("the device answers what was asked");
        match (message, active) {
            (ToHost::Snooped { left, data }, Active::Snoop(ask)) => {
                self.device = match left {
                    Copy::Invalid => Tracked::None,
                    Copy::Shared => Tracked::Shared,
                    _ => Tracked::Owned,
                };
                if let Some(data) = data {
                    self.memory = data;
                    effects.push(Effect::WriteMemory);
                }
                self.host_goes_on(ask, &mut effects);
            }
            (ToHost::Pulled { data, bytes, bogus }, Active::Pull(opcode)) => {
                self.pulled(opcode, data, bytes, bogus, &mut effects);
            }
            (ToHost::MemoryData { data, exclusive }, Active::Memory { own }) => {
                self.data = data;
                self.copy = if exclusive { Copy::Exclusive } else { Copy::Shared };
                effects.push(if own { Effect::InvalidateCaches } else { Effect::ShareCaches });
                effects.push(Effect::Done(None));
            }
            (ToHost::MemoryDone, Active::Write(then)) => {
                effects.extend(then.map(Effect::Send));
                effects.push(Effect::Done(None));
            }
            _ => panic!("the device answers what was not asked"),
        }
        effects
    }

    fn pulled(&mut self, opcode: Opcode, data: V, bytes: u64, bogus: bool, effects: &mut Vec<Effect<V>>) {
        match opcode {
            Opcode::WritePush => {
                self.data = data;
                self.copy = Copy::Modified;
                effects.push(Effect::InstallLastLevel);
            }
            _ if bogus => {}
            _ => {
                self.memory = self.own();
                self.memory.merge(&data, bytes);
                self.copy = if opcode == Opcode::DirtyEvict { self.copy } else { Copy::Invalid };
                effects.push(Effect::WriteMemory);
            }
        }
        self.device = Tracked::None;
        if matches!(opcode, Opcode::WriteInvalidate { .. }) {
            effects.push(Effect::Send(ToDevice::Finished));
        }
        effects.push(Effect::Done(None));
    }
}
