//! A TAP interface: the kernel's own network stack as the peer.
//!
//! Source: Linux, Documentation/networking/tuntap.rst; netdevice(7).

mod error;
mod kernel;

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;

use conic_fabric::Time;

pub use error::{TapError, TapProblem};

use crate::legacy::Heir;
use crate::netdevice::{ETHERNET_HEADER, is_over_mtu, longest_within_mtu};
use crate::offload::coalesce::{Coalescer, Joined};
use crate::offload::segment::{LONGEST, Segments};
use crate::offload::virtio::{HEADER_BYTES, Metadata, set_header_length};
use crate::offload::{Headers, TCP};
use crate::vnet::{Cutter, Work, complete};
use crate::{Counters, Legacy, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};

/// The least MTU that IPv4 allows (RFC 791).
const MTU_MIN: usize = 68;
/// The greatest MTU whose frames are not longer than 9600 bytes.
const MTU_MAX: usize = MAX_FRAME - ETHERNET_HEADER;

/// An IPv4 address with the length of its network prefix in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Address {
    address: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Address {
    /// An address and its prefix; `None` where the prefix is longer than 32 bits.
    pub const fn new(address: Ipv4Addr, prefix: u8) -> Option<Ipv4Address> {
        if prefix > 32 {
            return None;
        }
        Some(Ipv4Address { address, prefix })
    }

    /// The address.
    pub const fn address(self) -> Ipv4Addr {
        self.address
    }

    /// The network mask.
    pub const fn mask(self) -> Ipv4Addr {
        let bits = match self.prefix {
            0 => 0,
            prefix => u32::MAX << (32 - prefix),
        };
        Ipv4Addr::from_bits(bits)
    }
}

impl FromStr for Ipv4Address {
    type Err = &'static str;

    /// `ADDRESS/PREFIX`, such as `10.0.0.1/24`.
    fn from_str(text: &str) -> Result<Ipv4Address, &'static str> {
        const WRONG: &str = "an address is written with its prefix, such as 10.0.0.1/24";
        let (address, prefix) = text.split_once('/').ok_or(WRONG)?;
        let address = address.parse().map_err(|_| WRONG)?;
        let prefix = prefix.parse().map_err(|_| WRONG)?;
        Ipv4Address::new(address, prefix).ok_or(WRONG)
    }
}

/// What a TAP interface is to be. The default: a name that the kernel chooses, left down, with the MTU and address that
/// it has, one queue, no offloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// The interface's name, up to 15 bytes. `None`: the kernel chooses `conic0` or the next that is free.
    pub name: Option<String>,
    /// The MTU to set, in bytes without the Ethernet header: 68 to 9586.
    pub mtu: Option<usize>,
    /// The IPv4 address to give to the kernel's side.
    pub address: Option<Ipv4Address>,
    /// Whether to bring the interface up.
    pub up: bool,
    /// How many queues: 1 to 256. The kernel spreads flows over them, and answers to a flow where that came from.
    pub queues: usize,
    /// Whether the kernel leaves checksums and the cutting of TCP packets to the port, and the port joins the TCP frames of
    /// a flow before the kernel gets them: fewer calls for much TCP, one copy more.
    pub offload: bool,
}

impl Default for TapOptions {
    fn default() -> TapOptions {
        TapOptions { name: None, mtu: None, address: None, up: false, queues: 1, offload: false }
    }
}

/// A queue of a TAP interface. What the kernel sends on it is received here, and what is transmitted here reaches the
/// kernel. An interface that this made vanishes when its last queue is dropped.
pub struct Tap {
    device: kernel::Device,
    mtu: usize,
    gone: bool,
    offload: Option<Offload>,
    counters: Counters,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("name", &self.name()).field("mtu", &self.mtu).finish_non_exhaustive()
    }
}

/// What a queue with offloads holds.
struct Offload {
    cutter: Cutter,
    held: Coalescer,
    work: Work,
    /// A frame of a packet that is cut for the kernel.
    piece: Vec<u8>,
}

