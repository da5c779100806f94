//! What meets on a host, and its runs, which figures share.

use std::collections::BTreeMap;

use conic_sim::host::{CoreTraffic, DeviceTraffic, HostParameters, HostReport, Traffic, run};

use super::quadrants::Quadrant;
use crate::experiment::Effort;

/// What cores do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Loads of line after line.
    Reads,
    /// Stores of line after line.
    Stores,
    /// An in-memory database answers queries for random keys.
    Redis,
    /// PageRank on a random graph.
    Graph,
}

impl Work {
    /// The application's name.
    pub fn name(self) -> &'static str {
        match self {
            Work::Reads => "C2M-Read",
            Work::Stores => "C2M-ReadWrite",
            Work::Redis => "Redis",
            Work::Graph => "GAPBS",
        }
    }

    /// Whether it is an application, which does operations; otherwise lines are all that it does.
    pub fn is_application(self) -> bool {
        matches!(self, Work::Redis | Work::Graph)
    }
}

/// What meets: so many cores of some work, and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meeting {
    /// What the cores do.
    pub work: Work,
    /// How many there are.
    pub cores: usize,
    /// What devices do; none: nothing.
    pub devices: Option<DeviceTraffic>,
    /// One line at a time, with so many picoseconds between two; none: as fast as it goes.
    pub gap: Option<u64>,
    /// The device is a NIC; otherwise the storage devices.
    pub nic: bool,
    /// Devices write to the last-level cache (DDIO); none: as the platform has it.
    pub direct: Option<bool>,
}

impl Meeting {
    /// What a quadrant has: storage devices that write past the cache.
    pub fn of(quadrant: Quadrant, cores: usize) -> Meeting {
        let work = if quadrant.cores().writes { Work::Stores } else { Work::Reads };
        Meeting { work, cores, devices: Some(quadrant.devices()), gap: None, nic: false, direct: None }
    }

    /// An application beside storage devices that are read from, with direct cache access or without.
    pub fn application(work: Work, cores: usize, direct: bool) -> Meeting {
        Meeting { work, cores, direct: Some(direct), ..Meeting::of(Quadrant::First, cores) }
    }
}

/// Runs on one host, each made once: figures share them.
#[derive(Debug)]
pub struct Runs<'a> {
    /// The host.
    pub host: &'a HostParameters,
    pub(super) effort: Effort,
    seed: u64,
    known: BTreeMap<Meeting, HostReport>,
    /// How many were made.
    pub made: usize,
}

/// Throughput alone over throughput together; 1 is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Degradation {
    /// Of cores.
    pub cores: f64,
    /// Of devices.
    pub devices: f64,
}

impl<'a> Runs<'a> {
    /// None yet.
    pub fn new(host: &'a HostParameters, effort: Effort) -> Runs<'a> {
        Runs { host, effort, seed: 1, known: BTreeMap::new(), made: 0 }
    }

    /// So many cores beside the devices.
    pub fn together(&mut self, quadrant: Quadrant, cores: usize) -> HostReport {
        self.run(Meeting::of(quadrant, cores))
    }

    /// The cores without the devices.
    pub fn cores_alone(&mut self, quadrant: Quadrant, cores: usize) -> HostReport {
        self.without_devices(Meeting::of(quadrant, cores))
    }

    /// The devices without cores.
    pub fn devices_alone(&mut self, quadrant: Quadrant) -> HostReport {
        self.without_cores(Meeting::of(quadrant, 0))
    }

    /// The cores beside devices that send one line in so many picoseconds.
    pub fn beside_few(&mut self, quadrant: Quadrant, cores: usize, gap: u64) -> HostReport {
        self.run(Meeting { gap: Some(gap), ..Meeting::of(quadrant, cores) })
    }

    /// The cores of a meeting without its devices.
    pub fn without_devices(&mut self, of: Meeting) -> HostReport {
        self.run(Meeting { devices: None, nic: false, direct: None, ..of })
    }

    /// The devices of a meeting without its cores.
    pub fn without_cores(&mut self, of: Meeting) -> HostReport {
        self.run(Meeting { cores: 0, work: Work::Reads, ..of })
    }

    /// What a meeting comes out as.
    pub fn run(&mut self, of: Meeting) -> HostReport {
        if let Some(report) = self.known.get(&of) {
            return report.clone();
        }
        self.made += 1;
        let (warm_up, window) = match self.effort {
            Effort::Quick => (20_000_000, 60_000_000),
            // A NIC's buffer fills slowly where memory is a little behind its network.
            Effort::Full if of.nic => (500_000_000, 500_000_000),
            Effort::Full if of.work.is_application() => (50_000_000, 400_000_000),
            Effort::Full => (50_000_000, 1_000_000_000),
        };
        let mut host = self.host.clone();
        host.iio.writes_to_cache = of.direct.unwrap_or(host.iio.writes_to_cache);
        let traffic = match of.work {
            Work::Reads => Traffic::of(CoreTraffic::READ, of.cores, of.devices),
            Work::Stores => Traffic::of(CoreTraffic::READ_WRITE, of.cores, of.devices),
            Work::Redis => Traffic::of_application(&host.redis(), of.cores, of.devices),
            Work::Graph => Traffic::of_application(&host.graph(), of.cores, of.devices),
        };
        let traffic = Traffic { device_gap: of.gap, nic: of.nic, seed: self.seed, warm_up, window, ..traffic };
        let report = run(&host, &traffic);
        self.known.insert(of, report.clone());
        report
    }

    /// How much less cores and devices get beside each other than alone: the paper's degradation, alone over together.
    pub fn degradation(&mut self, quadrant: Quadrant, cores: usize) -> Degradation {
        self.degradation_of(Meeting::of(quadrant, cores))
    }

    /// The same of any meeting. An application's operations have as many lines each, beside devices or not.
    pub fn degradation_of(&mut self, of: Meeting) -> Degradation {
        let together = self.run(of);
        let (cores_alone, devices_alone) = (self.without_devices(of), self.without_cores(of));
        Degradation {
            cores: cores_alone.core_bytes_per_second() / together.core_bytes_per_second(),
            devices: devices_alone.device_bytes_per_second() / together.device_bytes_per_second(),
        }
    }
}
