//! The device's side of a line: its coherence engine (DCOH) with the cache of host lines or of its own.

use conic_fabric::StateHint as Hint;

use super::{Bias, Contents, Copy, Opcode, Side, Snoop, ToDevice, ToHost, WHOLE};

/// What the device's logic, or its cache, wants of a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation<V> {
    /// Read it.
    Read(Hint),
    /// Write some bytes of it.
    Write {
        /// How.
        hint: Hint,
        /// The line.
        data: V,
        /// Which bytes of it are written: all, for a push.
        bytes: u64,
    },
    /// Give up the copy in the device's cache.
    Evict,
    /// Make the host's caches give it up.
    FlushHost,
}

/// A line as the device has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceLine<V> {
    /// Whose memory it lives in.
    pub home: Side,
    /// Whom the device asks, if it is its own.
    pub bias: Bias,
    /// The copy in the device's cache.
    pub copy: Copy,
    /// Its contents, where there is one.
    pub data: V,
    /// The device's memory, if it is home.
    pub memory: V,
    /// What waits for the host. Further operations wait for that.
    pub pending: Option<Operation<V>>,
}

/// How an operation begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started<V> {
    /// It is done, with this line.
    Done {
        /// The line.
        value: V,
        /// The device's memory was read.
        read_memory: bool,
        /// The device's memory was written.
        wrote_memory: bool,
        /// The device's cache has a copy that it had not, or could not write.
        installed: bool,
    },
    /// The host is asked.
    Asked(Opcode),
}

/// What a message brings about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received<V> {
    /// What the host is told.
    pub reply: Option<ToHost<V>>,
    /// The operation that waited is done, with this line.
    pub done: Option<V>,
    /// The device's memory was read.
    pub read_memory: bool,
    /// The device's memory was written.
    pub wrote_memory: bool,
    /// The device's cache has a copy that it had not, or could not write.
    pub installed: bool,
}

impl<V> Default for Received<V> {
    fn default() -> Self {
        Received { reply: None, done: None, read_memory: false, wrote_memory: false, installed: false }
    }
}

impl<V: Contents> DeviceLine<V> {
    /// A line that the device has no copy of.
    pub fn new(home: Side, contents: V) -> DeviceLine<V> {
        DeviceLine {
            home,
            bias: Bias::Host,
            copy: Copy::Invalid,
            data: contents.clone(),
            memory: contents,
            pending: None,
        }
    }

    /// The newest that the device has of its own line.
    fn own(&self) -> V {
        if self.copy == Copy::Invalid { self.memory.clone() } else { self.data.clone() }
    }

    /// Begins an operation.
    ///
    /// # Panics
    ///
    /// If one is pending, or parts of a line are to be pushed.
    pub fn start(&mut self, operation: Operation<V>) -> Started<V> {
        assert!(self.pending.is_none(), "one operation of a line at a time");
        match self.opcode(&operation) {
            Some(opcode) => {
                if opcode == Opcode::CleanEvict {
                    // The host may grant the line to a core before it says so.
                    self.copy = Copy::Invalid;
                }
                self.pending = Some(operation);
                Started::Asked(opcode)
            }
            None => self.by_itself(operation),
        }
    }

    /// What the host must be asked for an operation, if anything.
    fn opcode(&self, operation: &Operation<V>) -> Option<Opcode> {
        let own = self.home == Side::Device;
        let free = own && self.bias == Bias::Device;
        let has = self.copy != Copy::Invalid;
        match operation {
            Operation::Evict if own || !has => None,
            Operation::Evict if self.copy == Copy::Modified => Some(Opcode::DirtyEvict),
            Operation::Evict => Some(Opcode::CleanEvict),
            Operation::FlushHost => Some(Opcode::FlushHost),
            Operation::Read(Hint::CacheableOwned) if free || self.copy.is_alone() => None,
            Operation::Read(Hint::CacheableOwned) => Some(Opcode::ReadOwn),
            Operation::Read(_) if free || has => None,
            Operation::Read(Hint::CacheableShared) => Some(Opcode::ReadShared),
            Operation::Read(_) => Some(Opcode::ReadCurrent),
            Operation::Write { hint: Hint::NonCacheablePush, bytes, .. } => {
                assert!(*bytes == WHOLE, "a push is of a whole line");
                Some(Opcode::WritePush)
            }
            Operation::Write { hint: Hint::NonCacheable, bytes, .. } => {
                let may = own && (free || self.copy.is_alone());
                (!may).then_some(Opcode::WriteInvalidate { whole: *bytes == WHOLE })
            }
            Operation::Write { bytes, .. } => {
                let ask = if *bytes == WHOLE { Opcode::ReadOwnNoData } else { Opcode::ReadOwn };
                (!free && !self.copy.is_alone()).then_some(ask)
            }
        }
    }

