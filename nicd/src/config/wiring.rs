//! Who is connected to whom, and whose flows are whose, as a configuration says it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ConfigError, NetworkConfig, NetworkMode, refuse};
use crate::switch::{Circuit, Pattern, Pin};

/// Two that reach each other and nobody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectConfig {
    /// The two: `["port:0", "client:web"]`.
    pub between: [EndConfig; 2],
}

/// One end of a cross-connect, or who is mirrored: `client:NAME`, or `port:NUMBER`, ports being counted from 0 in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EndConfig {
    /// Whoever calls itself so; of several the one that came first.
    Client(String),
    /// A port of the network.
    Port(usize),
}

impl FromStr for EndConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<EndConfig, String> {
        let wrong = || format!("an end is client:NAME or port:NUMBER, and not {text:?}");
        match text.split_once(':') {
            Some(("client", name)) if !name.is_empty() => Ok(EndConfig::Client(name.to_owned())),
            Some(("port", number)) => number.parse().map(EndConfig::Port).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for EndConfig {
    type Error = String;

    fn try_from(text: String) -> Result<EndConfig, String> {
        text.parse()
    }
}

impl From<EndConfig> for String {
    fn from(end: EndConfig) -> String {
        end.to_string()
    }
}

impl fmt::Display for EndConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndConfig::Client(name) => write!(f, "client:{name}"),
            EndConfig::Port(number) => write!(f, "port:{number}"),
        }
    }
}

/// A flow that goes to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinConfig {
    /// Who gets it: whoever calls itself so.
    pub client: String,
    /// Which of its queues; spread over all if it is not there, or if the client has fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Which frames: `"protocol=tcp,destination=10.0.0.2,destination-port=80"`.
    #[serde(rename = "match")]
    pub pattern: Pattern,
}

impl FromStr for ConnectConfig {
    type Err = String;

    /// `END,END`, such as `port:0,client:web`.
    fn from_str(text: &str) -> Result<ConnectConfig, String> {
        let two = text.split_once(',');
        let (near, far) = two.ok_or("a connection is two ends, such as port:0,client:web")?;
        Ok(ConnectConfig { between: [near.parse()?, far.parse()?] })
    }
}

impl FromStr for PinConfig {
    type Err = String;

    /// `CLIENT,MATCH` or `CLIENT,queue=NUMBER,MATCH`, such as `web,queue=2,protocol=tcp,destination-port=80`.
    fn from_str(text: &str) -> Result<PinConfig, String> {
        const WRONG: &str = "a pin is a client and its frames, such as web,protocol=tcp,destination-port=80";
        let (client, rest) = text.split_once(',').filter(|(client, _)| !client.is_empty()).ok_or(WRONG)?;
        let (queue, pattern) = match rest.strip_prefix("queue=") {
            Some(queue) => {
                let (queue, pattern) = queue.split_once(',').ok_or(WRONG)?;
                let number = queue.parse().map_err(|_| format!("queue={queue}: queues are numbers, from 0"))?;
                (Some(number), pattern)
            }
            None => (None, rest),
        };
        let pattern = pattern.parse()?;
        Ok(PinConfig { client: client.to_owned(), queue, pattern })
    }
}

impl NetworkConfig {
    fn circuit_of(&self, wanted: impl Fn(&EndConfig) -> bool) -> Option<Circuit> {
        self.connects.iter().find_map(|ConnectConfig { between: [near, far] }| {
            let is_far = wanted(far);
            (is_far || wanted(near)).then(|| Circuit { number: self.circuit_number(near, far), far: is_far })
        })
    }

    /// The number of a circuit between two ends: the same wherever they stand in a file. A daemon that takes over has another file, and ends
    /// come to it with their numbers. A port is told by what it was asked to be, as it is in a take-over.
    fn circuit_number(&self, near: &EndConfig, far: &EndConfig) -> u64 {
        let text = |end: &EndConfig| match end {
            EndConfig::Port(number) => {
                let (before, rest) = self.ports.split_at((*number).min(self.ports.len()));
                let spec = rest.first().map_or("", |port| port.spec.as_str());
                format!("port:{}:{spec}", before.iter().filter(|port| port.spec == spec).count())
            }
            EndConfig::Client(_) => end.to_string(),
        };
        hash(&[text(near), text(far)]) % Circuit::FIRST_OF_OPERATORS
    }

