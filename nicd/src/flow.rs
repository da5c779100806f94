//! Which queue a received frame goes to.

/// The multiplier of the mix: 2^64 divided by the golden ratio, made odd.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

const VLAN_TYPES: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// TCP, UDP and SCTP: the protocols whose header begins with two ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// A hash of the flow that a frame belongs to: the frames of one flow have one hash.
///
/// | frame | what is hashed |
/// |---|---|
/// | IPv4 or IPv6 with TCP, UDP or SCTP, not a fragment | addresses, protocol, ports |
/// | other IPv4 or IPv6, and every fragment | addresses, protocol |
/// | anything else, and what is too short for what it claims | both MAC addresses, Ethernet type |
///
/// Up to two VLAN tags are passed over. Where only some packets of a flow are fragments, those have another hash than the
/// rest (a NIC's receive-side scaling has the same gap). Not keyed: whoever chooses the frames can choose the queue.
pub fn flow_hash(frame: &[u8]) -> u64 {
    let (kind, packet) = network_layer(frame);
    let hashed = match kind {
        IPV4 => ipv4(packet),
        IPV6 => ipv6(packet),
        _ => None,
    };
    hashed.unwrap_or_else(|| mix(bytes(u64::from(kind), frame.get(..12).unwrap_or(frame))))
}

/// The type of what a frame carries, and that itself.
fn network_layer(frame: &[u8]) -> (u16, &[u8]) {
    let mut at = 12;
    for _ in 0..2 {
        match big_endian(frame, at) {
            Some(kind) if VLAN_TYPES.contains(&kind) => at += 4,
            _ => break,
        }
    }
    (big_endian(frame, at).unwrap_or(0), frame.get(at + 2..).unwrap_or(&[]))
}

fn ipv4(packet: &[u8]) -> Option<u64> {
    const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
    let protocol = *packet.get(9)?;
    let hash = bytes(u64::from(protocol), packet.get(12..20)?);
    let is_fragment = big_endian(packet, 6)? & MORE_FRAGMENTS_AND_OFFSET != 0;
    let header = 4 * usize::from(packet[0] & 0xf);
    with_ports(hash, protocol, if is_fragment { None } else { packet.get(header..header + 4) })
}

fn ipv6(packet: &[u8]) -> Option<u64> {
    // A fragment's next header is the fragment header, so the ports of the first one are not looked at either.
    let protocol = *packet.get(6)?;
    let hash = bytes(u64::from(protocol), packet.get(8..40)?);
    with_ports(hash, protocol, packet.get(40..44))
}

fn with_ports(hash: u64, protocol: u8, ports: Option<&[u8]>) -> Option<u64> {
    Some(mix(match ports {
        Some(ports) if WITH_PORTS.contains(&protocol) => bytes(hash, ports),
        _ => hash,
    }))
}

fn big_endian(from: &[u8], at: usize) -> Option<u16> {
    let pair = from.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

fn bytes(start: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(4).fold(start, |hash, chunk| {
        let word = chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        (hash ^ word).wrapping_mul(MIX).rotate_left(29)
    })
}

/// Spreads what the last multiplication left in the high bits.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 32).wrapping_mul(MIX);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 frame of UDP; `fragment` is the field with the flags and the offset.
    fn udp(tags: &[u16], source: [u8; 4], ports: [u16; 2], fragment: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in tags {
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(&[0, 7]);
        }
        frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0]);
        frame.extend_from_slice(&fragment.to_be_bytes());
        frame.extend_from_slice(&[64, 17, 0, 0]);
        frame.extend_from_slice(&source);
        frame.extend_from_slice(&[10, 0, 0, 2]);
        ports.iter().for_each(|port| frame.extend_from_slice(&port.to_be_bytes()));
        frame.resize(60 + 4 * tags.len(), 0);
        frame
    }

    #[test]
    fn a_flow_has_one_hash_whatever_else_its_frames_say() {
        let hash = flow_hash(&udp(&[], [10, 0, 0, 1], [1000, 7], 0));
        for tags in [vec![], vec![0x8100], vec![0x88a8, 0x8100]] {
            let mut frame = udp(&tags, [10, 0, 0, 1], [1000, 7], 0x4000);
            frame.resize(1500, 0xaa);
            frame[0] = 6;
            assert_eq!(flow_hash(&frame), hash, "tags {tags:?}");
        }
        assert_ne!(flow_hash(&udp(&[], [10, 0, 0, 3], [1000, 7], 0)), hash);
        assert_ne!(flow_hash(&udp(&[], [10, 0, 0, 1], [1001, 7], 0)), hash);
    }

    #[test]
    fn the_fragments_of_a_packet_have_one_hash() {
        let first = flow_hash(&udp(&[], [10, 0, 0, 1], [1000, 7], 0x2000));
        let later = flow_hash(&udp(&[], [10, 0, 0, 1], [0xdead, 0xbeef], 0x0010));
        assert_eq!(first, later);
    }

    #[test]
    fn flows_spread_over_queues() {
        for queues in [2u64, 3, 4, 8] {
            let mut counts = vec![0u32; queues as usize];
            for port in 0..8000 {
                counts[(flow_hash(&udp(&[], [10, 0, 0, 1], [port, 7], 0)) % queues) as usize] += 1;
            }
            let even = 8000 / queues as u32;
            assert!(counts.iter().all(|&count| count.abs_diff(even) < even / 5), "{counts:?} over {queues} queues");
        }
    }

    #[test]
    fn no_frame_is_too_short_to_hash() {
        let whole = udp(&[0x88a8, 0x8100], [10, 0, 0, 1], [1000, 7], 0);
        for length in 0..whole.len() {
            flow_hash(&whole[..length]);
        }
        let mut hostile = udp(&[], [10, 0, 0, 1], [1000, 7], 0);
        hostile[14] = 0x4f;
        flow_hash(&hostile);
    }
}
