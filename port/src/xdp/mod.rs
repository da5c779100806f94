//! An AF_XDP socket: the packets of an interface's queue, taken before the kernel's network stack sees them.
//!
//! Frames pass without a copy where the driver can, and are copied by the kernel where it cannot; [`Port::description`] says
//! which. Checksums that a neighbour on the same machine (over veth) leaves to the hardware arrive begun and not completed,
//! and nothing says so: switch that off there with `ethtool -K NEIGHBOUR tx off`, or let the port look and complete them.
//! In the network stack (`generic`) a neighbour's large TCP packets arrive uncut, and the kernel drops them: there, switch off
//! `tso` and `gso` too.
//!
//! | file | what is there |
//! |---|---|
//! | `options.rs`, `error.rs` | how it is opened; what can be wrong |
//! | `ring.rs` | the four rings shared with the kernel |
//! | `frames.rs` | who has which frame of the memory |
//! | `program.rs` | the program in the kernel that hands packets over |
//! | `forward.rs`, `forwarder.rs` | what of it forwards frames between ports in the kernel, and the switch's hold on that |
//! | `assembly.rs`, `bpf.rs` | a program's instructions; the system call that loads them, and reaches maps |
//! | `features.rs` | what an interface can do for programs |
//! | `kernel.rs` | system calls |
//! | `legacy.rs` | a socket goes on in another process |
//!
//! Sources: Linux, Documentation/networking/af_xdp.rst; `linux/if_xdp.h`.

mod assembly;
mod bpf;
mod error;
mod features;
mod forward;
mod forwarder;
mod frames;
mod kernel;
mod legacy;
mod options;
mod program;
mod ring;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::Mapping;

pub use error::{XdpError, XdpProblem};
pub use options::{CopyMode, ForwardMode, XdpOptions};

use crate::lookout::Lookout;
use crate::netdevice;
use crate::offload::checksum;
use crate::{Counters, Forwarding, Legacy, MAX_FRAME, Port, PortError, Receive, Transmit};
use forward::Queues;
use forwarder::Forwarder;
use frames::Frames;
use kernel::{Rings, Socket, patiently};
use program::{Attachment, Forward, Program};
use ring::Descriptor;

/// Bytes that the kernel keeps free in front of a received packet: `XDP_PACKET_HEADROOM`.
const HEADROOM: usize = 256;
/// Bytes around a packet that its MTU does not count: an Ethernet header and two tags.
const AROUND: usize = 22;
/// Entries that are taken or given before the other side is shown.
const BATCH: u32 = 16;
/// Packets that one call lets the kernel send, at least, in copy mode.
const SENT_AT_ONCE: u32 = 32;

/// Milliseconds between two looks whether the interface is still there, and what the kernel has dropped.
const LOOK: u64 = 10;
/// Milliseconds between two attempts to have the kernel send what it did not take.
const AGAIN: u64 = 1;

/// An AF_XDP socket on a queue of an interface.
pub struct XdpSocket {
    // Dropped before the memory: the kernel may use that until the socket is closed.
    rings: Rings,
    socket: Socket,
    frames: Frames,
    /// The memory's descriptor, for a process that goes on with the socket.
    memory: OwnedFd,
    program: Arc<Program>,
    interface: String,
    index: u32,
    /// Whether the interface is still there is asked through it.
    asks: OwnedFd,
    queue: u32,
    mtu: usize,
    size: u32,
    zero_copy: bool,
    /// The kernel maps its rings a second time, as another process must.
    maps_again: bool,
    complete_checksums: bool,
    gone: bool,
    /// The pieces of a packet that has more of them to come, or more than one.
    gathered: Vec<u8>,
    /// A piece of it was refused: the rest is let pass.
    spoilt: bool,
    /// The kernel was not yet told of all that is to be sent.
    unsent: bool,
    again: Lookout,
    lookout: Lookout,
    calls: u64,
    retries: u64,
    bind_retries: u32,
    completed: u64,
    /// What the kernel had dropped when it was last asked.
    missed: u64,
    counters: Counters,
}

