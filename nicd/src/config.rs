//! What an operator says the daemon is: a TOML file, read and checked before anything is opened.
//!
//! Unknown keys are errors, so that a misspelt one is not a default in silence. What cannot work together is refused here, with
//! the place and what to do, so that `conic nic --check` says all that can be said without opening a device.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use conic_port::{Kind, PortSpec, SpecError};
use serde::{Deserialize, Serialize};

use crate::switch::{Mac, Offloads, RateLimit, Rules};

/// The daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The Unix socket at which clients attach.
    pub socket: PathBuf,
    /// The socket's permissions, in octal digits.
    pub socket_mode: String,
    /// Users, by number, who may attach, beside root and the daemon's own. Everybody who may connect, if there is `"any"`.
    pub allow_users: AllowedUsers,
    /// Where Prometheus reads metrics over HTTP; nowhere if it is not there.
    pub metrics: Option<SocketAddr>,
    /// How long, in microseconds, any core of the machine may take to wake up, as long as the daemon is there; whatever the kernel thinks
    /// right if it is not there. With 0 no core halts: the first packet after a rest comes sooner, and the machine takes more power.
    pub wakeup_latency_us: Option<u32>,
    /// How long a client may take for each step of attaching, in milliseconds.
    pub step_timeout_ms: u64,
    /// Faults after which a client is detached.
    pub most_faults: u64,
    /// What clients may take up.
    pub limits: Limits,
    /// The networks; one bridge without ports if there are none.
    #[serde(rename = "network")]
    pub networks: Vec<NetworkConfig>,
}

/// Who may attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a list of user numbers is wanted, or \"any\"")]
pub enum AllowedUsers {
    /// `"any"`.
    Word(String),
    /// These, by number.
    Users(Vec<u32>),
}

impl AllowedUsers {
    /// Whether a user is among them.
    pub fn allow(&self, user: u32) -> bool {
        match self {
            AllowedUsers::Word(word) => word == "any",
            AllowedUsers::Users(users) => users.contains(&user),
        }
    }
}

/// What clients may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Clients of all users together.
    pub clients: u32,
    /// Clients of one user.
    pub clients_per_user: u32,
    /// Queue pairs of one client.
    pub queues_per_client: u32,
    /// Queue pairs of one user's clients.
    pub queues_per_user: u32,
    /// Descriptors of a ring.
    pub descriptors: u64,
    /// MiB of one client's region.
    pub mib_per_client: u64,
    /// MiB of one user's clients' regions.
    pub mib_per_user: u64,
    /// MiB, at most, of a region that is made before it is asked for, for whoever asks next for what was asked for last; 0: none.
    /// Where the next one asks for something else, none is made until two in a row have asked for the same.
    pub spare_mib: u64,
}

/// A second: no core takes as long.
const LONGEST_WAKEUP_US: u32 = 1_000_000;

/// The most MiB that a limit can be: their bytes are a number of 64 bits.
const MOST_MIB: u64 = u64::MAX >> 20;

/// The smallest ring that an interface has.
const FEWEST_DESCRIPTORS: u64 = 4;

impl Limits {
    fn check(&self) -> Result<(), ConfigError> {
        let Limits {
            clients,
            clients_per_user,
            queues_per_client,
            queues_per_user,
            descriptors,
            mib_per_client,
            mib_per_user,
            spare_mib,
        } = *self;
        let least = [
            ("clients", 1, clients.into()),
            ("clients_per_user", 1, clients_per_user.into()),
            ("queues_per_client", 1, queues_per_client.into()),
            ("queues_per_user", 1, queues_per_user.into()),
            ("descriptors", FEWEST_DESCRIPTORS, descriptors),
            ("mib_per_client", 1, mib_per_client),
            ("mib_per_user", 1, mib_per_user),
        ];
        if let Some((key, least, given)) = least.into_iter().find(|(_, least, given)| given < least) {
            return refuse(format!(
                "limits: {key} is at least {least}, and not {given}, with which nobody could attach: leave it out for the default"
            ));
        }
        for (key, mib) in [("mib_per_client", mib_per_client), ("mib_per_user", mib_per_user), ("spare_mib", spare_mib)]
        {
            if mib > MOST_MIB {
                return refuse(format!("limits: {key} is at most {MOST_MIB}, and not {mib}"));
            }
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 1024,
            clients_per_user: 256,
            queues_per_client: 256,
            queues_per_user: 1024,
            descriptors: 16384,
            mib_per_client: 1024,
            mib_per_user: 8192,
            spare_mib: 16,
        }
    }
}

