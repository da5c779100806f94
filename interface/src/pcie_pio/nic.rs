//! The NIC's half.

use conic_fabric::{DeviceMemory, Time};

use super::control::{self, Verdict};
use super::{NicWindow, Shape};

/// No slot is free for a received frame, or it fits into none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// The host has not acknowledged the frames before.
    Full,
    /// The frame is empty, or longer than a slot.
    Length,
}

/// What the NIC refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicStatistics {
    /// Transmit descriptors that could not be: a turn that is not the next, or a length that no slot holds.
    pub refused_descriptors: u64,
    /// Acknowledgements of frames that were not shown.
    pub refused_acknowledgements: u64,
}

/// The device half of a NIC whose packet buffer is mapped.
#[derive(Debug)]
pub struct Nic<D> {
    device: D,
    window: NicWindow,
    /// Lengths of the frames in the slots, by turn modulo the slots.
    lengths: Box<[u32]>,
    /// The turn of the last frame that was put into a slot, of the last that was shown, and of the last acknowledged.
    pushed: u32,
    shown: u32,
    acknowledged: u32,
    /// The turn of the last frame that was taken.
    taken: u32,
    /// The last words that could not be, so that each is counted once.
    wrong: [u64; 2],
    statistics: NicStatistics,
    not_yets: u64,
}

impl<D: DeviceMemory> Nic<D> {
    pub(super) fn new(window: NicWindow, device: D) -> Nic<D> {
        device.withhold(window.receive);
        Nic {
            device,
            window,
            lengths: (0..window.shape().slots).map(|_| 0).collect(),
            pushed: 0,
            shown: 0,
            acknowledged: 0,
            taken: 0,
            wrong: [0; 2],
            statistics: NicStatistics::default(),
            not_yets: 0,
        }
    }

    /// Puts a received frame into a slot; the host finds it when it has acknowledged those before.
    ///
    /// # Errors
    ///
    /// There is no slot for it.
    pub fn receive(&mut self, frame: &[u8]) -> Result<(), NoSlot> {
        if frame.is_empty() || frame.len() as u64 > self.window.shape().slot_bytes {
            return Err(NoSlot::Length);
        }
        self.look();
        if self.pushed.wrapping_sub(self.acknowledged) >= self.window.shape().slots {
            return Err(NoSlot::Full);
        }
        self.pushed = self.pushed.wrapping_add(1);
        self.device.set_own_bytes(self.window.slot(self.window.receive_slots, self.pushed), frame);
        self.lengths[(self.pushed % self.window.shape().slots) as usize] = frame.len() as u32;
        self.show();
        Ok(())
    }

    /// Reads the host's acknowledgement, and shows the next frame if it has come.
    pub fn look(&mut self) {
        // Acquire: the host's loads of the slot are done.
        let word = self.device.own_register(self.window.acknowledged);
        if word == control::word(self.shown, 0) {
            self.acknowledged = self.shown;
            self.show();
        } else if word != 0 && word != control::word(self.acknowledged, 0) && word != self.wrong[0] {
            self.wrong[0] = word;
            self.statistics.refused_acknowledgements += 1;
        }
    }

    /// Shows the oldest frame that was not acknowledged, if it is not shown.
    fn show(&mut self) {
        if self.shown != self.acknowledged || self.pushed == self.shown {
            return;
        }
        self.shown = self.shown.wrapping_add(1);
        let length = self.lengths[(self.shown % self.window.shape().slots) as usize];
        // Release: the slot's bytes before it, for the host's load.
        self.device.set_own_pair(self.window.receive, [control::word(self.shown, length), 0]);
    }

    /// Whether a load of the receive descriptor should wait: it does while no frame is shown that was not acknowledged. To be
    /// called when nothing else is to be done; `patience` bounds the wait.
    pub fn idle(&mut self, patience: Time) {
        self.look();
        if self.shown != self.acknowledged {
            return;
        }
        self.device.withhold(self.window.receive);
        let since = self.device.withheld_since(self.window.receive);
        if since.is_some_and(|since| self.device.now().since(since) >= patience) {
            self.device.answer(self.window.receive);
            self.device.withhold(self.window.receive);
            self.not_yets += 1;
        }
    }

    /// Takes a frame that the host sent, as much of it as there is room for; its whole length. None if none has come.
    pub fn transmit(&mut self, into: &mut [u8]) -> Option<usize> {
        // Acquire: the frame, which the host stored before.
        let next = self.taken.wrapping_add(1);
        let word = self.device.own_register(self.window.descriptor(next));
        let Shape { slots, slot_bytes, .. } = self.window.shape();
        match control::judge(word, next, slots, slot_bytes) {
            Verdict::New(length) if length > 0 => {
                let room = length.min(into.len());
                let slot = self.window.slot(self.window.transmit_slots, next);
                self.device.own_bytes(slot, &mut into[..room]);
                self.taken = next;
                // Release: the slot was read, for the host that writes it again.
                self.device.set_own_pair(self.window.taken, [control::word(next, 0), 0]);
                Some(length)
            }
            Verdict::Old => None,
            Verdict::New(_) | Verdict::Wrong => {
                if word != self.wrong[1] {
                    self.wrong[1] = word;
                    self.statistics.refused_descriptors += 1;
                }
                None
            }
        }
    }

    /// Frames that the host has not acknowledged.
    pub fn unacknowledged(&self) -> u32 {
        self.pushed.wrapping_sub(self.acknowledged)
    }

    /// Since when a load of the receive descriptor has waited, if one does.
    pub fn withheld_since(&self) -> Option<Time> {
        self.device.withheld_since(self.window.receive)
    }

    /// How often a load was answered because it had waited for too long.
    pub fn not_yets(&self) -> u64 {
        self.not_yets
    }

    /// What was refused.
    pub fn statistics(&self) -> NicStatistics {
        self.statistics
    }

    /// The device that it runs on.
    pub fn device(&self) -> &D {
        &self.device
    }
}
