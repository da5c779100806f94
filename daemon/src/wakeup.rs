//! How long the machine's cores may take to wake up. The kernel keeps them from what takes longer to leave as long as the descriptor
//! of a request is open, so that nothing is left behind where the daemon dies.
//!
//! Source: Linux, Documentation/power/pm_qos_interface.rst.

use std::fs::File;
use std::io::{self, Write};

use crate::server::DaemonError;

/// Where requests are made.
const REQUESTS: &str = "/dev/cpu_dma_latency";

/// A request; it ends with this.
pub(crate) struct WakeupLatency {
    /// Held, and not used any more.
    _request: File,
}

impl WakeupLatency {
    /// Asks that no core takes longer than so many microseconds.
    ///
    /// # Errors
    ///
    /// Who runs the daemon may not ask, or the kernel hears no such requests.
    pub fn ask(microseconds: u32) -> Result<WakeupLatency, DaemonError> {
        WakeupLatency::request(microseconds).map_err(|error| DaemonError::Cannot {
            what: format!("having cores wake up within {microseconds} us"),
            why: format!(
                "{REQUESTS}: {error}: leave wakeup_latency_us out, or run it as a user who may write that file"
            ),
        })
    }

    fn request(microseconds: u32) -> io::Result<WakeupLatency> {
        let mut request = File::options().write(true).open(REQUESTS)?;
        request.write_all(&microseconds.to_ne_bytes())?;
        Ok(WakeupLatency { _request: request })
    }
}