/// A network: clients and ports that reach each other, served by one thread or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Its name: letters, digits and `-_.:`.
    pub name: String,
    /// How its members are joined.
    pub mode: NetworkMode,
    /// How many threads serve it: queue `q` of port `p` is on thread `p + q` modulo their number, a client on the one that has the fewest.
    pub threads: usize,
    /// The core that its one thread is bound to; any if it is not there.
    pub core: Option<usize>,
    /// The core that each of its threads is bound to; any if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<usize>,
    /// What its threads do when there is nothing to do.
    pub wait: WaitMode,
    /// A client may send from its own address alone.
    pub own_address_only: bool,
    /// A client that may send from its own address alone may have frames for stations that nobody is known to have, if it asks for them.
    /// Who may send from others has them anyway.
    pub promiscuous: bool,
    /// Addresses that no client may have but who is bound to them: those of stations behind ports, whose traffic it would get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_macs: Vec<Mac>,
    /// How long an address that is not seen is remembered, in seconds.
    pub address_age_s: u64,
    /// Its ports.
    #[serde(rename = "port")]
    pub ports: Vec<PortConfig>,
    /// What clients may do; the first that fits a client counts.
    #[serde(rename = "client")]
    pub clients: Vec<ClientConfig>,
    /// Static cross-connects: pairs that reach each other and nobody else.
    #[serde(rename = "connect", skip_serializing_if = "Vec::is_empty")]
    pub connects: Vec<ConnectConfig>,
    /// Flows that go to a client whatever the bridge has learned; the first that fits a frame counts.
    #[serde(rename = "pin", skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinConfig>,
    /// Whose frames are copied to a capture file from the start.
    #[serde(rename = "mirror", skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<MirrorConfig>,
}

/// What clients of a name, or of a user, may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// What they call themselves; any name if it is not there. A client chooses its name, so this protects from nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Their user, by number; any if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The VLAN that they are members of, their frames without tags; they pass tags as they are if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Bytes a second that each may send; any number if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Bytes that each may send at once after a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u64>,
    /// The addresses of which each has one, and nobody else; any that is kept for nobody if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<Mac>,
    /// They may send from their own address alone; as the network has it if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_address_only: Option<bool>,
    /// They may have frames for stations that nobody is known to have; as the network has it if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promiscuous: Option<bool>,
}

/// Threads of a network, at most: each has a way of two MiB to each other.
const MOST_THREADS: usize = 16;

/// Bytes that a limited client may send at once where its rule does not say.
const DEFAULT_BURST: u64 = 65_536;

impl ClientConfig {
    fn fits(&self, name: &str, user: u32) -> bool {
        self.name.as_deref().is_none_or(|own| own == name) && self.user.is_none_or(|own| own == user)
    }
}

impl Default for NetworkConfig {
    fn default() -> NetworkConfig {
        NetworkConfig {
            name: "default".to_owned(),
            mode: NetworkMode::Bridge,
            threads: 1,
            core: None,
            cores: Vec::new(),
            wait: WaitMode::Adaptive,
            own_address_only: true,
            promiscuous: false,
            kept_macs: Vec::new(),
            address_age_s: 300,
            ports: Vec::new(),
            clients: Vec::new(),
            connects: Vec::new(),
            pins: Vec::new(),
            mirrors: Vec::new(),
        }
    }
}

/// How a network's members are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// By address: a bridge that learns.
    Bridge,
    /// Each client's frames come back to it: a loopback port for each queue.
    Loopback,
}

/// What a network's threads do when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitMode {
    /// It looks again at once, always: the least latency, a whole core.
    Spin,
    /// It looks again for a while, then sleeps until it is woken.
    Adaptive,
    /// It sleeps at once.
    Interrupt,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// What it is, as [`PortSpec`] reads it: `tap:lab0,address=10.9.0.1/24`.
    pub spec: String,
    /// The VLAN that it is a member of: its frames have no tags. It passes tags as they are if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

impl PortConfig {
    /// What to open.
    ///
    /// # Errors
    ///
    /// The text describes no port.
    pub fn spec(&self) -> Result<PortSpec, SpecError> {
        self.spec.parse()
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            socket: PathBuf::from("/run/conic/nic.sock"),
            socket_mode: "0660".to_owned(),
            allow_users: AllowedUsers::Users(Vec::new()),
            metrics: None,
            wakeup_latency_us: None,
            step_timeout_ms: 2000,
            most_faults: 64,
            limits: Limits::default(),
            networks: Vec::new(),
        }
    }
}

