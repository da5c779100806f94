//! Which flows go to which client, and to which of its queues, whatever the bridge has learned.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use conic_port::offload::{Headers, TCP, UDP};
use serde::{Deserialize, Serialize};

use super::header::Header;

/// The protocol number of SCTP.
const SCTP: u8 = 132;

/// What of a pattern is named how.
const KEYS: &str = "destination-mac, source-mac, vlan, protocol, source, destination, source-port, destination-port";

/// Protocols with a name.
const PROTOCOLS: [(&str, u8); 5] = [("icmp", 1), ("tcp", TCP), ("udp", UDP), ("icmp6", 58), ("sctp", SCTP)];

/// An address of a station.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Mac, String> {
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2);
            *byte = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or_else(|| wrong_mac(text))?;
        }
        if parts.next().is_some() { Err(wrong_mac(text)) } else { Ok(Mac(mac)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Mac, String> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

fn wrong_mac(text: &str) -> String {
    format!("an address of a station is six pairs of digits such as 02:00:00:00:00:01, and not {text:?}")
}

/// Addresses of the internet protocol that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub(super) address: IpAddr,
    pub(super) bits: u8,
}

#[cfg(test)]
impl Prefix {
    /// Whether an address, as it stands in a packet, is among them.
    fn contains(&self, address: &[u8]) -> bool {
        let alike = |own: &[u8]| {
            let (whole, rest) = (usize::from(self.bits / 8), self.bits % 8);
            let mask = !(0xff_u8.checked_shr(rest.into()).unwrap_or(0));
            own.len() == address.len()
                && own[..whole] == address[..whole]
                && (rest == 0 || (own[whole] ^ address[whole]) & mask == 0)
        };
        match self.address {
            IpAddr::V4(own) => alike(&own.octets()),
            IpAddr::V6(own) => alike(&own.octets()),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Prefix, String> {
        let wrong = || format!("an address is written as 10.0.0.2, 10.0.0.0/24 or fd00::/8, and not {text:?}");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits <= most { Ok(Prefix { address, bits }) } else { Err(wrong()) }
    }
}

/// What a frame must be like, as `KEY=VALUE`, separated by commas: `protocol=tcp,destination=10.0.0.2,destination-port=80`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    /// Whom it is for.
    pub destination_mac: Option<Mac>,
    /// Whom it is from.
    pub source_mac: Option<Mac>,
    /// The VLAN that it belongs to; 0: none.
    pub vlan: Option<u16>,
    /// What its IP packet carries, by number.
    pub protocol: Option<u8>,
    /// Where its IP packet comes from.
    pub source: Option<Prefix>,
    /// Where its IP packet goes to.
    pub destination: Option<Prefix>,
    /// The port that its TCP, UDP or SCTP packet comes from. The fragments of a packet have none.
    pub source_port: Option<u16>,
    /// The port that it goes to.
    pub destination_port: Option<u16>,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let mut pattern = Pattern::default();
        for part in text.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                format!("a pattern is KEY=VALUE, separated by commas, and not {text:?}; there are {KEYS}")
            })?;
            let number = |value: &str| {
                value.parse::<u16>().map_err(|_| format!("{key} is a number from 0 to 65535, and not {value:?}"))
            };
            match key {
                "destination-mac" => set(&mut pattern.destination_mac, key, value.parse()?)?,
                "source-mac" => set(&mut pattern.source_mac, key, value.parse()?)?,
                "vlan" => match number(value)? {
                    vlan @ 0..=4094 => set(&mut pattern.vlan, key, vlan)?,
                    vlan => return Err(format!("a VLAN is 1 to 4094, or 0 for none, and not {vlan}")),
                },
                "protocol" => set(&mut pattern.protocol, key, protocol(value)?)?,
                "source" => set(&mut pattern.source, key, value.parse()?)?,
                "destination" => set(&mut pattern.destination, key, value.parse()?)?,
                "source-port" => set(&mut pattern.source_port, key, number(value)?)?,
                "destination-port" => set(&mut pattern.destination_port, key, number(value)?)?,
                _ => return Err(format!("a pattern has no {key:?}; there are {KEYS}")),
            }
        }
        Ok(pattern)
    }
}

