//! A DPDK device as a port: any that DPDK has a driver for, physical or virtual. Optional at build (the feature `dpdk`), because
//! it links DPDK's libraries; without it, opening one says so.
//!
//! `shim.c` calls DPDK, whose data path is inline functions. DPDK is started once in a process, with the options of the first
//! device that is opened. A queue is for one thread at a time; the queues of a device may be on several.

#[cfg(feature = "dpdk")]
mod device;
mod error;

#[cfg(feature = "dpdk")]
pub use device::Dpdk;
pub use error::{DpdkError, DpdkProblem};

use crate::{Port, PortError};

/// How a DPDK device is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// The device, as DPDK names it: `net_af_packet0,iface=veth0` or `0000:01:00.0`.
    pub device: String,
    /// How many queues: 1 to 64.
    pub queues: usize,
    /// Slots of each ring: a power of two from 64 to 16384. The device may take fewer.
    pub frames: usize,
    /// Memory that DPDK sets aside when it is started.
    pub megabytes: usize,
    /// Whether that is of huge pages.
    pub huge_pages: bool,
}

impl DpdkOptions {
    /// One queue of 1024 slots, in 256 MB of plain pages.
    pub fn new(device: &str) -> DpdkOptions {
        DpdkOptions { device: device.to_owned(), queues: 1, frames: 1024, megabytes: 256, huge_pages: false }
    }

    /// Opens the device: a port for each queue.
    ///
    /// # Errors
    /// This program was built without DPDK; or DPDK does not start, has no such device, or the device refuses.
    pub fn open(&self) -> Result<Vec<Box<dyn Port>>, PortError> {
        #[cfg(feature = "dpdk")]
        return Ok(Dpdk::open_queues(self)?.into_iter().map(|queue| Box::new(queue) as Box<dyn Port>).collect());
        #[cfg(not(feature = "dpdk"))]
        Err(DpdkError { device: self.device.clone(), problem: DpdkProblem::NotBuilt }.into())
    }

    /// Does for [`DpdkOptions::open`] what can be done while another process has the device.
    ///
    /// # Errors
    /// This program was built without DPDK; or DPDK does not start, or has not the memory.
    pub fn prepare(&self) -> Result<(), PortError> {
        #[cfg(feature = "dpdk")]
        return Dpdk::prepare(self);
        #[cfg(not(feature = "dpdk"))]
        Err(DpdkError { device: self.device.clone(), problem: DpdkProblem::NotBuilt }.into())
    }
}
