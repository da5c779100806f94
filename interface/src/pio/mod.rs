//! Coherent programmed I/O: messages between a core and a device through pairs of lines that the device is home to
//! ("Rethinking Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects", section 4).
//!
//! | file | what |
//! |---|---|
//! | [`protocol`] | the device's side as a pure transition function, with its tables |
//! | `shape.rs` | how many lines, where they lie, which byte lies in which |
//! | [`control`] | the control word |
//! | `host.rs` | the CPU's half |
//! | `patience.rs` | when it looks for an answer that another core writes |
//! | `device.rs` | what the two device halves have in common |
//! | `played.rs` | the device's half played by a core, on memory |
//! | `homed.rs` | the device's half over the coherence messages of its lines |
//! | `sorted.rs` | several exchanges of one such device |
//! | [`nic`] | a NIC of two exchanges: a pair of control lines and overflow lines for each direction |
//!
//! The host's half is the same for both devices: over messages, its load of the answer's control word waits until the
//! device answers; on memory it finds the old word, and looks again.

pub mod control;
mod device;
mod homed;
mod host;
pub mod nic;
mod patience;
mod played;
pub mod protocol;
mod shape;
mod sorted;

pub use device::{Device, Refusals};
pub use homed::{Behaviour, Come, Homed};
pub use host::{Features, Host, NotBegun, Poll, Signal};
pub use played::Played;
pub use shape::{Lines, Shape, ShapeError};
pub use sorted::{Part, Sorted};
