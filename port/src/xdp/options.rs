//! How an AF_XDP socket is opened.

use std::str::FromStr;

/// Whether frames are to pass without being copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Without a copy where the driver can.
    #[default]
    Auto,
    /// Without a copy, or not at all.
    ZeroCopy,
    /// With a copy.
    Copy,
}

impl FromStr for CopyMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<CopyMode, &'static str> {
        match text {
            "auto" => Ok(CopyMode::Auto),
            "zero-copy" => Ok(CopyMode::ZeroCopy),
            "copy" => Ok(CopyMode::Copy),
            _ => Err("a mode is auto, zero-copy or copy"),
        }
    }
}

/// Who forwards frames between ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardMode {
    /// Whoever has the socket.
    #[default]
    User,
    /// The kernel, as far as a switch says where stations are ([`crate::Forwarding`]).
    Kernel,
}

impl FromStr for ForwardMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ForwardMode, &'static str> {
        match text {
            "user" => Ok(ForwardMode::User),
            "kernel" => Ok(ForwardMode::Kernel),
            _ => Err("frames are forwarded by user or by kernel"),
        }
    }
}

/// How an AF_XDP socket is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// The first queue.
    pub queue: u32,
    /// How many queues from there on, each with a socket: 1 to 64.
    pub queues: usize,
    /// Packets that each ring holds: a power of two from 64 to 16384.
    pub frames: usize,
    /// Whether frames are to pass without being copied.
    pub mode: CopyMode,
    /// Whether the program is attached to the network stack, even where the driver could take it.
    pub generic: bool,
    /// Whether the port looks at each received frame for a transport checksum that was begun, and completes it.
    pub complete_checksums: bool,
    /// Who forwards frames between this port and others of a switch that are opened so.
    pub forward: ForwardMode,
}

impl XdpOptions {
    /// The first queue, rings of 1024 packets, without a copy where the driver can.
    pub fn new(interface: &str) -> XdpOptions {
        XdpOptions {
            interface: interface.to_owned(),
            queue: 0,
            queues: 1,
            frames: 1024,
            mode: CopyMode::Auto,
            generic: false,
            complete_checksums: false,
            forward: ForwardMode::User,
        }
    }
}
