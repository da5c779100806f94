//! A TAP interface: the kernel's own network stack as the peer.
//!
//! Source: Linux, Documentation/networking/tuntap.rst; netdevice(7).

mod error;
mod kernel;

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;

use conic_fabric::Time;

pub use error::{TapError, TapProblem};

use crate::{Counters, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};

/// Bytes of an Ethernet header.
const ETHERNET_HEADER: usize = 14;
/// Bytes that a VLAN tag adds, which an MTU does not count.
const VLAN_TAG: usize = 4;
/// The first two bytes of a VLAN tag: IEEE 802.1Q and 802.1ad.
const VLAN_TYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
/// The least MTU that IPv4 allows (RFC 791).
const MTU_MIN: usize = 68;
/// The greatest MTU whose frames are not longer than 9600 bytes.
const MTU_MAX: usize = MAX_FRAME - ETHERNET_HEADER;

/// An IPv4 address with the length of its network prefix in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Address {
    address: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Address {
    /// An address and its prefix; `None` where the prefix is longer than 32 bits.
    pub const fn new(address: Ipv4Addr, prefix: u8) -> Option<Ipv4Address> {
        if prefix > 32 {
            return None;
        }
        Some(Ipv4Address { address, prefix })
    }

    /// The address.
    pub const fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The network mask.
    pub const fn mask(self) -> Ipv4Addr {
        let bits = match self.prefix {
            0 => 0,
            prefix => u32::MAX << (32 - prefix),
        };
        Ipv4Addr::from_bits(bits)
    }
}

impl FromStr for Ipv4Address {
    type Err = &'static str;

    /// `ADDRESS/PREFIX`, such as `10.0.0.1/24`.
    fn from_str(text: &str) -> Result<Ipv4Address, &'static str> {
        const WRONG: &str = "an address is written with its prefix, such as 10.0.0.1/24";
        let (address, prefix) = text.split_once('/').ok_or(WRONG)?;
        let address = address.parse().map_err(|_| WRONG)?;
        let prefix = prefix.parse().map_err(|_| WRONG)?;
        Ipv4Address::new(address, prefix).ok_or(WRONG)
    }
}

/// What a TAP interface is to be. The default: a name that the kernel chooses, left down, with the MTU and address that
/// it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapOptions {
    /// The interface's name, up to 15 bytes. `None`: the kernel chooses `conic0` or the next that is free.
    pub name: Option<String>,
    /// The MTU to set, in bytes without the Ethernet header: 68 to 9586.
    pub mtu: Option<usize>,
    /// The IPv4 address to give to the kernel's side.
    pub address: Option<Ipv4Address>,
    /// Whether to bring the interface up.
    pub up: bool,
}

/// A TAP interface. What the kernel sends on it is received here, and what is transmitted here reaches the kernel.
/// An interface that this made vanishes when it is dropped.
#[derive(Debug)]
pub struct Tap {
    device: kernel::Device,
    mtu: usize,
    gone: bool,
    counters: Counters,
}

impl Tap {
    /// Makes the interface, or attaches to one that exists, and sets what `options` ask for.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, the process may not do this, the interface is in use or no TAP interface, or an
    /// option is out of range. The text says what to do.
    pub fn open(options: &TapOptions) -> Result<Tap, PortError> {
        if let Some(mtu) = options.mtu
            && !(MTU_MIN..=MTU_MAX).contains(&mtu)
        {
            let name = options.name.clone().unwrap_or_default();
            return Err(TapError { name, problem: TapProblem::Mtu { mtu, most: MTU_MAX } }.into());
        }
        let device = kernel::Device::open(options.name.as_deref())?;
        if let Some(mtu) = options.mtu {
            device.set_mtu(mtu)?;
        }
        if let Some(address) = options.address {
            device.set_address(address.address(), address.mask())?;
        }
        if options.up {
            device.bring_up()?;
        }
        let mtu = device.mtu()?;
        Ok(Tap { device, mtu, gone: false, counters: Counters::default() })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The interface's MTU in bytes when it was opened.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// What an error number of a read or write means, where it is not one that passes.
    fn lost(&mut self, error: std::io::Error) -> PortError {
        self.gone = true;
        TapError { name: self.name().to_owned(), problem: TapProblem::Gone(error) }.into()
    }
}

impl AsFd for Tap {
    /// The descriptor, to wait on until the kernel has sent something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Port for Tap {
    fn receive(&mut self, _now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        if self.gone {
            return Ok(Receive::End);
        }
        let limit = frame.len().min(MAX_FRAME);
        let length = match self.device.read(&mut frame[..limit]) {
            Ok(length) => length,
            Err(error) => match error.raw_os_error() {
                // EWOULDBLOCK is the same number.
                Some(libc::EAGAIN | libc::EINTR) => return Ok(Receive::None),
                Some(libc::EIO | libc::ENOBUFS | libc::ENOMEM) => {
                    self.counters.receive_errors += 1;
                    return Ok(Receive::None);
                }
                _ => return Err(self.lost(error)),
            },
        };
        if length > limit || limit < MIN_FRAME {
            self.counters.skipped_oversized += 1;
            return Ok(Receive::Skipped);
        }
        if length < ETHERNET_HEADER {
            self.counters.skipped_short += 1;
            return Ok(Receive::Skipped);
        }
        if length < MIN_FRAME {
            frame[length..MIN_FRAME].fill(0);
            self.counters.received_padded += 1;
        }
        let length = length.max(MIN_FRAME);
        self.counters.count_received(length);
        Ok(Receive::Frame { length, captured: None })
    }

    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if !(MIN_FRAME..=MAX_FRAME).contains(&frame.len()) {
            self.counters.refused_length += 1;
            return Ok(Transmit::Refused);
        }
        let tagged = VLAN_TYPES.iter().any(|tag| frame[12..14] == tag[..]);
        let most = self.mtu + ETHERNET_HEADER + if tagged { VLAN_TAG } else { 0 };
        // The kernel takes longer frames without a word. The least frame is always allowed: it is padding.
        if frame.len() > most.max(MIN_FRAME) {
            self.counters.refused_over_mtu += 1;
            return Ok(Transmit::Refused);
        }
        if self.gone {
            self.counters.refused_by_kernel += 1;
            return Ok(Transmit::Refused);
        }
        match self.device.write(frame) {
            Ok(()) => {
                self.counters.count_transmitted(frame.len());
                Ok(Transmit::Accepted)
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => {
                    self.counters.transmit_full += 1;
                    Ok(Transmit::Full)
                }
                // EIO: the interface is down, as if the cable were out.
                Some(libc::EIO | libc::ENOBUFS | libc::ENOMEM | libc::EINVAL) => {
                    self.counters.refused_by_kernel += 1;
                    Ok(Transmit::Refused)
                }
                _ => Err(self.lost(error)),
            },
        }
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn description(&self) -> String {
        format!("TAP interface {}", self.name())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }
}
