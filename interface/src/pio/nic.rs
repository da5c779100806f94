//! A NIC of two exchanges: frames to the device by variant (a), frames to the CPU by variant (b). Each direction has a pair
//! of control lines, which carry the first bytes of a frame, and overflow lines for the rest.
//!
//! One frame a direction is under way: the interface is made for latency, as the published one is.

use conic_fabric::{Core, Home, Layout};

use super::device::Device;
use super::host::{Features, Host, NotBegun, Poll, Signal};
use super::played::Played;
use super::shape::{Lines, Shape, ShapeError};
use crate::burst::NicQueue;

/// Where a NIC's two exchanges lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicLines {
    /// Frames of the CPU.
    pub transmit: Lines,
    /// Frames for it.
    pub receive: Lines,
}

impl NicLines {
    /// Appends both exchanges, of one shape, to a layout.
    ///
    /// # Errors
    ///
    /// If the shape cannot be.
    pub fn place(shape: &Shape, layout: &mut Layout, home: Home) -> Result<NicLines, ShapeError> {
        Ok(NicLines { transmit: shape.place(layout, home)?, receive: shape.place(layout, home)? })
    }

    /// The CPU's half, of two views of one core.
    pub fn host<C: Core>(&self, cores: [C; 2], features: Features) -> NicHost<C> {
        let [transmit, receive] = cores;
        let transmit = Host::new(transmit, self.transmit, Features { bare: false, ..features });
        let receive = Host::new(receive, self.receive, Features { bare: true, ..features });
        NicHost {
            transmit: Transmitter { host: transmit, signal: features.signal, dropped: 0 },
            receive: Receiver { host: receive, signal: features.signal },
        }
    }

    /// The device's half played by a core, of two views of it.
    pub fn played<C: Core>(&self, cores: [C; 2]) -> NicDevice<Played<C>> {
        let [transmit, receive] = cores;
        NicDevice::new(Played::new(transmit, self.transmit), Played::new(receive, self.receive), self)
    }
}

/// The CPU's half: both directions, which need nothing of each other.
#[derive(Debug)]
pub struct NicHost<C> {
    /// Frames that it sends.
    pub transmit: Transmitter<C>,
    /// Frames that it receives.
    pub receive: Receiver<C>,
}

/// The CPU's half of the exchange that sends.
#[derive(Debug)]
pub struct Transmitter<C> {
    host: Host<C>,
    signal: Signal,
    dropped: u64,
}

impl<C: Core> Transmitter<C> {
    /// Sends a frame; false if the last one has not been taken yet. Over [`Signal::Load`] it waits until the device has taken
    /// the frame, or says "try again".
    ///
    /// # Errors
    ///
    /// If the frame is longer than the lines hold; it was not sent.
    #[inline]
    pub fn try_transmit(&mut self, frame: &[u8]) -> Result<bool, NotBegun> {
        if !self.is_taken() {
            return Ok(false);
        }
        self.host.begin(frame, 0)?;
        if self.signal == Signal::Load {
            // This load is the signal.
            self.is_taken();
        }
        Ok(true)
    }

    /// Whether the device has taken all that was sent.
    #[inline]
    pub fn is_taken(&mut self) -> bool {
        if self.host.is_waiting() && self.host.poll() == Poll::Refused {
            self.dropped += 1;
        }
        !self.host.is_waiting()
    }

    /// Frames that the device refused.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The exchange.
    pub fn host(&self) -> &Host<C> {
        &self.host
    }
}

/// The CPU's half of the exchange that receives.
#[derive(Debug)]
pub struct Receiver<C> {
    host: Host<C>,
    signal: Signal,
}

impl<C: Core> Receiver<C> {
    /// Receives a frame, if one is there, or, over [`Signal::Load`], if one comes before the device says "try again": its first
    /// bytes, as many as there is room for. Gives its length.
    ///
    /// With [`Features::prefetch`] the overflow lines are asked for together, when the control line has come: an improvement over
    /// the published driver, which loads one after the other.
    #[inline]
    pub fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        if !self.host.is_waiting() {
            self.wait_for_next();
        }
        let Poll::Response(length) = self.host.poll() else { return None };
        self.host.read(into);
        if self.signal == Signal::Written {
            // The sooner the device knows that the frame was read, the sooner there is room for the next.
            self.wait_for_next();
        }
        Some(length)
    }

    #[inline]
    fn wait_for_next(&mut self) {
        self.host.begin(&[], 0).expect("an empty request fits, and none waits");
    }

    /// The exchange.
    pub fn host(&self) -> &Host<C> {
        &self.host
    }
}

/// The device's half.
#[derive(Debug)]
pub struct NicDevice<D> {
    transmit: D,
    receive: D,
    capacity: usize,
    /// A frame that was taken and not delivered, in [`NicQueue::turn_around`].
    holds: Option<usize>,
    frame: Vec<u8>,
    dropped: u64,
}

impl<D: Device> NicDevice<D> {
    /// A NIC of the device halves of both exchanges.
    pub fn new(transmit: D, receive: D, lines: &NicLines) -> NicDevice<D> {
        let most = lines.transmit.shape().capacity() as usize;
        let capacity = lines.receive.shape().capacity() as usize;
        NicDevice { transmit, receive, capacity, holds: None, frame: vec![0; most], dropped: 0 }
    }

    /// The exchange that takes the CPU's frames.
    pub fn transmitter(&mut self) -> &mut D {
        &mut self.transmit
    }

    /// The exchange that delivers frames to it.
    pub fn receiver(&mut self) -> &mut D {
        &mut self.receive
    }
}

impl<D: Device> NicQueue for NicDevice<D> {
    #[inline]
    fn turn_around(&mut self) -> usize {
        if self.holds.is_none() {
            self.holds = self.transmit.poll().map(|_| {
                let length = self.transmit.read(&mut self.frame);
                self.transmit.respond(&[]);
                length
            });
        }
        self.receive.poll();
        match self.holds {
            Some(length) if self.receive.respond(&self.frame[..length]) => {
                self.holds = None;
                1
            }
            _ => 0,
        }
    }

    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
        let length = self.transmit.poll()?;
        if length > frame.len() {
            self.dropped += 1;
            self.transmit.respond(&[]);
            return None;
        }
        let length = self.transmit.read(frame);
        self.transmit.respond(&[]);
        Some(length)
    }

    fn deliver_frame(&mut self, frame: &[u8]) -> bool {
        self.receive.poll();
        if frame.is_empty() || frame.len() > self.capacity {
            self.dropped += 1;
            return true;
        }
        self.receive.respond(frame)
    }

    fn spin(&self) {
        self.transmit.spin();
    }

    fn refused(&self) -> u64 {
        self.transmit.refusals().total() + self.receive.refusals().total()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
