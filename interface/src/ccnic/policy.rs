//! The interface's switches: what the paper's ablations turn off, and what goes beyond it.

use std::fmt;

/// How a consumer learns that a slot is full, and a producer that it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// A flag in the slot; the consumer clears it (the paper's, section 3.2).
    Clear,
    /// A flag in the slot that changes its meaning each lap; the consumer returns credits in batches and leaves the slot
    /// alone, so that its line need not come back dirty. Beyond the paper.
    Phase,
    /// Tail and head registers in lines of their own (what Figure 14a compares with).
    Register,
}

/// How descriptors lie in cache lines (section 3.2, Figure 14b).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// Up to four in a line, one signal for all; unused ones blank (the paper's).
    Grouped,
    /// Four in a line, each with its own signal (a PCIe NIC's).
    Packed,
    /// One in a line.
    Padded,
}

/// The switches of one instance. [`Features::paper`] is CC-NIC as published, [`Features::best`] what measured best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// How slots are signalled and reused.
    pub signal: Signal,
    /// How descriptors lie in lines.
    pub packing: Packing,
    /// A slot's line is put together in a register and published in one go, rather than one descriptor at a time.
    pub whole_line: bool,
    /// Payloads of up to [`crate::ccnic::INLINE_BYTES`] bytes that are sent alone travel in the ring's lines. Beyond the paper.
    pub inline_payload: bool,
    /// Each side keeps the buffers that it freed last on a stack and reuses them first (section 3.3).
    pub recycling: bool,
    /// Buffers that are handed out one after the other do not lie one after the other (section 3.3).
    pub scattered: bool,
    /// Small packets go into 128-byte buffers (section 3.3).
    pub small_buffers: bool,
    /// Both sides allocate and free; otherwise the host alone does, and posts blank receive buffers (section 3.4).
    pub shared_pool: bool,
}

impl Features {
    /// CC-NIC as in the paper.
    pub const fn paper() -> Features {
        Features {
            signal: Signal::Clear,
            packing: Packing::Grouped,
            whole_line: true,
            inline_payload: false,
            recycling: true,
            scattered: true,
            small_buffers: true,
            shared_pool: true,
        }
    }

    /// The paper's design with what goes beyond it and was measured to pay.
    pub const fn best() -> Features {
        Features { signal: Signal::Phase, inline_payload: true, ..Features::paper() }
    }
}

impl Default for Features {
    fn default() -> Features {
        Features::best()
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = match self.signal {
            Signal::Clear => "clear",
            Signal::Phase => "phase",
            Signal::Register => "register",
        };
        let packing = match self.packing {
            Packing::Grouped => "grouped",
            Packing::Packed => "packed",
            Packing::Padded => "padded",
        };
        write!(f, "{signal},{packing}")?;
        for (on, name) in [
            (self.whole_line, "whole-line"),
            (self.inline_payload, "inline-payload"),
            (self.recycling, "recycling"),
            (self.scattered, "scattered"),
            (self.small_buffers, "small-buffers"),
            (self.shared_pool, "shared-pool"),
        ] {
            write!(f, ",{}{name}", if on { "" } else { "no-" })?;
        }
        Ok(())
    }
}

/// The switches that the hot loop is compiled for.
pub trait Policy: Copy + Send + Sync + 'static {
    /// How slots are signalled and reused.
    const SIGNAL: Signal;
    /// How descriptors lie in lines.
    const PACKING: Packing;
    /// Whether a line is published in one go.
    const WHOLE_LINE: bool;

    /// Descriptors a slot holds.
    const PER_SLOT: usize = if matches!(Self::PACKING, Packing::Grouped) { 4 } else { 1 };
    /// Bytes of a slot.
    const SLOT_BYTES: u64 = if matches!(Self::PACKING, Packing::Packed) { 16 } else { 64 };
}

/// The policies, as types: signal 0 clear, 1 phase, 2 register; packing 0 grouped, 1 packed, 2 padded.
#[derive(Clone, Copy, Debug)]
pub struct Compiled<const SIGNAL: u8, const PACKING: u8, const WHOLE_LINE: bool>;

impl<const SIGNAL: u8, const PACKING: u8, const WHOLE_LINE: bool> Policy for Compiled<SIGNAL, PACKING, WHOLE_LINE> {
    const SIGNAL: Signal = match SIGNAL {
        0 => Signal::Clear,
        1 => Signal::Phase,
        _ => Signal::Register,
    };
    const PACKING: Packing = match PACKING {
        0 => Packing::Grouped,
        1 => Packing::Packed,
        _ => Packing::Padded,
    };
    const WHOLE_LINE: bool = WHOLE_LINE;
}

/// CC-NIC as in the paper.
pub type Paper = Compiled<0, 0, true>;
/// Phase bits and credits instead of clearing.
pub type PhaseCredit = Compiled<1, 0, true>;

/// Calls `$body` with `$policy` bound to the compiled policy that a [`Features`] value asks for.
#[macro_export]
macro_rules! with_policy {
    ($features:expr, $policy:ident => $body:expr) => {{
        use $crate::ccnic::{Compiled, Packing, Signal};
        let features: $crate::ccnic::Features = $features;
        macro_rules! compiled {
            ($signal:literal, $packing:literal) => {
                if features.whole_line {
                    type $policy = Compiled<$signal, $packing, true>;
                    $body
                } else {
                    type $policy = Compiled<$signal, $packing, false>;
                    $body
                }
            };
        }
        match (features.signal, features.packing) {
            (Signal::Clear, Packing::Grouped) => compiled!(0, 0),
            (Signal::Clear, Packing::Packed) => compiled!(0, 1),
            (Signal::Clear, Packing::Padded) => compiled!(0, 2),
            (Signal::Phase, Packing::Grouped) => compiled!(1, 0),
            (Signal::Phase, Packing::Packed) => compiled!(1, 1),
            (Signal::Phase, Packing::Padded) => compiled!(1, 2),
            (Signal::Register, Packing::Grouped) => compiled!(2, 0),
            (Signal::Register, Packing::Packed) => compiled!(2, 1),
            (Signal::Register, Packing::Padded) => compiled!(2, 2),
        }
    }};
}
