//! Capture files: pcap and pcapng, read, replayed and written.

mod error;
mod pcap;
mod pcapng;
mod reader;
mod replay;
mod source;
mod timestamp;
mod writer;

pub use error::{CaptureError, Problem};
pub use reader::{CAPTURED_MAX, CaptureReader, Record};
pub use replay::{CapturePort, Loops, Pace, Replay, ShortFrames, Speed};
pub use timestamp::Timestamp;
pub use writer::{CaptureFormat, CaptureWriter, create_beside};
