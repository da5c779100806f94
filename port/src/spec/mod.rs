//! Ports as text, `KIND:ARGUMENTS`: one syntax for every program that takes a port.
//!
//! Arguments are separated by commas: the port's name first, where the kind has one, then `key=value` and switches.

mod arguments;
mod check;
mod help;
mod kinds;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use arguments::Arguments;
pub use check::{Made, folder_of};
use conic_native::clock;
pub use help::ARGUMENTS;

use crate::{
    CapturePort, DpdkOptions, ForwardMode, Impaired, Impairment, Legacy, Loopback, Memif, MemifOptions, PacketOptions,
    PacketSocket, Port, PortError, Replay, Tap, TapOptions, Timestamp, VhostOptions, VhostUser, VirtioUser, XdpOptions,
    XdpSocket,
};

/// What the syntax is, for `--help`.
pub const SYNTAX: &str = kinds::SYNTAX;

/// A port, described: what [`PortSpec::open`] opens. Its text is what it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSpec {
    text: String,
    kind: Kind,
}

/// A kind of port with its options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// [`Loopback`], of so many frames.
    Loopback {
        /// 1 to 65536.
        frames: usize,
    },
    /// [`crate::Tap`].
    Tap(TapOptions),
    /// [`PacketSocket`].
    Packet(PacketOptions),
    /// [`XdpSocket`].
    Xdp(XdpOptions),
    /// [`Memif`].
    Memif(MemifOptions),
    /// [`VhostUser`].
    Vhost(VhostOptions),
    /// [`VirtioUser`].
    Virtio(VhostOptions),
    /// A DPDK device.
    Dpdk(DpdkOptions),
    /// [`crate::CapturePort`] that replays a file.
    Replay {
        /// The file to replay.
        file: PathBuf,
        /// How.
        options: Replay,
        /// The file to record what is transmitted.
        record: Option<PathBuf>,
    },
    /// [`crate::CapturePort`] that only records.
    Record {
        /// The file.
        file: PathBuf,
    },
    /// Another port with impairments in front.
    Impaired(Impairment, Box<PortSpec>),
}

/// Why a text describes no port. It says what is wrong, where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port '{}': {}", self.text, self.problem)
    }
}

