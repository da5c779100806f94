//! Which machine, which interface, what is sent: options that `conic sim` and `conic trace` share.

use clap::{Args, ValueEnum};
use conic_interface::ccnic::Features;
use conic_sim::platform::{Model, ParameterSet, Platform, SOCKETS, model_of, names_of};
use conic_study::workload::{Interface, NicPlace, Prefetching};

use crate::bench::failure::Failure;

/// Which interface runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// CC-NIC over the coherent interconnect
    Ccnic,
    /// A ring with head and tail registers over the coherent interconnect: the paper's unoptimised baseline
    Ring,
    /// The ring over PCIe to the platform's NIC
    Pcie,
}

/// Whose hardware prefetchers are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Prefetch {
    /// The host's cores'
    Host,
    /// The NIC's cores'
    Nic,
    /// Both
    Both,
    /// Nobody's
    None,
}

/// The name of the model of a platform that is of another model than `wanted`; none where nothing is known of it, or nothing is wrong.
fn other_model(name_or_path: &str, wanted: &Model) -> Option<&'static str> {
    let model = model_of(name_or_path);
    // What is not known passes for a machine of two sockets.
    let is_known = model.name != SOCKETS.name || names_of(SOCKETS).any(|name| name == name_or_path);
    (is_known && model.name != wanted.name).then_some(model.name)
}

/// A platform with what is replaced of it. `elsewhere` says what asks the same of a machine of another model, behind what is wrong then.
///
/// # Errors
///
/// There is none of that name and model, or what is wrong with it.
pub fn load<P: ParameterSet>(
    name_or_path: &str,
    overrides: &[String],
    elsewhere: impl Fn(&str) -> String,
) -> Result<Platform<P>, Failure> {
    let platform = Platform::load_as(name_or_path).and_then(|platform| platform.with(overrides));
    platform.map_err(|error| {
        let hint = other_model(name_or_path, P::MODEL).map(elsewhere).unwrap_or_default();
        Failure::failed(format!("{error}{hint}"))
    })
}

/// Which machine and which interface.
#[derive(Clone, Debug, Args)]
pub struct Question {
    /// The machine: a platform's name (`conic platform list` names them), or the path of a file that ends in .toml
    #[arg(long, value_name = "NAME|FILE", default_value = "spr")]
    pub platform: String,
    /// Replace a value of the platform, in its unit or with one of its own, as in interconnect.crossing=40ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// The interface [default: ccnic]
    #[arg(long, value_enum)]
    interface: Option<Choice>,
    /// CC-NIC's switches, comma-separated, as `conic bench loopback --help` lists them [default: best]
    #[arg(long, value_name = "LIST")]
    features: Option<Features>,
    /// Bytes of a packet, 60 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=9600))]
    pub packet_size: u16,
    /// The NIC's agents run on cores of the host's own socket; not with pcie, whose NIC is behind its link
    #[arg(long)]
    pub same_socket: bool,
    /// Whose hardware prefetchers are on [default: host]
    #[arg(long, value_enum, value_name = "WHOSE")]
    prefetch: Option<Prefetch>,
    /// The seed of everything that is drawn; the same seed gives the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

impl Question {
    /// The platform: see [`load`].
    ///
    /// # Errors
    ///
    /// As [`load`].
    pub fn platform(&self, elsewhere: impl Fn(&str) -> String) -> Result<Platform, Failure> {
        load(&self.platform, &self.overrides, elsewhere)
    }

    /// The interface with its switches.
    ///
    /// # Errors
    ///
    /// Switches or a place for an interface that has none, or PCIe where the platform has none.
    pub fn interface(&self, platform: &Platform) -> Result<Interface, Failure> {
        if self.choice() != Choice::Ccnic && self.features.is_some() {
            let name = self.interface_name();
            return Err(Failure::failed(format!("--features are CC-NIC's switches; {name} has none: leave them out")));
        }
        if self.choice() == Choice::Pcie && self.same_socket {
            let message =
                "--same-socket places a NIC that is played by cores; that of pcie is behind its link: leave it out";
            return Err(Failure::failed(message));
        }
        Ok(match self.choice() {
            Choice::Ccnic => Interface::CcNic(self.features()),
            Choice::Ring => Interface::UnoptimisedRing,
            Choice::Pcie if platform.parameters().nic.is_none() => {
                let message = format!("{} has no PCIe NIC: try --platform icx-e810 or icx-cx6", platform.name());
                return Err(Failure::failed(message));
            }
            Choice::Pcie => Interface::PcieRing,
        })
    }

    /// Which interface runs.
    pub fn choice(&self) -> Choice {
        self.interface.unwrap_or(Choice::Ccnic)
    }

    /// Whose hardware prefetchers are on.
    pub fn prefetch(&self) -> Prefetch {
        self.prefetch.unwrap_or(Prefetch::Host)
    }

    /// Of what was asked for, what a machine with a CXL device has nothing of; none if that is nothing.
    pub fn of_sockets(&self) -> Option<&'static str> {
        let given = [
            (self.interface.is_some(), "--interface"),
            (self.features.is_some(), "--features"),
            (self.same_socket, "--same-socket"),
            (self.prefetch.is_some(), "--prefetch"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    /// CC-NIC's switches.
    pub fn features(&self) -> Features {
        self.features.unwrap_or(Features::best())
    }

    /// The interface's name on the command line and in JSON.
    pub fn interface_name(&self) -> &'static str {
        match self.choice() {
            Choice::Ccnic => "ccnic",
            Choice::Ring => "ring",
            Choice::Pcie => "pcie",
        }
    }

    /// Where the NIC's agents run.
    pub fn nic_place(&self) -> NicPlace {
        if self.same_socket { NicPlace::SameNode } else { NicPlace::Remote }
    }

    /// Whose hardware prefetchers are on.
    pub fn prefetching(&self) -> Prefetching {
        let (host, nic) = match self.prefetch() {
            Prefetch::Host => (true, false),
            Prefetch::Nic => (false, true),
            Prefetch::Both => (true, true),
            Prefetch::None => (false, false),
        };
        Prefetching { host, nic }
    }

    /// Refuses more threads than there are cores for.
    ///
    /// # Errors
    ///
    /// How many there can be.
    pub fn check_threads(&self, platform: &Platform, threads: usize) -> Result<(), Failure> {
        // A node's snoop filter has a bit for each of 64 cores.
        let cores = platform.parameters().core.cores.min(64) as usize;
        let each = if self.same_socket { 2 } else { 1 };
        let most = cores / each;
        if (1..=most).contains(&threads) {
            return Ok(());
        }
        let place = if each == 2 { "with the NIC on the same socket" } else { "a socket" };
        let name = platform.name();
        Err(Failure::failed(format!("{name} has cores for {most} threads {place}, not {threads}: see core.cores")))
    }
}
