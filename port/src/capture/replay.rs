//! The port that replays and records capture files.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use conic_fabric::Time;
use rustix::event::epoll;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::error::{CaptureError, Problem};
use super::reader::{CaptureReader, Record};
use super::timestamp::Timestamp;
use super::writer::CaptureWriter;
use crate::{Counters, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};

/// The shortest thing that can be called a frame: an Ethernet header.
const ETHERNET_HEADER: usize = 14;

/// How many times as fast as recorded a capture is replayed: a fraction, so that every time it gives is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    numerator: u32,
    denominator: u32,
}

impl Speed {
    /// As recorded.
    pub const RECORDED: Speed = Speed { numerator: 1, denominator: 1 };

    /// `numerator / denominator` times as fast as recorded; `None` where either is 0.
    pub const fn new(numerator: u32, denominator: u32) -> Option<Speed> {
        if numerator == 0 || denominator == 0 {
            return None;
        }
        Some(Speed { numerator, denominator })
    }

    /// The time that `nanoseconds` of the recording take, rounded down; saturates.
    fn time(self, nanoseconds: u64) -> Time {
        let picoseconds = u128::from(nanoseconds) * 1_000 * u128::from(self.denominator) / u128::from(self.numerator);
        Time::from_picoseconds(u64::try_from(picoseconds).unwrap_or(u64::MAX))
    }
}

impl FromStr for Speed {
    type Err = &'static str;

    /// A decimal number such as `2`, `0.5` or `1.25`, with up to six digits behind the point.
    fn from_str(text: &str) -> Result<Speed, &'static str> {
        const WRONG: &str =
            "a speed is a number above 0 such as 2, 0.5 or 1.25, with up to six digits behind the point";
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 6 {
            return Err(WRONG);
        }
        let denominator = 10u32.pow(fraction.len() as u32);
        let numerator = format!("{whole}{fraction}").parse().map_err(|_| WRONG)?;
        Speed::new(numerator, denominator).ok_or(WRONG)
    }
}

/// When the frames of a capture are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Whenever they are asked for.
    AsFastAsPossible,
    /// At the recorded distances from the first frame, which is due when first asked for. A frame whose time is before
    /// its predecessor's, or that has none, is due with its predecessor. A caller that comes late gets what was due
    /// without delay, so that the recording's mean rate is kept.
    Recorded(Speed),
}

/// How often a capture is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    /// So many times.
    Times(NonZeroU64),
    /// Until the port is dropped, or a pass through the file delivers no frame.
    Forever,
}

impl Loops {
    /// Once.
    pub const ONCE: Loops = Loops::Times(NonZeroU64::MIN);
}

/// What becomes of frames shorter than 60 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortFrames {
    /// They are padded with zeros to 60 bytes, as a NIC does when it sends them (captures on the sending machine see them
    /// before that), and counted. What is shorter than an Ethernet header is skipped.
    Pad,
    /// They are skipped and counted.
    Skip,
}

/// How a capture is replayed. The default: once, as fast as possible, short frames padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// When frames are delivered.
    pub pace: Pace,
    /// How often the capture is replayed.
    pub loops: Loops,
    /// What becomes of frames shorter than 60 bytes.
    pub short_frames: ShortFrames,
    /// At recorded pace: the time from the last frame of a pass to the first of the next. `None` stands for the mean
    /// distance of the frames of the pass, which keeps the rate.
    pub loop_gap: Option<Time>,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay { pace: Pace::AsFastAsPossible, loops: Loops::ONCE, short_frames: ShortFrames::Pad, loop_gap: None }
    }
}

/// A port that receives the frames of a capture file and records what it transmits in another. Either may be missing:
/// then nothing is received, or what is transmitted is only counted.
///
/// Files that are pipes are waited for while they are opened, until there is a capture's beginning; from then on nobody is.
pub struct CapturePort<R = File> {
    input: Option<Input<R>>,
    output: Option<Output>,
    /// The pipe that is replayed.
    pipe: Option<Awaited>,
    counters: Counters,
}

