//! Coherent programmed I/O: messages between a core and a device through pairs of lines that the device is home to
//! ("Rethinking Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects", section 4).
//!
//! | file | what |
//! |---|---|
//! | [`protocol`] | the device's side as a pure transition function, with its tables |

pub mod protocol;
