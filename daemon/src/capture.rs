//! A mirror that writes a capture file: copies go through a queue of fixed length to a thread that writes.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use conic_fabric::Time;
use conic_native::{Budget, clock};
use conic_nicd::switch::Mirror;
use conic_port::{CaptureFormat, CaptureWriter, Timestamp, create_beside};

/// Files of one mirror, at most: beyond, somebody who attaches again and again would fill the disk.
const MOST_FILES: u32 = 16;

/// Frames that wait to be written, at most: beyond, they are dropped and counted.
const MOST_WAITING: usize = 1024;

/// How long nothing comes before what is there is written out.
const QUIET: Duration = Duration::from_secs(1);

/// How long the end waits for what is still to be written: a disk may take none of it any more.
pub(crate) const PATIENCE: Time = Time::from_nanoseconds(1_000_000_000);

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

/// The threads that write, for whoever is to wait for them.
pub(crate) struct Writers {
    /// Each has a copy until it ends; nothing is sent.
    alive: Sender<()>,
    ended: Receiver<()>,
}

impl Default for Writers {
    fn default() -> Writers {
        let (alive, ended) = channel();
        Writers { alive, ended }
    }
}

impl Writers {
    /// Waits until all have ended whose mirrors are gone, or this moment; whether they have.
    fn wait(self, until: Time) -> bool {
        drop(self.alive);
        let left = Duration::from_nanos(until.since(clock::now()).nanoseconds());
        self.ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)
    }

    /// Waits for all of several networks, as long as it is worth.
    pub(crate) fn wait_for(all: Vec<Writers>) {
        let until = clock::now() + PATIENCE;
        // What is not written by then goes with the process.
        all.into_iter().for_each(|writers| _ = writers.wait(until));
    }
}

impl Capture {
    /// Makes a file, pcap or pcapng by its extension, that takes so many bytes of frames. Nothing that is there is replaced.
    ///
    /// # Errors
    ///
    /// It cannot be made, is there, or has another extension; the text says which.
    pub(crate) fn start(path: PathBuf, most_bytes: u64, writers: &Writers) -> Result<Capture, String> {
        let format = CaptureFormat::of_path(&path)
            .ok_or_else(|| format!("{}: a capture file ends in .pcap or .pcapng", path.display()))?;
        let (file, path) = create_beside(&path, 0).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!("{} is there already: name a new file", path.display()),
            _ => format!("{}: {error}", path.display()),
        })?;
        Capture::start_in(file, format, path, most_bytes, writers)
    }

    /// The same with a number before the extension, from 1, where there are such files already; and the file's path.
    ///
    /// # Errors
    ///
    /// As for `start`; or as many are there as there may be.
    pub(crate) fn start_beside_others(
        path: &Path,
        most_bytes: u64,
        writers: &Writers,
    ) -> Result<(Capture, PathBuf), String> {
        let format = CaptureFormat::of_path(path)
            .ok_or_else(|| format!("{}: a capture file ends in .pcap or .pcapng", path.display()))?;
        let (file, path) = create_beside(path, MOST_FILES - 1).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("{} and {} more like it are there already: take some away", path.display(), MOST_FILES - 1)
            }
            _ => format!("{}: {error}", path.display()),
        })?;
        Ok((Capture::start_in(file, format, path.clone(), most_bytes, writers)?, path))
    }

    fn start_in(
        file: File,
        format: CaptureFormat,
        path: PathBuf,
        most_bytes: u64,
        writers: &Writers,
    ) -> Result<Capture, String> {
        let writer = CaptureWriter::new(file, format, path);
        let (queue, copies) = sync_channel(MOST_WAITING);
        let thread = std::thread::Builder::new().name("mirror".to_owned());
        let alive = writers.alive.clone();
        let begun = thread.spawn(move || {
            write(writer, &copies);
            drop(alive);
        });
        begun.map_err(|error| format!("a thread to write: {error}"))?;
        Ok(Capture { queue, epoch: clock::epoch_nanoseconds(), left: Arc::new(Budget::new(most_bytes)) })
    }
}

/// Writes what comes, until nothing comes any more or the file takes no more; then whoever copies is refused. There is nobody to tell of a
/// disk that is full.
fn write(mut writer: CaptureWriter<File>, copies: &Receiver<Copied>) {
    // Whoever looks into the file finds a capture.
    if writer.finish().is_err() {
        return;
    }
    let mut next = copies.recv().ok();
    while let Some((captured, frame)) = next {
        if writer.write(captured, &frame).is_err() {
            return;
        }
        next = match copies.recv_timeout(QUIET) {
            Ok(copied) => Some(copied),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) if writer.finish().is_err() => return,
            Err(RecvTimeoutError::Timeout) => copies.recv().ok(),
        };
    }
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
    use std::io::{self, Read};
    use std::os::fd::OwnedFd;

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

    /// A mirror that writes into a pipe, with more frames on their way than lie anywhere between.
    fn piped(writers: &Writers) -> (io::PipeReader, usize) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let (file, path) = (File::from(OwnedFd::from(writer)), "pipe.pcap".into());
        let capture = Capture::start_in(file, CaptureFormat::Pcap, path, u64::MAX, writers);
        let mut capture = capture.expect("it starts");
        let taken = (0..MOST_WAITING).filter(|_| capture.copy(Time::ZERO, &[7; 1500])).count();
        assert_eq!(taken, MOST_WAITING);
        (reader, 24 + taken * (16 + 1500))
    }

    #[test]
    fn the_end_waits_for_what_is_still_to_be_written_and_not_for_ever() {
        let writers = Writers::default();
        let (mut reader, bytes) = piped(&writers);
        let read = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all.len())
        });
        assert!(writers.wait(clock::now() + Time::from_nanoseconds(20_000_000_000)));
        // The thread lets go of the file before it says that it has ended.
        assert_eq!(read.join().expect("it reads").expect("a pipe"), bytes);
        let writers = Writers::default();
        let (reader, _) = piped(&writers);
        assert!(!writers.wait(clock::now() + Time::from_nanoseconds(50_000_000)), "nobody reads");
        drop(reader);
    }

    #[test]
    fn what_is_there_is_written_out_when_nothing_more_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        let mut capture = Capture::start(path.clone(), u64::MAX, &Writers::default()).expect("it starts");
        let length_is = |bytes: u64| {
            let until = clock::now() + Time::from_nanoseconds(20_000_000_000);
            while path.metadata().expect("it is there").len() != bytes {
                assert!(clock::now() < until, "{bytes} bytes");
                conic_native::yield_core();
            }
        };
        length_is(24);
        for frames in 1..=2 {
            assert!(capture.copy(Time::ZERO, &[7; 100]));
            length_is(24 + frames * 116);
        }
    }
}
