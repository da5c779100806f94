//! Which client may have which address.

use super::{ClientConfig, ConfigError, NetworkConfig, refuse};
use crate::switch::Mac;

impl NetworkConfig {
    /// The addresses that a client which calls itself `name` is bound to; if there are none, it may have any that is kept for nobody.
    pub fn addresses_of(&self, name: &str, user: u32) -> &[Mac] {
        self.rule_of(name, user).map_or(&[], |rule| &rule.macs)
    }

    /// Whether such a client may have an address: one of its own; or, where it is bound to none, one that neither the network nor
    /// another rule keeps.
    pub fn may_have(&self, name: &str, user: u32, mac: [u8; 6]) -> bool {
        let (mac, own) = (Mac(mac), self.addresses_of(name, user));
        if !own.is_empty() {
            return own.contains(&mac);
        }
        !self.kept_macs.contains(&mac) && !self.clients.iter().any(|rule| rule.macs.contains(&mac))
    }

    /// The first rule that fits such a client.
    pub(super) fn rule_of(&self, name: &str, user: u32) -> Option<&ClientConfig> {
        self.clients.iter().find(|rule| rule.fits(name, user))
    }

    pub(super) fn check_addresses(&self) -> Result<(), ConfigError> {
        let named = self.clients.iter().flat_map(|rule| &rule.macs).chain(&self.kept_macs);
        match named.copied().find(|&Mac(mac)| mac[0] & 1 == 1 || mac == [0; 6]) {
            Some(mac) => refuse(format!("network \"{}\": {mac} is no address of one station", self.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn an_address_that_a_rule_names_is_for_its_clients_and_one_that_is_kept_for_nobody() {
        let text = r#"
            [[network]]
            kept_macs = ["02:00:00:00:00:fe"]
            [[network.client]]
            user = 1001
            macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"]
        "#;
        let config = Config::read(text).expect("a sound file");
        let network = &config.networks[0];
        let may = |user, last| network.may_have("any", user, [2, 0, 0, 0, 0, last]);
        assert_eq!([1, 2, 3, 0xfe].map(|last| may(1001, last)), [true, true, false, false]);
        assert_eq!([1, 2, 3, 0xfe].map(|last| may(1002, last)), [false, false, true, false]);
        assert_eq!((network.addresses_of("any", 1001).len(), network.addresses_of("any", 1002).len()), (2, 0));
        let written = toml::to_string(&config).expect("it can be written");
        assert_eq!(Config::read(&written).expect("and read again"), config);
    }

    #[test]
    fn what_is_no_address_of_a_station_is_refused() {
        for (text, why) in [
            ("[[network]]\nkept_macs = [\"02:00:00\"]", "six pairs of digits"),
            ("[[network]]\nkept_macs = [\"03:00:00:00:00:01\"]", "no address of one station"),
            ("[[network]]\n[[network.client]]\nmacs = [\"00:00:00:00:00:00\"]", "no address of one station"),
        ] {
            let said = Config::read(text).expect_err(text).to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
