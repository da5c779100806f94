//! Which machine whose device is home to coherent lines: options that `conic sim pio` and `conic trace call`, `receive` and `transmit` share.

use clap::{Args, ValueEnum};
use conic_fabric::Time;
use conic_sim::eci::{Disturbances, EciParameters};
use conic_sim::platform::{ECI, Platform};
use conic_study::coherent_pio::frames::{Around, Frames};

use super::question::other_model;
use crate::bench::failure::Failure;
use crate::value::span;

/// Which machine.
#[derive(Clone, Debug, Args)]
pub struct LinesQuestion {
    /// The machine, whose device is home to coherent lines: enzian, cxl3-mem (nearly all of whose values are guesses), or the path of a
    /// file that ends in .toml
    #[arg(long, value_name = "NAME|FILE", default_value = "enzian")]
    pub platform: String,
    /// Replace a value of the platform, in its unit or with one of its own, as in link.crossing=40ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
}

/// How a device returns a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Returns {
    /// To write: the next request's stores are silent
    Exclusive,
    /// To read: the next request's first store to each line asks to write it
    Shared,
}

impl Returns {
    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Returns::Exclusive => "exclusive",
            Returns::Shared => "shared",
        }
    }
}

impl LinesQuestion {
    /// The platform with what is replaced. `elsewhere` says what asks the same of a machine of another model.
    ///
    /// # Errors
    ///
    /// There is none of that name and model, or what is wrong with it.
    pub fn platform(&self, elsewhere: impl Fn(&str) -> String) -> Result<Platform<EciParameters>, Failure> {
        let platform = Platform::load_as(&self.platform).and_then(|platform| platform.with(&self.overrides));
        platform.map_err(|error| {
            let hint = other_model(&self.platform, ECI).map(elsewhere).unwrap_or_default();
            Failure::failed(format!("{error}{hint}"))
        })
    }
}

/// Reads how long a load may wait for its frame: less than until it is told to try again.
///
/// # Errors
///
/// What is wanted instead.
pub fn wait(text: &str) -> Result<Time, String> {
    let time = span(text)?;
    match time.nanoseconds() {
        ..=10_000_000 => Ok(time),
        _ => Err(format!("a time from 1us to 10ms is wanted, not \"{text}\"")),
    }
}

/// Frames as the study has them for its figures: so many before the first that counts, and so many that count.
pub fn frames(platform: &Platform<EciParameters>, bytes: u16, frames: (u64, u64), seed: u64) -> Frames {
    Frames {
        machine: platform.parameters().on_nic_clock(),
        bytes: bytes.into(),
        prefetch: false,
        exclusive: true,
        frames,
        disturbances: Disturbances::default(),
        around: Around { clocks: true, timer: None, pauses: Some(seed) },
    }
}
