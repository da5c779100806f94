//! The internet checksum: made, completed and verified.
//!
//! Sources: RFC 1071; RFC 768 (UDP: zero is "none", and is sent as all ones); RFC 8200, 8.1 (the pseudo-header behind a routing header; in
//! IPv6 there is a "none" only where both ends have agreed on it), RFC 6935 and 6936 (tunnels do).

use super::headers::{Headers, Network, UDP};

/// What the checksum of a header is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is right.
    Good,
    /// It is wrong.
    Bad,
    /// There is none, or none that can be checked here: a fragment, another protocol, a UDP packet sent without.
    Absent,
}

/// What the checksums of a frame are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// The IPv4 header's.
    pub network: Verdict,
    /// TCP's or UDP's.
    pub transport: Verdict,
}

/// The ones' complement sum of bytes that begin at an even place of what is summed, not yet folded: of at most 64 KiB,
/// added to `sum`.
pub fn sum(bytes: &[u8], sum: u64) -> u64 {
    let mut words = bytes.chunks_exact(4);
    // A ones' complement sum of 32-bit words folds to that of their halves, and 64 bits hold the carries.
    let total = words
        .by_ref()
        .fold(sum, |total, word| total + u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]])));
    let mut rest = [0; 4];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    total + u64::from(u32::from_be_bytes(rest))
}

/// Folds a sum to 16 bits, without complementing it.
pub fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The sum of the pseudo-header of a transport segment of `length` bytes, not folded.
pub fn pseudo_header(frame: &[u8], headers: &Headers, length: usize) -> u64 {
    let bytes = headers.addresses(frame).len() / 2;
    let (source, destination) = (&headers.addresses(frame)[..bytes], &frame[headers.destination..][..bytes]);
    sum(destination, sum(source, u64::from(headers.protocol) + length as u64))
}

/// Checks the checksums of a frame.
pub fn verify(frame: &[u8]) -> Verdicts {
    let Some(headers) = Headers::of(frame) else {
        return Verdicts { network: Verdict::Absent, transport: Verdict::Absent };
    };
    let verdict = |good| if good { Verdict::Good } else { Verdict::Bad };
    let network = match headers.version {
        Network::Four => verdict(fold(sum(&frame[headers.network..headers.transport], 0)) == 0xffff),
        Network::Six => Verdict::Absent,
    };
    Verdicts { network, transport: transport(frame, &headers, verdict) }
}

fn transport(frame: &[u8], headers: &Headers, verdict: fn(bool) -> Verdict) -> Verdict {
    let Some(at) = headers.checksum_at() else { return Verdict::Absent };
    let segment = headers.segment(frame);
    // Over IPv6 only the end knows whether it takes such packets, and nothing was found wrong.
    if headers.protocol == UDP && frame[at..at + 2] == [0, 0] {
        return Verdict::Absent;
    }
    verdict(fold(sum(segment, pseudo_header(frame, headers, segment.len()))) == 0xffff)
}

/// Writes every checksum that the frame has a place for: the IPv4 header's, and TCP's or UDP's. What is no IP packet, and
/// the transport's of a fragment, stays as it is.
pub fn fill(frame: &mut [u8]) {
    let Some(headers) = Headers::of(frame) else { return };
    fill_network(frame, &headers);
    if let Some(at) = headers.checksum_at() {
        frame[at..at + 2].fill(0);
        let segment = headers.segment(frame);
        let value = fold(sum(segment, pseudo_header(frame, &headers, segment.len())));
        put(frame, at, value, headers.protocol == UDP);
    }
}

/// Writes the IPv4 header's checksum; nothing for IPv6.
pub fn fill_network(frame: &mut [u8], headers: &Headers) {
    if headers.version == Network::Four {
        let at = headers.network + 10;
        frame[at..at + 2].fill(0);
        let value = fold(sum(&frame[headers.network..headers.transport], 0));
        put(frame, at, value, false);
    }
}

/// Completes a checksum that was begun, as virtio's headers describe one: the field at `start + offset` holds the sum of
/// the pseudo-header, and the checksum covers everything from `start`. `false`, with the frame as it was, where the
/// field does not lie in the frame.
#[must_use]
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(at) = start.checked_add(offset).filter(|at| at + 2 <= frame.len() && start < frame.len()) else {
        return false;
    };
    // Padding behind a packet is summed as well: it is zeros where this program or the kernel made it, but a peer's may
    // not be, and so the packet's own end is asked for where it has one.
    let end = Headers::of(frame).map_or(frame.len(), |headers| headers.end.max(at + 2));
    let value = fold(sum(&frame[start..end], 0));
    // All ones for zero is the same sum, and for UDP the only one of the two that says that there is a checksum.
    put(frame, at, value, true);
    true
}

