//! Receive-side scaling: the Toeplitz hash of a packet's flow, and what of the packet is hashed.
//!
//! Source: Microsoft, "RSS hashing types" and "Verifying the RSS hash calculation" (Windows driver documentation).

use super::headers::{Headers, Network, TCP, UDP};

/// Bytes of a key: 36 of IPv6 addresses and ports, and the 4 over which the last bit's window reaches.
pub const KEY_BYTES: usize = 40;

/// The bytes that may be hashed at most: two IPv6 addresses and two ports.
const INPUT_BYTES: usize = 36;

/// Microsoft's key of the verification suite, which most NICs start with.
pub const DEFAULT_KEY: [u8; KEY_BYTES] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// Which packets have their ports hashed beside their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Those of TCP.
    pub tcp: bool,
    /// Those of UDP. The fragments of a datagram then go to another queue than whole datagrams of its flow.
    pub udp: bool,
}

impl Default for Ports {
    fn default() -> Ports {
        Ports { tcp: true, udp: true }
    }
}

/// A Toeplitz hash with its key: a 32-bit value, of which receive-side scaling takes the low bits.
///
/// The hash is linear in its input, so each half byte's contribution is a table of 16 words: 4.6 KB in all.
#[derive(Clone)]
pub struct Toeplitz {
    key: [u8; KEY_BYTES],
    tables: Box<[[u32; 16]; 2 * INPUT_BYTES]>,
}

impl std::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toeplitz").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Default for Toeplitz {
    fn default() -> Toeplitz {
        Toeplitz::new(&DEFAULT_KEY)
    }
}

impl Toeplitz {
    /// The hash with this key.
    pub fn new(key: &[u8; KEY_BYTES]) -> Toeplitz {
        let mut tables = Box::new([[0; 16]; 2 * INPUT_BYTES]);
        for (place, table) in tables.iter_mut().enumerate() {
            for (value, entry) in table.iter_mut().enumerate() {
                *entry = (0..4)
                    .filter(|bit| value & (8 >> bit) != 0)
                    .fold(0, |hash, bit| hash ^ window(key, 4 * place + bit));
            }
        }
        Toeplitz { key: *key, tables }
    }

    /// The key.
    pub fn key(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }

    /// The hash of up to 36 bytes; what is beyond is not hashed.
    pub fn hash(&self, input: &[u8]) -> u32 {
        self.tables
            .chunks_exact(2)
            .zip(input)
            .fold(0, |hash, (table, &byte)| hash ^ table[0][usize::from(byte >> 4)] ^ table[1][usize::from(byte & 0xf)])
    }

    /// The hash of a frame's flow: of addresses and ports where `ports` says so and the packet is no fragment, of addresses
    /// alone otherwise. `None` for what is no IP packet.
    pub fn hash_frame(&self, frame: &[u8], ports: Ports) -> Option<u32> {
        self.hash_beginning(frame, frame.len(), ports)
    }

    /// The same from the beginning of a frame of `whole` bytes: the same hash, if its headers lie in that beginning.
    pub fn hash_beginning(&self, frame: &[u8], whole: usize, ports: Ports) -> Option<u32> {
        let headers = Headers::of_beginning(frame, whole)?;
        let mut input = [0; INPUT_BYTES];
        let addresses = headers.addresses(frame);
        input[..addresses.len()].copy_from_slice(addresses);
        let wanted = match headers.protocol {
            TCP => ports.tcp,
            UDP => ports.udp,
            _ => false,
        };
        let mut length = addresses.len();
        if wanted && headers.checksum_at().is_some() {
            input[length..length + 4].copy_from_slice(frame.get(headers.transport..headers.transport + 4)?);
            length += 4;
        }
        debug_assert!(length <= if headers.version == Network::Four { 12 } else { INPUT_BYTES });
        Some(self.hash(&input[..length]))
    }
}

