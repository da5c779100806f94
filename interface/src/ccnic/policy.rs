//! The interface's switches: what the paper's ablations turn off, and what goes beyond it.

use std::fmt;
use std::str::FromStr;

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
    /// A grouped slot's line is put together in registers and published in one go, rather than one descriptor at a time.
    /// Of no effect where a slot holds one descriptor.
    pub whole_line: bool,
    /// Payloads of up to [`crate::ccnic::INLINE_BYTES`] bytes that are sent alone travel in the ring's lines, where a
    /// queue pair's share of the buffers that hold one is 16 or more. Beyond the paper.
    pub inline_payload: bool,
    /// Slots of the ring, and the first line of each payload, are asked for by instructions before they are read. Beyond the
    /// paper, which speaks of the processors' own prefetchers alone (section 5.8).
    pub fetch_ahead: bool,
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
            fetch_ahead: false,
            recycling: true,
            scattered: true,
            small_buffers: true,
            shared_pool: true,
        }
    }

    /// The paper's design with what goes beyond it and was measured to pay.
    pub const fn best() -> Features {
        Features { signal: Signal::Phase, inline_payload: true, fetch_ahead: true, ..Features::paper() }
    }
}

impl Default for Features {
    fn default() -> Features {
        Features::best()
    }
}

/// A name that is none of a [`Features`] value's switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFeature(String);

impl fmt::Display for UnknownFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no feature \"{}\"; there are {}", self.0, Features::NAMES)
    }
}

impl std::error::Error for UnknownFeature {}

impl Features {
    /// The switches' names, for help and errors.
    pub const NAMES: &str = "paper, best; clear, phase, register; grouped, packed, padded; and, each also with no- before \
                             it: whole-line, inline-payload, fetch-ahead, recycling, scattered, small-buffers, shared-pool";

    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "whole-line" => &mut self.whole_line,
            "inline-payload" => &mut self.inline_payload,
            "fetch-ahead" => &mut self.fetch_ahead,
            "recycling" => &mut self.recycling,
            "scattered" => &mut self.scattered,
            "small-buffers" => &mut self.small_buffers,
            "shared-pool" => &mut self.shared_pool,
            _ => return None,
        })
    }
}

/// Reads what `Display` prints: a comma-separated list of names, each of which changes what those before it made of
/// [`Features::best`].
impl FromStr for Features {
    type Err = UnknownFeature;

    fn from_str(list: &str) -> Result<Features, UnknownFeature> {
        let mut features = Features::best();
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "paper" => features = Features::paper(),
                "best" => features = Features::best(),
                "clear" => features.signal = Signal::Clear,
                "phase" => features.signal = Signal::Phase,
                "register" => features.signal = Signal::Register,
                "grouped" => features.packing = Packing::Grouped,
                "packed" => features.packing = Packing::Packed,
                "padded" => features.packing = Packing::Padded,
                switch => {
                    let (name, on) = switch.strip_prefix("no-").map_or((switch, true), |name| (name, false));
                    *features.switch(name).ok_or_else(|| UnknownFeature(switch.to_owned()))? = on;
                }
            }
        }
        Ok(features)
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
            (self.fetch_ahead, "fetch-ahead"),
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
            ($signal:literal, $packing:literal, $whole_line:literal) => {{
                type $policy = Compiled<$signal, $packing, $whole_line>;
                $body
            }};
        }
        match (features.signal, features.packing, features.whole_line) {
            (Signal::Clear, Packing::Grouped, true) => compiled!(0, 0, true),
            (Signal::Clear, Packing::Grouped, false) => compiled!(0, 0, false),
            (Signal::Clear, Packing::Packed, _) => compiled!(0, 1, true),
            (Signal::Clear, Packing::Padded, _) => compiled!(0, 2, true),
            (Signal::Phase, Packing::Grouped, true) => compiled!(1, 0, true),
            (Signal::Phase, Packing::Grouped, false) => compiled!(1, 0, false),
            (Signal::Phase, Packing::Packed, _) => compiled!(1, 1, true),
            (Signal::Phase, Packing::Padded, _) => compiled!(1, 2, true),
            (Signal::Register, Packing::Grouped, true) => compiled!(2, 0, true),
            (Signal::Register, Packing::Grouped, false) => compiled!(2, 0, false),
            (Signal::Register, Packing::Packed, _) => compiled!(2, 1, true),
            (Signal::Register, Packing::Padded, _) => compiled!(2, 2, true),
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_features_print_is_what_they_are_read_from() {
        let mut all = vec![Features::paper(), Features::best()];
        for name in ["whole-line", "inline-payload", "recycling", "scattered", "small-buffers", "shared-pool"] {
            for signal in [Signal::Clear, Signal::Phase, Signal::Register] {
                for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
                    let mut features = Features { signal, packing, ..Features::paper() };
                    let switch = features.switch(name).expect("one of the names");
                    *switch = !*switch;
                    all.push(features);
                }
            }
        }
        for features in all {
            assert_eq!(features.to_string().parse(), Ok(features));
        }
    }

    #[test]
    fn later_names_change_what_earlier_ones_made() {
        assert_eq!("paper".parse(), Ok(Features::paper()));
        assert_eq!("".parse(), Ok(Features::best()));
        assert_eq!("paper,no-recycling".parse(), Ok(Features { recycling: false, ..Features::paper() }));
        assert_eq!("no-recycling,paper".parse(), Ok(Features::paper()));
        assert_eq!(" paper, register ".parse(), Ok(Features { signal: Signal::Register, ..Features::paper() }));
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        for bad in ["recycle", "no-", "no-phase", "no-no-recycling", "Paper"] {
            let error = bad.parse::<Features>().expect_err("no feature has that name").to_string();
            assert!(error.contains(bad) && error.contains("small-buffers"), "{error}");
        }
    }
}
