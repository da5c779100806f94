//! Ports that forward frames to each other by themselves, in the kernel: what a switch has offloaded of its forwarding database.

use std::io;

/// Ports that one can forward to, at most; they are numbered from 0.
pub const PORTS: u32 = 64;

/// How an interface sends what others forward to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Bytes of the longest frame, without the frame check sequence.
    pub longest: u32,
    /// It takes frames of others' drivers too. Else only what the network stack gives.
    pub from_drivers: bool,
}

/// The part of a port that forwards frames to other ports before anybody here sees them. By itself it forwards nothing: a switch says
/// where stations are, and to which ports the way is open. A frame passes if its source is known to be here, its destination to be
/// behind another port, and the way there is open and long enough; it may have no VLAN tag. What does not is received as ever.
///
/// A station is its MAC address, as 48 bits. None of this is for a frame's way: each is a system call or more.
pub trait Forwarding: Send {
    /// What other ports forward to: the interface's number.
    fn device(&self) -> u32;

    /// Whether frames are taken in the driver: then they reach only interfaces that take those of drivers.
    fn is_in_driver(&self) -> bool;

    /// How this port sends now what others forward to it.
    ///
    /// # Errors
    ///
    /// It sends nothing; the text says why.
    fn egress(&self) -> Result<Egress, String>;

    /// From here on forwards frames of up to so many bytes to a port, whose interface has this number; with 0, none.
    ///
    /// # Errors
    ///
    /// The kernel refused it. With 0 it does not.
    fn open(&mut self, port: u32, device: u32, longest: u32) -> io::Result<()>;

    /// From here on knows a station behind a port, or behind this one where there is no other.
    ///
    /// # Errors
    ///
    /// There is no room, or the kernel refused it.
    fn place(&mut self, station: u64, port: Option<u32>) -> io::Result<()>;

    /// From here on knows a station no more.
    ///
    /// # Errors
    ///
    /// The kernel refused it.
    fn forget(&mut self, station: u64) -> io::Result<()>;

    /// Whether a frame of a station behind this port was forwarded since this was asked last.
    ///
    /// # Errors
    ///
    /// The kernel refused it.
    fn was_seen(&mut self, station: u64) -> io::Result<bool>;

    /// Frames and bytes that were forwarded from here to a port, since this one was opened here.
    ///
    /// # Errors
    ///
    /// The kernel refused it.
    fn forwarded(&self, port: u32) -> io::Result<(u64, u64)>;
}
