//! The paper's four quadrants: what cores do beside what devices do.

use conic_sim::host::{CoreTraffic, DeviceTraffic, Domain};

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
