//! What can go wrong with a DPDK device.

use std::fmt;

/// What is wrong with a DPDK device. Its text also says what to do.
#[derive(Debug)]
pub struct DpdkError {
    /// The device.
    pub device: String,
    /// What is wrong.
    pub problem: DpdkProblem,
}

/// What is wrong with a DPDK device; the texts are DPDK's.
#[derive(Debug)]
#[non_exhaustive]
pub enum DpdkProblem {
    /// This program was built without DPDK.
    NotBuilt,
    /// The name holds a zero.
    Name,
    /// DPDK does not start.
    Start(String),
    /// There is no such device, or no driver for it.
    Device(String),
    /// It is open in this process.
    Taken,
    /// It was taken off its bus, or the system asks for it back.
    Gone,
    /// The device refuses queues or memory.
    Configure(String),
}

impl fmt::Display for DpdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        match &self.problem {
            DpdkProblem::NotBuilt => write!(
                f,
                "the DPDK device {device} cannot be opened: this program was built without DPDK; build it with \
                 --features dpdk, where libdpdk-dev is installed"
            ),
            DpdkProblem::Name => write!(f, "{device:?} is no name of a DPDK device"),
            DpdkProblem::Start(error) => write!(
                f,
                "DPDK does not start ({error}): its own messages say why; without huge pages it needs none set aside, \
                 and memory= says how many MB it takes; a process starts it once, so that a NIC that runs tries again \
                 with --adopt"
            ),
            DpdkProblem::Device(error) => write!(
                f,
                "DPDK has no device {device} ({error}): name one as DPDK does, with ';' for ',', such as \
                 dpdk:net_af_packet0;iface=veth0; one of the PCI bus, such as dpdk:0000:01:00.0, must be bound to vfio-pci, \
                 or without an IOMMU to uio_pci_generic, and then needs huge pages (huge)"
            ),
            DpdkProblem::Taken => write!(f, "the DPDK device {device} is a port already: detach that one first"),
            DpdkProblem::Gone => write!(
                f,
                "the DPDK device {device} was taken away, or the system asks for it back: its port is closed; detach it, and attach \
                 one when the device is there again"
            ),
            DpdkProblem::Configure(error) => {
                write!(f, "the DPDK device {device} refuses its queues ({error}): give fewer queues= or frames=")
            }
        }
    }
}

impl std::error::Error for DpdkError {}