impl std::fmt::Debug for XdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpSocket")
            .field("interface", &self.interface)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl XdpSocket {
    /// Opens a socket on the first queue.
    ///
    /// # Errors
    /// There is no such interface or queue, it has another program, the queue is another socket's, or the process may not
    /// do this.
    pub fn open(options: &XdpOptions) -> Result<XdpSocket, PortError> {
        XdpSocket::open_queues(&XdpOptions { queues: 1, ..options.clone() }).map(|mut queues| queues.remove(0))
    }

    /// Opens a socket on each queue; at least one. Packets of other queues go to the kernel's network stack.
    ///
    /// # Errors
    /// As for [`XdpSocket::open`].
    pub fn open_queues(options: &XdpOptions) -> Result<Vec<XdpSocket>, PortError> {
        let failed = |problem| XdpError { interface: options.interface.clone(), queue: options.queue, problem };
        if !netdevice::is_name(&options.interface) {
            return Err(failed(XdpProblem::Name).into());
        }
        let of = |doing| move |error| failed(XdpProblem::of(doing, error));
        let index = netdevice::index(&options.interface).map_err(of("looking it up"))?;
        let mtu = netdevice::mtu(&options.interface).map_err(of("reading the MTU"))?;
        let count = options.queues.max(1) as u32;
        let queues = Queues { first: options.queue, count };
        let forward = Forward { leaves_begun_checksums: options.complete_checksums };
        let forward = (options.forward == ForwardMode::Kernel).then_some(forward);
        let attach = || Program::attach(index, queues, options.generic, forward);
        let (program, _) = patiently(attach).map_err(|error| {
            failed(match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST) => XdpProblem::ProgramThere,
                _ => XdpProblem::of("attaching the program", error),
            })
        })?;
        let program = Arc::new(program);
        let open = |queue| XdpSocket::open_one(options, index, mtu, queue, program.clone()).map_err(PortError::from);
        (options.queue..options.queue + count).map(open).collect()
    }

    fn open_one(
        options: &XdpOptions,
        index: u32,
        mtu: usize,
        queue: u32,
        program: Arc<Program>,
    ) -> Result<XdpSocket, XdpError> {
        let failed = |problem| XdpError { interface: options.interface.clone(), queue, problem };
        let frame_bytes = if mtu + AROUND + HEADROOM <= 2048 { 2048 } else { 4096 };
        // Half of the frames receive, half send: neither can take the other's.
        let memory = Mapping::sealed(2 * options.frames * frame_bytes);
        let (mapping, memory) = memory.map_err(|error| failed(XdpProblem::Memory(error)))?;
        let frames = Frames::new(mapping, frame_bytes);
        let fragments = mtu + AROUND + HEADROOM > frame_bytes;
        let (socket, rings, bind_retries) = bound(options, index, queue, &frames, fragments, &program)
            .map_err(|(doing, error)| failed(bind_problem(options, queue, doing, error)))?;
        let asks = netdevice::inquiry().map_err(|error| failed(XdpProblem::of("opening a socket", error)))?;
        let bound = Bound { socket, asks, rings, frames, memory, bind_retries };
        let mut port = XdpSocket::of(options, (index, queue), mtu, program, bound);
        port.refill();
        let serve = port.program.serve(queue, port.socket.as_fd());
        serve.map_err(|error| failed(XdpProblem::of("directing packets to the socket", error)))?;
        Ok(port)
    }

    /// A socket on a queue of the interface of this number.
    fn of(
        options: &XdpOptions,
        (index, queue): (u32, u32),
        mtu: usize,
        program: Arc<Program>,
        bound: Bound,
    ) -> XdpSocket {
        let Bound { socket, asks, rings, frames, memory, bind_retries } = bound;
        let size = options.frames as u32;
        // Of a socket of another process, that one has counted what was missed before.
        let missed = socket.statistics().map_or(0, |kernel| kernel.missed());
        XdpSocket {
            zero_copy: socket.is_zero_copy(),
            maps_again: socket.map_rings(size).is_ok(),
            rings,
            socket,
            frames,
            memory,
            program,
            interface: options.interface.clone(),
            index,
            asks,
            queue,
            mtu,
            size,
            complete_checksums: options.complete_checksums,
            gone: false,
            gathered: Vec::with_capacity(MAX_FRAME),
            spoilt: false,
            unsent: false,
            again: Lookout::every(AGAIN),
            lookout: Lookout::every(LOOK),
            calls: 0,
            retries: 0,
            bind_retries,
            completed: 0,
            missed,
            counters: Counters::default(),
        }
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Whether frames pass without being copied.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    fn lost(&mut self, error: std::io::Error) -> PortError {
        self.gone = true;
        let problem = XdpProblem::Gone(error);
        XdpError { interface: self.interface.clone(), queue: self.queue, problem }.into()
    }

    /// Gives the kernel frames to receive into.
    fn refill(&mut self) {
        while self.frames.receiving() < self.size as usize && self.rings.fill.has_room(1) {
            let Some(address) = self.frames.lend_to_receive() else { break };
            self.rings.fill.put_address(address);
        }
        self.rings.fill.publish();
    }

    /// Takes back the frames that have been sent.
    fn reap(&mut self) {
        while let Some(address) = self.rings.completion.take_address() {
            // A frame that was not being sent is counted there.
            self.frames.sent(address);
        }
        self.rings.completion.release();
    }

    /// Takes one piece of a packet. `Some` with the packet's length in `frame` when it is whole.
    fn piece(&mut self, descriptor: Descriptor, frame: &mut [u8]) -> Option<usize> {
        let Descriptor { address, length, more } = descriptor;
        let (at, bytes) = (address as usize, length as usize);
        let sound = self.frames.received(address, length);
        let alone = self.gathered.is_empty() && !self.spoilt && !more;
        if !sound {
            self.spoilt = true;
        } else if alone && bytes <= frame.len() {
            self.frames.memory().read_bytes(at, &mut frame[..bytes]);
            return Some(bytes);
        } else if alone || self.gathered.len() + bytes > MAX_FRAME {
            self.counters.skipped_oversized += u64::from(!self.spoilt);
            self.gathered.clear();
            self.spoilt = more;
            return None;
        } else if !self.spoilt {
            let from = self.gathered.len();
            self.gathered.resize(from + bytes, 0);
            self.frames.memory().read_bytes(at, &mut self.gathered[from..]);
        }
        if more {
            return None;
        }
        let length = self.gathered.len();
        if self.spoilt {
            self.counters.skipped_malformed += u64::from(!sound);
        } else if let Some(into) = frame.get_mut(..length) {
            into.copy_from_slice(&self.gathered);
        } else {
            self.counters.skipped_oversized += 1;
        }
        let whole = !self.spoilt && length <= frame.len();
        self.gathered.clear();
        self.spoilt = false;
        whole.then_some(length)
    }

    /// There is nothing: shows the kernel what was taken, and looks now and then whether the interface is still there.
    fn idle(&mut self, now: Time) -> Result<Receive, PortError> {
        self.rings.receive.release();
        self.refill();
        if self.rings.fill.needs_wakeup() {
            self.socket.wake_receive();
        }
        if self.unsent && self.again.is_due(now) {
            self.kick()?;
        }
        if self.lookout.is_due(now) {
            self.ask_missed();
            if netdevice::is_gone(self.asks.as_fd(), self.index) {
                return Err(self.lost(std::io::Error::from_raw_os_error(libc::ENODEV)));
            }
        }
        Ok(Receive::None)
    }

    /// Asks the kernel how many packets it has dropped since it was last asked.
    fn ask_missed(&mut self) {
        let Ok(kernel) = self.socket.statistics() else { return };
        self.counters.missed += kernel.missed().saturating_sub(self.missed);
        self.missed = kernel.missed();
    }

    /// Shows the kernel what is to be sent, and tells it where it sleeps.
    fn kick(&mut self) -> Result<(), PortError> {
        let shown = self.rings.transmit.publish();
        if shown == 0 && !self.unsent || self.gone {
            return Ok(());
        }
        self.unsent = false;
        if !self.rings.transmit.needs_wakeup() {
            return Ok(());
        }
        // In copy mode a call sends a batch, and says "again" if there is more.
        for _ in 0..=self.size / SENT_AT_ONCE {
            self.calls += 1;
            let Err(error) = self.socket.send() else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => {}
                // The driver has no room, the kernel no memory, or the interface is down: it stays in the ring, and is tried again.
                Some(libc::EBUSY | libc::ENOBUFS | libc::ENOMEM | libc::ENETDOWN) => break,
                _ => return Err(self.lost(error)),
            }
        }
        self.unsent = true;
        self.retries += 1;
        Ok(())
    }

    fn put(&mut self, frame: &[u8]) -> bool {
        let bytes = self.frames.frame_bytes();
        let pieces = frame.len().div_ceil(bytes);
        if self.frames.free() < pieces || !self.rings.transmit.has_room(pieces as u32) {
            return false;
        }
        for (number, piece) in frame.chunks(bytes).enumerate() {
            // There are enough: it was just looked.
            let Some(address) = self.frames.lend_to_send() else { return false };
            self.frames.memory().write_bytes(address as usize, piece);
            let descriptor = Descriptor { address, length: piece.len() as u32, more: number + 1 < pieces };
            self.rings.transmit.put(descriptor);
        }
        true
    }
}

