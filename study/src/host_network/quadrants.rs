//! The paper's four quadrants: what cores do beside what devices do.

use std::collections::BTreeMap;

use conic_sim::host::{CoreTraffic, DeviceTraffic, Domain, HostParameters, HostReport, Traffic, run};

use crate::experiment::Effort;

/// Cores and devices that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quadrant {
    /// Reads of cores, writes of devices.
    First,
    /// Reads of cores, reads of devices.
    Second,
    /// Stores of cores, writes of devices.
    Third,
    /// Stores of cores, reads of devices.
    Fourth,
}

impl Quadrant {
    /// All of them, in the paper's order.
    pub const ALL: [Quadrant; 4] = [Quadrant::First, Quadrant::Second, Quadrant::Third, Quadrant::Fourth];

    /// What each core does.
    pub fn cores(self) -> CoreTraffic {
        match self {
            Quadrant::First | Quadrant::Second => CoreTraffic::READ,
            Quadrant::Third | Quadrant::Fourth => CoreTraffic::READ_WRITE,
        }
    }

    /// What the devices do.
    pub fn devices(self) -> DeviceTraffic {
        match self {
            Quadrant::First | Quadrant::Third => DeviceTraffic::Writes,
            Quadrant::Second | Quadrant::Fourth => DeviceTraffic::Reads,
        }
    }

    /// The domain of the devices.
    pub fn device_domain(self) -> Domain {
        match self.devices() {
            DeviceTraffic::Writes => Domain::DeviceWrite,
            DeviceTraffic::Reads => Domain::DeviceRead,
        }
    }

    /// Its number.
    pub fn number(self) -> usize {
        self as usize + 1
    }

    /// What meets, in the paper's words.
    pub fn name(self) -> &'static str {
        match self {
            Quadrant::First => "C2M-Read, P2M-Write",
            Quadrant::Second => "C2M-Read, P2M-Read",
            Quadrant::Third => "C2M-ReadWrite, P2M-Write",
            Quadrant::Fourth => "C2M-ReadWrite, P2M-Read",
        }
    }
}

/// What is run: so many cores of a quadrant's, with its devices or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    stores: bool,
    cores: usize,
    devices: Option<bool>,
    gap: Option<u64>,
}

/// Runs on one host, each made once: figures share them.
#[derive(Debug)]
pub struct Runs<'a> {
    /// The host.
    pub host: &'a HostParameters,
    effort: Effort,
    seed: u64,
    known: BTreeMap<Point, HostReport>,
    /// How many were made.
    pub made: usize,
}

impl<'a> Runs<'a> {
    /// None yet.
    pub fn new(host: &'a HostParameters, effort: Effort) -> Runs<'a> {
        Runs { host, effort, seed: 1, known: BTreeMap::new(), made: 0 }
    }

    /// So many cores beside the devices.
    pub fn together(&mut self, quadrant: Quadrant, cores: usize) -> HostReport {
        self.of(quadrant, cores, Some(quadrant.devices()), None)
    }

    /// The cores without the devices.
    pub fn cores_alone(&mut self, quadrant: Quadrant, cores: usize) -> HostReport {
        self.of(quadrant, cores, None, None)
    }

    /// The devices without cores.
    pub fn devices_alone(&mut self, quadrant: Quadrant) -> HostReport {
        self.of(quadrant, 0, Some(quadrant.devices()), None)
    }

    /// The cores beside devices that send one line in so many picoseconds.
    pub fn beside_few(&mut self, quadrant: Quadrant, cores: usize, gap: u64) -> HostReport {
        self.of(quadrant, cores, Some(quadrant.devices()), Some(gap))
    }

    fn of(&mut self, quadrant: Quadrant, cores: usize, devices: Option<DeviceTraffic>, gap: Option<u64>) -> HostReport {
        let core = quadrant.cores();
        let writes = devices.map(|devices| devices == DeviceTraffic::Writes);
        let point = Point { stores: core.writes, cores, devices: writes, gap };
        if let Some(report) = self.known.get(&point) {
            return report.clone();
        }
        self.made += 1;
        let (warm_up, window) = match self.effort {
            Effort::Quick => (20_000_000, 60_000_000),
            Effort::Full => (50_000_000, 1_000_000_000),
        };
        let traffic =
            Traffic { device_gap: gap, seed: self.seed, warm_up, window, ..Traffic::of(core, cores, devices) };
        let report = run(self.host, &traffic);
        self.known.insert(point, report.clone());
        report
    }

    /// How much less cores and devices get beside each other than alone: the paper's degradation, alone over together.
    pub fn degradation(&mut self, quadrant: Quadrant, cores: usize) -> Degradation {
        let together = self.together(quadrant, cores);
        let cores_alone = self.cores_alone(quadrant, cores).core_bytes_per_second();
        let devices_alone = self.devices_alone(quadrant).device_bytes_per_second();
        Degradation {
            cores: cores_alone / together.core_bytes_per_second(),
            devices: devices_alone / together.device_bytes_per_second(),
        }
    }
}

/// Throughput alone over throughput together; 1 is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Degradation {
    /// Of cores.
    pub cores: f64,
    /// Of devices.
    pub devices: f64,
}
