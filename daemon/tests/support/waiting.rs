//! Waiting for something that must come.

use conic_native::{clock, yield_core};

/// How long a test waits for what must come, in seconds.
const PATIENCE: f64 = 20.0;

/// Waits for something; microseconds that it took.
pub fn wait_until(what: &str, done: impl FnMut() -> bool) -> u64 {
    try_until(what, done).unwrap_or_else(|why| panic!("{why}"))
}

/// The same for who says by itself that it did not come.
pub fn try_until(what: &str, mut done: impl FnMut() -> bool) -> Result<u64, String> {
    let begun = clock::now();
    while !done() {
        if clock::now().since(begun).seconds() > PATIENCE {
            return Err(format!("waited too long: {what}"));
        }
        yield_core();
    }
    Ok(clock::now().since(begun).nanoseconds() / 1000)
}
