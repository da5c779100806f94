//! What the commands share with their tests.

pub mod process;