/// What is wrong with a configuration, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

mod addresses;
mod mirror;
mod plain;
mod wiring;

pub use mirror::{MIRROR_BYTES, MirrorConfig};
pub use wiring::{ConnectConfig, EndConfig, PinConfig};

impl Config {
    /// Reads a configuration and checks it.
    ///
    /// # Errors
    ///
    /// What is wrong, with its line where it is the text.
    pub fn read(text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| ConfigError(plain::in_words(&error)))?;
        config.checked()
    }

    /// The same configuration with its defaults filled in, if it can work.
    ///
    /// # Errors
    ///
    /// What cannot, and what to do.
    pub fn checked(mut self) -> Result<Config, ConfigError> {
        if self.networks.is_empty() {
            self.networks.push(NetworkConfig::default());
        }
        self.mode_bits()?;
        if let AllowedUsers::Word(word) = &self.allow_users
            && word != "any"
        {
            return refuse(format!("allow_users is a list of user numbers, or \"any\", and not \"{word}\""));
        }
        if let Some(address) = self.metrics
            && !address.ip().is_loopback()
        {
            return refuse(format!(
                "metrics are served on loopback alone, such as 127.0.0.1:9464, and not at {address}"
            ));
        }
        if let Some(longest) = self.wakeup_latency_us
            && longest > LONGEST_WAKEUP_US
        {
            return refuse(format!(
                "wakeup_latency_us is at most {LONGEST_WAKEUP_US}, and not {longest}: leave it out where it does not matter"
            ));
        }
        if self.step_timeout_ms == 0 {
            return refuse("step_timeout_ms is at least 1: no client could attach in no time".to_owned());
        }
        self.limits.check()?;
        let mut names = BTreeSet::new();
        let mut taps = BTreeSet::new();
        for network in &self.networks {
            if !names.insert(&network.name) {
                return refuse(format!("there are two networks \"{}\": give each its own name", network.name));
            }
            network.check(&mut taps)?;
            network.check_pins(self.limits.queues_per_client)?;
        }
        Ok(self)
    }

    /// The socket's permissions.
    ///
    /// # Errors
    ///
    /// They are no octal number up to 0777.
    pub fn mode_bits(&self) -> Result<u32, ConfigError> {
        match u32::from_str_radix(&self.socket_mode, 8) {
            Ok(mode) if mode <= 0o777 => Ok(mode),
            _ => refuse(format!("socket_mode is octal permissions such as \"0660\", and not \"{}\"", self.socket_mode)),
        }
    }
}

fn check_vlan(network: &str, vlan: Option<u16>) -> Result<(), ConfigError> {
    match vlan {
        Some(vlan) if !(1..=4094).contains(&vlan) => {
            refuse(format!("network \"{network}\": a VLAN is 1 to 4094, not {vlan}"))
        }
        _ => Ok(()),
    }
}

fn refuse<T>(why: String) -> Result<T, ConfigError> {
    Err(ConfigError(why))
}

impl NetworkConfig {
    /// What a client may do that calls itself `name`, with an address; what it makes of metadata is its own affair.
    pub fn rules_for(&self, name: &str, user: u32, mac: [u8; 6]) -> Rules {
        let rule = self.rule_of(name, user).cloned().unwrap_or_default();
        let limit = rule.bytes_per_second.map(|bytes_per_second| RateLimit {
            bytes_per_second,
            burst_bytes: rule.burst_bytes.unwrap_or(DEFAULT_BURST),
        });
        let own_address_only = self.is_bound(&rule);
        Rules {
            offloads: Offloads::default(),
            longest: None,
            mac,
            own_address_only,
            promiscuous: false,
            vlan: rule.vlan,
            limit,
            circuit: self.circuit_of_client(name),
            pins: self.pins_of(name),
        }
    }

    /// Whether a client may have frames for stations that nobody is known to have.
    pub fn may_be_promiscuous(&self, name: &str, user: u32) -> bool {
        let rule = self.rule_of(name, user).cloned().unwrap_or_default();
        rule.promiscuous.unwrap_or(self.promiscuous) || !self.is_bound(&rule)
    }

    /// Whether clients of a rule may send from their own address alone.
    fn is_bound(&self, rule: &ClientConfig) -> bool {
        rule.own_address_only.unwrap_or(self.own_address_only)
    }