/// 32 bits of the key from a bit on.
fn window(key: &[u8; KEY_BYTES], bit: usize) -> u32 {
    let at = bit / 8;
    let bytes: [u8; 5] = std::array::from_fn(|index| key.get(at + index).copied().unwrap_or(0));
    let wide = bytes.iter().fold(0u64, |wide, &byte| wide << 8 | u64::from(byte));
    (wide >> (8 - bit % 8)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Microsoft's verification suite for IPv4: destination, source, hash of addresses, hash with TCP ports.
    const FOUR: [(&str, u16, &str, u16, u32, u32); 5] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
    ];

    /// The same for IPv6.
    const SIX: [(&str, u16, &str, u16, u32, u32); 3] = [
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
        ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61_e985, 0x02d1_feef),
    ];

    /// The hash by its definition, bit by bit.
    fn by_definition(key: &[u8; KEY_BYTES], input: &[u8]) -> u32 {
        (0..8 * input.len())
            .filter(|bit| input[bit / 8] & (0x80 >> (bit % 8)) != 0)
            .fold(0, |hash, bit| hash ^ window(key, bit))
    }

    fn check(addresses: &[u8], ports: [u16; 2], frame: &[u8], expected: (u32, u32)) {
        let hash = Toeplitz::default();
        let all = [addresses, &ports[0].to_be_bytes(), &ports[1].to_be_bytes()].concat();
        assert_eq!((hash.hash(addresses), hash.hash(&all)), expected);
        assert_eq!(by_definition(&DEFAULT_KEY, &all), expected.1);
        assert_eq!(hash.hash_frame(frame, Ports { tcp: false, udp: true }), Some(expected.0));
        assert_eq!(hash.hash_frame(frame, Ports::default()), Some(expected.1));
    }

    #[test]
    fn the_published_vectors_for_ipv4() {
        for (destination, to, source, from, plain, with_ports) in FOUR {
            let octets = |text: &str| text.parse::<Ipv4Addr>().expect("an address").octets();
            let addresses = [octets(source), octets(destination)].concat();
            let mut frame = vec![0; 12];
            frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
            frame.extend_from_slice(&addresses);
            frame.extend_from_slice(&[from.to_be_bytes(), to.to_be_bytes()].concat());
            frame.resize(60, 0);
            check(&addresses, [from, to], &frame, (plain, with_ports));
            // A fragment has no ports that could be trusted.
            frame[20] = 0x20;
            assert_eq!(Toeplitz::default().hash_frame(&frame, Ports::default()), Some(plain));
        }
    }

    #[test]
    fn the_published_vectors_for_ipv6() {
        for (destination, to, source, from, plain, with_ports) in SIX {
            let octets = |text: &str| text.parse::<Ipv6Addr>().expect("an address").octets();
            let addresses = [octets(source), octets(destination)].concat();
            let mut frame = vec![0; 12];
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            frame.extend_from_slice(&addresses);
            frame.extend_from_slice(&[from.to_be_bytes(), to.to_be_bytes()].concat());
            frame.resize(74, 0);
            check(&addresses, [from, to], &frame, (plain, with_ports));
        }
    }

    #[test]
    fn the_beginning_of_a_frame_has_the_hash_of_the_frame() {
        let (hash, ports) = (Toeplitz::default(), Ports::default());
        for length in [60u16, 127, 128, 129, 1500] {
            let mut frame = vec![2; 12];
            frame.extend_from_slice(&[8, 0, 0x45, 0]);
            frame.extend_from_slice(&(length - 14).to_be_bytes());
            frame.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9]);
            frame.resize(usize::from(length), 0);
            let whole = hash.hash_frame(&frame, ports);
            let beginning = &frame[..frame.len().min(128)];
            assert!(whole.is_some());
            assert_eq!(hash.hash_beginning(beginning, frame.len(), ports), whole, "{length} bytes");
            for cut in 0..beginning.len() {
                hash.hash_beginning(&beginning[..cut], frame.len(), ports);
            }
        }
    }

    #[test]
    fn what_is_no_ip_packet_has_no_hash_and_no_frame_is_too_short() {
        let hash = Toeplitz::default();
        assert_eq!(hash.hash_frame(&[0xff; 60], Ports::default()), None);
        for length in 0..60 {
            hash.hash_frame(&[0x45; 60][..length], Ports::default());
        }
        assert_eq!(hash.hash(&[1; 100]), hash.hash(&[1; INPUT_BYTES]));
    }
}