/// A pipe that is slept on while something is awaited of it. It is readable while there is more in it than has been asked for, and for ever
/// when its other end is gone: whoever waits for a frame's time sleeps through that.
struct Awaited {
    pipe: OwnedFd,
    /// What is slept on: readable when the pipe is in it and is.
    set: OwnedFd,
    is_in: bool,
}

impl Awaited {
    /// None for a file that cannot be slept on.
    fn new(file: &File) -> io::Result<Option<Awaited>> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut awaited = Awaited { pipe: file.as_fd().try_clone_to_owned()?, set, is_in: false };
        awaited.put(true);
        Ok(Some(awaited).filter(|awaited| awaited.is_in))
    }

    /// Has it wake whoever sleeps on it, or not.
    fn put(&mut self, is_in: bool) {
        let put = match (self.is_in, is_in) {
            (false, true) => epoll::add(&self.set, &self.pipe, epoll::EventData::new_u64(0), epoll::EventFlags::IN),
            (true, false) => epoll::delete(&self.set, &self.pipe),
            _ => return,
        };
        if put.is_ok() {
            self.is_in = is_in;
        }
    }
}

struct Output {
    writer: CaptureWriter<File>,
    /// The date and time of [`Time::ZERO`].
    epoch: Timestamp,
}

impl CapturePort<File> {
    /// A port that replays the capture file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened, is no capture of Ethernet frames, or is a pipe and to be replayed more than once.
    pub fn replay(path: &Path, replay: Replay) -> Result<CapturePort, PortError> {
        let port = CapturePort::replay_from(CaptureReader::open(path)?, replay)?;
        let Some(file) = port.input.as_ref().map(|input| input.reader.file()).filter(|file| is_pipe(file)) else {
            return Ok(port);
        };
        let failed = |error| CaptureError { file: path.to_owned(), offset: 0, problem: Problem::Open(error) };
        let pipe = wait_for(file, false).and_then(|()| Awaited::new(file)).map_err(failed)?;
        Ok(CapturePort { pipe, ..port })
    }

    /// A port that receives nothing, and records what it transmits in a new file at `path`; see
    /// [`CapturePort::recording_to`].
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn record(path: &Path, epoch: Timestamp) -> Result<CapturePort, PortError> {
        CapturePort::without_files().recording_to(path, epoch)
    }

    /// The same port, recording what it transmits in a new file at `path` (`.pcap` or `.pcapng`). A frame's time is
    /// `epoch` plus the time of its transmission.
    ///
    /// # Errors
    /// The file cannot be made, or is the one being replayed.
    pub fn recording_to(self, path: &Path, epoch: Timestamp) -> Result<CapturePort, PortError> {
        if let (Some(input), Ok(there)) = (&self.input, path.metadata())
            && let Ok(replayed) = input.reader.file().metadata()
            && (there.dev(), there.ino()) == (replayed.dev(), replayed.ino())
        {
            let file = path.to_owned();
            return Err(CaptureError { file, offset: 0, problem: Problem::SameFile }.into());
        }
        self.recording_by(CaptureWriter::create(path)?, epoch)
    }

    /// The same where the file at `path` may be somebody's: it is left as it is, and the new one is beside it, with a number
    /// ([`CaptureWriter::create_beside`]); [`Port::description`] says which. A pipe keeps nothing that could be written over: it gets another
    /// capture.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn recording_beside(self, path: &Path, epoch: Timestamp) -> Result<CapturePort, PortError> {
        let writer = match CaptureWriter::in_pipe(path)? {
            Some(writer) => writer,
            None => CaptureWriter::create_beside(path)?,
        };
        self.recording_by(writer, epoch)
    }

    fn recording_by(self, writer: CaptureWriter<File>, epoch: Timestamp) -> Result<CapturePort, PortError> {
        if is_pipe(writer.out()) {
            let file = writer.path().to_owned();
            let failed = |error| CaptureError { file, offset: 0, problem: Problem::Open(error) };
            wait_for(writer.out(), false).map_err(failed)?;
        }
        Ok(CapturePort { output: Some(Output { writer, epoch }), ..self })
    }

    /// A port that receives nothing, and whose transmitted frames are only counted.
    pub(crate) fn without_files() -> CapturePort {
        CapturePort { input: None, output: None, pipe: None, counters: Counters::default() }
    }
}