/// A bound socket with what belongs to it.
struct Bound {
    socket: Socket,
    asks: OwnedFd,
    rings: Rings,
    frames: Frames,
    memory: OwnedFd,
    bind_retries: u32,
}

/// A socket with its rings, bound in the best way that the driver can; what was being done when it failed.
fn bound(
    options: &XdpOptions,
    index: u32,
    queue: u32,
    frames: &Frames,
    fragments: bool,
    program: &Program,
) -> Result<(Socket, Rings, u32), (&'static str, std::io::Error)> {
    let copy = match options.mode {
        CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
        CopyMode::Copy => libc::XDP_COPY,
        // The generic hook always copies, and some kernels do not find that out by themselves.
        CopyMode::Auto if program.attachment == Attachment::Generic => libc::XDP_COPY,
        CopyMode::Auto => 0,
    };
    let several = if fragments { libc::XDP_USE_SG } else { 0 };
    let ways = [copy | several | libc::XDP_USE_NEED_WAKEUP, copy | several];
    let mut last = ("binding", std::io::Error::from_raw_os_error(libc::EINVAL));
    for flags in ways {
        let socket = Socket::open().map_err(|error| ("opening a socket", error))?;
        let size = options.frames as u32;
        let rings =
            socket.make_rings(frames.memory(), frames.frame_bytes(), size).and_then(|()| socket.map_rings(size));
        let rings = rings.map_err(|error| ("making the rings", error))?;
        match socket.bind(index, queue, flags) {
            Ok(retries) => return Ok((socket, rings, retries)),
            // Kernels before 5.3 do not know of waking.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = ("binding", error),
            Err(error) => return Err(("binding", error)),
        }
    }
    Err(last)
}