fn set<T>(field: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("a pattern has one {key} at most")),
    }
}

fn protocol(text: &str) -> Result<u8, String> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text).map(|&(_, number)| number);
    named.or_else(|| text.parse().ok()).ok_or_else(|| {
        let names: Vec<&str> = PROTOCOLS.iter().map(|&(name, _)| name).collect();
        format!("a protocol is {} or a number from 0 to 255, and not {text:?}", names.join(", "))
    })
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.map(|number| {
            let named = PROTOCOLS.iter().find(|(_, own)| *own == number);
            named.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
        });
        let parts = [
            ("destination-mac", self.destination_mac.map(|mac| mac.to_string())),
            ("source-mac", self.source_mac.map(|mac| mac.to_string())),
            ("vlan", self.vlan.map(|vlan| vlan.to_string())),
            ("protocol", protocol),
            ("source", self.source.map(|prefix| prefix.to_string())),
            ("destination", self.destination.map(|prefix| prefix.to_string())),
            ("source-port", self.source_port.map(|port| port.to_string())),
            ("destination-port", self.destination_port.map(|port| port.to_string())),
        ];
        let parts = parts.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

/// A flow that goes to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Which frames.
    #[serde(rename = "match")]
    pub pattern: Pattern,
    /// The queue that they go to; spread over all if it is not there.
    pub queue: Option<u32>,
}

impl Pin {
    /// The same for a client that is a member of a VLAN, where it is of one: what belongs to others is not for it, and goes where it is
    /// addressed to. None if it names another.
    pub(super) fn within(&self, vlan: Option<u16>) -> Option<Pin> {
        let named = self.pattern.vlan;
        let is_within = vlan.is_none() || named.is_none() || named == vlan;
        let pattern = Pattern { vlan: vlan.or(named), ..self.pattern.clone() };
        is_within.then_some(Pin { pattern, queue: self.queue })
    }
}

/// What a frame is of, for patterns.
pub(super) struct Flow<'frame> {
    header: &'frame Header,
    vlan: u16,
    headers: Option<Headers>,
}

impl<'frame> Flow<'frame> {
    pub fn of(header: &'frame Header, vlan: u16) -> Flow<'frame> {
        Flow { header, vlan, headers: Headers::of_beginning(header.bytes(), header.whole()) }
    }

    pub fn header(&self) -> &'frame Header {
        self.header
    }

    pub fn vlan(&self) -> u16 {
        self.vlan
    }

    /// Where its headers lie, if it carries an IP packet.
    pub fn headers(&self) -> Option<Headers> {
        self.headers
    }

