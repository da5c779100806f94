//! What can go wrong with a port.

use std::fmt;

use crate::{CaptureError, DpdkError, PacketError, SocketError, TapError, XdpError};

/// A port cannot be opened, or can no longer be used. The text says what is wrong, where, and what to do.
#[derive(Debug)]
pub enum PortError {
    /// A capture file.
    Capture(Box<CaptureError>),
    /// A TAP interface.
    Tap(Box<TapError>),
    /// A packet socket.
    Packet(Box<PacketError>),
    /// An AF_XDP socket.
    Xdp(Box<XdpError>),
    /// A port at a Unix socket: memif, vhost-user.
    Socket(Box<SocketError>),
    /// A DPDK device.
    Dpdk(Box<DpdkError>),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::Capture(error) => error.fmt(f),
            PortError::Tap(error) => error.fmt(f),
            PortError::Packet(error) => error.fmt(f),
            PortError::Xdp(error) => error.fmt(f),
            PortError::Socket(error) => error.fmt(f),
            PortError::Dpdk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PortError {}

impl From<CaptureError> for PortError {
    fn from(error: CaptureError) -> PortError {
        PortError::Capture(Box::new(error))
    }
}

impl From<TapError> for PortError {
    fn from(error: TapError) -> PortError {
        PortError::Tap(Box::new(error))
    }
}

impl From<PacketError> for PortError {
    fn from(error: PacketError) -> PortError {
        PortError::Packet(Box::new(error))
    }
}

impl From<XdpError> for PortError {
    fn from(error: XdpError) -> PortError {
        PortError::Xdp(Box::new(error))
    }
}

impl From<DpdkError> for PortError {
    fn from(error: DpdkError) -> PortError {
        PortError::Dpdk(Box::new(error))
    }
}

impl From<SocketError> for PortError {
    fn from(error: SocketError) -> PortError {
        PortError::Socket(Box::new(error))
    }
}
