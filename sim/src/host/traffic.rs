//! What cores and devices do.

/// In which order lines are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Any of the buffer, each as likely.
    Random,
}

/// What a core does, as fast as its line fill buffers allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTraffic {
    /// Stores: each line is read, and one that was stored before is evicted to memory. Otherwise loads.
    pub writes: bool,
    /// In which order.
    pub pattern: Pattern,
    /// Time from a line's arrival until its buffer's next miss, beyond the core's own: work that each line gets.
    pub work: u64,
}

/// A part of an operation: instructions, and loads whose addresses they find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Instructions before its loads, in picoseconds.
    pub work: u64,
    /// Loads.
    pub loads: u32,
    /// Lines of each, side by side.
    pub lines: u32,
    /// Where each is.
    pub pattern: Pattern,
    /// It needs what the loads before it bring: it begins when all are there.
    pub depends: bool,
}

/// What a core runs that does more than to move lines: an operation, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// The operation's phases, in order.
    pub phases: Vec<Phase>,
    /// Loads of lines that are on their way at once, at most: the memory-level parallelism that its code has.
    pub at_once: u32,
}

/// What the devices do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceTraffic {
    /// They write to memory: a storage device that is read from, or a NIC that receives.
    Writes,
    /// They read from memory.
    Reads,
}

/// All traffic of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// What each core does; as many cores as there are of these.
    pub cores: Vec<CoreTraffic>,
    /// What further cores run, each an application.
    pub applications: Vec<Application>,
    /// What devices do; none: nothing.
    pub devices: Option<DeviceTraffic>,
    /// The device is the platform's NIC, with its link and its buffer; otherwise the storage devices.
    pub nic: bool,
    /// One line at a time, with so much time between two, in picoseconds; none: as fast as the link and the credits allow.
    pub device_gap: Option<u64>,
    /// Where buffers lie in memory follows from it.
    pub seed: u64,
    /// Time before the first that counts, in picoseconds.
    pub warm_up: u64,
    /// Time that counts.
    pub window: u64,
}

impl CoreTraffic {
    /// Loads of line after line.
    pub const READ: CoreTraffic = CoreTraffic { writes: false, pattern: Pattern::Sequential, work: 0 };
    /// Stores of line after line.
    pub const READ_WRITE: CoreTraffic = CoreTraffic { writes: true, ..CoreTraffic::READ };
}

impl Traffic {
    /// So many cores that do the same, beside devices; 20 us that do not count and 100 that do.
    pub fn of(core: CoreTraffic, cores: usize, devices: Option<DeviceTraffic>) -> Traffic {
        Traffic {
            cores: vec![core; cores],
            applications: Vec::new(),
            devices,
            nic: false,
            device_gap: None,
            seed: 1,
            warm_up: 20_000_000,
            window: 100_000_000,
        }
    }

    /// So many cores that run the same application, beside devices.
    pub fn of_application(application: &Application, cores: usize, devices: Option<DeviceTraffic>) -> Traffic {
        Traffic { applications: vec![application.clone(); cores], ..Traffic::of(CoreTraffic::READ, 0, devices) }
    }
}