    /// The circuit that clients of a name are an end of.
    pub fn circuit_of_client(&self, name: &str) -> Option<Circuit> {
        self.circuit_of(|end| matches!(end, EndConfig::Client(own) if own == name))
    }

    /// The circuit that a port is an end of.
    pub fn circuit_of_port(&self, port: usize) -> Option<Circuit> {
        self.circuit_of(|end| *end == EndConfig::Port(port))
    }

    /// The flows that clients of a name get.
    pub fn pins_of(&self, name: &str) -> Vec<Pin> {
        let own = self.pins.iter().filter(|pin| pin.client == name);
        own.map(|PinConfig { queue, pattern, .. }| Pin { queue: *queue, pattern: pattern.clone() }).collect()
    }

    pub(super) fn check_wiring(&self) -> Result<(), ConfigError> {
        let name = &self.name;
        if self.mode == NetworkMode::Loopback && !(self.connects.is_empty() && self.pins.is_empty()) {
            return refuse(format!("network \"{name}\" is a loopback, which connects nobody and pins no flows"));
        }
        let mut ends = BTreeSet::new();
        for end in self.connects.iter().flat_map(|connect| &connect.between) {
            if !ends.insert(end) {
                return refuse(format!("network \"{name}\": {end} is an end of two connections: it can be of one"));
            }
            self.check_end(end)?;
        }
        Ok(())
    }

    /// Whether a client may have the queues that flows are pinned to.
    pub(super) fn check_pins(&self, queues_per_client: u32) -> Result<(), ConfigError> {
        let name = &self.name;
        match self.pins.iter().find(|pin| pin.queue.is_some_and(|queue| queue >= queues_per_client)) {
            Some(PinConfig { client, queue, .. }) => refuse(format!(
                "network \"{name}\": a flow is pinned to queue {} of {client}, and a client has at most {queues_per_client}, counted from \
                 0: see limits.queues_per_client",
                queue.unwrap_or_default()
            )),
            None => Ok(()),
        }
    }

    /// Whether there can be such an end.
    pub(super) fn check_end(&self, end: &EndConfig) -> Result<(), ConfigError> {
        let (name, count) = (&self.name, self.ports.len());
        match end {
            EndConfig::Port(number) if *number >= count => {
                refuse(format!("network \"{name}\" has no {end}: its {count} ports are counted from 0"))
            }
            _ => Ok(()),
        }
    }
}

