//! Where the headers of a frame lie.
//!
//! Sources: IEEE 802.3, 802.1Q; RFC 791 (IPv4), RFC 8200 (IPv6 and its extension headers), RFC 9293 (TCP), RFC 768 (UDP). Routing headers:
//! RFC 2460, 4.4 (type 0), RFC 6275, 6.4 (type 2), RFC 8754, 2 (type 4).

/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_HEADER: usize = 14;
/// The first two bytes of a VLAN tag: IEEE 802.1Q and 802.1ad.
pub(crate) const VLAN_TYPES: [u16; 2] = [0x8100, 0x88a8];

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MOST_TAGS: usize = 2;
/// Extension headers that are walked over; a packet with more is taken for one without a known transport.
const MOST_EXTENSIONS: usize = 8;

/// Which internet protocol a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

/// Where the headers of an IP packet in a frame lie. Every offset is in bytes from the frame's beginning and lies in it:
/// `network < transport <= end <= frame.len()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Which internet protocol.
    pub version: Network,
    /// The first byte of the network header.
    pub network: usize,
    /// The first byte behind the network header and its extension headers.
    pub transport: usize,
    /// The first byte of the address at which the packet ends its way, which TCP and UDP sum (RFC 8200, 8.1): the destination's, or in a
    /// routing header the last one's.
    pub destination: usize,
    /// What comes at `transport`, as IANA numbers protocols; for a fragment, what its first one begins with. A routing header of which it
    /// is not known where it leads stands there itself.
    pub protocol: u8,
    /// Whether this is a fragment, whose transport header may be elsewhere and whose checksum covers more than it.
    pub fragment: bool,
    /// The end of the packet; behind it is padding.
    pub end: usize,
}

impl Headers {
    /// Reads the headers. `None` where the frame carries no IP packet, or one that does not fit its own lengths.
    pub fn of(frame: &[u8]) -> Option<Headers> {
        Headers::of_beginning(frame, frame.len())
    }

    /// Reads the headers from the beginning of a frame of `whole` bytes. `None` also where the headers do not all lie in that
    /// beginning; [`Headers::end`] may lie behind it.
    pub fn of_beginning(frame: &[u8], whole: usize) -> Option<Headers> {
        let mut at = ETHERNET_HEADER - 2;
        for _ in 0..MOST_TAGS {
            if !VLAN_TYPES.contains(&big_endian(frame, at)?) {
                break;
            }
            at += 4;
        }
        let kind = big_endian(frame, at)?;
        match kind {
            IPV4 => four(frame, at + 2, whole),
            IPV6 => six(frame, at + 2, whole),
            _ => None,
        }
    }

    /// The transport header and what it carries, without padding.
    pub fn segment<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.transport..self.end]
    }

    /// Where the transport's checksum lies, from the frame's beginning; `None` where it has none that is known here, or
    /// the packet is too short for its header.
    pub fn checksum_at(&self) -> Option<usize> {
        let (header, within) = match self.protocol {
            TCP => (20, 16),
            UDP => (8, 6),
            _ => return None,
        };
        (!self.fragment && self.transport + header <= self.end).then_some(self.transport + within)
    }

    /// Bytes of TCP's or UDP's header as it says itself; 0 for another protocol, or where the packet ends before.
    pub fn transport_length(&self, frame: &[u8]) -> usize {
        match (self.protocol, self.checksum_at()) {
            (TCP, Some(_)) => 4 * usize::from(frame[self.transport + 12] >> 4),
            (UDP, Some(_)) => 8,
            _ => 0,
        }
    }

    /// Source and destination address of its way to the next node, one behind the other: 8 or 32 bytes.
    pub fn addresses<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        match self.version {
            Network::Four => &frame[self.network + 12..self.network + 20],
            Network::Six => &frame[self.network + 8..self.network + 40],
        }
    }
}

pub(crate) fn big_endian(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

fn four(frame: &[u8], network: usize, whole: usize) -> Option<Headers> {
    const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
    let packet = frame.get(network..)?;
    let first = *packet.first()?;
    let header = 4 * usize::from(first & 0xf);
    let total = usize::from(big_endian(packet, 2)?);
    if first >> 4 != 4 || header < 20 || header > packet.len() || total < header || network + total > whole {
        return None;
    }
    Some(Headers {
        version: Network::Four,
        network,
        transport: network + header,
        destination: network + 16,
        protocol: packet[9],
        fragment: big_endian(packet, 6)? & MORE_FRAGMENTS_AND_OFFSET != 0,
        end: network + total,
    })
}

fn six(frame: &[u8], network: usize, whole: usize) -> Option<Headers> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let packet = frame.get(network..)?;
    let total = 40 + usize::from(big_endian(packet, 4)?);
    if packet[0] >> 4 != 6 || packet.len() < 40 || network + total > whole {
        return None;
    }
    let packet = &packet[..total.min(packet.len())];
    let (mut protocol, mut at, mut fragment) = (packet[6], 40, false);
    let mut destination = 24;
    for _ in 0..MOST_EXTENSIONS {
        // Where nobody is left on the way, the address in front is the last.
        if protocol == ROUTING && *packet.get(at + 3)? > 0 {
            match last_on_the_way(packet.get(at..)?) {
                Some(within) => destination = at + within,
                None => break,
            }
        }
        let length = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => 8 + 8 * usize::from(*packet.get(at + 1)?),
            // A fragment header that says "all of it" is no fragment (RFC 6946).
            FRAGMENT => {
                fragment |= big_endian(packet, at + 2)? & 0xfff9 != 0;
                8
            }
            _ => break,
        };
        if at + length > total {
            return None;
        }
        protocol = *packet.get(at)?;
        at += length;
        if fragment {
            break;
        }
    }
    let (transport, destination) = (network + at, network + destination);
    Some(Headers { version: Network::Six, network, transport, destination, protocol, fragment, end: network + total })
}