impl Offload {
    fn new() -> Offload {
        let (cutter, held, work) = (Cutter::new(), Coalescer::new(), Work::default());
        Offload { cutter, held, work, piece: vec![0; LONGEST] }
    }
}

impl Tap {
    /// Makes the interface, or attaches to one that exists, with one queue, and sets what `options` ask for.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, the process may not do this, the interface is in use or no TAP interface, or an
    /// option is out of range. The text says what to do.
    pub fn open(options: &TapOptions) -> Result<Tap, PortError> {
        Tap::open_queues(&TapOptions { queues: 1, ..options.clone() }).map(|mut queues| queues.remove(0))
    }

    /// The same with all its queues; at least one.
    ///
    /// # Errors
    /// As for [`Tap::open`], and where the kernel has no more queues.
    pub fn open_queues(options: &TapOptions) -> Result<Vec<Tap>, PortError> {
        if let Some(mtu) = options.mtu
            && !(MTU_MIN..=MTU_MAX).contains(&mtu)
        {
            let name = options.name.clone().unwrap_or_default();
            return Err(TapError { name, problem: TapProblem::Mtu { mtu, most: MTU_MAX } }.into());
        }
        let multiple = options.queues > 1;
        let device = kernel::Device::open(options.name.as_deref(), multiple, options.offload)?;
        if let Some(mtu) = options.mtu {
            device.set_mtu(mtu)?;
        }
        if let Some(address) = options.address {
            device.set_address(address.address(), address.mask())?;
        }
        let mut devices = vec![device];
        for _ in 1..options.queues {
            let name = devices[0].name().to_owned();
            devices.push(kernel::Device::open(Some(&name), multiple, options.offload)?);
        }
        if options.up {
            devices[0].bring_up()?;
        }
        let mtu = devices[0].mtu()?;
        Ok(Tap::of(devices, mtu, options.offload))
    }

    /// Goes on with queues that another process has opened with the same options and bequeathed, as they are.
    ///
    /// # Errors
    /// What was given is not of a TAP interface, or it was opened with other options.
    pub fn inherit(options: &TapOptions, legacies: Vec<Legacy>) -> Result<Vec<Tap>, PortError> {
        let failed = |problem| TapError { name: options.name.clone().unwrap_or_default(), problem };
        let (mut devices, mut heirs, mut mtu) = (Vec::new(), Vec::new(), 0);
        for mut legacy in legacies {
            let descriptor = legacy.descriptors.pop().ok_or_else(|| failed(TapProblem::NotTap))?;
            devices.push(kernel::Device::resume(descriptor, options.queues > 1, options.offload)?);
            let mut heir = Heir::of(legacy);
            // The kernel knows the interface by its name where it lies alone, and it may have been moved to another namespace: then what it was.
            let before = heir.number().map_err(|error| failed(TapProblem::Gone(error)))?;
            mtu = devices[0].mtu().unwrap_or(before);
            heirs.push(heir);
        }
        if devices.len() != options.queues {
            return Err(failed(TapProblem::NotTap).into());
        }
        let mut queues = Tap::of(devices, mtu, options.offload);
        for (queue, heir) in queues.iter_mut().zip(&mut heirs) {
            let gone_on = queue.offload.iter_mut().try_for_each(|offload| offload.cutter.go_on(heir));
            gone_on.map_err(|error| failed(TapProblem::Gone(error)))?;
        }
        Ok(queues)
    }