    /// The ports of its TCP, UDP or SCTP packet, source first. The fragments of a packet have none.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let headers =
            self.headers.filter(|headers| !headers.fragment && [TCP, UDP, SCTP].contains(&headers.protocol))?;
        let [a, b, c, d] = *self.header.bytes().get(headers.transport..headers.transport + 4)?.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Whether it is like a pattern: what the look-up by fields is compared with.
    #[cfg(test)]
    pub fn fits(&self, pattern: &Pattern) -> bool {
        let is = |wanted: Option<Mac>, own: [u8; 6]| wanted.is_none_or(|wanted| wanted.0 == own);
        if !is(pattern.destination_mac, self.header.destination())
            || !is(pattern.source_mac, self.header.source())
            || pattern.vlan.is_some_and(|wanted| wanted != self.vlan)
        {
            return false;
        }
        let protocol = self.headers.map(|headers| headers.protocol);
        if pattern.protocol.is_some() && pattern.protocol != protocol {
            return false;
        }
        if pattern.source.is_some() || pattern.destination.is_some() {
            let Some(headers) = self.headers else { return false };
            let addresses = headers.addresses(self.header.bytes());
            let (source, destination) = addresses.split_at(addresses.len() / 2);
            let within = |prefix: Option<Prefix>, address| prefix.is_none_or(|prefix| prefix.contains(address));
            if !within(pattern.source, source) || !within(pattern.destination, destination) {
                return false;
            }
        }
        if pattern.source_port.is_none() && pattern.destination_port.is_none() {
            return true;
        }
        self.ports().is_some_and(|(source, destination)| {
            pattern.source_port.is_none_or(|wanted| wanted == source)
                && pattern.destination_port.is_none_or(|wanted| wanted == destination)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP from 10.0.0.1, port 1000, to 10.0.0.2, port 80.
    fn frame() -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6, 0, 0];
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, 80]);
        frame.resize(60, 0);
        frame
    }

    fn fits(frame: &[u8], vlan: u16, text: &str) -> bool {
        Flow::of(&Header::of_frame(frame), vlan).fits(&text.parse().expect(text))
    }

    #[test]
    fn every_part_of_a_pattern_must_fit() {
        let whole = "destination-mac=02:00:00:00:00:02,source-mac=02:00:00:00:00:01,vlan=0,protocol=tcp,source=10.0.0.0/30,\
                     destination=10.0.0.2/32,source-port=1000,destination-port=80";
        let frame = frame();
        assert!(fits(&frame, 0, whole));
        for (right, wrong) in [
            ("destination-mac=02:00:00:00:00:02", "destination-mac=02:00:00:00:00:03"),
            ("source-mac=02:00:00:00:00:01", "source-mac=02:00:00:00:00:02"),
            ("vlan=0", "vlan=7"),
            ("protocol=tcp", "protocol=udp"),
            ("source=10.0.0.0/30", "source=10.0.0.4/30"),
            ("source=10.0.0.0/30", "source=fd00::/8"),
            ("destination=10.0.0.2/32", "destination=10.0.0.3"),
            ("source-port=1000", "source-port=1001"),
            ("destination-port=80", "destination-port=81"),
        ] {
            assert!(fits(&frame, 0, right), "{right}");
            assert!(!fits(&frame, 0, &whole.replace(right, wrong)), "{wrong}");
        }
        assert!(fits(&frame, 7, "vlan=7") && fits(&frame, 0, "source=0.0.0.0/0"));
    }

    #[test]
    fn what_has_no_ports_fits_no_pattern_with_ports() {
        let mut fragment = frame();
        fragment[20] = 0x20;
        assert!(!fits(&fragment, 0, "destination-port=80") && fits(&fragment, 0, "destination=10.0.0.2"));
        let mut other = frame();
        other[12..14].copy_from_slice(&[0x88, 0xb5]);
        assert!(!fits(&other, 0, "destination=10.0.0.2") && !fits(&other, 0, "protocol=tcp"));
        for length in 14..60 {
            // However short it is, it is looked at without harm.
            fits(&frame()[..length], 0, "destination=10.0.0.2,destination-port=80");
        }
    }

    #[test]
    fn a_pattern_is_its_text_again_and_what_is_wrong_is_said() {
        let text = "destination-mac=02:00:00:00:00:02,vlan=7,protocol=47,source=fd00::/8,destination-port=80";
        let pattern: Pattern = text.parse().expect("a pattern");
        assert_eq!(pattern.to_string(), text);
        for (text, reason) in [
            ("", "KEY=VALUE"),
            ("port=80", "there are destination-mac"),
            ("vlan=4095", "1 to 4094"),
            ("protocol=tpc", "icmp, tcp"),
            ("source=10.0.0.0/33", "10.0.0.0/24"),
            ("source-mac=2:0:0:0:0:1", "six pairs"),
            ("destination-port=70000", "65535"),
            ("vlan=1,vlan=2", "one vlan"),
        ] {
            let error = text.parse::<Pattern>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