    /// The core that a thread is bound to.
    pub fn core_of(&self, thread: usize) -> Option<usize> {
        self.cores.get(thread).copied().or(self.core.filter(|_| thread == 0))
    }

    fn check_threads(&self) -> Result<(), ConfigError> {
        let NetworkConfig { name, threads, core, cores, .. } = self;
        if !(1..=MOST_THREADS).contains(threads) {
            return refuse(format!("network \"{name}\": threads is 1 to {MOST_THREADS}, not {threads}"));
        }
        if core.is_some() && (*threads > 1 || !cores.is_empty()) {
            return refuse(format!(
                "network \"{name}\": core is for a network of one thread: name a core for each with cores = [...]"
            ));
        }
        if !cores.is_empty() && cores.len() != *threads {
            let named = cores.len();
            return refuse(format!(
                "network \"{name}\": cores names one for each of its {threads} threads, not {named}"
            ));
        }
        let mut seen = BTreeSet::new();
        match cores.iter().find(|&core| !seen.insert(core)) {
            Some(core) => refuse(format!("network \"{name}\": core {core} is named twice: give each thread its own")),
            None => Ok(()),
        }
    }

    fn check_clients(&self) -> Result<(), ConfigError> {
        let name = &self.name;
        for rule in &self.clients {
            check_vlan(name, rule.vlan)?;
            if rule.bytes_per_second == Some(0) || rule.burst_bytes == Some(0) {
                return refuse(format!("network \"{name}\": a client's rate and burst are at least 1 byte"));
            }
            if self.mode == NetworkMode::Loopback && rule.vlan.is_some() {
                return refuse(format!("network \"{name}\" is a loopback, which has no VLANs"));
            }
        }
        Ok(())
    }

    fn check(&self, taps: &mut BTreeSet<String>) -> Result<(), ConfigError> {
        let name = &self.name;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if !(1..=32).contains(&name.len()) || !name.bytes().all(allowed) {
            return refuse(format!("a network's name is 1 to 32 letters, digits and -_.: and not {name:?}"));
        }
        if self.mode == NetworkMode::Loopback && !self.ports.is_empty() {
            return refuse(format!(
                "network \"{name}\" is a loopback and has ports: make its mode \"bridge\", or take them away"
            ));
        }
        if self.address_age_s == 0 {
            return refuse(format!("network \"{name}\": address_age_s is at least 1"));
        }
        self.check_threads()?;
        self.check_clients()?;
        self.check_addresses()?;
        self.check_wiring()?;
        self.check_mirrors()?;
        for port in &self.ports {
            let spec = self.check_port(port)?;
            if let Some(tap) = spec.makes()
                && !taps.insert(tap.to_owned())
            {
                return refuse(format!("network \"{name}\": the TAP interface \"{tap}\" is named twice"));
            }
        }
        Ok(())
    }

    /// What a port is, if the network can have it.
    ///
    /// # Errors
    ///
    /// Why it cannot, and what to do.
    pub fn check_port(&self, port: &PortConfig) -> Result<PortSpec, ConfigError> {
        let name = &self.name;
        let spec = port.spec().map_err(|error| ConfigError(format!("network \"{name}\": {error}")))?;
        if self.mode == NetworkMode::Loopback {
            return refuse(format!("network \"{name}\" is a loopback, which has no ports"));
        }
        if let Kind::Loopback { .. } = spec.kind() {
            return refuse(format!(
                "network \"{name}\": a bridge would learn each address at its loopback port: give a network mode = \"loopback\""
            ));
        }
        check_vlan(name, port.vlan)?;
        if spec.forwards_by_itself() && (self.threads > 1 || port.vlan.is_some()) {
            return refuse(format!(
                "network \"{name}\": port '{spec}': the kernel forwards frames without a VLAN, on a network of one thread: leave forward=kernel out, or threads and vlan"
            ));
        }
        Ok(spec)
    }
}