    /// Does what needs nobody else.
    fn by_itself(&mut self, operation: Operation<V>) -> Started<V> {
        let (had, owned) = (self.copy != Copy::Invalid, self.copy.is_alone());
        let writes = matches!(operation, Operation::Write { .. });
        let (mut read_memory, mut wrote_memory) = (false, false);
        match operation {
            Operation::Read(hint) => {
                read_memory = !had;
                if self.home == Side::Device {
                    self.data = self.own();
                    self.copy = match hint {
                        Hint::CacheableShared => self.copy.max(Copy::Shared),
                        Hint::CacheableOwned => self.copy.max(Copy::Exclusive),
                        _ => self.copy,
                    };
                }
            }
            Operation::Write { hint: Hint::NonCacheable, data, bytes } => {
                wrote_memory = true;
                self.memory = self.own();
                self.memory.merge(&data, bytes);
                self.data = self.memory.clone();
                self.copy = Copy::Invalid;
            }
            Operation::Write { data, bytes, .. } => {
                read_memory = !had && bytes != WHOLE;
                if self.home == Side::Device {
                    self.data = self.own();
                }
                self.data.merge(&data, bytes);
                self.copy = Copy::Modified;
            }
            Operation::Evict => {
                if self.copy == Copy::Modified {
                    wrote_memory = true;
                    self.memory = self.data.clone();
                }
                self.copy = Copy::Invalid;
            }
            Operation::FlushHost => unreachable!("the host is asked"),
        }
        let installed = !if writes { owned } else { had } && self.copy != Copy::Invalid;
        Started::Done { value: self.data.clone(), read_memory, wrote_memory, installed }
    }

    /// Handles a message of the host.
    ///
    /// # Panics
    ///
    /// If it answers what was not asked.
    pub fn receive(&mut self, message: ToDevice<V>) -> Received<V> {
        match message {
            ToDevice::Snoop(snoop) => self.snooped(snoop),
            ToDevice::MemoryRead(snoop) => self.memory_read(snoop),
            ToDevice::MemoryWrite { data, bytes } => {
                self.memory = self.own();
                self.memory.merge(&data, bytes);
                // What an operation of the device's own made the host write back is in its cache for it, before it goes on: the host
                // hears first that it was written. What writes memory past that cache finds it there.
                let wanted = match &self.pending {
                    Some(Operation::Read(_)) => true,
                    Some(Operation::Write { hint, .. }) => !matches!(hint, Hint::NonCacheable | Hint::NonCacheablePush),
                    _ => false,
                };
                let installed = wanted && self.copy == Copy::Invalid;
                self.copy = if wanted { Copy::Shared } else { Copy::Invalid };
                self.data = self.memory.clone();
                Received { reply: Some(ToHost::MemoryDone), wrote_memory: true, installed, ..Received::default() }
            }
            ToDevice::Current(data) => {
                self.take();
                Received { done: Some(data), ..Received::default() }
            }
            ToDevice::Grant { copy, data } => self.granted(copy, data),
            ToDevice::Pull => self.pulled(),
            ToDevice::Finished => {
                self.take();
                Received { done: Some(self.data.clone()), ..Received::default() }
            }
            ToDevice::MemoryForward => self.forwarded(),
        }
    }

    fn take(&mut self) -> Operation<V> {
        self.pending.take().expect("the host answers what was asked")
    }

