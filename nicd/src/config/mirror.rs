//! Whose frames are copied to a capture file from the start, as a configuration says it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use conic_port::CaptureFormat;
use serde::{Deserialize, Serialize};

use super::{ConfigError, EndConfig, NetworkConfig, refuse};

/// Bytes of frames that a file takes where nobody says.
pub const MIRROR_BYTES: u64 = 64 << 20;

/// Copies of what somebody sends and gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorConfig {
    /// Whose: a port, or each client that calls itself so, from when it attaches.
    pub end: EndConfig,
    /// The file, by its whole path, pcap or pcapng by its extension. Where one is there already, a number is put before that.
    pub file: PathBuf,
    /// Bytes of frames that a file takes; 64 MiB if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_bytes: Option<u64>,
}

impl FromStr for MirrorConfig {
    type Err = String;

    /// `END,FILE`, such as `port:0,/var/tmp/port.pcapng`.
    fn from_str(text: &str) -> Result<MirrorConfig, String> {
        let (end, file) =
            text.split_once(',').ok_or("a mirror is an end and a file, such as port:0,/tmp/port.pcapng")?;
        Ok(MirrorConfig { end: end.parse()?, file: file.into(), most_bytes: None })
    }
}

impl NetworkConfig {
    /// The mirror of a port, or of clients of a name.
    pub fn mirror_of(&self, end: &EndConfig) -> Option<&MirrorConfig> {
        self.mirrors.iter().find(|mirror| mirror.end == *end)
    }

    pub(super) fn check_mirrors(&self) -> Result<(), ConfigError> {
        let name = &self.name;
        let mut ends = BTreeSet::new();
        for MirrorConfig { end, file, most_bytes } in &self.mirrors {
            self.check_end(end)?;
            if !ends.insert(end) {
                return refuse(format!("network \"{name}\": {end} has two mirrors: it can have one"));
            }
            let shown = file.display();
            if !file.is_absolute() {
                return refuse(format!(
                    "network \"{name}\": a mirror's file is named by its whole path, and not {shown}"
                ));
            }
            if CaptureFormat::of_path(file).is_none() {
                return refuse(format!("network \"{name}\": {shown}: a capture file ends in .pcap or .pcapng"));
            }
            if *most_bytes == Some(0) {
                return refuse(format!("network \"{name}\": most_bytes of a mirror is at least 1"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const TEXT: &str = r#"
        [[network]]
        [[network.port]]
        spec = "tap:a"
        [[network.mirror]]
        end = "port:0"
        file = "/var/tmp/port.pcapng"
        [[network.mirror]]
        end = "client:web"
        file = "/var/tmp/web.pcap"
        most_bytes = 1000
    "#;

    #[test]
    fn mirrors_are_read_and_written_and_flags_say_the_same() {
        let config = Config::read(TEXT).expect("a sound file");
        let network = &config.networks[0];
        assert_eq!("port:0,/var/tmp/port.pcapng".parse().as_ref(), Ok(&network.mirrors[0]));
        assert_eq!(network.mirror_of(&EndConfig::Client("web".to_owned())), Some(&network.mirrors[1]));
        assert_eq!(network.mirror_of(&EndConfig::Client("db".to_owned())), None);
        let written = toml::to_string(&config).expect("it can be written");
        assert_eq!(Config::read(&written), Ok(config));
    }

    #[test]
    fn what_cannot_be_mirrored_is_refused() {
        let changes = [
            ("end = \"port:0\"", "end = \"port:1\"", "no port:1: its 1 ports"),
            ("end = \"port:0\"", "end = \"client:web\"", "two mirrors"),
            ("end = \"port:0\"", "end = \"station:a\"", "client:NAME or port:NUMBER"),
            ("/var/tmp/web.pcap", "web.pcap", "whole path"),
            ("web.pcap", "web.txt", ".pcap or .pcapng"),
            ("most_bytes = 1000", "most_bytes = 0", "at least 1"),
            ("most_bytes", "bytes", "unknown field `bytes`"),
        ];
        crate::config::check_refusals(TEXT, &changes);
        assert!("port:0".parse::<MirrorConfig>().expect_err("no file").contains("an end and a file"));
    }
}