    fn of(devices: Vec<kernel::Device>, mtu: usize, offload: bool) -> Vec<Tap> {
        let queue = |device| Tap {
            device,
            mtu,
            gone: false,
            offload: offload.then(Offload::new),
            counters: Counters::default(),
        };
        devices.into_iter().map(queue).collect()
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The interface's MTU in bytes when it was opened.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// What an error number of a read or write means, where it is not one that passes.
    fn lost(&mut self, error: std::io::Error) -> PortError {
        self.gone = true;
        TapError { name: self.name().to_owned(), problem: TapProblem::Gone(error) }.into()
    }

    /// Reads what the kernel has next into the frame, or, where it is to be cut, begins with it. Gives its length, `None`
    /// where it is to be cut or was skipped and counted.
    fn read(&mut self, frame: &mut [u8]) -> std::io::Result<Option<usize>> {
        let limit = frame.len();
        let Some(offload) = &mut self.offload else {
            let length = self.device.read(None, frame, &mut [0])?;
            if length > limit {
                self.counters.skipped_oversized += 1;
            }
            return Ok(Some(length).filter(|length| *length <= limit));
        };
        let mut header = [0; HEADER_BYTES];
        let room = offload.cutter.room();
        let length = self.device.read(Some(&mut header), frame, &mut room[limit..])?;
        let Some(metadata) = Metadata::read(&header) else {
            self.counters.skipped_malformed += 1;
            return Ok(None);
        };
        if metadata.segmentation.is_some() {
            let inside = limit.min(length);
            room[..inside].copy_from_slice(&frame[..inside]);
            let begun = offload.cutter.begin(length, metadata, limit, &mut offload.work);
            self.counters.skipped_malformed += u64::from(!begun);
            return Ok(None);
        }
        if length > limit {
            self.counters.skipped_oversized += 1;
            return Ok(None);
        }
        if !complete(&mut frame[..length], metadata, &mut offload.work) {
            self.counters.skipped_malformed += 1;
            return Ok(None);
        }
        Ok(Some(length))
    }

    /// What an attempt to write came to.
    fn written(&mut self, result: std::io::Result<()>) -> Result<Transmit, PortError> {
        let Err(error) = result else { return Ok(Transmit::Accepted) };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(Transmit::Full),
            // EIO: the interface is down, as if the cable were out.
            Some(libc::EIO | libc::ENOBUFS | libc::ENOMEM | libc::EINVAL) => Ok(Transmit::Refused),
            _ => Err(self.lost(error)),
        }
    }

    /// Writes what is held; `Full` where the kernel does not take it now.
    fn write_held(&mut self) -> Result<Transmit, PortError> {
        let Some(offload) = &mut self.offload else { return Ok(Transmit::Accepted) };
        let frames = offload.held.frames() as u64;
        let Some((packet, metadata, headers, payload)) = offload.held.packet() else { return Ok(Transmit::Accepted) };
        let mut header = [0; HEADER_BYTES];
        metadata.write(Some(&headers), &mut header);
        set_header_length(&mut header, payload);
        let bytes = packet.len() as u64;
        let result = self.device.write(Some(&header), packet);
        let outcome = self.written(result);
        let Some(offload) = &mut self.offload else { return outcome };
        match &outcome {
            Ok(Transmit::Full) => return outcome,
            Ok(Transmit::Accepted) if frames > 1 => {
                offload.work.packets_joined += 1;
                offload.work.frames_joined += frames;
            }
            Ok(Transmit::Accepted) => {}
            // Nor is it tried again where the interface is gone: that would be said once more, and again.
            Ok(Transmit::Refused) | Err(_) => {
                // They were counted as transmitted when they were taken.
                self.counters.refused_by_kernel += frames;
                self.counters.transmitted_frames -= frames;
                self.counters.transmitted_bytes -= bytes + (frames - 1) * payload as u64;
            }
        }
        offload.held.clear();
        outcome
    }

    /// Writes a frame or holds it to join it to others.
    fn give(&mut self, frame: &[u8]) -> Result<Transmit, PortError> {
        let Some(offload) = &mut self.offload else {
            let result = self.device.write(None, frame);
            return self.written(result);
        };
        let mut joined = offload.held.offer(frame);
        if joined != Joined::Held {
            if self.write_held()? == Transmit::Full {
                return Ok(Transmit::Full);
            }
            if let (Joined::Other, Some(offload)) = (joined, &mut self.offload) {
                joined = offload.held.offer(frame);
            }
        }
        if joined == Joined::Held {
            return Ok(Transmit::Accepted);
        }
        let result = self.device.write(Some(&[0; HEADER_BYTES]), frame);
        self.written(result)
    }
}

