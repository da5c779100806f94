//! Who has which address, and who gets frames for addresses that nobody has.

use conic_control::{Message, Reason, Refused};
use conic_native::clock;

use super::Daemon;
use crate::connection::{Step, mac_text, refused};
use crate::event::Event;

impl Daemon {
    /// A client's address: what it wants, if it may have it and nobody else has it; the first of those that it is bound to; or one
    /// made of its session's number.
    pub(super) fn mac_for(
        &self,
        network: usize,
        (name, user): (&str, u32),
        wanted: Option<[u8; 6]>,
    ) -> Result<[u8; 6], Refused> {
        if let Some(mac) = wanted {
            return self.check_mac(network, (name, user), mac).map(|()| mac);
        }
        let config = &self.networks[network].config;
        let own = config.addresses_of(name, user);
        if !own.is_empty() {
            let free = own.iter().find(|mac| !self.has_mac(network, mac.0));
            let none = || refused(Reason::Mac, "each of its addresses is another client's");
            return free.map(|mac| mac.0).ok_or_else(none);
        }
        let made = (self.next_session..).map(|number| {
            let [.., a, b, c, d] = number.to_be_bytes();
            // Locally administered, of one station.
            [0x02, 0xc0, a, b, c, d]
        });
        let is_free = |mac: &[u8; 6]| !self.has_mac(network, *mac) && config.may_have(name, user, *mac);
        Ok(made.into_iter().find(is_free).unwrap_or([0x02, 0xc0, 0, 0, 0, 0]))
    }

    /// Gives a client another address, if nobody else has that, and says whether it has it.
    pub(super) fn change_address(&mut self, number: u64, mac: [u8; 6]) {
        let Some(connection) = self.connections.get(&number) else { return };
        let Step::Attached(session) = &connection.step else { return };
        let (network, id, before) = (session.network, session.session, session.mac);
        let user = connection.peer.user;
        let who = (session.name.as_str(), user);
        let granted = mac == before || self.check_mac(network, who, mac).is_ok();
        let word = Message::Address { mac, granted };
        if !granted || mac == before {
            return self.agree(number, &word);
        }
        self.networks[network].set_mac(id, mac, self.agreement(number, word));
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let Step::Attached(session) = &mut connection.step {
            // It is nobody else's from here on, and so is what becomes of the other one: each thread does one after the other.
            session.mac = mac;
            let (name, mac, before) = (session.name.to_string(), mac_text(mac), mac_text(before));
            self.journal.say_of(Some(user), &Event::Readdressed { session: id, name, mac, before }, clock::now());
        }
        self.wait_for_threads(number);
    }

    /// Has a client get frames for stations that nobody is known to have, if it may, or no longer; and says whether it is so.
    pub(super) fn change_promiscuous(&mut self, number: u64, on: bool) {
        let Some(connection) = self.connections.get(&number) else { return };
        let Step::Attached(session) = &connection.step else { return };
        let (network, id, user) = (session.network, session.session, connection.peer.user);
        let granted = !on || self.networks[network].config.may_be_promiscuous(session.name.as_str(), user);
        let word = Message::Promiscuous { on, granted };
        if !granted {
            return self.agree(number, &word);
        }
        self.networks[network].set_promiscuous(id, on, self.agreement(number, word));
        let event = Event::Promiscuous { session: id, name: session.name.to_string(), on };
        self.journal.say_of(Some(user), &event, clock::now());
        self.wait_for_threads(number);
    }

    /// Whether a client may have an address: one of a single station, not kept from it, and nobody else's.
    fn check_mac(&self, network: usize, (name, user): (&str, u32), mac: [u8; 6]) -> Result<(), Refused> {
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return Err(refused(Reason::Mac, format!("{} is no address of one station", mac_text(mac))));
        }
        if !self.networks[network].config.may_have(name, user, mac) {
            return Err(refused(Reason::Mac, format!("{} is kept from this client by a rule", mac_text(mac))));
        }
        if self.has_mac(network, mac) {
            return Err(refused(Reason::Mac, format!("{} is another client's", mac_text(mac))));
        }
        Ok(())
    }

    /// Whether a client of a network has an address.
    fn has_mac(&self, network: usize, mac: [u8; 6]) -> bool {
        self.connections.values().any(|one| match &one.step {
            Step::Attached(session) => session.network == network && session.mac == mac,
            Step::Entering(one) => one.session.network == network && one.session.mac == mac,
            Step::Making(making) => making.network == network && making.mac == mac,
            _ => false,
        })
    }
}
