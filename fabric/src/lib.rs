//! The seam between an interface and the memory it runs over.
mod time;
pub use time::Time;
