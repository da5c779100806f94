//! The command line of conic.
fn main() {}
