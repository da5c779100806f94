//! Tests that leave something out.

use std::io::Write;

/// Says what a test leaves out here, and why. Also where tests' output is kept back, as of those that pass.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