/// FNV-1a, 64 bits, over texts and where each ends.
fn hash(texts: &[String]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::{ConnectConfig, PinConfig};
    use crate::config::Config;
    use crate::switch::Circuit;

    const TEXT: &str = r#"
        [[network]]
        [[network.port]]
        spec = "tap:a"
        [[network.connect]]
        between = ["client:left", "client:right"]
        [[network.connect]]
        between = ["port:0", "client:web"]
        [[network.pin]]
        client = "db"
        queue = 2
        match = "protocol=tcp,destination-port=80"
    "#;

    #[test]
    fn connections_and_pins_are_read_and_become_rules() {
        let config = Config::read(TEXT).expect("a sound file");
        let network = &config.networks[0];
        assert_eq!(network.circuit_of_client("right"), Some(Circuit { number: CLIENTS, far: true }));
        assert_eq!(network.rules_for("web", 0, [2; 6]).circuit, Some(Circuit { number: PORT, far: true }));
        assert_eq!(network.circuit_of_port(0), Some(Circuit { number: PORT, far: false }));
        assert_eq!((network.circuit_of_client("db"), network.pins_of("web").len()), (None, 0));
        let pins = network.rules_for("db", 0, [2; 6]).pins;
        assert_eq!((pins.len(), pins[0].queue), (1, Some(2)));
        let written = toml::to_string(&config).expect("it can be written");
        assert_eq!(Config::read(&written), Ok(config));
    }

    /// The numbers of the two connections: another daemon's, before and after this one, are the same.
    const CLIENTS: u64 = 0x2222_8873_2ab6_4c94;
    const PORT: u64 = 0x070c_dd0b_dce2_be7f;

    #[test]
    fn a_connection_has_its_number_wherever_it_stands_in_the_file() {
        let before = &Config::read(TEXT).expect("a sound file").networks[0];
        let in_front =
            "[[network.connect]]\nbetween = [\"client:a\", \"client:b\"]\n[[network.port]]\nspec = \"tap:b\"\n";
        let text = TEXT.replace("[[network]]\n", &format!("[[network]]\n{in_front}")).replace("port:0", "port:1");
        let after = &Config::read(&text).expect("a sound file").networks[0];
        assert_eq!(before.circuit_of_client("right"), after.circuit_of_client("right"));
        assert_eq!(before.circuit_of_client("web"), after.circuit_of_client("web"));
        assert_eq!(before.circuit_of_port(0), after.circuit_of_port(1));
        // Ports that were asked to be the same are told by their order, and ends by which is which.
        let text = text
            .replace("tap:a", "af-packet:v")
            .replace("tap:b", "af-packet:v")
            .replace("[\"client:a\", \"client:b\"]", "[\"port:0\", \"client:b\"]");
        let same = &Config::read(&text).expect("a sound file").networks[0];
        let numbers = ["b", "web", "left"].map(|name| same.circuit_of_client(name).expect("it has one").number);
        assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2], "{numbers:?}");
        assert!(numbers.iter().all(|&number| number < Circuit::FIRST_OF_OPERATORS), "{numbers:?}");
        assert_eq!(same.circuit_of_client("web"), same.circuit_of_port(1).map(|near| Circuit { far: true, ..near }));
    }

    #[test]
    fn flags_say_what_the_file_says() {
        let network = &Config::read(TEXT).expect("a sound file").networks[0];
        assert_eq!(
            ["client:left,client:right".parse(), "port:0,client:web".parse()].map(Result::ok),
            [Some(network.connects[0].clone()), Some(network.connects[1].clone())]
        );
        assert_eq!("db,queue=2,protocol=tcp,destination-port=80".parse(), Ok(network.pins[0].clone()));
        let spread: PinConfig = "db,protocol=tcp".parse().expect("a pin");
        assert_eq!((spread.client.as_str(), spread.queue), ("db", None));
        for (text, reason) in [("port:0", "two ends"), ("port:x,client:a", "client:NAME or port:NUMBER")] {
            assert!(text.parse::<ConnectConfig>().expect_err(text).contains(reason), "{text}");
        }
        for (text, reason) in [
            ("web", "a client and its frames"),
            (",vlan=7", "a client and its frames"),
            ("web,queue=x,vlan=7", "queue=x: queues are numbers"),
            ("web,queue=1", "a client and its frames"),
            ("web,port=80", "there are destination-mac"),
        ] {
            assert!(text.parse::<PinConfig>().expect_err(text).contains(reason), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_connected_or_pinned_is_refused() {
        let changes = [
            ("port:0", "port:1", "no port:1: its 1 ports"),
            ("client:web", "client:left", "two connections"),
            ("client:web", "station:web", "client:NAME or port:NUMBER"),
            ("queue = 2", "queues = 2", "unknown field `queues`"),
            ("destination-port=80", "port=80", "there are destination-mac"),
            ("between = [\"client:left\", \"client:right\"]", "between = [\"client:left\"]", "length"),
        ];
        crate::config::check_refusals(TEXT, &changes);
        let loopback = "[[network]]\nmode = \"loopback\"\n[[network.pin]]\nclient = \"a\"\nmatch = \"vlan=7\"";
        assert!(Config::read(loopback).expect_err("a loopback").to_string().contains("pins no flows"));
    }
}
