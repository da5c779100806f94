//! Questions answered by the simulator.

mod loopback;

pub use loopback::loopback;
