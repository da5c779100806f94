//! Graphs with a part on a device, beside the same graphs in software.

mod equality;
mod hostile;
mod mistakes;
mod rig;
mod states;
mod threads;