impl std::error::Error for SpecError {}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PortSpec, SpecError> {
        let failed = |problem| SpecError { text: text.to_owned(), problem };
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let kind = match name {
            // The one kind that holds another: its arguments end where the other port begins.
            "impair" => {
                let (own, below) = rest.split_once('+').ok_or_else(|| {
                    failed("behind '+' comes the port to impair, such as impair:loss=1%+tap:conic0".to_owned())
                })?;
                let impairment = Arguments::read(own, &kinds::IMPAIR).and_then(|given| kinds::impairment(&given));
                let below: PortSpec = below.parse()?;
                if below.forwards_by_itself() {
                    let why = "what the kernel forwards is not impaired: leave forward=kernel out";
                    return Err(failed(why.to_owned()));
                }
                Kind::Impaired(impairment.map_err(failed)?, Box::new(below))
            }
            _ => kinds::read(name, rest).map_err(failed)?,
        };
        Ok(PortSpec { text: text.to_owned(), kind })
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PortSpec {
    /// What it describes.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// How many queues it asks for: 1, except where the kind has several and the text says so.
    pub fn queues(&self) -> usize {
        match &self.kind {
            Kind::Impaired(_, below) => below.queues(),
            Kind::Tap(options) => options.queues,
            Kind::Packet(options) => options.queues,
            Kind::Xdp(options) => options.queues,
            Kind::Memif(options) => options.queues,
            Kind::Dpdk(options) => options.queues,
            Kind::Vhost(options) | Kind::Virtio(options) => options.queues,
            Kind::Loopback { .. } | Kind::Replay { .. } | Kind::Record { .. } => 1,
        }
    }

    /// Whether it asks for frames to be forwarded before they are received here ([`crate::Forwarding`]).
    pub fn forwards_by_itself(&self) -> bool {
        matches!(&self.kind, Kind::Xdp(XdpOptions { forward: ForwardMode::Kernel, .. }))
    }

    /// Opens the port: one [`Port`] for each of its queues, in order. Flows are spread over them by whoever is at the other
    /// end; a frame may be transmitted through any.
    ///
    /// # Errors
    /// The kind's.
    pub fn open(&self) -> Result<Vec<Box<dyn Port>>, PortError> {
        match &self.kind {
            Kind::Impaired(impairment, below) => Ok(impaired(impairment, below.open()?)),
            Kind::Loopback { frames } => Ok(vec![Box::new(Loopback::new(*frames))]),
            Kind::Tap(options) => Ok(boxed(Tap::open_queues(options)?)),
            Kind::Packet(options) => Ok(boxed(PacketSocket::open_queues(options)?)),
            Kind::Xdp(options) => Ok(boxed(XdpSocket::open_queues(options)?)),
            Kind::Dpdk(options) => options.open(),
            Kind::Memif(options) => Ok(boxed(Memif::open_queues(options)?)),
            Kind::Vhost(options) => Ok(boxed(VhostUser::open_queues(options)?)),
            Kind::Virtio(options) => Ok(boxed(VirtioUser::open_queues(options)?)),
            Kind::Replay { .. } | Kind::Record { .. } => self.open_capture(CapturePort::recording_to),
        }
    }

    fn open_capture(
        &self,
        recording: fn(CapturePort, &Path, Timestamp) -> Result<CapturePort, PortError>,
    ) -> Result<Vec<Box<dyn Port>>, PortError> {
        let (port, record) = match &self.kind {
            Kind::Replay { file, options, record } => (CapturePort::replay(file, *options)?, record.as_ref()),
            Kind::Record { file } => (CapturePort::without_files(), Some(file)),
            _ => (CapturePort::without_files(), None),
        };
        // Whoever opens a port by its text has times of this clock.
        let epoch = Timestamp::from_nanoseconds(clock::epoch_nanoseconds());
        Ok(vec![Box::new(match record {
            Some(record) => recording(port, record, epoch)?,
            None => port,
        })])
    }

    /// Whether it records to a file, which another process that has such a port may still be writing. Who goes on behind that one
    /// ([`PortSpec::inherit`]) writes beside it.
    pub fn records(&self) -> bool {
        match &self.kind {
            Kind::Impaired(_, below) => below.records(),
            Kind::Replay { record, .. } => record.is_some(),
            Kind::Record { .. } => true,
            _ => false,
        }
    }

    /// Whether opening it waits for somebody else, who comes when he likes: a capture that it names is a pipe.
    pub fn may_wait(&self) -> bool {
        let is_pipe = |path: &Path| path.metadata().is_ok_and(|about| !about.is_file());
        match &self.kind {
            Kind::Impaired(_, below) => below.may_wait(),
            Kind::Replay { file, record, .. } => is_pipe(file) || record.as_deref().is_some_and(is_pipe),
            Kind::Record { file } => is_pipe(file),
            _ => false,
        }
    }

    /// Does for [`PortSpec::inherit`] what can be done while the other process has the port: starts DPDK for a device of it.
    ///
    /// # Errors
    /// The kind's: then it could not be gone on with.
    pub fn prepare(&self) -> Result<(), PortError> {
        match &self.kind {
            Kind::Impaired(_, below) => below.prepare(),
            Kind::Dpdk(options) => options.prepare(),
            _ => Ok(()),
        }
    }

    /// Goes on with the queues of the same port of another process, by what each of them gave ([`Port::bequeath`]), in order; none of
    /// its settings is touched.
    ///
    /// # Errors
    /// It cannot be gone on with, or what was given is not of such a port; then all descriptors are closed.
    pub fn inherit(&self, legacies: Vec<Legacy>) -> Result<Vec<Box<dyn Port>>, PortError> {
        match &self.kind {
            Kind::Impaired(impairment, below) => Ok(impaired(impairment, below.inherit(legacies)?)),
            Kind::Tap(options) => Ok(boxed(Tap::inherit(options, legacies)?)),
            Kind::Xdp(options) => Ok(boxed(XdpSocket::inherit(options, legacies)?)),
            Kind::Memif(options) => Ok(boxed(Memif::inherit(options, legacies)?)),
            Kind::Vhost(options) => Ok(boxed(VhostUser::inherit(options, legacies)?)),
            // What the other process has recorded stays, whether or not that is written out.
            Kind::Replay { .. } | Kind::Record { .. } => self.open_capture(CapturePort::recording_beside),
            // These give nothing, or are closed by whoever had them.
            Kind::Virtio(_) | Kind::Loopback { .. } | Kind::Packet(_) | Kind::Dpdk(_) => self.open(),
        }
    }
}

fn impaired(impairment: &Impairment, queues: Vec<Box<dyn Port>>) -> Vec<Box<dyn Port>> {
    let queues = queues.into_iter().enumerate().map(|(queue, port)| {
        let seed = impairment.seed.wrapping_add(queue as u64);
        Box::new(Impaired::new(port, Impairment { seed, ..*impairment })) as Box<dyn Port>
    });
    queues.collect()
}

fn boxed<P: Port + 'static>(queues: Vec<P>) -> Vec<Box<dyn Port>> {
    queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Port>).collect()
}

#[cfg(test)]
mod tests;
