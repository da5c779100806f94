//! Pinned flows by what their patterns name: a look-up for each set of fields that some pattern names, however many pins there are.
//!
//! A pattern is a mask over the fields of a frame and a value under it. Pins with one mask are one class, and lie in a map by their
//! values. Where several pins fit, the one that comes first has the flow: by when its client came, and by the order of each client's pins.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::header::Header;
use super::pin::{Flow, Mac, Pattern, Pin, Prefix};
use super::table::Place;

/// What patterns look at: destination and VLAN, source and protocol, ports, source address, destination address.
type Fields = [u64; 7];

/// What a frame must have for some fields to mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    /// An IP packet.
    packet: bool,
    /// Addresses of so many bytes.
    address_bytes: Option<usize>,
    ports: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pinned {
    order: usize,
    place: Place,
    queue: Option<u32>,
}

#[derive(Debug)]
struct Class {
    mask: Fields,
    needs: Needs,
    /// For each value the pins that have it, in order.
    pins: BTreeMap<Fields, Vec<Pinned>>,
}

/// The pins of a switch.
#[derive(Debug, Default)]
pub(super) struct PinnedFlows {
    classes: Vec<Class>,
}

impl PinnedFlows {
    /// The pins of clients, by their places, in the order in which they are to be looked at.
    pub fn of<'pin>(pins: impl Iterator<Item = (Place, &'pin Pin)>) -> PinnedFlows {
        let mut classes: Vec<Class> = Vec::new();
        for (order, (place, pin)) in pins.enumerate() {
            let Some((mask, value, needs)) = masked(&pin.pattern) else { continue };
            let pinned = Pinned { order, place, queue: pin.queue };
            let class = match classes.iter().position(|class| (class.mask, class.needs) == (mask, needs)) {
                Some(index) => &mut classes[index],
                None => {
                    classes.push(Class { mask, needs, pins: BTreeMap::new() });
                    let last = classes.len() - 1;
                    &mut classes[last]
                }
            };
            class.pins.entry(value).or_default().push(pinned);
        }
        PinnedFlows { classes }
    }

    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The client that is to get a frame's flow, and the queue if that is said too; never the client that it comes from.
    pub fn find(&self, header: &Header, vlan: u16, from: Place) -> Option<(Place, Option<u32>)> {
        let (fields, has) = fields(&Flow::of(header, vlan));
        let fitting = self.classes.iter().filter(|class| class.needs.are_met(has)).filter_map(|class| {
            let mut value = fields;
            value.iter_mut().zip(class.mask).for_each(|(word, mask)| *word &= mask);
            class.pins.get(&value)?.iter().find(|pinned| pinned.place != from)
        });
        fitting.min_by_key(|pinned| pinned.order).map(|pinned| (pinned.place, pinned.queue))
    }
}

impl Needs {
    fn are_met(self, has: Needs) -> bool {
        (has.packet || !self.packet)
            && (has.ports || !self.ports)
            && (self.address_bytes.is_none() || self.address_bytes == has.address_bytes)
    }
}

/// A frame's fields, zero where it has none, and what it has.
fn fields(flow: &Flow<'_>) -> (Fields, Needs) {
    let header = flow.header();
    let mut fields = [station(header.destination()) | u64::from(flow.vlan()), station(header.source()), 0, 0, 0, 0, 0];
    let mut has = Needs::default();
    if let Some(headers) = flow.headers() {
        let addresses = headers.addresses(header.bytes());
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        has = Needs { packet: true, address_bytes: Some(source.len()), ports: false };
        fields[1] |= u64::from(headers.protocol);
        fields[3..5].copy_from_slice(&address(source));
        fields[5..7].copy_from_slice(&address(destination));
    }
    if let Some((source, destination)) = flow.ports() {
        has.ports = true;
        fields[2] = ports(source, destination);
    }
    (fields, has)
}

/// A pattern as a mask, a value, and what it needs; none if no frame fits it.
fn masked(pattern: &Pattern) -> Option<(Fields, Fields, Needs)> {
    let (mut mask, mut value): (Fields, Fields) = ([0; 7], [0; 7]);
    let mut set = |word: usize, bits: u64, of: u64| {
        mask[word] |= bits;
        value[word] |= of & bits;
    };
    let mut needs = Needs { packet: pattern.protocol.is_some(), ..Needs::default() };
    for (word, mac) in [(0, pattern.destination_mac), (1, pattern.source_mac)] {
        if let Some(Mac(mac)) = mac {
            set(word, !0 << STATION, station(mac));
        }
    }
    if let Some(vlan) = pattern.vlan {
        set(0, 0xffff, vlan.into());
    }
    if let Some(protocol) = pattern.protocol {
        set(1, 0xff, protocol.into());
    }
    for (port, place) in [(pattern.source_port, ports(0xffff, 0)), (pattern.destination_port, ports(0, 0xffff))] {
        if let Some(port) = port {
            needs.ports = true;
            set(2, place, ports(port, port));
        }
    }
    for (word, prefix) in [(3, pattern.source), (5, pattern.destination)] {
        let Some(Prefix { address: own, bits }) = prefix else { continue };
        let bytes = match own {
            IpAddr::V4(own) => own.octets().to_vec(),
            IpAddr::V6(own) => own.octets().to_vec(),
        };
        if needs.address_bytes.replace(bytes.len()).is_some_and(|other| other != bytes.len()) {
            return None;
        }
        // The highest `bits` of 128.
        let cover = !u128::MAX.checked_shr(bits.into()).unwrap_or(0);
        let [high, low] = address(&bytes);
        set(word, (cover >> 64) as u64, high);
        set(word + 1, cover as u64, low);
    }
    Some((mask, value, needs))
}

