//! Ports, opened as the configuration says.

use conic_native::clock;
use conic_nicd::config::PortConfig;
use conic_port::{CapturePort, Pace, Port, PortError, Replay, Speed, Tap, TapOptions, Timestamp};

/// Opens a port; the error says which, and what to do.
pub(crate) fn open(config: &PortConfig) -> Result<Box<dyn Port>, String> {
    let failed = |error: PortError| error.to_string();
    match config {
        PortConfig::Tap { name, address, mtu } => {
            let address = address.as_deref().map(str::parse).transpose().map_err(str::to_owned)?;
            let options = TapOptions { name: name.clone(), mtu: *mtu, address, up: true };
            Ok(Box::new(Tap::open(&options).map_err(failed)?))
        }
        PortConfig::Capture { replay, record } => {
            let epoch = Timestamp::from_nanoseconds(clock::epoch_nanoseconds());
            let pace = Replay { pace: Pace::Recorded(Speed::RECORDED), ..Replay::default() };
            let port = match (replay, record) {
                (Some(replay), None) => CapturePort::replay(replay, pace),
                (Some(replay), Some(record)) => {
                    CapturePort::replay(replay, pace).and_then(|port| port.recording_to(record, epoch))
                }
                (None, Some(record)) => CapturePort::record(record, epoch),
                (None, None) => return Err("a capture port replays or records a file, or both".to_owned()),
            };
            Ok(Box::new(port.map_err(failed)?))
        }
    }
}