/// Whether a file is one in which nothing may be now, and more later.
fn is_pipe(file: &File) -> bool {
    file.metadata().is_ok_and(|about| !about.is_file())
}

/// Has reads and writes wait for the other end of a pipe, or not.
fn wait_for(file: &File, waits: bool) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, if waits { flags - OFlags::NONBLOCK } else { flags | OFlags::NONBLOCK })?)
}

impl<R: Read + Seek> CapturePort<R> {
    /// A port that replays a capture that is already open.
    ///
    /// # Errors
    /// It is a pipe or the like, and to be replayed more than once.
    pub fn replay_from(mut reader: CaptureReader<R>, replay: Replay) -> Result<CapturePort<R>, PortError> {
        if replay.loops != Loops::ONCE {
            reader.check_rewind()?;
        }
        let input = Some(Input::new(reader, replay));
        Ok(CapturePort { input, output: None, pipe: None, counters: Counters::default() })
    }
}

impl<R: Read + Seek + Send> Port for CapturePort<R> {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        match &mut self.input {
            Some(input) => Ok(input.receive(now, frame, &mut self.counters)?),
            None => Ok(Receive::End),
        }
    }

    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse_length(frame) {
            return Ok(Transmit::Refused);
        }
        if let Some(Output { writer, epoch }) = &mut self.output {
            let nanoseconds = epoch.nanoseconds().saturating_add(now.nanoseconds());
            match writer.write(Timestamp::from_nanoseconds(nanoseconds), frame) {
                Err(error) if error.is_to_come() => {
                    self.counters.transmit_full += 1;
                    return Ok(Transmit::Full);
                }
                written => written?,
            }
        }
        self.counters.count_transmitted(frame.len());
        Ok(Transmit::Accepted)
    }

    fn next_due(&self) -> Option<Time> {
        let input = self.input.as_ref().filter(|input| !input.ended && !input.is_to_come)?;
        Some(input.pending.map_or(Time::ZERO, |pending| pending.due))
    }

    fn arm(&mut self) {
        let awaits = self.input.as_ref().is_some_and(|input| input.pending.is_none());
        self.pipe.iter_mut().for_each(|pipe| pipe.put(awaits));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.set.as_fd())
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn description(&self) -> String {
        match (&self.input, &self.output) {
            (Some(_), Some(output)) => format!("capture file replayed, {} recorded", output.writer.path().display()),
            (Some(_), None) => "capture file replayed".to_owned(),
            (None, Some(output)) => format!("capture file {} recorded", output.writer.path().display()),
            (None, None) => "capture port without files".to_owned(),
        }
    }

    fn finish(&mut self) -> Result<(), PortError> {
        let Some(Output { writer, .. }) = &mut self.output else { return Ok(()) };
        if !is_pipe(writer.out()) {
            return Ok(writer.finish()?);
        }
        // Here it is waited for: nothing comes behind it that would take the rest.
        let _ = wait_for(writer.out(), true);
        let finished = writer.finish();
        let _ = wait_for(writer.out(), false);
        Ok(finished?)
    }
}

/// A frame that the reader stands at and that waits for its time.
#[derive(Clone, Copy)]
struct Pending {
    captured: Option<Timestamp>,
    due: Time,
}

struct Input<R> {
    reader: CaptureReader<R>,
    replay: Replay,
    pending: Option<Pending>,
    /// Passes begun after the first.
    repeats: u64,
    /// Frames delivered in this pass.
    delivered: u64,
    /// The first timestamp of this pass and the time at which its frame was due.
    origin: Option<(Timestamp, Time)>,
    /// When the last frame was due; before the first, none.
    last_due: Option<Time>,
    ended: bool,
    /// The other end of a pipe has given nothing more.
    is_to_come: bool,
}

