//! What an impaired port does to frames.

use std::fmt;
use std::str::FromStr;

use conic_fabric::Time;

/// A probability, in parts of a thousand million: `0.01`, `1%` or `0.5%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probability(u32);

impl Probability {
    /// Never.
    pub const NEVER: Probability = Probability(0);
    /// Always.
    pub const ALWAYS: Probability = Probability(Probability::ONE);
    const ONE: u32 = 1_000_000_000;

    /// So many parts of a thousand million; more is always.
    pub const fn from_billionths(parts: u32) -> Probability {
        Probability(if parts > Probability::ONE { Probability::ONE } else { parts })
    }

    /// Whether a draw from a generator says yes.
    pub(super) fn draw(self, generator: &mut fastrand::Rng) -> bool {
        // Nothing is drawn for what is off, so that switching one impairment on does not change what another draws
        // less than it must.
        self.0 > 0 && generator.u32(..Probability::ONE) < self.0
    }
}

impl FromStr for Probability {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Probability, &'static str> {
        const WRONG: &str = "a probability is a number from 0 to 1 or a percentage, such as 0.01 or 1%";
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, 0.01),
            None => (text, 1.0),
        };
        let number: f64 = number.parse().map_err(|_| WRONG)?;
        let share = number * scale;
        if !(0.0..=1.0).contains(&share) {
            return Err(WRONG);
        }
        Ok(Probability((share * f64::from(Probability::ONE)).round() as u32))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / f64::from(Probability::ONE) * 100.0)
    }
}

/// Bits a second on the link: `10G`, `2.5M`, `64k` or a plain number. Each frame takes its own bytes and the 24 that
/// Ethernet adds (preamble 8, frame check sequence 4, gap 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// A rate in bits a second; `None` for 0.
    pub const fn new(bits: u64) -> Option<Rate> {
        if bits == 0 { None } else { Some(Rate(bits)) }
    }

    /// How long the link is busy with a frame.
    pub(super) fn busy(self, bytes: usize) -> Time {
        const ETHERNET: u128 = 24;
        let bits = (bytes as u128 + ETHERNET) * 8;
        let picoseconds = bits * 1_000_000_000_000 / u128::from(self.0);
        Time::from_picoseconds(u64::try_from(picoseconds).unwrap_or(u64::MAX))
    }
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Rate, &'static str> {
        const WRONG: &str = "a rate is bits a second, such as 10G, 2.5M or 64k";
        let (number, scale) = match text.char_indices().last() {
            Some((at, 'k' | 'K')) => (&text[..at], 1e3),
            Some((at, 'M')) => (&text[..at], 1e6),
            Some((at, 'G')) => (&text[..at], 1e9),
            _ => (text, 1.0),
        };
        let number: f64 = number.parse().map_err(|_| WRONG)?;
        let bits = number * scale;
        if !(1.0..=1e15).contains(&bits) {
            return Err(WRONG);
        }
        Ok(Rate(bits.round() as u64))
    }
}

/// Which frames are impaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Those received and those transmitted, each direction with its own draws and its own rate.
    #[default]
    Both,
    /// Those received.
    Receive,
    /// Those transmitted.
    Transmit,
}

impl FromStr for Direction {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Direction, &'static str> {
        match text {
            "both" => Ok(Direction::Both),
            "receive" => Ok(Direction::Receive),
            "transmit" => Ok(Direction::Transmit),
            _ => Err("a direction is receive, transmit or both"),
        }
    }
}

/// What is done to frames, each in each direction for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairment {
    /// What all draws begin with.
    pub seed: u64,
    /// A frame is lost.
    pub loss: Probability,
    /// A frame comes twice; the copy may itself be corrupted or held back.
    pub duplicate: Probability,
    /// A frame is held back for `reorder_by`, and others pass it.
    pub reorder: Probability,
    /// How long a frame is held back.
    pub reorder_by: Time,
    /// One bit of a frame is changed, at any place.
    pub corrupt: Probability,
    /// How long a frame is under way.
    pub delay: Time,
    /// By how much that differs at most, up or down, drawn evenly. Frames stay in order.
    pub jitter: Time,
    /// How fast frames leave. `None`: at once.
    pub rate: Option<Rate>,
    /// Frames under way in each direction at most; memory for as many is set aside, 9600 bytes each.
    pub limit: usize,
    /// Which frames are impaired.
    pub direction: Direction,
}

impl Impairment {
    /// No impairment.
    pub const NONE: Impairment = Impairment {
        seed: 1,
        loss: Probability::NEVER,
        duplicate: Probability::NEVER,
        reorder: Probability::NEVER,
        reorder_by: Time::from_nanoseconds(1_000_000),
        corrupt: Probability::NEVER,
        delay: Time::ZERO,
        jitter: Time::ZERO,
        rate: None,
        limit: 1024,
        direction: Direction::Both,
    };
    /// The most frames under way.
    pub const MOST: usize = 65_536;
}

impl Default for Impairment {
    fn default() -> Impairment {
        Impairment::NONE
    }
}