impl AsFd for Tap {
    /// The descriptor, to wait on until the kernel has sent something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Tap {
    /// What a read that gave nothing means.
    fn unread(&mut self, error: std::io::Error) -> Result<Receive, PortError> {
        match error.raw_os_error() {
            // EWOULDBLOCK is the same number.
            Some(libc::EAGAIN | libc::EINTR) => Ok(Receive::None),
            Some(libc::EIO | libc::ENOBUFS | libc::ENOMEM) => {
                self.counters.receive_errors += 1;
                Ok(Receive::None)
            }
            _ => Err(self.lost(error)),
        }
    }

    /// Reads a packet with what is left to do for it; its length, or none if it means nothing here and was counted.
    fn read_unfinished(&mut self, packet: &mut [u8], metadata: &mut Metadata) -> std::io::Result<Option<usize>> {
        let mut header = [0; HEADER_BYTES];
        let length = self.device.read(Some(&mut header), packet, &mut [0])?;
        let known = Metadata::read(&header);
        self.counters.skipped_malformed += u64::from(known.is_none());
        let Some(known) = known else { return Ok(None) };
        let most = if known.segmentation.is_some() { packet.len() } else { MAX_FRAME };
        if length > most {
            self.counters.skipped_oversized += 1;
            return Ok(None);
        }
        *metadata = known;
        Ok(Some(length))
    }

    /// Whether one of the frames that a packet stands for, cut so, is longer than the interface sends.
    fn cuts_over_mtu(&self, packet: &[u8], cut: Option<Option<Segments>>) -> bool {
        match cut {
            None => is_over_mtu(packet, self.mtu),
            Some(None) => true,
            Some(Some(cut)) => cut.longest() > longest_within_mtu(packet, self.mtu),
        }
    }

    /// Writes a packet with what is left to do for it.
    fn write_unfinished(
        &mut self,
        packet: &[u8],
        metadata: Metadata,
        headers: &Headers,
    ) -> Result<Transmit, PortError> {
        let mut header = [0; HEADER_BYTES];
        metadata.write(Some(headers), &mut header);
        set_header_length(&mut header, headers.transport + headers.transport_length(packet));
        let result = self.device.write(Some(&header), packet);
        self.written(result)
    }

    /// Writes a packet as the frames that it stands for. As the first went; if others did not, the sender finds out by its flow, as on any wire.
    fn write_cut(&mut self, packet: &[u8], mut cut: Segments) -> Result<Transmit, PortError> {
        let mut first = None;
        while let Some(offload) = &mut self.offload
            && let Some(length) = cut.next(packet, &mut offload.piece)
        {
            let result = self.device.write(Some(&[0; HEADER_BYTES]), &offload.piece[..length]);
            offload.work.packets_cut += u64::from(first.is_none());
            let written = self.written(result)?;
            if *first.get_or_insert(written) != Transmit::Accepted {
                break;
            }
        }
        Ok(first.unwrap_or(Transmit::Refused))
    }
}

impl Port for Tap {
    fn receive(&mut self, _now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        if self.gone {
            return Ok(Receive::End);
        }
        let limit = frame.len().min(MAX_FRAME);
        let busy = self.offload.as_ref().is_some_and(|offload| offload.cutter.is_busy());
        let read = if busy { Ok(None) } else { self.read(&mut frame[..limit]) };
        let length = match read {
            Ok(Some(length)) => length,
            Ok(None) => match self.offload.as_mut().and_then(|offload| offload.cutter.next(&mut frame[..limit])) {
                Some(length) => length,
                None => return Ok(Receive::Skipped),
            },
            Err(error) => return self.unread(error),
        };
        Ok(self.counters.receive_frame(frame, length))
    }

