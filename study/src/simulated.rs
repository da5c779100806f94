//! Questions answered by the simulator.

mod loopback;
mod observer;
pub mod speed;

pub use loopback::{loopback, observed_loopback};
pub use observer::Observer;
