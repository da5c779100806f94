//! Which machine whose device is home to coherent lines, and what it is asked: options that `conic sim pio` and `conic trace call`, `receive` and `transmit` share.

use clap::{Args, ValueEnum};
use conic_fabric::Time;
use conic_interface::pio::Behaviour;
use conic_load::Function;
use conic_sim::eci::{Disturbances, EciParameters};
use conic_sim::platform::Platform;
use conic_study::coherent_pio::calling::{Makes, service};
use conic_study::coherent_pio::exchange::Calls;
use conic_study::coherent_pio::frames::{Around, Frames};

use super::question::load;
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
    /// The platform: see [`load`].
    ///
    /// # Errors
    ///
    /// As [`load`].
    pub fn platform(&self, elsewhere: impl Fn(&str) -> String) -> Result<Platform<EciParameters>, Failure> {
        load(&self.platform, &self.overrides, elsewhere)
    }
}

/// Which frames.
#[derive(Clone, Debug, Args)]
pub struct FrameQuestion {
    /// Bytes of a frame, 60 to 9600; half of a control line is the frame's
    #[arg(long, visible_alias = "packet-size", value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(60..=9600))]
    pub bytes: u16,
}

/// Which calls.
#[derive(Clone, Debug, Args)]
pub struct CallQuestion {
    /// Bytes of a request, 1 to 65536; a line has 8 less than it has bytes, and longer requests take a group of lines
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bytes: u32,
    /// What the device computes: echo, bloom (eight 64-bit hashes of each 128 bytes), or checksum (RFC 1071)
    #[arg(long, value_name = "NAME", default_value = "echo")]
    function: Function,
    /// How the device returns a line that was asked for to read
    #[arg(long, value_enum, default_value_t = Returns::Exclusive)]
    returns: Returns,
}

impl CallQuestion {
    /// Bytes of a request.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Bytes of its response.
    pub fn response_bytes(&self) -> usize {
        Makes::Result(self.function).response_bytes(self.bytes())
    }

    /// The function's name.
    pub fn function(&self) -> &'static str {
        self.function.name()
    }

    /// How the device returns a line.
    pub fn returns(&self) -> &'static str {
        self.returns.name()
    }

    /// So many calls before the first that counts, and so many that count.
    pub fn calls(&self, machine: &EciParameters, calls: (u64, u64)) -> Calls {
        Calls {
            behaviour: Behaviour { exclusive: self.returns == Returns::Exclusive, ..Behaviour::default() },
            service: service(self.function, self.bytes(), &machine.device, machine.device.cycle),
            ..Calls::new(machine, self.bytes(), Makes::Result(self.function), calls)
        }
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
