//! What can go wrong with a TAP interface.

use std::fmt;
use std::io;

/// What is wrong with a TAP interface. Its text also says what to do.
#[derive(Debug)]
pub struct TapError {
    /// The interface's name; empty where the kernel was to choose it.
    pub name: String,
    /// What is wrong with it.
    pub problem: TapProblem,
}

/// What is wrong with a TAP interface.
#[derive(Debug)]
#[non_exhaustive]
pub enum TapProblem {
    /// `/dev/net/tun` cannot be opened.
    Driver(io::Error),
    /// The process may not make the interface, or not attach to it.
    NotPermitted,
    /// Another process is attached to the interface.
    Busy,
    /// The interface exists and is no TAP interface, or one with other settings.
    NotTap,
    /// The interface has as many queues as it may have.
    Queues,
    /// The name is empty, too long, or has a character that the kernel refuses.
    Name,
    /// The MTU is out of range.
    Mtu {
        /// What was asked for, in bytes.
        mtu: usize,
        /// The most that is possible.
        most: usize,
    },
    /// The kernel refused a setting.
    Setting {
        /// What was to be set.
        what: &'static str,
        /// The command that does the same beforehand, without the interface's name.
        command: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The interface has been removed, or the kernel refuses it for good.
    Gone(io::Error),
}

impl fmt::Display for TapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "NAME" } else { &self.name };
        match &self.problem {
            TapProblem::Driver(error) => {
                write!(f, "/dev/net/tun cannot be opened ({error}): ")?;
                if error.raw_os_error() == Some(libc::EACCES) {
                    write!(f, "run with sudo, or allow it with: sudo chmod 666 /dev/net/tun")
                } else {
                    write!(
                        f,
                        "load the driver with: sudo modprobe tun; in a container, pass the device in, \
                         for instance with: --device /dev/net/tun --cap-add NET_ADMIN"
                    )
                }
            }
            TapProblem::NotPermitted => write!(
                f,
                "making the TAP interface {name} needs CAP_NET_ADMIN: run with sudo, or create it first with: \
                 sudo ip tuntap add dev {name} mode tap user $USER"
            ),
            TapProblem::Busy => {
                write!(f, "the TAP interface {name} is in use by another process: stop that, or choose another name")
            }
            TapProblem::NotTap => {
                write!(
                    f,
                    "the interface {name} exists and is not a TAP interface with as many queues and the same offloads: choose another name"
                )
            }
            TapProblem::Queues => {
                write!(f, "the TAP interface {name} has all the queues that it may have: give a smaller queues=")
            }
            TapProblem::Name => {
                write!(f, "{name:?} is no name for an interface: give 1 to 15 letters, digits, '-', '_' or '.'")
            }
            TapProblem::Mtu { mtu, most } => {
                write!(f, "an MTU of {mtu} bytes is out of range: give 68 to {most}")
            }
            TapProblem::Setting { what, command, error } => write!(
                f,
                "{what} of the TAP interface {name} cannot be set ({error}): run with sudo, or set it first with: \
                 sudo ip {command} dev {name}"
            ),
            TapProblem::Gone(error) => {
                write!(f, "the TAP interface {name} can no longer be used ({error}); was it removed?")
            }
        }
    }
}

impl std::error::Error for TapError {}