fn bind_problem(options: &XdpOptions, queue: u32, doing: &'static str, error: std::io::Error) -> XdpProblem {
    let there =
        |queue| std::path::Path::new(&format!("/sys/class/net/{}/queues/rx-{queue}", options.interface)).exists();
    match error.raw_os_error() {
        Some(libc::EBUSY) => XdpProblem::QueueBusy,
        Some(libc::EOPNOTSUPP) if options.mode == CopyMode::ZeroCopy => XdpProblem::NoZeroCopy,
        Some(libc::EINVAL) if there(0) && !there(queue) => XdpProblem::NoQueue,
        _ => XdpProblem::of(doing, error),
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for XdpSocket {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        if self.gone {
            return Ok(Receive::End);
        }
        let limit = frame.len().min(MAX_FRAME);
        let frame = &mut frame[..limit];
        loop {
            let Some(descriptor) = self.rings.receive.take() else { return self.idle(now) };
            let whole = self.piece(descriptor, frame);
            if self.rings.receive.unreleased() >= BATCH {
                self.rings.receive.release();
                self.refill();
                // Whoever is never idle loses most. That the interface is there is seen by what comes.
                if self.lookout.is_due(now) {
                    self.ask_missed();
                }
            }
            match whole {
                Some(length) => {
                    if self.complete_checksums && checksum::complete_if_begun(&mut frame[..length]) {
                        self.completed += 1;
                    }
                    return Ok(self.counters.receive_frame(frame, length));
                }
                None if descriptor.more => {}
                None => return Ok(Receive::Skipped),
            }
        }
    }

    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse(frame, self.mtu, self.gone) {
            return Ok(Transmit::Refused);
        }
        if !self.put(frame) {
            self.kick()?;
            self.reap();
            if !self.put(frame) {
                self.counters.transmit_full += 1;
                return Ok(Transmit::Full);
            }
        }
        self.counters.count_transmitted(frame.len());
        Ok(Transmit::Accepted)
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        let kicked = self.kick();
        self.reap();
        kicked
    }

    fn next_due(&self) -> Option<Time> {
        if self.rings.transmit.unpublished() > 0 {
            return Some(Time::ZERO);
        }
        self.unsent.then_some(self.again.next())
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let kernel = self.socket.statistics().unwrap_or_default();
        vec![
            ("zero_copy", u64::from(self.zero_copy)),
            ("frames_free", self.frames.free() as u64),
            ("frames_receiving", self.frames.receiving() as u64),
            ("frame_faults", self.frames.faults()),
            ("transmit_calls", self.calls),
            ("transmit_retries", self.retries),
            ("bind_retries", self.bind_retries.into()),
            ("checksums_completed", self.completed),
            ("kernel_receive_dropped", kernel.receive_dropped),
            ("kernel_receive_invalid", kernel.receive_invalid),
            ("kernel_receive_ring_full", kernel.receive_ring_full),
            ("kernel_fill_ring_empty", kernel.fill_ring_empty),
            ("kernel_transmit_invalid", kernel.transmit_invalid),
            ("kernel_transmit_ring_empty", kernel.transmit_ring_empty),
        ]
    }

    fn is_up(&self) -> bool {
        !self.gone && netdevice::is_running(&self.interface)
    }

    fn description(&self) -> String {
        let copies = if self.zero_copy { "zero copy" } else { "copy mode (the driver offers no better)" };
        let hook = match self.program.attachment {
            Attachment::Native => "in the driver",
            Attachment::Generic => "in the network stack",
        };
        let forwards = if self.program.tables.is_some() { ", forwarding in the kernel" } else { "" };
        format!("AF_XDP on {} queue {}, {copies}, {hook}{forwards}", self.interface, self.queue)
    }

    fn forwarding(&self) -> Option<Box<dyn Forwarding>> {
        self.program.tables.as_ref()?;
        Some(Box::new(Forwarder::new(Arc::clone(&self.program), self.interface.clone(), self.index)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn can_bequeath(&self) -> bool {
        self.maps_again
    }

    fn bequeath(&mut self) -> Option<Legacy> {
        if self.gone { None } else { self.pass_on().ok() }
    }

    fn finish(&mut self) -> Result<(), PortError> {
        let kicked = self.kick();
        self.reap();
        self.ask_missed();
        kicked
    }
}