impl<R: Read + Seek> Input<R> {
    fn new(reader: CaptureReader<R>, replay: Replay) -> Input<R> {
        let (pending, origin, last_due) = (None, None, None);
        let (repeats, delivered, ended, is_to_come) = (0, 0, false, false);
        Input { reader, replay, pending, repeats, delivered, origin, last_due, ended, is_to_come }
    }

    fn receive(&mut self, now: Time, frame: &mut [u8], counters: &mut Counters) -> Result<Receive, CaptureError> {
        if self.ended {
            return Ok(Receive::End);
        }
        self.is_to_come = false;
        let pending = match self.pending {
            Some(pending) => pending,
            None => match self.next_record() {
                Ok(Some(record)) if self.is_wanted(&record, counters) => {
                    let pending = Pending { captured: record.timestamp, due: self.due(now, record.timestamp) };
                    self.pending = Some(pending);
                    pending
                }
                Ok(Some(_)) => return Ok(Receive::Skipped),
                Ok(None) => {
                    self.ended = true;
                    return Ok(Receive::End);
                }
                Err(error) if error.is_to_come() => {
                    self.is_to_come = true;
                    return Ok(Receive::None);
                }
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            },
        };
        if pending.due > now {
            return Ok(Receive::None);
        }
        self.pending = None;
        self.delivered += 1;
        let data = self.reader.data();
        let length = data.len().max(MIN_FRAME);
        let Some(destination) = frame.get_mut(..length) else {
            counters.skipped_oversized += 1;
            return Ok(Receive::Skipped);
        };
        let (head, padding) = destination.split_at_mut(data.len());
        head.copy_from_slice(data);
        if !padding.is_empty() {
            padding.fill(0);
            counters.received_padded += 1;
        }
        counters.count_received(length);
        Ok(Receive::Frame { length, captured: pending.captured })
    }

    /// The next record, of the next pass where this one is over and there is one.
    fn next_record(&mut self) -> Result<Option<Record>, CaptureError> {
        if let Some(record) = self.reader.next_record()? {
            return Ok(Some(record));
        }
        let again = match self.replay.loops {
            Loops::Times(times) => self.repeats + 1 < times.get(),
            Loops::Forever => true,
        };
        // A file without a frame to deliver would be read for ever.
        if !again || self.delivered == 0 {
            return Ok(None);
        }
        self.reader.rewind()?;
        self.repeats += 1;
        if let (Some((_, first)), Some(last)) = (self.origin, self.last_due) {
            let mean = last.since(first).picoseconds() / (self.delivered - 1).max(1);
            let gap = self.replay.loop_gap.unwrap_or(Time::from_picoseconds(mean));
            self.last_due = Some(last + gap);
        }
        self.origin = None;
        self.delivered = 0;
        self.reader.next_record()
    }

    /// Whether a record is a frame to deliver; where it is not, counts why.
    fn is_wanted(&self, record: &Record, counters: &mut Counters) -> bool {
        let captured = record.captured as usize;
        let shortest = match self.replay.short_frames {
            ShortFrames::Pad => ETHERNET_HEADER,
            ShortFrames::Skip => MIN_FRAME,
        };
        let reason = if record.is_truncated() {
            &mut counters.skipped_truncated
        } else if captured > MAX_FRAME {
            &mut counters.skipped_oversized
        } else if captured < shortest {
            &mut counters.skipped_short
        } else {
            return true;
        };
        *reason += 1;
        false
    }

    /// When the frame captured at `captured` is due.
    fn due(&mut self, now: Time, captured: Option<Timestamp>) -> Time {
        let Pace::Recorded(speed) = self.replay.pace else {
            return Time::ZERO;
        };
        let earliest = self.last_due.unwrap_or(now);
        let due = match (captured, self.origin) {
            (None, _) => earliest,
            (Some(captured), None) => {
                self.origin = Some((captured, earliest));
                earliest
            }
            (Some(captured), Some((first, start))) => {
                (start + speed.time(captured.nanoseconds_since(first))).max(earliest)
            }
        };
        self.last_due = Some(due);
        due
    }
}
