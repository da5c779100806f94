//! The recording, read again and compared with the capture.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use conic_fabric::Time;
use conic_port::{CaptureReader, MAX_FRAME, Pace, Port, Receive, Replay, Timestamp};

use super::Input;
use crate::value::grouped;

/// The recording and what was found in it.
pub struct Output {
    /// The file.
    pub path: PathBuf,
    /// What the comparison found.
    pub compared: Compared,
}

impl Output {
    /// What was found, for people.
    pub fn in_words(&self) -> String {
        let path = self.path.display();
        match &self.compared {
            Compared::Identical(frames) => {
                format!("{path} read again: {} frames and their times are the capture's", grouped(*frames))
            }
            Compared::Differs(how) => format!("{path} DIFFERS: {how}"),
            Compared::NotRepeatable => format!("{path} not compared: the capture cannot be read a second time"),
            Compared::NoFile => format!("{path} not compared: it is no file that can be read again"),
        }
    }
}

/// What the comparison of a recording found.
pub enum Compared {
    /// So many frames with their timestamps are those of the capture.
    Identical(u64),
    /// It is not what it should be; in words.
    Differs(String),
    /// The capture was a pipe or the like and cannot be read again.
    NotRepeatable,
    /// The recording was a pipe or the like, which gives nothing back.
    NoFile,
}

/// Refuses an output that is the input.
///
/// # Errors
///
/// If it is, by whatever name.
pub fn refuse_input(output: &Path, input: Option<&Path>) -> io::Result<()> {
    let identity = |path: &Path| path.metadata().ok().map(|about| (about.dev(), about.ino()));
    match (identity(output), input.and_then(identity)) {
        (Some(there), Some(replayed)) if there == replayed => {
            let text = format!("{}: is the capture being replayed; record to another file", output.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}

/// Compares the recording at `path`, which should hold `frames` frames, with the beginning of what `input` gives.
pub fn compare(path: &Path, input: Option<&Input>, replay: Replay, frames: u64) -> Compared {
    if !path.metadata().is_ok_and(|about| about.is_file()) {
        return Compared::NoFile;
    }
    let Some(input) = input else { return Compared::NotRepeatable };
    let replay = Replay { pace: Pace::AsFastAsPossible, ..replay };
    let original = match input.open(replay) {
        Ok(port) => Frames::new(port),
        Err(error) => return Compared::Differs(error.to_string()),
    };
    match read_both(path, original, frames) {
        Ok(count) => Compared::Identical(count),
        Err(difference) => Compared::Differs(difference),
    }
}

fn read_both(path: &Path, mut original: Frames, frames: u64) -> Result<u64, String> {
    let mut recorded = CaptureReader::open(path).map_err(|error| error.to_string())?;
    let mut count = 0;
    let mut latest = Timestamp::default();
    while let Some(record) = recorded.next_record().map_err(|error| error.to_string())? {
        let Some((frame, captured)) = original.next() else {
            return Err(format!("frame {count} at byte {} is not in the capture", record.offset));
        };
        latest = captured.unwrap_or(latest);
        if recorded.data() != frame {
            return Err(format!("frame {count} at byte {} is not the capture's", record.offset));
        }
        if record.timestamp != Some(latest) {
            return Err(format!("frame {count} at byte {} has another time than the capture's", record.offset));
        }
        count += 1;
    }
    if count == frames { Ok(count) } else { Err(format!("it holds {count} frames, and {frames} came back")) }
}

/// The frames of a port, skipped ones left out, up to its end or the place where it is broken.
struct Frames {
    port: Box<dyn Port>,
    bytes: Box<[u8; MAX_FRAME]>,
}

impl Frames {
    fn new(port: Box<dyn Port>) -> Frames {
        Frames { port, bytes: Box::new([0; MAX_FRAME]) }
    }

    fn next(&mut self) -> Option<(&[u8], Option<Timestamp>)> {
        loop {
            match self.port.receive(Time::ZERO, &mut self.bytes[..]) {
                Ok(Receive::Frame { length, captured }) => return Some((&self.bytes[..length], captured)),
                Ok(Receive::Skipped) => {}
                Ok(Receive::None | Receive::End) | Err(_) => return None,
            }
        }
    }
}