    fn snooped(&mut self, snoop: Snoop) -> Received<V> {
        let data = (self.copy == Copy::Modified).then(|| self.data.clone());
        self.copy = match snoop {
            Snoop::Current => self.copy,
            Snoop::Data => self.copy.min(Copy::Shared),
            Snoop::Invalidate => Copy::Invalid,
        };
        Received { reply: Some(ToHost::Snooped { left: self.copy, data }), ..Received::default() }
    }

    fn memory_read(&mut self, snoop: Snoop) -> Received<V> {
        let read_memory = self.copy == Copy::Invalid;
        let wrote_memory = self.copy == Copy::Modified;
        let data = self.own();
        self.memory = data.clone();
        self.copy = if snoop == Snoop::Invalidate { Copy::Invalid } else { self.copy.min(Copy::Shared) };
        let exclusive = self.copy == Copy::Invalid;
        let reply = Some(ToHost::MemoryData { data, exclusive });
        Received { reply, read_memory, wrote_memory, ..Received::default() }
    }

    fn granted(&mut self, copy: Copy, data: Option<V>) -> Received<V> {
        let mut installed = self.copy == Copy::Invalid;
        self.copy = copy;
        if let Some(data) = data {
            self.data = data;
        }
        if let Operation::Write { data, bytes, .. } = self.take() {
            self.data.merge(&data, bytes);
            self.copy = Copy::Modified;
            // A copy that the device had could only be read: its data are put into the cache as a new line's are.
            installed = true;
        }
        Received { done: Some(self.data.clone()), installed, ..Received::default() }
    }

    fn pulled(&mut self) -> Received<V> {
        match self.take() {
            Operation::Write { hint, data, bytes } => {
                let mut whole = self.data.clone();
                whole.merge(&data, bytes);
                // What is written back is all of a line that the device had modified.
                let had = self.copy == Copy::Modified;
                let (sent, sent_bytes) = if had { (whole, WHOLE) } else { (data.clone(), bytes) };
                self.copy = Copy::Invalid;
                let finished = hint == Hint::NonCacheablePush;
                let done = finished.then(|| data.clone());
                if !finished {
                    self.pending = Some(Operation::Write { hint, data, bytes });
                }
                let reply = Some(ToHost::Pulled { data: sent, bytes: sent_bytes, bogus: false });
                Received { reply, done, ..Received::default() }
            }
            Operation::Evict => {
                let bogus = self.copy != Copy::Modified;
                self.copy = Copy::Invalid;
                let reply = Some(ToHost::Pulled { data: self.data.clone(), bytes: WHOLE, bogus });
                Received { reply, done: Some(self.data.clone()), ..Received::default() }
            }
            other => unreachable!("{} has nothing to be pulled", name_of(&other)),
        }
    }

    fn forwarded(&mut self) -> Received<V> {
        let (had, owned) = (self.copy != Copy::Invalid, self.copy.is_alone());
        let current = self.own();
        match self.take() {
            Operation::Read(hint) => {
                self.data = current;
                self.copy = match hint {
                    Hint::CacheableShared => self.copy.max(Copy::Shared),
                    Hint::CacheableOwned => self.copy.max(Copy::Exclusive),
                    _ => self.copy,
                };
                let installed = !had && self.copy != Copy::Invalid;
                Received { done: Some(self.data.clone()), read_memory: !had, installed, ..Received::default() }
            }
            Operation::Write { hint: Hint::NonCacheable, data, bytes } => {
                self.memory = current;
                self.memory.merge(&data, bytes);
                self.copy = Copy::Invalid;
                Received { done: Some(self.memory.clone()), wrote_memory: true, ..Received::default() }
            }
            Operation::Write { data, bytes, .. } => {
                self.data = current;
                self.data.merge(&data, bytes);
                self.copy = Copy::Modified;
                let read_memory = !had && bytes != WHOLE;
                Received { done: Some(self.data.clone()), read_memory, installed: !owned, ..Received::default() }
            }
            other => unreachable!("{} is not forwarded", name_of(&other)),
        }
    }
}

fn name_of<V>(operation: &Operation<V>) -> &'static str {
    match operation {
        Operation::Read(_) => "a read",
        Operation::Write { .. } => "a write",
        Operation::Evict => "an eviction",
        Operation::FlushHost => "a flush of the host",
    }
}
