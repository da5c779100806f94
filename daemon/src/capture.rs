//! A mirror that writes a capture file: copies go through a queue of fixed length to a thread that writes.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use conic_fabric::Time;
use conic_native::{Budget, clock};
use conic_nicd::switch::Mirror;
use conic_port::{CaptureFormat, CaptureWriter, Timestamp};

/// Files of one mirror, at most: beyond, somebody who attaches again and again would fill the disk.
const MOST_FILES: usize = 16;

/// Frames that wait to be written, at most: beyond, they are dropped and counted.
const MOST_WAITING: usize = 1024;

/// A frame on its way to the file.
type Copied = (Timestamp, Vec<u8>);

/// The end of it that a network's thread has; each that has a part of a port has one. When the last is dropped the file is written out and
/// closed.
#[derive(Clone)]
pub(crate) struct Capture {
    queue: SyncSender<Copied>,
    /// Nanoseconds of the wall clock at the time 0 of the machine's.
    epoch: u64,
    /// Bytes of frames that may still be written.
    left: Arc<Budget>,
}

impl Capture {
    /// Makes a file, pcap or pcapng by its extension, that takes so many bytes of frames. Nothing that is there is replaced.
    ///
    /// # Errors
    ///
    /// It cannot be made, is there, or has another extension; the text says which.
    pub(crate) fn start(path: PathBuf, most_bytes: u64) -> Result<Capture, String> {
        let format = CaptureFormat::of_path(&path)
            .ok_or_else(|| format!("{}: a capture file ends in .pcap or .pcapng", path.display()))?;
        let file = new_file(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!("{} is there already: name a new file", path.display()),
            _ => format!("{}: {error}", path.display()),
        })?;
        Capture::start_in(file, format, path, most_bytes)
    }

    /// The same with a number before the extension, from 1, where there are such files already; and the file's path.
    ///
    /// # Errors
    ///
    /// As for `start`; or as many are there as there may be.
    pub(crate) fn start_beside_others(path: &Path, most_bytes: u64) -> Result<(Capture, PathBuf), String> {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let format = CaptureFormat::of_path(path)
            .ok_or_else(|| format!("{}: a capture file ends in .pcap or .pcapng", path.display()))?;
        for number in 0..MOST_FILES {
            let path = match number {
                0 => path.to_owned(),
                _ => path.with_extension(format!("{number}.{extension}")),
            };
            match new_file(&path) {
                Ok(file) => return Ok((Capture::start_in(file, format, path.clone(), most_bytes)?, path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Err(format!("{} and {} more like it are there already: take some away", path.display(), MOST_FILES - 1))
    }

    fn start_in(file: File, format: CaptureFormat, path: PathBuf, most_bytes: u64) -> Result<Capture, String> {
        let writer = CaptureWriter::new(file, format, path);
        let (queue, copies) = sync_channel(MOST_WAITING);
        let thread = std::thread::Builder::new().name("mirror".to_owned());
        thread.spawn(move || write(writer, &copies)).map_err(|error| format!("a thread to write: {error}"))?;
        Ok(Capture { queue, epoch: clock::epoch_nanoseconds(), left: Arc::new(Budget::new(most_bytes)) })
    }
}

/// A file that was not there. Follows no link and replaces nothing, whoever may write to the folder.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Writes what comes, until nothing comes any more or the file takes no more; then whoever copies is refused.
fn write(mut writer: CaptureWriter<File>, copies: &Receiver<Copied>) {
    for (captured, frame) in copies {
        if writer.write(captured, &frame).is_err() {
            return;
        }
    }
    // There is nobody left to tell of a disk that is full.
    let _ = writer.finish();
}

impl Mirror for Capture {
    fn copy(&mut self, now: Time, frame: &[u8]) -> bool {
        let bytes = frame.len() as u64;
        // Behind one for which there is no room no shorter one is let through: the file ends there.
        if !self.left.spend(bytes) {
            return false;
        }
        let captured = Timestamp::from_nanoseconds(self.epoch + now.nanoseconds());
        let taken = self.queue.try_send((captured, frame.to_vec())).is_ok();
        if !taken {
            self.left.give_back(bytes);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_the_queue_full_is_not_spent_and_frames_have_the_time_of_the_wall() {
        let (queue, copies) = sync_channel(1);
        let mut capture = Capture { queue, epoch: 1_000_000, left: Arc::new(Budget::new(100)) };
        let now = Time::from_nanoseconds(5);
        assert!(capture.copy(now, &[1; 60]));
        assert!(!capture.copy(now, &[2; 30]), "the first one waits");
        let (captured, frame) = copies.recv().expect("it is there");
        assert_eq!((captured, frame), (Timestamp::from_nanoseconds(1_000_005), vec![1; 60]));
        assert!(capture.copy(now, &[3; 40]));
        assert!(copies.recv().is_ok());
        assert!(!capture.copy(now, &[4; 1]) && copies.try_recv().is_err(), "nothing is left to spend");
    }
}