    fn takes_unfinished(&self) -> bool {
        self.offload.is_some()
    }

    fn receive_unfinished(
        &mut self,
        now: Time,
        frame: &mut [u8],
        metadata: &mut Metadata,
    ) -> Result<Receive, PortError> {
        *metadata = Metadata::NONE;
        // What was begun to be cut is given to its end first.
        if self.gone || self.offload.as_ref().is_none_or(|offload| offload.cutter.is_busy()) {
            let room = frame.len().min(MAX_FRAME);
            return self.receive(now, &mut frame[..room]);
        }
        match self.read_unfinished(frame, metadata) {
            Ok(Some(length)) => Ok(self.counters.receive_frame(frame, length)),
            Ok(None) => Ok(Receive::Skipped),
            Err(error) => self.unread(error),
        }
    }

    fn transmit_unfinished(&mut self, _now: Time, packet: &[u8], metadata: Metadata) -> Result<Transmit, PortError> {
        let headers = Headers::of(packet);
        let (true, Some(headers)) = ((MIN_FRAME..=LONGEST).contains(&packet.len()), headers) else {
            self.counters.refused_length += 1;
            return Ok(Transmit::Refused);
        };
        let cut = metadata.segmentation.map(|segmentation| Segments::of(packet, segmentation));
        if self.cuts_over_mtu(packet, cut) {
            self.counters.refused_over_mtu += 1;
            return Ok(Transmit::Refused);
        }
        if self.gone {
            self.counters.refused_by_kernel += 1;
            return Ok(Transmit::Refused);
        }
        if self.write_held()? == Transmit::Full {
            self.counters.transmit_full += 1;
            return Ok(Transmit::Full);
        }
        let outcome = match cut.flatten() {
            // Kernels before 6.2 take none of UDP that they are to cut.
            Some(cut) if headers.protocol != TCP => self.write_cut(packet, cut)?,
            _ => self.write_unfinished(packet, metadata, &headers)?,
        };
        match outcome {
            Transmit::Accepted => self.counters.count_transmitted(packet.len()),
            Transmit::Full => self.counters.transmit_full += 1,
            Transmit::Refused => self.counters.refused_by_kernel += 1,
        }
        Ok(outcome)
    }

    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse(frame, self.mtu, self.gone) {
            return Ok(Transmit::Refused);
        }
        let outcome = self.give(frame)?;
        match outcome {
            Transmit::Accepted => self.counters.count_transmitted(frame.len()),
            Transmit::Full => self.counters.transmit_full += 1,
            Transmit::Refused => self.counters.refused_by_kernel += 1,
        }
        Ok(outcome)
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        // What the kernel does not take now stays held, and leaves with the next frame or the next flush.
        self.write_held().map(|_| ())
    }

    fn next_due(&self) -> Option<Time> {
        let offload = self.offload.as_ref()?;
        (offload.cutter.is_busy() || !offload.held.is_empty()).then_some(Time::ZERO)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.offload.as_ref().map_or_else(Vec::new, |offload| offload.work.named().to_vec())
    }

    fn description(&self) -> String {
        let offload = if self.offload.is_some() { ", with offloads" } else { "" };
        format!("TAP interface {}{offload}", self.name())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn can_bequeath(&self) -> bool {
        !self.gone
    }

    fn bequeath(&mut self) -> Option<Legacy> {
        // What the kernel does not take now is lost, as on a wire that is full.
        let _ = self.write_held();
        let descriptor = self.device.as_fd().try_clone_to_owned().ok().filter(|_| !self.gone)?;
        let words = vec![self.mtu as u64];
        let mut legacy = Legacy { words, descriptors: vec![descriptor], ..Legacy::default() };
        self.offload.iter().for_each(|offload| offload.cutter.pass_on(&mut legacy.words));
        Some(legacy)
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.write_held().map(|_| ())
    }
}