/// Bits below a station's address.
const STATION: u32 = 16;

fn station(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a, b, c, d, e, f, 0, 0])
}

fn ports(source: u16, destination: u16) -> u64 {
    u64::from(source) << 16 | u64::from(destination)
}

/// An address of 4 or 16 bytes at the beginning of 16.
fn address(bytes: &[u8]) -> [u64; 2] {
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    match bytes.try_into() {
        Ok(four) => [u64::from(u32::from_be_bytes(four)) << 32, 0],
        Err(_) => [word(0).unwrap_or(0), word(8).unwrap_or(0)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of a few values of each field, so that patterns and frames often agree.
    fn pattern(random: &mut fastrand::Rng) -> Pattern {
        let maybe = |random: &mut fastrand::Rng| random.u8(..3) == 0;
        let mac = |random: &mut fastrand::Rng| Mac([2, 0, 0, 0, 0, random.u8(..3)]);
        let prefix = |random: &mut fastrand::Rng| {
            let last = random.u8(..4);
            let text = match random.u8(..5) {
                0 => "0.0.0.0/0".to_owned(),
                1 => format!("10.0.0.{last}/{}", random.u8(24..=32)),
                2 => format!("fd00::{last}/{}", random.u8(0..=128)),
                _ => format!("10.0.0.{last}"),
            };
            text.parse().expect("a prefix")
        };
        Pattern {
            destination_mac: maybe(random).then(|| mac(random)),
            source_mac: maybe(random).then(|| mac(random)),
            vlan: maybe(random).then(|| random.u16(..2)),
            protocol: maybe(random).then(|| *random.choice(&[1, 6, 17]).expect("some")),
            source: maybe(random).then(|| prefix(random)),
            destination: maybe(random).then(|| prefix(random)),
            source_port: maybe(random).then(|| random.u16(..3)),
            destination_port: maybe(random).then(|| random.u16(..3)),
        }
    }

    fn frame(random: &mut fastrand::Rng) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, random.u8(..3), 2, 0, 0, 0, 0, random.u8(..3)];
        let protocol = *random.choice(&[1, 6, 17]).expect("some");
        let ports = [0, random.u8(..3), 0, random.u8(..3)];
        match random.u8(..4) {
            0 => frame.extend([0x88, 0xb5]),
            1 => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
                for _ in 0..2 {
                    frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, random.u8(..4)]);
                }
                frame.extend(ports);
            }
            _ => {
                let fragment = if random.u8(..4) == 0 { 0x20 } else { 0 };
                frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, fragment, 0, 64, protocol, 0, 0]);
                frame.extend([10, 0, 0, random.u8(..4), 10, 0, 0, random.u8(..4)]);
                frame.extend(ports);
            }
        }
        frame.resize(80, 0);
        frame
    }

    #[test]
    fn what_is_found_is_what_a_look_at_each_pin_in_order_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut found = 0;
        for _ in 0..400 {
            let pins: Vec<(Place, Pin)> = (0..random.u32(1..40))
                .map(|number| (Place::Client(number / 4), Pin { pattern: pattern(&mut random), queue: Some(number) }))
                .collect();
            let flows = PinnedFlows::of(pins.iter().map(|(place, pin)| (*place, pin)));
            for _ in 0..50 {
                let (header, vlan) = (Header::of_frame(&frame(&mut random)), random.u16(..2));
                let from = if random.bool() { Place::Client(random.u32(..10)) } else { Place::Port(0) };
                let flow = Flow::of(&header, vlan);
                let fitting = |(place, pin): &&(Place, Pin)| *place != from && flow.fits(&pin.pattern);
                let expected = pins.iter().find(fitting).map(|(place, pin)| (*place, pin.queue));
                assert_eq!(flows.find(&header, vlan, from), expected, "{pins:?}");
                found += u32::from(expected.is_some());
            }
        }
        assert!((2_000..18_000).contains(&found), "{found} of 20,000 frames fit a pin");
    }

    #[test]
    fn pins_that_name_the_same_fields_are_one_look_up() {
        let pins: Vec<Pin> = (0..1000)
            .map(|port| Pin { pattern: format!("protocol=tcp,source-port={port}").parse().expect("one"), queue: None })
            .collect();
        let flows = PinnedFlows::of(pins.iter().map(|pin| (Place::Client(0), pin)));
        assert_eq!((flows.classes.len(), flows.classes[0].pins.len()), (1, 1000));
    }
}