/// Where in a routing header the address lies at which the way ends; `None` where its type is not known, or it is not all there.
fn last_on_the_way(header: &[u8]) -> Option<usize> {
    const ADDRESS: usize = 16;
    const FIRST: usize = 8;
    let addresses = usize::from(*header.get(1)?) / 2;
    let number = match *header.get(2)? {
        0 => addresses.checked_sub(1)?,
        // The home address; a list of segments stands in it the wrong way round.
        2 | 4 if addresses > 0 => 0,
        _ => return None,
    };
    let at = FIRST + ADDRESS * number;
    (at + ADDRESS <= header.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next, 64]);
        frame.extend_from_slice(&[1; 16]);
        frame.extend_from_slice(&[2; 16]);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn extension_headers_are_walked_over() {
        let payload = [&[43, 0, 0, 0, 0, 0, 0, 0][..], &[17, 1], &[0; 14], &[0, 7, 0, 7, 0, 8, 0, 0]].concat();
        let headers = Headers::of(&ipv6(0, &payload)).expect("a packet");
        assert_eq!((headers.protocol, headers.transport, headers.end), (UDP, 54 + 24, 54 + 32));
        assert_eq!(headers.checksum_at(), Some(54 + 24 + 6));
    }

    #[test]
    fn a_fragment_has_no_checksum_of_its_own_unless_it_is_the_whole() {
        let whole = [&[17, 0, 0, 0, 0, 0, 0, 1][..], &[0; 8]].concat();
        assert!(Headers::of(&ipv6(44, &whole)).expect("a packet").checksum_at().is_some());
        for offset in [[0, 1], [0, 8]] {
            let part = [&[17, 0][..], &offset, &[0, 0, 0, 1], &[0; 8]].concat();
            let headers = Headers::of(&ipv6(44, &part)).expect("a packet");
            assert!(headers.fragment && headers.checksum_at().is_none());
        }
    }

    #[test]
    fn a_packet_is_no_shorter_than_its_header_and_no_longer_than_its_frame() {
        let ipv4 = |words: u8, total: u16| {
            let mut frame = [0; 60];
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[14] = 0x40 | words;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            Headers::of(&frame).map(|headers| (headers.transport, headers.end))
        };
        assert_eq!([ipv4(5, 20), ipv4(5, 46), ipv4(6, 24)], [Some((34, 34)), Some((34, 60)), Some((38, 38))]);
        for (words, total) in [(4, 20), (5, 0), (5, 19), (6, 23), (5, 47), (12, 46)] {
            assert_eq!(ipv4(words, total), None, "{words} words of {total} bytes");
        }
    }

    #[test]
    fn the_first_the_middle_and_the_last_piece_are_fragments() {
        let mut frame = [0; 60];
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, UDP]);
        let [not_to_be_cut, first, middle, last] = [0x4000u16, 0x2000, 0x2001, 0x0001];
        for (field, fragment) in [(0, false), (not_to_be_cut, false), (first, true), (middle, true), (last, true)] {
            frame[20..22].copy_from_slice(&field.to_be_bytes());
            let headers = Headers::of(&frame).expect("a packet");
            assert_eq!((headers.fragment, headers.checksum_at().is_none()), (fragment, fragment), "{field:04x}");
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused_and_every_length_is_survived() {
        let mut frame = ipv6(UDP, &[0; 8]);
        frame[19] = 9;
        assert_eq!(Headers::of(&frame), None);
        // An extension header that is longer than the packet, with nothing to be read behind it.
        assert_eq!(Headers::of(&ipv6(0, &[UDP, 1, 0, 0, 0, 0, 0, 0])), None);
        let whole = ipv6(0, &[0, 0xff, 0, 0, 0, 0, 0, 0]);
        for length in 0..=whole.len() {
            assert_eq!(Headers::of(&whole[..length]), None, "{length}");
        }
    }
}