/// Checks that a file is refused for a reason when one of its words is another: from, to, reason.
#[cfg(test)]
fn check_refusals(text: &str, changes: &[(&str, &str, &str)]) {
    for (from, to, reason) in changes {
        let error = Config::read(&text.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(reason), "{to}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_between_which_the_kernel_forwards_are_of_one_thread_and_no_vlan() {
        let text = "[[network]]\nthreads = 1\n[[network.port]]\nspec = \"af-xdp:v0,forward=kernel\"\nvlan = 7\n";
        let told = "the kernel forwards frames without a VLAN, on a network of one thread";
        let sound = text.replace("vlan = 7", "");
        assert!(Config::read(&sound).is_ok() && Config::read(&text.replace("kernel", "user")).is_ok());
        check_refusals(text, &[("vlan = 7", "vlan = 8", told)]);
        check_refusals(&sound, &[("threads = 1", "threads = 2", told)]);
    }

    #[test]
    fn the_shipped_file_names_each_key_that_there_is() {
        fn keys<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
            // Whoever refuses a key says which there are.
            let told = toml::from_str::<T>("no_such_key = 1").expect_err("there is no such key").to_string();
            let (_, keys) =
                told.split_once("expected one of ").or(told.split_once("expected ")).expect("it says which there are");
            keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        }
        let all = [
            keys::<Config>(),
            keys::<Limits>(),
            keys::<NetworkConfig>(),
            keys::<ClientConfig>(),
            keys::<PortConfig>(),
            keys::<ConnectConfig>(),
            keys::<PinConfig>(),
            keys::<MirrorConfig>(),
        ];
        let text = include_str!("../../packaging/nic.toml");
        let line = |key: &str| {
            let begins = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
            text.lines().any(begins) || text.contains(&format!("[[{key}]]")) || text.contains(&format!("[{key}]"))
        };
        let missing: Vec<_> =
            all.iter().flatten().filter(|key| !line(key) && !line(&format!("network.{key}"))).collect();
        assert!(all.iter().all(|keys| !keys.is_empty()) && missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn nothing_is_a_bridge_without_ports() {
        let config = Config::read("").expect("the defaults work");
        assert_eq!(config.networks, [NetworkConfig::default()]);
        assert!(!config.allow_users.allow(1000));
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = r#"
            socket = "/tmp/nic.sock"
            socket_mode = "0600"
            allow_users = [1000, 1001]
            metrics = "127.0.0.1:9464"
            [limits]
            clients_per_user = 4
            [[network]]
            name = "lab"
            core = 1
            wait = "spin"
            [[network.port]]
            spec = "tap:lab0,address=10.9.0.1/24"
            vlan = 7
            [[network.client]]
            user = 1001
            vlan = 9
            bytes_per_second = 1000
            [[network]]
            name = "echo"
            mode = "loopback"
            threads = 2
            cores = [2, 0]
        "#;
        let config = Config::read(text).expect("a sound file");
        let cores = config.networks.iter().map(|network| (network.core_of(0), network.core_of(1)));
        assert_eq!(cores.collect::<Vec<_>>(), [(Some(1), None), (Some(2), Some(0))]);
        assert_eq!(config.mode_bits(), Ok(0o600));
        assert!(config.allow_users.allow(1001) && !config.allow_users.allow(1002));
        assert_eq!((config.limits.clients_per_user, config.limits.clients), (4, Limits::default().clients));
        let rules = config.networks[0].rules_for("any", 1001, [2; 6]);
        let limit = RateLimit { bytes_per_second: 1000, burst_bytes: DEFAULT_BURST };
        let (circuit, pins, offloads, longest) = (None, Vec::new(), Offloads::default(), None);
        assert_eq!(
            rules,
            Rules {
                mac: [2; 6],
                own_address_only: true,
                promiscuous: false,
                vlan: Some(9),
                limit: Some(limit),
                circuit,
                pins,
                offloads,
                longest
            }
        );
        assert_eq!(config.networks[0].rules_for("any", 1002, [2; 6]).vlan, None);
        assert_eq!(config.networks[1].mode, NetworkMode::Loopback);
        let written = toml::to_string(&config).expect("it can be written");
        assert_eq!(Config::read(&written), Ok(config));
    }

    #[test]
    fn the_largest_limit_is_not_refused() {
        let most =
            "[limits]\nmib_per_client = 17592186044415\nmib_per_user = 17592186044415\nspare_mib = 17592186044415";
        let limits = Config::read(most).expect("they can be").limits;
        assert_eq!(
            [limits.mib_per_client, limits.mib_per_user, limits.spare_mib].map(|mib| mib << 20 >> 20),
            [MOST_MIB; 3]
        );
    }

    #[test]
    fn the_first_rule_that_fits_a_client_says_what_it_may_do() {
        let text = r#"
            allow_users = "any"
            [[network]]
            own_address_only = false
            [[network.client]]
            name = "web"
            user = 1001
            bytes_per_second = 1000
            burst_bytes = 77
            own_address_only = true
            [[network.client]]
            name = "web"
            vlan = 9
        "#;
        let config = Config::read(text).expect("a sound file");
        assert!(config.allow_users.allow(1002));
        let rules = |name: &str, user: u32| {
            let rules = config.networks[0].rules_for(name, user, [2; 6]);
            (rules.own_address_only, rules.vlan, rules.limit.map(|limit| limit.burst_bytes))
        };
        assert_eq!(rules("web", 1001), (true, None, Some(77)));
        assert_eq!(rules("web", 1002), (false, Some(9), None));
        assert_eq!(rules("db", 1001), (false, None, None));
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_reason() {
        for (text, reason) in [
            ("sokcet = \"x\"", "unknown field `sokcet`"),
            ("[[network]]\nmod = \"bridge\"", "unknown field `mod`"),
            ("[limits]\nclient = 3", "unknown field `client`"),
            ("[[network]]\n[[network.port]]\nspec = \"tap:a\"\nmut = 3", "unknown field `mut`"),
            ("[[network]]\n[[network.port]]\nspec = \"tip:a\"", "port 'tip:a'"),
            ("[[network]]\n[[network.port]]\nspec = \"loopback\"", "mode = \"loopback\""),
            ("[[network]]\n[[network.port]]\nspec = \"tap:a\"\nvlan = 4095", "1 to 4094"),
            ("[[network]]\n[[network.port]]\nspec = \"tap:a\"\n[[network.port]]\nspec = \"tap:a\"", "named twice"),
            ("socket_mode = \"0888\"", "octal"),
            ("allow_users = \"all\"", "\"any\""),
            ("metrics = \"0.0.0.0:80\"", "loopback"),
            ("metrics = \"192.0.2.1:80\"", "loopback"),
            ("wakeup_latency_us = 1000001", "wakeup_latency_us is at most 1000000"),
            ("wakeup_latency_us = -1", "wakeup_latency_us"),
            ("socket_mode = \"1777\"", "octal"),
            ("step_timeout_ms = 0", "at least 1"),
            ("[limits]\nclients = 0", "clients is at least 1, and not 0"),
            ("[limits]\nclients_per_user = 0", "clients_per_user is at least 1"),
            ("[limits]\nqueues_per_client = 0", "queues_per_client is at least 1"),
            ("[limits]\nqueues_per_user = 0", "queues_per_user is at least 1"),
            ("[limits]\ndescriptors = 3", "descriptors is at least 4, and not 3"),
            ("[limits]\nmib_per_client = 0", "mib_per_client is at least 1"),
            ("[limits]\nmib_per_user = 0", "mib_per_user is at least 1"),
            ("[limits]\nmib_per_client = 17592186044416", "mib_per_client is at most 17592186044415"),
            ("[limits]\nmib_per_user = 17592186044416", "mib_per_user is at most"),
            ("[limits]\nspare_mib = 9223372036854775807", "spare_mib is at most"),
            ("[[network]]\naddress_age_s = 0", "at least 1"),
            ("[[network]]\nthreads = 0", "threads is 1 to 16, not 0"),
            ("[[network]]\nthreads = 17", "threads is 1 to 16, not 17"),
            ("[[network]]\nthreads = 2\ncore = 1", "cores = [...]"),
            ("[[network]]\ncore = 1\ncores = [1]", "cores = [...]"),
            ("[[network]]\nthreads = 2\ncores = [1]", "one for each of its 2 threads, not 1"),
            ("[[network]]\nthreads = 2\ncores = [1, 1]", "core 1 is named twice"),
            ("[[network]]\n[[network.client]]\nvlan = 0", "1 to 4094"),
            ("[[network]]\n[[network.client]]\nvlan = 4095", "1 to 4094"),
            ("[[network]]\n[[network.client]]\nbytes_per_second = 0", "at least 1 byte"),
            ("[[network]]\n[[network.client]]\nburst_bytes = 0", "at least 1 byte"),
            ("[[network]]\nmode = \"loopback\"\n[[network.client]]\nvlan = 7", "has no VLANs"),
            ("[[network]]\n[[network]]", "two networks"),
            ("[[network]]\nname = \"a b\"", "letters"),
            ("[[network]]\nmode = \"loopback\"\n[[network.port]]\nspec = \"tap:a\"", "is a loopback and has ports"),
        ] {
            let error = Config::read(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