/// Completes a frame's transport checksum where it looks begun: it is wrong, and is the sum of the pseudo-header, as a
/// sender leaves it that expects its hardware to complete it. `true` where that was so.
///
/// A frame that was corrupted on its way looks begun once in 65,536 times.
pub fn complete_if_begun(frame: &mut [u8]) -> bool {
    let Some(headers) = Headers::of(frame) else { return false };
    let Some(at) = headers.checksum_at() else { return false };
    let segment = headers.segment(frame);
    let begun = fold(pseudo_header(frame, &headers, segment.len()));
    let field = u16::from_be_bytes([frame[at], frame[at + 1]]);
    if field != begun
        || transport(frame, &headers, |good| if good { Verdict::Good } else { Verdict::Bad }) != Verdict::Bad
    {
        return false;
    }
    complete(frame, headers.transport, at - headers.transport)
}

fn put(frame: &mut [u8], at: usize, sum: u16, zero_is_none: bool) {
    let value = match !sum {
        0 if zero_is_none => 0xffff,
        value => value,
    };
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_sum_of_the_specifications_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes, 0)), 0xddf2);
        assert_eq!(fold(sum(&bytes[..7], 0)), 0xdcfb);
        assert_eq!(fold(sum(&[0xff; 9000], 0)), 0xffff);
    }

    /// IPv4 and IPv6, TCP and UDP, with payloads of every length to 100, padded to 60 bytes.
    fn frames() -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for (six, protocol, header) in [(false, 6, 20), (false, 17, 8), (true, 6, 20), (true, 17, 8)] {
            for payload in 0..100usize {
                let mut frame = vec![2; 12];
                let length = header + payload;
                if six {
                    frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, length as u8, protocol, 64]);
                    frame.extend((0..32).map(|at| at * 5 + 1));
                } else {
                    frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 20 + length as u8, 1, 2, 0x40, 0, 64, protocol]);
                    frame.extend_from_slice(&[0xaa, 0xaa, 10, 0, 0, 1, 10, 0, 0, 2]);
                }
                let transport = frame.len();
                frame.extend((0..length).map(|at| (at * 11 + 3) as u8));
                if protocol == 17 {
                    frame[transport + 4..transport + 6].copy_from_slice(&(length as u16).to_be_bytes());
                }
                frame.resize(frame.len().max(60), 0xee);
                frames.push(frame);
            }
        }
        frames
    }

    #[test]
    fn what_is_filled_in_is_good_and_any_changed_byte_makes_it_bad() {
        for mut frame in frames() {
            let headers = Headers::of(&frame).expect("a packet");
            fill(&mut frame);
            let four = headers.version == Network::Four;
            let network = if four { Verdict::Good } else { Verdict::Absent };
            assert_eq!(verify(&frame), Verdicts { network, transport: Verdict::Good });
            for at in headers.transport..headers.end {
                frame[at] ^= 0x40;
                let field = at - headers.transport;
                // Bytes of a UDP checksum may become "none"; everything else must be noticed.
                let noticed = verify(&frame).transport == Verdict::Bad;
                assert!(noticed || headers.protocol == UDP && (6..8).contains(&field), "{field} {frame:02x?}");
                frame[at] ^= 0x40;
            }
            if four {
                frame[headers.network + 8] ^= 1;
                assert_eq!(verify(&frame).network, Verdict::Bad);
            }
        }
    }

    #[test]
    fn a_begun_checksum_is_completed_to_what_filling_gives() {
        for mut frame in frames() {
            fill(&mut frame);
            let headers = Headers::of(&frame).expect("a packet");
            let at = headers.checksum_at().expect("a checksum");
            let begun = fold(pseudo_header(&frame, &headers, headers.end - headers.transport));
            let mut partial = frame.clone();
            partial[at..at + 2].copy_from_slice(&begun.to_be_bytes());
            let mut found = partial.clone();
            assert!(complete(&mut partial, headers.transport, at - headers.transport));
            assert_eq!(partial, frame);
            assert!(complete_if_begun(&mut found) && found == frame);
            assert!(!complete_if_begun(&mut found) && found == frame, "what is good stays");
            found[at] ^= 1;
            assert!(!complete_if_begun(&mut found), "what is merely wrong stays");
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_all_ones_where_zero_is_none() {
        let mut frame = [0; 60];
        frame[..2].fill(0xff);
        assert!(complete(&mut frame, 0, 10));
        assert_eq!(frame[10..12], [0xff, 0xff]);
        for mut frame in frames() {
            let headers = Headers::of(&frame).expect("a packet");
            let at = headers.checksum_at().expect("a checksum");
            if headers.protocol != UDP || headers.end < headers.transport + 10 {
                continue;
            }
            // The checksum, as payload, sums with the rest to what gives zero.
            frame[headers.transport + 8..headers.transport + 10].fill(0);
            fill(&mut frame);
            let value = [frame[at], frame[at + 1]];
            frame[headers.transport + 8..headers.transport + 10].copy_from_slice(&value);
            fill(&mut frame);
            assert_eq!((frame[at], frame[at + 1], verify(&frame).transport), (0xff, 0xff, Verdict::Good));
        }
    }

    #[test]
    fn carries_are_folded_until_none_is_left() {
        for sum in [0x0001_0000_ffff_ffff, 0x1_0000_ffff, 0xffff_ffff, 0x1_ffff, 0x2_fffe, u64::from(u32::MAX) << 8] {
            let mut folded: u64 = sum;
            while folded >> 16 != 0 {
                folded = (folded >> 16) + (folded & 0xffff);
            }
            assert_eq!(u64::from(fold(sum)), folded, "{sum:x}");
        }
    }

    #[test]
    fn a_place_outside_the_frame_is_refused() {
        let mut frame = [0; 60];
        for (start, offset) in [(60, 0), (58, 1), (0, 59), (usize::MAX, 2), (2, usize::MAX)] {
            assert!(!complete(&mut frame, start, offset), "{start} {offset}");
        }
        assert!(complete(&mut frame, 58, 0));
    }

    /// Over IPv6 tunnels send such packets (RFC 6935), and who told their receiver that they are broken would lose it their traffic.
    #[test]
    fn udp_without_a_checksum_is_neither_good_nor_bad() {
        for mut frame in frames() {
            let headers = Headers::of(&frame).expect("a packet");
            if headers.protocol == UDP {
                frame[headers.transport + 6..headers.transport + 8].fill(0);
                assert_eq!(verify(&frame).transport, Verdict::Absent);
                assert!(!complete_if_begun(&mut frame), "nothing was begun");
            }
        }
    }

    /// A datagram over IPv6 behind a routing header of this type, in which so many addresses stand and so many nodes are still to come.
    fn routed(kind: u8, addresses: u8, left: u8) -> Vec<u8> {
        let routing = 8 + 16 * usize::from(addresses);
        let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, (routing + 12) as u8, 43, 64]].concat();
        frame.extend((0..32).map(|at| at * 5 + 1));
        frame.extend([UDP, 2 * addresses, kind, left, 0, 0, 0, 0]);
        frame.extend((0..16 * addresses).map(|at| at * 3 + 100));
        frame.extend([1, 2, 3, 4, 0, 12, 0, 0, 9, 9, 9, 9]);
        frame
    }

    /// Made by the rule itself: the last node's address stands where the destination's is, and there is no routing header (RFC 8200, 8.1).
    fn at_its_end(frame: &[u8], routing: usize, last: usize) -> [u8; 2] {
        let mut whole = [&frame[..54], &frame[54 + routing..]].concat();
        (whole[19], whole[20]) = (12, UDP);
        whole[38..54].copy_from_slice(&frame[last..last + 16]);
        fill(&mut whole);
        [whole[60], whole[61]]
    }

    #[test]
    fn a_routed_packet_has_the_checksum_with_which_it_arrives() {
        // The last node of a list, the home address, the first of a list the other way round; and nobody left on the way.
        for (kind, addresses, left, last) in
            [(0, 2, 1, 78), (0, 1, 1, 62), (2, 1, 1, 62), (4, 3, 2, 62), (0, 2, 0, 38), (4, 3, 0, 38), (9, 1, 0, 38)]
        {
            let mut frame = routed(kind, addresses, left);
            let routing = 8 + 16 * usize::from(addresses);
            let at = 54 + routing + 6;
            let expected = at_its_end(&frame, routing, last);
            fill(&mut frame);
            assert_eq!(frame[at..at + 2], expected, "type {kind}, {left} left");
            assert_eq!(verify(&frame).transport, Verdict::Good);
            frame[last] ^= 1;
            assert_eq!(verify(&frame).transport, Verdict::Bad, "type {kind}, {left} left");
        }
    }

    #[test]
    fn what_is_routed_to_where_nobody_here_knows_is_neither_good_nor_bad_and_stays_as_it_is() {
        for (kind, addresses) in [(9, 1), (3, 1), (0, 0), (2, 0), (4, 0)] {
            let mut frame = routed(kind, addresses, 1);
            let before = frame.clone();
            fill(&mut frame);
            assert!(frame == before && !complete_if_begun(&mut frame), "type {kind}");
            assert_eq!(verify(&frame).transport, Verdict::Absent, "type {kind}");
        }
    }
}
