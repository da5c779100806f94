//! The NIC's driver.

use std::fmt;

use conic_fabric::{Core, LINE_BYTES, Line};

use super::NicWindow;
use super::control::{self, Verdict};
use crate::work;

/// A frame that cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitError {
    /// It has no byte, or more than a slot holds: it, and the most.
    Length(usize, u64),
}

impl fmt::Display for TransmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransmitError::Length(bytes, most) = self;
        write!(f, "a frame has 1 to {most} bytes here, not {bytes}")
    }
}

impl std::error::Error for TransmitError {}

/// What the driver refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Receive descriptors that could not be.
    pub refused_descriptors: u64,
    /// Transmit counts that could not be.
    pub refused_counts: u64,
}

/// The driver of a NIC whose packet buffer is mapped.
#[derive(Debug)]
pub struct Host<C> {
    core: C,
    window: NicWindow,
    /// The turn of the next frame to receive.
    receiving: u32,
    /// The turn of the last frame that was sent, and the last that the device is known to have taken.
    sent: u32,
    taken: u32,
    statistics: HostStatistics,
}

impl<C: Core> Host<C> {
    pub(super) fn new(window: NicWindow, core: C) -> Host<C> {
        Host { core, window, receiving: 1, sent: 0, taken: 0, statistics: HostStatistics::default() }
    }

    /// Slots that may be written, as far as is known here.
    fn free(&self) -> u32 {
        self.window.shape().slots - self.sent.wrapping_sub(self.taken)
    }

    /// Looks how many frames the device has taken. A load that waits for the device: for when nothing is urgent.
    pub fn reclaim(&mut self) {
        // Acquire: the device has read the slots before.
        let [word, _] = self.core.register_read_pair(self.window.taken);
        let taken = control::turn_of(word);
        if word == 0 {
            // Nothing was taken yet.
        } else if self.sent.wrapping_sub(taken) <= self.sent.wrapping_sub(self.taken) && word == control::word(taken, 0)
        {
            self.taken = taken;
        } else {
            self.statistics.refused_counts += 1;
        }
    }

    /// Sends a frame. False if there is no slot, even after a look.
    ///
    /// # Errors
    ///
    /// It is empty, or longer than a slot.
    pub fn transmit(&mut self, frame: &[u8]) -> Result<bool, TransmitError> {
        let most = self.window.shape().slot_bytes;
        if frame.is_empty() || frame.len() as u64 > most {
            return Err(TransmitError::Length(frame.len(), most));
        }
        if self.free() == 0 {
            self.reclaim();
            if self.free() == 0 {
                return Ok(false);
            }
        }
        self.core.work(work::CALL + work::DESCRIPTOR);
        self.sent = self.sent.wrapping_add(1);
        let slot = self.window.slot(self.window.transmit_slots, self.sent);
        for (index, chunk) in (0..).zip(frame.chunks(LINE_BYTES as usize)) {
            let mut line = [0; LINE_BYTES as usize];
            line[..chunk.len()].copy_from_slice(chunk);
            self.core.register_write_line(slot.lines(index), &Line::from_bytes(&line));
        }
        // Gathered stores leave in any order: the descriptor must not overtake the frame.
        self.core.fence();
        // Release: the frame before it, for the device that acquires it.
        self.core.register_write(self.window.descriptor(self.sent), control::word(self.sent, frame.len() as u32));
        Ok(true)
    }

    /// Receives a frame, as much of it as there is room for; says how much. Where the device withholds answers, this waits.
    pub fn receive(&mut self, into: &mut [u8]) -> Option<usize> {
        // Acquire: the slot's bytes, which the device wrote before.
        let [word, _] = self.core.register_read_pair(self.window.receive);
        match control::judge(word, self.receiving, 1, self.window.shape().slot_bytes) {
            Verdict::Old => None,
            Verdict::Wrong => {
                self.statistics.refused_descriptors += 1;
                None
            }
            Verdict::New(length) => {
                self.core.work(work::CALL + work::DESCRIPTOR);
                let length = length.min(into.len());
                let slot = self.window.slot(self.window.receive_slots, self.receiving);
                self.core.read_bytes(slot, &mut into[..length]);
                // Release: the loads of the slot are done, for the device that writes it again.
                self.core.register_write(self.window.acknowledged, control::word(self.receiving, 0));
                self.receiving = self.receiving.wrapping_add(1);
                Some(length)
            }
        }
    }

    /// What was refused.
    pub fn statistics(&self) -> HostStatistics {
        self.statistics
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}
