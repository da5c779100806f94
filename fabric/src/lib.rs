//! The seam: everything that an interface knows of the machine it runs on.
//!
//! An interface between a host and a network interface is written once, generic over [`Core`] and [`Device`], and runs
//! in four worlds: native shared memory, a simulated machine, loom's model checker, and crash injection. Nothing in this
//! room does anything; it says what can be done, and what it means. See `ARCHITECTURE.md`.

mod address;
mod core;
mod device;
mod layout;
mod time;

pub use address::{Address, LINE_BYTES, LINE_WORDS, Line, lines_of};
pub use core::Core;
pub use device::{
    Arrival, Ask, Device, DeviceMemory, Grant, HomeAgent, PlayedByCore, ReadTag, RegisterAccess, StateHint,
};
pub use layout::{Home, Layout, MemoryType, Segment, SynchronisingWords};
pub use time::Time;
