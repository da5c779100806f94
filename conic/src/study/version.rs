//! Which version of the simulator answers.

use conic_study::kept::hash;

/// The version of the simulator: of the whole program, since any of its rooms may change what a run gives.
///
/// # Errors
///
/// If the program's own file cannot be read.
pub fn version() -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("the program's own file cannot be read, to tell its version: {error}");
    let path = std::env::current_exe().map_err(cannot)?;
    let bytes = std::fs::read(path).map_err(cannot)?;
    Ok(format!("{} {:016x}", env!("CARGO_PKG_VERSION"), hash(bytes.into_iter())))
}
